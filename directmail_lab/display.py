"""How results are shown: plurals, progress bars, and tables in a notebook and a terminal.

`readable` returns the same pandas DataFrame and changes only how it is shown as the value of a
notebook cell (or in IPython): text is aligned left, columns without values are left out, long text
is not cut, and a single row that is too wide becomes a row for each field. Copies of the frame, and
frames made from it, are shown as pandas shows them.
"""

from __future__ import annotations

import html
import json
import math
import shutil
import sys
import textwrap
import time
import weakref
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    import pandas as pd


_MOST_ROWS: Final = 60
_ROWS_AT_EACH_END: Final = 10
_MOST_COLUMNS: Final = 100
_MOST_CHARACTERS: Final = 1_000
# What fits a page of JupyterLab; one row that is wider is shown as a row for each field.
_PAGE_CHARACTERS: Final = 110
_TERMINAL_CHARACTERS: Final = 100
_NARROWEST: Final = 12
_GAP: Final = 2
_OPTIONS: Final = "_readable"
# Control characters: in text from a service they could move a terminal's cursor.
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")


def plural(number: int, noun: str) -> str:
    """Return ``"1 reading"`` or ``"10,000 readings"``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def readable(
    frame: pd.DataFrame, *, once: Collection[str] = (), hidden: Collection[str] = ()
) -> pd.DataFrame:
    """Return the frame itself, changed to be shown as described in `display`.

    The sentences in its ``attrs["notes"]``, if any, are shown below the table.

    Parameters
    ----------
    once
        Columns in which a value equal to the one above is left blank.
    hidden
        Columns that are not shown, such as those that hold whole documents.
    """
    shown = weakref.ref(frame)  # the frame refers to the function: a cycle would delay its freeing

    def bundle(include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude  # IPython passes them, and filters the result itself
        kept = shown()
        return {} if kept is None else {"text/html": as_html(kept), "text/plain": as_text(kept)}

    vars(frame)["_repr_mimebundle_"] = bundle
    vars(frame)[_OPTIONS] = (once, hidden)
    return frame


def as_html(frame: pd.DataFrame) -> str:
    """Return a frame as an HTML table, in the page's own colours; every value is escaped."""
    return html_table(*_columns_and_notes(frame, _PAGE_CHARACTERS))


def html_table(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Return columns as an HTML table, with notes below it; every value is escaped."""
    rows = ["<tr>" + "".join(row) + "</tr>" for row in zip(*map(_html_cells, columns), strict=True)]
    below = f"<p>{html.escape(' '.join(notes))}</p>" if notes else ""
    head, body = "".join(rows[:1]), "".join(rows[1:])
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{below}"


def as_text(frame: pd.DataFrame, *, width: int | None = None) -> str:
    """Return a frame as lines of text that fit the terminal; long cells are wrapped.

    ``width`` is in characters, by default the terminal's. Columns that do not fit are named below.
    """
    width = width or shutil.get_terminal_size((_TERMINAL_CHARACTERS, 24)).columns
    return text_table(*_columns_and_notes(frame, min(width, _PAGE_CHARACTERS)), width)


def text_table(columns: Sequence[Column], notes: Sequence[str], width: int) -> str:
    """Return columns as lines of text of at most this width, with notes below them."""
    used = accumulate(column.least_width + _GAP for column in columns)
    fitting = max(1, sum(characters - _GAP <= width for characters in used))
    if fitting < len(columns):
        names = ", ".join(column.name for column in columns[fitting:])
        notes = [*notes, f"Not shown here: {names}."]
    lines = _lines(columns[:fitting], width)
    return "\n".join([*lines, *textwrap.wrap(" ".join(notes), width)])


def _lines(columns: Sequence[Column], width: int) -> list[str]:
    """Return the lines of a table; columns of text are narrowed in proportion until all fit."""
    widths: list[int] = []
    for percent in range(100, 0, -1):
        widths = [max(one.least_width, one.width * percent // 100) for one in columns]
        if sum(widths) + _GAP * (len(widths) - 1) <= width:
            break
    lines = []
    for row in zip(*([one.name, *one.cells] for one in columns), strict=True):
        cells = [textwrap.wrap(cell, most) for cell, most in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                part.rjust(most) if column.is_number else part.ljust(most)
                for part, column, most in zip(parts, columns, widths, strict=True)
            ]
            lines.append((" " * _GAP).join(padded).rstrip())
    return lines


# -- what is shown -----------------------------------------------------------------------------


class Column(NamedTuple):
    """A column as it is shown. Numbers are aligned right; they and times are not wrapped."""

    name: str
    cells: list[str]
    kind: str = "O"  # as numpy's dtype.kind

    @property
    def is_number(self) -> bool:
        return self.kind in "iuf"

    @property
    def width(self) -> int:
        return max(map(len, [self.name, *self.cells]))

    @property
    def least_width(self) -> int:
        return self.width if self.kind in "iufM" else min(self.width, _NARROWEST)


def _html_cells(column: Column) -> list[str]:
    # Each cell has its alignment, since JupyterLab's style sheet sets it for cells.
    style = f"text-align:{'right' if column.is_number else 'left'}"
    style += ";white-space:nowrap" if column.kind in "iufM" else ""
    cells = [f'<td style="{style}">{html.escape(cell)}</td>' for cell in column.cells]
    return [f'<th style="{style}">{html.escape(column.name)}</th>', *cells]


def _columns_and_notes(frame: pd.DataFrame, page: int) -> tuple[list[Column], list[str]]:
    """Return the columns that are shown, and sentences on what is not."""
    once, hidden = vars(frame).get(_OPTIONS, ((), ()))
    rows = len(frame)
    is_cut = rows > _MOST_ROWS
    ends = [*range(_ROWS_AT_EACH_END), *range(rows - _ROWS_AT_EACH_END, rows)]
    part = frame.iloc[ends] if is_cut else frame
    columns = [Column("", list(map(str, part.index)), "i")] if rows > 1 else []
    empty = []
    for position, name in enumerate(map(str, frame.columns[:_MOST_COLUMNS])):
        values, label = part.iloc[:, position], name.translate(_CONTROLS)
        if name in hidden:
            continue
        missing = values.isna()
        cells = [
            "" if no else _cell(name, value) for value, no in zip(values, missing, strict=True)
        ]
        whole = frame.iloc[:, position].dropna()
        if rows and not any(cells) and not any(_cell(name, value) for value in whole):
            empty.append(label)
            continue
        if name in once:
            above = ["", *cells]
            cells = ["" if cell == before else cell for before, cell in pairwise(above)]
        columns.append(Column(label, cells, values.dtype.kind))
    for column in columns if is_cut else ():
        column.cells.insert(_ROWS_AT_EACH_END, "…")
    if rows == 1 and sum(column.width + _GAP for column in columns) > page:
        names = [column.name for column in columns]
        columns = [
            Column("field", names),
            Column("value", [column.cells[0] for column in columns]),
        ]
    notes = [f"{plural(rows, 'row')}."] if is_cut or not rows else []
    notes += [f"Without a value: {', '.join(empty)}."] if empty else []
    if (more := len(frame.columns) - _MOST_COLUMNS) > 0:
        notes.append(f"And {more:,} more of {len(frame.columns):,} columns.")
    return columns, [*notes, *frame.attrs.get("notes", ())]


def _cell(name: str, value: object) -> str:
    """Return a value as text on one line: times to the second, seconds to the millisecond."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, float) and name.endswith("_s"):
        return f"{value:.3f}"
    text = (value if isinstance(value, str) else _json(value)).translate(_CONTROLS)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _json(value: object) -> str:
    if not isinstance(value, dict | list | tuple):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


# -- progress ----------------------------------------------------------------------------------


class ProgressBar:
    """A tqdm bar that disappears when it is closed, from the saved notebook too.

    It appears after ``delay_s`` seconds; ``options`` are tqdm's. If the output is no terminal,
    it is one line.
    """

    def __init__(self, total: float | None, *, delay_s: float = 1.0, **options: Any) -> None:
        self._total = math.inf if total is None else total
        self._options = {"total": total, "leave": False, **options}
        self._shown_from = time.monotonic() + delay_s
        self._done = 0.0
        self._bar: Any = None
        self._output: Any = None
        self.update(0)

    def update(self, done: float = 1) -> None:
        """Add to what is done."""
        self._done += done
        if self._bar is None and time.monotonic() >= self._shown_from:
            self._show()
        if self._bar is not None:
            # tqdm warns if a bar is more than full, which rounding may cause.
            self._bar.update(min(self._done, self._total) - self._bar.n)

    def _show(self) -> None:
        from tqdm.auto import tqdm
        from tqdm.notebook import tqdm_notebook

        if not issubclass(tqdm, tqdm_notebook):
            is_terminal = sys.stderr.isatty()
            if not is_terminal:  # one line in a log, not one for each update
                sys.stderr.write(f"{self._options.get('desc', 'Working')} …\n")
            self._bar = tqdm(**self._options, disable=not is_terminal)
            return
        from IPython.display import display

        self._bar = tqdm(display=False, **self._options)
        self._output = display(self._bar.container, display_id=True)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is None:
            return
        # In a notebook tqdm turns a bar red and keeps it if it is not full at the end.
        self._bar.n = self._bar.total or self._bar.n
        self._bar.close()
        if self._output is not None:
            # Else the saved notebook would keep tqdm's text.
            self._output.update({}, raw=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
