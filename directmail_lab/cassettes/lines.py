"""A file in our own layout, read by line: each interaction is parsed when somebody asks for it.

`LineReader` reads a file's bytes once, with what a person wrote in them. `Lines` are its
interactions.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ..errors import CassetteFormatError
from ..exchange.values import (
    MALFORMED,
    Interaction,
    Response,
    check_request,
    check_response,
    check_times,
    unreadable,
)
from . import layout
from .layout import NOTHING_ADDED, AddedLines, Address

_read_json: Final = json.JSONDecoder().raw_decode


def read_header(data: bytes) -> tuple[dict[str, Any], AddedLines, int] | None:
    """Return the metadata, what a person added, and the length of the header.

    None if the layout is another. For a file that broke off within its header, the metadata is
    empty and the length is 0.
    """
    if plain := layout.read_header(data):
        return plain[0], NOTHING_ADDED, plain[1]
    start = data.find(b"\ninteractions:") + 1
    end = layout.END_OF_HEADER.match(data, start)
    if end is None or layout.WRITER.encode() not in data[:start]:
        return None
    with suppress(*MALFORMED):
        metadata, added = _read_edited(data[: end.end()].decode())
        if metadata["recorded_with"].startswith(layout.WRITER):
            return metadata, added, end.end()
    return None


def _read_edited(header: str) -> tuple[dict[str, Any], AddedLines]:
    """Return the metadata in a header that a person edited, and what is neither that nor ours."""
    from .vcr_files import comments_in, load_yaml, split_members

    top, members = split_members(header)
    ours = ("version", "recording", "interactions")
    kept = ["\n".join([*comments_in(part), ""]) if name in ours else part for name, part in members]
    return load_yaml(header)["recording"], AddedLines(top, "".join(kept))


class Lines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for.

    Parameters
    ----------
    data
        The bytes of the file, with line feeds at the ends of lines.
    starts
        The position at which each interaction starts.
    by_hand
        Those that a person wrote, by their index. Several may start at one place.
    comments
        A person's comments, by the start of what follows them.
    """

    def __init__(
        self,
        data: bytes,
        starts: array[int],
        name: str,
        by_hand: Mapping[int, Interaction],
        comments: Mapping[int, bytes],
    ) -> None:
        self._data = data
        self._starts = starts
        self._name = name
        self._by_hand = by_hand
        self._comments = comments

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        if by_hand := self._by_hand.get(index):
            return by_hand
        at, elapsed_s, attempt, kind, fallback, request, response = self._match(index).groups()
        try:
            interaction = Interaction(
                check_request(layout.request_of(_parse(request))),
                check_response(layout.response_of(_parse(response), _kind(kind))),
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
        if by_hand := self._by_hand.get(index):
            return by_hand.response
        try:
            kind, _, _, response = self._match(index).groups()[3:]
            return check_response(layout.response_of(_parse(response), _kind(kind)))
        except MALFORMED as error:
            raise self._unreadable(index, error) from None

    def _match(self, index: int) -> re.Match[bytes]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        return match

    def _unreadable(self, index: int, error: Exception) -> CassetteFormatError:
        return unreadable(f"Interaction {index % len(self) + 1} of cassette {self._name!r}", error)

    def addresses(self) -> Iterator[tuple[Address, int]]:
        """Yield method and address of each interaction, and which attempt it is."""
        for index, start in enumerate(self._starts):
            yield layout.address_of(self._data, start) or address_of_interaction(self[index])

    def parts(self, *, as_written: bool) -> Iterator[Interaction | bytes]:
        """Yield comments, and interactions parsed or ``as_written`` (but for those by hand)."""
        before = sorted(self._comments.items(), reverse=True)
        for index, start in enumerate(self._starts):
            while before and before[-1][0] <= start:
                yield before.pop()[1]
            is_text = as_written and index not in self._by_hand
            yield self._match(index)[0] if is_text else self[index]
        yield from (text for _, text in reversed(before))

    def offset(self, index: int) -> int | None:
        """Return where an interaction starts in the file; None if there are not so many."""
        return self._starts[index] if index < len(self) else None


def _kind(text: bytes | None) -> str | None:
    return None if text is None else text.decode()


def address_of_interaction(interaction: Interaction) -> tuple[Address, int]:
    return (interaction.request.method, interaction.request.uri), interaction.attempt


def _parse(line: bytes) -> Any:
    text = line.decode()
    # `json.loads` takes half as long again: it looks for space around the value.
    with suppress(ValueError, RecursionError):
        value, end = _read_json(text)
        if end == len(text):
            return value
    # A binary body, or a line that a person wrote.
    from .vcr_files import load_yaml

    return load_yaml(text)


class LineReader:
    """Reads the interactions of a file in the line layout from its bytes.

    Attributes
    ----------
    starts, by_hand, comments
        As in `Lines`, with what was replaced.
    replaced, fallbacks
        Indexes of interactions: see `layout.MARK` and `Interaction`.
    keys
        Lines of other members that a person wrote at the end.
    is_appendable
        Whether an interaction can follow at ``clean_bytes``.
    was_closed
        Whether there is an end line which something follows.
    clean_bytes, left_out
        As in `FileRecording`.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.starts = array("Q")
        self.by_hand: dict[int, Interaction] = {}
        self.comments: dict[int, bytes] = {}
        self.replaced: set[int] = set()
        self.fallbacks: set[int] = set()
        self.keys = ""
        self.clean_bytes = position
        self.is_appendable = True
        self.was_closed = False
        self.left_out = b""

    def read(self) -> bool:
        """Read the file; return False if that is for vcrpy's loader."""
        for match in layout.INTERACTION.finditer(self.data, self.clean_bytes):
            start = match.start()
            if start != self.clean_bytes and not self._read_between(start):
                return False
            self._add(start, is_fallback=match[5] is not None)
            self.clean_bytes = match.end()
        self._read_tail()
        return True

    def _add(self, start: int, *, is_fallback: bool) -> None:
        if is_fallback:
            self.fallbacks.add(len(self.starts))
        self.starts.append(start)

    def _read_between(self, start: int) -> bool:
        """Read what is before an interaction: comments, a mark, or interactions by hand."""
        text = self.data[self.clean_bytes : start]
        if mark := layout.MARK.search(text):
            text = text[: mark.start()]
        if layout.COMMENTS.fullmatch(text):
            self._keep_comments(start, text)
        elif not self._read_by_hand(self.clean_bytes, start - len(text), text) or self.keys:
            return False
        if mark:
            self._replace(mark)
        return True

    def _read_tail(self) -> None:
        """Read what is after the last interaction of ours."""
        end = layout.END.search(self.data, self.clean_bytes)
        tail = self.data[self.clean_bytes : end.start() if end else len(self.data)]
        comments = layout.COMMENTS.match(tail)
        assert comments is not None, "the pattern matches an empty text"
        mark = layout.MARK.search(comments[0])
        start, rest = self.clean_bytes + comments.end(), tail[comments.end() :]
        self._keep_comments(start, comments[0])
        if rest and _is_whole(rest):
            if mark:
                self._replace(mark)
            self._add(start, is_fallback=b"\n  fallback: true\n" in rest)
            self.data, self.is_appendable = self.data[: start + len(rest)] + b"\n", False
        elif not end and layout.is_torn((mark[0] if mark else b"") + rest):
            start -= len(mark[0]) if mark else 0
            rest = b""
        elif rest[:1] == b"#" and b"\n" not in rest:
            self._keep_comments(start + 1, rest + b"\n")
            self.is_appendable = False
        elif rest and self._read_by_hand(self.clean_bytes, start, rest):
            self.is_appendable = False
        elif rest:
            self.left_out, rest = rest, b""
        self.clean_bytes = start + len(rest)

    def _keep_comments(self, start: int, text: bytes) -> None:
        self.was_closed |= b"# end: " in text
        if comments := layout.comments_of(text).strip(b"\n"):
            self.comments[start] = self.comments.get(start, b"") + comments + b"\n"

    def _replace(self, mark: re.Match[bytes]) -> None:
        """Drop what a mark names, unless the numbers cannot be a recorder's."""
        ranges = list(layout.replaced_in(mark))
        named = len(self.replaced) + sum(map(len, ranges))
        if int(mark[2]) == len(self.starts) >= named:
            self.replaced.update(number - 1 for each in ranges for number in each)

    def _read_by_hand(self, end: int, start: int, text: bytes) -> bool:
        """Read a person's interactions at ``start``, and keys after them; return whether it can.

        The last interaction ends at ``end``, unless the text continues it.
        """
        from .vcr_files import comments_in, load_cassette_text, split_members

        begin = start
        if text[:1].isspace() and self.starts and len(self.starts) - 1 not in self.by_hand:
            begin = self.starts[-1]
            text = self.data[begin:end] + text
        try:
            _, [(_, items), *others] = split_members(f"interactions:\n{text.decode()}")
            _, interactions = load_cassette_text(items)
        except (CassetteFormatError, UnicodeDecodeError):
            return False
        if begin != start:
            self.fallbacks.discard(len(self.starts) - 1)
            self.starts.pop()
        for each in interactions:
            self.by_hand[len(self.starts)] = each
            self._add(begin, is_fallback=each.is_fallback)
        self._keep_comments(begin, "\n".join(comments_in(items)).encode())
        keys = "".join(part for _, part in others)
        self.keys = keys.rstrip("\n") + "\n" if keys else ""
        self.is_appendable = False
        return True

    def lines(self, name: str) -> Lines:
        """Return the interactions without those that were replaced."""
        if self.replaced:
            left = [each for each in range(len(self.starts)) if each not in self.replaced]
            self.fallbacks = {at for at, each in enumerate(left) if each in self.fallbacks}
            self.by_hand = {
                at: self.by_hand[each] for at, each in enumerate(left) if each in self.by_hand
            }
            self.starts = array("Q", [self.starts[each] for each in left])
        return Lines(self.data, self.starts, name, self.by_hand, self.comments)


def _is_whole(text: bytes) -> bool:
    """Return whether a text is an interaction that lacks only its final newline."""
    match = layout.INTERACTION.fullmatch(text + b"\n")
    with suppress(*MALFORMED):
        return match is not None and isinstance(_parse(match[7]), dict)
    return False
