"""What the stand-in answers: a request in, a response out, no socket (`standin` has those)."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .contract import ME_PATH
from .interaction import RecordedRequest, RecordedResponse, header, operation_of, path_below
from .standin_windows import Allowances, limit_headers, retry_after_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .interaction import Headers
    from .standin_options import Encoding, Fault, StandInOptions
    from .standin_windows import Allowance

__all__ = ["StandInService"]

# The stand-in's own: service.md shows no operation but GET /v1/users/me.
_LISTS_PATH: Final = "/v1/lists"
_LETTERS_PATH: Final = "/v1/letters"
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    ME_PATH: ("GET", "HEAD"),
    _LISTS_PATH: ("GET", "HEAD"),
    f"{_LISTS_PATH}/{{id}}": ("GET", "HEAD"),
    _LETTERS_PATH: ("POST",),
}
_LISTS: Final = tuple(
    {"id": f"lst_stand_in_{n}", "name": name, "addresses": addresses, "service": "stand-in"}
    for n, (name, addresses) in enumerate([("Spring", 120), ("Café owners", 48), ("Empty", 0)], 1)
)
_GATEWAY_PAGE: Final = (
    "<!doctype html><html><head><title>{status} {reason}</title></head>"
    "<body><h1>{status} {reason}</h1><hr>stand-in gateway</body></html>"
)
_WINDOW_BITS: Final[Mapping[str, int]] = {"gzip": 31, "deflate": 15}


@dataclass(slots=True)
class _Held:
    """A fault, and how many requests it still applies to (None: all)."""

    fault: Fault
    left: int | None


class StandInService:
    """The service behind a stand-in's address. Any thread may call it."""

    def __init__(self, options: StandInOptions) -> None:
        self.options = options
        self._allowances = Allowances(options)
        self._faults = [_Held(fault, fault.times) for fault in options.faults]
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def requests(self) -> Counter[str]:
        """How often each ``"METHOD /path"`` was received, whatever came of it. A copy."""
        with self._lock:
            return Counter(self._requests)

    def add_fault(self, fault: Fault) -> None:
        """Misbehave so, before any fault that was added earlier."""
        with self._lock:
            self._faults.insert(0, _Held(fault, fault.times))

    def clear_faults(self, only: Fault | None = None) -> None:
        """Behave again: forget one fault, or all."""
        with self._lock:
            kept = [] if only is None else [each for each in self._faults if each.fault is not only]
            self._faults = kept

    def answer(self, request: RecordedRequest) -> tuple[RecordedResponse, Fault | None]:
        """Return the response, and the fault that applies to it, whose body and headers it has.

        Latency, cuts and drops are left to whoever holds the connection.
        """
        path = path_below(request.uri, self.options.prefix)
        with self._lock:
            self._requests[f"{request.method} {path}"] += 1
            fault = self._next_fault(path)
            response = self._sound_answer(request, path)
        return (_spoiled(response, fault, request) if fault else response), fault

    def malformed_headers(self) -> Headers:
        """Return the headers of the 400 that answers what is no HTTP request."""
        now = self.options.clock()
        with self._lock:
            allowance = self._allowances.take("", "", "", now)
        return self._common_headers(allowance, now)

    def _next_fault(self, path: str) -> Fault | None:
        for held in self._faults:
            wanted = held.fault.path is None or path.startswith(held.fault.path)
            if wanted and held.left != 0:
                held.left = held.left and held.left - 1
                return held.fault
        return None

    def _sound_answer(self, request: RecordedRequest, path: str) -> RecordedResponse:
        now = self.options.clock()
        known = _is_authorized(request, self.options.api_key)
        operation = operation_of(path)
        allowance = self._allowances.take(
            "account" if known else "", request.method, operation, now
        )
        if not known:
            response = self._refusal()
        elif allowance.exceeded:
            response = self._exhausted(allowance, now)
        else:
            response = self._routed(request, path, operation)
        return replace(response, headers=response.headers + self._common_headers(allowance, now))

    def _common_headers(self, allowance: Allowance, now: float) -> Headers:
        return (
            *limit_headers(allowance, self.options.reset_unit, now),
            ("Date", formatdate(now, usegmt=True)),
            ("Server", "directmail-lab-stand-in"),
        )

    def _refusal(self) -> RecordedResponse:
        status = self.options.unauthorized_status
        response = _error(
            status, "This stand-in does not know that key, or a password came with it."
        )
        if status != HTTPStatus.UNAUTHORIZED:
            return response
        challenge = ("WWW-Authenticate", 'Basic realm="stand-in"')
        return replace(response, headers=(*response.headers, challenge))

    def _exhausted(self, allowance: Allowance, now: float) -> RecordedResponse:
        response = _error(self.options.exhausted_status, "The allowance is used up.")
        text = retry_after_text(allowance.renews_at, self.options.retry_after, now)
        return (
            replace(response, headers=(*response.headers, ("Retry-After", text)))
            if text
            else response
        )

    def _routed(self, request: RecordedRequest, path: str, operation: str) -> RecordedResponse:
        methods = _METHODS.get(operation)
        if methods is None:
            return _error(404, "There is nothing at this path.")
        if request.method not in methods:
            response = _error(405, "This path does not take that method.")
            return replace(response, headers=(*response.headers, ("Allow", ", ".join(methods))))
        if operation == _LETTERS_PATH:
            return self._letter()
        if operation == ME_PATH:
            return self._found(self.options.record)
        if operation == _LISTS_PATH:
            return self._found(list(_LISTS))
        found = next((each for each in _LISTS if path.endswith(f"/{each['id']}")), None)
        return self._found(found) if found else _error(404, "There is no such list.")

    def _letter(self) -> RecordedResponse:
        number = self._requests[f"POST {_LETTERS_PATH}"]
        letter = {"id": f"ltr_stand_in_{number}", "state": "accepted", "service": "stand-in"}
        return self._found(letter, status=201)

    def _found(self, value: object, status: int = 200) -> RecordedResponse:
        envelope = self.options.envelope
        return _json(status, {envelope: value, "service": "stand-in"} if envelope else value)


def _is_authorized(request: RecordedRequest, api_key: str) -> bool:
    """Return whether the request has the key as user name and an empty password (part 5)."""
    return hmac.compare_digest(_basic_credentials(request).encode(), f"{api_key}:".encode())


def _basic_credentials(request: RecordedRequest) -> str:
    scheme, _, token = (header(request.headers, "Authorization") or "").partition(" ")
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
    return text if scheme.lower() == "basic" else ""


def _json(status: int, value: object) -> RecordedResponse:
    body = json.dumps(value, ensure_ascii=False).encode()
    return _response(status, body, "application/json; charset=utf-8")


def _error(status: int, message: str) -> RecordedResponse:
    error = {"status": status, "message": message, "service": "stand-in"}
    return _json(status, {"error": error})


def _response(status: int, body: bytes, content_type: str) -> RecordedResponse:
    return RecordedResponse(status, _reason(status), (("Content-Type", content_type),), body)


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"


def _spoiled(
    response: RecordedResponse, fault: Fault, request: RecordedRequest
) -> RecordedResponse:
    """Return the response with the fault's status, body, headers and encoding."""
    response = _with_other_body(response, fault)
    if fault.redirect_to is not None:
        response = _with_headers(response, {"Location": fault.redirect_to})
    if fault.echo_key:
        response = _with_key_echoed(response, request)
    if fault.encoding is not None:
        response = _encoded(response, fault.encoding)
    return _with_headers(response, fault.headers)


def _with_other_body(response: RecordedResponse, fault: Fault) -> RecordedResponse:
    default = 502 if fault.html else 302 if fault.redirect_to is not None else response.status
    status = fault.status or default
    if fault.body is not None:
        body = fault.body.encode() if isinstance(fault.body, str) else fault.body
        return replace(response, status=status, reason=_reason(status), body=body)
    if fault.html:
        page = _GATEWAY_PAGE.format(status=status, reason=_reason(status))
        other = _response(status, page.encode(), "text/html; charset=utf-8")
    elif status != response.status:
        other = _error(status, "The stand-in was told to answer so.")
    else:
        return response
    return _with_headers(replace(other, headers=response.headers), dict(other.headers))


def _with_key_echoed(response: RecordedResponse, request: RecordedRequest) -> RecordedResponse:
    sent = header(request.headers, "Authorization") or ""
    key = _basic_credentials(request).removesuffix(":")
    echoed = _json(response.status, {"you_sent": {"key": key, "authorization": sent}})
    return replace(_with_headers(response, {"X-Echo": key}), body=echoed.body)


def _encoded(response: RecordedResponse, encoding: Encoding) -> RecordedResponse:
    packer = zlib.compressobj(wbits=_WINDOW_BITS[encoding])
    body = packer.compress(response.body) + packer.flush()
    return replace(_with_headers(response, {"Content-Encoding": encoding}), body=body)


def _with_headers(
    response: RecordedResponse, changes: Mapping[str, str | Sequence[str] | None]
) -> RecordedResponse:
    """Return the response with headers replaced, added, left out (None) or repeated (a list)."""
    changed = {name.lower() for name in changes}
    kept = [pair for pair in response.headers if pair[0].lower() not in changed]
    for name, value in changes.items():
        values = [value] if isinstance(value, str) else value or ()
        kept.extend((name, each) for each in values)
    return replace(response, headers=tuple(kept))
