"""The current session, which is the only global state of the package, and the calls on it."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from .arguments import (
    Like,
    RecordMode,
    Repeat,
    argument_error,
    check_names,
    check_number,
    check_options,
)
from .cassettes import BeforeRecord, FileRecording, Matcher, SessionRecording
from .contract import ME_PATH
from .credentials import ApiKey, as_api_key, find_api_key, forget_api_key, remembered_api_key
from .display import ProgressBar
from .errors import NotConnectedError
from .http import httpx, recorded_request
from .keyless import replay_in_place, replaying_session
from .modes import Entered, ModeChange, Timing
from .sessions import Session, SessionOptions
from .settings import API_KEY_VARIABLE, BASE_URL_VARIABLE, choose_address, variable
from .tracebacks import hide_frames

if TYPE_CHECKING:
    import pandas as pd


_MOST_SESSIONS: Final = 20


class _Current:
    """The session that the module-level calls act on, and the callbacks for when it changes.

    And the recordings of the sessions that were opened here, by account, the newest last.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.callbacks: dict[object, Callable[[], object]] = {}
        self.histories: dict[bytes, deque[SessionRecording]] = {}


_current: Final = _Current()


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
    **options: Unpack[SessionOptions],
) -> Session:
    """Open a session and make it the current one. Nothing is sent yet.

    Parameters
    ----------
    base_url
        The base address or a configured region's name; else ``DIRECTMAIL_BASE_URL``, else the one
        configured region.
    api_key
        The key; else ``DIRECTMAIL_API_KEY``, else the one kept in the keyring by
        ``login(remember=True)``.
    cassette, record_mode
        Start on this cassette, by one of vcrpy's record modes. With a cassette and no mode it is
        replayed (``"none"``), which needs neither key nor address; given both, `live` goes on.
    match_on, ignore, like
        See `record`.
    timeout_s : float, default 30
        Seconds to wait for a connection, and for each part of a response.
    pace : {"burst", "even", "off"}, default "burst"
        ``"burst"`` sends at will while the allowance lasts, ``"even"`` spreads requests over the
        window, ``"off"`` never waits.
    max_wait_s : float, default 120
        The most seconds that one request waits for the allowance, over all its attempts; instead
        of a longer wait, `AllowanceExhaustedError` is raised.
    reset_unit : {"seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"}, optional
        The unit of ``X-RateLimit-Reset`` where you know it; else it is inferred.
    allow_writes : bool, default False
        Whether methods other than GET, HEAD and OPTIONS may be sent to the live service.
    retry : bool, default True
        Whether a read that failed, or was refused (429), is sent again.
    paths : list of str, optional
        Templates of paths, such as ``["/v1/domains/{domain}"]``, where `rate_limits`, `findings`
        and the like take a name for an id or an id for a name.

    Raises
    ------
    NotConnectedError
        No address was given or found.
    AddressError
        The address is not a valid one, has user info, or would send the key unencrypted.
    CredentialError
        No key was given or found, or HTTP Basic cannot carry it.
    CassetteError
        The cassette cannot be found, read or written.
    """
    check_options("connect", options, ["api_key", *SessionOptions.__annotations__])
    if record_mode is not None and cassette is None:
        raise argument_error("A record_mode needs a cassette: connect(…, cassette=…).")
    hidden = as_api_key(api_key)
    mode: RecordMode = record_mode or "none"
    start: str | Path | FileRecording | None = cassette
    if cassette is not None and mode == "none" and (base_url is None or hidden is None):
        opened, start = replaying_session(cassette, base_url, **options)
    else:
        address = choose_address(base_url)
        opened = Session(address, find_api_key(hidden, base_url=address), **options)
    if start is not None:
        try:
            opened.record(start, record_mode=mode, match_on=match_on, ignore=ignore, like=like)
        except BaseException:
            opened.close()
            raise
    _join_history(opened)
    make_current(opened)
    return opened


def _join_history(opened: Session) -> None:
    """Let a session's recording go on where the last one of the same account ended."""
    if opened.api_key is not None:
        account = opened.api_key.account(opened.base_url)
        history = _current.histories.setdefault(account, deque(maxlen=_MOST_SESSIONS))
        history.append(opened.sent)
        opened.sent.history = history


def make_current(opened: Session | None) -> None:
    """Make a session the current one; with None, there is no current session."""
    _current.session = opened
    for callback in list(_current.callbacks.values()):
        callback()


def current_session() -> Session | None:
    """Return the current session, or None; unlike `session` it never opens one."""
    return _current.session


def on_current_change(callback: Callable[[], object]) -> Callable[[], object]:
    """Call ``callback`` whenever the current session changes; return a function to stop that."""
    token = object()
    _current.callbacks[token] = callback
    return lambda: _current.callbacks.pop(token, None)


def session() -> Session:
    """Return the current session; if there is none, open one from the environment.

    Raises
    ------
    NotConnectedError
        There is none, and the environment does not hold both an address and a key.
    """
    if _current.session is not None:
        return _current.session
    if not (variable(API_KEY_VARIABLE) and variable(BASE_URL_VARIABLE)):
        raise NotConnectedError(
            "No session is open.",
            "Sign in with login(), connect(base_url=…, api_key=…), or replay a "
            f'recording with replay("first-look"). Or set {BASE_URL_VARIABLE} and '
            f"{API_KEY_VARIABLE}.",
        )
    return connect()


def logout() -> None:
    """Close the current session and forget its key, in memory and in the keyring.

    A browser that is opened afterwards shows nothing of this account's earlier sessions.
    """
    closing = _current.session
    make_current(None)
    if closing is not None:
        for account, history in list(_current.histories.items()):
            if closing.sent in history:
                del _current.histories[account]
                history.clear()
        closing.close()
        forget_api_key(closing.base_url)


# -- requests ------------------------------------------------------------------------------------


def me() -> pd.DataFrame:
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
    return session().me()


def request(method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request below the base address.

    An error status is returned, not raised. The session's pacing applies.

    Parameters
    ----------
    method, path
        ``"GET"`` and ``"/v1/lists"``, for example. A write has to be allowed:
        ``dm.session().allow_writes = True``.
    **options
        Those of `httpx.Client.request`: ``params``, ``json``, ``headers`` and so on.

    Raises
    ------
    WriteRefusedError
        The request is a write, and the session allows none; nothing is sent.
    NotRecordedError
        A replay has no response to this request.
    OutcomeUnknownError
        A write was sent and its response was lost: it may have been carried out.
    httpx.RequestError
        No response came to a read: no connection, for example, or none in time.
    """
    return session().request(method, path, **options)


def get(path: str, **options: Any) -> httpx.Response:
    """Send a GET; see `request`."""
    return session().get(path, **options)


def post(path: str, **options: Any) -> httpx.Response:
    """Send a POST, which has to be allowed as all writes do; see `request`."""
    return session().post(path, **options)


def burst(n: int, path: str = ME_PATH) -> pd.DataFrame:
    """Send ``n`` GET requests through the current session, one after the other.

    The session's pacing applies. A progress bar appears after a second. An interruption leaves the
    session usable, and `rate_limits` then has the readings of what was sent before it. A replay
    that runs out of responses repeats the last one, with a warning.

    Parameters
    ----------
    n
        How many, 1 or more.
    path
        The path below the base address.

    Returns
    -------
    DataFrame
        The session's readings meanwhile, those of retries included: columns as in `rate_limits`.

    Raises
    ------
    ValueError
        Where ``n`` is no number, or less than 1; nothing is sent.
    """
    from .readings.frame import frame_of

    check_number("n", n, least=1)
    opened = session()
    recorded = recorded_request(opened.client.build_request("GET", path))
    cassette, first, repeated = opened.open_cassette, len(opened.recording), 0
    with ProgressBar(n, desc=f"GET {path}", unit="request") as bar:
        for _ in range(n):
            if cassette is not None and not cassette.records:
                repeated += not cassette.has_unplayed(recorded)
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
    """Send every request of the session to the service, and record none.

    Also a context manager and a decorator, as `record` is.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    """
    return ModeChange(lambda: session().live().entered)


def record(
    cassette: str | Path,
    *,
    record_mode: RecordMode = "new_episodes",
    redact: Iterable[str] = (),
    match_on: Sequence[str | Matcher] | None = None,
    ignore: Iterable[str] = (),
    like: Like | None = None,
    before_record: BeforeRecord | None = None,
) -> ModeChange[Session]:
    """Record the session to a cassette; without a key, replay the one that is there.

    The mode lasts until the next change of mode; as a context manager or as a decorator, until
    the end of the block or of the call.

    So one notebook serves its author, who signs in and records, and a reader, who has no key. In
    the modes ``"new_episodes"`` and ``"once"``, the file that a recording would write is replayed
    if there is no key: neither in the current session, nor in the environment or the keyring. A
    printed line says so, with the date of the recording. A write that is replayed warns that
    nothing was sent. `Session.record` and a test's session never replay in place of recording.

    Parameters
    ----------
    cassette
        A bare name, kept in the nearest ``cassettes`` folder, or a `Path` to a file.
    record_mode
        vcrpy's: ``"new_episodes"`` replays what the cassette has and records the rest,
        ``"once"`` records only where there is no such file yet, ``"all"`` sends everything
        and records it; when it is closed, that replaces the old responses to the same requests,
        and others stay; ``"none"`` only replays.
    redact
        What to replace besides the key and usual credentials: names of headers and of fields,
        dotted paths, and ``"personal"`` for e-mail addresses and telephone numbers anywhere, and
        for fields that by their name hold a name, postal address, company, birth date or bank
        account. Personal data becomes stable pseudonyms.
    match_on
        What must be equal in two requests: names of vcrpy's matchers, and functions that
        compare two of vcrpy's requests. By default the method, the path below the base address,
        the query, and the body of writes.
    ignore
        What is left out of both requests before they are compared: ``"query:NAME"``,
        ``"header:NAME"``, and ``"body:NAME"`` for a field of a form, or of JSON by its dotted path.
    like
        ``"vcrpy"`` compares as vcrpy does by default: method, whole address and query, no body. The
        responses of a cassette that another program wrote are then played as they were recorded,
        with their cookies and tokens; what is shown, converted or written stays redacted.
    before_record
        A function that takes each `Interaction` before it is redacted, and returns what is recorded
        in its place, or None to leave it out. The caller and the session have the response as it
        came. A replay compares requests with those that it returned.

    Raises
    ------
    NotConnectedError
        There is no key, and no such cassette to replay; or the mode is ``"all"``.
    CassetteInUseError
        Another recording holds the cassette.
    CassetteError
        The cassette cannot be read or written, or its name leads out of the folder. By a request:
        ``before_record`` failed. The request was carried out, and `interactions` has the response.

    Examples
    --------
    Leave out what is polled, and empty the bodies of files::

        from dataclasses import replace

        def slim(interaction):
            request, response = interaction.request, interaction.response
            if request.uri.endswith("/v1/status"):
                return None
            if ("content-type", "application/pdf") in response.headers:
                return replace(interaction, response=replace(response, body=b""))
            return interaction

        dm.record("tour", before_record=slim)
    """
    options: dict[str, Any] = {"redact": check_names("redact", redact), "ignore": ignore}
    options |= {"match_on": match_on, "like": like, "before_record": before_record}
    said: list[str] = []  # once, however often a decorated function is called

    def enter() -> Entered[Session]:
        if record_mode not in _REPLAYED_WITHOUT_KEY or _connect_with_key():
            return session().record(cassette, record_mode=record_mode, **options).entered
        entered, line = replay_in_place(_current.session, cassette, options)
        make_current(entered.session)
        if not said:
            sys.stdout.write(f"{line}\n")
            said.append(line)
        return entered

    change = ModeChange(enter)
    if said:  # so IPython does not show the same once more
        vars(change)["_ipython_display_"] = lambda: None
    return change


_REPLAYED_WITHOUT_KEY: Final = ("new_episodes", "once")


def _connect_with_key() -> bool:
    """Return whether there is a key to record with, after looking for one if the session has none.

    If one is found in the environment or the keyring, a session with it becomes the current one.
    """
    current = _current.session
    # The session of a test has folders of its own. What it replays must not pass for new.
    if current is not None and (current.api_key is not None or current.folders):
        return True
    if not variable(API_KEY_VARIABLE):
        try:
            address = choose_address()
        except NotConnectedError:  # the keyring keeps a key for each address
            return False
        if remembered_api_key(address) is None:
            return False
    connect()
    return True


def replay(
    cassette: str | Path,
    *,
    timing: Timing = "instant",
    repeat: Repeat = "last",
    match_on: Sequence[str | Matcher] | None = None,
    ignore: Iterable[str] = (),
    like: Like | None = None,
) -> ModeChange[Session]:
    """Answer from a cassette alone, with no key and no network.

    Also a context manager and a decorator, as `record` is. Without a current session, it opens one
    that can only replay.

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
    match_on, ignore, like
        See `record`.

    Raises
    ------
    CassetteNotFoundError
        There is no such cassette.
    CassetteFormatError
        The file is not a cassette.
    """

    def enter() -> Entered[Session]:
        start: str | Path | FileRecording = cassette
        if (opened := _current.session) is None:
            opened, start = replaying_session(cassette)
        options: dict[str, Any] = {"match_on": match_on, "ignore": ignore, "like": like}
        entered = opened.replay(start, timing=timing, repeat=repeat, **options).entered
        if opened is not _current.session:
            make_current(opened)
        return entered

    return ModeChange(enter)
