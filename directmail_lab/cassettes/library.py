"""The folders of cassettes: finds a file by its name, locks a file, replaces a file."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TypeVar

from ..arguments import did_you_mean
from ..display import printable_line
from ..errors import CassetteError, CassetteInUseError, CassetteNotFoundError
from ..settings import CASSETTES_VARIABLE, variable

SUFFIXES = (".yaml", ".yml", ".json")
_NEVER_RECORDED = (".json", ".har")
_FOLDER = "cassettes"
_BEFORE = ".before"
_TRIES = 20
_T = TypeVar("_T")
_ANY_WRITE = 0o222
_ROOT_MARKS = ("pyproject.toml", ".git", "notebooks")
# What Windows refuses in the name of a file, or changes: recordings travel.
_REFUSED = re.compile(r'(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)|.*[<>:"|?*]|.*[. ]$')


def find_cassette(name: str | Path, first: Sequence[Path] = ()) -> Path:
    """Return the file that a cassette is read from.

    A `Path` is the file itself. So is a text that is an absolute path or begins with ``./`` or
    ``../``, and one that no name finds but a path does. A name is looked up in this order:

    1. the folders in ``first``;
    2. ``DIRECTMAIL_CASSETTES``;
    3. the nearest ``cassettes/`` folder from the working directory up to the project's root, which
       is the first folder with ``pyproject.toml``, ``.git`` or ``notebooks``. The search ends at
       the home folder;
    4. the packaged cassettes.

    A name stands for ``NAME.yaml``, or for ``NAME.yml`` if only that exists.

    Raises
    ------
    CassetteNotFoundError
        There is no such cassette.
    CassetteError
        The name leads out of the folder, or is not a cassette's name.
    """
    if isinstance(name, str) and (Path(name).is_absolute() or name.startswith(("./", "../"))):
        name = Path(name)
    title = cassette_name(name)
    # Each folder once: in a checkout, the nearest folder may be the packaged one.
    own = [name.parent.absolute()] if isinstance(name, Path) else [*first, *_own_folders()]
    path = _find_in(dict.fromkeys([*own, *_packaged_folders()]), name)
    if path is not None:
        return path
    # Unlike Path.is_file, it raises nothing for a name that is too long.
    if os.path.isfile(name):  # noqa: PTH113
        return Path(name)
    hint = ""
    if isinstance(name, str):
        hint = did_you_mean(repr(title), map(repr, cassettes_by_name()))
        near = _near(name)
        if near is not None:
            hint = f"There is one in another folder: dm.replay({typed_path(near)!r})."
    places = " or ".join(map(str, own)) or "a folder cassettes, here or above"
    raise CassetteNotFoundError(
        f"There is no cassette {title!r} in {places}. {hint}".strip(),
        f"Record it with dm.record({title!r}), or name one that `directmail-lab cassette list` "
        "shows.",
    )


def _near(name: str) -> Path | None:
    """Return the cassette of a name in another folder of the project."""
    with suppress(OSError, CassetteError):  # such as a link that leads out of its folder
        for start in _project_folders(Path.cwd()):
            path = _find_in(sorted(start.glob(f"*/{_FOLDER}")), name)
            if path is not None:
                return path
    return None


def _find_in(folders: Iterable[Path], name: str | Path) -> Path | None:
    for folder in folders:
        path = file_of(name) if isinstance(name, Path) else _path_in(folder, name)
        if os.path.lexists(path):
            return path
    return None


def new_cassette_path(name: str | Path, first: Sequence[Path] = ()) -> Path:
    """Return the file that a cassette is recorded to.

    Its folder is the first one in ``first``, or else ``DIRECTMAIL_CASSETTES``, or else the nearest
    ``cassettes/`` that `find_cassette` finds, or else a new ``cassettes/`` in the working
    directory. The packaged cassettes are never written to.

    Raises
    ------
    CassetteError
        The name leads out of the folder, or ends in .json or .har.
    """
    suffix = Path(name).suffix.lower()
    if suffix in _NEVER_RECORDED:
        raise CassetteError("A recording is YAML.", f"Name it without {suffix}.")
    if isinstance(name, Path):
        return file_of(name)
    folder = next(chain(first, _own_folders()), Path.cwd() / _FOLDER)
    return _path_in(folder, name)


def cassettes_by_name(start: Path | None = None) -> dict[str, Path]:
    """Return every cassette by the name that finds it, your own before the packaged ones.

    A link that leads out of its folder is left out, since no name finds it.

    Parameters
    ----------
    start
        The folder from which to look, such as a notebook's; by default the working directory.
    """
    paths: dict[str, Path] = {}
    for folder in _folders(start):
        for name, path in cassettes_in(folder):
            paths.setdefault(name, path)
    return paths


def cassettes_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each cassette below a folder, without links that lead out."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        is_listed = path.suffix in SUFFIXES and not path.stem.endswith(_BEFORE)
        if is_listed and path.is_file() and stays_in(folder, path):
            # `tour.yml` is `tour`, unless there is a `tour.yaml`, which the name then finds.
            is_other = path.suffix == ".yml" and path.with_suffix(".yaml").exists()
            name = path if is_other else path.with_name(cassette_name(path.name))
            yield name.relative_to(folder).as_posix(), path


def before_of(path: Path) -> Path:
    """Return the file that keeps a cassette as it was: ``tour.before.yaml``. No list has it."""
    return path.with_name(f"{path.stem}{_BEFORE}.yaml")


def is_folder(source: str | Path) -> bool:
    """Return whether a source is a folder's path, and not the name of a cassette as well."""
    is_there = os.path.isdir(source)  # noqa: PTH112
    return is_there and (isinstance(source, Path) or source not in cassettes_by_name())


def cassette_name(name: str | Path) -> str:
    """Return what a cassette is called in messages: its name without folder and suffix."""
    if not isinstance(name, str | Path):
        raise CassetteError(f"A cassette is a name or a Path, not a {type(name).__name__}.")
    return name.stem if isinstance(name, Path) else re.sub(r"\.ya?ml\Z", "", name)


def shown_path(path: Path) -> str:
    """Return the path of a cassette as a notebook may show it; empty for a packaged one."""
    is_packaged = any(path.is_relative_to(folder) for folder in _packaged_folders())
    return "" if is_packaged else typed_path(path)


def typed_path(path: Path) -> str:
    """Return a path as a person would type it in the working directory."""
    places = ((Path.cwd(), ""), (Path.cwd().parent, "../"), (home_folder(), "~/"))
    for folder, prefix in places:
        if folder is not None and path.is_relative_to(folder):
            return f"{prefix}{path.relative_to(folder).as_posix()}"
    return str(path)


def command_name(path: Path, name: str) -> str:
    """Return a cassette's name for the command line: its path if the name finds another file."""
    with suppress(OSError):
        found = cassette_named(name)
        if found is not None and found.samefile(path):
            return name
    return str(path)


def cassette_named(name: str, start: Path | None = None) -> Path | None:
    """Return the cassette that a text names, seen from a folder; None if it names none.

    The file system compares the names: on some, ``Tour`` is ``tour.yaml``.
    """
    with suppress(CassetteError):
        return _find_in(_folders(start), name)
    return None


def _folders(start: Path | None = None) -> Iterator[Path]:
    yield from _own_folders(start)
    yield from _packaged_folders()


def _own_folders(start: Path | None = None) -> Iterator[Path]:
    configured = variable(CASSETTES_VARIABLE)
    if configured:
        # Without a home folder, Path.expanduser would raise an error.
        yield (start or Path()) / os.path.expanduser(configured)  # noqa: PTH111
    for parent in _project_folders(start or Path.cwd()):
        folder = parent / _FOLDER
        # A folder with an `__init__.py` is a Python package that happens to have the name.
        # Unlike Path's, these functions raise nothing in a folder that is closed to this user.
        if os.path.isdir(folder) and not os.path.lexists(folder / "__init__.py"):  # noqa: PTH112
            yield folder
            return


def _project_folders(start: Path) -> list[Path]:
    """Return a folder and its parents up to the project's root; only the folder without a root."""
    folders = [start, *start.parents]
    for depth, folder in enumerate(folders, 1):
        if any(os.path.lexists(folder / mark) for mark in _ROOT_MARKS):
            return folders[:depth]
        if folder == home_folder():
            break
    return [start]


def home_folder() -> Path | None:
    """Return the user's home folder; None for a user that the system does not know."""
    try:
        return Path.home()
    except RuntimeError:  # no HOME, and a user id without an entry, as some containers have
        return None


def _packaged_folders() -> Iterator[Path]:
    package = Path(__file__).resolve().parents[1]
    installed = package / "packaged" / _FOLDER
    if installed.is_dir():
        yield installed
    elif (package.parent / "pyproject.toml").exists():  # an editable install of a checkout
        yield package.parent / _FOLDER


def file_of(path: Path) -> Path:
    """Return the path if it is a file, since vcrpy's may have no suffix; else add a suffix."""
    return path if os.path.isfile(path) else _with_suffix(path)  # noqa: PTH113


def _with_suffix(path: Path) -> Path:
    """Return a path with the suffix ``.yaml``, or ``.yml`` if only that file exists.

    The same goes for a path that ends in one of the two already.
    """
    if not path.name:
        raise CassetteError(f"{path} is a folder.", "Give the file of a cassette.")
    if path.suffix not in SUFFIXES and path.suffix.lower() != ".har":
        path = path.with_name(path.name + ".yaml")
    other = path.with_suffix({".yaml": ".yml", ".yml": ".yaml"}.get(path.suffix, path.suffix))
    return other if os.path.lexists(other) and not os.path.lexists(path) else path


def folded(name: str) -> str:
    """Return a name in the form in which Windows and macOS take it for another one's equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _path_in(folder: Path, name: str) -> Path:
    """Return the path that a name has in a folder, never one outside of it."""
    parts = name.replace("\\", "/").split("/")
    if not name.isprintable() or any(not part or _REFUSED.match(part) for part in parts):
        raise CassetteError(
            f"{name!r} is not a cassette's name.",
            "Give a bare name such as 'tour'. For a file elsewhere, give a pathlib.Path.",
        )
    path = _with_suffix(folder.joinpath(*parts))
    if not stays_in(folder, path):
        raise CassetteError(
            f"Cassette {name!r} is a link that leads out of {folder}.",
            "Give a pathlib.Path to read a file elsewhere.",
        )
    return path


def stays_in(folder: Path, path: Path) -> bool:
    """Return whether no link on the path leads out of the folder."""
    return _real_path(path).is_relative_to(_real_path(folder))


def _real_path(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise CassetteError(
            f"{path} is a link to a file that does not exist.", "Give the file itself."
        ) from None


@contextmanager
def locked(path: Path, *, patience_s: float = 0.3) -> Iterator[Path]:
    """Lock a cassette while it is recorded. Yield its file, which a link at ``path`` leads to.

    A reader may have the lock for a moment, to know whether the cassette is being recorded.

    Raises
    ------
    CassetteInUseError
        Another recording has locked it.
    CassetteError
        The folder cannot be written to, or the file is read-only.
    """
    from filelock import FileLock, Timeout  # a fifth of the package's imports; a replay needs none

    path = _real_path(path)
    process = os.getpid()
    file = Path(f"{path}.lock")
    try:
        if path.exists() and not path.stat().st_mode & _ANY_WRITE:
            raise CassetteError(
                f"{path} is read-only, so it was not changed.",
                "Make it writable, or record under another name.",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(file), timeout=patience_s, thread_local=False)
        lock.acquire(poll_interval=0.02)
        _sign(file)
    except Timeout:
        raise CassetteInUseError(
            f"Cassette {path.stem!r} is being recorded by {_holder_of(file)}.",
            "Wait until its cell or its program has ended, or interrupt it there. Or record under "
            "another name.",
        ) from None
    except OSError as error:
        raise CassetteError(
            f"Cannot record in {path.parent} ({error.strerror}).",
            f"Set {CASSETTES_VARIABLE} to a folder that can be written to.",
        ) from None
    try:
        yield path
    finally:
        if os.getpid() == process:  # not in a forked child
            # The file goes before the lock is released, so that another process which has
            # opened it sees that it is gone. Windows removes no open file: there filelock does.
            with suppress(OSError):
                file.unlink()
            lock.release()


def _sign(file: Path) -> None:
    """Write who has a lock into its file, from the second byte on: Windows locks the first."""
    program = os.environ.get("JPY_SESSION_NAME") or sys.argv[0]
    now = f"{datetime.now(UTC):%H:%M:%S} UTC"
    text = f"process {os.getpid()} ({Path(program).name or 'python'}, since {now})"
    with suppress(OSError), file.open("r+b") as opened:
        opened.seek(1)
        # On a disk without locks, filelock keeps its own text in the file.
        if opened.read(8) in (b"", b"process "):
            opened.seek(1)
            opened.write(f"{text}\n".encode(errors="replace"))


def _holder_of(file: Path) -> str:
    """Return who has a lock, in words."""
    with suppress(OSError), file.open("rb", buffering=0) as opened:
        opened.seek(1)
        holder = opened.read(500).partition(b"\n")[0].decode(errors="replace")
        if holder.startswith("process "):
            return printable_line(holder)
    return "another session or program"


def is_locked(path: Path) -> bool:
    """Return whether a cassette is being recorded, here or by another program."""
    if not Path(f"{path.resolve()}.lock").exists():
        return False
    try:
        with locked(path, patience_s=0):  # a killed process has left the file
            return False
    except CassetteError as error:
        return isinstance(error, CassetteInUseError)


Version = tuple[int, int, int, int]
"""Device, inode, size and time of change: they differ if a file was replaced or changed."""


def version_of(file: Path | os.stat_result) -> Version | None:
    """Return the version of a file; None if there is none."""
    try:
        status = file.stat() if isinstance(file, Path) else file
    except (OSError, ValueError):  # such as a name with a null character
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def create(path: Path, version: Version | None = None) -> Iterator[Path]:
    """Yield a new, empty file next to ``path``, and let it replace ``path`` if no error occurs.

    The new file gets the permissions of the old one. If the old file's version is no longer
    ``version``, `CassetteInUseError` is raised; with None, any version is replaced.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        # O_EXCL: never through a link that another process has made.
        new.touch(0o600 if path.exists() else 0o666, exist_ok=False)
        yield new
        if version is not None and version_of(path) != version:
            raise CassetteInUseError(
                f"Another program changed {path} meanwhile, so it was not replaced.", "Try again."
            )
        with suppress(FileNotFoundError):
            shutil.copymode(path, new)
        try:
            patiently(lambda: new.replace(path))
        except PermissionError:
            raise CassetteInUseError(
                f"Another program has {path} open, so it was not replaced.",
                "Close it there, and try again.",
            ) from None
    except OSError as error:
        if error.filename in (None, str(new)):  # a full disk's error names no file
            error.filename = str(path)
        raise
    finally:
        with suppress(PermissionError):
            patiently(lambda: new.unlink(missing_ok=True))


def patiently(act: Callable[[], _T]) -> _T:
    """Return the result of ``act``; for a second, try again while a file may be in use.

    On Windows, a file cannot be replaced, removed or opened while a viewer, a virus scanner or a
    program that synchronizes folders has it open.
    """
    for _ in range(_TRIES):
        with suppress(PermissionError):
            return act()
        time.sleep(1 / _TRIES)
    return act()
