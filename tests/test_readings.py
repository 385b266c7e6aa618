"""The log of readings, its frame, and the files that hold readings."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from directmail_lab.errors import DirectMailLabError
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.quota import Reading
from directmail_lab.readings import (
    ReadingLog,
    frame_of,
    load_readings,
    read_readings,
    readings_of,
    save_readings,
)

if TYPE_CHECKING:
    from pathlib import Path

NOON_S = 1_795_262_400.0
DTYPES = {
    "at": "datetime64[us, UTC]",
    "method": "string",
    "path": "string",
    "operation": "string",
    "status": "int64",
    "limit": "Int64",
    "remaining": "Int64",
    "reset": "Int64",
    "reset_at": "datetime64[us, UTC]",
    "elapsed_s": "float64",
    "source": "string",
    "cassette": "string",
    "problem": "string",
}


def reading(n: int = 0, **changes: object) -> Reading:
    """Return the n-th reading of a window of 60 s, changed as told."""
    plain = Reading(
        at=NOON_S + n,
        method="GET",
        path="/v1/users/me",
        operation="/v1/users/me",
        status=200,
        limit=300,
        remaining=300 - n % 300,
        reset=60 - n % 60,
        elapsed_s=0.02,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, 1, 700])
def test_a_frame_has_the_same_columns_however_many_readings_there_are(n: int) -> None:
    """Columns and dtypes are as documented, with no readings too."""
    frame = frame_of([reading(i) for i in range(n)])

    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    assert len(frame) == n
    assert isinstance(frame.index, pd.RangeIndex)


def test_a_row_holds_what_its_reading_says() -> None:
    """Each value is where it belongs."""
    row = frame_of([reading(2, source="replayed", cassette="tour")]).iloc[0]

    assert row["at"] == pd.Timestamp("2026-11-21 12:00:02", tz="UTC")
    assert (row["limit"], row["remaining"], row["reset"], row["status"]) == (300, 298, 58, 200)
    assert (row["source"], row["cassette"], row["elapsed_s"]) == ("replayed", "tour", 0.02)


def test_what_is_missing_is_missing_in_the_row() -> None:
    """Malformed headers are <NA> and their problem is told; an unknown time is NaT."""
    odd = reading(limit=None, reset=None, elapsed_s=None, problem="X is missing", at=math.nan)

    row = frame_of([odd, reading()]).iloc[0]

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
    frame = frame_of([reading(reset=reset)], reset_unit=unit)  # type: ignore[arg-type]

    assert frame["reset_at"][0].timestamp() == pytest.approx(expected, abs=1e-6)
    assert frame.attrs["reset_unit"] == unit


def test_a_renewal_that_no_calendar_has_is_missing() -> None:
    """The largest integer a header can hold is no time, in any unit."""
    frame = frame_of([reading(reset=2**63 - 1)], reset_unit="epoch_s")

    assert frame["reset_at"].isna().all()


def test_a_renewal_sent_as_a_date_needs_no_unit() -> None:
    """Dates tell by themselves, whatever is known of numbers."""
    frame = frame_of([reading(reset=None, reset_text="2026-11-21T12:01:00Z"), reading()])

    assert frame["reset_at"][0] == pd.Timestamp("2026-11-21 12:01:00", tz="UTC")
    assert pd.isna(frame["reset_at"][1])


def test_the_renewal_is_uncertain_until_the_readings_tell_its_unit() -> None:
    """When the unit becomes known, a new frame has the renewal of the old rows too."""
    log = ReadingLog([reading()])
    before = log.frame()
    moments = [0.0, 0.31, 1.43, 2.77, 4.21, 5.98, 7.13, 9.9, 12.47, 15.01]
    for n in moments:
        log.append(reading(at=NOON_S + n, reset=math.ceil(60 - n)))
    after = log.frame()

    assert (before.attrs["reset_unit"], after.attrs["reset_unit"]) == (
        "undetermined",
        "seconds_left",
    )
    assert before["reset_at"].isna().all()
    assert after["reset_at"][0] == pd.Timestamp("2026-11-21 12:01:00", tz="UTC")


def test_a_frame_never_changes_by_itself() -> None:
    """What is appended later is in later frames alone."""
    log = ReadingLog([reading(n) for n in range(10)])
    first = log.frame()
    kept = first.copy(deep=True)
    for n in range(2000):
        log.append(reading(n, remaining=1))

    pd.testing.assert_frame_equal(first, kept)
    assert len(log.frame()) == 2010


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
    assert fresh.attrs["reset_unit"] == "undetermined"


def test_a_frame_after_each_reading_shows_each_reading() -> None:
    """Growing through several sizes, no row is lost or moved."""
    log = ReadingLog()
    for n in range(700):
        log.append(reading(n))
        assert len(log.frame()) == n + 1

    pd.testing.assert_frame_equal(log.frame(), frame_of([reading(n) for n in range(700)]))


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


def test_since_gives_what_came_after() -> None:
    """A caller that kept the length gets the readings from there on."""
    log = ReadingLog([reading(n) for n in range(3)])
    length = len(log)
    log.append(reading(3))

    assert log.since(length) == [reading(3)]


def test_clear_forgets_all_but_the_stated_unit() -> None:
    """Frames that were given out stay as they were."""
    log = ReadingLog([reading()], reset_unit="seconds_left")
    before = log.frame()
    log.clear()

    assert (len(log), len(log.frame()), len(before)) == (0, 0, 1)
    assert log.frame().attrs["reset_unit"] == "seconds_left"


def test_a_stated_unit_that_the_readings_contradict_is_told() -> None:
    """A time in 2026 is no number of seconds left."""
    log = ReadingLog([reading(reset=int(NOON_S) + 60)], reset_unit="seconds_left")

    assert log.evidence().unit == "seconds_left"
    assert "row 0" in (log.evidence().contradiction or "")


def test_parquet_gives_back_the_same_readings(tmp_path: Path) -> None:
    """All fields survive, those beside the frame's columns too."""
    readings = [
        reading(1),
        reading(2, limit=None, problem="X is missing", elapsed_s=None),
        reading(3, reset=None, reset_text="2026-11-21T12:01:00Z", served_at=NOON_S),
        reading(4, status=429, retry_after_s=7.0, cassette="tour", source="replayed"),
    ]

    save_readings(readings, tmp_path / "log.parquet")

    assert load_readings(tmp_path / "log.parquet").since(0) == readings


def test_no_readings_survive_parquet_as_none(tmp_path: Path) -> None:
    """An empty log is a file with columns and no rows."""
    save_readings([], tmp_path / "log.parquet")

    assert len(load_readings(tmp_path / "log.parquet")) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop(columns="limit"),
        lambda frame: frame.assign(limit="many"),
        lambda frame: frame.assign(status=None),
        lambda frame: frame.assign(at="yesterday"),
        lambda frame: frame[[]].assign(a=1),
    ],
)
def test_a_parquet_file_of_another_shape_is_refused(change: object, tmp_path: Path) -> None:
    """The error names the file and says what is wrong with it."""
    file = tmp_path / "other.parquet"
    save_readings([reading()], file)
    change(pd.read_parquet(file)).to_parquet(file)  # type: ignore[operator]

    with pytest.raises(DirectMailLabError, match=r"other\.parquet is not a file of readings"):
        load_readings(file)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    """As is one that is not there."""
    file = tmp_path / "notes.txt"
    file.write_text("hello")

    with pytest.raises(DirectMailLabError, match="not a Parquet file"):
        load_readings(file)
    with pytest.raises(DirectMailLabError, match="no file"):
        load_readings(tmp_path / "nowhere.parquet")


def test_a_cassette_gives_its_readings_without_being_replayed(tmp_path: Path) -> None:
    """Times, paths below the base address and headers are the recording's."""
    cassette = tmp_path / "tour.yaml"
    cassette.write_text(
        "version: 1\n"
        'metadata: {"recorded_with": "x", "base_url": "https://api.example.test/eu"}\n'
        "interactions:\n"
        '- recorded_at: "2026-11-21T12:00:00.250000Z"\n'
        "  elapsed_s: 0.042\n"
        '  request: {"method": "GET", "uri": "https://api.example.test/eu/v1/users/me?a=1", '
        '"body": "", "headers": {}}\n'
        '  response: {"status": {"code": 200, "message": "OK"}, "headers": '
        '{"X-RateLimit-Limit": ["300"], "X-RateLimit-Remaining": ["299"], '
        '"X-RateLimit-Reset": ["60"]}, "body": {"string": "{}"}}\n'
    )

    row = read_readings(cassette).iloc[0]

    assert row["at"] == pd.Timestamp("2026-11-21 12:00:00.25", tz="UTC")
    assert (row["path"], row["limit"], row["remaining"], row["reset"]) == (
        "/v1/users/me",
        300,
        299,
        60,
    )
    assert (row["elapsed_s"], row["source"], row["cassette"]) == (0.042, "recorded", "tour")


def test_an_interaction_without_a_time_is_a_reading_without_one() -> None:
    """Cassettes of other writers keep no times."""
    interaction = Interaction(
        RecordedRequest("GET", "https://api.example.test/v1/users/me"), RecordedResponse(200)
    )
    timed = replace(interaction, recorded_at=datetime(2026, 11, 21, 12, tzinfo=UTC))

    frame = frame_of(readings_of([interaction, timed]))

    assert frame["at"].isna().tolist() == [True, False]
