"""What the widgets share. Each has a module here and a page in ``static``.

A widget has no synced traits of its own. It sends messages with what the page shows, and the page
sends what is typed in binary buffers. So neither a saved notebook nor a log of messages contains
what was typed, and a notebook that is opened later never shows an outdated state.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import anywidget

from ..display import running_kernel
from ..exchange.bodies import read_json
from ..exchange.contract import ME_PATH
from ..questions.sources import describe
from ..sessions.current import current_session, on_current_change
from ..sessions.session import allowances_of, on_reading

if TYPE_CHECKING:
    from ..cassettes import Recording
    from ..sessions.session import Session


def can_show_widgets() -> bool:
    """Return whether widgets can be shown: this runs in Jupyter or in a marimo notebook."""
    if running_kernel() is not None:
        return True
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def describe_mode(session: Session) -> str:
    """Return what a session does, and whose it is.

    For example ``Live at api.example.com as Jane Doe``, ``Recording to tour at api.example.com`` or
    ``Replaying tour, recorded on 1 May 2026``.
    """
    if session.mode == "replay":
        return f"Replaying {session.cassette}{session.recording.recorded_note}"
    does = "Live" if session.mode == "live" else f"Recording to {session.cassette}"
    host = session.base_url.partition("://")[2]
    name = user_of(session.recording)
    return f"{does} at {host} as {name}" if name else f"{does} at {host}"


# service.md part 2 leaves the record's fields open, so the first of these that exists is used.
_NAME_FIELDS = ("name", "full_name", "email", "login", "username", "user_name", "id")
_MOST_SEARCHED = 20


def user_of(recording: Recording) -> str:
    """Return the user's name if one of the first responses is the user's record, or ``""``."""
    for number in range(1, min(len(recording), _MOST_SEARCHED) + 1):
        reading = recording.reading(number)
        if reading.path == ME_PATH and reading.status == 200:
            record, _ = read_json(recording.interaction(number).response.body or b"", None)
            return _name_in(record)
    return ""


def _name_in(record: Any) -> str:
    """Return the name in a user's record, which an envelope may contain, or ``""``."""
    fields = record if isinstance(record, dict) else {}
    inner = fields.get("data") or fields.get("user") or fields
    names = map(inner.get, _NAME_FIELDS) if isinstance(inner, dict) else ()
    texts = [name.strip() for name in names if isinstance(name, str)]
    return next(filter(None, texts), "")[:80]


def nothing_played(recording: Recording) -> str:
    """Return what to tell about a replay that has played nothing yet; otherwise an empty text."""
    is_new = recording.is_replay and not len(recording)
    return " ".join(describe(recording)["notes"]) if is_new else ""


NO_WIDGETS = (
    "No form? Install anywidget and ipywidgets where JupyterLab runs, or use "
    "dm.connect(address, key)."
)

_shown: WeakSet[Widget] = WeakSet()


def _somebody_watches() -> bool:
    """Return whether a person runs the notebook: a program that runs it has nobody to ask."""
    kernel = running_kernel()
    return kernel is not None and kernel.get_parent("shell")["content"].get("allow_stdin", False)


def update_static_outputs() -> None:
    """Update what each widget shows without a kernel: before its kernel is closed."""
    for widget in list(_shown):
        with contextlib.suppress(Exception):
            widget.update_static_output()


class Widget(anywidget.AnyWidget):
    """The base of all widgets: receives the page's messages, and follows the current session.

    A subclass sets ``_esm`` and ``_css`` to what `read_page` returns. Its ``__init__`` sets its own
    attributes before it calls ``Widget.__init__``.

    Attributes
    ----------
    follower
        Updates the widget while its session is used; None if it shows no session.
    is_watched
        Whether a person runs the notebook, and not a program that has nobody to ask.
    """

    follower: Follower | None = None
    is_watched = True
    _awaits_page = False

    def __init__(self) -> None:
        self._unwatch = on_current_change(self.follow_current)
        self._display_id: str | None = None
        super().__init__()
        self.on_msg(lambda _, content, buffers: self._receive(content.get("type", ""), buffers))

    def _receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        if self._awaits_page:
            self._awaits_page = False
            threading.Thread(target=self.update_static_output, daemon=True).start()
        self.receive(kind, buffers)

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Handle a message from the page. The first is ``"hello"``; ignore unknown ones."""
        raise NotImplementedError

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the page. Any thread may call it."""
        super().send(content, buffers)
        # ipykernel 7.4 would handle the page's next message in this thread's subshell, which may be
        # busy with a cell. Without this attribute, the subshell that the page names handles it.
        if self.comm is not None:
            self.comm.__dict__.pop("_reply_subshell_id", None)

    def follow_current(self) -> None:
        """React to a change of the current session. Any thread may call it."""
        if self.follower is not None:
            self.follower.follow_current()

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a saved notebook shows instead: data and metadata by MIME type."""
        return {"text/plain": repr(self)}, {}

    def update_static_output(self) -> None:
        """Update the static output in the notebook."""
        self._show("static", *self._saved_output(), update=True)

    def _saved_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the static output; until a page shows the widget, it says what may be missing."""
        data, metadata = self.static_output()
        if self._awaits_page:
            if data.pop("image/png", None):  # it would look live
                del data["text/html"]
            if "text/html" in data:
                data["text/html"] = f"<p>{NO_WIDGETS}</p>{data['text/html']}"
            data["text/plain"] = f"{NO_WIDGETS}\n{data['text/plain']}"
        return data, metadata

    def close(self) -> None:
        """Close the widget."""
        self._unwatch()
        if self.follower is not None:
            self.follower.stop()
        super().close()

    def _ipython_display_(self) -> None:
        """Show the widget, and the static output as a second output below it.

        The page hides the static output while the widget is live. The static output is visible if
        the notebook is opened later without this kernel, or without widgets.
        """
        self._display_id = uuid.uuid4().hex
        self.is_watched = _somebody_watches()
        self._awaits_page = self.is_watched
        data, metadata = cast("Any", self._repr_mimebundle_())
        del data["text/plain"]  # the static output has it
        self._show("live", data, metadata)
        self._show("static", *self._saved_output())
        _shown.add(self)

    def _show(self, output: str, data: Any, metadata: Any, *, update: bool = False) -> None:
        """Show or update one of the widget's two outputs, if the widget was displayed."""
        if self._display_id is not None:
            from IPython.display import display

            name = f"{self._display_id}-{output}"
            display(data, metadata=metadata, raw=True, display_id=name, update=update)  # type: ignore[no-untyped-call]


class Follower:
    """Updates a widget while a session is used. A new current session replaces the old one, unless
    ``is_fixed``.

    One thread updates the widget, however many threads send requests. It updates the page after a
    response, a change of the mode or the start of a wait, at most once in ``interval_s`` seconds.
    It updates the static output once nothing has happened for ``quiet_s`` seconds.
    """

    def __init__(
        self,
        widget: Any,
        session: Session,
        *,
        interval_s: float,
        quiet_s: float = 1.0,
        is_fixed: bool = False,
    ) -> None:
        self._widget = widget
        self._is_fixed = is_fixed
        self._interval_s = interval_s
        self._quiet_s = quiet_s
        self._news = threading.Event()
        self._stopped = threading.Event()
        self._follow(session)
        self._settled = self._state()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _follow(self, session: Session) -> None:
        self.session = session
        self._unsubscribe = on_reading(session, lambda _: self._news.set())

    def follow_current(self) -> None:
        """Follow the current session. If none is open, stay with the last one."""
        current = None if self._is_fixed else current_session()
        if current is not None and current is not self.session:
            self._unsubscribe()
            self._follow(current)
        self._news.set()

    def stop(self) -> None:
        """Stop updating the widget, and end the thread."""
        self._unsubscribe()
        self._stopped.set()
        self._news.set()

    def _state(self) -> tuple[object, ...]:
        session = self.session
        waits = bool(allowances_of(session).waiting_until)
        return session.mode, session.cassette, session.recording, len(session.recording), waits

    def _run(self) -> None:
        while True:
            has_news = self._news.wait(self._quiet_s)
            self._news.clear()
            if self._stopped.is_set():
                return
            state = self._state()
            has_changed = state != self._settled
            # The page may be closed. This thread must survive that.
            with contextlib.suppress(Exception):
                if not has_news and has_changed:
                    self._settled = state
                    self._widget.update_static_output()
                if has_news or has_changed:
                    self._widget.update_page()
            if has_news:
                self._stopped.wait(self._interval_s)
