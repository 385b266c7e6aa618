"""Where cassettes are kept: a bare name to a path, for reading and for writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from directmail_lab.errors import CassetteError, NotRecordedError
from directmail_lab.settings import CASSETTES_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "cassette_name",
    "cassettes_by_name",
    "find_cassette",
    "list_cassettes",
    "new_cassette_path",
    "shown_path",
]

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FOLDER: Final = "cassettes"


def find_cassette(name: str | Path) -> Path:
    """Return the file that a cassette is read from.

    A name is looked up in ``DIRECTMAIL_CASSETTES``, in the nearest ``cassettes/`` folder upward
    from the working directory, and among the packaged ones; a `Path` is the file itself.

    Raises
    ------
    NotRecordedError
        Where there is no such cassette (``reason="no_such_cassette"``).
    CassetteError
        Where the name leads out of the folder.
    """
    if isinstance(name, Path):
        path = _with_suffix(name)
        if path.exists():
            return path
        raise _no_such(name.stem, [path.parent])
    folders = list(_folders())
    for folder in folders:
        path = _inside(folder, name)
        if path.exists() or path.is_symlink():
            return path
    raise _no_such(name, folders)


def new_cassette_path(name: str | Path) -> Path:
    """Return the file that a cassette is recorded to, in the first folder of your own.

    That is ``DIRECTMAIL_CASSETTES``, else the nearest ``cassettes/``, else one to be made in the
    working directory. The packaged cassettes are never written to.

    Raises
    ------
    CassetteError
        Where the name leads out of the folder.
    """
    if isinstance(name, Path):
        return _with_suffix(name)
    return _inside(next(_own_folders(), Path.cwd() / _FOLDER), name)


def cassettes_by_name() -> dict[str, Path]:
    """Return every cassette by the name that finds it, the ones of your own first.

    A link that leads out of its folder is left out: no name finds it.
    """
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in _SUFFIXES and path.is_file() and _stays_in(folder, path):
                name = path.relative_to(folder).as_posix().removesuffix(".yaml")
                found.setdefault(name, path)
    return found


def list_cassettes() -> list[Path]:
    """Return every cassette that a name finds, the ones of your own first."""
    return list(cassettes_by_name().values())


def cassette_name(name: str | Path) -> str:
    """Return what a cassette is called in messages: its name without folder and suffix."""
    return name.stem if isinstance(name, Path) else name.removesuffix(".yaml")


def shown_path(path: Path) -> str:
    """Return where a cassette's file is, as a notebook may show it; nothing for a packaged one."""
    if any(path.is_relative_to(folder) for folder in _packaged_folders()):
        return ""
    for start, shown_as in ((Path.cwd(), ""), (Path.cwd().parent, "../"), (Path.home(), "~/")):
        if path.is_relative_to(start):
            return f"{shown_as}{path.relative_to(start).as_posix()}"
    return str(path)


def _folders() -> Iterator[Path]:
    yield from _own_folders()
    yield from _packaged_folders()


def _own_folders() -> Iterator[Path]:
    named = os.environ.get(CASSETTES_VARIABLE)
    if named:
        yield Path(named).expanduser()
    here = Path.cwd()
    for parent in (here, *here.parents):
        folder = parent / _FOLDER
        # A folder with an `__init__.py` is a Python package that happens to have the name.
        if folder.is_dir() and not (folder / "__init__.py").exists():
            yield folder
            return


def _packaged_folders() -> Iterator[Path]:
    package = Path(__file__).resolve().parents[1]
    installed = package / "packaged" / _FOLDER
    if installed.is_dir():
        yield installed
    elif (package.parent / "pyproject.toml").exists():  # an editable install of a checkout
        yield package.parent / _FOLDER


def _with_suffix(path: Path) -> Path:
    return path if path.suffix in _SUFFIXES else path.with_name(path.name + ".yaml")


def _inside(folder: Path, name: str) -> Path:
    """Return the file that a name means in a folder, and never one outside of it."""
    parts = name.replace("\\", "/").split("/")
    if not name.strip() or "\0" in name or ":" in name or any(p in ("", ".", "..") for p in parts):
        raise CassetteError(
            f"{name!r} is not a cassette's name. Give a bare name such as 'tour', "
            "or a pathlib.Path for a file elsewhere."
        )
    path = _with_suffix(folder.joinpath(*parts))
    if not _stays_in(folder, path):
        raise CassetteError(
            f"Cassette {name!r} is a link that leads out of {folder}. "
            "Give a pathlib.Path to read a file elsewhere."
        )
    return path


def _stays_in(folder: Path, path: Path) -> bool:
    """Return whether no link on the way to a file leads out of its folder."""
    return path.resolve().is_relative_to(folder.resolve())


def _no_such(name: str, folders: list[Path]) -> NotRecordedError:
    # In a checkout, the nearest folder may be the packaged one.
    looked = " or ".join(dict.fromkeys(map(str, folders))) or "any folder"
    return NotRecordedError(
        f"There is no cassette {name!r} in {looked}. Record it with record({name!r}), "
        "or name one that list_cassettes() shows.",
        reason="no_such_cassette",
    )
