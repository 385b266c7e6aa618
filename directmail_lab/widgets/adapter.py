"""Stands in for the one `Recording` until that is merged: then this file goes.

`open_source` and `recording_of` return what the merged class is; `add_reading` is how a session's
recording takes the reading of a sign-in.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..cassettes import find_cassette, read_cassette
from ..cassettes.convert import read_har
from ..cassettes.reader import MAX_FOREIGN_BYTES, read_bytes
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    Interaction,
    RecordedRequest,
    base_path,
    path_below,
)
from ..readings.reading import Reading, recorded_reading
from ..readings.reset_unit import Evidence, infer_reset_unit
from ..redaction import Redactor, secrets_in

if TYPE_CHECKING:
    from ..sessions import Session


class Recording(Protocol):
    """See the merged class."""

    @property
    def name(self) -> str: ...
    @property
    def base_url(self) -> str | None: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def evidence(self) -> Evidence: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Interaction]: ...
    def interaction(self, number: int) -> Interaction: ...
    def reading(self, number: int) -> Reading: ...
    def path_of(self, request: RecordedRequest) -> str: ...
    def has_bodies(self, number: int) -> bool: ...
    def readings(self) -> list[Reading]: ...


class FileRecording:
    """A file's interactions."""

    def __init__(
        self,
        name: str,
        interactions: Sequence[Interaction] = (),
        base_url: str | None = None,
        problem: str | None = None,
        *,
        foreign: bool = False,
    ) -> None:
        self.name, self.base_url, self.problem = name, base_url, problem
        self._interactions = interactions
        self._redactor = Redactor(secrets_in(interactions)) if foreign else Redactor()

    def __len__(self) -> int:
        return len(self._interactions)

    def __iter__(self) -> Iterator[Interaction]:
        return map(self.interaction, range(1, len(self) + 1))

    def interaction(self, number: int) -> Interaction:
        if not 1 <= number <= len(self):
            raise CassetteError(f"There is no interaction {number}: {len(self)} are recorded.")
        interaction: Any = self._interactions[number - 1]
        return self._redactor.interaction(interaction)

    def reading(self, number: int) -> Reading:
        return recorded_reading(self.interaction(number), prefix=base_path(self.base_url or ""))

    def readings(self) -> list[Reading]:
        return [self.reading(number) for number in range(1, len(self) + 1)]

    def path_of(self, request: RecordedRequest) -> str:
        return path_below(request.uri, base_path(self.base_url or ""))

    def has_bodies(self, number: int) -> bool:  # noqa: ARG002
        return True

    @cached_property
    def evidence(self) -> Evidence:
        numbers = range(1, min(len(self), 1_000) + 1)
        with suppress(CassetteFormatError):
            return infer_reset_unit(self.reading(number) for number in numbers)
        return infer_reset_unit([])


class SessionRecording:
    """A session's interactions so far."""

    problem = None

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self.base_url: str | None = session.base_url
        self._log, self._exchanges = session.readings, session.exchanges
        self._readings: list[Reading] = []
        self._lock = threading.Lock()
        self._redactor = Redactor()

    @property
    def name(self) -> str:
        session = self._session()
        if session is None:
            return "Closed"
        mode = {"live": "Live", "record": "Recording to", "replay": "Replaying"}[session.mode]
        return f"{mode} {session.cassette}" if session.cassette else mode

    def __len__(self) -> int:
        return len(self.readings())

    def __iter__(self) -> Iterator[Interaction]:
        return map(self.interaction, range(1, len(self) + 1))

    def readings(self) -> list[Reading]:
        with self._lock:
            self._readings += self._log.since(len(self._readings))
            return self._readings

    def reading(self, number: int) -> Reading:
        if not 1 <= number <= len(self):
            raise CassetteError(f"There is no interaction {number}: {len(self)} are recorded.")
        return self._readings[number - 1]

    def interaction(self, number: int) -> Interaction:
        interaction = self._exchanges.interaction(self.reading(number))
        if interaction is None:
            raise CassetteError(f"Interaction {number} is no longer kept.")
        return self._redactor.interaction(interaction)

    def path_of(self, request: RecordedRequest) -> str:
        return path_below(request.uri, base_path(self.base_url or ""))

    def has_bodies(self, number: int) -> bool:
        return self._exchanges.has_bodies(self.reading(number))

    @property
    def evidence(self) -> Evidence:
        return self._log.evidence()


_recordings: weakref.WeakKeyDictionary[Session, SessionRecording] = weakref.WeakKeyDictionary()


def recording_of(session: Session) -> Recording:
    """``session.recording``."""
    return _recordings.setdefault(session, SessionRecording(session))


def add_reading(session: Session, reading: Reading) -> None:
    """Let the sign-in's response be the first of a session's recording."""
    session.readings.append(reading)


def readings_frame(recording: Recording) -> Any:
    """What ``chart_rate_limits`` takes."""
    from ..readings.log import frame_readings

    log = getattr(recording, "_log", None)
    return frame_readings(recording.readings(), reset_unit=log and log.reset_unit)


def find_source(source: str | Path) -> Path:
    """The file of a cassette's name, or of a path, also as text."""
    path = Path(source)
    is_path = path.suffix.lower() in (".har", ".yaml", ".json") and path.is_file()
    return path if is_path else find_cassette(source)


def open_recording(path: Path) -> Recording:
    """The recording of a file."""
    if path.suffix.lower() == ".har":
        interactions = read_har(read_bytes(path, MAX_FOREIGN_BYTES), path.name)
        return FileRecording(path.name, interactions, foreign=True)
    loaded = read_cassette(path)
    base_url = None
    with suppress(CassetteFormatError):
        base_url = loaded.base_url
    return FileRecording(
        path.stem, loaded.interactions, base_url, loaded.problem, foreign=loaded.foreign
    )
