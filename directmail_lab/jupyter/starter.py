"""Notebooks to start from: a new one in a folder, and a copy of the tutorials to change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..tutorials import FIRST, workplace

EXPLORE: Final = (
    "# Explore a direct mail API\n\nRun each cell with Shift+Enter. The key stays in the kernel's "
    "memory: it is not in this notebook.",
    "import directmail_lab as dm\n\ndm.login()",
    "Your record, what is left of the allowance, and the same as a chart:",
    "dm.me()",
    "dm.rate_limits()",
    "dm.chart_rate_limits()",
)


def notebook_of(cells: Iterable[str]) -> dict[str, Any]:
    """Return a notebook of these cells, in nbformat's form; a cell that calls ``dm`` is code."""
    made: list[dict[str, Any]] = []
    for number, source in enumerate(cells):
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": source}
        if "dm." in source:
            made.append(cell | {"cell_type": "code", "execution_count": None, "outputs": []})
        else:
            made.append(cell | {"cell_type": "markdown"})
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def first_tutorial(root: Path) -> Path:
    """Return the first tutorial in the server's folder; where there is none, a copy is made there.

    Raises
    ------
    OSError
        Where it cannot be written.
    ValueError
        Where a link leads out of the folder.
    """
    has_them = (root / "notebooks" / FIRST).is_file()
    folder = root if has_them else workplace(root, within=root)
    return folder / "notebooks" / FIRST
