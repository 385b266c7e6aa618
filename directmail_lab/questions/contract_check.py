"""Checks whether the service follows the three rules for rate limits in service.md part 8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import pandas as pd

from ..contract import HEADERS, TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..display import readable
from ..readings.reading import REMAINING_OVER_LIMIT, Reading
from ..readings.reset_unit import SCALES, ResetUnit, UnitName, infer_reset_unit, renewal_time

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

        ``attrs["notes"]`` has a sentence about each operation whose limit changed.
    """
    log = list(readings)
    unit = reset_unit or infer_reset_unit(log).unit
    groups: dict[str | None, _Group] = {}
    for row, reading in enumerate(log):
        groups.setdefault(reading.operation, []).append((row, reading))
    rows = [_check_headers(name, group) for name, group in (groups or {None: []}).items()]
    rows += [_check_remaining(name, group) for name, group in (groups or {None: []}).items()]
    rows.append(_check_majority(groups, unit))
    frame = pd.DataFrame(rows, columns=list(_DTYPES)).astype(_DTYPES)
    frame.attrs["notes"] = _notes(groups)
    hidden = () if frame["violations"].any() else ("rows",)
    return readable(frame, once=("rule", "statement"), hidden=hidden)


def _row(
    rule: int,
    operation: str | None,
    responses: int,
    violations: Sequence[int],
    detail: str,
    *,
    is_violated: bool = False,
) -> dict[str, object]:
    """Return a row of the frame; ``violations`` are the positions of the readings."""
    verdict: Verdict = "violated" if violations or is_violated else "holds"
    if not responses:
        verdict, detail = "not observed", "no response has these headers"
    return {
        "rule": rule, "statement": _STATEMENTS[rule], "operation": operation, "verdict": verdict,
        "responses": responses, "violations": len(violations), "rows": tuple(violations),
        "detail": detail,
    }  # fmt: skip


def _check_headers(operation: str | None, group: _Group) -> dict[str, object]:
    wrong = [row for row, one in group if None in (one.limit, one.remaining, one.reset)]
    problems = {problem for _, one in group for problem in (one.problem or "").split("; ")}
    # A remaining that is larger than the limit violates rule 2, and not this one.
    problems -= {"", REMAINING_OVER_LIMIT}
    detail = f"all three in {len(group) - len(wrong)} of {len(group)}"
    return _row(1, operation, len(group), wrong, "; ".join([detail, *sorted(problems)]))


def _check_remaining(operation: str | None, group: _Group) -> dict[str, object]:
    known = [(row, one) for row, one in group if None not in (one.limit, one.remaining)]
    wrong = [row for row, one in known if one.remaining > one.limit]  # type: ignore[operator]
    return _row(2, operation, len(known), wrong, f"larger in {len(wrong)} of {len(known)}")


def _check_majority(groups: Mapping[str | None, _Group], unit: UnitName) -> dict[str, object]:
    known = {str(name): group for name, group in groups.items() if _limits(group)}
    windows = {name: _window_s(group, unit) for name, group in known.items()}
    above = [
        name
        for name, group in known.items()
        if _limits(group)[-1] / (windows[name] or TYPICAL_WINDOW_S)
        > TYPICAL_LIMIT / TYPICAL_WINDOW_S
    ]
    detail = f"true of {len(known) - len(above)} of {len(known)} operations seen"
    if None in windows.values():
        detail += f" (a window whose length is not known is taken as {TYPICAL_WINDOW_S:g} s)"
    detail += f"; above: {', '.join(above)}" if above else ""
    responses = sum(map(len, known.values()))
    return _row(3, None, responses, (), detail, is_violated=2 * len(above) >= len(known))


def _limits(group: _Group) -> list[int]:
    """Return the limits of the readings that have one, in order."""
    return [reading.limit for _, reading in group if reading.limit is not None]


def _window_s(group: _Group, unit: UnitName) -> float | None:
    """Return the length of one operation's windows in seconds; None if it cannot be known.

    It is the time left after the first request of a window, if two windows or more were seen, and
    if no reading has more time left.
    """
    left = [(reading, renewal_time(reading, unit)) for _, reading in group]
    known = [(reading, renewal - reading.at) for reading, renewal in left if renewal is not None]
    first = [left_s for one, left_s in known if one.limit and one.remaining == one.limit - 1]
    step_s = SCALES[unit].seconds if unit in SCALES else 1.0
    if len(first) < 2 or max(left_s for _, left_s in known) - min(first) > step_s + _TOLERANCE_S:
        return None
    # A window of 60 s is measured as 60.04 s because of latency: round it.
    whole = float(round(min(first)))
    return whole if abs(min(first) - whole) <= max(step_s / 2, _TOLERANCE_S) else min(first)


def _notes(groups: Mapping[str | None, _Group]) -> list[str]:
    """Return a sentence about each operation whose limit changed."""
    limits = {name: len(set(_limits(group))) for name, group in groups.items()}
    return [
        f"{name} had {count} different limits: was its allowance changed, or are these several "
        "accounts?"
        for name, count in limits.items()
        if count > 1
    ]
