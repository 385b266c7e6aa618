"""The session: two httpx clients on one stack of transports, in one of three modes."""

from __future__ import annotations

import logging
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, Unpack

from .cassettes import Cassette
from .contract import ME_PATH
from .credentials import ApiKey, as_api_key
from .errors import CassetteError, DirectMailLabError, NotConnectedError, hide_frames
from .http import AsyncClient, Client, httpx, service_error
from .interaction import READING, base_path
from .modes import live, record, replay
from .network import NetworkTransport
from .pacing import Allowances, Pace, PacingTransport
from .pacing.shared import Share
from .paging import get_many, pages
from .questions.shapes import ResponseShapes
from .readings.log import Exchanges, ReadingLog
from .redaction import Redactor
from .redaction.redactor import guard_logs
from .settings import base_address
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
    import pandas as pd

    from .readings.reading import Reading
    from .readings.reset_unit import ResetUnit


_log = logging.getLogger(__name__)


class SessionOptions(TypedDict, total=False):
    """The options of a session besides its address and key: see `Session`."""

    timeout_s: float
    pace: Pace
    max_wait_s: float
    reset_unit: ResetUnit | None
    allow_writes: bool
    share: str | Share | None


class Session:
    """An account at one base address: its clients, its readings, and the mode they are in.

    A session starts live if it has a key. Any number of threads and tasks may use it at once. Any
    number of sessions may be open: by default, those with the same key and address share what is
    known of its allowance (see ``share``). No other library is patched.

    Parameters
    ----------
    base_url
        The base address, https (http for this machine alone); a path prefix is kept.
    api_key
        The account's key; None for a session that only replays.
    timeout_s
        Seconds to wait for a connection, and for each part of a response.
    pace
        ``"burst"`` sends at will while the allowance lasts, ``"even"`` spreads requests over the
        window, ``"off"`` never waits.
    max_wait_s
        The most seconds that one request waits for the allowance, over all its attempts; instead
        of a longer wait, `QuotaExhaustedError` is raised. A read that is refused (429) is repeated.
    reset_unit
        The unit of ``X-RateLimit-Reset`` where you know it; else it is inferred (service.md part 8
        leaves it open).
    allow_writes
        Whether methods other than GET, HEAD and OPTIONS may be sent to the live service.
    share
        Which sessions with the same key and address share what is known of its allowance.
        ``"machine"``: this user's on this machine, through a file in the user's state folder.
        ``"redis://…"``, a Redis server's address: those on other machines too. None: this session
        shares nothing. If the file or the server fails, the session paces alone and warns once.
    clock, timer
        ``clock`` returns seconds since the Unix epoch, ``timer`` seconds from any start, which
        latencies are measured with.

    Attributes
    ----------
    client, async_client
        `httpx.Client` and `httpx.AsyncClient`, for everything that they can do. The session's mode
        decides whether a request is sent, recorded or replayed. The second runs under asyncio
        alone. With ``auth=None`` no key is sent.
    """

    @hide_frames
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
        share: str | Share | None = "machine",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._api_key = as_api_key(api_key)
        self.base_url = base_address(base_url, only_replays=self._api_key is None)
        shared = Share(share).open(self._api_key, self.base_url, clock)
        self.readings = ReadingLog(reset_unit=reset_unit)
        self.exchanges = Exchanges()
        self._reset_unit = reset_unit
        self._listeners: dict[object, Callable[[Reading], None]] = {}
        redactor = Redactor()
        self._redacted = redactor.text
        self.response_shapes = ResponseShapes(self._redacted)
        self._clock, self._timer = clock, timer
        self._observe = Observer(
            self._note, base_path(self.base_url), self._redacted, self.exchanges.add
        )
        self._allowances = Allowances(
            pace=pace,
            max_wait_s=max_wait_s,
            reset_unit=lambda: self.readings.inference.unit,
            shared=shared,
        )
        self._network = None
        start = Mode("live", RefusingTransport("This session has no key."))
        if self._api_key is not None:
            self._network = NetworkTransport(self.base_url, self._api_key, allow_writes)
            start = self._live()
        self._transport = SessionTransport(start, self._observe, self.base_url)
        options: dict[str, Any] = {
            "redacted": self._redacted,
            "on_response": self._note_shape,
            "transport": self._transport,
            "base_url": self.base_url,
            "timeout": timeout_s,
        }
        self.client: httpx.Client = Client(**options)
        self.async_client: httpx.AsyncClient = AsyncClient(**options)
        self._end_log_guard = guard_logs(redactor)
        # A session that is dropped without close() must not leave its filter, which has the key.
        weakref.finalize(self, self._end_log_guard)

    # -- modes --------------------------------------------------------------------------

    live = live
    record = record
    replay = replay

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
        if self._allowances.pace == "off":
            return observing
        return PacingTransport(observing, self._allowances, clock=self._clock)

    @property
    def shared_with(self) -> str:
        """With whom the allowance was last shared, such as ``shared with 2 other kernels``."""
        return self._allowances.shared_with

    @property
    def waiting_until(self) -> dict[str, float]:
        """When the allowances renew that requests wait for, by operation."""
        return self._allowances.waiting_until

    # -- requests -----------------------------------------------------------------------

    def me(self) -> pd.DataFrame:
        """Return the current user's record, one row (``GET /v1/users/me``, service.md part 4).

        It needs a session: sign in with ``login()`` or ``connect(base_url=…, api_key=…)``, or
        replay a recording, ``replay("first-look")``. The columns are whatever the service sends:
        see `directmail_lab.frame`.

        Raises
        ------
        NotConnectedError
            No session is open.
        UnauthorizedError, ServiceError
            The service answered 401 or 403, or with another error status.
        NotJSONError
            Its body is not JSON.
        NotRecordedError
            In a replay whose cassette has no such request.
        """
        return self._record_in(self.client.get(ME_PATH))

    async def me_async(self) -> pd.DataFrame:
        """Return the same as `me`, without blocking: ``await me_async()``."""
        return self._record_in(await self.async_client.get(ME_PATH))

    def request(self, /, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request below the base address.

        ``options`` are those of `httpx.Client.request`: ``params``, ``json``, ``headers`` and so
        on. An error status is returned, not raised. Writes need
        ``connect(…, allow_writes=True)``.
        """
        return self.client.request(method, path, **options)

    def get(self, /, path: str, **options: Any) -> httpx.Response:
        """Send a GET; see `request`."""
        return self.client.request("GET", path, **options)

    def post(self, /, path: str, **options: Any) -> httpx.Response:
        """Send a POST, which needs ``allow_writes=True`` as all writes do; see `request`."""
        return self.client.request("POST", path, **options)

    def check(self, response: httpx.Response) -> httpx.Response:
        """Return a response as it is, or raise `ServiceError` if its status is an error."""
        if response.status_code >= 400:
            raise service_error(response, base_url=self.base_url, redacted=self._redacted)
        return response

    get_many = get_many
    pages = pages

    def rate_limits(self) -> pd.DataFrame:
        """Return the readings of all responses so far, a row each (see `ReadingLog.frame`).

        Warns if the readings contradict the ``reset_unit`` that the session was given.
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
        """Return what the cassette in use holds so far (see `read_interactions`).

        Raises
        ------
        CassetteError
            The session is live: no cassette is in use.
        """
        if self.open_cassette is None:
            raise CassetteError(
                "This session is live: no cassette is in use. Name one: interactions(…)."
            )
        from .questions.interactions import interactions

        return interactions(self.open_cassette)

    @property
    def api_key(self) -> ApiKey | None:
        """The key, in an object that does not show it; None in a session that only replays."""
        return self._api_key

    def on_reading(self, callback: Callable[[Reading], None]) -> Callable[[], None]:
        """Call ``callback`` with each new reading, in the thread that made the request.

        Returns
        -------
        Callable
            A function that ends the calls of ``callback``.
        """
        token = object()
        self._listeners[token] = callback

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    def _note(self, reading: Reading) -> None:
        self.readings.append(reading)
        for callback in list(self._listeners.values()):
            try:
                callback(reading)
            except Exception:
                # A callback that fails must not cost the caller a good response.
                _log.exception("An on_reading callback failed")

    def _note_shape(self, response: httpx.Response) -> httpx.Response:
        reading = response.extensions.get(READING)
        if reading is not None and response.is_closed:
            self.response_shapes.add(reading, response.headers, response.content)
        return response

    def _record_in(self, response: httpx.Response) -> pd.DataFrame:
        from .frames import frame

        return frame(self.check(response))

    # -- closing ------------------------------------------------------------------------

    def close(self) -> None:
        """End the recording if there is one, close all connections and forget the key."""
        try:
            self._transport.enter(Mode("live", RefusingTransport("This session is closed.")))
        finally:  # even if the recording could not be ended
            if self._network is not None:
                self._network.close()
            self._network = self._api_key = None
            self._allowances.close()
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
        return f"<Session {self._transport.mode} at {self.base_url}, {len(self.readings)} readings>"

    def __reduce__(self) -> NoReturn:
        raise DirectMailLabError(
            "A session is never pickled: it holds a key. Connect where it runs."
        )


def replaying_session(
    cassette: str | Path, base_url: str | None = None, **options: Unpack[SessionOptions]
) -> Session:
    """Return a session that can only replay, at the address that the cassette was recorded at."""
    if base_url is None:
        with Cassette(cassette) as recorded:
            base_url = recorded.base_url or "https://recorded.invalid"
    return Session(base_url, **options)
