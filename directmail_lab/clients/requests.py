"""The adapter for requests, to mount on a `requests.Session`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from email.message import Message
from functools import partial
from typing import Any, Final, cast

import requests.exceptions
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import DecodeError, HTTPError, ReadTimeoutError

from ..http import httpx, parse_url
from ..transports.extensions import KEY, Call
from . import ClientsTransport, Stream

_PART_BYTES: Final = 65_536

# For types of httpx's errors and a pattern in the message: the error of requests. The first row
# that fits counts. `RemoteProtocolError` is both a body that broke off and a connection that ended
# before the response.
_ERRORS: Final = (
    (httpx.ConnectTimeout, "", requests.exceptions.ConnectTimeout),
    (httpx.TimeoutException, "", requests.exceptions.ReadTimeout),
    (httpx.ProxyError, "", requests.exceptions.ProxyError),
    (httpx.ConnectError, "SSL|CERTIFICATE", requests.exceptions.SSLError),
    (httpx.DecodingError, "", requests.exceptions.ContentDecodingError),
    (httpx.RemoteProtocolError, "body", requests.exceptions.ChunkedEncodingError),
    (httpx.UnsupportedProtocol, "", requests.exceptions.InvalidSchema),
    (httpx.RequestError, "", requests.exceptions.ConnectionError),
)


class SessionAdapter(HTTPAdapter):
    """Passes requests to a session, and returns its responses.

    ``timeout_s`` is for requests without a timeout of their own. The session's own connections
    send, so the settings of requests for proxies and certificates have no effect.
    """

    def __init__(self, session: ClientsTransport, timeout_s: float) -> None:
        super().__init__()
        self._session, self._timeout_s = session, timeout_s

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        timeout = timeout_of(*args, **kwargs)
        timeout = self._timeout_s if timeout is None else timeout
        return answer(self, self._session, request, timeout)


def answer(
    adapter: HTTPAdapter,
    session: ClientsTransport,
    request: requests.PreparedRequest,
    timeout: Any,
    sender: Callable[[httpx.Request], httpx.Response] | None = None,
) -> requests.Response:
    """Return a session's response. ``sender`` may send instead of the session's connections."""
    body: Any = request.body
    asked = httpx.Request(
        str(request.method),
        parse_url(str(request.url)),
        headers=[(_bytes(name), _bytes(value)) for name, value in request.headers.items()],
        content=iter(partial(body.read, _PART_BYTES), b"") if hasattr(body, "read") else body,
        extensions={"timeout": _seconds(timeout), KEY: Call(wants_key=True, send=sender)},
    )
    try:
        answered = session.handle_request(asked)
    except httpx.RequestError as error:
        kind = next(
            kind
            for theirs, pattern, kind in _ERRORS
            if isinstance(error, theirs) and re.search(pattern, str(error))
        )
        failure = kind(str(error), request=request)
    else:
        return adapter.build_response(request, _Raw(answered, str(request.method)))
    raise failure


def timeout_of(_: bool = False, timeout: Any = None, *__: Any, **___: Any) -> Any:
    """Return the timeout from the arguments of ``HTTPAdapter.send``, without its request."""
    return timeout


def _seconds(timeout: Any) -> dict[str, float | None]:
    """Return a timeout of requests in the form of httpx."""
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if isinstance(timeout, urllib3.Timeout):
        connect, read = timeout.connect_timeout, timeout.read_timeout
    limits = [each if isinstance(each, int | float) else None for each in (connect, read)]
    return dict(
        zip(("connect", "read", "write", "pool"), (*limits, *reversed(limits)), strict=True)
    )


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")


class _Raw(urllib3.HTTPResponse):
    """A session's response as one of urllib3, from which requests builds its own."""

    def __init__(self, response: httpx.Response, method: str) -> None:
        pairs = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in response.headers.raw
        ]
        super().__init__(
            body=io.BufferedReader(_Reader(response)),
            headers=urllib3.HTTPHeaderDict(pairs),
            status=response.status_code,
            reason=response.reason_phrase,
            version=11,
            preload_content=False,
            decode_content=False,
            original_response=_Original(response, pairs),  # type: ignore[arg-type]
            request_method=method,
            enforce_content_length=False,
        )

    def stream(
        self, amt: int | None = None, decode_content: bool | None = None
    ) -> Generator[bytes]:
        """Yield each part of the body when it arrives: an event does not wait for others."""
        # Without a local for the part: a traceback with locals would print what it echoes.
        yield from iter(partial(self.read1, amt or _PART_BYTES, decode_content), b"")


class _Original:
    """The object that requests takes cookies from, and that urllib3 closes after an error."""

    def __init__(self, response: httpx.Response, headers: list[tuple[str, str]]) -> None:
        self.close = response.close
        self.msg = Message()
        for name, value in headers:
            self.msg[name] = value

    def isclosed(self) -> bool:
        return True


class _Reader(io.RawIOBase):
    """The bytes of a body as a file, which raises errors that urllib3 knows."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._parts = iter(cast("httpx.SyncByteStream", response.stream))
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._rest:
                self._rest = next(self._parts)
        except StopIteration:
            return 0
        except httpx.DecodingError as error:
            raise DecodeError(str(error)) from None
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error)) from None
        except httpx.RequestError as error:
            raise ConnectionError(str(error)) from None
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


# -- clients that the code under test makes ------------------------------------------------------


def sender(
    original: Callable[[requests.PreparedRequest], requests.Response],
    request: requests.PreparedRequest,
) -> Callable[[httpx.Request], httpx.Response]:
    """Return a function that sends a session's copy of ``request`` by the client's own method."""

    def send(signed: httpx.Request) -> httpx.Response:
        copy = request.copy()  # plus the session's key, and the body if the session has read it
        if "Authorization" in signed.headers:
            copy.headers["Authorization"] = signed.headers["Authorization"]
        if copy.body is not None and isinstance(signed.stream, httpx.ByteStream):
            copy.body = b"".join(signed.stream)
        answered = original(copy)
        return httpx.Response(
            answered.status_code,
            headers=[(_bytes(name), _bytes(value)) for name, value in answered.raw.headers.items()],
            stream=Stream(_Parts(answered.raw), _to_httpx),
            extensions={
                "reason_phrase": _bytes(answered.reason or ""),
                "http_version": b"HTTP/1.1",
            },
        )

    return send


class _Parts:
    """The parts of a response of urllib3, unchanged: compressed ones stay compressed."""

    def __init__(self, raw: urllib3.HTTPResponse) -> None:
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._raw.stream(_PART_BYTES, decode_content=False))

    def close(self) -> None:
        self._raw.close()
        self._raw.release_conn()


@contextmanager
def _to_httpx() -> Iterator[None]:
    """Replace an error of urllib3 with the error of httpx."""
    try:
        yield
    except HTTPError as error:
        slow = isinstance(error, ReadTimeoutError)
        failure = (httpx.ReadTimeout if slow else httpx.RemoteProtocolError)(f"body: {error}")
    else:
        return
    raise failure
