"""The current session, which is the only global state of the package, and the calls on it."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Concatenate,
    Final,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from .cassettes import DEFAULT_MATCH_ON
from .contract import ME_PATH
from .credentials import ApiKey, as_api_key, find_api_key, forget_api_key
from .display import ProgressBar
from .errors import NotConnectedError, argument_error, hide_frames
from .http import recorded_request
from .modes import ModeChange
from .questions.drift import drift as drift_of
from .sessions import Session, SessionOptions, replaying_session
from .settings import API_KEY_VARIABLE, BASE_URL_VARIABLE, choose_address, variable

if TYPE_CHECKING:
    import pandas as pd

    from .cassettes.player import Matcher
    from .questions.chart import Chart, Kind
    from .questions.interactions import InteractionView

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


@hide_frames
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
    hidden = as_api_key(api_key)
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


# Help and completion show the options of a session.
_signature = inspect.signature(connect)
_session_parameters = inspect.signature(Session).parameters
vars(connect)["__signature__"] = _signature.replace(
    parameters=[
        *list(_signature.parameters.values())[:-1],
        *(_session_parameters[name] for name in SessionOptions.__annotations__),
    ]
)


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
    callbacks = _current.callbacks
    return lambda: callbacks.pop(token, None)


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

    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    vars(call)["__signature__"] = signature.replace(parameters=parameters)
    call.__module__, call.__qualname__ = __name__, method.__name__
    return call


def _replaying(cassette: str | Path, **_: object) -> Session:
    return _current.session or replaying_session(cassette)


drift = on_current(drift_of)
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


def rate_limits(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return readings of the rate-limit headers, a row for each response.

    Parameters
    ----------
    cassette
        Read a cassette's responses, without replaying them; by default those of the current
        session.

    Returns
    -------
    DataFrame
        Columns as in `ReadingLog.frame`; no rows where there was no response.
    """
    if cassette is not None:
        from .cassettes import find_cassette
        from .readings.log import read_readings

        return read_readings(find_cassette(cassette))
    return session().rate_limits()


def check_contract(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return a verdict on each of the contract's three rules for rate limits, by operation.

    Parameters
    ----------
    cassette
        Check a cassette's responses; by default those of the current session.

    Returns
    -------
    DataFrame
        See `directmail_lab.contract_check.check_contract`.
    """
    from .questions.contract_check import check_contract as check

    if cassette is None:
        log = session().readings
        return check(log.since(0), reset_unit=log.reset_unit)
    from .cassettes import find_cassette
    from .readings.log import cassette_readings

    return check(cassette_readings(find_cassette(cassette)))


@overload
def interactions(cassette: str | Path | None = None, *, number: None = None) -> pd.DataFrame: ...


@overload
def interactions(cassette: str | Path, *, number: int) -> InteractionView: ...


def interactions(
    cassette: str | Path | None = None, *, number: int | None = None
) -> pd.DataFrame | InteractionView:
    """Return the interactions of a cassette, a row each; see `read_interactions`.

    Parameters
    ----------
    cassette
        A bare name or the `Path` of a file; by default the one that is in use.
    number
        Return this interaction of a named cassette instead, counted from 1, shown in full; its
        ``.as_curl()`` and ``.as_httpx()`` are code that sends the request again.

    Raises
    ------
    NotRecordedError
        There is no such cassette.
    CassetteError
        No cassette is named and none is in use, or it cannot be read.
    """
    if cassette is None:
        return session().interactions()
    from .cassettes import find_cassette
    from .questions.interactions import read_interactions, show_interaction

    path = find_cassette(cassette)
    return read_interactions(path) if number is None else show_interaction(path, number)


def chart_rate_limits(frame: pd.DataFrame | None = None, *, kind: Kind = "remaining") -> Chart:
    """Return the readings as a chart.

    Parameters
    ----------
    frame
        A frame as `rate_limits` gives it; by default the current session's.
    kind
        ``"remaining"``: what remains over time, by operation, under its limit. ``"allowance"``:
        what each operation may do in a window, and what is left of it. ``"latency"``: how long the
        responses took.

    Returns
    -------
    matplotlib.figure.Figure
        It shows as a PNG where it is a cell's result, and stays in the saved notebook.
    """
    from .questions import chart as charts

    return charts.chart_rate_limits(rate_limits() if frame is None else frame, kind=kind)


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
        Where ``n`` is less than 1; nothing is sent.
    """
    from .readings.log import frame_readings

    if n < 1:
        raise argument_error(f"burst({n}) would send nothing. Give 1 or more.")
    opened = session()
    request = recorded_request(opened.client.build_request("GET", path))
    cassette, first, repeated = opened.open_cassette, len(opened.readings), 0
    with ProgressBar(n, desc=f"GET {path}", unit="request") as bar:
        for _ in range(n):
            if cassette is not None and not cassette.records:
                repeated += not cassette.has_unplayed(request, base_url=opened.base_url)
            opened.request("GET", path)
            bar.update()
    if repeated:
        warnings.warn(
            f"Cassette {opened.cassette!r} had {n - repeated} responses left for GET {path}: the "
            f"last one was repeated {repeated} times.",
            stacklevel=2,
        )
    return frame_readings(opened.readings.since(first))
