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

Timeouts and connection errors stay httpx's own (see `directmail_lab.http`). Each message says what
happened, then what to do, and holds no key, query, header value or unredacted body.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Literal, ParamSpec, TypeVar, cast

_E = TypeVar("_E", bound=BaseException)
_P = ParamSpec("_P")
_R = TypeVar("_R")

_LONG_TEXT = re.compile(r"""(["'])[^"'\s]{12,}\1""")


def without_traceback(error: _E) -> _E:
    """Return an error without its traceback: its locals hold a key, or a body that repeats it.

    Raise it outside the ``except`` that caught it, so that it does not come back as its context.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def clear_locals(error: BaseException, handled: BaseException | None = None) -> None:
    """Clear the locals of an error's frames, and of the errors that it is chained to.

    The frames stay, so a bug can be found. A frame that is still running keeps its locals.

    Parameters
    ----------
    handled
        What the caller was handling when the call began. Its frames are the caller's own.
    """
    waiting: list[BaseException | None] = [error]
    seen = {id(None), id(handled)}
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            waiting += [each.__cause__, each.__context__]
            waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def is_deliberate(error: BaseException) -> bool:
    """Return whether an error is raised on purpose, or by a call with the wrong arguments.

    It is shown in two lines.
    """
    shown = error.__traceback__
    return hasattr(error, "_render_traceback_") or (shown is not None and shown.tb_next is None)


def hide_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Hide what a function's frames hold, a key or a body, from whoever sees its error.

    Pytest's ``--showlocals``, rich and IPython's ``%xmode Verbose`` print locals. A deliberate
    error loses its frames. Any other keeps them, without their locals: it is a bug to be found. The
    function may be async.
    """

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        handled = sys.exception()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs  # this frame is still running
            if not is_deliberate(error):
                clear_locals(error, handled)
                raise
            failure = error
        raise with_brief_traceback(without_traceback(failure))

    @functools.wraps(function)
    async def async_wrapper(*args: _P.args, **kwargs: _P.kwargs) -> Any:
        handled = sys.exception()
        try:
            return await cast("Any", function)(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            if not is_deliberate(error):
                clear_locals(error, handled)
                raise
            failure = error
        raise with_brief_traceback(without_traceback(failure))

    return cast("Any", async_wrapper) if inspect.iscoroutinefunction(function) else wrapper


def with_brief_traceback(error: _E) -> _E:
    """Return an error of another library or of Python, which IPython then shows as our own."""
    error.__dict__["_render_traceback_"] = functools.partial(brief_traceback, error)
    return error


def brief_traceback(error: BaseException) -> list[str]:
    """Return what IPython shows of an error: the caller's own lines, then the message.

    IPython calls it as an exception's ``_render_traceback_``. No ``%xmode`` then prints the values
    of variables; ``%debug`` has all frames.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    return [*_callers_lines(error), f"{type(error).__name__}: {error}", *notes]


def warn_caller(message: str) -> None:
    """Warn for the line of the caller's own code, however many of our frames are below it."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame is of this package or of httpx, and not the caller's to read."""
    library = str(frame.f_globals.get("__name__")).partition(".")[0]
    return library == __name__.partition(".")[0] or library.startswith("httpx")


def _callers_lines(error: BaseException) -> Iterator[str]:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    for frame, number in traceback.walk_tb(error.__traceback__):
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        if library in ("IPython", "ipykernel", "contextlib"):
            continue
        if _is_ours(frame):
            return
        place = traceback.FrameSummary(frame.f_code.co_filename, number, "")
        cell = shell and shell.compile.format_code_name(place.filename)
        # A text that is long enough may be the API key, as in `connect(address, "hk_…")`.
        line = _LONG_TEXT.sub(r"\1…\1", place.line or "")
        yield f"{' '.join(cell) if cell else place.filename}, line {number}: {line}"


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
