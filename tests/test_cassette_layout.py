"""The line layout: what is written is what is read, by us and by vcrpy."""

from __future__ import annotations

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
from directmail_lab.cassettes.recording import parse_cassette
from directmail_lab.interaction import (
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    check_request,
    path_below,
)

METADATA = {"recorded_with": "directmail-lab 0.1.0", "base_url": "https://api.example.test"}
# Every character that UTF-8 can carry, those that JSON and YAML write differently oftener.
TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            '\0\t\n\r"\\\x7f\x80\x85\x9f\xa0\u2028\u2029\ufeff\ufffd\ufffe\uffff#:{}&*!'
        ),
    )
)
BODIES = st.one_of(TEXT.map(str.encode), st.binary())
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=6).map(tuple)
TIMES = st.none() | st.datetimes(
    datetime(1900, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC)
)


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
    return list(parse_cassette(text.encode(), Path("tour.yaml")).interactions)


def vcrpys(text: str) -> tuple[list[Any], list[Any]]:
    """Return the requests and responses that vcrpy reads in a cassette file."""
    requests, responses, *_ = deserialize(text, yamlserializer)
    return requests, responses


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
    at=TIMES,
)
def test_any_interaction_is_read_as_it_was_written_by_us_and_by_vcrpy(
    request: RecordedRequest, response: RecordedResponse, at: datetime | None
) -> None:
    """Bodies, headers, addresses and reasons of any kind come back, bytes for bytes."""
    written = Interaction(request, response, at, 0.25)

    text = cassette(written, written)
    (read, again) = ours(text)
    requests, responses = vcrpys(text)

    assert (
        read
        == again
        == replace(
            written,
            request=replace(request, headers=grouped(request.headers)),
            response=replace(response, headers=grouped(response.headers)),
        )
    )
    their_request, their_response = requests[0], responses[1]
    assert (their_request.method, their_request.uri, their_request.body) == (
        request.method,
        request.uri,
        request.body,
    )
    assert their_response["body"]["string"] == response.body
    assert their_response["status"] == {"code": response.status, "message": response.reason}
    pairs = (
        (name, value) for name, values in their_response["headers"].items() for value in values
    )
    assert tuple(pairs) == grouped(response.headers)


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"\xff" * 2_000_000, "é\x85\u2028".encode() * 400_000]
)
def test_empty_and_huge_bodies_come_back(body: bytes) -> None:
    """A body of megabytes, text or not, is the same in our reading and in vcrpy's."""
    text = cassette(answered(body=body))

    assert ours(text)[0].response.body == body
    assert vcrpys(text)[1][0]["body"]["string"] == body


def test_a_header_name_longer_than_a_yaml_key_comes_back() -> None:
    """libyaml takes no key of more than 1,024 characters, unless it is written as explicit."""
    name, value = "X-" + "é" * 3000, "v" * 100_000
    written = Interaction(
        RecordedRequest("GET", "https://x.test/", ((name, value),), b"\xff"),
        RecordedResponse(200, "OK", ((name, value),), b"\xff"),
    )

    text = cassette(written)

    assert ours(text) == [written]
    assert vcrpys(text)[1][0]["headers"] == {name: [value]}


def test_a_text_that_looks_like_our_marks_stays_a_text() -> None:
    """A body or header that quotes the layout itself is not taken for it."""
    marks = '"string": null, "body": null, "headers": {} !!binary "AAAA" # end: 1 interaction'
    headers = ((marks, marks),)
    written = Interaction(
        RecordedRequest("GET", f"https://x.test/{marks}", headers, b"\xff"),
        RecordedResponse(200, marks, headers, f'{marks}\n- recorded_at: "x"\n'.encode()),
    )

    text = cassette(written)

    assert ours(text) == [written]


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    """No YAML can carry one, and no response that httpx decoded holds one."""
    text = cassette(Interaction(get("/\ud800"), RecordedResponse(200, "a\udfffb")))

    assert ours(text)[0].request.uri.endswith("/\ufffd")
    assert vcrpys(text)[1][0]["status"]["message"] == "a\ufffdb"


def test_the_file_is_yaml_and_its_metadata_is_readable() -> None:
    """Any YAML reader finds version, recording and interactions; a time of any zone is in UTC."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    interaction = replace(answered(), recorded_at=east)
    value = yaml.safe_load(cassette(interaction) + layout.end_line(1, "0" * 64))

    assert value["version"] == 1
    assert value["recording"] == METADATA
    assert value["interactions"][0]["recorded_at"] == "2026-11-21T12:00:00.123456Z"
    assert value["interactions"][0]["elapsed_s"] == pytest.approx(0.042)


@pytest.mark.parametrize(("elapsed_s", "expected"), [(5e-5, 5e-5), (1e-9, 0.0), (12.5, 12.5)])
def test_elapsed_seconds_are_a_yaml_number_however_small(elapsed_s: float, expected: float) -> None:
    """YAML 1.1 takes 5e-05 for a text, so no exponent is written."""
    text = cassette(Interaction(get(), RecordedResponse(200), NOON, elapsed_s))

    assert yaml.safe_load(text)["interactions"][0]["elapsed_s"] == expected
    assert ours(text)[0].elapsed_s == expected


@settings(max_examples=500, deadline=None)
@given(st.from_regex("https?://[ab0.@[-]{0,5}(:[0-9]{0,9})?([/?#][ -~é\t]{0,9})?", fullmatch=True))
def test_an_address_that_is_taken_unparsed_needs_no_check(uri: str) -> None:
    """What the pattern of a plain address accepts, Python takes apart, and it is what was sent."""
    text = cassette(Interaction(RecordedRequest("GET", uri), RecordedResponse(200)))
    plain = layout.address_of(text.encode(), text.index("- recorded_at"))
    if plain is not None:
        check_request(plain[0])

        assert plain == (RecordedRequest("GET", uri), 1)


@given(
    st.sampled_from(["http://", "https://", "HTTP://", ""]), st.text("ab/?#:@ \t\n\\é\x1c\u2028")
)
def test_the_path_of_an_address_is_what_urlsplit_finds(scheme: str, rest: str) -> None:
    """Of a plain one it is found without it: a cassette's every address is split when it loads."""
    assert path_below(scheme + rest) == (urlsplit(scheme + rest).path or "/")
