"""``directmail-lab serve``: a server on this machine, until Ctrl-C."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from ..errors import CassetteError, CredentialError
from ..loopback import listen
from ..standin import STAND_IN_KEY, StandIn, stand_in
from ..standin.options import ResetUnit
from .output import cassette_file, complete_cassette, error_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..loopback import LoopbackServer
    from ..sessions import Session

_Timing = Literal["instant", "recorded"]

_stand_in = partial(typer.Option, rich_help_panel="Options of the stand-in service")
_replay = partial(typer.Option, rich_help_panel="Options with --cassette")
_record = partial(typer.Option, rich_help_panel="Options with --record")
_either = partial(typer.Option, rich_help_panel="Options with --cassette or --record")


def serve(
    context: typer.Context,
    port: int = typer.Option(8400, min=0, max=65535, help="On 127.0.0.1; 0 takes a free one."),
    cassette: list[str] = typer.Option(
        [], help="Answer from this cassette. Repeatable.", autocompletion=complete_cassette
    ),
    record: str | None = typer.Option(None, help="Forward requests, and record to this cassette."),
    strict: bool = _replay(False, "--strict", help="Play each response once."),
    timing: _Timing = _replay("instant", help="At once, or as slowly as recorded."),
    to: list[str] = _record(
        [], metavar="<str>", help="The base address; by default DIRECTMAIL_BASE_URL."
    ),
    allow_writes: bool = _record(False, "--allow-writes", help="Forward writes too."),
    redact: list[str] = _record([], help='"personal", or a field. Repeatable.'),
    allow_origin: list[str] = _either([], help="Allow web pages of this origin. Repeatable."),
    token: bool = _either(False, "--token", help="Put a secret in the address."),
    api_key: str = _stand_in(STAND_IN_KEY, help="The one key that it accepts."),
    limit: int = _stand_in(300, min=0, help="Requests allowed in a window."),
    window: float = _stand_in(60.0, min=0.001, help="Seconds in a window."),
    reset_unit: ResetUnit = _stand_in("seconds_left", help="What X-RateLimit-Reset holds."),
) -> None:
    """Run a server on this machine: the stand-in service, or one that replays or records.

    With --cassette it answers any client from cassettes, and forwards nothing.

    With --record it forwards requests with your key, paced and recorded: clients need no key.
    """
    if cassette and record is not None:
        raise typer.BadParameter("Give --cassette or --record, not both.")
    if len(to) > 1:
        raise typer.BadParameter("Give --to once: a recording is of one base address.")
    mode = "--cassette" if cassette else "stand-in" if record is None else "--record"
    _refuse_useless(context, mode)
    listen(port).close()  # before a recording is opened: the port may be taken
    if record is not None:
        sessions = [_recording(record, next(iter(to), None), allow_writes, redact)]
    elif cassette:
        sessions = [_replaying(name, strict, timing) for name in cassette]
    else:
        service = stand_in(
            port=port, api_key=api_key, limit=limit, window_s=window, reset_unit=reset_unit
        )
        _run(service, _describe(service))
        return
    from ..server import SessionServer

    secret = secrets.token_urlsafe(16) if token else ""
    server = SessionServer(
        sessions, port=port, token=secret, allow_origins=allow_origin, message=error_message
    )
    if record is not None:
        _run(server, f"Forwarding requests from {server.base_url} to {sessions[0].base_url}")
    else:
        _run(server, f"Answering requests to {server.base_url}; none is forwarded.")


def _refuse_useless(context: typer.Context, mode: str) -> None:
    """Refuse an option that would have no effect, so that nobody counts on it."""
    for option in context.command.params:
        panel = getattr(option, "rich_help_panel", None) or mode
        source = context.get_parameter_source(option.name or "")
        if mode not in panel and source is not None and source.name == "COMMANDLINE":
            modes = panel.removeprefix("Options ")
            raise typer.BadParameter(f"{option.opts[0]} is an option {modes}.")


def _run(server: LoopbackServer, description: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        typer.echo(f"{description}\nCtrl-C ends it.")
        stopped.wait()
    typer.echo("Stopped.")


def _describe(server: StandIn) -> str:
    is_public = server.api_key == STAND_IN_KEY
    lines = [
        f"The stand-in service listens on {server.base_url}",
        *([f"Its key is {STAND_IN_KEY}: public, and good for nothing else."] if is_public else ()),
        "It assumes, where the service's document says nothing:",
        *(f"  {line}" for line in server.assumptions()),
    ]
    return "\n".join(lines)


def _replaying(name: str, strict: bool, timing: _Timing) -> Session:
    from ..sessions import replaying_session

    path = cassette_file(name)
    session = replaying_session(path)
    mode = session.replay(path, timing=timing, repeat="strict" if strict else "last")
    if not session.open_cassette:
        raise CassetteError(
            f"Cassette {name} has no interactions to answer with. Record some first: "
            "directmail-lab serve --record NAME --to URL."
        )
    typer.echo(repr(mode))
    return session


def _recording(name: str, to: str | None, allow_writes: bool, redact: Sequence[str]) -> Session:
    from ..credentials import find_api_key, prompt_api_key
    from ..sessions import Session
    from ..settings import choose_address

    address = choose_address(to)
    try:
        key = find_api_key(base_url=address)
    except CredentialError:
        if not sys.stdin.isatty():
            raise
        key = prompt_api_key()
    session = Session(address, key, allow_writes=allow_writes)
    mode = session.record(Path(name) if Path(name).suffix else name, redact=redact)
    cassette = session.open_cassette
    # What it has is played again: one service's responses must not be given as another's.
    if cassette and not cassette.foreign and cassette.base_url != address:
        session.close()
        raise CassetteError(
            f"Cassette {name} is a recording of {cassette.base_url}. "
            f"Record {address} under another name."
        )
    typer.echo(repr(mode))
    return session
