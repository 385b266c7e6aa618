"""The errors that directmail_lab raises on purpose.

    DirectMailLabError
    ├── NotConnectedError        no session is open
    ├── CredentialError          no key, or one that HTTP Basic cannot carry
    ├── AddressError             no valid address, or one that would expose the key
    ├── WriteRefusedError        a write to a live service that was not allowed
    ├── OutcomeUnknownError      a write was sent and no response came
    ├── AllowanceExhaustedError  the allowance is used up, and the wait is too long
    ├── NotJSONError             a body that is not JSON
    ├── NotebookRunError         a notebook that is shared does not run without a key
    ├── ServiceError             the service answered with an error status
    │   └── UnauthorizedError    … with 401 or 403
    └── CassetteError            a cassette cannot be found, opened or written
        ├── NotRecordedError     a request that the cassette has no response to
        │   └── CassetteNotFoundError  … since there is no such cassette
        ├── CassetteFormatError  a file that is not a cassette
        └── CassetteInUseError   another recording writes the cassette

Timeouts and connection errors stay httpx's own (see `directmail_lab.clients.own`). Each message
says what happened, then what to do, and holds no key, query, header value or unredacted body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .tracebacks import brief_traceback


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


class DirectMailLabError(Exception):
    """The base of every error that directmail_lab raises on purpose.

    Neither text has control characters: a stranger's cassette may name a path that a terminal would
    take for a command.

    Parameters
    ----------
    what
        What happened, in a sentence.
    advice
        What to do about it.
    **attributes
        What a program may need besides: each class names its own.
    """

    def __init__(self, what: str = "", advice: str = "", **attributes: object) -> None:
        self.what, self.advice = _printable(what), _printable(advice)
        super().__init__(self.what)
        vars(self).update(attributes)

    def __str__(self) -> str:
        return " ".join(filter(None, [self.what, self.advice]))

    def _render_traceback_(self) -> list[str]:
        return brief_traceback(self)


class NotConnectedError(DirectMailLabError):
    """No session is open, and the environment does not say how to open one."""


class CredentialError(DirectMailLabError):
    """No API key was found, or the key given cannot be sent with HTTP Basic."""


class AddressError(DirectMailLabError):
    """No valid address, or one that would expose the key."""


class WriteRefusedError(DirectMailLabError):
    """A write to a live service on a session that does not allow writes."""


class OutcomeUnknownError(DirectMailLabError):
    """A write was sent and no response came: it may have been carried out."""


class AllowanceExhaustedError(DirectMailLabError):
    """The allowance is used up, and its renewal is further away than ``max_wait_s``.

    Attributes
    ----------
    until
        When the window renews, in seconds since the Unix epoch; None where that is not known.
    """

    until: float | None = None


class NotJSONError(DirectMailLabError):
    """A response whose body is not JSON.

    Attributes
    ----------
    status
        The HTTP status of the response; None where the body did not come with one.
    content_type
        Its content type, or None.
    """

    status: int | None = None
    content_type: str | None = None


class NotebookRunError(DirectMailLabError):
    """A notebook that is to be shared does not run without a key and a network."""


class ServiceError(DirectMailLabError):
    """The service answered with an error status.

    Attributes
    ----------
    status
        The HTTP status.
    operation
        Method and path, id-like segments as ``{id}``: ``GET /v1/users/me``.
    excerpt
        The start of the body, with the key removed.
    reading
        The response's `Reading` of its rate-limit headers, or None.
    """

    status: int
    operation: str
    excerpt: str = ""
    reading: Any = None


class UnauthorizedError(ServiceError):
    """The service answered 401 or 403: the key is missing, wrong or not allowed to do this."""


class CassetteError(DirectMailLabError):
    """A cassette cannot be found, opened or written."""


class NotRecordedError(CassetteError):
    """A request was replayed that the cassette has no response to.

    Attributes
    ----------
    details
        Lines that name the nearest recorded requests, and those that were not played.
    reason
        ``"nothing_left"`` (all were played), ``"no_match"`` or ``"no_body"`` (the response was
        recorded without its body).
    similarity
        Of the request's path to that of the nearest one in the cassette, from 0 to 1.
    request
        Its method and path.
    nearest
        Method and path of up to three recorded requests, each with what differs by its name: the
        value as it was sent and as it was recorded, both redacted.
    """

    details: str = ""
    reason: Literal["nothing_left", "no_match", "no_body"] = "no_match"
    similarity: float = 1.0
    request: str = ""
    nearest: Sequence[tuple[str, Mapping[str, tuple[object, object]]]] = ()

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.what, self.details, self.advice]))


class CassetteNotFoundError(NotRecordedError):
    """There is no such cassette, so it has a response to no request."""

    __str__ = DirectMailLabError.__str__


class CassetteFormatError(CassetteError):
    """A file that cannot be read as a cassette.

    Attributes
    ----------
    is_cassette
        False where the file is something else, not a damaged or too large cassette.
    """

    is_cassette: bool = True


class CassetteInUseError(CassetteError):
    """Another recording, of this or another process, is writing the same cassette."""
