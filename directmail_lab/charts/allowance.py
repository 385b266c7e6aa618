"""The chart of allowances: what each operation may do in a window, and what is left of it."""

from __future__ import annotations

from typing import Final

import pandas as pd

from .figure import INK, TRACK, Chart, color_of, quiet, styled, without_data
from .thinning import by_operation
from .wording import remaining_in_words

__all__ = ["chart_allowance"]

_WIDTH_IN: Final = 8.0
_BAR_IN: Final = 0.42
_AROUND_IN: Final = 0.9
_MOST_OPERATIONS: Final = 15


def chart_allowance(frame: pd.DataFrame) -> Chart:
    """Draw the limit of each operation as a bar, what its last reading left filled in.

    Parameters
    ----------
    frame
        What `rate_limits()` gives: any number of rows.

    Returns
    -------
    Chart
        Of the fifteen operations read most, the largest allowance first.
    """
    last = _last_readings(frame)
    with styled():
        if last.empty:
            return without_data("No reading tells a limit yet. Make a request, and draw again.")
        return _drawn(last)


def _last_readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row an operation: its name as index, ``limit``, ``remaining`` and ``words``."""
    rows = {}
    for name, readings in by_operation(frame, most=_MOST_OPERATIONS):
        sound = readings.dropna(subset=["limit", "remaining"])
        if not sound.empty:
            values = sound.iloc[-1]
            rows[name] = (int(values["limit"]), int(values["remaining"]), remaining_in_words(sound))
    columns = ["limit", "remaining", "words"]
    last = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return last.sort_values("limit", ascending=True, kind="stable")


def _drawn(last: pd.DataFrame) -> Chart:
    chart = Chart(_WIDTH_IN, _BAR_IN * len(last) + _AROUND_IN)
    axes = chart.subplots()
    axes.barh(last.index, last["limit"], color=TRACK, height=0.62)
    axes.barh(last.index, last["remaining"], color=color_of(0), height=0.62)
    for row, words in enumerate(last["words"]):
        axes.annotate(
            words, (last["limit"].iloc[row], row), xytext=(6, 0), textcoords="offset points",
            va="center", fontsize=9, color=INK,
        )  # fmt: skip
    quiet(axes)
    axes.grid(visible=False)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.margins(x=0)
    axes.set_xlim(0, 1.25 * max(last["limit"].max(), 1))
    chart.head("Allowance by operation: requests in a window")
    chart.foot("filled: left when last read")
    lines = "; ".join(f"{name}: {words}" for name, words in last["words"][::-1].items())
    chart.alt_text = f"Allowance by operation. {lines}."
    return chart
