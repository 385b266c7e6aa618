"""The unit of ``X-RateLimit-Reset``, inferred from readings and never assumed.

service.md part 8 says that the header "tells when the allowance renews" and leaves its unit open. A
unit is named here only when the readings rule out every other one:

- By size. A time left is at most a year in seconds, or ten days in milliseconds; a point in time is
  near the current time. These ranges do not overlap, so one reading shows a point in time.
- By movement. A time left falls by one or by a thousand each second until the allowance renews.
  While ``remaining`` keeps falling, the allowance did not renew. Example: ``remaining`` is 9, 8, 7,
  6, 5 within 3 s and ``reset`` is 60, 60, 59, 58, 57. These are seconds: milliseconds would have
  fallen by 3,000.

Zero is no evidence, and neither is a value that never changes: both fit several units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ..errors import check_choice
from .reading import Reading, parse_date

ResetUnit = Literal["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
UnitName = ResetUnit | Literal["http_date", "iso_text", "undetermined"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How a value becomes a time: ``value * seconds`` after the reading, or after the epoch."""

    seconds: float
    counts_down: bool


SCALES: Final[dict[UnitName, Scale]] = {
    "seconds_left": Scale(1.0, counts_down=True),
    "milliseconds_left": Scale(0.001, counts_down=True),
    "epoch_s": Scale(1.0, counts_down=False),
    "epoch_ms": Scale(0.001, counts_down=False),
}

UNITS: Final[tuple[UnitName, ...]] = (*SCALES, "http_date", "iso_text")
_TIMES_LEFT: Final = tuple(unit for unit, scale in SCALES.items() if scale.counts_down)

_DAY_S: Final = 86_400.0
_LONGEST_LEFT_S: Final[dict[UnitName, float]] = {
    "seconds_left": 366 * _DAY_S,
    "milliseconds_left": 10 * _DAY_S,
}
_LONGEST_AHEAD_S: Final = 32 * _DAY_S
# How wrong a clock may be, the service's or ours.
_SKEW_S: Final = 3 * _DAY_S
# A recording may be years old, but no point in time before 2000 is accepted.
_YEAR_2000_S: Final = 946_684_800.0

# The longest that a response is assumed to have taken if its latency is not known.
_UNKNOWN_LATENCY_S: Final = 30.0
# The rounding error of a difference of two values, each rounded up, down or to the nearest.
_ROUNDING: Final = 2.0
# Remaining 9, 8, 7, 6, 5: each step is one request of our own, and five readings are enough.
# Remaining 9, 7, 6, 3: others use the allowance too. Then 9, (renewal), 8 may look like no renewal,
# so more readings are needed.
_ENOUGH_READINGS: Final = 5
_ENOUGH_READINGS_BESIDE_OTHERS: Final = 10
# No window is shorter than a second, so a constant in milliseconds is at least this large.
_LEAST_CONSTANT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the readings say of the unit of ``X-RateLimit-Reset``.

    Attributes
    ----------
    unit
        The unit that the user stated, or the only one left; else ``"undetermined"``.
    why
        A sentence or two: which readings (rows of the log, from 0) exclude the other units, or what
        is still missing.
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

    Live readings take precedence: with the first one, what replayed readings showed is discarded.

    Attributes
    ----------
    candidates
        The units that no reading excludes.
    """

    def __init__(self, *, stated: ResetUnit | None = None) -> None:
        if stated is not None:
            check_choice("reset_unit", stated, SCALES)
        self._stated = stated
        self._rows = 0
        self._is_live = False
        self._start()

    def _start(self) -> None:
        self.candidates: tuple[UnitName, ...] = UNITS
        self._inferred: UnitName = "undetermined"
        self._reasons: dict[UnitName, str] = {}  # why each other unit is excluded
        self._counts_down = False
        # One for each allowance: by method, operation, limit, and source of the readings.
        self._series: dict[tuple[str, str, int | None, str], _Series] = {}

    @property
    def unit(self) -> UnitName:
        """The stated unit, or the only one that the readings leave, or ``"undetermined"``."""
        return self._stated or self._inferred

    def observe(self, reading: Reading) -> None:
        """Take one more reading into account; readings come in the order they were made."""
        row, self._rows = self._rows, self._rows + 1
        if reading.source != "replayed" and not self._is_live:
            self._is_live = True
            self._start()
        if self._is_live and reading.source == "replayed":
            return
        if reading.reset:
            self._exclude_by_size(reading, reading.reset, row)
            if self._inferred == "undetermined":
                self._exclude_by_movement(reading, reading.reset, row)
        elif reading.reset_text and (date := parse_date(reading.reset_text)) is not None:
            others = [unit for unit in UNITS if unit != date[0]]
            self._exclude(others, f"row {row} has a date of another form")

    def evidence(self) -> Evidence:
        """Return what the readings show so far."""
        contradiction = self._reasons.get(self._stated) if self._stated else None
        return Evidence(self.unit, self._explain(), self.candidates, contradiction)

    def _exclude_by_size(self, reading: Reading, value: int, row: int) -> None:
        for unit in self.candidates:
            if unit not in SCALES:
                self._exclude([unit], f"row {row} has a number")
            elif not _is_plausible(unit, value, reading):
                self._exclude([unit], f"the value in row {row} would be far from its time")

    def _exclude_by_movement(self, reading: Reading, value: int, row: int) -> None:
        new = _Observation(value, reading, row, *_written_between(reading))
        key = (reading.method, reading.operation, reading.limit, reading.source)
        series = self._series.get(key)
        if series is None:
            self._series[key] = _Series(new)
            return
        last, is_in_order = series.last, _are_in_order(series.last, new)
        if new.value < last.value and is_in_order:
            too_fast = [unit for unit in _TIMES_LEFT if new.fits(last, unit) > 0]
            self._exclude(too_fast, f"rows {last.row} and {row} fall faster than time passes")
        series.add(new, is_in_order=is_in_order)
        unit = series.unit()
        if unit is not None and unit not in self._reasons:
            self._counts_down = True
            first, others = series.first, [other for other in UNITS if other != unit]
            self._exclude(
                others,
                f"from row {first.row} to {row} it falls by {first.value - value} in "
                f"{new.latest - first.latest:.3g} s, and nothing is renewed in between, since "
                "remaining falls each time",
            )

    def _exclude(self, units: Iterable[UnitName], reason: str) -> None:
        for unit in units:
            self._reasons.setdefault(unit, reason)
        self.candidates = tuple(unit for unit in UNITS if unit not in self._reasons)
        # A time left is named only if it was seen counting down. That no other unit fits is not
        # enough: readings of two accounts may have been mixed.
        is_known = len(self.candidates) == 1 and (
            self._counts_down or self.candidates[0] not in _TIMES_LEFT
        )
        self._inferred = self.candidates[0] if is_known else "undetermined"

    def _explain(self) -> str:
        by_reason: dict[str, list[UnitName]] = {}
        for unit, reason in self._reasons.items():
            by_reason.setdefault(reason, []).append(unit)
        reasons = "; ".join(
            f"not {' or '.join(units)}: {reason}" for reason, units in by_reason.items()
        )
        if not reasons:
            return "No reading has an X-RateLimit-Reset other than 0 yet."
        if not self.candidates:
            reasons = f"no unit fits all readings (two accounts mixed, or a clock set?): {reasons}"
        elif self._inferred == "undetermined":
            units_left = ", ".join(self.candidates)
            reasons = f"possible: {units_left} (more readings of one window show which); {reasons}"
        return f"{reasons[0].upper()}{reasons[1:]}."


class _Observation(NamedTuple):
    """A value of Reset, written by the service between ``earliest`` and ``latest``, in seconds."""

    value: int
    reading: Reading
    row: int
    earliest: float
    latest: float

    def fits(self, before: _Observation, unit: UnitName) -> int:
        """Return 0 if the value fell as a time left in this unit does since ``before``.

        Else return 1 if it fell too far, and -1 if it did not fall far enough.
        """
        fall_s = (before.value - self.value) * SCALES[unit].seconds
        tolerance_s = _ROUNDING * SCALES[unit].seconds
        if fall_s > self.latest - before.earliest + tolerance_s:
            return 1
        return -1 if fall_s < self.earliest - before.latest - tolerance_s else 0


def _written_between(reading: Reading) -> tuple[float, float]:
    """Return the earliest and the latest time at which the service wrote a response."""
    if not math.isnan(reading.at):
        latency_s = _UNKNOWN_LATENCY_S if reading.elapsed_s is None else reading.elapsed_s
        return reading.at - latency_s, reading.at
    if reading.served_at is not None:
        # A recording without times: use the Date header, which is precise to a second.
        return reading.served_at, reading.served_at + 1.0
    return -math.inf, math.inf


class _Series:
    """The values of one allowance within one window, from ``first`` to ``last``.

    ``remaining`` falls with each of them, so the allowance is not renewed in between. At a value
    for which that is not true, the series starts again.
    """

    def __init__(self, first: _Observation) -> None:
        self._earlier_fall = 0  # in seconds, over all windows before this one
        self._start(first)

    def _start(self, first: _Observation) -> None:
        self.first = self.last = first
        self._count = 1
        self._is_ours_alone = True
        self._fitting = _TIMES_LEFT

    def add(self, new: _Observation, *, is_in_order: bool) -> None:
        """Add the next value, or start again with it."""
        before, after = self.last.reading.remaining, new.reading.remaining
        spent = 0 if before is None or after is None else before - after
        if not is_in_order or spent <= 0 or new.value > self.last.value:
            if self._fitting_unit() == "seconds_left":
                self._earlier_fall += self.first.value - self.last.value
            self._start(new)
            return
        self.last = new
        self._count += 1
        self._is_ours_alone &= spent == 1
        self._fitting = tuple(unit for unit in self._fitting if new.fits(self.first, unit) == 0)

    def unit(self) -> UnitName | None:
        """Return the unit in which the values count down, if they fall far enough; else None."""
        unit, fall = self._fitting_unit(), self.first.value - self.last.value
        if unit == "milliseconds_left":
            enough = 50
        elif self.first.value >= _LEAST_CONSTANT_MS:
            # It may be a constant in milliseconds, 60000 or 60001 by rounding.
            enough = 3
        else:
            # A window of 2 s gives 2, 1 and then 2, 1: two falls by one count as a fall by two.
            enough = max(1, 2 - self._earlier_fall)
        return unit if fall >= enough else None

    def _fitting_unit(self) -> UnitName | None:
        """Return the only unit in which the values count down; None if it may be by chance."""
        enough = _ENOUGH_READINGS if self._is_ours_alone else _ENOUGH_READINGS_BESIDE_OTHERS
        if self._count < enough or len(self._fitting) != 1:
            return None
        # If the times are only known to half a minute, a small fall fits by chance.
        uncertainty_s = sum(end.latest - end.earliest for end in (self.first, self.last))
        unit, fall = self._fitting[0], self.first.value - self.last.value
        return unit if fall * SCALES[unit].seconds >= 2 * uncertainty_s else None


def _are_in_order(before: _Observation, after: _Observation) -> bool:
    """Return whether no clock was set between two readings, ours or the service's."""
    first, last = before.reading, after.reading
    if after.latest < before.earliest:
        return False
    if last.source == "replayed" or first.served_at is None or last.served_at is None:
        return True
    tolerance_s = 2.0 + (first.elapsed_s or 0.0) + (last.elapsed_s or 0.0)
    # `not … >`, because our times may be NaN: every comparison is then False, and they count as in
    # order.
    return not abs((last.at - first.at) - (last.served_at - first.served_at)) > tolerance_s


def _is_plausible(unit: UnitName, value: int, reading: Reading) -> bool:
    """Return whether a value of this size may be a renewal in this unit, at this reading's time."""
    scale = SCALES[unit]
    seconds = value * scale.seconds
    if scale.counts_down:
        return seconds <= _LONGEST_LEFT_S[unit]
    if seconds < _YEAR_2000_S:
        return False
    now = reading.at if reading.served_at is None else reading.served_at
    if math.isnan(now):
        return True
    is_late = reading.source == "replayed" and reading.served_at is None
    return (is_late or now - _SKEW_S <= seconds) and seconds <= now + _LONGEST_AHEAD_S + _SKEW_S


def renewal_time(reading: Reading, unit: UnitName) -> float | None:
    """Return when a reading says that its allowance renews, in seconds since the Unix epoch.

    A date needs no unit. The result is None if the reading has no Reset, if the unit is not known,
    or if the value cannot be in that unit.
    """
    if reading.reset_text is not None:
        date = parse_date(reading.reset_text)
        return None if date is None else date[1]
    scale, value = SCALES.get(unit), reading.reset
    if scale is None or value is None or (value and not _is_plausible(unit, value, reading)):
        return None
    return value * scale.seconds + (reading.at if scale.counts_down else 0.0)


def infer_reset_unit(readings: Iterable[Reading], *, stated: ResetUnit | None = None) -> Evidence:
    """Return the evidence for the unit of Reset in readings, given in the order they were made."""
    inference = ResetUnitInference(stated=stated)
    for reading in readings:
        inference.observe(reading)
    return inference.evidence()
