"""The three charts of readings: what remained over time, allowances, and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..display import plural
from .figure import (
    ABOVE_IN,
    ALARM,
    BAND,
    BELOW_IN,
    INK,
    TRACK,
    WARNING,
    Chart,
    color_of,
    empty_chart,
    label_axis,
    quiet,
    styled,
)
from .thinning import (
    are_timed,
    broken,
    by_operation,
    episodes,
    is_exhausted,
    span_in_words,
    thinned,
    windows,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Operations = list[tuple[str, pd.DataFrame]]

__all__ = ["Kind", "chart_rate_limits"]

Kind = Literal["remaining", "allowance", "latency"]

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
# Of the span shown, how much is left free on either side; of a single moment, in days.
_MARGIN: Final = 0.02
_MOMENT: Final = 0.5 / 86400

_BAR_IN: Final = 0.42
_MOST_BARS: Final = 15

_LATENCY_IN: Final = 3.2
_MOST_POINTS: Final = 1_500
_BINS: Final = 40
_WIDE: Final = 20.0
_MARKERS: Final = "os^Dv*"


def chart_rate_limits(frame: pd.DataFrame, *, kind: Kind = "remaining") -> Chart:
    """Draw readings, over time or, where a recording has no times, by their number.

    Parameters
    ----------
    frame
        What `rate_limits()` gives: any number of rows.
    kind
        ``"remaining"``: the requests that remained, a panel for each of the six operations read
        most; the limit is a dashed line, windows are shaded where their renewal is known, answers
        that said that nothing is left, and headers with a problem, are marked; long pauses are left
        out. ``"allowance"``: the limit of each of fifteen operations as a bar, what its last
        reading left filled in. ``"latency"``: how long each response took, by operation, with the
        median and the 95th percentile; on a log scale where the slowest took twenty times the
        median. Of very many readings those are drawn that keep the picture's shape, every minimum
        and the slowest.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    if kind not in _DRAWERS:
        raise ValueError(f"There is no chart of kind {kind!r}. Choose of {', '.join(_DRAWERS)}.")
    with styled():
        return _DRAWERS[kind](frame)


def _left_in_words(readings: pd.DataFrame) -> str:
    """Return what an operation's last reading with a remaining says: ``"260 of 300 left"``."""
    told = readings.dropna(subset=["remaining"])
    if told.empty:
        return "remaining not told"
    last = told.iloc[-1]
    limit = "an untold limit" if pd.isna(last["limit"]) else f"{last['limit']:,}"
    return f"{last['remaining']:,} of {limit} left"


# -- what remained -----------------------------------------------------------------------------


def _chart_remaining(frame: pd.DataFrame) -> Chart:
    operations = by_operation(frame, most=_MOST_OPERATIONS)
    if not operations:
        return empty_chart("No readings yet. Make a request, such as me(), and draw again.")
    shown = pd.concat([readings for _, readings in operations])
    timed = are_timed(frame)
    spans = episodes(shown["x"]) if timed else [(shown["x"].min(), shown["x"].max())]
    panel = _PANEL_IN if len(operations) <= _MOST_HIGH_PANELS else _LOW_PANEL_IN
    height = ABOVE_IN + panel * len(operations) + _AXIS_IN + BELOW_IN
    chart = Chart(_WIDTH_IN, height, arranged=False)
    grid = chart.subplots(
        len(operations), len(spans), squeeze=False, sharex="col", sharey="row",
        gridspec_kw=_margins(height, panel),
    )  # fmt: skip
    for row, (name, readings) in enumerate(operations):
        for axes, span in zip(grid[row], spans, strict=True):
            _draw_panel(axes, readings[readings["x"].between(*span)], color_of(row))
        _set_heights(grid[row][0], readings)
        grid[row][0].set_title(name, color=color_of(row), fontweight="bold")
        grid[row][-1].set_title(_left_in_words(readings), loc="right", fontsize=9)
    for axes, (begins, ends) in zip(grid[-1], spans, strict=True):
        margin = (ends - begins) * _MARGIN or (_MOMENT if timed else 0.5)
        axes.set_xlim(begins - margin, ends + margin)
        label_axis(axes, timed=timed, most_ticks=9 // len(spans))
    total = len(frame[["method", "operation"]].drop_duplicates())
    more = f", {len(operations)} of {total} operations" if total > len(operations) else ""
    chart.head(f"Requests left in the window: {plural(len(frame), 'reading')}{more}")
    chart.foot(span_in_words(spans, timed=timed))
    _explain_marks(chart, shown)
    chart.alt_text = _remaining_in_words(frame, operations)
    return chart


def _margins(height: float, panel: float) -> dict[str, float]:
    """Return where the panels stand, as parts of the figure: all of them are equally high."""
    return {
        "left": 0.5 / _WIDTH_IN,
        "right": 1 - 0.3 / _WIDTH_IN,
        "top": 1 - (ABOVE_IN + _TITLE_IN) / height,
        "bottom": (_AXIS_IN + BELOW_IN) / height,
        "hspace": 2 * _TITLE_IN / (panel - _TITLE_IN),
        "wspace": 0.06,
    }


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    found = windows(readings)
    for begins, ends in found if len(found) <= _MOST_WINDOWS else ():
        axes.axvspan(begins, ends, facecolor=BAND, edgecolor="none", zorder=0)
        axes.axvline(ends, color=INK, linewidth=0.8, linestyle=":", zorder=1)
    kept = thinned(readings)
    _draw_limit(axes, kept.dropna(subset=["limit"]))
    x, remaining = broken(kept, found)
    axes.plot(
        x, remaining, color=color, linewidth=1.6, drawstyle="steps-post",
        marker="o" if len(x) <= _FEW_POINTS else "", markersize=3.5,
    )  # fmt: skip
    _mark(axes, readings[is_exhausted(readings)], "x", ALARM)
    _mark(axes, readings[readings["problem"].notna()], "D", WARNING)
    quiet(axes)


def _draw_limit(axes: Axes, told: pd.DataFrame) -> None:
    """Draw the limit right across, unless it changed."""
    limits = told["limit"].astype(int)
    style: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1}
    if limits.nunique() == 1:
        axes.axhline(limits.iloc[0], **style)
    else:
        axes.plot(told["x"], limits, drawstyle="steps-post", **style)


def _mark(axes: Axes, readings: pd.DataFrame, marker: str, color: str) -> None:
    """Mark readings; one that has no remaining to be drawn at stands on the axis."""
    kept = thinned(readings, many=_MANY_MARKS, buckets=_MANY_MARKS)
    axes.plot(
        kept["x"], kept["remaining"].fillna(0).astype(int), marker, color=color, markersize=5.5,
        markeredgewidth=1.6, fillstyle="none", clip_on=False, zorder=4,
    )  # fmt: skip


def _set_heights(axes: Axes, readings: pd.DataFrame) -> None:
    highest = readings[["limit", "remaining"]].max().max()
    top = 1 if pd.isna(highest) else max(int(highest), 1)
    axes.set_ylim(-0.04 * top, 1.1 * top)
    axes.set_yticks([0, top] if top < 2 else [0, top // 2, top])


def _explain_marks(chart: Chart, shown: pd.DataFrame) -> None:
    """Say below the data what the marks are, those alone that were drawn."""
    entries: list[Artist] = [Line2D([], [], color=INK, linestyle="--", linewidth=1, label="limit")]
    if shown["renews_x"].notna().any():
        entries.append(Patch(color=BAND, label="a window, to its renewal"))
    marks = (
        (is_exhausted(shown), "x", ALARM, "refused, nothing left"),
        (shown["problem"].notna(), "D", WARNING, "headers with a problem"),
    )
    for marked, marker, color, label in marks:
        if marked.any():
            entries.append(
                Line2D([], [], color=color, marker=marker, linestyle="", fillstyle="none",
                       markeredgewidth=1.6, markersize=5.5, label=f"{label} ({marked.sum():,})")
            )  # fmt: skip
    chart.legend(
        handles=entries, loc="lower left", ncols=4, fontsize=8, handlelength=1.6,
        borderaxespad=0.0, borderpad=0.5,
    )  # fmt: skip


def _remaining_in_words(frame: pd.DataFrame, operations: Operations) -> str:
    lines = "; ".join(f"{name}: {_left_in_words(readings)}" for name, readings in operations)
    refused = plural(int(is_exhausted(frame).sum()), "response")
    return (
        f"Requests left over time, {plural(len(frame), 'reading')}. {lines}. "
        f"Refused because nothing was left: {refused}."
    )


# -- allowances --------------------------------------------------------------------------------


def _chart_allowance(frame: pd.DataFrame) -> Chart:
    last = _last_readings(frame)
    if last.empty:
        return empty_chart("No reading tells a limit yet. Make a request, and draw again.")
    chart = Chart(_WIDTH_IN, _BAR_IN * len(last) + ABOVE_IN + BELOW_IN + 0.2)
    axes = chart.subplots()
    axes.barh(last.index, last["limit"], color=TRACK, height=0.62)
    axes.barh(last.index, last["remaining"], color=color_of(0), height=0.62)
    for row, (limit, words) in enumerate(zip(last["limit"], last["words"], strict=True)):
        axes.annotate(words, (limit, row), (6, 0), textcoords="offset points", va="center")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks([])
    axes.margins(x=0)
    axes.set_xlim(0, 1.25 * max(last["limit"].max(), 1))
    chart.head("Allowance by operation: requests in a window")
    chart.foot("filled: left when last read")
    lines = "; ".join(f"{name}: {words}" for name, words in last["words"][::-1].items())
    chart.alt_text = f"Allowance by operation. {lines}."
    return chart


def _last_readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row an operation: its name as index, ``limit``, ``remaining`` and ``words``."""
    rows = {}
    for name, readings in by_operation(frame, most=_MOST_BARS):
        told = readings.dropna(subset=["limit", "remaining"])
        if not told.empty:
            values = told.iloc[-1]
            rows[name] = (int(values["limit"]), int(values["remaining"]), _left_in_words(told))
    columns = ["limit", "remaining", "words"]
    last = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return last.sort_values("limit", ascending=True, kind="stable")


# -- latencies ---------------------------------------------------------------------------------


def _chart_latency(frame: pd.DataFrame) -> Chart:
    told = frame[frame["elapsed_s"] > 0]
    operations = by_operation(told, most=_MOST_OPERATIONS)
    if not operations:
        return empty_chart("No latency is known yet. Make a request, and draw again.")
    seconds = told["elapsed_s"].to_numpy(dtype=float)
    chart = Chart(_WIDTH_IN, _LATENCY_IN)
    over_time, spread = chart.subplots(1, 2, sharey=True, width_ratios=[4, 1])
    for number, (name, readings) in enumerate(operations):
        kept = _slowest_kept(readings)
        over_time.plot(
            kept["x"], kept["elapsed_s"], _MARKERS[number], color=color_of(number), markersize=4,
            alpha=0.8, markeredgewidth=0, label=name,
        )  # fmt: skip
    quiet(over_time)
    label_axis(over_time, timed=are_timed(told))
    median, high = np.quantile(seconds, [0.5, 0.95])
    _scale(over_time, seconds, median)
    _draw_spread(spread, seconds, over_time)
    for value, name in ((median, "median"), (high, "95%")):
        over_time.axhline(value, color=INK, linewidth=0.8, linestyle=":")
        spread.axhline(value, color=INK, linewidth=0.8, linestyle=":")
        spread.annotate(
            f"{name} {_seconds_in_words(value)}", (1, value), xytext=(4, 0), fontsize=8,
            xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
        )  # fmt: skip
    title = f"Latency: {plural(len(seconds), 'response')}"
    chart.head(title)
    x = pd.concat([readings["x"] for _, readings in operations])
    chart.foot(span_in_words([(x.min(), x.max())], timed=are_timed(told)))
    if len(operations) > 1:
        chart.legend(loc="outside lower left", ncols=3, fontsize=8, markerscale=1.6)
    chart.alt_text = (
        f"{title}. Median {_seconds_in_words(median)}, 95th percentile {_seconds_in_words(high)}, "
        f"slowest {_seconds_in_words(seconds.max())}."
    )
    return chart


def _slowest_kept(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the readings, or of very many the first and the slowest of each stretch of them."""
    if len(readings) <= _MOST_POINTS:
        return readings
    seconds = readings["elapsed_s"].reset_index(drop=True)
    stretches = seconds.groupby(np.arange(len(readings)) * _MOST_POINTS // (2 * len(readings)))
    places = pd.concat([stretches.idxmax(), stretches.apply(lambda each: each.index[0])])
    return readings.iloc[sorted(set(places))]


def _scale(axes: Axes, seconds: NDArray[np.float64], median: float) -> None:
    if seconds.max() >= _WIDE * median:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", left=False)
    else:
        axes.set_ylim(0, 1.1 * seconds.max())
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _seconds_in_words(value)))


def _draw_spread(axes: Axes, seconds: NDArray[np.float64], beside: Axes) -> None:
    space = np.geomspace if beside.get_yscale() == "log" else np.linspace
    edges = list(space(*beside.get_ylim(), _BINS))
    axes.hist(seconds, bins=edges, orientation="horizontal", color=TRACK)
    axes.set_xticks([])
    axes.tick_params(axis="y", which="both", labelleft=False, left=False)
    axes.spines[:].set_visible(False)


def _seconds_in_words(seconds: float) -> str:
    """Return a latency with its unit, to three digits: ``"42 ms"``, ``"1.25 s"``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


_DRAWERS: Final = {
    "remaining": _chart_remaining,
    "allowance": _chart_allowance,
    "latency": _chart_latency,
}
