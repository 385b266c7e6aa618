"""What responses are like apart from their values: the JSON Schema of bodies, headers that count.

Shared by the questions that look into bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from ..cassettes import Recording
from ..current import describe as describe_source

_T = TypeVar("_T")
_K = TypeVar("_K")

ANY_NAME: Final = "{id}"
"""Stands for the names of fields that are values themselves, such as ids or e-mail addresses."""


_COME_AND_GO: Final = (
    # Set by caches, gateways and servers in between, on some responses and not on others.
    "age via x-cache x-cache-hits x-served-by x-timer cf-cache-status cf-ray alt-svc nel report-to "
    "server-timing x-runtime x-response-time retry-after set-cookie "
    # Identifiers of one request.
    "x-request-id request-id x-correlation-id x-trace-id traceparent tracestate x-amzn-requestid "
    "x-amzn-trace-id x-amz-cf-id x-b3-traceid "
    # About the connection and the encoding of the body (recordings keep bodies decoded).
    "connection keep-alive transfer-encoding content-encoding content-length vary accept-ranges"
)
PASSING_HEADERS: Final = frozenset(_COME_AND_GO.split())
"""Headers, in lower case, that come and go and say nothing about the service."""

_DEEPEST: Final = 30
_MOST_NAMES: Final = 200
_FORMATS: Final = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.I),
    "email": re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    "uri": re.compile(r"https?://[!-~]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I),
}
_TYPES: Final = {bool: "boolean", dict: "object", int: "integer", list: "array", str: "string"}
# Numbers, hex digits, UUIDs, texts with an "@" or a space, such as a person's name, telephone
# numbers, and redaction's "<…>".
_VALUE_AS_NAME: Final = re.compile(
    r"\d+|[0-9a-f-]{16,}|[^@\s]*[@\s].*|\+?[\d()/.-]{6,}|<.*>|\{id\}", re.IGNORECASE | re.DOTALL
)


def grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Return values by their key, in the order in which they came."""
    groups: dict[_K, list[_T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def type_of(value: object) -> str:
    """Return JSON Schema's name for a value's type."""
    return "null" if value is None else _TYPES.get(type(value), "number")


def is_value(name: str) -> bool:
    """Return whether the name of a field or parameter is itself a value, such as an id."""
    return _VALUE_AS_NAME.fullmatch(name) is not None


def schema_of(values: Sequence[object], *, depth: int = 0) -> dict[str, Any]:
    """Return a JSON Schema that all values match: types and fields, no ``enum`` and no example.

    A format is there if every text has it; a field is required if every object has it. Names of
    fields that are values are not told apart (``additionalProperties``), and nothing is said of
    what is deeper than 30.
    """
    types = {type_of(value) for value in values}
    if "number" in types:  # which includes integers
        types.discard("integer")
    names = sorted(types, key=lambda name: (name == "null", name))
    schema: dict[str, Any] = {"type": names[0] if len(names) == 1 else names} if names else {}
    formats = {_format_of(value) for value in values if isinstance(value, str)}
    if len(formats) == 1 and None not in formats:
        schema["format"] = formats.pop()
    if depth == _DEEPEST:
        return schema
    objects = [value for value in values if isinstance(value, dict)]
    for name, members in _fields(objects).items():
        inner = schema_of(members, depth=depth + 1)
        if name == ANY_NAME:
            schema["additionalProperties"] = inner
            continue
        schema.setdefault("properties", {})[name] = inner
        if len(members) == len(objects):
            schema.setdefault("required", []).append(name)
    elements = [element for value in values if isinstance(value, list) for element in value]
    if elements:
        schema["items"] = schema_of(elements, depth=depth + 1)
    return schema


def _fields(objects: Sequence[dict[str, object]]) -> dict[str, list[object]]:
    """Return the values of each field; of those whose name is a value, by ``ANY_NAME``.

    If three objects or more have no name in common, or there are more than 200 names, they are
    taken for values.
    """
    members = [member for each in objects for member in each.items()]
    fields = grouped(members, itemgetter(0))
    are_all_different = len(fields) == len(members) >= 3 and len(objects) >= 3
    are_values = are_all_different or len(fields) > _MOST_NAMES
    values: dict[str, list[object]] = {}
    for name, same in fields.items():
        key = ANY_NAME if are_values or is_value(name) else name
        values.setdefault(key, []).extend(value for _, value in same)
    return values


def _format_of(text: str) -> str | None:
    return next((name for name, pattern in _FORMATS.items() if pattern.fullmatch(text)), None)


def describe(schema: dict[str, Any]) -> str:
    """Return a schema on one line: ``id string, company.city? string or null``."""
    return ", ".join(_described(schema, "")) or "anything"


def _described(schema: dict[str, Any], path: str) -> list[str]:
    required = schema.get("required", ())
    parts = {
        f".{name}{'' if name in required else '?'}": part
        for name, part in schema.get("properties", {}).items()
    }
    others = {"additionalProperties": f".{ANY_NAME}", "items": "[]"}
    parts |= {name: schema[word] for word, name in others.items() if word in schema}
    leaves = [leaf for name, part in parts.items() for leaf in _described(part, path + name)]
    types = schema.get("type", [])
    words = types if isinstance(types, str) else " or ".join(types)
    return leaves or [f"{path} {words}".removeprefix(".").strip()]


def notes_on(recordings: Iterable[Recording]) -> list[str]:
    """Return what to say of recordings: of what session, and how many bodies it kept."""
    notes = []
    for recording in recordings:
        notes += describe_source(recording)["notes"]
        kept = sum(map(recording.has_bodies, range(1, len(recording) + 1)))
        if kept < len(recording):
            notes.append(f"{recording.name}: bodies of the last {kept:,} of {len(recording):,}.")
    return notes
