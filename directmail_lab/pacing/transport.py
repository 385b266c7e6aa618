"""Pacing: requests go at will while the service says that some remain, and wait where none do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from ..http import httpx, is_write, lost_answer
from ..interaction import READING, operation_of
from .bell import Bell
from .pacer import Go, Hold, Pace, Pacer
from .retries import (
    ATTEMPTS,
    CONNECT_ATTEMPTS,
    RETRIED_ERRORS,
    RETRIED_STATUSES,
    WatchedBody,
    backoff_s,
    may_retry,
)
from .waits import WaitingBar, asleep_for, sleep_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..quota import Reading
    from ..quota.reset_unit import ResetUnit
    from .waits import Progress

__all__ = ["Pace", "PacingTransport"]

# A held request asks again this often even if it missed the answer it waits for.
_HOLD_AT_MOST_S: Final = 5.0


class _Inner(Protocol):
    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...


@dataclass(frozen=True, slots=True)
class _Send:
    """Send the request."""


@dataclass(frozen=True, slots=True)
class _Drop:
    """Close a response that nobody will see."""

    response: httpx.Response


@dataclass(frozen=True, slots=True)
class _Pause:
    """Sleep; ``reason`` is for whoever watches."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class _Listen:
    """Sleep until another answer of an operation came, at most so long (see `Bell`)."""

    operation: str
    seconds: float
    rung: int


_Step = _Send | _Drop | _Pause | _Listen
_Steps = Generator[_Step, httpx.Response | None, httpx.Response]

_SEND = _Send()


class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while the service says that requests remain, waits where none do, repeats failed reads.

    Any number of threads, tasks and event loops may use one. What is below it leaves the `Reading`
    of each response in ``response.extensions[READING]``.

    Parameters
    ----------
    inner
        What sends.
    pace, max_wait_s, reset_unit
        See `Pacer`. With ``pace="off"`` nothing waits, and so nothing is sent again.
    is_replayed
        Whether a request will be answered without the service: it is then not held back.
    clock
        What gives the time, in seconds since the Unix epoch: the clock that readings are made by.
    sleep, asleep
        How to sleep, and how to in a task.
    progress
        What shows a wait; None shows nothing. The default is a tqdm bar, from a second on.
    backoff
        Seconds between attempts of a read, by how many failed.
    """

    def __init__(
        self,
        inner: _Inner,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: ResetUnit | None = None,
        is_replayed: Callable[[httpx.Request], bool] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        progress: Progress | None = WaitingBar,
        backoff: Callable[[int], float] = backoff_s,
    ) -> None:
        self._inner = inner
        self._pacer = Pacer(pace=pace, max_wait_s=max_wait_s, reset_unit=reset_unit)
        self._waits = pace != "off"
        self._max_wait_s = max_wait_s
        self._is_replayed = is_replayed
        self._clock = clock
        self._sleep = sleep
        self._asleep = asleep
        self._watch = (clock, progress)
        self._backoff = backoff
        self._lock = threading.Lock()
        self._bell = Bell()

    def over(
        self, inner: _Inner, *, is_replayed: Callable[[httpx.Request], bool] | None = None
    ) -> PacingTransport:
        """Return the same pacing over another transport: what it knows is shared."""
        other = copy(self)
        other._inner = inner
        other._is_replayed = is_replayed
        return other

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        steps = self._steps(request)
        step = next(steps)
        while True:
            response: httpx.Response | None = None
            try:
                if isinstance(step, _Send):
                    response = self._inner.handle_request(request)
                elif isinstance(step, _Drop):
                    step.response.close()
                elif isinstance(step, _Pause):
                    sleep_for(step.seconds, step.reason, self._sleep, *self._watch)
                else:
                    self._bell.wait(step.operation, step.rung, step.seconds)
            except BaseException as error:
                step = steps.throw(error)
            else:
                try:
                    step = steps.send(response)
                except StopIteration as end:
                    answer: httpx.Response = end.value
                    return answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        steps = self._steps(request)
        step = next(steps)
        while True:
            response: httpx.Response | None = None
            try:
                if isinstance(step, _Send):
                    response = await self._inner.handle_async_request(request)
                elif isinstance(step, _Drop):
                    await step.response.aclose()
                elif isinstance(step, _Pause):
                    await asleep_for(step.seconds, step.reason, self._asleep, *self._watch)
                else:
                    await self._bell.wait_async(step.operation, step.rung, step.seconds)
            except BaseException as error:
                step = steps.throw(error)
            else:
                try:
                    step = steps.send(response)
                except StopIteration as end:
                    answer: httpx.Response = end.value
                    return answer

    def _steps(self, request: httpx.Request) -> _Steps:
        """Say, step by step, what is to be done for a request: sync and async do it alike."""
        operation = _operation(request)
        replayed = self._is_replayed is not None and self._is_replayed(request)
        attempt = 0
        while True:
            attempt += 1
            ticket = None if replayed else (yield from self._admit(operation))
            response: httpx.Response | None = None
            failure: Exception | None = None
            try:
                response = yield _SEND
            except httpx.TransportError as error:
                failure = error
            finally:
                self._settle(ticket, response)
            if not self._is_worth_another(request, response, failure, attempt):
                break
            if response is not None:
                yield _Drop(response)
            pause_s = self._pause_s(response, attempt)
            if pause_s > 0:
                yield _Pause(pause_s, f"{operation}: attempt {attempt + 1} of {ATTEMPTS}")
        if failure is not None:
            lost = lost_answer(request, failure)
            raise failure if lost is None else lost from failure
        assert response is not None
        if is_write(request):
            response.stream = WatchedBody(request, response)
        return response

    def _admit(self, operation: str) -> Generator[_Step, httpx.Response | None, Go]:
        """Wait until a request of an operation may be sent."""
        while True:
            with self._lock:
                now = self._clock()
                decision = self._pacer.ask(operation, now)
                rung = self._bell.rung(operation)
            if isinstance(decision, Go):
                return decision
            seconds = max(decision.until - now, 0.0)
            if isinstance(decision, Hold):
                yield _Listen(operation, min(seconds, _HOLD_AT_MOST_S), rung)
            else:
                yield _Pause(seconds, f"{operation}: until the allowance renews")

    def _settle(self, ticket: Go | None, response: httpx.Response | None) -> None:
        """Tell the pacer what came of a request, and wake those that wait for it."""
        if ticket is None:
            return
        reading: Reading | None = None if response is None else response.extensions.get(READING)
        with self._lock:
            self._pacer.answered(ticket, reading, self._clock())
        self._bell.ring(ticket.operation)

    def _is_worth_another(
        self,
        request: httpx.Request,
        response: httpx.Response | None,
        failure: Exception | None,
        attempt: int,
    ) -> bool:
        most = CONNECT_ATTEMPTS if isinstance(failure, httpx.ConnectError) else ATTEMPTS
        if not self._waits or attempt >= most or not may_retry(request):
            return False
        if response is None:
            return isinstance(failure, RETRIED_ERRORS)
        reading: Reading | None = response.extensions.get(READING)
        if reading is not None and reading.source == "replayed":
            return False
        return response.status_code in RETRIED_STATUSES

    def _pause_s(self, response: httpx.Response | None, attempt: int) -> float:
        """Return the pause before another attempt: as asked for, else a library's backoff."""
        reading: Reading | None = None
        if response is not None:
            reading = response.extensions.get(READING)
            if response.status_code == 429 and reading is not None:
                # The allowance is empty now: asking for the next go waits until it renews.
                return 0.0
        asked_s = None if reading is None else reading.retry_after_s
        return min(self._backoff(attempt) if asked_s is None else asked_s, self._max_wait_s)

    def close(self) -> None:
        """Close what is below."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()

    async def aclose(self) -> None:
        """Close what is below."""
        aclose = getattr(self._inner, "aclose", None)
        if aclose is not None:
            await aclose()


def _operation(request: httpx.Request) -> str:
    """Return what an allowance is for. A HEAD stands for its GET."""
    method = "GET" if request.method == "HEAD" else request.method
    return f"{method} {_operation_of(request.url.path)}"


_operation_of = lru_cache(maxsize=1024)(operation_of)
