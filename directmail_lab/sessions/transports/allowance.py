"""The rules of pacing: one operation's allowance, and when its next request may be sent.

All times are in seconds since the Unix epoch and are passed in, so nothing here waits or reads a
clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Literal

from ...exchange.contract import TYPICAL_WINDOW_S
from ...readings.reading import Reading
from ...readings.reset_unit import SCALES, UnitName, renewal_time

Pace = Literal["burst", "even", "off"]

# If all values are below 1,000, they are not milliseconds: no window is shorter than a second.
_LEAST_MILLISECONDS = 1000
# Two responses of one window may differ about its renewal by the delay of a busy machine, and also
# by rounding and latency.
_DELAY_S = 0.05
# The rounding error of a difference of two times since the epoch.
_CLOCK_ERROR_S = 1e-6
_LONGEST_LATENCY_S = 6.0
# A request that waits for another one asks again after this time. The longer it waits, the less
# often it asks.
_LEAST_POLL_S = 0.003
_LONGEST_POLL_S = 0.1
# In a busy session, the next response arrives after at most this many times the latency.
_SLOWEST = 3.0
# The longest pause after refusals that name no believable renewal: 1, 2, 4, … seconds.
_LONGEST_PAUSE_S = 16.0


@dataclass(eq=False, slots=True)
class Allowance:
    """What is known of one operation's allowance.

    Other sessions, machines and programs may use the same allowance. If they do, or if a request
    costs more than one, ``remaining`` falls within a window by more than this session sent. Then
    ``reserve`` is how much of it goes to others while one of our requests is under way.

    Attributes
    ----------
    reset_unit
        Returns the unit of ``X-RateLimit-Reset``, as far as it is known.
    max_wait_s, pace
        See `Allowances`.
    remaining
        The value in the last response; None if responses do not have it.
    reserve
        How many of the remaining requests are left to others; 0 at the start of each window.
    renews_at, began_at
        When the allowance renews, and when this window's first request was sent.
    is_renewal_known
        Whether the service said when it renews, so that it is not assumed.
    received_at, latency_s
        When the last response arrived, and how long the slowest of the recent ones took.
    probe_until
        Until when other requests wait for one that finds out how many remain.
    sent_at
        When the last request was sent.
    waiting, in_flight
        The requests that wait, in the order of their arrival, and those without a response yet.
    first_remaining, first_at, sent
        How many remained in the window's first response, when it arrived, and how many of our
        requests the service may have counted since.
    largest_reset
        The largest value of Reset so far.
    in_seconds_at
        When the allowance renews if the last Reset was in seconds.
    is_in_seconds, rounds_down
        Whether a refusal showed that Reset is not in milliseconds, and that it is rounded down.
    """

    reset_unit: Callable[[], UnitName] = lambda: "undetermined"
    max_wait_s: float = 120.0
    pace: Pace = "burst"
    remaining: int | None = 0
    reserve: int = 0
    renews_at: float = 0.0
    began_at: float = 0.0
    is_renewal_known: bool = True
    received_at: float = 0.0
    latency_s: float = 0.0
    probe_until: float = 0.0
    sent_at: float = 0.0
    waiting: dict[Hashable, None] = field(default_factory=dict)
    in_flight: set[Hashable] = field(default_factory=set)
    first_remaining: int = 0
    first_at: float = 0.0
    sent: int = 0
    largest_reset: float = 0
    in_seconds_at: float = 0.0
    is_in_seconds: bool = False
    rounds_down: bool = False

    def wait_s(self, now: float, request: Hashable) -> float:
        """Return 0 and count the request as sent, or return after how many seconds to ask again."""
        seconds = self._due_in_s(now, request)
        if seconds > 0.0:
            self.waiting[request] = None
            return seconds
        self.waiting.pop(request, None)
        self.in_flight.add(request)
        self.sent_at = now
        self.sent += 1
        return 0.0

    def _due_in_s(self, now: float, request: Hashable) -> float:
        if now < self.received_at - 1.0:  # a clock was set back
            self.renews_at = now
            self.received_at = now
            self.probe_until = now
            self.sent_at = now
        free = math.inf
        if self.remaining is not None:
            free = self.remaining - self.reserve - len(self.in_flight)
        has_renewed = now >= self.renews_at
        if free <= 0 and not has_renewed:
            return self._poll_s(now) if self.in_flight else self.renews_at - now
        if self.waiting and next(iter(self.waiting)) != request:
            self.waiting[request] = None
            return self._poll_s(now)
        if free <= 0 or (has_renewed and self.pace == "even" and free < math.inf):
            if now < self.probe_until:
                return self._poll_s(now)
            self.probe_until = now + 1.0 + 10 * min(self.latency_s, _LONGEST_LATENCY_S)
        elif self.pace == "even" and not has_renewed:
            gap_s = (self.renews_at - self.sent_at) / (free + 1)
            return self.sent_at + min(gap_s, self.max_wait_s) - now
        return 0.0

    def pause_s(self, now: float, refusals: int) -> float:
        """Return how long a refused request pauses, however soon the allowance seems to renew.

        Others may use up each new window first. So if the renewal is a second or more away, the
        request waits just for it. But if a service's Reset is wrong, the pauses grow.
        """
        if self.renews_at > now + (1.0 if refusals > 1 else 0.0):
            return 0.0
        return min(2.0 ** (refusals - 1), _LONGEST_PAUSE_S)

    def _poll_s(self, now: float) -> float:
        """Return after how many seconds a request that waits for another one asks again."""
        seconds = (now - max(self.sent_at, self.received_at)) / 8
        return min(max(_LEAST_POLL_S, seconds), _LONGEST_POLL_S)

    def settle(self, request: Hashable, reading: Reading | None) -> None:
        """Learn from the response to a request; None if it says nothing, or none came."""
        self.waiting.pop(request, None)
        if request in self.in_flight:
            self.in_flight.remove(request)
            self.probe_until = 0.0
        if reading is None:
            return
        elapsed_s = reading.elapsed_s or 0.0
        before = self.remaining
        sent_at = reading.at - elapsed_s
        is_refused = reading.status == 429
        remaining = 0 if is_refused else reading.remaining
        # In one window, each request leaves less than the one before.
        is_later = sent_at >= self.received_at - _CLOCK_ERROR_S
        is_more = before is None or (remaining is not None and remaining >= before)
        is_new = sent_at >= self.renews_at or (is_later and is_more)
        self.received_at = max(self.received_at, reading.at)
        self.latency_s = max(elapsed_s, 0.9 * self.latency_s)
        if is_refused and is_new and before == 0 and self.renews_at:
            self._learn_from_refusal(reading)
        if is_new:
            self.remaining = remaining
            self.began_at = sent_at
            self.first_remaining = remaining or 0
            self.first_at = reading.at
            self.reserve = 0
            self.sent = len(self.in_flight)
        elif sent_at < self.began_at:
            return  # the response may belong to the previous window
        elif before is not None:
            self.remaining = max(0, before - 1) if remaining is None else min(before, remaining)
            self._learn_of_others(reading)
        # A response that does not say what is left does not say either when that changes.
        if is_new or (self.remaining == 0 and remaining is not None):
            at, tolerance_s = self._renewal(reading)
            if not is_new and abs(at - self.renews_at) <= tolerance_s:
                # The same renewal again. Values are rounded up, so the earlier one is more precise.
                at = min(at, self.renews_at)
            self.renews_at = at

    def _learn_of_others(self, reading: Reading) -> None:
        """Keep in reserve what others are likely to use while our next requests are under way."""
        used = self.first_remaining - (self.remaining or 0) - self.sent
        passed_s = reading.at - self.first_at
        ours = len(self.in_flight) + 1
        if used <= 0 or passed_s <= 0.0:
            return
        # They get as much as they used for each of our requests. But a session that rarely sends
        # would count all that they use between its requests, so there is a second bound.
        for_each = used / (self.sent + 1 - ours)
        at_once = used * _SLOWEST * (reading.elapsed_s or 0.0) / passed_s
        self.reserve = round(min(for_each * ours, at_once))

    def _renewal(self, reading: Reading) -> tuple[float, float]:
        """Return when the allowance renews by our clock, and the greatest error in seconds."""
        value = reading.reset_number or 0
        tolerance_s = _DELAY_S + (reading.elapsed_s or 0.0)
        self.in_seconds_at = reading.at + value
        self.is_renewal_known = True
        if reading.status >= 400:
            retry_after_s = reading.retry_after_s
            if retry_after_s is not None:
                return reading.at + retry_after_s, tolerance_s
        self.largest_reset = max(self.largest_reset, value)
        unit = self._unit(value)
        at = renewal_time(reading, unit)
        if at is None or not self.largest_reset:
            # If all values of Reset are 0, they say nothing. After 2 and 1, 0 means "now".
            self.is_renewal_known = False
            return max(self.began_at + TYPICAL_WINDOW_S, reading.at + 1.0), tolerance_s
        scale = SCALES[unit]
        if self.rounds_down:
            at += scale.seconds
        if not scale.counts_down and reading.served_at is not None:
            # `Date` is rounded down to a second, and was written at most `elapsed_s` ago.
            ahead_s = reading.served_at - reading.at
            if not -1.0 - tolerance_s <= ahead_s <= 0.0:
                at -= ahead_s
        return at, scale.seconds + tolerance_s

    def _unit(self, value: float) -> UnitName:
        """Return the unit of Reset, or if it is uncertain, the one with the shortest safe wait."""
        is_small = self.largest_reset < _LEAST_MILLISECONDS and value <= self.max_wait_s
        # To infer the unit takes longer than all else here, and before a wait it is asked again.
        is_asked = not (is_small and self.remaining and self.pace == "burst")
        unit = self.reset_unit() if is_asked else "undetermined"
        if unit != "undetermined":
            return unit
        return "seconds_left" if self.is_in_seconds or is_small else "milliseconds_left"

    def _learn_from_refusal(self, reading: Reading) -> None:
        """Learn from a refusal after a full wait: the unit was wrong, or Reset is rounded down."""
        value = reading.reset_number
        if value is None:
            return
        # A refusal alone proves nothing: another program may have used up the new window. But if
        # the value fell as seconds do (1800, and 1798 after 1.8 s), it is not in milliseconds.
        if self.reset_unit() == "undetermined" and self._unit(value) == "milliseconds_left":
            self.is_in_seconds |= abs(reading.at + value - self.in_seconds_at) <= 2.0
        # If the renewal that Reset names has passed, and the request was still refused, Reset is
        # rounded down. If only the unit was wrong, assume that too: waiting a second too long costs
        # less than another refusal.
        self.rounds_down |= self.is_in_seconds or self._renewal(reading)[0] <= reading.at
