"""The chart of what remains: by operation, over time, against its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.dates import date2num
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..display import plural
from .figure import (
    ABOVE_IN,
    ALARM,
    BAND,
    BELOW_IN,
    MUTED,
    WARNING,
    Chart,
    color_of,
    quiet,
    styled,
    tell_time,
    without_data,
)
from .thinning import broken, by_operation, episodes, is_exhausted, thinned, windows
from .wording import remaining_in_words, span_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from .thinning import Window

__all__ = ["chart_rate_limits"]

_WIDTH_IN: Final = 8.0
_PANEL_IN: Final = 1.6
_LOW_PANEL_IN: Final = 1.25
_MOST_HIGH_PANELS: Final = 3
_TITLE_IN: Final = 0.25
_AXIS_IN: Final = 0.25
_MOST_OPERATIONS: Final = 6
_FEW_POINTS: Final = 60
_MANY_MARKS: Final = 120
_MOST_WINDOWS: Final = 40
# Of the time shown, how much is left free on either side.
_MARGIN: Final = 0.02

_Span = tuple[pd.Timestamp, pd.Timestamp]


def chart_rate_limits(frame: pd.DataFrame) -> Chart:
    """Draw the requests that remained, over time, one panel for each operation.

    The limit is a dashed line, windows are shaded where their renewal is known; refusals
    for want of allowance, and unsound headers, are marked. Long pauses are left out.

    Parameters
    ----------
    frame
        What `rate_limits()` gives: any number of rows. Above some thousands of an operation only
        those are drawn that keep the line's shape and every minimum.

    Returns
    -------
    Chart
        Of the six operations read most; its title says where there are more.
    """
    with styled():
        operations = by_operation(frame, most=_MOST_OPERATIONS)
        if not operations:
            return without_data("No readings yet. Make a request, such as me(), and draw again.")
        return _drawn(frame, operations)


def _drawn(frame: pd.DataFrame, operations: Sequence[tuple[str, pd.DataFrame]]) -> Chart:
    shown = pd.concat([readings for _, readings in operations])
    spans = episodes(shown["at"])
    panel = _PANEL_IN if len(operations) <= _MOST_HIGH_PANELS else _LOW_PANEL_IN
    height = ABOVE_IN + panel * len(operations) + _AXIS_IN + BELOW_IN
    chart = Chart(_WIDTH_IN, height, arranged=False)
    grid = chart.subplots(
        len(operations), len(spans), squeeze=False, sharex="col", sharey="row",
        gridspec_kw=_margins(chart, panel),
    )  # fmt: skip
    for row, (name, readings) in enumerate(operations):
        for axes, span in zip(grid[row], spans, strict=True):
            _draw_panel(axes, readings[readings["at"].between(*span)], color_of(row))
            quiet(axes)
        _set_heights(grid[row][0], readings)
        grid[row][0].set_title(name, color=color_of(row), fontweight="bold")
        grid[row][-1].set_title(remaining_in_words(readings), loc="right", color=MUTED, fontsize=9)
    for axes, span in zip(grid[-1], spans, strict=True):
        _set_span(axes, span)
        tell_time(axes, most_ticks=9 // len(spans))
    chart.head(_title(frame, len(operations)))
    chart.foot(span_in_words(spans))
    _explain_marks(chart, shown)
    chart.alt_text = _in_words(frame, operations)
    return chart


def _margins(chart: Chart, panel: float) -> dict[str, float]:
    """Return where the panels stand, as parts of the figure: all of them are equally high."""
    width, height = chart.get_size_inches()
    return {
        "left": 0.5 / width,
        "right": 1 - 0.3 / width,
        "top": 1 - (ABOVE_IN + _TITLE_IN) / height,
        "bottom": (_AXIS_IN + BELOW_IN) / height,
        "hspace": 2 * _TITLE_IN / (panel - _TITLE_IN),
        "wspace": 0.06,
    }


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    found = windows(readings)
    if len(found) <= _MOST_WINDOWS:
        _shade(axes, found)
    kept = thinned(readings)
    _draw_limit(axes, kept.dropna(subset=["limit"]))
    times, remaining = broken(kept, found)
    axes.plot(
        times, remaining, color=color, linewidth=1.6, drawstyle="steps-post",
        marker="o" if len(times) <= _FEW_POINTS else "", markersize=3.5,
    )  # fmt: skip
    _mark(axes, readings[is_exhausted(readings)], "x", ALARM)
    _mark(axes, readings[readings["problem"].notna()], "D", WARNING)


def _draw_limit(axes: Axes, told: pd.DataFrame) -> None:
    """Draw the limit right across, unless it changed."""
    limits = told["limit"].astype(int)
    style: dict[str, Any] = {"color": MUTED, "linestyle": "--", "linewidth": 1}
    if limits.nunique() == 1:
        axes.axhline(limits.iloc[0], **style)
    else:
        axes.plot(told["at"], limits, drawstyle="steps-post", **style)


def _mark(axes: Axes, readings: pd.DataFrame, marker: str, color: str) -> None:
    """Mark readings; one that has no remaining to be drawn at stands on the axis."""
    kept = thinned(readings, many=_MANY_MARKS, buckets=_MANY_MARKS)
    axes.plot(
        kept["at"], kept["remaining"].fillna(0).astype(int), marker, color=color, markersize=5.5,
        markeredgewidth=1.6, fillstyle="none", clip_on=False, zorder=4,
    )  # fmt: skip


def _shade(axes: Axes, found: Sequence[Window]) -> None:
    for window in found:
        begins, ends = date2num(  # type: ignore[no-untyped-call]
            [window.begins_at, window.ends_at]
        )
        axes.axvspan(begins, ends, facecolor=BAND, edgecolor="white", linewidth=1, zorder=0)
        axes.axvline(ends, color=MUTED, linewidth=0.8, linestyle=":", zorder=1)


def _set_heights(axes: Axes, readings: pd.DataFrame) -> None:
    highest = readings[["limit", "remaining"]].max().max()
    top = 1 if pd.isna(highest) else max(int(highest), 1)
    axes.set_ylim(-0.04 * top, 1.1 * top)
    axes.set_yticks([0, top] if top < 2 else [0, top // 2, top])


def _set_span(axes: Axes, span: _Span) -> None:
    """Show the readings and a little beside them, but not a whole empty window."""
    begins_at, ends_at = span
    margin = (ends_at - begins_at) * _MARGIN or pd.Timedelta(milliseconds=500)
    limits = date2num([begins_at - margin, ends_at + margin])  # type: ignore[no-untyped-call]
    axes.set_xlim(*limits)


def _title(frame: pd.DataFrame, drawn: int) -> str:
    total = len(frame[["method", "operation"]].drop_duplicates())
    more = f", {drawn} of {total} operations" if total > drawn else ""
    return f"Requests left in the window: {plural(len(frame), 'reading')}{more}"


def _explain_marks(chart: Chart, shown: pd.DataFrame) -> None:
    """Say below the data what the marks are, those alone that were drawn."""
    refused, unsound = int(is_exhausted(shown).sum()), int(shown["problem"].notna().sum())
    entries: list[Artist] = [
        Line2D([], [], color=MUTED, linestyle="--", linewidth=1, label="limit")
    ]
    if shown["reset_at"].notna().any():
        entries.append(Patch(color=BAND, label="a window, to its renewal"))
    for number, marker, color, label in (
        (refused, "x", ALARM, "refused, nothing left"),
        (unsound, "D", WARNING, "unsound headers"),
    ):
        if number:
            entries.append(
                Line2D([], [], color=color, marker=marker, linestyle="", fillstyle="none",
                       markeredgewidth=1.6, markersize=5.5, label=f"{label} ({number:,})")
            )  # fmt: skip
    chart.legend(
        handles=entries, loc="lower left", ncols=4, fontsize=8, labelcolor=MUTED,
        handlelength=1.6, borderaxespad=0.0, borderpad=0.5,
    )  # fmt: skip


def _in_words(frame: pd.DataFrame, operations: Sequence[tuple[str, pd.DataFrame]]) -> str:
    lines = "; ".join(f"{name}: {remaining_in_words(readings)}" for name, readings in operations)
    refused = int(is_exhausted(frame).sum())
    return (
        f"Requests left over time, {plural(len(frame), 'reading')}. {lines}. "
        f"Refused for want of allowance: {refused:,}."
    )
