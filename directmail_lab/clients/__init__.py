"""Adapters that let clients of httpx2 and requests send through a session's transports.

Each adapter converts a request to httpx's, passes it to a `ClientsTransport`, and converts the
response and the errors back. SDKs that use these libraries retry and wait by themselves, so the
session does neither for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from ..errors import DirectMailLabError
from ..http import body_of, httpx, parse_url
from ..transports.extensions import KEY, Call, call_of
from ..transports.session import SessionTransport


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
    """

    def __init__(self, session: SessionTransport) -> None:
        self._session = session
        self.as_raised: Callable[[DirectMailLabError], BaseException] = lambda error: error

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call_of(request).is_foreign = True
        try:
            return self._session.handle_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call_of(request).is_foreign = True
        try:
            return await self._session.handle_async_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        raise failure


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of another library's message, as a stream of httpx.

    ``errors`` opens a context that converts the errors raised while the body is read.
    """

    def __init__(
        self, body: Any, errors: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._body, self._errors = body, errors

    def __iter__(self) -> Iterator[bytes]:
        with self._errors():
            yield from self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._errors():
            async for part in self._body:
                yield part
                del part  # a traceback with locals would print what it echoes

    def close(self) -> None:
        if hasattr(self._body, "close"):
            self._body.close()

    async def aclose(self) -> None:
        if hasattr(self._body, "aclose"):
            await self._body.aclose()


def as_httpx(request: Any, send: Callable[[httpx.Request], Any] | None = None) -> httpx.Request:
    """Return a copy of a request of httpx or httpx2, which the session may change.

    If ``send`` is given, it sends the request instead of the session's connections: see `Call`.
    """
    body = body_of(request)
    wants_key = send is not None or call_of(request).wants_key
    copy = httpx.Request(
        request.method,
        parse_url(str(request.url)),
        headers=request.headers.raw,
        stream=Stream(request.stream) if body is None else httpx.ByteStream(body),
        extensions={**request.extensions, KEY: Call(wants_key, send=send)},
    )
    if body is not None:
        copy.read()
    return copy
