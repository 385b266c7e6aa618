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
from ..errors import CassetteError, check_choice
from ..interaction import Interaction, RecordedRequest, base_path, normalize_headers
from ..redaction import Redactor
from .convert import notice_of_personal_data
from .library import cassette_name, find_cassette, new_cassette_path
from .player import DEFAULT_MATCH_ON, Matcher, Player, check_match_on
from .reader import read_cassette
from .recorder import Recording, unfinished_files

RECORD_MODES: Final = ("none", "once", "new_episodes", "any", "all")

_log = logging.getLogger("directmail_lab")


class Cassette:
    """Recorded responses to requests; in most record modes, also a recording of new ones.

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
        What a replay does when all responses to a request were played: ``"last"`` gives the last
        one again, ``"strict"`` refuses.
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
        Whether a request without a recorded response may be sent, and the response recorded.
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
        check_choice("record_mode", record_mode, RECORD_MODES)
        check_choice("repeat", repeat, ("last", "strict"))
        check_choice("on_write_error", on_write_error, ("raise", "continue"))
        self.name = cassette_name(name)
        self.record_mode = record_mode
        self.on_unmatched: Callable[[RecordedRequest], object] = lambda _: None
        self._redactor = redactor or Redactor()
        check_match_on(match_on)
        self._match_on = match_on
        self._repeat = repeat
        self._on_write_error = on_write_error
        self._notice = notice
        self._last_notice = ""
        self._lock, self._process = RLock(), os.getpid()
        started_at = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="microseconds")
        own = {"base_url": base_url, "started_at": started_at.replace("+00:00", "Z")}
        self._metadata = {**own, **(metadata or {}), **own}
        self.path = find_cassette(name) if record_mode == "none" else new_cassette_path(name)
        # As in vcrpy, an empty file is recorded to as a new one is.
        is_old = self.path.exists() and self.path.stat().st_size > 0
        self.records = record_mode != "none" and not (record_mode == "once" and is_old)
        self._is_full = False
        self._recording: Recording | None = None
        if self.records:
            self._recording = self._open_recording(anew=record_mode == "all")
        loaded = self._recording.loaded if self._recording else read_cassette(self.path)
        self._redactor = self._redactor.extended(loaded.redact)
        self._interactions = loaded.interactions
        self.base_url, self.foreign = loaded.base_url or base_url, loaded.foreign
        self._player = Player(
            () if record_mode == "all" else self._interactions,
            match_on,
            prefix=base_path(self.base_url or ""),
            redactor=self._redactor,
            foreign=self.foreign,
        )
        if loaded.problem:
            notice(f"Cassette {self.name!r}: {loaded.problem}.")

    def play(self, request: RecordedRequest, *, base_url: str | None = None) -> Interaction | None:
        """Return the recorded response to a request; None if it is to be sent and recorded.

        ``base_url`` is the base address that the request is sent to, where it is not the one that
        the cassette was opened with.

        Raises
        ------
        NotRecordedError
            Where there is none and this cassette does not record.
        """
        prefix = base_path(base_url or self.base_url or "")
        with self._own_lock():
            index = self._player.find(request, prefix)
            is_played = index is not None and bool(self._player.played[index])
            if index is not None:
                self._player.played[index] = 1
        if index is not None and (not is_played or (self._repeat == "last" and not self.records)):
            return self._interactions[index]
        if self.records:
            return None
        request = self._redactor.request(request)
        self.on_unmatched(request)
        raise self._player.refusal(request, prefix, self.name, is_played=is_played)

    def has_unplayed(self, request: RecordedRequest, *, base_url: str | None = None) -> bool:
        """Return whether a response to a request was not played yet."""
        with self._own_lock():
            index = self._player.find(request, base_path(base_url or self.base_url or ""))
            return index is not None and not self._player.played[index]

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
            request = replace(request, body=b"")
        response = normalize_headers(interaction.response, method=request.method)
        at, elapsed_s = interaction.recorded_at, interaction.elapsed_s
        with self._own_lock():
            if self._is_full:
                return
            try:
                self._recording.append(Interaction(request, response, at, elapsed_s))
            except OSError as error:
                self._handle_write_error(error)

    def interactions(self) -> Sequence[Interaction]:
        """Return what the cassette holds so far; in record mode "all", only what is new."""
        return self._interactions if self._recording is None else self._recording.interactions()

    def unplayed(self) -> list[RecordedRequest]:
        """Return the recorded requests whose responses were not played since it was opened."""
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
        has_recorded = False
        with self._own_lock():
            try:
                has_recorded = self._recording is not None and self._recording.close()
            except OSError as error:
                self._handle_write_error(error)
        notice = notice_of_personal_data(self.path, self.name) if has_recorded else ""
        if notice and notice != self._last_notice:  # once, of a recording that is resumed
            self._last_notice = notice
            self._notice(notice)

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
            replaces=self._match_on if anew else None,
        )
        # A kernel that ends, or a cassette that is dropped, closes its recording too.
        weakref.finalize(self, _close_quietly, recording)
        if files := unfinished_files(self.path):
            self._notice(
                f"Cassette {self.name!r}: an earlier recording of it was interrupted. What it "
                f"recorded is in {' and '.join(map(str, files))}: a cassette of its own, to be "
                "renamed or deleted."
            )
        return recording

    def _handle_write_error(self, error: OSError) -> None:
        message = (
            f"Cassette {self.name!r} could not be written ({error.strerror}). What was recorded "
            "before is safe. Make room in its folder, or set DIRECTMAIL_CASSETTES to another."
        )
        if self._on_write_error == "raise":
            raise CassetteError(message) from None
        self._is_full = True
        self._notice(f"{message} The session goes on without recording.")


def _close_quietly(recording: Recording) -> None:
    with suppress(OSError, CassetteError):
        recording.close()
