"""Find the recorded response to a request, in the order of the recording.

An index by the canonical forms of requests (see `matching`) finds it. vcrpy's matchers and a
person's functions then decide between the few that are equal in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from heapq import nlargest
from operator import itemgetter

from ..display import plural
from ..errors import NotRecordedError
from ..exchange.bodies import shown_missing
from ..exchange.values import Request, fails
from ..redaction import Redactor
from .files import FileRecording
from .matching import Form, Matching
from .mismatch import Differences, differences, place_of

Attempts = tuple[int, ...]
"""The indexes of a request's attempts."""

_Inside = tuple[Form, Hashable]
"""What is inside a request, and what chooses between those that are equal; None for all of them."""

_MAX_COMPARED = 500
_LONGEST_QUERY = 200
# An address that is the same in no other spelling: it has no escape, no default port, and at most
# one parameter, which has a value.
_PLAIN_ADDRESS = re.compile(
    r"https?://[^:/?%+#]*(?::(?!(?:80|443)(?:[/?]|$))[0-9]+)?(?:/[^?%+#]*)?"
    r"(?:\?[^?&%+#=]+=[^?&%+#]*[^?&%+#=])?"
)
_CHOOSING = ("range", "accept", "content-type", "content-encoding")


class Player:
    """Finds the recorded responses to a request, in the order of the recording.

    A response to the same address comes first, then one to the same path below each side's base
    address. No other response is played.
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
        self._base_url = base_url
        self._redactor = redactor
        self.played = bytearray(len(recording))
        self._is_redacted = not recording.is_third_party and recording.redact == redactor.redact
        self._known: dict[Hashable, list[Attempts]] = {}
        self._calls: dict[Form, list[Attempts]] = {}
        self._requests = [self._redacted(index) for index in range(len(recording))]
        self._attempts = [each.attempt for each in recording.interactions]
        self._retried = max(self._attempts, default=1) > 1
        indexes: dict[Form, list[int]] = {}
        firsts: dict[Hashable, Form] = {}
        for index, request in enumerate(self._requests):
            forms = list(self._forms(request, recording.base_urls))
            firsts.setdefault(_identity(request), forms[0])
            for form in forms:
                indexes.setdefault(form, []).append(index)
        for form, each in indexes.items():
            self._calls[form] = self._as_calls(each)
        if recording.fallbacks and not plays_fallbacks:
            self._drop_fallbacks()
        for sent, form in firsts.items():
            if len(self._calls[form]) == 1:
                self._known[sent] = self._calls[form]

    def _forms(self, request: Request, base_urls: Iterable[str]) -> Iterator[Form]:
        matching = self._matching
        compared = matching.compared(request)
        inside = matching.inside_form(compared)
        for form in matching.address_forms(compared, base_urls):
            yield form, inside

    def _drop_fallbacks(self) -> None:
        """Leave out failures for whose request there is another response."""
        failed = self._recording.fallbacks
        for form, calls in self._calls.items():
            others = [call for call in calls if call[-1] not in failed]
            if others and len(others) < len(calls):
                for call in calls:
                    if call not in others:
                        self.mark(call)
                self._calls[form] = others

    def _as_calls(self, indexes: list[int]) -> list[Attempts]:
        """Return the calls that these interactions are: each with its attempts, in their order."""
        calls: list[Attempts] = []
        failed: dict[int, list[int]] = {}  # by the number of their last attempt
        for index in indexes:
            attempt = self._attempts[index]
            before = failed.get(attempt - 1)
            if before:
                at = before.pop()
            else:
                at = len(calls)
                calls.append(())
            calls[at] += (index,)
            if self._retried and fails(self._recording.interactions[index].response):
                failed.setdefault(attempt, []).append(at)
        return calls

    def _redacted(self, index: int) -> Request:
        request = self._recording.interactions[index].request
        if self._is_redacted:
            return request
        # Redact another program's request again: this session may know a key in it.
        return self._redactor.request(request)

    # -- find ------------------------------------------------------------------------------------

    def find(self, request: Request, *, repeats: bool = False) -> tuple[Attempts | None, Request]:
        """Return the indexes of the next response to a request, and the redacted request.

        There is an index for each attempt. The response is the first one that was not played yet,
        or else the last one.
        """
        sent = _identity(request)
        calls = None if self._matching.checks else self._known.get(sent)
        if calls is None:
            # Only what is compared: to redact all headers would take as long as all else here.
            if "headers" not in self._matching.names and not self._matching.checks:
                chosen = tuple(each for each in request.headers if each[0].lower() in _CHOOSING)
                request = replace(request, headers=chosen)
            request = self._redactor.request(request)
            calls = self.find_all(request, repeats=repeats)
            self._known[sent] = calls
        call = next((each for each in calls if not self.played[each[0]]), None)
        return call or (calls[-1] if calls else None), request

    def find_all(self, request: Request, *, repeats: bool = True) -> list[Attempts]:
        """Return the indexes of all responses to a redacted request, in their order."""
        matching = self._matching
        compared = matching.compared(request)
        for form in self._forms(request, [self._base_url]):
            found = self._calls.get(form, [])
            if matching.checks:
                found = [each for each in found if self._matches(compared, each)]
            if len(found) > 1 and matching.choice(compared) is not None:
                choice = matching.choice(compared)
                chosen = [
                    each for each in found if matching.choice(self._requests[each[0]]) == choice
                ]
                found = chosen or found
            if found:
                return found
        return []

    def other_range(self, request: Request, call: Attempts) -> list[str]:
        return []

    def _matches(self, request: Request, call: Attempts) -> bool:
        from .vcr_files import matches

        return matches(
            self._matching.checks, request, self._matching.compared(self._requests[call[0]])
        )

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
        similarity = 1.0
        details = []
        if is_played:
            what = f"is in cassette {cassette}, but all responses to it were played."
            advice = 'Replay with repeat="last" to play the last one again, or record it with '
        else:
            count = plural(len(self._recording), "interaction")
            others = ", all for other requests" if len(self._recording) else ""
            what = f"is not in cassette {cassette} ({count}{others})."
            advice = "Record it with "
            nearest, similarity = self._nearest(request)
        if nearest:
            lines = [f"{other}, which differs in {', '.join(names)}" for other, names in nearest]
            details.append("Nearest: " + ";\n         ".join(lines) + ".")
        left = self._left_unplayed()
        if left:
            details.append(f"Left unplayed: {left}.")
        query = self._redactor.text(_names_in(place_of(request, self._base_url)[2]))
        return NotRecordedError(
            f"{title}{query} {what}",
            f"{advice}record({cassette}).",
            details="\n".join(details),
            reason="nothing_left" if is_played else "no_match",
            similarity=similarity,
            request=title,
            nearest=nearest,
        )

    def missing_body(self, request: Request, body: bytes) -> NotRecordedError:
        """Return the error for a recorded response without its body, but with a placeholder."""
        title = self._title(self._redactor.request(request), self._base_url)
        return NotRecordedError(
            f"{title} is in cassette {self._recording.name!r} without its body "
            f"{shown_missing(body)}.",
            "Send it in a live session: live(). Or record a smaller body, or one in UTF-8, with "
            "before_record=….",
            reason="no_body",
            request=title,
        )

    # -- what is nearest -------------------------------------------------------------------------

    def _nearest(self, request: Request) -> tuple[list[tuple[str, Differences]], float]:
        """Return the three most similar recorded requests, each with what differs.

        The number says how similar the path of the first is, from 0 to 1.
        """
        base_url = self._recording.base_url or ""
        path = place_of(request, self._base_url)[1]

        def similarity(other: Request) -> tuple[float, bool]:
            ratio = SequenceMatcher(None, path, place_of(other, base_url)[1]).ratio()
            return ratio, request.method == other.method

        firsts = {
            (each.method, each.uri): each
            for each in (x.request for x in self._recording.interactions[:_MAX_COMPARED])
        }
        requests = firsts.values()
        ranked = []
        for other in nlargest(9, requests, key=similarity):
            differing = self._differences(request, other)
            ranked.append(((*similarity(other), -len(differing)), other, differing))
        ranked.sort(key=itemgetter(0), reverse=True)
        nearest: dict[object, tuple[str, Differences]] = {}
        for _, other, differing in ranked:
            title = self._title(other, base_url)
            nearest[title, *differing] = title, differing
        most = ranked[0][0][0] if ranked else 0.0
        return list(nearest.values())[:3], most

    def _differences(self, request: Request, other: Request) -> Differences:
        """Return the compared parts that differ by name, and the functions of ``match_on``."""
        from .vcr_files import matches

        matching = self._matching
        sent = matching.compared(request)
        recorded = matching.compared(self._redactor.request(other))
        ours = sent, self._base_url
        theirs = recorded, self._recording.base_url or ""
        differing = differences(ours, theirs, matching.compared_parts)
        if not {"method", "path"}.isdisjoint(differing):
            return differing
        for name in (*matching.in_address, *matching.inside):
            shown = "header: range" if name == "range" else name
            is_named = any(part.startswith(shown.removesuffix("s")) for part in differing)
            if not is_named and matching.part(name, sent) != matching.part(name, recorded):
                differing[shown] = None, None
        for each in matching.checks:
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
        requests = (self._recording.interactions[index].request for index in left[:_MAX_COMPARED])
        shown = Counter(self._title(each, base_url) for each in requests).most_common(3)
        titles = [f"{title} ({count} times)" if count > 1 else title for title, count in shown]
        more = len(left) - sum(count for _, count in shown)
        return ", ".join(titles) + (f", and {plural(more, 'other')}" if more else "")

    def _title(self, request: Request, base_url: str) -> str:
        origin, path, _ = place_of(request, base_url)
        return self._redactor.text(f"{request.method} {origin}{path}")


def _identity(request: Request) -> Hashable:
    """Return all that is compared of a request by default, as it was written."""
    chosen = tuple([pair for pair in request.headers if pair[0].lower() in _CHOOSING])
    return request.method, request.uri, request.body or b"", chosen


def _names_in(query: str) -> str:
    """Return a query without its values: ``?page=…&size=…``. A part without ``=`` is a value."""
    parts = (part.partition("=") for part in query.split("&") if part)
    names = "&".join(dict.fromkeys(f"{name}=…" if equals else "…" for name, equals, _ in parts))
    return f"?{names[:_LONGEST_QUERY]}" if names else ""
