"""Clients of httpx, httpx2 and requests over a session: the session's own and patched ones.

Each test runs with every client, against a real server.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import httpx2
import pytest
import requests
from client_service import KEY, ClientService
from directmail_lab.pytest_plugin.patched import patched
from key_search import traces

from directmail_lab.cassettes import read_cassette
from directmail_lab.errors import DirectMailLabError, NotRecordedError, WriteRefusedError
from directmail_lab.sessions import clients
from directmail_lab.sessions.session import Session
from directmail_lab.settings import NO_ADDRESS

FILE = {"file": ("rows.csv", b"1|2", "text/csv")}
ROWS = b"name|city\n" * 10_000
KEY_PAIR = base64.b64encode(f"{KEY}:".encode()).decode()
PARTS = [ROWS[start : start + 999] for start in range(0, len(ROWS), 999)]
EVENTS = ["data: 0", "", "data: 1", "", "data: 2", ""]


class Answer(NamedTuple):
    """The parts of a response that the tests compare."""

    status: int
    body: bytes
    content_type: str
    url: str


class Blocking:
    """A client of httpx or httpx2. ``cookies`` and ``elapsed`` are those of the last response."""

    cookies: dict[str, str]
    elapsed: timedelta

    def __init__(self, library: Any, client: Any) -> None:
        self.errors, self.client = library, client

    def send(self, method: str, url: str, **options: Any) -> Answer:
        return self._answer(self.client.request(method, url, **options))

    def follow(self, url: str) -> Answer:
        return self.send("GET", url, follow_redirects=True)

    def upload(self, url: str) -> Answer:
        return self.send("POST", url, content=iter(PARTS))

    def lines(self, url: str, then: Callable[[], object] = int) -> list[str]:
        """Return the lines of a stream; call ``then`` after the first."""
        with self.client.stream("GET", url) as response:
            lines = response.iter_lines()
            first = next(lines)
            then()
            return [first, *lines]

    def _answer(self, response: Any) -> Answer:
        self.cookies, self.elapsed = dict(response.cookies), response.elapsed
        content_type = response.headers.get("content-type", "")
        return Answer(response.status_code, response.content, content_type, str(response.url))


class Awaited(Blocking):
    """An async client. Each call runs in its own event loop."""

    def send(self, method: str, url: str, **options: Any) -> Answer:
        async def send() -> Answer:
            return self._answer(await self.client.request(method, url, **self.once, **options))

        return asyncio.run(send())

    def upload(self, url: str) -> Answer:
        async def parts() -> Any:
            for part in PARTS:
                yield part

        return self.send("POST", url, content=parts())

    def lines(self, url: str, then: Callable[[], object] = int) -> list[str]:
        async def read() -> list[str]:
            async with self.client.stream("GET", url, **self.once) as response:
                lines = response.aiter_lines()
                first = await anext(lines)
                then()
                return [first, *[line async for line in lines]]

        return asyncio.run(read())

    # A connection must not outlive its event loop.
    once: dict[str, Any] = {"headers": {"Connection": "close"}}  # noqa: RUF012


class OfRequests(Blocking):
    """A session of requests."""

    def send(self, method: str, url: str, **options: Any) -> Answer:
        options = {"allow_redirects": False, "timeout": TIMEOUT_S, **options}
        return self._answer(self.client.request(method, url, **options))

    def follow(self, url: str) -> Answer:
        return self.send("GET", url, allow_redirects=True)

    def upload(self, url: str) -> Answer:
        return self.send("POST", url, data=iter(PARTS))

    def lines(self, url: str, then: Callable[[], object] = int) -> list[str]:
        with self.client.get(url, stream=True, timeout=TIMEOUT_S) as response:
            lines = response.iter_lines(decode_unicode=True)
            first = next(lines)
            then()
            return [first, *lines]


TIMEOUT_S = 60.0


def mounted(session: Session) -> requests.Session:
    http = requests.Session()
    http.mount(session.base_url, session.requests_adapter)
    return http


def timed(library: Any, _: object) -> Any:
    return library(timeout=TIMEOUT_S)


OWN: dict[str, tuple[type[Blocking], Any, Callable[[Session], Any]]] = {
    "httpx": (Blocking, httpx, lambda session: session.client),
    "httpx async": (Awaited, httpx, lambda session: session.async_client),
    "httpx2": (Blocking, httpx2, lambda session: session.httpx2_client),
    "httpx2 async": (Awaited, httpx2, lambda session: session.httpx2_async_client),
    "requests": (OfRequests, requests.exceptions, mounted),
}
PATCHED: dict[str, tuple[type[Blocking], Any, Callable[[Session], Any]]] = {
    "patched httpx": (Blocking, httpx, partial(timed, httpx.Client)),
    "patched httpx async": (Awaited, httpx, partial(timed, httpx.AsyncClient)),
    "patched httpx2": (Blocking, httpx2, partial(timed, httpx2.Client)),
    "patched httpx2 async": (Awaited, httpx2, partial(timed, httpx2.AsyncClient)),
    "patched requests": (OfRequests, requests.exceptions, lambda _: requests.Session()),
}
Opened = Callable[[Session], AbstractContextManager[Any]]


@contextmanager
def opened(name: str, session: Session) -> Iterator[Blocking]:
    """Yield a client over a session. A patched client works until the end of the block."""
    kind, errors, make = {**OWN, **PATCHED}[name]
    leading = patched(session._take_senders()) if name in PATCHED else nullcontext()
    with leading:
        client = make(session)
        yield kind(errors, client)
        if name in PATCHED and kind is not Awaited:
            client.close()


@pytest.fixture(params=[*OWN, *PATCHED])
def over(request: pytest.FixtureRequest) -> Opened:
    """Open each client over a session."""
    return partial(opened, request.param)


@pytest.fixture(params=[name for name in (*OWN, *PATCHED) if name not in ("httpx", "httpx async")])
def over_unpaced(request: pytest.FixtureRequest) -> Opened:
    """Open each client except the session's own httpx clients."""
    return partial(opened, request.param)


@pytest.fixture(params=PATCHED)
def over_patched(request: pytest.FixtureRequest) -> Opened:
    """Open each client that the code under test would create itself."""
    return partial(opened, request.param)


@pytest.fixture
def streams() -> Iterator[ClientService]:
    """A service with streams, cookies, redirects and faults."""
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
        "redirect": client.follow(f"{v1}/moved"),
        "packed": client.send("GET", f"{v1}/packed"),
        "missing": client.send("GET", f"{v1}/nothing"),
        "head": client.send("HEAD", f"{v1}/packed"),
        "busy": client.send("GET", f"{v1}/busy"),
        "events": client.lines(f"{v1}/events"),
    }


def test_uploads_redirects_errors_and_streams_are_recorded_and_replayed(
    over: Opened, session: Session, streams: ClientService, tmp_path: Path
) -> None:
    """Uploads, redirects, compressed bodies, errors and streams replay without a server."""
    path = tmp_path / "tour.yaml"
    session.record(path)
    with over(session) as client:
        recorded = tour(client, streams.base_url)
        sent = len(streams.received)
        is_signed = streams.authorization()
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
    assert str(is_signed).startswith("Basic ")
    assert traces(path.read_bytes(), KEY) == []


# For each path, the error of httpx and httpx2, and the error of requests.
ERRORS = {
    "/v1/silent": ("ReadTimeout", "ReadTimeout"),
    "/v1/cut": ("RemoteProtocolError", "ChunkedEncodingError"),
    "/v1/badly-packed": ("DecodingError", "ContentDecodingError"),
    "": ("ConnectError", "ConnectionError"),
}


@pytest.mark.parametrize("path", ERRORS)
def test_a_client_raises_the_errors_of_its_own_library(
    over: Opened,
    session: Session,
    streams: ClientService,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller's ``except`` keeps working, for timeouts, cut bodies and refused connections."""
    # On a busy machine, noticing a cut body takes longer than a short timeout.
    timeout_s = 0.5 if ERRORS[path][0] == "ReadTimeout" else TIMEOUT_S
    monkeypatch.setattr("test_clients.TIMEOUT_S", timeout_s)
    session.record(tmp_path / "errors.yaml")
    session.client.timeout = session.async_client.timeout = timeout_s
    session.httpx2_client.timeout = session.httpx2_async_client.timeout = timeout_s
    with over(session) as client:
        name = ERRORS[path][client.errors is requests.exceptions]
        url = f"{streams.base_url}{path}" if path else unused_address(session, client)
        with pytest.raises(getattr(client.errors, name)) as caught:
            client.send("GET", url)

    assert traces(repr(caught.value).encode(), KEY) == []


def unused_address(session: Session, client: Blocking) -> str:
    """Return an address where nothing listens; the client sends requests for it to the session."""
    with ClientService() as closed:
        address = closed.base_url
    if isinstance(client, OfRequests):
        client.client.mount(address, client.client.get_adapter(session.base_url))
    return f"{address}/v1/users/me"


def test_the_session_does_not_retry_for_an_sdk(
    over_unpaced: Opened, streams: ClientService, tmp_path: Path
) -> None:
    """SDKs retry by themselves, so the session must not retry for them too."""
    with Session(streams.base_url, KEY) as session, over_unpaced(session) as client:
        answer = client.send("GET", f"{streams.base_url}/v1/busy")

    assert answer.status == 503
    assert streams.counts == {"GET /v1/busy": 1}


def test_a_write_is_not_sent_again_after_a_redirect(
    over_unpaced: Opened, session: Session, streams: ClientService, tmp_path: Path
) -> None:
    """The same write can be sent twice by two calls, but not by a client that is redirected."""
    session.record(tmp_path / "redirect.yaml")
    address = f"{streams.base_url}/v1/elsewhere"
    with over_unpaced(session) as client:
        follow = "allow_redirects" if isinstance(client, OfRequests) else "follow_redirects"
        with pytest.raises(WriteRefusedError, match="never sent twice"):
            client.send("POST", address, data={"a": "1"}, **{follow: True})
        first = streams.counts
        client.send("POST", address, data={"a": "1"})
        client.send("POST", address, data={"a": "1"})

    assert first == {"POST /v1/elsewhere": 1}
    assert streams.counts == {"POST /v1/elsewhere": 3}


def test_a_live_stream_comes_as_it_is_sent(
    over: Opened, session: Session, streams: ClientService
) -> None:
    """The service sends the second event only after the caller has the first."""
    streams.goes_on.clear()
    with over(session) as client:
        session.live()
        lines = client.lines(f"{streams.base_url}/v1/events", then=streams.goes_on.set)

    assert lines == EVENTS
    assert session.recording.reading(1).source == "live"


def test_a_response_has_cookies_and_its_elapsed_time_while_recording(
    over: Opened, session: Session, streams: ClientService, tmp_path: Path
) -> None:
    """requests reads cookies from the raw response and not from its headers."""
    session.record(tmp_path / "cookies.yaml")
    with over(session) as client:
        client.send("GET", f"{streams.base_url}/v1/users/me")

        assert client.cookies == {"a": "1", "b": "2"}
        assert client.elapsed > timedelta(0)


def test_the_session_stores_the_decoded_body_of_a_live_response(
    over: Opened, session: Session, streams: ClientService
) -> None:
    """``interactions`` shows the decoded body, as for the session's own calls."""
    with over(session) as client:
        session.live()
        client.send("GET", f"{streams.base_url}/v1/packed")

    assert session.recording.interaction(1).response.body == b"a,b\n" * 999


def test_an_unrecorded_request_raises_an_error(
    over: Opened, streams: ClientService, session: Session, tmp_path: Path
) -> None:
    """In tests, foreign clients raise an error that SDKs do not catch and retry."""
    session.record(tmp_path / "one.yaml")
    session.client.get("/v1/users/me")
    session.live()
    with Session(streams.base_url) as replaying, over(replaying) as client:
        replaying.replay(tmp_path / "one.yaml")
        with pytest.raises(NotRecordedError, match="GET /v1/busy is not in cassette 'one'"):
            client.send("GET", f"{streams.base_url}/v1/busy")
        replaying._clients_transport.as_raised = lambda error: KeyboardInterrupt(str(error))
        own = client.client in (replaying.client, replaying.async_client)
        with pytest.raises(NotRecordedError if own else KeyboardInterrupt, match="/v1/busy"):
            client.send("GET", f"{streams.base_url}/v1/busy")


# -- clients that the code under test makes itself ---------------------------------------------


def test_patched_clients_record_without_an_address_or_a_key(
    over_patched: Opened, streams: ClientService, tmp_path: Path
) -> None:
    """Replays match the whole address. A user name and password in it are sent but not written."""
    path, address = tmp_path / "foreign.yaml", streams.base_url.replace("//", "//ada:s3cret-pw@")
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
    assert (b"s3cret-pw" in path.read_bytes(), b"ada:" in path.read_bytes()) == (False, False)


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer its-own"}, {"X-Api-Key": "its-own"}, {}]
)
def test_the_key_is_added_where_a_request_has_no_credentials(
    over_patched: Opened,
    session: Session,
    streams: ClientService,
    headers: dict[str, str],
    tmp_path: Path,
) -> None:
    """The key is sent only to the session's own base address."""
    session.record(tmp_path / "keys.yaml")
    with over_patched(session) as client, ClientService() as other:
        if isinstance(client, Awaited):
            client.client.headers.update(headers)
            headers = {}
        for address in (streams.base_url, other.base_url):
            client.send(
                "GET", f"{address}/v1/users/me", **({"headers": headers} if headers else {})
            )
        ours, theirs = streams.received[0].headers, other.authorization()

    has_own = "its-own" in str(ours)
    assert (KEY_PAIR in str(ours)) != has_own
    assert KEY_PAIR not in str(theirs)


def test_patching_leaves_the_sessions_own_requests_alone(
    over_patched: Opened, session: Session, streams: ClientService, tmp_path: Path
) -> None:
    """The session's own requests go straight to the network, and patching ends with the block."""
    session.record(tmp_path / "once.yaml")
    with over_patched(session) as client:
        session.client.get("/v1/users/me")
        client.send("GET", f"{streams.base_url}/v1/packed")
    httpx.get(f"{streams.base_url}/v1/nothing")
    httpx2.get(f"{streams.base_url}/v1/nothing")
    requests.get(f"{streams.base_url}/v1/nothing", timeout=60)

    assert len(session.recording) == 2
    own = {"GET /v1/users/me": 1, "GET /v1/packed": 1}
    assert streams.counts == {**own, "GET /v1/nothing": len([httpx, httpx2, requests])}


def test_a_second_session_takes_the_clients_over(
    streams: ClientService, session: Session, tmp_path: Path
) -> None:
    """A test's session takes over from its module's session until it ends."""
    with Session(NO_ADDRESS) as second, patched(session._take_senders()):
        second._take_senders()
        session.record(tmp_path / "first.yaml")
        with patched(second._clients_transport):
            second.record(tmp_path / "second.yaml")
            for library in (httpx, httpx2, requests):
                library.get(f"{streams.base_url}/v1/packed", timeout=TIMEOUT_S)
        requests.get(f"{streams.base_url}/v1/packed", timeout=TIMEOUT_S)

        assert (len(session.recording), len(second.recording)) == (1, 3)


def test_requests_to_listed_hosts_pass_through_to_the_network(streams: ClientService) -> None:
    """A test can reach its own server while everything else is replayed."""
    with Session(NO_ADDRESS) as session, patched(session._take_senders(), ["127.*", "LOCALHOST"]):
        for library in (httpx, httpx2, requests):
            assert library.get(f"{streams.base_url}/v1/packed").status_code == 200
            with pytest.raises(DirectMailLabError):
                library.get("http://b.test/v1/packed")

    assert len(session.recording) == 0


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_patched_clients_share_the_default_certificates(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Reading them takes 30 ms; a client that asks for others, or for none, has its own."""
    made: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: made.append(1))
    (tmp_path / "other").mkdir()

    def count(**options: Any) -> int:
        made.clear()
        for _ in range(2):
            library.Client(**options).close()
            asyncio.run(library.AsyncClient(**options).aclose())
        return len(made)

    with Session(NO_ADDRESS) as session, patched(session._take_senders()):
        usual, own, unchecked = count(), count(trust_env=False), count(verify=False)
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "other"))
        elsewhere = count()
    after = count()

    assert (usual, own, unchecked, elsewhere, after) == (1, 4, 0, 1, 4)


def test_a_library_that_is_not_installed_is_named(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how to install it. An import error from inside the library is unchanged."""
    missing = ModuleNotFoundError("No module named 'httpx2'", name="httpx2")
    monkeypatch.setattr(clients, "import_module", raising(missing))
    with pytest.raises(DirectMailLabError, match="pip install httpx2"):
        _ = session.httpx2_client
    monkeypatch.setattr(clients, "import_module", raising(ModuleNotFoundError(name="h11")))
    with pytest.raises(ModuleNotFoundError):
        _ = session.httpx2_client


def raising(error: Exception) -> Callable[[str, str], object]:
    def import_module(*_: str) -> object:
        raise error

    return import_module
