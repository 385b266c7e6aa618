"""The pages of recordings and notebooks, opened from disk in a real Chromium without scripts."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from cassette_samples import NOON, answered, get, post, recorded, typed
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Browser, Page, expect

from directmail_lab.cassettes import read_cassette
from directmail_lab.exchange.bodies import missing_body
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.share.cassette_page import save_page
from directmail_lab.share.notebook_page import page_of as page_of_notebook

from .jupyter import new_context
from .test_browse import MARKUP, PNG
from .test_looks import unreadable

pytestmark = pytest.mark.filterwarnings("ignore:The page contains")


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a file, without scripts unless it is asked for them."""
    contexts = []

    def opened(path: Path, *, java_script_enabled: bool = False, **options: Any) -> Page:
        context = new_context(browser, java_script_enabled=java_script_enabled, **options)
        contexts.append(context)
        page = context.new_page()
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def page_of(path: Path, *interactions: Interaction) -> Path:
    return save_page(read_cassette(recorded(path, *interactions)), path.with_suffix(".html"))


def every_kind() -> list[Interaction]:
    lost = Response(0, cut="read_timeout", error="timed out")
    return [
        answered(body='{"city": "Z\\u00fcrich \\ud83d\\ude00", "n": 12345678901234567890}'),
        answered(post('{"city": "Zürich"}'.encode()), "[1, 2.50]", status=201),
        typed("application/octet-stream", bytes(range(256)) * 3),
        typed("image/png", PNG),
        typed("text/html", MARKUP),
        typed("text/plain", "x" * 100_000 + "Zürich"),
        replace(answered(), response=replace(answered().response, body=missing_body(5000))),
        Interaction(get("/v1/slow"), lost, NOON, 5.0),
        replace(answered(get("/v1/again"), status=429), recorded_at=None, elapsed_s=None),
        answered(get("/v1/" + "long" * 100)),
    ]


def test_each_interaction_opens_by_a_click_on_its_address(tmp_path, open_file):
    """It shows request and response whole, and says what is missing."""
    page = open_file(page_of(tmp_path / "tour.yaml", *every_kind()))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(10)
    expect(rows.first.locator("pre").first).to_be_hidden()
    for number in range(9):
        rows.nth(number).locator("summary").click()
    expect(rows.first).to_contain_text('"city": "Zürich 😀",\n  "n": 12345678901234567890')
    expect(rows.nth(1).locator("pre").nth(1)).to_have_text('{\n  "city": "Zürich"\n}')
    expect(rows.nth(2)).to_contain_text("(768 bytes, not text)")
    expect(rows.nth(3).get_by_role("img")).to_have_js_property("naturalWidth", 1)
    expect(rows.nth(5)).to_contain_text("… (100,006 characters in all)")
    expect(rows.nth(6)).to_contain_text("(not recorded: 5000 bytes)")
    expect(rows.nth(7)).to_contain_text("no response came (read timeout): timed out after 5.000 s")
    cells = rows.nth(8).locator("td").all_inner_texts()

    assert cells[:6] == ["9", "", "GET", "429", "299", ""]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280])
def test_every_text_is_readable_and_nothing_is_cut(tmp_path, open_file, scheme, width):
    """In light and dark, on a telephone and on a screen, with every interaction open."""
    size = {"width": width, "height": 900}
    path = page_of(tmp_path / "tour.yaml", *every_kind())
    path.write_text(path.read_text("utf-8").replace("<details>", "<details open>"), "utf-8")
    page = open_file(path, java_script_enabled=True, color_scheme=scheme, viewport=size)
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")

    assert unreadable(page, "html") == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert (background == "rgb(33, 33, 33)") == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_notebooks_page_follows_the_readers_colours(tmp_path, open_file, scheme):
    """Text, code, errors and tables are readable, and a chart keeps its light background."""
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_html()
    outputs = [
        new_output("display_data", data={"text/html": table}),
        new_output("display_data", data={"image/png": base64.b64encode(PNG).decode()}),
        new_output("stream", name="stdout", text="printed\n"),
        new_output("stream", name="stderr", text="a warning\n"),
    ]
    cells = [
        new_markdown_cell("# Title\n\nText with `code` and [a link](https://api.test)."),
        new_code_cell("x = 'text'  # comment\nfor n in range(3): print(n, x)", outputs=outputs),
    ]
    path = tmp_path / "report.html"
    notebook = nbformat.writes(new_notebook(cells=cells))
    made, _ = page_of_notebook(notebook.encode(), "report", about="Data of May", files={})
    path.write_bytes(made)
    page = open_file(path, java_script_enabled=True, color_scheme=scheme)
    color = "element => getComputedStyle(element).backgroundColor"
    paper = page.locator("body").evaluate(color)
    picture = page.locator(".jp-RenderedImage img").evaluate(color)

    assert [text for _, text in unreadable(page, "body") if "¶" not in text] == []
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert scheme == "light" or picture == "rgb(255, 255, 255)"
