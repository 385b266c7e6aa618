"""The live monitor: how many requests remain of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..current import current_session, session
from ..readings.reading import Reading
from .page import mark_of
from .widget import Throttle, Widget, describe_source, read_page, seconds_to_renewal

if TYPE_CHECKING:
    from ..sessions import Session


MAX_POINTS: Final = 400
"""How many responses of an operation are drawn: somewhat more than a usual window has."""
MAX_OPERATIONS: Final = 32
_MAX_SHOWN: Final = 8
_UPDATE_S: Final = 0.1


def monitor() -> MonitorWidget:
    """Show how many requests remain of each allowance, live, for the current session.

    Requests may come from any loop, thread or task; the page is updated at most ten times a second.
    It draws the last 400 responses of each operation. ``.close()`` or its button stops it. A PNG of
    all readings stays in the notebook.

    Raises
    ------
    NotConnectedError
        No session is open.
    """
    return MonitorWidget(session())


@dataclass
class OperationHistory:
    """One operation: its latest reading, how many responses it had, and the last of them.

    A point is a response's ``remaining`` (None if unknown) and its mark, see `mark_of`.
    """

    name: str
    latest: Reading
    responses: int = 0
    exhausted: int = 0
    failed: int = 0
    faulty: int = 0
    points: deque[tuple[int | None, str]] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))

    def add(self, reading: Reading) -> None:
        """Add the next response."""
        mark = mark_of(reading)
        self.latest = reading
        self.responses += 1
        self.exhausted += mark == "exhausted"
        self.failed += mark == "failed"
        self.faulty += reading.problem is not None
        self.points.append((reading.remaining, mark))

    def __str__(self) -> str:
        remaining, limit = self.latest.remaining, self.latest.limit
        is_known = remaining is not None and limit is not None
        parts = [f"{remaining} of {limit} left" if is_known else "allowance unknown"]
        parts += [f"{self.exhausted} exhausted"] if self.exhausted else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return f"{self.name}: {', '.join(parts)}"


class History:
    """The operations of a session; the one used most recently comes last."""

    def __init__(self) -> None:
        self.operations: dict[str, OperationHistory] = {}
        self.responses = 0

    def add(self, reading: Reading) -> None:
        """Add the next response, in constant time."""
        name = f"{reading.method} {reading.operation}"
        operation = self.operations.pop(name, None) or OperationHistory(name, reading)
        operation.add(reading)
        self.operations[name] = operation
        self.responses += 1
        if len(self.operations) > MAX_OPERATIONS:
            del self.operations[next(iter(self.operations))]


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    A saved notebook contains only a PNG, as a second output.
    """

    _esm, _css = read_page("monitor")

    def __init__(self, session: Session) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._throttle = Throttle(self.update_page, self.update_static_output, interval_s=_UPDATE_S)
        self._follow(session)
        super().__init__()

    def __repr__(self) -> str:
        with self._lock:
            lines = list(map(str, self._update_history()))
        return "Rate-limit monitor. " + ("; ".join(lines) or "No responses yet.")

    def _follow(self, session: Session) -> None:
        with self._lock:
            self._session, self._history = session, History()
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

    def _update_history(self) -> list[OperationHistory]:
        """Add the session's new readings to the history, and return the operations to show.

        The readings are taken from the session's log, so that each one counts exactly once.
        """
        for reading in self._session.readings.since(self._history.responses):
            self._history.add(reading)
        return list(self._history.operations.values())[-_MAX_SHOWN:]

    def update_page(self) -> None:
        """Send what the page shows."""
        self.send(self.snapshot())

    def snapshot(self) -> dict[str, object]:
        """Return what the page shows. Its size does not grow with the readings."""
        source, advice = self._describe_state()
        with self._lock:
            shown = self._update_history()
            return {
                "live": not advice,
                "source": source,
                "advice": advice,
                "responses": self._history.responses,
                "more": len(self._history.operations) - len(shown),
                "operations": [self._describe(operation, live=not advice) for operation in shown],
            }

    def _describe(self, operation: OperationHistory, *, live: bool) -> dict[str, object]:
        latest = operation.latest
        counts = ("responses", "exhausted", "failed", "faulty")
        return {
            **{name: getattr(operation, name) for name in ("name", *counts)},
            "limit": latest.limit,
            "remaining": latest.remaining,
            "renews_in_s": seconds_to_renewal(latest, self._session) if live else None,
            "points": list(operation.points),
        }

    def _describe_state(self) -> tuple[str, str]:
        """Return what is followed, and advice if that is nothing."""
        if self._stopped:
            return "Stopped", "Run this cell again to follow the current session."
        if current_session() is not self._session:
            return "No session is open", "Sign in with login(), and this follows the new session."
        return describe_source(self._session), ""

    def receive(self, kind: str, _buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send what the page shows, or stop."""
        if kind == "hello":
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
        """Return the readings so far as a PNG, and as text where no picture can be shown."""
        if not len(self._session.readings):
            return super().static_output()
        from ..questions.chart import chart_rate_limits

        data, metadata = chart_rate_limits(self._session.rate_limits())._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata
