"""What a person changed in a cassette of ours is read as vcrpy reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cassette_samples import BASE_URL, answered, get, opened, paths_in, recorded, typed
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import repair
from directmail_lab.errors import CassetteFormatError
from directmail_lab.share.audit import audit

if TYPE_CHECKING:
    from pathlib import Path

FLOW = (
    '- {request: {method: GET, uri: "https://api.example.test/hand", body: "", headers: {}}, '
    "response: {status: {code: 201, message: OK}, headers: {}, body: {string: hand}}}\n"
)
BLOCK = """\
- request:
    method: GET
    uri: https://api.example.test/hand
    body: ''
    headers: {}
  response:
    status: {code: 201, message: OK}
    headers: {}
    body:
      string: |-
        hand
"""
WRAPPED = re.compile(r'(?m)^(  response: .*?), ("body": .*)\n(?=# end|\Z)')


def opened_text(path: Path) -> str:
    """Return a file without its end line."""
    return path.read_text().partition("# end")[0]


EDITS: dict[str, tuple[Any, list[str]]] = {
    # What a person makes of the text, and what is then read.
    "flow style": (lambda text: text + FLOW, ["/0", "/1", "/hand"]),
    "flow style without newline": (lambda text: text + FLOW.rstrip(), ["/0", "/1", "/hand"]),
    "block style": (lambda text: text + BLOCK, ["/0", "/1", "/hand"]),
    "flow style at the margin": (
        lambda text: text + FLOW.replace(", response", ",\nresponse") + "note: mine\n",
        ["/0", "/1", "/hand"],
    ),
    "comment after one by hand": (
        lambda text: f"{text}{FLOW}# mine\n",
        ["/0", "/1", "/hand"],
    ),
    "comment in an interaction": (
        lambda text: text.replace("  elapsed_s", "  # mine\n  elapsed_s", 1),
        ["/0", "/1"],
    ),
    "two by hand": (lambda text: text + FLOW + BLOCK, ["/0", "/1", "/hand", "/hand"]),
    "in the middle": (
        lambda text: text.replace("- recorded_at", f"{FLOW}- recorded_at", 1),
        ["/hand", "/0", "/1"],
    ),
    "no final newline": (lambda text: text.rstrip("\n"), ["/0", "/1"]),
    "wrapped": (lambda text: WRAPPED.sub(r"\1,\n    \2\n", text), ["/0", "/1"]),
    "wrapped without newline": (
        lambda text: WRAPPED.sub(r"\1,\n    \2\n", text).rstrip("\n"),
        ["/0", "/1"],
    ),
    "wrapped at the margin": (lambda text: WRAPPED.sub(r"\1,\n\2\n", text), ["/0", "/1"]),
    "comment": (lambda text: f"{text}# mine\n", ["/0", "/1"]),
    "comment without newline": (lambda text: f"{text}# mine", ["/0", "/1"]),
    "comment between": (
        lambda text: "# mine\n- recorded_at".join(text.rsplit("- recorded_at", 1)),
        ["/0", "/1"],
    ),
    "key": (lambda text: f"{text}note: mine\n", ["/0", "/1"]),
    "key with any characters": (
        lambda text: f"{text}für v.2: mine\n",
        ["/0", "/1"],
    ),
    "key and comment": (
        lambda text: f"{text}# mine\nnote:\n- mine\n- yours\n",
        ["/0", "/1"],
    ),
    "key before": (
        lambda text: text.replace("interactions:\n", "note: mine\ninteractions:\n"),
        ["/0", "/1"],
    ),
    "comment at the top": (lambda text: f"# mine\n\n{text}", ["/0", "/1"]),
    "start of a document": (lambda text: f"# mine\n---\n{text}", ["/0", "/1"]),
    "member at the top": (
        lambda text: f"note: |\n  mine\n{text}",
        ["/0", "/1"],
    ),
    "comment below the version": (
        lambda text: text.replace("recording:", "# mine\nrecording:"),
        ["/0", "/1"],
    ),
    "member below the version": (
        lambda text: text.replace("recording:", "note: mine\nrecording:"),
        ["/0", "/1"],
    ),
    "comment beside the version": (
        lambda text: text.replace("version: 1", "version: 1  # mine"),
        ["/0", "/1"],
    ),
    "comment beside the metadata": (
        lambda text: text.replace("}\ninteractions", "}  # mine\ninteractions", 1),
        ["/0", "/1"],
    ),
    "comment beside the list": (
        lambda text: text.replace("interactions:", "interactions:  # mine"),
        ["/0", "/1"],
    ),
    "wrapped metadata": (
        lambda text: text.replace(', "base_url"', ',  # mine\n  "base_url"'),
        ["/0", "/1"],
    ),
    "blank lines": (
        lambda text: text.replace("- recorded_at", "\n\n- recorded_at"),
        ["/0", "/1"],
    ),
}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A cassette of two interactions."""
    return recorded(tmp_path / "tour.yaml", answered(get("/0")), answered(get("/1"), "x" * 50))


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", EDITS)
def test_a_persons_change_is_read_as_vcrpy_reads_it(
    ours: Path, name: str, newline: str, is_closed: bool
) -> None:
    """Also after a repair and a recording, which write the file anew."""
    change, expected = EDITS[name]
    whole, text = ours.read_text(), opened_text(ours)
    text = change(whole if is_closed and name != "no final newline" else text)
    ours.write_bytes(text.replace("\n", newline).encode())
    as_vcrpy = deserialize(text, yamlserializer)[0]

    assert [each.uri for each in as_vcrpy] == [BASE_URL + path for path in expected]
    assert paths_in(ours) == expected
    repair(ours)
    assert (paths_in(ours), read_cassette(ours).problem) == (expected, None)
    with opened(ours, "any") as cassette:
        cassette.record(answered(get("/new")))
    assert paths_in(ours) == [*expected, "/new"]
    assert len(deserialize(ours.read_text(), yamlserializer)[0]) == len(expected) + 1
    assert list(ours.parent.iterdir()) == [ours]


@pytest.mark.parametrize("name", EDITS)
def test_a_recording_replaces_what_a_person_wrote(ours: Path, name: str) -> None:
    """Without a repair, too; the file's metadata stay."""
    change, expected = EDITS[name]
    ours.write_text(change(opened_text(ours)))
    metadata = read_cassette(ours).metadata
    with opened(ours, "update") as cassette:
        cassette.record(answered(get("/hand"), "new"))
        cassette.record(answered(get("/0"), "new"))

    left = [path for path in expected if path not in ("/0", "/hand")]
    assert paths_in(ours) == [*left, "/hand", "/0"]
    assert read_cassette(ours).metadata == metadata
    assert read_cassette(ours).problem is None


def test_a_notice_says_once_that_comments_are_not_kept(ours: Path) -> None:
    """The first recording writes the file anew."""
    ours.write_text(f"# mine\n{ours.read_text()}")
    for expected in ([f"{ours} was edited, so it is written anew: comments are not kept."], []):
        notices: list[str] = []
        with opened(ours, "any", notice=notices.append) as cassette:
            cassette.record(answered(get("/new")))

        assert [each for each in notices if "edited" in each] == expected
    assert "mine" not in ours.read_text()


def test_what_a_person_pasted_is_redacted_when_it_is_read_and_written(ours: Path) -> None:
    """An audit still finds it in the file."""
    pasted = FLOW.replace("headers: {}}, r", "headers: {X-Api-Key: [live_8fK2xQ9zLr7TtVb3nW]}}, r")
    ours.write_text(opened_text(ours) + pasted)

    assert "live_8fK2" not in str(read_cassette(ours).interaction(3).request.headers)
    assert audit(ours)
    with opened(ours, "any") as cassette:
        cassette.record(answered(get("/new")))
    assert "live_8fK2" not in ours.read_text()


def test_an_indentation_that_an_edit_broke_is_to_be_corrected_first(ours: Path) -> None:
    """The error names the line. A repair would cut out the interaction."""
    ours.write_text(opened_text(ours).replace("\n  response:", "\n response:", 1))

    with pytest.raises(CassetteFormatError, match=r"in line \d+.*If you edited it, correct that"):
        opened(ours, "none")


@pytest.mark.parametrize("end", ["", "  ", " # mine"])
def test_an_interaction_with_a_binary_body_is_whole_without_its_newline(
    tmp_path: Path, end: str
) -> None:
    """Its body is not JSON but a tag of YAML; a person's editor may leave spaces after it."""
    path = recorded(tmp_path / "tour.yaml", typed("image/png", b"\x89PNG\xff"))
    path.write_text(opened_text(path).rstrip("\n") + end)

    assert len(read_cassette(path)) == 1
    repair(path)
    assert read_cassette(path).interaction(1).response.body == b"\x89PNG\xff"


def is_yaml(data: bytes) -> bool:
    try:
        yaml.load(data, yaml.CSafeLoader)
    except yaml.YAMLError:
        return False
    return True
