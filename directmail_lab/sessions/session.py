"""`Session`: the clients of one account over one stack of transports, in one of three modes."""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, TypeVar, get_args

from ..arguments import (
    IfSent,
    RecordMode,
    Repeat,
    argument_error,
    check_choice,
    check_names,
    check_number,
    check_options,
    rules_of,
)
from ..cassettes import (
    BeforeRecord,
    Cassette,
    FileRecording,
    Matcher,
    Matching,
    Policy,
    SessionRecording,
    service_of,
    shown_path,
)
from ..credentials import ApiKey, as_api_key
from ..display import plural
from ..errors import DirectMailLabError, NotConnectedError, naming_what_is_missing
from ..exchange.contract import ME_PATH
from ..exchange.httpx_values import REQUEST_OPTIONS, httpx, parse_url
from ..exchange.operations import base_path, pattern_of
from ..exchange.sent_values import add_params
from ..redaction import Redactor
from ..redaction.logs import guard_logs
from ..settings import NO_ADDRESS, base_address, origin_of, trust_origin
from ..tracebacks import hide_frames, warn_caller
from .clients.own import AsyncClient, Client, SharedCookies
from .clients.refusals import check
from .transports import Transport
from .transports.allowance import Pace
from .transports.mode import (
    Mode,
    ModeName,
    ModeTransport,
    RefusingTransport,
    Timing,
    latency_factor,
)
from .transports.network import NetworkTransport
from .transports.observer import Observer
from .transports.pacing import Allowances, PacingTransport
from .transports.recording import RecordingTransport
from .transports.writes import IF_SENT, shows_nothing

if TYPE_CHECKING:
    import pandas as pd

    from ..readings.reading import Reading
    from ..readings.reset_unit import ResetUnit
    from .pages import Result

_F = TypeVar("_F", bound="Callable[..., Any]")

_NOTHING_SENT = RefusingTransport("This session only replays.")


class ModeChange:
    """A mode that a session has entered; the end of a ``with`` block restores the previous one."""

    def __init__(self, session: Session, previous: Mode, mode: Mode) -> None:
        self.session = session
        self._previous = previous
        self._mode = mode

    def __enter__(self) -> Session:
        if self._mode.cassette is not None:
            self._mode.cassette.continue_run()  # only a statement begins a new run
        return self.session

    def __exit__(self, *_: object) -> None:
        self.session._transport.enter(self._previous)

    def is_on(self) -> bool:
        """Return whether the session is still in this mode."""
        return self.session._transport.mode is self._mode

    def __repr__(self) -> str:
        mode = self._mode
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


class SessionOptions(TypedDict, total=False):
    """The options of a session besides its address and key: see `connect`."""

    timeout_s: float
    pace: Pace
    max_wait_s: float
    reset_unit: ResetUnit | None
    allow_writes: bool
    retry: bool
    templates: Collection[str]


class Session:
    """An account at one service address: its clients, recording and mode.

    A session with a key starts live. Any number of threads and tasks may use it
    at once, and any number of sessions may be open. Each one learns from the
    service's headers how much of the allowance others use, in this process or
    elsewhere. Outside pytest, no library is patched.

    Parameters
    ----------
    base_url
        The service address, with https (or http for this machine). It may have
        a path.
    api_key
        The key, or None for a session that only replays.
    timeout_s, pace, max_wait_s, reset_unit, allow_writes, retry, templates
        See `directmail_lab.connect`.

    Attributes
    ----------
    base_url
        The service address, with its scheme and no slash at the end.
    templates
        The templates of paths.
    client, async_client
        An `httpx.Client` and an `httpx.AsyncClient`, with all that these can
        do. The session's mode decides whether a request is sent, recorded or
        replayed. The second one needs asyncio. With ``auth=None``, they do not
        send the key.
    """

    base_url: str
    templates: tuple[str, ...]
    client: httpx.Client

    _clock: Callable[[], float] = staticmethod(time.time)
    _write_advice = ""
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
        templates: Collection[str] = (),
    ) -> None:
        check_number("timeout_s", timeout_s, least=0.001, kind=Real)
        check_number("max_wait_s", max_wait_s, least=0, kind=Real)
        self._api_key = as_api_key(api_key)
        self.base_url = base_address(base_url, only_replays=self._api_key is None)
        self.templates = tuple(templates)
        for template in self.templates:
            pattern_of(template)  # raises an error if it is not a template
        self._url = parse_url(self.base_url)
        self._reset_unit = reset_unit
        self._retry = retry
        self._allow_writes = allow_writes
        hint = "" if self._api_key is None else self._api_key.hint
        self._sent = SessionRecording(
            "this session", self.base_url, reset_unit=reset_unit, key_hint=hint
        )
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
        if self._api_key is not None:
            trust_origin(self.base_url)
            self._network = NetworkTransport(self.base_url, self._api_key, allow_writes, self._sent)
            start = self._sending("live", self._sent)
        self._cookies = SharedCookies()
        self._transport = ModeTransport(start, self._observe, on_change=self._cookies.clear)
        self.client = Client(
            self._redacted,
            self._cookies,
            transport=self._transport,
            base_url=self._url,
            timeout=timeout_s,
        )
        # Also if the session is dropped without close(): somebody may keep its recording, and its
        # log filter knows the key.
        end_log_guard = guard_logs(self._redacted)
        self._forget = weakref.finalize(self, _forget, self._sent, self._api_key, end_log_guard)
        self._forget.atexit = False

    # -- modes --------------------------------------------------------------------------

    def live(self) -> ModeChange:
        """Send every request to the service, and record nothing.

        Like `record`, it is also a context manager.

        Raises
        ------
        NotConnectedError
            No session is open, or it has no key.
        """
        return self._change(lambda: self._sending("live", self._sent))

    def record(
        self,
        cassette: str | Path,
        *,
        record_mode: RecordMode = "update",
        redact: Iterable[str] = (),
        match_on: Sequence[str | Matcher] | None = None,
        ignore: Iterable[str] = (),
        max_age: str | None = None,
        live: bool = False,
        replace: bool = False,
        before_record: BeforeRecord | None = None,
    ) -> ModeChange:
        """Send each request, and record it to a cassette.

        The mode lasts until you change it again. As a context manager, it lasts
        until the end of the block.

        A new response replaces those that the same cell got for the same
        request when it was executed before, now or on another day; the other
        interactions stay. So a reader's cell gets what yours got last. Outside
        a notebook, or if the front end does not say which cell runs, it
        replaces those of earlier runs. A run is what one process records:
        ``dm.record(…)`` as a statement begins a new one, while a ``with`` block
        continues it. Whoever reads the cassette meanwhile gets the new
        responses, also if the kernel is killed. A read's failure (no response,
        or status 401, 403, 429 or 5xx) is not recorded if it would replace a
        success.

        The parts of a response reach you as they come, and the interaction is
        in the cassette before you see its end. A body that you read only in
        part, or that broke off, is recorded up to there. A read to which no
        response came (a timeout) is recorded in a notebook and in a test, so
        that code which handles it replays.

        A write that was sent before raises `AlreadySentError`: see ``if_sent``
        in `request`. A write is in the cassette before it is sent. If it cannot
        be written there, it is not sent.

        `directmail_lab.record` serves the author of a notebook, who has a key,
        and its readers, who have none. If neither the current session nor the
        environment nor the keyring has a key, it replays the file that it would
        otherwise write, and says so on stderr. `Session.record` never does.

        Parameters
        ----------
        cassette
            A bare name, kept in the folder that ``DIRECTMAIL_CASSETTES`` names,
            or else in the nearest ``cassettes`` folder. Or a `Path` to a file.
        record_mode
            ``"update"`` is described above. ``"all"`` does the same, and sends
            a write again, unless its call has ``if_sent="keep"``. The others
            are vcrpy's, and replay: ``"new_episodes"`` and ``"any"`` replay
            what the cassette has and record the rest, ``"once"`` records a new
            cassette and only replays one that exists, and ``"none"`` only
            replays. The first three warn that nothing was sent if they replay
            a write. A write to which no response came is refused.
        redact
            What to replace besides the key and usual credentials: names of
            headers and fields, dotted paths, and ``"personal"``. The latter
            stands for e-mail addresses and telephone numbers anywhere, and for
            fields whose name says that they contain a name, postal address,
            recipient, company, birth date, bank account or personal number.
            Personal data becomes stable pseudonyms. ``"-address.city"`` keeps
            that field.
        match_on
            What must be equal for a recorded request to match: names of vcrpy's
            matchers, and functions that compare two of vcrpy's requests. By
            default the method, the path below the service address, the query,
            the body and ``Range``. JSON counts by its values and their types, a
            form by its fields, a multipart body by its parts, all decompressed.
            A path that is named without host or port is the same on every host.
        ignore
            What is left out of both requests before they are compared:
            ``"query:NAME"``, ``"header:NAME"``, or ``"body:NAME"`` for a field
            of a form or the dotted path of a JSON value.
        max_age
            An age, such as ``"1 day"`` or ``"12 hours"``. A read that the
            cassette has a younger response to is not sent: it is replayed, also
            after a write. The end of the cell, or of the recording, says how
            many were replayed and sent. What is sent meanwhile is replayed once
            ``dm.record(…)`` is called again.
        live
            Whether to raise an error instead of replaying, if there is no key.
            The environment variable ``DIRECTMAIL_LIVE`` has the last word:
            ``1`` asks for it in a notebook that stays unchanged, and ``0``
            lets a reader replay.
        replace
            Whether to begin a cassette anew that was recorded at another
            service address. Its file is kept as ``NAME.before.yaml``, which no
            list has, and which the next run that changes the fields of a
            response replaces. A cassette has the responses of one address; all
            addresses of this machine are one.
        before_record
            A function that gets each `Interaction` before it is redacted. It
            returns the interaction to record, or None to leave it out. The
            caller and the session get the unchanged response. A replay matches
            requests against what the function returned.

        Raises
        ------
        NotConnectedError
            There is no key; for `directmail_lab.record`, no such cassette
            either, or the call must be ``live``.
        CassetteInUseError
            Another program records the same cassette, and still does so after
            10 seconds. A request raises this, too. A notebook locks a cassette
            only from the first request of a cell to the end of that cell;
            others may record in between, and it knows then what they sent.
        CassetteError
            The cassette cannot be read or written, its name leads out of the
            folder, or it was recorded at another service address: see
            ``replace``. A later request raises it if ``before_record`` fails;
            `interactions` then still has the response.

        Examples
        --------
        >>> with dm.stand_in() as service:
        ...     session = dm.connect(service.base_url, service.api_key)
        ...     with dm.record("my-tour"):
        ...         response = dm.get("/v1/lists")
        ...     with dm.record("my-tour", max_age="1 day"):
        ...         response = dm.get("/v1/lists")  # not sent again
        >>> dm.replay("my-tour")
        Replaying cassette 'my-tour' (1 interaction, ...

        Leave out requests to a path that is polled, and record PDF files
        without their content::

            from dataclasses import replace

            def slim(interaction):
                request, response = interaction.request, interaction.response
                if request.uri.endswith("/v1/status"):
                    return None
                if ("Content-Type", "application/pdf") in response.headers:
                    response = replace(response, body=b"")
                    return replace(interaction, response=response)
                return interaction

            dm.record("tour", before_record=slim)
        """
        return self._open_recording(
            cassette,
            record_mode=record_mode,
            redact=redact,
            match_on=match_on,
            ignore=ignore,
            max_age=max_age,
            live=live,
            replace=replace,
            before_record=before_record,
        )

    def _open_recording(
        self,
        cassette: str | Path | FileRecording,
        *,
        record_mode: RecordMode,
        redact: Iterable[str] = (),
        match_on: Sequence[str | Matcher] | None = None,
        ignore: Iterable[str] = (),
        max_age: str | None = None,
        live: bool = False,
        replace: bool = False,
        before_record: BeforeRecord | None = None,
        repeat: Repeat = "last",
        policy: Policy | None = None,
    ) -> ModeChange:
        """Record as `record` does, for the calls and fixtures of this package.

        Without a ``policy``, a write that a recording replays warns.
        """

        def recording() -> Mode:
            rules = rules_of(record_mode)
            if live and rules.replays:
                raise argument_error(
                    "live=True, or DIRECTMAIL_LIVE=1, sends every request, and "
                    f'record_mode="{record_mode}" may replay. Give one of them, or '
                    'record_mode="all".'
                )
            if max_age is not None and (live or record_mode != "update"):
                raise argument_error(
                    "max_age decides by itself what is sent: give neither live=True, nor "
                    "DIRECTMAIL_LIVE=1, nor record_mode with it."
                )
            if rules.sends:
                self._network_for("record")
            is_without_address = rules.sends and self.base_url == NO_ADDRESS
            opened = Cassette(
                cassette,
                folders=self._folders,
                record_mode=record_mode,
                redactor=Redactor(redact=check_names("redact", redact)),
                base_url=None if is_without_address else self.base_url,
                matching=self._matching | Matching(match_on, ignore),
                max_age=max_age,
                begins_anew=replace,
                before_record=before_record,
                repeat=repeat,
                policy=policy or Policy(warns_of_writes=rules.sends),
            )
            if rules.sends:
                return self._sending("record", self._sent, opened)
            return self._replaying(opened)

        return self._change(recording)

    def replay(
        self,
        cassette: str | Path | FileRecording,
        *,
        timing: Timing = "instant",
        repeat: Repeat = "last",
        match_on: Sequence[str | Matcher] | None = None,
        ignore: Iterable[str] = (),
    ) -> ModeChange:
        """Return the responses of a cassette, with no key and no network.

        Like `record`, it is also a context manager. If there is
        no current session, `directmail_lab.replay` opens one that can only
        replay.

        Parameters
        ----------
        cassette
            A bare name, looked up in ``DIRECTMAIL_CASSETTES``, the nearest
            ``cassettes`` folder upward and the packaged tutorials; or a `Path`
            to a file.
        timing
            ``"instant"`` does not wait, ``"recorded"`` waits as long as the
            headers of the response took, and a number is a factor of that time,
            such as 0.5. No response waits more than 30 s.
        repeat
            What follows the last recorded response to a request: the same
            response again (``"last"``), or `NotRecordedError` (``"strict"``).
        match_on, ignore
            See `record`.

        Raises
        ------
        CassetteNotFoundError
            There is no such cassette.
        CassetteFormatError
            The file is not a cassette.

        Examples
        --------
        >>> dm.replay("first-look")
        Replaying cassette 'first-look' (102 interactions, ...)
        >>> dm.me()["name"].item()
        'Stand-in User'
        """

        def replaying() -> Mode:
            factor = latency_factor(timing)
            opened = Cassette(
                cassette,
                folders=self._folders,
                base_url=self.base_url,
                matching=self._matching | Matching(match_on, ignore),
                repeat=repeat,
            )
            self._say_whose(opened.recording())
            return self._replaying(opened, factor)

        return self._change(replaying)

    def _say_whose(self, recorded: FileRecording) -> None:
        """Say that a replay has the responses of another service than this session's."""
        is_known = self._api_key is not None and recorded.base_url and not recorded.is_third_party
        if is_known and service_of(recorded.base_url) != service_of(self.base_url):
            warn_caller(
                f"Cassette {recorded.name!r} has the responses of {recorded.base_url}, and this "
                f"session is connected to {self.base_url}."
            )

    def _unobserved(self) -> ModeChange:
        """Send every request to the service, and keep no readings or messages."""
        unseen = Observer(base_path(self.base_url), self._redactor)
        recording = SessionRecording("drift", self.base_url)
        return self._change(lambda: self._sending("live", recording, observe=unseen))

    @property
    def mode(self) -> str:
        """``"live"``, ``"record"`` or ``"replay"``."""
        return self._transport.mode.name

    @property
    def cassette(self) -> str | None:
        """The name of the cassette that records or replays, or None."""
        opened = open_cassette(self)
        return None if opened is None else opened.name

    @property
    def recording(self) -> SessionRecording:
        """The recording that questions about the session are asked of.

        In a replay, it is what this replay has played. In the other modes, it
        is all that the session has sent and received.
        """
        return self._transport.mode.recording

    def _change(self, open_mode: Callable[[], Mode]) -> ModeChange:
        return ModeChange(self, *self._transport.change(open_mode))

    def _replaying(self, cassette: Cassette, factor: float = 0.0) -> Mode:
        file = cassette.recording()
        # A unit that the user stated for one address says nothing about another one's recording.
        is_stated = self._api_key is None or file.base_url == self.base_url
        unit = self._reset_unit if is_stated else None
        played = SessionRecording(file.name, self.base_url, reset_unit=unit, file=file)
        return Mode("replay", _NOTHING_SENT, played, cassette, factor)

    def _network_for(self, name: ModeName) -> NetworkTransport:
        if self._network is None:
            action = "record" if name == "record" else "go live"
            raise NotConnectedError(
                f"This session has no key, so it cannot {action}.",
                "Sign in with dm.login(), or dm.connect(base_url=…, api_key=…).",
            )
        return self._network

    def _sending(
        self,
        name: ModeName,
        recording: SessionRecording,
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

    # -- requests -----------------------------------------------------------------------

    @functools.cached_property  # few use it, and a suite of tests opens many sessions
    def async_client(self) -> httpx.AsyncClient:
        """The asynchronous counterpart of ``client``, with the same cookies."""
        return AsyncClient(
            self._redacted,
            self._cookies,
            transport=self._transport,
            base_url=self._url,
            timeout=self.client.timeout,
        )

    def _allow_recording_without_key(self) -> None:
        """Record without a key what the code under test sends by itself."""
        if self._network is None:
            self._network = NetworkTransport(self.base_url, None, self._allow_writes, self._sent)

    def me(self) -> pd.DataFrame:
        """Return the current user's record as one row (``GET /v1/users/me``).

        Sign in first, with `login` or `connect`, or replay a recording. The
        columns depend on what the service sends; see `frame`.

        Raises
        ------
        NotConnectedError
            No session is open.
        UnauthorizedError, ServiceError
            The service responded with 401 or 403, or with another error status.
        NotJSONError
            The body of the response is not JSON.
        NotRecordedError
            The session replays a cassette that does not contain this request.

        Examples
        --------
        >>> dm.replay("first-look")
        Replaying cassette 'first-look' (102 interactions, ...)
        >>> dm.me()[["name", "email"]]
                    name                 email
        0  Stand-in User  stand-in@example.com
        """
        return _frame(check(self.client.get(ME_PATH), self.base_url))

    async def me_async(self) -> pd.DataFrame:
        """Return the user's record: ``await session.me_async()``."""
        return _frame(check(await self.async_client.get(ME_PATH), self.base_url))

    @hide_frames
    def get(self, /, path: str, **options: Any) -> httpx.Response:
        """Send a GET request to a path below the service address.

        The options are those of `request`, such as ``params={"limit": 10}``.

        Examples
        --------
        >>> dm.replay("first-look")
        Replaying cassette 'first-look' (102 interactions, ...)
        >>> response = dm.get("/v1/users/me")
        >>> response
        <Response [200 OK]>
        >>> response.json()["name"]
        'Stand-in User'
        """
        return self._send("get", "GET", path, options)

    @hide_frames
    def get_many(self, paths: Iterable[str], *, concurrency: int = 8) -> list[Result]:
        """Send a GET request to each path, several at a time.

        A progress bar appears after one second. If you interrupt the call, it
        sends nothing more and returns the responses so far. With a cassette,
        requests for the same path are sent one after the other, so that a
        replay gives each of them the response that was recorded for it.

        Parameters
        ----------
        paths
            Paths below the service address, with a query if you like:
            ``"/v1/lists?page=2"``.
        concurrency
            How many requests may wait for their responses at the same time.

        Returns
        -------
        list of httpx.Response or Exception
            One for each path, in the same order: the response, whatever its
            status, or the error if there was none. An error for one path does
            not stop the others. If some have an error or an error status, a
            line in a notebook, or a warning elsewhere, says how many, and what
            the first one is.

        Raises
        ------
        ValueError
            ``concurrency`` is less than 1, or ``paths`` is a single string.
            Nothing is sent.

        Examples
        --------
        >>> dm.replay("explore-an-unknown-api")
        Replaying cassette 'explore-an-unknown-api' (69 interactions, ...)
        >>> dm.get_many(["/v1/lists", "/v1/users/me"])
        2 results · 200 OK: 2
        """
        from .pages import get_many

        return get_many(self, paths, concurrency=concurrency)

    def pages(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        page: str | None = None,
        offset: str | None = None,
        cursor: str | tuple[str, str] | None = None,
        after: str | tuple[str, str] | None = None,
        max_pages: int | None = None,
        method: str = "GET",
        json: Mapping[str, Any] | None = None,
    ) -> Iterator[httpx.Response]:
        """Request the pages of a list, one after the other.

        By default, each page says how to request the next one: by an address
        (the header ``Link``, ``next_url``, ``links.next``), by a token
        (``next_cursor`` is the value of the parameter ``cursor``), or by a
        number of records or pages (``total``, ``X-Total-Count``) beside the
        ``page``, ``offset`` or ``limit`` of the body or the query. If it says
        so in another way, give ``page``, ``offset``, ``cursor`` or ``after``.
        A warning such as ``3 of 7 records`` says that the list may not be
        whole. There is one, too, if a first page says nothing of others, and
        has 10, 15, 20, 25, 30, 50, 100, … records. ``dm.frame(dm.pages(…))`` is
        one frame of all records.

        Parameters
        ----------
        path
            The path below the service address.
        params
            What to add to the query of the first request: page size and start,
            such as ``{"limit": 100, "page": 0}``.
        page
            The name of the query parameter for the page number. It starts at
            its value in ``params``, or at the number of the service's first
            page: 0 or 1. As long as a total, a flag or the link to the next
            page announces more, the list goes on. Without any, it ends after a
            page with fewer records than the first, also if the service has
            filtered that page. It always ends before an empty page, a repeated
            page or a 404, and only there if no list is recognised in the pages.
        offset
            The name of the query parameter for the number of the first record.
            It starts at its value in ``params``, or at 0. The list ends as with
            ``page``.
        cursor
            The name or dotted path of the next page's token in the body:
            ``"next_cursor"`` or ``"meta.next_cursor"``. The query parameter has
            the same name without ``next``: ``cursor``. If it has another one,
            give both: ``("next_cursor", "start_cursor")``.
        after
            The name of the query parameter for the ``id`` of the last record:
            ``"starting_after"``. If the records' ids have another name, give
            both: ``("uuid", "starting_after")``.
        max_pages
            How many pages to request at most. By default 1,000, with a warning
            if there are more.
        method, json
            For a search by POST: ``method="POST", json={"filter": …}``. Then
            the place is a member of this object, instead of a parameter. Writes
            must be allowed. A search is sent again whenever you ask for it.

        Yields
        ------
        httpx.Response
            A page. An empty page is left out, unless it is the first.

        Raises
        ------
        ServiceError
            The service responded with an error status: to the first page, or
            429 or 5xx to a later one. Whoever asks for the next page again gets
            the one that failed.
        AddressError
            The link to the next page leads to another server. Nothing is sent
            there.
        ValueError
            More than one of ``page``, ``offset``, ``cursor`` and ``after`` is
            given, one of them is no name, or ``max_pages`` is less than 1.
            Nothing is sent.

        Examples
        --------
        >>> dm.replay("explore-an-unknown-api")
        Replaying cassette 'explore-an-unknown-api' (69 interactions, ...)
        >>> for page in dm.pages("/v1/lists"):
        ...     print(len(page.json()), "lists")
        3 lists
        >>> dm.frame(dm.pages("/v1/lists"))["addresses"].sum().item()
        168
        """
        from .pages import Pages

        return Pages(
            self,
            path,
            params=params,
            max_pages=max_pages,
            method=method,
            json=json,
            page=page,
            offset=offset,
            cursor=cursor,
            after=after,
        )

    @hide_frames
    def post(
        self, /, path: str, *, if_sent: IfSent | httpx.Response = "refuse", **options: Any
    ) -> httpx.Response:
        """Send a POST request, if writes are allowed; see `request`."""
        return self._send("post", "POST", path, options, if_sent)

    @hide_frames
    def post_many(
        self,
        /,
        path: str,
        rows: pd.DataFrame | Iterable[dict[str, Any]],
        *,
        if_sent: IfSent | httpx.Response = "keep",
        dry_run: bool = False,
    ) -> pd.DataFrame:
        """Send each row of a table in a POST request of its own, once.

        It needs a recording, which knows after a restart what was sent. Call it
        again, also with corrected rows, and it sends what is left. If the
        service refuses a row for the rate (429), it waits and sends the row
        again. After three new failures in a row, it stops. A line at the end
        counts the outcomes.

        Parameters
        ----------
        path
            The path below the service address.
        rows
            A DataFrame, or a dict for each row. The column ``address.city`` is
            the field ``city`` of ``address``. An empty cell is sent as null.
            A whole number is sent as an integer. All bodies are made before the
            first row is sent.
        if_sent
            As in `request`. By default, a row that was sent is not sent again.
            A response, such as the one to a read that found the letter, settles
            a single row that is unknown: ``dm.post_many(path, rows.loc[["r7"]],
            if_sent=dm.get("/v1/letters/ltr_9"))``.
        dry_run
            Send nothing: return the outcome of each row so far, and its body.

        Returns
        -------
        DataFrame
            A row for each, with the same index. ``outcome`` (string) is
            ``sent``; ``kept`` (sent before); ``replayed``; ``refused`` (a
            status of 4xx: sent when called again); ``unknown`` (no response,
            3xx or 5xx: not sent again unasked); or ``not sent``. ``status``
            (Int64) is the response's, ``error`` (string) what it says of its
            errors and their fields, and ``response`` (object) its body. The
            fields of the bodies of rows that were sent follow, such as
            ``response.id``. A dry run has the column ``body``, too.

        Raises
        ------
        WriteRefusedError
            The session does not allow writes. Nothing is sent.
        DirectMailLabError
            The session has no cassette. Nothing is sent.
        ValueError
            A body cannot be made: the message names its row and column. Or a
            response is given for a row that is not unknown. Nothing is sent.

        Examples
        --------
        >>> with dm.stand_in() as service:
        ...     session = dm.connect(service.base_url, service.api_key)
        ...     session.allow_writes = True
        ...     with dm.record("mailing"):
        ...         rows = [{"to": "Ann"}, {"to": "Bob"}]
        ...         mailing = dm.post_many("/v1/letters", rows)
        >>> mailing["outcome"].tolist()
        ['sent', 'sent']
        """
        from .mailing import post_many

        options = _checked("post_many", {}, if_sent)
        return post_many(self, open_cassette(self), path, rows, dry_run=dry_run, **options)

    @hide_frames
    def put(
        self, /, path: str, *, if_sent: IfSent | httpx.Response = "refuse", **options: Any
    ) -> httpx.Response:
        """Send a PUT request, if writes are allowed; see `request`."""
        return self._send("put", "PUT", path, options, if_sent)

    @hide_frames
    def patch(
        self, /, path: str, *, if_sent: IfSent | httpx.Response = "refuse", **options: Any
    ) -> httpx.Response:
        """Send a PATCH request, if writes are allowed; see `request`."""
        return self._send("patch", "PATCH", path, options, if_sent)

    @hide_frames
    def delete(
        self, /, path: str, *, if_sent: IfSent | httpx.Response = "refuse", **options: Any
    ) -> httpx.Response:
        """Send a DELETE request, if writes are allowed; see `request`."""
        return self._send("delete", "DELETE", path, options, if_sent)

    @hide_frames
    def request(
        self,
        /,
        method: str,
        path: str,
        *,
        if_sent: IfSent | httpx.Response = "refuse",
        **options: Any,
    ) -> httpx.Response:
        """Send a request to a path below the service address.

        A path is sent as it is written, and ``#`` as ``%23``. A response with
        an error status is returned like any other. The session's pacing
        applies. In a notebook, a cell that ends with the response shows the
        start of its body, redacted.

        Parameters
        ----------
        method, path
            ``"GET"`` and ``"/v1/lists"``, for example. Writes must be allowed
            first: ``dm.session().allow_writes = True``.
        if_sent
            What to do with a write that was sent before: by another execution
            of a cell, or by an earlier run of the recording. ``"refuse"``
            raises `AlreadySentError`, and ``"send"`` sends the write again.
            ``"keep"`` returns the last success, or else the last response, and
            sends only what was never sent. If you give a response, such as the
            one to a read that found the letter, it counts as the write's from
            now on, and nothing is sent. A write that the service refused (4xx)
            does not count as sent. What one execution sends twice, in a loop
            for example, is sent twice, but not with ``"keep"``. A replay
            ignores ``if_sent``.
        **options
            The options of `httpx.Client.request`: ``params``, ``json``,
            ``headers`` and so on. ``params`` are added to the query of the
            path. In ``params``, ``data`` and ``json``, numbers of numpy and
            pandas are plain numbers, dates and times ISO 8601, a Decimal has
            its digits, and an Enum is its value. What is missing (None, NA,
            NaN) is null in ``json``, and left out elsewhere.

        Raises
        ------
        WriteRefusedError
            The request is a write, and the session does not allow writes.
            Nothing is sent.
        AlreadySentError
            The write was sent before. With ``if_sent="keep"``, no response to
            it is known. Nothing is sent.
        NotRecordedError
            The session replays a cassette that has no response to this request.
        OutcomeUnknownError
            A write was sent and its response was lost: it may have been carried
            out.
        httpx.RequestError
            A read got no response: the connection failed or timed out, for
            example.
        """
        return self._send("request", method, path, options, if_sent)

    def _send(
        self,
        called: str,
        method: str,
        path: str,
        options: dict[str, Any],
        if_sent: IfSent | httpx.Response = "refuse",
    ) -> httpx.Response:
        options = _checked(called, options, if_sent)
        path, options["params"] = add_params(path, options.get("params"))
        # Not the client's own, which hides its frames once more.
        return httpx.Client.request(self.client, method, path, **options)

    @property
    def allow_writes(self) -> bool:
        """Whether writes may be sent to the live service.

        It can be set, ``dm.session().allow_writes = True``, but not for the
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

    def _bind_to_test(self, *, folders: Sequence[Path], matching: Matching, advice: str) -> None:
        """Let a test decide how its session matches and writes.

        Names are looked up in ``folders`` first. `allow_writes` is fixed;
        ``advice`` says how a test changes it.
        """
        self._folders = folders
        self._matching = matching
        self._write_advice = advice
        if self._network is not None:
            self._network.write_advice = advice

    # -- closing ------------------------------------------------------------------------

    def close(self) -> None:
        """End the recording, close all connections and forget the key."""
        closed = RefusingTransport("This session is closed.")
        try:
            self._transport.enter(Mode("live", closed, self._sent))
        finally:  # even if ending the recording failed
            if self._network is not None:
                self._network.connections.close()
            self._network = None
            self._api_key = None
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._network is not None:
            await self._network.connections.aclose()
        self.close()

    def __repr__(self) -> str:
        does = {"record": f"recording {self.cassette!r}", "replay": f"replaying {self.cassette!r}"}
        recorded = self.recording.recorded_note if self.mode == "replay" else ""
        count = plural(len(self.recording), "interaction")
        return f"Session · {does.get(self.mode, 'live')}{recorded} · {self.base_url} · {count}"

    def __reduce__(self) -> NoReturn:
        raise DirectMailLabError(
            "A session contains a key, so it cannot be pickled.",
            "Connect in the process that uses it.",
        )


def _checked(
    called: str, options: dict[str, Any], if_sent: IfSent | httpx.Response = "refuse"
) -> dict[str, Any]:
    """Return the options of `httpx.Client.request` for those of the method ``called``."""
    if options:
        check_options(called, options, (*REQUEST_OPTIONS, "if_sent"))
    if_sent = options.pop("if_sent", if_sent)
    if isinstance(if_sent, httpx.Response):
        if not (if_sent.is_success and if_sent.is_closed):
            raise argument_error(
                "The response that if_sent gives must be a success that was read. Give the "
                "response to the request that found what the write made."
            )
        if shows_nothing(if_sent):
            raise argument_error(
                "The response that if_sent gives is an empty list, so it does not show that the "
                "write was carried out. Give the response that has what the write made."
            )
    elif if_sent != "refuse":
        check_choice("if_sent", if_sent, get_args(IfSent))
    extensions = options.get("extensions") or {}
    return {**options, "extensions": {**extensions, IF_SENT: if_sent}}


def _frame(response: httpx.Response) -> pd.DataFrame:
    with naming_what_is_missing():  # a replaying test needs no pandas
        from .frames import frame

    return frame(response)


def _forget(
    recording: SessionRecording,
    key: ApiKey | None,  # noqa: ARG001 - kept alive until now: a redactor knows only such keys
    end_log_guard: Callable[[], None],
) -> None:
    """Redact what a session keeps, and remove its log filter: both need the key."""
    try:
        recording.redact_for_good()
    finally:
        end_log_guard()


# For the other modules. No user needs them, so Tab after a session does not show them.
open_recording = Session._open_recording
bind_to_test = Session._bind_to_test
unobserved = Session._unobserved
allow_recording_without_key = Session._allow_recording_without_key


def transport_of(session: Session) -> ModeTransport:
    """Return what the clients of a session send through."""
    return session._transport


def open_cassette(session: Session) -> Cassette | None:
    """Return the cassette that records or replays, or None."""
    return session._transport.mode.cassette


def allowances_of(session: Session) -> Allowances:
    """Return the waits of a session for the allowance of each operation."""
    return session._allowances


def key_of(session: Session) -> ApiKey | None:
    """Return the key of a session, in an object that does not show it, or None."""
    return session._api_key


def on_reading(session: Session, callback: Callable[[Reading], None]) -> Callable[[], object]:
    """Call ``callback`` with each reading, in the request's thread; return what ends this."""
    token = object()
    listeners = session._observe.listeners
    listeners[token] = callback
    return lambda: listeners.pop(token, None)


def with_session_options(function: _F) -> _F:
    """Show the options of `Session` in the signature of a function that passes them on."""
    own = inspect.signature(function)
    of_session = inspect.signature(Session).parameters.values()
    parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    parameters += [each for each in of_session if each.kind is each.KEYWORD_ONLY]
    vars(function)["__signature__"] = own.replace(parameters=parameters)
    return function
