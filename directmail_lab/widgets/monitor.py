"""The live monitor: what remains of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import io
import threading
import time
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anywidget

from directmail_lab.current import current_session, on_current_change, session

from .history import History
from .pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from directmail_lab.sessions import Session

    from .history import Track

__all__ = ["MonitorWidget", "monitor"]

_STATIC: Final = Path(__file__).with_name("static")
_SHOWN: Final = 8
_LATEST: Final = 64
_UPDATE_S: Final = 0.1
_SETTLED_S: Final = 1.5


def monitor() -> MonitorWidget:
    """Show what remains of each allowance, live, for the current session.

    Any loop, thread or task may make requests meanwhile; the picture is renewed at most ten times a
    second. ``.close()`` or its button stops it. A PNG of the readings stays in the notebook.

    Raises
    ------
    NotConnectedError
        No session is open.
    """
    return MonitorWidget(session())


class MonitorWidget(anywidget.AnyWidget):
    """Follows the current session's readings; see `monitor`.

    What it shows goes to the page in messages, so that a saved notebook holds none of it but the
    PNG, which stands in an output of its own below.
    """

    _esm = _STATIC / "monitor.js"
    _css = _STATIC / "monitor.css"

    def __init__(self, followed: Session) -> None:
        myself = weakref.ref(self)
        self._lock = threading.Lock()
        self._history = History()
        self._stopped = False
        self._read = 0
        self._session = followed
        self._form_id: str | None = None
        self._picture_id: str | None = None
        self._pulse = Pulse(
            lambda: _call(myself(), "show"),
            lambda: _call(myself(), "keep_picture"),
            interval_s=_UPDATE_S,
            settled_s=_SETTLED_S,
        )
        self._unsubscribe = followed.on_reading(self._pulse.beat)
        self._unwatch = on_current_change(lambda: _call(myself(), "_follow_current"))
        super().__init__()
        self.on_msg(_receive)

    def __repr__(self) -> str:
        with self._lock:
            lines = [f"{track.name}: {_left(track)}" for track in self._tracks()]
        return "Rate-limit monitor. " + ("; ".join(lines) or "No responses yet.")

    def _follow_current(self) -> None:
        followed = current_session()
        if followed is None or followed is self._session or self._stopped:
            return
        self._unsubscribe()
        with self._lock:
            self._session, self._history, self._read = followed, History(), 0
        self._unsubscribe = followed.on_reading(self._pulse.beat)
        self._pulse.beat()

    def _tracks(self) -> list[Track]:
        """Return the operations to show, once the readings that came meanwhile are taken in.

        They are taken from the session's log, so that none is missed and none counts twice.
        """
        log = self._session.readings
        if len(log) < self._read:  # it was cleared
            self._history, self._read = History(), 0
        new = log.since(self._read)
        for reading in new:
            self._history.add(reading)
        self._read += len(new)
        return list(self._history.tracks.values())[-_SHOWN:]

    def show(self) -> None:
        """Send the picture to the page."""
        self.send(self.picture())

    def picture(self) -> dict[str, object]:
        """Return all that the page draws. Its size does not grow with the number of readings."""
        renewals = self._renewals()
        with self._lock:
            shown = self._tracks()
            return {
                "type": "picture",
                "source": _source_of(self._session),
                "responses": self._history.responses,
                "more": len(self._history.tracks) - len(shown),
                "tracks": [_drawn(track, renewals.get(track.name)) for track in shown],
            }

    def _renewals(self) -> dict[str, float]:
        """Return the seconds until each allowance renews, where that is known and it is live."""
        log = self._session.readings
        if self._session.mode == "replay" or not len(log):
            return {}
        last, now = log.frame().iloc[-_LATEST:], time.time()
        return {
            f"{method} {operation}": at.timestamp() - now
            for method, operation, at in zip(
                last["method"], last["operation"], last["reset_at"], strict=True
            )
            if at == at  # NaT alone does not equal itself
        }

    def receive(self, content: object) -> None:
        """Do what a message of the page asks for."""
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "hello":
            self.show()
        elif kind == "stop":
            self.close()

    def close(self) -> None:
        """Stop following. The last picture stays."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self._unwatch()
        self._pulse.stop()
        with contextlib.suppress(Exception):
            self.keep_picture()
            if self._form_id is not None:
                self._publish(self._form_id, {"text/plain": repr(self)}, renew=True)
        super().close()

    def _ipython_display_(self) -> None:
        """Show the monitor, and below it the PNG that its page hides while it is live."""
        bundle: Any = self._repr_mimebundle_()
        self._form_id, self._picture_id = uuid.uuid4().hex, uuid.uuid4().hex
        self._publish(self._form_id, bundle[0] if isinstance(bundle, tuple) else bundle)
        self._publish(self._picture_id, self._still())

    def keep_picture(self) -> None:
        """Renew the PNG in the notebook, if it was shown there."""
        if self._picture_id is not None:
            self._publish(self._picture_id, self._still(), renew=True)

    def _publish(self, display_id: str, bundle: dict[str, object], *, renew: bool = False) -> None:
        from IPython.display import publish_display_data

        publish: Any = publish_display_data
        publish(bundle, transient={"display_id": display_id}, update=renew)

    def _still(self) -> dict[str, object]:
        """Return the readings so far as a PNG, and in words for where no picture is shown."""
        bundle: dict[str, object] = {"text/plain": repr(self)}
        if len(self._session.readings):
            from directmail_lab.charts import chart_rate_limits

            written = io.BytesIO()
            chart_rate_limits(self._session.rate_limits()).savefig(written, format="png")
            bundle["image/png"] = written.getvalue()
        return bundle


def _call(widget: MonitorWidget | None, method: str) -> None:
    if widget is not None:
        getattr(widget, method)()


def _receive(widget: MonitorWidget, content: object, _buffers: Sequence[bytes]) -> None:
    widget.receive(content)


def _source_of(followed: Session) -> str:
    kind = {"live": "Live", "record": "Recording to", "replay": "Replaying"}[followed.mode]
    return f"{kind} {followed.cassette}" if followed.cassette else kind


def _left(track: Track) -> str:
    last = track.latest
    told = last.remaining is not None and last.limit is not None
    left = f"{last.remaining} of {last.limit} left" if told else "allowance not told"
    marked = [
        f"{count} {what}"
        for count, what in ((track.exhausted, "exhausted"), (track.failed, "failed"))
        if count
    ]
    return ", ".join([left, *marked])


def _drawn(track: Track, renews_in_s: float | None) -> dict[str, object]:
    last = track.latest
    return {
        "name": track.name,
        "limit": last.limit,
        "remaining": last.remaining,
        "status": last.status,
        "renews_in_s": renews_in_s,
        "responses": track.responses,
        "exhausted": track.exhausted,
        "failed": track.failed,
        "unsound": track.unsound,
        "per_bin": track.per_bin,
        "bins": [
            [each.low, each.high, each.last, each.exhausted, each.failed] for each in track.bins
        ],
    }
