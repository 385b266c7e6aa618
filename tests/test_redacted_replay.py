"""What redaction replaces never decides whether a recording replays."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import httpx
import pytest
import vcr
from cassette_samples import BASE_URL, answered, post, recorded
from client_service import ClientService
from hypothesis import example, given, settings, strategies as st

from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.server.loopback import json_response
from directmail_lab.vcrpy import vcr_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS = ("tOk3nA9fK2xQ9zLr7Tt", "tOk3nB7mW5nYcHs1pAe")
PHRASE = "correct-h0rse-battery-staple"
USER = "someuser123"
SECRET = "hk8fK2xQ9zLr7TtVb3n"


def part_of_jwt(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


JWT = f"{part_of_jwt({'alg': 'HS256'})}.{part_of_jwt({'sub': USER})}.c2lnbmF0dXJlMTIz"
HEADERS = ("X-Session-Id", "X-Auth", "X-JWT")
PARAMETERS = ("private_key", "oauth_token", "oauth_signature")
FIELDS = ("auth_token", "apiToken", "session_token", "passcode", "token", "key")


class Bank(ClientService):
    """A service whose responses depend on the credentials that it gets."""

    def response_to(self, request: Request) -> Response:
        path, _, query = request.uri.partition("?")
        path = path.removeprefix("/v1")
        body = (request.body or b"").decode()
        if path == "/acc":
            return json_response(200, [{"access_token": each} for each in TOKENS])
        if path in COOKIES:
            cookies = tuple(("Set-Cookie", each) for each in COOKIES[path])
            return Response(200, "OK", cookies, b"{}")
        if path == "/login":
            return json_response(200, {"id_token": JWT})
        if path == "/xml":
            xml = f'<a key="{SECRET}"><key>{SECRET}</key>{header(request.headers, "x-echo")}</a>'
            return Response(200, "OK", (("Content-Type", "text/xml"),), xml.encode())
        said = [path, query, body, header(request.headers, "authorization"), len(self.received)]
        return json_response(200, {"said": said, "token": SECRET})


COOKIES = {
    "/sign-in": (f"sid={SECRET}; Path=/admin; HttpOnly", f"seen={SECRET}; Max-Age=9; Path=/"),
    "/sign-out": (
        "sid=; Path=/admin; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        f"seen={SECRET}; Max-Age=0; Path=/",
    ),
}

Send = "Callable[..., httpx.Response]"


def two_tokens(send: Any) -> list[object]:
    accounts = send("GET", "/acc").json()
    token = accounts[1]["access_token"]
    return [send("GET", f"/items?access_token={quote(token)}"), send("GET", f"/of/{token}/items")]


def a_user(send: Any) -> list[object]:
    return [send("GET", f"/users/{USER}"), send("GET", "/me", auth=(USER, "pa55w0rd-of-the-user"))]


def a_phrase(send: Any) -> list[object]:
    return [
        send("POST", "/register", json={"phrase": PHRASE}),
        send("POST", "/session", json={"password": PHRASE}),
        send("POST", f"/reset/{PHRASE}", data={"again": PHRASE}),
        send("POST", "/upload", files={"a": b"file"}, data={"note": PHRASE}),
    ]


def an_echo_in_xml(send: Any) -> list[object]:
    response = send("GET", "/xml", headers={"X-Echo": f"<password>{SECRET}</password>"})
    return [[each.tag for each in ElementTree.fromstring(response.content).iter()]]


def a_jwt(send: Any) -> list[object]:
    token = send("POST", "/login", json={"id": 1}).json()["id_token"]
    _, claims, _ = token.split(".")
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert isinstance(decoded, dict)
    return [send("GET", f"/items?t={token}", headers={"Authorization": f"Bearer {token}"})]


def every_name(send: Any) -> list[object]:
    said = []
    for at, name in enumerate((*HEADERS, *PARAMETERS, *FIELDS)):
        secret = f"{SECRET}{at}"
        headers = {name: secret} if name in HEADERS else {}
        params = {name: secret} if name in PARAMETERS else {"n": "1"}
        body = {name: secret} if name in FIELDS else {"n": 1}
        said.append(send("POST", "/names", headers=headers, params=params, json=body))
    return said


def a_logout(send: Any) -> list[object]:
    said: list[object] = []
    for path in COOKIES:
        response = send("GET", path)
        jar = response.cookies.jar
        said.append(sorted((each.name, each.path, each.expires is None) for each in jar))
        said.append(re.sub(SECRET, "…", str(response.headers.get_list("set-cookie"))))
    return said


FLOWS = (a_logout, two_tokens, a_user, a_phrase, an_echo_in_xml, a_jwt, every_name)
SECRETS = (*TOKENS, PHRASE, "pa55w0rd-of-the-user", SECRET, JWT, part_of_jwt({"sub": USER}))


@pytest.fixture
def service() -> Iterator[Bank]:
    with Bank() as started:
        yield started


def outcome(flow: Any, send: Any) -> list[object]:
    """Return what a flow gets, without the credentials that it shows."""
    shown = []
    for each in flow(send):
        if isinstance(each, httpx.Response):
            path, *_, count = each.json()["said"]
            each = each.status_code, path.replace(PHRASE, "…").replace(TOKENS[1], "…"), count
        shown.append(str(each).replace("<REDACTED>", "…"))
    return shown


def sync_sender(session: Session) -> Any:
    return lambda method, path, **options: session.client.request(
        method, f"{session.base_url}/v1{path}", **options
    )


def async_sender(session: Session) -> Any:
    def send(method: str, path: str, **options: Any) -> httpx.Response:
        async def sent() -> httpx.Response:
            url = f"{session.base_url}/v1{path}"
            return await session.async_client.request(
                method, url, headers={"Connection": "close"} | options.pop("headers", {}), **options
            )

        return asyncio.run(sent())

    return send


@pytest.mark.parametrize("sender", [sync_sender, async_sender])
@pytest.mark.parametrize("flow", FLOWS)
def test_what_a_session_records_replays_strictly_without_its_credentials(
    flow, sender, service, tmp_path
):
    """Each response comes in its turn, to code that sends what the replay gave it."""
    path = tmp_path / "tour.yaml"
    with Session(service.base_url, ApiKey("of-the-session-1"), allow_writes=True) as session:
        with session.record(path):
            recorded_outcome = outcome(flow, sender(session))
        service.close()
        with session.replay(path, repeat="strict"):
            assert outcome(flow, sender(session)) == recorded_outcome

    assert [each for each in SECRETS if each in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("is_redacted", [True, False])
@pytest.mark.parametrize("flow", FLOWS)
def test_what_vcrpy_records_replays_strictly(flow, is_redacted, service, tmp_path):
    """With our settings for vcrpy, or redacted when its file is read."""
    path = tmp_path / "theirs.yaml"
    base_url = f"{service.base_url}/v1"
    recorder = vcr.VCR(**(vcr_settings(allow_writes=True) if is_redacted else {}))
    with recorder.use_cassette(str(path)), httpx.Client(base_url=base_url) as client:
        recorded_outcome = outcome(flow, client.request)
    service.close()
    with Session(service.base_url) as session, session.replay(path, repeat="strict"):
        assert outcome(flow, sync_sender(session)) == recorded_outcome

    if is_redacted:
        recorder.record_mode = "none"
        with recorder.use_cassette(str(path)), httpx.Client(base_url=base_url) as client:
            assert outcome(flow, client.request) == recorded_outcome
    else:
        shown = repr(
            [(each, each.request.body, each.response.body) for each in read_cassette(path)]
        )
        assert [each for each in SECRETS if each in shown] == []


def test_a_replay_warns_of_requests_that_differ_only_in_what_is_replaced(tmp_path):
    """Their responses play in the order of the recording, whichever is sent first."""
    first, second = (post(json.dumps({"password": each}).encode()) for each in TOKENS)
    path = recorded(tmp_path / "tour.yaml", answered(first), answered(second))
    cassette = Cassette(path, repeat="strict")
    played = [cassette.play(second)[-1].number]
    with pytest.warns(UserWarning, match="POST /v1/letters was sent before with another value"):
        played += [cassette.play(first)[-1].number]
    again = Cassette(path, repeat="strict")
    only = Cassette(recorded(tmp_path / "one.yaml", answered(first)))

    assert played == [1, 2]
    assert [only.play(each)[-1].number for each in (first, second)] == [1, 1]
    assert [again.play(first)[-1].number for _ in TOKENS] == [1, 2]


# -- any flow --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A request with a value in a place of a name."""

    place: str
    name: str
    value: str

    def request(self, replaced: dict[str, str]) -> Request:
        """Return the request, with what the caller sends instead of some values."""
        value = replaced.get(self.value, self.value)
        pair = urlencode({self.name: value})
        match self.place:
            case "query":
                return Request("GET", f"{BASE_URL}/v1/x?n=1&{pair}", (), b"")
            case "path":
                return Request("GET", f"{BASE_URL}/v1/{quote(value, safe='')}/x", (), b"")
            case "header":
                return Request("GET", f"{BASE_URL}/v1/x", ((f"X-{self.name}", value),), b"")
            case "form":
                return post(pair.encode(), content_type="application/x-www-form-urlencoded")
            case "JSON":
                return post(json.dumps({"a": [{self.name: value}, 1.0]}).encode())
            case "multipart":
                part = (
                    f'--b\r\nContent-Disposition: form-data; name="{self.name}"\r\n\r\n{value}\r\n'
                )
                kind = "multipart/form-data; boundary=b"
                return post(f"{part}--b--\r\n".encode(), content_type=kind)
            case _:
                xml = f"<a><{self.name}>{html.escape(value)}</{self.name}></a>"
                return post(xml.encode(), content_type="text/xml")


PLACES = ("query", "path", "header", "form", "JSON", "multipart", "XML")
NAMED = ("access_token", "apiToken", "password", "client-secret", "SESSION_ID")
ORDINARY = ("phrase", "city", "page_token", "idempotency_key", "tokens")
# The first five are credentials wherever they have such a name; the others may be anywhere.
VALUES = (*TOKENS, PHRASE, SECRET, "Wy5Nf0PtA3+oVi7/KzQm==", "en", "color", "invalid_token", "7")
CREDENTIALS = VALUES[:5]
steps = st.builds(
    Step, st.sampled_from(PLACES), st.sampled_from(NAMED + ORDINARY), st.sampled_from(VALUES)
)


# The first and the third are equal, and change when the last one says what is in them.
LEARNED_LATE = [
    Step("path", "city", TOKENS[0]),
    Step("query", "password", TOKENS[1]),
    Step("path", "city", TOKENS[0]),
    Step("query", "password", TOKENS[0]),
]


@pytest.mark.filterwarnings("ignore:.*cannot tell the two apart:UserWarning")
@example(flow=LEARNED_LATE, received=set())
@given(flow=st.lists(steps, min_size=1, max_size=12), received=st.sets(st.sampled_from(VALUES[:5])))
@settings(max_examples=300, deadline=None)
def test_any_flow_replays_in_its_order_without_its_credentials(tmp_path_factory, flow, received):
    """A caller has some credentials from a response, so in a replay it sends what stands there."""
    path = tmp_path_factory.mktemp("flow") / "tour.yaml"
    named = {each.value for each in flow if each.name in NAMED and each.place != "path"}
    named &= {*CREDENTIALS}
    interactions = [answered(each.request({}), json.dumps({"n": each.value})) for each in flow]
    recorded(path, *interactions)
    cassette = Cassette(path, repeat="strict")
    stand_ins = dict.fromkeys(received & named, "<REDACTED>")
    played = [cassette.play(each.request(stand_ins))[-1].number for each in flow]

    text = path.read_text(encoding="utf-8")
    assert played == [*range(1, len(flow) + 1)]
    assert [each for each in named if each in text or quote(each, safe="") in text] == []
