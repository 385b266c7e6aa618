"""What a chart needs of a frame of readings before it is drawn: pure functions of pandas.

Moments are days since 1970 (UTC), as matplotlib draws them, in columns ``x`` (when the response
came) and ``renews_x``. Where a reading has no time, as in a cassette of vcrpy's, ``x`` is the
number of the row instead, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from ..quota import is_exhausted

if TYPE_CHECKING:
    from numpy.typing import NDArray

Span = tuple[float, float]
"""Where something begins and ends on the axis."""

_BUCKETS: Final = 700
_MANY: Final = 2_800
_SHORTEST_BREAK_DAYS: Final = 10 / 1440
_MOST_EPISODES: Final = 3
_MOST_OF_A_SPAN: Final = 0.7
_FEWEST_TO_SPLIT: Final = 6


def are_timed(frame: pd.DataFrame) -> bool:
    """Return whether all readings have a time, so that they can be drawn over time."""
    return bool(frame["at"].notna().all())


def exhausted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the readings whose response said that the allowance is used up."""
    marked: pd.Series[bool] = is_exhausted(frame["status"], frame["remaining"])
    return frame[marked.fillna(False).astype(bool)]


def by_operation(frame: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """Return ``"GET /v1/users/me"`` and its readings in the order of ``x``, the most read first."""
    if frame.empty:
        return []
    timed = are_timed(frame)
    ordered = frame.assign(
        x=_days(frame["at"]) if timed else np.arange(len(frame), dtype=float),
        renews_x=_days(frame["reset_at"]) if timed else np.nan,
        operation=frame["method"].astype(str) + " " + frame["operation"].astype(str),
    ).sort_values("x", kind="stable", ignore_index=True)
    counts = ordered["operation"].value_counts(sort=False)
    counts = counts.sort_values(ascending=False, kind="stable")[:most]
    return [(str(name), ordered[ordered["operation"] == name]) for name in counts.index]


def _days(times: pd.Series[pd.Timestamp]) -> pd.Series[float]:
    return (pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def thinned(
    frame: pd.DataFrame, column: str = "remaining", *, many: int = _MANY, buckets: int = _BUCKETS
) -> pd.DataFrame:
    """Return the readings that a chart cannot do without, of one operation, in order.

    Up to ``many`` are kept as they are. Of more, each of ``buckets`` equal spans of the axis keeps
    its first and last reading, and those with the least and the most in a column: the picture looks
    the same, and no minimum and no maximum is lost.
    """
    if len(frame) <= many:
        return frame
    ordered = frame.reset_index(drop=True)
    x = ordered["x"].to_numpy() - ordered["x"].iloc[0]
    bucket = np.minimum((x / max(x[-1], 1e-12) * buckets).astype(int), buckets - 1)
    told = ordered[column].dropna().astype(float)
    places = pd.Series(ordered.index).groupby(bucket)
    values = told.groupby(bucket[told.index])
    kept = [places.first(), places.last(), values.idxmin(), values.idxmax()]
    return ordered.loc[sorted(set(pd.concat(kept)))]


def windows(frame: pd.DataFrame) -> list[Span]:
    """Return the windows that one operation's readings tell of: first reading to renewal.

    A reset in whole seconds makes every reading's renewal a little late, never early, so the
    earliest is the window's end.
    """
    known = frame.dropna(subset=["renews_x", "remaining"])
    found: list[Span] = []
    least = -1
    for x, ends, remaining in zip(known["x"], known["renews_x"], known["remaining"], strict=True):
        if found and x < found[-1][1] and remaining <= least:
            begins, before = found[-1]
            found[-1] = begins, max(min(before, ends), x)
        else:
            found.append((x, ends))
        least = remaining
    return found


def broken(frame: pd.DataFrame, found: Sequence[Span]) -> tuple[pd.Series[float], pd.Series[float]]:
    """Return places and what remained, with a gap from each renewal to the next reading.

    What was left of a window is nothing to go by once it has ended.
    """
    ends = [min(one[1], after[0]) for one, after in pairwise(found)]
    gaps = pd.DataFrame({"x": pd.Series(ends, dtype=float), "remaining": np.nan})
    points = frame.dropna(subset=["remaining"])[["x", "remaining"]].astype(float)
    # Stable, and gaps first: a gap at a reading's place comes before it.
    joined = pd.concat([gaps, points]).sort_values("x", kind="stable")
    return joined["x"], joined["remaining"]


def episodes(x: pd.Series[float]) -> list[Span]:
    """Return the spans of time worth drawing, at most three, the pauses between them left out.

    A recording of last month replayed beside today's requests would be two dots at the ends of an
    axis. A pause is left out where it is over ten minutes and most of its span.
    """
    spans = [np.sort(x.to_numpy())]
    while len(spans) < _MOST_EPISODES:
        places = [_pause(span) for span in spans]
        number = next((each for each, place in enumerate(places) if place), None)
        if number is None:
            break
        spans[number : number + 1] = np.split(spans[number], [places[number]])
    return [(float(span[0]), float(span[-1])) for span in spans]


def _pause(span: NDArray[np.floating[Any]]) -> int:
    """Return the place of the reading after a pause to leave out, or 0."""
    if len(span) < _FEWEST_TO_SPLIT:
        return 0
    pauses = np.diff(span)
    place = int(pauses.argmax())
    longest = max(_SHORTEST_BREAK_DAYS, _MOST_OF_A_SPAN * (span[-1] - span[0]))
    return place + 1 if pauses[place] >= longest else 0


def span_in_words(spans: Sequence[Span], *, timed: bool) -> str:
    """Return what an axis shows: ``"21 Nov 2026, UTC"``."""
    if not timed:
        return "by number: not every response has a time"
    ends = [moment for span in spans for moment in span]
    days = list(dict.fromkeys(f"{pd.Timestamp(each, unit='D'):%-d %b %Y}" for each in ends))
    return f"{', '.join(days)}, UTC" if len(days) < 4 else f"{days[0]} to {days[-1]}, UTC"
