"""The widget of `browse`: what it shows, and what it sends from its form."""

import gzip
import json
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cassette_samples import BASE_URL, NOON, answered, get, recorded
from faulty_service import FaultyService
from key_search import traces

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.errors import CassetteError, NotConnectedError, NotRecordedError
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.notebook.browser import BrowserWidget
from directmail_lab.notebook.browser_data import Row
from directmail_lab.sessions.session import Session

ME = "/v1/users/me"


class Page:
    """Stands in for the page in the browser: it sends messages and waits for the responses."""

    def __init__(self, widget: BrowserWidget) -> None:
        self.widget = widget
        self.messages: list[Any] = []
        self._responses: list[Future[Any]] = []

    def receive(self, content: Any, buffers: object = None) -> None:
        self.messages.append((content, buffers))
        if content["type"] == "response":
            self._responses[content["request_id"]].set_result(content["response"])

    def start(self, action: str, body: bytes = b"", **details: object) -> Future[Any]:
        """Send a message to the widget, and return the future of its response."""
        request = {"action": action, "request_id": len(self._responses), **details}
        self._responses.append(response := Future())
        self.widget._handle_custom_msg({"type": "request"}, [json.dumps(request).encode(), body])
        return response

    def ask(self, action: str, body: bytes = b"", **details: object) -> Any:
        return self.start(action, body, **details).result(60)

    def list(self) -> Any:
        return self.ask("list", first=1, limit=9)

    def rows(self) -> Sequence[Row]:
        return [Row(*values) for values in self.list()["rows"]]

    def send(self, method: str = "GET", address: str = ME, body: bytes = b"", **more: Any) -> Any:
        return self.ask("send", body, request=written(method, address, **more))


def written(method: str = "GET", address: str = ME, **more: Any) -> dict[str, Any]:
    """Return the message that the form's *Send* button sends."""
    return {"method": method, "address": address, "headers": [], **more}


@pytest.fixture
def browsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Page]]:
    """Browse a source, and return its page."""
    pages: list[Page] = []

    def opened(source: Any = None) -> Page:
        pages.append(Page(dm.browse(source)))
        monkeypatch.setattr(pages[-1].widget, "send", pages[-1].receive)
        return pages[-1]

    yield opened
    for each in pages:
        each.widget.close()


@pytest.fixture
def session(service: FaultyService) -> Session:
    """The current session, which never waits, and may write."""
    return dm.connect(service.base_url, service.api_key, pace="off", allow_writes=True)


@pytest.fixture
def page(session: Session, browsed: Callable[..., Page]) -> Page:
    del session
    return browsed()


def test_a_cassette_is_browsed_by_name_or_path(browsed):
    recorded("tape.yaml", answered())
    Path("text.har").write_text("{}")

    assert {row.path for row in browsed("first-look").rows()} == {ME}
    assert "tape, 1 interaction, " in repr(dm.browse("tape.yaml"))
    many = ValueError, "shows one cassette"
    for source, (error, says) in {
        "nowhere": (NotRecordedError, "nowhere"),
        "text.har": (CassetteError, "text.har"),
        ".": many,
        ("first-look", "waiting"): many,
    }.items():
        with pytest.raises(error, match=says):
            dm.browse(source)
    with pytest.raises(NotConnectedError, match=r"dm\.login\(\)"):
        dm.browse()


def test_a_browser_follows_the_current_session_and_its_mode(browsed, connected, service):
    """The browser of a file or of a given session does not change."""
    dm.me()
    page, of_cassette, of_session = browsed(), browsed("waiting"), browsed(connected)
    with dm.record("my-tour"):
        recording = page.list()
    dm.replay("first-look")
    page.widget.update_page()
    nothing = page.list()
    dm.me()
    played = page.list()
    connected.live()
    dm.connect(service.base_url, service.api_key)
    for each in (page, of_session):
        each.widget.update_page()
    unchanged, current, given = of_cassette.list(), page.list(), of_session.list()
    host = service.base_url.partition("://")[2]

    title = f"Recording to my-tour at {host} as Stand-in User"
    assert (recording["title"], recording["total"]) == (title, 1)
    assert given["title"] == f"Live at {host} as Stand-in User"
    assert (nothing["title"], nothing["total"]) == (
        "Replaying first-look, recorded on 21 November 2026",
        0,
    )
    assert nothing["note"].startswith("Nothing of first-look was played yet.")
    assert (played["note"], played["total"]) == ("", 1)
    assert (current["title"], current["total"]) == (f"Live at {host}", 0)
    assert "recorded on" not in repr(of_session.widget) + repr(connected)
    # The widget's own thread may send this message as well.
    assert page.messages.count(({"type": "changed", "restart": True}, None)) >= 2
    assert (unchanged["title"], unchanged["note"]) == ("waiting", None)


# -- sending -----------------------------------------------------------------------------------


def test_a_composed_request_is_sent_through_the_session(service, session, page):
    session.allow_writes = False
    dm.record("my-tour")
    first = page.send(address="/v1/lists?a=1+2&b=%20&b", headers=[["X-A", service.api_key]])
    second = page.send("POST", "/v1/letters", b'{"a": 1}')
    kept = page.ask("detail", number=first["number"])
    session.live()
    (interaction,) = read_cassette(Path("cassettes/my-tour.yaml"))

    assert first == {"number": 1}
    assert second["problem"].startswith("POST would change something")
    assert "dm.session().allow_writes = True" in second["problem"]
    assert interaction.request.uri == f"{service.base_url}/v1/lists?a=1+2&b=%20&b"
    assert ("X-A", "<API_KEY>") in kept["request"]["headers"]
    assert service.requests == {"GET /v1/lists": 1}
    assert traces(repr(page.messages).encode(), service.api_key) == []


@pytest.mark.parametrize(
    "address", [ME, ME[1:], "{base}/v1/users/me", "{base}/v1/users/me#part", f"  {ME} "]
)
def test_the_form_accepts_the_same_addresses_as_get(service, browsed, connected, address):
    """The first slash may be missing, and a whole address may be pasted."""
    sent = browsed(connected).send(address=address.replace("{base}", service.base_url))

    assert sent == {"number": 1}
    assert service.requests == {f"GET {ME}": 1}


LATIN = {"headers": [["content-type", "text/plain; charset=latin-1"]]}
BASE64 = {"headers": [["content-type", "text/plain; charset=base64"]]}
OF_THE_SESSION = (" AUTHORIZATION ", "Proxy-Authorization", "cookie", "Host", "Content-Length")
ELSEWHERE = (
    *("https://elsewhere.test/v1", "//elsewhere.test/v1", " //elsewhere.test"),
    "https://127.0.0.1@elsewhere.test/v1",
)
REFUSED = [
    *(("://elsewhere.test.", {"address": address}) for address in ELSEWHERE),
    *(
        ("would be sent as another path", {"address": address})
        for address in ("/v1/../../admin", "/v1/%2e%2E/admin", "/v1/..%2f..", "\\\\elsewhere.test")
    ),
    ("only, and not to http://127.0.0.1:9.", {"address": "http://127.0.0.1:9/v1"}),
    ("not to https://127.0.0.1", {"address": "https://127.0.0.1/v1"}),
    ("only, and not to javascript:", {"address": "javascript:alert(1)"}),
    ("only, and not to file:", {"address": "file:///etc/passwd"}),
    ("Type http://api.test/v1, or /api.test/v1 for a path.", {"address": "api.test/v1"}),
    ("localhost:80/v1 has no scheme.", {"address": "localhost:80/v1"}),
    ("Type a path", {"address": " "}),
    *(("The session sets", {"headers": [[name, "5"]]}) for name in OF_THE_SESSION),
    ("a character that cannot be sent", {"headers": [["X-Ü", "1"]]}),
    ("The header x-a contains a placeholder", {"headers": [["X-A", "<API_KEY>"]]}),
    ("The address contains a placeholder", {"address": "/v1/lists?key=<REDACTED>"}),
    ("The body contains a placeholder", {"method": "POST", "body": b'{"pin": "<REDACTED>"}'}),
    ("This is not a valid address", {"address": "/v1/" + "x" * 70_000}),
    ("This is not a valid address", {"address": "https://elsewhere.test:x/"}),
    ("cannot be encoded in latin-1", {"body": "€".encode(), "is_text": True, **LATIN}),
    ("cannot be encoded in base64", {"body": b"a", "is_text": True, **BASE64}),
    ("no longer available", {"body_of": 1, "digest": "0" * 16}),
]


@pytest.mark.parametrize(("problem", "more"), REFUSED)
def test_an_invalid_or_unsafe_request_is_refused(browsed, connected, service, problem, more):
    assert problem in browsed(connected).send(**more)["problem"]
    assert not service.requests


def test_an_allowed_write_is_confirmed_and_sent_once(service, page):
    """A method or a header makes a request a write. Each token confirms one write once."""
    letter = {"method": "POST", "address": "/v1/letters"}
    asked_before = page.send(**letter)
    asked = page.send(**letter, body=b'{"a": 1}')
    overriding = page.send(headers=[["X-HTTP-Method-Override", "DELETE"]])
    again = page.send(**letter)
    nothing_yet = dict(service.requests)
    tokens = [again["token"], again["token"], asked["token"], asked_before["token"], "", "x"]
    sent = [page.ask("confirm", token=token) for token in tokens]

    assert nothing_yet == {}
    host = service.base_url.partition("://")[2]
    assert asked["question"].startswith(f"Send POST to {host}/v1/letters with 8 bytes? ")
    assert overriding["question"].startswith("Send GET to")
    assert sent[0] == {"number": 1}
    assert {each["problem"] for each in sent[1:]} == {
        "Nothing was sent: one request is sent at a time, and only once."
    }
    assert service.requests == {"POST /v1/letters": 1}


def test_a_write_that_an_earlier_run_sent_is_sent_again_only_if_confirmed(
    service, session, page, monkeypatch
):
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    with session.record("tour"):
        session.post("/v1/letters")
    at = read_cassette(Path("cassettes/tour.yaml")).interaction(1).recorded_at
    session.record("tour")
    asked = page.send("POST", "/v1/letters")
    sent = page.ask("confirm", token=asked["token"])

    when = f"on {at.day} {at:%B %Y} at {at:%H:%M} UTC (201)"
    assert f"It was sent before, {when}. It may" in asked["question"]
    assert sent == {"number": 2}
    assert service.requests == {"POST /v1/letters": 2}


def test_a_replayed_write_is_not_asked_about_and_is_marked(service, session, page):
    """A second one would be sent, so there is a question; so would one without a response."""
    lost = Response(0, cut="read_timeout", error="timed out")
    with session.record("tour"):
        dm.post("/v1/letters")
        dm.me()
    path = Path("cassettes/tour.yaml")
    with Cassette(path, record_mode="new_episodes", base_url=service.base_url) as cassette:
        put = replace(get("/v1/letters", base=service.base_url), method="PUT")
        cassette.record(Interaction(put, lost, NOON))
    with session.record("tour", record_mode="new_episodes"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the replayed write
        replayed = page.send("POST", "/v1/letters")
        page.send("GET", "/v1/lists")
        again, unanswered = page.send("POST", "/v1/letters"), page.send("PUT", "/v1/letters")
        rows, detail = page.rows(), page.ask("detail", number=replayed["number"])
    written = read_cassette(path).interaction(1).recorded_at

    assert "token" in again.keys() & unanswered.keys()
    assert service.requests == {"POST /v1/letters": 1, f"GET {ME}": 1, "GET /v1/lists": 1}
    assert [row.replayed for row in rows] == [False, False, True, False]
    when = f"{written.day} {written:%B %Y}"
    assert detail["note"] == f"Not sent: replayed from 'tour', recorded on {when}."


@pytest.mark.parametrize(
    ("meanwhile", "problem"),
    [("a write", "this write was sent"), ("a session", "another session was opened")],
)
def test_only_what_the_question_said_is_confirmed(service, page, monkeypatch, meanwhile, problem):
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    asked = page.send("POST", "/v1/letters")
    if meanwhile == "a write":
        dm.post("/v1/letters")
    else:
        dm.connect(service.base_url, service.api_key, pace="off", allow_writes=True)
    sent = page.ask("confirm", token=asked["token"])

    assert "sent before" not in asked["question"]
    assert sent["problem"].startswith(f"Nothing was sent: after the question, {problem}")
    assert service.requests.total() == (meanwhile == "a write")


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"[", b"[]", b"{}", b'{"request_id": 0}', b"[" * 100_000, b"\xff"),
        b'{"request_id": 0, "action": "select"}',
        b'{"request_id": 0, "action": "send", "request": []}',
        b'{"request_id": 0, "action": "send", "request": {"address": 1}}',
    ],
)
def test_a_malformed_message_gets_a_sentence_and_nothing_is_logged(
    browsed, connected, caplog, message
):
    """A message without an id gets no response."""
    page = browsed(connected)
    page._responses.append(Future())
    page.widget._handle_custom_msg({"type": "request"}, [message, b"\xff"])
    responses = [content["response"] for content, _ in page.messages]

    assert caplog.records == []
    assert len(responses) == message.startswith(b'{"request_id"')
    assert all("problem" in each for each in responses)


def test_one_request_is_sent_at_a_time(service, page):
    """A second *Send* before the response sends nothing."""
    goes_on = threading.Event()
    with service.fault(until=goes_on):
        first = page.start("send", request=written())
        second = page.send()
        goes_on.set()

    assert "one request is sent at a time" in second["problem"]
    assert first.result(60) == {"number": 1}
    assert page.send() == {"number": 2}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slow_request_is_aborted(service, page, method):
    """For a write, the message says that it may have taken effect."""
    with service.fault(latency_s=600.0):
        sending = page.start("send", request=written(method))
        if method == "POST":
            sending = page.start("confirm", token=sending.result(60)["token"])
        while not service.requests:
            assert not sending.done()
        page.ask("abort")
        aborted = sending.result(60)

    assert aborted["problem"].startswith("Aborted: the connection was closed.")
    [row], detail = page.rows(), page.ask("detail", number=1)
    assert ("may have been carried out" in aborted["problem"]) is (method == "POST")
    assert aborted["number"] == 1
    assert (row.status, row.mark) == (None, "aborted")
    assert detail["reason"] == "aborted before the end of the response"
    assert dm.rate_limits()["problem"].tolist() == ["aborted before the end of the response"]
    assert page.send(address="/v1/lists")["number"] == 2
    assert dm.check_contract()["violations"].sum() == 0
    assert list(dm.openapi()["paths"]) == ["/v1/lists"]


def test_a_response_to_a_session_that_was_replaced_is_not_opened(service, page):
    """The list shows the new session, in which the number belongs to another request."""
    goes_on = threading.Event()
    with service.fault(until=goes_on):
        sending = page.start("send", request=written())
        while not service.requests:
            assert not sending.done()
    dm.connect(service.base_url, service.api_key, pace="off")
    dm.get("/v1/lists")
    goes_on.set()

    assert sending.result(60) == {"number": None}


def test_a_response_is_aborted_after_its_head(service, session, page):
    with service.fault(body=b"a" * 70_000, cut_after=10, stall=True):
        sending = page.start("send", request=written())
        while not len(session.recording):
            assert not sending.done()
        page.ask("abort")

    assert sending.result(60)["number"] == 1
    assert [(row.status, row.mark) for row in page.rows()] == [(200, "aborted")]


BODIES = (b"\xff\0" * 700_000, b"a\r\nb\n", "Zürich".encode("latin-1"))


@pytest.mark.parametrize("body", BODIES, ids=["binary", "mixed", "latin-1"])
def test_a_recorded_body_that_is_not_changed_is_sent_byte_by_byte(service, browsed, unpaced, body):
    """The page may show only a part of the body. Another recording's body is not sent."""
    content_type = {"Content-Type": "text/plain; charset=latin-1"}
    unpaced.client.request("OPTIONS", "/v1/lists", content=body, headers=content_type)
    page = browsed(unpaced)
    shown = page.ask("detail", number=1)["request"]["body"]
    page.send("OPTIONS", "/v1/lists", body_of=1, digest=shown["digest"])
    sent = unpaced.recording.interaction(2).request.body

    assert sent == body


def test_text_is_sent_in_the_character_set_of_its_header(browsed, unpaced):
    """Without a charset in the header, text is sent as UTF-8."""
    page = browsed(unpaced)
    page.send("OPTIONS", "/a", "Zürich".encode(), is_text=True, **LATIN)
    page.send("OPTIONS", "/a", "Zürich".encode(), is_text=True)
    bodies = [each.request.body for each in unpaced.recording]

    assert bodies == [b"Z\xfcrich", "Zürich".encode()]


def test_a_composed_request_becomes_a_notebook_cell(service, browsed, connected):
    """The code has the body as Python values and a relative path, and no key."""
    page = browsed(connected)
    json_type = {"headers": [["Content-Type", "application/json"], ["X-A", service.api_key]]}
    form = written("POST", f"{service.base_url}/v1/letters", is_text=True, **json_type)
    cell = page.ask("cell", b'{"test": true, "to": null}', request=form)["text"]

    assert "dm.post('/v1/letters', json={'test': True, 'to': None}, " in cell
    assert service.api_key not in cell
    assert not service.requests


def test_a_request_in_a_replay_gets_its_response_from_the_cassette(browsed):
    recorded("tour.yaml", answered(get("/v1/lists?page=2")))
    dm.replay(Path("tour.yaml"))
    page = browsed()
    played = page.send(address="/v1/lists?page=2")
    missing = page.send(address="/v1/lists?page=3")

    assert played == {"number": 1}
    assert "is not in cassette 'tour'" in missing["problem"]
    assert "page" in missing["problem"].partition("Nearest: ")[2]


def test_only_a_sessions_page_sends_and_only_when_asked(browsed, connected, service):
    of_cassette, of_session = browsed("first-look"), browsed(connected)
    problem = of_cassette.send()["problem"]
    missing = of_session.ask("select", number=1)["problem"]
    for action in ("list", "left", "waiting", "abort", "select", "nothing", "confirm", "allow"):
        of_session.ask(action, number=1, method="GET", path=ME, token="t", first=1, limit=9)

    assert problem.endswith("Reload the page.")
    assert missing.startswith("There is no interaction 1")
    assert of_cassette.list().get("sends") is None
    assert of_session.list()["sends"] is True
    assert not service.requests


# -- from the page to Python -------------------------------------------------------------------


def test_the_selected_response_is_there_in_python(browsed):
    """`response` is a decoded httpx response, and gives the same frame as a live one."""
    rows = gzip.compress(b'[{"id": "01"}]')
    packed = answered(get("/v1/lists?page=2"), rows)
    headers = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
    packed = replace(packed, response=replace(packed.response, headers=headers))
    recorded("tape.yaml", answered(), packed)
    page = browsed("tape.yaml")
    with pytest.raises(CassetteError, match="No interaction is selected"):
        _ = page.widget.response
    page.ask("select", number=2)
    response = page.widget.response
    frame = dm.frame(response)

    assert page.widget.selected == 2
    assert (response.status_code, response.json()) == (200, [{"id": "01"}])
    assert str(response.request.url) == f"{BASE_URL}/v1/lists?page=2"
    assert frame["id"].tolist() == ["01"]
    assert (frame.attrs["path"], frame.attrs["source"]) == ("/v1/lists", "recorded")


def test_accessing_a_response_without_a_stored_body_is_an_error(browsed, unpaced):
    """`response` raises an error instead, and a change of mode resets the selection."""
    with unpaced.client.stream("GET", ME):
        pass
    page = browsed(unpaced)
    page.ask("select", number=1)
    with pytest.raises(CassetteError, match="The body of interaction 1 was not kept"):
        _ = page.widget.response
    kind = page.ask("detail", number=1)["response"]["body"]["kind"]
    with unpaced.replay("first-look"):
        page.widget.update_page()

        assert kind == "absent"
        assert page.widget.selected is None


def test_a_table_has_the_first_rows_of_the_frame(browsed):
    same = {f"s{n}": 1 for n in range(60)}
    people = [
        {"name": f"<b>{n}", "tags": [n, "ü"], **same, "at": {"city": "x" * 500}} for n in range(130)
    ]
    people[1]["name"] = None
    odd = answered(replace(get("/\x7f\n"), headers=(("X-Ü", "é"),)))
    bodies = [json.dumps(people), '{"error": "no"}', "<p>"]
    responses = [answered(get(), body, status=404 if "error" in body else 200) for body in bodies]
    recorded("tape.yaml", *responses, odd)
    page = browsed("tape.yaml")
    table = page.ask("table", number=1)

    assert table["columns"][:3] == ["name", "tags", "s0"]
    assert table["shape"] == (len(people), len(same) + len(["name", "at.city", "tags"]))
    assert (len(table["columns"]), len(table["rows"])) == (50, 100)
    assert table["rows"][0][:3] == ["<b>0", '[0, "ü"]', "1"]
    assert table["rows"][1][0] == ""
    assert page.ask("table", number=2)["rows"] == [["no"]]
    assert "is not JSON" in page.ask("table", number=3)["problem"]
    assert page.ask("table", number=4)["problem"] == "This interaction cannot be shown."
