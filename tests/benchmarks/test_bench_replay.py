"""A replayed request takes at most 1.25 times as long as one to a mock, at every size."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest
from cassette_samples import recorded
from polled import BASE_URL, different, mocked

from directmail_lab import Session
from directmail_lab.cassettes.vcr_files import block_text

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark(timer=time.process_time)

REQUESTS = 100
ALL = pytest.mark.parametrize("size", [100, 10_000, 100_000])


def ask(client: httpx.Client, size: int) -> None:
    """Send a hundred requests with different addresses, spread over the whole cassette."""
    for index in range(0, size, size // REQUESTS):
        assert client.get(f"{BASE_URL}/v1/lists/{index}?page={index}").status_code == 200


def grouped(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark.group = f"replay, {size:,}"
    benchmark.extra_info["requests"] = REQUESTS


@ALL
def test_mock(benchmark: BenchmarkFixture, size: int) -> None:
    """The baseline: httpx's own transport for tests."""
    grouped(benchmark, size)
    with httpx.Client(transport=mocked()) as client:
        benchmark.pedantic(ask, [client, size], rounds=50)


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@ALL
def test_ours(benchmark: BenchmarkFixture, tmp_path: Path, size: int, again: bool) -> None:
    """A session's own client. When it asks again, it gets the last response once more."""
    grouped(benchmark, size)
    benchmark.extra_info.update(on_top_of="test_mock", at_most_times=1.25)
    path = recorded(tmp_path / "ours.yaml", *different(size))
    with Session(BASE_URL) as session:

        def opened() -> tuple[tuple[httpx.Client, int], dict[str, object]]:
            session.replay(path)
            if again:
                ask(session.client, size)
            return (session.client, size), {}

        benchmark.pedantic(ask, setup=opened, rounds=50 if size < 100_000 else 10)


@pytest.mark.parametrize("library", ["vcr", "cassetter"])
def test_others(benchmark: BenchmarkFixture, tmp_path: Path, library: str) -> None:
    """These libraries play each interaction once, so each round opens the cassette again."""
    grouped(benchmark, REQUESTS)
    benchmark.extra_info["on_top_of"] = "test_mock"
    use_cassette = pytest.importorskip(library).use_cassette
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text(different(REQUESTS), metadata={}))
    with ExitStack() as cassette, httpx.Client() as client:

        def opened() -> tuple[tuple[httpx.Client, int], dict[str, object]]:
            cassette.close()
            cassette.enter_context(use_cassette(str(path), record_mode="none"))
            return (client, REQUESTS), {}

        benchmark.pedantic(ask, setup=opened, rounds=10)
