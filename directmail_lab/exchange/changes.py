"""What changed between the responses to the same requests: statuses, headers and fields of bodies.

Some values differ from call to call although nothing changed, such as request ids: see `VOLATILE`
and `PASSING_HEADERS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .bodies import decode_text, read_json_body, shown_missing
from .values import Interaction

Target = tuple[str, str]
"""What a request asks for: its path, and its query, or whatever else tells it from others."""

_Place = tuple[str, ...]
"""Where a value is: in which `Target`, then the names of members and the labels of elements."""

_CHANGING = (
    # Headers. X-RateLimit-Limit is not one of them: a changed allowance is worth reporting. A
    # content security policy may contain a nonce.
    "xratelimitremaining xratelimitreset date etag expires lastmodified contentsecuritypolicy "
    # Fields.
    "requestid traceid correlationid nonce csrftoken servertime currenttime timestamp now asof "
    "generatedat updatedat lastseen lastseenat lastlogin lastloginat lastactiveat lastusedat "
    "expiresat expiresin elapsed elapsedms durationms remaining requestcount requestsremaining"
)
VOLATILE = frozenset(_CHANGING.split())
"""Headers and fields, at any depth, whose value differs from call to call.

Only their presence and type are compared. A name is compared by its letters and digits in lower
case: ``updatedat`` stands for ``updated_at`` and ``updatedAt``.
"""

_COME_AND_GO = (
    # Set by caches, gateways and servers in between, on some responses and not on others.
    "age via x-cache x-cache-hits x-served-by x-timer cf-cache-status cf-ray alt-svc nel report-to "
    "server-timing x-runtime x-response-time retry-after set-cookie "
    # Identifiers of one request.
    "x-request-id request-id x-correlation-id x-trace-id traceparent tracestate x-amzn-requestid "
    "x-amzn-trace-id x-amz-cf-id x-b3-traceid "
    # About the connection and the encoding of the body (recordings keep bodies decoded).
    "connection keep-alive transfer-encoding content-encoding content-length vary accept-ranges"
)
PASSING_HEADERS = frozenset(_COME_AND_GO.split())
"""Headers, in lower case, that only some responses have; they say nothing about the service."""

_MOST_NAMED = 5
# Where the elements of an array are that have an id: on any page of a list.
_ANY_PAGE = "*"
_STATUS = "status code"  # a body may have a field ``status``
_TYPES = {bool: "boolean", dict: "object", int: "integer", list: "array", str: "string"}


def type_of(value: object) -> str:
    """Return JSON Schema's name for a value's type."""
    return "null" if value is None else _TYPES.get(type(value), "number")


@dataclass
class Change:
    """A kind of change in one place of the responses to an operation.

    ``path`` is ``status code``, ``header.etag``, a field's dotted path (``items[].address.city``),
    or ``$`` for a body as a whole. ``change`` is ``added``, ``removed``, ``retyped``,
    ``null-turned``, ``null-filled`` or ``changed``. ``count`` of the ``of`` values there changed
    so. The first one was ``was`` and is ``now``, or None.
    """

    path: str
    change: str
    was: object
    now: object
    count: int = 0
    of: int = 0


def changes(was: Mapping[Target, Interaction], now: Mapping[Target, Interaction]) -> list[Change]:
    """Return the changes between the responses to an operation's requests, given by their target.

    The elements of an array are matched by their ``id``, on whatever page of a list they are, or
    else by position. `VOLATILE` values are compared only by presence and type. A body that was not
    recorded, or not read to its end, is not compared. If the statuses differ and one of them is an
    error, only the statuses are compared.
    """
    old: dict[_Place, Any] = {}
    new: dict[_Place, Any] = {}
    for target in {**was, **now}:
        old_parts, new_parts = _parts_of_both(was.get(target), now.get(target))
        old.update(_places(target, old_parts))
        new.update(_places(target, new_parts))
    seen = Counter[_Place]()
    compared = Counter[_Place]()
    found: dict[tuple[_Place, str], Change] = {}
    for place in {**old, **new}:
        pattern = _pattern(place)
        seen[pattern] += 1
        if place in old and place in new:
            compared[pattern] += 1
        kind = _kind(place, old, new)
        if kind:
            first = Change(_text(pattern), kind, old.get(place), new.get(place))
            found.setdefault((pattern, kind), first).count += 1
    for (pattern, kind), change in found.items():
        if kind not in ("added", "removed"):
            change.of = compared[pattern]
        elif pattern[-1] == "[]":
            change.of = seen[pattern]
        else:
            change.of = compared[pattern[:-1]]
    return [*found.values(), *_uncompared(_by_pattern(old), _by_pattern(new), compared, seen)]


def _uncompared(
    old: dict[_Place, Any],
    new: dict[_Place, Any],
    compared: Mapping[_Place, int],
    seen: Mapping[_Place, int],
) -> Iterator[Change]:
    """Yield the changes of fields whose objects are new: a list may have other elements now."""
    for pattern in {**old, **new}:
        if compared[pattern[:-1]] or pattern[-1:] == ("[]",):
            continue
        kind = _kind(pattern, old, new)
        if kind in ("added", "removed", "retyped"):
            count = seen[pattern]
            was = old.get(pattern)
            now = new.get(pattern)
            yield Change(_text(pattern), kind, was, now, count, count)


def shape_change(was: Interaction, now: Interaction) -> str:
    """Return which fields came, went or have another type: ``"a is gone, items[].b is new"``.

    It is empty if the bodies have one shape, or if one of the responses is an error.
    """
    if was.response.body == now.response.body:
        return ""
    words = {"removed": "is gone", "added": "is new", "retyped": "has another type"}
    names = []
    for each in changes({("", ""): was}, {("", ""): now}):
        is_field = not each.path.startswith("header.") and not each.path.endswith("]")
        if is_field and each.change in words and each.count == each.of:
            names.append(f"{each.path.replace('$', 'the body')} {words[each.change]}")
    more = len(names) - _MOST_NAMED
    if more > 0:
        names[_MOST_NAMED:] = [f"{more} more"]
    return ", ".join(names)


def varies(name: str) -> bool:
    """Return whether a header's value differs from call to call."""
    return _is_volatile(name) or name.lower() in PASSING_HEADERS


def _is_volatile(name: str) -> bool:
    return re.sub(r"[^a-z0-9]", "", name.lower()) in VOLATILE


def _parts_of_both(
    was: Interaction | None, now: Interaction | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of two responses to compare with each other, or of the only one."""
    old = {} if was is None else _parts(was)
    new = {} if now is None else _parts(now)
    if was is None or now is None:
        return old, new
    statuses = {was.response.status, now.response.status}
    if len(statuses) == 2 and not all(0 < status < 400 for status in statuses):
        return {_STATUS: was.response.status}, {_STATUS: now.response.status}
    responses = (was.response, now.response)
    if any(each.cut or shown_missing(each.body) for each in responses):
        old.pop("body", None)
        new.pop("body", None)
    return old, new


def _parts(interaction: Interaction) -> dict[str, Any]:
    """Return the parts of a response to compare as one JSON value, with integers as numbers."""
    response = interaction.response
    headers: dict[str, Any] = {}
    for given, text in response.headers:
        name = given.lower()
        if name in headers:  # RFC 9110, section 5.2
            headers[name] = f"{headers[name]}, {text}"
        elif name not in PASSING_HEADERS:
            is_integer = re.fullmatch(r"-?\d{1,30}", text, re.ASCII)
            headers[name] = int(text) if is_integer else text
    parts: dict[str, Any] = {_STATUS: response.status, "header": headers}
    if interaction.request.method != "HEAD" and response.body:
        value, problem = read_json_body(response)
        parts["body"] = decode_text(response.body) if problem else value
    return parts


def _places(target: Target, parts: dict[str, Any]) -> dict[_Place, Any]:
    """Return each value of a response, at any depth, by its place."""
    places: dict[_Place, Any] = {}
    on_any_page = (target[0], _ANY_PAGE)
    waiting: list[tuple[_Place, Any]] = [(target, parts)] if parts else []
    while waiting:  # a loop: a body may be nested deeply
        place, value = waiting.pop()
        places[place] = value
        members: Mapping[str, Any] = {}
        if isinstance(value, dict):
            members = value
        elif isinstance(value, list):
            members = _elements(value)
            places[*on_any_page, *place[2:]] = value
        for name, member in reversed([*members.items()]):
            is_labelled = isinstance(value, list) and name.startswith("[id=")
            above = (*on_any_page, *place[2:]) if is_labelled else place
            waiting.append(((*above, name), member))
    return places


def _elements(values: list[Any]) -> dict[str, Any]:
    """Return the elements of an array by ``[id=7]`` or position."""
    elements: dict[str, Any] = {}
    for position, element in enumerate(values):
        number = element.get("id") if isinstance(element, dict) else None
        label = f"[id={number}]"
        if type(number) not in (int, str) or label in elements:
            label = f"[{position}]"
        elements[label] = element
    return elements


def _pattern(place: _Place) -> _Place:
    return tuple("[]" if name.startswith("[") else name for name in place[2:])


def _by_pattern(places: dict[_Place, Any]) -> dict[_Place, Any]:
    """Return for each pattern its first value that is not null, or else null."""
    values: dict[_Place, Any] = {}
    for place, value in places.items():
        pattern = _pattern(place)
        if values.get(pattern) is None:
            values[pattern] = value
    return values


def _kind(place: _Place, old: dict[_Place, Any], new: dict[_Place, Any]) -> str:
    """Return what has changed in a place, or nothing. What is in a removed object is not named."""
    if place in old and place in new:
        was = old[place]
        now = new[place]
        if _type(was) != _type(now):
            if now is None:
                return "null-turned"
            return "null-filled" if was is None else "retyped"
        is_value = not isinstance(was, dict | list)
        return "changed" if is_value and was != now and not _is_volatile(place[-1]) else ""
    parent = place[:-1]
    if parent not in old or parent not in new or _type(old[parent]) != _type(new[parent]):
        return ""
    return "removed" if place in old else "added"


def _type(value: object) -> str:
    """Return a value's JSON type; 1 and 1.0 are both numbers."""
    return type_of(value).replace("integer", "number")


def _text(pattern: _Place) -> str:
    """Return a pattern as text: ``lists[].name``, ``header.etag`` or ``status code``."""
    text = ".".join(pattern).replace(".[]", "[]")
    return re.sub(r"^body\.?", "", text) or "$"
