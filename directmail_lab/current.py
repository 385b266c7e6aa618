"""The current session (the only global state of the package), how to change it, calls on it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar, Unpack, cast

from .cassettes import DEFAULT_MATCH_ON
from .credentials import ApiKey, as_api_key, find_api_key, forget_api_key
from .errors import NotConnectedError
from .modes import ModeChange
from .pacing.shared import as_share
from .sessions import Session, SessionOptions, replaying_session
from .settings import API_KEY_VARIABLE, BASE_URL_VARIABLE, choose_address, variable

if TYPE_CHECKING:
    from .cassettes.player import Matcher


_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Current:
    """The session that the module-level calls act on, and the callbacks for when it changes.

    ``wrong_key_sent`` has the base addresses to which this process has sent a wrong key. A service
    may lock the account for that, so `explore` sends no other.
    """

    session: Session | None = None

    def __init__(self) -> None:
        self.callbacks: dict[object, Callable[[], object]] = {}
        self.wrong_key_sent: set[str] = set()


_current: Final = _Current()


def connect(
    base_url: str | None = None,
    api_key: str | ApiKey | None = None,
    *,
    cassette: str | Path | None = None,
    record_mode: str | None = None,
    match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
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
        replayed (``"none"``), which needs neither key nor address.
    match_on
        See `record`.
    timeout_s, pace, max_wait_s, reset_unit, allow_writes, share
        See `Session`.

    Raises
    ------
    NotConnectedError
        No address was given or found.
    InsecureAddressError
        The address is not a valid one, has user info, or would send the key unencrypted.
    CredentialError
        No key was given or found, or HTTP Basic cannot carry it.
    CassetteError
        The cassette cannot be found, read or written.
    """
    try:
        options["share"] = as_share(options.pop("share", "machine"))
        hidden = as_api_key(api_key)
    finally:
        api_key = None  # %xmode Verbose prints a frame's arguments into the cell's saved output
    mode = record_mode or "none"
    if cassette is not None and mode == "none":
        opened = replaying_session(cassette, base_url, **options)
    else:
        address = choose_address(base_url)
        opened = Session(address, find_api_key(hidden, base_url=address), **options)
    if cassette is not None:
        try:
            opened.record(cassette, record_mode=mode, match_on=match_on)
        except BaseException:
            opened.close()
            raise
    make_current(opened)
    return opened


def _show(call: object, like: Callable[..., object], parameters: list[inspect.Parameter]) -> None:
    """Set the parameters that help and completion show for a call."""
    vars(call)["__signature__"] = inspect.signature(like).replace(parameters=parameters)


*_given, _ = inspect.signature(connect).parameters.values()
_of_session = inspect.signature(Session).parameters
_show(connect, connect, [*_given, *(_of_session[name] for name in SessionOptions.__annotations__)])


def make_current(opened: Session | None) -> None:
    """Make a session the current one; with None, there is no current session."""
    _current.session = opened
    for callback in list(_current.callbacks.values()):
        callback()


def current_session() -> Session | None:
    """Return the current session, or None; unlike `session` it never opens one."""
    return _current.session


def wrong_key_sent() -> set[str]:
    """Return the base addresses to which this process has sent a wrong key."""
    return _current.wrong_key_sent


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
            "No session is open. Sign in with login(), connect(base_url=…, api_key=…), or replay a "
            f'recording with replay("first-look"). Or set {BASE_URL_VARIABLE} and '
            f"{API_KEY_VARIABLE}."
        )
    return connect()


def on_current(
    method: Callable[Concatenate[Session, _P], _R],
    opens: Callable[..., Session] = lambda *_, **__: session(),
) -> Callable[_P, _R]:
    """Return a method of `Session` as a call on the session that ``opens`` returns."""

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        opened = opens(*args, **kwargs)
        result = method(opened, *args, **kwargs)
        if opened is not _current.session:
            make_current(opened)
        if isinstance(result, ModeChange):
            # As a decorator it acts on the session that is current at each call.
            result.again = lambda: cast("ModeChange", call(*args, **kwargs))
        return result

    _, *parameters = inspect.signature(method).parameters.values()
    _show(call, method, parameters)
    call.__module__, call.__qualname__ = __name__, method.__name__
    return call


def _replaying(cassette: str | Path, **_: object) -> Session:
    return _current.session or replaying_session(cassette)


me = on_current(Session.me)
me_async = on_current(Session.me_async)
request = on_current(Session.request)
get = on_current(Session.get)
post = on_current(Session.post)
get_many = on_current(Session.get_many)
pages = on_current(Session.pages)
live = on_current(Session.live)
record = on_current(Session.record)
replay = on_current(Session.replay, _replaying)


def logout() -> None:
    """Close the current session and forget its key, in memory and in the keyring."""
    closing = _current.session
    make_current(None)
    if closing is not None:
        closing.close()
        forget_api_key(closing.base_url)
