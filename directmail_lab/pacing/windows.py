"""The windows of an allowance: when they renew, and who used how many of their requests."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..readings.reading import Reading, parse_date
from ..readings.reset_unit import SCALES, ResetUnit, ResetUnitInference, UnitName
from .state import ClockDifference, PaceState, Renewal

if TYPE_CHECKING:
    import pandas as pd

# No window is shorter than a second: if all values are below 1,000, they are not milliseconds.
_LEAST_MILLISECONDS: Final = 1000


class RenewalReader:
    """Turns Reset and Retry-After into a time.

    While the unit of Reset is uncertain, the unit with the shortest wait is assumed. If a refusal
    shows that this was too short, that unit is not assumed again: the operation's state keeps that.
    """

    def __init__(self, inference: ResetUnitInference, *, max_wait_s: float) -> None:
        self._inference = inference
        self._max_wait_s = max_wait_s
        self._service_clock = ClockDifference()

    def read(self, reading: Reading, state: PaceState, ahead_s: float = 0.0) -> Renewal | None:
        """Return when the allowance renews, by a clock that is ``ahead_s`` ahead of ours, or None.

        It is None if the response does not say when.
        """
        at = reading.at + ahead_s
        if reading.served_at is not None:
            # `Date` is rounded down to a second, and was written at most `elapsed_s` ago.
            least_s = reading.served_at - reading.at
            self._service_clock.narrow(least_s, least_s + 1.0 + (reading.elapsed_s or 0.0))
        if reading.status == 429 and state.remaining == 0 and -math.inf < state.renews_at <= at:
            self._learn_from_refusal(reading, state, at)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(at + reading.retry_after_s)
        if reading.reset_text is not None:
            dated = parse_date(reading.reset_text)
            return None if dated is None else Renewal(self._our_time(dated[1]) + ahead_s, 1.0)
        if reading.reset is None or not (reading.reset or state.largest_reset):
            # Reset 0, 0, 0 says nothing. In Reset 2, 1, 0 the zero says that it renews now.
            return None
        # Within a window a time left falls and a point in time stays the same: 60, 59, 59. A larger
        # value belongs to another window.
        is_another = reading.reset > state.last_reset
        state.largest_reset = max(state.largest_reset, reading.reset)
        state.last_reset, state.last_reset_at = reading.reset, at
        unit = self._unit(reading.reset, state)
        if unit is None:
            return None
        scale = SCALES[unit]
        seconds = (reading.reset + state.rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(at + seconds, scale.seconds, reading.elapsed_s or 0.0, is_another)
        return Renewal(self._our_time(seconds) + ahead_s, scale.seconds, is_another=is_another)

    def _learn_from_refusal(self, reading: Reading, state: PaceState, at: float) -> None:
        """Learn from a refusal after a full wait: a wrong unit, or values that are rounded down."""
        assumed = self._unit(state.last_reset, state)
        if reading.reset is None or assumed is None:
            return
        # A refusal alone proves nothing: another program may have used up the new window. These are
        # not milliseconds if the value fell as seconds do: 1800, and 1798 after 1.8 s.
        if assumed == "milliseconds_left" != self._inference.unit:
            fell, took_s = state.last_reset - reading.reset, at - state.last_reset_at
            state.is_in_seconds |= abs(fell - took_s) <= 2 + 0.05 * took_s
        # Reset is rounded down if the renewal it names has passed although the request was refused.
        # If only the unit was wrong, assume that too: waiting a second too long costs less than
        # another refusal.
        scale = SCALES[assumed]
        seconds = reading.reset * scale.seconds
        left_s = seconds if scale.counts_down else self._our_time(seconds) - reading.at
        state.rounds_down |= state.is_in_seconds or left_s <= 0

    def _unit(self, value: int, state: PaceState) -> UnitName | None:
        unit, candidates = self._inference.unit, self._inference.candidates
        if unit in SCALES:
            return unit
        if candidates[:2] == ("seconds_left", "milliseconds_left"):
            is_small = state.largest_reset < _LEAST_MILLISECONDS and value <= self._max_wait_s
            return candidates[0 if state.is_in_seconds or is_small else 1]
        return next((unit for unit in candidates if unit in SCALES), None)

    def _our_time(self, service_time: float) -> float:
        """Return a time of the service's clock by ours, unless the two may agree."""
        difference = self._service_clock
        is_certain = -math.inf < difference.least_s and not (
            difference.least_s <= 0 <= difference.most_s
        )
        return service_time - (difference.least_s if is_certain else 0.0)


class Window(NamedTuple):
    """One window of one operation; a row of `frame_of_windows`. Times are seconds since the epoch.

    ``used_by_sharing`` is the number of requests of other sessions that share the allowance, and
    ``used_by_others`` the least number that anybody else must have sent.
    """

    method: str
    operation: str
    began_at: float
    renews_at: float
    limit: int
    used_here: int
    used_by_sharing: int
    used_by_others: int


class WindowLog:
    """The windows that one session saw, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str, float], Window] = {}

    def note(self, reading: Reading, state: PaceState, ahead_s: float = 0.0) -> None:
        """Record the state after a response to this session.

        The state's times are by a clock that is ``ahead_s`` seconds ahead of ours.
        """
        method, operation, limit = reading.method, reading.operation, state.limit
        if not state.window_s or limit is None:
            return
        key = method, operation, state.began_at
        before = self._windows.get(key)
        used = (reading.status != 429) + (before.used_here if before else 0)
        self._windows[key] = Window(
            method, operation, state.began_at - ahead_s, state.renews_at - ahead_s, limit,
            used, max(0, state.used - used), state.used_by_others,
        )  # fmt: skip

    def windows(self) -> list[Window]:
        """Return the windows so far, in the order in which they were first seen."""
        return list(self._windows.values())

    def used_by_others(self, reading: Reading) -> int:
        """Return how much of a reading's window others have used, as known so far."""
        for window in reversed(self.windows()):
            if (window.method, window.operation) == (reading.method, reading.operation):
                return window.used_by_others if reading.at < window.renews_at else 0
        return 0


def windows_in(readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None) -> list[Window]:
    """Return the windows in readings that one program made, in the order they were made."""
    inference, log = ResetUnitInference(stated=reset_unit), WindowLog()
    reader = RenewalReader(inference, max_wait_s=math.inf)
    states: defaultdict[tuple[str, str], PaceState] = defaultdict(PaceState)
    for reading in readings:
        inference.observe(reading)
        if not math.isnan(reading.at):
            state = states[reading.method, reading.operation]
            state.take(reading, reader.read(reading, state), reading.at)
            log.note(reading, state)
    return log.windows()


def frame_of_windows(windows: Sequence[Window]) -> pd.DataFrame:
    """Return windows as a DataFrame, a row each.

    Returns
    -------
    DataFrame
        ``method`` and ``operation`` (string), ``began_at`` and ``renews_at`` (datetime64[us, UTC]),
        and as Int64 ``limit``, ``used_here``, ``used_by_sharing`` (other sessions with the same
        key) and ``used_by_others`` (the least number of requests of anybody else). A window whose
        renewal is not known has no row.
    """
    import pandas as pd

    dtypes = dict.fromkeys(Window._fields, "Int64") | {"method": "string", "operation": "string"}
    frame = pd.DataFrame(windows, columns=list(Window._fields))
    for name in ("began_at", "renews_at"):
        seconds = frame[name].astype("float64")
        frame[name] = pd.to_datetime(seconds, unit="s", utc=True).dt.as_unit("us")
        del dtypes[name]
    return frame.astype(dtypes)
