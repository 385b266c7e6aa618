"""Options that several commands have, and how the commands print data and errors."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from .. import errors
from ..cassettes import cassettes_by_name
from ..display import CONTROLS, escape_controls
from ..errors import DirectMailLabError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

_MOST_CHARACTERS = 1_000
_NARROWEST = 12
_LONGEST_WORD = 24
_GAP = 2

FOUND = typer.Exit(1)
"""A command raises this if it found something: exit code 1, as with grep."""


def complete_cassette(typed: str) -> list[str]:
    """Return the names of cassettes that begin with ``typed``, for completion in the shell."""
    return [name for name in cassettes_by_name() if name.startswith(typed)]


NAME = typer.Argument(help="A cassette's name, or a file.", autocompletion=complete_cassette)
JSON = typer.Option(False, "--json", help="Print JSON: an array of objects.")
CSV = typer.Option(False, "--csv", help="Print CSV.")
FORCE = typer.Option(False, "--force", help="Replace the file if it exists.")
CASSETTE = typer.Option(
    None,
    help="Read this cassette (a name or a file). By default, the command asks the live service.",
    autocompletion=complete_cassette,
)


def one_of(choices: Collection[str], default: str | None, help_text: str) -> Any:
    """Return an option that accepts only these values. Typer before 0.19 reads no ``Literal``."""

    def check(given: str | None) -> str | None:
        if given is not None and given not in choices:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(choices)}.")
        return given

    return typer.Option(
        default,
        help=help_text,
        metavar=f"[{'|'.join(choices)}]",
        callback=check,
        autocompletion=lambda: list(choices),
    )


# -- files -------------------------------------------------------------------------------------


def refuse_existing(path: Path, force: bool) -> None:
    """Raise an error if a file would be replaced without ``--force``."""
    if path.exists() and not force:
        raise DirectMailLabError(f"{path} already exists.", "Choose another name, or use --force.")


def print_any_text() -> None:
    """Print UTF-8 to a file or a pipe; at a terminal, replace what its encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # without a console, Windows has no streams
            encoding = None if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")


# -- data --------------------------------------------------------------------------------------


def show(
    frame: pd.DataFrame,
    *,
    as_json: bool = False,
    as_csv: bool = False,
    hidden: Collection[str] = (),
) -> None:
    """Print a frame to standard output: as a table that fits the terminal, as JSON, or as CSV.

    In JSON and CSV, times are ISO 8601. A missing value is null in JSON and empty in CSV. A table
    has no ``hidden`` columns. In a pipe, it has the 80 columns of a terminal.
    """
    if as_json and as_csv:
        raise typer.BadParameter("Give --json or --csv, not both.")
    if as_json:
        text = frame.to_json(orient="records", date_format="iso", date_unit="us") or "[]"
        shown = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        typer.echo(escape_controls(shown))
    elif as_csv:
        flat = frame.map(lambda cell: json.dumps(cell) if isinstance(cell, list | dict) else cell)
        typer.echo(flat.to_csv(index=False, lineterminator="\n"), nl=False)
    else:
        _print_table(frame.drop(columns=[*hidden]))


def _print_table(frame: pd.DataFrame) -> None:
    """Print a table by rich, which wraps long cells, and ``attrs["notes"]`` below it."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    notes = list(frame.attrs.get("notes", ()))
    if len(frame):
        columns = _columns_of(frame)
        left_out: list[str] = []
        while len(columns) > 1 and _least_width(columns) > console.width:
            left_out.insert(0, columns.pop().name)
        console.print(_table_of(columns, console.width))
        if left_out:
            notes.append(f"Not shown here, but in --csv: {', '.join(left_out)}.")
    elif not notes:
        notes = ["Nothing."]
    if notes:
        console.print(" ".join(notes))


class _Column(NamedTuple):
    """A column as texts. Numbers and times are not wrapped."""

    name: str
    cells: list[str]
    kind: str = "O"  # as numpy's dtype.kind

    @property
    def width(self) -> int:
        """How many characters it needs to be not wrapped."""
        return max(map(len, [self.name, *self.cells]))

    @property
    def least_width(self) -> int:
        """How many characters it needs to break no word of up to 24."""
        if self.kind in "iufM":
            return self.width
        words = " ".join([self.name, *self.cells]).split()
        word = min(max(map(len, words)), _LONGEST_WORD)
        return max(word, min(self.width, _NARROWEST))


def _least_width(columns: list[_Column]) -> int:
    widths = [column.least_width for column in columns]
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(columns: list[_Column], width: int) -> list[int]:
    """Return the columns' widths. What is left of the table's width goes to the longest texts."""
    widths = [column.least_width for column in columns]
    wanted = [column.width for column in columns]
    for _ in range(width - _least_width(columns)):
        ratios = [whole / given for whole, given in zip(wanted, widths, strict=True)]
        longest = ratios.index(max(ratios))
        if ratios[longest] > 1:
            widths[longest] += 1
    return widths


def _columns_of(frame: pd.DataFrame) -> list[_Column]:
    """Return the columns that have a value; of a single record, its fields and their values."""
    frame = frame.round({"elapsed_s": 3})
    if frame.index.name:
        frame = frame.reset_index()
    columns = []
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        cells = [_cell(value) for value in values]
        if any(cells):
            columns.append(_Column(_cell(name), cells, values.dtype.kind))
    if len(frame) > 1:
        return columns
    fields = [column.name for column in columns]
    return [_Column("field", fields), _Column("value", [column.cells[0] for column in columns])]


def _table_of(columns: list[_Column], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, column_width in zip(columns, _widths(columns, width), strict=True):
        is_number = column.kind in "iuf"
        table.add_column(
            Text(column.name),
            width=column_width,
            justify="right" if is_number else "left",
            no_wrap=column.kind in "iufM",
            overflow="fold",
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def _cell(value: Any) -> str:
    """Return a value as text: a time to the second, JSON for an array, nothing if it is missing."""
    import pandas as pd

    if isinstance(value, dict | list | tuple):
        text = json.dumps(value, ensure_ascii=False, default=str)
    elif pd.isna(value):
        text = ""
    elif isinstance(value, datetime):
        text = f"{value:%Y-%m-%d %H:%M:%SZ}"
    else:
        text = str(value)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    return CONTROLS.sub(" ", text).replace("\n", " ")


# -- errors ------------------------------------------------------------------------------------

_SIGN_IN = (
    "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY. me, rate-limits, "
    "check-contract and findings can read a recording instead: --cassette."
)
_ADVICE: dict[type[Exception], str] = {
    errors.CredentialError: _SIGN_IN,
    errors.NotConnectedError: _SIGN_IN,
    errors.UnauthorizedError: "Check DIRECTMAIL_API_KEY.",
    errors.NotRecordedError: "To see all cassettes: directmail-lab cassette list.",
    errors.AllowanceExhaustedError: "Try again later.",
    errors.NotJSONError: "Check the base address: it may lead to a login page or a gateway.",
}


def error_message(error: Exception) -> str:
    """Return an error's message, with advice for the command line in place of Python's."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}." if error.filename else reason
    advice = next((own for kind, own in _ADVICE.items() if isinstance(error, kind)), None)
    if isinstance(error, DirectMailLabError) and advice is not None:
        error.advice = advice
    elif isinstance(error, errors.ServiceError):
        sentences = re.split(r"(?<=\.) (?=[A-Z])", error.advice)
        error.advice = " ".join(each for each in sentences if not re.search(r"\w\(", each))
    return str(error)
