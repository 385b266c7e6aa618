"""The command ``directmail-lab``: its commands, in the order that ``--help`` lists them.

Exit codes are like grep's: 0 done, 1 something was found, 2 it could not be done. In the last case
a user sees one line that says what happened and what to do, and no traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import directmail_lab as dm

from ..errors import DirectMailLabError
from . import cassette as cassette_commands
from .lab import open_demo, open_lab
from .output import (
    AsCsv,
    AsJson,
    CassetteOption,
    Exit,
    cassette_file,
    names_of_cassettes,
    said,
    show,
)
from .serve import serve

app = typer.Typer(
    name="directmail-lab",
    help="Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.",
    epilog="With no command: lab. Exit codes: 0 done, 1 something found, 2 could not be done.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; an expected error becomes its message and exit code 2."""
    try:
        app()
    except Exception as error:
        from ..http import httpx

        if not isinstance(error, DirectMailLabError | OSError | httpx.HTTPError):
            raise
        sys.stderr.write(f"directmail-lab: {said(error)}\n")
        sys.exit(Exit.FAILED)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"directmail-lab {dm.__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]
_Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port of JupyterLab; by default a free one.")
]
_NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    port: _Port = None,
    no_browser: _NoBrowser = False,
    _version: _Version = False,
) -> None:
    if context.invoked_subcommand is None:
        _lab(port, no_browser)


@app.command("lab")
def _lab(port: _Port = None, no_browser: _NoBrowser = False) -> None:
    """Open JupyterLab on the first tutorial notebook."""
    open_lab(Path.cwd(), port=port, browser=not no_browser)


@app.command()
def demo(port: _Port = None, no_browser: _NoBrowser = False) -> None:
    """Try everything out: the stand-in service, and a notebook that is ready to sign in to it."""
    open_demo(Path.cwd(), port=port, browser=not no_browser)


app.command()(serve)


@app.command()
def me(cassette: CassetteOption = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Print the current user's record."""
    if cassette is not None:
        dm.replay(cassette_file(cassette))
    show(dm.me(), as_json=as_json, as_csv=as_csv)


@app.command()
def rate_limits(
    cassette: CassetteOption = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Print the readings of the rate-limit headers: a cassette's, or one taken now."""
    show(dm.rate_limits(_recorded_or_asked(cassette)), as_json=as_json, as_csv=as_csv)


@app.command()
def check(cassette: CassetteOption = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Check the rate-limit contract; exits with 1 where a rule is violated."""
    verdicts = dm.check_contract(_recorded_or_asked(cassette))
    show(verdicts, as_json=as_json, as_csv=as_csv)
    if (verdicts["verdict"] == "violated").any():
        raise typer.Exit(Exit.FOUND)


@app.command()
def findings(
    cassette: CassetteOption = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Print what is known of the parts that the service's document leaves open."""
    show(dm.findings(_recorded_or_asked(cassette)), as_json=as_json, as_csv=as_csv)


app.add_typer(cassette_commands.app, name="cassette")


@app.command()
def share(
    notebooks: Annotated[list[Path], typer.Argument(help="The .ipynb files.")],
    target: Annotated[Path, typer.Option("--to", help="The zip to write.")] = Path("shared.zip"),
    cassettes: Annotated[
        list[str] | None,
        typer.Option(
            "--cassette",
            help="One more cassette. Repeatable.",
            autocompletion=names_of_cassettes,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the zip if it is there.")] = False,
) -> None:
    """Put notebooks and the cassettes they replay into one zip, unless it would hold a secret."""
    import warnings

    from ..sharing import share as share_files

    if target.exists() and not force:
        raise DirectMailLabError(f"{target} exists already. Give --to another, or --force.")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        written = share_files(notebooks, target, cassettes=cassettes or ())
    for each in noted:
        typer.echo(f"Note: {each.message}", err=True)
    typer.echo(f"Wrote {written}.")


def _recorded_or_asked(cassette: str | None) -> Path | None:
    """Return the cassette's file; without one, ask the live service once."""
    if cassette is not None:
        return cassette_file(cassette)
    dm.get("/v1/users/me")
    return None
