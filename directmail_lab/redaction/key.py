"""Finding keys in text: one compiled pattern for each, in time linear in the text.

It finds a key as libraries write it: each character as itself or in any of its escapes, in any
letter case; its hex digits; and base64 that holds it anywhere. A part of a key is no key.
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from html.entities import html5
from typing import Final, NoReturn, final
from urllib.parse import unquote

from ..errors import CredentialError

PLACEHOLDER: Final = "<API_KEY>"
"""What replaces the key, as the service's document writes it."""

REDACTED: Final = "<REDACTED>"
"""What replaces another credential, which is known by its place alone."""

REPLACED: Final = re.compile(
    r"<(?:API_KEY|REDACTED|[^<>]+-[0-9a-f]{8}|not (?:searched|recorded): \d+ bytes)>"
    r"|person-[0-9a-f]{8}@example\.invalid|\+999\d{9}(?!\d)"
)
"""What redaction leaves in the place of a value: a placeholder, or a pseudonym (see `personal`)."""

_FEWEST_CHARACTERS: Final = 8

# The same digits of base64, in the alphabet for addresses.
_URL_SAFE: Final = {"+": "-", "/": "_"}
# In an address a slash ends a segment, so there it is no digit of base64.
_ADDRESS: Final = re.compile(r"(?:\w+:/)?/\S*")
_HEX_RUN: Final = re.compile(r"[0-9a-fA-F]*")
_BASE64_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]*(?:==?(?![\w%=]))?")
_SEGMENT_RUN: Final = re.compile(r"[A-Za-z0-9+_-]*(?:==?(?![\w%=]))?")

# Python reads no number of more than 4,300 digits, and no character has one of more than 7.
_LONG_NUMBER: Final = re.compile(r"&#(\d{8,})")


def has_placeholder(text: str) -> bool:
    """Return whether redaction replaced something in a text, so that it must not be sent."""
    return REPLACED.search(unquote(text)) is not None


def unescape_html(text: str) -> str:
    """Return a text without HTML's escapes, numbers of any length among them."""
    return html.unescape(_LONG_NUMBER.sub(lambda m: "&#" + (m[1].lstrip("0")[:8] or "0"), text))


# -- what a key can look like ------------------------------------------------------------------


def _in_address(char: str) -> Iterator[str]:
    yield f"%(?:{_hex_codes(char)})"


def _in_json(char: str) -> Iterator[str]:
    """A backslash is doubled where JSON is quoted in JSON, as a body is in a cassette."""
    yield rf"\\{{1,4}}(?:u00|x)(?:{_hex_codes(char)})"
    if not char.isalnum() and char != "\\":
        yield rf"\\{{1,4}}{re.escape(char)}"


def _in_html(char: str) -> Iterator[str]:
    codes = "|".join(str(ord(each)) for each in _cases(char))
    yield f"&#(?:0*(?:{codes})|x0*(?:{_hex_codes(char)}));?"
    names = sorted((name for name, each in html5.items() if each == char), reverse=True)
    yield from (f"&{name}" for name in names)


ESCAPES: Final = [_in_address, _in_json, _in_html]


def _cases(char: str) -> list[str]:
    return sorted({char.lower(), char.upper()})


def _hex_codes(char: str) -> str:
    return "|".join(f"{ord(each):02x}" for each in _cases(char))


def _spelled(text: str) -> str:
    """Return a pattern of a text with each character as itself or in any of its escapes."""
    units = []
    for run in re.findall(r"\\+|.", text):
        char = run[0]
        forms = (form for escape in ESCAPES for form in escape(char))
        units.append(f"(?i:{'|'.join((*forms, re.escape(char)))})")
        if char == "\\":  # doubled in JSON, and again where that is quoted
            units.append(f"{{{len(run)},{4 * len(run)}}}")
    return "".join(units)


def _hex_digits(key: str) -> str:
    return key.encode().hex()


def _base64_digits(key: str) -> Iterator[str]:
    """Yield the digits that hold nothing but the key, at each offset; ``key:`` has them, too."""
    for before in range(3):
        digits = b64encode(b"\0" * before + key.encode()).decode()
        yield digits[-(-before * 8 // 6) : (before + len(key)) * 8 // 6]


def _pattern(key: str) -> str:
    """Return a pattern whose groups are the key, its hex digits, its base64.

    It begins with the characters that any of these can begin with, and looks ahead from there:
    `re` skips to such characters, which takes a quarter of the time.
    """
    hex_digits, base64 = _hex_digits(key), list(_base64_digits(key))
    starts = {*_cases(key[0]), *"%\\&", *(digits[0] for digits in (hex_digits, *base64))}
    starts |= {_URL_SAFE[start] for start in starts & set(_URL_SAFE)}
    either = "|".join(
        re.sub("[+/]", lambda match: f"(?:{_URL_SAFE[match[0]]}|{_spelled(match[0])})", digits)
        for digits in base64
    )
    forms = f"({_spelled(key)})|((?i:{hex_digits}))|({either})"
    return f"(?s:[{re.escape(''.join(sorted(starts)))}](?<=(?={forms}).))"


# -- the search --------------------------------------------------------------------------------


class Hidden:
    """What knows a key: no repr shows it, and it is never pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise CredentialError(f"A {type(self).__name__} knows the key: never pickled or copied.")


@final
class KeySearch(Hidden):
    """Finds the keys that it has learned, and puts a placeholder in their place.

    A key of fewer than eight characters is not searched for: a key ``200`` is in every response.
    """

    __slots__ = ("__finders", "__keys", "__placeholder")

    def __init__(self, keys: Iterable[str] = (), *, placeholder: str = PLACEHOLDER) -> None:
        self.__keys: frozenset[str] = frozenset()
        self.__finders: tuple[Callable[[str], Iterator[re.Match[str]]], ...] = ()
        self.__placeholder = placeholder
        self.learn(keys)

    def learn(self, keys: Iterable[str]) -> None:
        """Search for these keys from now on, besides those known already."""
        new = frozenset(keys) - self.__keys
        patterns = map(_pattern, filter(_is_searchable, new))
        # Methods of patterns: the repr of a pattern shows the key.
        self.__finders += tuple(re.compile(pattern).finditer for pattern in patterns)
        self.__keys |= new

    def knows(self, text: str) -> bool:
        """Return whether a text is a key, however short, or holds one."""
        return text in self.__keys or self.holds(text)

    def holds(self, text: str) -> bool:
        """Return whether any form of a key is in a text."""
        return any(next(find(text), None) for find in self.__finders)

    def removed_from(self, text: str) -> str:
        """Return a text without what `holds` finds; of hex digits and base64 the whole run goes."""
        for find in self.__finders:
            text = _replaced(text, find(text), self.__placeholder)
        return text


def _is_searchable(key: str) -> bool:
    is_text = key.isascii() and key.isprintable()
    is_in_placeholder = key in f"{PLACEHOLDER} {REDACTED}" or has_placeholder(key)
    return len(key) >= _FEWEST_CHARACTERS and is_text and not is_in_placeholder


def _replaced(text: str, found: Iterable[re.Match[str]], placeholder: str) -> str:
    base64_run = _SEGMENT_RUN if _ADDRESS.fullmatch(text) else _BASE64_RUN
    runs = (None, None, _HEX_RUN, base64_run)  # by the pattern's groups
    parts: list[str] = []
    done = 0
    for match in found:
        start, end = match.span(match.lastindex or 0)
        if start < done:
            continue
        before = text[done:start]
        if run := runs[match.lastindex or 0]:
            before = before[: len(before) - _end(run, before[::-1], 0)]
            # What is left of an escape: `\\u` where the run began with the digits of `\\u00e9`.
            before = before.removesuffix("\\u").removesuffix("\\x").rstrip("%")
            end = _end(run, text, end)
        parts += before.rstrip("\\"), placeholder
        done = end
    return "".join((*parts, text[done:]))


def _end(run: re.Pattern[str], text: str, start: int) -> int:
    match = run.match(text, start)
    return match.end() if match else start
