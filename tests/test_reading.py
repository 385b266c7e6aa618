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
GOOD = [(LIMIT, "300"), (REMAINING, "299"), (RESET, "60")]
HTTP_DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
HTTP_DATE_S = 784_111_777.0


def read(*headers: tuple[Any, Any], at: float = 1000.0) -> Reading:
    """Read headers as those of one response."""
    return Reading(at, "GET", "/v1/lists/12", 200, raw_values(headers))


def parsed(reading: Reading) -> tuple[int | None, int | None, int | None, str | None]:
    return reading.limit, reading.remaining, reading.reset, reading.problem


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title, str.encode])
def test_headers_are_read_in_any_case_as_texts_and_as_bytes(change: Any) -> None:
    """HTTP header names have no case, and httpx keeps bytes."""
    values = [change(value) if change is str.encode else value for _, value in GOOD]
    reading = read(*zip([change(name) for name, _ in GOOD], values, strict=True))

    assert parsed(reading) == (300, 299, 60, None)
    assert reading.operation == "/v1/lists/{id}"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        *((text, "is not an integer") for text in ("", "-5", "+5", "5.0", "1_000", "٣")),
        *((text, "is too large") for text in (str(2**63), "9" * 5000)),
        *((text, "is a date") for text in (HTTP_DATE, "2026-11-21T04:00:00Z")),
        ("5, 6", "has several values"),
    ],
)
def test_a_malformed_value_is_a_problem_and_leaves_the_others(value: str, fault: str) -> None:
    """The row says what is wrong with one header, and the two others are read."""
    assert parsed(read(*GOOD[:2], (RESET, value))) == (300, 299, None, f"{RESET} {fault}")


@pytest.mark.parametrize("value", [" 60", "60\t ", "0060", "0" * 5000 + "60"])
def test_an_integer_is_read_whatever_stands_around_it(value: str) -> None:
    """Whitespace around a field value is no part of it (RFC 9110), nor do leading zeros count."""
    assert parsed(read(*GOOD[:2], (RESET, value))) == (300, 299, 60, None)


def test_headers_that_are_sent_repeatedly_or_not_at_all_or_contradict_are_a_problem() -> None:
    """Which of several values counts is not known; numbers that contradict are kept."""
    more = read((LIMIT, "5"), (REMAINING, "6"), (RESET, "1"))

    assert parsed(read(*GOOD, (RESET, "60")))[2:] == (None, f"{RESET} has several values")
    assert read().problem == f"{LIMIT} is missing; {REMAINING} is missing; {RESET} is missing"
    assert parsed(more) == (5, 6, 1, f"{REMAINING} is larger than {LIMIT}")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        *((text, "http_date") for text in (HTTP_DATE, "Sunday, 06-Nov-94 08:49:37 GMT")),
        *((text, "iso_text") for text in ("1994-11-06T09:49:37+01:00", "1994-11-06 08:49:37")),
    ],
)
def test_dates_are_read_in_each_form_and_a_reset_that_is_one_is_kept(text: str, form: str) -> None:
    """The three forms of RFC 9110, and ISO 8601, which is UTC where it does not say."""
    assert parse_date(text) == (form, HTTP_DATE_S)
    assert read((RESET, f" {text}")).reset_text == text
    assert read((RESET, "soon")).reset_text is None


@pytest.mark.parametrize(
    ("value", "at", "served_at", "expected"),
    [
        (" 120", 0.0, None, 120.0),
        (HTTP_DATE, HTTP_DATE_S - 23.0, None, 23.0),
        (HTTP_DATE, HTTP_DATE_S + 5.0, None, 0.0),
        (HTTP_DATE, 0.0, "Sun, 06 Nov 1994 08:49:30 GMT", 7.0),
        ("1.5", 0.0, None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(
    value: str, at: float, served_at: str | None, expected: float | None
) -> None:
    """Seconds are as they are; a date counts by the service's clock where it sent its Date."""
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
def test_no_headers_raise(headers: list[tuple[str, str]]) -> None:
    """Whatever a header holds, each property has a value; what was not read has a problem."""
    reading = read(*headers)
    *counts, problem = parsed(reading)

    assert (None in counts) <= (problem is not None)
    assert all(count is None or 0 <= count < 2**63 for count in counts)
    assert (reading.retry_after_s or 0) >= 0
    assert reading.served_at is None or math.isfinite(reading.served_at)


def test_a_reading_shows_no_value_that_a_service_sent() -> None:
    """It may send the key back in any header."""
    reading = read(*GOOD[:2], (RESET, "k3y"), ("Retry-After", "k3y"))

    assert repr(reading) == "<Reading GET /v1/lists/12 200>"
    assert "k3y" not in str(reading.problem)


def test_a_recorded_response_gives_the_reading_that_it_gave() -> None:
    """At the time of its recording."""
    reading = reading_of(answered(), "/users/me", cassette="tour")
    untimed = reading_of(replace(answered(), recorded_at=None), "/users/me")

    assert parsed(reading) == (300, 299, 42, None)
    assert (reading.at, reading.elapsed_s) == (NOON.timestamp(), 0.042)
    assert (reading.source, reading.cassette) == ("recorded", "tour")
    assert math.isnan(untimed.at)
