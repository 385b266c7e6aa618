"""The parts in which a request differs from a recorded one: ``query: page``, ``body: name``."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping

from ..exchange.values import Request
from ..redaction.names import is_random
from .matching import Matching, Name, origin_parts, path_below_base, split_address

Differences = dict[str, tuple[object, object]]
"""For the name of each part that differs: the sent value and the recorded one."""

_LONGEST_PATH = 200
# A time, a number of seconds or milliseconds since 1970, or a UUID.
_CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.{0,30}|1\d{9}(?:\.\d+|\d{3})?"
    r"|(?i:[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})"
)
_SHORTEST_NONCE = 8
_KIND = "kind of body"


def place_of(request: Request, base_url: str) -> tuple[str, str, str]:
    """Return the origin, path and query of an address; below ``base_url`` the origin is empty.

    The path is in one spelling. It is cut at 200 characters, since comparing two paths takes time
    that grows with the square of their length.
    """
    query = request.uri.partition("#")[0].partition("?")[2]
    origin, path = split_address(request.uri)
    below = path_below_base(origin, path, base_url)
    if below is not None:
        return "", below[:_LONGEST_PATH], query
    return origin, path[:_LONGEST_PATH], query


def differences(
    matching: Matching, sent: tuple[Request, str], recorded: tuple[Request, str]
) -> Differences:
    """Return the parts that differ in two redacted requests, each given with its service address.

    If the method or the path differs, only these are returned: the parameters of two different
    operations say nothing.
    """
    places = place_of(*sent), place_of(*recorded)
    place: Differences = {}
    # Where two service addresses are does not count.
    if matching.compares_origin and (places[0][0] or places[1][0]):
        origins = [origin_parts(split_address(each.uri)[0]) for each, _ in (sent, recorded)]
        place |= _differing(*origins)
    if "path" in matching.names and places[0][1] != places[1][1]:
        place["path"] = places[0][1], places[1][1]
    ours = matching.parts(sent[0])
    theirs = matching.parts(recorded[0])
    found = _differing(_by_name(ours), _by_name(theirs))
    if "path" in place or "method" in found:
        return place | {name: pair for name, pair in found.items() if name == "method"}
    if _KIND in found:  # then its parts say nothing
        found = {name: pair for name, pair in found.items() if not name.startswith("body")}
    return place | found


def _differing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> Differences:
    return {
        name: (ours.get(name), theirs.get(name))
        for name in {**ours, **theirs}
        if name not in ours or name not in theirs or ours[name] != theirs[name]
    }


def _by_name(parts: Iterable[tuple[Name, Hashable]]) -> dict[str, object]:
    """Return parts by the names to show; one that is repeated has a list of its values."""
    values: dict[str, list[object]] = {}
    for name, value in parts:
        values.setdefault(_shown(*name), []).append(value)
    return {name: several if len(several) > 1 else several[0] for name, several in values.items()}


def _shown(kind: str | int, *names: str | int) -> str:
    """Return the name of a part: ``query: page``, ``body: to.name``, ``body: file name of f``."""
    match kind, *names:
        case ["kind"]:
            return _KIND
        case ["multipart", field, what]:
            return f"body: {what} of {field}"
        case ["JSON" | "form" | "multipart", *_]:
            path = ".".join(map(str, names))
            return f"body: {path}" if path else "body"
        case _:
            return ": ".join(map(str, (kind, *names)))


def changing_values(differing: Mapping[str, tuple[object, object]]) -> list[str]:
    """Return what to ignore if only times, UUIDs and nonces differ: ``query:timestamp``."""
    rules = []
    for name, pair in differing.items():
        kind, colon, field = name.partition(": ")
        if not colon or None in pair or not all(map(_is_changing, map(str, pair))):
            return []
        rules.append(f"{kind}:{field}")
    return rules


def _is_changing(text: str) -> bool:
    return bool(_CHANGING.fullmatch(text)) or (len(text) >= _SHORTEST_NONCE and is_random(text))
