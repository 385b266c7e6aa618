"""The stand-in service: a real HTTP server on loopback that follows service.md exactly.

What service.md leaves open is an option (`StandInOptions`). The responses say that they come from a
stand-in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import math
import zlib
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from inspect import signature
from typing import Any, Final, NamedTuple

from ..contract import LIMIT_HEADER, ME_PATH, REMAINING_HEADER, RESET_HEADER
from ..errors import check_options
from ..interaction import (
    Headers,
    RecordedRequest,
    RecordedResponse,
    header,
    operation_of,
    path_below,
)
from ..loopback import Exchange, LoopbackServer, with_headers
from .options import (
    STAND_IN_KEY as STAND_IN_KEY,
    STAND_IN_RECORD as STAND_IN_RECORD,
    Fault as Fault,
    StandInOptions as StandInOptions,
    WindowKind,
)

# The stand-in's own: service.md shows no operation but GET /v1/users/me.
_LETTERS_PATH: Final = "/v1/letters"
_ROWS: Final = [
    {"id": f"lst_stand_in_{n}", "name": name, "addresses": addresses, "service": "stand-in"}
    for n, (name, addresses) in enumerate([("Spring", 120), ("Café owners", 48), ("Empty", 0)], 1)
]
_LISTS: Final = {"/v1/lists": _ROWS, **{f"/v1/lists/{row['id']}": row for row in _ROWS}}
_GATEWAY_PAGE: Final = (
    "<!doctype html><html><head><title>{status} {reason}</title></head>"
    "<body><h1>{status} {reason}</h1><hr>stand-in gateway</body></html>"
)
_JSON: Final = "application/json; charset=utf-8"
_WINDOW_BITS: Final[Mapping[str, int]] = {"gzip": 31, "deflate": 15}


def stand_in(**behaviour: Any) -> StandIn:
    """Start a stand-in service on 127.0.0.1, in a thread of its own.

    Parameters
    ----------
    **behaviour
        The fields of `StandInOptions`, each with its default.

    Returns
    -------
    StandIn
        Started; a context manager that closes it.
    """
    check_options("stand_in", behaviour, signature(StandInOptions).parameters)
    return StandIn(StandInOptions(**behaviour))


# So that Jupyter's completion and `stand_in?` show the options by name.
stand_in.__signature__ = signature(StandInOptions)  # type: ignore[attr-defined]


class StandIn(LoopbackServer):
    """A stand-in service that is running.

    Attributes
    ----------
    options
        The options it was started with.
    """

    def __init__(self, options: StandInOptions) -> None:
        self.options = options
        self._windows: dict[tuple[bool, str, str], _Window] = {}
        self._faults = [_Active(fault) for fault in options.faults]
        self._requests: Counter[str] = Counter()
        super().__init__(options.port, options.prefix)

    @property
    def api_key(self) -> str:
        """The one key that it accepts."""
        return self.options.api_key

    @property
    def requests(self) -> Counter[str]:
        """How often each ``"METHOD /path"`` was received, whatever came of it. A copy."""
        return Counter(self._requests)

    def assumptions(self) -> list[str]:
        """Return a line for each part that service.md leaves open, with what is assumed."""
        return self.options.assumptions()

    def fault(self, **what: Any) -> AbstractContextManager[object]:
        """Misbehave from now on, as the fields of `Fault` say; as a context manager, until its end.

        Of several that apply, the one added last is used. `heal` ends all.
        """
        active = _Active(Fault(**what))
        self._faults = [active, *self._faults]
        until_exit = ExitStack()
        until_exit.callback(self._end, active)
        return until_exit

    def _end(self, ended: _Active) -> None:
        self._faults = [active for active in self._faults if active is not ended]

    def heal(self) -> None:
        """End every fault."""
        self._faults = []

    async def handle(self, exchange: Exchange) -> None:
        """Answer a request, or break the connection if a fault says so."""
        request = await exchange.received()
        path = _path_within(request.uri, self.options.prefix)
        self._requests[f"{request.method} {path}"] += 1
        fault = self._next_fault(path)
        response = self._respond(request, path)
        if fault is None:
            await exchange.answer(response)
            return
        await asyncio.sleep(fault.latency_s)
        if fault.drop is not None:
            exchange.drop(reset=fault.drop == "reset")
        else:
            response = _with_fault(response, fault, request)
            await exchange.answer(response, cut_after=fault.cut_after)

    def malformed(self, status: int) -> RecordedResponse:
        """Return the response to data that is not HTTP, with the three headers."""
        now = self.options.clock()
        quota = self._count(now, "", "", is_known=False)
        response = _error(status, "This is not an HTTP request that can be read.")
        return replace(response, headers=response.headers + self._common_headers(quota, now))

    def _next_fault(self, path: str) -> Fault | None:
        """Return the fault that applies to a request, and count that it did."""
        for active in self._faults:
            if path.startswith(active.fault.path or "") and active.used != active.fault.times:
                active.used += 1
                return active.fault
        return None

    def _respond(self, request: RecordedRequest, path: str) -> RecordedResponse:
        now = self.options.clock()
        expected = f"{self.options.api_key}:".encode()
        is_known = hmac.compare_digest(_basic_credentials(request).encode(), expected)
        operation = operation_of(path)
        quota = self._count(now, request.method, operation, is_known=is_known)
        if not is_known:
            status = self.options.unauthorized_status
            response = _error(status, "The key is not known, or a password came with it.")
            if status == HTTPStatus.UNAUTHORIZED:
                response = with_headers(response, {"WWW-Authenticate": 'Basic realm="stand-in"'})
        elif quota.exceeded:
            response = _error(self.options.exhausted_status, "The allowance is used up.")
            if self.options.retry_after:
                seconds = _reset_text(quota.renews_at, "seconds_left", now)
                response = with_headers(response, {"Retry-After": seconds})
        else:
            response = self._routed(request.method, path)
        return replace(response, headers=response.headers + self._common_headers(quota, now))

    def _count(self, now: float, method: str, operation: str, *, is_known: bool) -> _Quota:
        """Count one request, and return what is left after it. HEAD counts as GET."""
        counted_as = "GET" if method == "HEAD" else method
        key = (is_known, counted_as, operation)
        if key not in self._windows:
            limit = self.options.limit_of(counted_as, operation)
            self._windows[key] = _Window(self.options.window, self.options.window_s, limit)
        return self._windows[key].count(now)

    def _common_headers(self, quota: _Quota, now: float) -> Headers:
        return (
            (LIMIT_HEADER, str(quota.limit)),
            (REMAINING_HEADER, str(quota.remaining)),
            (RESET_HEADER, _reset_text(quota.renews_at, self.options.reset_unit, now)),
            ("Date", formatdate(now, usegmt=True)),
            ("Server", "directmail-lab-stand-in"),
        )

    def _routed(self, method: str, path: str) -> RecordedResponse:
        number = self._requests[f"POST {_LETTERS_PATH}"]
        letter = {"id": f"ltr_stand_in_{number}", "state": "accepted", "service": "stand-in"}
        values = {**_LISTS, ME_PATH: self.options.record, _LETTERS_PATH: letter}
        if path not in values:
            is_list = path.startswith("/v1/lists/")
            return _error(404, f"There is {'no such list' if is_list else 'nothing at this path'}.")
        methods = ("POST",) if path == _LETTERS_PATH else ("GET", "HEAD")
        if method not in methods:
            response = _error(405, "This path does not take that method.")
            return with_headers(response, {"Allow": ", ".join(methods)})
        value, envelope = values[path], self.options.envelope
        wrapped = {envelope: value, "service": "stand-in"} if envelope else value
        return _response(201 if path == _LETTERS_PATH else 200, wrapped)


def _path_within(uri: str, prefix: str) -> str:
    """Return the path below the base address; one outside is marked, to match no operation."""
    path = path_below(uri, prefix)
    outside = prefix and path == path_below(uri)
    return f"{path} (outside {prefix})" if outside else path


def _basic_credentials(request: RecordedRequest) -> str:
    """Return ``user:password`` of HTTP Basic, or ``""`` where there is none to read."""
    scheme, _, token = (header(request.headers, "Authorization") or "").partition(" ")
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if scheme.lower() == "basic" else ""


# -- what is left ------------------------------------------------------------------------------


class _Quota(NamedTuple):
    """What is left of an operation's allowance.

    ``renews_at`` is in seconds since the Unix epoch. ``exceeded`` says that this request was one
    too many.
    """

    limit: int
    remaining: int
    renews_at: float
    exceeded: bool


class _Window:
    """The requests that count now, each kept as the time at which it stops to count."""

    def __init__(self, kind: WindowKind, length_s: float, limit: int) -> None:
        self._kind, self._length_s, self._limit = kind, length_s, limit
        self._ends: deque[float] = deque()

    def count(self, now: float) -> _Quota:
        """Count one request, and return what is left after it; a refused one does not count."""
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        end = now + self._length_s
        if self._kind == "aligned":
            end = (math.floor(now / self._length_s) + 1) * self._length_s
        elif self._kind == "fixed" and self._ends:
            end = self._ends[0]
        exceeded = len(self._ends) >= self._limit
        if not exceeded:
            self._ends.append(end)
        renews_at = self._ends[0] if self._ends else end
        return _Quota(self._limit, self._limit - len(self._ends), renews_at, exceeded)


def _reset_text(renews_at: float, unit: str, now: float) -> str:
    """Return ``X-RateLimit-Reset``, rounded up, so that a client that waits is not early."""
    value = 0.0 if unit == "zero" else renews_at - (now if unit.endswith("_left") else 0)
    # Rounded to thousandths first: 60.000000001 s (an error of binary fractions) -> 60, not 61.
    return str(math.ceil(round(value * (1000 if "milli" in unit or unit == "epoch_ms" else 1), 3)))


# -- responses ---------------------------------------------------------------------------------


def _response(status: int, value: object) -> RecordedResponse:
    return RecordedResponse(status, _reason(status), (("Content-Type", _JSON),), _json(value))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _error(status: int, message: str) -> RecordedResponse:
    """Return an error; its form is an assumption, so the body names the stand-in."""
    error = {"status": status, "message": message, "service": "stand-in"}
    return _response(status, {"error": error})


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"


# -- faults ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Active:
    """A fault, and how many requests it has applied to."""

    fault: Fault
    used: int = 0


def _with_fault(
    response: RecordedResponse, fault: Fault, request: RecordedRequest
) -> RecordedResponse:
    """Return the response with the fault's status, body, headers and encoding."""
    default = 502 if fault.html else 302 if fault.redirect_to is not None else response.status
    status, body = fault.status or default, response.body
    headers: dict[str, str] = {}
    if fault.body is not None:
        body = fault.body.encode() if isinstance(fault.body, str) else fault.body
    elif fault.html:
        body = _GATEWAY_PAGE.format(status=status, reason=_reason(status)).encode()
        headers["Content-Type"] = "text/html; charset=utf-8"
    elif status != response.status:
        body = _error(status, "This status was set as a fault.").body
        headers["Content-Type"] = _JSON
    if fault.redirect_to is not None:
        headers["Location"] = fault.redirect_to
    if fault.echo_key:
        authorization = header(request.headers, "Authorization") or ""
        headers["X-Echo"] = key = _basic_credentials(request).removesuffix(":")
        body = _json({"you_sent": {"key": key, "authorization": authorization}})
    if fault.encoding is not None:
        headers["Content-Encoding"] = fault.encoding
        compressor = zlib.compressobj(wbits=_WINDOW_BITS[fault.encoding])
        body = compressor.compress(body) + compressor.flush()
    changed = RecordedResponse(status, _reason(status), response.headers, body)
    return with_headers(with_headers(changed, headers), fault.headers)
