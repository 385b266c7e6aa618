"""Which parts of two requests are compared: by which matchers, and which parts are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlencode

from ..arguments import Like, argument_error, check_choice, check_names
from ..exchange.bodies import read_json_body
from ..exchange.values import Request, header

Matcher = Callable[[Any, Any], object]

INDEXED: Final = ("method", "path", "query")
_ORIGIN: Final = ("scheme", "host", "port")
MATCHERS: Final = (*INDEXED, *_ORIGIN, "uri", "url", "headers", "body", "raw_body")
"""The names of vcrpy's matchers."""

DEFAULT_MATCH_ON: Final = ("method", "path", "query", "body")
"""What must be equal: the path below the base address, and the body of writes."""
_VCRPY_MATCH_ON: Final = ("method", *_ORIGIN, "path", "query")  # vcr.config.VCR
_KINDS: Final = ("query", "body", "header")
_BOUNDARY: Final = re.compile(r'boundary="?([^";]+)', re.IGNORECASE)


class Matching:
    """Which parts of two requests must be equal.

    Parameters
    ----------
    match_on
        Names of vcrpy's matchers, and functions of two of its requests; None for the default ones.
    ignore
        What is left out of both requests: ``"query:NAME"``, ``"header:NAME"``, and ``"body:NAME"``
        for a field of a form, or of JSON by its dotted path.
    like
        ``"vcrpy"`` for vcrpy's default matchers. The responses of another program's cassette are
        then played unchanged.

    Attributes
    ----------
    match_on
        All matchers.
    has_whole_address
        Whether scheme, host and port are compared too. The path is then the whole path, not the
        one below the base address.

    Raises
    ------
    ValueError
        A name is not a matcher, or an argument has another form.
    """

    def __init__(
        self,
        match_on: Sequence[str | Matcher] | None = None,
        ignore: Iterable[str] = (),
        like: Like | None = None,
    ) -> None:
        if like is not None:
            check_choice("like", like, ["vcrpy"])
        if match_on is None:
            match_on = DEFAULT_MATCH_ON if like is None else _VCRPY_MATCH_ON
        _check_match_on(match_on)
        rules = [_parsed(rule) for rule in check_names("ignore", ignore)]
        self.match_on, self.like = match_on, like
        self.has_whole_address = {*_ORIGIN, "path"} <= set(match_on)
        self._query = {name for kind, name in rules if kind == "query"}
        self._headers = {name.lower() for kind, name in rules if kind == "header"}
        self._fields = {name for kind, name in rules if kind == "body"}

    @property
    def unindexed(self) -> list[str | Matcher]:
        """The matchers that need more than a request's method and address."""
        indexed = (*INDEXED, *(_ORIGIN if self.has_whole_address else ()))
        return [each for each in self.match_on if each not in indexed]

    def address(self, uri: str) -> str:
        """Return an address without the parameters that are left out."""
        if not self._query:
            return uri
        path, mark, query = uri.partition("?")
        if not mark:
            return uri
        parts = query.partition("#")[0].split("&")
        kept = [each for each in parts if unquote_plus(each.partition("=")[0]) not in self._query]
        return f"{path}?{'&'.join(kept)}" if kept else path

    def compared(self, request: Request) -> Request:
        """Return a request without the ignored parts; its body is good only for comparing."""
        if not (self._query or self._headers or self._fields):
            return request
        kept = tuple(each for each in request.headers if each[0].lower() not in self._headers)
        body = self._body(request) if self._fields and request.body else request.body
        return replace(request, uri=self.address(request.uri), headers=kept, body=body)

    def _body(self, request: Request) -> bytes:
        body, content_type = request.body or b"", header(request.headers, "content-type") or ""
        value, problem = read_json_body(request.headers, body)
        if problem is None:
            for field in self._fields:
                _remove(value, field.split("."))
            return json.dumps(value, sort_keys=True).encode()
        if "x-www-form-urlencoded" in content_type:
            pairs = parse_qsl(body.decode("latin-1"), keep_blank_values=True)
            return urlencode([pair for pair in pairs if pair[0] not in self._fields]).encode()
        body = plain_body(request)
        if body is not request.body:
            names = [f'name="{field}"'.encode() for field in self._fields]
            parts = body.split(b"--boundary")
            heads = (part.partition(b"\r\n\r\n")[0] for part in parts)
            pairs_of = zip(parts, heads, strict=True)
            return b"--boundary".join(
                part for part, head in pairs_of if not any(b" " + name in head for name in names)
            )
        return body


def plain_body(request: Request) -> bytes:
    """Return a body for comparing: the random boundary of a multipart body is replaced."""
    body, content_type = request.body or b"", header(request.headers, "content-type") or ""
    if content_type.lower().startswith("multipart/") and (match := _BOUNDARY.search(content_type)):
        return body.replace(match[1].encode(), b"boundary")
    return body


def _remove(value: Any, path: list[str]) -> None:
    """Remove a field from JSON. In an array, a path without a number means every element."""
    first, *more = path
    if isinstance(value, list):
        chosen = value[int(first) : int(first) + 1] if first.isdecimal() else value
        for each in chosen:
            _remove(each, more if first.isdecimal() else path)
    elif isinstance(value, dict) and more:
        _remove(value.get(first), more)
    elif isinstance(value, dict):
        value.pop(first, None)


def _check_match_on(match_on: Sequence[str | Matcher]) -> None:
    """Raise ValueError if ``match_on`` is not a list of matchers."""
    if isinstance(match_on, str) or not isinstance(match_on, Sequence):
        raise argument_error('match_on must be a list, as in match_on=["method", "path"].')
    for name in match_on:
        if not (callable(name) or name in MATCHERS):
            raise argument_error(
                f"{name!r} is not a matcher. Use {', '.join(sorted(MATCHERS))}, "
                "or a function of two requests."
            )


def _parsed(rule: str) -> tuple[str, str]:
    kind, _, name = rule.partition(":")
    if kind not in _KINDS or not name:
        raise argument_error(
            f"{rule!r} names nothing to ignore. Give query:NAME, body:NAME or header:NAME, as in "
            'ignore=["query:key", "body:user.apikey"].'
        )
    return kind, name
