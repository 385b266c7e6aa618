"""A server on loopback that answers as a session does: for curl, a browser, PHP or Node.

A server of replaying sessions sends nothing on. One whose session records is a gateway: it holds
the key, so that its clients need none, and sends their requests through the session's transports.
"""

from __future__ import annotations

import hmac
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from .contract import HEADERS
from .errors import (
    DirectMailLabError,
    NotRecordedError,
    OutcomeUnknownError,
    QuotaExhaustedError,
    WriteRefusedError,
)
from .http import httpx, recorded_request
from .interaction import Interaction, RecordedRequest, RecordedResponse, header
from .loopback import HOP_BY_HOP, Exchange, LoopbackServer, error_response, with_headers
from .redaction import Redactor
from .redaction.unpack import MAGIC, unpack
from .sessions import Session
from .settings import is_loopback
from .transports import STREAMED

# Headers about the client or this server: the session sends its own instead, or none. A browser
# sends the cookies of every server on this machine, and Referer may hold our token.
_NOT_FORWARDED: Final = HOP_BY_HOP | {
    *("accept-encoding", "authorization", "content-length", "cookie", "expect", "host"),
    *("origin", "referer"),
}
_STATUS_OF: Final[dict[type[Exception], int]] = {
    NotRecordedError: 404,
    WriteRefusedError: 403,
    QuotaExhaustedError: 429,
    OutcomeUnknownError: 504,
    httpx.TimeoutException: 504,
    httpx.InvalidURL: 400,
}
_MOST_REFUSALS: Final = 3  # as many cassettes are named if none has a response
_WINDOW: Final = 1 << 20
_SHARED: Final = 1 << 10
_LONGEST_PIECE: Final = 1 << 10  # the key in any form

_log = logging.getLogger("directmail_lab")


class SessionServer(LoopbackServer):
    """Answers each request below its own address as sessions answer it below theirs.

    Of several sessions, the first with a response that was not played yet answers; else the first
    with any. A refusal or failure is JSON: ``{"error": {"status", "reason", "message"}}``. A large
    body is passed on as it arrives, and recorded when it has ended.

    Parameters
    ----------
    sessions
        Sessions that replay, or one that records. They are closed with the server.
    port
        The port on 127.0.0.1; 0 takes a free one.
    token
        A secret path segment at the end of the address, so that only those who know it are
        answered; empty for none.
    allow_origins
        Origins whose web pages may send requests, such as ``http://localhost:3000``.
    message
        Returns the message of an error.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        *,
        port: int = 0,
        token: str = "",
        allow_origins: Collection[str] = (),
        message: Callable[[Exception], str] = str,
    ) -> None:
        self._sessions = sessions
        self._prefix = f"/{token}" if token else ""
        self._allow_origins = allow_origins
        self._message = message
        self._redactor = Redactor()
        super().__init__(port, self._prefix)

    def close(self) -> None:
        """Stop, and close the sessions: their recordings end."""
        super().close()
        for session in self._sessions:
            session.close()

    async def handle(self, exchange: Exchange) -> None:
        """Answer a request; with an error if it is not allowed or cannot be answered."""
        origin = header(exchange.headers, "origin") or ""
        streamed = None
        if problem := self._problem(exchange, origin):
            response = error_response(403, "refused", problem)
        elif origin and header(exchange.headers, "access-control-request-method"):
            response = RecordedResponse(204, "No Content")  # CORS: a browser asks first
        else:
            response, streamed = await self._respond(await exchange.received())
        if origin in self._allow_origins:
            response = _with_cors(response, exchange, origin)
        if header(exchange.headers, "sec-fetch-mode") == "navigate":
            # A recorded web page is shown, but its scripts must not run with JupyterLab's cookies.
            sandbox = ("Content-Security-Policy", "sandbox")
            response = replace(response, headers=(*response.headers, sandbox))
        if streamed is None:
            await exchange.answer(response)
            return
        async with aclosing(streamed):
            parts = redacted_parts(streamed.aiter_raw(), self._redactor)
            try:
                await exchange.answer(response, parts=parts)
            except (DirectMailLabError, httpx.HTTPError) as error:
                _log.warning("%s", self._message(error))
                exchange.drop()  # the client sees that the rest is missing

    def _problem(self, exchange: Exchange, origin: str) -> str:
        """Return why a request is refused, or an empty text.

        A web page in the user's browser can send requests here: through a host name of its own that
        resolves to this machine (Host shows it), or across sites (Origin or Sec-Fetch-Site does).
        """
        host = re.sub(r":\d*$", "", header(exchange.headers, "host") or "").strip("[]")
        if not is_loopback(host.lower()):
            return "Only requests to 127.0.0.1 or localhost are answered."
        site = header(exchange.headers, "sec-fetch-site") or "none"
        is_from_page = origin or site not in ("none", "same-origin")
        if is_from_page and origin not in self._allow_origins:
            named = origin or "ORIGIN"
            return f"Requests from web pages are refused: allow one with --allow-origin {named}."
        if not exchange.target.startswith("/"):
            return "Only paths are answered: this server is no proxy."
        expected = f"{self._prefix}/"  # with the slash: the rest is added to the base address
        start = exchange.target[: len(expected)]
        if not hmac.compare_digest(start.encode(), expected.encode()):
            return "The address lacks the token. Use the address that was printed at the start."
        return ""

    async def _respond(
        self, request: RecordedRequest
    ) -> tuple[RecordedResponse, httpx.Response | None]:
        """Return the response to a request and, if its body is still to come, where from."""
        target = request.uri[len(self._prefix) :]
        refusals: list[NotRecordedError] = []
        try:
            forwarded = [
                (session, _forwarded(request, session, target)) for session in self._sessions
            ]
            if len(forwarded) > 1:
                forwarded.sort(key=_is_played)
            for session, sent in forwarded:
                try:
                    received = await session.async_client.send(sent, stream=True)
                except NotRecordedError as error:
                    refusals.append(error)
                else:
                    return await self._received(session, received)
        except (DirectMailLabError, httpx.HTTPError, httpx.InvalidURL) as error:
            return self._failure(error), None
        refusals.sort(key=lambda refusal: -refusal.similarity)
        messages = list(map(self._message, refusals[:_MOST_REFUSALS]))
        if more := len(refusals) - len(messages):
            messages.append(f"It is not in {more} more, whose requests are not nearer.")
        return error_response(404, refusals[0].reason, " ".join(messages)), None

    def _failure(self, error: Exception) -> RecordedResponse:
        """Return the response that says why there is none of the service's."""
        status = next((s for kind, s in _STATUS_OF.items() if isinstance(error, kind)), 502)
        response = error_response(status, type(error).__name__, self._message(error))
        if isinstance(error, QuotaExhaustedError) and error.until is not None:
            wait_s = max(0, math.ceil(error.until - time.time()))
            response = with_headers(response, {"Retry-After": str(wait_s)})
        return response

    async def _received(
        self, session: Session, received: httpx.Response
    ) -> tuple[RecordedResponse, httpx.Response | None]:
        """Return a response as it came, with its body unless that is streamed.

        A client of a live session must not get the key if the service repeats it, nor an address
        beside this server.
        """
        is_streamed, body = STREAMED in received.extensions, b""
        if not is_streamed:
            async with aclosing(received):
                body = b"".join([part async for part in received.aiter_raw()])
        raw = received.headers.raw
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
        response = RecordedResponse(received.status_code, received.reason_phrase, headers, body)
        if session.api_key is not None:
            response = _searched(response, self._redactor)
            location = header(response.headers, "location") or ""
            if location.startswith(f"{session.base_url}/"):
                moved = self.base_url + location.removeprefix(session.base_url)
                response = with_headers(response, {"Location": moved})
        return response, received if is_streamed else None


def _forwarded(request: RecordedRequest, session: Session, target: str) -> httpx.Request:
    """Return a client's request as the session sends it."""
    connection = (header(request.headers, "connection") or "").lower().replace(" ", "").split(",")
    dropped = _NOT_FORWARDED.union(connection)
    # As bytes: httpx takes text for ASCII, and a client may send any.
    headers = [
        (name.encode(), value.encode("latin-1"))
        for name, value in request.headers
        if name.lower() not in dropped
    ]
    codings = session.async_client.headers["Accept-Encoding"].encode()
    return httpx.Request(
        request.method,
        session.base_url + target,
        headers=[*headers, (b"Accept-Encoding", codings)],
        content=request.body,
        extensions={STREAMED: True},
    )


def _is_played(forwarded: tuple[Session, httpx.Request]) -> bool:
    """Return whether a session has no response to a request that was not played yet."""
    session, request = forwarded
    cassette = session.open_cassette
    return cassette is None or not cassette.has_unplayed(
        recorded_request(request), base_url=session.base_url
    )


async def redacted_parts(parts: AsyncIterable[bytes], redactor: Redactor) -> AsyncGenerator[bytes]:
    """Yield a body as it arrives, without the key, even if that is divided between two parts."""
    buffer, is_start = bytearray(), True
    async for part in parts:
        buffer += part
        if is_start and buffer.startswith(tuple(MAGIC.values())):
            continue  # a compressed file is searched when it is whole
        if end := _divisible_at(buffer, redactor):
            yield _without_key(buffer[:end], redactor)
            del buffer[:end]
            is_start = False
    if is_start:
        yield _searched(RecordedResponse(200, body=bytes(buffer)), redactor).body
    else:
        yield _without_key(buffer, redactor)


def _searched(response: RecordedResponse, redactor: Redactor) -> RecordedResponse:
    """Return a response without the key; refuse one whose body cannot be searched for it."""
    try:
        unpack(response.body, header(response.headers, "content-encoding") or "")
    except ValueError as error:
        raise DirectMailLabError(
            f"The response's body is {error}, so it cannot be searched for the key, and is not "
            "passed on. The recording has its headers alone."
        ) from None
    return redactor.interaction(Interaction(RecordedRequest("GET", ""), response)).response


def _divisible_at(buffer: bytearray, redactor: Redactor) -> int:
    """Return how much of a body that arrives can be searched and passed on; 0 to wait for more.

    No form of the key has a line break. Elsewhere the text around must be without a key, and what
    follows must be as long as the shortest part of a key that is searched for.
    """
    line_end = buffer.rfind(b"\n") + 1
    has_escapes = any(sign in buffer[-_SHARED:] for sign in b"\\%&")
    end = len(buffer) - (_SHARED if has_escapes else _LONGEST_PIECE)
    if end <= line_end:
        return line_end
    around = buffer[max(end - _SHARED, 0) :]
    if _without_key(around, redactor) == around:
        return end
    return line_end if len(buffer) < _WINDOW else len(buffer)


def _without_key(body: bytearray, redactor: Redactor) -> bytes:
    text = body.decode("utf-8", "surrogateescape")
    return redactor.text(text).encode("utf-8", "surrogateescape")


def _with_cors(response: RecordedResponse, exchange: Exchange, origin: str) -> RecordedResponse:
    """Return a response that a web page of ``origin`` may read."""
    kept = [pair for pair in response.headers if not pair[0].lower().startswith("access-control-")]
    added = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": header(exchange.headers, "access-control-request-method"),
        "Access-Control-Allow-Headers": header(exchange.headers, "access-control-request-headers"),
        "Access-Control-Expose-Headers": ", ".join((*HEADERS, "Retry-After")),
        "Vary": "Origin",
    }
    more = [(name, value) for name, value in added.items() if value]
    return replace(response, headers=(*kept, *more))
