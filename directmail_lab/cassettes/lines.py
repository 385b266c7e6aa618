"""A file in our own layout, read by line: each interaction is parsed when somebody asks for it.

`LineReader` finds the interactions in a file's bytes. `Lines` are these interactions.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..exchange.values import (
    MALFORMED,
    Interaction,
    check_interaction,
    unreadable,
)
from . import layout

_read_json = json.JSONDecoder().raw_decode


def interaction_of(match: re.Match[bytes], which: str) -> Interaction:
    """Return the interaction of a match of `layout.INTERACTION`."""
    at, elapsed_s, attempt, kind, fallback, request, response = match.groups()
    try:
        return check_interaction(
            Interaction(
                layout.request_of(_parse(request)),
                layout.response_of(_parse(response), kind and kind.decode()),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed_s),
                int(attempt or 1),
                fallback is not None,
            )
        )
    except MALFORMED as error:
        raise unreadable(which, error) from None


def _parse(line: bytes) -> Any:
    text = line.decode()
    # `json.loads` takes half as long again: it looks for space around the value.
    try:
        value, end = _read_json(text)
    except (ValueError, RecursionError):
        end = -1
    if end == len(text):
        return value
    # A binary body, or a line that a person wrote.
    from .vcr_files import load_yaml

    return load_yaml(text)


def read_lines(data: bytes, position: int, name: str) -> list[Interaction] | None:
    """Return the interactions after a header; None if there is other text than our own."""
    found: list[Interaction] = []
    for match in layout.INTERACTION.finditer(data, position):
        if match.start() != position:
            return None
        position = match.end()
        found.append(interaction_of(match, f"Interaction {len(found) + 1} of cassette {name!r}"))
    is_whole = position == len(data) or layout.END.fullmatch(data, position)
    return found if is_whole else None
