"""What a response said: its headers are read strictly, and never with an exception."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from cassette_samples import NOON, answered
from hypothesis import given, strategies as st

from directmail_lab.readings.reading import Reading, parse_date, raw_values, reading_of

LIMIT, REMAINING, RESET = "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"
SOUND = [(LIMIT, "300"), (REMAINING, "299"), (RESET, "60")]
HTTP_DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
HTTP_DATE_S = 784_111_777.0


def read(*headers: tuple[Any, Any], at: float = 1000.0) -> Reading:
    """Read headers as those of one response."""
    return Reading(at, "GET", "/v1/lists/12", 200, raw_values(headers))


def with_reset(value: str) -> Reading:
    """Read a sound response but for its Reset."""
    return read(*SOUND[:2], (RESET, value))


def test_sound_headers_are_read_without_a_problem() -> None:
    """All three are integers, and the path becomes its operation."""
    reading = read(*SOUND)

    assert (reading.limit, reading.remaining, reading.reset) == (300, 299, 60)
    assert (reading.problem, reading.operation) == (None, "/v1/lists/{id}")


def test_names_are_read_in_any_case_and_bytes_as_texts() -> None:
    """HTTP header names have no case, and httpx keeps bytes."""
    for change in (str.lower, str.upper, str.title):
        assert read(*((change(name), value) for name, value in SOUND)) == read(*SOUND)

    in_bytes = read(*((name.encode(), value.encode()) for name, value in SOUND))
    assert in_bytes.parse() == read(*SOUND).parse() == (300, 299, 60, None)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "is not an integer"),
        ("-5", "is negative"),
        ("+5", "is not an integer"),
        ("5.0", "is not an integer"),
        ("1_000", "is not an integer"),
        ("٣", "is not an integer"),
        ("5, 6", "is not an integer"),
        (str(2**63), "is too large"),
        ("9" * 5000, "is too large"),
        (HTTP_DATE, "is an HTTP date"),
        ("2026-11-21T04:00:00Z", "is an ISO 8601 date"),
    ],
)
def test_a_malformed_value_is_a_problem_and_leaves_the_others(value: str, fault: str) -> None:
    """The row says what is wrong with one header, and the two others are read."""
    reading = with_reset(value)

    assert (reading.reset, reading.problem) == (None, f"{RESET} {fault}")
    assert (reading.limit, reading.remaining) == (300, 299)


@pytest.mark.parametrize("value", [" 60", "60\t ", "0060", "0" * 5000 + "60"])
def test_an_integer_is_read_whatever_stands_around_it(value: str) -> None:
    """Whitespace around a field value is no part of it (RFC 9110), nor do leading zeros count."""
    reading = with_reset(value)

    assert (reading.reset, reading.problem) == (60, None)


def test_a_header_sent_repeatedly_or_not_at_all_is_a_problem() -> None:
    """Which of them counts is not known."""
    reading = read(*SOUND, (RESET, "60"))

    assert (reading.reset, reading.problem) == (None, f"{RESET} was sent 2 times")
    assert read().problem == (f"{LIMIT} is missing; {REMAINING} is missing; {RESET} is missing")


def test_more_remaining_than_allowed_is_a_problem_and_both_are_kept() -> None:
    """The numbers are sound, and contradict one another."""
    reading = read((LIMIT, "5"), (REMAINING, "6"), (RESET, "1"))

    assert (reading.limit, reading.remaining) == (5, 6)
    assert reading.problem == f"{REMAINING} is larger than {LIMIT}"


def test_a_reset_that_is_a_date_is_kept_as_text() -> None:
    """It is no integer, and can be used all the same."""
    assert with_reset(f" {HTTP_DATE}").reset_text == HTTP_DATE
    assert with_reset("soon").reset_text is None


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (HTTP_DATE, "http_date"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "http_date"),
        ("Sun Nov  6 08:49:37 1994", "http_date"),
        ("1994-11-06T08:49:37Z", "iso_text"),
        ("1994-11-06T09:49:37+01:00", "iso_text"),
        ("1994-11-06 08:49:37", "iso_text"),
    ],
)
def test_dates_are_read_in_each_form(text: str, form: str) -> None:
    """The three forms of RFC 9110, and ISO 8601, which is UTC where it does not say."""
    assert parse_date(text) == (form, HTTP_DATE_S)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" 120", 120.0),
        (HTTP_DATE, 23.0),
        ("-1", None),
        ("1.5", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str, expected: float | None) -> None:
    """Seconds are as they are; a date counts from when the response came."""
    reading = read(*SOUND, ("Retry-After", value), at=HTTP_DATE_S - 23.0)

    assert (reading.retry_after_s, reading.problem) == (expected, None)


@pytest.mark.parametrize(
    ("date_s", "at", "expected"), [(-7.0, 0.0, 7.0), (None, HTTP_DATE_S + 5.0, 0.0)]
)
def test_a_retry_after_date_counts_by_the_clock_that_wrote_it(
    date_s: float | None, at: float, expected: float
) -> None:
    """The service's, where it sent its Date; one that is over asks for no wait."""
    date = [] if date_s is None else [("Date", "Sun, 06 Nov 1994 08:49:30 GMT")]

    assert read(*SOUND, ("Retry-After", HTTP_DATE), *date, at=at).retry_after_s == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from([LIMIT, REMAINING, RESET, "Retry-After", "Date", "Other"]),
            st.one_of(st.text(max_size=40), st.integers().map(str), st.datetimes().map(str)),
        ),
        max_size=8,
    )
)
def test_no_headers_raise(headers: list[tuple[str, str]]) -> None:
    """Whatever a header holds, each property has a value; what was not read has a problem."""
    reading = read(*headers)
    names = ("retry_after_s", "reset_text", "served_at", "limit", "remaining", "reset")
    *_, limit, remaining, reset = [getattr(reading, name) for name in names]

    assert reading.parse() == (limit, remaining, reset, reading.problem)
    assert (None in (limit, remaining, reset)) <= (reading.problem is not None)
    assert limit is None or 0 <= limit < 2**63


def test_a_reading_shows_no_value_that_a_service_sent() -> None:
    """It may send the key back in any header."""
    reading = read(*SOUND[:2], (RESET, "k3y"), ("Retry-After", "k3y"))

    assert repr(reading) == "<Reading GET /v1/lists/12 200>"
    assert "k3y" not in str(reading.problem)


def test_a_recorded_response_gives_the_reading_that_it_gave() -> None:
    """At the time of its recording, with its number in the cassette."""
    reading = reading_of(answered(), "/users/me", cassette="tour", cassette_number=7)
    untimed = reading_of(replace(answered(), recorded_at=None), "/users/me")

    assert reading.parse() == (300, 299, 42, None)
    assert (reading.at, reading.elapsed_s) == (NOON.timestamp(), 0.042)
    assert (reading.source, reading.cassette, reading.cassette_number) == ("recorded", "tour", 7)
    assert math.isnan(untimed.at)
