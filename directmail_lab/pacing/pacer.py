"""Whether a request may be sent now: a decision on passed-in times, by the service's own numbers.

Pure but for its memory, and not thread-safe: `directmail_lab.pacing` holds the lock and waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..errors import QuotaExhaustedError
from ..quota.allowance import Allowance
from .renewals import RenewalReader

if TYPE_CHECKING:
    from ..quota import Reading
    from ..quota.reset_unit import ResetUnit

__all__ = ["Go", "Hold", "Pace", "Pacer", "Wait"]

Pace = Literal["burst", "even", "off"]

_OPERATIONS_AT_MOST: Final = 1000
_LAST_S: Final = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class Go:
    """Send it now. Give this back with the answer."""

    operation: str
    sent_after: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at this time, in seconds since the Unix epoch."""

    until: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Ask again when an answer to this operation came, or at ``until``."""

    until: float


class Pacer:
    """Decides by operation: what one operation used up says nothing of the others.

    Parameters
    ----------
    pace
        ``"burst"`` sends at will while requests remain, ``"even"`` spreads them over the window,
        ``"off"`` decides for sending, always.
    max_wait_s
        The longest wait; a longer one is a `QuotaExhaustedError`.
    reset_unit
        What ``X-RateLimit-Reset`` counts, where the user knows.
    """

    def __init__(
        self,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: ResetUnit | None = None,
    ) -> None:
        if pace not in ("burst", "even", "off"):
            raise ValueError('pace is "burst", "even" or "off".')
        self._pace = pace
        self._max_wait_s = max_wait_s
        self._renewals = RenewalReader(stated=reset_unit, max_wait_s=max_wait_s)
        self._allowances: dict[str, Allowance] = {}

    def ask(self, operation: str, now: float) -> Go | Wait | Hold:
        """Return whether a request may be sent at ``now``.

        Raises
        ------
        QuotaExhaustedError
            Where nothing is left and the renewal is further away than ``max_wait_s``.
        """
        allowance = self._allowances.get(operation) or self._new(operation)
        if self._pace != "off":
            decision = self._hindrance(operation, allowance, now)
            if decision is not None:
                return decision
            allowance.next_slot = now + allowance.gap_s
        allowance.in_flight += 1
        return Go(operation, allowance.answers)

    def answered(self, ticket: Go, reading: Reading | None, now: float) -> None:
        """Take the answer to a request that was let go; None where none came."""
        allowance = self._allowances.get(ticket.operation)
        if allowance is None:
            return
        allowance.in_flight -= 1
        if reading is None or reading.source == "replayed" or self._pace == "off":
            return
        renewal = self._renewals.read(reading, too_early=self._was_too_early(allowance, reading))
        allowance.take(reading, ticket.sent_after, renewal, now)

    def renews_at(self, operation: str) -> float | None:
        """Return when an operation's allowance renews, where something tells; None where not."""
        allowance = self._allowances.get(operation)
        if allowance is None or not math.isfinite(allowance.renews_at):
            return None
        return allowance.renews_at

    def _hindrance(self, operation: str, allowance: Allowance, now: float) -> Wait | Hold | None:
        if allowance.remaining is None:
            # The first request asks what there is. Where the answers do not tell, none waits.
            first_is_out = allowance.in_flight > 0 and not allowance.was_answered
            return Hold(now + self._max_wait_s) if first_is_out else None
        if allowance.free > 0:
            return self._slot(allowance, now) if self._pace == "even" else None
        if allowance.remaining == 0 and allowance.may_probe(now):
            return None
        if allowance.in_flight:
            renews_later = now < allowance.renews_at
            return Hold(allowance.renews_at if renews_later else now + self._max_wait_s)
        if allowance.renews_at - now > self._max_wait_s:
            raise _exhausted(operation, allowance, now, self._max_wait_s)
        return Wait(allowance.renews_at)

    def _slot(self, allowance: Allowance, now: float) -> Wait | None:
        """Return the wait for the turn of an evenly spread request; None where it is now."""
        if now < allowance.next_slot <= now + self._max_wait_s:
            return Wait(allowance.next_slot)
        left_s = allowance.renews_at - now
        if not 0 < left_s < self._max_wait_s:
            left_s = TYPICAL_WINDOW_S * allowance.free / (allowance.limit or TYPICAL_LIMIT)
        allowance.gap_s = left_s / allowance.free
        return None

    def _was_too_early(self, allowance: Allowance, reading: Reading) -> bool:
        """Return whether a request that waited for its renewal was refused all the same."""
        told = math.isfinite(allowance.renews_at) and allowance.remaining == 0
        return told and reading.status == 429 and allowance.strikes == 0

    def _new(self, operation: str) -> Allowance:
        if len(self._allowances) >= _OPERATIONS_AT_MOST:
            idle = [name for name, kept in self._allowances.items() if not kept.in_flight]
            for name in idle:
                del self._allowances[name]
        self._allowances[operation] = allowance = Allowance()
        return allowance


def _exhausted(
    operation: str, allowance: Allowance, now: float, max_wait_s: float
) -> QuotaExhaustedError:
    until = datetime.fromtimestamp(min(allowance.renews_at, _LAST_S), UTC)
    return QuotaExhaustedError(
        f"Nothing is left for {operation} until {until:%Y-%m-%d %H:%M:%S} UTC, "
        f"{allowance.renews_at - now:.0f} s from now, and max_wait_s is {max_wait_s:g}. "
        "Try again then, or connect(…, max_wait_s=…) with more.",
        until=allowance.renews_at,
    )
