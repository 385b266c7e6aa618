"""Record interactions as they happen: each is in the file before the caller gets the response.

`LineWriter` appends to a file. `Recorder` keeps the cassette locked, and replaces the old file when
everything was recorded again. Only the process that opened a recorder writes to it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..errors import CassetteError, CassetteFormatError, CassetteInUseError
from ..exchange.bodies import missing_body
from ..exchange.values import Interaction, RecordedRequest
from ..redaction import Redactor
from ..settings import VERSION
from . import layout
from .files import MAX_FILE_BYTES, FileRecording, read_cassette
from .library import Version, create, locked, patiently, version_of
from .matching import Matching
from .player import Player

Ending = Literal["merge", "replace", "aside"]
"""What `close` does with a new recording: see `directmail_lab.cassettes.Cassette`."""

_FSYNC_EVERY_S: Final = 1.0
# Room for a usual interaction: a file this near to its limit is full.
_SPARE_BYTES: Final = 1024**2
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
                self._state = self._write(header), 0
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

    def append(self, text: str) -> None:
        """Write the lines of one interaction."""
        self._state = self._write(text), self._state[1] + 1
        now = time.monotonic()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(self._file)

    def close(self) -> None:
        """Write the line that closes the recording, sync the file to disk, and close it.

        If the disk has no room for the line, the file still has every interaction.
        """
        try:
            self._truncate()
            os.lseek(self._file, 0, os.SEEK_SET)
            with open(self._file, "rb", closefd=False) as whole:
                digest = hashlib.file_digest(whole, "sha256")
            self._write(layout.end_line(self.count, digest.hexdigest()))
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def release(self) -> None:
        """Close the file without an end line."""
        os.close(self._file)

    def _write(self, text: str) -> int:
        """Write after the last whole interaction, and return the new length of the file."""
        data = memoryview(text.encode())
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
    interactions: Iterable[Interaction],
    redactor: Redactor,
    *,
    version: Version | None = None,
) -> None:
    """Write a closed, redacted cassette, and let it replace ``path`` when it is complete.

    If the old file no longer has the ``version``, it raises the error of `create`.
    """
    with create(path, version) as new:
        writer = LineWriter(new, header_text(metadata, redactor), version=version_of(new))
        try:
            for interaction in interactions:
                writer.append(redactor.redacted_text(interaction, layout.interaction_text)[0])
        finally:
            writer.close()


class Recorded(NamedTuple):
    """An interaction that was recorded.

    Attributes
    ----------
    number
        Its number in the cassette, or None if that is not known before the recording is closed.
    request
        Its request as written.
    is_clean
        Whether nothing in it had to be redacted.
    """

    number: int | None
    request: RecordedRequest
    is_clean: bool


class Recorder:
    """Appends redacted interactions to a cassette, and keeps it locked until `close`.

    At the first interaction, a cassette in another program's layout is redacted and rewritten. The
    old file stays until the new one is complete. A forked child neither writes nor closes.

    Parameters
    ----------
    replaces
        Given if everything is recorded again: the matching by which a new interaction replaces an
        old one. The others stay, as in vcrpy. The old file stays until `close`. After a kill, the
        new one stays too, under a name from `unfinished_files`.
    notice
        Called with a sentence if another program replaced or removed the file.

    Attributes
    ----------
    recording
        The cassette's recording when it was opened.
    closed
        Whether the recording has ended and the lock was released.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        notice: Callable[[str], None],
        replaces: Matching | None = None,
    ) -> None:
        with ExitStack() as locks:
            self._path = self._file = locks.enter_context(locked(path))
            self.recording = FileRecording(path.stem, path=path)
            if version_of(self._path) is not None:
                self.recording = read_cassette(self._path)
            if replaces is not None and len(self.recording):
                self._file = locks.enter_context(locked(_unused(self._path)))
            self._locks = locks.pop_all()
        # If a field was once redacted in a cassette, later recordings to it redact it too.
        self._redactor = redactor.extended(self.recording.redact)
        self._metadata = metadata
        self._notice = notice
        self._replaces = replaces
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self.closed = False

    def append(self, interaction: Interaction) -> Recorded | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        Returns None if the recording has ended.
        """
        if os.getpid() != self._process:
            return None
        if self.closed:  # while the request was in flight
            self._notice(f"A response arrived after cassette {self._path.stem!r} was closed.")
            return None
        text, written = self._redactor.redacted_text(interaction, layout.interaction_text)
        if self._writer is None:
            self._writer = self._open_writer()
        elif not self._writer.is_in_place():
            changed, self._writer = self._writer, self._open_beside()
            changed.release()
        if self._writer.size + len(text) > MAX_FILE_BYTES:
            response = interaction.response
            response = replace(response, body=missing_body(len(response.body)))
            interaction = replace(interaction, response=response)
            text, _ = self._redactor.redacted_text(interaction, layout.interaction_text)
        self._writer.append(text)
        number = self._writer.count if self._file == self._path else None
        return Recorded(number, written.request, written is interaction)

    @property
    def has_recorded(self) -> bool:
        return self._writer is not None

    def refuse_if_full(self) -> None:
        """Raise `CassetteError` if the file has no room for another interaction."""
        size = self._writer.size if self._writer else self.recording.clean_bytes
        if size > MAX_FILE_BYTES - _SPARE_BYTES:
            raise CassetteError(
                f"Cassette {self._path.stem!r} has {size:,} of at most {MAX_FILE_BYTES:,} bytes. "
                "Nothing was sent.",
                "Record under another name.",
            )

    def current(self) -> FileRecording:
        """Return the recording so far; if everything is recorded again, only what is new."""
        if self._writer is not None:
            return read_cassette(self._file)
        return self.recording if self._file == self._path else FileRecording(self._path.stem)

    @property
    def aside(self) -> Path | None:
        """The file with the new interactions, if it is not the cassette's own; else None."""
        return self._file if self._file != self._path and self.has_recorded else None

    def close(self, ending: Ending = "merge") -> bool:
        """Close the file, release the lock, and return whether anything was recorded.

        A new recording replaces the old file, is merged into it, or stays in a file of its own.
        """
        if self.closed or os.getpid() != self._process:
            return False
        self.closed = True
        with self._locks:
            if self._writer is not None and not self._writer.is_in_place():
                self._writer.release()
                self._tell_changed(self._file, "It stays as it is now.")
            elif self._writer is not None:
                self._writer.close()
                if self._replaces is not None and self.aside and ending != "aside":
                    try:
                        self._put_in_place(keeps_others=ending == "merge")
                    # Somebody has the file, or an old interaction cannot be read.
                    except (CassetteInUseError, CassetteFormatError) as error:
                        self._notice(f"{error.what} The new recording is in {self._file}.")
            if ending != "aside":
                self._file = self._path
        return self.has_recorded

    def _open_writer(self) -> LineWriter:
        """Open the file for the first interaction, or another one if somebody has changed it."""
        recording, header = self.recording, header_text(self._metadata, self._redactor)
        version = recording.version if self._file == self._path else None
        is_whole = recording.redact == self._redactor.redact and not recording.is_third_party
        # The file names the base addresses of all sessions that recorded to it, for the replay.
        new = {self._metadata.get("base_url")}.difference([None, *recording.base_urls])
        is_whole &= not new
        self._file.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        try:
            if version is None:
                return self._new_file(self._file, header)
            if recording.clean_bytes and not is_whole:
                metadata = {**self._metadata, **recording.metadata, "base_url": recording.base_url}
                if others := [*recording.base_urls[1:], *new]:
                    metadata["other_base_urls"] = others
                write_cassette(self._path, metadata, recording, self._redactor, version=version)
                self.recording = recording = read_cassette(self._path)
                version = recording.version
            return LineWriter(self._file, header, version=version, loaded=recording)
        except (CassetteInUseError, FileExistsError, FileNotFoundError, PermissionError):
            return self._open_beside()

    def _new_file(self, path: Path, header: str) -> LineWriter:
        """Create a file with the cassette's permissions."""
        writer = LineWriter(path, header)
        with suppress(OSError):
            shutil.copymode(self._path, path)
        return writer

    def _open_beside(self) -> LineWriter:
        """Continue in another file, because another program changed this one."""
        changed, beside = self._file, _unused(self._path)
        beside.parent.mkdir(parents=True, exist_ok=True)
        writer = self._new_file(beside, header_text(self._metadata, self._redactor))
        self._file, self._replaces = beside, None
        self._tell_changed(changed, f"The recording continues in {beside}.")
        return writer

    def _tell_changed(self, file: Path, what_now: str) -> None:
        self._notice(
            f"Another program has {file} open, or has created, changed, replaced or removed it, "
            f"while cassette {self._path.stem!r} was recorded. {what_now}"
        )

    def _put_in_place(self, *, keeps_others: bool) -> None:
        """Replace the old file, and keep its interactions that were not recorded again."""
        new = read_cassette(self._file)
        player = Player(
            new,
            self._replaces or Matching(),
            base_url=self.recording.base_url or "",
            redactor=self._redactor,
        )
        old = self.recording if keeps_others else ()
        kept = (each for each in old if player.find(each.request)[0] is None)
        whole = chain(kept, new)
        write_cassette(
            self._path, new.metadata, whole, self._redactor, version=self.recording.version
        )
        patiently(self._file.unlink)


def unfinished_files(path: Path) -> list[Path]:
    """Return the files that interrupted recordings left next to a cassette."""
    return [file for file in _unfinished_paths(path) if file.exists()]


def _unused(path: Path) -> Path:
    """Return the first unused name for an unfinished recording."""
    for file in _unfinished_paths(path):
        if not os.path.lexists(file):
            return file
    raise CassetteError(
        f"There are too many unfinished recordings next to {path}.",
        "Look at them with interactions(…), then rename or remove them.",
    )


def _unfinished_paths(path: Path) -> list[Path]:
    """Return ``tour.unfinished.yaml``, ``tour.unfinished-2.yaml``, …"""
    endings = ("", *(f"-{number}" for number in range(2, 100)))
    return [path.with_name(f"{path.stem}.unfinished{ending}.yaml") for ending in endings]


def header_text(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted."""
    # `recorded_with` comes first, since our reader knows our own layout by it.
    about: dict[str, object] = {"recorded_with": f"directmail-lab {VERSION}"}
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
