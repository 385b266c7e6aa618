"""What a person changed in a cassette of ours is read as vcrpy reads it, and kept."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cassette_samples import BASE_URL, answered, get, opened, paths_in, recorded, typed
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import adopt, drop_failures, redact, repair
from directmail_lab.errors import CassetteError, CassetteFormatError
from directmail_lab.exchange.values import Response
from directmail_lab.questions.audit import audit

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


TAILS: dict[str, tuple[Any, list[str], str]] = {
    # What a person makes of the text, what is then read, and what of his text must stay.
    "flow style": (lambda text: text + FLOW, ["/0", "/1", "/hand"], ""),
    "flow style without newline": (lambda text: text + FLOW.rstrip(), ["/0", "/1", "/hand"], ""),
    "block style": (lambda text: text + BLOCK, ["/0", "/1", "/hand"], ""),
    "flow style at the margin": (
        lambda text: text + FLOW.replace(", response", ",\nresponse") + "note: mine\n",
        ["/0", "/1", "/hand"],
        "note: mine\n",
    ),
    "comment after one by hand": (
        lambda text: f"{text}{FLOW}# mine\n",
        ["/0", "/1", "/hand"],
        "# mine\n",
    ),
    "comment in an interaction": (
        lambda text: text.replace("  elapsed_s", "  # mine\n  elapsed_s", 1),
        ["/0", "/1"],
        "# mine\n",
    ),
    "two by hand": (lambda text: text + FLOW + BLOCK, ["/0", "/1", "/hand", "/hand"], ""),
    "in the middle": (
        lambda text: text.replace("- recorded_at", f"{FLOW}- recorded_at", 1),
        ["/hand", "/0", "/1"],
        "",
    ),
    "no final newline": (lambda text: text.rstrip("\n"), ["/0", "/1"], ""),
    "wrapped": (lambda text: WRAPPED.sub(r"\1,\n    \2\n", text), ["/0", "/1"], ""),
    "wrapped without newline": (
        lambda text: WRAPPED.sub(r"\1,\n    \2\n", text).rstrip("\n"),
        ["/0", "/1"],
        "",
    ),
    "wrapped at the margin": (lambda text: WRAPPED.sub(r"\1,\n\2\n", text), ["/0", "/1"], ""),
    "comment": (lambda text: f"{text}# mine\n", ["/0", "/1"], "# mine\n"),
    "comment without newline": (lambda text: f"{text}# mine", ["/0", "/1"], "# mine\n"),
    "comment between": (
        lambda text: "# mine\n- recorded_at".join(text.rsplit("- recorded_at", 1)),
        ["/0", "/1"],
        "# mine\n",
    ),
    "key": (lambda text: f"{text}note: mine\n", ["/0", "/1"], "note: mine\n"),
    "key with any characters": (
        lambda text: f"{text}für v.2: mine\n",
        ["/0", "/1"],
        "für v.2: mine\n",
    ),
    "key and comment": (
        lambda text: f"{text}# mine\nnote:\n- mine\n- yours\n",
        ["/0", "/1"],
        "note:\n- mine\n- yours\n",
    ),
    "key before": (
        lambda text: text.replace("interactions:\n", "note: mine\ninteractions:\n"),
        ["/0", "/1"],
        "note: mine\n",
    ),
    "comment at the top": (lambda text: f"# mine\n\n{text}", ["/0", "/1"], "# mine\n\nversion"),
    "start of a document": (lambda text: f"# mine\n---\n{text}", ["/0", "/1"], "# mine\n---\n"),
    "member at the top": (
        lambda text: f"note: |\n  mine\n{text}",
        ["/0", "/1"],
        "note: |\n  mine\n",
    ),
    "comment below the version": (
        lambda text: text.replace("recording:", "# mine\nrecording:"),
        ["/0", "/1"],
        "# mine\n",
    ),
    "member below the version": (
        lambda text: text.replace("recording:", "note: mine\nrecording:"),
        ["/0", "/1"],
        "note: mine\n",
    ),
    "comment beside the version": (
        lambda text: text.replace("version: 1", "version: 1  # mine"),
        ["/0", "/1"],
        "# mine\n",
    ),
    "comment beside the metadata": (
        lambda text: text.replace("}\ninteractions", "}  # mine\ninteractions", 1),
        ["/0", "/1"],
        "# mine\n",
    ),
    "comment beside the list": (
        lambda text: text.replace("interactions:", "interactions:  # mine"),
        ["/0", "/1"],
        "# mine\n",
    ),
    "wrapped metadata": (
        lambda text: text.replace(', "base_url"', ',  # mine\n  "base_url"'),
        ["/0", "/1"],
        "# mine\n",
    ),
    "blank lines": (
        lambda text: text.replace("- recorded_at", "\n\n- recorded_at"),
        ["/0", "/1"],
        "",
    ),
}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A cassette of two interactions."""
    return recorded(tmp_path / "tour.yaml", answered(get("/0")), answered(get("/1"), "x" * 50))


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", TAILS)
def test_a_persons_change_is_read_and_kept(
    ours: Path, name: str, newline: str, is_closed: bool
) -> None:
    """By every reader as by vcrpy; a repair and a recording keep it, and vcrpy loads the result."""
    change, expected, kept = TAILS[name]
    whole, text = ours.read_text(), opened_text(ours)
    text = change(whole if is_closed and name != "no final newline" else text)
    ours.write_bytes(text.replace("\n", newline).encode())
    as_vcrpy = deserialize(text, yamlserializer)[0]

    assert [each.uri for each in as_vcrpy] == [BASE_URL + path for path in expected]
    assert paths_in(ours) == expected
    repair(ours)
    assert (paths_in(ours), read_cassette(ours).problem) == (expected, None)
    for path in ("/new", "/newer"):
        with opened(ours, "any") as cassette:
            cassette.record(answered(get(path)))
    assert paths_in(ours) == [*expected, "/new", "/newer"]
    assert len(deserialize(ours.read_text(), yamlserializer)[0]) == len(expected) + 2
    assert kept in ours.read_text()
    assert list(ours.parent.iterdir()) == [ours]


@pytest.mark.parametrize("name", TAILS)
def test_a_persons_change_is_kept_by_a_recording_of_it(ours: Path, name: str) -> None:
    """Also without a repair, and when a new response replaces what the person wrote."""
    change, expected, kept = TAILS[name]
    ours.write_text(change(opened_text(ours)))
    with opened(ours, "update") as cassette:
        cassette.record(answered(get("/hand"), "new"))
        cassette.record(answered(get("/0"), "new"))

    left = [path for path in expected if path not in ("/0", "/hand")]
    assert paths_in(ours) == [*left, "/hand", "/0"]
    assert len(deserialize(ours.read_text(), yamlserializer)[0]) == len(left) + 2
    assert kept in ours.read_text()
    assert read_cassette(ours).problem is None


@pytest.mark.parametrize("change", [adopt, partial(redact, rules=[]), repair])
@pytest.mark.parametrize("name", TAILS)
def test_a_persons_change_is_kept_by_a_rewrite(ours: Path, name: str, change: Any) -> None:
    """Adopting, redacting and repairing a file keep its metadata, too."""
    edit, expected, kept = TAILS[name]
    ours.write_text(edit(opened_text(ours)))
    metadata = read_cassette(ours).metadata
    change(ours)

    assert paths_in(ours) == expected
    assert kept in ours.read_text()
    assert read_cassette(ours).metadata == metadata


def test_what_a_person_pasted_is_redacted_when_it_is_read_and_written(ours: Path) -> None:
    """An audit still finds it in the file."""
    pasted = FLOW.replace("headers: {}}, r", "headers: {X-Api-Key: [live_8fK2xQ9zLr7TtVb3nW]}}, r")
    ours.write_text(opened_text(ours) + pasted)

    assert "live_8fK2" not in str(read_cassette(ours).interaction(3).request.headers)
    assert audit(ours)
    with opened(ours, "any") as cassette:
        cassette.record(answered(get("/new")))
    assert "live_8fK2" not in ours.read_text()


@pytest.mark.parametrize(
    "tail", [b"\0" * 40, b"- request: {\n", b"}\n", b"- a\n- b\n", b"\xff\xfe\n"]
)
def test_what_is_no_yaml_is_cut_into_a_file_that_is_named(ours: Path, tail: bytes) -> None:
    """Neither a repair nor a recording drops a byte that somebody may need."""
    ours.write_bytes(opened_text(ours).encode() + tail)
    notices: list[str] = []
    cut = ours.with_name("tour.cut.txt")

    assert f"its last {len(tail)} bytes are neither" in str(read_cassette(ours).problem)
    with opened(ours, "any", notice=notices.append) as cassette:
        cassette.record(answered(get("/new")))
    assert cut.read_bytes() == tail
    assert str(cut) in notices[-1]
    assert paths_in(ours) == ["/0", "/1", "/new"]
    ours.write_bytes(opened_text(ours).encode() + tail)
    assert str(ours.with_name("tour.cut-2.txt")) in repair(ours)[0]


@pytest.mark.parametrize("change", [adopt, partial(redact, rules=[])])
def test_what_is_no_yaml_is_not_lost_by_a_redaction(ours: Path, change: Any) -> None:
    """It could not say where it put the text, so it changes nothing."""
    ours.write_text(f"{opened_text(ours)}- to do\n")
    before = ours.read_bytes()
    with pytest.raises(CassetteError, match="repair"):
        change(ours)

    assert ours.read_bytes() == before


@pytest.mark.parametrize("ending", ["merge", "replace"])
def test_a_re_recording_that_stands_aside_keeps_what_a_person_wrote(
    ours: Path, ending: Any
) -> None:
    """A comment, another member, and what no reader understands."""
    text = opened_text(ours).replace("interactions:\n", "note: mine\ninteractions:\n# mine\n")
    ours.write_text(f"{text}- to do\n")
    with opened(ours, "all", aside=True) as cassette:
        cassette.record(answered(get("/0"), "new"))
        cassette.close(ending)

    assert paths_in(ours) == (["/1", "/0"] if ending == "merge" else ["/0"])
    assert "note: mine\ninteractions:\n# mine\n" in ours.read_text()
    assert ours.with_name("tour.cut.txt").read_text() == "- to do\n"


def test_what_a_person_wrote_stays_when_a_failure_is_dropped(ours: Path) -> None:
    """The comment and the member stay when pytest removes the requests that failed."""
    ours.write_text(f"{opened_text(ours)}# mine\nnote: mine\n")
    failed = replace(answered(get("/2")), response=Response(0, "", no_response="read_timeout"))
    with opened(ours, "any") as cassette:
        cassette.record(failed)
    drop_failures(ours, after=2)

    assert paths_in(ours) == ["/0", "/1"]
    assert "# mine\n" in ours.read_text()
    assert "note: mine\n" in ours.read_text()


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


def test_garbage_in_the_middle_is_an_error_that_changes_nothing(ours: Path) -> None:
    """What follows it may be somebody's only copy."""
    ours.write_text(opened_text(ours).replace("- recorded_at", "{[\n- recorded_at"))
    before = ours.read_bytes()
    with pytest.raises(CassetteFormatError):
        opened(ours, "update")

    assert ours.read_bytes() == before


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_cut_at_any_byte_is_torn_or_whole(ours: Path, newline: bytes) -> None:
    """What a cut leaves of an interaction or of the end line is never taken for a person's text."""
    whole = ours.read_bytes()
    ends = [each.end() for each in re.finditer(rb"(?m)^  response: [^\n]*", whole)]
    start = whole.index(b"- recorded_at")
    as_yaml = 0
    for length in range(start, len(whole)):
        data = whole[:length]
        as_yaml += is_yaml(data)
        ours.write_bytes(data.replace(b"\n", newline))
        recording = read_cassette(ours)

        assert len(recording) == sum(end <= length for end in ends)
        assert (recording.layout, recording.left_out) == ("lines", b"")
        assert len(list(recording)) == len(recording)
    assert as_yaml > 100


def is_yaml(data: bytes) -> bool:
    try:
        yaml.load(data, yaml.CSafeLoader)
    except yaml.YAMLError:
        return False
    return True


def test_a_torn_file_with_windows_line_ends_is_read_as_fast(tmp_path: Path) -> None:
    """It does not go through a YAML loader, which would take a hundred times as long."""
    many = [answered(get(f"/{number}")) for number in range(2000)]
    path = recorded(tmp_path / "tour.yaml", *many)
    data = path.read_bytes()[:-200]
    times = []
    for content in (data, data.replace(b"\n", b"\r\n")):
        path.write_bytes(content)
        started = time.process_time()
        assert len(read_cassette(path)) == len(many) - 1
        times.append(time.process_time() - started)

    assert times[1] < 10 * times[0] + 0.05
