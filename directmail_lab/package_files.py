"""The files of this package and its tutorials, by a list: never all that a folder contains."""

from __future__ import annotations

import glob
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from .errors import DirectMailLabError

_PACKAGE: Final = Path(__file__).resolve().parent
_TUTORIALS: Final = "directmail_lab/packaged/"


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from; None if installed."""
    root = _PACKAGE.parent
    is_installed = (_PACKAGE / "packaged").is_dir() or not (root / "pyproject.toml").is_file()
    return None if is_installed else root


def package_files() -> dict[str, Path]:
    """Return each file of this package's wheel, by its place in the wheel.

    In a checkout, these are the files that ``include`` in pyproject.toml names, which a build also
    reads. Otherwise, they are the files that pip wrote down when it installed the package.
    """
    if (root := checkout()) is None:
        files = distribution("directmail-lab").files
        if files is None:
            raise DirectMailLabError(
                "The list of directmail_lab's files is missing.", "Install directmail-lab again."
            )
        placed = {each.as_posix(): Path(str(each.locate())) for each in files}
        return {
            place: path
            for place, path in placed.items()
            if place.startswith("directmail_lab/") and path.suffix != ".pyc"
        }
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    build = settings["tool"]["hatch"]["build"]
    moved: dict[str, str] = build["targets"]["wheel"]["sources"]
    found: dict[str, Path] = {}
    for pattern in build["include"]:
        # Not Path.glob, which also finds hidden folders, such as Jupyter's checkpoints.
        for name in sorted(glob.glob(pattern.lstrip("/"), root_dir=root)):  # noqa: PTH207
            path = Path(name)
            folder = moved.get(path.parts[0], path.parts[0])
            found[f"{folder}/{Path(*path.parts[1:]).as_posix()}"] = root / path
    return found


def tutorial_files() -> dict[str, Path]:
    """Return each file of the tutorials, by its place such as ``notebooks/README.md``."""
    return {
        place.removeprefix(_TUTORIALS): path
        for place, path in package_files().items()
        if place.startswith(_TUTORIALS)
    }
