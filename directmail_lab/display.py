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
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd

__all__ = ["as_html", "as_text", "plural", "readable"]

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
        if kept is None:
            return {}
        options: dict[str, Any] = {"once": once, "hidden": hidden}
        return {"text/html": as_html(kept, **options), "text/plain": as_text(kept, **options)}

    object.__setattr__(frame, "_repr_mimebundle_", bundle)
    return frame


# -- what is shown -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Column:
    """A column as it is shown: the text of its cells, numbers to the right."""

    name: str
    cells: list[str]
    is_number: bool = False
    is_time: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))

    @property
    def least_width(self) -> int:
        whole = self.is_number or self.is_time
        return self.width if whole else min(self.width, _NARROWEST)


def _grid(
    frame: pd.DataFrame, once: Collection[str], hidden: Collection[str], page: int
) -> tuple[list[_Column], list[str]]:
    """Return the columns that are shown, and sentences on what is not."""
    rows = len(frame)
    ends = [*range(_ROWS_AT_EACH_END), *range(rows - _ROWS_AT_EACH_END, rows)]
    part = frame.iloc[ends] if rows > _MOST_ROWS else frame
    columns, empty = [], []
    if rows > 1:
        columns.append(_Column("", [str(label) for label in part.index], is_number=True))
    most = _MOST_FIELDS if rows == 1 else _MOST_COLUMNS
    for place, name in enumerate(map(str, frame.columns[:most])):
        if name in hidden:
            continue
        column = _column(name, part.iloc[:, place], once=name in once)
        if rows and all(
            isinstance(each, str) and not each for each in frame.iloc[:, place].dropna()
        ):
            empty.append(column.name)
        else:
            columns.append(column)
    if part is not frame:
        for column in columns:
            column.cells.insert(_ROWS_AT_EACH_END, "…")
    notes = [f"{plural(rows, 'row')}."] if part is not frame or not rows else []
    if empty:
        notes.append(f"Without a value: {', '.join(empty)}.")
    if len(frame.columns) > most:
        notes.append(f"And {len(frame.columns) - most:,} more of {len(frame.columns):,} columns.")
    notes.extend(frame.attrs.get("notes", ()))
    if rows == 1 and sum(column.width + len(_GAP) for column in columns) > page:
        names, values = zip(*((column.name, column.cells[0]) for column in columns), strict=True)
        columns = [_Column("field", list(names)), _Column("value", list(values))]
    return columns, notes


def _column(name: str, values: pd.Series[Any], *, once: bool) -> _Column:
    missing = values.isna()
    cells = [
        "" if gone else _cell(name, value) for value, gone in zip(values, missing, strict=True)
    ]
    if once:
        cells = ["" if row and cells[row - 1] == each else each for row, each in enumerate(cells)]
    return _Column(
        name.translate(_CONTROLS), cells, values.dtype.kind in "iuf", values.dtype.kind == "M"
    )


def _cell(name: str, value: object) -> str:
    """Return a value as text on one line: times to the second, seconds to the millisecond."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, float) and name.endswith("_s"):
        return f"{value:.3f}"
    text = value if isinstance(value, str) else _json(value)
    text = text.translate(_CONTROLS)
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


# -- how it is shown ---------------------------------------------------------------------------


def as_html(
    frame: pd.DataFrame, *, once: Collection[str] = (), hidden: Collection[str] = ()
) -> str:
    """Return a frame as an HTML table, in the page's own colours; every value is escaped."""
    columns, notes = _grid(frame, once, hidden, _PAGE_CHARACTERS)
    # In the cells: JupyterLab's own style sheet says "right", and drops ours where it is untrusted.
    styles = [f"text-align:{'right' if each.is_number else 'left'}" for each in columns]
    head = _row_html("th", [each.name for each in columns], styles)
    rows = zip(*(each.cells for each in columns), strict=True)
    body = "".join(_row_html("td", row, styles) for row in rows)
    below = f"<p>{html.escape(' '.join(notes))}</p>" if notes else ""
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{below}"


def _row_html(tag: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    told = zip(cells, styles, strict=True)
    inner = "".join(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>' for cell, style in told)
    return f"<tr>{inner}</tr>"


def as_text(
    frame: pd.DataFrame,
    *,
    once: Collection[str] = (),
    hidden: Collection[str] = (),
    width: int | None = None,
) -> str:
    """Return a frame as lines of text that fit the terminal; long cells go over several lines.

    ``width`` is in characters, by default the terminal's. Columns that do not fit are named below.
    """
    width = width or shutil.get_terminal_size((_TERMINAL_CHARACTERS, 24)).columns
    columns, notes = _grid(frame, once, hidden, min(width, _PAGE_CHARACTERS))
    columns, left_out = _fitting(columns, width)
    if left_out:
        notes.append(f"Not shown here: {', '.join(left_out)}.")
    widths = _widths(columns, width)
    rows = [[each.name for each in columns], *zip(*(each.cells for each in columns), strict=True)]
    lines = [line for row in rows for line in _row_text(row, columns, widths)]
    return "\n".join([*lines, *textwrap.wrap(" ".join(notes), width)])


def _fitting(columns: list[_Column], width: int) -> tuple[list[_Column], list[str]]:
    """Return the columns that fit beside each other, from the left, and the names of the others."""
    used = 0
    for place, column in enumerate(columns):
        used += column.least_width + (len(_GAP) if place else 0)
        if used > width and place:
            return columns[:place], [each.name for each in columns[place:]]
    return columns, []


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return a width for each column, the widest text made narrower until all fit."""
    widths = [column.width for column in columns]
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for _ in range(over):
        spare = [now - column.least_width for now, column in zip(widths, columns, strict=True)]
        widest = max(
            range(len(widths)),
            key=lambda place: (spare[place] > 0, widths[place] / columns[place].width),
        )
        widths[widest] -= spare[widest] > 0
    return widths


def _row_text(row: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> list[str]:
    cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        placed = (
            part.rjust(width) if column.is_number else part.ljust(width)
            for part, column, width in zip(parts, columns, widths, strict=True)
        )
        lines.append(_GAP.join(placed).rstrip())
    return lines
