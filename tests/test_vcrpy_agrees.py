"""These tests pin what we rely on: vcrpy reads our files, and we read vcrpy's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr
from cassette_samples import BASE_URL, answered, get, post, theirs as written_by_vcrpy
from hypothesis import given, settings, strategies as st
from vcr.request import Request as VcrRequest
from vcr.serialize import deserialize, serialize
from vcr.serializers import jsonserializer, yamlserializer
from vcr.stubs.httpx_stubs import _deserialize_response
from vcr.util import read_body

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cassettes.files import parse_cassette
from directmail_lab.errors import NotRecordedError


def as_vcrpy_sees(text: str, serializer: Any = yamlserializer) -> list[tuple[Any, ...]]:
    """Return what vcrpy reads in a cassette and passes to httpx, as raw bytes."""
    seen = []
    for sent, received in zip(*deserialize(text, serializer)[:2], strict=True):
        if "content-encoding" not in received["headers"]:
            # httpx accepts text other than ASCII only as bytes.
            received["headers"] = {
                n: [v.encode() for v in vs] for n, vs in received["headers"].items()
            }
        response = _deserialize_response(received, httpx)
        headers = [(name.decode(), value.decode()) for name, value in response.headers.raw]
        body = b"".join(response.stream)
        request = sent.method, sent.uri, read_body(sent), list(sent.headers.items())
        seen.append((*request, response.status_code, headers, body))
    return seen


def as_we_see(text: str) -> list[tuple[Any, ...]]:
    return [
        (
            *(each.request.method, each.request.uri, each.request.body, [*each.request.headers]),
            *(each.response.status, [*each.response.headers], each.response.body),
        )
        for each in parse_cassette(text.encode(), Path("tour.yaml")).interactions
    ]


REQUEST = "- request: {method: GET, uri: 'https://x.test/a', body: '', headers: {}}\n"
RESPONSE = "  response: {status: {code: 200, message: OK}, headers: {}, body: {string: hi}}\n"
POST = "- request:\n    method: POST\n    uri: https://x.test/\n    headers: {A: [b]}\n"
OLD = f"{REQUEST}  response:\n    http_version: HTTP/1.1\n"
OLD_FILES = {
    "version missing": f"{REQUEST}{RESPONSE}",
    "none": " []\n",
    "binary": f"{POST}    body: !!binary |\n      /wA=\n"
    "  response:\n    status: {code: 200, message: OK}\n    headers: {A: [b, c], D: [e]}\n"
    "    body:\n      string: !!binary |\n        H4sIAAAA/wA=\n",
    "old httpx": f"{OLD}    status_code: 404\n    headers: {{X: ['1', '2']}}\n"
    "    content: '{\"a\": 1}'\n",
    "old httpx, compressed": f"{OLD}    status_code: 200\n"
    "    headers: {content-encoding: [gzip], content-length: ['9']}\n"
    "    content: !!binary |\n      H4sIAAAAAAAC/8tIzcnJBwCGphA2BQAAAA==\n",
    "BytesIO": f"{POST}    body: !!python/object/new:_io.BytesIO\n"
    f"      state: !!python/tuple [!!binary aGVsbG8=, 0, null]\n{RESPONSE}",
    "iterator": f"{POST}    body: !!python/object/apply:builtins.iter\n"
    f"      args: [[!!binary aGVs, !!binary bG8=]]\n{RESPONSE}",
    "python strings": f"{REQUEST}  response: {{status: {{code: 200, message: !!python/unicode OK}},"
    " headers: {}, body: {string: !!python/str hi}}\n",
    "no body at all": "- request: {method: GET, uri: 'https://x.test', body: null, headers: {}}\n"
    "  response: {status: {code: 204, message: null}, headers: {}, body: {string: ''}}\n",
    "extra keys": f"{REQUEST}{RESPONSE}  note: mine\nkind: odd\n",
    "one value, no list": f"{REQUEST.replace('headers: {}', 'headers: {A: b}')}{RESPONSE}",
    "two values of a request header": f"{REQUEST.replace('{}', '{A: [b, c], a: [d]}')}{RESPONSE}",
    # PyYAML writes a list that occurs twice only once, and an alias for the second.
    "alias": f"{REQUEST.replace('{}', '{A: &a [b]}')}{RESPONSE.replace('{}', '{A: *a}')}",
    "multi-line": f"{REQUEST}  response:\n    status: {{code: 200, message: OK}}\n"
    "    headers: {}\n"
    '    body:\n      string: "a\\\n        \\ b\n\n        c\\u2028"\n',
}


@pytest.mark.parametrize("name", OLD_FILES)
def test_old_and_odd_files_are_read_as_vcrpy_reads_them(name):
    text = f"interactions:\n{OLD_FILES[name]}"

    assert as_we_see(text) == as_we_see(f"\ufeff{text}") == as_vcrpy_sees(text)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
NAMES = st.text("abcXYZ-", min_size=1, max_size=8).map(str.lower)
VALUES = st.lists(TEXT.map(str.strip), min_size=1, max_size=3)
# What only begins like UTF-16 cannot be searched for a key, so nothing shows it.
BODIES = st.binary(max_size=40).filter(lambda b: b[:2] not in (b"\xff\xfe", b"\xfe\xff"))
REQUESTS = st.builds(
    VcrRequest,
    st.sampled_from(["GET", "POST"]),
    TEXT.map("https://x.test/".__add__),
    st.none() | BODIES | st.text(max_size=40),
    st.dictionaries(NAMES, TEXT, max_size=4),
)
RESPONSES = st.fixed_dictionaries(
    {
        "status": st.fixed_dictionaries(
            {"code": st.just(200), "message": st.none() | st.text("abc ", max_size=9)}
        ),
        "headers": st.dictionaries(NAMES, VALUES, max_size=4),
        "body": st.fixed_dictionaries({"string": BODIES | TEXT.map(str.encode)}),
    }
)


@settings(max_examples=50, deadline=None)
@given(REQUESTS, RESPONSES)
def test_any_file_that_vcrpy_writes_is_read_as_vcrpy_reads_it(request, response):
    """vcrpy's own serializer writes the file in its block layout."""
    text = serialize({"requests": [request], "responses": [response]}, yamlserializer)

    assert as_we_see(text) == as_vcrpy_sees(text)


def test_vcrpys_json_cassettes_are_read_as_vcrpy_reads_them():
    """JSON may escape a character as a surrogate pair, which libyaml cannot read."""
    both = answered(body="\U0001f600 é"), answered(post(b"{}"))
    text = written_by_vcrpy("tour.json", *both, as_json=True).read_text()

    assert "\\ud83d" in text
    assert as_we_see(text) == as_vcrpy_sees(text, jsonserializer)


@pytest.mark.parametrize("mode", ["none", "once", "new_episodes", "any", "all"])
def test_each_record_mode_does_what_vcrpys_does(tmp_path, mode):
    """A recorded and a new request are each played, sent or refused as in vcrpy, and kept alike."""
    ours, theirs = tmp_path / "ours.yaml", tmp_path / "theirs.yaml"
    old = [answered(get("/there"), body="old"), answered(get("/unasked"), body="old")]
    for path in (ours, theirs):
        written_by_vcrpy(path, *old)

    with Cassette(ours, record_mode=mode) as cassette:
        done = []
        for name in ("/there", "/new"):
            try:
                done.append("played" if cassette.play(get(name)) else "sent")
            except NotRecordedError:
                done.append("refused")
            if done[-1] == "sent":
                cassette.record(answered(get(name), body="new"))

    expected = []
    with vcr.VCR(record_mode=mode).use_cassette(str(theirs)) as their_cassette:
        for name in ("/there", "/new"):
            request = VcrRequest("GET", f"{BASE_URL}{name}", b"", {"Accept": "*/*"})
            if their_cassette.can_play_response_for(request):
                their_cassette.play_response(request)
                expected.append("played")
            elif their_cassette.write_protected:
                expected.append("refused")
            else:
                expected.append("sent")
                response = {"status": {"code": 200, "message": "OK"}, "headers": {}}
                their_cassette.append(request, {**response, "body": {"string": b"new"}})

    def contents(path: Path) -> list[tuple[str, bytes]]:
        return [(i.request.uri, i.response.body) for i in read_cassette(path).interactions]

    assert done == expected
    # A response that replaces another one keeps its place. vcrpy puts it at the end.
    in_order = sorted if mode == "all" else list
    assert in_order(contents(ours)) == in_order(contents(theirs))
