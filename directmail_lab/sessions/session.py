"""`Session`: the clients of one account over one stack of transports, in one of three modes."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, get_args

from ..arguments import (
    IfSent,
    RecordMode,
    Repeat,
    check_choice,
    check_names,
    check_number,
    check_options,
)
from ..cassettes import (
    BeforeRecord,
    Cassette,
    FileRecording,
    Matching,
    MemoryRecording,
    PlayedRecording,
)
from ..contract import ME_PATH
from ..credentials import ApiKey, as_api_key
from ..display import plural
from ..errors import DirectMailLabError, NotConnectedError, naming_what_is_missing
from ..exchange.httpx_values import REQUEST_OPTIONS, httpx, parse_url
from ..exchange.operations import base_path, pattern_of
from ..redaction import Redactor
from ..redaction.logs import guard_logs
from ..settings import NO_ADDRESS, base_address, origin_of, trust_origin
from ..tracebacks import hide_frames
from .clients import ClientsTransport, adapters_of
from .clients.own import AsyncClient, Client
from .clients.refusals import service_error
from .modes import Entered, ModeChange, Timing, latency_factor, write_warning
from .transports import Transport
from .transports.allowance import Pace
from .transports.mode import Mode, ModeName, ModeTransport, RefusingTransport
from .transports.network import NetworkTransport
from .transports.observer import Observer
from .transports.pacing import Allowances, PacingTransport
from .transports.recording import RecordingTransport
from .transports.writes import IF_SENT, sent_writes

if TYPE_CHECKING:
    import httpx2
    import pandas as pd
    import requests

    from ..readings.reading import Reading
    from ..readings.reset_unit import ResetUnit

_NOTHING_SENT = RefusingTransport("This session only replays.")


class SessionOptions(TypedDict, total=False):
    """The options of a session besides its address and key: see `connect`."""

    timeout_s: float
    pace: Pace
    max_wait_s: float
    reset_unit: ResetUnit | None
    allow_writes: bool
    retry: bool
    paths: Collection[str]


class Session:
    """An account at one base address: its clients, recording and mode.

    A session with a key starts live. Any number of threads and tasks may use it
    at once, and any number of sessions may be open. Each one learns from the
    service's headers how much of the allowance others use, in this process or
    elsewhere. Outside pytest, no library is patched.

    Parameters
    ----------
    base_url
        The base address, with https (or http for this machine). It may have a
        path.
    api_key
        The API key, or None for a session that only replays.
    timeout_s, pace, max_wait_s, reset_unit, allow_writes, retry, paths
        See `directmail_lab.connect`.

    Attributes
    ----------
    base_url, paths
        The base address, and the templates of paths.
    client, async_client
        An `httpx.Client` and an `httpx.AsyncClient`, with all that these can
        do. The session's mode decides whether a request is sent, recorded or
        replayed. The second one needs asyncio. With ``auth=None``, they do not
        send the key.
    httpx2_client, httpx2_async_client, requests_adapter
        The same session for httpx2 and requests. SDKs that use these retry and
        wait by themselves, so the session does neither for them.
    """

    base_url: str
    paths: tuple[str, ...]
    client: httpx.Client

    _clock: Callable[[], float] = staticmethod(time.time)
    _write_advice = ""
    # The pytest plugin sets the folders in which `record` and `replay` look for a name first, and
    # their defaults for ``match_on``, ``ignore`` and ``like``.
    _folders: Sequence[Path] = ()
    _matching: Matching = Matching()

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
        retry: bool = True,
        paths: Collection[str] = (),
    ) -> None:
        check_number("timeout_s", timeout_s, least=0.001, kind=Real)
        check_number("max_wait_s", max_wait_s, least=0, kind=Real)
        self._api_key = as_api_key(api_key)
        self.base_url = base_address(base_url, only_replays=self._api_key is None)
        self.paths = tuple(paths)
        for template in self.paths:
            pattern_of(template)  # raises an error if it is not a template
        self._url = parse_url(self.base_url)
        self._reset_unit = reset_unit
        self._retry = retry
        self._allow_writes = allow_writes
        self._sent = MemoryRecording("this session", self.base_url, reset_unit=reset_unit)
        self._redactor = Redactor()
        self._redacted = self._redactor.text
        self._observe = Observer(base_path(self.base_url), self._redactor)
        self._allowances = Allowances(
            pace=pace,
            max_wait_s=max_wait_s,
            reset_unit=lambda: self._sent.reset_unit,
        )
        self._network = None
        start = Mode("live", RefusingTransport("This session has no key."), self._sent)
        account = self.base_url.encode()
        if self._api_key is not None:
            trust_origin(self.base_url)
            self._network = NetworkTransport(self.base_url, self._api_key, allow_writes)
            start = self._sending("live", self._sent)
            account = self._api_key.account(self.base_url)
        self._transport = ModeTransport(start, self._observe, sent_writes(account))
        self._clients_transport = ClientsTransport(self._transport)
        self._timeout_s = timeout_s
        self.client = Client(self._redacted, None, **self._client_options)
        # Also if the session is dropped without close(): somebody may keep its recording, and its
        # log filter knows the key.
        end_log_guard = guard_logs(self._redacted)
        self._forget = weakref.finalize(self, _forget, self._sent, self._api_key, end_log_guard)
        self._forget.atexit = False

    # -- modes --------------------------------------------------------------------------

    def live(self) -> ModeChange[Session]:
        """Send every request to the service; see `directmail_lab.live`."""
        return self._change(lambda: self._sending("live", self._sent))

    def record(
        self,
        cassette: str | Path | FileRecording,
        *,
        record_mode: RecordMode = "update",
        redact: Iterable[str] = (),
        matching: Matching | None = None,
        before_record: BeforeRecord | None = None,
        aside: bool = False,
    ) -> ModeChange[Session]:
        """Record to a cassette; see `directmail_lab.record`.

        Without a key, it never replays. With ``aside``, the mode ``"all"``
        keeps the old file until the recording ends: see
        `directmail_lab.cassettes.Cassette`.
        """
        redactor = Redactor(redact=check_names("redact", redact))

        def recording() -> Mode:
            if record_mode != "none":
                self._network_for("record")
            opened = Cassette(
                cassette,
                folders=self._folders,
                record_mode=record_mode,
                redactor=redactor,
                base_url=None if self.base_url == NO_ADDRESS else self.base_url,
                matching=self._matching | matching,
                before_record=before_record,
                aside=aside,
            )
            if record_mode == "none":
                return self._replaying(opened)
            if not aside:
                opened.on_played = write_warning(opened)
            user = self._sent.last(ME_PATH)
            if user is not None:
                opened.compare_user(opened.redactor.interaction(user).response.body)
            return self._sending("record", self._sent, opened)

        return self._change(recording)

    def replay(
        self,
        cassette: str | Path | FileRecording,
        *,
        timing: Timing = "instant",
        repeat: Repeat = "last",
        matching: Matching | None = None,
    ) -> ModeChange[Session]:
        """Replay a cassette, and send nothing; see `directmail_lab.replay`."""
        factor = latency_factor(timing)

        def replaying() -> Mode:
            opened = Cassette(
                cassette,
                folders=self._folders,
                base_url=self.base_url,
                matching=self._matching | matching,
                repeat=repeat,
            )
            return self._replaying(opened, factor)

        return self._change(replaying)

    def _drift_mode(self) -> ModeChange[Session]:
        """Send requests to the service, and keep no readings or messages."""
        unseen = Observer(base_path(self.base_url), self._redactor)
        recording = MemoryRecording("drift", self.base_url)
        return self._change(lambda: self._sending("live", recording, observe=unseen))

    @property
    def mode(self) -> str:
        """``"live"``, ``"record"`` or ``"replay"``."""
        return self._transport.mode.name

    @property
    def cassette(self) -> str | None:
        """The name of the cassette that records or replays, or None."""
        return None if self._open_cassette is None else self._open_cassette.name

    @property
    def _open_cassette(self) -> Cassette | None:
        """The `Cassette` that records or replays, or None."""
        return self._transport.mode.cassette

    @property
    def recording(self) -> MemoryRecording:
        """The recording that questions about the session are asked of.

        In a replay, it is what this replay has played. In the other modes, it
        is all that the session has sent and received.
        """
        return self._transport.mode.recording

    def _change(self, open_mode: Callable[[], Mode]) -> ModeChange[Session]:
        def opened() -> Mode:
            mode = open_mode()
            if mode.cassette is not None:  # its file may contain other credentials
                for redactor in (self._redactor, mode.recording.redactor):
                    redactor.join(mode.cassette.redactor)
            return mode

        def enter() -> Entered[Session]:
            previous, mode = self._transport.change(opened)
            return Entered(self, self._transport, previous, mode)

        return ModeChange(enter)

    def _replaying(self, cassette: Cassette, factor: float = 0.0) -> Mode:
        file = cassette.recording()
        # A unit that the user stated for one address says nothing about another one's recording.
        is_stated = self._api_key is None or file.base_url == self.base_url
        unit = self._reset_unit if is_stated else None
        played = PlayedRecording(file, self.base_url, reset_unit=unit)
        return Mode("replay", _NOTHING_SENT, played, cassette, factor)

    def _network_for(self, name: ModeName) -> NetworkTransport:
        if self._network is None:
            action = "record" if name == "record" else "go live"
            raise NotConnectedError(
                f"This session has no key, so it cannot {action}.",
                "Sign in with login(), or connect(base_url=…, api_key=…).",
            )
        return self._network

    def _sending(
        self,
        name: ModeName,
        recording: MemoryRecording,
        cassette: Cassette | None = None,
        *,
        observe: Observer | None = None,
    ) -> Mode:
        """Return a mode with the transports that a request passes on its way to the service."""
        inner: Transport = RecordingTransport(
            self._network_for(name),
            observe or self._observe,
            recording,
            cassette,
            clock=self._clock,
        )
        if self._allowances.pace != "off":
            inner = PacingTransport(
                inner,
                self._allowances,
                retry=self._retry,
                own_origin=origin_of(self._url),
                clock=self._clock,
            )
        return Mode(name, inner, recording, cassette)

    @property
    def _waiting_until(self) -> dict[str, float]:
        """When each allowance renews that a request waits for (Unix time)."""
        return self._allowances.waiting_until

    # -- requests -----------------------------------------------------------------------

    @functools.cached_property  # few use it, and a suite of tests opens many sessions
    def async_client(self) -> httpx.AsyncClient:
        """The asynchronous counterpart of ``client``, with the same cookies."""
        return AsyncClient(self._redacted, self.client.cookies, **self._client_options)

    def _take_senders(self) -> ClientsTransport:
        """Return the transport for clients that have their own keys.

        From then on, a session without a key can record, but only what such
        clients send.
        """
        if self._network is None:
            self._network = NetworkTransport(self.base_url, None, self._allow_writes)
        return self._clients_transport

    @functools.cached_property
    def httpx2_client(self) -> httpx2.Client:
        """A client of httpx2, whose requests are not paced or retried."""
        make: Callable[..., httpx2.Client] = adapters_of("httpx2").client
        return make(self._clients_transport, self.base_url, self._timeout_s)

    @functools.cached_property
    def httpx2_async_client(self) -> httpx2.AsyncClient:
        """The asynchronous counterpart of ``httpx2_client``."""
        make: Callable[..., httpx2.AsyncClient] = adapters_of("httpx2").async_client
        return make(self._clients_transport, self.base_url, self._timeout_s)

    @functools.cached_property
    def requests_adapter(self) -> requests.adapters.BaseAdapter:
        """The session as an adapter of requests, for whole addresses.

        Mount it: ``http.mount(session.base_url, session.requests_adapter)``.
        """
        make: Callable[..., requests.adapters.BaseAdapter] = adapters_of("requests").SessionAdapter
        return make(self._clients_transport, self._timeout_s)

    @property
    def _client_options(self) -> dict[str, Any]:
        return {
            "transport": self._transport,
            "base_url": self._url,
            "timeout": self._timeout_s,
        }

    def me(self) -> pd.DataFrame:
        """Return the current user's record; see `directmail_lab.me`."""
        frame = _frame()
        return frame(self.check(self.client.get(ME_PATH)))

    async def me_async(self) -> pd.DataFrame:
        """Return the user's record: ``await session.me_async()``."""
        frame = _frame()
        return frame(self.check(await self.async_client.get(ME_PATH)))

    def request(
        self, /, method: str, path: str, *, if_sent: IfSent = "refuse", **options: Any
    ) -> httpx.Response:
        """Send a request; see `directmail_lab.request`."""
        return self.client.request(method, path, **_checked("request", options, if_sent))

    def get(self, /, path: str, **options: Any) -> httpx.Response:
        """Send a GET; see `request`."""
        return self.client.request("GET", path, **_checked("get", options))

    def post(self, /, path: str, *, if_sent: IfSent = "refuse", **options: Any) -> httpx.Response:
        """Send a POST, if writes are allowed; see `request`."""
        return self.client.request("POST", path, **_checked("post", options, if_sent))

    def check(self, response: httpx.Response) -> httpx.Response:
        """Return the response, or raise `ServiceError` for its status."""
        if response.status_code >= 400:
            raise service_error(response, base_url=self.base_url, redacted=self._redacted)
        return response

    def on_reading(self, callback: Callable[[Reading], None]) -> Callable[[], object]:
        """Call ``callback`` with each reading, in the thread of the request.

        Returns
        -------
        Callable
            A function that stops the calls of ``callback``.
        """
        token = object()
        listeners = self._observe.listeners
        listeners[token] = callback
        return lambda: listeners.pop(token, None)

    @property
    def allow_writes(self) -> bool:
        """Whether writes may be sent to the live service.

        It can be set, ``session().allow_writes = True``, but not for the
        session of a test.
        """
        return self._allow_writes

    @allow_writes.setter
    def allow_writes(self, allowed: bool) -> None:
        if self._write_advice:
            raise DirectMailLabError("A test cannot allow writes itself.", self._write_advice)
        self._allow_writes = bool(allowed)
        if self._network is not None:
            self._network.allow_writes = self._allow_writes

    def _fix_writes(self, advice: str, redirect_advice: str, *, follows: bool = False) -> None:
        """Fix `allow_writes`, and whether a write ``follows`` a redirect.

        ``advice`` and ``redirect_advice`` say how a test changes these.
        """
        self._write_advice = advice
        if self._network is not None:
            self._network.write_advice = advice
            self._network.redirect_advice = redirect_advice
            self._network.follows_writes = follows

    @property
    def api_key(self) -> ApiKey | None:
        """The key, in an object that does not show it, or None."""
        return self._api_key

    # -- closing ------------------------------------------------------------------------

    def close(self) -> None:
        """End the recording, close all connections and forget the key."""
        closed = RefusingTransport("This session is closed.")
        try:
            self._transport.enter(Mode("live", closed, self._sent))
        finally:  # even if ending the recording failed
            if self._network is not None:
                self._network.close()
            self._network = None
            self._api_key = None
            self._forget()

    async def aclose(self) -> None:
        """Close the session and the connections of this event loop."""
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
        count = plural(len(self.recording), "interaction")
        recorded = self.recording.recorded_note if self.mode == "replay" else ""
        return f"<Session {self._transport.mode}{recorded} at {self.base_url}, {count}>"

    def __reduce__(self) -> NoReturn:
        raise DirectMailLabError(
            "A session contains an API key, so it cannot be pickled.",
            "Connect in the process that uses it.",
        )


def _checked(called: str, options: dict[str, Any], if_sent: str = "refuse") -> dict[str, Any]:
    """Return the options of `httpx.Client.request` for those of the method ``called``."""
    if options:
        check_options(called, options, (*REQUEST_OPTIONS, "if_sent"))
    if_sent = options.pop("if_sent", if_sent)
    if if_sent != "refuse":
        check_choice("if_sent", if_sent, get_args(IfSent))
    extensions = options.get("extensions") or {}
    return {**options, "extensions": {**extensions, IF_SENT: if_sent}}


def _frame() -> Callable[[httpx.Response], pd.DataFrame]:
    """Return `directmail_lab.frame`, imported only now: a replaying test needs no pandas."""
    with naming_what_is_missing():
        from .frames import frame

    return frame


def _forget(
    recording: MemoryRecording,
    key: ApiKey | None,  # noqa: ARG001 - kept alive until now: a redactor knows only such keys
    end_log_guard: Callable[[], None],
) -> None:
    """Redact what a session keeps, and remove its log filter: both need the key."""
    try:
        recording.redact_for_good()
    finally:
        end_log_guard()
