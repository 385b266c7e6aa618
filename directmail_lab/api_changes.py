"""What changed between two OpenAPI documents, for a caller of the service: `api_changes`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import yaml

from .display import readable
from .errors import DirectMailLabError

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_DTYPES: Final[dict[str, Any]] = {
    "breaking": "bool", "operation": "string", "part": "string", "path": "string",
    "change": "string", "was": "string", "now": "string",
}  # fmt: skip
_DEEPEST: Final = 40

_Key = tuple[str, str, str]
"""A place in a document: the operation, its part (``200 application/json``), the field's path."""


@dataclass(frozen=True, slots=True)
class _Fact:
    """What a document says about one place; ``is_sent``: it belongs to the request."""

    types: frozenset[str] = frozenset()
    is_required: bool = True
    is_sent: bool = False
    is_error: bool = False

    def __str__(self) -> str:
        return " or ".join(sorted(self.types, key=lambda each: (each == "null", each)))


def api_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> pd.DataFrame:
    """Return the differences between two OpenAPI documents, one row each, breaking ones first.

    A change is breaking if a caller that follows the old document may now fail: a part is no longer
    there, a field of an answer may be missing or has another type, or a request needs more than
    before. How often each part was seen (``x-seen``) is not compared.

    Returns
    -------
    DataFrame
        ``breaking`` (bool), ``operation``, ``part`` (``200 application/json``, ``query parameter``;
        empty for the operation as a whole), ``path`` (of a field, or a name), ``change``, ``was``
        and ``now`` (types; string). No rows where nothing differs.
    """
    was, now = dict(_facts(old)), dict(_facts(new))
    rows = []
    for key in {**was, **now}:
        before, after = was.get(key), now.get(key)
        # Where a whole operation or object is new or gone, its fields get no rows of their own.
        if any((above in was) != (above in now) for above in _above(key)):
            continue
        rows += [
            (breaks, *key, change, str(before or ""), str(after or ""))
            for breaks, change in _changes(before, after)
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
        document = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        raise DirectMailLabError(
            f"{path} is not a file that holds an OpenAPI document. Make one with "
            "directmail-lab cassette openapi NAME --out api.yaml."
        )
    return document


def written(document: Mapping[str, Any], *, as_json: bool = False) -> str:
    """Return a document as the text of a file, YAML or JSON."""
    if as_json:
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100)


def _changes(before: _Fact | None, after: _Fact | None) -> Iterator[tuple[bool, str]]:
    """Yield the changes at one place: whether each one is breaking, and its name."""
    if before is None or after is None:
        if after is not None:
            yield after.is_sent and after.is_required, "new"
        elif before is not None:
            yield not before.is_error, "no longer seen"
        return
    if before.types != after.types:
        narrow, wide = (before, after) if after.is_sent else (after, before)
        yield not _is_within(narrow.types, wide.types), "another type"
    if before.is_required != after.is_required:
        change = "always there" if after.is_required else "may be missing"
        yield after.is_sent == after.is_required, change


def _is_within(narrow: frozenset[str], wide: frozenset[str]) -> bool:
    """Return whether ``wide`` allows all that ``narrow`` does; an empty set allows any type."""
    named = wide | ({"integer"} if "number" in wide else set())
    plain = {each.partition(" ")[0] for each in narrow - named}
    return not wide or (bool(narrow) and plain <= named)


def _above(key: _Key) -> Iterator[_Key]:
    """Yield the places that contain this one: its operation, its part, and the fields around it."""
    operation, part, path = key
    if part:
        yield operation, "", ""
        yield from [(operation, part.partition(" ")[0], "")] * (" " in part)
    while path:
        cut = max(path.rfind("."), path.rfind("["), 0)
        path = path[:cut]
        yield operation, part, path


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[_Key, _Fact]]:
    for template, item in document.get("paths", {}).items():
        for method in METHODS:
            if method in item:
                operation = f"{method.upper()} {template}"
                yield (operation, "", ""), _Fact()
                yield from _parts(operation, item, item[method], document)


def _parts(
    operation: str, item: Mapping[str, Any], told: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[tuple[_Key, _Fact]]:
    for each in (*item.get("parameters", ()), *told.get("parameters", ())):
        parameter = _resolved(each, document)
        part, types = f"{parameter['in']} parameter", _types(parameter.get("schema", {}))
        required = parameter.get("required", False)
        yield (operation, part, parameter["name"]), _Fact(types, required, is_sent=True)
    body = _resolved(told.get("requestBody", {}), document)
    for media, content in body.get("content", {}).items():
        nodes = _nodes(content.get("schema", {}), document, required=body.get("required", False))
        for path, types, required in nodes:
            yield (operation, f"request {media}", path), _Fact(types, required, is_sent=True)
    for status, each in told.get("responses", {}).items():
        answer, is_error = _resolved(each, document), status[0] in "45d"
        yield (operation, status, ""), _Fact(is_error=is_error)
        for name, known in answer.get("headers", {}).items():
            header = _resolved(known, document)
            types, required = _types(header.get("schema", {})), header.get("required", False)
            fact = _Fact(types, required, is_error=is_error)
            yield (operation, f"{status} header", name.lower()), fact
        for media, content in answer.get("content", {}).items():
            for path, types, required in _nodes(content.get("schema", {}), document):
                fact = _Fact(types, required, is_error=is_error)
                yield (operation, f"{status} {media}", path), fact


def _nodes(
    schema: Any, document: Mapping[str, Any], path: str = "", *, required: bool = True
) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Yield each field of a schema: its path, its types, and whether it is always there."""
    told = _resolved(schema, document)
    if not isinstance(told, Mapping) or path.count(".") + path.count("[") > _DEEPEST:
        return
    parts = [_resolved(each, document) for each in told.get("allOf", ())]
    types = [_types(each) for each in (told, *parts) if each.get("type")]
    yield path, types[0] if types else frozenset(), required
    for part in (told, *parts):
        always = part.get("required", ())
        for name, each in part.get("properties", {}).items():
            below = f"{path}.{name}" if path else name
            yield from _nodes(each, document, below, required=name in always)
        if "items" in part:
            yield from _nodes(part["items"], document, f"{path}[]")
        if isinstance(part.get("additionalProperties"), Mapping):
            yield from _nodes(part["additionalProperties"], document, f"{path}[id]")


def _types(schema: Any) -> frozenset[str]:
    """Return a schema's types, with formats: ``string (date)``; empty where any type may be."""
    types = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    names = [types] if isinstance(types, str) else types
    form = f" ({schema['format']})" if names and "format" in schema else ""
    return frozenset(f"{name}{form}" if name == "string" else name for name in names)


def _resolved(part: Any, document: Mapping[str, Any]) -> Any:
    """Return a part of a document, or what its ``$ref`` refers to in the same document."""
    for _ in range(_DEEPEST):
        reference = part.get("$ref") if isinstance(part, Mapping) else None
        if not isinstance(reference, str):
            return part
        part = document
        for name in reference.removeprefix("#/").split("/"):
            key = name.replace("~1", "/").replace("~0", "~")
            part = part.get(key, {}) if isinstance(part, Mapping) else {}
    return {}
