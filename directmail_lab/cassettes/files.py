"""Recordings in files: `read_cassette` reads a cassette of any layout.

Our own layout is read by line, and each interaction is parsed when somebody asks for it. Another
program's file goes through vcrpy's loader or `har`, and loses its credentials.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, final
from urllib.parse import urlsplit

from ..credentials import Hidden
from ..display import Progress, ProgressBar, plural
from ..errors import CassetteError, CassetteFormatError
from ..exchange.bodies import unpack
from ..exchange.values import (
    MALFORMED,
    Interaction,
    RecordedResponse,
    check_request,
    check_response,
    check_times,
    header,
    normalize_headers,
    unreadable,
)
from ..readings.reading import Reading
from ..redaction import Redactor, redact_foreign
from . import layout
from .layout import Address
from .library import Version, version_of
from .recording import Recording

MAX_FILE_BYTES: Final = 256 * 1024**2
_read_json: Final = json.JSONDecoder().raw_decode
_PERCENT: Final = "{desc}: {percentage:.0f} % {bar}"


@final
class Originals(Hidden):
    """Responses with their credentials, hidden from repr, pickle, copy and ``vars()``."""

    __slots__ = ("__responses",)

    def __init__(self, interactions: Iterable[Interaction]) -> None:
        self.__responses = [each.response for each in interactions]

    def __getitem__(self, index: int) -> RecordedResponse:
        return self.__responses[index]


@dataclass(eq=False)
class FileRecording(Recording):
    """The recording in a file.

    Attributes
    ----------
    interactions
        The interactions in the order of their recording.
    base_url
        The base address that the file names, or else the origin of its first request.
    problem
        Says that the recording broke off, or was changed after it was closed.
    layout
        ``"lines"`` (ours), ``"vcrpy"`` (YAML of another writer), ``"json"``, ``"har"`` or
        ``"empty"``.
    clean_bytes
        The length of the file up to the end of its last whole interaction or comment.
    is_compact
        Whether the file can be appended to. If not, a recording first writes it anew: it has
        interactions that were replaced, a person's changes, or Windows line ends.
    keys
        Lines of other members that a person added to the file.
    fallbacks
        The indexes of interactions that are played only if there is no other: see `Interaction`.
    left_out
        What follows ``clean_bytes`` and is neither torn nor an interaction. It is never dropped.
    redactor
        Knows the credentials in another program's file.
    originals
        Another program's responses, unchanged, with their credentials.
    version
        The file's version (`library.version_of`) before it was read; None if there is no file.
    """

    name: str
    interactions: Sequence[Interaction] = field(default=(), repr=False)
    base_url: str | None = None
    problem: str | None = None
    path: Path | None = None
    layout: Literal["lines", "vcrpy", "json", "har", "empty"] = "empty"
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    clean_bytes: int = field(default=0, repr=False)
    is_compact: bool = True
    keys: str = field(default="", repr=False)
    fallbacks: frozenset[int] = field(default=frozenset(), repr=False)
    left_out: bytes = field(default=b"", repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False)
    originals: Originals | None = field(default=None, repr=False)
    version: Version | None = field(default=None, repr=False)

    @property
    def is_third_party(self) -> bool:
        """Whether another program wrote the file."""
        return self.layout in ("vcrpy", "json", "har")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The base address, then the other base addresses from which the file was recorded."""
        others = self.metadata.get("other_base_urls")
        named = (self.base_url, *(others if isinstance(others, list) else ()))
        return tuple(dict.fromkeys(each for each in named if each and isinstance(each, str)))

    def __len__(self) -> int:
        return len(self.interactions)

    def interaction(self, number: int) -> Interaction:
        self._check_number(number)
        return self.interactions[number - 1]

    @cached_property
    def _own(self) -> tuple[str, ...]:
        # Another program's cassette names no base address, and may be about many services.
        return () if self.is_third_party else super()._own

    def responses(self) -> Iterator[tuple[Reading, Interaction]]:
        for each in self:
            yield self._recorded_reading(each), each

    def answer(self, number: int) -> Interaction:
        """Return an interaction with the response to play; raise the errors of `response`."""
        recorded = self.interactions[number - 1]
        response = _decoded(recorded.response, recorded.request.method)
        return replace(recorded, response=response)

    def response(self, number: int, method: str) -> RecordedResponse:
        """Return the response to play for a request of this method.

        Raises
        ------
        CassetteError
            Its body cannot be decoded, or is too large when decoded.
        """
        recorded = self.interactions
        if isinstance(recorded, Lines):  # which parses the request only on demand
            return _decoded(recorded.response(number - 1), method)
        return _decoded(recorded[number - 1].response, method)

    def parts(self, *, as_written: bool) -> Iterable[Interaction | bytes]:
        """Return what to write into a copy: a person's comments, and the interactions.

        With ``as_written``, these are texts of our layout where they can be.
        """
        recorded = self.interactions
        if isinstance(recorded, Lines):
            return recorded.parts(as_written=as_written)
        return recorded

    def bytes_before(self, index: int) -> int:
        """Return how many bytes of a compact file are before an interaction."""
        recorded = self.interactions
        offset = recorded.offset(index) if isinstance(recorded, Lines) else None
        return self.clean_bytes if offset is None else offset

    def original(self, number: int, method: str) -> RecordedResponse | None:
        """Return the response as another program recorded it; raise the errors of `response`.

        It contains its credentials, and is only for the caller of a replay. None for our own files.
        """
        return None if self.originals is None else _decoded(self.originals[number - 1], method)

    def addresses(self) -> Iterable[tuple[Address, int]]:
        """Return the method, the address and the attempt of each interaction."""
        recorded = self.interactions
        return recorded.addresses() if isinstance(recorded, Lines) else map(_address_of, recorded)


def read_cassette(path: Path, progress: Progress | None = None) -> FileRecording:
    """Return the recording in a file: a cassette in our layout or any of vcrpy's, or HAR.

    For a large file, ``progress`` is called with each part that was read; the whole is 1. By
    default, it moves a progress bar.

    Raises
    ------
    CassetteError
        There is no such file, or it cannot be read.
    CassetteFormatError
        It is not a cassette, is not safe to load, or is too large. In our layout, an interaction is
        parsed and checked only on demand.
    """
    with ProgressBar(1.0, desc=f"Reading {path.stem}", bar_format=_PERCENT) as bar:
        data, version = _read_bytes(path)
        return replace(parse_cassette(data, path, progress or bar.update), version=version)


def parse_cassette(data: bytes, path: Path, progress: Progress = lambda _: None) -> FileRecording:
    """Return the recording in the bytes of a file; ``path`` is only for messages."""
    if not data or data.isspace():
        return FileRecording(path.stem, path=path)
    ours = _parse_lines(data, path)
    if ours is not None and not ours.left_out:
        return ours
    try:
        return _parse_third_party(data, path, progress)
    except CassetteFormatError:
        if ours is None:
            raise
        return ours


def _read_bytes(path: Path) -> tuple[bytes, Version | None]:
    """Return the bytes of a file of at most 256 MB, and its version before they were read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        _check_size(status.st_size, path)
        with path.open("rb") as file:
            return file.read(status.st_size), version_of(status)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise CassetteError(f"Cannot read cassette {path} ({reason}).") from None


def _check_size(size: int, path: Path) -> None:
    if size > MAX_FILE_BYTES:
        raise CassetteFormatError(
            f"{path} has {size:,} bytes; a cassette may have {MAX_FILE_BYTES:,}.",
            "Record in parts.",
        )


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

    def response(self, index: int) -> RecordedResponse:
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
            yield layout.address_of(self._data, start) or _address_of(self[index])

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


def _address_of(interaction: Interaction) -> tuple[Address, int]:
    return (interaction.request.method, interaction.request.uri), interaction.attempt


def _decoded(response: RecordedResponse, method: str) -> RecordedResponse:
    """Return a response with its body decoded: httpx would decode it without a bound."""
    if not (coding := header(response.headers, "content-encoding")):
        return response
    try:
        response = replace(response, body=unpack(response.body, coding))
    except ValueError as error:
        raise CassetteError(f"The recorded body is {error}, so it is not replayed.") from None
    return normalize_headers(response, method=method)


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


class _Reader:
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
            self.comments[start] = comments + b"\n"

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
        from .vcr_files import load_cassette_text

        begin, keys = start, _KEY.search(text)
        items = text if keys is None else text[: keys.start()]
        if items[:1].isspace() and self.starts and len(self.starts) - 1 not in self.by_hand:
            begin = self.starts[-1]
            items = self.data[begin:end] + items
        try:
            whole = items.decode() + "\n" + text[keys.start() if keys else len(text) :].decode()
            _, interactions = load_cassette_text(f"interactions:\n{whole}")
        except (CassetteFormatError, UnicodeDecodeError):
            return False
        if begin != start:
            self.fallbacks.discard(len(self.starts) - 1)
            self.starts.pop()
        for each in interactions:
            self.by_hand[len(self.starts)] = each
            self._add(begin, is_fallback=each.is_fallback)
        self.keys = "" if keys is None else text[keys.start() :].decode().rstrip("\n") + "\n"
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
        return match is not None and isinstance(json.loads(match[7]), dict)
    return False


def _parse_lines(data: bytes, path: Path, *, as_written: bool = False) -> FileRecording | None:
    """Return the recording with an index of its lines; None where it needs vcrpy's loader.

    With ``as_written``, nothing is redacted, and interactions that were replaced are there too.
    """
    has_crlf = data.startswith(b"version: 1\r\n")
    data = data.replace(b"\r\n", b"\n") if has_crlf else data
    if (header := layout.read_header(data)) is None:
        return None
    about, keys, position = header
    if not position:
        torn = plural(len(data), "byte")
        problem = (
            f"its recording was not closed: 0 interactions recovered, {torn} of a torn one left out"
        )
        return FileRecording(path.stem, problem=problem, path=path, layout="lines")
    reader = _Reader(data, position)
    if not reader.read():
        return None
    count, redactor = len(reader.starts), Redactor()
    if as_written:
        reader.replaced.clear()
    elif reader.by_hand:
        interactions, redactor = redact_foreign(reader.by_hand.values())
        reader.by_hand = dict(zip(reader.by_hand, interactions, strict=True))
    lines = reader.lines(path.stem)
    metadata, base_url = _about(about, lines, path)
    return FileRecording(
        path.stem,
        lines,
        base_url,
        _problem(data, count, len(lines), reader),
        path,
        "lines",
        metadata,
        clean_bytes=reader.clean_bytes,
        keys=keys + reader.keys,
        is_compact=reader.is_appendable and not has_crlf and len(lines) == count,
        fallbacks=frozenset(reader.fallbacks),
        left_out=reader.left_out,
        redactor=redactor,
    )


def _problem(data: bytes, count: int, left: int, reader: _Reader) -> str | None:
    """Return what is wrong with a file of ours, which has ``count`` interactions, or None."""
    if end := layout.END.search(data, reader.clean_bytes):
        digest = hashlib.sha256(memoryview(data)[: end.start()]).hexdigest()
        is_same = end[0] == layout.end_line(count, digest).encode()
        return None if is_same else "it was changed after its recording was closed"
    bytes_left = len(data) - reader.clean_bytes
    if reader.left_out:
        return f"its last {plural(bytes_left, 'byte')} are neither an interaction nor YAML"
    if reader.was_closed and not bytes_left:
        return "it was changed after its recording was closed"
    torn = f", {plural(bytes_left, 'byte')} of a torn one left out" if bytes_left else ""
    return f"its recording was not closed: {plural(left, 'interaction')} recovered{torn}"


_KEY: Final = re.compile(rb"""(?m)^(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ ]*:(?=[ \n])""")
"""A member of the document, at the start of a line."""


def read_as_written(data: bytes, path: Path) -> tuple[Sequence[Interaction], str | None]:
    """Return the interactions and the base address in the bytes of a file, unchanged.

    Another program's interactions still contain their credentials. Interactions that were replaced
    and are still in the file are there too. The errors are those of `read_cassette`.
    """
    _check_size(len(data), path)
    if not data or data.isspace():
        return (), None
    ours = _parse_lines(data, path, as_written=True)
    if ours is not None and not ours.left_out:
        return ours.interactions, ours.base_url
    _, metadata, interactions = _load_third_party(data, path)
    return interactions, _about(metadata, interactions, path)[1]


def _parse_third_party(data: bytes, path: Path, progress: Progress) -> FileRecording:
    """Return a recording of another layout, without its credentials."""
    kind, metadata, interactions = _load_third_party(data, path, progress)
    originals = Originals(interactions)
    interactions, redactor = redact_foreign(interactions)
    about, base_url = _about(metadata, interactions, path)
    about = {name: redactor.text(v) if isinstance(v, str) else v for name, v in about.items()}
    return FileRecording(
        path.stem,
        interactions,
        base_url,
        path=path,
        layout=kind,
        metadata=about,
        clean_bytes=len(data),
        is_compact=False,
        fallbacks=frozenset(at for at, each in enumerate(interactions) if each.is_fallback),
        redactor=redactor,
        originals=originals,
    )


def _load_third_party(
    data: bytes, path: Path, progress: Progress = lambda _: None
) -> tuple[Literal["json", "vcrpy", "har"], object, list[Interaction]]:
    """Return the layout of another program's file, its metadata and its interactions."""
    if path.suffix.lower() == ".har":
        from .har import read_har

        return "har", {}, read_har(data, str(path))
    from .vcr_files import load_cassette_text

    try:
        text = data.decode("utf-8-sig")
        metadata, interactions = load_cassette_text(text, progress)
    except UnicodeDecodeError:
        raise CassetteFormatError(
            f"{path} is not a cassette: it is not UTF-8 text.", is_cassette=False
        ) from None
    except CassetteFormatError as error:
        raise CassetteFormatError(f"{path} is not a cassette. {error}", is_cassette=False) from None
    return "json" if text.lstrip().startswith("{") else "vcrpy", metadata, interactions


def _about(
    metadata: object, interactions: Sequence[Interaction], path: Path
) -> tuple[dict[str, Any], str | None]:
    """Return a cassette's metadata in the types of JSON, and its base address."""
    try:
        text = json.dumps(metadata, ensure_ascii=False, default=str)
        value = json.loads(text.encode(errors="replace"))
        value = value if isinstance(value, dict) else {}
        base_url = value.get("base_url")
        urlsplit(str(base_url))
    except MALFORMED:
        raise CassetteFormatError(
            f"{path} is not a cassette: what it says of its recording cannot be read.",
            is_cassette=False,
        ) from None
    if not isinstance(base_url, str):
        base_url = None
        with suppress(CassetteFormatError, IndexError):
            parts = urlsplit(interactions[0].request.uri)
            # No user info: it may be a key, and is no part of where the service is.
            base_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return value, base_url
