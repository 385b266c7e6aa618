"""Readings as columns that grow in place, so that a frame of them is a view and not a build."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from ..quota import date_of
from ..quota.reset_unit import SCALES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..quota import Reading
    from ..quota.reset_unit import UnitName

__all__ = ["COLUMNS", "ReadingColumns"]

_DTYPES: Final = {
    "at": "int64",
    "method": "object",
    "path": "object",
    "operation": "object",
    "status": "int64",
    "limit": "int64",
    "remaining": "int64",
    "reset": "int64",
    "reset_at": "int64",
    "elapsed_s": "float64",
    "source": "object",
    "cassette": "object",
    "problem": "object",
}
"""What each column is kept as: times in microseconds, and counts beside a mask."""

COLUMNS: Final = tuple(_DTYPES)

_TEXTS: Final = tuple(name for name, dtype in _DTYPES.items() if dtype == "object")
_COUNTS: Final = ("limit", "remaining", "reset")
_TIMES: Final = ("at", "reset_at")

_FIELDS: Final = tuple(name for name in COLUMNS if name != "reset_at")
_values_of = attrgetter(*_FIELDS)

_NAT: Final = np.iinfo(np.int64).min
_NOT_KNOWN: Final = np.array([_NAT])
# A datetime ends with the year 9999. A reset beyond that, or before 1970, is no time.
_LAST_S: Final = 253_402_300_799

_FIRST_CAPACITY: Final = 64

# pandas 3 copies on write, always; before that a view would let its holder change the columns.
_VIEWS_ARE_SAFE: Final = int(pd.__version__.split(".")[0]) >= 3


class ReadingColumns:
    """The columns of `ReadingLog.frame`, in arrays that double when full.

    Rows that were given out are never written again: what is added lies beyond them, and
    ``reset_at``, which a newly known unit changes in old rows too, then moves to an array of its
    own. Not thread-safe: its log holds a lock.
    """

    def __init__(self) -> None:
        self._length = 0
        self._unit: UnitName = "undetermined"
        self._dates: dict[int, float] = {}
        self._values: dict[str, NDArray[Any]] = {}
        self._masks: dict[str, NDArray[np.bool_]] = {}
        # A frame of all rows, those to come included; made when one is asked for.
        self._whole: pd.DataFrame | None = None
        self._allocate(_FIRST_CAPACITY)

    def __len__(self) -> int:
        return self._length

    def extend(self, readings: Sequence[Reading]) -> None:
        """Add a row for each of the readings, of which there is at least one."""
        end = self._length + len(readings)
        if end > self._capacity:
            self._allocate(max(end, 2 * self._capacity))
        if len(readings) == 1:
            self._put(readings[0])
            return
        rows = slice(self._length, end)
        columns = dict(zip(_FIELDS, zip(*map(_values_of, readings), strict=True), strict=True))
        for name in _TEXTS:
            self._values[name][rows] = _texts(columns[name])
        for name in _COUNTS:
            self._values[name][rows], self._masks[name][rows] = _counts(columns[name])
        self._values["status"][rows] = columns["status"]
        self._values["elapsed_s"][rows] = columns["elapsed_s"]
        self._values["at"][rows] = _microseconds(np.array(columns["at"], dtype=np.float64))
        self._keep_dates(readings)
        self._length = end
        self._values["reset_at"][rows] = self._reset_at(rows)

    def _put(self, reading: Reading) -> None:
        """Add one row: for one, numpy's ways of doing many at once cost more than they save."""
        row, values = self._length, self._values
        for name in _TEXTS:
            text = getattr(reading, name)
            values[name][row] = pd.NA if text is None else text
        for name in _COUNTS:
            count = getattr(reading, name)
            values[name][row], self._masks[name][row] = count or 0, count is None
        values["status"][row] = reading.status
        values["elapsed_s"][row] = reading.elapsed_s
        values["at"][row] = round(reading.at * 1e6) if 0 <= reading.at <= _LAST_S else _NAT
        self._keep_dates((reading,))
        self._length += 1
        values["reset_at"][row : row + 1] = self._reset_at(slice(row, row + 1))

    def follow(self, unit: UnitName) -> None:
        """Let ``reset_at`` follow the unit of reset, in the rows that are there too."""
        if unit == self._unit:
            return
        self._unit = unit
        self._values["reset_at"] = np.full(self._capacity, _NAT)
        rows = slice(0, self._length)
        self._values["reset_at"][rows] = self._reset_at(rows)
        self._whole = None

    def frame(self) -> pd.DataFrame:
        """Return the rows so far."""
        if self._whole is None or not _VIEWS_ARE_SAFE:
            self._whole = self._assemble()
        whole = self._whole if _VIEWS_ARE_SAFE else self._whole.copy()
        frame: pd.DataFrame = whole.iloc[: self._length]
        frame.attrs["reset_unit"] = self._unit
        return frame

    def _keep_dates(self, readings: Sequence[Reading]) -> None:
        """Keep what a reset that was sent as a date says: that needs no unit."""
        for row, reading in enumerate(readings, self._length):
            dated = None if reading.reset_text is None else date_of(reading.reset_text)
            if dated is not None:
                self._dates[row] = dated[1]

    def _reset_at(self, rows: slice) -> NDArray[np.int64]:
        """Return when the allowance renews, in microseconds since the Unix epoch."""
        scale = SCALES.get(self._unit)
        if scale is None and not self._dates:
            return _NOT_KNOWN
        at = np.full(rows.stop - rows.start, np.nan)
        if scale is not None:
            at = self._values["reset"][rows] * scale.seconds
            if scale.counts_down:
                sent = self._values["at"][rows]
                at += np.where(sent == _NAT, np.nan, sent / 1e6)
            at[self._masks["reset"][rows]] = np.nan
        if self._dates:
            for row in self._dates.keys() & set(range(rows.start, rows.stop)):
                at[row - rows.start] = self._dates[row]
        return _microseconds(at)

    def _allocate(self, capacity: int) -> None:
        """Move to larger arrays. Frames that were given out keep the ones they show."""
        before, masks, rows = self._values, self._masks, slice(0, self._length)
        self._capacity = capacity
        fills = {"int64": 0, "float64": np.nan, "object": pd.NA}
        self._values = {
            name: np.full(capacity, fills[dtype], dtype=dtype) for name, dtype in _DTYPES.items()
        }
        self._masks = {name: np.zeros(capacity, dtype=np.bool_) for name in _COUNTS}
        if before:
            for new, old in ((self._values, before), (self._masks, masks)):
                for name, values in new.items():
                    values[rows] = old[name][rows]
        self._whole = None

    def _assemble(self) -> pd.DataFrame:
        """Return a frame of the arrays as they are, with the rows that are still to come."""
        columns: dict[str, Any] = dict(self._values)
        for name in _TEXTS:
            columns[name] = pd.arrays.StringArray(columns[name], copy=False)
        for name in _COUNTS:
            columns[name] = pd.arrays.IntegerArray(columns[name], self._masks[name], copy=False)
        for name in _TIMES:
            columns[name] = pd.array(columns[name], dtype="datetime64[us, UTC]", copy=False)
        return pd.DataFrame(columns, copy=False)


def _texts(texts: Sequence[str | None]) -> Sequence[Any]:
    return [pd.NA if text is None else text for text in texts] if None in texts else texts


def _counts(counts: Sequence[int | None]) -> tuple[Sequence[int], Any]:
    """Return integers, and which of them are missing."""
    if None not in counts:
        return counts, False  # type: ignore[return-value]
    return [count or 0 for count in counts], [count is None for count in counts]


def _microseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return times in microseconds, NaT for what is no time."""
    sound = (seconds >= 0) & (seconds <= _LAST_S)
    return np.where(sound, np.rint(np.where(sound, seconds, 0) * 1e6).astype(np.int64), _NAT)
