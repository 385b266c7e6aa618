"""The current session, which the calls of `directmail_lab` share, and these calls."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..arguments import (
    IfSent,
    Like,
    RecordMode,
    Repeat,
    argument_error,
    check_names,
    check_number,
)
from ..cassettes import (
    BeforeRecord,
    FileRecording,
    Matcher,
    Matching,
    new_cassette_path,
)
from ..contract import ME_PATH
from ..credentials import ApiKey, as_api_key, find_api_key, forget_api_key, remembered_api_key
from ..display import ProgressBar
from ..errors import CassetteInUseError, NotConnectedError, naming_what_is_missing
from ..exchange.httpx_values import httpx, request_value
from ..settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    choose_address,
    forget_address,
    keyring_entries,
    keyring_entry,
    variable,
)
from ..tracebacks import hide_frames
from .modes import Entered, ModeChange, Timing
from .replaying import replay_in_place, replaying_session
from .session import Session, SessionOptions
from .transports.allowance import Pace

if TYPE_CHECKING:
    import pandas as pd

    from ..readings.reset_unit import ResetUnit


class _Current:
    """The session that the module-level calls use, and the callbacks for when it changes.

    It also keeps what the last form of `login` asked for, the last mode of `record` that replays
    because there was no key, and the sessions that somebody still has, such as IPython in ``Out``.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.callbacks: dict[object, Callable[[], object]] = {}
        self.asked: dict[str, Any] = {}
        self.without_key: ModeChange[Session] | None = None
        self.opened: weakref.WeakSet[Session] = weakref.WeakSet()


_current = _Current()


@hide_frames
def connect(
    base_url: str | None = None,
    api_key: str | ApiKey | None = None,
    *,
    cassette: str | Path | None = None,
    record_mode: RecordMode | None = None,
    match_on: Sequence[str | Matcher] | None = None,
    ignore: Iterable[str] = (),
    like: Like | None = None,
    timeout_s: float = 30.0,
    pace: Pace = "burst",
    max_wait_s: float = 120.0,
    reset_unit: ResetUnit | None = None,
    allow_writes: bool = False,
    retry: bool = True,
    paths: Collection[str] = (),
) -> Session:
    """Open a session and make it the current one. It sends nothing yet.

    Parameters
    ----------
    base_url
        The base address, or the name of a configured region. By default
        ``DIRECTMAIL_BASE_URL``, or else the region, if just one is configured,
        or else the address that `login` remembers.
    api_key
        The API key. By default ``DIRECTMAIL_API_KEY``, or else the key that
        ``login(remember=True)`` put in the keyring.
    cassette, record_mode
        Start with this cassette, in one of the modes of `record`. With a
        cassette and no mode, the session replays it (``"none"``), which needs
        neither key nor address. If you give them too, `live` can end the
        replay.
    match_on, ignore, like
        See `record`.
    timeout_s
        Seconds to wait for a connection, and for each part of a response.
    pace
        ``"burst"`` sends without delay while the allowance lasts, ``"even"``
        spreads requests over the window, ``"off"`` never waits.
    max_wait_s
        How many seconds one request waits for the allowance at most, over all
        its attempts. A request that would have to wait longer raises
        `AllowanceExhaustedError`.
    reset_unit
        The unit of ``X-RateLimit-Reset``: ``"seconds_left"``,
        ``"milliseconds_left"``, ``"epoch_s"`` or ``"epoch_ms"``. By default it
        is inferred from the readings, and always in a replay of another
        address's recording.
    allow_writes
        Whether methods other than GET, HEAD and OPTIONS may be sent to the live
        service.
    retry
        Whether a read that failed, or was refused with 429, is sent again.
    paths
        Templates of paths, such as ``["/v1/domains/{domain}"]``. Give one if
        `rate_limits` or `findings` mistakes a name in a path for an id, or an
        id for a name. Pacing does not use them.

    Raises
    ------
    NotConnectedError
        No address was given or found.
    AddressError
        The address is not valid, has user info, or would send the key
        unencrypted.
    CredentialError
        No key was given or found, or HTTP Basic cannot carry it.
    CassetteError
        The cassette cannot be found, read or written.

    Examples
    --------
    >>> dm.connect(cassette="first-look")
    <Session replay 'first-look'...>
    >>> with dm.stand_in() as service:
    ...     session = dm.connect(service.base_url, service.api_key)
    ...     session.mode
    'live'
    """
    if record_mode is not None and cassette is None:
        raise argument_error("record_mode needs a cassette: connect(…, cassette=…).")
    options = SessionOptions(
        timeout_s=timeout_s,
        pace=pace,
        max_wait_s=max_wait_s,
        reset_unit=reset_unit,
        allow_writes=allow_writes,
        retry=retry,
        paths=paths,
    )
    matching = Matching(match_on, ignore, like)
    hidden = as_api_key(api_key)
    mode: RecordMode = record_mode or "none"
    start: str | Path | FileRecording | None = cassette
    if cassette is not None and mode == "none" and (base_url is None or hidden is None):
        opened, start = replaying_session(cassette, base_url, **options)
    else:
        address = choose_address(base_url)
        opened = Session(address, find_api_key(hidden, entry=keyring_entry(base_url)), **options)
    if start is not None:
        try:
            _record(opened, start, record_mode=mode, matching=matching)
        except BaseException:
            opened.close()
            raise
    make_current(opened)
    return opened


def _record(
    opened: Session, cassette: str | Path | FileRecording, **options: Any
) -> ModeChange[Session]:
    """Record in a session. An earlier current session stops recording the same cassette."""
    try:
        return opened.record(cassette, **options)
    except CassetteInUseError:
        place = cassette if isinstance(cassette, str | Path) else cassette.name
        path = new_cassette_path(place, opened._folders)
        is_own = False
        for each in _current.opened:
            own = each._open_cassette
            if each is not opened and own is not None and own.path == path:
                own.close()
                is_own = True
        if not is_own:
            raise
        return opened.record(cassette, **options)


def make_current(opened: Session | None) -> None:
    """Make a session the current one; with None, there is no current session."""
    _current.session = opened
    if opened is not None:
        _current.opened.add(opened)
    for callback in list(_current.callbacks.values()):
        callback()


def current_session() -> Session | None:
    """Return the current session, or None; unlike `session`, it never opens one."""
    return _current.session


def on_current_change(callback: Callable[[], object]) -> Callable[[], object]:
    """Call ``callback`` whenever the current session changes; return a function that ends this."""
    token = object()
    _current.callbacks[token] = callback
    return lambda: _current.callbacks.pop(token, None)


def session() -> Session:
    """Return the current session, or open one with a key that is found.

    Raises
    ------
    NotConnectedError
        No session is open, and neither the environment nor `login` has an
        address and a key.
    """
    if _current.session is None and not _connect_with_key():
        raise NotConnectedError(
            "No session is open.",
            "Sign in with login() or connect(base_url=…, api_key=…), or replay a recording with "
            f'replay("first-look"). You can also set {BASE_URL_VARIABLE} and {API_KEY_VARIABLE}.',
        )
    assert _current.session is not None, "it is open now"
    return _current.session


def logout() -> None:
    """Close the current session and forget its key, also in the keyring."""
    closing = _current.session
    make_current(None)
    if closing is None:
        return
    key = closing.api_key
    closing.close()
    if key is not None:
        for entry in keyring_entries(closing.base_url):
            forget_api_key(key, entry=entry)
        forget_address(closing.base_url)


# -- requests ------------------------------------------------------------------------------------


def me() -> pd.DataFrame:
    """Return the current user's record as one row (``GET /v1/users/me``).

    Sign in first, with `login` or `connect`, or replay a recording. The columns
    depend on what the service sends; see `frame`.

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
    return session().me()


def request(
    method: str, path: str, *, if_sent: IfSent = "refuse", **options: Any
) -> httpx.Response:
    """Send a request to a path below the base address.

    A response with an error status is returned like any other. The session's
    pacing applies. In a notebook, a cell that ends with the response shows the
    start of its body, redacted.

    Parameters
    ----------
    method, path
        ``"GET"`` and ``"/v1/lists"``, for example. Writes must be allowed
        first: ``session().allow_writes = True``.
    if_sent
        What to do with a write that was sent before: by another execution of a
        cell, or by an earlier run of the recording. ``"refuse"`` raises
        `AlreadySentError`, and ``"send"`` sends the write again. ``"keep"``
        returns the last success, or else the last response, and sends only what
        was never sent. A write that the service refused (4xx) does not count.
        What one execution sends twice, in a loop for example, is sent twice,
        but not with ``"keep"``. A replay ignores ``if_sent``.
    **options
        The options of `httpx.Client.request`: ``params``, ``json``, ``headers``
        and so on.

    Raises
    ------
    WriteRefusedError
        The request is a write, and the session does not allow writes. Nothing
        is sent.
    AlreadySentError
        The write was sent before. With ``if_sent="keep"``, no response to it is
        known. Nothing is sent.
    NotRecordedError
        The session replays a cassette that has no response to this request.
    OutcomeUnknownError
        A write was sent and its response was lost: it may have been carried
        out.
    httpx.RequestError
        A read got no response: the connection failed or timed out, for example.
    """
    return session().request(method, path, if_sent=if_sent, **options)


def get(path: str, **options: Any) -> httpx.Response:
    """Send a GET request to a path below the base address.

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
    return session().get(path, **options)


def post(path: str, *, if_sent: IfSent = "refuse", **options: Any) -> httpx.Response:
    """Send a POST request, if writes are allowed; see `request`."""
    return session().post(path, if_sent=if_sent, **options)


def burst(n: int, path: str = ME_PATH) -> pd.DataFrame:
    """Send ``n`` GET requests through the current session, one after the other.

    The session's pacing applies. A progress bar appears after a second. If you
    interrupt the call, the session stays usable, and `rate_limits` has the
    readings up to then. A replay that runs out of responses repeats the last
    one, with a warning.

    Parameters
    ----------
    n
        How many requests, 1 or more.
    path
        The path below the base address.

    Returns
    -------
    DataFrame
        The session's readings during the call, retries included. Columns as in
        `rate_limits`.

    Raises
    ------
    ValueError
        ``n`` is not a number, or is less than 1. Nothing is sent.
    """
    with naming_what_is_missing():
        from ..readings.frame import frame_of

    check_number("n", n, least=1)
    opened = session()
    recorded = request_value(opened.client.build_request("GET", path))
    played = opened._open_cassette
    if played is not None and played.records:
        played = None
    first = len(opened.recording)
    repeated = 0
    with ProgressBar(n, desc=f"GET {path}", unit="request") as bar:
        for _ in range(n):
            if played is not None and not played.has_unplayed(recorded):
                repeated += 1
            opened.request("GET", path)
            bar.update()
    if repeated:
        warnings.warn(
            f"Cassette {opened.cassette!r} had {n - repeated} responses left for GET {path}: the "
            f"last one was repeated {repeated} times.",
            stacklevel=2,
        )
    recording = opened.recording
    return frame_of(
        recording.readings()[first:],
        unit=recording.evidence.unit,
        numbers=range(first + 1, len(recording) + 1),
        paths=opened.paths,
    )


# -- modes ---------------------------------------------------------------------------------------


def live() -> ModeChange[Session]:
    """Send every request to the service, and record nothing.

    Like `record`, it is also a context manager and a decorator.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    """
    return ModeChange(lambda: session().live().entered)


def record(
    cassette: str | Path,
    *,
    record_mode: RecordMode = "update",
    redact: Iterable[str] = (),
    match_on: Sequence[str | Matcher] | None = None,
    ignore: Iterable[str] = (),
    like: Like | None = None,
    before_record: BeforeRecord | None = None,
) -> ModeChange[Session]:
    """Send each request and record it to a cassette; without a key, replay it.

    The mode lasts until you change it again. As a context manager or a
    decorator, it lasts until the end of the block or the call.

    A new response replaces the responses of earlier runs to the same request;
    the other interactions stay. A run is what one process records to one
    cassette. ``record(…)`` as a statement begins a new one, while a ``with``
    block or a decorated call continues it. Whoever reads the cassette meanwhile
    gets the new responses in place of the old ones, also if the kernel is
    killed. A response with status 401, 403, 429 or 5xx does not replace a
    success: it is replayed only while there is no other response to its
    request.

    The parts of a response reach you as they come, and the interaction is in
    the cassette before you see its end. A body that you read only in part, or
    that broke off, is recorded up to there. A read to which no response came is
    not recorded.

    A write that was sent before raises `AlreadySentError`: see ``if_sent`` in
    `request`. A write is in the cassette before it is sent. If it cannot be
    written there, it is not sent.

    The same notebook serves its author, who signs in and records, and its
    readers, who have no key. If neither the current session nor the environment
    nor the keyring has a key, every mode replays the file that it would
    otherwise write. A printed line says so, with the date of the recording. A
    replayed write warns that nothing was sent. `Session.record` and the session
    of a test always record.

    Parameters
    ----------
    cassette
        A bare name, kept in the folder that ``DIRECTMAIL_CASSETTES`` names, or
        else in the nearest ``cassettes`` folder. Or a `Path` to a file.
    record_mode
        ``"update"`` is described above. ``"all"`` does the same, and sends
        every write again, but not with ``if_sent="keep"``: use it around a call
        that has no ``if_sent``. The others are vcrpy's, and replay:
        ``"new_episodes"`` and ``"any"`` replay what the cassette has and record
        the rest, ``"once"`` records a new cassette and only replays one that
        exists, and ``"none"`` only replays. A write that they replay warns that
        nothing was sent. A write to which no response came is refused.
    redact
        What to replace besides the key and usual credentials: names of headers
        and fields, dotted paths, and ``"personal"``. The latter stands for
        e-mail addresses and telephone numbers anywhere, and for fields whose
        name says that they contain a name, postal address, company, birth date
        or bank account. Personal data becomes stable pseudonyms.
    match_on
        What must be equal for a recorded request to match: names of vcrpy's
        matchers, and functions that compare two of vcrpy's requests. By default
        the method, the path below the base address, the query, the body and
        ``Range``. JSON counts by its values and their types, a form by its
        fields, a multipart body by its parts, all decompressed. A path that is
        named without host or port is the same on every host.
    ignore
        What is left out of both requests before they are compared:
        ``"query:NAME"``, ``"header:NAME"``, or ``"body:NAME"`` for a field of a
        form or the dotted path of a JSON value.
    like
        ``"vcrpy"`` matches as vcrpy does by default: method, whole address and
        query, no body. If another program wrote the cassette, its responses are
        then played exactly as recorded, with their cookies and tokens. They are
        still redacted when shown, converted or written.
    before_record
        A function that gets each `Interaction` before it is redacted. It
        returns the interaction to record, or None to leave it out. The caller
        and the session get the unchanged response. A replay matches requests
        against what the function returned.

    Raises
    ------
    NotConnectedError
        There is no key, and no such cassette to replay.
    CassetteInUseError
        Another recording writes the same cassette. If that is the recording of
        an earlier current session of this process, it ends instead.
    CassetteError
        The cassette cannot be read or written, or its name leads out of the
        folder. Or it was recorded at another base address (in the modes
        ``"update"`` and ``"all"``; all addresses of this machine are one). A
        later request raises it if ``before_record`` fails; `interactions` then
        still has the response.

    Examples
    --------
    >>> with dm.stand_in() as service:
    ...     session = dm.connect(service.base_url, service.api_key)
    ...     with dm.record("my-tour"):
    ...         response = dm.get("/v1/lists")
    >>> dm.replay("my-tour")
    Replaying cassette 'my-tour' (1 interaction, ...

    Leave out requests to a path that is polled, and record PDF files without
    their content::

        from dataclasses import replace

        def slim(interaction):
            request, response = interaction.request, interaction.response
            if request.uri.endswith("/v1/status"):
                return None
            if ("content-type", "application/pdf") in response.headers:
                response = replace(response, body=b"")
                return replace(interaction, response=response)
            return interaction

        dm.record("tour", before_record=slim)
    """
    options: dict[str, Any] = {
        "redact": check_names("redact", redact),
        "matching": Matching(match_on, ignore, like),
        "before_record": before_record,
    }
    said: list[str] = []  # printed once, even if a decorated function is called often

    def enter() -> Entered[Session]:
        if record_mode == "none" or _connect_with_key():
            change = _record(session(), cassette, record_mode=record_mode, **options)
            return change.entered
        entered, line = replay_in_place(_current.session, cassette, options)
        make_current(entered.session)
        if not said:
            sys.stdout.write(f"{line}\n")
            said.append(line)
        return entered

    change = ModeChange(enter)
    if said:  # IPython would show the same text again
        vars(change)["_ipython_display_"] = lambda: None
        _current.without_key = change
    return change


def record_without_key() -> ModeChange[Session] | None:
    """Return what `record` entered without a key, if the current session is still in that mode.

    With a key, ``enter_again()`` records.
    """
    change = _current.without_key
    if change is None or change.entered.session is not _current.session:
        return None
    return change if change.is_on() else None


def _connect_with_key() -> bool:
    """Return whether there is a key to record with.

    If the session has no key but the environment or the keyring has one, open a session with it.
    """
    current = _current.session
    # A session with its own folders is that of a test, which must not replay instead of recording.
    if current is not None and (current.api_key is not None or current._folders):
        return True
    if not variable(API_KEY_VARIABLE):
        try:
            entry = keyring_entry(_current.asked.get("base_url"))
        except NotConnectedError:  # without an address, the keyring cannot be searched
            return False
        if remembered_api_key(entry) is None:
            return False
    connect(**_current.asked)
    return True


def expect_sign_in(base_url: str | None, **options: Unpack[SessionOptions]) -> None:
    """Note what a form of `login` asks for, in case a key is found without it."""
    _current.asked = {"base_url": base_url, **options}


def replay(
    cassette: str | Path,
    *,
    timing: Timing = "instant",
    repeat: Repeat = "last",
    match_on: Sequence[str | Matcher] | None = None,
    ignore: Iterable[str] = (),
    like: Like | None = None,
) -> ModeChange[Session]:
    """Return the responses of a cassette, with no key and no network.

    Like `record`, it is also a context manager and a decorator. If there is no
    current session, it opens one that can only replay.

    Parameters
    ----------
    cassette
        A bare name, looked up in ``DIRECTMAIL_CASSETTES``, the nearest
        ``cassettes`` folder upward and the packaged tutorials; or a `Path` to a
        file.
    timing
        ``"instant"`` does not wait, ``"recorded"`` waits as long as the headers
        of the response took, and a number is a factor of that time, such as
        0.5. No response waits more than 30 s.
    repeat
        What follows the last recorded response to a request: the same response
        again (``"last"``), or `NotRecordedError` (``"strict"``).
    match_on, ignore, like
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
    matching = Matching(match_on, ignore, like)

    def enter() -> Entered[Session]:
        start: str | Path | FileRecording = cassette
        opened = _current.session
        if opened is None:
            opened, start = replaying_session(cassette)
        entered = opened.replay(start, timing=timing, repeat=repeat, matching=matching).entered
        if opened is not _current.session:
            make_current(opened)
        return entered

    return ModeChange(enter)
