"""Where the tutorial notebooks are, and a copy of them to work in."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Final

FIRST: Final = "01-first-look.ipynb"

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
