"""A stand-in for the `Recording` that is being built: the same interface over today's parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..interaction import Interaction, RecordedRequest, RecordedResponse, base_path, path_below
from ..readings.reading import Reading, recorded_reading
from ..readings.reset_unit import Evidence, infer_reset_unit
from ..redaction import Redactor, redact_foreign
from .library import find_cassette
from .reader import read_cassette

if TYPE_CHECKING:
    from ..sessions import Session

Credentials = Literal["key", "none", "wrong", "unknown"]


class Recording:
    """Interactions of a file or of a session, counted from 1."""

    problem: str | None = None

    def __init__(
        self,
        name: str,
        interactions: Sequence[Interaction | None],
        readings: Sequence[Reading],
        base_url: str | None,
        *,
        redact: tuple[str, ...] = (),
        evidence: Evidence | None = None,
    ) -> None:
        self.name, self.base_url, self.redact = name, base_url, redact
        self._interactions, self._readings = interactions, readings
        self._evidence = evidence

    def __len__(self) -> int:
        return len(self._readings)

    def __iter__(self) -> Iterator[Interaction]:
        return (self.interaction(number) for number in range(1, len(self) + 1))

    def interaction(self, number: int) -> Interaction:
        reading = self._readings[number - 1]
        return self._interactions[number - 1] or Interaction(
            RecordedRequest(reading.method, f"{self.base_url}{reading.path}"),
            RecordedResponse(reading.status),
        )

    def path_of(self, request: RecordedRequest) -> str:
        return path_below(request.uri, base_path(self.base_url or ""))

    def has_bodies(self, number: int) -> bool:
        return self._interactions[number - 1] is not None

    def reading(self, number: int) -> Reading:
        return self._readings[number - 1]

    def readings(self) -> list[Reading]:
        return list(self._readings)

    @property
    def evidence(self) -> Evidence:
        return self._evidence or infer_reset_unit(self._readings)


class SessionRecording(Recording):
    """What a session keeps; ``explored`` has the responses to `explore` without its key."""

    explored: list[tuple[Interaction, Credentials]]


def recording_in(name: str | Path) -> Recording:
    """Return the recording in a file."""
    path = find_cassette(name)
    loaded = read_cassette(path)
    interactions = list(redact_foreign(loaded.interactions, foreign=loaded.foreign))
    prefix = base_path(loaded.base_url or "")
    readings = [recorded_reading(each, prefix=prefix, cassette=path.stem) for each in interactions]
    return Recording(path.stem, interactions, readings, loaded.base_url, redact=loaded.redact)


def session_recording(session: Session) -> SessionRecording:
    """Return the recording of a session's present mode."""
    readings = [
        reading
        for reading in session.readings.since(0)
        if (reading.source == "replayed") == (session.mode == "replay")
    ]
    redactor = Redactor()
    interactions = [
        None if (kept := session.seen.get(id(reading))) is None else redactor.interaction(kept)
        for reading in readings
    ]
    name = session.cassette or "session"
    evidence = None if session.mode == "replay" else session.readings.evidence()
    recording = SessionRecording(name, interactions, readings, session.base_url, evidence=evidence)
    recording.explored = session.explored
    return recording


def recordings_of(source: Any) -> list[Recording]:
    """Return the recordings of a source; `current.recordings_of` also knows None."""
    from ..sessions import Session

    if isinstance(source, Session):
        return [source.recording]
    names: Iterable[Any] = [source] if isinstance(source, str | Path) else source
    return [recording_in(name) for name in names]
