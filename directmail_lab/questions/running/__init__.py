"""Run notebooks as a reader will: in the shared folder, with no key and no network."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...display import ProgressBar, plural
from ...errors import NotebookRunError, naming_what_is_missing

if TYPE_CHECKING:
    from nbformat import NotebookNode

_RECORD: Final = (
    'Put dm.record("tour") above it, and run the notebook once with your key. A reader without a '
    "key then replays the cassette."
)
_ADVICE: Final = {
    "NotConnectedError": _RECORD,
    "CredentialError": _RECORD,
    "CassetteNotFoundError": (
        "A name is looked up from the notebook's folder: record the cassette, or correct its name."
    ),
    "NotRecordedError": (
        "Run the notebook once with your key and with dm.record(…), so that the cassette contains "
        "this request."
    ),
    "NetworkBlockedError": "Without a network, only what dm.record(…) recorded can be replayed.",
    "FileNotFoundError": "The zip contains notebooks and cassettes, and no other files.",
}
# Colours, which a program that the cell starts may put into its error, such as Python 3.13.
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_NO_RUN: Final = "To share it as it is: run=False, or --no-run."


def run_notebooks(folder: Path, notebooks: Sequence[Path], *, timeout_s: float) -> set[Path]:
    """Run notebooks, each in a fresh kernel, and return the files below ``folder`` they opened.

    The kernel gets no ``DIRECTMAIL_`` variable, no keyring, and no IPython settings of the user. It
    can connect only to this machine. The notebooks on disk stay unchanged.

    Parameters
    ----------
    folder
        A temporary folder for this run, without symbolic links in its path.
    notebooks
        Files below it.
    timeout_s
        The most seconds that all of them may take together.

    Raises
    ------
    NotebookRunError
        A cell failed, the kernel died, or the time is over.
    """
    with naming_what_is_missing():
        import nbclient  # noqa: F401 - `_run` needs it
        import nbformat

    read = [nbformat.read(path, as_version=4) for path in notebooks]  # type: ignore[no-untyped-call]
    total, end = sum(len(notebook.cells) for notebook in read), time.monotonic() + timeout_s
    with ProgressBar(total, desc="Running notebooks", unit="cell") as bar:
        for path, notebook in zip(notebooks, read, strict=True):
            _run(path, notebook, end, timeout_s, _environment(folder), bar)
    opened = (folder / "opened").read_bytes().splitlines()
    return {Path(os.fsdecode(line)) for line in opened}


def _environment(folder: Path) -> dict[str, str]:
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: each for name, each in os.environ.items() if not name.startswith("DIRECTMAIL_")},
        "DIRECTMAIL_LAB_RUN": str(folder),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


def _run(
    path: Path,
    notebook: NotebookNode,
    end: float,
    timeout_s: float,
    environment: Mapping[str, str],
    bar: ProgressBar,
) -> None:
    """Run one notebook; ``end`` is a time of the monotonic clock."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    number = 0

    def start(cell_index: int, **_: object) -> None:
        nonlocal number
        number = cell_index + 1
        bar.update()

    def fail(what: str, advice: str) -> NotebookRunError:
        where = f"{path.name}, cell {number}"
        return NotebookRunError(f"Nothing was written: {where}, {what}\n", f"{advice} {_NO_RUN}")

    options: dict[str, Any] = {
        "kernel_name": "python3",
        "on_cell_start": start,
        "resources": {"metadata": {"path": str(path.parent)}},
        "shutdown_kernel": "immediate",
        "timeout_func": lambda _: max(1, math.ceil(end - time.monotonic())),
    }
    try:
        # The kernel's own messages are not outputs of cells, and do not concern the user.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        NotebookClient(notebook, **options).execute(env=environment, **quiet)
        return
    except CellExecutionError as error:
        told = _COLOUR.sub("", f"{error.ename}: {error.evalue}")
        lines = [line for line in told.splitlines() if line.strip()]
        shown = "".join(f"\n  {line.strip()[:300]}" for line in lines[:2])
        advice = _ADVICE.get(error.ename, "Restart your kernel and run all cells to see it.")
        failure = fail(f"fails where there is no key:{shown}", advice)
    except CellTimeoutError:
        limit = (
            f"{timeout_s / 60:g} minutes" if timeout_s > 60 else plural(round(timeout_s), "second")
        )
        failure = fail(f"still ran after {limit}.", "For more time: timeout_s=…, or --timeout.")
    except (DeadKernelError, RuntimeError):
        failure = fail("ended its kernel.", "It may need more memory.")
    raise failure
