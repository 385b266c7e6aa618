"""Finding a secret in text, in whatever form a service or a library may have written it.

A text is searched as it stands, then again below each layer of escaping that it may wear (JSON,
percent, HTML, quoted-printable, the NULs of UTF-16), one layer at a time, so that a key which
itself holds a ``%`` or a ``\\`` is not decoded past recognition. In each, the forms looked for are
the key, its hex digits and its base64 at each of the three alignments it can have inside longer
base64, in any letter case. Long runs of base64 or hex are decoded too, and looked into.

Not only the whole form is found: any eight characters of the key in a row are, so that a cut body
or an error that repeats part of the key leaves nothing either. A key shorter than eight characters
is found only where it stands alone, between characters that are no letters or digits: taken out
anywhere, ``a`` would leave no text readable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, final

from .escapes import layers_for, places_below, unescaped
from .key_forms import FRAGMENT, Form, alone_of, forms_of, glances_of, probes_of
from .packed import packed_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["ALL_RULES", "FRAGMENT", "Finder", "make_finder"]

ALL_RULES: Final = frozenset(
    (
        *("raw", "base64", "hex", "nested", "packed"),
        *("json", "percent", "html", "quoted", "utf16"),
        *("headers", "query", "userinfo"),
    )
)
"""The rules of redaction by name. All are always on; tests switch one off to see it missed."""

# Our own word for the service that we bring: it stands in records, and in that service's key.
_PUBLIC: Final = "stand-in"
_MAX_DEPTH: Final = 3
_MUCH: Final = 4096
_SHORTEST_RUN: Final = 13
# The digits of both base64 alphabets: told apart, the first would end at the other's digit.
_LONG: Final = re.compile(r"[A-Za-z0-9+/_-]{13,}={0,2}")

# Base64 and hex digits as "a", all else as a space: one fast pass shows whether a run is long.
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_RUNS: Final = bytes(97 if code in _DIGITS else 32 for code in range(256))
# The digits as they are, all else as a space: what is split there holds every run.
_ALL_BUT_RUNS: Final = bytes(code if code in _DIGITS else 32 for code in range(256))

# A request's name or a record's id comes with many exchanges: so many runs that were decoded, and
# found to hold nothing, are remembered, none of them longer than this.
_REMEMBERED_RUNS: Final = 512
_LONGEST_REMEMBERED: Final = 2048


class Span(NamedTuple):
    """Where in a text something secret stands, end excluded."""

    start: int
    end: int


class Finder(NamedTuple):
    """Closures over the secrets; a named tuple of functions shows none of them.

    ``holds`` says whether a text has any form or piece of one in it, and ``spans`` where, in order
    and apart. ``holds_whole`` is ``holds`` at half the cost: it may miss a piece from the middle.
    """

    holds: Callable[[str], bool]
    holds_whole: Callable[[str], bool]
    spans: Callable[[str], list[Span]]


@final
class _Search:
    """What the finder's closures stand on. It shows nothing: it is ``self`` in every frame here."""

    __slots__ = ("_alone", "_deep", "_glances", "_heads", "_layers", "_probes", "_run", "_sound")

    def __init__(self, secrets: Collection[str], rules: Collection[str]) -> None:
        long = [key for key in secrets if len(key) >= FRAGMENT]
        self._probes = probes_of([form for key in long for form in forms_of(key, rules)])
        self._heads = tuple(dict.fromkeys(text for key in long for text in glances_of(key, rules)))
        raw = [Form(key.lower(), FRAGMENT) for key in long] if "raw" in rules else []
        pieces = [probe for probe, _ in probes_of(raw)]
        self._glances = tuple(dict.fromkeys((*pieces, *self._heads)))
        self._alone = alone_of([key for key in secrets if len(key) < FRAGMENT], rules)
        self._layers = layers_for("".join(secrets), rules)
        # A key is hidden from a search for its pieces by an escape in every eight characters; of
        # such a text base64 takes this many digits, and base64 of base64 more.
        shortest = min(map(len, secrets))
        fewest = max(_SHORTEST_RUN, (shortest + 2 * (shortest // FRAGMENT)) * 4 // 3)
        self._run = b"a" * fewest if "nested" in rules else None
        self._deep = "packed" in rules
        self._sound: set[bytes] = set()

    def __repr__(self) -> str:
        return "<hidden>"

    def holds(self, text: str, glances: tuple[str, ...] = ()) -> bool:
        if self._holds_outside(text, glances or self._glances):
            return True
        for layer in self._layers:
            if layer.character in text and layer.sign.search(text):
                return self._holds_below(text)
        return False

    def _holds_below(self, text: str) -> bool:
        below = unescaped(text, self._layers)
        return any(self._holds_outside(inner, self._glances) for inner, _ in below)

    def holds_whole(self, text: str) -> bool:
        return self.holds(text, self._heads)

    def spans(self, text: str) -> list[Span]:
        found = self._spans_outside(text)
        for inner, path in unescaped(text, self._layers):
            if below := self._spans_outside(inner):
                places = places_below(text, path)
                found += [Span(places[span.start], places[span.end]) for span in below]
        return _joined(found)

    def _holds_outside(self, text: str, glances: tuple[str, ...]) -> bool:
        return self._holds_plain(text, glances) or self._holds_runs(text)

    def _spans_outside(self, text: str) -> list[Span]:
        return [*self._plain_spans(text), *self._packed_spans(text)]

    def _holds_plain(self, text: str, glances: tuple[str, ...]) -> bool:
        low = text.lower()
        for glance in glances:
            if glance in low:
                # A glance may be an ordinary word: only a whole piece counts.
                return any(True for _ in self._plain_spans(text))
        return self._alone is not None and self._alone.search(text) is not None

    def _plain_spans(self, text: str) -> Iterator[Span]:
        low = _lower(text)
        for probe, forms in self._probes:
            at = low.find(probe)
            while at >= 0:
                for form, place in forms:
                    yield from _piece_around(low, at, probe, form, place)
                at = low.find(probe, at + 1)
        if self._alone:
            yield from (Span(*match.span("secret")) for match in self._alone.finditer(text))

    def _has_long_run(self, data: bytes) -> bool:
        return self._run is not None and self._run in data.translate(_RUNS)

    def _packed_spans(self, text: str) -> Iterator[Span]:
        if self._has_long_run(text.encode("utf-8", "replace")):
            for match in _LONG.finditer(text):
                if self._holds_packed(match[0]):
                    yield Span(*match.span())

    def _holds_runs(self, text: str) -> bool:
        """Return whether there are any `_packed_spans`, at less cost."""
        data = text.encode("utf-8", "replace")
        if not self._has_long_run(data):
            return False
        sound, runs = self._sound, data.translate(_ALL_BUT_RUNS).split()
        for run in [run for run in runs if len(run) >= _SHORTEST_RUN and run not in sound]:
            if any(self._holds_packed(match[0]) for match in _LONG.finditer(run.decode())):
                return True
            if len(run) <= _LONGEST_REMEMBERED:
                if len(sound) >= _REMEMBERED_RUNS:
                    sound.clear()
                sound.add(run)
        return False

    def _holds_packed(self, digits: str, depth: int = _MAX_DEPTH) -> bool:
        return depth > 0 and any(
            self._holds_plain(text, self._glances)
            # Escapes are of text: in much decoded binary they would be chance.
            or ((text.isascii() or len(text) < _MUCH) and self._holds_below_plain(text))
            or any(self._holds_packed(match[0], depth - 1) for match in _LONG.finditer(text))
            for text in packed_texts(digits, deep=self._deep)
        )

    def _holds_below_plain(self, text: str) -> bool:
        below = unescaped(text, self._layers)
        return any(self._holds_plain(inner, self._glances) for inner, _ in below)


def make_finder(secrets: Collection[str], rules: Collection[str] = ALL_RULES) -> Finder:
    """Return a `Finder` for the forms of ``secrets``; with none, one that finds nothing."""
    if not secrets:
        return Finder(lambda _text: False, lambda _text: False, lambda _text: [])
    search = _Search(secrets, rules)
    return Finder(
        lambda text: search.holds(text),
        lambda text: search.holds_whole(text),
        lambda text: search.spans(text),
    )


def _lower(text: str) -> str:
    """Return a text in lower case, each character still at its place."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if c < "\x80" else c for c in text)


def _piece_around(low: str, at: int, probe: str, form: Form, place: int) -> Iterator[Span]:
    """Yield the run of ``low`` that is a piece of the form, if long enough to give it away.

    ``probe`` stands at ``at`` in ``low``, and at ``place`` in the form.
    """
    text, piece = form
    left, right = 0, len(probe)
    while left < min(at, place) and low[at - left - 1] == text[place - left - 1]:
        left += 1
    while place + right < len(text) and low[at + right : at + right + 1] == text[place + right]:
        right += 1
    if left + right >= piece and not _is_public(low[at - left : at + right], text):
        yield Span(at - left, at + right)


def _is_public(piece: str, form: str) -> bool:
    return piece != form and piece in (_PUBLIC, _PUBLIC + "-")


def _joined(spans: list[Span]) -> list[Span]:
    """Return spans in order, those that touch or overlap made one."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined
