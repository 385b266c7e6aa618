"""The commands that print what the service, or a cassette, says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import directmail_lab as dm

from .output import AsCsv, AsJson, Exit, show

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check", "findings", "me", "rate_limits"]

Cassette = Annotated[
    str | None, typer.Option(help="Read this cassette; without one, ask the live service.")
]


def me(cassette: Cassette = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Print the current user's record."""
    if cassette is not None:
        dm.replay(cassette)
    show(dm.me(), as_json=as_json, as_csv=as_csv)


def rate_limits(cassette: Cassette = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Print the readings of the rate-limit headers: a cassette's, or one taken now."""
    show(_readings(cassette), as_json=as_json, as_csv=as_csv)


def check(cassette: Cassette = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Check the rate-limit contract; exits with 1 where a rule is violated."""
    if cassette is None:
        dm.get("/v1/users/me")
    verdicts = dm.check_contract(cassette)
    show(verdicts, as_json=as_json, as_csv=as_csv)
    if (verdicts["verdict"] == "violated").any():
        raise typer.Exit(Exit.FOUND)


def findings(cassette: Cassette = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Print what is known of the parts that the service's document leaves open."""
    if cassette is None:
        dm.get("/v1/users/me")
    show(dm.findings(cassette), as_json=as_json, as_csv=as_csv)


def _readings(cassette: str | None) -> pd.DataFrame:
    if cassette is None:
        dm.get("/v1/users/me")
    return dm.rate_limits(cassette)
