"""`openapi`: an OpenAPI 3.1 document made from recordings.

It describes only what was recorded, by types and without values. A format is stated only if every
value has it. A field is required if every recorded object has it.
"""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pandas as pd
import yaml

from ..cassettes import Recording, uncollected
from ..credentials import IN_OPENAPI
from ..display import plural, table_html
from ..errors import CassetteError
from ..exchange.bodies import read_json_body, shown_missing
from ..exchange.changes import PASSING_HEADERS
from ..exchange.contract import MEANINGS
from ..exchange.operations import operations_of, pattern_of, query_of, singular, take_name
from ..exchange.values import Request, Response, media_type_of
from ..redaction.key import REDACTED
from . import shapes
from .shapes import Components, Schema, grouped, is_value, schema_of
from .sources import Sources, named_paths, recordings_of

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
# Response headers that OpenAPI describes elsewhere, or that say nothing about the service.
_LEFT_OUT = (PASSING_HEADERS | {"content-type", "date", "server"}) - {"retry-after"}
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_JSON = re.compile(r"[^/]+/(.+\+)?json")
_TEXT = re.compile(r"^text/|json|yaml|csv|script")
_PLAIN_VALUE = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?|true|false", re.ASCII)
_NAMES = {name.lower(): name for name in MEANINGS}
# Parts of a path that name no resource: `/api/v1/lists/{list_id}` is about lists.
_NO_NAME = re.compile(r"(api|rest|me|v?\d.*|.*\{.*)?")
_NO_WORD = re.compile(r"\W+", re.ASCII)

_Pairs = Sequence[tuple[str, str]]
_Message = Request | Response


class Document(dict[str, Any]):
    """An OpenAPI document; a notebook shows it as a table of its operations."""

    def save(self, path: str | Path) -> None:
        """Write the document to a file, as JSON if its name ends in .json, or else as YAML."""
        if Path(path).suffix == ".json":
            text = json.dumps(self, ensure_ascii=False, indent=2)
        else:
            text = yaml.safe_dump(dict(self), sort_keys=False, allow_unicode=True, width=100)
        Path(path).write_text(text, encoding="utf-8")

    def _repr_html_(self) -> str:
        rows = []
        for path, item in self["paths"].items():
            for method, operation in item.items():
                statuses = ", ".join(operation["responses"])
                rows.append((f"{method.upper()} {path}", statuses))
        table = pd.DataFrame(rows, columns=["operation", "responses"])
        table.attrs["notes"] = [self["info"]["description"]]
        if "x-only-404" in self:
            table.attrs["notes"].append(f"Nothing but 404: {', '.join(self['x-only-404'])}.")
        return table_html(table)


@uncollected()
def openapi(
    source: Sources = None,
    *,
    title: str = "Recorded API",
    version: str = "0",
    paths: Collection[str] = (),
) -> Document:
    """Return an OpenAPI 3.1 document that describes what was recorded.

    It sends nothing. The document contains no values. It contains the names of
    fields, unless three objects or more have none in common, or a name has a
    space or looks like an id or an address.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`. By
        default the current session.
    title, version
        The name and the version of the API in the document.
    paths
        Templates of paths, such as ``["/v1/domains/{domain}"]``; by default the
        session's. In other paths, segments that seem to be ids are named after
        the segment before them: ``/v1/lists/{list_id}``. Give a template if
        that is wrong.

    Returns
    -------
    Document
        A dict of JSON values. ``save("api.yaml")`` writes it, and a notebook
        shows its operations as a table. ``x-seen`` counts how often an
        operation and each response was seen. ``x-only-404`` lists the paths
        with no other status than 404. ``servers`` are the service addresses,
        the         most requested first.

    Raises
    ------
    CassetteError
        A cassette cannot be found or read, or there are no interactions.
    ValueError
        One of ``paths`` is not a template.

    Examples
    --------
    >>> document = dm.openapi("explore-an-unknown-api")
    >>> list(document["paths"])
    ['/v1/campaigns', '/v1/lists', '/v1/lists/{list_id}', '/v1/users/me']
    >>> document.save("api.yaml")
    """
    recordings = list(recordings_of(source))
    given = paths or named_paths(source)
    calls = [call for recording in recordings for call in _calls(recording)]
    notes = shapes.notes_on(recordings)
    if not calls:
        asked = ", ".join(recording.name for recording in recordings) or "no recording"
        raise CassetteError(" ".join([f"There are no interactions in {asked}.", *notes]))
    made = f"Made from {plural(len(calls), 'recorded interaction')}; x-seen counts them."
    operations = operations_of({call.path for call in calls}, given)
    names = {each: each if each in given else _template(each) for each in {*operations.values()}}
    templates = {path: names[operation] for path, operation in operations.items()}
    found = {templates[call.path] for call in calls if call.status != "404"}
    groups = grouped(calls, lambda call: (templates[call.path], call.method))
    known = {key: groups[key] for key in sorted(groups) if key[0] in found}
    servers = Counter(sorted(call.server for call in calls))
    document = Document(
        openapi="3.1.0",
        info={"title": title, "version": version, "description": " ".join([made, *notes])},
        servers=[{"url": url} for url, _ in servers.most_common()],
    )
    document.update(_described(known))
    # Another program's recording does not say how a session signs in there.
    if any(each.path is None or "started_at" in each.metadata for each in recordings):
        document["security"] = [{name: []} for name in IN_OPENAPI]
        document["components"]["securitySchemes"] = dict(IN_OPENAPI)
    only_404 = sorted(set(templates.values()) - found)
    if only_404:
        document["x-only-404"] = only_404
    return document


class _Call(NamedTuple):
    """An interaction, and its values for the document."""

    request: Request
    response: Response
    server: str
    path: str
    method: str
    status: str
    query: _Pairs
    headers: _Pairs


def _calls(recording: Recording) -> Iterator[_Call]:
    base_url = recording.base_url or ""
    for each in recording:
        request = each.request
        response = each.response
        method = request.method.lower()
        if method not in _METHODS or not 100 <= response.status < 600 or not each.attempt:
            continue  # it has no response of its own, or OpenAPI cannot describe it
        address = urlsplit(request.uri)
        origin = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        server = base_url if f"{base_url}/".startswith(f"{origin}/") else origin
        path = f"/{recording.path_of(request).removeprefix('/')}"
        path = path.replace("{", "%7B").replace("}", "%7D")
        parameters = parse_qsl(query_of(request.uri), keep_blank_values=True)
        query = [pair for pair in parameters if pair[1] != REDACTED]
        headers = []
        for name, value in response.headers:
            lower = name.lower()
            if lower not in _LEFT_OUT:
                headers.append((_NAMES.get(lower, lower), value))
        status = str(response.status)
        yield _Call(request, response, server, path, method, status, query, headers)


# -- paths and operations ----------------------------------------------------------------------


def _template(operation: str) -> str:
    """Return the template of an operation, with names for its ids: ``/v1/lists/{list_id}``."""
    segments: list[str] = []
    taken: dict[str, int] = {}
    before = ""
    for segment in operation.split("/"):
        if "{id}" in segment:
            name = take_name(f"{singular(before)}_id".removeprefix("_"), taken)
            segment = segment.replace("{id}", f"{{{name}}}")
        segments.append(segment)
        before = "" if _NO_NAME.fullmatch(segment) else _NO_WORD.sub("_", segment)
    return "/".join(segments)


def _described(known: dict[tuple[str, str], list[_Call]]) -> dict[str, Any]:
    """Return the paths and the components of a document, from the calls of each operation."""
    calls = [call for same in known.values() for call in same]
    headers = _texts([call.headers for call in calls])
    for name in headers.keys() & MEANINGS:
        headers[name] = {"description": MEANINGS[name], **headers[name]}
    schemas = Components()
    paths: dict[str, dict[str, Any]] = {}
    taken: dict[str, int] = {}
    for (template, method), same in known.items():
        name = take_name(_NO_WORD.sub("_", f"{method}{template}").strip("_"), taken)
        operation = {"operationId": name} | _operation(template, same, schemas)
        paths.setdefault(template, {})[method] = operation
    components = {"headers": headers, "schemas": schemas}
    return dict(shapes.resolved({"paths": paths, "components": components}))


def _operation(template: str, calls: Sequence[_Call], schemas: Components) -> dict[str, Any]:
    pattern = pattern_of(template)
    names = re.findall(r"{(\w+)}", template)
    ids: list[_Pairs] = []
    for call in calls:
        match = pattern.fullmatch(call.path)
        if match:
            ids.append([*zip(names, map(unquote, match.groups()), strict=True)])
    parameters = [{"name": name, "in": "path", **about} for name, about in _texts(ids).items()]
    queries = _texts([call.query for call in calls])
    parameters += [{"name": name, "in": "query", **about} for name, about in queries.items()]
    words = [word for word in re.split("[/:]", template) if not _NO_NAME.fullmatch(word)]
    name = words[-1] if words else "object"
    if template.endswith(("}", "/me")) or calls[0].method == "post":
        name = singular(name)
    content = _content([call.request for call in calls], name, "Request", schemas)
    is_required = all(call.request.body for call in calls)
    operation = {
        "tags": words[:1],
        "x-seen": len(calls),
        "parameters": parameters,
        "requestBody": {"required": is_required, "content": content} if content else {},
        "responses": {
            status: _response(same, name, schemas)
            for status, same in sorted(grouped(calls, lambda call: call.status).items())
        },
    }
    return {part: value for part, value in operation.items() if value}


def _response(calls: Sequence[_Call], name: str, schemas: Components) -> dict[str, Any]:
    status = calls[0].response.status
    # A response to HEAD has headers about a body, but no body.
    bodies = [call.response for call in calls if call.request.method != "HEAD"]
    names = {name for call in calls for name, _ in call.headers}
    headers = sorted(name for name in names if not is_value(name))
    response = {
        "description": http.client.responses.get(status, "Another status"),
        "x-seen": len(calls),
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": _content(bodies, "error" if status >= 400 else name, "Response", schemas),
    }
    return {part: value for part, value in response.items() if value != {}}


# -- bodies ------------------------------------------------------------------------------------


def _content(
    messages: Iterable[_Message], name: str, kind: str, schemas: Components
) -> dict[str, Any]:
    """Return the media type objects of bodies, with schemas named after ``name``."""
    with_body = [each for each in messages if each.body and not shown_missing(each.body)]
    by_type = grouped(with_body, _media_type)
    return {
        media_type: {"schema": schemas.refer(_body_schema(media_type, same), name, kind)}
        for media_type, same in sorted(by_type.items())
    }


def _media_type(message: _Message) -> str:
    declared = media_type_of(message.headers)
    return declared if _MEDIA_TYPE.fullmatch(declared) else "*/*"


def _body_schema(media_type: str, messages: Sequence[_Message]) -> Schema:
    if media_type == "application/x-www-form-urlencoded":
        texts = [(each.body or b"").decode("utf-8", "replace") for each in messages]
        forms = [parse_qsl(text, keep_blank_values=True) for text in texts]
        return schema_of([{name: _value(text) for name, text in fields} for fields in forms])
    is_json = _JSON.fullmatch(media_type)
    values = []
    for each in messages:
        value, problem = read_json_body(each)
        # Text such as "7" is JSON too. In a body of another type, only objects and arrays count.
        if not problem and (is_json or isinstance(value, dict | list)):
            values.append(value)
    if len(values) == len(messages):
        return schema_of(values)
    # JSON Schema cannot describe XML or files without more knowledge.
    if is_json or values or "xml" in media_type or media_type.startswith("multipart/"):
        return {}
    if _TEXT.search(media_type):
        return {"type": ["string"]}
    return {"type": ["string"], "format": "binary"}


# -- parameters and headers --------------------------------------------------------------------


def _value(text: str) -> object:
    """Return the JSON value of a text: ``"7"`` becomes 7, ``"true"`` True. Others stay texts."""
    return json.loads(text) if _PLAIN_VALUE.fullmatch(text) else text


def _texts(messages: Sequence[_Pairs]) -> dict[str, dict[str, Any]]:
    """Return the parameter or header objects of the messages, by name."""
    names = {name for pairs in messages for name, _ in pairs}
    found = {}
    for name in sorted(name for name in names if not is_value(name)):
        given = [[text for each, text in pairs if each == name] for pairs in messages]
        texts = {*chain.from_iterable(given)}
        schema = schema_of([_value(text) for text in texts])
        if len(schema["type"]) > 1:
            schema = {"type": ["string"]}
        if name.endswith("[]") or any(len(several) > 1 for several in given):
            schema = {"type": ["array"], "items": schema}
        found[name] = {"required": all(given), "schema": schema}
    return found
