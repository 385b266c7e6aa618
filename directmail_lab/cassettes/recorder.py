"""Writes a cassette as it happens: one durable append for each interaction.

`LineWriter` appends to a file, `Recording` decides which file that is and what becomes of it at the
end. A lock on the cassette is held all the while, and only the process that opened it writes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, islice
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
_CHUNK_BYTES: Final = 2**20
# The key in any form is shorter than this: it is found across the parts of a long text.
_OVERLAP: Final = 2**16


class LineWriter:
    """Appends interactions to one file; nothing that stands there is ever harmed.

    What `append` wrote is with the operating system before it returns, so a kill loses nothing;
    the disk itself is brought up to date at most once a second, and at `close`.
    """

    def __init__(
        self,
        path: Path,
        *,
        header: str,
        held: LoadedCassette | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._header = header
        self._clock = clock
        self._synced_at = clock()
        self._file: int | None = None
        # Length, checksum and number of what is whole: set at once, so that Ctrl-C leaves all
        # three as they were before an interaction or as they are after it.
        clean_bytes, known = (held.clean_bytes, len(held.interactions)) if held else (0, 0)
        self._whole = clean_bytes, hashlib.sha256(), known

    @property
    def count(self) -> int:
        """How many interactions the file holds."""
        return self._whole[2]

    def append(self, texts: Iterable[str]) -> None:
        """Write the lines of one interaction, one write for each of their parts.

        Raises
        ------
        OSError
            Where they cannot be written whole. The file is then as it was before.
        """
        file = self.open()
        size, digest, number = self._whole
        digest = digest.copy()
        try:
            for text in texts:
                data = text.encode()
                _write(file, data)
                digest.update(data)
                size += len(data)
        except BaseException:
            with suppress(OSError):
                self._cut_back(file)
            raise
        self._whole = size, digest, number + 1
        now = self._clock()
        if now - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = now
            os.fsync(file)

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
            self._cut_back(file)
            _, digest, number = self._whole
            try:
                _write(file, layout.end_line(number, digest.hexdigest()).encode())
            except OSError:
                self._cut_back(file)
                raise
            os.fsync(file)
        finally:
            os.close(file)

    def open(self) -> int:
        """Open the file behind its last whole interaction: a torn one and an end line go."""
        if self._file is None:
            file = os.open(self._path, OPEN_TO_WRITE | os.O_CREAT, 0o666)
            try:
                self._whole = self._begun(file)
            except BaseException:
                os.close(file)
                raise
            self._file = file
        self._cut_back(self._file)
        return self._file

    def _begun(self, file: int) -> tuple[int, hashlib._Hash, int]:
        """Return what stands in the file; the header is written where nothing does."""
        clean_bytes, digest, number = self._whole[0], hashlib.sha256(), self._whole[2]
        if clean_bytes == 0:
            header = self._header.encode()
            os.ftruncate(file, 0)
            _write(file, header)
            return len(header), hashlib.sha256(header), 0
        with self._path.open("rb") as written:
            for at in range(0, clean_bytes, _CHUNK_BYTES):
                digest.update(written.read(min(_CHUNK_BYTES, clean_bytes - at)))
        return clean_bytes, digest, number

    def _cut_back(self, file: int) -> None:
        """Let the file end behind its last whole interaction, where it does not."""
        clean_bytes = self._whole[0]
        if os.lseek(file, 0, os.SEEK_END) != clean_bytes:
            os.ftruncate(file, clean_bytes)
            os.lseek(file, clean_bytes, os.SEEK_SET)


def _write(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])


def replace_whole(path: Path, header: str, interactions: Iterable[Iterable[str]]) -> None:
    """Write a closed cassette in the place of ``path``, which stands until the new one is whole."""
    with create(path) as fresh:
        writer = LineWriter(fresh, header=header)
        writer.open()
        for texts in interactions:
            writer.append(texts)
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
        What the cassette held when it was opened; None where there was no file.
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
        self._locks = [acquire_lock(self._path)]
        self._anew = anew
        try:
            self.loaded = read_cassette(self._path) if self._path.exists() else None
            if anew is not None and self.loaded is not None and len(self.loaded.interactions):
                names = _unfinished_names(self._path)
                self._file = next(name for name in names if not name.exists())
                self._locks.append(acquire_lock(self._file))
        except BaseException:
            self._release()
            raise
        # What was once redacted in a cassette is redacted in it from then on.
        self._redactor = redactor.also(self.loaded.redact if self.loaded else ())
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
        texts = checked(interaction, self._redactor)
        if self._writer is None:
            self._writer = self._start()
        self._writer.append(texts)

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette holds by now, or will hold when it is recorded anew."""
        if self._writer is None:
            return iter(self.loaded.interactions if self.loaded is not None else ())
        if self._file == self._path or self.closed:
            return iter(read_cassette(self._path).interactions)
        assert self.loaded is not None
        assert self._anew is not None
        return merged(self.loaded, read_cassette(self._file), self._anew, self._redactor)

    def count(self) -> int:
        """Return how many interactions that are."""
        if self._writer is not None and self._file == self._path:
            return self._writer.count
        return sum(1 for _ in self.interactions())

    def close(self) -> None:
        """Close the file and release the lock; a second time does nothing."""
        if self.closed or self.is_inherited:
            return
        self.closed = True
        try:
            if self._writer is not None:
                self._writer.close()
                if self._anew is not None and self._file != self._path:
                    adopt(self._path, self._file, self._anew, self._redactor)
        finally:
            self._release()

    def _release(self) -> None:
        for lock in self._locks:
            release_lock(lock)

    def _start(self) -> LineWriter:
        held = self.loaded
        if self._file != self._path:
            held = None
        elif held is not None and (held.foreign or held.redact != self._redactor.redact):
            self._rewrite(held)
            held = read_cassette(self._path)
        return LineWriter(self._file, header=header_for(self._metadata, self._redactor), held=held)

    def _rewrite(self, held: LoadedCassette) -> None:
        """Bring what another program wrote, or what is to be redacted further, into our layout."""
        metadata = {
            **self._metadata,
            **held.metadata,
            "recorded_with": self._metadata["recorded_with"],
            "base_url": held.base_url or self._metadata.get("base_url"),
        }
        # Its credentials are none that we were told: they are known by where they stand.
        learned = Redactor(secrets_in(held.interactions))
        redacted = map(learned.interaction, held.interactions)
        texts = (checked(each, self._redactor) for each in redacted)
        replace_whole(self._path, header_for(metadata, self._redactor), texts)


def adopt(path: Path, unfinished: Path, matching: Matching, redactor: Redactor) -> int:
    """Put what was recorded anew into its cassette; returns how many interactions that were."""
    new = read_cassette(unfinished)
    together = merged(read_cassette(path), new, matching, redactor)
    texts = (checked(each, redactor) for each in together)
    replace_whole(path, header_for(new.metadata, redactor), texts)
    unfinished.unlink()
    return len(new.interactions)


def merged(
    old: LoadedCassette, new: LoadedCassette, matching: Matching, redactor: Redactor
) -> Iterator[Interaction]:
    """Yield the old interactions, redacted, whose requests are not among the new, then the new."""
    prefix = base_path(old.base_url or "")
    anew = Player(
        new.interactions, matching, prefix=base_path(new.base_url or ""), name=new.path.stem
    )
    for each in old.interactions:
        kept = redactor.interaction(each)
        if anew.last(matching.keys(kept.request, prefix), kept.request) is None:
            yield kept
    yield from new.interactions


def unfinished_files(path: Path) -> list[Path]:
    """Return what recordings anew of a cassette left that broke off: ``tour.unfinished.yaml``, …"""
    return [name for name in islice(_unfinished_names(path), 100) if name.exists()]


def _unfinished_names(path: Path) -> Iterator[Path]:
    for number in count(1):
        yield path.with_name(f"{path.stem}.unfinished{f'-{number}' * (number > 1)}.yaml")


def checked(interaction: Interaction, redactor: Redactor) -> Iterable[str]:
    """Return the text of an interaction, redacted and searched once more for the key.

    A short one is one text; a long one comes in parts, searched first, so that a leak in the last
    keeps the first from being written.
    """
    size = len(interaction.request.body or b"") + len(interaction.response.body)
    if size <= _CHUNK_BYTES:
        return (redactor.written(interaction, layout.interaction_text),)
    interaction, before = redactor.interaction(interaction), ""
    for text in layout.interaction_parts(interaction):
        before = before[-_OVERLAP:] + text
        redactor.refuse_leak(before)
    return layout.interaction_parts(interaction)


def header_for(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted, which say by what rules it is."""
    about = redacted_metadata(metadata, redactor)
    text = layout.header_text(
        about | ({"redact": list(redactor.redact)} if redactor.redact else {})
    )
    redactor.refuse_leak(text)
    return text


def redacted_metadata(metadata: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    """Return what a cassette says of itself, as it may be written."""
    return {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in metadata.items()
    }


def about_recording(
    base_url: str | None, given: Mapping[str, object] | None, clock: Callable[[], float]
) -> dict[str, object]:
    """Return what a new cassette says of itself: by what it was recorded, of where, and when."""
    from directmail_lab import __version__

    started = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="microseconds")
    about: dict[str, object] = {
        # First, and always ours: it is what tells the line layout from others.
        "recorded_with": f"directmail-lab {__version__}",
        "base_url": base_url,
        "started_at": started.replace("+00:00", "Z"),
    }
    return about | {name: value for name, value in (given or {}).items() if name not in about}
