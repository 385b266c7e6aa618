"""The transport that waits until a request may be sent, and retries failed reads."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing, suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, get_args

from ...arguments import check_choice
from ...display import Progress, plural, utc_time
from ...errors import AllowanceExhaustedError, DirectMailLabError
from ...exchange.httpx_values import httpx, is_write
from ...exchange.operations import operation_of
from ...readings.reading import LAST_S, Reading
from ...readings.reset_unit import UnitName
from ...readings.sharing import SharedAllowances, name_of_shared
from ...settings import Origin, origin_of
from .allowance import Allowance, Pace
from .extensions import Call, call_of

if TYPE_CHECKING:
    from . import Transport

_ATTEMPTS = 4
# Others may use up a new window first, but not that often.
_MOST_REFUSALS = 8
# If no connection can be made, there is usually no service. So there is just one more attempt.
_ATTEMPTS_TO_CONNECT = 2
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
# The connection failed. A timeout is not retried: the user has waited long enough.
_RETRIED_ERRORS = (httpx.NetworkError, httpx.RemoteProtocolError)

# A shorter wait gets no progress bar. A long one is slept in pieces, since the clock may be set.
_SHOWN_FROM_S = 1.0
_LONGEST_PIECE_S = 0.5
# A request that waits for one of its batch asks again after this time.
_TURN_S = 0.02


class Allowances:
    """The allowances of a session, by operation, for any number of threads and tasks.

    Parameters
    ----------
    pace
        ``"burst"`` sends at once while requests remain, ``"even"`` spreads them over the window;
        ``"off"`` never waits: there is no `PacingTransport` then.
    max_wait_s
        The longest that one request waits in total, over all its attempts.
    reset_unit
        Returns the unit of ``X-RateLimit-Reset``, as far as it is known.

    Attributes
    ----------
    lock
        Acquired while an `Allowance` is read or changed, which takes no time.
    shown
        Acquired while a progress bar is shown, so that only one of several waits has a bar.
    """

    def __init__(
        self,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: Callable[[], UnitName] = lambda: "undetermined",
    ) -> None:
        check_choice("pace", pace, get_args(Pace))
        self.pace = pace
        self.max_wait_s = max_wait_s
        self._reset_unit = reset_unit
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self.lock = threading.Lock()
        self.shown = threading.Lock()
        self._allowances: dict[str, Allowance] = {}
        self._limits: dict[str, int] = {}
        self._sharing = SharedAllowances()

    def of(self, operation: str) -> Allowance:
        """Return an operation's allowance, which may be shared with others."""
        if self._process != os.getpid():  # a forked child has none of the threads that wait
            self._start()
        limit = self._limits.get(operation)
        if limit is not None and self._sharing.is_shared(limit):
            operation = name_of_shared(limit)
        allowance = self._allowances.get(operation)
        if allowance is None:
            new = Allowance(self._reset_unit, self.max_wait_s, self.pace)
            allowance = self._allowances.setdefault(operation, new)
        return allowance

    def observe(self, operation: str, reading: Reading) -> None:
        """Learn which operations share an allowance."""
        limit = reading.limit
        if limit is None or reading.elsewhere:
            return
        self._limits[operation] = limit
        self._sharing.observe(operation, limit, reading.remaining)
        if self._sharing.is_shared(limit):
            # The operation that showed it knows what remains.
            self._allowances.setdefault(name_of_shared(limit), self._allowances[operation])

    @property
    def waiting_until(self) -> dict[str, float]:
        """When each allowance renews that a request waits for, by operation.

        If the time is past, the request waits for the response to another one.
        """
        known = list(self._allowances.items())
        return {operation: each.renews_at for operation, each in known if each.waiting}


def waiting_bar(seconds: float, reason: str) -> Progress:
    """Return the progress bar of a wait."""
    return Progress(reason, round(seconds, 1), "s", delay_s=0.0)


def _backoff_s(failures: int) -> float:
    """Return random seconds before the next attempt: up to 0.5, 1, 2, … 8 as failures increase."""
    return random.uniform(0.0, min(0.5 * 2.0 ** (failures - 1), 8.0))


@dataclass(eq=False, repr=False)
class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends while requests remain, waits for the renewal if none do, and retries failed reads.

    Any number of threads, tasks and event loops may use one. ``inner`` must note the reading of
    each response (see `Call`). A read that is refused with 429 waits for the renewal and is
    sent again, eight times in all; it does not count as failed. If it was refused while others of
    its batch were under way and requests remained, fewer are sent at once. Clients of other
    libraries wait and retry by themselves, so their requests pass at once.

    Parameters
    ----------
    retry
        Whether it retries. It waits in any case.
    clock
        Returns the time, in seconds since the Unix epoch; readings must have times by this clock.
    sleep, sleep_async
        Sleep for a number of seconds; the second one is for tasks.
    progress
        Called with the seconds and the reason of a wait of a second or more. It returns a progress
        bar, which is updated with the seconds that pass. None shows no bar.
    own_origin
        The origin of the service address. Operations of other origins have their own allowances.
    backoff
        Returns the seconds before the next attempt of a read, given how many have failed.
    """

    inner: Transport
    allowances: Allowances
    _: KW_ONLY
    retry: bool = True
    own_origin: Origin | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep
    progress: Callable[[float, str], Any] | None = waiting_bar
    backoff: Callable[[int], float] = _backoff_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = call_of(request)
        if call.send is not None:
            return self.inner.handle_request(request)
        with _Attempts(self, request, call) as attempts:
            while True:
                for seconds in iter(attempts.wait_s, 0.0):
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

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = call_of(request)
        if call.send is not None:
            return await self.inner.handle_async_request(request)
        with _Attempts(self, request, call) as attempts:
            while True:
                for seconds in iter(attempts.wait_s, 0.0):
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


class _Attempts:
    """The attempts at one request: when each may be sent, and whether there is another."""

    def __init__(self, transport: PacingTransport, request: httpx.Request, call: Call) -> None:
        self._transport = transport
        self._request = request
        self._call = call
        # HEAD and GET share an allowance.
        method = "GET" if request.method == "HEAD" else request.method
        url = request.url
        is_own = transport.own_origin in (None, origin_of(url))
        place = "" if is_own else f"{url.scheme}://{url.netloc.decode('ascii')}"
        self._operation = f"{method} {place}{_cached_operation_of(url.path)}"
        self._allowance = transport.allowances.of(self._operation)
        self._clock = transport.clock
        self._lock = transport.allowances.lock
        self._give_up_at = self._clock() + self._allowance.max_wait_s
        self._not_before = 0.0
        self._failures = 0
        self._refusals = 0
        self._reason = ""
        self._bar: Any = None
        # How many of its batch were under way when it was sent, and how many might have been.
        self._together = 0
        self._most = 0

    def wait_s(self) -> float:
        """Return after how many seconds to ask again, or 0 if the request may be sent.

        Raises
        ------
        AllowanceExhaustedError
            The request may not wait until the allowance renews.
        """
        batch = self._call.batch
        if batch is not None and batch.is_over.is_set():
            raise DirectMailLabError("The request was cancelled while it waited.", "Send it again.")
        now = self._clock()
        seconds = self._not_before - now
        if seconds <= 0.0:
            with self._lock:
                if batch is not None and len(batch.sending) >= batch.most:
                    return _TURN_S
                seconds = self._allowance.wait_s(now, self)
                if batch is not None and not seconds:
                    batch.sending.add(self)
                    self._together = len(batch.sending)
                    self._most = batch.most
        if seconds and now + seconds > self._give_up_at:
            raise self._exhausted(now)
        return seconds

    def _exhausted(self, now: float) -> AllowanceExhaustedError:
        allowance = self._allowance
        until = allowance.renews_at
        is_known = now < until and allowance.is_renewal_known
        left = "nearly used up" if allowance.remaining else "used up"
        said = [f"The allowance for {self._operation} is {left}."]
        if is_known:
            at = utc_time(min(until, LAST_S))
            said.append(f"It renews at {at:%Y-%m-%d %H:%M:%S} UTC, {until - now:.0f} s from now.")
        elif now < until:
            said.append(f"The service does not say when it renews; {until - now:.0f} s is a guess.")
        if self._refusals:
            said.append(f"The request was refused (429) {plural(self._refusals, 'time')}.")
        said.append(f"A request waits {allowance.max_wait_s:g} s at most (max_wait_s).")
        return AllowanceExhaustedError(
            " ".join(said),
            "Try again later, or allow longer waits: dm.connect(…, max_wait_s=…).",
            until=until if is_known else None,
        )

    def show(self, seconds: float) -> float:
        """Return how many seconds to sleep at once, and show a long wait in a progress bar."""
        progress = self._transport.progress if seconds >= _SHOWN_FROM_S else None
        shown = self._transport.allowances.shown
        if progress and self._bar is None and shown.acquire(blocking=False):
            reason = self._reason or "waiting for the allowance"
            self._bar = progress(seconds, f"{self._operation}: {reason}")
        piece_s = min(seconds, _LONGEST_PIECE_S)
        if self._bar is not None:
            self._bar.update(piece_s)
            if piece_s == seconds:
                self._hide()
        return piece_s

    def _hide(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._transport.allowances.shown.release()

    def is_repeated_after(self, outcome: httpx.Response | httpx.TransportError) -> bool:
        """Return whether to send the request again, after the waits that come next.

        After a refusal (429), the allowance decides how long to wait. After a failure,
        ``Retry-After`` does, or else ``backoff``.
        """
        reading = None
        is_retried = isinstance(outcome, _RETRIED_ERRORS)
        if isinstance(outcome, httpx.Response):
            reading = self._call.reading
            is_retried = outcome.status_code in _RETRIED_STATUSES
        refusal = reading if reading is not None and reading.status == 429 else None
        is_one_too_many = refusal is not None and self._is_one_too_many(refusal)
        self._settle(None if is_one_too_many else reading)
        may_repeat = (refusal is not None and self._call.is_row) or _may_repeat(self._request)
        if not (is_retried and self._transport.retry and may_repeat):
            return False
        now = self._clock()
        if refusal is not None and is_one_too_many:
            self._send_fewer()
            self._not_before = now + (refusal.retry_after_s or 0.0)
            return True
        if refusal is not None:
            self._refusals += 1
            if self._refusals == _MOST_REFUSALS:
                return False
            self._not_before = now + self._allowance.pause_s(now, self._refusals)
            self._reason = ""
            return True
        self._failures += 1
        self._reason = f"attempt {self._failures + 1} of {_ATTEMPTS}"
        delay_s = None if reading is None else reading.retry_after_s
        if delay_s is None:
            delay_s = self._transport.backoff(self._failures)
        self._not_before = now + delay_s
        most = _ATTEMPTS_TO_CONNECT if isinstance(outcome, httpx.ConnectError) else _ATTEMPTS
        return self._failures < most and self._not_before <= self._give_up_at

    def _is_one_too_many(self, reading: Reading) -> bool:
        """Return whether a refusal was because others were under way.

        That is so if requests remained, or if nothing is known of that.
        """
        batch = self._call.batch
        if batch is None:
            return False
        left = self._allowance.remaining if reading.remaining is None else reading.remaining
        return left != 0 and max(self._together, len(batch.sending)) > 1

    def _send_fewer(self) -> None:
        batch = self._call.batch
        assert batch is not None, "only then it is called"
        with self._lock:
            if batch.most == self._most:  # else another one of those has halved it
                batch.most = max(1, batch.most // 2)

    def _settle(self, reading: Reading | None) -> None:
        if reading is not None and reading.age_s:
            reading = None  # a cache knows what remained, not what remains
        with self._lock:
            if self._call.batch is not None:
                self._call.batch.sending.discard(self)
            self._allowance.settle(self, reading)
            if reading is not None:
                self._transport.allowances.observe(self._operation, reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._hide()
        if error is not None:
            self._settle(None)


def _may_repeat(request: httpx.Request) -> bool:
    """Return whether a request may be sent again: a GET or HEAD whose body can be read again."""
    repeatable = request.method in ("GET", "HEAD") and not is_write(request)
    return repeatable and isinstance(request.stream, httpx.ByteStream)


# Each live request needs its operation, and few paths are new.
_cached_operation_of = lru_cache(maxsize=1024)(operation_of)
