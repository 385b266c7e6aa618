"""What each tutorial's cassette holds: requests to the stand-in, recorded over real HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from directmail_lab.credentials import ApiKey
from directmail_lab.session import Session
from directmail_lab.standin import stand_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["RECORDINGS", "record"]

# A cassette names the address that it was recorded at: the same port each time, the same file.
_PORT: Final = 8431
_START: Final = 1_795_233_600.0  # 2026-11-21 04:00:00 UTC
_LATENCY_S: Final = 0.042
_SAID: Final = "the stand-in service of directmail_lab: no real account, no real service"


class _Clock:
    """A clock that goes on by a latency with each request, and by nothing else."""

    def __init__(self) -> None:
        self.now = _START

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)


def record(name: str, path: Path) -> None:
    """Record one tutorial's cassette anew, to ``path``."""
    clock = _Clock()
    path.unlink(missing_ok=True)
    with (
        stand_in(port=_PORT, clock=clock) as service,
        Session(
            service.base_url,
            ApiKey(service.api_key),
            pace="off",
            clock=clock,
            timer=clock,
        ) as session,
        session.record(path, record_mode="all", metadata={"service": _SAID}),
    ):
        session.on_reading(lambda _: clock.pass_s(_LATENCY_S))
        RECORDINGS[name](session, clock.pass_s)


def _first_look(session: Session, pass_s: Callable[[float], None]) -> None:
    session.me()
    for _ in range(40):
        session.client.get("/v1/users/me")
        pass_s(0.9)
    pass_s(20.0)
    while session.client.get("/v1/lists").status_code == 200:
        pass_s(0.3)
    session.client.get("/v1/lists/lst_404")


RECORDINGS: Final[dict[str, Callable[[Session, Callable[[float], None]], None]]] = {
    "first-look": _first_look,
}
