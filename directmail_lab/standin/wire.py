"""HTTP for the stand-in: tornado carries what `service` answers, and breaks it where told to."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, ResponseStartLine
from tornado.iostream import StreamClosedError

from directmail_lab.contract import HEADERS
from directmail_lab.interaction import RecordedRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tornado.httputil import HTTPServerRequest
    from tornado.iostream import IOStream

    from directmail_lab.interaction import RecordedResponse

    from .service import StandInService

__all__ = ["serve"]

_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close sends RST
_BODILESS: Final = frozenset({204, 304})


async def serve(service: StandInService, listening: socket.socket, stopping: asyncio.Event) -> None:
    """Answer what comes to the socket until told to stop; then close it and what is open."""
    answering: set[asyncio.Task[None]] = set()

    def on_request(request: HTTPServerRequest) -> None:
        task = asyncio.create_task(_answer(service, request))
        answering.add(task)
        task.add_done_callback(answering.discard)

    server = _Server(on_request)
    server.service = service
    server.add_socket(listening)
    await stopping.wait()
    server.stop()
    for task in tuple(answering):
        task.cancel()
    await server.close_all_connections()


async def _answer(service: StandInService, request: HTTPServerRequest) -> None:
    stream: IOStream = request.connection.stream  # type: ignore[union-attr]
    try:
        response, fault = service.answer(_received(request))
        await asyncio.sleep(fault.latency_s if fault else 0)
        if fault is not None and fault.drop is not None:
            _drop(stream, reset=fault.drop == "reset")
        else:
            await _send(request, response, fault.cut_after if fault else None)
    except StreamClosedError:
        pass  # the client has gone
    except Exception:
        # An option's own code raised, such as a clock: asyncio logs it, and no client may hang.
        stream.close()
        raise


def _received(request: HTTPServerRequest) -> RecordedRequest:
    return RecordedRequest(
        method=request.method or "",
        uri=request.uri or "/",
        headers=tuple(request.headers.get_all()),
        body=request.body or None,
    )


async def _send(
    request: HTTPServerRequest, response: RecordedResponse, cut_after: int | None
) -> None:
    connection = request.connection
    assert connection is not None
    headers = _ExactHeaders()
    for name, value in response.headers:
        headers.add(name, value)
    body = b"" if response.status in _BODILESS else response.body
    if response.status not in _BODILESS:
        headers.add("Content-Length", str(len(body)))
    start_line = ResponseStartLine("HTTP/1.1", response.status, response.reason)
    sent = b"" if request.method == "HEAD" else body[:cut_after]
    await connection.write_headers(start_line, headers, sent)
    if len(sent) < len(body) and request.method != "HEAD":
        connection.stream.close()  # type: ignore[attr-defined]
    else:
        connection.finish()


def _drop(stream: IOStream, *, reset: bool) -> None:
    if reset:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    stream.close()


class _ExactHeaders(HTTPHeaders):
    """Headers that are sent as service.md spells them (tornado would write X-Ratelimit-Limit)."""

    _SPELLED: Final = {name.title(): name for name in HEADERS}

    def get_all(self) -> Iterator[tuple[str, str]]:
        for name, value in super().get_all():
            yield self._SPELLED.get(name, name), value


class _Server(HTTPServer):
    """A server whose answer to what is no HTTP carries the three headers too.

    Tornado writes that answer past any application, as fixed bytes to the stream.
    """

    service: StandInService

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        write = stream.write

        def write_with_headers(data: bytes | memoryview) -> Any:
            return write(self._bad_request() if data == _BAD_REQUEST else data)

        stream.write = write_with_headers  # type: ignore[method-assign]
        super().handle_stream(stream, address)

    def _bad_request(self) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.service.malformed_headers())
        return f"HTTP/1.1 400 Bad Request\r\n{lines}Content-Length: 0\r\n\r\n".encode("latin-1")
