"""What changed between two OpenAPI documents, for a caller of the service: `api_changes`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import yaml

from ..display import readable
from ..errors import DirectMailLabError
from ..interaction import ODD

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_DTYPES: Final[dict[str, Any]] = {
    "breaking": "bool", "operation": "string", "part": "string", "path": "string",
    "change": "string", "was": "string", "now": "string",
}  # fmt: skip
_DEEPEST: Final = 5

_Key = tuple[str, str, str]
"""A place in a document: the operation, its part (``200 application/json``), the field's path."""


@dataclass(frozen=True, slots=True)
class _Fact:
    """What a document says about one place; ``parent`` is the place that contains it."""

    parent: _Key
    types: frozenset[str] = frozenset()
    is_required: bool = True

    def __str__(self) -> str:
        return " or ".join(sorted(self.types, key=lambda name: (name == "null", name)))


def api_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> pd.DataFrame:
    """Return the differences between two OpenAPI documents, one row each, breaking ones first.

    A change is breaking if a caller that follows the old document may now fail: a part that was
    always there is not seen any more, a field of a response may be missing or has another type, or
    a request needs more than before. How often each part was seen (``x-seen``) is not compared, nor
    the format of a number. A ``$ref`` to another file allows any type.

    Returns
    -------
    DataFrame
        ``breaking`` (bool), ``operation``, ``part`` (``200 application/json``, ``query parameter``;
        empty for the operation as a whole), ``path`` (of a field, or a name), ``change``, ``was``
        and ``now`` (types; string). No rows where nothing differs.
    """
    before, after = _facts(old), _facts(new)
    rows = [
        (is_breaking, *key, change, str(before.get(key, "")), str(after.get(key, "")))
        for key, fact in {**before, **after}.items()
        # Where a whole operation or object is new or missing, its fields have no rows of their own.
        if fact.parent == key or (fact.parent in before and fact.parent in after)
        for is_breaking, change in _changes(key, before.get(key), after.get(key))
    ]
    frame = pd.DataFrame(rows, columns=list(_DTYPES)).astype(_DTYPES)
    return readable(
        frame.sort_values("breaking", ascending=False, kind="stable", ignore_index=True)
    )


def read_document(path: Path) -> dict[str, Any]:
    """Return the OpenAPI document of a YAML or JSON file.

    Raises
    ------
    DirectMailLabError
        There is no such file, or it holds no OpenAPI document.
    """
    try:
        document: dict[str, Any] = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
        _facts(document)  # reads every part that is compared
    except (OSError, yaml.YAMLError, *ODD):
        raise DirectMailLabError(
            f"{path} is not a file that holds an OpenAPI document. Make one with "
            "directmail-lab cassette openapi NAME --out api.yaml."
        ) from None
    return document


def written(document: Mapping[str, Any], *, as_json: bool = False) -> str:
    """Return a document as the text of a file, YAML or JSON."""
    if as_json:
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100)


def _changes(key: _Key, was: _Fact | None, now: _Fact | None) -> Iterator[tuple[bool, str]]:
    """Yield the changes at one place: whether each one is breaking, and its name."""
    _, part, path = key
    is_sent = part.startswith("request ") or part.endswith(" parameter")
    if was is None or now is None:
        if now is not None:
            yield is_sent and now.is_required, "new"
        elif was is not None:
            # An error, or a field that was missing at times, is one that callers can do without.
            is_error = not path and part.startswith(("4", "5", "default"))
            yield is_sent or (was.is_required and not is_error), "no longer seen"
        return
    if was.types != now.types:
        narrow, wide = (was, now) if is_sent else (now, was)
        yield not _is_within(narrow.types, wide.types), "another type"
    if was.is_required != now.is_required:
        yield is_sent == now.is_required, "always there" if now.is_required else "may be missing"


def _is_within(narrow: frozenset[str], wide: frozenset[str]) -> bool:
    """Return whether ``wide`` allows all that ``narrow`` does; an empty set allows any type."""
    allowed = wide | ({"integer"} if "number" in wide else set())
    without_format = {name.partition(" ")[0] for name in narrow - allowed}
    return not wide or (bool(narrow) and without_format <= allowed)


# -- what a document says ----------------------------------------------------------------------


def _facts(document: Mapping[str, Any]) -> dict[_Key, _Fact]:
    facts = {}
    for template, item in _inlined(document["paths"], document).items():
        for method in METHODS:
            if method in item:
                key = f"{method.upper()} {template}", "", ""
                facts[key] = _Fact(key)
                facts.update(_parts(key, item[method], item.get("parameters", [])))
    return facts


def _parts(
    parent: _Key, operation: Mapping[str, Any], shared_parameters: list[Any]
) -> Iterator[tuple[_Key, _Fact]]:
    name, body = parent[0], operation.get("requestBody", {})
    for parameter in shared_parameters + operation.get("parameters", []):
        key = name, f"{parameter['in']} parameter", parameter["name"]
        yield from _fields(key, parent, parameter)
    for media_type, content in body.get("content", {}).items():
        key = name, f"request {media_type}", ""
        yield from _fields(key, parent, {"required": body.get("required"), **content})
    for code, response in operation.get("responses", {}).items():
        status = str(code)  # YAML reads 200 without quotes as a number
        key = name, status, ""
        yield key, _Fact(parent)
        for header, about in response.get("headers", {}).items():
            yield from _fields((name, f"{status} header", header.lower()), key, about)
        for media_type, content in response.get("content", {}).items():
            about = {"required": True, **content}
            yield from _fields((name, f"{status} {media_type}", ""), key, about)


def _fields(key: _Key, parent: _Key, about: Mapping[str, Any]) -> Iterator[tuple[_Key, _Fact]]:
    """Yield the fact of a parameter, header, body or field, and of the fields in its schema."""
    operation, part, path = key
    schemas = [about.get("schema")]
    types, inner = frozenset[str](), dict[str, tuple[object, bool]]()
    for schema in schemas:
        if not isinstance(schema, Mapping):  # True allows any value
            continue
        schemas += schema.get("allOf", ())
        types = types or _types(schema)
        for name, value in schema.get("properties", {}).items():
            is_required = name in schema.get("required", ())
            inner[f"{path}.{name}" if path else name] = value, is_required
        for name, suffix in (("items", "[]"), ("additionalProperties", "[id]")):
            if isinstance(schema.get(name), Mapping):
                inner[path + suffix] = schema[name], True
    yield key, _Fact(parent, types, bool(about.get("required")))
    for place, (value, is_required) in inner.items():
        field = {"schema": value, "required": is_required}
        yield from _fields((operation, part, place), key, field)


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return a schema's types, with formats: ``string (date)``; empty if any type is allowed."""
    types = schema.get("type", ())
    names = [types] if isinstance(types, str) else [*types]
    if names and schema.get("nullable") is True:  # OpenAPI 3.0
        names.append("null")
    text = f"string ({schema['format']})" if "format" in schema else "string"
    return frozenset(text if name == "string" else name for name in names)


def _inlined(node: Any, document: Mapping[str, Any], parents: Set[str] = frozenset()) -> Any:
    """Return a part of a document with the target of each ``$ref`` in its place.

    Any type is allowed where a schema contains itself, is in another file, or is referred to
    through more than five others.
    """
    if isinstance(node, list):
        return [_inlined(item, document, parents) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return {name: _inlined(value, document, parents) for name, value in node.items()}
    target: Any = {} if reference in parents or len(parents) == _DEEPEST else document
    for name in reference.removeprefix("#/").split("/"):
        name = name.replace("~1", "/").replace("~0", "~")
        target = target.get(name, {}) if isinstance(target, Mapping) else {}
    return _inlined(target, document, parents | {reference})
