"""Options that several commands have, and how the commands print data and errors."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .. import errors
from ..display import cell_texts, is_number, printable
from ..errors import DirectMailLabError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import JustifyMethod

_MOST = 200
_NARROW = 60  # columns
_NAME = 24  # characters: a longer name may be broken
_UNBOUNDED = 10_000  # columns: a program that reads a pipe finds each row on one line

FOUND = typer.Exit(1)
"""A command raises this if it found something: exit code 1, as with grep."""


NAME = typer.Argument(help="A cassette's name, or a file.")
FORCE = typer.Option(False, "--force", help="Replace the file if it exists.")
KEEP = typer.Option([], "--keep", help="A field that stays, such as address.city. Repeatable.")


def say(text: object, *, err: bool = False) -> None:
    """Print a line, in which the names of files may come from outside."""
    typer.echo(printable(str(text)), err=err)


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


def show(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Print these columns, except empty ones, and ``attrs["notes"]`` below.

    At a terminal, long texts are wrapped. If it is narrow, each value has its own line.
    """
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else _UNBOUNDED
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    table = Table(box=None, pad_edge=False)
    cells = {name: cell_texts(frame[name]) for name in columns}
    shown = {name: texts for name, texts in cells.items() if any(texts)}
    for name, texts in shown.items():
        side: JustifyMethod = "right" if is_number(frame[name]) else "left"
        whole = min(_NAME, max(map(len, texts))) if name == columns[0] else None
        table.add_column(name, justify=side, overflow="fold", min_width=whole)
    is_narrow = console.width < _NARROW
    for values in zip(*shown.values(), strict=True):
        row = [f"{text[:_MOST]}…" if len(text) > _MOST else text for text in values]
        table.add_row(*row)
        if is_narrow:
            console.print(*map(": ".join, zip(shown, row, strict=True)), "", sep="\n")
    if len(frame) and not is_narrow:
        console.print(table)
    notes = frame.attrs.get("notes", [])
    if notes:
        console.print(*notes)


# -- errors ------------------------------------------------------------------------------------

_SIGN_IN = "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY."
_ADVICE: dict[type[Exception], str] = {
    errors.CredentialError: _SIGN_IN,
    errors.NotConnectedError: _SIGN_IN,
    errors.UnauthorizedError: "Check DIRECTMAIL_API_KEY.",
    errors.NotRecordedError: "To see all cassettes: directmail-lab cassette list.",
    errors.AllowanceExhaustedError: "Try again later.",
}


def error_message(error: Exception) -> str:
    """Return an error's message, with advice for the command line in place of Python's."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}." if error.filename else reason
    advice = next((own for kind, own in _ADVICE.items() if isinstance(error, kind)), None)
    if isinstance(error, DirectMailLabError) and advice is not None:
        error.advice = advice
    return str(error)
