"""Personal data: finding it, and putting a stable pseudonym in its place.

The same value gets the same pseudonym in every process and session, with no secret to keep, so a
replay that redacts its requests as the recording did finds them. Such a pseudonym is no anonymity:
whoever guesses a value can see that it was right. A guess is made slow (`_digest`), since there are
few enough telephone numbers to try them all.

Pseudonyms are recognised, and left as they are when a text is redacted again.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote, unquote_plus

from .json_places import Leaf, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..interaction import Interaction

__all__ = ["PERSONAL", "Pseudonyms", "personal_in", "personal_notice", "summarise_personal"]

PERSONAL: Final = "personal"
"""The name that stands for e-mail addresses and telephone numbers, wherever they are."""

_PHONE_NAMES: Final = frozenset(
    ("phone", "phonenumber", "telephone", "tel", "mobile", "mobilephone", "cellphone", "fax")
)

# The local part is bounded and starts where no other of its characters stands before, so that a
# megabyte without an @ is searched once.
_LOCAL = r"(?:[A-Za-z0-9._+'\-]|[^\x00-\x7f]|%2[Bb])"
_EMAIL = re.compile(
    rf"(?:(?<=%[0-9A-Fa-f]{{2}})|(?<=\\[nrt])|(?<![A-Za-z0-9._+'%\-]|[^\x00-\x7f]))({_LOCAL}{{1,64}})"
    r"(@|%40|\\u0040|&#64;)((?:[A-Za-z0-9\-]|[^\x00-\x7f]){1,63}(?:\.(?:[A-Za-z0-9\-]|[^\x00-\x7f]){1,63}){1,8})"
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
_PAIR = re.compile(r"(^|[?&;\n])([^=&;#?\s{}\"]{1,200})=([^&;#\s\"]*)")
_PART = re.compile(r"(;\s*name=\"([^\"\r\n]*)\"[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n)([^\r\n]*)", re.I)


@functools.lru_cache(maxsize=4096)
def _digest(value: str) -> str:
    """Return eight hex digits for a value, at the cost of about a millisecond for every guess."""
    normal = unquote(value).strip().lower().encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac("sha256", normal, b"directmail_lab pseudonym", 2000, 4).hex()


def _email_for(value: str, at: str = "@") -> str:
    return f"person-{_digest(value)}{at}example.invalid"


def _phone_for(value: str, plus: str = "+") -> str:
    # +999 is a country code that the ITU holds back: no one's number.
    digits = "".join(filter(str.isdigit, unquote(value)))
    return f"{plus}{_number_for(digits)}"


def _number_for(digits: str) -> str:
    return f"999{int(_digest(digits), 16) % 10**9:09d}"


@final
class Pseudonyms:
    """Replaces the personal data that ``redact`` names; see `redaction.Redactor`."""

    __slots__ = ("_anywhere", "_names", "_paths")

    def __init__(self, redact: Iterable[str]) -> None:
        wanted = [name.strip().lower() for name in redact if name.strip()]
        self._anywhere = PERSONAL in wanted
        self._names = frozenset(name for name in wanted if name != PERSONAL and "." not in name)
        self._paths = tuple(tuple(name.split(".")) for name in wanted if "." in name)

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._names or self._paths)

    def text(self, text: str) -> str:
        """Return a text of any kind with its personal data replaced."""
        text = self._pairs(text) if "=" in text else text
        if self._anywhere:
            text = _EMAIL.sub(_replace_email, text)
            text = _PHONE.sub(_replace_phone, text)
        return text

    def body(self, body: bytes) -> bytes:
        """Return a body with its personal data replaced: fields of JSON and forms, and text."""
        text = body.decode("utf-8", "surrogateescape")
        if text.lstrip()[:1] in ("{", "["):
            text = self._fields(text)
        elif "name=" in text:
            text = _PART.sub(self._replace_part, text)
        return self.text(text).encode("utf-8", "surrogateescape")

    def _fields(self, text: str) -> str:
        parts: list[str] = []
        end = 0
        for leaf in leaves(text):
            if kind := self._kind(tuple(name.lower() for name in leaf.path)):
                parts += (text[end : leaf.start], _replace_leaf(leaf, kind))
                end = leaf.end
        return "".join((*parts, text[end:]))

    def _kind(self, path: tuple[str, ...]) -> str:
        """Return what a field is to be called in its pseudonym; empty where it is to stay."""
        for depth, name in enumerate(path, 1):
            above = path[:depth]
            if name in self._names or any(above[-len(each) :] == each for each in self._paths):
                return name
        last = path[-1].replace("_", "").replace("-", "") if path else ""
        return "phone" if self._anywhere and last in _PHONE_NAMES else ""

    def _pairs(self, text: str) -> str:
        return _PAIR.sub(self._replace_pair, text)

    def _replace_pair(self, match: re.Match[str]) -> str:
        kind = self._kind((unquote_plus(match[2]).lower(),))
        value = unquote_plus(match[3])
        if not kind or not value or _PSEUDONYM.fullmatch(value):
            return match[0]
        return f"{match[1]}{match[2]}={quote(_pseudonym(value, kind), safe='')}"

    def _replace_part(self, match: re.Match[str]) -> str:
        kind = self._kind((match[2].lower(),))
        return match[1] + (_pseudonym(match[3], kind) if kind and match[3] else match[3])


def _pseudonym(value: str, kind: str) -> str:
    if _PSEUDONYM.fullmatch(value):
        return value
    if _EMAIL.fullmatch(value):
        return _email_for(value)
    if _PHONE.fullmatch(value) or kind == "phone":
        return _phone_for(value)
    return f"<{kind}-{_digest(value)}>"


def _replace_leaf(leaf: Leaf, kind: str) -> str:
    """Return JSON for a field's pseudonym, of the field's type; a truth value becomes null."""
    value = leaf.value
    if isinstance(value, str):
        return leaf.quoted(_pseudonym(value, kind)) if value else leaf.raw
    if value is None or isinstance(value, bool):
        return "null"
    if _PSEUDONYM.fullmatch(leaf.raw):
        return leaf.raw
    return _number_for(leaf.raw) + (".0" if isinstance(value, float) else "")


def _replace_email(match: re.Match[str]) -> str:
    if _PSEUDONYM.fullmatch(match[0]):
        return match[0]
    return _email_for(f"{match[1]}@{match[3]}", match[2])


def _replace_phone(match: re.Match[str]) -> str:
    if not _is_phone(match) or _PSEUDONYM.fullmatch(match[0]):
        return match[0]
    return _phone_for(match[0], match[1] or "+")


def _is_phone(match: re.Match[str]) -> bool:
    # A date has eight digits, and E.164 allows fifteen.
    digits = sum(map(str.isdigit, match[0])) - (2 if (match[1] or "").startswith("%") else 0)
    return (8 if match[1] else 9) <= digits <= 15


def personal_in(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each ``("email" or "phone", value, place)`` in a text that may be someone's."""
    for match in _EMAIL.finditer(text):
        address = unquote(match[0]).lower()
        if not (_RESERVED.fullmatch(match[3]) or _NOBODY.fullmatch(address)):
            yield "email", address, match.start()
    for match in _PHONE.finditer(text):
        if _is_phone(match) and not _PSEUDONYM.fullmatch(match[0]):
            yield "phone", "".join(filter(str.isdigit, unquote(match[0]))), match.start()


def summarise_personal(interactions: Iterable[Interaction]) -> dict[str, int]:
    """Return how many different e-mail addresses and telephone numbers the interactions hold.

    Returns
    -------
    dict
        ``{"email": 2, "phone": 1}``; a kind that does not occur is left out.
    """
    seen: dict[str, set[str]] = {}
    for interaction in interactions:
        for text in _texts_of(interaction):
            for kind, value, _ in personal_in(text):
                seen.setdefault(kind, set()).add(value)
    return {kind: len(values) for kind, values in sorted(seen.items())}


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
    names = {
        "email": ("e-mail address", "e-mail addresses"),
        "phone": ("telephone number", "telephone numbers"),
    }
    what = " and ".join(f"{n} {names[kind][n != 1]}" for kind, n in counts.items() if n)
    if not what:
        return ""
    if looked_at is not None:
        what += f" in the {looked_at:,} of its interactions that were looked at"
    return (
        f"Cassette {cassette!r} holds {what}. Before you share it: "
        f"directmail-lab cassette redact {shlex.quote(cassette)}, "
        "or record it with redact=['personal']."
    )
