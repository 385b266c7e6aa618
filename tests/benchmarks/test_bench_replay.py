"""What a replayed request costs: at most 1.35 times one that a function answers, at every size."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest
import vcr
from polled import BASE_URL, BODY, ME, alike, mocked, write

from directmail_lab import Session
from directmail_lab.cassettes.vcr_files import block_text

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark(timer=time.process_time)

ALL = pytest.mark.parametrize("size", [100, 1000, 10_000, 100_000])
# vcrpy's time grows with the cassette.
FEW = pytest.mark.parametrize("size", [100, 1000])


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
        session.replay(write(tmp_path / "ours.yaml", alike(size)))
        response = benchmark.pedantic(session.client.get, [ME], rounds=15, iterations=500)

    assert response.content == BODY


@FEW
def test_vcrpy(benchmark: BenchmarkFixture, tmp_path: Path, size: int) -> None:
    """It plays each interaction once, and pytest-benchmark asks for one more than it times."""
    grouped(benchmark, size)
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text(alike(size), metadata={}))
    with vcr.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        response = benchmark.pedantic(client.get, [ME], iterations=size - 1)

    assert response.content == BODY


@FEW
def test_cassetter(
    cassetter: ModuleType, benchmark: BenchmarkFixture, tmp_path: Path, size: int
) -> None:
    """It too plays each interaction once."""
    grouped(benchmark, size)
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text(alike(size), metadata={}))
    with cassetter.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        response = benchmark.pedantic(client.get, [ME], iterations=size - 1)

    assert response.content == BODY
