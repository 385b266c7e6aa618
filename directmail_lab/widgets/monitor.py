"""The live monitor: how many requests remain of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..current import current_session, describe, session
from ..readings.reading import Reading
from .page import mark_of, read_page
from .widget import Throttle, Widget, seconds_to_renewal

if TYPE_CHECKING:
    from ..cassettes import Recording
    from ..sessions import Session


MAX_POINTS: Final = 400
"""How many responses of an operation are drawn: somewhat more than a usual window has."""
MAX_OPERATIONS: Final = 32
_MAX_SHOWN: Final = 8
_UPDATE_S: Final = 0.1


def monitor() -> MonitorWidget:
    """Show how many requests remain of each allowance, live, for the current session.

    Requests may come from any loop, thread or task; the page is updated at most ten times a second.
    It draws the last 400 responses of each operation, and counts down while a request waits.
    ``.close()`` or its button stops it. A PNG stays in the notebook: all readings of the session
    that was current when the monitor was shown, whichever it follows later.

    Raises
    ------
    NotConnectedError
        No session is open.
    """
    return MonitorWidget(session())


class OperationHistory:
    """One operation: its latest reading, counts of its responses, and the last of them.

    A point is a response's ``remaining`` (None if unknown) and its mark, see `mark_of`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counter[str](responses=0, exhausted=0, failed=0, faulty=0)
        self.points: deque[tuple[int | None, str]] = deque(maxlen=MAX_POINTS)

    def add(self, reading: Reading) -> None:
        """Add the next response."""
        mark = mark_of(reading)
        self.latest = reading
        self.counts.update(["responses", mark] if mark else ["responses"])
        self.counts["faulty"] += reading.problem is not None
        self.points.append((reading.remaining, mark))

    def __str__(self) -> str:
        remaining, limit = self.latest.remaining, self.latest.limit
        is_known = remaining is not None and limit is not None
        parts = [f"{remaining} of {limit} left" if is_known else "allowance unknown"]
        parts += [f"{n} {mark}" for mark in ("exhausted", "failed") if (n := self.counts[mark])]
        return f"{self.name}: {', '.join(parts)}"


class History:
    """The operations of a recording; the one used most recently comes last."""

    def __init__(self) -> None:
        self.operations: dict[str, OperationHistory] = {}
        self.responses = 0

    def add(self, reading: Reading) -> None:
        """Add the next response, in constant time."""
        name = f"{reading.method} {reading.operation}"
        operation = self.operations.pop(name, None) or OperationHistory(name)
        operation.add(reading)
        self.operations[name] = operation
        self.responses += 1
        if len(self.operations) > MAX_OPERATIONS:
            del self.operations[next(iter(self.operations))]

    def update(self, recording: Recording) -> list[OperationHistory]:
        """Add a recording's new readings, each exactly once, and return the operations to show."""
        for number in range(self.responses + 1, len(recording) + 1):
            self.add(recording.reading(number))
        return list(self.operations.values())[-_MAX_SHOWN:]


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    A saved notebook contains only a PNG, as a second output.
    """

    _esm, _css = read_page("common", "widget", "monitor")

    def __init__(self, session: Session) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._throttle = Throttle(self.update_page, self._settle, interval_s=_UPDATE_S)
        self._pictured = session.recording
        self._responses_pictured = 0
        self._was_waiting = False
        self._follow(session)
        super().__init__()

    def __repr__(self) -> str:
        lines = list(map(str, History().update(self._pictured)))
        return "Rate-limit monitor. " + ("; ".join(lines) or "No responses yet.")

    def _follow(self, session: Session) -> None:
        """Show a session's recording; each `replay` starts another one."""
        with self._lock:
            self._session, self._recording = session, session.recording
            self._history = History()
            if not len(self._pictured):
                self._pictured = self._recording
        self._unsubscribe = session.on_reading(self._throttle.notify)

    def follow_current(self) -> None:
        """Switch to the new current session; if there is none, say so."""
        current = current_session()
        if self._stopped:
            return
        if current is not None and current is not self._session:
            self._unsubscribe()
            self._follow(current)
        self._throttle.notify()

    def update_page(self) -> None:
        """Send what the page shows."""
        self.send(self.snapshot())

    def _settle(self) -> None:
        """Show a wait that began or ended without a response, and draw the picture anew."""
        if (self._seconds_to_wait() is not None) != self._was_waiting:
            self.update_page()
        if len(self._pictured) != self._responses_pictured:
            self.update_static_output()

    def _seconds_to_wait(self) -> float | None:
        """Return the seconds until a request is sent that waits for the allowance."""
        waits = self._session.waiting_until.values()
        return min(waits) - time.time() if waits else None

    def snapshot(self) -> dict[str, object]:
        """Return what the page shows. Its size does not grow with the readings."""
        if self._session.recording is not self._recording:
            self._unsubscribe()
            self._follow(self._session)
        source, advice = self._describe_state()
        wait_s = None if advice else self._seconds_to_wait()
        self._was_waiting = wait_s is not None
        with self._lock:
            shown = self._history.update(self._recording)
            return {
                "live": not advice,
                "source": source,
                "advice": advice,
                "waits_s": wait_s,
                "responses": self._history.responses,
                "more": len(self._history.operations) - len(shown),
                "operations": [self._describe(operation, live=not advice) for operation in shown],
            }

    def _describe(self, operation: OperationHistory, *, live: bool) -> dict[str, object]:
        latest = operation.latest
        return {
            "name": operation.name,
            **operation.counts,
            "limit": latest.limit,
            "remaining": latest.remaining,
            "renews_in_s": seconds_to_renewal(latest, self._session) if live else None,
            "points": list(operation.points),
        }

    def _describe_state(self) -> tuple[str, str]:
        """Return what is followed, and advice if that is nothing."""
        followed = self._session
        if self._stopped:
            return "Stopped", "Run this cell again to follow the current session."
        if current_session() is not followed:
            return "No session is open", "Sign in with login(), and this follows the new session."
        shared = followed.shared_with if followed.mode != "replay" else ""
        return f"{self._recording.title}, {shared}" if shared else self._recording.title, ""

    def receive(self, kind: str, _buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send what the page shows, or stop."""
        if kind == "hello":
            self._throttle.start()
            self.update_page()
        elif kind == "stop":
            self.close()

    def close(self) -> None:
        """Stop following. The last state stays."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self._throttle.stop()
        with contextlib.suppress(Exception):
            self.update_page()
            self.update_static_output()
            self._publish(0, {"text/plain": repr(self)})
        if self._display_ids is None:
            self._unwatch()  # marimo still shows the widget, and needs its connection for that
        else:
            super().close()

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the pictured readings as a PNG, and as text where no picture can be shown."""
        self._responses_pictured = len(self._pictured)
        if not self._responses_pictured:
            return super().static_output()
        from ..questions.chart import chart_rate_limits
        from ..readings.frame import frame_of

        recording = self._pictured
        frame = frame_of(recording.readings(), unit=recording.evidence.unit)
        frame.attrs.update(describe(recording))
        chart = chart_rate_limits(frame)
        data, metadata = chart._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata
