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
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, num2date
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

# Colours of about the same lightness; labels tell the series apart too. Vermilion is for ALARM.
SERIES: Final = ("#0B7FC4", "#128C6A", "#C05A9A", "#957600", "#7A7A7A", "#A8683A")
ALARM: Final = "#D95F0E"
WARNING: Final = "#8A68C8"
INK: Final = "#7A7A7A"
BAND: Final = (0.48, 0.55, 0.65, 0.14)
UNFILLED: Final = (0.48, 0.55, 0.65, 0.30)
_FAINT: Final = (0.48, 0.48, 0.48, 0.25)

WIDTH_IN: Final = 8.0
# Free space at the top for the title, and at the bottom for the text there.
AROUND_IN: Final = 0.35
# The PNG has twice the pixels that it is shown with, for screens of high resolution.
_SHOWN_DPI: Final = 96
_DPI: Final = 2 * _SHOWN_DPI
# The format of times on an axis that shows more than so many days: the first line that applies.
_TIME_FORMATS: Final = (
    (2, "%-d %b"),
    (5 / 1440, "%H:%M"),
    (4 / 86400, "%H:%M:%S"),
    (0, "%H:%M:%S.%f"),
)
_TO_THE_MILLISECOND: Final = len("12:00:00.123")
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
        """Make a chart with room for a title at the top and for text at the bottom."""
        around = AROUND_IN / height_in
        arranging = ConstrainedLayoutEngine(rect=(0, around, 1, 1 - 2 * around))
        super().__init__(figsize=(WIDTH_IN, height_in), dpi=_DPI, layout=arranging)
        self.alt_text = alt_text
        _refuse_pyplots_printers()

    def png(self) -> bytes:
        """Return the chart as a PNG file, transparent, without a date or version in it."""
        canvas = FigureCanvasAgg(self)
        with styled():
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        buffer = io.BytesIO()
        _small_picture(pixels).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()

    def label(self, title: str, foot: str) -> None:
        """Write the chart's title, and ``foot`` at the lower right."""
        x, y = 0.08 / WIDTH_IN, 0.08 / self.get_figheight()
        self.text(x, 1 - y, title, va="top", fontsize=11, fontweight="bold")
        self.text(1 - x, y, foot, ha="right", fontsize=8)

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


def _small_picture(pixels: NDArray[np.uint8]) -> Image.Image:
    """Return pixels as a picture with a palette, its colours slightly rounded: a smaller file.

    Pillow's own ways to make a palette may drop a rare colour, such as that of a single mark.
    """
    steps = np.array([8, 8, 8, 17])
    rounded = np.minimum(np.rint(pixels / steps) * steps, 255).astype(np.uint8)
    rounded[rounded[..., 3] == 0] = 0
    colors, places = np.unique(rounded.view(np.uint32), return_inverse=True)
    if len(colors) > 256:
        return Image.fromarray(rounded)
    picture = Image.fromarray(places.reshape(pixels.shape[:2]).astype(np.uint8), "P")
    picture.putpalette(colors.view(np.uint8).tobytes(), "RGBA")
    return picture


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


def lay_out(axes: Axes, *, timed: bool, most_ticks: int = 8) -> None:
    """Give an axes a light horizontal grid, and an x axis of times (UTC) or of row numbers."""
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    if not timed:
        axes.xaxis.set_major_locator(MaxNLocator(most_ticks, integer=True))
        return
    locator = AutoDateLocator(  # type: ignore[no-untyped-call]
        tz=UTC, minticks=2, maxticks=most_ticks
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: _time_text(axes, place)))


def _time_text(axes: Axes, place: float) -> str:
    """Return a tick's time, as precise as the span shown requires."""
    begins, ends = axes.get_xlim()
    layout = next(each for days, each in _TIME_FORMATS if ends - begins > days)
    moment = num2date(place, tz=UTC)  # type: ignore[no-untyped-call]
    return f"{moment:{layout}}"[:_TO_THE_MILLISECOND]
