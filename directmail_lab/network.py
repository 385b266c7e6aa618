"""The innermost transport: what must not leave is refused, the key is added, and it is sent."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from .contract import PASSWORD
from .errors import (
    DirectMailLabError,
    InsecureAddressError,
    WriteRefusedError,
    without_traceback,
)
from .http import SENT, WANTS_KEY, httpx, is_write, lost_answer
from .settings import is_loopback, origin

if TYPE_CHECKING:
    from .credentials import ApiKey

    _Place = tuple[int, asyncio.AbstractEventLoop]


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
        # By process, so that a forked child opens its own connections. A pool of an event loop
        # belongs to it, and ends with it.
        self._pools: dict[int, httpx.HTTPTransport] = {}
        self._loop_pools: dict[_Place, tuple[httpx.AsyncHTTPTransport, AsyncGenerator[None]]] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        signed = self._checked_and_signed(request)
        process = os.getpid()
        # Threads that come at once share one pool: `setdefault` takes the first.
        pool = self._pools.get(process) or self._pools.setdefault(
            process, httpx.HTTPTransport(proxy=self._proxy)
        )
        try:
            response = pool.handle_request(signed)
        except BaseException as error:
            failure = without_traceback(error)
        else:
            response.stream = _Body(request, response)
            return response
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        signed = self._checked_and_signed(request)
        pool = await self._pool_of_this_loop()
        try:
            response = await pool.handle_async_request(signed)
        except BaseException as error:
            failure = without_traceback(error)
        else:
            response.stream = _Body(request, response)
            return response
        raise failure

    async def _pool_of_this_loop(self) -> httpx.AsyncHTTPTransport:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise DirectMailLabError(
                "async_client runs under asyncio alone, and nothing was sent. Under trio, call the "
                "session's other methods in a thread: trio.to_thread.run_sync(session.me)."
            ) from None
        here = (os.getpid(), loop)
        if here not in self._loop_pools:
            for ended in [place for place in list(self._loop_pools) if place[1].is_closed()]:
                self._loop_pools.pop(ended, None)
            pool = httpx.AsyncHTTPTransport(proxy=self._proxy)
            # asyncio.run() closes the generators that are still open before it closes its loop.
            closing = _closing_at_the_end(pool)
            self._loop_pools[here] = pool, closing
            await anext(closing)
        return self._loop_pools[here][0]

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
        process = os.getpid()
        if (pool := self._pools.pop(process, None)) is not None:
            pool.close()
        for place, (_, closing) in list(self._loop_pools.items()):
            if place[0] == process and place[1].is_running():
                asyncio.run_coroutine_threadsafe(closing.aclose(), place[1])
        self._loop_pools.clear()

    async def aclose(self) -> None:
        """Close the connections, this loop's own included, and wait for it."""
        own = self._loop_pools.pop((os.getpid(), asyncio.get_running_loop()), None)
        if own is not None:
            await own[1].aclose()
        self.close()


async def _closing_at_the_end(pool: httpx.AsyncHTTPTransport) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await pool.aclose()


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a live answer. What breaks in it is told as what breaks before it is.

    A write's outcome is then unknown, and no frame below is left on an error. A body that is
    compressed more than once is refused: 893 bytes can hold 8 GB, which httpx would open.
    """

    def __init__(self, request: httpx.Request, response: httpx.Response) -> None:
        self._request = request
        self._stream = response.stream
        self._codings = response.headers.get_list("content-encoding", split_commas=True)

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._stream, httpx.SyncByteStream)
        try:
            self._refuse_doubled_coding()
            yield from self._stream
        except BaseException as error:
            failure = lost_answer(self._request, error) or without_traceback(error)
        else:
            return
        raise failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        try:
            self._refuse_doubled_coding()
            async for part in self._stream:
                yield part
        except BaseException as error:
            failure = lost_answer(self._request, error) or without_traceback(error)
        else:
            return
        raise failure

    def _refuse_doubled_coding(self) -> None:
        if len(self._codings) > 1:
            raise httpx.DecodingError("compressed more than once", request=self._request)

    def close(self) -> None:
        assert isinstance(self._stream, httpx.SyncByteStream)
        self._stream.close()

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        await self._stream.aclose()


def _proxy_for(base_url: str) -> str | None:
    """Return the proxy that the environment names for an address; none for this machine."""
    scheme, host, _ = origin(base_url)
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
