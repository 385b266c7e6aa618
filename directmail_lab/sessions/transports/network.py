"""The innermost transport refuses unsafe requests, adds the key to the others, and sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...cassettes import SessionRecording
from ...credentials import HEADER, header_value
from ...errors import (
    AddressError,
    CredentialError,
    NotConnectedError,
    OutcomeUnknownError,
    WriteRefusedError,
)
from ...exchange.bodies import decode_text
from ...exchange.httpx_values import body_of, httpx, is_write, kind_of_failure, parse_url
from ...exchange.operations import operation_of
from ...redaction.key import REPLACED, has_placeholder
from ...settings import is_loopback, origin_of
from .body import BoundedDecoder
from .connections import CheckedBody, Connections, lookups, proxy_for, sends_here
from .extensions import Call, Sent, call_of

if TYPE_CHECKING:
    from ...credentials import ApiKey

# A client that follows such a redirect sends a write again.
_REPEATING = (301, 307, 308)

# After these errors, the service has received nothing of the request.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)


def _nothing() -> None:
    pass


class NetworkTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends requests, unless they are unencrypted, or writes that are not allowed.

    The key is added to a copy of the request, and only if it goes to the origin of the base
    address. So no request or response that the caller keeps, pickles or prints contains the key,
    and no redirect takes it to another server.

    ``before_write`` is called before a write is sent. If it raises an error, nothing is sent.

    A client that the code under test makes sends over its own connections, to any address. Without
    a key, only such clients can send.

    Attributes
    ----------
    allow_writes
        Whether writes are sent.
    write_advice
        What to do to allow writes.
    connections
        What it sends through.
    """

    write_advice = "If you mean it, allow writes first: dm.session().allow_writes = True."

    def __init__(
        self,
        base_url: str,
        api_key: ApiKey | None,
        allow_writes: bool,
        recording: SessionRecording,
    ) -> None:
        self._recording = recording
        base = httpx.URL(base_url)
        self._origin = origin_of(base)
        self._api_key = api_key
        self.allow_writes = allow_writes
        self.connections = Connections(None if api_key is None else proxy_for(base))

    def handle_request(
        self, request: httpx.Request, before_write: Callable[[], object] = _nothing
    ) -> httpx.Response:
        call = call_of(request)
        # The pool comes first: if there can be none, nothing was sent.
        send = call.send or self.connections.pool().handle_request
        signed = self._checked_and_signed(request, call, before_write)
        sends_here.set(request.url.host)
        try:
            response = send(signed)
        except KeyboardInterrupt:
            self.connections.forget_pool()
            raise
        except httpx.TransportError as error:
            self._name_proxy(error)
            raise
        finally:
            sends_here.set("")
        return self._received(request, response)

    async def handle_async_request(
        self, request: httpx.Request, before_write: Callable[[], object] = _nothing
    ) -> httpx.Response:
        call = call_of(request)
        send = call.send or (await self.connections.pool_of_loop()).handle_async_request
        signed = self._checked_and_signed(request, call, before_write)
        sends_here.set(request.url.host)
        lookups.add(call)
        try:
            response = await send(signed)
        except httpx.TransportError as error:
            self._name_proxy(error)
            raise
        finally:
            lookups.discard(call)
            sends_here.set("")
        return self._received(request, response)

    def _received(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        call = call_of(request)
        if call.send is None and "network_stream" in response.extensions:
            response.stream = CheckedBody(response, request.method)
        if call.reads_at_once and "content-encoding" in response.headers:
            vars(response)["_decoder"] = BoundedDecoder(response)
        note_redirect(request, response)
        return response

    def _name_proxy(self, error: httpx.TransportError) -> None:
        """Let an error say which proxy the request was sent to, if there was one."""
        proxy = self.connections.proxy
        if proxy is not None:
            vars(error)["proxy"] = str(proxy.url)

    def _checked_and_signed(
        self, request: httpx.Request, call: Call, before_write: Callable[[], object]
    ) -> httpx.Request:
        """Return a copy of the request with the key, or the request if it is sent without."""
        url = request.url
        call.is_ours = origin_of(url) == self._origin  # checked when the session was opened
        if self._api_key is None and call.send is None:
            raise NotConnectedError(
                "This session has no key, and records only the clients of the code under test.",
                "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY.",
            )
        is_checked = call.is_ours or call.send is not None
        if not is_checked and parse_url(url).scheme != "https" and not is_loopback(url.host):
            raise AddressError(
                f"{url.scheme}://{url.host} is not encrypted, and nothing was sent.",
                "Use https:// (plain http is for this machine alone).",
            )
        found = placeholder_in(request)
        if found is not None:
            self._refuse_placeholder(request, *found)
        if is_write(request):
            self._refuse_write(request, call.sent)
            before_write()
        if call.sent is Sent.NOTHING:
            call.sent = Sent.REQUEST
        if not (call.is_ours and call.wants_key and self._api_key):
            return request
        if HEADER in request.headers:
            return request
        # From the headers as they are: httpx would encode each header of a dict again.
        signed = httpx.Request(
            request.method,
            url,
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        signed.headers[HEADER] = header_value(self._api_key.reveal())
        return signed

    def _refuse_placeholder(self, request: httpx.Request, place: str, stand_in: str) -> None:
        """Refuse a request with what a recording has in place of a value."""
        source = ""
        known = self._recording
        for number, reading in enumerate(known.readings(), 1):
            response = known.interaction(number).response if reading.is_earlier else None
            if response and stand_in in f"{response.headers}{decode_text(response.body)}":
                source = f", such as response {number} in dm.interactions() ({reading.source})"
        error = WriteRefusedError if is_write(request) else CredentialError
        raise error(
            f"The {request.method} was not sent: its {place} contains {stand_in}, which a "
            f"recording has in place of a value{source}.",
            "Put in the value. To get it from the service: dm.live(), and send the request again "
            'that returns it; if that is a write, with if_sent="send".',
        )

    def _refuse_write(self, request: httpx.Request, sent: Sent) -> None:
        if not self.allow_writes:
            raise WriteRefusedError(
                f"{request.method} would change something at the live service, and nothing was "
                "sent.",
                self.write_advice,
            )
        if sent is Sent.REDIRECTED:
            raise WriteRefusedError(
                f"The {request.method} was sent, and the service redirects it to another address. "
                "A write is never sent twice.",
                "Send it to the other address (often the same one with a slash at its end), or get "
                "the response without follow_redirects.",
            )


def placeholder_in(request: httpx.Request) -> tuple[str, str] | None:
    """Return which part of a request has what stands for a value, and that; or None.

    A cookie of this kind is removed from the request.
    """
    body = body_of(request) or b""
    texts = [str(request.url), body.decode(errors="replace"), *request.headers.values()]
    if not has_placeholder("\n".join(texts)):
        return None
    pairs = request.headers.pop("Cookie", "").split("; ")
    cookies = "; ".join(pair for pair in pairs if not has_placeholder(pair))
    if cookies:
        request.headers["Cookie"] = cookies
    parts = {"address": texts[0], "body": texts[1]}
    parts |= {f"header {name}": value for name, value in request.headers.items()}
    for place, text in parts.items():
        found = REPLACED.search(unquote(text))
        if found is not None:
            return place, found[0]
    return None


def note_redirect(request: httpx.Request, response: httpx.Response) -> None:
    """Note a redirect after which a client sends the request again.

    That request belongs to this one. So a write is not sent by it, even if this response is an
    earlier one that was kept or played.
    """
    if response.status_code in _REPEATING and response.has_redirect_location:
        call_of(request).sent = Sent.REDIRECTED


class OutcomeUnknownTimeoutError(OutcomeUnknownError, httpx.TimeoutException):
    """A write timed out. ``except httpx.TimeoutException`` catches it too."""


def lost_response(request: httpx.Request, error: BaseException) -> OutcomeUnknownError | None:
    """Return the error for a write that was sent and got no response; None for other failures.

    A client that the code under test makes gets httpx's own errors.
    """
    if isinstance(error, NOT_SENT) or not isinstance(error, httpx.RequestError):
        return None
    call = call_of(request)
    if not is_write(request) or call.send is not None:
        return None
    is_timeout = isinstance(error, httpx.TimeoutException)
    number = call.number
    which = f" It is number {number} in dm.interactions()." if number else ""
    write = f"{request.method} {operation_of(request.url.path)}"
    if call.shown is not None:
        write = call.shown()
    return (OutcomeUnknownTimeoutError if is_timeout else OutcomeUnknownError)(
        f"{write} was sent, and no complete response came back ({type(error).__name__}). "
        f"It may have been carried out. It was not sent again.{which}",
        "Find out whether it was carried out before you repeat it.",
        cut=kind_of_failure(error),
        number=number,
    )
