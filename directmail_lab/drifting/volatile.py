"""Values that differ from one call to the next without anything having changed: the list."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ..contract import REMAINING_HEADER, RESET_HEADER

__all__ = [
    "PASSING_HEADERS",
    "VOLATILE_FIELDS",
    "VOLATILE_HEADERS",
    "is_volatile_field",
    "is_volatile_header",
    "moved_with_the_clock",
]

VOLATILE_HEADERS: Final = frozenset(
    {
        REMAINING_HEADER.lower(),
        RESET_HEADER.lower(),
        "date",
        "etag",
        "expires",
        "last-modified",
        "content-security-policy",  # holds a nonce where pages are made for one visit
    }
)
"""Headers whose value differs from call to call; that they are there is compared.

``X-RateLimit-Limit`` is not among them: another allowance is what one wants to hear of.
"""

PASSING_HEADERS: Final = frozenset(
    {
        # Set by caches, gateways and servers on the way, on one answer and not on the next.
        *("age", "via", "x-cache", "x-cache-hits", "x-served-by", "x-timer", "cf-cache-status"),
        *("cf-ray", "alt-svc", "nel", "report-to", "server-timing", "x-runtime"),
        *("x-response-time", "x-envoy-upstream-service-time", "retry-after", "set-cookie"),
        # Names of one request.
        *("x-request-id", "request-id", "x-correlation-id", "x-trace-id", "traceparent"),
        *("tracestate", "x-amzn-requestid", "x-amzn-trace-id", "x-amz-cf-id", "x-b3-traceid"),
        # Of the connection and of how the body was sent, not of what it says (a recording keeps
        # bodies decoded).
        *("connection", "keep-alive", "transfer-encoding", "content-encoding", "content-length"),
        *("vary", "accept-ranges", "trailer", "upgrade", "proxy-connection"),
    }
)
"""Headers that come and go: neither their value nor their presence is compared."""

VOLATILE_FIELDS: Final = frozenset(
    {
        *("requestid", "traceid", "correlationid", "nonce", "etag", "csrftoken"),
        *("servertime", "currenttime", "timestamp", "now", "generatedat", "respondedat"),
        *("updatedat", "lastseen", "lastseenat", "lastlogin", "lastloginat", "lastactiveat"),
        *("lastusedat", "lastrequestat", "expiresat", "expiresin", "elapsed", "elapsedms"),
        *("durationms", "tookms", "remaining", "requestcount", "requestsremaining"),
    }
)
"""Fields of a body, at any depth, whose value differs from call to call.

In small letters and digits alone: ``updatedat`` stands for ``updated_at`` and ``updatedAt``.
"""

# How far a server's clock, and the time that an answer travels, may put a time stamp off.
_NEAR_S = 300.0


def is_volatile_header(name: str, *, presence: bool = False) -> bool:
    """Return whether a header's value says nothing; ``presence``: nor whether it is there."""
    key = name.lower()
    return key in PASSING_HEADERS or (not presence and key in VOLATILE_HEADERS)


def is_volatile_field(name: str) -> bool:
    """Return whether a field of this name has another value at each call."""
    return re.sub(r"[^a-z0-9]", "", name.lower()) in VOLATILE_FIELDS


def moved_with_the_clock(
    was: object, is_now: object, *, recorded_at: datetime | None, now_at: datetime | None
) -> bool:
    """Return whether both values are the time of their own answer, whatever the field's name.

    ISO 8601 texts and numbers of seconds or milliseconds since 1970 count, within five minutes.
    """
    if recorded_at is None or now_at is None:
        return False
    return _is_about(was, recorded_at) and _is_about(is_now, now_at)


def _is_about(value: object, time: datetime) -> bool:
    at = _seconds(value)
    epoch_s = time.timestamp()
    return at is not None and any(abs(at / unit - epoch_s) <= _NEAR_S for unit in (1, 1000))


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e15 else None
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", value):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
