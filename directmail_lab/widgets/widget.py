"""What the widgets share. Each has a module here and its page in ``static``.

A widget has no synced traits of its own. Its page gets what it shows in messages, and sends what is
typed in binary buffers. So neither a saved notebook nor a log of messages contains that, and a
notebook that is opened later does not show a state that is no longer true.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import anywidget

from ..current import on_current_change
from ..readings.reset_unit import renewal_time

if TYPE_CHECKING:
    from ..readings.reading import Reading
    from ..sessions import Session


_log = logging.getLogger(__name__)


def can_show_widgets() -> bool:
    """Return whether this runs where a widget can be shown: in Jupyter or in a marimo notebook."""
    ipython, marimo = sys.modules.get("IPython"), sys.modules.get("marimo")
    kernel = getattr(ipython and ipython.get_ipython(), "kernel", None)
    return kernel is not None or bool(marimo and marimo.running_in_notebook())


def seconds_to_renewal(reading: Reading, session: Session) -> float | None:
    """Return the seconds until a reading's allowance renews; None if that is not known.

    In a replay it is None, since a recorded window renewed long ago. The page gets seconds and not
    a point in time, since it may run on another machine with another clock.
    """
    renews_at = renewal_time(reading, session.recording.evidence.unit)
    return None if renews_at is None or session.mode == "replay" else renews_at - time.time()


class Widget(anywidget.AnyWidget):
    """The base of all widgets: receives the page's messages, and follows the current session.

    A subclass sets ``_esm`` and ``_css`` to what `read_page` returns. Its ``__init__`` sets its own
    attributes before it calls this one.
    """

    def __init__(self) -> None:
        self._unwatch = on_current_change(self.follow_current)
        self._display_ids: tuple[str, str] | None = None
        super().__init__()
        self.on_msg(_receive)

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Handle a message of the page, and ignore unknown ones; the first is ``"hello"``."""
        raise NotImplementedError

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the page, in any thread."""
        super().send(content, buffers)
        # ipykernel 7.4 would handle the page's next message in this thread's subshell, which may be
        # busy with a cell. Without this attribute, the subshell that the page names handles it.
        if self.comm is not None:
            self.comm.__dict__.pop("_reply_subshell_id", None)

    def follow_current(self) -> None:
        """React to a change of the current session. Any thread may call it."""
        raise NotImplementedError

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is shown where no widget can be: data and metadata by MIME type."""
        return {"text/plain": repr(self)}, {}

    def update_static_output(self) -> None:
        """Update the static output in the notebook."""
        self._publish(1, *self.static_output())

    def close(self) -> None:
        """Close the widget."""
        self._unwatch()
        super().close()

    def _ipython_display_(self) -> None:
        """Show the widget, and below it, as a second output, the static one.

        The page hides the second output while the widget is live. It is visible when the notebook
        is opened later, without this kernel or without widgets.
        """
        self._display_ids = uuid.uuid4().hex, uuid.uuid4().hex
        data, metadata = cast("Any", self._repr_mimebundle_())
        del data["text/plain"]  # the static output has it
        self._publish(0, data, metadata, update=False)
        self._publish(1, *self.static_output(), update=False)

    def _publish(
        self, output: int, data: Any, metadata: Any = None, *, update: bool = True
    ) -> None:
        """Show or update one of the widget's two outputs, if the widget was displayed."""
        if self._display_ids is not None:
            from IPython.display import publish_display_data

            publish: Any = publish_display_data
            transient = {"display_id": self._display_ids[output]}
            publish(data, metadata, transient=transient, update=update)


def _receive(widget: Widget, content: object, buffers: Sequence[bytes | memoryview]) -> None:
    kind = content.get("type") if isinstance(content, dict) else None
    if isinstance(kind, str):
        widget.receive(kind, buffers)


class Throttle:
    """Calls ``update`` after events, at most once per interval, and ``settled`` while none come.

    It calls them in a thread of its own, which starts with the first event if not before.

    Parameters
    ----------
    update
        Called after events; the last event is always followed by a call.
    settled
        Called whenever no event came for ``settled_s`` seconds.
    interval_s
        The least time between two updates, in seconds.
    """

    def __init__(
        self,
        update: Callable[[], object],
        settled: Callable[[], object],
        *,
        interval_s: float,
        settled_s: float = 1.0,
    ) -> None:
        self._update, self._settled = update, settled
        self._interval_s, self._settled_s = interval_s, settled_s
        self._event, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._lock = threading.Lock()

    def notify(self, *_: object) -> None:
        """Report an event; the arguments do not matter."""
        if self._event.is_set() or self._stopped.is_set():
            return
        self._event.set()
        self.start()

    def start(self) -> None:
        """Start the thread, if it was not started yet."""
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()

    def stop(self) -> None:
        """Call nothing any more."""
        self._stopped.set()
        self._event.set()

    def _run(self) -> None:
        while True:
            is_due = self._event.wait(self._settled_s)
            self._event.clear()
            if self._stopped.is_set():
                return
            try:
                (self._update if is_due else self._settled)()
            except Exception:
                # The page may be closed. That must not disturb the requests that it shows.
                _log.debug("A widget could not be brought up to date", exc_info=True)
            self._stopped.wait(self._interval_s if is_due else 0.0)
