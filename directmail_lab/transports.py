"""The transports that a request passes, from the client to the network.

::

    SessionTransport      the session's mode replays a response, or passes it on to
    PacingTransport       waits for the allowance, repeats failed reads       (pacing/)
    ObservingTransport    keeps every response; writes it to a cassette
    NetworkTransport      refuses unsafe requests; adds the key; sends        (network.py)

In a replay there is nothing below the first. Clients of other libraries (clients/) leave pacing
out: they wait and repeat by themselves. Each class has both ``handle_request`` and
``handle_async_request``, so one stack serves both clients of a session.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, Protocol, cast

from .bodies import MAX_UNPACKED_BYTES, MissingBody, unpack
from .cassettes import Cassette, SessionRecording
from .cassettes.recording import RawInteraction
from .display import CONTROLS
from .errors import (
    AddressError,
    CassetteError,
    NotConnectedError,
    OutcomeUnknownError,
    hide_frames,
)
from .http import SENDER, SENT, as_response, httpx, recorded_request, recorded_response
from .interaction import (
    NUMBER,
    READING,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    below,
    header,
    normalize_headers,
    path_below,
)
from .readings.reading import RawValues, Reading, Source, raw_values

ModeName = Literal["live", "record", "replay"]
_About = tuple[float | None, Source, str | None, int | None]
"""Of a `Reading`: seconds, source, cassette and number there."""

_ATTEMPT: Final = "directmail_lab.attempt"
"""Where a request carries how many responses of the call that is under way were recorded."""

_SEEN: Final = "directmail_lab.seen"
"""Where a request carries how many responses the call that is under way has had."""

_MOST_KEPT_BYTES: Final = 64 * 1024**2
"""How much is kept of a body that may yet be cut short; of a larger one nothing is."""

_USUAL_REASONS: Final = frozenset({"", *(status.phrase for status in HTTPStatus)})

_LONGEST_PAUSE_S: Final = 30.0
"""A replay in recorded time waits no longer for one response, whatever its cassette says."""


class Transport(Protocol):
    """What each layer needs of the one below it: httpx's two methods."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...


class RefusingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Refuses all requests: in a replay, without a key, and after the session is closed."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def handle_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        raise NotConnectedError(
            f"{self._reason} Sign in with login(), connect(base_url=…, api_key=…), "
            "or replay(…) a cassette."
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


@dataclass(frozen=True, slots=True)
class Mode:
    """How a session responds to a request.

    Attributes
    ----------
    name
        The value of `Session.mode`.
    inner
        The transport for a request that the cassette has no response to.
    unpaced
        The same for a client that waits and repeats by itself.
    recording
        What keeps the responses.
    cassette
        The cassette that replays or records; None if the session is live.
    latency_factor
        How much of the recorded latencies a replay waits: 0 none, 1 as recorded, 2 twice as long.
    """

    name: ModeName
    inner: Transport
    unpaced: Transport
    recording: SessionRecording
    cassette: Cassette | None = None
    latency_factor: float = 0.0

    def __str__(self) -> str:
        return self.name if self.cassette is None else f"{self.name} {self.cassette.name!r}"

    def pause(self) -> None:
        """Close the cassette: write its end line, and release its lock."""
        if self.cassette is not None:
            self.cassette.close()

    def resume(self) -> None:
        """Open the cassette again if it was closed."""
        if self.cassette is not None:
            self.cassette.resume()


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
        request.extensions[_SEEN] = attempt = request.extensions.get(_SEEN, 0) + 1
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


class SessionTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Responds as the session's ``mode`` says, which `change` and `enter` replace."""

    def __init__(self, mode: Mode, observe: Observer) -> None:
        self.mode = mode
        self._observe = observe
        self._lock = threading.RLock()

    def change(self, open_mode: Callable[[], Mode]) -> tuple[Mode, Mode]:
        """Enter the mode that ``open_mode`` returns; return the previous mode and the new one."""
        with self._lock:
            previous = self.mode
            try:
                # The cassette that is opened next may be the same one.
                previous.pause()
                mode = open_mode()
            except BaseException:
                previous.resume()
                raise
            self.enter(mode)
            return previous, mode

    def enter(self, mode: Mode) -> None:
        """Replace the mode, whose cassette is closed; the new mode's one goes on."""
        with self._lock:
            previous = self.mode
            try:
                if previous.cassette is not mode.cassette:
                    previous.pause()
            finally:  # even if a full disk keeps the cassette from being closed
                mode.resume()
                self.mode = mode

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        mode = self.mode
        return self.replay(request, mode) or mode.inner.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        mode = self.mode
        response = await self.replay_async(request, mode)
        return response or await mode.inner.handle_async_request(request)

    def replay(self, request: httpx.Request, mode: Mode) -> httpx.Response | None:
        """Return the recorded response to a request, or None if it is to be sent."""
        if mode.cassette is not None:
            request.read()
        if not (played := _recorded_for(request, mode)):
            return None
        if mode.latency_factor:
            time.sleep(_pause_s(mode, played[-1][1]))
        return self._played(request, played, mode)

    async def replay_async(self, request: httpx.Request, mode: Mode) -> httpx.Response | None:
        """Return the same as `replay`, without blocking."""
        if mode.cassette is not None:
            await request.aread()
        if not (played := _recorded_for(request, mode)):
            return None
        if mode.latency_factor:
            await asyncio.sleep(_pause_s(mode, played[-1][1]))
        return self._played(request, played, mode)

    def _played(
        self, request: httpx.Request, played: list[tuple[int, Interaction]], mode: Mode
    ) -> httpx.Response:
        """Observe each attempt, and return the response to the last one."""
        assert mode.cassette is not None
        for number, recorded in played:
            at = recorded.recorded_at
            response = self._observe(
                mode.recording,
                request,
                as_response(recorded.response),
                body=recorded.response.body,
                # The time of the recording: the chart of a replay is that of the recording.
                at=math.nan if at is None else at.timestamp(),
                about=(recorded.elapsed_s, "replayed", mode.cassette.name, number),
                path=path_below(recorded.request.uri, self._observe.prefix),
            )
        return response


def _recorded_for(request: httpx.Request, mode: Mode) -> list[tuple[int, Interaction]]:
    """Return what the cassette plays for a request, with numbers; nothing if it is to be sent."""
    if request.url.userinfo and not request.extensions.get(SENDER):
        raise AddressError(
            "The address holds a user name or password before its host, where httpx would print "
            "it.",
            "Leave it out: the session adds the key by itself.",
        )
    request.extensions[_ATTEMPT] = request.extensions[_SEEN] = 0
    if mode.cassette is None:
        return []
    if mode.cassette.looks_inside(request.method):
        return mode.cassette.play(recorded_request(request))
    return mode.cassette.play(RecordedRequest(request.method, str(request.url)))


def _pause_s(mode: Mode, played: Interaction) -> float:
    return min(mode.latency_factor * (played.elapsed_s or 0.0), _LONGEST_PAUSE_S)


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
        try:
            response = self.inner.handle_request(request)
        except KeyboardInterrupt:
            self._aborted(request, started)
            raise
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
        try:
            response = await self.inner.handle_async_request(request)
        except asyncio.CancelledError:
            self._aborted(request, started)
            raise
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

    def _aborted(self, request: httpx.Request, started: float) -> None:
        """Keep that a request was sent, and that its caller did not wait for the response."""
        if SENT in request.extensions:
            self.cut_short(request, httpx.Response(0), started, b"", is_aborted=True)

    def cut_short(
        self,
        request: httpx.Request,
        response: httpx.Response,
        started: float,
        body: bytes,
        *,
        is_aborted: bool,
    ) -> None:
        """Keep what came of a response whose connection broke; no cassette gets it."""
        extensions = response.extensions
        if NUMBER not in extensions:  # it would have been observed once its body was recorded
            self._received(request, response, started, is_cut_short=True)
        recording, number = extensions[NUMBER]
        with suppress(ValueError):
            body = unpack(body, response.headers.get("content-encoding", ""))
        extensions[READING] = recording.cut_short(number, body, is_aborted=is_aborted)

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
        number: int | None = 0
        try:
            number = self._record(request, recorded, at, elapsed_s)
        finally:  # a response that was not recorded is in the session's recording
            about = elapsed_s, "live", None, None
            if number != 0:
                about = elapsed_s, "recorded", self.cassette.name, number
            kept = self.recording, request, response
            response = self.observe(*kept, at=at, about=about, body=recorded.body)
        return response

    @hide_frames
    def _record(
        self, request: httpx.Request, response: RecordedResponse, at: float, elapsed_s: float
    ) -> int | None:
        """Record a response before the caller has the whole of it: nothing seen is ever lost.

        Returns what `Cassette.record` does.
        """
        assert self.cassette is not None
        attempt = request.extensions.get(_ATTEMPT, 0) + 1
        recorded_at = datetime.fromtimestamp(at, UTC)
        try:
            number = self.cassette.record(
                Interaction(recorded_request(request), response, recorded_at, elapsed_s, attempt)
            )
        except CassetteError as error:
            error.add_note(
                f"The service had answered {response.status} to the {request.method}: "
                "the request was carried out, and only its recording failed. interactions() has "
                "the response."
            )
            raise
        if number != 0:  # what is left out is no attempt of the recording
            request.extensions[_ATTEMPT] = attempt
        return number


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
        self._cut_short = partial(kept_by.cut_short, request, response, started)
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
            self._cut_short(b"".join(self._parts), is_aborted=is_interrupted)

    def close(self) -> None:
        self._parts.clear()
        self._stream.close()

    async def aclose(self) -> None:
        self._parts.clear()
        await self._stream.aclose()


class _TimeLimit:
    """Ends the reading of a stream that is recorded and does not end: its caller has nothing yet.

    As a context manager it says why, if reading takes too long. A body with a ``Content-Length``
    has an end, and no limit but the one for each of its parts.
    """

    def __init__(
        self, request: httpx.Request, response: httpx.Response, timer: Callable[[], float]
    ) -> None:
        self._timeout_s = request.extensions.get("timeout", {}).get("read")
        self._has_end = "content-length" in response.headers
        self._timer, self._started = timer, timer()

    def check(self, part: bytes) -> bytes:
        """Return a part of the body if it came in time."""
        is_limited = self._timeout_s is not None and not self._has_end
        if is_limited and self._timer() - self._started > self._timeout_s:
            raise httpx.ReadTimeout("")
        return part

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, httpx.ReadTimeout):
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
        missing = MissingBody(b"<not recorded: %d bytes>" % len(body))
        placeholder = replace(recorded, body=missing)
        return normalize_headers(placeholder, method=request.method), response
    if not coding:
        return recorded, response
    recorded = normalize_headers(replace(recorded, body=plain), method=request.method)
    return recorded, as_response(recorded)
