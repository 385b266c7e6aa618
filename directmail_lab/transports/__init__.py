"""The transports that a request passes, from the client to the network.

::

    ModeTransport         the session's mode replays a response, or passes the request on, unless
                          it is a write that was sent before (writes.py), to
    PacingTransport       waits for the allowance, repeats failed reads
    RecordingTransport    keeps every response; writes it to a cassette
    NetworkTransport      refuses unsafe requests; adds the key; sends

A replay uses only the first. On the way back, the head of a response passes them in the other
order, and its `Body` (body.py) goes to the client as it comes. When the body ends, it first calls
the recording transport, which keeps it and writes the interaction.

The transports share what they know about a request in its `Call`, and about a response in its
`Received` (extensions.py). Each class has both ``handle_request`` and ``handle_async_request``, so
one stack serves the synchronous and the asynchronous client.
"""

from __future__ import annotations

from typing import Protocol

from ..http import httpx


class Transport(Protocol):
    """What each layer needs from the one below it: httpx's two methods."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...
