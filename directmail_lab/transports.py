"""The transports that a request passes, from the client to the network and back.

Live and recording, outermost first::

    SwitchingTransport    the session's mode decides what is below
    PacingTransport       waits for the allowance, retries reads             (pacing/)
    ObservingTransport    one reading for every response, errors included
    CassetteTransport     while recording: one durable line for every interaction
    NetworkTransport      refuses what must not leave; adds the key; sends   (network.py)

Replaying there is no network to reach: ``Switching(Observing(Cassette))``. Each class answers
``handle_request`` and ``handle_async_request`` from one core, so one stack serves both clients.
`directmail_lab.modes` builds it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from .errors import (
    CassetteError,
    InsecureAddressError,
    NotConnectedError,
    without_traceback,
)
from .http import httpx
from .interaction import (
    READING,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    normalize_headers,
    path_below,
)
from .quota import Reading, read_headers

if TYPE_CHECKING:
    from .cassettes import Cassette


_INTERACTION: Final = "directmail_lab.interaction"
_SOURCE: Final = "directmail_lab.source"

_LONGEST_PAUSE_S: Final = 30.0
"""A replay in recorded time waits no longer for one answer, whatever its cassette says."""


class Transport(Protocol):
    """What each layer asks of the one below it: httpx's two methods."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...


class SwitchingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Passes each request to ``inner``, which the session replaces when its mode changes."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _refuse_user_info(request)
        return self.inner.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _refuse_user_info(request)
        return await self.inner.handle_async_request(request)


def _refuse_user_info(request: httpx.Request) -> None:
    if request.url.userinfo:
        raise InsecureAddressError(
            "The address holds a user name or password before its host, where httpx would print "
            "it. Leave it out: the session adds the key by itself."
        )


class RefusingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Stands where nothing can answer: before a key is given, and after the session is closed."""

    def __init__(self, why: str) -> None:
        self._why = why

    def handle_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        raise NotConnectedError(
            f"{self._why} Sign in with login(), connect(base_url=…, api_key=…), "
            "or replay(…) a cassette."
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


class ObservingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Hands a `Reading` of every response to ``on_reading``, and leaves it on the response.

    ``prefix`` is the base address's path prefix: readings tell the path below it, as ``redacted``
    gives it back. ``clock`` gives seconds since the Unix epoch, and of ``timer``'s seconds only
    differences are used.
    """

    def __init__(
        self,
        inner: Transport,
        on_reading: Callable[[Reading], None],
        *,
        prefix: str = "",
        redacted: Callable[[str], str] = str,
        cassette: str | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._inner = inner
        self._on_reading = on_reading
        self._prefix = prefix
        self._redacted = redacted
        self._cassette = cassette
        self._clock = clock
        self._timer = timer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        sent = self._timer()
        return self._observe(request, self._inner.handle_request(request), sent)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = self._timer()
        return self._observe(request, await self._inner.handle_async_request(request), sent)

    def _observe(
        self, request: httpx.Request, response: httpx.Response, sent: float
    ) -> httpx.Response:
        elapsed_s: float | None = self._timer() - sent
        at = self._clock()
        played: Interaction | None = response.extensions.get(_INTERACTION)
        if played is not None:
            # A replay's chart is the recording's chart: its times, never the times of playing.
            at = math.nan if played.recorded_at is None else played.recorded_at.timestamp()
            elapsed_s = played.elapsed_s
        reading = read_headers(
            response.headers.raw,
            at=at,
            method=request.method,
            path=self._redacted(path_below(request.url.path, self._prefix)),
            status=response.status_code,
            elapsed_s=elapsed_s,
            source=response.extensions.get(_SOURCE, "live"),
            cassette=self._cassette,
        )
        response.extensions[READING] = reading
        self._on_reading(reading)
        return response


class CassetteTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers from a cassette; what it may record it sends on to ``inner`` and records.

    Parameters
    ----------
    inner
        What is below; None in a replay, where nothing is ever sent.
    base_url
        The session's base address: paths are compared below it.
    latency_factor
        How much of the recorded latencies a replay waits: 0 none, 1 as recorded, 2 twice as long.
    """

    def __init__(
        self,
        cassette: Cassette,
        inner: Transport | None = None,
        *,
        base_url: str,
        latency_factor: float = 0.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cassette = cassette
        self._inner = inner
        self._base_url = base_url
        self._latency_factor = latency_factor
        self._clock = clock
        self._timer = timer
        self._sleep = sleep
        self._sleep_async = sleep_async

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = recorded_request(request, request.read())
        played = self._cassette.play(asked, base_url=self._base_url)
        if played is not None:
            if pause_s := self._pause_s(played):
                self._sleep(pause_s)
            return _as_response(played, "replayed")
        assert self._inner is not None  # a cassette that only replays has raised
        sent = self._timer()
        response = self._inner.handle_request(request)
        stream = response.stream
        assert isinstance(stream, httpx.SyncByteStream)
        try:
            # No local holds the body: a traceback with locals would print what it echoes.
            response.stream = httpx.ByteStream(b"".join(stream))
        finally:
            stream.close()
        return self._record(asked, response, sent)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = recorded_request(request, await request.aread())
        played = self._cassette.play(asked, base_url=self._base_url)
        if played is not None:
            if pause_s := self._pause_s(played):
                await self._sleep_async(pause_s)
            return _as_response(played, "replayed")
        assert self._inner is not None
        sent = self._timer()
        response = await self._inner.handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        try:
            response.stream = httpx.ByteStream(b"".join([part async for part in stream]))
        finally:
            await stream.aclose()
        return self._record(asked, response, sent)

    def _pause_s(self, played: Interaction) -> float:
        return min(self._latency_factor * (played.elapsed_s or 0.0), _LONGEST_PAUSE_S)

    def _record(
        self, asked: RecordedRequest, response: httpx.Response, sent: float
    ) -> httpx.Response:
        """Write the interaction down before the caller has it: what was seen is never lost."""
        encoded = "content-encoding" in response.headers
        interaction = Interaction(
            request=asked,
            response=_decoded_response(response, asked.method, encoded=encoded),
            recorded_at=datetime.fromtimestamp(self._clock(), UTC),
            elapsed_s=round(self._timer() - sent, 6),
        )
        try:
            self._cassette.record(interaction)
        except CassetteError as error:
            failure = without_traceback(error)
        else:
            if encoded:
                # The caller has what a replay will give: the body decoded, headers true to that.
                return _as_response(interaction, "recorded")
            response.extensions[_SOURCE] = "recorded"
            return response
        failure.add_note(
            f"The service had answered {response.status_code} to the {asked.method}: "
            "the request was carried out, and only its recording failed."
        )
        raise failure


def _decoded_response(response: httpx.Response, method: str, *, encoded: bool) -> RecordedResponse:
    """Return a response as a cassette keeps it: its body decoded, its headers true to that."""
    assert isinstance(response.stream, httpx.ByteStream)
    if not encoded:
        return recorded_response(response, b"".join(response.stream))
    # A copy is read, so that the stream of the response itself stays as it is.
    unread = httpx.Response(response.status_code, headers=response.headers, stream=response.stream)
    return normalize_headers(recorded_response(response, unread.read()), method=method)


def recorded_request(request: httpx.Request, body: bytes = b"") -> RecordedRequest:
    """Return a request as a value; no body is an empty one, as vcrpy records httpx."""
    headers = tuple(request.headers.multi_items())
    return RecordedRequest(request.method, str(request.url), headers, body)


def recorded_response(response: httpx.Response, body: bytes | None = None) -> RecordedResponse:
    """Return a response as a value, by default with the body that was read."""
    return RecordedResponse(
        status=response.status_code,
        reason=response.reason_phrase,
        headers=tuple(response.headers.multi_items()),
        body=response.content if body is None else body,
    )


def _as_response(interaction: Interaction, source: str) -> httpx.Response:
    stored = interaction.response
    # An empty reason phrase (HTTP/2 has none) is left to httpx, which knows one for each status.
    reason = {"reason_phrase": stored.reason.encode("ascii", "replace")} if stored.reason else {}
    return httpx.Response(
        stored.status,
        # As bytes: httpx itself takes text for ASCII, and a recorded header may be more.
        headers=[(name.encode(), value.encode()) for name, value in stored.headers],
        # A stream, as from the network: the client reads it, and so measures and closes it.
        stream=httpx.ByteStream(stored.body),
        extensions={
            "http_version": b"HTTP/1.1",
            **reason,
            _SOURCE: source,
            _INTERACTION: interaction,
        },
    )
