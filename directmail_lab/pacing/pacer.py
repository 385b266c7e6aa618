"""`Pacer`: decides whether a request may be sent now. Any thread or task may use it."""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

from ..display import plural
from ..errors import QuotaExhaustedError
from ..quota import Reading
from ..reset_unit import ResetUnitInference
from .renewals import RenewalReader
from .shared import MemoryStore, Store, StoreError, machine
from .state import PaceState, Pause
from .windows import WindowLog

Pace = Literal["burst", "even", "off"]

_T = TypeVar("_T")

# How long after a failure of the shared store it is tried again.
_RETRY_AFTER_S: Final = 60.0
_LAST_S: Final = 253_402_300_799.0
_TURN_OF_ANOTHER: Final = Pause(math.inf, for_answer=True)


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at ``until``, in seconds since the Unix epoch, or once ``woken`` is done.

    ``for_answer``: it waits for the answer to another request, after which it may be sent.
    """

    until: float
    for_answer: bool = False
    woken: Future[None] = field(default_factory=Future)


class Pacer:
    """Decides when requests are sent, for each operation apart: each has its own allowance.

    Any number of threads and tasks may use one. An operation's requests that wait form a queue: the
    first one waits for the allowance, the others for their turn.

    Parameters
    ----------
    pace
        ``"burst"`` sends at once while requests remain, ``"even"`` spreads them over the window,
        ``"off"`` never waits.
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
        shared: Store | None = None,
    ) -> None:
        if pace not in ("burst", "even", "off"):
            raise ValueError('pace must be "burst", "even" or "off".')
        self.pace = pace
        self.max_wait_s = max_wait_s
        self._spread_within_s = max_wait_s if pace == "even" else None
        self._renewals = RenewalReader(inference, max_wait_s=max_wait_s)
        self._own = MemoryStore()
        self._shared = shared
        self._retry_at, self._has_warned = -math.inf, False
        self._named = 0, ""
        # By operation: the tickets of the requests that wait, in the order they came.
        self._queues: dict[str, dict[int, Future[None]]] = {}
        # By ticket of each request in flight: how many answers had come when it was sent.
        self._sent: dict[int, int] = {}
        self._tickets = itertools.count()
        self._lock = threading.Lock()
        # Held while a wait is shown.
        self.shown = threading.Lock()
        self.other_kernels = 0
        self.windows = WindowLog()

    def ticket(self) -> int:
        """Return a unique number for a request."""
        return next(self._tickets)

    def ask(self, operation: str, ticket: int, now: float, give_up_at: float) -> Wait | None:
        """Return None if a request may be sent now, else what it waits for.

        Each request has a `ticket`, and ends with `settle`.

        Raises
        ------
        QuotaExhaustedError
            Nothing is left, and the allowance renews after ``give_up_at``.
        """
        if self.pace == "off":
            return None

        def decide(state: PaceState, ahead_s: float) -> tuple[Pause | None, int, int]:
            pause = state.send(place, now + ahead_s, spread_within_s=self._spread_within_s)
            kernels = 1
            if len(state.places) > 1:
                kernels = len({name.partition(".")[0] for name in state.places})
            return pause and pause._replace(until=pause.until - ahead_s), state.answers, kernels

        with self._lock:
            place = self._place()
            queue = self._queues.get(operation, {})
            pause: Pause | None = _TURN_OF_ANOTHER
            if not queue or next(iter(queue)) == ticket:
                pause, answers, kernels = self._change(operation, decide, now)
                self.other_kernels = kernels - 1
            if pause is None:
                self._sent[ticket] = answers
                self._leave(operation, ticket)
                return None
            if now >= give_up_at or (pause.until > give_up_at and not pause.for_answer):
                raise self._exhausted(operation, pause.until, now)
            woken = self._queues.setdefault(operation, queue)[ticket] = Future()
            return Wait(min(pause.until, give_up_at), pause.for_answer, woken)

    def settle(self, operation: str, ticket: int, reading: Reading | None, now: float) -> None:
        """End a request: with its answer, or None if it failed or stopped waiting.

        The first request in the queue is woken.
        """
        if self.pace == "off":
            return

        def decide(state: PaceState, ahead_s: float) -> tuple[PaceState, float]:
            state.settle(place, now + ahead_s)
            if reading is not None:
                renewal = self._renewals.read(reading, state, ahead_s)
                state.take(reading, sent_after, renewal, now + ahead_s)
            return state, ahead_s

        with self._lock:
            place = self._place()
            sent_after = self._sent.pop(ticket, -1)
            if sent_after >= 0:
                changed = self._change(operation, decide, now)
                if reading is not None:
                    self.windows.note(reading, *changed)
            self._leave(operation, ticket)

    @property
    def shared_with(self) -> str:
        """Who shares the allowance, in words: ``shared with 2 other kernels``; empty if nobody."""
        others = self.other_kernels
        return f"shared with {plural(others, 'other kernel')}" if others else ""

    def _place(self) -> str:
        """Return this session's name in the shared store: machine, process, random number."""
        if self._shared is None:
            return "this"
        process = os.getpid()  # it changes when the process forks
        if process != self._named[0]:
            self._named = process, f"{machine()}-{process}.{random.getrandbits(32):x}"
        return self._named[1]

    def _change(self, operation: str, decide: Callable[[PaceState, float], _T], now: float) -> _T:
        """Apply ``decide`` to the state in the shared store; if that fails, to our own."""
        if self._shared is not None and now >= self._retry_at:
            try:
                return self._shared.change(operation, decide)
            except StoreError as error:
                self._retry_at = now + _RETRY_AFTER_S
                self._warn(error)
        return self._own.change(operation, decide)

    def _warn(self, error: StoreError) -> None:
        if not self._has_warned:
            self._has_warned = True
            # If the user turns warnings into errors, the request must not fail.
            with suppress(UserWarning):
                warnings.warn(
                    "The allowance is not shared with other kernels, and this session paces alone: "
                    f"{error}. If it does not need to be shared, use share=None.",
                    stacklevel=2,
                )

    def close(self) -> None:
        """Close the shared store."""
        with self._lock:
            shared, self._shared = self._shared, None
            if shared is not None:
                shared.close()

    def _leave(self, operation: str, ticket: int) -> None:
        """Remove a request from the queue, and wake the one that is now first."""
        queue = self._queues.get(operation)
        if queue is None:
            return
        queue.pop(ticket, None)
        if not queue:
            del self._queues[operation]
        for woken in itertools.islice(queue.values(), 1):
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
