"""A reading: the rate-limit headers of one response, and when it came.

A `Reading` parses the headers when they are asked for, since a session makes one for each response
and few are looked at.
"""

from __future__ import annotations

import math
import re
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from ..exchange.contract import HEADERS, LIMIT_HEADER, REMAINING_HEADER
from ..exchange.operations import operation_of
from ..exchange.values import Cut, Headers, Interaction

ReadingSource = Literal["live", "recorded", "replayed", "kept"]

BY_CALLER: tuple[Cut, ...] = ("left", "aborted")
"""What cuts a response if its caller ends it."""
REMAINING_OVER_LIMIT = f"{REMAINING_HEADER} is larger than {LIMIT_HEADER}"
LAST_S = 253_402_300_799
"""9999-12-31 23:59:59, the last second of a datetime. A later reset, or one before 1970, is NaT."""

_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 20  # one more than the largest has
_LONGEST_DATE = 64
_DECIMAL = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}")


class RawValues(NamedTuple):
    """Headers as they were sent. The values of a repeated header are joined by a comma."""

    limit: str | None = None
    remaining: str | None = None
    reset: str | None = None
    retry_after: str | None = None
    date: str | None = None
    age: str | None = None


_NAMES = [name.lower() for name in (*HEADERS, "Retry-After", "Date", "Age")]
_FIELDS = dict(zip(_NAMES, RawValues._fields, strict=True))


def raw_values(headers: Headers) -> RawValues:
    """Return the headers that a `Reading` keeps."""
    found: dict[str, str] = {}
    for name, value in headers:
        field = _FIELDS.get(name.lower())
        if field is None:
            continue
        text = value.strip(" \t")
        found[field] = f"{found[field]}, {text}" if field in found else text
    return RawValues(**found)


class Reading(NamedTuple):
    """What one response says about the allowance. It never raises, whatever a service sends.

    Attributes
    ----------
    at
        When the response came, in seconds since the Unix epoch; NaN if that is not known.
    path
        The path below the service address, without credentials.
    raw
        The rate-limit headers. The repr leaves them out, since a service may send the key back.
    elapsed_s
        Seconds from the request to the headers of the response.
    cassette, cassette_number
        The cassette that contains the interaction, and the interaction's number there, from 1.
    attempt
        2 or more if the request was sent again after a response that allows that.
    cut
        Why the response is not whole, or None; see `directmail_lab.exchange.values.Cut`. The status
        is 0 if no response came.
    elsewhere
        The origin of another server, ``https://files.example.com``; empty for the service itself.
        That server has its own allowance, and gets no key.
    """

    at: float
    method: str
    path: str
    status: int
    raw: RawValues = RawValues()
    elapsed_s: float | None = None
    source: ReadingSource = "live"
    cassette: str | None = None
    cassette_number: int | None = None
    attempt: int = 1
    cut: Cut | None = None
    elsewhere: str = ""

    def __repr__(self) -> str:
        return f"<Reading {self.method} {self.path} {self.status}>"

    def redacted(self, hide_keys: Callable[[list[str]], list[str]]) -> Reading:
        """Return the reading without the key, which a service may have put in a header."""
        texts = [value or "" for value in (self.path, self.elsewhere, *self.raw)]
        redacted = hide_keys(texts)
        if redacted == texts:
            return self
        path, elsewhere, *values = redacted
        raw = RawValues(*[old and new for old, new in zip(self.raw, values, strict=True)])
        return self._replace(path=path, elsewhere=elsewhere, raw=raw)

    @property
    def is_earlier(self) -> bool:
        """Whether nothing was sent, and the response is that of an earlier request."""
        return self.source in ("replayed", "kept")

    @property
    def operation(self) -> str:
        """The path with ``{id}`` in place of each id. An allowance applies to an operation.

        At another server, it begins with the origin.
        """
        return f"{self.elsewhere}{operation_of(self.path)}"

    @property
    def limit(self) -> int | None:
        """How many requests a window allows; None if the header is missing or malformed."""
        return _integer(self.raw.limit)[0]

    @property
    def remaining(self) -> int | None:
        """How many requests are left in the window; None if it is missing or malformed."""
        return _integer(self.raw.remaining)[0]

    @property
    def reset_number(self) -> float | None:
        """The value of Reset if it is a number, also a decimal one; see `problem`."""
        return _number(self.raw.reset)

    @property
    def why_cut(self) -> str | None:
        """Why the response is not whole: ``no response came (read timeout)``; None if it is."""
        if self.cut is None:
            return None
        if self.cut in BY_CALLER:
            return "aborted before the end of the response"
        if not self.status:
            return f"no response came ({self.cut.replace('_', ' ')})"
        return "the connection broke before the end of the body"

    @property
    def problem(self) -> str | None:
        """What is wrong with the three headers or the response; it does not quote their values."""
        return problem_of(self, parse_counts(self.raw[:3]).problem)

    @property
    def retry_after_s(self) -> float | None:
        """How many seconds ``Retry-After`` asks to wait, or None.

        For a date, this is the time from the service's ``Date``, or else from ``at``.
        """
        if self.raw.retry_after is None:
            return None
        seconds = _number(self.raw.retry_after)
        if seconds is not None:
            return seconds
        until = seconds_of(self.raw.retry_after)
        return None if until is None else max(0.0, until - (self.served_at or self.at))

    @property
    def age_s(self) -> float:
        """For how many seconds a cache has had the response; 0 if the service sent it now."""
        return 0.0 if self.raw.age is None else _number(self.raw.age) or 0.0

    @property
    def served_at(self) -> float | None:
        """The service's time from ``Date``, in whole seconds since the Unix epoch, or None."""
        return seconds_of(self.raw.date)


def reading_of(
    interaction: Interaction, path: str, *, cassette: str | None = None, elsewhere: str = ""
) -> Reading:
    """Return the reading of a recorded response, at the time of its recording.

    ``path`` is the path of the request below the service address.
    """
    at = interaction.recorded_at
    response = interaction.response
    return Reading(
        math.nan if at is None else at.timestamp(),
        interaction.request.method,
        path,
        response.status,
        raw_values(response.headers),
        interaction.elapsed_s,
        "recorded",
        cassette,
        attempt=interaction.attempt,
        cut=response.cut,
        elsewhere=elsewhere,
    )


def used_up(readings: Sequence[Reading]) -> list[bool]:
    """Return for each response whether it says that the allowance is used up.

    service.md part 8 leaves open which status says that. A 429 does if nothing remains; without a
    value, if nothing remained before it. Another error status does if it came at least twice with
    nothing remaining, and never with requests left.
    """
    left = {each.status for each in readings if each.remaining}
    empty = Counter(each.status for each in readings if each.remaining == 0)
    others = {status for status in empty if empty[status] > 1 and status not in left}
    last: dict[str, int | None] = {}
    found = []
    for each in readings:
        remaining = each.remaining
        if remaining is None and each.status == 429:
            remaining = last.get(each.operation)
        last[each.operation] = remaining
        is_refusal = each.status == 429 or (each.status >= 400 and each.status in others)
        found.append(is_refusal and remaining == 0)
    return found


MARKS = {"refused": "× ", "failed": "▲ ", "aborted": "■ "}
"""What stands before a status, so that its colour does not say it alone."""


def mark_of(reading: Reading) -> str:
    """Return ``"aborted"``, ``"refused"`` (429), ``"failed"`` (another error) or ``""``."""
    if reading.cut in BY_CALLER:
        return "aborted"
    if reading.status == 429:
        return "refused"
    if reading.status >= 400 or reading.cut:
        return "failed"
    return ""


def problem_of(reading: Reading, of_headers: str | None) -> str | None:
    """Return what is wrong with a response, given what is wrong with its headers."""
    if not reading.status:
        return reading.why_cut
    return "; ".join(filter(None, [of_headers, reading.why_cut])) or None


class Counts(NamedTuple):
    """The three headers as integers, and what is wrong with them, or None."""

    limit: int | None
    remaining: int | None
    reset: int | None
    problem: str | None


def parse_counts(sent: Sequence[str | None]) -> Counts:
    """Return limit, remaining and reset as integers."""
    numbers = []
    problems = []
    for name, text in zip(HEADERS, sent, strict=True):
        number, fault = _integer(text)
        numbers.append(number)
        if fault:
            problems.append(f"{name} {fault}")
    limit, remaining, reset = numbers
    if limit is not None and remaining is not None and remaining > limit:
        problems.append(REMAINING_OVER_LIMIT)
    return Counts(limit, remaining, reset, "; ".join(problems) or None)


def _integer(text: str | None) -> tuple[int | None, str]:
    """Return a header's integer, or None and what is wrong with it."""
    if text is None:
        return None, "is missing"
    if text.isascii() and text.isdigit():
        # Python refuses to parse thousands of digits.
        number = int(text.lstrip("0")[:_INT64_DIGITS] or "0")
        if number > _INT64_MAX:
            return None, "is too large"
        return number, ""
    if seconds_of(text) is not None:
        return None, "is a date"
    return None, "has several values" if "," in text else "is not an integer"


def _number(text: str | None) -> float | None:
    """Return a header's number, an integer or a decimal one, or None."""
    number = _integer(text)[0]
    if number is None and text is not None and _DECIMAL.fullmatch(text):
        return float(text)
    return number


def seconds_of(date: str | None) -> float | None:
    """Return a date of HTTP (RFC 9110, section 5.6.7) in seconds since the Unix epoch, or None."""
    # The parser is for mail. Unlike HTTP, it also accepts a date without the name of the day.
    if date is None or len(date) > _LONGEST_DATE or not date[:3].isalpha():
        return None
    with suppress(ValueError, OverflowError, IndexError, TypeError):
        return float(timegm(parsedate_to_datetime(date).utctimetuple()))
    return None
