"""The three charts of readings: requests remaining over time, allowances, and latencies.

`chart_rate_limits` takes the frame that `rate_limits()` returns and returns a `Chart`, a
`matplotlib.figure.Figure` that is shown as a PNG if it is the last value of a notebook cell. It
neither uses nor changes pyplot.

Times are in days since 1970 (UTC), matplotlib's unit, in columns ``x`` (when the response came) and
``renews_x``. If any reading has no time, as in vcrpy's cassettes, ``x`` is the row number instead,
from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from . import figures
from .display import plural
from .figures import INK, SERIES, Chart as Chart
from .quota import is_exhausted

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Kind = Literal["remaining", "allowance", "latency"]

_Span = tuple[float, float]
"""The start and the end of something on the x axis."""

_BUCKETS: Final = 700
_MOST_POINTS: Final = 2_800
_FEW_POINTS: Final = 60
_MOST_MARKS: Final = 120
_MOST_DOTS: Final = 1_500
_MOST_WINDOWS: Final = 40
_MOST_BARS: Final = 15
_BAR_IN: Final = 0.42
_SHORTEST_BREAK_DAYS: Final = 10 / 1440
_MOST_EPISODES: Final = 3
_MOST_OF_A_SPAN: Final = 0.7
_FEWEST_TO_SPLIT: Final = 6
# The free space on either side, as a part of the span shown; around a single moment, in days.
_MARGIN: Final = 0.02
_MOMENT: Final = 0.5 / 86400
_WIDE: Final = 20.0
_MARKERS: Final = "os^Dv*"


def chart_rate_limits(frame: pd.DataFrame, *, kind: Kind = "remaining") -> Chart:
    """Draw readings over time, or by row number if a recording has no times.

    Parameters
    ----------
    frame
        What `rate_limits()` returns, with any number of rows.
    kind
        ``"remaining"``: the requests remaining, with a panel for each of the six operations that
        have the most readings. The limit is a dashed line; windows whose renewal is known are
        shaded; refused requests and headers with a problem are marked; long pauses are left out.
        ``"allowance"``: a bar for the limit of each of the fifteen operations with the most
        readings, filled up to what remained in the last one. ``"latency"``: how long each response
        took, by operation, with the median and the 95th percentile; on a log scale if the slowest
        took at least twenty times the median. Of very many readings only some are drawn, chosen so
        that the picture looks the same: minima and maxima are kept.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    if kind not in _DRAWERS:
        raise ValueError(f"There is no chart of kind {kind!r}. Choose from {', '.join(_DRAWERS)}.")
    with figures.styled():
        return _DRAWERS[kind](frame)


def _by_operation(frame: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """Return pairs of ``"GET /v1/users/me"`` and its readings by ``x``, most readings first."""
    timed = _are_timed(frame)
    ordered = frame.assign(
        x=_days(frame["at"]) if timed else np.arange(len(frame), dtype=float),
        renews_x=_days(frame["reset_at"]) if timed else np.nan,
        operation=frame["method"].astype(str) + " " + frame["operation"].astype(str),
    ).sort_values("x", kind="stable", ignore_index=True)
    counts = ordered["operation"].value_counts(sort=False)
    counts = counts.sort_values(ascending=False, kind="stable")[:most]
    return [(str(name), ordered[ordered["operation"] == name]) for name in counts.index]


def _are_timed(frame: pd.DataFrame) -> bool:
    return bool(frame["at"].notna().all())


def _days(times: pd.Series[pd.Timestamp]) -> pd.Series[float]:
    return (pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def _thinned(frame: pd.DataFrame, column: str = "remaining", *, most: int) -> pd.DataFrame:
    """Return at most ``most`` readings of one operation that look the same when drawn.

    The x axis is cut into ``most // 4`` equal parts. Of each part these readings are kept: the
    first, the last, and those with the least and the greatest value of ``column``.
    """
    if len(frame) <= most:
        return frame
    ordered, spans = frame.reset_index(drop=True), most // 4
    x = ordered["x"].to_numpy() - ordered["x"].iloc[0]
    span = np.minimum((x / max(x[-1], 1e-12) * spans).astype(int), spans - 1)
    told = ordered[column].dropna().astype(float)
    places = pd.Series(ordered.index).groupby(span)
    values = told.groupby(span[told.index])
    kept = [places.first(), places.last(), values.idxmin(), values.idxmax()]
    return ordered.loc[sorted(set(pd.concat(kept)))]


def _span_in_words(spans: Sequence[_Span], *, timed: bool) -> str:
    """Return the days that an axis shows: ``"21 Nov 2026, UTC"``."""
    if not timed:
        return "by number: not every response has a time"
    ends = [moment for span in spans for moment in span]
    days = list(dict.fromkeys(f"{pd.Timestamp(each, unit='D'):%-d %b %Y}" for each in ends))
    return f"{', '.join(days)}, UTC" if len(days) < 4 else f"{days[0]} to {days[-1]}, UTC"


def _left_in_words(readings: pd.DataFrame) -> str:
    """Return what the last reading that has ``remaining`` says: ``"260 of 300 left"``."""
    told = readings.dropna(subset=["remaining"])
    if told.empty:
        return "remaining unknown"
    last = told.iloc[-1]
    limit = "an unknown limit" if pd.isna(last["limit"]) else f"{last['limit']:,}"
    return f"{last['remaining']:,} of {limit} left"


# -- what remained -----------------------------------------------------------------------------


def _chart_remaining(frame: pd.DataFrame) -> Chart:
    operations = _by_operation(frame, most=len(SERIES))
    if not operations:
        return figures.empty_chart("No readings yet. Make a request, such as me(), and draw again.")
    shown = pd.concat([readings for _, readings in operations])
    timed = _are_timed(frame)
    spans = _episodes(shown["x"]) if timed else [(shown["x"].min(), shown["x"].max())]
    panel_in = 1.6 if len(operations) < 4 else 1.25
    chart = Chart(2 * figures.AROUND_IN + panel_in * len(operations))
    grid = chart.subplots(len(operations), len(spans), squeeze=False, sharex="col", sharey="row")
    for row, (name, readings) in enumerate(operations):
        for axes, (begins, ends) in zip(grid[row], spans, strict=True):
            figures.lay_out(axes, timed=timed, most_ticks=9 // len(spans))
            _draw_panel(axes, readings[readings["x"].between(begins, ends)], SERIES[row])
            margin = (ends - begins) * _MARGIN or (_MOMENT if timed else 0.5)
            axes.set_xlim(begins - margin, ends + margin)
        _set_heights(grid[row][0], readings)
        grid[row][0].set_title(name, color=SERIES[row], fontweight="bold")
        grid[row][-1].set_title(_left_in_words(readings), loc="right", fontsize=9)
    total = len(frame[["method", "operation"]].drop_duplicates())
    more = f", {len(operations)} of {total} operations" if total > len(operations) else ""
    title = f"Requests left in the window: {plural(len(frame), 'reading')}{more}"
    chart.label(title, _span_in_words(spans, timed=timed))
    _explain_marks(chart, shown)
    lines = "; ".join(f"{name}: {_left_in_words(readings)}" for name, readings in operations)
    refused = plural(len(_refused(frame)), "response")
    chart.alt_text = f"{title}. {lines}. Refused because nothing was left: {refused}."
    return chart


def _episodes(x: pd.Series[float]) -> list[_Span]:
    """Return the spans of time to draw, at most three, without the long pauses between them.

    Else last month's recording, replayed together with today's requests, would be two dots at the
    ends of an axis. A pause is left out if it is over ten minutes and over 70 % of what is shown.
    """
    moments = np.sort(x.to_numpy())
    pauses, span, places = np.diff(moments), moments[-1] - moments[0], list[int]()
    for place in np.argsort(-pauses, kind="stable")[: _MOST_EPISODES - 1]:
        least = max(_SHORTEST_BREAK_DAYS, _MOST_OF_A_SPAN * span)
        if len(moments) < _FEWEST_TO_SPLIT or pauses[place] < least:
            break
        places.append(int(place) + 1)
        span -= pauses[place]
    return [(float(part[0]), float(part[-1])) for part in np.split(moments, sorted(places))]


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    windows = _windows(readings)
    for begins, ends in windows if len(windows) <= _MOST_WINDOWS else ():
        axes.axvspan(begins, ends, facecolor=figures.BAND, edgecolor="none", zorder=0)
        axes.axvline(ends, color=INK, linewidth=0.8, linestyle=":", zorder=1)
    kept = _thinned(readings, most=_MOST_POINTS)
    _draw_limit(axes, kept.dropna(subset=["limit"]))
    # After a window ends its remaining is unknown, so the line has a gap until the next reading. In
    # a stable sort the gap comes before a reading at the same x.
    over = [min(window[1], after[0]) for window, after in pairwise(windows)]
    gaps = pd.DataFrame({"x": pd.Series(over, dtype=float), "remaining": np.nan})
    points = kept.dropna(subset=["remaining"])[["x", "remaining"]].astype(float)
    line = pd.concat([gaps, points]).sort_values("x", kind="stable")
    marker = "o" if len(line) <= _FEW_POINTS else ""
    style: dict[str, Any] = {"drawstyle": "steps-post", "marker": marker, "markersize": 3.5}
    axes.plot(line["x"], line["remaining"], color=color, **style)
    for marked, style, _ in _marks(readings):
        few = _thinned(marked, most=_MOST_MARKS)
        # Without a value of `remaining`, the mark is drawn at 0.
        heights = few["remaining"].fillna(0).astype(int)
        axes.plot(few["x"], heights, **style, clip_on=False, zorder=4, in_layout=False)


def _windows(readings: pd.DataFrame) -> list[_Span]:
    """Return the windows of one operation, each from its first reading to its renewal.

    A Reset in seconds that are rounded up gives a renewal that may be late but not early, so the
    earliest one is the end of the window.
    """
    known = readings.dropna(subset=["renews_x", "remaining"])
    found: list[_Span] = []
    least = -1
    for x, ends, remaining in zip(known["x"], known["renews_x"], known["remaining"], strict=True):
        if found and x < found[-1][1] and remaining <= least:
            begins, before = found[-1]
            found[-1] = begins, max(min(before, ends), x)
        else:
            found.append((x, ends))
        least = remaining
    return found


def _draw_limit(axes: Axes, told: pd.DataFrame) -> None:
    """Draw the limit as a line across the panel, or as steps if it changed."""
    limits = told["limit"].astype(int)
    style: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1}
    if limits.nunique() == 1:
        axes.axhline(limits.iloc[0], **style)
    else:
        axes.plot(told["x"], limits, drawstyle="steps-post", **style)


def _refused(readings: pd.DataFrame) -> pd.DataFrame:
    marked: pd.Series[bool] = is_exhausted(readings["status"], readings["remaining"])
    return readings[marked.fillna(False).astype(bool)]


def _marks(readings: pd.DataFrame) -> list[tuple[pd.DataFrame, dict[str, Any], str]]:
    """Return for each kind of mark: its readings, its style, and its text in the legend."""
    style = {"linestyle": "", "fillstyle": "none", "markersize": 5.5, "markeredgewidth": 1.6}
    refused = {**style, "marker": "x", "color": figures.ALARM}
    problem = {**style, "marker": "D", "color": figures.WARNING}
    return [
        (_refused(readings), refused, "refused, nothing left"),
        (readings[readings["problem"].notna()], problem, "headers with a problem"),
    ]


def _set_heights(axes: Axes, readings: pd.DataFrame) -> None:
    highest = readings[["limit", "remaining"]].max().max()
    top = 1 if pd.isna(highest) else max(int(highest), 1)
    axes.set_ylim(-0.04 * top, 1.1 * top)
    axes.set_yticks([0, top] if top < 2 else [0, top // 2, top])


def _explain_marks(chart: Chart, shown: pd.DataFrame) -> None:
    """Add a legend of the marks that were drawn."""
    entries: list[Artist] = [Line2D([], [], color=INK, linestyle="--", linewidth=1, label="limit")]
    if shown["renews_x"].notna().any():
        entries.append(Patch(color=figures.BAND, label="a window, to its renewal"))
    for marked, style, label in _marks(shown):
        if len(marked):
            entries.append(Line2D([], [], **style, label=f"{label} ({len(marked):,})"))
    chart.legend(handles=entries, loc="lower left", ncols=4, handlelength=1.6, borderaxespad=0.0)


# -- allowances --------------------------------------------------------------------------------


def _chart_allowance(frame: pd.DataFrame) -> Chart:
    told = frame.dropna(subset=["limit", "remaining"])
    last = [
        (int(readings["limit"].iloc[-1]), int(readings["remaining"].iloc[-1]), name)
        for name, readings in _by_operation(told, most=_MOST_BARS)
    ]
    if not last:
        return figures.empty_chart("No reading has a limit yet. Make a request, and draw again.")
    limits, remaining, names = zip(*sorted(last, key=lambda each: each[0]), strict=True)
    words = [f"{left:,} of {limit:,} left" for limit, left in zip(limits, remaining, strict=True)]
    chart = Chart(_BAR_IN * len(names) + 2 * figures.AROUND_IN + 0.2)
    axes = chart.subplots()
    axes.barh(names, limits, color=figures.UNFILLED, height=0.62)
    axes.barh(names, remaining, color=SERIES[0], height=0.62)
    for row, place in enumerate(zip(limits, range(len(names)), strict=True)):
        axes.annotate(words[row], place, (6, 0), textcoords="offset points", va="center")
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_xlim(0, 1.25 * max(*limits, 1))
    chart.label("Allowance by operation: requests in a window", "filled: left when last read")
    lines = "; ".join(f"{names[row]}: {words[row]}" for row in reversed(range(len(names))))
    chart.alt_text = f"Allowance by operation. {lines}."
    return chart


# -- latencies ---------------------------------------------------------------------------------


def _chart_latency(frame: pd.DataFrame) -> Chart:
    told = frame[frame["elapsed_s"] > 0]
    operations = _by_operation(told, most=len(SERIES))
    if not operations:
        return figures.empty_chart("No latency is known yet. Make a request, and draw again.")
    chart, timed = Chart(3.2), _are_timed(told)
    axes = chart.subplots()
    for (name, readings), color, marker in zip(operations, SERIES, _MARKERS, strict=False):
        kept = _thinned(readings, "elapsed_s", most=_MOST_DOTS)
        style: dict[str, Any] = {"color": color, "markersize": 4, "markeredgewidth": 0}
        axes.plot(kept["x"], kept["elapsed_s"], marker, **style, alpha=0.8, label=name)
    figures.lay_out(axes, timed=timed)
    median, high, slowest = (float(told["elapsed_s"].quantile(part)) for part in (0.5, 0.95, 1))
    if slowest >= _WIDE * median:
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_ylim(0, 1.1 * slowest)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _seconds_in_words(value)))
    _draw_level(axes, median, "median")
    _draw_level(axes, high, "95%")
    title, x = f"Latency: {plural(len(told), 'response')}", axes.dataLim.intervalx
    chart.label(title, _span_in_words([(x[0], x[1])], timed=timed))
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


def _seconds_in_words(seconds: float) -> str:
    """Return a latency with its unit, to three digits: ``"42 ms"``, ``"1.25 s"``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


_DRAWERS: Final = {
    "remaining": _chart_remaining,
    "allowance": _chart_allowance,
    "latency": _chart_latency,
}
