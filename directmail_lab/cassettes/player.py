"""Plays recorded answers: which recorded request answers an asked one, and in which order.

vcrpy's matchers become keys of an index, so that an answer takes as long to find in a large
cassette as in a small one.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from email.message import Message
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
        names = [each for each in match_on if isinstance(each, str)]
        unknown = [name for name in names if name not in _PARTS and name != "body"]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a matcher. Use {', '.join(sorted({*_PARTS, 'body'}))}, "
                "or a function of two requests."
            )
        self.names = tuple(names)
        self.custom = tuple(each for each in match_on if not isinstance(each, str))
        self._parts = [_PARTS[name] for name in names if name != "body"]
        self._body = "body" in names

    def by_address_alone(self, method: str) -> bool:
        """Return whether the keys of a request by this method depend on its address alone."""
        return method in SAFE_METHODS and not {"headers", "raw_body"} & set(self.names)

    def keys(self, request: RecordedRequest, prefix: str) -> tuple[Key, ...]:
        """Return the keys of a request: two match when they have any key in common.

        ``prefix`` is the path of the base address that the request was sent to.
        """
        base = tuple(part(request, prefix) for part in self._parts)
        if not self._body or request.method in SAFE_METHODS:
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


# vcrpy chooses by these headers how it compares a body; without them, by its bytes.
_TELLS_FORM: Final = frozenset({"content-type", "transfer-encoding"})


def _body_forms(request: RecordedRequest) -> list[Hashable]:
    """Return the body as bytes and as parsed: vcrpy compares either, and one equal is enough."""
    body = request.body or b""
    forms: list[Hashable] = [("bytes", _digest(body))]
    if boundary := _boundary(request):
        # Each request draws a boundary of its own: the parts between are what is sent.
        forms.append(("parts", _digest(body.replace(boundary, b"boundary"))))
    elif any(name.lower() in _TELLS_FORM for name, _ in request.headers):
        from .vcr_files import parsed_body

        parsed = parsed_body(request)
        with suppress(RecursionError):  # what is nested a thousand deep is compared as bytes
            if parsed is not None:
                forms.append((parsed[0], _canonical(parsed[1])))
    return forms


def _boundary(request: RecordedRequest) -> bytes:
    """Return what stands between the parts of a multipart body; nothing for any other body."""
    content_type = header(request.headers, "content-type") or ""
    if not content_type.lower().startswith("multipart/"):
        return b""
    message = Message()
    message["Content-Type"] = " ".join(content_type.split())
    return (message.get_boundary() or "").encode()


def _digest(data: bytes) -> bytes:
    return data if len(data) <= 32 else blake2b(data, digest_size=32).digest()


def _canonical(value: object) -> bytes:
    return _digest(json.dumps(_plain(value), sort_keys=True, default=repr).encode())


def _plain(value: Any) -> Any:
    """Return a value in which what Python finds equal (1, 1.0 and True) is written alike."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    if "?" not in request.uri:
        return ()
    return tuple(sorted(parse_qsl(urlsplit(request.uri).query)))


def _header_set(request: RecordedRequest, _prefix: str) -> Hashable:
    first: dict[str, str] = {}
    for name, value in request.headers:
        first.setdefault(name.lower(), value)
    return frozenset(first.items())


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
        self._queues: dict[Key, array[int]] = {}
        self._next: dict[Key, int] = {}
        for index in self._numbers():
            for key in matching.keys(self._comparable(index), prefix):
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
        what = f"{asked.method} {_short(path_below(asked.uri, prefix))}"
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

    def _numbers(self) -> Iterable[int]:
        """Return the number of each interaction; a long load shows how far it is."""
        numbers: Iterable[int] = range(len(self._interactions))
        if len(self._interactions) < _LONG_LOAD:
            return numbers
        from tqdm.auto import tqdm

        bar: Iterable[int] = tqdm(
            numbers, f"Cassette {self._name!r}", unit="interaction", delay=1, leave=False
        )
        return bar

    def _comparable(self, index: int) -> RecordedRequest:
        """Return what is compared of a recorded request: of most, no more than the address."""
        if isinstance(self._interactions, LoadedLines):
            plain = self._interactions.address(index)
            if plain is not None and self._matching.by_address_alone(plain.method):
                return plain
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
        return f"Nearest: {near.method} {_short(path_below(near.uri, self._prefix))}{differs}. "

    def _likeness(
        self, asked: RecordedRequest, path: str, recorded: RecordedRequest
    ) -> tuple[float, bool]:
        from difflib import SequenceMatcher

        other = path_below(recorded.uri, self._prefix)
        return SequenceMatcher(None, path, other).ratio(), asked.method == recorded.method

    def _request(self, index: int) -> RecordedRequest:
        if isinstance(self._interactions, LoadedLines):
            return self._interactions.request(index)
        request = self._interactions[index].request
        return request if self._redact is None else self._redact(request)


def _short(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
