"""The three charts of readings: requests remaining over time, allowances, and latencies.

`chart_rate_limits` takes the frame that `rate_limits()` returns and returns a `Chart`, a
`matplotlib.figure.Figure` that is shown as a PNG if it is the last value of a notebook cell. It
neither uses nor changes pyplot.

Times are in days since 1970 (UTC), matplotlib's unit, in columns ``x`` (when the response came) and
``renews_x``. If any reading has no time, as in vcrpy's cassettes, ``x`` is the row number instead,
from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..display import plural
from ..errors import check_choice
from ..readings.reading import is_exhausted
from . import figures
from .figures import INK, SERIES, Chart as Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["remaining", "allowance", "latency"]

_Span = tuple[float, float]
"""The start and the end of something on the x axis."""

_MOST_MARKED_POINTS: Final = 60
_MOST_WINDOWS: Final = 40
_MOST_BARS: Final = 15
_BAR_IN: Final = 0.42
_SHORTEST_BREAK_DAYS: Final = 10 / 1440
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
        shaded; refused requests and headers with a problem are marked; a long pause is left out.
        ``"allowance"``: a bar for the limit of each of the fifteen operations with the most
        readings, filled up to what remained in the last one. ``"latency"``: how long each response
        took, by operation; on a log scale if the slowest took at least twenty times the median.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    check_choice("kind", kind, _DRAWERS)
    with figures.styled():
        return _DRAWERS[kind](frame)


def _by_operation(frame: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """Return pairs of ``"GET /v1/users/me"`` and its readings by ``x``, most readings first."""
    is_timed = _is_timed(frame)
    table = frame.assign(
        x=_days(frame["at"]) if is_timed else np.arange(len(frame), dtype=float),
        renews_x=_days(frame["reset_at"]) if is_timed else np.nan,
        operation=frame["method"].astype(str) + " " + frame["operation"].astype(str),
    ).sort_values("x", kind="stable", ignore_index=True)
    names = Counter(table["operation"]).most_common(most)
    return [(name, table[table["operation"] == name]) for name, _ in names]


def _is_timed(frame: pd.DataFrame) -> bool:
    return bool(frame["at"].notna().all())


def _days(times: pd.Series[pd.Timestamp]) -> pd.Series[float]:
    return (pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def _describe_dates(spans: Sequence[_Span], *, is_timed: bool) -> str:
    """Return the days that an axis shows: ``"21 Nov 2026, UTC"``."""
    if not is_timed:
        return "by number: not every response has a time"
    ends = [moment for span in spans for moment in span]
    days = list(dict.fromkeys(f"{pd.Timestamp(end, unit='D'):%-d %b %Y}" for end in ends))
    return f"{', '.join(days)}, UTC"


def _describe_last(readings: pd.DataFrame) -> str:
    """Return what the last reading with ``remaining`` says: ``"260 of 300 left"``."""
    known = readings.dropna(subset=["remaining"])
    if known.empty:
        return "remaining unknown"
    last = known.iloc[-1]
    limit = "an unknown limit" if pd.isna(last["limit"]) else f"{last['limit']:,}"
    return f"{last['remaining']:,} of {limit} left"


# -- remaining ---------------------------------------------------------------------------------


def _chart_remaining(frame: pd.DataFrame) -> Chart:
    operations = _by_operation(frame, most=len(SERIES))
    if not operations:
        return figures.empty_chart("No readings yet. Make a request, such as me(), and draw again.")
    is_timed = _is_timed(frame)
    spans = _spans(pd.concat([readings["x"] for _, readings in operations]))
    panel_in = 1.6 if len(operations) < 4 else 1.25
    chart = Chart(1.0 + panel_in * len(operations))
    grid = chart.subplots(len(operations), len(spans), squeeze=False, sharex="col", sharey="row")
    for row, (name, readings) in enumerate(operations):
        for axes, (begin, end) in zip(grid[row], spans, strict=True):
            figures.lay_out(axes, is_timed=is_timed, most_ticks=9 // len(spans))
            _draw_panel(axes, readings[readings["x"].between(begin, end)], SERIES[row])
            margin = (end - begin) * _MARGIN or (_MOMENT if is_timed else 0.5)
            axes.set_xlim(begin - margin, end + margin)
        highest = readings[["limit", "remaining"]].max().max()
        top = 1 if pd.isna(highest) else max(int(highest), 1)
        grid[row][0].set_ylim(-0.04 * top, 1.1 * top)
        grid[row][0].set_yticks(sorted({0, top // 2, top}))
        grid[row][0].set_title(name, color=SERIES[row], fontweight="bold")
        grid[row][-1].set_title(_describe_last(readings), loc="right", fontsize=9)
    chart.share_legend(handlelength=1.6)
    title = f"Requests left in the window: {plural(len(frame), 'reading')}"
    total = len(frame[["method", "operation"]].drop_duplicates())
    title += f", {len(operations)} of {total} operations" if total > len(operations) else ""
    refused = int(is_exhausted(frame["status"], frame["remaining"]).fillna(False).sum())
    title += f", {refused:,} refused" if refused else ""
    chart.label(title, _describe_dates(spans, is_timed=is_timed))
    lines = "; ".join(f"{name}: {_describe_last(readings)}" for name, readings in operations)
    chart.alt_text = f"{title}. {lines}."
    return chart


def _spans(x: pd.Series[float]) -> list[_Span]:
    """Return the spans of time to draw: two if the readings have one long pause, else one.

    Without this, last month's recording and today's requests would be two dots at the ends of an
    axis. A pause is left out if it is over ten minutes and over 70 % of the whole time.
    """
    moments = np.sort(x.to_numpy())
    parts, pauses = [moments], np.diff(moments)
    if len(moments) >= _FEWEST_TO_SPLIT and pauses.max() >= max(
        _SHORTEST_BREAK_DAYS, _MOST_OF_A_SPAN * (moments[-1] - moments[0])
    ):
        parts = np.split(moments, [pauses.argmax() + 1])
    return [(float(part[0]), float(part[-1])) for part in parts]


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    for limit in readings["limit"].dropna().unique():
        axes.axhline(int(limit), color=INK, linestyle="--", linewidth=1, label="limit")
    windows = _windows(readings)
    for begin, end in windows.to_numpy() if len(windows) <= _MOST_WINDOWS else ():
        axes.axvspan(begin, end, color=figures.BAND, lw=0, zorder=0, label="window, to its renewal")
        axes.axvline(end, color=INK, linewidth=0.8, linestyle=":", zorder=1)
    # After a window ends its remaining is unknown, so the line has a gap until the next reading. In
    # a stable sort the gap comes before a reading at the same x.
    gaps = pd.DataFrame({"x": windows["end"], "remaining": np.nan})
    points = readings.dropna(subset=["remaining"])[["x", "remaining"]].astype(float)
    line = pd.concat([gaps, points]).sort_values("x", kind="stable")
    marker = "o" if len(line) <= _MOST_MARKED_POINTS else ""
    axes.step(*line.to_numpy().T, where="post", color=color, marker=marker, markersize=3.5)
    is_refused = is_exhausted(readings["status"], readings["remaining"]).fillna(False).astype(bool)
    _mark(axes, readings[is_refused], "x", figures.ALARM, "refused, nothing left")
    bad = readings[readings["problem"].notna()]
    _mark(axes, bad, "D", figures.WARNING, "headers with a problem")


def _windows(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the windows of one operation: ``begin``, the first reading, and ``end``, the renewal.

    A Reset in seconds that are rounded up gives a renewal that may be late but not early, so the
    earliest one is the end of the window.
    """
    known = readings.dropna(subset=["renews_x", "remaining"])
    is_renewed = (known["remaining"].diff() > 0).fillna(False).astype(bool)
    is_over = known["x"] >= known["renews_x"].shift()
    windows = known.groupby((is_renewed | is_over).cumsum()).agg(
        begin=("x", "first"), last=("x", "last"), end=("renews_x", "min")
    )
    end = (
        windows[["last", "end"]]
        .max(axis=1)
        .clip(upper=windows["begin"].shift(-1, fill_value=np.inf))
    )
    return windows.assign(end=end)[["begin", "end"]]


def _mark(axes: Axes, readings: pd.DataFrame, marker: str, color: str, label: str) -> None:
    """Mark readings, at 0 if they have no ``remaining``."""
    if len(readings):
        heights = readings["remaining"].fillna(0).astype(int)
        style: dict[str, Any] = {"fillstyle": "none", "markersize": 5.5, "markeredgewidth": 1.6}
        style |= {"clip_on": False, "in_layout": False, "zorder": 4}
        axes.plot(readings["x"], heights, marker, color=color, label=label, **style)


# -- allowances --------------------------------------------------------------------------------


def _chart_allowance(frame: pd.DataFrame) -> Chart:
    known = frame.dropna(subset=["limit", "remaining"])
    operations = _by_operation(known, most=_MOST_BARS)
    if not operations:
        return figures.empty_chart("No reading has a limit yet. Make a request, and draw again.")
    operations.sort(key=lambda operation: int(operation[1]["limit"].iloc[-1]))
    names = [name for name, _ in operations]
    last = pd.concat([readings.tail(1) for _, readings in operations])
    texts = [_describe_last(readings) for _, readings in operations]
    chart = Chart(0.9 + _BAR_IN * len(names))
    axes = chart.subplots()
    bars = axes.barh(names, last["limit"].astype(int), color=figures.UNFILLED, height=0.62)
    axes.bar_label(bars, texts, padding=6)
    axes.barh(names, last["remaining"].astype(int), color=SERIES[0], height=0.62)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_xlim(0, 1.25 * max(last["limit"].max(), 1))
    chart.label("Allowance by operation: requests in a window", "filled: left when last read")
    lines = [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
    chart.alt_text = f"Allowance by operation. {'; '.join(reversed(lines))}."
    return chart


# -- latencies ---------------------------------------------------------------------------------


def _chart_latency(frame: pd.DataFrame) -> Chart:
    known = frame[frame["elapsed_s"] > 0]
    operations = _by_operation(known, most=len(SERIES))
    if not operations:
        return figures.empty_chart("No latency is known yet. Make a request, and draw again.")
    chart, is_timed = Chart(3.2), _is_timed(known)
    axes = chart.subplots()
    for (name, readings), color, marker in zip(operations, SERIES, _MARKERS, strict=False):
        style: dict[str, Any] = {"color": color, "markersize": 4, "markeredgewidth": 0}
        axes.plot(readings["x"], readings["elapsed_s"], marker, alpha=0.8, label=name, **style)
    figures.lay_out(axes, is_timed=is_timed)
    median, high, slowest = (float(known["elapsed_s"].quantile(part)) for part in (0.5, 0.95, 1))
    if slowest >= _WIDE * median:
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_ylim(0, 1.1 * slowest)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _with_unit(value)))
    title = (
        f"Latency: {plural(len(known), 'response')}, median {_with_unit(median)}, "
        f"95 % within {_with_unit(high)}"
    )
    begin, end = axes.dataLim.intervalx
    chart.label(title, _describe_dates([(begin, end)], is_timed=is_timed))
    chart.share_legend(markerscale=1.6)
    chart.alt_text = f"{title}, slowest {_with_unit(slowest)}."
    return chart


def _with_unit(seconds: float) -> str:
    """Return a latency to three digits: ``"42 ms"``, ``"1.25 s"``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


_DRAWERS: Final = {
    "remaining": _chart_remaining,
    "allowance": _chart_allowance,
    "latency": _chart_latency,
}
