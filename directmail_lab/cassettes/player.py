"""Find the recorded response to a request, in the order of the recording.

An index on method, address and query finds the few candidates. vcrpy's own matchers decide between
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cached_property
from heapq import nlargest
from itertools import chain, islice
from typing import Final
from urllib.parse import parse_qsl, unquote_plus

from ..contract import SAFE_METHODS
from ..display import plural
from ..errors import CassetteFormatError, NotRecordedError
from ..exchange.values import Request, header
from ..redaction import Redactor
from .files import FileRecording
from .layout import Address
from .matching import INDEXED, Matcher, Matching, plain_body
from .mismatch import Differences, differences, place_of, unescaped

_MAX_COMPARED: Final = 500
_LONGEST_QUERY: Final = 200
_USER_INFO: Final = re.compile(r"(?<=://)[^/]*@")
_RESPELLED: Final = re.compile(r"%|\?[^?]*[&+]")


class Player:
    """Finds the recorded responses to a request, in the order of the recording.

    A response to the same address comes first, then one to the same path below each side's base
    address. No other response is played.

    Parameters
    ----------
    recording
        The recording to play.
    matching
        Which parts must be equal. A function among the matchers takes two requests of vcrpy, the
        sent one and the recorded one, and returns a verdict or raises AssertionError.
    base_url
        The base address to which requests are sent.
    redactor
        Applied to requests before they are compared.
    plays_fallbacks
        Whether a failure is played although there is another response: see `Interaction`.

    Attributes
    ----------
    played
        For each interaction, 1 if it was played, else 0.
    """

    def __init__(
        self,
        recording: FileRecording,
        matching: Matching,
        *,
        base_url: str,
        redactor: Redactor,
        plays_fallbacks: bool = False,
    ) -> None:
        self._recording = recording
        self._matching = matching
        self._names = [name for name in matching.match_on if isinstance(name, str)]
        self._rest = matching.unindexed
        self._rest_of_reads = [each for each in self._rest if each != "body"]
        self._knows_addresses = set(INDEXED) <= set(self._names)
        self._base_url = base_url
        self._redactor = redactor
        self.played = bytearray(len(recording))
        # For each method and address, the responses to it in reverse order. Each is the range of
        # the indexes of its attempts. An only response is just its index: a third of the memory.
        self._responses: dict[str, dict[str, list[range] | int]] = {}
        self._unescaped: set[str] = set()
        self._index()
        if recording.fallbacks and not plays_fallbacks and (dropped := self._dropped()):
            self._responses.clear()
            vars(self).pop("_alike", None)
            self._index(dropped)

    def _index(self, dropped: Collection[int] = ()) -> None:
        before, start = None, 0
        for index, ((method, recorded), attempt) in enumerate(self._recording.addresses()):
            if index in dropped:
                self.played[index], before = 1, None
                continue
            uri = self._matching.address(recorded)
            # vcrpy writes a method of aiohttp as its caller did: "post".
            same = self._responses.setdefault(method := method.upper(), {})
            if uri not in same:
                same[uri] = index
                if "%" in uri or "+" in uri:
                    self._unescaped.add(unquote_plus(uri))
            else:
                responses = same[uri] = self._at(method, uri)
                if attempt > 1 and before == (method, uri):
                    responses[-1] = range(start, index + 1)
                    continue
                responses.append(range(index, index + 1))
            before, start = (method, uri), index
        for each in chain.from_iterable(same.values() for same in self._responses.values()):
            if isinstance(each, list):
                each.reverse()

    def _dropped(self) -> set[int]:
        """Return the indexes of failures for whose request there is another response."""
        fallbacks, dropped = self._recording.fallbacks, set[int]()
        has_others: dict[Request, bool] = {}
        responses = chain.from_iterable(self._at(*address) for address in self._addresses())
        for attempts in responses:
            if attempts[-1] not in fallbacks:
                continue
            with suppress(CassetteFormatError):  # a damaged one is an error when it is asked for
                request = self._request(attempts.start)
                if request not in has_others:
                    others = [each[-1] not in fallbacks for each in self.find_all(request)]
                    has_others[request] = any(others)
                dropped.update(attempts if has_others[request] else ())
        return dropped

    def _at(self, method: str, uri: str) -> list[range]:
        """Return the responses to an address."""
        responses = self._responses.get(method, {}).get(uri, [])
        return responses if isinstance(responses, list) else [range(responses, responses + 1)]

    def _addresses(self) -> Iterator[Address]:
        """Yield each method and address once."""
        return ((method, uri) for method, same in self._responses.items() for uri in same)

    @cached_property
    def _alike(self) -> dict[Hashable, list[range]]:
        """The responses by all keys of a request, made on demand: few replays need it."""
        alike: dict[Hashable, list[range]] = {}
        for method, uri in self._addresses():
            responses = self._at(method, uri)
            keys = list(self._keys(Request(method, uri), *self._recording.base_urls))
            looks_inside = any(each in ("body", "headers") for each in self._rest_of(method))
            for attempts in responses:
                request = self._recorded(attempts) if looks_inside else None
                for key in keys if request is None else self._with_headers(keys, request):
                    alike.setdefault(key, []).append(attempts)
                    if request is not None:
                        alike.setdefault((key, plain_body(request)), []).append(attempts)
        for responses in alike.values():
            responses.sort(key=lambda each: each.start, reverse=True)
        return alike

    def find(self, request: Request, *, repeats: bool = False) -> tuple[range | None, Request]:
        """Return the indexes of the next response to a request, and the redacted request.

        There is an index for each attempt. The response is the first one that was not played yet,
        or else the last one. If its request has the same bytes, it comes before one whose request
        is only equal by the matchers. With ``repeats``, the last response to the same address comes
        before other ones that were not played.
        """
        if not self._responses:
            return None, request
        request, same = self._at_address(request)
        if attempts := self._next(same) or (same[0] if same and repeats else None):
            return attempts, request
        return self._find_alike(self._matching.compared(request)), request

    def find_all(self, request: Request) -> list[range]:
        """Return the indexes of all responses to a request, in the order of the recording."""
        request, same = self._at_address(request)
        if same:
            return same[::-1]
        looks_inside, request = self.looks_inside(request.method), self._matching.compared(request)
        for key in self._keys(request, self._base_url):
            responses = self._alike.get(key, [])
            if looks_inside and self._rest == ["body"]:
                responses = self._alike.get((key, plain_body(request)), []) or responses
            found = [each for each in responses if not looks_inside or self._matches(request, each)]
            if found:
                return found[::-1]
        return []

    def _at_address(self, request: Request) -> tuple[Request, list[range]]:
        """Return the redacted request, and the responses if its address alone decides them."""
        if not request.method.isupper():
            request = replace(request, method=request.method.upper())
        looks_inside, uri = self.looks_inside(request.method), self._matching.address(request.uri)
        # Recorded requests are redacted.
        if looks_inside or not self._at(request.method, uri):
            request = self._redactor.request(request)
            uri = self._matching.address(request.uri)
        is_by_address = self._knows_addresses and not looks_inside
        # If addresses differ only in order or escapes, the order of the recording decides.
        if is_by_address and not _RESPELLED.search(uri) and uri not in self._unescaped:
            return request, self._at(request.method, uri)
        return request, []

    def _find_alike(self, request: Request) -> range | None:
        looks_inside = self.looks_inside(request.method)
        keys = self._keys(request, self._base_url)
        for key in self._with_headers(keys, request) if looks_inside else keys:
            if responses := self._alike.get(key):
                if not looks_inside:
                    return self._next(responses) or responses[0]
                same = self._alike.get((key, plain_body(request)), [])
                if self._rest == ["body"] and (attempts := self._next(same)):
                    return attempts
                in_order = chain(reversed(same), reversed(responses))
                unplayed = (each for each in in_order if not self.played[each.start])
                for attempts in chain(unplayed, same, responses):
                    if self._matches(request, attempts):
                        return attempts
        return None

    def _next(self, responses: list[range]) -> range | None:
        """Return the first one that was not played, or None, and drop those before it."""
        while len(responses) > 1 and self.played[responses[-1].start]:
            responses.pop()
        return responses[-1] if responses and not self.played[responses[-1].start] else None

    def mark(self, attempts: range) -> None:
        """Mark a response and its attempts as played."""
        for index in attempts:
            self.played[index] = 1

    def unplayed(self) -> list[Request]:
        """Return the requests whose responses were not played."""
        return [self._request(i) for i, is_played in enumerate(self.played) if not is_played]

    def refusal(self, request: Request, *, is_played: bool) -> NotRecordedError:
        """Return the error that says why a request has no response, and what to do.

        ``is_played`` says that all responses to it were played.
        """
        name, request = self._recording.name, self._redactor.request(request)
        title, count = self._title(request, self._base_url), len(self._recording)
        record = f"ecord it with record({name!r})."
        nearest, similarity = ([], 1.0) if is_played else self._nearest(request)
        if is_played:
            what = f"is in cassette {name!r}, but all responses to it were played."
            record = f'Replay with repeat="last" to play the last one again, or r{record}'
        else:
            others = ", all for other requests" if count else ""
            what = f"is not in cassette {name!r} ({plural(count, 'interaction')}{others})."
            record = f"R{record}"
        lines = [f"{other}, which differs in {', '.join(names)}" for other, names in nearest]
        details = ["Nearest: " + ";\n         ".join(lines) + "."] if lines else []
        details += [f"Left unplayed: {left}."] if (left := self._left_unplayed()) else []
        query = self._redactor.text(_names_in(place_of(request, self._base_url)[2]))
        return NotRecordedError(
            f"{title}{query} {what}",
            record,
            details="\n".join(details),
            reason="nothing_left" if is_played else "no_match",
            similarity=similarity,
            request=title,
            nearest=nearest,
        )

    def missing_body(self, request: Request, what: str) -> NotRecordedError:
        """Return the error for a recorded response without its body."""
        title = self._title(self._redactor.request(request), self._base_url)
        return NotRecordedError(
            f"{title} is in cassette {self._recording.name!r} without its body {what}.",
            "Send it in a live session: live(). Or record a smaller body, or one in UTF-8, with "
            "before_record=….",
            reason="no_body",
            request=title,
        )

    # -- what is equal ---------------------------------------------------------------------------

    def _keys(self, request: Request, *base_urls: str) -> Iterable[Hashable]:
        """Yield the keys of a request in the index: its address, and its path below a base."""
        names, (address, _, query) = self._names, request.uri.partition("?")
        address = unescaped(_USER_INFO.sub("", address.partition("#")[0]))
        method = request.method if "method" in names else ""
        parameters = _parameters(query) if "query" in names else ()
        if "path" not in names:
            yield method, parameters
            return
        yield method, address if address.count("/") > 2 else f"{address}/", parameters
        for base_url in () if self._matching.has_whole_address else map(unescaped, base_urls):
            if base_url and f"{address}/".startswith(f"{base_url}/"):
                yield method, address[len(base_url) :] or "/", parameters

    def _with_headers(self, keys: Iterable[Hashable], request: Request) -> Iterable[Hashable]:
        """Return keys with the headers that vcrpy compares, or unchanged if it compares none."""
        if "headers" not in self._names:
            return keys
        first = {name.lower(): value for name, value in reversed(request.headers)}
        return [(key, frozenset(first.items())) for key in keys]

    def looks_inside(self, method: str) -> bool:
        """Return whether more than the method and the address decides."""
        return bool(self._rest_of(method))

    def _rest_of(self, method: str) -> list[str | Matcher]:
        """Return the matchers that the index does not cover; bodies count only for writes."""
        return self._rest_of_reads if method in SAFE_METHODS else self._rest

    def _matches(self, request: Request, attempts: range) -> bool:
        from .vcr_files import matches

        recorded = self._recorded(attempts)
        rest = self._rest_of(request.method)
        if "body" in rest:
            request, recorded = (
                replace(each, body=plain_body(each)) for each in (request, recorded)
            )
            if _is_form_without_fields(request) and request.body != recorded.body:
                return False
        return matches(rest, request, recorded)

    def _recorded(self, attempts: range) -> Request:
        """Return the recorded request of a response, as it is compared."""
        # Redact another program's request again: this session may know a key in it.
        return self._matching.compared(self._redactor.request(self._request(attempts.start)))

    def _request(self, index: int) -> Request:
        return self._recording.interactions[index].request

    # -- what is nearest -------------------------------------------------------------------------

    def _nearest(self, request: Request) -> tuple[list[tuple[str, Differences]], float]:
        """Return the three most similar recorded requests, each with what differs.

        The number says how similar the path of the first is, from 0 to 1.
        """
        base_url, path = self._recording.base_url or "", place_of(request, self._base_url)[1]

        def similarity(other: Request) -> tuple[float, bool]:
            ratio = SequenceMatcher(None, path, place_of(other, base_url)[1]).ratio()
            return ratio, request.method == other.method

        indexes = {self._at(*each)[0].start for each in islice(self._addresses(), _MAX_COMPARED)}
        others = nlargest(9, (self._request(i) for i in sorted(indexes)), key=similarity)
        ranked = [(each, self._differences(request, each)) for each in others]
        ranked.sort(key=lambda pair: (*similarity(pair[0]), -len(pair[1])), reverse=True)
        titled = [(self._title(other, base_url), differing) for other, differing in ranked]
        nearest = list({(title, *names): (title, names) for title, names in titled}.values())[:3]
        return nearest, similarity(ranked[0][0])[0] if ranked else 0.0

    def _differences(self, request: Request, other: Request) -> Differences:
        """Return the compared parts that differ by name, and the functions of ``match_on``."""
        from .vcr_files import matches

        request, other = map(self._matching.compared, (request, self._redactor.request(other)))
        sent, recorded = (replace(each, body=plain_body(each)) for each in (request, other))
        rest = self._rest_of(request.method)
        compared = {name for name in self._names if name in INDEXED or name in rest}
        base_urls = self._base_url, self._recording.base_url or ""
        differing = differences((sent, base_urls[0]), (recorded, base_urls[1]), compared)
        for each in () if {"method", "path"} & differing.keys() else rest:
            name = each if isinstance(each, str) else f"match_on: {getattr(each, '__name__', '')}"
            is_named = any(part.startswith(name.removesuffix("s")) for part in differing)
            with suppress(Exception):  # a function may not expect two such requests
                if not is_named and not matches([each], sent, recorded):
                    differing[name] = None, None
        return differing

    def _left_unplayed(self) -> str:
        """Return the titles of the requests whose responses were not played."""
        base_url = self._recording.base_url or ""
        left = [index for index, is_played in enumerate(self.played) if not is_played]
        requests = (self._request(index) for index in left[:_MAX_COMPARED])
        shown = Counter(self._title(each, base_url) for each in requests).most_common(3)
        titles = [f"{title} ({count} times)" if count > 1 else title for title, count in shown]
        more = len(left) - sum(count for _, count in shown)
        return ", ".join(titles) + (f", and {plural(more, 'other')}" if more else "")

    def _title(self, request: Request, base_url: str) -> str:
        origin, path, _ = place_of(request, base_url)
        return self._redactor.text(f"{request.method} {origin}{path}")


def _names_in(query: str) -> str:
    """Return a query without its values: ``?page=…&size=…``. A part without ``=`` is a value."""
    parts = (part.partition("=") for part in query.split("&") if part)
    names = "&".join(dict.fromkeys(f"{name}=…" if equals else "…" for name, equals, _ in parts))
    return f"?{names[:_LONGEST_QUERY]}" if names else ""


def _is_form_without_fields(request: Request) -> bool:
    """Return whether vcrpy finds all such bodies equal, such as JSON sent by ``curl -d``."""
    content_type = header(request.headers, "content-type") or ""
    return "x-www-form-urlencoded" in content_type and b"=" not in (request.body or b"")


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters in the order of their names, as vcrpy compares them."""
    query = query.partition("#")[0]
    return tuple(sorted(parse_qsl(query))) if query else ()
