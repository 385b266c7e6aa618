"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index.

- `cassette` is an open cassette, which plays or records as its record mode says.
- `recorder` writes interactions to a `journal` beside the file, and folds it into the file.
- `player` decides which recorded response comes next for a request. `matching` says which requests
  are the same, and `mismatch` in what two differ.
- `files` reads and writes whole files, in our own `layout`; vcrpy's through `vcr_files`, and HAR
  through `har`. `library` finds the file for a name, and locks it.
- `recording` defines what questions are asked of. `memory` keeps the recording of a session.
- `convert` writes whole files again.
"""

from .cassette import (
    BeforeRecord as BeforeRecord,
    Cassette as Cassette,
    Played as Played,
    Policy as Policy,
)
from .files import FileRecording as FileRecording, read_cassette as read_cassette
from .library import (
    cassette_named as cassette_named,
    cassettes_by_name as cassettes_by_name,
    find_cassette as find_cassette,
    folded as folded,
    new_cassette_path as new_cassette_path,
    shown_path as shown_path,
)
from .matching import (
    DEFAULT_MATCH_ON as DEFAULT_MATCH_ON,
    Matcher as Matcher,
    Matching as Matching,
)
from .memory import SessionRecording as SessionRecording
from .recorder import Ending as Ending
from .recording import (
    Recording as Recording,
    service_of as service_of,
    uncollected as uncollected,
)
