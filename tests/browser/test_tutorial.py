"""The command `directmail-lab`, as its user meets it: JupyterLab with the first tutorial."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from directmail_lab.tutorials import FIRST, checkout

from .jupyter import Server, new_tab, run_all, wait_for_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

# Set it to a file's name to keep the picture that the README shows.
PICTURE = os.environ.get("DIRECTMAIL_LAB_PICTURE")


@contextlib.contextmanager
def started_command(home: Path) -> Iterator[tuple[Server, str]]:
    """Run the command itself; its settings are a newcomer's, but for the hook to drive it."""
    (home / "config").mkdir(parents=True)
    hook = {"LabApp": {"expose_app_in_browser": True}}
    (home / "config" / "jupyter_lab_config.json").write_text(json.dumps(hook))
    folders = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    lab = {"SETTINGS_DIR": "settings", "WORKSPACES_DIR": "workspaces"}
    environment = {
        **{name: value for name, value in os.environ.items() if "DIRECTMAIL" not in name},
        **{f"JUPYTER_{name}": str(home / folder) for name, folder in folders.items()},
        **{f"JUPYTERLAB_{name}": str(home / folder) for name, folder in lab.items()},
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "directmail_lab", "--no-browser", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=checkout(),
    )
    with process:
        try:
            assert process.stdout is not None
            said = iter(process.stdout)
            address = next(found[0] for line in said if (found := re.search(r"http\S+", line)))
            yield Server(address.split("/lab")[0], home, process), address
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_the_command_opens_the_tutorial_and_every_cell_runs(
    browser: Browser, tmp_path: Path
) -> None:
    """No key, no network, no pop-up: the notebook opens, runs to its end, and shows its charts."""
    with started_command(tmp_path / "home") as (server, address):
        tab = new_tab(browser, server, width=1360, height=1000)
        page = tab.page
        page.goto(address)
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        page.wait_for_function("() => window.jupyterapp")
        wait_for_kernel(page)
        run_all(page)
        failures = page.locator('[data-mime-type="application/vnd.jupyter.error"]').count()
        charts = page.locator(".jp-OutputArea-output img").count()
        opened = page.evaluate("jupyterapp.shell.currentWidget.title.label")
        pop_ups = page.locator(".Toastify__toast").count()
        if PICTURE:
            page.evaluate(
                "document.querySelectorAll('.jp-RenderedMarkdown h2')[1].scrollIntoView()"
            )
            page.screenshot(path=PICTURE)
        page.context.close()

    assert opened == FIRST
    assert (failures, pop_ups) == (0, 0)
    assert charts >= 2
    assert tab.foreign == []
