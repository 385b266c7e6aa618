"""A request and its response as a value: what was sent, what came back, when, how long it took.

`check_interaction` checks each value that is read from a file, once. All other code relies on the
types and ranges that it allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from ..errors import CassetteFormatError

Headers = tuple[tuple[str, str], ...]
"""Header names and values, in the order they were sent, a repeated one more than once."""

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of a header is (RFC 9110, section 5.6.2)."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as a cassette keeps it. ``body`` is None where none was sent."""

    method: str
    uri: str
    headers: Headers = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        # Before redaction an address, a header or a body may hold the key.
        return f"<RecordedRequest {self.method}>"


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """A response as a cassette keeps it: the body decoded, and headers that fit it."""

    status: int
    reason: str = ""
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<RecordedResponse {self.status}, {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class Interaction:
    """A request and its response.

    ``recorded_at`` is when the response came (an aware datetime, UTC) and ``elapsed_s`` the seconds
    from sending the request until then; in a cassette of vcrpy's they are the response's ``Date``,
    if it has one, and None.
    ``attempt`` is 2 and more where the request was sent again after a response that allows that,
    such as a 503: one call, several interactions.
    """

    request: RecordedRequest
    response: RecordedResponse
    recorded_at: datetime | None = None
    elapsed_s: float | None = None
    attempt: int = 1


MALFORMED: Final = (
    *(AttributeError, CassetteFormatError, IndexError, KeyError, OverflowError, RecursionError),
    *(TypeError, ValueError),
)
"""What reading an interaction may raise if its values do not have the expected form."""

PLAIN_URL: Final = r"https?://[\w.-]{1,255}(?::[1-5]?\d{1,4})?(?:[/?#][!#-\[\]-~]*)?"
"""A pattern of ASCII for most addresses; each that it matches is valid, and needs no escape."""

_METHOD: Final = re.compile("[!-~]{1,64}")
# Takes a tenth of the time of urlsplit.
_PLAIN_URL: Final = re.compile(PLAIN_URL, re.ASCII)
_LONGEST_S: Final = 1e9
_YEARS: Final = range(1900, 2200)
"""Years that the times of a DataFrame can hold in any unit and any time zone."""
_NO_YEAR: Final = f"its year is not from {_YEARS[0]} to {_YEARS[-1]}"


def unreadable(which: str, error: Exception) -> CassetteFormatError:
    """Return the error that says which interaction cannot be read, and why; it holds no value."""
    why = str(error).rstrip(".") if isinstance(error, CassetteFormatError) else ""
    why = why or "a part of it is missing, or of another type"
    return CassetteFormatError(f"{which} cannot be read: {why}.", "Correct it, or record it again.")


def check_interaction(interaction: Interaction) -> Interaction:
    """Return an interaction that was read from a file.

    Raises
    ------
    CassetteFormatError
        A value has a wrong type or is out of range, or the address is not a URL. The message holds
        no value.
    """
    check_times(interaction.recorded_at, interaction.elapsed_s)
    check_request(interaction.request)
    check_response(interaction.response)
    return interaction


def check_request(request: RecordedRequest) -> RecordedRequest:
    """Return a request that was read from a file; raises as `check_interaction` does."""
    _check_message(request.headers, request.body, "request")
    is_word = isinstance(request.method, str) and _METHOD.fullmatch(request.method)
    _check(is_word, "its method is not a word")
    _check(_are_texts([request.uri]) and _is_url(request.uri), "its address is not a URL")
    return request


def check_response(response: RecordedResponse) -> RecordedResponse:
    """Return a response that was read from a file; raises as `check_interaction` does."""
    _check_message(response.headers, response.body, "response")
    is_status = type(response.status) is int and 0 <= response.status <= 999
    _check(is_status, "its status is not a number of three digits")
    _check(response.body is not None, "its response has no body")
    _check(_are_texts([response.reason]), "its reason phrase is not text")
    return response


def check_times(recorded_at: datetime | None, elapsed_s: float | None) -> None:
    """Raise `CassetteFormatError` for a year or a number of seconds that no recording has."""
    _check(recorded_at is None or recorded_at.year in _YEARS, _NO_YEAR)
    is_time = elapsed_s is None or 0 <= elapsed_s <= _LONGEST_S
    _check(is_time, "its seconds are negative, or not a number")


def _check_message(headers: Headers, body: bytes | None, name: str) -> None:
    texts = [text for name, value in headers for text in (name, value)]
    if not (isinstance(headers, tuple) and _are_texts(texts)):
        raise CassetteFormatError(f"the headers of its {name} are not pairs of text in a tuple")
    if not (body is None or isinstance(body, bytes)):
        raise CassetteFormatError(f"the body of its {name} is not bytes")


def _check(is_so: object, problem: str) -> None:
    if not is_so:
        raise CassetteFormatError(problem)


def _are_texts(texts: Iterable[str]) -> bool:
    """Return whether each is text that UTF-8 can encode, so without a lone surrogate."""
    try:
        "".join(texts).encode()
    except (TypeError, ValueError):
        return False
    return True


def _is_url(uri: str) -> bool:
    if _PLAIN_URL.fullmatch(uri):
        return True
    try:
        _ = urlsplit(uri).port  # raises ValueError if the port is not a number
    except ValueError:
        return False
    return True


def text_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return headers as text: names in lower case, values as UTF-8 where they are that."""
    return tuple([(name.decode("latin-1").lower(), _text(value)) for name, value in raw])


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of a header by its name in any case, or None."""
    wanted = name.lower()
    for key, value in headers:
        if key.lower() == wanted:
            return value
    return None


# RFC 9110: these have no body; the headers of a 304 describe the body that is not sent.
_BODILESS: Final = frozenset({204, 304})
# What httpx decodes: br and zstd need a package each.
_MODULES: Final = (("br", "brotli"), ("br", "brotlicffi"), ("zstd", "zstandard"))
_DECODED: Final = {"gzip", "deflate", "identity"} | {c for c, name in _MODULES if find_spec(name)}
_BODY_HEADERS: Final = frozenset({"content-encoding", "transfer-encoding", "content-length"})


def normalize_headers(response: RecordedResponse, *, method: str = "GET") -> RecordedResponse:
    """Return a response, whose body httpx has decoded, with headers that fit the decoded body.

    ``Content-Encoding`` loses the codings that httpx undoes, ``Transfer-Encoding`` goes, and
    ``Content-Length`` is the length of the body. The response to a HEAD request stays as it is.
    """
    if method == "HEAD" or response.status in _BODILESS:
        return response
    length = str(len(response.body))
    fitting = [
        (name, _normalized(name.lower(), value, length) if name.lower() in _BODY_HEADERS else value)
        for name, value in response.headers
    ]
    headers = tuple([(name, value) for name, value in fitting if value is not None])
    return response if headers == response.headers else replace(response, headers=headers)


def _normalized(name: str, value: str, length: str) -> str | None:
    if name == "transfer-encoding":
        return None
    if name == "content-length":
        return length
    codings = (coding.strip() for coding in value.split(","))
    return ", ".join(coding for coding in codings if coding.lower() not in _DECODED) or None
