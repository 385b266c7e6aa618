"""The live monitor: how many requests remain of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..display import plural
from ..questions.sources import Source, describe, recording_of
from ..readings.reading import Reading, mark_of
from ..readings.reset_unit import renewal_time
from ..readings.sharing import SharedAllowances, name_of_shared
from ..sessions.current import current_session, session
from ..sessions.session import Session, allowances_of
from .browser_data import read_page
from .widget import Follower, Widget, describe_mode, nothing_played

if TYPE_CHECKING:
    from ..cassettes import Recording

MAX_POINTS = 400
"""How many responses of an operation are drawn: somewhat more than a typical window allows."""
_MAX_SHOWN = 8
_UPDATE_S = 0.1


def monitor(source: Source = None) -> MonitorWidget:
    """Show how many requests remain of each allowance, live.

    Requests may come from any loop, thread or task; the page is updated at most
    ten times a second. It draws the last 400 responses of each operation, or of
    all that share an allowance, as their readings show. It counts down while a
    request waits. ``.close()`` or its button stops it. The saved notebook keeps
    a PNG with all readings of the first recording that the monitor showed, even
    if it follows another session or replay later.

    Parameters
    ----------
    source
        By default, the monitor follows the current session. A `Session` is the
        only one that it follows. A cassette's name or path shows what was
        recorded, and nothing moves.

    Raises
    ------
    NotConnectedError
        No source is given and no session is open.
    CassetteError, ValueError
        As in `rate_limits`; several sources are refused.
    """
    if source is None:
        return MonitorWidget(session(), is_fixed=False)
    return MonitorWidget(source if isinstance(source, Session) else recording_of(source))


class Operation:
    """One operation: its latest reading, counts of its responses, and its latest points.

    It may stand for all operations that share an allowance. A point is the ``remaining`` of a
    response (None if unknown) and its mark; see `mark_of`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counter[str](responses=0, refused=0, failed=0)
        self.points: deque[tuple[int | None, str]] = deque(maxlen=MAX_POINTS)

    def add(self, reading: Reading) -> None:
        """Add the next response."""
        mark = mark_of(reading).replace("aborted", "failed")
        self.latest = reading
        self.limit = None if reading.elsewhere else reading.limit
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
        self._by_limit: dict[int | None, Operation] = {}
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
            limit = operation.limit
            if limit is not None:
                together = self._by_limit.setdefault(limit, Operation(name_of_shared(limit)))
                together.add(reading)
                self._sharing.observe(name, limit, reading.remaining)
        shown: dict[str, Operation] = {}
        for operation in self.operations.values():
            if self._sharing.is_shared(operation.limit):
                operation = self._by_limit[operation.limit]
            shown.pop(operation.name, None)
            shown[operation.name] = operation
        return list(shown.values())[-_MAX_SHOWN:]


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    A saved notebook contains only a PNG, as a second output.
    """

    _esm, _css = read_page("monitor")

    def __init__(self, source: Session | Recording, *, is_fixed: bool = True) -> None:
        recording = source.recording if isinstance(source, Session) else source
        self._lock = threading.Lock()
        self._is_fixed = is_fixed
        self._is_stopped = False
        self._history = History(recording)
        self._pictured: Recording = recording
        super().__init__()
        if isinstance(source, Session):
            self.follower = Follower(self, source, interval_s=_UPDATE_S, is_fixed=is_fixed)

    def __repr__(self) -> str:
        return f"Rate-limit monitor, {plural(len(self._pictured), 'response')}."

    def update_page(self) -> None:
        self.send(self.snapshot())

    def snapshot(self) -> dict[str, object]:
        """Return what the page shows. Its size does not grow with the readings."""
        followed = self._followed()
        waits_s = []
        with self._lock:
            if followed is not None:
                waits_s = [
                    until - time.time() for until in allowances_of(followed).waiting_until.values()
                ]
                if followed.recording is not self._history.recording:
                    self._history = History(followed.recording)
                    if not len(self._pictured):
                        self._pictured = followed.recording
            shown = self._history.update()
            source, note = self._describe_state(followed)
            return {
                "live": followed is not None,
                "source": source,
                "note": note,
                # A wait that is over is left out: the request now waits for another's response.
                "waits_s": min((each for each in waits_s if each > 0), default=None),
                "responses": self._history.responses,
                "operations": [self._describe(operation, followed) for operation in shown],
            }

    def _followed(self) -> Session | None:
        """Return the session that the monitor follows now, if any."""
        if self.follower is None or self._is_stopped:
            return None
        followed = self.follower.session
        return followed if self._is_fixed or current_session() is followed else None

    def _describe(self, operation: Operation, followed: Session | None) -> dict[str, object]:
        latest = operation.latest
        renews_at = None
        age_s = None
        # The windows of a replay renewed long ago.
        if followed is not None and followed.mode != "replay":
            renews_at = renewal_time(latest, followed.recording.evidence.unit)
            age_s = time.time() - latest.at
        return {
            "name": operation.name,
            **operation.counts,
            "limit": latest.limit,
            "remaining": latest.remaining,
            # Durations, since the page may run on a machine with another clock.
            "renews_in_s": None if renews_at is None else renews_at - time.time(),
            "age_s": age_s,
            "points": list(operation.points),
        }

    def _describe_state(self, followed: Session | None) -> tuple[str, str]:
        """Return what the monitor follows, and advice if there is nothing to see."""
        if followed is not None:
            return describe_mode(followed), nothing_played(followed.recording)
        if self.follower is None:
            return f"{self._pictured.title}{self._pictured.recorded_note}", ""
        if self._is_stopped:
            return "Stopped", "Run this cell again to follow the current session."
        return "No session is open", "Sign in with dm.login(). The monitor follows your session."

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
        if self.follower is not None:
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
