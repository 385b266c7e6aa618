"""Record to a cassette: each interaction is on disk before its caller has the response.

A recording goes to a journal beside the cassette (see `journal`). `Recorder.fold` then writes the
cassette anew, as one whole file. So nothing is ever appended to a cassette, replaced within it or
cut off from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

from ..arguments import ModeRules
from ..display import plural, printable_line
from ..errors import CassetteError
from ..exchange.bodies import missing_body
from ..exchange.changes import shape_change
from ..exchange.operations import operation_of
from ..exchange.values import Interaction, Request, fails, is_write, may_be_done
from ..redaction import Redactor
from . import layout
from .files import (
    MAX_FILE_BYTES,
    RECOVERED,
    FileRecording,
    addresses,
    join,
    read_cassette,
    read_file,
    read_journal,
    write_cassette,
)
from .journal import JournalWriter, digest_of, journal_of, parse_journal, remove_journal
from .library import locked, version_of
from .lines import read_interactions
from .matching import Matching, replaced_in
from .player import Attempts, Index

Ending = Literal["merge", "replace", "drop"]

_SPARE_BYTES = 1024**2
# A fold of more takes longer than a tenth of a second: nobody wants to wait for it at each cell.
_MOST_BYTES_FOLDED_AT_ONCE = 8 * 1024**2
_PAUSE_S = 60.0
# To compare the shapes of two responses takes some 0.4 s for each megabyte.
_MOST_BYTES_COMPARED = 2 * 1024**2
_numbers = count(1)
"""Of the requests of this process: a recording that goes on takes responses of before."""
_runs: dict[Path, datetime] = {}
"""When this process began its last run of each cassette; what is older may be replaced."""


class Recorder:
    """Writes redacted interactions to the journal of a cassette, which is locked until `close`.

    Parameters
    ----------
    rules
        What the record mode does.
    aside
        Whether the cassette stays as it is until `close` says what becomes of the recording.

    Attributes
    ----------
    recording
        The cassette's file as it was opened.
    redactor
        The redactor, with the rules that the file names.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        notice: Callable[[str], object],
        matching: Matching,
        rules: ModeRules,
        aside: bool = False,
    ) -> None:
        self._metadata = metadata
        self._notice = notice
        self._matching = matching
        self._rules = rules
        self._updates = rules.replaces and not aside
        self._is_aside = aside
        self._process = os.getpid()
        self._journal: JournalWriter | None = None
        self._in_flight: set[int] = set()
        self._is_folded = True
        self._folded_at = time.monotonic()
        self._was_created = False
        # The responses of earlier runs with those that have replaced them in this cell.
        self._to_compare: list[tuple[Interaction, Interaction]] = []
        self._bytes_to_compare = 0
        self._said: set[str] = set()
        self.closed = False
        with ExitStack() as locks:
            self._path = locks.enter_context(locked(path))
            fold_left_journal(self._path, redactor, notice)
            self._start_from(_read(self._path), redactor)
            self._locks = locks.pop_all()
        self._learned = self.redactor.learned
        self._last_run_at = _runs.get(self._path)
        self._run_at = _runs[self._path] = datetime.now(UTC)

    def _start_from(self, recording: FileRecording, redactor: Redactor) -> None:
        """Start from the cassette's file as it is."""
        self.recording = recording
        self.redactor = redactor.extended(recording.redact)
        self._base_url = str(self._metadata.get("base_url") or recording.base_url or "")
        self.index = Index(
            recording, self._matching, base_url=self._base_url, redactor=self.redactor
        )
        self._version = recording.version
        self._kept_bytes = recording.size
        self._dropped: set[int] = set()
        # What need not be looked for again: the first old call, and two facts about the new one.
        self._replaced: set[tuple[Attempts, bool, bool]] = set()

    # -- write -------------------------------------------------------------------------------------

    def start(self, method: str) -> int:
        """Return the number of a request that begins: responses are recorded in their order.

        Raises
        ------
        CassetteError
            It cannot be recorded, so it must not be sent.
        """
        if os.getpid() != self._process:
            raise CassetteError(
                f"This process was forked while cassette {self._path.stem!r} was recorded, and "
                f"cannot add to it. The {method} was not sent.",
                "Send it in the process that records, or start this one with "
                'multiprocessing.set_start_method("spawn") and its own session.',
            )
        if self._size > MAX_FILE_BYTES - _SPARE_BYTES:
            raise CassetteError(
                f"Cassette {self._path.stem!r} would have more than {MAX_FILE_BYTES:,} bytes. "
                "Nothing was sent.",
                "Record under another name.",
            )
        return next(_numbers)

    def begin_write(self, number: int, interaction: Interaction) -> None:
        """Write a request before it is sent, as one to which no response came.

        Raises
        ------
        CassetteError
            The recording has ended, so it must not be sent.
        """
        if self.closed:
            raise CassetteError(
                f"The recording of cassette {self._path.stem!r} ended before the "
                f"{interaction.request.method} was sent. It was not sent.",
                "Send it again while you record.",
            )
        if self._journal is not None and not self._journal.is_in_place():
            self._journal = self._journal.created_again()
        text, _ = self.redactor.redacted_text(interaction, layout.interaction_text)
        self._redact_again()
        self._write(number, text.encode())
        self._in_flight.add(number)

    def append(self, interaction: Interaction, number: int) -> Interaction | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        It replaces a write that was begun. Returns None after the recording has ended.
        """
        if os.getpid() != self._process:  # a forked child
            return None
        if self.closed:
            self._notice(
                f"The recording of cassette {self._path.stem!r} ended before the response to a "
                f"{interaction.request.method} did. The cassette has only what came before."
            )
            return None
        text, written = self.redactor.redacted_text(interaction, layout.interaction_text)
        self._redact_again()  # before a kill can leave these two
        if self._size + len(text) > MAX_FILE_BYTES:
            response = replace(written.response, body=missing_body(len(written.response.body)))
            return self.append(replace(interaction, response=response), number)
        drops = self._replaced_by(written) if self._updates else []
        interactions = self.recording.interactions
        replaced = [layout.interaction_text(interactions[index]).encode() for index in drops]
        try:
            self._write(number, text.encode(), map(digest_of, replaced))
        except BaseException:
            self._replaced.clear()  # nothing was
            raise
        self._kept_bytes -= sum(map(len, replaced))
        self._dropped.update(drops)
        if drops:
            self._note_replaced([interactions[index] for index in drops], written)
        self._in_flight.discard(number)
        return written

    def _note_replaced(self, old: list[Interaction], new: Interaction) -> None:
        for each in old:
            size = len(each.response.body) + len(new.response.body)
            if self._bytes_to_compare + size > _MOST_BYTES_COMPARED:
                return
            if not fails(each.response):
                self._bytes_to_compare += size
                self._to_compare.append((each, new))
                return

    def say_new_shapes(self) -> None:
        """Say once for an operation which fields its new responses have, and which no longer."""
        for old, new in self._to_compare:
            path = operation_of(self.recording.path_of(new.request))
            operation = f"{new.request.method} {path}"
            change = "" if operation in self._said else shape_change(old, new)
            if change:
                self._said.add(operation)
                self._notice(
                    f"{printable_line(f'{operation}: {change}')}. Until now, cassette "
                    f"{self._path.stem!r} had a response of the earlier shape."
                )
        self._to_compare = []
        self._bytes_to_compare = 0

    def drop(self, number: int) -> None:
        """Drop a write that was begun and not sent."""
        if number in self._in_flight and not self.closed:
            self._in_flight.remove(number)
            self._write(number, b"")

    def _write(self, number: int, text: bytes, replaces: Iterable[str] = ()) -> None:
        if self._journal is None:
            self._begin_journal()
        assert self._journal is not None
        self._is_folded = False
        self._journal.write(number, text, replaces)

    def _begin_journal(self) -> None:
        if version_of(self._path) is None:  # else nobody would look for the journal
            if self._version is not None:
                self._follow_change()
            self._was_created = True
            self._replace_file([])
        self._journal = JournalWriter(
            journal_of(self._path),
            {"base_url": self._metadata.get("base_url"), "is_aside": self._is_aside},
            self._path.stat().st_mode & 0o777,
        )

    @property
    def _size(self) -> int:
        """How many bytes the cassette may have once it is folded."""
        return self._kept_bytes + (0 if self._journal is None else self._journal.size)

    # -- earlier runs ------------------------------------------------------------------------------

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last."""
        if self._journal is None:
            self._run_at = _runs[self._path] = self._last_run_at or self._run_at

    def _earlier(self, request: Request) -> list[Attempts]:
        """Return the calls of earlier runs to the same redacted request."""
        known = self.recording.interactions
        return [
            call
            for call in (self.index.find(request) if known else ())
            if (known[call[0]].recorded_at or self._run_at) <= self._run_at
        ]

    def _replaced_by(self, new: Interaction) -> list[int]:
        """Return the indexes of what a new interaction replaces: see `fails` and `may_be_done`."""
        old = self._earlier(new.request)
        if not old:
            return []
        is_refused = is_write(new.request) and not may_be_done(new.response)
        if (old[0], new.is_fallback, is_refused) in self._replaced:
            return []
        self._replaced.add((old[0], new.is_fallback, is_refused))
        found: list[int] = []
        for call in old:
            response = self.recording.interactions[call[-1]].response
            is_better = new.is_fallback and not fails(response)
            if not (is_better or (is_refused and may_be_done(response))):
                found += call
        return [index for index in found if index not in self._dropped]

    def sent_before(self, write: Request) -> list[tuple[FileRecording, int, bool]]:
        """Return when earlier runs sent a write, in order: the recording and the number in it.

        The last value says whether it may have been another write, since redaction replaced a value
        of it. A mode that replays sends a write only if no response came to it, or if it is a new
        one.
        """
        found = []
        write = self.redactor.request(write)
        for call in self._earlier(write):
            response = self.recording.interactions[call[-1]].response
            is_replayed = self._rules.replays and not response.broke_off
            if call[-1] not in self._dropped and may_be_done(response) and not is_replayed:
                both = write, self.index.requests[call[-1]]
                is_unsure = any(replaced_in(self._matching.form(each)) for each in both)
                found.append((self.recording, call[-1] + 1, is_unsure))
        return found

    def number_now(self, number: int) -> int:
        """Return the number that an interaction of the file has without those that were replaced.

        Two reads before letter 8 were recorded again: it is 6.
        """
        return number - sum(index + 1 < number for index in self._dropped)

    # -- the cassette's file -----------------------------------------------------------------------

    def current(self) -> FileRecording:
        """Return the recording so far; of one that stands aside, only what is new."""
        if self.closed:
            is_there = version_of(self._path) is not None
            return read_cassette(self._path) if is_there else _read(self._path)
        kept = [] if self._is_aside else self._staying()
        new = self._new()
        metadata = {**self.recording.metadata, **self._addresses(kept, has_new=bool(new))}
        return replace(
            self.recording,
            interactions=[*kept, *new],
            metadata=metadata,
            base_url=metadata["base_url"],
        )

    def _addresses(self, kept: list[Interaction], *, has_new: bool) -> dict[str, Any]:
        return addresses(self.recording, kept, self._base_url if has_new or not kept else None)

    def _staying(self) -> list[Interaction]:
        """Return the interactions of the file that stay."""
        known = self.recording.interactions
        return [known[at] for at in range(len(known)) if at not in self._dropped]

    def _new(self) -> list[Interaction]:
        """Return the interactions in the journal."""
        return [] if self._journal is None else parse_journal(self._journal.data()).interactions

    def fold_after_cell(self) -> None:
        """Fold at the end of a cell, unless a write is on its way.

        A fold that takes long waits until a minute after the last one.
        """
        is_large = self._size > _MOST_BYTES_FOLDED_AT_ONCE
        waits = self._in_flight or (is_large and time.monotonic() - self._folded_at < _PAUSE_S)
        is_ready = not self.closed and not self._is_aside and os.getpid() == self._process
        if is_ready and not waits:
            self.fold()

    def fold(self) -> None:
        """Write the cassette anew, from its file and the journal, which stays until the end."""
        is_current = self._is_folded and version_of(self._path) == self._version
        if self._journal is None or is_current:
            return
        if not self._journal.is_in_place():
            self._journal = self._journal.created_again()
        if version_of(self._path) != self._version:
            self._follow_change()
        self._redact_again()
        self._replace_file(list(self._journal.texts().values()))
        self._is_folded = True
        self._folded_at = time.monotonic()

    def _replace_file(self, texts: list[bytes]) -> None:
        kept = self._staying()
        metadata = {
            **self._metadata,
            **self.recording.metadata,
            **self._addresses(kept, has_new=bool(texts)),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        parts: list[Interaction | bytes] = [*kept, *texts]
        write_cassette(self._path, metadata, parts, self.redactor, version=self._version)
        self._version = version_of(self._path)

    def _follow_change(self) -> None:
        """Add the whole recording to a file that another program has changed."""
        own = self._new()
        known = set(own)
        recording = _read(self._path)
        others = [each for each in recording.interactions if each not in known]
        self._start_from(replace(recording, interactions=others), self.redactor)
        for each in own if self._updates else ():
            self._dropped.update(self._replaced_by(each))
        self._notice(
            f"Another program changed {self._path} meanwhile. The recording is added to it."
        )

    def _redact_again(self) -> None:
        """Remove credentials that were learned only after an interaction was written."""
        known = self._learned
        learned = self.redactor.learned
        journal = self._journal
        if journal is not None and learned != known:
            for number, text in journal.texts().items():
                if self.redactor.learned_in(text.decode(), known):
                    (interaction,) = read_interactions(text)
                    new, _ = self.redactor.redacted_text(interaction, layout.interaction_text)
                    # The file may have the old text, by an earlier fold.
                    journal.write(number, new.encode(), [digest_of(text)])
        self._learned = learned

    # -- the end -----------------------------------------------------------------------------------

    def close(self, ending: Ending | None = None) -> bool:
        """End the recording, release the lock, and return whether anything was recorded.

        If the cassette cannot be written, the journal stays: readers add it, and the next recorder
        folds it.

        Parameters
        ----------
        ending
            ``"merge"`` keeps what was not recorded again, and ``"replace"`` only what is new.
            ``"drop"`` drops a recording that stands aside, or else its failures. By default, what
            stands aside is dropped: nobody said that it succeeded.
        """
        if self.closed or os.getpid() != self._process:
            return False
        self.closed = True
        with self._locks:
            if self._journal is None:
                return False
            try:
                is_kept = self._end(ending or ("drop" if self._is_aside else "merge"))
            finally:
                self._journal.close()
            remove_journal(journal_of(self._path))
        return is_kept

    def _end(self, ending: Ending) -> bool:
        """Fold the recording as it ends, and return whether the cassette has something of it."""
        journal = self._journal
        assert journal is not None, "only then it is called"
        found = parse_journal(journal.data()).by_request if ending == "drop" else {}
        for number, each in found.items():
            if self._is_aside or each.response.broke_off:
                journal.write(number, b"")
        if ending == "replace":
            self._dropped.update(range(len(self.recording)))
        elif ending == "merge" and self._is_aside:
            for each in self._new():
                self._dropped.update(self._replaced_by(each))
        is_kept = bool(journal.texts())
        if is_kept or self._dropped:
            self.fold()
        elif self._was_created:
            self._path.unlink(missing_ok=True)
        return is_kept


def _read(path: Path) -> FileRecording:
    """Return the recording in a file; an empty one if there is no file."""
    return FileRecording(path.stem, path=path) if version_of(path) is None else read_file(path)


def fold_left_journal(
    path: Path,
    redactor: Redactor,
    notice: Callable[[str], object],
    *,
    is_repair: bool = False,
) -> None:
    """Fold the journal that a kill has left beside a locked cassette.

    A recording that stood aside is dropped: nobody said that it succeeded.
    """
    journal = read_journal(path, is_repair=is_repair)
    if journal is None:
        return
    if not journal.is_aside:
        recording = _read(path)
        joined = join(recording, journal)
        redactor = redactor.extended(recording.redact)
        write_cassette(
            path, joined.metadata, joined.interactions, redactor, version=recording.version
        )
        number = journal.new_to(recording.interactions)
        if number:
            notice(f"Cassette {path.stem!r}: {plural(number, 'interaction')} {RECOVERED}.")
    remove_journal(journal_of(path))
