"""The transports that a request passes, from the client to the network.

::

    ModeTransport         replays a response; refuses a write that was sent before (writes.py), or
                          returns its response; passes other requests on
    PacingTransport       waits for the allowance (allowance.py); repeats failed reads
    RecordingTransport    keeps every response, with its reading (observer.py); writes it to a
                          cassette
    NetworkTransport      refuses unsafe requests; lets a write be recorded; adds the key; sends

A replay uses only the first. On the way back, the head of a response passes them in the other
order, and its `Body` (body.py) goes to the client as it comes. At the end of the body, before the
client sees it, the recording transport keeps the body and writes the interaction.

The transports share what they know about a request in its `Call`, and about a response in its
`Received` (extensions.py). Each class has both ``handle_request`` and ``handle_async_request``, so
one stack serves the synchronous and the asynchronous client.
"""

from __future__ import annotations

from typing import Protocol

from ...exchange.httpx_values import httpx


class Transport(Protocol):
    """What each layer needs from the one below it: httpx's two methods."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...
