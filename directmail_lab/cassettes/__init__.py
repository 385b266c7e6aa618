"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index.

- `library` finds the file for a name, and locks it.
- `cassette` has the open cassette, which replays or records as its record mode says.
- `recorder` appends interactions to a file; `layout` defines its lines.
- `reader` reads our layout by line, and other files through `vcr_files`, the use of vcrpy.
- `player` decides which recorded response comes next for a request.
- `convert` writes whole files again, also as HAR; `view` shows them, and needs pandas.
"""

from .cassette import Cassette as Cassette
from .library import (
    cassettes_by_name as cassettes_by_name,
    find_cassette as find_cassette,
    new_cassette_path as new_cassette_path,
    shown_path as shown_path,
)
from .player import DEFAULT_MATCH_ON as DEFAULT_MATCH_ON, Matcher as Matcher
from .reader import LoadedCassette as LoadedCassette, read_cassette as read_cassette
