"""How what we give reads: counts in words, and tables in a notebook and in a terminal.

A frame that went through `readable` is the same pandas DataFrame. It only shows itself otherwise as
the value of a notebook cell (or of IPython): text to the left, columns without a value left out,
long text whole, one row that is too wide as a row for each field. Copies of it, and what is made
from it, show themselves as pandas has it.
"""

from __future__ import annotations

import html
import json
import shutil
import textwrap
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd


_MOST_ROWS: Final = 60
_ROWS_AT_EACH_END: Final = 10
_MOST_COLUMNS: Final = 60
_MOST_FIELDS: Final = 200
_MOST_CHARACTERS: Final = 1_000
# Of a page of JupyterLab; a row of more characters is shown as a row for each of its fields.
_PAGE_CHARACTERS: Final = 110
_TERMINAL_CHARACTERS: Final = 100
_NARROWEST: Final = 12
_GAP: Final = "  "
_OPTIONS: Final = "_readable"
# What a terminal acts on: text of a service could move the cursor.
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")


def plural(number: int, noun: str) -> str:
    """Return ``"1 reading"`` or ``"10,000 readings"``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def readable(
    frame: pd.DataFrame, *, once: Collection[str] = (), hidden: Collection[str] = ()
) -> pd.DataFrame:
    """Return the frame itself, which from now on reads well as the value of a notebook cell.

    The sentences in its ``attrs["notes"]``, where it has them, stand below it.

    Parameters
    ----------
    once
        Columns whose value is left out where it is that of the row above.
    hidden
        Columns that are not shown, such as those that hold whole documents.
    """
    shown = weakref.ref(frame)  # the frame holds the function: no circle, which would delay its end

    def bundle(include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude  # IPython's; it drops what it did not want
        kept = shown()
        return {} if kept is None else {"text/html": as_html(kept), "text/plain": as_text(kept)}

    vars(frame)["_repr_mimebundle_"] = bundle
    vars(frame)[_OPTIONS] = (once, hidden)
    return frame


def as_html(frame: pd.DataFrame) -> str:
    """Return a frame as an HTML table, in the page's own colours; every value is escaped."""
    columns, notes = _shown(frame, _PAGE_CHARACTERS)
    rows = zip(*(column.html() for column in columns), strict=True)
    head, *body = ("<tr>" + "".join(row) + "</tr>" for row in rows) if columns else ("",)
    below = f"<p>{html.escape(' '.join(notes))}</p>" if notes else ""
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{below}"


def as_text(frame: pd.DataFrame, *, width: int | None = None) -> str:
    """Return a frame as lines of text that fit the terminal; long cells go over several lines.

    ``width`` is in characters, by default the terminal's. Columns that do not fit are named below.
    """
    width = width or shutil.get_terminal_size((_TERMINAL_CHARACTERS, 24)).columns
    columns, notes = _shown(frame, min(width, _PAGE_CHARACTERS))
    used = accumulate(column.least_width + len(_GAP) for column in columns)
    fitting = max(1, sum(each - len(_GAP) <= width for each in used))
    if fitting < len(columns):
        notes.append(f"Not shown here: {', '.join(each.name for each in columns[fitting:])}.")
    lines = _lines(columns[:fitting], width)
    return "\n".join([*lines, *textwrap.wrap(" ".join(notes), width)])


# -- what is shown -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Column:
    """A column as it is shown: its name and cells, as text; those of numbers stand to the right."""

    name: str
    cells: list[str]
    kind: str = "O"

    @property
    def texts(self) -> list[str]:
        return [self.name, *self.cells]

    @property
    def is_number(self) -> bool:
        return self.kind in "iuf"

    @property
    def width(self) -> int:
        return max(map(len, self.texts))

    @property
    def least_width(self) -> int:
        return self.width if self.kind in "iufM" else min(self.width, _NARROWEST)

    def html(self) -> list[str]:
        """Return the cells; with styles, since JupyterLab's own sheet says "right"."""
        style = f"text-align:{'right' if self.is_number else 'left'}"
        style += ";white-space:nowrap" if self.kind in "iufM" else ""
        head, *cells = map(html.escape, self.texts)
        told = [f'<td style="{style}">{cell}</td>' for cell in cells]
        return [f'<th style="{style}">{head}</th>', *told]


def _shown(frame: pd.DataFrame, page: int) -> tuple[list[_Column], list[str]]:
    """Return the columns that are shown, and sentences on what is not."""
    once, hidden = vars(frame).get(_OPTIONS, ((), ()))
    rows = len(frame)
    is_cut = rows > _MOST_ROWS
    ends = [*range(_ROWS_AT_EACH_END), *range(rows - _ROWS_AT_EACH_END, rows)]
    part = frame.iloc[ends] if is_cut else frame
    most = _MOST_FIELDS if rows == 1 else _MOST_COLUMNS
    columns = [_Column("", [str(label) for label in part.index], "i")] if rows > 1 else []
    empty = []
    for place, name in enumerate(map(str, frame.columns[:most])):
        column = _column(name, part.iloc[:, place], once=name in once)
        if name in hidden:
            continue
        if rows and not any(_cell(name, each) for each in frame.iloc[:, place].dropna()):
            empty.append(column.name)
        else:
            columns.append(column)
    for column in columns if is_cut else ():
        column.cells.insert(_ROWS_AT_EACH_END, "…")
    if rows == 1 and sum(column.width + len(_GAP) for column in columns) > page:
        columns = [
            _Column("field", [column.name for column in columns]),
            _Column("value", [column.cells[0] for column in columns]),
        ]
    notes = [f"{plural(rows, 'row')}."] if is_cut or not rows else []
    notes += [f"Without a value: {', '.join(empty)}."] if empty else []
    if (more := len(frame.columns) - most) > 0:
        notes.append(f"And {more:,} more of {len(frame.columns):,} columns.")
    return columns, [*notes, *frame.attrs.get("notes", ())]


def _column(name: str, values: pd.Series[Any], *, once: bool) -> _Column:
    told = zip(values, values.isna(), strict=True)
    cells = ["" if gone else _cell(name, value) for value, gone in told]
    if once:
        cells = ["" if row and cells[row - 1] == each else each for row, each in enumerate(cells)]
    return _Column(name.translate(_CONTROLS), cells, values.dtype.kind)


def _cell(name: str, value: object) -> str:
    """Return a value as text on one line: times to the second, seconds to the millisecond."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, float) and name.endswith("_s"):
        return f"{value:.3f}"
    text = (value if isinstance(value, str) else _json(value)).translate(_CONTROLS)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _json(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
        return ", ".join(map(str, value))
    if not isinstance(value, dict | list | tuple):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


# -- in lines ----------------------------------------------------------------------------------


def _lines(columns: Sequence[_Column], width: int) -> list[str]:
    widths = _widths(columns, width)
    lines = []
    for row in zip(*(column.texts for column in columns), strict=True):
        cells = [textwrap.wrap(cell, most) for cell, most in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            placed = (
                part.rjust(most) if column.is_number else part.ljust(most)
                for part, column, most in zip(parts, columns, widths, strict=True)
            )
            lines.append(_GAP.join(placed).rstrip())
    return lines


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return a width for each column, texts made narrower in proportion until all fit."""
    widths = [column.width for column in columns]
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - width):
        place = max(
            range(len(widths)),
            key=lambda each: (
                widths[each] > columns[each].least_width,
                widths[each] / max(columns[each].width, 1),
            ),
        )
        widths[place] -= widths[place] > columns[place].least_width
    return widths
