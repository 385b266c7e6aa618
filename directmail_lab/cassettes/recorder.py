"""Writes a cassette as it happens: one durable append for each interaction."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from directmail_lab.errors import CassetteError, CassetteInUseError

from . import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .reader import LoadedCassette

__all__ = ["LineWriter", "hold", "let_go", "replace_whole"]

_FSYNC_EVERY_S: Final = 1.0
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)


def hold(path: Path) -> FileLock:
    """Return the lock that says a cassette is being recorded, held until it is released.

    Raises
    ------
    CassetteInUseError
        Where another recording holds it.
    CassetteError
        Where the folder cannot be written to.
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
            f"Cannot record in {path.parent} ({error.strerror}). Set DIRECTMAIL_CASSETTES to a "
            "folder that can be written to."
        ) from None
    return lock


def let_go(lock: FileLock) -> None:
    """Release a lock and remove its file, which no one should find beside the cassette."""
    # While the lock is still held: whoever opened the file meanwhile finds it gone and gives up.
    with suppress(OSError):  # Windows removes no open file; filelock does it there
        Path(lock.lock_file).unlink()
    lock.release()


class LineWriter:
    """Appends interactions to one file; nothing that stands there is ever harmed.

    Each `append` is one write to the operating system before it returns, so a kill loses nothing;
    the disk itself is brought up to date at most once a second, and at `close`.
    """

    def __init__(
        self,
        path: Path,
        *,
        header: str,
        sound: LoadedCassette | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._header = header
        self._clock = clock
        self._sound_bytes = sound.sound_bytes if sound else 0
        self._synced_at = clock()
        self._file: int | None = None
        self._sum = hashlib.sha256()
        self.count = len(sound.interactions) if sound else 0

    def append(self, text: str) -> None:
        """Write the lines of one interaction.

        Raises
        ------
        OSError
            Where they cannot be written whole. The file is then as it was before.
        """
        if self._file is None:
            self._file = self._open()
        data = text.encode()
        if self._sound_bytes == 0:
            data = self._header.encode() + data
        self._write(self._file, data)
        self._sound_bytes += len(data)
        self._sum.update(data)
        self.count += 1
        now = self._clock()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(self._file)

    def close(self) -> None:
        """Write the line that closes the recording, bring the disk up to date, let go of the file.

        Raises
        ------
        OSError
            Where there is no room for the line; every interaction is there all the same.
        """
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            self._write(file, layout.end_line(self.count, self._sum.hexdigest()).encode())
            os.fsync(file)
        finally:
            os.close(file)

    def _open(self) -> int:
        """Open the file behind its last whole interaction: a torn one and an end line go."""
        file = os.open(self._path, _FLAGS, 0o666)
        if self._sound_bytes:
            with self._path.open("rb") as written:
                self._sum.update(written.read(self._sound_bytes))
        os.ftruncate(file, self._sound_bytes)
        os.lseek(file, self._sound_bytes, os.SEEK_SET)
        return file

    def _write(self, file: int, data: bytes) -> None:
        try:
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, memoryview(data)[written:])
        except OSError:
            os.ftruncate(file, self._sound_bytes)
            os.lseek(file, self._sound_bytes, os.SEEK_SET)
            raise


def replace_whole(path: Path, header: str, interactions: Iterable[str]) -> None:
    """Write a closed cassette in the place of ``path``, which stands until the new one is whole."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    writer = LineWriter(fresh, header=header)
    try:
        for text in interactions:
            writer.append(text)
        writer.close()
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
