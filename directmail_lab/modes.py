"""The modes of a session: what its requests pass in each, and the change from one to another.

A request's way, from the client down::

    live    Switching → Pacing → Observing → Network
    record  Switching → Pacing → Observing → Cassette → Network
    replay  Switching → Observing → Cassette
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from .cassettes import Cassette, shown_path
from .display import plural
from .errors import NotConnectedError
from .http import httpx, is_write
from .interaction import base_path
from .pacing import Pacer, PacingTransport
from .transports import CassetteTransport, ObservingTransport, Transport, recorded_request

if TYPE_CHECKING:
    from .quota import Reading


ModeName = Literal["live", "record", "replay"]
Timing = Literal["instant", "recorded"] | float

_F = TypeVar("_F", bound="Callable[..., Any]")
_P = ParamSpec("_P")
_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class Mode:
    """What a session is in: what its requests pass, and the cassette that takes part, if any."""

    name: ModeName
    transport: Transport
    cassette: Cassette | None = None

    def resume(self) -> None:
        """Go on with the recording, where it was closed."""
        if self.name == "record" and self.cassette is not None:
            self.cassette.resume()

    def pause(self) -> None:
        """Close the recording: its file gets its last line, and another may record it."""
        if self.cassette is not None:
            self.cassette.close()

    def __str__(self) -> str:
        return self.name if self.cassette is None else f"{self.name} {self.cassette.name!r}"


@dataclass(kw_only=True)
class Modes:
    """Makes the modes of one session, from what all of them share.

    Attributes
    ----------
    base_url
        The session's base address.
    network
        What sends; None in a session that has no key.
    pacer
        What is known of the allowance, whatever the mode.
    on_reading
        Gets the reading of every response.
    redacted
        Takes the key out of a path, where a caller put it there.
    clock, timer
        What tells the time (seconds since the Unix epoch), and what latencies are measured with.
    """

    base_url: str
    network: Transport | None
    pacer: Pacer
    on_reading: Callable[[Reading], None]
    redacted: Callable[[str], str]
    clock: Callable[[], float]
    timer: Callable[[], float]

    def live(self) -> Mode:
        """Send to the service: nothing is recorded."""
        observed = self._observing(self._required_network("go live"), None)
        return Mode("live", PacingTransport(observed, self.pacer, clock=self.clock))

    def record(self, open_cassette: Callable[[], Cassette]) -> Mode:
        """Send to the service what the cassette does not answer, and record it."""
        network = self._required_network("record")
        cassette = open_cassette()

        def is_replayed(request: httpx.Request) -> bool:
            # What the cassette answers costs nothing, so it is not held back.
            return not is_write(request) and cassette.holds_answer(
                recorded_request(request), base_url=self.base_url
            )

        recorded = self._playing(cassette, network)
        observed = self._observing(recorded, cassette.name)
        paced = PacingTransport(observed, self.pacer, is_replayed=is_replayed, clock=self.clock)
        return Mode("record", paced, cassette)

    def replay(self, cassette: Cassette, *, latency_factor: float = 0.0) -> Mode:
        """Answer from the cassette: there is no network below it."""
        played = self._playing(cassette, None, latency_factor=latency_factor)
        return Mode("replay", self._observing(played, cassette.name), cassette)

    def _required_network(self, purpose: str) -> Transport:
        if self.network is None:
            raise NotConnectedError(
                f"This session has no key, so it cannot {purpose}. "
                "Sign in with login(), or connect(base_url=…, api_key=…)."
            )
        return self.network

    def _playing(
        self, cassette: Cassette, below: Transport | None, *, latency_factor: float = 0.0
    ) -> Transport:
        return CassetteTransport(
            cassette,
            below,
            base_url=self.base_url,
            latency_factor=latency_factor,
            clock=self.clock,
            timer=self.timer,
        )

    def _observing(self, below: Transport, cassette: str | None) -> Transport:
        return ObservingTransport(
            below,
            self.on_reading,
            prefix=base_path(self.base_url),
            redacted=self.redacted,
            cassette=cassette,
            clock=self.clock,
            timer=self.timer,
        )


class ModeChange(Generic[_S]):
    """A mode that a session has entered; leaving its ``with`` gives back the one before.

    As a decorator it enters the mode for each call of the function, of an async one too.
    """

    def __init__(self, session: _S, mode: Mode, base_url: str, restore: Callable[[], None]) -> None:
        self._session = session
        self._mode = mode
        self._base_url = base_url
        self._restore = restore
        self.again: Callable[[], ModeChange[_S]] = lambda: self

    def __enter__(self) -> _S:
        return self._session

    def __exit__(self, *_: object) -> None:
        self._restore()

    def __call__(self, function: _F) -> _F:
        self._restore()  # the mode is that of the calls alone

        @functools.wraps(function)
        def calling(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def calling_async(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return await function(*args, **kwargs)

        chosen: Any = calling_async if inspect.iscoroutinefunction(function) else calling
        decorated: _F = chosen
        return decorated

    def __repr__(self) -> str:
        cassette = self._mode.cassette
        if cassette is None:
            return f"Live at {self._base_url}"
        what = "Recording to" if self._mode.name == "record" else "Replaying"
        count = plural(len(cassette), "interaction")
        file = shown_path(cassette.path)
        return f"{what} cassette {cassette.name!r} ({count})" + (f" in {file}" if file else "")


def decorates(enter: Callable[_P, ModeChange[_S]]) -> Callable[_P, ModeChange[_S]]:
    """Let the change that a function makes be a decorator: each decorated call makes it anew."""

    @functools.wraps(enter)
    def entering(*args: _P.args, **kwargs: _P.kwargs) -> ModeChange[_S]:
        change = enter(*args, **kwargs)
        change.again = functools.partial(entering, *args, **kwargs)
        return change

    return entering


def latency_factor(timing: Timing) -> float:
    """Return how much of the recorded latencies a replay waits: 0 none, 1 as recorded."""
    factor = {"instant": 0.0, "recorded": 1.0}.get(timing) if isinstance(timing, str) else timing
    if factor is None or not factor >= 0:
        raise ValueError('timing is "instant", "recorded", or a factor of the recorded latencies.')
    return float(factor)
