"""The words of charts: titles, spans of time, and what a picture shows, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["remaining_in_words", "seconds_in_words", "span_in_words"]


def remaining_in_words(readings: pd.DataFrame) -> str:
    """Return what an operation's last sound reading says: ``"260 of 300 left"``."""
    sound = readings.dropna(subset=["remaining"])
    if sound.empty:
        return "remaining not told"
    last = sound.iloc[-1]
    limit = "an untold limit" if pd.isna(last["limit"]) else f"{last['limit']:,}"
    return f"{last['remaining']:,} of {limit} left"


def span_in_words(spans: Sequence[tuple[pd.Timestamp, pd.Timestamp]]) -> str:
    """Return the days that an axis of times shows: ``"21 Nov 2026, UTC"``."""
    days = dict.fromkeys(f"{moment:%-d %b %Y}" for span in spans for moment in span)
    named = list(days)
    shown = named if len(named) < 4 else [named[0], named[-1]]
    joint = ", " if len(named) < 4 else " to "
    return f"{joint.join(shown)}, UTC"


def seconds_in_words(seconds: float) -> str:
    """Return a latency with its unit, to three digits: ``"42 ms"``, ``"1.25 s"``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
