"""What the page of the browser of interactions gets: rows, details and bodies."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cassette_samples import answered, get, opened, recorded, typed
from marks import slow

import directmail_lab as dm
import directmail_lab.notebook.browser_data
from directmail_lab.cassettes import Recording, read_cassette
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.notebook.browser_data import Row, handle_request, static_table

LIST = {"action": "list", "first": 1, "limit": 9}
DETAIL = {"action": "detail", "number": 1}
SAVE = {"action": "body", "number": 1, "message": "response"}


def tape(*interactions: Interaction, name: str = "tour", **options: Any) -> Recording:
    return read_cassette(recorded(f"{name}.yaml", *interactions, **options))


def ask(recording: Recording, action: str, **request: object) -> Any:
    """Return the response to a message of the page, as it arrives there as JSON."""
    response, _ = handle_request(recording, {"action": action, **request})
    return json.loads(json.dumps(response, allow_nan=False))


def rows(recording: Recording, first: int = 1, limit: int = 9) -> list[Row]:
    part = ask(recording, "list", first=first, limit=limit)
    assert tuple(part["fields"]) == Row._fields
    return [Row(*values) for values in part["rows"]]


def test_the_page_describes_the_fields_of_a_row():
    source = Path(directmail_lab.notebook.browser_data.__file__).parent / "src" / "protocol.ts"
    [described] = re.findall(r"(?s)interface Row \{(.*?)\n\}", source.read_text(encoding="utf-8"))

    assert tuple(re.findall(r"(?m)^  (\w+):", described)) == Row._fields


def test_a_row_has_the_time_the_request_the_response_and_a_mark():
    none_left = (("X-RateLimit-Limit", "5"), ("X-RateLimit-Remaining", "0"))
    refused = answered(get("/eu/v1/a?b=1"), status=429)
    refused = replace(refused, response=replace(refused.response, headers=none_left))
    untimed = replace(answered(status=500), recorded_at=None, elapsed_s=None)
    recording = tape(refused, untimed, answered(), base_url="https://api.example.test/eu")
    part = ask(recording, "list", first=1, limit=2)
    noon = 1795262400123.456

    assert (part["title"], part["total"], part["note"]) == ("tour", 3, None)
    assert rows(recording, 1, 2) == [
        Row(noon, "GET", "/v1/a?b=1", 429, 0, 42.0, 9, "refused", 1, replayed=False),
        Row(None, "GET", "/v1/users/me", 500, 299, None, 9, "failed", 2, replayed=False),
    ]
    assert [row.status for row in rows(recording, 3)] == [200]
    assert rows(recording, 4) == []


LATIN = "text/plain; charset=latin-1"


@pytest.mark.parametrize(
    ("content_type", "body", "kind", "is_editable"),
    [
        ("application/json", b'{"a": 1}', "json", True),
        ("application/json", b"NaN", "text", True),
        ("text/html", b"<b>", "text", True),
        ("image/svg+xml", b"<svg/>", "text", True),
        (LATIN, b"Z\xfcrich", "text", True),
        ("text/plain", b"Z\xfcrich", "text", False),
        ("text/plain", b"a\r\nb\r\n", "text", True),
        ("text/plain", b"a\r\nb\n", "text", False),
        ("text/plain", b"a\rb", "text", False),
        ("text/plain; charset=no-such", b"a", "text", False),
        ("image/png", b"\x89PNG", "image", False),
        ("application/pdf", b"%PDF-1.4 <script>", "binary", False),
        ("application/octet-stream", b"\0\1", "binary", False),
        ("text/plain", b"", "none", True),
        (LATIN, b"\xe9" * 2_400_000, "text", False),
        slow("image/png", b"\xff" * 17_000_000, "binary", False),
    ],
)
def test_a_body_is_shown_according_to_its_content(content_type, body, kind, *, is_editable):
    """It can be edited if what is shown, written back in the same charset, is the same bytes."""
    recording = tape(typed(content_type, body))
    response, bodies = handle_request(recording, DETAIL)
    about = response["response"]["body"]
    is_cut = len(body) > 2 * 1024**2 and kind == "text"

    assert (about["kind"], about["size"], about["truncated"]) == (kind, len(body), is_cut)
    assert about["editable"] is is_editable
    if is_cut:
        assert 0 < len(bodies[1]) <= 4 * 1024**2
    elif is_editable or kind == "image":
        assert bodies[1] == ("Zürich".encode() if b"\xfc" in body else body)
    assert handle_request(recording, SAVE)[1] == [body]


def test_the_whole_of_large_json_is_shown_on_request():
    """Until the user asks for it, the first two megabytes are shown, and laid out."""
    recording = tape(typed("application/json", json.dumps(["x" * 99] * 40_000)))
    kinds = {}
    for whole in (False, True):
        response, bodies = handle_request(recording, {**DETAIL, "whole": whole})
        kinds[whole] = (response["response"]["body"]["kind"], len(bodies[1]))

    assert kinds == {False: ("json", 2 * 1024**2), True: ("json", 4_120_000)}


def test_details_explain_the_rate_limit_headers():
    first_look = read_cassette(Path(__file__).parents[1] / "cassettes" / "first-look.yaml")
    faulty = tape(typed("x/y", b"", ("X-RateLimit-Limit", "many")))
    reading = dict(ask(faulty, **DETAIL)["reading"])

    assert dict(ask(first_look, **DETAIL)["reading"]) == {
        "Limit": "300",
        "Remaining": "299",
        "Reset": "60",
        "Renews at": "2026-11-21 04:01:00 UTC",
    }
    assert reading["Problem"].startswith("X-RateLimit-Limit is not an integer")


def test_the_page_tells_what_is_special_about_a_file():
    with opened(Path("tour.yaml"), "all") as cassette:
        cassette.record(answered())
        part = ask(read_cassette(Path("tour.yaml")), **LIST)

    assert part["note"] == "It is being recorded: 1 interaction until now."


def test_an_interaction_without_a_response_says_why():
    """Its row has no status and counts as failed."""
    lost = Response(0, cut="read_timeout", error="timed out")
    recording = tape(replace(answered(), response=lost))
    detail = ask(recording, **DETAIL)

    [row] = rows(recording)
    assert (row.status, row.remaining, row.bytes, row.mark) == (None, None, 0, "failed")
    assert detail["reason"] == "no response came (read timeout)"
    assert dict(detail["reading"])["Problem"] == detail["reason"]


def test_the_table_in_a_notebook_is_small_and_escaped():
    """A notebook on GitHub shows at most ten rows, and every value is escaped."""
    hostile = answered(get("/<script>\x1b[2J</script>"))
    many = recorded("many.yaml", *[hostile] * 1_200).rename("<b>many.yaml")
    shown, text = static_table(read_cassette(many))
    Path("empty.yaml").touch()

    assert shown.count("<tr") == 11
    assert len(shown) < 10_000
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert html.escape("/<script>%1B[2J</script>") in shown
    assert "1,200 interactions, recorded on 21 November 2026: the first 10." in shown
    assert "\x1b" not in text
    assert "0 interactions." in repr(dm.browse("empty.yaml"))


def test_a_notebook_keeps_the_selected_interaction_and_the_date():
    """A table without marks has no column for them."""
    view = dm.browse("first-look")
    before = view.static_output()[0]
    view.receive("request", [b'{"request_id": 1, "action": "select", "number": 2}'])
    shown = view.static_output()[0]
    hostile = recorded("hostile.yaml", answered(get("/a"), "<script>"))
    html_of_it, _ = static_table(read_cassette(hostile), (read_cassette(hostile), 1))

    assert "recorded on 21 November 2026: the first 10." in before["text/html"]
    assert not any("mark" in text for text in before.values())
    assert all(text.startswith(before[kind]) for kind, text in shown.items())
    assert "usr_stand_in_1" in shown["text/html"]
    assert "usr_stand_in_1" in shown["text/plain"]
    assert "&lt;script&gt;" in html_of_it
    assert "<script" not in html_of_it
