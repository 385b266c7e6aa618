"""Where the tutorial notebooks are, and a copy of them to work in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

__all__ = ["COPY_NAME", "FIRST", "checkout", "packaged", "workplace"]

FIRST: Final = "01-first-look.ipynb"
COPY_NAME: Final = "directmail-lab-tutorials"

_PACKAGE: Final = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from, or None."""
    root = _PACKAGE.parent.parent
    return root if (root / "notebooks" / FIRST).is_file() else None


def packaged() -> Path:
    """Return the folder with ``notebooks`` and ``cassettes``: the checkout's or the wheel's."""
    return checkout() or _PACKAGE


def workplace(beside: Path) -> Path:
    """Return a folder with ``notebooks`` and ``cassettes`` that may be changed.

    In a checkout that is its root. Else the packaged ones are copied to a folder in ``beside``;
    a file that is there already stays as its owner left it.
    """
    root = checkout()
    if root is not None:
        return root
    copy = beside / COPY_NAME
    for kind in ("notebooks", "cassettes"):
        for source in sorted((_PACKAGE / kind).rglob("*")):
            target = copy / source.relative_to(_PACKAGE)
            if source.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    return copy
