"""The transport that keeps every response, and writes it to a cassette if there is one."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from ..cassettes import Cassette, RawInteraction, Recorded, SessionRecording
from ..display import CONTROLS
from ..errors import (
    CassetteError,
    OutcomeUnknownError,
    hide_frames,
)
from ..exchange.bodies import MAX_UNPACKED_BYTES, missing_body, unpack
from ..exchange.operations import below
from ..exchange.values import (
    NUMBER,
    READING,
    Interaction,
    RecordedResponse,
    header,
    normalize_headers,
)
from ..http import as_response, httpx, recorded_request, recorded_response
from ..readings.reading import RawValues, Reading, Source, raw_values
from . import Transport

_About = tuple[float | None, Source, str | None, int | None]
"""Of a `Reading`: seconds, source, cassette and number there."""


ATTEMPT: Final = "directmail_lab.attempt"
"""Where a request carries how many responses of the call that is under way were recorded."""


SEEN: Final = "directmail_lab.seen"
"""Where a request carries how many responses the call that is under way has had."""


_MOST_KEPT_BYTES: Final = 64 * 1024**2
"""How much is kept of a body that may yet be cut short; of a larger one nothing is."""


_USUAL_REASONS: Final = frozenset({"", *(status.phrase for status in HTTPStatus)})


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes the `Reading` of each response, and adds both to a recording and to the response.

    ``prefix`` is the base address's path prefix: a reading's path is below it, and passed through
    ``redacted``.
    """

    on_reading: Callable[[Reading], None]
    prefix: str = ""
    redacted: Callable[[str], str] = str

    def __call__(
        self,
        recording: SessionRecording,
        request: httpx.Request,
        response: httpx.Response,
        *,
        at: float,
        about: _About,
        body: bytes | None = None,
        path: str | None = None,
    ) -> httpx.Response:
        """Return the response. ``body`` is None if it was not read yet; ``path`` is redacted."""
        _hide_key(response, self.redacted)
        raw = response.headers.raw
        path = path or self.redacted(below(request.url.raw_path.decode("ascii"), self.prefix))
        request.extensions[SEEN] = attempt = request.extensions.get(SEEN, 0) + 1
        # A service may put anything in a header, and a reading is shown and pickled as it is. A
        # shorter text holds no key that is searched for.
        values = RawValues(
            *[v and (self.redacted(v) if len(v) >= 8 else v) for v in raw_values(raw)]
        )
        status = response.status_code
        reading = Reading(at, request.method, path, status, values, *about, attempt)
        sent = request.content if hasattr(request, "_content") else b""
        exchange = RawInteraction(
            request.url, request.headers.raw, sent, raw, response.reason_phrase, body
        )
        response.extensions[READING] = reading
        number = recording.add(reading, exchange)
        if body is None:
            response.extensions[NUMBER] = recording, number
        self.on_reading(reading)
        return response


def _hide_key(response: httpx.Response, redacted: Callable[[str], str]) -> None:
    """Take the key out of what httpx shows, and out of its cookies; and a terminal's controls."""
    if (reason := response.reason_phrase) not in _USUAL_REASONS:
        shown = CONTROLS.sub(" ", redacted(reason))
        response.extensions["reason_phrase"] = shown.encode("ascii", "replace")
    if "set-cookie" in response.headers:
        cookies = response.headers.get_list("set-cookie")
        if redacted("\n".join(cookies)) != "\n".join(cookies):
            del response.headers["set-cookie"]


@dataclass(eq=False, repr=False)
class ObservingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends a request once, keeps the response, and writes it to the ``cassette`` if there is one.

    ``clock`` returns seconds since the Unix epoch; latencies are differences of ``timer``, also in
    seconds.
    """

    inner: Transport
    observe: Observer
    recording: SessionRecording
    cassette: Cassette | None = None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.perf_counter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        response = self.inner.handle_request(request)
        response.stream = stream = _Watched(self, request, response, started)
        if self.cassette is not None:
            # No local holds the body: a traceback with locals would print what it echoes.
            try:
                limit = _TimeLimit(request, response, self.timer)
                with limit:
                    response.stream = httpx.ByteStream(b"".join(map(limit.check, stream)))
            finally:
                stream.close()
        return self._received(request, response, started)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        response = await self.inner.handle_async_request(request)
        response.stream = stream = _Watched(self, request, response, started)
        if self.cassette is not None:
            try:
                limit = _TimeLimit(request, response, self.timer)
                with limit:
                    parts = [limit.check(part) async for part in stream]
                    response.stream = httpx.ByteStream(b"".join(parts))
            finally:
                await stream.aclose()
        return self._received(request, response, started)

    def cut_short(
        self, request: httpx.Request, response: httpx.Response, started: float, body: bytes
    ) -> None:
        """Keep what came of a response whose connection broke; no cassette gets it."""
        extensions = response.extensions
        if NUMBER not in extensions:  # it would have been observed once its body was recorded
            self._received(request, response, started, is_cut_short=True)
        recording, number = extensions[NUMBER]
        with suppress(ValueError):
            body = unpack(body, response.headers.get("content-encoding", ""))
        extensions[READING] = recording.cut_short(number, body)

    def _received(
        self,
        request: httpx.Request,
        response: httpx.Response,
        started: float,
        *,
        is_cut_short: bool = False,
    ) -> httpx.Response:
        elapsed_s, at = round(self.timer() - started, 6), self.clock()
        if self.cassette is None or is_cut_short:
            about: _About = elapsed_s, "live", None, None
            return self.observe(self.recording, request, response, at=at, about=about)
        recorded, response = _as_recorded(request, response)
        about = elapsed_s, "live", None, None
        try:
            if written := self._record(request, recorded, at, elapsed_s):
                about = elapsed_s, "recorded", self.cassette.name, written.number
        finally:  # a response that was not recorded is in the session's recording
            kept = self.recording, request, response
            response = self.observe(*kept, at=at, about=about, body=recorded.body)
        return response

    @hide_frames
    def _record(
        self, request: httpx.Request, response: RecordedResponse, at: float, elapsed_s: float
    ) -> Recorded | None:
        """Record a response before the caller has the whole of it: nothing seen is ever lost."""
        assert self.cassette is not None
        attempt = request.extensions.get(ATTEMPT, 0) + 1
        recorded_at = datetime.fromtimestamp(at, UTC)
        try:
            recorded = self.cassette.record(
                Interaction(recorded_request(request), response, recorded_at, elapsed_s, attempt)
            )
        except CassetteError as error:
            error.add_note(
                f"The service had answered {response.status} to the {request.method}: "
                "the request was carried out, and only its recording failed. interactions() has "
                "the response."
            )
            raise
        if recorded is not None:  # what is left out is no attempt of the recording
            request.extensions[ATTEMPT] = attempt
        return recorded


class _Watched(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a live response, which tells the transport that kept the response if it breaks.

    That is, if the connection fails, or if the caller is interrupted as it reads.
    """

    def __init__(
        self,
        kept_by: ObservingTransport,
        request: httpx.Request,
        response: httpx.Response,
        started: float,
    ) -> None:
        self._stream: Any = response.stream
        self._cut_short: Callable[[bytes], None] = partial(
            kept_by.cut_short, request, response, started
        )
        self._parts: list[bytes] = []
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from map(self._kept, self._stream)
        except BaseException as error:
            self._tell(error)
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield self._kept(part)
        except BaseException as error:
            part = b""  # no traceback shows what it echoes
            self._tell(error)
            raise

    def _kept(self, part: bytes) -> bytes:
        self._size += len(part)
        self._parts.append(part)
        if self._size > _MOST_KEPT_BYTES:
            self._parts.clear()
        return part

    def _tell(self, error: BaseException) -> None:
        is_broken = isinstance(error, httpx.TransportError | OutcomeUnknownError)
        is_interrupted = not isinstance(error, Exception | GeneratorExit)
        if is_broken or is_interrupted:
            self._cut_short(b"".join(self._parts))

    def close(self) -> None:
        self._release().close()

    async def aclose(self) -> None:
        await self._release().aclose()

    def _release(self) -> Any:
        """Forget the transports: a response that is held must not hold a dropped session's key."""
        stream, self._stream = self._stream, httpx.ByteStream(b"")
        self._cut_short = lambda _: None
        self._parts.clear()
        return stream


class _TimeLimit:
    """Ends the reading of a stream that is recorded and does not end: its caller has nothing yet.

    As a context manager it says why, if reading takes too long. A body with a ``Content-Length``
    has an end, and no limit but the one for each of its parts.
    """

    def __init__(
        self, request: httpx.Request, response: httpx.Response, timer: Callable[[], float]
    ) -> None:
        self._timeout_s: float | None = request.extensions.get("timeout", {}).get("read")
        self._timer, self._end = timer, math.inf
        if self._timeout_s is not None and "content-length" not in response.headers:
            self._end = timer() + self._timeout_s

    def check(self, part: bytes) -> bytes:
        """Return a part of the body if it came in time."""
        if self._end < math.inf and self._timer() > self._end:
            raise httpx.ReadTimeout("")
        return part

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, httpx.ReadTimeout) and self._timeout_s is not None:
            error.args = (
                f"The response did not end within {self._timeout_s:g} s, the client's timeout. "
                "While a session records, it reads a stream to its end before its caller gets it. "
                "Request a stream that ends, or give it more time.",
            )


def _as_recorded(
    request: httpx.Request, response: httpx.Response
) -> tuple[RecordedResponse, httpx.Response]:
    """Return a response as it is recorded, and as the caller gets it.

    If it was compressed, both are what a replay will give: the decoded body, with headers that fit
    it. A body that is too large, or cannot be decoded, is the caller's alone.
    """
    recorded = recorded_response(response, b"".join(cast("httpx.ByteStream", response.stream)))
    body, coding = recorded.body, header(recorded.headers, "content-encoding")
    try:
        plain = unpack(body, coding) if coding else body
        # What is not compressed as its header says is an error, which httpx tells the caller.
        if len(plain) > MAX_UNPACKED_BYTES or (coding and body and plain is body):
            raise ValueError
    except ValueError:
        placeholder = replace(recorded, body=missing_body(len(body)))
        return normalize_headers(placeholder, method=request.method), response
    if not coding:
        return recorded, response
    recorded = normalize_headers(replace(recorded, body=plain), method=request.method)
    return recorded, as_response(recorded)
