"""Clients of other libraries over a session's transports.

Each module converts a library's requests to httpx's, passes them to a `ClientsTransport`, and
converts the responses and the errors back. SDKs that use these libraries retry and wait by
themselves, so the session does neither for them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from posixpath import normpath
from typing import Any, cast

from ...errors import DirectMailLabError
from ...exchange.httpx_values import body_of, httpx, is_write, parse_url
from ...settings import origin_of
from ...tracebacks import clear_locals
from ..transports.body import Body, Explain
from ..transports.extensions import EXTENSION, Call, Sent, call_of
from ..transports.mode import ModeTransport


def adapters_of(library: str) -> Any:
    """Import and return the adapter module for a library, and with it the library.

    Raises
    ------
    DirectMailLabError
        The library is not installed.
    """
    try:
        return import_module(f".{library}", __name__)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
    raise DirectMailLabError(f"{library} is not installed.", f"Install it: pip install {library}")


class ClientsTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Responds as the session's mode says, but neither paces nor repeats.

    Attributes
    ----------
    as_raised
        Converts an error of ours before it is raised. SDKs retry after any `Exception`, so in a
        test it becomes pytest's own error, which is only a `BaseException`.
    check
        Called with each request before it is played or sent; raises an error to refuse it.
    """

    def __init__(self, session: ModeTransport) -> None:
        self._session = session
        self.as_raised: Callable[[DirectMailLabError], BaseException] = lambda error: error
        self.check: Callable[[httpx.Request], object] = lambda _: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            self._begin(request)
            response = self._session.handle_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        else:
            return self._passed_on(request, response)
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            self._begin(request)
            response = await self._session.handle_async_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        else:
            return self._passed_on(request, response)
        raise failure

    def _begin(self, request: httpx.Request) -> None:
        """Note whose request it is. A write that follows a redirect is not sent: see `Call`."""
        self.check(request)
        if "upgrade" in request.headers.get("connection", "").lower():  # the response is a 101
            raise _cannot_upgrade(request)
        call = call_of(request)
        call.is_foreign = True
        redirected = _redirected.get()
        if redirected and is_write(request) and redirected == _place(request.method, request.url):
            call.state.sent = Sent.REDIRECTED
        _redirected.set(None)

    def _passed_on(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        """Note where a write is redirected to, and let an error of its body reach the test."""
        body = response.stream
        if isinstance(body, Body):
            body.as_raised = self._raised
        if response.has_redirect_location and is_write(request):
            with suppress(httpx.InvalidURL, UnicodeError):
                target = re.sub(r"[\x00-\x1f\x7f]", "", response.headers["location"])
                _redirected.set(_place(request.method, request.url.join(target)))
        return response

    def _raised(self, error: BaseException) -> BaseException:
        return self.as_raised(error) if isinstance(error, DirectMailLabError) else error


def _cannot_upgrade(request: httpx.Request) -> DirectMailLabError:
    host = request.url.host
    return DirectMailLabError(
        f"A connection to {host} that is no longer HTTP, such as a WebSocket, does not go through "
        "the session, and nothing was sent.",
        f'Leave vcrpy for this test, or let its clients reach the host directly: patch=["{host}"]',
    )


# The method and the place to which a write of this thread or task was redirected last. A client
# that follows redirects asks there next.
_redirected: ContextVar[tuple[str, ...] | None] = ContextVar("redirected", default=None)


def _place(method: str, url: httpx.URL) -> tuple[str, ...]:
    """Return a method and an address without what each library writes in its own way.

    That is the query, escapes, ``..``, other characters than those of ASCII, and the user name.
    """
    written = _NOT_ASCII.sub("", url.path)
    path = normpath(written).strip("/")
    if written.endswith("/"):
        path += "/"
    return method, *map(str, origin_of(url)), path


def url_of(text: str) -> httpx.URL:
    """Return an address of another library, which may be longer than httpx allows.

    A query may contain a whole file. Raises `AddressError` as `parse_url` does.
    """
    if len(text) <= _LONGEST_OF_HTTPX:
        return parse_url(text)
    address, _, query = text.partition("#")[0].partition("?")
    url = parse_url(address)
    # The library that will send it has escaped it.
    url._uri_reference = url._uri_reference._replace(query=query)
    return url


def as_httpx(request: Any, send: Callable[[httpx.Request], Any] | None = None) -> httpx.Request:
    """Return a copy of a request of httpx or httpx2, which the session may change.

    If ``send`` is given, it sends the request instead of the session's connections: see `Call`.
    """
    body = body_of(request)
    stream = Body(request.stream) if body is None else httpx.ByteStream(body)
    call = Call(wants_key=send is not None or call_of(request).wants_key, send=send)
    copy = httpx.Request(
        request.method,
        url_of(str(request.url)),
        headers=request.headers.raw,
        stream=stream,
        extensions={**request.extensions, EXTENSION: call},
    )
    if body is not None:
        copy.read()
    return copy


# -- a response as its bytes ---------------------------------------------------------------------


def parts_of(response: httpx.Response, method: str) -> Iterator[bytes]:
    """Yield the bytes of a response, as a server sends it."""
    head, chunk, end = _framing(response, method)
    yield head
    yield from map(chunk, cast("httpx.SyncByteStream", response.stream))
    yield end


async def async_parts_of(response: httpx.Response, method: str) -> AsyncIterator[bytes]:
    """Yield the same for an asynchronous client."""
    head, chunk, end = _framing(response, method)
    yield head
    async for part in cast("httpx.AsyncByteStream", response.stream):
        yield chunk(part)
    yield end


def _framing(
    response: httpx.Response, method: str
) -> tuple[bytes, Callable[[bytes], bytes], bytes]:
    """Return the head of a response, a function for each part of its body, and its last bytes."""
    has_body = method != "HEAD" and response.status_code not in (204, 304)
    is_chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
    lines = [b"HTTP/1.1 %d %b" % (response.status_code, response.reason_phrase.encode("ascii"))]
    for name, value in response.headers.raw:
        if name.lower() == b"content-length":
            # Another program may have recorded another length, or one of a chunked body, which
            # aiohttp refuses.
            if is_chunked:
                continue
            if has_body and isinstance(response.stream, httpx.ByteStream):
                value = b"%d" % sum(map(len, response.stream))
        lines.append(b"%b: %b" % (name, value))
    # A recorded header may have control characters.
    head = b"\r\n".join(_CONTROLS.sub(b" ", line) for line in lines) + b"\r\n\r\n"
    if is_chunked and has_body:
        return head, _chunk, b"0\r\n\r\n"
    return head, bytes, b""


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""


# -- failures ------------------------------------------------------------------------------------


@contextmanager
def errors_as(translate: Explain) -> Iterator[None]:
    """Raise the error that ``translate`` returns instead of each error."""
    try:
        yield
    except BaseException as error:
        failure = translate(error)
        if failure is error:
            raise
        raise failure from None


class Exchange:
    """One request of a client of another library, and what became of it."""

    _error: BaseException | None = None

    def _keep(
        self, error: BaseException, kind: type[httpx.RequestError], shown: BaseException
    ) -> httpx.RequestError:
        """Keep an error of the client's library, and return one of httpx that records it."""
        self._error = error
        return kind(f"{type(shown).__name__}: {shown}")

    def failure(self, error: httpx.RequestError) -> BaseException:
        """Return what to raise for the session's error."""
        if self._error is not None:
            clear_locals(self._error)
            return self._error
        return self._replayed(error, *_name_and_text(error))

    @contextmanager
    def errors_of_body(self) -> Iterator[None]:
        """Raise the library's own errors. If a body is cut short, the library does so by itself."""
        try:
            yield
        except httpx.RequestError as error:
            name, text = _name_and_text(error)
            # httpx has one name for all errors of a body.
            if name not in _CUT and "complete message body" not in text:
                raise self.failure(error) from None

    def _replayed(self, error: httpx.RequestError, name: str, text: str) -> BaseException:
        """Return the error of the client's library for one that a replay raised.

        ``name`` is that of the class which was recorded, or an empty string.
        """
        raise NotImplementedError


def _name_and_text(error: httpx.RequestError) -> tuple[str, str]:
    """Return what `Exchange` recorded of an error: ``OSError`` and ``[Errno 9] …``."""
    text = str(error)
    found = _CLASS_NAME.match(text)
    if found is None:
        return "", text
    return found[1], text[found.end() :]


_CUT = ("IncompleteRead", "ClientPayloadError")
_CLASS_NAME = re.compile(r"([A-Za-z]\w*): ")
_LONGEST_OF_HTTPX = 65_536
_NOT_ASCII = re.compile("[^!-~]+")
_CONTROLS = re.compile(rb"[\r\n\0]+")
