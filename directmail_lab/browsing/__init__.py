"""The data behind the browser of interactions: rows, details and comparisons, as JSON and bytes.

The notebook's widget and JupyterLab's viewer share one page, `static/browser.js`. It sends
questions, and `answer` answers them. Nothing here depends on the widget or the viewer.
"""

from __future__ import annotations

from ..snippets import copy_as as copy_as
from .answers import (
    Answer as Answer,
    answer as answer,
    first_rows as first_rows,
    page as page,
    static_text as static_text,
)
from .recordings import (
    MOST_ROWS as MOST_ROWS,
    Recording as Recording,
    compare as compare,
    compare_recordings as compare_recordings,
    detail as detail,
    mark_of as mark_of,
    open_recording as open_recording,
    rows as rows,
)
