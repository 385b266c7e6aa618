"""The command `directmail-lab` as its user sees it: JupyterLab with the first tutorial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directmail_lab.share.tutorials import FIRST

from .jupyter import new_tab, run_all, started, wait_for_kernel

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_the_command_opens_the_first_notebook_which_runs(browser: Browser, tmp_path: Path) -> None:
    """No pop-up covers it. Without key and network, Run All reaches the end."""
    (tmp_path / "new").mkdir()
    arguments = ("--no-browser", "--port", "0")
    with started(tmp_path, "directmail_lab", *arguments, at=tmp_path / "new") as server:
        tab = new_tab(browser, server)
        page = tab.page
        page.goto(server.address)
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        page.wait_for_function("() => window.jupyterapp")
        wait_for_kernel(page)
        opened = page.evaluate("jupyterapp.shell.currentWidget.title.label")
        covering = page.locator(".Toastify__toast").count()
        run_all(page)
        failures = page.locator('[data-mime-type="application/vnd.jupyter.error"]').count()
        charts = page.locator(".jp-OutputArea-output img").count()
        page.context.close()

    assert (opened, covering, failures) == (FIRST, 0, 0)
    assert charts > 0
    assert tab.foreign == []
