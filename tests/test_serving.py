"""A cassette served over real HTTP on loopback, for any client."""

import json
import re
import signal
import socket
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import requests
from cassette_samples import BASE_URL, answered, get, post, recorded, theirs as written_by_vcrpy
from test_cli import output_until, started

from directmail_lab.cassettes import read_cassette
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.server.loopback import cassette_server

ME = "/v1/users/me"


def raw(address: str, sent: bytes, *, ends: bool = False) -> bytes:
    """Send bytes, close the sending side if ``ends``, and return everything received."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(sent)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def parsed(response: bytes) -> tuple[int, list[tuple[str, ...]], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), [tuple(line.split(": ", 1)) for line in lines], body


def by_socket(method: str, url: str, headers: str = "") -> tuple[int, list[tuple[str, ...]], bytes]:
    target = url.partition("//")[2].partition("/")[2]
    head = f"{method} /{target} HTTP/1.1\r\nHost: localhost\r\n"
    return parsed(raw(url, f"{head}{headers}Connection: close\r\n\r\n".encode()))


def test_any_client_gets_what_was_recorded(tour):
    asked = [("GET", ME, b"")] * 2
    asked += [("GET", "/v1/lists/8f14e45f?page=2", b""), ("POST", "/v1/letters", b'{"a": 1}')]
    with cassette_server([tour]) as server:
        got = [
            requests.request(how, server.base_url + path, data=body) for how, path, body in asked
        ]

    for response, interaction in zip(got, read_cassette(tour), strict=True):
        wanted = interaction.response
        assert (response.status_code, response.content) == (wanted.status, wanted.body)
        assert dict(wanted.headers) == {name: response.headers[name] for name, _ in wanted.headers}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_response_is_the_recorded_one_byte_for_byte(tmp_path, method):
    """Repeated headers are kept, and every body; only the length is added."""
    fields = (("X-B", "2"), ("X-A", "é\xa1"), ("X-B", ""))
    body = bytes(range(256)) * 260
    answers = [
        Response(status, "Très\r\nX-Split: 1", fields, body) for status in (200, 204, 304, 404, 799)
    ]
    request = replace(get(ME), method=method)
    path = recorded(tmp_path / "any.yaml", *(Interaction(request, each) for each in answers))
    expected = [each.response for each in read_cassette(path)]
    with cassette_server([path]) as server:
        got = [by_socket(method, server.base_url + ME) for _ in expected]

    for (status, headers, content), wanted in zip(got, expected, strict=True):
        bare = method == "HEAD" or status in (204, 304)
        received = [(n, v.encode("latin-1")) for n, v in headers if n.startswith("X-")]
        assert (status, content) == (wanted.status, b"" if bare else body)
        assert received == [(n, v.encode()) for n, v in wanted.headers]
        length = None if status == 204 else str(len(body))
        assert dict(headers).get("Content-Length") == length


def test_hop_by_hop_headers_are_not_replayed_and_no_script_runs(tmp_path):
    """A page from it that a browser shows runs no script: all servers here share cookies."""
    between = [("Transfer-Encoding", "chunked"), ("Connection", "upgrade"), ("Upgrade", "h2c")]
    answer = Response(200, "", (*between, ("Content-Length", "9")), b"xyz")
    path = recorded(tmp_path / "a.yaml", Interaction(get(ME), answer))
    with cassette_server([path]) as server:
        fetched = by_socket("GET", server.base_url + ME)
        shown = by_socket("GET", server.base_url + ME, "Sec-Fetch-Mode: navigate\r\n")

    policy = ("Content-Security-Policy", "sandbox allow-same-origin")
    added = [("Content-Length", "3"), ("Connection", "close")]
    assert fetched == (200, added, b"xyz")
    assert shown == (200, [policy, *added], b"xyz")


@pytest.mark.parametrize(
    "response",
    [
        Response(103),
        Response(200, headers=(("X", "a\r\nY: b"),)),
        Response(200, headers=(("X: a\r\nY", "b"),)),
    ],
)
def test_a_recorded_response_that_http_cannot_carry_is_a_502(response, tmp_path):
    """A hostile cassette can add neither a header nor a response."""
    path = written_by_vcrpy(tmp_path / "a.yaml", Interaction(get(ME), response))
    with cassette_server([path]) as server:
        got, received, body = by_socket("GET", server.base_url + ME)

    assert (got, json.loads(body)["error"]["reason"]) == (502, "invalid")
    assert "Y" not in dict(received)


@pytest.mark.parametrize(
    ("repeat", "target", "status", "says"),
    [
        ("last", ME, 200, "Jo"),
        ("strict", ME, 502, "nothing_left"),
        ("last", "/v1/lists/8f14e45f?page=3", 502, "not in cassette"),
    ],
)
def test_a_used_up_request_gets_the_last_response_or_a_refusal(tour, repeat, target, status, says):
    with cassette_server([tour], repeat=repeat) as server:
        for _ in range(3):
            got, headers, body = by_socket("GET", server.base_url + target)

    assert got == status
    assert says in body.decode()
    assert "page=3" not in body.decode()
    assert status == 200 or json.loads(body)["error"]["status"] == 502
    assert ("Content-Type", "application/json; charset=utf-8") in headers or status == 200


EU = f"{BASE_URL}/eu"
# A header, or "" for the body; what the service sent in it; what the client gets.
ADDRESSES = [
    ("Link", f'<{EU}/v1?page=2>; rel="next", </eu/v1>', '<OWN/v1?page=2>; rel="next", </eu/v1>'),
    ("Location", f"{EU}/v1/users/me", "OWN/v1/users/me"),
    ("Content-Location", "/eu/v1/users/me#x", "/eu/v1/users/me#x"),
    ("Location", "//API.example.test:443/eu?x", "OWN?x"),
    ("Location", EU.replace("https://", "http://ada:pw@"), "OWN"),
    ("Location", "https://api.example.test.evil/eu", "https://api.example.test.evil/eu"),
    ("Location", "https://docs.example.test/", "https://docs.example.test/"),
    ("Refresh", f"5; url={EU}/v1", "5; url=OWN/v1"),
    ("ETag", EU, EU),
    ("", f'{{"n": 1.0, "é": "see {EU}/v1"}}', '{"n": 1.0, "é": "see OWN/v1"}'),
    ("", json.dumps([EU]).replace("/", "\\/"), '["http:\\/\\/127.0.0.1:'),
]


@pytest.mark.parametrize(("header", "said", "got"), ADDRESSES)
def test_addresses_of_the_service_become_the_servers(header, said, got, tmp_path):
    answer = answered(get(ME, base=EU), said if not header else "{}")
    headers = (*answer.response.headers, *([(header, said)] if header else []))
    answer = replace(answer, response=replace(answer.response, headers=headers))
    path = recorded(tmp_path / "a.yaml", answer, base_url=EU)
    with cassette_server([path]) as server:
        response = requests.get(server.base_url + ME, allow_redirects=False, timeout=60)

    seen = response.headers[header] if header else response.content.decode()
    assert seen.startswith(got.replace("OWN", server.base_url))
    assert int(response.headers["Content-Length"]) == len(response.content)


def test_a_request_with_the_servers_address_matches_the_recorded_one(tmp_path):
    asked = [get(f"/v1/next?from={BASE_URL}/v1"), post(f'{{"url": "{BASE_URL}/v1"}}'.encode())]
    path = recorded(tmp_path / "a.yaml", *(answered(each) for each in asked))
    with cassette_server([path], repeat="strict") as server:
        own = f"{server.base_url}/v1"
        read = requests.get(f"{own}/next", params={"from": own}, timeout=60)
        written = requests.post(f"{own}/letters", json={"url": own}, timeout=60)

    assert (read.status_code, written.status_code) == (200, 200)


def test_the_first_cassette_with_a_response_plays_it(tmp_path, tour):
    """Each at its own paths, which may be those of another service address."""
    other = [answered(get(path, base=EU), b"eu") for path in (ME, "/v1/more")]
    paths = [tour, recorded(tmp_path / "b.yaml", *other, base_url=EU)]
    with cassette_server(paths) as server:
        first = by_socket("GET", server.base_url + ME)
        more = by_socket("GET", f"{server.base_url}/eu/v1/more")
        none = by_socket("GET", f"{server.base_url}/v1/most")

    assert b"joe@" in first[2]
    assert more[::2] == (200, b"eu")
    assert none[0] == 502


CHUNKED = "Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (CHUNKED, '8\r\n{"a": 1}\r\n0\r\n\r\n', 201),
        (CHUNKED, '2;x=y\r\n{"\r\n06 \r\na": 1}\r\n0\r\n\r\n', 201),
        ("Content-Length: 8\r\nContent-Length: 8\r\n", '{"a": 1}', 201),
        (CHUNKED, "f" * 19 + "\r\n", 400),
        (CHUNKED, "1\r\n{\r\n3FFFFFF\r\n", None),  # 64 MB in all, which are never sent
        (CHUNKED, "1\r\n{\r\n4000000\r\n", 400),
        ("Content-Length: 67108865\r\n", "", 400),
        (f"Content-Length: {'9' * 5000}\r\n", "", 400),
        ("Content-Length: 8\r\n" + CHUNKED, "0\r\n\r\n", 400),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n", 400),
        ("Content-Length: 8\r\nno header\r\n", '{"a": 1}', 400),
        ("Host: localhost\r\nContent-Length: 8\r\n", '{"a": 1}', 400),
        (CHUNKED + CHUNKED, "0\r\n\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", 400),
        ("Content-Length: 8\r\nContent-Length: 9\r\n", '{"a": 1}x', 400),
        *((f"Content-Length: {wrong}\r\n", '{"a": 1}', 400) for wrong in ("-8", "0_8", "８", "")),
        *((CHUNKED, f"{wrong}\r\n{{", 400) for wrong in ("-1", "0x1", "1_0", "")),
        (CHUNKED, "1" * 2000, 400),
        (CHUNKED, '7\r\n{"a": 1}\r\n0\r\n\r\n', 400),
        (CHUNKED, '8\r\n{"a": 1}\r\n0\r\nX-Trailer: 1\r\n\r\n', 400),
    ],
)
def test_a_request_must_be_clear_and_its_body_within_a_limit(tour, head, body, status, capfd):
    sent = f"POST /v1/letters HTTP/1.1\r\nHost: localhost\r\n{head}"
    closing = "Connection: close\r\n" if status == 201 else ""
    with cassette_server([tour]) as server:
        got = raw(server.base_url, f"{sent}{closing}\r\n{body}".encode(), ends=True)
        assert requests.get(server.base_url + ME, timeout=60).status_code == 200

    assert capfd.readouterr() == ("", "")
    assert (parsed(got)[0] if got else None) == status
    assert got.count(b"HTTP/1.1 ") == bool(got)
    assert not got or ("Connection", "close") in parsed(got)[1]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1:80", 200),
        (f"GET {ME} HTTP/1.0", 200),  # as old tools and health checks send
        (f"GET {ME} HTTP/1.1\r\nHost: evil.example", 403),  # DNS rebinding
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: null", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost:81\r\nOrigin: http://LocalHost:81", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost:81\r\nOrigin: http://localhost:82", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost:81\r\nOrigin: https://localhost:81", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site", 403),  # <img src>
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 403),
        # Read as a path below the service address.
        ("GET //evil.example/v1 HTTP/1.1\r\nHost: localhost", 502),
        ("GET /\x01 HTTP/1.1\r\nHost: localhost", 502),
        ("nonsense", 400),
    ],
)
def test_no_page_and_no_proxy_request_gets_through(tour, head, status):
    """Only programs on this machine get responses, and only from the cassette."""
    with cassette_server([tour]) as server:
        sent = f"{head}\r\nConnection: close\r\n\r\n".encode()
        got, headers, _ = parsed(raw(server.base_url, sent))

    assert got == status
    assert ("Connection", "close") in headers


@pytest.mark.slow
def test_the_command_prints_its_address_and_its_cassettes(tmp_path):
    recorded(tmp_path / "one.yaml", answered(get(ME)))
    with started(tmp_path, "serve", "--port", "0", "--cassette", "one.yaml") as process:
        printed = output_until(process, "Ctrl-C ends it")
        (address,) = re.findall(r"^.*(http://127\.0\.0\.1:\d+)", printed)
        statuses = [requests.get(address + ME, timeout=60).status_code for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=300)

    assert statuses == [200, 200]
    assert "Cassettes: one" in printed
    assert (process.returncode, rest) == (0, "Stopped.\n")
