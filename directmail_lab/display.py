"""How results are shown: plurals, tables whose cells are sentences, progress bars."""

from __future__ import annotations

import html
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


_MOST_ROWS = 60

RUN_FOR_FORM = "Run this cell to get the sign-in form."
"""What a saved notebook has in place of the form. A page for readers leaves it out."""

CONTROLS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Surrogates, and characters that move a terminal's cursor or hide text, except line breaks."""


def plural(number: int, noun: str) -> str:
    """Return ``"1 reading"``, ``"10,000 readings"`` or ``"2 addresses"``."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def printable(text: str) -> str:
    """Return a text from outside that is safe to print, with escapes such as ``\\x1b``.

    Line breaks stay. Every message and every table at a terminal calls this function.
    """
    return CONTROLS.sub(lambda control: ascii(control[0])[1:-1], text)


def printable_line(text: str) -> str:
    """Return such a text on one line: a path with a line break must not look like two messages."""
    return printable(text).replace("\n", "\\n")


def shell_word(text: str) -> str:
    """Return a text as one word of a command, quoted for the shell of this system."""
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline([text])
    return shlex.quote(text)


def utc_time(seconds: float) -> datetime:
    """Return a Unix time; Windows' own function knows only the years 1970 to 3000."""
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ``"1-3, 7"``."""
    seen = set(numbers)
    start = 0
    spans = []
    for number in sorted(seen):
        if number - 1 not in seen:
            start = number
        if number + 1 not in seen:
            spans.append(str(number) if number == start else f"{start}-{number}")
    return ", ".join(spans)


def running_ipython() -> Any:
    """Return IPython's shell if this runs in IPython, or None. It does not import IPython."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()


def say_in_notebook(text: str) -> bool:
    """Print a line in IPython, where a log is a red box; elsewhere, return False."""
    if running_ipython() is None:
        return False
    sys.stdout.write(f"{text}\n")
    return True


def with_whole_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same frame; a notebook shows its cells whole, and its notes below.

    pandas would cut each cell after 50 characters. It shows copies of the frame as usual.
    """
    vars(frame)["_repr_html_"] = partial(whole_html, frame)
    return frame


def whole_html(frame: pd.DataFrame, most_rows: int = _MOST_ROWS) -> str:
    """Return pandas' HTML of a frame with whole cells, and ``attrs["notes"]`` as a paragraph."""
    import pandas as pd

    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(max_rows=most_rows, na_rep="", border=0)
    # JupyterLab aligns cells right, which suits numbers.
    for cell in ("th", "td"):
        table = table.replace(f"<{cell}>", f'<{cell} style="text-align: left">')
    notes = " ".join(frame.attrs.get("notes", ()))
    return f"{table}<p>{html.escape(notes)}</p>" if notes else table


# -- progress ----------------------------------------------------------------------------------


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A tqdm bar that disappears when it is closed, also from the saved notebook.

    It appears after ``delay_s`` seconds. ``options`` are tqdm's. If the output is not a terminal,
    it prints one line instead.
    """

    def __init__(self, total: float | None, *, delay_s: float = 1.0, **options: Any) -> None:
        self._options = {"total": total, "leave": False, **options}
        self._shown_from = time.monotonic() + delay_s
        self._done: float = 0
        self._bar: Any = None
        self._output: Any = None
        self.update(0)

    def update(self, done: float = 1) -> None:
        """Advance the bar by ``done``."""
        self._done += done
        if self._bar is None and time.monotonic() >= self._shown_from:
            self._show()
        if self._bar is not None:
            # tqdm warns if a bar is more than full, and rounding may cause that.
            done = min(self._done, self._bar.total or math.inf)
            self._bar.update(done - self._bar.n)

    def _show(self) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:  # only what replays tests is installed
            self._shown_from = math.inf
            return

        # tqdm.auto imports tqdm.notebook only in a notebook. It imports IPython, which takes a
        # second, so it is not imported here.
        notebook = sys.modules.get("tqdm.notebook")
        if notebook is not None and issubclass(tqdm, notebook.tqdm_notebook):
            from IPython.display import display

            self._bar = tqdm(display=False, **self._options)
            self._output = display(self._bar.container, display_id=True)  # type: ignore[no-untyped-call]
        elif sys.stderr.isatty():
            self._bar = tqdm(**self._options)
        else:  # a log gets one line, not one for each update
            sys.stderr.write(f"{self._options['desc']} …\n")
            self._shown_from = math.inf

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is None:
            return
        # In a notebook, tqdm turns a bar red and keeps it if it is not full at the end.
        self._bar.n = self._bar.total or self._bar.n
        self._bar.close()
        if self._output is not None:
            # Otherwise the saved notebook would keep tqdm's text.
            self._output.update({}, raw=True)

    def __exit__(self, *_: object) -> None:
        self.close()
