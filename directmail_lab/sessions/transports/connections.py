"""The connections of a session: their pools, certificates and proxy."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from ...errors import AddressError, DirectMailLabError, naming_what_is_missing
from ...exchange.httpx_values import httpx
from ...exchange.values import BODILESS
from ...settings import is_loopback, variable

sends_here: ContextVar[str] = ContextVar("sends_here", default="")
"""The host to which a session sends in this context; empty if none does."""
lookups: set[object] = set()
"""The calls that may look up a host in a thread of their event loop, which has another context."""

_OpenPool = tuple[AsyncGenerator[httpx.AsyncHTTPTransport], httpx.AsyncHTTPTransport]


class Connections:
    """The pools of connections of a session.

    Each process has its own, since a forked child must not use those of its parent. So has each
    event loop, which closes its pool when it ends.

    Parameters
    ----------
    proxy
        The proxy that requests pass; None for none.
    """

    def __init__(self, proxy: httpx.Proxy | None) -> None:
        self.proxy = proxy
        self._pools: dict[int, httpx.HTTPTransport] = {}
        self._open: dict[asyncio.AbstractEventLoop, _OpenPool] = {}

    def pool(self) -> httpx.HTTPTransport:
        """Return the pool of this process."""
        process = os.getpid()
        # If several threads arrive at once, they share one pool: `setdefault` keeps the first.
        return self._pools.get(process) or self._pools.setdefault(
            process, httpx.HTTPTransport(verify=_certificates(), proxy=self.proxy)
        )

    def forget_pool(self) -> None:
        """Forget the pool of this process: an interrupt may leave one of its locks locked."""
        self._pools.pop(os.getpid(), None)

    async def pool_of_loop(self) -> httpx.AsyncHTTPTransport:
        """Return the pool of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            for other in [each for each in self._open if each.is_closed()]:
                del self._open[other]
            opened = _open_until_the_loop_ends(self.proxy)
            self._open[loop] = (opened, await anext(opened))
        return self._open[loop][1]

    def close(self) -> None:
        """Close the connections. A running event loop closes its own."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()
        for loop, (opened, _) in self._open.items():
            if loop.is_running():
                with suppress(RuntimeError):  # it has ended meanwhile
                    loop.call_soon_threadsafe(_close, opened)
        self._open.clear()

    async def aclose(self) -> None:
        """Close all connections, and wait until those of this event loop are closed."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened[0].aclose()
        self.close()


class CheckedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a response. At its end, the connection is closed if anything is left on it.

    It would be taken for the response to the next request.
    """

    def __init__(self, response: httpx.Response, method: str) -> None:
        self._stream: Any = response.stream
        self._socket = response.extensions["network_stream"]
        has_none = method == "HEAD" or response.status_code in BODILESS
        names = response.headers
        announces = names.get("content-length", "0") != "0" or "transfer-encoding" in names
        self._is_wrong = has_none and announces  # its body may be on the way

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    def _has_rest(self) -> bool:
        found = self._stream
        # What h11 has read, and the response does not contain. Only these names lead there.
        for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state", "trailing_data"):
            found = getattr(found, name, None)
        return self._is_wrong or bool(found and found[0])

    def close(self) -> None:
        if self._has_rest():
            self._socket.close()
        self._stream.close()

    async def aclose(self) -> None:
        if self._has_rest():
            await self._socket.aclose()
        await self._stream.aclose()


def _close(opened: AsyncGenerator[httpx.AsyncHTTPTransport]) -> None:
    closing = asyncio.ensure_future(opened.aclose())
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


_closing: set[asyncio.Future[None]] = set()
"""asyncio itself keeps no task alive."""


async def _open_until_the_loop_ends(
    proxy: httpx.Proxy | None,
) -> AsyncGenerator[httpx.AsyncHTTPTransport]:
    # asyncio.run() closes the generators that are still open before it closes its loop.
    async with httpx.AsyncHTTPTransport(verify=_certificates(), proxy=proxy) as pool:
        yield pool


def _certificates() -> ssl.SSLContext:
    """Return the TLS context that checks servers' certificates; each pool has its own.

    It trusts the roots of the system, such as a company's own, and certifi's, since a container may
    have no others. The file that ``SSL_CERT_FILE`` names takes the place of certifi's.
    """
    with naming_what_is_missing():
        import certifi
        import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):  # as in ssl.create_default_context
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    named = variable("SSL_CERT_FILE")
    try:
        context.load_verify_locations(named or certifi.where())
        return context
    except OSError as error:  # or an SSLError; neither names the file
        reason = error.strerror
    raise DirectMailLabError(
        f"SSL_CERT_FILE, {named}, cannot be read: {reason}.", "Correct or unset it."
    )


def proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy that the environment names for an address; none for this machine.

    As in httpx, the default scheme of a proxy is http.
    """
    if is_loopback(url.host) or urllib.request.proxy_bypass(url.host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        return httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL):  # not chained: the message may repeat a password
        pass
    raise AddressError(
        "The environment names a proxy whose address is not valid.",
        f"Correct or unset {url.scheme.upper()}_PROXY or ALL_PROXY.",
    )
