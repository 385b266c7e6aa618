"""Stores of pacing states: `MemoryStore` for one session, `MachineStore` for this user's sessions.

A store keeps a `PaceState` for each operation. It changes a state atomically, under a lock or by
compare and set. On a failure it raises `StoreError`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import random
import re
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ..errors import DirectMailLabError
from ..http import httpx
from .state import PaceState, Place

if TYPE_CHECKING:
    from ..credentials import ApiKey

_T = TypeVar("_T")

_SHARES: Final = re.compile(r"machine|rediss?://.+")
_OPERATIONS_AT_MOST: Final = 1000
_BUSY_S: Final = 0.5
_KEPT_S: Final = 86_400.0


class StoreError(Exception):
    """A shared store cannot be read or written; the text says why."""


class Store(Protocol):
    """Keeps the state of each operation's allowance."""

    def change(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        """Call ``decide`` with the operation's state, keep the changed state, return the result.

        ``decide`` gets the state, and by how many seconds the store's clock is ahead of ours. It
        may be called more than once.
        """

    def close(self) -> None:
        """Close files and connections."""


class MemoryStore:
    """Keeps states in memory, for one session. Not thread-safe: the `Pacer` holds a lock."""

    def __init__(self) -> None:
        self._states: dict[str, PaceState] = {}

    def change(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        state = self._states.get(operation)
        if state is None:
            if len(self._states) >= _OPERATIONS_AT_MOST:
                for name in [each for each, kept in self._states.items() if not kept.in_flight]:
                    del self._states[name]
            state = self._states[operation] = PaceState()
        return decide(state, 0.0)

    def close(self) -> None:
        self._states.clear()


class MachineStore:
    """Keeps states in an SQLite file in the user's state folder, for all sessions on this machine.

    The file contains numbers, and names that are an HMAC-SHA256 of API key, address and operation,
    with a random secret that is made with the file.

    Parameters
    ----------
    named
        Returns the name of the account, given that secret.
    """

    def __init__(self, named: Callable[[bytes], bytes]) -> None:
        self._named = named
        self._opened: tuple[int, sqlite3.Connection, bytes] | None = None
        self._inherited: object = None
        self._lock = threading.Lock()

    def change(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        with self._lock:
            try:
                return self._changed(operation, decide)
            except Exception as error:  # no failure of a file may make a request fail
                self._close()
                raise StoreError(str(error)) from None

    def _changed(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        if self._opened is None or self._opened[0] != os.getpid():
            # After a fork the connection belongs to the parent: it must not even be closed here.
            self._inherited, self._opened = self._opened, None
            self._opened = os.getpid(), *_open(_path(), self._named)
        _, connection, identity = self._opened
        name = sealed(identity, operation)
        _begin(connection)
        try:
            row = connection.execute("SELECT value FROM kept WHERE name = ?", [name]).fetchone()
            state = load(row[0] if row else "")
            result = decide(state, 0.0)
            written = "UPDATE kept SET value = ?, at = ? WHERE name = ?"
            if row is None:
                written = "INSERT INTO kept (value, at, name) VALUES (?, ?, ?)"
            connection.execute(written, [dump(state), time.time(), name])
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return result

    def _close(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                self._opened[1].close()
            self._opened = None

    def close(self) -> None:
        with self._lock:
            self._close()


def _path() -> Path:
    from platformdirs import user_state_path

    # Several machines may share a home folder, and SQLite's locks do not work across machines.
    return user_state_path("directmail-lab", appauthor=False) / f"allowances-1-{machine()}.sqlite"


def _open(path: Path, named: Callable[[bytes], bytes]) -> tuple[sqlite3.Connection, bytes]:
    """Return a connection to the file, created if missing, and the account's name in it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_own(path.parent, stat.S_ISDIR)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    _require_own(path, stat.S_ISREG)
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        # No need to wait for the disk: nothing in the file matters after a power failure.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA busy_timeout = 0")
        _begin(connection)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value, at REAL) WITHOUT ROWID"
        )
        connection.execute("DELETE FROM kept WHERE at < ?", [time.time() - _KEPT_S])
        asked = "SELECT value FROM kept WHERE name = 'secret'"
        if connection.execute(asked).fetchone() is None:
            connection.execute(
                "INSERT INTO kept VALUES ('secret', ?, NULL)", [secrets.token_bytes(32)]
            )
        (secret,) = connection.execute(asked).fetchone()
        connection.execute("COMMIT")
        return connection, named(secret)
    except BaseException:
        connection.close()
        raise


def _require_own(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Refuse a path that another user owns (links are followed); remove others' permissions."""
    found = path.stat()
    if not is_kind(found.st_mode) or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
        raise PermissionError(f"{path} is not this user's own")
    if found.st_mode & 0o077:
        path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a write transaction; retry for 0.5 s while others write, in steps of at most 1 ms."""
    give_up_at = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if (
                not error.sqlite_errorname.startswith("SQLITE_BUSY")
                or time.monotonic() > give_up_at
            ):
                raise
        time.sleep(random.uniform(0.0001, 0.001))


@lru_cache(maxsize=1024)
def sealed(identity: bytes, operation: str) -> str:
    """Return the name under which an account's operation is kept."""
    return hmac.digest(identity, operation.encode("utf-8", "replace"), "sha256").hex()[:32]


@lru_cache(maxsize=1)
def machine() -> str:
    """Return a short hash of this machine's host name."""
    return hashlib.blake2s(platform.node().encode(), digest_size=4).hexdigest()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def dump(state: PaceState) -> str:
    """Return a state as JSON: a list of its values without their names, ``places`` first."""
    kept = vars(state)
    places = {name: list(vars(place).values()) for name, place in state.places.items()}
    return _encode([places, *(kept[name] for name in kept if name != "places")])


def load(text: str) -> PaceState:
    """Return the state from a text of `dump`; a new state if the text is empty or not valid."""
    try:
        places, *kept = json.loads(text)
        return PaceState({name: Place(*values) for name, values in places.items()}, *kept)
    except (ValueError, TypeError, AttributeError):
        return PaceState()


class Share:
    """The checked value of ``connect(…, share=…)``, whose repr hides a server's password.

    Raises
    ------
    ValueError
        It is not ``"machine"``, None or the address of a Redis server.
    """

    __slots__ = ("__reveal", "_is_machine")

    def __init__(self, share: str | None) -> None:
        if share is not None and not _SHARES.fullmatch(str(share)):
            share = None  # a traceback may be printed with the frame's locals
            raise ValueError('share is "machine", None, or the address of a server, "redis://…".')
        self._is_machine = share == "machine"
        self.__reveal: Callable[[], str | None] = lambda: share

    def __repr__(self) -> str:
        return "Share(<hidden>)"

    def open(
        self, api_key: ApiKey | None, base_url: str, clock: Callable[[], float]
    ) -> Store | None:
        """Return the store for a key's allowance; None if it is not shared.

        Raises
        ------
        DirectMailLabError
            The value is a Redis server's address, and redis-py is not installed.
        """
        if api_key is None or self.__reveal() is None:
            return None
        url = httpx.URL(base_url)

        def named(secret: bytes) -> bytes:
            account = f"{url.scheme}://{url.netloc.decode()}\n{api_key.reveal()}"
            return hmac.digest(secret, account.encode(), "sha256")

        if self._is_machine:
            return MachineStore(named)
        try:
            from .redis_store import RedisStore
        except ImportError:
            raise DirectMailLabError(
                'To share an allowance through Redis: pip install "directmail-lab[redis]".'
            ) from None
        return RedisStore(self.__reveal() or "", named, clock)  # no local: it has a password


def as_share(given: str | Share | None) -> Share:
    """Return the value of ``share`` as a `Share`, which checks and hides it."""
    try:
        return given if isinstance(given, Share) else Share(given)
    finally:
        given = None  # as in Share
