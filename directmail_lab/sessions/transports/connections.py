"""The connections of a session: their pools, certificates and proxy."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib.util import find_spec

from ...errors import AddressError, DirectMailLabError, naming_what_is_missing
from ...exchange.httpx_values import httpx
from ...settings import is_loopback, variable

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


class Connections:
    """The pools of connections of a session.

    Each process has its own, since a forked child must not use those of its parent. So has each
    event loop, which closes its pool when it ends.

    Parameters
    ----------
    proxy
        The address of the proxy that requests pass; None for none.
    """

    def __init__(self, proxy: str | None) -> None:
        self.proxy = proxy
        self._pools: dict[int, httpx.HTTPTransport] = {}
        self._open: dict[asyncio.AbstractEventLoop, AsyncGenerator[httpx.AsyncHTTPTransport]] = {}
        self._of_loops: dict[asyncio.AbstractEventLoop, httpx.AsyncHTTPTransport] = {}

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
        if loop not in self._of_loops:
            for other in [each for each in self._open if each.is_closed()]:
                del self._open[other], self._of_loops[other]
            self._open[loop] = _open_until_the_loop_ends(self.proxy)
            self._of_loops[loop] = await anext(self._open[loop])
        return self._of_loops[loop]

    def close(self) -> None:
        """Close the connections. A running event loop closes its own."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()
        for loop, opened in self._open.items():
            if loop.is_running():
                with suppress(RuntimeError):  # it has ended meanwhile
                    loop.call_soon_threadsafe(_close, opened)
        self._open.clear()
        self._of_loops.clear()

    async def aclose(self) -> None:
        """Close all connections, and wait until those of this event loop are closed."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.aclose()
        self.close()


def _close(opened: AsyncGenerator[httpx.AsyncHTTPTransport]) -> None:
    closing = asyncio.ensure_future(opened.aclose())
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


_closing: set[asyncio.Future[None]] = set()
"""asyncio itself keeps no task alive."""


async def _open_until_the_loop_ends(
    proxy: str | None,
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


def proxy_for(url: httpx.URL) -> str | None:
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
    advice = f"Correct or unset {url.scheme.upper()}_PROXY or ALL_PROXY."
    try:
        parsed = httpx.URL(proxy)
    except httpx.InvalidURL:  # not chained: the message may repeat a password
        parsed = httpx.URL("")
    if parsed.scheme not in _PROXY_SCHEMES or not parsed.host:
        raise AddressError("The environment names a proxy whose address is not valid.", advice)
    if parsed.scheme.startswith("socks") and find_spec("socksio") is None:
        raise DirectMailLabError(
            f"The proxy {without_user(proxy)} needs the package socksio, which is missing.",
            f'Run: pip install "httpx[socks]". {advice}',
        )
    return proxy


def without_user(proxy: str) -> str:
    """Return the address of a proxy without its user name and password."""
    url = httpx.URL(proxy)
    return f"{url.scheme}://{url.netloc.decode('ascii')}"
