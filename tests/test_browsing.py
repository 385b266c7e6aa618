"""What the browser of interactions is told: rows, details, comparisons; and the widget's part."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import answered, get
from hypothesis import given, strategies as st
from key_search import traces

import directmail_lab as dm
from directmail_lab.browsing import Recording, handle_request, open_recording, static_table
from directmail_lab.cassettes import open_cassette
from directmail_lab.cassettes.convert import har_text
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.errors import CassetteError, NotConnectedError, NotRecordedError

if TYPE_CHECKING:
    from directmail_lab.interaction import Interaction
    from directmail_lab.sessions import Session
    from directmail_lab.standin import StandIn

KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"


def told(recording: Recording, ask: str, **question: object) -> Any:
    """Return what the page is told, as JSON brings it there."""
    others = {"other": lambda: Recording("other", [answered(get("/b"))])}
    about, _ = handle_request(recording, {"action": ask, **question}, others)
    return json.loads(json.dumps(about, allow_nan=False))


def typed(kind: str, body: bytes, *more: tuple[str, str]) -> Interaction:
    """Return an answer of a media type."""
    headers = (("Content-Type", kind), *more)
    return replace(answered(), response=replace(answered().response, headers=headers, body=body))


def test_a_row_tells_what_a_list_shows() -> None:
    """When it came, what was asked below the base address, what was answered, and its mark."""
    none_left = (("X-RateLimit-Limit", "5"), ("X-RateLimit-Remaining", "0"))
    refused = answered(get("/eu/v1/a?b=1"), status=429)
    refused = replace(refused, response=replace(refused.response, headers=none_left))
    untimed = replace(answered(status=500), recorded_at=None, elapsed_s=None)
    recording = Recording("tour", [refused, untimed, answered()], "https://api.example.test/eu")
    found = told(recording, "list", offset=0, limit=2)
    noon = 1795262400123.456

    assert (found["title"], found["total"], found["offset"], found["note"]) == ("tour", 3, 0, None)
    assert found["rows"] == [
        [noon, "GET", "/v1/a?b=1", 429, 0, 42.0, 9, "exhausted"],
        [None, "GET", "/v1/users/me", 500, 299, None, 9, "failed"],
    ]
    assert told(recording, "list", offset=2, limit=9)["rows"][0][3] == 200
    assert told(recording, "list", offset=9, limit=9)["rows"] == []


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("application/json", b'{"a": 1}', "json"),
        ("text/plain", b"[1]", "json"),
        ("application/json", b'{"a": ', "text"),
        ("application/json", b"NaN", "text"),
        ("text/html", b"<b>", "text"),
        ("image/svg+xml", b"<svg/>", "text"),
        ("text/plain; charset=latin-1", b"Z\xfcrich", "text"),
        ("image/png", b"\x89PNG", "image"),
        ("application/pdf", b"%PDF-1.4", "pdf"),
        ("application/pdf", b"<script>", "text"),
        ("application/octet-stream", b"\0\1", "binary"),
        ("text/plain", b"", "none"),
    ],
)
def test_a_body_is_shown_as_what_it_is(kind: str, body: bytes, shown: str) -> None:
    """By its content type where that can only be a picture or a PDF, else by what it holds."""
    about, bodies = handle_request(
        Recording("one", [typed(kind, body)]), {"action": "detail", "index": 0}, {}
    )

    assert about["response"]["body"]["kind"] == shown
    assert about["response"]["body"]["size"] == len(body)
    assert bodies[1] == ("Zürich".encode() if b"\xfc" in body else body)


@pytest.mark.parametrize(
    ("kind", "size"), [("text/plain", 1_200_000), ("image/png", 9_000_000), ("x/y", 9_000_000)]
)
def test_of_a_large_body_a_part_is_sent(kind: str, size: int) -> None:
    """At most a megabyte of text, eight of a picture, and a few lines of hex."""
    body = (b"\xe9" if kind == "text/plain" else b"\0") * size
    about, bodies = handle_request(
        Recording("one", [typed(f"{kind}; charset=latin-1", body)]),
        {"action": "detail", "index": 0},
        {},
    )

    assert about["response"]["body"]["truncated"] is True
    assert 0 < len(bodies[1]) <= 2 * 1024**2


def test_details_tell_what_the_rate_limit_headers_say() -> None:
    """In words, with the time of the renewal where the recording tells the unit."""
    first = open_recording(Path(__file__).parents[1] / "cassettes" / "first-look.yaml")
    said = dict(told(first, "detail", index=0)["reading"])
    faulty = typed("x/y", b"", ("X-RateLimit-Limit", "many"))

    assert said == {
        "Limit": "300",
        "Remaining": "299",
        "Reset": "60",
        "Renews at": "2026-11-21 04:01:00 UTC",
    }
    problem = dict(told(Recording("one", [faulty]), "detail", index=0)["reading"])["Problem"]
    assert problem.startswith("X-RateLimit-Limit is not an integer")


def test_two_are_compared_by_the_rules_of_drift() -> None:
    """What remains, and what is the time of its answer, is no difference."""
    before = answered(get(), '{"id": 1, "at": "2026-11-21T12:00:01Z", "long": "%s"}' % ("x" * 999))
    after = replace(answered(get(), '{"id": "1"}', status=200), elapsed_s=9.0)
    found = told(Recording("two", [before, after]), "compare", first=0, second=1)["differences"]

    assert ["body", "id", "retyped", "1", '"1"'] in found
    assert ["body", "at", "removed", '"2026-11-21T12:00:01Z"', None] in found
    assert max(len(value or "") for each in found for value in each) <= 501


def test_two_recordings_are_compared_request_by_request() -> None:
    """The first of each target with the first, the second with the second; and what has none."""
    here = [answered(get("/b"), '{"id": 2}'), answered(get("/b")), answered(get("/a"))]
    found = told(Recording("here", here), "compare_recordings", name="other")

    assert found["pairs"] == 1
    assert found["differences"] == [[0, 0, "GET /b", "body", "id", "changed", "2", "1"]]
    assert (found["only_first"], found["only_second"]) == ([1, 2], [])
    assert told(Recording("here", here), "recordings") == {"names": ["other"]}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["action", "index", "offset", "limit", "first", "second", "format", "name"]
                ),
                inner,
            )
        ),
    ),
    st.sampled_from(["list", "detail", "copy", "compare", "compare_recordings", "recordings", "x"]),
)
def test_whatever_is_asked_is_answered(question: Any, ask: str) -> None:
    """With a sentence where it makes no sense; nothing is raised."""
    if isinstance(question, dict):
        question = {"action": ask, **question}
    about, _ = handle_request(Recording("one", [answered()]), question, {})

    json.dumps(about)
    assert about


def test_an_interaction_that_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    """The others stay readable."""
    path = tmp_path / "torn.yaml"
    with open_cassette(path, record_mode="all") as cassette:
        cassette.record(answered(get("/a")))
        cassette.record(answered(get("/b")))
    path.write_text(path.read_text().replace('"code": 200', '"code": "x"', 1))
    recording = open_recording(path)
    first, second = told(recording, "list", offset=0, limit=2)["rows"]

    assert first[-1] == "unreadable"
    assert "Interaction 1 of cassette 'torn' cannot be read" in first[2]
    assert second[2] == "/b"
    assert "cannot be read" in told(recording, "detail", index=0)["problem"]
    assert "changed after its recording" in told(recording, "list", offset=0, limit=1)["note"]


@pytest.mark.parametrize("suffix", ["yaml", "har"])
def test_another_programs_recording_is_shown_without_its_credentials(
    tmp_path: Path, suffix: str
) -> None:
    """In rows, details, copies and comparisons: neither its header's nor where it is repeated."""
    basic = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    asked = replace(get(f"/v1/x?again={KEY}"), headers=(("Authorization", basic),))
    theirs = [answered(asked), answered(get("/b"), f'{{"key": "{KEY}"}}')]
    path = tmp_path / f"theirs.{suffix}"
    path.write_text(block_text(theirs, metadata={}) if suffix == "yaml" else har_text(theirs))
    recording = open_recording(path)
    asks: list[dict[str, Any]] = [
        {"action": "list", "offset": 0, "limit": 9},
        *({"action": "detail", "index": index} for index in (0, 1)),
        *({"action": "copy", "index": 0, "format": kind} for kind in ("curl", "httpx", "request")),
        {"action": "compare", "first": 0, "second": 1},
    ]
    said = repr([handle_request(recording, ask, {}) for ask in asks])

    assert "/v1/x?again=<API_KEY>" in said
    assert traces(said.encode(), KEY) == []


def test_the_table_in_a_notebook_is_small_and_no_markup() -> None:
    """Ten rows whatever there are, which GitHub shows; every value is escaped."""
    hostile = answered(get("/<script>x</script>"))
    shown, _ = static_table(Recording("<b>many</b>", [hostile] * 50_000))

    assert shown.count("<tr>") == 11
    assert len(shown) < 10_000
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert html.escape("/<script>x</script>") in shown
    assert "50,000 interactions: the first 10." in shown
    assert "0 interactions." in static_table(Recording("none", []))[0]


# -- the widget --------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Every message that a browser sends to its page, with its buffers."""
    messages: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        "directmail_lab.widgets.browser.BrowserWidget.send",
        lambda _self, content, buffers=None: messages.append((content, buffers)),
    )
    return messages


def asked(widget: Any, sent: list[tuple[Any, Any]], **question: object) -> tuple[Any, Any]:
    """Ask as the page does, and return the answer and its buffers."""
    widget._handle_custom_msg(
        {"type": "request"}, [memoryview(json.dumps({**question, "id": "7"}).encode())]
    )
    message, buffers = sent[-1]
    assert message["id"] == "7"
    return message["response"], buffers


def test_a_cassette_is_browsed_by_name_or_path(sent: list[tuple[Any, Any]]) -> None:
    """One that is not there, or is none, is an error at once."""
    widget = dm.browse("first-look")
    rows, _ = asked(widget, sent, action="list", offset=100, limit=50)
    _, buffers = asked(widget, sent, action="detail", index=0)
    names, _ = asked(widget, sent, action="recordings")

    assert len(rows["rows"]) == 2
    assert b"usr_stand_in_1" in buffers[1]
    assert "waiting" in names["names"]
    assert "first-look, 102 interactions: the first 10." in repr(widget)
    with pytest.raises(NotRecordedError):
        dm.browse("nowhere")
    Path("text.har").write_text("{}")
    with pytest.raises(CassetteError, match="not HAR"):
        dm.browse("text.har")
    with pytest.raises(NotConnectedError, match=r"login\(\)"):
        dm.browse()


def test_a_session_is_browsed_as_it_goes_on(sent: list[tuple[Any, Any]], service: StandIn) -> None:
    """Headers of all it sends, bodies of what it records or replays, and nowhere the key."""
    dm.connect(service.base_url, service.api_key, pace="off")
    dm.get("/v1/lists", params={"k": service.api_key}, headers={"X-Again": service.api_key})
    widget = dm.browse()
    with dm.record("my-tour"):
        dm.me()
    widget.update_page()
    listed, _ = asked(widget, sent, action="list", offset=0, limit=9)
    live, live_bodies = asked(widget, sent, action="detail", index=0)
    recorded, bodies = asked(widget, sent, action="detail", index=1)
    widget.close()

    assert [row[2] for row in listed["rows"]] == ["/v1/lists?k=<API_KEY>", "/v1/users/me"]
    assert ("x-again", "<API_KEY>") in live["request"]["headers"]
    assert (live["response"]["body"]["kind"], live_bodies) == ("absent", [b"", b""])
    assert recorded["response"]["body"]["kind"] == "json"
    assert b"usr_stand_in_1" in bodies[1]
    assert traces(repr(sent).encode(), service.api_key) == []
    assert sent[0][0]["part"]["total"] == 2


def test_the_browser_of_a_session_follows_the_current_one(
    sent: list[tuple[Any, Any]], live: Session
) -> None:
    """As the module's calls do; that of a cassette stays with it."""
    dm.replay("first-look")
    widget, of_cassette = dm.browse(), dm.browse("waiting")
    dm.me()
    dm.logout()
    dm.replay("rate-limits")
    now, _ = asked(widget, sent, action="list", offset=0, limit=9)
    still, _ = asked(of_cassette, sent, action="list", offset=0, limit=9)
    widget.close()

    assert ({"type": "changed", "restart": True}, None) in sent
    assert (now["title"], now["total"]) == ("Replaying rate-limits", 0)
    assert still["title"] == "waiting"


def test_what_a_session_keeps_is_bounded(live: Session) -> None:
    """Of more than a thousand, and of a large body, the row stays and says so."""
    with live.record("my-tour", record_mode="all"):
        live.request("GET", "/v1/users/me")
    first = live.readings.since(0)[0]
    large = live.client.build_request("GET", "/x")
    answer_ = live.client.get("/v1/lists")
    reading = live.readings.since(1)[0]
    live.exchanges.add(reading, large, answer_, b"x" * 2_000_000)
    for _ in range(1_000):
        live.exchanges.add(reading._replace(), large, answer_, None)

    assert live.exchanges.interaction(first) is None
    assert not live.exchanges.has_bodies(reading)
