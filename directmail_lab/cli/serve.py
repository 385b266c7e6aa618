"""``directmail-lab serve``: a server on this machine, until Ctrl-C."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ..errors import CassetteError, CredentialError
from ..standin import STAND_IN_KEY, StandIn, StandInOptions
from ..standin.options import ResetUnit
from .output import cassette_file, names_of_cassettes, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..loopback import LoopbackServer
    from ..sessions import Session

_STAND_IN: Final = "Of the stand-in service"
_REPLAY: Final = "With --cassette"
_RECORD: Final = "With --record"
_EITHER: Final = "With --cassette or --record"
_OPTIONS: Final = {
    _STAND_IN: ("api_key", "limit", "window", "reset_unit"),
    _REPLAY: ("strict", "timing"),
    _RECORD: ("to", "allow_writes", "redact"),
    _EITHER: ("allow_origin", "token"),
}


def serve(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8400,
    cassette: Annotated[
        list[str] | None,
        typer.Option(
            help="Answer from this cassette, by name or file. Repeatable.",
            autocompletion=names_of_cassettes,
        ),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(help="Pass requests on with your key, and record them to this cassette."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Play each answer once.", rich_help_panel=_REPLAY)
    ] = False,
    timing: Annotated[
        Literal["instant", "recorded"],
        typer.Option(help="At once, or as slowly as recorded.", rich_help_panel=_REPLAY),
    ] = "instant",
    to: Annotated[
        str | None,
        typer.Option(
            help="The service's base address; by default DIRECTMAIL_BASE_URL.",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Pass writes on too.", rich_help_panel=_RECORD)
    ] = False,
    redact: Annotated[
        list[str] | None,
        typer.Option(help='A field, or "personal". Repeatable.', rich_help_panel=_RECORD),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web page's origin that may ask. Repeatable.", rich_help_panel=_EITHER),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="A secret in the address.", rich_help_panel=_EITHER)
    ] = False,
    api_key: Annotated[
        str, typer.Option(help="The one key that it accepts.", rich_help_panel=_STAND_IN)
    ] = STAND_IN_KEY,
    limit: Annotated[
        int, typer.Option(min=0, help="Requests in a window.", rich_help_panel=_STAND_IN)
    ] = 300,
    window: Annotated[
        float, typer.Option(min=0.001, help="Seconds in a window.", rich_help_panel=_STAND_IN)
    ] = 60.0,
    reset_unit: Annotated[
        ResetUnit, typer.Option(help="What X-RateLimit-Reset holds.", rich_help_panel=_STAND_IN)
    ] = "seconds_left",
) -> None:
    """Run a server on this machine: the stand-in service, or one that replays or records.

    With --cassette it answers any client from cassettes, and sends nothing on. With --record its
    clients need no key: requests are passed on with yours, paced and recorded.
    """
    if cassette and record:
        raise typer.BadParameter("Give --cassette or --record, not both.")
    _refuse_useless(context, _REPLAY if cassette else _RECORD if record else _STAND_IN)
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


def _refuse_useless(context: typer.Context, kind: str) -> None:
    """Refuse an option that would have no effect, so that nobody counts on it."""
    for of, names in _OPTIONS.items():
        useful = of == kind or (of == _EITHER and kind != _STAND_IN)
        for name in names:
            source = context.get_parameter_source(name)
            if not useful and source is not None and source.name == "COMMANDLINE":
                option = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"{option} is an option {of[0].lower()}{of[1:]}.")


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


def _replaying(
    name: str, *, strict: bool, timing: Literal["instant", "recorded"]
) -> tuple[Session, str]:
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
