"""Where sessions share what pacing knows: in a file of this user's, or on a Redis server.

A store keeps a row for each operation: its `Allowance`, and which sessions use it. It changes a row
atomically, under a lock or by compare and set. No fault of a store touches a request: the session
then paces alone for a while.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import hmac
import json
import math
import os
import platform
import random
import re
import secrets
import sqlite3
import stat
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import DirectMailLabError, argument_error
from ..http import httpx
from .allowance import NUMBERS, TIMES, Allowance

if TYPE_CHECKING:
    from ..credentials import ApiKey

_SHARES: Final = re.compile(r"machine|rediss?://.+")
# How long one change may take, then how long the session paces alone after a failure, and how long
# a session that is not heard of is told of and a row is kept on a server.
_DEADLINE_S: Final = 0.5
_ALONE_S: Final = 60.0
_TOLD_OF_S: Final = 60.0
_KEPT_S: Final = 86_400
# A locked file, or a key that others change, is tried again after up to so many seconds.
_LONGEST_RETRY_S: Final = 0.002
# A renewal that is further ahead is none.
_LONGEST_AHEAD_S: Final = 400 * 86_400.0
_SECRET: Final = "secret"

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS allowances (name TEXT PRIMARY KEY, value) WITHOUT ROWID
"""
_READ: Final = "SELECT value FROM allowances WHERE name = ?"
_WRITE: Final = "INSERT OR REPLACE INTO allowances VALUES (?, ?)"

# Compare and set: stores the new row (ARGV[2]) if the key still has the old one (ARGV[1]), else
# returns what it has. Also returns the server's time. The rules of pacing are in Python only.
_SCRIPT: Final = """
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return {kept, redis.call('TIME')}
"""

_Ask = Callable[[Allowance], float]
_Update = Callable[[object], str]


class SharedStore(ABC):
    """Keeps allowances where other sessions find them. One thread at a time may use it.

    Parameters
    ----------
    name_account
        Returns the name of the account, given a secret that is kept in the store. Names of
        operations are an HMAC-SHA256 of it, so that the store gives away neither key nor path.

    Attributes
    ----------
    other_kernels
        How many other processes used the operation that was changed last.
    """

    def __init__(self, name_account: Callable[[bytes], bytes]) -> None:
        self._name_account = name_account
        self._account = b""
        self._me = ""
        self._connection: Any = None
        self._disconnect: Callable[[], None]  # set by `_open`
        self._ahead_s = 0.0  # of the store's clock, which the times in rows are by
        self._alone_until, self._has_warned = 0.0, False
        self.other_kernels = 0

    def change(
        self, operation: str, own: Allowance, ask: _Ask, *, now: float, since: float
    ) -> tuple[Allowance, float] | None:
        """Apply ``ask`` to what all know of an operation; return both, or None on a failure.

        ``ask`` gets a copy of our ``own`` allowance with what is kept, perhaps more than once.
        ``since`` is since when the request waits that asks.
        """
        if now < self._alone_until:
            return None
        done: tuple[Allowance, float] | None = None

        def update(text: object) -> str:
            nonlocal done
            allowance = copy.copy(own)
            values, users = read_row(text, now, self._ahead_s)
            users.pop(self._me, None)
            vars(allowance).update(values)
            _count(allowance, users, now, since)
            seconds = ask(allowance)
            kernels = {name.partition(".")[0] for name in (self._me, *users)}
            self.other_kernels = len(kernels) - 1
            users[self._me] = allowance.in_flight, now, since if seconds else 0.0
            done = allowance, seconds
            return write_row(allowance, users, self._ahead_s)

        try:
            self._keep(operation, update)
        except Exception as error:  # no failure of a store may make a request fail
            self._pace_alone(error, now)
            return None
        return done

    def _keep(self, operation: str, update: _Update) -> None:
        if self._connection is None:
            self._account = self._name_account(self._open())
            self._me = f"{machine()}-{os.getpid()}.{random.getrandbits(32):x}"
        name = hmac.digest(self._account, operation.encode("utf-8", "replace"), "sha256").hex()
        self._replace(name, update)

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

    def after_fork(self, *, in_use: bool) -> None:
        """Leave the connection to the parent of a forked child: it must not even be closed here.

        If another thread was using it, nobody releases SQLite's own locks in the child.
        """
        _inherited.append(self._connection)
        self._connection = None
        if in_use:
            self._alone_until = math.inf

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection = None
            with contextlib.suppress(Exception):
                self._disconnect()

    def _describe(self, error: Exception) -> str:
        return str(error) or type(error).__name__

    @abstractmethod
    def _open(self) -> bytes:
        """Open the connection, and return the secret, which is made if it is missing."""

    @abstractmethod
    def _replace(self, name: str, update: _Update) -> None:
        """Replace a row by what ``update`` makes of it."""


_inherited: Final[list[object]] = []


def read_row(text: object, now: float, ahead_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values and the users in a row; nothing if any of it is not as we write it.

    Other programs may write to a store too. Its clock is ``ahead_s`` ahead of ours.
    """
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
        row = json.loads(text)  # type: ignore[arg-type]
        users = row.pop("users")
        counts = [row[name] for name in NUMBERS] + [each for each, _, _ in users.values()]
        if row["remaining"] is None:  # responses do not say what remains
            counts.remove(None)
        times = [row[name] for name in TIMES]
        times += [at for _, *both in users.values() for at in both]
        if (
            len(row) == len(NUMBERS) + len(TIMES)
            and all(type(count) in (int, float, bool) and 0 <= count < 2**63 for count in counts)
            and all(type(at) in (int, float) and at < now + _LONGEST_AHEAD_S for at in times)
        ):
            row |= {name: row[name] - ahead_s for name in TIMES}
            return row, {
                name: (in_flight, seen_at - ahead_s, since and since - ahead_s)
                for name, (in_flight, seen_at, since) in users.items()
            }
    return {}, {}


def write_row(allowance: Allowance, users: dict[str, Any], ahead_s: float) -> str:
    """Return the row that `read_row` reads."""
    row: dict[str, Any] = {name: getattr(allowance, name) for name in NUMBERS}
    row |= {name: getattr(allowance, name) + ahead_s for name in TIMES}
    row["users"] = {
        name: (in_flight, seen_at + ahead_s, since and since + ahead_s)
        for name, (in_flight, seen_at, since) in users.items()
    }
    return _encode(row)


def _count(allowance: Allowance, users: dict[str, Any], now: float, since: float) -> None:
    """Count the requests of others that are in flight or wait for longer."""
    allowance.others_in_flight = allowance.others_first = 0
    for name, (in_flight, seen_at, waits_since) in list(users.items()):
        if abs(now - seen_at) <= allowance.lost_after_s:
            allowance.others_in_flight += in_flight
            allowance.others_first += 0 < waits_since < since
            continue
        # Lost, or its session is idle. What a later response said has it in it; else count it.
        if allowance.remaining and allowance.answered_at <= seen_at:
            allowance.remaining = max(0, allowance.remaining - in_flight)
        users[name] = 0, seen_at, 0.0
        if abs(now - seen_at) > _TOLD_OF_S:
            del users[name]


class FileStore(SharedStore):
    """Keeps rows in an SQLite file in the user's state folder, for all sessions on this machine."""

    def _open(self) -> bytes:
        path = _state_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(path.parent, stat.S_ISDIR)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        _require_own(path, stat.S_ISREG)
        self._connection = connection = sqlite3.connect(
            path, timeout=0.0, isolation_level=None, check_same_thread=False
        )
        # Also if the session is dropped, but not in a forked child.
        self._disconnect = weakref.finalize(self, _close_in, os.getpid(), connection)
        self._execute_once_free("PRAGMA journal_mode = WAL")
        # No need to wait for the disk: nothing in the file matters after a power failure.
        connection.execute("PRAGMA synchronous = OFF")
        self._execute_once_free("BEGIN IMMEDIATE")
        with connection:
            connection.execute(_CREATE)
            made = connection.execute(_READ, [_SECRET]).fetchone() or [secrets.token_bytes(32)]
            connection.execute(_WRITE, [_SECRET, made[0]])
        secret: bytes = made[0]
        return secret

    def _replace(self, name: str, update: _Update) -> None:
        self._execute_once_free("BEGIN IMMEDIATE")
        with self._connection as connection:  # commits, or rolls back
            row = connection.execute(_READ, [name]).fetchone()
            connection.execute(_WRITE, [name, update(row and row[0])])

    def _execute_once_free(self, statement: str) -> None:
        """Execute a statement that needs the file's lock.

        SQLite's own attempts are up to 0.1 s apart, so under load some sessions never got the lock.
        """
        give_up_at = time.monotonic() + _DEADLINE_S
        while True:
            try:
                self._connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_locked or time.monotonic() >= give_up_at:
                    raise
                time.sleep(random.uniform(0.0, _LONGEST_RETRY_S))


def _close_in(process: int, connection: sqlite3.Connection) -> None:
    if process == os.getpid():
        connection.close()


def _state_file() -> Path:
    from platformdirs import user_state_path

    # Several machines may share a home folder, and SQLite's locks do not work across machines.
    return user_state_path("directmail-lab", appauthor=False) / f"allowances-3-{machine()}.sqlite"


def _require_own(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Refuse a path that another user owns (links are followed); remove others' permissions."""
    status = path.stat()
    if not is_kind(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise PermissionError(f"{path} is not this user's own")
    if status.st_mode & 0o077:
        path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


class RedisStore(SharedStore):
    """Keeps rows on a server, for sessions on several machines; times are by the server's clock.

    Parameters
    ----------
    address
        ``redis://`` or ``rediss://``, with or without a password.
    clock
        Our clock, in seconds since the Unix epoch.
    """

    def __init__(
        self, address: str, name_account: Callable[[bytes], bytes], clock: Callable[[], float]
    ) -> None:
        import redis

        super().__init__(name_account)
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
        self._rows: dict[str, str] = {}

    def _keep(self, operation: str, update: _Update) -> None:
        # In a thread: a change takes several calls, and together they have one deadline.
        if self._connection is None:
            self._thread = ThreadPoolExecutor(1)
        self._thread.submit(super()._keep, operation, update).result(_DEADLINE_S)

    def _open(self) -> bytes:
        self._rows = {}
        self._connection = self._pool.make_connection()
        self._disconnect = self._connection.disconnect
        self._exchange(_SECRET, "", secrets.token_hex(32))
        return self._exchange(_SECRET, "", "").encode()

    def _replace(self, name: str, update: _Update) -> None:
        # Usually nobody else has changed the row since, and one call is enough.
        give_up_at = time.monotonic() + _DEADLINE_S
        while time.monotonic() < give_up_at:
            before = self._rows.get(name, "")
            after = update(before)
            kept = self._exchange(name, before, after)
            self._rows[name] = after if kept == before else kept
            if kept == before:
                return
            time.sleep(random.uniform(0.0, _LONGEST_RETRY_S))
        raise TimeoutError

    def _exchange(self, name: str, before: str, after: str) -> str:
        """Write a row if it is still the one before; return the one that was there."""
        sent_at = self._clock()
        # A client of redis-py takes three times as long: it looks after pools and retries.
        self._connection.send_command(
            "EVAL", _SCRIPT, 1, f"directmail-lab:3:{name}", before, after, _KEPT_S
        )
        kept, (seconds, microseconds) = self._connection.read_response()
        server_time = int(seconds) + int(microseconds) / 1e6
        self._ahead_s = server_time - (sent_at + self._clock()) / 2
        return str(kept)

    def _describe(self, error: Exception) -> str:
        where = self._pool.connection_kwargs
        return f"Redis at {where.get('host')}:{where.get('port')} fails ({type(error).__name__})"


@lru_cache(maxsize=1)
def machine() -> str:
    """Return a short hash of this machine's host name."""
    return hashlib.blake2s(platform.node().encode(), digest_size=4).hexdigest()


_encode = json.JSONEncoder(separators=(",", ":")).encode


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
            return FileStore(name_account)
        try:
            return RedisStore(self.__reveal() or "", name_account, clock)  # no local: a password
        except ImportError:
            raise DirectMailLabError(
                'To share an allowance through Redis: pip install "directmail-lab[redis]".'
            ) from None
