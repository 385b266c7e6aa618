"""Which requests may be sent again, when, and what a lost answer to a write means. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..contract import SAFE_METHODS
from ..errors import OutcomeUnknownError
from ..http import httpx
from ..interaction import operation_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

__all__ = [
    "ATTEMPTS",
    "CONNECT_ATTEMPTS",
    "RETRIED_ERRORS",
    "RETRIED_STATUSES",
    "WatchedBody",
    "backoff_s",
    "lost_answer",
    "may_retry",
]

ATTEMPTS: Final = 4
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})

# The connection failed. A read that timed out is not tried again: its user waited long enough.
RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# Where no connection is made there is mostly no service: one more attempt, and its user is told.
CONNECT_ATTEMPTS: Final = 2

# Nothing of the request reached the service.
_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)


def may_retry(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: GET and HEAD, where the body is still there."""
    return request.method in ("GET", "HEAD") and isinstance(request.stream, httpx.ByteStream)


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


def lost_answer(request: httpx.Request, error: Exception) -> OutcomeUnknownError | None:
    """Return the error for a write that was sent and not answered; None where nothing is open."""
    if request.method in SAFE_METHODS or isinstance(error, _NOT_SENT):
        return None
    if not isinstance(error, httpx.TransportError):
        return None
    return OutcomeUnknownError(
        f"{request.method} {operation_of(request.url.path)} was sent and no whole answer came "
        f"({type(error).__name__}). It may have been carried out, and was not sent again. "
        "Look whether it was before you repeat it."
    )


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
