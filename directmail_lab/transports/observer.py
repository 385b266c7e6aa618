"""`Observer`: makes the reading of each response."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from ..cassettes import Cassette, MemoryRecording, Played, RawInteraction
from ..display import CONTROLS
from ..exchange.operations import below
from ..exchange.values import NoResponse
from ..http import body_of, httpx
from ..readings.reading import Reading, ReadingSource, raw_values
from ..redaction import Redactor
from .extensions import EXTENSION, Call, Received, call_of

_log: Final = logging.getLogger(__name__)

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
        call.state.attempt += 1
        path = below(request.url.raw_path.decode("ascii"), self.prefix)
        reading = Reading(
            *(at, request.method, path, response.status_code, raw_values(raw), elapsed_s),
            *(source, cassette, cassette_number, call.state.attempt),
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
        _hide_key(response, self.redactor.text, keeps_cookies=played.is_original)
        call = call_of(request)
        call.state.attempt += 1
        number = recording.add_played(cassette, played, attempt=call.state.attempt)
        self._call_listeners(call, response, Received(recording, number))

    def _call_listeners(self, call: Call, response: httpx.Response, received: Received) -> None:
        call.state.number = received.number
        response.extensions[EXTENSION] = received
        for listener in list(self.listeners.values()):
            try:
                if reading := received.reading:
                    listener(reading)
            except Exception:  # a callback must not cost the caller a good response
                _log.exception("An on_reading callback failed")


def _hide_key(
    response: httpx.Response, redacted: Callable[[str], str], *, keeps_cookies: bool = False
) -> None:
    """Remove the key from the reason phrase and the cookies, and control characters from both.

    The caller of a replay may need the cookies that another program recorded.
    """
    if (reason := response.reason_phrase) not in _USUAL_REASONS:
        shown = CONTROLS.sub(" ", redacted(reason))
        response.extensions["reason_phrase"] = shown.encode("ascii", "replace")
    if "set-cookie" in response.headers and not keeps_cookies:
        cookies = response.headers.get_list("set-cookie")
        if redacted("\n".join(cookies)) != "\n".join(cookies):
            del response.headers["set-cookie"]
