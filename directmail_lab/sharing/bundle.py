"""What goes into a zip of notebooks: their pictures, and the cassettes that their code names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ..cassettes import find_cassette
from ..errors import CassetteError, DirectMailLabError, NotRecordedError
from ..settings import CASSETTES_VARIABLE, variable
from .references import cassette_uses, code_cells, imported_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .references import CassetteUse

__all__ = ["PICTURE_SUFFIXES", "Bundle", "UnresolvedCassetteWarning"]

_PICTURE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)|<img[^>]+src=[\"']([^\"']+)", re.IGNORECASE)
PICTURE_SUFFIXES: Final = frozenset((".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"))
"""The files that come along because a text shows them; nothing in them is searched."""


class UnresolvedCassetteWarning(UserWarning):
    """A notebook names a cassette in a way that only running it would tell."""


@dataclass(slots=True)
class Bundle:
    """The files of a zip by their place in it, and what is wrong with them."""

    files: dict[PurePosixPath, Path] = field(default_factory=dict)
    notebooks: list[str] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    recorded: set[str | PurePath] = field(default_factory=set)
    missing: dict[str | PurePath, str] = field(default_factory=dict)

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, its pictures, and the cassettes that its code names."""
        parsed = _parsed(path)
        self._add(PurePosixPath("notebooks", path.name), path)
        self.notebooks.append(path.name)
        cells = code_cells(parsed)
        self.imports |= imported_packages(cells)
        for picture in _pictures(parsed, path.parent):
            self._add(PurePosixPath("notebooks", picture), path.parent / picture)
        for use in cassette_uses(cells):
            if use.cassette is None:
                _warn(path, use)
                continue
            self.add_cassette(use.cassette, f"{path.name}, cell {use.cell}", path.parent)
            if use.records:
                self.recorded.add(use.cassette)

    def add_cassette(self, cassette: str | PurePath, where: str | None, folder: Path) -> None:
        """Add a cassette that is named in ``folder``, or note that there is none."""
        try:
            file = _find(cassette, folder)
        except CassetteError:
            self.missing.setdefault(cassette, where or "share(cassettes=…)")
            return
        self._add(_place(cassette, file, named_by_hand=where is None), file)

    def check(self) -> None:
        """Refuse a package that could not be run: what is missing is not made by its code."""
        missing = [
            f"{str(cassette)!r} ({where})"
            for cassette, where in self.missing.items()
            if cassette not in self.recorded
        ]
        if missing:
            raise DirectMailLabError(
                f"Nothing was written: no cassette {', '.join(missing)}. Record it, or mend the "
                "name: it is looked up from the notebook's folder, as replay() does."
            )

    def _add(self, place: PurePosixPath, file: Path) -> None:
        other = self.files.setdefault(place, file)
        if other.resolve() != file.resolve():
            raise DirectMailLabError(
                f"Two files would be {place} in the zip: {other} and {file}. "
                "Rename one, or share them apart."
            )


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DirectMailLabError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("cells"), list):
        raise DirectMailLabError(
            f"{path} is not a notebook of format 4. Save it in JupyterLab, and share it then."
        )
    return parsed


def _pictures(notebook: Mapping[str, Any], folder: Path) -> list[PurePosixPath]:
    """Return the picture files below the notebook's folder that its text shows."""
    sources = ["".join(cell.get("source", "")) for cell in notebook["cells"]]
    found = {
        PurePosixPath(unquote(first or second))
        for source in sources
        for first, second in _PICTURE.findall(source)
    }
    return sorted(
        picture
        for picture in found
        if picture.suffix.lower() in PICTURE_SUFFIXES
        and not picture.is_absolute()
        and ".." not in picture.parts
        and (folder / picture).is_file()
    )


def _find(cassette: str | PurePath, folder: Path) -> Path:
    """Return a cassette's file, looked up as a kernel that runs in ``folder`` would."""
    if isinstance(cassette, PurePath):
        return find_cassette(folder / cassette)
    found: Path | None = None
    with contextlib.suppress(NotRecordedError):  # any other error is about the name itself
        found = find_cassette(cassette)
    near = None if variable(CASSETTES_VARIABLE) else _nearest(folder.resolve())
    if near is not None:
        with contextlib.suppress(NotRecordedError):
            found = find_cassette(near / cassette)
    return found or find_cassette(cassette)


def _nearest(folder: Path) -> Path | None:
    nearest = (parent / "cassettes" for parent in (folder, *folder.parents))
    return next(
        (each for each in nearest if each.is_dir() and not (each / "__init__.py").exists()), None
    )


def _place(cassette: str | PurePath, file: Path, *, named_by_hand: bool) -> PurePosixPath:
    """Return where a cassette goes, so that the code finds it there: by name, or by its path."""
    if isinstance(cassette, str):
        return PurePosixPath("cassettes", cassette).with_name(file.name)
    if named_by_hand:
        return PurePosixPath("cassettes", file.name)
    place = PurePosixPath(os.path.normpath(PurePosixPath("notebooks", cassette)))
    if place.is_absolute() or place.parts[0] == "..":
        raise DirectMailLabError(
            f"Path({str(cassette)!r}) leads out of what can be shared. Put the cassette into a "
            "folder named cassettes beside or above the notebook, and name it there."
        )
    return place.with_name(file.name)


def _warn(path: Path, use: CassetteUse) -> None:
    warnings.warn(
        f"{path.name}, cell {use.cell}: {use.call}(…) names its cassette by a value that only "
        "running it would tell. If it is not in the zip, add it with share(…, cassettes=[…]).",
        UnresolvedCassetteWarning,
        stacklevel=4,
    )
