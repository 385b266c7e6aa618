"""Readings in files: those that a cassette's responses hold, and logs kept as Parquet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from ..errors import DirectMailLabError
from ..interaction import base_path, path_below
from ..quota import Reading, read_headers
from .columns import COLUMNS
from .log import ReadingLog, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..interaction import Interaction

__all__ = ["load_readings", "read_readings", "readings_in", "readings_of", "save_readings"]

# What a reading has beside the columns of its frame.
_KEPT_TOO: Final = ("retry_after_s", "reset_text", "served_at")
_STORED: Final = (*(name for name in COLUMNS if name != "reset_at"), *_KEPT_TOO)
_DTYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("method", "path", "operation", "source"), "string"),
    **dict.fromkeys(("cassette", "problem", "reset_text"), "string"),
    **dict.fromkeys(("status", "limit", "remaining", "reset"), "Int64"),
    **dict.fromkeys(("elapsed_s", "retry_after_s", "served_at"), "float64"),
}
_NEVER_MISSING: Final = ("method", "path", "operation", "source", "status")


def read_readings(path: str | Path) -> pd.DataFrame:
    """Return the readings of a cassette file's responses, a row each, without replaying it.

    The columns are those of `ReadingLog.frame`; ``at`` is NaT where the writer kept no time.

    Raises
    ------
    CassetteError
        There is no such file, or it is not a cassette.
    """
    return frame_of(readings_in(path))


def readings_in(path: str | Path) -> list[Reading]:
    """Return the readings of a cassette file's responses, in its order."""
    from ..cassettes import read_cassette

    loaded = read_cassette(Path(path))
    base_url = loaded.metadata.get("base_url")
    prefix = base_path(base_url) if isinstance(base_url, str) else ""
    return readings_of(loaded.interactions, prefix=prefix, cassette=Path(path).stem)


def readings_of(
    interactions: Iterable[Interaction], *, prefix: str = "", cassette: str | None = None
) -> list[Reading]:
    """Return the reading of each interaction. ``prefix`` is the base address's path prefix."""
    return [_reading_of(interaction, prefix, cassette) for interaction in interactions]


def _reading_of(interaction: Interaction, prefix: str, cassette: str | None) -> Reading:
    recorded_at = interaction.recorded_at
    return read_headers(
        interaction.response.headers,
        at=math.nan if recorded_at is None else recorded_at.timestamp(),
        method=interaction.request.method,
        path=path_below(interaction.request.uri, prefix),
        status=interaction.response.status,
        elapsed_s=interaction.elapsed_s,
        source="recorded",
        cassette=cassette,
    )


def save_readings(readings: Iterable[Reading], path: str | Path) -> None:
    """Write readings to a Parquet file: the columns of `ReadingLog.frame`, and a few beside them.

    Needs pyarrow (``directmail-lab[parquet]``).
    """
    kept = list(readings)
    frame = frame_of(kept)
    for name in _KEPT_TOO:
        values = [getattr(reading, name) for reading in kept]
        frame[name] = pd.Series(values, dtype=_DTYPES[name], index=frame.index)
    frame.to_parquet(Path(path), engine=_engine(), index=False)


def load_readings(path: str | Path) -> ReadingLog:
    """Return the log that `save_readings` wrote.

    Raises
    ------
    DirectMailLabError
        Where the file is no Parquet, or holds something else than readings.
    """
    engine = _engine()
    file = Path(path)
    try:
        frame = pd.read_parquet(file, engine=engine)
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise DirectMailLabError(f"There is no file {file.name}. Check the path.") from None
        raise _not_readings(file, "it is not a Parquet file") from None
    missing = [name for name in _STORED if name not in frame.columns]
    if missing:
        raise _not_readings(file, f"it has no column {', '.join(missing)}")
    try:
        return ReadingLog(_readings_from(frame))
    except (ValueError, TypeError, AttributeError):
        raise _not_readings(file, "a column holds values of another kind") from None


def _readings_from(frame: pd.DataFrame) -> list[Reading]:
    columns: dict[str, list[Any]] = {}
    for name, dtype in _DTYPES.items():
        column = frame[name].astype(dtype)
        if name in _NEVER_MISSING and column.isna().any():
            raise ValueError(name)
        columns[name] = column.astype(object).where(column.notna(), None).tolist()
    times = pd.to_datetime(frame["at"], utc=True).astype("datetime64[us, UTC]")
    seconds = np.where(times.isna(), np.nan, times.astype("int64") / 1e6)
    columns["at"] = seconds.tolist()
    return [
        Reading(**dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]


def _engine() -> Any:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise DirectMailLabError(
            "Parquet needs pyarrow, which is not installed. Install directmail-lab[parquet]."
        ) from None
    return "pyarrow"


def _not_readings(file: Path, why: str) -> DirectMailLabError:
    return DirectMailLabError(
        f"{file.name} is not a file of readings: {why}. Write one with save_readings()."
    )
