"""The innermost transport refuses unsafe requests, adds the key to the others, and sends them."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...credentials import HEADER, header_value
from ...errors import (
    AddressError,
    DirectMailLabError,
    NotConnectedError,
    OutcomeUnknownError,
    WriteRefusedError,
)
from ...exchange.httpx_values import httpx, is_write, kind_of_failure, parse_url
from ...exchange.operations import operation_of
from ...redaction import has_placeholder
from ...settings import is_loopback, origin_of, variable
from ...tracebacks import clear_locals, hide_frames, without_traceback
from .body import Body
from .extensions import Call, Sent, call_of

if TYPE_CHECKING:
    from ...credentials import ApiKey

    _Place = tuple[int, asyncio.AbstractEventLoop]
    _Opened = AsyncGenerator[httpx.AsyncHTTPTransport]


_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

# A client that follows such a redirect sends a write again.
_REPEATING = (301, 307, 308)

# After these errors, the service has received nothing of the request.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)


class NetworkTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends requests, unless they are unencrypted, or writes that are not allowed.

    The key is added to a copy of the request, and only if it goes to the origin of the base
    address. So no request or response that the caller keeps, pickles or prints contains the key,
    and no redirect takes it to another server.

    A client that the code under test makes sends over its own connections, to any address. Without
    a key, only such clients can send.

    Attributes
    ----------
    allow_writes
        Whether writes are sent.
    write_advice
        What to do to allow writes.
    """

    write_advice = "If you mean it, allow writes first: session().allow_writes = True."

    def __init__(self, base_url: str, api_key: ApiKey | None, allow_writes: bool) -> None:
        base = httpx.URL(base_url)
        self._origin = origin_of(base)
        self._api_key = api_key
        self.allow_writes = allow_writes
        self._proxy = None if api_key is None else _proxy_for(base)
        # For each process, so that a forked child opens its own connections. An asynchronous pool
        # belongs to one event loop, and is closed with it.
        self._pools: dict[int, httpx.HTTPTransport] = {}
        self._loop_pools: dict[_Place, tuple[httpx.AsyncHTTPTransport, _Opened]] = {}

    @hide_frames
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = call_of(request)
        signed = self._checked_and_signed(request, call)
        if call.send is not None:
            return _received(request, call.send(signed))
        process = os.getpid()
        # If several threads arrive at once, they share one pool: `setdefault` keeps the first.
        pool = self._pools.get(process) or self._pools.setdefault(
            process, httpx.HTTPTransport(verify=_certificates(), proxy=self._proxy)
        )

        def forget_pool() -> None:  # an interrupt may leave one of httpcore's locks locked
            self._pools.pop(process, None)

        try:
            response = pool.handle_request(signed)
        except KeyboardInterrupt:
            forget_pool()
            raise
        except httpx.TransportError as error:
            self._name_proxy(error)
            raise
        return _received(request, response, on_interrupt=forget_pool)

    @hide_frames
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = call_of(request)
        signed = self._checked_and_signed(request, call)
        if call.send is not None:
            return _received(request, await call.send(signed))
        pool = await self._pool_of_this_loop()
        try:
            response = await pool.handle_async_request(signed)
        except httpx.TransportError as error:
            self._name_proxy(error)
            raise
        return _received(request, response)

    def _name_proxy(self, error: httpx.TransportError) -> None:
        """Let an error say which proxy the request was sent to, if there was one."""
        if self._proxy is not None:
            vars(error)["proxy"] = _without_user(self._proxy)

    async def _pool_of_this_loop(self) -> httpx.AsyncHTTPTransport:
        place = os.getpid(), asyncio.get_running_loop()
        if place not in self._loop_pools:
            for other in list(self._loop_pools):
                if other[1].is_closed():
                    self._loop_pools.pop(other, None)
            opened = _open_until_the_loop_ends(self._proxy)
            self._loop_pools[place] = await anext(opened), opened
        return self._loop_pools[place][0]

    def _checked_and_signed(self, request: httpx.Request, call: Call) -> httpx.Request:
        """Return a copy of the request with the key, or the request if it is sent without."""
        url = request.url
        state = call.state
        state.is_ours = origin_of(url) == self._origin  # checked when the session was opened
        if self._api_key is None and call.send is None:
            raise NotConnectedError(
                "This session has no key, and records only the clients of the code under test.",
                "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY.",
            )
        is_checked = state.is_ours or call.send is not None
        if not is_checked and parse_url(url).scheme != "https" and not is_loopback(url.host):
            raise AddressError(
                f"{url.scheme}://{url.host} is not encrypted, and nothing was sent.",
                "Use https:// (plain http is for this machine alone).",
            )
        if is_write(request):
            self._refuse_write(request, state.sent)
            if state.before_sending is not None:
                state.before_sending()
        if state.sent is Sent.NOTHING:
            state.sent = Sent.REQUEST
        if "<REDACTED" in request.headers.get("cookie", ""):
            request = _without_stand_ins(request)
        if not (state.is_ours and call.wants_key and self._api_key):
            return request
        if HEADER in request.headers:
            return request
        # From the headers as they are: httpx would encode each header of a dict again.
        signed = httpx.Request(
            request.method,
            url,
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        signed.headers[HEADER] = header_value(self._api_key.reveal())
        return signed

    def _refuse_write(self, request: httpx.Request, sent: Sent) -> None:
        if not self.allow_writes:
            raise WriteRefusedError(
                f"{request.method} would change something at the live service, and nothing was "
                "sent.",
                self.write_advice,
            )
        if sent is Sent.REDIRECTED:
            raise WriteRefusedError(
                f"The {request.method} was sent, and the service redirects it to another address. "
                "A write is never sent twice.",
                "Send it to the other address (often the same one with a slash at its end), or get "
                "the response without follow_redirects.",
            )

    def close(self) -> None:
        """Close the connections. A running event loop closes its own."""
        process = os.getpid()
        pool = self._pools.pop(process, None)
        if pool is not None:
            pool.close()
        for place, (_, closing) in list(self._loop_pools.items()):
            if place[0] == process and place[1].is_running():
                asyncio.run_coroutine_threadsafe(closing.aclose(), place[1])
        self._loop_pools.clear()

    async def aclose(self) -> None:
        """Close all connections, and wait until those of this event loop are closed."""
        own = self._loop_pools.pop((os.getpid(), asyncio.get_running_loop()), None)
        if own is not None:
            await own[1].aclose()
        self.close()


def _without_stand_ins(request: httpx.Request) -> httpx.Request:
    """Return a request without the cookies that a replay set: see `directmail_lab.redaction`."""
    pairs = request.headers["cookie"].split("; ")
    kept = [pair for pair in pairs if not has_placeholder(pair)]
    headers = request.headers.copy()
    del headers["cookie"]
    if kept:
        headers["cookie"] = "; ".join(kept)
    return httpx.Request(
        request.method,
        request.url,
        headers=headers,
        stream=request.stream,
        extensions=request.extensions,
    )


def _received(
    request: httpx.Request,
    response: httpx.Response,
    *,
    on_interrupt: Callable[[], object] = lambda: None,
) -> httpx.Response:
    """Return the response with a `Body` whose errors say what happened.

    If it breaks off, the outcome of a write is unknown, as it is if no response arrives. The
    traceback of a connection's error has no frames of httpx.
    """

    def explain(error: BaseException) -> BaseException:
        if isinstance(error, KeyboardInterrupt):
            on_interrupt()
        if isinstance(error, httpx.RequestError | KeyboardInterrupt):
            return lost_response(request, error) or without_traceback(error)
        clear_locals(error)
        return error

    if response.status_code in _REPEATING and response.has_redirect_location:
        call_of(request).state.sent = Sent.REDIRECTED
    stream = response.stream
    body = Body(stream)
    body.explain = explain
    response.stream = body
    return response


async def _open_until_the_loop_ends(
    proxy: str | None,
) -> AsyncGenerator[httpx.AsyncHTTPTransport]:
    # asyncio.run() closes the generators that are still open before it closes its loop.
    async with httpx.AsyncHTTPTransport(verify=_certificates(), proxy=proxy) as pool:
        yield pool


class OutcomeUnknownTimeoutError(OutcomeUnknownError, httpx.TimeoutException):
    """A write timed out. ``except httpx.TimeoutException`` catches it too."""


def lost_response(request: httpx.Request, error: BaseException) -> OutcomeUnknownError | None:
    """Return the error for a write that was sent and got no response; None for other failures.

    A client that the code under test makes gets httpx's own errors.
    """
    if isinstance(error, NOT_SENT) or not isinstance(error, httpx.RequestError):
        return None
    if not is_write(request) or call_of(request).send is not None:
        return None
    is_timeout = isinstance(error, httpx.TimeoutException)
    number = call_of(request).state.number
    which = f" It is number {number} in interactions()." if number else ""
    return (OutcomeUnknownTimeoutError if is_timeout else OutcomeUnknownError)(
        f"{request.method} {operation_of(request.url.path)} was sent, and no complete response "
        f"came back ({type(error).__name__}). It may have been carried out. It was not sent again."
        f"{which}",
        "Find out whether it was carried out before you repeat it.",
        no_response=kind_of_failure(error),
        number=number,
    )


def _certificates() -> ssl.SSLContext:
    """Return the TLS context that checks servers' certificates.

    It trusts the roots of the system, such as a company's own, and certifi's, since a container may
    have no others. If ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` is set, it trusts only what they name.
    """
    if not (variable("SSL_CERT_FILE") or variable("SSL_CERT_DIR")):
        with suppress(ImportError):  # where tests only replay, truststore need not be installed
            return _certificates_of_the_system()
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # or an SSLError; neither names the file
        reason = error.strerror
    raise DirectMailLabError(
        f"SSL_CERT_FILE, {variable('SSL_CERT_FILE')}, cannot be read: {reason}.",
        "Correct or unset it.",
    )


def _certificates_of_the_system() -> ssl.SSLContext:
    # Each pool has its own: a handshake, which a server may draw out, takes the context's lock.
    import certifi
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):  # as in ssl.create_default_context
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    context.load_verify_locations(certifi.where())
    return context


def _proxy_for(url: httpx.URL) -> str | None:
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
            f"The proxy {_without_user(proxy)} needs the package socksio, which is missing.",
            f'Run: pip install "httpx[socks]". {advice}',
        )
    return proxy


def _without_user(proxy: str) -> str:
    """Return the address of a proxy without its user name and password."""
    url = httpx.URL(proxy)
    return f"{url.scheme}://{url.netloc.decode('ascii')}"
