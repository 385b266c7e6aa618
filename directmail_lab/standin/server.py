"""The stand-in as it is started: in a thread (`stand_in`) or alone (`serve_forever`).

Tornado carries what `service` answers, and breaks it where a fault says so.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any, Final, Self

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError

from ..contract import HEADERS
from ..interaction import RecordedRequest, RecordedResponse
from .options import Fault, StandInOptions
from .service import StandInService

_HOST: Final = "127.0.0.1"
_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close sends RST
_BODILESS: Final = frozenset({204, 304})


def stand_in(**behaviour: Any) -> StandIn:
    """Start a stand-in service on 127.0.0.1, in a thread of its own.

    Parameters
    ----------
    **behaviour
        The fields of `StandInOptions`, each with its default.

    Returns
    -------
    StandIn
        Started; a context manager that closes it.
    """
    return StandIn(StandInOptions(**behaviour))


# So that Jupyter's completion and `stand_in?` show the options by name.
stand_in.__signature__ = signature(StandInOptions)  # type: ignore[attr-defined]


class StandIn:
    """A stand-in service that is running."""

    def __init__(self, options: StandInOptions) -> None:
        self._service = StandInService(options)
        self._socket = _listening(options.port)
        self._address = f"http://{_HOST}:{self._socket.getsockname()[1]}{options.prefix}"
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"stand-in {self._address}", daemon=True
        )
        self._thread.start()

    @property
    def base_url(self) -> str:
        """The address to connect to."""
        return self._address

    @property
    def api_key(self) -> str:
        """The one key that it accepts."""
        return self.options.api_key

    @property
    def options(self) -> StandInOptions:
        """The options it was started with."""
        return self._service.options

    @property
    def requests(self) -> Counter[str]:
        """How often each ``"METHOD /path"`` was received, whatever came of it."""
        return self._service.requests

    def assumptions(self) -> list[str]:
        """Return one line for each part that service.md leaves open, and what is assumed of it."""
        return self.options.assumptions()

    def fault(self, **what: Any) -> AbstractContextManager[Fault]:
        """Misbehave from now on, as the fields of `Fault` say; in a ``with``, until it ends.

        The fault added last goes first. `heal` ends all.
        """
        fault = Fault(**what)
        self._service.add_fault(fault)
        return self._service.until_exit(fault)

    def heal(self) -> None:
        """End every fault."""
        self._service.clear_faults()

    def close(self) -> None:
        """Stop: end the connections, close the sockets and join the thread. Twice is once."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StandIn {self._address}>"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(_serve(self._service, self._socket, self._stopping))


def _listening(port: int) -> socket.socket:
    try:
        listening = socket.create_server((_HOST, port))
    except OSError as error:
        raise OSError(
            error.errno,
            f"The stand-in cannot listen on port {port} of {_HOST} ({error.strerror}). "
            "Choose another port, or 0 for a free one.",
        ) from None
    listening.setblocking(False)
    return listening


def serve_forever(options: StandInOptions, *, on_start: Callable[[StandIn], object]) -> None:
    """Run a stand-in until Ctrl-C or SIGTERM; call it in the main thread.

    Parameters
    ----------
    options
        How it behaves.
    on_start
        Called once it listens.
    """
    ended = threading.Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with StandIn(options) as server:
        try:
            for each in before:
                signal.signal(each, lambda *_: ended.set())
            on_start(server)
            ended.wait()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


# -- HTTP --------------------------------------------------------------------------------------


async def _serve(
    service: StandInService, listening: socket.socket, stopping: asyncio.Event
) -> None:
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
