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
import itertools
import json
import operator
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import AnyStr, Final, final

PLACEHOLDER: Final = "<API_KEY>"
"""What replaces the key, as the service's document writes it."""

FRAGMENT: Final = 8
"""The fewest characters of a key in a row that are removed; a shorter key is not searched for."""

# Eight characters are 64 bits, of which up to 4 share a digit of base64 with what stands before.
_BASE64_PIECE: Final = (FRAGMENT * 8 - 4) // 6
_MAX_LAYERS: Final = 4
_GROUPS: Final = 32
# In so many strings with a key, only the words with it are replaced; in any more, the whole string.
_MOST_LEAVES: Final = 4096

# A long text is searched a window at a time: undoing escapes takes many times its memory. What two
# windows share is longer than eight characters of a key under four layers of escapes.
WINDOW: Final = 1 << 20
SHARED: Final = 1 << 10

# Escapes that stand for printable ASCII, of which a key is made.
_KINDS: Final = (
    r"\\(?:(?:u00|x)[2-7][0-9a-fA-F]|[\"\\/'])",
    r"%[2-7][0-9a-fA-F]",
    r"&(?:#[xX]0*[2-7][0-9a-fA-F];?|#0*(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6]);?|(?:amp|lt|gt|quot|apos);)",
)
# Python reads no number of more than 4,300 digits, and no character has one of more than 7.
_LONG_NUMBER = re.compile(r"&#(\d{8,})")
_ANY_KIND = re.compile("|".join(_KINDS))
_EACH_KIND: Final = tuple(map(re.compile, _KINDS))
# Every text in JSON has \" in it and many a query an &: they matter to a key that has one.
_SIGNS: Final[tuple[str, ...]] = ("\\u", "\\x", "\\/", "%", "&#", "&amp;")
_ALL_SIGNS: Final[tuple[str, ...]] = ("\\", "%", "&")

# Splits a text into words and what is between; the second, into longer ones, up to space or quote.
_WORDS: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"(?:&#?\w{1,8};|[^\s\"'<>&,;?=:/@#(){}\[\]|])++(?:==?(?![\w%=]))?|.",
        r"[^\s\"]+|.",
    )
)
# JSON, or text that quotes some: its strings, what stands between them, and one that never ends.
_LEAVES = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"]++|.++', re.DOTALL)
JSON_NUMBERS = re.compile(r"(?:[\s,:\d.eE+\-\"\[\]{}]|true|false|null)*+")
"""What is between the strings of JSON; empty strings count as part of it."""
_NUMBER = re.compile(r"-?\d[\d.eE+-]*")
_QUOTED: Final = json.dumps(PLACEHOLDER)


def unescape_html(text: str) -> str:
    """Return a text without HTML's escapes, numbers of any length among them."""
    return html.unescape(_LONG_NUMBER.sub(lambda m: "&#" + (m[1].lstrip("0")[:8] or "0"), text))


@functools.lru_cache(4096)
def _meaning(escape: str) -> str:
    if escape[0] == "&":
        return unescape_html(escape)
    return escape[1] if len(escape) == 2 else chr(int(escape[-2:], 16))


def _plain(match: re.Match[str]) -> str:
    return _meaning(match[0])


def windows(text: AnyStr) -> Iterator[AnyStr]:
    """Yield a text or a body whole, or a long one in parts that share what a key could stand in."""
    for start in range(0, max(len(text) - SHARED, 1), WINDOW):
        yield text[start : start + WINDOW + SHARED]


def string_value(raw: str) -> str:
    """Return the value of a JSON string; its text between the quotes if it is not valid JSON."""
    if "\\" in raw:
        with contextlib.suppress(ValueError):
            return str(json.loads(raw, strict=False))
    return raw[1:-1]


def string_text(value: str, was: str) -> str:
    """Return the JSON string of a value, escaped to ASCII if the string ``was`` before."""
    return json.dumps(value, ensure_ascii=was.isascii() or "\\u" in was)


def _below(text: str, signs: tuple[str, ...]) -> Iterator[str]:
    """Yield a text, then what it is with a layer of escapes undone, and so on.

    First each kind of escape alone, since undoing one may form another: ``%61b\\u0062``.
    """
    yield text
    if any(map(text.__contains__, signs)):
        alone = [inner for kind in _EACH_KIND if (inner := kind.sub(_plain, text)) != text]
        yield from alone
        text = alone[0] if len(alone) == 1 else text
        for _ in range(_MAX_LAYERS):
            outer, text = text, _ANY_KIND.sub(_plain, text)
            if text == outer:
                return
            yield text


def _forms(key: str) -> Iterator[tuple[str, int, int]]:
    """Yield each form of a key with the length of the pieces to search for, and their step.

    Base64 is yielded at each of three alignments, without the digits that hold a neighbour's bits.
    """
    for text in _below(key, _ALL_SIGNS):
        yield text, FRAGMENT, 1
    yield key.encode().hex(), 2 * FRAGMENT, 2
    for before in range(3):
        digits = b64encode(b"\0" * before + key.encode()).decode()
        digits = digits[-(-before * 8 // 6) : (before + len(key)) * 8 // 6]
        yield digits, _BASE64_PIECE, 1
        yield digits.replace("+", "-").replace("/", "_"), _BASE64_PIECE, 1


def _pieces(text: str, size: int, step: int) -> Iterator[str]:
    last = len(text) - size
    return (text[at : at + size].lower() for at in (*range(0, last, step), last) if last >= 0)


@final
class KeySearch:
    """Finds and removes the keys that it has learned, and shows none of them."""

    __slots__ = ("__known", "__needles", "__signs")

    def __init__(self) -> None:
        self.__known: frozenset[str] = frozenset()
        self.__needles: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self.__signs = _SIGNS

    def __repr__(self) -> str:
        return "<hidden>"

    def learn(self, keys: frozenset[str]) -> None:
        """Search for these keys from now on, besides those known already."""
        if keys <= self.__known:
            return
        self.__known |= keys
        long = [
            key
            for key in self.__known
            if len(key) >= FRAGMENT and key.isascii() and key.isprintable() and key != PLACEHOLDER
        ]
        # Probes are half as long as needles, and so far apart that any needle has one whole: a few
        # tell most texts clean.
        found: dict[str, set[str]] = {}
        for text, size, step in itertools.chain.from_iterable(map(_forms, long)):
            probes = list(_pieces(text, size // 2, size - size // 2 + 1))
            for needle in _pieces(text, size, step):
                probe = next(probe for probe in probes if probe in needle)
                found.setdefault(probe, set()).add(needle)
        self.__needles = tuple((probe, tuple(needles)) for probe, needles in found.items())
        self.__signs = _ALL_SIGNS if set("".join(long)) & set("\"'\\&<>") else _SIGNS

    def holds(self, text: str) -> bool:
        """Return whether any form of a key is in a text, whole or eight characters of it."""
        for window in windows(text):
            for plain in _below(window, self.__signs):
                low = plain.lower()
                for probe, needles in self.__needles:
                    if probe in low and any(map(low.__contains__, needles)):
                        return True
        return False

    def without(self, text: str) -> str:
        """Return a text that `holds` a key without it; JSON stays JSON of the same shape."""
        found = itertools.count()
        cleaned = self._cleaned(
            _LEAVES, text, lambda leaf: self._leaf(leaf, whole=next(found) > _MOST_LEAVES)
        )
        return PLACEHOLDER if self.holds(cleaned) else cleaned

    def _leaf(self, leaf: str, *, whole: bool) -> str:
        if leaf[0] == leaf[-1] == '"' and len(leaf) > 1:
            return _QUOTED if whole else string_text(self._wordwise(string_value(leaf)), leaf)
        if JSON_NUMBERS.fullmatch(leaf):
            return _NUMBER.sub(lambda number: _QUOTED if self.holds(number[0]) else number[0], leaf)
        return self._wordwise(leaf)

    def _wordwise(self, text: str) -> str:
        for words in _WORDS:
            cleaned = self._cleaned(words, text, lambda _: PLACEHOLDER)
            if not self.holds(cleaned):
                return cleaned
        return PLACEHOLDER

    def _cleaned(self, pattern: re.Pattern[str], text: str, clean: Callable[[str], str]) -> str:
        """Return a text, those parts of it cleaned that hold a key.

        They are looked for in groups, so that parts without a key cost next to nothing, and many
        with one not much more.
        """

        def within(parts: list[str]) -> Iterator[str]:
            joined = "".join(parts)
            if len(joined) < FRAGMENT or not self.holds(joined):
                yield joined
            elif len(parts) == 1:
                yield clean(joined)
            else:
                size = -(-len(parts) // _GROUPS)
                for start in range(0, len(parts), size):
                    yield from within(parts[start : start + size])

        parts = map(operator.itemgetter(0), pattern.finditer(text))
        batches = iter(lambda: list(itertools.islice(parts, _GROUPS**2)), [])
        return "".join(itertools.chain.from_iterable(map(within, batches)))
