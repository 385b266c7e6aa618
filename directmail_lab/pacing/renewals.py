"""When an allowance renews, read from one answer after another; a guess where the unit is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..quota import date_of
from ..quota.reset_unit import SCALES

if TYPE_CHECKING:
    from ..quota import Reading
    from ..quota.reset_unit import ResetUnitInference, UnitName

__all__ = ["Renewal", "RenewalReader"]

# A window of less than a second is none: a value that was always below 1,000 is not milliseconds.
_LEAST_MILLISECONDS: Final = 1000

# Beside rounding and the way, what a busy machine adds.
_LEAST_TOLERANCE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Renewal:
    """When an allowance renews, by our clock.

    ``resolution_s`` is how coarsely that was told, in seconds; 0 where it is to be taken at its
    word. ``latency_s`` is how long the answer took: so much it may have been told earlier.
    """

    at: float
    resolution_s: float
    latency_s: float = 0.0

    @property
    def tolerance_s(self) -> float:
        """Two answers of one window tell renewals that are no further apart."""
        return self.resolution_s + self.latency_s + _LEAST_TOLERANCE_S


class RenewalReader:
    """Turns Reset and Retry-After into a time on our clock.

    While the unit of Reset is uncertain it takes the smallest wait that is safe: the guess that an
    answer has refuted is not made again.
    """

    def __init__(self, inference: ResetUnitInference, *, max_wait_s: float) -> None:
        self._inference = inference
        self._max_wait_s = max_wait_s
        self._refuted: set[UnitName] = set()
        self._guessed: UnitName | None = None
        self._largest = 0
        self._rounds_down = False
        self._last: Reading | None = None
        # How far the service's clock is ahead of ours, by its `Date` headers.
        self._ahead_least_s, self._ahead_most_s = -math.inf, math.inf

    def read(self, reading: Reading, *, too_early: bool = False) -> Renewal | None:
        """Return when the allowance renews; None where nothing tells.

        ``too_early`` says that the answer is "nothing left" after a wait for the time that was
        told before: the unit was guessed wrongly, or counts are rounded down.
        """
        self._compare_clocks(reading)
        if too_early:
            self._learn(reading)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(reading.at + reading.retry_after_s, 0.0)
        if reading.reset_text is not None:
            dated = date_of(reading.reset_text)
            return None if dated is None else Renewal(dated[1] - self._ahead_s, 1.0)
        if reading.reset is None or not (reading.reset or self._largest):
            # A zero that was always zero says nothing; after other values it says "now".
            return None
        self._largest, self._last = max(self._largest, reading.reset), reading
        unit = self._unit(reading.reset)
        if unit is None:
            return None
        scale = SCALES[unit]
        counted_s = (reading.reset + self._rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(reading.at + counted_s, scale.seconds, reading.elapsed_s or 0.0)
        return Renewal(counted_s - self._ahead_s, scale.seconds)

    def _learn(self, reading: Reading) -> None:
        """Learn from an answer that came too early: refute the guess, or expect rounding down."""
        # To learn only once, expect both: a second too many is little beside another refusal.
        self._rounds_down = True
        last = self._last
        if self._guessed is None or last is None or last.reset is None or reading.reset is None:
            return
        # Another program may have spent the new window. The guess is wrong where the value moved
        # as the other unit does.
        fell, took_s = last.reset - reading.reset, reading.at - last.at
        for unit, scale in SCALES.items():
            expected = took_s / scale.seconds
            is_other = scale.counts_down and unit != self._guessed
            if is_other and abs(fell - expected) <= 2 + 0.05 * expected:
                self._refuted.add(self._guessed)

    def _unit(self, count: int) -> UnitName | None:
        self._guessed = None
        if self._inference.unit in SCALES:
            return self._inference.unit
        left = [
            unit
            for unit in self._inference.candidates
            if unit in SCALES and unit not in self._refuted
        ]
        if len(left) > 1 and self._largest < _LEAST_MILLISECONDS and count <= self._max_wait_s:
            left = [unit for unit in left if unit != "milliseconds_left"]
        # Milliseconds before seconds: the smaller wait.
        left.sort(key=lambda unit: SCALES[unit].seconds)
        self._guessed = left[0] if left else None
        return self._guessed

    def _compare_clocks(self, reading: Reading) -> None:
        """Narrow it down: a ``Date`` is cut to the second, and was written on the way to us."""
        if reading.served_at is None:
            return
        least_s = reading.served_at - reading.at
        most_s = least_s + 1.0 + (reading.elapsed_s or 0.0)
        if least_s <= self._ahead_most_s and most_s >= self._ahead_least_s:
            least_s = max(self._ahead_least_s, least_s)
            most_s = min(self._ahead_most_s, most_s)
        self._ahead_least_s, self._ahead_most_s = least_s, most_s

    @property
    def _ahead_s(self) -> float:
        """As much as is sure: a renewal is then not expected too early."""
        unsure = self._ahead_least_s == -math.inf or self._ahead_least_s <= 0 <= self._ahead_most_s
        return 0.0 if unsure else self._ahead_least_s
