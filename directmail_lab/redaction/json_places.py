"""The leaves of JSON with their places in its text: one can be replaced, and no other byte."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Leaf", "leaves"]

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\]|\\.)*\")|(?P<scalar>-?\d[\d.eE+\-]*|true|false|null)"
    r"|(?P<mark>[{}\[\]:,]))",
    re.DOTALL,
)


class Leaf(NamedTuple):
    """A string, number, truth value or null: the names above it, its place, its text, its value."""

    path: tuple[str, ...]
    start: int
    end: int
    raw: str
    value: str | float | bool | None

    def quoted(self, text: str) -> str:
        """Return a string as JSON, escaped as this leaf is."""
        return json.dumps(text, ensure_ascii=self.raw.isascii())


def leaves(text: str) -> Iterator[Leaf]:
    """Yield the leaves of a JSON text, or of as much as there is of a torn one.

    The path is the names of the fields from the outermost; an array adds none.
    """
    names: list[str | None] = []
    name: str | None = None
    at = 0
    while match := _TOKEN.match(text, at):
        at = match.end()
        if mark := match["mark"]:
            if mark in "{[":
                names.append(name)
                name = None
            elif mark in "}]" and names:
                names.pop()
                name = None
            elif mark == ",":
                name = None
            continue
        kind = "string" if match["string"] else "scalar"
        raw = match[kind]
        value = _value(raw)
        if kind == "string" and _is_name(text, at):
            name = str(value)
            continue
        path = tuple(each for each in (*names, name) if each is not None)
        yield Leaf(path, match.start(kind), match.end(kind), raw, value)


def _is_name(text: str, end: int) -> bool:
    return re.compile(r"\s*:").match(text, end) is not None


def _value(raw: str) -> str | float | bool | None:
    try:
        value: str | float | bool | None = json.loads(raw, strict=False)
    except ValueError:
        return raw
    return value
