"""What a chart needs of a frame of readings before it is drawn: pure functions of pandas."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Window", "broken", "by_operation", "episodes", "is_exhausted", "thinned", "windows"]

_BUCKETS: Final = 700
_MANY: Final = 2_800
_SHORTEST_BREAK: Final = pd.Timedelta(minutes=10)
_MOST_EPISODES: Final = 3
_MOST_OF_A_SPAN: Final = 0.7
_FEWEST_TO_SPLIT: Final = 6


@dataclass(frozen=True, slots=True)
class Window:
    """One window of an allowance: from its first reading to its renewal (naive UTC)."""

    begins_at: pd.Timestamp
    ends_at: pd.Timestamp


def is_exhausted(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return which responses refused for want of allowance: a 429, or an error with 0 remaining."""
    spent = (frame["remaining"] == 0).fillna(False).astype(bool)
    return (frame["status"] == 429) | ((frame["status"] >= 400) & spent)


def by_operation(frame: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """Return ``"GET /v1/users/me"`` and its readings in order of time, for the most read ones.

    Times are naive UTC, as matplotlib draws them whatever its time zone. The most read come first.
    """
    if frame.empty:
        return []
    timed = frame.assign(
        at=_naive(frame["at"]),
        reset_at=_naive(frame["reset_at"]),
        operation=frame["method"].astype(str) + " " + frame["operation"].astype(str),
    ).sort_values("at", kind="stable", ignore_index=True)
    counts = timed["operation"].value_counts(sort=False).sort_values(ascending=False, kind="stable")
    return [(str(name), timed[timed["operation"] == name]) for name in counts.index[:most]]


def thinned(frame: pd.DataFrame, many: int = _MANY, buckets: int = _BUCKETS) -> pd.DataFrame:
    """Return the readings that a chart cannot do without, of one operation, in order of time.

    Up to ``many`` are kept as they are. Of more, each of ``buckets`` equal spans of time keeps its
    first and last reading, and those with the least and the most remaining: the line looks the
    same, and no minimum is lost.
    """
    if len(frame) <= many:
        return frame
    ordered = frame.reset_index(drop=True)
    seconds = (ordered["at"] - ordered["at"].iloc[0]).dt.total_seconds().to_numpy()
    bucket = np.minimum((seconds / max(seconds[-1], 1e-9) * buckets).astype(int), buckets - 1)
    remaining = ordered["remaining"].dropna().astype(int)
    places = pd.Series(ordered.index).groupby(bucket)
    values = remaining.groupby(bucket[remaining.index])
    kept = [places.first(), places.last(), values.idxmin(), values.idxmax()]
    return ordered.loc[sorted(set(pd.concat(kept)))]


def windows(frame: pd.DataFrame) -> list[Window]:
    """Return the windows that one operation's readings tell of, where ``reset_at`` is known.

    A reset in whole seconds makes every reading's ``reset_at`` a little late, never early, so the
    earliest is the window's end.
    """
    known = frame.dropna(subset=["reset_at", "remaining"])
    found: list[Window] = []
    least = -1
    for at, ends_at, remaining in zip(
        known["at"], known["reset_at"], known["remaining"], strict=True
    ):
        if found and at < found[-1].ends_at and remaining <= least:
            earlier = min(found[-1].ends_at, ends_at)
            found[-1] = Window(found[-1].begins_at, max(earlier, at))
        else:
            found.append(Window(at, ends_at))
        least = remaining
    return found


def broken(
    frame: pd.DataFrame, found: Sequence[Window]
) -> tuple[pd.Series[pd.Timestamp], pd.Series[float]]:
    """Return the times and what remained, with a gap from each renewal to the next reading.

    What was left of a window is nothing to go by once it has ended.
    """
    told = frame.dropna(subset=["remaining"])
    ends = [min(one.ends_at, after.begins_at) for one, after in pairwise(found)]
    gaps = pd.DataFrame({"at": pd.Series(ends, dtype=told["at"].dtype), "remaining": np.nan})
    points = told[["at", "remaining"]].astype({"remaining": float})
    # Stable, and gaps first: a gap at a reading's time comes before it.
    joined = pd.concat([gaps, points]).sort_values("at", kind="stable")
    return joined["at"], joined["remaining"]


def episodes(times: pd.Series[pd.Timestamp]) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Return the spans of time worth drawing, at most three, the pauses between them left out.

    A recording of last month replayed beside today's requests would be two dots at the ends of an
    axis. A pause is left out where it is over ten minutes and most of its span.
    """
    spans = [times.sort_values(ignore_index=True)]
    while len(spans) < _MOST_EPISODES:
        split = next((halves for span in spans if (halves := _halves(span)) is not None), None)
        if split is None:
            break
        before, after = split
        place = next(i for i, span in enumerate(spans) if span.iloc[0] == before.iloc[0])
        spans[place : place + 1] = [before, after]
    return [(span.iloc[0], span.iloc[-1]) for span in spans]


def _halves(
    span: pd.Series[pd.Timestamp],
) -> tuple[pd.Series[pd.Timestamp], pd.Series[pd.Timestamp]] | None:
    if len(span) < _FEWEST_TO_SPLIT:
        return None
    pauses = span.diff()
    place = int(pauses.argmax())
    whole = span.iloc[-1] - span.iloc[0]
    if pauses.iloc[place] < max(_SHORTEST_BREAK, _MOST_OF_A_SPAN * whole):
        return None
    return span.iloc[:place], span.iloc[place:]


def _naive(times: pd.Series[pd.Timestamp]) -> pd.Series[pd.Timestamp]:
    return pd.to_datetime(times, utc=True).dt.tz_localize(None)
