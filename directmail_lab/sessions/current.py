"""The current session, which the calls of `directmail_lab` share, and these calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, update_wrapper
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from ..arguments import RecordMode, check_options, parse_age, rules_of
from ..cassettes import (
    FileRecording,
    Policy,
    find_cassette,
    new_cassette_path,
    read_cassette,
)
from ..cassettes.library import cassette_name
from ..credentials import ApiKey, as_api_key, find_api_key, forget_api_key, remembered_api_key
from ..display import plural, wrapped
from ..errors import AddressError, NotConnectedError, NotRecordedError
from ..settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    LIVE_VARIABLE,
    NO_ADDRESS,
    choose_address,
    forget_address,
    keyring_entries,
    keyring_entry,
    variable,
)
from ..tracebacks import hide_frames
from .session import (
    ModeChange,
    Session,
    SessionOptions,
    key_of,
    open_cassette,
    open_recording,
    transport_of,
    with_session_options,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Current:
    """The session that the module-level calls use, and the callbacks for when it changes.

    It also keeps what the last form of `login` asked for, the last mode of `record` that replays
    because there was no key, and whether writes may be sent after the last change of mode.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.callbacks: dict[object, Callable[[], object]] = {}
        self.asked: dict[str, Any] = {}
        self.without_key: tuple[ModeChange, Callable[[], ModeChange]] | None = None
        self.may_write = True


_current = _Current()


@contextmanager
def _changing_mode() -> Iterator[None]:
    """Note whether writes may be sent after a change of mode: see `ModeTransport`.

    After one that failed, no session sends any, nor does a sign-in record what was asked for
    earlier, until a mode is entered in which writes are sent: a mailing must not go out unrecorded
    because somebody signed in meanwhile.
    """
    try:
        yield
    except BaseException:
        _current.without_key = None
        _current.may_write = False
        _refuse_writes()
        raise
    _current.may_write = transport_of(session()).may_write


def _refuse_writes() -> None:
    if _current.session is not None:
        transport_of(_current.session).may_write = False


@with_session_options
@hide_frames
def connect(
    base_url: str | None = None,
    api_key: str | ApiKey | None = None,
    **options: Unpack[SessionOptions],
) -> Session:
    """Open a session and make it the current one. It sends nothing yet.

    If the current session replays only because `record` had no key, the new one
    records.

    Parameters
    ----------
    base_url
        The service address, or the name of a configured region. By default
        ``DIRECTMAIL_BASE_URL``, or else the region, if just one is configured,
        or else the address that `login` remembers.
    api_key
        The key. By default ``DIRECTMAIL_API_KEY``, or else the key that
        ``dm.login(remember=True)`` put in the keyring.
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
        Whether a read is sent again after status 429, 502, 503 or 504, or a
        broken connection.
    templates
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

    Examples
    --------
    >>> with dm.stand_in() as service:
    ...     session = dm.connect(service.base_url, service.api_key)
    ...     session.mode
    'live'
    """
    check_options("connect", options, SessionOptions.__annotations__)
    try:
        key = as_api_key(api_key)
        address = choose_address(base_url)
        opened = Session(
            address,
            find_api_key(key, entry=keyring_entry(base_url)),
            **options,
        )
    except BaseException:
        _refuse_writes()
        raise
    waiting = record_without_key()
    make_current(opened)
    if waiting is not None:
        waiting()
    return opened


def make_current(opened: Session | None) -> None:
    """Make a session the current one; with None, there is no current session."""
    _current.session = opened
    if opened is not None:
        transport_of(opened).may_write = _current.may_write
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
        form = "the form above" if _current.asked else "dm.login() or dm.connect(…)"
        raise NotConnectedError(
            "No session is open.",
            f'Sign in with {form}, then run this again. Without a key, dm.replay("first-look") '
            f"replays a recording. You can also set {BASE_URL_VARIABLE} and {API_KEY_VARIABLE}.",
        )
    assert _current.session is not None, "it is open now"
    return _current.session


def logout() -> None:
    """Close the current session and forget its key, also in the keyring.

    The address that `login` remembered is forgotten, too.
    """
    closing = _current.session
    make_current(None)
    if closing is None:
        return
    key = key_of(closing)
    closing.close()
    if key is not None:
        for entry in keyring_entries(closing.base_url):
            forget_api_key(key, entry=entry)
        forget_address(closing.base_url)


# -- the calls of a session ------------------------------------------------------------------------


def _like(
    method: Callable[Concatenate[Session, _P], _R],
) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Return a decorator that gives a call the signature and docstring of a session's method."""
    _, *parameters = signature(method).parameters.values()
    names = [each.name for each in parameters]
    has_all = parameters[-1:] and parameters[-1].kind is Parameter.VAR_KEYWORD

    def decorate(call: Callable[..., _R]) -> Callable[_P, _R]:
        def checked(*args: Any, **options: Any) -> _R:
            check_options(method.__name__, options, names)
            return call(*args, **options)

        shown = update_wrapper(call if has_all else checked, method)
        shown.__qualname__ = shown.__name__
        vars(shown)["__signature__"] = signature(method).replace(parameters=parameters)
        return shown

    return decorate


def _of_current(method: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Return a session's method as a call of the current session."""

    @_like(method)
    @hide_frames  # a body may contain a key
    def call(*args: Any, **options: Any) -> _R:
        return method(session(), *args, **options)

    return call


me = _of_current(Session.me)
get = _of_current(Session.get)
get_many = _of_current(Session.get_many)
pages = _of_current(Session.pages)
post = _of_current(Session.post)
post_many = _of_current(Session.post_many)
put = _of_current(Session.put)
patch = _of_current(Session.patch)
delete = _of_current(Session.delete)
request = _of_current(Session.request)


@_changing_mode()
@_like(Session.live)
def live() -> ModeChange:
    return session().live()


@_changing_mode()
@_like(Session.replay)
def replay(cassette: str | Path, **options: Any) -> ModeChange:
    if _current.session is not None:
        return _current.session.replay(cassette, **options)
    recording = read_cassette(find_cassette(cassette))
    opened = replaying_session(recording)
    change = opened.replay(recording, **options)
    make_current(opened)
    return change


@_changing_mode()
@_like(Session.record)
def record(
    cassette: str | Path,
    *,
    record_mode: RecordMode = "update",
    live: bool = False,
    **options: Any,
) -> ModeChange:
    asked = variable(LIVE_VARIABLE)
    is_live = live if asked is None else asked != "0"
    if not rules_of(record_mode).sends or _connect_with_key():
        return session().record(cassette, record_mode=record_mode, live=is_live, **options)
    if is_live:
        raise NotConnectedError(
            "There is no key, and this run must be live.",
            f"Sign in, or set {API_KEY_VARIABLE}. To replay as a reader: "
            f"{LIVE_VARIABLE}=0 in the environment.",
        )
    change, replay = _replay_in_place(cassette, {**options})
    if asked is not None:  # as `share` runs a notebook for its readers
        sys.stdout.write(f"This is {replay}.\n")
    else:
        what = wrapped(f"Warning: no key, so this is {replay}.\nSign in to record again.")
        sys.stderr.write(f"{what}\n")
    again = partial(record, cassette, record_mode=record_mode, live=live, **options)
    _current.without_key = change, again
    vars(change)["_ipython_display_"] = lambda: None  # it was just said
    return change


def _replay_in_place(cassette: str | Path, options: dict[str, Any]) -> tuple[ModeChange, str]:
    """Replay the file that a recording with a key would write; also return words that say so.

    A replayed write warns that nothing was sent. A request that is not in the cassette raises
    `NotRecordedError` as usual; the advice is to sign in.
    """
    max_age = options.pop("max_age", None)
    if max_age is not None:
        parse_age(max_age)
    path = new_cassette_path(cassette)
    if not (path.is_file() and path.stat().st_size):
        name = cassette_name(cassette)
        what = f"There is no key, and no cassette {name!r} in {path.parent} yet."
        raise NotConnectedError(what, "Sign in, then run this again to record it.")

    def advise(error: NotRecordedError) -> None:
        error.advice = "There is no key, so nothing was sent. Sign in to record it."
        if options.get("before_record") is not None:
            error.advice += " If before_record leaves it out, no recording contains it."

    recording = read_cassette(path)
    opened = _current.session or replaying_session(recording)
    policy = Policy(warns_of_writes=True, on_unmatched=advise)
    change = open_recording(opened, recording, record_mode="none", policy=policy, **options)
    played = open_cassette(opened)
    assert played is not None, "the session has just opened it"
    make_current(opened)
    count = plural(len(played), "interaction")
    recorded = f"{played.name!r}{opened.recording.recorded_note}"
    return change, f"a replay of {recorded} ({count})"


def replaying_session(recording: FileRecording) -> Session:
    """Return a session that can only replay, at the address of a cassette."""
    with suppress(AddressError):  # a stranger's cassette may have any address
        return Session(recording.base_url or "")
    return Session(NO_ADDRESS)


def record_without_key() -> Callable[[], ModeChange] | None:
    """Return the call of `record` that replays without a key, if its mode is still on.

    With a key, the call records.
    """
    if _current.without_key is None:
        return None
    change, again = _current.without_key
    return again if change.session is _current.session and change.is_on() else None


def _connect_with_key() -> bool:
    """Return whether there is a key to record with.

    If the session has no key but the environment or the keyring has one, open a session with it.
    """
    current = _current.session
    # A session with its own folders is that of a test, which must not replay instead of recording.
    if current is not None and (key_of(current) is not None or current._folders):
        return True
    if not variable(API_KEY_VARIABLE):
        try:
            entry = keyring_entry(_current.asked.get("base_url"))
        except NotConnectedError:  # without an address, the keyring cannot be searched
            return False
        if remembered_api_key(entry) is None:
            return False
    _current.without_key = None  # whoever asks now records
    connect(**_current.asked)
    return True


def expect_sign_in(base_url: str | None, **options: Unpack[SessionOptions]) -> None:
    """Note what a form of `login` asks for, in case a key is found without it."""
    _current.asked = {"base_url": base_url, **options}
