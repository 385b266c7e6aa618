"""A recorded request as code: it sends the same request, and never contains the key."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from cassette_samples import BASE_URL, answered, get, post
from hypothesis import given, strategies as st

import directmail_lab as dm
from directmail_lab.credentials import header_value
from directmail_lab.errors import CassetteError
from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.questions.interaction_view import InteractionView
from directmail_lab.questions.snippets import copy_as
from directmail_lab.server.loopback import LoopbackServer
from directmail_lab.settings import origin_of, trusted_origins

KEY = "k+7/Tz3W~for~snippets"
BOUNDARY = "multipart/form-data; boundary=b0"
MULTIPART = b'--b0\r\nContent-Disposition: form-data; name="file"\r\n\r\n\x00\xff\r\n--b0--\r\n'
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the samples' address one that the user has set, with a key."""
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", BASE_URL)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)


def copied(request: Request, kind: str = "curl", response: str = "{}") -> str:
    return copy_as(answered(request, response), kind, base_url=BASE_URL)


class Echo(LoopbackServer):
    def response_to(self, request: Request) -> Response:
        self.seen = request
        return Response(204)


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    with Echo() as server:
        yield server


REQUESTS = {
    "read": get("/v1/users/me?a=1&b=%20x"),
    "twice": get("/v1/lists?a=1&a=2"),
    "path": get("/v1/{lists}/[a]/b?q='\"$(id)`id`\\"),
    "head": replace(get(), method="HEAD"),
    "json": post(b'{"to":"Z\xc3\xbcrich","n":1}'),
    "form": post(b"a=1&b='%27", content_type="application/x-www-form-urlencoded"),
    "multipart": post(MULTIPART, content_type=BOUNDARY),
    "binary": post(bytes(range(256)), content_type="application/pdf"),
    "headers": replace(get(), headers=(("X-A", 'it\'s "$HOME"'), ("X-A", "2"), ("X-Empty", ""))),
}


WRITTEN = {
    "twice": "dm.get('/v1/lists?a=1&a=2')",
    "json": "dm.post('/v1/letters', json={'to': 'Zürich', 'n': 1})",
}


def run_in_shell(code: str) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl is installed")
    subprocess.run(["sh", "-c", f"{code} --silent"], check=True)


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - {"multipart", "binary"}))
def test_copied_curl_code_sends_the_same_request(echo, name, monkeypatch):
    request = REQUESTS[name]
    request = replace(request, uri=echo.base_url + request.uri.removeprefix(BASE_URL))
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", echo.base_url)
    run_in_shell(copied(request))
    sent = {(key.lower(), value) for key, value in echo.seen.headers}
    expected = {(key.lower(), value) for key, value in request.headers} - {("accept", "*/*")}

    assert (echo.seen.method, echo.seen.body) == (request.method, request.body)
    assert echo.base_url + unquote(echo.seen.uri) == unquote(request.uri)
    assert expected | {("authorization", header_value(KEY))} <= sent


def test_copied_code_and_openapi_have_the_key_where_a_session_sends_it(echo, monkeypatch):
    """If the scheme changes, it changes in all of them: a module of its own knows it."""
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", echo.base_url)
    with dm.Session(echo.base_url, KEY) as session:
        session.get("/v1/users/me")
        asked = echo.seen
        (scheme,) = dm.openapi(session)["components"]["securitySchemes"].values()
    run_in_shell(copied(replace(get(), uri=f"{echo.base_url}/v1/users/me")))
    by_session, by_code = (header(each.headers, "Authorization") for each in (asked, echo.seen))

    assert by_session == by_code
    assert by_session.partition(" ")[0].lower() == scheme["scheme"]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_copied_directmail_call_sends_the_same_request(name):
    """If the response was JSON, the code also makes a frame."""
    request, session = REQUESTS[name], dm.Session(BASE_URL)
    code = copied(request, "request")
    built: list[Any] = []
    build = session.client.build_request
    calls = SimpleNamespace(
        get=partial(build, "GET"), post=partial(build, "POST"), request=build, frame=built.append
    )
    exec(code, {"dm": calls})
    (sent,), asked = built, httpx.URL(request.uri)
    headers = {(key.lower(), value) for key, value in sent.headers.multi_items()}

    assert (sent.method, sent.read()) == (request.method, request.body)
    assert (sent.url.path, sent.url.params) == (asked.path, asked.params)
    assert {(key.lower(), value) for key, value in request.headers} <= headers
    assert BASE_URL not in code
    assert "key" not in code
    assert name not in WRITTEN or code == f"response = {WRITTEN[name]}\ndm.frame(response)"


@given(TEXT, TEXT, st.binary(max_size=40))
def test_copied_code_is_printable_and_quoted(path, value, body):
    """Pasted text must not move the cursor or end the paste, and the shell sees plain words."""
    request = Request("POST", f"{BASE_URL}/{path}", (("X-V", value),), body)
    curl = copied(request)
    ours = copied(replace(request, body=json.dumps({path: value}).encode()), "request")
    command = curl[curl.index("curl ") :]
    words = shlex.split(command.replace("\\\n", " "))

    assert (curl + ours).replace("\n", "").isprintable()
    assert (words[0], words[-2], words[-1][: len(BASE_URL)]) == ("curl", "--url", BASE_URL)
    assert set(words[3::2]) <= {
        *("--request", "--user", "--header", "--url", "--data-raw", "--data-binary")
    }
    compile(ours, "copied", "exec")


@pytest.mark.parametrize("kind", ["curl", "request"])
def test_a_comment_says_that_a_value_was_replaced(kind):
    """The user must replace a placeholder or a pseudonym in the address, a header or the body."""
    note = "# A value was replaced when this was recorded: put in your own.\n"
    header = replace(get(), headers=(("X-Key", "<REDACTED>"),))
    body = post(b'{"to": "person-0123abcd@example.invalid"}')

    for each in (get("/v1/x?k=%3CAPI_KEY%3E"), header, body):
        assert note in copied(each, kind)
    assert note not in copied(get(), kind)


def test_comments_name_what_was_left_out():
    code = copied(replace(post(b"x" * 100_000), headers=(("X-A", "a\r\nX-B: b"),)))

    assert "# The body was not kept, or is too large" in code
    assert "# A header that is not plain text is left out." in code
    assert "X-B" not in code
    assert "# The body was not kept" in InteractionView(answered(post(b"")), False).as_curl()
    assert "# The body was not kept" in copied(REQUESTS["binary"])
    assert "# The body" not in InteractionView(answered(get()), False).as_curl()


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "gopher://a.test/", "-o/tmp/x", ""])
def test_an_address_that_is_not_of_http_is_refused(uri):
    """curl would read a local file, or take the address for an option."""
    with pytest.raises(CassetteError, match="no http address"):
        copied(replace(get(), uri=uri))


@pytest.mark.parametrize(
    ("uri", "has_key"),
    [
        ("https://api.example.test/v1/x", True),
        ("https://API.example.test:443/v1/x", True),
        ("https://api.example.test:444/v1/x", False),
        ("http://api.example.test/v1/x", False),
        ("https://api.example.test@elsewhere.test/", False),
        ("https://elsewhere.test\\@api.example.test.elsewhere.test/", False),
        ("https://api.example.te\tst/", False),
    ],
)
def test_the_key_goes_to_a_trusted_origin_alone(uri, has_key):
    """A redirect, or a stranger's recording, may contain any address."""
    code = copied(replace(get(), uri=uri))

    assert ("DIRECTMAIL_API_KEY" in code) == has_key
    assert ("# The key is left out" in code) != has_key


def test_a_view_trusts_what_this_process_connected_to():
    """A session that only replays trusts no address, but a session with a key does."""
    view = InteractionView(answered(get("/v1/x", base="https://only-here.example.test")))
    with dm.Session("https://only-here.example.test"):
        assert "--user" not in view.as_curl()
    with dm.Session("https://only-here.example.test/eu", KEY):
        assert "--user" in view.as_curl()


def test_an_origin_in_a_setting_is_trusted(monkeypatch, tmp_path):
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", "https://one.test/eu")
    monkeypatch.setenv("DIRECTMAIL_REGIONS", "two=https://two.test:8443")
    file = tmp_path.with_name(f"{tmp_path.name}-config") / "directmail-lab/regions.toml"
    file.parent.mkdir(parents=True)
    file.write_text('three = "https://three.test"', encoding="utf-8")
    named = [*map(origin_of, ("https://one.test", "https://two.test:8443", "https://three.test"))]

    assert trusted_origins().issuperset(named)
    file.write_text('three = "http://three.test"', encoding="utf-8")
    assert trusted_origins().isdisjoint(named[1:])
