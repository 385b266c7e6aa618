"""The live monitor: how many requests remain of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..current import current_session, session
from ..quota import Reading, is_exhausted
from . import Throttle, Widget, page, seconds_to_renewal, source_of

if TYPE_CHECKING:
    from ..sessions import Session


BINS: Final = 160
OPERATIONS: Final = 32
_MOST_SHOWN: Final = 8
_UPDATE_S: Final = 0.1
_SETTLED_S: Final = 1.5


def monitor() -> MonitorWidget:
    """Show how many requests remain of each allowance, live, for the current session.

    Requests may come from any loop, thread or task; the picture is updated at most ten times a
    second. ``.close()`` or its button stops it. A PNG of the readings stays in the notebook.

    Raises
    ------
    NotConnectedError
        No session is open.
    """
    return MonitorWidget(session())


Bin = list[Any]
"""Of consecutive responses: the least, the greatest and the last ``remaining`` (None if unknown),
then how many said that the allowance is used up, and how many had another error status."""


@dataclass(slots=True)
class OperationHistory:
    """One operation: its latest reading, its counts, and its history in at most `BINS` bins.

    A bin stands for ``per_bin`` responses. When all bins are full, neighbours are merged and
    ``per_bin`` doubles, so the cost of adding and of drawing does not grow.
    """

    name: str
    latest: Reading
    responses: int = 0
    faulty: int = 0
    per_bin: int = 1
    bins: list[Bin] = field(default_factory=list)

    def add(self, reading: Reading) -> None:
        """Add the next response."""
        left, status = reading.remaining, reading.status
        exhausted = bool(is_exhausted(status, left))
        point = [left, left, left, int(exhausted), int(status >= 400 and not exhausted)]
        # 4 responses, 2 per bin: two bins are full, so the fifth response opens a third.
        opens_a_bin = self.responses % self.per_bin == 0
        self.latest = reading
        self.responses += 1
        self.faulty += reading.problem is not None
        if not opens_a_bin:
            self.bins[-1] = _merged(self.bins[-1], point)
            return
        if len(self.bins) == BINS:
            self.bins = list(map(_merged, self.bins[::2], self.bins[1::2]))
            self.per_bin *= 2
        self.bins.append(point)

    @property
    def exhausted(self) -> int:
        """The number of responses that said that the allowance is used up."""
        return sum(each[3] for each in self.bins)

    @property
    def failed(self) -> int:
        """The number of responses with another error status."""
        return sum(each[4] for each in self.bins)


def _merged(first: Bin, second: Bin) -> Bin:
    low, high, last = second[:3]
    if low is None or first[0] is None:
        low, high, last = first[:3] if low is None else second[:3]
    else:
        low, high = min(low, first[0]), max(high, first[1])
    return [low, high, last, first[3] + second[3], first[4] + second[4]]


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
        if len(self.operations) > OPERATIONS:
            del self.operations[next(iter(self.operations))]


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    A saved notebook contains only a PNG, as a second output.
    """

    _esm, _css = page("monitor")

    def __init__(self, followed: Session) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._throttle = Throttle(
            self.tell, self.keep_picture, interval_s=_UPDATE_S, settled_s=_SETTLED_S
        )
        self._follow(followed)
        super().__init__()

    def __repr__(self) -> str:
        with self._lock:
            lines = [f"{shown.name}: {_left(shown)}" for shown in self._operations()]
        return "Rate-limit monitor. " + ("; ".join(lines) or "No responses yet.")

    def _follow(self, followed: Session) -> None:
        with self._lock:
            self._session, self._history, self._read = followed, History(), 0
        self._unsubscribe = followed.on_reading(self._throttle.notify)

    def follow_current(self) -> None:
        """Switch to the new current session; if there is none, say so."""
        followed = current_session()
        if self._stopped:
            return
        if followed is not None and followed is not self._session:
            self._unsubscribe()
            self._follow(followed)
        self._throttle.notify()

    def _operations(self) -> list[OperationHistory]:
        """Add the session's new readings to the history, and return the operations to show.

        The readings are taken from the session's log, so that each one counts exactly once.
        """
        new = self._session.readings.since(self._read)
        for reading in new:
            self._history.add(reading)
        self._read += len(new)
        return list(self._history.operations.values())[-_MOST_SHOWN:]

    def tell(self) -> None:
        """Send the picture to the page."""
        self.send(self.picture())

    def picture(self) -> dict[str, object]:
        """Return the data that the page draws. Its size does not grow with the readings."""
        followed = self._session
        source, advice = self._state()
        live = not advice
        with self._lock:
            shown = self._operations()
            return {
                "live": live,
                "source": source,
                "advice": advice,
                "responses": self._history.responses,
                "more": len(self._history.operations) - len(shown),
                "operations": [
                    _drawn(
                        each,
                        seconds_to_renewal(each.latest, followed) if live else None,
                        followed.used_by_others(each.latest) if live else 0,
                    )
                    for each in shown
                ],
            }

    def _state(self) -> tuple[str, str]:
        """Return what is followed, in words, and advice if that is nothing."""
        if self._stopped:
            return "Stopped", "Run this cell again to follow the current session."
        if current_session() is not self._session:
            return "No session is open", "Sign in with login(), and this follows the new session."
        return source_of(self._session), ""

    def receive(self, kind: str, _buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Show the picture, or stop."""
        if kind == "hello":
            self.tell()
        elif kind == "stop":
            self.close()

    def close(self) -> None:
        """Stop following. The last picture stays."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self._throttle.stop()
        with contextlib.suppress(Exception):
            self.tell()
            self.keep_picture()
            self._publish(0, {"text/plain": repr(self)})
        if self._display_ids is None:
            self._unwatch()  # marimo still shows the widget, and needs its connection for that
        else:
            super().close()

    def keep_picture(self) -> None:
        """Update the PNG in the notebook."""
        if len(self._session.readings):
            self._publish(1, *self.still())

    def still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the readings so far as a PNG, and as text where no picture can be shown."""
        if not len(self._session.readings):
            return super().still()
        from ..charts import chart_rate_limits

        data, metadata = chart_rate_limits(self._session.rate_limits())._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def _left(operation: OperationHistory) -> str:
    last = operation.latest
    told = last.remaining is not None and last.limit is not None
    left = f"{last.remaining} of {last.limit} left" if told else "allowance not told"
    exhausted = f", {operation.exhausted} exhausted" if operation.exhausted else ""
    return left + exhausted + (f", {operation.failed} failed" if operation.failed else "")


def _drawn(
    operation: OperationHistory, renews_in_s: float | None, others: int
) -> dict[str, object]:
    last = operation.latest
    return {
        "name": operation.name,
        "limit": last.limit,
        "remaining": last.remaining,
        "renews_in_s": renews_in_s,
        "responses": operation.responses,
        "exhausted": operation.exhausted,
        "failed": operation.failed,
        "faulty": operation.faulty,
        "others": others,
        "bins": list(operation.bins),
    }
