"""The innermost transport: what must not leave is refused, the key is added, and it is sent."""

from __future__ import annotations

import asyncio
import os
import threading
import urllib.request
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from .contract import PASSWORD
from .errors import (
    DirectMailLabError,
    InsecureAddressError,
    WriteRefusedError,
    without_traceback,
)
from .http import SENT, WANTS_KEY, httpx, is_write
from .settings import is_loopback, origin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from .credentials import ApiKey

__all__ = ["NetworkTransport"]

# The request that was sent first, by its identity: a redirect's request takes its extensions along.
_FIRST: Final = "directmail_lab.first"


class NetworkTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends. The last place before the wire, so what must not leave is refused here.

    The key joins the request on a copy, and only toward the base address's origin: no request or
    response that the caller ever holds, pickles or prints has it, and no redirect carries it off.
    """

    def __init__(self, base_url: str, api_key: ApiKey, *, allow_writes: bool = False) -> None:
        self._origin = origin(base_url)
        self._api_key = api_key
        self._allow_writes = allow_writes
        self._proxy = _proxy_for(base_url)
        self._pools = _Pools(self._proxy)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        signed = self._checked_and_signed(request)
        try:
            response = self._own_pools().here().handle_request(signed)
        except BaseException as error:
            failure = without_traceback(error)
        else:
            response.stream = _Body(response.stream)
            return response
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        signed = self._checked_and_signed(request)
        pool = await self._own_pools().in_this_loop()
        try:
            response = await pool.handle_async_request(signed)
        except BaseException as error:
            failure = without_traceback(error)
        else:
            response.stream = _Body(response.stream)
            return response
        raise failure

    def _own_pools(self) -> _Pools:
        if self._pools.process != os.getpid():
            # A forked child: the connections are its parent's. They are kept, unused, since to
            # collect them would warn that they were never closed.
            self._pools = _Pools(self._proxy, of_parent=self._pools)
        return self._pools

    def _checked_and_signed(self, request: httpx.Request) -> httpx.Request:
        """Return the copy of a request that is sent."""
        self._refuse_unsafe(request)
        request.extensions[SENT] = True
        headers = request.headers.copy()
        if (
            origin(str(request.url)) == self._origin
            and request.extensions.get(WANTS_KEY)
            and "Authorization" not in headers
        ):
            # service.md part 5: HTTP Basic, the key as user name and an empty password.
            pair = f"{self._api_key.reveal()}:{PASSWORD}".encode("ascii")
            headers["Authorization"] = "Basic " + b64encode(pair).decode("ascii")
        return httpx.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )

    def _refuse_unsafe(self, request: httpx.Request) -> None:
        if request.url.scheme != "https" and not is_loopback(request.url.host):
            raise InsecureAddressError(
                f"{request.url.scheme}://{request.url.host} is not encrypted, and nothing was "
                "sent. Use https:// (plain http is for this machine alone)."
            )
        if not is_write(request):
            return
        if not self._allow_writes:
            raise WriteRefusedError(
                f"{request.method} would change something at the live service, and nothing was "
                "sent. If you mean it, connect(…, allow_writes=True)."
            )
        if request.extensions.setdefault(_FIRST, id(request)) != id(request):
            raise WriteRefusedError(
                f"The {request.method} was sent, and its answer redirects it elsewhere: it is not "
                "sent a second time. Look at the answer without follow_redirects."
            )

    def close(self) -> None:
        """Close the connections; those of a running event loop are closed by that loop."""
        self._own_pools().close()

    async def aclose(self) -> None:
        """Close the connections, this loop's own included, and wait for it."""
        await self._own_pools().aclose()


class _Pools:
    """The connections of one process: one pool for its threads, one for each event loop."""

    def __init__(self, proxy: str | None, *, of_parent: _Pools | None = None) -> None:
        self.process = os.getpid()
        self._proxy = proxy
        self._of_parent = of_parent
        self._sync: httpx.HTTPTransport | None = None
        self._opening = threading.Lock()
        # A pool of connections belongs to the event loop that opened them, and ends with it.
        self._by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncHTTPTransport] = {}
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}

    def here(self) -> httpx.HTTPTransport:
        with self._opening:  # threads that come at once share one pool: no other is closed
            self._sync = self._sync or httpx.HTTPTransport(proxy=self._proxy)
        return self._sync

    async def in_this_loop(self) -> httpx.AsyncHTTPTransport:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None:
            raise DirectMailLabError(
                "async_client runs under asyncio alone, and nothing was sent. Under trio, call the "
                "session's other methods in a thread: trio.to_thread.run_sync(session.me)."
            )
        return self._by_loop.get(loop) or await self._open(loop)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> httpx.AsyncHTTPTransport:
        for ended in [each for each in list(self._by_loop) if each.is_closed()]:
            self._by_loop.pop(ended, None)
            self._keepers.pop(ended, None)
        pool = self._by_loop[loop] = httpx.AsyncHTTPTransport(proxy=self._proxy)
        # asyncio.run() closes the generators that are still open before it closes its loop.
        keeper = self._keepers[loop] = _closing_at_the_end(pool)
        await anext(keeper)
        return pool

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()
        for loop, keeper in list(self._keepers.items()):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop)
        self._by_loop.clear()
        self._keepers.clear()

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        self._by_loop.pop(loop, None)
        if (own := self._keepers.pop(loop, None)) is not None:
            await own.aclose()
        self.close()


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a live answer: an error while it is read has no frames below, as in `send`."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._stream, httpx.SyncByteStream)
        try:
            yield from self._stream
        except BaseException as error:
            failure = without_traceback(error)
        else:
            return
        raise failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        try:
            async for part in self._stream:
                yield part
        except BaseException as error:
            failure = without_traceback(error)
        else:
            return
        raise failure

    def close(self) -> None:
        assert isinstance(self._stream, httpx.SyncByteStream)
        self._stream.close()

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        await self._stream.aclose()


async def _closing_at_the_end(pool: httpx.AsyncHTTPTransport) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await pool.aclose()


def _proxy_for(base_url: str) -> str | None:
    """Return the proxy that the environment names for an address; none for this machine."""
    scheme, host, _ = origin(base_url)
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
