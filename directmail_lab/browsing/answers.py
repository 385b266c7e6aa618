"""The browser's page, the answers to its questions, and a table for notebooks without a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import CassetteError
from ..redaction import Redactor
from ..snippets import copy_as
from .recordings import Recording, compare, compare_recordings, detail, rows

if TYPE_CHECKING:
    import pandas as pd


Others = Mapping[str, Callable[[], Recording]]
"""Recordings to compare with, by name: calling the value opens the recording."""

Answer = tuple[dict[str, Any], list[bytes]]


def answer(recording: Recording, question: object, others: Others) -> Answer:
    """Return JSON and, for details, the two bodies. It raises nothing, whatever the question.

    Parameters
    ----------
    question
        ``{"ask": "list", "offset": 0, "limit": 1000}``, ``{"ask": "detail", "index": 0}``,
        ``{"ask": "copy", "index": 0, "as": "curl"}``, ``{"ask": "compare", "a": 0, "b": 1}``,
        ``{"ask": "others"}`` or ``{"ask": "compare_with", "name": "tour"}``.
    others
        The recordings that ``"compare_with"`` may name.

    Returns
    -------
    dict, list of bytes
        ``{"problem": …}`` if there is no answer: a sentence that says why.
    """
    try:
        ask = question["ask"] if isinstance(question, dict) else None
        return _ANSWERS[ask](recording, question, others)
    except CassetteError as error:
        return {"problem": str(error)}, []
    except (KeyError, TypeError, ValueError, RecursionError):
        return {"problem": "This cannot be shown: the page asked in an unknown way."}, []


def _list(recording: Recording, question: Any, _: Others) -> Answer:
    offset, limit = int(question["offset"]), int(question["limit"])
    listed = rows(recording, offset, limit)
    about = {"title": recording.title, "base_url": recording.base_url, "offset": offset}
    return {**about, "note": recording.problem, "total": len(recording), "rows": listed}, []


def _copy(recording: Recording, question: Any, _: Others) -> Answer:
    copied = Redactor().interaction(recording.interaction(int(question["index"])))
    return {"text": copy_as(copied, question["as"], base_url=recording.base_url)}, []


def _compare(recording: Recording, question: Any, _: Others) -> Answer:
    redactor = Redactor()
    pair = (redactor.interaction(recording.interaction(int(question[side]))) for side in "ab")
    return {"differences": compare(*pair)}, []


def _compare_with(recording: Recording, question: Any, others: Others) -> Answer:
    return compare_recordings(recording, others[question["name"]]()), []


_ANSWERS: Final[Mapping[Any, Callable[[Recording, Any, Others], Answer]]] = {
    "list": _list,
    "detail": lambda recording, question, _: detail(recording, int(question["index"])),
    "copy": _copy,
    "compare": _compare,
    "others": lambda _, __, others: ({"names": list(others)}, []),
    "compare_with": _compare_with,
}


# -- the page ------------------------------------------------------------------------------------

_STATIC: Final = Path(__file__).with_name("static")
_TABLE_ROWS: Final = 10


def static_text(*names: str) -> str:
    """Return files of the page, joined to one text."""
    return "\n".join((_STATIC / name).read_text("utf-8") for name in names)


def page() -> tuple[str, str]:
    """Return the page's script, an ES module that exports ``createBrowser``, and its style."""
    return static_text("dom.js", "browser.js"), static_text("palette.css", "browser.css")


def first_rows(recording: Recording) -> pd.DataFrame:
    """Return the first ten rows as a table; a note below it says how many rows there are.

    The index counts from 1. Columns: ``time`` (datetime64, UTC), ``method``, ``path`` (string),
    ``status``, ``remaining`` (Int64), ``ms`` (Float64), ``bytes`` (Int64), and ``mark`` (string) if
    any row has one.
    """
    import pandas as pd

    from ..display import plural, readable

    listed = rows(recording, 0, _TABLE_ROWS)
    index = pd.RangeIndex(1, len(listed) + 1)
    frame = pd.DataFrame(listed, index=index, columns=[*_DTYPES], dtype=object)
    frame["time"] = pd.to_datetime(frame["time"], unit="ms", utc=True)
    frame = frame.astype({name: dtype for name, dtype in _DTYPES.items() if dtype})
    if not any(frame["mark"]):
        del frame["mark"]
    more = f": the first {len(listed)}" if len(recording) > len(listed) else ""
    frame.attrs["notes"] = [f"{recording.title}, {plural(len(recording), 'interaction')}{more}."]
    return readable(frame)


_DTYPES: Final = {
    "time": "",
    **dict.fromkeys(("method", "path"), "string"),
    **dict.fromkeys(("status", "remaining"), "Int64"),
    "ms": "Float64",
    "bytes": "Int64",
    "mark": "string",
}
