"""The three rules of the contract (service.md part 8), checked on readings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

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


def of_rule(frame: pd.DataFrame, rule: int) -> pd.DataFrame:
    """Return the rows of a rule by their operations."""
    return frame[frame["rule"] == rule].set_index("operation")


@pytest.mark.parametrize("missing", ["limit", "remaining", "reset"])
def test_a_response_without_a_header_violates_rule_1_and_is_pointed_at(missing: str) -> None:
    """The row has the numbers of these responses, and says what was wrong."""
    wrong = reading(**{missing: None})
    (row,) = of_rule(check(reading(), wrong, reading(), wrong), 1).to_dict("records")

    assert (row["verdict"], row["violations"], row["numbers"]) == ("violated", 2, (2, 4))
    assert row["detail"] == f"all three in 2 of 4; X-RateLimit-{missing.title()} is missing"


def test_more_remaining_than_allowed_violates_rule_2_and_not_rule_1() -> None:
    """Rule 1 asks if the headers exist, rule 2 what they say, each for one operation."""
    frame = check(reading("/a"), reading("/b", remaining=301), reading("/b", reset=None))

    for rule in (1, 2):
        assert dict(of_rule(frame, rule)["verdict"]) == {"/a": "holds", "/b": "violated"}
        assert dict(of_rule(frame, rule)["responses"]) == {"/a": 1, "/b": 2}
    assert of_rule(frame, 1)["detail"]["/b"] == "all three in 1 of 2; X-RateLimit-Reset is missing"


def test_a_rule_without_data_is_reported_as_not_observed() -> None:
    """Without numbers, rules about numbers have no verdict.

    Without readings, columns are the same.
    """
    frame, empty = check(reading(limit=None, remaining=None, reset=None)), check()

    assert dict(zip(frame["rule"], frame["verdict"], strict=True)) == {
        1: "violated",
        2: "not observed",
        3: "not observed",
    }
    assert set(empty["verdict"]) == {"not observed"}
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

    (row,) = of_rule(check(*readings), 3).to_dict("records")

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

    assert of_rule(check(*late, unit="epoch_s"), 3)["verdict"].tolist() == [verdict]
    assert of_rule(check(*late), 3)["verdict"].tolist() == ["violated"]


def test_a_notebook_shows_each_rule_whole_and_escaped() -> None:
    """pandas alone would cut the rule's text after 50 characters."""
    readings = [reading("/a"), reading("/a", limit=500), reading("/a<b>", limit=None)]

    frame = check(*readings)
    shown = frame._repr_html_()  # type: ignore[operator]

    for statement, count in frame["statement"].value_counts().items():
        assert shown.count(f">{statement}<") == count
    assert "/a&lt;b&gt;" in shown


def test_checking_more_operations_selects_no_more_frames() -> None:
    """Selecting a frame takes 1 ms, so a check of two thousand operations would take seconds."""

    def selected(operations: int) -> int:
        readings = [reading(f"/v1/{'a' * n}") for n in range(1, operations + 1)]
        frame = frame_of(readings, unit="undetermined")
        select = pd.DataFrame.__getitem__
        with mock.patch.object(
            pd.DataFrame, "__getitem__", autospec=True, side_effect=select
        ) as it:
            check_contract(frame)
        return it.call_count

    assert selected(20) == selected(2) > 0
