"""When an allowance renews, as an answer's Reset and Retry-After tell."""

from __future__ import annotations

import math
from typing import Final

from ..quota import Reading, parse_date
from ..reset_unit import SCALES, ResetUnitInference, UnitName
from .state import PaceState, Renewal

# No window is shorter than a second: if all values are below 1,000, they are not milliseconds.
_LEAST_MILLISECONDS: Final = 1000
# Units with the shorter wait first.
_SMALLEST_FIRST: Final = sorted(SCALES, key=lambda unit: SCALES[unit].seconds)


class RenewalReader:
    """Turns Reset and Retry-After into a time.

    While the unit of Reset is uncertain, the unit with the shortest wait is assumed. If a refusal
    shows that this was too short, that unit is not assumed again: the operation's state keeps that.
    """

    def __init__(self, inference: ResetUnitInference, *, max_wait_s: float) -> None:
        self._inference = inference
        self._max_wait_s = max_wait_s
        # How far the service's clock is ahead of ours, by its `Date` headers.
        self._ahead_least_s, self._ahead_most_s = -math.inf, math.inf

    def read(self, reading: Reading, state: PaceState, ahead_s: float = 0.0) -> Renewal | None:
        """Return when the allowance renews, by a clock that is ``ahead_s`` ahead of ours, or None.

        It is None if the answer does not say when.
        """
        at = reading.at + ahead_s
        self._compare_clocks(reading)
        was_told = math.isfinite(state.renews_at) and state.remaining == 0
        if was_told and reading.status == 429 and not state.refusals:
            self._learn(reading, state, at)
        if reading.retry_after_s is not None and reading.status != 200:
            return Renewal(at + reading.retry_after_s)
        if reading.reset_text is not None:
            dated = parse_date(reading.reset_text)
            return None if dated is None else Renewal(dated[1] - self._ahead_s + ahead_s, 1.0)
        if reading.reset is None or not (reading.reset or state.largest):
            # Reset 0, 0, 0 says nothing. In Reset 2, 1, 0 the zero says that it renews now.
            return None
        # Within a window a time left falls and a point in time stays the same: 60, 59, 59. A larger
        # value belongs to another window.
        is_another = reading.reset > state.last_reset
        state.largest = max(state.largest, reading.reset)
        state.last_reset, state.last_at = reading.reset, at
        unit = self._unit(reading.reset, state)
        if unit is None:
            return None
        scale = SCALES[unit]
        counted_s = (reading.reset + state.rounds_down) * scale.seconds
        if scale.counts_down:
            return Renewal(at + counted_s, scale.seconds, reading.elapsed_s or 0.0, is_another)
        at = counted_s - self._ahead_s + ahead_s
        return Renewal(at, scale.seconds, is_another=is_another)

    def _learn(self, reading: Reading, state: PaceState, at: float) -> None:
        """Learn from a refusal after a full wait: a wrong unit, or values that are rounded down."""
        guessed = self._unit(state.last_reset, state)
        if reading.reset is None or guessed is None:
            return
        # A refusal alone proves nothing: another program may have used up the new window. The unit
        # is wrong if the value changed as it would in another unit, and not as in this one.
        fell, took_s = state.last_reset - reading.reset, at - state.last_at

        def fits(unit: UnitName) -> bool:
            expected = took_s / SCALES[unit].seconds if SCALES[unit].counts_down else 0.0
            return abs(fell - expected) <= 2 + 0.05 * expected

        counted_down = [unit for unit, scale in SCALES.items() if scale.counts_down]
        if guessed != self._inference.unit and not fits(guessed) and any(map(fits, counted_down)):
            state.refuted.append(guessed)
        # Reset is rounded down if the renewal it names has passed although the request was refused.
        # If only the unit was wrong, assume that too: waiting a second too long costs less than
        # another refusal.
        scale, is_refuted = SCALES[guessed], guessed in state.refuted
        left_s = reading.reset * scale.seconds - (0.0 if scale.counts_down else at + self._ahead_s)
        state.rounds_down |= is_refuted or left_s <= 0

    def _unit(self, count: int, state: PaceState) -> UnitName | None:
        if (known := self._inference.unit) in SCALES:
            return known
        left = [unit for unit in _SMALLEST_FIRST if unit in self._inference.candidates]
        if state.refuted:
            left = [unit for unit in left if unit not in state.refuted] or left
        if (
            len(left) > 1
            and left[0] == "milliseconds_left"
            and state.largest < _LEAST_MILLISECONDS
            and count <= self._max_wait_s
        ):
            return left[1]
        return left[0] if left else None

    def _compare_clocks(self, reading: Reading) -> None:
        """Narrow down how far the service's clock is ahead, by the ``Date`` of an answer.

        ``Date`` is rounded down to a second, and was written at most ``elapsed_s`` ago.
        """
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
        """How far the service's clock is ahead of ours at least; 0 if that is not certain."""
        unsure = self._ahead_least_s == -math.inf or self._ahead_least_s <= 0 <= self._ahead_most_s
        return 0.0 if unsure else self._ahead_least_s
