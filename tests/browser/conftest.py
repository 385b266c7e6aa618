"""One Jupyter server and one Chromium for all browser tests, and a new page for each test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .jupyter import (
    Server,
    Tab,
    find_chromium,
    launch,
    new_tab,
    running_server,
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
        playwright.expect.set_options(timeout=30_000)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Browser, server: Server) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page of a given size; afterwards, restore all settings.

    If a page sends a request to anything but the Jupyter server, the test fails.
    """
    tabs: list[Tab] = []

    def opened(*, width: int = 1280, height: int = 900) -> Page:
        tabs.append(new_tab(browser, server, width=width, height=height))
        return tabs[-1].page

    yield opened
    for tab in tabs:
        shut_down_kernels(tab.page)
        tab.page.context.close()
    server.restore_settings()
    assert [tab.foreign for tab in tabs if tab.foreign] == []


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A page that can reach only the Jupyter server."""
    return new_page()
