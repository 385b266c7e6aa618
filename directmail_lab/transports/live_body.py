"""The body of a live response: it is kept while it is read, and may have a time limit."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..errors import OutcomeUnknownError
from ..http import httpx

_MOST_KEPT_BYTES: Final = 64 * 1024**2
"""The largest body that is kept while it is read, in case it is cut short."""


class LiveBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a live response.

    ``complete`` gets the whole body once it is read. If the connection breaks, or the caller is
    interrupted while reading, ``cut_short`` gets the part that arrived.
    """

    def __init__(
        self,
        response: httpx.Response,
        cut_short: Callable[..., None],
        complete: Callable[[bytes], None] | None,
    ) -> None:
        self._stream: Any = response.stream
        self._headers = response.headers
        self._cut_short, self._complete = cut_short, complete
        self._parts: list[bytes] = []
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from map(self._kept, self._stream)
        except BaseException as error:
            self._keep_part(error)
            raise
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield self._kept(part)
        except BaseException as error:
            part = b""  # so that no traceback shows what it echoes
            self._keep_part(error)
            raise
        self._end()

    def _kept(self, part: bytes) -> bytes:
        self._size += len(part)
        self._parts.append(part)
        if self._size > _MOST_KEPT_BYTES:
            self._parts.clear()
        return part

    def _keep_part(self, error: BaseException) -> None:
        is_broken = isinstance(error, httpx.TransportError | OutcomeUnknownError)
        is_interrupted = not isinstance(error, Exception | GeneratorExit)
        if is_broken or is_interrupted:
            self._cut_short(b"".join(self._parts), is_aborted=is_interrupted)

    def _end(self) -> None:
        if self._complete is not None and self._size <= _MOST_KEPT_BYTES:
            self._complete(b"".join(self._parts))
        self._complete = None

    def close(self) -> None:
        self._release().close()

    async def aclose(self) -> None:
        await self._release().aclose()

    def _release(self) -> Any:
        """Forget the transports: a response must not keep the key of a dropped session alive."""
        # urllib3 closes the body before it asks for its end.
        if self._complete is not None and str(self._size) == self._headers.get("content-length"):
            self._end()
        stream, self._stream = self._stream, httpx.ByteStream(b"")
        self._cut_short, self._complete = lambda *_, **__: None, None
        self._parts.clear()
        return stream


@contextmanager
def time_limit(
    request: httpx.Request, response: httpx.Response, timer: Callable[[], float]
) -> Iterator[Callable[[bytes], bytes]]:
    """Yield a function that returns a part of the body, or raises an error if it is too late.

    Without this, recording a stream that never ends would block its caller. A body with a
    ``Content-Length`` does end, so only the client's own timeout for each part applies.
    """
    timeout_s: float | None = request.extensions.get("timeout", {}).get("read")
    end = math.inf
    if timeout_s is not None and "content-length" not in response.headers:
        end = timer() + timeout_s

    def check(part: bytes) -> bytes:
        if end < math.inf and timer() > end:
            raise httpx.ReadTimeout("")
        return part

    try:
        yield check
    except httpx.ReadTimeout as error:
        if timeout_s is not None:
            error.args = (
                f"The response did not end within {timeout_s:g} s, the client's timeout. "
                "While a session records, it reads a stream to its end before its caller gets it. "
                "Request a stream that ends, or give it more time.",
            )
        raise
