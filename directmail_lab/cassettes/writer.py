"""Write cassettes in our layout: `LineWriter` appends, and `write_cassette` writes a whole file."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..exchange.values import Interaction
from ..redaction import Redactor
from ..settings import VERSION
from . import layout
from .files import FileRecording
from .library import Version, create, patiently, version_of

_FSYNC_EVERY_S: Final = 1.0
_COMPARED_BYTES: Final = 4096
_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0)
_NEW_FLAGS: Final = os.O_CREAT | os.O_EXCL


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
    size, count
        The length of the file up to its last whole interaction, in bytes, and their number.

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
        # Size and count are set in one step, so that Ctrl-C cannot come between them.
        self._state = 0, 0
        self._tail_bytes = 0
        # What the file ends with, and the state before that.
        self._end = b""
        self._before: tuple[int, int] | None = None
        is_new = version is None
        try:
            flags = _OPEN_FLAGS | _NEW_FLAGS * is_new
            self._file = patiently(lambda: os.open(path, flags, 0o666))
            self._opened = os.fstat(self._file)
            if not is_new and version_of(self._opened) != version:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            if loaded is not None and loaded.clean_bytes:
                self._state = loaded.clean_bytes, len(loaded)
                self._tail_bytes = self._opened.st_size - self.size
                os.lseek(self._file, self.size, os.SEEK_SET)
            else:
                self._truncate()
                self._state = self._write(header.encode()), 0
        except BaseException:
            if self._file != -1:
                os.close(self._file)
                if is_new:
                    path.unlink()
            raise

    @property
    def size(self) -> int:
        return self._state[0]

    @property
    def count(self) -> int:
        return self._state[1]

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file, and nobody else has changed it."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        # The first write removes the tail, and Ctrl-C may interrupt it.
        tail_bytes = there.st_size - self.size
        return os.path.samestat(there, self._opened) and tail_bytes in (0, self._tail_bytes)

    def ends_as_written(self) -> bool:
        """Return whether the last interaction is in the file: others may write as many bytes."""
        return self.read(self.size - len(self._end)) == self._end

    def is_elsewhere(self) -> bool:
        """Return whether the path no longer leads to this file."""
        try:
            return not os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return True

    def read(self, start: int) -> bytes:
        """Return what was written from a position on."""
        end = self.size
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
        before = self._state
        self._state = self._write(text), self._state[1] + 1
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
        self._state = self._before
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
            self._write(layout.end_line(self.count, digest.hexdigest()).encode())
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def release(self) -> None:
        """Close the file without an end line."""
        os.close(self._file)

    def _write(self, text: bytes) -> int:
        """Write after the last whole interaction, and return the new length of the file."""
        data = memoryview(text)
        size = self.size + len(data)
        if self._tail_bytes:
            self._truncate()
            self._tail_bytes = 0
        try:
            while data:
                data = data[os.write(self._file, data) :]
            return size
        except BaseException:
            with suppress(OSError):
                self._truncate()
            raise

    def _truncate(self) -> None:
        """Truncate the file after its last whole interaction, if it is longer."""
        if os.lseek(self._file, 0, os.SEEK_END) != self.size:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)


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
