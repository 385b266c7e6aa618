"""An OpenAPI 3.1 document made from recordings: `openapi`.

It describes only what was recorded: types, no values and no ``enum``; a format only if every value
has it. A field is required if every recorded object has it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from .bodies import json_in
from .cassettes import find_cassette, read_cassette
from .comparison import PASSING_HEADERS
from .contract import HEADERS
from .current import session
from .errors import CassetteError
from .interaction import Headers, Interaction, base_path, header, operation_of, path_below
from .redaction import Redactor, secrets_in
from .shapes import ANY_NAME, Shape, name_of

_METHODS: Final = frozenset("GET PUT POST DELETE OPTIONS HEAD PATCH TRACE".split())  # noqa: SIM905
# Response headers that OpenAPI describes elsewhere, or that say nothing about the service.
_LEFT_OUT: Final = PASSING_HEADERS | {"content-type", "date", "server"}
# Request headers that a caller chooses, in contrast to those that an HTTP library adds.
_OWN_HEADER: Final = re.compile(r"(?!x-forwarded)(x-.+|prefer|idempotency-key|if-.+)")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_ANY_MEDIA_TYPE: Final = "*/*"
_FORM: Final = "application/x-www-form-urlencoded"
_NOT_JSON: Final = "not JSON"
_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,300}\.\d{1,300}", re.ASCII)
_RATE_LIMITS: Final = {name.lower(): name for name in HEADERS}
_MEANINGS: Final = (
    "The number of requests allowed in the window.",
    "The number of requests still available in the current window.",
    "When the allowance renews.",
)

Place = tuple[str, ...]
"""A part of the document: ``("GET", "/v1/lists/{id}", "responses", "200", "headers", "etag")``."""


def openapi(
    cassettes: str | Path | Iterable[str | Path] | None = None, *, examples: bool = False
) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document that describes what cassettes contain; nothing is sent.

    Parameters
    ----------
    cassettes
        A cassette's name or `Path`, or several of them; by default the current session's cassette.
    examples
        Include the earliest body of each kind as an example, with personal data redacted. Without
        it the document contains no field value that the service sent.

    Returns
    -------
    dict
        JSON values, for ``json.dumps`` or ``yaml.safe_dump``. In paths, segments that look like ids
        become ``{id}``, ``{id_2}``; ``x-seen`` says how often a part was seen, ``x-not-json`` how
        many bodies were declared as JSON and were not; ``servers`` are the base addresses.

    Raises
    ------
    CassetteError
        A cassette cannot be found or read, the session has none, or there are no interactions.
    """
    if cassettes is None:
        opened = session().open_cassette
        if opened is None:
            raise CassetteError('No cassette is in use. Name one: openapi("first-look").')
        cassettes = opened.path
    names = [cassettes] if isinstance(cassettes, str | Path) else list(cassettes)
    description = Description()
    for name in names:
        is_file = isinstance(name, Path) and name.is_file()
        path = Path(name) if is_file else find_cassette(name)
        description.merge(describe(path, examples=examples))
    if not description.counts:
        told = ", ".join(map(str, names))
        raise CassetteError(f"There are no interactions in {told or 'no cassette'} to describe.")
    return description.document()


def describe(path: Path, *, examples: bool = False) -> Description:
    """Return the description of one cassette file; `Description.merge` combines several."""
    loaded, description = read_cassette(path), Description()
    held: Iterable[Interaction] = loaded.interactions
    if loaded.foreign or examples:
        rules = ["personal"] if examples else ()
        held = map(Redactor(secrets_in(held), redact=rules).interaction, held)
    for each in held:
        description.add(each, base_url=loaded.base_url or "", example=examples)
    return description


@dataclass(slots=True)
class Description:
    """What `openapi` needs to know about interactions; the order of merging does not matter.

    Attributes
    ----------
    counts
        How often each part of the document was seen.
    shapes
        The types of the values there: of bodies, and of parameters and headers.
    servers
        How many interactions there were with each base address.
    examples
        The earliest body at each place: its time (ISO 8601) and its JSON.
    """

    counts: Counter[Place] = field(default_factory=Counter)
    shapes: dict[Place, Shape] = field(default_factory=dict)
    servers: Counter[str] = field(default_factory=Counter)
    examples: dict[Place, tuple[str, str]] = field(default_factory=dict)

    def add(self, interaction: Interaction, *, base_url: str, example: bool = False) -> None:
        """Add one interaction with the service at ``base_url``."""
        request, response = interaction.request, interaction.response
        self.servers[base_url] += 1
        path = path_below(request.uri, base_path(base_url))
        template, ids = _template(path if path.startswith("/") else f"/{path}")
        operation = (request.method, template)
        self.counts[operation] += 1
        query = parse_qsl(urlsplit(request.uri).query, keep_blank_values=True)
        self._add_texts((*operation, "path"), ids)
        self._add_texts((*operation, "query"), query)
        asked = ((name.lower(), value) for name, value in request.headers)
        self._add_texts(
            (*operation, "header"), filter(lambda e: _OWN_HEADER.fullmatch(e[0]), asked)
        )
        status = str(response.status) if 100 <= response.status < 600 else "default"
        answer = (*operation, "responses", status)
        self.counts[answer] += 1
        told = ((name.lower(), value) for name, value in response.headers)
        self._add_texts((*answer, "headers"), filter(lambda e: e[0] not in _LEFT_OUT, told))
        at = interaction.recorded_at.isoformat() if example and interaction.recorded_at else ""
        self._add_body((*operation, "body"), request.headers, request.body or b"", at, example)
        if request.method != "HEAD":
            self._add_body((*answer, "content"), response.headers, response.body, at, example)

    def _add_texts(self, place: Place, texts: Iterable[tuple[str, str]]) -> None:
        """Add the names and values of parameters or headers; a name may occur several times."""
        times = Counter[str]()
        for name, text in texts:
            if name_of(name) == ANY_NAME:
                continue  # "?ada@example.com" has a value where a name belongs: not a parameter
            times[name] += 1
            self.shapes.setdefault((*place, name), Shape()).add(_value_of(text))
        self.counts.update((*place, name) for name in times)
        self.counts.update((*place, name, "repeated") for name in times if times[name] > 1)

    def _add_body(
        self, place: Place, headers: Headers, body: bytes, at: str, example: bool
    ) -> None:
        declared = (header(headers, "Content-Type") or "").partition(";")[0].strip().lower()
        place = (*place, declared if _MEDIA_TYPE.fullmatch(declared) else _ANY_MEDIA_TYPE)
        if not body:
            return
        self.counts[place] += 1
        value, problem = json_in(headers, body)
        is_text = "json" not in place[-1] and not isinstance(value, dict | list)
        if declared == _FORM:
            text = body.decode("utf-8", "replace")
            self._add_texts((*place, "form"), parse_qsl(text, keep_blank_values=True))
        elif problem is not None or is_text:
            self.counts[*place, _NOT_JSON] += 1
        else:
            self.shapes.setdefault(place, Shape()).add(value)
            if example:
                shown = (at, json.dumps(value, ensure_ascii=False))
                self.examples[place] = min(shown, self.examples.get(place, shown))

    def merge(self, other: Description) -> None:
        """Add all that another description was made from."""
        self.counts.update(other.counts)
        self.servers.update(other.servers)
        for place, shape in other.shapes.items():
            self.shapes.setdefault(place, Shape()).merge(shape)
        for place, example in other.examples.items():
            self.examples[place] = min(example, self.examples.get(place, example))

    # -- the document --------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        paths: dict[str, dict[str, Any]] = {}
        other: dict[str, int] = {}
        parts = _tree(self.counts)
        for method, template in sorted(place for place in self.counts if len(place) == 2):
            seen = self.counts[method, template]
            if method in _METHODS:
                told = self._operation((method, template), parts[method][template], seen)
                paths.setdefault(template, {})[method.lower()] = told
            else:
                other[f"{method} {template}"] = seen
        total = sum(self.servers.values())
        document = {
            "openapi": "3.1.0",
            "info": {
                "title": "The service, as it was recorded",
                "version": "0",
                "description": f"Made from {total} recorded interactions. What was not seen is "
                "not here; x-seen says how often each part was.",
            },
            "servers": [{"url": url, "x-seen": self.servers[url]} for url in sorted(self.servers)],
            "security": [{"basic": []}],
            "paths": paths,
            "components": {
                "securitySchemes": {
                    "basic": {
                        "type": "http",
                        "scheme": "basic",
                        "description": "The user name is the API key; the password is empty.",
                    }
                },
                "headers": self._rate_limits(),
                "schemas": self._envelope(),
            },
        }
        return {**document, "x-not-described": other} if other else document

    def _operation(self, place: Place, parts: _Tree, seen: int) -> dict[str, Any]:
        parameters = [
            {
                "name": name,
                "in": where,
                "required": where == "path" or self.counts[*place, where, name] == seen,
                **self._text((*place, where, name)),
            }
            for where in ("path", "query", "header")
            for name in sorted(parts.get(where, ()))
        ]
        operation: dict[str, Any] = {"x-seen": seen}
        if parameters:
            operation["parameters"] = parameters
        if bodies := parts.get("body"):
            sent = sum(self.counts[*place, "body", media] for media in bodies)
            content = self._content((*place, "body"), bodies)
            operation["requestBody"] = {"required": sent == seen, "content": content}
        operation["responses"] = {
            status: self._response((*place, "responses", status), told)
            for status, told in sorted(parts["responses"].items())
        }
        return operation

    def _response(self, place: Place, parts: _Tree) -> dict[str, Any]:
        status, seen = place[-1], self.counts[place]
        known = status.isdigit() and int(status) in {each.value for each in HTTPStatus}
        headers = {
            _RATE_LIMITS.get(name, name): {"$ref": f"#/components/headers/{_RATE_LIMITS[name]}"}
            if name in _RATE_LIMITS
            else {
                "required": self.counts[*place, "headers", name] == seen,
                **self._text((*place, "headers", name)),
            }
            for name in sorted(parts.get("headers", ()))
        }
        response: dict[str, Any] = {
            "description": HTTPStatus(int(status)).phrase if known else "Another status",
            "x-seen": seen,
        }
        if headers:
            response["headers"] = headers
        if bodies := parts.get("content"):
            response["content"] = self._content((*place, "content"), bodies)
        return response

    def _content(self, place: Place, bodies: Iterable[str]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for media in sorted(bodies):
            at = (*place, media)
            told = content[media] = {"x-seen": self.counts[at], "schema": self._schema(at)}
            not_json = self.counts[*at, _NOT_JSON]
            if not_json and "json" in media:
                told["x-not-json"] = not_json
            if at in self.examples:
                told["example"] = json.loads(self.examples[at][1])
        return content

    def _schema(self, place: Place) -> dict[str, Any]:
        fields = sorted({each[-1] for each in self.shapes if each[:-1] == (*place, "form")})
        if fields:
            required = [
                name for name in fields if self.counts[*place, "form", name] == self.counts[place]
            ]
            texts = {name: self._text((*place, "form", name))["schema"] for name in fields}
            return {"type": "object", "properties": texts, "required": required}
        shape, is_json = self.shapes.get(place), "json" in place[-1]
        if shape is None or (self.counts[*place, _NOT_JSON] and not is_json):
            return {"type": "string"} if shape is None and place[-1].startswith("text/") else {}
        if "content" not in place or not _is_envelope(shape):
            return shape.schema(with_counts=True)
        data = _part(shape, of_data=True).schema(with_counts=True)
        return {"allOf": [{"$ref": "#/components/schemas/Envelope"}, data]}

    def _envelope(self) -> dict[str, Any]:
        """Return the schema of the members beside ``data``; empty if no body is an envelope."""
        envelope = Shape()
        for place, shape in self.shapes.items():
            if "content" in place and _is_envelope(shape):
                envelope.merge(_part(shape, of_data=False))
        if not envelope.types:
            return {}
        # ``data`` is listed so that additionalProperties, where it is set, does not apply to it.
        schema = envelope.schema(with_counts=True)
        return {"Envelope": {**schema, "properties": {**schema.get("properties", {}), "data": {}}}}

    def _rate_limits(self) -> dict[str, Any]:
        """Return the rate-limit headers that were seen; required if every answer has them."""
        headers = {}
        answers = sum(self.servers.values())
        for (name, title), meaning in zip(_RATE_LIMITS.items(), _MEANINGS, strict=True):
            shape, seen = Shape(), 0
            for place in self.shapes:
                if place[4:] == ("headers", name):
                    shape.merge(self.shapes[place])
                    seen += self.counts[place]
            if seen:
                told = {"description": meaning, "required": seen == answers, "x-seen": seen}
                headers[title] = {**told, "schema": _schema_of_text(shape)}
        return headers

    def _text(self, place: Place) -> dict[str, Any]:
        """Return how often a parameter or header was seen, and the schema of its values."""
        schema = _schema_of_text(self.shapes[place])
        if self.counts[*place, "repeated"]:
            schema = {"type": "array", "items": schema}
        return {"schema": schema, "x-seen": self.counts[place]}


_Tree = Mapping[str, Any]


def _tree(places: Iterable[Place]) -> _Tree:
    """Return nested mappings: ``[("GET", "/v1/a")]`` becomes ``{"GET": {"/v1/a": {}}}``."""
    tree: dict[str, Any] = {}
    for place in places:
        node = tree
        for name in place:
            node = node.setdefault(name, {})
    return tree


def _template(path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a path's template (``/v1/lists/{id}/members/{id_2}``), and names and values of ids."""
    ids: list[tuple[str, str]] = []
    segments = []
    for segment, each in zip(path.split("/"), operation_of(path).split("/"), strict=True):
        if each == "{id}":
            name = f"id_{len(ids) + 1}" if ids else "id"
            ids.append((name, unquote(segment)))
            segments.append(f"{{{name}}}")
        else:
            segments.append(each.replace("{", "%7B").replace("}", "%7D"))
    return "/".join(segments), ids


def _value_of(text: str) -> object:
    """Return the JSON value that a parameter or header spells: ``"7"`` is 7, ``"true"`` True."""
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text == "true" if text in ("true", "false") else text


def _schema_of_text(shape: Shape) -> dict[str, Any]:
    """Return the schema of a parameter's values; values of several types are strings."""
    schema = shape.schema()
    return {"type": "string"} if isinstance(schema["type"], list) else schema


def _is_envelope(shape: Shape) -> bool:
    """Return whether all bodies are objects with their records in ``data``, as in `frame`."""
    kinds = {*shape.types.get(("data",), {"": 0})}
    return (
        [*shape.types[()]] == ["object"]
        and kinds <= {"object", "array"}
        and not shape.is_optional(("data",))
    )


def _part(shape: Shape, *, of_data: bool) -> Shape:
    """Return the shape of bodies reduced to ``data``, or the shape without it."""
    return Shape(
        {
            path: counts
            for path, counts in shape.types.items()
            if not path or (path[0] == "data") == of_data
        }
    )
