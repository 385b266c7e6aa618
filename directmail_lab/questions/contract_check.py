"""`check_contract`: whether a service keeps the three rules for rate limits (service.md part 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..contract import HEADERS, TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..display import with_whole_cells
from ..readings.reading import CUT_SHORT, REMAINING_OVER_LIMIT
from .sources import Source, readings_of

_STATEMENTS = {
    1: f"Every response has {', '.join(HEADERS)}, each an integer",
    2: f"{HEADERS[1]} is not larger than {HEADERS[0]}",
    3: f"A majority of operations allow at most {TYPICAL_LIMIT} requests a minute",
}
_TEXTS = ("statement", "operation", "verdict", "detail")
_COLUMNS = ("rule", *_TEXTS[:3], "responses", "violations", "numbers", "detail")
# If more remain than the limit allows, that violates rule 2, and not rule 1.
_OTHER_PROBLEMS = frozenset({"", REMAINING_OVER_LIMIT, CUT_SHORT})
# By how much two readings of one window may differ about its renewal: Reset is in whole seconds.
_TOLERANCE_S = 1.25


def check_contract(source: Source | Iterable[Source] | pd.DataFrame = None) -> pd.DataFrame:
    """Check the three rules for rate limits, for each operation.

    Parameters
    ----------
    source
        As in `directmail_lab.rate_limits`, or a frame that it returned.

    Returns
    -------
    DataFrame
        For rules 1 and 2, a row for each operation seen, or one row that says
        "not observed". For rule 3, which is about all operations, one row whose
        ``operation`` is <NA>. Columns:

        ========== ======= =====================================================
        rule       int64   the rule's number in service.md part 8
        statement  string  the rule in words
        operation  string  the path; segments that look like ids are ``{id}``
        verdict    string  ``holds``, ``violated`` or ``not observed``
        responses  int64   how many responses were checked
        violations int64   how many of them violate the rule
        numbers    object  which ones: a tuple of their numbers
        detail     string  what was seen, in words
        ========== ======= =====================================================
    """
    frame = readings_of(source)
    # 0: no response came. An operation of another server begins with its origin.
    is_elsewhere = frame["operation"].str.match("https?://").fillna(False).astype(bool)
    frame = frame[(frame["status"] != 0) & ~is_elsewhere]
    # By position, not as frames: selecting a frame for each operation takes 1 ms.
    groups: dict[Any, Any] = frame.groupby("operation", sort=False).indices
    if not groups:
        groups = {pd.NA: np.array([], int)}
    rows = [*_check_headers(frame, groups), *_check_remaining(frame, groups)]
    rows.append(_check_majority(frame, groups))
    verdicts = pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(_TEXTS, "string"))
    verdicts.attrs["notes"] = frame.attrs.get("notes", [])
    return with_whole_cells(verdicts)


def _row(
    rule: int, operation: Any, checked: int, violating: Sequence[int], detail: str
) -> tuple[object, ...]:
    """Return a row of the result, given how many responses were checked and which ones violate."""
    verdict = "violated" if len(violating) else "holds"
    if not checked:
        verdict = "not observed"
        detail = "no response has these headers"
    numbers = tuple(map(int, violating))
    return rule, _STATEMENTS[rule], operation, verdict, checked, len(numbers), numbers, detail


def _check_headers(frame: pd.DataFrame, groups: dict[Any, Any]) -> Iterator[tuple[object, ...]]:
    is_wrong = frame[["limit", "remaining", "reset"]].isna().any(axis=1).to_numpy()
    problems = frame["problem"].fillna("").to_numpy()
    numbers = frame.index.to_numpy()
    for operation, rows in groups.items():
        wrong = numbers[rows][is_wrong[rows]]
        others = set("; ".join(set(problems[rows])).split("; ")) - _OTHER_PROBLEMS
        detail = f"all three in {len(rows) - len(wrong)} of {len(rows)}"
        yield _row(1, operation, len(rows), wrong, "; ".join([detail, *sorted(others)]))


def _check_remaining(frame: pd.DataFrame, groups: dict[Any, Any]) -> Iterator[tuple[object, ...]]:
    is_larger = frame["remaining"] > frame["limit"]
    is_known = is_larger.notna().to_numpy()
    is_wrong = is_larger.fillna(False).to_numpy(bool)
    numbers = frame.index.to_numpy()
    for operation, rows in groups.items():
        known = int(is_known[rows].sum())
        wrong = numbers[rows][is_wrong[rows]]
        yield _row(2, operation, known, wrong, f"larger in {len(wrong)} of {known}")


def _check_majority(frame: pd.DataFrame, groups: dict[Any, Any]) -> tuple[object, ...]:
    """Return the row of rule 3, which is about the readings that have a limit."""
    limits = frame["limit"].to_numpy("float64", na_value=np.nan)
    left_s = (frame["reset_at"] - frame["at"]).dt.total_seconds().to_numpy()
    is_first = (frame["remaining"] == frame["limit"] - 1).fillna(False).to_numpy(bool)
    operations = 0
    checked = 0
    above: dict[str, Any] = {}
    is_assumed = False
    for operation, group in groups.items():
        rows = group[~np.isnan(limits[group])]
        if not len(rows):
            continue
        operations += 1
        checked += len(rows)
        window_s = _window_s(left_s[rows], is_first[rows])
        if window_s is None:
            window_s = TYPICAL_WINDOW_S
            is_assumed = True
        if limits[rows[-1]] * TYPICAL_WINDOW_S > TYPICAL_LIMIT * window_s:
            above[operation] = rows
    detail = f"true of {operations - len(above)} of {operations} operations seen"
    if is_assumed:
        detail += f" (a window whose length is not known is taken as {TYPICAL_WINDOW_S:g} s)"
    if above:
        detail += f"; above: {', '.join(above)}"
    violating: Any = ()
    if above and 2 * len(above) >= operations:
        violating = frame.index[np.sort(np.concatenate(list(above.values())))]
    return _row(3, pd.NA, checked, violating, detail)


def _window_s(left_s: Any, is_first: Any) -> float | None:
    """Return the length of one operation's windows in seconds, or None if it cannot be known.

    It is the time that was left after the first request of a window. It is known if at least two
    windows were seen, and no reading has more time left.

    Parameters
    ----------
    left_s
        For each reading, the time left in its window, or NaN.
    is_first
        For each reading, whether its request was the first of its window.
    """
    first = left_s[is_first & ~np.isnan(left_s)]
    if len(first) < 2 or np.nanmax(left_s) - first.min() > _TOLERANCE_S:
        return None
    # A window of 60 s is measured as 60.04 s because of latency: round it.
    return max(1.0, round(float(first.min())))
