"""A service for tests of clients: it sends streams, cookies, redirects and broken responses."""

import gzip
import hashlib
import threading
from collections import Counter
from typing import Any

from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.server.loopback import Handler, LoopbackServer, error_response, json_response

KEY = "hk_live_Zx81kQ0pLm27Vt"
_EVENT = b"data: %d\n\n"


class _Handler(Handler):
    server: Any

    def reply(self, request: Request) -> None:
        service = self.server.owner
        service.received.append(request)
        path = request.uri.partition("?")[0]
        if path == "/v1/events":
            self._stream(range(3), service.goes_on)
        elif path == "/v1/endless":
            self._stream(iter(int, 1), service.closing)
        elif path == "/v1/slow":
            self._stream(range(5), service.closing, 0.3)
        elif path.startswith("/v1/sized-"):
            self._send_bytes(int(path.rpartition("-")[2]))
        elif path == "/v1/silent":
            service.closing.wait()
            self.close_connection = True
        elif path == "/v1/garbage":
            self.wfile.write(b"This is not HTTP.\r\n\r\n")
            self.close_connection = True
        elif path == "/v1/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            self.close_connection = True
        else:
            self.send(service.response_to(request))

    def _send_bytes(self, size: int) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        part = b"0123456789" * 100_000
        while size > 0:
            self.wfile.write(part[:size])
            size -= len(part)

    def _stream(self, numbers: Any, pause: threading.Event, pause_s: float = 0.01) -> None:
        """Send the events in chunks: the first at once, each later one after a pause."""
        head = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        self.wfile.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head)
        for number in numbers:
            event = _EVENT % number
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            pause.wait(pause_s if pause is self.server.owner.closing else None)
        self.wfile.write(b"0\r\n\r\n")


class ClientService(LoopbackServer):
    """Keeps the requests it got in ``received``. Streams continue once ``goes_on`` is set."""

    handler = _Handler

    def __init__(self) -> None:
        self.received: list[Request] = []
        self.goes_on, self.closing = threading.Event(), threading.Event()
        self.goes_on.set()
        super().__init__()

    @property
    def counts(self) -> Counter[str]:
        return Counter(f"{request.method} {request.uri}" for request in self.received)

    def authorization(self) -> str | None:
        """Return the Authorization header of the last request."""
        return header(self.received[-1].headers, "Authorization")

    def response_to(self, request: Request) -> Response:
        body = request.body or b""
        match request.uri.partition("?")[0].removeprefix("/v1/"):
            case "users/me":
                cookies = (("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Path=/"))
                return json_response(200, {"name": "Ada", "of": request.uri}, cookies)
            case "rows" if request.method == "PUT":
                return Response(200, "OK", (("ETag", f'"{len(body)}"'),))
            case "rows":
                digest = hashlib.sha256(body).hexdigest()
                return json_response(201, {"bytes": len(body), "sha256": digest})
            case "parts":
                return json_response(201, {"has_file": b'filename="rows.csv"' in body})
            case "moved":
                return Response(302, "Found", (("Location", "/v1/users/me?moved"),))
            case "elsewhere":
                return Response(307, "Temporary Redirect", (("Location", "/v1/rows"),))
            case "packed" | "x-packed" as name:
                coding = name.replace("packed", "gzip") if name.startswith("x") else "gzip"
                headers = (("Content-Type", "text/csv"), ("Content-Encoding", coding))
                return Response(200, "OK", headers, gzip.compress(b"a,b\n" * 999, mtime=0))
            case "badly-packed":
                return Response(200, "OK", (("Content-Encoding", "gzip"),), b"not gzip")
            case "busy":
                return error_response(503, "Not now.", (("Retry-After", "0"),))
            case _:
                return error_response(404, "There is nothing at this path.")

    def close(self) -> None:
        self.closing.set()
        self.goes_on.set()
        super().close()
