"""What the commands share: names of cassettes, how data is printed, and what an error says."""

from __future__ import annotations

import json
import re
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import CredentialError, NotConnectedError, NotRecordedError, WriteRefusedError

if TYPE_CHECKING:
    import pandas as pd


# A sentence that names a call or class of Python is no advice at a terminal.
_PYTHON = re.compile(r"\w\((?!s\))|pathlib|^Or set")
_SIGN_IN = "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY, or name a recording with --cassette."
_ADVICE: Final[dict[type[Exception], str]] = {
    CredentialError: _SIGN_IN,
    NotConnectedError: _SIGN_IN,
    WriteRefusedError: "To allow writes: --allow-writes.",
    NotRecordedError: "To record it: directmail-lab serve --record NAME --to URL.",
}


def said(error: Exception) -> str:
    """Return an error's message, with advice for the command line instead of advice for Python."""
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return f"{error.filename}: {what}." if error.filename else what
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z])", str(error))
    kept = [each for each in sentences if not _PYTHON.search(each)] or sentences[:1]
    advice = next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "")
    return f"{' '.join(kept)} {advice if len(kept) < len(sentences) else ''}".rstrip()


class Exit(IntEnum):
    """What an exit code says, as grep's do."""

    DONE = 0
    FOUND = 1
    FAILED = 2


def names_of_cassettes(typed: str) -> list[str]:
    """Return the cassettes that a name finds, for the shell to complete what is typed."""
    from ..cassettes import cassettes_by_name

    return [name for name in cassettes_by_name() if name.startswith(typed)]


def cassette_file(name: str) -> Path:
    """Return the file for an argument that is a file's path or a cassette's name.

    Raises
    ------
    CassetteError
        There is neither.
    """
    from ..cassettes import find_cassette
    from ..errors import CassetteError

    try:
        return Path(name) if Path(name).is_file() else find_cassette(name)
    except (CassetteError, OSError, ValueError):
        raise CassetteError(
            f"There is no file {name}, and no cassette of that name. "
            "These have a name: directmail-lab cassette list."
        ) from None


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: an array of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
CassetteArgument = Annotated[
    str, typer.Argument(help="A cassette's name, or a file.", autocompletion=names_of_cassettes)
]
CassetteOption = Annotated[
    str | None,
    typer.Option(
        help="Read this cassette, by name or file; without one, ask the live service.",
        autocompletion=names_of_cassettes,
    ),
]


def show(frame: pd.DataFrame, *, as_json: bool, as_csv: bool) -> None:
    """Print a frame on standard output: a table that fits the terminal, or JSON, or CSV.

    In JSON and CSV, times are ISO 8601. A missing value is null in JSON and empty in CSV.
    """
    if as_json and as_csv:
        raise typer.BadParameter("Give --json or --csv, not both.")
    if as_json:
        text = frame.to_json(orient="records", date_format="iso", date_unit="us") or "[]"
        typer.echo(json.dumps(json.loads(text), ensure_ascii=False, indent=2))
    elif as_csv:
        flat = frame.map(lambda cell: json.dumps(cell) if isinstance(cell, list | dict) else cell)
        typer.echo(flat.to_csv(index=False), nl=False)
    elif not len(frame):
        typer.echo(" ".join(frame.attrs.get("notes", ())) or "Nothing.")
    else:
        from ..display import as_text

        typer.echo(as_text(frame, width=None if sys.stdout.isatty() else _WIDE))


_WIDE = 1000  # a pipe has no width: each row stays on one line, for grep
