"""The parts in which a request differs from a recorded one: ``query: page``, ``body: name``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl

from ..exchange.bodies import leaves, read_form, read_json_body, read_multipart
from ..exchange.values import Request, header
from .matching import ORIGIN, origin_parts, split_address, unescaped

Differences = dict[str, tuple[object, object]]
"""For the name of each part that differs: the sent value and the recorded one."""

_MAX_PARSED_BYTES = 1024**2
_PLACE = ("method", *ORIGIN, "path")
_LONGEST_PATH = 200
_ADDRESS = re.compile(r"([^/?#]*//)?(?:[^/?#]*@)?([^/?#]*)([^?#]*)\??([^#]*)")


def place_of(request: Request, base_url: str) -> tuple[str, str, str]:
    """Return the origin, path and query of an address; below ``base_url`` the origin is empty.

    The path is `unescaped` and cut at 200 characters: comparing two paths takes time that grows
    with the square of their length.
    """
    base_url = unescaped(base_url)
    match = _ADDRESS.match(request.uri)
    assert match is not None, "each part may be empty"
    origin = f"{match[1] or ''}{match[2]}"
    path = unescaped(match[3])
    if base_url and f"{origin}{path}/".startswith(f"{base_url}/"):
        path = f"{origin}{path}"[len(base_url) :]
        origin = ""
    return origin, (path or "/")[:_LONGEST_PATH], match[4]


def differences(
    sent: tuple[Request, str], recorded: tuple[Request, str], compared: set[str]
) -> Differences:
    """Return the parts that differ in two redacted requests, each given with its base address.

    If the method or the path differs, only these are returned: the parameters of two different
    operations say nothing.

    Parameters
    ----------
    compared
        The names of vcrpy's matchers in use.
    """
    kinds = {name.removesuffix("s") for name in compared}
    origins = place_of(*sent)[0], place_of(*recorded)[0]
    if origins == ("", ""):  # both are below their bases, and where these are does not count
        kinds.difference_update(ORIGIN)
    forms = _form_of(sent[0]), _form_of(recorded[0])
    has_other_form = "" not in forms and forms[0] != forms[1]
    if has_other_form:
        kinds.discard("body")  # they have no fields to compare
    ours = dict(_parts(*sent))
    theirs = dict(_parts(*recorded))
    found: Differences = {}
    for name in {**ours, **theirs}:
        pair = ours.get(name), theirs.get(name)
        # In JSON, true is not 1, and null is not the same as no value.
        is_equal = (
            pair[0] == pair[1]
            and isinstance(pair[0], bool) == isinstance(pair[1], bool)
            and (name in ours) == (name in theirs)
        )
        if name.partition(":")[0] in kinds and not is_equal:
            found[name] = pair
    if ours["method"] != theirs["method"] or ours["path"] != theirs["path"]:
        return {name: pair for name, pair in found.items() if name in _PLACE}
    if has_other_form and "body" in compared:
        found["body: {} where {} was recorded".format(*forms)] = forms
    return found


def _parts(request: Request, base_url: str) -> Iterator[tuple[str, object]]:
    """Yield each part of a request by its name."""
    _, path, query = place_of(request, base_url)
    yield "method", request.method
    yield from origin_parts(split_address(request.uri)[0]).items()
    yield "path", path
    yield from _by_name("query", sorted(parse_qsl(query, keep_blank_values=True)))
    yield from _by_name("header", ((name.lower(), value) for name, value in request.headers))
    body = request.body or b""
    content_type = header(request.headers, "content-type") or ""
    value, problem = read_json_body(request.headers, body[:_MAX_PARSED_BYTES])
    if not problem:
        fields = leaves(value, into_arrays=True)
        yield from _by_name("body", ((".".join(map(str, path)), leaf) for path, leaf in fields))
    elif "form" in content_type and len(body) <= _MAX_PARSED_BYTES:
        yield from _by_name("body", read_form(content_type, body))
        parts = read_multipart(body) if "multipart" in content_type else []
        named = [part for part in parts if part.file_name is not None]
        yield from _by_name("body", ((f"file name of {p.name}", p.file_name) for p in named))
    elif body:
        yield "body", body


def _form_of(request: Request) -> str:
    """Return the format of a request's body, or an empty text if it has no fields to compare."""
    content_type = header(request.headers, "content-type") or ""
    if not read_json_body(request.headers, (request.body or b"")[:_MAX_PARSED_BYTES])[1]:
        return "JSON"
    if not request.body or "form" not in content_type:
        return ""
    return "a multipart form" if "multipart" in content_type else "a form"


def _by_name(kind: str, pairs: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    values: dict[str, list[object]] = {}
    for name, value in pairs:
        values.setdefault(f"{kind}: {name}" if name else kind, []).append(value)
    for name, several in values.items():
        yield name, several if len(several) > 1 else several[0]
