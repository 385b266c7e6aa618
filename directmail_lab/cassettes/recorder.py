"""Record interactions as they happen: each is in the file before the caller gets the response.

`Recorder` keeps the cassette locked, and replaces the old file when everything was recorded again.
Only the process that opened a recorder writes to it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..errors import CassetteError, CassetteFormatError, CassetteInUseError
from ..exchange.bodies import missing_body
from ..exchange.values import Interaction, Request, Response, fails, is_write, may_be_done
from ..redaction import Redactor
from . import layout
from .files import MAX_FILE_BYTES, FileRecording, read_cassette
from .library import Version, locked, patiently, version_of
from .matching import Matching
from .player import Call, Player
from .writer import LineWriter, header_text, write_cassette

Ending = Literal["merge", "replace", "aside"]
"""What `close` does with a recording that stands aside: see `directmail_lab.cassettes.Cassette`."""

# Room for a usual interaction: a file this near to its limit is full.
_SPARE_BYTES: Final = 1024**2


class Written(NamedTuple):
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
    request: Request
    is_clean: bool


_runs: Final[dict[Path, tuple[Version | None, int]]] = {}
"""For each cassette that this process recorded: the version that it left, and how many of the
interactions are from runs before its last one."""


class Recorder:
    """Appends redacted interactions to a cassette, and keeps it locked until `close`.

    At the first interaction, a cassette in another program's layout is redacted and rewritten. The
    old file stays until the new one is complete. A forked child neither writes nor closes.

    A run is what one process records to one file, until `record(…)` as a statement begins
    another. The interactions of earlier runs can be replaced, those of the same run cannot. What is
    replaced is dropped by readers at once, and from the file at `close`: see `layout.MARK`.

    Parameters
    ----------
    matching
        Tells which requests are the same.
    updates
        Whether everything is recorded again: a new interaction replaces those of earlier runs to
        the same request. The others stay, as in vcrpy.
    aside
        Whether the new interactions are written to another file, until `close` puts it in place.
        That file has them all.
    notice
        Called with a sentence if another program replaced or removed the file.

    Attributes
    ----------
    recording
        The cassette's recording when it was opened.
    old_count
        How many of its interactions are from earlier runs.
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
        matching: Matching,
        updates: bool = False,
        aside: bool = False,
    ) -> None:
        with ExitStack() as locks:
            self._path = self._file = locks.enter_context(locked(path))
            self.recording = FileRecording(path.stem, path=path)
            if version_of(self._path) is not None:
                self.recording = read_cassette(self._path)
            if aside and len(self.recording):
                self._file = locks.enter_context(locked(_unused(self._path)))
            self._locks = locks.pop_all()
        # If a field was once redacted in a cassette, later recordings to it redact it too.
        self._redactor = redactor.extended(self.recording.redact)
        self._metadata = metadata
        self._notice = notice
        self._matching = matching
        self._aside = aside
        self._updates = updates and not aside
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self.closed = False
        self.old_count = len(self.recording)
        self._replaced: set[int] = set()
        self._asked: set[int] = set()

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last, if the file is as it was left."""
        version, old_count = _runs.get(self._path, (None, self.old_count))
        if self._writer is None and version == self.recording.version:
            self.old_count = old_count

    def append(self, interaction: Interaction) -> Written | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        Returns None if the recording has ended.
        """
        if os.getpid() != self._process:
            return None
        if self.closed:  # while the request was in flight
            self._notice(
                f"A response arrived after cassette {self._path.stem!r} was closed. It is not "
                f"recorded, so a later run does not know of the {interaction.request.method}."
            )
            return None
        if self._updates and self._file == self._path and fails(interaction.response):
            interaction = replace(interaction, is_fallback=True)
        text, written = self._redactor.redacted_text(interaction, layout.interaction_text)
        if self._writer is None:
            self._writer = self._open_writer()
        elif not self._writer.is_in_place():
            changed, self._writer = self._writer, self._open_beside(self._lost())
            changed.release()
        size = len(text.encode())
        if self._writer.size + size > MAX_FILE_BYTES and self._replaced:
            self._writer.release()
            self._writer = None
            self._writer = self._open_compact(self._reread())
        if self._writer.size + size > MAX_FILE_BYTES:
            response = interaction.response
            response = replace(response, body=missing_body(len(response.body)))
            interaction = replace(interaction, response=response)
            text, _ = self._redactor.redacted_text(interaction, layout.interaction_text)
        replaced = self._replaced_by(written)
        if replaced:
            text = layout.mark_line([each + 1 for each in replaced], self._writer.count) + text
        self._writer.append(text)
        self._replaced.update(replaced)
        is_final = self._file == self._path and not (self._updates and self.old_count)
        number = self._writer.count if is_final else None
        return Written(number, written.request, written is interaction)

    @property
    def has_recorded(self) -> bool:
        return self._writer is not None

    @cached_property
    def _old(self) -> Player:
        return self._player_of(self.recording)

    def _player_of(self, recording: FileRecording) -> Player:
        base_url = self._metadata.get("base_url") or recording.base_url
        return Player(
            recording,
            self._matching,
            base_url=str(base_url or ""),
            redactor=self._redactor,
            plays_fallbacks=True,
        )

    def _old_responses(self, request: Request) -> list[Call]:
        """Return the interactions of earlier runs to a request that were not replaced."""
        if not self.old_count:
            return []
        found = self._old.find_all(request)
        return [each for each in found if self.old_count > each[-1] not in self._replaced]

    def _replaced_by(self, new: Interaction) -> list[int]:
        """Return the indexes of the interactions that a new one replaces."""
        if not (self._updates and self.old_count) or self._file != self._path:
            return []
        if (key := hash(new.request)) in self._asked:
            return []
        is_refused = is_write(new.request) and not may_be_done(new.response)
        if not (new.is_fallback or is_refused):  # it replaces all
            self._asked.add(key)
        with suppress(CassetteFormatError):  # a damaged interaction stays
            responses = self._old_responses(new.request)
            if new.is_fallback:
                responses = [each for each in responses if fails(self._response(each))]
            if is_refused:  # what may have been carried out is not forgotten
                responses = [each for each in responses if not may_be_done(self._response(each))]
            return sorted(index for attempts in responses for index in attempts)
        return []

    def _response(self, attempts: Call) -> Response:
        return self.recording.interactions[attempts[-1]].response

    def sent_before(self, write: Request) -> list[tuple[FileRecording, int]]:
        """Return when earlier runs sent a write, in order: the file and the number in it.

        After a 4xx, or if no connection was made, nothing was carried out, so that does not count.
        A mode that replays sends a write only if no response came to it, or if it is a new one.
        """
        found = []
        for recording, attempts in self._earlier(write):
            response = recording.interactions[attempts[-1]].response
            is_own = recording is self.recording
            is_replayed = is_own and not self._updates and response.no_response is None
            if may_be_done(response) and not is_replayed:
                found.append((recording, attempts[-1] + 1))
        return found

    def keep(self, write: Request) -> None:
        """Keep what earlier runs recorded of a write, if this run sends the same one, too."""
        self._asked.add(hash(self._redactor.request(write)))

    def _earlier(self, write: Request) -> Iterator[tuple[FileRecording, Call]]:
        """Yield what earlier runs recorded of a write, also in the files that they left."""
        for file in unfinished_files(self._path):
            if file != self._file:
                left = read_cassette(file)
                for attempts in self._player_of(left).find_all(write):
                    yield left, attempts
        for attempts in self._old_responses(write):
            yield self.recording, attempts

    def refuse_if_full(self) -> None:
        """Raise `CassetteError` if the file has no room for another interaction."""
        size = self._writer.size if self._writer else self.recording.clean_bytes
        if size > MAX_FILE_BYTES - _SPARE_BYTES and not self._replaced:
            raise CassetteError(
                f"Cassette {self._path.stem!r} has {size:,} of at most {MAX_FILE_BYTES:,} bytes. "
                "Nothing was sent.",
                "Record under another name.",
            )

    def current(self) -> FileRecording:
        """Return the recording so far; of a recording that stands aside, only what is new."""
        if self._writer is not None:
            return read_cassette(self._file)
        return self.recording if self._file == self._path else FileRecording(self._path.stem)

    @property
    def aside(self) -> Path | None:
        """The file with the new interactions, if it is not the cassette's own; else None."""
        return self._file if self._file != self._path and self.has_recorded else None

    def close(self, ending: Ending) -> bool:
        """Close the file, release the lock, and return whether anything was recorded.

        What was replaced is dropped from the file. If that is not possible, its readers still drop
        it. A recording aside replaces the old file, is merged into it, or stays where it is.
        """
        if self.closed or os.getpid() != self._process:
            return False
        self.closed = True
        with self._locks:
            try:
                self._close_file(ending)
            finally:
                if self._file == self._path:
                    left = self.old_count - len(self._replaced)
                    _runs[self._path] = version_of(self._path), left
            if ending != "aside":
                self._file = self._path
        return self.has_recorded

    def _close_file(self, ending: Ending) -> None:
        if self._writer is None:
            return
        if not self._writer.is_in_place():
            changed = self._writer
            if lost := self._lost():
                self._writer = self._open_beside(lost)
                self._writer.close()
            else:
                self._notice_changed(self._file, "It stays as it is now.")
            changed.release()
            return
        self._writer.close()
        # If a copy is not possible, the marks say the same, and a later recording makes the copy.
        with suppress(OSError, CassetteInUseError, CassetteFormatError):
            if self._replaced and self._file == self._path:
                self._rewrite(read_cassette(self._path))
        if self._aside and self.aside and ending != "aside":
            try:
                self._put_in_place(keeps_others=ending == "merge")
            # Somebody has the file, or an old interaction cannot be read.
            except (CassetteInUseError, CassetteFormatError) as error:
                self._notice(f"{error.what} The new recording is in {self._file}.")

    def _open_writer(self) -> LineWriter:
        """Open the file for the first interaction, or another one if somebody has changed it."""
        recording = self.recording
        version = recording.version if self._file == self._path else None
        self._file.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        try:
            if version is None:
                header = header_text(self._metadata, self._redactor)
                return self._new_file(self._file, header)
            return self._open_compact(recording)
        except (CassetteInUseError, FileExistsError, FileNotFoundError, PermissionError):
            return self._open_beside()

    def _open_compact(self, recording: FileRecording) -> LineWriter:
        """Open the cassette's file to append to it. It is written anew first if it must be."""
        is_same = recording.redact == self._redactor.redact and not recording.is_third_party
        if recording.clean_bytes and not (
            is_same and recording.is_compact and not self._new_base_urls
        ):
            self._rewrite(recording, as_written=is_same)
            recording = self._reread()
        header = header_text(self._metadata, self._redactor)
        return LineWriter(self._path, header, version=recording.version, loaded=recording)

    def _reread(self) -> FileRecording:
        """Return what the file has now, and begin to count from there."""
        self.recording = read_cassette(self._path)
        self.old_count -= len(self._replaced)
        self._replaced.clear()
        vars(self).pop("_old", None)
        return self.recording

    @property
    def _new_base_urls(self) -> list[object]:
        """The session's base address if the file does not name it yet, for the replay."""
        base_url = self._metadata.get("base_url")
        return [] if base_url in (None, *self.recording.base_urls) else [base_url]

    def _rewrite(self, recording: FileRecording, *, as_written: bool = True) -> None:
        """Write a compact copy of the cassette's file in our layout, in its place."""
        # Without the addresses that everything was replaced of: a stand-in has another port daily.
        uris = [uri for (_, uri), *_ in recording.addresses()]
        named = [each for each in recording.base_urls if any(u.startswith(each) for u in uris)]
        base_url, *others = [*(named or recording.base_urls[:1]), *self._new_base_urls] or [None]
        metadata = {**self._metadata, **recording.metadata, "base_url": base_url}
        metadata["other_base_urls"] = others
        if not others:
            del metadata["other_base_urls"]
        parts, version = recording.parts(as_written=as_written), recording.version
        if recording.is_edited:
            self._notice(f"{self._path} was edited, so it is written anew: comments are not kept.")
        write_cassette(self._path, metadata, parts, self._redactor, version=version)

    def _new_file(self, path: Path, header: str) -> LineWriter:
        """Create a file with the cassette's permissions."""
        writer = LineWriter(path, header)
        with suppress(OSError):
            shutil.copymode(self._path, path)
        return writer

    def _lost(self) -> str:
        """Return what this run has written to a file that its path no longer leads to."""
        assert self._writer is not None, "the caller has just asked it"
        is_own = self._file == self._path
        return self._writer.lost(self.recording.bytes_before(self.old_count) if is_own else 0)

    def _open_beside(self, lost: str = "") -> LineWriter:
        """Continue in another file, because another program changed this one.

        It begins with what this run has written before.
        """
        changed, beside = self._file, _unused(self._path)
        beside.parent.mkdir(parents=True, exist_ok=True)
        writer = self._new_file(beside, header_text(self._metadata, self._redactor))
        for each in layout.INTERACTION.finditer(lost.encode()):
            writer.append(each[0].decode())
        self._file = beside
        self._notice_changed(changed, f"The recording continues in {beside}.")
        return writer

    def _notice_changed(self, file: Path, what_now: str) -> None:
        self._notice(
            f"Another program has {file} open, or has created, changed, replaced or removed it, "
            f"while cassette {self._path.stem!r} was recorded. {what_now}"
        )

    def _put_in_place(self, *, keeps_others: bool) -> None:
        """Replace the old file.

        With ``keeps_others``, its interactions that were not recorded again are kept.
        """
        new, old = read_cassette(self._file), self.recording
        player = Player(
            new,
            self._matching,
            base_url=old.base_url or "",
            redactor=self._redactor,
        )
        # If the others do not stay, they are not parsed: one may be damaged.
        others = (each for each in old if player.find(each.request)[0] is None)
        whole = chain(others if keeps_others else (), new)
        write_cassette(self._path, new.metadata, whole, self._redactor, version=old.version)
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
