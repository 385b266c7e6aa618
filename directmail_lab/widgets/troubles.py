"""What went wrong with a sign-in, in plain words: what it was, what to try, and where."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Literal

from directmail_lab.errors import (
    CassetteError,
    CredentialError,
    DirectMailLabError,
    InsecureAddressError,
    NotConnectedError,
    NotJSONError,
    ServiceError,
    UnauthorizedError,
)
from directmail_lab.http import httpx

__all__ = ["Trouble", "explain"]

Field = Literal["", "address", "key", "cassette"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happened, what to try, and the form's field that it belongs to, if any."""

    text: str
    hint: str = ""
    field: Field = ""

    def __str__(self) -> str:
        return f"{self.text} {self.hint}".rstrip()


def explain(error: BaseException) -> Trouble:
    """Put an error in words. Nothing of what was typed is in them, nor of an answer's body."""
    if isinstance(error, ServiceError):
        return _of_service(error)
    if isinstance(error, httpx.TransportError):
        return _of_transport(error)
    if isinstance(error, NotJSONError):
        kind = error.content_type or "no content type"
        return Trouble(
            f"The answer is not JSON (status {error.status}, {kind}).",
            "A web page or a network's own sign-in page may stand at this address: check it.",
            "address",
        )
    if isinstance(error, KeyboardInterrupt):
        return Trouble("Interrupted. Nobody is signed in.")
    if isinstance(error, DirectMailLabError):
        return Trouble(str(error), field=_field_of(error))
    return Trouble(
        f"Signing in failed in an unexpected way ({type(error).__name__}).",
        "connect(…) in a cell shows where.",
    )


def _field_of(error: DirectMailLabError) -> Field:
    if isinstance(error, CredentialError):
        return "key"
    if isinstance(error, CassetteError):
        return "cassette"
    return "address" if isinstance(error, InsecureAddressError | NotConnectedError) else ""


def _of_service(error: ServiceError) -> Trouble:
    status = error.status
    if isinstance(error, UnauthorizedError):
        return Trouble(
            f"The service did not accept this key (status {status}).",
            "Copy the key again, whole, and check the address: a key belongs to one region.",
            "key",
        )
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return Trouble("The allowance is used up.", "Wait a minute and sign in again.")
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return Trouble(
            f"The service, or a gateway before it, is in trouble (status {status}).",
            "Your key may be right. Try again in a minute.",
        )
    return Trouble(
        f"{error.operation} answered with status {status}.",
        "Check the address: the service may be elsewhere, or below a path.",
        "address",
    )


def _of_transport(error: httpx.TransportError) -> Trouble:
    if isinstance(error, httpx.TimeoutException):
        return Trouble(
            "The service did not answer in time.",
            "Check the address and the network, then try again.",
            "address",
        )
    if _is_about_certificate(error):
        return Trouble(
            "The certificate at this address is not trusted, so the key was not sent.",
            "Check the address. Behind a company's proxy, SSL_CERT_FILE may have to name its "
            "certificate.",
            "address",
        )
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol | httpx.ProxyError):
        return Trouble(
            "Nothing answers at this address.",
            "Check its spelling and the network. With no network, replay a cassette.",
            "address",
        )
    return Trouble(
        f"The connection broke before the answer was complete ({type(error).__name__}).",
        "Try again.",
    )


def _is_about_certificate(error: BaseException) -> bool:
    # The transport raises without a cause (its frames hold the key), so the text is what is left.
    return isinstance(error.__cause__, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(error)
