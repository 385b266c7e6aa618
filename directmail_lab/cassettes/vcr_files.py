"""What we use of vcrpy: its loader, its matchers by name and its writer. The only import of it.

Pinned by ``tests/test_vcrpy_agrees.py``. A cassette is untrusted: vcrpy's loader constructs no
Python objects, and before it sees a text, its nesting and its aliases are counted here.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import yaml
from vcr import matchers
from vcr.filters import decode_response
from vcr.request import Request
from vcr.serialize import serialize
from vcr.serializers import compat, jsonserializer, yamlserializer
from vcr.util import read_body

from directmail_lab.errors import CassetteFormatError
from directmail_lab.interaction import Headers, Interaction, RecordedRequest, RecordedResponse

from .layout import recorded_at_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "block_text",
    "load_cassette_text",
    "load_yaml",
    "matches",
    "parsed_body",
    "vcr_request",
]

_DEEPEST: Final = 64
_MOST_NODES: Final = 100_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_cassette_text(text: str) -> tuple[dict[str, Any], list[Interaction]]:
    """Return the metadata and the interactions of any cassette that vcrpy reads.

    Raises
    ------
    CassetteFormatError
        Where vcrpy could not read it either, or where reading it would not be safe.
    """
    data = _load(text)
    if isinstance(data, list) and data and isinstance(data[0], dict) and "request" in data[0]:
        raise CassetteFormatError(
            "It is a cassette of vcrpy before version 1. Convert it with "
            "`python -m vcr.migration FILE`."
        )
    if not isinstance(data, dict) or "interactions" not in data:
        raise CassetteFormatError("It has no list of interactions.")
    try:
        interactions = [_interaction(entry) for entry in data["interactions"] or ()]
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise CassetteFormatError(
            f"One of its interactions is not in vcrpy's form ({type(error).__name__})."
        ) from None
    metadata = data.get("recording") or data.get("metadata")
    return (metadata if isinstance(metadata, dict) else {}), interactions


def load_yaml(text: str) -> Any:
    """Return what vcrpy's YAML loader makes of a text, once it is known to be safe.

    Raises
    ------
    CassetteFormatError
        Where it is not YAML, holds a tag that would build an object, or is a bomb.
    """
    try:
        _refuse_bombs(text)
        return yamlserializer.deserialize(text)
    except yaml.constructor.ConstructorError:
        raise CassetteFormatError(
            "It holds a YAML tag that would build a Python object. Nothing of it was run."
        ) from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise CassetteFormatError(f"It is not YAML ({type(error).__name__}).") from None


def _load(text: str) -> Any:
    if text.lstrip()[:1] == "{":
        try:
            return jsonserializer.deserialize(text)
        except (ValueError, RecursionError):
            pass
    return load_yaml(text)


def _refuse_bombs(text: str) -> None:
    """Count what a text would grow to with each alias written out, and how deep it goes."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = direct = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            if len(open_nodes) > _DEEPEST:
                raise CassetteFormatError(f"It is nested more than {_DEEPEST} deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = total - before + 1
        elif isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent) and event.anchor is not None:
            sizes[event.anchor] = 1
        total, direct = total + 1, direct + 1
        if total > _MOST_NODES + 10 * direct:
            raise CassetteFormatError("Its aliases would grow without bound.")


def _interaction(entry: Mapping[str, Any]) -> Interaction:
    request = Request._from_dict(entry["request"])
    return Interaction(
        RecordedRequest(
            _text(request.method), _text(request.uri), _pairs(request.headers), _bytes(request)
        ),
        _response(entry["response"]),
        _time(entry.get("recorded_at")),
        _number(entry.get("elapsed_s")),
    )


def _response(value: dict[str, Any]) -> RecordedResponse:
    if "status_code" in value:  # the layout of vcrpy's httpx recordings before 6.0
        value = decode_response(
            compat.convert_to_bytes(
                {
                    "status": {"code": value["status_code"], "message": ""},
                    "headers": value["headers"],
                    "body": {"string": value["content"]},
                }
            )
        )
    body = compat.convert_to_bytes(value)["body"]["string"]
    if isinstance(body, str):  # lone surrogates, which vcrpy leaves alone
        body = body.encode("utf-8", "surrogatepass")
    status = value["status"]
    return RecordedResponse(
        int(status["code"]),
        _text(status.get("message") or ""),
        _pairs(value["headers"] or {}),
        bytes(body or b""),
    )


def _bytes(request: Request) -> bytes | None:
    body = read_body(request)
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, (dict, list)):
        return json.dumps(body).encode()
    return bytes(body)


def _pairs(headers: Mapping[str, Any]) -> Headers:
    return tuple(
        (_text(name), _text(each))
        for name, values in headers.items()
        for each in (values if isinstance(values, (list, tuple)) else (values,))
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(type(value).__name__)


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return recorded_at_of(value) if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def block_text(
    interactions: Iterable[Interaction], *, metadata: Mapping[str, object], as_json: bool = False
) -> str:
    """Return a cassette as vcrpy itself writes it: its YAML block layout, or JSON."""
    pairs = [(vcr_request(each.request), _response_dict(each.response)) for each in interactions]
    cassette = {
        "requests": [request for request, _ in pairs],
        "responses": [response for _, response in pairs],
        "metadata": dict(metadata),
    }
    written: str = serialize(cassette, jsonserializer if as_json else yamlserializer)
    return written


def _response_dict(response: RecordedResponse) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in response.headers:
        headers.setdefault(name, []).append(value)
    return {
        "status": {"code": response.status, "message": response.reason},
        "headers": headers,
        "body": {"string": response.body},
    }


def vcr_request(request: RecordedRequest) -> Request:
    """Return a request as vcrpy's matchers take it."""
    headers: dict[str, str] = {}
    for name, value in request.headers:
        headers.setdefault(name, value)
    return Request(request.method, request.uri, request.body, headers)


def matches(
    matcher: Callable[[Any, Any], object], asked: RecordedRequest, recorded: RecordedRequest
) -> bool:
    """Return what a custom matcher says: like vcrpy's, it may return a verdict or assert one."""
    return bool(matchers.requests_match(vcr_request(asked), vcr_request(recorded), [matcher]))


def parsed_body(request: RecordedRequest) -> tuple[tuple[int, ...], Any] | None:
    """Return how vcrpy's body matcher parses a body (JSON, form, …) and what comes out.

    None where it compares the bytes: no such content type, or a body that does not parse.
    """
    asked = vcr_request(request)
    transformers = list(matchers._get_transformers(asked))
    if not transformers:
        return None
    value: Any = request.body or b""
    try:
        for transform in transformers:
            value = transform(value)
    except (ValueError, matchers.ExpatError):
        return None
    if isinstance(value, io.IOBase):
        return None
    return tuple(id(transform) for transform in transformers), value
