"""How frames look in a notebook and in a terminal, while they stay plain frames."""

from __future__ import annotations

import io
import pickle
import re
import subprocess
import sys
from typing import Any

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

from directmail_lab.display import ProgressBar, as_html, as_text, readable

WIDE = {f"field_{n}": f"a value of some length {n}" for n in range(12)}


def shown(frame: pd.DataFrame) -> dict[str, Any]:
    """Return what IPython shows for a frame that is the value of a cell."""
    data: dict[str, Any] = DisplayFormatter().format(frame)[0]
    return data


def test_a_readable_frame_is_a_plain_frame() -> None:
    """The frame has pandas' type, equals its copy, and is pickled and copied like any other."""
    plain = pd.DataFrame({"a": [1, 2]})
    frame = readable(plain.copy())

    assert type(frame) is pd.DataFrame
    pd.testing.assert_frame_equal(plain, frame)
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(frame)), plain)
    assert not {"_repr_mimebundle_", "_readable"} & set(vars(frame.head()))
    assert frame.attrs == {}


def test_ipython_shows_html_and_text_alike() -> None:
    """HTML and text have the same cells, with text to the left and numbers to the right."""
    frame = readable(pd.DataFrame({"name": ["Ada", "Bo"]}))
    frame["n"] = [1, 20]  # the current contents are shown
    data = shown(frame)

    assert set(data) == {"text/html", "text/plain"}
    assert '<td style="text-align:left">Ada</td>' in data["text/html"]
    assert '<td style="text-align:right;white-space:nowrap">20</td>' in data["text/html"]
    assert data["text/plain"] == "   name   n\n0  Ada    1\n1  Bo    20"


def test_a_row_too_wide_for_the_page_has_a_line_for_each_field() -> None:
    """The frame itself still has one row."""
    frame = pd.DataFrame([WIDE])

    assert "field_0   a value of some length 0\n" in as_text(frame, width=200)
    assert as_html(frame).count("<tr>") == len(["field, value", *WIDE])
    assert frame.shape == (1, len(WIDE))


def test_empty_columns_are_named_and_not_shown() -> None:
    """A column with only missing values or empty texts is listed below the table."""
    text = as_text(pd.DataFrame({"a": [1, 2], "gone": [None, None], "blank": ["", pd.NA]}))

    assert text == "   a\n0  1\n1  2\nWithout a value: gone, blank."


def test_repeated_values_and_hidden_columns_are_not_shown() -> None:
    """A value that repeats the row above is left out, and so are columns with whole documents."""
    frame = pd.DataFrame({"rule": ["x", "x", "y"], "schema": [{}, {}, {}], "n": [1, 2, 3]})

    text = as_text(readable(frame, once=["rule"], hidden=["schema"]))
    assert text == "   rule  n\n0  x     1\n1        2\n2  y     3"


def test_times_are_to_the_second_and_durations_to_the_millisecond() -> None:
    """Times and durations are rounded, but the user's own numbers are not."""
    at = pd.to_datetime(["2026-11-21T04:00:00.066803Z"])
    frame = pd.DataFrame({"at": at, "elapsed_s": 0.0165481, "balance": 0.0165481})

    assert "2026-11-21 04:00:00Z      0.017  0.0165481" in as_text(frame).splitlines()


def test_long_text_is_wrapped_and_never_truncated() -> None:
    """No text is truncated in a page or a terminal. Columns that do not fit are listed."""
    frame = pd.DataFrame({"a": ["word " * 40, "x"], "b": ["y", "z"]})
    narrow = as_text(pd.DataFrame([WIDE, WIDE]), width=50)

    assert as_html(frame).count("word") == as_text(frame, width=60).count("word") == 40
    assert max(map(len, [*as_text(frame, width=50).splitlines(), *narrow.splitlines()])) <= 50
    assert "Not shown here: field_3, field_4" in narrow


def test_a_long_frame_shows_its_first_and_last_rows() -> None:
    """Ten rows of each end are shown, and the total."""
    frame = pd.DataFrame({"n": range(1000), "never": None})

    numbers = re.findall(r"^ *(\d+) ", as_text(frame), re.MULTILINE)
    assert list(map(int, numbers)) == [*range(10), *range(990, 1000)]
    assert as_text(frame).endswith("1,000 rows. Without a value: never.")


def test_no_markup_and_no_control_character_gets_through() -> None:
    """Names and values come from a service, or from a stranger's cassette."""
    evil = "<script>alert(1)</script>\x1b[2J\r\n\u202e"
    frame = pd.DataFrame({evil: [evil, evil], "b": [[evil, "\ud800"], {evil: 1}]})
    page, text = as_html(frame), as_text(frame, width=400)

    assert "<script" not in page
    assert {"\x1b", "\r", "\u202e", "\ud800"}.isdisjoint(page + text)
    assert len(text.splitlines()) == len(["names", *frame.index])


def test_a_cell_that_is_nested_too_deeply_shows_a_note() -> None:
    """A body may be nested too deeply for Python's recursion."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    assert "nested" in as_text(pd.DataFrame({"a": [deep, 1]}))


def test_a_progress_bar_is_drawn_in_a_terminal_and_is_one_line_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file, each update of the bar would be a line of its own."""
    with ProgressBar(3, delay_s=0.0, desc="GET") as bar:
        bar.update()
    redirected = capsys.readouterr().err
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar(3, delay_s=0.0, desc="GET", mininterval=0, miniters=1) as bar:
        bar.update(2)
        bar.update(2)  # more than the total

    assert redirected == "GET …\n"
    assert "2/3" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_a_progress_bar_of_a_script_does_not_load_ipython() -> None:
    """Importing IPython takes a second, in which other programs may use up the allowance."""
    program = """if True:
    import sys
    from directmail_lab.display import ProgressBar
    with ProgressBar(3, delay_s=0.0, desc="GET"):
        print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert "tqdm" in done.stdout.decode().split()
    assert "IPython" not in done.stdout.decode().split()
