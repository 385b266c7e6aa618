"""Personal data: finding it, and putting a stable pseudonym in its place.

It is found by its form (e-mail addresses and telephone numbers, anywhere in a text) and by the
names of the fields that hold it, in JSON, in forms and in queries: see `PERSONAL_FIELDS`.

The same value gets the same pseudonym in every process and session, without a secret. So a replay
that redacts its requests as the recording did finds them. A pseudonym does not make a person
anonymous: whoever guesses a value can check the guess.

Pseudonyms are recognised, and left as they are when a text is redacted again.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.parse import quote, unquote, unquote_plus

from .key import JSON_NUMBERS, format_string, parse_string

if TYPE_CHECKING:
    from ..interaction import Interaction

PERSONAL: Final = "personal"
"""The name that stands for all personal data that is known here, by its form or by its field."""

_EMAIL_ADDRESS: Final = "e-mail address"
_TELEPHONE_NUMBER: Final = "telephone number"
_FIELDS: Final = {
    _EMAIL_ADDRESS: "email emailaddress mail",
    _TELEPHONE_NUMBER: "phone phonenumber telephone telephonenumber tel mobile mobilephone "
    "mobilenumber cellphone fax faxnumber",
    "name": "name firstname middlename lastname fullname givenname familyname surname maidenname "
    "initials displayname contactname recipientname sendername",
    "company name": "company companyname organization organisation organizationname "
    "organisationname employer",
    "address line": "address address1 address2 address3 addressline addressline1 addressline2 "
    "addressline3 line1 line2 line3 street street1 street2 streetname streetaddress housenumber "
    "postaladdress city town postcode postalcode zip zipcode pobox",
    "birth date": "birthdate birthday dateofbirth dob",
    "bank account": "iban bankaccount accountnumber bankaccountnumber",
    "personal number": "ssn bsn socialsecuritynumber nationalid passportnumber taxid vatnumber",
}
PERSONAL_FIELDS: Final = {name: kind for kind, names in _FIELDS.items() for name in names.split()}
"""Names of fields, in small letters and without marks (``firstName`` and ``first_name`` are
``firstname``), and the kind of personal data that each holds. Any other field is named in
``redact=["personal", "loyalty_number", "company.id"]``."""

# All that is below a field of these kinds is of that kind: {"address": {"country": "NL"}}.
_INHERITED: Final = frozenset(("address line", "name"))

# Letters and digits of any script and "-"; in the local part also "._+'", percent-encoded or not. A
# domain does not end with a number ("b.git@v1.2"), nor is it a picture's ("logo@2x.png").
_SPACES = r"\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # twice as fast as \s
_DOMAIN = rf"[^\x00-,./:-@\[-`{{-\x7f{_SPACES}]{{1,63}}"
_LOCAL = rf"[^\x00-&(-*,/:-@\[-^`{{-\x7f{_SPACES}]"
# It starts where no character of a local part stands before, so that a megabyte without an @ is
# searched once.
_EMAIL = re.compile(
    rf"(?:(?<!{_LOCAL})(?<!%)|(?<=%[0-7][0-9A-Fa-f]))"
    rf"((?:{_LOCAL}++|%2[Bb]|%[89A-Fa-f][0-9A-Fa-f])++)(@|%40|&#64;)"
    rf"(?!\dx\.(?:png|jpe?g|gif|svg|webp)\b)({_DOMAIN}(?:\.{_DOMAIN}){{0,7}}\.(?!\d){_DOMAIN})"
)
_PHONE = re.compile(
    r"(?<![\w.:/\-])(?:"
    r"(\+|%2[Bb])\d(?:[ ().\-]{0,2}\d){7,14}"
    r"|\(0?\d{2,4}\) ?\d(?:[ .\-]?\d){5,8}"
    r"|0\d{1,3}[ \-/]\d{2,4}(?:[ \-]?\d{2,4}){1,3}"
    r"|\d{3}[.\-]\d{3}[.\-]\d{4}"
    r")(?![\w:\-]|\.\d)"
)
# What `Pseudonyms` writes.
_PSEUDONYM = re.compile(
    r"person-[0-9a-f]{8}(?:@|%40)example\.invalid|(?:\+|%2[Bb])?999\d{9}(?:\.0)?|<[^<>]+-[0-9a-f]{8}>"
)
# Domains that RFC 2606 keeps for examples, addresses of programs, or of code fetched by ssh.
_NOT_PERSONAL = re.compile(
    r"(?:git|no-?reply)@.*"
    r"|(?:.*[@.])?(?:example(?:\.(?:com|net|org))?|invalid|test|localhost|noreply\.github\.com)",
    re.IGNORECASE | re.DOTALL,
)
_PAIR = re.compile(r"(^|[?&;\n])([^=&;#?\s{}\"]{1,200})=([^&;#\s\"]+)")
_PART_NAME = re.compile(r";\s*name=\"([^\"\r\n]*)\"", re.IGNORECASE)

# A step through JSON, or text that quotes some: what stands between, then brackets that open or
# close, a string (a name, where a colon follows), or one that never ends.
_STEP = re.compile(
    r'((?:[^"\[\]{}]++|\[\]|{}|""(?!\s*+:))*+)'
    r'(?:([\[{]+)|([\]}]+)|("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*+:)?|(".*)|\Z)',
    re.DOTALL,
)
_OPENS, _CLOSES, _STRING, _NAME = 2, 3, 4, 5
_SCALAR = re.compile(r"(-?\d[\d.eE+\-]*|true|false)")
# No text without one of these holds what is known by its form, or a form's field.
_CANDIDATE = re.compile(r"[@=%&\\]|\d[ ().\-/]{0,2}\d")
_NO_DIGITS = re.compile(r"\D+")
_NO_LETTERS = re.compile(r"[\W_]+")
_MADE_UP = re.compile(r'"service": ?"stand-in"')

# The same names and values recur in a list: with this cache a megabyte takes 0.4 s instead of 2.
_cached = functools.lru_cache(4096)


class _Field(NamedTuple):
    """Where in JSON: the names of the fields, the last one last; and what a pseudonym is called."""

    path: tuple[str, ...] = ()
    label: str = ""


_ROOT: Final = _Field()


def _digest(value: str) -> str:
    normal = unquote(value).strip().lower().encode("utf-8", "surrogatepass")
    return hashlib.blake2s(normal, digest_size=4, person=b"dm_lab").hexdigest()


def _digits(value: str) -> str:
    return _NO_DIGITS.sub("", unquote(value))


def _number_for(digits: str) -> str:
    # The ITU has reserved the country code 999: it is nobody's number.
    return f"999{int(_digest(digits), 16) % 10**9:09d}"


def _normalize(name: str) -> str:
    return (name if name.isalnum() else _NO_LETTERS.sub("", name)).lower()


@final
class Pseudonyms:
    """Replaces the personal data that ``redact`` names; see `redaction.Redactor`.

    With ``values``, nothing is replaced: it collects them by kind, without examples.
    """

    def __init__(self, redact: Iterable[str], *, values: dict[str, set[str]] | None = None) -> None:
        paths = {tuple(map(_normalize, name.split("."))) for name in redact if name.strip()}
        self._by_form = (PERSONAL,) in paths
        self._paths = paths - {(PERSONAL,)}
        self._named = {path[-1] for path in self._paths}
        self._inherited = self._named | {n for n, k in PERSONAL_FIELDS.items() if k in _INHERITED}
        if self._by_form:
            self._paths |= {(name,) for name in PERSONAL_FIELDS}
        self._last_names = {path[-1] for path in self._paths}
        self._depth = max(map(len, self._paths), default=1)
        self._values = values
        self._cached_field_below = _cached(self._field_below)
        self._email = _cached(self._replace_email)
        self._pair = _cached(self._replace_field)
        self._number = _cached(self._replace_number)
        self._value = _cached(self._replace_value)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def text(self, text: str) -> str:
        """Return a text with its personal data replaced: JSON, a form, an address or any other."""
        if text.startswith("--") and "name=" in text:
            boundary = text.partition("\r\n")[0]
            return boundary.join(map(self._replace_part, text.split(boundary)))
        return (
            self._json(text) if '"' in text or text[:1] in ("[", "{") else self._replace_plain(text)
        )

    def by_form(self, text: str) -> str:
        """Return a text with its e-mail addresses and telephone numbers replaced."""
        if "@" in text or "%40" in text or "&#64;" in text:
            text = _EMAIL.sub(lambda match: self._email(*match.groups()), text)
        return _PHONE.sub(self._replace_phone, text)

    def _replace_plain(self, text: str) -> str:
        if "=" in text:
            text = _PAIR.sub(lambda match: match[1] + self._pair(match[2], match[3]), text)
        return self.by_form(text) if self._by_form else text

    def _json(self, text: str) -> str:
        """Return JSON of the same shape, or text that quotes some: its strings are written anew."""
        parts: list[str] = []
        ancestors = [_ROOT]
        field, done = _ROOT, 0
        for step in _STEP.finditer(text):
            kind, label = step.lastindex, field.label
            if kind == _NAME:
                field = self._cached_field_below(ancestors[-1], step[_STRING])
            elif kind == _OPENS:
                ancestors += [field] * len(step[_OPENS])
            elif kind == _CLOSES:
                depth = max(len(ancestors) - len(step[_CLOSES]), 0)
                field = ancestors[depth]
                del ancestors[depth or 1 :]
            start, end = step.span()
            # An e-mail address or a form's named field has at least five characters.
            if label or (end - start > 4 and _CANDIDATE.search(text, start, end)):
                between, _, _, string, colon, torn = step.groups("")
                old = between + string + torn
                new = self._replace_between(between, label) if between.strip(", ") else between
                if string:
                    new += self._replace_string(string, "" if colon else label)
                elif torn:
                    new += (
                        self._replace_string(f'{torn}"', label)[:-1]
                        if label
                        else self._replace_plain(torn)
                    )
                if new != old:
                    parts += (text[done:start], new)
                    done = start + len(old)
        return "".join((*parts, text[done:]))

    def _field_below(self, field: _Field, raw_name: str) -> _Field:
        name = _normalize(parse_string(raw_name))
        path = (*field.path, name)[-self._depth :]
        is_named = name in self._last_names
        if is_named and any(path[start:] in self._paths for start in range(len(path))):
            return _Field(path, path[-1])
        return _Field(path, field.label if field.label in self._inherited else "")

    def _replace_between(self, text: str, label: str) -> str:
        """Return what stands between strings and brackets: numbers, and in no JSON any text."""
        if label and JSON_NUMBERS.fullmatch(text):
            parts = _SCALAR.split(text)
            parts[1::2] = [self._number(scalar, label) for scalar in parts[1::2]]
            return "".join(parts)
        return self._replace_plain(text)

    def _replace_string(self, raw: str, label: str) -> str:
        value = parse_string(raw)
        new = self._value(value, label) if label else self.text(value)
        return raw if new == value else format_string(new, raw)

    def _replace_part(self, part: str) -> str:
        """Return a part of a multipart form."""
        head, gap, value = part.partition("\r\n\r\n")
        name = _PART_NAME.search(head)
        label = self._label(name[1]) if name else ""
        if not label:
            return head + gap + self.text(value)
        value = value.removesuffix("\r\n")
        return head + gap + self._value(value, label) + part[len(head + gap + value) :]

    def _label(self, name: str) -> str:
        """Return the label of a form's field: ``first_name``, ``contact[first_name]``."""
        if name.isalnum() and name.lower() not in self._last_names:
            return ""  # most names, in a third of the time
        field = _ROOT
        for part in unquote_plus(name).replace("[", ".").split("."):
            field = self._field_below(field, f'"{part}"')
        return field.label

    def _replace_field(self, name: str, raw: str) -> str:
        """Return a field of a form or a query."""
        if label := self._label(name):
            value = unquote_plus(raw)
            new = self._value(value, label)
            raw = raw if new == value else quote(new, safe="")
        return f"{name}={raw}"

    def _replace_number(self, raw: str, label: str) -> str:
        """Return a number for a number; a truth value becomes null where its field is named."""
        if raw in ("true", "false"):
            return "null" if label in self._named else raw
        if _PSEUDONYM.fullmatch(raw) or self._is_counted(PERSONAL_FIELDS.get(label), raw):
            return raw
        return _number_for(raw) + (".0" if set(raw) & set(".eE") else "")

    def _replace_value(self, value: str, label: str) -> str:
        kind = PERSONAL_FIELDS.get(label)
        if not value.strip() or _PSEUDONYM.fullmatch(value) or self._is_counted(kind, value):
            return value
        if "@" in value and _EMAIL.fullmatch(value):
            return f"person-{_digest(value)}@example.invalid"
        digits = _digits(value)
        if digits and (kind == _TELEPHONE_NUMBER or _PHONE.fullmatch(value)):
            return f"+{_number_for(digits)}"
        return f"<{label}-{_digest(value)}>"

    def _replace_email(self, local: str, at: str, domain: str) -> str:
        value = f"{local}@{domain}"
        if _PSEUDONYM.fullmatch(value) or self._is_counted(_EMAIL_ADDRESS, value):
            return local + at + domain
        return f"person-{_digest(value)}{at}example.invalid"

    def _replace_phone(self, match: re.Match[str]) -> str:
        digits = _digits(match[0])
        # A date has eight digits, and E.164 allows fifteen.
        if not (8 if match[1] else 9) <= len(digits) <= 15 or _PSEUDONYM.fullmatch(match[0]):
            return match[0]
        if self._is_counted(_TELEPHONE_NUMBER, digits):
            return match[0]
        return (match[1] or "+") + _number_for(digits)

    def _is_counted(self, kind: str | None, value: str) -> bool:
        """Return whether values are only counted, and count this one unless it is nobody's."""
        if self._values is None:
            return False
        if kind:
            value = _digits(value) if kind == _TELEPHONE_NUMBER else unquote(value).strip().lower()
            if not _NOT_PERSONAL.fullmatch(value):
                self._values.setdefault(kind, set()).add(value)
        return True


def count_personal(texts: Iterable[str], *, by_field: bool = True) -> dict[str, int]:
    """Return how many different values of each kind of personal data are in texts.

    Examples do not count, such as addresses at example.com. By default the names of fields count,
    except in the records of the stand-in: it says that its people are made up.

    Returns
    -------
    dict
        ``{"e-mail address": 2, "name": 1}``; what does not occur is left out.
    """
    values: dict[str, set[str]] = {}
    search = Pseudonyms([PERSONAL], values=values)
    for text in texts:
        (search.text if by_field and not _MADE_UP.search(text) else search.by_form)(text)
    return {kind: len(values[kind]) for kind in _FIELDS if kind in values}


def texts_of(interaction: Interaction) -> Iterator[str]:
    """Yield the address, the values of the headers and the bodies."""
    request, response = interaction.request, interaction.response
    yield request.uri
    yield from (value for _, value in (*request.headers, *response.headers))
    yield from (body.decode("utf-8", "replace") for body in (request.body or b"", response.body))


def personal_notice(counts: dict[str, int], cassette: str, *, searched: int | None = None) -> str:
    """Return a line that says what personal data a recording holds and how to redact it; or none.

    ``searched`` is how many of its interactions were searched, where that is not all of them.

    >>> personal_notice({"e-mail address": 2, "telephone number": 1}, "tour")
    "Cassette 'tour' holds 2 e-mail addresses and 1 telephone number. Before you share it: \
directmail-lab cassette redact tour, or record it with redact=['personal']."
    """
    if not counts:
        return ""
    *most, last = (
        f"{count} {kind}{'' if count == 1 else 'es' if kind.endswith('s') else 's'}"
        for kind, count in counts.items()
    )
    contents = " and ".join(filter(None, (", ".join(most), last)))
    if searched is not None:
        contents += f" in the {searched:,} of its interactions that were searched"
    return (
        f"Cassette {cassette!r} holds {contents}. Before you share it: "
        f"directmail-lab cassette redact {shlex.quote(cassette)}, "
        "or record it with redact=['personal']."
    )
