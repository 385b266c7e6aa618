"""Runs a tutorial notebook as a reader would, and keeps the outputs that everyone can see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import nbformat
from nbclient import NotebookClient

from directmail_lab.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["execute", "run"]

_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_TIMEOUT_S: Final = 120


def execute(path: Path) -> None:
    """Run the notebook at ``path`` in a fresh kernel, with no key, and save its outputs in it."""
    notebook = run(path)
    _keep_what_lasts(notebook)
    nbformat.write(notebook, path)


def run(path: Path) -> Any:
    """Run the notebook at ``path`` in a fresh kernel, with no key, and return it."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    keyless = {
        name: value
        for name, value in os.environ.items()
        if name not in (API_KEY_VARIABLE, BASE_URL_VARIABLE)
    }
    client.execute(env=keyless)
    return notebook


def _keep_what_lasts(notebook: Any) -> None:
    """Drop what no viewer without this kernel can show, and what differs from run to run."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(_WIDGET, None)
