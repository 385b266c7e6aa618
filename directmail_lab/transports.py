"""The transports that a request passes, from the client to the network.

::

    SessionTransport      the session's mode replays a response, or passes it on to
    PacingTransport       waits for the allowance, repeats failed reads       (pacing/)
    ObservingTransport    makes a reading of every response; writes it to a recording
    NetworkTransport      refuses unsafe requests; adds the key; sends        (network.py)

In a replay there is nothing below the first. Each class has both ``handle_request`` and
``handle_async_request``, so one stack serves both clients of a session.
"""

from __future__ import annotations

import asyncio
import io
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, closing
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, cast

from .cassettes import Cassette
from .errors import CassetteError, InsecureAddressError, NotConnectedError, without_traceback
from .http import as_response, httpx, recorded_request, recorded_response
from .interaction import (
    READING,
    Interaction,
    RecordedResponse,
    normalize_headers,
    path_below,
)
from .readings.reading import Reading, Source, raw_values

ModeName = Literal["live", "record", "replay"]

_RECORDED_REQUEST: Final = "directmail_lab.recorded_request"
"""The key in a request's extensions for its `RecordedRequest`, in a session with a cassette."""

STREAMED: Final = "directmail_lab.streamed"
"""In a request's extensions: pass a large body on while it is recorded (async requests alone). In
the response's: its body comes in parts, and is recorded when it ends."""

_SMALL_BODY_BYTES: Final = 65_536
"""A body of a known length up to this is recorded before any of it is passed on."""

_ABOUT_WHOLE_BODIES: Final = frozenset((b"content-length", b"content-encoding"))

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
    cassette
        The cassette that replays or records; None if the session is live.
    latency_factor
        How much of the recorded latencies a replay waits: 0 none, 1 as recorded, 2 twice as long.
    """

    name: ModeName
    inner: Transport
    cassette: Cassette | None = None
    latency_factor: float = 0.0

    def __str__(self) -> str:
        return self.name if self.cassette is None else f"{self.name} {self.cassette.name!r}"

    def pause(self) -> None:
        """Close the recording: write its end line, and release its lock."""
        if self.cassette is not None:
            self.cassette.close()

    def resume(self) -> None:
        """Open the recording again if it was closed."""
        if self.cassette is not None:
            self.cassette.resume()


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes the `Reading` of each response, and adds it to the response's extensions.

    ``prefix`` is the base address's path prefix: a reading's path is below it, and passed through
    ``redacted``. ``keep`` is called first, with the reading, the request, the response, and the
    body if a cassette has it.
    """

    on_reading: Callable[[Reading], None]
    prefix: str = ""
    redacted: Callable[[str], str] = str
    keep: Callable[[Reading, httpx.Request, httpx.Response, bytes | None], None] | None = None

    def __call__(
        self,
        request: httpx.Request,
        response: httpx.Response,
        *,
        at: float,
        elapsed_s: float | None,
        source: Source = "live",
        cassette: str | None = None,
        body: bytes | None = None,
    ) -> httpx.Response:
        """Return the response; for the parameters see `Reading` and ``keep``."""
        path = self.redacted(path_below(str(request.url), self.prefix))
        reading = response.extensions[READING] = Reading(
            at, request.method, path, response.status_code, raw_values(response.headers.raw),
            elapsed_s, source, cassette,
        )  # fmt: skip
        if self.keep is not None:
            self.keep(reading, request, response, body)
        self.on_reading(reading)
        return response


class SessionTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Responds as the session's ``mode`` says, which `change` and `enter` replace."""

    def __init__(self, mode: Mode, observe: Observer, base_url: str) -> None:
        self.mode = mode
        self._observe = observe
        self._base_url = base_url
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
        """Replace the mode, whose recording ends; the new mode's recording goes on."""
        with self._lock:
            previous = self.mode
            try:
                if previous.cassette is not mode.cassette:
                    previous.pause()
            finally:  # even if a full disk keeps the recording from being closed
                mode.resume()
                self.mode = mode

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        mode = self.mode
        _refuse_user_info(request)
        if mode.cassette is not None:
            request.read()
            if played := self._play(request, mode.cassette):
                if mode.latency_factor:
                    time.sleep(_pause_s(mode, played))
                return self._played(request, played, mode.cassette)
        return mode.inner.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        mode = self.mode
        _refuse_user_info(request)
        if mode.cassette is not None:
            await request.aread()
            if played := self._play(request, mode.cassette):
                if mode.latency_factor:
                    await asyncio.sleep(_pause_s(mode, played))
                return self._played(request, played, mode.cassette)
        return await mode.inner.handle_async_request(request)

    def _play(self, request: httpx.Request, cassette: Cassette) -> Interaction | None:
        recorded = request.extensions[_RECORDED_REQUEST] = recorded_request(request)
        return cassette.play(recorded, base_url=self._base_url)

    def _played(
        self, request: httpx.Request, played: Interaction, cassette: Cassette
    ) -> httpx.Response:
        recorded_at = played.recorded_at
        return self._observe(
            request,
            as_response(played.response),
            body=played.response.body,
            # The reading has the time of the recording, so a replay's chart equals the recording's.
            at=math.nan if recorded_at is None else recorded_at.timestamp(),
            elapsed_s=played.elapsed_s,
            source="replayed",
            cassette=cassette.name,
        )


def _refuse_user_info(request: httpx.Request) -> None:
    if request.url.userinfo:
        raise InsecureAddressError(
            "The address holds a user name or password before its host, where httpx would print "
            "it. Leave it out: the session adds the key by itself."
        )


def _pause_s(mode: Mode, played: Interaction) -> float:
    return min(mode.latency_factor * (played.elapsed_s or 0.0), _LONGEST_PAUSE_S)


@dataclass(eq=False, repr=False)
class ObservingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends a request once, observes the response, and records it if there is a ``cassette``.

    ``clock`` returns seconds since the Unix epoch; latencies are differences of ``timer``, also in
    seconds.
    """

    inner: Transport
    observe: Observer
    _: KW_ONLY
    cassette: Cassette | None = None
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.perf_counter

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        response = self.inner.handle_request(request)
        if self.cassette is not None:
            # No local holds the body: a traceback with locals would print what it echoes.
            with closing(cast("httpx.SyncByteStream", response.stream)) as stream:
                response.stream = httpx.ByteStream(b"".join(stream))
        return self._received(request, response, started)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = self.timer()
        response = await self.inner.handle_async_request(request)
        if self.cassette is not None:
            if STREAMED in request.extensions and _is_streamed(request, response):
                return self._streamed(request, response, started)
            async with aclosing(cast("httpx.AsyncByteStream", response.stream)) as stream:
                response.stream = httpx.ByteStream(b"".join([part async for part in stream]))
        return self._received(request, response, started)

    def _received(
        self, request: httpx.Request, response: httpx.Response, started: float
    ) -> httpx.Response:
        elapsed_s, at = round(self.timer() - started, 6), self.clock()
        if self.cassette is None:
            return self.observe(request, response, at=at, elapsed_s=elapsed_s)
        recorded, response = _as_recorded(request, response)
        self._record(request, recorded, at, elapsed_s)
        return self.observe(
            request, response, body=recorded.body, at=at, elapsed_s=elapsed_s, source="recorded",
            cassette=self.cassette.name,
        )  # fmt: skip

    def _record(
        self, request: httpx.Request, response: RecordedResponse, at: float, elapsed_s: float
    ) -> None:
        """Record a response before the caller has the whole of it: nothing seen is ever lost."""
        assert self.cassette is not None
        sent = request.extensions[_RECORDED_REQUEST]
        interaction = Interaction(sent, response, datetime.fromtimestamp(at, UTC), elapsed_s)
        try:
            self.cassette.record(interaction)
        except CassetteError as error:
            failure = without_traceback(error)
        else:
            return
        failure.add_note(
            f"The service had answered {response.status} to the {request.method}: "
            "the request was carried out, and only its recording failed."
        )
        raise failure

    def _streamed(
        self, request: httpx.Request, response: httpx.Response, started: float
    ) -> httpx.Response:
        """Return a response whose body is recorded when the caller has read it to its end."""

        def record(body: io.BytesIO) -> None:
            written = recorded_response(response, body.getvalue())
            self._record(request, written, self.clock(), round(self.timer() - started, 6))

        raw = response.headers.raw
        streamed = httpx.Response(
            response.status_code,
            headers=[pair for pair in raw if pair[0].lower() not in _ABOUT_WHOLE_BODIES],
            stream=_RecordedStream(response, record),
            extensions={**response.extensions, STREAMED: True},
        )
        assert self.cassette is not None
        return self.observe(
            request, streamed, at=self.clock(), elapsed_s=round(self.timer() - started, 6),
            source="recorded", cassette=self.cassette.name,
        )  # fmt: skip


class _RecordedStream(httpx.AsyncByteStream):
    """The decoded body of a response: recorded before its end is passed on, if it has one.

    A body that is cut off, or that the caller does not read to its end, is not recorded.
    """

    def __init__(self, response: httpx.Response, record: Callable[[io.BytesIO], None]) -> None:
        self._response = response
        self._record = record

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = io.BytesIO()
        async for part in self._response.aiter_bytes():
            whole.write(part)
            yield part
        self._record(whole)

    async def aclose(self) -> None:
        await self._response.aclose()


def _is_streamed(request: httpx.Request, response: httpx.Response) -> bool:
    """Return whether a response has a body that is large, or whose length is not known."""
    coding = response.headers.get("Content-Encoding", "identity").lower()
    length = response.headers.get("Content-Length", "")
    return (
        request.method != "HEAD"
        and response.is_success
        and response.status_code != 204
        and coding in ("identity", "gzip", "deflate")
        and not (length.isdecimal() and int(length) <= _SMALL_BODY_BYTES)
    )


def _as_recorded(
    request: httpx.Request, response: httpx.Response
) -> tuple[RecordedResponse, httpx.Response]:
    """Return a response as it is recorded, and as the caller gets it.

    If it was compressed, both are what a replay will give: the decoded body, with headers that fit
    it.
    """
    stream = cast("httpx.ByteStream", response.stream)
    if "content-encoding" not in response.headers:
        return recorded_response(response, b"".join(stream)), response
    # A copy is read, so that a response that cannot be decoded stays as it is.
    copy = httpx.Response(response.status_code, headers=response.headers, stream=stream)
    recorded = normalize_headers(recorded_response(response, copy.read()), method=request.method)
    return recorded, as_response(recorded)
