"""Feeds `interactions` from today's cassettes. It goes when `cassettes.recording` is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pandas as pd

from ..cassettes.cassette import Cassette
from ..cassettes.reader import LoadedCassette, is_one_file, read_cassette, read_many
from ..errors import CassetteError
from ..interaction import Interaction, RecordedRequest, base_path, path_below
from ..redaction import redact_foreign
from .interactions import InteractionView, interactions, show_interaction as show


class Recording:
    """What the merged class offers, as far as `interactions` needs it."""

    def __init__(self, name: str, source: LoadedCassette | Cassette) -> None:
        self.name, self._source = name, source
        self.base_url = source.base_url
        self.problem = getattr(source, "problem", None)

    def __iter__(self) -> Iterator[Interaction]:
        recorded = self._source.interactions
        recorded = recorded() if callable(recorded) else recorded
        return iter(redact_foreign(recorded, foreign=self._source.foreign))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def interaction(self, number: int) -> Interaction:
        if not 1 <= number <= len(self):
            raise CassetteError(
                f"Cassette {self.name!r} has no interaction {number}: it has {len(self)}, "
                "counted from 1."
            )
        return next(islice(self, number - 1, None))

    def path_of(self, request: RecordedRequest) -> str:
        return path_below(request.uri, base_path(self.base_url or ""))

    def has_bodies(self, number: int) -> bool:
        return number > 0


def recording_in(path: str | Path) -> Recording:
    """Return the recording in a file."""
    return Recording(Path(path).stem, read_cassette(Path(path)))


def read_interactions(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return what cassette files hold, one row for each interaction."""
    if is_one_file(path):
        return interactions(recording_in(path))
    frames, problems = read_many(
        path, lambda loaded, name: interactions(Recording(name, loaded)).assign(cassette=name)
    )
    frame = pd.concat(frames) if frames else interactions(Recording("", LoadedCassette(Path())))
    columns = ["cassette", *(name for name in frame if name != "cassette")]
    frame = frame.reindex(columns=columns).astype({"cassette": "string"})
    frame.attrs = {"problems": problems}
    return frame


def show_interaction(path: Path, number: int) -> InteractionView:
    """Return one interaction of a cassette's file, counted from 1, to be shown in full."""
    return show(recording_in(path), number)
