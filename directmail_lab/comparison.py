"""Compares two answers to one request, field by field. Pure: values in, differences out.

Values that differ from call to call although nothing changed, such as request ids, are not
reported: see `VOLATILE_HEADERS`, `PASSING_HEADERS`, `VOLATILE_FIELDS`, `_are_times_of_answers`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from .bodies import json_in
from .contract import REMAINING_HEADER, RESET_HEADER
from .shapes import type_of

if TYPE_CHECKING:
    from .interaction import Headers, Interaction

Part = Literal["status", "header", "body"]
Change = Literal[
    "added", "removed", "retyped", "possibly renamed", "null-turned", "null-filled", "changed"
]

ROOT: Final = "$"
"""The path of a body as a whole."""


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).lower().split())


VOLATILE_HEADERS: Final = _names(
    f"{REMAINING_HEADER} {RESET_HEADER} date etag expires last-modified content-security-policy"
)
"""Headers whose value differs from call to call: only their presence and type are compared.

``X-RateLimit-Limit`` is not one of them: a changed allowance is worth reporting. A content security
policy is one of them, since it may contain a nonce.
"""

PASSING_HEADERS: Final = _names(
    # Set by caches, gateways and servers in between, on some answers and not on others.
    "age via x-cache x-cache-hits x-served-by x-timer cf-cache-status cf-ray alt-svc nel report-to",
    "server-timing x-runtime x-response-time x-envoy-upstream-service-time retry-after set-cookie",
    # Identifiers of one request.
    "x-request-id request-id x-correlation-id x-trace-id traceparent tracestate x-amzn-requestid",
    "x-amzn-trace-id x-amz-cf-id x-b3-traceid",
    # About the connection and the encoding of the body, not its content (recordings keep bodies
    # decoded).
    "connection keep-alive transfer-encoding content-encoding content-length vary accept-ranges",
    "trailer upgrade proxy-connection",
)
"""Headers that come and go: neither their value nor their presence is compared."""

VOLATILE_FIELDS: Final = _names(
    "requestid traceid correlationid nonce etag csrftoken servertime currenttime timestamp now",
    "generatedat respondedat updatedat lastseen lastseenat lastlogin lastloginat lastactiveat",
    "lastusedat lastrequestat expiresat expiresin elapsed elapsedms durationms tookms remaining",
    "requestcount requestsremaining",
)
"""Fields of a body, at any depth, whose value differs from call to call.

Only lower-case letters and digits count: ``updatedat`` stands for ``updated_at`` and ``updatedAt``.
"""

# How far a time stamp may be from the time its answer was recorded: clocks differ, answers travel.
_NEAR_S: Final = 300.0
# Two field names at least this similar (difflib's ratio, 0 to 1) may be one that was renamed:
# `postcode` and `postal_code` are (0.89), `name` and `email` are not (0.22).
_ALIKE: Final = 0.7
# With more pairs of removed and added fields than this (100 times 100), no renames are looked for.
_MOST_PAIRS: Final = 10_000

ABSENT: Final = object()
"""Marks a value that is missing; None is JSON's null."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two answers.

    ``path`` is the header's name in lower case, the field's dotted path as in `frame`'s columns
    (``company.address.city``, ``tags[0]``, ``lists[id=7].name``), ``$`` for a body as a whole, or
    ``status``. ``recorded`` and ``now`` are the two values, `ABSENT` if missing. ``new_path`` is
    set if a field was possibly renamed.
    """

    part: Part
    path: str
    change: Change
    recorded: object = ABSENT
    now: object = ABSENT
    new_path: str | None = None


def compare(
    recorded: Interaction, now: Interaction, *, ignore: Iterable[str] = ()
) -> list[Difference]:
    """Return what is different in ``now``, in the order status, headers, body.

    For values that differ from call to call, only presence and type are compared. Arrays are
    compared by position, or by ``id`` if each element is an object with a different one. If the
    statuses differ and one of them is an error, nothing else is compared.

    Parameters
    ----------
    ignore
        Paths to leave out; ``*`` matches any text: ``"company.*"``, ``"header.x-powered-by"``.
    """
    old, new = recorded.response, now.response
    found: list[Difference] = []
    if old.status != new.status:
        found.append(Difference("status", "status", "changed", old.status, new.status))
    if old.status == new.status or max(old.status, new.status) < 400:
        found.extend(_headers(old.headers, new.headers))
        if recorded.request.method != "HEAD":
            found.extend(_bodies(recorded, now))
    patterns = list(ignore)
    return [each for each in found if not any(_matches(each, pattern) for pattern in patterns)]


def _matches(difference: Difference, pattern: str) -> bool:
    part = f"{difference.part}."
    name = part + difference.path if pattern.startswith(part) else difference.path
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


# -- headers -----------------------------------------------------------------------------------


def _headers(old: Headers, new: Headers) -> Iterator[Difference]:
    recorded, now = _joined(old), _joined(new)
    for name in recorded | now:
        was, is_now = recorded.get(name), now.get(name)
        if name in PASSING_HEADERS:
            continue
        if was is None:
            yield Difference("header", name, "added", ABSENT, is_now)
        elif is_now is None:
            yield Difference("header", name, "removed", was)
        elif _is_integer(was) != _is_integer(is_now):
            yield Difference("header", name, "retyped", was, is_now)
        elif was != is_now and name not in VOLATILE_HEADERS:
            yield Difference("header", name, "changed", was, is_now)


def _joined(headers: Headers) -> dict[str, str]:
    """Return each header once; repeated ones are joined by commas (RFC 9110, section 5.2)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _is_integer(value: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII) is not None


# -- bodies ------------------------------------------------------------------------------------


def _bodies(recorded: Interaction, now: Interaction) -> Iterator[Difference]:
    old, new = recorded.response, now.response
    was, was_problem = json_in(old.headers, old.body)
    is_now, is_problem = json_in(new.headers, new.body)
    if was_problem or is_problem:
        if bool(was_problem) != bool(is_problem) or old.body != new.body:
            change: Change = "changed" if was_problem and is_problem else "retyped"
            kinds = _kind_of_body(was_problem), _kind_of_body(is_problem)
            yield Difference("body", ROOT, change, *kinds)
    else:
        yield from _values(was, is_now, recorded.recorded_at, now.recorded_at)


def _values(
    was: object, is_now: object, recorded_at: datetime | None, now_at: datetime | None
) -> Iterator[Difference]:
    # A loop and no recursion, since a body may be nested very deep.
    waiting = [("", "", was, is_now)]
    while waiting:
        path, name, was, is_now = waiting.pop()
        before, after = _type(was), _type(is_now)
        if before != after:
            change: Change = "null-filled" if before == "null" else "retyped"
            change = "null-turned" if after == "null" else change
            yield Difference("body", path or ROOT, change, was, is_now)
        elif before in ("object", "array"):
            old, new = _members(path, was, is_now)
            yield from _added_and_removed(old, new)
            common = [key for key in old if key in new]
            waiting += [(key, *old[key], new[key][1]) for key in reversed(common)]
        elif was != is_now and not (
            re.sub(r"[^a-z0-9]", "", name.lower()) in VOLATILE_FIELDS
            or _are_times_of_answers(was, is_now, recorded_at, now_at)
        ):
            yield Difference("body", path or ROOT, "changed", was, is_now)


def _kind_of_body(problem: str | None) -> str:
    return "JSON" if problem is None else "no body" if problem == "is empty" else "not JSON"


def _type(value: object) -> str:
    """Return a value's JSON type; 1 and 1.0 are both numbers."""
    return "number" if (kind := type_of(value)) == "integer" else kind


_Members = dict[str, tuple[str, Any]]
"""The members of an object or array by path: name (``""`` in an array) and value of each."""


def _members(path: str, *values: Any) -> Iterator[_Members]:
    """Yield the members of two objects by name, or of two arrays by ``id`` or position."""
    ids = [_ids(value) for value in values]
    for value, told in zip(values, ids, strict=True):
        if isinstance(value, dict):
            yield {f"{path}.{name}" if path else name: (name, value[name]) for name in value}
        else:
            labels = map(str, range(len(value))) if None in ids else told or []
            yield {f"{path}[{at}]": ("", each) for at, each in zip(labels, value, strict=True)}


def _ids(elements: Iterable[object]) -> list[str] | None:
    """Return the ``id`` of each element, or None unless all have one and all are different."""
    found = [each.get("id") if isinstance(each, dict) else None for each in elements]
    labels = [f"id={each}" for each in found if type(each) in (str, int)]
    return labels if len(set(labels)) == len(found) else None


def _added_and_removed(old: _Members, new: _Members) -> Iterator[Difference]:
    removed = {path: member for path, member in old.items() if path not in new}
    added = {path: member for path, member in new.items() if path not in old}
    for old_path, new_path in _renamed(removed, added).items():
        (_, was), (_, is_now) = removed.pop(old_path), added.pop(new_path)
        yield Difference("body", old_path, "possibly renamed", was, is_now, new_path)
    for path, (_, value) in removed.items():
        yield Difference("body", path, "removed", value)
    for path, (_, value) in added.items():
        yield Difference("body", path, "added", ABSENT, value)


def _renamed(removed: _Members, added: _Members) -> dict[str, str]:
    """Return the paths of members that were possibly renamed, old to new.

    A pair has values of one type, and either equal values or similar names. Equal values such as 0
    or "" count only if a single field was removed and a single one added.
    """
    lone = len(removed) == len(added) == 1
    if len(removed) * len(added) > _MOST_PAIRS:
        return {}
    pairs: dict[str, str] = {}
    for by_value, (path, (name, was)) in product((True, False), removed.items()):
        for other, (new_name, is_now) in added.items():
            is_free = name and path not in pairs and other not in pairs.values()
            if not is_free or _type(was) != _type(is_now):
                continue
            if _same_value(was, is_now, lone=lone) if by_value else _are_alike(name, new_name):
                pairs[path] = other
    return pairs


def _same_value(was: object, is_now: object, *, lone: bool) -> bool:
    """Return whether two values are equal, and not by chance as 0 and 0 may be."""
    try:
        return (lone or was not in ("", 0, 1, None, [], {})) and was == is_now
    except RecursionError:  # nested too deep for ==
        return False


def _are_alike(*names: str) -> bool:
    before, after = (re.sub(r"[\W_]", "", name).lower() for name in names)
    return difflib.SequenceMatcher(None, before, after).ratio() >= _ALIKE


def _are_times_of_answers(
    was: object, is_now: object, recorded_at: datetime | None, now_at: datetime | None
) -> bool:
    """Return whether each value is the time of its own answer, whatever the field's name.

    Times are ISO 8601 texts, or numbers of seconds or milliseconds since 1970; they may be five
    minutes off.
    """
    return _is_about(was, recorded_at) and _is_about(is_now, now_at)


def _is_about(value: object, time: datetime | None) -> bool:
    at = _seconds(value)
    if at is None or time is None:
        return False
    return any(abs(at / unit - time.timestamp()) <= _NEAR_S for unit in (1, 1000))


def _seconds(value: object) -> float | None:
    if type(value) in (int, float) and abs(value) < 1e15:  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", value):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
