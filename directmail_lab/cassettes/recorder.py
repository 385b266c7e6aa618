"""Record to a cassette: each interaction is on disk before its caller has the response.

A recording goes to a journal beside the cassette (see `journal`). `Recorder.fold` then writes the
cassette anew, as one whole file. So nothing is ever appended to a cassette, replaced within it or
cut off from it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from shutil import copymode
from typing import Literal, NamedTuple

from ..arguments import ModeRules
from ..display import printable_line
from ..errors import CassetteError
from ..exchange.bodies import missing_body
from ..exchange.changes import shape_change
from ..exchange.operations import operation_of
from ..exchange.values import Interaction, Request, Response, fails, is_write, may_be_done
from ..executions import Execution, current_cell, current_execution, has_executed, kept_id
from ..redaction import Redactor
from . import layout
from .files import (
    MAX_FILE_BYTES,
    FileRecording,
    join,
    read_cassette,
    read_file,
    read_journal,
    with_parts,
    write_cassette,
)
from .journal import (
    Journal,
    JournalWriter,
    Parts,
    digest_of,
    digests_of,
    interactions_of,
    remove_journal,
)
from .library import before_of, command_name, locked, version_of
from .lines import read_interactions
from .matching import Matching, replaced_in
from .player import Index
from .recording import service_of

Ending = Literal["merge", "replace", "drop"]

_SPARE_BYTES = 1024**2
# A fold of more takes longer than a tenth of a second: nobody wants to wait for it at each cell.
_MOST_BYTES_FOLDED_AT_ONCE = 8 * 1024**2
BETWEEN_FOLDS_S = 60.0
# To compare the shapes of two responses takes some 0.4 s for each megabyte.
_MOST_BYTES_COMPARED = 2 * 1024**2
_numbers = count(1)
"""Of the requests of this process: a recording that goes on takes responses of before."""


@dataclass(slots=True)
class _Run:
    """What this process recorded to a cassette in one run.

    Attributes
    ----------
    senders
        What sent each interaction, by its digest.
    has_before
        Whether the cassette was kept as it was before the run.
    """

    senders: dict[str, Execution] = field(default_factory=dict)
    has_before: bool = False


_runs: dict[Path, _Run] = {}
"""The last run of this process, by the cassette."""


class _Earlier(NamedTuple):
    """What may be replaced.

    ``place`` is its index in the file, or its digest if this recorder wrote it. It stands in the
    cassette by its ``order``. ``sender`` is what recorded it in this run.
    """

    place: int | str
    order: tuple[int, int]
    response: Response
    attempt: int
    sender: Execution | None
    cell: str | None = None


class SentBefore(NamedTuple):
    """A recorded write that may have been carried out.

    Attributes
    ----------
    recording, number
        What has it.
    sender
        What sent it in this run; None if an earlier run did.
    is_unsure
        Whether it may have been another write, since redaction replaced a value of it.
    """

    recording: FileRecording
    number: int
    sender: Execution | None
    is_unsure: bool


@dataclass(eq=False, slots=True)
class _Series:
    """What one execution of a cell, or a run, records of a request.

    Attributes
    ----------
    cell
        The execution of the cell.
    is_write
        Whether the request is a write.
    left
        What it may replace, in its order.
    made
        What the executions of all cells record of the request.
    place
        The digest of the first that it replaced, in whose place it stands; empty if there is none.
    at
        That place in the cassette, from 1; 0 if there is none.
    waiting
        The failures that are recorded only with a success, which comes after them.
    succeeded
        Whether a success was recorded.
    """

    cell: Execution
    is_write: bool
    left: deque[_Earlier] = field(default_factory=deque)
    made: list[_Earlier] = field(default_factory=list)
    place: str = ""
    at: int = 0
    waiting: dict[int, Interaction] = field(default_factory=dict)
    succeeded: bool = False

    @property
    def is_one_by_one(self) -> bool:
        """Whether a response replaces one earlier response, and not all: see `Recorder.append`."""
        return bool(self.cell.cell_id) and not self.cell.ended


class Recorder:
    """Writes redacted interactions to the journal of a cassette.

    It locks the cassette until `close`. Others may record between a `fold_after_cell` and `wake`.

    Parameters
    ----------
    rules
        What the record mode does.
    aside
        Whether the cassette stays as it is until `close` says what becomes of the recording.
    records_failures
        Whether a read's failure may take the place of a success, as in a test.

    Attributes
    ----------
    recording
        The cassette's file as it was opened.
    redactor
        The redactor, with the rules that the file names.
    closed
        Whether the recording has ended.
    lock
        What keeps the cassette locked; None while others may record it.
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
        records_failures: bool = False,
    ) -> None:
        self.redactor = redactor
        self._metadata = metadata
        self._notice = notice
        self._matching = matching
        self._rules = rules
        self._is_aside = aside
        self._records_failures = records_failures
        self._process = os.getpid()
        self._in_flight: set[int] = set()
        self._is_folded = True
        self._folded_at = time.monotonic()
        self._was_created = False
        # What was replaced in this cell, with the new responses.
        self._to_compare: list[tuple[Interaction, Interaction]] = []
        self._bytes_to_compare = 0
        self._said: set[str] = set()
        self.closed = False
        self.lock: ExitStack | None = None
        self._senders: dict[int, Execution] = {}
        self._known: Mapping[str, Execution] = {}  # senders, once the file has what they sent
        self._made: dict[int, list[_Earlier]] = {}  # by the hash of the form
        with ExitStack() as locks:
            self._path = locks.enter_context(locked(path, patience_s=0))
            fold_left_journal(self._path, redactor, notice)
            self._start_from(_read(self._path))
            self.lock = locks.pop_all()
        about = {"base_url": metadata.get("base_url"), "is_aside": aside}
        self._journal = JournalWriter(self._path, about)
        self._learned = self.redactor.learned
        self._cell = current_cell().kept_id
        self._replaced: FileRecording | None = None
        self._last_run = _runs.get(self._path)
        self._run = _runs[self._path] = _Run()

    def _start_from(self, recording: FileRecording) -> None:
        """Start from the cassette's file as it is."""
        self.recording = recording
        self.redactor = self.redactor.extended(recording.redact)
        self._base_url = str(self._metadata.get("base_url") or recording.base_url or "")
        self.index = Index(
            recording, self._matching, base_url=self._base_url, redactor=self.redactor
        )
        self._version = recording.version
        self._size = recording.size
        self._digests: dict[int, str] = {}
        self._dropped: set[int | str] = set()
        self._series: dict[tuple[int, Execution | None], _Series] = {}
        self._unfinished: set[_Series] = set()
        self._cells = {each.cell for each in recording.interactions}
        self._cells.add(kept_id(recording.metadata.get("cell")))  # which called record()

    def begin_anew(self) -> None:
        """Begin the cassette anew with its first response, and keep the old file beside it.

        What was recorded at this session's address stays.
        """
        self._replaced = self.recording
        place = service_of(self._base_url, "")
        own = [each for each in self.recording if service_of(each.request.uri, "") == place]
        new = FileRecording(self._path.stem, own, path=self._path, version=self._version)
        self._start_from(new)

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
        number = next(_numbers)
        self._senders[number] = current_execution()
        return number

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
        sender = self._senders.get(number) or current_execution()
        text, _ = self._text_of(interaction, sender)
        self._redact_again()
        self._write(number, text)
        self._run.senders[digest_of(text)] = sender
        self._in_flight.add(number)

    def append(self, interaction: Interaction, number: int) -> Interaction | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        It replaces a write that was begun. Returns None after the recording has ended, and for a
        read's failure that would take the place of a success.
        """
        if os.getpid() != self._process:  # a forked child
            return None
        if self.closed:
            self._notice(
                f"The recording of cassette {self._path.stem!r} ended before the response to a "
                f"{interaction.request.method} did. The cassette has only what came before."
            )
            return None
        sender = self._senders.get(number) or current_execution()
        text, written = self._text_of(interaction, sender)
        self._redact_again()  # before a kill can leave these two
        if self._size + len(text) > MAX_FILE_BYTES:
            response = replace(written.response, body=missing_body(len(written.response.body)))
            return self.append(replace(interaction, response=response), number)
        self._senders.pop(number, None)
        series = self._series_of(written.request, sender.started_by or sender)
        if written.attempt == 1 and not series.succeeded:
            series.waiting = {}
        replaced = self._replaced_by(written, series)
        if replaced is None:
            series.waiting[number] = interaction
            return None
        series.succeeded |= not fails(written.response)
        self._replace(series, replaced, {number: (text, written)}, sender)
        for each in replaced:
            if isinstance(each.place, int) and not fails(each.response):
                self._note_replaced(self.recording.interactions[each.place], written)
                break
        self._in_flight.discard(number)
        return written

    def _replace(
        self,
        series: _Series,
        replaced: list[_Earlier],
        new: dict[int, tuple[bytes, Interaction]],
        sender: Execution,
    ) -> None:
        """Write new interactions, with the failures that waited, in the place of earlier ones."""
        references = [series.place] if series.place else []
        if replaced and not references:
            series.at = replaced[0].order[0]
        for each in replaced:
            place = each.place
            if isinstance(place, int):
                old = self._text(place)
                self._size -= len(old)
                self._digests[place] = digest_of(old)
            references.append(place if isinstance(place, str) else self._digests[place])
            self._dropped.add(place)
        series.place = "".join(references[:1])
        new |= {each: self._text_of(failure, sender) for each, failure in series.waiting.items()}
        series.waiting = {}
        for number, (text, written) in new.items():
            self._write(number, text, references)
            references = references[:1]
            digest = digest_of(text)
            self._run.senders[digest] = sender
            if series.cell.cell_id or series.is_write:
                response = Response(written.response.status, cut=written.response.cut)
                order = series.at or len(self.recording) + number, number
                series.made.append(_Earlier(digest, order, response, written.attempt, series.cell))
        if not new:
            self._write(next(_numbers), b"", references)
        if series.is_one_by_one:
            self._unfinished.add(series)

    def _finish(self, ended: bool | None) -> None:
        """Remove what executions of cells that ``ended`` have not replaced of the earlier ones."""
        for series in [each for each in self._unfinished if each.cell.ended is ended]:
            self._unfinished.remove(series)
            left = [each for each in series.left if each.place not in self._dropped]
            if series.succeeded and (left or series.waiting):
                self._replace(series, left, {}, series.cell)

    def _text_of(self, interaction: Interaction, sender: Execution) -> tuple[bytes, Interaction]:
        """Return the text to write, and what it says."""
        cell = (sender.started_by or sender).kept_id
        if cell is not None:
            interaction = replace(interaction, cell=cell)
        text, written = self.redactor.redacted_text(interaction, layout.interaction_text)
        return text.encode(), written

    def _note_replaced(self, old: Interaction, new: Interaction) -> None:
        size = len(old.response.body) + len(new.response.body)
        if self._bytes_to_compare + size <= _MOST_BYTES_COMPARED:
            self._bytes_to_compare += size
            self._to_compare.append((old, new))

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
                    f"{self._keep_before_run()}"
                )
        self._to_compare = []
        self._bytes_to_compare = 0

    def _keep_before_run(self) -> str:
        """Keep the cassette as it was before this run, once, and return how to compare the two."""
        if self._is_aside or self._run.has_before:
            return ""
        self._run.has_before = True
        before = self._keep(self.recording)
        old = command_name(before, before.stem)
        new = command_name(self._path, self._path.stem)
        return f' As it was, it is {before.name}. To compare: dm.drift("{old}", against="{new}").'

    def _keep(self, recording: FileRecording) -> Path:
        before = before_of(self._path)
        metadata = {**recording.metadata, "base_url": recording.base_url}
        write_cassette(before, metadata, recording.interactions, self.redactor)
        copymode(self._path, before)
        return before

    def drop(self, number: int) -> None:
        """Drop a write that was begun and not sent."""
        if number in self._in_flight and not self.closed:
            self._in_flight.remove(number)
            self._write(number, b"")

    def _write(self, number: int, text: bytes, replaces: Iterable[str] = ()) -> None:
        if not self._journal.is_in_place():
            self._begin_journal()
        self._is_folded = False
        self._journal.write(number, text, replaces)
        self._size += len(text)

    def _begin_journal(self) -> None:
        if version_of(self._path) is None:  # else nobody would look for the journal
            if self._version is not None:
                self._follow_change()
            self._was_created = True
            self._replace_file([])
        elif self._replaced is not None:
            kept = self._keep(self._replaced).name
            self._run.has_before = True
            self._replace_file(list(self.recording.interactions))
            self._notice(
                f"Cassette {self._path.stem!r} begins anew. What was recorded at "
                f"{self._replaced.base_url} is in {kept}."
            )
            self._replaced = None
        self._journal.begin(self._path.stat().st_mode & 0o777)

    # -- what was recorded before ------------------------------------------------------------------

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last."""
        if self._last_run and not self._run.senders:
            self._run = _runs[self._path] = self._last_run
            self._known = self._run.senders

    def sender_of(self, index: int) -> Execution | None:
        """Return what recorded an interaction of the file in this run; None if an earlier one."""
        return self._known.get(digest_of(self._text(index))) if self._known else None

    def _text(self, index: int) -> bytes:
        return layout.interaction_text(self.recording.interactions[index]).encode()

    def _series_of(self, request: Request, sender: Execution) -> _Series:
        """Return what the execution of a cell, or this run, records of a redacted request.

        It may replace what earlier executions of the cell recorded, or else what earlier runs did
        and no cell has. No cell has it, either, if this kernel has executed none of the file's
        cells: then the notebook keeps no ids. A write may replace a failed one of any cell.
        """
        is_sent = is_write(request)
        may_replace = self._rules.replaces and (sender.cell_id or self.recording.interactions)
        if not (is_sent or may_replace):
            return _Series(sender, is_sent)
        # What a person's functions say may differ for two requests with one form.
        checks = self._matching.checks
        form = hash(self.index.literal(request) if checks else self._matching.form(request))
        key = form, sender if sender.cell_id or is_sent else None
        if key not in self._series:
            made = self._made.setdefault(form, [])
            known = self.recording.interactions
            found = self.index.find(request) if known else ()
            in_file = [
                _Earlier(
                    at,
                    (call[0] + 1, 0),
                    known[at].response,
                    known[at].attempt,
                    self.sender_of(at),
                    known[at].cell,
                )
                for call in found
                for at in call
            ]
            earlier = [each for each in in_file if each.sender is None]
            own: list[_Earlier] = []
            if sender.cell_id:
                if has_executed(self._cells):
                    own = [each for each in earlier if each.cell and each.cell == sender.kept_id]
                    earlier = [each for each in earlier if each.cell is None]
                own += [each for each in [*in_file, *made] if sender.follows(each.sender)]
                own.sort(key=attrgetter("order"))
            left = (own or earlier) if self._rules.replaces else []
            if is_sent:
                others = [each for each in [*in_file, *made] if each.sender is not sender]
                left += [each for each in others if fails(each.response)]
            self._series[key] = _Series(sender, is_sent, deque(left), made)
        return self._series[key]

    def _replaced_by(self, new: Interaction, series: _Series) -> list[_Earlier] | None:
        """Return what a new interaction replaces; None if it must not be recorded.

        No failure replaces a success (see `fails`), and only what may have been carried out
        replaces a write that may have been. A read's failure is recorded in the place of another
        one, or if there is none of both.
        """
        failed = fails(new.response) and not self._records_failures
        is_sent = series.is_write
        is_refused = is_sent and not may_be_done(new.response)
        left = series.left
        while left and left[0].place in self._dropped:
            left.popleft()
        found: list[_Earlier] = []
        for each in left:
            if each.place in self._dropped:
                continue
            if found and series.is_one_by_one and not is_sent and (failed or each.attempt == 1):
                break  # it belongs to the next call
            if (failed and not fails(each.response)) or (is_refused and may_be_done(each.response)):
                continue
            found.append(each)
        return found if found or is_sent or not left else None

    def sent_before(self, write: Request) -> list[SentBefore]:
        """Return when a write was sent before.

        A mode that replays sends a write only if no response came to it, or if it is a new one.
        """
        found = []
        write = self.redactor.request(write)
        for call in self.index.find(write) if self.recording.interactions else ():
            index = call[-1]
            response = self.recording.interactions[index].response
            is_replayed = self._rules.replays and not response.broke_off
            if index in self._dropped or is_replayed or not may_be_done(response):
                continue
            both = write, self.index.requests[index]
            is_unsure = any(replaced_in(self._matching.form(each)) for each in both)
            sender = self.sender_of(index)
            found.append(SentBefore(self.recording, index + 1, sender, is_unsure))
        return found

    def number_now(self, number: int) -> int:
        """Return the number that an interaction of the file has by now."""
        known = self.recording.interaction(number)
        parts = self._parts()
        return next(place for place, each in enumerate(parts, 1) if each is known)

    # -- the cassette's file -----------------------------------------------------------------------

    def current(self) -> FileRecording:
        """Return the recording so far; of one that stands aside, only what is new."""
        if self.closed or self.lock is None:
            return _read(self._path, read_cassette)
        parts = self._parts(is_whole=not self._is_aside)
        return with_parts(self.recording, parts, self._base_url)

    def _parts(self, *, is_whole: bool = True) -> Parts:
        """Return the file's interactions that stay, and the texts of the new ones, in order."""
        known = self.recording.interactions if is_whole else ()
        digests = [self._digests.get(at, "") for at in range(len(known))]
        return self._journal.added.added_to(known, digests)

    def fold_after_cell(self, *, rests: bool) -> bool:
        """Fold at the end of a cell, unless a write is on its way.

        A fold that takes long waits until a minute after the last one. Once all is folded, it
        releases the lock if it ``rests``. Returns whether the fold waits.
        """
        is_idle = self.closed or self.lock is None or self._is_aside
        if is_idle or os.getpid() != self._process:
            return False
        self._finish(True)
        is_large = self._size > _MOST_BYTES_FOLDED_AT_ONCE and not self._is_folded
        waits = is_large and time.monotonic() - self._folded_at < BETWEEN_FOLDS_S
        if not (waits or self._in_flight):
            self.fold()
        self.say_new_shapes()
        if rests and self._is_folded:
            self._rest()
        return waits

    def _rest(self) -> None:
        """Release the lock until `wake`. The file is whole, so it needs no journal."""
        self._journal.close()
        if self._was_created and not self._journal.added.by_request:
            self._path.unlink(missing_ok=True)
            self._version = None
        self._was_created = False
        lock = self.lock
        self.lock = None
        assert lock is not None, "it was locked until now"
        with lock:
            remove_journal(self._path)

    def wake(self) -> bool:
        """Lock a recording that rests, and return whether others changed its cassette meanwhile.

        Raises
        ------
        CassetteInUseError
            Others are recording it.
        """
        if self.closed or self.lock is not None or os.getpid() != self._process:
            return False
        with ExitStack() as locks:
            locks.enter_context(locked(self._path, patience_s=0))
            fold_left_journal(self._path, self.redactor, self._notice)
            is_changed = version_of(self._path) != self._version
            file = _read(self._path) if is_changed else self.recording
            self.lock = locks.pop_all()
        if is_changed:
            self._follow_others(file)
        return is_changed

    def _follow_others(self, file: FileRecording) -> None:
        """Go on from the file as it is. What others replaced stays replaced.

        Somebody may have removed the file, or put an earlier one in its place. Then what is missing
        of this run is added again.
        """
        own = self._journal.added.by_request
        known = set(self.recording.interactions)
        self._journal.added = Journal()
        self._replaced = None
        self._made = {}
        self._known = self._run.senders
        self._start_from(file)
        recording = file.interactions
        there = dict(zip(digests_of(recording), recording, strict=True))
        others = {each for digest, each in there.items() if digest not in self._run.senders} - known
        for number, (digest, text) in own.items():
            if digest in there:
                continue
            (each,) = read_interactions(text)
            found = chain.from_iterable(self.index.find(each.request))
            if others.isdisjoint(recording[at] for at in found):
                if not self._journal.is_open:  # it is the first
                    self._say_changed()
                self._senders[number] = self._run.senders[digest]
                self.append(each, number)

    def fold(self) -> None:
        """Write the cassette anew, from its file and the journal, which stays until the end."""
        is_changed = self._journal.is_open and version_of(self._path) != self._version
        if self._is_folded and not is_changed:
            return
        if not self._journal.is_in_place():
            self._begin_journal()
        if version_of(self._path) != self._version:
            self._follow_change()
        self._redact_again()
        self._replace_file(self._parts())
        self._is_folded = True
        self._folded_at = time.monotonic()

    def _replace_file(self, parts: Parts) -> None:
        metadata = {
            **self._metadata,
            **self.recording.metadata,
            "base_url": self._base_url or None,
            **({"cell": self._cell} if self._cell else {}),
        }
        metadata.pop("other_base_urls", None)  # of this machine, as an earlier version wrote
        self._path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        write_cassette(self._path, metadata, parts, self.redactor, version=self._version)
        self._version = version_of(self._path)

    def _follow_change(self) -> None:
        """Add the whole recording to a file that another program has changed."""
        own = set(interactions_of(self._parts(is_whole=False)))
        recording = _read(self._path)
        others = [each for each in recording.interactions if each not in own]
        self._start_from(replace(recording, interactions=others))
        self._digests = dict(enumerate(digests_of(others)))
        self._say_changed()

    def _say_changed(self) -> None:
        what = f"Another program changed {self._path} meanwhile. The recording is added to it."
        if not self._path.exists():
            what = (
                f"{self._path} is gone: it or its folder was renamed or removed meanwhile. "
                "This recording goes on in a new file there."
            )
        self._notice(what)

    def _redact_again(self) -> None:
        """Remove credentials that were learned only after an interaction was written."""
        known = self._learned
        learned = self.redactor.learned
        if learned != known:
            for number, (digest, text) in list(self._journal.added.by_request.items()):
                if self.redactor.learned_in(text.decode(), known):
                    (interaction,) = read_interactions(text)
                    new, _ = self.redactor.redacted_text(interaction, layout.interaction_text)
                    self._write(number, new.encode(), [digest])
                    senders = self._run.senders
                    senders[digest_of(new.encode())] = senders[digest]
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
        if self.lock is not None:
            with self.lock:
                try:
                    self._finish(True)
                    if sys.exception() is None:
                        self._finish(None)  # of a cell that goes on after a block that records
                    self._end(ending or ("drop" if self._is_aside else "merge"))
                finally:
                    self._journal.close()
                remove_journal(self._path)
        has_recorded = bool(self._journal.added.by_request)
        self._journal.added = Journal()  # it takes as much memory as the file
        return has_recorded

    def _end(self, ending: Ending) -> None:
        """Fold the recording as it ends."""
        if ending == "drop":
            if self._is_aside:
                self._dropped.clear()
            for number, (_, text) in list(self._journal.added.by_request.items()):
                if self._is_aside or read_interactions(text)[0].response.broke_off:
                    self._write(number, b"")
        if ending == "replace":
            self._dropped.update(range(len(self.recording)))
            self.recording = replace(self.recording, interactions=())
        if self._journal.added.by_request or self._dropped:
            self.fold()
        elif self._was_created:
            self._path.unlink(missing_ok=True)


def _read(path: Path, read: Callable[[Path], FileRecording] = read_file) -> FileRecording:
    """Return the recording in a file; an empty one if there is no file."""
    return FileRecording(path.stem, path=path) if version_of(path) is None else read(path)


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
        if joined.problem:
            notice(f"Cassette {path.stem!r}: {joined.problem}.")
    remove_journal(path)
