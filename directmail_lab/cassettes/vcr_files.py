"""vcrpy's loader and its matchers; besides this module, only `vcrpy` imports vcrpy.

``tests/test_vcrpy_agrees.py`` checks that they agree with ours. vcrpy's loader constructs no Python
objects.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any, NoReturn

import yaml
from vcr.matchers import get_matchers_results
from vcr.request import Request as VcrRequest
from vcr.serializers import jsonserializer, yamlserializer
from vcr.util import read_body

from ..errors import CassetteFormatError
from ..exchange.bodies import unpacked
from ..exchange.values import (
    MALFORMED,
    Interaction,
    Request,
    Response,
    check_interaction,
    check_times,
    header,
    normalize_headers,
    unreadable,
)
from ..executions import kept_id
from .layout import (
    NO_RESPONSE_STATUS,
    elapsed_s_of,
    headers_of,
    incomplete_of,
    recorded_at_of,
    response_of,
    text_of,
)
from .matching import Matcher
from .recording import uncollected

# libyaml's recursion would crash the process at some 20,000 levels, and earlier in a thread.
_DEEPEST = 500
# With its aliases replaced by their values, a text may have at most ten times as many characters.
_MOST_TIMES = 10
_MOST_CHARACTERS = 1_000_000
_ALIAS = re.compile(r"\*[\w-]", re.ASCII)
# Digits in base 60, such as 1:30:00, take PyYAML quadratic time.
_LONGEST_BASE_60 = 100
_INTEGER = "tag:yaml.org,2002:int"


class _Loader(yamlserializer._CassetteLoader):  # type: ignore[misc]
    """vcrpy's loader, with limits for a stranger's file."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text
        self._depth = 0
        self._most = _MOST_CHARACTERS + _MOST_TIMES * len(text)

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _ALIAS.search(self._text) and _size(node, {}) > self._most:
            raise OverflowError
        return node

    def descend_resolver(self, *_: object) -> None:
        # libyaml's composer calls this method before each node, and the next one after it.
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == _INTEGER and ":" in node.value and len(node.value) > _LONGEST_BASE_60:
            raise OverflowError
        return super().construct_object(node, deep)


def _text_of_istr(loader: _Loader, _: str, node: yaml.Node) -> Any:
    """Return the text of multidict's type for a header's name, which aiohttp's requests have."""
    if not isinstance(node, yaml.SequenceNode) or len(node.value) != 1:
        _unsafe(loader, node)
    return loader.construct_object(node.value[0])


def _unsafe(_: _Loader, node: yaml.Node) -> NoReturn:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise CassetteFormatError(
        f"The tag {tag} in line {node.start_mark.line + 1} would build an object, which is not "
        "safe to load. Write the value without the tag."
    )


_Loader.add_multi_constructor("tag:yaml.org,2002:python/object/new:multidict.", _text_of_istr)
_Loader.add_constructor(None, _unsafe)


def _size(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Return the number of characters of a node with its aliases replaced; inf for a circle."""
    if isinstance(node, yaml.ScalarNode):
        return 1 + len(node.value)
    if node not in known:
        known[node] = math.inf
        pairs = isinstance(node, yaml.MappingNode)
        inner = chain.from_iterable(node.value) if pairs else node.value
        known[node] = 1 + sum(_size(each, known) for each in inner)
    return known[node]


def load_cassette_text(text: str) -> tuple[object, list[Interaction]]:
    """Return the metadata and the interactions of any cassette that vcrpy reads.

    Raises
    ------
    CassetteFormatError
        vcrpy could not read it either.
    """
    document = None
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            document = jsonserializer.deserialize(text)
    if document is None:
        document = load_yaml(text)
    members = document if isinstance(document, dict) else {}
    entries = members.get("interactions", False)
    if entries is None:  # as YAML reads `interactions:` without a list
        entries = []
    if not isinstance(entries, list):
        what = "It has no list of interactions."
        if "log" in members:
            what = "It seems to be HAR. Rename it: its name must end in .har."
        raise CassetteFormatError(what)
    with _unlogged(), uncollected():
        interactions = [_interaction(entry, number) for number, entry in enumerate(entries, 1)]
    return members.get("recording") or members.get("metadata") or {}, interactions


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep vcrpy from logging the address of each request, which may contain credentials."""
    logger = logging.getLogger("vcr.request")
    refuse = lambda _: False  # noqa: E731
    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)


def load_yaml(text: str) -> Any:
    """Load a text with vcrpy's YAML loader.

    Raises
    ------
    CassetteFormatError
        It is not YAML, or has a tag that would build an object.
    """
    try:
        with uncollected():
            return _Loader(text).get_single_data()
    except CassetteFormatError:  # which says more
        raise
    except (yaml.YAMLError, *MALFORMED) as error:
        name = type(error).__name__
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise CassetteFormatError(f"It is not YAML that is safe to load ({name}{where}).") from None


def _interaction(entry: Mapping[str, Any], number: int) -> Interaction:
    try:
        response = response_of_vcr(entry)
        attempt = entry.get("attempt")
        if type(attempt) is not int or not 0 <= attempt <= 999:
            attempt = 1
        return check_interaction(
            Interaction(
                request_of_vcr(VcrRequest._from_dict(entry["request"])),
                response,
                recorded_at_of(entry.get("recorded_at")) or _date_of(response),
                elapsed_s_of(entry.get("elapsed_s")),
                attempt,
                kept_id(entry.get("cell")),
            )
        )
    except MALFORMED as error:
        raise unreadable(f"Interaction {number}", error) from None


def _date_of(response: Response) -> datetime | None:
    """Return the time in a response's ``Date``, since vcrpy records no time."""
    date = header(response.headers, "date")
    if date is None:
        return None
    with suppress(*MALFORMED):
        at = parsedate_to_datetime(date).astimezone(UTC)
        check_times(at, None)
        return at
    return None


def request_of_vcr(request: VcrRequest) -> Request:
    """Return a request of vcrpy as ours. aiohttp's may have an object for a body."""
    body: Any = read_body(request)
    if not isinstance(body, str | bytes | None):
        body = json.dumps(body, default=_shown).encode()
    return Request(text_of(request.method), text_of(request.uri), headers_of(request.headers), body)


def _shown(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else f"<{type(value).__name__}>"


def response_of_vcr(entry: Mapping[str, Any]) -> Response:
    """Return the response of one of vcrpy's interactions as ours."""
    value = entry["response"]
    if "status_code" not in value:
        return response_of(value, entry.get("no_response"))
    # The layout of vcrpy's httpx recordings before 6.0.
    old = response_of(
        {
            "status": {"code": value["status_code"]},
            "headers": value["headers"],
            "body": {"string": value["content"]},
        }
    )
    plain = unpacked(old)
    return old if plain is old.body else normalize_headers(replace(old, body=plain))


def vcr_response(response: Response) -> dict[str, Any]:
    """Return a response as vcrpy keeps it."""
    headers: dict[str, list[str]] = {}
    for name, value in response.headers:
        headers.setdefault(name, []).append(value)
    code = response.status or NO_RESPONSE_STATUS
    status = {"code": code, "message": response.reason if response.status else response.error}
    body: dict[str, object] = {"string": bytes(response.body)}
    incomplete = incomplete_of(response)
    about = {"incomplete": incomplete} if incomplete else {}
    return {"status": status, "headers": headers, "body": body, **about}


def vcr_request(request: Request) -> VcrRequest:
    """Return a request for vcrpy's matchers; if a header is repeated, its first value counts."""
    headers = {name: header(request.headers, name) for name, _ in request.headers}
    return VcrRequest(request.method, request.uri, request.body, headers)


def matches(functions: Iterable[Matcher], request: Request, recorded: Request) -> bool:
    """Return whether all functions of two of vcrpy's requests say that these are the same."""
    # A missing body is an empty one: a request of httpx has no other.
    sent = vcr_request(replace(request, body=request.body or b""))
    kept = vcr_request(replace(recorded, body=recorded.body or b""))
    # Not vcrpy's requests_match, which logs the differences, and so addresses and bodies.
    return not get_matchers_results(sent, kept, list(functions))[1]
