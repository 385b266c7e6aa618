"""The stand-in service, over real sockets: it keeps service.md, and misbehaves on demand."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from directmail_lab.contract import HEADERS, LIMIT_HEADER, ME_PATH, REMAINING_HEADER, RESET_HEADER
from directmail_lab.errors import CredentialError
from directmail_lab.standin import STAND_IN_KEY, Fault, StandIn, StandInOptions, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """A clock that moves when told to, in seconds since the Unix epoch."""

    def __init__(self, now: float = 1_800_000_000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def client(server: StandIn) -> Iterator[httpx.Client]:
    with client_of(server) as signed_in:
        yield signed_in


def client_of(server: StandIn) -> httpx.Client:
    return httpx.Client(base_url=server.base_url, auth=(server.api_key, ""), trust_env=False)


def raw_answer(server: StandIn, sent: bytes) -> bytes:
    """Send bytes, and read to the end; the server ends it, or it may drop what came with ours."""
    parts = urlsplit(server.base_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def limits_of(response: httpx.Response) -> tuple[str, ...]:
    return tuple(response.headers[name] for name in HEADERS)


def test_the_key_as_user_name_with_an_empty_password_gets_the_record(client: httpx.Client) -> None:
    """Parts 4 and 5: the one endpoint that is specified, with the key before a colon."""
    response = client.get(ME_PATH)

    assert response.status_code == 200
    assert "stand-in" in json.dumps(response.json())
    assert limits_of(response) == ("300", "299", "60")


def test_header_names_are_spelled_as_the_document_spells_them(client: httpx.Client) -> None:
    """Case does not matter to HTTP, but the stand-in keeps the contract to the letter."""
    sent = {name.decode() for name, _ in client.get(ME_PATH).headers.raw}

    assert set(HEADERS) <= sent


@pytest.mark.parametrize(
    "credentials",
    [
        f"{STAND_IN_KEY}:password",
        f"{STAND_IN_KEY}::",
        STAND_IN_KEY,
        "another-key:",
        ":",
        f":{STAND_IN_KEY}",
        "ключ:",
    ],
)
def test_any_other_credentials_are_refused(server: StandIn, credentials: str) -> None:
    """A non-empty password, another key, and a key in the wrong place are all refused."""
    token = base64.b64encode(credentials.encode()).decode()
    response = httpx.get(
        server.base_url + ME_PATH, headers={"Authorization": f"Basic {token}"}, trust_env=False
    )

    assert response.status_code == 401
    assert STAND_IN_KEY not in response.text


TOKEN = base64.b64encode(f"{STAND_IN_KEY}:".encode()).decode()


@pytest.mark.parametrize("header", [None, "Basic", "Basic %%%", f"Bearer {TOKEN}", TOKEN])
def test_no_basic_credentials_are_refused(server: StandIn, header: str | None) -> None:
    """No header, one that cannot be decoded, and another scheme are refused."""
    headers = {} if header is None else {"Authorization": header}
    response = httpx.get(server.base_url + ME_PATH, headers=headers, trust_env=False)

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Basic")


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


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 429, 500, 502, 503])
def test_told_statuses_have_the_three_headers(
    server: StandIn, client: httpx.Client, status: int
) -> None:
    """A 5xx or a gateway's page carries them too."""
    with server.fault(status=status, html=True):
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
def test_what_is_no_http_gets_a_400_with_the_three_headers(server: StandIn, sent: bytes) -> None:
    """Tornado answers these itself, past the application; the headers are there all the same."""
    answer = raw_answer(server, sent).decode()

    assert answer.startswith("HTTP/1.1 400 ")
    assert all(f"\r\n{name}: " in answer for name in HEADERS)


def test_the_window_counts_down_and_then_answers_as_told() -> None:
    """Three of three are answered; the fourth is not, and nothing goes below 0."""
    options = {"limit": 3, "exhausted_status": 420, "retry_after": "seconds", "clock": Clock()}
    with stand_in(**options) as server, client_of(server) as client:
        answers = [client.get(ME_PATH) for _ in range(5)]

    assert [each.status_code for each in answers] == [200, 200, 200, 420, 420]
    assert [each.headers[REMAINING_HEADER] for each in answers] == ["2", "1", "0", "0", "0"]
    assert answers[2].headers.get("Retry-After") is None
    assert answers[3].headers["Retry-After"] == "60"


def test_a_fixed_window_starts_with_its_first_request_and_renews_whole() -> None:
    """After window_s seconds the allowance is whole again, and not before."""
    clock = Clock()
    with stand_in(limit=2, window_s=10, clock=clock) as server, client_of(server) as client:
        seen = []
        for at in (0.0, 4.0, 9.9, 10.0):
            clock.now = 1_800_000_000.0 + at
            response = client.get(ME_PATH)
            seen.append((response.status_code, *limits_of(response)))

    assert seen == [
        (200, "2", "1", "10"),
        (200, "2", "0", "6"),
        (429, "2", "0", "1"),
        (200, "2", "1", "10"),
    ]


def test_an_aligned_window_ends_at_a_whole_multiple_of_its_length() -> None:
    """The first window may be short."""
    clock = Clock(1_800_000_050.0)
    with stand_in(window="aligned", clock=clock) as server, client_of(server) as client:
        first = client.get(ME_PATH).headers[RESET_HEADER]
        clock.now += 10
        second = client.get(ME_PATH)

    assert first == "10"
    assert limits_of(second) == ("300", "299", "60")


def test_a_sliding_window_gives_back_one_request_at_a_time() -> None:
    """Each request leaves the count one window after it was made."""
    clock = Clock(0.0)
    with stand_in(limit=2, window_s=10, window="sliding", clock=clock) as server:
        seen = []
        with client_of(server) as client:
            for at in (0.0, 4.0, 5.0, 10.0, 10.5):
                clock.now = at
                response = client.get(ME_PATH)
                seen.append((response.status_code, *limits_of(response)[1:]))

    assert seen == [(200, "1", "10"), (200, "0", "6"), (429, "0", "5"), (200, "0", "4"),
                    (429, "0", "4")]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("seconds_left", "60"),
        ("milliseconds_left", "60000"),
        ("epoch_s", "1800000061"),
        ("epoch_ms", "1800000060250"),
        ("http_date", "Fri, 15 Jan 2027 08:01:01 GMT"),
        ("iso", "2027-01-15T08:01:01Z"),
        ("zero", "0"),
    ],
)
def test_reset_is_sent_in_the_unit_asked_for(unit: str, text: str) -> None:
    """Rounded up, so that a client that waits as told is not too early."""
    with stand_in(reset_unit=unit, clock=Clock()) as server, client_of(server) as client:
        sent = client.get(ME_PATH).headers[RESET_HEADER]

    assert sent == text


def test_operations_have_allowances_of_their_own() -> None:
    """One operation's requests do not count against another's; ids are one operation."""
    limits = {"/v1/lists/{id}": 7, "POST /v1/letters": 2}
    with stand_in(limits=limits) as server, client_of(server) as client:
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


def test_refused_requests_do_not_spend_the_accounts_allowance(server: StandIn) -> None:
    """A wrong key is counted apart."""
    url = server.base_url + ME_PATH
    refused = [httpx.get(url, auth=("wrong", ""), trust_env=False) for _ in range(2)]
    with client_of(server) as client:
        own = client.get(ME_PATH)

    assert [each.headers[REMAINING_HEADER] for each in refused] == ["299", "298"]
    assert own.headers[REMAINING_HEADER] == "299"


def test_every_request_is_counted_for_the_tests_to_see(
    server: StandIn, client: httpx.Client
) -> None:
    """A letter sent twice shows, even where its answer never came."""
    with server.fault(drop="close"), pytest.raises(httpx.RemoteProtocolError):
        client.post("/v1/letters", json={"to": "01234"})
    client.get(ME_PATH + "?verbose=1")

    assert server.requests == {"POST /v1/letters": 1, f"GET {ME_PATH}": 1}


def test_many_threads_are_counted_exactly() -> None:
    """Of 60 requests from 8 threads, with 50 allowed, just 50 are answered."""
    with (
        stand_in(limit=50, clock=Clock()) as server,
        client_of(server) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        statuses = list(pool.map(lambda _: client.get(ME_PATH).status_code, range(60)))

    assert (statuses.count(200), statuses.count(429)) == (50, 10)


@pytest.mark.parametrize("record", [None, [], {}, [{"id": 1}], "text", 3.5, {"naïve": "é\u2028"}])
def test_the_record_may_be_any_json(record: object) -> None:
    """What a record holds is not shown, so any value is served."""
    bodies = []
    for envelope in (None, "data"):
        with stand_in(record=record, envelope=envelope) as server, client_of(server) as client:
            bodies.append(client.get(ME_PATH).json())

    assert bodies == [record, {"data": record, "service": "stand-in"}]


def test_a_base_address_may_have_a_path_before_the_version() -> None:
    """As a regional address may; below it all is the same, and nothing is beside it."""
    with stand_in(prefix="/eu/api") as server, client_of(server) as client:
        below, beside = client.get(ME_PATH), client.get(httpx.URL(server.base_url).join(ME_PATH))

    assert (below.status_code, beside.status_code) == (200, 404)
    assert server.requests[f"GET {ME_PATH}"] == 1


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
    server: StandIn, client: httpx.Client, fault: dict[str, object], error: type[Exception]
) -> None:
    """Resets, closes, cut bodies and silence; afterwards the service is sound again."""
    with server.fault(**fault), pytest.raises(error):
        client.get(ME_PATH, timeout=0.2)

    assert client.get(ME_PATH).status_code == 200


def test_a_fault_may_apply_to_one_path_and_a_number_of_requests(
    server: StandIn, client: httpx.Client
) -> None:
    """Two 503 for one path, then all is well; other paths never saw it."""
    server.fault(status=503, path=ME_PATH, times=2)
    statuses = [client.get(path).status_code for path in ("/v1/lists", *[ME_PATH] * 3)]

    assert statuses == [200, 503, 503, 200]


def test_faults_can_be_there_from_the_start_and_be_healed() -> None:
    """The last one added goes first, and heal ends them all."""
    with stand_in(faults=[Fault(status=500)]) as server, client_of(server) as client:
        server.fault(status=503)
        during = client.get(ME_PATH).status_code
        server.heal()

        assert (during, client.get(ME_PATH).status_code) == (503, 200)


def test_headers_can_be_missing_malformed_or_repeated(
    server: StandIn, client: httpx.Client
) -> None:
    """Whatever a proxy may do to the three headers."""
    changes = {LIMIT_HEADER: None, REMAINING_HEADER: "many", RESET_HEADER: ["1", "2"]}
    with server.fault(headers=changes):
        headers = client.get(ME_PATH).headers

    assert LIMIT_HEADER not in headers
    assert headers[REMAINING_HEADER] == "many"
    assert headers.get_list(RESET_HEADER) == ["1", "2"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_is_the_same_body(
    server: StandIn, client: httpx.Client, encoding: str
) -> None:
    """And says so in its headers."""
    plain = client.get(ME_PATH).json()
    with server.fault(encoding=encoding):
        packed = client.get(ME_PATH)

    assert packed.headers["Content-Encoding"] == encoding
    assert packed.json() == plain


def test_an_echo_holds_the_key_as_it_was_sent(server: StandIn, client: httpx.Client) -> None:
    """So that redaction can be tested on bodies and headers that hold it."""
    with server.fault(echo_key=True):
        response = client.get(ME_PATH)

    assert response.headers["X-Echo"] == STAND_IN_KEY
    assert STAND_IN_KEY in response.text
    assert base64.b64encode(f"{STAND_IN_KEY}:".encode()).decode() in response.text


def test_redirects_bodies_and_empty_answers(server: StandIn, client: httpx.Client) -> None:
    """A redirect to anywhere, a body to the byte, and a 204 with none."""
    with server.fault(redirect_to="https://elsewhere.example/"):
        moved = client.get(ME_PATH)
    with server.fault(body=b"\xff\x00"):
        raw = client.get(ME_PATH)
    with server.fault(status=204):
        empty = client.get(ME_PATH)

    assert (moved.status_code, moved.headers["Location"]) == (302, "https://elsewhere.example/")
    assert raw.content == b"\xff\x00"
    assert (empty.status_code, empty.content) == (204, b"")


def test_a_clock_that_raises_ends_the_request_and_not_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client gets a closed connection at once, and the log says why."""
    with (
        stand_in(clock=lambda: 1 / 0) as server,
        client_of(server) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get(ME_PATH)

    assert "ZeroDivisionError" in caplog.text


def test_closing_frees_the_port_and_the_thread() -> None:
    """Even with connections open and an answer waiting; closing twice is closing once."""
    server = stand_in()
    port = urlsplit(server.base_url).port
    with client_of(server) as client:
        client.get(ME_PATH)
        server.fault(latency_s=60.0)
        with pytest.raises(httpx.ReadTimeout):
            client.get(ME_PATH, timeout=0.05)
        server.close()
        server.close()

        with pytest.raises(httpx.ConnectError):
            client.get(ME_PATH)
    assert not [each for each in threading.enumerate() if each.name.startswith("stand-in")]
    with stand_in(port=port) as again:
        assert again.base_url == server.base_url


def test_a_port_that_is_taken_says_so(server: StandIn) -> None:
    """What happened, and what to do."""
    with pytest.raises(OSError, match="Choose another port"):
        stand_in(port=urlsplit(server.base_url).port)


def test_several_run_at_once_and_share_nothing() -> None:
    """Each has its own allowance, options and key."""
    with stand_in() as one, stand_in(api_key="another", limit=5) as other:
        limits = []
        for server in (one, one, other):
            with client_of(server) as client:
                limits.append(limits_of(client.get(ME_PATH))[:2])

    assert limits == [("300", "299"), ("300", "298"), ("5", "4")]


def test_no_repr_shows_the_key(server: StandIn) -> None:
    """It is public test data, but a habit is a habit."""
    assert STAND_IN_KEY not in repr(server) + repr(server.options) + str(vars(server))


def test_each_open_part_is_printed_with_the_option_that_sets_it(server: StandIn) -> None:
    """So that nobody takes an assumption for what the service does."""
    text = "\n".join(server.assumptions())

    for option in ("reset_unit", "window_s", "limit", "limits", "exhausted_status", "retry_after",
                   "unauthorized_status", "record", "envelope", "prefix"):  # fmt: skip
        assert option in text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"reset_unit": "days"}, ValueError),
        ({"window": "open"}, ValueError),
        ({"retry_after": "soon"}, ValueError),
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_alone_it_serves_until_a_signal_and_ends_cleanly(number: int) -> None:
    """No traceback and nothing printed but what its caller prints; its port is free again."""
    program = (
        "from directmail_lab.standin import StandInOptions, serve_forever;"
        "serve_forever(StandInOptions(), on_start=lambda s: print(s.base_url, flush=True))"
    )
    command = [sys.executable, "-X", "dev", "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            status = httpx.get(url + ME_PATH, auth=(STAND_IN_KEY, ""), trust_env=False).status_code
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
        finally:
            process.kill()

    assert status == 200
    assert (process.returncode, out, err) == (0, "", "")


def test_its_date_header_is_its_own_clock() -> None:
    """So that a skewed clock shows as one."""
    clock = Clock(1_000_000_000.0)
    with stand_in(clock=clock) as server, client_of(server) as client:
        date = client.get(ME_PATH).headers["Date"]

    assert parsedate_to_datetime(date).timestamp() == clock.now
