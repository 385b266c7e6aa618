"""A recording in progress: which file it goes to, and what becomes of the cassette at its end."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING

from . import layout
from .reader import read_cassette
from .recorder import LineWriter, hold, let_go, replace_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from directmail_lab.interaction import Interaction, RecordedRequest
    from directmail_lab.redaction import Redactor


__all__ = ["ReRecording", "Recording"]


class Recording:
    """Appends redacted interactions to a cassette; the lock on it is held until `close`.

    A cassette in another program's layout is rewritten, redacted, at the first interaction; the
    old file stands until the new one is whole.
    """

    def __init__(self, path: Path, *, redactor: Redactor, metadata: Mapping[str, object]) -> None:
        self._lock = hold(path)
        try:
            self.loaded = read_cassette(path) if path.exists() else None
        except BaseException:
            let_go(self._lock)
            raise
        self._path = self._file = path
        self._redactor = redactor
        self._metadata = metadata
        self._writer: LineWriter | None = None
        self._process = os.getpid()

    def append(self, interaction: Interaction) -> None:
        """Redact an interaction and write it: when this returns, a kill does not lose it."""
        text = self._text(self._redactor.interaction(interaction))
        if self._writer is None:
            self._writer = self._start()
        self._writer.append(text)

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette holds by now."""
        if self._writer is not None:
            yield from read_cassette(self._file).interactions
        elif self.loaded is not None:
            yield from self.loaded.interactions

    def count(self) -> int:
        """Return how many interactions the cassette holds by now."""
        if self._writer is not None:
            return self._writer.count
        return len(self.loaded.interactions) if self.loaded is not None else 0

    def close(self) -> None:
        """Close the file and release the lock; a second time does nothing."""
        if os.getpid() != self._process:  # a forked child must not write into its parent's file
            return
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                self._finish(writer)
        finally:
            if self._lock.is_locked:
                let_go(self._lock)

    def _start(self) -> LineWriter:
        sound = self.loaded
        if sound is not None and sound.layout in ("vcrpy", "json"):
            metadata = {**self._metadata, **sound.metadata}
            redacted = map(self._redactor.interaction, sound.interactions)
            replace_whole(self._path, self._header(metadata), map(self._text, redacted))
            sound = read_cassette(self._path)
        return LineWriter(self._path, header=self._header(self._metadata), sound=sound)

    def _finish(self, writer: LineWriter) -> None:
        writer.close()
        self.loaded = read_cassette(self._path)

    def _header(self, metadata: Mapping[str, object]) -> str:
        text = layout.header_text(metadata)
        self._redactor.refuse_leak(text)
        return text

    def _text(self, interaction: Interaction) -> str:
        text = layout.interaction_text(interaction)
        self._redactor.refuse_leak(text)
        return text


class ReRecording(Recording):
    """Records into a file beside, which takes the cassette's place at `close`, not before.

    Interactions of the old cassette that ``replaces`` (the new request, the old one) does not
    find recorded anew are kept, as vcrpy keeps them.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        recorded_anew: Callable[[RecordedRequest], bool],
    ) -> None:
        super().__init__(path, redactor=redactor, metadata=metadata)
        self._file = path.with_name(f".{path.name}.recording")
        self._recorded_anew = recorded_anew

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette will hold: what is kept of the old one, then the new ones."""
        recorded = () if self._writer is None else read_cassette(self._file).interactions
        yield from chain(self._kept(), recorded)

    def count(self) -> int:
        """Return how many interactions the cassette will hold."""
        return sum(1 for _ in self._kept()) + (self._writer.count if self._writer else 0)

    def _kept(self) -> Iterator[Interaction]:
        for each in self.loaded.interactions if self.loaded is not None else ():
            if not self._recorded_anew(self._redactor.request(each.request)):
                yield each

    def _start(self) -> LineWriter:
        self._file.unlink(missing_ok=True)
        return LineWriter(self._file, header=self._header(self._metadata))

    def _finish(self, writer: LineWriter) -> None:
        writer.close()
        recorded = read_cassette(self._file).interactions
        kept = [self._redactor.interaction(each) for each in self._kept()]
        if kept:
            replace_whole(
                self._path, self._header(self._metadata), map(self._text, chain(kept, recorded))
            )
            self._file.unlink()
        else:
            self._file.replace(self._path)
        self.loaded = read_cassette(self._path)
