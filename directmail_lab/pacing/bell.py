"""Waking whoever waits for a name to be called: threads, and tasks of any event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bell"]


class Bell:
    """Rings by name. Who waits says how often it had rung, so that no ring is missed meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung: defaultdict[str, int] = defaultdict(int)
        self._listeners: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)

    def rung(self, name: str) -> int:
        """Return how often it rang for a name."""
        return self._rung[name]

    def ring(self, name: str) -> None:
        """Wake all that wait for a name."""
        with self._lock:
            self._rung[name] += 1
            listeners = self._listeners.pop(name, ())
        for wake in listeners:
            wake()

    def wait(self, name: str, rung: int, seconds: float) -> None:
        """Wait in a thread until it rings again, at most so long."""
        event = threading.Event()
        self._call(name, rung, event.set)
        event.wait(seconds)

    async def wait_async(self, name: str, rung: int, seconds: float) -> None:
        """Wait in a task until it rings again, at most so long."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop may have ended while its task waited.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

        self._call(name, rung, wake)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    def _call(self, name: str, rung: int, wake: Callable[[], object]) -> None:
        with self._lock:
            if self._rung[name] == rung:
                self._listeners[name].append(wake)
                return
        wake()
