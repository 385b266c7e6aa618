"""The outermost transport: it replays a response or passes the request on, by the mode."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Literal

from ...arguments import argument_error
from ...cassettes import Cassette, Played, SessionRecording
from ...errors import AddressError, NotConnectedError, WriteRefusedError
from ...exchange.httpx_values import (
    httpx,
    httpx_error,
    httpx_response,
    is_write,
    request_value,
    response_value,
)
from ...exchange.values import Interaction, Response
from . import Transport
from .body import Body
from .extensions import EXTENSION, Call, Received, call_of
from .network import lost_response, note_redirect
from .observer import Observer
from .writes import (
    UNGUARDED,
    SentWrite,
    add_response,
    asks_anew,
    guard,
    say_kept,
    sent_when,
)

ModeName = Literal["live", "record", "replay"]
Timing = Literal["instant", "recorded"] | float

_LONGEST_PAUSE_S = 30.0
"""The longest wait for one response in a replay with recorded latencies."""
_LATE_S = 1.0
"""How much longer a replay waits for its caller to cancel a request than the recording did."""


class RefusingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Refuses all requests: in a replay, without a key, and after the session is closed."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def handle_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        raise NotConnectedError(
            self._reason,
            "Sign in with dm.login() or dm.connect(base_url=…, api_key=…), or replay a cassette: "
            "dm.replay(…).",
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
        The transport for requests that the cassette has no response for.
    recording
        The recording that keeps the responses.
    cassette
        The cassette that replays or records; None if the session is live.
    latency_factor
        The factor of the recorded latencies that a replay waits: 0 for no wait, 1 as recorded.
    """

    name: ModeName
    inner: Transport
    recording: SessionRecording
    cassette: Cassette | None = None
    latency_factor: float = 0.0

    def __str__(self) -> str:
        return self.name if self.cassette is None else f"{self.name} {self.cassette.name!r}"

    def hold(self) -> Iterable[float]:
        """Keep a recording locked until `release`: see `Cassette.hold`."""
        if self.name == "record" and self.cassette is not None:
            return self.cassette.hold()
        return ()

    def release(self) -> None:
        """Let others record again."""
        if self.name == "record" and self.cassette is not None:
            self.cassette.release()

    def pause(self) -> None:
        """End the recording to the cassette, which writes its file and releases its lock."""
        if self.cassette is not None:
            self.cassette.close()

    def resume(self) -> None:
        """Go on with a recording that was ended."""
        if self.cassette is not None:
            self.cassette.resume()


class ModeTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Responds as the session's ``mode`` says. `change` and `enter` replace the mode.

    ``on_change`` is called after each change. ``respond`` returns a test's own response to a
    request, or None. A request takes the mode when it begins, and keeps
    it. After a change that failed, no write is sent until one succeeds: a mailing must not go out
    unrecorded because its cassette was in use.
    """

    def __init__(
        self,
        mode: Mode,
        observe: Observer,
        *,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self.mode = mode
        self.may_write = True
        self.respond: Callable[[httpx.Request], httpx.Response | None] | None = None
        self._observe = observe
        self._on_change = on_change
        self._lock = threading.RLock()

    def change(self, open_mode: Callable[[], Mode]) -> tuple[Mode, Mode]:
        """Enter the mode that ``open_mode`` returns. Return the previous mode and the new one."""
        with self._lock:
            previous = self.mode
            try:
                # Close the cassette first: the next mode may open the same one.
                previous.pause()
                mode = open_mode()
            except BaseException:
                self.may_write = False
                previous.resume()
                raise
            self.enter(mode)
            self.may_write = self.may_write or mode.name != "replay"
            return previous, mode

    def enter(self, mode: Mode) -> None:
        """Replace the mode: close its cassette, and continue with the one of the new mode."""
        with self._lock:
            previous = self.mode
            try:
                if previous.cassette is not mode.cassette:
                    previous.pause()
                mode.resume()
            except BaseException:  # the disk is full, for example
                self.may_write = False
                raise
            finally:
                self.mode = mode
                self._on_change()

    def _guard(
        self, request: httpx.Request, mode: Mode
    ) -> AbstractContextManager[SentWrite | httpx.Response | None]:
        """Return the block in which a request is sent: see `writes.guard`."""
        if mode.name == "replay" or not is_write(request):
            return UNGUARDED
        if not self.may_write:
            raise WriteRefusedError(
                f"The {request.method} was not sent, because the last dm.record(), dm.replay(), "
                "dm.live() or dm.connect() failed.",
                "Run dm.record(…) or dm.live(): once it succeeds, writes are sent.",
            )
        return guard(request, mode.recording, mode.cassette)

    def _of_the_test(self, request: httpx.Request) -> httpx.Response | None:
        try:
            return self.respond and self.respond(request)
        except httpx.RequestError as error:
            failure = lost_response(request, error) or error
        raise failure

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.respond is not None:
            request.read()
            given = self._of_the_test(request)
            if given is not None:
                return given
        mode = self.mode
        pauses = mode.hold()
        try:
            for pause_s in pauses:
                time.sleep(pause_s)
            call = call_of(request)
            sending = self._guard(request, mode)
            if sending is not UNGUARDED or mode.cassette is not None:
                request.read()
            played = _played_for(request, call, mode)
            if played:
                if mode.latency_factor:
                    time.sleep(_pause_s(mode, played[-1]))
                return self._played(request, call, played, mode)
            with sending as earlier:
                if earlier is None:
                    return mode.inner.handle_request(request)
            return self._earlier_response(request, earlier, mode)
        finally:
            mode.release()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.respond is not None:
            await request.aread()
            given = self._of_the_test(request)
            if given is not None:
                return given
        mode = self.mode
        pauses = mode.hold()
        try:
            for pause_s in pauses:
                await asyncio.sleep(pause_s)
            call = call_of(request)
            sending = self._guard(request, mode)
            if sending is not UNGUARDED or mode.cassette is not None:
                await request.aread()
            played = _played_for(request, call, mode)
            if played:
                if mode.latency_factor:
                    await asyncio.sleep(_pause_s(mode, played[-1]))
                stored = played[-1].response
                if stored.cut == "aborted" and not stored.status and not is_write(request):
                    # The caller cancelled it, as `asyncio.timeout` does, and waits for that again.
                    await asyncio.sleep(_pause_s(mode, played[-1], 1.0) + _LATE_S)
                return self._played(request, call, played, mode)
            with sending as earlier:
                if earlier is None:
                    return await mode.inner.handle_async_request(request)
            return self._earlier_response(request, earlier, mode)
        finally:
            mode.release()

    def _played(
        self, request: httpx.Request, call: Call, played: list[Played], mode: Mode
    ) -> httpx.Response:
        """Keep each attempt, and return the response to the last one.

        If no response came to it, raise the client's error for that.
        """
        cassette = mode.cassette
        assert cassette is not None
        for each in played:
            call.number = mode.recording.add_played(each)
            received = Received(mode.recording, call.number)
            if self._observe.listeners:
                self._observe.tell(received)
        if cassette.records and is_write(request):
            add_response(request, mode.recording, cassette)
        stored = each.response
        if not stored.status:
            raise _error_of(stored, request)
        response = httpx_response(stored, is_read=call.reads_at_once)
        response.extensions[EXTENSION] = received
        note_redirect(request, response)
        self._observe.hide_reason(response)
        if stored.cut:
            response.stream = _cut_body(request, each, mode)
        return response

    def _earlier_response(
        self, request: httpx.Request, earlier: SentWrite | httpx.Response, mode: Mode
    ) -> httpx.Response:
        """Return the response of an earlier write, with a warning that nothing was sent."""
        if isinstance(earlier, httpx.Response):
            return self._counted(request, earlier, mode)
        interaction = earlier.interaction()
        recording = earlier.recording()
        assert interaction is not None
        assert recording is not None
        response = httpx_response(interaction.response)
        note_redirect(request, response)
        self._observe(
            mode.recording,
            request,
            response,
            replace(interaction, request=request_value(request), recorded_at=earlier.at),
            source="kept",
            cassette=recording.reading(earlier.number).cassette,
        )
        if call_of(request).is_row:
            return response
        when = sent_when(earlier) + (", and failed" if earlier.fails else "")
        say_kept(
            earlier,
            f"Nothing was sent: this {request.method} was sent before, {when}. Its response is "
            "returned; dm.interactions() lists it with the source 'kept'.",
        )
        return response

    def _counted(self, request: httpx.Request, found: httpx.Response, mode: Mode) -> httpx.Response:
        """Return the response that counts as this write's from now on. Nothing is sent.

        Raises
        ------
        CassetteError
            It cannot be recorded, so it does not count.
        """
        now = datetime.now(UTC)
        counted = Interaction(request_value(request), response_value(found), now, attempt=0)
        if mode.cassette is not None:
            mode.cassette.record(counted)
        response = httpx_response(counted.response)
        name = "" if mode.cassette is None else mode.cassette.name
        self._observe(mode.recording, request, response, counted, source="kept", cassette=name)
        add_response(request, mode.recording, mode.cassette)
        return response


def _cut_body(request: httpx.Request, played: Played, mode: Mode) -> Body:
    """Return a recorded body that broke off, or that its reader left: what was read of it."""
    stored = played.response

    def ended(_: Body, error: BaseException | None) -> None:
        if error is not None:  # its reader has left it
            return
        if stored.broke_off:
            raise _error_of(stored, request)
        assert mode.cassette is not None
        mode.cassette.note_end(played)

    return Body(httpx.ByteStream(stored.body), ended)


def _error_of(stored: Response, request: httpx.Request) -> Exception:
    """Return the client's error for a response that broke off."""
    assert stored.cut is not None
    error = httpx_error(stored.cut, stored.error, request)
    return lost_response(request, error) or error


def _played_for(request: httpx.Request, call: Call, mode: Mode) -> list[Played]:
    """Return the responses that the cassette plays for a request; none if it must be sent."""
    if request.url.userinfo and call.send is None:
        raise AddressError(
            "The address contains a user name or password before its host, where httpx would "
            "print it.",
            "Leave it out: the session adds the key by itself.",
        )
    call.attempt = 0
    cassette = mode.cassette
    if cassette is None:
        return []
    if not cassette.replays or (cassette.records and asks_anew(request)):
        return []
    return cassette.play(request_value(request))


def _pause_s(mode: Mode, played: Played, factor: float | None = None) -> float:
    elapsed_s = played.recording.interaction(played.number).elapsed_s or 0.0
    return min((factor or mode.latency_factor) * elapsed_s, _LONGEST_PAUSE_S)


def latency_factor(timing: Timing) -> float:
    """Return the factor for recorded latencies in a replay: 0 does not wait, 1 waits as long."""
    if timing == "instant":
        return 0.0
    if timing == "recorded":
        return 1.0
    if isinstance(timing, Real) and timing >= 0:
        return float(timing)
    raise argument_error(
        'timing must be "instant", "recorded", or a factor of the recorded latencies.'
    )
