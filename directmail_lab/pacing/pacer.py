"""`Pacer`: decides whether a request may be sent now. Any thread or task may use it."""

from __future__ import annotations

import math
import os
import random
import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar, get_args

from ..display import plural
from ..errors import QuotaExhaustedError, check_choice
from ..readings.reading import Reading
from ..readings.reset_unit import ResetUnitInference
from .state import PaceState, Pause
from .stores import SharedStore, StoreError, machine
from .windows import RenewalReader, WindowLog

Pace = Literal["burst", "even", "off"]

_T = TypeVar("_T")

# How long after a failure of the shared store it is tried again.
_RETRY_AFTER_S: Final = 60.0
_LAST_S: Final = 253_402_300_799.0
_NOT_FIRST_IN_QUEUE: Final = Pause(math.inf, for_response=True)


@dataclass(eq=False, slots=True)
class PacedRequest:
    """A request that waits for the allowance, or is in flight.

    Attributes
    ----------
    operation
        The operation whose allowance it uses.
    give_up_at
        Until when it may wait, in seconds since the Unix epoch.
    woken
        Done when it is to ask again before its pause is over.
    sent_by
        The session's name in the state, while it is in flight.
    """

    operation: str
    give_up_at: float
    woken: Future[None] | None = None
    sent_by: str = ""


class Pacer:
    """Decides when requests are sent, for each operation apart: each has its own allowance.

    Any number of threads and tasks may use one. An operation's requests that wait form a queue: the
    first one waits for the allowance, the others for their turn.

    Parameters
    ----------
    pace
        ``"burst"`` sends at once while requests remain, ``"even"`` spreads them over the window;
        with ``"off"`` there is no `PacingTransport`, and the pacer is not asked.
    max_wait_s
        The longest that one request waits for the allowance, in total; if it would take longer,
        `QuotaExhaustedError` is raised.
    shared
        The store that all sessions with the same key share; None if this session paces alone.
    inference
        What is known about the unit of ``X-RateLimit-Reset``.

    Attributes
    ----------
    other_kernels
        How many other processes shared the allowance when it was last used.
    windows
        How much of each window was used, and by whom.
    """

    def __init__(
        self,
        inference: ResetUnitInference,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        shared: SharedStore | None = None,
    ) -> None:
        check_choice("pace", pace, get_args(Pace))
        self.pace = pace
        self.max_wait_s = max_wait_s
        self._longest_gap_s = max_wait_s if pace == "even" else None
        self._renewals = RenewalReader(inference, max_wait_s=max_wait_s)
        self._own: defaultdict[str, PaceState] = defaultdict(PaceState)
        self._shared = shared
        self._retry_at, self._has_warned = -math.inf, False
        self._suffix = f"{random.getrandbits(32):x}"
        # By operation: the requests that wait, in the order they came.
        self._queues: dict[str, deque[PacedRequest]] = {}
        self._lock, self._process = threading.Lock(), os.getpid()
        # Acquired while a progress bar is shown: only one of several waits has one.
        self.shown = threading.Lock()
        self.other_kernels = 0
        self.windows = WindowLog()

    def ask(self, request: PacedRequest, now: float) -> Pause | None:
        """Return None if a request may be sent now, else when it asks again.

        It also asks again once its ``woken`` is done. Each request ends with `settle`.

        Raises
        ------
        QuotaExhaustedError
            Nothing remains, and the allowance renews after the request's ``give_up_at``.
        """

        def decide(state: PaceState, ahead_s: float) -> Pause | None:
            pause = state.request(name, now + ahead_s, longest_gap_s=self._longest_gap_s)
            if len(state.participants) > 1:
                kernels = {participant.partition(".")[0] for participant in state.participants}
                self.other_kernels = len(kernels) - 1
            return pause and Pause(pause.until - ahead_s, pause.for_response)

        with self._own_lock():
            # Machine, process and session.
            name = f"{machine()}-{self._process}.{self._suffix}"
            queue = self._queues.get(request.operation)
            pause: Pause | None = _NOT_FIRST_IN_QUEUE
            if not queue or queue[0] is request:
                self.other_kernels = 0
                pause = self._change(request.operation, decide, now)
            if pause is None:
                request.sent_by = name
                self._leave_queue(request)
                return None
            if now >= request.give_up_at or (
                pause.until > request.give_up_at and not pause.for_response
            ):
                raise self._exhausted(request.operation, pause.until, now)
            if queue is None:
                queue = self._queues[request.operation] = deque()
            if request not in queue:
                queue.append(request)
            request.woken = Future()
            return Pause(min(pause.until, request.give_up_at), pause.for_response)

    def settle(self, request: PacedRequest, reading: Reading | None, now: float) -> None:
        """End a request: with the reading of its response, or None if it failed or gave up.

        The first request in the queue is woken.
        """

        def decide(state: PaceState, ahead_s: float) -> tuple[PaceState, float]:
            state.settle(name, now + ahead_s)
            if reading is not None:
                renewal = self._renewals.read(reading, state, ahead_s)
                state.take(reading, renewal, now + ahead_s, name=name, ahead_s=ahead_s)
            return state, ahead_s

        with self._own_lock():
            name, request.sent_by = request.sent_by, ""
            if name:
                changed = self._change(request.operation, decide, now)
                if reading is not None:
                    self.windows.note(reading, *changed)
            self._leave_queue(request)

    @property
    def shared_with(self) -> str:
        """Who shares the allowance, in words: ``shared with 2 other kernels``; empty if nobody."""
        others = self.other_kernels
        return f"shared with {plural(others, 'other kernel')}" if others else ""

    def _change(self, operation: str, decide: Callable[[PaceState, float], _T], now: float) -> _T:
        """Apply ``decide`` to the state in the shared store; if that fails, to our own."""
        if self._shared is not None and now >= self._retry_at:
            try:
                return self._shared.change(operation, decide)
            except StoreError as error:
                self._retry_at = now + _RETRY_AFTER_S
                if not self._has_warned:
                    self._has_warned = True
                    self._warn(error)
        return decide(self._own[operation], 0.0)

    def _warn(self, error: StoreError) -> None:
        with suppress(UserWarning):  # if warnings are errors, the request must not fail
            warnings.warn(
                "The allowance is not shared with other kernels, and this session paces alone: "
                f"{error}. If it does not need to be shared, use share=None.",
                stacklevel=2,
            )

    def close(self) -> None:
        """Close the shared store."""
        with self._own_lock():
            shared, self._shared = self._shared, None
            if shared is not None:
                shared.close()

    def _own_lock(self) -> threading.Lock:
        """Return this process's lock: a forked child has none of the threads that hold or wait."""
        if self._process != os.getpid():
            self._lock, self._process, self._queues = threading.Lock(), os.getpid(), {}
            self.shown = threading.Lock()
        return self._lock

    def _leave_queue(self, request: PacedRequest) -> None:
        """Remove a request from its queue, and wake the one that is now first."""
        queue = self._queues.get(request.operation)
        if queue is None:
            return
        with suppress(ValueError):
            queue.remove(request)
        if not queue:
            del self._queues[request.operation]
        elif (woken := queue[0].woken) is not None:
            with suppress(InvalidStateError):
                woken.set_result(None)

    def _exhausted(self, operation: str, renews_at: float, now: float) -> QuotaExhaustedError:
        when = ""
        if now < renews_at < math.inf:
            at = datetime.fromtimestamp(min(renews_at, _LAST_S), UTC)
            when = f" until {at:%Y-%m-%d %H:%M:%S} UTC, {renews_at - now:.0f} s from now"
        return QuotaExhaustedError(
            f"Nothing is left for {operation}{when}, and max_wait_s is {self.max_wait_s:g}. "
            "Try again later, or connect(…, max_wait_s=…) with more.",
            until=renews_at if when else None,
        )
