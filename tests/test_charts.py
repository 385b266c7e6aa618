"""Charts: what is drawn, and how it is shown in a notebook."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from directmail_lab.readings.log import frame_readings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from PIL import Image
from reading_samples import NOON_S, reading as sample

from directmail_lab.questions.chart import Chart, chart_rate_limits
from directmail_lab.readings.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.lines import Line2D

    Draw = Callable[[pd.DataFrame], Chart]

chart_allowance = partial(chart_rate_limits, kind="allowance")
chart_latency = partial(chart_rate_limits, kind="latency")
EVERY_CHART = pytest.mark.parametrize("draw", [chart_rate_limits, chart_allowance, chart_latency])


def reading(at: float, remaining: int | None, **changes: Any) -> Reading:
    """One reading, ``at`` seconds after noon, in windows of a minute from noon on."""
    fields = {"remaining": remaining, "reset": 60 - int(at) % 60, "elapsed_s": 0.04, **changes}
    return sample(NOON_S + at, **fields)


def countdown(n: int, *, every_s: float = 0.2, limit: int = 300) -> list[Reading]:
    """``n`` readings of one operation that counts down, is refused, and is renewed each minute."""
    made, minute, used = [], -1, 0
    for number in range(n):
        at = number * every_s
        if int(at) // 60 != minute:
            minute, used = int(at) // 60, 0
        refused = used >= limit
        used += not refused
        made.append(reading(at, limit - used, status=429 if refused else 200, limit=limit))
    return made


def frame(readings: Sequence[Reading]) -> pd.DataFrame:
    return frame_readings(readings, reset_unit="seconds_left")


def markers(chart: Chart, marker: str) -> list[Line2D]:
    return [line for axes in chart.axes for line in axes.lines if line.get_marker() == marker]


def steps(chart: Chart, panel: int = 0) -> Line2D:
    """The line of what remains: the solid one that is drawn in steps."""
    lines = chart.axes[panel].lines
    return next(each for each in lines if each.get_drawstyle() == "steps-post")


@EVERY_CHART
@pytest.mark.parametrize("n", [0, 1, 10_000])
def test_a_chart_of_any_number_of_readings_is_a_small_png(draw: Draw, n: int) -> None:
    """None, one and ten thousand alike; small enough to be kept in a notebook."""
    chart = draw(frame(countdown(n)))
    png = chart.png()

    assert isinstance(chart, Figure)
    assert png.startswith(b"\x89PNG")
    assert 2_000 < len(png) < 60_000
    assert bool(chart.axes) == (n > 0)
    assert n or "Make a request" in chart.alt_text


def test_a_chart_has_no_background_and_reads_on_any() -> None:
    """No white slab on a dark page, and no colour that is lost on a light or a dark one."""
    readings = [*countdown(60), reading(13, 0, status=429), reading(14, None, problem="missing")]
    for kind in ("remaining", "allowance", "latency"):
        chart = chart_rate_limits(frame(readings), kind=kind)
        pixels = np.asarray(Image.open(io.BytesIO(chart.png())).convert("RGBA"))
        solid = np.unique(pixels[pixels[:, :, 3] > 240][:, :3], axis=0) / 255
        light = np.where(solid <= 0.04045, solid / 12.92, ((solid + 0.055) / 1.055) ** 2.4)
        luminance = light @ [0.2126, 0.7152, 0.0722]

        assert (pixels[:, :, 3] < 64).mean() > 0.5  # but for the shade of windows
        assert (1.05 / (luminance + 0.05)).min() > 3  # on white
        assert ((luminance + 0.05) / 0.0556).min() > 3  # on #111111, JupyterLab's dark page


@EVERY_CHART
def test_readings_without_times_are_drawn_by_number(draw: Draw) -> None:
    """vcrpy's cassettes have no times: the order is kept, and the axis says what it is."""
    times = [math.nan, *(NOON_S + n for n in range(4))]
    for at in (times, [math.nan] * 5):
        made = [reading(n, 299 - n)._replace(at=at[n]) for n in range(5)]
        chart = draw(frame_readings(made))

        assert not any("1970" in text.get_text() for text in chart.texts)
        if draw is not chart_allowance:
            assert "by number" in chart.texts[1].get_text()
            assert list(chart.axes[0].lines[-1].get_xdata()) == [0, 1, 2, 3, 4]


@EVERY_CHART
def test_readings_that_tell_little_are_drawn_all_the_same(draw: Draw) -> None:
    """Headers that were missing, a latency that is not known; very many of one moment."""
    bare = [reading(n, None, limit=None, elapsed_s=None, problem="missing") for n in range(3)]

    for readings in (bare, [reading(0, 7)] * 5_000):
        assert draw(frame(readings)).png().startswith(b"\x89PNG")


@EVERY_CHART
def test_the_same_readings_are_the_same_bytes(draw: Draw) -> None:
    """So that a notebook that is run again gives no diff, whatever the user's matplotlib style."""
    first = draw(frame(countdown(50))).png()
    with mpl.rc_context({"font.size": 30, "timezone": "Asia/Tokyo", "axes.facecolor": "black"}):
        second = draw(frame(countdown(50))).png()

    assert first == second
    assert b"atplotlib" not in first


def test_each_operation_has_its_panel_with_its_name_and_what_is_left() -> None:
    """The most read first, six at most; methods are told apart."""
    lists = {"operation": "/v1/lists", "limit": 60}
    readings = [*countdown(3), reading(1, 59, **lists), reading(2, 58, **lists)]
    readings += [reading(3, 9, operation=f"/v1/{n}", method="POST") for n in range(6)]
    chart = chart_rate_limits(frame(readings))
    titles = [(axes.get_title("left"), axes.get_title("right")) for axes in chart.axes]

    assert len(titles) == 6
    assert titles[:3] == [
        ("GET /v1/users/me", "297 of 300 left"),
        ("GET /v1/lists", "58 of 60 left"),
        ("POST /v1/0", "9 of 300 left"),
    ]
    assert "6 of 8 operations" in chart.texts[0].get_text()


def test_the_line_is_the_readings_and_ends_with_its_window() -> None:
    """At their times, in UTC; from a renewal to the next reading nothing is known."""
    chart = chart_rate_limits(frame([reading(50, 9), reading(55, 8), reading(150, 9)]))
    line = steps(chart)

    assert list(map(str, line.get_ydata())) == ["9.0", "8.0", "nan", "9.0", "nan"]
    assert [f"{num2date(x):%F %T}" for x in line.get_xdata()][1:3] == [
        "2026-11-21 12:00:55", "2026-11-21 12:01:00",
    ]  # fmt: skip


def test_each_limit_is_a_dashed_line() -> None:
    """Right across the panel."""
    chart = chart_rate_limits(frame([reading(0, 299), reading(1, 98, limit=100)]))
    dashed = [line for line in chart.axes[0].lines if line.get_linestyle() == "--"]

    assert [list(line.get_ydata()) for line in dashed] == [[300, 300], [100, 100]]


def test_windows_are_shaded_to_the_earliest_renewal_that_they_told() -> None:
    """Seconds are rounded up: a later reading may tell a later second of the same renewal."""
    chart = chart_rate_limits(frame([reading(0, 9), reading(0.9, 8), reading(70, 7)]))
    ends = [patch.get_corners()[2, 0] for patch in chart.axes[0].patches]
    unknown = chart_rate_limits(frame_readings([reading(0, 299)]))

    assert [f"{num2date(each):%T}" for each in ends] == ["12:01:00", "12:02:00"]
    assert not unknown.axes[0].patches
    assert [text.get_text() for text in unknown.legends[0].get_texts()] == ["limit"]


def test_refusals_and_bad_headers_are_marked_and_explained() -> None:
    """A 429, an error with nothing left, and a row with a problem; a plain 404 is no refusal."""
    readings = [
        reading(0, 0),
        reading(1, 0, status=429),
        reading(2, 0, status=503),
        reading(3, None, status=500),
        reading(3, 5, status=404),
        reading(4, None, problem="X-RateLimit-Remaining is missing"),
    ]
    chart = chart_rate_limits(frame(readings))
    legend = {text.get_text() for text in chart.legends[0].get_texts()}

    assert [len(line.get_xdata()) for line in markers(chart, "x")] == [2]
    assert [len(line.get_xdata()) for line in markers(chart, "D")] == [1]
    assert {"refused, nothing left", "headers with a problem"} < legend
    assert "6 readings, 2 refused" in chart.alt_text


def test_a_slow_series_is_no_series_of_recordings() -> None:
    """Thirty readings, an hour apart each, are drawn as one; so is a single one."""
    for n in (1, 30):
        assert len(chart_rate_limits(frame(countdown(n, every_s=3600))).axes) == 1


def test_a_recording_and_today_are_drawn_side_by_side() -> None:
    """The month between a replay and a live request is left out."""
    old = [reading(n - 30 * 86_400, 299 - n) for n in range(5)]
    new = [reading(n, 299 - n) for n in range(5)]
    chart = chart_rate_limits(frame(old + new))
    widths = [axes.get_xlim()[1] - axes.get_xlim()[0] for axes in chart.axes]

    assert len(chart.axes) == 2
    assert max(widths) < 10 / 86_400
    assert "22 Oct 2026, 21 Nov 2026, UTC" in [text.get_text() for text in chart.texts]


@pytest.mark.slow
def test_every_pixel_keeps_its_colour() -> None:
    """A palette of few colours does not give up the rarest, such as that of a single mark."""
    readings = [reading(n, 9, operation=f"/v1/{name}") for n, name in enumerate("abcdef")]
    chart = chart_rate_limits(frame([*countdown(60), *readings, reading(13, 0, status=429)]))
    canvas = FigureCanvasAgg(chart)
    canvas.draw()
    pictures = [
        Image.open(io.BytesIO(chart.png())),
        Image.fromarray(np.asarray(canvas.buffer_rgba())),
    ]
    for page in ("white", "black"):
        kept, drawn = (
            np.asarray(
                Image.alpha_composite(Image.new("RGBA", one.size, page), one.convert("RGBA"))
            )
            for one in pictures
        )

        assert np.abs(kept.astype(int) - drawn).max() < 40


def test_allowance_bars_are_the_last_sound_reading_of_each_operation() -> None:
    """The limit behind, what is left in front, the numbers beside."""
    readings = [
        reading(0, 9),
        reading(1, 250),
        reading(2, None, problem="missing"),
        reading(3, 20, operation="/v1/lists", limit=60),
    ]
    chart = chart_allowance(frame(readings))
    widths = sorted(bar.get_width() for bar in chart.axes[0].patches)

    assert widths == [20, 60, 250, 300]
    assert [text.get_text() for text in chart.axes[0].texts] == ["20 of 60 left", "250 of 300 left"]


def test_latency_names_the_median_and_the_slow_end() -> None:
    """In milliseconds; on a log scale where one response was very slow."""
    quick = [reading(n, 9, elapsed_s=0.05) for n in range(99)]
    plain = chart_latency(frame(quick))
    wide = chart_latency(frame([*quick, reading(99, 9, elapsed_s=9.0)]))

    assert (plain.axes[0].get_yscale(), wide.axes[0].get_yscale()) == ("linear", "log")
    assert "median 50 ms, 95 % within 50 ms" in wide.alt_text
    assert "slowest 9 s" in wide.alt_text


def test_times_are_labelled_in_utc() -> None:
    """Whatever matplotlib's own time zone is."""
    with mpl.rc_context({"timezone": "Asia/Tokyo"}):
        chart = chart_rate_limits(frame(countdown(5, every_s=1)))
        chart.png()
        labels = [label.get_text() for label in chart.axes[0].get_xticklabels()]

    assert labels
    assert all(label.startswith("12:00:0") for label in labels)


@pytest.mark.slow
def test_a_chart_is_shown_once_as_a_png_with_words_whatever_pyplot_set_up() -> None:
    """IPython alone, and IPython after pyplot registered its printers, give the same output."""
    program = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from directmail_lab.questions.chart import chart_rate_limits
from directmail_lab.readings.reading import Reading
from directmail_lab.readings.log import frame_readings
shell = InteractiveShell.instance()
line = (1.0, "GET", "/v1/users/me", "/v1/users/me", 200, 300, 299, 60)
chart = chart_rate_limits(frame_readings([Reading(*line)]), kind="allowance")
assert "matplotlib.pyplot" not in sys.modules
before = shell.display_formatter.format(chart)
select_figure_formats(shell, {"png", "svg"})
after = shell.display_formatter.format(chart)
assert before == after
assert set(before[0]) == {"image/png", "text/plain"}, set(before[0])
assert before[1]["image/png"]["alt"] == before[0]["text/plain"] == chart.alt_text
"""
    environment = {**os.environ, "IPYTHONDIR": os.devnull, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
