"""Where cassettes are kept: finding a file by name, locking a file, replacing a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from ..errors import CassetteError, CassetteInUseError, NotRecordedError
from ..settings import CASSETTES_VARIABLE, variable

OPEN_TO_WRITE: Final = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags to open a file for writing, but not through a symbolic link."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FOLDER: Final = "cassettes"
_ROOT_MARKS: Final = ("pyproject.toml", ".git", "notebooks")
# File systems allow 255; a lock file and an unfinished recording have longer names.
_LONGEST_NAME_BYTES: Final = 230


def find_cassette(name: str | Path) -> Path:
    """Return the file that a cassette is read from.

    A name is looked up in ``DIRECTMAIL_CASSETTES``, in the nearest ``cassettes/`` folder from the
    working directory up to the project's root (the first folder that holds ``pyproject.toml``,
    ``.git`` or ``notebooks``), and among the packaged ones; a `Path` is the file itself. It is
    looked for neither above the home folder nor in a folder of another user.

    Raises
    ------
    NotRecordedError
        Where there is no such cassette (``reason="no_such_cassette"``).
    CassetteError
        Where the name leads out of the folder, or no file can have it.
    """
    folders = [name.parent] if isinstance(name, Path) else list(_folders())
    for folder in folders:
        path = _with_suffix(name) if isinstance(name, Path) else _inside(folder, name)
        if _exists(path):
            return path
    called = cassette_name(name)
    # In a checkout, the nearest folder may be the packaged one.
    looked = " or ".join(dict.fromkeys(map(str, folders))) or "any folder"
    raise NotRecordedError(
        f"There is no cassette {called!r} in {looked}. Record it with record({called!r}), "
        "or name one that `directmail-lab cassette list` shows.",
        reason="no_such_cassette",
    )


def new_cassette_path(name: str | Path) -> Path:
    """Return the file that a cassette is recorded to, in the first folder of your own.

    That is ``DIRECTMAIL_CASSETTES``, else the nearest ``cassettes/`` as `find_cassette` looks for
    it, else one to be made in the working directory. The packaged cassettes are never written to.

    Raises
    ------
    CassetteError
        Where the name leads out of the folder, no file can have it, the folder is another user's,
        or the name says that the file is JSON, to which nothing can be appended.
    """
    if str(name).endswith(".json"):
        raise CassetteError(
            "A recording is YAML, written line by line. Name it without .json, and make JSON of it "
            "afterwards: directmail-lab cassette convert NAME NAME.json."
        )
    if isinstance(name, Path):
        return _with_suffix(name)
    folder = next(_own_folders(), Path.cwd() / _FOLDER)
    if folder.exists() and not _is_own(folder):
        raise CassetteError(
            f"{folder} belongs to another user. Set {CASSETTES_VARIABLE} to a folder of your own."
        )
    return _inside(folder, name)


def cassettes_by_name(start: Path | None = None) -> dict[str, Path]:
    """Return every cassette by the name that finds it; your own come first.

    A link that leads out of its folder is left out, since no name finds it.

    Parameters
    ----------
    start
        Another folder than the working directory to look them up from, such as a notebook's.
    """
    found: dict[str, Path] = {}
    for folder in _folders(start):
        for name, path in cassettes_in(folder):
            found.setdefault(name, path)
    return found


def cassettes_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each cassette below a folder; a link that leads out is left out."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in _SUFFIXES and path.is_file() and _stays_in(folder, path):
            yield path.relative_to(folder).as_posix().removesuffix(".yaml"), path


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


def command_name(path: Path, name: str) -> str:
    """Return a cassette's name for the command line: its path if the name finds another file."""
    with suppress(CassetteError, OSError):
        if find_cassette(name).samefile(path):
            return name
    return str(path)


def _folders(start: Path | None = None) -> Iterator[Path]:
    yield from _own_folders(start)
    yield from _packaged_folders()


def _own_folders(start: Path | None = None) -> Iterator[Path]:
    if named := variable(CASSETTES_VARIABLE):
        yield (start or Path()) / Path(named).expanduser()
    for parent in _project_folders(start or Path.cwd()):
        folder = parent / _FOLDER
        # A folder with an `__init__.py` is a Python package that happens to have the name.
        if folder.is_dir() and _is_own(folder) and not (folder / "__init__.py").exists():
            yield folder
            return


def _project_folders(here: Path) -> list[Path]:
    """Return a folder and what lies above it, up to the project's root."""
    above: list[Path] = []
    for folder in (here, *here.parents):
        above.append(folder)
        if any((folder / mark).exists() for mark in _ROOT_MARKS):
            return above
        if folder == Path.home() or not _is_own(folder):
            break
    return [here]


def _is_own(folder: Path) -> bool:
    """Return whether a folder belongs to this user: other users' recordings are not trusted."""
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def _packaged_folders() -> Iterator[Path]:
    package = Path(__file__).resolve().parents[1]
    installed = package / "packaged" / _FOLDER
    if installed.is_dir():
        yield installed
    elif (package.parent / "pyproject.toml").exists():  # an editable install of a checkout
        yield package.parent / _FOLDER


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        raise CassetteError(f"{path} cannot be looked for.") from None
    return True


def _with_suffix(path: Path) -> Path:
    if not path.name:
        raise CassetteError(f"{path} is a folder. Give the file of a cassette.")
    if path.suffix.lower() == ".har":
        raise CassetteError(
            f"{path} is a HAR file. Make a cassette of it: "
            f"directmail-lab cassette convert {path} {path.with_suffix('.yaml')}"
        )
    path = path if path.suffix in _SUFFIXES else path.with_name(path.name + ".yaml")
    if any(len(os.fsencode(part)) > _LONGEST_NAME_BYTES for part in path.parts):
        raise CassetteError(
            f"{path.name[:40]}… is too long for the name of a cassette. Give a shorter one."
        )
    return path


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
    return real_path(path).is_relative_to(real_path(folder))


def real_path(path: Path) -> Path:
    """Return the file that a path leads to, so that one file is locked whatever names it."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise CassetteError(
            f"{path} is a link to a file that does not exist. Give the file itself."
        ) from None


def acquire_lock(path: Path) -> FileLock:
    """Return the lock that says a cassette is being recorded, held until it is released.

    ``path`` is the file itself, not a link to it.

    Raises
    ------
    CassetteInUseError
        Where another recording holds it.
    CassetteError
        Where the folder cannot be written to, or another name of the same file may be in use.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
        lock.acquire()
    except Timeout:
        raise CassetteInUseError(
            f"Cassette {path.stem!r} is being recorded by another session or program. "
            "Close that one, or record under another name."
        ) from None
    except OSError as error:
        raise CassetteError(
            f"Cannot record in {path.parent} ({error.strerror}). Set {CASSETTES_VARIABLE} to a "
            "folder that can be written to."
        ) from None
    if path.exists() and path.stat().st_nlink > 1:
        release_lock(lock)
        raise CassetteError(
            f"{path} has another name (a hard link), under which it could be recorded at the same "
            "time. Copy it, and record into the copy."
        )
    return lock


def release_lock(lock: FileLock) -> None:
    """Release a lock and remove its file."""
    # Removed while the lock is held: another who opened the file meanwhile sees that it is gone.
    with suppress(OSError):  # Windows removes no open file; filelock does it there
        Path(lock.lock_file).unlink()
    lock.release()


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold the lock on a cassette; gives the file itself, where ``path`` is a link."""
    path = real_path(path)
    lock = acquire_lock(path)
    try:
        yield path
    finally:
        release_lock(lock)


@contextmanager
def create(path: Path) -> Iterator[Path]:
    """Give a new, empty file beside ``path``, which replaces it at the end if no error occurs."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        # O_EXCL: never through a link that somebody else has put there meanwhile.
        os.close(os.open(fresh, OPEN_TO_WRITE | os.O_CREAT | os.O_EXCL, 0o666))
        yield fresh
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
