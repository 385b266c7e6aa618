"""What readings cost.

Observing a response at most 10 us; the frame of a million at most 1.5 times `pandas.DataFrame` of
ready columns; a frame after each of 100,000 responses at most twice one after each 1,000th.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import httpx
import numpy as np
import pandas as pd
import pytest
from directmail_lab.readings.log import ReadingLog

from directmail_lab.readings.reading import Reading
from directmail_lab.transports import Observer, ObservingTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    Send = Callable[[httpx.BaseTransport], Callable[[], object]]

ME: Final = "https://api.example.test/v1/users/me"
MILLION: Final = 1_000_000
RESPONSES: Final = 100_000
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


def mocked() -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(200, headers=HEADERS))


def by_transport(transport: httpx.BaseTransport) -> Callable[[], object]:
    return partial(transport.handle_request, httpx.Request("GET", ME))


def by_client(transport: httpx.BaseTransport) -> Callable[[], object]:
    return partial(httpx.Client(transport=transport).get, ME)


def reading(number: int) -> Reading:
    """Return one of a series: one window after the other."""
    at, left = 1_795_262_400.0 + number, number % 60
    return Reading(at, "GET", "/v1/users/me", "/v1/users/me", 200, 300, 300 - left, 60 - left)


WAYS = pytest.mark.parametrize("send", [by_transport, by_client])


@WAYS
@pytest.mark.benchmark(timer=time.process_time)
def test_unobserved(benchmark: BenchmarkFixture, send: Send) -> None:
    """The mock alone."""
    benchmark.group = f"observing, {send.__name__}"
    benchmark.pedantic(send(mocked()), rounds=30, iterations=500)


@WAYS
@pytest.mark.benchmark(timer=time.process_time)
def test_observed(benchmark: BenchmarkFixture, send: Send) -> None:
    """The mock and a log, whose inference is brought up as it grows."""
    benchmark.group = f"observing, {send.__name__}"
    benchmark.extra_info.update(on_top_of="test_unobserved", at_most_us=10)
    transport = ObservingTransport(mocked(), Observer(ReadingLog().append))
    benchmark.pedantic(send(transport), rounds=30, iterations=500)


@pytest.mark.benchmark(group="frame of 1,000,000", timer=time.process_time)
def test_ready_columns(benchmark: BenchmarkFixture) -> None:
    """What pandas takes where there is nothing to convert."""
    times = pd.date_range("2026-11-21", periods=MILLION, freq="s", tz="UTC", unit="us")
    numbers = pd.array(np.arange(MILLION), dtype="Int64")
    texts = pd.array(np.full(MILLION, "/v1/users/me", dtype=object), dtype="string")
    ready = {
        "at": times,
        **dict.fromkeys(("method", "path", "operation"), texts),
        "status": np.arange(MILLION),
        **dict.fromkeys(("limit", "remaining", "reset"), numbers),
        "reset_at": times,
        "elapsed_s": np.zeros(MILLION),
        **dict.fromkeys(("source", "cassette", "problem"), texts),
    }

    assert len(benchmark.pedantic(pd.DataFrame, [ready], rounds=10)) == MILLION


@pytest.mark.benchmark(group="frame of 1,000,000", timer=time.process_time)
def test_ours(benchmark: BenchmarkFixture) -> None:
    """The log's frame, each time with a reading that the last one did not have."""
    log = ReadingLog(reading(number) for number in range(MILLION))
    log.frame()
    frame = benchmark.pedantic(log.frame, setup=lambda: log.append(reading(0)), rounds=10)

    assert len(frame) == len(log) > MILLION


@pytest.mark.benchmark(group="100,000 responses", timer=time.process_time)
@pytest.mark.parametrize("every", [1000, 1])
def test_a_frame_after_each(benchmark: BenchmarkFixture, every: int) -> None:
    """A look at all of them each time costs at most twice as much as one now and then."""
    log = ReadingLog()
    benchmark.extra_info.update(responses=RESPONSES, frames=RESPONSES // every)

    def session() -> None:
        with httpx.Client(transport=ObservingTransport(mocked(), Observer(log.append))) as client:
            for number in range(RESPONSES):
                client.get(ME)
                if number % every == 0:
                    log.frame()

    benchmark.pedantic(session)

    assert len(log) == RESPONSES


@pytest.mark.benchmark(group="a reading and a frame", timer=time.process_time)
@pytest.mark.parametrize("held", [1000, 100_000])
def test_a_frame_of(benchmark: BenchmarkFixture, held: int) -> None:
    """A frame after each reading costs no more when there are many."""
    log = ReadingLog(reading(number) for number in range(held))
    log.frame()
    benchmark.extra_info["readings"] = held

    def look() -> None:
        log.append(reading(held))
        log.frame()

    benchmark.pedantic(look, rounds=5, iterations=500)
