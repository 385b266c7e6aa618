"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index.

- `library` finds the file of a name, and locks it.
- `cassette` is one that is open: it plays, or records, as its record mode says.
- `recorder` appends what happens, in the lines that `layout` makes of it.
- `reader` reads it again: by line, or through `vcr_files` what vcrpy and its users wrote.
- `player` knows which recorded answer comes next for a request.
- `convert` makes whole files anew, by `har` too; `view`, which alone needs pandas, shows them.
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
