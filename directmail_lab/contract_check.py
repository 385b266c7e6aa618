"""Checks whether the service follows the three rules for rate limits in service.md part 8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import pandas as pd

from .contract import HEADERS, TYPICAL_LIMIT, TYPICAL_WINDOW_S
from .display import plural, readable
from .quota import REMAINING_OVER_LIMIT, Reading
from .reset_unit import SCALES, ResetUnit, UnitName, infer_reset_unit, renewal_time

Verdict = Literal["holds", "violated", "not observed"]

_STATEMENTS: Final = {
    1: f"Every response has {', '.join(HEADERS)}, each an integer",
    2: f"{HEADERS[1]} is not larger than {HEADERS[0]}",
    3: f"A majority of operations allow at most {TYPICAL_LIMIT} requests a minute",
}
_DTYPES: Final[dict[str, Any]] = {
    "rule": "int64", "statement": "string", "operation": "string", "verdict": "string",
    "responses": "int64", "violations": "int64", "rows": "object", "detail": "string",
}  # fmt: skip
# How far two readings may disagree about one renewal, in addition to one step of the unit.
_TOLERANCE_S: Final = 0.25

_Group = list[tuple[int, Reading]]
"""The readings of one operation, each with its row."""


def check_contract(
    readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None
) -> pd.DataFrame:
    """Return a verdict on each rule of service.md part 8, by operation.

    Returns
    -------
    DataFrame
        For rules 1 and 2 a row for each operation seen, or one that says "not observed"; for rule
        3, which is about a majority of operations, one row, its ``operation`` <NA>. Columns:

        ========== ======= ===================================================================
        rule       int64   its number in service.md part 8
        statement  string  the rule in words
        operation  string  the path, with segments that look like ids as ``{id}``
        verdict    string  holds, violated or not observed
        responses  int64   how many responses were checked
        violations int64   how many of them violate the rule
        rows       object  which ones: a tuple of positions, from 0, in ``readings``
        detail     string  what was seen, in words
        ========== ======= ===================================================================

        ``attrs["notes"]`` has sentences about the readings as a whole, such as a clock set back.
    """
    kept = list(readings)
    unit = reset_unit or infer_reset_unit(kept).unit
    groups: defaultdict[str | None, _Group] = defaultdict(list)
    for row, reading in enumerate(kept):
        groups[reading.operation].append((row, reading))
    named: Mapping[str | None, _Group] = groups or {None: []}
    judged = [_headers_present(operation, group) for operation, group in named.items()]
    judged += [_remaining_within(operation, group) for operation, group in named.items()]
    judged.append(_majority_within(groups, unit))
    frame = pd.DataFrame(judged, columns=list(_DTYPES)).astype(_DTYPES)
    frame.attrs["notes"] = _notes(kept, groups)
    hidden = () if frame["violations"].any() else ("rows",)
    return readable(frame, once=("rule", "statement"), hidden=hidden)


_Row = tuple[int, str, str | None, Verdict, int, int, tuple[int, ...], str]


def _judgement(
    rule: int,
    operation: str | None,
    responses: int,
    wrong: Sequence[int],
    detail: str,
    *,
    violated: bool = False,
) -> _Row:
    verdict: Verdict = "violated" if wrong or violated else "holds"
    if not responses:
        verdict, detail = "not observed", "no response says"
    told = operation, verdict, responses, len(wrong), tuple(wrong), detail
    return rule, _STATEMENTS[rule], *told


def _headers_present(operation: str | None, group: _Group) -> _Row:
    wrong = [row for row, each in group if None in (each.limit, each.remaining, each.reset)]
    told = {each for _, reading in group for each in (reading.problem or "").split("; ")}
    # A remaining that is larger than the limit violates rule 2, and not this one.
    problems = sorted(told - {"", REMAINING_OVER_LIMIT})
    have = f"all three in {len(group) - len(wrong)} of {len(group)}"
    return _judgement(1, operation, len(group), wrong, "; ".join([have, *problems]))


def _remaining_within(operation: str | None, group: _Group) -> _Row:
    told = [
        (row, reading.remaining > reading.limit)
        for row, reading in group
        if reading.remaining is not None and reading.limit is not None
    ]
    wrong = [row for row, is_larger in told if is_larger]
    return _judgement(2, operation, len(told), wrong, f"larger in {len(wrong)} of {len(told)}")


def _majority_within(groups: Mapping[str | None, _Group], unit: UnitName) -> _Row:
    known = {name: group for name, group in groups.items() if _limits(group)}
    windows = {name: _window_s([each for _, each in known[name]], unit) for name in known}
    above = [
        str(name)
        for name, group in known.items()
        if _limits(group)[-1] * TYPICAL_WINDOW_S
        > TYPICAL_LIMIT * (windows[name] or TYPICAL_WINDOW_S)
    ]
    detail = f"true of {len(known) - len(above)} of {len(known)} operations seen"
    if None in windows.values():
        detail += f" (a window whose length is not known is taken as {TYPICAL_WINDOW_S:g} s)"
    detail += f"; above: {', '.join(above)}" if above else ""
    responses = sum(map(len, known.values()))
    return _judgement(3, None, responses, (), detail, violated=2 * len(above) >= len(known))


def _limits(group: _Group) -> list[int]:
    """Return the limits of the readings that have one, in order."""
    return [reading.limit for _, reading in group if reading.limit is not None]


def _window_s(readings: Sequence[Reading], unit: UnitName) -> float | None:
    """Return the length of one operation's windows in seconds; None if it cannot be known.

    It is the time left after the first request of a window, if two windows or more were seen, or
    else the least time between two renewals. Either counts only if it is also the greatest time
    left in any reading.
    """
    told = [(each, at) for each in readings if (at := renewal_time(each, unit)) is not None]
    left = [at - each.at for each, at in told]
    first = [at - each.at for each, at in told if each.limit and each.remaining == each.limit - 1]
    step_s = SCALES[unit].seconds if unit in SCALES else 1.0
    tolerance_s = step_s + _TOLERANCE_S
    renewals = sorted(at for _, at in told)
    steps = [b - a for a, b in pairwise(renewals) if b - a > tolerance_s]
    if len(first) > 1 and max(left) - min(first) <= tolerance_s:
        seconds = min(first)
    elif steps and abs(min(steps) - max(left)) <= tolerance_s:
        seconds = min(steps)
    else:
        return None
    # A window of 60 s is measured as 60.04 s because of latency: round it.
    whole = float(round(seconds))
    return whole if abs(seconds - whole) <= max(step_s / 2, _TOLERANCE_S) else seconds


def _notes(readings: Sequence[Reading], groups: Mapping[str | None, _Group]) -> list[str]:
    """Return sentences about a clock that may have been set back, or accounts that were mixed."""
    # Replayed readings have the recording's times, in any order, so they say nothing about clocks.
    timed = [(row, each) for row, each in enumerate(readings) if each.source != "replayed"]
    back = [
        row
        for (_, before), (row, after) in pairwise(timed)
        if after.source == before.source and after.at < before.at - 1.0 - (after.elapsed_s or 0.0)
    ]
    clock = (
        f"{plural(len(back), 'time')} a reading is older than the one before it (first: row "
        f"{(back or [0])[0]}): was a clock set back, or are these several sessions in one?"
    )
    different = {name: len(set(_limits(group))) for name, group in groups.items()}
    return [clock] * bool(back) + [
        f"{name} had {limits} different limits: was its allowance changed, or are these several "
        "accounts?"
        for name, limits in different.items()
        if limits > 1
    ]
