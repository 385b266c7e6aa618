"""The three rate-limit headers, read strictly: headers and a time in, a `Reading` out."""

from __future__ import annotations

from calendar import timegm
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ..contract import HEADERS, LIMIT_HEADER, REMAINING_HEADER
from ..interaction import operation_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["REMAINING_OVER_LIMIT", "DateForm", "Reading", "Source", "date_of", "read_headers"]

Source = Literal["live", "recorded", "replayed"]

DateForm = Literal["http_date", "iso_text"]

REMAINING_OVER_LIMIT: Final = f"{REMAINING_HEADER} is larger than {LIMIT_HEADER}"

# By name, as it is mostly spelled and in lower case, as text and as the bytes that httpx keeps:
# which of our fields it fills.
# Two dictionaries, since a text and bytes of one spelling have one hash and would be compared.
_NAMES: Final = (*HEADERS, "Retry-After", "Date")
_SLOTS: Final[dict[Any, int]] = {
    spelling: slot for slot, name in enumerate(_NAMES) for spelling in (name, name.lower())
}
_RAW_SLOTS: Final[dict[Any, int]] = {name.encode(): slot for name, slot in _SLOTS.items()}
# Most headers are none of these, and of another length: those need no lower case.
_LENGTHS: Final = frozenset(map(len, _NAMES))

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


# A frozen dataclass sets each field by a call: made unfrozen, and frozen then, it takes a fifth.
_Unfrozen: Any = make_dataclass("_Unfrozen", Reading.__slots__, slots=True)


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
    limit_value, remaining_value, reset_value, retry_after, date = _find(headers)
    limit, limit_fault = _integer(limit_value)
    remaining, remaining_fault = _integer(remaining_value)
    reset, reset_fault = _integer(reset_value)
    over = limit is not None and remaining is not None and remaining > limit
    problem = None
    if over or limit_fault or remaining_fault or reset_fault:
        problem = _problem((limit_fault, remaining_fault, reset_fault), over=over)
    served_at = None if date is None else _served_at(date)
    reading = _Unfrozen(
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
        None if retry_after is None else _retry_after_s(_text(retry_after), served_at or at),
        _dated(_text(reset_value)) if reset_fault else None,
        served_at,
    )
    reading.__class__ = Reading
    return cast("Reading", reading)


# A session asks few paths many times.
_operation_of = lru_cache(maxsize=1024)(operation_of)

_Found = str | bytes | int | None
"""A header's value; None where it was not sent, and how often where it was sent repeatedly."""


def _find(headers: Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]) -> list[_Found]:
    """Return the value of each of our headers."""
    pairs: list[tuple[Any, Any]] = headers if isinstance(headers, list) else list(headers)
    found: list[_Found] = [None] * len(_NAMES)
    slots = _RAW_SLOTS if pairs and isinstance(pairs[0][0], bytes) else _SLOTS
    for name, value in pairs:
        slot = slots.get(name)
        if slot is None and len(name) in _LENGTHS:
            slot = slots.get(name.lower())
        if slot is not None:
            before = found[slot]
            found[slot] = value if before is None else before + 1 if isinstance(before, int) else 2
    return found


def _text(value: _Found) -> str:
    """Return a value as text: none where it was not sent, or not once."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=4096)
def _integer(value: _Found) -> tuple[int | None, str | None]:
    """Return a header's integer and None, or None and what is wrong with it."""
    if value is None:
        return None, "is missing"
    if isinstance(value, int):
        return None, "was sent twice" if value == 2 else f"was sent {value} times"
    text = _text(value).strip(_OPTIONAL_WHITESPACE)
    if not (text.isascii() and text.isdigit()):
        return None, _fault(text)
    digits = text.lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS or int(digits) > _INT64_MAX:
        return None, "is too large"
    return int(digits), None


@lru_cache(maxsize=256)
def _served_at(date: str | bytes | int) -> float | None:
    return _http_date(_text(date))


def _problem(faults: tuple[str | None, ...], *, over: bool) -> str:
    """Return what is wrong with the three headers, in one text."""
    told = [f"{name} {fault}" for name, fault in zip(HEADERS, faults, strict=True) if fault]
    if over:
        told.append(REMAINING_OVER_LIMIT)
    return "; ".join(told)


def _dated(text: str) -> str | None:
    return text.strip(_OPTIONAL_WHITESPACE) if date_of(text) is not None else None


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


def _retry_after_s(text: str, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait; None where it cannot be read."""
    text = text.strip(_OPTIONAL_WHITESPACE)
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < _INT64_DIGITS else float(_INT64_MAX)
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
