"""What readings cost: observing a response, a million rows, and a frame after each response.

Run with ``pytest tests/benchmarks/test_bench_readings.py``. Each figure is the best of several
rounds, so that what else the machine does counts little; the bounds are those of the issue.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pandas as pd
import pytest

from directmail_lab.quota import Reading, read_headers
from directmail_lab.readings import ReadingLog
from directmail_lab.transports import ObservingTransport

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("default")

START = 1_795_262_400.0
RAW = [
    (b"Date", b"Sat, 21 Nov 2026 06:30:35 GMT"),
    (b"Content-Type", b"application/json"),
    (b"Content-Length", b"120"),
    (b"X-RateLimit-Limit", b"300"),
    (b"X-RateLimit-Remaining", b"299"),
    (b"X-RateLimit-Reset", b"59"),
    (b"Server", b"example"),
    (b"Connection", b"keep-alive"),
]


def best_of(run: Callable[[], object], rounds: int) -> float:
    """Return the fewest seconds of processor time that a run took."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def readings(n: int) -> list[Reading]:
    """Return readings of one window after the other."""
    return [
        Reading(
            START + i, "GET", "/v1/users/me", "/v1/users/me", 200, 300, 300 - i % 60, 60 - i % 60
        )
        for i in range(n)
    ]


def test_observing_a_response_costs_at_most_5_us(report: Callable[[str], None]) -> None:
    """Reading the headers and appending to the log, columns and inference included."""
    n = 20_000

    def observe() -> None:
        log = ReadingLog()
        for i in range(n):
            log.append(
                read_headers(
                    RAW, at=START + i, method="GET", path="/v1/users/me", status=200, elapsed_s=0.1
                )
            )

    cost_us = best_of(observe, 9) / n * 1e6
    report(f"observing a response: {cost_us:.1f} us (at most 5)")

    assert cost_us <= 5.0


def test_a_million_readings_are_a_frame_as_fast_as_ready_columns_are(
    report: Callable[[str], None],
) -> None:
    """The log's columns are ready: its frame costs no more than building one of arrays."""
    n = 1_000_000
    log = ReadingLog(readings(n))
    times = pd.date_range("2026-11-21", periods=n, freq="s", tz="UTC", unit="us")
    numbers = pd.array(np.arange(n), dtype="Int64")
    texts = pd.array(np.full(n, "/v1/users/me", dtype=object), dtype="string")
    ready = {
        "at": times,
        **dict.fromkeys(("method", "path", "operation"), texts),
        "status": np.arange(n),
        **dict.fromkeys(("limit", "remaining", "reset"), numbers),
        "reset_at": times,
        "elapsed_s": np.zeros(n),
        **dict.fromkeys(("source", "cassette", "problem"), texts),
    }

    ours, theirs = best_of(log.frame, 3), best_of(lambda: pd.DataFrame(ready), 3)
    report(
        f"1,000,000 readings to a frame: {ours * 1e3:.1f} ms, ready columns {theirs * 1e3:.1f} ms"
    )

    assert len(log.frame()) == n
    assert ours <= 1.5 * theirs


def test_a_frame_after_each_response_costs_at_most_twice(report: Callable[[str], None]) -> None:
    """100,000 responses through a client and a look at all of them each time, or each 1,000th."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=RAW)

    def session(n: int, every: int) -> float:
        log = ReadingLog()
        transport = ObservingTransport(httpx.MockTransport(answer), log.append)
        with httpx.Client(transport=transport, base_url="https://api.example.test") as client:
            started = time.process_time()
            for i in range(n):
                client.get("/v1/users/me")
                if i % every == 0:
                    log.frame()
            return time.process_time() - started

    n = 100_000
    seldom, each = session(n, 1000), session(n, 1)
    report(
        f"a frame after each of {n} responses: {each / n * 1e6:.0f} us a response, "
        f"each 1,000th: {seldom / n * 1e6:.0f} us; {each / seldom:.2f} times"
    )

    assert each <= 2 * seldom


def test_a_frame_after_each_reading_costs_no_more_when_there_are_many(
    report: Callable[[str], None],
) -> None:
    """Without any client: the hundred-thousandth frame costs what the thousandth did."""

    def look(log: ReadingLog) -> float:
        new = readings(500)
        started = time.process_time()
        for reading in new:
            log.append(reading)
            log.frame()
        return (time.process_time() - started) / len(new)

    few = min(look(ReadingLog(readings(1_000))) for _ in range(5))
    log = ReadingLog(readings(100_000))
    many = min(look(log) for _ in range(5))
    report(f"a reading and a frame: {few * 1e6:.0f} us of 1,000, {many * 1e6:.0f} us of 100,000")

    assert many <= 1.5 * few
