"""The windows that readings show: how long one is, and what each operation is allowed in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from .reading import Reading, date_of
from .reset_unit import SCALES, ResetUnit, UnitName, infer_reset_unit

# What counts and clocks may be off between two readings of one renewal, beside the unit's step.
_TOLERANCE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one operation is allowed in a window, as far as its readings tell.

    Attributes
    ----------
    limit
        The last limit that was told, or None; ``limits`` has all of them.
    window_s
        The length of a window; None while the readings leave it open.
    responses
        How many readings this is from.
    """

    operation: str
    limit: int | None
    limits: tuple[int, ...]
    window_s: float | None
    responses: int


def allowances(
    readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None
) -> list[Allowance]:
    """Return the allowance of each operation, in the order they were first seen."""
    kept = list(readings)
    unit = reset_unit or infer_reset_unit(kept).unit
    by_operation: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in kept:
        by_operation[reading.operation].append(reading)
    return [_allowance(name, group, unit) for name, group in by_operation.items()]


def _allowance(operation: str, readings: Sequence[Reading], unit: UnitName) -> Allowance:
    limits = [reading.limit for reading in readings if reading.limit is not None]
    told = [(reading, at) for reading in readings if (at := _renewal(reading, unit)) is not None]
    return Allowance(
        operation=operation,
        limit=limits[-1] if limits else None,
        limits=tuple(dict.fromkeys(limits)),
        window_s=_window_s(told, SCALES[unit].seconds if unit in SCALES else 1.0),
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


def _window_s(told: Sequence[tuple[Reading, float]], step_s: float) -> float | None:
    """Return the window's length where two signs of it agree, or None.

    One sign is the time that was left when the first request of a window was answered, in two
    windows or more; the other the time between two renewals.
    """
    tolerance_s = step_s + _TOLERANCE_S
    left = [at - reading.at for reading, at in told]
    first = [
        at - reading.at
        for reading, at in told
        if reading.limit is not None and reading.remaining == reading.limit - 1
    ]
    if (
        len(first) > 1
        and max(first) - min(first) <= tolerance_s
        and max(left) - max(first) <= tolerance_s
    ):
        return _rounded(min(first), step_s)
    renewals = sorted(at for _, at in told)
    steps = [b - a for a, b in pairwise(renewals) if b - a > tolerance_s]
    if steps and abs(min(steps) - max(left)) <= tolerance_s:
        return _rounded(min(steps), step_s)
    return None


def _rounded(seconds: float, step_s: float) -> float:
    """Return a length without what latency added: whole seconds, where it is close to them."""
    whole = float(round(seconds))
    return whole if abs(seconds - whole) <= max(step_s / 2, _TOLERANCE_S) else round(seconds, 3)
