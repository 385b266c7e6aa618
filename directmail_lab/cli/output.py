"""Options that several commands have, and how the commands print data and errors."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .. import errors
from ..cassettes import cassettes_by_name, find_cassette
from ..display import CONTROLS, as_text
from ..errors import DirectMailLabError

if TYPE_CHECKING:
    import pandas as pd

# The width of a pipe: each row stays on one line, for grep.
_WIDE: Final = 1000

FOUND: Final = typer.Exit(1)
"""A command raises this if it found something: exit code 1, as with grep."""


def complete_cassette(typed: str) -> list[str]:
    """Return the names of cassettes that begin with ``typed``, for completion in the shell."""
    return [name for name in cassettes_by_name() if name.startswith(typed)]


NAME: Final = typer.Argument(help="A cassette's name, or a file.", autocompletion=complete_cassette)
JSON: Final = typer.Option(False, "--json", help="Print JSON: an array of objects.")
CSV: Final = typer.Option(False, "--csv", help="Print CSV.")
FORCE: Final = typer.Option(False, "--force", help="Replace the file if it exists.")
CASSETTE: Final = typer.Option(
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


def cassette_file(name: str) -> Path:
    """Return the file for an argument that is a file's path or a cassette's name."""
    path = Path(name)
    if path.is_file():
        return path
    is_path = path.is_absolute() or name.startswith(("./", "../"))
    return find_cassette(path if is_path else name)


def refuse_existing(path: Path, force: bool) -> None:
    """Raise an error if a file would be replaced without ``--force``."""
    if path.exists() and not force:
        raise DirectMailLabError(f"{path} already exists.", "Choose another name, or use --force.")


def print_any_text() -> None:
    """Print UTF-8 to a file or a pipe; at a terminal, replace what its encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # without a console, Windows has no streams
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


# -- data --------------------------------------------------------------------------------------


def show(frame: pd.DataFrame, *, as_json: bool = False, as_csv: bool = False) -> None:
    """Print a frame to standard output: as a table that fits the terminal, as JSON, or as CSV.

    In JSON and CSV, times are ISO 8601. A missing value is null in JSON and empty in CSV.
    """
    if as_json and as_csv:
        raise typer.BadParameter("Give --json or --csv, not both.")
    if as_json:
        text = frame.to_json(orient="records", date_format="iso", date_unit="us") or "[]"
        shown = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        typer.echo(CONTROLS.sub(lambda control: ascii(control[0])[1:-1], shown))
    elif as_csv:
        flat = frame.map(lambda cell: json.dumps(cell) if isinstance(cell, list | dict) else cell)
        typer.echo(flat.to_csv(index=False, lineterminator="\n"), nl=False)
    elif not len(frame):
        typer.echo(" ".join(frame.attrs.get("notes", ())) or "Nothing.")
    else:
        typer.echo(as_text(frame, width=None if sys.stdout.isatty() else _WIDE))


# -- errors ------------------------------------------------------------------------------------

_SIGN_IN = "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY, or use --cassette if there is one."
_ADVICE: Final[dict[type[Exception], str]] = {
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
