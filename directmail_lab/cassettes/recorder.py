"""Record interactions as they happen: each is in the file before the caller has the response.

`open_recorder` locks the cassette. Its recorder writes to the cassette's own file, or to another
one that takes its place when everything was recorded again. Only the process that opened a recorder
writes to it.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Literal, NamedTuple

from ..errors import CassetteError, CassetteFormatError, CassetteInUseError
from ..exchange.bodies import missing_body
from ..exchange.values import Interaction, Request, is_write, may_be_done
from ..redaction import Redactor
from . import layout
from .earlier_runs import EarlierRuns, unused_file
from .files import MAX_FILE_BYTES, FileRecording, read_cassette
from .library import locked, patiently, version_of
from .matching import Matching
from .player import Player
from .writer import LineWriter, header_text, write_cassette

Ending = Literal["merge", "replace", "aside"]
"""What `close` does with a recording that stands aside: see `directmail_lab.cassettes.Cassette`."""

# Room for a usual interaction: a file this near to its limit is full.
_SPARE_BYTES = 1024**2
_SPOOL_BYTES = 1024**2


class Written(NamedTuple):
    """An interaction that was recorded.

    Attributes
    ----------
    number
        Its number in the cassette, or None if that is not known before the recording is closed.
    request
        Its request as written.
    body
        The body of its response as written: a placeholder if it could not be stored.
    """

    number: int | None
    request: Request
    body: bytes


@dataclass(eq=False, slots=True)
class Begun:
    """A write that is in the file before it is sent, until its response replaces it."""

    recorder: Recorder
    interaction: Interaction
    index: int


class _Entry(NamedTuple):
    """A redacted interaction, its text in the file, and whether it is a write."""

    interaction: Interaction
    text: bytes
    is_write: bool


class Recorder:
    """Appends redacted interactions to a file, and keeps the cassette locked until `close`.

    What is replaced is dropped by readers at once, and from the file at `close`: see `layout.MARK`.
    A file that another program changes is left to it, and the recording goes on in another one.

    Parameters
    ----------
    path, file
        The cassette's file, and the file that is written.
    recording
        The cassette's recording when it was opened.
    locks
        Releases the locks.
    matching
        Tells which requests are the same.
    notice
        Called with a sentence if another program changed the file.
    updates
        Whether everything is recorded again: a new interaction replaces those of earlier runs to
        the same request. The others stay, as in vcrpy.

    Attributes
    ----------
    earlier
        What is in the cassette's file, and what earlier runs left.
    closed
        Whether the recording has ended and the lock was released.
    """

    def __init__(
        self,
        path: Path,
        file: Path,
        recording: FileRecording,
        locks: ExitStack,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        notice: Callable[[str], None],
        matching: Matching,
        updates: bool = False,
    ) -> None:
        self._path = path
        self._file = file
        self._locks = locks
        # If a field was once redacted in a cassette, later recordings to it redact it too.
        self._redactor = redactor.extended(recording.redact)
        self._metadata = metadata
        self._notice = notice
        self._matching = matching
        self._updates = updates
        base_url = metadata.get("base_url")
        self.earlier = EarlierRuns(path, recording, matching, self._redactor, base_url)
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self._said_forked = False
        self.closed = False
        # The indexes of what was replaced, and of writes that were begun and are to be dropped.
        self._replaced: set[int] = set()
        self._dropped: set[int] = set()
        self._begun: list[Begun] = []
        self._write_texts = _WriteTexts()
        # How many credentials the redactor knew when it began to write.
        self._learned: int | None = None

    # -- write -----------------------------------------------------------------------------------

    def begin(self, interaction: Interaction) -> Begun | None:
        """Write a request before it is sent, as one to which no response came.

        Returns None if the recording has ended.
        """
        if self.closed or self._is_forked:
            return None
        entry = self._entry_of(interaction)
        writer = self._writer_for(entry)
        begun = Begun(self, entry.interaction, writer.extent.number)
        self._append(writer, entry, ())
        self._begun.append(begun)
        return begun

    def append(self, interaction: Interaction, begun: Begun | None = None) -> Written | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        It replaces the write that was ``begun``. Returns None if the recording has ended.
        """
        if self._is_forked:
            if not self._said_forked:
                self._said_forked = True
                self._notice(
                    f"This process was forked while cassette {self._path.stem!r} was recorded. "
                    "What it sends is not recorded."
                )
            return None
        if self.closed:  # while the request was in flight
            self._notice(
                f"A response arrived after cassette {self._path.stem!r} was closed. It is not "
                f"recorded, so a later run does not know of the {interaction.request.method}."
            )
            return None
        entry = self._entry_of(interaction)
        writer = self._writer_for(entry)
        if writer.extent.size + len(entry.text) > MAX_FILE_BYTES:
            response = interaction.response
            response = replace(response, body=missing_body(len(response.body)))
            entry = self._entry_of(replace(interaction, response=response))
        dropped = self._dropped.copy()
        key = None
        if self._updates and self.earlier.count and not self._is_moved:
            key, replaced = self.earlier.replaced_by(
                entry.interaction, is_write=entry.is_write, replaced=self._replaced
            )
            dropped.update(replaced)
        if begun is not None:
            dropped.update(self._places_of(begun))
        self._append(writer, entry, dropped)
        self._dropped.clear()
        if key is not None:
            self.earlier.note(key)
        if begun in self._begun:
            self._begun.remove(begun)
        written = entry.interaction
        return Written(self._number(), written.request, written.response.body)

    def drop(self, begun: Begun) -> None:
        """Drop a write that was begun and not sent."""
        if self.closed or self._is_forked or begun not in self._begun:
            return
        self._begun.remove(begun)
        writer = self._writer
        if writer is not None and begun.index == writer.extent.number - 1 and writer.withdraw():
            self._write_texts.forget([begun.index])
        else:
            self._dropped.add(begun.index)

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _entry_of(self, interaction: Interaction) -> _Entry:
        text, written = self._redactor.redacted_text(interaction, layout.interaction_text)
        return _Entry(written, text.encode(), is_write(written.request))

    def _writer_for(self, entry: _Entry) -> LineWriter:
        """Return the writer of a file that nobody else has changed, and that has room."""
        if self._writer is None:
            self._writer = self._open_writer()
        elif not self._writer.is_in_place() or (
            entry.is_write and not self._writer.ends_as_written()
        ):
            changed = self._writer
            self._writer = self._open_beside(self._lost(changed))
            changed.release()
        if self._writer.extent.size + len(entry.text) > MAX_FILE_BYTES and self._replaced:
            self._writer.release()
            self._writer = None
            self._compact()
            self._writer = self._open_writer()
        return self._writer

    def _append(self, writer: LineWriter, entry: _Entry, dropped: Collection[int]) -> None:
        """Write an interaction, with a mark of what it replaces.

        What is known of the file changes only after it was written: a full disk changes nothing.
        """
        if self._learned is None:
            self._learned = self._redactor.learned
        if dropped:
            numbers = [index + 1 for index in sorted(dropped)]
            mark = layout.mark_line(numbers, writer.extent.number).encode()
            writer.append(mark + entry.text)
            self._replaced.update(dropped)
            self._write_texts.forget(dropped)
        else:
            writer.append(entry.text)
        if entry.is_write:
            self._write_texts.add(writer.extent.number - 1, entry.text)

    def _number(self) -> int | None:
        """Return the number of the last interaction, if it is final."""
        is_final = not (self._is_moved or self._begun or (self._updates and self.earlier.count))
        if not is_final or self._writer is None:
            return None
        return self._writer.extent.number - len(self._replaced)

    def _places_of(self, begun: Begun) -> list[int]:
        """Return the index of a write that was begun, maybe by an earlier recorder of this file."""
        if begun.recorder is self:
            return [begun.index] if begun in self._begun else []
        interactions = self.earlier.recording.interactions
        for index in range(len(interactions) - 1, -1, -1):
            if interactions[index] == begun.interaction:
                return [index]
        return []

    # -- the file --------------------------------------------------------------------------------

    @property
    def _is_moved(self) -> bool:
        """Whether another file than the cassette's is written."""
        return self._file != self._path

    def _open_writer(self) -> LineWriter:
        """Open the file for the first interaction, or another one if somebody has changed it."""
        raise NotImplementedError

    def _compact(self) -> None:
        """Write the file anew, without what was replaced, and count from there."""
        recording = read_cassette(self._file)
        count = len(recording) + len(self._replaced)
        gone = self._replaced | self._dropped
        left = [index for index in range(count) if index not in gone]
        earlier_count = self.earlier.count_left(self._replaced)
        self._rewrite(recording)
        self._renumber({index: at for at, index in enumerate(left)})
        if not self._is_moved:
            self.earlier.reread(read_cassette(self._file), earlier_count)

    def _renumber(self, moved: Mapping[int, int]) -> None:
        """Follow the interactions to their new places in a file that was written anew."""
        self._replaced.clear()
        self._dropped.clear()
        self._write_texts.renumber(moved)
        self._begun = [each for each in self._begun if each.index in moved]
        for each in self._begun:
            each.index = moved[each.index]

    def _rewrite(self, recording: FileRecording, *, as_written: bool = True) -> None:
        """Write a compact copy of the file in our layout, in its place."""
        count = len(recording) + len(self._replaced)
        indexes = [index for index in range(count) if index not in self._replaced]
        parts = zip(indexes, recording.parts(as_written=as_written), strict=True)
        left = (part for index, part in parts if index not in self._dropped)
        metadata = self._metadata_of(recording)
        write_cassette(self._file, metadata, left, self._redactor, version=recording.version)

    def _metadata_of(self, recording: FileRecording) -> Mapping[str, object]:
        return recording.metadata

    def _new_file(self, path: Path) -> LineWriter:
        """Create a file with the cassette's permissions."""
        path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        writer = LineWriter(path, header_text(self._metadata, self._redactor))
        with suppress(OSError):
            shutil.copymode(self._path, path)
        return writer

    # -- a file that another program changes -----------------------------------------------------

    def _lost(self, changed: LineWriter) -> dict[int, bytes]:
        """Return what this run has written and the cassette's path no longer leads to, by index.

        If the file itself was overwritten, that is known of writes alone.
        """
        if not changed.is_elsewhere():
            return self._write_texts.texts()
        first = 0 if self._is_moved else self.earlier.count
        start = 0 if self._is_moved else self.earlier.recording.bytes_before(first)
        found = layout.INTERACTION.finditer(changed.read(start))
        texts = {first + at: each[0] for at, each in enumerate(found)}
        return {index: text for index, text in texts.items() if index not in self._replaced}

    def _open_beside(self, lost: Mapping[int, bytes]) -> LineWriter:
        """Open another file, which begins with what this run has written before."""
        changed = self._file
        beside = unused_file(self._path)
        writer = self._new_file(beside)
        kept = {index: text for index, text in lost.items() if index not in self._dropped}
        for text in kept.values():
            writer.append(text)
        self._renumber({index: at for at, index in enumerate(kept)})
        self._file = beside
        self._notice_changed(changed, f"The recording continues in {beside}.")
        return writer

    def _notice_changed(self, file: Path, what_now: str) -> None:
        self._notice(
            f"Another program has {file} open, or has created, changed, replaced or removed it, "
            f"while cassette {self._path.stem!r} was recorded. {what_now}"
        )

    # -- what earlier runs recorded --------------------------------------------------------------

    def sent_before(self, write: Request) -> list[tuple[FileRecording, int]]:
        """Return when earlier runs sent a write, in order: the file and the number in it.

        After a 4xx, or if no connection was made, nothing was carried out, so that does not count.
        A mode that replays sends a write only if no response came to it, or if it is a new one.
        """
        replaced = () if self._is_moved else self._replaced
        found = []
        for recording, index in self.earlier.sent(
            self._redactor.request(write), self._file, replaced
        ):
            response = recording.interactions[index].response
            is_own = recording is self.earlier.recording
            is_replayed = is_own and not self._updates and response.failure is None
            if may_be_done(response) and not is_replayed:
                found.append((recording, index + 1))
        return found

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last, if the file is as it was left."""
        if self._writer is None:
            self.earlier.continue_last()

    # -- ask and close ---------------------------------------------------------------------------

    @property
    def has_recorded(self) -> bool:
        return self._writer is not None

    def refuse_if_full(self) -> None:
        """Raise `CassetteError` if the file has no room for another interaction."""
        size = self._writer.extent.size if self._writer else self.earlier.recording.clean_bytes
        if size > MAX_FILE_BYTES - _SPARE_BYTES and not self._replaced:
            raise CassetteError(
                f"Cassette {self._path.stem!r} has {size:,} of at most {MAX_FILE_BYTES:,} bytes. "
                "Nothing was sent.",
                "Record under another name.",
            )

    def refuse_if_forked(self, request: Request) -> None:
        """Raise `CassetteError` for a write in a forked process, which cannot record it."""
        if self._is_forked and is_write(request):
            raise CassetteError(
                f"This process was forked while cassette {self._path.stem!r} was recorded, and "
                f"cannot add to it. The {request.method} was not sent.",
                "Send it in the process that records, or start this one with "
                'multiprocessing.set_start_method("spawn") and its own session.',
            )

    def current(self) -> FileRecording:
        """Return the recording so far; of a recording that stands aside, only what is new."""
        raise NotImplementedError

    @property
    def aside(self) -> Path | None:
        """The file with the new interactions, if it is not the cassette's own; else None."""
        return self._file if self._is_moved and self.has_recorded else None

    def close(self, ending: Ending) -> bool:
        """Close the file, release the lock, and return whether anything was recorded.

        What was replaced is dropped from the file. If that is not possible, its readers still drop
        it. A recording aside replaces the old file, is merged into it, or stays where it is.
        """
        if self.closed or self._is_forked:
            return False
        self.closed = True
        with self._locks:
            try:
                if self._writer is not None:
                    self._close_file(self._writer, ending)
            finally:
                if not self._is_moved:
                    self.earlier.end(self._replaced)
            if ending != "aside":
                self._file = self._path
        return self.has_recorded

    def _close_file(self, writer: LineWriter, ending: Ending) -> None:
        if not writer.is_in_place():
            lost = self._lost(writer)
            if lost:
                self._writer = self._open_beside(lost)
                self._writer.close()
            else:
                self._notice_changed(self._file, "It stays as it is now.")
            writer.release()
            return
        writer.close()
        # If a copy is not possible, the marks say the same, and a later recording makes the copy.
        with suppress(OSError, CassetteInUseError, CassetteFormatError):
            has_secrets = self._has_late_secrets()
            if self._replaced or self._dropped or has_secrets:
                self._rewrite(read_cassette(self._file), as_written=not has_secrets)
        self._put_in_place(ending)

    def _has_late_secrets(self) -> bool:
        """Return whether a credential may be in the file that was learned after it was written."""
        if self._redactor.learned == self._learned:
            return False
        return self._redactor.may_be_in(self._file.read_text("utf-8"))

    def _put_in_place(self, ending: Ending) -> None:
        """Let the file take the place of the cassette's, if it is another one."""


class _WriteTexts:
    """The texts of the writes of a run, in case another program overwrites the file."""

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._places: dict[int, tuple[int, int]] = {}

    def add(self, index: int, text: bytes) -> None:
        if self._file is None:
            self._file = SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 (kept open)
            weakref.finalize(self, self._file.close)
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(text)
        self._places[index] = start, len(text)

    def forget(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            self._places.pop(index, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        self._places = {moved[at]: place for at, place in self._places.items() if at in moved}

    def texts(self) -> dict[int, bytes]:
        """Return each text by the index of its interaction."""
        texts = {}
        for index, (start, size) in self._places.items():
            assert self._file is not None, "it has what the places lead to"
            self._file.seek(start)
            texts[index] = self._file.read(size)
        return texts


class OwnFileRecorder(Recorder):
    """Appends to the cassette's own file.

    At the first interaction, a cassette in another program's layout is redacted and rewritten.
    """

    def _open_writer(self) -> LineWriter:
        recording = self.earlier.recording
        try:
            if recording.version is None:
                return self._new_file(self._file)
            is_same = recording.redact == self._redactor.redact and not recording.is_third_party
            is_ready = is_same and recording.is_compact and not self._new_base_urls
            if recording.clean_bytes and not is_ready:
                self._rewrite(recording, as_written=is_same)
                recording = read_cassette(self._file)
                self.earlier.reread(recording, self.earlier.count)
            header = header_text(self._metadata, self._redactor)
            return LineWriter(self._path, header, version=recording.version, loaded=recording)
        except (CassetteInUseError, FileExistsError, FileNotFoundError, PermissionError):
            return self._open_beside({})

    @property
    def _new_base_urls(self) -> list[object]:
        """The session's base address if the file does not name it yet, for the replay."""
        base_url = self._metadata.get("base_url")
        return [] if base_url in (None, *self.earlier.recording.base_urls) else [base_url]

    def _metadata_of(self, recording: FileRecording) -> Mapping[str, object]:
        # Without the addresses that everything was replaced of: a stand-in has another port daily.
        uris = [uri for (_, uri), *_ in recording.addresses()]
        named = [each for each in recording.base_urls if any(u.startswith(each) for u in uris)]
        kept = named or recording.base_urls[:1]
        base_url, *others = dict.fromkeys([*kept, *self._new_base_urls]) or [None]
        metadata = {**self._metadata, **recording.metadata, "base_url": base_url}
        metadata.pop("other_base_urls", None)
        if others:
            metadata["other_base_urls"] = others
        if recording.is_edited:
            self._notice(f"{self._path} was edited, so it is written anew: comments are not kept.")
        return metadata

    def current(self) -> FileRecording:
        return self.earlier.recording if self._writer is None else read_cassette(self._file)


class AsideRecorder(Recorder):
    """Writes to another file, until `close` puts it in the place of the cassette's."""

    def _open_writer(self) -> LineWriter:
        try:
            return self._new_file(self._file)
        except (FileExistsError, FileNotFoundError, PermissionError):
            return self._open_beside({})

    def current(self) -> FileRecording:
        return read_cassette(self._file) if self.has_recorded else FileRecording(self._path.stem)

    def _put_in_place(self, ending: Ending) -> None:
        if ending == "aside":
            return
        old = self.earlier.recording
        try:
            new = read_cassette(self._file)
            base_url = old.base_url or ""
            player = Player(new, self._matching, base_url=base_url, redactor=self._redactor)
            # What was not recorded again. It is parsed only if it stays: it may be damaged.
            others = (each for each in old if player.find(each.request)[0] is None)
            whole = chain(others, new) if ending == "merge" else new
            write_cassette(self._path, new.metadata, whole, self._redactor, version=old.version)
            patiently(self._file.unlink)
        # Somebody has the file, or an old interaction cannot be read.
        except (CassetteInUseError, CassetteFormatError) as error:
            self._notice(f"{error.what} The new recording is in {self._file}.")


def open_recorder(
    path: Path, *, updates: bool = False, aside: bool = False, **options: Any
) -> Recorder:
    """Lock a cassette, and return its recorder.

    Parameters
    ----------
    updates
        See `Recorder`; not of a recording aside.
    aside
        Whether the new interactions of a cassette that has some are written to another file. That
        file gets them all.
    options
        See `Recorder`.
    """
    with ExitStack() as locks:
        file = locks.enter_context(locked(path))
        recording = FileRecording(path.stem, path=path)
        if version_of(file) is not None:
            recording = read_cassette(file)
        if aside and len(recording):
            beside = locks.enter_context(locked(unused_file(file)))
            return AsideRecorder(file, beside, recording, locks.pop_all(), **options)
        updates = updates and not aside
        return OwnFileRecorder(file, file, recording, locks.pop_all(), updates=updates, **options)
