"""The live monitor: what remains of each allowance, while requests are made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..current import current_session, session
from . import Throttle, Widget, page, seconds_to_renewal, source_of
from .history import History, OperationHistory

if TYPE_CHECKING:
    from ..sessions import Session


_MOST_SHOWN: Final = 8
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


class MonitorWidget(Widget):
    """Follows the current session's readings; see `monitor`.

    What a saved notebook holds of it is a PNG, in an output of its own below.
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
        """Go on with the session that is now the current one; with none, say so."""
        followed = current_session()
        if self._stopped:
            return
        if followed is not None and followed is not self._session:
            self._unsubscribe()
            self._follow(followed)
        self._throttle.notify()

    def _operations(self) -> list[OperationHistory]:
        """Return the operations to show, once the readings that came meanwhile are taken in.

        They are taken from the session's log, so that none is missed and none counts twice.
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
        """Return all that the page draws. Its size does not grow with the number of readings."""
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
        """Return what is followed, in words, and what to do where that is nothing."""
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
            self._unwatch()  # marimo goes on showing it, and needs the connection for that
        else:
            super().close()

    def keep_picture(self) -> None:
        """Renew the PNG in the notebook."""
        if len(self._session.readings):
            self._publish(1, *self.still())

    def still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the readings so far as a PNG, and in words for where no picture is shown."""
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
        "bins": [
            [each.low, each.high, each.last, each.exhausted, each.failed] for each in operation.bins
        ],
    }
