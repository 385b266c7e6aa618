"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..arguments import argument_error
from ..cassettes import Recording, read_cassette
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
from .widget import Follower, Widget, describe_mode, nothing_played

_UPDATE_S = 0.2
_STATIC_S = 0.5
"""The static output is updated this long after a selection. Rendering it takes a while."""


def browse(source: Source = None) -> BrowserWidget:
    """Show the interactions of a cassette or, as they happen, of a session.

    The list can be filtered and sorted, and each interaction has its details.
    Keys: the arrows select, Enter opens, ``/`` filters, Escape goes back, and
    ``c`` compares the selected response with the one that was selected before,
    as Control+click does. After ``view = dm.browse()``, the selected response
    is ``view.response``, and its frame ``dm.frame(view.response)``.

    The panel of a session also sends requests: ``n`` starts a new one, ``e``
    edits the selected one, Control+Enter sends it, Escape aborts it, ``i``
    inserts a cell that sends it. A request is sent as `request` would send it:
    below the service address, paced, and recorded if the session records. You
    confirm each write before it is sent. Without a source, the panel follows
    the current session.

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
        The cassette or the file cannot be read.

    Examples
    --------
    A notebook shows the panel. A terminal shows the first rows:

    >>> dm.browse("record-and-replay")
                       time method          path status remaining  ...
    1  21 Nov 2026 04:00:00    GET  /v1/users/me    200       299  ...
    2              04:00:01    GET     /v1/lists    200        59  ...
    record-and-replay, 2 interactions, recorded on 21 November 2026.
    """
    if source is None or isinstance(source, Session):
        return BrowserWidget(source or session(), is_fixed=source is not None)
    if not isinstance(source, str | Path) or is_folder(source):
        raise argument_error("dm.browse() shows one cassette. Give its name or its path.")
    return BrowserWidget(read_cassette(find_cassette(source)))


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
    _composer: Composer | None = None
    _static: threading.Timer | None = None

    def __init__(self, source: Session | Recording, *, is_fixed: bool = True) -> None:
        super().__init__()
        if isinstance(source, Session):
            self._recording: Recording = source.recording
            follower = Follower(self, source, interval_s=_UPDATE_S, is_fixed=is_fixed)
            self.follower = follower
            self._composer = Composer(lambda: follower.session, lambda: self._recording)
        else:
            self._recording = source

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
        is_new = recording is not self._recording
        if is_new:
            self._recording = recording
            self._selected = None
        self.send({"type": "changed", "restart": is_new})

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Respond to a request of the page: JSON with a ``request_id``, which the response repeats.

        The field is not called ``id``, because ipykernel 7.4 never releases a message whose content
        has an ``id``.
        """
        if kind == "hello":
            self.send({"type": "ready"})
        if kind == "request" and buffers:
            with contextlib.suppress(*MALFORMED):  # without an id, nobody waits for a response
                request = json.loads(bytes(buffers[0]))
                self._handle(request, request.pop("request_id"), b"".join(map(bytes, buffers[1:])))

    def _handle(self, request: dict[str, Any], request_id: object, body: bytes) -> None:
        def respond(response: dict[str, Any], bodies: Sequence[bytes] = ()) -> None:
            about = {"type": "response", "request_id": request_id}
            self.send({**about, "response": response}, bodies)

        recording = self._recording
        bodies: list[bytes] = []
        try:
            if request["action"] == "select":
                self._select(recording, request["number"])
                respond({})
                return
            if self._composer and self._composer.handle(request, body, respond):
                return
            response, bodies = browser_data.handle_request(recording, request)
        except DirectMailLabError as error:
            response = {"problem": str(error)}
        except MALFORMED:
            response = browser_data.UNKNOWN_REQUEST
        if self.follower is not None and "title" in response:
            response["title"] = describe_mode(self.follower.session)
            response["note"] = nothing_played(recording)
            response["sends"] = True
        respond(response, bodies)

    def _select(self, recording: Recording, number: int) -> None:
        recording.reading(number)  # raises now if there is none, and not later in the thread
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
        return save_page(self._recording, target)

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows and the selected interaction, as HTML and as text."""
        table, text = browser_data.static_table(self._recording, self._selected)
        return {"text/html": table, "text/plain": text}, {}
