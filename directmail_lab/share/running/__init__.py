"""Run notebooks as a reader will: in the shared folder, with no key and no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...cassettes.library import has_usable_home
from ...display import ProgressBar
from ...errors import NotebookRunError, naming_what_is_missing

NO_RUN = "To share it as it is: run=False, or --no-run."


@dataclass(frozen=True, slots=True)
class Run:
    """What a run gave.

    Attributes
    ----------
    opened
        The files below the run's folder that the notebooks opened.
    has_namespace
        Whether the run had a network namespace. With one, no program that a cell starts can connect
        to another machine, nor to a server of this machine that was started outside of the run.
    made
        Each notebook with the run's outputs, and the same as an HTML page.
    """

    opened: frozenset[Path]
    has_namespace: bool
    made: list[tuple[bytes, bytes]]


def run_notebooks(folder: Path, notebooks: Sequence[Path], *, timeout_s: float) -> Run:
    """Run notebooks, each in a fresh kernel.

    `runner` runs them in a process of its own. Neither it nor a kernel gets a ``DIRECTMAIL_``
    variable, the keyring, or the user's IPython settings. Python's sockets connect to this machine
    only. The notebooks on disk stay unchanged.

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
        if find_spec("nbclient") is None:  # the runner needs it; to import it takes a second
            raise ModuleNotFoundError(name="nbclient")

    last: dict[str, Any] = {}
    cells = sum(len(json.loads(path.read_bytes())["cells"]) for path in notebooks)
    with ProgressBar(cells, desc="Running notebooks", unit="cell") as bar:
        for last in _reports(folder, notebooks, timeout_s):
            if "cell" in last:
                bar.update()
    if "what" in last:
        raise NotebookRunError(f"Nothing was written: {last['what']}", last["advice"])
    opened = (folder / "opened").read_bytes().splitlines()
    made = [(notebook.encode(), page.encode()) for notebook, page in last["made"]]
    return Run(frozenset(Path(os.fsdecode(line)) for line in opened), last["has_namespace"], made)


def _reports(folder: Path, notebooks: Sequence[Path], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Start the runner, and yield what it reports: each cell, and then how the run ended."""
    # The key is in this process's environment, which a child could read; it is not in a runner's.
    command = [sys.executable, "-m", f"{__name__}.runner", str(timeout_s), *map(str, notebooks)]
    errors = folder / "errors"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:  # Ctrl-C too
            process.terminate()
            raise
    if process.returncode:
        lines = errors.read_text("utf-8", "replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "it says nothing more")
        yield {"what": f"the notebooks could not be run ({reason}).", "advice": NO_RUN}


def _environment(folder: Path) -> dict[str, str]:
    environment = dict(os.environ)
    for name in os.environ:
        if name.startswith("DIRECTMAIL_"):
            del environment[name]
    if not has_usable_home():  # Jupyter needs one
        environment["HOME"] = str(folder)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return environment | {
        "DIRECTMAIL_LAB_RUN": str(folder),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
