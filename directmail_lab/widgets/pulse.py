"""Calls that follow events, but not faster than one can watch, and once more when they end."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pulse"]

_log = logging.getLogger(__name__)


class Pulse:
    """Calls ``update`` soon after a `beat`, at most once in an interval, and ``settled`` after.

    A thread of its own does it: a beat costs the thread that gives it next to nothing. The thread
    ends when there was nothing to do for a while, and starts again with the next beat.

    Parameters
    ----------
    update
        Called after beats; the last beat is always followed by a call.
    settled
        Called when no beat came for ``settled_s`` seconds.
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
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._running = False

    def beat(self, *_: object) -> None:
        """Note that something happened; what it was does not matter."""
        if self._due.is_set():
            return
        with self._lock:
            self._due.set()
            if self._running or self._stopping.is_set():
                return
            self._running = True
        threading.Thread(target=self._run, name="directmail_lab monitor", daemon=True).start()

    def stop(self) -> None:
        """Call nothing any more."""
        self._stopping.set()
        self._due.set()

    def _run(self) -> None:
        while self._due.wait(self._settled_s) and not self._stopping.is_set():
            self._due.clear()
            _try(self._update)
            self._stopping.wait(self._interval_s)
        if not self._stopping.is_set():
            _try(self._settled)
        with self._lock:
            self._running = False
            again = self._due.is_set() and not self._stopping.is_set()
        if again:
            self._due.clear()
            self.beat()


def _try(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        # The page may be gone; the requests that are watched go on.
        _log.debug("A live picture could not be shown", exc_info=True)
