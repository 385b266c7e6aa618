"""The rules of pacing: what is known of one operation's allowance, and who may send now. Pure.

One `PaceState` is all that pacing remembers. One session keeps it in memory, or several share it in
a file or on a Redis server (see `directmail_lab.pacing.stores`): the rules are the same. All times
are passed in, in seconds since the Unix epoch, by the clock of the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..readings.reading import Reading

# After two refusals in a row the service's own times are not trusted. The pause is then at least 1,
# 2, 4, … seconds, up to this.
_LONGEST_PAUSE_S: Final = 16.0
# The delay of a busy machine, in addition to rounding and latency.
_LEAST_TOLERANCE_S: Final = 0.05
# Of a difference of two times since the epoch.
_CLOCK_ERROR_S: Final = 1e-6

# A session counts as active for so long after it sent, received or was due to ask again, or longer
# if responses are slow. Then the requests that it has in flight are taken for lost.
_ACTIVE_S: Final = 1.0
_REMOVED_AFTER_S: Final = 60.0
# A session that waits for another session's response polls the state: at first after 0.01 s, later
# less often.
_LEAST_POLL_S: Final = 0.01
_LONGEST_POLL_S: Final = 1.0


class Renewal(NamedTuple):
    """When an allowance renews.

    ``resolution_s`` is one step of Reset's unit in seconds. ``latency_s`` is how long the response
    took: the service may have written Reset so much earlier. ``is_another`` says that it is not the
    same renewal as in the response before.
    """

    at: float
    resolution_s: float = 0.0
    latency_s: float = 0.0
    is_another: bool = True

    @property
    def tolerance_s(self) -> float:
        """The most by which two responses of one window may disagree about its renewal, seconds."""
        return self.resolution_s + self.latency_s + _LEAST_TOLERANCE_S


class Pause(NamedTuple):
    """Ask again at ``until``; ``for_response``: or earlier, once another request is answered."""

    until: float
    for_response: bool = False


class ClockDifference:
    """How far another clock is ahead of ours, in seconds: between ``least_s`` and ``most_s``."""

    def __init__(self) -> None:
        self.least_s, self.most_s = -math.inf, math.inf

    def narrow(self, least_s: float, most_s: float) -> None:
        """Take a new comparison into account. If it contradicts the others, a clock was set."""
        if least_s <= self.most_s and most_s >= self.least_s:
            least_s, most_s = max(self.least_s, least_s), min(self.most_s, most_s)
        self.least_s, self.most_s = least_s, most_s


@dataclass
class Participant:
    """One session, among those that share an allowance.

    Attributes
    ----------
    seen_at, due_at
        When it last sent, asked or got a response, and when it asks again if it waits.
    in_flight
        How many of its requests have no response yet.
    used
        How many requests it sent in this window.
    waits_since
        Since when its first request waits; infinite if none does.
    """

    seen_at: float
    due_at: float = 0.0
    in_flight: int = 0
    used: int = 0
    waits_since: float = math.inf


@dataclass
class PaceState:
    """What is known of one operation's allowance, and who uses it.

    Attributes
    ----------
    participants
        The sessions that use it, by name.
    remaining, limit
        As in the last response; ``remaining`` is None if no response had it.
    began_at, window_s, renews_at
        When the window's first response came, how long a window is (0 if no response shows it), and
        when the allowance renews.
    slides
        Whether it is a sliding window; it is taken for a fixed one until responses show otherwise.
    used, used_by_others
        How many requests in the window were sent by these sessions, and how many at least by
        somebody else.
    answered_at, latency_s
        When the last response came, and the longest that recent responses took.
    refusals
        How many times in a row a request was refused although the allowance should have renewed.
    probed_for
        The value of ``renews_at`` after which one request was sent to find out what remains.
    next_slot_at, gap_s
        With ``pace="even"``: when the next request is due, and the seconds between two.
    is_in_seconds, rounds_down
        Whether a response ruled out that Reset is in milliseconds, and whether it is rounded down.
    largest_reset, last_reset, last_reset_at
        The largest and the last value of Reset, and when the last one came.
    """

    participants: dict[str, Participant] = field(default_factory=dict)
    remaining: int | None = None
    limit: int | None = None
    began_at: float = 0.0
    window_s: float = 0.0
    renews_at: float = -math.inf
    slides: bool = False
    used: int = 0
    used_by_others: int = 0
    answered_at: float = -math.inf
    latency_s: float = 0.0
    refusals: int = 0
    probed_for: float | None = None
    next_slot_at: float = -math.inf
    gap_s: float = 0.0
    is_in_seconds: bool = False
    rounds_down: bool = False
    largest_reset: int = 0
    last_reset: int = 0
    last_reset_at: float = 0.0

    @property
    def in_flight(self) -> int:
        """How many requests have no response yet; ``remaining`` may not include them."""
        return sum([participant.in_flight for participant in self.participants.values()])

    def request(self, name: str, now: float, *, longest_gap_s: float | None = None) -> Pause | None:
        """Count a request of a session as sent and return None, or return what it waits for.

        ``longest_gap_s`` spreads requests evenly over the window, at most so many seconds apart.
        """
        me = self._participant(name, now)
        me.waits_since = min(me.waits_since, now)
        pause = self._pause(me, now, longest_gap_s)
        if pause is None:
            me.waits_since = math.inf
            me.in_flight += 1
            me.used += 1
            self.next_slot_at = now + self.gap_s
        else:
            me.due_at = pause.until
        return pause

    def settle(self, name: str, now: float) -> None:
        """Count a request of a session as no longer in flight."""
        me = self._participant(name, now)
        me.in_flight = max(0, me.in_flight - 1)

    def _participant(self, name: str, now: float) -> Participant:
        me = self.participants.get(name) or self.participants.setdefault(name, Participant(now))
        me.seen_at = now
        return me

    def _pause(self, me: Participant, now: float, longest_gap_s: float | None) -> Pause | None:
        in_flight, waiting, lacking = self._demand(me, now)
        window_s = self.window_s or TYPICAL_WINDOW_S
        if self.remaining is None:
            # The first request finds out what remains; the others wait for its response. If
            # responses do not say what remains, nothing waits.
            is_pending = in_flight and self.answered_at == -math.inf
            return self._poll(me, now) if is_pending else None
        free = self.remaining - in_flight - waiting
        left_s = max(0.0, self.renews_at - now)
        if free > 0 and (free - 1) * window_s >= lacking * left_s:
            if longest_gap_s is None:
                return None
            slot = self._slot(now, free, longest_gap_s)
            return slot or (self._poll(me, now) if waiting else None)
        # If nothing seems to remain, one request is sent to find out once the allowance should have
        # renewed, or if a clock was set back.
        is_due = not left_s or now < self.answered_at - 1.0
        if is_due and not self.remaining and not (in_flight and self.probed_for == self.renews_at):
            self.probed_for = self.renews_at
            return None
        poll = self._poll(me, now)
        if free > 0:
            enough_at = self.renews_at - window_s * (free - 1) / lacking
            return Pause(max(poll.until, min(enough_at, now + _LONGEST_POLL_S)), for_response=True)
        if self.remaining or in_flight or not left_s:
            return poll
        return Pause(self.renews_at)

    def _demand(self, me: Participant, now: float) -> tuple[int, int, float]:
        """Return how many requests are in flight, and how many others may come before me.

        Active sessions that have used no more of the window than I have, and that wait longer, come
        first: one request each. If I have used my share, the third number is what the others lack
        of theirs, and it counts for as much as is left of the window. Example: of 40 in 3 s I used
        20 and another session 1, so 19 are free and it lacks 19. I may send the next one after
        0.16 s, another after 0.32 s, and the last one at the renewal.
        """
        if len(self.participants) == 1:
            return me.in_flight, 0, 0.0
        active_s = _ACTIVE_S + min(10 * self.latency_s, _REMOVED_AFTER_S)
        others = []
        for name, other in list(self.participants.items()):
            silent_s = now - max(other.seen_at, other.due_at)
            if silent_s > _REMOVED_AFTER_S:
                del self.participants[name]
            elif silent_s <= active_s and other is not me:
                others.append(other)
        in_flight = sum([other.in_flight for other in others if now <= other.seen_at + active_s])
        waits = [(other.used, other.waits_since) for other in others if other.waits_since <= now]
        waiting = sum([wait < (me.used, me.waits_since) for wait in waits])
        share = (self.limit or 0) / (len(others) + 1)
        lacking = 0.0
        if me.used >= share:
            lacking = sum([max(0.0, share - other.used) for other in others])
        return me.in_flight + in_flight, waiting, lacking

    def _poll(self, me: Participant, now: float) -> Pause:
        """Return when to ask again. Other sessions' responses can only be found by polling.

        If nothing happened for 0.1 s, the next poll is 0.025 s later.
        """
        is_renewed = now >= self.renews_at
        poll_s = _REMOVED_AFTER_S
        if len(self.participants) > 1:
            events = (me.waits_since, self.answered_at, self.renews_at if is_renewed else 0)
            poll_s = min(max(_LEAST_POLL_S, (now - max(events)) / 4), _LONGEST_POLL_S)
        at = now + poll_s
        return Pause(at if is_renewed else min(self.renews_at, at), for_response=True)

    def _slot(self, now: float, free: int, longest_gap_s: float) -> Pause | None:
        """Return the pause until an evenly spread request is due; None if it is due now."""
        if now < self.next_slot_at <= now + longest_gap_s:
            return Pause(self.next_slot_at)
        left_s = self.renews_at - now
        gap_s = left_s / free if left_s > 0 else TYPICAL_WINDOW_S / (self.limit or TYPICAL_LIMIT)
        self.gap_s = min(gap_s, longest_gap_s)
        return None

    def take(
        self, reading: Reading, renewal: Renewal | None, now: float,
        *, name: str = "", ahead_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Update the state by a response to a session; its clock is ``ahead_s`` behind ours."""
        sent_at = reading.at + ahead_s - (reading.elapsed_s or 0.0)
        is_refused = reading.status == 429
        remaining = 0 if is_refused else reading.remaining
        before, overlaps = self.remaining, sent_at < self.answered_at - _CLOCK_ERROR_S
        is_new = now >= self.renews_at
        if self.answered_at == -math.inf:
            self.began_at = now
        self.answered_at = now
        self.latency_s = max(reading.elapsed_s or 0.0, 0.9 * self.latency_s)
        if is_refused:
            # Requests that were in flight together count once: the first one changes `renews_at`.
            self.refusals += is_new
        else:
            self.refusals = 0
            self.used += 1
        if remaining is None:
            self.remaining = before and before - 1
            return
        if overlaps and self._is_overtaken(remaining, renewal):
            return
        is_new |= remaining > (before or 0)
        if is_new and not is_refused:
            self._begin_window(renewal, now, name)
        self.remaining, self.limit = remaining, reading.limit
        if self.limit is not None:
            self.used = min(self.used, self.limit - remaining)
            unknown = self.limit - remaining - self.used
            if self.slides or unknown > self.used_by_others:
                least = 0 if self.slides else self.used_by_others
                self.used_by_others = max(least, unknown - self.in_flight)
        # In one window, each request leaves less than the one before.
        self._renew(renewal, now, is_same=not is_new and remaining < (before or 0))

    def _begin_window(self, renewal: Renewal | None, now: float, name: str) -> None:
        """Start the counts again, unless the window slides: then what was used still counts.

        A window slides if a renewal is much less than a window after the one before.
        """
        if renewal is not None:
            least_s = 0.75 * self.window_s - renewal.tolerance_s
            self.slides |= math.isfinite(self.renews_at) and renewal.at - self.renews_at < least_s
            self.window_s = max(renewal.at - now, 0.9 * self.window_s)
        if not self.slides:
            self.began_at, self.used, self.used_by_others = now, 1, 0
            for other, participant in self.participants.items():
                participant.used = participant.in_flight + (other == name)

    def _is_overtaken(self, remaining: int, renewal: Renewal | None) -> bool:
        """Return whether a newer response came before: of a later window, or with less left."""
        says_more = remaining > (self.remaining or 0)
        if renewal is None or self.renews_at == -math.inf:
            return says_more
        if renewal.at > self.renews_at + renewal.tolerance_s:
            return False
        return says_more or renewal.at < self.renews_at - renewal.tolerance_s

    def _renew(self, renewal: Renewal | None, now: float, *, is_same: bool) -> None:
        if renewal is None:
            # No response says when: assume service.md's typical window, from its first response on.
            at = max(self.began_at + TYPICAL_WINDOW_S, now + 1.0)
        else:
            at = renewal.at
            # The same renewal again: values are rounded up, so the earlier time is more precise.
            is_same &= not renewal.is_another
            if is_same and abs(at - self.renews_at) <= renewal.tolerance_s:
                at = min(at, self.renews_at)
        if self.refusals > 1:
            at = max(at, now + min(2.0 ** (self.refusals - 2), _LONGEST_PAUSE_S))
        self.renews_at = at
