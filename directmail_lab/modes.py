"""The modes of a session, and the change from one to another that a ``with`` takes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .display import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cassettes import Cassette
    from .sessions import Session
    from .transports import Transport

__all__ = ["Mode", "ModeChange", "ModeName", "Timing", "slowness_of"]

ModeName = Literal["live", "record", "replay"]
Timing = Literal["instant", "recorded"] | float

_IN_WORDS = {"live": "Live", "record": "Recording to", "replay": "Replaying"}


@dataclass(frozen=True, slots=True)
class Mode:
    """What a session's requests pass below the switch, and the cassette that takes part."""

    name: ModeName
    transport: Transport
    cassette: Cassette | None = None

    def enter(self) -> None:
        """Go on with the recording, where it was closed."""
        if self.name == "record" and self.cassette is not None:
            self.cassette.resume()

    def leave(self) -> None:
        """Close the recording: its file gets its last line, and another may record it."""
        if self.cassette is not None:
            self.cassette.close()

    def __str__(self) -> str:
        return self.name if self.cassette is None else f"{self.name} {self.cassette.name!r}"


class ModeChange:
    """A mode that a session has just entered; leaving the ``with`` gives back the one before."""

    def __init__(self, session: Session, entered: Mode, restore: Callable[[], None]) -> None:
        self._session = session
        self._entered = entered
        self._restore = restore

    def __enter__(self) -> Session:
        return self._session

    def __exit__(self, *_: object) -> None:
        self._restore()

    def __repr__(self) -> str:
        cassette, what = self._entered.cassette, _IN_WORDS[self._entered.name]
        if cassette is None:
            return f"{what} at {self._session.base_url}"
        count = plural(len(cassette), "interaction")
        return f"{what} cassette {cassette.name!r} ({count})"


def slowness_of(timing: Timing) -> float:
    """Return how much of the recorded latencies a replay keeps up: 0 none, 1 as recorded."""
    if timing == "instant":
        return 0.0
    return 1.0 if timing == "recorded" else float(timing)
