"""``patch=True``: the httpx clients that the code under test makes send through a session.

During one test, the methods with which httpx's connections send are replaced, in all threads. The
session sends with the original method, and so with the client's connections, proxy, certificates
and timeouts. It adds nothing to a request, and does not pace or repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import unwrap
from typing import Any, cast

import pytest

from ..errors import DirectMailLabError
from ..exchange.httpx_values import httpx
from ..sessions.transports import Transport
from ..sessions.transports.extensions import EXTENSION, call_of
from ..tracebacks import hide_frames


@contextmanager
def patched(
    session: Transport,
    as_raised: Callable[[DirectMailLabError], BaseException],
    ignore_hosts: Collection[str] = (),
) -> Iterator[None]:
    """Let httpx's clients send through a session's transport, except to the ignored hosts.

    ``as_raised`` converts an error of ours before a client raises it.
    """

    def passes(request: httpx.Request) -> bool:
        """Return whether a request is sent as it is; a session's own has passed its transports."""
        is_own = EXTENSION in request.extensions and call_of(request).send is None
        return is_own or request.url.host in ignore_hosts

    # The session of a module, or vcrpy, may have wrapped the methods already.
    send: Any = unwrap(httpx.HTTPTransport.handle_request)
    send_async: Any = unwrap(httpx.AsyncHTTPTransport.handle_async_request)

    @wraps(send)
    def handle_request(connections: Any, request: httpx.Request) -> httpx.Response:
        if passes(request):
            return cast("httpx.Response", send(connections, request))
        call_of(request).send = hide_frames(partial(send, connections))
        try:
            return session.handle_request(request)
        except DirectMailLabError as error:
            failure = as_raised(error)
        raise failure

    @wraps(send_async)
    async def handle_async_request(connections: Any, request: httpx.Request) -> httpx.Response:
        if passes(request):
            return cast("httpx.Response", await send_async(connections, request))
        call_of(request).send = hide_frames(partial(send_async, connections))
        try:
            return await session.handle_async_request(request)
        except DirectMailLabError as error:
            failure = as_raised(error)
        raise failure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.HTTPTransport, "handle_request", handle_request)
        patch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle_async_request)
        yield
