"""Whether a value that was seen several times counts down, and how fast: pure arithmetic.

A value that tells the time left falls at a known rate, ``rate`` counts a second, until the
allowance renews; a renewal only ever moves later, so it never falls faster. A moment is known as an
interval: the service wrote the value between the request's sending and the response's arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MILLISECOND_RATE", "SECOND_RATE", "Countdown", "Point", "could_wrap", "fell_too_far"]

SECOND_RATE: Final = 1
MILLISECOND_RATE: Final = 1000

# A count may have been rounded up, down or to the nearest: each is less than one off.
_ROUNDING: Final = 1.0

# Chance puts one value on a line easily and five in a row hardly ever.
_VALUES_ENOUGH: Final = 5
_FALL_ENOUGH: Final = {SECOND_RATE: 5, MILLISECOND_RATE: 50}
_POINTS_KEPT: Final = 48

# No allowance is counted in windows shorter than this.
_SHORTEST_WINDOW_S: Final = 1.0
_CANDIDATES_AT_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class Point:
    """A value, the moment it was written (between two times, in seconds), and its row."""

    value: int
    earliest: float
    latest: float
    row: int


def fell_too_far(before: Point, after: Point, rate: int) -> bool:
    """Return whether a value fell by more than ``rate`` counts a second allows."""
    return before.value - after.value > rate * (after.latest - before.earliest) + 2 * _ROUNDING


@dataclass(slots=True)
class Countdown:
    """The latest stretch of values that count down to one renewal at ``rate`` counts a second."""

    rate: int
    points: list[Point] = field(default_factory=list)
    witnesses: list[Point] = field(default_factory=list)
    _low: float = -math.inf
    _high: float = math.inf
    _last: Point | None = None
    _widest: float = 0.0

    def add(self, point: Point) -> None:
        """Take the next value: it goes on with the stretch, or starts a new one."""
        low = point.value - _ROUNDING + self.rate * point.earliest
        high = point.value + _ROUNDING + self.rate * point.latest
        falls = self._last is None or point.value < self._last.value
        if not falls or max(low, self._low) > min(high, self._high):
            self.points, self.witnesses, self._widest = [], [], 0.0
            self._low, self._high = -math.inf, math.inf
        self._low, self._high = max(low, self._low), min(high, self._high)
        self._widest = max(self._widest, point.latest - point.earliest)
        self._last = point
        if len(self.points) < _POINTS_KEPT:
            self.points.append(point)

    def bear_witness(self, point: Point) -> None:
        """Take another sight of the last value: it fell no further in the meantime."""
        if self.points and len(self.witnesses) < _POINTS_KEPT:
            self.witnesses.append(point)

    @property
    def is_clear(self) -> bool:
        """Whether the stretch is long enough that chance does not explain it."""
        if len(self.points) < _VALUES_ENOUGH:
            return False
        fall = self.points[0].value - self.points[-1].value
        blur = self.rate * self._widest + 2 * _ROUNDING
        return fall >= max(_FALL_ENOUGH[self.rate], 2 * blur)


def could_wrap(points: Sequence[Point], rate: int) -> bool:
    """Return whether values could also come from a faster countdown that renewed in between.

    At ``rate`` counts a second and with windows of one length the values repeat: whatever fell and
    was not seen to fall is a whole number of windows. This looks for a length that explains all
    points, as a stroboscope makes a wheel stand still.
    """
    first = points[0]
    hidden = []
    for point in points[1:]:
        seen = first.value - point.value
        low = rate * (point.earliest - first.latest) - seen - 2 * _ROUNDING
        high = rate * (point.latest - first.earliest) - seen + 2 * _ROUNDING
        if low > 0:
            hidden.append((low, high))
    if not hidden:
        return True
    shortest = max(rate * _SHORTEST_WINDOW_S, max(point.value for point in points))
    hidden.sort(key=lambda span: span[1])
    lengths = [(shortest, math.inf)]
    for low, high in hidden:
        lengths = [fit for length in lengths for fit in _lengths_within(length, low, high)]
        if len(lengths) > _CANDIDATES_AT_MOST:
            return True
    return bool(lengths)


def _lengths_within(
    length: tuple[float, float], low: float, high: float
) -> list[tuple[float, float]]:
    """Return the parts of a span of window lengths of which a multiple lies in ``low, high``."""
    shortest, longest = length
    most = math.floor(high / shortest)
    fewest = max(1, math.ceil(low / longest))
    if most - fewest > _CANDIDATES_AT_MOST:
        return [length]
    spans = (
        (max(shortest, low / count), min(longest, high / count))
        for count in range(fewest, most + 1)
    )
    return [span for span in spans if span[0] <= span[1]]
