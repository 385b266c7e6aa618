"""The stand-in service over real sockets keeps service.md; the tests' own version has faults."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from faulty_service import RESET_ON_CLOSE, FaultyService

from directmail_lab.errors import CredentialError
from directmail_lab.exchange.contract import (
    HEADERS,
    LIMIT_HEADER,
    ME_PATH,
    REMAINING_HEADER,
    RESET_HEADER,
)
from directmail_lab.server.standin import STAND_IN_KEY, StandIn, stand_in

NOON = 1_800_000_000.25  # Fri, 15 Jan 2027 08:00:00 GMT, in seconds since the Unix epoch


@pytest.fixture
def client(service: StandIn) -> Iterator[httpx.Client]:
    with client_of(service) as signed_in:
        yield signed_in


def client_of(service: StandIn) -> httpx.Client:
    key = (service.api_key, "")
    return httpx.Client(base_url=service.base_url, auth=key, trust_env=False, timeout=30.0)


def connected_to(server: StandIn) -> socket.socket:
    parts = urlsplit(server.base_url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def limits_of(response: httpx.Response) -> tuple[str, ...]:
    return tuple(response.headers[name] for name in HEADERS)


def test_the_key_as_user_name_with_an_empty_password_gets_the_record(client):
    """service.md parts 4 and 5: the one specified endpoint, with the key and a colon."""
    response = client.get(ME_PATH)

    assert (response.status_code, limits_of(response)) == (200, ("300", "299", "60"))
    assert "stand-in" in json.dumps(response.json())


def basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


KEY_AND_COLON = basic(f"{STAND_IN_KEY}:").removeprefix("Basic ")
WRONG = [f"{STAND_IN_KEY}:password", STAND_IN_KEY, "another-key:", ":", "ключ:"]
OTHER_SCHEMES = [None, "Basic %%%", f"Bearer {KEY_AND_COLON}"]


@pytest.mark.parametrize("header", [*map(basic, WRONG), *OTHER_SCHEMES])
def test_any_other_credentials_are_refused(service, header):
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
        ("GET", "/v1/lists/lst_stand_in_2", 200),
        ("GET", "/v1/lists/lst_stand_in_9", 404),
        ("POST", "/v1/letters", 201),
        ("DELETE", ME_PATH, 405),
        ("GET", "/v2/users/me", 404),
    ],
)
def test_every_response_has_the_three_headers(client, method, path, status):
    """service.md part 8, rules 1 and 2, for every endpoint and status."""
    response = client.request(method, path)

    assert response.status_code == status
    assert int(response.headers[REMAINING_HEADER]) <= int(response.headers[LIMIT_HEADER])
    assert response.headers[RESET_HEADER].isdigit()
    # The spelling is exactly that of service.md.
    assert set(HEADERS) <= {name.decode() for name, _ in response.headers.raw}


def test_the_allowance_counts_down_until_the_given_status_is_sent():
    """Two requests are allowed in 10 s from the first one; then responses have the given status."""
    seen = {1.0: (200, 1, 10), 5.0: (200, 0, 6), 10.9: (420, 0, 1), 11.0: (200, 1, 10)}
    clock = iter([1_800_000_000.0 + at for at in seen]).__next__
    options = {"limit": 2, "window_s": 10, "exhausted_status": 420}
    with FaultyService(clock=clock, **options) as service, client_of(service) as client:
        responses = [client.get(ME_PATH) for _ in seen]

    assert [(r.status_code, *map(int, limits_of(r)[1:])) for r in responses] == [*seen.values()]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("seconds_left", "60"),
        ("milliseconds_left", "60000"),
        ("epoch_s", "1800000061"),
        ("epoch_ms", "1800000060250"),
    ],
)
def test_reset_is_sent_in_the_unit_asked_for(unit, text):
    """Reset is rounded up, so that a client that waits for it is never early."""
    with (
        FaultyService(reset_unit=unit, clock=lambda: NOON) as service,
        client_of(service) as client,
    ):
        headers = client.get(ME_PATH).headers

    assert headers[RESET_HEADER] == text
    assert headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"  # the fake clock's time


def test_operations_have_allowances_of_their_own():
    """Paths that differ by an id are the same."""
    limits = {"/v1/lists/{id}": 7, "POST /v1/letters": 2}
    with stand_in(limits=limits) as service, client_of(service) as client:
        client.get("/v1/lists/lst_stand_in_1")
        responses = [
            client.get("/v1/lists/lst_stand_in_2"),
            client.get(ME_PATH),
            client.post("/v1/letters"),
            client.head(ME_PATH),
        ]

    allowances = [" of ".join(reversed(limits_of(r)[:2])) for r in responses]
    assert allowances == ["5 of 7", "299 of 300", "1 of 2", "298 of 300"]


def test_closing_frees_the_port_and_the_thread(caplog):
    """Connections may be open and a response pending, and closing twice is allowed."""
    before = set(threading.enumerate())
    service = FaultyService()
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
    assert set(threading.enumerate()) == before
    with stand_in(port=port) as again:
        assert again.base_url == service.base_url


def test_a_client_that_goes_away_prints_nothing(service, capfd, caplog):
    """The client may leave before its request is complete or before it reads the response."""
    for sent in (b"", b"GET /", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"x\r\n\r\n"):
        with connected_to(service) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            gone.sendall(sent)
    with client_of(service) as client:
        assert client.get(ME_PATH).status_code == 200
    service.close()

    assert (capfd.readouterr(), caplog.text) == (("", ""), "")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"reset_unit": "days"}, ValueError),
        ({"window_s": 0}, ValueError),
        ({"limit": -1}, ValueError),
        ({"api_key": "a:b"}, CredentialError),
    ],
)
def test_options_that_make_no_sense_are_refused(options, error):
    """The error comes before the server listens."""
    with pytest.raises(error):
        stand_in(**options)
