"""Whether a request may be sent now: asked, and told what came of it, from any thread or task."""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from ..errors import QuotaExhaustedError
from ..quota import Reading
from ..reset_unit import ResetUnitInference
from .state import PaceState, Pause, RenewalReader

Pace = Literal["burst", "even", "off"]

_OPERATIONS_AT_MOST: Final = 1000
_LAST_S: Final = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at ``until``, in seconds since the Unix epoch, or once ``woken`` is done.

    ``for_answer`` says that it is an answer to another request that may change things.
    """

    until: float
    for_answer: bool = False
    woken: Future[None] = field(default_factory=Future)


class Pacer:
    """Decides by operation: what one operation used up says nothing of the others.

    Any number of threads and tasks may use one. Of an operation's requests that have to wait, the
    first asks what the allowance is, and the others wait for their turn.

    Parameters
    ----------
    pace
        ``"burst"`` sends at will while requests remain, ``"even"`` spreads them over the window,
        ``"off"`` decides for sending, always.
    max_wait_s
        The longest that one request waits for the allowance, in all; a longer wait is a
        `QuotaExhaustedError`.
    inference
        What is known of the unit of ``X-RateLimit-Reset``.
    """

    def __init__(
        self, inference: ResetUnitInference, *, pace: Pace = "burst", max_wait_s: float = 120.0
    ) -> None:
        if pace not in ("burst", "even", "off"):
            raise ValueError('pace is "burst", "even" or "off".')
        self.pace = pace
        self.max_wait_s = max_wait_s
        self._spread_within_s = max_wait_s if pace == "even" else None
        self._renewals = RenewalReader(inference, max_wait_s=max_wait_s)
        self._states: dict[str, PaceState] = {}
        # By operation, the tickets of those that wait, in the order they came.
        self._queues: dict[str, dict[int, Future[None]]] = {}
        # By ticket, of those that are out, how many answers had come when each was sent.
        self._sent: dict[int, int] = {}
        self._tickets = itertools.count()
        self._lock = threading.Lock()
        # Held while a wait is shown.
        self.shown = threading.Lock()

    def ticket(self) -> int:
        """Return a number for a request, which no other has."""
        return next(self._tickets)

    def ask(self, operation: str, ticket: int, now: float, give_up_at: float) -> Wait | None:
        """Return None where a request may be sent now, else what it waits for.

        Each request has a `ticket`, and gives it back by `settle`.

        Raises
        ------
        QuotaExhaustedError
            Where nothing is left and the allowance renews after ``give_up_at``.
        """
        if self.pace == "off":
            return None
        with self._lock:
            queue = self._queues.setdefault(operation, {})
            pause: Pause | None = Pause(math.inf, for_answer=True)
            if next(iter(queue), ticket) == ticket:
                state = self._state(operation)
                pause = state.send(now, spread_within_s=self._spread_within_s)
            if pause is None:
                self._sent[ticket] = state.answers
                self._leave(operation, ticket)
                return None
            if now >= give_up_at or (pause.until > give_up_at and not pause.for_answer):
                raise self._exhausted(operation, pause.until, now)
            queue[ticket] = Future()
            return Wait(min(pause.until, give_up_at), pause.for_answer, queue[ticket])

    def settle(self, operation: str, ticket: int, reading: Reading | None, now: float) -> None:
        """Take the answer to a request; None where none came, or it no longer waits for its turn.

        Whose turn it may be now is woken.
        """
        if self.pace == "off":
            return
        with self._lock:
            sent_after = self._sent.pop(ticket, None)
            if sent_after is not None:
                state = self._state(operation)
                state.in_flight -= 1
                if reading is not None:
                    state.take(reading, sent_after, self._renewals.read(reading, state), now)
            self._leave(operation, ticket)

    def _leave(self, operation: str, ticket: int) -> None:
        """Take a request out of the queue, and wake the one that is now the first."""
        queue = self._queues.get(operation, {})
        queue.pop(ticket, None)
        if not queue:
            self._queues.pop(operation, None)
        for woken in itertools.islice(queue.values(), 1):
            with suppress(InvalidStateError):
                woken.set_result(None)

    def _state(self, operation: str) -> PaceState:
        if operation not in self._states and len(self._states) >= _OPERATIONS_AT_MOST:
            idle = [each for each, kept in self._states.items() if not kept.in_flight]
            for name in idle:
                del self._states[name]
        return self._states.setdefault(operation, PaceState())

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
