"""The stand-in service, over real sockets: it keeps service.md, and misbehaves on demand."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

import directmail_lab as dm
from directmail_lab.contract import HEADERS, LIMIT_HEADER, ME_PATH, REMAINING_HEADER, RESET_HEADER
from directmail_lab.errors import CredentialError
from directmail_lab.interaction import RecordedResponse
from directmail_lab.loopback import LoopbackServer
from directmail_lab.standin import STAND_IN_KEY, StandIn, StandInOptions, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator


NOON = 1_800_000_000.25  # Fri, 15 Jan 2027 08:00:00 GMT, in seconds since the Unix epoch


@pytest.fixture
def client(service: StandIn) -> Iterator[httpx.Client]:
    with client_of(service) as signed_in:
        yield signed_in


def client_of(service: StandIn) -> httpx.Client:
    key = (service.api_key, "")
    return httpx.Client(base_url=service.base_url, auth=key, trust_env=False, timeout=30.0)


def connected_to(server: LoopbackServer) -> socket.socket:
    parts = urlsplit(server.base_url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def raw_answer(service: StandIn, sent: bytes) -> bytes:
    """Send bytes, and read to the end."""
    with connected_to(service) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def limits_of(response: httpx.Response) -> tuple[str, ...]:
    return tuple(response.headers[name] for name in HEADERS)


def test_the_key_as_user_name_with_an_empty_password_gets_the_record(client: httpx.Client) -> None:
    """Parts 4 and 5: the one endpoint that is specified, with the key before a colon."""
    response = client.get(ME_PATH)

    assert (response.status_code, limits_of(response)) == (200, ("300", "299", "60"))
    assert "stand-in" in json.dumps(response.json())


def basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


KEY_AND_COLON = basic(f"{STAND_IN_KEY}:").removeprefix("Basic ")


@pytest.mark.parametrize(
    "header",
    [
        *map(
            basic, (f"{STAND_IN_KEY}:password", f"{STAND_IN_KEY}::", STAND_IN_KEY, "another-key:")
        ),
        *map(basic, (":", f":{STAND_IN_KEY}", "ключ:")),
        *(None, "Basic", "Basic %%%", f"Bearer {KEY_AND_COLON}", KEY_AND_COLON),
    ],
)
def test_any_other_credentials_are_refused(service: StandIn, header: str | None) -> None:
    """A password, another key, one in the wrong place, another scheme, or no header at all."""
    headers = {} if header is None else {"Authorization": header.encode()}
    response = httpx.get(service.base_url + ME_PATH, headers=headers, trust_env=False)

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Basic")
    assert STAND_IN_KEY not in response.text


@pytest.mark.parametrize(
    ("method", "path", "fault", "status"),
    [
        ("GET", ME_PATH, {}, 200),
        ("HEAD", ME_PATH, {}, 200),
        ("GET", "/v1/lists", {}, 200),
        ("GET", "/v1/lists/lst_stand_in_2", {}, 200),
        ("GET", "/v1/lists/lst_stand_in_9", {}, 404),
        ("POST", "/v1/letters", {}, 201),
        ("DELETE", ME_PATH, {}, 405),
        ("GET", "/v2/users/me", {}, 404),
        ("GET", "/", {}, 404),
        ("OPTIONS", "/v1/lists", {}, 405),
        ("PATCH", "/v1/%2e%2e/x", {}, 404),
        *(("GET", ME_PATH, {"status": n, "html": True}, n) for n in (302, 403, 429, 503)),
    ],
)
def test_every_response_has_the_three_headers(
    service: StandIn, client: httpx.Client, method: str, path: str, fault: Any, status: int
) -> None:
    """Part 8, rule 1: whatever the endpoint and the status, and rule 2 with it."""
    with service.fault(**fault):
        response = client.request(method, path)

    assert response.status_code == status
    assert int(response.headers[REMAINING_HEADER]) <= int(response.headers[LIMIT_HEADER])
    assert response.headers[RESET_HEADER].isdigit()
    assert set(HEADERS) <= {name.decode() for name, _ in response.headers.raw}  # spelled so


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_a_400_with_the_three_headers(service: StandIn, sent: bytes) -> None:
    """A request that cannot be parsed is counted, as one of an unknown key."""
    response = raw_answer(service, sent).decode()

    assert response.startswith("HTTP/1.1 400 ")
    assert all(f"\r\n{name}: " in response for name in HEADERS)


def test_the_window_counts_down_and_then_answers_as_told() -> None:
    """Three of three are answered; the fourth is not, and nothing goes below 0."""
    options = {"limit": 3, "exhausted_status": 420, "retry_after": True, "clock": lambda: NOON}
    with stand_in(**options) as service, client_of(service) as client:
        responses = [client.get(ME_PATH) for _ in range(5)]

    assert [r.status_code for r in responses] == [200, 200, 200, 420, 420]
    assert [r.headers[REMAINING_HEADER] for r in responses] == ["2", "1", "0", "0", "0"]
    assert responses[2].headers.get("Retry-After") is None
    assert responses[3].headers["Retry-After"] == "60"


@pytest.mark.parametrize(
    ("window", "seen"),
    [
        # From its first request at 1.0 to 11.0.
        ("fixed", {1.0: (200, 1, 10), 5.0: (200, 0, 6), 10.9: (429, 0, 1), 11.0: (200, 1, 10)}),
        # From 0.0 to 10.0, whenever the first request comes.
        ("aligned", {1.0: (200, 1, 9), 5.0: (200, 0, 5), 9.9: (429, 0, 1), 10.0: (200, 1, 10)}),
        # Each request leaves the count 10 s after it was made; one that is refused is not counted.
        ("sliding", {1.0: (200, 1, 10), 5.0: (200, 0, 6), 6.0: (429, 0, 5), 11.0: (200, 0, 4),
                     11.5: (429, 0, 4)}),
    ],
)  # fmt: skip
def test_a_window_renews_when_it_ends(window: str, seen: dict[float, tuple[int, int, int]]) -> None:
    """Of two requests in 10 s: the status, what remains, and the seconds until more do."""
    times = [1_800_000_000.0 + at for at in seen]
    options = {"limit": 2, "window_s": 10, "window": window, "clock": iter(times).__next__}
    with stand_in(**options) as service, client_of(service) as client:
        responses = [client.get(ME_PATH) for _ in seen]
        responses = [(r.status_code, *map(int, limits_of(r)[1:])) for r in responses]

    assert responses == list(seen.values())


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("seconds_left", "60"),
        ("milliseconds_left", "60000"),
        ("epoch_s", "1800000061"),
        ("epoch_ms", "1800000060250"),
        ("zero", "0"),
    ],
)
def test_reset_is_sent_in_the_unit_asked_for(unit: str, text: str) -> None:
    """Rounded up, so that a client that waits as told is not too early."""
    with stand_in(reset_unit=unit, clock=lambda: NOON) as service, client_of(service) as client:
        headers = client.get(ME_PATH).headers

    assert headers[RESET_HEADER] == text
    assert headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"  # its own clock's


def test_operations_have_allowances_of_their_own() -> None:
    """One operation's requests do not count against another's; ids are one operation."""
    limits = {"/v1/lists/{id}": 7, "POST /v1/letters": 2}
    with stand_in(limits=limits) as service, client_of(service) as client:
        client.get("/v1/lists/lst_stand_in_1")
        responses = [
            client.get("/v1/lists/lst_stand_in_2"),
            client.get(ME_PATH),
            client.post("/v1/letters"),
            client.head(ME_PATH),
        ]

    assert [limits_of(r)[:2] for r in responses] == [
        ("7", "5"), ("300", "299"), ("2", "1"), ("300", "298"),
    ]  # fmt: skip


def test_several_accounts_and_services_share_nothing() -> None:
    """A wrong key is counted apart, and each service has its own allowance, options and key."""
    with stand_in() as one, stand_in(api_key="another", limit=5) as other:
        keys = [(one, "wrong"), (one, "wrong"), (one, one.api_key), (other, "another")]
        limits = [
            limits_of(httpx.get(service.base_url + ME_PATH, auth=(key, ""), trust_env=False))[:2]
            for service, key in keys
        ]

    assert limits == [("300", "299"), ("300", "298"), ("300", "299"), ("5", "4")]


def test_every_request_is_counted_for_the_tests_to_see(
    service: StandIn, client: httpx.Client
) -> None:
    """A letter sent twice shows, even where its answer never came."""
    with service.fault(drop="close"), pytest.raises(httpx.RemoteProtocolError):
        client.post("/v1/letters", json={"to": "01234"})
    client.get(ME_PATH + "?verbose=1")

    assert service.requests == {"POST /v1/letters": 1, f"GET {ME_PATH}": 1}


@pytest.mark.parametrize("record", [None, [], {}, [{"id": 1}], "text", 3.5, {"naïve": "é\u2028"}])
def test_the_record_may_be_any_json(record: object) -> None:
    """What a record holds is not shown, so any value is served."""
    bodies = []
    for envelope in (None, "data"):
        with stand_in(record=record, envelope=envelope) as service, client_of(service) as client:
            bodies.append(client.get(ME_PATH).json())

    assert bodies == [record, {"data": record, "service": "stand-in"}]


def test_a_base_address_may_have_a_path_before_the_version() -> None:
    """As a regional address may; below it all is the same, and nothing is beside it."""
    with stand_in(prefix="/eu/api") as service, client_of(service) as client:
        below, beside = client.get(ME_PATH), client.get(httpx.URL(service.base_url).join(ME_PATH))

    assert (below.status_code, beside.status_code) == (200, 404)
    assert service.requests[f"GET {ME_PATH}"] == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"drop": "reset"}, httpx.ReadError),
        ({"drop": "close"}, httpx.RemoteProtocolError),
        ({"cut_after": 5}, httpx.RemoteProtocolError),
        ({"latency_s": 30.0}, httpx.ReadTimeout),
    ],
)
def test_a_broken_connection_is_the_clients_error(
    service: StandIn, client: httpx.Client, fault: dict[str, object], error: type[Exception]
) -> None:
    """Resets, closes, cut bodies and silence; afterwards the service is sound again."""
    with service.fault(**fault), pytest.raises(error):
        client.get(ME_PATH, timeout=0.2 if "latency_s" in fault else 30.0)

    assert client.get(ME_PATH).status_code == 200


def test_a_fault_may_apply_to_one_path_and_a_number_of_requests(
    service: StandIn, client: httpx.Client
) -> None:
    """Two 503 for one path, then the fault before it is seen again, until all are healed."""
    service.fault(status=500)
    service.fault(status=503, path=ME_PATH, times=2)
    statuses = [client.get(path).status_code for path in ("/v1/lists", *[ME_PATH] * 3)]
    service.heal()

    assert statuses == [500, 503, 503, 500]
    assert client.get(ME_PATH).status_code == 200


@pytest.mark.parametrize(
    ("fault", "status", "headers", "content"),
    [
        ({"headers": {LIMIT_HEADER: None}}, 200, {LIMIT_HEADER: []}, b"stand-in"),
        ({"headers": {REMAINING_HEADER: "many"}}, 200, {REMAINING_HEADER: ["many"]}, b"stand-in"),
        ({"headers": {RESET_HEADER: ["1", "2"]}}, 200, {RESET_HEADER: ["1", "2"]}, b"stand-in"),
        ({"encoding": "gzip"}, 200, {"Content-Encoding": ["gzip"]}, b"stand-in"),
        ({"encoding": "deflate"}, 200, {"Content-Encoding": ["deflate"]}, b"stand-in"),
        ({"echo_key": True}, 200, {"X-Echo": [STAND_IN_KEY]}, STAND_IN_KEY.encode()),
        ({"echo_key": True}, 200, {}, KEY_AND_COLON.encode()),
        ({"redirect_to": "https://a.test/"}, 302, {"Location": ["https://a.test/"]}, b""),
        ({"body": b"\xff\x00"}, 200, {"Content-Length": ["2"]}, b"\xff\x00"),
        ({"status": 204}, 204, {"Content-Length": []}, b""),
    ],
)
def test_a_fault_changes_status_headers_and_body(
    service: StandIn, client: httpx.Client, fault: Any, status: int, headers: Any, content: bytes
) -> None:
    """As a proxy or a careless service may: what redaction and readings are tested with."""
    with service.fault(**fault):
        response = client.get(ME_PATH)

    assert response.status_code == status
    assert {name: response.headers.get_list(name) for name in headers} == headers
    assert content in response.content
    assert "Location" not in client.get(ME_PATH).headers


def test_a_clock_that_raises_ends_the_request_and_not_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client gets a closed connection at once, and the log says why."""
    with (
        stand_in(clock=lambda: 1 / 0) as service,
        client_of(service) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get(ME_PATH)

    assert "ZeroDivisionError" in caplog.text


def test_closing_frees_the_port_and_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Quietly, even with connections open and an answer waiting; closing twice is closing once."""
    service = stand_in()
    port = urlsplit(service.base_url).port
    with client_of(service) as client:
        client.get(ME_PATH)
        service.fault(latency_s=60.0)
        with pytest.raises(httpx.ReadTimeout):
            client.get(ME_PATH, timeout=0.05)
        service.close()
        service.close()

        with pytest.raises(httpx.ConnectError):
            client.get(ME_PATH)
    assert caplog.text == ""
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("<StandIn")]
    with stand_in(port=port) as again:
        assert again.base_url == service.base_url


def test_a_response_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its body waits 40 ms, until the client has acknowledged the head."""
    create, created = socket.create_server, []
    monkeypatch.setattr(
        socket, "create_server", lambda *a: created.append(create(*a)) or created[0]
    )
    with stand_in():
        assert created[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_closing_is_quiet_while_an_answer_waits_for_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also an answer to data that is not HTTP: asyncio would log that its task was cancelled."""
    is_answering = threading.Event()

    class Server(LoopbackServer):
        def malformed(self, status: int) -> RecordedResponse:
            is_answering.set()
            return RecordedResponse(status, body=bytes(2**26))  # more than a connection buffers

    with Server(0) as server, connected_to(server) as connection:
        connection.sendall(b"not HTTP\r\n\r\n")
        assert is_answering.wait(30)
        server.close()

    assert caplog.text == ""


def test_a_connection_that_is_made_while_the_server_closes_is_ended() -> None:
    """Its client does not wait for a response that nobody sends."""
    for _ in range(5):
        with stand_in() as service:
            connections = [connected_to(service) for _ in range(5)]
        for connection in connections:
            with connection, contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""


def test_a_port_that_is_taken_says_so(service: StandIn) -> None:
    """What happened, and what to do."""
    with pytest.raises(OSError, match="Choose another port"):
        stand_in(port=urlsplit(service.base_url).port)


def test_each_open_part_is_printed_with_the_option_that_sets_it(service: StandIn) -> None:
    """So that nobody takes an assumption for what the service does. None is the key."""
    text = "\n".join(service.assumptions())

    assert STAND_IN_KEY not in repr(service) + repr(service.options)
    for option in ("reset_unit", "window_s", "limit", "limits", "exhausted_status", "retry_after",
                   "unauthorized_status", "record", "envelope", "prefix"):  # fmt: skip
        assert option in text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"reset_unit": "days"}, ValueError),
        ({"window": "open"}, ValueError),
        ({"window_s": 0}, ValueError),
        ({"limit": -1}, ValueError),
        ({"prefix": "eu/"}, ValueError),
        ({"port": 99_999_999}, ValueError),
        ({"api_key": "a:b"}, CredentialError),
        ({"record": object()}, TypeError),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, object], error: type[Exception]
) -> None:
    """Before anything listens."""
    with pytest.raises(error):
        StandInOptions(**options)


@pytest.mark.parametrize("call", ["stand_in", "login"])
def test_an_option_that_does_not_exist_is_named_in_two_lines(call: str) -> None:
    """A misspelled option shows none of our frames in a notebook."""
    with pytest.raises(TypeError, match=rf"{call}\(\) takes no limt\. See help") as caught:
        getattr(dm, call)(limt=3)

    assert hasattr(caught.value, "_render_traceback_")
