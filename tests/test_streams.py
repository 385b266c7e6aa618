"""Bodies that stream while a session records: the caller gets each part as it comes."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from client_service import ClientService
from test_clients import leading as led

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.errors import CassetteError
from directmail_lab.exchange.values import LEFT
from directmail_lab.questions.interactions import interactions
from directmail_lab.sessions.session import Session
from directmail_lab.settings import NO_ADDRESS

Take = Callable[[bytes], bool]
"""Takes a part of a body, and returns whether the caller reads on."""


def by_httpx(url: str, take: Take, timeout_s: float) -> None:
    with httpx.Client(timeout=timeout_s) as client, client.stream("GET", url) as response:
        for part in response.iter_bytes():
            if not take(part):
                return


def by_httpx_async(url: str, take: Take, timeout_s: float) -> None:
    async def read() -> None:
        async with (
            httpx.AsyncClient(timeout=timeout_s) as client,
            client.stream("GET", url) as response,
        ):
            async for part in response.aiter_bytes():
                if not take(part):
                    return

    asyncio.run(read())


READERS: dict[str, Callable[[str, Take, float], None]] = {
    "httpx": by_httpx,
    "httpx async": by_httpx_async,
}


class Reader:
    """Reads bodies with one client, and keeps what it read."""

    def __init__(self, name: str) -> None:
        self._read = READERS[name]
        self.parts: list[bytes] = []

    def read(
        self, url: str, *, then: Callable[[], object] = int, most: int = 10**9, timeout_s: float = 5
    ) -> bytes:
        """Return a body, or its first parts. ``then`` is called after the first part."""
        self.parts.clear()

        def take(part: bytes) -> bool:
            self.parts.append(part)
            if len(self.parts) == 1:
                then()
            return len(self.parts) < most

        self._read(url, take, timeout_s)
        return b"".join(self.parts)


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    """Read with each client."""
    return Reader(request.param)


@pytest.fixture
def service() -> Iterator[ClientService]:
    """A service with streams."""
    with ClientService() as started:
        yield started


@contextmanager
def leading(path: Path, mode: str) -> Iterator[Session]:
    """Lead the clients that are made in the block through a session."""
    with Session(NO_ADDRESS) as session, led(session):
        getattr(session, mode)(path)
        yield session


def test_the_parts_of_a_recorded_stream_come_as_they_are_sent(
    reader: Reader, service: ClientService, tmp_path: Path
) -> None:
    """The service sends the second event only after the caller has the first."""
    path, url = tmp_path / "events.yaml", f"{service.base_url}/v1/events"
    service.goes_on.clear()
    with leading(path, "record"):
        recorded = reader.read(url, then=service.goes_on.set)
        kept = read_cassette(path).interaction(1)
    with leading(path, "replay"):
        replayed = reader.read(url)

    assert recorded == replayed == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert (kept.response.body, kept.response.incomplete) == (recorded, "")


def test_a_timeout_is_for_each_part(reader: Reader, service: ClientService, tmp_path: Path) -> None:
    """Five events 0.3 s apart take longer than a timeout of 1.2 s."""
    with leading(tmp_path / "slow.yaml", "record"):
        body = reader.read(f"{service.base_url}/v1/slow", timeout_s=1.2)

    assert body.count(b"data: ") == 5


def test_a_stream_that_its_caller_leaves_is_recorded_as_far_as_it_was_read(
    reader: Reader, service: ClientService, tmp_path: Path
) -> None:
    """An endless stream returns after three parts; its replay has them, and then the end."""
    path, url = tmp_path / "endless.yaml", f"{service.base_url}/v1/endless"
    with leading(path, "record") as session:
        read = reader.read(url, most=3)
        problems = interactions(session)["problem"].tolist()
    kept = read_cassette(path).interaction(1).response
    with leading(path, "replay"), pytest.warns(UserWarning, match="GET /v1/endless: the recording"):
        replayed = reader.read(url)

    assert kept.incomplete == LEFT
    assert kept.body.startswith(read)
    assert replayed == kept.body
    assert problems == interactions(path)["problem"].tolist()
    assert problems == ["aborted before the end of the response"]


def test_what_arrived_before_a_connection_broke_is_replayed_with_the_error(
    reader: Reader, service: ClientService, tmp_path: Path
) -> None:
    """The caller gets the same parts, then httpx's error."""
    path, url = tmp_path / "cut.yaml", f"{service.base_url}/v1/cut"

    def outcome() -> tuple[type, str, bytes]:
        with pytest.raises(httpx.HTTPError) as caught:
            reader.read(url)
        return caught.type, str(caught.value), b"".join(reader.parts)

    with leading(path, "record"):
        recorded = outcome()
    kept = read_cassette(path).interaction(1).response
    with leading(path, "replay"):
        replayed = outcome()

    assert recorded == replayed
    assert recorded[2] == b"only this"
    assert (kept.status, kept.body, kept.broke_off) == (200, b"only this", "protocol_error")


@pytest.mark.parametrize("size", [20, 20_000, 2_000_000])
def test_bodies_of_each_size_are_recorded_and_replayed(
    reader: Reader, service: ClientService, tmp_path: Path, size: int
) -> None:
    """It is on disk before the caller sees the end."""
    path, url = tmp_path / "sized.yaml", f"{service.base_url}/v1/sized-{size}"
    with leading(path, "record"):
        recorded = reader.read(url)
        written = read_cassette(path).interaction(1).response.body
    with leading(path, "replay"):
        replayed = reader.read(url)

    assert len(recorded) == size
    assert hashlib.sha256(recorded).digest() == hashlib.sha256(written).digest()
    assert recorded == replayed


@pytest.mark.parametrize("path", ["/v1/events", "/v1/sized-20000"])
def test_a_body_that_cannot_be_written_is_an_error_before_its_end(
    reader: Reader,
    service: ClientService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    """A caller must not take a response for recorded that is not."""

    def full(*_: object) -> None:
        raise CassetteError("The disk is full.", "Make room.")

    monkeypatch.setattr(Cassette, "record", full)
    with leading(tmp_path / "full.yaml", "record"), pytest.raises(CassetteError, match="is full"):
        reader.read(f"{service.base_url}{path}")


@pytest.mark.slow
def test_a_download_of_200_mb_takes_no_more_memory_than_the_limit(
    service: ClientService, tmp_path: Path
) -> None:
    """The caller gets it all; the cassette has its size."""
    path, size = tmp_path / "large.yaml", 200 * 1024**2
    read = 0

    def take(part: bytes) -> bool:
        nonlocal read
        read += len(part)
        return True

    with leading(path, "record"):
        tracemalloc.start()
        by_httpx(f"{service.base_url}/v1/sized-{size}", take, 30.0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert read == size
    assert peak < 100 * 1024**2
    assert read_cassette(path).interaction(1).response.body == b"<not recorded: %d bytes>" % size


def test_x_gzip_is_gzip(service: ClientService, tmp_path: Path) -> None:
    """The older name of the coding (RFC 9110) is stored decompressed, too."""
    path = tmp_path / "packed.yaml"
    with leading(path, "record"):
        httpx.get(f"{service.base_url}/v1/x-packed")
    kept = read_cassette(path).interaction(1).response
    with leading(path, "replay"):
        replayed = httpx.get(f"{service.base_url}/v1/x-packed").text

    assert replayed == kept.body.decode() == "a,b\n" * 999
