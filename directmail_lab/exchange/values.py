"""Requests and responses as values, with the time of the response and its latency.

`check_interaction` checks each interaction once, when it is read from a file. All other code relies
on the types and ranges that it allows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from typing import Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from ..errors import CassetteFormatError

Headers = tuple[tuple[str, str], ...]
"""Pairs of a header's name and value, in the order they were sent. A name may occur repeatedly."""

Cut = Literal[
    "left",
    "aborted",
    "connect_timeout",
    "read_timeout",
    "write_timeout",
    "connect_error",
    "read_error",
    "write_error",
    "protocol_error",
    "interrupted",
]
"""Why a response is not whole: no response came, which has status 0, or only a part of its body.

The caller read no further (``"left"``); the caller interrupted or cancelled it (``"aborted"``); or
the connection failed, timed out, or did not carry valid HTTP. ``"interrupted"`` is in a cassette
while a write is sent, and stays there if the process is killed.
"""

CUTS: tuple[Cut, ...] = get_args(Cut)

_NOT_SENT: tuple[Cut, ...] = ("connect_timeout", "connect_error")
"""The cuts after which the service has received nothing of the request."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The valid names of headers (RFC 9110, section 5.6.2)."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110, section 9.2.1). Every other one is a write."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a cassette keeps it. ``body`` is None if none was sent."""

    method: str
    uri: str
    headers: Headers = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        # Before redaction, an address, a header or a body may contain the key.
        return f"<Request {self.method}>"


@dataclass(frozen=True, slots=True)
class Response:
    """A response as a cassette keeps it: with a decoded body, and headers that fit it.

    ``cut`` says why it is not whole, and ``error`` is the text of the error that cut it. The status
    is 0 if no response came. A cassette's file has 599 then, since vcrpy cannot replay status 0.
    """

    status: int
    reason: str = ""
    headers: Headers = ()
    body: bytes = b""
    cut: Cut | None = None
    error: str = ""

    @property
    def broke_off(self) -> bool:
        """Whether its caller did not get all that it waited for."""
        return self.cut not in (None, "left")

    def __repr__(self) -> str:
        if not self.status:
            return f"<Response {self.cut}>"
        return f"<Response {self.status}, {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class Interaction:
    """A request and its response.

    ``recorded_at`` is when the headers of the response came (an aware datetime, UTC), and
    ``elapsed_s`` is the number of seconds from the request until then. In a cassette of vcrpy,
    ``recorded_at`` is the response's ``Date`` or None, and ``elapsed_s`` is None.

    ``attempt`` is 2 or more if the request was sent again after a response that allows that, such
    as a 503. One call then makes several interactions. It is 0 if the request was not sent: the
    response to another one counts as its.

    ``cell`` is the id of the notebook's cell that got the response, if the notebook keeps one.
    """

    request: Request
    response: Response
    recorded_at: datetime | None = None
    elapsed_s: float | None = None
    attempt: int = 1
    cell: str | None = None


def fails(response: Response) -> bool:
    """Return whether a response must not take the place of a success.

    That is a response about the account, the allowance or a fault of the service, one that broke
    off, or none at all.
    """
    is_refused = response.status in (401, 403, 429)
    return response.broke_off or is_refused or response.status >= 500


def may_be_done(response: Response) -> bool:
    """Return whether a write with this response may have been carried out.

    It was not if the service refused it (4xx), or if no connection was made.
    """
    is_refused = 400 <= response.status < 500
    return not is_refused and response.cut not in _NOT_SENT


MALFORMED = (
    AttributeError,
    CassetteFormatError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors of reading an interaction whose values do not have the expected form."""

_METHOD = re.compile("[!-~]{1,64}")
# Most addresses. Takes a tenth of the time of urlsplit.
_PLAIN_URL = re.compile(
    r"https?://[\w.-]{1,255}(?::[1-5]?\d{1,4})?(?:[/?#][!#-\[\]-~]*)?", re.ASCII
)
_LONGEST_S = 1e9
_YEARS = range(1900, 2200)
"""The years that a DataFrame can represent in any unit and any time zone."""
_NO_YEAR = f"its year is not from {_YEARS[0]} to {_YEARS[-1]}"


def unreadable(which: str, error: Exception) -> CassetteFormatError:
    """Return the error that says which interaction cannot be read, and why; it quotes no value."""
    why = str(error).rstrip(".") if isinstance(error, CassetteFormatError) else ""
    why = why or "a part of it is missing, or of another type"
    return CassetteFormatError(f"{which} cannot be read: {why}.", "Correct it, or record it again.")


def check_interaction(interaction: Interaction) -> Interaction:
    """Return an interaction that was read from a file.

    Raises
    ------
    CassetteFormatError
        A value has a wrong type or is out of range, or the address is not a URL. The message
        quotes no value.
    """
    check_times(interaction.recorded_at, interaction.elapsed_s)
    request = interaction.request
    response = interaction.response
    _check_message(request.headers, request.body, "request")
    _check_message(response.headers, response.body, "response")
    is_word = isinstance(request.method, str) and _METHOD.fullmatch(request.method)
    _check(is_word, "its method is not a word")
    _check(_is_url(request.uri), "its address is not a URL")
    is_status = type(response.status) is int and 0 <= response.status <= 999
    is_status = is_status and (response.status > 0 or response.broke_off)
    _check(is_status, "its status is not a number of three digits")
    _check(response.body is not None, "its response has no body")
    _check(_are_texts([response.reason]), "its reason phrase is not text")
    _check(response.cut in (None, *CUTS), "why it is not complete is of no known kind")
    return interaction


def check_times(recorded_at: datetime | None, elapsed_s: float | None) -> None:
    """Raise `CassetteFormatError` if the year or the number of seconds is out of range."""
    _check(recorded_at is None or recorded_at.year in _YEARS, _NO_YEAR)
    is_time = elapsed_s is None or 0 <= elapsed_s <= _LONGEST_S
    _check(is_time, "its seconds are negative, or not a number")


def _check_message(headers: Headers, body: bytes | None, name: str) -> None:
    texts: list[str] = []
    for key, value in headers:
        texts += key, value
    are_pairs = isinstance(headers, tuple) and _are_texts(texts)
    _check(are_pairs, f"the headers of its {name} are not pairs of text in a tuple")
    _check(body is None or isinstance(body, bytes), f"the body of its {name} is not bytes")


def _check(is_so: object, problem: str) -> None:
    if not is_so:
        raise CassetteFormatError(problem)


def _are_texts(texts: Iterable[str]) -> bool:
    """Return whether each is text that UTF-8 can encode: it has no lone surrogate."""
    try:
        "".join(texts).encode()
    except (TypeError, ValueError):
        return False
    return True


def _is_url(uri: str) -> bool:
    if not isinstance(uri, str):
        return False
    if _PLAIN_URL.fullmatch(uri):
        return True
    try:
        _ = urlsplit(uri).port  # raises ValueError if the port is not a number
    except ValueError:
        return False
    return True


# Many frameworks let a header or a parameter of these names override a request's method. The case
# of a name does not matter, and WSGI and CGI treat - and _ alike.
_OVERRIDES = ("-method", "x-http-method", "x-http-method-override", "x-method-override")


def is_write(request: Request) -> bool:
    """Return whether a request's method, or one that overrides it, may change something."""
    return may_change(request.method, request.uri.partition("?")[2], request.headers)


def may_change(method: str, query: str, headers: Headers = ()) -> bool:
    """Return what `is_write` returns, given the parts of a request."""
    if method.strip().upper() not in SAFE_METHODS:
        return True
    parameters = parse_qsl(query.replace(";", "&"), keep_blank_values=True)
    for name, value in [*headers, *parameters]:
        is_override = name.strip().lower().replace("_", "-") in _OVERRIDES
        if is_override and value.strip().upper() not in SAFE_METHODS:
            return True
    return False


def text_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return headers as text, with values decoded as UTF-8 or else Latin-1."""
    headers = []
    for name, value in raw:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        headers.append((name.decode("latin-1"), text))
    return tuple(headers)


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of a header by its name in any case, or None."""
    wanted = name.lower()
    for key, value in headers:
        if key.lower() == wanted:
            return value
    return None


def media_type_of(headers: Headers) -> str:
    """Return the media type in lower case, without its parameters; empty if there is none."""
    return (header(headers, "content-type") or "").partition(";")[0].strip().lower()


def is_json_type(media_type: str) -> bool:
    """Return whether a media type is one of JSON, such as ``application/hal+json``."""
    return media_type.endswith(("/json", "+json"))


def without_headers(headers: Headers, names: Collection[str]) -> Headers:
    """Return the headers that do not have one of these names, which are in lower case."""
    return tuple([pair for pair in headers if pair[0].lower() not in names])


# RFC 9110: these statuses have no body. The headers of a 304 describe a body that is not sent.
BODILESS = frozenset({204, 304})
# The codings that httpx decodes. br and zstd each need a package.
_DECODED = {"gzip", "x-gzip", "deflate"}
if find_spec("brotli") or find_spec("brotlicffi"):
    _DECODED.add("br")
if find_spec("zstandard"):
    _DECODED.add("zstd")


def normalize_headers(response: Response, *, method: str = "GET") -> Response:
    """Return a response whose headers fit its body, which httpx has decoded.

    The codings that httpx decodes are removed from ``Content-Encoding``, ``Transfer-Encoding`` is
    removed, and ``Content-Length`` becomes the length of the body. It stays if the body is not
    whole, but not if that was compressed. The response to a HEAD request stays unchanged.
    """
    if method == "HEAD" or response.status in BODILESS:
        return response
    if response.cut is None:
        length: str | None = str(len(response.body))
    elif header(response.headers, "content-encoding") is None:
        length = header(response.headers, "content-length")
    else:
        length = None
    headers = []
    for name, value in response.headers:
        fitting: str | None = value
        match name.lower():
            case "transfer-encoding":
                fitting = None
            case "content-length":
                fitting = length
            case "content-encoding":
                codings = [coding.strip() for coding in value.split(",")]
                left = [coding for coding in codings if coding.lower() not in _DECODED]
                fitting = ", ".join(left) or None
        if fitting is not None:
            headers.append((name, fitting))
    fitting_headers = tuple(headers)
    if fitting_headers == response.headers:  # as usual: recording copies nothing then
        return response
    return replace(response, headers=fitting_headers)
