"""`check_contract`: whether a service keeps the three rules for rate limits (service.md part 8)."""

from __future__ import annotations

import pandas as pd

from ..display import as_table
from ..exchange.contract import HEADERS, TYPICAL_LIMIT
from .sources import Sources, readings_of


def check_contract(source: Sources | pd.DataFrame = None) -> pd.DataFrame:
    """Check the three rules for rate limits.

    Parameters
    ----------
    source
        As in `directmail_lab.rate_limits`, or a frame that it returned.

    Returns
    -------
    DataFrame
        A row for each rule. Columns:

        ========== ======= =====================================================
        rule       int64   the rule's number in service.md part 8
        statement  string  the rule in words
        verdict    string  ``holds``, ``violated`` or ``not observed``
        responses  int64   how many responses were checked
        violations int64   how many of them violate the rule
        numbers    object  which ones: a tuple of their numbers
        operations string  the operations of these, if any
        ========== ======= =====================================================

        For rule 3, a window is taken for a minute, and the last limit of an
        operation counts.
    """
    frame = readings_of(source)
    # 0: no response came. An operation of another server begins with its origin.
    is_elsewhere = frame["operation"].str.contains("://")
    frame = frame[(frame["status"] != 0) & ~is_elsewhere]
    has_limit = frame["limit"].notna()
    limits = frame[has_limit].groupby("operation")["limit"].last()
    above = limits.index[limits > TYPICAL_LIMIT]
    is_minority = 2 * len(above) < len(limits)
    # Each rule, which responses it is about, and which of them violate it.
    rules = [
        (
            f"Every response has {', '.join(HEADERS)}, each an integer",
            frame["status"].notna(),
            frame[["limit", "remaining", "reset"]].isna().any(axis=1),
        ),
        (
            f"{HEADERS[1]} is not larger than {HEADERS[0]}",
            has_limit & frame["remaining"].notna(),
            frame["remaining"] > frame["limit"],
        ),
        (
            f"A majority of operations allow at most {TYPICAL_LIMIT} requests a minute",
            has_limit,
            frame["operation"].isin([] if is_minority else above) & has_limit,
        ),
    ]
    rows = []
    for rule, (statement, is_checked, is_wrong) in enumerate(rules, 1):
        verdict = "holds" if is_checked.any() else "not observed"
        wrong = frame[is_wrong]
        rows.append(
            {
                "rule": rule,
                "statement": statement,
                "verdict": verdict if wrong.empty else "violated",
                "responses": is_checked.sum(),
                "violations": len(wrong),
                "numbers": tuple(wrong.index.tolist()),
                "operations": ", ".join(wrong["operation"].unique()),
            }
        )
    texts = ["statement", "verdict", "operations"]
    verdicts = pd.DataFrame(rows).astype(dict.fromkeys(texts, "string"))
    verdicts.attrs["notes"] = frame.attrs.get("notes", [])
    return as_table(verdicts)
