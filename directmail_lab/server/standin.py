"""The stand-in service: a real HTTP server on loopback that follows service.md exactly.

Options set what service.md leaves open. The responses say that they come from a stand-in.
"""

from __future__ import annotations

import base64
import hmac
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from email.utils import formatdate
from typing import NamedTuple, get_args

from ..arguments import argument_error, check_choice
from ..credentials import ApiKey
from ..display import plural
from ..exchange.contract import (
    LIMIT_HEADER,
    ME_PATH,
    REMAINING_HEADER,
    RESET_HEADER,
    STAND_IN_KEY,
    TYPICAL_LIMIT,
    TYPICAL_WINDOW_S,
)
from ..exchange.operations import operation_of, path_below
from ..exchange.values import Headers, Request, Response, header
from ..readings.reset_unit import ResetUnit
from ..settings import add_stand_in
from .loopback import LoopbackServer, error_response, json_response

STAND_IN_RECORD: Mapping[str, object] = {
    "id": "usr_stand_in_1",
    "name": "Stand-in User",
    "email": "stand-in@example.com",
    "service": "stand-in",
    "company": {
        "name": "Stand-in Company",
        "address": {"city": "Zürich", "postcode": "01234", "country": "CH"},
    },
    "permissions": ["read", "write"],
    "phone": None,
}

# Made up for the stand-in: the only operation that service.md shows is GET /v1/users/me.
_LETTERS_PATH = "/v1/letters"
_ROWS = [
    {"id": "lst_stand_in_1", "name": "Spring", "addresses": 120, "service": "stand-in"},
    {"id": "lst_stand_in_2", "name": "Café owners", "addresses": 48, "service": "stand-in"},
    {"id": "lst_stand_in_3", "name": "Empty", "addresses": 0, "service": "stand-in"},
]
_LISTS = {"/v1/lists": _ROWS, **{f"/v1/lists/{row['id']}": row for row in _ROWS}}
_LIST_LIMITS = {"/v1/lists": 60, "/v1/lists/{id}": 60}


class _Left(NamedTuple):
    """What is left of an operation's allowance after a request."""

    limit: int
    remaining: int  # -1 after a request over the limit
    renews_at: float  # in seconds since the Unix epoch


@dataclass(kw_only=True, eq=False, repr=False)
class StandIn(LoopbackServer):
    """A stand-in service on 127.0.0.1, which runs in a thread.

    Connect with its ``base_url`` and ``api_key``. It is closed at the end of a
    ``with`` block. The options set what the service's document leaves open.
    ``requests`` counts the requests received, by ``"METHOD /path"``.

    Parameters
    ----------
    port
        The port on 127.0.0.1; 0 takes a free one.
    api_key
        The only key that it accepts.
    limit
        How many requests a window allows, for each operation that ``limits``
        does not name.
    limits
        Other allowances by operation: ``"/v1/lists"`` for every method, or
        ``"GET /v1/lists"``.
    window_s
        The length of a window in seconds, from its first request.
    reset_unit
        The unit of ``X-RateLimit-Reset``.
    exhausted_status
        The HTTP status of a response when the allowance is used up.
    user
        The current user's record, any JSON value.

    Raises
    ------
    CredentialError
        HTTP Basic cannot carry the key.
    ValueError
        The unit is not one of the four, or a window or an allowance is out of
        its range.
    OSError
        The port is taken.
    """

    port: int = 0
    api_key: str = STAND_IN_KEY
    limit: int = TYPICAL_LIMIT
    limits: Mapping[str, int] = field(default_factory=_LIST_LIMITS.copy)
    window_s: float = TYPICAL_WINDOW_S
    reset_unit: ResetUnit = "seconds_left"
    exhausted_status: int = 429
    user: object = field(default_factory=lambda: dict(STAND_IN_RECORD))

    def __post_init__(self) -> None:
        ApiKey(self.api_key)
        check_choice("reset_unit", self.reset_unit, get_args(ResetUnit))
        if self.window_s <= 0 or min([self.limit, *self.limits.values()]) < 0:
            raise argument_error("window_s must be more than 0, and no allowance less than 0.")
        self.requests: Counter[str] = Counter()
        self._left: dict[tuple[bool, str, str], _Left] = {}
        self._lock = threading.Lock()  # each connection has its own thread
        super().__init__(self.port)
        add_stand_in(self.base_url)

    def __repr__(self) -> str:
        count = plural(self.requests.total(), "request")
        return f"Stand-in service · {self.base_url} · {count}"

    def assumptions(self) -> str:
        """Return a line: what it assumes where service.md says nothing."""
        names = [each.name for each in fields(self)]
        options = [name for name in names if name not in ("port", "api_key", "user")]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in options)
        made_up = f"the record, the form of errors and all operations except GET {ME_PATH}"
        return f"{values}; made up: {made_up}"

    def response_to(self, request: Request) -> Response:
        """Return the response to a request, and count it."""
        method = request.method
        path = path_below(request.uri)
        now = self._now()
        with self._lock:
            self.requests[f"{method} {path}"] += 1
            is_known = self._is_known(request)
            left = self._count(now, method, operation_of(path), is_known=is_known)
            headers = self._common_headers(left, now)
            if not is_known:
                headers = (*headers, ("WWW-Authenticate", 'Basic realm="stand-in"'))
                return _error(401, "The key is not known, or a password came with it.", headers)
            if left.remaining < 0:
                return _error(self.exhausted_status, "The allowance is used up.", headers)
            return self._routed(method, path, headers)

    def _now(self) -> float:
        return time.time()

    def _is_known(self, request: Request) -> bool:
        authorization = header(request.headers, "Authorization") or ""
        scheme, _, sent = authorization.partition(" ")
        expected = base64.b64encode(f"{self.api_key}:".encode())
        return scheme.lower() == "basic" and hmac.compare_digest(sent.strip().encode(), expected)

    def _count(self, now: float, method: str, operation: str, *, is_known: bool) -> _Left:
        """Count one request, and return what is left after it. HEAD counts as GET."""
        method = "GET" if method == "HEAD" else method
        key = (is_known, method, operation)
        left = self._left.get(key)
        if left is None or left.renews_at <= now:
            limit = self.limits.get(operation, self.limit)
            limit = self.limits.get(f"{method} {operation}", limit)
            left = _Left(limit, limit, now + self.window_s)
        left = left._replace(remaining=max(left.remaining, 0) - 1)
        self._left[key] = left
        return left

    def _common_headers(self, left: _Left, now: float) -> Headers:
        until_s = left.renews_at
        if self.reset_unit.endswith("_left"):
            until_s -= now
        factor = 1000 if self.reset_unit in ("milliseconds_left", "epoch_ms") else 1
        # Rounded up, so that a client that waits is not early. Rounded to thousandths before that,
        # so that an error of binary fractions does not count: 60.000000001 s -> 60, not 61.
        reset = math.ceil(round(until_s * factor, 3))
        return (
            (LIMIT_HEADER, str(left.limit)),
            (REMAINING_HEADER, str(max(left.remaining, 0))),
            (RESET_HEADER, str(reset)),
            ("Date", formatdate(now, usegmt=True)),
            ("Server", "directmail-lab-stand-in"),
        )

    def _routed(self, method: str, path: str, headers: Headers) -> Response:
        number = self.requests[f"POST {_LETTERS_PATH}"]
        letter = {"id": f"ltr_stand_in_{number}", "state": "accepted", "service": "stand-in"}
        values = {**_LISTS, ME_PATH: self.user, _LETTERS_PATH: letter}
        if path not in values:
            what = "no such list" if path.startswith("/v1/lists/") else "nothing at this path"
            return _error(404, f"There is {what}.", headers)
        status = 200
        methods = ["GET", "HEAD"]
        if path == _LETTERS_PATH:
            status = 201
            methods = ["POST"]
        if method not in methods:
            headers = (*headers, ("Allow", ", ".join(methods)))
            return _error(405, "This path does not allow that method.", headers)
        return json_response(status, values[path], headers)


stand_in = StandIn  # the name that users write: with dm.stand_in(limit=5) as service


def _error(status: int, message: str, headers: Headers) -> Response:
    """Return an error; its form is an assumption, so the body names the stand-in."""
    return error_response(status, message, headers, service="stand-in")
