"""The executions of a notebook's cells: what was sent, recorded or replayed by which of them.

A script, a module or a test has no cells: all that it does belongs to one execution.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from .display import plural, running_ipython

_numbers = count(1)
# The ids of nbformat 4.5, which a notebook keeps. VS Code's are addresses with the notebook's path.
_KEPT_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def kept_id(cell_id: object) -> str | None:
    """Return the id of a cell if it may be written: if a notebook keeps it; or None."""
    return cell_id if isinstance(cell_id, str) and _KEPT_ID.match(cell_id) else None


@dataclass(eq=False, slots=True)
class Execution:
    """One execution of a cell, or one message to a widget.

    Attributes
    ----------
    cell_id
        What the front end calls the cell; empty if it does not say, and outside a cell.
    kept_id
        The same if the notebook keeps it, so that it may be written; else None.
    started_by
        The execution of the cell that made the widget whose message this is; None of a cell.
    is_cell
        Whether it is one of a cell.
    cell
        The number that the notebook shows, 5 for ``[5]``. It is known once the cell sends anything.
    outcomes
        What became of each of its writes: ``"kept"``, ``"sent"``, ``"failed (500)"``.
    kept
        What to say of the last write whose earlier response was returned.
    number
        Its place among the executions of this process.
    ended
        Whether its cell ended without an error; None while the cell is executed.
    """

    cell_id: str = ""
    kept_id: str | None = None
    started_by: Execution | None = None
    is_cell: bool = False
    cell: int | None = None
    outcomes: list[str] = field(default_factory=list)
    kept: str = ""
    number: int = field(default_factory=lambda: next(_numbers))
    ended: bool | None = None

    def follows(self, other: Execution | None) -> bool:
        """Return whether this is a later execution of the same cell than another one."""
        if other is None:
            return False
        return self.cell_id == other.cell_id and self.number > other.number

    def summary(self) -> str:
        """Return the line for the end of a cell; an empty string if all its writes were sent.

        A single write that failed has been shown already, as the cell's error or response.
        """
        counts = Counter(self.outcomes)
        kept = counts.pop("kept", 0)
        sent = counts.pop("sent", 0)
        total = len(self.outcomes)
        if total == 1 and self.kept:
            return self.kept
        if total < 2 or total == sent:
            return ""
        failed = [f"{count} {outcome}" for outcome, count in counts.items()]
        parts = ", ".join([f"{kept} kept", f"{sent} sent", *failed])
        return f"{plural(total, 'write')}: {parts}. dm.interactions() lists them."


class _Cells:
    """Follows IPython's shell: each of its executions gets an `Execution`.

    Tasks inherit it from the cell that creates them. A thread belongs to the cell that was started
    last when it first asked.
    """

    def __init__(self) -> None:
        self._shell: Any = None
        self._running: ContextVar[Execution] = ContextVar("running")
        self._of_threads = threading.local()
        self._without_shell = Execution()
        self.latest = self._without_shell
        self._message: Any = None
        self._made: dict[str, Execution] = {}
        self.seen: set[str | None] = set()

    def current(self) -> Execution:
        shell = running_ipython()
        if shell is None:
            return self._without_shell
        if shell is not self._shell:
            self._follow(shell)
        here = self._running.get(None)
        if here is None:
            here = vars(self._of_threads).setdefault("execution", self.latest)
        if here.is_cell and here.cell is None:
            # Some versions of IPython count the running cell already, and some do not.
            here.cell = len(shell.history_manager.input_hist_parsed) - 1
        return here

    def _follow(self, shell: Any) -> None:
        self._shell = shell
        self._running = ContextVar("running")
        self._of_threads = threading.local()
        self._begin()
        self._begin_cell()
        shell.events.register("pre_execute", self._begin)
        shell.events.register("pre_run_cell", self._begin_cell)
        shell.events.register("post_run_cell", self._end_cell)

    def _begin(self) -> None:
        """Begin the execution that a message of the front end asks for; a widget has only this."""
        message: Any = getattr(self._shell, "get_parent", dict)()
        if message and message is self._message:
            return  # such as `%%capture`, which runs the rest of its cell as one
        self._message = message
        comm_id = message.get("content", {}).get("comm_id")
        cell_id = message.get("metadata", {}).get("cellId") or ""
        started_by = self._made.get(comm_id, self.latest) if comm_id else None
        self._running.set(Execution(cell_id, kept_id(cell_id), started_by))

    def _begin_cell(self, _: object = None) -> None:
        self.latest = self._running.get()
        self.latest.is_cell = True
        self.seen.add(self.latest.kept_id or "")

    def _end_cell(self, result: Any) -> None:
        self.latest.ended = result is not None and result.success
        comms = sys.modules.get("comm")
        for comm_id in () if comms is None else comms.get_comm_manager().comms:
            self._made.setdefault(comm_id, self.latest)
        summary = self.latest.summary()
        if summary:
            sys.stdout.write(f"{summary}\n")


_cells = _Cells()


def current_execution() -> Execution:
    """Return what runs here: the execution of a cell, or a message to a widget."""
    return _cells.current()


def current_cell() -> Execution:
    """Return the execution of a cell that what happens here belongs to: see `Execution`."""
    here = _cells.current()
    return here.started_by or here


def is_between_cells() -> bool:
    """Return whether this is a notebook, and none of its cells is being executed."""
    return _cells.latest.ended is not None and running_ipython() is not None


def has_executed(cells: set[str | None]) -> bool:
    """Return whether this kernel has executed any of the cells with these ids."""
    return not cells.isdisjoint(_cells.seen)
