"""What a replayed request costs: at most 1.35 times one that a function answers, at every size."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest
from cassette_samples import recorded
from polled import BASE_URL, BODY, ME, alike, mocked

from directmail_lab import Session
from directmail_lab.cassettes.vcr_files import block_text

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark(timer=time.process_time)

ALL = pytest.mark.parametrize("size", [100, 1000, 10_000, 100_000])


def grouped(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark.group = f"replay, {size:,}"
    benchmark.extra_info["interactions"] = size


@ALL
def test_mock(benchmark: BenchmarkFixture, size: int) -> None:
    """What httpx has for tests."""
    grouped(benchmark, size)
    with httpx.Client(transport=mocked()) as client:
        response = benchmark.pedantic(client.get, [ME], rounds=15, iterations=500)

    assert response.content == BODY


@ALL
def test_ours(benchmark: BenchmarkFixture, tmp_path: Path, size: int) -> None:
    """A session's own client: it gives the last answer again when all were given."""
    grouped(benchmark, size)
    with Session(BASE_URL) as session:
        session.replay(recorded(tmp_path / "ours.yaml", *alike(size)))
        response = benchmark.pedantic(session.client.get, [ME], rounds=15, iterations=500)

    assert response.content == BODY


@pytest.mark.parametrize("size", [100, 1000])  # vcrpy's time grows with the cassette
@pytest.mark.parametrize("library", ["vcr", "cassetter"])
def test_others(benchmark: BenchmarkFixture, tmp_path: Path, size: int, library: str) -> None:
    """They play each interaction once, and pytest-benchmark asks for one more than it times."""
    grouped(benchmark, size)
    use_cassette = pytest.importorskip(library).use_cassette
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text(alike(size), metadata={}))
    with use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        response = benchmark.pedantic(client.get, [ME], iterations=size - 1)

    assert response.content == BODY
