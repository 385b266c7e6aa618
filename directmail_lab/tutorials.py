"""The tutorial notebooks, a copy of them to work in, and new notebooks to start from."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

FIRST: Final = "01-first-look.ipynb"

EXPLORE: Final = (
    "# Explore a direct mail API\n\nRun each cell with Shift+Enter. The key stays in the kernel's "
    "memory: it is not in this notebook.",
    "import directmail_lab as dm\n\ndm.login()",
    "Your record, what is left of the allowance, and the same as a chart:",
    "dm.me()",
    "dm.rate_limits()",
    "dm.chart_rate_limits()",
)
"""The cells of a notebook to start from."""

_PACKAGE: Final = Path(__file__).resolve().parent
_COPY_NAME: Final = "directmail-lab-tutorials"


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from, or None."""
    root = _PACKAGE.parent
    return root if (root / "notebooks" / FIRST).is_file() else None


def workplace(beside: Path, *, within: Path | None = None) -> Path:
    """Return a folder with ``notebooks`` and ``cassettes`` that may be changed.

    In a checkout that is its root, if that lies in the folder ``within``. Else the tutorials are
    copied to a folder in ``beside``; ValueError if a link leads from there out of ``within``.
    """
    root, copy = checkout(), beside / _COPY_NAME
    if root is not None and (within is None or root.is_relative_to(within)):
        return root
    if within is not None:
        copy.resolve().relative_to(within)
    copy_tutorials(root or _PACKAGE / "packaged", copy)
    return copy


def copy_tutorials(source: Path, target: Path) -> None:
    """Copy ``notebooks`` and ``cassettes``; a file that is there already stays as it is."""
    for kind in ("notebooks", "cassettes"):
        for file in sorted((source / kind).rglob("*")):
            copy = target / file.relative_to(source)
            if file.is_file() and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
                if copy.suffix == ".ipynb":
                    _name_this_python(copy)


def _name_this_python(notebook: Path) -> None:
    """Write this Python's version into a notebook, or JupyterLab would, and show it as changed."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    content["metadata"]["language_info"]["version"] = sys.version.split()[0]
    text = json.dumps(content, ensure_ascii=False, indent=1)
    notebook.write_text(f"{text}\n", encoding="utf-8")


def first_tutorial(root: Path) -> Path:
    """Return the first tutorial in a server's folder; if it has none, they are copied there.

    Raises
    ------
    OSError
        The folder cannot be written to.
    ValueError
        A link leads out of the folder.
    """
    has_tutorials = (root / "notebooks" / FIRST).is_file()
    folder = root if has_tutorials else workplace(root, within=root)
    return folder / "notebooks" / FIRST


def notebook_of(cells: Iterable[str]) -> dict[str, Any]:
    """Return a notebook of these cells, in nbformat's form; a cell that calls ``dm`` is code."""
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {
        "cells": [
            {"id": f"cell-{number}", "metadata": {}, "source": source}
            | (code if "dm." in source else {"cell_type": "markdown"})
            for number, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
