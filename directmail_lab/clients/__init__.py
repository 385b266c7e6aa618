"""A session for clients of other libraries, over its one stack of transports.

Each adapter converts a request to httpx's, passes it to a `ClientsTransport`, and converts the
response and the errors to its library's own. SDKs on these libraries repeat and wait by themselves,
so the session does neither for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from typing import Any

from ..errors import DirectMailLabError
from ..exchange.bodies import MAX_UNPACKED_BYTES, unpack
from ..http import body_of, httpx, parse_url
from ..transports.extensions import KEY, Call, call_of, of
from ..transports.session import SessionTransport


def adapters_of(library: str) -> Any:
    """Return the module here that is for a library, which is imported only now.

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
        Returns what is raised in place of an error of ours. SDKs repeat a request after any
        `Exception`, so in a test it is an error of pytest's, which is none.
    """

    def __init__(self, session: SessionTransport) -> None:
        self._session = session
        self.as_raised: Callable[[DirectMailLabError], BaseException] = lambda error: error

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call_of(request).is_foreign = True
        try:
            response = self._session.handle_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        else:
            return _with_body_kept(response)
        raise failure

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call_of(request).is_foreign = True
        try:
            response = await self._session.handle_async_request(request)
        except DirectMailLabError as error:
            failure = self.as_raised(error)
        else:
            return _with_body_kept(response)
        raise failure


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of another library's, as one of httpx's.

    ``errors`` opens a context that converts the errors of reading it.
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


class _KeptStream(Stream):
    """The body of a live response; once it was read whole, the session's recording has it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.stream)
        self._received = of(response)
        self._coding = response.headers.get("content-encoding", "")
        self._length = response.headers.get("content-length")
        self._parts: list[bytes] = []
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        yield from map(self._keep, self._body)
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield self._keep(part)
            del part
        self._end()

    def close(self) -> None:
        super().close()
        if str(self._size) == self._length:  # urllib3 closes it before it asks for the end
            self._end()

    def _keep(self, part: bytes) -> bytes:
        self._size += len(part)
        if self._size <= MAX_UNPACKED_BYTES:
            self._parts.append(part)
        return part

    def _end(self) -> None:
        with suppress(ValueError):  # it is not compressed as it says
            if self._size <= MAX_UNPACKED_BYTES:
                self._received.add_body(unpack(b"".join(self._parts), self._coding))


def _with_body_kept(response: httpx.Response) -> httpx.Response:
    if of(response).recording is not None:
        response.stream = _KeptStream(response)
    return response


def as_httpx(request: Any, send: Callable[[httpx.Request], Any] | None = None) -> httpx.Request:
    """Return a copy of a request of httpx, or of its fork httpx2, which the session may change.

    ``send`` sends in place of the session's connections: see `Call`.
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
