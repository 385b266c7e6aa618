"""The sign-in form, and ``login()``, which shows it or asks at the terminal instead."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anywidget

from directmail_lab.cassettes import cassettes_by_name
from directmail_lab.credentials import ApiKey, remembered_api_key
from directmail_lab.current import current_session, logout, on_current_change
from directmail_lab.errors import DirectMailLabError
from directmail_lab.settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    configured_regions,
    variable,
)

from .signing import MODES, Mode, Wish, sign_in
from .terminal import login_at_terminal
from .troubles import Trouble, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from directmail_lab.sessions import Session

    from .signing import Account

__all__ = ["LoginWidget", "login"]

_STATIC: Final = Path(__file__).with_name("static")


def login(
    *,
    base_url: str = "",
    mode: Mode = "live",
    cassette: str = "",
    remember: bool = False,
    **options: Any,
) -> LoginWidget | Session:
    """Show the sign-in form; signing in opens the current session.

    At a terminal it asks there instead, and returns the session.

    Parameters
    ----------
    base_url
        The address to start with: a base address, or a configured region's name.
    mode
        What to start with: ``"live"``, ``"record"`` or ``"replay"``.
    cassette
        The cassette to start with.
    remember
        Keep the key in the operating system's keyring once it was accepted; `logout` removes it.
    **options
        Those of `Session`: ``timeout_s``, ``pace``, ``max_wait_s``, ``reset_unit``,
        ``allow_writes``.
    """
    wish = Wish(mode=mode, address=base_url, cassette=cassette, remember=remember, options=options)
    return LoginWidget(wish) if _in_kernel() else login_at_terminal(wish)


def _in_kernel() -> bool:
    """Return whether a Jupyter kernel runs this, where a widget can be shown."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


class LoginWidget(anywidget.AnyWidget):
    """The sign-in form.

    It has no synced trait of its own: what it shows goes to the page in messages, and what is typed
    comes back in binary buffers. So neither a saved notebook nor a log of messages holds the key,
    and a form that is opened without a kernel claims nothing.
    """

    _esm = _STATIC / "login.js"
    _css = _STATIC / "login.css"

    def __init__(self, wish: Wish | None = None) -> None:
        myself = weakref.ref(self)
        self._unwatch = on_current_change(lambda: _refresh(myself()))
        self._wish = wish or Wish()
        self._account: Account | None = None
        self._trouble: Trouble | None = None
        self._notice = ""
        self._working = threading.Lock()
        super().__init__()
        self.on_msg(_receive)

    def __repr__(self) -> str:
        return "Sign-in form: run this cell in JupyterLab, or use connect(…) or replay(…)."

    def close(self) -> None:
        """Take the form away. Whoever is signed in stays so."""
        self._unwatch()
        super().close()

    def receive(self, content: object, buffers: Sequence[bytes | memoryview]) -> None:
        """Do what a message of the page asks for. It never raises: it would show nowhere."""
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "hello":
            self.tell()
        elif kind in ("sign_in", "sign_out"):
            typed = [bytes(buffer).decode("utf-8", "replace") for buffer in buffers]
            _empty(buffers)
            if not self._working.acquire(blocking=False):
                return  # the second of two clicks
            try:
                self._work(lambda: self._sign_in(typed) if kind == "sign_in" else self._sign_out())
            finally:
                typed.clear()
                self._working.release()

    def tell(self) -> None:
        """Send all that the form shows; the key is not part of it."""
        account = self._account
        if account is not None and current_session() is not account.session:
            account = self._account = None
            self._notice = self._notice or "Signed out: another session is the current one."
        self.send(
            {
                "type": "state",
                "offer": self._offer(),
                "account": None if account is None else _shown(account),
                "trouble": None if self._trouble is None else _words(self._trouble),
                "notice": self._notice,
            }
        )

    def _work(self, what: Any) -> None:
        self.send({"type": "busy"})
        self._trouble, self._notice = None, ""
        try:
            what()
        except (Exception, KeyboardInterrupt) as error:
            self._trouble = explain(error)
        self.tell()

    def _sign_in(self, typed: list[str]) -> None:
        mode, address, cassette, key = (*typed, "", "", "", "")[:4]
        self._account = sign_in(
            Wish(
                mode=mode if mode in MODES else "live",
                address=address,
                cassette=cassette,
                key=ApiKey(key) if key else None,
                remember=self._wish.remember,
                options=self._wish.options,
            )
        )

    def _sign_out(self) -> None:
        account, self._account = self._account, None
        self._notice = "Signed out. The key is forgotten."
        if account is not None and current_session() is account.session:
            logout()

    def _offer(self) -> dict[str, object]:
        """Return what there is to choose from."""
        wish, regions = self._wish, self._regions()
        address = wish.address or variable(BASE_URL_VARIABLE) or next(iter(regions.values()), "")
        address = regions.get(address, address)
        known = _key_source(address)
        return {
            "regions": list(regions.items()),
            "address": address,
            "cassettes": list(cassettes_by_name()),
            "cassette": wish.cassette,
            "mode": wish.mode,
            "key_known": bool(known),
            "key_hint": _key_hint(known, remember=wish.remember),
        }

    def _regions(self) -> dict[str, str]:
        try:
            return configured_regions()
        except DirectMailLabError as error:
            self._trouble = self._trouble or explain(error)
            return {}


def _key_source(address: str) -> str:
    """Return where a key is found if none is typed, or nothing."""
    if variable(API_KEY_VARIABLE):
        return API_KEY_VARIABLE
    return "the keyring" if address and remembered_api_key(address) is not None else ""


def _key_hint(known: str, *, remember: bool) -> str:
    if known:
        return f"Leave it empty to use the key in {known}."
    if remember:
        return "Kept in this computer's keyring, and not in the notebook."
    return "Kept in the kernel's memory, and not in the notebook."


def _shown(account: Account) -> dict[str, object]:
    renews_at = account.renews_at
    return {
        "title": account.title,
        "detail": account.detail,
        "limit": account.limit,
        "remaining": account.remaining,
        # As seconds from now: the page's clock may be another machine's.
        "renews_in_s": None if renews_at is None else renews_at - time.time(),
        "note": account.note,
    }


def _words(trouble: Trouble) -> dict[str, object]:
    return {"text": trouble.text, "hint": trouble.hint, "field": trouble.field}


def _receive(widget: LoginWidget, content: object, buffers: Sequence[bytes | memoryview]) -> None:
    widget.receive(content, buffers)


def _refresh(widget: LoginWidget | None) -> None:
    """Let a form that shows somebody signed in look again who is."""
    if widget is not None and widget._account is not None and not widget._working.locked():
        widget.tell()


def _empty(buffers: Sequence[bytes | memoryview]) -> None:
    # The kernel keeps the message that it answers to; it need not keep the key with it.
    with contextlib.suppress(AttributeError, TypeError):
        cast("list[bytes]", buffers).clear()
