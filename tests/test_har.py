"""HAR out and in again: nothing lost, nothing leaked, and other programs' files are read."""

from __future__ import annotations

import base64
import json
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from key_search import traces
from typer.testing import CliRunner

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cassettes.convert import convert
from directmail_lab.cassettes.har import har_text, read_har
from directmail_lab.cli import app
from directmail_lab.errors import CassetteFormatError, NotRecordedError
from directmail_lab.exchange.values import Interaction, RecordedRequest, RecordedResponse

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode()).decode()

tokens = st.text("abcdefghijklmnopqrstuvwxyzABC-XYZ0123456789", min_size=1, max_size=12)
names = tokens.map("X-{}".format)
types = st.sampled_from(["application/json", "text/html; charset=utf-16", "a;charset=x"])
headers = st.builds(
    lambda pairs, kind: (*pairs, ("Content-Type", kind)),
    st.lists(st.tuples(names, st.text(max_size=20)), max_size=5).map(tuple),
    types,
)
bodies = st.binary(max_size=60) | tokens.map(str.encode)
exchanges = st.builds(
    Interaction,
    st.builds(
        RecordedRequest,
        st.sampled_from(["GET", "POST"]),
        tokens.map("https://api.test/v1/{0}?q={0}".format),
        headers,
        st.none() | bodies,
    ),
    st.builds(RecordedResponse, st.integers(100, 599), tokens, headers, bodies),
    st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),
    st.none() | st.floats(0, 100),
)


@given(interactions=st.lists(exchanges, max_size=3))
def test_a_round_trip_loses_nothing(interactions: list[Interaction]) -> None:
    """Bytes that are no text, repeated headers and times come back as they were."""
    assert read_har(har_text(interactions).encode(), "a.har") == interactions


def test_the_document_has_every_field_that_the_specification_requires() -> None:
    """So that any viewer opens it; and a byte order mark, as on Windows, may come before it."""
    assert read_har(b'\xef\xbb\xbf{"log": {"entries": []}}', "a.har") == []
    exchange = Interaction(RecordedRequest("GET", "https://a.test/?a=1&b="), RecordedResponse(200))
    log = json.loads(har_text([exchange]))["log"]

    entry = log["entries"][0]
    assert {"version", "creator"} <= log.keys()
    assert {"startedDateTime", "time", "request", "response", "cache", "timings"} <= entry.keys()
    common = {"httpVersion", "cookies", "headers", "headersSize", "bodySize"}
    assert common | {"method", "url", "queryString"} <= entry["request"].keys()
    assert common | {"status", "statusText", "content", "redirectURL"} <= entry["response"].keys()


# What Chromium saves of one request with a key, and of one that was blocked.
CHROMIUM = """{"log": {"version": "1.2", "creator": {"name": "WebInspector", "version": "537.36"},
"pages": [], "entries": [{"_initiator": {"type": "other"},
"startedDateTime": "2026-11-21T04:00:00.000Z", "time": 42.5,
"request": {"method": "GET", "url": "https://api.test/v1/users/me?trace=KEY", "httpVersion": "h2",
"headers": [{"name": ":authority", "value": "api.test"},
{"name": "authorization", "value": "Basic CREDENTIAL"}]},
"response": {"status": 200, "statusText": "", "headers": [
{"name": "content-encoding", "value": "gzip"}, {"name": "content-length", "value": "99"}],
"content": {"size": 12, "mimeType": "application/json", "text": "{\\"you\\": \\"KEY\\"}"}}},
{"request": {"method": "GET", "url": "https://ads.test/"}, "response": {"status": 0}}]}}"""


def test_a_browsers_file_is_read_and_its_key_is_learned_and_removed() -> None:
    """No one told the redactor the key: it stands in the file's own Authorization."""
    text = CHROMIUM.replace("KEY", KEY).replace("CREDENTIAL", CREDENTIAL)
    Path("browser.har").write_text(text)
    convert(Path("browser.har"), Path("tour.yaml"), "lines")
    interactions = list(read_cassette(Path("tour.yaml")).interactions)

    assert traces(repr([astuple(each) for each in interactions]).encode(), KEY) == []
    (exchange,) = interactions
    assert exchange.request.uri == "https://api.test/v1/users/me?trace=<REDACTED>"
    assert exchange.request.headers == ()
    assert exchange.response.body == b'{"you": "<REDACTED>"}'
    assert exchange.response.headers == (("content-length", "21"),)
    assert exchange.recorded_at == datetime(2026, 11, 21, 4, 0, 0, 42500, UTC)
    assert exchange.elapsed_s == 0.0425


def test_a_form_and_a_query_kept_apart_are_put_together() -> None:
    """As Insomnia writes them."""
    entry = {
        "request": {
            "url": "https://api.test/v1/letters",
            "method": "POST",
            "queryString": [{"name": "dry", "value": "1"}],
            "postData": {"mimeType": "x", "params": [{"name": "a b", "value": "c&d"}]},
        },
        "response": {"status": 201},
    }
    (exchange,) = read_har(in_log(json.dumps(entry)).encode(), "a.har")

    assert exchange.request.uri == "https://api.test/v1/letters?dry=1"
    assert exchange.request.body == b"a+b=c%26d"
    assert exchange.response == RecordedResponse(201)
    assert (exchange.recorded_at, exchange.elapsed_s) == (None, None)


def in_log(entry: str) -> str:
    return f'{{"log": {{"entries": [{entry}]}}}}'


def only(entry: object) -> Interaction:
    (interaction,) = read_har(in_log(json.dumps(entry)).encode(), "a.har")
    return interaction


@pytest.mark.parametrize(
    ("method", "response", "body"),
    [
        # Playwright's, where it was told to leave contents out, and for a redirect.
        ("GET", {"content": {"size": -1}, "bodySize": -1}, b"<not recorded: ? bytes>"),
        ("GET", {"content": {"size": -1}, "bodySize": 266}, b"<not recorded: 266 bytes>"),
        ("GET", {"content": {"size": -1}, "headers": "7"}, b"<not recorded: 7 bytes>"),
        ("GET", {"content": {"size": -1}, "bodySize": -1, "headers": "0"}, b""),
        # Chromium's, which forgets large contents.
        ("GET", {"content": {"size": 5000, "mimeType": "x"}}, b"<not recorded: 5000 bytes>"),
        ("GET", {"content": {"size": 0, "text": ""}, "bodySize": -1}, b""),
        ("GET", {"content": {"text": ""}, "bodySize": -1}, b""),
        ("GET", {"status": 204, "content": {"size": -1}}, b""),
        ("GET", {"status": 304, "content": {"size": 266}}, b""),
        ("GET", {"status": 302, "content": {"size": -1}, "bodySize": -1}, b""),
        ("HEAD", {"content": {"size": -1}, "headers": "7"}, b""),
    ],
)
def test_a_response_body_that_is_left_out_is_no_empty_one(
    method: str, response: dict[str, Any], body: bytes
) -> None:
    """Its size stands for it, where that is known."""
    length = response.pop("headers", None)
    headers = [{"name": "Content-Length", "value": length}] if length else []
    request = {"method": method, "url": "https://api.test/"}
    entry = {"request": request, "response": {"status": 200, "headers": headers, **response}}

    assert only(entry).response.body == body


def test_what_a_file_left_out_is_not_replayed_as_a_body(tmp_path: Path) -> None:
    """No caller takes what stands for a body for the service's answer."""
    request = {"method": "GET", "url": "https://api.test/"}
    entry = {"request": request, "response": {"status": 200, "content": {"size": 5000}}}
    (tmp_path / "a.har").write_text(in_log(json.dumps(entry)))

    with pytest.raises(NotRecordedError, match=r"without its body \(not recorded: 5000 bytes\)"):
        Cassette(tmp_path / "a.har").play(RecordedRequest("GET", "https://api.test/"))


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        ({"bodySize": 266}, b"<not recorded: 266 bytes>"),
        ({"bodySize": 0, "headers": "9"}, b"<not recorded: 9 bytes>"),
        ({"bodySize": 0}, None),
        ({"bodySize": -1}, None),
        ({"postData": {"mimeType": "multipart/x", "text": ""}, "bodySize": 0}, b""),
        (
            {"postData": {"mimeType": "multipart/form-data", "params": [{"name": "file"}]}},
            b"<not recorded: ? bytes>",
        ),
    ],
)
def test_an_upload_that_is_left_out_is_no_missing_one(
    request_: dict[str, Any], body: bytes | None
) -> None:
    """A request without a body stays one."""
    length = request_.pop("headers", None)
    headers = [{"name": "Content-Length", "value": length}] if length else []
    request = {"method": "POST", "url": "https://api.test/", "headers": headers, **request_}

    assert only({"request": request, "response": {"status": 200}}).request.body == body


PDF = b"%PDF-1.7\n" + bytes(range(128, 256)) * 2


@pytest.mark.parametrize(
    ("mime_type", "text", "size", "body"),
    [
        ("application/pdf", PDF.decode("latin-1"), len(PDF), PDF),  # mitmproxy's
        ("application/pdf", "é", 2, "é".encode()),
        ("application/pdf", "é", 7, "é".encode()),
        ("application/pdf", "é", -1, "é".encode()),
        ("text/html; charset=utf-8", "é", 1, "é".encode()),
        # Some programs count characters: JSON is UTF-8 all the same.
        ("application/json", '"é"', 3, '"é"'.encode()),
        ("text/plain", "€", 1, "€".encode()),
    ],
)
def test_text_of_another_size_is_tried_as_latin_1(
    mime_type: str, text: str, size: int, body: bytes
) -> None:
    """Of a response and of an upload, unless its type says what it is."""
    about = {"mimeType": mime_type, "text": text}
    request = {"method": "POST", "url": "https://api.test/", "bodySize": size, "postData": about}
    entry = {"request": request, "response": {"status": 200, "content": {"size": size, **about}}}
    interaction = only(entry)

    assert (interaction.response.body, interaction.request.body) == (body, body)


def test_converting_says_how_many_bodies_are_not_there() -> None:
    """With their sizes, as far as these are known; of a complete file it says nothing."""
    sizes = [{"size": 1200}, {"size": 34}, {"size": -1}, {"text": "whole"}]
    request = {"url": "https://api.test/", "bodySize": 0}
    entries = [{"request": request, "response": {"status": 200, "content": c}} for c in sizes]
    Path("a.har").write_text(json.dumps({"log": {"entries": entries}}))
    Path("whole.har").write_text(json.dumps({"log": {"entries": entries[3:]}}))
    said, of_whole = (
        CliRunner().invoke(app, ["cassette", "convert", name, f"{name}.yaml"]).output
        for name in ("a.har", "whole.har")
    )

    assert of_whole == "Wrote 1 interaction to whole.har.yaml.\n"
    assert said == (
        "a.har lacks the content of 3 messages (1,234 bytes, and 1 of unknown size); <not "
        "recorded: N bytes> stands for each. Save it again with the contents of requests and "
        "responses.\nWrote 4 interactions to a.har.yaml.\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "\xff\xfe", "7", '{"log": {"entries": {}}}', "[" * 100_000, in_log("7")),
        in_log('{"response": {"status": 200}}'),
        in_log('{"request": {"url": "http://[::"}, "response": {"status": 200}}'),
        in_log('{"request": {"url": "/", "headers": 7}, "response": {"status": 2}}'),
    ],
)
def test_junk_is_a_format_error(text: str) -> None:
    """Whatever is wrong, the error is ours, and says so without a value from the file."""
    with pytest.raises(CassetteFormatError, match=r"a\.har"):
        read_har(text.encode("latin-1"), "a.har")
