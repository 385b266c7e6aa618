"""Finding keys in text, in the forms of the threat model, in time linear in the text.

A text is searched as it stands and below each layer of escapes (JSON, percent, HTML), for any eight
characters in a row of a key, of its hex digits, or of its base64, in any letter case. Where a key
is found, the whole word that holds it goes, or the whole string of JSON: nothing is mapped back
through escapes.
"""

from __future__ import annotations

import functools
import html
import itertools
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Final, final

PLACEHOLDER: Final = "<API_KEY>"
"""What stands where the key stood, as the service's document writes it."""

FRAGMENT: Final = 8
"""So many characters of the key in a row are removed as the key is; a shorter key never is."""

# Eight characters are 64 bits, of which up to 4 share a digit of base64 with what stands before.
_BASE64_PIECE: Final = (FRAGMENT * 8 - 4) // 6
_MAX_LAYERS: Final = 4
_MOST_WORDS: Final = 4096

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

_WORD = re.compile(r"((?:&#?\w{1,8};|[^\s\"'<>&,;?=:/@#(){}\[\]|])++(?:==?(?![\w%=]))?)")
_LONG_WORD = re.compile(r"([^\s\"]+)")
_JSON_STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_JSON_NUMBER = re.compile(r"-?\d[\d.eE+-]*")
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


def windows(text: str) -> Iterator[str]:
    """Yield a text whole, or a long one in parts that share what a key could stand across."""
    if len(text) <= WINDOW:
        yield text
        return
    for start in range(0, len(text) - SHARED, WINDOW):
        yield text[start : start + WINDOW + SHARED]


def _below(text: str, signs: tuple[str, ...]) -> Iterator[str]:
    """Yield a text, then what it is with a layer of escapes undone, and so on.

    The first layer also of one kind alone: in ``%61b\\u0062`` a ``%`` may stand before hex digits.
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
    """Yield each form of a key with the length of the pieces that give it away, and their step.

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
        for plain in itertools.chain.from_iterable(_below(w, self.__signs) for w in windows(text)):
            low = plain.lower()
            for probe, needles in self.__needles:
                if probe in low and any(map(low.__contains__, needles)):
                    return True
        return False

    def without(self, text: str) -> str:
        """Return a text that `holds` a key without it; JSON stays JSON of the same shape."""
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return self._wordwise(text)
        tokens = self._cleaned(_JSON_STRING.split(text), self._json_token, _blunt)
        return self._checked("".join(tokens))

    def _checked(self, text: str) -> str:
        return PLACEHOLDER if self.holds(text) else text

    def _wordwise(self, text: str) -> str:
        for words in (_WORD, _LONG_WORD):
            parts = self._cleaned(words.split(text), lambda _: PLACEHOLDER, lambda _: PLACEHOLDER)
            if not self.holds(text := "".join(parts)):
                return text
        return PLACEHOLDER

    def _json_token(self, token: str) -> str:
        if not token.startswith('"'):
            return _JSON_NUMBER.sub(lambda m: _QUOTED if self.holds(m[0]) else m[0], token)
        clean = self._wordwise(json.loads(token, strict=False))
        return json.dumps(clean, ensure_ascii=token.isascii() or "\\u" in token)

    def _cleaned(
        self, parts: list[str], clean: Callable[[str], str], blunt: Callable[[list[str]], str]
    ) -> list[str]:
        """Return the parts of a text, those that hold a key cleaned. They are found by halving.

        Of a text with thousands of keys the rest is not searched one by one: ``blunt`` cleans it.
        """
        found = itertools.count()

        def within(some: list[str]) -> list[str]:
            if not self.holds("".join(some)):
                return some
            if len(some) == 1:
                return [clean(some[0])]
            if next(found) > _MOST_WORDS:
                return [blunt(some)]
            middle = len(some) // 2
            return within(some[:middle]) + within(some[middle:])

        return within(parts)


def _blunt(tokens: list[str]) -> str:
    """Return tokens of JSON without any string or number that is long enough to hold a key."""
    return "".join(
        _JSON_NUMBER.sub(lambda m: _QUOTED if len(m[0]) >= FRAGMENT else m[0], token)
        if not token.startswith('"')
        else token
        if len(token) < FRAGMENT + 2
        else _QUOTED
        for token in tokens
    )
