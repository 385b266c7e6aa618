"""Signing in at a terminal, where no form can be shown."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from directmail_lab.credentials import prompt_api_key, remembered_api_key
from directmail_lab.errors import NotConnectedError
from directmail_lab.settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    choose_address,
    configured_regions,
    variable,
)

from .signing import sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from directmail_lab.credentials import ApiKey
    from directmail_lab.sessions import Session

    from .signing import Wish

__all__ = ["login_at_terminal"]


def login_at_terminal(
    wish: Wish,
    *,
    ask: Callable[[str], str] = input,
    ask_key: Callable[[], ApiKey] = prompt_api_key,
    say: Callable[[str], object] | None = None,
    is_terminal: Callable[[], bool] = lambda: sys.stdin.isatty(),
) -> Session:
    """Ask for what is missing, sign in, and say who it is.

    Raises
    ------
    NotConnectedError
        There is nobody to ask: the input is no terminal.
    DirectMailLabError, httpx.TransportError
        As `sign_in` does.
    """
    if wish.mode != "replay":
        wish = _completed(wish, ask, ask_key, is_terminal)
    account = sign_in(wish)
    (say or _say)(f"{account}\n{account.note}".rstrip())
    return account.session


def _completed(
    wish: Wish,
    ask: Callable[[str], str],
    ask_key: Callable[[], ApiKey],
    is_terminal: Callable[[], bool],
) -> Wish:
    """Return the wish with the address and the key that are set in the environment or asked for."""
    regions = configured_regions()
    only = next(iter(regions)) if len(regions) == 1 else ""
    known = wish.address or variable(BASE_URL_VARIABLE) or only
    if not (known and (wish.key or variable(API_KEY_VARIABLE))) and not is_terminal():
        raise NotConnectedError(
            "login() needs JupyterLab or a terminal to ask at. Use connect(base_url=…, api_key=…), "
            f"set {BASE_URL_VARIABLE} and {API_KEY_VARIABLE}, or replay(…) a cassette."
        )
    address = choose_address(known or ask("Service address: "))
    found = wish.key or variable(API_KEY_VARIABLE) or remembered_api_key(address)
    return replace(wish, address=address, key=wish.key if found else ask_key())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
