"""How the commands print data: as a table, JSON or CSV, and what their exit codes say."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AsCsv", "AsJson", "Exit", "show"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: an array of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


class Exit(IntEnum):
    """What an exit code says, as grep's do."""

    DONE = 0
    FOUND = 1
    FAILED = 2


def show(frame: pd.DataFrame, *, as_json: bool, as_csv: bool) -> None:
    """Print a frame on standard output; times as ISO 8601, missing values as null or nothing."""
    if as_json and as_csv:
        raise typer.BadParameter("Give --json or --csv, not both.")
    if as_json:
        text = frame.to_json(orient="records", date_format="iso", date_unit="us") or "[]"
        typer.echo(json.dumps(json.loads(text), ensure_ascii=False, indent=2))
    elif as_csv:
        typer.echo(_flat(frame).to_csv(index=False), nl=False)
    else:
        typer.echo(_flat(frame).to_string(index=False) if len(frame) else "Nothing.")


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with lists and objects in its cells as JSON text."""
    return frame.map(lambda cell: json.dumps(cell) if isinstance(cell, list | dict) else cell)
