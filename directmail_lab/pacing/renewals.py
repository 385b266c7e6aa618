"""When an allowance renews, read from one answer after another; a guess where the unit is open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ..quota import date_of
from ..quota.allowance import Renewal
from ..quota.reset_unit import SCALES, ResetUnitInference

if TYPE_CHECKING:
    from ..quota import Reading
    from ..quota.reset_unit import ResetUnit, Scale, UnitName

__all__ = ["RenewalReader"]

# A window of less than a second is none: a value that was always below 1,000 is not milliseconds.
_LEAST_MILLISECONDS: Final = 1000

_TIMES_LEFT: Final[tuple[UnitName, ...]] = ("seconds_left", "milliseconds_left")


class RenewalReader:
    """Turns Reset and Retry-After into a time on our clock.

    While the unit of Reset is uncertain it takes the smallest wait that is safe: the guess that an
    answer has refuted is not made again.
    """

    def __init__(self, *, stated: ResetUnit | None = None, max_wait_s: float = 120.0) -> None:
        self._inference = ResetUnitInference(stated=stated)
        self._max_wait_s = max_wait_s
        self._refuted: set[UnitName] = set()
        self._guessed: UnitName | None = None
        self._largest = 0
        self._rounds_down = False
        self._last: Reading | None = None
        self._offset = _ClockOffset()

    def read(self, reading: Reading, *, too_early: bool = False) -> Renewal | None:
        """Return when the allowance renews; None where nothing tells.

        ``too_early`` says that the answer is "nothing left" after a wait for the time that was
        told before: the unit was guessed wrongly, or counts are rounded down.
        """
        self._inference.observe(reading)
        self._offset.see(reading)
        if too_early:
            self._learn(reading)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(reading.at + reading.retry_after_s, 0.0)
        if reading.reset_text is not None:
            dated = date_of(reading.reset_text)
            return None if dated is None else Renewal(dated[1] - self._offset.seconds, 1.0)
        if reading.reset is None or not (reading.reset or self._largest):
            # A zero that was always zero says nothing; after other values it says "now".
            return None
        self._largest, self._last = max(self._largest, reading.reset), reading
        unit = self._unit(reading.reset)
        return None if unit is None else self._renewal(reading, reading.reset, SCALES[unit])

    def _renewal(self, reading: Reading, count: int, scale: Scale) -> Renewal:
        counted_s = (count + self._rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(reading.at + counted_s, scale.seconds, reading.elapsed_s or 0.0)
        return Renewal(counted_s - self._offset.seconds, scale.seconds)

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
        for unit in _TIMES_LEFT:
            expected = took_s / SCALES[unit].seconds
            if unit != self._guessed and abs(fell - expected) <= 2 + 0.05 * expected:
                self._refuted.add(self._guessed)
                return

    def _unit(self, count: int) -> UnitName | None:
        self._guessed = None
        known = self._inference.unit
        if known in SCALES:
            return known
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


class _ClockOffset:
    """How far the service's clock is ahead of ours, from its ``Date`` headers."""

    def __init__(self) -> None:
        self._least, self._most = -math.inf, math.inf

    def see(self, reading: Reading) -> None:
        """Narrow it down: a ``Date`` is cut to the second, and was written on the way to us."""
        if reading.served_at is None:
            return
        least = reading.served_at - reading.at
        most = least + 1.0 + (reading.elapsed_s or 0.0)
        if least > self._most or most < self._least:
            self._least, self._most = least, most
        else:
            self._least, self._most = max(self._least, least), min(self._most, most)

    @property
    def seconds(self) -> float:
        """The offset that is surely not too large: a renewal is then not expected too early."""
        if self._least == -math.inf or self._least <= 0.0 <= self._most:
            return 0.0
        return self._least
