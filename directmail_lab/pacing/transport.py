"""The transport that waits for the allowance and repeats failed reads, as a `Pacer` decides."""

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
# Where no connection is made there is mostly no service: one more attempt, and its user is told.
_ATTEMPTS_TO_CONNECT: Final = 2
_RETRIED_STATUSES: Final = frozenset({502, 503, 504})
# The connection failed. A read that timed out is not tried again: its user waited long enough.
_RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# A request that waits for another's answer asks again this often, should it never be told.
_LONGEST_PIECE_S: Final = 5.0
_SHOWN_PIECE_S: Final = 0.25
# A shorter wait is over before anyone wonders.
_SHOWN_FROM_S: Final = 1.0

_Answer = httpx.Response | httpx.TransportError

_Step = tuple[Literal["send", "close", "wait"], *tuple[Any, ...]]
"""What is to be done next, and with what."""

_T = TypeVar("_T")
_Steps = Generator[_Step, Any, _T]
"""Steps to be done for a request; each is told what came of it, or raises that."""


def waiting_bar(seconds: float, reason: str) -> ProgressBar:
    """Return the bar of a wait."""
    shape = "{desc}: {bar} {n:.0f} of {total:.0f} s"
    return ProgressBar(round(seconds, 1), delay_s=0.0, desc=reason, bar_format=shape)


def _backoff_s(failures: int) -> float:
    """Return the seconds before the next attempt: more with each that failed, by chance."""
    return random.uniform(0.0, min(0.5 * 2.0 ** (failures - 1), 8.0))


def _wait(woken: futures.Future[None], seconds: float) -> None:
    futures.wait([woken], seconds)


async def _wait_async(woken: futures.Future[None], seconds: float) -> None:
    await asyncio.wait([asyncio.wrap_future(woken)], timeout=seconds)


class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while the service says that requests remain, waits where none do, repeats failed reads.

    Any number of threads, tasks and event loops may use one. What is below it leaves the `Reading`
    of each response in ``response.extensions[READING]``. A read that is refused for want of
    allowance waits for the next, and has not failed. With ``pace="off"`` nothing waits, and so
    nothing is sent again.

    Parameters
    ----------
    inner
        What sends.
    pacer
        What is known of the allowance.
    clock
        What gives the time, in seconds since the Unix epoch: the clock that readings are made by.
    wait, wait_async
        How to wait until a future is done, at most so many seconds, and how to in a task.
    progress
        What shows a wait: called with its seconds and its reason, then updated with seconds that
        are over. None shows nothing. The default is a tqdm bar, from a second on.
    backoff
        Seconds between attempts of a read, by how many failed.
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
        """Say, step by step, what is to be done for a request: sync and async do it alike."""
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
        """Wait for its turn, send it, and tell the pacer what came of it."""
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
        """Return the pause before another attempt of a read; None where there is none.

        It is as long as the service asks, or longer each time. After a refusal for want of
        allowance the pacer says how long.
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
        """Wait, piece by piece, until it is over or woken.

        It is over by the clock or, if that was set back meanwhile, by the sum of the pieces.
        """
        started, waited = self._clock(), 0.0
        seconds = wait.until - started
        shown = None
        is_long = seconds >= _SHOWN_FROM_S and not wait.for_answer
        # Of several waits at once, the first is shown.
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
    """Return whether a request may be sent again: GET and HEAD, where the body is still there."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


def _operation(request: httpx.Request) -> str:
    """Return what an allowance is for. A HEAD stands for its GET."""
    method = "GET" if request.method == "HEAD" else request.method
    return f"{method} {_operation_of(request.url.path)}"


_operation_of = lru_cache(maxsize=1024)(operation_of)
