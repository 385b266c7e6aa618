"""The line layout, which we and vcrpy read as it was written; and compressed bodies in it."""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from directmail_lab.exchange.values import (
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
)

METADATA = {"recorded_with": "directmail-lab 0.1.0", "base_url": "https://api.example.test"}
# Every character that UTF-8 can carry, those that JSON and YAML write differently oftener.
ODD = '\0\t\n\r"\\\x7f\x80\x85\x9f\xa0\u2028\u2029\ufeff\ufffd\ufffe\uffff#:{}&*!'
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD))
BODIES = TEXT.map(str.encode) | st.binary()
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=6).map(tuple)
YEARS = datetime(1900, 1, 1), datetime(2199, 12, 31)


def is_address(uri: str) -> bool:
    """Return whether Python can take an address apart; one that it cannot is refused."""
    try:
        parts = urlsplit(uri)
        return parts.port is None or isinstance(parts.hostname, str | None)
    except ValueError:
        return False


def grouped(headers: Headers) -> Headers:
    """Return headers as a cassette keeps them: those of one name together."""
    names = list(dict.fromkeys(name for name, _ in headers))
    return tuple((name, value) for each in names for name, value in headers if name == each)


def cassette(*interactions: Interaction) -> str:
    """Return a whole cassette file in the line layout."""
    return layout.header_text(METADATA) + "".join(map(layout.interaction_text, interactions))


def ours(text: str) -> list[Interaction]:
    """Return what we read in a cassette file."""
    return list(parse_cassette(text.encode(), Path("tour.yaml")))


def vcrpys(text: str) -> tuple[Any, Any]:
    """Return the first request and the last response that vcrpy reads in a cassette file."""
    requests, responses, *_ = deserialize(text, yamlserializer)
    return requests[0], responses[-1]


@settings(max_examples=300, deadline=None)
@given(
    request=st.builds(
        RecordedRequest,
        st.sampled_from(["GET", "POST", "DELETE"]),
        TEXT.filter(is_address),
        HEADERS,
        st.none() | BODIES,
    ),
    response=st.builds(RecordedResponse, st.integers(100, 599), TEXT, HEADERS, BODIES),
    at=st.none() | st.datetimes(*YEARS, timezones=st.just(UTC)),
    attempt=st.integers(1, 9),
)
def test_any_interaction_is_read_as_it_was_written_by_us_and_by_vcrpy(
    request: RecordedRequest, response: RecordedResponse, at: datetime | None, attempt: int
) -> None:
    """Bodies, headers, addresses and reasons of any kind come back, bytes for bytes."""
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


@pytest.mark.parametrize(
    ("name", "value"), [("X-" + "é" * 3000, "v" * 100_000), (MARKS, f'{MARKS}\n- recorded_at: "x"')]
)
def test_no_name_of_a_header_and_no_text_is_taken_for_the_layout(name: str, value: str) -> None:
    """libyaml takes no key of more than 1,024 characters, unless it is written as explicit."""
    headers = ((name, value),)
    request = RecordedRequest("GET", f"https://x.test/{MARKS}", headers, b"\xff")
    written = Interaction(request, RecordedResponse(200, MARKS, headers, value.encode()))
    text = cassette(written)

    assert ours(text) == [written]
    assert vcrpys(text)[1]["headers"] == {name: [value]}


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    """No YAML can carry one, and no response that httpx decoded holds one."""
    text = cassette(Interaction(get("/\ud800"), RecordedResponse(200, "a\udfffb")))

    assert ours(text)[0].request.uri.endswith("/\ufffd")
    assert vcrpys(text)[1]["status"]["message"] == "a\ufffdb"


@pytest.mark.parametrize(("elapsed_s", "expected"), [(5e-5, 5e-5), (1e-9, 0.0), (12.5, 12.5)])
def test_the_file_is_yaml_and_its_metadata_is_readable(elapsed_s: float, expected: float) -> None:
    """A time of any zone is in UTC; seconds have no exponent, which YAML 1.1 takes for a text."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    text = cassette(replace(answered(), recorded_at=east, elapsed_s=elapsed_s))
    value = yaml.safe_load(text + layout.end_line(1, "0" * 64))

    assert (value["version"], value["recording"]) == (1, METADATA)
    assert value["interactions"][0]["recorded_at"] == "2026-11-21T12:00:00.123456Z"
    assert value["interactions"][0]["elapsed_s"] == ours(text)[0].elapsed_s == expected
    assert ours(text.replace('Z"', '"'))[0].recorded_at is None  # of which zone is not known


@settings(max_examples=500, deadline=None)
@given(st.from_regex("https?://[ab0.@[-]{0,5}(:[0-9]{0,9})?([/?#][ -~é\t]{0,9})?", fullmatch=True))
def test_an_address_that_is_taken_unparsed_needs_no_check(uri: str) -> None:
    """What the pattern of a plain address accepts, Python takes apart, and it is what was sent."""
    text = cassette(Interaction(RecordedRequest("GET", uri), RecordedResponse(200), attempt=2))
    plain = layout.address_of(text.encode(), text.index("- recorded_at"))
    if plain is not None:
        _ = urlsplit(plain[0][1]).port  # raises what it finds wrong

        assert plain == (("GET", uri), 2)


@given(
    st.sampled_from(["http://", "https://", "HTTP://", ""]), st.text("ab/?#:@ \t\n\\é\x1c\u2028")
)
def test_the_path_of_an_address_is_what_urlsplit_finds(scheme: str, rest: str) -> None:
    """Of a plain one it is found without it: a cassette's every address is split when it loads."""
    assert path_below(scheme + rest) == (urlsplit(scheme + rest).path or "/")


# -- compressed bodies -------------------------------------------------------------------------


UNPACKED = b'{"name": "Ada", "id": 12}\n' * 40
DEFLATED = zlib.compress(UNPACKED)[2:-4]  # as some send it, without the header of zlib


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(UNPACKED), ""),
        (gzip.compress(UNPACKED), " GZIP , identity"),
        (zlib.compress(UNPACKED), "deflate"),
        (DEFLATED, "deflate"),
        (zlib.compress(gzip.compress(UNPACKED)), "deflate"),
        (gzip.compress(UNPACKED[:500]) + gzip.compress(UNPACKED[500:]), ""),
        (gzip.compress(b"") * 5000 + gzip.compress(UNPACKED), ""),
        (gzip.compress(UNPACKED[:500]) + UNPACKED[500:], "gzip"),
        (UNPACKED, "gzip"),
        (UNPACKED, "something"),
    ],
)
def test_what_is_compressed_is_opened_and_text_is_taken_as_it_is(body: bytes, coding: str) -> None:
    """By the header, by the first bytes, or both: a file may be compressed and sent so."""
    assert unpack(body, coding) == UNPACKED


@pytest.mark.parametrize(("name", "library"), [("br", "brotli"), ("zstd", "zstandard")])
def test_a_coding_of_a_library_is_opened_where_that_is_installed(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded as all are: a bomb is refused before it fills the memory. It may hide anything."""
    module = pytest.importorskip(library)

    assert unpack(module.compress(UNPACKED), name) == UNPACKED
    with pytest.raises(TooLargeError):
        unpack(module.compress(bytes(MAX_UNPACKED_BYTES + 1)), name)
    with pytest.raises(ValueError, match="does not open it"):
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
        (b"\xff\xfe\xfd" * 9, "compress", "not known here"),
    ],
)
def test_what_cannot_be_opened_within_bounds_is_refused(body: bytes, coding: str, why: str) -> None:
    """Whoever asks is told why, with nothing of the body."""
    with pytest.raises(ValueError, match=why):
        unpack(body, coding)


def test_a_bomb_is_refused_however_often_it_is_packed() -> None:
    """Nothing is expanded to more than 64 MB, whatever its size."""
    packed = bytes(80_000_000)
    for coding in ("", "gzip", "gzip"):
        packed = gzip.compress(packed, 6)
        with pytest.raises(ValueError, match=r"larger than 64 MB|more than twice"):
            unpack(packed, coding)
    with pytest.raises(TooLargeError):
        unpack(bytes(MAX_UNPACKED_BYTES + 1))


@given(body=st.binary(max_size=300), coding=st.sampled_from(["", "gzip", "deflate", "br", "zstd"]))
def test_any_bytes_give_bytes_or_one_kind_of_error(body: bytes, coding: str) -> None:
    """Never more of them than the bounds allow."""
    with contextlib.suppress(ValueError):
        assert len(unpack(body, coding)) <= MAX_UNPACKED_BYTES
