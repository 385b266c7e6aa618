"""``directmail-lab serve``: the stand-in service alone, until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from directmail_lab.standin.options import STAND_IN_KEY, ResetUnit, StandInOptions, WindowKind

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

__all__ = ["serve"]


def serve(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8400,
    api_key: Annotated[str, typer.Option(help="The one key that it accepts.")] = STAND_IN_KEY,
    limit: Annotated[int, typer.Option(help="Requests allowed in a window.")] = 300,
    window: Annotated[float, typer.Option("--window", help="Seconds in a window.")] = 60.0,
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
    from directmail_lab.standin import serve_forever

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
    serve_forever(options, on_start=_introduce)
    typer.echo("Stopped.")


def _introduce(server: StandIn) -> None:
    typer.echo(f"The stand-in service listens on {server.base_url}")
    if server.api_key == STAND_IN_KEY:
        typer.echo(f"Its key is {STAND_IN_KEY}: public, and good for nothing else.")
    typer.echo("It assumes, where the service's document says nothing:")
    for line in server.assumptions():
        typer.echo(f"  {line}")
    typer.echo("Ctrl-C ends it.")
