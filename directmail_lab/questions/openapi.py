"""An OpenAPI 3.1 document made from recordings: `openapi`.

It describes only what was recorded: types, no values and no ``enum``; a format only if every value
has it. A field is required if every recorded object has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from ..bodies import read_form, read_json_body
from ..cassettes.recording import Recording
from ..contract import HEADERS
from ..current import recordings_of
from ..display import plural
from ..errors import CassetteError
from ..interaction import Headers, RecordedRequest, RecordedResponse, header, operation_of
from .shapes import PASSING_HEADERS, grouped, is_value, notes_on, schema_of

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
# Response headers that OpenAPI describes elsewhere, or that say nothing about the service.
_LEFT_OUT: Final = PASSING_HEADERS | {"content-type", "date", "server"}
# Request headers that a caller chooses, in contrast to those that an HTTP library adds.
_OWN_HEADER: Final = re.compile(r"(?!x-forwarded)(x-.+|prefer|idempotency-key|if-.+)")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_TEXT: Final = re.compile(r"^text/|json|yaml|csv|script")
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_JSON: Final = re.compile(r".+/(.+\+)?json")
_PLAIN_VALUE: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?|true|false", re.ASCII)
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_MEANINGS: Final = {
    HEADERS[0]: "The number of requests allowed in the window.",
    HEADERS[1]: "The number of requests still available in the current window.",
    HEADERS[2]: "When the allowance renews.",
}
_BASIC: Final = {"type": "http", "scheme": "basic", "description": "The key is the user name."}

_Pairs = Iterable[tuple[str, str]]
_Message = RecordedRequest | RecordedResponse


def openapi(source: Any = None) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document that describes what was recorded; nothing is sent.

    It contains no field value that the service sent. Names of fields stay, unless three objects or
    more have none in common, or a name has a space or looks like an id or an address.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`; by default what the
        current session has recorded in its present mode.

    Returns
    -------
    dict
        JSON values, for ``json.dumps`` or ``yaml.safe_dump``. In paths, segments that look like ids
        become ``{id}``, ``{id_2}``; ``x-seen`` says how often an operation and each response was
        seen; ``servers`` are the base addresses.

    Raises
    ------
    CassetteError
        A cassette cannot be found or read, or there are no interactions.
    """
    recordings = list(recordings_of(source))
    calls = [call for recording in recordings for call in _calls(recording)]
    notes = notes_on(recordings)
    if not calls:
        names = ", ".join(recording.name for recording in recordings) or "no recording"
        problem = f"There are no interactions in {names} to describe."
        raise CassetteError(" ".join([problem, *notes]))
    made = f"Made from {plural(len(calls), 'recorded interaction')}; x-seen counts them."
    about = " ".join([made, *notes])
    servers = grouped(calls, lambda call: call.server)
    return {
        "openapi": "3.1.0",
        "info": {"title": "The service, as it was recorded", "version": "0", "description": about},
        "servers": [{"url": url, "x-seen": len(servers[url])} for url in sorted(servers)],
        "security": [{"basic": []}],
        "paths": _paths(calls),
        "components": {"securitySchemes": {"basic": _BASIC}, "headers": _limits(calls)},
    }


def written(document: Mapping[str, Any], *, as_json: bool = False) -> str:
    """Return a document as the text of a file, YAML or JSON."""
    if as_json:
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100)


class _Call(NamedTuple):
    """An interaction, with what its address says; ``ids`` are the values in its path."""

    server: str
    template: str
    ids: _Pairs
    request: RecordedRequest
    response: RecordedResponse

    @property
    def method(self) -> str:
        """OpenAPI's name of the method; an extension for one that it does not know."""
        name = self.request.method.lower()
        return name if name in _METHODS else f"x-{name}"

    @property
    def status(self) -> str:
        status = self.response.status
        return str(status) if 100 <= status < 600 else "default"

    @property
    def headers(self) -> _Pairs:
        """The response's headers that say something about the service."""
        return [pair for pair in _named(self.response.headers) if pair[0] not in _LEFT_OUT]

    @property
    def parameters(self) -> dict[str, _Pairs]:
        query = parse_qsl(urlsplit(self.request.uri).query, keep_blank_values=True)
        own = [pair for pair in _named(self.request.headers) if _OWN_HEADER.fullmatch(pair[0])]
        return {"path": self.ids, "query": query, "header": own}


def _paths(calls: Iterable[_Call]) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    operations = grouped(calls, lambda call: (call.template, call.method))
    for template, method in sorted(operations):
        paths.setdefault(template, {})[method] = _operation(operations[template, method])
    return paths


def _limits(calls: Iterable[_Call]) -> dict[str, Any]:
    """Return the objects of the rate limits' headers, which each response refers to."""
    headers = _texts([call.headers for call in calls])
    found = {name: about for name, about in headers.items() if name in _MEANINGS}
    return {name: {"description": _MEANINGS[name], **about} for name, about in found.items()}


def _calls(recording: Recording) -> Iterable[_Call]:
    base_url = recording.base_url or ""
    for interaction in recording:
        request = interaction.request
        address = urlsplit(request.uri)
        origin = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        server = base_url if f"{base_url}/".startswith(f"{origin}/") else origin
        yield _Call(server, *_template(recording.path_of(request)), request, interaction.response)


def _operation(calls: Sequence[_Call]) -> dict[str, Any]:
    operation: dict[str, Any] = {"x-seen": len(calls)}
    sent = [call.parameters for call in calls]
    operation["parameters"] = [
        {"name": name, "in": where, **about}
        for where in ("path", "query", "header")
        for name, about in _texts([parameters[where] for parameters in sent]).items()
    ]
    if content := _content([call.request for call in calls]):
        is_required = all(call.request.body for call in calls)
        operation["requestBody"] = {"required": is_required, "content": content}
    statuses = grouped(calls, lambda call: call.status)
    operation["responses"] = {status: _response(statuses[status]) for status in sorted(statuses)}
    return operation


def _response(calls: Sequence[_Call]) -> dict[str, Any]:
    description = _PHRASES.get(calls[0].response.status, "Another status")
    response: dict[str, Any] = {"description": description, "x-seen": len(calls)}
    headers = _texts([call.headers for call in calls])
    for name in headers.keys() & _MEANINGS:
        headers[name] = {"$ref": f"#/components/headers/{name}"}
    response["headers"] = headers
    # The headers of a response to HEAD describe a body that is not sent.
    response["content"] = _content([c.response for c in calls if c.request.method != "HEAD"])
    return {name: value for name, value in response.items() if value != {}}


# -- bodies ------------------------------------------------------------------------------------


def _content(messages: Iterable[_Message]) -> dict[str, Any]:
    """Return the media type objects of bodies."""
    by_type = grouped((message for message in messages if message.body), _media_type)
    return {media_type: _media(media_type, by_type[media_type]) for media_type in sorted(by_type)}


def _media_type(message: _Message) -> str:
    declared = (header(message.headers, "Content-Type") or "").partition(";")[0].strip().lower()
    return declared if _MEDIA_TYPE.fullmatch(declared) else "*/*"


def _media(media_type: str, messages: Sequence[_Message]) -> dict[str, Any]:
    if media_type in _FORMS:
        return {"schema": schema_of([_form(media_type, each.body or b"") for each in messages])}
    is_json = _JSON.fullmatch(media_type) is not None
    read = [read_json_body(each.headers, each.body or b"") for each in messages]
    # Text that is a number is JSON too: in a body of another type, only objects and arrays count.
    values = [
        value
        for value, problem in read
        if problem is None and (is_json or isinstance(value, dict | list))
    ]
    if len(values) == len(read):
        return {"schema": schema_of(values)}
    if is_json or values or "xml" in media_type:  # a schema for XML is one of elements
        return {"schema": {}}
    is_text = _TEXT.search(media_type) is not None
    return {"schema": {"type": "string"} if is_text else {"type": "string", "format": "binary"}}


def _form(media_type: str, body: bytes) -> dict[str, object]:
    fields = _values(read_form(media_type, body))
    return {name: same if len(same) > 1 else same[0] for name, same in fields.items()}


# -- parameters and headers --------------------------------------------------------------------


def _named(headers: Headers) -> list[tuple[str, str]]:
    """Return headers with their names in lower case, and the rate limits' as in service.md."""
    names = {name.lower(): name for name in HEADERS}
    return [(names.get(name.lower(), name.lower()), value) for name, value in headers]


def _values(pairs: _Pairs) -> dict[str, list[object]]:
    """Return parameters or headers, each with a list of values: ``"7"`` is 7, ``"true"`` True."""
    values: dict[str, list[object]] = {}
    for name, text in pairs:
        value = json.loads(text) if _PLAIN_VALUE.fullmatch(text) else text
        values.setdefault(name, []).append(value)
    return values


def _texts(messages: Iterable[_Pairs]) -> dict[str, dict[str, Any]]:
    """Return the objects of parameters, or of headers, from those of each message."""
    sent = [_values(pairs) for pairs in messages]
    texts = {}
    for name in sorted({name for values in sent for name in values if not is_value(name)}):
        lists = [values[name] for values in sent if name in values]
        schema = schema_of([value for values in lists for value in values])
        if isinstance(schema["type"], list):
            schema = {"type": "string"}
        if name.endswith("[]") or any(len(values) > 1 for values in lists):
            schema = {"type": "array", "items": schema}
        texts[name] = {"required": len(lists) == len(sent), "schema": schema}
    return texts


def _template(path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a path's template (``/v1/lists/{id}/members/{id_2}``), and names and values of ids."""
    ids: list[tuple[str, str]] = []
    segments = []
    path = path if path.startswith("/") else f"/{path}"
    for segment, name in zip(path.split("/"), operation_of(path).split("/"), strict=True):
        if name == "{id}":
            name = f"id_{len(ids) + 1}" if ids else "id"
            ids.append((name, unquote(segment)))
            segments.append(f"{{{name}}}")
        else:
            segments.append(name.replace("{", "%7B").replace("}", "%7D"))
    return "/".join(segments), ids
