"""The errors that directmail_lab raises on purpose.

    DirectMailLabError
    ├── NotConnectedError        no session is open
    ├── CredentialError          no key was found, or it cannot be sent
    ├── AddressError             the address is invalid, or exposes the key
    ├── WriteRefusedError        a write to a live service was not allowed
    │   └── AlreadySentError     … because it was sent before
    ├── OutcomeUnknownError      a write was sent and no response came
    ├── AllowanceExhaustedError  the wait for the allowance is too long
    ├── NotJSONError             a body is not JSON
    ├── NotebookRunError         a notebook does not run without a key
    ├── MissingPackageError      a package is not installed
    ├── ServiceError             the service responded with an error status
    │   └── UnauthorizedError    … with 401 or 403
    └── CassetteError            a cassette was not found, opened or written
        ├── NotRecordedError     the cassette has no response to a request
        │   └── CassetteNotFoundError  … because there is no such cassette
        ├── CassetteFormatError  a file is not a cassette
        └── CassetteInUseError   another recording writes the cassette

Timeouts and connection errors stay httpx's own. Each message says what
happened, then what to do. It contains no key, query, header value or body.
Only a `ServiceError` quotes one line of the body, redacted: what the
service says to people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, NoReturn

from .display import printable
from .tracebacks import brief_traceback


class DirectMailLabError(Exception):
    """The base of every error that directmail_lab raises on purpose.

    Control characters in the texts are escaped: a message may quote a
    stranger's cassette, and a terminal would execute them.

    Parameters
    ----------
    what
        What happened, in a sentence.
    advice
        What to do about it.
    **attributes
        Values for programs. Each class documents its own.
    """

    def __init__(self, what: str = "", advice: str = "", **attributes: object) -> None:
        self.what = printable(what)
        self.advice = printable(advice)
        super().__init__(self.what)
        for name, value in attributes.items():
            setattr(self, name, printable(value) if isinstance(value, str) else value)

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.what, self.advice]))

    def _render_traceback_(self) -> list[str]:
        return brief_traceback(self)


class NotConnectedError(DirectMailLabError):
    """No session is open, and the environment does not say how to open one."""


class CredentialError(DirectMailLabError):
    """No key was found, or the key given cannot be sent with HTTP Basic."""


class AddressError(DirectMailLabError):
    """The address is not valid, or would expose the key."""


class WriteRefusedError(DirectMailLabError):
    """The session does not allow writes to the live service."""


class AlreadySentError(WriteRefusedError):
    """Another execution of a cell, or an earlier run, has sent this write.

    Attributes
    ----------
    status
        The status of its response; 0 if none came.
    sent_at
        When that was (an aware datetime), or None if the cassette does not say.
    cell
        The number of the cell that sent it, or None.
    cassette, number
        The name of the cassette of an earlier run, or an empty string; and the
        number of the write there, or in the session's recording.
    """

    status: int
    sent_at: datetime | None = None
    cell: int | None = None
    cassette: str = ""
    number: int = 0


class OutcomeUnknownError(DirectMailLabError):
    """A write was sent and no response came: it may have been carried out.

    Attributes
    ----------
    cut
        The kind of failure: see `directmail_lab.exchange.values.Cut`.
    number
        The number of the write in `interactions`; 0 if it has none.
    """

    cut: Any = None
    number: int = 0


class AllowanceExhaustedError(DirectMailLabError):
    """The allowance is used up, and renews later than in ``max_wait_s``.

    Attributes
    ----------
    until
        When the window renews, in seconds since the Unix epoch; None if that is
        not known.
    """

    until: float | None = None


class NotJSONError(DirectMailLabError):
    """The body of a response is not JSON.

    Attributes
    ----------
    status
        The HTTP status of the response; None if only a body was given.
    content_type
        Its content type, or None.
    """

    status: int | None = None
    content_type: str | None = None


class NotebookRunError(DirectMailLabError):
    """A notebook to share does not run without a key and a network."""


class MissingPackageError(DirectMailLabError, ImportError):
    """This call needs a package that is not installed."""

    def as_call(self, name: str) -> Callable[..., NoReturn]:
        """Return a function that raises this error: help() reads it only."""

        def call(*_: object, **__: object) -> NoReturn:
            raise MissingPackageError(self.what, self.advice)

        call.__name__ = name
        call.__doc__ = str(self)
        return call


@contextmanager
def naming_what_is_missing() -> Iterator[None]:
    """Import within this block: if a package is missing, the error says what to install."""
    try:
        yield
        return
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise
    raise MissingPackageError(
        f"This needs {package}, which is not installed here.",
        "To install all that directmail-lab uses: pip install directmail-lab.",
    )


class ServiceError(DirectMailLabError):
    """The service responded with an error status.

    Attributes
    ----------
    status
        The HTTP status.
    operation
        Method and path, with ``{id}`` in place of ids: ``GET /v1/lists/{id}``.
    said
        What the body says to people, redacted and shortened to one line, with
        the fields of up to five errors; empty if it has none of the usual
        members: ``error``, ``message``, ``detail``, ``title`` and the like.
    excerpt
        The start of the body, with the key removed.
    reading
        The response's `Reading` of its rate-limit headers, or None.
    """

    status: int
    operation: str
    said: str = ""
    excerpt: str = ""
    reading: Any = None


class UnauthorizedError(ServiceError):
    """The service responded with 401 or 403: it does not accept the key."""


class CassetteError(DirectMailLabError):
    """A cassette cannot be found, opened or written."""


class NotRecordedError(CassetteError):
    """The cassette has no response to a request.

    Attributes
    ----------
    details
        Lines that name the nearest recorded requests, and those that were not
        played.
    reason
        ``"nothing_left"`` (all were played), ``"no_match"`` or ``"no_body"``
        (the response was recorded without its body).
    request
        The request's method and path.
    nearest
        Up to three recorded requests: the method and path of each, and what
        differs. For the name of each difference, this is the value sent and the
        value recorded, both redacted.
    """

    details: str = ""
    reason: Literal["nothing_left", "no_match", "no_body"] = "no_match"
    request: str = ""
    nearest: Sequence[tuple[str, Mapping[str, tuple[object, object]]]] = ()

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.what, self.details, self.advice]))


class CassetteNotFoundError(NotRecordedError):
    """There is no such cassette, so no request has a response."""

    __str__ = DirectMailLabError.__str__


class CassetteFormatError(CassetteError):
    """A file cannot be read as a cassette.

    Attributes
    ----------
    is_cassette
        True if the file is a cassette that is damaged or too large; False if it
        is something else.
    """

    is_cassette: bool = True


class CassetteInUseError(CassetteError):
    """Another recording, here or in another process, writes the cassette."""
