"""The line layout, which we and vcrpy read exactly, and the compressed bodies in it."""

from __future__ import annotations

import contextlib
import gzip
import re
import sys
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import yaml
from cassette_samples import NOON, answered, get
from hypothesis import given, settings, strategies as st
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import layout
from directmail_lab.cassettes.files import parse_cassette
from directmail_lab.exchange.bodies import MAX_UNPACKED_BYTES, TooLargeError, unpack
from directmail_lab.exchange.operations import path_below
from directmail_lab.exchange.values import Headers, Interaction, Request, Response

METADATA = {"recorded_with": "directmail-lab 0.1.0", "base_url": "https://api.example.test"}
# Any character of UTF-8. Those that JSON and YAML write differently come more often.
ODD = '\0\t\n\r"\\\x7f\x80\x85\x9f\xa0\u2028\u2029\ufeff\ufffd\ufffe\uffff#:{}&*!'
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD))
BODIES = TEXT.map(str.encode) | st.binary()
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=6).map(tuple)
YEARS = datetime(1900, 1, 1), datetime(2199, 12, 31)


def is_address(uri: str) -> bool:
    """Return whether Python can parse an address. Others are refused."""
    try:
        parts = urlsplit(uri)
        return parts.port is None or isinstance(parts.hostname, str | None)
    except ValueError:
        return False


def grouped(headers: Headers) -> Headers:
    """Return headers as a cassette keeps them: those with the same name together."""
    names = list(dict.fromkeys(name for name, _ in headers))
    return tuple((name, value) for each in names for name, value in headers if name == each)


def cassette(*interactions: Interaction) -> str:
    return layout.header_text(METADATA) + "".join(map(layout.interaction_text, interactions))


def ours(text: str) -> list[Interaction]:
    return list(parse_cassette(text.encode(), Path("tour.yaml")))


def vcrpys(text: str) -> tuple[Any, Any]:
    requests, responses, *_ = deserialize(text, yamlserializer)
    return requests[0], responses[-1]


@settings(max_examples=300, deadline=None)
@given(
    request=st.builds(
        Request,
        st.sampled_from(["GET", "POST", "DELETE"]),
        TEXT.filter(is_address),
        HEADERS,
        st.none() | BODIES,
    ),
    response=st.builds(Response, st.integers(100, 599), TEXT, HEADERS, BODIES),
    at=st.none() | st.datetimes(*YEARS, timezones=st.just(UTC)),
    attempt=st.integers(1, 9),
)
def test_our_reader_and_vcrpy_read_any_interaction_unchanged(request, response, at, attempt):
    written = Interaction(request, response, at, 0.25, attempt)
    text = cassette(written, written)
    sent, received = vcrpys(text)
    pairs = [(name, value) for name, values in received["headers"].items() for value in values]
    request = replace(request, headers=grouped(request.headers))
    response = replace(response, headers=grouped(response.headers))

    assert ours(text) == [replace(written, request=request, response=response)] * 2
    assert (sent.method, sent.uri, sent.body) == (request.method, request.uri, request.body)
    assert received["body"]["string"] == response.body
    assert received["status"] == {"code": response.status, "message": response.reason}
    assert tuple(pairs) == response.headers


MARKS = '"string": null, "body": null, "headers": {} !!binary "AAAA" # end: 1 interaction'


def test_no_header_name_or_text_is_mistaken_for_the_layout():
    name, value = MARKS, f'{MARKS}\n- recorded_at: "x"'
    headers = ((name, value),)
    request = Request("GET", f"https://x.test/{MARKS}", headers, b"\xff")
    written = Interaction(request, Response(200, MARKS, headers, value.encode()))
    text = cassette(written)

    assert ours(text) == [written]
    assert vcrpys(text)[1]["headers"] == {name: [value]}


def test_a_lone_surrogate_becomes_the_replacement_character():
    """YAML cannot contain one, and responses that httpx decoded have none."""
    text = cassette(Interaction(get("/\ud800"), Response(200, "a\udfffb")))

    assert ours(text)[0].request.uri.endswith("/\ufffd")
    assert vcrpys(text)[1]["status"]["message"] == "a\ufffdb"


@pytest.mark.parametrize(("elapsed_s", "expected"), [(5e-5, 5e-5), (1e-9, 0.0), (12.5, 12.5)])
def test_the_file_is_yaml_and_its_metadata_is_readable(elapsed_s, expected):
    """Times are in UTC. Seconds have no exponent, because YAML 1.1 would read it as text."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    text = cassette(replace(answered(), recorded_at=east, elapsed_s=elapsed_s))
    value = yaml.safe_load(text)

    assert (value["version"], value["recording"]) == (1, METADATA)
    assert value["interactions"][0]["recorded_at"] == "2026-11-21T12:00:00.123456Z"
    assert value["interactions"][0]["elapsed_s"] == ours(text)[0].elapsed_s == expected
    assert ours(text.replace('Z"', '"'))[0].recorded_at is None  # its time zone is unknown


@given(
    st.sampled_from(["http://", "https://", "HTTP://", ""]), st.text("ab/?#:@ \t\n\\é\x1c\u2028")
)
def test_the_path_of_an_address_is_what_urlsplit_finds(scheme, rest):
    """Loading splits every address, so a faster way than `urlsplit` must find the same path."""
    path = urlsplit(scheme + rest).path or "/"
    sent = re.sub(r"[\x1c\u2028]", lambda control: quote(control[0]), path)

    assert path_below(scheme + rest) == sent


# -- compressed bodies -------------------------------------------------------------------------


UNPACKED = b'{"name": "Ada", "id": 12}\n' * 40
DEFLATED = zlib.compress(UNPACKED)[2:-4]  # some services send it without zlib's header


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(UNPACKED), ""),
        (gzip.compress(UNPACKED), " GZIP , identity"),
        (zlib.compress(UNPACKED), "deflate"),
        (DEFLATED, "deflate"),
        (zlib.compress(gzip.compress(UNPACKED)), "deflate"),
        (UNPACKED, "gzip"),
        (UNPACKED, "something"),
    ],
)
def test_compressed_bodies_are_decompressed_and_text_is_unchanged(body, coding):
    """The header or the first bytes show it, or both if a compressed file is compressed again."""
    assert unpack(body, coding) == UNPACKED


@pytest.mark.parametrize(
    ("name", "library", "fast"), [("br", "brotli", {"quality": 1}), ("zstd", "zstandard", {})]
)
def test_an_optional_coding_is_decoded_if_its_library_is_installed(
    name, library, fast, monkeypatch
):
    """A decompression bomb is refused before it fills the memory."""
    module = pytest.importorskip(library)

    assert unpack(module.compress(UNPACKED), name) == UNPACKED
    with pytest.raises(TooLargeError):
        unpack(module.compress(bytes(MAX_UNPACKED_BYTES + 1), **fast), name)
    with pytest.raises(ValueError, match="cannot read it"):
        unpack(b"\x28\xb5\x2f\xfd" + b"\xff" * 20, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=f"{library} is not installed"):
        unpack(b"\x28\xb5\x2f\xfd\x02\x80\xff\xfe\x03", name)


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (
            gzip.compress(gzip.compress(gzip.compress(UNPACKED))),
            "gzip, gzip, gzip",
            "more than twice",
        ),
        (b"\x1f\x8b\x08" + b"\xff" * 40, "", "damaged"),
        (b"\xff\xfe\xfd" * 9, "compress", "compressed in an unknown way"),
        # httpx passes on the first part alone.
        (gzip.compress(UNPACKED[:500]) + gzip.compress(UNPACKED[500:]), "", "other data after it"),
        (gzip.compress(UNPACKED[:500]) + UNPACKED[500:], "gzip", "other data after it"),
    ],
)
def test_a_body_that_cannot_be_decompressed_within_limits_is_refused(body, coding, why):
    with pytest.raises(ValueError, match=why):
        unpack(body, coding)


def test_a_decompression_bomb_is_refused_at_any_nesting_depth():
    packed = bytes(80_000_000)
    for coding in ("", "gzip", "gzip"):
        packed = gzip.compress(packed, 6)
        with pytest.raises(ValueError, match=r"larger than 64 MB|more than twice"):
            unpack(packed, coding)
    with pytest.raises(TooLargeError):
        unpack(bytes(MAX_UNPACKED_BYTES + 1))


@given(body=st.binary(max_size=300), coding=st.sampled_from(["", "gzip", "deflate", "br", "zstd"]))
def test_any_bytes_give_bytes_or_one_kind_of_error(body, coding):
    with contextlib.suppress(ValueError):
        assert len(unpack(body, coding)) <= MAX_UNPACKED_BYTES
