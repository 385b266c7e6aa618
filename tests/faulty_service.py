"""The stand-in service with faults: what a careless service, a proxy or the network may do."""

import base64
import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal

from directmail_lab.exchange.operations import path_below
from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.server.loopback import Handler, error_response
from directmail_lab.server.standin import StandIn

GATEWAY_PAGE = (
    "<!doctype html><html><head><title>{status} {reason}</title></head>"
    "<body><h1>{status} {reason}</h1><hr>stand-in gateway</body></html>"
)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing the socket sends RST


@dataclass(slots=True, kw_only=True)
class Fault:
    """One way to misbehave, and the requests that it applies to."""

    path: str = ""
    """Applies only to requests whose path below the service address starts with this."""
    times: int | None = None
    """Applies to this many requests; None means to all, until the fault ends."""
    latency_s: float = 0.0
    """Wait before sending anything."""
    until: threading.Event | None = None
    """Wait for this event before sending anything."""
    drop: Literal["reset", "close"] | None = None
    """Send no response: reset the connection (TCP RST) or close it."""
    cut_after: int | None = None
    """Close after this many bytes of the body; Content-Length has the full size."""
    stall: bool = False
    """After the bytes are sent, keep the connection open until the service closes."""
    status: int | None = None
    """The status of the response; the body is an error that fits it."""
    html: bool = False
    """Send a gateway's HTML page, with status 502 unless there is another one."""
    body: bytes | str | None = None
    headers: Mapping[str, str | Sequence[str] | None] = field(default_factory=dict)
    """Headers to add or replace; None removes a header, a list sends one for each item."""
    encoding: Literal["gzip"] | None = None
    redirect_to: str | None = None
    """Redirect to this address, with status 302 unless there is another one."""
    echo_key: bool = False
    """Repeat the request's key in the body and in a header."""


class FaultyHandler(Handler):
    """Breaks the connection if a fault asks for it."""

    def reply(self, request: Request) -> None:
        service = self.server.owner
        fault = service.next_fault(path_below(request.uri, service.prefix))
        response = service.response_to(request)
        if fault is None:
            self.send(response)
            return
        service.closing.wait(fault.latency_s)
        if fault.until is not None:
            fault.until.wait()
        message = self.message(with_fault(response, fault, request))
        body = message.partition(b"\r\n\r\n")[2]
        if fault.cut_after is not None:
            message = message[: len(message) - len(body[fault.cut_after :])]
        if fault.drop is None:
            self.wfile.write(message)
        if fault.stall:
            service.closing.wait()
        if fault.drop == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.rfile.close()
            self.connection.close()
        self.close_connection |= fault.drop is not None or fault.cut_after is not None


@dataclass(kw_only=True, eq=False, repr=False)
class FaultyService(StandIn):
    """A stand-in service that can misbehave, below a path prefix and on any clock."""

    handler = FaultyHandler

    prefix: str = ""
    faults: Sequence[Fault] = ()
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.faults = list(self.faults)
        self.closing = threading.Event()
        super().__post_init__()
        self.base_url += self.prefix

    def fault(self, **what: Any) -> AbstractContextManager[object]:
        """Misbehave as the fields of `Fault` say, from now on or until the ``with`` block ends.

        If several faults apply to a request, the newest is used.
        """
        added = Fault(**what)
        self.faults = [added, *self.faults]
        until_exit = ExitStack()
        until_exit.callback(self._end, added)
        return until_exit

    def close(self) -> None:
        self.closing.set()
        super().close()

    def _end(self, ended: Fault) -> None:
        self.faults = [fault for fault in self.faults if fault is not ended]

    def next_fault(self, path: str) -> Fault | None:
        """Return the fault that applies to a request, and count its use."""
        with self._lock:
            for fault in self.faults:
                if path.startswith(fault.path) and fault.times != 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def response_to(self, request: Request) -> Response:
        path = request.uri.removeprefix(self.prefix)
        if path == request.uri and self.prefix:
            path = f"/outside{path}"  # no route matches it, so the response is a 404
        return super().response_to(replace(request, uri=path))

    def _now(self) -> float:
        return self.clock()


def with_fault(response: Response, fault: Fault, request: Request) -> Response:
    """Return the response with the fault's status, body, headers and encoding."""
    default = 502 if fault.html else 302 if fault.redirect_to is not None else response.status
    status, body = fault.status or default, response.body
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    headers: dict[str, str | Sequence[str] | None] = {}
    if fault.body is not None:
        body = fault.body.encode() if isinstance(fault.body, str) else fault.body
    elif fault.html:
        body = GATEWAY_PAGE.format(status=status, reason=reason).encode()
        headers["Content-Type"] = "text/html; charset=utf-8"
    elif status != response.status:
        text = "This status was set as a fault."
        body = error_response(status, text, service="stand-in").body
        headers["Content-Type"] = "application/json; charset=utf-8"
    if fault.redirect_to is not None:
        headers["Location"] = fault.redirect_to
    if fault.echo_key:
        authorization = header(request.headers, "Authorization") or ""
        sent = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        headers["X-Echo"] = key = sent.removesuffix(":")
        body = json.dumps({"you_sent": {"key": key, "authorization": authorization}}).encode()
    if fault.encoding is not None:
        headers["Content-Encoding"] = fault.encoding
        body = gzip.compress(body, mtime=0)
    changes = {**headers, **fault.headers}
    names = {name.lower() for name in changes}
    kept = [pair for pair in response.headers if pair[0].lower() not in names]
    for name, value in changes.items():
        kept += [(name, text) for text in ([value] if isinstance(value, str) else value or ())]
    return Response(status, reason, tuple(kept), body)
