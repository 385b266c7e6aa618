"""A value of ``X-RateLimit-Reset`` in its place: when it was written, and what came before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .countdown import Countdown, Point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .reading import Reading

__all__ = ["Track", "is_near"]

_DAY_S: Final = 86_400.0
_LONGEST_AHEAD_S: Final = 32 * _DAY_S
# How far a clock, theirs or ours, may be off.
_SKEW_S: Final = 3 * _DAY_S
# A replay may be years after its recording, but not before the service can have been there.
_YEAR_2000_S: Final = 946_684_800.0

# When a response's time on the way is not known, it is taken to be at most this.
_UNKNOWN_LATENCY_S: Final = 30.0

# Between two whole seconds: what stands still so long does not count milliseconds.
_WORTH_A_WITNESS_S: Final = 0.3


class Track:
    """The values that one allowance may stand behind: the last one, and how they move."""

    __slots__ = ("_rates", "countdowns", "last", "last_row", "last_value", "since", "witness")

    def __init__(self, rates: Iterable[int]) -> None:
        self._rates = tuple(rates)
        self.last: Reading | None = None
        self.last_value = 0
        self.last_row = 0
        self.since = math.inf
        self.witness: Reading | None = None
        self.restart()

    def repeat(self, reading: Reading, row: int) -> None:
        """Take the last value once more."""
        self.last, self.last_row = reading, row
        if self.witness is None and reading.at - self.since > _WORTH_A_WITNESS_S:
            self.witness = reading

    def restart(self) -> None:
        """Forget how the values moved: what was seen says nothing of what comes."""
        self.countdowns = [Countdown(rate) for rate in self._rates]

    def move_on(self, reading: Reading, value: int, row: int) -> tuple[Point | None, Point | None]:
        """Take a value that is another than the last; return the step, where its time is known."""
        last = self.last
        before = None if last is None else _point(last, self.last_value, self.last_row)
        after = _point(reading, value, row)
        seen = None if self.witness is None else _point(self.witness, self.last_value, row)
        self.since, self.witness = reading.at, None
        self.last, self.last_value, self.last_row = reading, value, row
        if after is None:
            self.restart()
            return None, None
        if last is not None and (
            before is None or after.latest < before.earliest or _clock_was_set(last, reading)
        ):
            self.restart()
            before = None
        for countdown in self.countdowns:
            if seen is not None:
                countdown.bear_witness(seen)
            countdown.add(after)
        return before, after


def _point(reading: Reading, value: int, row: int) -> Point | None:
    """Return a value with the moment it was written, or None where that is not known."""
    if math.isnan(reading.at):
        # A recording that kept no times: the service's own clock tells them, to the second.
        served = reading.served_at
        return None if served is None else Point(value, served, served + 1.0, row)
    waited = _UNKNOWN_LATENCY_S if reading.elapsed_s is None else reading.elapsed_s
    return Point(value, reading.at - waited, reading.at, row)


def _clock_was_set(before: Reading, after: Reading) -> bool:
    """Return whether our clock went another way than the service's between two readings."""
    if after.source == "replayed" or before.served_at is None or after.served_at is None:
        return False
    slack = 2.0 + (before.elapsed_s or 0.0) + (after.elapsed_s or 0.0)
    return abs((after.at - before.at) - (after.served_at - before.served_at)) > slack


def is_near(seconds: float, reading: Reading) -> bool:
    """Return whether a time since the Unix epoch may be a renewal that this reading told."""
    if seconds < _YEAR_2000_S:
        return False
    now = reading.at if reading.served_at is None else reading.served_at
    if math.isnan(now):
        return True
    if reading.source == "replayed" and reading.served_at is None:
        return seconds <= now + _LONGEST_AHEAD_S + _SKEW_S
    return now - _SKEW_S <= seconds <= now + _LONGEST_AHEAD_S + _SKEW_S
