"""The command `directmail-lab` as its user sees it: JupyterLab with the first tutorial."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from directmail_lab.share.package_files import checkout
from directmail_lab.share.tutorials import FIRST

from .jupyter import (
    Tab,
    command,
    new_tab,
    run_all,
    started,
    wait_for_kernel,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, FloatRect, Page

# Set this to a folder to save the pictures for the README files.
PICTURES = os.environ.get("DIRECTMAIL_LAB_PICTURES")
ROOT = checkout()
assert ROOT is not None
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page that the command's address opens. Requests to the outside are noted."""
    home = tmp_path_factory.mktemp("command")
    folder = tmp_path_factory.mktemp("new")
    with started(home, "directmail_lab", "--no-browser", "--port", "0", at=folder) as server:
        tab = new_tab(browser, server, width=1360, height=1000)
        tab.page.goto(server.address)
        tab.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        tab.page.wait_for_function("() => window.jupyterapp")
        wait_for_kernel(tab.page)
        yield tab
        tab.page.context.close()


def test_the_command_opens_the_first_notebook(lab: Tab) -> None:
    """The printed address is that of the notebook, and no pop-up covers it."""
    opened = lab.page.evaluate("jupyterapp.shell.currentWidget.title.label")

    assert opened == FIRST
    assert lab.page.evaluate("jupyterapp.commands.hasCommand('directmail-lab:tutorials')")
    assert lab.page.locator(".Toastify__toast").count() == 0


def open_in_jupyterlab(page: Page, path: str) -> None:
    """Open a notebook in the JupyterLab that is shown, and wait until its kernel is idle."""
    command(page, "docmanager:open", path=path)
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
    wait_for_kernel(page)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_of_a_tutorial_runs(lab: Tab, name: str) -> None:
    """Without key and network, Run All reaches the end, and the charts are drawn."""
    page = lab.page
    open_in_jupyterlab(page, f"notebooks/{name}")
    run_all(page)
    panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    failures = panel.locator('[data-mime-type="application/vnd.jupyter.error"]').count()
    charts = panel.locator(".jp-OutputArea-output img").count()
    texts = panel.locator(".jp-CodeCell").all_inner_texts()
    asked = sum(re.search(r"^dm\.chart", text, re.MULTILINE) is not None for text in texts)
    if PICTURES:
        for _ in range(2):  # widgets above the heading grow when they come into view, and move it
            panel.locator("h2").nth(2).evaluate("heading => heading.scrollIntoView()")
            page.wait_for_timeout(500)
        upper: FloatRect = {"x": 0, "y": 0, "width": 1360, "height": 850}
        page.screenshot(path=f"{PICTURES}/{name[3:].removesuffix('.ipynb')}.png", clip=upper)

    assert failures == 0
    assert charts >= asked
    assert lab.foreign == []
