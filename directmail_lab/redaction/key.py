"""Finding keys in text, in the forms of the threat model, in time linear in the text.

A text is searched as it stands and below each layer of escapes (JSON, percent, HTML), for any eight
characters in a row of a key, of its hex digits, or of its base64, in any letter case. Where a key
is found, the whole word that holds it goes, or the whole string of JSON: nothing is mapped back
through escapes.
"""

from __future__ import annotations

import contextlib
import functools
import html
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import AnyStr, Final, final
from urllib.parse import unquote

PLACEHOLDER: Final = "<API_KEY>"
"""What replaces the key, as the service's document writes it."""

REPLACED: Final = re.compile(
    r"<(?:API_KEY|REDACTED|[^<>]+-[0-9a-f]{8}|not (?:searched|recorded): \d+ bytes)>"
    r"|person-[0-9a-f]{8}@example\.invalid|\+999\d{9}(?!\d)"
)
"""What redaction leaves in the place of a value: a placeholder, or a pseudonym (see `personal`)."""

FRAGMENT: Final = 8
"""The fewest characters of a key in a row that are removed; a shorter key is not searched for."""

# Eight characters are 64 bits, of which up to 4 share a digit of base64 with what stands before.
_BASE64_FRAGMENT: Final = (FRAGMENT * 8 - 4) // 6
_MAX_LAYERS: Final = 4

# A long text is searched a window at a time: undoing escapes takes many times its memory. What two
# windows share is longer than eight characters of a key under four layers of escapes.
WINDOW: Final = 1 << 20
SHARED: Final = 1 << 10

# Escapes of JSON, of addresses and of HTML that stand for printable ASCII, of which a key is made.
_ESCAPES: Final = (
    r"\\(?:(?:u00|x)[2-7][0-9a-fA-F]|[\"\\/'])",
    r"%[2-7][0-9a-fA-F]",
    r"&(?:#[xX]0*[2-7][0-9a-fA-F];?|#0*(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6]);?|(?:amp|lt|gt|quot|apos);)",
)
_EACH_ESCAPE: Final = tuple(map(re.compile, _ESCAPES))
_ANY_ESCAPE: Final = re.compile("|".join(_ESCAPES))
# Every text in JSON has \" in it and many a query an &: they matter to a key that has one.
_BACKSLASH: Final = re.compile(r"\\[ux/]")
_AMPERSAND: Final = re.compile("&(?:#|amp;)")
# Python reads no number of more than 4,300 digits, and no character has one of more than 7.
_LONG_NUMBER: Final = re.compile(r"&#(\d{8,})")


def _parts(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what matches a hundred parts of a text, and one part."""
    return re.compile(f"(?:{pattern}){{1,100}}", re.DOTALL), re.compile(pattern, re.DOTALL)


# Words and what is between; the second splits into longer ones, up to space or quote.
_WORDS: Final = (
    _parts(r"(?:&#?\w{1,8};|[^\s\"'<>&,;?=:/@#(){}\[\]|])++(?:==?(?![\w%=]))?|."),
    _parts(r"[^\s\"]++|."),
)
# JSON, or text that quotes some: its strings, what stands between them, and one that never ends.
_JSON_PARTS: Final = _parts(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"]++|.++')
JSON_NUMBERS: Final = re.compile(r"(?:[\s,:\d.eE+\-\"\[\]{}]|true|false|null)*+")
"""What is between the strings of JSON; empty strings count as part of it."""
_NUMBER: Final = re.compile(r"-?\d[\d.eE+-]*")
_QUOTED: Final = json.dumps(PLACEHOLDER)


def unescape_html(text: str) -> str:
    """Return a text without HTML's escapes, numbers of any length among them."""
    return html.unescape(_LONG_NUMBER.sub(lambda m: "&#" + (m[1].lstrip("0")[:8] or "0"), text))


def windows(text: AnyStr) -> Iterable[AnyStr]:
    """Return a text or a body whole, or a long one in parts that share what a key could be in."""
    if len(text) <= WINDOW + SHARED:
        return (text,)
    starts = range(0, len(text) - SHARED, WINDOW)
    return (text[start : start + WINDOW + SHARED] for start in starts)


def parse_string(raw: str) -> str:
    """Return the value of a JSON string; its text between the quotes if it is not valid JSON."""
    if "\\" in raw:
        with contextlib.suppress(ValueError):
            return str(json.loads(raw, strict=False))
    return raw[1:-1]


def format_string(value: str, old: str) -> str:
    """Return the JSON string of a value, escaped to ASCII if the string ``old`` was."""
    return json.dumps(value, ensure_ascii=old.isascii() or "\\u" in old)


@functools.lru_cache(4096)
def _character(escape: str) -> str:
    if escape[0] == "&":
        return unescape_html(escape)
    return escape[1] if len(escape) == 2 else chr(int(escape[-2:], 16))


def _unescape(match: re.Match[str]) -> str:
    return _character(match[0])


def _layers(text: str, *, any_sign: bool) -> Iterator[str]:
    """Yield a text, then what it is with a layer of escapes undone, and so on.

    First each kind of escape alone, since undoing one may form another: ``%61b\\u0062``. Unless
    ``any_sign``, escapes of quotes, backslashes, ``&``, ``<`` and ``>`` alone are not undone.
    """
    yield text
    if "%" in text or (
        ("\\" in text or "&" in text)
        if any_sign
        else _BACKSLASH.search(text) or ("&" in text and _AMPERSAND.search(text))
    ):
        plain = [inner for kind in _EACH_ESCAPE if (inner := kind.sub(_unescape, text)) != text]
        yield from plain
        text = plain[0] if len(plain) == 1 else text
        for _ in range(_MAX_LAYERS):
            outer, text = text, _ANY_ESCAPE.sub(_unescape, text)
            if text == outer:
                return
            yield text


def _encodings(key: str) -> Iterator[tuple[str, int, int]]:
    """Yield each encoding of a key with the length of the fragments to search for, and their step.

    Base64 is yielded at each of three alignments, without the digits that hold a neighbour's bits.
    """
    for text in _layers(key, any_sign=True):
        yield text, FRAGMENT, 1
    yield key.encode().hex(), 2 * FRAGMENT, 2
    for before in range(3):
        digits = b64encode(b"\0" * before + key.encode()).decode()
        digits = digits[-(-before * 8 // 6) : (before + len(key)) * 8 // 6]
        yield digits, _BASE64_FRAGMENT, 1
        yield digits.replace("+", "-").replace("/", "_"), _BASE64_FRAGMENT, 1


def _fragments(text: str, size: int, step: int) -> Iterator[str]:
    last = len(text) - size
    return (text[at : at + size].lower() for at in (*range(0, last, step), last) if last >= 0)


def has_placeholder(text: str) -> bool:
    """Return whether redaction replaced something in a text, so that it must not be sent."""
    return REPLACED.search(unquote(text)) is not None


@final
class KeySearch:
    """Finds and removes the keys that it has learned, and shows none of them."""

    __slots__ = ("__any_sign", "__fragments", "__keys")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.__keys: frozenset[str] = frozenset()
        self.__fragments: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self.__any_sign = False
        self.learn(frozenset(keys))

    def __repr__(self) -> str:
        return "<hidden>"

    def learn(self, keys: frozenset[str]) -> None:
        """Search for these keys from now on, besides those known already."""
        if keys <= self.__keys:
            return
        self.__keys |= keys
        long = [
            key
            for key in self.__keys
            if len(key) >= FRAGMENT and key.isascii() and key.isprintable() and key != PLACEHOLDER
        ]
        # Probes are half as long as fragments, and so far apart that any fragment has one whole: a
        # few show that most texts hold no key.
        by_probe: dict[str, set[str]] = {}
        for text, size, step in chain.from_iterable(map(_encodings, long)):
            probes = list(_fragments(text, size // 2, size - size // 2 + 1))
            for fragment in _fragments(text, size, step):
                probe = next(probe for probe in probes if probe in fragment)
                by_probe.setdefault(probe, set()).add(fragment)
        self.__fragments = tuple((probe, tuple(found)) for probe, found in by_probe.items())
        self.__any_sign = not set("".join(long)).isdisjoint("\"'\\&<>")

    def holds(self, text: str) -> bool:
        """Return whether any form of a key is in a text, whole or eight characters of it."""
        for window in windows(text):
            for plain in _layers(window, any_sign=self.__any_sign):
                low = plain.lower()
                for probe, fragments in self.__fragments:
                    if probe in low and any(map(low.__contains__, fragments)):
                        return True
        return False

    def removed_from(self, text: str) -> str:
        """Return a text without what `holds` finds; JSON stays JSON of the same shape."""
        if not self.holds(text):
            return text
        cleaned = self._replace(_JSON_PARTS, text, self._clean_json)
        return PLACEHOLDER if self.holds(cleaned) else cleaned

    def _clean_json(self, part: str) -> str:
        if part[0] == part[-1] == '"':
            return format_string(self._clean_words(parse_string(part)), part)
        if JSON_NUMBERS.fullmatch(part):
            return _NUMBER.sub(lambda match: _QUOTED if self.holds(match[0]) else match[0], part)
        return self._clean_words(part)

    def _clean_words(self, text: str) -> str:
        for words in _WORDS:
            cleaned = self._replace(words, text, lambda _: PLACEHOLDER)
            if not self.holds(cleaned):
                return cleaned
        return PLACEHOLDER

    def _replace(
        self, parts: tuple[re.Pattern[str], ...], text: str, clean: Callable[[str], str]
    ) -> str:
        """Return a text that `holds` a key, its parts with one cleaned; searched in hundreds."""
        many, one = parts

        def replace(match: re.Match[str]) -> str:
            has_key = len(match[0]) >= FRAGMENT and self.holds(match[0])
            return clean(match[0]) if has_key else match[0]

        def replace_many(match: re.Match[str]) -> str:
            return one.sub(replace, match[0]) if self.holds(match[0]) else match[0]

        return one.sub(replace, text) if len(text) < SHARED else many.sub(replace_many, text)
