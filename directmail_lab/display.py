"""How results are shown: plurals, tables in a notebook and a terminal, progress bars.

`readable` returns the same pandas DataFrame and changes only how it is shown as the value of a
notebook cell (or in IPython): text is aligned left, columns without values are left out, long text
is not cut, and a single row that is too wide becomes one row per field. pandas shows copies of the
frame, and frames made from it, as usual.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


_MOST_ROWS: Final = 60
_ROWS_AT_EACH_END: Final = 10
_MOST_COLUMNS: Final = 100
_MOST_CHARACTERS: Final = 1_000
# What fits on a page of JupyterLab. A single row that is wider is shown as one row per field.
_PAGE_CHARACTERS: Final = 110
_NARROWEST: Final = 12
_GAP: Final = "  "
_OPTIONS: Final = "_readable"
CONTROLS: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Surrogates, and characters that move a terminal's cursor or hide text, except line breaks."""


def plural(number: int, noun: str) -> str:
    """Return ``"1 reading"``, ``"10,000 readings"`` or ``"2 addresses"``."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


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
    starts = sorted(number for number in seen if number - 1 not in seen)
    ends = sorted(number for number in seen if number + 1 not in seen)
    pairs = zip(starts, ends, strict=True)
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs)


def readable(
    frame: pd.DataFrame, *, once: Collection[str] = (), hidden: Collection[str] = ()
) -> pd.DataFrame:
    """Return the same frame, after changing how it is shown (see `display`).

    If ``attrs["notes"]`` has sentences, they are shown below the table.

    Parameters
    ----------
    once
        Columns in which a value equal to the one above is left blank.
    hidden
        Columns that are not shown, such as those that contain whole documents.
    """
    shown = weakref.ref(frame)  # weak, since the frame refers to `bundle`: no cycle to collect

    def bundle(**_: object) -> dict[str, str]:  # IPython itself applies what it passes
        kept = shown()
        return {} if kept is None else {"text/html": as_html(kept), "text/plain": as_text(kept)}

    vars(frame)["_repr_mimebundle_"] = bundle
    vars(frame)[_OPTIONS] = (once, hidden)
    return frame


def as_html(frame: pd.DataFrame) -> str:
    """Return a frame as an HTML table in the colours of the page. Every value is escaped."""
    columns, notes = _columns_and_notes(frame, _PAGE_CHARACTERS)
    head, *rows = zip(*map(_html_cells, columns), strict=True) if columns else [()]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    below = f"<p>{html.escape(' '.join(notes))}</p>" if notes else ""
    return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{body}</tbody></table>{below}"


def as_text(frame: pd.DataFrame, *, width: int | None = None) -> str:
    """Return a frame as lines of text that fit the terminal; long cells are wrapped.

    ``width`` is in characters, by default the terminal's. If columns do not fit, a line below the
    table names them.
    """
    width = width or shutil.get_terminal_size((80, 24)).columns
    columns, notes = _columns_and_notes(frame, min(width, _PAGE_CHARACTERS))
    left_out: list[str] = []
    while len(columns) > 1 and _total_width(columns, _NARROWEST) > width:
        left_out.insert(0, columns.pop().name)
    if left_out:
        notes.append(f"Not shown here: {', '.join(left_out)}.")
    # The largest width of a column of text with which the table fits.
    widths = range(width, _NARROWEST, -1)
    most = next((each for each in widths if _total_width(columns, each) <= width), _NARROWEST)
    return "\n".join([*_lines(columns, most), *textwrap.wrap(" ".join(notes), width)])


# -- columns -----------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column to show. Numbers are aligned right; numbers and times are not wrapped."""

    name: str
    cells: list[str]
    kind: str = "O"  # as numpy's dtype.kind

    def width(self, most: int) -> int:
        """Return its width in characters; a column that can be wrapped has at most ``most``."""
        width = max(map(len, [self.name, *self.cells]))
        return width if self.kind in "iufM" else min(width, most)

    def align(self, text: str, width: int) -> str:
        return text.rjust(width) if self.kind in "iuf" else text.ljust(width)


def _total_width(columns: list[_Column], most: int) -> int:
    return sum(column.width(most) + len(_GAP) for column in columns) - len(_GAP)


def _lines(columns: list[_Column], most: int) -> list[str]:
    widths = [column.width(most) for column in columns]
    return [
        _GAP.join(map(_Column.align, columns, parts, widths)).rstrip()
        for row in zip(*([column.name, *column.cells] for column in columns), strict=True)
        for parts in zip_longest(*map(textwrap.wrap, row, widths), fillvalue="")
    ]


def _html_cells(column: _Column) -> list[str]:
    # Each cell states its alignment, since JupyterLab's style sheet sets one for cells.
    style = f"text-align:{'right' if column.kind in 'iuf' else 'left'}"
    style += ";white-space:nowrap" if column.kind in "iufM" else ""
    cells = [f'<td style="{style}">{html.escape(cell)}</td>' for cell in column.cells]
    return [f'<th style="{style}">{html.escape(column.name)}</th>', *cells]


def _columns_and_notes(frame: pd.DataFrame, page: int) -> tuple[list[_Column], list[str]]:
    """Return the columns to show, and sentences about what is left out."""
    count, width = frame.shape
    is_cut = count > _MOST_ROWS
    ends = [*range(_ROWS_AT_EACH_END), *range(count - _ROWS_AT_EACH_END, count)]
    part = frame.iloc[ends] if is_cut else frame
    columns, empty = _columns(frame, part)
    for column in columns if is_cut else ():
        column.cells.insert(_ROWS_AT_EACH_END, "…")
    if count == 1 and _total_width(columns, _MOST_CHARACTERS) > page:
        names, values = [column.name for column in columns], [column.cells[0] for column in columns]
        columns = [_Column("field", names), _Column("value", values)]
    notes = [f"{plural(count, 'row')}."] if is_cut or not count else []
    notes += [f"Without a value: {', '.join(empty)}."] if empty else []
    if width > _MOST_COLUMNS:
        notes.append(f"And {width - _MOST_COLUMNS:,} more of {width:,} columns.")
    return columns, [*notes, *frame.attrs.get("notes", ())]


def _columns(frame: pd.DataFrame, part: pd.DataFrame) -> tuple[list[_Column], list[str]]:
    """Return the columns of the rows in ``part``, and the names of columns without any value."""
    once, hidden = vars(frame).get(_OPTIONS, ((), ()))
    columns, empty, title = [], [], _one_line(str(frame.index.name or ""))
    if len(frame) > 1 or title:
        columns.append(_Column(title, [_one_line(str(each)) for each in part.index], "i"))
    for position, name in enumerate(map(str, frame.columns[:_MOST_COLUMNS])):
        values, label = part.iloc[:, position], _one_line(name)
        if name in hidden:
            continue
        if len(frame) and frame.iloc[:, position].dropna().eq("").all():
            empty.append(label)
            continue
        cells = [_cell(name, value) for value in values.astype(object).mask(values.isna(), "")]
        if name in once:
            cells = ["" if cell == above else cell for above, cell in pairwise(["", *cells])]
        columns.append(_Column(label, cells, values.dtype.kind))
    return columns, empty


def _cell(name: str, value: object) -> str:
    """Return a value as one line: a time to the second, a number of seconds to the millisecond."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, float) and name.endswith("_s"):
        return f"{value:.3f}"
    try:
        is_json = isinstance(value, dict | list | tuple)
        text = json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)
    except (RecursionError, ValueError):
        text = "(nested too deeply to be shown)"
    return _one_line(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def _one_line(text: str) -> str:
    return CONTROLS.sub(" ", text).replace("\n", " ")


# -- progress ----------------------------------------------------------------------------------

Progress = Callable[[float], object]
"""A callback that gets how much was done since its last call."""


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
            self._bar.update(min(self._done, self._bar.total or math.inf) - self._bar.n)

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
