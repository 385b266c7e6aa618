"""The transport that keeps every response, and records it if there is a cassette."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from ..cassettes import Cassette, MemoryRecording
from ..errors import CassetteError, DirectMailLabError, OutcomeUnknownError
from ..exchange.bodies import MAX_UNPACKED_BYTES, missing_body, unpack
from ..exchange.values import (
    Interaction,
    Response,
    header,
    normalize_headers,
)
from ..http import (
    httpx,
    httpx_response,
    is_write,
    kind_of_failure,
    request_value,
    response_value,
)
from ..tracebacks import clear_locals, hide_frames
from . import Transport
from .extensions import Received, Sent, call_of, of
from .live_body import LiveBody, time_limit
from .network import NOT_SENT
from .observer import Observer

# A handler of a signal may raise any error while a response is awaited. A test's own failures, such
# as pytest's, say nothing about a response.
_ENDS: Final = (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError)


class _Times(NamedTuple):
    """When a response came, in seconds since the Unix epoch, and after how many seconds."""

    at: float
    elapsed_s: float


@dataclass(eq=False, repr=False)
class RecordingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends a request once, keeps the response, and records it if there is a ``cassette``.

    ``clock`` returns seconds since the Unix epoch. Latencies are differences of ``timer``, in
    seconds.
    """

    inner: Transport
    observe: Observer
    recording: MemoryRecording
    cassette: Cassette | None = None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.perf_counter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        try:
            response = self.inner.handle_request(request)
        except _ENDS as error:
            self._failed(request, started, error)
            raise
        response.stream = body = self._body(request, response, started)
        if self.cassette is None:
            self._observe_live(request, response, self._times(started))
            return response
        # Without a local for the bytes: a traceback with locals would print what they echo.
        with (
            self._recording_failure(request, started),
            closing(body),
            time_limit(request, response, self.timer) as check,
        ):
            response.stream = httpx.ByteStream(b"".join(map(check, body)))
        return self._record(self.cassette, request, response, self._times(started))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        try:
            response = await self.inner.handle_async_request(request)
        except _ENDS as error:
            self._failed(request, started, error)
            raise
        response.stream = body = self._body(request, response, started)
        if self.cassette is None:
            self._observe_live(request, response, self._times(started))
            return response
        with self._recording_failure(request, started):
            async with aclosing(body):
                with time_limit(request, response, self.timer) as check:
                    response.stream = httpx.ByteStream(b"".join([check(p) async for p in body]))
        return self._record(self.cassette, request, response, self._times(started))

    def _times(self, started: float) -> _Times:
        elapsed_s = round(self.timer() - started, 6)
        return _Times(self.clock(), elapsed_s)

    def _observe_live(
        self, request: httpx.Request, response: httpx.Response, times: _Times, **about: Any
    ) -> Received:
        return self.observe(self.recording, request, response, **times._asdict(), **about)

    def _body(self, request: httpx.Request, response: httpx.Response, started: float) -> LiveBody:
        """Return the body of a response. If it breaks off, the part that arrived is kept."""

        def unpacked(body: bytes) -> bytes:
            return unpack(body, response.headers.get("content-encoding", ""))

        def cut_short(body: bytes, *, is_aborted: bool) -> None:
            received = of(response)
            if not received.number:  # read for a cassette, which does not get a part
                received = self._observe_live(request, response, self._times(started))
            with suppress(ValueError):
                body = unpacked(body)
            received.cut_short(body, is_aborted=is_aborted)

        def complete(body: bytes) -> None:
            with suppress(ValueError):  # not compressed as its headers say
                of(response).add_body(unpacked(body))

        # The session's own clients keep what httpx decoded: see `keep_body`.
        is_kept_here = self.cassette is None and call_of(request).is_foreign
        return LiveBody(response, cut_short, complete if is_kept_here else None)

    def _failed(self, request: httpx.Request, started: float, error: BaseException) -> None:
        """Keep a request that was sent, although its caller gets no response."""
        call, is_failure = call_of(request), isinstance(error, httpx.TransportError)
        if call.state.sent is Sent.NOTHING or isinstance(error, DirectMailLabError):
            return  # it was not sent
        if isinstance(error, Exception) and not is_failure and call.send is not None:
            return  # a bug of another client, which may have sent nothing
        times = self._times(started)
        about = self._record_failure(request, times, error)
        if not is_failure:
            received = self._observe_live(request, httpx.Response(0), times, **about)
            received.cut_short(b"", is_aborted=True)
        elif about:
            self._observe_live(request, httpx.Response(0), times, body=b"", **about)

    @contextmanager
    def _recording_failure(self, request: httpx.Request, started: float) -> Iterator[None]:
        """Record that a response broke off."""
        handled = sys.exception()
        try:
            yield
        except BaseException as error:
            clear_locals(error, handled)  # a part of the body may echo the key
            self._record_failure(request, self._times(started), error)
            raise

    def _record_failure(
        self, request: httpx.Request, times: _Times, error: BaseException
    ) -> dict[str, Any]:
        """Record a request to which no response came; return what a reading says about that.

        A write that was sent is always recorded, since it may have been carried out. A read is
        recorded only if the cassette asks for failures.
        """
        cassette, kind = self.cassette, kind_of_failure(error)
        if isinstance(error, OutcomeUnknownError):
            kind = error.no_response
        is_sent_write = is_write(request) and not isinstance(error, NOT_SENT)
        if kind is None and (is_sent_write or not isinstance(error, Exception)):
            kind = "read_error"  # interrupted, cancelled, or not to be decoded
        if cassette is None or kind is None:
            return {}
        if not (is_sent_write or cassette.records_failures):
            return {}
        reason = str(error) if isinstance(error, httpx.TransportError) else type(error).__name__
        try:
            return self._write(cassette, request, Response(0, reason, no_response=kind), times)
        except CassetteError as failure:
            error.add_note(f"This could not be recorded: {failure}")
            return {}

    def _write(
        self, cassette: Cassette, request: httpx.Request, response: Response, times: _Times
    ) -> dict[str, Any]:
        """Record an interaction; return what a reading says about that."""
        call, at = call_of(request), datetime.fromtimestamp(times.at, UTC)
        sent, attempt = request_value(request), call.state.recorded + 1
        written = cassette.record(Interaction(sent, response, at, times.elapsed_s, attempt))
        if written is None:
            return {}
        call.state.recorded = attempt  # what before_record leaves out does not count
        return {
            "source": "recorded",
            "cassette": cassette.name,
            "cassette_number": written.number,
            "no_response": response.no_response,
            "is_clean": written.is_clean,
        }

    @hide_frames
    def _record(
        self, cassette: Cassette, request: httpx.Request, response: httpx.Response, times: _Times
    ) -> httpx.Response:
        """Record a response before the caller gets it, so that nothing seen is ever lost."""
        recorded, response = _as_recorded(request, response)
        about: dict[str, Any] = {}
        try:
            about = self._write(cassette, request, recorded, times)
        except CassetteError as error:
            error.add_note(
                f"The service had responded with {recorded.status} to the {request.method}: "
                "the request was carried out, and only its recording failed. interactions() has "
                "the response."
            )
            raise
        except KeyboardInterrupt as error:  # redacting a long body takes a while
            self._record_failure(request, times, error)
            raise
        finally:  # the session keeps the response even if it was not recorded
            self._observe_live(request, response, times, body=recorded.body, **about)
        return response


def _as_recorded(
    request: httpx.Request, response: httpx.Response
) -> tuple[Response, httpx.Response]:
    """Return a response in the form to record, and in the form for the caller.

    If it was compressed, both are what a replay will return: the decoded body, with matching
    headers. If the body is too large or cannot be decoded, only the caller gets it.
    """
    recorded = response_value(response, b"".join(cast("httpx.ByteStream", response.stream)))
    body, coding = recorded.body, header(recorded.headers, "content-encoding")
    try:
        plain = unpack(body, coding) if coding else body
        # If the body is not compressed as its header says, httpx raises an error for the caller.
        if len(plain) > MAX_UNPACKED_BYTES or (coding and body and plain is body):
            raise ValueError
    except ValueError:
        plain, coding = missing_body(len(body)), None
    if plain is body and not coding:
        return recorded, response
    recorded = normalize_headers(replace(recorded, body=plain), method=request.method)
    return recorded, httpx_response(recorded) if coding else response
