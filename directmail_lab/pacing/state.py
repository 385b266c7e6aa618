"""The rules of pacing: what is known of one operation's allowance, and who may send now. Pure.

One `PaceState` is all that pacing remembers. One session keeps it in memory, or several share it in
a file or on a Redis server (see `directmail_lab.pacing.shared`): the rules are the same. All times
are passed in, in seconds since the Unix epoch, by the clock of the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..quota import Reading
from ..reset_unit import UnitName

# After two refusals in a row the service's own times are not trusted. The pause is then at least 1,
# 2, 4, … seconds, up to this.
_LONGEST_PAUSE_S: Final = 16.0
# The delay of a busy machine, in addition to rounding and latency.
_LEAST_TOLERANCE_S: Final = 0.05

# A session that was silent for so long no longer counts as one that shares the allowance.
_FORGOTTEN_AFTER_S: Final = 60.0
# The requests in flight of a session that was silent for so long (longer if answers are slow) are
# taken for lost.
_LOST_AFTER_S: Final = 2.0
# A waiting session that is due within _SOON_S goes first if it has sent less or waits longer. One
# that is late by more than _LATE_S has lost its turn.
_SOON_S: Final = 0.25
_LATE_S: Final = 0.5
# A session is at work if it waits, has a request in flight, or was active so recently.
_AT_WORK_S: Final = 1.0
# A session that waits for another session's answer polls the state: at first after 0.01 s, later
# less often.
_LEAST_LOOK_S: Final = 0.01
_LEAST_LOOK_S_EACH: Final = 0.0025
_LONGEST_LOOK_S: Final = 1.0
# Sessions that wait for a renewal ask one after the other, so much apart.
_STAGGER_S: Final = 0.002


class Renewal(NamedTuple):
    """When an allowance renews.

    ``resolution_s`` is one step of Reset's unit in seconds. ``latency_s`` is how long the answer
    took: the service may have written Reset so much earlier. ``is_another`` says that it is not the
    same renewal as in the answer before.
    """

    at: float
    resolution_s: float = 0.0
    latency_s: float = 0.0
    is_another: bool = True

    @property
    def tolerance_s(self) -> float:
        """The most by which two answers of one window may disagree about its renewal, seconds."""
        return self.resolution_s + self.latency_s + _LEAST_TOLERANCE_S


class Pause(NamedTuple):
    """Ask again at ``until``; ``for_answer``: or earlier, once another request is answered."""

    until: float
    for_answer: bool = False


@dataclass
class Place:
    """One session, among those that share an allowance.

    Attributes
    ----------
    seen
        When it last sent, asked or got an answer.
    in_flight
        How many of its requests have no answer yet.
    served, total
        How many it sent in this window, and in all windows; ``total`` is multiplied by 0.9 when a
        window begins.
    since, due
        Since when it waits, and when it asks again; ``due`` is None if it does not wait.
    """

    seen: float
    in_flight: int = 0
    served: int = 0
    total: float = 0.0
    since: float = 0.0
    due: float | None = None


@dataclass
class PaceState:
    """What is known of one operation's allowance, and who uses it.

    Attributes
    ----------
    places
        The sessions that use it, by name.
    remaining, limit
        As in the last answer; ``remaining`` is None if no answer has said it.
    began_at, renews_at, seen_at
        When the window's first answer came, when the allowance renews, and when the last answer
        came.
    answers
        How many answers have come.
    refusals, refused_at
        How many times in a row requests were refused, and ``answers`` at the last refusal.
    latency_s
        The longest that recent answers took.
    window_at, window_s, slides
        When the window's first answer came, how long a window is, and whether it is a sliding
        window; it is taken for a fixed window until answers show otherwise.
    spent, others
        How many requests in the window were sent by these sessions, and how many at least by
        somebody else.
    probed_for
        The value of ``renews_at`` after which one request was sent to find out what is left.
    next_slot_at, gap_s
        With ``pace="even"``: when the next request is due, and the seconds between two.
    refuted, rounds_down
        The units of Reset that an answer has ruled out, and whether Reset is rounded down.
    largest, last_reset, last_at
        The largest and the last value of Reset, and when the last one came.
    """

    places: dict[str, Place] = field(default_factory=dict)
    remaining: int | None = None
    limit: int | None = None
    began_at: float = 0.0
    renews_at: float = -math.inf
    seen_at: float = -math.inf
    answers: int = 0
    refusals: int = 0
    refused_at: int = 0
    latency_s: float = 0.0
    window_at: float | None = None
    window_s: float = 0.0
    slides: bool = False
    spent: int = 0
    others: int = 0
    probed_for: float | None = None
    next_slot_at: float = -math.inf
    gap_s: float = 0.0
    refuted: list[UnitName] = field(default_factory=list)
    rounds_down: bool = False
    largest: int = 0
    last_reset: int = 0
    last_at: float = 0.0

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet; ``remaining`` may not include them."""
        return sum([place.in_flight for place in self.places.values()])

    def send(self, name: str, now: float, *, spread_within_s: float | None = None) -> Pause | None:
        """Count a request of a session as sent and return None, or return what it waits for.

        ``spread_within_s`` spreads requests evenly over the rest of the window, or over a typical
        window if the renewal is further away than these seconds.
        """
        if len(self.places) > 1:
            self._drop_silent_places(name, now)
        place = self.places.get(name) or self.places.setdefault(name, Place(now))
        place.seen = now
        if place.due is None:
            place.since = now
        pause = self._pause(place, now, spread_within_s)
        place.due = pause and pause.until
        if pause is None:
            place.in_flight += 1
            place.served += 1
            place.total += 1
            self.next_slot_at = now + self.gap_s
        return pause

    def _drop_silent_places(self, name: str, now: float) -> None:
        lost_after_s = _LOST_AFTER_S + min(10 * self.latency_s, _FORGOTTEN_AFTER_S)
        for each, place in list(self.places.items()):
            silent_s = abs(now - place.seen)
            if each != name and silent_s > lost_after_s:
                place.in_flight = 0
                if silent_s > _FORGOTTEN_AFTER_S and (
                    place.due is None or now > place.due + _LATE_S
                ):
                    del self.places[each]

    def _pause(self, place: Place, now: float, spread_within_s: float | None) -> Pause | None:
        in_flight = self.in_flight
        if self.remaining is None:
            # The first request finds out what is left; the others wait for its answer. If answers
            # do not say what is left, nothing waits.
            is_asked = in_flight and not self.answers
            return Pause(self._next_look_at(place, now), for_answer=True) if is_asked else None
        free, yields_until, first = self.remaining - in_flight, now, 0
        mine, waiting = (place.served, place.since), []
        if len(self.places) > 1:
            waiting = [
                (each.due, (each.served, each.since))
                for each in self.places.values()
                if each is not place and each.due is not None and now <= each.due + _LATE_S
            ]
            first = sum(due < now + _SOON_S and turn < mine for due, turn in waiting)
            yields_until = self._yields_until(place, free, now)
        if free > first:
            if yields_until > now:
                look_at = self._next_look_at(place, now)
                return Pause(max(yields_until, look_at), for_answer=True)
            if spread_within_s is None:
                return None
            if not first:
                return self._slot(now, free, spread_within_s)
        if not first and self._may_probe(now):
            self.probed_for = self.renews_at
            return None
        if free > 0 or in_flight or now >= self.renews_at:
            return Pause(self._next_look_at(place, now), for_answer=True)
        return Pause(self.renews_at + _STAGGER_S * sum(turn < mine for _, turn in waiting))

    def _yields_until(self, place: Place, free: int, now: float) -> float:
        """Return when a session may send that has used its share while others at work have not.

        It may send as time passes: with a third of the limit left, in the last third of the window.
        A session that sent more than another in earlier windows has half a share. Without a reason
        to wait, ``now`` is returned.
        """
        at_work = [
            each
            for each in self.places.values()
            if each is not place
            and (
                each.in_flight
                or (each.due is not None and now <= each.due + _LATE_S)
                or now <= each.seen + _AT_WORK_S
            )
        ]
        if self.limit is None or not at_work or now >= self.renews_at:
            return now
        share = self.limit / (len(at_work) + 1)
        is_ahead = place.total > min(each.total for each in at_work) + share
        has_had_it = place.served >= (share / 2 if is_ahead else share)
        if not has_had_it or all(each.served >= share for each in at_work):
            return now
        return min(self.renews_at - self.window_s * free / self.limit, now + _AT_WORK_S)

    def _may_probe(self, now: float) -> bool:
        """Return whether one request may be sent to find out what is left, if nothing seems to be.

        That is so once the allowance should have renewed, or if a clock was set back.
        """
        clock_was_set_back = now < self.seen_at - 1.0
        if self.remaining or (now < self.renews_at and not clock_was_set_back):
            return False
        return not (self.in_flight and self.probed_for == self.renews_at)

    def _next_look_at(self, place: Place, now: float) -> float:
        """Return when to ask again. Other sessions' answers can only be found by polling.

        If nothing happened for 0.1 s, the next poll is 0.025 s later.
        """
        renews_at = self.renews_at if now < self.renews_at else math.inf
        if len(self.places) == 1:
            return renews_at
        idle_s = now - max(
            place.since, self.seen_at, self.renews_at if renews_at == math.inf else 0
        )
        look_s = max(_LEAST_LOOK_S, _LEAST_LOOK_S_EACH * len(self.places), idle_s / 4)
        return min(renews_at, now + min(look_s, _LONGEST_LOOK_S))

    def _slot(self, now: float, free: int, within_s: float) -> Pause | None:
        """Return the pause until an evenly spread request is due; None if it is due now."""
        if now < self.next_slot_at <= now + within_s:
            return Pause(self.next_slot_at)
        left_s = self.renews_at - now
        if not 0 < left_s < within_s:
            left_s = TYPICAL_WINDOW_S * free / (self.limit or TYPICAL_LIMIT)
        self.gap_s = left_s / free
        return None

    def settle(self, name: str, now: float) -> None:
        """Count a request of a session as no longer in flight."""
        place = self.places.get(name) or self.places.setdefault(name, Place(now))
        place.seen, place.in_flight = now, max(0, place.in_flight - 1)

    def take(self, reading: Reading, sent_after: int, renewal: Renewal | None, now: float) -> None:
        """Update the state by an answer; ``sent_after``: answers before its request was sent."""
        is_first, overlaps = not self.answers, sent_after < self.answers
        self.answers += 1
        self.latency_s = max(reading.elapsed_s or 0.0, 0.9 * self.latency_s)
        left = reading.remaining
        if reading.status != 429:
            self.refusals = 0
            self.spent += 1
        else:
            left = 0
            # Several refusals of requests that were in flight together count as one.
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
            if renewal is not None and reading.status != 429:
                self._begin_window(renewal, now)
            self.began_at, self.renews_at = now, -math.inf
        self.remaining, self.limit = left, reading.limit
        if self.limit is not None:
            used = self.limit - left
            self.spent = min(self.spent, used)
            least = 0 if self.slides else self.others
            self.others = max(least, used - self.spent - self.in_flight)
        self._renew(renewal, now)

    def _begin_window(self, renewal: Renewal, now: float) -> None:
        """Start the counts again, unless the window slides: then what was spent still counts.

        A window slides if a renewal is much less than a window after the one before.
        """
        least_s = 0.75 * self.window_s - renewal.tolerance_s
        self.slides |= math.isfinite(self.renews_at) and renewal.at - self.renews_at < least_s
        if not self.slides:
            self.window_at, self.spent, self.others = now, 1, 0
            for place in self.places.values():
                place.served, place.total = 0, 0.9 * place.total
        self.window_s = max(renewal.at - now, 0.9 * self.window_s)

    def _was_overtaken(self, left: int, renewal: Renewal | None) -> bool:
        """Return whether a newer answer came before: of a later window, or with less left."""
        says_more = left > (self.remaining or 0)
        if renewal is None or self.renews_at == -math.inf:
            return says_more
        if renewal.at > self.renews_at + renewal.tolerance_s:
            return False
        return says_more or renewal.at < self.renews_at - renewal.tolerance_s

    def _renew(self, renewal: Renewal | None, now: float) -> None:
        if renewal is None:
            # No answer says when: assume service.md's typical window, from its first answer on.
            at = max(self.began_at + TYPICAL_WINDOW_S, now + 1.0)
        else:
            at = renewal.at
            # The same renewal again: values are rounded up, so the earlier time is more precise.
            if not renewal.is_another and abs(at - self.renews_at) <= renewal.tolerance_s:
                at = min(at, self.renews_at)
        if self.refusals > 1:
            at = max(at, now + min(2.0 ** (self.refusals - 2), _LONGEST_PAUSE_S))
        self.renews_at = at
