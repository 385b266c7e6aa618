"""The command ``directmail-lab``: its commands, in the order that ``--help`` lists them.

Exit codes are like those of grep: 0 for success, 1 if the command found something, 2 if it failed.
A failure prints one line that says what happened and what to do, without a traceback.
"""

from __future__ import annotations

import signal
import sys
import warnings
from pathlib import Path

import typer

from ..display import wrapped
from ..errors import naming_what_is_missing
from ..settings import VERSION
from . import cassette as cassette_commands
from .output import (
    FORCE,
    FOUND,
    KEEP,
    NAME,
    error_message,
    print_any_text,
    refuse_existing,
    say,
    show,
)
from .programs import NO_BROWSER, PORT, demo, lab, open_tutorials, serve

app = typer.Typer(
    name="directmail-lab",
    help="Explore a direct mail service's HTTP API in JupyterLab: sign in, record to a cassette, "
    "and replay it with no key and no network.",
    epilog="Without a command, the tutorials open in JupyterLab. "
    "Exit codes: 0 success, 1 something was found, 2 failure.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


def main() -> None:
    """Run the command; an expected error becomes its message and exit code 2."""
    print_any_text()
    # End as after an error: without temporary files and locks. Windows has no SIGHUP.
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    warnings.showwarning = lambda message, *_, **__: say(wrapped(f"Warning: {message}"), err=True)
    try:
        with naming_what_is_missing():
            app()
    except Exception as error:
        # The errors that IPython also shows briefly: ours, httpx's, and those of arguments.
        if isinstance(error, OSError) or hasattr(error, "_render_traceback_"):
            say(wrapped(f"Error: {error_message(error)}"), err=True)
        else:  # a bug; Python would exit with 1, which means that something was found
            sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(2)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"directmail-lab {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    # Eager: typer imports pydantic to read the other options.
    _: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version."
    ),
    port: int | None = PORT,
    no_browser: bool = NO_BROWSER,
) -> None:
    if context.invoked_subcommand is None:
        open_tutorials(port, no_browser)


app.command()(lab)
app.command()(demo)
app.command()(serve)


@app.command()
def drift(
    name: str = NAME,
    against: str | None = typer.Option(None, help="Compare with this cassette instead."),
    ignore: list[str] = typer.Option(
        [], help="header:NAME or body:PATH: it may change. Repeatable."
    ),
    values: bool = typer.Option(False, "--values", help="List changed values of bodies, too."),
) -> None:
    """List what changed since a recording; exit with 1 if so.

    Its reads are sent again, with the key of the environment or the keyring.
    With --against, nothing is sent.
    """
    from ..questions.drift import drift as changes_since

    changes = changes_since(name, against, ignore=ignore, values=values)
    changes["seen"] = [f"{each.count} of {each.of}" for each in changes.itertuples()]
    show(changes, ["operation", "path", "change", "seen", "was", "now"])
    if len(changes):
        raise FOUND


app.add_typer(cassette_commands.app, name="cassette")


@app.command()
def share(
    notebooks: list[Path] = typer.Argument(help="The .ipynb files."),
    target: Path = typer.Option(
        Path("shared.zip"), "--to", help="The .zip to write, or one notebook's page as .html."
    ),
    add: list[str] = typer.Option([], help="A cassette or another file to add. Repeatable."),
    redact: list[str] = typer.Option(
        [], "--redact", "-r", help='Replace this in what is packed: "personal", or a field.'
    ),
    keep: list[str] = KEEP,
    run: bool = typer.Option(
        True, "--run/--no-run", help="Run the notebooks first, without a key."
    ),
    code: bool = typer.Option(True, "--code/--no-code", help="Show the code in the pages."),
    force: bool = FORCE,
) -> None:
    """Put notebooks with their cassettes into one zip.

    The notebooks first run as a reader runs them: with no key and no network. The
    zip has the outputs of that run. Nothing is written if a cell fails, or if the
    zip would contain a secret. --to report.html writes the notebook's page alone.
    """
    from ..share.packing import share as share_files

    refuse_existing(target, force)
    share_files(
        notebooks,
        target,
        add=add,
        redact=[*redact, *map("-{}".format, keep)],
        run=run,
        has_code=code,
        notice=say,
    )
