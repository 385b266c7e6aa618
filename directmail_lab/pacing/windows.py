"""How many requests of each window were used, and by whom, as far as the headers show it."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from ..quota import Reading
from ..reset_unit import ResetUnit, ResetUnitInference
from .renewals import RenewalReader
from .state import PaceState

if TYPE_CHECKING:
    import pandas as pd

_WINDOWS_AT_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Window:
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
        self._seen = OrderedDict[tuple[str, str, float], tuple[float, float, int, int, int, int]]()

    def note(self, reading: Reading, state: PaceState, ahead_s: float = 0.0) -> None:
        """Record the state after an answer to this session.

        The state's times are by a clock that is ``ahead_s`` seconds ahead of ours.
        """
        began_at, renews_at, limit = state.window_at, state.renews_at - ahead_s, state.limit
        if began_at is None or limit is None or not math.isfinite(renews_at):
            return
        key = reading.method, reading.operation, began_at
        before = self._seen.get(key)
        here = (reading.status != 429) + (before[3] if before else 0)
        by_sharing = max(0, state.spent - here)
        self._seen[key] = began_at - ahead_s, renews_at, limit, here, by_sharing, state.others
        if len(self._seen) > _WINDOWS_AT_MOST:
            self._seen.popitem(last=False)

    def windows(self) -> list[Window]:
        """Return the windows so far, in the order in which they were first seen."""
        return [Window(key[0], key[1], *seen) for key, seen in self._seen.copy().items()]

    def used_by_others(self, reading: Reading) -> int:
        """Return how much of a reading's window others have used, as known so far."""
        for window in reversed(self.windows()):
            if (window.method, window.operation) == (reading.method, reading.operation):
                return window.used_by_others if reading.at < window.renews_at else 0
        return 0


def windows_in(readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None) -> list[Window]:
    """Return the windows in readings that one program made, one request after the other."""
    inference, log = ResetUnitInference(stated=reset_unit), WindowLog()
    reader = RenewalReader(inference, max_wait_s=math.inf)
    states: defaultdict[tuple[str, str], PaceState] = defaultdict(PaceState)
    for reading in readings:
        inference.observe(reading)
        if not math.isnan(reading.at):
            state = states[reading.method, reading.operation]
            state.take(reading, state.answers, reader.read(reading, state), reading.at)
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

    columns = {
        field.name: [getattr(window, field.name) for window in windows] for field in fields(Window)
    }
    kinds = {"str": "string", "int": "Int64", "float": "float64"}
    frame = pd.DataFrame(columns).astype(
        {each.name: kinds[str(each.type)] for each in fields(Window)}
    )
    for name in ("began_at", "renews_at"):
        frame[name] = pd.to_datetime(frame[name], unit="s", utc=True).dt.as_unit("us")
    return frame
