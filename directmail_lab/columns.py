"""Readings as columns that grow in place: a DataFrame of them is a view and copies nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from .reset_unit import UnitName, renewal_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .quota import Reading


_TEXT, _COUNT, _TIME = "object", "Int64", "M8[us]"

_KINDS: Final = {
    "at": _TIME,
    "method": _TEXT,
    "path": _TEXT,
    "operation": _TEXT,
    "status": "int64",
    "limit": _COUNT,
    "remaining": _COUNT,
    "reset": _COUNT,
    "reset_at": _TIME,
    "elapsed_s": "float64",
    "source": _TEXT,
    "cassette": _TEXT,
    "problem": _TEXT,
}

_NAT: Final = int(np.iinfo(np.int64).min)
# 9999-12-31 23:59:59, the last second of a datetime. A reset after it, or before 1970, is NaT.
_LAST_S: Final = 253_402_300_799

_FIRST_CAPACITY: Final = 64


class ReadingColumns:
    """The columns of `ReadingLog.frame`, in arrays that double when full.

    Rows of a frame that `frame` returned are never written again. New rows are written after them.
    When the unit becomes known, ``reset_at`` changes in old rows too, so it gets a new array. Not
    thread-safe: the `ReadingLog` that owns it holds a lock.
    """

    def __init__(self) -> None:
        self._length = 0
        self._unit: UnitName = "undetermined"
        self._arrays = {name: _empty(kind, _FIRST_CAPACITY) for name, kind in _KINDS.items()}
        # Masks of the integer columns: True where the value is missing.
        self._missing = {
            name: np.ones(_FIRST_CAPACITY, dtype=np.bool_)
            for name, kind in _KINDS.items()
            if kind == _COUNT
        }
        # A frame of the whole arrays, with the rows that are not filled yet; made on demand.
        self._whole: pd.DataFrame | None = None

    def __len__(self) -> int:
        return self._length

    def update(self, readings: Sequence[Reading], unit: UnitName) -> None:
        """Add a row for each new reading; if the unit changed, write ``reset_at`` of all rows."""
        begins, self._length = self._length, len(readings)
        capacity = len(self._arrays["at"])
        if self._length > capacity:
            # concatenate() copies, so frames that were returned before keep the old arrays.
            more = max(self._length, 2 * capacity) - capacity
            for name, kind in _KINDS.items():
                self._arrays[name] = np.concatenate([self._arrays[name], _empty(kind, more)])
            for name, missing in self._missing.items():
                self._missing[name] = np.concatenate([missing, np.ones(more, dtype=np.bool_)])
            self._whole = None
        if unit != self._unit:
            self._unit, self._whole = unit, None
            self._arrays["reset_at"] = _empty(_TIME, len(self._arrays["at"]))
            self._write("reset_at", 0, readings[:begins])
        for name in _KINDS:
            self._write(name, begins, readings[begins:])

    def _write(self, name: str, begins: int, readings: Sequence[Reading]) -> None:
        """Write these readings' values of one column; ``begins`` is the first row."""
        rows, kind = slice(begins, begins + len(readings)), _KINDS[name]
        values: list[Any]
        if name == "reset_at":
            values = [renewal_of(each, self._unit) for each in readings]
        else:
            values = [getattr(each, name) for each in readings]
        if kind == _COUNT:
            self._missing[name][rows] = [value is None for value in values]
            values = [value or 0 for value in values]
        elif kind == _TIME:
            values = [_microseconds(value) for value in values]
        elif kind == _TEXT:
            values = [pd.NA if value is None else value for value in values]
        self._arrays[name][rows] = values

    def frame(self) -> pd.DataFrame:
        """Return the rows so far."""
        if self._whole is None:
            self._whole = self._assemble()
        frame: pd.DataFrame = self._whole.iloc[: self._length]
        frame.attrs["reset_unit"] = self._unit
        return frame

    def _assemble(self) -> pd.DataFrame:
        """Return a frame of the whole arrays, with the rows that are not filled yet."""
        columns: dict[str, Any] = dict(self._arrays)
        for name, kind in _KINDS.items():
            values = self._arrays[name]
            if kind == _TEXT:
                columns[name] = pd.arrays.StringArray(values, copy=False)
            elif kind == _COUNT:
                columns[name] = pd.arrays.IntegerArray(values, self._missing[name], copy=False)
            elif kind == _TIME:
                columns[name] = pd.array(values, dtype="datetime64[us, UTC]", copy=False)
        return pd.DataFrame(columns, copy=False)


def _empty(kind: str, length: int) -> NDArray[Any]:
    if kind == _TEXT:
        return np.full(length, pd.NA, dtype=object)
    return np.zeros(length, dtype=np.float64 if kind == "float64" else np.int64)


def _microseconds(seconds: float | None) -> int:
    """Return a time in microseconds, or NaT where it is missing or out of range."""
    return round(seconds * 1e6) if seconds is not None and 0 <= seconds <= _LAST_S else _NAT
