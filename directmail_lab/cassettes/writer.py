"""Write cassettes in our layout: `LineWriter` appends, and `write_cassette` writes a whole file."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..exchange.values import Interaction
from ..redaction import Redactor
from ..settings import VERSION
from . import layout
from .files import FileRecording
from .library import Version, create, patiently, version_of

_FSYNC_EVERY_S = 1.0
_COMPARED_BYTES = 4096
_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_BINARY", 0)
_NEW_FLAGS = os.O_CREAT | os.O_EXCL


class Extent(NamedTuple):
    """The length of a file up to its last whole interaction, in bytes, and how many it has."""

    size: int
    number: int


class LineWriter:
    """Appends interactions to one file, and never damages the interactions already in it.

    Before `append` returns, the operating system has its text, so a kill loses nothing. The file is
    synced to disk at most once a second, and at `close`. The first write removes a torn interaction
    or an end line. If a call cannot write everything, it raises OSError and restores the file.

    Parameters
    ----------
    header
        The first lines of a new file.
    version
        The required version of the file (see `version_of`); None if there must be no file yet.
    loaded
        The file's recording, if it has interactions.

    Attributes
    ----------
    extent
        What was written.

    Raises
    ------
    FileExistsError, FileNotFoundError
        The file has another version. It is unchanged.
    """

    def __init__(
        self,
        path: Path,
        header: str,
        *,
        version: Version | None = None,
        loaded: FileRecording | None = None,
    ) -> None:
        self._path = path
        self._synced_at = time.monotonic()
        self._file = -1
        self.extent = Extent(0, 0)
        self._tail_bytes = 0
        # What the file ends with, and the extent before that.
        self._end = b""
        self._before: Extent | None = None
        is_new = version is None
        try:
            flags = _OPEN_FLAGS | (_NEW_FLAGS if is_new else 0)
            self._file = patiently(lambda: os.open(path, flags, 0o666))
            self._opened = os.fstat(self._file)
            if not is_new and version_of(self._opened) != version:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            if loaded is not None and loaded.clean_bytes:
                size = loaded.clean_bytes
                self.extent = Extent(size, len(loaded))
                self._tail_bytes = self._opened.st_size - size
                os.lseek(self._file, size, os.SEEK_SET)
            else:
                self._truncate()
                first = header.encode()
                self._write(first)
                self.extent = Extent(len(first), 0)
        except BaseException:
            if self._file != -1:
                os.close(self._file)
                if is_new:
                    path.unlink()
            raise

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file, and nobody else has changed it."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        # The first write removes the tail, and Ctrl-C may interrupt it.
        tail_bytes = there.st_size - self.extent.size
        return os.path.samestat(there, self._opened) and tail_bytes in (0, self._tail_bytes)

    def ends_as_written(self) -> bool:
        """Return whether the last interaction is in the file: others may write as many bytes."""
        return self.read(self.extent.size - len(self._end)) == self._end

    def is_elsewhere(self) -> bool:
        """Return whether the path no longer leads to this file."""
        try:
            return not os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return True

    def read(self, start: int) -> bytes:
        """Return what was written from a position on."""
        end = self.extent.size
        os.lseek(self._file, start, os.SEEK_SET)
        parts = []
        left = end - start
        while left > 0:
            part = os.read(self._file, left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
        os.lseek(self._file, end, os.SEEK_SET)
        return b"".join(parts)

    def append(self, text: bytes) -> None:
        """Write the lines of one interaction."""
        before = self.extent
        after = Extent(before.size + len(text), before.number + 1)
        self._write(text)
        self.extent = after  # at once, so that Ctrl-C cannot come between
        self._before = before
        self._end = text[-_COMPARED_BYTES:]
        now = time.monotonic()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(self._file)

    def withdraw(self) -> bool:
        """Remove the last interaction again; return False if that is not possible."""
        if self._before is None:
            return False
        self.extent = self._before
        self._before = None
        self._end = b""
        self._truncate()
        return True

    def close(self) -> None:
        """Write the line that closes the recording, sync the file to disk, and close it.

        If the disk has no room for the line, the file still has every interaction.
        """
        try:
            self._truncate()
            os.lseek(self._file, 0, os.SEEK_SET)
            with open(self._file, "rb", closefd=False) as whole:
                digest = hashlib.file_digest(whole, "sha256")
            self._write(layout.end_line(self.extent.number, digest.hexdigest()).encode())
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def release(self) -> None:
        """Close the file without an end line."""
        os.close(self._file)

    def _write(self, text: bytes) -> None:
        """Write after the last whole interaction."""
        data = memoryview(text)
        if self._tail_bytes:
            self._truncate()
            self._tail_bytes = 0
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except BaseException:
            with suppress(OSError):
                self._truncate()
            raise

    def _truncate(self) -> None:
        """Truncate the file after its last whole interaction, if it is longer."""
        size = self.extent.size
        if os.lseek(self._file, 0, os.SEEK_END) != size:
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)


def write_cassette(
    path: Path,
    metadata: Mapping[str, object],
    parts: Iterable[Interaction | bytes],
    redactor: Redactor,
    *,
    version: Version | None = None,
) -> None:
    """Write a closed, redacted cassette, and let it replace ``path`` when it is complete.

    If the old file no longer has the ``version``, it raises the error of `create`.

    Parameters
    ----------
    parts
        Interactions, and texts of a cassette that were redacted: see `FileRecording.parts`.
    """
    with create(path, version) as new:
        writer = LineWriter(new, header_text(metadata, redactor), version=version_of(new))
        try:
            for part in parts:
                if isinstance(part, bytes):
                    writer.append(part)
                else:
                    text, _ = redactor.redacted_text(part, layout.interaction_text)
                    writer.append(text.encode())
        finally:
            writer.close()


def header_text(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted."""
    # `recorded_with` comes first, since our reader knows our own layout by it.
    about: dict[str, object] = {"recorded_with": f"{layout.WRITER} {VERSION}"}
    others = redacted_metadata(metadata, redactor)
    about |= {name: value for name, value in others.items() if name not in about}
    text = layout.header_text(about)
    redactor.refuse_leak(text)
    return text


def redacted_metadata(metadata: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    """Return a cassette's metadata as it may be written, with the rules of redaction."""
    about = {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in metadata.items()
    }
    return about | ({"redact": list(redactor.redact)} if redactor.redact else {})
