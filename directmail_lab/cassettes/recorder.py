"""Record to a cassette: each interaction is on disk before its caller has the response.

A recording goes to a journal beside the cassette, ``tour.yaml.part``. `Recorder.fold` then writes
the cassette anew, as one whole file in vcrpy's format. So nothing is ever appended to a cassette,
replaced within it or cut off from it. A killed recording leaves a journal: every reader adds it to
the cassette (`with_journal`), and the next recorder folds it.

A journal has records: a line of JSON, and the text of an interaction of ``size`` bytes::

    {"base": "<sha256 of the cassette>", "count": 57}
    {"size": 512, "drops": [3, 12]}
    - recorded_at: …

``drops`` are indexes of what an interaction replaces: below ``count`` in the cassette, from there on
in the records since. Another ``base`` line follows each fold. What follows the last base line that
names the file as it is belongs to it; if none does, another program has changed the file, and all
of the journal belongs to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import CassetteError
from ..exchange.bodies import missing_body
from ..exchange.values import Interaction, Request, fails, is_write, may_be_done
from ..redaction import Redactor
from . import layout
from .files import MAX_FILE_BYTES, FileRecording, parse_cassette, read_file
from .library import locked, version_of
from .matching import Matching
from .player import Attempts, Player
from .writer import write_cassette

Ending = Literal["merge", "replace", "aside"]

_FSYNC_EVERY_S = 1.0
_SPARE_BYTES = 1024**2
_runs: dict[Path, datetime] = {}
"""When this process began its last run of each cassette; what is older may be replaced."""


# -- the journal -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Journal:
    """What a journal has for a cassette as it is now.

    Attributes
    ----------
    texts
        The texts of its interactions.
    dropped
        The indexes that they replace, in the cassette and after it.
    size
        The length of its whole records.
    is_of_file
        Whether the cassette is as the recorder left it.
    """

    texts: list[bytes] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    size: int = 0
    is_of_file: bool = True


def journal_of(path: Path) -> Path:
    """Return the journal of a cassette."""
    return path.with_name(f"{path.name}.part")


def digest_of(path: Path) -> str:
    """Return what identifies a file's content; that of an empty one if there is none."""
    data = path.read_bytes() if path.exists() else b""
    return hashlib.sha256(data).hexdigest()


def read_journal(path: Path) -> Journal | None:
    """Return what the journal of a cassette adds to it; None if there is no journal."""
    try:
        return _journal_in(journal_of(path).read_bytes(), path)
    except FileNotFoundError:
        return None


def _journal_in(data: bytes, path: Path) -> Journal:
    digest = digest_of(path)
    every = Journal(is_of_file=False)
    own: Journal | None = None
    base = 0
    for info, text, end in _records(data):
        every.size = end
        if "base" in info:
            base = info["count"] - len(every.texts)
            own = Journal() if info["base"] == digest else own
            continue
        every.dropped.update(index - base for index in info["drops"] if index >= info["count"])
        every.texts.append(text)
        if own is not None:
            own.dropped.update(info["drops"])
            own.texts.append(text)
    if own is not None:
        own.size = every.size
    return own or every


def _records(data: bytes) -> Iterator[tuple[dict[str, object], bytes, int]]:
    """Yield the whole records: each with the position of its end."""
    at = 0
    count = 0
    while (end := data.find(b"\n", at) + 1) > 0:
        info = json.loads(data[at:end])
        count = info.setdefault("count", count)
        at = end + info.get("size", 0)
        if at > len(data):
            return
        yield info, data[end:at], at


def with_journal(recording: FileRecording, path: Path) -> FileRecording:
    """Return a cassette's recording with what a recording that goes on, or was killed, has added."""
    journal = read_journal(path)
    if journal is None or not journal.texts:
        return recording
    parts = [*recording.interactions]
    first = 0 if journal.is_of_file else len(parts)
    dropped = {first + index for index in journal.dropped}
    kept = [part for at, part in enumerate([*parts, *journal.texts]) if at not in dropped]
    header = layout.header_text({"recorded_with": layout.WRITER, **recording.metadata})
    texts = (
        each if isinstance(each, bytes) else layout.interaction_text(each).encode() for each in kept
    )
    joined = parse_cassette(header.encode() + b"".join(texts), path)
    return replace(joined, problem=None, metadata=recording.metadata, base_url=recording.base_url)


# -- the recorder ----------------------------------------------------------------------------------


class Written(NamedTuple):
    """An interaction that was recorded: its number if that is final, and what was written."""

    number: int | None
    request: Request
    body: bytes


@dataclass(eq=False, slots=True)
class Begun:
    """A write that is in the journal before it is sent, until its response replaces it."""

    recorder: Recorder
    interaction: Interaction
    index: int


class Recorder:
    """Writes redacted interactions to the journal of a cassette, which is locked until `close`.

    Parameters
    ----------
    updates
        Whether a new interaction replaces those of earlier runs to the same request.
    aside
        Whether the cassette stays as it is until `close` says what becomes of the recording.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        notice: Callable[[str], object],
        matching: Matching,
        updates: bool = False,
        aside: bool = False,
    ) -> None:
        with ExitStack() as locks:
            self._path = locks.enter_context(locked(path))
            self.recording = self._read()
            self._locks = locks.pop_all()
        self._redactor = redactor.extended(self.recording.redact)
        self._metadata = {**metadata, **self.recording.metadata}
        self._notice = notice
        self._matching = matching
        self._updates = updates and not aside
        self._aside = aside
        self._process = os.getpid()
        self._file = -1
        self._size = 0
        self._synced_at = 0.0
        self._learned = self._redactor.learned
        self.closed = False
        self._said_forked = False
        self._begun: list[Begun] = []
        self._left: Path | None = None
        self._before = _runs.get(self._path)
        self._began = _runs[self._path] = datetime.now(UTC)
        self._start()
        if read_journal(self._path) is not None:  # of a recording that was killed
            self._open()
            self.fold()

    def _read(self) -> FileRecording:
        if version_of(self._path) is None:
            return FileRecording(self._path.stem, path=self._path)
        return read_file(self._path)

    def _start(self) -> None:
        """Begin to count from the cassette's file as it is."""
        self._texts: list[bytes] = []
        self._dropped: set[int] = set()
        self._replaced: set[tuple[Attempts, bool, bool]] = set()
        self._player = Player(
            self.recording,
            self._matching,
            base_url=str(self._metadata.get("base_url") or ""),
            redactor=self._redactor,
            plays_fallbacks=True,
        )

    # -- write -------------------------------------------------------------------------------------

    def begin(self, interaction: Interaction) -> Begun | None:
        """Write a request before it is sent, as one to which no response came."""
        if self.closed or self._is_forked:
            return None
        text, written = self._redactor.redacted_text(interaction, layout.interaction_text)
        self._write(text.encode(), [])
        begun = Begun(self, written, self._count - 1)
        self._begun.append(begun)
        return begun

    def append(self, interaction: Interaction, begun: Begun | None = None) -> Written | None:
        """Redact an interaction and write it. After this returns, a kill does not lose it.

        It replaces the write that was ``begun``. Returns None in a forked process, and after the
        recording has ended.
        """
        if self._is_forked:
            if not self._said_forked:
                self._said_forked = True
                self._notice(
                    f"This process was forked while cassette {self._path.stem!r} was recorded. "
                    "What it sends is not recorded."
                )
            return None
        if self.closed:
            self._notice(
                f"A response arrived after cassette {self._path.stem!r} was closed. It is not "
                f"recorded, so a later run does not know of the {interaction.request.method}."
            )
            return None
        text, written = self._redactor.redacted_text(interaction, layout.interaction_text)
        if self._size + len(text) > MAX_FILE_BYTES:
            response = replace(written.response, body=missing_body(len(written.response.body)))
            return self.append(replace(interaction, response=response), begun)
        drops = self._places_of(begun) if begun is not None else []
        if self._updates:
            drops += self._replaced_by(written)
        self._write(text.encode(), drops)
        if begun in self._begun:
            self._begun.remove(begun)
        is_final = not (
            self._begun or self._dropped or self._aside or (self._updates and self.recording)
        )
        return Written(self._count if is_final else None, written.request, written.response.body)

    def drop(self, begun: Begun) -> None:
        """Drop a write that was begun and not sent."""
        if self.closed or self._is_forked or begun not in self._begun:
            return
        self._begun.remove(begun)
        self._write(b"", [begun.index])

    def _places_of(self, begun: Begun) -> list[int]:
        """Return the index of a write that was begun, maybe by an earlier recorder of this file."""
        if begun.recorder is self:
            return [begun.index] if begun in self._begun else []
        known = self.recording.interactions
        return [at for at in range(len(known)) if known[at] == begun.interaction][-1:]

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    @property
    def _count(self) -> int:
        return len(self.recording) + len(self._texts)

    def _write(self, text: bytes, drops: list[int]) -> None:
        """Append to the journal; a full disk changes nothing."""
        if self._file == -1:
            self._open()
        self._put({"size": len(text), "drops": drops}, text)
        self._texts.append(text)
        self._dropped.update(drops)
        if time.monotonic() - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = time.monotonic()
            os.fsync(self._file)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        if version_of(self._path) is None:  # else nobody would look for the journal
            write_cassette(self._path, self._metadata, (), self._redactor)
            self.recording = self._read()
        self._file = os.open(journal_of(self._path), flags, 0o666)
        known = read_journal(self._path)
        self._size = known.size if known else 0
        os.ftruncate(self._file, self._size)  # what a kill cut off
        if not self._size:
            self._put({"base": digest_of(self._path), "count": len(self.recording)})
        elif known and known.is_of_file:
            self._texts, self._dropped = known.texts, known.dropped
        else:
            self._rebase()

    def _put(self, info: Mapping[str, object], text: bytes = b"") -> None:
        record = json.dumps(info).encode() + b"\n" + text
        left = memoryview(record)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(record)

    # -- earlier runs ------------------------------------------------------------------------------

    def _earlier(self, request: Request) -> list[Attempts]:
        """Return the calls of earlier runs to the same redacted request."""
        known = self.recording.interactions
        calls = self._player.find_all(request)
        return [
            each for each in calls if (known[each[0]].recorded_at or self._began) <= self._began
        ]

    def _replaced_by(self, new: Interaction) -> list[int]:
        """Return the indexes of what a new interaction replaces: see `fails` and `may_be_done`."""
        is_refused = is_write(new.request) and not may_be_done(new.response)
        old = self._earlier(new.request)
        if not old or (old[0], new.is_fallback, is_refused) in self._replaced:
            return []
        self._replaced.add((old[0], new.is_fallback, is_refused))
        found: list[int] = []
        for call in old:
            response = self.recording.interactions[call[-1]].response
            stays = (new.is_fallback and not fails(response)) or (
                is_refused and may_be_done(response)
            )
            found += () if stays else call
        return [index for index in found if index not in self._dropped]

    def sent_before(self, write: Request) -> list[tuple[FileRecording, int]]:
        """Return when earlier runs sent a write, in order: the recording and the number in it.

        A mode that replays sends a write only if no response came to it, or if it is a new one.
        """
        found = []
        for call in self._earlier(self._redactor.request(write)):
            response = self.recording.interactions[call[-1]].response
            is_replayed = not self._updates and response.failure is None
            if call[-1] not in self._dropped and may_be_done(response) and not is_replayed:
                found.append((self.recording, call[-1] + 1))
        return found

    @property
    def has_recorded(self) -> bool:
        return self._file != -1

    def refuse_if_full(self) -> None:
        """Raise `CassetteError` if the file has no room for another interaction."""
        if (
            self._size + self.recording.clean_bytes * (not self._updates)
            > MAX_FILE_BYTES - _SPARE_BYTES
        ):
            raise CassetteError(
                f"Cassette {self._path.stem!r} has at most {MAX_FILE_BYTES:,} bytes. Nothing was sent.",
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

    @property
    def aside(self) -> Path | None:
        """The file with the new interactions, if it is not the cassette's own; else None."""
        return self._left

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last."""
        if not self.has_recorded:
            self._began = _runs[self._path] = self._before or self._began

    # -- the cassette's file -----------------------------------------------------------------------

    def current(self) -> FileRecording:
        """Return the recording so far; of one that stands aside, only what is new."""
        return with_journal(
            FileRecording(self._path.stem) if self._aside else self.recording, self._path
        )

    def fold(self) -> None:
        """Write the cassette anew, from its file and the journal, which stays."""
        if version_of(self._path) != self.recording.version:
            self.recording = self._read()
            self._rebase()
        if not (self._texts or self._dropped):
            return
        texts: list[Interaction | bytes] = [*self._texts]
        if (
            self._redactor.learned != self._learned
        ):  # a credential may be in what was written before
            texts = [self._parsed(each) if each else b"" for each in self._texts]
        parts = [*self.recording.interactions, *texts]
        kept = [part for at, part in enumerate(parts) if at not in self._dropped and part != b""]
        self._replace_file(self._path, kept)
        self.recording = read_file(self._path)
        self._learned = self._redactor.learned
        self._start()

    def _replace_file(self, path: Path, parts: list[Interaction | bytes]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it

        def note(new: Path) -> None:  # before it takes the place: then a kill between is harmless
            self._put({"base": digest_of(new), "count": len(parts)})

        version = self.recording.version if path == self._path else None
        write_cassette(
            path, self._metadata_of(parts), parts, self._redactor, version=version, ready=note
        )

    def _metadata_of(self, parts: list[Interaction | bytes]) -> dict[str, object]:
        """Return the metadata, with the base addresses that the file's requests have."""
        uris = [
            self._parsed(each).request.uri if isinstance(each, bytes) else each.request.uri
            for each in parts
        ]
        known = dict.fromkeys([*self.recording.base_urls, self._metadata.get("base_url")])
        named = [each for each in known if each and any(uri.startswith(str(each)) for uri in uris)]
        base_url, *others = named or [self._metadata.get("base_url")]
        metadata = {**self._metadata, **self.recording.metadata, "base_url": base_url}
        metadata.pop("other_base_urls", None)
        return {**metadata, "other_base_urls": others} if others else metadata

    def _rebase(self) -> None:
        """Apply the whole journal to a file that another program has changed."""
        os.lseek(self._file, 0, os.SEEK_SET)  # somebody may have removed its folder
        known = _journal_in(os.read(self._file, self._size), self._path)
        self._start()
        self._notice(
            f"Another program changed {self._path} meanwhile. The recording is added to it."
        )
        self._texts = [text for at, text in enumerate(known.texts) if at not in known.dropped]
        for text in filter(None, self._texts):
            self._dropped.update(self._replaced_by(self._parsed(text)))

    def _parsed(self, text: bytes) -> Interaction:
        header = layout.header_text({"recorded_with": layout.WRITER}).encode()
        return parse_cassette(header + text, self._path).interactions[0]

    def close(self, ending: Ending = "merge") -> bool:
        """End the recording, release the lock, and return whether anything was recorded."""
        if self.closed or os.getpid() != self._process:
            return False
        self.closed = True
        with self._locks:
            if self._file == -1:
                return False
            try:
                if ending == "aside" and self._aside:
                    self._left = _unfinished(self._path)
                    kept = [
                        t
                        for at, t in enumerate(self._texts, len(self.recording))
                        if t and at not in self._dropped
                    ]
                    self._replace_file(self._left, kept)
                else:
                    if ending == "replace" and self._aside:
                        self._dropped.update(range(len(self.recording)))
                    elif self._aside:
                        for text in filter(None, self._texts):
                            self._dropped.update(self._replaced_by(self._parsed(text)))
                    self.fold()
                journal_of(self._path).unlink(missing_ok=True)
            except CassetteError as error:
                self._notice(f"{error.what} The new recording stays in {journal_of(self._path)}.")
            finally:
                os.close(self._file)
        return True


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.stem}.unfinished.yaml")
