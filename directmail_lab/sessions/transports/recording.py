"""The transport that keeps every response, and records it if there is a cassette."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...cassettes import Cassette, SessionRecording
from ...errors import CassetteError, DirectMailLabError
from ...exchange.bodies import MAX_UNPACKED_BYTES, missing_body, unpack
from ...exchange.httpx_values import (
    httpx,
    is_write,
    kind_of_failure,
    request_value,
    response_value,
)
from ...exchange.values import BODILESS, Cut, Interaction, Request, Response
from ...tracebacks import clear_locals, without_traceback
from .body import Body
from .extensions import Sent, call_of
from .network import NOT_SENT, NetworkTransport, lost_response
from .observer import Observer

# A handler of a signal may raise any error while a response is awaited. A test's own failures, such
# as pytest's, say nothing about a response.
_ENDS = (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError)

_HTTPX_DECODES = ("gzip", "deflate", "br", "zstd")


@dataclass(eq=False, repr=False)
class RecordingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends a request once, keeps the response, and records it if there is a ``cassette``.

    ``clock`` returns seconds since the Unix epoch. Latencies are differences of ``timer``, in
    seconds.
    """

    inner: NetworkTransport
    observe: Observer
    recording: SessionRecording
    cassette: Cassette | None = None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.perf_counter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(self, request)
        try:
            response = self.inner.handle_request(request, exchange.begin_write)
        except _ENDS as error:
            exchange.failed(error)
            raise
        return exchange.received(response)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(self, request)
        try:
            response = await self.inner.handle_async_request(request, exchange.begin_write)
        except _ENDS as error:
            exchange.failed(error)
            raise
        return exchange.received(response)


class _Exchange:
    """A request on its way, from its start to the end of its response.

    It begins when it is made. It ends in `failed` if no response comes, else in `_ended`.
    """

    def __init__(self, transport: RecordingTransport, request: httpx.Request) -> None:
        self._transport = transport
        self._request = request
        self._started = transport.timer()
        cassette = transport.cassette
        self._number = None if cassette is None else cassette.start(request.method)
        self._call = call_of(request)
        self._attempt = self._call.attempt + 1
        self._sent: Request | None = None

    def begin_write(self) -> None:
        """Record a write before it is sent: a kill must not let a later run send it again."""
        cassette = self._transport.cassette
        if cassette is not None and self._number is not None:
            at = datetime.fromtimestamp(self._transport.clock(), UTC)
            self._sent = request_value(self._request)
            cassette.begin_write(self._sent, at, self._number)

    def _time(self) -> None:
        """Note when the response came."""
        self._elapsed_s = round(self._transport.timer() - self._started, 6)
        self._at = datetime.fromtimestamp(self._transport.clock(), UTC)

    # -- a response came -------------------------------------------------------------------------

    def received(self, response: httpx.Response) -> httpx.Response:
        """Return the response with a body that is kept, and recorded, as its caller reads it."""
        self._time()
        transport = self._transport
        is_recorded = transport.cassette is not None
        # Not the response itself, whose body refers to this exchange.
        self._response = response_value(response, b"")
        self._observed = transport.observe(
            transport.recording,
            self._request,
            response,
            self._interaction(self._response),
            is_read=False,
            is_told=not is_recorded,
        )
        body = Body(response.stream, self._ended, self._explain)
        length = response.headers.get("content-length", "")
        if self._request.method == "HEAD" or self._response.status in BODILESS:
            body.length = 0
        elif length.isdecimal():
            body.length = int(length)
        self._coding = response.headers.get("content-encoding", "")
        if "," in self._coding:  # httpx would expand 893 bytes to 8 GB
            body.refusal = httpx.DecodingError("compressed more than once", request=self._request)
        response.stream = body
        if body.length == 0:
            body.end()
        elif transport.cassette is not None and self._number is not None:
            transport.cassette.note_open(self._number, partial(self._end_early, body))
        return response

    def _ended(self, body: Body, error: BaseException | None) -> None:
        """Keep the body, and record the response, before the caller sees its end.

        A session that only sends keeps no part of a body that its caller left.
        """
        transport = self._transport
        cassette = transport.cassette
        if cassette is None and isinstance(error, GeneratorExit):
            return
        response = replace(self._response, body=self._plain(body))
        if isinstance(error, GeneratorExit):
            response = replace(response, cut="left")
        elif error is not None:
            response = replace(response, cut=_cut_of(error), error=_text_of(error))
        changes: dict[str, Any] = {}
        try:
            if cassette is not None:
                changes = self._write(response, cassette)
        except CassetteError as failure:
            if error is None or isinstance(error, GeneratorExit):
                failure.add_note(
                    f"The service had responded with {self._response.status} to the "
                    f"{self._request.method}: the request was carried out, and only its recording "
                    "failed. dm.interactions() has the response."
                )
                raise
            error.add_note(f"This could not be recorded: {failure}")
        except KeyboardInterrupt:  # redacting a long body takes a while
            assert cassette is not None, "nothing else takes long here"
            self._write(replace(response, body=missing_body(body.size)), cassette)
            raise
        finally:  # the session keeps the response even if it was not recorded
            number = self._observed.number
            transport.recording.add_body(number, response, **changes)
            if cassette is not None:
                transport.observe.tell(self._observed)

    def _explain(self, error: BaseException) -> BaseException:
        """Return the error of a body that broke off: of a write, the outcome is unknown then."""
        if isinstance(error, KeyboardInterrupt):
            self._transport.inner.connections.forget_pool()
        if isinstance(error, httpx.RequestError | KeyboardInterrupt):
            return lost_response(self._request, error) or without_traceback(error)
        clear_locals(error)
        return error

    def _end_early(self, body: Body, is_last: bool) -> None:
        """Record what was read of a body until now, since the recording ends."""
        cassette = self._transport.cassette
        if is_last:
            body.leave()
        elif cassette is not None:
            read = self._plain(body)
            self._write(replace(self._response, body=read, cut="left"), cassette)

    def _plain(self, body: Body) -> bytes:
        """Return what was read of a body, decompressed, or a placeholder."""
        kept = body.kept
        if kept is None:
            return missing_body(body.size)
        return _decoded(kept, self._coding) if self._coding else kept

    # -- no response came ------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """Keep a request that was sent, although its caller gets no response.

        A write that may have been carried out is always recorded. A read is, unless it was
        interrupted; in a test, also then.
        """
        if self._call.sent is Sent.NOTHING or isinstance(error, DirectMailLabError):
            return  # it was not sent
        self._time()
        about: dict[str, Any] = {}
        transport = self._transport
        cassette = transport.cassette
        is_sent_write = is_write(self._request) and not isinstance(error, NOT_SENT)
        is_failure = kind_of_failure(error) is not None
        if cassette is not None and cassette.policy.records_failures:
            is_recorded = is_failure or not isinstance(error, Exception)
        else:
            is_recorded = is_sent_write or (is_failure and not is_write(self._request))
        lost = Response(0, cut=_cut_of(error), error=_text_of(error))
        if cassette is not None and is_recorded:
            try:
                about = self._write(lost, cassette)
            except CassetteError as failure:
                error.add_note(f"This could not be recorded: {failure}")
        elif cassette is not None and self._number is not None:
            cassette.drop(self._number)  # no connection was made
        if is_recorded or not isinstance(error, httpx.TransportError):
            kept = self._interaction(lost)
            transport.observe(transport.recording, self._request, httpx.Response(0), kept, **about)

    # -- both ------------------------------------------------------------------------------------

    def _interaction(self, response: Response) -> Interaction:
        self._sent = self._sent or request_value(self._request)
        return Interaction(self._sent, response, self._at, self._elapsed_s, self._attempt)

    def _write(self, response: Response, cassette: Cassette) -> dict[str, Any]:
        """Record an interaction; return what a reading says about that."""
        if cassette.record(self._interaction(response), self._number) is None:
            return {}
        return {"source": "recorded", "cassette": cassette.name}


def _decoded(body: bytes, coding: str) -> bytes:
    """Return a body decompressed, or a placeholder if that is not possible, or it is too large."""
    try:
        plain = unpack(body, coding)
    except ValueError:
        return missing_body(len(body))
    # If the body is not compressed as its header says, httpx raises an error for the caller.
    is_wrong = bool(body) and plain is body and coding.strip().lower() in _HTTPX_DECODES
    if is_wrong or len(plain) > MAX_UNPACKED_BYTES:
        return missing_body(len(body))
    return plain


def _cut_of(error: BaseException) -> Cut:
    return kind_of_failure(error) or ("read_error" if isinstance(error, Exception) else "aborted")


def _text_of(error: BaseException) -> str:
    return str(error) if isinstance(error, httpx.TransportError) else type(error).__name__
