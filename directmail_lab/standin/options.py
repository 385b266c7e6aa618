"""How the stand-in service behaves: what service.md leaves open, and the faults it can have."""

from __future__ import annotations

import json
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from ..contract import TYPICAL_LIMIT, TYPICAL_WINDOW_S
from ..credentials import ApiKey
from ..errors import argument_error, check_choice

ResetUnit = Literal["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms", "zero"]
WindowKind = Literal["fixed", "aligned", "sliding"]

# Public test data: it opens nothing but a stand-in on this machine.
STAND_IN_KEY: Final = "DEMO_7Qm2Xr9LwT4bZk"

STAND_IN_RECORD: Final[Mapping[str, object]] = {
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

_LISTS_LIMIT: Final = 60
_ASSUMPTIONS: Final[Mapping[str, str]] = {
    "reset_unit": "what X-RateLimit-Reset holds",
    "window_s": "seconds in a window",
    "window": "when windows start",
    "limit": "requests allowed in a window, for each operation",
    "limits": "other allowances",
    "exhausted_status": "the status when nothing is left",
    "retry_after": "whether Retry-After comes with it",
    "unauthorized_status": "the status without the key, with another, or with a password",
    "record": "the current user's record",
    "envelope": "the member that wraps a body",
    "prefix": "the path before /v1 in the base address",
}
_MORE_ASSUMPTIONS: Final = (
    'errors: {"error": {"status", "message"}} as JSON',
    "operations of its own: GET /v1/lists, GET /v1/lists/{id}, POST /v1/letters",
    "versions: /v1 alone; any other answers 404",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to misbehave, for the requests it applies to.

    Attributes
    ----------
    path
        Only requests whose path below the base address starts with this; None for all.
    times
        Only this many requests; None for all until the fault is ended.
    latency_s
        Seconds to wait before anything is sent.
    drop
        Send no answer: ``"reset"`` the connection (TCP RST) or ``"close"`` it.
    cut_after
        Close the connection after this many bytes of the body; Content-Length says the full length.
    status
        The response's status; its body fits that.
    html
        Answer with a gateway's HTML page; the status is 502 unless ``status`` says another.
    body
        Send exactly this body.
    headers
        Headers to add or replace; None leaves one out, a list sends one for each of its texts.
    encoding
        Compress the body.
    redirect_to
        Answer with a redirect (302 unless ``status`` says another) to this address.
    echo_key
        Repeat the key that the request carried in the body and in a header.
    """

    path: str | None = None
    times: int | None = None
    latency_s: float = 0.0
    drop: Literal["reset", "close"] | None = None
    cut_after: int | None = None
    status: int | None = None
    html: bool = False
    body: bytes | str | None = None
    headers: Mapping[str, str | Sequence[str] | None] = field(default_factory=dict)
    encoding: Literal["gzip", "deflate"] | None = None
    redirect_to: str | None = None
    echo_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInOptions:
    """Where the stand-in listens, and what it assumes where service.md says "not shown".

    Attributes
    ----------
    port
        The port on 127.0.0.1; 0 takes a free one.
    api_key
        The one key it accepts.
    prefix
        A path before ``/v1``, as a regional base address may have one.
    limit
        Requests allowed in a window, for each operation that ``limits`` does not name.
    limits
        Other allowances by operation: ``"/v1/lists"`` for each method, or ``"GET /v1/lists"``.
    window_s
        Seconds in a window.
    window
        ``"fixed"`` (from its first request), ``"aligned"`` (by the clock) or ``"sliding"``.
    reset_unit
        What ``X-RateLimit-Reset`` holds.
    exhausted_status, retry_after
        The status when nothing is left, and whether ``Retry-After`` comes with it, in seconds.
    unauthorized_status
        The status of a request without the key, with another, or with a password.
    record
        The current user's record, any JSON value.
    envelope
        A member to wrap each successful body in, such as ``"data"``; None for the bare body.
    faults
        Ways to misbehave from the start.
    clock
        What tells the time, in seconds since the Unix epoch.
    """

    port: int = 0
    api_key: str = field(default=STAND_IN_KEY, repr=False)
    prefix: str = ""
    limit: int = TYPICAL_LIMIT
    limits: Mapping[str, int] = field(
        default_factory=lambda: {"/v1/lists": _LISTS_LIMIT, "/v1/lists/{id}": _LISTS_LIMIT}
    )
    window_s: float = TYPICAL_WINDOW_S
    window: WindowKind = "fixed"
    reset_unit: ResetUnit = "seconds_left"
    exhausted_status: int = 429
    retry_after: bool = False
    unauthorized_status: int = 401
    record: object = field(default_factory=lambda: dict(STAND_IN_RECORD), repr=False)
    envelope: str | None = None
    faults: Sequence[Fault] = ()
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what could not be served.

        Raises
        ------
        CredentialError
            HTTP Basic cannot carry the key.
        ValueError
            Another option is out of its range.
        """
        ApiKey(self.api_key)
        json.dumps(self.record)
        for name, choices in (("reset_unit", ResetUnit), ("window", WindowKind)):
            check_choice(name, getattr(self, name), get_args(choices))
        if not 0 <= self.port < 2**16:
            raise argument_error("port is a number from 0 to 65535; 0 takes a free one.")
        if self.window_s <= 0:
            raise argument_error("window_s must be more than 0 seconds.")
        if min((self.limit, *self.limits.values())) < 0:
            raise argument_error("An allowance is 0 or more requests.")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise argument_error('prefix starts with a slash and ends without one, as "/eu".')

    def limit_of(self, method: str, operation: str) -> int:
        """Return the requests that one operation is allowed in a window."""
        whole = self.limits.get(operation, self.limit)
        return self.limits.get(f"{method} {operation}", whole)

    def assumptions(self) -> list[str]:
        """Return a line for each part that service.md leaves open, with what is assumed."""
        values = [
            f"{text}: {reprlib.repr(getattr(self, name))} ({name})"
            for name, text in _ASSUMPTIONS.items()
        ]
        return [*values, *_MORE_ASSUMPTIONS]
