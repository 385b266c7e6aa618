"""The tutorials as a reader runs them: without key and network, twice, and in any order."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from marks import slow
from tutorials import CASSETTES, RECORDINGS, ROOT, keep_what_lasts, read, record, run

from directmail_lab.cassettes import read_cassette
from directmail_lab.share.audit import audit
from directmail_lab.share.tutorials import FIRST, copy_tutorials, first_tutorial

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))

WARNINGS = "error::UserWarning,error::FutureWarning"


def in_order(path: Path, cells: Iterable[Any]) -> Any:
    """Return a notebook of copies of cells, with their ids: one may be executed several times."""
    notebook = read(path)
    notebook.cells = [type(cell)(cell) for cell in cells]
    return notebook


def shown(cells: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """Return the outputs of cells without their pictures, and the pictures."""
    outputs = [{**out} for cell in cells for out in cell.get("outputs", ())]
    for out in outputs:
        out["data"] = {**out.get("data", {})}
    pictures = [out["data"].pop("image/png") for out in outputs if "image/png" in out["data"]]
    return outputs, pictures


def without_counts(outputs: Iterable[Any]) -> list[Any]:
    return [{**out, "execution_count": None} for out in outputs]


def test_the_tutorials_are_copied_once_and_changes_are_kept(tmp_path):
    """Only missing files are copied again."""
    copied = first_tutorial(tmp_path)
    recording = copied.parents[1] / "cassettes" / "first-look.yaml"
    copied.write_text("changed")
    recording.unlink()

    assert first_tutorial(tmp_path) == copied
    assert copied == tmp_path / "directmail-lab-tutorials" / "notebooks" / FIRST
    assert (copied.read_text(), recording.is_file()) == ("changed", True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_run_all_recreates_the_committed_outputs_whatever_ran_before(name, tmp_path):
    """They are the same if a reader then runs cells backwards, and Run All again."""
    copy_tutorials(tmp_path)
    path = tmp_path / "notebooks" / name
    cells = read(path).cells
    code = [cell for cell in reversed(cells) if cell.cell_type == "code"]
    # What starts another program takes long, and depends on no other cell.
    backwards = [cell for cell in code if "subprocess" not in cell.source]
    notebook = in_order(path, [*cells, *backwards, *cells])
    committed, pictures = shown(cells)
    run(notebook, path.parent, environ={"PYTHONWARNINGS": WARNINGS})
    keep_what_lasts(notebook, path.parent)
    first, redrawn = shown(notebook.cells[: len(cells)])
    last, drawn_last = shown(notebook.cells[-len(cells) :])

    assert without_addresses(first) == without_addresses(committed)
    assert len(redrawn) == len(pictures)
    assert without_addresses(without_counts(last)) == without_addresses(without_counts(first))
    assert drawn_last == redrawn
    said = [out["text"] for out in shown(notebook.cells)[0] if out.get("name") == "stderr"]
    assert all(text.startswith("Warning: no key, so this is a replay of") for text in said)


def without_addresses(outputs: list[Any]) -> list[Any]:
    """Return outputs without the port of the stand-in service, and without who signed in."""
    text = re.sub(r"Signed in [^\"]*?http://127\.0\.0\.1:\d+", "Signed in", json.dumps(outputs))
    return json.loads(text)


def test_every_cassette_and_notebook_is_fit_to_be_shared():
    for path in (*CASSETTES, *(ROOT / "notebooks" / name for name in NOTEBOOKS)):
        assert audit(path) == []


SLOW = ("explore-an-unknown-api", "rate-limits")


@pytest.mark.parametrize("name", [slow(each) if each in SLOW else each for each in RECORDINGS])
def test_re_recording_a_cassette_leaves_no_difference(name, tmp_path):
    record(name, tmp_path / f"{name}.yaml")

    committed = (ROOT / "cassettes" / f"{name}.yaml").read_bytes()
    recorded = (tmp_path / f"{name}.yaml").read_bytes()
    # Before Python 3.13, the reason of 422 had another name.
    assert recorded.replace(b"Unprocessable Entity", b"Unprocessable Content") == committed
    assert "the stand-in service" in read_cassette(tmp_path / f"{name}.yaml").metadata["service"]
