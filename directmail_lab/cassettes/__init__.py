"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .cassette import Cassette, open_cassette
from .library import cassettes_by_name, find_cassette, new_cassette_path, shown_path
from .player import DEFAULT_MATCH_ON
from .reader import LoadedCassette, read_cassette

if TYPE_CHECKING:
    from .view import InteractionView, interactions, read_interactions, show_interaction

__all__ = [
    "DEFAULT_MATCH_ON",
    "Cassette",
    "InteractionView",
    "LoadedCassette",
    "cassettes_by_name",
    "find_cassette",
    "interactions",
    "new_cassette_path",
    "open_cassette",
    "read_cassette",
    "read_interactions",
    "show_interaction",
    "shown_path",
]


def __getattr__(name: str) -> Any:
    # Only what shows interactions needs pandas, so it is imported when it is first used.
    if name in __all__:
        return getattr(import_module(".view", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
