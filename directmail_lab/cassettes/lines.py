"""Read interactions in our own layout, which are values of JSON in lines."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import CassetteFormatError
from ..exchange.values import MALFORMED, Interaction, check_interaction, unreadable
from . import layout

# An interaction: time, latency, attempt, no_response, cell, request and response. Earlier versions
# marked failures.
_INTERACTION = re.compile(
    rb"- recorded_at: ([^\n]*)\n  elapsed_s: ([^\n]*)\n(?:  attempt: (\d{1,3})\n)?"
    rb"(?:  no_response: ([a-z_]{1,20})\n)?(?:  fallback: true\n)?"
    rb'(?:  cell: "([a-zA-Z0-9_-]{1,64})"\n)?'
    rb"  request: ([^\n]*)\n  response: ([^\n]*)\n"
)

_read_json = json.JSONDecoder().raw_decode


class OtherLayoutError(CassetteFormatError):
    """A text is not in this layout, although it may be in vcrpy's."""


def read_interactions(data: bytes, start: int = 0) -> list[Interaction]:
    """Return the interactions of a text in this layout, from a position on.

    Raises
    ------
    OtherLayoutError
        There is other text than this module writes.
    CassetteFormatError
        A value is malformed. The message names the line.
    """
    found: list[Interaction] = []
    while start < len(data):
        match = _INTERACTION.match(data, start)
        if match is None:
            raise OtherLayoutError("It is not in the layout of directmail-lab.")
        try:
            found.append(check_interaction(_interaction_of(match)))
        except MALFORMED as error:
            line = data.count(b"\n", 0, start) + 1
            raise unreadable(f"The interaction in line {line}", error) from None
        start = match.end()
    return found


def _interaction_of(match: re.Match[bytes]) -> Interaction:
    at, elapsed_s, attempt, kind, cell, request, response = match.groups()
    return Interaction(
        layout.request_of(_value_of(request)),
        layout.response_of(_value_of(response), kind and kind.decode()),
        layout.recorded_at_of(at.decode("ascii", "replace")),
        layout.elapsed_s_of(elapsed_s),
        int(attempt or 1),
        None if cell is None else cell.decode(),
    )


def _value_of(line: bytes) -> Any:
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

    try:
        return load_yaml(text)
    except CassetteFormatError:  # which counts the lines of this text
        raise CassetteFormatError("a line of it is neither JSON nor safe YAML") from None
