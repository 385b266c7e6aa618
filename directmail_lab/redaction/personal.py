"""Personal data: finding it, and putting a stable pseudonym in its place.

It is found by what it looks like (e-mail addresses and telephone numbers, anywhere in a text) and
by the names of the fields that hold it, in JSON, in forms and in queries: see `PERSONAL_FIELDS`.

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
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote, unquote_plus

from .key_search import JSON_NUMBERS, string_text, string_value

if TYPE_CHECKING:
    from ..interaction import Interaction

PERSONAL: Final = "personal"
"""The name that stands for all personal data that is known here, by its looks or by its field."""

_TABLE: Final = """\
email | e-mail address | e-mail addresses | email emailaddress mail
phone | telephone number | telephone numbers | phone phonenumber telephone telephonenumber tel \
mobile mobilephone mobilenumber cellphone fax faxnumber
name | name | names | name firstname middlename lastname fullname givenname familyname surname \
maidenname initials displayname contactname recipientname sendername
company | company | companies | company companyname organization organisation organizationname \
organisationname employer
address | part of an address | parts of addresses | address address1 address2 address3 addressline \
addressline1 addressline2 addressline3 line1 line2 line3 street street1 street2 streetname \
streetaddress housenumber postaladdress city town postcode postalcode zip zipcode pobox
birth date | birth date | birth dates | birthdate birthday dateofbirth dob
bank account | bank account | bank accounts | iban bankaccount accountnumber bankaccountnumber
personal number | personal number | personal numbers | ssn bsn socialsecuritynumber nationalid \
passportnumber taxid vatnumber
"""
# Each kind of personal data, what one and what several are called, and the fields that hold it.
_ROWS: Final = [line.split(" | ") for line in _TABLE.splitlines()]
_WORDS: Final = {kind: (one, several) for kind, one, several, _ in _ROWS}
PERSONAL_FIELDS: Final = {name: kind for kind, _, _, names in _ROWS for name in names.split()}
"""Names of fields, in small letters and without marks (``firstName`` and ``first_name`` are
``firstname``), and the kind of personal data that each holds. Any other field is named in
``redact=["personal", "loyalty_number", "company.id"]``."""

# All that is below a field of these kinds is of that kind: {"address": {"country": "NL"}}.
_INHERITED: Final = frozenset(("address", "name"))

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

# A step through JSON, or text that quotes some: what stands between, then brackets that open or
# close, a string (a name, where a colon follows), or one that never ends.
_STEP = re.compile(
    r'((?:[^"\[\]{}]++|\[\]|{}|""(?!\s*+:))*+)'
    r'(?:([\[{]+)|([\]}]+)|("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*+:)?|(".*)|\Z)',
    re.DOTALL,
)
_OPENS, _CLOSES, _STRING, _NAME = 2, 3, 4, 5
_SCALAR = re.compile(r"-?\d[\d.eE+\-]*|true|false")
# No text without one of these holds what is known by its looks, or a form.
_MAY_HOLD = re.compile(r"[@=%&\\]|\d[ ().\-/]{0,2}\d")
_NO_DIGITS = re.compile(r"\D+")
_NO_LETTERS = re.compile(r"[\W_]+")
_MADE_UP = re.compile(r'"service": ?"stand-in"')

_Place = tuple[tuple[str, ...], str]
"""Where in JSON or a form: the names of the fields, and what a pseudonym there is called."""
_OUTSIDE: Final[_Place] = ((), "")

# The same names and values recur in a list: with this cache a megabyte takes 0.4 s instead of 2.
_remembered = functools.lru_cache(4096)


def _digest(value: str) -> str:
    normal = unquote(value).strip().lower().encode("utf-8", "surrogatepass")
    return hashlib.blake2s(normal, digest_size=4, person=b"dm_lab").hexdigest()


def _digits(value: str) -> str:
    return _NO_DIGITS.sub("", unquote(value))


def _number_for(digits: str) -> str:
    # The ITU has reserved the country code 999: it is nobody's number.
    return f"999{int(_digest(digits), 16) % 10**9:09d}"


@_remembered
def _simple(name: str) -> str:
    return _NO_LETTERS.sub("", name).lower()


@_remembered
def _quoted(pseudonym: str) -> str:
    return quote(pseudonym, safe="")


@final
class Pseudonyms:
    """Replaces the personal data that ``redact`` names; see `redaction.Redactor`.

    ``seen``, if given, collects what was replaced, by kind, except what is certainly nobody's.
    """

    def __init__(self, redact: Iterable[str], *, seen: dict[str, set[str]] | None = None) -> None:
        paths = [tuple(map(_simple, name.split("."))) for name in redact if name.strip()]
        self._anywhere = (PERSONAL,) in paths
        self._names = frozenset(path[0] for path in paths if len(path) == 1) - {PERSONAL}
        self._known = self._names.union(PERSONAL_FIELDS if self._anywhere else ())
        self._paths = tuple(path for path in paths if len(path) > 1)
        self._depth = max(map(len, self._paths), default=1)
        below = {name for name, kind in PERSONAL_FIELDS.items() if kind in _INHERITED}
        self._inherited = below | self._names | {path[-1] for path in self._paths}
        self._seen = seen
        self._below = _remembered(self._place_below)
        self._label_of = _remembered(self._label_of_field)
        self._scalar = _remembered(self._scalar_for)
        self._pseudonym = _remembered(self._pseudonym_for)

    def __bool__(self) -> bool:
        return bool(self._known or self._paths)

    def text(self, text: str) -> str:
        """Return a text with its personal data replaced: JSON, a form, an address or any other."""
        if text.startswith("--") and "name=" in text:
            boundary = text.partition("\r\n")[0]
            return boundary.join(map(self._part, text.split(boundary)))
        return self._json(text) if '"' in text or text[:1] in ("[", "{") else self._plain(text)

    def _plain(self, text: str) -> str:
        if "=" in text:
            text = _PAIR.sub(self._replace_pair, text)
        if not self._anywhere:
            return text
        if "@" in text or "%40" in text or "&#64;" in text:
            text = _EMAIL.sub(self.replace_email, text)
        return _PHONE.sub(self.replace_phone, text)

    def _json(self, text: str) -> str:
        """Return JSON of the same shape, or text that quotes some: its strings are written anew."""
        parts: list[str] = []
        outside: list[_Place] = [_OUTSIDE]
        place, kept = _OUTSIDE, 0
        for step in _STEP.finditer(text):
            kind, label = step.lastindex, place[1]
            if kind == _NAME:
                place = self._below(outside[-1], _simple(string_value(step[_STRING])))
            elif kind == _OPENS:
                outside += [place] * len(step[_OPENS])
            elif kind == _CLOSES:
                depth = max(len(outside) - len(step[_CLOSES]), 0)
                place = outside[depth]
                del outside[depth or 1 :]
            start, end = step.span()
            # An e-mail address or a form's named field has at least five characters.
            if label or (end - start > 4 and _MAY_HOLD.search(text, start, end)):
                between, _, _, string, colon, torn = step.groups("")
                new = self._between(between, label) if between else ""
                new += self._string(string, "" if colon else label) if string else self._plain(torn)
                old = between + string + torn
                if new != old:
                    parts += (text[kept:start], new)
                    kept = start + len(old)
        return "".join((*parts, text[kept:]))

    def _place_below(self, place: _Place, name: str) -> _Place:
        above, inherited = place
        path = (*above, name)[-self._depth :]
        if name in self._known or any(path[-len(each) :] == each for each in self._paths):
            return path, name
        return path, inherited if inherited in self._inherited else ""

    def _between(self, text: str, label: str) -> str:
        """Return what stands between strings and brackets: numbers, and in no JSON any text."""
        if label and JSON_NUMBERS.fullmatch(text):
            return _SCALAR.sub(lambda match: self._scalar(match[0], label), text)
        return self._plain(text) if _MAY_HOLD.search(text) else text

    def _scalar_for(self, raw: str, label: str) -> str:
        """Return a number for a number; a truth value becomes null where its field is named."""
        if raw in ("true", "false"):
            return raw if label in PERSONAL_FIELDS and label not in self._names else "null"
        if _PSEUDONYM.fullmatch(raw):
            return raw
        self._note(label, raw)
        return _number_for(raw) + (".0" if set(raw) & set(".eE") else "")

    def _string(self, raw: str, label: str) -> str:
        value = string_value(raw)
        new = self._pseudonym(value, label) if label else self.text(value)
        return raw if new == value else string_text(new, raw)

    def _part(self, part: str) -> str:
        """Return a part of a multipart form."""
        head, gap, value = part.partition("\r\n\r\n")
        named = _PART_NAME.search(head)
        label = self._label_of(named[1]) if named else ""
        if not label:
            return head + gap + self.text(value)
        value = value.removesuffix("\r\n")
        return head + gap + self._pseudonym(value, label) + part[len(head + gap + value) :]

    def _replace_pair(self, match: re.Match[str]) -> str:
        if not (label := self._label_of(match[2])):
            return match[0]
        value = unquote_plus(match[3])
        new = self._pseudonym(value, label)
        return match[0] if new == value else f"{match[1]}{match[2]}={_quoted(new)}"

    def _label_of_field(self, name: str) -> str:
        """Return the label of a form's field: ``first_name``, ``contact[first_name]``."""
        place = _OUTSIDE
        for each in unquote_plus(name).replace("[", ".").split("."):
            place = self._place_below(place, _simple(each))
        return place[1]

    def _pseudonym_for(self, value: str, label: str) -> str:
        if not value.strip() or _PSEUDONYM.fullmatch(value):
            return value
        self._note(label, value)
        if "@" in value and _EMAIL.fullmatch(value):
            return f"person-{_digest(value)}@example.invalid"
        digits = _digits(value)
        if digits and (PERSONAL_FIELDS.get(label) == "phone" or _PHONE.fullmatch(value)):
            return f"+{_number_for(digits)}"
        return f"<{label}-{_digest(value)}>"

    def replace_email(self, match: re.Match[str]) -> str:
        escape, local, at, domain = match.groups("")
        value = f"{local}@{domain}"
        if _PSEUDONYM.fullmatch(value):
            return match[0]
        self._note("email", value)
        return f"{escape}person-{_digest(value)}{at}example.invalid"

    def replace_phone(self, match: re.Match[str]) -> str:
        digits = _digits(match[0])
        # A date has eight digits, and E.164 allows fifteen.
        if not (8 if match[1] else 9) <= len(digits) <= 15 or _PSEUDONYM.fullmatch(match[0]):
            return match[0]
        self._note("phone", digits)
        return (match[1] or "+") + _number_for(digits)

    def _note(self, label: str, value: str) -> None:
        kind = PERSONAL_FIELDS.get(label)
        if self._seen is not None and kind:
            value = _digits(value) if kind == "phone" else unquote(value).strip().lower()
            if not (_RESERVED.fullmatch(value.rpartition("@")[2]) or _NOBODY.fullmatch(value)):
                self._seen.setdefault(kind, set()).add(value)


def personal_in(text: str, *, by_field: bool = False) -> list[str]:
    """Return the kinds of personal data in a text that may be someone's: ``["e-mail address"]``.

    By what it looks like, or ``by_field`` of JSON, forms and queries too, as it is redacted.
    """
    seen: dict[str, set[str]] = {}
    search = Pseudonyms([PERSONAL], seen=seen)
    if by_field and not _MADE_UP.search(text):
        search.text(text)
    else:
        for kind, pattern, note in (
            ("email", _EMAIL, search.replace_email),
            ("phone", _PHONE, search.replace_phone),
        ):
            next((match for match in pattern.finditer(text) if note(match) and kind in seen), None)
    return [words[0] for kind, words in _WORDS.items() if kind in seen]


def summarise_personal(interactions: Iterable[Interaction]) -> dict[str, int]:
    """Return how many different values of each kind of personal data the interactions hold.

    The stand-in's people are made up, and its records say so: they do not count.

    Returns
    -------
    dict
        ``{"email": 2, "phone": 1}``, of the kinds in `PERSONAL_FIELDS`; what does not occur is
        left out.
    """
    seen: dict[str, set[str]] = {}
    search = Pseudonyms([PERSONAL], seen=seen)
    for interaction in interactions:
        for text in _texts_of(interaction):
            if not _MADE_UP.search(text):
                search.text(text)
    return {kind: len(seen[kind]) for kind in _WORDS if kind in seen}


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
    told = [f"{count} {_WORDS[kind][count != 1]}" for kind, count in counts.items()]
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
