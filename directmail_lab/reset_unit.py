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

from .quota import Reading, parse_date

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
# Remaining 9, 8, 7, 6, 5: each step is one request of our own, and five answers are enough.
# Remaining 9, 7, 6, 3: others use the allowance too. Then 9, (renewal), 8 may look like no renewal,
# so more answers are needed.
_ANSWERS_ENOUGH: Final = 5
_ANSWERS_ENOUGH_BESIDE_OTHERS: Final = 10
# No window is shorter than a second, so a constant in milliseconds is at least this large.
_LEAST_CONSTANT_MS: Final = 1000
_TRACKS_AT_MOST: Final = 1000

_Key = tuple[str, str, int | None, str]
"""What tells allowances apart: method, operation, limit, and the source of the readings."""


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
    """Infers the unit from readings as they come; each is looked at once. Not thread-safe.

    Live readings take precedence: with the first one, what replayed readings showed is discarded.

    Attributes
    ----------
    candidates
        The units that no reading excludes.
    """

    def __init__(self, *, stated: ResetUnit | None = None) -> None:
        if stated is not None and stated not in SCALES:
            raise ValueError(f"reset_unit must be one of {', '.join(SCALES)}, or None to infer it.")
        self._stated = stated
        self._rows = 0
        self._is_live = False
        self._start()

    def _start(self) -> None:
        self.candidates: tuple[UnitName, ...] = UNITS
        self._inferred: UnitName = "undetermined"
        self._excluded: dict[UnitName, str] = {}
        self._counts_down = False
        self._tracks: dict[_Key, _Track] = {}

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
            self._look_at_number(reading, reading.reset, row)
        elif (
            reading.reset_text is not None and (dated := parse_date(reading.reset_text)) is not None
        ):
            others = [unit for unit in UNITS if unit != dated[0]]
            self._exclude(others, f"row {row} holds a date of another form")

    def evidence(self) -> Evidence:
        """Return what the readings say so far."""
        contradiction = self._excluded.get(self._stated) if self._stated else None
        return Evidence(self.unit, self._why(), self.candidates, contradiction)

    def _look_at_number(self, reading: Reading, value: int, row: int) -> None:
        for unit in self.candidates:
            if unit not in SCALES:
                self._exclude([unit], f"row {row} holds a number")
            elif not _could_be(unit, value, reading):
                self._exclude([unit], f"row {row} would be far from when it was sent")
        if self._inferred != "undetermined":
            return
        key = (reading.method, reading.operation, reading.limit, reading.source)
        sight = _sight(reading, value, row)
        track = self._tracks.get(key)
        if track is None:
            if len(self._tracks) >= _TRACKS_AT_MOST:
                self._tracks.clear()
            self._tracks[key] = _Track(sight)
            return
        before = track.last
        if too_fast := track.take(sight):
            self._exclude(too_fast, f"rows {before.row} and {row} fall faster than time")
        counted = track.counts_down_in()
        if counted is not None and counted not in self._excluded:
            self._counts_down = True
            self._exclude(
                [unit for unit in UNITS if unit != counted],
                f"rows {track.first.row} to {row} count down by {track.fall} in "
                f"{sight.latest - track.first.latest:.3g} s, and what remains says that nothing "
                "renewed meanwhile",
            )

    def _exclude(self, units: Iterable[UnitName], why: str) -> None:
        for unit in units:
            self._excluded.setdefault(unit, why)
        left = self.candidates = tuple(unit for unit in UNITS if unit not in self._excluded)
        # A time left is named only if it was seen counting down. That no other unit fits is not
        # enough: readings of two accounts may have been mixed.
        is_told = len(left) == 1 and (self._counts_down or left[0] not in _TIMES_LEFT)
        self._inferred = left[0] if is_told else "undetermined"

    def _why(self) -> str:
        by_reason: dict[str, list[UnitName]] = {}
        for unit, why in self._excluded.items():
            by_reason.setdefault(why, []).append(unit)
        reasons = "; ".join(f"not {' or '.join(units)}: {why}" for why, units in by_reason.items())
        if not self.candidates:
            return (
                "No unit fits all readings: were two accounts mixed, or a clock set meanwhile? "
                f"{reasons}."
            )
        if not reasons:
            return "No reading yet has an X-RateLimit-Reset other than 0."
        if self._inferred == "undetermined":
            missing = "more readings of one operation within one window would tell"
            return f"Left: {', '.join(self.candidates)} ({missing}); {reasons}."
        return f"{reasons[0].upper()}{reasons[1:]}."


class _Sight(NamedTuple):
    """A value of Reset, written by the service between ``earliest`` and ``latest``, in seconds."""

    value: int
    reading: Reading
    row: int
    earliest: float
    latest: float

    def fell_too_far(self, before: _Sight, unit: UnitName) -> bool:
        """Return whether a time left in this unit cannot have fallen so much since ``before``."""
        most_s = self.latest - before.earliest
        return before.value - self.value > most_s / SCALES[unit].seconds + _ROUNDING

    def fell_too_little(self, before: _Sight, unit: UnitName) -> bool:
        """Return whether a time left in this unit must have fallen more since ``before``."""
        least_s = self.earliest - before.latest
        return before.value - self.value < least_s / SCALES[unit].seconds - _ROUNDING


def _sight(reading: Reading, value: int, row: int) -> _Sight:
    """Return a value with the times between which it was written; infinite if not known."""
    if not math.isnan(reading.at):
        waited_s = _UNKNOWN_LATENCY_S if reading.elapsed_s is None else reading.elapsed_s
        return _Sight(value, reading, row, reading.at - waited_s, reading.at)
    if reading.served_at is not None:
        # A recording without times: use the service's Date header, which is precise to a second.
        return _Sight(value, reading, row, reading.served_at, reading.served_at + 1.0)
    return _Sight(value, reading, row, -math.inf, math.inf)


class _Track:
    """The values of one allowance within one window, from ``first`` to ``last``.

    ``remaining`` fell with each of them, so the allowance did not renew in between. At a value for
    which that is not true, the track starts again.
    """

    def __init__(self, sight: _Sight) -> None:
        self._seconds_fell = 0
        self._begin(sight)

    def _begin(self, sight: _Sight) -> None:
        self.first = self.last = sight
        self._answers = 1
        self._is_ours_alone = True
        self._fits = _TIMES_LEFT

    @property
    def fall(self) -> int:
        return self.first.value - self.last.value

    def take(self, sight: _Sight) -> list[UnitName]:
        """Add the next value; return the units in which it fell faster than time passed.

        If a clock was set in between, there are none.
        """
        before, in_order = self.last, _are_in_order(self.last, sight)
        left = before.reading.remaining, sight.reading.remaining
        spent = 0 if left[0] is None or left[1] is None else left[0] - left[1]
        if in_order and spent > 0 and sight.value <= before.value:
            self.last = sight
            self._answers += 1
            self._is_ours_alone &= spent == 1
            self._fits = tuple(
                unit
                for unit in self._fits
                if not sight.fell_too_little(self.first, unit)
                and not sight.fell_too_far(self.first, unit)
            )
        else:
            if self._unit() == "seconds_left":
                self._seconds_fell += self.fall
            self._begin(sight)
        if sight.value >= before.value or not in_order:
            return []
        return [unit for unit in _TIMES_LEFT if sight.fell_too_far(before, unit)]

    def _unit(self) -> UnitName | None:
        """Return the only unit in which the values count down; None if it may be by chance."""
        enough = _ANSWERS_ENOUGH if self._is_ours_alone else _ANSWERS_ENOUGH_BESIDE_OTHERS
        if self._answers < enough or len(self._fits) != 1:
            return None
        # If the times are only known to half a minute, a small fall fits by chance.
        unsure_s = sum(sight.latest - sight.earliest for sight in (self.first, self.last))
        unit = self._fits[0]
        return unit if self.fall * SCALES[unit].seconds >= 2 * unsure_s else None

    def counts_down_in(self) -> UnitName | None:
        """Return the unit in which the values count down, if they fell far enough; else None."""
        unit = self._unit()
        if unit == "milliseconds_left":
            enough = 50
        elif self.first.value >= _LEAST_CONSTANT_MS:
            # It may be a constant in milliseconds, 60000 or 60001 by rounding: ask for more.
            enough = 3
        else:
            # A window of 2 s gives 2, 1 and then 2, 1: two falls by one count as a fall by two.
            enough = max(1, 2 - self._seconds_fell)
        return unit if self.fall >= enough else None


def _are_in_order(before: _Sight, after: _Sight) -> bool:
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


def _could_be(unit: UnitName, value: int, reading: Reading) -> bool:
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


def renewal_of(reading: Reading, unit: UnitName) -> float | None:
    """Return when a reading says that its allowance renews, in seconds since the Unix epoch.

    A date needs no unit. The result is None if the reading has no Reset, if the unit is not known,
    or if the value cannot be in that unit.
    """
    if reading.reset_text is not None:
        dated = parse_date(reading.reset_text)
        return None if dated is None else dated[1]
    scale, value = SCALES.get(unit), reading.reset
    if scale is None or value is None or (value and not _could_be(unit, value, reading)):
        return None
    return value * scale.seconds + (reading.at if scale.counts_down else 0.0)


def infer_reset_unit(readings: Iterable[Reading], *, stated: ResetUnit | None = None) -> Evidence:
    """Return the evidence for the unit of Reset in readings, given in the order they were made."""
    inference = ResetUnitInference(stated=stated)
    for reading in readings:
        inference.observe(reading)
    return inference.evidence()
