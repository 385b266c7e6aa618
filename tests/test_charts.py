"""The chart: what it draws, and how a notebook shows it."""

import io
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from reading_samples import NOON_S, reading as sample

from directmail_lab.questions.chart import Chart, chart_rate_limits
from directmail_lab.readings.frame import frame_of
from directmail_lab.readings.reading import Reading


def reading(at: float, remaining: int | None, path: str = "/v1/users/me", **kw: Any) -> Reading:
    """Return a reading ``at`` seconds after noon; windows last a minute, from noon on."""
    return sample(NOON_S + at, path, **{"remaining": remaining, "reset": 60 - int(at) % 60, **kw})


def countdown(n: int) -> list[Reading]:
    """Return ``n`` readings, five a second, that count down from 299 in each minute."""
    return [reading(number / 5, 299 - number % 300) for number in range(n)]


def draw(readings: Sequence[Reading]) -> Chart:
    return chart_rate_limits(frame_of(readings, unit="seconds_left"))


@pytest.mark.parametrize("n", [0, 1, 10_000])
def test_a_chart_of_any_number_of_readings_is_a_small_png(n):
    """Its background is white, for light and for dark pages."""
    chart = draw(countdown(n))
    png = chart.png()

    assert isinstance(chart, Figure)
    assert png.startswith(b"\x89PNG")
    assert 2_000 < len(png) < 80_000
    assert set(imread(io.BytesIO(png))[0, 0]) == {1.0}
    assert bool(chart.axes) == (n > 0)
    assert n or "Make a request" in chart.alt_text


def test_a_reading_without_a_time_is_left_out():
    """A cassette of vcrpy has none where the service sent no Date."""
    chart = draw([sample(at) for at in (math.nan, NOON_S, NOON_S + 1)])

    assert 2 in [len(line.get_xdata()) for line in chart.axes[0].lines]
    assert "1 without a time left out" in chart.alt_text
    assert draw([sample(math.nan)]).alt_text == "1 reading without a time, and none with one."


def test_the_same_readings_are_the_same_bytes():
    """A notebook that runs again must not change, whatever the user's matplotlib style."""
    first = draw(countdown(50)).png()
    with mpl.rc_context({"font.size": 30, "timezone": "Asia/Tokyo", "axes.facecolor": "black"}):
        second = draw(countdown(50)).png()

    assert first == second
    assert b"atplotlib" not in first


def test_each_operation_has_a_panel_with_its_name_and_allowance():
    """The operations with most readings come first, at most six; methods are separate."""
    others = [reading(3, 9, f"/v1/{name}", method="POST") for name in "abcdef"]
    chart = draw([*countdown(3), *others])
    titles = [(axes.get_title("left"), axes.get_title("right")) for axes in chart.axes]

    assert len(titles) == 6
    assert titles[:2] == [("GET /v1/users/me", "297 of 300 left"), ("POST /v1/a", "9 of 300 left")]
    assert chart.get_suptitle().endswith("9 readings, 6 of 7 operations, nothing refused")
    assert chart.alt_text.startswith(chart.get_suptitle())


def test_operations_that_share_an_allowance_have_one_panel():
    """Readings of another server stay apart, whatever its limit is."""
    paths = ["/v1/lists", "/v1/letters"] * 3
    shared = [reading(at, 59 - at, path) for at, path in enumerate(paths)]
    other = reading(9, 40, "/v1/lists")._replace(elsewhere="https://files.example.com")
    chart = draw([*shared, other])

    assert [(axes.get_title("left"), axes.get_title("right")) for axes in chart.axes] == [
        ("Shared allowance of 300", "54 of 300 left"),
        ("GET https://files.example.com/v1/lists", "40 of 300 left"),
    ]


def test_the_accounts_of_two_sessions_have_panels_of_their_own():
    """Joined, a line would go up and down. Equal limits of two accounts are no shared allowance."""
    paths = ["/v1/lists", "/v1/letters"] * 3
    frame = frame_of(
        [reading(at, 59 - at, each) for at, each in enumerate(paths)] * 2, unit="seconds_left"
    )
    frame.insert(0, "recording", ["session 1"] * 6 + ["session 2"] * 6)
    chart = chart_rate_limits(frame.astype({"recording": "string"}))

    assert [panel.get_title("left") for panel in chart.axes] == [
        f"{name}: GET {path}" for path in paths[:2] for name in ("session 1", "session 2")
    ]


def test_the_line_follows_the_readings_and_ends_with_its_window():
    """Times are in UTC. The line stops at a renewal, because what remains is then unknown."""
    chart = draw([reading(50, 9), reading(55, 8), reading(150, 9)])
    (line,) = [each for each in chart.axes[0].lines if each.get_drawstyle() == "steps-post"]

    times = [f"{num2date(x):%T}" for x in line.get_xdata(orig=False)]
    assert list(map(str, line.get_ydata())) == ["9.0", "8.0", "nan", "9.0", "nan"]
    assert times == ["12:00:50", "12:00:55", "12:01:00", "12:02:30", "12:03:00"]


def test_the_axis_of_the_first_chart_is_a_minute_in_whole_seconds_with_its_date_once():
    """matplotlib would draw four years around the only reading."""
    (axes,) = draw([reading(5.3, 299, reset=None)]).axes
    start, end = (num2date(each) for each in axes.get_xlim())

    assert 60 <= (end - start).total_seconds() < 70
    assert axes.get_xlabel() == "21 November 2026, UTC"
    assert axes.xaxis.get_major_formatter()(axes.get_xticks()[1]).endswith((":10", ":20"))


def test_a_long_title_is_wrapped():
    frame = frame_of(countdown(2), unit="seconds_left")
    frame.attrs["source"] = "a recording with quite a long name, 12 interactions, " * 2
    chart = chart_rate_limits(frame)

    assert max(map(len, chart.get_suptitle().splitlines())) <= 76
    assert chart.get_suptitle().endswith("nothing refused")


def contrast_with_white(color: str) -> float:
    parts = [
        part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)
    ]
    luminance = sum(
        part * share for part, share in zip(parts, (0.2126, 0.7152, 0.0722), strict=True)
    )
    return 1.05 / (luminance + 0.05)


def test_every_text_and_line_of_a_chart_is_readable():
    """WCAG 2.2, success criterion 1.4.3."""
    chart = draw([*countdown(3), *[reading(3, 9, f"/v1/{name}", status=429) for name in "abcde"]])
    texts = chart.findobj(Text)
    lines = [line for axes in chart.axes for line in axes.lines]

    assert len(texts) > 30
    assert min(contrast_with_white(each.get_color()) for each in (*texts, *lines)) >= 4.5


@pytest.mark.parametrize(
    ("readings", "ends"),
    [
        # Reset is rounded up, so a later reading may show a later second for the same renewal.
        ([reading(0, 9), reading(0.9, 8, reset=61), reading(70, 7)], ["12:01:00", "12:02:00"]),
        # Remaining rises, so there was a renewal before the announced one.
        ([reading(0, 9), reading(20, 300), reading(21, 299)], ["12:00:20", "12:01:00"]),
    ],
)
def test_windows_are_shaded_to_their_renewal(readings, ends):
    """A window ends at the earliest announced renewal, or when Remaining rises."""
    shapes = [
        each.get_path().transformed(each.get_patch_transform())
        for each in draw(readings).axes[0].patches
    ]

    assert [f"{num2date(each.vertices[:, 0].max()):%T}" for each in shapes] == ends


def test_refusals_are_marked_and_explained():
    """A 429 is one, and the legend says if requests were left; other errors are none."""
    seen = [(0, 200), (0, 429), (0, 503), (5, 429), (5, 404)]
    readings = [reading(n, left, status=status) for n, (left, status) in enumerate(seen)]
    chart = draw(readings)
    legend = {text.get_text() for text in chart.legends[0].get_texts()}
    lines = [(line.get_marker(), len(line.get_xdata())) for line in chart.axes[0].lines]

    assert [count for marker, count in lines if marker in "x+"] == [1, 1]
    assert {"refused", "refused although requests were left"} <= legend
    assert "5 readings, 2 refused" in chart.alt_text


@pytest.mark.slow
def test_pyplot_does_not_change_how_a_chart_is_displayed():
    program = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from directmail_lab.questions.chart import chart_rate_limits
from directmail_lab.readings.frame import frame_of
from directmail_lab.readings.reading import RawValues, Reading
shell = InteractiveShell.instance()
line = Reading(1.0, "GET", "/v1/users/me", 200, RawValues(remaining="299"))
chart = chart_rate_limits(frame_of([line], unit="seconds_left"))
assert "matplotlib.pyplot" not in sys.modules
before = shell.display_formatter.format(chart)
select_figure_formats(shell, {"png", "svg"})
after = shell.display_formatter.format(chart)
assert before == after
data, metadata = before
assert set(data) == {"image/png", "text/html", "text/plain"}, set(data)
assert data["text/plain"] == chart.alt_text
assert f'alt="{chart.alt_text}"' in data["text/html"]
"""
    environment = {**os.environ, "IPYTHONDIR": os.devnull, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
