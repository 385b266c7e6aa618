"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index.

What shows them as tables is in `view`, which alone needs pandas.
"""

from .cassette import Cassette as Cassette, open_cassette as open_cassette
from .library import (
    cassettes_by_name as cassettes_by_name,
    find_cassette as find_cassette,
    new_cassette_path as new_cassette_path,
    shown_path as shown_path,
)
from .player import DEFAULT_MATCH_ON as DEFAULT_MATCH_ON, Matcher as Matcher
from .reader import LoadedCassette as LoadedCassette, read_cassette as read_cassette
