"""Find personal data, and replace it with stable pseudonyms.

It is found by its form (e-mail addresses and telephone numbers, anywhere in a text) and by the
names of fields in JSON, forms, queries and headers: see `PERSONAL_FIELDS`. In a text that is not
JSON but quotes some, a field is a string that follows its name.

The same value gets the same pseudonym in every process and session, without a secret. A replay
therefore finds the requests that were redacted in the same way. A pseudonym does not make a person
anonymous: whoever guesses a value can check the guess.

When a text is redacted again, its pseudonyms are recognised and stay unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import final
from urllib.parse import quote, unquote, unquote_plus

from ..display import plural, shell_word
from .key import REPLACED

PERSONAL = "personal"
"""The name for all personal data that this module finds, by its form or by its field."""

_EMAIL_ADDRESS = "e-mail address"
_TELEPHONE_NUMBER = "telephone number"
_FIELDS = {
    _EMAIL_ADDRESS: "email emailaddress mail",
    _TELEPHONE_NUMBER: "phone phonenumber telephone tel mobile mobilenumber fax faxnumber",
    "name": "name firstname middlename lastname fullname givenname familyname surname contactname "
    "displayname preferredname legalname maidenname nickname realname contactperson customername "
    "accountholder cardholdername",
    "recipient": "to recipient recipients recipientname addressee",
    "company name": "company companyname organization organisation",
    "address line": "address address1 address2 addressline1 addressline2 line1 line2 firstline "
    "secondline street streetname streetaddress housenumber city postcode postalcode zip zipcode",
    "birth date": "birthdate birthday born bornon dateofbirth dob",
    "bank account": "iban bankaccount accountnumber",
    "personal number": "ssn bsn socialsecuritynumber passportnumber",
}
PERSONAL_FIELDS = {name: kind for kind, names in _FIELDS.items() for name in names.split()}
"""Names of fields, in lower case and without marks (``firstName`` and ``first_name`` are
``firstname``), and the kind of personal data in each. Users name other fields themselves:
``redact=["personal", "loyalty_number", "company.id"]``, or spare one: ``"-address.city"``."""

_PERSONAL_PATHS = tuple(f".{field}" for field in PERSONAL_FIELDS)

# A field below one of these kinds is of the same kind: {"address": {"country": "NL"}}.
_INHERITED = {name for name, kind in PERSONAL_FIELDS.items() if kind in ("address line", "name")}

_SPARED = "-"
"""Begins the name of a field that stays, with all that is in it; and its label."""

# "to" is a person, and no date, amount or currency, if it has two words.
_TWO_WORDS = re.compile(r"[^\W\d_]{2}\W*\s\W*[^\W\d_]{2}")

# A domain does not end with a number ("b.git@v1.2") and is not a picture's name ("logo@2x.png"). A
# match starts only after a character that no local part has, so a megabyte without an @ is read
# once. It may be escaped for an address (%2540: twice), for HTML or for JSON.
_EMAIL = re.compile(
    r"(?:(?<![\w.+%-])(?!'|(?<=\\)u[0-9A-Fa-f]{4})|(?<=%[013-7][0-9A-Fa-f])|(?<=%2[0-46-9A-Fa-f])"
    r"|(?<=%25[0-7][0-9A-Fa-f])|(?<=\\u[0-9A-Fa-f]{4}))"
    r"((?:[\w.+'-]|%(?:25)?2[Bb]|%(?:25)?[89A-Fa-f][0-9A-Fa-f]){1,200})"
    r"(@|%(?:25){0,2}40|&(?:amp;)?(?:#64|#[Xx]40|commat);|\\{1,4}u0040)"
    r"(?!\dx\.(?:png|jpe?g|gif|svg|webp)\b)"
    r"((?:[^\W_][\w-]{0,62}\.){1,8}(?!\d)[^\W_][\w-]{0,62})"
)
# A number without + has at least nine digits; a date such as 01-02-2026 has eight.
_PHONE = re.compile(
    r"(?<![\w.:/\-])(?:"
    r"(\+|%(?:25)?2[Bb])\d(?:[ ().\-]{0,2}\d){7,14}"
    r"|0(?:\d[ \-/]\d|\d{2,3}[ \-/])(?:[ \-]?\d){6,8}"
    r"|\d{3}[.\-]\d{3}[.\-]\d{4}"
    r")(?![\w:\-]|\.\d)"
)

# Domains that RFC 2606 reserves for examples, and addresses of programs or of code fetched by ssh.
_NOT_PERSONAL = re.compile(
    r"(?:git|no-?reply)@.*|.*[@.](?:example(?:\.(?:com|net|org))?|invalid|test|localhost)",
    re.DOTALL,
)
_NUMBER_PSEUDONYM = re.compile(r"\+?999\d{9}(?:\.0)?")

# A field of a form or a query. Its groups: all before the value, the name, the value.
FIELD = re.compile(
    r"((?:^|[?&;#]|\\u0026)([^=?&;#\s\"<>{}\\]{1,200})=)((?:[^&;#\s\"'<>\\]|'(?=\w))+)",
    re.MULTILINE,
)
# A JSON string, which may be cut short.
_STRING = r"\"[^\"\\]*(?:\\.[^\"\\]*)*(?:\"|\\?\Z)"
SCALAR = re.compile(rf"{_STRING}|-?\d[\d.eE+-]*|true|false|null|-?Infinity|NaN", re.DOTALL)
# A piece of any text: a string, with the name of its field if one is before it; or other text.
_PIECE = re.compile(rf'("([\w .-]{{1,99}})"\s*:\s*)?({_STRING})|[^"]+', re.DOTALL)
# Personal data has one of these: an e-mail address, a number, or a field with its value.
_HINT = re.compile(r"[@%\d\"=]")
_MADE_UP = re.compile(r'"service": ?"stand-in"|"Stand-in User"')


@lru_cache(1000)  # the same few names are in each object
def normalize(name: str) -> str:
    """Return the name of a field in lower case and without marks."""
    return (name if name.isalnum() else re.sub(r"[\W_]+", "", name)).lower()


def _digest(value: str) -> str:
    normal = unquote(unquote(value)).strip().lower().encode("utf-8", "surrogatepass")
    return hashlib.blake2s(normal, digest_size=4, person=b"dm_lab").hexdigest()


def _digits(value: str) -> str:
    return re.sub(r"\D+", "", unquote(unquote(value)))


def _number_for(digits: str) -> str:
    # The ITU has reserved the country code 999, so this is nobody's number.
    return f"999{int(_digest(digits), 16) % 10**9:09d}"


def _is_replaced(value: str) -> bool:
    return bool(_NUMBER_PSEUDONYM.fullmatch(value) or REPLACED.fullmatch(unquote(value)))


def spared_by(redact: Iterable[str]) -> list[str]:
    """Return the names or paths of the fields that ``redact`` spares."""
    return [rule[1:] for rule in redact if rule.startswith(_SPARED)]


def _path_of(rule: str) -> str:
    return "".join(f".{normalize(part)}" for part in rule.split("."))


@final
class Pseudonyms:
    """Replaces the personal data that ``redact`` names; see `redaction.Redactor`.

    If ``seen`` is given, it collects the values that were replaced, by kind and without examples.
    """

    def __init__(self, redact: Iterable[str], *, seen: dict[str, set[str]] | None = None) -> None:
        rules = list(redact)
        self._spared = tuple(map(_path_of, spared_by(rules)))
        own = {_path_of(rule) for rule in rules if rule.strip() and rule[0] != _SPARED}
        self._by_form = f".{PERSONAL}" in own
        own.discard(f".{PERSONAL}")
        self._named = {path.rpartition(".")[2] for path in own}
        self._paths = (*own, *_PERSONAL_PATHS) if self._by_form else tuple(own)
        self._seen = seen

    def __bool__(self) -> bool:
        return bool(self._paths)

    def text(self, text: str) -> str:
        """Return a text (JSON, a form, an address or any other) with its personal data replaced."""
        if not _HINT.search(text):
            return text
        if text.lstrip().startswith(("{", "[")):
            with contextlib.suppress(ValueError, RecursionError):
                return self._json(text)
        return _PIECE.sub(self._replace_piece, text)

    def by_form(self, text: str) -> str:
        """Return a text with its e-mail addresses and telephone numbers replaced."""
        return _PHONE.sub(self._replace_phone, _EMAIL.sub(self._replace_email, text))

    def field(self, name: str, value: str) -> str:
        """Return the value of a form field or a header, or its pseudonym if it has one."""
        label = self._label(f".{normalize(name)}")
        return self._replace(value, label) if label else value

    def _json(self, text: str) -> str:
        """Return JSON with the values of fields replaced, and no other character changed."""
        # An object becomes a tuple of its members, so that repeated names are kept. Numbers stay
        # text: Python refuses to parse thousands of digits.
        parse = json.JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str)
        labels = self._labels(parse.decode(text), "", "")
        return SCALAR.sub(lambda each: self._replace_scalar(each[0], next(labels)), text)

    def _labels(self, value: object, path: str, label: str) -> Iterator[str]:
        """Yield the label of each name and value that `SCALAR` finds, in its order."""
        if isinstance(value, tuple):
            for name, inner in value:
                yield ""
                below = f"{path}.{normalize(name)}"
                yield from self._labels(inner, below, self._label(below, label))
        elif isinstance(value, list):
            for inner in value:
                yield from self._labels(inner, path, label)
        else:
            yield label

    def _label(self, path: str, above: str = "") -> str:
        """Return the label of a field's pseudonym, or an empty string if the field stays.

        ``above`` is the label of the field that contains it.
        """
        if above == _SPARED or path.endswith(self._spared):
            return _SPARED
        label = path.rpartition(".")[2]
        if path.endswith(self._paths):
            return label
        return above if above in self._named or above in _INHERITED else ""

    def _replace_piece(self, piece: re.Match[str]) -> str:
        """Return a piece of a text that is not JSON but may quote some, with its data replaced."""
        before, name, string = piece.groups()
        if string is None:
            return self._plain(piece[0])
        if name is None:
            return self._replace_scalar(string, "")
        label = self._label(f".{normalize(name)}")
        return f"{before}{self._replace_scalar(string, label)}"

    def _plain(self, text: str) -> str:
        if "=" in text:
            text = FIELD.sub(self._replace_field, text)
        return self.by_form(text) if self._by_form else text

    def _replace_field(self, field: re.Match[str]) -> str:
        before, name, raw = field.groups()
        value = unquote_plus(raw)
        new = self.field(unquote_plus(name), value)
        return field[0] if new == value else before + quote(new, safe="")

    def _replace_scalar(self, raw: str, label: str) -> str:
        """Return a JSON value: a number for a number, and null for a true or false to replace."""
        if label == _SPARED:
            return raw
        if raw[0] == '"':
            if not (label or _HINT.search(raw, 1, len(raw) - 1)):
                return raw
            try:
                value = json.loads(raw)
            except ValueError:  # it is cut short, or not JSON
                return self._plain(raw)
            new = self._replace(value, label) if label else self.text(value)
            return raw if new == value else json.dumps(new, ensure_ascii=raw.isascii())
        if raw[0] in "tfn":
            return "null" if label in self._named else raw
        if label in ("", "to") or _is_replaced(raw):
            return raw
        self._note(PERSONAL_FIELDS.get(label), raw)
        is_whole = raw.lstrip("-").isdigit()
        return _number_for(raw) if is_whole else f"{_number_for(raw)}.0"

    def _replace(self, value: str, label: str) -> str:
        """Return the pseudonym of a field's value."""
        if not value.strip() or label == _SPARED or _is_replaced(value):
            return value
        if label == "to" and label not in self._named and not _TWO_WORDS.search(value):
            return self.by_form(value)
        kind = PERSONAL_FIELDS.get(label)
        self._note(kind, value)
        if self._seen is not None:  # it is only counted
            return value
        digits = _digits(value)
        if "@" in value and _EMAIL.fullmatch(value):
            return f"person-{_digest(value)}@example.invalid"
        if digits and (kind == _TELEPHONE_NUMBER or _PHONE.fullmatch(value)):
            return f"+{_number_for(digits)}"
        return f"<{label}-{_digest(value)}>"

    def _replace_email(self, match: re.Match[str]) -> str:
        local, at, domain = match.groups()
        return self._replace(f"{local}@{domain}", "email").replace("@", at)

    def _replace_phone(self, match: re.Match[str]) -> str:
        return self._replace(match[0], "phone").replace("+", match[1] or "+")

    def _note(self, kind: str | None, value: str) -> None:
        if self._seen is None or kind is None:
            return
        value = _digits(value) if kind == _TELEPHONE_NUMBER else unquote(value).strip().lower()
        if not _NOT_PERSONAL.fullmatch(value):
            self._seen.setdefault(kind, set()).add(value)


def count_personal(
    bodies: Iterable[str], texts: Iterable[str] = (), *, keep: Iterable[str] = ()
) -> dict[str, int]:
    """Return how many different values of each kind of personal data are in bodies and texts.

    Examples, such as addresses at example.com, do not count. In bodies, values also count by the
    names of their fields, except in the stand-in's records, whose people are made up, and the
    fields to ``keep``.

    Returns
    -------
    dict
        ``{"e-mail address": 2, "name": 1}``. Kinds that do not occur are left out.
    """
    seen: dict[str, set[str]] = {}
    search = Pseudonyms([PERSONAL, *map(f"{_SPARED}{{}}".format, keep)], seen=seen)
    for body in bodies:
        if _MADE_UP.search(body):
            search.by_form(body)
        else:
            search.text(body)
    for text in texts:
        search.by_form(text)
    return {kind: len(seen[kind]) for kind in _FIELDS if kind in seen}


def personal_notice(counts: dict[str, int], cassette: str, *, searched: int | None = None) -> str:
    """Return a line that says what personal data a recording contains, and how to redact it.

    It is empty if all were searched and have none. ``searched`` is the number of interactions that
    were searched, if that is not all.

    >>> personal_notice({"e-mail address": 2, "telephone number": 1}, "tour")
    "Cassette 'tour' contains 2 e-mail addresses, 1 telephone number. Before you share it: \
directmail-lab cassette redact tour --redact personal, or record it with redact=['personal']."
    """
    if not counts and searched is None:
        return ""
    if not counts:
        return (
            f"Only the first megabyte of {searched:,} of the interactions of cassette {cassette!r} "
            "was searched for personal data. To search all: directmail-lab cassette audit "
            f"{shell_word(cassette)}."
        )
    contents = ", ".join(plural(count, kind) for kind, count in counts.items())
    if searched is not None:
        contents += f" in the first megabyte of {searched:,} of its interactions"
    return (
        f"Cassette {cassette!r} contains {contents}. Before you share it: "
        f"directmail-lab cassette redact {shell_word(cassette)} --redact personal, "
        "or record it with redact=['personal']."
    )
