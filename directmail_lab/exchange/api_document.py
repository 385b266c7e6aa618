"""The OpenAPI document that a session was given: its paths, and what its responses may be.

A session imports it only then, since jsonschema may be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from ..display import printable_line
from ..errors import DirectMailLabError
from .bodies import read_json_body, shown_missing
from .operations import base_path, below, first_fitting, pattern_of
from .values import Interaction, media_type_of

OpenApi = str | Path | Mapping[str, Any]
"""The path of a file, or what is in one."""


class ApiDocument:
    """An OpenAPI document of version 3.

    Parameters
    ----------
    given
        The path of a file in YAML or JSON, or what `directmail_lab.openapi` returned.
    base_url
        The session's base address. The templates are below it, as the paths of requests are.

    Attributes
    ----------
    templates
        The paths, those with fewer parameters first.

    Raises
    ------
    DirectMailLabError
        It cannot be read, or is no such document.
    """

    def __init__(self, given: OpenApi, base_url: str) -> None:
        self._root = _with_null(_document(given))
        prefix = urlsplit((self._root.get("servers") or [{}])[0].get("url", "")).path.rstrip("/")
        self._items: dict[str, Any] = {}
        for path, item in self._root["paths"].items():
            named = re.sub(r"[^\w{}/](?=[^{}]*})", "_", path)  # {list-id}
            self._items[below(prefix + named, base_path(base_url))] = self._resolved(item)
        self.templates = tuple(sorted(self._items, key=lambda template: template.count("{")))
        self._patterns = {template: pattern_of(template) for template in self.templates}

    def _resolved(self, node: Any) -> Any:
        """Return what a reference within the document refers to, or else the node itself."""
        if "$ref" not in node:
            return node
        found: Any = self._root
        for name in node["$ref"].removeprefix("#/").split("/"):
            found = found.get(name, {})
        return found

    def mismatch(self, path: str, interaction: Interaction) -> str | None:
        """Return why a response is none that the document describes; None if it is one."""
        method = interaction.request.method
        response = interaction.response
        if response.failure:
            return None
        item = self._items.get(first_fitting(path, self._patterns), {})
        operation = item.get(method.lower())
        if operation is None:
            return f"The document has no {method} of this path."
        responses = {str(status): each for status, each in operation.get("responses", {}).items()}
        status = str(response.status)
        others = responses.get(f"{status[0]}XX", responses.get("default"))
        found = responses.get(status, others)
        if found is None:
            return f"The document has no status {status} here."
        content = self._resolved(found).get("content")
        if not content or not response.body or shown_missing(response.body):
            return None
        media_type = media_type_of(response.headers)
        by_type = {name.partition(";")[0]: each for name, each in content.items()}
        known = by_type.get(media_type, by_type.get("*/*"))
        if known is None:
            return f"The document has no content type {media_type} here."
        schema = known.get("schema")
        if schema is None or "json" not in media_type:
            return None
        body, problem = read_json_body(response.headers, response.body)
        if problem:
            return f"The body {problem}."
        whole = {**schema, "components": self._root.get("components")}
        try:
            # With a registry, jsonschema requests no reference from a network.
            validator = Draft202012Validator(whole, registry=Registry())
            error = best_match(validator.iter_errors(body))
        except Exception as failure:  # a schema that is not valid may raise any
            return f"The document's schema cannot be used ({type(failure).__name__})."
        return error and printable_line(f"{error.json_path}: {error.message}")[:200]


def _with_null(node: Any) -> Any:
    """Return a document of OpenAPI 3.0 with schemas of 3.1: null is a type of its own there.

    It leaves out all that is true. A true ``exclusiveMinimum`` is no number, as 3.1 wants it, and
    ``uniqueItems`` is not checked.
    """
    if isinstance(node, list):
        return [_with_null(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {name: _with_null(each) for name, each in node.items() if each is not True}
    return {"anyOf": [plain, {"type": "null"}]} if node.get("nullable") is True else plain


def _document(given: OpenApi) -> dict[str, Any]:
    problem = "it is no OpenAPI document of version 3"
    try:
        found: Any = given
        if not isinstance(given, Mapping):
            path = Path(given).expanduser()
            load = json.loads if path.suffix == ".json" else yaml.safe_load
            found = load(path.read_text("utf-8-sig"))
        with suppress(KeyError, TypeError):
            if str(found["openapi"]).startswith("3.") and isinstance(found["paths"], dict):
                return dict(found)
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
    raise DirectMailLabError(
        f"openapi= is not usable: {problem}.",
        "Give the path of a file in YAML or JSON, or what openapi() returned.",
    )
