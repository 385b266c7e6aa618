"""Recordings over real HTTP on loopback, for any client."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from cassette_samples import BASE_URL, answered, get, recorded
from hypothesis import given, settings, strategies as st
from test_cli import invoke, output_until, started

from directmail_lab.cassettes import read_cassette
from directmail_lab.cli.output import error_message
from directmail_lab.errors import DirectMailLabError
from directmail_lab.interaction import Interaction, RecordedResponse
from directmail_lab.server import CassetteServer

ME = "/v1/users/me"
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


def by_socket(method: str, url: str, body: bytes = b"", headers: str = "") -> Answer:
    target = url.partition("//")[2].partition("/")[2]
    head = f"{method} /{target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return parsed(raw(url, f"{head}{headers}Connection: close\r\n\r\n".encode() + body))


def by_curl(method: str, url: str, body: bytes) -> Answer:
    words = ["curl", "-s", "-i", "-X", method, "--data-binary", "@-", url]
    return parsed(subprocess.run(words, input=body, capture_output=True, check=True).stdout)


def by_requests(method: str, url: str, body: bytes) -> Answer:
    response = requests.request(method, url, data=body, timeout=60)
    return response.status_code, list(response.headers.items()), response.content


CURL = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


# -- what is answered --------------------------------------------------------------------------


@pytest.mark.parametrize("client", [by_socket, by_requests, pytest.param(by_curl, marks=CURL)])
def test_any_client_gets_what_was_recorded(client: Any, tour: Path) -> None:
    """The tour in its order: each status, header and body as the cassette holds it."""
    interactions = read_cassette(tour).interactions
    asked = [("GET", ME)] * 2 + [("GET", "/v1/lists/8f14e45f?page=2"), ("POST", "/v1/letters")]
    with CassetteServer([tour]) as server:
        responses = [
            client(method, server.base_url + path, b'{"a": 1}' if method == "POST" else b"")
            for method, path in asked
        ]

    for (status, headers, body), interaction in zip(responses, interactions, strict=True):
        response = interaction.response
        received = {name.lower(): value for name, value in headers}
        assert (status, body) == (response.status, response.body)
        assert {name.lower(): value for name, value in response.headers}.items() <= received.items()


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
    request = replace(get(ME), method=method)
    path = tmp_path_factory.mktemp("served") / "any.yaml"
    recorded(path, *(Interaction(request, response) for response in responses))
    expected = [interaction.response for interaction in read_cassette(path).interactions]
    with CassetteServer([path]) as server:
        got = [by_socket(method, server.base_url + ME) for _ in expected]

    for (status, headers, body), wanted in zip(got, expected, strict=True):
        bare = method == "HEAD" or status in (204, 304)
        own = {"connection", "content-length"}
        assert (status, body) == (wanted.status, b"" if bare else wanted.body)
        received = [(n, v.encode("latin-1")) for n, v in headers if n.lower() not in own]
        assert received == [(n, v.encode()) for n, v in wanted.headers]


def test_what_is_between_two_neighbours_is_not_replayed(tmp_path: Path) -> None:
    """A foreign cassette may hold how its body was sent, and a length that it no longer has."""
    between = [("Transfer-Encoding", "chunked"), ("Connection", "upgrade"), ("Upgrade", "h2c")]
    lengths = [[], [("Content-Length", "9")], [("content-length", "3"), ("Content-Length", "4")]]
    answers = [RecordedResponse(200, "", (*between, *own), b"xyz") for own in lengths]
    path = recorded(tmp_path / "a.yaml", *(Interaction(get(ME), each) for each in answers))
    with CassetteServer([path]) as server:
        got = [by_socket("GET", server.base_url + ME) for _ in lengths]

    assert got == [(200, [("Content-Length", "3"), ("Connection", "close")], b"xyz")] * 3


@pytest.mark.parametrize(
    "response",
    [
        RecordedResponse(103),
        RecordedResponse(0),
        RecordedResponse(200, headers=(("X", "a\r\nY: b"),)),
        RecordedResponse(200, headers=(("X: a\r\nY", "b"),)),
    ],
)
def test_what_http_cannot_carry_is_a_502(response: RecordedResponse, tmp_path: Path) -> None:
    """A hostile cassette adds no header and no answer of its own."""
    request = {"method": "GET", "uri": BASE_URL + ME, "body": None, "headers": {}}
    headers = {name: [value] for name, value in response.headers}
    status = {"code": response.status, "message": ""}
    answer = {"status": status, "headers": headers, "body": {"string": "{}"}}
    cassette = {"version": 1, "interactions": [{"request": request, "response": answer}]}
    (tmp_path / "a.yaml").write_text(json.dumps(cassette), encoding="utf-8")
    with CassetteServer([tmp_path / "a.yaml"]) as server:
        got, received, body = by_socket("GET", server.base_url + ME)

    assert (got, json.loads(body)["error"]["reason"]) == (502, "invalid")
    assert "Y" not in dict(received)


def test_an_interaction_that_cannot_be_read_is_a_502(tour: Path) -> None:
    """The client is told, and the server goes on."""
    spoilt = tour.read_text(encoding="utf-8").replace('"code": 404', '"code": "x"')
    tour.write_text(spoilt, encoding="utf-8")
    with CassetteServer([tour]) as server:
        bad = by_socket("GET", f"{server.base_url}/v1/lists/8f14e45f?page=2")
        good = by_socket("GET", server.base_url + ME)

    assert (bad[0], good[0]) == (502, 200)
    assert "Interaction 3 of cassette 'tour' cannot be read" in bad[2].decode()


def test_a_part_of_a_body_is_played_for_its_range_alone(tmp_path: Path) -> None:
    """Else curl, which asks for the whole or goes on with a download, would save a cut file."""
    part = replace(get(ME), headers=(("Range", "bytes=0-3"),))
    path = recorded(tmp_path / "a.yaml", answered(part, b"part", status=206), answered(get(ME)))
    with CassetteServer([path]) as server:
        asked = ["", "Range: bytes=0-3\r\n", "Range: bytes=4-\r\n"]
        statuses = [by_socket("GET", server.base_url + ME, headers=each)[0] for each in asked]

    assert statuses == [200, 206, 404]


@pytest.mark.parametrize(
    ("repeat", "target", "status", "says"),
    [
        ("last", ME, 200, "Jo"),
        ("strict", ME, 404, "nothing_left"),
        ("last", "/v1/lists/8f14e45f?page=3", 404, "no_match"),
        ("last", "/v1/lists/8f14e45f?page=3", 404, "Nearest: GET /v1/lists/8f14e45f, which differ"),
    ],
)
def test_without_an_unplayed_response_comes_the_last_or_a_refusal(
    tour: Path, repeat: Any, target: str, status: int, says: str
) -> None:
    """As in `replay`; a refusal is JSON that names the nearest, and no query or body."""
    with CassetteServer([tour], repeat=repeat) as server:
        for _ in range(3):
            got, headers, body = by_socket("GET", server.base_url + target)

    assert got == status
    assert says in body.decode()
    assert "page=" not in body.decode()
    assert status == 200 or json.loads(body)["error"]["status"] == 404
    assert ("Content-Type", "application/json; charset=utf-8") in headers or status == 200


def test_several_cassettes_answer_in_their_order(tmp_path: Path, tour: Path) -> None:
    """Those not played yet first, whatever base address each has; a refusal names the nearest."""
    eu = f"{BASE_URL}/eu"
    other = [answered(get(path, base=eu), b"eu") for path in (ME, "/v1/more")]
    paths = [tour, recorded(tmp_path / "b.yaml", *other, base_url=eu)]
    with CassetteServer(paths) as server:
        bodies = [by_socket("GET", server.base_url + ME)[2] for _ in range(4)]
        more = by_socket("GET", f"{server.base_url}/v1/more")
        none = by_socket("GET", f"{server.base_url}/v1/most")

    assert [b"Jo" in bodies[1], bodies[2], b"Jo" in bodies[3]] == [True, b"eu", True]
    assert (more[0], more[2]) == (200, b"eu")
    assert "cassette 'b'" in json.loads(none[2])["error"]["message"]


def test_one_connection_carries_requests_one_after_the_other(tour: Path) -> None:
    """Also those sent before the first answer came; a client that waits is told to go on."""
    one = f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    waits = b"POST /v1/letters HTTP/1.1\r\nHost: a.localhost\r\nExpect: 100-continue\r\n"
    with CassetteServer([tour]) as server:
        rest = b'Connection: close\r\nContent-Length: 8\r\n\r\n{"a": 1}'
        got = raw(server.base_url, one + one + waits + rest)

    assert re.findall(rb"HTTP/1.1 (\d+) ", got) == [b"200", b"200", b"100", b"201"]


# -- who may ask -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1:80", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: [::1]:80\r\nSec-Fetch-Site: none", 200),
        (f"GET {ME} HTTP/1.0", 200),
        (f"GET {ME} HTTP/1.1\r\nHost: evil.example", 403),  # DNS rebinding
        (f"GET {ME} HTTP/1.1\r\nHost: 127.0.0.1.evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nOrigin: null", 403),
        (f"GET {ME} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site", 403),  # <img src>
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 403),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost", 403),
        ("GET //evil.example/v1 HTTP/1.1\r\nHost: localhost", 404),  # below the base address
        ("GET /%zz HTTP/1.1\r\nHost: localhost", 404),
        ("GET /\x01 HTTP/1.1\r\nHost: localhost", 400),
        ("nonsense", 400),
    ],
)
def test_no_page_and_no_proxy_request_gets_through(tour: Path, head: str, status: int) -> None:
    """Only a client of this machine is answered, from the cassette alone."""
    with CassetteServer([tour]) as server:
        sent = f"{head}\r\nConnection: close\r\n\r\n".encode()
        got, headers, _ = parsed(raw(server.base_url, sent))

    assert got == status
    assert ("Connection", "close") in headers


def test_a_page_that_a_browser_shows_runs_no_script(tour: Path) -> None:
    """A cassette may be a stranger's, and every server of this machine has the same cookies."""
    with CassetteServer([tour]) as server:
        shown = by_socket("GET", server.base_url + ME, headers="Sec-Fetch-Mode: navigate\r\n")
        fetched = by_socket("GET", server.base_url + ME)

    assert ("Content-Security-Policy", "sandbox") in shown[1]
    assert "Content-Security-Policy" not in dict(fetched[1])


# -- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "no cassette of that name"),
        ("empty.yaml", "no interactions to answer with"),
        ("api.json", "api.json is not a cassette"),
        ("a.har", "directmail-lab cassette convert"),
    ],
)
def test_what_cannot_be_served_is_one_line(name: str, says: str) -> None:
    """What happened and what to do, with no advice for Python."""
    Path("empty.yaml").write_text("interactions: []\nversion: 1\n")
    Path("a.har").write_text('{"log": {"entries": []}}')
    Path("api.json").write_text('{"openapi": "3.1.0", "paths": {}}')
    error = invoke("serve", "--port", "0", "--cassette", name).exception

    assert isinstance(error, DirectMailLabError)
    assert says in error_message(error)


def test_the_command_says_where_it_replays_and_what(tmp_path: Path) -> None:
    """Its address comes first; a second request for the one response is refused if it is strict."""
    recorded(tmp_path / "one.yaml", answered(get(ME)))
    with started(tmp_path, "serve", "--port", "0", "--cassette", "one.yaml", "--strict") as process:
        printed = output_until(process, "Ctrl-C ends it")
        address = re.findall(r"http://127\.0\.0\.1:\d+", printed.splitlines()[0])
        statuses = [requests.get(address[0] + ME, timeout=60).status_code for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)

    assert statuses == [200, 404]
    assert "one (1 interaction)" in printed
    assert (process.returncode, rest) == (0, "Stopped.\n")
