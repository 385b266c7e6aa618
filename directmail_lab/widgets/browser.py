"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from ..arguments import argument_error
from ..cassettes import Recording, SessionRecording, read_cassette
from ..cassettes.library import files_of, is_folder
from ..current import session
from ..errors import CassetteError, DirectMailLabError
from ..http import httpx
from ..sessions import Session
from ..sources import Source
from . import browser_data
from .composer import Composer
from .history import History, locate, with_history
from .widget import Follower, Widget, can_show_widgets, describe_mode, nothing_played

_UPDATE_S: Final = 0.2
_STATIC_S: Final = 0.5
"""How long after a selection the static output is updated, which takes longer than the response."""
_READ_S: Final = 1.0
"""A file that takes longer than this to read is read while a notebook's page is shown."""


def browse(source: Source = None) -> BrowserWidget:
    """Show the interactions of a cassette, or those of a session as they happen.

    There is a list to filter and sort, and the details of each interaction. Keys: the arrows move,
    Enter opens, ``/`` goes to the filter, Escape goes back. ``view = browse()`` gives what is
    selected to Python: ``frame(view.response)``.

    The browser of a session also sends: ``n`` writes a new request, ``e`` changes the selected one,
    Control+Enter sends it, Escape aborts it, ``i`` inserts a cell that sends it. It is sent as
    `request` would send it: below the base address, paced, and recorded while the session records.
    Each write is asked for first. A curl command that is pasted into the address fills the form,
    without its credentials. Above its own, it shows what earlier sessions of this kernel sent
    to the same address with the same key, until `logout`.

    Parameters
    ----------
    source
        A cassette's name or path, the path of a ``.har`` file, or a `Session`. By default the
        current session.

    Raises
    ------
    NotConnectedError
        Nothing is named and no session is open.
    CassetteNotFoundError
        There is no such cassette.
    CassetteError
        The cassette or the file cannot be read. For a large file, the error appears in the widget.
    """
    if source is None or isinstance(source, Session):
        return BrowserWidget(source or session())
    if is_folder(source):
        raise argument_error("browse() shows one cassette. Give its name or its path.")
    name, path = files_of(source)[0]
    opening = Opening(path)
    with contextlib.suppress(TimeoutError):
        opening.result(_READ_S if can_show_widgets() else None)
    return BrowserWidget(opening, name)


class Opening(Future[Recording]):
    """A cassette that a thread reads, which does not keep the kernel from ending.

    Attributes
    ----------
    part
        How much of it was read, up to 1; ``on_progress`` is called for each hundredth.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.part = 0.0
        self.on_progress: Callable[[], object] = lambda: None
        threading.Thread(target=self._read, args=[path], daemon=True).start()

    def _read(self, path: Path) -> None:
        try:
            self.set_result(read_cassette(path, self._tell if can_show_widgets() else None))
        except Exception as error:
            self.set_exception(error)

    def _tell(self, part: float) -> None:
        before, self.part = self.part, self.part + part
        if int(100 * self.part) > int(100 * before):
            self.on_progress()


class BrowserWidget(Widget):
    """Handles its page's requests about a recording; see `browse`.

    A saved notebook contains a table of the first rows and the selected interaction, as a second
    output.

    Attributes
    ----------
    selected
        The number of the selected interaction, in the session that it is of; None if none is.
    """

    _esm, _css = browser_data.read_page("browser")
    _selected: tuple[Recording, int] | None = None
    _session_recording: SessionRecording | None = None
    _composer: Composer | None = None
    _static: threading.Timer | None = None

    def __init__(self, source: Session | Opening, name: str = "") -> None:
        self._name = name
        self._opening: Future[Recording]
        super().__init__()
        if isinstance(source, Session):
            self._show_recording(source.recording)
            self.follower = follower = Follower(self, source, interval_s=_UPDATE_S)
            self._composer = Composer(lambda: follower.session, lambda: self._opening.result())
        else:
            self._opening = source
            source.on_progress = self._tell_progress
            source.add_done_callback(lambda _: self.update_static_output())

    def _show_recording(self, recording: SessionRecording) -> None:
        self._opening, self._selected, self._session_recording = Future(), None, recording
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
            None is selected, it cannot be read, or its body was not kept.
        """
        if self._selected is None:
            raise CassetteError("No interaction is selected.", "Select one in the list above.")
        return browser_data.response_of(*self._selected)

    def update_page(self) -> None:
        """Tell the page that a session's recording has more, or that it has another recording."""
        assert self.follower is not None
        recording = self.follower.session.recording
        is_new = recording is not self._session_recording
        if is_new:
            self._show_recording(recording)
        self.send({"type": "changed", "restart": is_new})

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Respond to a request of the page: JSON with a ``request_id``, which the response repeats.

        It is not called ``id``: ipykernel 7.4 keeps a message whose content has one, for ever.
        """
        if kind == "hello":
            self.send({"type": "ready"})
        if kind == "request" and buffers:
            self._tell_progress()
            request = json.loads(bytes(buffers[0]))
            self._opening.add_done_callback(lambda _: self._handle(request, buffers[1:]))

    def _tell_progress(self) -> None:
        if isinstance(self._opening, Opening) and not self._opening.done():
            self.send({"type": "reading", "title": self._name, "part": self._opening.part})

    def _handle(self, request: dict[str, Any], files: Sequence[bytes | memoryview]) -> None:
        def respond(response: dict[str, Any], bodies: Sequence[bytes] = ()) -> None:
            if isinstance(recording, History) and response.get("number"):
                response["number"] += recording.last_head
            about = {"type": "response", "request_id": request["request_id"]}
            self.send({**about, "response": response}, bodies)

        recording: Recording | None = None
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
            response, bodies = {"problem": str(error)}, []
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
        """Close the widget, and end the thread that sends."""
        if self._static is not None:
            self._static.cancel()
        if self._composer is not None:
            self._composer.close()
        super().close()

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows and what is selected, as HTML and as text."""
        if not self._opening.done():
            return {"text/plain": f"Reading {self._name} …"}, {}
        try:
            recording = self._session_recording or self._opening.result()
            table, text = browser_data.static_table(recording, self._selected)
        except CassetteError as error:
            return {"text/plain": str(error)}, {}
        return {"text/html": table, "text/plain": text}, {}
