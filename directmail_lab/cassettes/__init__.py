"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index."""

from .cassette import Cassette, open_cassette
from .library import find_cassette, list_cassettes, new_cassette_path
from .matching import DEFAULT_MATCH_ON
from .reader import LoadedCassette, read_cassette

__all__ = [
    "DEFAULT_MATCH_ON",
    "Cassette",
    "LoadedCassette",
    "find_cassette",
    "list_cassettes",
    "new_cassette_path",
    "open_cassette",
    "read_cassette",
]
