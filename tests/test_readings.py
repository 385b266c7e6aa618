"""The log of readings, its frame, and the files that hold readings."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from cassette_samples import BASE_URL, NOON, answered, recorded
from directmail_lab.readings.log import ReadingLog, frame_readings, read_readings
from hypothesis import given, settings, strategies as st
from reading_samples import NOON_S, reading as sample

from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.questions.contract_check import check_contract
from directmail_lab.readings.reading import recorded_reading
from directmail_lab.readings.reset_unit import SCALES

if TYPE_CHECKING:
    from pathlib import Path

    from directmail_lab.readings.reading import Reading
    from directmail_lab.readings.reset_unit import ResetUnit

TEXTS = dict.fromkeys(("method", "path", "operation", "source", "cassette", "problem"), "string")
COUNTS = dict.fromkeys(("limit", "remaining", "reset"), "Int64")
TIMES = dict.fromkeys(("at", "reset_at"), "datetime64[us, UTC]")
DTYPES = TEXTS | COUNTS | TIMES | {"status": "int64", "elapsed_s": "float64"}
NAMES = (
    "at method path operation status limit remaining reset reset_at elapsed_s source cassette "
    "problem"
)


def reading(n: int = 0, **changes: object) -> Reading:
    """Return the n-th reading of a window of 60 s, changed as told."""
    in_turn = {"remaining": 300 - n % 300, "reset": 60 - n % 60}
    return sample(**{"at": NOON_S + n, **in_turn, **changes})  # type: ignore[arg-type]


_FIRST, _LAST = "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"


def hostile_interactions() -> st.SearchStrategy[list[Interaction]]:
    """Interactions as a hand-written cassette may hold them, their types checked."""
    names = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"]
    values = st.sampled_from(
        ["0", "9" * 19, "9" * 5000, str(2**63 - 1), "0001-01-01T00:00:00+23:59", _LAST, _FIRST]
    )
    headers = st.tuples(st.sampled_from([*names, "Date"]), values | st.text(max_size=9))
    uris = st.sampled_from(["https://api.example.test/v1/\ud800", "", "x"]) | st.text("aé/?#{}")
    return st.lists(
        st.builds(
            Interaction,
            st.builds(RecordedRequest, st.sampled_from(["GET", "", "\ud800"]), uris),
            st.builds(
                RecordedResponse,
                st.integers(0, 999),
                headers=st.lists(headers, max_size=6).map(tuple),
            ),
            st.none() | st.datetimes(timezones=st.just(UTC)),
            st.none() | st.floats(),
        ),
        max_size=6,
    )


@pytest.mark.parametrize("n", [0, 1, 700])
def test_a_frame_has_the_same_columns_however_many_readings_there_are(n: int) -> None:
    """Columns and dtypes are as documented, with no readings too."""
    frame = frame_readings([reading(i) for i in range(n)])

    assert list(frame) == NAMES.split()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    assert len(frame) == n
    assert isinstance(frame.index, pd.RangeIndex)


def test_a_row_holds_what_its_reading_says() -> None:
    """Each value is where it belongs."""
    row = frame_readings([reading(2, source="replayed", cassette="tour")]).iloc[0]

    assert row["at"] == pd.Timestamp("2026-11-21 12:00:02", tz="UTC")
    assert (row["limit"], row["remaining"], row["reset"], row["status"]) == (300, 298, 58, 200)
    assert (row["source"], row["cassette"], row["elapsed_s"]) == ("replayed", "tour", 0.03)


def test_what_is_missing_is_missing_in_the_row() -> None:
    """Malformed headers are <NA> and their problem is told; an unknown time is NaT."""
    odd = reading(limit=None, reset=None, elapsed_s=None, problem="X is missing", at=math.nan)

    row = frame_readings([odd, reading()]).iloc[0]

    assert row[["at", "limit", "reset", "reset_at", "elapsed_s", "cassette"]].isna().all()
    assert (row["remaining"], row["problem"]) == (300, "X is missing")


@pytest.mark.parametrize(
    ("unit", "reset", "expected"),
    [
        ("seconds_left", 60, NOON_S + 60),
        ("milliseconds_left", 1500, NOON_S + 1.5),
        ("epoch_s", int(NOON_S) + 9, NOON_S + 9),
        ("epoch_ms", int(NOON_S * 1000) + 9, NOON_S + 0.009),
    ],
)
def test_the_renewal_follows_a_stated_unit(unit: str, reset: int, expected: float) -> None:
    """A user who knows the unit has every renewal."""
    no_time = reading(reset=2**63 - 1)  # of which no calendar knows
    dated = reading(reset=None, reset_text="2026-11-21T12:01:00Z")
    frame = frame_readings([reading(reset=reset), no_time, dated], reset_unit=unit)  # type: ignore[arg-type]

    assert frame["reset_at"][0].timestamp() == pytest.approx(expected, abs=1e-6)
    assert pd.isna(frame["reset_at"][1])
    assert frame["reset_at"][2] == pd.Timestamp("2026-11-21 12:01:00", tz="UTC")
    assert frame.attrs["reset_unit"] == unit


def test_the_renewal_is_uncertain_until_the_readings_tell_its_unit() -> None:
    """When the unit becomes known, a new frame has the renewal of the old rows too."""
    log = ReadingLog([reading()])
    before = log.frame()
    for n, at in enumerate([0.0, 0.31, 1.43, 2.77, 4.21, 5.98, 7.13, 9.9, 12.47, 15.01]):
        log.append(reading(at=NOON_S + at, reset=math.ceil(60 - at), remaining=299 - n))
    after = log.frame()

    units = [frame.attrs["reset_unit"] for frame in (before, after)]
    assert units == ["undetermined", "seconds_left"]
    assert before["reset_at"].isna().all()
    assert after["reset_at"][0] == pd.Timestamp("2026-11-21 12:01:00", tz="UTC")


def test_a_frame_never_changes_by_itself() -> None:
    """What is appended later is in later frames alone, and each is whole."""
    log, frames = ReadingLog(reset_unit="seconds_left"), []
    for n in range(700):
        log.append(reading(n))
        frames.append(log.frame())

    whole = frame_readings([reading(n) for n in range(700)], reset_unit="seconds_left")
    assert list(map(len, frames)) == list(range(1, 701))
    for n in (1, 64, 65, 512, 513, 700):
        pd.testing.assert_frame_equal(frames[n - 1], whole[:n])


def test_changing_a_frame_changes_no_other() -> None:
    """A user's edit stays in the user's frame."""
    log = ReadingLog([reading(n) for n in range(10)])
    mine = log.frame()
    mine.loc[:, "limit"] = 1
    mine.loc[3, "path"] = "/mine"
    mine["at"] += pd.Timedelta(days=1)
    mine.attrs["reset_unit"] = "mine"
    log.append(reading(10))
    fresh = log.frame()

    assert fresh["limit"].eq(300).all()
    assert fresh["path"].eq("/v1/users/me").all()
    assert fresh["at"][0].timestamp() == NOON_S
    assert fresh.attrs["reset_unit"] == "seconds_left"


def test_any_number_of_threads_may_append_and_look() -> None:
    """No reading is lost, and each frame is whole."""
    log = ReadingLog()

    def work(thread: int) -> None:
        for n in range(500):
            log.append(reading(n, path=f"/{thread}"))
            if n % 50 == 0:
                assert log.frame()["path"].notna().all()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))

    assert log.frame()["path"].value_counts().to_dict() == {f"/{n}": 500 for n in range(8)}


@pytest.mark.parametrize("n", [0, 3])
def test_a_frame_survives_parquet(n: int, tmp_path: Path) -> None:
    """Columns, dtypes and the unit are kept, whatever is missing or malformed."""
    odd = reading(limit=None, reset=None, problem="X is missing", elapsed_s=None, at=math.nan)
    frame = frame_readings([odd, reading(1), reading(2)][:n], reset_unit="seconds_left")
    frame.to_parquet(tmp_path / "readings.parquet")
    kept = pd.read_parquet(tmp_path / "readings.parquet")

    pd.testing.assert_frame_equal(kept, frame)
    assert kept.attrs == {"reset_unit": "seconds_left"}


@pytest.mark.slow
@given(hostile_interactions(), st.none() | st.sampled_from(list(SCALES)))
@settings(max_examples=300, deadline=None)
def test_any_recorded_answers_give_a_frame_and_verdicts(
    interactions: list[Interaction], unit: ResetUnit | None
) -> None:
    """Years, counts, dates and texts that no service sends are missing values, not exceptions."""
    readings = [recorded_reading(each, cassette="\udcff") for each in interactions]
    frame = frame_readings(readings, reset_unit=unit)

    assert len(frame) == len(interactions)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    assert check_contract(readings, reset_unit=unit)["responses"].min() >= 0


def test_a_cassette_gives_its_readings_without_being_replayed() -> None:
    """Times, paths below the base address and headers are the recording's."""
    row = read_readings(recorded("tour.yaml", answered(), base_url=f"{BASE_URL}/v1")).iloc[0]

    assert row["at"] == pd.Timestamp(NOON)
    assert row[["path", "status", "limit", "remaining", "reset"]].tolist() == [
        "/users/me", 200, 300, 299, 42,
    ]  # fmt: skip
    assert row[["elapsed_s", "source", "cassette"]].tolist() == [0.042, "recorded", "tour"]
