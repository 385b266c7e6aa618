"""The transport that waits for the allowance, as a `Pacer` decides, and retries failed reads."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent import futures
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ..display import ProgressBar
from ..http import httpx, is_write
from ..interaction import READING, operation_of
from .pacer import Pacer, Wait

if TYPE_CHECKING:
    from ..quota import Reading
    from ..transports import Transport


_ATTEMPTS: Final = 4
# If no connection can be made there is usually no service: one more attempt, and then the error.
_ATTEMPTS_TO_CONNECT: Final = 2
_RETRIED_STATUSES: Final = frozenset({502, 503, 504})
# The connection failed. A timeout is not retried: the user has waited long enough.
_RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# The longest single wait: a request that was never woken asks again after this.
_LONGEST_PIECE_S: Final = 5.0
_SHOWN_PIECE_S: Final = 0.25
# A shorter wait gets no progress bar.
_SHOWN_FROM_S: Final = 1.0

_Answer = httpx.Response | httpx.TransportError

_Step = tuple[Literal["send", "close", "wait"], *tuple[Any, ...]]
"""The next action for a request, and its arguments."""

_T = TypeVar("_T")
_Steps = Generator[_Step, Any, _T]
"""A generator of actions; each result is sent, or each exception thrown, into it."""


def waiting_bar(seconds: float, reason: str) -> ProgressBar:
    """Return the progress bar of a wait."""
    shape = "{desc}: {bar} {n:.0f} of {total:.0f} s"
    return ProgressBar(round(seconds, 1), delay_s=0.0, desc=reason, bar_format=shape)


def _backoff_s(failures: int) -> float:
    """Return random seconds before the next attempt: up to 0.5, 1, 2, … 8 as failures increase."""
    return random.uniform(0.0, min(0.5 * 2.0 ** (failures - 1), 8.0))


def _wait(woken: futures.Future[None], seconds: float) -> None:
    futures.wait([woken], seconds)


async def _wait_async(woken: futures.Future[None], seconds: float) -> None:
    await asyncio.wait([asyncio.wrap_future(woken)], timeout=seconds)


class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while requests remain, waits for the renewal if none do, and retries failed reads.

    Any number of threads, tasks and event loops may use one. ``inner`` must set the `Reading` of
    each response as ``response.extensions[READING]``. A read that is refused with status 429 waits
    for the renewal and is sent again; it does not count as failed. With ``pace="off"`` nothing
    waits and nothing is retried.

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
        wait: Callable[[futures.Future[None], float], None] = _wait,
        wait_async: Callable[[futures.Future[None], float], Awaitable[None]] = _wait_async,
        progress: Callable[[float, str], Any] | None = waiting_bar,
        backoff: Callable[[int], float] = _backoff_s,
    ) -> None:
        self._inner = inner
        self._pacer = pacer
        self._clock = clock
        self._wait = wait
        self._wait_async = wait_async
        self._progress = progress
        self._backoff = backoff

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        send, close = self._inner.handle_request, httpx.Response.close
        act: dict[str, Callable[..., Any]] = {"send": send, "close": close, "wait": self._wait}
        steps = self._steps(request)
        try:
            step = next(steps)
            while True:
                try:
                    done = act[step[0]](*step[1:])
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        send, close = self._inner.handle_async_request, httpx.Response.aclose
        act: dict[str, Callable[..., Any]] = {
            "send": send,
            "close": close,
            "wait": self._wait_async,
        }
        steps = self._steps(request)
        try:
            step = next(steps)
            while True:
                try:
                    done = await act[step[0]](*step[1:])
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _steps(self, request: httpx.Request) -> _Steps[httpx.Response]:
        """Yield the actions for a request, which sync and async code carry out alike."""
        operation, ticket, failures = _operation(request), self._pacer.ticket(), 0
        give_up_at = self._clock() + self._pacer.max_wait_s
        while True:
            answer = yield from self._attempt(request, operation, ticket, give_up_at)
            failures += not _is_refusal(answer)
            pause_s = self._pause_s(request, answer, failures)
            until = self._clock() + (pause_s or 0.0)
            if pause_s is None or until > give_up_at:
                break
            if isinstance(answer, httpx.Response):
                yield "close", answer
            reason = f"{operation}: attempt {failures + 1} of {_ATTEMPTS}"
            yield from self._pieces(Wait(until), reason)
        if isinstance(answer, httpx.Response):
            return answer
        raise answer

    def _attempt(
        self, request: httpx.Request, operation: str, ticket: int, give_up_at: float
    ) -> _Steps[_Answer]:
        """Wait until the request may be sent, send it, and give the pacer its answer."""
        reading = None
        try:
            while wait := self._pacer.ask(operation, ticket, self._clock(), give_up_at):
                shared = self._pacer.shared_with
                reason = f"an allowance {shared}" if shared else "until the allowance renews"
                yield from self._pieces(wait, f"{operation}: {reason}")
            response: httpx.Response = yield "send", request
            reading = response.extensions[READING]
            return response
        except httpx.TransportError as error:
            return error
        finally:
            self._pacer.settle(operation, ticket, reading, self._clock())

    def _pause_s(self, request: httpx.Request, answer: _Answer, failures: int) -> float | None:
        """Return the seconds before another attempt of a read; None if there is to be none.

        They are what ``Retry-After`` asks for, else those of ``backoff``. After a refusal (429)
        they are 0, since the pacer then decides how long to wait.
        """
        if not isinstance(answer, httpx.Response):
            most = _ATTEMPTS_TO_CONNECT if isinstance(answer, httpx.ConnectError) else _ATTEMPTS
            is_retried = failures < most and isinstance(answer, _RETRIED_ERRORS)
        else:
            is_retried = failures < _ATTEMPTS and answer.status_code in _RETRIED_STATUSES
        is_refusal = _is_refusal(answer)
        if not (is_retried or is_refusal) or self._pacer.pace == "off" or not _may_repeat(request):
            return None
        if is_refusal:
            return 0.0
        if not isinstance(answer, httpx.Response):
            return self._backoff(failures)
        reading: Reading = answer.extensions[READING]
        asked_s = reading.retry_after_s
        return self._backoff(failures) if asked_s is None else asked_s

    def _pieces(self, wait: Wait, reason: str) -> _Steps[None]:
        """Wait in pieces until the time has come, or until the request is woken.

        The time has come by the clock or, if the clock was set back, by the sum of the pieces.
        """
        started, waited = self._clock(), 0.0
        seconds = wait.until - started
        shown = None
        is_long = seconds >= _SHOWN_FROM_S and not wait.for_answer
        # Only one of several simultaneous waits is shown: the first.
        if self._progress is not None and is_long and self._pacer.shown.acquire(blocking=False):
            shown = self._progress(seconds, reason)
        try:
            while not wait.woken.done():
                left = min(seconds - waited, wait.until - self._clock())
                if left <= 0:
                    return
                piece = min(left, _LONGEST_PIECE_S if shown is None else _SHOWN_PIECE_S)
                yield "wait", wait.woken, piece
                waited += piece
                if shown is not None:
                    shown.update(piece)
        finally:
            if shown is not None:
                shown.close()
                self._pacer.shown.release()


def _is_refusal(answer: _Answer) -> bool:
    return isinstance(answer, httpx.Response) and answer.status_code == 429


def _may_repeat(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: GET or HEAD, with a body that can be reread."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


def _operation(request: httpx.Request) -> str:
    """Return the operation whose allowance a request uses: that of GET for a HEAD."""
    method = "GET" if request.method == "HEAD" else request.method
    return f"{method} {_operation_of(request.url.path)}"


_operation_of = lru_cache(maxsize=1024)(operation_of)
