"""httpx, and what we add to its clients: plain error messages, and which requests are writes.

No other module imports httpx, so a change of one line can replace it by a maintained fork (httpx2).

A session's clients differ from httpx's in one thing: the errors that `send` raises say what
happened, at which address, and what to do. They are still httpx's, but without its frames, whose
locals hold the key, or a body that may repeat it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import httpx as httpx

from .arguments import argument_error
from .contract import SAFE_METHODS
from .errors import (
    AddressError,
    DirectMailLabError,
    OutcomeUnknownError,
    ServiceError,
    UnauthorizedError,
    hide_frames,
    with_brief_traceback,
)
from .exchange.bodies import decode_text
from .exchange.operations import base_path, operation_of, path_below
from .exchange.values import (
    NUMBER,
    READING,
    Headers,
    RecordedRequest,
    RecordedResponse,
    text_headers,
)
from .readings.reading import Reading

WANTS_KEY: Final = "directmail_lab.wants_key"
"""Set in a request's extensions where the network transport is to add the key."""

SENT: Final = "directmail_lab.sent"
"""Set in a request's extensions to its ``id`` when it is sent. The request that follows a redirect
takes the extensions over but has another ``id``."""

SENDER: Final = "directmail_lab.sender"
"""Set in the extensions of a request by a client that is not the session's own: to what sends it in
the place of the session's connections, or to None (see `directmail_lab.clients`)."""

_HEADERS: Final = {
    "User-Agent": f"directmail-lab python-httpx/{httpx.__version__}",
    # httpx's default also has brotli and zstd if they are installed.
    "Accept-Encoding": "gzip, deflate",
}

# With a header or a parameter of these names, many frameworks treat a request as one of another
# method. The case of the name makes no difference; nor do - and _ to WSGI and CGI.
_OVERRIDES: Final = ("-method", "x-http-method", "x-http-method-override", "x-method-override")

# After these errors, nothing of the request has reached the service.
_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)

_ADVICE: Final = {
    400: "The error's .excerpt shows the service's message.",
    401: "Check the API key and the base address: the key may be another region's.",
    403: "Check the API key and the base address: the key may be another region's.",
    404: "Check the path and the base address.",
    429: "The allowance is used up.",
    500: "The service, or a gateway before it, failed: try again later.",
}

_EXCERPT: Final = 200
_SEARCHED_BYTES: Final = 4096


def origin(url: httpx.URL) -> tuple[bytes, bytes, int | None]:
    """Return the origin of a URL: only the base address's gets the key."""
    return url.raw_scheme, url.raw_host, url.port  # httpx leaves a default port out


def is_write(request: httpx.Request) -> bool:
    """Return whether a request may change something: by its method, or one that overrides it."""
    query = request.url.query.decode("ascii")
    return may_change(request.method, query, text_headers(request.headers.raw))


def may_change(method: str, query: str, headers: Headers = ()) -> bool:
    """Return the same as `is_write`, of the parts of a request."""
    pairs = *headers, *parse_qsl(query.replace(";", "&"), keep_blank_values=True)
    overrides = [v for name, v in pairs if name.strip().lower().replace("_", "-") in _OVERRIDES]
    return any(each.strip().upper() not in SAFE_METHODS for each in (method, *overrides))


class KeyedAuth(httpx.Auth):
    """The default ``auth`` of a session's clients: marks a request as one that needs the key.

    The innermost transport adds the key (see `directmail_lab.transports.network`). With
    ``auth=None``, no key is sent.
    """

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.extensions[WANTS_KEY] = True
        yield request


_NO_ADDRESS: Final = (
    "This is no address: it is too long, or has a control character, a port that is no number, or "
    "a host name that no host can have. Correct it, or give a path such as /v1/users/me."
)

REQUEST_OPTIONS: Final = tuple(inspect.signature(httpx.Client.request).parameters)[3:]
"""The names of the options of a request besides method and address."""


def parse_url(url: httpx.URL | str) -> httpx.URL:
    """Return an address as httpx takes it; raises `AddressError` for what is none."""
    try:
        parsed = httpx.URL(url)
        if parsed.host:  # which raises UnicodeError, as a label does that is too long
            parsed.raw_host.decode("ascii").encode("idna")
        return parsed
    except (httpx.InvalidURL, UnicodeError):  # whose message may repeat a key
        pass
    raise AddressError(_NO_ADDRESS)


class _Cookies(httpx.Cookies):
    """httpx's, which does not look for cookies where there are none: a quarter of a replay."""

    def extract_cookies(self, response: httpx.Response) -> None:
        if "set-cookie" in response.headers:
            super().extract_cookies(response)


class _SessionClient(httpx.Client if TYPE_CHECKING else object):  # type: ignore[misc]
    """What both clients of a session have in common; ``redacted`` removes the key from a text."""

    def __init__(self, redacted: Callable[[str], str], **options: Any) -> None:
        super().__init__(auth=KeyedAuth(), headers=_HEADERS, **options)
        self._redacted = redacted
        self._own_cookies = _Cookies()

    @property
    def cookies(self) -> httpx.Cookies:
        return self._own_cookies

    @cookies.setter
    def cookies(self, cookies: Any) -> None:
        self._own_cookies = _Cookies(cookies)

    @hide_frames
    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        try:
            request: httpx.Request = super().build_request(method, url, **options)
            return request
        except (httpx.InvalidURL, AttributeError, TypeError, ValueError) as error:
            reason = self._redacted(str(error))
        if isinstance(url, str):
            parse_url(url)
        raise argument_error(f"This request cannot be made: {reason}. See help(httpx.request).")


class Client(_SessionClient, httpx.Client):
    """`httpx.Client` with plain error messages."""

    @hide_frames
    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        try:
            return keep_body(super().send(request, **options))
        except BaseException as error:
            if explained := _explain(error, request, self._redacted):
                raise explained from None
            raise


class AsyncClient(_SessionClient, httpx.AsyncClient):
    """`httpx.AsyncClient` with plain error messages."""

    @hide_frames
    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        try:
            return keep_body(await super().send(request, **options))
        except BaseException as error:
            if explained := _explain(error, request, self._redacted):
                raise explained from None
            raise


def keep_body(response: httpx.Response) -> httpx.Response:
    """Return a response. If its body was read, the session's recording keeps that."""
    recording, number = response.extensions.get(NUMBER, (None, 0))
    if recording is not None and response.is_closed:
        recording.add_body(number, response.content)
    return response


# What happened and what to do: the first for an error's type whose pattern is in httpx's message.
# {} is the address. The sign-in form shows them too.
_MESSAGES: Final = (
    (
        httpx.ConnectError,
        "CERTIFICATE_VERIFY",
        "The certificate of {} is not trusted, so the key was not sent.",
        "Check the address. Behind a company's proxy, SSL_CERT_FILE may have to name its "
        "certificate.",
    ),
    (
        (httpx.ConnectError, httpx.ConnectTimeout),
        "SSL|handshake",
        "{} answers, but not with https: its port may be one of plain http.",
        "Check the port. (Plain http:// is accepted for this machine alone.)",
    ),
    (
        httpx.TimeoutException,
        "",
        "{} did not answer in time.",
        "Check the address and the network, or give it more time (timeout_s).",
    ),
    (
        (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.ProxyError),
        "",
        "Nothing answers at {}.",
        "Check its spelling and the network. With no network, replay a cassette.",
    ),
    (httpx.DecodingError, "", "The response of {} is not compressed as it says.", "Try again."),
    (
        httpx.LocalProtocolError,
        "",
        "The request to {} is not valid HTTP, and was not sent.",
        "Check its method and headers.",
    ),
    (httpx.TooManyRedirects, "", "{} redirects in a circle.", "Check the address and the path."),
    (httpx.RequestError, "", "The connection to {} broke before the response's end.", "Try again."),
)


def _explain(
    error: BaseException, request: httpx.Request, redacted: Callable[[str], str]
) -> BaseException | None:
    """Return an error with a plain message, as the caller of a client gets it; None for a bug."""
    if SENT in request.extensions:
        error = lost_response(request, error) or error
    if isinstance(error, UnicodeError):  # of a redirect
        error = AddressError(_NO_ADDRESS)
    if isinstance(error, DirectMailLabError):
        # The path, or a redirect's address, may have the key.
        error.what, error.advice = redacted(error.what), redacted(error.advice)
        return error
    if isinstance(error, KeyboardInterrupt):
        operation = f"{request.method} {operation_of(request.url.path)}"
        what = f"{operation} was interrupted."
        advice = "The session stays open, and so do its readings."
    elif isinstance(error, httpx.RequestError):
        # That of a LocalProtocolError repeats a header.
        reason = "" if isinstance(error, httpx.LocalProtocolError) else str(error)
        what, advice = next(
            (what, advice)
            for types, pattern, what, advice in _MESSAGES
            if isinstance(error, types) and re.search(pattern, reason)
        )
        what = what.format(f"{request.url.scheme}://{request.url.netloc.decode('ascii')}")
        advice += f" ({redacted(reason)})" if reason else ""
    else:
        return None
    what = redacted(what)
    error.args = (f"{what} {advice}",)
    vars(error).update(what=what, advice=advice)  # as our own errors have them
    return with_brief_traceback(error)


class OutcomeUnknownTimeoutError(OutcomeUnknownError, httpx.TimeoutException):
    """A write that timed out; ``except httpx.TimeoutException`` catches it too."""


def lost_response(request: httpx.Request, error: BaseException) -> OutcomeUnknownError | None:
    """Return the error for a write that was sent without a response; None for other failures.

    Other clients than the session's own get the errors of their library.
    """
    if (
        SENDER in request.extensions
        or isinstance(error, _NOT_SENT)
        or not isinstance(error, httpx.RequestError)
    ):
        return None
    if not is_write(request):
        return None
    is_timeout = isinstance(error, httpx.TimeoutException)
    return (OutcomeUnknownTimeoutError if is_timeout else OutcomeUnknownError)(
        f"{request.method} {operation_of(request.url.path)} was sent, and no complete response "
        f"came back ({type(error).__name__}). It may have been carried out. It was not sent again.",
        "Find out whether it was carried out before you repeat it.",
    )


def service_error(
    response: httpx.Response, *, base_url: str, redacted: Callable[[str], str]
) -> ServiceError:
    """Return the error to raise for a response with an error status."""
    status, request = response.status_code, response.request
    reading = response.extensions.get(READING)
    path = operation_of(path_below(str(request.url), base_path(base_url)))
    path = path if reading is None else reading.operation
    operation = redacted(f"{request.method} {path}")
    # More is searched than is shown, so that a key at the end of the excerpt is found.
    searched = response.content[:_SEARCHED_BYTES]
    advice = _ADVICE.get(status) or _ADVICE[500 if status >= 500 else 400]
    if status == 429 and reading is not None:
        advice += f" {_renewal(reading)}"
    kind = UnauthorizedError if status in (401, 403) else ServiceError
    return kind(
        f"{operation} answered {status} {redacted(response.reason_phrase)}.",
        advice,
        status=status,
        operation=operation,
        excerpt=redacted(decode_text(searched, response.charset_encoding))[:_EXCERPT],
        reading=reading,
    )


def _renewal(reading: Reading) -> str:
    """Return what a response says of when the allowance renews."""
    if reading.retry_after_s is not None:
        return f"The service asks to wait for {reading.retry_after_s:g} s (Retry-After)."
    if reading.reset is None:
        return "The service does not say when it renews."
    return (
        f"X-RateLimit-Reset is {reading.reset}: the rate limits say when that is if its unit is "
        "known, and the findings what is known of the unit."
    )


# -- recorded values ----------------------------------------------------------------------------


def recorded_request(request: httpx.Request) -> RecordedRequest:
    """Return a request as a value; no body, or one not read, is an empty one (vcrpy's way)."""
    body = request.content if hasattr(request, "_content") else b""
    headers = text_headers(request.headers.raw)
    return RecordedRequest(request.method, str(request.url), headers, body)


def recorded_response(response: httpx.Response, body: bytes | None = None) -> RecordedResponse:
    """Return a response as a value, by default with the body that was read."""
    return RecordedResponse(
        status=response.status_code,
        reason=response.reason_phrase,
        headers=text_headers(response.headers.raw),
        body=response.content if body is None else body,
    )


def as_response(stored: RecordedResponse) -> httpx.Response:
    # For an empty reason phrase (HTTP/2 has none), httpx uses the usual one of the status.
    reason = {"reason_phrase": stored.reason.encode("ascii", "replace")} if stored.reason else {}
    return httpx.Response(
        stored.status,
        # As bytes: httpx encodes text as ASCII, and a recorded header may have other characters.
        headers=[(name.encode(), value.encode()) for name, value in stored.headers],
        # A stream, as from the network: the client reads it, and so measures and closes it.
        stream=httpx.ByteStream(stored.body),
        extensions={"http_version": b"HTTP/1.1", **reason},
    )
