"""Find the recorded response to a request, in the order of the recording.

`Index` finds it by the canonical form of the request (see `matching`). A person's functions then
decide between the few that are equal in it. `Player` knows which responses were played.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from heapq import nlargest
from itertools import chain

from ..display import plural, printable_line
from ..errors import NotRecordedError
from ..exchange.bodies import shown_missing
from ..exchange.operations import base_path
from ..exchange.values import SAFE_METHODS, Headers, Request, fails, header
from ..executions import Execution, current_cell
from ..redaction import Redactor
from ..tracebacks import warn_caller
from .files import FileRecording
from .matching import AnyValue, Form, Matching
from .mismatch import Differences, changing_values, differences, place_of
from .recording import THIS_MACHINE, service_of, uncollected

Attempts = tuple[int, ...]
"""The indexes of a request's attempts."""

RequestKey = tuple[str, str, Headers, bytes]
"""The method, address, headers and body of a request; of the headers, those that may decide."""

_MAX_COMPARED = 500
_LONGEST_QUERY = 200
# The headers that may decide between two requests, unless `match_on` names all headers.
_DECIDING = frozenset({"range", "content-type", "content-encoding"})


class Index:
    """The calls in a recording, each with its attempts, by the canonical forms of their requests.

    It serves a replay, a recording, which replaces older responses to the same request, and a
    write, which may have been sent before.
    """

    def __init__(
        self, recording: FileRecording, matching: Matching, *, base_url: str, redactor: Redactor
    ) -> None:
        self.recording = recording
        self.matching = matching
        self.base_url = base_url
        self.redactor = redactor
        requests = [each.request for each in recording.interactions]
        if recording.is_third_party or recording.redact != redactor.redact:
            requests = list(map(redactor.request, requests))  # this session may know another key
        self.requests = requests
        self._accepted = [header(each.headers, "accept") for each in requests]
        self._compares_headers = bool(matching.checks) or "headers" in matching.names
        self._deciding = _DECIDING | ({"accept"} if len({*self._accepted}) > 1 else set())
        # What is sent as it was recorded needs neither redaction nor a form.
        self.by_literal: dict[RequestKey, list[Attempts]] = {}
        with uncollected():
            self._build()

    def _build(self) -> None:
        indexes: dict[Form, list[int]] = {}
        firsts: list[Form] = []
        shapes: dict[Hashable, tuple[Hashable, ...]] = {}  # each is kept once
        base_url = self.recording.base_url
        base_urls = list(self.recording.base_urls)
        if base_url and service_of(base_url) == THIS_MACHINE:  # the port of a local service changes
            origins = {"/".join(each.uri.split("/", 3)[:3]) for each in self.requests}
            local = [each for each in origins if service_of(each, "") == THIS_MACHINE]
            base_urls += [each + base_path(base_url) for each in local]
        for index, request in enumerate(self.requests):
            forms = [
                form._replace(shape=shapes.setdefault(form.shape, form.shape))
                for form in self.matching.forms(request, base_urls)
            ]
            firsts.append(forms[0])
            for form in forms:
                indexes.setdefault(form, []).append(index)
        self._calls = {form: self._as_calls(each) for form, each in indexes.items()}
        for request, form in zip(self.requests, firsts, strict=True):
            if len(self._calls[form]) == 1 and not self.matching.checks:
                self.by_literal.setdefault(self.literal(request), self._calls[form])

    def literal(self, request: Request) -> RequestKey:
        """Return all that may be compared of a request, as it was written."""
        headers = request.headers
        if not self._compares_headers:  # to redact all would take as long as all else here
            headers = tuple([pair for pair in headers if pair[0].lower() in self._deciding])
        return request.method, request.uri, headers, request.body or b""

    def find(self, request: Request) -> list[Attempts]:
        """Return the calls to a redacted request, in the order of the recording.

        Those to the same address come first, then those to the same path below each side's base
        address; never both. If there is none, those follow that are equal but for a value that
        redaction replaced.
        """
        forms = list(self.matching.forms(request, [self.base_url]))
        for form in forms:
            found = self._chosen(self._calls.get(form, []), request)
            if found:
                return found
        for form in forms:
            equal = [self._calls[each] for each in self._any_value.find(form)]
            found = self._chosen(sorted(chain.from_iterable(equal)), request)
            if found:
                return found
        return []

    @cached_property
    def _any_value(self) -> AnyValue:
        return AnyValue(self._calls)

    def _chosen(self, calls: list[Attempts], request: Request) -> list[Attempts]:
        """Return the calls that a person's functions accept, of the type that a read accepts."""
        if self.matching.checks:
            calls = [each for each in calls if self._passes_checks(request, each)]
        if len(calls) < 2 or request.method.upper() not in SAFE_METHODS:
            return calls
        accepted = header(request.headers, "accept")
        chosen = [each for each in calls if self._accepted[each[0]] == accepted]
        return chosen or calls

    def _as_calls(self, indexes: list[int]) -> list[Attempts]:
        """Return the calls that these interactions are: each with its attempts, in their order."""
        interactions = self.recording.interactions
        calls: list[Attempts] = []
        failed: dict[int, list[int]] = {}  # calls that may go on, by the number of attempts
        for index in indexes:
            attempt = interactions[index].attempt
            before = failed.get(attempt - 1)
            if before:
                at = before.pop()
            else:
                at = len(calls)
                calls.append(())
            calls[at] += (index,)
            if fails(interactions[index].response):
                failed.setdefault(attempt, []).append(at)
        return calls

    def _passes_checks(self, request: Request, call: Attempts) -> bool:
        from .vcr_files import matches

        return matches(self.matching.checks, request, self.requests[call[0]])


@dataclass(slots=True)
class _Series:
    """The calls to one request, in their order; those before ``position`` were played."""

    calls: list[Attempts]
    position: int = 0


class Player:
    """Finds the response to play next for a request, in the order of the recording.

    A cell gets those that it recorded, from the first one on in each of its executions. If it has
    recorded none to a request, it gets those of all.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._recording = index.recording
        self._matching = index.matching
        self._base_url = index.base_url
        self._redactor = index.redactor
        self._cells = {each.cell for each in index.recording.interactions} - {None}
        current_cell()  # which follows the cells from now on
        self.played = bytearray(len(self._recording))
        self._series: dict[tuple[RequestKey, Execution | None], _Series] = {}
        self._first_sent: dict[RequestKey, RequestKey] = {}  # by the same request, redacted

    # -- find ------------------------------------------------------------------------------------

    def find(self, request: Request) -> tuple[Attempts | None, Request]:
        """Return the indexes of the next response to a request, and the redacted request.

        There is an index for each attempt. The response is the first one that was not played yet,
        or else the last one.
        """
        literal = self._index.literal(request)
        here = current_cell() if self._cells else None
        cell = here.kept_id if here and here.kept_id in self._cells else None
        key = literal, here if cell else None
        series = self._series.get(key)
        if series is None:
            calls = self._index.by_literal.get(literal)
            if calls is None:
                request = self._redactor.request(Request(*literal))
                calls = self._index.find(request)
                first = self._first_sent.setdefault(self._index.literal(request), literal)
                if first != literal and len(calls) > 1:
                    warn_caller(
                        f"{self._title(request, self._base_url)} was sent before with another "
                        "value of what redaction replaced. A recording cannot tell the two apart, "
                        f"so its {len(calls)} responses play in their order."
                    )
            if not calls:
                return None, request
            known = self._recording.interactions
            own = [call for call in calls if cell and known[call[0]].cell == cell]
            series = _Series(own or calls)
            if not self._matching.checks:  # which may decide otherwise next time
                self._series[key] = series
                for index in chain.from_iterable(own):  # an earlier execution may have played it
                    self.played[index] = 0
        while series.position < len(series.calls):
            call = series.calls[series.position]
            if not self.played[call[0]]:
                return call, request
            series.position += 1
        return series.calls[-1], request

    def mark(self, call: Attempts) -> None:
        """Mark a response and its attempts as played."""
        for index in call:
            self.played[index] = 1

    def refusal(self, request: Request, *, is_played: bool) -> NotRecordedError:
        """Return the error that says why a request has no response, and what to do.

        ``is_played`` says that all responses to it were played.
        """
        request = self._redactor.request(request)
        title = self._title(request, self._base_url)
        cassette = repr(self._recording.name)
        nearest: list[tuple[str, Differences]] = []
        details = ""
        if is_played:
            what = f"is in cassette {cassette}, but all responses to it were played."
            advice = 'Replay with repeat="last" to play the last one again, or record it with '
        else:
            count = plural(len(self._recording), "interaction")
            others = ", all for other requests" if len(self._recording) else ""
            what = f"is not in cassette {cassette} ({count}{others})."
            advice = "Record it with "
            nearest = self._nearest(request)
            rules = changing_values(nearest[0][1]) if nearest else []
            if rules:
                names = self._redactor.text(json.dumps(rules))
                advice = (
                    "It differs only in values that change with each run. Leave them out of the "
                    f"comparison: ignore={names}. Else record it with "
                )
        if nearest:
            lines = [f"{other}, which differs in {', '.join(names)}" for other, names in nearest]
            details = "Nearest: " + ";\n         ".join(lines) + "."
        query = self._redactor.text(_names_in(place_of(request, self._base_url)[2]))
        return NotRecordedError(
            f"{title}{query} {what}",
            f"{advice}dm.record({cassette}).",
            details=details,
            reason="nothing_left" if is_played else "no_match",
            request=title,
            nearest=nearest,
        )

    def missing_body(self, request: Request, body: bytes) -> NotRecordedError:
        """Return the error for a recorded response without its body, but with a placeholder."""
        title = self._title(self._redactor.request(request), self._base_url)
        return NotRecordedError(
            f"{title} is in cassette {self._recording.name!r} without its body "
            f"{shown_missing(body)}.",
            "Send it in a live session: dm.live(). Or record a smaller body, or one in UTF-8, with "
            "before_record=….",
            reason="no_body",
            request=title,
        )

    # -- what is nearest -------------------------------------------------------------------------

    def _nearest(self, request: Request) -> list[tuple[str, Differences]]:
        """Return the three recorded requests nearest by path and method, with what differs."""
        base_url = self._recording.base_url or ""
        path = place_of(request, self._base_url)[1]

        def similarity(other: Request) -> tuple[float, bool]:
            ratio = SequenceMatcher(None, path, place_of(other, base_url)[1]).ratio()
            return ratio, request.method == other.method

        kept = [each.request for each in self._recording.interactions[:_MAX_COMPARED]]
        requests = {(each.method, each.uri): each for each in kept}.values()
        candidates = [
            (other, self._differences(request, other))
            for other in nlargest(9, requests, key=similarity)
        ]
        candidates.sort(key=lambda each: (*similarity(each[0]), -len(each[1])), reverse=True)
        nearest: dict[object, tuple[str, Differences]] = {}
        for other, differing in candidates:
            title = self._title(other, base_url)
            nearest[title, *differing] = title, differing
        return list(nearest.values())[:3]

    def _differences(self, request: Request, other: Request) -> Differences:
        """Return the compared parts that differ by name, and the functions of ``match_on``."""
        from .vcr_files import matches

        recorded = self._redactor.request(other)
        ours = request, self._base_url
        theirs = recorded, self._recording.base_url or ""
        differing = differences(self._matching, ours, theirs)
        if not {"method", "path"}.isdisjoint(differing):
            return differing
        for check in self._matching.checks:
            with suppress(Exception):  # a function may not expect two such requests
                if not matches([check], request, recorded):
                    differing[f"match_on: {getattr(check, '__name__', '')}"] = None, None
        return differing

    def _title(self, request: Request, base_url: str) -> str:
        origin, path, _ = place_of(request, base_url)
        return printable_line(self._redactor.text(f"{request.method} {origin}{path}"))


def _names_in(query: str) -> str:
    """Return a query without its values: ``?page=…&size=…``. A part without ``=`` is a value."""
    parts = (part.partition("=") for part in query.split("&") if part)
    names = "&".join(dict.fromkeys(f"{name}=…" if equals else "…" for name, equals, _ in parts))
    return f"?{names[:_LONGEST_QUERY]}" if names else ""
