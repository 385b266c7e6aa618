"""A table of readings that grows in place: a DataFrame of it is a view and copies nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from .reset_unit import UnitName, renewal_time

if TYPE_CHECKING:
    from .reading import Reading


_TEXTS: Final = ("method", "path", "operation", "source", "cassette", "problem")
_COUNTS: Final = ("limit", "remaining", "reset")
_TIMES: Final = ("at", "reset_at")
_COLUMNS: Final = (
    "at", "method", "path", "operation", "status", *_COUNTS, "reset_at", "elapsed_s", "source",
    "cassette", "problem",
)  # fmt: skip
_ROW: Final = np.dtype(
    [(name, object) for name in _TEXTS]
    + [(name, np.int64) for name in (*_COUNTS, *_TIMES, "status")]
    + [(f"{name}_is_missing", np.bool_) for name in _COUNTS]
    + [("elapsed_s", np.float64)]
)
# 9999-12-31 23:59:59, the last second of a datetime. A reset after it, or before 1970, is NaT.
_LAST_S: Final = 253_402_300_799
_NAT: Final = int(np.iinfo(np.int64).min)
_FIRST_CAPACITY: Final = 64


class ReadingTable:
    """The rows of `ReadingLog.frame`, in an array that doubles when it is full.

    Rows are never written twice, so a later row does not change the frames made before. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._length = 0
        self._rows = _empty_rows(_FIRST_CAPACITY)
        self._whole = _as_frame(self._rows)

    def __len__(self) -> int:
        return self._length

    def extend(self, readings: Sequence[Reading], unit: UnitName) -> None:
        """Add a row for each reading; ``unit`` is the unit of their ``reset``."""
        begin, self._length = self._length, self._length + len(readings)
        if self._length > len(self._rows):
            self._rows = np.concatenate([self._rows, _empty_rows(self._length)])
            self._whole = _as_frame(self._rows)
        self._rows[begin : self._length] = [_as_row(reading, unit) for reading in readings]

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame of the rows so far."""
        return self._whole.iloc[: self._length]


def _empty_rows(count: int) -> np.ndarray[Any, Any]:
    rows = np.zeros(count, dtype=_ROW)
    for name in _TEXTS:
        rows[name] = pd.NA
    return rows


def _as_row(reading: Reading, unit: UnitName) -> tuple[Any, ...]:
    limit, remaining, reset = reading.limit, reading.remaining, reading.reset
    return (
        reading.method, reading.path, reading.operation, reading.source,
        pd.NA if reading.cassette is None else reading.cassette,
        pd.NA if reading.problem is None else reading.problem,
        limit or 0, remaining or 0, reset or 0,
        _microseconds(reading.at), _microseconds(renewal_time(reading, unit)), reading.status,
        limit is None, remaining is None, reset is None,
        math.nan if reading.elapsed_s is None else reading.elapsed_s,
    )  # fmt: skip


def _microseconds(seconds: float | None) -> int:
    return round(seconds * 1e6) if seconds is not None and 0 <= seconds <= _LAST_S else _NAT


def _as_frame(rows: np.ndarray[Any, Any]) -> pd.DataFrame:
    """Return a DataFrame whose columns are views of the rows."""
    columns: dict[str, Any] = {name: rows[name] for name in _COLUMNS}
    for name in _TEXTS:
        columns[name] = pd.arrays.StringArray(rows[name], copy=False)
    for name in _COUNTS:
        columns[name] = pd.arrays.IntegerArray(rows[name], rows[f"{name}_is_missing"], copy=False)
    for name in _TIMES:
        columns[name] = pd.array(rows[name], dtype="datetime64[us, UTC]", copy=False)
    return pd.DataFrame(columns, copy=False)
