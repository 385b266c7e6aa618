"""What is known of one operation's allowance, who uses it, and who may send now: plain values.

One `PaceState` is all that pacing remembers. A session keeps it in memory, or several keep it in
one place (see `directmail_lab.pacing.stores`): the rules are the same. All times are passed in, in
seconds since the Unix epoch, by the clock of whoever keeps the state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..quota import Reading, date_of
from ..reset_unit import SCALES, ResetUnitInference, UnitName

# The second "nothing left" in a row doubts what was told: each doubles the pause, up to this.
_LONGEST_PAUSE_S: Final = 16.0
# A window of less than a second is none: a value that was always below 1,000 is not milliseconds.
_LEAST_MILLISECONDS: Final = 1000
# Beside rounding and the way, what a busy machine adds.
_LEAST_TOLERANCE_S: Final = 0.05


class Renewal(NamedTuple):
    """When an allowance renews.

    ``resolution_s`` is how coarsely that was told, in seconds; 0 where it is to be taken at its
    word. ``latency_s`` is how long the answer took: so much it may have been told earlier.
    """

    at: float
    resolution_s: float = 0.0
    latency_s: float = 0.0

    @property
    def tolerance_s(self) -> float:
        """Two answers of one window tell renewals that are no further apart."""
        return self.resolution_s + self.latency_s + _LEAST_TOLERANCE_S


class Pause(NamedTuple):
    """Ask again at ``until``; ``for_answer`` says that another's answer may change things."""

    until: float
    for_answer: bool = False


@dataclass
class PaceState:
    """What is known of one operation's allowance, and who uses it.

    Attributes
    ----------
    in_flight
        How many requests are out.
    remaining, limit
        The service's last word; ``remaining`` is None before it, and where answers do not tell.
    began_at, renews_at, seen_at
        When the window's first answer came, when the allowance renews, and when the last answer
        came.
    answers
        How many came.
    refusals, refused_at
        How many of the last ones said "nothing left", and how many had come by then.
    probed_for
        The renewal after which a request was let through to ask.
    next_slot_at, gap_s
        Where requests are spread: when the next is due, and how long after the last.
    refuted, rounds_down
        The units of Reset that an answer has ruled out, and whether its counts are rounded down.
    largest, last_reset, last_at
        The largest and the last value of Reset, and when that came.
    """

    in_flight: int = 0
    remaining: int | None = None
    limit: int | None = None
    began_at: float = 0.0
    renews_at: float = -math.inf
    seen_at: float = -math.inf
    answers: int = 0
    refusals: int = 0
    refused_at: int = 0
    probed_for: float | None = None
    next_slot_at: float = -math.inf
    gap_s: float = 0.0
    refuted: list[UnitName] = field(default_factory=list)
    rounds_down: bool = False
    largest: int = 0
    last_reset: int = 0
    last_at: float = 0.0

    def send(self, now: float, *, spread_within_s: float | None = None) -> Pause | None:
        """Count a request as sent and return None, or return what it waits for.

        ``spread_within_s`` spreads requests over the window, where that ends within these seconds.
        """
        pause = self._pause(now, spread_within_s)
        if pause is None:
            self.in_flight += 1
            self.next_slot_at = now + self.gap_s
        return pause

    def _pause(self, now: float, spread_within_s: float | None) -> Pause | None:
        if self.remaining is None:
            # The first request asks what there is. Where the answers do not tell, none waits.
            is_asked = self.in_flight and not self.answers
            return Pause(math.inf, for_answer=True) if is_asked else None
        # Those in flight may not be counted in the answers yet.
        free = self.remaining - self.in_flight
        if free > 0:
            return None if spread_within_s is None else self._slot(now, free, spread_within_s)
        clock_was_set_back = now < self.seen_at - 1.0
        is_renewed = now >= self.renews_at or clock_was_set_back
        is_asked = self.in_flight and self.probed_for == self.renews_at
        if self.remaining == 0 and is_renewed and not is_asked:
            self.probed_for = self.renews_at
            return None
        until = self.renews_at if now < self.renews_at else math.inf
        return Pause(until, for_answer=bool(self.in_flight) or until == math.inf)

    def _slot(self, now: float, free: int, within_s: float) -> Pause | None:
        """Return the pause until an evenly spread request is due; None where it is now."""
        if now < self.next_slot_at <= now + within_s:
            return Pause(self.next_slot_at)
        left_s = self.renews_at - now
        if not 0 < left_s < within_s:
            left_s = TYPICAL_WINDOW_S * free / (self.limit or TYPICAL_LIMIT)
        self.gap_s = left_s / free
        return None

    def take(self, reading: Reading, sent_after: int, renewal: Renewal | None, now: float) -> None:
        """Take an answer to a request that was sent after ``sent_after`` answers had come."""
        is_first, overlaps = not self.answers, sent_after < self.answers
        self.answers += 1
        left = reading.remaining
        if reading.status != 429:
            self.refusals = 0
        else:
            left = 0
            # Of requests that were out together, several refusals are one.
            self.refusals += sent_after >= self.refused_at
            self.refused_at = self.answers
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
        says_more = left > (self.remaining or 0)
        if renewal is None or self.renews_at == -math.inf:
            return says_more
        if renewal.at > self.renews_at + renewal.tolerance_s:
            return False
        return says_more or renewal.at < self.renews_at - renewal.tolerance_s

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


class RenewalReader:
    """Turns Reset and Retry-After into a time on our clock.

    While the unit of Reset is uncertain it takes the smallest wait that is safe: the guess that an
    answer has refuted is not made again. What it learns of an operation it keeps in its state.
    """

    def __init__(self, inference: ResetUnitInference, *, max_wait_s: float) -> None:
        self._inference = inference
        self._max_wait_s = max_wait_s
        # How far the service's clock is ahead of ours, by its `Date` headers.
        self._ahead_least_s, self._ahead_most_s = -math.inf, math.inf

    def read(self, reading: Reading, state: PaceState) -> Renewal | None:
        """Return when the allowance renews; None where nothing tells."""
        self._compare_clocks(reading)
        was_told = math.isfinite(state.renews_at) and state.remaining == 0
        if was_told and reading.status == 429 and not state.refusals:
            self._learn(reading, state)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(reading.at + reading.retry_after_s)
        if reading.reset_text is not None:
            dated = date_of(reading.reset_text)
            return None if dated is None else Renewal(dated[1] - self._ahead_s, 1.0)
        if reading.reset is None or not (reading.reset or state.largest):
            # A zero that was always zero says nothing; after other values it says "now".
            return None
        state.largest = max(state.largest, reading.reset)
        state.last_reset, state.last_at = reading.reset, reading.at
        unit = self._unit(reading.reset, state)
        if unit is None:
            return None
        scale = SCALES[unit]
        counted_s = (reading.reset + state.rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(reading.at + counted_s, scale.seconds, reading.elapsed_s or 0.0)
        return Renewal(counted_s - self._ahead_s, scale.seconds)

    def _learn(self, reading: Reading, state: PaceState) -> None:
        """Learn from a refusal after the wait that was told: another unit, or rounding down."""
        # To learn only once, expect both: a second too many is little beside another refusal.
        state.rounds_down = True
        guessed = self._unit(state.last_reset, state)
        if reading.reset is None or guessed is None or self._inference.unit == guessed:
            return
        # Another program may have spent the new window. The guess is wrong where the value moved
        # as the other unit does.
        fell, took_s = state.last_reset - reading.reset, reading.at - state.last_at
        for unit, scale in SCALES.items():
            expected = took_s / scale.seconds
            is_other = scale.counts_down and unit != guessed
            if is_other and abs(fell - expected) <= 2 + 0.05 * expected:
                state.refuted.append(guessed)

    def _unit(self, count: int, state: PaceState) -> UnitName | None:
        if self._inference.unit in SCALES:
            return self._inference.unit
        possible = set(self._inference.candidates).difference(state.refuted)
        left = [unit for unit in SCALES if unit in possible]
        if len(left) > 1 and state.largest < _LEAST_MILLISECONDS and count <= self._max_wait_s:
            left = [unit for unit in left if unit != "milliseconds_left"]
        # Milliseconds before seconds: the smaller wait.
        return min(left, key=lambda unit: SCALES[unit].seconds, default=None)

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
