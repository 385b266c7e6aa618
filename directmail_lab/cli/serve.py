"""``directmail-lab serve``: a server on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from ..loopback import LoopbackServer
from ..standin import STAND_IN_KEY, StandIn, StandInOptions
from ..standin.options import ResetUnit, WindowKind


def serve(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8400,
    api_key: Annotated[str, typer.Option(help="The one key that it accepts.")] = STAND_IN_KEY,
    limit: Annotated[int, typer.Option(min=0, help="Requests allowed in a window.")] = 300,
    window: Annotated[
        float, typer.Option("--window", min=0.001, help="Seconds in a window.")
    ] = 60.0,
    window_kind: Annotated[WindowKind, typer.Option(help="When windows start.")] = "fixed",
    reset_unit: Annotated[
        ResetUnit, typer.Option(help="What X-RateLimit-Reset holds.")
    ] = "seconds_left",
    exhausted_status: Annotated[int, typer.Option(help="Status when nothing is left.")] = 429,
    unauthorized_status: Annotated[int, typer.Option(help="Status without the key.")] = 401,
    envelope: Annotated[
        str | None, typer.Option(help="Member to wrap bodies in, such as data.")
    ] = None,
) -> None:
    """Run the stand-in service on this machine, until Ctrl-C."""
    options = StandInOptions(
        port=port,
        api_key=api_key,
        limit=limit,
        window_s=window,
        window=window_kind,
        reset_unit=reset_unit,
        exhausted_status=exhausted_status,
        unauthorized_status=unauthorized_status,
        envelope=envelope,
    )
    server = StandIn(options)
    said = [f"The stand-in service listens on {server.base_url}"]
    if api_key == STAND_IN_KEY:
        said.append(f"Its key is {STAND_IN_KEY}: public, and good for nothing else.")
    said.append("It assumes, where the service's document says nothing:")
    said.extend(f"  {line}" for line in options.assumptions())
    _run(server, "\n".join(said))


def _run(server: LoopbackServer, said: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    with server:
        typer.echo(f"{said}\nCtrl-C ends it.")
        ended.wait()
    typer.echo("Stopped.")
