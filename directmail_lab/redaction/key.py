"""Find keys in text, in time linear in the text.

A key is found in the forms that libraries write: each character as itself or as an escape, in any
letter case; its hex digits; and base64 of any text that contains it. A part of a key is not found.
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import final
from urllib.parse import unquote

from ..credentials import Hidden

PLACEHOLDER = "<API_KEY>"
"""Replaces the key. The service's document writes the key like this."""

REDACTED = "<REDACTED>"
"""Replaces a credential that is recognised by its place, the key included."""

ANY_VALUE = re.compile(r"(?:<|&lt;)(?:API_KEY|REDACTED)(?:>|&gt;)|eyJ[\w-]{0,999}\.e30\.REDACTED")
"""What replaces a credential, so that it equals any value in a replay."""

REPLACED = re.compile(
    rf"{ANY_VALUE.pattern}"
    r"|<(?:[^\W_]+-[0-9a-f]{8}|not (?:searched|recorded): \d+ bytes)>"
    r"|person-[0-9a-f]{8}@example\.invalid|\+999\d{9}(?!\d)"
)
"""What replaces a value: a placeholder, or a pseudonym (see `personal`)."""

_FEWEST_CHARACTERS = 8

# URL-safe base64 has - and _ instead of + and /.
_URL_SAFE = {"+": "-", "/": "_"}
# MIME and PEM wrap base64 after 60 to 76 digits. In an address or in JSON, the end of a line is
# escaped.
_LINE = 60
_LINE_END = r"(?:\r|\\{1,4}r|%0[Dd])?(?:\n|\\{1,4}n|%0[Aa])[ \t]{0,8}"


def has_placeholder(text: str) -> bool:
    """Return whether redaction replaced something in a text. Such a text must not be sent."""
    return REPLACED.search(unquote(unquote(text))) is not None


# -- what a key can look like ------------------------------------------------------------------


def _escapes(char: str) -> Iterator[str]:
    """Yield patterns for the escapes of an ASCII character in URLs, JSON and HTML.

    There may be several backslashes, since a cassette quotes a JSON body in JSON.
    """
    cases = (char.lower(), char.upper())
    code = "|".join(f"{ord(case):02x}" for case in cases)
    number = "|".join(str(ord(case)) for case in cases)
    yield f"%(?:{code})"
    yield rf"\\{{1,4}}(?:u00|x)(?:{code})"
    yield f"&#(?:0{{0,2}}(?:{number})|x0{{0,2}}(?:{code}));?"
    if not char.isalnum():
        yield re.escape(html.escape(char))
        yield rf"\\{{1,4}}{re.escape(char)}"


def _spelled(text: str) -> str:
    """Return a pattern for a text with each character as itself or as any of its escapes."""
    units = ("|".join((*_escapes(char), re.escape(char))) for char in text)
    return "".join(f"(?i:{unit})" for unit in units)


def _base64_digits(key: str) -> Iterator[str]:
    """Yield the base64 digits that only the key determines, for each of the three offsets."""
    for before in range(3):
        data = b"\0" * before + key.encode()
        yield b64encode(data).decode()[-(-before * 8 // 6) : len(data) * 8 // 6]


def _base64_pattern(digits: str) -> str:
    units = (f"(?:{_URL_SAFE[d]}|{_spelled(d)})" if d in _URL_SAFE else d for d in digits)
    return f"(?:{_LINE_END})?".join(units)


# -- the search --------------------------------------------------------------------------------


def lower_ascii(text: str) -> str:
    """Return a text to search in: ASCII letters in lower case, other characters as UTF-8 bytes.

    For a text that is not ASCII, `str.lower` would take twelve bytes of memory per character.
    """
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("latin-1")


@final
class _Forms(Hidden):
    """The forms of one key.

    Most texts have no hint of the key: neither one of its plain forms, nor an escape that could be
    part of one. Only texts with a hint are searched with a pattern, which takes ten times as long.
    The pattern is compiled when it is first needed.
    """

    __slots__ = ("__digits", "__escapes", "__hints", "__key", "__pattern")

    def __init__(self, key: str) -> None:
        hex_digits = key.encode().hex()
        digits = list(_base64_digits(key))
        marks = {char for char in (*key, *"".join(digits)) if not char.isalnum()}
        url_safe = (each.translate(str.maketrans("+/", "-_")) for each in digits)
        codes = {char.encode().hex() for char in f"{key.lower()}{key.upper()}{''.join(marks)}"}
        self.__key = key
        self.__digits = digits
        self.__pattern: re.Pattern[str] | None = None
        hints = [key, hex_digits]
        for each in (*digits, *url_safe):
            # Two parts, since the end of a line can break only one of them.
            middle = min(len(each), _LINE) // 2
            hints += [each[:middle], each[middle:_LINE]]
        self.__hints = {*map(str.lower, hints)}
        # Each pattern begins with a literal: three such searches are faster than one for all.
        self.__escapes = (
            re.compile(f"%(?:{'|'.join(codes)})"),
            re.compile(rf"\\(?:[x{re.escape(''.join(marks))}]|u00[2-7])"),
            re.compile("&(?:#|amp|lt|gt|quot)"),
        )

    def _any(self) -> re.Pattern[str]:
        """Return the pattern of any form."""
        if self.__pattern is None:
            base64 = "|".join(map(_base64_pattern, self.__digits))
            hex_digits = self.__key.encode().hex()
            self.__pattern = re.compile(f"(?s:{_spelled(self.__key)})|(?i:{hex_digits})|{base64}")
        return self.__pattern

    def is_hinted_at(self, lower: str) -> bool:
        """Return whether a text of `lower_ascii`, which may be quoted as JSON, has a hint."""
        if any(map(lower.__contains__, self.__hints)):
            return True
        percent, backslash, ampersand = self.__escapes
        return bool(percent.search(lower) or backslash.search(lower) or ampersand.search(lower))

    def is_in(self, text: str) -> bool:
        """Return whether any form is in a text."""
        if self.__key in text:
            return True
        return self.is_hinted_at(lower_ascii(text)) and self._any().search(text) is not None

    def removed_from(self, text: str) -> str:
        """Return a text with a placeholder for each form."""
        return self._any().sub(PLACEHOLDER, text)


@final
class KeySearch(Hidden):
    """Finds the keys that it has learned, and replaces them with ``<API_KEY>``.

    It does not search for a key of fewer than eight characters: ``200`` is in every response. A key
    is plain ASCII text (see `credentials.ApiKey`).
    """

    __slots__ = ("__forms",)

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.__forms: dict[str, _Forms] = {}
        self.learn(keys)

    @property
    def knows_a_key(self) -> bool:
        """Whether there is a key to look for."""
        return bool(self.__forms)

    def learn(self, keys: Iterable[str]) -> None:
        """Search for these keys, too, from now on."""
        for key in keys:
            if key not in self.__forms and _is_searchable(key):
                # A new dict, since another thread may be searching.
                self.__forms = {**self.__forms, key: _Forms(key)}

    def holds(self, text: str) -> bool:
        """Return whether any form of a key is in a text."""
        return any(forms.is_in(text) for forms in self.__forms.values())

    def may_be_in(self, lower: str) -> bool:
        """Return whether a text of `lower_ascii`, which may be quoted as JSON, hints at a key."""
        return any(forms.is_hinted_at(lower) for forms in self.__forms.values())

    def removed_from(self, text: str) -> str:
        """Return a text with a placeholder for each form of a key."""
        for forms in self.__forms.values():
            if forms.is_in(text):
                text = forms.removed_from(text)
        return text


def _is_searchable(key: str) -> bool:
    is_in_placeholder = key in f"{PLACEHOLDER} {REDACTED}" or has_placeholder(key)
    is_a_key = key.isascii() and key.isprintable()
    return len(key) >= _FEWEST_CHARACTERS and is_a_key and not is_in_placeholder
