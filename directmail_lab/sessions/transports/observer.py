"""`Observer`: makes the reading of each response."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ...cassettes import SessionRecording
from ...display import printable_line
from ...exchange.httpx_values import httpx
from ...exchange.operations import below
from ...exchange.values import Interaction
from ...readings.reading import Reading, reading_of
from ...redaction import Redactor
from .extensions import EXTENSION, Received, call_of

_log = logging.getLogger("directmail_lab")

_USUAL_REASONS = frozenset({"", *(status.phrase for status in HTTPStatus)})


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes the `Reading` of each response, and adds both to a recording and to the response.

    Attributes
    ----------
    prefix
        The path of the service address. A reading's path is relative to it.
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
        recording: SessionRecording,
        request: httpx.Request,
        response: httpx.Response,
        kept: Interaction,
        *,
        is_read: bool = True,
        is_told: bool = True,
        **about: Any,
    ) -> Received:
        """Add a response to a recording, which keeps it as ``kept``, and return its `Received`.

        For a body that was not read yet, see `SessionRecording.add_body`. ``about`` are other
        fields of the reading. Without ``is_told``, the listeners wait for `tell`.
        """
        self.hide_reason(response)
        if "set-cookie" in response.headers:
            cookies = "\n".join(response.headers.get_list("set-cookie"))
            if self.redactor.text(cookies) != cookies:
                del response.headers["set-cookie"]
        call = call_of(request)
        call.attempt = kept.attempt
        place = "" if call.is_ours else recording.elsewhere(kept.request.uri)
        path = below(request.url.raw_path.decode("ascii"), self.prefix)
        reading = reading_of(kept, path, elsewhere=place)._replace(**{"source": "live", **about})
        call.reading = reading
        call.number = recording.add(reading, kept, self.redactor.texts, is_read=is_read)
        received = Received(recording, call.number)
        response.extensions[EXTENSION] = received
        if is_told:
            self.tell(received)
        return received

    def tell(self, received: Received) -> None:
        """Call the listeners with the reading of a response."""
        for listener in list(self.listeners.values()):
            try:
                reading = received.reading
                if reading is not None:
                    listener(reading)
            except Exception:  # a callback must not cost the caller a good response
                _log.exception("An on_reading callback failed")

    def hide_reason(self, response: httpx.Response) -> None:
        """Remove the key and control characters from an unusual reason phrase."""
        if response.reason_phrase in _USUAL_REASONS:
            return
        shown = printable_line(self.redactor.text(response.reason_phrase))
        response.extensions["reason_phrase"] = shown.encode("ascii", "replace")
