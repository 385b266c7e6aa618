"""What pacing costs while requests remain: nothing is waited for, so it is all overhead.

Run with ``pytest tests/benchmarks/test_bench_pacing.py``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx

from directmail_lab.pacing import PacingTransport
from directmail_lab.quota import Reading

if TYPE_CHECKING:
    from collections.abc import Callable


N = 5_000
REQUEST = httpx.Request("GET", "https://api.example.test/v1/users/me")


class Answering:
    """Answers at once, with an allowance that never ends."""

    def __init__(self) -> None:
        now = time.time()
        self.reading = Reading(now, "GET", "/", "/", 200, 300, 299, 60, elapsed_s=0.01)

    def handle_request(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200, extensions={"directmail_lab.reading": self.reading})

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


def cost_us(run: Callable[[], object]) -> float:
    """Return the fewest microseconds of processor time a request."""
    times = []
    for _ in range(9):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times) / N * 1e6


def test_pacing_costs_at_most_20_us_a_request(report: Callable[[str], None]) -> None:
    """In a thread, beside the same transport without pacing."""
    bare = Answering()
    paced = PacingTransport(bare)

    def send(transport: Answering | PacingTransport) -> None:
        for _ in range(N):
            transport.handle_request(REQUEST)

    extra = cost_us(lambda: send(paced)) - cost_us(lambda: send(bare))
    report(f"pacing: {extra:.1f} us a request (at most 20)")

    assert extra <= 20.0


def test_pacing_costs_at_most_20_us_a_request_in_a_task(report: Callable[[str], None]) -> None:
    """In a task, beside the same transport without pacing."""
    bare = Answering()
    paced = PacingTransport(bare)

    async def send(transport: Answering | PacingTransport) -> None:
        for _ in range(N):
            await transport.handle_async_request(REQUEST)

    extra = cost_us(lambda: asyncio.run(send(paced))) - cost_us(lambda: asyncio.run(send(bare)))
    report(f"pacing in a task: {extra:.1f} us a request (at most 20)")

    assert extra <= 20.0
