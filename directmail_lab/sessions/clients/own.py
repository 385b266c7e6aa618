"""The session's own two httpx clients, whose errors say what happened and what to do.

The errors are still of httpx's classes. Their tracebacks have none of httpx's frames, whose locals
contain the key, or a body that may repeat it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from ...arguments import argument_error
from ...errors import AddressError, DirectMailLabError
from ...exchange.httpx_values import NOT_AN_ADDRESS, httpx, parse_url
from ...exchange.operations import operation_of
from ...exchange.sent_values import json_text, texts_of
from ...redaction import Redactor
from ...tracebacks import hide_frames, warn_caller, with_brief_traceback, without_traceback
from ..transports.extensions import Sent, call_of
from ..transports.network import lost_response

_HEADERS = {
    "User-Agent": f"directmail-lab python-httpx/{httpx.__version__}",
    # By default, httpx also accepts brotli and zstd if they are installed.
    "Accept-Encoding": "gzip, deflate",
}

_BODIES = ("content", "data", "files", "json")
_NUMBER_OF_ERROR = re.compile(r"\[Errno -?\d+\] ")
_NO_STREAM = httpx.ByteStream(b"")


def _ask_for_key(request: httpx.Request) -> httpx.Request:
    """Mark a request as one that needs the key: the default ``auth`` of a session's clients.

    The innermost transport then adds the key: see `directmail_lab.sessions.transports.network`.
    With ``auth=None``, no key is sent.
    """
    call_of(request).wants_key = True
    return request


class SharedCookies(httpx.Cookies):
    """The cookies of both clients.

    They are read only if a response sets one: the search took a quarter of a replay.
    """

    def extract_cookies(self, response: httpx.Response) -> None:
        if "set-cookie" in response.headers:
            super().extract_cookies(response)


class _SessionClient(httpx.Client if TYPE_CHECKING else object):  # type: ignore[misc]
    """What both clients of a session have in common.

    ``redacted`` removes the key from a text.
    """

    def __init__(
        self, redacted: Callable[[str], str], cookies: SharedCookies, **options: Any
    ) -> None:
        super().__init__(auth=_ask_for_key, headers=_HEADERS, **options)
        self._redacted = redacted
        self._own_cookies = cookies

    @property
    def cookies(self) -> httpx.Cookies:
        return self._own_cookies

    @cookies.setter
    def cookies(self, cookies: Any) -> None:
        self._own_cookies.jar = SharedCookies(cookies).jar

    @hide_frames
    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        target = url
        if isinstance(url, str):
            target = url.replace("#", "%23")  # a path has no fragment
            if url.startswith("/"):  # httpx parses a relative address, and then the whole one
                target = f"{str(self.base_url).rstrip('/')}{target}"
        params = options.get("params")
        if (params is not None or self.params) and str(url).partition("?")[2]:
            warn_caller(
                "httpx sends params= in place of the query in the address, which is dropped. The "
                "calls of a session add them to it: session.get(…)."
            )
        if params is not None:
            options["params"] = texts_of("params", params)
        if isinstance(options.get("data"), Mapping):
            options["data"] = texts_of("data", options["data"])
        is_json = [name for name in _BODIES if options.get(name) is not None] == ["json"]
        try:
            if is_json:
                options["content"] = json_text(options.pop("json")).encode()
            request: httpx.Request = super().build_request(method, target, **options)
            if is_json:
                request.headers.setdefault("Content-Type", "application/json")
            return request
        except (httpx.InvalidURL, AttributeError, TypeError, ValueError) as error:
            reason = self._redacted(str(error))
        if isinstance(url, str):
            parse_url(url)
        raise argument_error(f"This request cannot be made: {reason}. See help(httpx.request).")


class Client(_SessionClient, httpx.Client):
    """`httpx.Client` with plain error messages.

    The end of a ``with`` block leaves it open: it belongs to its session.
    """

    @contextmanager
    def stream(self, *args: Any, **options: Any) -> Iterator[httpx.Response]:
        opened = super().stream(*args, **options)
        del args, options  # a traceback shows the locals of this frame
        with ExitStack() as stack:
            yield hide_frames(stack.enter_context)(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @hide_frames
    def send(
        self, request: httpx.Request, *, stream: bool = False, **options: Any
    ) -> httpx.Response:
        call_of(request).reads_at_once = not stream
        try:
            response = super().send(request, stream=stream, **options)
            if not stream:
                response.close()
            return _unlinked(response)
        except BaseException as error:
            explained = _explain(error, request, self._redacted)
            if explained is not None:
                raise explained from None
            raise


class AsyncClient(_SessionClient, httpx.AsyncClient):
    """`httpx.AsyncClient` with plain error messages; see `Client`."""

    @asynccontextmanager
    async def stream(self, *args: Any, **options: Any) -> AsyncIterator[httpx.Response]:
        opened = super().stream(*args, **options)
        del args, options
        async with AsyncExitStack() as stack:
            yield await hide_frames(stack.enter_async_context)(opened)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @hide_frames
    async def send(
        self, request: httpx.Request, *, stream: bool = False, **options: Any
    ) -> httpx.Response:
        call_of(request).reads_at_once = not stream
        try:
            response = await super().send(request, stream=stream, **options)
            if not stream:
                await response.aclose()
            return _unlinked(response)
        except BaseException as error:
            explained = _explain(error, request, self._redacted)
            if explained is not None:
                raise explained from None
            raise


for _name in ("request", "get", "options", "head", "post", "put", "patch", "delete"):
    setattr(Client, _name, hide_frames(getattr(httpx.Client, _name)))
    setattr(AsyncClient, _name, hide_frames(getattr(httpx.AsyncClient, _name)))


class _Response(httpx.Response):
    """A response whose ``raise_for_status`` repeats no credential of an address."""

    def raise_for_status(self) -> Self:
        try:
            return super().raise_for_status()  # type: ignore[return-value]
        except httpx.HTTPStatusError as error:
            failure = without_traceback(error)
        failure.args = (Redactor().text(str(failure)),)
        raise with_brief_traceback(failure)


def _unlinked(response: httpx.Response) -> httpx.Response:
    """Return a response that was read without its stream.

    httpx's stream refers to the response, so only the garbage collector would free them.
    """
    if not response.is_success:  # setting the class takes a twelfth of a replay
        response.__class__ = _Response
    if response.is_closed:
        response.stream = _NO_STREAM
    return response


# For types of errors and a pattern in httpx's message: what happened and what to do. The first row
# that fits counts, and {} is the address. The sign-in form shows these messages too.
_MESSAGES = (
    (
        httpx.ConnectError,
        "CERTIFICATE_VERIFY",
        "The certificate of {} is not trusted, so the key was not sent.",
        "Check the address. Behind a company's proxy, add its certificate to those of the system, "
        "or name its file in SSL_CERT_FILE.",
    ),
    (
        (httpx.ConnectError, httpx.ConnectTimeout),
        "SSL|handshake",
        "{} does not respond with https: its port may be one of plain http.",
        "Check the port. If the server is on this machine, its address may be {}.",
    ),
    (
        httpx.TimeoutException,
        "",
        "{} did not respond in time.",
        "Check the address and the network, or give it more time (timeout_s).",
    ),
    (
        httpx.ProxyError,
        "",
        "There is no connection to {}.",
        "The proxy asks for a user name and a password (407), or does not allow the address.",
    ),
    (
        (httpx.ConnectError, httpx.UnsupportedProtocol),
        "",
        "No server responds at {}.",
        "Check its spelling and the network. With no network, replay a cassette.",
    ),
    (
        httpx.DecodingError,
        "expands",
        "The response of {} is too large.",
        'Read it in parts: with dm.session().client.stream("GET", …).',
    ),
    (
        httpx.DecodingError,
        "",
        "The response of {} is not compressed as its headers say.",
        "Try again.",
    ),
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
    """Return the error with a message for the caller of a client, or None for a bug."""
    if call_of(request).sent is not Sent.NOTHING:
        error = lost_response(request, error) or error
    if isinstance(error, UnicodeError):  # a redirect's address is not valid
        error = AddressError(NOT_AN_ADDRESS)
    if isinstance(error, DirectMailLabError):
        # The path, or the address of a redirect, may contain the key.
        error.what = redacted(error.what)
        error.advice = redacted(error.advice)
        return error
    if isinstance(error, KeyboardInterrupt):
        operation = f"{request.method} {operation_of(request.url.path)}"
        what = f"{operation} was interrupted."
        advice = "The session stays open, and so do its readings."
    elif isinstance(error, httpx.RequestError):
        # The message of a LocalProtocolError repeats a header.
        reason = "" if isinstance(error, httpx.LocalProtocolError) else str(error)
        what, advice = next(
            (what, advice)
            for types, pattern, what, advice in _MESSAGES
            if isinstance(error, types) and re.search(pattern, reason)
        )
        place = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        proxy = getattr(error, "proxy", None)
        if proxy is not None:
            place += f" through the proxy {proxy}"
        advice = advice.format(place.replace("https://", "http://"))
        what = what.format(place)
        reason = _NUMBER_OF_ERROR.sub("", redacted(reason))
        if reason:
            what = f"{what.rstrip('.')} ({reason})."
    else:
        return None
    what = redacted(what)
    error.args = (f"{what}\n{advice}",)
    vars(error).update(what=what, advice=advice)  # like our own errors
    return with_brief_traceback(error)
