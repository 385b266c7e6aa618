"""Readings: parsed strictly and without exceptions, and collected in a frame."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from cassette_samples import NOON, answered
from hypothesis import given, strategies as st
from reading_samples import NOON_S, reading as sample

import directmail_lab as dm
from directmail_lab.errors import ServiceError
from directmail_lab.questions.contract_check import check_contract
from directmail_lab.readings.frame import frame_of
from directmail_lab.readings.reading import (
    Reading,
    parse_counts,
    raw_values,
    reading_of,
    seconds_of,
)
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.clients.refusals import check
from directmail_lab.sessions.session import Session

TEXTS = dict.fromkeys(("method", "path", "operation", "source", "cassette", "problem"), "string")
COUNTS = dict.fromkeys(("limit", "remaining", "reset", "cassette_number"), "Int64")
TIMES = dict.fromkeys(("at", "reset_at"), "datetime64[us, UTC]")
DTYPES = TEXTS | COUNTS | TIMES | {"status": "int64", "elapsed_s": "float64"}


def reading(n: int = 0, **changes: Any) -> Reading:
    """Return the n-th reading of a 60 s window, with some values changed."""
    in_turn = {"remaining": 300 - n % 300, "reset": 60 - n % 60}
    return sample(**{"at": NOON_S + n, **in_turn, **changes})


# Two headers and the times are missing.
ODD = reading(limit=None, reset=None, elapsed_s=None, at=math.nan)


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


@pytest.mark.parametrize("n", [0, 1, 700])
def test_a_frame_has_the_same_columns_however_many_readings_there_are(n):
    frame = frame_of([reading(i) for i in range(n)], unit="undetermined")

    assert dtypes(frame) == DTYPES
    assert (frame.index.name, frame.index.tolist()) == ("number", list(range(1, n + 1)))


def test_a_row_contains_the_values_of_its_reading():
    one = reading(2, source="replayed", cassette="tour", cassette_number=9, path="/v1/lists/12")
    frame = frame_of([one, ODD], unit="seconds_left")
    row, missing = frame.loc[1], frame.loc[2]
    unknown = ["at", "limit", "reset", "reset_at", "elapsed_s", "cassette", "cassette_number"]

    assert row["at"] == pd.Timestamp("2026-11-21 12:00:02", tz="UTC")
    assert row[["path", "operation"]].tolist() == ["/v1/lists/12", "/v1/lists/{id}"]
    assert row[["status", "limit", "remaining", "reset"]].tolist() == [200, 300, 298, 58]
    assert row[["elapsed_s", "source"]].tolist() == [0.03, "replayed"]
    assert row[["cassette", "cassette_number"]].tolist() == ["tour", 9]
    assert missing[unknown].isna().all()
    assert missing["problem"] == "X-RateLimit-Limit is missing; X-RateLimit-Reset is missing"


def test_a_reading_and_its_interaction_have_the_same_time():
    """So `rate_limits` and `interactions` can be merged by ``at``, which is in microseconds."""
    clock_s = [NOON_S + n * 0.1234567 for n in range(200)]
    times = frame_of([reading(at=each) for each in clock_s], unit="undetermined")["at"]

    assert times.tolist() == [datetime.fromtimestamp(each, UTC) for each in clock_s]


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
def test_the_renewal_time_depends_on_the_unit(unit, reset, expected):
    """Neither a date nor a number beyond any calendar is a time in any unit."""
    far, dated = reading(reset=2**63 - 1), reading(reset="2026-11-21T12:01:00Z")
    frame = frame_of([reading(reset=reset), far, dated], unit=unit)

    times = [None if pd.isna(at) else round(at.timestamp(), 3) for at in frame["reset_at"]]
    assert times == [expected, None, None]
    assert frame["reset"].tolist() == [reset, 2**63 - 1, pd.NA]
    assert frame.attrs["reset_unit"] == unit


def test_several_recordings_are_one_frame_and_keep_their_numbers_and_units(service, tmp_path):
    """The frame names a unit only if all recordings have the same one."""
    address, key = service.base_url, service.api_key
    with (
        Session(address, key, reset_unit="seconds_left") as first,
        Session(address, key, reset_unit="epoch_s") as second,
    ):
        for each in (first, first, second):
            each.me()
    both = dm.rate_limits([first, second])

    assert both["recording"].tolist() == ["session 1", "session 1", "session 2"]
    assert both.index.tolist() == [1, 2, 1]
    assert both["reset_at"].isna().tolist() == [False, False, True]
    assert both.attrs["reset_unit"] == "undetermined"
    assert dm.rate_limits([first, first]).attrs["reset_unit"] == "seconds_left"
    assert dtypes(both) == dtypes(dm.rate_limits(tmp_path)) == {"recording": "string", **DTYPES}


@pytest.mark.parametrize("n", [0, 3])
def test_a_frame_survives_parquet(n, tmp_path):
    frame = frame_of([ODD, reading(1), reading(2)][:n], unit="seconds_left")
    frame.to_parquet(tmp_path / "readings.parquet")
    kept = pd.read_parquet(tmp_path / "readings.parquet")

    pd.testing.assert_frame_equal(kept, frame)
    assert kept.attrs == {"reset_unit": "seconds_left"}


LIMIT, REMAINING, RESET = "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"
GOOD = [(LIMIT, "300"), (REMAINING, "299"), (RESET, "60")]
HTTP_DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
HTTP_DATE_S = 784_111_777.0


def read(*headers: tuple[Any, Any], at: float = 1000.0) -> Reading:
    return Reading(at, "GET", "/v1/lists/12", 200, raw_values(headers))


def parsed(reading: Reading) -> tuple[int | None, int | None, int | None, str | None]:
    return tuple(parse_counts(reading.raw[:3]))


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_headers_are_read_in_any_case(change):
    reading = read(*[(change(name), value) for name, value in GOOD])

    assert parsed(reading) == (300, 299, 60, None)
    assert reading.operation == "/v1/lists/{id}"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        *((text, "is not an integer") for text in ("", "+5", "-", "5.", "1_000", "٣", "-٣")),
        *((text, "is not an integer") for text in ("-5", "5.0")),
        *((text, "is too large") for text in (str(2**63), "9" * 5000)),
        (HTTP_DATE, "is a date"),
        ("5, 6", "has several values"),
    ],
)
def test_a_malformed_value_is_a_problem_and_leaves_the_others(value, fault):
    assert parsed(read(*GOOD[:2], (RESET, value))) == (300, 299, None, f"{RESET} {fault}")


@pytest.mark.parametrize("value", [" 60", "60\t ", "0060", "0" * 5000 + "60"])
def test_an_integer_is_read_whatever_stands_around_it(value):
    """Whitespace around a value is not part of it (RFC 9110), and leading zeros do not count."""
    assert parsed(read(*GOOD[:2], (RESET, value))) == (300, 299, 60, None)


def test_repeated_missing_or_contradictory_headers_are_a_problem():
    """Repeated values are ambiguous, so they are dropped; contradicting numbers are kept."""
    more = read((LIMIT, "5"), (REMAINING, "6"), (RESET, "1"))

    assert parsed(read(*GOOD, (RESET, "60")))[2:] == (None, f"{RESET} has several values")
    assert read().problem == f"{LIMIT} is missing; {REMAINING} is missing; {RESET} is missing"
    assert parsed(more) == (5, 6, 1, f"{REMAINING} is larger than {LIMIT}")


@pytest.mark.parametrize("text", [HTTP_DATE, "Sunday, 06-Nov-94 08:49:37 GMT"])
def test_dates_are_read_in_each_form_of_http(text):
    """HTTP dates have three forms (RFC 9110)."""
    assert seconds_of(text) == HTTP_DATE_S


@pytest.mark.parametrize(
    ("value", "at", "served_at", "expected"),
    [
        (" 120", 0.0, None, 120.0),
        (HTTP_DATE, HTTP_DATE_S - 23.0, None, 23.0),
        (HTTP_DATE, HTTP_DATE_S + 5.0, None, 0.0),
        (HTTP_DATE, 0.0, "Sun, 06 Nov 1994 08:49:30 GMT", 7.0),
        ("1.5", 0.0, None, 1.5),
        ("1.", 0.0, None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(value, at, served_at, expected):
    """Seconds are used as they are. A date is relative to the service's Date, if it sent one."""
    date = [("Date", served_at)] if served_at else []

    assert read(*GOOD, ("Retry-After", value), *date, at=at).retry_after_s == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from([LIMIT, REMAINING, RESET, "Retry-After", "Date", "Other"]),
            st.one_of(st.text(max_size=40), st.integers().map(str), st.datetimes().map(str)),
        ),
        max_size=8,
    )
)
def test_reading_any_headers_does_not_raise(headers):
    reading = read(*headers)
    *counts, problem = parsed(reading)

    assert (None in counts) <= (problem is not None)
    assert all(count is None or 0 <= count < 2**63 for count in counts)
    assert (reading.retry_after_s or 0) >= 0
    assert reading.served_at is None or math.isfinite(reading.served_at)


def test_a_reading_shows_no_value_that_a_service_sent():
    """The service may repeat the key in any header."""
    reading = read(*GOOD[:2], (RESET, "k3y"), ("Retry-After", "k3y"))

    assert repr(reading) == "<Reading GET /v1/lists/12 200>"
    assert "k3y" not in str(reading.problem)


def test_a_recorded_response_gives_the_original_reading():
    reading = reading_of(answered(), "/users/me", cassette="tour")
    untimed = reading_of(replace(answered(), recorded_at=None), "/users/me")

    assert parsed(reading) == (300, 299, 42, None)
    assert (reading.at, reading.elapsed_s) == (NOON.timestamp(), 0.042)
    assert (reading.source, reading.cassette) == ("recorded", "tour")
    assert math.isnan(untimed.at)


def test_another_server_is_kept_apart_from_the_services_allowance(service, tmp_path):
    """One GET elsewhere changes neither the unit of Reset nor the operations, live or recorded."""
    here, path = (service.base_url, service.api_key), tmp_path / "tour.yaml"
    with stand_in(reset_unit="epoch_ms", limit=9) as other, Session(*here) as session:
        with session.record(path):
            for _ in range(6):
                session.get("/v1/users/me")
            session.get(f"{other.base_url}/v1/users/me", auth=None)
            session.get(f"{other.base_url}/v1/nothing", auth=None)
        with pytest.raises(ServiceError, match="so the key was not sent there") as refused:
            check(session.get(f"{other.base_url}/v1/users/me"), session.base_url)
        frames = [dm.rate_limits(each) for each in (session, path, [path])]

    for frame in frames:
        elsewhere = frame["operation"].str.startswith(other.base_url)
        others = frame[elsewhere]
        assert set(frame.loc[~elsewhere, "operation"]) == {"/v1/users/me"}
        assert set(others["operation"].str.removeprefix(other.base_url)) == {
            *("/v1/users/me", "/v1/nothing")
        }
        assert others["reset_at"].isna().all()
        assert check_contract(frame)["responses"].max() == len(frame) - len(others)
    assert refused.value.operation == f"GET {other.base_url}/v1/users/me"
    assert dm.findings(path).set_index("part").loc["other operations", "seen"] == ""
