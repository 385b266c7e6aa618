"""Writes a cassette as it happens: one durable append for each interaction.

`LineWriter` appends to a file; `Recording` chooses that file and puts it in its final place. It
holds a lock on the cassette all the while, and only the process that opened it writes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count, islice
from pathlib import Path
from typing import Final

from ..errors import CassetteError
from ..interaction import Interaction, base_path
from ..redaction import Redactor, secrets_in
from . import layout
from .library import OPEN_TO_WRITE, acquire_lock, create, real_path, release_lock
from .player import Matching, Player
from .reader import LoadedCassette, read_cassette

_FSYNC_EVERY_S: Final = 1.0
_LONG_BODY_BYTES: Final = 2**20
# The key in any form is shorter than this: it is found across the parts of a long text.
_OVERLAP: Final = 2**16


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
    held
        What the file holds, where it is not new.
    """

    def __init__(self, path: Path, header: str, held: LoadedCassette | None = None) -> None:
        self._synced_at = time.monotonic()
        self._file = os.open(path, OPEN_TO_WRITE | os.O_CREAT, 0o666)
        # Length, checksum and number of what is whole: set at once, so that Ctrl-C leaves all
        # three as they were before an interaction or as they are after it.
        self._whole = 0, hashlib.sha256(), 0
        try:
            if held is not None and (size := held.clean_bytes):
                written = memoryview(path.read_bytes())[:size]
                self._whole = size, hashlib.sha256(written), len(held.interactions)
                self._cut_back()
            else:
                self._whole = *self._written([header]), 0
        except BaseException:
            os.close(self._file)
            raise

    def append(self, texts: Iterable[str]) -> None:
        """Write the lines of one interaction, one write for each of their parts."""
        self._whole = *self._written(texts), self._whole[2] + 1
        now = time.monotonic()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(self._file)

    def close(self) -> None:
        """Write the line that closes the recording, bring the disk up to date, close the file.

        Where there is no room for the line, every interaction is there all the same.
        """
        try:
            _, digest, number = self._whole
            self._written([layout.end_line(number, digest.hexdigest())])
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def _written(self, texts: Iterable[str]) -> tuple[int, hashlib._Hash]:
        """Write behind what is whole; returns the length and checksum of the file with it."""
        self._cut_back()
        size, digest = self._whole[0], self._whole[1].copy()
        try:
            for text in texts:
                data = memoryview(text.encode())
                digest.update(data)
                size += len(data)
                while data:
                    data = data[os.write(self._file, data) :]
        except BaseException:
            with suppress(OSError):
                self._cut_back()
            raise
        return size, digest

    def _cut_back(self) -> None:
        """Truncate the file after its last whole interaction, if it is longer."""
        clean_bytes = self._whole[0]
        if os.lseek(self._file, 0, os.SEEK_END) != clean_bytes:
            os.ftruncate(self._file, clean_bytes)
            os.lseek(self._file, clean_bytes, os.SEEK_SET)


def write_whole(
    path: Path,
    metadata: Mapping[str, object],
    interactions: Iterable[Interaction],
    redactor: Redactor,
) -> None:
    """Write a closed cassette in the place of ``path``, which stands until the new one is whole.

    The interactions come redacted, by ``redactor``: what it finds in them all the same is refused.
    """
    with create(path) as fresh:
        writer = LineWriter(fresh, header_for(metadata, redactor))
        try:
            for each in interactions:
                writer.append(checked(each, redactor))
        finally:
            writer.close()


class Recording:
    """Appends redacted interactions to a cassette; the lock on it is held until `close`.

    A cassette in another program's layout is rewritten, redacted, at the first interaction; the
    old file stands until the new one is whole. A forked child neither writes nor closes.

    Parameters
    ----------
    anew
        Where the cassette is recorded anew, what tells which old interactions were recorded again;
        the others are kept, as vcrpy keeps them. The old file stands until `close`. After a kill
        the file beside it does too, named as `unfinished_files` says, until ``repair`` adopts it.

    Attributes
    ----------
    loaded
        What the cassette held when it was opened; nothing where there was no file.
    closed
        Whether it has ended, and the lock was released.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        anew: Matching | None = None,
    ) -> None:
        self._path = self._file = real_path(path)
        self._anew = anew
        with ExitStack() as locks:
            locks.callback(release_lock, acquire_lock(self._path))
            self.loaded = LoadedCassette(self._path, "empty", {}, ())
            if self._path.exists():
                self.loaded = read_cassette(self._path)
            if anew is not None and len(self.loaded.interactions):
                self._file = next(each for each in _unfinished(self._path) if not each.exists())
                locks.callback(release_lock, acquire_lock(self._file))
            self._locks = locks.pop_all()
        # A field that was once redacted in a cassette is redacted in all later recordings to it.
        self._redactor = redactor.also(self.loaded.redact)
        self._metadata = metadata
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self.closed = False

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that records."""
        return os.getpid() != self._process

    def append(self, interaction: Interaction) -> None:
        """Redact an interaction and write it: when this returns, a kill does not lose it."""
        if self.is_inherited:
            return
        if self.closed:
            raise CassetteError(
                f"The recording of cassette {self._path.stem!r} was closed. Record it again to add "
                "to it."
            )
        texts: Iterable[str]
        if _is_long(interaction):
            texts = checked(self._redactor.interaction(interaction), self._redactor)
        else:
            texts = (self._redactor.written(interaction, layout.interaction_text),)
        if self._writer is None:
            self._writer = self._start()
        self._writer.append(texts)

    def interactions(self) -> Sequence[Interaction]:
        """Return what the cassette holds by now; of one that is recorded anew, what is new."""
        is_beside = self._file != self._path and not self.closed
        if self._writer is None:
            return () if is_beside else self.loaded.interactions
        return read_cassette(self._file if is_beside else self._path).interactions

    def close(self) -> None:
        """Close the file and release the lock; a second time does nothing."""
        if self.closed or self.is_inherited:
            return
        self.closed = True
        with self._locks:
            if self._writer is not None:
                self._writer.close()
                if self._anew is not None and self._file != self._path:
                    adopt(self._path, self._file, self._anew, self._redactor)

    def _start(self) -> LineWriter:
        header = header_for(self._metadata, self._redactor)
        if self._file != self._path:
            return LineWriter(self._file, header)
        held = self.loaded
        if held.clean_bytes and (held.foreign or held.redact != self._redactor.redact):
            metadata = {**self._metadata, **held.metadata}
            metadata["base_url"] = held.base_url or self._metadata.get("base_url")
            # Its credentials are not known to this process, so they are found by their place.
            learned = Redactor(secrets_in(held.interactions))
            redacted = map(self._redactor.interaction, map(learned.interaction, held.interactions))
            write_whole(self._path, metadata, redacted, self._redactor)
            held = read_cassette(self._path)
        return LineWriter(self._file, header, held)


def adopt(path: Path, unfinished: Path, matching: Matching, redactor: Redactor) -> int:
    """Put an unfinished recording into its cassette; return how many interactions it has.

    Old interactions whose requests are not among the new ones are kept, before them.
    """
    old, new = read_cassette(path), read_cassette(unfinished)
    old_prefix, prefix = base_path(old.base_url or ""), base_path(new.base_url or "")
    anew = Player(new.interactions, matching, prefix=prefix, name=path.stem)
    kept = (
        each
        for each in map(redactor.interaction, old.interactions)
        if anew.last(matching.keys(each.request, old_prefix), each.request) is None
    )
    write_whole(path, new.metadata, chain(kept, new.interactions), redactor)
    unfinished.unlink()
    return len(new.interactions)


def unfinished_files(path: Path) -> list[Path]:
    """Return the files left by interrupted recordings in mode "all": ``tour.unfinished.yaml``, …"""
    return [each for each in islice(_unfinished(path), 100) if each.exists()]


def _unfinished(path: Path) -> Iterator[Path]:
    for number in count(1):
        yield path.with_name(f"{path.stem}.unfinished{f'-{number}' * (number > 1)}.yaml")


def checked(interaction: Interaction, redactor: Redactor) -> Iterable[str]:
    """Return the text of a redacted interaction, searched once more for the key.

    A short one is one text; a long one comes in parts, searched first, so that a leak in the last
    keeps the first from being written.
    """
    if not _is_long(interaction):
        text = layout.interaction_text(interaction)
        redactor.refuse_leak(text)
        return (text,)
    before = ""
    for text in layout.interaction_parts(interaction):
        before = before[-_OVERLAP:] + text
        redactor.refuse_leak(before)
    return layout.interaction_parts(interaction)


def _is_long(interaction: Interaction) -> bool:
    size = len(interaction.request.body or b"") + len(interaction.response.body)
    return size > _LONG_BODY_BYTES


def header_for(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted, which say by what rules it is."""
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
