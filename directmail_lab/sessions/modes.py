"""A change of a session's mode: a statement, a ``with`` block or a decorator."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ..arguments import argument_error
from ..cassettes import shown_path
from ..display import plural
from .transports.mode import Mode

if TYPE_CHECKING:
    from .session import Session

_F = TypeVar("_F", bound="Callable[..., Any]")

Timing = Literal["instant", "recorded"] | float


class Entered(NamedTuple):
    """The mode that a session has entered, and its previous mode."""

    session: Session
    previous: Mode
    mode: Mode


class ModeChange:
    """A mode that a session has entered; the end of its ``with`` block restores the previous one.

    As a decorator, it enters the mode for each call of the function, which may be async. Concurrent
    calls share the mode, which ends when the last of them ends.

    Parameters
    ----------
    enter
        The function that enters the mode. A decorator calls it again for each call.

    Attributes
    ----------
    entered
        What ``enter`` returned.
    """

    def __init__(self, enter: Callable[[], Entered]) -> None:
        self._enter = enter
        self.entered = enter()

    def __enter__(self) -> Session:
        cassette = self.entered.mode.cassette
        if cassette is not None:
            cassette.continue_run()  # only a statement begins a new run
        return self.entered.session

    def __exit__(self, *_: object) -> None:
        self.entered.session.transport.enter(self.entered.previous)

    def enter_again(self) -> None:
        """Enter the mode as if this were the call that entered it first."""
        self.entered = self._enter()

    def is_on(self) -> bool:
        """Return whether the session is still in this mode."""
        return self.entered.session.transport.mode is self.entered.mode

    def __call__(self, function: _F) -> _F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise argument_error(
                f"{function.__name__} yields, so it would run after the mode has ended. Use the "
                'mode in its body, as in: with replay("tour"): …'
            )
        with self:  # between calls, the session is in its previous mode
            pass
        lock = threading.Lock()
        changes: list[ModeChange] = []  # an entry for each running call

        @contextmanager
        def mode_of_a_call() -> Iterator[None]:
            with lock:
                is_on = bool(changes) and changes[-1].is_on()
                change = changes[-1] if is_on else ModeChange(self._enter)
                change.__enter__()
                changes.append(change)
            try:
                yield
            finally:
                with lock:
                    changes.remove(change)
                    if change not in changes:
                        change.__exit__()

        @asynccontextmanager
        async def mode_of_an_async_call() -> AsyncIterator[None]:
            with mode_of_a_call():
                yield

        if inspect.iscoroutinefunction(function):
            return mode_of_an_async_call()(function)
        return mode_of_a_call()(function)

    def __repr__(self) -> str:
        mode = self.entered.mode
        cassette = mode.cassette
        if cassette is None:
            return f"Live at {mode.recording.base_url}"
        what = "Recording to" if mode.name == "record" else "Replaying"
        recording = cassette.recording()
        count = plural(len(recording), "interaction")
        text = f"{what} cassette {cassette.name!r} ({count}{recording.recorded_note})"
        file = shown_path(cassette.path)
        if file:
            text += f" in {file}"
        if cassette.updates:
            what = "what is too old is sent again" if cassette.replays else "requests are sent"
            text += f": {what}, and new responses replace the old ones to the same requests."
        return text


def latency_factor(timing: Timing) -> float:
    """Return the factor for recorded latencies in a replay: 0 does not wait, 1 waits as long."""
    if timing == "instant":
        return 0.0
    if timing == "recorded":
        return 1.0
    if isinstance(timing, Real) and timing >= 0:
        return float(timing)
    raise argument_error(
        'timing must be "instant", "recorded", or a factor of the recorded latencies.'
    )
