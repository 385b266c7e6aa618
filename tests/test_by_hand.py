"""What a person changed in a cassette of ours is read as vcrpy reads it."""

from pathlib import Path
from typing import Any

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    get,
    loaded_by_vcrpy,
    opened,
    paths_in,
    recorded,
    typed,
)
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.library import before_of
from directmail_lab.errors import CassetteFormatError
from directmail_lab.share.audit import audit

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
OWN = ["/0", "/1"]


EDITS: dict[str, tuple[Any, list[str]]] = {
    # What a person makes of the text, and what is then read.
    "flow style": (lambda text: text + FLOW, [*OWN, "/hand"]),
    "block style": (lambda text: text + BLOCK, [*OWN, "/hand"]),
    "two without a newline": (lambda text: text + BLOCK + FLOW.rstrip(), [*OWN, "/hand", "/hand"]),
    "in the middle": (
        lambda text: text.replace("- recorded_at", f"{FLOW}- recorded_at", 1),
        ["/hand", *OWN],
    ),
    "comments": (
        lambda text: (
            "# mine\n" + text.replace("  elapsed_s", "  # mine\n  elapsed_s", 1) + "# mine"
        ),
        OWN,
    ),
    "keys": (
        lambda text: text.replace("interactions:", "note: a\ninteractions:") + "für v.2:\n- b\n",
        OWN,
    ),
    "start of a document": (lambda text: f"# mine\n---\n{text}", OWN),
    "wrapped metadata": (
        lambda text: text.replace(', "base_url"', ',  # mine\n  "base_url"'),
        OWN,
    ),
    "blank lines": (lambda text: text.replace("- recorded_at", "\n\n- recorded_at"), OWN),
}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return recorded(tmp_path / "tour.yaml", answered(get("/0")), answered(get("/1"), "x" * 50))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", EDITS)
def test_a_persons_change_is_read_as_vcrpy_reads_it(ours, name, newline):
    """A recording then adds to it or replaces some of it, and writes the file anew."""
    change, expected = EDITS[name]
    text = change(ours.read_text())
    ours.write_bytes(text.replace("\n", newline).encode())
    as_vcrpy = deserialize(text, yamlserializer)[0]

    assert [each.uri for each in as_vcrpy] == [BASE_URL + path for path in expected]
    assert paths_in(ours) == expected
    with opened(ours, "update") as cassette:
        for path in ("/hand", "/0", "/new"):
            cassette.record(answered(get(path)))
    whole = [
        *dict.fromkeys(expected),
        *(path for path in ("/hand", "/0", "/new") if path not in expected),
    ]
    assert paths_in(ours) == whole
    assert loaded_by_vcrpy(ours) == len(whole)
    assert read_cassette(ours).problem is None
    assert set(ours.parent.iterdir()) - {before_of(ours)} == {ours}


def test_what_a_person_pasted_is_redacted_when_it_is_read_and_written(ours):
    """An audit still finds it in the file."""
    pasted = FLOW.replace("headers: {}}, r", "headers: {X-Api-Key: [live_8fK2xQ9zLr7TtVb3nW]}}, r")
    ours.write_text(ours.read_text() + pasted)

    assert "live_8fK2" not in str(read_cassette(ours).interaction(3).request.headers)
    assert audit(ours)
    with opened(ours, "any") as cassette:
        cassette.record(answered(get("/new")))
    assert "live_8fK2" not in ours.read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n  response:", "\n response:", 1),
        *(
            lambda text, tail=tail: text.replace("- recorded_at", f"{tail}\n- recorded_at", 1)
            for tail in ("\0" * 40, "- request: {", "}", "{[")
        ),
    ],
    ids=["indentation", "nulls", "open", "closed", "other"],
)
def test_what_is_no_yaml_is_an_error_that_changes_nothing(ours, change):
    """It may be somebody's only copy."""
    ours.write_text(change(ours.read_text()))
    before = ours.read_bytes()
    for mode in ("none", "update"):
        with pytest.raises(CassetteFormatError):
            opened(ours, mode)

        assert ours.read_bytes() == before


@pytest.mark.parametrize("end", ["", "  ", " # mine"])
def test_an_interaction_with_a_binary_body_is_whole_without_its_newline(tmp_path, end):
    """Its body is not JSON but a tag of YAML; a person's editor may leave spaces after it."""
    path = recorded(tmp_path / "tour.yaml", typed("image/png", b"\x89PNG\xff"))
    path.write_text(path.read_text().rstrip("\n") + end)

    assert read_cassette(path).interaction(1).response.body == b"\x89PNG\xff"
