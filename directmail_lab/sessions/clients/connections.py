"""Connections of `http.client` over a session: for requests, urllib3, boto3, urllib and httplib2.

A connection keeps the bytes of its request until it is asked for the response. Then the session
plays one, or has the connection send the request. The response goes back as bytes through
`http.client`'s own parser, so each library decodes it and raises its errors by itself.
"""

from __future__ import annotations

import builtins
import io
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import client as http_client
from typing import Any
from urllib.parse import urlsplit

from ...exchange.httpx_values import httpx
from ..transports.body import Body
from ..transports.extensions import EXTENSION, Call
from . import ClientsTransport, Exchange, errors_as, parts_of, url_of

_PART_BYTES = 65_536
_IS_SENDING = "_directmail_lab_is_sending"
"""The attribute of a connection that is sending a request itself."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_ERRNO = re.compile(r"\[Errno (-?\d+)\] (.*)")
# The errors of httpx for a timeout, and for a connection that breaks, at each step of a request.
_CONNECTING = (httpx.ConnectTimeout, httpx.ConnectError)
_WRITING = (httpx.WriteTimeout, httpx.WriteError)
_READING = (httpx.ReadTimeout, httpx.ReadError)
# A replayed failure of a kind whose error has another name, from another client or system.
_USUAL = (
    (httpx.TimeoutException, TimeoutError),
    (httpx.RemoteProtocolError, http_client.RemoteDisconnected),
    (httpx.ConnectError, ConnectionRefusedError),
    (httpx.RequestError, ConnectionResetError),
)


class _Kept:
    """A socket that keeps a request instead of sending it, until the session has a response.

    It has the methods of a socket that the clients call. If the request ``passes``, its connection
    is open, and these are the methods of its own socket.

    Attributes
    ----------
    own
        The connection's own socket, or None if it is not connected.
    passes
        Whether the request is sent without the session; None until it begins.
    options
        The socket's options, to be set once it is connected.
    response
        A file with the response, or None until the session is asked.
    """

    def __init__(self, timeout: Any, own: socket.socket | None = None) -> None:
        self.own = own
        self.connect_timeout = timeout
        self.passes: bool | None = None
        self.options: list[tuple[Any, ...]] = []
        self.parts: list[bytes] = []
        self.response: Any = None
        self._ready: socket.socket | None = None

    @property
    def _passed(self) -> socket.socket | None:
        return self.own if self.passes else None

    def sendall(self, data: Any, *_: object) -> None:
        if self._passed is not None:
            self._passed.sendall(data)
        else:  # for an iterable, this raises TypeError, as a socket does
            self.parts.append(bytes(memoryview(data)))

    def makefile(self, *args: Any) -> Any:
        if self._passed is not None:
            return self._passed.makefile(*args)
        return io.BytesIO(_CONTINUE) if self.response is None else self.response

    def fileno(self) -> int:
        """Return a file that is ready: botocore waits for the 100 that ``makefile`` returns."""
        if self._passed is not None:
            return self._passed.fileno()
        if self._ready is None:
            self._ready, other = socket.socketpair()
            other.close()
        return self._ready.fileno()

    def settimeout(self, timeout: Any) -> None:
        if self.own is not None:
            self.own.settimeout(timeout)

    def setsockopt(self, *option: Any) -> None:
        if self.own is None:
            self.options.append(option)
        else:
            self.own.setsockopt(*option)

    def shutdown(self, how: int) -> None:
        if self.own is not None:
            self.own.shutdown(how)

    def close(self) -> None:
        """Close the connection's own socket."""
        own = self.release()
        if own is not None:
            own.close()
        self.own = None

    def release(self) -> socket.socket | None:
        """Return the connection's own socket, for its next request."""
        if self._ready is not None:
            self._ready.close()
            self._ready = None
        return self.own


class Connections:
    """What the methods of `http.client.HTTPConnection` do for clients over a session.

    Each takes the original method first.

    Parameters
    ----------
    passes
        Returns whether requests to a host are sent without the session.
    sends
        Whether a connection itself sends what the session does not play.
    """

    def __init__(
        self,
        session: ClientsTransport,
        passes: Callable[[str], bool] = lambda _: False,
        *,
        sends: bool = True,
    ) -> None:
        self._session = session
        self._passes = passes
        self._sends = sends

    def connect(self, original: Callable[[Any], None], connection: Any) -> None:
        """Connect later, if the session does not play a response."""
        if _is_sending(connection) or self._passes(_host_and_port(connection)[0]):
            original(connection)
            return
        connection.sock = _Kept(connection.timeout)
        if hasattr(connection, "is_verified"):  # urllib3 warns if no certificate was checked
            is_unchecked = getattr(connection, "cert_reqs", None) in ("CERT_NONE", ssl.CERT_NONE)
            connection.is_verified = not is_unchecked

    def send(self, original: Callable[[Any, Any], None], connection: Any, data: Any) -> None:
        """Keep a part of a request."""
        if not _is_sending(connection):
            if connection.sock is None and connection.auto_open:
                connection.connect()
            if not isinstance(connection.sock, _Kept | None):  # connected before
                connection.sock = _Kept(connection.timeout, connection.sock)
            kept = connection.sock
            if kept is not None and kept.passes is None:
                kept.passes = self._passes(urlsplit(_url(connection, data)).hostname or "")
                if kept.passes:
                    with _own_socket(connection, kept):
                        _connect(connection, kept)
        original(connection, data)

    def request(
        self, original: Callable[..., None], connection: Any, *args: Any, **kw: Any
    ) -> None:
        """Make a request. If it cannot connect, this raises the error, as without a session.

        If its body is to come by ``send``, `getresponse` passes it to the session.
        """
        original(connection, *args, **kw)
        kept = connection.sock
        if isinstance(kept, _Kept) and not kept.passes and _is_whole(b"".join(kept.parts)):
            self._pass_to_session(connection, kept)

    def getresponse(self, original: Callable[..., Any], connection: Any) -> Any:
        """Return the session's response, which the client's own library parses."""
        kept = connection.sock
        if not isinstance(kept, _Kept):
            return original(connection)
        try:
            if kept.passes:
                connection.sock = kept.own
            elif kept.response is None:
                self._pass_to_session(connection, kept)
            return original(connection)
        finally:
            if connection.sock is kept:
                connection.sock = kept.release()

    def _pass_to_session(self, connection: Any, kept: _Kept) -> None:
        """Pass the request to the session, and keep its response for the connection."""
        exchange = _Exchange(connection, kept)
        kept.response = io.BytesIO()  # if this fails, the request is not passed again
        try:
            response = self._session.handle_request(exchange.request(can_send=self._sends))
        except httpx.RequestError as error:
            kept.close()
            kept.response = exchange.file(_raising(error))
            if not isinstance(error, _CONNECTING):
                return
            failure = exchange.failure(error)
        else:
            kept.response = exchange.file(parts_of(response, exchange.method), response.close)
            return
        raise failure


class _Exchange(Exchange):
    """One request of a connection, and what became of it."""

    def __init__(self, connection: Any, kept: _Kept) -> None:
        self._connection = connection
        self._kept = kept
        self._data = b"".join(kept.parts)
        kept.parts.clear()
        self._url = _url(connection, self._data)
        self.method = self._data.partition(b" ")[0].decode("latin-1")

    def request(self, *, can_send: bool) -> httpx.Request:
        """Return the request for the session."""
        head, _, body = self._data.partition(b"\r\n\r\n")
        headers = []
        for line in head.replace(b"\r\n\t", b" ").split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            headers.append((name, value.strip()))
        if any(name.lower() == b"transfer-encoding" for name, _ in headers):
            body = _joined_chunks(body)
        connect = _seconds(self._kept.connect_timeout)
        read = _seconds(self._connection.timeout)
        limits = {"connect": connect, "pool": connect, "read": read, "write": read}
        call = Call(wants_key=True, send=self._send if can_send else None)
        request = httpx.Request(
            self.method,
            url_of(self._url),
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions={"timeout": limits, EXTENSION: call},
        )
        request.read()
        return request

    def _send(self, signed: httpx.Request) -> httpx.Response:
        """Send the request as the client wrote it, and with the key if the session added it."""
        connection = self._connection
        data = self._data
        if "authorization" in signed.headers and b"\r\nauthorization:" not in data.lower():
            first, _, rest = data.partition(b"\r\n")
            own = signed.headers["authorization"].encode("latin-1")
            data = b"%b\r\nAuthorization: %b\r\n%b" % (first, own, rest)
        translate = partial(self._translated, _READING)
        with _own_socket(connection, self._kept):
            with errors_as(partial(self._translated, _CONNECTING)):
                _connect(connection, self._kept)
            with errors_as(partial(self._translated, _WRITING)):
                connection.sock.settimeout(_seconds(connection.timeout))
                connection.sock.sendall(data)
            raw = http_client.HTTPResponse(connection.sock, method=self.method)
            with errors_as(translate):
                raw.begin()
            if raw.will_close:
                connection.sock.close()
                connection.sock = None
        return httpx.Response(
            raw.status,
            headers=httpx.Headers(raw.headers.items(), encoding="latin-1"),
            stream=Body(_parts(raw), translate, close=raw.close),
            extensions={"reason_phrase": raw.reason.encode("latin-1")},
        )

    def _translated(
        self,
        kinds: tuple[type[httpx.RequestError], type[httpx.RequestError]],
        error: BaseException,
    ) -> BaseException:
        """Return the error of httpx for one of the client's library, which is kept."""
        slow, broken = kinds
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            kind = slow
        elif isinstance(error, OSError) or type(error).__module__.startswith("urllib3."):
            kind = broken
        elif isinstance(error, http_client.HTTPException):
            kind = httpx.RemoteProtocolError
        else:
            return error
        return self._keep(error, kind, error)

    def _replayed(self, error: httpx.RequestError, name: str, text: str) -> BaseException:
        return _of_urllib3(self._connection, error, text) or _of_python(error, name, text)

    def file(
        self, parts: Iterator[bytes], close: Callable[[], object] = lambda: None
    ) -> io.BufferedIOBase:
        """Return a response as a file. Its parts are read when the client reads the file."""
        return io.BufferedReader(_File(self._guarded(parts), close), _PART_BYTES)

    def _guarded(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        with self.errors_of_body():
            yield from parts


class _File(io.RawIOBase):
    """The bytes of a response as a file."""

    def __init__(self, parts: Iterator[bytes], close: Callable[[], object]) -> None:
        self._parts = parts
        self._close = close
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


def _raising(error: BaseException) -> Iterator[bytes]:
    """Raise an error instead of the first part of a response."""
    raise error
    yield


def _parts(raw: http_client.HTTPResponse) -> Iterator[bytes]:
    """Yield the parts of a body as they come; compressed ones stay compressed."""
    yield from iter(partial(raw.read1, _PART_BYTES), b"")
    if raw.length:  # what is missing
        raise http_client.IncompleteRead(b"", raw.length)


def _is_sending(connection: Any) -> bool:
    return getattr(connection, _IS_SENDING, False)


@contextmanager
def _own_socket(connection: Any, kept: _Kept) -> Iterator[None]:
    """Give a connection its own socket, so that it sends by itself."""
    connection.sock = kept.own
    setattr(connection, _IS_SENDING, True)
    try:
        yield
    finally:
        kept.own = connection.sock
        connection.sock = kept
        delattr(connection, _IS_SENDING)


def _connect(connection: Any, kept: _Kept) -> None:
    """Connect if there is no connection, with the timeout that was set when it was first due."""
    if connection.sock is None:
        timeout = connection.timeout
        connection.timeout = kept.connect_timeout
        connection.connect()
        connection.timeout = timeout
        own: Any = connection.sock
        for option in kept.options:
            own.setsockopt(*option)


def _seconds(timeout: Any) -> float | None:
    """Return a timeout of a connection; by default, it is a marker."""
    return timeout if isinstance(timeout, int | float | None) else socket.getdefaulttimeout()


def _host_and_port(connection: Any) -> tuple[str, int]:
    """Return where the requests of a connection go, perhaps through a tunnel of a proxy."""
    if connection._tunnel_host:
        return connection._tunnel_host, connection._tunnel_port or connection.default_port
    return connection.host, connection.port


def _url(connection: Any, data: bytes) -> str:
    """Return the address of a request that begins with ``data``."""
    target = data.split(b" ", 2)[1].decode("latin-1")
    if "://" in target.partition("?")[0]:  # for a proxy
        return target
    host, port = _host_and_port(connection)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    scheme = "https" if connection.default_port == http_client.HTTPS_PORT else "http"
    shown = "" if port == connection.default_port else f":{port}"
    return f"{scheme}://{host}{shown}{target}"


def _is_whole(data: bytes) -> bool:
    """Return whether a request has the body that its headers announce."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length:
        return len(body) >= int(length[1])
    return b"\r\ntransfer-encoding:" not in head.lower() or body.endswith(b"0\r\n\r\n")


def _joined_chunks(body: bytes) -> bytes:
    """Return the body of a request that was sent in chunks."""
    file = io.BytesIO(body)
    parts: list[bytes] = []
    while True:
        size = int(file.readline().partition(b";")[0] or b"0", 16)
        if not size:
            return b"".join(parts)
        parts.append(file.read(size))
        file.readline()


def _of_urllib3(connection: Any, error: httpx.RequestError, text: str) -> Exception | None:
    """Return the error of urllib3, which its pool would not make of one of Python's; or None."""
    if not hasattr(connection, "is_verified") or "SSL" in text:
        return None
    from urllib3 import exceptions

    text = text.rpartition(f"{connection}: ")[2]
    if isinstance(error, httpx.ConnectTimeout):
        return exceptions.ConnectTimeoutError(connection, text)
    if isinstance(error, httpx.ConnectError):
        return exceptions.NewConnectionError(connection, text)
    if isinstance(error, httpx.ReadTimeout):  # its pool would drop the text
        return exceptions.ReadTimeoutError(connection, "", text)
    return None


def _of_python(error: httpx.RequestError, name: str, text: str) -> Exception:
    """Return the error that Python's own client raises."""
    kind: Any = None
    for place in (builtins, http_client, socket, ssl):
        kind = kind or getattr(place, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, OSError | http_client.HTTPException)
    number = _ERRNO.search(text)
    arguments: tuple[Any, ...] = (text,)
    if number:
        arguments = (int(number[1]), number[2])
    if not is_known:
        usual = next(usual for theirs, usual in _USUAL if isinstance(error, theirs))
        kind = OSError if number else usual
    failure: Exception = kind(*arguments)
    return failure
