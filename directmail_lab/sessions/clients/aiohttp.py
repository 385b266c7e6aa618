"""aiohttp over a session: a middleware for each request, and connections in memory.

The middleware passes a request to the session. What the session returns comes to aiohttp as bytes
of a connection, so aiohttp parses it and raises its errors by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from ...exchange.httpx_values import httpx
from ..transports.body import Body
from ..transports.extensions import EXTENSION, Call
from . import ClientsTransport, Exchange, async_parts_of, errors_as, url_of

BaseConnector = aiohttp.BaseConnector
ClientSession = aiohttp.ClientSession

_Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]

# The headers of a compressed body, which aiohttp decompresses.
_OF_PACKED = (b"content-encoding", b"content-length", b"transfer-encoding")

_UNREAD_S = 0.001

# A ClientResponseError as text: 400, message='…', url='…'.
_STATUS = re.compile(r"(\d+), message=['\"](.*)['\"], url=", re.DOTALL)

# Makes the connection that a task is about to open, for its protocol.
_connection: ContextVar[Callable[[ResponseHandler], _Memory] | None] = ContextVar(
    "connection", default=None
)

_CONNECTOR_ERRORS = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientConnectorCertificateError,
)

# The first row that fits an error counts. A replay without the name of an error raises the last
# class of a row.
_KINDS = (
    (httpx.ConnectTimeout, (aiohttp.ConnectionTimeoutError,)),
    (httpx.ConnectError, (aiohttp.ClientConnectorError,)),
    (httpx.ReadTimeout, (TimeoutError,)),
    (httpx.ReadError, (OSError, aiohttp.ServerDisconnectedError)),
    (httpx.RemoteProtocolError, (aiohttp.ClientError,)),
)


class Middleware:
    """Passes the requests of aiohttp's clients to a session.

    Parameters
    ----------
    passes
        Returns whether requests to a host are sent without the session.
    """

    def __init__(self, session: ClientsTransport, passes: Callable[[str], bool]) -> None:
        self._session = session
        self._passes = passes

    async def request(
        self,
        original: Callable[..., Awaitable[aiohttp.ClientResponse]],
        client: Any,
        *args: Any,
        middlewares: Sequence[Any] | None = None,
        **options: Any,
    ) -> aiohttp.ClientResponse:
        """Do what `ClientSession._request` does, with one more middleware: the innermost."""
        timeout = options.get("timeout", client.timeout)
        if not isinstance(timeout, aiohttp.ClientTimeout):
            is_number = isinstance(timeout, int | float)
            timeout = aiohttp.ClientTimeout(timeout) if is_number else client.timeout
        ends = asyncio.get_running_loop().time() + (timeout.total or float("inf"))
        is_unpacked = options.get("auto_decompress")
        if is_unpacked is None:
            is_unpacked = client.auto_decompress

        async def through(request: Any, handler: _Handler) -> aiohttp.ClientResponse:
            if self._passes(request.url.host or ""):
                return await handler(request)
            exchange = _Exchange(request, handler, timeout, ends, is_unpacked=is_unpacked)
            return await exchange.response(self._session)

        others = client._middlewares if middlewares is None else middlewares
        return await original(client, *args, middlewares=(*others, through), **options)


async def connect(
    original: Callable[..., Any], connector: Any, request: Any, *args: Any, **kw: Any
) -> Any:
    """Return a connection in memory if there is a response for it."""
    make = _connection.get()
    if make is None:
        return await original(connector, request, *args, **kw)
    loop = asyncio.get_running_loop()
    protocol = ResponseHandler(loop)
    protocol.connection_made(make(protocol))
    protocol.force_close()  # no other request may use it
    return Connection(connector, request.connection_key, protocol, loop)


class _Exchange(Exchange):
    """One request of aiohttp, and what became of it."""

    def __init__(
        self, request: Any, handler: _Handler, timeout: Any, ends: float, *, is_unpacked: bool
    ) -> None:
        self._request = request
        self._handler = handler
        self._timeout = timeout
        self._ends = ends
        self._is_unpacked = is_unpacked

    async def response(self, session: ClientsTransport) -> aiohttp.ClientResponse:
        """Return the session's response, as aiohttp parses it."""
        request = await self._httpx_request()
        try:
            response = await session.handle_async_request(request)
        except httpx.RequestError as error:
            failure = self.failure(error)
        else:
            return await self._parsed(response)
        raise failure

    async def _parsed(self, response: httpx.Response) -> aiohttp.ClientResponse:
        parts = self._guarded(async_parts_of(response, self._request.method))
        leave = partial(self._leave, response.stream)
        self._request._continue = None  # with expect100, the body was read, and nothing waits
        memory = partial(_Memory, parts=parts, leave=leave, close=response.aclose)
        token = _connection.set(memory)
        try:
            return await self._handler(self._request)
        finally:
            _connection.reset(token)

    async def _httpx_request(self) -> httpx.Request:
        request = self._request
        limits = self._timeout
        body = request.body or b""
        if isinstance(body, aiohttp.Payload):
            body = await _bytes_of(request)
        connect = limits.sock_connect or limits.connect or limits.total
        read = limits.sock_read or limits.total
        timeouts = {"connect": connect, "pool": connect, "read": read, "write": read}
        headers = []
        for name, value in request.headers.items():
            headers.append((name.encode(), value.encode("utf-8", "surrogateescape")))
        sent = httpx.Request(
            request.method,
            url_of(str(request.url)),
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions={"timeout": timeouts, EXTENSION: Call(wants_key=True, send=self._send)},
        )
        await sent.aread()
        return sent

    async def _send(self, signed: httpx.Request) -> httpx.Response:
        """Send the client's own request, and with the key if the session added it."""
        headers = self._request.headers
        is_signed = "authorization" in signed.headers and "authorization" not in headers
        if is_signed:
            headers["authorization"] = signed.headers["authorization"]
        try:
            with errors_as(self._translated):
                raw = await self._handler(self._request)
        finally:  # responses and errors of aiohttp show the headers of the request
            if is_signed:
                del headers["authorization"]
        pairs = list(raw.raw_headers)
        is_unpacked = self._is_unpacked and "content-encoding" in raw.headers
        if is_unpacked and self._request.method != "HEAD":
            pairs = [pair for pair in pairs if pair[0].lower() not in _OF_PACKED]
            # In chunks, so that a body that breaks off has no end.
            pairs.append((b"transfer-encoding", b"chunked"))
        return httpx.Response(
            raw.status,
            headers=pairs,
            stream=Body(raw.content.iter_any(), self._translated, close=raw.close),
            extensions={"reason_phrase": (raw.reason or "").encode("ascii", "replace")},
        )

    def _translated(self, error: BaseException) -> BaseException:
        """Return the error of httpx for one of aiohttp, which is kept; another one as it is."""
        shown = error
        is_late = asyncio.get_running_loop().time() >= self._ends
        if isinstance(error, asyncio.CancelledError) and is_late:
            shown = TimeoutError()  # as aiohttp does
        for kind, classes in _KINDS:
            if isinstance(shown, classes):
                return self._keep(error, kind, shown)
        return error

    def _leave(self, body: Any) -> None:
        """Say that the client reads no further: by itself, or because it was cancelled."""
        if not isinstance(body, Body):
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            body.end(self._translated(asyncio.CancelledError()))
        body.leave()

    def _replayed(self, error: httpx.RequestError, name: str, text: str) -> BaseException:
        kind: Any = getattr(aiohttp, name, None)
        if name == "TimeoutError":
            return TimeoutError()
        if not (isinstance(kind, type) and issubclass(kind, aiohttp.ClientError)):
            rows = (classes[-1] for theirs, classes in _KINDS if isinstance(error, theirs))
            kind = next(rows, aiohttp.ClientConnectionError)
        arguments: tuple[Any, ...] = (text,)
        about: dict[str, Any] = {}
        if issubclass(kind, aiohttp.ClientResponseError):
            arguments = (self._request.request_info, ())
            status = _STATUS.match(text)
            if status:
                about = {"status": int(status[1]), "message": status[2]}
        elif issubclass(kind, _CONNECTOR_ERRORS):
            arguments = (self._request.connection_key, ConnectionRefusedError(0, text))
        failure: BaseException = kind(*arguments, **about)
        return failure

    async def _guarded(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self.errors_of_body():
            async for part in parts:
                yield part


async def _bytes_of(request: Any) -> bytes:
    """Return the body of a request. If it can be read only once, the request gets it again."""
    taken = _Taken()
    await request.body.write(taken)
    body = b"".join(taken.parts)
    if not hasattr(request, "update_body"):  # in aiohttp 3.12.0
        request.body = body
    elif request.body.consumed:
        await request.update_body(body)
    return body


class _Taken:
    """Takes what a body writes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    async def write(self, part: Any) -> None:
        self.parts.append(bytes(part))


class _Memory(asyncio.Transport):
    """A connection in memory: it drops what is written, and a protocol reads the response.

    ``leave`` is called if the client reads no further, and ``close`` at the end.
    """

    def __init__(
        self,
        protocol: ResponseHandler,
        parts: AsyncIterator[bytes],
        leave: Callable[[], object],
        close: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._leave = leave
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = False
        self._reading = asyncio.ensure_future(self._read(parts, close))

    async def _read(
        self, parts: AsyncIterator[bytes], close: Callable[[], Awaitable[object]]
    ) -> None:
        error: BaseException | None = None
        try:
            async for part in parts:
                await self._may_read.wait()
                self._protocol.data_received(part)
        except asyncio.CancelledError:
            raise
        except BaseException as failure:  # also pytest's own, which is no Exception
            error = failure
        finally:
            await close()
        self._is_closing = True
        payload = self._protocol._payload
        # A body that is too short becomes an error, which would take what was not read yet.
        while payload is not None and not payload.is_eof() and payload._buffer:
            await asyncio.sleep(_UNREAD_S)
        is_network_error = isinstance(error, OSError | aiohttp.ClientError)
        if error is None or is_network_error or payload is None:
            self._protocol.connection_lost(error)
            return
        # aiohttp would tell its caller only that the connection was lost.
        payload.set_exception(error)
        self._protocol.connection_lost(error)
        payload.set_exception(error)

    def write(self, data: object) -> None:
        pass

    def writelines(self, parts: object) -> None:
        pass

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._reading.cancel()
            self._leave()

    abort = close
