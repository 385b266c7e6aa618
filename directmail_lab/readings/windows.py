"""The windows that readings show: how long one is, and what each operation is allowed in it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pandas as pd

from directmail_lab.quota.reading import date_of
from directmail_lab.quota.reset_unit import SCALES, infer_reset_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from directmail_lab.quota.reading import Reading
    from directmail_lab.quota.reset_unit import ResetUnit, UnitName

__all__ = ["OperationAllowance", "allowances", "frame_of_allowances"]

# What counts and clocks may be off between two readings of one renewal, beside the unit's grain.
_SLACK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class OperationAllowance:
    """What one operation is allowed, as far as its readings tell.

    Attributes
    ----------
    limit
        The last limit that was told, or None; ``limits`` has all of them.
    window_s
        The length of a window; None while the readings leave it open.
    window_starts_at, renews_at
        The last window seen, in seconds since the Unix epoch; None where that is not known.
    responses
        How many readings this is from.
    """

    operation: str
    limit: int | None
    limits: tuple[int, ...]
    window_s: float | None
    window_starts_at: float | None
    renews_at: float | None
    responses: int


def allowances(
    readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None
) -> list[OperationAllowance]:
    """Return the allowance of each operation, in the order they were first seen."""
    kept = list(readings)
    unit = reset_unit or infer_reset_unit(kept).unit
    by_operation: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in kept:
        by_operation[reading.operation].append(reading)
    return [_allowance(name, group, unit) for name, group in by_operation.items()]


def frame_of_allowances(found: Iterable[OperationAllowance]) -> pd.DataFrame:
    """Return allowances as a DataFrame, a row for each operation.

    Columns: ``operation`` (string), ``limit`` (Int64), ``window_s`` (Float64),
    ``window_starts_at`` and ``renews_at`` (datetime64[us, UTC]), ``responses`` (int64).
    """
    rows = list(found)
    times = {
        name: pd.to_datetime([getattr(row, name) for row in rows], unit="s", utc=True)
        for name in ("window_starts_at", "renews_at")
    }
    return pd.DataFrame(
        {
            "operation": pd.array([row.operation for row in rows], dtype="string"),
            "limit": pd.array([row.limit for row in rows], dtype="Int64"),
            "window_s": pd.array([row.window_s for row in rows], dtype="Float64"),
            **{name: values.astype("datetime64[us, UTC]") for name, values in times.items()},
            "responses": pd.array([row.responses for row in rows], dtype="int64"),
        }
    )


def _allowance(operation: str, readings: Sequence[Reading], unit: UnitName) -> OperationAllowance:
    limits = [reading.limit for reading in readings if reading.limit is not None]
    told = [(reading, at) for reading in readings if (at := _renewal(reading, unit)) is not None]
    window_s = _window_s(told, SCALES[unit].seconds if unit in SCALES else 1.0)
    renews_at = max((at for _, at in told), default=None)
    known = window_s is not None and renews_at is not None
    return OperationAllowance(
        operation=operation,
        limit=limits[-1] if limits else None,
        limits=tuple(dict.fromkeys(limits)),
        window_s=window_s,
        window_starts_at=renews_at - window_s if known else None,  # type: ignore[operator]
        renews_at=renews_at,
        responses=len(readings),
    )


def _renewal(reading: Reading, unit: UnitName) -> float | None:
    if reading.reset_text is not None:
        dated = date_of(reading.reset_text)
        return None if dated is None else dated[1]
    scale = SCALES.get(unit)
    if scale is None or reading.reset is None:
        return None
    return reading.reset * scale.seconds + (reading.at if scale.counts_down else 0.0)


def _window_s(told: Sequence[tuple[Reading, float]], grain_s: float) -> float | None:
    """Return the window's length where two signs of it agree, or None.

    One sign is the time that was left when the first request of a window was answered, in two
    windows or more; the other the time between two renewals.
    """
    slack = grain_s + _SLACK_S
    left = [at - reading.at for reading, at in told]
    fresh = [
        at - reading.at
        for reading, at in told
        if reading.limit is not None and reading.remaining == reading.limit - 1
    ]
    if len(fresh) > 1 and max(fresh) - min(fresh) <= slack and max(left) - max(fresh) <= slack:
        return _rounded(min(fresh), grain_s)
    renewals = sorted(at for _, at in told)
    steps = [b - a for a, b in pairwise(renewals) if b - a > slack]
    if steps and abs(min(steps) - max(left)) <= slack:
        return _rounded(min(steps), grain_s)
    return None


def _rounded(seconds: float, grain_s: float) -> float:
    """Return a length without what latency added: whole seconds, where it is close to them."""
    whole = float(round(seconds))
    return whole if abs(seconds - whole) <= max(grain_s / 2, _SLACK_S) else round(seconds, 3)
