"""Readings as a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..exchange.operations import operations_of
from .reading import LAST_S, Reading, parse_counts, problem_of
from .reset_unit import UnitName, renewal_time

_NAT = int(np.iinfo(np.int64).min)
_DTYPES: dict[str, Any] = {
    "at": "float64",
    "method": "string",
    "path": "string",
    "operation": "string",
    "status": "int64",
    "limit": "Int64",
    "remaining": "Int64",
    "reset": "Int64",
    "reset_at": "float64",
    "elapsed_s": "float64",
    "source": "string",
    "cassette": "string",
    "cassette_number": "Int64",
    "problem": "string",
}


def frame_of(
    readings: Iterable[Reading],
    *,
    unit: UnitName = "undetermined",
    units: Sequence[UnitName] = (),
    paths: Collection[str] = (),
) -> pd.DataFrame:
    """Return readings as a DataFrame, one row each.

    Parameters
    ----------
    unit
        The unit of their ``reset``.
    units
        Instead, that of each reading.
    paths
        The caller's templates; see `directmail_lab.exchange.operations.operations_of`.

    Returns
    -------
    DataFrame
        `directmail_lab.rate_limits` lists its columns. Its index ``number`` is the number of the
        interaction in the recording, from 1.
        ``attrs["reset_unit"]`` is the unit of ``reset``, or ``"undetermined"``.
    """
    known = list(readings)
    operations = operations_of({each.path for each in known}, paths)
    units = units or [unit] * len(known)
    rows = [
        _row(each, operations[each.path], unit) for each, unit in zip(known, units, strict=True)
    ]
    # Not a RangeIndex: Dask cannot read one that has a name from Parquet.
    index = pd.Index(np.arange(1, len(rows) + 1), name="number")
    frame = pd.DataFrame(rows, index, list(_DTYPES), dtype=object).astype(_DTYPES)
    for name in ("at", "reset_at"):
        frame[name] = _times(frame[name])
    kinds = {*units} or {unit}
    frame.attrs["reset_unit"] = kinds.pop() if len(kinds) == 1 else "undetermined"
    return frame


def _row(reading: Reading, operation: str, unit: UnitName) -> tuple[object, ...]:
    counts = parse_counts(reading.raw[:3])
    return (
        reading.at,
        reading.method,
        reading.path,
        f"{reading.elsewhere}{operation}",
        reading.status,
        counts.limit,
        counts.remaining,
        counts.reset,
        None if reading.elsewhere else renewal_time(reading, unit),
        reading.elapsed_s,
        reading.source,
        reading.cassette,
        reading.cassette_number,
        problem_of(reading, counts.problem),
    )


def _times(seconds: pd.Series[float]) -> Any:
    """Return times; NaT for what is before 1970, or no date that Python has."""
    values = seconds.to_numpy()
    is_time = (values >= 0) & (values <= LAST_S)
    # Rounded as `datetime.fromtimestamp` does for an interaction.
    fractions, wholes = np.modf(values[is_time])
    rest = np.rint(fractions * 1e6).astype(np.int64)
    microseconds = np.full(len(values), _NAT, dtype=np.int64)
    microseconds[is_time] = wholes.astype(np.int64) * 1_000_000 + rest
    return pd.array(microseconds, dtype="datetime64[us, UTC]")
