"""Which requests may be sent again, when, and what a lost answer to a write means. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..contract import SAFE_METHODS
from ..errors import OutcomeUnknownError
from ..http import httpx
from ..interaction import operation_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ATTEMPTS",
    "RETRIED_ERRORS",
    "RETRIED_STATUSES",
    "backoff_s",
    "lost_answer",
    "may_retry",
]

ATTEMPTS: Final = 4
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})

# The connection failed. A read that timed out is not tried again: its user waited long enough.
RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)

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
        f"{request.method} {operation_of(request.url.path)} was sent and no answer came "
        f"({type(error).__name__}). It may have been carried out, and was not sent again. "
        "Look whether it was before you repeat it."
    )
