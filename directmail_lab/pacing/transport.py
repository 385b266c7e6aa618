"""The transport that waits for the allowance, as a `Pacer` decides, and retries failed reads."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, wait as wait_for
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

from ..display import ProgressBar
from ..http import httpx, is_write
from ..interaction import READING, operation_of
from .pacer import PacedRequest, Pacer
from .state import Pause

if TYPE_CHECKING:
    from ..transports import Transport


_ATTEMPTS: Final = 4
# If no connection can be made there is usually no service: one more attempt, and then the error.
_ATTEMPTS_TO_CONNECT: Final = 2
_RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
# The connection failed. A timeout is not retried: the user has waited long enough.
_RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# The longest single wait: a request that was never woken asks again after this.
_LONGEST_PIECE_S: Final = 5.0
_SHOWN_PIECE_S: Final = 0.25
# A shorter wait gets no progress bar.
_SHOWN_FROM_S: Final = 1.0


def waiting_bar(seconds: float, reason: str) -> ProgressBar:
    """Return the progress bar of a wait."""
    shape = "{desc}: {bar} {n:.0f} of {total:.0f} s"
    return ProgressBar(round(seconds, 1), delay_s=0.0, desc=reason, bar_format=shape)


def _backoff_s(failures: int) -> float:
    """Return random seconds before the next attempt: up to 0.5, 1, 2, … 8 as failures increase."""
    return random.uniform(0.0, min(0.5 * 2.0 ** (failures - 1), 8.0))


def _wait(woken: Future[None], seconds: float) -> None:
    wait_for([woken], seconds)


async def _wait_async(woken: Future[None], seconds: float) -> None:
    await asyncio.wait([asyncio.wrap_future(woken)], timeout=seconds)


class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while requests remain, waits for the renewal if none do, and retries failed reads.

    Any number of threads, tasks and event loops may use one. ``inner`` must set the `Reading` of
    each response as ``response.extensions[READING]``. A read that is refused with status 429 waits
    for the renewal and is sent again; it does not count as failed.

    Parameters
    ----------
    inner
        The transport that sends.
    pacer
        Decides when a request may be sent.
    clock
        Returns the time, in seconds since the Unix epoch; readings must have times by this clock.
    wait, wait_async
        Wait until a future is done, at most so many seconds; the second one is for tasks.
    progress
        Shows a wait of a second or more: called with its seconds and its reason; its result is
        updated with the seconds that passed. None shows nothing. The default is a tqdm bar.
    backoff
        Returns the seconds before the next attempt of a read, given how many have failed.
    """

    def __init__(
        self,
        inner: Transport,
        pacer: Pacer,
        *,
        clock: Callable[[], float] = time.time,
        wait: Callable[[Future[None], float], None] = _wait,
        wait_async: Callable[[Future[None], float], Awaitable[None]] = _wait_async,
        progress: Callable[[float, str], Any] | None = waiting_bar,
        backoff: Callable[[int], float] = _backoff_s,
    ) -> None:
        self._inner = inner
        self.pacer = pacer
        self.clock = clock
        self.wait = wait
        self.wait_async = wait_async
        self.progress = progress
        self.backoff = backoff

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with _Attempts(self, request) as attempts:
            while True:
                for woken, seconds in attempts.waits():
                    self.wait(woken, seconds)
                try:
                    response = self._inner.handle_request(request)
                except httpx.TransportError as error:
                    if not attempts.is_repeated_after(error):
                        raise
                else:
                    if not attempts.is_repeated_after(response):
                        return response
                    response.close()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _Attempts(self, request) as attempts:
            while True:
                for woken, seconds in attempts.waits():
                    await self.wait_async(woken, seconds)
                try:
                    response = await self._inner.handle_async_request(request)
                except httpx.TransportError as error:
                    if not attempts.is_repeated_after(error):
                        raise
                else:
                    if not attempts.is_repeated_after(response):
                        return response
                    await response.aclose()


class _Attempts:
    """The attempts at one request: when each may be sent, and whether there is another."""

    def __init__(self, transport: PacingTransport, request: httpx.Request) -> None:
        self._transport = transport
        self._pacer = transport.pacer
        self._request = request
        method = "GET" if request.method == "HEAD" else request.method  # they share an allowance
        self._paced = PacedRequest(
            f"{method} {_operation_of(request.url.path)}",
            transport.clock() + self._pacer.max_wait_s,
        )
        self._failures = 0
        self._retry_at = -math.inf
        self._bar: Any = None

    def waits(self) -> Iterator[tuple[Future[None], float]]:
        """Yield the waits until the request may be sent: at most so many seconds for a future."""
        operation, clock = self._paced.operation, self._transport.clock
        if self._failures:
            reason = f"{operation}: attempt {self._failures + 1} of {_ATTEMPTS}"
            yield from self._pieces(Pause(self._retry_at), Future(), reason)
        while (pause := self._pacer.ask(self._paced, clock())) is not None:
            shared = self._pacer.shared_with
            reason = f"an allowance {shared}" if shared else "until the allowance renews"
            assert self._paced.woken is not None
            yield from self._pieces(pause, self._paced.woken, f"{operation}: {reason}")

    def _pieces(
        self, pause: Pause, woken: Future[None], reason: str
    ) -> Iterator[tuple[Future[None], float]]:
        """Wait in pieces until the time has come, or until the request is woken.

        The time has come by the clock or, if the clock was set back, by the sum of the pieces.
        """
        clock, progress = self._transport.clock, self._transport.progress
        waited, seconds = 0.0, pause.until - clock()
        is_long = seconds >= _SHOWN_FROM_S and not pause.for_response
        if progress is not None and is_long and self._pacer.shown.acquire(blocking=False):
            self._bar = progress(seconds, reason)
        while not woken.done() and (left := min(seconds - waited, pause.until - clock())) > 0:
            piece = min(left, _LONGEST_PIECE_S if self._bar is None else _SHOWN_PIECE_S)
            yield woken, piece
            waited += piece
            if self._bar is not None:
                self._bar.update(piece)
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._pacer.shown.release()

    def is_repeated_after(self, outcome: httpx.Response | httpx.TransportError) -> bool:
        """Return whether the request is sent again, after the waits that come next.

        After a refusal (429) the pacer decides how long to wait. After a failure it is what
        ``Retry-After`` asks for, else what ``backoff`` returns.
        """
        reading, is_retried = None, isinstance(outcome, _RETRIED_ERRORS)
        if isinstance(outcome, httpx.Response):
            reading = outcome.extensions[READING]
            is_retried = outcome.status_code in _RETRIED_STATUSES
        now = self._transport.clock()
        self._pacer.settle(self._paced, reading, now)
        if not is_retried or not _may_repeat(self._request):
            return False
        self._retry_at = now
        if reading is None or reading.status != 429:
            self._failures += 1
            most = _ATTEMPTS_TO_CONNECT if isinstance(outcome, httpx.ConnectError) else _ATTEMPTS
            if self._failures >= most:
                return False
            retry_after_s = None if reading is None else reading.retry_after_s
            self._retry_at += (
                self._transport.backoff(self._failures) if retry_after_s is None else retry_after_s
            )
        return self._retry_at <= self._paced.give_up_at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:  # it was interrupted, cancelled or gave up
            self._close_bar()
            self._pacer.settle(self._paced, None, self._transport.clock())


def _may_repeat(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: GET or HEAD, with a body that can be reread."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


_operation_of = lru_cache(maxsize=1024)(operation_of)
