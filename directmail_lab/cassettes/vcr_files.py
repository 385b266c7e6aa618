"""What we use of vcrpy: its loader, its matchers by name and its writer. The only import of it.

Pinned by ``tests/test_vcrpy_agrees.py``. A cassette is untrusted: vcrpy's loader constructs no
Python objects, and here it gives one interaction after the other, each of a bounded size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import yaml
from vcr import matchers
from vcr.request import Request
from vcr.serialize import serialize
from vcr.serializers import jsonserializer, yamlserializer
from vcr.util import read_body
from yaml.composer import Composer

from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    ODD,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    check_interaction,
    header,
    normalize_headers,
    unreadable,
)
from ..redaction.unpack import unpack
from .layout import elapsed_s_of, headers_of, recorded_at_of, response_of, text_of

_MAX_DEPTH: Final = 64
_MAX_NODES: Final = 100_000
_MAX_DIGITS: Final = 100
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NULL: Final = yaml.ScalarNode("tag:yaml.org,2002:null", "")
# By a name at the top of the file.
_OTHER_FILES: Final = {
    "log": "It is a HAR file: directmail-lab cassette convert makes a cassette of it.",
    "openapi": "It is an OpenAPI document, which holds no interactions.",
}


def load_cassette_text(text: str) -> tuple[object, list[Interaction]]:
    """Return the metadata and the interactions of any cassette that vcrpy reads.

    Raises
    ------
    CassetteFormatError
        Where vcrpy could not read it either, or where reading it would not be safe.
    """
    with _format_errors():
        document, interactions = _load(text)
    members = document if isinstance(document, dict) else {}
    entries = members.get("interactions", "none")
    if not isinstance(entries, list | None) or len(entries or ()) != len(interactions):
        reasons = [reason for name, reason in _OTHER_FILES.items() if name in members]
        raise CassetteFormatError((reasons or ["It has no list of interactions."])[0])
    return members.get("recording") or members.get("metadata") or {}, interactions


def load_yaml(text: str) -> Any:
    """Return what vcrpy's YAML loader makes of a text, if it is safe.

    Raises
    ------
    CassetteFormatError
        Where it is not YAML, holds a tag that would build an object, or is a bomb.
    """
    with _format_errors():
        return _Loader(text).load()


@contextmanager
def _format_errors() -> Iterator[None]:
    try:
        yield
    except CassetteFormatError:
        raise
    except (yaml.YAMLError, *ODD) as error:
        raise CassetteFormatError(
            f"It is not YAML that is safe to load ({type(error).__name__})."
        ) from None


def _load(text: str) -> tuple[Any, list[Interaction]]:
    """Return the document and its interactions, each of which may be None in the document."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):
            document = jsonserializer.deserialize(text)
            entries = enumerate(document.get("interactions") or (), 1)
            return document, [_interaction(entry, number) for number, entry in entries]
    loader = _Loader(text)
    return loader.load(), loader.interactions


class _Loader(yamlserializer._CassetteLoader, Composer):  # type: ignore[misc]
    """vcrpy's loader, with a bound on the size of each part of a document.

    An interaction is converted when its nodes are complete, and None takes its place: the nodes
    of a whole file would take gigabytes. Python's composer takes the place of libyaml's, which
    cannot be extended.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)  # type: ignore[call-arg]
        self.interactions: list[Interaction] = []
        self.anchors: dict[str, yaml.Node] = {}
        self._sizes: dict[str, int] = {}
        self._size = self._anchored_size = self._depth = 0
        self._in_interactions = False

    def load(self) -> Any:
        return self.construct_document(Composer.get_single_node(self))

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node and count its size; an alias counts as what it stands for."""
        event = self.peek_event()
        before, anchor = self._size, event.anchor
        is_alias = isinstance(event, yaml.AliasEvent)
        self._size += self._sizes.get(anchor, 1) if is_alias else 1
        self._depth += 1
        if self._depth > _MAX_DEPTH or max(self._size, self._anchored_size) > _MAX_NODES:
            raise CassetteFormatError(
                "A part of it is nested too deep, or it or its aliases would grow without bound."
            )
        if self._depth == 2:  # a member of the document, by its name
            self._in_interactions = getattr(index, "value", None) == "interactions"
        node: yaml.Node | None = Composer.compose_node(self, parent, index)
        if anchor and not is_alias:
            self._sizes[anchor] = self._size - before
            self._anchored_size += self._sizes[anchor]
        # PyYAML takes 1:30:00 for a number to the base of 60: a long one would take hours.
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS:
            self._size += len(node.value) // _MAX_DIGITS * _MAX_NODES
        if self._depth == 3 and self._in_interactions and isinstance(parent, yaml.SequenceNode):
            entry, number = self.construct_document(node), len(self.interactions) + 1
            self.interactions.append(_interaction(entry, number))
            node, self._size = _NULL, before
        self._depth -= 1
        return node


def _interaction(entry: Mapping[str, Any], number: int) -> Interaction:
    try:
        return check_interaction(
            Interaction(
                _request(Request._from_dict(entry["request"])),
                _response(entry["response"]),
                recorded_at_of(entry.get("recorded_at")),
                elapsed_s_of(entry.get("elapsed_s")),
            )
        )
    except ODD as error:
        raise unreadable(f"Interaction {number}", error) from None


def _request(request: Request) -> RecordedRequest:
    body: Any = read_body(request)
    return RecordedRequest(
        text_of(request.method),
        text_of(request.uri),
        headers_of(request.headers),
        json.dumps(body).encode() if isinstance(body, dict | list) else body,
    )


def _response(value: dict[str, Any]) -> RecordedResponse:
    if "status_code" not in value:
        return response_of(value)
    # The layout of vcrpy's httpx recordings before 6.0.
    code, content = {"code": value["status_code"]}, {"string": value["content"]}
    old = response_of({"status": code, "headers": value["headers"], "body": content})
    plain = unpack(old.body, header(old.headers, "content-encoding") or "")
    return old if plain is old.body else normalize_headers(replace(old, body=plain))


def block_text(
    interactions: Iterable[Interaction], *, metadata: Mapping[str, object], as_json: bool = False
) -> str:
    """Return a cassette as vcrpy itself writes it: its YAML block layout, or JSON.

    Raises
    ------
    CassetteError
        Where JSON cannot hold a body, since it is not text.
    """
    interactions = list(interactions)
    cassette = {
        "requests": [vcr_request(each.request) for each in interactions],
        "responses": [_response_dict(each.response) for each in interactions],
        "metadata": dict(metadata),
    }
    try:
        written: str = serialize(cassette, jsonserializer if as_json else yamlserializer)
    except TypeError:
        raise CassetteError(
            "A body is not text, which vcrpy's JSON cannot hold. Convert to .yaml or .har."
        ) from None
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
    match_on: Sequence[str | Callable[[Any, Any], object]],
    request: RecordedRequest,
    recorded: RecordedRequest,
) -> bool:
    """Return whether all matchers agree: vcrpy's by name, and functions of two of its requests."""
    functions = [
        getattr(matchers, m.replace("url", "uri")) if isinstance(m, str) else m for m in match_on
    ]
    return bool(matchers.requests_match(vcr_request(request), vcr_request(recorded), functions))
