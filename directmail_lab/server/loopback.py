"""A small HTTP/1.1 server on loopback, and one that passes requests to sessions.

So curl, a browser and other HTTP libraries than httpx get recorded responses.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from email.errors import FirstHeaderLineIsContinuationDefect, MissingHeaderBodySeparatorDefect
from http import HTTPStatus
from http.client import responses
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from string import hexdigits
from typing import TYPE_CHECKING, Any, Self

from ..arguments import Repeat
from ..cassettes import read_cassette
from ..errors import CassetteError, DirectMailLabError, NotRecordedError
from ..exchange.bodies import MAX_UNPACKED_BYTES
from ..exchange.httpx_values import httpx, response_value
from ..exchange.operations import base_path
from ..exchange.values import (
    TOKEN,
    Headers,
    Request,
    Response,
    header,
    normalize_headers,
    without_headers,
)
from ..sessions.current import replaying_session
from ..settings import is_loopback
from .rewriting import origins_of, to_client, to_service

if TYPE_CHECKING:
    from ..sessions.session import Session


HOST = "127.0.0.1"

# These concern one connection only (RFC 9110, 7.6.1). The length is computed when a body is sent.
_NOT_PASSED_ON = frozenset(
    ("connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_NO_HEADER = (FirstHeaderLineIsContinuationDefect, MissingHeaderBodySeparatorDefect)
_LONGEST_LINE = 1024
_POLL_S = 0.02
"""Seconds between checks whether the server should close: closing it takes half of this."""


class Handler(BaseHTTPRequestHandler):
    """Reads one connection's requests, and sends the responses to them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # the standard library calls do_GET for a GET, and so on
            return self.respond
        raise AttributeError(name)

    def respond(self) -> None:
        """Read the body of a request, and send the response."""
        try:
            self._check_headers()
            body = self._body()
        except ValueError:  # it is not clear where the request ends, or it is too large
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        # `self.path` is the address as it was sent: /v1/users/me?verbose=1.
        self.reply(Request(self.command, self.path, tuple(self.headers.items()), body))

    def reply(self, request: Request) -> None:
        """Send the response to a complete request."""
        self.send(self.server.owner.response_to(request))

    def _check_headers(self) -> None:
        """Raise ValueError if another program could read these headers in another way."""
        # The parser stops at a line such as "Transfer-Encoding : chunked". (It also looks for the
        # parts of a multipart body, which is not there yet.)
        is_cut = any(isinstance(each, _NO_HEADER) for each in self.headers.defects)
        if is_cut or len(self.headers.get_all("Host", ())) > 1:
            raise ValueError("a header is malformed, or Host is given twice")

    def _body(self) -> bytes:
        codings = [each.lower() for each in self.headers.get_all("Transfer-Encoding", ())]
        lengths = self.headers.get_all("Content-Length", ())
        if codings == ["chunked"] and not lengths:
            return self._chunked_body()
        if codings or len(set(lengths)) > 1:  # ambiguous: a proxy may believe the other one
            raise ValueError("the length is given twice, or the coding is unknown")
        return self._read(_number(lengths[0])) if lengths else b""

    def _chunked_body(self) -> bytes:
        body = bytearray()
        while True:
            size = _number(self._line().partition(";")[0].rstrip(), 16)
            body += self._read(size, before=len(body))
            if self._line():
                raise ValueError("a chunk is longer than it says, or has trailers")
            if not size:
                return bytes(body)

    def _line(self) -> str:
        return self.rfile.readline(_LONGEST_LINE).decode("latin-1").rstrip("\r\n")

    def _read(self, size: int, *, before: int = 0) -> bytes:
        if before + size > MAX_UNPACKED_BYTES:
            raise ValueError("larger than 64 MB")
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("The client has disconnected.")
        return data

    def send(self, response: Response) -> None:
        self.wfile.write(self.message(response))

    def message(self, response: Response) -> bytes:
        """Return the bytes of a response, without hop-by-hop headers. Names keep their spelling."""
        if not _is_http(response):
            response = error_response(502, "The response is not valid HTTP.", reason="invalid")
        has_body = self.command != "HEAD" and response.status not in (204, 304)
        headers = list(without_headers(response.headers, _NOT_PASSED_ON))
        # A response to HEAD, or with status 304, may state the length of the body of a GET.
        length: str | None = str(len(response.body))
        if not has_body and not response.body:
            length = header(response.headers, "Content-Length")
        if length and response.status != 204:
            headers.append(("Content-Length", length))
        if self.close_connection:
            headers.append(("Connection", "close"))
        reason = "".join(filter(str.isprintable, response.reason)).encode("ascii", "replace")
        lines = [f"{name}: {value.strip()}\r\n".encode() for name, value in headers]
        head = b"HTTP/1.1 %d %s\r\n%s\r\n" % (response.status, reason, b"".join(lines))
        return head + response.body if has_body else head

    def send_error(self, code: int, *_: object) -> None:
        """Send an error for data that is not HTTP. The standard library calls this, too."""
        self.close_connection = True
        self.send(
            error_response(
                code, "This is not an HTTP request, or it is too large.", reason="malformed"
            )
        )

    def log_message(self, *_: object) -> None:
        """Print nothing. The standard library would print each request."""


class LoopbackServer:
    """A running server, and a context manager that closes it.

    A subclass implements `response_to`, which runs in a thread for each
    connection. The server starts in ``__init__``, so a subclass calls
    ``super().__init__()`` last.

    Parameters
    ----------
    port
        The port on 127.0.0.1; 0 takes a free one.
    path
        The path of ``base_url``, which is below ``origin``.

    Attributes
    ----------
    handler
        The class that reads requests and sends their responses.

    Raises
    ------
    OSError
        The port is taken.
    """

    handler: type[Handler] = Handler

    def __init__(self, port: int = 0, path: str = "") -> None:
        try:
            self._server = _Server((HOST, port), self.handler)
        except OSError as error:
            reason = f"Cannot listen on port {port} ({error.strerror})."
            advice = "Choose another port, or 0 for a free one."
            raise OSError(error.errno, f"{reason} {advice}") from None
        self._server.owner = self
        self.origin = f"http://{HOST}:{self._server.server_address[1]}"
        self.base_url = f"{self.origin}{path}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(_POLL_S,), daemon=True)
        self._thread.start()

    def response_to(self, request: Request) -> Response:
        """Return the response to a request."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections and end their threads."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for thread, connection in self._server.connections.items():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingTCPServer):
    # Not ThreadingHTTPServer, which looks up the name of this machine: that may take seconds. This
    # class has its own list of threads, since the standard library does not join daemon threads.
    allow_reuse_address = os.name == "posix"
    request_queue_size = 128
    owner: LoopbackServer

    def __init__(self, *arguments: Any) -> None:
        self.connections: dict[threading.Thread, socket.socket] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        for ended in [each for each in self.connections if not each.is_alive()]:
            del self.connections[ended]
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self.connections[thread] = request
        thread.start()

    def handle_error(self, *about: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may disconnect at any time
            super().handle_error(*about)


def _number(text: str, base: int = 10) -> int:
    """Return a length as a number. Unlike `int`, refuse a sign, a space, ``_`` and ``0x``."""
    if text.strip(hexdigits):
        raise ValueError("a length is not a number")
    return int(text, base)


def _is_http(response: Response) -> bool:
    """Return whether HTTP can carry a response. A stranger's cassette may contain anything."""
    for name, value in response.headers:
        if not TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            return False
    return 200 <= response.status <= 999


def json_response(status: int, value: object, headers: Headers = ()) -> Response:
    """Return a response with a JSON body."""
    reason = responses.get(status, "Unknown")
    body = json.dumps(value, ensure_ascii=False).encode()
    content_type = ("Content-Type", "application/json; charset=utf-8")
    return Response(status, reason, (content_type, *headers), body)


def error_response(status: int, message: str, headers: Headers = (), **more: str) -> Response:
    """Return a response with the JSON body ``{"error": {"status", "message", …}}``."""
    error = {"status": int(status), "message": message, **more}
    return json_response(status, {"error": error}, headers)


class ClientServer(LoopbackServer):
    """Passes each request to a session, which sends it to the same path of its own server.

    The first session that has a response decides. The body of an error is JSON:
    ``{"error": {"status", "message", "reason"}}``.

    Parameters
    ----------
    sessions
        The sessions that replay or record the responses. ``base_url`` has the path of the first
        one's service address.
    port
        The port on 127.0.0.1; 0 takes a free one.
    on_refusal
        Called with the message of each error that a client gets instead of a response.
    """

    def __init__(
        self,
        *sessions: Session,
        port: int = 0,
        on_refusal: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.sessions = sessions
        self._origins = origins_of(each.base_url for each in sessions)
        self._on_refusal = on_refusal
        super().__init__(port, base_path(sessions[0].base_url))

    def response_to(self, request: Request) -> Response:
        """Return the response of a session, or an error that says why there is none."""
        problem = _problem(request)
        if problem:
            return error_response(403, problem, reason="refused")
        try:
            response = to_client(self._received(request), self._origins, self.origin)
        except httpx.RequestError:
            raise ConnectionAbortedError from None  # the client's connection breaks, too
        except (DirectMailLabError, httpx.InvalidURL, ValueError) as error:
            self._on_refusal(str(error))
            reason = getattr(error, "reason", "refused")
            response = error_response(502, str(error), reason=reason)
        if header(request.headers, "sec-fetch-mode") == "navigate":
            # A recorded web page is shown, but its scripts must not run with JupyterLab's cookies.
            # It keeps its origin, so that it can load its own images and styles from here.
            sandbox = ("Content-Security-Policy", "sandbox allow-same-origin")
            response = replace(response, headers=(*response.headers, sandbox))
        return response

    def _received(self, request: Request) -> Response:
        own = {"host", "accept-encoding", *_NOT_PASSED_ON}
        headers = without_headers(request.headers, own)
        refusals = []
        for session in self.sessions:
            origin = "/".join(session.base_url.split("/", 3)[:3])
            sent = to_service(request, self.origin, origin)
            try:
                response = session.client.request(
                    sent.method, sent.uri, headers=headers, content=sent.body
                )
            except NotRecordedError as error:
                refusals.append(error)
                continue
            return normalize_headers(response_value(response), method=request.method)
        raise refusals[0]


def cassette_server(
    paths: Sequence[Path], *, port: int = 0, repeat: Repeat = "last"
) -> ClientServer:
    """Return a server that replays cassettes to any client, and forwards nothing."""
    sessions = []
    for path in paths:
        recording = read_cassette(path)
        if not len(recording):
            raise CassetteError(f"Cassette {recording.name} has no interactions. Record some.")
        opened = replaying_session(recording)
        opened.replay(recording, repeat=repeat)
        sessions.append(opened)
    return ClientServer(*sessions, port=port)


def _problem(request: Request) -> str:
    """Return why a request is refused, or an empty string.

    A web page in the user's browser can send requests here: with a host name of its own that
    resolves to this machine (the header Host shows that), or across sites (Origin or
    Sec-Fetch-Site shows that).
    """
    address = (header(request.headers, "host") or "localhost").lower()
    if not is_loopback(re.sub(r":\d*$", "", address).strip("[]")):
        return "Only requests to 127.0.0.1 or localhost are answered."
    site = header(request.headers, "sec-fetch-site") or "none"
    origin = header(request.headers, "origin") or f"http://{address}"
    if origin.lower() != f"http://{address}" or site not in ("none", "same-origin"):
        return "Requests from other servers' web pages are refused."
    if not request.uri.startswith("/"):
        return "Only paths are answered: this server is not a proxy."
    return ""
