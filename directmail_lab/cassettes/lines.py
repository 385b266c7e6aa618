"""A file in our own layout, read by line: each interaction is parsed when somebody asks for it.

`LineReader` finds the interactions in a file's bytes. `Lines` are these interactions.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..errors import CassetteFormatError
from ..exchange.values import (
    MALFORMED,
    Interaction,
    Request,
    Response,
    check_request,
    check_response,
    check_times,
    unreadable,
)
from . import layout
from .layout import Line

_read_json = json.JSONDecoder().raw_decode


class Lines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for.

    Parameters
    ----------
    data
        The bytes of the file, with line feeds at the ends of lines.
    starts
        The position at which each interaction starts.
    """

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        at, elapsed_s, attempt, kind, fallback, request, response = self._match(index).groups()
        try:
            interaction = Interaction(
                check_request(layout.request_of(_parse(request))),
                check_response(layout.response_of(_parse(response), kind and kind.decode())),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed_s),
                int(attempt or 1),
                fallback is not None,
            )
            check_times(interaction.recorded_at, interaction.elapsed_s)
        except MALFORMED as error:
            raise self._unreadable(index, error) from None
        return interaction

    def response(self, index: int) -> Response:
        """Return the response of an interaction."""
        kind, _, _, response = self._match(index).groups()[3:]
        try:
            return check_response(layout.response_of(_parse(response), kind and kind.decode()))
        except MALFORMED as error:
            raise self._unreadable(index, error) from None

    def request(self, index: int) -> Request:
        """Return the request of an interaction."""
        try:
            return check_request(layout.request_of(_parse(self._match(index)[6])))
        except MALFORMED as error:
            raise self._unreadable(index, error) from None

    def is_bare(self, index: int) -> bool:
        """Return whether a request certainly has neither a body nor a ``Range``."""
        return layout.is_bare(self._data, self._starts[index])

    def accept(self, index: int) -> bytes | None:
        """Return the ``Accept`` of a request as it is written, for comparing."""
        start = self._starts[index]
        end = self._data.find(b"\n  response: ", start)
        match = layout.ACCEPT.search(self._data, start, end)
        return None if match is None else match[1]

    def outline(self, index: int) -> layout.Outline | None:
        """Return what a reading needs of an interaction; None if all of it must be parsed."""
        return layout.outline_of(self._data, self._starts[index])

    def _match(self, index: int) -> re.Match[bytes]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        return match

    def _unreadable(self, index: int, error: Exception) -> CassetteFormatError:
        return unreadable(f"Interaction {index % len(self) + 1} of cassette {self._name!r}", error)

    def addresses(self) -> Iterator[Line]:
        """Yield method and address of each interaction, and which attempt it is."""
        for index, start in enumerate(self._starts):
            yield layout.line_of(self._data, start) or line_of_interaction(self[index])

    def texts(self) -> Iterator[bytes]:
        """Yield each interaction as it is written in the file."""
        for index in range(len(self)):
            yield self._match(index)[0]

    def offset(self, index: int) -> int | None:
        """Return where an interaction starts in the file; None if there are not so many."""
        return self._starts[index] if index < len(self) else None


def line_of_interaction(interaction: Interaction) -> Line:
    request = interaction.request
    return (request.method, request.uri), interaction.attempt


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


class LineReader:
    """Finds the interactions in the bytes of a file in the line layout.

    Parameters
    ----------
    data
        The bytes, with line feeds at the ends of lines.
    position
        Where the header ends.

    Attributes
    ----------
    starts
        The position at which each interaction starts, also of those that were replaced.
    replaced, fallbacks
        Indexes of interactions: see `layout.MARK` and `Interaction`.
    others
        Texts that are not in our layout: a person or another program wrote them.
    lacks_newline
        Whether the newline after the last interaction is missing.
    clean_bytes
        As in `FileRecording`.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self.lacks_newline = not data.endswith(b"\n") and _is_whole(data)
        self.data = data + b"\n" if self.lacks_newline else data
        self.starts = array("Q")
        self.replaced: set[int] = set()
        self.fallbacks: set[int] = set()
        self.others: list[bytes] = []
        self.clean_bytes = position
        for match in layout.INTERACTION.finditer(self.data, position):
            if match.start() != self.clean_bytes:
                self._read_between(self.data[self.clean_bytes : match.start()])
            if match[5] is not None:
                self.fallbacks.add(len(self.starts))
            self.starts.append(match.start())
            self.clean_bytes = match.end()
        end = layout.END.search(self.data, self.clean_bytes)
        tail = self.data[self.clean_bytes : end.start() if end else len(self.data)]
        if tail and (end or not layout.is_torn(tail)):
            self.others.append(tail)

    def _read_between(self, text: bytes) -> None:
        """Read the mark before an interaction."""
        mark = layout.MARK.search(text)
        if mark is not None:
            above = len(self.starts)
            numbers = layout.replaced_in(mark, above, above - len(self.replaced))
            if numbers is not None:
                self.replaced.update(number - 1 for number in numbers)
                text = text[: mark.start()]
        if text:
            self.others.append(text)

    def lines(self, name: str) -> Lines:
        """Return the interactions without those that were replaced."""
        if self.replaced:
            left = [each for each in range(len(self.starts)) if each not in self.replaced]
            self.fallbacks = {at for at, each in enumerate(left) if each in self.fallbacks}
            self.starts = array("Q", [self.starts[each] for each in left])
        return Lines(self.data, self.starts, name)


def _is_whole(data: bytes) -> bool:
    """Return whether a file ends with an interaction that lacks only its final newline."""
    start = data.rfind(b"\n- recorded_at: ") + 1
    match = layout.INTERACTION.fullmatch(data[start:] + b"\n")
    with suppress(*MALFORMED):
        return match is not None and isinstance(_parse(match[7]), dict)
    return False
