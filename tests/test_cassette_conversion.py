"""Cassettes made anew: converted between layouts, redacted once more, repaired."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassette_samples import BASE_URL, answered, get, recorded, theirs as written_by_vcrpy
from key_search import traces
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import jsonserializer, yamlserializer

import directmail_lab as dm
from directmail_lab import credentials
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import adopt, convert, layout_of, redact, repair
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, CassetteInUseError
from directmail_lab.exchange.values import RecordedResponse
from directmail_lab.redaction import Redactor
from directmail_lab.standin import STAND_IN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from directmail_lab.cassettes import FileRecording
    from directmail_lab.cassettes.convert import Layout
    from directmail_lab.sessions import Session

# No rule knows it by its shape: only where it stands says what it is.
KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
BASIC = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
ENDINGS = {"lines": ".yaml", "vcrpy": ".yml", "json": ".json", "har": ".har"}  # by layout


@pytest.fixture
def tour(live: Session) -> Path:
    """A cassette of three answers."""
    with live.record("tour"):
        live.me()
        live.request("GET", "/v1/lists", params={"page": "2"})
        live.request("GET", "/v1/nowhere")
    return Path("cassettes/tour.yaml")


def contents(path: Path) -> list[tuple[str, str, RecordedResponse]]:
    """Return what a cassette holds, headers by their names: vcrpy's YAML sorts them so."""
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
    """Requests and responses are the same after any two conversions; the key is in none."""
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
def test_vcrpy_loads_what_we_convert_for_it(tour: Path, to: Layout, serializer: object) -> None:
    """By its own persister, as pytest-recording's takes it; and it answers as ours does."""
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
    """A cassette as vcrpy writes it with no filters: the key in a header, echoed in the bodies."""
    request = replace(get(), headers=(("Authorization", BASIC),))
    echoes = [answered(request, f'{{"key": "{KEY}"}}'), answered(get(f"/v1/{KEY}"), f"<p>{BASIC}")]
    return written_by_vcrpy("theirs.yml", *echoes, of=KEY)


@pytest.mark.parametrize("to", ENDINGS)
@pytest.mark.parametrize("known_by", ["header", "environment", "keyring"])
def test_a_key_that_is_known_is_removed_wherever_it_was_echoed(
    known_by: str, theirs: Path, to: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the header it stands in; or from here, though who recorded it did not know it."""
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
    """The whole text is searched once more, and what stood at the target stays."""
    monkeypatch.setattr(Redactor, "interaction", lambda _, interaction: interaction)
    target = Path(f"end{ENDINGS[to]}")
    target.write_text("before")
    with pytest.raises(CassetteError, match="key was about to be written"):
        convert(theirs, target, to)

    assert target.read_text() == "before"
    assert list(Path().glob(".*")) in ([], [Path(f".{target.name}.lock")])


def test_redacting_again_changes_values_and_replays(tour: Path) -> None:
    """Named fields become pseudonyms, the count says in how many, and the requests still match."""
    changed = [redact(tour, ["company.name", "personal"]) for _ in range(2)]
    text = tour.read_text(encoding="utf-8")
    dm.replay("tour")

    assert changed == [2, 0]
    assert "Stand-in Company" not in text
    assert "stand-in@example.com" not in text
    assert dm.get("/v1/lists", params={"page": "2"}).status_code == 200


@pytest.mark.parametrize(("suffix", "rules"), [(".json", ("personal",)), (".har", ())])
def test_what_is_redacted_again_stays_what_its_name_says(
    tour: Path, suffix: str, rules: tuple[str, ...]
) -> None:
    """Other programs read it by its name: a browser HAR, vcrpy its JSON, which has the rules."""
    file = Path(f"tour{suffix}")
    convert(tour, file, layout_of(file))
    changed = [redact(file, ["personal"]) for _ in range(2)]

    assert changed == [2, 0]
    assert "stand-in@example.com" not in file.read_text(encoding="utf-8")
    assert (read_cassette(file).layout, read_cassette(file).redact) == (suffix[1:], rules)


def test_repair_keeps_every_whole_interaction(tour: Path) -> None:
    """A recording that broke off is closed; a whole one is left byte for byte."""
    whole = tour.read_bytes()
    assert repair(tour) == []
    assert tour.read_bytes() == whole

    for length, left in ((whole.rindex(b"# end") - 40, 2), (50, 0)):
        tour.write_bytes(whole[:length])
        (problem,) = repair(tour)

        assert f"{left} interactions recovered" in problem
        assert len(read_cassette(tour)) == left
        assert read_cassette(tour).problem is None


@pytest.mark.parametrize("to", ENDINGS)
def test_an_empty_cassette_is_converted_and_nothing_is_an_error(to: Layout) -> None:
    """Also a HAR file without entries; what is not there is said."""
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


def test_bytes_do_not_fit_into_vcrpys_json() -> None:
    """The message says where they fit."""
    recorded("tour.yaml", answered(), answered(body=b"\xff"))
    with pytest.raises(CassetteError, match="body is not text"):
        convert(Path("tour.yaml"), Path("tour.json"), "json")

    assert not Path("tour.json").exists()


@pytest.mark.parametrize("write", [lambda tour: convert(tour, Path("out.har"), "har"), repair])
def test_what_is_written_goes_through_no_link(tour: Path, write: Callable[[Path], object]) -> None:
    """A link in the place of the new file is replaced, and what it leads to is left."""
    victim = Path("victim")
    victim.write_text("mine")
    tour.write_bytes(tour.read_bytes()[:-40])
    for name in (Path(".out.har.new"), tour.with_name(".tour.yaml.new")):
        name.symlink_to(victim.resolve())
    write(tour)

    assert victim.read_text() == "mine"


def test_a_cassette_in_use_is_not_rewritten(live: Session) -> None:
    """While it is being recorded, neither redaction nor repair touches it."""
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
def test_the_time_of_vcrpys_interaction_is_what_the_response_says(
    date: str, at: datetime | None
) -> None:
    """A date that is none is no time, and the cassette is read all the same."""
    interaction = answered()
    headers = (*interaction.response.headers, ("Date", date))
    response = replace(interaction.response, headers=headers)
    path = written_by_vcrpy("theirs.yaml", replace(interaction, response=response))
    adopt(path)

    assert [each.recorded_at for each in read_cassette(path)] == [at]


@pytest.mark.parametrize("name", ["convert", "redact", "repair", "adopt"])
def test_a_file_that_another_program_changes_meanwhile_stays_as_that_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its lock holds back this package alone."""
    path = tmp_path / "tour.yaml"
    recorded(path, answered(get()))
    if name == "repair":
        path.write_text(path.read_text().partition("# end")[0])
    calls: dict[str, Callable[[], object]] = {
        "convert": lambda: convert(path, path, "vcrpy"),
        "redact": lambda: redact(path, ["name"]),
        "repair": lambda: repair(path),
        "adopt": lambda: adopt(path),
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
