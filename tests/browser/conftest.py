"""One Jupyter server, one Chromium and one page with JupyterLab, which the next test uses too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .jupyter import (
    WAIT_MS,
    Server,
    Tab,
    empty,
    find_chromium,
    launch,
    new_tab,
    running_server,
    shows_lab,
    shut_down_kernels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder, and skip it if there is no Chromium."""
    missing = find_chromium() is None
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.browser)
            if missing:
                item.add_marker(pytest.mark.skip(reason="no Chromium is installed"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Jupyter server for JupyterLab and Notebook 7."""
    with running_server(tmp_path_factory.mktemp("jupyter")) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = launch(driver.chromium)
        playwright.expect.set_options(timeout=WAIT_MS)
        yield chromium
        chromium.close()


class Tabs:
    """The browser's tabs. One that shows JupyterLab is kept for the next test."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self._browser, self._server = browser, server
        self._kept: Tab | None = None
        self._new: list[Tab] = []

    def new(self, *, width: int = 1280, height: int = 900) -> Page:
        """Open a page of its own, with nothing in its memory or storage."""
        self._new.append(new_tab(self._browser, self._server, width=width, height=height))
        return self._new[-1].page

    def kept(self) -> Page:
        """Return the page that is kept: loading JupyterLab took most of the time of a test."""
        if self._kept is None:
            self._kept = new_tab(self._browser, self._server)
        return self._kept.page

    def close(self, *, keep: bool) -> list[str]:
        """Close the new pages, empty the kept one, and return the foreign addresses of all."""
        tabs, kept = self._new, self._kept
        self._new, self._kept = [], None
        foreign = [address for tab in (*tabs, *([kept] if kept else [])) for address in tab.foreign]
        if keep and kept and shows_lab(kept.page, self._server) and empty(kept.page):
            kept.page.context.clear_permissions()
            kept.page.set_viewport_size({"width": 1280, "height": 900})
            kept.foreign.clear()
            self._kept = kept
        elif kept:
            tabs.append(kept)
        for tab in tabs:
            shut_down_kernels(tab.page)
            tab.page.context.close()
        return foreign


@pytest.fixture(scope="session")
def all_tabs(browser: Browser, server: Server) -> Tabs:
    """The tabs of all tests."""
    return Tabs(browser, server)


@pytest.fixture
def tabs(all_tabs: Tabs, server: Server, request: pytest.FixtureRequest) -> Iterator[Tabs]:
    """The tabs; after a test, without its documents, kernels and settings.

    If a page sends a request to anything but the Jupyter server, the test fails.
    """
    failed = request.session.testsfailed
    yield all_tabs
    foreign = all_tabs.close(keep=request.session.testsfailed == failed)
    server.restore_settings()
    assert foreign == []


@pytest.fixture
def new_page(tabs: Tabs) -> Callable[..., Page]:
    """A function that opens a new page of a given size, for what a page reads when it is loaded."""
    return tabs.new


@pytest.fixture
def page(tabs: Tabs, request: pytest.FixtureRequest) -> Page:
    """A page that may show JupyterLab already, with no document open. Notebook 7's is a new one."""
    is_notebook_7 = "app" in request.fixturenames and request.getfixturevalue("app") == "notebook"
    return tabs.new() if is_notebook_7 else tabs.kept()
