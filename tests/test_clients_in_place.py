"""``patch=True`` with every client: the same outcome without a session, recorded and replayed.

Each test runs with every client, against a real server, which is gone in the replay.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3
from cassette_samples import BASE_URL, theirs, typed
from client_service import ClientService
from directmail_lab.pytest_plugin.patched import patched
from every_client import AWS_ID, AWS_SECRET, CLIENTS, Asked, Got, unpacked
from key_search import traces

from directmail_lab.cassettes import FileRecording, read_cassette
from directmail_lab.errors import DirectMailLabError, NotRecordedError, WriteRefusedError
from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.sessions.session import Session
from directmail_lab.settings import NO_ADDRESS

Send = Callable[[Asked], Got]
SECRET = "s3cr3t-of-the-client-77"


@pytest.fixture(params=CLIENTS)
def send(request: pytest.FixtureRequest) -> Send:
    """Each client."""
    return CLIENTS[request.param]


@pytest.fixture
def service() -> Iterator[ClientService]:
    """A service with streams, redirects and faults."""
    with ClientService() as started:
        yield started


@contextmanager
def recording(path: Path, *, allow_writes: bool = True, **options: Any) -> Iterator[Session]:
    """Record what clients send during the block."""
    session = Session(NO_ADDRESS, allow_writes=allow_writes)
    with session, patched(session._take_senders(), **options):
        session.record(path)
        yield session


@contextmanager
def replaying(path: Path) -> Iterator[Session]:
    """Replay to clients during the block."""
    with Session(NO_ADDRESS) as session, patched(session._take_senders()):
        session.replay(path, repeat="strict")
        yield session


def outcome(send: Send, asked: Asked) -> object:
    """Return the response, or the types of the error and of its reason."""
    try:
        return send(asked)
    except Exception as error:
        return type(error), type(getattr(error, "reason", None))


# -- responses -----------------------------------------------------------------------------------

PATHS = ("users/me?a=%C3%A9&b=1", "moved", "packed", "events", "busy", "nothing")


def tour(send: Send, base_url: str) -> list[object]:
    """Send different requests; return the outcomes."""
    asked = [Asked("GET", f"{base_url}/v1/{path}") for path in PATHS]
    asked.append(Asked("POST", f"{base_url}/v1/rows", b"name|city\n" * 20_000))
    if send is not CLIENTS["boto3"]:
        asked.append(Asked("HEAD", f"{base_url}/v1/packed"))
    return [outcome(send, each) for each in asked]


def test_responses_are_the_same_raw_recorded_and_replayed(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """Reads, writes, redirects, compressed bodies, streams, errors and HEAD."""
    path = tmp_path / "tour.yaml"
    raw = tour(send, service.base_url)
    sent = service.counts
    service.received.clear()
    with recording(path):
        recorded = tour(send, service.base_url)
    sent_again = service.counts
    service.close()
    with replaying(path):
        replayed = tour(send, service.base_url)
    after = outcome(send, Asked("GET", f"{service.base_url}/v1/packed"))

    assert raw == recorded == replayed
    assert sent == sent_again
    assert len(read_cassette(path)) == sent.total()
    assert isinstance(after, tuple)
    assert not isinstance(after, Got)  # nothing is patched any more


def test_each_hop_is_on_disk_before_the_next(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """A kill between the two would lose nothing that the client has seen."""
    path, seen = tmp_path / "hops.yaml", []
    answer = service.response_to

    def noting(request: Request) -> Response:
        seen.append(len(read_cassette(path)) if path.exists() else 0)
        return answer(request)

    service.response_to = noting  # type: ignore[method-assign]
    with recording(path):
        outcome(send, Asked("GET", f"{service.base_url}/v1/moved"))

    follows = send is not CLIENTS["http.client"]
    assert seen == ([0, 1] if follows else [0])


def test_a_body_that_is_recorded_as_chunked_and_with_its_length_is_replayed(
    send: Send, tmp_path: Path
) -> None:
    """Some services send both headers, which vcrpy records."""
    both = ("Transfer-Encoding", "chunked"), ("Content-Length", "3")
    cassette = theirs(tmp_path / "both.yaml", typed("text/plain", "a|b", *both))
    with replaying(cassette):
        got = send(Asked("GET", f"{BASE_URL}/v1/x"))

    assert got.body == b"a|b"


# -- failures ------------------------------------------------------------------------------------


def test_failures_are_the_same_raw_recorded_and_replayed(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """Timeouts, broken bodies and refused connections have the errors of the client's library."""
    path = tmp_path / "failures.yaml"
    with ClientService() as closed:
        unused = f"{closed.base_url}/v1/"

    def failures() -> list[object]:
        asked = [Asked("GET", f"{service.base_url}/v1/silent", timeout_s=0.5)]
        broken = (f"{service.base_url}/v1/cut", f"{service.base_url}/v1/garbage", unused)
        asked += [Asked("GET", address) for address in broken]
        return [outcome(send, each) for each in asked]

    raw = failures()
    with recording(path) as session:
        assert session._open_cassette is not None
        session._open_cassette.records_failures = True  # as in a test
        recorded = failures()
    service.close()
    with replaying(path):
        replayed = failures()

    assert raw == recorded == replayed
    assert not any(isinstance(each, Got) for each in raw)


def test_a_body_that_cannot_be_decompressed_raises_the_librarys_error(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """The client gets its bytes unchanged."""
    asked = Asked("GET", f"{service.base_url}/v1/badly-packed")
    raw = outcome(send, asked)
    with recording(tmp_path / "packed.yaml"):
        assert outcome(send, asked) == raw


# -- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
def test_threads_send_each_write_once_or_never(
    send: Send, service: ClientService, tmp_path: Path, allowed: bool
) -> None:
    """Six threads write at once: all is recorded, or nothing is sent."""
    each = 40 if send in (CLIENTS["requests"], CLIENTS["http.client"]) else 4

    def write(number: int) -> object:
        url = f"{service.base_url}/v1/rows?n={number}"
        return outcome(send, Asked("POST", url, b"1|2"))

    path = tmp_path / "writes.yaml"
    with recording(path, allow_writes=allowed), ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6 * each)))

    assert len(service.received) == (6 * each if allowed else 0)
    assert (len(read_cassette(path)) if allowed else path.exists()) == len(service.received)


LOCATIONS = (
    "/v1/rows#part",
    "/v1/%72ows",
    "/v1/rows?q=%7e[1]&x y",
    "/v1/r%c3%b6ws",
    "/v1/röws",
    "/v1/~rows[1]?q={{a}}|b",
    "/v1/other/%2e%2e/rows",
    "/v1/rows\tand\\more",
    "http://ada:x@127.0.0.1:{port}/v1/rows",
    "http://127.0.0.1:{port}",
)


def test_a_write_is_not_sent_again_however_its_redirect_is_written(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """Each library writes the address that it is redirected to in its own way."""
    port = service.base_url.rpartition(":")[2]

    def answer(request: Request) -> Response:
        _, is_first, number = request.uri.partition("/v1/elsewhere/")
        if not is_first:
            return Response(200)
        location = LOCATIONS[int(number)].format(port=port)
        return Response(307, "Temporary Redirect", (("Location", location),))

    service.response_to = answer  # type: ignore[method-assign]
    paths = [f"/v1/elsewhere/{number}" for number in range(len(LOCATIONS))]
    with recording(tmp_path / "redirect.yaml"):
        for path in paths:
            outcome(send, Asked("POST", f"{service.base_url}{path}", b"1|2"))

    assert [each.uri for each in service.received if each.method != "HEAD"] == paths


def test_a_write_follows_its_redirect_if_a_test_says_so(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """A slash that is missing at the end of an address is the usual case."""
    path = tmp_path / "redirect.yaml"
    asked = Asked("POST", f"{service.base_url}/v1/elsewhere", b"name|city")
    raw = outcome(send, asked)
    sent = service.counts
    service.received.clear()
    with recording(path) as session:
        session._fix_writes("", "", follows=True)
        recorded = outcome(send, asked)
    sent_again = service.counts
    service.close()
    with replaying(path):
        replayed = outcome(send, asked)

    assert raw == recorded == replayed
    assert sent == sent_again
    assert len(read_cassette(path)) == sent.total()


def test_a_request_that_the_session_refused_is_not_sent_by_another_client(
    service: ClientService, tmp_path: Path
) -> None:
    """Neither is a new write with what travels with a request that was sent."""
    address = f"{service.base_url}/v1/rows"
    with Session(service.base_url, SECRET) as session, patched(session._take_senders()):
        session.record(tmp_path / "refused.yaml")
        refused = session.client.build_request("POST", address)
        sent = session.client.get("/v1/packed").request
        with httpx.Client() as other:
            for client, request in (
                (session.client, refused),
                (other, refused),
                (other, httpx.Request("POST", address, extensions=sent.extensions)),
            ):
                with pytest.raises(WriteRefusedError):
                    client.send(request)

    assert [each.method for each in service.received] == ["GET"]


# -- addresses, certificates and proxies -----------------------------------------------------------


def test_listed_hosts_are_reached_without_the_session(send: Send, service: ClientService) -> None:
    """``patch=["127.*"]`` works for each client, with a body too."""
    with Session(NO_ADDRESS) as session, patched(session._take_senders(), ["127.*"]):
        got = send(Asked("GET", f"{service.base_url}/v1/packed"))
        send(Asked("POST", f"{service.base_url}/v1/rows", b"1|2"))
        other = Asked("GET", "http://b.test/v1/packed")
        refused = outcome(send, other)

    assert got.body == b"a,b\n" * 999
    assert [each.uri for each in service.received] == ["/v1/packed", "/v1/rows"]
    assert len(session.recording) == 0
    assert refused != got


class Proxy:
    """A proxy that only makes tunnels, and counts them."""

    def __init__(self) -> None:
        self.tunnels = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with self._server, suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if not (head := client.recv(65_536)):  # from `close`
                    client.close()
                    return
                host, _, port = head.split()[1].decode().rpartition(":")
                service = socket.create_connection((host, int(port)))
                self.tunnels += 1
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=self._pass_on, args=(service, client))
                forth = threading.Thread(target=self._tunnel, args=(client, service, back))
                self._threads.append(forth)
                forth.start()

    def _tunnel(
        self, client: socket.socket, service: socket.socket, back: threading.Thread
    ) -> None:
        with client, service:
            back.start()
            self._pass_on(client, service)
            back.join()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        socket.create_connection(self._server.getsockname()).close()
        for thread in self._threads:
            thread.join()


CERTIFICATE = Path(__file__).with_name("loopback.pem")


class EncryptedService(ClientService):
    """The service over TLS, with a certificate of its own authority."""

    def __init__(self) -> None:
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server = self._server
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.base_url = self.base_url.replace("http:", "https:")


# aiohttp closes encrypted connections only after its session was closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_tunneled", [False, True])
def test_own_certificates_and_proxies_are_used_while_recording(
    send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tunneled: bool
) -> None:
    """The client's own connections send, through the tunnel that it asks for."""
    if is_tunneled and send is CLIENTS["httplib2"]:
        return  # needs PySocks
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS"):
        monkeypatch.setenv(name, str(CERTIFICATE))
    proxy, path = Proxy(), tmp_path / "tls.yaml"
    if is_tunneled:
        monkeypatch.setenv("HTTPS_PROXY", proxy.base_url)
    with EncryptedService() as service:
        asked = Asked("GET", f"{service.base_url}/v1/packed")
        with recording(path):
            recorded = send(asked)
    proxy.close()
    with replaying(path):
        replayed = send(asked)

    assert recorded == replayed
    assert recorded.body == b"a,b\n" * 999
    assert read_cassette(path).interaction(1).request.uri == asked.url
    assert proxy.tunnels == is_tunneled
    assert len(service.received) == 1


# -- credentials -----------------------------------------------------------------------------------


def test_no_credential_of_a_client_is_in_the_file(
    send: Send, service: ClientService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bearer tokens, keys in the query, AWS signatures, and what the service repeats of them."""
    path = tmp_path / "keys.yaml"
    headers = {"Authorization": f"Bearer {SECRET}", "X-Auth-Token": SECRET[::-1]}
    with recording(path):
        send(Asked("GET", f"{service.base_url}/v1/users/me?api_key={SECRET}", None, headers))

    written = path.read_bytes()
    assert (traces(written, SECRET), traces(written, SECRET[::-1])) == ([], [])
    assert (AWS_ID.encode() in written, AWS_SECRET.encode() in written) == (False, False)
    assert b"AWS4-HMAC" not in written


def test_a_password_of_netrc_is_not_in_the_file(
    service: ClientService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """requests takes it from there by itself."""
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login ada password {SECRET}")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with recording(tmp_path / "netrc.yaml"):
        requests.get(f"{service.base_url}/v1/users/me", timeout=60)

    assert str(service.authorization()).startswith("Basic ")
    assert traces((tmp_path / "netrc.yaml").read_bytes(), SECRET) == []


@pytest.mark.parametrize(("path", "timeout_s"), [("users/me", 5), ("cut", 5), ("silent", 0.3)])
def test_the_code_never_sees_the_sessions_key(
    send: Send, service: ClientService, tmp_path: Path, path: str, timeout_s: float
) -> None:
    """The request of a response or an error is the one that the code made."""
    seen: list[object] = []
    with Session(service.base_url, SECRET, pace="off") as session, patched(session._take_senders()):
        session.record(tmp_path / "key.yaml")
        try:
            asked = Asked("GET", f"{service.base_url}/v1/{path}", timeout_s=timeout_s)
            seen.append(send(asked))
        except Exception as error:
            request = getattr(error, "request", None)
            seen += [error, getattr(request, "headers", None), getattr(error, "request_info", None)]

    if send is not CLIENTS["boto3"]:  # it has credentials of its own
        assert str(service.authorization()).startswith("Basic ")
    assert traces(repr(seen).encode(), SECRET) == []


def test_the_request_of_a_response_does_not_have_the_sessions_key(
    service: ClientService, tmp_path: Path
) -> None:
    """Its headers are those that the code set."""
    address = f"{service.base_url}/v1/packed"

    async def by_aiohttp() -> object:
        async with aiohttp.ClientSession() as client, client.get(address) as response:
            return response.request_info.headers

    with Session(service.base_url, SECRET, pace="off") as session, patched(session._take_senders()):
        session.record(tmp_path / "key.yaml")
        shown = [
            asyncio.run(by_aiohttp()),
            requests.get(address, timeout=60).request.headers,
            httpx.get(address).request.headers.raw,
        ]

    assert all(header(each.headers, "Authorization") for each in service.received)
    assert "authorization" not in str(shown).lower()


# -- single libraries ------------------------------------------------------------------------------


def test_a_connection_class_that_a_test_defines_goes_through_the_session(
    service: ClientService, tmp_path: Path
) -> None:
    """Its own ``connect`` runs when the session sends, and not in a replay."""
    host, port = service.base_url.removeprefix("http://").split(":")
    made: list[int] = []

    def get() -> bytes:
        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                made.append(1)
                super().connect()

        connection = Connection(host, int(port))
        connection.putrequest("GET", "/v1/packed")
        connection.endheaders()
        response = connection.getresponse()
        body = unpacked(response.read(), response.headers["Content-Encoding"])
        connection.close()
        return body

    with recording(tmp_path / "own.yaml"):
        recorded = get()
    with replaying(tmp_path / "own.yaml"):
        replayed = get()

    assert recorded == replayed == b"a,b\n" * 999
    assert len(made) == len(service.received) == 1


def test_a_connection_class_with_its_own_send_sends_nothing_past_the_session(
    service: ClientService, tmp_path: Path
) -> None:
    """Also on a connection that was open before the test."""

    class Connection(http.client.HTTPConnection):
        def send(self, data: Any) -> None:
            self.sock.sendall(data)

    host, port = service.base_url.removeprefix("http://").split(":")
    connection = Connection(host, int(port))
    connection.connect()
    with recording(tmp_path / "own.yaml", allow_writes=False):
        with pytest.raises(WriteRefusedError):
            connection.request("POST", "/v1/rows", b"1|2")
        connection.close()

    assert not service.received


@pytest.mark.parametrize("coding", ["Content-Length", "Transfer-Encoding"])
def test_a_body_may_follow_the_request(service: ClientService, tmp_path: Path, coding: str) -> None:
    """As `http.client` documents for ``send``."""
    is_chunked = coding == "Transfer-Encoding"
    host, port = service.base_url.removeprefix("http://").split(":")

    def post() -> bytes:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("POST", "/v1/rows", headers={coding: "chunked" if is_chunked else "3"})
        connection.send(b"3\r\na|b\r\n0\r\n\r\n" if is_chunked else b"a|b")
        response = connection.getresponse()
        first = response.peek(1)[:1]
        body = response.read()
        connection.close()
        return first + body

    raw = post()
    with recording(tmp_path / "body.yaml"):
        recorded = post()
    with replaying(tmp_path / "body.yaml"):
        replayed = post()

    assert raw == recorded == replayed
    assert [each.body for each in service.received] == [b"a|b", b"a|b"]


@pytest.mark.slow
def test_a_library_that_a_test_imports_goes_through_the_session() -> None:
    """Until then, it takes no time. In a process of its own, since others import it first."""
    code = """
import asyncio, sys
from directmail_lab.pytest_plugin.patched import patched
from directmail_lab.sessions.session import Session
from directmail_lab.settings import NO_ADDRESS

async def get():
    import aiohttp
    async with aiohttp.ClientSession() as client:
        await client.get("http://127.0.0.1:9/")

before = list(sys.meta_path)
with Session(NO_ADDRESS) as session, patched(session._take_senders()):
    assert not {"aiohttp", "requests", "urllib3"} & sys.modules.keys()
    try:
        asyncio.run(get())
    except Exception as error:
        print(type(error).__name__)
import aiohttp.connector
print(aiohttp.ClientSession._request.__module__, sys.meta_path == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["NotConnectedError", "aiohttp.client", "True"]


def test_a_connection_is_used_again(
    service: ClientService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that was opened before the test and one that is used after it."""
    caplog.set_level("DEBUG", "urllib3")
    with requests.Session() as client:
        for number in (numbers := range(3)):
            client.get(f"{service.base_url}/v1/rows?n={number}", timeout=60)
            with recording(tmp_path / "again.yaml"):
                client.get(f"{service.base_url}/v1/rows?n={number}&recorded", timeout=60)

    assert caplog.text.count("Starting new") == 1
    assert "Resetting dropped" not in caplog.text
    assert len(read_cassette(tmp_path / "again.yaml")) == len(numbers)
    assert len(service.received) == 2 * len(numbers)


@pytest.mark.parametrize(
    "body", [[b"a", b"bc"], io.BytesIO(b"abc"), iter([b"ab", b"c"]), "abc"], ids=type
)
def test_a_body_of_any_kind_is_kept(service: ClientService, tmp_path: Path, body: Any) -> None:
    """Lists, files and iterators are sent in chunks, and recorded whole."""
    with recording(tmp_path / "body.yaml"), urllib3.PoolManager() as pool:
        pool.request("POST", f"{service.base_url}/v1/rows", body=body)

    assert service.received[0].body == b"abc"
    assert read_cassette(tmp_path / "body.yaml").interaction(1).request.body == b"abc"


@pytest.mark.parametrize("kind", ["form", "file", "parts", "iterator"])
def test_a_body_of_aiohttp_of_any_kind_is_kept(
    service: ClientService, tmp_path: Path, kind: str
) -> None:
    """The session reads it, and aiohttp sends it all the same."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async def send() -> None:
        form = aiohttp.FormData({"a": "1"})
        form.add_field("file", b"abc", filename="rows.csv")
        body: Any = {"form": {"a": "1"}, "file": io.BytesIO(b"abc"), "parts": form}.get(kind)
        async with aiohttp.ClientSession() as client:
            await client.post(f"{service.base_url}/v1/rows", data=body or parts())

    with recording(tmp_path / "body.yaml"):
        asyncio.run(send())

    received = service.received[0].body or b""
    assert read_cassette(tmp_path / "body.yaml").interaction(1).request.body == received
    assert (b"abc" if kind != "form" else b"a=1") in received


def test_the_timeouts_of_a_client_are_its_own(service: ClientService, tmp_path: Path) -> None:
    """The first number is for connecting and the second for reading."""
    with recording(tmp_path / "timeout.yaml"):
        got = requests.get(f"{service.base_url}/v1/packed", timeout=(0.5, 5))
        with pytest.raises(requests.ReadTimeout):
            requests.get(f"{service.base_url}/v1/silent", timeout=(5, 0.1))

    assert got.ok


def test_a_live_stream_of_aiohttp_stays_a_stream(service: ClientService) -> None:
    """The service sends the second event only after the caller has the first."""
    service.goes_on.clear()

    async def lines() -> list[bytes]:
        address = f"{service.base_url}/v1/events"
        async with aiohttp.ClientSession() as client, client.get(address) as response:
            first = await response.content.readline()
            service.goes_on.set()
            return [first, *[line async for line in response.content]]

    with Session(service.base_url, SECRET) as session, patched(session._take_senders()):
        got = asyncio.run(lines())

    assert b"".join(got) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert session.recording.interaction(1).response.body == b"".join(got)


def test_a_web_socket_of_aiohttp_is_named_and_not_opened(service: ClientService) -> None:
    """A session can neither record nor replay it. Any other request with ``Upgrade`` is usual."""

    async def send(open_it: Callable[[aiohttp.ClientSession], Any]) -> None:
        async with aiohttp.ClientSession() as client:
            await open_it(client)

    address = f"{service.base_url}/v1/rows"
    with Session(NO_ADDRESS) as session, patched(session._take_senders()):
        with pytest.raises(DirectMailLabError, match="such as a WebSocket, does not go through"):
            asyncio.run(send(lambda client: client.ws_connect(address)))
        with pytest.raises(DirectMailLabError):
            asyncio.run(send(lambda client: client.post(address, headers={"Upgrade": "h2c"})))

    assert not service.received


def test_a_request_that_a_101_would_answer_is_refused(
    send: Send, service: ClientService, tmp_path: Path
) -> None:
    """What follows is no HTTP, so no cassette has it. Some clients always write ``close``."""
    headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
    with recording(tmp_path / "upgrade.yaml"):
        got = outcome(send, Asked("GET", f"{service.base_url}/v1/users/me", headers=headers))
    sent = [header(each.headers, "connection") for each in service.received]

    assert isinstance(got, Got) == bool(sent)
    assert "Upgrade" not in sent


def test_a_replay_does_not_wait_long_for_a_caller_that_cancels_no_more(
    service: ClientService, tmp_path: Path
) -> None:
    """It waits as the recording did, and a little longer. Then the body breaks off."""

    async def read(*, cancels: bool) -> None:
        async with (
            httpx.AsyncClient() as client,
            client.stream("GET", f"{service.base_url}/v1/endless") as response,
        ):
            async for _ in response.aiter_bytes():
                task = asyncio.current_task()
                assert task is not None
                if cancels:
                    task.cancel()

    async def limited() -> None:
        async with asyncio.timeout(20):
            await read(cancels=False)

    path = tmp_path / "cancelled.yaml"
    with recording(path), pytest.raises(asyncio.CancelledError):
        asyncio.run(read(cancels=True))
    with replaying(path), pytest.raises(httpx.ReadError, match="CancelledError after 0"):
        asyncio.run(limited())


def test_aiohttp_waits_for_no_100_that_the_session_has(
    service: ClientService, tmp_path: Path
) -> None:
    """The body was read before, to compare it."""

    def post() -> tuple[int, bytes]:
        async def through() -> tuple[int, bytes]:
            address = f"{service.base_url}/v1/rows"
            async with (
                aiohttp.ClientSession() as client,
                client.post(address, data=b"a,b", expect100=True) as response,
            ):
                return response.status, await response.read()

        return asyncio.run(through())

    path = tmp_path / "expect.yaml"
    raw = post()
    with recording(path):
        recorded = post()
    service.close()
    with replaying(path):
        replayed = post()

    assert raw == recorded == replayed


def test_a_connection_has_a_socket_before_it_sends(service: ClientService, tmp_path: Path) -> None:
    """Some code sets its options, and a replay has none to set them on."""

    def get() -> bytes:
        connection = http.client.HTTPConnection(service.base_url.removeprefix("http://"))
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request("GET", "/v1/users/me")
        with closing(connection):
            return connection.getresponse().read()

    path = tmp_path / "socket.yaml"
    raw = get()
    with recording(path):
        recorded = get()
    service.close()
    with replaying(path):
        replayed = get()

    assert raw == recorded == replayed


def test_a_connector_with_its_own_connect_opens_nothing_in_a_replay(
    service: ClientService, tmp_path: Path
) -> None:
    """aiohttp would send the request over its connection, although there is a response."""
    opened: list[Any] = []

    def post() -> int:
        class Connector(aiohttp.TCPConnector):
            async def connect(self, *args: Any, **options: Any) -> Any:
                opened.append(args)
                return await super().connect(*args, **options)

        async def send() -> int:
            async with (
                aiohttp.ClientSession(connector=Connector()) as client,
                client.post(f"{service.base_url}/v1/rows", data=b"1|2") as response,
            ):
                return response.status

        return asyncio.run(send())

    with recording(tmp_path / "own.yaml"):
        recorded = post()
    with replaying(tmp_path / "own.yaml"):
        replayed = post()

    assert recorded == replayed == 201
    assert len(opened) == len(service.received) == 1


@pytest.mark.parametrize("library", ["aiohttp", "httpx"])
def test_a_request_that_a_test_cancels_is_cancelled_in_the_replay(
    service: ClientService, tmp_path: Path, library: str
) -> None:
    """A response that came at once would not reach what ``asyncio.timeout`` waits for."""

    async def send() -> None:
        client: Any = aiohttp.ClientSession() if library == "aiohttp" else httpx.AsyncClient()
        async with client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.get(f"{service.base_url}/v1/silent")

    path = tmp_path / "cancelled.yaml"
    with recording(path) as session:
        assert session._open_cassette is not None
        session._open_cassette.records_failures = True  # as in a test
        asyncio.run(send())
    service.close()
    with replaying(path) as session:
        asyncio.run(send())
        assert session._open_cassette is not None
        assert session._open_cassette.unplayed() == []


def test_methods_match_in_any_case(service: ClientService, tmp_path: Path) -> None:
    """vcrpy writes a method of aiohttp as its caller did."""
    path = tmp_path / "case.yaml"
    with recording(path):
        requests.post(f"{service.base_url}/v1/rows", timeout=60)
    path.write_text(path.read_text().replace('"POST"', '"post"'))
    with replaying(path):
        assert requests.post(f"{service.base_url}/v1/rows", timeout=60).status_code == 201


def test_transports_without_a_network_are_left_alone(tmp_path: Path) -> None:
    """`httpx.MockTransport` and WSGI apps answer by themselves."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"app"]

    mock = httpx.MockTransport(lambda _: httpx.Response(200, content=b"mock"))
    with (
        Session(NO_ADDRESS) as session,
        patched(session._take_senders()),
        httpx.Client(transport=mock) as mocked,
        httpx.Client(transport=httpx.WSGITransport(app)) as local,
    ):
        assert mocked.get("http://a.test/").content == b"mock"
        assert local.get("http://a.test/").content == b"app"


def test_an_unrecorded_request_can_fail_as_a_refused_connection(send: Send, tmp_path: Path) -> None:
    """The plugin's ``unrecorded="allow"``: the client gets its own library's error."""

    def refuse(_: object) -> None:
        raise httpx.ConnectError("GET /v1/packed is not recorded, and was not sent")

    with ClientService() as closed:
        asked = Asked("GET", f"{closed.base_url}/v1/packed")
    raw = outcome(send, asked)
    with Session(NO_ADDRESS) as session, patched(session._take_senders()):
        session.replay(FileRecording("empty", path=tmp_path / "empty.yaml"))
        assert session._open_cassette is not None
        session._open_cassette.on_unmatched = refuse
        assert outcome(send, asked) == raw


def test_an_unrecorded_request_raises_what_the_plugin_asks_for(send: Send, tmp_path: Path) -> None:
    """An SDK that catches every `Exception` does not catch it, and is not asked twice."""
    with Session(NO_ADDRESS) as session, patched(session._take_senders()):
        raised: list[Exception] = []
        session._clients_transport.as_raised = lambda error: raised.append(error) or SystemExit()  # type: ignore[func-returns-value]
        with pytest.raises(SystemExit):
            send(Asked("GET", "http://a.test/v1/packed"))

    (error,) = raised
    assert not isinstance(error, NotRecordedError)
