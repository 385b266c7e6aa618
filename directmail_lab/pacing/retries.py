"""Which requests may be sent again, and when. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..http import httpx, is_write, lost_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

__all__ = [
    "ATTEMPTS",
    "CONNECT_ATTEMPTS",
    "RETRIED_ERRORS",
    "RETRIED_STATUSES",
    "WatchedBody",
    "backoff_s",
    "may_retry",
]

ATTEMPTS: Final = 4
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})

# The connection failed. A read that timed out is not tried again: its user waited long enough.
RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# Where no connection is made there is mostly no service: one more attempt, and its user is told.
CONNECT_ATTEMPTS: Final = 2


def may_retry(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: GET and HEAD, where the body is still there."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


def backoff_s(attempt: int) -> float:
    """Return the seconds before the next attempt, with jitter, after ``attempt`` have failed."""
    return _library_backoff()(attempt)


@lru_cache(maxsize=1)
def _library_backoff() -> Callable[[int], float]:
    from tenacity import RetryCallState, Retrying, wait_random_exponential

    wait = wait_random_exponential(multiplier=0.5, max=8.0)
    retrying = Retrying(wait=wait)

    def after(attempt: int) -> float:
        state = RetryCallState(retrying, None, (), {})
        state.attempt_number = attempt
        return wait(state)

    return after


class WatchedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer to a write: where it breaks off, what became of the write is open."""

    def __init__(self, request: httpx.Request, response: httpx.Response) -> None:
        self._request = request
        self._stream = response.stream

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._stream, httpx.SyncByteStream)
        try:
            yield from self._stream
        except httpx.TransportError as error:
            raise lost_answer(self._request, error) or error from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        try:
            async for part in self._stream:
                yield part
        except httpx.TransportError as error:
            raise lost_answer(self._request, error) or error from error

    def close(self) -> None:
        if isinstance(self._stream, httpx.SyncByteStream):
            self._stream.close()

    async def aclose(self) -> None:
        if isinstance(self._stream, httpx.AsyncByteStream):
            await self._stream.aclose()
