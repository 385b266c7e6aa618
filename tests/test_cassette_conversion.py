"""Rewritten cassettes: converted to another layout or HAR, redacted again, repaired."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import BASE_URL, answered, get, recorded, theirs as written_by_vcrpy
from hypothesis import given, strategies as st
from key_search import traces
from typer.testing import CliRunner
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import jsonserializer, yamlserializer

import directmail_lab as dm
from directmail_lab import credentials
from directmail_lab.cassettes import Cassette, FileRecording, read_cassette
from directmail_lab.cassettes.convert import convert, layout_of, redact, repair
from directmail_lab.cassettes.har import har_text, read_har
from directmail_lab.cli import app
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import (
    CassetteError,
    CassetteFormatError,
    CassetteInUseError,
    NotRecordedError,
)
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.redaction import Redactor
from directmail_lab.server.standin import STAND_IN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from directmail_lab.cassettes import FileRecording
    from directmail_lab.cassettes.convert import Layout
    from directmail_lab.sessions.session import Session

# No rule recognizes this key by its shape, only by its place.
KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
BASIC = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
# The file suffix of each layout.
ENDINGS = {"lines": ".yaml", "vcrpy": ".yml", "json": ".json", "har": ".har"}


@pytest.fixture
def tour(live: Session) -> Path:
    """A cassette with three responses."""
    with live.record("tour"):
        live.me()
        live.request("GET", "/v1/lists", params={"page": "2"})
        live.request("GET", "/v1/nowhere")
    return Path("cassettes/tour.yaml")


def contents(path: Path) -> list[tuple[str, str, Response]]:
    """Return a cassette's requests and responses.

    Headers are sorted, as vcrpy's YAML sorts them.
    """
    return [
        (
            each.request.method,
            each.request.uri,
            replace(each.response, headers=tuple(sorted(each.response.headers))),
        )
        for each in read_cassette(path).interactions
    ]


@pytest.mark.parametrize("to", ENDINGS)
@pytest.mark.parametrize("via", ENDINGS)
def test_a_conversion_there_and_back_loses_nothing(tour: Path, to: Layout, via: Layout) -> None:
    """Requests and responses survive any two conversions, and no file contains the key."""
    middle, end = Path(f"middle{ENDINGS[via]}"), Path(f"end{ENDINGS[to]}")
    assert layout_of(end) == ("lines" if to == "vcrpy" else to)
    convert(tour, middle, via)
    convert(middle, end, to)
    convert(end, Path("back.yaml"), "lines")

    assert contents(Path("back.yaml")) == contents(tour)
    assert all(STAND_IN_KEY.encode() not in path.read_bytes() for path in (tour, middle, end))


@pytest.mark.parametrize(
    ("to", "serializer"), [("vcrpy", yamlserializer), ("json", jsonserializer)]
)
def test_vcrpy_loads_a_cassette_converted_to_its_layout(
    tour: Path, to: Layout, serializer: object
) -> None:
    """vcrpy's own persister loads the file, and a replay returns the same as from our layout."""
    target = Path(f"theirs{ENDINGS[to]}")
    convert(tour, target, to)
    requests, _ = FilesystemPersister.load_cassette(target, serializer)
    with dm.replay(tour):
        ours = dm.me()

    assert [request.path for request in requests] == ["/v1/users/me", "/v1/lists", "/v1/nowhere"]
    with dm.replay(target):
        assert dm.me().equals(ours)


@pytest.fixture
def theirs() -> Path:
    """A cassette by vcrpy without filters: the key is in a header and echoed in the bodies."""
    request = replace(get(), headers=(("Authorization", BASIC),))
    echoes = [answered(request, f'{{"key": "{KEY}"}}'), answered(get(f"/v1/{KEY}"), f"<p>{BASIC}")]
    return written_by_vcrpy("theirs.yml", *echoes, of=KEY)


@pytest.mark.parametrize("to", ENDINGS)
@pytest.mark.parametrize("known_by", ["header", "environment", "keyring"])
def test_a_key_that_is_known_is_removed_wherever_it_was_echoed(
    known_by: str, theirs: Path, to: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key may be known from a header, or only on the machine that converts the cassette."""
    unaware = recorded("tour.yaml", answered(body=f'{{"id": "{KEY}"}}'))
    if known_by == "environment":
        monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
    if known_by == "keyring":
        monkeypatch.setattr(credentials, "remembered_api_key", {BASE_URL: ApiKey(KEY)}.get)
    path, target = theirs if known_by == "header" else unaware, Path(f"end{ENDINGS[to]}")
    assert traces(path.read_bytes(), KEY) != []
    convert(path, target, to)
    redact(path, ["personal"])

    assert traces(target.read_bytes(), KEY) == traces(path.read_bytes(), KEY) == []


@pytest.mark.parametrize("to", ENDINGS)
def test_a_key_that_redaction_misses_is_not_written(
    theirs: Path, to: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole text is searched once more, and the file at the target is unchanged."""
    monkeypatch.setattr(Redactor, "interaction", lambda _, interaction: interaction)
    target = Path(f"end{ENDINGS[to]}")
    target.write_text("before")
    with pytest.raises(CassetteError, match="still contained the key after redaction"):
        convert(theirs, target, to)

    assert target.read_text() == "before"
    assert list(Path().glob(".*")) in ([], [Path(f".{target.name}.lock")])


def test_redacting_again_changes_values_and_replays(tour: Path) -> None:
    """Named fields become pseudonyms, the return value counts them, and requests still match."""
    changed = [redact(tour, ["company.name", "personal"]) for _ in range(2)]
    text = tour.read_text(encoding="utf-8")
    dm.replay("tour")

    assert changed == [True, False]
    assert "Stand-in Company" not in text
    assert "stand-in@example.com" not in text
    assert dm.get("/v1/lists", params={"page": "2"}).status_code == 200


@pytest.mark.parametrize(("suffix", "rules"), [(".json", ("personal",)), (".har", ())])
def test_redacting_again_keeps_the_layout_that_the_suffix_names(
    tour: Path, suffix: str, rules: tuple[str, ...]
) -> None:
    """Browsers and vcrpy choose how to read a file by its suffix. JSON also keeps the rules."""
    file = Path(f"tour{suffix}")
    convert(tour, file, layout_of(file))
    changed = [redact(file, ["personal"]) for _ in range(2)]

    assert changed == [True, False]
    assert "stand-in@example.com" not in file.read_text(encoding="utf-8")
    assert (read_cassette(file).layout, read_cassette(file).redact) == (suffix[1:], rules)


@pytest.mark.parametrize("to", ENDINGS)
def test_an_empty_cassette_is_converted_and_a_missing_file_is_an_error(to: Layout) -> None:
    """A HAR file without entries counts as empty. A missing file is named in the error."""
    Path("empty.yaml").touch()
    Path("empty.har").write_text('{"log": {"entries": []}}')
    target = Path(f"end{ENDINGS[to]}")

    for name in ("empty.yaml", "empty.har"):
        assert convert(Path(name), target, to) == 0
        assert convert(target, Path("back.yaml"), "lines") == 0
        assert read_cassette(Path("back.yaml")).problem is None
    with pytest.raises(CassetteError, match="nowhere"):
        convert(Path("nowhere.yaml"), target, to)
    Path("empty.har").write_text("<html>")
    with pytest.raises(dm.errors.CassetteFormatError):
        convert(Path("empty.har"), Path("out.yaml"), to)
    assert not Path("out.yaml").exists()


def test_converting_a_binary_body_to_vcrpys_json_is_an_error() -> None:
    """vcrpy's JSON has only text bodies; no file is written."""
    recorded("tour.yaml", answered(), answered(body=b"\xff"))
    with pytest.raises(CassetteError, match="body is not text"):
        convert(Path("tour.yaml"), Path("tour.json"), "json")

    assert not Path("tour.json").exists()


@pytest.mark.posix("links")
@pytest.mark.parametrize("to", ["out.har", "out.yaml"])
def test_a_rewrite_does_not_write_through_a_symlink(tour: Path, to: str) -> None:
    """A symlink at the temporary file's path is replaced, and its target is unchanged."""
    victim = Path("victim")
    victim.write_text("mine")
    Path(f".{to}.new").symlink_to(victim.resolve())
    convert(tour, Path(to), layout_of(Path(to)))

    assert victim.read_text() == "mine"


def test_a_cassette_in_use_is_not_rewritten(live: Session) -> None:
    """While a cassette is being recorded, neither redaction nor repair changes it."""
    with live.record("busy"):
        live.me()
        before = Path("cassettes/busy.yaml").read_bytes()
        for change in (lambda path: redact(path, ["personal"]), repair):
            with pytest.raises(dm.errors.CassetteInUseError):
                change(Path("cassettes/busy.yaml"))

        assert Path("cassettes/busy.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("date", "at"),
    [
        ("Sun, 22 Nov 2020 13:57:06 GMT", datetime(2020, 11, 22, 13, 57, 6, tzinfo=UTC)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("Sun, 00 Nov 0001 00:00:00 +2359", None),
        ("yesterday", None),
    ],
)
def test_a_vcrpy_interaction_takes_its_time_from_the_date_header(
    date: str, at: datetime | None
) -> None:
    """A malformed date gives no time, and the cassette is still read."""
    interaction = answered()
    headers = (*interaction.response.headers, ("Date", date))
    response = replace(interaction.response, headers=headers)
    path = written_by_vcrpy("theirs.yaml", replace(interaction, response=response))
    redact(path, [])

    assert [each.recorded_at for each in read_cassette(path)] == [at]


@pytest.mark.parametrize("name", ["convert", "redact"])
def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The file lock only stops this package, so each rewrite checks for other changes."""
    path = tmp_path / "tour.yaml"
    recorded(path, answered(get()))
    calls: dict[str, Callable[[], object]] = {
        "convert": lambda: convert(path, path, "vcrpy"),
        "redact": lambda: redact(path, ["name"]),
    }

    def read_as_it_changes(file: Path) -> FileRecording:
        recording = read_cassette(file)
        if file == path:
            file.write_text(f"{path.read_text()}# by another\n")
        return recording

    monkeypatch.setattr("directmail_lab.cassettes.convert.read_cassette", read_as_it_changes)
    with pytest.raises(CassetteInUseError, match=r"changed .* meanwhile"):
        calls[name]()

    assert path.read_text().endswith("# by another\n")
    assert [each.name for each in tmp_path.iterdir()] == ["tour.yaml"]


# -- HAR ---------------------------------------------------------------------------------------


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
        Request,
        st.sampled_from(["GET", "POST"]),
        tokens.map("https://api.test/v1/{0}?q={0}".format),
        headers,
        st.none() | bodies,
    ),
    st.builds(Response, st.integers(100, 599), tokens, headers, bodies),
    st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),
    st.none() | st.floats(0, 100),
)


@given(interactions=st.lists(exchanges, max_size=3))
def test_a_har_round_trip_loses_nothing(interactions: list[Interaction]) -> None:
    """Bytes that are not text, repeated headers and times are unchanged."""
    assert read_har(har_text(interactions).encode(), Path("a.har")) == (interactions, None)


def test_the_document_has_every_field_that_the_specification_requires() -> None:
    """Any HAR viewer must open it. Reading also accepts a byte order mark, as on Windows."""
    assert read_har(b'\xef\xbb\xbf{"log": {"entries": []}}', Path("a.har")) == ([], None)
    exchange = Interaction(Request("GET", "https://a.test/?a=1&b="), Response(200))
    log = json.loads(har_text([exchange]))["log"]

    entry = log["entries"][0]
    assert {"version", "creator"} <= log.keys()
    assert {"startedDateTime", "time", "request", "response", "cache", "timings"} <= entry.keys()
    common = {"httpVersion", "cookies", "headers", "headersSize", "bodySize"}
    assert common | {"method", "url", "queryString"} <= entry["request"].keys()
    assert common | {"status", "statusText", "content", "redirectURL"} <= entry["response"].keys()


# What Chromium saves of one request with a key and one blocked request.
CHROMIUM = """{"log": {"version": "1.2", "creator": {"name": "WebInspector", "version": "537.36"},
"pages": [], "entries": [{"_initiator": {"type": "other"},
"startedDateTime": "2026-11-21T04:00:00.000Z", "time": 42.5,
"request": {"method": "GET", "url": "https://api.test/v1/users/me?trace=KEY", "httpVersion": "h2",
"headers": [{"name": ":authority", "value": "api.test"},
{"name": "authorization", "value": "BASIC"}]},
"response": {"status": 200, "statusText": "", "headers": [
{"name": "content-encoding", "value": "gzip"}, {"name": "content-length", "value": "99"}],
"content": {"size": 12, "mimeType": "application/json", "text": "{\\"you\\": \\"KEY\\"}"}}},
{"request": {"method": "GET", "url": "https://ads.test/"}, "response": {"status": 0}}]}}"""


def test_a_browsers_file_is_read_and_its_key_is_learned_and_removed() -> None:
    """The redactor learns the key from the file's own Authorization header."""
    text = CHROMIUM.replace("KEY", KEY).replace("BASIC", BASIC)
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


def test_separate_form_fields_and_query_parameters_are_merged() -> None:
    """Insomnia writes form fields and query parameters apart from the body and the address."""
    entry = {
        "request": {
            "url": "https://api.test/v1/letters",
            "method": "POST",
            "queryString": [{"name": "dry", "value": "1"}],
            "postData": {"mimeType": "x", "params": [{"name": "a b", "value": "c&d"}]},
        },
        "response": {"status": 201},
    }
    exchange = only(entry)

    assert exchange.request.uri == "https://api.test/v1/letters?dry=1"
    assert exchange.request.body == b"a+b=c%26d"
    assert exchange.response == Response(201)
    assert (exchange.recorded_at, exchange.elapsed_s) == (None, None)


def in_log(entry: str) -> str:
    return f'{{"log": {{"entries": [{entry}]}}}}'


def only(entry: object) -> Interaction:
    ((interaction,), _) = read_har(in_log(json.dumps(entry)).encode(), Path("a.har"))
    return interaction


@pytest.mark.parametrize(
    ("method", "response", "body"),
    [
        # From Playwright: contents omitted by an option, and a redirect.
        ("GET", {"content": {"size": -1}, "bodySize": -1}, b"<not recorded: ? bytes>"),
        ("GET", {"content": {"size": -1}, "bodySize": 266}, b"<not recorded: 266 bytes>"),
        ("GET", {"content": {"size": -1}, "headers": "7"}, b"<not recorded: 7 bytes>"),
        ("GET", {"content": {"size": -1}, "bodySize": -1, "headers": "0"}, b""),
        # From Chromium, which drops large contents.
        ("GET", {"content": {"size": 5000, "mimeType": "x"}}, b"<not recorded: 5000 bytes>"),
        ("GET", {"content": {"size": 0, "text": ""}, "bodySize": -1}, b""),
        ("GET", {"content": {"text": ""}, "bodySize": -1}, b""),
        ("GET", {"status": 204, "content": {"size": -1}}, b""),
        ("GET", {"status": 304, "content": {"size": 266}}, b""),
        ("GET", {"status": 302, "content": {"size": -1}, "bodySize": -1}, b""),
        ("HEAD", {"content": {"size": -1}, "headers": "7"}, b""),
    ],
)
def test_an_omitted_response_body_is_not_read_as_empty(
    method: str, response: dict[str, Any], body: bytes
) -> None:
    """A note with its size, if known, replaces the body."""
    length = response.pop("headers", None)
    headers = [{"name": "Content-Length", "value": length}] if length else []
    request = {"method": method, "url": "https://api.test/"}
    entry = {"request": request, "response": {"status": 200, "headers": headers, **response}}

    assert only(entry).response.body == body


def test_a_response_with_an_omitted_body_is_not_replayed(tmp_path: Path) -> None:
    """No caller must take the note about a missing body for the service's response."""
    request = {"method": "GET", "url": "https://api.test/"}
    entry = {"request": request, "response": {"status": 200, "content": {"size": 5000}}}
    (tmp_path / "a.har").write_text(in_log(json.dumps(entry)))

    with pytest.raises(NotRecordedError, match=r"without its body \(not recorded: 5000 bytes\)"):
        Cassette(tmp_path / "a.har").play(Request("GET", "https://api.test/"))


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
def test_an_omitted_upload_differs_from_a_request_without_a_body(
    request_: dict[str, Any], body: bytes | None
) -> None:
    """A request that never had a body still has none."""
    length = request_.pop("headers", None)
    headers = [{"name": "Content-Length", "value": length}] if length else []
    request = {"method": "POST", "url": "https://api.test/", "headers": headers, **request_}

    assert only({"request": request, "response": {"status": 200}}).request.body == body


PDF = b"%PDF-1.7\n" + bytes(range(128, 256)) * 2


@pytest.mark.parametrize(
    ("mime_type", "text", "size", "body"),
    [
        ("application/pdf", PDF.decode("latin-1"), len(PDF), PDF),  # from mitmproxy
        ("application/pdf", "é", 2, "é".encode()),
        ("application/pdf", "é", 7, "é".encode()),
        ("application/pdf", "é", -1, "é".encode()),
        ("text/html; charset=utf-8", "é", 1, "é".encode()),
        # Some programs count characters, but JSON is UTF-8 anyway.
        ("application/json", '"é"', 3, '"é"'.encode()),
        ("text/plain", "€", 1, "€".encode()),
    ],
)
def test_text_that_does_not_match_its_size_is_tried_as_latin_1(
    mime_type: str, text: str, size: int, body: bytes
) -> None:
    """A response or an upload may have a type that names no charset; the size shows Latin-1."""
    about = {"mimeType": mime_type, "text": text}
    request = {"method": "POST", "url": "https://api.test/", "bodySize": size, "postData": about}
    entry = {"request": request, "response": {"status": 200, "content": {"size": size, **about}}}
    interaction = only(entry)

    assert (interaction.response.body, interaction.request.body) == (body, body)


def test_converting_says_how_many_bodies_are_not_there() -> None:
    """The message gives their total size, if known. For a complete file it says nothing."""
    sizes = [{"size": 1200}, {"size": 34}, {"size": -1}, {"text": "whole"}]
    request = {"url": "https://api.test/", "bodySize": 0}
    entries = [{"request": request, "response": {"status": 200, "content": c}} for c in sizes]
    Path("a.har").write_text(json.dumps({"log": {"entries": entries}}))
    Path("whole.har").write_text(json.dumps({"log": {"entries": entries[3:]}}))
    said, of_whole = (
        CliRunner().invoke(app, ["cassette", "convert", name, f"{name}.yaml"]).output
        for name in ("a.har", "whole.har")
    )

    assert "whole.har lacks" not in of_whole
    assert said.startswith(
        "a.har lacks the content of 3 messages (1,234 bytes, and 1 of unknown size); each became "
        "<not recorded: N bytes>. Save it again with the contents of requests and responses.\n"
    )


def entry_of(url: str = "https://api.test/", *, method: str = "GET", **response: Any) -> Any:
    """Return an entry of a HAR file."""
    response = {"status": 200, **response}
    return {"request": {"method": method, "url": url}, "response": response}


def test_what_is_no_interaction_is_left_out_and_named() -> None:
    """A conversion and a replay say how many entries, and why; the others are there."""
    entries = [
        entry_of(),
        *(entry_of(f"{scheme}:a") for scheme in ("data", "blob", "chrome-extension", "about")),
        entry_of("api.test:443", method="CONNECT"),
        {"request": {"method": "GET", "url": "https://api.test/"}},
        entry_of(headers=7),
    ]
    Path("a.har").write_text(json.dumps({"log": {"entries": entries}}))
    said = CliRunner().invoke(app, ["cassette", "convert", "a.har", "a.yaml"]).output

    assert said == (
        "a.har: left out of its entries: 5 that ask no server (data:, blob:, an extension's, "
        "CONNECT), 1 without a response, 1 that cannot be read (the first: Entry 8 of a.har cannot "
        "be read: a part of it is missing, or of another type).\nWrote 1 interaction to a.yaml.\n"
    )
    assert read_cassette(Path("a.har")).problem in said
    repair(Path("a.har"))
    assert len(read_cassette(Path("a.har"))) == 1


@pytest.mark.parametrize(
    ("content", "body"),
    [
        # A program that removes private data replaced it.
        ({"encoding": "base64", "text": "[removed]", "size": 9}, b"<not recorded: 9 bytes>"),
        ({"encoding": "base64", "text": "aGVs\r\nbG8="}, b"hello"),
        ({"encoding": "base64", "text": base64.b64encode(gzip.compress(b"hi")).decode()}, b"hi"),
        ({"text": gzip.compress(b"hi").decode("latin-1"), "size": 2}, b"hi"),
        ({"text": "\x1f\ufffd\x08\0", "size": 2}, b"<not recorded: 2 bytes>"),
        ({"_file": f"{'a' * 40}.json"}, b"beside"),
        ({"_file": "secret.env"}, b"<not recorded: ? bytes>"),
        ({"_file": f"../{'a' * 40}.json", "size": 6}, b"<not recorded: 6 bytes>"),
    ],
)
def test_a_body_is_read_wherever_a_program_puts_it(content: dict[str, Any], body: bytes) -> None:
    """One that is damaged, not there, or another file than Playwright's is said to be missing."""
    Path(f"{'a' * 40}.json").write_text("beside")
    Path("secret.env").write_text("beside")
    coding = [{"name": "Content-Encoding", "value": "gzip"}]

    assert only(entry_of(content=content, headers=coding)).response.body == body


@pytest.mark.parametrize(
    "text",
    [
        *("", "\xff\xfe", "7", '{"log": {"entries": {}}}', "[" * 100_000, in_log("7")),
        in_log('{"response": {"status": 200}}'),
        in_log('{"request": {"url": "http://[::"}, "response": {"status": 200}}'),
        in_log('{"request": {"url": "https://a/", "headers": 7}, "response": {"status": 2}}'),
    ],
)
def test_junk_is_a_format_error(text: str) -> None:
    """Any malformed file raises our error, which contains no value from the file."""
    with pytest.raises(CassetteFormatError, match=r"a\.har"):
        read_har(text.encode("latin-1"), Path("a.har"))
