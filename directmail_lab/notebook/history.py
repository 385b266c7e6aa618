"""The sessions of one account as one recording to browse, from the oldest to the newest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ..cassettes import MemoryRecording, Recording
from ..display import utc_time
from ..errors import CassetteFormatError
from ..exchange.values import Interaction


class History(Recording):
    """Several recordings, one after the other. Each begins with a head, a row with its title.

    Heads and interactions are numbered together; such a number is called a place. Only the last
    recording can grow: later interactions of earlier ones are not shown.
    """

    def __init__(self, earlier: Sequence[MemoryRecording], last: MemoryRecording) -> None:
        self.name = last.name
        self.base_url = last.base_url
        self._recordings = [*earlier, last]
        self._heads = [1]
        for each in earlier:
            self._heads.append(self._heads[-1] + len(each) + 1)

    @property
    def last_head(self) -> int:
        """The place of the last session's head."""
        return self._heads[-1]

    def __len__(self) -> int:
        return self.last_head + len(self._recordings[-1])

    def locate(self, place: int) -> tuple[MemoryRecording, int]:
        """Return the recording of a place, and the interaction's number there; 0 for a head."""
        self._check_number(place)
        at = bisect_right(self._heads, place) - 1
        return self._recordings[at], place - self._heads[at]

    def interaction(self, number: int) -> Interaction:
        recording, own = self.locate(number)
        if own == 0:
            raise CassetteFormatError(self.head_of(recording))
        return recording.interaction(own)

    def head_of(self, recording: MemoryRecording) -> str:
        """Return the title of a session."""
        if recording is self._recordings[-1]:
            return "This session"
        return f"Earlier session, {utc_time(recording.reading(1).at):%F %R} UTC"


def with_history(recording: MemoryRecording) -> Recording:
    """Return a session's recording, after those of the account's earlier sessions if it has any."""
    history = list(recording.history)
    before = history[: history.index(recording)] if recording in history else []
    earlier = [each for each in before if len(each)]
    return History(earlier, recording) if earlier else recording


def locate(recording: Recording, number: int) -> tuple[Recording, int]:
    """Return the recording and the number of the interaction that a page gives by its number."""
    return recording.locate(number) if isinstance(recording, History) else (recording, number)
