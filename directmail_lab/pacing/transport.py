"""The transport that waits until a request may be sent, and retries reads that failed."""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from ..arguments import check_choice
from ..display import ProgressBar, plural
from ..errors import DirectMailLabError, QuotaExhaustedError
from ..http import httpx, is_write, keep_body
from ..interaction import READING, operation_of
from ..readings.reading import Reading
from ..readings.reset_unit import UnitName
from .allowance import Allowance, Pace

if TYPE_CHECKING:
    from ..transports import Transport
    from .shared import SharedStore

CANCELLED: Final = "directmail_lab.cancelled"
"""In a request's extensions: a `threading.Event`, after which it is not sent any more."""

_ATTEMPTS: Final = 4
# If no connection can be made there is usually no service: one more attempt, and then the error.
_ATTEMPTS_TO_CONNECT: Final = 2
_RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
# The connection failed. A timeout is not retried: the user has waited long enough.
_RETRIED_ERRORS: Final = (httpx.NetworkError, httpx.RemoteProtocolError)

# A shorter wait gets no progress bar; a longer one is slept in pieces, since a clock may be set.
_SHOWN_FROM_S: Final = 1.0
_LONGEST_PIECE_S: Final = 0.5
_LAST_S: Final = 253_402_300_799.0
# After a refusal, whatever the service says, whose clock may be wrong: 1, 2, 4, … seconds.
_LONGEST_PAUSE_S: Final = 16.0

# A forked child must not close its parent's connection, and so never lets go of it.
_inherited: Final[list[object]] = []


@dataclass(eq=False, slots=True)
class _Line:
    """One operation: its allowance, and who waits for it.

    ``settled`` are the responses that came since a request last asked. They are only put there, so
    that no response waits for a lock.
    """

    operation: str
    allowance: Allowance
    waiting: set[Turn] = field(default_factory=set)
    settled: list[tuple[str, Reading | None]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Turn:
    """A request that waits or is in flight. Times are in seconds since the Unix epoch.

    Attributes
    ----------
    not_before, give_up_at
        When it may be sent at the earliest, and until when it may wait.
    is_probe
        Whether it was sent to find out what remains.
    is_over
        Whether it was given up, perhaps while it still asked in a thread.
    """

    line: _Line
    give_up_at: float
    not_before: float = 0.0
    is_probe: bool = False
    is_over: bool = False
    name: str = field(default_factory=lambda: hex(random.getrandbits(64)))


class Allowances:
    """The allowances of a session, by operation. Any number of threads and tasks may use them.

    Parameters
    ----------
    pace
        ``"burst"`` sends at once while requests remain, ``"even"`` spreads them over the window;
        ``"off"`` never waits: there is no `PacingTransport` then.
    max_wait_s
        The longest that one request waits in total, over all its attempts.
    reset_unit
        Returns the unit of ``X-RateLimit-Reset``, as far as it is known.
    shared
        The store that sessions with the same key share; None if this session paces alone, as it
        does in a forked child.
    """

    def __init__(
        self,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: Callable[[], UnitName] = lambda: "undetermined",
        shared: SharedStore | None = None,
    ) -> None:
        check_choice("pace", pace, get_args(Pace))
        self.pace, self.max_wait_s, self.shared = pace, max_wait_s, shared
        self._reset_unit = reset_unit
        self._start()

    def _start(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._lines: dict[str, _Line] = {}
        # Acquired while a progress bar is shown: only one of several waits has one.
        self.shown = threading.Lock()

    def turn(self, operation: str, now: float) -> Turn:
        """Return a new request's turn, which ends with `settle`."""
        if self._process != os.getpid():  # no thread that waits or holds the lock is in a child
            _inherited.append(self.shared)
            self.shared = None
            self._start()
        line = self._lines.get(operation)
        if line is None:
            allowance = Allowance(self._reset_unit, self.max_wait_s, self.pace)
            line = self._lines.setdefault(operation, _Line(operation, allowance))
        return Turn(line, now + self.max_wait_s)

    def wait_s(self, turn: Turn, now: float) -> float:
        """Return 0 if a request may be sent now, else in how many seconds it asks again.

        If the allowance is shared, this may take half a second.

        Raises
        ------
        QuotaExhaustedError
            The allowance renews after the request's ``give_up_at``.
        """
        with self._lock:
            line, seconds = turn.line, turn.not_before - now
            if seconds <= 0.0:
                seconds = self._change(line, now, turn)
            if not seconds:
                turn.is_probe = now < line.allowance.probe_until
                line.waiting.discard(turn)
                return 0.0
            if now + seconds > turn.give_up_at:
                raise self._exhausted(line, now)
            line.waiting.add(turn)
            return seconds

    def settle(self, turn: Turn, reading: Reading | None, now: float) -> None:
        """Take the response to a request, or None if it has none or was not sent.

        It never blocks: what others wait for, another thread tells the store.
        """
        turn.line.waiting.discard(turn)
        turn.line.settled.append((turn.name, reading))
        if self.shared is not None and (turn.is_probe or reading is None):
            threading.Thread(target=self._tell, args=[turn.line, now]).start()

    def _tell(self, line: _Line, now: float) -> None:
        with self._lock:
            self._change(line, now)

    def _change(self, line: _Line, now: float, turn: Turn | None = None) -> float:
        """Take the responses so far into account, then ask for a request."""
        settled = list(line.settled)

        def change(allowance: Allowance) -> float:
            for name, reading in settled:
                allowance.settle(name, reading)
            # Asked after `settled` was copied: what is given up later is settled later.
            if turn is None or turn.is_over:
                return math.inf
            return allowance.wait_s(now, turn.name)

        changed = None
        if self.shared is not None:
            changed = self.shared.change(line.operation, line.allowance, change, now)
        line.allowance, seconds = changed or (line.allowance, change(line.allowance))
        del line.settled[: len(settled)]
        return seconds

    @property
    def waiting_until(self) -> dict[str, float]:
        """When the allowances renew that requests wait for, by operation.

        A time that is over means that a request waits for the response to another one.
        """
        lines = [line for line in list(self._lines.values()) if line.waiting]
        return {line.operation: line.allowance.renews_at for line in lines}

    @property
    def shared_with(self) -> str:
        """Who shares the allowance, in words: ``shared with 2 other kernels``; empty if nobody."""
        others = 0 if self.shared is None else self.shared.other_kernels
        return f"shared with {plural(others, 'other kernel')}" if others else ""

    def close(self) -> None:
        """Close the shared store."""
        with self._lock:
            if self.shared is not None:
                for line in self._lines.values():
                    if line.settled:  # others take these requests for in flight
                        self._change(line, line.allowance.sent_at)
                self.shared.close()
            self.shared = None

    def _exhausted(self, line: _Line, now: float) -> QuotaExhaustedError:
        when, until = "", line.allowance.renews_at
        if now < until:
            at = datetime.fromtimestamp(min(until, _LAST_S), UTC)
            when = f" until {at:%Y-%m-%d %H:%M:%S} UTC, {until - now:.0f} s from now"
        return QuotaExhaustedError(
            f"Nothing is left for {line.operation}{when}, and max_wait_s is {self.max_wait_s:g}.",
            "Try again later, or connect(…, max_wait_s=…) with more.",
            until=until if when else None,
        )


def waiting_bar(seconds: float, reason: str) -> ProgressBar:
    """Return the progress bar of a wait."""
    shape = "{desc}: {bar} {n:.0f} of {total:.0f} s"
    return ProgressBar(round(seconds, 1), delay_s=0.0, desc=reason, bar_format=shape)


def _backoff_s(failures: int) -> float:
    """Return random seconds before the next attempt: up to 0.5, 1, 2, … 8 as failures increase."""
    return random.uniform(0.0, min(0.5 * 2.0 ** (failures - 1), 8.0))


@dataclass(eq=False, repr=False)
class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while requests remain, waits for the renewal if none do, and retries failed reads.

    Any number of threads, tasks and event loops may use one. ``inner`` must set the `Reading` of
    each response as ``response.extensions[READING]``. A read that is refused with status 429 waits
    for the renewal and is sent again; it does not count as failed.

    Parameters
    ----------
    retry
        Whether it retries; it waits in any case.
    clock
        Returns the time, in seconds since the Unix epoch; readings must have times by this clock.
    sleep, sleep_async
        Sleep for so many seconds; the second one is for tasks.
    progress
        Shows a wait of a second or more: called with its seconds and its reason; its result is
        updated with the seconds that pass. None shows nothing. The default is a tqdm bar.
    backoff
        Returns the seconds before the next attempt of a read, given how many have failed.
    """

    inner: Transport
    allowances: Allowances
    _: KW_ONLY
    retry: bool = True
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep
    progress: Callable[[float, str], Any] | None = waiting_bar
    backoff: Callable[[int], float] = _backoff_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with _Attempts(self, request) as attempts:
            while True:
                while seconds := attempts.wait_s():
                    self.sleep(attempts.show(seconds))
                try:
                    response = self.inner.handle_request(request)
                except httpx.TransportError as error:
                    if not attempts.is_repeated_after(error):
                        raise
                else:
                    if not attempts.is_repeated_after(response):
                        return response
                    with suppress(httpx.RequestError), closing(response):
                        response.read()
                        keep_body(response)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _Attempts(self, request) as attempts:
            while True:
                while seconds := await self._wait_s(attempts):
                    await self.sleep_async(attempts.show(seconds))
                try:
                    response = await self.inner.handle_async_request(request)
                except httpx.TransportError as error:
                    if not attempts.is_repeated_after(error):
                        raise
                else:
                    if not attempts.is_repeated_after(response):
                        return response
                    with suppress(httpx.RequestError):
                        async with aclosing(response):
                            await response.aread()
                            keep_body(response)

    async def _wait_s(self, attempts: _Attempts) -> float:
        """Ask in a thread where that may wait for a shared store, which no event loop should."""
        if self.allowances.shared is None:
            return attempts.wait_s()
        return await asyncio.to_thread(attempts.wait_s)


class _Attempts:
    """The attempts at one request: when each may be sent, and whether there is another."""

    def __init__(self, transport: PacingTransport, request: httpx.Request) -> None:
        self._transport, self._request = transport, request
        self._allowances, self._clock = transport.allowances, transport.clock
        method = "GET" if request.method == "HEAD" else request.method  # they share an allowance
        operation = f"{method} {_operation_of(request.url.path)}"
        self._turn = self._allowances.turn(operation, self._clock())
        self._failures = self._refusals = 0
        self._reason = ""
        self._bar: Any = None

    def wait_s(self) -> float:
        """Return in how many seconds to ask again; 0 if the request may be sent."""
        cancelled = self._request.extensions.get(CANCELLED)
        if cancelled is not None and cancelled.is_set():
            raise DirectMailLabError("The request was cancelled while it waited.", "Send it again.")
        return self._allowances.wait_s(self._turn, self._clock())

    def show(self, seconds: float) -> float:
        """Return how much of a wait is slept at once; a progress bar shows a long one."""
        progress = self._transport.progress if seconds >= _SHOWN_FROM_S else None
        if progress and self._bar is None and self._allowances.shown.acquire(blocking=False):
            shared = self._allowances.shared_with
            reason = f"{seconds:.0f} s until the allowance renews{shared and f', {shared}'}"
            self._bar = progress(seconds, f"{self._turn.line.operation}: {self._reason or reason}")
        piece_s = min(seconds, _LONGEST_PIECE_S)
        if self._bar is not None:
            self._bar.update(piece_s)
        return piece_s

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._allowances.shown.release()

    def is_repeated_after(self, outcome: httpx.Response | httpx.TransportError) -> bool:
        """Return whether the request is sent again, after the waits that come next.

        After a refusal (429) the allowance decides how long to wait. After a failure it is what
        ``Retry-After`` asks for, else what ``backoff`` returns.
        """
        self._close_bar()
        now, turn, reading = self._clock(), self._turn, None
        is_retried = isinstance(outcome, _RETRIED_ERRORS)
        if isinstance(outcome, httpx.Response):
            reading = outcome.extensions[READING]
            is_retried = reading.status in _RETRIED_STATUSES
        self._allowances.settle(turn, reading, now)
        if not (is_retried and self._transport.retry and _may_repeat(self._request)):
            return False
        if reading is not None and reading.status == 429:
            turn.not_before = now + min(2.0**self._refusals, _LONGEST_PAUSE_S)
            self._refusals += 1
            self._reason = ""
            return True
        self._failures += 1
        self._reason = f"attempt {self._failures + 1} of {_ATTEMPTS}"
        retry_after_s = None if reading is None else reading.retry_after_s
        if retry_after_s is None:
            retry_after_s = self._transport.backoff(self._failures)
        turn.not_before = now + retry_after_s
        most = _ATTEMPTS_TO_CONNECT if isinstance(outcome, httpx.ConnectError) else _ATTEMPTS
        return self._failures < most and turn.not_before <= turn.give_up_at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._close_bar()
        if error is not None:
            self._turn.is_over = True
            self._allowances.settle(self._turn, None, self._clock())


def _may_repeat(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: GET or HEAD, with a body that can be reread."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


_operation_of = lru_cache(maxsize=1024)(operation_of)
