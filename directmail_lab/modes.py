"""The modes of a session, and the change from one to another."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from .cassettes import DEFAULT_MATCH_ON, Cassette, open_cassette, shown_path
from .display import plural
from .errors import NotConnectedError
from .network import NetworkTransport
from .pacing import Pacer, PacingTransport
from .redaction import Redactor
from .transports import (
    Mode,
    ModeName,
    Observer,
    ObservingTransport,
    RefusingTransport,
    SessionTransport,
    Transport,
)

if TYPE_CHECKING:
    from .cassettes.player import Matcher
    from .sessions import Session

Timing = Literal["instant", "recorded"] | float

_NOTHING_SENT: Final = RefusingTransport("This session only replays.")

_F = TypeVar("_F", bound="Callable[..., Any]")


@dataclass(repr=False)
class ModeChange:
    """A mode that a session has entered; the end of its ``with`` block restores the previous one.

    As a decorator it enters the mode for each call of the function, which may be async.

    Attributes
    ----------
    again
        A function that enters the mode once more.
    """

    _session: Session
    _mode: Mode
    _restore: Callable[[], None]
    again: Callable[[], ModeChange]

    def __enter__(self) -> Session:
        return self._session

    def __exit__(self, *_: object) -> None:
        self._restore()

    def __call__(self, function: _F) -> _F:
        self._restore()  # outside of the calls, the session is in its previous mode

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


class SessionWithModes:
    """The part of `Session` that builds the transports of each mode and changes the mode.

    Attributes
    ----------
    base_url
        The session's base address.
    """

    base_url: str
    _network: NetworkTransport | None  # None in a session that has no key
    _transport: SessionTransport
    _pacer: Pacer
    _observe: Observer
    _clock: Callable[[], float]
    _timer: Callable[[], float]
    _changing: threading.RLock

    @property
    def mode(self) -> ModeName:
        """``"live"``, ``"record"`` or ``"replay"``."""
        return self._transport.mode.name

    @property
    def cassette(self) -> str | None:
        """The name of the cassette that records or replays, or None."""
        return None if self.open_cassette is None else self.open_cassette.name

    @property
    def open_cassette(self) -> Cassette | None:
        """The `Cassette` that records or replays, or None."""
        return self._transport.mode.cassette

    def live(self) -> ModeChange:
        """Send every request of the session to the service, and record none.

        Also a context manager and a decorator, as `record` is.

        Raises
        ------
        NotConnectedError
            No session is open, or it has no key.
        """
        return self._change(self._live)

    def record(
        self,
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
            vcrpy's: ``"new_episodes"`` replays what the cassette holds and records the rest,
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
            opened = open_cassette(
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

        return self._change(recording)

    def replay(
        self,
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
            such as 0.5. It never waits more than 30 s for an answer.
        repeat
            What follows the last recorded answer to a request: the same answer again
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
            opened = open_cassette(cassette, match_on=match_on, repeat=repeat)
            return Mode("replay", _NOTHING_SENT, opened, factor)

        return self._change(replaying)

    def _live(self) -> Mode:
        self._require_key("go live")
        return Mode("live", self._sending())

    def _require_key(self, purpose: str) -> None:
        if self._network is None:
            raise NotConnectedError(
                f"This session has no key, so it cannot {purpose}. "
                "Sign in with login(), or connect(base_url=…, api_key=…)."
            )

    def _sending(self, cassette: Cassette | None = None) -> Transport:
        """Return the transports that a request passes on its way to the service."""
        assert self._network is not None
        observing = ObservingTransport(
            self._network, self._observe, cassette=cassette, clock=self._clock, timer=self._timer
        )
        return PacingTransport(observing, self._pacer, clock=self._clock)

    def _change(self, open_mode: Callable[[], Mode]) -> ModeChange:
        with self._changing:
            before = self._transport.mode
            try:
                # The cassette that is opened next may be the same one.
                _pause(before)
                mode = open_mode()
            except BaseException:
                _resume(before)
                raise
            self._enter(mode)
        session = cast("Session", self)
        return ModeChange(
            session, mode, lambda: self._enter(before), lambda: self._change(open_mode)
        )

    def _enter(self, mode: Mode) -> None:
        with self._changing:
            left = self._transport.mode
            try:
                if left.cassette is not mode.cassette:
                    _pause(left)
            finally:  # even if a full disk keeps the recording from being closed
                _resume(mode)
                self._transport.mode = mode

    def _end_modes(self) -> None:
        """End the recording if there is one, and close all connections."""
        with self._changing:
            try:
                self._enter(Mode("live", RefusingTransport("This session is closed.")))
            finally:
                network, self._network = self._network, None
                if network is not None:
                    network.close()


def _pause(mode: Mode) -> None:
    """Close a mode's recording: write its end line, and release its lock."""
    if mode.cassette is not None:
        mode.cassette.close()


def _resume(mode: Mode) -> None:
    """Open a mode's recording again if it was closed."""
    if mode.cassette is not None:
        mode.cassette.resume()


def latency_factor(timing: Timing) -> float:
    """Return the factor of recorded latencies that a replay waits: 0 not at all, 1 as recorded."""
    factor = {"instant": 0.0, "recorded": 1.0}.get(timing) if isinstance(timing, str) else timing
    if factor is None or not factor >= 0:
        raise ValueError('timing is "instant", "recorded", or a factor of the recorded latencies.')
    return float(factor)
