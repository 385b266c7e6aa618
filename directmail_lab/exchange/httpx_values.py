"""httpx: its requests and responses as values, its addresses, and which requests are writes.

No other module imports httpx, so one changed line can replace it with a maintained fork (httpx2).
"""

from __future__ import annotations

import inspect

import httpx as httpx

from ..errors import AddressError
from .values import (
    SAFE_METHODS,
    Cut,
    Request,
    Response,
    header,
    may_change,
    text_headers,
)


def is_write(request: httpx.Request) -> bool:
    """Return whether a request's method, or one that overrides it, may change something."""
    headers = request.headers.raw
    query = request.url.query
    names = b" ".join([query, *dict(headers)]).lower()
    # This runs for each live request, and few have a name that overrides the method.
    if request.method in SAFE_METHODS and b"method" not in names and b"%" not in query:
        return False
    return may_change(request.method, query.decode("ascii"), text_headers(headers))


NOT_AN_ADDRESS = (
    "This is not a valid address: it is too long, or has a control character, a port that is not a "
    "number, or an impossible host name. Correct it, or give a path such as /v1/users/me."
)

REQUEST_OPTIONS = tuple(inspect.signature(httpx.Client.request).parameters)[3:]
"""The names of the options of a request besides method and address."""


def parse_url(url: httpx.URL | str) -> httpx.URL:
    """Return an address as an `httpx.URL`; raise `AddressError` if it is not valid."""
    try:
        parsed = httpx.URL(url)
        if parsed.host:  # this and the next line raise UnicodeError for a host that is not valid
            parsed.raw_host.decode("ascii").encode("idna")
        return parsed
    except (httpx.InvalidURL, UnicodeError):  # not chained: the message may repeat a key
        pass
    raise AddressError(NOT_AN_ADDRESS)


def body_of(request: httpx.Request) -> bytes | None:
    """Return the body of a request, or None if it has not been read."""
    try:
        return request.content
    except RuntimeError:  # RequestNotRead, of either library
        return None


def request_value(request: httpx.Request) -> Request:
    """Return a request as a value. Like vcrpy, treat a missing or unread body as an empty one."""
    body = body_of(request) or b""
    headers = text_headers(request.headers.raw)
    return Request(request.method, str(request.url), headers, body)


def response_value(response: httpx.Response, body: bytes | None = None) -> Response:
    """Return a response as a value, by default with the body that httpx has read."""
    return Response(
        status=response.status_code,
        reason=response.reason_phrase,
        headers=text_headers(response.headers.raw),
        body=response.content if body is None else body,
    )


def httpx_response(stored: Response, *, is_read: bool = False) -> httpx.Response:
    """Return a recorded response as one of httpx, which its client reads, times and closes.

    With ``is_read``, it is only timed and closed: reading it took a tenth of a replay.
    """
    extensions = {"reason_phrase": stored.reason.encode("ascii", "replace")}
    # As bytes: httpx encodes text as ASCII, and a recorded header may have other characters.
    headers = [(name.encode(), value.encode()) for name, value in stored.headers]
    if stored.broke_off and header(stored.headers, "content-length") is None:
        headers.append((b"transfer-encoding", b"chunked"))  # else its end would seem the whole's
    response = httpx.Response(
        stored.status,
        headers=headers,
        # A stream, as from the network.
        stream=httpx.ByteStream(stored.body),
        extensions=extensions,
    )
    # httpx closes the response that redirects only by reading it.
    if is_read and stored.cut is None and not response.has_redirect_location:
        response._content = stored.body
        response._num_bytes_downloaded = len(stored.body)
        response.is_stream_consumed = True
    return response


# The first row that fits an error counts. An error that comes back has the class of the first row
# of its kind.
_CUTS: tuple[tuple[type[httpx.TransportError], Cut], ...] = (
    (httpx.ConnectTimeout, "connect_timeout"),
    (httpx.ReadTimeout, "read_timeout"),
    (httpx.WriteTimeout, "write_timeout"),
    (httpx.ConnectError, "connect_error"),
    (httpx.ReadError, "read_error"),
    (httpx.WriteError, "write_error"),
    (httpx.RemoteProtocolError, "protocol_error"),
    (httpx.PoolTimeout, "connect_timeout"),
    (httpx.ProxyError, "connect_error"),
    (httpx.NetworkError, "read_error"),
    (httpx.ReadError, "interrupted"),
    (httpx.ReadError, "aborted"),
)


def kind_of_failure(error: BaseException) -> Cut | None:
    """Return why no response came; None for an error that says nothing about the network."""
    return next((kind for classes, kind in _CUTS if isinstance(error, classes)), None)


_ERRORS = {kind: error for error, kind in reversed(_CUTS)}


def httpx_error(kind: Cut, text: str, request: httpx.Request) -> httpx.TransportError:
    """Return the error to raise for a recorded response that did not come, or broke off."""
    return _ERRORS[kind](text, request=request)
