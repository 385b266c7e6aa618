"""The widgets, and what they share. Each has a module here and its page in ``static``.

A widget has no synced trait of its own. What its page shows goes there in messages, and what is
typed comes back as binary buffers: so neither a saved notebook nor a log of messages holds it, and
a notebook that is opened again claims nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anywidget

from ..browsing import static_text
from ..current import on_current_change
from ..reset_unit import renewal_of

if TYPE_CHECKING:
    from ..quota import Reading
    from ..sessions import Session


_log = logging.getLogger(__name__)
_STATIC: Final = Path(__file__).with_name("static")


def page(name: str, common: tuple[str, str] | None = None) -> tuple[str, str]:
    """Return a widget's script and style: ``common`` ones, what all widgets share, and its own."""
    script, style = common or (static_text("dom.js"), static_text("palette.css"))
    for part in ("base", name):
        script += (_STATIC / f"{part}.js").read_text("utf-8")
        own_style = _STATIC / f"{part}.css"
        style += own_style.read_text("utf-8") if own_style.exists() else ""
    return script, style


def shows_widgets() -> bool:
    """Return whether this runs in a notebook, where a widget can be shown: Jupyter or marimo."""
    ipython, marimo = sys.modules.get("IPython"), sys.modules.get("marimo")
    kernel = getattr(ipython and ipython.get_ipython(), "kernel", None)
    return kernel is not None or bool(marimo and marimo.running_in_notebook())


def seconds_to_renewal(reading: Reading, session: Session) -> float | None:
    """Return how long until a reading's allowance renews; None where that is not known.

    In a replay it is not: a recorded window renewed long ago. A page is told seconds and no time,
    since its clock may be another machine's.
    """
    at = renewal_of(reading, session.readings.inference.unit)
    return None if at is None or session.mode == "replay" else at - time.time()


def source_of(followed: Session) -> str:
    """Return what answers a session's requests: ``Live``, ``Recording to tour``."""
    kind = {"live": "Live", "record": "Recording to", "replay": "Replaying"}[followed.mode]
    named = f"{kind} {followed.cassette}" if followed.cassette else kind
    shared = followed.mode != "replay" and followed.shared_with
    return f"{named}, {shared}" if shared else named


class Widget(anywidget.AnyWidget):
    """What every widget does: hear its page, and hear of another current session.

    A subclass sets ``_esm`` and ``_css`` by `page`, and its own attributes before it calls this.
    """

    def __init__(self) -> None:
        self._unwatch = on_current_change(self.follow_current)
        self._display_ids: tuple[str, str] | None = None
        super().__init__()
        self.on_msg(_receive)

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Do what a message of the page asks for, if it is known; ``"hello"`` comes first."""
        raise NotImplementedError

    def follow_current(self) -> None:
        """Look again which session is the current one. Any thread may call it."""
        raise NotImplementedError

    def still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what stands for the widget where none is shown, as data and metadata by type."""
        return {"text/plain": repr(self)}, {}

    def close(self) -> None:
        """Take the widget away."""
        self._unwatch()
        super().close()

    def _ipython_display_(self) -> None:
        """Show the widget, and its still in an output of its own below.

        The page hides that output while the widget is live. It is seen in a notebook that is opened
        later, without this kernel or without widgets.
        """
        self._display_ids = uuid.uuid4().hex, uuid.uuid4().hex
        data, metadata = cast("Any", self._repr_mimebundle_())
        del data["text/plain"]  # the still says it
        self._publish(0, data, metadata, renew=False)
        self._publish(1, *self.still(), renew=False)

    def _publish(self, which: int, data: Any, metadata: Any = None, *, renew: bool = True) -> None:
        """Show something as one of the widget's two outputs, if it was shown at all."""
        if self._display_ids is not None:
            from IPython.display import publish_display_data

            publish: Any = publish_display_data
            place = {"display_id": self._display_ids[which]}
            publish(data, metadata, transient=place, update=renew)


def _receive(widget: Widget, content: object, buffers: Sequence[bytes | memoryview]) -> None:
    kind = content.get("type") if isinstance(content, dict) else None
    if isinstance(kind, str):
        widget.receive(kind, buffers)


class Throttle:
    """Calls ``update`` soon after events, at most once in an interval, and ``settled`` after them.

    A thread of its own does it, so that `notify` costs its caller next to nothing. The thread ends
    when nothing happened for a while, and starts again with the next event.

    Parameters
    ----------
    update
        Called after events; the last event is always followed by a call.
    settled
        Called when no event came for ``settled_s`` seconds.
    interval_s
        The least time between two updates, in seconds.
    """

    def __init__(
        self,
        update: Callable[[], object],
        settled: Callable[[], object],
        *,
        interval_s: float,
        settled_s: float,
    ) -> None:
        self._update = update
        self._settled = settled
        self._interval_s = interval_s
        self._settled_s = settled_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._due = self._running = False

    def notify(self, *_: object) -> None:
        """Note that something happened; what it was does not matter."""
        if self._due:
            return
        with self._lock:
            self._due = True
            if self._running or self._stopped.is_set():
                return
            self._running = True
        threading.Thread(target=self._run, name="directmail_lab throttle", daemon=True).start()

    def stop(self) -> None:
        """Call nothing any more."""
        self._stopped.set()

    def _run(self) -> None:
        quiet_s = 0.0
        while self._running:
            if self._due:
                self._due, quiet_s = False, 0.0
                self._try(self._update)
            elif quiet_s >= self._settled_s:
                self._try(self._settled)
                with self._lock:
                    self._running = self._due
            quiet_s += self._interval_s
            if self._stopped.wait(self._interval_s):
                return

    def _try(self, call: Callable[[], object]) -> None:
        try:
            if not self._stopped.is_set():
                call()
        except Exception:
            # The page may be gone; the requests that are watched go on.
            _log.debug("A widget could not be brought up to date", exc_info=True)
