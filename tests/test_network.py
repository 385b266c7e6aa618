"""What a session sends and what it does not: writes, redirects, the key, forked children."""

import asyncio
import gzip
import json
import os
import re
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from faulty_service import FaultyService
from hypothesis import example, given, strategies as st

import directmail_lab as dm
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import AddressError, DirectMailLabError
from directmail_lab.server.standin import StandIn
from directmail_lab.sessions.session import Session, key_of

KEY = "some-key-0123456789"
MODES = pytest.mark.parametrize("mode", [Session.live, partial(Session.record, cassette="tour")])


@pytest.mark.parametrize("base", ["https://h.test", "https://h.test:8443/a/b", "http://[::1]:8000"])
@given(path=st.text("ab/.?%&=:@[]{}#\"'\\|~^`<> +;,!$*é2F", max_size=12))
@example(path="/x").via("below two slashes stands a host")
@example(path="C#?x=#").via("no fragment is meant")
def test_a_path_is_joined_to_the_base_address_as_in_httpx(base, path):
    """The client joins the two in fewer steps than httpx. It keeps ``#``, and two slashes."""

    def address(client: httpx.Client, path: str) -> tuple[bytes, bytes, str] | None:
        try:
            url = client.build_request("GET", path).url
            return url.raw_host, url.raw_path, str(url)
        except (httpx.InvalidURL, DirectMailLabError, ValueError):
            return None

    written = f"/{path}".replace("#", "%23")
    whole = f"{base}{written}" if path.startswith("/") else written
    with Session(base) as session, httpx.Client(base_url=base) as plain:
        assert address(session.client, f"/{path}") == address(plain, whole)


@pytest.mark.parametrize("host", ["xlocalhost", "localhost.example.com", "127.0.0.1.example.com"])
def test_a_key_goes_unencrypted_to_no_name_that_resembles_this_machine(host):
    with pytest.raises(AddressError, match="would send the key unencrypted"):
        Session(f"http://{host}", KEY)


@pytest.fixture
def writing(service: FaultyService) -> Iterator[Session]:
    with Session(service.base_url, ApiKey(service.api_key), allow_writes=True) as opened:
        yield opened


def test_what_a_recording_has_in_place_of_a_value_is_not_sent(writing, service):
    """A kept login gives a cookie and a token of this kind. Other cookies are sent."""
    token = "hY5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123abcDEF123"
    person = {"token": token, "jwt": jwt, "name": "Ada", "email": "a@b.nl", "phone": "+3161234567"}
    fault = service.fault(
        body=json.dumps(person), headers={"Set-Cookie": ["a=1; Path=/", f"b={token}; Path=/"]}
    )
    with fault, writing.record("login", redact=["personal"]):
        writing.get("/v1/login")
    with writing.replay("login"):
        writing.get("/v1/login")
    writing.client.cookies.set("c", "2")
    sent = writing.get("/v1/users/me").request.headers.get("cookie")
    with writing.record("login", redact=["personal"], max_age="1 day"):
        played = writing.get("/v1/login").json()
    before = service.requests.total()
    for value in (*played.values(), "<API_KEY>"):
        for place, options in {
            "address": {"params": {"t": value}},
            "header x-session": {"headers": {"X-Session": value}},
            "body": {"json": {"to": value}},
            "body ": {"data": {"to": value}},
        }.items():
            with pytest.raises(dm.errors.CredentialError) as read:
                writing.request("GET", "/v1/lists", **options)
            with pytest.raises(dm.errors.WriteRefusedError) as written:
                writing.post("/v1/letters", if_sent="keep", **options)
            for method, error in (("GET", read.value), ("POST", written.value)):
                assert f"{method} was not sent: its {place.strip()} contains" in error.what

    assert token not in str(played)
    assert sent == "c=2"
    assert service.requests.total() == before
    with pytest.raises(dm.errors.CredentialError, match=r"(?s)response\s3.*replayed"):
        writing.get("/v1/lists", params={"t": played["name"]})
    assert writing.post("/v1/letters", json={"to": "<https://b.nl/order-20261121>"}).is_success


SLOPPY = {
    "GET /204": b"204 No Content\r\nContent-Length: 2\r\n\r\nhi",
    "HEAD /head": b"200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "GET /more": b"200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 201 Created\r\n\r\n",
    "GET /fine": b"200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "POST /letters": b"402 Payment Required\r\nContent-Length: 0\r\n\r\n",
}


@pytest.fixture
def sloppy() -> Iterator[tuple[str, list[object]]]:
    """The address of a server that sends what `SLOPPY` has, and its connections."""
    connections = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            connections.append(self)
            for line in iter(self.rfile.readline, b""):
                if line.startswith((b"GET", b"HEAD", b"POST")):
                    requested = line.decode().rpartition(" ")[0]
                elif not line.strip():
                    self.wfile.write(b"HTTP/1.1 " + SLOPPY[requested])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", connections
        server.shutdown()


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_left_on_a_connection_is_not_the_response_to_the_next_letter(sloppy, is_async):
    """Such a connection is closed; others are used again."""
    url, connections = sloppy

    async def by_async(session: Session, *request: str) -> int:
        return (await session.async_client.request(*request)).status_code

    async def send(session: Session) -> list[int]:
        statuses = []
        for requested in list(SLOPPY)[:-1]:
            for request in (requested.split(), ["POST", "/letters"]):
                if is_async:
                    statuses.append(await by_async(session, *request))
                else:
                    statuses.append(session.client.request(*request).status_code)
        return statuses

    with Session(url, "k" * 20, allow_writes=True, pace="off") as session:
        statuses = asyncio.run(send(session))

    assert statuses[1::2] == [402] * 4
    assert len(connections) == 4


def test_a_response_that_expands_to_gigabytes_is_refused_while_it_is_read(writing, service):
    packed = gzip.compress(bytes(70 * 1024**2))
    with service.fault(body=packed, headers={"Content-Encoding": "gzip"}):
        with pytest.raises(httpx.DecodingError, match="is too large"):
            writing.get("/v1/lists")
        with writing.client.stream("GET", "/v1/lists") as response:
            size = sum(map(len, response.iter_bytes()))

    assert size == 70 * 1024**2


def test_a_recording_keeps_no_body_that_is_too_large_in_memory(writing, service):
    """Its caller gets it whole, and the recording says how large it is."""
    size = 120 * 1024**2
    with (
        service.fault(body=bytes(size)),
        writing.record("tour"),
        writing.client.stream("GET", "/v1/lists") as response,
    ):
        tracemalloc.start()
        received = sum(map(len, response.iter_raw()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert received == size
    assert peak < 80 * 1024**2
    assert f"<not recorded: {size} bytes>" in Path("cassettes/tour.yaml").read_text()


def test_raise_for_status_repeats_no_credential_of_a_redirect(writing, service):
    place = f"https://b.nl/?token=hY5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L&id={service.api_key}"
    with service.fault(redirect_to=place), pytest.raises(httpx.HTTPStatusError) as refused:
        writing.get("/v1/lists").raise_for_status()

    assert "https://b.nl/?token=<REDACTED>&id=<API_KEY>" in str(refused.value)


@pytest.mark.parametrize(
    "override",
    [
        {"headers": {"X-HTTP-Method-Override": "DELETE"}},
        {"headers": {"x-method-override": "put"}},
        {"headers": {"X-HTTP-Method": "PATCH"}},
        {"headers": {"x_http_method_override": "DELETE"}},  # WSGI and CGI see the same name
        {"params": {"_method": "POST"}},
        {"params": {" _METHOD": "POST"}},
        {"params": [("_method", "GET"), ("_method", "delete")]},
        {"path": "/v1/letters?%5Fm%65thod=DELETE"},
    ],
    ids=str,
)
def test_a_read_with_a_method_override_is_treated_as_a_write(service, live, override):
    """Some frameworks take the method from a header or a parameter, so such a read may write."""
    for method in ("GET", "HEAD"):
        with pytest.raises(dm.errors.WriteRefusedError):
            live.request(method, **{"path": "/v1/letters", **override})

    assert service.requests.total() == 0
    assert live.get("/v1/users/me", headers={"X-HTTP-Method-Override": "get"}).is_success


def test_a_redirected_write_is_sent_once_unless_its_redirect_is_a_read(service, writing):
    """A 303 leads to a page that can be read. The same request object can be sent again."""
    for status in (307, 308):
        with (
            service.fault(redirect_to=f"{service.base_url}/v1/letters", status=status),
            pytest.raises(dm.errors.WriteRefusedError, match="never sent twice"),
        ):
            writing.post("/v1/letters", json={}, follow_redirects=True)
    sent = service.requests["POST /v1/letters"]
    letter = writing.client.build_request("POST", "/v1/letters", json={})
    with service.fault(redirect_to=f"{service.base_url}/v1/users/me", status=303, times=1):
        followed = writing.client.send(letter, follow_redirects=True)
    writing.client.send(letter)

    assert followed.json()["name"] == "Stand-in User"
    assert (sent, service.requests["POST /v1/letters"]) == (2, 4)


@pytest.mark.parametrize(
    "fault",
    [
        {"latency_s": 5.0},
        {"drop": "reset"},
        {"cut_after": 3},
        {"headers": {"Content-Encoding": "gzip"}, "body": "no gzip"},
    ],
    ids=str,
)
@MODES
def test_a_write_without_a_complete_response_has_an_unknown_outcome(service, writing, fault, mode):
    timed_out = "latency_s" in fault
    writing.client.timeout = httpx.Timeout(1.0 if timed_out else 30.0)
    with (
        mode(writing),
        service.fault(**fault),
        pytest.raises(dm.errors.OutcomeUnknownError, match="may have been carried out") as caught,
    ):
        writing.post("/v1/letters", json={})

    assert isinstance(caught.value, httpx.TimeoutException) is timed_out
    assert service.requests["POST /v1/letters"] == 1


@pytest.mark.parametrize(
    ("method", "error"),
    [("GET", httpx.RemoteProtocolError), ("POST", dm.errors.OutcomeUnknownError)],
)
def test_a_streamed_body_that_breaks_off_is_explained_too(service, writing, method, error):
    """The body is read after the client has returned. No frame shows what was sent."""
    with (
        service.fault(cut_after=3),
        pytest.raises(error) as caught,
        writing.client.stream(method, "/v1/letters") as response,
    ):
        response.read()

    assert not [frame for frame in caught.traceback if "_transports" in str(frame.path)]
    assert caught.value.__cause__ is caught.value.__context__ is None


def answering(monkeypatch: pytest.MonkeyPatch) -> tuple[mock.Mock, mock.Mock]:
    """Replace the network; return the mocks that connect and send."""
    send = mock.Mock(side_effect=lambda _: httpx.Response(200))
    connect = mock.Mock(side_effect=lambda **_: httpx.MockTransport(send))
    monkeypatch.setattr(httpx, "HTTPTransport", connect)
    return connect, send


@pytest.mark.parametrize("error", [httpx.ReadTimeout, dm.DirectMailLabError])
def test_a_key_in_an_errors_message_is_removed(live, monkeypatch, error):
    """A host name or a server's words may contain the key, whoever wrote the message."""
    key = key_of(live)
    _, send = answering(monkeypatch)
    send.side_effect = error(f"about {key.reveal()}")
    with pytest.raises(error, match="about <API_KEY>"):
        live.me()


def test_an_excerpt_that_ends_within_the_key_has_nothing_of_it(service, live):
    """The key is searched for before the body is truncated."""
    service.fault(status=500, body="-" * 190 + service.api_key)
    with pytest.raises(dm.errors.ServiceError) as caught:
        live.me()

    assert caught.value.excerpt == ("-" * 190 + "<API_KEY>")[:200]


def test_a_callers_own_authorization_is_sent_without_the_sessions_key(live, monkeypatch):
    _, send = answering(monkeypatch)
    live.get("/v1/users/me", headers={"Authorization": "Bearer mine"})

    assert send.call_args.args[0].headers.get_list("Authorization") == ["Bearer mine"]


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("https://api.example.test", "http://proxy.test:3128"),
        ("https://direct.test", None),
        ("http://127.0.0.1:1", None),
    ],
)
def test_the_proxy_of_the_environment_is_used(monkeypatch, address, proxy):
    """Loopback addresses and the hosts in NO_PROXY are reached directly."""
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "direct.test")
    connect, _ = answering(monkeypatch)
    with Session(address, KEY) as session:
        session.get("/")

    used = connect.call_args.kwargs["proxy"]
    assert proxy == (used and used.url)


@pytest.mark.parametrize("says", ["407 Proxy Authentication Required", "403 Forbidden"])
@pytest.mark.parametrize("scheme", ["http://me:s3cret@", ""])
def test_a_proxy_that_refuses_is_named_without_its_password(monkeypatch, says, scheme):
    """The service itself may well respond. The default scheme is http, as in httpx and curl."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(f"HTTP/1.1 {says}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=respond)
        thread.start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", f"{scheme}{place}")
        with (
            Session("https://api.example.test", KEY) as session,
            pytest.raises(httpx.TransportError) as caught,
        ):
            session.get("/v1/users/me")
        thread.join()

    said = str(caught.value)
    assert f"to https://api.example.test through the proxy http://{place} ({says})." in said
    assert "s3cret" not in said


@pytest.mark.parametrize("address", ["ftp://me:s3cret@p.test", "http://me:s3cret@p.test:port"])
def test_a_proxy_that_cannot_be_used_is_refused_at_once(monkeypatch, address):
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(AddressError, match="not valid") as caught:
        Session("https://api.example.test", KEY)

    assert "unset HTTPS_PROXY" in caught.value.advice
    assert "s3cret" not in str(caught.value)


@MODES
def test_a_body_that_is_compressed_more_than_once_is_not_opened(service, live, mode):
    """A kilobyte compressed three times can expand to gigabytes, and no real service sends that."""
    bomb = gzip.compress(gzip.compress(gzip.compress(bytes(10_000_000))))
    service.fault(body=bomb, headers={"Content-Encoding": "gzip, gzip, gzip"})
    tracemalloc.start()
    with mode(live), pytest.raises(httpx.DecodingError, match="compressed more than once"):
        live.me()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(bomb) < 1_000
    assert most < 5_000_000


def test_installed_packages_do_not_change_accept_encoding(service, monkeypatch):
    """httpx would also accept brotli and zstd if installed, and the recordings would differ."""
    monkeypatch.setattr("httpx._client.ACCEPT_ENCODING", "gzip, deflate, br, zstd")
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        asked = session.client.get("/v1/users/me").request

    assert asked.headers["accept-encoding"] == "gzip, deflate"
    assert session.async_client.headers["accept-encoding"] == "gzip, deflate"


_AS_A_COMPANY = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ca.key \\
    -out ca.pem -subj "/CN=A company" -addext basicConstraints=critical,CA:TRUE \\
    -addext keyUsage=critical,keyCertSign
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key \\
    -out server.csr -subj "/CN=127.0.0.1"
printf 'subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash' >ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \\
    -out server.pem
"""
_CALLS = """
import asyncio, ctypes, os, sys
from pathlib import Path
import directmail_lab as dm

address, *named = sys.argv[1:]
if "system" in named:  # OpenSSL sees the variable, and Python does not: so it is the system's file
    ctypes.CDLL(None).setenv(b"SSL_CERT_FILE", os.fsencode(Path("ca.pem").absolute()), 1)
session = dm.connect(address, "key-of-a-test")
try:
    there, nowhere = dm.get("/v1/users/me"), asyncio.run(session.async_client.get("/"))
    print(there.status_code, nowhere.status_code)
except Exception as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file of certificates")
def test_a_certificate_is_trusted_if_its_root_is_the_systems_or_named(tmp_path):
    """A company's own root is trusted as pip does; otherwise the key is not sent."""
    subprocess.run(["sh", "-e"], input=_AS_A_COMPANY, text=True, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("server.pem", "server.key")
    inherited = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}

    def called(*named: str, **variables: str) -> str:
        arguments = [sys.executable, "-c", _CALLS, address, *named]
        ran = subprocess.run(
            arguments, env=inherited | variables, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    with StandIn(api_key="key-of-a-test") as service:
        service._server.socket = context.wrap_socket(service._server.socket, server_side=True)
        address = service.base_url.replace("http:", "https:")
        by_system, by_name = called("system"), called(SSL_CERT_FILE="ca.pem")
        refused = [called(), called(SSL_CERT_DIR=str(tmp_path))]

    assert by_system == by_name == "200 404"
    assert all("is not trusted, so the key was not sent" in each for each in refused)


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file or directory"), ("no certificate", r"\[X509.*\(.*\)")]
)
def test_certificates_that_cannot_be_read_are_named(live, monkeypatch, text, why):
    """Python's own error names neither the file nor the variable."""
    path = Path("company.pem").absolute()
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    if text is not None:
        path.write_text(text)
    message = (
        rf"^SSL_CERT_FILE, {re.escape(str(path))}, cannot be read: {why}.\nCorrect or unset it"
    )
    for ask in (live.me, lambda: asyncio.run(live.me_async())):
        with pytest.raises(dm.DirectMailLabError, match=message):
            ask()


class _Interrupted(httpx.SyncByteStream):
    """A response body that raises KeyboardInterrupt."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __iter__(self) -> Iterator[bytes]:
        if self._where == "read":
            raise KeyboardInterrupt
        yield b""

    def close(self) -> None:
        if self._where == "close":
            raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["send", "read", "close"])
@MODES
def test_a_request_after_ctrl_c_opens_new_connections(live, monkeypatch, mode, where):
    """An interrupt may leave one of httpcore's locks locked, and later requests would hang."""
    connect, send = answering(monkeypatch)
    interrupt = KeyboardInterrupt if where == "send" else None
    responses = [interrupt or httpx.Response(200, stream=_Interrupted(where)), mock.DEFAULT]
    send.side_effect, send.return_value = responses, httpx.Response(200)
    with mode(live):
        with pytest.raises(KeyboardInterrupt):
            live.get("/v1/lists")
        live.get("/v1/lists")

    assert connect.call_count == 2


def test_each_event_loop_has_connections_of_its_own(live, monkeypatch):
    """A connection works only in the loop that opened it, also while another loop runs."""
    opened = mock.Mock(wraps=httpx.AsyncHTTPTransport)
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", opened)

    async def ask_here_and_in_another_loop() -> None:
        await live.me_async()
        await asyncio.to_thread(asyncio.run, live.me_async())
        await live.me_async()

    asyncio.run(ask_here_and_in_another_loop())

    assert opened.call_count == 2


@pytest.mark.posix("forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(live, monkeypatch):
    """On a shared connection, parent and child would read each other's responses."""
    connect, opened = socket.socket.connect, []

    def counted(self: socket.socket, address: Any) -> None:
        opened.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", counted)
    live.me()
    if (child := os.fork()) == 0:
        live.me()
        os._exit(len(opened))
    _, status = os.waitpid(child, 0)
    live.me()

    assert os.waitstatus_to_exitcode(status) == 2
    assert len(opened) == 1


NO_HOSTS = ["a" * 300, "xn--a"]
NO_ADDRESSES = [
    *("http://[::1", "http://127.0.0.1:8\t0", "http://127.0.0.1:x", "http://a\x01b/", "/v1/\x00"),
    *("/v1/\ud800", "http://\u202ea.com", *(f"https://{host}.example.com" for host in NO_HOSTS)),
]


@pytest.mark.parametrize("address", NO_ADDRESSES, ids=ascii)
def test_an_invalid_address_is_our_error(service, connected, address):
    asked: list[Callable[[], object]] = [
        lambda: dm.get(address),
        lambda: dm.put(address),
        lambda: next(dm.pages(address)),
        lambda: asyncio.run(connected.async_client.get(address)),
    ]
    for ask in asked:
        with pytest.raises(dm.errors.AddressError) as caught:
            ask()
        assert address not in str(caught.value)
    with pytest.warns(UserWarning, match="1 of 1 request failed") as said:
        assert isinstance(dm.get_many([address])[0], dm.errors.AddressError)
    assert address not in str(said[0].message)
    assert service.requests.total() == 0

    body = json.dumps({"data": [1], "next": address})
    service.fault(path="/v1/lists", body=body)
    with pytest.raises(dm.errors.AddressError):
        list(dm.pages("/v1/lists"))


@pytest.mark.parametrize("host", NO_HOSTS, ids=len)
def test_a_redirect_to_an_invalid_address_is_our_error(service, connected, host):
    service.fault(redirect_to=f"https://{host}.example.com")
    with pytest.raises(dm.errors.AddressError, match="This is not a valid address"):
        connected.get("/v1/lists", follow_redirects=True)


# The first address makes the file invalid.
@pytest.mark.parametrize("address", NO_ADDRESSES[1:], ids=ascii)
def test_a_cassette_with_an_invalid_base_address_is_replayed(tour, address):
    """A replay needs only the paths."""
    text = tour.read_text(encoding="utf-8")
    changed = re.sub(r'("base_url": )"[^"]*"', lambda at: at[1] + json.dumps(address), text)
    tour.write_text(changed, encoding="utf-8")
    dm.replay("tour")

    assert dm.session().base_url == "https://recorded.invalid"
    assert dm.interactions("tour")["status"].tolist() == [200, 200, 404, 201]


def test_the_error_for_an_invalid_request_does_not_contain_its_values(service, connected):
    with pytest.raises(httpx.LocalProtocolError, match="is not valid HTTP") as caught:
        connected.get("/v1/users/me", headers={"X-Mine": "a\nprivate"})

    assert "private" not in str(caught.value)
    assert service.requests.total() == 0
