"""Plays recorded answers: an index by match key, constant time whatever the cassette's size."""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final

from directmail_lab.display import plural
from directmail_lab.errors import NotRecordedError
from directmail_lab.interaction import RecordedRequest, path_below

from .layout import address_of
from .lazy import LazyInteractions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from directmail_lab.interaction import Interaction

    from .matching import Key, Matching

__all__ = ["Player"]

_MOST_COMPARED: Final = 500
_LONG_LOAD: Final = 20_000


class Player:
    """The recorded answers of one cassette, each played in its order.

    Parameters
    ----------
    interactions
        What was recorded.
    matching
        Which recorded request answers an asked one.
    prefix
        The path of the base address that the recording was made under.
    name
        The cassette's, for messages.
    redact
        Applied to recorded requests before they are compared; None where they are redacted.
    """

    def __init__(
        self,
        interactions: Sequence[Interaction],
        matching: Matching,
        *,
        prefix: str,
        name: str,
        redact: Callable[[RecordedRequest], RecordedRequest] | None = None,
    ) -> None:
        self._interactions = interactions
        self._matching = matching
        self._prefix = prefix
        self._name = name
        self._redact = redact
        self._played = bytearray(len(interactions))
        self._queues: dict[Key, array[int]] = {}
        self._next: dict[Key, int] = {}
        for index, keys in enumerate(self._shown(self._all_keys())):
            for key in keys:
                self._queues.setdefault(key, array("L")).append(index)

    def take(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the first answer that was not played yet, and mark it played."""
        found = self.next(keys, asked)
        if found is not None:
            self._played[found] = 1
        return found

    def next(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the first answer that was not played yet, and leave it so."""
        if self._matching.custom:
            return next((i for i in self._matching_all(keys, asked) if not self._played[i]), None)
        if len(keys) == 1:
            return self._first_unplayed(keys[0])
        each = [self._first_unplayed(key) for key in keys]
        return min((index for index in each if index is not None), default=None)

    def last(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the last answer that matches, played or not."""
        if self._matching.custom:
            return max(self._matching_all(keys, asked), default=None)
        return max((self._queues[key][-1] for key in keys if key in self._queues), default=None)

    def unplayed(self) -> list[RecordedRequest]:
        """Return the requests whose answers were not played."""
        return [self._request(i) for i, done in enumerate(self._played) if not done]

    def refusal(
        self, asked: RecordedRequest, prefix: str, *, left: bool, how: str
    ) -> NotRecordedError:
        """Return the error that says why a request has no answer, and what would give it one.

        ``left`` says that it has answers but all were played; ``how`` is the call that records.
        """
        what = f"{asked.method} {path_below(asked.uri, prefix)}"
        if left:
            return NotRecordedError(
                f"{what} is in cassette {self._name!r}, but all its answers were played. {how}",
                reason="nothing_left",
            )
        count = len(self._interactions)
        held = plural(count, "interaction")
        return NotRecordedError(
            f"{what} is not in cassette {self._name!r} ({held}"
            f"{', all for other requests' if count else ''}). {self._nearest(asked, prefix)}{how}",
            reason="no_match",
        )

    def _shown(self, keys: Iterable[tuple[Key, ...]]) -> Iterable[tuple[Key, ...]]:
        """Show how far a long load is, from a second on; a short one pays nothing for it."""
        count = len(self._interactions)
        if count < _LONG_LOAD:
            return keys
        from tqdm.auto import tqdm

        loading = f"Cassette {self._name!r}"
        bar: Iterable[tuple[Key, ...]] = tqdm(
            keys, loading, total=count, unit="interaction", delay=1, leave=False
        )
        return bar

    def _all_keys(self) -> Iterator[tuple[Key, ...]]:
        """Yield the keys of each recorded request; equal lines are parsed once."""
        interactions, keys_of, prefix = self._interactions, self._matching.keys, self._prefix
        if not isinstance(interactions, LazyInteractions):
            for index in range(len(interactions)):
                yield keys_of(self._request(index), prefix)
            return
        known: dict[bytes, tuple[Key, ...]] = {}
        for index, line in enumerate(interactions.request_lines()):
            keys = known.get(line)
            if keys is None:
                if len(known) > 10_000:
                    known.clear()
                keys = known[line] = keys_of(self._comparable(line, index), prefix)
            yield keys

    def _comparable(self, line: bytes, index: int) -> RecordedRequest:
        """Return what is compared of a recorded request: of most, no more than the address."""
        address = address_of(line)
        if address is not None and self._matching.by_address_alone(address[0]):
            return RecordedRequest(*address)
        return self._request(index)

    def _first_unplayed(self, key: Key) -> int | None:
        queue = self._queues.get(key)
        if queue is None:
            return None
        position, played = self._next.get(key, 0), self._played
        while position < len(queue) and played[queue[position]]:
            position += 1
        self._next[key] = position
        return queue[position] if position < len(queue) else None

    def _matching_all(self, keys: Sequence[Key], asked: RecordedRequest) -> Iterator[int]:
        from .vcr_files import matches

        for index in sorted({i for key in keys for i in self._queues.get(key, ())}):
            recorded = self._request(index)
            if all(matches(each, asked, recorded) for each in self._matching.custom):
                yield index

    def _nearest(self, asked: RecordedRequest, prefix: str) -> str:
        """Say which recorded request is closest, and in what it differs, without its values."""
        firsts = islice((queue[0] for queue in self._queues.values()), _MOST_COMPARED)
        candidates = [self._request(index) for index in firsts]
        if not candidates:
            return ""
        path = path_below(asked.uri, prefix)
        near = max(candidates, key=lambda each: self._likeness(asked, path, each))
        names = self._matching.differing(asked, prefix, near, self._prefix)
        differs = f", which differs in {' and '.join(names)}" if names else ""
        return f"Nearest: {near.method} {path_below(near.uri, self._prefix)}{differs}. "

    def _likeness(
        self, asked: RecordedRequest, path: str, recorded: RecordedRequest
    ) -> tuple[float, bool]:
        from difflib import SequenceMatcher

        other = path_below(recorded.uri, self._prefix)
        return SequenceMatcher(None, path, other).ratio(), asked.method == recorded.method

    def _request(self, index: int) -> RecordedRequest:
        if isinstance(self._interactions, LazyInteractions):
            return self._interactions.request(index)
        request = self._interactions[index].request
        return request if self._redact is None else self._redact(request)
