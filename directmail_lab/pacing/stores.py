"""Where sessions share what pacing knows: in a file of this user's, or on a Redis server.

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
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from filelock import FileLock

from ..errors import DirectMailLabError, argument_error
from ..http import httpx
from .state import ClockDifference, PaceState, Participant

if TYPE_CHECKING:
    from ..credentials import ApiKey

_T = TypeVar("_T")
_Decide = Callable[[PaceState, float], _T]
"""Changes a state and returns a result. It gets the state, and how many seconds the store's clock
is ahead of ours. It may be called more than once."""

_SHARES: Final = re.compile(r"machine|rediss?://.+")
# How long a locked file is tried, with pauses of up to the second of these; then how long the file
# may take to open, and how long a state is kept.
_BUSY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 0.002
_OPENING_S: Final = 2.0
_KEPT_S: Final = 86_400
# Of each call of a Redis server, and how often a change is tried if others change the state too.
_TIMEOUT_S: Final = 1.0
_ATTEMPTS: Final = 500
_SECRET: Final = "directmail-lab:secret"

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, value, at REAL) WITHOUT ROWID
"""
_WRITE: Final = """
INSERT INTO states VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, at = excluded.at
"""

# Compare and set: stores the new state (ARGV[2]) if the key still has the old one (ARGV[1]), else
# returns what it has. Also returns the server's time. The rules of pacing are in Python only.
_SCRIPT: Final = """
local kept = redis.call('GET', KEYS[1]) or ''
local done = 0
if kept == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
  done, kept = 1, ''
end
return {done, kept, redis.call('TIME')}
"""


class StoreError(Exception):
    """A shared store cannot be read or written; the text says why."""


class SharedStore(ABC):
    """Keeps states where other sessions find them; one thread at a time uses its connection.

    Parameters
    ----------
    name_account
        Returns the name of the account, given a secret that is kept in the store. Names of
        operations are an HMAC-SHA256 of it, so that the store gives away neither key nor path.
    """

    def __init__(self, name_account: Callable[[bytes], bytes]) -> None:
        self._name_account = name_account
        self._account = b""
        self._connection: Any = None
        self._process = os.getpid()
        self._inherited: object = None
        self._lock = threading.Lock()

    def change(self, operation: str, decide: _Decide[_T]) -> _T:
        """Call ``decide`` with the operation's state, keep that state, return the result."""
        with self._own_lock():
            try:
                if self._connection is None:
                    self._account = self._name_account(self._open())
                return self._change(_name_operation(self._account, operation), decide)
            except Exception as error:  # no failure of a store may make a request fail
                self._disconnect()
                raise StoreError(self._describe(error)) from None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(StoreError), self._own_lock():
            self._disconnect()

    def _own_lock(self) -> threading.Lock:
        """Return the lock, in a forked child without the parent's connection.

        If another thread held the lock at the fork, nobody releases it in the child, nor SQLite's.
        """
        if self._process != os.getpid():
            if self._lock.locked():
                raise StoreError("another thread was using it when this process was forked")
            # The connection is the parent's: it must not even be closed here.
            self._inherited, self._connection = self._connection, None
            self._process = os.getpid()
        return self._lock

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                self._close(connection)

    @abstractmethod
    def _open(self) -> bytes:
        """Open the connection, and return the secret, which is made if it is missing."""

    @abstractmethod
    def _change(self, name: str, decide: _Decide[_T]) -> _T: ...

    def _close(self, connection: Any) -> None:
        connection.close()

    def _describe(self, error: Exception) -> str:
        return str(error)


class MachineStore(SharedStore):
    """Keeps states in an SQLite file in the user's state folder, for all sessions on this machine.

    The secret is made with the file.
    """

    def _open(self) -> bytes:
        path = _state_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(path.parent, stat.S_ISDIR)
        # SQLite fails at once, and does not wait, if two connections change a new file to WAL.
        with FileLock(path.with_suffix(".lock"), _OPENING_S, mode=0o600, poll_interval=0.01):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            _require_own(path, stat.S_ISREG)
            self._connection = sqlite3.connect(
                path, timeout=0.0, isolation_level=None, check_same_thread=False
            )
            execute = self._connection.execute
            self._execute_once_free("PRAGMA journal_mode = WAL")
            # No need to wait for the disk: nothing in the file matters after a power failure.
            execute("PRAGMA synchronous = OFF")
            with self._transaction():
                execute(_CREATE)
                execute("DELETE FROM states WHERE at < ?", [time.time() - _KEPT_S])
                secret = secrets.token_bytes(32)
                execute("INSERT OR IGNORE INTO states VALUES ('secret', ?, NULL)", [secret])
                (secret,) = execute("SELECT value FROM states WHERE name = 'secret'").fetchone()
        return bytes(secret)

    def _transaction(self) -> sqlite3.Connection:
        """Begin a transaction; the connection's ``with`` block commits it, or rolls it back."""
        self._execute_once_free("BEGIN IMMEDIATE")
        return cast("sqlite3.Connection", self._connection)

    def _execute_once_free(self, statement: str) -> None:
        """Execute a statement that needs the file's lock.

        SQLite's own attempts are up to 0.1 s apart, so under load some sessions never got the lock.
        """
        give_up_at = time.monotonic() + _BUSY_S
        while True:
            try:
                self._connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_locked or time.monotonic() >= give_up_at:
                    raise
                time.sleep(random.uniform(0.0, _LONGEST_RETRY_S))

    def _change(self, name: str, decide: _Decide[_T]) -> _T:
        execute = self._connection.execute
        with self._transaction():
            row = execute("SELECT value FROM states WHERE name = ?", [name]).fetchone()
            state = load(row[0] if row else "")
            result = decide(state, 0.0)
            execute(_WRITE, [name, dump(state), time.time()])
        return result


def _state_file() -> Path:
    from platformdirs import user_state_path

    # Several machines may share a home folder, and SQLite's locks do not work across machines.
    return user_state_path("directmail-lab", appauthor=False) / f"allowances-2-{machine()}.sqlite"


def _require_own(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Refuse a path that another user owns (links are followed); remove others' permissions."""
    status = path.stat()
    if not is_kind(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise PermissionError(f"{path} is not this user's own")
    if status.st_mode & 0o077:
        path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


class RedisStore(SharedStore):
    """Keeps states on a server, for sessions on several machines; so is the secret.

    Parameters
    ----------
    address
        ``redis://`` or ``rediss://``, with or without a password.
    clock
        Our clock, in seconds since the Unix epoch. Times in states are by the server's clock.
    """

    def __init__(
        self,
        address: str,
        name_account: Callable[[bytes], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        import redis

        super().__init__(name_account)
        try:
            self._pool: Any = redis.ConnectionPool.from_url(
                address,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                health_check_interval=30,
                decode_responses=True,
            )
        except ValueError:
            raise argument_error(
                "share is not a Redis address such as redis://host:6379/0."
            ) from None
        self._clock = clock
        self._server_clock = ClockDifference()
        self._texts: dict[str, str] = {}

    def _open(self) -> bytes:
        self._texts = {}
        self._connection = self._pool.make_connection()
        self._call("SET", _SECRET, secrets.token_hex(32), "NX")
        return str(self._call("GET", _SECRET)).encode()

    def _close(self, connection: Any) -> None:
        connection.disconnect()

    def _describe(self, error: Exception) -> str:
        where = self._pool.connection_kwargs
        return f"Redis at {where.get('host')}:{where.get('port')} fails ({type(error).__name__})"

    def _call(self, *command: str | int) -> Any:
        # A client of redis-py takes three times as long: it looks after pools and retries.
        self._connection.send_command(*command)
        return self._connection.read_response()

    def _change(self, name: str, decide: _Decide[_T]) -> _T:
        clock = self._server_clock
        if name not in self._texts:
            self._replace(name, "?", "")
        # Usually nobody else has changed the state since, and one call is enough.
        for attempt in range(_ATTEMPTS):
            state = load(before := self._texts[name])
            result = decide(state, (clock.least_s + clock.most_s) / 2)
            if self._replace(name, before, dump(state)):
                return result
            time.sleep(random.uniform(0.0, 0.001 * min(attempt, 10)))
        raise TimeoutError

    def _replace(self, name: str, before: str, after: str) -> bool:
        """Replace a state's text if it is still the one before, else read it."""
        sent_at, key = self._clock(), f"directmail-lab:2:{name}"
        is_replaced, kept, (seconds, microseconds) = self._call(
            "EVAL", _SCRIPT, 1, key, before, after, _KEPT_S
        )
        server_time = int(seconds) + int(microseconds) / 1e6
        self._server_clock.narrow(server_time - self._clock(), server_time - sent_at)
        self._texts[name] = after if is_replaced else kept
        return bool(is_replaced)


@lru_cache(maxsize=1024)
def _name_operation(account: bytes, operation: str) -> str:
    """Return the name under which an account's operation is kept."""
    return hmac.digest(account, operation.encode("utf-8", "replace"), "sha256").hex()[:32]


@lru_cache(maxsize=1)
def machine() -> str:
    """Return a short hash of this machine's host name."""
    return hashlib.blake2s(platform.node().encode(), digest_size=4).hexdigest()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def dump(state: PaceState) -> str:
    """Return a state as JSON: a list of its values without their names."""
    participants = {
        name: list(vars(participant).values()) for name, participant in state.participants.items()
    }
    return _encode([participants, *list(vars(state).values())[1:]])


def load(text: str) -> PaceState:
    """Return the state from a text of `dump`; a new state if the text is empty or not valid."""
    try:
        participants, *values = json.loads(text)
        return PaceState(
            {name: Participant(*value) for name, value in participants.items()}, *values
        )
    except (ValueError, TypeError, AttributeError):
        return PaceState()


class Share:
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

    def __repr__(self) -> str:
        return "Share(<hidden>)"

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

        def name_account(secret: bytes) -> bytes:
            account = f"{url.scheme}://{url.netloc.decode()}\n{api_key.reveal()}"
            return hmac.digest(secret, account.encode(), "sha256")

        if self.__reveal() == "machine":
            return MachineStore(name_account)
        try:
            return RedisStore(self.__reveal() or "", name_account, clock)  # no local: a password
        except ImportError:
            raise DirectMailLabError(
                'To share an allowance through Redis: pip install "directmail-lab[redis]".'
            ) from None
