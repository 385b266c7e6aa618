"""The stand-in service, over real sockets: it keeps service.md, and misbehaves on demand."""

from __future__ import annotations

import base64
import json
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from directmail_lab.contract import HEADERS, LIMIT_HEADER, ME_PATH, REMAINING_HEADER, RESET_HEADER
from directmail_lab.errors import CredentialError
from directmail_lab.interaction import RecordedResponse
from directmail_lab.loopback import LoopbackServer
from directmail_lab.standin import STAND_IN_KEY, StandIn, StandInOptions, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """A clock that moves when told to, in seconds since the Unix epoch."""

    def __init__(self, now: float = 1_800_000_000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def client(service: StandIn) -> Iterator[httpx.Client]:
    with client_of(service) as signed_in:
        yield signed_in


def client_of(service: StandIn) -> httpx.Client:
    return httpx.Client(base_url=service.base_url, auth=(service.api_key, ""), trust_env=False)


def raw_answer(service: StandIn, sent: bytes) -> bytes:
    """Send bytes, and read to the end; the service ends it, or it may drop what came with ours."""
    parts = urlsplit(service.base_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def limits_of(response: httpx.Response) -> tuple[str, ...]:
    return tuple(response.headers[name] for name in HEADERS)


def test_the_key_as_user_name_with_an_empty_password_gets_the_record(client: httpx.Client) -> None:
    """Parts 4 and 5: the one endpoint that is specified, with the key before a colon."""
    response = client.get(ME_PATH)

    assert (response.status_code, limits_of(response)) == (200, ("300", "299", "60"))
    assert "stand-in" in json.dumps(response.json())
    assert set(HEADERS) <= {name.decode() for name, _ in response.headers.raw}  # spelled so


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
    ("method", "path", "status"),
    [
        ("GET", ME_PATH, 200),
        ("HEAD", ME_PATH, 200),
        ("GET", "/v1/lists", 200),
        ("GET", "/v1/lists/lst_stand_in_2", 200),
        ("GET", "/v1/lists/lst_stand_in_9", 404),
        ("POST", "/v1/letters", 201),
        ("DELETE", ME_PATH, 405),
        ("GET", "/v2/users/me", 404),
        ("GET", "/", 404),
        ("OPTIONS", "/v1/lists", 405),
        ("PATCH", "/v1/%2e%2e/x", 404),
    ],
)
def test_every_answer_has_the_three_headers(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    """Part 8, rule 1: whatever the endpoint and the status, and rule 2 with it."""
    response = client.request(method, path)

    assert response.status_code == status
    assert int(response.headers[REMAINING_HEADER]) <= int(response.headers[LIMIT_HEADER])
    assert response.headers[RESET_HEADER].isdigit()


@pytest.mark.parametrize("status", [302, 403, 429, 503])
def test_told_statuses_have_the_three_headers(
    service: StandIn, client: httpx.Client, status: int
) -> None:
    """A 5xx or a gateway's page carries them too."""
    with service.fault(status=status, html=True):
        response = client.get(ME_PATH)

    assert response.status_code == status
    assert set(HEADERS) <= {name.decode() for name, _ in response.headers.raw}


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_a_400_with_the_three_headers(service: StandIn, sent: bytes) -> None:
    """Tornado answers these itself, past the application; the headers are there all the same."""
    answer = raw_answer(service, sent).decode()

    assert answer.startswith("HTTP/1.1 400 ")
    assert all(f"\r\n{name}: " in answer for name in HEADERS)


def test_the_window_counts_down_and_then_answers_as_told() -> None:
    """Three of three are answered; the fourth is not, and nothing goes below 0."""
    options = {"limit": 3, "exhausted_status": 420, "retry_after": True, "clock": Clock()}
    with stand_in(**options) as service, client_of(service) as client:
        answers = [client.get(ME_PATH) for _ in range(5)]

    assert [each.status_code for each in answers] == [200, 200, 200, 420, 420]
    assert [each.headers[REMAINING_HEADER] for each in answers] == ["2", "1", "0", "0", "0"]
    assert answers[2].headers.get("Retry-After") is None
    assert answers[3].headers["Retry-After"] == "60"


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
    clock, answers = Clock(), []
    options = {"limit": 2, "window_s": 10, "window": window, "clock": clock}
    with stand_in(**options) as service, client_of(service) as client:
        for at in seen:
            clock.now = 1_800_000_000.0 + at
            response = client.get(ME_PATH)
            answers.append((response.status_code, *map(int, limits_of(response)[1:])))

    assert answers == list(seen.values())


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
    with stand_in(reset_unit=unit, clock=Clock()) as service, client_of(service) as client:
        headers = client.get(ME_PATH).headers

    assert headers[RESET_HEADER] == text
    assert headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"  # its own clock's


def test_operations_have_allowances_of_their_own() -> None:
    """One operation's requests do not count against another's; ids are one operation."""
    limits = {"/v1/lists/{id}": 7, "POST /v1/letters": 2}
    with stand_in(limits=limits) as service, client_of(service) as client:
        client.get("/v1/lists/lst_stand_in_1")
        answers = [
            client.get("/v1/lists/lst_stand_in_2"),
            client.get(ME_PATH),
            client.post("/v1/letters"),
            client.head(ME_PATH),
        ]

    assert [limits_of(each)[:2] for each in answers] == [
        ("7", "5"), ("300", "299"), ("2", "1"), ("300", "298"),
    ]  # fmt: skip


def test_refused_requests_do_not_spend_the_accounts_allowance(service: StandIn) -> None:
    """A wrong key is counted apart."""
    url = service.base_url + ME_PATH
    refused = [httpx.get(url, auth=("wrong", ""), trust_env=False) for _ in range(2)]
    with client_of(service) as client:
        own = client.get(ME_PATH)

    assert [each.headers[REMAINING_HEADER] for each in refused] == ["299", "298"]
    assert own.headers[REMAINING_HEADER] == "299"


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
        client.get(ME_PATH, timeout=0.2)

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


def test_headers_can_be_missing_malformed_or_repeated(
    service: StandIn, client: httpx.Client
) -> None:
    """Whatever a proxy may do to the three headers."""
    changes = {LIMIT_HEADER: None, REMAINING_HEADER: "many", RESET_HEADER: ["1", "2"]}
    with service.fault(headers=changes):
        headers = client.get(ME_PATH).headers

    assert LIMIT_HEADER not in headers
    assert headers[REMAINING_HEADER] == "many"
    assert headers.get_list(RESET_HEADER) == ["1", "2"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_is_the_same_body(
    service: StandIn, client: httpx.Client, encoding: str
) -> None:
    """And says so in its headers."""
    plain = client.get(ME_PATH).json()
    with service.fault(encoding=encoding):
        packed = client.get(ME_PATH)

    assert packed.headers["Content-Encoding"] == encoding
    assert packed.json() == plain


def test_an_echo_holds_the_key_as_it_was_sent(service: StandIn, client: httpx.Client) -> None:
    """So that redaction can be tested on bodies and headers that hold it."""
    with service.fault(echo_key=True):
        response = client.get(ME_PATH)

    assert response.headers["X-Echo"] == STAND_IN_KEY
    assert STAND_IN_KEY in response.text
    assert base64.b64encode(f"{STAND_IN_KEY}:".encode()).decode() in response.text


def test_redirects_bodies_and_empty_answers(service: StandIn, client: httpx.Client) -> None:
    """A redirect to anywhere, a body to the byte, and a 204 with none."""
    with service.fault(redirect_to="https://elsewhere.example/"):
        moved = client.get(ME_PATH)
    with service.fault(body=b"\xff\x00"):
        raw = client.get(ME_PATH)
    with service.fault(status=204):
        empty = client.get(ME_PATH)

    assert (moved.status_code, moved.headers["Location"]) == (302, "https://elsewhere.example/")
    assert raw.content == b"\xff\x00"
    assert (empty.status_code, empty.content) == (204, b"")


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
    assert not [each for each in threading.enumerate() if each.name.startswith("<StandIn")]
    with stand_in(port=port) as again:
        assert again.base_url == service.base_url


def test_closing_is_quiet_while_an_answer_waits_for_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also an answer to data that is not HTTP: asyncio would log that its task was cancelled."""
    is_answering = threading.Event()

    class Server(LoopbackServer):
        def malformed(self) -> RecordedResponse:
            is_answering.set()
            return RecordedResponse(400, body=bytes(2**26))  # more than a connection buffers

    with Server(0) as server:
        parts = urlsplit(server.base_url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            connection.sendall(b"not HTTP\r\n\r\n")
            assert is_answering.wait(5)
            server.close()

    assert caplog.text == ""


def test_a_port_that_is_taken_says_so(service: StandIn) -> None:
    """What happened, and what to do."""
    with pytest.raises(OSError, match="Choose another port"):
        stand_in(port=urlsplit(service.base_url).port)


def test_several_run_at_once_and_share_nothing() -> None:
    """Each has its own allowance, options and key."""
    with stand_in() as one, stand_in(api_key="another", limit=5) as other:
        limits = []
        for service in (one, one, other):
            with client_of(service) as client:
                limits.append(limits_of(client.get(ME_PATH))[:2])

    assert limits == [("300", "299"), ("300", "298"), ("5", "4")]


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
        ({"no_such_option": 1}, TypeError),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, object], error: type[Exception]
) -> None:
    """Before anything listens."""
    with pytest.raises(error):
        StandInOptions(**options)
