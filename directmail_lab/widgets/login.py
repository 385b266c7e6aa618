"""`login`: the sign-in form, or the same questions at a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn, Unpack, cast

from ..cassettes import cassettes_by_name
from ..credentials import ApiKey, prompt_api_key
from ..current import current_session, logout
from ..errors import DirectMailLabError, NotConnectedError
from ..sessions import Session, SessionOptions
from ..settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    choose_address,
    configured_regions,
    variable,
)
from . import Widget, page, seconds_to_renewal, shows_widgets
from .sign_in import (
    MODES,
    Mode,
    SignedIn,
    SignInProblem,
    SignInRequest,
    explain,
    key_source,
    sign_in,
)


def login(
    *,
    base_url: str = "",
    mode: Mode = "live",
    cassette: str = "",
    remember: bool = False,
    **options: Unpack[SessionOptions],
) -> LoginWidget | Session:
    """Show the sign-in form; signing in opens the current session.

    At a terminal it asks its questions there instead, and returns the session.

    Parameters
    ----------
    base_url
        The address that the form shows first: a base address, or the name of a configured region;
        by default ``DIRECTMAIL_BASE_URL``, else the first configured region.
    mode
        The mode that it shows first: ``"live"``, ``"record"`` or ``"replay"``.
    cassette
        The cassette that it shows first.
    remember
        Keep the key in the operating system's keyring once it is accepted; `logout` removes it.
    **options
        Those of `Session`, such as ``timeout_s``, ``pace``, ``max_wait_s``, ``reset_unit`` and
        ``allow_writes``.
    """
    if unknown := options.keys() - SessionOptions.__annotations__.keys():
        cast("dict[str, Any]", options).clear()  # it may have a key, and a traceback would show it
        raise TypeError(f"login() takes no {', '.join(sorted(unknown))}. See help(login).")
    request = SignInRequest(
        mode=mode, address=base_url, cassette=cassette, remember=remember, options=options
    )
    return LoginWidget(request) if shows_widgets() else login_at_terminal(request)


class LoginWidget(Widget):
    """The sign-in form."""

    _esm, _css = page("login")

    def __init__(self, request: SignInRequest | None = None) -> None:
        self._request = request or SignInRequest()
        self._signed_in: SignedIn | None = None
        self._problem: SignInProblem | None = None
        self._notice = ""
        self._working = threading.Lock()
        super().__init__()

    def __repr__(self) -> str:
        return "Run this cell to get the sign-in form. Without one: connect(…) or replay(…)."

    def receive(self, kind: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Show the form, sign in, or sign out. It never raises: nobody would see the error."""
        if kind == "hello":
            self.tell()
        typed = [bytes(buffer).decode("utf-8", "replace") for buffer in buffers]
        _empty(buffers)
        if kind not in ("sign_in", "sign_out") or not self._working.acquire(blocking=False):
            return  # unknown, or the second click of a double click
        try:
            self.send({"type": "busy"})
            self._problem, self._notice = None, ""
            if kind == "sign_in":
                self._sign_in(*typed[:4])
            else:
                self._sign_out()
        except (Exception, KeyboardInterrupt) as error:
            self._problem = explain(error)
        finally:
            typed.clear()
            self._working.release()
        self.tell()

    def tell(self) -> None:
        """Send all that the form shows, which never includes the key."""
        self._notice_other_session()
        self.send(
            {
                "type": "state",
                "offer": self._offer(),
                "account": None if self._signed_in is None else _shown(self._signed_in),
                "problem": None if self._problem is None else asdict(self._problem),
                "notice": self._notice,
            }
        )

    def follow_current(self) -> None:
        """Stop showing an account as signed in when its session is no longer the current one."""
        if self._signed_in is not None and not self._working.locked():
            self.tell()

    def _notice_other_session(self) -> None:
        current = current_session()
        if self._signed_in is not None and current is not self._signed_in.session:
            self._signed_in = None
            now = "another session is the current one" if current else "no session is open"
            self._notice = self._notice or f"Signed out: {now}."

    def _sign_in(self, mode: str, address: str, cassette: str, key: str) -> None:
        request = replace(
            self._request,
            mode=mode if mode in MODES else "live",
            address=address,
            cassette=cassette,
            key=ApiKey(key) if key else None,
        )
        self._problem = _missing_in(request)
        if self._problem is None:
            self._signed_in = sign_in(request)

    def _sign_out(self) -> None:
        if self._signed_in is not None and current_session() is self._signed_in.session:
            logout()
        self._signed_in = None
        self._notice = "Signed out: no session is open, and the key is forgotten."

    def _offer(self) -> dict[str, object]:
        """Return the form's choices and defaults."""
        request, regions = self._request, self._regions()
        address = request.address or variable(BASE_URL_VARIABLE) or next(iter(regions.values()), "")
        address = regions.get(address, address)
        source = key_source(address)
        return {
            "regions": list(regions.items()),
            "address": address,
            "cassettes": list(cassettes_by_name()),
            "cassette": request.cassette,
            "mode": request.mode,
            "key_source": source,
            "key_hint": _key_hint(source, remember=request.remember),
        }

    def _regions(self) -> dict[str, str]:
        try:
            return configured_regions()
        except DirectMailLabError as error:
            self._problem = self._problem or explain(error)
            return {}


def _missing_in(request: SignInRequest) -> SignInProblem | None:
    """Return a problem that names the first required field that is empty, or None."""
    if request.mode == "replay":
        return None
    if not request.address:
        return SignInProblem("Type the service's address.", field="address")
    if request.key is None and not key_source(choose_address(request.address)):
        return SignInProblem("Type your API key.", field="key")
    if request.mode == "record" and not request.cassette:
        return SignInProblem("Name the cassette.", field="cassette")
    return None


def _key_hint(source: str, *, remember: bool) -> str:
    if source:
        return f"Leave it empty to use the key in {source}."
    if remember:
        return "Kept in this computer's keyring, and not in the notebook."
    return "Kept in the kernel's memory, and not in the notebook."


def _shown(signed_in: SignedIn) -> dict[str, object]:
    reading = signed_in.reading
    return {
        "title": signed_in.title,
        "detail": signed_in.detail,
        "note": signed_in.note,
        "limit": reading and reading.limit,
        "remaining": reading and reading.remaining,
        "renews_in_s": reading and seconds_to_renewal(reading, signed_in.session),
    }


def _empty(buffers: Sequence[bytes | memoryview]) -> None:
    # ipykernel keeps the message that it handles; emptied, it does not keep the key.
    with contextlib.suppress(AttributeError, TypeError):
        cast("list[bytes]", buffers).clear()


def login_at_terminal(
    request: SignInRequest,
    *,
    ask: Callable[[str], str] = input,
    ask_key: Callable[[], ApiKey] = prompt_api_key,
    say: Callable[[str], object] = lambda text: sys.stdout.write(f"{text}\n"),
    is_terminal: Callable[[], bool] = lambda: sys.stdin.isatty(),
) -> Session:
    """Ask for what is missing, sign in, and print the account.

    Raises
    ------
    NotConnectedError
        Something is missing, and the input is not a terminal, so it cannot ask.
    DirectMailLabError, httpx.TransportError
        As `sign_in` does.
    """
    if not is_terminal():
        ask = ask_key = _nobody_to_ask
    if request.mode != "replay":
        known = request.address or variable(BASE_URL_VARIABLE) or ""
        if not known and len(configured_regions()) != 1:
            known = ask("Service address: ")
        address = choose_address(known or None)
        key = request.key if request.key or key_source(address) else ask_key()
        request = replace(request, address=address, key=key)
    signed_in = sign_in(request)
    say(f"{signed_in}\n{signed_in.note}".rstrip())
    return signed_in.session


def _nobody_to_ask(*_: object) -> NoReturn:
    raise NotConnectedError(
        "login() needs a notebook or a terminal to ask at. Use connect(base_url=…, api_key=…), "
        f"set {BASE_URL_VARIABLE} and {API_KEY_VARIABLE}, or replay(…) a cassette."
    )
