"""Sleeping in short pieces, with a bar that shows how much is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

__all__ = ["Progress", "WaitingBar", "asleep_for", "sleep_for"]

_PIECE_S: Final = 0.25
# A shorter wait is over before anyone wonders.
_SHOWN_FROM_S: Final = 1.0


class _Shown(Protocol):
    def update(self, seconds: float) -> object: ...

    def close(self) -> object: ...


Progress = Callable[[float, str], _Shown]
"""Shows a wait: called with its seconds and its reason, then updated with seconds that are over."""


class WaitingBar:
    """A tqdm bar of a wait, gone when the wait is over; of several waits, the first is shown."""

    _one = threading.Lock()

    def __init__(self, seconds: float, reason: str) -> None:
        self._bar: Any = None
        self._output: Any = None
        if self._one.acquire(blocking=False):
            self._show(
                total=round(seconds, 1),
                desc=reason,
                leave=False,
                bar_format="{desc}: {bar} {n:.0f} of {total:.0f} s",
            )

    def _show(self, **options: Any) -> None:
        from tqdm.auto import tqdm
        from tqdm.notebook import tqdm_notebook

        if not issubclass(tqdm, tqdm_notebook):
            self._bar = tqdm(**options)
            return
        from IPython.display import display

        self._bar = tqdm(display=False, **options)
        self._output = display(self._bar.container, display_id=True)  # type: ignore[no-untyped-call]

    def update(self, seconds: float) -> None:
        """Move on."""
        if self._bar is not None:
            # tqdm warns of a bar that is more than full, as a rounded total or sum may make it.
            self._bar.update(min(seconds, self._bar.total - self._bar.n))

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is None:
            return
        # In a notebook tqdm turns a bar red, and leaves it, where it is not full at the end.
        self._bar.n = self._bar.total
        self._bar.close()
        if self._output is not None:
            # The file too: tqdm leaves its text there.
            self._output.update({}, raw=True)
        self._bar = self._output = None
        self._one.release()


def sleep_for(
    seconds: float,
    reason: str,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    progress: Progress | None,
) -> None:
    """Sleep. An interrupt ends it at once, and takes the bar away."""
    with _pieces(seconds, reason, clock, progress) as pieces:
        for piece in pieces:
            sleep(piece)


async def asleep_for(
    seconds: float,
    reason: str,
    asleep: Callable[[float], Awaitable[None]],
    clock: Callable[[], float],
    progress: Progress | None,
) -> None:
    """Sleep in a task. Cancelling ends it at once, and takes the bar away."""
    with _pieces(seconds, reason, clock, progress) as pieces:
        for piece in pieces:
            await asleep(piece)


@contextmanager
def _pieces(
    seconds: float, reason: str, clock: Callable[[], float], progress: Progress | None
) -> Iterator[Iterator[float]]:
    started = clock()
    shown = None
    if progress is not None and seconds >= _SHOWN_FROM_S:
        shown = progress(seconds, reason)
    try:
        yield _split(seconds, started, clock, shown)
    finally:
        if shown is not None:
            shown.close()


def _split(
    seconds: float, started: float, clock: Callable[[], float], shown: _Shown | None
) -> Iterator[float]:
    """Yield pieces until the time is over, by the clock or, if that was set back, by their sum."""
    slept = 0.0
    while slept < seconds:
        piece = min(seconds - slept, started + seconds - clock())
        if piece <= 0:
            return
        if shown is not None:
            piece = min(piece, _PIECE_S)
        yield piece
        slept += piece
        if shown is not None:
            shown.update(piece)
