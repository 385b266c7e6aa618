"""Personal data: finding it, and putting a stable pseudonym in its place.

It is found by what it looks like (e-mail addresses and telephone numbers, anywhere in a text) and
by the names of the fields that hold it, in JSON, in forms and in queries: see `PERSONAL_FIELDS`.

The same value gets the same pseudonym in every process and session, with no secret to keep, so a
replay that redacts its requests as the recording did finds them. Such a pseudonym is no anonymity:
whoever guesses a value can see that it was right.

Pseudonyms are recognised, and left as they are when a text is redacted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote, unquote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..interaction import Interaction

__all__ = [
    "PERSONAL",
    "PERSONAL_FIELDS",
    "Pseudonyms",
    "personal_in",
    "personal_notice",
    "summarise_personal",
]

PERSONAL: Final = "personal"
"""The name that stands for all personal data that is known here, by its looks or by its field."""

PERSONAL_FIELDS: Final = {
    name: kind
    for kind, names in {
        "email": "email emailaddress mail",
        "phone": "phone phonenumber telephone telephonenumber tel mobile mobilephone mobilenumber "
        "cellphone fax faxnumber",
        "name": "name firstname middlename lastname fullname givenname familyname surname initials "
        "maidenname displayname contactname recipientname sendername",
        "company": "company companyname organization organisation organizationname "
        "organisationname employer",
        "address": "address address1 address2 address3 addressline addressline1 addressline2 "
        "addressline3 line1 line2 line3 street street1 street2 streetname streetaddress "
        "housenumber postaladdress city town postcode postalcode zip zipcode pobox",
        "birth date": "birthdate birthday dateofbirth dob",
        "bank account": "iban bankaccount accountnumber bankaccountnumber",
        "personal number": "ssn bsn socialsecuritynumber nationalid passportnumber taxid vatnumber",
    }.items()
    for name in names.split()
}
"""Names of fields, in small letters and without marks (``firstName`` and ``first_name`` are
``firstname``), and the kind of personal data that each holds. Any other field is named in
``redact=["personal", "loyalty_number", "company.id"]``."""

# All that is below a field of these kinds is of that kind: {"address": {"country": "NL"}}.
_INHERITED: Final = frozenset(("address", "name"))

_WORDS: Final = {
    "email": ("e-mail address", "e-mail addresses"),
    "phone": ("telephone number", "telephone numbers"),
    "name": ("name", "names"),
    "company": ("company", "companies"),
    "address": ("part of an address", "parts of addresses"),
    "birth date": ("birth date", "birth dates"),
    "bank account": ("bank account", "bank accounts"),
    "personal number": ("personal number", "personal numbers"),
}

# The local part is bounded and starts where no other of its characters stands before, so that a
# megabyte without an @ is searched once. In text that quotes JSON, `\njoe@…` is no address of njoe.
_WIDE = r"[^\x00-\x7f\s]"
_LOCAL = rf"(?:[A-Za-z0-9._+'\-]|{_WIDE}|%2[Bb]|%[89A-Fa-f][0-9A-Fa-f])"
_DOMAIN = rf"(?:[A-Za-z0-9\-]|{_WIDE}){{1,63}}"
_EMAIL = re.compile(
    rf"(?:(?<=%[0-7][0-9A-Fa-f])|(?<![A-Za-z0-9._+'%\-]|{_WIDE}))"
    rf"((?<=\\)(?:[bfnrt]|u[0-9a-fA-F]{{4}}))?((?(1){_LOCAL}{{0,64}}|{_LOCAL}{{1,64}}))"
    rf"(@|%40|&#64;)({_DOMAIN}(?:\.{_DOMAIN}){{1,8}})"
)
_PHONE = re.compile(
    r"(?<![\w.:/\-])(?:"
    r"(\+|%2[Bb])\d(?:[ ().\-]{0,2}\d){7,14}"
    r"|\(0?\d{2,4}\) ?\d(?:[ .\-]?\d){5,8}"
    r"|0\d{1,3}[ \-/]\d{2,4}(?:[ \-]?\d{2,4}){1,3}"
    r"|\d{3}[.\-]\d{3}[.\-]\d{4}"
    r")(?![\w:\-]|\.\d)"
)
# What `Pseudonyms` writes, and domains that RFC 2606 keeps for examples: no one's data.
_PSEUDONYM = re.compile(
    r"person-[0-9a-f]{8}(?:@|%40)example\.invalid|(?:\+|%2[Bb])?999\d{9}(?:\.0)?|<[^<>]+-[0-9a-f]{8}>"
)
_RESERVED = re.compile(r"(?:.*\.)?(?:example(?:\.(?:com|net|org))?|invalid|test|localhost)", re.I)
# Addresses of programs, or of code that is fetched by ssh.
_NOBODY = re.compile(r"(?:git|no-?reply)@.*|.*@users\.noreply\.github\.com", re.I | re.S)
_PAIR = re.compile(r"(^|[?&;\n])([^=&;#?\s{}\"]{1,200})=([^&;#\s\"]+)")
_PART_NAME = re.compile(r";\s*name=\"([^\"\r\n]*)\"", re.I)

# A step through JSON, or through as much as there is of a torn one: what stands between, then a
# name, a string, a bracket, or a string that never ends.
_STEP = re.compile(
    r'([^"\[\]{}]*+)(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?|([\[{])|([\]}])|(")|\Z)', re.DOTALL
)
_SCALAR = re.compile(r"-?\d[\d.eE+\-]*|true|false")
_MARKS = str.maketrans("", "", "_- ")
_SHORTEST: Final = len("a@b.c")
_REMEMBERED: Final = 1000
_MADE_UP = re.compile(r'"service": ?"stand-in"')


def _digest(value: str) -> str:
    normal = unquote(value).strip().lower().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(normal, digest_size=4, key=b"directmail_lab pseudonym").hexdigest()


def _email_for(value: str, at: str = "@") -> str:
    return f"person-{_digest(value)}{at}example.invalid"


def _phone_for(value: str, plus: str = "+") -> str:
    # +999 is a country code that the ITU holds back: no one's number.
    return plus + _number_for("".join(filter(str.isdigit, unquote(value))))


def _number_for(digits: str) -> str:
    return f"999{int(_digest(digits), 16) % 10**9:09d}"


def _simple(name: str) -> str:
    return name.lower().translate(_MARKS)


@final
class Pseudonyms:
    """Replaces the personal data that ``redact`` names; see `redaction.Redactor`.

    ``seen`` has what was replaced, by kind; what is surely no one's is not in it.
    """

    __slots__ = ("_anywhere", "_depth", "_inherited", "_labels", "_names", "_paths", "seen")

    def __init__(self, redact: Iterable[str]) -> None:
        paths = [tuple(map(_simple, name.split("."))) for name in redact if name.strip()]
        self._anywhere = (PERSONAL,) in paths
        self._names = frozenset(path[0] for path in paths if len(path) == 1) - {PERSONAL}
        self._paths = tuple(path for path in paths if len(path) > 1)
        self._depth = max(map(len, self._paths), default=1)
        below = {name for name, kind in PERSONAL_FIELDS.items() if kind in _INHERITED}
        self._inherited = below | self._names | {path[-1] for path in self._paths}
        self._labels: dict[str, str] = {}
        self.seen: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._names or self._paths)

    def text(self, text: str) -> str:
        """Return a text with its personal data replaced: JSON, a form, an address or any other."""
        if text.startswith("--") and "name=" in text:
            return self._multipart(text)
        return self._json(text) if '"' in text or text[:1] in ("[", "{") else self._plain(text)

    def _plain(self, text: str) -> str:
        if "=" in text:
            text = _PAIR.sub(self._replace_pair, text)
        if self._anywhere and len(text) >= _SHORTEST:
            text = _EMAIL.sub(self._replace_email, text)
            text = _PHONE.sub(self._replace_phone, text)
        return text

    def _json(self, text: str) -> str:
        """Return JSON of the same shape, or text that quotes some: its strings are written anew."""
        parts: list[str] = []
        outside: list[tuple[tuple[str, ...], str]] = []
        path: tuple[str, ...] = ()
        label, end = "", 0
        for step in _STEP.finditer(text):
            between, string, colon, opens, closes, torn = step.groups()
            if torn:
                break
            end = step.end()
            parts.append(self._between(between, label) if len(between) > 1 else between)
            if opens:
                outside.append((path, label))
            elif closes:
                path, label = outside.pop() if outside else ((), "")
            elif colon:
                above, inherited = outside[-1] if outside else ((), "")
                path = (*above, _simple(_value(string)))[-self._depth :]
                label = self._label(path, inherited)
                string = self._string(string, "") + colon
            elif string:
                string = self._string(string, label)
            parts.append(string or opens or closes or "")
        return "".join((*parts, self._plain(text[end:])))

    def _between(self, text: str, label: str) -> str:
        """Return what stands between strings and brackets: numbers, and in no JSON any text."""
        if label:
            text = _SCALAR.sub(lambda match: self._scalar(match[0], label), text)
        return self._plain(text)

    def _scalar(self, raw: str, label: str) -> str:
        """Return a number for a number; a truth value becomes null where its field is named."""
        if raw in ("true", "false"):
            return raw if label in PERSONAL_FIELDS and label not in self._names else "null"
        if _PSEUDONYM.fullmatch(raw):
            return raw
        self._note(label, raw)
        return _number_for(raw) + (".0" if set(raw) & set(".eE") else "")

    def _string(self, raw: str, label: str) -> str:
        value = _value(raw)
        new = self._pseudonym(value, label) if label else self.text(value)
        return raw if new == value else json.dumps(new, ensure_ascii=_is_escaped(raw))

    def _multipart(self, text: str) -> str:
        boundary = text.partition("\r\n")[0]
        return boundary.join(map(self._part, text.split(boundary)))

    def _part(self, part: str) -> str:
        head, gap, value = part.partition("\r\n\r\n")
        named = _PART_NAME.search(head)
        label = self._field(named[1]) if named else ""
        if not label:
            return head + gap + self.text(value)
        value = value.removesuffix("\r\n")
        return head + gap + self._pseudonym(value, label) + part[len(head + gap + value) :]

    def _replace_pair(self, match: re.Match[str]) -> str:
        if not (label := self._field(match[2])):
            return match[0]
        value = unquote_plus(match[3])
        new = self._pseudonym(value, label)
        return match[0] if new == value else f"{match[1]}{match[2]}={quote(new, safe='')}"

    def _field(self, name: str) -> str:
        """Return `_label` of a form's field: ``first_name``, ``contact[first_name]``."""
        label = self._labels.get(name)
        if label is None:
            label, path = "", unquote_plus(name).replace("]", "").replace("[", ".").split(".")
            for depth in range(len(path)):
                label = self._label(tuple(map(_simple, path[: depth + 1])), label)
            if len(self._labels) < _REMEMBERED:
                self._labels[name] = label
        return label

    def _label(self, path: tuple[str, ...], inherited: str = "") -> str:
        """Return the name by which a field's pseudonym is called; empty where it is to stay."""
        name = path[-1] if path else ""
        if (
            name in self._names
            or (self._anywhere and name in PERSONAL_FIELDS)
            or any(path[-len(each) :] == each for each in self._paths)
        ):
            return name
        return inherited if inherited in self._inherited else ""

    def _pseudonym(self, value: str, label: str) -> str:
        if not value.strip() or _PSEUDONYM.fullmatch(value):
            return value
        self._note(label, value)
        if _EMAIL.fullmatch(value):
            return _email_for(value)
        is_phone = PERSONAL_FIELDS.get(label) == "phone" and any(map(str.isdigit, value))
        if is_phone or _PHONE.fullmatch(value):
            return _phone_for(value)
        return f"<{label}-{_digest(value)}>"

    def _replace_email(self, match: re.Match[str]) -> str:
        if _PSEUDONYM.fullmatch(match[0]):
            return match[0]
        escape, local, at, domain = match.groups("")
        self._note("email", f"{local}@{domain}")
        return escape + _email_for(f"{local}@{domain}", at)

    def _replace_phone(self, match: re.Match[str]) -> str:
        if not _is_phone(match) or _PSEUDONYM.fullmatch(match[0]):
            return match[0]
        self._note("phone", match[0])
        return _phone_for(match[0], match[1] or "+")

    def _note(self, label: str, value: str) -> None:
        kind = PERSONAL_FIELDS.get(label)
        value = unquote(value).strip().lower()
        if kind == "phone":
            value = "".join(filter(str.isdigit, value))
        if kind and not _is_no_ones(value):
            self.seen.setdefault(kind, set()).add(value)


def _value(raw: str) -> str:
    """Return what a string of JSON says; as it stands where it is no JSON after all."""
    if "\\" in raw:
        with contextlib.suppress(ValueError):
            return str(json.loads(raw, strict=False))
    return raw[1:-1]


def _is_escaped(raw: str) -> bool:
    return raw.isascii() or "\\u" in raw


def _is_phone(match: re.Match[str]) -> bool:
    # A date has eight digits, and E.164 allows fifteen.
    digits = sum(map(str.isdigit, match[0])) - (2 if (match[1] or "").startswith("%") else 0)
    return (8 if match[1] else 9) <= digits <= 15


def _is_no_ones(value: str) -> bool:
    return bool(_RESERVED.fullmatch(value.rpartition("@")[2]) or _NOBODY.fullmatch(value))


def personal_in(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each ``("email" or "phone", value, place)`` in a text that may be someone's."""
    for match in _EMAIL.finditer(text):
        address = unquote(match[0]).lower()
        if not _is_no_ones(address):
            yield "email", address, match.start()
    for match in _PHONE.finditer(text):
        if _is_phone(match) and not _PSEUDONYM.fullmatch(match[0]):
            yield "phone", "".join(filter(str.isdigit, unquote(match[0]))), match.start()


def summarise_personal(interactions: Iterable[Interaction]) -> dict[str, int]:
    """Return how many different values of each kind of personal data the interactions hold.

    The stand-in's people are made up, and its records say so: they do not count.

    Returns
    -------
    dict
        ``{"email": 2, "phone": 1}``, of the kinds in `PERSONAL_FIELDS`; what does not occur is
        left out.
    """
    search = Pseudonyms([PERSONAL])
    for interaction in interactions:
        for text in _texts_of(interaction):
            if not _MADE_UP.search(text):
                search.text(text)
    return {kind: len(search.seen[kind]) for kind in _WORDS if kind in search.seen}


def _texts_of(interaction: Interaction) -> Iterator[str]:
    request, response = interaction.request, interaction.response
    yield request.uri
    for headers in (request.headers, response.headers):
        yield from (value for _, value in headers)
    for body in (request.body, response.body):
        yield (body or b"").decode("utf-8", "replace")


def personal_notice(counts: dict[str, int], cassette: str, *, looked_at: int | None = None) -> str:
    """Return a line that says what personal data a recording holds and how to redact it; or none.

    ``looked_at`` is how many of its interactions were searched, where that is not all of them.

    >>> personal_notice({"email": 2, "phone": 1}, "tour")
    "Cassette 'tour' holds 2 e-mail addresses and 1 telephone number. Before you share it: \
directmail-lab cassette redact tour, or record it with redact=['personal']."
    """
    told = [f"{count} {_WORDS[kind][count != 1]}" for kind, count in counts.items() if count]
    if not told:
        return ""
    what = " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
    if looked_at is not None:
        what += f" in the {looked_at:,} of its interactions that were looked at"
    return (
        f"Cassette {cassette!r} holds {what}. Before you share it: "
        f"directmail-lab cassette redact {shlex.quote(cassette)}, "
        "or record it with redact=['personal']."
    )
