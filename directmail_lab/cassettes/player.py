"""Find the recorded response to a request, in the order of the recording.

An index by the canonical forms of requests (see `matching`) finds it. vcrpy's matchers and a
person's functions then decide between the few that are equal in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import chain, islice
from operator import itemgetter
from urllib.parse import unquote_plus

from ..display import plural, printable_line
from ..errors import CassetteFormatError, NotRecordedError
from ..exchange.bodies import shown_missing
from ..exchange.values import Request, fails, header
from ..redaction import Redactor
from .files import FileRecording
from .layout import Address
from .matching import Form, Matching, split_address
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
_BARE = Request("GET", "")


@dataclass(slots=True)
class _Calls:
    """The calls of one form, in the order of the recording; those before ``start`` were played."""

    calls: list[Attempts]
    start: int = 0

    def next(self, played: bytearray) -> Attempts | None:
        """Return the first call that was not played, or None."""
        while self.start < len(self.calls) and played[self.calls[self.start][0]]:
            self.start += 1
        return self.calls[self.start] if self.start < len(self.calls) else None


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
        self._base_url = base_url
        self._redactor = redactor
        self.played = bytearray(len(recording))
        # The indexes of the requests to each address. An only one is no list: that takes a third of
        # the memory.
        self._addresses: dict[str, dict[str, list[int] | int]] = {}
        self._attempts: dict[int, int] = {}  # the number of each attempt but first ones
        self._respelled: set[str] = set()
        # What was found until now, by the address that was sent: requests are parsed only at an
        # address that somebody asks for.
        self._calls_by_address: dict[Address, _Calls | None] = {}
        self._indexes_by_form: dict[Form, list[int]] = {}
        self._calls_by_form: dict[Form, dict[_Inside, _Calls]] = {}
        self._index()
        if recording.fallbacks and not plays_fallbacks:
            dropped = self._superseded_failures()
            if dropped:
                self._forget_calls()
                self._addresses.clear()
                self._index(dropped)

    def _index(self, dropped: Collection[int] = ()) -> None:
        for index, ((method, recorded), attempt) in enumerate(self._recording.addresses()):
            if index in dropped:
                self.played[index] = 1
                continue
            # vcrpy writes a method of aiohttp as its caller did: "post".
            method = method.upper()
            uri = self._matching.address(recorded)
            if attempt > 1:
                self._attempts[index] = attempt
            same = self._addresses.setdefault(method, {})
            others = same.get(uri)
            if others is None:
                same[uri] = index
                if "%" in uri or "+" in uri or uri[-1:] in "?=" or ":80" in uri or ":443" in uri:
                    self._respelled.add(self._plainly_spelled(uri))
            elif isinstance(others, int):
                same[uri] = [others, index]
            else:
                others.append(index)

    def _plainly_spelled(self, uri: str) -> str:
        query = unquote_plus(uri.partition("#")[0].partition("?")[2])
        if self._matching.like is not None and query.endswith("="):
            query = ""  # vcrpy drops a parameter without a value
        return "".join(split_address(uri)) + (f"?{query}" if query else "")

    def _superseded_failures(self) -> set[int]:
        """Return the indexes of failures for whose request there is another response."""
        failures = self._recording.fallbacks
        superseded = set[int]()
        known = set[int]()
        for index in sorted(failures):
            if index in known:
                continue
            with suppress(CassetteFormatError):  # a damaged one is an error when it is asked for
                calls = self.find_all(self._redacted(index))
                failed = [call for call in calls if call[-1] in failures]
                known.update(chain.from_iterable(failed))
                if len(failed) < len(calls):
                    superseded.update(chain.from_iterable(failed))
        return superseded

    # -- the index -------------------------------------------------------------------------------

    def _at(self, method: str, uri: str) -> list[int]:
        """Return the indexes of the requests to an address."""
        indexes = self._addresses.get(method, {}).get(uri, [])
        return indexes if isinstance(indexes, list) else [indexes]

    def _each_address(self) -> Iterator[Address]:
        return ((method, uri) for method, same in self._addresses.items() for uri in same)

    def _forget_calls(self) -> None:
        self._calls_by_address.clear()
        self._indexes_by_form.clear()
        self._calls_by_form.clear()

    def _calls_at(self, request: Request) -> _Calls | None:
        """Return the calls to an address if it alone decides, else None."""
        matching = self._matching
        if not matching.decides_by_address:
            return None
        if matching.inside and (request.body or header(request.headers, "range")):
            return None
        sent = request.method, request.uri
        if sent not in self._calls_by_address:
            self._calls_by_address[sent] = self._decided_calls(request)
        return self._calls_by_address[sent]

    def _decided_calls(self, request: Request) -> _Calls | None:
        uri = self._matching.address(request.uri)
        indexes = self._at(request.method.upper(), uri)
        # If addresses differ only in their spelling, the order of the recording decides.
        if not indexes or uri in self._respelled or not _PLAIN_ADDRESS.fullmatch(uri):
            return None
        recording = self._recording
        several = len(indexes) > 1
        is_like_vcrpy = self._matching.like is not None
        # For vcrpy, what is inside only chooses between several.
        looks_inside = several if is_like_vcrpy else self._matching.inside
        if looks_inside and not all(map(recording.is_bare, indexes)):
            return None
        if several and not is_like_vcrpy and len(recording.accepts_of(indexes)) > 1:
            return None
        return _Calls(self._as_calls(indexes))

    def _each_equal(self, request: Request, sent: Request) -> Iterator[list[_Calls]]:
        """Yield the calls of each form of a request, first those that a part of it chooses.

        If an ``Accept`` chooses, the others are not played. ``request`` is one that was redacted,
        and may lack the body that it was sent with.
        """
        matching = self._matching
        if not self._indexes_by_form:
            self._index_by_form()
        inside = matching.inside_form(request)
        for form in matching.address_forms(request, [self._base_url]):
            if form not in self._indexes_by_form:
                continue
            found = self._calls_inside(form)
            every = found.get((inside, None))
            if every is None:
                continue
            chosen = every
            if len(every.calls) > 1 and len(found) > 1:
                if self._recording.originals is None:
                    sent = self._redactor.request(sent)
                choice = matching.choice(matching.compared(sent))
                chosen = found.get((inside, choice), every)
            yield [chosen, every] if matching.like is not None else [chosen]

    def _index_by_form(self) -> None:
        """Index all addresses by their forms, once somebody asks: few replays need it."""
        base_urls = self._recording.base_urls
        for address in self._each_address():
            indexes = self._at(*address)
            for form in self._matching.address_forms(Request(*address), base_urls):
                self._indexes_by_form.setdefault(form, []).extend(indexes)
        for indexes in self._indexes_by_form.values():
            indexes.sort()

    def _calls_inside(self, form: Form) -> dict[_Inside, _Calls]:
        """Return the calls of an address by what is inside their requests."""
        if form not in self._calls_by_form:
            by_inside: dict[Form, list[int]] = {}
            for index in self._indexes_by_form[form]:
                by_inside.setdefault(self._inside_form(index), []).append(index)
            found: dict[_Inside, _Calls] = {}
            for inside, indexes in by_inside.items():
                found[inside, None] = _Calls(self._as_calls(indexes))
                for choice, chosen in self._chosen(indexes).items():
                    found[inside, choice] = _Calls(self._as_calls(chosen))
            self._calls_by_form[form] = found
        return self._calls_by_form[form]

    def _chosen(self, indexes: list[int]) -> dict[Hashable, list[int]]:
        """Return the requests of one form by what chooses between them, if they differ by it."""
        is_like_vcrpy = self._matching.like is not None
        if len(indexes) == 1 or not (is_like_vcrpy or len(self._recording.accepts_of(indexes)) > 1):
            return {}
        groups: dict[Hashable, list[int]] = {}
        for index in indexes:
            request = self._recording.original_request(index) or self._redacted(index)
            choice = self._matching.choice(self._matching.compared(request))
            if choice is not None:
                groups.setdefault(choice, []).append(index)
        return groups if len(groups) > 1 else {}

    def _inside_form(self, index: int) -> Form:
        matching = self._matching
        if not matching.inside:
            return ()
        is_bare = "headers" not in matching.inside and self._recording.is_bare(index)
        return matching.inside_form(_BARE if is_bare else self._compared(index))

    def _as_calls(self, indexes: list[int]) -> list[Attempts]:
        """Return the calls that these interactions are: each with its attempts, in their order.

        A second attempt belongs to the latest call whose first one failed, and so on.
        """
        if self._attempts.keys().isdisjoint(indexes):
            return [(index,) for index in indexes]
        calls: list[Attempts] = []
        failed: dict[int, list[int]] = {}  # by the number of their last attempt
        for index in indexes:
            attempt = self._attempts.get(index, 1)
            before = failed.get(attempt - 1)
            if before:
                at = before.pop()
            else:
                at = len(calls)
                calls.append(())
            calls[at] += (index,)
            if fails(self._recording.interactions[index].response):
                failed.setdefault(attempt, []).append(at)
        return calls

    def _compared(self, index: int) -> Request:
        """Return a recorded request, as it is compared."""
        return self._matching.compared(self._redacted(index))

    def _redacted(self, index: int) -> Request:
        # Redact another program's request again: this session may know a key in it.
        return self._redactor.request(self._recording.request(index))

    # -- find ------------------------------------------------------------------------------------

    def find(self, request: Request, *, repeats: bool = False) -> tuple[Attempts | None, Request]:
        """Return the indexes of the next response to a request, and the redacted request.

        There is an index for each attempt. The response is the first one that was not played yet,
        or else the last one. With ``repeats``, the last response to the same address comes before
        other ones that were not played.
        """
        if not self._addresses:
            return None, request
        at_address = self._calls_at(request)
        if at_address is not None:
            call = at_address.next(self.played)
            if call is None and repeats:
                call = at_address.calls[-1]
            if call is not None:
                return call, request
        matching, sent = self._matching, request
        if matching.like is not None and not matching.checks:
            # To redact a large body takes long, and it decides only between equal requests.
            request = replace(request, body=None)
        request = self._redactor.request(request)
        compared = matching.compared(request)
        for several in self._each_equal(compared, sent):
            call = self._next(several, compared)
            if call is not None:
                return call, request
        return None, request

    def _next(self, several: list[_Calls], request: Request) -> Attempts | None:
        """Return the first call that was not played, or else the last one, that matches."""
        if not self._matching.checks:
            unplayed = [calls.next(self.played) for calls in several]
            return next(filter(None, unplayed), several[0].calls[-1])
        in_order = chain.from_iterable(calls.calls for calls in several)
        last = chain.from_iterable(reversed(calls.calls) for calls in several)
        for call in chain((call for call in in_order if not self.played[call[0]]), last):
            if self._matches(request, call):
                return call
        return None

    def find_all(self, request: Request) -> list[Attempts]:
        """Return the indexes of all responses to a redacted request, in their order."""
        at_address = self._calls_at(request)
        if at_address is not None:
            return at_address.calls
        compared = self._matching.compared(request)
        for several in self._each_equal(compared, request):
            found = several[-1].calls
            if self._matching.checks:
                found = [each for each in found if self._matches(compared, each)]
            if found:
                return found
        return []

    def other_range(self, request: Request, call: Attempts) -> list[str]:
        """Return in which Range a request differs from the one that was recorded, if it does.

        vcrpy does not compare it.
        """
        sent = header(request.headers, "range")
        if sent is None and self._recording.is_bare(call[-1]):
            return []
        recorded = self._recording.header_of(call[-1], "range")
        if sent == recorded:
            return []
        title = self._title(request, self._base_url)
        shown = self._redactor.text(f"Range {sent or 'none'}, recorded {recorded or 'none'}")
        return [f"{title}: {shown}"]

    def _matches(self, request: Request, call: Attempts) -> bool:
        from .vcr_files import matches

        return matches(self._matching.checks, request, self._compared(call[0]))

    def mark(self, call: Attempts) -> None:
        """Mark a response and its attempts as played."""
        for index in call:
            self.played[index] = 1

    def rewind(self) -> None:
        """Play all responses again."""
        self.played = bytearray(len(self.played))
        self._forget_calls()

    def unplayed(self) -> list[Request]:
        """Return the requests whose responses were not played."""
        left = [index for index, is_played in enumerate(self.played) if not is_played]
        return [self._recording.request(index) for index in left]

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

        firsts = {self._at(*each)[0] for each in islice(self._each_address(), _MAX_COMPARED)}
        requests = map(self._recording.request, sorted(firsts))
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
        requests = (self._recording.request(index) for index in left[:_MAX_COMPARED])
        shown = Counter(self._title(each, base_url) for each in requests).most_common(3)
        titles = [f"{title} ({count} times)" if count > 1 else title for title, count in shown]
        more = len(left) - sum(count for _, count in shown)
        return ", ".join(titles) + (f", and {plural(more, 'other')}" if more else "")

    def _title(self, request: Request, base_url: str) -> str:
        origin, path, _ = place_of(request, base_url)
        return printable_line(self._redactor.text(f"{request.method} {origin}{path}"))


def _names_in(query: str) -> str:
    """Return a query without its values: ``?page=…&size=…``. A part without ``=`` is a value."""
    parts = (part.partition("=") for part in query.split("&") if part)
    names = "&".join(dict.fromkeys(f"{name}=…" if equals else "…" for name, equals, _ in parts))
    return f"?{names[:_LONGEST_QUERY]}" if names else ""
