"""The process that runs notebooks: ``python -m …runner TIMEOUT_S NOTEBOOK…``.

It has no key in its environment. If the system allows it, it is in a network namespace, which its
kernels and their programs share. It reports each cell that begins, and how the run ended, as
lines of JSON. The last one has the notebooks with their outputs, and their pages.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...display import plural
from ...errors import NotebookRunError
from ..notebook_page import page_of
from . import NO_RUN

if TYPE_CHECKING:
    from nbformat import NotebookNode

_RECORD = (
    'Put record("tour") above it, and run the notebook once with your key. A reader without a '
    "key then replays the cassette."
)
_NO_NETWORK = "Without a network, only what record(…) recorded can be replayed."
_ADVICE = {
    "NotConnectedError": _RECORD,
    "CredentialError": _RECORD,
    "CassetteNotFoundError": (
        "A name is looked up from the notebook's folder: record the cassette, or correct its name."
    ),
    "NotRecordedError": (
        "Run the notebook once with your key and with record(…), so that the cassette contains "
        "this request."
    ),
    "NetworkBlockedError": _NO_NETWORK,
    "BlockedImportError": _NO_NETWORK,
    "ConnectError": _NO_NETWORK,
    "ConnectionRefusedError": "A server that you started elsewhere is not there for a reader.",
    "FileNotFoundError": "The zip contains notebooks and cassettes, and no other files.",
}
# What widgets show without a kernel is up to date a second after a response. This cell, which the
# notebook does not keep, does not wait for it.
_SETTLE = """\
import sys
if "directmail_lab.notebook.widget" in sys.modules:
    sys.modules["directmail_lab.notebook.widget"].update_static_outputs()"""
# Colours, which a program that the cell starts may put into its error, such as Python 3.13.
_COLOUR = re.compile(r"\x1b\[[\d;]*m")

# From <sched.h>, <linux/sockios.h> and <net/if.h>.
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def main() -> None:
    """Run the notebooks that the command line names."""
    timeout_s = float(sys.argv[1])
    has_namespace = _can(_enter_namespace) and _enter_namespace()
    end = time.monotonic() + timeout_s
    # For web addresses, which notebooks do not check, jsonschema would load a grammar: 2 s.
    sys.modules.setdefault("rfc3987_syntax", cast("Any", None))
    made = []
    try:
        for path in map(Path, sys.argv[2:]):
            notebook = _run(path, end, timeout_s)
            made.append((notebook, page_of(notebook.encode(), path.stem).decode()))
    except NotebookRunError as error:
        _report(what=error.what, advice=f"{error.advice} {NO_RUN}")
    else:
        _report(has_namespace=has_namespace, made=made)


def _report(**values: object) -> None:
    sys.stdout.write(f"{json.dumps(values)}\n")
    sys.stdout.flush()


# -- the network -----------------------------------------------------------------------------------


def _enter_namespace() -> bool:
    """Move this process to a network of its own, with nothing but a loopback interface.

    It gets a user namespace too: an ordinary user needs one for this, and nothing in one can read
    the environment of the user's other processes. Root may do without.
    """
    uid = os.getuid()
    gid = os.getgid()
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    elif libc.unshare(_CLONE_NEWNET) != 0:
        return False
    from fcntl import ioctl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
    return True


def _can(enter: Any) -> bool:
    """Return whether the system allows it, as a child finds out: half a way in leads nowhere."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        allowed = False
        try:
            allowed = enter()
        finally:
            os._exit(0 if allowed else 1)
    return os.waitpid(child, 0)[1] == 0


# -- one notebook ----------------------------------------------------------------------------------


def _run(path: Path, end: float, timeout_s: float) -> str:
    """Run one notebook until ``end``, by the monotonic clock; return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from nbformat.v4 import new_code_cell

    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    count = len(notebook.cells)
    notebook.cells.append(new_code_cell(_SETTLE))  # type: ignore[no-untyped-call]
    number = 0

    def start(cell_index: int, **_: object) -> None:
        nonlocal number
        if cell_index < count:
            number = cell_index + 1
            _report(cell=number)

    options: dict[str, Any] = {
        "kernel_name": "python3",
        "on_cell_start": start,
        "record_timing": False,  # the same notebook gives the same outputs
        "resources": {"metadata": {"path": str(path.parent)}},
        "shutdown_kernel": "immediate",
        "startup_timeout": max(60, math.ceil(timeout_s)),
        "timeout_func": lambda _: max(1, math.ceil(end - time.monotonic())),
    }
    try:
        # The kernel's own messages are not outputs of cells, and do not concern the user.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        NotebookClient(notebook, **options).execute(**quiet)
        notebook.cells.pop()
        notebook.metadata.pop("widgets", None)
        return nbformat.writes(notebook)  # type: ignore[no-untyped-call,no-any-return]
    except CellExecutionError as error:
        text = _COLOUR.sub("", f"{error.ename}: {error.evalue}")
        lines = [line for line in text.splitlines() if line.strip()]
        shown = "".join(f"\n  {line.strip()[:300]}" for line in lines[:2])
        what = f"fails where there is no key:{shown}"
        advice = _ADVICE.get(error.ename, "Restart your kernel and run all cells to see it.")
    except CellTimeoutError:
        limit = plural(round(timeout_s), "second")
        if timeout_s > 60:
            limit = f"{timeout_s / 60:g} minutes"
        what = f"still ran after {limit}."
        advice = "For more time: timeout_s=…, or --timeout."
    except (DeadKernelError, RuntimeError):
        what = "ended its kernel."
        advice = "It may need more memory."
    raise NotebookRunError(f"{path.name}, cell {number}, {what}\n", advice)


if __name__ == "__main__":
    main()
