"""The three rules of the contract (service.md part 8), checked on readings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from reading_samples import NOON_S, reading as sample

from directmail_lab.questions.contract_check import check_contract
from directmail_lab.readings.frame import frame_of

if TYPE_CHECKING:
    from directmail_lab.readings.reading import Reading
    from directmail_lab.readings.reset_unit import UnitName


def reading(path: str = "/v1/users/me", n: int = 0, **changes: object) -> Reading:
    """Return a valid reading with some values changed."""
    return sample(NOON_S + n, path, **changes)


def check(*readings: Reading, unit: UnitName = "undetermined") -> pd.DataFrame:
    return check_contract(frame_of(readings, unit=unit))


def verdicts(frame: pd.DataFrame, rule: int) -> list[tuple[object, object]]:
    """Return operation and verdict of each row of a rule."""
    of_rule = frame[frame["rule"] == rule]
    return list(zip(of_rule["operation"], of_rule["verdict"], strict=True))


@pytest.mark.parametrize("missing", ["limit", "remaining", "reset"])
def test_a_response_without_a_header_violates_rule_1_and_is_pointed_at(missing: str) -> None:
    """The row has the numbers of these responses, and says what was wrong."""
    wrong = reading(**{missing: None})
    first = check(reading(), wrong, reading(), wrong).iloc[0]

    assert (first["verdict"], first["violations"], first["numbers"]) == ("violated", 2, (2, 4))
    assert first["detail"] == f"all three in 2 of 4; X-RateLimit-{missing.title()} is missing"


def test_more_remaining_than_allowed_violates_rule_2_and_not_rule_1() -> None:
    """Rule 1 asks if the headers exist, rule 2 what they say, each for one operation."""
    frame = check(reading("/a"), reading("/b", remaining=301), reading("/b", reset=None))

    assert verdicts(frame, 1) == verdicts(frame, 2) == [("/a", "holds"), ("/b", "violated")]
    assert frame["responses"].tolist() == [1, 2, 1, 2, 3]
    assert frame["detail"][1] == "all three in 1 of 2; X-RateLimit-Reset is missing"


def test_a_rule_without_data_is_reported_as_not_observed() -> None:
    """Without numbers, rules about numbers have no verdict.

    Without readings, columns are the same.
    """
    frame, empty = check(reading(limit=None, remaining=None, reset=None)), check()

    assert frame["verdict"].tolist() == ["violated", "not observed", "not observed"]
    assert empty["verdict"].tolist() == ["not observed"] * 3
    assert empty.dtypes.equals(frame.dtypes)


@pytest.mark.parametrize(
    ("limits", "verdict", "numbers", "detail"),
    [
        ([300, 300, 500], "holds", (), "2 of 3 operations"),
        ([300, 500], "violated", (2,), "1 of 2 operations"),
        ([60], "holds", (), "1 of 1 operations"),
    ],
)
def test_rule_3_states_how_many_operations_satisfy_it(
    limits: list[int], verdict: str, numbers: tuple[int, ...], detail: str
) -> None:
    """The rule is about a majority, so one operation above the limit is no violation."""
    readings = [reading(path, limit=limit) for path, limit in zip("abc", limits, strict=False)]

    row = check(*readings).iloc[-1]

    assert (row["verdict"], row["numbers"]) == (verdict, numbers)
    assert detail in row["detail"]


@pytest.mark.parametrize(
    ("windows_s", "verdict"),
    [([120, 120], "holds"), ([120, 180], "violated")],
)
def test_rule_3_counts_by_the_minute_where_the_window_is_known(
    windows_s: list[int], verdict: str
) -> None:
    """600 requests in two minutes are 300 per minute, if two windows show their length."""
    starts = [1000 * number for number in range(len(windows_s))]
    readings = [
        reading(n=start + n, limit=600, remaining=599 - n, reset=int(NOON_S) + start + window_s)
        for start, window_s in zip(starts, windows_s, strict=True)
        for n in range(3)
    ]
    late = [one._replace(at=one.at + 0.04) for one in readings]

    assert verdicts(check(*late, unit="epoch_s"), 3) == [(pd.NA, verdict)]
    assert verdicts(check(*late), 3) == [(pd.NA, "violated")]


def test_the_display_states_each_rule_once() -> None:
    """The rule's text appears once for all operations, aligned to the left."""
    readings = [reading("/a"), reading("/a", limit=500), reading("/a<b>", limit=None)]

    frame = check(*readings)
    shown = frame._repr_mimebundle_()["text/html"]  # type: ignore[operator]

    assert shown.count("is not larger than") == 1
    assert (shown.count(">holds<"), shown.count(">violated<")) == (2, 2)
    assert "/a&lt;b&gt;" in shown


def test_two_thousand_operations_are_checked_within_two_seconds() -> None:
    """If a frame is selected for each operation, this takes three times as long."""
    frame = frame_of([reading(f"/v1/{'a' * n}") for n in range(1, 2001)], unit="undetermined")
    started = time.process_time()
    verdicts = check_contract(frame)

    assert len(verdicts) == 4001
    assert time.process_time() - started < 2
