"""What travels with a request and with its response: one object each, under one key.

httpx copies the dictionary ``extensions`` of a request to the request that follows a redirect, but
not what that dictionary holds. So all requests of a call share one `Call`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..http import httpx

if TYPE_CHECKING:
    from ..cassettes import Recording, SessionRecording
    from ..readings.reading import Reading

KEY: Final = "directmail_lab"
"""Where a request has its `Call`, and a response its `Received`: ``response.extensions[KEY]``."""


@dataclass(eq=False, repr=False, slots=True)
class Call:
    """One call of a client: its request, and those that follow by redirects.

    Attributes
    ----------
    wants_key
        Whether the network transport adds the key.
    is_foreign
        Whether a client of another library makes the call (see `directmail_lab.clients`).
    send
        What sends the request in place of the session's connections, if such a client does.
    cancelled
        After this event, the request is not sent any more.
    first_sent
        The ``id`` of the request that was sent first; None before any is.
    attempt
        How many responses the present request has had: more than one if it was repeated.
    recorded
        How many of these a cassette has.
    number
        The number of the last one, from 1, in the recording of the session's mode; 0 if there is
        none. A request that was aborted has one, too.
    """

    wants_key: bool = False
    is_foreign: bool = False
    send: Callable[[httpx.Request], Any] | None = None
    cancelled: threading.Event | None = None
    first_sent: int | None = None
    attempt: int = 0
    recorded: int = 0
    number: int = 0


@dataclass(eq=False, repr=False, slots=True)
class Received:
    """What a session keeps of a response; empty for a response that no session received.

    Attributes
    ----------
    recording
        What keeps it.
    number
        Its number there, from 1.
    keeper
        The recording that gets the body once that is read; None if it has the body.
    is_page
        Whether it is one of `pages`: its only array of objects is the records.
    """

    recording: Recording | None = None
    number: int = 0
    keeper: SessionRecording | None = None
    is_page: bool = False

    @property
    def reading(self) -> Reading | None:
        """Its reading, which a replay makes only now."""
        return None if self.recording is None else self.recording.reading(self.number)

    def add_body(self, body: bytes) -> None:
        """Keep the body, which was read just now."""
        if self.keeper is not None:
            self.keeper.add_body(self.number, body)

    def cut_short(self, body: bytes, *, is_aborted: bool) -> None:
        """Keep what came of the body before the connection broke, or the caller dropped it."""
        if self.keeper is not None:
            self.keeper.cut_short(self.number, body, is_aborted=is_aborted)


def call_of(request: Any) -> Call:
    """Return what travels with a request of httpx or httpx2."""
    call: Call | None = request.extensions.get(KEY)
    if call is None:
        call = request.extensions[KEY] = Call()
    return call


def of(response: httpx.Response) -> Received:
    """Return what travels with a response."""
    return response.extensions.get(KEY) or Received()


def keep_body(response: httpx.Response) -> httpx.Response:
    """Return a response. If its body was read, the session's recording keeps that."""
    if response.is_closed:
        if (received := of(response)).keeper is not None:
            received.add_body(response.content)
        # httpx's stream refers to the response: only the garbage collector would free them.
        response.stream = httpx.ByteStream(b"")
    return response
