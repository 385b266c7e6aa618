"""What a traceback shows: never a key or a body, and in a notebook only the caller's own lines.

Pytest's ``--showlocals``, rich and IPython's ``%xmode Verbose`` print the locals of each frame.
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
