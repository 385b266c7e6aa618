"""Tracebacks that show no key and no body, and in a notebook only the lines of the user's code.

pytest's ``--showlocals``, rich and IPython's ``%xmode Verbose`` print the locals of each frame.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar, cast

from .display import running_ipython, wrapped

_E = TypeVar("_E", bound=BaseException)
_P = ParamSpec("_P")
_R = TypeVar("_R")

_LONG_TEXT = re.compile(r"""(["'])([^"'\s]{12,})\1""")
# The start of a path or an address, without its query, and a segment there that may be a key.
_ADDRESS = re.compile(r"(?:https?:/)?/[^?#]*")
_TOKEN = re.compile(r"(?<=/)[^/]*@[^/]*|(?<=/)(?=[^/]*\d)(?=[^/]*[A-Za-z])[^/]{12,}")


def without_traceback(error: _E) -> _E:
    """Return an error without its traceback, whose locals may contain a key or a body.

    Raise it outside the ``except`` block that caught it; inside, Python chains the original error.
    """
    error.__cause__ = None
    error.__context__ = None
    return error.with_traceback(None)


def clear_locals(error: BaseException, handled: BaseException | None = None) -> None:
    """Clear the locals of the frames of an error, and of the errors that it is chained to.

    The frames stay, so that a bug can be found. A frame that is still running keeps its locals.

    Parameters
    ----------
    handled
        The error that the caller was handling when the call began. It is not changed.
    """
    waiting: list[BaseException | None] = [error]
    seen = {id(handled)}
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def is_deliberate(error: BaseException) -> bool:
    """Return whether an error was raised on purpose, or by a call with the wrong arguments.

    A deliberate error is shown in two lines.
    """
    shown = error.__traceback__
    return hasattr(error, "_render_traceback_") or (shown is not None and shown.tb_next is None)


def hide_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function so that its errors do not expose the key or the body in its locals.

    A deliberate error loses its frames. Any other error is a bug to be found, so it keeps its
    frames and loses only their locals. The function may be async.
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
    """Return an error of Python or another library, changed so that IPython shows it like ours."""
    error.__dict__["_render_traceback_"] = functools.partial(brief_traceback, error)
    return error


def brief_traceback(error: BaseException) -> list[str]:
    """Return what IPython shows of an error: the lines of the user's code, then the message.

    IPython calls it as an exception's ``_render_traceback_``. No ``%xmode`` then prints the values
    of variables; ``%debug`` still has all frames.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    message = wrapped(f"{type(error).__name__}: {error}")
    return [*_callers_lines(error), message, *notes]


class CallersWarning(UserWarning):
    """A warning of ours. IPython shows its text, without the line that it is about."""


_format_warning = warnings.formatwarning


def _format_ours(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
    if issubclass(category, CallersWarning):
        return wrapped(f"Warning: {message}") + "\n"
    return _format_warning(message, category, *place, **line)


def show_warnings_in_ipython() -> None:
    """Show our warnings in this way if this runs in IPython."""
    if running_ipython() is not None:
        warnings.formatwarning = _format_ours


def warn_caller(what: str, advice: str = "") -> None:
    """Warn about the line of the user's code, however many of our frames are below it."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        level += 1
        frame = frame.f_back
    warnings.warn(f"{what}\n{advice}".rstrip(), CallersWarning, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package or to httpx, and not to the user's code."""
    library = _library_of(frame)
    return library == __package__ or library.startswith("httpx")


def _library_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _masked(literal: re.Match[str]) -> str:
    """Return a string of the user's code, as it is shown: a long one may be the key.

    A path stays readable, except for its query and for a long segment with a digit.
    """
    quote, text = literal.groups()
    address = _ADDRESS.match(text)
    if address is None:
        return f"{quote}…{quote}"
    shown = _TOKEN.sub("…", address[0])
    if address[0] != text:
        shown += "…"
    return f"{quote}{shown}{quote}"


def _callers_lines(error: BaseException) -> Iterator[str]:
    shell = running_ipython()
    for frame, number in traceback.walk_tb(error.__traceback__):
        if _library_of(frame) in ("IPython", "ipykernel", "contextlib"):
            continue
        if _is_ours(frame):
            return
        place = traceback.FrameSummary(frame.f_code.co_filename, number, "")
        cell = shell and shell.compile.format_code_name(place.filename)
        name = " ".join(cell) if cell else place.filename
        line = _LONG_TEXT.sub(_masked, place.line or "")
        yield f"{name}, line {number}: {line}"
