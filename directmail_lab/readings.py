"""The log of readings: appended to from any thread, looked at as a DataFrame at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .display import readable
from .interaction import base_path
from .quota import Reading, reading_of
from .redaction import as_shown
from .reset_unit import Evidence, ResetUnit, ResetUnitInference

if TYPE_CHECKING:
    import pandas as pd

    from .cassettes import LoadedCassette
    from .columns import ReadingColumns


# Readings are turned into columns this many at a time: a frame then has little left to do.
_CHUNK = 512


class ReadingLog:
    """Readings in the order they were appended. Any number of threads may use one log.

    Parameters
    ----------
    reset_unit
        What ``X-RateLimit-Reset`` counts, where the user knows; else the log infers it.

    Attributes
    ----------
    inference
        What the readings so far say of that unit: pacing goes by it too.
    """

    def __init__(
        self, readings: Iterable[Reading] = (), *, reset_unit: ResetUnit | None = None
    ) -> None:
        self.reset_unit = reset_unit
        self.inference = ResetUnitInference(stated=reset_unit)
        self._lock = threading.Lock()
        self._readings: list[Reading] = []
        self._columns: ReadingColumns | None = None
        for reading in readings:
            self.append(reading)

    def append(self, reading: Reading) -> None:
        """Add a reading, in constant time."""
        with self._lock:
            self._readings.append(reading)
            self.inference.observe(reading)
            if len(self._readings) % _CHUNK == 0:
                self._filled_columns()

    def __len__(self) -> int:
        return len(self._readings)

    def since(self, n: int) -> list[Reading]:
        """Return the readings from the ``n``-th on: what came after the log was ``n`` long."""
        return self._readings[n:]

    def evidence(self) -> Evidence:
        """Return what the readings say of the unit of ``X-RateLimit-Reset``, and why."""
        with self._lock:
            return self.inference.evidence()

    def frame(self) -> pd.DataFrame:
        """Return all readings so far, a row each, in the order they were appended.

        The frame is the caller's: it never changes by itself, and changing it changes no other. A
        call costs the readings that are new since the last one.

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
            return readable(self._filled_columns().frame())

    def _filled_columns(self) -> ReadingColumns:
        """Return the columns, brought up to the readings; until one needs them, no pandas."""
        if self._columns is None:
            from .columns import ReadingColumns

            self._columns = ReadingColumns()
        self._columns.update(self._readings, self.inference.unit)
        return self._columns


def frame_of(readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None) -> pd.DataFrame:
    """Return readings as a DataFrame, a row each: its columns are those of `ReadingLog.frame`."""
    return ReadingLog(readings, reset_unit=reset_unit).frame()


def read_readings(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return the readings of recorded responses, a row each, without replaying them.

    The columns are those of `ReadingLog.frame`; ``at`` is NaT where the writer kept no time. To
    keep a frame of readings, `DataFrame.to_parquet` it.

    Parameters
    ----------
    path
        A cassette's file; or any number of them, or a folder, whose cassettes are read with a
        progress bar. Each cassette's unit of ``reset`` is inferred from its own readings. Then
        ``cassette`` is its path below the folder, or as it was given, without ``.yaml``, and
        ``attrs["problems"]`` says by that name what is wrong with any.

    Raises
    ------
    CassetteError
        The one file is not there, or is not a cassette. Of many, such a file is left out, and a
        warning names it.
    """
    from .cassettes.reader import is_one_file, read_many

    if is_one_file(path):
        return frame_of(readings_in(path))
    import pandas as pd

    from .columns import ReadingColumns

    logs, problems = read_many(path, lambda loaded, name: ReadingLog(_readings(loaded, name)))
    frames = []
    for unit, run in groupby(logs or [ReadingLog()], key=lambda log: log.inference.unit):
        columns = ReadingColumns()
        columns.update([reading for log in run for reading in log.since(0)], unit)
        frames.append(columns.frame())
    units = {frame.attrs["reset_unit"] for frame in frames}
    together = pd.concat(frames, ignore_index=True)
    together.attrs = {
        "reset_unit": units.pop() if len(units) == 1 else "undetermined",
        "problems": problems,
    }
    return readable(together)


def readings_in(path: str | Path) -> list[Reading]:
    """Return the readings of a cassette file's responses, in its order."""
    from .cassettes import read_cassette

    return _readings(read_cassette(Path(path)), Path(path).stem)


def _readings(loaded: LoadedCassette, name: str) -> list[Reading]:
    prefix = base_path(loaded.base_url or "")
    shown = as_shown(loaded.interactions, foreign=loaded.foreign)
    return [reading_of(each, prefix=prefix, cassette=name) for each in shown]
