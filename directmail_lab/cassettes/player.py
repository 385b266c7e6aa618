"""Plays recorded answers: which recorded request answers an asked one, and in which order.

vcrpy's matchers become keys of an index, so that an answer takes as long to find in a large
cassette as in a small one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from ..contract import SAFE_METHODS
from ..display import plural
from ..errors import NotRecordedError
from ..interaction import Interaction, RecordedRequest, header, path_below
from .reader import LoadedLines

Matcher = Callable[[Any, Any], object]
Key = tuple[Hashable, ...]

_BOUNDARY: Final = re.compile(r'boundary="?([^";]+)', re.IGNORECASE)
_MOST_COMPARED: Final = 500
_LONG_LOAD: Final = 20_000
_LONGEST_PATH: Final = 200

DEFAULT_MATCH_ON: Final = ("method", "path", "query", "body")
"""What must be equal: the path below the base address, and the body of writes."""


class Matching:
    """What must be equal of two requests.

    Parameters
    ----------
    match_on
        Names of vcrpy's matchers, and functions of two requests (vcrpy's ``Request``: the one that
        is asked for, the recorded one) that return a verdict or assert one.
    """

    def __init__(self, match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON) -> None:
        self.names = tuple(each for each in match_on if isinstance(each, str))
        self.custom = tuple(each for each in match_on if not isinstance(each, str))
        for name in self.names:
            if name not in _PARTS:
                raise ValueError(
                    f"{name!r} is not a matcher. Use {', '.join(sorted(_PARTS))}, "
                    "or a function of two requests."
                )
        self._parts = [_PARTS[name] for name in self.names if name != "body"]
        self._is_by_address = not self.custom and {"headers", "raw_body"}.isdisjoint(self.names)

    def by_address_alone(self, method: str) -> bool:
        """Return whether the keys of a request by this method depend on its address alone."""
        return self._is_by_address and method in SAFE_METHODS

    def keys(self, request: RecordedRequest, prefix: str) -> tuple[Key, ...]:
        """Return the keys of a request, strictest first: two match when they have any in common.

        ``prefix`` is the path of the base address that the request was sent to.
        """
        base = tuple([part(request, prefix) for part in self._parts])
        if "body" not in self.names or request.method in SAFE_METHODS:
            return (base,)
        return tuple((*base, form) for form in _body_forms(request))

    def differing(
        self, asked: RecordedRequest, prefix: str, recorded: RecordedRequest, recorded_prefix: str
    ) -> list[str]:
        """Return the names of what differs."""
        return [
            name
            for name in self.names
            for rule in [Matching([name])]
            if not {*rule.keys(asked, prefix)} & {*rule.keys(recorded, recorded_prefix)}
        ]


def _body_forms(request: RecordedRequest) -> list[Hashable]:
    """Return the body as bytes and as parsed: two bodies match if either form is equal."""
    body = request.body or b""
    forms: list[Hashable] = [("bytes", _digest(body))]
    content_type = header(request.headers, "content-type") or ""
    if content_type.lower().startswith("multipart/") and (found := _BOUNDARY.search(content_type)):
        # Each request has a random boundary of its own, so only the parts between are compared.
        forms.append(("parts", _digest(body.replace(found[1].encode(), b"boundary"))))
    # vcrpy chooses by these headers how it compares a body; without them, by its bytes.
    elif any(name.lower() in ("content-type", "transfer-encoding") for name, _ in request.headers):
        from .vcr_files import parsed_body

        # A body that does not parse, or is nested too deep, is compared by its bytes alone.
        with suppress(Exception):
            parsed = _hashable(parsed_body(request))
            hash(parsed)
            forms.append(parsed)
    return forms


def _hashable(value: Any) -> Any:
    """Return a parsed body such that equal ones are equal: 1, 1.0 and True are, as in vcrpy."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return _digest(value) if isinstance(value, bytes) else value


def _digest(data: bytes) -> bytes:
    return data if len(data) <= 32 else blake2b(data, digest_size=32).digest()


def _port(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = urlsplit(request.uri)
    return parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _uri(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = urlsplit(request.uri)
    start = f"{parts.scheme}://{parts.netloc}"
    if parts.path or not request.uri.startswith(start):
        return request.uri
    return f"{start}/{request.uri[len(start) :]}"


def _query(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = request.uri.partition("#")[0].partition("?")
    return tuple(sorted(parse_qsl(parts[2]))) if parts[2] else ()


def _header_set(request: RecordedRequest, _prefix: str) -> Hashable:
    # Of a header that came twice the first counts, as in vcrpy.
    return frozenset({name.lower(): value for name, value in reversed(request.headers)}.items())


_PARTS: Final[dict[str, Callable[[RecordedRequest, str], Hashable]]] = {
    "method": lambda request, _prefix: request.method,
    "uri": _uri,
    "url": _uri,
    "scheme": lambda request, _prefix: urlsplit(request.uri).scheme,
    "host": lambda request, _prefix: urlsplit(request.uri).hostname,
    "port": _port,
    "path": lambda request, prefix: path_below(request.uri, prefix),
    "query": _query,
    "headers": _header_set,
    "body": lambda *_: (),  # compared by its forms, any of which may be equal
    "raw_body": lambda request, _prefix: _digest(request.body or b""),
}


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
        # For each key the indexes of its interactions, in reverse: the next to be played is last.
        self._queues: dict[Key, list[int]] = {}
        numbers: Iterable[int] = range(len(interactions) - 1, -1, -1)
        if len(interactions) >= _LONG_LOAD:
            from tqdm.auto import tqdm

            numbers = tqdm(numbers, f"Cassette {name!r}", unit="interaction", delay=1, leave=False)
        for index in numbers:
            for key in matching.keys(self._request(index), prefix):
                self._queues.setdefault(key, []).append(index)

    def take(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the first answer that was not played yet, and mark it played."""
        found = self.next(keys, asked)
        if found is not None:
            self._played[found] = 1
        return found

    def next(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the first answer that was not played yet, and leave it so.

        One whose body has the same bytes comes before one whose body only parses the same.
        """
        played = self._played
        for queue in [self._queues[key] for key in keys if key in self._queues]:
            # What a function decides depends on the request: it needs the played ones for `last`.
            while not self._matching.custom and len(queue) > 1 and played[queue[-1]]:
                queue.pop()
            for index in reversed(queue):
                if not played[index] and self._passes(index, asked):
                    return index
        return None

    def last(self, keys: Sequence[Key], asked: RecordedRequest) -> int | None:
        """Return the index of the last answer that matches, played or not; same bytes first."""
        found = (index for key in keys for index in self._queues.get(key, ()))
        return next((index for index in found if self._passes(index, asked)), None)

    def unplayed(self) -> list[RecordedRequest]:
        """Return the requests whose answers were not played."""
        return [self._request(i) for i, done in enumerate(self._played) if not done]

    def refusal(self, asked: RecordedRequest, prefix: str, *, left: bool) -> NotRecordedError:
        """Return the error that says why a request has no answer, and what to do.

        ``left`` says that it has answers but all were played.
        """
        what = f"{asked.method} {_short(path_below(asked.uri, prefix))}"
        how = f'ecord it with record({self._name!r}, record_mode="new_episodes").'
        if left:
            return NotRecordedError(
                f"{what} is in cassette {self._name!r}, but all its answers were played. "
                f'Replay with repeat="last" to have the last one again, or r{how}',
                reason="nothing_left",
            )
        count = len(self._interactions)
        others = ", all for other requests" if count else ""
        return NotRecordedError(
            f"{what} is not in cassette {self._name!r} ({plural(count, 'interaction')}{others}). "
            f"{self._nearest(asked, prefix)}R{how}",
            reason="no_match",
        )

    def _passes(self, index: int, asked: RecordedRequest) -> bool:
        """Return whether the functions that were given as matchers, if any, let it match."""
        if not self._matching.custom:
            return True
        from .vcr_files import matches

        recorded = self._request(index)
        return all(matches(each, asked, recorded) for each in self._matching.custom)

    def _nearest(self, asked: RecordedRequest, prefix: str) -> str:
        """Say which recorded request is closest, and in what it differs, without its values."""
        firsts = islice((queue[-1] for queue in reversed(self._queues.values())), _MOST_COMPARED)
        path = path_below(asked.uri, prefix)

        def likeness(each: RecordedRequest) -> tuple[float, bool]:
            other = path_below(each.uri, self._prefix)
            return SequenceMatcher(None, path, other).ratio(), asked.method == each.method

        near = max(map(self._request, firsts), key=likeness, default=None)
        if near is None:
            return ""
        names = self._matching.differing(asked, prefix, near, self._prefix)
        differs = f", which differs in {' and '.join(names)}" if names else ""
        return f"Nearest: {near.method} {_short(path_below(near.uri, self._prefix))}{differs}. "

    def _request(self, index: int) -> RecordedRequest:
        if isinstance(self._interactions, LoadedLines):
            return self._interactions.request(index, self._matching.by_address_alone)
        request = self._interactions[index].request
        return request if self._redact is None else self._redact(request)


def _short(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
