"""What the browser of interactions is sent: rows, details, comparisons; and the widget's part."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import answered, get, recorded, typed
from hypothesis import given, strategies as st
from key_search import traces

import directmail_lab as dm
from directmail_lab.cassettes.har import har_text
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.errors import CassetteError, NotConnectedError, NotRecordedError
from directmail_lab.widgets.page import Recording, handle_request, open_recording, static_table

if TYPE_CHECKING:
    from directmail_lab.sessions import Session
    from directmail_lab.standin import StandIn

KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
LIST = {"action": "list", "offset": 0, "limit": 9}
DETAIL = {"action": "detail", "index": 0}


def ask(recording: Recording, action: str, **request: object) -> Any:
    """Return what the page gets, as JSON brings it there."""
    others = {"other": lambda: Recording("other", [answered(get("/b"))])}
    response, _ = handle_request(recording, {"action": action, **request}, others)
    return json.loads(json.dumps(response, allow_nan=False))


def test_a_row_has_what_a_list_shows() -> None:
    """When it came, what was requested below the base address, the response, and its mark."""
    none_left = (("X-RateLimit-Limit", "5"), ("X-RateLimit-Remaining", "0"))
    refused = answered(get("/eu/v1/a?b=1"), status=429)
    refused = replace(refused, response=replace(refused.response, headers=none_left))
    untimed = replace(answered(status=500), recorded_at=None, elapsed_s=None)
    recording = Recording("tour", [refused, untimed, answered()], "https://api.example.test/eu")
    part = ask(recording, "list", offset=0, limit=2)
    noon = 1795262400123.456

    assert (part["title"], part["total"], part["offset"], part["note"]) == ("tour", 3, 0, None)
    assert part["rows"] == [
        [noon, "GET", "/v1/a?b=1", 429, 0, 42.0, 9, "exhausted"],
        [None, "GET", "/v1/users/me", 500, 299, None, 9, "failed"],
    ]
    assert ask(recording, "list", offset=2, limit=9)["rows"][0][3] == 200
    assert ask(recording, "list", offset=9, limit=9)["rows"] == []


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
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
        ("text/plain; charset=latin-1", b"\xe9" * 1_200_000, "text"),
        ("image/png", b"\0" * 9_000_000, "binary"),
    ],
)
def test_a_body_is_shown_as_what_it_is(content_type: str, body: bytes, kind: str) -> None:
    """By its content type only if that can be a picture or a PDF; of a large one a part is sent."""
    response, bodies = handle_request(Recording("one", [typed(content_type, body)]), DETAIL, {})
    about = response["response"]["body"]
    is_large = len(body) > 1_000_000

    assert (about["kind"], about["size"], about["truncated"]) == (kind, len(body), is_large)
    if is_large:
        assert 0 < len(bodies[1]) <= 2 * 1024**2
    else:
        assert bodies[1] == ("Zürich".encode() if b"\xfc" in body else body)


def test_details_have_what_the_rate_limit_headers_say() -> None:
    """In words, with the time of the renewal where the recording shows the unit."""
    tour = open_recording(Path(__file__).parents[1] / "cassettes" / "first-look.yaml")
    faulty = typed("x/y", b"", ("X-RateLimit-Limit", "many"))
    reading = dict(ask(Recording("one", [faulty]), "detail", index=0)["reading"])

    assert dict(ask(tour, "detail", index=0)["reading"]) == {
        "Limit": "300",
        "Remaining": "299",
        "Reset": "60",
        "Renews at": "2026-11-21 04:01:00 UTC",
    }
    assert reading["Problem"].startswith("X-RateLimit-Limit is not an integer")


def test_two_are_compared_by_the_rules_of_drift() -> None:
    """What remains, and what is the time of its response, is no difference."""
    before = answered(get(), '{"id": 1, "at": "2026-11-21T12:00:01Z", "long": "%s"}' % ("x" * 999))
    after = replace(answered(get(), '{"id": "1"}', status=200), elapsed_s=9.0)
    recording = Recording("two", [before, after])
    differences = ask(recording, "compare", first=0, second=1)["differences"]

    assert ["body", "id", "retyped", "1", '"1"'] in differences
    assert ["body", "at", "removed", '"2026-11-21T12:00:01Z"', None] in differences
    assert max(len(value or "") for row in differences for value in row) <= 501


def test_two_recordings_are_compared_request_by_request() -> None:
    """The first of each target with the first, the second with the second; and what has none."""
    here = [answered(get("/b"), '{"id": 2}'), answered(get("/b")), answered(get("/a"))]
    result = ask(Recording("here", here), "compare_recordings", name="other")

    assert result.pop("differences") == [[0, 0, "GET /b", "body", "id", "changed", "2", "1"]]
    assert result.pop("only_first") == [1, 2]
    assert result.pop("pairs") == 1
    assert not any(result.values())
    assert ask(Recording("here", here), "recordings") == {"names": ["other"]}


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
def test_every_request_gets_a_response(request_: Any, action: str) -> None:
    """A sentence where it makes no sense; nothing is raised."""
    if isinstance(request_, dict):
        request_ = {"action": action, **request_}
    response, _ = handle_request(Recording("one", [answered()]), request_, {})

    json.dumps(response)
    assert response


def test_an_interaction_that_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    """The others stay readable, and can be compared."""
    path = recorded(tmp_path / "torn.yaml", answered(get("/a")), answered(get("/b"), '{"id": 2}'))
    path.write_text(path.read_text().replace('"code": 200', '"code": "x"', 1))
    recording = open_recording(path)
    first, second = ask(recording, "list", offset=0, limit=2)["rows"]
    compared = ask(recording, "compare_recordings", name="other")

    assert first[-1] == "unreadable"
    assert "Interaction 1 of cassette 'torn' cannot be read" in first[2]
    assert second[2] == "/b"
    assert "cannot be read" in ask(recording, "detail", index=0)["problem"]
    assert "changed after its recording" in ask(recording, "list", offset=0, limit=1)["note"]
    assert compared["differences"] == [[1, 0, "GET /b", "body", "id", "changed", "2", "1"]]
    assert (compared["unreadable_first"], compared["unreadable_second"]) == ([0], [])


@pytest.mark.parametrize("suffix", ["yaml", "har"])
def test_another_programs_recording_is_shown_without_its_credentials(
    tmp_path: Path, suffix: str
) -> None:
    """In rows, details, copies and comparisons: neither its header's nor where it is repeated."""
    basic = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    request = replace(get(f"/v1/x?again={KEY}"), headers=(("Authorization", basic),))
    foreign = [answered(request), answered(get("/b"), f'{{"key": "{KEY}"}}')]
    path = tmp_path / f"foreign.{suffix}"
    path.write_text(block_text(foreign, metadata={}) if suffix == "yaml" else har_text(foreign))
    recording = open_recording(path)
    requests: list[dict[str, Any]] = [
        *(LIST, DETAIL, DETAIL | {"index": 1}),
        *({"action": "copy", "index": 0, "format": kind} for kind in ("curl", "httpx", "request")),
        {"action": "compare", "first": 0, "second": 1},
    ]
    sent = repr([handle_request(recording, request, {}) for request in requests])

    assert "/v1/x?again=<API_KEY>" in sent
    assert traces(sent.encode(), KEY) == []


def test_the_table_in_a_notebook_is_small_and_no_markup() -> None:
    """Ten rows whatever there are, which GitHub shows; every value is escaped."""
    hostile = answered(get("/<script>\x1b[2J</script>"))
    shown, text = static_table(Recording("<b>many</b>", [hostile] * 50_000))

    assert shown.count("<tr>") == 11
    assert len(shown) < 10_000
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert html.escape("/<script> [2J</script>") in shown
    assert "50,000 interactions: the first 10." in shown
    assert "\x1b" not in text
    assert "0 interactions." in static_table(Recording("none", []))[0]


# -- the widget --------------------------------------------------------------------------------

Sent = list[tuple[Any, Any]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Every message that a browser sends to its page, with its buffers."""
    messages: Sent = []
    monkeypatch.setattr(
        "directmail_lab.widgets.browser.BrowserWidget.send",
        lambda _self, content, buffers=None: messages.append((content, buffers)),
    )
    return messages


def send(widget: Any, sent: Sent, request: dict[str, Any]) -> tuple[Any, Any]:
    """Send a request as the page does, and return the response and its buffers."""
    buffers = [memoryview(json.dumps({**request, "request_id": "7"}).encode())]
    widget._handle_custom_msg({"type": "request"}, buffers)
    # New rows may be sent at any time, in another thread.
    message, buffers = next(each for each in reversed(sent) if each[0].get("request_id") == "7")
    return message["response"], buffers


def test_a_cassette_is_browsed_by_name_or_path(sent: Sent) -> None:
    """One that is not there, or is none, is an error at once."""
    widget = dm.browse("first-look")
    part, _ = send(widget, sent, LIST | {"offset": 100})
    _, bodies = send(widget, sent, DETAIL)
    others, _ = send(widget, sent, {"action": "recordings"})
    Path("text.har").write_text("{}")

    assert len(part["rows"]) == 2
    assert b"usr_stand_in_1" in bodies[1]
    assert "waiting" in others["names"]
    assert "first-look, 102 interactions: the first 10." in repr(widget)
    with pytest.raises(NotRecordedError):
        dm.browse("nowhere")
    with pytest.raises(CassetteError, match="not HAR"):
        dm.browse("text.har")
    with pytest.raises(NotConnectedError, match=r"login\(\)"):
        dm.browse()


def test_a_session_is_browsed_as_it_goes_on(sent: Sent, service: StandIn) -> None:
    """Headers of all it sends, bodies of what it records or replays, and nowhere the key."""
    dm.connect(service.base_url, service.api_key, pace="off")
    dm.get("/v1/lists", params={"k": service.api_key}, headers={"X-Again": service.api_key})
    widget = dm.browse()
    with dm.record("my-tour"):
        dm.me()
    widget.update_page()
    part, _ = send(widget, sent, LIST)
    live, live_bodies = send(widget, sent, DETAIL)
    kept, bodies = send(widget, sent, DETAIL | {"index": 1})
    widget.close()

    assert [row[2] for row in part["rows"]] == ["/v1/lists?k=<API_KEY>", "/v1/users/me"]
    assert ("x-again", "<API_KEY>") in live["request"]["headers"]
    assert (live["response"]["body"]["kind"], live_bodies) == ("absent", [b"", b""])
    assert kept["response"]["body"]["kind"] == "json"
    assert b"usr_stand_in_1" in bodies[1]
    assert traces(repr(sent).encode(), service.api_key) == []
    assert [each["part"]["total"] for each, _ in sent if "part" in each][-1] == 2


def test_the_browser_of_a_session_follows_the_current_one(sent: Sent, live: Session) -> None:
    """As the module's calls do; that of a cassette stays with it."""
    del live
    dm.replay("first-look")
    widget, of_cassette = dm.browse(), dm.browse("waiting")
    dm.me()
    dm.logout()
    dm.replay("rate-limits")
    now, _ = send(widget, sent, LIST)
    unchanged, _ = send(of_cassette, sent, LIST)
    widget.close()

    assert ({"type": "changed", "restart": True}, None) in sent
    assert (now["title"], now["total"]) == ("Replaying rate-limits", 0)
    assert unchanged["title"] == "waiting"


def test_what_a_session_keeps_is_bounded(live: Session) -> None:
    """Of more than a thousand, and of a large body, the row stays and says so."""
    with live.record("my-tour", record_mode="all"):
        live.request("GET", "/v1/users/me")
    first = live.readings.since(0)[0]
    request = live.client.build_request("GET", "/x")
    response = live.client.get("/v1/lists")
    reading = live.readings.since(1)[0]
    live.exchanges.add(reading, request, response, b"x" * 2_000_000)
    for _ in range(1_000):
        live.exchanges.add(reading._replace(), request, response, None)

    assert live.exchanges.interaction(first) is None
    assert not live.exchanges.has_bodies(reading)
