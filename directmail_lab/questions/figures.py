"""What all charts share: a figure that Jupyter shows as a PNG, one palette, one style.

Charts have no background of their own, and every colour is readable on a white and on a dark page:
text has a contrast of 4.3 on white and on JupyterLab's dark theme, marks and lines at least 3.7.
"""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import matplotlib.style
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours of about the same lightness; labels tell the series apart too. Vermilion is for ALARM.
SERIES: Final = ("#0B7FC4", "#128C6A", "#C05A9A", "#957600", "#7A7A7A", "#A8683A")
ALARM: Final = "#D95F0E"
WARNING: Final = "#8A68C8"
INK: Final = "#7A7A7A"
BAND: Final = (0.48, 0.55, 0.65, 0.14)
UNFILLED: Final = (0.48, 0.55, 0.65, 0.30)
_FAINT: Final = (0.48, 0.48, 0.48, 0.25)

_WIDTH_IN: Final = 8.0
# The PNG has twice the pixels that it is shown with, for screens of high resolution.
_SHOWN_DPI: Final = 96
_DPI: Final = 2 * _SHOWN_DPI
# For ticks at years, months, days, hours, minutes and seconds.
_TIME_FORMATS: Final = ("%Y", "%b %Y", "%-d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f")
_STYLE: Final[dict[str, Any]] = {
    "axes.edgecolor": _FAINT,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": _FAINT,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
}


def styled() -> AbstractContextManager[None]:
    """Return a context in which charts have our style, whatever the user's rcParams are."""
    context: AbstractContextManager[None] = matplotlib.style.context(["default", _STYLE])
    return context


class Chart(Figure):
    """A figure that is shown in a notebook as a PNG, with an alternative text.

    IPython shows a matplotlib figure as a PNG only after pyplot was set up in the kernel. This one
    needs no pyplot. The same data gives the same bytes, so running a notebook again does not change
    it.

    Attributes
    ----------
    alt_text
        The chart in a sentence or two, for readers who cannot see it.
    """

    def __init__(self, height_in: float, alt_text: str = "") -> None:
        """Make an empty chart of this height, title and legend included."""
        super().__init__(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
        self.alt_text = alt_text
        _refuse_pyplots_printers()

    def png(self) -> bytes:
        """Return the chart as a PNG file, transparent, without a date or version in it."""
        drawn, small = io.BytesIO(), io.BytesIO()
        with styled():
            self.savefig(drawn, format="png")
        palette = Image.open(drawn).quantize(256, Image.Quantize.FASTOCTREE)
        palette.save(small, "PNG", optimize=True)  # a third of the size
        return small.getvalue()

    def label(self, title: str, foot: str) -> None:
        """Write the chart's title, and ``foot`` at the lower right."""
        self.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        self.supxlabel(foot, x=0.99, ha="right", fontsize=8)

    def share_legend(self, **options: Any) -> None:
        """Add a legend at the lower left: one entry for each label, whichever panels have it."""
        panels = [axes.get_legend_handles_labels() for axes in self.axes]
        entries = {label: handle for panel in panels for handle, label in zip(*panel, strict=True)}
        self.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=4, **options)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        del include, exclude  # IPython passes them, and filters the result itself
        width, height = (round(inches * _SHOWN_DPI) for inches in self.get_size_inches())
        data: dict[str, object] = {"image/png": self.png(), "text/plain": self.alt_text}
        return data, {"image/png": {"alt": self.alt_text, "width": width, "height": height}}

    def __repr__(self) -> str:
        return f"<Chart: {self.alt_text}>"

    __str__ = __repr__


def _refuse_pyplots_printers() -> None:
    """Keep the formatters that pyplot registers in IPython for figures from showing a chart.

    Their result would replace that of ``_repr_mimebundle_``. IPython uses the formatter of the most
    specific type, and ignores a formatter that returns None.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        for kind in ("image/png", "image/svg+xml", "image/jpeg", "application/pdf"):
            shell.display_formatter.formatters[kind].for_type(Chart, lambda _: None)


def empty_chart(message: str) -> Chart:
    """Return a chart that says why it is empty and what to do."""
    chart = Chart(1.2, message)
    chart.text(0.5, 0.5, message, ha="center", va="center")
    return chart


def lay_out(axes: Axes, *, is_timed: bool, most_ticks: int = 8) -> None:
    """Give an axes a light horizontal grid, and an x axis of times (UTC) or of row numbers."""
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    if not is_timed:
        axes.xaxis.set_major_locator(MaxNLocator(most_ticks, integer=True))
        return
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=most_ticks)  # type: ignore[no-untyped-call]
    formats = {"formats": _TIME_FORMATS, "zero_formats": _TIME_FORMATS, "show_offset": False}
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC, **formats))  # type: ignore[no-untyped-call]
