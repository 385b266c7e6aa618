"""The three rules of the contract (service.md part 8), checked on readings."""

from __future__ import annotations

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


def verdicts(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    columns = frame[["verdict", "responses", "numbers", "operations"]]
    return list(columns.itertuples(index=False, name=None))


@pytest.mark.parametrize("missing", ["limit", "remaining", "reset"])
def test_a_response_without_a_header_violates_rule_1_and_is_pointed_at(missing: str) -> None:
    """The row has the numbers of these responses, and their operations."""
    wrong = reading("/b", **{missing: None})
    frame = check(reading("/a"), wrong, reading("/b"), wrong)

    assert verdicts(frame)[0] == ("violated", 4, (2, 4), "/b")
    assert frame["violations"].tolist() == [2, 0, 0]


def test_more_remaining_than_allowed_violates_rule_2_and_not_rule_1() -> None:
    """Rule 1 asks if the headers exist, rule 2 what they say."""
    frame = check(reading("/a"), reading("/b", remaining=301), reading("/c", remaining=None))

    assert verdicts(frame)[:2] == [("violated", 3, (3,), "/c"), ("violated", 2, (2,), "/b")]


def test_a_rule_without_data_is_reported_as_not_observed() -> None:
    """Without numbers, rules about numbers have no verdict; columns are the same."""
    frame, empty = check(reading(limit=None, remaining=None, reset=None)), check()

    assert frame["verdict"].tolist() == ["violated", "not observed", "not observed"]
    assert empty["verdict"].tolist() == ["not observed"] * 3
    assert empty.dtypes.equals(frame.dtypes)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([300, 300, 500], ("holds", 3, (), "")),
        ([300, 500], ("violated", 2, (2,), "b")),
        ([301], ("violated", 1, (1,), "a")),
        ([300], ("holds", 1, (), "")),
    ],
)
def test_rule_3_is_about_a_majority_of_operations(
    limits: list[int], expected: tuple[object, ...]
) -> None:
    """One operation of three above the limit is no violation, one of two is."""
    readings = [reading(path, limit=limit) for path, limit in zip("abc", limits, strict=False)]

    assert verdicts(check(*readings))[2] == expected


def test_another_servers_and_no_response_are_not_checked() -> None:
    """The contract is the service's, and says nothing about a connection that broke."""
    elsewhere = reading(limit=None)._replace(elsewhere="https://files.example.com")
    lost = reading(limit=None, remaining=None, reset=None)._replace(status=0)

    assert verdicts(check(reading(), elsewhere, lost))[0] == ("holds", 1, (), "")


def test_a_notebook_shows_each_rule_whole_and_escaped() -> None:
    """pandas alone would cut the rule's text after 50 characters."""
    frame = check(reading("/a<b>", limit=None))
    shown = frame._repr_html_()  # type: ignore[operator]

    assert all(f">{statement}<" in shown for statement in frame["statement"])
    assert "/a&lt;b&gt;" in shown
