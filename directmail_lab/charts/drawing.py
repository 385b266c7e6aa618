"""The three charts of readings: what remained over time, allowances, and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..display import plural
from . import figure, thinning
from .figure import INK, Chart

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Kind = Literal["remaining", "allowance", "latency"]

_MOST_OPERATIONS: Final = 6
_PANEL_IN: Final = 1.6
_LOW_PANEL_IN: Final = 1.25
_MOST_HIGH_PANELS: Final = 3
_FEW_POINTS: Final = 60
_MANY_MARKS: Final = 120
_MOST_WINDOWS: Final = 40
# Of the span shown, how much is left free on either side; of a single moment, in days.
_MARGIN: Final = 0.02
_MOMENT: Final = 0.5 / 86400
_BAR_IN: Final = 0.42
_MOST_BARS: Final = 15
_LATENCY_IN: Final = 3.2
_MANY_DOTS: Final = 1_500
_WIDE: Final = 20.0
_MARKERS: Final = "os^Dv*"
_DOTS: Final[dict[str, Any]] = {
    "linestyle": "",
    "markersize": 4,
    "markeredgewidth": 0,
    "alpha": 0.8,
}


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
    with figure.styled():
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
    operations = thinning.by_operation(frame, most=_MOST_OPERATIONS)
    if not operations:
        return figure.empty_chart("No readings yet. Make a request, such as me(), and draw again.")
    shown = pd.concat([readings for _, readings in operations])
    timed = thinning.are_timed(frame)
    spans = thinning.episodes(shown["x"]) if timed else [(shown["x"].min(), shown["x"].max())]
    panel = _PANEL_IN if len(operations) <= _MOST_HIGH_PANELS else _LOW_PANEL_IN
    chart = Chart(2 * figure.AROUND_IN + panel * len(operations))
    grid = chart.subplots(len(operations), len(spans), squeeze=False, sharex="col", sharey="row")
    for row, (name, readings) in enumerate(operations):
        for axes, span in zip(grid[row], spans, strict=True):
            figure.lay_out(axes, timed=timed, most_ticks=9 // len(spans))
            _draw_panel(axes, readings[readings["x"].between(*span)], figure.color_of(row))
        _set_heights(grid[row][0], readings)
        grid[row][0].set_title(name, color=figure.color_of(row), fontweight="bold")
        grid[row][-1].set_title(_left_in_words(readings), loc="right", fontsize=9)
    for axes, (begins, ends) in zip(grid[-1], spans, strict=True):
        margin = (ends - begins) * _MARGIN or (_MOMENT if timed else 0.5)
        axes.set_xlim(begins - margin, ends + margin)
    total = len(frame[["method", "operation"]].drop_duplicates())
    more = f", {len(operations)} of {total} operations" if total > len(operations) else ""
    title = f"Requests left in the window: {plural(len(frame), 'reading')}{more}"
    chart.label(title, thinning.span_in_words(spans, timed=timed))
    _explain_marks(chart, shown)
    lines = "; ".join(f"{name}: {_left_in_words(readings)}" for name, readings in operations)
    refused = plural(len(thinning.exhausted(frame)), "response")
    chart.alt_text = f"{title}. {lines}. Refused because nothing was left: {refused}."
    return chart


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    found = thinning.windows(readings)
    for begins, ends in found if len(found) <= _MOST_WINDOWS else ():
        axes.axvspan(begins, ends, facecolor=figure.BAND, edgecolor="none", zorder=0)
        axes.axvline(ends, color=INK, linewidth=0.8, linestyle=":", zorder=1)
    kept = thinning.thinned(readings)
    _draw_limit(axes, kept.dropna(subset=["limit"]))
    x, remaining = thinning.broken(kept, found)
    marker = "o" if len(x) <= _FEW_POINTS else ""
    axes.plot(x, remaining, color=color, drawstyle="steps-post", marker=marker, markersize=3.5)
    for marked, style, _ in _marks(readings):
        few = thinning.thinned(marked, many=_MANY_MARKS, buckets=_MANY_MARKS)
        # One that has no remaining to be drawn at stands on the axis.
        heights = few["remaining"].fillna(0).astype(int)
        axes.plot(few["x"], heights, **style, clip_on=False, zorder=4, in_layout=False)


def _draw_limit(axes: Axes, told: pd.DataFrame) -> None:
    """Draw the limit right across, unless it changed."""
    limits = told["limit"].astype(int)
    style: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1}
    if limits.nunique() == 1:
        axes.axhline(limits.iloc[0], **style)
    else:
        axes.plot(told["x"], limits, drawstyle="steps-post", **style)


def _marks(readings: pd.DataFrame) -> list[tuple[pd.DataFrame, dict[str, Any], str]]:
    """Return the readings that are marked, how they are, and what that means."""
    style: dict[str, Any] = {"linestyle": "", "fillstyle": "none", "markersize": 5.5}
    style["markeredgewidth"] = 1.6
    refused = {**style, "marker": "x", "color": figure.ALARM}
    problem = {**style, "marker": "D", "color": figure.WARNING}
    return [
        (thinning.exhausted(readings), refused, "refused, nothing left"),
        (readings[readings["problem"].notna()], problem, "headers with a problem"),
    ]


def _set_heights(axes: Axes, readings: pd.DataFrame) -> None:
    highest = readings[["limit", "remaining"]].max().max()
    top = 1 if pd.isna(highest) else max(int(highest), 1)
    axes.set_ylim(-0.04 * top, 1.1 * top)
    axes.set_yticks([0, top] if top < 2 else [0, top // 2, top])


def _explain_marks(chart: Chart, shown: pd.DataFrame) -> None:
    """Say below the data what the marks are, those alone that were drawn."""
    entries: list[Artist] = [Line2D([], [], color=INK, linestyle="--", linewidth=1, label="limit")]
    if shown["renews_x"].notna().any():
        entries.append(Patch(color=figure.BAND, label="a window, to its renewal"))
    for marked, style, label in _marks(shown):
        if len(marked):
            entries.append(Line2D([], [], **style, label=f"{label} ({len(marked):,})"))
    chart.legend(handles=entries, loc="lower left", ncols=4, handlelength=1.6, borderaxespad=0.0)


# -- allowances --------------------------------------------------------------------------------


def _chart_allowance(frame: pd.DataFrame) -> Chart:
    last = _last_readings(frame)
    if last.empty:
        return figure.empty_chart("No reading tells a limit yet. Make a request, and draw again.")
    chart = Chart(_BAR_IN * len(last) + 2 * figure.AROUND_IN + 0.2)
    axes = chart.subplots()
    axes.barh(last.index, last["limit"], color=figure.UNFILLED, height=0.62)
    axes.barh(last.index, last["remaining"], color=figure.color_of(0), height=0.62)
    for row, (limit, words) in enumerate(zip(last["limit"], last["words"], strict=True)):
        axes.annotate(words, (limit, row), (6, 0), textcoords="offset points", va="center")
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_xlim(0, 1.25 * max(last["limit"].max(), 1))
    chart.label("Allowance by operation: requests in a window", "filled: left when last read")
    lines = "; ".join(f"{name}: {words}" for name, words in last["words"][::-1].items())
    chart.alt_text = f"Allowance by operation. {lines}."
    return chart


def _last_readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row an operation: its name as index, ``limit``, ``remaining`` and ``words``."""
    rows = {}
    for name, readings in thinning.by_operation(frame, most=_MOST_BARS):
        told = readings.dropna(subset=["limit", "remaining"])
        if not told.empty:
            limit, remaining = told.iloc[-1][["limit", "remaining"]]
            rows[name] = int(limit), int(remaining), _left_in_words(told)
    columns = ["limit", "remaining", "words"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).sort_values("limit")


# -- latencies ---------------------------------------------------------------------------------


def _chart_latency(frame: pd.DataFrame) -> Chart:
    told = frame[frame["elapsed_s"] > 0]
    operations = thinning.by_operation(told, most=_MOST_OPERATIONS)
    if not operations:
        return figure.empty_chart("No latency is known yet. Make a request, and draw again.")
    chart, timed = Chart(_LATENCY_IN), thinning.are_timed(told)
    axes = chart.subplots()
    for number, (name, readings) in enumerate(operations):
        kept = thinning.thinned(readings, "elapsed_s", many=_MANY_DOTS, buckets=_MANY_DOTS // 4)
        style: dict[str, Any] = {"color": figure.color_of(number), "marker": _MARKERS[number]}
        axes.plot(kept["x"], kept["elapsed_s"], **style, **_DOTS, label=name)
    figure.lay_out(axes, timed=timed)
    median, high, slowest = (float(told["elapsed_s"].quantile(part)) for part in (0.5, 0.95, 1))
    _scale(axes, slowest, median)
    _draw_level(axes, median, "median")
    _draw_level(axes, high, "95%")
    title, x = f"Latency: {plural(len(told), 'response')}", axes.dataLim.intervalx
    chart.label(title, thinning.span_in_words([(x[0], x[1])], timed=timed))
    if len(operations) > 1:
        chart.legend(loc="outside lower left", ncols=3, markerscale=1.6)
    chart.alt_text = (
        f"{title}. Median {_seconds_in_words(median)}, 95th percentile {_seconds_in_words(high)}, "
        f"slowest {_seconds_in_words(slowest)}."
    )
    return chart


def _draw_level(axes: Axes, seconds: float, name: str) -> None:
    axes.axhline(seconds, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"{name} {_seconds_in_words(seconds)}", (1, seconds), (4, 0), fontsize=8, va="center",
        xycoords=("axes fraction", "data"), textcoords="offset points",
    )  # fmt: skip


def _scale(axes: Axes, slowest: float, median: float) -> None:
    if slowest >= _WIDE * median:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", left=False)
    else:
        axes.set_ylim(0, 1.1 * slowest)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _seconds_in_words(value)))


def _seconds_in_words(seconds: float) -> str:
    """Return a latency with its unit, to three digits: ``"42 ms"``, ``"1.25 s"``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


_DRAWERS: Final = {
    "remaining": _chart_remaining,
    "allowance": _chart_allowance,
    "latency": _chart_latency,
}
