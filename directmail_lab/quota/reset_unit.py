"""What ``X-RateLimit-Reset`` counts: inferred from the readings, never assumed.

service.md part 8 says that the header "tells when the allowance renews" and leaves its unit open. A
unit is named here only when the readings rule out every other one:

- By size. A time left is at most a year in seconds and ten days in milliseconds; a point in time
  lies near the clock. These ranges do not overlap, so one reading tells a point in time.
- By movement. A time left counts down, one or a thousand a second. Seconds and milliseconds are
  told apart by a stretch of readings on one such line, that no window of a second or more explains
  in the other unit.

Zero is no evidence, nor is a time left that never changes: such a value fits several units.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from .countdown import MILLISECOND_RATE, SECOND_RATE, could_wrap, fell_too_far
from .reading import date_of
from .sightings import Track, is_near

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .countdown import Countdown
    from .reading import Reading

__all__ = [
    "SCALES",
    "Evidence",
    "ResetUnit",
    "ResetUnitInference",
    "Scale",
    "UnitName",
    "infer_reset_unit",
]

ResetUnit = Literal["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
UnitName = ResetUnit | Literal["http_date", "iso_text", "undetermined"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How a unit's count becomes a time: ``seconds`` a count, from the reading or the epoch on."""

    seconds: float
    counts_down: bool


SCALES: Final[dict[UnitName, Scale]] = {
    "seconds_left": Scale(1.0, counts_down=True),
    "milliseconds_left": Scale(0.001, counts_down=True),
    "epoch_s": Scale(1.0, counts_down=False),
    "epoch_ms": Scale(0.001, counts_down=False),
}

UNITS: Final[tuple[UnitName, ...]] = (*SCALES, "http_date", "iso_text")

_UNIT_OF_RATE: Final[dict[int, UnitName]] = {
    SECOND_RATE: "seconds_left",
    MILLISECOND_RATE: "milliseconds_left",
}

_DAY_S: Final = 86_400.0
_LONGEST_S: Final[dict[UnitName, float]] = {
    "seconds_left": 366 * _DAY_S,
    "milliseconds_left": 10 * _DAY_S,
}
_TRACKS_AT_MOST: Final = 1000

_Key = tuple[str, str, int | None, str]
"""What one allowance may stand behind: method, operation and limit; and where readings are from."""

_reset_of = attrgetter("reset")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the readings say of the unit of ``X-RateLimit-Reset``.

    Attributes
    ----------
    unit
        The unit that is left, or the one that was stated; else ``"undetermined"``.
    why
        A sentence or two: which readings (rows of the log, from 0) exclude the other units, or what
        is still missing.
    candidates
        The units that no reading excludes.
    stated
        Whether the user stated the unit.
    contradiction
        Why the stated unit cannot be right, or None.
    """

    unit: UnitName
    why: str
    candidates: tuple[UnitName, ...]
    stated: bool = False
    contradiction: str | None = None


class ResetUnitInference:
    """Infers the unit from readings as they come, each looked at once. Not thread-safe."""

    def __init__(self, *, stated: ResetUnit | None = None) -> None:
        if stated is not None and stated not in SCALES:
            raise ValueError(f"reset_unit is one of {', '.join(SCALES)}, or None to infer it.")
        self._stated = stated
        self._inferred: UnitName = "undetermined"
        self._excluded: dict[UnitName, str] = {}
        self._counts_down: set[UnitName] = set()
        self._concluded_from = 0
        self._rows = 0
        self._numbers = False
        self._tracks: dict[_Key, Track] = {}

    @property
    def unit(self) -> UnitName:
        """The unit that was stated, or the one that the readings leave; or ``"undetermined"``."""
        return self._stated or self._inferred

    def extend(self, readings: Iterable[Reading]) -> None:
        """Look at more readings, in the order they were made."""
        if self._inferred != "undetermined":
            self._check(list(readings))
            return
        for reading in readings:
            value = reading.reset
            if value:
                key = (reading.method, reading.operation, reading.limit, reading.source)
                track = self._tracks.get(key)
                if track is not None and track.last_value == value:
                    track.repeat(reading, self._rows)
                else:
                    self._look_at_integer(track or self._new_track(key), reading, value)
            elif reading.reset_text is not None:
                self._look_at_date(reading.reset_text)
            self._rows += 1
        if len(self._excluded) + len(self._counts_down) != self._concluded_from:
            self._conclude()

    def _check(self, readings: list[Reading]) -> None:
        """Look at the extremes alone: the unit is known, and could only turn out contradicted."""
        numbers = [reading for reading in readings if reading.reset]
        if numbers:
            for pick in (min, max):
                extreme = pick(numbers, key=_reset_of)
                self._exclude_by_size(extreme, extreme.reset or 0)
            self._exclude(("http_date", "iso_text"), "later rows hold numbers")
        for text in {reading.reset_text for reading in readings} - {None}:
            self._look_at_date(text or "")
        self._rows += len(readings)
        self._conclude()

    def evidence(self) -> Evidence:
        """Return what the readings say so far."""
        return Evidence(
            unit=self.unit,
            why=self._why(),
            candidates=self.candidates(),
            stated=self._stated is not None,
            contradiction=self._excluded.get(self._stated) if self._stated else None,
        )

    def candidates(self) -> tuple[UnitName, ...]:
        """Return the units that no reading excludes."""
        return tuple(unit for unit in UNITS if unit not in self._excluded)

    def _conclude(self) -> None:
        left = self.candidates()
        self._concluded_from = len(self._excluded) + len(self._counts_down)
        self._inferred = "undetermined"
        # A time left is named only when it was seen counting down: that the others do not fit may
        # also mean that two accounts were mixed.
        if len(left) == 1 and (left[0] in self._counts_down or not _counts_down(left[0])):
            self._inferred = left[0]

    def _why(self) -> str:
        left = self.candidates()
        reasons = "; ".join(
            f"not {' or '.join(units)}: {why}" for why, units in self._by_reason().items()
        )
        if not left:
            return (
                "No unit fits all readings: were two accounts mixed, or a clock set meanwhile? "
                f"{reasons}."
            )
        if not reasons:
            return "No reading yet has an X-RateLimit-Reset other than 0."
        if self._inferred == "undetermined":
            missing = "a longer stretch of readings of one operation that counts down would tell"
            return f"Left: {', '.join(left)} ({missing}); {reasons}."
        return f"{reasons[0].upper()}{reasons[1:]}."

    def _by_reason(self) -> dict[str, list[UnitName]]:
        reasons: dict[str, list[UnitName]] = {}
        for unit, why in self._excluded.items():
            reasons.setdefault(why, []).append(unit)
        return reasons

    def _exclude(self, units: Iterable[UnitName], why: str) -> None:
        for unit in units:
            self._excluded.setdefault(unit, why)

    def _look_at_date(self, text: str) -> None:
        dated = date_of(text)
        if dated is not None:
            others = [unit for unit in UNITS if unit != dated[0]]
            self._exclude(others, f"row {self._rows} holds a date of another form")

    def _look_at_integer(self, track: Track, reading: Reading, value: int) -> None:
        if not self._numbers:
            self._numbers = True
            self._exclude(("http_date", "iso_text"), f"row {self._rows} holds a number")
        self._exclude_by_size(reading, value)
        before, after = track.move_on(reading, value, self._rows)
        if before is not None and after is not None:
            why = f"rows {before.row} and {after.row} fall faster than time"
            rates = [rate for rate in _UNIT_OF_RATE if fell_too_far(before, after, rate)]
            self._exclude([_UNIT_OF_RATE[rate] for rate in rates], why)
        for countdown in track.countdowns:
            if countdown.is_clear:
                self._take_countdown(_UNIT_OF_RATE[countdown.rate], countdown)

    def _new_track(self, key: _Key) -> Track:
        if len(self._tracks) >= _TRACKS_AT_MOST:
            self._tracks.clear()
        self._tracks[key] = track = Track(_UNIT_OF_RATE)
        return track

    def _exclude_by_size(self, reading: Reading, value: int) -> None:
        for unit, scale in SCALES.items():
            if unit in self._excluded:
                continue
            seconds = value * scale.seconds
            if scale.counts_down and seconds > _LONGEST_S[unit]:
                self._exclude(
                    [unit], f"row {self._rows} would be {seconds / _DAY_S:.3g} days ahead"
                )
            elif not scale.counts_down and not is_near(seconds, reading):
                self._exclude([unit], f"row {self._rows} would be far from when it was sent")

    def _take_countdown(self, unit: UnitName, countdown: Countdown) -> None:
        if unit in self._counts_down:
            return
        if countdown.rate == SECOND_RATE:
            sights = [*countdown.points, *countdown.witnesses]
            if could_wrap(sights, MILLISECOND_RATE):
                return
        self._counts_down.add(unit)
        first, last = countdown.points[0], countdown.points[-1]
        fall, took_s = first.value - last.value, last.latest - first.latest
        self._exclude(
            [other for other in UNITS if other != unit],
            f"rows {first.row} to {last.row} count down by {fall} in {took_s:.3g} s",
        )


def _counts_down(unit: UnitName) -> bool:
    return unit in SCALES and SCALES[unit].counts_down


def infer_reset_unit(readings: Iterable[Reading], *, stated: ResetUnit | None = None) -> Evidence:
    """Return what readings, in the order they were made, say of the unit of Reset."""
    inference = ResetUnitInference(stated=stated)
    inference.extend(readings)
    return inference.evidence()
