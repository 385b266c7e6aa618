"""Finds the file for a path of the Jupyter server, and reads the recording in it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from jupyter_server.services.contents.filemanager import FileContentsManager
from jupyter_server.services.contents.manager import ContentsManager
from jupyter_server.utils import ApiPath, ensure_async, to_os_path
from tornado.web import HTTPError

from ..browsing import Recording, open_recording
from ..errors import CassetteError, CassetteFormatError

LARGEST_BYTES: Final = 256 * 1024**2
LARGEST_FOREIGN_BYTES: Final = 32 * 1024**2
"""The largest file that the server opens: in our own layout, and in any other, which must be parsed
as a whole."""

_OUR_HEADER: Final = b"\nrecording: "
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".har"})
_MOST_OTHERS: Final = 200


def root_of(contents: ContentsManager) -> Path:
    """Return the server's folder; raises `HTTPError` 501 where its files are not on its disk."""
    if not isinstance(contents, FileContentsManager):
        raise HTTPError(501, "This server keeps its files elsewhere than on its disk.")
    return Path(contents.root_dir).resolve()


async def file_of(contents: ContentsManager, path: str) -> Path:
    """Return the file that a path means.

    Raises
    ------
    HTTPError
        404 where there is none, where the contents manager hides it, or where it or a link on its
        way leads out of the server's folder: all three look alike.
    """
    root = root_of(contents)
    missing = HTTPError(404, "There is no such file in the server's folder.")
    try:
        file = Path(to_os_path(ApiPath(path), str(root))).resolve(strict=True)
        inside = file.relative_to(root).as_posix()
    except (OSError, RuntimeError, ValueError):
        raise missing from None
    hidden = [await ensure_async(contents.is_hidden(each)) for each in (path, inside)]
    if not file.is_file() or (any(hidden) and not contents.allow_hidden):
        raise missing
    return file


async def others_beside(contents: ContentsManager, path: str) -> dict[str, Path]:
    """Return the files beside one that may be recordings too, by their names."""
    folder = path.rpartition("/")[0]
    listed = await ensure_async(contents.get(folder, type="directory"))
    names = [each["name"] for each in listed["content"] if each["path"] != path.strip("/")]
    found: dict[str, Path] = {}
    for name in [each for each in names if Path(each).suffix.lower() in _SUFFIXES][:_MOST_OTHERS]:
        try:
            found[name] = await file_of(contents, f"{folder}/{name}")
        except HTTPError:
            continue  # a link that leads out of the server's folder
    return found


def recording_in(file: Path) -> Recording:
    """Return what a file holds. The last two results are kept until their file changes.

    Raises
    ------
    CassetteError
        It is neither a cassette nor a HAR file, cannot be read, or is too large for the server.
    """
    try:
        return _recording_in(file, version_of(file))
    except CassetteError as error:  # its message must not name the server's folders
        raise CassetteError(str(error).replace(str(file), file.name)) from None


def version_of(file: Path) -> str:
    """Return a text that changes whenever the file does."""
    about = file.stat()
    return f"{about.st_ino}-{about.st_mtime_ns}-{about.st_size}"


@lru_cache(maxsize=2)
def _recording_in(file: Path, _version: str) -> Recording:
    size = file.stat().st_size
    with file.open("rb") as opened:
        most = LARGEST_BYTES if _OUR_HEADER in opened.read(64) else LARGEST_FOREIGN_BYTES
    if size > most:
        raise CassetteFormatError(
            f"{file.name} has {size:,} bytes, and {most:,} can be opened here. "
            "Open it in a notebook with dm.browse(), or record in parts."
        )
    if not size:
        raise CassetteFormatError(f"{file.name} is not a cassette: it is empty.")
    return open_recording(file)
