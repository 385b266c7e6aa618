"""What is left of one operation's allowance, as the service's answers tell it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..contract import TYPICAL_WINDOW_S

if TYPE_CHECKING:
    from .reading import Reading

__all__ = ["Allowance", "Renewal"]

# Beside rounding and the way, what a busy machine adds.
_LEAST_BLUR_S: Final = 0.05
# The second "nothing left" in a row doubts what was told: each doubles the pause, up to this.
_LONGEST_PAUSE_S: Final = 16.0


@dataclass(frozen=True, slots=True)
class Renewal:
    """When an allowance renews, by our clock.

    ``grain_s`` is how coarsely that was told, in seconds; 0 where it is to be taken at its word.
    ``way_s`` is how long the answer took: so much it may have been told earlier than it was read.
    """

    at: float
    grain_s: float
    way_s: float = 0.0

    @property
    def blur_s(self) -> float:
        """Two answers of one window tell renewals that are no further apart."""
        return self.grain_s + self.way_s + _LEAST_BLUR_S


@dataclass(slots=True)
class Allowance:
    """One operation's allowance: the service's last word, and what is on its way to it.

    ``remaining`` is None before the first answer, and where the answers do not tell. Moments are
    seconds since the Unix epoch. Where requests are spread, the next one is due at ``next_slot``,
    ``gap_s`` after the last.
    """

    in_flight: int = 0
    remaining: int | None = None
    limit: int | None = None
    renews_at: float = -math.inf
    was_answered: bool = False
    answers: int = 0
    strikes: int = 0
    next_slot: float = -math.inf
    gap_s: float = 0.0
    _began: float = 0.0
    _seen_at: float = -math.inf
    _probed_for: float = field(default=math.nan)

    @property
    def free(self) -> int:
        """Requests that can be sent now; those in flight may not be counted in the answers yet."""
        return (self.remaining or 0) - self.in_flight

    def may_probe(self, now: float) -> bool:
        """Return whether one request may ask what there is, where nothing is known to be left."""
        clock_was_set_back = now < self._seen_at - 1.0
        if now < self.renews_at and not clock_was_set_back:
            return False
        if self.in_flight and self._probed_for == self.renews_at:
            return False
        self._probed_for = self.renews_at
        return True

    def take(self, reading: Reading, sent_after: int, renewal: Renewal | None, now: float) -> None:
        """Take an answer to a request that was sent after ``sent_after`` answers had come."""
        overlaps = sent_after < self.answers
        self.answers += 1
        exhausted = reading.status == 429
        left = 0 if exhausted else reading.remaining
        self.strikes = self.strikes + 1 if exhausted else 0
        self._seen_at = now
        if left is None:
            self._count_one_less()
            return
        if overlaps and self.was_answered and self._is_late(left, renewal):
            return
        if not self.was_answered or left > (self.remaining or 0) or now >= self.renews_at:
            self._began = now
            self.renews_at = -math.inf
        self.was_answered = True
        self.remaining, self.limit = left, reading.limit
        self._renew(renewal, now)

    def _count_one_less(self) -> None:
        self.was_answered = True
        if self.remaining:
            self.remaining -= 1

    def _is_late(self, left: int, renewal: Renewal | None) -> bool:
        """Return whether an answer was overtaken: another of the same window says less is left."""
        if renewal is None or self.renews_at == -math.inf:
            return left > (self.remaining or 0)
        slack = renewal.blur_s
        if renewal.at > self.renews_at + slack:
            return False
        return renewal.at < self.renews_at - slack or left > (self.remaining or 0)

    def _renew(self, renewal: Renewal | None, now: float) -> None:
        if renewal is None:
            # Nothing tells when: service.md's typical window, from its first answer on.
            at = max(self._began + TYPICAL_WINDOW_S, now + 1.0)
        else:
            at = renewal.at
            # One window told twice: rounded up, the earlier is closer, and late enough.
            if renewal.grain_s and abs(at - self.renews_at) <= renewal.blur_s:
                at = min(at, self.renews_at)
        if self.strikes > 1:
            at = max(at, now + min(2.0 ** (self.strikes - 2), _LONGEST_PAUSE_S))
        self.renews_at = at
