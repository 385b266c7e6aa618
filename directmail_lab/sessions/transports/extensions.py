"""`Call` and `Received`: what the transports know about a request and about its response.

They are in the ``extensions`` of the request and of the response. httpx copies this dictionary to a
request that follows a redirect, but not its values. So all requests of a call share one `Call`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...exchange.httpx_values import httpx

if TYPE_CHECKING:
    from ...cassettes import Recording
    from ...readings.reading import Reading

EXTENSION = "directmail_lab"
"""The key of a request's `Call` and a response's `Received`: ``response.extensions[EXTENSION]``."""


class Sent(Enum):
    """What of a call was sent."""

    NOTHING = "nothing"
    REQUEST = "the request"
    REDIRECTED = "the request, and the service redirected it"


@dataclass(eq=False, repr=False, slots=True)
class Batch:
    """The requests of one `get_many`.

    Attributes
    ----------
    most
        How many may be under way at once. It is halved if a service refuses that many.
    sending
        Those that are under way.
    is_over
        Once this event is set, no more are sent.
    """

    most: int
    sending: set[object] = field(default_factory=set)
    is_over: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, repr=False, slots=True)
class Call:
    """A request, and those that follow its redirects: what its caller wants, and what has happened.

    Attributes
    ----------
    wants_key
        Whether the network transport adds the key.
    send
        Sends the request instead of the session's connections, for a client that the code under
        test makes. Such a request is not paced and not repeated, and gets no key.
    reads_at_once
        Whether its caller gets the response with its body.
    batch
        The requests that are sent together with it.
    is_row
        Whether it is a row of `post_many`, which tells of all rows at its end. If it was refused
        for the rate (429), it is sent again.
    sent
        What of it was sent.
    is_ours
        Whether the current request was for the service's own origin, and came to the network.
    attempt
        How many responses the current request has had: more than one if it was sent again.
    number
        The number of the last response in the recording of the session's mode, from 1; 0 if there
        is none. An aborted request has a number, too.
    reading
        The reading of the last response that was sent or kept, as it was when its headers came.
    shown
        Returns a write's method, its path and the start of its body, redacted.
    """

    wants_key: bool = False
    send: Callable[[httpx.Request], Any] | None = None
    reads_at_once: bool = False
    batch: Batch | None = None
    is_row: bool = False
    sent: Sent = Sent.NOTHING
    is_ours: bool = False
    attempt: int = 0
    number: int = 0
    reading: Reading | None = None
    shown: Callable[[], str] | None = None


@dataclass(eq=False, repr=False, slots=True)
class Received:
    """Where a session keeps a response; empty for a response that no session received.

    Attributes
    ----------
    recording
        The recording that has the response.
    number
        Its number there, from 1.
    is_page
        Whether `pages` returned it. Then its only array of objects contains the records.
    """

    recording: Recording | None = None
    number: int = 0
    is_page: bool = False

    @property
    def reading(self) -> Reading | None:
        """The response's reading. In a replay, it is made only on demand."""
        return None if self.recording is None else self.recording.reading(self.number)


def call_of(request: httpx.Request) -> Call:
    """Return the `Call` of a request."""
    call: Call | None = request.extensions.get(EXTENSION)
    if call is None:
        call = Call()
        request.extensions[EXTENSION] = call
    return call


def received_of(response: httpx.Response) -> Received:
    """Return the `Received` of a response."""
    return response.extensions.get(EXTENSION) or Received()
