"""Runs a tutorial notebook as a reader would, and keeps the outputs that everyone can see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import nbformat
from nbclient import NotebookClient

from directmail_lab.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["execute", "read", "run"]

_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_TIMEOUT_S: Final = 120


def execute(path: Path) -> None:
    """Run the notebook at ``path`` in a fresh kernel, with no key, and save its outputs in it."""
    notebook = read(path)
    run(notebook, path.parent)
    _keep_what_lasts(notebook)
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def read(path: Path) -> Any:
    """Return a notebook, in nbformat's current version."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def run(notebook: Any, folder: Path, *, environ: Mapping[str, str] | None = None) -> None:
    """Run a notebook in a fresh kernel in ``folder``, with no key; its outputs are set in place.

    ``environ`` is added to the kernel's environment.
    """
    keyless = {
        name: value
        for name, value in os.environ.items()
        if name not in (API_KEY_VARIABLE, BASE_URL_VARIABLE)
    }
    client = NotebookClient(
        notebook,
        timeout=_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env={**keyless, **(environ or {})})


def _keep_what_lasts(notebook: Any) -> None:
    """Drop what no viewer without this kernel can show, and what differs from run to run."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if _WIDGET not in each.get("data", {})]
