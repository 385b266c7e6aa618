"""Find the key, and keep it in an `ApiKey`, which never shows it."""

from __future__ import annotations

import contextlib
import getpass
import threading
import warnings
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NoReturn, final

from .display import running_ipython
from .errors import CredentialError
from .settings import API_KEY_VARIABLE, variable
from .tracebacks import CallersWarning, hide_frames, warn_caller

_SERVICE = "directmail-lab"


class Hidden:
    """Base class of objects that contain a key: it is not in their repr or in a pickle."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise CredentialError(
            f"{type(self).__name__} contains a key, so it cannot be pickled or copied.",
            "Open a new session where you need one.",
        )


@final
class ApiKey(Hidden):
    """A key that no repr, pickle, copy or ``vars()`` shows.

    Parameters
    ----------
    text
        The key as typed. Space around it is removed.

    Raises
    ------
    CredentialError
        HTTP Basic cannot carry it as a user name: it is empty, or contains a space, a colon (RFC
        7617 section 2), a control character or a character outside ASCII. The message never
        repeats it.
    """

    __slots__ = ("__reveal", "__weakref__")

    @hide_frames
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise CredentialError(f"A key is text, not {type(text).__name__}.")
        key = text.strip()
        problem = _find_problem(key)
        if problem:
            raise CredentialError(f"The key {problem}.")
        # Kept in a closure, so that the object's slots show a function and not the key.
        self.__reveal: Callable[[], str] = lambda: key
        _holders[id(self)] = self
        _newest[0] = object()  # last: a thread that sees the new version also finds the new key

    def reveal(self) -> str:
        """Return the key itself. Call it only where it is sent or removed."""
        return self.__reveal()

    @property
    def hint(self) -> str:
        """The first and the last character, ``k…9``; empty for a short key."""
        key = self.reveal()
        return f"{key[0]}…{key[-1]}" if len(key) >= 8 else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash(self.reveal())


# By identity: two sessions may have equal keys, and the first may close while the other is open.
_holders: weakref.WeakValueDictionary[int, ApiKey] = weakref.WeakValueDictionary()
_newest: list[object] = [object()]


def keys_version() -> tuple[object, str | None]:
    """Return a value that changes whenever `known_keys` may have a new key.

    The value contains the environment's key.
    """
    return _newest[0], variable(API_KEY_VARIABLE)


def known_keys(*, remembered_for: Iterable[str] = ()) -> frozenset[str]:
    """Return every key that this process knows: of sessions, sign-in forms and the environment.

    Parameters
    ----------
    remembered_for
        Entries of the keyring, whose keys are included: before files are shared, for example.
    """
    # `valuerefs` returns a list, so other threads may add keys meanwhile.
    holders = [reference() for reference in _holders.valuerefs()]
    holders += map(remembered_api_key, remembered_for)
    keys = {holder.reveal() for holder in holders if holder is not None}
    return frozenset(keys | {variable(API_KEY_VARIABLE) or ""} - {""})


def _find_problem(key: str) -> str:
    """Return why HTTP Basic cannot carry a key, and what to do; an empty string if it can."""
    if "://" in key:
        return "looks like an address. Give the address first, then the key"
    if not key:
        problem = "is empty"
    elif ":" in key:
        problem = "contains a colon, which HTTP Basic does not allow in a user name"
    elif not (key.isascii() and key.isprintable() and " " not in key):
        problem = "contains a space, a line break, or a character that is not plain ASCII text"
    else:
        return ""
    return f"{problem}. Copy it again: the whole key, and nothing else"


_warned_of: set[int] = set()
"""The numbers of the cells that a warning has named. A cell that runs again gets another number."""


@hide_frames
def as_api_key(value: str | ApiKey | None) -> ApiKey | None:
    """Return a key as an `ApiKey`; None stays None.

    It warns if a cell that this kernel has run contains the key: also one that sets a name or, with
    ``%env``, the variable, and the parameters of papermill.

    Raises
    ------
    CredentialError
        HTTP Basic cannot carry it.
    """
    if value is None or isinstance(value, ApiKey):
        return value
    key = ApiKey(value)
    _warn_of_cells_with(key)
    return key


def _warn_of_cells_with(key: ApiKey) -> None:
    """Warn once of each cell of this kernel that contains a key."""
    cells: list[str] = getattr(running_ipython(), "user_ns", {}).get("In", [])
    found = {number for number, cell in enumerate(cells) if key.reveal() in cell}
    found -= _warned_of
    if not found:
        return
    _warned_of.update(found)
    numbers = ", ".join(f"[{number}]" for number in sorted(found))
    # Not `warnings.warn`: Python would print the cell's line, which may contain the key.
    warnings.warn_explicit(
        f"The key is in cell {numbers}, so IPython's history and the saved notebook contain "
        "it, too.\nRemove it, and sign in with dm.login() instead.",
        CallersWarning,
        filename="directmail_lab",
        lineno=1,
    )


@hide_frames
def find_api_key(api_key: ApiKey | None = None, *, entry: str) -> ApiKey:
    """Return the key: ``api_key``, else ``DIRECTMAIL_API_KEY``, else the one in the keyring.

    Parameters
    ----------
    entry
        The keyring's entry for the key; see `settings.keyring_entry`.

    Raises
    ------
    CredentialError
        No key was found, or HTTP Basic cannot carry it. The message never repeats it.
    """
    key = api_key or as_api_key(variable(API_KEY_VARIABLE)) or remembered_api_key(entry)
    if key is None:
        raise CredentialError(
            "No key was found.",
            f"Sign in with dm.login(), set {API_KEY_VARIABLE}, or call dm.connect(api_key=…).",
        )
    return key


@hide_frames
def typed_api_key(text: str) -> ApiKey:
    """Return a key that was typed or pasted. The colon of curl's ``-u KEY:`` may follow it."""
    return ApiKey(text.strip().removesuffix(":"))


def prompt_api_key() -> ApiKey:
    """Ask for the key at a terminal, without showing what is typed.

    Raises
    ------
    CredentialError
        The terminal cannot hide what is typed, or no key was typed.
    """
    try:
        with warnings.catch_warnings():
            # If getpass cannot turn the echo off, it warns and then shows what is typed.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return typed_api_key(getpass.getpass("Key (not shown): "))
    except (getpass.GetPassWarning, EOFError):
        raise CredentialError(
            "This terminal cannot hide what is typed.", f"Set {API_KEY_VARIABLE} instead."
        ) from None


def keyring_problem() -> str:
    """Return why no key can be remembered on this machine, or ``""``."""
    try:
        _ask_keyring(lambda _: None)
    except CredentialError as error:
        return error.what
    return ""


def remembered_api_key(entry: str) -> ApiKey | None:
    """Return the key that the keyring keeps in an entry (see `settings.keyring_entry`), or None."""
    try:
        text = _ask_keyring(lambda ring: ring.get_password(_SERVICE, entry))
    except Exception:
        # With no keyring, or a locked or broken one, login() asks for the key.
        return None
    return ApiKey(text) if text else None


@hide_frames  # a backend's error may contain the key
def remember_api_key(key: ApiKey, *, entry: str) -> None:
    """Keep the key in an entry of the operating system's keyring.

    Raises
    ------
    CredentialError
        No keyring works on this machine. The key is not stored anywhere.
    """
    try:
        _ask_keyring(lambda ring: ring.set_password(_SERVICE, entry, key.reveal()))
    except CredentialError:
        raise
    except Exception as error:
        raise CredentialError(
            f"The keyring did not store the key ({type(error).__name__}).", _INSTEAD
        ) from None


def forget_api_key(key: ApiKey, *, entry: str) -> None:
    """Remove a key from the keyring; do nothing if the entry has none or another one.

    Raises
    ------
    CredentialError
        The keyring has a key that could not be removed.
    """
    if remembered_api_key(entry) == key:
        with contextlib.suppress(Exception):
            _ask_keyring(lambda ring: ring.delete_password(_SERVICE, entry))
            return
        raise CredentialError(
            "The key could not be removed from the keyring.",
            "Remove the entry directmail-lab with your system's password manager.",
        )


_INSTEAD = f"Nothing was written. Set {API_KEY_VARIABLE} instead, or sign in each time."
_LIMIT_S = 3.0
_is_silent = threading.Event()
"""Set once the keyring did not respond in time: then it is not asked again."""


def _ask_keyring(call: Callable[[Any], Any]) -> Any:
    """Return what a call of the keyring's backend returns, and raise what it raises.

    Raises
    ------
    CredentialError
        No keyring works, the only one that works stores plain text, or none responds within 3 s,
        such as one that waits for a password where nobody sees the question.
    """
    outcome: Future[Any] = Future()

    def ask() -> None:
        try:
            outcome.set_result(call(_backend()))
        except Exception as error:
            outcome.set_exception(error)

    no_response = f"The keyring of this machine did not respond within {_LIMIT_S:g} s."
    if not _is_silent.is_set():
        threading.Thread(target=ask, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            return outcome.result(_LIMIT_S)
        _is_silent.set()
        warn_caller(f"{no_response} It is not used until Python is started again.")
    raise CredentialError(no_response, _INSTEAD)


def _backend() -> Any:
    with contextlib.suppress(Exception):  # none is installed, or it fails as it starts
        import keyring

        chosen = keyring.get_keyring()
        # Not the chain of backends: after a failure, it goes on to a plain text file.
        for backend in getattr(chosen, "backends", [chosen]):
            if float(backend.priority) > 0 and "plaintext" not in type(backend).__name__.lower():
                return backend
    raise CredentialError("No keyring works on this machine.", _INSTEAD)


# -- how a request carries the key -----------------------------------------------------------------

# HTTP Basic with the key as user name and no password (service.md part 5). The stand-in service
# alone knows the scheme, too. Messages, and the comment in copied code without a key, name HTTP
# Basic.

HEADER = "Authorization"
"""The header that carries the key."""

IN_CURL = f'--user "${API_KEY_VARIABLE}:"'
"""The option of curl that sends the key of the environment."""

IN_OPENAPI = {
    "basic": {"type": "http", "scheme": "basic", "description": "The key is the user name."}
}
"""The security scheme by its name."""


def header_value(api_key: str) -> str:
    """Return the value of the header for a key."""
    return f"Basic {b64encode(f'{api_key}:'.encode('ascii')).decode()}"
