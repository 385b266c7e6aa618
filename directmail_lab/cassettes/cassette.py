"""An open cassette: it plays what was recorded and records the rest, as its record mode says."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Final, Literal, Self

from ..display import plural
from ..errors import CassetteError
from ..interaction import Interaction, RecordedRequest, base_path, normalize_headers
from ..redaction import Redactor
from .convert import notice_of_personal_data
from .library import cassette_name, command_name, find_cassette, new_cassette_path
from .player import DEFAULT_MATCH_ON, Key, Matcher, Matching, Player
from .reader import read_cassette
from .recorder import Recording, unfinished_files

RECORD_MODES: Final = ("none", "once", "new_episodes", "any", "all")

_MOST_KNOWN: Final = 4096
_log = logging.getLogger("directmail_lab")


class Cassette:
    """Recorded answers to requests; in most record modes, also a recording of new ones.

    Any number of threads and tasks may use one cassette at once. A forked child plays what it
    inherits, and records nothing.

    Parameters
    ----------
    name
        A bare name, or the `Path` of a file.
    record_mode
        vcrpy's: ``"none"`` replays; ``"once"`` records a new cassette and replays an old one;
        ``"new_episodes"`` and ``"any"`` add what is not there; ``"all"`` records everything again,
        and replaces an old file at `close`.
    redactor
        What removes secrets before anything is written or compared.
    base_url
        The base address of the session: paths are compared below it.
    match_on
        vcrpy's matchers by name, and functions of two of its requests.
    repeat
        What a replay does when all answers to a request were played: ``"last"`` gives the last one
        again, ``"strict"`` refuses.
    on_write_error
        Whether a full disk stops the session or lets it go on unrecorded.
    metadata
        What a new cassette says of itself beside its writer, base address and time.
    notice
        Called with a sentence if a recording was not closed or cannot go on; and at its end, if it
        has personal data.
    clock
        Gives the seconds since the Unix epoch.

    Attributes
    ----------
    path
        Its file.
    records
        Whether a request without an answer may be sent, and its outcome recorded.
    base_url
        The base address of the recording: its metadata's, else the first interaction's origin.
    foreign
        Whether another program wrote what it held when it was opened: credentials may be in it.
    on_unmatched
        Called with each request that `play` refuses, redacted.

    Raises
    ------
    NotRecordedError
        Where a cassette to replay does not exist.
    CassetteFormatError, CassetteInUseError, CassetteError
        Where it cannot be read, is being recorded by another, or its name leads out of the folder.
    """

    def __init__(
        self,
        name: str | Path,
        *,
        record_mode: str = "none",
        redactor: Redactor | None = None,
        base_url: str | None = None,
        match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
        repeat: Literal["last", "strict"] = "last",
        on_write_error: Literal["raise", "continue"] = "raise",
        metadata: Mapping[str, object] | None = None,
        notice: Callable[[str], None] = _log.warning,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if record_mode not in RECORD_MODES:
            raise ValueError(
                f"{record_mode!r} is not a record mode. Use {', '.join(RECORD_MODES)}."
            )
        self.name = cassette_name(name)
        self.record_mode = record_mode
        self.on_unmatched: Callable[[RecordedRequest], object] = lambda _: None
        self._redactor = redactor or Redactor()
        self._matching = Matching(match_on)
        self._given_base = base_url
        self._repeats = repeat == "last"
        self._goes_on = on_write_error == "continue"
        self._notice = notice
        self._lock, self._process = RLock(), os.getpid()
        self._known: dict[tuple[str, str, str | None], tuple[Key, ...]] = {}
        self._is_full = self._recorded = False
        self._said = ""
        started = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="microseconds")
        about = {"base_url": base_url, "started_at": started.replace("+00:00", "Z")}
        self._metadata = {**about, **(metadata or {}), **about}
        self.path = find_cassette(name) if record_mode == "none" else new_cassette_path(name)
        is_replayed_once = record_mode == "once" and _holds_bytes(self.path)
        self.records = record_mode != "none" and not is_replayed_once
        self._recording = self._open_recording(anew=record_mode == "all") if self.records else None
        loaded = self._recording.loaded if self._recording else read_cassette(self.path)
        self._redactor = self._redactor.also(loaded.redact)
        self._interactions = loaded.interactions
        self.base_url, self.foreign = loaded.base_url or base_url, loaded.foreign
        self._player = Player(
            () if record_mode == "all" else self._interactions,
            self._matching,
            # What we wrote is redacted already; what another program wrote is not.
            redact=self._redactor.request if self.foreign else None,
            prefix=base_path(self.base_url or ""),
            name=self.name,
        )
        if loaded.problem:
            notice(f"Cassette {self.name!r}: {loaded.problem}.")

    def play(self, request: RecordedRequest, *, base_url: str | None = None) -> Interaction | None:
        """Return the recorded answer to a request; None if it is to be sent and recorded.

        ``base_url`` is the base address that the request is sent to, where it is not the one that
        the cassette was opened with.

        Raises
        ------
        NotRecordedError
            Where there is none and this cassette does not record.
        """
        asked, keys = self._keys(request, base_url)
        with self._own_lock():
            index = self._player.take(keys, asked)
        if index is None:
            if self.records:
                return None
            index = self._player.last(keys, asked)
            if index is None or not self._repeats:
                self.on_unmatched(asked)
                raise self._player.refusal(asked, self._prefix(base_url), left=index is not None)
        return self._interactions[index]

    def holds_answer(self, request: RecordedRequest, *, base_url: str | None = None) -> bool:
        """Return whether `play` would answer a request, without playing the answer."""
        asked, keys = self._keys(request, base_url)
        with self._own_lock():
            return self._player.next(keys, asked) is not None

    def record(self, interaction: Interaction) -> None:
        """Redact an interaction and append it: when this returns, a kill does not lose it.

        Its response body must be decoded; its headers are changed here to fit that.

        Raises
        ------
        CassetteError
            Where it cannot be written, unless the cassette was opened to go on then; nothing that
            was recorded before is lost. Also where this cassette does not record.
        """
        if self._recording is None:
            raise CassetteError(
                f"Cassette {self.name!r} was opened to replay. "
                f"Open it with record({self.name!r}) to add to it."
            )
        request = interaction.request
        if request.body is None:  # as vcrpy records httpx, so that its body matcher agrees
            interaction = replace(interaction, request=replace(request, body=b""))
        response = normalize_headers(interaction.response, method=request.method)
        if response is not interaction.response:
            interaction = replace(interaction, response=response)
        with self._own_lock():
            if self._is_full:
                return
            try:
                self._recording.append(interaction)
                self._recorded = True
            except OSError as error:
                self._not_written(error)

    def interactions(self) -> Sequence[Interaction]:
        """Return what the cassette holds so far; in record mode "all", only what is new."""
        return self._interactions if self._recording is None else self._recording.interactions()

    def unplayed(self) -> list[RecordedRequest]:
        """Return the recorded requests whose answers were not played since it was opened."""
        with self._own_lock():
            return self._player.unplayed()

    def __len__(self) -> int:
        return len(self.interactions())

    def close(self) -> None:
        """Close a recording: write its end line, and release the lock.

        If the recording has personal data, a notice says so.

        Raises
        ------
        CassetteError
            Where the disk is full, unless the cassette was opened to go on then.
        """
        with self._own_lock():
            recording = self._recording
            if recording is None or recording.closed or recording.is_inherited:
                return
            try:
                recording.close()
            except OSError as error:
                self._not_written(error)
                return
            recorded, self._recorded = self._recorded, False
        said = notice_of_personal_data(self.path, self.name) if recorded else ""
        if said and said != self._said:  # a recording that was resumed says so once
            self._notice(said)
        self._said = said or self._said

    def resume(self) -> None:
        """Go on recording after `close`, at the end of the file; what was played stays played.

        Raises
        ------
        CassetteInUseError
            Where another records the cassette by now.
        """
        with self._own_lock():
            if self._recording is not None and self._recording.closed:
                # Also where it was recorded anew: by now that is the cassette, to be added to.
                self._recording = self._open_recording(anew=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cassette {self.name!r}, {self.record_mode}, {plural(len(self), 'interaction')}>"

    def _own_lock(self) -> RLock:
        """Return this process's lock: a forked child never sees its parent's lock released."""
        if os.getpid() != self._process:
            self._lock, self._process = RLock(), os.getpid()
        return self._lock

    def _open_recording(self, *, anew: bool) -> Recording:
        recording = Recording(
            self.path,
            redactor=self._redactor,
            metadata=self._metadata,
            anew=self._matching if anew else None,
        )
        # A kernel that ends, or a cassette that is dropped, closes its recording too.
        weakref.finalize(self, _close_quietly, recording)
        if left := unfinished_files(self.path):
            self._notice(
                f"Cassette {self.name!r}: an earlier recording of it was interrupted. What it "
                f"recorded is in {' and '.join(map(str, left))}. To put it into the cassette: "
                f"directmail-lab cassette repair {command_name(self.path, self.name)}."
            )
        return recording

    def _prefix(self, base_url: str | None) -> str:
        return base_path(base_url or self._given_base or self.base_url or "")

    def _keys(
        self, request: RecordedRequest, base_url: str | None
    ) -> tuple[RecordedRequest, tuple[Key, ...]]:
        """Return a request redacted, and its keys; those of plain reads are remembered."""
        prefix = self._prefix(base_url)
        known = (request.method, request.uri, prefix)
        keys = self._known.get(known)
        if keys is not None:
            return request, keys
        asked = self._redactor.request(request)
        keys = self._matching.keys(asked, prefix)
        # Nothing that the redactor changed is kept in memory, nor more than a few of any.
        if asked.uri == request.uri and self._matching.by_address_alone(request.method):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[known] = keys
        return asked, keys

    def _not_written(self, error: OSError) -> None:
        message = (
            f"Cassette {self.name!r} could not be written ({error.strerror}). What was recorded "
            "before is safe. Make room in its folder, or set DIRECTMAIL_CASSETTES to another."
        )
        if not self._goes_on:
            raise CassetteError(message) from None
        self._is_full = True
        self._notice(f"{message} The session goes on without recording.")


open_cassette = Cassette
"""The name by which a cassette is opened."""


def _holds_bytes(path: Path) -> bool:
    """Return whether a cassette has content: vcrpy records an empty one as it does a new one."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _close_quietly(recording: Recording) -> None:
    with suppress(OSError, CassetteError):
        recording.close()
