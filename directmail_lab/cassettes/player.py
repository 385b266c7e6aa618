"""Replays recorded responses: which of them belongs to a request, and in which order they come.

vcrpy's matchers become keys of an index, so a response is found as fast in a large cassette as in
a small one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from ..contract import SAFE_METHODS
from ..display import plural
from ..errors import NotRecordedError, argument_error
from ..interaction import Interaction, RecordedRequest, header, path_below
from ..redaction import Redactor
from .reader import LoadedLines

Matcher = Callable[[Any, Any], object]
Key = tuple[Hashable, ...]

_BOUNDARY: Final = re.compile(r'boundary="?([^";]+)', re.IGNORECASE)
_MAX_COMPARED: Final = 500
_MAX_CACHED: Final = 4096

DEFAULT_MATCH_ON: Final = ("method", "path", "query", "body")
"""What must be equal: the path below the base address, and the body of writes."""


def check_match_on(match_on: Sequence[str | Matcher]) -> None:
    """Raise ValueError for a name that no matcher has."""
    for name in match_on:
        if isinstance(name, str) and name not in _PARTS:
            raise argument_error(
                f"{name!r} is not a matcher. Use {', '.join(sorted(_PARTS))}, "
                "or a function of two requests."
            )


def request_keys(request: RecordedRequest, prefix: str, names: Sequence[str]) -> tuple[Key, ...]:
    """Return the keys of a request, strictest first: two match when they have any in common.

    ``prefix`` is the path of the base address that the request was sent to, and ``names`` are those
    of vcrpy's matchers.
    """
    key = tuple([_PARTS[name](request, prefix) for name in names if name != "body"])
    if "body" not in names or request.method in SAFE_METHODS:
        return (key,)
    return tuple((*key, form) for form in _body_forms(request))


def _body_forms(request: RecordedRequest) -> list[Hashable]:
    """Return the body as bytes and as parsed: two bodies match if either form is equal."""
    body = request.body or b""
    forms: list[Hashable] = [("bytes", _digest(body))]
    content_type = header(request.headers, "content-type") or ""
    kind = content_type.lower()
    encoding = (header(request.headers, "transfer-encoding") or "").lower()
    # A body that does not parse, or is nested too deeply, is compared by its bytes alone.
    with suppress(ValueError, RecursionError):
        if "chunked" in encoding:
            from .vcr_files import dechunk

            body = dechunk(body) or b""
            forms.append(("chunked", _digest(body)))
        if kind.startswith("multipart/") and (match := _BOUNDARY.search(content_type)):
            # Each request has a random boundary of its own: only the parts are compared.
            forms.append(("parts", _digest(body.replace(match[1].encode(), b"boundary"))))
        elif "application/x-www-form-urlencoded" in kind:
            # With blank values: JSON that curl sends as a form is one name without a value.
            fields = parse_qs(body.decode("ascii"), keep_blank_values=True)
            forms.append(("form", _hashable(fields)))
        elif "application/json" in kind:
            forms.append(("json", _hashable(json.loads(body) if body else None)))
    return forms


def _hashable(value: Any) -> Hashable:
    """Return a parsed body such that equal ones are equal: 1, 1.0 and True are, as in vcrpy."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(member)) for name, member in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=32).digest()


def _port(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = urlsplit(request.uri)
    return parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _uri(request: RecordedRequest, _prefix: str) -> Hashable:
    """Return the address, with an empty path as ``/``."""
    parts = urlsplit(request.uri)
    origin = f"{parts.scheme}://{parts.netloc}"
    if parts.path or not request.uri.startswith(origin):
        return request.uri
    return f"{origin}/{request.uri[len(origin) :]}"


def _query(request: RecordedRequest, _prefix: str) -> Hashable:
    query = request.uri.partition("#")[0].partition("?")[2]
    if "%" in query or "+" in query:
        return tuple(sorted(parse_qsl(query)))
    # The same, in a third of the time: every address of a cassette is split when it is loaded.
    pairs = [pair.partition("=") for pair in query.split("&")] if query else ()
    return tuple(sorted([(name, value) for name, _, value in pairs if value]))


def _header_set(request: RecordedRequest, _prefix: str) -> Hashable:
    # Of a repeated header the first counts, as in vcrpy.
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
    "body": lambda request, _prefix: tuple(_body_forms(request)),
    "raw_body": lambda request, _prefix: _digest(request.body or b""),
}


def _shown_path(request: RecordedRequest, prefix: str) -> str:
    """Return the start of a path; the time to compare two grows with the square of their length."""
    return path_below(request.uri, prefix)[:200]


class Player:
    """Finds the recorded responses to a request, each played in the order of its recording.

    Parameters
    ----------
    interactions
        What was recorded.
    match_on
        What must be equal: names of vcrpy's matchers, and functions of two requests (vcrpy's
        ``Request``: the one that is sent, the recorded one) that return a verdict or assert one.
    prefix
        The path of the base address that the recording was made under.
    redactor
        Applied to requests before they are compared.
    foreign
        Whether the recorded requests are not redacted yet.

    Attributes
    ----------
    played
        Of each interaction, whether it was played.
    """

    def __init__(
        self,
        interactions: Sequence[Interaction],
        match_on: Sequence[str | Matcher],
        *,
        prefix: str,
        redactor: Redactor,
        foreign: bool = False,
    ) -> None:
        self._interactions = interactions
        self._names = names = [name for name in match_on if isinstance(name, str)]
        self._functions = [matcher for matcher in match_on if not isinstance(matcher, str)]
        contents = {"headers", "raw_body"}.intersection(names)
        self._needs_no_content = not contents and not self._functions
        self._prefix = prefix
        self._redactor = redactor
        self._foreign = foreign
        self.played = bytearray(len(interactions))
        # For each key the indexes of its interactions, in reverse: the next to be played is last.
        self._queues: dict[Key, list[int]] = {}
        for index in reversed(range(len(interactions))):
            for key in request_keys(self._request(index), prefix, names):
                self._queues.setdefault(key, []).append(index)

        @lru_cache(_MAX_CACHED)
        def address_keys(method: str, uri: str, prefix: str) -> tuple[Key, ...]:
            return request_keys(redactor.request(RecordedRequest(method, uri)), prefix, names)

        self._address_keys = address_keys

    def find(self, request: RecordedRequest, prefix: str) -> int | None:
        """Return the index of the first matching interaction not played yet, else of the last one.

        One whose body has the same bytes comes before one whose body only parses the same.
        ``prefix`` is the path of the base address that the request is sent to.
        """
        if self._is_by_address(request.method):
            keys = self._address_keys(request.method, request.uri, prefix)
        else:
            request = self._redactor.request(request)
            keys = request_keys(request, prefix, self._names)
        last: int | None = None
        for queue in [self._queues[key] for key in keys if key in self._queues]:
            # A function's verdict depends on the request: a played one may be the last of another.
            while not self._functions and len(queue) > 1 and self.played[queue[-1]]:
                queue.pop()
            repeated = None
            for index in reversed(queue):
                if self._passes(index, request):
                    if not self.played[index]:
                        return index
                    repeated = index
            last = repeated if last is None else last
        return last

    def unplayed(self) -> list[RecordedRequest]:
        """Return the requests whose responses were not played."""
        return [self._request(i) for i, is_played in enumerate(self.played) if not is_played]

    def refusal(
        self, request: RecordedRequest, prefix: str, name: str, *, is_played: bool
    ) -> NotRecordedError:
        """Return the error that says why a request has no response, and what to do.

        ``name`` is the cassette's; ``is_played`` says that all the responses to it were played.
        """
        title = f"{request.method} {_shown_path(request, prefix)}"
        advice = f'ecord it with record({name!r}, record_mode="new_episodes").'
        if is_played:
            return NotRecordedError(
                f"{title} is in cassette {name!r}, but all its answers were played. "
                f'Replay with repeat="last" to have the last one again, or r{advice}',
                reason="nothing_left",
            )
        count = len(self._interactions)
        others = ", all for other requests" if count else ""
        nearest, similarity = self._nearest(request, prefix)
        return NotRecordedError(
            f"{title} is not in cassette {name!r} ({plural(count, 'interaction')}{others}). "
            f"{nearest}R{advice}",
            reason="no_match",
            similarity=similarity,
        )

    def _passes(self, index: int, request: RecordedRequest) -> bool:
        """Return whether the functions that were given as matchers, if any, let it match."""
        if not self._functions:
            return True
        from .vcr_files import matches

        recorded = self._request(index)
        return matches(self._functions, request, recorded)

    def _nearest(self, request: RecordedRequest, prefix: str) -> tuple[str, float]:
        """Name the most similar recorded request and in what it differs, without its values.

        The number says how similar their paths are, from 0 to 1.
        """
        path = _shown_path(request, prefix)

        def similarity(other: RecordedRequest) -> tuple[float, bool]:
            other_path = _shown_path(other, self._prefix)
            return SequenceMatcher(None, path, other_path).ratio(), request.method == other.method

        queues = islice(reversed(self._queues.values()), _MAX_COMPARED)
        nearest = max((self._request(q[-1]) for q in queues), key=similarity, default=None)
        if nearest is None:
            return "", 0.0
        differing = [
            name
            for name in self._names
            if set(request_keys(request, prefix, [name])).isdisjoint(
                request_keys(nearest, self._prefix, [name])
            )
        ]
        differs = f", which differs in {' and '.join(differing)}" if differing else ""
        shown = f"{nearest.method} {_shown_path(nearest, self._prefix)}"
        return f"Nearest: {shown}{differs}. ", similarity(nearest)[0]

    def _is_by_address(self, method: str) -> bool:
        """Return whether a request by this method is found by its address alone."""
        return self._needs_no_content and method in SAFE_METHODS

    def _request(self, index: int) -> RecordedRequest:
        if isinstance(self._interactions, LoadedLines):
            return self._interactions.request(index, self._is_by_address)
        request = self._interactions[index].request
        return self._redactor.request(request) if self._foreign else request
