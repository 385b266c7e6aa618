"""``directmail-lab lab``: JupyterLab on the tutorials, with nothing fetched from outside."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from directmail_lab.tutorials import FIRST, workplace

__all__ = ["lab_arguments", "open_lab"]

# The news pop-up asks a server outside; only this setting keeps it from the page altogether.
_PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


def open_lab(beside: Path, *, port: int | None, browser: bool) -> None:
    """Run JupyterLab on the first tutorial until it is ended.

    From a checkout the tutorials are its own; from an installed wheel they are copied to a folder
    in ``beside`` first, and what is there already is kept.
    """
    from jupyterlab.labapp import LabApp

    folder = workplace(beside)
    with tempfile.TemporaryDirectory(prefix="directmail-lab-") as config:
        _configure(Path(config))
        LabApp.launch_instance(lab_arguments(folder, port=port, browser=browser))


def lab_arguments(folder: Path, *, port: int | None, browser: bool) -> list[str]:
    """Return the arguments that start JupyterLab on ``folder`` without asking the network."""
    return [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/notebooks/{FIRST}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        "--LabApp.extension_manager=readonly",
        *([] if browser else ["--no-browser"]),
        *([] if port is None else [f"--port={port}"]),
        # Debian's root is nobody's browser user, but containers run as root all the same.
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]


def _configure(folder: Path) -> None:
    """Put our page settings before the user's, for this process and its children only."""
    (folder / "labconfig").mkdir()
    (folder / "labconfig" / "page_config.json").write_text(json.dumps(_PAGE_CONFIG))
    before = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [str(folder), before]))
