"""What a recorded request costs, the durable append and the search for the key included.

At most 100 us on top of plain httpx where the answers are alike; and the hundred-thousandth no more
than the first.
"""

from __future__ import annotations

import itertools
import time
import tracemalloc
from typing import TYPE_CHECKING

import httpx
import pytest
from polled import BASE_URL, BODY, KEY, ME, polled

from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark(timer=time.process_time)


def answering(varied: bool) -> httpx.MockTransport:
    """Return what answers the same each time, as a poll has it, or another body, id and number."""
    headers, numbers = dict(polled().response.headers), itertools.count()

    def answer(_: httpx.Request) -> httpx.Response:
        number = next(numbers) if varied else 1
        headers["X-RateLimit-Remaining"] = str(300 - number % 300)
        headers["X-Request-Id"] = f"{number:08x}-ceea-467f-a9f4-3d1b2c4e5f60"
        body = BODY.replace(b'"n": 1', b'"n": %d' % number)
        # As a stream, as from the network, so that plain httpx has it to read too.
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))

    return httpx.MockTransport(answer)


ANSWERS = pytest.mark.parametrize("varied", [False, True], ids=["alike", "different"])


@ANSWERS
def test_plain_httpx(benchmark: BenchmarkFixture, varied: bool) -> None:
    """Nothing is recorded."""
    benchmark.group = f"recording, {'different' if varied else 'alike'}"
    with httpx.Client(transport=answering(varied)) as client:
        benchmark.pedantic(client.get, [ME], rounds=15, iterations=500)


@ANSWERS
def test_ours(
    benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varied: bool
) -> None:
    """A session's own client: each interaction is in the file when the caller has the response."""
    benchmark.group = f"recording, {'different' if varied else 'alike'}"
    bound = {} if varied else {"at_most_us": 100}
    benchmark.extra_info.update(on_top_of="test_plain_httpx", **bound)
    answers = answering(varied)
    monkeypatch.setattr(httpx, "HTTPTransport", lambda **_: answers)
    with (
        Session(BASE_URL, ApiKey(KEY), share=None) as session,
        session.record(tmp_path / "tour.yaml"),
    ):
        benchmark.pedantic(session.client.get, [ME], rounds=15, iterations=500)


@pytest.mark.parametrize("size", [0, 95_000])
def test_recording_into_a_cassette_of(
    benchmark: BenchmarkFixture, tmp_path: Path, size: int
) -> None:
    """Recording does not slow down, and what is recorded takes no memory."""
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
