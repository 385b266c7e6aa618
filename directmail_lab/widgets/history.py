"""The sessions of one account as one recording to browse: one after the other, the newest last."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime

from ..cassettes import Recording, SessionRecording
from ..errors import CassetteFormatError
from ..exchange.values import Interaction


class History(Recording):
    """Recordings one after the other, each below a head. Its numbers are places in the whole.

    What a session but the last one gets afterwards is not shown.
    """

    def __init__(self, earlier: Sequence[SessionRecording], last: SessionRecording) -> None:
        self.name, self.base_url = last.name, last.base_url
        self._recordings = [*earlier, last]
        self._heads = [1]
        for each in earlier:
            self._heads.append(self._heads[-1] + len(each) + 1)

    @property
    def last_head(self) -> int:
        """The place above the last session's first interaction."""
        return self._heads[-1]

    def __len__(self) -> int:
        return self.last_head + len(self._recordings[-1])

    def locate(self, place: int) -> tuple[SessionRecording, int]:
        """Return whose a place is, and the number of its interaction there, or 0 for a head."""
        self._check_number(place)
        at = bisect_right(self._heads, place) - 1
        return self._recordings[at], place - self._heads[at]

    def interaction(self, number: int) -> Interaction:
        recording, own = self.locate(number)
        if own == 0:
            raise CassetteFormatError(self.head_of(recording))
        return recording.interaction(own)

    def head_of(self, recording: SessionRecording) -> str:
        """Return what stands above a session's interactions."""
        if recording is self._recordings[-1]:
            return "This session"
        return f"Earlier session, {datetime.fromtimestamp(recording.reading(1).at, UTC):%F %R} UTC"


def with_history(recording: SessionRecording) -> Recording:
    """Return a session's recording below those of the account's earlier sessions, if any."""
    history = list(recording.history)
    before = history[: history.index(recording)] if recording in history else []
    earlier = [each for each in before if len(each)]
    return History(earlier, recording) if earlier else recording


def locate(recording: Recording, number: int) -> tuple[Recording, int]:
    """Return the recording and the number of what a page calls by a number."""
    return recording.locate(number) if isinstance(recording, History) else (recording, number)
