"""Replay, load and recording beside httpx's mock, vcrpy and (where installed) cassetter.

Run with ``pytest tests/benchmarks/test_bench_cassettes.py``. N requests are N identical ones, as
``me()`` is polled: a record of 200 bytes and the three headers. Each figure is the best of several
rounds, so that what else the machine does counts little; the bounds are those of the issue.
"""

from __future__ import annotations

import gc
import importlib.util
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import vcr
from cassette_samples import BASE_URL, NoRedaction, answered, get
from vcr.serialize import deserialize
from vcr.serializers import jsonserializer, yamlserializer

from directmail_lab.cassettes import open_cassette, read_cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.redaction import Redactor
from directmail_lab.transports import CassetteTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from directmail_lab.interaction import Interaction

ME: Final = f"{BASE_URL}/v1/users/me"
BODY: Final = (b'{"id": "usr_8f14e45f", "name": "Ada Lovelace", "note": "' + b"n" * 200)[
    :198
] + b'"}'
SIZES: Final = (100, 10_000, 100_000)
ROUNDS: Final = 7
needs_cassetter = pytest.mark.skipif(
    importlib.util.find_spec("cassetter") is None, reason="cassetter is in the bench extra"
)


def polled() -> Interaction:
    """Return what one poll of the record is."""
    headers = tuple(httpx.Client().build_request("GET", ME).headers.multi_items())
    return answered(replace(get(), headers=headers), BODY)


@pytest.fixture(scope="module")
def cassettes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A cassette of each size in the line layout."""
    folder, one = tmp_path_factory.mktemp("bench"), polled()
    paths = {size: folder / f"{size}.yaml" for size in SIZES}
    for size, path in paths.items():
        with open_cassette(
            path, record_mode="all", redactor=NoRedaction(), base_url=BASE_URL
        ) as cassette:
            for _ in range(size):
                cassette.record(one)
    return paths


def best_us(action: Callable[[], object], count: int, rounds: int = ROUNDS) -> float:
    """Return the microseconds that one of ``count`` actions takes in the best round."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        for _ in range(count):
            action()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def paired_us(
    one: Callable[[], object], other: Callable[[], object], count: int
) -> tuple[float, float]:
    """Return the best of two actions, their rounds in turns: the machine's load hits both."""
    pairs = [(best_us(one, count, 1), best_us(other, count, 1)) for _ in range(ROUNDS)]
    return min(first for first, _ in pairs), min(second for _, second in pairs)


def mock_transport() -> httpx.MockTransport:
    """Return what has a function answer: the least that an answer can cost."""
    headers = dict(polled().response.headers)
    return httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=BODY))


def mock_client() -> httpx.Client:
    """Return a client whose requests a function answers."""
    return httpx.Client(transport=mock_transport())


@pytest.mark.parametrize("size", SIZES)
def test_replay(
    benchmark: Any, cassettes: dict[int, Path], report: Callable[[str], None], size: int
) -> None:
    """A replayed request costs at most 1.25 times one that a mock answers, at every size."""
    cassette = open_cassette(cassettes[size], redactor=Redactor(["sk_bench_0123456789"]))
    transport = CassetteTransport(cassette, base_url=BASE_URL)

    with httpx.Client(transport=transport) as client, mock_client() as mock:
        benchmark.pedantic(client.get, (ME,), rounds=5, iterations=10)
        ours_us, mock_us = paired_us(lambda: client.get(ME), lambda: mock.get(ME), 300)

    report(f"replay at {size:>7,}: {ours_us:6.1f} µs, {ours_us / mock_us:.2f} of httpx's mock")
    assert ours_us / mock_us <= 1.25


@pytest.mark.parametrize("size", [100, 1000])
def test_replay_under_vcrpy(
    benchmark: Any, tmp_path: Path, report: Callable[[str], None], size: int
) -> None:
    """The same under vcrpy, whose time grows with the cassette."""
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text([polled()] * size, metadata={}))

    with mock_client() as mock:
        mock_us = best_us(lambda: mock.get(ME), 300)
    with vcr.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        theirs_us = benchmark.pedantic(
            lambda: best_us(lambda: client.get(ME), size, 1), rounds=1, iterations=1
        )

    report(f"replay at {size:>7,}: {theirs_us:6.1f} µs, {theirs_us / mock_us:.1f} of it: vcrpy")


@needs_cassetter
@pytest.mark.parametrize("size", [100, 1000])
def test_replay_under_cassetter(
    benchmark: Any, tmp_path: Path, report: Callable[[str], None], size: int
) -> None:
    """The same under cassetter."""
    import cassetter

    path = tmp_path / "theirs.yaml"
    path.write_text(block_text([polled()] * size, metadata={}))

    with mock_client() as mock:
        mock_us = best_us(lambda: mock.get(ME), 300)
    with cassetter.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        theirs_us = benchmark.pedantic(
            lambda: best_us(lambda: client.get(ME), size, 1), rounds=1, iterations=1
        )

    report(f"replay at {size:>7,}: {theirs_us:6.1f} µs, {theirs_us / mock_us:.1f} of it: cassetter")


def test_load(benchmark: Any, cassettes: dict[int, Path], report: Callable[[str], None]) -> None:
    """An interaction is loaded 40 times faster than by vcrpy's YAML, and twice as by its JSON."""
    size, few = 10_000, 200
    path = cassettes[size]
    block = block_text([polled()] * few, metadata={})
    as_json = block_text([polled()] * few, metadata={}, as_json=True)

    def load() -> object:
        return open_cassette(path, redactor=NoRedaction(), base_url=BASE_URL)

    benchmark.pedantic(load, rounds=3)
    ours_us = best_us(load, 1) / size
    yaml_us = best_us(lambda: deserialize(block, yamlserializer), 1) / few
    json_us = best_us(lambda: deserialize(as_json, jsonserializer), 1) / few
    report(
        f"load of one: {ours_us:.1f} µs; vcrpy's YAML {yaml_us:.0f} µs ({yaml_us / ours_us:.0f} "
        f"times as long), its JSON {json_us:.0f} µs ({json_us / ours_us:.1f} times)"
    )
    assert yaml_us / ours_us >= 40
    assert json_us / ours_us >= 2


def test_load_of_requests_that_all_differ(
    benchmark: Any, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Where no two requests are equal, each has its own line to parse and its own key."""
    size, path = 10_000, tmp_path / "differ.yaml"
    with open_cassette(path, record_mode="all", redactor=NoRedaction()) as cassette:
        for index in range(size):
            cassette.record(answered(get(f"/v1/lists/{index}?page={index}"), BODY))

    def load() -> object:
        return open_cassette(path, redactor=NoRedaction(), base_url=BASE_URL)

    benchmark.pedantic(load, rounds=3)
    report(f"load of one, all different: {best_us(load, 1) / size:.1f} µs")


@pytest.mark.parametrize("redactor", [NoRedaction(), Redactor(["sk_bench_0123456789"])])
def test_recording(
    benchmark: Any, tmp_path: Path, report: Callable[[str], None], redactor: Any
) -> None:
    """What a recorded request costs on top of a plain one, the durable append included."""
    cassette = open_cassette(
        tmp_path / "tour.yaml", record_mode="all", redactor=redactor, base_url=BASE_URL
    )
    headers = dict(polled().response.headers)
    # The body comes as a stream, as from the network, so that plain httpx has it to read too.
    network = httpx.MockTransport(
        lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(BODY))
    )
    transport = CassetteTransport(cassette, network, base_url=BASE_URL)

    with (
        cassette,
        httpx.Client(transport=transport) as client,
        httpx.Client(transport=network) as plain,
    ):
        benchmark.pedantic(client.get, (ME,), rounds=5, iterations=10)
        ours_us, plain_us = paired_us(lambda: client.get(ME), lambda: plain.get(ME), 300)

    name = type(redactor).__name__
    report(f"recording one: {ours_us - plain_us:.1f} µs on top of plain httpx ({name})")
    assert ours_us - plain_us <= 60


def test_recording_a_hundred_thousand(
    benchmark: Any, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """The last thousand take no longer than the first, and memory does not grow."""
    path, one = tmp_path / "tour.yaml", polled()
    cassette = open_cassette(path, record_mode="new_episodes", redactor=NoRedaction())

    def record(count: int) -> float:
        return best_us(lambda: cassette.record(one), count // 5, 5)

    first_us = benchmark.pedantic(record, (5_000,), rounds=1)
    tracemalloc.start()
    for _ in range(1000):
        cassette.record(one)
    grown_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    for _ in range(89_000):
        cassette.record(one)
    last_us = record(5_000)
    cassette.close()

    report(
        f"recording 100,000: {first_us:.1f} µs each at first, {last_us:.1f} µs at last; "
        f"{grown_bytes / 1000:.0f} bytes of memory each"
    )
    assert last_us <= 1.5 * first_us
    assert grown_bytes < 100_000
    assert len(read_cassette(path).interactions) == 100_000
