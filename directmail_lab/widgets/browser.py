"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import browsing
from ..cassettes import cassettes_by_name, find_cassette
from ..current import current_session, session
from ..display import as_html, as_text
from ..errors import CassetteError
from ..interaction import Interaction, RecordedRequest, RecordedResponse
from ..redaction import Redactor
from . import Throttle, Widget, page, source_of

if TYPE_CHECKING:
    from ..quota import Reading
    from ..sessions import Session

_UPDATE_S: Final = 0.2
_SETTLED_S: Final = 1.5


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
    return BrowserWidget(browsing.open_recording(path if is_har else find_cassette(cassette)))


class SessionRecording(browsing.Recording):
    """A session's interactions so far, with the key redacted. Their number grows."""

    def __init__(self, followed: Session) -> None:
        super().__init__(source_of(followed), (), followed.base_url)
        self.session = followed
        self._seen: list[Reading] = []
        self._lock = threading.Lock()
        self._redactor = Redactor()

    def __len__(self) -> int:
        with self._lock:  # the page's questions may be answered in any thread
            self.title = source_of(self.session)
            self._seen += self.session.readings.since(len(self._seen))
            return len(self._seen)

    @property
    def reset_unit(self) -> Any:
        return self.session.readings.inference.unit

    def interaction(self, index: int) -> Interaction:
        return self.entry(index)[1]

    def entry(self, index: int) -> tuple[Reading, Interaction]:
        if not 0 <= index < len(self):
            raise CassetteError(f"There is no interaction {index + 1} in this session.")
        reading = self._seen[index]
        kept = self.session.exchanges.interaction(reading)
        if kept is None:
            request = RecordedRequest(reading.method, self.session.base_url + reading.path)
            kept = Interaction(request, RecordedResponse(reading.status))
        return reading, self._redactor.interaction(kept)

    def keeps_bodies(self, index: int) -> bool:
        return self.session.exchanges.has_bodies(self._seen[index])


class BrowserWidget(Widget):
    """Answers its page's questions about a recording; see `browse`.

    A saved notebook contains only a table of the first rows, as a second output.
    """

    _esm, _css = page("browser", common=browsing.page())

    def __init__(self, recording: browsing.Recording) -> None:
        self._throttle = Throttle(
            self.tell,
            self.keep_table,
            interval_s=_UPDATE_S,
            settled_s=_SETTLED_S,
        )
        self._context = contextvars.copy_context()
        self._show(recording)
        super().__init__()

    def _show(self, recording: browsing.Recording) -> None:
        self._recording, self._told = recording, 0
        self._unsubscribe: Callable[[], None] = lambda: None
        if isinstance(recording, SessionRecording):
            self._unsubscribe = recording.session.on_reading(self._throttle.notify)

    def __repr__(self) -> str:
        return as_text(browsing.first_rows(self._recording))

    def tell(self) -> None:
        """Send the new rows to the page, which cannot ask for them while a cell runs.

        They are sent in the context of its last question. ipykernel handles the page's next message
        in the thread whose context this message was sent in, and the main thread is busy.
        """
        told, _ = self._answer({"ask": "list", "offset": self._told, "limit": browsing.MOST_ROWS})
        self._context.copy().run(self.send, {"type": "changed", "part": told})

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Answer a question of the page: JSON with a ``turn``, a number that the answer repeats."""
        self._context = contextvars.copy_context()
        if kind == "hello":
            self.send({"type": "ready"})
        if kind == "ask" and buffers:
            question = json.loads(bytes(buffers[0]))
            told, bodies = self._answer(question)
            self.send({"type": "answer", "turn": question["turn"], "answer": told}, bodies)

    def _answer(self, question: dict[str, Any]) -> browsing.Answer:
        others: dict[str, Callable[[], browsing.Recording]] = {}
        if question.get("ask") in ("others", "compare_with"):
            files = cassettes_by_name().items()
            others = {name: partial(browsing.open_recording, path) for name, path in files}
        told, bodies = browsing.answer(self._recording, question, others)
        self._told = max(self._told, told.get("offset", 0) + len(told.get("rows", ())))
        return told, bodies

    def follow_current(self) -> None:
        """Switch to the new current session, unless a file is shown or no session is open."""
        followed, shown = current_session(), self._recording
        if not isinstance(shown, SessionRecording) or followed in (None, shown.session):
            return
        self._unsubscribe()
        self._show(SessionRecording(followed))
        self.send({"type": "changed", "restart": True})

    def close(self) -> None:
        """Close the widget; the table of the first rows stays."""
        self._unsubscribe()
        self._throttle.stop()
        super().close()

    def keep_table(self) -> None:
        """Update the table in the notebook."""
        self._publish(1, *self.still())

    def still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows, as a table and as text."""
        table = browsing.first_rows(self._recording)
        return {"text/html": as_html(table), "text/plain": as_text(table)}, {}
