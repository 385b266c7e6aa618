"""``directmail-lab serve``: a server on this machine, until Ctrl-C."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import CassetteError, CredentialError
from ..standin import STAND_IN_KEY, StandIn, StandInOptions
from ..standin.options import ResetUnit
from .output import cassette_file, names_of_cassettes, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..loopback import LoopbackServer
    from ..sessions import Session

Timing = Literal["instant", "recorded"]

_stand_in = partial(typer.Option, rich_help_panel="Options of the stand-in service")
_replay = partial(typer.Option, rich_help_panel="Options with --cassette")
_record = partial(typer.Option, rich_help_panel="Options with --record")
_either = partial(typer.Option, rich_help_panel="Options with --cassette or --record")

_Port = typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
_Cassettes = typer.Option(
    help="Answer from this cassette, by name or file. Repeatable.",
    autocompletion=names_of_cassettes,
)
_Gateway = typer.Option(help="Pass requests on with your key, and record them to this cassette.")
_To = _record(help="The service's base address; by default DIRECTMAIL_BASE_URL.")
_Origin = _either(help="The origin of a web page that may ask. Repeatable.")


def serve(
    context: typer.Context,
    port: Annotated[int, _Port] = 8400,
    cassette: Annotated[list[str] | None, _Cassettes] = None,
    record: Annotated[str | None, _Gateway] = None,
    strict: Annotated[bool, _replay("--strict", help="Play each answer once.")] = False,
    timing: Annotated[Timing, _replay(help="At once, or as slowly as recorded.")] = "instant",
    to: Annotated[str | None, _To] = None,
    allow_writes: Annotated[bool, _record("--allow-writes", help="Pass writes on too.")] = False,
    redact: Annotated[list[str] | None, _record(help='"personal", or a field. Repeatable.')] = None,
    allow_origin: Annotated[list[str] | None, _Origin] = None,
    token: Annotated[bool, _either("--token", help="Put a secret in the address.")] = False,
    api_key: Annotated[str, _stand_in(help="The one key that it accepts.")] = STAND_IN_KEY,
    limit: Annotated[int, _stand_in(min=0, help="Requests allowed in a window.")] = 300,
    window: Annotated[float, _stand_in(min=0.001, help="Seconds in a window.")] = 60.0,
    reset_unit: Annotated[
        ResetUnit, _stand_in(help="What X-RateLimit-Reset holds.")
    ] = "seconds_left",
) -> None:
    """Run a server on this machine: the stand-in service, or one that replays or records.

    With --cassette it answers any client from cassettes, and sends nothing on.

    With --record it passes requests on with your key, paced and recorded: clients need no key.
    """
    if cassette and record:
        raise typer.BadParameter("Give --cassette or --record, not both.")
    _refuse_useless(context, "--cassette" if cassette else "--record" if record else "stand-in")
    if not (cassette or record):
        options = StandInOptions(
            port=port, api_key=api_key, limit=limit, window_s=window, reset_unit=reset_unit
        )
        stand_in = StandIn(options)
        _run(stand_in, *_about(stand_in))
        return
    if record:
        opened = [_recording(record, to, allow_writes=allow_writes, redact=redact or ())]
    else:
        opened = [_replaying(name, strict=strict, timing=timing) for name in cassette or ()]
    from ..serving import SessionServer

    server = SessionServer(
        [session for session, _ in opened],
        port=port,
        token=secrets.token_urlsafe(16) if token else "",
        allow_origins=allow_origin or (),
        say=said,
    )
    if record:
        about = f"What is asked at {server.base_url} is passed on to {opened[0][0].base_url}"
    else:
        about = f"Listening on {server.base_url}; nothing is sent on."
    _run(server, *(told for _, told in opened), about)


def _refuse_useless(context: typer.Context, chosen: str) -> None:
    """Refuse an option that would have no effect, so that nobody counts on it."""
    for each in context.command.params:
        panel = getattr(each, "rich_help_panel", None) or chosen
        source = context.get_parameter_source(each.name or "")
        if chosen not in panel and source is not None and source.name == "COMMANDLINE":
            of = panel.removeprefix("Options ")
            raise typer.BadParameter(f"{each.opts[0]} is an option {of}.")


def _run(server: LoopbackServer, *said: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    with server:
        typer.echo("\n".join([*said, "Ctrl-C ends it."]))
        ended.wait()
    typer.echo("Stopped.")


def _about(server: StandIn) -> list[str]:
    public = f"Its key is {STAND_IN_KEY}: public, and good for nothing else."
    return [
        f"The stand-in service listens on {server.base_url}",
        *([public] if server.api_key == STAND_IN_KEY else ()),
        "It assumes, where the service's document says nothing:",
        *(f"  {line}" for line in server.assumptions()),
    ]


def _replaying(name: str, *, strict: bool, timing: Timing) -> tuple[Session, str]:
    from ..sessions import replaying_session

    path = cassette_file(name)
    session = replaying_session(path)
    change = session.replay(path, timing=timing, repeat="strict" if strict else "last")
    if not session.open_cassette:
        raise CassetteError(f"Cassette {name} is empty: there is nothing to answer with.")
    return session, repr(change)


def _recording(
    name: str, to: str | None, *, allow_writes: bool, redact: Sequence[str]
) -> tuple[Session, str]:
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
    try:
        change = session.record(Path(name) if Path(name).suffix else name, redact=redact)
    except BaseException:
        session.close()
        raise
    return session, repr(change)
