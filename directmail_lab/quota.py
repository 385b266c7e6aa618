"""The three rate-limit headers, read strictly: headers and a time in, a `Reading` out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Reading", "Source"]

Source = Literal["live", "recorded", "replayed"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one response said of the allowance.

    ``at`` is when the response came, in seconds since the Unix epoch; ``limit``, ``remaining`` and
    ``reset`` are the headers as sent (service.md part 8), None where missing or malformed, and then
    ``problem`` says what is wrong. ``retry_after_s`` is the seconds a ``Retry-After`` asks to wait.
    """

    at: float
    method: str
    path: str
    operation: str
    status: int
    limit: int | None
    remaining: int | None
    reset: int | None
    elapsed_s: float | None = None
    source: Source = "live"
    cassette: str | None = None
    problem: str | None = None
    retry_after_s: float | None = None
