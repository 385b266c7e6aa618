"""Cassettes made anew: converted between layouts, redacted once more, mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import vcr
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import jsonserializer, yamlserializer

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.conversion import LAYOUTS, convert, layout_of, redact, repair

if TYPE_CHECKING:
    from directmail_lab.cassettes.conversion import Layout
    from directmail_lab.interaction import RecordedResponse
    from directmail_lab.sessions import Session

ENDINGS = {"lines": ".yaml", "vcrpy": ".yml", "json": ".json", "har": ".har"}


@pytest.fixture
def tour(live: Session) -> Path:
    """A cassette of three answers."""
    with live.record("tour"):
        live.me()
        live.request("GET", "/v1/lists", params={"page": "2"})
        live.request("GET", "/v1/nowhere")
    return Path("cassettes/tour.yaml")


def sorted_headers(response: RecordedResponse) -> RecordedResponse:
    return replace(response, headers=tuple(sorted(response.headers)))


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("via", LAYOUTS)
def test_a_conversion_there_and_back_loses_nothing(tour: Path, to: Layout, via: Layout) -> None:
    """Requests and responses are the same after any two conversions; the key is in none."""
    middle, end = Path(f"middle{ENDINGS[via]}"), Path(f"end{ENDINGS[to]}")
    convert(tour, middle, via)
    convert(middle, end, to)
    convert(end, Path("back.yaml"), "lines")

    before, after = read_cassette(tour).interactions, read_cassette(Path("back.yaml")).interactions
    assert [(e.request.method, e.request.uri) for e in after] == [
        (e.request.method, e.request.uri) for e in before
    ]
    # vcrpy's YAML sorts the headers by name; their order says nothing between different names.
    assert [sorted_headers(e.response) for e in after] == [
        sorted_headers(e.response) for e in before
    ]
    assert all(b"stand-in-key" not in path.read_bytes() for path in (tour, middle, end))


@pytest.mark.parametrize(
    ("to", "serializer"), [("vcrpy", yamlserializer), ("json", jsonserializer)]
)
def test_vcrpy_loads_what_we_convert_for_it(tour: Path, to: Layout, serializer: object) -> None:
    """vcrpy's own persister and serializer read the file."""
    target = Path(f"theirs{ENDINGS[to]}")
    convert(tour, target, to)

    requests, _, *_ = FilesystemPersister.load_cassette(target, serializer)
    assert [request.path for request in requests] == ["/v1/users/me", "/v1/lists", "/v1/nowhere"]
    assert vcr.__version__.startswith("9.")


def test_a_converted_cassette_replays(tour: Path) -> None:
    """Both of vcrpy's layouts answer as ours does."""
    dm.replay("tour")
    ours = dm.me()
    for to in ("vcrpy", "json"):
        target = Path(f"theirs{ENDINGS[to]}")
        convert(tour, target, to)
        with dm.replay(target):
            assert dm.me().equals(ours)


def test_redacting_again_changes_values_and_replays(tour: Path) -> None:
    """Named fields become pseudonyms, the count says in how many, and the requests still match."""
    changed = redact(tour, ["company.name", "personal"])

    assert changed == 1
    assert "Stand-in Company" not in tour.read_text(encoding="utf-8")
    assert "stand-in@example.com" not in tour.read_text(encoding="utf-8")
    assert redact(tour, ["company.name", "personal"]) == 0
    dm.replay("tour")
    assert dm.get("/v1/lists", params={"page": "2"}).status_code == 200


def test_mending_keeps_every_whole_interaction(tour: Path) -> None:
    """A recording that broke off is closed; a sound one is left byte for byte."""
    whole = tour.read_bytes()
    sound = repair(tour)
    untouched = tour.read_bytes()
    end = whole.rindex(b"# end")
    tour.write_bytes(whole[: end - 40])
    said = repair(tour)

    assert sound is None
    assert untouched == whole
    assert said is not None
    assert len(read_cassette(tour).interactions) == 2
    assert read_cassette(tour).problem is None


def test_a_cassette_in_use_is_not_rewritten(live: Session) -> None:
    """While it is being recorded, neither redaction nor repair touches it."""
    with live.record("busy"):
        live.me()
        before = Path("cassettes/busy.yaml").read_bytes()
        for change in (lambda path: redact(path, ["personal"]), repair):
            with pytest.raises(dm.CassetteInUseError):
                change(Path("cassettes/busy.yaml"))

        assert Path("cassettes/busy.yaml").read_bytes() == before


def test_a_file_that_is_no_har_is_refused() -> None:
    """Junk with the ending is a typed error, and no target appears."""
    Path("junk.har").write_text("<html>")
    with pytest.raises(dm.CassetteFormatError):
        convert(Path("junk.har"), Path("out.yaml"), "lines")

    assert not Path("out.yaml").exists()


def test_the_layout_follows_the_name() -> None:
    """By ending: HAR, JSON, else lines."""
    assert [layout_of(Path(f"a{end}")) for end in (".har", ".json", ".yaml", ".yml")] == [
        "har",
        "json",
        "lines",
        "lines",
    ]
