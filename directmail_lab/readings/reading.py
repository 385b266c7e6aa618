"""Reads the three rate-limit headers strictly: takes headers and a time, returns a `Reading`."""

from __future__ import annotations

import math
from calendar import timegm
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from ..contract import HEADERS, LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER
from ..interaction import Interaction, operation_of, path_below

Source = Literal["live", "recorded", "replayed"]

DateForm = Literal["http_date", "iso_text"]

REMAINING_OVER_LIMIT: Final = f"{REMAINING_HEADER} is larger than {LIMIT_HEADER}"

_SENT_BY_SERVICES: Final = (*HEADERS, "Retry-After", "Date")
# By the name in lower case, as text and as the bytes that httpx keeps.
_NAMES: Final[dict[str | bytes, str]] = {name.lower(): name for name in _SENT_BY_SERVICES} | {
    name.lower().encode(): name for name in _SENT_BY_SERVICES
}

_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 20  # one more than the largest has
_LONGEST_WAIT_S: Final = float(_INT64_MAX)
_LONGEST_DATE: Final = 64

# RFC 9110, section 5.6.3: what may stand around a field value without being part of it.
_WHITESPACE: Final = " \t"


class Reading(NamedTuple):
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


def recorded_reading(
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


def reading_of(interaction: Interaction, path: str) -> Reading:
    """Return the reading of a recorded response, whose path is this."""
    return recorded_reading(interaction)._replace(path=path, operation=operation_of(path))


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
    values: dict[str, list[str]] = {}
    for spelling, value in headers:
        name = _NAMES.get(spelling.lower())
        if name is not None:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            values.setdefault(name, []).append(text.strip(_WHITESPACE))
    problems: list[str] = []
    limit, remaining, reset = [_parse_integer(name, values, problems) for name in HEADERS]
    if limit is not None and remaining is not None and remaining > limit:
        problems.append(REMAINING_OVER_LIMIT)
    served_at = _parse_http_date(_single_value(values, "Date"))
    reset_text = None
    if reset is None and parse_date(_single_value(values, RESET_HEADER)) is not None:
        reset_text = _single_value(values, RESET_HEADER)
    retry_after_s = _parse_retry_after(_single_value(values, "Retry-After"), served_at or at)
    return Reading(
        at, method, path, _operation_of(path), status, limit, remaining, reset, elapsed_s, source,
        cassette, "; ".join(problems) or None, retry_after_s, reset_text, served_at,
    )  # fmt: skip


# A session requests few paths many times.
_operation_of = lru_cache(maxsize=1024)(operation_of)


def _single_value(values: dict[str, list[str]], name: str) -> str:
    """Return the value of a header that was sent exactly once, else an empty text."""
    sent = values.get(name)
    return sent[0] if sent is not None and len(sent) == 1 else ""


def _parse_integer(name: str, values: dict[str, list[str]], problems: list[str]) -> int | None:
    """Return a header's integer; or None, and add what is wrong with it to ``problems``."""
    sent = values.get(name, ())
    text = sent[0] if len(sent) == 1 else ""
    if text.isascii() and text.isdigit():
        number = int(text.lstrip("0")[:_INT64_DIGITS] or "0")
        if number <= _INT64_MAX:
            return number
        problem = "is too large"
    elif len(sent) != 1:
        problem = f"was sent {len(sent)} times" if sent else "is missing"
    elif (date := parse_date(text)) is not None:
        problem = "is an HTTP date" if date[0] == "http_date" else "is an ISO 8601 date"
    elif text[:1] == "-" and text[1:].isdigit():
        problem = "is negative"
    else:
        problem = "is not an integer"
    problems.append(f"{name} {problem}")
    return None


def _parse_retry_after(text: str, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait; None if it cannot be read."""
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_WAIT_S)
    until = _parse_http_date(text)
    return None if until is None else max(0.0, until - now)


def parse_date(text: str) -> tuple[DateForm, float] | None:
    """Return the form of a date and its seconds since the Unix epoch; None if it is no date.

    An ISO 8601 text without an offset is taken as UTC.
    """
    text = text.strip(_WHITESPACE)
    seconds = _parse_http_date(text)
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
def _parse_http_date(text: str) -> float | None:
    """Return an HTTP date (RFC 9110, section 5.6.7) in seconds since the Unix epoch, or None."""
    # The parser is for mail, and accepts more than HTTP does: an HTTP date begins with a day name.
    if len(text) > _LONGEST_DATE or not text[:3].isalpha():
        return None
    try:
        return float(timegm(parsedate_to_datetime(text).utctimetuple()))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
