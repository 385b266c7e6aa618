"""The transport that keeps every response, and records it if there is a cassette."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, cast

from ..cassettes import Cassette, MemoryRecording, Played, RawInteraction
from ..display import CONTROLS
from ..errors import CassetteError, OutcomeUnknownError
from ..exchange.bodies import MAX_UNPACKED_BYTES, missing_body, unpack
from ..exchange.operations import below
from ..exchange.values import (
    NOT_SENT_KINDS,
    Interaction,
    NoResponse,
    Response,
    header,
    normalize_headers,
)
from ..http import (
    body_of,
    httpx,
    httpx_response,
    is_write,
    kind_of_failure,
    request_value,
    response_value,
)
from ..readings.reading import Reading, ReadingSource, raw_values
from ..redaction import Redactor
from ..tracebacks import clear_locals, hide_frames
from . import Transport
from .extensions import EXTENSION, Call, Received, call_of, of

_log: Final = logging.getLogger(__name__)

_MOST_KEPT_BYTES: Final = 64 * 1024**2
"""The largest body that is kept while it is read, in case it is cut short."""

_USUAL_REASONS: Final = frozenset({"", *(status.phrase for status in HTTPStatus)})


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes the `Reading` of each response, and adds both to a recording and to the response.

    Attributes
    ----------
    prefix
        The path of the base address. A reading's path is relative to it.
    redactor
        Removes the key.
    listeners
        Functions that are called with each reading.
    """

    prefix: str = ""
    redactor: Redactor = field(default_factory=Redactor)
    listeners: dict[object, Callable[[Reading], None]] = field(default_factory=dict)

    def __call__(
        self,
        recording: MemoryRecording,
        request: httpx.Request,
        response: httpx.Response,
        *,
        at: float,
        elapsed_s: float | None,
        source: ReadingSource = "live",
        cassette: str | None = None,
        cassette_number: int | None = None,
        body: bytes | None = None,
        is_clean: bool = False,
        no_response: NoResponse | None = None,
    ) -> Received:
        """Add a response to a recording, and return its `Received`.

        ``body`` is None if it was not read yet. ``is_clean`` says that the messages have no key.
        """
        _hide_key(response, self.redactor.text)
        call, raw = call_of(request), response.headers.raw
        call.attempt += 1
        path = below(request.url.raw_path.decode("ascii"), self.prefix)
        reading = Reading(
            *(at, request.method, path, response.status_code, raw_values(raw), elapsed_s),
            *(source, cassette, cassette_number, call.attempt),
            no_response=no_response,
        )
        if place := recording.elsewhere(str(request.url)):
            reading = reading._replace(elsewhere=place)
        sent, reason = body_of(request) or b"", response.reason_phrase
        exchange = RawInteraction(request.url, request.headers.raw, sent, raw, reason, body)
        reading = reading if is_clean else reading.redacted(self.redactor)
        number = recording.add(reading, exchange)
        received = Received(recording, number, recording if body is None else None)
        self._call_listeners(call, response, received)
        return received

    def played(
        self,
        recording: MemoryRecording,
        request: httpx.Request,
        response: httpx.Response,
        cassette: Cassette,
        played: Played,
    ) -> None:
        """Add a response that a cassette played to a recording."""
        _hide_key(response, self.redactor.text)
        call = call_of(request)
        call.attempt += 1
        number = recording.add_played(cassette, played, attempt=call.attempt)
        self._call_listeners(call, response, Received(recording, number))

    def _call_listeners(self, call: Call, response: httpx.Response, received: Received) -> None:
        call.number = received.number
        response.extensions[EXTENSION] = received
        for listener in list(self.listeners.values()):
            try:
                if reading := received.reading:
                    listener(reading)
            except Exception:  # a callback must not cost the caller a good response
                _log.exception("An on_reading callback failed")


def _hide_key(response: httpx.Response, redacted: Callable[[str], str]) -> None:
    """Remove the key from the reason phrase and the cookies, and control characters from both."""
    if (reason := response.reason_phrase) not in _USUAL_REASONS:
        shown = CONTROLS.sub(" ", redacted(reason))
        response.extensions["reason_phrase"] = shown.encode("ascii", "replace")
    if "set-cookie" in response.headers:
        cookies = response.headers.get_list("set-cookie")
        if redacted("\n".join(cookies)) != "\n".join(cookies):
            del response.headers["set-cookie"]


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
        except (httpx.TransportError, KeyboardInterrupt) as error:
            self._failed(request, started, error)
            raise
        response.stream = body = self._body(request, response, started)
        if self.cassette is None:
            self._observe_live(request, response, started)
            return response
        # Without a local for the bytes: a traceback with locals would print what they echo.
        with (
            self._recording_failure(request, started),
            closing(body),
            _time_limit(request, response, self.timer) as check,
        ):
            response.stream = httpx.ByteStream(b"".join(map(check, body)))
        return self._record(self.cassette, request, response, started)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        try:
            response = await self.inner.handle_async_request(request)
        except (httpx.TransportError, asyncio.CancelledError) as error:
            self._failed(request, started, error)
            raise
        response.stream = body = self._body(request, response, started)
        if self.cassette is None:
            self._observe_live(request, response, started)
            return response
        with self._recording_failure(request, started):
            async with aclosing(body):
                with _time_limit(request, response, self.timer) as check:
                    response.stream = httpx.ByteStream(b"".join([check(p) async for p in body]))
        return self._record(self.cassette, request, response, started)

    def _observe_live(
        self, request: httpx.Request, response: httpx.Response, started: float, **about: Any
    ) -> Received:
        about |= {"at": self.clock(), "elapsed_s": round(self.timer() - started, 6)}
        return self.observe(self.recording, request, response, **about)

    def _body(self, request: httpx.Request, response: httpx.Response, started: float) -> _Body:
        """Return the body of a response. If it breaks off, the part that arrived is kept."""

        def unpacked(body: bytes) -> bytes:
            return unpack(body, response.headers.get("content-encoding", ""))

        def cut_short(body: bytes, *, is_aborted: bool) -> None:
            received = of(response)
            if not received.number:  # read for a cassette, which does not get a part
                received = self._observe_live(request, response, started)
            with suppress(ValueError):
                body = unpacked(body)
            received.cut_short(body, is_aborted=is_aborted)

        def complete(body: bytes) -> None:
            with suppress(ValueError):  # not compressed as its headers say
                of(response).add_body(unpacked(body))

        # The session's own clients keep what httpx decoded: see `keep_body`.
        is_kept_here = self.cassette is None and call_of(request).is_foreign
        return _Body(response, cut_short, complete if is_kept_here else None)

    def _failed(self, request: httpx.Request, started: float, error: BaseException) -> None:
        """Keep a request that was sent, although its caller gets no response."""
        if call_of(request).first_sent is None:
            return
        about = self._record_failure(request, started, error)
        if not isinstance(error, httpx.TransportError):
            received = self._observe_live(request, httpx.Response(0), started, **about)
            received.cut_short(b"", is_aborted=True)
        elif about:
            self._observe_live(request, httpx.Response(0), started, body=b"", **about)

    @contextmanager
    def _recording_failure(self, request: httpx.Request, started: float) -> Iterator[None]:
        """Record that a response broke off."""
        handled = sys.exception()
        try:
            yield
        except BaseException as error:
            clear_locals(error, handled)  # a part of the body may echo the key
            self._record_failure(request, started, error)
            raise

    def _record_failure(
        self, request: httpx.Request, started: float, error: BaseException
    ) -> dict[str, Any]:
        """Record a request to which no response came; return what a reading says about that.

        A write that was sent is always recorded, since it may have been carried out. A read is
        recorded only if the cassette asks for failures.
        """
        cassette, kind = self.cassette, kind_of_failure(error)
        if isinstance(error, OutcomeUnknownError):
            kind = error.no_response
        elif not isinstance(error, Exception):  # interrupted, or cancelled
            kind = "read_error"
        if cassette is None or kind is None:
            return {}
        is_sent_write = is_write(request) and kind not in NOT_SENT_KINDS
        if not (is_sent_write or cassette.records_failures):
            return {}
        call, sent = call_of(request), request_value(request)
        elapsed_s, at = round(self.timer() - started, 6), datetime.fromtimestamp(self.clock(), UTC)
        reason = str(error) if isinstance(error, httpx.TransportError) else type(error).__name__
        none = Response(0, reason, no_response=kind)
        try:
            written = cassette.record(Interaction(sent, none, at, elapsed_s, call.recorded + 1))
        except CassetteError as failure:
            error.add_note(f"This could not be recorded: {failure}")
            return {}
        if written is None:
            return {}
        call.recorded += 1
        about: dict[str, Any] = {"source": "recorded", "cassette": cassette.name}
        return about | {"cassette_number": written.number, "no_response": kind}

    @hide_frames
    def _record(
        self, cassette: Cassette, request: httpx.Request, response: httpx.Response, started: float
    ) -> httpx.Response:
        """Record a response before the caller gets it, so that nothing seen is ever lost."""
        elapsed_s, at, call = round(self.timer() - started, 6), self.clock(), call_of(request)
        recorded, response = _as_recorded(request, response)
        about: dict[str, Any] = {"at": at, "elapsed_s": elapsed_s, "body": recorded.body}
        sent, recorded_at = request_value(request), datetime.fromtimestamp(at, UTC)
        interaction = Interaction(sent, recorded, recorded_at, elapsed_s, call.recorded + 1)
        try:
            if written := cassette.record(interaction):
                call.recorded += 1  # what before_record leaves out does not count
                about |= {"source": "recorded", "cassette": cassette.name}
                about |= {"cassette_number": written.number, "is_clean": written.is_clean}
        except CassetteError as error:
            error.add_note(
                f"The service had responded with {recorded.status} to the {request.method}: "
                "the request was carried out, and only its recording failed. interactions() has "
                "the response."
            )
            raise
        finally:  # the session keeps the response even if it was not recorded
            self.observe(self.recording, request, response, **about)
        return response


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a live response.

    ``complete`` gets the whole body once it is read. If the connection breaks, or the caller is
    interrupted while reading, ``cut_short`` gets the part that arrived.
    """

    def __init__(
        self,
        response: httpx.Response,
        cut_short: Callable[..., None],
        complete: Callable[[bytes], None] | None,
    ) -> None:
        self._stream: Any = response.stream
        self._headers = response.headers
        self._cut_short, self._complete = cut_short, complete
        self._parts: list[bytes] = []
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from map(self._kept, self._stream)
        except BaseException as error:
            self._keep_part(error)
            raise
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield self._kept(part)
        except BaseException as error:
            part = b""  # so that no traceback shows what it echoes
            self._keep_part(error)
            raise
        self._end()

    def _kept(self, part: bytes) -> bytes:
        self._size += len(part)
        self._parts.append(part)
        if self._size > _MOST_KEPT_BYTES:
            self._parts.clear()
        return part

    def _keep_part(self, error: BaseException) -> None:
        is_broken = isinstance(error, httpx.TransportError | OutcomeUnknownError)
        is_interrupted = not isinstance(error, Exception | GeneratorExit)
        if is_broken or is_interrupted:
            self._cut_short(b"".join(self._parts), is_aborted=is_interrupted)

    def _end(self) -> None:
        if self._complete is not None and self._size <= _MOST_KEPT_BYTES:
            self._complete(b"".join(self._parts))
        self._complete = None

    def close(self) -> None:
        self._release().close()

    async def aclose(self) -> None:
        await self._release().aclose()

    def _release(self) -> Any:
        """Forget the transports: a response must not keep the key of a dropped session alive."""
        # urllib3 closes the body before it asks for its end.
        if self._complete is not None and str(self._size) == self._headers.get("content-length"):
            self._end()
        stream, self._stream = self._stream, httpx.ByteStream(b"")
        self._cut_short, self._complete = lambda *_, **__: None, None
        self._parts.clear()
        return stream


@contextmanager
def _time_limit(
    request: httpx.Request, response: httpx.Response, timer: Callable[[], float]
) -> Iterator[Callable[[bytes], bytes]]:
    """Yield a function that returns a part of the body, or raises an error if it is too late.

    Without this, recording a stream that never ends would block its caller. A body with a
    ``Content-Length`` does end, so only the client's own timeout for each part applies.
    """
    timeout_s: float | None = request.extensions.get("timeout", {}).get("read")
    end = math.inf
    if timeout_s is not None and "content-length" not in response.headers:
        end = timer() + timeout_s

    def check(part: bytes) -> bytes:
        if end < math.inf and timer() > end:
            raise httpx.ReadTimeout("")
        return part

    try:
        yield check
    except httpx.ReadTimeout as error:
        if timeout_s is not None:
            error.args = (
                f"The response did not end within {timeout_s:g} s, the client's timeout. "
                "While a session records, it reads a stream to its end before its caller gets it. "
                "Request a stream that ends, or give it more time.",
            )
        raise


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
