"""How results are shown: plurals, tables, pictures, progress."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import sys
import textwrap
import threading
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd


_MOST_ROWS = 60
_MOST_WIDE_ROWS = 20
_MOST_FIELDS = 6
_LONG_WORD = 30
_PROGRESS_S = 0.2
_MISSING = ("None", "nan", "NaT", "<NA>")
_LEAST_TIME = 1_000_000_000  # as a number of seconds; it has no thousands

RUN_FOR_FORM = "Run this cell to get the sign-in form."
"""What a saved notebook has in place of the form. A page for readers leaves it out."""

# Surrogates, and characters that move a terminal's cursor or hide text, except line breaks.
_CONTROLS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def plural(number: int, noun: str) -> str:
    """Return ``"1 reading"``, ``"10,000 readings"`` or ``"2 addresses"``."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def duration_text(seconds: float) -> str:
    """Return ``"42 ms"``, ``"1.2 s"`` or ``"2 min 5 s"``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def size_text(size: int) -> str:
    """Return ``"257 bytes"``, ``"1.4 kB"`` or ``"5.1 MB"``."""
    if size < 1000:
        return plural(size, "byte")
    return f"{size / 1000:,.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:,.1f} MB"


def printable(text: str) -> str:
    """Return a text from outside that is safe to print, with escapes such as ``\\x1b``.

    Line breaks stay. Every message and every table at a terminal calls this function.
    """
    return _CONTROLS.sub(lambda control: ascii(control[0])[1:-1], text)


def printable_line(text: str) -> str:
    """Return such a text on one line: a path with a line break must not look like two messages."""
    return printable(text).replace("\n", "\\n")


# Code in a message, which is not broken: a call, a command, or a quoted name.
_CODE = re.compile(
    r"(?:\w+ = )?\b[\w.]+\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)"
    r"|(?:pip install|directmail-lab) [^\n]*?(?=[.:;,]?(?:\n|$)|[.:;,] )"
    r"|(?<!\w)(['\"])[^'\"\n]*\1"
)
_WIDTH = 80


def wrapped(text: str) -> str:
    """Return a message with lines of at most 80 columns; code to copy is not broken."""
    unbroken = _CODE.sub(lambda code: code[0].replace(" ", "\0"), text)
    lines = []
    for line in unbroken.splitlines():
        indent = line[: len(line) - len(line.lstrip(" "))]
        lines += textwrap.wrap(
            line,
            _WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines).replace("\0", " ")


def shell_word(text: str) -> str:
    """Return a text as one word of a command, quoted for the shell of this system."""
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline([text])
    return shlex.quote(text)


def utc_time(seconds: float) -> datetime:
    """Return a Unix time; Windows' own function knows only the years 1970 to 3000."""
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ``"1-3, 7"``."""
    seen = set(numbers)
    start = 0
    spans = []
    for number in sorted(seen):
        if number - 1 not in seen:
            start = number
        if number + 1 not in seen:
            spans.append(str(number) if number == start else f"{start}-{number}")
    return ", ".join(spans)


def running_ipython() -> Any:
    """Return IPython's shell if this runs in IPython, or None. It does not import IPython."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()


def running_kernel() -> Any:
    """Return the kernel that this runs in, as in JupyterLab, or None."""
    return getattr(running_ipython(), "kernel", None)


def say_in_notebook(text: str) -> bool:
    """Print a line in IPython, where a log is a red box; elsewhere, return False."""
    if running_ipython() is None:
        return False
    sys.stdout.write(f"{text}\n")
    return True


# -- tables ------------------------------------------------------------------------------------


def as_table(frame: pd.DataFrame, *, is_wide: bool = False) -> pd.DataFrame:
    """Return the same frame; a notebook shows it as `table_html` does.

    pandas shows what is made of it as usual.
    """
    most_rows = _MOST_WIDE_ROWS if is_wide else _MOST_ROWS
    vars(frame)["_repr_html_"] = partial(table_html, frame, most_rows, is_wide=is_wide)
    return frame


def as_records(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same frame of a body; one wide row is shown as two columns, field and value."""
    vars(frame)["_repr_html_"] = partial(_records_html, frame)
    vars(frame)["to_string"] = partial(_records_text, frame)
    return frame


def table_html(frame: pd.DataFrame, most_rows: int = _MOST_ROWS, *, is_wide: bool = False) -> str:
    """Return a frame as HTML, with whole cells and ``attrs["notes"]`` below.

    A column of a wide one that says the same in each row, or the same as the one before it, is
    named below instead.
    """
    notes = list(frame.attrs.get("notes", ()))
    shown = frame.reset_index() if frame.index.name else frame
    cells = {str(name): cell_texts(shown[name]) for name in shown}
    if is_wide and len(frame):
        notes += _without_repetition(cells)
    if len(frame) > most_rows:
        notes.append(f"The first {most_rows:,} of {len(frame):,} rows.")
    columns = [shown[name] for name in cells]
    rows = [_row("th", cells, columns)]
    lines = islice(zip(*cells.values(), strict=True), most_rows)
    rows += [_row("td", line, columns) for line in lines]
    below = f"<p>{html.escape(' '.join(notes))}</p>" if notes else ""
    # The classes keep MathJax from taking "$5 or $10" for a formula.
    return f'<table class="mathjax_ignore tex2jax_ignore">{"".join(rows)}</table>{below}'


def cell_texts(column: pd.Series[Any]) -> list[str]:
    """Return the cells of a column as texts: a time has a date where that changes."""
    if is_number(column):
        return [_number_text(value) for value in column]
    if column.dtype.kind != "M":
        return [cell_text(value) for value in column]
    texts = []
    day = None
    for at in column:
        text = "" if at != at else f"{at:%H:%M:%S}"  # NaT is not equal to itself
        if text and at.date() != day:
            day = at.date()
            text = f"{at.day} {at:%b %Y} {text}"
        texts.append(text)
    return texts


def cell_text(value: Any) -> str:
    """Return a value as text: JSON for an array or an object, nothing if it is missing."""
    if isinstance(value, dict | list | tuple):
        return printable_line(json.dumps(value, ensure_ascii=False, default=str))
    text = str(value)
    is_missing = text in _MISSING and not isinstance(value, str)
    return "" if is_missing else printable_line(text)


def _number_text(value: float) -> str:
    text = cell_text(value)
    return f"{round(value, 3):,}" if text and value < _LEAST_TIME else text


def picture_html(media_type: str, data: bytes, text: str, width: int | None = None) -> str:
    """Return a picture as HTML, with a text for readers who cannot see it."""
    source = f"data:{media_type};base64,{b64encode(data).decode('ascii')}"
    size = f' width="{width}"' if width else ""
    return f'<img alt="{html.escape(text)}" src="{source}"{size} style="max-width: 100%">'


def is_number(column: pd.Series[Any]) -> bool:
    """Return whether a column has numbers, which are aligned right."""
    return column.dtype.kind in "iuf"


def _row(kind: str, texts: Iterable[str], columns: Iterable[pd.Series[Any]]) -> str:
    cells = []
    for text, column in zip(texts, columns, strict=True):
        side = "right" if is_number(column) else "left"
        # A long word is broken: a table wider than the page would need a keyboard to scroll.
        longest = max(map(len, text.split()), default=0)
        breaks = "; overflow-wrap: anywhere" if longest > _LONG_WORD else ""
        cells.append(f'<{kind} style="text-align: {side}{breaks}">{html.escape(text)}</{kind}>')
    return f"<tr>{''.join(cells)}</tr>"


def _without_repetition(cells: dict[str, list[str]]) -> list[str]:
    """Remove the columns that say the same in each row, or repeat another; say which."""
    notes = []
    same = []
    kept = ""
    for name, texts in list(cells.items()):
        if len(set(texts)) == 1 and (len(texts) > 1 or not texts[0]):
            same.append(f"{name} {texts[0] or 'empty'}")
        elif texts == cells.get(kept):
            notes.append(f"The column {name} says the same as {kept}.")
        else:
            kept = name
            continue
        del cells[name]
    if same:
        notes.append(f"The same in each row: {', '.join(same)}.")
    return notes


def _is_record(frame: pd.DataFrame) -> bool:
    return len(frame) == 1 and frame.shape[1] > _MOST_FIELDS


def _fields(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(cell_text).T.reset_index().set_axis(["field", "value"], axis=1)


def _records_html(frame: pd.DataFrame) -> Any:
    import pandas as pd

    if _is_record(frame):
        return table_html(_fields(frame), most_rows=frame.shape[1])
    with pd.option_context("display.html.use_mathjax", False):
        return cast("Any", pd.DataFrame)._repr_html_(frame)


def _records_text(frame: pd.DataFrame, *args: Any, **options: Any) -> Any:
    import pandas as pd

    # DataFrame.__repr__ is the caller that gives all of its options.
    if "min_rows" not in options or not _is_record(frame):
        return pd.DataFrame.to_string(frame, *args, **options)
    fields = _fields(frame)
    width = max(map(len, fields["field"]))
    return "\n".join(f"{field:{width}}  {value}" for field, value in fields.to_numpy())


# -- progress ----------------------------------------------------------------------------------


class Progress(AbstractContextManager["Progress"]):
    """A line that says how far a call is: ``GET /v1/lists: 480 of 1,200 records, about 9 s left``.

    It appears after ``delay_s`` seconds. A terminal is left without it, and a notebook with how
    many there were. If the output is neither, such as a log, it is one line with the title.
    """

    def __init__(
        self, title: str, total: float | None = None, unit: str = "request", *, delay_s: float = 1.0
    ) -> None:
        self.done: float = 0
        self.total = total
        self.unit = unit
        self._title = title
        self._start = time.monotonic()
        self._next = self._start + delay_s
        self._output: Any = None
        self._is_shown = False
        self.update(0)

    def __str__(self) -> str:
        spent = time.monotonic() - self._start
        if self.unit == "s":
            return f"{self._title}: {max(0, (self.total or 0) - self.done):.0f} s left"
        count = plural(round(self.done), self.unit)
        if not self.total or self.done > self.total:
            return f"{self._title}: {count}, {duration_text(spent)}"
        text = f"{self._title}: {self.done:,.0f} of {plural(round(self.total), self.unit)}"
        if self.done:
            left = (self._at - self._start) * self.total / self.done - spent
            text += f", about {duration_text(max(1, round(left)))} left"
        return text

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the time in the line run while this block waits."""
        is_over = threading.Event()

        def run() -> None:
            while not is_over.wait(_PROGRESS_S):
                self.update(0)

        clock = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
        clock.start()
        try:
            yield
        finally:
            is_over.set()
            clock.join()

    def update(self, done: float = 1) -> None:
        """Advance by ``done``."""
        self.done += done
        now = time.monotonic()
        if done:
            self._at = now
        if now >= self._next:
            self._next = now + _PROGRESS_S
            self._show(str(self))

    def _show(self, text: str) -> None:
        if running_kernel() is not None:
            from IPython.display import display

            data = {"text/plain": text}
            if self._output is None:
                self._output = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._output.update(data, raw=True)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r{text}\x1b[K")
        elif not self._is_shown:  # a log gets one line, not one for each update
            sys.stderr.write(f"{self._title} …\n")
        self._is_shown = True

    def close(self) -> None:
        """Remove the line from a terminal; in a notebook, say how many there were."""
        if self._output is not None:
            count = plural(round(self.done), self.unit)
            self._show(f"{self._title}: {duration_text(self.done) if self.unit == 's' else count}.")
        elif self._is_shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")

    def __exit__(self, *_: object) -> None:
        self.close()
