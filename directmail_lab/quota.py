"""Reads the three rate-limit headers strictly: takes headers and a time, returns a `Reading`."""

from __future__ import annotations

import math
from calendar import timegm
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final, Literal

from .contract import HEADERS, LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER
from .interaction import Interaction, operation_of, path_below

Source = Literal["live", "recorded", "replayed"]

DateForm = Literal["http_date", "iso_text"]

REMAINING_OVER_LIMIT: Final = f"{REMAINING_HEADER} is larger than {LIMIT_HEADER}"

_NAMES: Final = (*HEADERS, "Retry-After", "Date")
# In lower case, as text and as the bytes that httpx keeps.
_SPELLINGS: Final[dict[str | bytes, str]] = {
    spelled: name for name in _NAMES for spelled in (name.lower(), name.lower().encode())
}

_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19
_LONGEST_DATE: Final = 64

# RFC 9110, section 5.6.3: what may stand around a field value without being part of it.
_OPTIONAL_WHITESPACE: Final = " \t"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one response said about the allowance.

    ``at`` is when the response came, in seconds since the Unix epoch; ``limit``, ``remaining`` and
    ``reset`` are the headers as sent (service.md part 8), None where missing or malformed, and then
    ``problem`` says what is wrong. ``retry_after_s`` is how many seconds ``Retry-After`` asks to
    wait.

    ``reset_text`` is the value of ``X-RateLimit-Reset`` if it is a date instead of an integer. The
    document promises an integer, so ``problem`` says so too, but the date can be used.
    ``served_at`` is the service's own time, from its ``Date`` header, in whole seconds since the
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


def is_exhausted(status: Any, remaining: Any) -> Any:
    """Return whether a response says that the allowance is used up.

    service.md leaves open which status that is. Status 429 counts, and any error status with
    nothing remaining. Takes two numbers and returns a bool, or two columns and returns a column.
    """
    return (status == 429) | ((status >= 400) & (remaining == 0))


def reading_of(
    interaction: Interaction,
    *,
    prefix: str = "",
    source: Source = "recorded",
    cassette: str | None = None,
) -> Reading:
    """Return the reading of a recorded response, at the time of its recording.

    ``prefix`` is the base address's path prefix. The reading's ``at`` is NaN if the cassette has no
    time for the response.
    """
    recorded_at = interaction.recorded_at
    return read_headers(
        interaction.response.headers,
        at=math.nan if recorded_at is None else recorded_at.timestamp(),
        method=_encodable(interaction.request.method),
        path=_encodable(path_below(interaction.request.uri, prefix)),
        status=interaction.response.status,
        elapsed_s=interaction.elapsed_s,
        source=source,
        cassette=None if cassette is None else _encodable(cassette),
    )


def _encodable(text: str) -> str:
    """Return a text with lone surrogates escaped, since UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


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
    """Read one response's headers. It never raises: the reading's ``problem`` says what is wrong.

    Parameters
    ----------
    headers
        Pairs of name (in any case) and value: texts, or bytes as in httpx's ``headers.raw``.
    at
        When the response came, in seconds since the Unix epoch. A ``Retry-After`` that is a date
        counts from here, or from the service's own clock where it sent a ``Date``.
    """
    sent: _Sent = {}
    for spelled, value in headers:
        name = _SPELLINGS.get(spelled.lower())
        if name is not None:
            sent.setdefault(name, []).append(value)
    (limit, remaining, reset), problem = _numbers(sent)
    date, retry_after = _only(sent, "Date"), _only(sent, "Retry-After")
    served_at = None if date is None else _http_date(date)
    reset_text = _only(sent, RESET_HEADER) if reset is None else None
    is_date = reset_text is not None and date_of(reset_text) is not None
    wait_s = None if retry_after is None else _retry_after_s(retry_after, served_at or at)
    return Reading(
        at, method, path, _operation_of(path), status, limit, remaining, reset, elapsed_s,
        source, cassette, problem, wait_s, reset_text if is_date else None, served_at,
    )  # fmt: skip


# A session requests few paths many times.
_operation_of = lru_cache(maxsize=1024)(operation_of)


_Sent = dict[str, list[Any]]
"""The values of the headers that are read here, by name; more than one if a header is repeated."""


def _text(value: str | bytes) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return text.strip(_OPTIONAL_WHITESPACE)


def _only(sent: _Sent, name: str) -> str | None:
    """Return the value of a header that was sent exactly once, else None."""
    values = sent.get(name, ())
    return _text(values[0]) if len(values) == 1 else None


def _numbers(sent: _Sent) -> tuple[list[int | None], str | None]:
    """Return the three integers, and all that is wrong with them as one text, or None."""
    numbers, problems = [], []
    for name in HEADERS:
        number, fault = _integer(sent.get(name, ()))
        numbers.append(number)
        if fault:
            problems.append(f"{name} {fault}")
    limit, remaining, _ = numbers
    if limit is not None and remaining is not None and remaining > limit:
        problems.append(REMAINING_OVER_LIMIT)
    return numbers, "; ".join(problems) or None


def _integer(values: Sequence[str | bytes]) -> tuple[int | None, str | None]:
    """Return a header's integer and None, or None and what is wrong with it."""
    if not values:
        return None, "is missing"
    if len(values) > 1:
        return None, "was sent twice" if len(values) == 2 else f"was sent {len(values)} times"
    value = values[0]
    if value.isascii() and value.isdigit() and len(value) < _INT64_DIGITS:
        return int(value), None
    text = _text(value)
    number = _digits(text)
    if number is None:
        return None, _fault(text)
    return (number, None) if number <= _INT64_MAX else (None, "is too large")


def _digits(text: str) -> int | None:
    """Return the value of ASCII digits, or None; beyond 20 digits only the first 20 count."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text.lstrip("0")[: _INT64_DIGITS + 1] or "0")


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
    """Return the seconds that a ``Retry-After`` asks to wait; None if it cannot be read."""
    seconds, until = _digits(text), _http_date(text)
    if seconds is not None:
        return float(min(seconds, _INT64_MAX))
    return None if until is None else max(0.0, until - now)


def date_of(text: str) -> tuple[DateForm, float] | None:
    """Return the form of a date and its seconds since the Unix epoch; None if it is no date.

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
    # The parser is for mail, and accepts more than HTTP does: an HTTP date begins with a day name.
    if len(text) > _LONGEST_DATE or not text[:3].isalpha():
        return None
    try:
        moment = parsedate_to_datetime(text)
        return float(timegm(moment.utctimetuple()))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
