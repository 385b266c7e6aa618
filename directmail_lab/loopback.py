"""A small HTTP/1.1 server on loopback, in its own thread; h11 parses and writes the messages."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final, Self

import h11

from .interaction import Headers, RecordedRequest, RecordedResponse

HOST: Final = "127.0.0.1"

# RFC 9110, 7.6.1: hop-by-hop headers are not passed on. h11 decides how a body is delimited.
HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization"}
    | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_BODILESS: Final = frozenset({204, 304})
_CHUNK_BYTES: Final = 65_536
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close sends RST

_log = logging.getLogger(__name__)


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a port of 127.0.0.1; 0 takes a free one.

    Raises
    ------
    OSError
        The port is taken.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = f"Cannot listen on port {port} of {HOST} ({os.strerror(error.errno or 0)})."
        advice = "Choose another port, or 0 for a free one."
        raise OSError(error.errno, f"{reason} {advice}") from None


class LoopbackServer:
    """A server that is running; a context manager that closes it.

    A subclass answers requests in `handle`. The server listens from the end of this ``__init__``,
    so a subclass calls that last in its own.

    Parameters
    ----------
    port
        The port on 127.0.0.1; 0 takes a free one.
    prefix
        A path that its address ends with.

    Raises
    ------
    OSError
        As `listen`.
    """

    def __init__(self, port: int, prefix: str = "") -> None:
        self._socket = listen(port)
        # asyncio sets it only on sockets that name their protocol. Without it, the body waits until
        # the client has acknowledged the head: 40 ms for each request of an open connection.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._origin = f"http://{HOST}:{self._socket.getsockname()[1]}"
        self._prefix = prefix
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=repr(self), daemon=True)
        self._thread.start()

    async def handle(self, exchange: Exchange) -> None:
        """Answer a request."""
        raise NotImplementedError

    def malformed(self, status: int) -> RecordedResponse:
        """Return the answer to data that is not an HTTP request: 400, or 431 if it is too long."""
        return error_response(status, "malformed", "This is not an HTTP request that can be read.")

    @property
    def base_url(self) -> str:
        """The address to connect to."""
        return self._origin + self._prefix

    def close(self) -> None:
        """End the connections, close the sockets and join the thread; twice does no harm."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._origin}>"  # a prefix may be a secret token

    def _run(self) -> None:
        # At its end the runner cancels the tasks that answer requests, which ends the connections.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._socket)
        await self._stopping.wait()
        # A connection that is being accepted gets its transport, which `_accept` aborts: asyncio
        # would otherwise leave it open, and its client waiting.
        self._loop.remove_reader(self._socket)
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio would make this task itself, but in Python 3.11 prints a traceback if it is
        # cancelled, as it is when the server closes.
        if self._stopping.is_set():
            writer.transport.abort()  # accepted too late: no task would answer it
            return
        task = self._loop.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        close, abort = writer.close, writer.transport.abort
        task.add_done_callback(lambda ended: abort() if ended.cancelled() else close())

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other, until either side closes the connection."""
        protocol = h11.Connection(h11.SERVER)
        exchange = Exchange(protocol, reader, writer)
        try:
            while await exchange.next():
                await self.handle(exchange)
                if not await exchange.finish():
                    break
        except h11.RemoteProtocolError as error:
            if protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                with suppress(ConnectionError):
                    await exchange.answer(self.malformed(error.error_status_hint))
        except ConnectionError:
            pass  # the client has gone
        except Exception:
            # Code that was passed as an option raised, such as a clock: the client must not hang.
            _log.exception("A request could not be answered")


class Exchange:
    """A request, whose body is read when `received` is called, and the methods to answer it.

    Attributes
    ----------
    method, target, headers
        Those of the request; the target as it was sent: ``/v1/users/me?verbose=1``.
    """

    def __init__(
        self,
        protocol: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._protocol, self._reader, self._writer = protocol, reader, writer
        self.method = self.target = ""
        self.headers: Headers = ()

    async def next(self) -> bool:
        """Read the next request of the connection; return False if there is none."""
        self.method = self.target = ""
        event = await self._event()
        if not isinstance(event, h11.Request):
            return False
        names = {name for name, _ in event.headers}
        if {b"content-length", b"transfer-encoding"} <= names:  # RFC 9112, 6.3: request smuggling
            raise h11.RemoteProtocolError("two lengths of one body")
        self.method, self.target = event.method.decode("ascii"), event.target.decode("ascii")
        self.headers = tuple(
            (name.decode("ascii"), value.decode("latin-1"))
            for name, value in event.headers.raw_items()
        )
        return True

    async def received(self) -> RecordedRequest:
        """Return the whole request."""
        body = io.BytesIO()  # unlike a join of parts, it holds a large body once
        while isinstance(event := await self._event(), h11.Data):
            body.write(event.data)
        return RecordedRequest(self.method, self.target, self.headers, body.getvalue() or None)

    async def answer(
        self,
        response: RecordedResponse,
        *,
        parts: AsyncGenerator[bytes] | None = None,
        cut_after: int | None = None,
    ) -> None:
        """Send a response with its headers as they are spelled, but no hop-by-hop ones.

        With ``parts``, the body comes from them, and its length is not known. After ``cut_after``
        bytes of the body the connection is closed.
        """
        head = self._head(response, is_streamed=parts is not None)
        if head is None:
            message = "The response is not valid HTTP, and so it cannot be sent."
            response, parts = error_response(502, "invalid", message), None
            head = self._head(response, is_streamed=False)
            assert head is not None
        has_no_body = response.status in _BODILESS or self.method == "HEAD"
        body = b"" if has_no_body else response.body[:cut_after]
        unsent: list[h11.Event] = [head]  # sent with the body, but for one that is yet to come
        if parts is not None:
            await self._send(unsent.pop())
        async with aclosing(parts or _in_parts(body)) as source:
            async for part in source:
                await self._send(*unsent, h11.Data(data=part))
                unsent.clear()
        if cut_after is not None and len(body) < len(response.body):
            await self._send(*unsent)
            self.drop()
        else:
            await self._send(*unsent, h11.EndOfMessage())

    def _head(self, response: RecordedResponse, *, is_streamed: bool) -> h11.Response | None:
        """Return the head of a response, or None if HTTP cannot carry it."""
        changes: dict[str, str | None] = dict.fromkeys(HOP_BY_HOP)
        # The response to HEAD says how long the body of the response to GET would be.
        is_get = self.method != "HEAD" or bool(response.body)
        lengths = [value for name, value in response.headers if name.lower() == "content-length"]
        length, has_body = str(len(response.body)), response.status not in _BODILESS
        if is_get and not is_streamed and has_body and lengths != [length]:
            changes["Content-Length"] = length
        if self._protocol.their_state is h11.ERROR:
            changes["Connection"] = "close"
        headers = with_headers(response, changes).headers
        try:
            return h11.Response(
                status_code=response.status,
                reason="".join(filter(str.isprintable, response.reason)).encode("ascii", "replace"),
                headers=[(n.encode(), v.encode("latin-1").strip(b" \t")) for n, v in headers],
            )
        except (h11.LocalProtocolError, UnicodeError):
            return None

    def drop(self, *, reset: bool = False) -> None:
        """Close the connection, with a TCP reset where asked for."""
        if reset:
            connection = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._writer.transport.abort()
        self._writer.close()
        self._protocol.send_failed()

    async def finish(self) -> bool:
        """Read what is left of the request; return whether another one may follow."""
        while self._protocol.their_state is h11.SEND_BODY:
            await self._event()
        follows = self._protocol.our_state is h11.DONE
        if follows:
            self._protocol.start_next_cycle()
        return follows

    async def _event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join([self._protocol.send(event) or b"" for event in events]))
        await self._writer.drain()


async def _in_parts(body: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]


def error_response(status: int, reason: str, message: str) -> RecordedResponse:
    """Return a response of JSON: ``{"error": {"status", "reason", "message"}}``."""
    error = {"status": status, "reason": reason, "message": message}
    body = json.dumps({"error": error}, ensure_ascii=False).encode()
    headers = (("Content-Type", "application/json; charset=utf-8"),)
    return RecordedResponse(status, HTTPStatus(status).phrase, headers, body)


def with_headers(
    response: RecordedResponse, changes: Mapping[str, str | Sequence[str] | None]
) -> RecordedResponse:
    """Return a response with headers replaced, added, removed (None) or repeated (a list)."""
    names = {name.lower() for name in changes}
    headers = [pair for pair in response.headers if pair[0].lower() not in names]
    for name, value in changes.items():
        values = [value] if isinstance(value, str) else value or ()
        headers += [(name, text) for text in values]
    return replace(response, headers=tuple(headers))
