"""httpx's clients over a session: the session's own, and those that the code under test makes.

Each test runs with synchronous and asynchronous clients, against a real server.
"""

import asyncio
import base64
import hashlib
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from client_service import KEY, ClientService
from key_search import traces

from directmail_lab.cassettes import Cassette, Policy, read_cassette
from directmail_lab.errors import (
    CassetteError,
    DirectMailLabError,
    NotRecordedError,
    WriteRefusedError,
)
from directmail_lab.exchange.values import header
from directmail_lab.pytest_plugin.patched import patched
from directmail_lab.questions.interactions import interactions
from directmail_lab.sessions.session import (
    Session,
    allow_recording_without_key,
    open_cassette,
    open_recording,
    transport_of,
)
from directmail_lab.settings import NO_ADDRESS

FAILURES = Policy(records_failures=True)
FILE = {"file": ("rows.csv", b"1|2", "text/csv")}
ROWS = b"name|city\n" * 10_000
KEY_PAIR = base64.b64encode(f"{KEY}:".encode()).decode()
PARTS = [ROWS[start : start + 999] for start in range(0, len(ROWS), 999)]
EVENTS = b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


class Answer(NamedTuple):
    """The parts of a response that the tests compare."""

    status: int
    body: bytes
    content_type: str
    url: str


class Blocking:
    """A client of httpx; ``cookies``, ``elapsed`` and ``parts`` are of the last response."""

    cookies: dict[str, str]
    elapsed: timedelta
    parts: list[bytes]

    def __init__(self, client: Any) -> None:
        self.client = client

    def send(self, method: str, url: str, **options: Any) -> Answer:
        return self._answer(self.client.request(method, url, **options))

    def upload(self, url: str) -> Answer:
        return self.send("POST", url, content=iter(PARTS))

    def read(
        self, url: str, *, then: Callable[[], object] = int, most: int = 10**9, **options: Any
    ) -> bytes:
        """Return a stream, or its first parts. ``then`` is called after each part."""
        self.parts = []
        with self.client.stream("GET", url, **options) as response:
            for part in response.iter_bytes():
                self.parts.append(part)
                then()
                if len(self.parts) == most:
                    break
        return b"".join(self.parts)

    def _answer(self, response: Any) -> Answer:
        self.cookies = dict(response.cookies)
        self.elapsed = response.elapsed
        content_type = response.headers.get("content-type", "")
        return Answer(response.status_code, response.content, content_type, str(response.url))


class Awaited(Blocking):
    """An async client. Each call runs in its own event loop."""

    # A connection must not outlive its event loop.
    once: dict[str, Any] = {"headers": {"Connection": "close"}}  # noqa: RUF012

    def send(self, method: str, url: str, **options: Any) -> Answer:
        async def send() -> Answer:
            return self._answer(await self.client.request(method, url, **{**self.once, **options}))

        return asyncio.run(send())

    def upload(self, url: str) -> Answer:
        async def parts() -> Any:
            for part in PARTS:
                yield part

        return self.send("POST", url, content=parts())

    def read(
        self, url: str, *, then: Callable[[], object] = int, most: int = 10**9, **options: Any
    ) -> bytes:
        self.parts = []

        async def read() -> None:
            async with self.client.stream("GET", url, **self.once, **options) as response:
                async for part in response.aiter_bytes():
                    self.parts.append(part)
                    then()
                    if len(self.parts) == most:
                        break

        asyncio.run(read())
        return b"".join(self.parts)


TIMEOUT_S = 60.0

OWN: dict[str, tuple[type[Blocking], Callable[[Session], Any]]] = {
    "own": (Blocking, lambda session: session.client),
    "own async": (Awaited, lambda session: session.async_client),
}
PATCHED: dict[str, tuple[type[Blocking], Callable[[Session], Any]]] = {
    "patched": (Blocking, lambda _: httpx.Client(timeout=TIMEOUT_S)),
    "patched async": (Awaited, lambda _: httpx.AsyncClient(timeout=TIMEOUT_S)),
}
Opened = Callable[[Session], AbstractContextManager[Any]]


def leading(session: Session) -> AbstractContextManager[None]:
    """Let clients that are made in the block send through a session, as ``patch=True`` does."""
    allow_recording_without_key(session)
    return patched(transport_of(session), lambda error: error)


@contextmanager
def opened(name: str, session: Session) -> Iterator[Blocking]:
    """Yield a client over a session. A patched client works until the end of the block."""
    kind, make = {**OWN, **PATCHED}[name]
    with leading(session) if name in PATCHED else nullcontext():
        client = make(session)
        yield kind(client)
        if name == "patched":
            client.close()


@contextmanager
def in_mode(over: Opened, path: Path, mode: str) -> Iterator[Blocking]:
    """Yield a client over a session of its own, which records or replays."""
    with Session(NO_ADDRESS) as session, over(session) as client:
        getattr(session, mode)(path)
        yield client


@pytest.fixture(params=[*OWN, *PATCHED])
def over(request: pytest.FixtureRequest) -> Opened:
    return partial(opened, request.param)


@pytest.fixture(params=PATCHED)
def over_patched(request: pytest.FixtureRequest) -> Opened:
    """Open each client that the code under test would create itself."""
    return partial(opened, request.param)


@pytest.fixture
def streams() -> Iterator[ClientService]:
    with ClientService() as started:
        yield started


@pytest.fixture
def session(streams: ClientService) -> Iterator[Session]:
    """A session with that service that never waits and never repeats a request."""
    options: dict[str, Any] = {"allow_writes": True, "timeout_s": TIMEOUT_S}
    with Session(streams.base_url, KEY, pace="off", **options) as started:
        yield started


def tour(client: Blocking, base_url: str) -> dict[str, Any]:
    """Use every feature of a client; return the results."""
    v1 = f"{base_url}/v1"
    return {
        "query": client.send("GET", f"{v1}/users/me?q=%C3%A9%20x"),
        "form": client.send("POST", f"{v1}/rows", data={"name": "é", "city": "Ulm"}),
        "json": client.send("POST", f"{v1}/rows", json={"name": "é"}),
        "upload": client.upload(f"{v1}/rows"),
        "file": client.send("POST", f"{v1}/parts", files=FILE),
        "redirect": client.send("GET", f"{v1}/moved", follow_redirects=True),
        "packed": client.send("GET", f"{v1}/packed"),
        "missing": client.send("GET", f"{v1}/nothing"),
        "head": client.send("HEAD", f"{v1}/packed"),
        "busy": client.send("GET", f"{v1}/busy"),
        "events": client.read(f"{v1}/events"),
    }


def test_uploads_redirects_errors_and_streams_are_recorded_and_replayed(over, session, streams):
    path = Path("tour.yaml")
    session.record(path)
    with over(session) as client:
        recorded = tour(client, streams.base_url)
        sent = len(streams.received)
    session.live()
    with Session(streams.base_url) as replaying, over(replaying) as client:
        replaying.replay(path, repeat="strict")
        replayed = tour(client, streams.base_url)

    assert recorded == replayed
    statuses = {name: each.status for name, each in recorded.items() if isinstance(each, Answer)}
    writes = dict.fromkeys(("form", "json", "upload", "file"), 201)
    reads = dict.fromkeys(("query", "redirect", "packed", "head"), 200)
    assert statuses == writes | reads | {"missing": 404, "busy": 503}
    assert recorded["redirect"].url.endswith("/v1/users/me?moved")
    assert (recorded["packed"].body, recorded["events"]) == (b"a,b\n" * 999, EVENTS)
    assert sent == len(streams.received) == len(read_cassette(path))
    assert sent == len(recorded) + len(["the request after the redirect"])
    assert traces(path.read_bytes(), KEY) == []


ERRORS = {
    "/v1/silent": httpx.ReadTimeout,
    "/v1/cut": httpx.RemoteProtocolError,
    "": httpx.ConnectError,
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ERRORS)
def test_a_client_of_the_code_raises_httpxs_own_errors(over_patched, streams, path, method):
    """A caller's ``except`` keeps working, in the recording and in the replay, for writes too."""
    with ClientService() as closed:
        url = f"{streams.base_url}{path}" if path else f"{closed.base_url}/v1/users/me"
    # On a busy machine, noticing a cut body takes longer than a short timeout.
    timeout_s = 0.5 if path == "/v1/silent" else TIMEOUT_S
    seen = []
    for mode in ("update", "none"):
        with Session(NO_ADDRESS, allow_writes=True) as session, over_patched(session) as client:
            open_recording(session, Path("errors.yaml"), record_mode=mode, policy=FAILURES)
            with pytest.raises(httpx.HTTPError) as caught:
                client.send(method, url, timeout=timeout_s)
            seen.append((type(caught.value), str(caught.value)))

    assert seen[0] == seen[1]
    assert seen[0][0] is ERRORS[path]


def test_no_frame_below_a_client_of_the_code_shows_what_it_sent(over_patched, session):
    """Its own key may be in their locals, which ``--showlocals`` prints."""
    with ClientService() as closed:
        url = f"{closed.base_url}/v1/users/me"
    with over_patched(session) as client, pytest.raises(httpx.ConnectError) as caught:
        client.send("GET", url, timeout=TIMEOUT_S)
    below = [frame for frame in caught.traceback if "_transports" in str(frame.path)]

    assert below
    assert not any(frame.locals for frame in below)


def test_the_session_does_not_retry_or_wait_for_an_sdk(over_patched, streams):
    """SDKs retry by themselves, so the session must not retry for them too."""
    with Session(streams.base_url, KEY) as session, over_patched(session) as client:
        answer = client.send("GET", f"{streams.base_url}/v1/busy")

    assert answer.status == 503
    assert streams.counts == {"GET /v1/busy": 1}


def test_a_write_is_not_sent_again_after_a_redirect(over_patched, session, streams):
    """The same write can be sent twice by two calls, but not by a client that is redirected."""
    session.record(Path("redirect.yaml"))
    address = f"{streams.base_url}/v1/elsewhere"
    with over_patched(session) as client:
        with pytest.raises(WriteRefusedError, match="never sent twice"):
            client.send("POST", address, data={"a": "1"}, follow_redirects=True)
        first = streams.counts
        client.send("POST", address, data={"a": "1"})
        client.send("POST", address, data={"a": "1"})

    assert first == {"POST /v1/elsewhere": 1}
    assert streams.counts == {"POST /v1/elsewhere": 3}


@pytest.mark.parametrize("allowed", [True, False])
def test_threads_send_each_write_once_or_never(streams, allowed):
    """Clients that threads make go through the session too; it sends nothing that is refused."""
    refused: list[Exception] = []

    def write(number: int) -> None:
        try:
            httpx.post(f"{streams.base_url}/v1/rows", json={"n": number})
        except WriteRefusedError as error:
            refused.append(error)

    with Session(NO_ADDRESS, allow_writes=allowed) as session, leading(session):
        session.record(Path("threads.yaml"))
        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(streams.received) == (8 if allowed else 0)
    assert len(refused) == (0 if allowed else 8)


@pytest.mark.parametrize("mode", ["live", "record"])
def test_the_parts_of_a_stream_come_as_they_are_sent(over, session, streams, mode):
    """The service sends the second event only after the caller has the first."""
    streams.goes_on.clear()
    with over(session) as client:
        getattr(session, mode)(*[Path("events.yaml")] * (mode == "record"))
        read = client.read(f"{streams.base_url}/v1/events", then=streams.goes_on.set)

    assert read == EVENTS
    assert session.recording.interaction(1).response.body == EVENTS


def test_a_response_has_cookies_and_its_elapsed_time_while_recording(over, session, streams):
    """The client's own cookies are those of the service, too."""
    session.record(Path("cookies.yaml"))
    with over(session) as client:
        client.send("GET", f"{streams.base_url}/v1/users/me")

        assert client.cookies == {"a": "1", "b": "2"}
        assert client.elapsed > timedelta(0)


@pytest.mark.parametrize("coding", ["packed", "x-packed"])
def test_a_compressed_body_is_kept_and_recorded_decoded(over_patched, session, streams, coding):
    """The older name of the coding is x-gzip (RFC 9110), which httpx does not decode."""
    path, url = Path("packed.yaml"), f"{streams.base_url}/v1/{coding}"
    session.record(path)
    with over_patched(session) as client:
        client.send("GET", url)
    with in_mode(over_patched, path, "replay") as client:
        replayed = client.send("GET", url).body
    kept = [each.interaction(1).response for each in (session.recording, read_cassette(path))]

    assert [replayed, *(each.body for each in kept)] == [b"a,b\n" * 999] * 3
    assert header(kept[1].headers, "content-encoding") is None


def test_a_timeout_is_for_each_part(over_patched, streams):
    with in_mode(over_patched, Path("slow.yaml"), "record") as client:
        body = client.read(f"{streams.base_url}/v1/slow", timeout=1.2)

    assert body.count(b"data: ") == 5


def test_a_stream_that_its_caller_leaves_is_recorded_as_far_as_it_was_read(
    over_patched, session, streams
):
    """An endless stream returns after three parts; its replay has them, and then the end."""
    path, url = Path("endless.yaml"), f"{streams.base_url}/v1/endless"
    session.record(path)
    with over_patched(session) as client:
        read = client.read(url, most=3)
        problems = interactions(session)["problem"].tolist()
    kept = read_cassette(path).interaction(1).response
    with (
        in_mode(over_patched, path, "replay") as client,
        pytest.warns(UserWarning, match="GET /v1/endless: the recording"),
    ):
        replayed = client.read(url)

    assert kept.cut == "left"
    assert kept.body.startswith(read)
    assert replayed == kept.body
    assert problems == interactions(path)["problem"].tolist()
    assert problems == ["aborted before the end of the response"]


def test_what_arrived_before_a_connection_broke_is_replayed_with_the_error(over_patched, streams):
    path, outcomes = Path("cut.yaml"), []
    for mode in ("record", "replay"):
        with in_mode(over_patched, path, mode) as client, pytest.raises(httpx.HTTPError) as caught:
            client.read(f"{streams.base_url}/v1/cut")
        outcomes.append((caught.type, str(caught.value), b"".join(client.parts)))
    kept = read_cassette(path).interaction(1).response

    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == b"only this"
    assert (kept.status, kept.body, kept.cut) == (200, b"only this", "protocol_error")


@pytest.mark.parametrize("size", [20, 20_000, 2_000_000])
def test_bodies_of_each_size_are_recorded_and_replayed(over_patched, streams, size):
    """It is on disk before the caller sees the end."""
    path, url = Path("sized.yaml"), f"{streams.base_url}/v1/sized-{size}"
    with in_mode(over_patched, path, "record") as client:
        recorded = client.read(url)
        written = read_cassette(path).interaction(1).response.body
    with in_mode(over_patched, path, "replay") as client:
        replayed = client.read(url)

    assert len(recorded) == size
    assert {hashlib.sha256(each).digest() for each in (written, replayed)} == {
        hashlib.sha256(recorded).digest()
    }


@pytest.mark.parametrize("path", ["/v1/events", "/v1/sized-20000"])
def test_a_body_that_cannot_be_written_is_an_error_before_its_end(
    over_patched, streams, monkeypatch, path
):
    """A caller must not take a response for recorded that is not."""

    def full(*_: object) -> None:
        raise CassetteError("The disk is full.", "Make room.")

    monkeypatch.setattr(Cassette, "record", full)
    with (
        in_mode(over_patched, Path("full.yaml"), "record") as client,
        pytest.raises(CassetteError, match="is full"),
    ):
        client.read(f"{streams.base_url}{path}")


@pytest.mark.slow
def test_a_download_of_200_mb_takes_no_more_memory_than_the_limit(streams, session):
    path, size = Path("large.yaml"), 200 * 1024**2
    session.record(path)
    tracemalloc.start()
    with session.client.stream("GET", f"/v1/sized-{size}") as response:
        read = sum(map(len, response.iter_bytes()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert read == size
    assert peak < 100 * 1024**2
    assert read_cassette(path).interaction(1).response.body == b"<not recorded: %d bytes>" % size


def test_an_unrecorded_request_raises_an_error(over, streams, session):
    session.record(Path("one.yaml"))
    session.client.get("/v1/users/me")
    session.live()
    with Session(streams.base_url) as replaying, over(replaying) as client:
        replaying.replay(Path("one.yaml"))
        with pytest.raises(NotRecordedError, match="GET /v1/busy is not in cassette 'one'"):
            client.send("GET", f"{streams.base_url}/v1/busy")

    assert len(streams.received) == 1


# -- clients that the code under test makes itself ---------------------------------------------


def test_patched_clients_record_without_an_address_or_a_key(over_patched, streams):
    """Replays match the whole address. A user name and password in it are sent but not written."""
    path = Path("own.yaml")
    address = streams.base_url.replace("//", "//ada:s3cret-pw@")
    results = []
    with Session(NO_ADDRESS, allow_writes=True) as session, over_patched(session) as client:
        session.record(path)
        results.append(client.send("GET", f"{address}/v1/users/me").body)
        sent = streams.authorization()
        with pytest.raises(DirectMailLabError, match="no key"):
            session.client.get(f"{streams.base_url}/v1/users/me")
    with Session(NO_ADDRESS) as session, over_patched(session) as client:
        session.replay(path)
        results.append(client.send("GET", f"{address}/v1/users/me").body)
        with pytest.raises(NotRecordedError):
            client.send("GET", "http://b.test/v1/users/me")

    assert results[0] == results[1]
    assert sent == httpx.BasicAuth("ada", "s3cret-pw")._auth_header
    assert len(streams.received) == 1
    assert read_cassette(path).base_url == streams.base_url
    assert b"s3cret-pw" not in path.read_bytes()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer its-own"}])
def test_nothing_is_added_to_what_the_code_sends(over_patched, session, streams, headers):
    """A client that forgot to authenticate records its 401, not a 200 with the session's key."""
    url = f"{streams.base_url}/v1/rows"
    body = {"content": b"{}", "headers": {**headers, "Connection": "close"}}
    session.record(Path("plain.yaml"))
    with over_patched(session) as client:
        client.send("PUT", url, **body)
    through = streams.received[-1]
    kind = httpx.Client if type(client) is Blocking else httpx.AsyncClient
    type(client)(kind(timeout=TIMEOUT_S)).send("PUT", url, **body)
    directly = streams.received[-1]

    assert through == directly
    assert header(through.headers, "authorization") == headers.get("Authorization")


def test_hooks_mounts_and_the_environments_proxy_are_the_clients_own(streams, monkeypatch):
    """A mounted transport without a network is left alone; a proxy gets the request."""
    seen: list[str] = []
    hooks: Any = {
        "request": [lambda request: seen.append(request.method)],
        "response": [lambda response: seen.append(str(response.status_code))],
    }
    mock = httpx.MockTransport(lambda _: httpx.Response(204))
    monkeypatch.setenv("HTTP_PROXY", streams.base_url)  # it gets the whole address as a path
    with Session(NO_ADDRESS) as session, leading(session):
        session.record(Path("own.yaml"))
        with httpx.Client(event_hooks=hooks, mounts={"all://mock.test": mock}) as client:
            mocked = client.get("http://mock.test/v1/users/me")
            by_proxy = client.get("http://far.test/v1/users/me")

    assert (mocked.status_code, by_proxy.status_code) == (204, 404)
    assert [each.uri for each in streams.received] == ["http://far.test/v1/users/me"]
    assert seen == ["GET", "204", "GET", "404"]
    assert len(session.recording) == 1


def test_patching_leaves_the_sessions_own_requests_alone(over_patched, session, streams):
    session.record(Path("once.yaml"))
    with over_patched(session) as client:
        session.client.get("/v1/users/me")
        signed = streams.authorization()
        client.send("GET", f"{streams.base_url}/v1/packed")
    httpx.get(f"{streams.base_url}/v1/nothing")

    assert signed == f"Basic {KEY_PAIR}"
    assert len(session.recording) == 2
    assert streams.counts == dict.fromkeys(
        ["GET /v1/users/me", "GET /v1/packed", "GET /v1/nothing"], 1
    )


def test_a_second_session_takes_the_clients_over(streams, session):
    with Session(NO_ADDRESS) as second, leading(session):
        session.record(Path("first.yaml"))
        with leading(second):
            second.record(Path("second.yaml"))
            for _ in range(3):
                httpx.get(f"{streams.base_url}/v1/packed")
        httpx.get(f"{streams.base_url}/v1/packed")

        assert (len(session.recording), len(second.recording)) == (1, 3)


def test_a_request_that_a_test_cancels_is_cancelled_in_the_replay(streams):
    """A response that came at once would not reach what ``asyncio.timeout`` waits for."""

    async def send() -> None:
        async with httpx.AsyncClient() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.get(f"{streams.base_url}/v1/silent")

    for mode in ("update", "none"):
        with Session(NO_ADDRESS) as session, leading(session):
            open_recording(session, Path("cut.yaml"), record_mode=mode, policy=FAILURES)
            asyncio.run(send())

    cassette = open_cassette(session)
    assert cassette is None or cassette.unplayed() == []
    assert len(streams.received) == 1
