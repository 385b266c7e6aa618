"""The transports that a request passes, from the client to the network.

::

    SessionTransport      the session's mode replays a response, or passes it on to
    PacingTransport       waits for the allowance, repeats failed reads
    ObservingTransport    keeps every response; writes it to a cassette
    NetworkTransport      refuses unsafe requests; adds the key; sends

In a replay there is nothing below the first. What the transports tell one another of a request is
in its `Call`, and what they tell of a response in its `Received` (extensions.py). Each class has
both ``handle_request`` and ``handle_async_request``, so one stack serves both clients of a session.
"""

from __future__ import annotations

from typing import Protocol

from ..http import httpx


class Transport(Protocol):
    """What each layer needs of the one below it: httpx's two methods."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...
