"""Recordings over real HTTP on loopback, and the gateway that records: for any client."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import zlib
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import requests
from cassette_samples import BASE_URL, answered, get
from hypothesis import example, given, settings, strategies as st
from key_search import planted, traces
from test_cli import invoke, output_until, started

from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cli.output import error_message
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import DirectMailLabError
from directmail_lab.interaction import Interaction, RecordedResponse
from directmail_lab.loopback import Exchange, LoopbackServer
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.unpack import MAGIC
from directmail_lab.server import SessionServer, redacted_parts
from directmail_lab.sessions import replaying_session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from directmail_lab.standin import StandIn

ME = "/v1/users/me"
KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
Answer = tuple[int, list[tuple[str, str]], bytes]


# -- clients -----------------------------------------------------------------------------------


def raw(address: str, sent: bytes) -> bytes:
    """Send bytes, and read to the end."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def parsed(response: bytes) -> Answer:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), [tuple(line.split(": ", 1)) for line in lines], body  # type: ignore[misc]


def by_socket(method: str, url: str, body: bytes) -> Answer:
    target = url.partition("//")[2].partition("/")[2]
    head = f"{method} /{target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return parsed(raw(url, f"{head}Connection: close\r\n\r\n".encode() + body))


def by_curl(method: str, url: str, body: bytes) -> Answer:
    words = ["curl", "-s", "-i", "-X", method, "--data-binary", "@-", url]
    return parsed(subprocess.run(words, input=body, capture_output=True, check=True).stdout)


def by_requests(method: str, url: str, body: bytes) -> Answer:
    response = requests.request(method, url, data=body, timeout=60)
    return response.status_code, list(response.headers.items()), response.content


NODE = """
const [method, url, body] = process.argv.slice(1);
const sent = method === "GET" ? {} : {body: Buffer.from(body, "latin1")};
const answer = await fetch(url, {method, ...sent});
const bytes = Buffer.from(await answer.arrayBuffer()).toString("base64");
console.log(JSON.stringify([answer.status, [...answer.headers], bytes]));
"""


def by_node(method: str, url: str, body: bytes) -> Answer:
    import base64

    words = ["node", "--input-type=module", "-e", NODE, method, url, body.decode("latin-1")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    status, headers, content = json.loads(done.stdout)
    return status, headers, base64.b64decode(content)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


CLIENTS = [
    by_socket,
    by_requests,
    pytest.param(by_curl, marks=needs("curl")),
    pytest.param(by_node, marks=needs("node")),
]


# -- replay ------------------------------------------------------------------------------------


def replaying(*paths: Path, repeat: Any = "last", **options: Any) -> SessionServer:
    sessions = []
    for path in paths:
        sessions.append(replaying_session(path))
        sessions[-1].replay(path, repeat=repeat)
    return SessionServer(sessions, **options)


def write(path: Path, *interactions: Interaction, base_url: str = BASE_URL) -> Path:
    with Cassette(path, record_mode="all", redactor=Redactor(), base_url=base_url) as cassette:
        for interaction in interactions:
            cassette.record(interaction)
    return path


@pytest.mark.parametrize("client", CLIENTS)
def test_any_client_gets_what_was_recorded(client: Any, tour: Path) -> None:
    """The tour in its order: each status, header and body as the cassette holds it."""
    interactions = read_cassette(tour).interactions
    targets = [
        ("GET", ME),
        ("GET", ME),
        ("GET", "/v1/lists/8f14e45f?page=2"),
        ("POST", "/v1/letters"),
    ]
    with replaying(tour) as server:
        responses = [
            client(method, server.base_url + path, b'{"a": 1}' if method == "POST" else b"")
            for method, path in targets
        ]

    for (status, headers, body), interaction in zip(responses, interactions, strict=True):
        assert (status, body) == (interaction.response.status, interaction.response.body)
        received = {name.lower(): value for name, value in headers}
        assert {
            name.lower(): value for name, value in interaction.response.headers
        }.items() <= received.items()


header_names = st.text("abcXYZ0189-", min_size=1, max_size=9).map(lambda name: f"X-{name}")
# Between visible characters a space may stand; of the rest, a byte above 160 is one character.
visible = st.characters(codec="latin-1", categories=("L", "N", "P", "S"))
header_values = st.text(visible, max_size=9)
recorded_answers = st.builds(
    RecordedResponse,
    status=st.sampled_from([200, 204, 304, 404, 503, 799]),
    reason=st.sampled_from(["OK", "", "Très bien", "a\r\nX-Split: 1"]),
    headers=st.lists(st.tuples(header_names, header_values), max_size=4).map(tuple),
    body=st.binary(max_size=40) | st.just(bytes(range(256)) * 260),
)


@settings(max_examples=40)
@given(
    responses=st.lists(recorded_answers, min_size=1, max_size=3),
    method=st.sampled_from(["GET", "HEAD"]),
)
def test_an_answer_is_the_cassettes_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, responses: list[RecordedResponse], method: str
) -> None:
    """Repeated headers, their order and spelling, every body; only its length is added."""
    path = tmp_path_factory.mktemp("served") / "any.yaml"
    write(path, *(Interaction(replace(get(ME), method=method), response) for response in responses))
    expected = [interaction.response for interaction in read_cassette(path).interactions]
    sent = f"{method} {ME} HTTP/1.1\r\nHost: [::1]\r\n".encode()
    with replaying(path) as server:
        got = [parsed(raw(server.base_url, sent + b"Connection: close\r\n\r\n")) for _ in expected]

    for (status, headers, body), wanted in zip(got, expected, strict=True):
        bare = method == "HEAD" or status in (204, 304)
        own = {"connection", "content-length", "transfer-encoding"}
        assert (status, body) == (wanted.status, b"" if bare else wanted.body)
        received = [(n, v.encode("latin-1")) for n, v in headers if n.lower() not in own]
        assert received == [(n, v.encode()) for n, v in wanted.headers]


def test_what_is_between_two_neighbours_is_not_replayed(tmp_path: Path) -> None:
    """A foreign cassette may hold how its body was sent, and a length that it no longer has."""
    between = [("Transfer-Encoding", "chunked"), ("Connection", "upgrade"), ("Upgrade", "h2c")]
    spelled = ("content-length", "3")
    lengths = [
        [],
        [("Content-Length", "9")],
        [("Content-Length", "3")] * 2,
        [spelled, ("X-A", "1")],
    ]
    path = write(
        tmp_path / "a.yaml",
        *(
            Interaction(get(ME), RecordedResponse(200, "", (*between, *own), b"xyz"))
            for own in lengths
        ),
    )
    with replaying(path) as server:
        got = [by_socket("GET", server.base_url + ME, b"") for _ in lengths]

    own = [[*headers[:-1]] for _, headers, _ in got]
    assert own == [[("Content-Length", "3")]] * 3 + [[spelled, ("X-A", "1")]]
    assert {body for _, _, body in got} == {b"xyz"}


@pytest.mark.parametrize(
    "response",
    [RecordedResponse(103), RecordedResponse(0), RecordedResponse(200, "", (("X", "a\r\nY: b"),))],
)
def test_what_http_cannot_carry_is_a_502(response: RecordedResponse, tmp_path: Path) -> None:
    """A hostile cassette adds no header and no answer of its own."""
    (tmp_path / "a.yaml").write_text(
        json.dumps({"version": 1, "interactions": [as_vcrpy(response)]}), encoding="utf-8"
    )
    with replaying(tmp_path / "a.yaml") as server:
        status, headers, body = by_socket("GET", server.base_url + ME, b"")

    assert (status, json.loads(body)["error"]["reason"]) == (502, "invalid")
    assert "Y" not in dict(headers)


def as_vcrpy(response: RecordedResponse) -> dict[str, Any]:
    request = {"method": "GET", "uri": BASE_URL + ME, "body": None, "headers": {}}
    status = {"code": response.status, "message": response.reason}
    headers = {name: [value] for name, value in response.headers}
    response = {"status": status, "headers": headers, "body": {"string": "{}"}}
    return {"request": request, "response": response}


@pytest.mark.parametrize(
    ("repeat", "target", "status", "says"),
    [
        ("last", ME, 200, "Jo"),
        ("strict", ME, 404, "nothing_left"),
        ("last", "/v1/lists/8f14e45f?page=3", 404, "no_match"),
        (
            "last",
            "/v1/lists/8f14e45f?page=3",
            404,
            "Nearest: GET /v1/lists/8f14e45f, which differs in query.",
        ),
    ],
)
def test_without_an_unplayed_response_comes_the_last_or_a_refusal(
    tour: Path, repeat: str, target: str, status: int, says: str
) -> None:
    """As in `replay`; a refusal is JSON that names the nearest, and no query or body."""
    with replaying(tour, repeat=repeat) as server:
        for _ in range(3):
            got, headers, body = by_socket("GET", server.base_url + target, b"")

    assert got == status
    assert says in body.decode()
    assert "page" not in body.decode()
    assert status == 200 or json.loads(body)["error"]["status"] == 404
    assert ("Content-Type", "application/json; charset=utf-8") in headers or status == 200


def test_several_cassettes_answer_in_their_order(tmp_path: Path, tour: Path) -> None:
    """Those not played yet first, whatever base address each was recorded under."""
    other = write(
        tmp_path / "b.yaml",
        answered(get("/eu/v1/users/me"), b"eu"),
        answered(get("/eu/v1/more"), b"more"),
        base_url=f"{BASE_URL}/eu",
    )
    with replaying(tour, other) as server:
        bodies = [by_socket("GET", server.base_url + ME, b"")[2] for _ in range(4)]
        more = by_socket("GET", f"{server.base_url}/v1/more", b"")
        none = json.loads(by_socket("GET", f"{server.base_url}/v1/none", b"")[2])["error"][
            "message"
        ]

    assert [b"Jo" in bodies[1], bodies[2], b"Jo" in bodies[3]] == [True, b"eu", True]
    assert (more[0], more[2]) == (200, b"more")
    assert "cassette 'tour'" in none
    assert "cassette 'b'" in none


def test_of_many_cassettes_those_with_the_nearest_requests_are_named(tmp_path: Path) -> None:
    """One that has the request, but nothing left to play, before all others."""
    paths = [write(tmp_path / f"{n}.yaml", answered(get(f"/v1/{n}" * n), b"")) for n in range(9)]
    paths.append(write(tmp_path / "it.yaml", answered(get(ME), b"")))
    with replaying(*paths, repeat="strict") as server:
        _, (_, _, body) = (by_socket("GET", server.base_url + ME, b"") for _ in range(2))
    error = json.loads(body)["error"]

    assert error["reason"] == "nothing_left"
    assert re.findall(r"in cassette '(\w+)'", error["message"])[0] == "it"
    assert "not in 7 more" in error["message"]


def test_one_connection_carries_requests_one_after_the_other(tour: Path) -> None:
    """Also those sent before the first answer came; a client that waits is told to go on."""
    one = f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    waits = b"POST /v1/letters HTTP/1.1\r\nHost: a.localhost\r\nExpect: 100-continue\r\n"
    with replaying(tour) as server:
        parts = urlsplit(server.base_url)
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
            connection.sendall(
                one + one + waits + b"Connection: close\r\nContent-Length: 8\r\n\r\n"
            )
            got = b""
            while b"HTTP/1.1 100 " not in got:
                got += connection.recv(65_536)
            connection.sendall(b'{"a": 1}')
            got += b"".join(iter(lambda: connection.recv(65_536), b""))

    assert re.findall(rb"HTTP/1.1 (\d+) ", got) == [b"200", b"200", b"100", b"201"]


def test_what_follows_a_request_and_is_none_is_answered_as_such(tour: Path) -> None:
    """Whatever the method of the request before: the answer to HEAD alone has no body."""
    head = f"HEAD {ME} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with replaying(tour) as server:
        last = raw(server.base_url, f"{head}nonsense\r\n\r\n".encode()).rpartition(b"HTTP/1.1 ")[2]

    assert last.startswith(b"400 Bad Request")
    assert json.loads(last.partition(b"\r\n\r\n")[2])["error"]["reason"] == "malformed"


# -- who may ask -------------------------------------------------------------------------------


@pytest.fixture
def gateway(live: Session, tmp_path: Path) -> Iterator[SessionServer]:
    """A gateway to the stand-in, which records to ``tour.yaml``."""
    live.record(tmp_path / "tour.yaml")
    with SessionServer([live], allow_origins=["http://localhost:3000"]) as server:
        yield server


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1:80", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: none", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: evil.example", 403),  # DNS rebinding
        (f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1.evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: [::1", 403),
        (f"GET {ME} HTTP/1.0", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: null", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site", 403),  # <img src>
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 403),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost", 403),
        ("GET //evil.example/v1 HTTP/1.1\r\nHost: localhost", 404),  # below the base address
        ("GET /%zz HTTP/1.1\r\nHost: localhost", 404),
        ("nonsense", 400),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nX-Long: {'a' * 200_000}", 431),
        (
            "POST /v1/letters HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Length: 9\r\nTransfer-Encoding: chunked",
            400,
        ),
    ],
)
def test_no_page_and_no_proxy_request_gets_through(
    gateway: SessionServer, service: StandIn, head: str, status: int
) -> None:
    """Only a client of this machine is answered, and nothing else reaches the service."""
    sent = f"{head}\r\nConnection: close\r\n\r\n".encode()
    got, headers, body = parsed(raw(gateway.base_url, sent))
    is_answered = status in (200, 404)

    assert got == status
    assert ("Connection", "close") in headers
    assert bool(service.requests) == is_answered
    assert is_answered or json.loads(body)["error"]["reason"] in ("refused", "malformed")
    assert "token" not in body.decode()


def test_an_allowed_page_may_ask_and_read(gateway: SessionServer) -> None:
    """A browser asks first whether it may; both answers say so, and name the three headers."""
    origin = {"Origin": "http://localhost:3000"}
    asks = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-a"}
    before = requests.options(gateway.base_url + ME, headers=origin | asks, timeout=60)
    response = requests.get(gateway.base_url + ME, headers=origin, timeout=60)
    bare = requests.get(gateway.base_url + ME, timeout=60)

    assert (before.status_code, before.headers["Access-Control-Allow-Headers"]) == (204, "x-a")
    assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert "X-RateLimit-Limit" in response.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Origin" not in bare.headers


def test_a_page_that_a_browser_shows_runs_no_script(tour: Path) -> None:
    """A cassette may be a stranger's, and every server of this machine has the same cookies."""
    browser = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
    with replaying(tour) as server:
        shown = requests.get(server.base_url + ME, headers=browser, timeout=60)
        fetched = requests.get(server.base_url + ME, timeout=60)

    assert shown.headers["Content-Security-Policy"] == "sandbox"
    assert "Content-Security-Policy" not in fetched.headers


def test_with_a_token_only_its_address_is_answered(tour: Path) -> None:
    """The address is the token's; others are refused before anything is played."""
    with replaying(tour, token="secret-token") as server:
        bare = server.base_url.removesuffix("/secret-token")
        statuses = [
            by_socket("GET", url, b"")[0]
            for url in (
                bare + ME,
                f"{bare}/secret{ME}",
                f"{bare}/secret-tokenX{ME}",
                server.base_url + ME,
            )
        ]

    assert statuses == [403, 403, 403, 200]


# -- record ------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_any_client_is_recorded_without_a_key(
    client: Any, gateway: SessionServer, service: StandIn, tmp_path: Path
) -> None:
    """The service knows the account; what was recorded replays, and holds no key."""
    status, headers, body = client("GET", gateway.base_url + ME, b"")
    gateway.close()
    cassette = tmp_path / "tour.yaml"
    with replaying(cassette) as server:
        again = client("GET", server.base_url + ME, b"")

    assert (status, body) == (200, again[2])
    assert ("x-ratelimit-remaining", "299") in [(name.lower(), value) for name, value in headers]
    assert service.requests == {f"GET {ME}": 1}
    assert cassette.read_bytes().splitlines()[-1].startswith(b"# end: 1 interaction")
    assert traces(cassette.read_bytes(), service.api_key) == []


def test_the_clients_own_credentials_go_nowhere(
    gateway: SessionServer, service: StandIn, tmp_path: Path
) -> None:
    """They are not sent, not recorded; and where the service repeats the key, no client gets it."""
    own = {
        "Authorization": "Basic b3duOnNlY3JldA==",
        "Cookie": "own=secret",
        "X-Own": "Zoë".encode(),
    }
    with service.fault(echo_key=True):
        response = requests.get(gateway.base_url + ME, headers=own, timeout=60)
    gateway.close()
    (interaction,) = read_cassette(tmp_path / "tour.yaml").interactions

    assert (response.status_code, response.json()["you_sent"]["key"]) == (200, "<API_KEY>")
    assert traces(response.content + str(response.headers).encode(), service.api_key) == []
    assert ("x-own", "Zoë") in interaction.request.headers
    assert not {"authorization", "cookie"} & {name for name, _ in interaction.request.headers}
    assert b"b3du" not in (tmp_path / "tour.yaml").read_bytes()


def test_writes_are_refused_unless_they_are_allowed(
    gateway: SessionServer, service: StandIn
) -> None:
    """By method, and by a header that overrides it; allowed, a large one arrives whole."""
    refused = requests.post(f"{gateway.base_url}/v1/letters", data=b"x", timeout=60)
    hidden = {"X-HTTP-Method-Override": "DELETE"}
    overriding = requests.get(gateway.base_url + ME, headers=hidden, timeout=60)
    session = Session(service.base_url, ApiKey(service.api_key), allow_writes=True)
    session.record(Path("writes.yaml"))
    large = b"x" * 3_000_000
    with SessionServer([session]) as server:
        sent = requests.post(f"{server.base_url}/v1/letters", data=large, timeout=60)
    (interaction,) = read_cassette(Path("writes.yaml")).interactions

    assert [refused.status_code, overriding.status_code, sent.status_code] == [403, 403, 201]
    assert refused.json()["error"]["reason"] == "WriteRefusedError"
    assert service.requests == {"POST /v1/letters": 1}
    assert interaction.request.body == large


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ({"drop": "close"}, 502),
        ({"cut_after": 5}, 502),
        ({"encoding": "gzip"}, 200),
        ({"status": 500}, 500),
        ({"body": gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"{}"))))}, 502),
    ],
)
def test_what_the_service_does_reaches_the_client(
    unpaced: Session, service: StandIn, fault: dict[str, Any], status: int
) -> None:
    """Its own errors as they are; as JSON what broke off or cannot be searched for the key."""
    unpaced.record(Path("tour.yaml"))
    with SessionServer([unpaced]) as gateway, service.fault(**fault):
        response = requests.get(gateway.base_url + ME, timeout=60)

    assert (response.status_code, isinstance(response.json(), dict)) == (status, True)


def test_a_wait_that_is_too_long_is_passed_on(gateway: SessionServer, service: StandIn) -> None:
    """As the service's own Retry-After would be, and as text."""
    with service.fault(status=429, headers={"Retry-After": "500"}):
        response = requests.get(gateway.base_url + ME, timeout=30)

    assert response.status_code == 429
    assert 490 < int(response.headers["Retry-After"]) <= 501
    assert response.json()["error"]["reason"] == "QuotaExhaustedError"


def test_a_redirect_within_the_service_leads_back_to_the_gateway(
    gateway: SessionServer, service: StandIn
) -> None:
    """At the service's own address the client would have no key; others stay as they are."""
    targets = (f"{service.base_url}/v1/lists", "/v1/lists", "https://example.com/")
    locations = []
    for target in targets:
        with service.fault(redirect_to=target):
            moved = requests.get(gateway.base_url + ME, allow_redirects=False, timeout=60)
        locations.append(moved.headers["Location"])

    assert locations == [f"{gateway.base_url}/v1/lists", *targets[1:]]


def test_a_client_that_goes_away_costs_nothing(gateway: SessionServer, live: Session) -> None:
    """Its request is carried out and recorded, and the next client is answered."""
    answered_it = threading.Event()
    live.on_reading(lambda _: answered_it.set())
    parts = urlsplit(gateway.base_url)
    with closing(socket.create_connection((parts.hostname, parts.port))) as gone:
        gone.sendall(b"GET /v1/lists HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert answered_it.wait(60)
    assert requests.get(gateway.base_url + ME, timeout=60).status_code == 200
    assert list(live.interactions()["path"]) == ["/v1/lists", ME]


# -- large bodies --------------------------------------------------------------------------------


class Feed(LoopbackServer):
    """A service that answers each request with these parts, as they come."""

    def __init__(
        self, parts: Callable[[], AsyncGenerator[bytes]], coding: str = "identity"
    ) -> None:
        self._parts = parts
        self._headers = (("Content-Type", "text/event-stream"), ("Content-Encoding", coding))
        super().__init__(0)

    async def handle(self, exchange: Exchange) -> None:
        await exchange.received()
        head = RecordedResponse(200, "OK", self._headers)
        await exchange.answer(head, parts=self._parts())


@contextmanager
def fed(
    parts: Callable[[], AsyncGenerator[bytes]], path: Path, coding: str = "identity"
) -> Iterator[SessionServer]:
    """A gateway that records such a service."""
    with Feed(parts, coding) as feed:
        session = Session(feed.base_url, ApiKey(KEY), pace="off")
        session.record(path)
        with SessionServer([session]) as server:
            yield server


def recorded(path: Path) -> list[bytes]:
    """The bodies of a recording that was closed."""
    cassette = read_cassette(path)
    assert cassette.problem is None
    return [interaction.response.body for interaction in cassette.interactions]


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_stream_arrives_as_it_is_sent_and_is_recorded_whole(tmp_path: Path, coding: str) -> None:
    """The service sends its second part only when the client has the first, decoded."""
    has_first = threading.Event()
    compressor = zlib.compressobj(wbits=31)

    def encoded(text: bytes) -> bytes:
        if coding == "identity":
            return text
        return compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)

    async def events() -> AsyncGenerator[bytes]:
        yield encoded(b"data: 1\n\n")
        assert await asyncio.to_thread(has_first.wait, 60)
        yield encoded(b"data: 2\n\n")

    with (
        fed(events, tmp_path / "a.yaml", coding) as server,
        requests.get(server.base_url, stream=True, timeout=60) as response,
    ):
        parts = response.raw.stream(decode_content=False)
        received = next(parts)
        has_first.set()
        received += b"".join(parts)

    assert received == b"data: 1\n\ndata: 2\n\n"
    assert response.headers["Content-Type"] == "text/event-stream"
    assert recorded(tmp_path / "a.yaml") == [received]


def test_a_body_that_the_service_cuts_is_cut_and_not_recorded(tmp_path: Path) -> None:
    """The client sees that its end is missing; the next request is answered."""
    has_failed = threading.Event()

    async def broken_once() -> AsyncGenerator[bytes]:
        yield b"one\n"
        if not has_failed.is_set():
            has_failed.set()
            raise ConnectionError

    with fed(broken_once, tmp_path / "a.yaml") as server:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            requests.get(server.base_url, timeout=60)
        whole = requests.get(server.base_url, timeout=60)

    assert recorded(tmp_path / "a.yaml") == [whole.content] == [b"one\n"]


def test_of_a_stream_that_the_client_leaves_nothing_is_recorded(tmp_path: Path) -> None:
    """Nor is it read to its end, which may never come."""
    has_ended = threading.Event()

    async def endless() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x" * 65_536
        finally:
            has_ended.set()

    with fed(endless, tmp_path / "a.yaml") as server:
        with requests.get(server.base_url, stream=True, timeout=60) as response:
            response.raw.read(1)
        assert has_ended.wait(60)

    assert not (tmp_path / "a.yaml").exists()


FORMS = [form for name, form in planted(KEY).items() if name != "packed"]
pieces = st.lists(
    st.binary(max_size=12)
    | st.sampled_from([b" " * 900, b"a" * 20, b'{"a": "\\u00e9 ', b"\n", b'"}', b"%20"])
    | st.sampled_from([*FORMS, b'{"api_key": "' + KEY[:9].encode()]),
    max_size=5,
)


@settings(max_examples=100)
@example(pieces=[planted(KEY)["packed"]], cuts=[], bytewise=True)
@example(pieces=[planted(KEY)["packed"] * 2, b"x"], cuts=[0.5], bytewise=False)
@given(pieces=pieces, cuts=st.lists(st.floats(0, 1), max_size=5), bytewise=st.booleans())
def test_the_key_is_removed_wherever_a_body_is_divided(
    pieces: list[bytes], cuts: list[float], bytewise: bool
) -> None:
    """In every form; a body without it stays as it is. What looks compressed may be refused."""
    body, key = b"".join(pieces), ApiKey(KEY)
    places = sorted({0, len(body), *(int(cut * len(body)) for cut in cuts)})
    size = 1 if bytewise else 65_536

    async def parts() -> AsyncGenerator[bytes]:
        for start, end in pairwise(places):
            for at in range(start, end, size):
                yield body[at : min(at + size, end)]

    async def shown() -> bytes:
        return b"".join([part async for part in redacted_parts(parts(), Redactor())])

    try:
        got = asyncio.run(shown())
    except DirectMailLabError:
        assert body.startswith(tuple(MAGIC.values()))
        return

    assert traces(got, key.reveal()) == []
    assert got == body or traces(body, KEY)


@pytest.mark.slow
def test_a_large_body_takes_memory_for_its_recording_alone(tmp_path: Path) -> None:
    """Of 200 MB, the gateway holds the body and, while it is written, its text."""
    size, part = 200_000_000, b"0123456789abcdef0123456789abcde\n" * 31_250

    async def parts() -> AsyncGenerator[bytes]:
        for _ in range(size // len(part)):
            yield part

    def peak_bytes(service: Feed) -> tuple[int, int]:
        words = ("--record", f"{id(service)}.yaml", "--to", service.base_url)
        with command(tmp_path, *words, DIRECTMAIL_API_KEY=KEY) as (process, address, _):
            with requests.get(address, stream=True, timeout=120) as response:
                received = sum(map(len, response.iter_content(65_536)))
            status = Path(f"/proc/{process.pid}/status").read_text()
        return received, int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def nothing() -> AsyncGenerator[bytes]:
        yield b""

    with Feed(nothing) as empty, Feed(parts) as feed:
        (_, before), (received, peak) = peak_bytes(empty), peak_bytes(feed)

    assert received == size
    assert peak - before < 2.2 * size


def test_ctrl_c_in_a_stream_closes_the_recording(tmp_path: Path) -> None:
    """The client sees that the end is missing; what was recorded before is kept."""
    has_one = threading.Event()

    async def one_and_then_a_stream() -> AsyncGenerator[bytes]:
        yield b"first\n"
        if has_one.is_set():
            await asyncio.Event().wait()

    with (
        Feed(one_and_then_a_stream) as feed,
        command(tmp_path, "--record", "a.yaml", "--to", feed.base_url, DIRECTMAIL_API_KEY=KEY) as (
            process,
            address,
            _,
        ),
    ):
        requests.get(address, timeout=60)
        has_one.set()
        with requests.get(f"{address}/stream", stream=True, timeout=60) as response:
            assert response.raw.read(1)
            process.send_signal(signal.SIGINT)
            with pytest.raises(requests.exceptions.ChunkedEncodingError):
                list(response.iter_content())
        printed, _ = process.communicate(timeout=60)

    assert (process.returncode, printed) == (0, "Stopped.\n")
    assert recorded(tmp_path / "a.yaml") == [b"first\n"]


# -- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--cassette tour --record other", "not both"),
        ("--cassette tour --limit 5", "--limit is an option of the stand-in"),
        ("--record tour --strict", "--strict is an option with --cassette"),
        ("--token", "--token is an option with --cassette or --record"),
        ("--record tour --to https://a.example --to https://b.example", "Give --to once"),
    ],
)
def test_options_without_effect_are_a_usage_error(words: str, says: str) -> None:
    """So that nobody counts on them."""
    done = invoke("serve", *words.split())

    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--cassette nowhere", "no cassette of that name"),
        ("--cassette empty.yaml", "empty"),
        ("--cassette api.json", "api.json is not a cassette"),
        ("--cassette a.har", "directmail-lab cassette convert"),
        ("--record a.har --to https://example.com", "Name it without .har"),
        ("--record a --to http://example.com", "Use https://"),
        ("--record a --to https://example.com", "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY"),
        ("--record a", "No base address"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    words: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happened and what to do, with no advice for Python, and nothing is left behind."""
    if "har" in words:
        monkeypatch.setenv("DIRECTMAIL_API_KEY", "a-key-for-this-test")
    Path("empty.yaml").write_text("interactions: []\nversion: 1\n")
    Path("a.har").write_text('{"log": {"entries": []}}')
    Path("api.json").write_text('{"openapi": "3.1.0", "paths": {}}')
    error = invoke("serve", "--port", "0", *words.split()).exception

    assert isinstance(error, DirectMailLabError)
    assert says in error_message(error)
    assert not Path("cassettes").exists()


def test_a_recording_is_of_one_base_address(tour: Path, account: StandIn) -> None:
    """Else the responses of one service would be played as those of another; nothing changes."""
    before = tour.read_bytes()
    error = invoke("serve", "--port", "0", "--record", "tour", "--to", account.base_url).exception

    assert isinstance(error, DirectMailLabError)
    assert f"is a recording of {BASE_URL}. Record {account.base_url} under" in error_message(error)
    assert (tour.read_bytes(), [*tour.parent.iterdir()]) == (before, [tour])


@contextmanager
def command(
    folder: Path, *words: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """``serve`` with these words: its process, its address, and what it printed so far."""
    with started(folder, "serve", "--port", "0", *words, **variables) as process:
        printed = output_until(process, "Ctrl-C ends it")
        address = re.search(r"http://127\.0\.0\.1:\d+[/\w-]*", printed)
        assert address is not None
        yield process, address[0], printed


def test_the_command_records_until_ctrl_c(account: StandIn, tmp_path: Path) -> None:
    """Its address has a token; at the end the recording is closed, and no key was printed."""
    (tmp_path / "cassettes").mkdir()
    with command(tmp_path, "--record", "tour", "--token") as (process, address, printed):
        response = requests.get(address + ME, timeout=60)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)

    text = (tmp_path / "cassettes" / "tour.yaml").read_text()
    assert len(urlsplit(address).path) > 20
    assert (response.status_code, process.returncode) == (200, 0)
    assert rest.endswith("Stopped.\n")
    assert text.splitlines()[-1].startswith("# end: 1 interaction")
    assert account.api_key not in printed + rest + text


def test_the_command_replays_as_slowly_as_recorded(tmp_path: Path) -> None:
    """Strictly, too: a second request for the one response is refused."""
    slow = Interaction(get(ME), RecordedResponse(200, "", (), b"{}"), elapsed_s=0.3)
    write(tmp_path / "slow.yaml", slow)
    words = ("--cassette", "slow.yaml", "--timing", "recorded", "--strict")
    with command(tmp_path, *words) as (_, address, _printed):
        first, second = (requests.get(address + ME, timeout=60) for _ in range(2))

    assert (first.status_code, second.status_code) == (200, 404)
    assert first.elapsed.total_seconds() >= 0.3
