"""What readings cost: making one at most 3 us on top of the response, a frame of 10,000 100 ms."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import httpx
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from directmail_lab.readings.frame import frame_of
from directmail_lab.readings.reading import Reading, raw_values

HEADERS: Final = [
    (b"Date", b"Sat, 21 Nov 2026 06:30:35 GMT"),
    (b"Content-Type", b"application/json"),
    (b"Content-Length", b"120"),
    (b"X-RateLimit-Limit", b"300"),
    (b"X-RateLimit-Remaining", b"299"),
    (b"X-RateLimit-Reset", b"59"),
    (b"Server", b"example"),
    (b"Connection", b"keep-alive"),
]


def read(headers: httpx.Headers, at: float = 0.0) -> Reading:
    return Reading(at, "GET", "/v1/users/me", 200, raw_values(headers.raw), 0.04)


@pytest.mark.benchmark(group="a response", timer=time.process_time)
def test_a_response(benchmark: BenchmarkFixture) -> None:
    """httpx's alone."""
    benchmark.pedantic(partial(httpx.Response, 200, headers=HEADERS), rounds=30, iterations=500)


@pytest.mark.benchmark(group="a response", timer=time.process_time)
def test_a_response_and_its_reading(benchmark: BenchmarkFixture) -> None:
    """And what is kept of it."""
    benchmark.extra_info.update(on_top_of="test_a_response", at_most_us=3)
    work = lambda: read(httpx.Response(200, headers=HEADERS).headers)  # noqa: E731
    benchmark.pedantic(work, rounds=30, iterations=500)


@pytest.mark.benchmark(group="frame of 10,000", timer=time.process_time)
def test_a_frame(benchmark: BenchmarkFixture) -> None:
    """The first one: nothing was parsed before."""
    headers = httpx.Headers(HEADERS)
    readings = [read(headers, 1_795_262_400.0 + number) for number in range(10_000)]
    frame = benchmark.pedantic(partial(frame_of, readings, unit="seconds_left"), rounds=10)

    assert len(frame) == 10_000
