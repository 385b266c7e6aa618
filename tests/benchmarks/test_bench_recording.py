"""What a recorded request costs on top of a plain one, the durable append included."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import httpx
import pytest
from measuring import BASE_URL, BODY, KEY, ME, NOISE, in_turns_us, polled

from directmail_lab.cassettes import open_cassette, read_cassette
from directmail_lab.redaction import Redactor
from directmail_lab.transports import CassetteTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def alike() -> Callable[[httpx.Request], httpx.Response]:
    """Return what answers the same each time, as a poll has it."""
    headers = dict(polled().response.headers)
    # The body comes as a stream, as from the network, so that plain httpx has it to read too.
    return lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(BODY))


def different() -> Callable[[httpx.Request], httpx.Response]:
    """Return what answers with another body, id and remaining each time."""
    headers, numbers = dict(polled().response.headers), itertools.count()

    def answer(_: httpx.Request) -> httpx.Response:
        number = next(numbers)
        headers["X-RateLimit-Remaining"] = str(300 - number % 300)
        headers["X-Request-Id"] = f"{number:08x}-ceea-467f-a9f4-3d1b2c4e5f60"
        body = BODY.replace(b'"n": 1', b'"n": %d' % number)
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))

    return answer


@pytest.mark.parametrize("make", [alike, different])
def test_recording(
    tmp_path: Path,
    report: Callable[[str], None],
    make: Callable[[], Callable[[httpx.Request], httpx.Response]],
) -> None:
    """At most 60 us where the answers are alike, the search for the key included."""
    network = httpx.MockTransport(make())
    cassette = open_cassette(
        tmp_path / "tour.yaml", record_mode="all", redactor=Redactor([KEY]), base_url=BASE_URL
    )
    transport = CassetteTransport(cassette, network, base_url=BASE_URL)

    with (
        cassette,
        httpx.Client(transport=transport) as client,
        httpx.Client(transport=network) as plain,
    ):
        ours, theirs = in_turns_us(lambda: client.get(ME), lambda: plain.get(ME), count=1000)
    report(
        f"recording one, {make.__name__}: {ours - theirs:.1f} us on top of plain httpx (60), "
        f"{ours / theirs:.2f} of it"
    )

    assert make is different or ours - theirs <= 60 * NOISE


def test_recording_a_hundred_thousand(tmp_path: Path, report: Callable[[str], None]) -> None:
    """The last thousand take no longer than the first, and memory does not grow."""
    path, one = tmp_path / "tour.yaml", polled()
    cassette = open_cassette(path, record_mode="new_episodes", redactor=Redactor([KEY]))

    def five_thousand() -> float:
        return in_turns_us(lambda: cassette.record(one), count=1000, rounds=5)[0]

    first = five_thousand()
    tracemalloc.start()
    for _ in range(1000):
        cassette.record(one)
    grown_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    for _ in range(89_000):
        cassette.record(one)
    last = five_thousand()
    cassette.close()
    report(
        f"recording 100,000: {first:.1f} us each at first, {last:.1f} us at last; "
        f"{grown_bytes / 1000:.0f} bytes of memory each"
    )

    assert last <= first * NOISE
    assert grown_bytes < 100_000
    assert len(read_cassette(path).interactions) == 100_000
