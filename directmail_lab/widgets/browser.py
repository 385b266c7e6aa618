"""The browser of interactions in a notebook: `browse`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import browsing
from ..cassettes import cassettes_by_name, find_cassette
from . import Widget, page


def browse(cassette: str | Path) -> BrowserWidget:
    """Show what a cassette holds: a list to filter, sort and compare, and the details of each.

    Parameters
    ----------
    cassette
        A bare name or the `Path` of a file, a ``.har`` file among them.

    Raises
    ------
    NotRecordedError
        There is no such cassette.
    CassetteError
        It cannot be read.
    """
    path = Path(cassette)
    is_har = path.suffix.lower() == ".har"
    return BrowserWidget(browsing.open_recording(path if is_har else find_cassette(cassette)))


class BrowserWidget(Widget):
    """Answers what its page asks of a recording; see `browse`.

    What a saved notebook holds of it is a table of the first rows, in an output of its own below.
    """

    _esm, _css = page("browser", common=browsing.page())

    def __init__(self, recording: browsing.Recording) -> None:
        self._recording = recording
        super().__init__()

    def __repr__(self) -> str:
        from ..display import as_text

        return as_text(browsing.first_rows(self._recording))

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Answer a question of the page: JSON, with an ``id`` that the answer has too."""
        if kind == "hello":
            self.send({"type": "ready"})
        if kind != "ask" or not buffers:
            return
        question = json.loads(bytes(buffers[0]))
        told, bodies = browsing.answer(self._recording, question, _others())
        self.send({"type": "answer", "id": question["id"], "answer": told}, bodies)

    def follow_current(self) -> None:
        """Do nothing: it shows a file."""

    def still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first rows, as a table and as text."""
        from ..display import as_html

        table = browsing.first_rows(self._recording)
        return {"text/html": as_html(table), "text/plain": repr(self)}, {}


def _others() -> dict[str, Callable[[], browsing.Recording]]:
    return {
        name: partial(browsing.open_recording, path) for name, path in cassettes_by_name().items()
    }
