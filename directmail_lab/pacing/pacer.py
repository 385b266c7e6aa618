"""Whether a request may be sent now: decided by the service's own numbers, on times passed in.

What is known of one operation's allowance is a `PaceState`, plain values. A `Pacer` reads it,
decides, notes what is in flight and writes it back, each time under its lock: the same steps do for
a state that several processes share.
"""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..errors import QuotaExhaustedError
from ..quota import Reading, date_of
from ..reset_unit import SCALES, ResetUnitInference, UnitName

Pace = Literal["burst", "even", "off"]

_OPERATIONS_AT_MOST: Final = 1000
_LAST_S: Final = 253_402_300_799.0
# The second "nothing left" in a row doubts what was told: each doubles the pause, up to this.
_LONGEST_PAUSE_S: Final = 16.0
# A window of less than a second is none: a value that was always below 1,000 is not milliseconds.
_LEAST_MILLISECONDS: Final = 1000
# Beside rounding and the way, what a busy machine adds.
_LEAST_TOLERANCE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Renewal:
    """When an allowance renews, by our clock.

    ``resolution_s`` is how coarsely that was told, in seconds; 0 where it is to be taken at its
    word. ``latency_s`` is how long the answer took: so much it may have been told earlier.
    """

    at: float
    resolution_s: float
    latency_s: float = 0.0

    @property
    def tolerance_s(self) -> float:
        """Two answers of one window tell renewals that are no further apart."""
        return self.resolution_s + self.latency_s + _LEAST_TOLERANCE_S


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at ``until``, in seconds since the Unix epoch, or once ``woken`` is done.

    ``for_answer`` says that it is an answer to another request that may change things.
    """

    until: float
    for_answer: bool = False
    woken: Future[None] = field(default_factory=Future, compare=False)


@dataclass(slots=True)
class PaceState:
    """What is known of one operation's allowance, and who uses it. Plain values.

    Attributes
    ----------
    in_flight
        The tickets of requests that are out: how many answers had come when each was sent.
    waiting
        The tickets of those that wait, in the order they came.
    remaining, limit
        The service's last word; ``remaining`` is None before it, and where answers do not tell.
    began_at, renews_at, seen_at
        When the window's first answer came, when the allowance renews, and when the last answer
        came, in seconds since the Unix epoch.
    answers
        How many came.
    refusals
        How many of the last ones said "nothing left".
    probed_for
        The renewal after which a request was let through to ask.
    next_slot_at, gap_s
        Where requests are spread: when the next is due, and how long after the last.
    """

    in_flight: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, None] = field(default_factory=dict)
    remaining: int | None = None
    limit: int | None = None
    began_at: float = 0.0
    renews_at: float = -math.inf
    seen_at: float = -math.inf
    answers: int = 0
    refusals: int = 0
    probed_for: float | None = None
    next_slot_at: float = -math.inf
    gap_s: float = 0.0

    @property
    def free(self) -> int:
        """Requests that can be sent now; those in flight may not be counted in the answers yet."""
        return (self.remaining or 0) - len(self.in_flight)

    def is_turn_of(self, ticket: int, places: int) -> bool:
        """Return whether a request is among the first ``places`` of those that wait."""
        if len(self.waiting) < places:
            return True
        return ticket in itertools.islice(self.waiting, max(places, 0))

    def may_probe(self, now: float) -> bool:
        """Return whether one request may ask what there is, where nothing is known to be left."""
        clock_was_set_back = now < self.seen_at - 1.0
        if self.remaining != 0 or (now < self.renews_at and not clock_was_set_back):
            return False
        return not (self.in_flight and self.probed_for == self.renews_at)

    def take(self, reading: Reading, sent_after: int, renewal: Renewal | None, now: float) -> None:
        """Take an answer to a request that was sent after ``sent_after`` answers had come."""
        is_first, overlaps = not self.answers, sent_after < self.answers
        self.answers += 1
        is_refusal = reading.status == 429
        left = 0 if is_refusal else reading.remaining
        self.refusals = self.refusals + 1 if is_refusal else 0
        self.seen_at = now
        if left is None:
            if self.remaining:
                self.remaining -= 1
            return
        if overlaps and self._was_overtaken(left, renewal):
            return
        if is_first or left > (self.remaining or 0) or now >= self.renews_at:
            self.began_at, self.renews_at = now, -math.inf
        self.remaining, self.limit = left, reading.limit
        self._renew(renewal, now)

    def _was_overtaken(self, left: int, renewal: Renewal | None) -> bool:
        """Return whether another answer of the same window, that came before, says less is left."""
        if renewal is None or self.renews_at == -math.inf:
            return left > (self.remaining or 0)
        if renewal.at > self.renews_at + renewal.tolerance_s:
            return False
        is_of_earlier_window = renewal.at < self.renews_at - renewal.tolerance_s
        return is_of_earlier_window or left > (self.remaining or 0)

    def _renew(self, renewal: Renewal | None, now: float) -> None:
        if renewal is None:
            # Nothing tells when: service.md's typical window, from its first answer on.
            at = max(self.began_at + TYPICAL_WINDOW_S, now + 1.0)
        else:
            at = renewal.at
            # One window told twice: rounded up, the earlier is closer, and late enough.
            if renewal.resolution_s and abs(at - self.renews_at) <= renewal.tolerance_s:
                at = min(at, self.renews_at)
        if self.refusals > 1:
            at = max(at, now + min(2.0 ** (self.refusals - 2), _LONGEST_PAUSE_S))
        self.renews_at = at


class Pacer:
    """Decides by operation: what one operation used up says nothing of the others.

    Any number of threads and tasks may use one.

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
        self._renewals = _RenewalReader(inference, max_wait_s=max_wait_s)
        self._states: dict[str, PaceState] = {}
        self._woken: dict[int, Future[None]] = {}
        self._lock = threading.Lock()
        self._tickets = itertools.count()
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
        with self._lock:
            state = self._state(operation)
            wait = None if self.pace == "off" else self._wait(state, ticket, now)
            if wait is None:
                state.waiting.pop(ticket, None)
                state.in_flight[ticket] = state.answers
                state.next_slot_at = now + state.gap_s
                self._wake_next(state)
            elif wait.until > give_up_at and not wait.for_answer:
                raise self._exhausted(operation, wait.until, now)
            else:
                state.waiting.setdefault(ticket)
                self._woken[ticket] = wait.woken
            return wait

    def settle(self, operation: str, ticket: int, reading: Reading | None, now: float) -> None:
        """Take the answer to a request; None where none came, or it no longer waits for its turn.

        Those whose turn it may be now are woken.
        """
        with self._lock:
            state = self._state(operation)
            self._woken.pop(ticket, None)
            state.waiting.pop(ticket, None)
            sent_after = state.in_flight.pop(ticket, None)
            is_news = reading is not None and reading.source != "replayed" and self.pace != "off"
            if sent_after is not None and reading is not None and is_news:
                told = math.isfinite(state.renews_at) and state.remaining == 0
                too_early = told and reading.status == 429 and not state.refusals
                renewal = self._renewals.read(reading, too_early=too_early)
                state.take(reading, sent_after, renewal, now)
            self._wake_next(state)

    def _wait(self, state: PaceState, ticket: int, now: float) -> Wait | None:
        if state.remaining is None:
            # The first request asks what there is. Where the answers do not tell, none waits.
            is_asking = state.in_flight and not state.answers
            return Wait(math.inf, for_answer=True) if is_asking else None
        free = state.free
        if free > 0 and state.is_turn_of(ticket, 1 if self.pace == "even" else free):
            return self._slot(state, now) if self.pace == "even" else None
        if state.may_probe(now) and state.is_turn_of(ticket, 1):
            state.probed_for = state.renews_at
            return None
        if state.in_flight or free > 0 or now >= state.renews_at:
            until = state.renews_at if now < state.renews_at else math.inf
            return Wait(until, for_answer=True)
        return Wait(state.renews_at)

    def _slot(self, state: PaceState, now: float) -> Wait | None:
        """Return the wait for the turn of an evenly spread request; None where it is now."""
        if now < state.next_slot_at <= now + self.max_wait_s:
            return Wait(state.next_slot_at)
        left_s = state.renews_at - now
        if not 0 < left_s < self.max_wait_s:
            left_s = TYPICAL_WINDOW_S * state.free / (state.limit or TYPICAL_LIMIT)
        state.gap_s = left_s / state.free
        return None

    def _wake_next(self, state: PaceState) -> None:
        for ticket in itertools.islice(state.waiting, max(state.free, 1)):
            with suppress(KeyError, InvalidStateError):
                self._woken.pop(ticket).set_result(None)

    def _state(self, operation: str) -> PaceState:
        if operation not in self._states and len(self._states) >= _OPERATIONS_AT_MOST:
            for name, kept in list(self._states.items()):
                if not kept.in_flight and not kept.waiting:
                    del self._states[name]
        return self._states.setdefault(operation, PaceState())

    def _exhausted(self, operation: str, renews_at: float, now: float) -> QuotaExhaustedError:
        until = datetime.fromtimestamp(min(renews_at, _LAST_S), UTC)
        return QuotaExhaustedError(
            f"Nothing is left for {operation} until {until:%Y-%m-%d %H:%M:%S} UTC, "
            f"{renews_at - now:.0f} s from now, and max_wait_s is {self.max_wait_s:g}. "
            "Try again then, or connect(…, max_wait_s=…) with more.",
            until=renews_at,
        )


class _RenewalReader:
    """Turns Reset and Retry-After into a time on our clock.

    While the unit of Reset is uncertain it takes the smallest wait that is safe: the guess that an
    answer has refuted is not made again.
    """

    def __init__(self, inference: ResetUnitInference, *, max_wait_s: float) -> None:
        self._inference = inference
        self._max_wait_s = max_wait_s
        self._refuted: set[UnitName] = set()
        self._guessed: UnitName | None = None
        self._largest = 0
        self._rounds_down = False
        self._last: Reading | None = None
        # How far the service's clock is ahead of ours, by its `Date` headers.
        self._ahead_least_s, self._ahead_most_s = -math.inf, math.inf

    def read(self, reading: Reading, *, too_early: bool = False) -> Renewal | None:
        """Return when the allowance renews; None where nothing tells.

        ``too_early`` says that the answer is "nothing left" after a wait for the time that was
        told before: the unit was guessed wrongly, or counts are rounded down.
        """
        self._compare_clocks(reading)
        if too_early:
            self._learn(reading)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(reading.at + reading.retry_after_s, 0.0)
        if reading.reset_text is not None:
            dated = date_of(reading.reset_text)
            return None if dated is None else Renewal(dated[1] - self._ahead_s, 1.0)
        if reading.reset is None or not (reading.reset or self._largest):
            # A zero that was always zero says nothing; after other values it says "now".
            return None
        self._largest, self._last = max(self._largest, reading.reset), reading
        unit = self._unit(reading.reset)
        if unit is None:
            return None
        scale = SCALES[unit]
        counted_s = (reading.reset + self._rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(reading.at + counted_s, scale.seconds, reading.elapsed_s or 0.0)
        return Renewal(counted_s - self._ahead_s, scale.seconds)

    def _learn(self, reading: Reading) -> None:
        """Learn from an answer that came too early: refute the guess, or expect rounding down."""
        # To learn only once, expect both: a second too many is little beside another refusal.
        self._rounds_down = True
        last = self._last
        if self._guessed is None or last is None or last.reset is None or reading.reset is None:
            return
        # Another program may have spent the new window. The guess is wrong where the value moved
        # as the other unit does.
        fell, took_s = last.reset - reading.reset, reading.at - last.at
        for unit, scale in SCALES.items():
            expected = took_s / scale.seconds
            is_other = scale.counts_down and unit != self._guessed
            if is_other and abs(fell - expected) <= 2 + 0.05 * expected:
                self._refuted.add(self._guessed)

    def _unit(self, count: int) -> UnitName | None:
        self._guessed = None
        if self._inference.unit in SCALES:
            return self._inference.unit
        left = [
            unit
            for unit in self._inference.candidates
            if unit in SCALES and unit not in self._refuted
        ]
        if len(left) > 1 and self._largest < _LEAST_MILLISECONDS and count <= self._max_wait_s:
            left = [unit for unit in left if unit != "milliseconds_left"]
        # Milliseconds before seconds: the smaller wait.
        left.sort(key=lambda unit: SCALES[unit].seconds)
        self._guessed = left[0] if left else None
        return self._guessed

    def _compare_clocks(self, reading: Reading) -> None:
        """Narrow it down: a ``Date`` is cut to the second, and was written on the way to us."""
        if reading.served_at is None:
            return
        least_s = reading.served_at - reading.at
        most_s = least_s + 1.0 + (reading.elapsed_s or 0.0)
        if least_s <= self._ahead_most_s and most_s >= self._ahead_least_s:
            least_s = max(self._ahead_least_s, least_s)
            most_s = min(self._ahead_most_s, most_s)
        self._ahead_least_s, self._ahead_most_s = least_s, most_s

    @property
    def _ahead_s(self) -> float:
        """As much as is sure: a renewal is then not expected too early."""
        unsure = self._ahead_least_s == -math.inf or self._ahead_least_s <= 0 <= self._ahead_most_s
        return 0.0 if unsure else self._ahead_least_s
