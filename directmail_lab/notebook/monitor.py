"""The live monitor: how many requests remain of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..display import plural
from ..questions.sources import describe
from ..readings.reading import Reading
from ..readings.reset_unit import renewal_time
from ..readings.sharing import SharedAllowances, name_of_shared
from ..sessions.current import current_session, session
from .browser_data import mark_of, read_page
from .widget import Follower, Widget, describe_mode, nothing_played

if TYPE_CHECKING:
    from ..cassettes import Recording
    from ..sessions.session import Session


MAX_POINTS = 400
"""How many responses of an operation are drawn: somewhat more than a typical window allows."""
_MAX_SHOWN = 8
_UPDATE_S = 0.1


def monitor() -> MonitorWidget:
    """Show how many requests remain of each allowance, live.

    Requests may come from any loop, thread or task; the page is updated at most
    ten times a second. It draws the last 400 responses of each operation, or of
    all that share an allowance, as their readings show. It counts down while a
    request waits. ``.close()`` or its button stops it. The saved notebook keeps
    a PNG with all readings of the first recording that the monitor showed, even
    if it follows another session or replay later.

    Raises
    ------
    NotConnectedError
        No session is open.
    """
    return MonitorWidget(session())


class Operation:
    """One operation: its latest reading, counts of its responses, and its latest points.

    It may stand for all operations that share an allowance. A point is the ``remaining`` of a
    response (None if unknown) and its mark; see `mark_of`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counter[str](responses=0, exhausted=0, failed=0)
        self.points: deque[tuple[int | None, str]] = deque(maxlen=MAX_POINTS)

    def add(self, reading: Reading) -> None:
        """Add the next response."""
        mark = mark_of(reading).replace("aborted", "failed")
        self.latest = reading
        self.counts["responses"] += 1
        if mark:
            self.counts[mark] += 1
        self.points.append((reading.remaining, mark))


class History:
    """The operations of a recording; the one used most recently comes last.

    Readings with the same limit are also kept together, for when they show that their operations
    share one allowance.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.operations: dict[str, Operation] = {}
        self.responses = 0
        self._by_limit: dict[int, Operation] = {}
        self._sharing = SharedAllowances()

    def update(self) -> list[Operation]:
        """Add the recording's new readings, each once, and return the operations to show."""
        for number in range(self.responses + 1, len(self.recording) + 1):
            self.responses += 1
            reading = self.recording.reading(number)
            if reading.is_earlier and not self.recording.is_replay:
                continue  # it says nothing about the allowance that is left now
            name = f"{reading.method} {reading.operation}"
            operation = self.operations.pop(name, None) or Operation(name)
            operation.add(reading)
            self.operations[name] = operation
            limit = None if reading.elsewhere else reading.limit
            if limit is not None:
                together = self._by_limit.setdefault(limit, Operation(name_of_shared(limit)))
                together.add(reading)
                self._sharing.observe(name, limit, reading.remaining)
        shown: dict[str, Operation] = {}
        for operation in self.operations.values():
            latest = operation.latest
            limit = None if latest.elsewhere else latest.limit
            if limit is not None and self._sharing.is_shared(limit):
                operation = self._by_limit[limit]
            shown.pop(operation.name, None)
            shown[operation.name] = operation
        return list(shown.values())[-_MAX_SHOWN:]


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    A saved notebook contains only a PNG, as a second output.
    """

    _esm, _css = read_page("monitor")

    def __init__(self, session: Session) -> None:
        self._lock = threading.Lock()
        self._is_stopped = False
        self._history = History(session.recording)
        self._pictured: Recording = session.recording
        super().__init__()
        self.follower: Follower = Follower(self, session, interval_s=_UPDATE_S)

    def __repr__(self) -> str:
        return f"Rate-limit monitor, {plural(len(self._pictured), 'response')}."

    def update_page(self) -> None:
        self.send(self.snapshot())

    def snapshot(self) -> dict[str, object]:
        """Return what the page shows. Its size does not grow with the readings."""
        followed = self.follower.session
        is_live = current_session() is followed and not self._is_stopped
        waits_s = [until - time.time() for until in followed.allowances.waiting_until.values()]
        with self._lock:
            if is_live and followed.recording is not self._history.recording:
                self._history = History(followed.recording)
                if not len(self._pictured):
                    self._pictured = followed.recording
            shown = self._history.update()
            source, note = self._describe_state()
            return {
                "live": is_live,
                "source": source,
                "note": note,
                # A wait that is over is left out: the request now waits for another's response.
                "waits_s": min((each for each in waits_s if is_live and each > 0), default=None),
                "responses": self._history.responses,
                "operations": [self._describe(operation, is_live=is_live) for operation in shown],
            }

    def _describe(self, operation: Operation, *, is_live: bool) -> dict[str, object]:
        latest = operation.latest
        followed = self.follower.session
        renews_at = renewal_time(latest, followed.recording.evidence.unit)
        if not is_live or followed.mode == "replay":  # the windows of a replay renewed long ago
            renews_at = None
        return {
            "name": operation.name,
            **operation.counts,
            "limit": latest.limit,
            "remaining": latest.remaining,
            # A duration, since the page may run on a machine with another clock.
            "renews_in_s": None if renews_at is None else renews_at - time.time(),
            "points": list(operation.points),
        }

    def _describe_state(self) -> tuple[str, str]:
        """Return what the monitor follows, and advice if there is nothing to see."""
        followed = self.follower.session
        if self._is_stopped:
            return "Stopped", "Run this cell again to follow the current session."
        if current_session() is not followed:
            return "No session is open", "Sign in with login(). The monitor follows your session."
        return describe_mode(followed), nothing_played(followed.recording)

    def receive(self, kind: str, _buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send what the page shows, or stop."""
        if kind == "hello":
            self.update_page()
        elif kind == "stop":
            self.close()

    def close(self) -> None:
        """Stop following. The last state stays."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.follower.stop()
        with contextlib.suppress(Exception):
            self.update_page()
            self.update_static_output()
            self._show("live", {"text/plain": repr(self)}, {}, update=True)
        if self._display_id is None:
            self._unwatch()  # marimo still shows the widget, and needs its connection for that
        else:
            super().close()

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the pictured readings as a PNG, and as text if no picture can be shown."""
        recording = self._pictured
        if not len(recording):
            return super().static_output()
        from ..questions.chart import chart_rate_limits
        from ..readings.frame import frame_of

        frame = frame_of(recording.readings(), unit=recording.evidence.unit)
        frame.attrs.update(describe(recording))
        return chart_rate_limits(frame)._repr_mimebundle_()
