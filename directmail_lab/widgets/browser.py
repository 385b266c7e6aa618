"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..cassettes import cassettes_by_name, find_cassette
from ..current import current_session, session
from ..errors import CassetteError
from ..interaction import Interaction, RecordedRequest, RecordedResponse
from ..redaction import Redactor
from . import page
from .widget import Throttle, Widget, describe_source, read_page

if TYPE_CHECKING:
    from ..readings.reading import Reading
    from ..sessions import Session

_UPDATE_S: Final = 0.2


def browse(cassette: str | Path | None = None) -> BrowserWidget:
    """Show the interactions of a cassette, or those of the current session as they happen.

    There is a list to filter, sort and compare, and the details of each interaction. Keys: the
    arrows move, Enter opens, ``/`` goes to the filter, Escape goes back.

    Parameters
    ----------
    cassette
        A cassette's name or `Path`, or the path of a ``.har`` file. By default the last requests
        of the current session, without bodies unless it records or replays.

    Raises
    ------
    NotConnectedError
        No cassette is named and no session is open.
    NotRecordedError
        There is no such cassette.
    CassetteError
        The cassette or the file cannot be read.
    """
    if cassette is None:
        return BrowserWidget(SessionRecording(session()))
    path = Path(cassette)
    is_har = path.suffix.lower() == ".har"
    return BrowserWidget(page.open_recording(path if is_har else find_cassette(cassette)))


class SessionRecording(page.Recording):
    """A session's interactions so far, with the key redacted. Their number grows."""

    def __init__(self, session: Session) -> None:
        super().__init__(describe_source(session), (), session.base_url)
        self.session = session
        self._readings: list[Reading] = []
        self._lock = threading.Lock()
        self._redactor = Redactor()

    def __len__(self) -> int:
        with self._lock:  # the page's requests may be handled in any thread
            self.title = describe_source(self.session)
            self._readings += self.session.readings.since(len(self._readings))
            return len(self._readings)

    @property
    def reset_unit(self) -> Any:
        return self.session.readings.inference.unit

    def interaction(self, index: int) -> Interaction:
        return self.entry(index)[1]

    def entry(self, index: int) -> tuple[Reading, Interaction]:
        if not 0 <= index < len(self):
            raise CassetteError(f"There is no interaction {index + 1} in this session.")
        reading = self._readings[index]
        interaction = self.session.exchanges.interaction(reading)
        if interaction is None:  # only the last ones are kept
            request = RecordedRequest(reading.method, self.session.base_url + reading.path)
            interaction = Interaction(request, RecordedResponse(reading.status))
        return reading, self._redactor.interaction(interaction)

    def has_bodies(self, index: int) -> bool:
        return self.session.exchanges.has_bodies(self._readings[index])


class BrowserWidget(Widget):
    """Handles its page's requests about a recording; see `browse`.

    A saved notebook contains only a table of the first rows, as a second output.
    """

    _esm, _css = read_page("browser", common=page.read_page())

    def __init__(self, recording: page.Recording) -> None:
        self._throttle = Throttle(self.update_page, self.update_static_output, interval_s=_UPDATE_S)
        self._show(recording)
        super().__init__()

    def _show(self, recording: page.Recording) -> None:
        self._recording, self._rows_sent = recording, 0
        self._unsubscribe: Callable[[], None] = lambda: None
        if isinstance(recording, SessionRecording):
            self._unsubscribe = recording.session.on_reading(self._throttle.notify)

    def __repr__(self) -> str:
        return page.static_table(self._recording)[1]

    def update_page(self) -> None:
        """Send the new rows to the page, which need not request them."""
        request = {"action": "list", "offset": self._rows_sent, "limit": page.MAX_ROWS}
        part, _ = self._handle(request)
        self.send({"type": "changed", "part": part})

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Respond to a request of the page: JSON with a ``request_id``, which the response repeats.

        It is not called ``id``: ipykernel 7.4 keeps a message whose content has one, for ever.
        """
        if kind == "hello":
            self.send({"type": "ready"})
        if kind == "request" and buffers:
            request = json.loads(bytes(buffers[0]))
            response, bodies = self._handle(request)
            about = {"type": "response", "request_id": request["request_id"]}
            self.send({**about, "response": response}, bodies)

    def _handle(self, request: dict[str, Any]) -> page.Response:
        others: dict[str, Callable[[], page.Recording]] = {}
        if request.get("action") in ("recordings", "compare_recordings"):
            files = cassettes_by_name().items()
            others = {name: partial(page.open_recording, path) for name, path in files}
        response, bodies = page.handle_request(self._recording, request, others)
        rows_sent = response.get("offset", 0) + len(response.get("rows", ()))
        self._rows_sent = max(self._rows_sent, rows_sent)
        return response, bodies

    def follow_current(self) -> None:
        """Switch to the new current session, unless a file is shown or no session is open."""
        current, shown = current_session(), self._recording
        if not isinstance(shown, SessionRecording) or current in (None, shown.session):
            return
        self._unsubscribe()
        self._show(SessionRecording(current))
        self.send({"type": "changed", "restart": True})

    def close(self) -> None:
        """Close the widget; the table of the first rows stays."""
        self._unsubscribe()
        self._throttle.stop()
        super().close()

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows, as a table and as text."""
        table, text = page.static_table(self._recording)
        return {"text/html": table, "text/plain": text}, {}
