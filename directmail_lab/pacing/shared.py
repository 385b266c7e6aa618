"""Where sessions share what pacing knows: in a file of this user's, or on a Redis server.

A store keeps a row for each operation: its `Allowance`, and which sessions use it. It changes a row
atomically, under a lock or by compare and set. No fault of a store touches a request: the session
then paces alone for a while.
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
import sqlite3
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..arguments import argument_error
from ..credentials import ApiKey, Hidden
from ..errors import DirectMailLabError
from ..http import httpx
from .allowance import MOMENTS, NUMBERS, TIMES, Allowance

_SHARES: Final = re.compile(r"machine|rediss?://.+")
# How long one change may take, then how long the session paces alone after a failure, and how long
# a session that is not heard of is told of and a row is kept on a server.
_DEADLINE_S: Final = 0.5
_ALONE_S: Final = 60.0
_TOLD_OF_S: Final = 60.0
_KEPT_S: Final = 86_400
# A locked file, or a key that others change, is tried again after up to so many seconds.
_LONGEST_RETRY_S: Final = 0.002

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS allowances (name TEXT PRIMARY KEY, value) WITHOUT ROWID
"""
_READ: Final = "SELECT value FROM allowances WHERE name = ?"
_WRITE: Final = "INSERT OR REPLACE INTO allowances VALUES (?, ?)"

# Compare and set: stores the new row (ARGV[2]) if the key still has the old one (ARGV[1]), else
# returns what it has. Also returns the server's time. The rules of pacing are in Python only.
_SCRIPT: Final = """
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[1] and ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
end
return {kept, redis.call('TIME')}
"""

_Update = Callable[[object], str]


class SharedStore(ABC):
    """Keeps allowances where other sessions find them. One thread at a time may use it.

    Parameters
    ----------
    account
        A secret of the account. Names of operations are an HMAC-SHA256 by it, so that the store
        gives away neither key nor path.

    Attributes
    ----------
    other_kernels
        How many other processes used the operation that was changed last.
    """

    def __init__(self, account: bytes) -> None:
        self._account = account
        self._kernel = f"{machine()}-{os.getpid()}"
        self._ahead_s = 0.0  # of the store's clock, which the times in rows are by
        self._give_up_at = 0.0  # of the change that is made, by the monotonic clock
        self._alone_until, self._has_warned = 0.0, False
        # By operation: the name of its row, and the row as this session wrote it.
        self._names: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self.other_kernels = 0

    def change(
        self, operation: str, own: Allowance, ask: Callable[[Allowance], float], now: float
    ) -> tuple[Allowance, float] | None:
        """Apply ``ask`` to what all know of an operation; return both, or None on a failure.

        ``ask`` gets a copy of our ``own`` allowance with what is kept, perhaps more than once.
        """
        if now < self._alone_until:
            return None
        changed: tuple[Allowance, float] | None = None

        def update(row: object) -> str:
            nonlocal changed
            # Where nobody else has changed it since, there is nothing to read.
            is_own = row == self._written.get(operation)
            values = None if is_own else read_row(row, self._ahead_s)
            if values is None:
                values = {name: getattr(own, name).copy() for name in MOMENTS}
            allowance = replace(own, **values)
            changed = allowance, ask(allowance)
            for kernel, asked_at in list(allowance.kernels.items()):
                if abs(now - asked_at) > _TOLD_OF_S:
                    del allowance.kernels[kernel]
            allowance.kernels[self._kernel] = now
            self.other_kernels = len(allowance.kernels) - 1
            self._written[operation] = write_row(allowance, self._ahead_s)
            return self._written[operation]

        self._give_up_at = time.monotonic() + _DEADLINE_S
        if operation not in self._names:
            digest = hmac.digest(self._account, operation.encode("utf-8", "replace"), "sha256")
            self._names[operation] = digest.hex()
        try:
            self._replace(self._names[operation], update)
        except Exception as error:  # no failure of a store may make a request fail
            self._pace_alone(error, now)
            return None
        return changed

    def _pace_alone(self, error: Exception, now: float) -> None:
        self.close()
        self._alone_until, self.other_kernels = now + _ALONE_S, 0
        if self._has_warned:
            return
        self._has_warned = True
        with contextlib.suppress(UserWarning):  # if warnings are errors, the request must not fail
            warnings.warn(
                "The allowance is not shared with other kernels, and this session paces alone: "
                f"{self._describe(error)}. If it does not need to be shared, use share=None.",
                stacklevel=2,
            )

    @abstractmethod
    def _replace(self, name: str, update: _Update) -> None:
        """Replace a row by what ``update`` makes of it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, which the next change opens again."""

    def _describe(self, error: Exception) -> str:
        return str(error) or type(error).__name__


def read_row(text: object, ahead_s: float) -> dict[str, Any] | None:
    """Return the values in a row, or None if any of them is not as we write it.

    Other programs may write to a store too. Its clock is ``ahead_s`` ahead of ours.
    """
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
        row = json.loads(text)  # type: ignore[arg-type]
        numbers = [row[name] for name in _OF_NUMBERS]
        numbers += [at for name in MOMENTS for at in row[name].values()]
        if row["remaining"] is not None:  # responses say what remains
            numbers.append(row["remaining"])
        are_numbers = all(type(each) in _NUMERIC and 0 <= each < 2**64 for each in numbers)
        if are_numbers and len(row) == len(_SHARED):
            return _shifted(row, -ahead_s)
    return None


def write_row(allowance: Allowance, ahead_s: float) -> str:
    """Return the row that `read_row` reads."""
    return _encode(_shifted({name: getattr(allowance, name) for name in _SHARED}, ahead_s))


def _shifted(row: dict[str, Any], by_s: float) -> dict[str, Any]:
    """Return a row with its times moved, from one clock to another; 0 stands for no time."""
    if not by_s:
        return row
    shifted = row | {name: row[name] and row[name] + by_s for name in TIMES}
    for name in MOMENTS:
        shifted[name] = {each: at + by_s for each, at in row[name].items()}
    return shifted


_OF_NUMBERS: Final = TIMES + NUMBERS
_SHARED: Final = ("remaining", *_OF_NUMBERS, *MOMENTS)
_NUMERIC: Final = frozenset((int, float, bool))
_encode = json.JSONEncoder(separators=(",", ":")).encode


class FileStore(SharedStore):
    """Keeps rows in an SQLite file in the user's state folder, for all sessions on this machine."""

    _connection: sqlite3.Connection | None = None

    def _replace(self, name: str, update: _Update) -> None:
        connection = self._connection or self._open()
        with connection:  # commits, or rolls back, also after Ctrl-C
            self._execute_once_free(connection, "BEGIN IMMEDIATE")
            row = connection.execute(_READ, [name]).fetchone()
            connection.execute(_WRITE, [name, update(row and row[0])])

    def _open(self) -> sqlite3.Connection:
        connection = self._connection = sqlite3.connect(
            _own_file(), timeout=0.0, isolation_level=None, check_same_thread=False
        )
        # Also if the session is dropped, but not in a forked child.
        self._disconnect = weakref.finalize(self, _close_in, os.getpid(), connection)
        # No need to wait for the disk: nothing in the file matters after a power failure.
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF", _CREATE):
            self._execute_once_free(connection, statement)
        return connection

    def _execute_once_free(self, connection: sqlite3.Connection, statement: str) -> None:
        """Execute a statement that needs the file's lock.

        SQLite's own attempts are up to 0.1 s apart, so under load some sessions never got the lock.
        """
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_locked or time.monotonic() >= self._give_up_at:
                    raise
                time.sleep(random.uniform(0.0, _LONGEST_RETRY_S))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection = None
            self._disconnect()


def _close_in(process: int, connection: sqlite3.Connection) -> None:
    if process == os.getpid():
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _own_file() -> Path:
    """Return the file's path: it and its folder are this user's, and open to nobody else."""
    from platformdirs import user_state_path

    # Several machines may share a home folder, and SQLite's locks do not work across machines.
    path = user_state_path("directmail-lab", appauthor=False) / f"allowances-4-{machine()}.sqlite"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    for each in (path.parent, path):  # links are followed
        status = each.stat()
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise PermissionError(f"{each} is not this user's own")
        if status.st_mode & 0o077:
            each.chmod(status.st_mode & 0o700)
    return path


class RedisStore(SharedStore):
    """Keeps rows on a server, for sessions on several machines; times are by the server's clock.

    Parameters
    ----------
    address
        ``redis://`` or ``rediss://``, with or without a password.
    clock
        Our clock, in seconds since the Unix epoch.
    """

    def __init__(self, address: str, account: bytes, clock: Callable[[], float]) -> None:
        import redis

        super().__init__(account)
        options = {"socket_timeout": _DEADLINE_S, "socket_connect_timeout": _DEADLINE_S}
        try:
            self._pool: Any = redis.ConnectionPool.from_url(
                address, decode_responses=True, **options
            )
        except ValueError:
            raise argument_error(
                "share is not a Redis address such as redis://host:6379/0."
            ) from None
        self._clock = clock
        # A client of redis-py takes three times as long: it looks after pools and retries.
        self._connection: Any = self._pool.make_connection()
        self._thread = ThreadPoolExecutor(1)

    def _replace(self, name: str, update: _Update) -> None:
        # In a thread: a change takes several calls, and together they have one deadline.
        self._thread.submit(self._compare_and_set, name, update).result(_DEADLINE_S)

    def _compare_and_set(self, name: str, update: _Update) -> None:
        key = f"directmail-lab:4:{name}"
        before = self._exchange(key, "", "")
        while (kept := self._exchange(key, before, update(before))) != before:
            if time.monotonic() >= self._give_up_at:
                raise TimeoutError
            before = kept
            time.sleep(random.uniform(0.0, _LONGEST_RETRY_S))

    def _exchange(self, key: str, before: str, after: str) -> str:
        """Write a row if it is still the one before; return the one that was there."""
        sent_at = self._clock()
        self._connection.send_command("EVAL", _SCRIPT, 1, key, before, after, _KEPT_S)
        kept, (seconds, microseconds) = self._connection.read_response()
        server_time = int(seconds) + int(microseconds) / 1e6
        self._ahead_s = server_time - (sent_at + self._clock()) / 2
        return str(kept)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._connection.disconnect()

    def _describe(self, error: Exception) -> str:
        where = self._pool.connection_kwargs
        return f"Redis at {where.get('host')}:{where.get('port')} fails ({type(error).__name__})"


@lru_cache(maxsize=1)
def machine() -> str:
    """Return a short hash of this machine's host name."""
    return hashlib.blake2s(platform.node().encode(), digest_size=4).hexdigest()


class Share(Hidden):
    """The checked value of ``connect(…, share=…)``, whose repr hides a server's password.

    Raises
    ------
    ValueError
        It is not ``"machine"``, None or the address of a Redis server.
    """

    __slots__ = ("__reveal",)

    def __init__(self, share: str | Share | None) -> None:
        self.__reveal: Callable[[], str | None]
        if isinstance(share, Share):
            self.__reveal = share.__reveal
        elif share is None or _SHARES.fullmatch(str(share)):
            self.__reveal = lambda: share
        else:
            raise argument_error(
                'share is "machine", None, or the address of a server, "redis://…".'
            )

    def open(
        self, api_key: ApiKey | None, base_url: str, clock: Callable[[], float]
    ) -> SharedStore | None:
        """Return the store for a key's allowance; None if it is not shared.

        Raises
        ------
        DirectMailLabError
            The value is a Redis server's address, and redis-py is not installed.
        """
        if api_key is None or self.__reveal() is None:
            return None
        url = httpx.URL(base_url)
        address = f"{url.scheme}://{url.netloc.decode()}"
        account = hmac.digest(api_key.reveal().encode(), address.encode(), "sha256")
        if self.__reveal() == "machine":
            return FileStore(account)
        try:
            return RedisStore(self.__reveal() or "", account, clock)  # no local: a password
        except ImportError:
            raise DirectMailLabError(
                'To share an allowance through Redis: pip install "directmail-lab[redis]".'
            ) from None
