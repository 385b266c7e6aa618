"""The tutorial notebooks, copies of them to work in, and new notebooks to start from."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from errno import ENOENT
from pathlib import Path
from typing import Any

from .notebook_page import import_nbformat
from .package_files import tutorial_files

FIRST = "01-first-look.ipynb"


def shared_notebook(folder: Path) -> Path | None:
    """Return the first notebook of an unpacked zip of `share`; None for another folder."""
    notebooks = sorted((folder / "notebooks").glob("*.ipynb"))
    is_shared = notebooks and any(folder.glob("directmail_lab-*.whl"))
    return notebooks[0] if is_shared else None


def first_tutorial(folder: Path) -> Path:
    """Return the first tutorial of a folder's ``notebooks``.

    If it is not there, the tutorials are copied into a folder below; your files are kept.

    Raises
    ------
    FileNotFoundError
        This package came with a shared notebook, without the tutorials.
    OSError
        The folder cannot be written to.
    ValueError
        A link leads out of the folder.
    """
    first = folder / "notebooks" / FIRST
    if first.is_file():
        return first
    if f"notebooks/{FIRST}" not in tutorial_files():
        raise FileNotFoundError(ENOENT, "the package of a shared notebook has no tutorials")
    home = folder / "directmail-lab-tutorials"
    # This raises the ValueError.
    home.resolve().relative_to(folder.resolve())
    copy_tutorials(home)
    return home / "notebooks" / FIRST


def copy_tutorials(target: Path) -> None:
    """Copy the tutorials' ``notebooks`` and ``cassettes``; a file that exists stays unchanged."""
    for place, file in tutorial_files().items():
        copy = target / place
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def explore_cells(cassette: str) -> tuple[str, ...]:
    """Return the cells of a notebook to start from, which records to a cassette of this name."""
    return (
        "# Explore a direct mail API\n\nRun each cell with Shift+Enter. The key stays in the "
        "kernel's memory: it is not in this notebook.",
        "import directmail_lab as dm\n\ndm.login()",
        "From here on, each request is sent and recorded. A reader without a key replays the last "
        "responses, so you can share this notebook with `directmail-lab share`.",
        f'dm.record("{cassette}")',
        "Your record:",
        "dm.me()",
        "The panel lists each request with its response, as it happens. **New request** writes "
        "another one.",
        "dm.browse()",
        "Your rate limits, and the rate limits as a chart:",
        "dm.rate_limits()",
        "dm.chart_rate_limits()",
    )


def notebook_of(sources: Iterable[str]) -> dict[str, Any]:
    """Return a notebook of these cells in nbformat's form. A cell that contains ``dm.`` is code."""
    new = import_nbformat().v4
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    notebook: dict[str, Any] = new.new_notebook(metadata={"kernelspec": kernel})
    for source in sources:
        make = new.new_code_cell if "dm." in source else new.new_markdown_cell
        notebook["cells"].append(make(source))
    return notebook
