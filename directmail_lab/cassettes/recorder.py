"""Records interactions as they happen: each is appended to the file before the next request.

`LineWriter` appends to a file; `Recording` holds the lock on a cassette, and puts what was recorded
in its place. Only the process that opened a recording writes to it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from ..errors import CassetteError
from ..interaction import Interaction, base_path
from ..redaction import Redactor, secrets_in
from . import layout
from .library import create, locked
from .player import Matcher, Player
from .reader import LoadedCassette, read_cassette

_FSYNC_EVERY_S: Final = 1.0
_LONG_BODY_BYTES: Final = 2**20
# The key in any form is shorter than this: it is found across the parts of a long text.
_OVERLAP: Final = 2**16
# Not through a symbolic link.
_OPEN_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


class LineWriter:
    """Appends interactions to one file, and never damages the interactions already in it.

    What `append` wrote is with the operating system before it returns, so a kill loses nothing;
    the file is synced to disk at most once a second, and at `close`. A torn interaction and an end
    line in the file are removed first. Each call raises OSError if it cannot write everything; the
    file is then as it was before.

    Parameters
    ----------
    header
        The first lines of a new file.
    loaded
        What the file holds, where it is not new.
    """

    def __init__(self, path: Path, header: str, loaded: LoadedCassette | None = None) -> None:
        self._synced_at = time.monotonic()
        self._file = os.open(path, _OPEN_FLAGS, 0o666)
        # Length, checksum and number of the whole interactions: set at once, so that Ctrl-C leaves
        # all three as they were before an interaction or as they are after it.
        self._state = 0, hashlib.sha256(), 0
        try:
            if loaded is not None and (size := loaded.clean_bytes):
                data = memoryview(path.read_bytes())[:size]
                self._state = size, hashlib.sha256(data), len(loaded.interactions)
                self._truncate()
            else:
                self._state = *self._write([header]), 0
        except BaseException:
            os.close(self._file)
            raise

    def append(self, texts: Iterable[str]) -> None:
        """Write the lines of one interaction, one write for each of their parts."""
        self._state = *self._write(texts), self._state[2] + 1
        now = time.monotonic()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(self._file)

    def close(self) -> None:
        """Write the line that closes the recording, sync the file to disk, close it.

        Where there is no room for the line, every interaction is there all the same.
        """
        try:
            _, digest, number = self._state
            self._write([layout.end_line(number, digest.hexdigest())])
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def _write(self, texts: Iterable[str]) -> tuple[int, hashlib._Hash]:
        """Write after the whole interactions; returns the new length and checksum of the file."""
        self._truncate()
        size, digest = self._state[0], self._state[1].copy()
        try:
            for text in texts:
                data = memoryview(text.encode())
                digest.update(data)
                size += len(data)
                while data:
                    data = data[os.write(self._file, data) :]
        except BaseException:
            with suppress(OSError):
                self._truncate()
            raise
        return size, digest

    def _truncate(self) -> None:
        """Truncate the file after its last whole interaction, if it is longer."""
        size = self._state[0]
        if os.lseek(self._file, 0, os.SEEK_END) != size:
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)


def write_cassette(
    path: Path,
    metadata: Mapping[str, object],
    interactions: Iterable[Interaction],
    redactor: Redactor,
) -> None:
    """Write a closed, redacted cassette in the place of ``path``, which stands until then."""
    with create(path) as new:
        writer = LineWriter(new, header_text(metadata, redactor))
        try:
            for interaction in interactions:
                writer.append(_redacted_texts(interaction, redactor))
        finally:
            writer.close()


class Recording:
    """Appends redacted interactions to a cassette; the lock on it is held until `close`.

    A cassette in another program's layout is rewritten, redacted, at the first interaction; the
    old file stands until the new one is whole. A forked child neither writes nor closes.

    Parameters
    ----------
    replaces
        Where the cassette is recorded anew, the matchers by which a new interaction replaces an old
        one; the others are kept, as vcrpy keeps them. The old file stands until `close`. After a
        kill the file beside it does too, named as in `unfinished_files`, until ``repair`` merges
        it.

    Attributes
    ----------
    loaded
        What the cassette held when it was opened.
    closed
        Whether it has ended, and the lock was released.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        replaces: Sequence[str | Matcher] | None = None,
    ) -> None:
        with ExitStack() as locks:
            self._path = self._file = locks.enter_context(locked(path))
            exists = self._path.exists()
            self.loaded = read_cassette(self._path) if exists else LoadedCassette(self._path)
            if replaces is not None and len(self.loaded.interactions):
                unused = next(file for file in _unfinished_paths(self._path) if not file.exists())
                self._file = locks.enter_context(locked(unused))
            self._locks = locks.pop_all()
        # A field that was once redacted in a cassette is redacted in all later recordings to it.
        self._redactor = redactor.extended(self.loaded.redact)
        self._metadata = metadata
        self._replaces = replaces
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self.closed = False

    def append(self, interaction: Interaction) -> None:
        """Redact an interaction and write it: when this returns, a kill does not lose it."""
        if os.getpid() != self._process:
            return
        if self.closed:
            raise CassetteError(
                f"The recording of cassette {self._path.stem!r} was closed. Record it again to add "
                "to it."
            )
        texts = _redacted_texts(interaction, self._redactor)
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.append(texts)

    def interactions(self) -> Sequence[Interaction]:
        """Return what the cassette holds by now; of one that is recorded anew, what is new."""
        if self._writer is not None:
            return read_cassette(self._file).interactions
        return self.loaded.interactions if self._file == self._path else ()

    def close(self) -> bool:
        """Close the file and release the lock; returns whether anything was recorded."""
        if self.closed or os.getpid() != self._process:
            return False
        self.closed = True
        with self._locks:
            if self._writer is not None:
                self._writer.close()
                if self._replaces is not None and self._file != self._path:
                    merge(self._path, self._file, self._replaces, self._redactor)
            self._file = self._path
        return self._writer is not None

    def _open_writer(self) -> LineWriter:
        header, loaded = header_text(self._metadata, self._redactor), self.loaded
        if self._file != self._path:
            return LineWriter(self._file, header)
        if loaded.clean_bytes and (loaded.foreign or loaded.redact != self._redactor.redact):
            metadata = {**self._metadata, **loaded.metadata}
            metadata["base_url"] = loaded.base_url or self._metadata.get("base_url")
            # This process does not know the credentials in it: they are found by their place.
            learned = Redactor(secrets_in(loaded.interactions))
            interactions = map(learned.interaction, loaded.interactions)
            write_cassette(self._path, metadata, interactions, self._redactor)
            loaded = read_cassette(self._path)
        return LineWriter(self._file, header, loaded)


def merge(
    path: Path, unfinished: Path, match_on: Sequence[str | Matcher], redactor: Redactor
) -> int:
    """Put an unfinished recording into its cassette; return how many interactions it has.

    Old interactions whose requests are not among the new ones are kept, before them.
    """
    old, new = read_cassette(path), read_cassette(unfinished)
    old_prefix, prefix = base_path(old.base_url or ""), base_path(new.base_url or "")
    player = Player(new.interactions, match_on, prefix=prefix, redactor=redactor)
    others = (each for each in old.interactions if player.find(each.request, old_prefix) is None)
    write_cassette(path, new.metadata, chain(others, new.interactions), redactor)
    unfinished.unlink()
    return len(new.interactions)


def unfinished_files(path: Path) -> list[Path]:
    """Return the files left by interrupted recordings in mode "all"."""
    return [file for file in _unfinished_paths(path) if file.exists()]


def _unfinished_paths(path: Path) -> list[Path]:
    """Return ``tour.unfinished.yaml``, ``tour.unfinished-2.yaml``, …"""
    endings = ("", *(f"-{number}" for number in range(2, 100)))
    return [path.with_name(f"{path.stem}.unfinished{ending}.yaml") for ending in endings]


def _redacted_texts(interaction: Interaction, redactor: Redactor) -> Iterable[str]:
    """Return the lines of an interaction, redacted, and searched once more for the key.

    A long one comes in parts, so that little memory is needed besides its body. All are searched
    first, so that a leak in the last part keeps the first from being written.
    """
    size = len(interaction.request.body or b"") + len(interaction.response.body)
    if size <= _LONG_BODY_BYTES:
        return (redactor.redacted_text(interaction, layout.interaction_text),)
    interaction = redactor.interaction(interaction)
    window = ""
    for text in layout.interaction_parts(interaction):
        window = window[-_OVERLAP:] + text
        redactor.refuse_leak(window)
    return layout.interaction_parts(interaction)


def header_text(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted; they name the rules of its redaction."""
    from directmail_lab import __version__

    # First, and always ours: it is what tells the line layout from others.
    ours = {"recorded_with": f"directmail-lab {__version__}"}
    rules = {"redact": list(redactor.redact)} if redactor.redact else {}
    text = layout.header_text({**ours, **redacted_metadata(metadata, redactor), **ours, **rules})
    redactor.refuse_leak(text)
    return text


def redacted_metadata(metadata: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    """Return what a cassette says of itself, as it may be written."""
    return {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in metadata.items()
    }
