"""The commands, in the order that ``--help`` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cassette import app as cassette_app
from .data import check, findings, me, rate_limits
from .serve import serve

app = typer.Typer(
    name="directmail-lab",
    help="Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.",
    epilog="With no command: lab. Exit codes: 0 done, 1 something found, 2 could not be done.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

_Port = Annotated[int | None, typer.Option(help="Port of JupyterLab; by default a free one.")]
_NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]


@app.callback(invoke_without_command=True)
def _start(context: typer.Context, port: _Port = None, no_browser: _NoBrowser = False) -> None:
    if context.invoked_subcommand is None:
        _open_lab(port=port, no_browser=no_browser)


@app.command()
def lab(port: _Port = None, no_browser: _NoBrowser = False) -> None:
    """Open JupyterLab on the first tutorial notebook."""
    _open_lab(port=port, no_browser=no_browser)


def _open_lab(*, port: int | None, no_browser: bool) -> None:
    from .lab import open_lab

    open_lab(Path.cwd(), port=port, browser=not no_browser)


app.command()(serve)
app.command()(me)
app.command()(rate_limits)
app.command()(check)
app.command()(findings)
app.add_typer(cassette_app, name="cassette")


@app.command()
def share(
    notebooks: Annotated[list[Path], typer.Argument(help="The .ipynb files.")],
    target: Annotated[Path, typer.Option("--to", help="The zip to write.")] = Path("shared.zip"),
    cassettes: Annotated[
        list[str] | None, typer.Option("--cassette", help="One more cassette. Repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the zip if it is there.")] = False,
) -> None:
    """Put notebooks and the cassettes they replay into one zip, unless it would hold a secret."""
    from directmail_lab.errors import DirectMailLabError
    from directmail_lab.sharing import share as share_files

    if target.exists() and not force:
        raise DirectMailLabError(f"{target} is there already. Give --to another, or --force.")
    typer.echo(f"Wrote {share_files(notebooks, target, cassettes=cassettes or ())}.")
