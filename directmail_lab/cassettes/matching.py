"""Which recorded request answers an asked one: vcrpy's matchers, as keys to look up. Pure."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from directmail_lab.contract import SAFE_METHODS
from directmail_lab.interaction import path_below

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from directmail_lab.interaction import RecordedRequest

    Matcher = Callable[[Any, Any], object]
    Key = tuple[Hashable, ...]

__all__ = ["DEFAULT_MATCH_ON", "Matching"]

DEFAULT_MATCH_ON: Final = ("method", "path", "query", "body")
"""What must be equal: the path below the base address, and the body of writes."""


class Matching:
    """What must be equal of two requests.

    Parameters
    ----------
    match_on
        Names of vcrpy's matchers, and functions of two requests (vcrpy's ``Request``: the one that
        is asked for, the recorded one) that return a verdict or assert one.
    """

    def __init__(self, match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON) -> None:
        names = [each for each in match_on if isinstance(each, str)]
        unknown = [name for name in names if name not in _PARTS and name != "body"]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a matcher. Use {', '.join(sorted({*_PARTS, 'body'}))}, "
                "or a function of two requests."
            )
        self.names = tuple(names)
        self.custom = tuple(each for each in match_on if not isinstance(each, str))
        self._parts = [(name, _PARTS[name]) for name in names if name != "body"]
        self._body = "body" in names

    def by_address_alone(self, method: str) -> bool:
        """Return whether the keys of a request by this method depend on its address alone."""
        return method in SAFE_METHODS and not {"headers", "raw_body"} & set(self.names)

    def keys(self, request: RecordedRequest, prefix: str) -> tuple[Key, ...]:
        """Return the keys of a request: two match when they have any key in common.

        ``prefix`` is the path of the base address that the request was sent to.
        """
        base = tuple(part(request, prefix) for _, part in self._parts)
        if not self._body or request.method in SAFE_METHODS:
            return (base,)
        return tuple((*base, form) for form in _body_forms(request))

    def differing(
        self, asked: RecordedRequest, prefix: str, recorded: RecordedRequest, recorded_prefix: str
    ) -> list[str]:
        """Return the names of what differs."""
        names = [
            name
            for name, part in self._parts
            if part(asked, prefix) != part(recorded, recorded_prefix)
        ]
        if self._body and not set(_bodies(asked)) & set(_bodies(recorded)):
            names.append("body")
        return names


# vcrpy chooses by these headers how it compares a body; without them, by its bytes.
_TELLS_FORM: Final = frozenset({"content-type", "transfer-encoding"})


def _bodies(request: RecordedRequest) -> Sequence[Hashable]:
    return ((),) if request.method in SAFE_METHODS else _body_forms(request)


def _body_forms(request: RecordedRequest) -> list[Hashable]:
    """Return the body as bytes and as parsed: vcrpy compares either, and one equal is enough."""
    body = request.body or b""
    forms: list[Hashable] = [("bytes", _digest(body))]
    if any(name.lower() in _TELLS_FORM for name, _ in request.headers):
        from .vcr_files import parsed_body

        parsed = parsed_body(request)
        if parsed is not None:
            forms.append((parsed[0], _canonical(parsed[1])))
    return forms


def _digest(data: bytes) -> bytes:
    return data if len(data) <= 32 else blake2b(data, digest_size=32).digest()


def _canonical(value: object) -> bytes:
    return _digest(json.dumps(_plain(value), sort_keys=True, default=repr).encode())


def _plain(value: Any) -> Any:
    """Return a value in which what Python finds equal (1, 1.0 and True) is written alike."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _port(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = urlsplit(request.uri)
    return parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _uri(request: RecordedRequest, _prefix: str) -> Hashable:
    parts = urlsplit(request.uri)
    start = f"{parts.scheme}://{parts.netloc}"
    if parts.path or not request.uri.startswith(start):
        return request.uri
    return f"{start}/{request.uri[len(start) :]}"


def _query(request: RecordedRequest, _prefix: str) -> Hashable:
    if "?" not in request.uri:
        return ()
    return tuple(sorted(parse_qsl(urlsplit(request.uri).query)))


def _header_set(request: RecordedRequest, _prefix: str) -> Hashable:
    first: dict[str, str] = {}
    for name, value in request.headers:
        first.setdefault(name.lower(), value)
    return frozenset(first.items())


_PARTS: Final[dict[str, Callable[[RecordedRequest, str], Hashable]]] = {
    "method": lambda request, _prefix: request.method,
    "uri": _uri,
    "url": _uri,
    "scheme": lambda request, _prefix: urlsplit(request.uri).scheme,
    "host": lambda request, _prefix: urlsplit(request.uri).hostname,
    "port": _port,
    "path": lambda request, prefix: path_below(request.uri, prefix),
    "query": _query,
    "headers": _header_set,
    "raw_body": lambda request, _prefix: _digest(request.body or b""),
}
