"""What pacing costs while requests remain: nothing is waited for, so it is all overhead.

At most 20 us a request on top of the same transport without pacing, and 150 us where the allowance
is shared: by one, two or eight processes, and all but this one send fifty requests a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from reading_samples import raw

from directmail_lab.credentials import ApiKey
from directmail_lab.pacing import Allowances, PacingTransport
from directmail_lab.pacing.shared import Share
from directmail_lab.readings.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Event

    from pytest_benchmark.fixture import BenchmarkFixture

    from directmail_lab.transports import Transport


class Answering:
    """Answers at once, with an allowance that never ends."""

    def handle_request(self, _: httpx.Request) -> httpx.Response:
        reading = Reading(time.time(), "GET", "/", 200, raw(), elapsed_s=0.0)
        return httpx.Response(200, extensions={"directmail_lab.reading": reading})

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
    benchmark.pedantic(send, [PacingTransport(Answering(), Allowances())], rounds=40)


def sharing() -> Transport:
    """Return the same, with an allowance that this machine's sessions share."""
    key = ApiKey("hk_of_the_benchmark")
    shared = Share("machine").open(key, "https://api.example.test", time.time)
    return PacingTransport(Answering(), Allowances(shared=shared))


def keep_sending(over: Event) -> None:
    transport = sharing()
    while not over.wait(0.02):
        transport.handle_request(REQUEST)


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_shared(
    benchmark: BenchmarkFixture, send: Callable[[Transport], None], processes: int
) -> None:
    """The same where other processes share the allowance."""
    grouped(benchmark, send)
    benchmark.extra_info.update(on_top_of="test_unpaced", at_most_us=150)
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    others = [context.Process(target=keep_sending, args=[over]) for _ in range(processes - 1)]
    for other in others:
        other.start()
    try:
        benchmark.pedantic(send, [sharing()], rounds=5)
    finally:
        over.set()
        for other in others:
            other.join()
