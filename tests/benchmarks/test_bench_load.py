"""What opening a cassette costs.

Where the interactions are alike, as a poll's are: 40 times faster than vcrpy's YAML, twice as fast
as its JSON, and faster than cassetter.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import recorded
from polled import BASE_URL, alike, different
from vcr.serialize import deserialize
from vcr.serializers import jsonserializer, yamlserializer

from directmail_lab.cassettes import Cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from pytest_benchmark.fixture import BenchmarkFixture

    from directmail_lab.interaction import Interaction

    Make = Callable[[int], list[Interaction]]

pytestmark = [
    pytest.mark.benchmark(timer=time.process_time),
    pytest.mark.parametrize("make", [alike, different]),
]

# cassetter writes a file of 4,000 such requests that it then refuses to load.
SIZE = 1000


def grouped(benchmark: BenchmarkFixture, make: Make) -> None:
    benchmark.group = f"load of {SIZE:,}, {make.__name__}"
    benchmark.extra_info["interactions"] = SIZE


def test_ours(benchmark: BenchmarkFixture, tmp_path: Path, make: Make) -> None:
    """The line layout."""
    grouped(benchmark, make)
    path = recorded(tmp_path / "ours.yaml", *make(SIZE))
    benchmark.pedantic(Cassette, [path], {"redactor": Redactor(), "base_url": BASE_URL}, rounds=30)


@pytest.mark.parametrize("serializer", [yamlserializer, jsonserializer])
def test_vcrpy(benchmark: BenchmarkFixture, make: Make, serializer: ModuleType) -> None:
    """Its own block layout and its JSON, by its own parsers."""
    grouped(benchmark, make)
    text = block_text(make(SIZE), metadata={}, as_json=serializer is jsonserializer)
    requests, _ = benchmark.pedantic(deserialize, [text, serializer], rounds=5)

    assert len(requests) == SIZE


def test_cassetter(
    cassetter: ModuleType, benchmark: BenchmarkFixture, tmp_path: Path, make: Make
) -> None:
    """A file of its own making."""
    grouped(benchmark, make)
    writing = cassetter.Cassette(tmp_path / "theirs.yaml", record_mode=cassetter.RecordMode.ALL)
    writing.load()
    for each in make(SIZE):
        asked, answer = each.request, each.response
        sent, received = ({n: [v] for n, v in each.headers} for each in (asked, answer))
        writing.record(
            *(asked.method, asked.uri, sent, asked.body), *(answer.status, received, answer.body)
        )
    writing.save()

    def load() -> Any:
        cassette = cassetter.Cassette(
            tmp_path / "theirs.yaml", record_mode=cassetter.RecordMode.NONE
        )
        cassette.load()
        return cassette

    assert len(benchmark.pedantic(load, rounds=5)) == SIZE
