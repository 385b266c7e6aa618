"""The stand-in's allowances: counting requests in windows, and writing the three headers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from directmail_lab.contract import LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER

if TYPE_CHECKING:
    from directmail_lab.interaction import Headers

    from .options import ResetUnit, StandInOptions, WindowKind

__all__ = ["Allowance", "Allowances", "limit_headers", "reset_text", "retry_after_text"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left for one caller and operation, now.

    ``renews_at`` is in seconds since the Unix epoch. ``exceeded`` says that this request was one
    too many.
    """

    limit: int
    remaining: int
    renews_at: float
    exceeded: bool = False


class _Window(Protocol):
    def take(self, now: float) -> Allowance: ...


class _CountedWindow:
    """A window that starts with its first request, or at a whole multiple of its length."""

    def __init__(self, limit: int, window_s: float, *, aligned: bool) -> None:
        self._limit = limit
        self._window_s = window_s
        self._aligned = aligned
        self._ends_at = -math.inf
        self._used = 0

    def take(self, now: float) -> Allowance:
        if now >= self._ends_at:
            begins_at = math.floor(now / self._window_s) * self._window_s if self._aligned else now
            self._ends_at = begins_at + self._window_s
            self._used = 0
        exceeded = self._used >= self._limit
        self._used += not exceeded
        return Allowance(self._limit, self._limit - self._used, self._ends_at, exceeded)


class _SlidingWindow:
    """A count of the requests of the last window; one that was refused is not counted."""

    def __init__(self, limit: int, window_s: float) -> None:
        self._limit = limit
        self._window_s = window_s
        self._taken: deque[float] = deque()

    def take(self, now: float) -> Allowance:
        while self._taken and self._taken[0] <= now - self._window_s:
            self._taken.popleft()
        exceeded = len(self._taken) >= self._limit
        if not exceeded:
            self._taken.append(now)
        oldest = self._taken[0] if self._taken else now
        remaining = self._limit - len(self._taken)
        return Allowance(self._limit, remaining, oldest + self._window_s, exceeded)


class Allowances:
    """The windows of a stand-in, one for each caller and operation."""

    def __init__(self, options: StandInOptions) -> None:
        self._options = options
        self._windows: dict[tuple[str, str, str], _Window] = {}

    def take(self, caller: str, method: str, operation: str, now: float) -> Allowance:
        """Count one request, and return what it leaves. HEAD counts as the GET it stands for."""
        counted_as = "GET" if method == "HEAD" else method
        key = (caller, counted_as, operation)
        if key not in self._windows:
            limit = self._options.limit_of(counted_as, operation)
            self._windows[key] = _new_window(self._options.window, limit, self._options.window_s)
        return self._windows[key].take(now)


def _new_window(kind: WindowKind, limit: int, window_s: float) -> _Window:
    if kind == "sliding":
        return _SlidingWindow(limit, window_s)
    return _CountedWindow(limit, window_s, aligned=kind == "aligned")


def limit_headers(allowance: Allowance, unit: ResetUnit, now: float) -> Headers:
    """Return the three headers of service.md part 8."""
    return (
        (LIMIT_HEADER, str(allowance.limit)),
        (REMAINING_HEADER, str(allowance.remaining)),
        (RESET_HEADER, reset_text(allowance.renews_at, unit, now)),
    )


def reset_text(renews_at: float, unit: ResetUnit, now: float) -> str:
    """Return ``X-RateLimit-Reset``, rounded up: who waits that long is not too early."""
    match unit:
        case "seconds_left":
            return str(_up(renews_at - now))
        case "milliseconds_left":
            return str(_up((renews_at - now) * 1000))
        case "epoch_s":
            return str(_up(renews_at))
        case "epoch_ms":
            return str(_up(renews_at * 1000))
        case "http_date":
            return formatdate(_up(renews_at), usegmt=True)
        case "iso":
            return datetime.fromtimestamp(_up(renews_at), UTC).isoformat().replace("+00:00", "Z")
        case "zero":
            return "0"


def retry_after_text(renews_at: float, form: str, now: float) -> str | None:
    """Return ``Retry-After`` in one of its two forms, or None where it is off."""
    if form == "off":
        return None
    if form == "date":
        return formatdate(_up(renews_at), usegmt=True)
    return str(_up(renews_at - now))


def _up(value: float) -> int:
    # Binary fractions: 60.000000001 s left, of a window of 60 s, are 60.
    return math.ceil(round(value, 3))
