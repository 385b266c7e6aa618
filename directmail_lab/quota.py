"""The three rate-limit headers, read strictly: headers and a time in, a `Reading` out."""

from __future__ import annotations

from calendar import timegm
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from .contract import LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER
from .interaction import operation_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["REMAINING_OVER_LIMIT", "DateForm", "Reading", "Source", "date_of", "read_headers"]

Source = Literal["live", "recorded", "replayed"]

DateForm = Literal["http_date", "iso_text"]

REMAINING_OVER_LIMIT: Final = f"{REMAINING_HEADER} is larger than {LIMIT_HEADER}"

_RETRY_AFTER: Final = "Retry-After"
_DATE: Final = "Date"

# By lower-case name, as text and as the bytes that httpx keeps: which of our fields it fills.
# Two dictionaries, since a text and bytes of one spelling have one hash and would be compared.
_NAMES = (LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER, _RETRY_AFTER, _DATE)
_SLOTS: Final[dict[Any, int]] = {name.lower(): slot for slot, name in enumerate(_NAMES)}
_RAW_SLOTS: Final[dict[Any, int]] = {
    name.lower().encode(): slot for slot, name in enumerate(_NAMES)
}

_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19
_LONGEST_DATE: Final = 64

# RFC 9110, section 5.6.3: what may stand around a field value without being part of it.
_OPTIONAL_WHITESPACE: Final = " \t"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one response said of the allowance.

    ``at`` is when the response came, in seconds since the Unix epoch; ``limit``, ``remaining`` and
    ``reset`` are the headers as sent (service.md part 8), None where missing or malformed, and then
    ``problem`` says what is wrong. ``retry_after_s`` is the seconds a ``Retry-After`` asks to wait.

    ``reset_text`` is what ``X-RateLimit-Reset`` held where that was no integer but a date: the
    document promises an integer, so ``problem`` tells it, and the date can still be used.
    ``served_at`` is the service's own clock, from its ``Date`` header, in whole seconds since the
    Unix epoch.
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
    reset_text: str | None = None
    served_at: float | None = None


def read_headers(
    headers: Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]],
    *,
    at: float,
    method: str,
    path: str,
    status: int,
    elapsed_s: float | None = None,
    source: Source = "live",
    cassette: str | None = None,
) -> Reading:
    """Read one response's headers. Nothing in them raises: what is wrong is the reading's problem.

    Parameters
    ----------
    headers
        Name and value of each, names in any case: texts, or bytes as in httpx's ``headers.raw``,
        which costs half as much.
    at
        When the response came, in seconds since the Unix epoch. A ``Retry-After`` that is a date
        counts from here, or from the service's own clock where it sent a ``Date``.
    """
    found = _find(headers)
    limit_text, remaining_text, reset_text, retry_after, date = found
    limit, problem = _integer(limit_text, LIMIT_HEADER)
    remaining, second = _integer(remaining_text, REMAINING_HEADER)
    reset, third = _integer(reset_text, RESET_HEADER)
    if second or third:
        problem = "; ".join(filter(None, (problem, second, third)))
    if limit is not None and remaining is not None and remaining > limit:
        problem = f"{problem}; {REMAINING_OVER_LIMIT}" if problem else REMAINING_OVER_LIMIT
    served_at = _http_date(date) if isinstance(date, str) else None
    dated = None
    if third and isinstance(reset_text, str) and date_of(reset_text) is not None:
        dated = reset_text.strip(_OPTIONAL_WHITESPACE)
    return Reading(
        at,
        method,
        path,
        _operation_of(path),
        status,
        limit,
        remaining,
        reset,
        elapsed_s,
        source,
        cassette,
        problem,
        None if retry_after is None else _retry_after_s(retry_after, served_at or at),
        dated,
        served_at,
    )


# A session asks few paths many times.
_operation_of = lru_cache(maxsize=1024)(operation_of)

_Found = str | int | None
"""A header's value; None where it was not sent, and how often where it was sent repeatedly."""


def _find(headers: Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]) -> list[_Found]:
    """Return the value of each of our headers."""
    pairs: list[tuple[Any, Any]] = headers if isinstance(headers, list) else list(headers)
    found: list[_Found] = [None] * len(_NAMES)
    slots = _RAW_SLOTS if pairs and isinstance(pairs[0][0], bytes) else _SLOTS
    for name, value in pairs:
        slot = slots.get(name.lower())
        if slot is not None:
            before = found[slot]
            if before is None:
                found[slot] = value if isinstance(value, str) else value.decode("latin-1")
            else:
                found[slot] = before + 1 if isinstance(before, int) else 2
    return found


def _integer(text: _Found, name: str) -> tuple[int | None, str | None]:
    """Return a header's integer and None, or None and what is wrong with it."""
    if isinstance(text, str) and text.isdigit() and text.isascii() and len(text) < _INT64_DIGITS:
        return int(text), None
    return _odd_integer(text, name)


def _odd_integer(text: _Found, name: str) -> tuple[int | None, str | None]:
    if text is None:
        return None, f"{name} is missing"
    if isinstance(text, int):
        return None, f"{name} was sent {'twice' if text == 2 else f'{text} times'}"
    text = text.strip(_OPTIONAL_WHITESPACE)
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        if len(digits) <= _INT64_DIGITS and int(digits) <= _INT64_MAX:
            return int(digits), None
        return None, f"{name} is too large"
    return None, f"{name} {_fault(text)}"


def _fault(text: str) -> str:
    """Return what is wrong with a value that is not all ASCII digits."""
    if not text:
        return "is empty"
    if text[0] in "+-" and text[1:].isascii() and text[1:].isdigit():
        return "is negative" if text[0] == "-" else "has a sign"
    dated = date_of(text)
    if dated is not None:
        return "is an HTTP date" if dated[0] == "http_date" else "is an ISO 8601 text"
    return "holds a list" if "," in text else "is not an integer"


def _retry_after_s(value: str | int, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait; None where it cannot be read."""
    if isinstance(value, int):
        return None
    text = value.strip(_OPTIONAL_WHITESPACE)
    if text.isascii() and text.isdigit():
        return float(text[-400:]) if len(text) < _INT64_DIGITS else float(_INT64_MAX)
    until = _http_date(text)
    return None if until is None else max(0.0, until - now)


@lru_cache(maxsize=256)
def date_of(text: str) -> tuple[DateForm, float] | None:
    """Return the form of a date and its seconds since the Unix epoch; None where it is no date.

    An ISO 8601 text without an offset is taken as UTC.
    """
    text = text.strip(_OPTIONAL_WHITESPACE)
    seconds = _http_date(text)
    if seconds is not None:
        return "http_date", seconds
    if len(text) > _LONGEST_DATE or "-" not in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return "iso_text", moment.timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=256)
def _http_date(text: str) -> float | None:
    """Return an HTTP date (RFC 9110, section 5.6.7) in seconds since the Unix epoch, or None."""
    # The parser of mail dates accepts much that HTTP does not: a date names its day or month.
    if len(text) > _LONGEST_DATE or not text[:3].strip(_OPTIONAL_WHITESPACE).isalpha():
        return None
    try:
        moment = parsedate_to_datetime(text.strip(_OPTIONAL_WHITESPACE))
        return float(timegm(moment.utctimetuple()))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
