"""What earlier runs recorded: what a new interaction replaces, and which writes were sent before.

A run is what one process records to one file, until `record(…)` as a statement begins another. If a
run was interrupted, its interactions may be in another file, next to the cassette.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from ..errors import CassetteError, CassetteFormatError
from ..exchange.values import Interaction, Request, fails, may_be_done
from ..redaction import Redactor
from .files import FileRecording, read_cassette
from .library import Version, version_of
from .matching import Matching
from .player import Attempts, Player

Key = tuple[Attempts, int, bool, bool]
"""The first old response to a request, how many there are, and what the new response is.

That is whether it is a fallback, and whether it refuses a write.
"""

_runs: dict[Path, tuple[Version | None, int]] = {}
"""For each cassette that this process recorded: the version that it left, and how many of the
interactions are from runs before its last one."""


class EarlierRuns:
    """What earlier runs recorded to a cassette, and to the files that they left next to it.

    Its methods get the indexes of the interactions that were ``replaced`` since.

    Parameters
    ----------
    path
        The cassette's file.
    recording
        What is in it.
    matching
        Tells which requests are the same.
    redactor
        Applied to requests before they are compared.
    base_url
        The base address to which this run sends, if there is one.

    Attributes
    ----------
    recording
        As given, until the file is written anew: see `reread`.
    count
        How many of its interactions, from the first one, are from earlier runs.
    """

    def __init__(
        self,
        path: Path,
        recording: FileRecording,
        matching: Matching,
        redactor: Redactor,
        base_url: object,
    ) -> None:
        self._path = path
        self._matching = matching
        self._redactor = redactor
        self._base_url = base_url
        self._left: dict[Path, tuple[Version, Player, FileRecording]] = {}
        self.reread(recording, len(recording))

    def reread(self, recording: FileRecording, count: int) -> None:
        """Use the recording of a file that was written anew, with other numbers."""
        self.recording = recording
        self.count = count
        self._player: Player | None = None
        self._asked: set[Key] = set()

    def continue_last(self) -> None:
        """Go on with the run that this process recorded last, if the file is as it was left."""
        version, count = _runs.get(self._path, (None, self.count))
        if version == self.recording.version:
            self.count = count

    def end(self, replaced: Collection[int]) -> None:
        """Note what this run leaves."""
        _runs[self._path] = version_of(self._path), self.count_left(replaced)

    def count_left(self, replaced: Collection[int]) -> int:
        """Return how many interactions of earlier runs were not replaced."""
        return self.count - sum(index < self.count for index in replaced)

    def _all(self, request: Request) -> list[Attempts]:
        if self._player is None:
            self._player = self._player_of(self.recording)
        return self._player.find_all(request)

    def _player_of(self, recording: FileRecording) -> Player:
        return Player(
            recording,
            self._matching,
            base_url=str(self._base_url or recording.base_url or ""),
            redactor=self._redactor,
            plays_fallbacks=True,
        )

    def _without(self, replaced: Collection[int], calls: list[Attempts]) -> list[Attempts]:
        return [each for each in calls if each[-1] < self.count and each[-1] not in replaced]

    def replaced_by(
        self, new: Interaction, *, is_write: bool, replaced: Collection[int]
    ) -> tuple[Key | None, list[int]]:
        """Return the indexes of what a new interaction replaces.

        Nothing is replaced twice by what has the same key: see `note`.
        """
        found: list[int] = []
        key = None
        is_fallback = new.is_fallback
        is_refused = is_write and not may_be_done(new.response)
        with suppress(CassetteFormatError):  # a damaged interaction stays
            old = self._all(new.request)
            if old and not self._matching.checks:
                key = old[0], len(old), is_fallback, is_refused
                if not self._asked.isdisjoint([key, (old[0], len(old), False, False)]):
                    return key, found
            for attempts in self._without(replaced, old):
                response = self.recording.interactions[attempts[-1]].response
                if is_fallback and not fails(response):
                    continue
                if is_refused and may_be_done(response):  # which is not forgotten
                    continue
                found += attempts
        return key, found

    def note(self, key: Key) -> None:
        """Note the key of an interaction that was written."""
        self._asked.add(key)

    def sent(
        self, write: Request, own_file: Path, replaced: Collection[int]
    ) -> Iterator[tuple[FileRecording, int]]:
        """Yield when a redacted write was sent: the recording and the index in it.

        ``own_file`` is the file that this run writes.
        """
        for file in self._left_files:
            # Somebody may have removed it, as the notice about it says.
            version = version_of(file)
            if version is None or file == own_file:
                continue
            known = self._left.get(file)
            if known is None or known[0] != version:
                recording = read_cassette(file)
                known = version, self._player_of(recording), recording
                self._left[file] = known
            _, player, recording = known
            for attempts in player.find_all(write):
                yield recording, attempts[-1]
        if self.count:
            for attempts in self._without(replaced, self._all(write)):
                yield self.recording, attempts[-1]

    @cached_property
    def _left_files(self) -> list[Path]:
        # Once: to look for them takes 99 calls, and no other run may leave one meanwhile.
        return unfinished_files(self._path)


def unfinished_files(path: Path) -> list[Path]:
    """Return the files that interrupted recordings left next to a cassette."""
    return [Path(name) for name in _unfinished_names(path) if os.path.exists(name)]  # noqa: PTH110


def unused_file(path: Path) -> Path:
    """Return the first unused name for an unfinished recording."""
    for name in _unfinished_names(path):
        if not os.path.lexists(name):
            return Path(name)
    raise CassetteError(
        f"There are too many unfinished recordings next to {path}.",
        "Look at them with interactions(…), then rename or remove them.",
    )


def _unfinished_names(path: Path) -> list[str]:
    """Return ``tour.unfinished.yaml``, ``tour.unfinished-2.yaml``, …"""
    # As texts, since a hundred paths would take most of the time of a write.
    start = path.with_name(f"{path.stem}.unfinished")
    return [f"{start}.yaml", *(f"{start}-{number}.yaml" for number in range(2, 100))]
