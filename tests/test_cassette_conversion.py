"""Rewritten cassettes: converted from another layout or HAR, redacted again, repaired."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    get,
    har,
    loaded_by_vcrpy,
    opened,
    recorded,
    theirs as written_by_vcrpy,
)
from key_search import traces
from typer.testing import CliRunner
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import yamlserializer

import directmail_lab as dm
from directmail_lab import credentials
from directmail_lab.cassettes import Cassette, FileRecording, read_cassette
from directmail_lab.cassettes.convert import convert, redact, repair
from directmail_lab.cassettes.har import read_har
from directmail_lab.cli import app
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import (
    CassetteError,
    CassetteFormatError,
    CassetteInUseError,
    NotRecordedError,
)
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.redaction import Redactor
from directmail_lab.server.standin import STAND_IN_KEY

if TYPE_CHECKING:
    from directmail_lab.cassettes import FileRecording
    from directmail_lab.sessions.session import Session

# No rule recognizes this key by its shape, only by its place.
KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
BASIC = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()


def in_layout(kind: str, *interactions: Interaction) -> Path:
    """Write interactions in a layout: ours, vcrpy's YAML, JSON, or HAR."""
    if kind == "lines":
        return recorded("middle.yaml", *interactions)
    if kind == "har":
        return har("middle.har", *interactions)
    return written_by_vcrpy(f"middle.{kind}", *interactions, as_json=kind == "json")


@pytest.fixture
def tour(live: Session) -> Path:
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


@pytest.mark.parametrize("kind", ["lines", "yml", "json", "har"])
def test_a_conversion_to_our_layout_loses_nothing(tour, kind):
    """vcrpy loads it, and no file contains the key."""
    middle = in_layout(kind, *read_cassette(tour))
    converted = convert(middle, Path("ours.yaml"))
    loaded = FilesystemPersister.load_cassette(Path("ours.yaml"), yamlserializer)[0]

    assert converted == len(loaded) == 3
    assert contents(Path("ours.yaml")) == contents(tour)
    assert read_cassette(Path("ours.yaml")).layout == "lines"
    assert all(STAND_IN_KEY.encode() not in path.read_bytes() for path in Path().rglob("*.*"))


@pytest.fixture
def theirs() -> Path:
    """A cassette by vcrpy without filters: the key is in a header and echoed in the bodies."""
    request = replace(get(), headers=(("Authorization", BASIC),))
    echoes = [answered(request, f'{{"key": "{KEY}"}}'), answered(get(f"/v1/{KEY}"), f"<p>{BASIC}")]
    return written_by_vcrpy("theirs.yml", *echoes, of=KEY)


@pytest.mark.parametrize("known_by", ["header", "environment", "keyring"])
def test_a_key_that_is_known_is_removed_wherever_it_was_echoed(known_by, theirs, monkeypatch):
    """The key may be known from a header, or only on the machine that converts the cassette."""
    path = theirs
    if known_by != "header":
        path = recorded("tour.yaml", answered(body=f'{{"id": "{KEY}"}}'))
    if known_by == "environment":
        monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
    if known_by == "keyring":
        monkeypatch.setattr(credentials, "remembered_api_key", {BASE_URL: ApiKey(KEY)}.get)
    target = Path("end.yaml")
    assert traces(path.read_bytes(), KEY) != []
    convert(path, target)
    redact(path, ["personal"])

    assert traces(target.read_bytes(), KEY) == traces(path.read_bytes(), KEY) == []


def test_a_key_that_redaction_misses_is_not_written(theirs, monkeypatch):
    """The whole text is searched once more, and the file at the target is unchanged."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
    monkeypatch.setattr(Redactor, "interaction", lambda _, interaction: interaction)
    monkeypatch.setattr(Redactor, "interactions", lambda _, interactions: list(interactions))
    target = Path("end.yaml")
    target.write_text("before")
    with pytest.raises(CassetteError, match="still contained the key after redaction"):
        convert(theirs, target)

    assert target.read_text() == "before"
    assert list(Path().glob(".*")) in ([], [Path(f".{target.name}.lock")])


def test_redacting_again_changes_nothing_more(tour):
    """Named fields become pseudonyms, and requests still match."""
    changed = [redact(tour, ["company.name", "personal"]) for _ in range(2)]
    text = tour.read_text(encoding="utf-8")

    assert changed == [True, False]
    assert "Stand-in Company" not in text
    assert "stand-in@example.com" not in text
    assert read_cassette(tour).redact == ("company.name", "personal")
    with dm.replay(tour):
        assert dm.get("/v1/lists", params={"page": "2"}).status_code == 200


@pytest.mark.parametrize("kind", ["json", "har"])
def test_a_file_that_is_not_yaml_is_converted_before_it_is_redacted(tour, kind):
    """The old file still has what is to go, so the error says to delete it."""
    theirs = in_layout(kind, *read_cassette(tour))
    before = theirs.read_bytes()
    said = CliRunner().invoke(app, ["cassette", "redact", theirs.name])

    assert str(said.exception) == (
        f"{theirs.name} is not YAML, so it cannot be redacted.\nConvert it, redact the new file, "
        "and delete this one, which has what is to go: directmail-lab cassette convert "
        f"{theirs.name} NAME.yaml."
    )
    assert theirs.read_bytes() == before


def test_an_empty_cassette_is_converted_and_a_missing_file_is_an_error():
    """A HAR file without entries counts as empty. A missing file is named in the error."""
    Path("empty.yaml").touch()

    for name in ("empty.yaml", str(written())):
        assert convert(Path(name), Path("back.yaml")) == 0
        assert read_cassette(Path("back.yaml")).problem is None
    with pytest.raises(CassetteError, match="nowhere"):
        convert(Path("nowhere.yaml"), Path("back.yaml"))


def test_a_cassette_in_use_is_not_rewritten(live):
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
def test_a_vcrpy_interaction_takes_its_time_from_the_date_header(date, at):
    interaction = answered()
    headers = (*interaction.response.headers, ("Date", date))
    response = replace(interaction.response, headers=headers)
    path = written_by_vcrpy("theirs.yaml", replace(interaction, response=response))
    redact(path, [])

    assert [each.recorded_at for each in read_cassette(path)] == [at]


@pytest.mark.parametrize(
    "rewrite", [lambda path: convert(path, path), lambda path: redact(path, ["name"])]
)
def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(
    tmp_path, monkeypatch, rewrite
):
    """The file lock only stops this package, so each rewrite checks for other changes."""
    path = tmp_path / "tour.yaml"
    recorded(path, answered(get()))

    def read_as_it_changes(file: Path) -> FileRecording:
        recording = read_cassette(file)
        if file == path:
            file.write_text(f"{path.read_text()}# by another\n")
        return recording

    monkeypatch.setattr("directmail_lab.cassettes.convert.read_cassette", read_as_it_changes)
    with pytest.raises(CassetteInUseError, match=r"changed .* meanwhile"):
        rewrite(path)

    assert path.read_text().endswith("# by another\n")
    assert [each.name for each in tmp_path.iterdir()] == ["tour.yaml"]


# -- HAR ---------------------------------------------------------------------------------------


# What Chromium saves of one request with a key and one blocked request.
CHROMIUM = """{"log": {"version": "1.2", "creator": {"name": "WebInspector", "version": "537.36"},
"pages": [], "entries": [{"_initiator": {"type": "other"},
"startedDateTime": "2026-11-21T04:00:00.000Z", "time": 42.5,
"request": {"method": "GET", "url": "https://api.test/v1/users/me?trace=KEY", "httpVersion": "h2",
"headers": [{"name": ":authority", "value": "api.test"},
{"name": "authorization", "value": "BASIC"}], "headersSize": -1, "bodySize": 0},
"response": {"status": 200, "statusText": "", "headers": [
{"name": "content-encoding", "value": "gzip"}, {"name": "content-length", "value": "99"}],
"content": {"size": 12, "mimeType": "application/json", "text": "{\\"you\\": \\"KEY\\"}"}}},
{"request": {"method": "GET", "url": "https://ads.test/"}, "response": {"status": 0}}]}}"""


def test_a_browsers_file_is_read_and_its_key_is_learned_and_removed():
    """The redactor learns the key from the file's Authorization header. Windows adds a mark."""
    text = CHROMIUM.replace("KEY", KEY).replace("BASIC", BASIC)
    Path("browser.har").write_text(text, encoding="utf-8-sig")
    convert(Path("browser.har"), Path("tour.yaml"))
    interactions = list(read_cassette(Path("tour.yaml")).interactions)

    assert traces(repr([astuple(each) for each in interactions]).encode(), KEY) == []
    (exchange,) = interactions
    assert exchange.request.uri == "https://api.test/v1/users/me?trace=<REDACTED>"
    assert exchange.request.headers == ()
    assert exchange.response.body == b'{"you": "<REDACTED>"}'
    assert exchange.response.headers == (("content-length", "21"),)
    assert exchange.recorded_at == datetime(2026, 11, 21, 4, 0, 0, 42500, UTC)
    assert exchange.elapsed_s == 0.0425


def entry_of(
    request: dict[str, Any] | None = None, content: dict[str, Any] | None = None, **response: Any
) -> dict[str, Any]:
    request_ = {"method": "GET", "url": "https://api.test/", "headers": [], "bodySize": 0}
    response_ = {"status": 200, "statusText": "", "headers": [], "content": content or {"size": 0}}
    return {
        "startedDateTime": "2026-11-21T04:00:00.000Z",
        "time": 0,
        "request": request_ | (request or {}),
        "response": response_ | response,
    }


def written(*entries: dict[str, Any]) -> Path:
    path = Path("a.har")
    path.write_text(json.dumps({"log": {"entries": entries}}))
    return path


def only(entry: dict[str, Any]) -> Interaction:
    path = written(entry)
    ((interaction,), problem) = read_har(path.read_bytes(), path)
    assert problem is None
    return interaction


def test_a_json_file_that_is_har_says_how_it_must_be_named():
    path = written(entry_of()).rename("a.json")
    with pytest.raises(CassetteFormatError, match=r"a\.json is .* HAR\. .* must end in \.har"):
        read_cassette(path)


@pytest.mark.parametrize(
    ("method", "response", "body"),
    [
        # From Playwright: contents omitted by an option, and a redirect.
        ("GET", {"content": {"size": -1}}, b"<not recorded: ? bytes>"),
        ("GET", {"status": 302, "content": {"size": -1}}, b""),
        # From Chromium, which drops large contents.
        ("GET", {"status": 206, "content": {"size": 5}}, b"<not recorded: 5 bytes>"),
        ("GET", {"content": {"size": 0}}, b""),
        ("GET", {"status": 204, "content": {"size": -1}}, b""),
        ("GET", {"status": 304, "content": {"size": 266}}, b""),
        ("HEAD", {"content": {"size": -1}}, b""),
    ],
)
def test_an_omitted_response_body_is_not_read_as_empty(method, response, body):
    """A note with its size, if known, replaces the body, and is not replayed as if it were one."""
    interaction = only(entry_of({"method": method}, **response))

    assert interaction.response.body == body
    if body:
        with pytest.raises(NotRecordedError, match="without its body"):
            Cassette(Path("a.har")).play(interaction.request)


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        ({"bodySize": 266}, b"<not recorded: 266 bytes>"),
        ({"bodySize": 0}, None),
        ({"bodySize": -1}, None),
        ({"postData": {"mimeType": "text/plain", "text": ""}}, b""),
        ({"postData": {"mimeType": "x", "text": ""}, "bodySize": 9}, b"<not recorded: 9 bytes>"),
        (
            {"postData": {"mimeType": "multipart/form-data", "params": [{"name": "file"}]}},
            b"<not recorded: ? bytes>",
        ),
        (
            {"postData": {"mimeType": "x", "params": [{"name": "a b", "value": "c&d"}]}},
            b"a+b=c%26d",
        ),
        (
            {"postData": {"mimeType": "x", "text": "", "params": [{"name": "a", "value": "c"}]}},
            b"a=c",
        ),
    ],
)
def test_a_request_body_is_text_or_fields_or_is_said_to_be_missing(request_, body):
    """A request that never had a body still has none. Chromium leaves out uploaded files."""
    assert only(entry_of({"method": "POST", **request_})).request.body == body


def test_converting_says_how_many_bodies_are_not_there():
    """Each has its size, if known. For a complete file it says nothing."""
    sizes = [{"size": 1200}, {"size": 34}, {"size": -1}, {"text": "whole"}]
    entries = [entry_of(content=content) for content in sizes]
    written(entries[3]).rename("whole.har")
    written(*entries)
    said, of_whole = (
        CliRunner().invoke(app, ["cassette", "convert", name, f"{name}.yaml"]).output
        for name in ("a.har", "whole.har")
    )

    assert "whole.har lacks" not in of_whole
    assert said.startswith(
        "a.har lacks the content of 3 messages; each became <not recorded: N bytes>. Save it "
        "again with the contents of requests and responses.\n"
    )


def test_what_is_no_interaction_is_left_out_and_counted():
    """A conversion and a replay say how many entries; the others are there."""
    urls = [*(f"{scheme}:a" for scheme in ("data", "blob", "about")), "api.test:443"]
    entries = [entry_of(), *(entry_of({"url": url}) for url in urls), entry_of(status=0)]
    path = written(*entries, {"request": {"url": "https://api.test/"}})
    said = CliRunner().invoke(app, ["cassette", "convert", "a.har", "a.yaml"]).output

    assert said == (
        "a.har: left out 6 of its 7 entries, which have no response, or an address that leads to "
        "no server.\nWrote 1 interaction to a.yaml.\n"
    )
    assert str(read_cassette(path).problem) in said


def test_an_odd_entry_costs_no_other_one():
    """Its number is named; without a size of the request, as Polly.JS has none, it is not odd."""
    plain = entry_of()
    del plain["request"]["bodySize"]
    path = written(plain, entry_of({"headers": 7}), entry_of(status=0), entry_of())
    interactions, problem = read_har(path.read_bytes(), path)

    assert len(interactions) == 2
    assert problem == (
        "left out what cannot be read, number 2 of its entries; left out 1 of its 4 entries, "
        "which have no response, or an address that leads to no server"
    )


@pytest.mark.parametrize(
    ("content", "body"),
    [
        ({"encoding": "base64", "text": '["aGVs", "bG8="]'}, b"hello"),
        ({"encoding": "base64", "text": "aGVs\r\nbG8="}, b"hello"),
        ({"encoding": "base64", "text": base64.b64encode(gzip.compress(b"hi")).decode()}, b"hi"),
        ({"text": "é", "mimeType": "text/html; charset=latin-1"}, b"\xe9"),
        ({"text": "€", "mimeType": "text/html; charset=latin-1"}, "€".encode()),
        ({"text": "é", "mimeType": "text/html; charset=none"}, "é".encode()),
        ({"_file": f"{'a' * 40}.json"}, b"beside"),
        ({"_file": "secret.env"}, b"<not recorded: ? bytes>"),
        ({"size": 6, "_file": f"../{'a' * 40}.json"}, b"<not recorded: 6 bytes>"),
    ],
)
def test_a_body_is_read_wherever_a_program_puts_it(content, body):
    """One that is not there, or is another file than Playwright's, is said to be missing."""
    Path(f"{'a' * 40}.json").write_text("beside")
    Path("secret.env").write_text("beside")
    coding = [{"name": "Content-Encoding", "value": "gzip"}]
    response = only(entry_of(content={"size": -1, **content}, headers=coding)).response

    assert response.body == body


@pytest.mark.parametrize(
    "text",
    [
        *("", "\xff\xfe", "7", '{"log": {"entries": 7}}', "[" * 100_000),
        *(
            json.dumps({"log": {"entries": [entry]}})
            for entry in (
                7,
                {"response": {"status": 200}},
                entry_of({"url": "http://[::"}),
                entry_of({"headers": 7}),
                entry_of(status="x"),
                entry_of(content={"encoding": "base64", "text": "[removed]"}),
            )
        ),
    ],
)
def test_junk_is_a_format_error(text):
    with pytest.raises(CassetteFormatError, match=r"a\.har"):
        read_har(text.encode("latin-1"), Path("a.har"))


# -- conflicts of a merge --------------------------------------------------------------------------


def git(folder: Path, *words: str) -> int:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True).returncode


def record_on_branch(path: Path, branch: str, *interactions: Interaction) -> list[Interaction]:
    git(path.parent, "checkout", "-qb", branch, "main")
    base_url = interactions[0].request.uri.rpartition("/")[0]
    with opened(path, "update", base_url=base_url) as cassette:
        for each in interactions:
            cassette.record(each)
    git(path.parent, "add", ".")
    git(path.parent, "commit", "-qm", branch)
    return read_cassette(path).interactions


def merged_by_git(path: Path, *sides: list[Interaction], base: int = 2) -> list[list[Interaction]]:
    """Return what each branch has in a cassette whose merge has left a conflict."""
    git(path.parent, "init", "-qb", "main")
    (path.parent / "README").touch()
    if base:
        recorded(path, *[answered(get(f"/{number}"), "old") for number in range(base)])
    git(path.parent, "add", ".")
    git(path.parent, "commit", "-qm", "base")
    each = [record_on_branch(path, name, *side) for name, side in zip("ab", sides, strict=True)]
    assert git(path.parent, "merge", "-q", "a") == 1
    return each


@pytest.mark.parametrize("style", ["merge", "diff3"])
@pytest.mark.parametrize(
    ("first", "second", "base", "bodies"),
    [
        (["/mine"], ["/yours"], 2, ["old", "old", "/yours", "/mine"]),
        (["/1"], ["/yours"], 2, ["old", "old", "/yours", "/1"]),
        (["/1"], ["/1", "/2"], 2, ["old", "/1", "/2"]),
        (["/mine"], ["/yours"], 0, ["/yours", "/mine"]),
    ],
    ids=["both appended", "replaced and appended", "both replaced", "both created"],
)
def test_repair_keeps_both_sides_of_a_conflict(tmp_path, style, first, second, base, bodies):
    """Two colleagues recorded in it: nothing of either is lost, and nothing is there twice."""
    path = tmp_path / "tour.yaml"
    git(tmp_path, "init", "-qb", "main")
    git(tmp_path, "config", "merge.conflictStyle", style)
    parts = [[answered(get(each), each) for each in side] for side in (first, second)]
    sides = merged_by_git(path, *parts, base=base)
    with pytest.raises(CassetteFormatError, match="both sides: directmail-lab cassette repair"):
        read_cassette(path)
    said = repair(path)

    joined = read_cassette(path).interactions
    assert {*joined} == {*sides[0], *sides[1]}
    assert len({*joined}) == len(joined)
    assert loaded_by_vcrpy(path) == len(joined)
    assert [each.response.body.decode() for each in joined] == bodies
    (line,) = said
    assert f"of the first and {len(joined) - len(sides[1])} of the second" in line


def test_a_merge_of_two_services_is_left_to_its_person(tmp_path):
    path = tmp_path / "tour.yaml"
    sides = [[answered(get("/1", base=f"https://{name}.example.test"))] for name in "ab"]
    merged_by_git(path, *sides, base=0)
    before = path.read_bytes()
    with pytest.raises(CassetteError, match=r"two services, https://b\..* and https://a\."):
        repair(path)

    assert path.read_bytes() == before


def test_a_file_with_two_heads_is_an_error(tmp_path):
    """`merge=union` joins two branches that both create a file; vcrpy reads half of that."""
    path = tmp_path / "tour.yaml"
    git(tmp_path, "init", "-qb", "main")
    (tmp_path / ".gitattributes").write_text("*.yaml merge=union\n")
    sides = [[answered(get(each))] for each in ("/mine", "/yours")]
    git(path.parent, "add", ".")
    git(path.parent, "commit", "-qm", "base")
    for name, side in zip("ab", sides, strict=True):
        record_on_branch(path, name, *side)

    assert git(tmp_path, "merge", "-q", "a") == 0
    with pytest.raises(CassetteFormatError, match="has two heads"):
        read_cassette(path)
