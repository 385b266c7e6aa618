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


def frame_of(
    readings: Iterable[Reading],
    *,
    unit: UnitName,
    paths: Collection[str] = (),
) -> pd.DataFrame:
    """Return readings as a DataFrame, one row each.

    Parameters
    ----------
    unit
        The unit of their ``reset``.
    paths
        The caller's templates; see `directmail_lab.exchange.operations.operations_of`.

    Returns
    -------
    DataFrame
        `directmail_lab.rate_limits` lists its columns. Its index ``number`` is the number of the
        interaction in the recording, from 1.
        ``attrs["reset_unit"]`` is the unit of ``reset``, or ``"undetermined"``.
    """
    rows = list(readings)
    operations = operations_of({row.path for row in rows}, paths)
    sent = {row.raw[:3] for row in rows}
    parsed = {texts: parse_counts(texts) for texts in sent}
    counts = [parsed[row.raw[:3]] for row in rows]
    problems = [problem_of(row, each.problem) for row, each in zip(rows, counts, strict=True)]
    columns: dict[str, Any] = {
        "at": _times([row.at for row in rows]),
        "method": _texts([row.method for row in rows]),
        "path": _texts([row.path for row in rows]),
        "operation": _texts([f"{row.elsewhere}{operations[row.path]}" for row in rows]),
        "status": np.array([row.status for row in rows], dtype=np.int64),
        "limit": _counts([each.limit for each in counts]),
        "remaining": _counts([each.remaining for each in counts]),
        "reset": _counts([each.reset for each in counts]),
        "reset_at": _times([None if row.elsewhere else renewal_time(row, unit) for row in rows]),
        "elapsed_s": np.array([row.elapsed_s for row in rows], dtype=np.float64),
        "source": _texts([row.source for row in rows]),
        "cassette": _texts([row.cassette for row in rows]),
        "cassette_number": _counts([row.cassette_number for row in rows]),
        "problem": _texts(problems),
    }
    # Not a RangeIndex: Dask cannot read one that has a name from Parquet.
    frame = pd.DataFrame(columns, index=pd.Index(np.arange(1, len(rows) + 1), name="number"))
    frame.attrs["reset_unit"] = unit
    return frame


def _times(seconds: Sequence[float | None]) -> Any:
    values = np.array(seconds, dtype=np.float64)
    is_time = (values >= 0) & (values <= LAST_S)
    # Rounded as `datetime.fromtimestamp` does for an interaction.
    fractions, wholes = np.modf(values[is_time])
    rest = np.rint(fractions * 1e6).astype(np.int64)
    microseconds = np.full(len(values), _NAT, dtype=np.int64)
    microseconds[is_time] = wholes.astype(np.int64) * 1_000_000 + rest
    return pd.array(microseconds, dtype="datetime64[us, UTC]")


def _texts(texts: Sequence[str | None]) -> Any:
    return pd.array(texts, dtype="string")


def _counts(counts: Sequence[int | None]) -> Any:
    return pd.array(counts, dtype="Int64")
