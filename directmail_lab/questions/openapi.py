"""An OpenAPI 3.1 document made from recordings: `openapi`.

It describes only what was recorded: types, no values and no ``enum``; a format only if every value
has it. A field is required if every recorded object has it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..bodies import read_form, read_json_body
from ..cassettes import find_cassette, read_cassette
from ..contract import HEADERS
from ..current import session
from ..display import plural
from ..errors import CassetteError
from ..interaction import Headers, Interaction, base_path, header, operation_of, path_below
from ..redaction import Redactor, secrets_in
from .api_changes import METHODS
from .comparison import PASSING_HEADERS
from .shapes import ANY_NAME, Mergeable, Shape, is_value

# Response headers that OpenAPI describes elsewhere, or that say nothing about the service.
_LEFT_OUT: Final = PASSING_HEADERS | {"content-type", "date", "server"}
# Request headers that a caller chooses, in contrast to those that an HTTP library adds.
_OWN_HEADER: Final = re.compile(r"(?!x-forwarded)(x-.+|prefer|idempotency-key|if-.+)")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_TEXT: Final = re.compile(r"^text/|json|yaml|csv|script")
_ANY_MEDIA_TYPE: Final = "*/*"
_FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
_JSON: Final = re.compile(r".+/(.+\+)?json")
_PLAIN_VALUE: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?|true|false", re.ASCII)
_COMPONENT: Final = "#/components/headers/"
_PHRASES: Final = {str(status.value): status.phrase for status in HTTPStatus}
_MEANINGS: Final = (
    "The number of requests allowed in the window.",
    "The number of requests still available in the current window.",
    "When the allowance renews.",
)
_BASIC: Final = {
    "type": "http",
    "scheme": "basic",
    "description": "The user name is the API key; the password is empty.",
}


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
        it the document contains no field value that the service sent. Names of fields stay, unless
        three objects or more have none in common, or a name has a space or looks like an id or an
        address.

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
        description.add_cassette(find_cassette(name), examples=examples)
    if not description.requests:
        cassettes = ", ".join(map(str, names)) or "an empty list of cassettes"
        raise CassetteError(f"There are no interactions in {cassettes} to describe.")
    return description.document()


_Texts = Mapping[str, Iterable[tuple[str, str]]]


@dataclass(slots=True)
class _Body(Mergeable):
    """The bodies of one content type; ``example`` is the time and JSON of the earliest one."""

    seen: int = 0
    not_json: int = 0
    shape: Shape = field(default_factory=Shape)
    example: tuple[str, str] | None = None

    def add(self, media_type: str, headers: Headers, body: bytes, at: str | None) -> None:
        """Add a body; it is an example if ``at``, its time, is not None."""
        self.seen += 1
        value, problem = read_json_body(headers, body)
        if media_type in _FORMS:
            fields = _values(read_form(media_type, body))
            value = {name: v if len(v) > 1 else v[0] for name, v in fields.items()}
        elif problem or not (_JSON.fullmatch(media_type) or isinstance(value, dict | list)):
            self.not_json += 1
            return
        self.shape.add(value)
        if at is not None:
            example = at, json.dumps(value, ensure_ascii=False, default=str)
            self.example = min(example, self.example or example)

    def to_openapi(self, media_type: str) -> dict[str, Any]:
        """Return the media type object."""
        content = {"x-seen": self.seen, "schema": self._schema(media_type)}
        if self.not_json and _JSON.fullmatch(media_type):
            content["x-not-json"] = self.not_json
        if self.example is not None:
            content["example"] = json.loads(self.example[1], object_pairs_hook=_without_values)
        return content

    def _schema(self, media_type: str) -> dict[str, Any]:
        if not self.shape.seen and not _JSON.fullmatch(media_type):
            if "xml" in media_type:  # its schema is one of elements
                return {}
            is_text = _TEXT.search(media_type) is not None
            return {"type": "string"} if is_text else {"type": "string", "format": "binary"}
        if self.not_json and not _JSON.fullmatch(media_type):
            return {}
        if not _is_envelope(self.shape):
            return self.shape.schema(with_counts=True)
        data = _part(self.shape, of_data=True).schema(with_counts=True)
        return {"allOf": [{"$ref": "#/components/schemas/Envelope"}, data]}


@dataclass(slots=True)
class _Message(Mergeable):
    """Requests, or responses: their parameters or headers, by place, and bodies by content type.

    The shape of parameters is that of ``{"page": [2], "tag": ["a", "b"]}``.
    """

    seen: int = 0
    texts: dict[str, Shape] = field(default_factory=dict)
    bodies: dict[str, _Body] = field(default_factory=dict)

    def add(self, texts: _Texts, headers: Headers, body: bytes, at: str | None) -> None:
        """Add one; see `_Body.add`."""
        self.seen += 1
        for where, pairs in texts.items():
            self.texts.setdefault(where, Shape()).add(_values(pairs))
        declared = (header(headers, "Content-Type") or "").partition(";")[0].strip().lower()
        media_type = declared if _MEDIA_TYPE.fullmatch(declared) else _ANY_MEDIA_TYPE
        if body:
            self.bodies.setdefault(media_type, _Body()).add(media_type, headers, body, at)

    def operation(self) -> dict[str, Any]:
        """Return the operation object of requests, without responses."""
        operation: dict[str, Any] = {"x-seen": self.seen}
        parameters = [
            {"name": name, "in": where, **text}
            for where, shape in self.texts.items()
            for name, text in _texts(shape).items()
        ]
        if parameters:
            operation["parameters"] = parameters
        if content := self._content():
            is_required = sum(body["x-seen"] for body in content.values()) == self.seen
            operation["requestBody"] = {"required": is_required, "content": content}
        return operation | {"responses": {}}

    def response(self, status: str) -> dict[str, Any]:
        """Return the response object of responses."""
        description = _PHRASES.get(status, "Another status")
        response: dict[str, Any] = {"description": description, "x-seen": self.seen}
        if headers := _texts(self.texts["header"]):
            components = {name: {"$ref": _COMPONENT + name} for name in HEADERS if name in headers}
            response["headers"] = headers | components
        if content := self._content():
            response["content"] = content
        return response

    def _content(self) -> dict[str, Any]:
        return {name: self.bodies[name].to_openapi(name) for name in sorted(self.bodies)}


@dataclass(slots=True)
class Description(Mergeable):
    """What `openapi` needs to know about interactions; the order of adding does not matter.

    `merge` adds another description, such as one that was made in another process.

    Attributes
    ----------
    requests
        By template of the path and method.
    responses
        By template, method and status.
    servers
        How many interactions there were with each base address.
    """

    requests: dict[tuple[str, str], _Message] = field(default_factory=dict)
    responses: dict[tuple[str, str, str], _Message] = field(default_factory=dict)
    servers: Counter[str] = field(default_factory=Counter)

    def add_cassette(self, path: Path, *, examples: bool = False) -> None:
        """Add the interactions of a cassette file."""
        loaded = read_cassette(path)
        interactions: Iterable[Interaction] = loaded.interactions
        if loaded.foreign or examples:
            redactor = Redactor(secrets_in(interactions), redact=["personal"] if examples else ())
            interactions = map(redactor.interaction, interactions)
        for interaction in interactions:
            self.add(interaction, base_url=loaded.base_url or "", example=examples)

    def add(self, interaction: Interaction, *, base_url: str, example: bool = False) -> None:
        """Add one interaction, with the service at ``base_url`` or another."""
        request, response = interaction.request, interaction.response
        address = urlsplit(request.uri)
        origin = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        self.servers[base_url if f"{base_url}/".startswith(f"{origin}/") else origin] += 1
        path = path_below(request.uri, base_path(base_url))
        template, ids = _template(path if path.startswith("/") else f"/{path}")
        method = request.method.lower()
        key = template, method if method in METHODS else f"x-{method}"
        at = str(interaction.recorded_at or "") if example else None
        sent: _Texts = {
            "path": ids,
            "query": parse_qsl(address.query, keep_blank_values=True),
            "header": [pair for pair in _named(request.headers) if _OWN_HEADER.fullmatch(pair[0])],
        }
        message = self.requests.setdefault(key, _Message())
        message.add(sent, request.headers, request.body or b"", at)
        status = str(response.status) if 100 <= response.status < 600 else "default"
        headers = [pair for pair in _named(response.headers) if pair[0] not in _LEFT_OUT]
        body = b"" if request.method == "HEAD" else response.body
        message = self.responses.setdefault((*key, status), _Message())
        message.add({"header": headers}, response.headers, body, at)

    # -- the document --------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        paths: dict[str, dict[str, Any]] = {}
        for (template, method), message in sorted(self.requests.items(), key=itemgetter(0)):
            paths.setdefault(template, {})[method] = message.operation()
        for (template, method, status), message in sorted(
            self.responses.items(), key=itemgetter(0)
        ):
            paths[template][method]["responses"][status] = message.response(status)
        servers = [{"url": url, "x-seen": self.servers[url]} for url in sorted(self.servers)]
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "The service, as it was recorded",
                "version": "0",
                "description": f"Made from {plural(self.servers.total(), 'recorded interaction')}. "
                "It describes only what they contain; x-seen is how often each part was seen.",
            },
            "servers": servers,
            "security": [{"basic": []}],
            "paths": paths,
            "components": {
                "securitySchemes": {"basic": _BASIC},
                "headers": self._rate_limits(),
                "schemas": self._envelope(),
            },
        }

    def _rate_limits(self) -> dict[str, Any]:
        """Return the rate-limit headers that were seen; required if every response has them."""
        headers = Shape()
        for response in self.responses.values():
            headers.merge(response.texts["header"])
        texts = _texts(headers)
        return {
            name: {"description": meaning, **texts[name]}
            for name, meaning in zip(HEADERS, _MEANINGS, strict=True)
            if name in texts
        }

    def _envelope(self) -> dict[str, Any]:
        """Return the schema of the members beside ``data``; empty if no body is an envelope."""
        envelope = Shape()
        for message in (*self.requests.values(), *self.responses.values()):
            for body in message.bodies.values():
                if _is_envelope(body.shape):
                    envelope.merge(_part(body.shape, of_data=False))
        if not envelope.seen:
            return {}
        # ``data`` is listed so that additionalProperties, where it is set, does not apply to it.
        schema = envelope.schema(with_counts=True)
        return {"Envelope": {**schema, "properties": {**schema.get("properties", {}), "data": {}}}}


def _named(headers: Headers) -> list[tuple[str, str]]:
    """Return headers with their names in lower case, and the rate limits' as in service.md."""
    names = {name.lower(): name for name in HEADERS}
    return [(names.get(name.lower(), name.lower()), value) for name, value in headers]


def _values(pairs: Iterable[tuple[str, str]]) -> dict[str, list[object]]:
    """Return parameters or headers, each with a list of values: ``"7"`` is 7, ``"true"`` True."""
    values: dict[str, list[object]] = {}
    for name, text in pairs:
        value = json.loads(text) if _PLAIN_VALUE.fullmatch(text) else text
        values.setdefault(name, []).append(value)
    return values


def _without_values(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an example's object, without those whose name is itself a value."""
    return {name: value for name, value in members if not is_value(name)}


def _texts(shape: Shape) -> dict[str, dict[str, Any]]:
    """Return the objects of parameters or headers, from the shape of what `_values` returns."""
    texts = {}
    for name in sorted(shape.properties.keys() - {ANY_NAME}):
        lists = shape.properties[name]
        values = lists.items or Shape()
        schema = values.schema()
        if isinstance(schema.get("type"), list):
            schema = {"type": "string"}
        if values.seen > lists.seen or name.endswith("[]"):  # one message has several
            schema = {"type": "array", "items": schema}
        is_required = lists.seen == shape.seen
        texts[name] = {"required": is_required, "schema": schema, "x-seen": lists.seen}
    return texts


def _template(path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a path's template (``/v1/lists/{id}/members/{id_2}``), and names and values of ids."""
    ids: list[tuple[str, str]] = []
    segments = []
    for segment, name in zip(path.split("/"), operation_of(path).split("/"), strict=True):
        if name == "{id}":
            name = f"id_{len(ids) + 1}" if ids else "id"
            ids.append((name, unquote(segment)))
            segments.append(f"{{{name}}}")
        else:
            segments.append(name.replace("{", "%7B").replace("}", "%7D"))
    return "/".join(segments), ids


def _is_envelope(shape: Shape) -> bool:
    """Return whether all bodies are objects with their records in ``data``, as in `frame`."""
    data = shape.properties.get("data", Shape())
    is_always_there = shape.seen == shape.types["object"] == data.seen > 0
    return is_always_there and {*data.types} <= {"object", "array"}


def _part(shape: Shape, *, of_data: bool) -> Shape:
    """Return the shape of bodies reduced to ``data``, or the shape without it."""
    names = [name for name in shape.properties if (name == "data") == of_data]
    return replace(shape, properties={name: shape.properties[name] for name in names})
