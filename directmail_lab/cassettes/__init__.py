"""Cassettes: recorded sessions in vcrpy's format, written as they happen and replayed by index.

- `library` finds the file for a name, and locks it.
- `recording` defines what questions are asked of. `files` reads a recording from a file: in our
  layout through `lines`, in vcrpy's through `vcr_files`, and in HAR through `har`. `memory` keeps
  the recording of a session.
- `cassette` is an open cassette, which replays or records as its record mode says. `users` says
  whether it was recorded as another user.
- `player` decides which recorded response comes next for a request. `matching` says which parts of
  two requests are compared, and `mismatch` which of them differ.
- `recorder` appends interactions to a file through `writer`; `layout` defines its lines.
  `earlier_runs` says what a new one replaces, and which writes were sent before.
- `convert` writes whole files again.
"""

from .cassette import BeforeRecord as BeforeRecord, Cassette as Cassette, Played as Played
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
from .memory import (
    MemoryRecording as MemoryRecording,
    PlayedRecording as PlayedRecording,
    RawInteraction as RawInteraction,
)
from .recorder import Begun as Begun, Ending as Ending, Written as Written
from .recording import Recording as Recording, uncollected as uncollected
