"""The modes of a session: the methods `live`, `record` and `replay` of `Session`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from .cassettes import DEFAULT_MATCH_ON, Cassette, shown_path
from .display import plural
from .errors import argument_error
from .redaction import Redactor
from .transports import Mode, RefusingTransport

if TYPE_CHECKING:
    from .cassettes.player import Matcher
    from .sessions import Session

Timing = Literal["instant", "recorded"] | float

_NOTHING_SENT: Final = RefusingTransport("This session only replays.")

_F = TypeVar("_F", bound="Callable[..., Any]")


class ModeChange:
    """A mode that a session has entered; the end of its ``with`` block restores the previous one.

    As a decorator it enters the mode for each call of the function, which may be async.

    Attributes
    ----------
    again
        A function that enters the mode once more.
    """

    def __init__(self, session: Session, open_mode: Callable[[], Mode]) -> None:
        self._session = session
        self._previous, self._mode = session._transport.change(open_mode)
        self.again: Callable[[], ModeChange] = lambda: ModeChange(session, open_mode)

    def __enter__(self) -> Session:
        return self._session

    def __exit__(self, *_: object) -> None:
        self._session._transport.enter(self._previous)

    def __call__(self, function: _F) -> _F:
        self.__exit__()  # outside of the calls, the session is in its previous mode

        @functools.wraps(function)
        def calling(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def calling_async(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return await function(*args, **kwargs)

        return cast("_F", calling_async if inspect.iscoroutinefunction(function) else calling)

    def __repr__(self) -> str:
        cassette = self._mode.cassette
        if cassette is None:
            return f"Live at {self._session.base_url}"
        what = "Recording to" if self._mode.name == "record" else "Replaying"
        count = plural(len(cassette), "interaction")
        file = shown_path(cassette.path)
        return f"{what} cassette {cassette.name!r} ({count})" + (f" in {file}" if file else "")


def live(self: Session) -> ModeChange:
    """Send every request of the session to the service, and record none.

    Also a context manager and a decorator, as `record` is.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    """
    return ModeChange(self, self._live)


def record(
    self: Session,
    cassette: str | Path,
    *,
    record_mode: str = "new_episodes",
    redact: Iterable[str] = (),
    match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
    on_write_error: Literal["raise", "continue"] = "raise",
    metadata: Mapping[str, object] | None = None,
) -> ModeChange:
    """Record the session to a cassette.

    The mode lasts until the next change of mode; as a context manager or as a decorator, until
    the end of the block or of the call.

    Parameters
    ----------
    cassette
        A bare name, kept in the nearest ``cassettes`` folder, or a `Path` to a file.
    record_mode
        vcrpy's: ``"new_episodes"`` replays what the cassette has and records the rest,
        ``"once"`` records only where there is no such file yet, ``"all"`` records everything
        anew and replaces the file when it is closed, ``"none"`` only replays.
    redact
        Personal data to replace by stable pseudonyms: field names, dotted paths, and
        ``"personal"`` for e-mail addresses and telephone numbers anywhere, and for fields that
        by their name hold a name, postal address, company, birth date or bank account. The key
        is always removed.
    match_on
        What must be equal in two requests: names of vcrpy's matchers, and functions that
        compare two of vcrpy's requests.
    on_write_error
        What happens when the disk is full: ``"raise"`` raises `CassetteError`, ``"continue"``
        logs a warning and goes on without recording. What was recorded before is kept.
    metadata
        Values to write at the start of a new cassette, besides those of this package.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    CassetteInUseError
        Another recording holds the cassette.
    CassetteError
        The cassette cannot be read or written, or its name leads out of the folder.
    """
    redact = tuple(redact)

    def recording() -> Mode:
        if record_mode != "none":
            self._require_key("record")
        opened = Cassette(
            cassette,
            record_mode=record_mode,
            redactor=Redactor(redact=redact),
            base_url=self.base_url,
            match_on=match_on,
            on_write_error=on_write_error,
            metadata=metadata,
            clock=self._clock,
        )
        if record_mode == "none":
            return Mode("replay", _NOTHING_SENT, opened)
        return Mode("record", self._sending(opened), opened)

    return ModeChange(self, recording)


def replay(
    self: Session,
    cassette: str | Path,
    *,
    timing: Timing = "instant",
    repeat: Literal["last", "strict"] = "last",
    match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
) -> ModeChange:
    """Answer from a cassette alone, with no key and no network.

    Also a context manager and a decorator, as `record` is. Without a current session,
    ``dm.replay`` opens one that can only replay.

    Parameters
    ----------
    cassette
        A bare name, looked up in ``DIRECTMAIL_CASSETTES``, the nearest ``cassettes`` folder
        upward and the packaged tutorials; or a `Path` to a file.
    timing
        ``"instant"``; ``"recorded"`` to wait as long as the service took; or a factor of that,
        such as 0.5. It never waits more than 30 s for a response.
    repeat
        What follows the last recorded response to a request: the same response again
        (``"last"``), or `NotRecordedError` (``"strict"``).
    match_on
        See `record`.

    Raises
    ------
    NotRecordedError
        There is no such cassette.
    CassetteFormatError
        The file is not a cassette.
    """
    factor = latency_factor(timing)

    def replaying() -> Mode:
        opened = Cassette(cassette, match_on=match_on, repeat=repeat)
        return Mode("replay", _NOTHING_SENT, opened, factor)

    return ModeChange(self, replaying)


def latency_factor(timing: Timing) -> float:
    """Return the factor of recorded latencies that a replay waits: 0 not at all, 1 as recorded."""
    factor = {"instant": 0.0, "recorded": 1.0}.get(timing) if isinstance(timing, str) else timing
    if factor is None or not factor >= 0:
        raise argument_error(
            'timing is "instant", "recorded", or a factor of the recorded latencies.'
        )
    return float(factor)
