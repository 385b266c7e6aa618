"""What each tutorial's cassette holds: requests to the stand-in, recorded over real HTTP."""

from __future__ import annotations

import random
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
_SAID: Final = "the stand-in service of directmail_lab: no real account, no real service"


class _Clock:
    """A clock that only goes on when it is told to, or when a latency is measured with it."""

    def __init__(self) -> None:
        self._now = _START
        self._latencies = random.Random(8)

    def now(self) -> float:
        return self._now

    def timer(self) -> float:
        self.pass_s(self._latencies.uniform(0.012, 0.048))
        return self._now

    def pass_s(self, seconds: float) -> None:
        self._now = round(self._now + seconds, 6)


def record(name: str, path: Path) -> None:
    """Record one tutorial's cassette anew, to ``path``."""
    clock = _Clock()
    path.unlink(missing_ok=True)
    with (
        stand_in(port=_PORT, clock=clock.now) as service,
        Session(
            service.base_url,
            ApiKey(service.api_key),
            pace="off",
            clock=clock.now,
            timer=clock.timer,
        ) as session,
        session.record(path, record_mode="all", metadata={"service": _SAID}),
    ):
        RECORDINGS[name](session, clock.pass_s)


def _first_look(session: Session, pass_s: Callable[[float], None]) -> None:
    session.me()
    for _ in range(40):
        session.client.get("/v1/users/me")
        pass_s(0.7)
    pass_s(20.0)
    while session.client.get("/v1/lists").status_code == 200:
        pass_s(0.2)
    session.client.get("/v1/lists/lst_404")


RECORDINGS: Final[dict[str, Callable[[Session, Callable[[float], None]], None]]] = {
    "first-look": _first_look,
}
