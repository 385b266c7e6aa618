"""The log of readings: appended to from any thread, looked at as a DataFrame at any time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..display import readable
from ..quota.reset_unit import ResetUnitInference
from .columns import ReadingColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from ..quota import Reading
    from ..quota.reset_unit import Evidence, ResetUnit

__all__ = ["ReadingLog", "frame_of"]

# Readings are turned into columns this many at a time: a frame then has little left to do.
_CHUNK = 512


class ReadingLog:
    """Readings in the order they were appended. Any number of threads may use one log.

    Parameters
    ----------
    reset_unit
        What ``X-RateLimit-Reset`` counts, where the user knows; else the log infers it.
    """

    def __init__(
        self, readings: Iterable[Reading] = (), *, reset_unit: ResetUnit | None = None
    ) -> None:
        self._stated = reset_unit
        self._lock = threading.Lock()
        self._start()
        for reading in readings:
            self.append(reading)

    @property
    def reset_unit(self) -> ResetUnit | None:
        """What ``X-RateLimit-Reset`` counts, where the user stated it."""
        return self._stated

    def _start(self) -> None:
        self._readings: list[Reading] = []
        self._new = 0
        self._columns = ReadingColumns()
        self._inference = ResetUnitInference(stated=self._stated)
        self._columns.follow(self._inference.unit)

    def append(self, reading: Reading) -> None:
        """Add a reading, in constant time."""
        with self._lock:
            self._readings.append(reading)
            self._new += 1
            if self._new >= _CHUNK:
                self._catch_up()

    def __len__(self) -> int:
        return len(self._readings)

    def since(self, n: int) -> list[Reading]:
        """Return the readings from the ``n``-th on: what came after the log was ``n`` long."""
        return self._readings[n:]

    def clear(self) -> None:
        """Forget all readings, and what was inferred from them. Frames that were given out stay."""
        with self._lock:
            self._start()

    def evidence(self) -> Evidence:
        """Return what the readings say of the unit of ``X-RateLimit-Reset``, and why."""
        with self._lock:
            self._catch_up()
            return self._inference.evidence()

    def frame(self) -> pd.DataFrame:
        """Return all readings so far, a row each, in the order they were appended.

        The frame is the caller's: it never changes by itself, and changing it changes no other.
        With pandas 3 a call costs the readings that are new since the last one; with pandas 2 it
        also copies the columns.

        Returns
        -------
        DataFrame
            With a `RangeIndex` and these columns:

            ======================= ==================== =======================================
            column                  dtype                holds
            ======================= ==================== =======================================
            at                      datetime64[us, UTC]  when the response came; NaT where a
                                                         cassette does not tell
            method, path, operation string               operation: the path, ids as ``{id}``
            status                  int64                the HTTP status
            limit, remaining, reset Int64                the headers as sent, <NA> if malformed
            reset_at                datetime64[us, UTC]  when the allowance renews; NaT while the
                                                         unit of reset is uncertain
            elapsed_s               float64              seconds from request to response, or NaN
            source                  string               live, recorded or replayed
            cassette                string               its name, or <NA>
            problem                 string               what is wrong with the headers, or <NA>
            ======================= ==================== =======================================

            ``attrs["reset_unit"]`` is the unit of ``reset``, or ``"undetermined"``.
        """
        with self._lock:
            self._catch_up()
            return readable(self._columns.frame())

    def _catch_up(self) -> None:
        """Bring the columns up to the readings."""
        new = self._readings[len(self._columns) :]
        if new:
            self._new = 0
            self._columns.extend(new)
            self._inference.extend(new)
            self._columns.follow(self._inference.unit)


def frame_of(readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None) -> pd.DataFrame:
    """Return readings as a DataFrame, a row each: its columns are those of `ReadingLog.frame`."""
    return ReadingLog(readings, reset_unit=reset_unit).frame()
