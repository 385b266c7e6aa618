"""Whether operations share one allowance, inferred from readings and never assumed.

service.md part 8 says that the allowance may differ by operation. Many services have one for all.
If two operations share it, ``remaining`` falls by one from a response of the one to a response of
the other:

- shared: ``GET /a`` 59, ``GET /b`` 58, ``GET /a`` 57, ``GET /b`` 56
- apart: ``GET /a`` 59, ``GET /b`` 59, ``GET /a`` 58, ``GET /b`` 58
"""

from __future__ import annotations

from dataclasses import dataclass, field

# One or two may be chance, if other programs use the same key.
_ENOUGH_STEPS = 3


@dataclass(slots=True)
class _SameLimit:
    """What the operations with one limit have shown: steps that fit, shared or apart."""

    last_operation: str
    last_remaining: int
    remaining: dict[str, int] = field(default_factory=dict)
    shared: int = 0
    apart: int = 0


class SharedAllowances:
    """Infers which limits are shared from readings, in the order of their responses."""

    def __init__(self) -> None:
        self._by_limit: dict[int | None, _SameLimit] = {}

    def observe(self, operation: str, limit: int | None, remaining: int | None) -> None:
        """Take the next reading into account."""
        if limit is None or remaining is None:
            return
        known = self._by_limit.setdefault(limit, _SameLimit(operation, remaining))
        if operation != known.last_operation:
            before = known.remaining.get(operation, limit)
            fits_shared = remaining == known.last_remaining - 1
            fits_apart = remaining == before - 1
            if fits_shared and not fits_apart:
                known.shared += 1
            # An operation that is new may have come after a renewal.
            if fits_apart and not fits_shared and operation in known.remaining:
                known.apart += 1
        known.remaining[operation] = remaining
        known.last_operation = operation
        known.last_remaining = remaining

    def is_shared(self, limit: int | None) -> bool:
        """Return whether the operations with this limit share one allowance."""
        known = self._by_limit.get(limit)
        if known is None or known.shared < _ENOUGH_STEPS:
            return False
        # Responses of several threads may arrive in another order than they were counted.
        return known.shared > 2 * known.apart


def name_of_shared(limit: int) -> str:
    """Return how a chart and the monitor name an allowance that operations share."""
    return f"Shared allowance of {limit:,}"
