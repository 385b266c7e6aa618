"""The tutorials as a reader runs them: no key, no network, twice, in any order."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nbformat.v4 import new_notebook

from directmail_lab.tutorials import checkout
from directmail_lab.tutorials.execute import execute, read, run
from directmail_lab.tutorials.recordings import RECORDINGS, record

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = checkout()
assert ROOT is not None
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))

# Read by the kernel when it starts: from then on it reaches this machine alone.
LOOPBACK_ALONE = """
import ipaddress, socket
connect = socket.socket.connect
def connect_here(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        assert ipaddress.ip_address(address[0]).is_loopback, "reached outside"
    return connect(self, address)
socket.socket.connect = connect_here
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tutorials, as an unpacked wheel leaves it."""
    assert ROOT is not None
    for kind in ("notebooks", "cassettes"):
        shutil.copytree(ROOT / kind, tmp_path / kind)
    for own in (tmp_path / "cassettes").glob("my-*"):
        own.unlink()
    return tmp_path


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """The environment of a kernel that can reach no other machine and takes warnings as errors."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LOOPBACK_ALONE)
    return {"PYTHONPATH": str(folder), "PYTHONWARNINGS": "error::UserWarning,error::FutureWarning"}


def in_order(path: Path, cells: Iterable[Any]) -> Any:
    notebook = read(path)
    notebook.cells = [type(cell)({**cell, "id": f"c{n}"}) for n, cell in enumerate(cells)]
    return notebook


def told_on_stderr(notebook: Any) -> list[str]:
    return [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr"
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_run_recreates_the_committed_outputs(name: str, copy: Path) -> None:
    """What is committed is what a keyless, replayed run shows: byte for byte, pictures too."""
    committed = (copy / "notebooks" / name).read_text(encoding="utf-8")
    execute(copy / "notebooks" / name)

    assert (copy / "notebooks" / name).read_text(encoding="utf-8") == committed


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_twice_in_one_kernel_offline(
    name: str, copy: Path, offline: dict[str, str]
) -> None:
    """Run All, and Run All again, with nothing on stderr."""
    path = copy / "notebooks" / name
    cells = read(path).cells
    notebook = in_order(path, [*cells, *cells])
    run(notebook, path.parent, environ=offline)

    assert told_on_stderr(notebook) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_cells_after_the_first_run_in_reverse(
    name: str, copy: Path, offline: dict[str, str]
) -> None:
    """A reader who jumps about meets no error."""
    path = copy / "notebooks" / name
    first, *rest = [cell for cell in read(path).cells if cell.cell_type == "code"]
    run(in_order(path, [first, *reversed(rest)]), path.parent, environ=offline)


def test_the_kernel_of_these_tests_reaches_no_other_machine(
    tmp_path: Path, offline: dict[str, str]
) -> None:
    """The guard that the runs above rely on does refuse."""
    source = "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)"
    notebook = new_notebook(cells=[])
    notebook.cells = [
        {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "outputs": []}
    ]
    notebook = type(read_back := new_notebook())({**read_back, **notebook})
    with pytest.raises(Exception, match="reached outside"):
        run(notebook, tmp_path, environ=offline)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_a_picture_everywhere(name: str) -> None:
    """Without a kernel, and where scripts are dropped, the charts are there as PNG."""
    assert ROOT is not None
    outputs = [o for c in read(ROOT / "notebooks" / name).cells for o in c.get("outputs", ())]

    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_recording_a_cassette_anew_leaves_no_difference(name: str, tmp_path: Path) -> None:
    """The committed cassette is what the stand-in answers over real HTTP, and says so."""
    assert ROOT is not None
    record(name, tmp_path / f"{name}.yaml")

    committed = (ROOT / "cassettes" / f"{name}.yaml").read_bytes()
    assert (tmp_path / f"{name}.yaml").read_bytes() == committed
    assert b"the stand-in service" in committed.splitlines()[1]
