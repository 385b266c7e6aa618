"""The frame of readings: its columns, its numbers, what it does with what no service sends."""

from __future__ import annotations

import math
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from reading_samples import NOON_S, reading as sample

from directmail_lab.exchange.values import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.questions.contract_check import check_contract
from directmail_lab.readings.frame import frame_of, frame_of_many
from directmail_lab.readings.reading import Reading, reading_of
from directmail_lab.readings.reset_unit import UNITS, UnitName

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = dict.fromkeys(("method", "path", "operation", "source", "cassette", "problem"), "string")
COUNTS = dict.fromkeys(("limit", "remaining", "reset", "cassette_number"), "Int64")
TIMES = dict.fromkeys(("at", "reset_at"), "datetime64[us, UTC]")
DTYPES = TEXTS | COUNTS | TIMES | {"status": "int64", "elapsed_s": "float64"}


def reading(n: int = 0, **changes: Any) -> Reading:
    """Return the n-th reading of a window of 60 s, changed as told."""
    in_turn = {"remaining": 300 - n % 300, "reset": 60 - n % 60}
    return sample(**{"at": NOON_S + n, **in_turn, **changes})


# Two headers are missing, and the times.
ODD = reading(limit=None, reset=None, elapsed_s=None, at=math.nan)


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


@pytest.mark.parametrize("n", [0, 1, 700])
def test_a_frame_has_the_same_columns_however_many_readings_there_are(n: int) -> None:
    """Columns and dtypes are as documented, with no readings too, and numbers are from 1."""
    frame = frame_of([reading(i) for i in range(n)], unit="undetermined")

    assert dtypes(frame) == DTYPES
    assert (frame.index.name, frame.index.tolist()) == ("number", list(range(1, n + 1)))


def test_a_row_holds_what_its_reading_says() -> None:
    """At the number that is given; malformed headers are <NA>, and an unknown time is NaT."""
    one = reading(2, source="replayed", cassette="tour", cassette_number=9, path="/v1/lists/12")
    frame = frame_of([one, ODD], unit="seconds_left", numbers=[5, 6])
    row, missing = frame.loc[5], frame.loc[6]
    unknown = ["at", "limit", "reset", "reset_at", "elapsed_s", "cassette", "cassette_number"]

    assert row["at"] == pd.Timestamp("2026-11-21 12:00:02", tz="UTC")
    assert row.tolist()[2:8] == ["/v1/lists/12", "/v1/lists/{id}", 200, 300, 298, 58]
    assert row.tolist()[9:13] == [0.03, "replayed", "tour", 9]
    assert missing[unknown].isna().all()
    assert missing["problem"] == "X-RateLimit-Limit is missing; X-RateLimit-Reset is missing"


@pytest.mark.parametrize(
    ("unit", "reset", "expected"),
    [
        ("seconds_left", 60, NOON_S + 60),
        ("milliseconds_left", 1500, NOON_S + 1.5),
        ("epoch_s", int(NOON_S) + 9, NOON_S + 9),
        ("epoch_ms", int(NOON_S * 1000) + 9, NOON_S + 0.009),
        ("undetermined", 60, None),
    ],
)
def test_the_renewal_follows_the_unit(unit: UnitName, reset: int, expected: float | None) -> None:
    """A date needs none, and a number of which no calendar knows is no time in any."""
    far, dated = reading(reset=2**63 - 1), reading(reset="2026-11-21T12:01:00Z")
    frame = frame_of([reading(reset=reset), far, dated], unit=unit)

    times = [None if pd.isna(at) else round(at.timestamp(), 3) for at in frame["reset_at"]]
    assert times == [expected, None, NOON_S + 60]
    assert frame["reset"].tolist() == [reset, 2**63 - 1, pd.NA]
    assert frame.attrs["reset_unit"] == unit


def test_several_recordings_are_one_frame_and_keep_their_numbers_and_units() -> None:
    """The unit of the whole is named only if it is that of each."""
    first = ([reading(cassette="a"), reading(1, cassette="a")], "seconds_left")
    second = ([reading(reset=60_000, cassette="b")], "milliseconds_left")
    frame = frame_of_many([first, second])  # type: ignore[list-item]
    none = frame_of_many([])

    assert frame["cassette"].tolist() == ["a", "a", "b"]
    assert frame.index.tolist() == [1, 2, 1]
    assert {each.timestamp() - NOON_S for each in frame["reset_at"]} == {60}
    assert frame.attrs["reset_unit"] == "undetermined"
    assert frame_of_many([first, first]).attrs["reset_unit"] == "seconds_left"  # type: ignore[list-item]
    assert dtypes(frame) == dtypes(none) == DTYPES


@pytest.mark.parametrize("n", [0, 3])
def test_a_frame_survives_parquet(n: int, tmp_path: Path) -> None:
    """Columns, dtypes, numbers and the unit are kept, whatever is missing or malformed."""
    frame = frame_of([ODD, reading(1), reading(2)][:n], unit="seconds_left")
    frame.to_parquet(tmp_path / "readings.parquet")
    kept = pd.read_parquet(tmp_path / "readings.parquet")

    pd.testing.assert_frame_equal(kept, frame)
    assert kept.attrs == {"reset_unit": "seconds_left"}


def hostile_interactions() -> st.SearchStrategy[list[Interaction]]:
    """Interactions as a hand-written cassette may hold them, their types checked."""
    names = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"]
    dates = ["Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"]
    numbers = ["0", "9" * 19, "9" * 5000, str(2**63 - 1), "0001-01-01T00:00:00+23:59"]
    values = st.sampled_from(numbers + dates) | st.text(max_size=9)
    headers = st.lists(st.tuples(st.sampled_from([*names, "Date"]), values), max_size=6)
    request = st.builds(RecordedRequest, st.sampled_from(["GET", "get", "!"]), st.just("x"))
    response = st.builds(RecordedResponse, st.integers(0, 999), headers=headers.map(tuple))
    times = st.none() | st.datetimes(timezones=st.just(UTC))
    return st.lists(
        st.builds(Interaction, request, response, times, st.none() | st.floats()), max_size=6
    )


@pytest.mark.slow
@given(hostile_interactions(), st.sampled_from([*UNITS, "undetermined"]))
@settings(max_examples=300, deadline=None)
def test_any_recorded_answers_give_a_frame_and_verdicts(
    interactions: list[Interaction], unit: UnitName
) -> None:
    """Years, counts, dates and texts that no service sends are missing values, not exceptions."""
    frame = frame_of([reading_of(one, "/é?", cassette="tour") for one in interactions], unit=unit)

    assert len(frame) == len(interactions)
    assert dtypes(frame) == DTYPES
    assert check_contract(frame)["responses"].min() >= 0
