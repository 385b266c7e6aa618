"""Faults on demand: what a client must bear, made to happen."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from directmail_lab.interaction import header

from .answers import (
    answer,
    basic_credentials,
    error_answer,
    json_answer,
    reason_of,
    with_headers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from directmail_lab.interaction import RecordedRequest, RecordedResponse

__all__ = ["Fault", "Faults", "spoiled"]

_GATEWAY_PAGE: Final = (
    "<!doctype html><html><head><title>{status} {reason}</title></head>"
    "<body><h1>{status} {reason}</h1><hr>stand-in gateway</body></html>"
)
_WINDOW_BITS: Final[Mapping[str, int]] = {"gzip": 31, "deflate": 15}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to misbehave, for the requests it applies to.

    Attributes
    ----------
    path
        Only requests whose path below the base address starts with this; None for all.
    times
        Only this many requests, then it is over; None until it is cleared.
    latency_s
        Seconds to wait before anything is sent.
    drop
        Send no answer: ``"reset"`` the connection (TCP RST) or ``"close"`` it.
    cut_after
        Close the connection after this many bytes of the body, whose length was announced whole.
    status
        Answer with this status, and a body to suit it.
    html
        Answer with a gateway's HTML page; the status is 502 unless ``status`` says another.
    body
        Send exactly this body.
    headers
        Headers to add or replace; None leaves one out, a list of texts sends it repeatedly.
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


@dataclass(slots=True)
class _Held:
    """A fault, and how many requests it still applies to (None: all)."""

    fault: Fault
    left: int | None


class Faults:
    """The faults in force. Not for several threads at once: its owner holds the lock."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._held = [_Held(fault, fault.times) for fault in faults]

    def add(self, fault: Fault) -> None:
        """Let this fault go before those that were added earlier."""
        self._held.insert(0, _Held(fault, fault.times))

    def remove(self, fault: Fault) -> None:
        """Forget one fault, if it is still held."""
        self._held = [held for held in self._held if held.fault is not fault]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()

    def next_for(self, path: str) -> Fault | None:
        """Return the fault that applies to a request, and count that it did."""
        for held in self._held:
            wanted = held.fault.path is None or path.startswith(held.fault.path)
            if wanted and held.left != 0:
                held.left = held.left and held.left - 1
                return held.fault
        return None


def spoiled(response: RecordedResponse, fault: Fault, request: RecordedRequest) -> RecordedResponse:
    """Return the response with the fault's status, body, headers and encoding.

    Latency, cuts and drops are left to whoever holds the connection.
    """
    response = _with_other_body(response, fault)
    if fault.redirect_to is not None:
        response = with_headers(response, {"Location": fault.redirect_to})
    if fault.echo_key:
        response = _with_key_echoed(response, request)
    if fault.encoding is not None:
        response = _encoded(response, fault.encoding)
    return with_headers(response, fault.headers)


def _with_other_body(response: RecordedResponse, fault: Fault) -> RecordedResponse:
    default = 502 if fault.html else 302 if fault.redirect_to is not None else response.status
    status = fault.status or default
    if fault.body is not None:
        body = fault.body.encode() if isinstance(fault.body, str) else fault.body
        return replace(response, status=status, reason=reason_of(status), body=body)
    if fault.html:
        page = _GATEWAY_PAGE.format(status=status, reason=reason_of(status))
        other = answer(status, page.encode(), "text/html; charset=utf-8")
    elif status != response.status:
        other = error_answer(status, "The stand-in was told to answer so.")
    else:
        return response
    return with_headers(replace(other, headers=response.headers), dict(other.headers))


def _with_key_echoed(response: RecordedResponse, request: RecordedRequest) -> RecordedResponse:
    sent = header(request.headers, "Authorization") or ""
    key = basic_credentials(request).removesuffix(":")
    echoed = json_answer(response.status, {"you_sent": {"key": key, "authorization": sent}})
    return replace(with_headers(response, {"X-Echo": key}), body=echoed.body)


def _encoded(response: RecordedResponse, encoding: str) -> RecordedResponse:
    packer = zlib.compressobj(wbits=_WINDOW_BITS[encoding])
    body = packer.compress(response.body) + packer.flush()
    return replace(with_headers(response, {"Content-Encoding": encoding}), body=body)
