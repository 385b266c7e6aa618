"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ..arguments import argument_error
from ..cassettes import MemoryRecording, Recording, read_cassette
from ..cassettes.library import find_cassette, is_folder
from ..errors import CassetteError, DirectMailLabError
from ..exchange.httpx_values import httpx
from ..exchange.values import MALFORMED
from ..questions.sources import Source
from ..sessions.current import session
from ..sessions.session import Session
from ..share.cassette_page import save_page
from . import browser_data
from .composer import Composer
from .history import History, locate, with_history
from .widget import Follower, Widget, can_show_widgets, describe_mode, nothing_played

_UPDATE_S = 0.2
_STATIC_S = 0.5
"""The static output is updated this long after a selection. Rendering it takes a while."""
_READ_S = 1.0
"""If reading a file takes longer than this, a notebook shows the widget meanwhile."""


def browse(source: Source = None) -> BrowserWidget:
    """Show the interactions of a cassette or, as they happen, of a session.

    The list can be filtered and sorted, and each interaction has its details.
    Keys: the arrows select, Enter opens, ``/`` filters, Escape goes back, and
    ``c`` compares the selected response with the one that was selected before,
    as Control+click does. After ``view = browse()``, ``frame(view.response)``
    is the selected response as a frame.

    The panel of a session also sends requests: ``n`` starts a new one, ``e``
    edits the selected one, Control+Enter sends it, Escape aborts it, ``i``
    inserts a cell that sends it. A request is sent as `request` would send it:
    below the base address, paced, and recorded if the session records. You
    confirm each write before it is sent. A pasted curl command fills in the
    form, without its credentials. The list begins with what earlier sessions of
    this kernel sent to the same address with the same key, until `logout`.

    Parameters
    ----------
    source
        A cassette's name or path, the path of a ``.har`` file, or a `Session`.
        By default the current session.

    Raises
    ------
    NotConnectedError
        No source is given and no session is open.
    CassetteNotFoundError
        The cassette does not exist.
    CassetteError
        The cassette or the file cannot be read. For a large file, the error
        appears in the widget.

    Examples
    --------
    A notebook shows the panel. A terminal shows the first rows:

    >>> dm.browse("record-and-replay")
       time                  method  path          status  remaining  ...
    1  2026-11-21 04:00:00Z  GET     /v1/users/me     200        299  ...
    2  2026-11-21 04:00:01Z  GET     /v1/lists        200         59  ...
    record-and-replay, 2 interactions, recorded on 21 November 2026.
    """
    if source is None or isinstance(source, Session):
        return BrowserWidget(source or session())
    if not isinstance(source, str | Path) or is_folder(source):
        raise argument_error("browse() shows one cassette. Give its name or its path.")
    path = find_cassette(source)
    opening = Opening(path)
    timeout_s = _READ_S if can_show_widgets() else None
    with contextlib.suppress(TimeoutError):
        opening.result(timeout_s)
    return BrowserWidget(opening, path.stem)


class Opening(Future[Recording]):
    """Reads a cassette in a thread, which does not keep the kernel from exiting.

    Attributes
    ----------
    part
        How much of the cassette is read, from 0 to 1.
    on_progress
        Called whenever another hundredth is read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.part = 0.0
        self.on_progress: Callable[[], object] = lambda: None
        threading.Thread(target=self._read, args=[path], daemon=True).start()

    def _read(self, path: Path) -> None:
        on_progress = self._note_progress if can_show_widgets() else None
        try:
            self.set_result(read_cassette(path, on_progress))
        except Exception as error:
            self.set_exception(error)

    def _note_progress(self, part: float) -> None:
        before = self.part
        self.part += part
        if int(100 * self.part) > int(100 * before):
            self.on_progress()


class BrowserWidget(Widget):
    """The browser of interactions: responds to the requests of its page. See `browse`.

    Its second output, for a saved notebook, is a table of the first rows and the selected
    interaction.

    Attributes
    ----------
    selected
        The number of the selected interaction in its session or file; None if none is selected.
    """

    _esm, _css = browser_data.read_page("browser")
    _selected: tuple[Recording, int] | None = None
    _session_recording: MemoryRecording | None = None
    _composer: Composer | None = None
    _static: threading.Timer | None = None

    def __init__(self, source: Session | Opening, name: str = "") -> None:
        self._name = name
        self._opening: Future[Recording]
        super().__init__()
        if isinstance(source, Session):
            self._show_recording(source.recording)
            follower = Follower(self, source, interval_s=_UPDATE_S)
            self.follower = follower
            self._composer = Composer(lambda: follower.session, lambda: self._opening.result())
        else:
            self._opening = source
            source.on_progress = self._show_progress
            source.add_done_callback(lambda _: self.update_static_output())

    def _show_recording(self, recording: MemoryRecording) -> None:
        self._session_recording = recording
        self._selected = None
        self._opening = Future()
        self._opening.set_result(with_history(recording))

    def __repr__(self) -> str:
        return str(self.static_output()[0]["text/plain"])

    @property
    def selected(self) -> int | None:
        return self._selected and self._selected[1]

    @property
    def response(self) -> httpx.Response:
        """The selected interaction's response.

        Raises
        ------
        CassetteError
            No interaction is selected, it cannot be read, or its body was not kept.
        """
        if self._selected is None:
            raise CassetteError("No interaction is selected.", "Select one in the list above.")
        return browser_data.response_of(*self._selected)

    def update_page(self) -> None:
        """Tell the page that the session's recording has grown, or that it was replaced."""
        assert self.follower is not None
        recording = self.follower.session.recording
        is_new = recording is not self._session_recording
        if is_new:
            self._show_recording(recording)
        self.send({"type": "changed", "restart": is_new})

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Respond to a request of the page: JSON with a ``request_id``, which the response repeats.

        The field is not called ``id``, because ipykernel 7.4 never releases a message whose content
        has an ``id``.
        """
        if kind == "hello":
            self.send({"type": "ready"})
        if kind == "request" and buffers:
            self._show_progress()
            with contextlib.suppress(*MALFORMED):  # without an id, nobody waits for a response
                request = json.loads(bytes(buffers[0]))
                own_id = request.pop("request_id")
                self._opening.add_done_callback(
                    lambda _: self._handle(request, own_id, buffers[1:])
                )

    def _show_progress(self) -> None:
        if isinstance(self._opening, Opening) and not self._opening.done():
            self.send({"type": "reading", "title": self._name, "part": self._opening.part})

    def _handle(
        self, request: dict[str, Any], request_id: object, files: Sequence[bytes | memoryview]
    ) -> None:
        def respond(response: dict[str, Any], bodies: Sequence[bytes] = ()) -> None:
            if isinstance(recording, History) and response.get("number"):
                response["number"] += recording.last_head
            about = {"type": "response", "request_id": request_id}
            self.send({**about, "response": response}, bodies)

        recording: Recording | None = None
        bodies: list[bytes] = []
        try:
            recording = self._opening.result()
            if request["action"] == "select":
                self._select(*locate(recording, request["number"]))
                respond({})
                return
            body = b"".join(map(bytes, files))
            if self._composer and self._composer.handle(request, body, respond):
                return
            response, bodies = browser_data.handle_request(recording, request)
        except DirectMailLabError as error:
            response = {"problem": str(error)}
        except MALFORMED:
            response = browser_data.UNKNOWN_REQUEST
        if self.follower is not None and "title" in response:
            response["title"] = describe_mode(self.follower.session)
            response["note"] = nothing_played(self.follower.session.recording)
            response["sends"] = True
        respond(response, bodies)

    def _select(self, recording: Recording, number: int) -> None:
        self._selected = recording, number
        if self._static is not None:
            self._static.cancel()
        self._static = threading.Timer(_STATIC_S, self.update_static_output)
        self._static.daemon = True
        self._static.start()

    def close(self) -> None:
        """Close the widget, and end the thread that sends requests."""
        if self._static is not None:
            self._static.cancel()
        if self._composer is not None:
            self._composer.close()
        super().close()

    def save(self, target: str | Path) -> Path:
        """Write the recording as one HTML file, which any web browser shows; return its path.

        See `directmail_lab.share.cassette_page.save_page` for warnings and errors.
        """
        return save_page(self._session_recording or self._opening.result(), target)

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows and the selected interaction, as HTML and as text."""
        if not self._opening.done():
            return {"text/plain": f"Reading {self._name} …"}, {}
        try:
            recording = self._session_recording or self._opening.result()
            table, text = browser_data.static_table(recording, self._selected)
        except CassetteError as error:
            return {"text/plain": str(error)}, {}
        return {"text/html": table, "text/plain": text}, {}
