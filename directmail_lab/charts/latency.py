"""The chart of latencies: over time, and how they are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..display import plural
from .figure import MUTED, TRACK, Chart, color_of, quiet, styled, tell_time, without_data
from .thinning import by_operation
from .wording import seconds_in_words, span_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["chart_latency"]

_SIZE_IN: Final = (8.0, 3.2)
_MOST_OPERATIONS: Final = 6
_MOST_POINTS: Final = 1_500
_BINS: Final = 40
_WIDE: Final = 20.0


def chart_latency(frame: pd.DataFrame) -> Chart:
    """Draw how long each response took: over time by operation, and how that is spread.

    Parameters
    ----------
    frame
        What `rate_limits()` gives: any number of rows; those without ``elapsed_s`` are left out. Of
        very many, the slowest and a sample are drawn; the spread counts all.

    Returns
    -------
    Chart
        With the median and the 95th percentile named. On a log scale where the slowest took twenty
        times the median or more.
    """
    timed = frame[frame["elapsed_s"] > 0]
    operations = by_operation(timed, most=_MOST_OPERATIONS)
    with styled():
        if not operations:
            return without_data("No latency is known yet. Make a request, and draw again.")
        return _drawn(timed["elapsed_s"].to_numpy(dtype=float), operations)


def _drawn(seconds: NDArray[np.float64], operations: list[tuple[str, pd.DataFrame]]) -> Chart:
    chart = Chart(*_SIZE_IN)
    over_time, spread = chart.subplots(1, 2, sharey=True, width_ratios=[4, 1])
    for number, (name, readings) in enumerate(operations):
        sampled = _sampled(readings)
        over_time.plot(
            sampled["at"], sampled["elapsed_s"], "o", color=color_of(number), markersize=3,
            alpha=0.7, markeredgewidth=0, label=name,
        )  # fmt: skip
    median, high = np.quantile(seconds, [0.5, 0.95])
    _scale(over_time, seconds, median)
    _draw_spread(spread, seconds, over_time.get_ylim(), log=over_time.get_yscale() == "log")
    for value, name in ((median, "median"), (high, "95%")):
        over_time.axhline(value, color=MUTED, linewidth=0.8, linestyle=":")
        spread.axhline(value, color=MUTED, linewidth=0.8, linestyle=":")
        spread.annotate(
            f"{name} {seconds_in_words(value)}", (1, value), xytext=(4, 0), fontsize=8,
            xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
        )  # fmt: skip
    shown = pd.concat([readings["at"] for _, readings in operations])
    title = f"Latency: {plural(len(seconds), 'response')}"
    chart.head(title)
    chart.foot(span_in_words([(shown.min(), shown.max())]))
    if len(operations) > 1:
        chart.legend(loc="outside lower left", ncols=3, fontsize=8, labelcolor=MUTED)
    chart.alt_text = (
        f"{title}. Median {seconds_in_words(median)}, 95th percentile {seconds_in_words(high)}, "
        f"slowest {seconds_in_words(seconds.max())}."
    )
    return chart


def _sampled(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the readings, or of very many the first and the slowest of each stretch of them."""
    if len(readings) <= _MOST_POINTS:
        return readings
    seconds = readings["elapsed_s"].reset_index(drop=True)
    stretches = seconds.groupby(np.arange(len(readings)) * _MOST_POINTS // (2 * len(readings)))
    places = pd.concat([stretches.idxmax(), stretches.apply(lambda each: each.index[0])])
    return readings.iloc[sorted(set(places))]


def _scale(axes: Axes, seconds: NDArray[np.float64], median: float) -> None:
    quiet(axes)
    tell_time(axes)
    if seconds.max() >= _WIDE * median:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", left=False)
    else:
        axes.set_ylim(0, 1.1 * seconds.max())
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_in_words(value)))


def _draw_spread(
    axes: Axes, seconds: NDArray[np.float64], limits: tuple[float, float], *, log: bool
) -> None:
    low, high = limits
    edges = np.geomspace(low, high, _BINS) if log else np.linspace(low, high, _BINS)
    axes.hist(seconds, bins=list(edges), orientation="horizontal", color=TRACK)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.tick_params(axis="y", which="both", labelleft=False, left=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
