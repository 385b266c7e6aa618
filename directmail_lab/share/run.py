"""Run notebooks as a reader will: in the shared folder, with no key and no network.

`run_notebooks` starts this module as a process: ``python -m … TIMEOUT_S NOTEBOOK…``. It has no key
in its environment, and `offline` refuses the connections of its kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..display import Progress
from ..errors import DirectMailLabError, NotebookRunError, naming_what_is_missing
from ..settings import LIVE_VARIABLE
from .notebook_page import import_exporter, import_nbformat

_NO_RUN = "To share it as it is: --no-run."
_RECORD = (
    'Put dm.record("tour") above it, and run the notebook once with your key. A reader without a '
    "key then replays the cassette."
)
_NO_NETWORK = "Without a network, only what dm.record(…) recorded can be replayed."
_ADD = "The zip has files and modules that stand beside the notebook. To add others: --add FILE."
_ADVICE = {
    "NotConnectedError": _RECORD,
    "CredentialError": _RECORD,
    "CassetteNotFoundError": (
        "A name is looked up from the notebook's folder: record the cassette, or correct its name. "
        "If the code computes its name, add the cassette: --add NAME."
    ),
    "NotRecordedError": (
        "Run the notebook once with your key and with dm.record(…), so that the cassette contains "
        "this request."
    ),
    "NoNetworkError": _NO_NETWORK,
    "ConnectError": _NO_NETWORK,
    "ConnectionError": _NO_NETWORK,
    "URLError": _NO_NETWORK,
    "FileNotFoundError": _ADD,
    "ModuleNotFoundError": _ADD,
}
# The last cell, which the notebook does not keep: the panel then shows up to 500 rows without a
# kernel, and what widgets show is up to date at once.
_SETTLE = """\
import sys
if "directmail_lab.notebook.widget" in sys.modules:
    from directmail_lab.notebook import browser_data, widget
    browser_data.STATIC_ROWS = 500
    widget.update_static_outputs()"""


def run_notebooks(folder: Path, notebooks: Sequence[Path]) -> None:
    """Run notebooks, each in a fresh kernel, and save their outputs in their files.

    Neither the process nor a kernel gets a ``DIRECTMAIL_`` variable but ``DIRECTMAIL_LIVE=0``, the
    keyring, or the user's IPython settings. Python's sockets connect to this machine only.

    Parameters
    ----------
    folder
        A temporary folder for this run.
    notebooks
        Files below it.

    Raises
    ------
    NotebookRunError
        A cell failed, or the kernel died.
    """
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("DIRECTMAIL_")},
        LIVE_VARIABLE: "0",  # also of a notebook that must be live for its author
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
    command = [sys.executable, "-W", "ignore", "-m", __name__, *map(str, notebooks)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            import_exporter()  # the pages need it next, and it takes a second
            told, _ = process.communicate()
        except BaseException:  # Ctrl-C too
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        # If the process itself failed, Python has printed why.
        what, advice = json.loads(told or '["the notebooks could not be run.", ""]')
        raise NotebookRunError(f"Nothing was written: {what}", f"{advice} {_NO_RUN}".lstrip())


def _main() -> None:
    try:
        with naming_what_is_missing():
            for path in map(Path, sys.argv[1:]):
                _run(path)
    except DirectMailLabError as error:
        sys.stdout.write(json.dumps([error.what, error.advice]))
        sys.exit(1)


def _run(path: Path) -> None:
    """Run one notebook, and save its outputs."""
    nbformat = import_nbformat()
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    count = len(notebook.cells)
    notebook.cells.append(nbformat.v4.new_code_cell(_SETTLE))
    number = 0
    bar = Progress(f"Running {path.name}", count, "cell")

    def start(cell: Any, cell_index: int) -> None:
        nonlocal number
        assert client.kc is not None, "it runs the cell"
        client.kc.session.metadata = {"cellId": cell.get("id")}  # as JupyterLab
        number = min(cell_index + 1, count)
        bar.update()

    options: dict[str, Any] = {
        "extra_arguments": ["--IPKernelApp.extra_extensions=directmail_lab.share.offline"],
        "kernel_name": "python3",
        "on_cell_start": start,
        "record_timing": False,  # the same notebook gives the same outputs
        "resources": {"metadata": {"path": str(path.parent)}},
        "shutdown_kernel": "immediate",
        "startup_timeout": 600,  # of a busy machine
    }
    client = NotebookClient(notebook, **options)
    try:
        # The kernel's own messages are not outputs of cells, and do not concern the user.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with bar:
            client.execute(**quiet)
    except CellExecutionError as error:
        # The kernel's reply does not name an error of a repr, and the output does.
        shown = [each for each in notebook.cells[number - 1].outputs if "ename" in each]
        failed = [error, *shown][-1]
        lines = [each for each in f"{failed.ename}: {failed.evalue}".splitlines() if each.strip()]
        message = "".join(f"\n  {line.strip()[:300]}" for line in lines[:2])
        what = f"fails where there is no key:{message}"
        advice = _ADVICE.get(failed.ename, "Restart your kernel and run all cells to see it.")
    except (DeadKernelError, RuntimeError, CancelledError):  # the last after Ctrl-C
        what = "ended its kernel."
        advice = "It may need more memory."
    else:
        notebook.cells.pop()
        notebook.metadata.pop("widgets", None)
        nbformat.write(notebook, path)
        return
    raise NotebookRunError(f"{path.name}, cell {number}, {what}\n", advice)


if __name__ == "__main__":
    _main()
