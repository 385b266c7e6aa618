"""The innermost transport: what must not leave is refused, the key is added, and it is sent."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from base64 import b64encode
from typing import TYPE_CHECKING

from .contract import PASSWORD, SAFE_METHODS
from .errors import InsecureAddressError, WriteRefusedError
from .http import httpx
from .settings import is_loopback, origin
from .transports import bare

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .credentials import ApiKey

__all__ = ["NetworkTransport"]


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
        self._sync: httpx.HTTPTransport | None = None
        self._opening = threading.Lock()
        # A pool of connections belongs to the event loop that opened them, and ends with it.
        self._by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncHTTPTransport] = {}
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._refuse_unsafe(request)
        if self._sync is None:
            with self._opening:  # threads that come at once share one pool: no other is closed
                self._sync = self._sync or httpx.HTTPTransport(proxy=self._proxy)
        try:
            return self._sync.handle_request(self._signed(request))
        except BaseException as error:
            failure = bare(error)
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._refuse_unsafe(request)
        loop = asyncio.get_running_loop()
        pool = self._by_loop.get(loop) or await self._open_pool(loop)
        try:
            return await pool.handle_async_request(self._signed(request))
        except BaseException as error:
            failure = bare(error)
        raise failure

    async def _open_pool(self, loop: asyncio.AbstractEventLoop) -> httpx.AsyncHTTPTransport:
        for ended in [each for each in list(self._by_loop) if each.is_closed()]:
            self._by_loop.pop(ended, None)
            self._keepers.pop(ended, None)
        pool = self._by_loop[loop] = httpx.AsyncHTTPTransport(proxy=self._proxy)
        # asyncio.run() closes the generators that are still open before it closes its loop.
        keeper = self._keepers[loop] = _closing_at_the_end(pool)
        await anext(keeper)
        return pool

    def _refuse_unsafe(self, request: httpx.Request) -> None:
        if request.url.scheme != "https" and not is_loopback(request.url.host):
            raise InsecureAddressError(
                f"{request.url.scheme}://{request.url.host} is not encrypted, and nothing was "
                "sent. Use https:// (plain http is for this machine alone)."
            )
        if request.method not in SAFE_METHODS and not self._allow_writes:
            raise WriteRefusedError(
                f"{request.method} would change something at the live service, and nothing was "
                "sent. If you mean it, connect(…, allow_writes=True)."
            )

    def _signed(self, request: httpx.Request) -> httpx.Request:
        headers = request.headers.copy()
        if origin(str(request.url)) == self._origin and "Authorization" not in headers:
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

    def close(self) -> None:
        """Close the connections; those of a running event loop are closed by that loop."""
        if self._sync is not None:
            self._sync.close()
        for loop, keeper in list(self._keepers.items()):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop)
        self._by_loop.clear()
        self._keepers.clear()

    async def aclose(self) -> None:
        """Close the connections, this loop's own included, and wait for it."""
        loop = asyncio.get_running_loop()
        self._by_loop.pop(loop, None)
        if (own := self._keepers.pop(loop, None)) is not None:
            await own.aclose()
        self.close()


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
