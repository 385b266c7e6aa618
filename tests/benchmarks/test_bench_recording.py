"""What a session costs on top of plain httpx, with a service in another process.

The time includes writing to the file and scanning for the key. The hundred-thousandth recorded
request costs no more than the first.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from polled import KEY, polled

from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.redaction import Redactor
from directmail_lab.standin import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark(timer=time.process_time)

REQUESTS: Final = 300
# For each case: the session's options, whether it records, and the limit in microseconds per
# request.
ROWS: Final[dict[str, tuple[dict[str, Any], bool, int]]] = {
    "live, unpaced": ({"pace": "off"}, False, 80),
    "live, default options": ({}, False, 220),
    "recorded, unpaced": ({"pace": "off"}, True, 150),
}


def serve(pipe: Connection) -> None:
    with stand_in(limit=10**9, limits={}) as service:
        pipe.send((service.base_url, service.api_key))
        pipe.recv()


@pytest.fixture(scope="module")
def account() -> Iterator[tuple[str, str]]:
    """The address and the key of a service in another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=[theirs])
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join()


def measure(benchmark: BenchmarkFixture, client: httpx.Client) -> None:
    """Time requests that all have different addresses."""
    numbers = itertools.count()

    def send() -> None:
        for _ in range(REQUESTS):
            client.get(f"/v1/users/me?n={next(numbers)}")

    benchmark.group = "a request"
    benchmark.extra_info["requests"] = REQUESTS
    benchmark.pedantic(send, rounds=7, warmup_rounds=1)


def test_plain_httpx(benchmark: BenchmarkFixture, account: tuple[str, str]) -> None:
    """The baseline: nothing is paced, kept or recorded."""
    base_url, key = account
    with httpx.Client(base_url=base_url, auth=(key, "")) as client:
        measure(benchmark, client)


@pytest.mark.parametrize("row", ROWS)
def test_ours(
    benchmark: BenchmarkFixture, account: tuple[str, str], tmp_path: Path, row: str
) -> None:
    """The session's own client writes each interaction before the caller gets the response."""
    options, records, at_most_us = ROWS[row]
    benchmark.extra_info.update(on_top_of="test_plain_httpx", at_most_us=at_most_us)
    with Session(*account, **options) as session:
        if records:
            session.record(tmp_path / "tour.yaml")
        measure(benchmark, session.client)


@pytest.mark.parametrize("size", [0, 95_000])
def test_recording_into_a_cassette_of(
    benchmark: BenchmarkFixture, tmp_path: Path, size: int
) -> None:
    """Recording must not become slower with the size of the cassette, nor use memory."""
    benchmark.group = "recording 5,000 more"
    path, one = tmp_path / "tour.yaml", polled()
    with Cassette(path, record_mode="all", redactor=Redactor([KEY])) as cassette:
        for _ in range(size):
            cassette.record(one)
        benchmark.pedantic(cassette.record, [one], rounds=10, iterations=500)
        tracemalloc.start()
        for _ in range(1000):
            cassette.record(one)
        grown_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    recorded = len(read_cassette(path))
    benchmark.extra_info.update(interactions=recorded, bytes_each=grown_bytes / 1000)

    assert grown_bytes < 100_000
    assert recorded > size + 1000
