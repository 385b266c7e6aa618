"""The three rules of the contract (service.md part 8), checked on readings."""

import pandas as pd
import pytest
from reading_samples import reading

from directmail_lab.questions.contract_check import check_contract
from directmail_lab.readings.frame import frame_of
from directmail_lab.readings.reading import Reading


def check(*readings: Reading) -> pd.DataFrame:
    return check_contract(frame_of(readings, unit="undetermined"))


def verdicts(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    columns = frame[["verdict", "responses", "numbers", "operations"]]
    return list(columns.itertuples(index=False, name=None))


HOLDS = ("holds", 3, (), "")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        *(
            ([{}, {name: None}, {}], [("violated", 3, (2,), "/b"), *rest])
            for name, rest in {
                "limit": [("holds", 2, (), "")] * 2,
                "remaining": [("holds", 2, (), ""), HOLDS],
                "reset": [HOLDS] * 2,
            }.items()
        ),
        ([{}, {"remaining": 301}, {}], [HOLDS, ("violated", 3, (2,), "/b"), HOLDS]),
        # One operation of three may allow more, but not two.
        ([{}, {}, {"limit": 500}], [HOLDS] * 3),
        ([{}, {"limit": 301}, {"limit": 500}], [HOLDS] * 2 + [("violated", 3, (2, 3), "/b, /c")]),
        ([{}, {"limit": 500}], [("holds", 2, (), "")] * 2 + [("violated", 2, (2,), "/b")]),
    ],
)
def test_each_rule_has_a_verdict_and_points_at_what_violates_it(changes, expected):
    """Rule 1 asks if the headers exist, rule 2 what they say, rule 3 about most operations."""
    paths = ("/a", "/b", "/c")
    readings = [reading(path=path, **each) for path, each in zip(paths, changes, strict=False)]

    assert verdicts(check(*readings)) == expected


def test_a_rule_without_data_is_reported_as_not_observed():
    frame, empty = check(reading(limit=None, remaining=None, reset=None)), check()

    assert frame["verdict"].tolist() == ["violated", "not observed", "not observed"]
    assert empty["verdict"].tolist() == ["not observed"] * 3
    assert empty.dtypes.equals(frame.dtypes)


def test_another_servers_and_no_response_are_not_checked():
    """The contract is the service's, and says nothing about a connection that broke."""
    elsewhere = reading(limit=None)._replace(elsewhere="https://files.example.com")
    lost = reading(limit=None, remaining=None, reset=None)._replace(status=0)

    assert verdicts(check(reading(), elsewhere, lost))[0] == ("holds", 1, (), "")


def test_a_notebook_shows_each_rule_whole_and_escaped():
    """pandas alone would cut the rule's text after 50 characters."""
    frame = check(reading(path="/a<b>", limit=None))
    shown = frame._repr_html_()

    assert all(f">{statement}<" in shown for statement in frame["statement"])
    assert "/a&lt;b&gt;" in shown
