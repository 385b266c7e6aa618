"""`RedisStore`: keeps pacing states on a Redis server, for sessions on several machines."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import redis

from .shared import StoreError, dump, load, sealed
from .state import PaceState

_T = TypeVar("_T")

_PATIENCE_S: Final = 1.0
_ATTEMPTS: Final = 500
_KEPT_S: Final = 86_400
_SECRET: Final = "directmail-lab:secret"

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


class RedisStore:
    """Keeps states on a server. Names of keys are an HMAC-SHA256 of API key, address and operation.

    Parameters
    ----------
    address
        ``redis://`` or ``rediss://``, with or without a password.
    named
        Returns the name of the account, given a secret that is kept on the server.
    clock
        Our clock, in seconds since the Unix epoch. Times in states are by the server's clock.
    """

    def __init__(
        self, address: str, named: Callable[[bytes], bytes], clock: Callable[[], float]
    ) -> None:
        try:
            self._client: Any = redis.Redis.from_url(
                address,
                socket_timeout=_PATIENCE_S,
                socket_connect_timeout=_PATIENCE_S,
                decode_responses=True,
            )
        except ValueError:
            address = ""  # a traceback may be printed with the frame's locals
            raise ValueError("share is not a Redis address such as redis://host:6379/0.") from None
        self._script = self._client.register_script(_SCRIPT)
        self._named = named
        self._clock = clock
        self._account: bytes | None = None
        self._texts: dict[str, str] = {}
        self._ahead_s = 0.0
        self._lock = threading.Lock()

    def change(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        with self._lock:
            try:
                return self._changed(operation, decide)
            except Exception as error:  # no failure of a server may make a request fail
                self._account, self._texts = None, {}
                where = self._client.connection_pool.connection_kwargs
                server = f"Redis at {where.get('host')}:{where.get('port')}"
                raise StoreError(f"{server} fails ({type(error).__name__})") from None

    def _changed(self, operation: str, decide: Callable[[PaceState, float], _T]) -> _T:
        if self._account is None:
            self._client.set(_SECRET, secrets.token_hex(32), nx=True)
            self._account = self._named(self._client.get(_SECRET).encode())
        name = f"directmail-lab:{sealed(self._account, operation)}"
        # Usually nobody else has changed the state since, and one call is enough.
        for attempt in range(_ATTEMPTS):
            before, after, result = self._texts.get(name, "?"), "", None
            if before != "?":
                state = load(before)
                result = decide(state, self._ahead_s)
                after = dump(state)
            done, kept, now = self._script(keys=[name], args=[before, after, _KEPT_S])
            self._ahead_s = int(now[0]) + int(now[1]) / 1e6 - self._clock()
            self._texts[name] = after if done else kept
            if done:
                return result  # type: ignore[return-value]
            if before != "?":
                time.sleep(random.uniform(0.0, 0.001 * min(attempt, 10)))
        raise TimeoutError

    def close(self) -> None:
        self._client.close()
