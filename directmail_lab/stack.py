"""The stack of transports that a session's requests pass, built for each of its three modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .contract import SAFE_METHODS
from .interaction import RecordedRequest, base_path
from .transports import CassetteTransport, ObservingTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cassettes import Cassette
    from .http import httpx
    from .pacing import PacingTransport
    from .quota import Reading
    from .transports import Transport

__all__ = ["Stack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What every layer of one session shares. Each method reads from the inside out.

    Attributes
    ----------
    base_url
        The session's base address.
    on_reading
        Gets the reading of every response.
    conceal
        Gives a path without the key, where a caller put it there.
    pacing
        What is known of the allowance, whatever the mode: see `PacingTransport.over`.
    clock, timer
        What tells the time (seconds since the Unix epoch), and what latencies are measured with.
    """

    base_url: str
    on_reading: Callable[[Reading], None]
    conceal: Callable[[str], str]
    pacing: PacingTransport
    clock: Callable[[], float]
    timer: Callable[[], float]

    def live(self, network: Transport) -> Transport:
        """Send to the service: nothing is recorded."""
        observed = self._observing(network, None)
        return self.pacing.over(observed)

    def recording(self, network: Transport, cassette: Cassette) -> Transport:
        """Send to the service what the cassette does not answer, and record it."""

        def is_replayed(request: httpx.Request) -> bool:
            # What the cassette answers costs nothing, so it is not held back.
            return request.method in SAFE_METHODS and cassette.holds_answer(
                RecordedRequest(request.method, str(request.url)), base_url=self.base_url
            )

        recorded = self._playing(cassette, network)
        observed = self._observing(recorded, cassette.name)
        return self.pacing.over(observed, is_replayed=is_replayed)

    def replaying(self, cassette: Cassette, *, slowness: float) -> Transport:
        """Answer from the cassette: there is no network below it."""
        played = self._playing(cassette, None, slowness=slowness)
        return self._observing(played, cassette.name)

    def _playing(
        self, cassette: Cassette, inner: Transport | None, *, slowness: float = 0.0
    ) -> Transport:
        return CassetteTransport(
            cassette,
            inner,
            base_url=self.base_url,
            slowness=slowness,
            clock=self.clock,
            timer=self.timer,
        )

    def _observing(self, inner: Transport, cassette: str | None) -> Transport:
        return ObservingTransport(
            inner,
            self.on_reading,
            prefix=base_path(self.base_url),
            conceal=self.conceal,
            cassette=cassette,
            clock=self.clock,
            timer=self.timer,
        )
