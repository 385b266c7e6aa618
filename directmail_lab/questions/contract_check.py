"""`check_contract`: whether a service keeps the three rules for rate limits (service.md part 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pandas as pd

from ..contract import HEADERS, TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..display import readable
from ..readings.reading import CUT_SHORT, REMAINING_OVER_LIMIT
from ..sources import Source, readings_of

_STATEMENTS: Final = {
    1: f"Every response has {', '.join(HEADERS)}, each an integer",
    2: f"{HEADERS[1]} is not larger than {HEADERS[0]}",
    3: f"A majority of operations allow at most {TYPICAL_LIMIT} requests a minute",
}
_TEXTS: Final = ("statement", "operation", "verdict", "detail")
_COLUMNS: Final = ("rule", *_TEXTS[:3], "responses", "violations", "numbers", "detail")
# If more remain than the limit allows, that violates rule 2, and not rule 1.
_OTHER_PROBLEMS: Final = frozenset({"", REMAINING_OVER_LIMIT, CUT_SHORT})
# By how much two readings of one window may differ about its renewal: Reset is in whole seconds.
_TOLERANCE_S: Final = 1.25


def check_contract(source: Source | Iterable[Source] | pd.DataFrame = None) -> pd.DataFrame:
    """Check the three rules for rate limits of service.md part 8, for each operation.

    Parameters
    ----------
    source
        As in `directmail_lab.rate_limits`, or a frame that it returned.

    Returns
    -------
    DataFrame
        For rules 1 and 2, a row for each operation seen, or one row that says "not observed". For
        rule 3, which is about all operations, one row whose ``operation`` is <NA>. Columns:

        ========== ======= ===================================================================
        rule       int64   the rule's number in service.md part 8
        statement  string  the rule in words
        operation  string  the path, with segments that look like ids as ``{id}``
        verdict    string  ``holds``, ``violated`` or ``not observed``
        responses  int64   how many responses were checked
        violations int64   how many of them violate the rule
        numbers    object  which ones: a tuple of their numbers
        detail     string  what was seen, in words
        ========== ======= ===================================================================
    """
    frame = readings_of(source)
    frame = frame[frame["status"] != 0]  # 0: no response came
    groups: list[tuple[Any, pd.DataFrame]] = list(frame.groupby("operation", sort=False))
    groups = groups or [(pd.NA, frame)]
    rows = [_check_headers(name, group) for name, group in groups]
    rows += [_check_remaining(name, group) for name, group in groups]
    rows.append(_check_majority(frame.dropna(subset=["limit"])))
    verdicts = pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(_TEXTS, "string"))
    verdicts.attrs["notes"] = frame.attrs.get("notes", [])
    hidden = () if verdicts["violations"].any() else ("numbers",)
    return readable(verdicts, once=("rule", "statement"), hidden=hidden)


def _row(
    rule: int, operation: Any, checked: pd.DataFrame, violating: pd.DataFrame, detail: str
) -> tuple[object, ...]:
    """Return a row of the result; ``checked`` and ``violating`` are rows of the readings."""
    verdict, numbers = "violated" if len(violating) else "holds", tuple(violating.index)
    if checked.empty:
        verdict, detail = "not observed", "no response has these headers"
    counts = len(checked), len(violating), numbers
    return rule, _STATEMENTS[rule], operation, verdict, *counts, detail


def _check_headers(operation: Any, group: pd.DataFrame) -> tuple[object, ...]:
    wrong = group[group[["limit", "remaining", "reset"]].isna().any(axis=1)]
    problems = set("; ".join(group["problem"].dropna()).split("; ")) - _OTHER_PROBLEMS
    detail = f"all three in {len(group) - len(wrong)} of {len(group)}"
    return _row(1, operation, group, wrong, "; ".join([detail, *sorted(problems)]))


def _check_remaining(operation: Any, group: pd.DataFrame) -> tuple[object, ...]:
    known = group.dropna(subset=["limit", "remaining"])
    wrong = known[known["remaining"] > known["limit"]]
    return _row(2, operation, known, wrong, f"larger in {len(wrong)} of {len(known)}")


def _check_majority(known: pd.DataFrame) -> tuple[object, ...]:
    """Return the row of rule 3; ``known`` are the readings that have a limit."""
    operations = known.groupby("operation", sort=False)
    windows_s = {str(operation): _window_s(group) for operation, group in operations}
    limits = dict(operations["limit"].last())
    above = [
        operation
        for operation, window_s in windows_s.items()
        if limits[operation] * TYPICAL_WINDOW_S > TYPICAL_LIMIT * (window_s or TYPICAL_WINDOW_S)
    ]
    detail = f"true of {len(operations) - len(above)} of {len(operations)} operations seen"
    if None in windows_s.values():
        detail += f" (a window whose length is not known is taken as {TYPICAL_WINDOW_S:g} s)"
    detail += f"; above: {', '.join(above)}" if above else ""
    is_violated = 2 * len(above) >= len(operations)
    violating = known[known["operation"].isin(above if is_violated else [])]
    return _row(3, pd.NA, known, violating, detail)


def _window_s(group: pd.DataFrame) -> float | None:
    """Return the length of one operation's windows in seconds, or None if it cannot be known.

    It is the time that was left after the first request of a window. It is known if at least two
    windows were seen, and no reading has more time left.
    """
    left_s = (group["reset_at"] - group["at"]).dt.total_seconds()
    first = left_s[group["remaining"] == group["limit"] - 1].dropna()
    if len(first) < 2 or left_s.max() - first.min() > _TOLERANCE_S:
        return None
    # A window of 60 s is measured as 60.04 s because of latency: round it.
    return max(1.0, round(first.min()))
