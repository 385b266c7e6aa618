"""Runs a tutorial notebook as a reader would, and keeps the outputs that everyone can see."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_output

from directmail_lab.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["execute", "read", "run"]

_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_TIMEOUT_S: Final = 120

# Cells that show a widget, and its picture beside the notebook.
_PICTURED: Final = {"dm.login()": "images/sign-in-picture.png"}
_PICTURE_WIDTH: Final = 472


def execute(path: Path) -> None:
    """Run the notebook at ``path`` in a fresh kernel, with no key, and save its outputs in it."""
    notebook = read(path)
    run(notebook, path.parent)
    _keep_what_lasts(notebook, path.parent)
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


def _keep_what_lasts(notebook: Any, folder: Path) -> None:
    """Drop what no viewer without this kernel can show, and what differs from run to run."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if _WIDGET not in each.get("data", {})]
            if cell.source in _PICTURED:
                cell.outputs.append(_picture(folder / _PICTURED[cell.source]))


def _picture(path: Path) -> Any:
    """Return a picture as a cell's output: what a widget looks like where none can be shown."""
    data = {"image/png": b64encode(path.read_bytes()).decode("ascii")}
    # Drawn at twice the size that it is shown at.
    size = {"image/png": {"width": _PICTURE_WIDTH}}
    return new_output("display_data", data, metadata=size)  # type: ignore[no-untyped-call]
