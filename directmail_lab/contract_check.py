"""Whether the service keeps what its document says of rate limits: the three rules of part 8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import pandas as pd

from .contract import HEADERS, TYPICAL_LIMIT, TYPICAL_WINDOW_S
from .display import plural, readable
from .quota.reading import REMAINING_OVER_LIMIT
from .quota.windows import Allowance, allowances

if TYPE_CHECKING:
    from .quota import Reading
    from .quota.reset_unit import ResetUnit


Verdict = Literal["holds", "violated", "not observed"]

_STATEMENTS: Final = {
    1: f"Every response has {', '.join(HEADERS)}, each an integer",
    2: f"{HEADERS[1]} is not larger than {HEADERS[0]}",
    3: f"A majority of operations allow at most {TYPICAL_LIMIT} requests a minute",
}


@dataclass(frozen=True, slots=True)
class _Judgement:
    rule: int
    operation: str | None
    verdict: Verdict
    responses: int
    rows: tuple[int, ...]
    detail: str


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
        rule       int64   its number in service.md
        statement  string  what it says
        operation  string  the path, id-like segments as ``{id}``
        verdict    string  holds, violated or not observed
        responses  int64   how many were looked at
        violations int64   how many of them are against the rule
        rows       object  which: a tuple of positions, from 0, in the readings that were given
        detail     string  what was seen, in words
        ========== ======= ===================================================================

        ``attrs["notes"]`` has sentences on what looks odd in the readings as a whole.
    """
    kept = list(readings)
    by_operation: defaultdict[str, list[tuple[int, Reading]]] = defaultdict(list)
    for row, reading in enumerate(kept):
        by_operation[reading.operation].append((row, reading))
    groups: Sequence[tuple[str | None, list[tuple[int, Reading]]]] = list(by_operation.items())
    groups = groups or [(None, [])]
    found = allowances(kept, reset_unit=reset_unit)
    judgements = [_headers_present(operation, group) for operation, group in groups]
    judgements += [_remaining_within(operation, group) for operation, group in groups]
    judgements.append(_majority_within(found))
    frame = _frame(judgements)
    frame.attrs["notes"] = _notes(kept, found)
    return frame


def _headers_present(operation: str | None, group: list[tuple[int, Reading]]) -> _Judgement:
    wrong = [
        row
        for row, reading in group
        if reading.limit is None or reading.remaining is None or reading.reset is None
    ]
    told = {each for _, reading in group for each in (reading.problem or "").split("; ")}
    # That more remain than are allowed is rule 2's.
    problems = sorted(told - {"", REMAINING_OVER_LIMIT})
    have = f"all three in {len(group) - len(wrong)} of {len(group)}"
    detail = "; ".join([have, *problems])
    return _judgement(1, operation, len(group), wrong, detail)


def _remaining_within(operation: str | None, group: list[tuple[int, Reading]]) -> _Judgement:
    told = [
        (row, reading.remaining, reading.limit)
        for row, reading in group
        if reading.remaining is not None and reading.limit is not None
    ]
    wrong = [row for row, remaining, limit in told if remaining > limit]
    detail = f"larger in {len(wrong)} of {len(told)}"
    return _judgement(2, operation, len(told), wrong, detail)


def _majority_within(found: Sequence[Allowance]) -> _Judgement:
    known = [allowance for allowance in found if allowance.limit is not None]
    within = [allowance for allowance in known if _a_minute(allowance) <= TYPICAL_LIMIT]
    detail = f"true of {len(within)} of {len(known)} operations seen"
    if any(allowance.window_s is None for allowance in known):
        detail += f" (a window whose length is not known is taken as {TYPICAL_WINDOW_S:g} s)"
    above = [allowance.operation for allowance in known if allowance not in within]
    if above:
        detail += f"; above: {', '.join(above)}"
    verdict: Verdict = "holds" if 2 * len(within) > len(known) else "violated"
    responses = sum(allowance.responses for allowance in known)
    return _Judgement(3, None, verdict if known else "not observed", responses, (), detail)


def _a_minute(allowance: Allowance) -> float:
    window_s = allowance.window_s or TYPICAL_WINDOW_S
    return (allowance.limit or 0) * TYPICAL_WINDOW_S / window_s


def _judgement(
    rule: int, operation: str | None, responses: int, wrong: list[int], detail: str
) -> _Judgement:
    if not responses:
        return _Judgement(rule, operation, "not observed", 0, (), "no response says")
    verdict: Verdict = "violated" if wrong else "holds"
    return _Judgement(rule, operation, verdict, responses, tuple(wrong), detail)


def _frame(judgements: Sequence[_Judgement]) -> pd.DataFrame:
    violations = [len(found.rows) for found in judgements]
    frame = pd.DataFrame(
        {
            "rule": pd.array([found.rule for found in judgements], dtype="int64"),
            "statement": pd.array([_STATEMENTS[f.rule] for f in judgements], dtype="string"),
            "operation": pd.array([found.operation for found in judgements], dtype="string"),
            "verdict": pd.array([found.verdict for found in judgements], dtype="string"),
            "responses": pd.array([found.responses for found in judgements], dtype="int64"),
            "violations": pd.array(violations, dtype="int64"),
            "rows": pd.Series([found.rows for found in judgements], dtype="object"),
            "detail": pd.array([found.detail for found in judgements], dtype="string"),
        }
    )
    return readable(frame, once=("rule", "statement"))


def _notes(readings: Sequence[Reading], found: Iterable[Allowance]) -> list[str]:
    """Return what looks as if clocks were set, or accounts mixed."""
    notes = []
    # A replay answers in any order, with the times of its recording: that says nothing of clocks.
    timed = [(row, each) for row, each in enumerate(readings) if each.source != "replayed"]
    back = [
        row
        for (_, before), (row, after) in pairwise(timed)
        if after.source == before.source and after.at < before.at - 1.0 - (after.elapsed_s or 0.0)
    ]
    if back:
        notes.append(
            f"{plural(len(back), 'time')} a reading is older than the one before it (first: row "
            f"{back[0]}): "
            "was a clock set back, or are these several sessions in one?"
        )
    notes.extend(
        f"{allowance.operation} had {len(allowance.limits)} different limits: "
        "was its allowance changed, or are these several accounts?"
        for allowance in found
        if len(allowance.limits) > 1
    )
    return notes
