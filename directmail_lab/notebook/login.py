"""`login`: the sign-in form, or two questions at a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, cast
from weakref import WeakKeyDictionary

from .. import credentials, errors, settings
from ..arguments import check_options
from ..cassettes import SessionRecording
from ..credentials import ApiKey, typed_api_key
from ..display import RUN_FOR_FORM, running_ipython
from ..exchange.httpx_values import httpx
from ..sessions.clients.refusals import SEE_WHOLE
from ..sessions.current import (
    connect,
    current_session,
    expect_sign_in,
    logout,
    record_without_key,
    session,
)
from ..sessions.session import (
    Session,
    SessionOptions,
    key_of,
    with_session_options,
)
from ..tracebacks import hide_frames
from .browser_data import read_page
from .widget import NO_WIDGETS, Widget, can_show_widgets, user_of

_WITHOUT_KEY = "Without a key, dm.record(…) in a cell below replays what was recorded."


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRequest:
    """How to sign in.

    If ``address`` is empty or ``key`` is None, it is looked up in the environment and the keyring.
    ``options`` are those of `Session`.
    """

    address: str = ""
    key: ApiKey | None = None
    remember: bool = False
    options: SessionOptions = field(default_factory=SessionOptions)


@with_session_options
@hide_frames
def login(
    *,
    base_url: str = "",
    remember: bool = False,
    **options: Unpack[SessionOptions],
) -> LoginWidget | Session:
    """Show the sign-in form. Signing in opens the current session.

    If ``dm.record("tour")`` replays because there was no key, signing in begins
    to record. With a remembered key, the cells below need no form: they sign in
    by themselves, with these options. While you are signed in, the same call
    shows the account again. At a terminal, `login` asks for the address and the
    key instead, unless they are configured.

    Parameters
    ----------
    base_url
        The address that the form shows first: a service address, or the name of
        a configured region. By default ``DIRECTMAIL_BASE_URL``, or else the one
        that is remembered, or else the first configured region.
    remember
        Keep the key in the operating system's keyring, and the address in a
        file, after the service has accepted them. `logout` removes both.
    timeout_s, pace, max_wait_s, reset_unit, allow_writes, retry, templates
        See `connect`.

    Returns
    -------
    LoginWidget or Session
        The form in a notebook, the session at a terminal.
    """
    check_options("login", options, SessionOptions.__annotations__)
    request = SignInRequest(address=base_url, remember=remember, options=options)
    if can_show_widgets():
        expect_sign_in(base_url or None, **options)
        return LoginWidget(request)
    session, account = sign_in(_ask_at_terminal(request))
    sys.stdout.write(f"{account['title']}\n{account['note']}".rstrip() + "\n")
    return session


def _ask_at_terminal(request: SignInRequest) -> SignInRequest:
    """Ask for the address and the key if they are not configured. The key is not shown.

    Raises
    ------
    NotConnectedError, CredentialError
        One is missing, and the input is not a terminal.
    """
    address = request.address
    try:
        address = address or settings.choose_address()
    except errors.NotConnectedError:
        if not sys.stdin.isatty():
            raise errors.NotConnectedError(
                "dm.login() needs a notebook or a terminal.",
                "Use dm.connect(base_url=…, api_key=…) or dm.replay(…), or set "
                f"{settings.BASE_URL_VARIABLE} and {settings.API_KEY_VARIABLE}.",
            ) from None
        address = input("Service address: ")
    key = None if key_source(address) else credentials.prompt_api_key()
    return replace(request, address=address, key=key)


# What signed in each session, and what its form shows.
_accounts: WeakKeyDictionary[Session, tuple[SignInRequest, dict[str, Any]]] = WeakKeyDictionary()


class LoginWidget(Widget):
    """The sign-in form."""

    _esm, _css = read_page("login")

    def __init__(self, request: SignInRequest) -> None:
        self._request = request
        self._session: Session | None = None
        self._account: dict[str, Any] | None = None
        self._problem: dict[str, str] | None = None
        self._notice = "" if key_source(str(self._choices()["address"])) else _WITHOUT_KEY
        self._busy = threading.Lock()
        self._show_current()
        super().__init__()

    def __repr__(self) -> str:
        return f"{RUN_FOR_FORM} {_WITHOUT_KEY} {NO_WIDGETS}"

    def _ipython_display_(self) -> None:
        """Show the form; if a program runs the notebook, show at each cell's end who signed in."""
        super()._ipython_display_()
        if not self.is_watched:
            running_ipython().events.register("post_execute", self.update_static_output)

    def static_output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return also who has signed in, where a program runs the notebook and needs no form."""
        current = current_session()
        if self.is_watched or current is None or key_of(current) is None:
            return super().static_output()
        name = user_of(current.recording)
        return {"text/plain": f"Signed in{name and f' as {name}'} at {current.base_url}."}, {}

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Show the form, sign in, or sign out. It never raises: nobody would see the error."""
        if kind == "hello":
            self.update_page()
        typed = [bytes(buffer).decode("utf-8", "replace") for buffer in buffers]
        with contextlib.suppress(AttributeError, TypeError):
            # ipykernel keeps the message that it handles, so the key is removed from it.
            cast("list[bytes]", buffers).clear()
        if kind not in ("sign_in", "sign_out") or not self._busy.acquire(blocking=False):
            return  # unknown, or the second click of a double click
        try:
            self.send({"type": "busy"})
            self._problem = None
            self._notice = ""
            if kind == "sign_in":
                self._sign_in(*typed[:3])
            else:
                if current_session() is self._session:
                    logout()
                self._forget("no session is open, and the key is forgotten")
        except (Exception, KeyboardInterrupt) as error:
            self._problem = explain(error)
        finally:
            typed.clear()
            self._busy.release()
        self.update_page()

    def update_page(self) -> None:
        """Send everything that the form shows. That never includes the key."""
        current = current_session()
        if self._account is not None and current is not self._session:
            reason = "another session is the current one" if current else "no session is open"
            self._forget(reason)
        self.send(
            {
                "type": "state",
                "choices": self._choices(),
                "account": self._account,
                "problem": self._problem,
                "notice": self._notice_now(current),
            }
        )

    def _notice_now(self, current: Session | None) -> str:
        if current is not None and current.mode == "replay" and self._account is None:
            return f"Replaying {current.cassette!r}: no key needed."
        return self._notice

    def _forget(self, reason: str) -> None:
        self._session = None
        self._account = None
        self._notice = f"Signed out: {reason}."

    def _show_current(self) -> None:
        """Show the account of the current session, or say that signing in replaces the session."""
        current = current_session()
        if current is None or key_of(current) is None:
            return
        request, account = _accounts.get(current, (None, None))
        if request is None and self._is_for(current):
            account = {"title": "Signed in", "detail": current.base_url}
        elif request != self._request:
            self._notice = f"A session with {current.base_url} is open. Signing in replaces it."
            return
        self._session = current
        self._account = account
        self._notice = ""

    def _is_for(self, session: Session) -> bool:
        """Return whether a session was opened, by a cell, at the address that the form shows."""
        with contextlib.suppress(errors.DirectMailLabError):
            return settings.choose_address(self._request.address or None) == session.base_url
        return False

    def follow_current(self) -> None:
        """Show the current session's account, if it is no longer the one that is shown."""
        if not self._busy.locked():
            if self._account is None:
                self._show_current()
            self.update_page()

    def _sign_in(self, address: str, key: str, remember: str) -> None:
        if not address:
            raise errors.NotConnectedError("Type the service's address.")
        if not key and not key_source(address):
            raise errors.CredentialError("Type your key.")
        request = replace(
            self._request,
            address=address,
            key=typed_api_key(key) if key else None,
            remember=remember == "yes",
        )
        self._session, self._account = sign_in(request)
        _accounts[self._session] = self._request, self._account

    def _choices(self) -> dict[str, object]:
        """Return the form's choices and defaults."""
        request = self._request
        regions = {}
        try:
            regions = settings.configured_regions()
        except errors.DirectMailLabError as error:
            self._problem = self._problem or explain(error)
        variable = settings.variable(settings.BASE_URL_VARIABLE)
        given = request.address or variable or settings.remembered_address() or ""
        named = [name for name, address in regions.items() if given in (name, address, "")]
        address = next(iter(named), given)
        return {
            "regions": list(regions.items()),
            "address": address,
            "key_sources": {each: key_source(each) for each in {address, *regions}},
            "remember": request.remember,
            "keyring_problem": credentials.keyring_problem(),
        }


# -- signing in ----------------------------------------------------------------------------------


def sign_in(request: SignInRequest) -> tuple[Session, dict[str, Any]]:
    """Try the key with one request, then open a session and make it the current one.

    If that fails, the current session stays unchanged.

    Returns
    -------
    Session, dict
        The session, and what the form shows about it. Its ``note`` is a warning, if any.

    Raises
    ------
    DirectMailLabError, httpx.TransportError
        The errors of `Session` and `Session.me`; `explain` turns them into texts for the form.
    """
    address = settings.choose_address(request.address or None)
    entry = settings.keyring_entry(request.address or None)
    key = credentials.find_api_key(request.key, entry=entry)
    name, tried = _try(address, key, request.options)
    waiting = record_without_key()
    notes = []
    try:
        connect(address, key, **request.options)
        if waiting is not None:
            notes.append("The cells below replayed what was recorded: run them again.")
    except errors.CassetteError as error:  # the sign-in itself succeeded
        notes.append(f"Nothing is recorded. {error}")
    opened = session()
    opened.recording.extend(tried)
    if request.key is not None and request.remember:
        try:
            credentials.remember_api_key(request.key, entry=entry)
            settings.remember_address(request.address or address)
        except errors.CredentialError as error:
            notes.append(str(error))
    first = tried.reading(1)
    return opened, {
        "title": f"Signed in as {name}",
        "detail": f"{address} · recording to {opened.cassette}" if opened.cassette else address,
        "note": " ".join(notes),
        "limit": first.limit,
        "remaining": first.remaining,
    }


def key_source(address: str) -> str:
    """Return where a key is found if none is typed: a variable, the keyring, or ``""``.

    ``address`` is a service address, or the name of a region.
    """
    if settings.variable(settings.API_KEY_VARIABLE):
        return settings.API_KEY_VARIABLE
    with contextlib.suppress(errors.AddressError):
        if address and credentials.remembered_api_key(settings.keyring_entry(address)) is not None:
            return "the keyring"
    return ""


def _try(address: str, key: ApiKey, options: SessionOptions) -> tuple[str, SessionRecording]:
    """Send one request, and return the account's name and the recording of the request.

    It does not wait for an allowance, since a person is waiting for the form.
    """
    trial_options: SessionOptions = {**options, "pace": "off"}
    with Session(address, key, **trial_options) as trial:
        trial.me()
        return user_of(trial.recording) or "the account", trial.recording


def explain(error: BaseException) -> dict[str, str]:
    """Return an error as what happened (``text``), what to do (``hint``) and the form's ``field``.

    The field is ``"address"``, ``"key"`` or empty.
    """
    text = getattr(error, "what", "")
    # Nobody is signed in: `interactions` would fail, or show another session's request.
    hint = getattr(error, "advice", "").partition(SEE_WHOLE)[0]
    field = ""
    if isinstance(error, errors.CredentialError | errors.UnauthorizedError):
        field = "key"
    elif isinstance(error, errors.AddressError | errors.NotConnectedError | httpx.TransportError):
        field = "address"
    if isinstance(error, errors.UnauthorizedError):
        text = f"The service did not accept this key (status {error.status})."
    elif not text:
        # The error's own text may have anything. A key that is typed in a cell would be saved.
        text = f"Signing in failed with an unexpected error ({type(error).__name__})."
        hint = "To see where: set DIRECTMAIL_API_KEY, start Python again, and run dm.connect()."
    return {"text": text, "hint": hint, "field": field}
