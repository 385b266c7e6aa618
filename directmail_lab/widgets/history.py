"""A session's readings in little room: what a live picture needs, whatever their number. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..quota import Reading, is_exhausted

BINS: Final = 160
OPERATIONS: Final = 32


@dataclass(slots=True)
class Bin:
    """Neighbouring responses: the least, the most and the last that remained, and their marks."""

    low: int | None = None
    high: int | None = None
    last: int | None = None
    exhausted: int = 0
    failed: int = 0

    def add(self, other: Bin) -> None:
        """Take in later responses."""
        if other.low is not None and other.high is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)
            self.last = other.last
        self.exhausted += other.exhausted
        self.failed += other.failed


@dataclass(slots=True)
class OperationHistory:
    """One operation: its latest reading, its counts, and its course in at most `BINS` bins.

    A bin holds ``per_bin`` responses; when all are full, neighbours are merged and it holds twice
    as many. So adding one costs the same whatever came before, and so does drawing.
    """

    name: str
    latest: Reading
    responses: int = 0
    exhausted: int = 0
    failed: int = 0
    faulty: int = 0
    per_bin: int = 1
    bins: list[Bin] = field(default_factory=list)

    def add(self, reading: Reading) -> None:
        """Take in the next response."""
        left, status = reading.remaining, reading.status
        exhausted = bool(is_exhausted(status, left))
        point = Bin(left, left, left, int(exhausted), int(status >= 400 and not exhausted))
        # 4 responses, 2 a bin: two bins are full, so the fifth response opens a third.
        opens_a_bin = self.responses % self.per_bin == 0
        self.latest = reading
        self.responses += 1
        self.exhausted += point.exhausted
        self.failed += point.failed
        self.faulty += reading.problem is not None
        if not opens_a_bin:
            self.bins[-1].add(point)
            return
        if len(self.bins) == BINS:
            self._merge()
        self.bins.append(point)

    def _merge(self) -> None:
        for first, second in zip(self.bins[::2], self.bins[1::2], strict=True):
            first.add(second)
        self.bins = self.bins[::2]
        self.per_bin *= 2


class History:
    """The operations of a session, the one that was used last at the end."""

    def __init__(self) -> None:
        self.operations: dict[str, OperationHistory] = {}
        self.responses = 0

    def add(self, reading: Reading) -> None:
        """Take in the next response, in constant time."""
        name = f"{reading.method} {reading.operation}"
        operation = self.operations.pop(name, None) or OperationHistory(name, reading)
        operation.add(reading)
        self.operations[name] = operation
        self.responses += 1
        if len(self.operations) > OPERATIONS:
            del self.operations[next(iter(self.operations))]
