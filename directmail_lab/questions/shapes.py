"""The structure of responses: JSON Schemas of their bodies.

The questions that look into bodies share this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..cassettes import Recording
from ..exchange.bodies import is_usual_list
from ..exchange.changes import type_of
from ..exchange.operations import singular
from .sources import describe as describe_source

_T = TypeVar("_T")
_K = TypeVar("_K")
Schema = dict[str, Any]

ANY_NAME = "{id}"
"""Replaces field names that are values themselves, such as ids or e-mail addresses."""


_DEEPEST = 30
_MOST_NAMES = 200
_FORMATS = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.I),
    "email": re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    "uri": re.compile(r"https?://[!-~]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I),
}
# Numbers, hex digits, UUIDs, texts with an "@" or a space, such as a person's name, telephone
# numbers, and redaction's "<…>".
_VALUE_AS_NAME = re.compile(
    r"\d+|[0-9a-f-]{16,}|[^@\s]*[@\s].*|\+?[\d()/.-]{6,}|<.*>|\{id\}", re.IGNORECASE | re.DOTALL
)


def grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Return the values grouped by their key, in their original order."""
    groups: dict[_K, list[_T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def is_value(name: str) -> bool:
    """Return whether the name of a field or parameter is itself a value, such as an id."""
    return _VALUE_AS_NAME.fullmatch(name) is not None


def schema_of(values: Sequence[object], *, depth: int = 0) -> Schema:
    """Return a JSON Schema that all values match, with types and fields but no values.

    It states a format if every text has it, and requires a field if every object has it. Field
    names that are values themselves become ``additionalProperties``. It describes 30 levels.
    """
    schema = _typed(map(type_of, values))
    texts = [value for value in values if isinstance(value, str)]
    first = _format_of(texts[0]) if texts else None
    if first is not None and all(_format_of(text) == first for text in texts):
        schema["format"] = first
    if depth == _DEEPEST:
        return schema
    objects = [value for value in values if isinstance(value, dict)]
    for name, members in _fields(objects).items():
        inner = schema_of([value for _, value in members], depth=depth + 1)
        if name == ANY_NAME:
            schema["additionalProperties"] = inner
            continue
        schema.setdefault("properties", {})[name] = inner
        if len(members) == len(objects):
            schema.setdefault("required", []).append(name)
    elements = [each for value in values if isinstance(value, list) for each in value]
    if elements:
        schema["items"] = schema_of(elements, depth=depth + 1)
    return schema


def _typed(types: Iterable[str]) -> Schema:
    """Return the schema of values of these types: a sorted list, with null last."""
    names = set(types)
    if "number" in names:  # which includes integers
        names.discard("integer")
    if not names:
        return {}
    return {"type": sorted(names, key=lambda name: (name == "null", name))}


def _fields(objects: Sequence[dict[str, object]]) -> dict[str, list[tuple[str, object]]]:
    """Return the members of objects by name, or by ``ANY_NAME`` if the name is a value.

    If three objects or more have no name in common, or if there are more than 200 names, every
    name counts as a value.
    """
    members = [member for each in objects for member in each.items()]
    names = {name for name, _ in members}
    is_each_different = len(names) == len(members) and min(len(names), len(objects)) >= 3
    are_values = is_each_different or len(names) > _MOST_NAMES
    keys = {name: ANY_NAME if are_values or is_value(name) else name for name in names}
    return grouped(members, lambda member: keys[member[0]])


def _format_of(text: str) -> str | None:
    return next((name for name, pattern in _FORMATS.items() if pattern.fullmatch(text)), None)


# -- each object once --------------------------------------------------------------------------


class Components(dict[str, Schema]):
    """Schemas of objects by name, with one schema for each kind of object."""

    def refer(self, schema: Schema, name: str, kind: str = "") -> Schema:
        """Return a schema whose objects are references to components, named after ``name``.

        For a whole body, ``kind`` is given. It is appended to the name if another component has
        that name, and an array becomes a component too. A reference keeps its type beside it until
        `resolved` removes it.
        """
        if "items" in schema:
            schema = schema | {"items": self.refer(schema["items"], singular(name))}
        if "properties" in schema:
            fields = {
                field: self.refer(part, name if is_usual_list(field) else field)
                for field, part in schema["properties"].items()
            }
            schema = schema | {"properties": fields}
        types = [each for each in schema.get("type", ()) if each != "null"]
        is_named = "properties" in schema or (kind and "$ref" in schema.get("items", ()))
        if len(types) != 1 or not is_named:
            return schema
        key = self._key(schema | {"type": types}, name, kind)
        return {"type": schema["type"], "$ref": f"#/components/schemas/{key}"}

    def _key(self, schema: Schema, name: str, kind: str) -> str:
        """Return the name of the component that this schema merges with, or of a new one."""
        for key, other in self.items():
            merged = _merged(other, schema)
            if merged:
                self[key] = merged
                return key
        word = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))
        endings = ["", kind, *range(2, len(self) + 3)]
        names = [f"{word}{ending}" for ending in endings]
        key = next(name for name in names if name and name not in self)
        self[key] = schema
        return key


def _merged(one: Schema, other: Schema) -> Schema | None:
    """Return the schema that the values of both match, or None if they describe different things.

    Two schemas describe one thing if they differ only in null, formats and optional fields.
    """
    types = set(one.get("type", ())) - {"null"}
    other_types = set(other.get("type", ())) - {"null"}
    merged = one | other | _typed([*one.get("type", ()), *other.get("type", ())])
    if not types or not other_types:
        return merged
    fields = one.get("properties", {})
    other_fields = other.get("properties", {})
    both = {
        name: _merged(fields[name], other_fields[name]) for name in fields if name in other_fields
    }
    items = _merged(one.get("items", {}), other.get("items", {}))
    required = one.get("required", [])
    other_required = other.get("required", [])
    are_of_one_thing = (
        (types == other_types or types | other_types == {"integer", "number"})
        and one.get("$ref") == other.get("$ref")
        and one.get("additionalProperties") == other.get("additionalProperties")
        and both.keys() >= {*required, *other_required}
        and items is not None
        and None not in both.values()
    )
    if not are_of_one_thing:
        return None
    if one.get("format") != other.get("format"):
        del merged["format"]
    merged["items"] = items
    merged["properties"] = fields | other_fields | both
    merged["required"] = [name for name in required if name in other_required]
    return {word: value for word, value in merged.items() if value}


def resolved(value: Any) -> Any:
    """Return a document with its references and types in the form that people write.

    A value that was always null gets no type, since nothing else is known about it. An array whose
    elements were never seen gets ``items: {}``: client generators leave out operations without it.
    """
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    written = {name: resolved(each) for name, each in value.items()}
    types = value.get("type")
    if not isinstance(types, list):  # no schema, or a field of this name
        return written
    if "$ref" in value:
        reference = {"$ref": value["$ref"]}
        return {"anyOf": [reference, {"type": "null"}]} if "null" in types else reference
    if "array" in types:
        written.setdefault("items", {})
    if types == ["null"]:
        del written["type"]
    elif len(types) == 1:
        written["type"] = types[0]
    return written


def notes_on(recordings: Iterable[Recording]) -> list[str]:
    """Return notes on recordings: which session made them, and how many bodies it kept."""
    notes = []
    for recording in recordings:
        notes += describe_source(recording)["notes"]
        count = len(recording)
        kept = [number for number in range(1, count + 1) if recording.has_bodies(number)]
        if len(kept) < count:
            notes.append(f"{recording.name}: bodies of the last {len(kept):,} of {count:,}.")
    return notes
