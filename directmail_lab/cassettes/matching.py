"""Which requests are the same: those with equal canonical forms.

A form is a list of names and values: ``("query", "page"): "2"``. Two spellings of one request have
one form: the order of parameters with different names, escapes of a path, the case of a host, a
default port, the layout of JSON and the boundary of a multipart body do not count.
"""

from __future__ import annotations

import glob
import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from ..arguments import argument_error, check_names
from ..exchange.bodies import plain_text, read_multipart, unpacked
from ..exchange.values import Request, header, is_json_type, media_type_of
from ..redaction.key import ANY_VALUE

Matcher = Callable[[Any, Any], object]

Name = tuple[str | int, ...]
"""The name of a part of a request, such as ``("query", "page")`` or ``("JSON", "to", 0)``."""

ORIGIN = ("scheme", "host", "port")
MATCHERS = ("method", "path", "query", *ORIGIN, "uri", "url", "headers", "body", "raw_body")
"""The names of vcrpy's matchers."""

DEFAULT_MATCH_ON = ("method", "path", "query", "body")
"""What must be equal: the path below the service address, and the body."""
_KINDS = ("query", "body", "header")
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
# In a path, an escaped one of these would mean something else without its escape.
_DELIMITERS = "/?#%;"
_NOT_ASCII = re.compile("[^!-~]+")
_BOUNDARY = re.compile(r'boundary="?([^";,]+)', re.IGNORECASE)


class Form(NamedTuple):
    """The canonical form of a request: the names of its parts, and their values."""

    shape: tuple[Hashable, ...]
    values: tuple[Hashable, ...]


class Literal(NamedTuple):
    """A value of JSON that is no string."""

    value: Decimal | str

    def __repr__(self) -> str:
        return str(self.value)


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
    checks
        A person's functions, which vcrpy runs for two requests whose forms are equal.

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
        if isinstance(match_on, str) or not isinstance(match_on, Sequence):
            raise argument_error('match_on must be a list, as in match_on=["method", "path"].')
        for name in match_on:
            if not (callable(name) or name in MATCHERS):
                raise argument_error(
                    f"{name!r} is not a matcher. Use {', '.join(sorted(MATCHERS))}, "
                    "or a function of two requests."
                )
        rules = list(map(_parse_rule, self.ignore))
        self._left_out = {(kind, name) for kind, name in rules if kind != "body"}
        self._fields = [name.split(".") for kind, name in rules if kind == "body"]
        self.names = [each for each in match_on if isinstance(each, str)]
        if not {"uri", "url"}.isdisjoint(self.names):
            self.names += [*ORIGIN, "path", "query"]
        self.checks = [each for each in match_on if callable(each)]
        self._has_place = "path" in self.names
        self._has_origin = not {*ORIGIN}.isdisjoint(self.names)
        # "path" alone names no host. The default means the path below the service address.
        self._is_path_alone = self.match_on is not None

    def __or__(self, other: Matching | None) -> Matching:
        """Return this one with what the other one gives; None gives nothing."""
        if other is None:
            return self
        match_on = self.match_on if other.match_on is None else other.match_on
        return Matching(match_on, other.ignore or self.ignore)

    @property
    def compares_origin(self) -> bool:
        """Whether the origin of two requests counts that are not below their service addresses."""
        return self._has_origin or (self._has_place and not self._is_path_alone)

    def form(self, request: Request) -> Form:
        """Return the form of a request with its whole address."""
        return next(self.forms(request, ()))

    def forms(self, request: Request, base_urls: Iterable[str]) -> Iterator[Form]:
        """Yield the forms of a request; what is equal in an earlier one comes first.

        The first form has the whole address. The next ones have the path below each of the two.
        If a person names the path and no part of the origin, the last one has the path alone.
        """
        parts = self.parts(request)
        shape = tuple([name for name, _ in parts])
        values = tuple([value for _, value in parts])
        for place, path in self._places(request.uri, base_urls):
            segments = tuple(map(sys.intern, path.split("/")))  # most are in many paths
            yield Form((place, len(segments), *shape), (*segments, *values))

    def _places(self, uri: str, base_urls: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield where a path may be found, and the path."""
        if not self._has_place:
            yield "", ""
            return
        origin, path = split_address(uri)
        if self._has_origin:
            yield "", path
            return
        yield origin, path
        for base_url in base_urls:
            below = path_below_base(origin, path, base_url)
            if below is not None:
                yield "below", below
        if self._is_path_alone:
            yield "anywhere", path

    def parts(self, request: Request) -> list[tuple[Name, Hashable]]:
        """Return all that is compared of a request besides its path, each with its name."""
        found: list[tuple[Name, Hashable]] = []
        for matcher in self.names:
            match matcher:
                case "method":
                    found.append((("method",), request.method.upper()))
                case "query":
                    found += [(("query", name), value) for name, value in _parameters(request.uri)]
                case "scheme" | "host" | "port":
                    origin = origin_parts(split_address(request.uri)[0])
                    found.append(((matcher,), origin[matcher]))
                case "body":
                    found += body_parts(request)
                case "raw_body":
                    found.append((("body",), _text_or_bytes(request.body or b"")))
                case "headers":  # of a repeated one, vcrpy compares the first
                    firsts = {name.lower(): value for name, value in reversed(request.headers)}
                    found += [(("header", name), firsts[name]) for name in sorted(firsts)]
        if self._has_place and "headers" not in self.names:
            value = header(request.headers, "range")
            if value is not None:
                found.append((("header", "range"), "".join(value.split()).lower()))
        return [part for part in found if not self.leaves_out(part[0])] if self.ignore else found

    def leaves_out(self, name: Name) -> bool:
        """Return whether a person named this part, or a field that contains it."""
        kind, *path = name
        if kind in ("query", "header"):
            return name in self._left_out
        return any(_is_below(rule, path) for rule in self._fields)


def _is_below(rule: Sequence[str], name: Sequence[object]) -> bool:
    """Return whether a part is the field of a rule, or in it.

    In an array, a rule without a number means every element.
    """
    if name and name[0] == ".".join(rule):
        return True
    left = list(rule)
    for each in name:
        if not left:
            break
        if str(each) == left[0]:
            del left[0]
        elif not isinstance(each, int) or left[0].isdecimal():
            return False
    return not left


# -- addresses -------------------------------------------------------------------------------------


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


# A cassette names few service addresses, and compares each of its requests with them.
_split_base = lru_cache(maxsize=64)(split_address)


def path_below_base(origin: str, path: str, base_url: str) -> str | None:
    """Return the part of a split address that follows a service address; None outside of it."""
    base_origin, base_path = _split_base(base_url)
    base_path = base_path.rstrip("/")
    is_below = origin == base_origin and f"{path}/".startswith(f"{base_path}/")
    return (path[len(base_path) :] or "/") if is_below else None


def origin_parts(origin: str) -> dict[str, str]:
    """Return the scheme, the host and the port of an origin; the port is empty by default."""
    scheme, _, place = origin.partition("://")
    host, _, port = place.rpartition(":")
    if not port.isdecimal():  # none, or a part of an address in brackets
        host = place
        port = ""
    return {"scheme": scheme, "host": host, "port": port}


def unescaped(path: str) -> str:
    """Return a path in one spelling: ``%3a`` becomes ``:``, ``%2f`` ``%2F``, and ``é`` ``%C3%A9``.

    Clients differ in what they escape: httpx sends a given ``%3A`` unchanged, aiohttp sends ``:``.
    A slash, ``;``, ``?``, ``#`` and ``%`` stay escaped, since they would mean something else.
    """
    if "%" in path:
        path = _ESCAPE.sub(_unescaped, path)
    if not path.isascii() or " " in path:
        path = _NOT_ASCII.sub(lambda run: quote(run[0], errors="surrogatepass"), path)
    return path


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    is_needless = "!" <= character <= "~" and character not in _DELIMITERS
    return character if is_needless else escape[0].upper()


def _parameters(uri: str) -> list[tuple[str, str]]:
    """Return the parameters of a query: sorted by name, those of one name in their order."""
    query = uri.partition("#")[0].partition("?")[2]
    return _sorted(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))


def _sorted(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(pairs, key=lambda pair: pair[0])


# -- bodies ----------------------------------------------------------------------------------------


def body_parts(request: Request) -> list[tuple[Name, Hashable]]:
    """Return the parts of a body, decompressed: the first says of which kind it is.

    JSON counts by its values and their types, a form by its fields, also empty ones, and a
    multipart body by its parts. Any other body counts by its bytes.
    """
    body = request.body or b""
    if body:
        with suppress(ValueError):  # it may not be compressed as its header says
            body = unpacked(request)
    if not body:
        return [(("kind",), "no body")]
    media_type = media_type_of(request.headers)
    parts: list[tuple[Name, Hashable]] | None = None
    if media_type.startswith("multipart/"):
        kind = "multipart"
        parts = _multipart(header(request.headers, "content-type") or "", body)
    elif media_type == "application/x-www-form-urlencoded":
        kind = "form"
        text = body.decode("utf-8", "surrogateescape")
        fields = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
        parts = [(("form", name), value) for name, value in _sorted(fields)]
    elif is_json_type(media_type) or not media_type:
        kind = "JSON"
        with suppress(ValueError, ArithmeticError, RecursionError):
            parts = list(_json_parts(_DECODER.decode(body.decode(json.detect_encoding(body)))))
    if parts is None:
        return [(("kind",), "other"), (("body",), _text_or_bytes(body))]
    return [(("kind",), kind), *parts]


def _text_or_bytes(body: bytes) -> str | bytes:
    text = plain_text(body)
    return body if text is None else text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers count by their digits. An object is a tuple of pairs, since a name may occur twice.
_DECODER = json.JSONDecoder(
    object_pairs_hook=tuple,
    parse_int=Decimal,
    parse_float=Decimal,
    parse_constant=_refuse_constant,
)


def _json_parts(value: object, name: Name = ("JSON",)) -> Iterator[tuple[Name, Hashable]]:
    """Yield each value of JSON with its path; an object as ``{}``, then its members by name."""
    if isinstance(value, tuple):
        yield name, Literal("{}")
        for key, inner in sorted(value, key=lambda pair: pair[0]):
            yield from _json_parts(inner, (*name, key))
    elif isinstance(value, list):
        yield name, Literal("[]")
        for index, inner in enumerate(value):
            yield from _json_parts(inner, (*name, index))
    elif isinstance(value, Decimal):
        yield name, Literal(value)
    else:
        yield name, value if isinstance(value, str) else Literal(json.dumps(value))


def _multipart(content_type: str, body: bytes) -> list[tuple[Name, Hashable]] | None:
    """Return the parts of a multipart body; None if it does not begin with its boundary."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None or not body.lstrip().startswith(b"--" + boundary[1].strip().encode()):
        return None
    found: list[tuple[Name, Hashable]] = []
    for part in read_multipart(body):
        name: Name = ("multipart", part.name)
        head = part.head.decode("latin-1")
        if part.file_name is not None:
            found.append(((*name, "file name"), part.file_name))
            head = re.sub('filename="[^"]*"', "", head)
        found.append(((*name, "headers"), head))
        content = name if part.file_name is None else (*name, "content")
        found.append((content, _text_or_bytes(part.content)))
    return sorted(found, key=lambda each: str(each[0][1]))


# -- what redaction replaced -----------------------------------------------------------------------


class AnyValue:
    """Finds the forms that equal another one but for values that redaction replaced.

    A value that says ``<REDACTED>``, in a recording or in what is sent, equals any value.
    """

    def __init__(self, forms: Iterable[Form]) -> None:
        self._groups: dict[Hashable, dict[tuple[int, ...], list[Form]]] = {}
        self._indexes: dict[Hashable, dict[Hashable, list[Form]]] = {}
        for form in forms:
            groups = self._groups.setdefault(form.shape, {})
            groups.setdefault(replaced_in(form), []).append(form)

    def find(self, form: Form) -> list[Form]:
        """Return the forms that equal a form, of those that have such values where it has them."""
        groups = self._groups.get(form.shape, {})
        sent = replaced_in(form)
        for recorded in sorted(groups, key=lambda each: len({*each} ^ {*sent})):
            positions = {*recorded, *sent}
            key = form.shape, recorded, sent
            if key not in self._indexes:
                index = self._indexes[key] = {}
                for each in groups[recorded]:
                    index.setdefault(_others(each, positions), []).append(each)
            equal = self._indexes[key].get(_others(form, positions), [])
            found = [
                each
                for each in equal
                if all(_fits(each.values[at], form.values[at]) for at in positions)
            ]
            if found:
                return found
        return []


def replaced_in(form: Form) -> tuple[int, ...]:
    """Return the positions of the values that redaction replaced."""
    texts = [(at, value) for at, value in enumerate(form.values) if isinstance(value, str)]
    return tuple([at for at, text in texts if ANY_VALUE.search(text)])


def _others(form: Form, positions: set[int]) -> Hashable:
    return tuple([value for at, value in enumerate(form.values) if at not in positions])


def _fits(one: Hashable, other: Hashable) -> bool:
    return one == other or _stands_for(one, other) or _stands_for(other, one)


def _stands_for(replaced: Hashable, value: Hashable) -> bool:
    """Return whether a text whose placeholders may be any text is another value."""
    pieces = ANY_VALUE.split(replaced) if isinstance(replaced, str) else []
    if len(pieces) < 2:
        return False
    pattern = "*".join(map(glob.escape, pieces))
    return pattern == "*" or (isinstance(value, str) and fnmatchcase(value, pattern))


# -- arguments -------------------------------------------------------------------------------------


def _parse_rule(rule: str) -> tuple[str, str]:
    """Return the kind and the name of what ``ignore`` leaves out."""
    kind, _, name = rule.partition(":")
    if kind not in _KINDS or not name:
        raise argument_error(
            f"{rule!r} names nothing to ignore. Give query:NAME, body:NAME or header:NAME, as in "
            'ignore=["query:key", "body:user.apikey"].'
        )
    return kind, name.lower() if kind == "header" else name
