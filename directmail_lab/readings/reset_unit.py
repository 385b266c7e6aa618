"""The unit of ``X-RateLimit-Reset``, inferred from readings and never assumed.

service.md part 8 says that the header "tells when the allowance renews" and leaves its unit open. A
unit is named here only when the readings rule out every other one:

- By size. A time left is at most a year in seconds, or ten days in milliseconds; a date is near
  the current time. These ranges do not overlap, so one reading shows that a value is a date.
- By movement. A time left falls by one or by a thousand each second until the allowance renews. As
  long as ``remaining`` falls, the allowance has not renewed. Example: ``remaining`` is 9, 8, 7, 6,
  5 within 3 s, and ``reset`` is 60, 60, 59, 58, 57. These are seconds: milliseconds would have
  fallen by 3,000.

Zero is no evidence, and neither is a value that never changes: both fit several units.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..arguments import check_choice
from .reading import Reading

ResetUnit = Literal["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
UnitName = ResetUnit | Literal["undetermined"]


class Scale(NamedTuple):
    """How a value becomes a time: ``value * seconds`` after the reading, or after the epoch."""

    seconds: float
    counts_down: bool


SCALES: dict[UnitName, Scale] = {
    "seconds_left": Scale(1.0, counts_down=True),
    "milliseconds_left": Scale(0.001, counts_down=True),
    "epoch_s": Scale(1.0, counts_down=False),
    "epoch_ms": Scale(0.001, counts_down=False),
}
_TIMES_LEFT: tuple[UnitName, ...] = ("seconds_left", "milliseconds_left")

_DAY_S = 86_400.0
_LONGEST_LEFT_S = dict(zip(_TIMES_LEFT, (366 * _DAY_S, 10 * _DAY_S), strict=True))
_LONGEST_AHEAD_S = 32 * _DAY_S
# How far the service's clock or ours may be wrong.
_SKEW_S = 3 * _DAY_S
# A recording may be years old, but no date before 2000 is accepted.
_YEAR_2000_S = 946_684_800.0

# The rounding error of a difference of two values, each rounded up, down or to the nearest.
_ROUNDING = 1.0
# Remaining 9, 8, 7, 6, 5: each step is one of our own requests, and five readings are enough.
# Remaining 9, 7, 6, 3: other programs use the allowance, too. A renewal between 9 and 8 may then be
# overlooked, so more readings are needed.
_ENOUGH_READINGS = 5
_ENOUGH_READINGS_BESIDE_OTHERS = 10
# The smallest constant in milliseconds, since no window is shorter than a second.
_LEAST_CONSTANT_MS = 1000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the readings say about the unit of ``X-RateLimit-Reset``.

    Attributes
    ----------
    unit
        The unit that the user stated, or the only possible one; else ``"undetermined"``.
    why
        A sentence or two that say which readings (by number, from 1) exclude the other units, or
        what is still missing.
    candidates
        The units that no reading excludes.
    contradiction
        Why the stated unit cannot be right, or None.
    """

    unit: UnitName
    why: str
    candidates: tuple[UnitName, ...]
    contradiction: str | None = None


class ResetUnitInference:
    """Infers the unit from readings as they come. Not thread-safe.

    Attributes
    ----------
    candidates
        The units that no reading excludes.
    """

    def __init__(self, *, stated: ResetUnit | None = None) -> None:
        if stated is not None:
            check_choice("reset_unit", stated, SCALES)
        self.candidates: tuple[UnitName, ...] = tuple(SCALES)
        self._stated = stated
        self._inferred: UnitName = "undetermined"
        self._reasons: list[str] = []
        self._number = 0
        # One for each allowance: by method, operation and limit.
        self._countdowns: dict[tuple[str, str, int | None], _Countdown] = {}

    @property
    def unit(self) -> UnitName:
        """The stated unit, or the only one that the readings leave, or ``"undetermined"``."""
        return self._stated or self._inferred

    def observe(self, reading: Reading) -> None:
        """Take the next reading into account. Call it in the order of the responses."""
        self._number += 1
        # Another server may use another unit, and a cache repeats an old value.
        if reading.elsewhere or reading.age_s:
            return
        value = reading.reset_number
        if value:
            near = [unit for unit in SCALES if _is_plausible(value, unit, reading)]
            self._keep(near, f"reading {self._number} would mean an impossible time")
            if self._inferred == "undetermined":
                self._observe_movement(value, reading)

    def _observe_movement(self, value: float, reading: Reading) -> None:
        key = (reading.method, reading.operation, reading.limit)
        new = _Seen(self._number, value, reading.remaining, *_written_between(reading))
        countdown = self._countdowns.get(key)
        if countdown is None or not countdown.add(new):
            self._countdowns[key] = _Countdown(new)
            return
        unit = countdown.unit()
        if unit is not None:
            span = f"from reading {countdown.first.number} to {self._number}"
            why = f"{span} it counts down, and remaining falls each time, so there was no renewal"
            self._keep([unit], why, counts_down=True)

    def _keep(self, units: Collection[UnitName], why: str, *, counts_down: bool = False) -> None:
        """Exclude all other units."""
        if not counts_down and set(units).issuperset(self.candidates):
            return
        excluded = [unit for unit in self.candidates if unit not in units]
        left = tuple(unit for unit in self.candidates if unit in units)
        self.candidates = left
        if excluded:
            self._reasons.append(f"not {' or '.join(excluded)}: {why}")
        # A time left is inferred only if it was seen to count down. It is not enough that no other
        # unit fits, since readings of two accounts may have been mixed.
        is_named = len(left) == 1 and (counts_down or left[0] not in _TIMES_LEFT)
        self._inferred = left[0] if is_named else "undetermined"

    def evidence(self) -> Evidence:
        """Return what the readings show so far."""
        why = "; ".join(self._reasons) or "no reading has an X-RateLimit-Reset other than 0 yet"
        contradiction = None if self._stated in (None, *self.candidates) else why
        if not self.candidates:
            why = f"no unit fits all readings (two accounts, or a clock that was changed?): {why}"
        elif self._reasons and self._inferred == "undetermined":
            left = ", ".join(self.candidates)
            why = f"possible: {left} (more readings of one window and account show which); {why}"
        return Evidence(self.unit, f"{why[0].upper()}{why[1:]}.", self.candidates, contradiction)


class _Seen(NamedTuple):
    """A value of Reset that the service wrote between ``earliest`` and ``latest``, in seconds."""

    number: int
    value: float
    remaining: int | None
    earliest: float
    latest: float


def _written_between(reading: Reading) -> tuple[float, float]:
    """Return the earliest and the latest time at which the service wrote a response."""
    if reading.elapsed_s is not None:
        return reading.at - reading.elapsed_s, reading.at
    # A recording of another program has no latency. Its Date is precise to a second.
    served_at = math.nan if reading.served_at is None else reading.served_at
    return served_at, served_at + 1.0


class _Countdown:
    """Readings of one allowance in which ``remaining`` fell each time, so it did not renew."""

    def __init__(self, first: _Seen) -> None:
        self.first = first
        self.last = first
        self.count = 1
        self.fitting = _TIMES_LEFT

    def add(self, new: _Seen) -> bool:
        """Add the next reading, and return True; return False if its window may be a new one."""
        before = self.last.remaining
        after = new.remaining
        if before is None or after is None or after >= before:
            return False
        self.last = new
        self.count += 1
        self.fitting = tuple(unit for unit in self.fitting if self._fits(unit))
        return True

    def _fits(self, unit: UnitName) -> bool:
        """Return whether the value fell as much as a time left in this unit does."""
        scale_s = SCALES[unit].seconds
        fall_s = (self.first.value - self.last.value) * scale_s
        rounding_s = _ROUNDING * scale_s
        least_s = self.last.earliest - self.first.latest
        most_s = self.last.latest - self.first.earliest
        return least_s - rounding_s <= fall_s <= most_s + rounding_s

    def unit(self) -> UnitName | None:
        """Return the only unit in which the values count down; None if it may be by chance."""
        first = self.first
        last = self.last
        is_ours_alone = (first.remaining or 0) - (last.remaining or 0) == self.count - 1
        enough = _ENOUGH_READINGS if is_ours_alone else _ENOUGH_READINGS_BESIDE_OTHERS
        if self.count < enough or len(self.fitting) != 1:
            return None
        unit = self.fitting[0]
        fall = first.value - last.value
        # 60001 and 60000 may be a constant in milliseconds that was rounded differently.
        least = 3 if first.value >= _LEAST_CONSTANT_MS else 1
        # If the times are known only to some seconds, a small fall may fit by chance.
        uncertainty_s = sum(seen.latest - seen.earliest for seen in (first, last))
        is_clear = fall >= least and fall * SCALES[unit].seconds >= 2 * uncertainty_s
        return unit if is_clear else None


def _is_plausible(value: float, unit: UnitName, reading: Reading) -> bool:
    """Return whether a value may be the time of a renewal in a unit, by its size."""
    scale = SCALES[unit]
    seconds = value * scale.seconds
    if scale.counts_down:
        return seconds <= _LONGEST_LEFT_S[unit]
    if seconds < _YEAR_2000_S:
        return False
    served_at = reading.served_at
    now = reading.at if served_at is None else served_at
    # `now` may be NaN. Then every time since 2000 is plausible.
    return not (seconds < now - _SKEW_S or seconds > now + _LONGEST_AHEAD_S + _SKEW_S)


def renewal_time(reading: Reading, unit: UnitName) -> float | None:
    """Return when a reading says that its allowance renews, in seconds since the Unix epoch.

    The result is None if the reading has no Reset, if the unit is not known, or if the value cannot
    be in that unit.
    """
    scale = SCALES.get(unit)
    value = reading.reset_number
    if value is None or scale is None or (value and not _is_plausible(value, unit, reading)):
        return None
    since = reading.at - reading.age_s if scale.counts_down else 0.0
    return since + value * scale.seconds


def infer_reset_unit(readings: Iterable[Reading]) -> Evidence:
    """Return the evidence for the unit of Reset in readings, in the order of their responses."""
    inference = ResetUnitInference()
    for reading in readings:
        inference.observe(reading)
    return inference.evidence()
