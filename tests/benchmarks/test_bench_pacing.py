"""What pacing costs while requests remain: nothing is waited for, so it is all overhead.

At most 20 us a request on top of the same transport without pacing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from directmail_lab.pacing import Pacer, PacingTransport
from directmail_lab.quota import Reading
from directmail_lab.reset_unit import ResetUnitInference

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from directmail_lab.transports import Transport


class Answering:
    """Answers at once, with an allowance that never ends."""

    def __init__(self) -> None:
        now = time.time()
        self.reading = Reading(now, "GET", "/", "/", 200, 300, 299, 60, elapsed_s=0.01)

    def handle_request(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200, extensions={"directmail_lab.reading": self.reading})

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


REQUEST = httpx.Request("GET", "https://api.example.test/v1/users/me")
REQUESTS = 1000


def in_a_thread(transport: Transport) -> None:
    for _ in range(REQUESTS):
        transport.handle_request(REQUEST)


def in_a_task(transport: Transport) -> None:
    async def send() -> None:
        for _ in range(REQUESTS):
            await transport.handle_async_request(REQUEST)

    asyncio.run(send())


pytestmark = [
    pytest.mark.benchmark(timer=time.process_time),
    pytest.mark.parametrize("send", [in_a_thread, in_a_task]),
]


def grouped(benchmark: BenchmarkFixture, send: Callable[[Transport], None]) -> None:
    benchmark.group = f"pacing of {REQUESTS:,}, {send.__name__}"
    benchmark.extra_info["requests"] = REQUESTS


def test_unpaced(benchmark: BenchmarkFixture, send: Callable[[Transport], None]) -> None:
    """The transport below alone."""
    grouped(benchmark, send)
    benchmark.pedantic(send, [Answering()], rounds=40)


def test_paced(benchmark: BenchmarkFixture, send: Callable[[Transport], None]) -> None:
    """The same below the pacing transport."""
    grouped(benchmark, send)
    benchmark.extra_info.update(on_top_of="test_unpaced", at_most_us=20)
    benchmark.pedantic(send, [PacingTransport(Answering(), Pacer(ResetUnitInference()))], rounds=40)
