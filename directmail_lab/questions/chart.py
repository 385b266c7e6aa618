"""The chart of readings: the requests remaining over time, a panel for each operation.

The columns ``x`` (when the response arrived) and ``renews_x`` are in matplotlib's unit, days since
1970 (UTC). If a reading has no time, as in some cassettes of vcrpy, ``x`` is the reading's number
instead.

A chart has no background, since it appears on light and on dark pages. The luminance of its colours
is about 0.19, so their contrast with both is above 4 (WCAG 2.2). Pyplot is neither used nor
changed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..display import plural, running_ipython
from ..readings.reading import OTHER_RESETS, is_exhausted
from ..readings.sharing import SharedAllowances, name_of_shared
from .sources import Source, readings_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Labels tell the series apart as well. Vermilion marks refused requests.
_SERIES = ("#007EC5", "#008A69", "#BC5397", "#957500", "#797979", "#B06730")
_REFUSED = "#CE5100"
_PROBLEM = "#8867C7"
_INK = "#797979"
_LINE = "#79797966"  # the last two digits: how opaque it is
_WINDOW = "#79797933"

# The PNG has half as many pixels again, for screens of high resolution.
_SHOWN_DPI = 96
_MOST_MARKED_POINTS = 60
_MOST_WINDOWS = 40

# For ticks at years, months, days, hours, minutes and seconds.
_TIME_FORMATS = ("%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f")
_INKED = ("text.color", "axes.titlecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_HIDDEN = ("axes.spines.left", "axes.spines.right", "axes.spines.top", "legend.frameon")
_STYLE: dict[str, Any] = {
    **dict.fromkeys(_INKED, _INK),
    **dict.fromkeys(_HIDDEN, False),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "axes.edgecolor": _LINE,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": _LINE,
    "text.parse_math": False,
    "ytick.major.size": 0,
}
# A decorator that keeps the user's own style out.
_styled = matplotlib.style.context(["default", _STYLE])


class Chart(Figure):
    """A matplotlib figure that a notebook shows as a PNG with an alternative text.

    IPython shows other figures as a PNG only after pyplot was set up in the kernel. The same data
    gives the same bytes, so running a notebook again does not change it.

    Attributes
    ----------
    alt_text
        The chart in a sentence or two, for readers who cannot see it.
    """

    def __init__(self, height_in: float, alt_text: str) -> None:
        super().__init__((8.0, height_in), dpi=1.5 * _SHOWN_DPI, layout="constrained")
        self.alt_text = alt_text
        # pyplot registers formatters for figures in IPython, whose result would replace that of
        # `_repr_mimebundle_`. IPython uses the one of the most specific type, and ignores None.
        shell = running_ipython()
        for kind in ("image/png", "image/svg+xml", "image/jpeg", "application/pdf"):
            if shell is not None:
                shell.display_formatter.formatters[kind].for_type(Chart, lambda _: None)

    @_styled
    def png(self) -> bytes:
        """Return the chart as a PNG file, without a date or version in it."""
        file = io.BytesIO()
        self.savefig(file, metadata={"Software": None}, pil_kwargs={"optimize": True})
        return file.getvalue()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, object], dict[str, object]]:
        width, height = (round(inches * _SHOWN_DPI) for inches in self.get_size_inches())
        data: dict[str, object] = {"image/png": self.png(), "text/plain": self.alt_text}
        return data, {"image/png": {"alt": self.alt_text, "width": width, "height": height}}


@_styled
def chart_rate_limits(source: Source | Iterable[Source] | pd.DataFrame = None) -> Chart:
    """Draw a chart of the requests remaining over time.

    The chart has a panel for each of the six operations with the most readings,
    and one for operations that share an allowance, as their readings show. The
    limit is a dashed line. Windows are shaded if their renewal is known.
    Refused requests and headers with a problem are marked, but not a Reset that
    is a decimal number or a date.

    Parameters
    ----------
    source
        As in `directmail_lab.rate_limits`, or a frame that it returned. The
        chart's title names it: ``first-look (replayed), 41 interactions``.

    Examples
    --------
    >>> chart = dm.chart_rate_limits("first-look")
    >>> [panel.get_title("left") for panel in chart.axes]
    ['GET /v1/lists', 'GET /v1/users/me']
    """
    frame = readings_of(source)
    is_timed = bool(frame["at"].notna().all())
    operations = _by_operation(frame, is_timed=is_timed)
    if not operations:
        title = frame.attrs.get("source", "")
        message = "No readings yet. Make a request, such as me(), and draw again."
        chart = Chart(1.2, f"{title}. {message}".removeprefix(". "))
        chart.text(0.5, 0.5, chart.alt_text, ha="center", va="center")
        return chart
    title = _title(frame, len(operations))
    shown = dict(operations[: len(_SERIES)])
    last = {name: _describe_last(readings) for name, readings in shown.items()}
    alt_text = title
    if "recorded" in frame.attrs:
        alt_text += f", recorded {frame.attrs['recorded']}"
    lines = "; ".join(f"{name}: {text}" for name, text in last.items())
    chart = Chart(1.0 + 1.45 * len(shown), f"{alt_text}. {lines}.")
    panels = chart.subplots(len(shown), squeeze=False, sharex=True)[:, 0]
    for axes, color, name in zip(panels, _SERIES, shown, strict=False):
        _draw_panel(axes, shown[name], color)
        axes.set_title(name, color=color, fontweight="bold")
        axes.set_title(last[name], loc="right")
    x = pd.concat(list(shown.values()))["x"]
    _label_x(panels[-1], x.min(), x.max(), is_timed=is_timed)
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    chart.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=4)
    chart.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return chart


def _title(frame: pd.DataFrame, operations: int) -> str:
    source = frame.attrs.get("source") or plural(len(frame), "reading")
    title = f"Requests left in the window: {source}"
    if operations > len(_SERIES):
        title += f", {len(_SERIES)} of {operations} operations"
    refused = len(_refused(frame))
    if refused:
        title += f", {refused:,} refused"
    return title


def _by_operation(frame: pd.DataFrame, *, is_timed: bool) -> list[tuple[str, pd.DataFrame]]:
    """Return pairs of an operation and its readings sorted by ``x``; most readings first."""
    if is_timed:
        table = frame.assign(x=_days(frame["at"]), renews_x=_days(frame["reset_at"]))
    else:
        table = frame.assign(x=np.arange(1.0, len(frame) + 1), renews_x=np.nan)
    table = table.sort_values("x", kind="stable")
    groups = table.groupby(_allowances_of(table), sort=False)
    return sorted(groups, key=lambda group: -len(group[1]))


def _allowances_of(table: pd.DataFrame) -> pd.Series[str]:
    """Return the name of each reading's allowance: its operation, or the one that it shares."""
    names = (table["method"] + " " + table["operation"]).tolist()
    # At another server, an operation begins with the origin, and has its own allowance.
    own = table[["limit", "remaining"]].mask(table["operation"].str.contains("://"))
    sharing = SharedAllowances()
    for name, limit, left in zip(
        names, own["limit"].tolist(), own["remaining"].tolist(), strict=True
    ):
        if limit is not pd.NA and left is not pd.NA:
            sharing.observe(name, limit, left)
    limits = own["limit"].dropna().unique()
    shared = {limit: name_of_shared(limit) for limit in limits if sharing.is_shared(limit)}
    return own["limit"].map(shared).astype("string").fillna(pd.Series(names, table.index))


def _days(times: pd.Series[pd.Timestamp]) -> pd.Series[float]:
    return (pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def _refused(readings: pd.DataFrame) -> pd.DataFrame:
    refused: pd.Series[bool] = is_exhausted(readings["status"], readings["remaining"])
    return readings[refused.fillna(False)]


def _describe_last(readings: pd.DataFrame) -> str:
    """Return the last reading that has ``remaining`` in words: ``"260 of 300 left"``."""
    known = readings.dropna(subset=["remaining"])
    if known.empty:
        return "remaining unknown"
    remaining, limit = known.iloc[-1][["remaining", "limit"]]
    return f"{remaining:,} left" if pd.isna(limit) else f"{remaining:,} of {limit:,} left"


def _draw_panel(axes: Axes, readings: pd.DataFrame, color: str) -> None:
    for limit in readings["limit"].dropna().unique():
        axes.axhline(int(limit), color=_INK, linestyle="--", linewidth=1, label="limit")
    windows = _windows(readings)
    for begin, end in windows.to_numpy()[:_MOST_WINDOWS]:
        axes.axvspan(begin, end, color=_WINDOW, lw=0, zorder=0, label="window, to its renewal")
        axes.axvline(end, color=_INK, linewidth=0.8, linestyle=":", zorder=1)
    # After a window ends its remaining is unknown, so the line has a gap until the next reading. In
    # a stable sort the gap comes before a reading at the same x.
    gaps = pd.DataFrame({"x": windows["end"], "remaining": np.nan})
    points = readings.dropna(subset=["remaining"])[["x", "remaining"]].astype(float)
    if len(gaps) and len(points):  # pandas 2 warns about empty ones
        points = pd.concat([gaps, points])
    line = points.sort_values("x", kind="stable")
    marker = "o" if len(line) <= _MOST_MARKED_POINTS else ""
    axes.step(*line.to_numpy().T, where="post", color=color, marker=marker, markersize=3.5)
    _mark(axes, _refused(readings), "x", _REFUSED, "refused, nothing left")
    has_problem = readings["problem"].notna() & ~readings["problem"].isin(OTHER_RESETS)
    _mark(axes, readings[has_problem], "D", _PROBLEM, "with a problem")
    highest = readings[["limit", "remaining"]].max().max()
    top = 1 if pd.isna(highest) else max(int(highest), 1)
    axes.set_ylim(-0.04 * top, 1.1 * top)
    axes.set_yticks(sorted({0, top // 2, top}))
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)


def _windows(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the windows of one operation: ``begin``, the first reading, and ``end``, the renewal.

    If Reset is in seconds, rounded up, a renewal may be late but never early. So a window ends at
    the earliest one.
    """
    known = readings.dropna(subset=["renews_x", "remaining"])
    is_new = (known["remaining"].diff() > 0) | (known["x"] >= known["renews_x"].shift())
    windows = known.groupby(is_new.fillna(False).cumsum())
    begin = windows["x"].min()
    end = windows["renews_x"].min().clip(upper=begin.shift(-1))
    return pd.DataFrame({"begin": begin, "end": end})


def _mark(axes: Axes, readings: pd.DataFrame, marker: str, color: str, label: str) -> None:
    """Mark readings, at 0 if they have no ``remaining``."""
    if len(readings):
        style: dict[str, Any] = {"fillstyle": "none", "clip_on": False, "zorder": 4}
        heights = readings["remaining"].fillna(0).astype(int)
        axes.plot(readings["x"], heights, marker, color=color, label=label, **style)


def _label_x(axes: Axes, begin: float, end: float, *, is_timed: bool) -> None:
    """Label the axis with times and the day (UTC), or with numbers."""
    # 2 % of the range on each side; for a single reading half a second, or half a number.
    margin = (end - begin) * 0.02 or (0.5 / 86_400 if is_timed else 0.5)
    axes.set_xlim(begin - margin, end + margin)
    if not is_timed:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel("by number: not every response has a time", loc="right")
        return
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=8)  # type: ignore[no-untyped-call]
    formats = {"formats": _TIME_FORMATS, "zero_formats": _TIME_FORMATS, "show_offset": False}
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC, **formats))  # type: ignore[no-untyped-call]
    days = dict.fromkeys(f"{pd.Timestamp(each, unit='D'):%d %b %Y}" for each in (begin, end))
    axes.set_xlabel(f"{' to '.join(days)}, UTC", loc="right")
