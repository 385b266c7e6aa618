"""vcrpy replays our cassettes to other clients; what it records for them has no credentials.

The clients are those of `CLIENTS`, with plain vcrpy and with pytest-recording.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
import requests
import urllib3
import vcr
from cassette_samples import BASE_URL, answered, begin, get, opened, post
from client_service import KEY, ClientService
from key_search import traces
from vcr.errors import CannotOverwriteExistingCassetteException
from vcr.patch import force_reset
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import yamlserializer

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import WriteRefusedError
from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.server.loopback import json_response
from directmail_lab.vcrpy import vcr_settings

GUIDE = Path(__file__).parent.parent / "notebooks" / "other-clients.md"
UNKNOWN = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"  # a credential that only its place shows
BEARER = {"Authorization": f"Bearer {UNKNOWN}", "X-Trace": "1"}
Send = Callable[..., tuple[int, bytes]]


def by_requests(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    response = requests.request(method, url, json=body, headers=headers, timeout=60)
    return response.status_code, response.content


def by_urllib3(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    with urllib3.PoolManager() as pool:
        response = pool.request(method, url, json=body, headers=headers)
        return response.status, response.data


def by_httpx(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    response = httpx.request(method, url, json=body, headers=headers)
    return response.status_code, response.content


def by_httpx_async(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    async def send() -> tuple[int, bytes]:
        async with httpx.AsyncClient() as client:
            response = await client.request(method, url, json=body, headers=headers)
            return response.status_code, response.content

    return asyncio.run(send())


def by_aiohttp(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    async def send() -> tuple[int, bytes]:
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, url, json=body, headers=headers) as response,
        ):
            return response.status, await response.read()

    return asyncio.run(send())


CLIENTS: dict[str, Send] = {
    "requests": by_requests,
    "urllib3": by_urllib3,
    "httpx": by_httpx,
    "httpx async": by_httpx_async,
    "aiohttp": by_aiohttp,
}


@pytest.fixture(params=CLIENTS)
def send(request: pytest.FixtureRequest) -> Send:
    """Send with each client."""
    return CLIENTS[request.param]


class Echo(ClientService):
    """Repeats what it gets, sets a cookie, and has a person's data."""

    label = "ours"

    def response_to(self, request: Request) -> Response:
        if request.uri.partition("?")[0] != "/v1/echo":
            return super().response_to(request)
        said = {
            "note": str(header(request.headers, "authorization")).removeprefix("Bearer "),
            "query": request.uri.partition("?")[2],
            "body": (request.body or b"").decode(),
            "email": "ada@corp.test",
        }
        return json_response(200, said, (("Set-Cookie", f"session={UNKNOWN[::-1]}; Path=/"),))


@pytest.fixture
def service() -> Iterator[Echo]:
    """A service that counts what it gets, and repeats it."""
    with Echo() as started:
        yield started


# -- both ways -------------------------------------------------------------------------------------


def test_vcrpy_replays_our_cassettes(send, tour):
    """Reads, binary bodies and writes, without a line of ours."""
    with vcr.use_cassette(str(tour), record_mode="none", match_on=["method", "uri"]) as cassette:
        status, body = send("GET", f"{BASE_URL}/v1/users/me")
        rest = [
            send("GET", f"{BASE_URL}/v1/users/me"),
            send("GET", f"{BASE_URL}/v1/lists/8f14e45f?page=2"),
            send("POST", f"{BASE_URL}/v1/letters", {"a": 1}),
        ]

    assert status == 200
    assert b'"joe@corp.com"' in body
    assert "é\u2028".encode() in body
    assert rest == [(200, b'{"name": "Jo"}'), (404, b"\xff\0\x85"), (201, b"x" * 500)]
    assert cassette.all_played


def test_we_replay_what_vcrpy_records(send, service, tmp_path):
    """vcrpy replays it too, with the same settings, and to another client."""
    path = tmp_path / "theirs.yaml"
    recorder = vcr.VCR(**vcr_settings(allow_writes=True))
    with recorder.use_cassette(str(path)):
        read = send("GET", f"{service.base_url}/v1/users/me?q=1")
        packed = send("GET", f"{service.base_url}/v1/packed")
        written = send("POST", f"{service.base_url}/v1/rows", {"name": "é"})
    service.close()
    with recorder.use_cassette(str(path), record_mode="none"):
        assert by_requests("GET", f"{service.base_url}/v1/users/me?q=1") == read
        assert send("GET", f"{service.base_url}/v1/packed") == packed
        assert send("POST", f"{service.base_url}/v1/rows", {"name": "é"}) == written
    with dm.replay(path):
        assert dm.get("/v1/users/me?q=1").content == read[1]
        assert dm.get("/v1/packed").content == packed[1] == b"a,b\n" * 999
        assert dm.post("/v1/rows", json={"name": "é"}).content == written[1]


def test_vcrpy_loads_whatever_we_write_at_any_moment(tmp_path):
    """A write that was begun, a run that goes on, and one that has ended."""
    path = tmp_path / "tour.yaml"
    with opened(path, "update") as cassette:
        cassette.record(answered(body="\u2028é"))

    def count() -> int:
        found, _ = FilesystemPersister.load_cassette(path, yamlserializer)
        return len(found)

    counts = []
    for run in range(2):
        with opened(path, "update") as cassette:
            for number in range(3):
                cassette.record(answered(get(f"/v1/{run}/{number}"), b"\xff\0\x85"))
                counts.append(count())
            begun = begin(cassette, answered(post(b"{}")))
            counts.append(count())
            cassette.record(answered(post(b"{}"), "\u2028é"), begun)
            counts.append(count())
        counts.append(count())

    assert counts == sorted(counts)
    assert (counts[5], counts[-1]) == (5, 8)


# -- redaction -------------------------------------------------------------------------------------


def test_no_credential_that_a_client_sends_or_gets_is_written(send, service, tmp_path):
    """Neither the key that this process knows, nor what its place shows, nor a copy of it."""
    path = tmp_path / "clean.yaml"
    key = ApiKey(KEY)
    query = f"api_key={UNKNOWN}&key={key.reveal()}"
    with vcr.VCR(**vcr_settings(allow_writes=True)).use_cassette(str(path)):
        send("GET", f"{service.base_url}/v1/echo", **BEARER)
        send("GET", f"{service.base_url}/v1/echo?{query}", **BEARER)
        send("POST", f"{service.base_url}/v1/echo", {"password": UNKNOWN, "of": KEY}, **BEARER)

    assert service.authorization() == BEARER["Authorization"]
    written = path.read_bytes()
    assert traces(written, KEY) == []
    assert not {UNKNOWN.encode(), UNKNOWN[::-1].encode()} & {*re.split(rb"[^\w]", written)}
    assert b"ada@corp.test" in written
    assert len(read_cassette(path)) == 3


def test_what_came_before_a_credential_was_named_is_written_without_it(send, service, tmp_path):
    """A service returned it under a name of its own, and a form sent it. Both still replay."""
    path = tmp_path / "named.yaml"
    settings = vcr_settings(allow_writes=True)

    def flow() -> list[bytes]:
        return [
            send("POST", f"{service.base_url}/v1/echo", {"phrase": UNKNOWN})[1],
            send("GET", f"{service.base_url}/v1/echo", Authorization=f"Bearer {UNKNOWN}")[1],
        ]

    with vcr.VCR(**settings).use_cassette(str(path), record_mode="all"):
        sent = flow()
    assert UNKNOWN not in path.read_text()
    with vcr.VCR(**settings).use_cassette(str(path), record_mode="none"):
        played = flow()

    assert UNKNOWN.encode() in sent[0]
    assert b"<REDACTED>" in played[0]


def test_credentials_that_are_replaced_replay_with_other_ones(send, service, tmp_path):
    """Both sides are redacted before vcrpy compares them, so another person's token finds it."""
    path = tmp_path / "others.yaml"
    settings = vcr_settings(allow_writes=True, match_on=["method", "uri", "body"])
    with vcr.VCR(**settings).use_cassette(str(path)):
        send("POST", f"{service.base_url}/v1/rows?api_key={UNKNOWN}", {"password": UNKNOWN})
    other = UNKNOWN[::-1]
    with vcr.VCR(**settings).use_cassette(str(path), record_mode="none"):
        status, _ = send("POST", f"{service.base_url}/v1/rows?api_key={other}", {"password": other})

    assert status == 201


def test_personal_data_is_redacted_if_it_is_asked_for(send, service, tmp_path):
    """The caller gets the data; the file has pseudonyms."""
    path = tmp_path / "personal.yaml"
    with vcr.VCR(**vcr_settings(redact=["personal"])).use_cassette(str(path)):
        _, body = send("GET", f"{service.base_url}/v1/echo?email=bob@corp.test")

    assert b"ada@corp.test" in body
    assert b"corp.test" not in path.read_bytes()


def test_a_body_of_aiohttp_of_any_kind_is_recorded_without_the_key(service, tmp_path):
    """vcrpy has an object for it: a form, a file among its fields, or a stream."""
    path = tmp_path / "bodies.yaml"
    key = ApiKey(KEY)
    (tmp_path / "rows.csv").write_text(f"a,{KEY}")

    async def parts() -> Any:
        yield f"key={KEY}".encode()

    async def post_all() -> None:
        async with aiohttp.ClientSession() as client:
            with (tmp_path / "rows.csv").open("rb") as file:
                for data in ({"of": KEY}, [("of", KEY)], {"file": file}, parts()):
                    await client.post(f"{service.base_url}/v1/rows", data=data)

    with vcr.VCR(**vcr_settings(allow_writes=True)).use_cassette(str(path)):
        asyncio.run(post_all())

    assert key.reveal() in str([each.body for each in service.received])
    assert traces(path.read_bytes(), KEY) == []
    assert len(read_cassette(path)) == 4


@pytest.mark.parametrize("name", ["before_record_request", "before_record"])
def test_a_suites_own_settings_stay(service, tmp_path, name):
    """Its filters run first, as one function or as several; what they return is redacted."""
    path = tmp_path / "own.yaml"

    def add(request: Any) -> Any:
        request.uri += f"&token={UNKNOWN}"
        return request

    def leave_out(response: Any) -> Any:
        return None if response["status"]["code"] == 404 else response

    settings = vcr_settings(
        **{name: add},
        before_record_response=[leave_out],
        filter_headers=["X-Trace"],
        ignore_hosts=["localhost"],
        decode_compressed_response=False,
        custom_patches=((Echo, "label", "theirs"),),
    )
    with vcr.VCR(**settings).use_cassette(str(path)):
        assert service.label == "theirs"
        by_requests("GET", f"{service.base_url}/v1/users/me?q=1", **BEARER)
        by_requests("GET", f"{service.base_url}/v1/nothing?q=1")
    (recorded,) = read_cassette(path).interactions

    assert recorded.request.uri.endswith("?q=1&token=<REDACTED>")
    assert UNKNOWN.encode() not in path.read_bytes()
    assert header(recorded.request.headers, "x-trace") is None
    assert settings["decode_compressed_response"] is False


# -- writes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["once", "new_episodes", "all", "any"])
def test_a_write_is_refused_before_it_is_sent(send, service, tmp_path, mode):
    """The service gets no request. Reads are recorded."""
    with vcr.VCR(**vcr_settings(record_mode=mode)).use_cassette(str(tmp_path / "tape.yaml")):
        with pytest.raises(WriteRefusedError, match=r"(?s)nothing was sent.*allow_writes=True"):
            send("POST", f"{service.base_url}/v1/rows", {"a": 1})
        send("GET", f"{service.base_url}/v1/users/me")

    assert service.counts == {"GET /v1/users/me": 1}


def test_threads_send_no_write(send, service, tmp_path):
    """vcrpy asks in each thread."""

    def write(number: int) -> None:
        with pytest.raises(WriteRefusedError):
            send("POST", f"{service.base_url}/v1/rows", {"n": number})

    with (
        vcr.VCR(**vcr_settings()).use_cassette(str(tmp_path / "tape.yaml")),
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(write, range(8)))

    assert service.received == []


def test_a_write_is_refused_while_vcrpy_makes_a_connection(send, service, tmp_path):
    """For that, it takes its patches out of the process, so it is not asked in other threads.

    That it was asked about an earlier write, which was sent or not recorded, changes nothing.
    """
    write = "POST", f"{service.base_url}/v1/rows", {"a": 1}

    def tape(**options: Any) -> Any:
        return vcr.VCR(**vcr_settings(**options)).use_cassette(str(tmp_path / "tape.yaml"))

    for earlier in ({"ignore_localhost": True}, {"record_mode": "none"}):
        with tape(**earlier), suppress(CannotOverwriteExistingCassetteException):
            send(*write)
        with tape(record_mode="all"), force_reset():
            with pytest.raises(WriteRefusedError):
                send(*write)
            send("GET", f"{service.base_url}/v1/users/me")

    assert service.counts == {"POST /v1/rows": 1, "GET /v1/users/me": 2}


@pytest.mark.parametrize("mode", ["none", "once", "new_episodes"])
def test_a_write_that_is_replayed_is_free(send, service, tmp_path, mode):
    """Another write beside it is refused."""
    path = str(tmp_path / "tape.yaml")
    settings = {"match_on": ["method", "uri", "body"], "record_mode": mode}
    with vcr.VCR(**vcr_settings(allow_writes=True)).use_cassette(path):
        recorded = send("POST", f"{service.base_url}/v1/rows", {"a": 1})
    with vcr.VCR(**vcr_settings(**settings)).use_cassette(path):
        replayed = send("POST", f"{service.base_url}/v1/rows", {"a": 1})
        with pytest.raises((WriteRefusedError, CannotOverwriteExistingCassetteException)):
            send("POST", f"{service.base_url}/v1/rows", {"a": 2})

    assert replayed == recorded
    assert service.counts == {"POST /v1/rows": 1}


class OwnConnection(http.client.HTTPConnection):
    """A connection that vcrpy does not lead, such as one to Docker."""


def test_only_what_vcrpy_would_record_is_refused(service, tmp_path):
    """Another cassette, a host that the suite ignores, and a connection of its own are not."""
    url = f"{service.base_url}/v1/rows"
    for mode in ("once", "none"):
        settings = vcr_settings(ignore_localhost=True, record_mode=mode)
        with vcr.VCR(**settings).use_cassette(str(tmp_path / "a.yaml")):
            assert by_requests("POST", url)[0] == by_httpx("POST", url)[0] == 201
    with vcr.VCR(**vcr_settings()).use_cassette(str(tmp_path / "b.yaml")):
        connection = OwnConnection(urlsplit(url).netloc)
        connection.request("POST", "/v1/rows")
        assert connection.getresponse().status == 201
        connection.close()
        with vcr.use_cassette(str(tmp_path / "c.yaml")):
            assert by_requests("POST", url)[0] == 201
    assert by_requests("POST", url)[0] == 201


# -- in pytest -------------------------------------------------------------------------------------


QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist")


def block(name: str) -> str:
    """Return the block of the guide whose first line has this word."""
    text = GUIDE.read_text(encoding="utf-8")
    return text.split(f"```python {name}\n")[1].partition("```")[0]


def suite_of_requests(pytester: pytest.Pytester, service: Echo, conftest: str) -> None:
    """Write a suite that uses requests and pytest-recording."""
    pytester.makepyfile(
        test_account=f"""
        import pytest, requests

        @pytest.mark.vcr
        def test_reads():
            response = requests.get("{service.base_url}/v1/echo", headers={BEARER!r})
            assert response.json()["email"]

        @pytest.mark.vcr
        def test_writes():
            response = requests.post("{service.base_url}/v1/rows", json={{"a": 1}})
            assert response.status_code == 201
        """
    )
    pytester.makeconftest(conftest)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conftest", "own"])
def test_a_suite_records_with_the_guides_conftest(pytester, service, name):
    """Its write is refused until it is allowed; then vcrpy and our fixture replay the suite.

    The ini file's setting redacts what vcrpy records, too.
    """
    suite_of_requests(pytester, service, block(name))
    pytester.makeini("[pytest]\ndirectmail_redact = personal\n")
    run = pytester.runpytest_subprocess
    run(*QUIET, "--record-mode=once").assert_outcomes(passed=1, failed=1)
    refused = service.counts["POST /v1/rows"]
    allow = "--directmail-allow-writes"
    run(*QUIET, "--record-mode=once", allow).assert_outcomes(passed=2)
    service.close()
    run(*QUIET, "--block-network").assert_outcomes(passed=2)
    files = sorted(pytester.path.rglob("*.yaml"))

    assert (refused, len(service.received)) == (0, 2)
    assert [file.name for file in files] == ["test_reads.yaml", "test_writes.yaml"]
    for file in files:
        assert UNKNOWN.encode() not in file.read_bytes()
        assert b"ada@corp.test" not in file.read_bytes()

    (pytester.path / "conftest.py").unlink()
    pytester.makepyfile(
        test_account="""
        def test_reads(directmail):
            assert directmail.get("/v1/echo").json()["email"]
        """
    )
    run(*QUIET, "--disable-recording").assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_settings_need_no_pytest():
    """vcrpy is used without it, too."""
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from directmail_lab.vcrpy import vcr_settings\n"
        "print(len(vcr_settings()['custom_patches']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (ran.stdout.strip(), ran.stderr) == ("5", "")
