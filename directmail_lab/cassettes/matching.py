"""Which requests are the same: those with equal canonical forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

from ..arguments import argument_error, check_names
from ..exchange.bodies import declared_charset, read_json, read_multipart, unpack
from ..exchange.values import SAFE_METHODS, Request, header

Matcher = Callable[[Any, Any], object]

Form = tuple[Hashable, ...]
"""The canonical form of a request. Requests with equal forms are the same."""

ORIGIN = ("scheme", "host", "port")
MATCHERS = ("method", "path", "query", *ORIGIN, "uri", "url", "headers", "body", "raw_body")
"""The names of vcrpy's matchers."""

DEFAULT_MATCH_ON = ("method", "path", "query", "body")
"""What must be equal: the path below the base address, and the body."""
_INSIDE = ("headers", "body", "raw_body")
_KINDS = ("query", "body", "header")
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


class Matching:
    """Which parts of two requests must be equal.

    Parameters
    ----------
    match_on
        Names of vcrpy's matchers, and functions of two of its requests; None for the default ones.
    ignore
        What is left out of both requests: ``"query:NAME"``, ``"header:NAME"``, and ``"body:NAME"``
        for a field of a form, or of JSON by its dotted path.

    Attributes
    ----------
    names
        The matchers that are names.
    in_address, inside
        The names of the parts of the two halves of a form, besides the place: see `part`.
    checks
        A person's functions, which vcrpy runs for two requests whose forms are equal.
    decides_by_address
        Whether requests to one address without a body and without ``Range`` are the same.

    Raises
    ------
    ValueError
        A name is not a matcher, or an argument has another form.
    """

    def __init__(
        self,
        match_on: Sequence[str | Matcher] | None = None,
        ignore: Iterable[str] = (),
    ) -> None:
        self.match_on = match_on
        self.ignore = check_names("ignore", ignore)
        if match_on is None:
            match_on = DEFAULT_MATCH_ON
        _check_match_on(match_on)
        rules = [_parsed(rule) for rule in self.ignore]
        self._query = {name for kind, name in rules if kind == "query"}
        self._headers = {name.lower() for kind, name in rules if kind == "header"}
        self._fields = {name for kind, name in rules if kind == "body"}
        self.names = [each for each in match_on if isinstance(each, str)]
        self.checks = [each for each in match_on if callable(each)]
        parts = [each for each in self.names if each != "path"]
        self.in_address = [each for each in parts if each not in _INSIDE]
        self.inside = [each for each in parts if each in _INSIDE]
        self._has_place = "path" in self.names
        self._has_origin = not {*ORIGIN}.isdisjoint(self.names)
        # "path" alone names no host. The default means the path below the base address.
        self._is_path_alone = self.match_on is not None
        if self._has_place:
            self.inside.append("range")
        has_address = {"method", "path", "query"} <= set(self.names)
        self.decides_by_address = has_address and not (self.checks or "headers" in self.inside)

    def __or__(self, other: Matching | None) -> Matching:
        """Return this one with what the other one gives; None gives nothing."""
        if other is None:
            return self
        match_on = self.match_on if other.match_on is None else other.match_on
        return Matching(match_on, other.ignore or self.ignore)

    @property
    def compared_parts(self) -> set[str]:
        """The names of what is compared, for `mismatch.differences`."""
        knows_place = self._has_place and not self._has_origin
        return {*self.names, *(ORIGIN if knows_place and not self._is_path_alone else ())}

    def form(self, request: Request) -> Form:
        """Return the canonical form of a request."""
        compared = self.compared(request)
        return next(self.address_forms(compared, ())), self.inside_form(compared)

    def address_forms(self, request: Request, base_urls: Iterable[str]) -> Iterator[Form]:
        """Yield the forms of a method and an address; what is equal in an earlier one comes first.

        The first form has the whole address. The next ones have the path below each base address.
        If a person names the path and no part of the origin, the last one has the path alone.

        The request is one that `compared` returned.
        """
        rest = tuple([self.part(name, request) for name in self.in_address])
        if not self._has_place:
            yield rest
            return
        origin, path = split_address(request.uri)
        if self._has_origin:
            yield path, *rest
            return
        yield origin, path, *rest
        for base_url in base_urls:
            base_origin, base_path = split_address(base_url)
            base_path = base_path.rstrip("/")
            if origin == base_origin and f"{path}/".startswith(f"{base_path}/"):
                yield "below", path[len(base_path) :] or "/", *rest
        if self._is_path_alone:
            yield "anywhere", path, *rest

    def inside_form(self, request: Request) -> Form:
        """Return the form of what else decides: the body, and some headers."""
        return tuple([self.part(name, request) for name in self.inside])

    def part(self, name: str, request: Request) -> Hashable:
        """Return the part of a request that a matcher compares, in its canonical form."""
        match name:
            case "method":
                return request.method.upper()
            case "query":
                return _parameters(request.uri)
            case "scheme" | "host" | "port":
                return origin_parts(split_address(request.uri)[0])[name]
            case "range":
                return header(request.headers, "range")
            case "body":
                return canonical_body(request)
            case "raw_body":
                return request.body or b""
            case "headers":  # of a repeated one, vcrpy compares the first
                return frozenset({n.lower(): v for n, v in reversed(request.headers)}.items())
            case _:
                return request.uri

    def choice(self, request: Request) -> Hashable:
        """Return what chooses between several requests of one form; None for the first one.

        For a read, that is what it accepts.
        """
        is_read = request.method.upper() in SAFE_METHODS
        return header(request.headers, "accept") if is_read else None

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
        if not self.ignore:
            return request
        kept = tuple(each for each in request.headers if each[0].lower() not in self._headers)
        body = request.body
        if self._fields and body:
            body = _body_without(self._fields, request)
            kept = tuple(each for each in kept if each[0].lower() != "content-encoding")
        return replace(request, uri=self.address(request.uri), headers=kept, body=body)


def split_address(uri: str) -> tuple[str, str]:
    """Return the origin and the path of an address, in one spelling of each.

    The origin is in lower case and has no user info and no default port; for the path see
    `unescaped`.
    """
    address = uri.partition("#")[0].partition("?")[0]
    scheme, _, place = address.partition("://")
    host, slash, path = place.partition("/")
    scheme = scheme.lower()
    host = host.rpartition("@")[2].lower()
    host = host.removesuffix(_DEFAULT_PORTS.get(scheme, "/"))
    return f"{scheme}://{host}", unescaped(f"/{path}" if slash else "/")


def origin_parts(origin: str) -> dict[str, str]:
    """Return the scheme, the host and the port of an origin; the port is empty by default."""
    scheme, _, place = origin.partition("://")
    host, _, port = place.rpartition(":")
    if not port.isdecimal():  # none, or a part of an address in brackets
        host = place
        port = ""
    return {"scheme": scheme, "host": host, "port": port}


def unescaped(path: str) -> str:
    """Return a path without needless escapes: ``%3a`` becomes ``:``, and ``%2f`` ``%2F``.

    Clients differ in what they escape: httpx sends a given ``%3A`` unchanged, aiohttp sends ``:``.
    A slash, ``?``, ``#`` and ``%`` stay escaped, since they would mean something else.
    """
    return _ESCAPE.sub(_unescaped, path) if "%" in path else path


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if "!" <= character <= "~" and character not in "/?#%" else escape[0].upper()


def _parameters(uri: str) -> tuple[tuple[str, str], ...]:
    query = uri.partition("#")[0].partition("?")[2]
    if not query:
        return ()
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    return tuple(sorted(pairs))


def canonical_body(request: Request) -> Hashable:
    """Return the canonical form of a body, decompressed.

    JSON counts by its values and their types, a form by its fields, also empty ones, and a
    multipart body by its parts. Any other body counts by its bytes.
    """
    if not request.body:
        return None
    kind, value = _read_body(request)
    match kind:
        case "multipart":
            return kind, tuple([(each.head, each.content) for each in value])
        case "JSON":
            with suppress(RecursionError):  # Python reads deeper values than it writes
                return kind, json.dumps(value, sort_keys=True)
            return request.body
        case "form":
            return kind, tuple(value)
        case _:
            return bytes(value)


def _read_body(request: Request) -> tuple[str, Any]:
    """Return of which kind a body is, and its parts, value or fields, else its bytes."""
    body = request.body or b""
    with suppress(ValueError):  # it may not be compressed as its header says
        body = unpack(body, header(request.headers, "content-encoding") or "")
    content_type = (header(request.headers, "content-type") or "").lower()
    if content_type.startswith("multipart/"):
        parts = read_multipart(body)
        return ("multipart", parts) if parts else ("bytes", body)
    value, problem = read_json(body, declared_charset(content_type), parse_float=_number)
    if problem is None:
        return "JSON", value
    if "x-www-form-urlencoded" in content_type:
        text = body.decode("latin-1")
        return "form", parse_qsl(text, keep_blank_values=True, encoding="latin-1")
    return "bytes", body


def _number(text: str) -> float | int:
    """Return a number of JSON, which does not tell 1.0 from 1."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _body_without(fields: Collection[str], request: Request) -> bytes:
    """Return a body without some fields: of JSON, of a form or of a multipart body."""
    kind, value = _read_body(request)
    match kind:
        case "multipart":
            kept = [part for part in value if part.name not in fields]
            lines = [b"--boundary\r\n%s\r\n\r\n%s\r\n" % (p.head, p.content) for p in kept]
            return b"".join(lines)
        case "JSON":
            for field in fields:
                _remove(value, field.split("."))
            return json.dumps(value, sort_keys=True).encode()
        case "form":
            kept = [pair for pair in value if pair[0] not in fields]
            return urlencode(kept, encoding="latin-1").encode()
        case _:
            return bytes(value)


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
