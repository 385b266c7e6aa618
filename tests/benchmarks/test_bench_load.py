"""Opening our cassettes takes at most 1/40 of vcrpy's time, and vcrpy's at most 1.05 of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from cassette_samples import recorded, theirs
from polled import BASE_URL, alike, different
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from directmail_lab.exchange.values import Interaction

    Make = Callable[[int], list[Interaction]]

pytestmark = [
    pytest.mark.benchmark(timer=time.process_time),
    pytest.mark.parametrize("make", [alike, different]),
    pytest.mark.parametrize("size", [100, 1000]),
]


def grouped(benchmark: BenchmarkFixture, make: Make, size: int) -> None:
    benchmark.group = f"load of {size:,}, {make.__name__}"


def test_our_line_layout(
    benchmark: BenchmarkFixture, tmp_path: Path, make: Make, size: int
) -> None:
    """Our line layout."""
    grouped(benchmark, make, size)
    benchmark.extra_info.update(on_top_of="test_vcrpy", at_most_times=1 / 40)
    path = recorded(tmp_path / "ours.yaml", *make(size))
    benchmark.pedantic(Cassette, [path], {"redactor": Redactor(), "base_url": BASE_URL}, rounds=30)


def test_vcrpys_layout_with_our_reader(
    benchmark: BenchmarkFixture, tmp_path: Path, make: Make, size: int
) -> None:
    """Another program's file, by our reader."""
    grouped(benchmark, make, size)
    benchmark.extra_info.update(on_top_of="test_vcrpy", at_most_times=1.05)
    path = theirs(tmp_path / "theirs.yaml", *make(size))

    assert len(benchmark.pedantic(read_cassette, [path], rounds=5)) == size


def test_vcrpy(benchmark: BenchmarkFixture, make: Make, size: int) -> None:
    """vcrpy's own block layout and parser."""
    grouped(benchmark, make, size)
    text = block_text(make(size), metadata={})
    requests, _ = benchmark.pedantic(deserialize, [text, yamlserializer], rounds=5)

    assert len(requests) == size
