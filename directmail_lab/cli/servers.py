"""``directmail-lab serve``: a server on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Literal

import typer

from ..display import plural
from ..standin import STAND_IN_KEY, ResetUnit, stand_in
from .output import cassette_file, complete_cassette, error_message

if TYPE_CHECKING:
    from ..loopback import LoopbackServer

_stand_in = partial(typer.Option, rich_help_panel="Options of the stand-in service")
_replay = partial(typer.Option, rich_help_panel="Options with --cassette")


def serve(
    context: typer.Context,
    port: int = typer.Option(8400, min=0, max=65535, help="On 127.0.0.1; 0 takes a free one."),
    cassette: list[str] = typer.Option(
        [], help="Answer from this cassette. Repeatable.", autocompletion=complete_cassette
    ),
    strict: bool = _replay(False, "--strict", help="Play each response once."),
    timing: Literal["instant", "recorded"] = _replay(
        "instant", help="At once, or as slowly as recorded."
    ),
    api_key: str = _stand_in(STAND_IN_KEY, help="The one key that it accepts."),
    limit: int = _stand_in(300, min=0, help="Requests allowed in a window."),
    window: float = _stand_in(60.0, min=0.001, help="Seconds in a window."),
    reset_unit: ResetUnit = _stand_in("seconds_left", help="What X-RateLimit-Reset holds."),
) -> None:
    """Run a server on this machine: the stand-in service, or one that replays.

    With --cassette it answers any client from cassettes, and forwards nothing.
    """
    _refuse_useless(context, "--cassette" if cassette else "stand-in")
    if not cassette:
        service = stand_in(
            port=port, api_key=api_key, limit=limit, window_s=window, reset_unit=reset_unit
        )
        is_public = api_key == STAND_IN_KEY
        key = [f"Its key is {api_key}: public, and good for nothing else."] if is_public else []
        address = f"The stand-in service listens on {service.base_url}"
        _run(service, address, *key, f"It assumes {service.assumptions()}.")
        return
    from ..server import CassetteServer

    server = CassetteServer(
        [cassette_file(name) for name in cassette],
        port=port,
        repeat="strict" if strict else "last",
        latency_factor=float(timing == "recorded"),
        message=error_message,
    )
    played = [f"{each.name} ({plural(len(each), 'interaction')})" for each in server.cassettes]
    address = f"Replaying at {server.base_url}; no key is needed, and nothing is forwarded."
    _run(server, address, f"Cassettes: {', '.join(played)}")


def _refuse_useless(context: typer.Context, mode: str) -> None:
    """Refuse an option that would have no effect, so that nobody counts on it."""
    for option in context.command.params:
        panel = getattr(option, "rich_help_panel", None) or mode
        source = context.get_parameter_source(option.name or "")
        if mode not in panel and source is not None and source.name == "COMMANDLINE":
            modes = panel.removeprefix("Options ")
            raise typer.BadParameter(f"{option.opts[0]} is an option {modes}.")


def _run(server: LoopbackServer, *lines: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        typer.echo("\n".join([*lines, "Ctrl-C ends it."]))
        stopped.wait()
    typer.echo("Stopped.")
