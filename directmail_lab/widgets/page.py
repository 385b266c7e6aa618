"""The data behind the browser of interactions: rows, details and comparisons, as JSON and bytes.

The notebook's widget and JupyterLab's viewer share one page, `static/browser.js`. It sends
requests, and `handle_request` responds. Nothing here depends on the widget or the viewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..display import as_html, as_text, plural
from ..errors import CassetteError
from ..interaction import Interaction
from ..questions.interactions import FORMATS, copy_as
from ..redaction import Redactor
from ..settings import trusted_origins
from .recordings import (
    MAX_ROWS as MAX_ROWS,
    Recording as Recording,
    compare,
    compare_recordings as compare_recordings,
    detail as detail,
    format_time,
    mark_of as mark_of,
    open_recording as open_recording,
    rows as rows,
)

Others = Mapping[str, Callable[[], Recording]]
"""Recordings to compare with, by name: calling the value opens the recording."""

Response = tuple[dict[str, Any], list[bytes]]

_STATIC: Final = Path(__file__).with_name("static")
_TABLE_ROWS: Final = 10
_TABLE_CHARACTERS: Final = 100


def handle_request(recording: Recording, request: object, others: Others) -> Response:
    """Return JSON and, for details, the two bodies. It raises nothing, whatever the request.

    Parameters
    ----------
    request
        ``{"action": "list", "offset": 0, "limit": 1000}``, ``{"action": "detail", "index": 0}``,
        ``{"action": "copy", "index": 0, "format": "curl"}``, ``{"action": "compare", "first": 0,
        "second": 1}``, ``{"action": "recordings"}`` or ``{"action": "compare_recordings", "name":
        "tour"}``.
    others
        The recordings that ``"compare_recordings"`` may name.

    Returns
    -------
    dict, list of bytes
        ``{"problem": …}`` if the request cannot be handled: a sentence that says why.
    """

    def redacted(index: int) -> Interaction:
        return Redactor().interaction(recording.interaction(index))

    try:
        match request:
            case {"action": "list", "offset": int(offset), "limit": int(limit)}:
                part = {"offset": offset, "rows": rows(recording, offset, limit)}
                about = {"title": recording.title, "base_url": recording.base_url}
                return {**about, **part, "total": len(recording), "note": recording.problem}, []
            case {"action": "detail", "index": int(index)}:
                return detail(recording, index)
            case {"action": "copy", "index": int(index), "format": str(kind)} if kind in FORMATS:
                snippet = copy_as(
                    redacted(index),
                    kind,
                    base_url=recording.base_url,
                    trusted_origins=trusted_origins(),
                )
                return {"text": snippet}, []
            case {"action": "compare", "first": int(first), "second": int(second)}:
                return {"differences": compare(redacted(first), redacted(second))}, []
            case {"action": "recordings"}:
                return {"names": list(others)}, []
            case {"action": "compare_recordings", "name": str(name)} if name in others:
                return compare_recordings(recording, others[name]()), []
    except CassetteError as error:
        return {"problem": str(error)}, []
    except (ValueError, RecursionError):
        return {"problem": "This interaction cannot be shown."}, []
    return {"problem": "The page's request is not known. Reload the page."}, []


def static_text(*names: str) -> str:
    """Return files of the page, joined to one text."""
    return "\n".join((_STATIC / name).read_text("utf-8") for name in names)


def read_page() -> tuple[str, str]:
    """Return the page's script, an ES module that exports ``createBrowser``, and its style."""
    return static_text("dom.js", "page.js"), static_text("palette.css", "page.css")


def static_table(recording: Recording) -> tuple[str, str]:
    """Return the first ten rows as an HTML table and as text, for a notebook without a kernel.

    Every value is escaped. A note below says how many rows there are.
    """
    import pandas as pd

    names = ["time", "method", "path", "status", "remaining", "ms", "bytes", "mark"]
    shown = rows(recording, 0, _TABLE_ROWS)
    frame = pd.DataFrame(shown, pd.RangeIndex(1, len(shown) + 1), names).convert_dtypes()
    frame["time"] = [format_time(time and time / 1000) for time, *_ in shown]
    count = len(recording)
    more = f": the first {_TABLE_ROWS}" if count > _TABLE_ROWS else ""
    frame.attrs["notes"] = [_printable(f"{recording.title}, {plural(count, 'interaction')}{more}.")]
    return as_html(frame), as_text(frame, width=_TABLE_CHARACTERS)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
