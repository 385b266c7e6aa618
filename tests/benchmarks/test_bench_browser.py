"""What the panel takes of Chromium with 5,000 rows, beside 100: as much, but to open it.

The panel is the page of a recording, so that no kernel and no JupyterLab is measured.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from browser.jupyter import WAIT_MS, find_chromium, launch
from cassette_samples import recorded
from polled import different

from directmail_lab.cassettes import read_cassette
from directmail_lab.share.cassette_page import save_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Turns
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
    pytest.mark.filterwarnings("ignore:The page contains"),
]

SIZES = (100, 5000)
TIMES = 5
"""What is done in a call: Chromium states the time of a process in steps of 10 ms."""

SCROLL = """async (grid) => {
  const frame = () => new Promise(requestAnimationFrame);
  for (let step = 0; step <= 10; step++) {
    grid.scrollTop = (grid.scrollHeight - grid.clientHeight) * step / 10;
    await frame();
    await frame();
  }
}"""


class Panel:
    """A page of a recording, and the processor's time that it took."""

    def __init__(self, browser: Browser, folder: Path, size: int) -> None:
        path = recorded(folder / f"{size}.yaml", *different(size))
        self.size = size
        self._address = save_page(read_cassette(path), path.with_suffix(".html")).as_uri()
        self._page = browser.new_context().new_page()
        self._tools = self._page.context.new_cdp_session(self._page)
        self._tools.send("Performance.enable")
        self._grid = self._page.get_by_role("grid")
        self.open()

    def used_s(self) -> float:
        metrics = self._tools.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "ProcessTime")

    def wait_for(self, row: int) -> None:
        self._grid.locator(f"[aria-rowindex='{row + 1}']:not([hidden])").wait_for(timeout=WAIT_MS)

    def open(self) -> None:
        self._page.goto(self._address)
        self.wait_for(1)

    def filter(self) -> None:
        box = self._page.get_by_role("searchbox")
        for text, count in ((f"page={self.size - 1}", 1), ("", self.size)):
            box.fill(text)
            self._page.locator(f"[role=grid][aria-rowcount='{count + 1}']").wait_for()

    def scroll(self) -> None:
        self._grid.evaluate(SCROLL)
        self.wait_for(self.size)


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Panel]]:
    """A panel of each size, each in a process of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    folder = tmp_path_factory.mktemp("pages")
    with playwright.sync_playwright() as driver:
        chromium = launch(driver.chromium)
        yield {f"{size:,} rows": Panel(chromium, folder, size) for size in SIZES}
        chromium.close()


@pytest.mark.parametrize("action", ["open", "filter", "scroll"])
def test_panel(in_turns: Turns, panels: dict[str, Panel], action: str) -> None:
    """Opening, filtering and showing all again, and scrolling down in ten steps."""

    def act(panel: Panel) -> None:
        for _ in range(TIMES):
            getattr(panel, action)()

    def used_s() -> float:
        return sum(panel.used_s() for panel in panels.values())

    calls = {name: partial(act, panel) for name, panel in panels.items()}
    in_turns(calls, {}, rounds=6, requests=TIMES, timer=used_s)
