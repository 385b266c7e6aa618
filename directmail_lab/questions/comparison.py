"""Compares two responses to one request, field by field. Pure: values in, differences out.

Values that differ from call to call although nothing changed, such as request ids, are not
reported: see `VOLATILE_HEADERS`, `PASSING_HEADERS`, `VOLATILE_FIELDS`, `_is_time_of`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from ..bodies import read_json_body
from ..contract import REMAINING_HEADER, RESET_HEADER
from .shapes import type_of

if TYPE_CHECKING:
    from ..interaction import Headers, Interaction

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
    # Set by caches, gateways and servers in between, on some responses and not on others.
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

# How far a time may be from when its response was recorded: clocks differ, responses take time.
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
    """One difference between two responses.

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
        Paths to leave out, or one; ``*`` is any text: ``"company.*"``, ``"header.x-powered-by"``.
    """
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    return [
        difference
        for difference in _differences(recorded, now)
        if not any(_matches(difference, pattern) for pattern in patterns)
    ]


def _differences(recorded: Interaction, now: Interaction) -> Iterator[Difference]:
    old, new = recorded.response, now.response
    if old.status != new.status:
        yield Difference("status", "status", "changed", old.status, new.status)
        if max(old.status, new.status) >= 400:
            return
    yield from _headers(old.headers, new.headers)
    if recorded.request.method != "HEAD":
        yield from _bodies(recorded, now)


def _matches(difference: Difference, pattern: str) -> bool:
    part = f"{difference.part}."
    name = part + difference.path if pattern.startswith(part) else difference.path
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


# -- headers -----------------------------------------------------------------------------------


def _headers(old: Headers, new: Headers) -> Iterator[Difference]:
    recorded, now = _joined(old), _joined(new)
    yield from _added_and_removed("header", "", recorded, now)
    for name, before in recorded.items():
        after = now.get(name, before)
        if _is_integer(before) != _is_integer(after):
            yield Difference("header", name, "retyped", before, after)
        elif before != after and name not in VOLATILE_HEADERS:
            yield Difference("header", name, "changed", before, after)


def _joined(headers: Headers) -> dict[str, str]:
    """Return each header once; repeated ones are joined by commas (RFC 9110, section 5.2)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        if key not in PASSING_HEADERS:
            joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _is_integer(value: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII) is not None


# -- bodies ------------------------------------------------------------------------------------


def _bodies(recorded: Interaction, now: Interaction) -> Iterator[Difference]:
    old, new = recorded.response, now.response
    (before, problem), (after, new_problem) = (
        read_json_body(r.headers, r.body) for r in (old, new)
    )
    if problem is None and new_problem is None:
        yield from _values(before, after, recorded.recorded_at, now.recorded_at)
    elif problem is None or new_problem is None or old.body != new.body:
        change: Change = "changed" if problem and new_problem else "retyped"
        kinds = _kind_of_body(problem), _kind_of_body(new_problem)
        yield Difference("body", ROOT, change, *kinds)


def _kind_of_body(problem: str | None) -> str:
    return "JSON" if problem is None else "no body" if problem == "is empty" else "not JSON"


def _values(
    before: object, after: object, recorded_at: datetime | None, now_at: datetime | None
) -> Iterator[Difference]:
    # A loop and no recursion, since a body may be nested very deep.
    waiting = [("", "", before, after)]
    while waiting:
        path, label, before, after = waiting.pop()
        kind, new_kind = _type(before), _type(after)
        if kind != new_kind:
            change: Change = "null-filled" if kind == "null" else "retyped"
            change = "null-turned" if new_kind == "null" else change
            yield Difference("body", path or ROOT, change, before, after)
        elif kind in ("object", "array"):
            old, new = _members(before, after)
            yield from _added_and_removed("body", path, old, new)
            waiting += [
                (_path(path, label), label, old[label], new[label])
                for label in reversed(old)
                if label in new
            ]
        elif before != after and not (
            re.sub(r"[^a-z0-9]", "", label.lower()) in VOLATILE_FIELDS
            or (_is_time_of(before, recorded_at) and _is_time_of(after, now_at))
        ):
            yield Difference("body", path or ROOT, "changed", before, after)


def _type(value: object) -> str:
    """Return a value's JSON type; 1 and 1.0 are both numbers."""
    return type_of(value).replace("integer", "number")


def _members(*values: Any) -> Iterator[dict[str, Any]]:
    """Yield the members of two objects or arrays, as ``.name``, ``[id=7]`` or ``[0]``."""
    ids = [_ids(value) for value in values]
    for value, labels in zip(values, ids, strict=True):
        if isinstance(value, dict):
            yield {f".{name}": member for name, member in value.items()}
        else:
            numbers = labels if None not in ids else range(len(value))
            yield {f"[{label}]": item for label, item in zip(numbers or (), value, strict=True)}


def _ids(elements: Iterable[object]) -> list[str] | None:
    """Return the ``id`` of each element, or None unless all have one and all are different."""
    ids = [element.get("id") if isinstance(element, dict) else None for element in elements]
    labels = [f"id={value}" for value in ids if type(value) in (str, int)]
    return labels if len(set(labels)) == len(ids) else None


def _path(path: str, label: str) -> str:
    return path + label if path else label.removeprefix(".")


def _added_and_removed(
    part: Part, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Difference]:
    removed = {label: value for label, value in old.items() if label not in new}
    added = {label: value for label, value in new.items() if label not in old}
    for label, new_label in _renamed(removed, added).items():
        values, new_path = (removed.pop(label), added.pop(new_label)), _path(path, new_label)
        yield Difference(part, _path(path, label), "possibly renamed", *values, new_path)
    for label, value in removed.items():
        yield Difference(part, _path(path, label), "removed", value)
    for label, value in added.items():
        yield Difference(part, _path(path, label), "added", ABSENT, value)


def _renamed(removed: dict[str, Any], added: dict[str, Any]) -> dict[str, str]:
    """Return the fields that were possibly renamed, old to new.

    A pair has values of one type, and either equal values or similar names. Equal values such as 0
    or "" count only if a single field was removed and a single one added.
    """
    pairs: dict[str, str] = {}
    if len(removed) * len(added) > _MOST_PAIRS:
        return pairs
    is_single = len(removed) == len(added) == 1
    for by_value, (old, before), (new, after) in product(
        (True, False), removed.items(), added.items()
    ):
        is_free = old[0] == "." and old not in pairs and new not in pairs.values()
        if is_free and _type(before) == _type(after):
            is_telling = is_single or before not in ("", 0, 1, None, [], {})
            if is_telling and _are_equal(before, after) if by_value else _are_similar(old, new):
                pairs[old] = new
    return pairs


def _are_equal(before: object, after: object) -> bool:
    try:
        return before == after
    except RecursionError:  # nested too deep for ==
        return False


def _are_similar(*names: str) -> bool:
    before, after = (re.sub(r"[\W_]", "", name).lower() for name in names)
    return difflib.SequenceMatcher(None, before, after).ratio() >= _ALIKE


def _is_time_of(value: object, at: datetime | None) -> bool:
    """Return whether a value is the time of its own response, at most five minutes off.

    It may be an ISO 8601 text, or a number of seconds or milliseconds since 1970.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            value = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if at is None or type(value) not in (int, float):
            return False
        return any(abs(value / unit - at.timestamp()) <= _NEAR_S for unit in (1, 1000))  # type: ignore[operator]
    except (OverflowError, ValueError):
        return False
