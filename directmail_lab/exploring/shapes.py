"""The shape of JSON that was seen: a schema, and the same in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["fields_in_words", "json_of", "schema_of", "values_of"]

_MOST_FIELDS: Final = 30
_DEEPEST: Final = 20

NOT_JSON: Final = object()
"""What `json_of` gives for a body that is no JSON; None is JSON's null."""


def json_of(body: bytes) -> object:
    """Return what a body holds, or `NOT_JSON`."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return NOT_JSON
    return value


def schema_of(values: Iterable[object]) -> dict[str, Any] | None:
    """Return one JSON Schema that all the values meet; None where there was no value.

    A field that every object had is ``required``; one that was ever null has ``null`` among its
    types.
    """
    from genson import SchemaBuilder

    builder, any_seen = SchemaBuilder(), False
    for value in values:
        builder.add_object(value)
        any_seen = True
    return dict(builder.to_schema()) if any_seen else None


def fields_in_words(schema: Mapping[str, Any]) -> str:
    """Return a schema's fields and types on a line: ``id string, company.city string or null``."""
    fields = list(_fields(schema, "", 0))
    shown = ", ".join(f"{name} {kind}".strip() for name, kind in fields[:_MOST_FIELDS])
    more = len(fields) - _MOST_FIELDS
    return f"{shown}, and {more} more" if more > 0 else shown


def values_of(value: object, names: frozenset[str]) -> Iterator[str]:
    """Return the texts that fields of these names hold, at any depth."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from (each for name, each in one.items() if name in names and _is_word(each))
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value.replace("_", "").isalpha()


def _fields(schema: Mapping[str, Any], name: str, depth: int) -> Iterator[tuple[str, str]]:
    properties, items = schema.get("properties"), schema.get("items")
    if properties and depth < _DEEPEST:
        prefix = f"{name}." if name else ""
        required = schema.get("required", ())
        for each, inner in properties.items():
            optional = "" if each in required else "?"
            yield from _fields(inner, f"{prefix}{each}{optional}", depth + 1)
    elif items and depth < _DEEPEST:
        yield from _fields(items, f"{name}[]", depth + 1)
    else:
        yield name, _kind(schema)


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type") or [each.get("type", "anything") for each in schema.get("anyOf", ())]
    kinds = [kind] if isinstance(kind, str) else list(kind)
    # null last, and a type once: `string or null`
    ordered = sorted(dict.fromkeys(map(str, kinds)), key=lambda each: each == "null")
    return " or ".join(ordered) or "anything"
