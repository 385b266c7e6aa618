"""HAR out and in again: nothing lost, nothing leaked, and other programs' files are read."""

from __future__ import annotations

import base64
import json
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from key_search import traces

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import convert
from directmail_lab.cassettes.har import har_text, read_har
from directmail_lab.errors import CassetteFormatError
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse

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
