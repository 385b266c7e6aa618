"""A server on loopback that answers as a session does: for curl, a browser, PHP or Node.

A server of replaying sessions sends nothing on. One whose session records is a gateway: it holds
the key, so that its clients need none, and sends their requests through the session's transports.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from .contract import HEADERS
from .errors import (
    DirectMailLabError,
    NotRecordedError,
    OutcomeUnknownError,
    QuotaExhaustedError,
    WriteRefusedError,
)
from .http import httpx, recorded_request
from .interaction import Headers, Interaction, RecordedRequest, RecordedResponse, header
from .loopback import HOP_BY_HOP, Exchange, LoopbackServer
from .redaction import Redactor
from .redaction.key_search import FRAGMENT, SHARED, WINDOW
from .redaction.unpack import MAGIC
from .sessions import Session
from .settings import is_loopback
from .transports import STREAMED

# Headers about the client or this server: the session sends its own instead, or none. A browser
# sends the cookies of every server on this machine, and Referer may hold our token.
_NOT_PASSED_ON: Final = HOP_BY_HOP | {
    *("accept-encoding", "authorization", "content-length", "cookie", "expect", "host"),
    *("origin", "referer"),
}
_LONGEST_PIECE: Final = 2 * FRAGMENT  # a part of the key in hexadecimal
_STATUS_OF: Final[dict[type[Exception], int]] = {
    NotRecordedError: 404,
    WriteRefusedError: 403,
    QuotaExhaustedError: 429,
    OutcomeUnknownError: 504,
    httpx.TimeoutException: 504,
    httpx.InvalidURL: 400,
}

_log = logging.getLogger("directmail_lab")


class SessionServer(LoopbackServer):
    """Answers each request below its own address as sessions answer it below theirs.

    Of several sessions, the first with an answer that was not played yet answers; else the first
    with any. A refusal or failure is JSON: ``{"error": {"status", "reason", "message"}}``.

    Parameters
    ----------
    sessions
        Sessions that replay, or one that records. They are closed with the server.
    port
        The port on 127.0.0.1; 0 takes a free one.
    token
        A secret path segment that the address ends with, so that only those who know it are
        answered; empty for none.
    allow_origins
        Origins whose web pages may send requests, such as ``http://localhost:3000``.
    say
        Returns the message of an error.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        *,
        port: int = 0,
        token: str = "",
        allow_origins: Collection[str] = (),
        say: Callable[[Exception], str] = str,
    ) -> None:
        self._sessions = sessions
        self._prefix = f"/{token}" if token else ""
        self._allow_origins = allow_origins
        self._say = say
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
        if why := self._why_refused(exchange, origin):
            response = _error(403, "refused", why)
        elif origin and header(exchange.headers, "access-control-request-method"):
            response = RecordedResponse(204, "No Content")  # CORS: a browser asks first
        else:
            response, streamed = await self._answer(await exchange.received())
        if origin in self._allow_origins:
            response = _readable_by(origin, exchange, response)
        if header(exchange.headers, "sec-fetch-mode") == "navigate":
            # A recorded web page is shown, but its scripts must not run with JupyterLab's cookies.
            sandboxed = ("Content-Security-Policy", "sandbox")
            response = replace(response, headers=(*response.headers, sandboxed))
        if streamed is None:
            await exchange.answer(response)
            return
        async with aclosing(streamed):
            try:
                await exchange.answer(
                    response, parts=redacted_parts(streamed.aiter_raw(), self._redactor)
                )
            except (DirectMailLabError, httpx.HTTPError) as error:
                _log.warning("%s", self._say(error))
                exchange.drop()  # the client sees that the rest is missing

    def _why_refused(self, exchange: Exchange, origin: str) -> str:
        """Return why a request is refused, or an empty text.

        A web page in the user's browser can send requests here: through a host name of its own that
        resolves to this machine (Host shows it), or across sites (Origin or Sec-Fetch-Site does).
        """
        try:
            host = urlsplit(f"//{header(exchange.headers, 'host')}").hostname
        except ValueError:
            host = None
        if not is_loopback(host or ""):
            return "Only requests to this machine by its own name are answered: 127.0.0.1."
        fetched_from = header(exchange.headers, "sec-fetch-site") or "none"
        if (origin or fetched_from not in ("none", "same-origin")) and (
            origin not in self._allow_origins
        ):
            return f"Web pages may not ask here. To let this one: --allow-origin {origin or '…'}"
        expected = f"{self._prefix}/"  # with the slash: the rest is added to the base address
        first = exchange.target[: len(expected)].encode()
        if not hmac.compare_digest(first, expected.encode()):
            return "The address lacks the token. Use the address that was printed at the start."
        return ""

    async def _answer(
        self, request: RecordedRequest
    ) -> tuple[RecordedResponse, httpx.Response | None]:
        """Return the response to a request, and where its body is still to come, its source."""
        target = request.uri[len(self._prefix) :]
        refusals: list[NotRecordedError] = []
        try:
            asked = [(each, _passed_on(request, each, target)) for each in self._sessions]
            if len(asked) > 1:
                asked.sort(key=_holds_no_answer)
            for session, sent in asked:
                try:
                    received = await session.async_client.send(sent, stream=True)
                except NotRecordedError as error:
                    refusals.append(error)
                else:
                    if session.api_key is None:
                        return await _whole(received), None
                    is_streamed = STREAMED in received.extensions
                    response = _head(received) if is_streamed else await _whole(received)
                    # If the service repeats the key, the client must not get it.
                    response = self._redactor.interaction(Interaction(request, response)).response
                    return response, received if is_streamed else None
        except (DirectMailLabError, httpx.HTTPError, httpx.InvalidURL) as error:
            status = next((s for kind, s in _STATUS_OF.items() if isinstance(error, kind)), 502)
            return _error(status, type(error).__name__, self._say(error)), None
        said = " ".join(dict.fromkeys(map(self._say, refusals)))
        return _error(404, refusals[0].reason, said), None


def _passed_on(request: RecordedRequest, session: Session, target: str) -> httpx.Request:
    """Return a client's request as the session sends it."""
    named = (header(request.headers, "connection") or "").lower().replace(" ", "").split(",")
    dropped = _NOT_PASSED_ON.union(named)
    own = [(name, value) for name, value in request.headers if name.lower() not in dropped]
    codings = session.async_client.headers["Accept-Encoding"]
    return httpx.Request(
        request.method,
        session.base_url + target,
        headers=[*own, ("Accept-Encoding", codings)],
        content=request.body,
        extensions={STREAMED: True},
    )


def _holds_no_answer(asked: tuple[Session, httpx.Request]) -> bool:
    session, sent = asked
    cassette = session.open_cassette
    return cassette is None or not cassette.has_unplayed(
        recorded_request(sent), base_url=session.base_url
    )


def _head(response: httpx.Response) -> RecordedResponse:
    """Return a response as it came, without its body: the headers as they are spelled."""
    headers = _as_text(response.headers.raw)
    return RecordedResponse(response.status_code, response.reason_phrase, headers)


async def _whole(response: httpx.Response) -> RecordedResponse:
    """Return a response as it came: the body not decoded."""
    async with aclosing(response):
        body = b"".join([part async for part in response.aiter_raw()])
        return replace(_head(response), body=body)


async def redacted_parts(parts: AsyncIterable[bytes], redactor: Redactor) -> AsyncGenerator[bytes]:
    """Yield a body as it arrives, without the key, even if that is divided between two parts."""
    held, is_start = bytearray(), True
    async for part in parts:
        held += part
        if is_start and held.startswith(tuple(MAGIC.values())):
            continue  # a compressed file is searched when it is whole
        if end := _divisible_at(held, redactor):
            yield _without_key(held[:end], redactor)
            del held[:end]
            is_start = False
    if is_start:
        whole = Interaction(RecordedRequest("GET", ""), RecordedResponse(200, body=bytes(held)))
        yield redactor.interaction(whole).response.body
    else:
        yield _without_key(held, redactor)


def _divisible_at(body: bytearray, redactor: Redactor) -> int:
    """Return where the start of a body that may hold the key ends, or 0 to wait for more of it.

    No form of the key has a line break. At another place, what is around it must be clean; and what
    is after it must be as long as the shortest text that is recognized as a part of the key.
    """
    line_end = body.rfind(b"\n") + 1
    has_escapes = any(sign in body[-SHARED:] for sign in b"\\%&")
    end = len(body) - (SHARED if has_escapes else _LONGEST_PIECE)
    if end <= line_end:
        return line_end
    around = body[max(end - SHARED, 0) :]
    if _without_key(around, redactor) == around:
        return end
    return line_end if len(body) < WINDOW else len(body)


def _without_key(body: bytearray, redactor: Redactor) -> bytes:
    text = body.decode("utf-8", "surrogateescape")
    return redactor.text(text).encode("utf-8", "surrogateescape")


def _as_text(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _readable_by(origin: str, exchange: Exchange, response: RecordedResponse) -> RecordedResponse:
    """Return a response with the CORS headers that let a page of ``origin`` read it."""
    kept = [pair for pair in response.headers if not pair[0].lower().startswith("access-control-")]
    allowed = header(exchange.headers, "access-control-request-headers")
    more = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": header(exchange.headers, "access-control-request-method"),
        "Access-Control-Allow-Headers": allowed,
        "Access-Control-Expose-Headers": ", ".join(HEADERS),
        "Vary": "Origin",
    }
    added = [(name, value) for name, value in more.items() if value]
    return replace(response, headers=(*kept, *added))


def _error(status: int, reason: str, message: str) -> RecordedResponse:
    error = {"status": status, "reason": reason, "message": message}
    body = json.dumps({"error": error}, ensure_ascii=False).encode()
    headers = (("Content-Type", "application/json; charset=utf-8"),)
    return RecordedResponse(status, HTTPStatus(status).phrase, headers, body)
