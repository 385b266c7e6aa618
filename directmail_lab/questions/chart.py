"""The chart of readings: the requests remaining over time, a panel for each operation.

A chart has a white background, also on dark pages: no colour has a contrast of 4.5 with both (WCAG
2.2). Pyplot is neither used nor changed.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.dates import DateFormatter, date2num
from matplotlib.figure import Figure

from ..display import picture_html, plural, running_ipython
from ..readings.sharing import SharedAllowances, name_of_shared
from .sources import Sources, readings_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Labels tell the series apart as well. Vermilion marks refused requests.
_SERIES = ("#0072B2", "#00735A", "#A8377F", "#7A6200", "#616161", "#9A5222")
_REFUSED = "#B84500"
_INK = "#616161"
_WINDOW = "#79797933"  # the last two digits: how opaque it is
_TITLE_CHARACTERS = 76
_MINUTE = 1 / (24 * 60)  # matplotlib counts days
_INKED = ("text.color", "axes.titlecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_STYLE: dict[str, Any] = {
    **dict.fromkeys(_INKED, _INK),
    "axes.edgecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "date.converter": "concise",
    "legend.frameon": False,
    "text.parse_math": False,
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
        # Half as many pixels again as are shown, for screens of high resolution.
        super().__init__((8.0, height_in), dpi=144, layout="constrained")
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
        width, height = (round(inches * 96) for inches in self.get_size_inches())
        png = self.png()
        data: dict[str, object] = {
            "text/html": picture_html("image/png", png, self.alt_text, width),
            "image/png": png,
            "text/plain": self.alt_text,
        }
        return data, {"image/png": {"width": width, "height": height}}


@_styled
def chart_rate_limits(source: Sources | pd.DataFrame = None) -> Chart:
    """Draw a chart of the requests remaining over time.

    The chart has a panel for each of the six operations with the most readings,
    and one for operations that share an allowance, as their readings show. The
    limit is a dashed line. Windows are shaded if their renewal is known.
    Refused requests are marked. A reading without a time, as in some cassettes
    of vcrpy, is left out; the title says how many are.

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
    every = readings_of(source)
    frame = every.dropna(subset=["at"])
    left_out = len(every) - len(frame)
    operations = _by_operation(frame)
    if not operations:
        title = frame.attrs.get("source", "")
        message = "No readings yet. Make a request, such as dm.me(), and draw again."
        if left_out:
            message = f"{plural(left_out, 'reading')} without a time, and none with one."
        chart = Chart(1.2, f"{title}. {message}".removeprefix(". "))
        chart.text(0.5, 0.5, chart.alt_text, ha="center", va="center")
        return chart
    title = _title(frame, len(operations), left_out)
    shown = dict(operations[: len(_SERIES)])
    last = {name: _describe_last(readings) for name, readings in shown.items()}
    lines = "; ".join(f"{name}: {text}" for name, text in last.items())
    recorded = f", recorded {frame.attrs['recorded']}" if "recorded" in frame.attrs else ""
    title_lines = textwrap.wrap(title, _TITLE_CHARACTERS)
    chart = Chart(0.8 + 0.2 * len(title_lines) + 1.45 * len(shown), f"{title}{recorded}. {lines}.")
    panels = chart.subplots(len(shown), squeeze=False, sharex=True)[:, 0]
    legend: dict[str, Any] = {}
    for axes, color, name in zip(panels, _SERIES, shown, strict=False):
        axes.xaxis_date("UTC")  # a style does not set the user's time zone
        _draw_panel(axes, shown[name], color)
        axes.set_title(name, color=color, fontweight="bold")
        axes.set_title(last[name], loc="right")
        handles, labels = axes.get_legend_handles_labels()
        legend.update(zip(labels, handles, strict=True))
    _label_times(panels[-1], frame["at"])
    chart.legend(legend.values(), legend.keys(), loc="outside lower left", ncols=4)
    chart.suptitle("\n".join(title_lines), x=0.01, ha="left", fontsize=12, fontweight="bold")
    return chart


def _title(frame: pd.DataFrame, operations: int, left_out: int) -> str:
    source = frame.attrs.get("source") or plural(len(frame), "reading")
    title = f"Requests left, {source}"
    if operations > len(_SERIES):
        title += f", {len(_SERIES)} of {operations} operations"
    if left_out:
        title += f", {left_out:,} without a time left out"
    refused = len(_refused(frame))
    return f"{title}, {f'{refused:,}' if refused else 'nothing'} refused"


def _label_times(axes: Axes, times: pd.Series[Any]) -> None:
    """Label the axis of all panels: at least a minute, in whole seconds, and its date once."""
    first = times.min()
    last = times.max()
    start = float(date2num(first))  # type: ignore[no-untyped-call]
    axes.update_datalim([(start, 0), (start + _MINUTE, 0)])
    axes.autoscale_view(scaley=False)
    days = list(dict.fromkeys(f"{at.day} {at:%B %Y}" for at in (first, last)))
    axes.set_xlabel(f"{' to '.join(days)}, UTC")
    if len(days) == 1:
        axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S", "UTC"))  # type: ignore[no-untyped-call]


def _by_operation(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return pairs of an operation and its readings in order of time; most readings first."""
    table = frame.sort_values("at", kind="stable")
    groups = table.groupby(_allowances_of(table), sort=False)
    return sorted(groups, key=lambda group: -len(group[1]))


def _allowances_of(table: pd.DataFrame) -> pd.Series[str]:
    """Return the name of each reading's allowance: its operation, or the one that it shares."""
    names = table["method"] + " " + table["operation"]
    # At another server, an operation begins with the origin, and has its own allowance. So it does
    # where two sessions are drawn: each may be another account's.
    is_apart = table["operation"].str.contains("://")
    if "recording" in table:
        is_of_session = table["recording"].str.startswith("session ")
        names = (table["recording"] + ": ").where(is_of_session, "") + names
        is_apart |= is_of_session
    limits = table["limit"].mask(is_apart)
    known = pd.DataFrame({"name": names, "limit": limits, "left": table["remaining"]}).dropna()
    sharing = SharedAllowances()
    for each in known.itertuples(index=False):
        sharing.observe(*each)
    found = known["limit"].unique()
    shared = {limit: name_of_shared(limit) for limit in found if sharing.is_shared(limit)}
    return limits.map(shared).astype("string").fillna(names)


def _refused(readings: pd.DataFrame) -> pd.DataFrame:
    return readings[readings["status"] == 429]


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
    for begin, end in windows.itertuples(index=False):
        axes.axvspan(begin, end, color=_WINDOW, lw=0, label="window, to its renewal")
    # After a window ends its remaining is unknown, so the line has a gap until the next reading. In
    # a stable sort the gap comes before a reading at the same time.
    gaps = pd.DataFrame({"at": windows["end"], "remaining": np.nan})
    points = readings[["at", "remaining"]].dropna().astype({"remaining": float})
    line = pd.concat([each for each in (gaps, points) if len(each)] or [points])
    line = line.sort_values("at", kind="stable")
    axes.step(line["at"], line["remaining"], ".-", where="post", color=color)
    refused = _refused(readings)
    has_left = (refused["remaining"] > 0).fillna(False)
    for label, marker, marked in (
        ("refused", "x", refused[~has_left]),
        ("refused although requests were left", "+", refused[has_left]),
    ):
        if len(marked):
            heights = marked["remaining"].fillna(0).astype(int)
            axes.plot(marked["at"], heights, marker, color=_REFUSED, label=label)
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.05 * top, 1.05 * top)  # from 0, with room for marks


def _windows(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the windows of one operation: ``begin``, the first reading, and ``end``, the renewal.

    If Reset is in seconds, rounded up, a renewal may be late but never early. So a window ends at
    the earliest one.
    """
    known = readings.dropna(subset=["reset_at", "remaining"])
    is_new = (known["remaining"].diff() > 0) | (known["at"] >= known["reset_at"].shift())
    windows = known.groupby(is_new.fillna(False).cumsum())
    begin = windows["at"].min()
    end = windows["reset_at"].min()
    following = begin.shift(-1)
    return pd.DataFrame({"begin": begin, "end": end.mask(end > following, following)})
