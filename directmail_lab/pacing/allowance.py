"""The rules of pacing: one operation's allowance, and when its next request may be sent. Pure.

All times are passed in, in seconds since the Unix epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from ..contract import TYPICAL_WINDOW_S
from ..readings.reading import Reading
from ..readings.reset_unit import SCALES, Scale, UnitName, renewal_time

Pace = Literal["burst", "even", "off"]

TIMES: Final = ("renews_at", "began_at", "answered_at", "probe_until", "next_at", "last_reset_at")
NUMBERS: Final = (
    *("remaining", "refusals", "latency_s", "gap_s"),
    *("last_reset", "largest_reset", "is_in_seconds", "rounds_down"),
)
"""The attributes of an `Allowance` that sessions with one key share."""

# No window is shorter than a second: if all values are below 1,000, they are not milliseconds.
_LEAST_MILLISECONDS: Final = 1000
# Two responses of one window may disagree about its renewal by the delay of a busy machine, and by
# rounding and latency.
_DELAY_S: Final = 0.05
# Of a difference of two times since the epoch.
_CLOCK_ERROR_S: Final = 1e-6
_LONGEST_LATENCY_S: Final = 6.0


@dataclass
class Allowance:
    """What is known of one operation's allowance.

    Attributes
    ----------
    reset_unit
        Returns the unit of ``X-RateLimit-Reset``, as far as it is known.
    max_wait_s, pace
        See `Allowances`.
    in_flight, others_in_flight, others_first
        How many requests of this session and of others have no response yet, and how many others
        wait for longer than the request that asks.
    remaining
        As in the last response; None if responses do not say.
    renews_at, began_at
        When the allowance renews, and when this window's first request was sent.
    answered_at, latency_s
        When the last response came, and the longest that recent ones took.
    probe_until
        Until when a request of any session is out that finds out what remains.
    next_at, gap_s
        With ``pace="even"``: when the next request is due, and the seconds between two.
    refusals
        How many times in a row a request was refused although the allowance should have renewed.
    last_reset, last_reset_at, largest_reset
        The last value of Reset that was used, when it came, and the largest so far.
    is_in_seconds, rounds_down
        Whether a refusal showed that Reset is not in milliseconds, and that it is rounded down.
    """

    reset_unit: Callable[[], UnitName] = lambda: "undetermined"
    max_wait_s: float = 120.0
    pace: Pace = "burst"
    in_flight: int = 0
    others_in_flight: int = 0
    others_first: int = 0
    remaining: int | None = 0
    renews_at: float = 0.0
    began_at: float = 0.0
    answered_at: float = 0.0
    latency_s: float = 0.0
    probe_until: float = 0.0
    next_at: float = 0.0
    gap_s: float = 0.0
    refusals: int = 0
    last_reset: int = 0
    last_reset_at: float = 0.0
    largest_reset: int = 0
    is_in_seconds: bool = False
    rounds_down: bool = False

    @property
    def lost_after_s(self) -> float:
        """After how many seconds a request of a process that is not heard of counts as lost."""
        return 1.0 + 10 * min(self.latency_s, _LONGEST_LATENCY_S)

    def wait_s(self, now: float, *, first: int = 0) -> float:
        """Return 0 and count a request as sent, or return how many seconds it waits.

        They are infinite if it waits for other requests. ``first`` is how many of this session's
        wait for longer.
        """
        if now < self.answered_at - 1.0:  # a clock was set back
            self.renews_at = self.answered_at = self.probe_until = self.next_at = now
        free = self._free() - first
        if free <= 0:
            in_flight = self.in_flight + self.others_in_flight
            if now < self.renews_at:
                return math.inf if self.remaining or in_flight else self.renews_at - now
            if now < self.probe_until or first or self.others_first:
                return math.inf
            self.probe_until = now + self.lost_after_s
        elif self.others_first:
            return math.inf
        elif self.pace == "even":
            if first or now < self.next_at:
                return math.inf if first else self.next_at - now
            if now < self.renews_at:
                self.gap_s = min((self.renews_at - now) / free, self.max_wait_s)
        self.in_flight += 1
        self.next_at = now + self.gap_s
        return 0.0

    def _free(self) -> float:
        """Return how many requests may be sent now."""
        if self.remaining is None:
            return math.inf
        return self.remaining - self.in_flight - self.others_in_flight

    def last_event_at(self, now: float) -> float:
        """Return when the last response came, or when the allowance renewed since."""
        return self.renews_at if self.answered_at < self.renews_at <= now else self.answered_at

    def settle(self, reading: Reading | None) -> None:
        """Take the response to a request that was counted as sent, or None if there was none."""
        self.in_flight = max(0, self.in_flight - 1)
        self.probe_until = 0.0
        if reading is None:
            return
        elapsed_s, before = reading.elapsed_s or 0.0, self.remaining
        sent_at = reading.at - elapsed_s
        is_refused = reading.status == 429
        remaining = 0 if is_refused else reading.remaining
        # In one window, each request leaves less than the one before.
        is_later = sent_at >= self.answered_at - _CLOCK_ERROR_S
        is_more = before is None or (remaining is not None and remaining >= before)
        is_new = sent_at >= self.renews_at or (is_later and is_more)
        self.answered_at = max(self.answered_at, reading.at)
        self.latency_s = max(elapsed_s, 0.9 * self.latency_s)
        if is_refused and is_new and before == 0 and self.renews_at:
            self._learn_from_refusal(reading)
        self.refusals = self.refusals + is_new if is_refused else 0
        if is_new:
            self.remaining, self.began_at = remaining, sent_at
        elif sent_at < self.began_at:
            return  # perhaps of the window before
        elif before is not None:
            self.remaining = max(0, before - 1) if remaining is None else min(before, remaining)
        if is_new or self.remaining == 0:
            self._renew(reading, is_new=is_new)

    def _renew(self, reading: Reading, *, is_new: bool) -> None:
        at, tolerance_s = self._renewal(reading)
        if not is_new and abs(at - self.renews_at) <= tolerance_s:
            # The same renewal again: values are rounded up, so the earlier time is more precise.
            at = min(at, self.renews_at)
        if self.refusals > 1:  # the service's own times are not trusted any more
            at = max(at, reading.at + 2.0 ** min(self.refusals - 2, 4))
        self.renews_at = at
        if reading.reset is not None:
            self.last_reset, self.last_reset_at = reading.reset, reading.at

    def _renewal(self, reading: Reading) -> tuple[float, float]:
        """Return when the allowance renews by our clock, and how many seconds off that may be."""
        tolerance_s = _DELAY_S + (reading.elapsed_s or 0.0)
        if reading.retry_after_s is not None and reading.status >= 400:
            return reading.at + reading.retry_after_s, tolerance_s
        self.largest_reset = max(self.largest_reset, reading.reset or 0)
        unit = self._unit(reading)
        at = renewal_time(reading, unit)
        if at is None or not (reading.reset_text or self.largest_reset):
            # Reset 0, 0, 0 says nothing; in 2, 1, 0 the zero says that it renews now.
            return max(self.began_at + TYPICAL_WINDOW_S, reading.at + 1.0), tolerance_s
        scale = SCALES.get(unit, Scale(1.0, counts_down=False))  # a date is precise to a second
        at += self.rounds_down * scale.seconds
        if not scale.counts_down and reading.served_at is not None:
            # `Date` is rounded down to a second, and was written at most `elapsed_s` ago.
            ahead_s = reading.served_at - reading.at
            at -= ahead_s if not -1.0 - tolerance_s <= ahead_s <= 0.0 else 0.0
        return at, scale.seconds + tolerance_s

    def _unit(self, reading: Reading) -> UnitName:
        """Return the unit of Reset; while it is uncertain, the one with the shortest safe wait."""
        unit = self.reset_unit()
        if unit != "undetermined":
            return unit
        is_small = self.largest_reset < _LEAST_MILLISECONDS
        is_small &= (reading.reset or 0) <= self.max_wait_s
        return "seconds_left" if self.is_in_seconds or is_small else "milliseconds_left"

    def _learn_from_refusal(self, reading: Reading) -> None:
        """Learn from a refusal after a full wait: a wrong unit, or values that are rounded down."""
        if reading.reset is None:
            return
        # A refusal alone proves nothing: another program may have used up the new window. These are
        # not milliseconds if the value fell as seconds do: 1800, and 1798 after 1.8 s.
        if self.reset_unit() == "undetermined" and self._unit(reading) == "milliseconds_left":
            fell, took_s = self.last_reset - reading.reset, reading.at - self.last_reset_at
            self.is_in_seconds |= abs(fell - took_s) <= 2 + 0.05 * took_s
        # Reset is rounded down if the renewal it names has passed although the request was refused.
        # If only the unit was wrong, assume that too: waiting a second too long costs less than
        # another refusal.
        self.rounds_down |= self.is_in_seconds or self._renewal(reading)[0] <= reading.at
