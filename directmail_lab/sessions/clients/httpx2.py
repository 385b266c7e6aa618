"""The adapter for httpx2: two clients, and the transport that they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2

from ...exchange.httpx_values import httpx
from ...tracebacks import hide_frames
from ..transports.body import Body
from ..transports.extensions import call_of
from . import ClientsTransport, as_httpx, errors_as


def client(session: ClientsTransport, base_url: str, timeout_s: float) -> httpx2.Client:
    """Return a client that passes its requests to a session."""
    return _Client(base_url=base_url, timeout=timeout_s, **_options(session))


def async_client(session: ClientsTransport, base_url: str, timeout_s: float) -> httpx2.AsyncClient:
    """Return an asynchronous client that passes its requests to a session."""
    return _AsyncClient(base_url=base_url, timeout=timeout_s, **_options(session))


class _Client(httpx2.Client):
    """A client whose errors have no frames of httpx2, since their locals may contain the key."""

    @hide_frames
    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        return super().send(request, **options)


class _AsyncClient(httpx2.AsyncClient):
    """The asynchronous counterpart of `_Client`."""

    @hide_frames
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        return await super().send(request, **options)


def _options(session: ClientsTransport) -> dict[str, Any]:
    agent = f"directmail-lab python-httpx2/{httpx2.__version__}"
    headers = {"User-Agent": agent, "Accept-Encoding": "gzip, deflate"}
    return {"transport": Httpx2Transport(session), "auth": _wants_key, "headers": headers}


def _wants_key(request: httpx2.Request) -> httpx2.Request:
    """Mark a request as one that needs the key, as `KeyedAuth` does."""
    call_of(request).wants_key = True
    return request


class Httpx2Transport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Passes requests to a session, and returns its responses."""

    def __init__(self, session: ClientsTransport) -> None:
        self._session = session

    def handle_request(self, request: httpx2.Request, send: Any = None) -> httpx2.Response:
        with errors_as(_as_httpx2):
            return _httpx2_response(self._session.handle_request(as_httpx(request, send)))

    async def handle_async_request(
        self, request: httpx2.Request, send: Any = None
    ) -> httpx2.Response:
        with errors_as(_as_httpx2):
            sent = as_httpx(request, send)
            return _httpx2_response(await self._session.handle_async_request(sent))


class _Body(Body, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that httpx and httpx2 both accept."""


def _httpx2_response(response: httpx.Response) -> httpx2.Response:
    return httpx2.Response(
        response.status_code,
        headers=response.headers.raw,
        stream=_Body(response.stream, _as_httpx2),
        extensions=response.extensions,
    )


def _httpx_response(response: httpx2.Response) -> httpx.Response:
    return httpx.Response(
        response.status_code,
        headers=response.headers.raw,
        stream=_Body(response.stream, _as_httpx),
        extensions=response.extensions,
    )


def _translated(library: Any, other: Any, error: BaseException) -> BaseException:
    """Return the error of a library that has the same name as an error of the other one."""
    if not isinstance(error, other.RequestError):
        return error
    kind = getattr(library, type(error).__name__, library.TransportError)
    translated: BaseException = kind(str(error))
    return translated


_as_httpx = partial(_translated, httpx, httpx2)
_as_httpx2 = partial(_translated, httpx2, httpx)


# -- clients that the code under test makes ------------------------------------------------------


def sender(
    original: Callable[[httpx2.Request], httpx2.Response], request: httpx2.Request
) -> Callable[[httpx.Request], httpx.Response]:
    """Return a function that sends a session's copy of ``request`` by the client's own method."""

    def send(signed: httpx.Request) -> httpx.Response:
        with errors_as(_as_httpx):
            return _httpx_response(original(_copy(request, signed)))

    return send


def async_sender(
    original: Callable[[httpx2.Request], Awaitable[httpx2.Response]], request: httpx2.Request
) -> Callable[[httpx.Request], Awaitable[httpx.Response]]:
    """Return the asynchronous counterpart of `sender`."""

    async def send(signed: httpx.Request) -> httpx.Response:
        with errors_as(_as_httpx):
            return _httpx_response(await original(_copy(request, signed)))

    return send


def _copy(request: httpx2.Request, signed: httpx.Request) -> httpx2.Request:
    """Return the client's request with the headers and the body of the session's copy."""
    return httpx2.Request(
        request.method,
        request.url,
        headers=signed.headers.raw,
        stream=_Body(signed.stream),
        extensions=request.extensions,
    )
