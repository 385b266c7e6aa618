"""The session: two httpx clients on one way to the service, in one of three modes."""

from __future__ import annotations

import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypedDict, Unpack

from .bodies import AnswerShapes
from .cassettes import DEFAULT_MATCH_ON, Cassette, open_cassette
from .contract import ME_PATH
from .credentials import ApiKey, as_api_key
from .errors import CassetteError, DirectMailLabError
from .http import AsyncClient, Client, ClientOptions, httpx, service_error
from .interaction import READING
from .modes import Mode, ModeChange, ModeName, Modes, Timing, decorates, latency_factor
from .network import NetworkTransport
from .pacing import Pace, Pacer
from .readings import ReadingLog
from .redaction import Redactor
from .redaction.log_guard import guard_logs
from .settings import base_address
from .transports import RefusingTransport, SwitchingTransport

if TYPE_CHECKING:
    import pandas as pd

    from .cassettes.player import Matcher
    from .quota import Reading
    from .reset_unit import ResetUnit


_log = logging.getLogger(__name__)


class SessionOptions(TypedDict, total=False):
    """What a session may be told besides its address and key: see `Session`."""

    timeout_s: float
    pace: Pace
    max_wait_s: float
    reset_unit: ResetUnit | None
    allow_writes: bool


class Session:
    """An account at one base address: its clients, its readings, and the mode they are in.

    A session starts live if it has a key. It may be used from any number of threads and tasks, and
    any number of sessions may be open at once: nothing is shared between them, nothing is patched.

    Parameters
    ----------
    base_url
        The base address, https (http for this machine alone); a path prefix is kept.
    api_key
        The account's key; None for a session that only replays.
    timeout_s
        Seconds to wait for a connection, and for each part of an answer.
    pace
        ``"burst"`` sends at will while the allowance lasts, ``"even"`` spreads requests over the
        window, ``"off"`` never waits.
    max_wait_s
        The longest, in seconds, that one request waits for the allowance, in all; beyond it
        `QuotaExhaustedError`. A read that the service refuses meanwhile (429) is asked again.
    reset_unit
        The unit of ``X-RateLimit-Reset`` where you know it; else it is inferred (service.md part 8
        leaves it open).
    allow_writes
        Whether methods other than GET, HEAD and OPTIONS may be sent to the live service.
    clock, timer
        What tells the time (seconds since the Unix epoch) and what latencies are measured with.

    Attributes
    ----------
    client, async_client
        httpx's own, for everything that it can do: each passes what the session's mode says. The
        second runs under asyncio. With ``auth=None`` no key is sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: ApiKey | str | None = None,
        *,
        timeout_s: float = 30.0,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: ResetUnit | None = None,
        allow_writes: bool = False,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        try:
            self._api_key = as_api_key(api_key)
        finally:
            api_key = None  # %xmode Verbose prints a frame's arguments into the cell's saved output
        self.base_url = base_address(base_url, only_replays=self._api_key is None)
        self.readings = ReadingLog(reset_unit=reset_unit)
        self.answers = AnswerShapes()
        self._reset_unit = reset_unit
        self._listeners: dict[object, Callable[[Reading], None]] = {}
        self._changing = threading.RLock()
        redactor = Redactor()
        self._redacted = redactor.text
        nowhere = RefusingTransport("This session has no key.")
        self._network: NetworkTransport | None = None
        if self._api_key is not None:
            self._network = NetworkTransport(
                self.base_url, self._api_key, allow_writes=allow_writes
            )
        self._modes = Modes(
            base_url=self.base_url,
            network=self._network,
            pacer=Pacer(self.readings.inference, pace=pace, max_wait_s=max_wait_s),
            on_reading=self._note,
            redacted=self._redacted,
            clock=clock,
            timer=timer,
        )
        self._mode = self._modes.live() if self._network is not None else Mode("live", nowhere)
        self._switch = SwitchingTransport(self._mode.transport)
        common: ClientOptions = {
            "base_url": self.base_url,
            "timeout_s": timeout_s,
            "redacted": self._redacted,
            "on_answer": self._note_shape,
        }
        self.client: httpx.Client = Client(self._switch, **common)
        self.async_client: httpx.AsyncClient = AsyncClient(self._switch, **common)
        self._end_log_guard = guard_logs(redactor)
        # A session that is dropped without close() takes its filter along, which knows the key.
        weakref.finalize(self, self._end_log_guard)

    # -- what is asked ------------------------------------------------------------------

    def me(self) -> pd.DataFrame:
        """Return the user's record, one row (service.md part 4); see `directmail_lab.me`."""
        return self._record_in(self.client.get(ME_PATH))

    async def me_async(self) -> pd.DataFrame:
        """Return the same as `me`, without blocking the event loop."""
        return self._record_in(await self.async_client.get(ME_PATH))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request below the base address; ``options`` are those of `httpx.Client.request`.

        An error status is returned, not raised.
        """
        return self.client.request(method, path, **options)

    def rate_limits(self) -> pd.DataFrame:
        """Return the readings of all responses so far, a row each (see `ReadingLog.frame`).

        Warns where they contradict the ``reset_unit`` that the session was told.
        """
        contradiction = self.readings.evidence().contradiction
        if contradiction:
            warnings.warn(
                f"The readings contradict reset_unit={self._reset_unit!r}: {contradiction}. "
                "Leave it out, and the unit is inferred.",
                stacklevel=2,
            )
        return self.readings.frame()

    def interactions(self) -> pd.DataFrame:
        """Return what the cassette in use holds by now (see `read_interactions`).

        Raises
        ------
        CassetteError
            The session is live: no cassette is in use.
        """
        if self._mode.cassette is None:
            raise CassetteError(
                "This session is live: no cassette is in use. Name one: interactions(…)."
            )
        from .cassettes.view import interactions

        return interactions(self._mode.cassette)

    def on_reading(self, callback: Callable[[Reading], None]) -> Callable[[], None]:
        """Call ``callback`` with each new reading, in the thread that made the request.

        Returns
        -------
        Callable
            Call it to stop.
        """
        token = object()
        self._listeners[token] = callback

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    # -- modes --------------------------------------------------------------------------

    @property
    def mode(self) -> ModeName:
        """``"live"``, ``"record"`` or ``"replay"``."""
        return self._mode.name

    @property
    def cassette(self) -> str | None:
        """The name of the cassette that records or replays, or None."""
        return self._mode.cassette.name if self._mode.cassette is not None else None

    @property
    def open_cassette(self) -> Cassette | None:
        """That cassette itself, or None."""
        return self._mode.cassette

    @property
    def api_key(self) -> ApiKey | None:
        """The key in its holder, which shows it nowhere; None in a session that only replays."""
        return self._api_key

    @decorates
    def live(self) -> ModeChange[Session]:
        """Send every request to the service, and record none."""
        return self._change(self._modes.live)

    @decorates
    def record(
        self,
        cassette: str | Path,
        *,
        record_mode: str = "new_episodes",
        redact: Iterable[str] = (),
        match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
        on_write_error: Literal["raise", "continue"] = "raise",
        metadata: Mapping[str, object] | None = None,
    ) -> ModeChange[Session]:
        """Record to a cassette, by one of vcrpy's record modes; see `directmail_lab.record`.

        Parameters
        ----------
        cassette, record_mode, redact, match_on
            As there.
        on_write_error
            What a full disk does: ``"raise"`` a `CassetteError`, or ``"continue"`` unrecorded, with
            a warning logged. Nothing that was recorded before is lost.
        metadata
            What is written at the head of a new cassette, beside our own.
        """

        def opened() -> Cassette:
            return open_cassette(
                cassette,
                record_mode=record_mode,
                redactor=Redactor(redact=redact),
                base_url=self.base_url,
                match_on=match_on,
                on_write_error=on_write_error,
                metadata=metadata,
                clock=self._modes.clock,
            )

        if record_mode == "none":
            return self._change(lambda: self._modes.replay(opened()))
        return self._change(lambda: self._modes.record(opened))

    @decorates
    def replay(
        self,
        cassette: str | Path,
        *,
        timing: Timing = "instant",
        repeat: Literal["last", "strict"] = "last",
        match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
    ) -> ModeChange[Session]:
        """Answer from a cassette alone, with no key and no network; see `directmail_lab.replay`."""
        factor = latency_factor(timing)

        def opened() -> Mode:
            played = open_cassette(cassette, match_on=match_on, repeat=repeat)
            return self._modes.replay(played, latency_factor=factor)

        return self._change(opened)

    def _change(self, open_mode: Callable[[], Mode]) -> ModeChange[Session]:
        with self._changing:
            before = self._mode
            try:
                # Its cassette may be the very one that is opened next.
                before.pause()
                mode = open_mode()
            except BaseException:
                before.resume()
                raise
            self._enter(mode)
        return ModeChange(self, mode, self.base_url, lambda: self._enter(before))

    def _enter(self, mode: Mode) -> None:
        with self._changing:
            left, self._mode = self._mode, mode
            try:
                if left.cassette is not mode.cassette:
                    left.pause()
            finally:  # a full disk does not keep the session in a mode that it has left
                mode.resume()
                self._switch.inner = mode.transport

    def _note(self, reading: Reading) -> None:
        self.readings.append(reading)
        for callback in list(self._listeners.values()):
            try:
                callback(reading)
            except Exception:
                # An observer's fault never costs the caller a good response.
                _log.exception("An on_reading callback failed")

    def _note_shape(self, response: httpx.Response) -> None:
        reading = response.extensions.get(READING)
        if reading is not None:
            self.answers.add_live(reading, response.headers, response.content)

    def _record_in(self, response: httpx.Response) -> pd.DataFrame:
        """Return the record that a response holds, or raise what its error status means."""
        from .frames import frame

        if response.status_code >= 400:
            raise service_error(response, base_url=self.base_url, redacted=self._redacted)
        return frame(response)

    # -- the end ------------------------------------------------------------------------

    def close(self) -> None:
        """End the recording if there is one, close all connections and forget the key."""
        with self._changing:
            try:
                self._enter(Mode("live", RefusingTransport("This session is closed.")))
            finally:  # also where the recording could not be ended
                network, self._network = self._network, None
                self._modes.network = None
                if network is not None:
                    network.close()
                self._api_key = None
                self._end_log_guard()

    async def aclose(self) -> None:
        """Close as `close` does, and wait for the connections of this event loop."""
        if self._network is not None:
            await self._network.aclose()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Session {self._mode} at {self.base_url}, {len(self.readings)} readings>"

    def __reduce__(self) -> NoReturn:
        raise DirectMailLabError(
            "A session is never pickled: it holds a key. Connect where it runs."
        )


def replaying_session(
    cassette: str | Path, base_url: str | None = None, **options: Unpack[SessionOptions]
) -> Session:
    """Return a session that can only replay, at the address that the cassette was recorded at."""
    if base_url is None:
        with open_cassette(cassette) as recorded:
            base_url = recorded.base_url or "https://recorded.invalid"
    return Session(base_url, **options)
