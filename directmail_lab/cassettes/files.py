"""Recordings in files: `read_cassette` reads a cassette of any layout.

Our own layout goes through `lines`. Another program's file goes through vcrpy's loader or `har`,
and loses its credentials.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final, get_args
from urllib.parse import urlsplit

from ..arguments import Like
from ..credentials import Hidden
from ..display import Progress, ProgressBar, plural
from ..errors import CassetteError, CassetteFormatError
from ..exchange.bodies import unpack
from ..exchange.operations import path_below
from ..exchange.values import (
    MALFORMED,
    Interaction,
    Request,
    Response,
    header,
    normalize_headers,
)
from ..readings.reading import Reading
from ..redaction import Redactor, redact_foreign
from . import layout
from .layout import Line
from .library import Version, is_locked, version_of
from .lines import LineReader, Lines, line_of_interaction
from .recording import Recording

_ForeignLayout = Literal["vcrpy", "json", "har"]

MAX_FILE_BYTES = 256 * 1024**2
_CHANGED = "it was changed after its recording was closed"
_REPAIR = "Close it with: directmail-lab cassette repair {}"
_MARK = b"\n# replaces "
_OURS = b'"recorded_with": "directmail-lab'
_CONFLICT = re.compile(rb"(?m)^(?:<{7} |={7}\r?$|>{7} )")
_PERCENT = "{desc}: {percentage:.0f} % {bar}"


@final
class Foreign(Hidden, Sequence[Interaction]):
    """Another program's interactions, without credentials.

    All are redacted when the first one is asked for. A replay that is ``like="vcrpy"`` asks only
    for the original responses and for the heads of the requests, and for a whole request if its
    body decides. The originals are hidden from repr, pickle, copy and ``vars()``.
    """

    __slots__ = ("__heads", "__recorded", "__redacted", "__requests", "redactor")

    def __init__(self, recorded: list[Interaction]) -> None:
        self.redactor = Redactor()
        # All first, since the service may have echoed them elsewhere.
        self.redactor.learn_all(recorded)
        self.__recorded = recorded
        heads = (replace(each.request, body=None) for each in recorded)
        self.__heads = [redact_foreign(each, self.redactor) for each in heads]
        self.__requests: dict[int, Request] = {}
        self.__redacted: list[Interaction] | None = None

    def __len__(self) -> int:
        return len(self.__recorded)

    def __getitem__(self, index: Any) -> Any:
        if self.__redacted is None:
            redacted = map(self.redactor.interaction, self.__recorded)
            self.__redacted = [
                replace(each, request=self.request(at)) for at, each in enumerate(redacted)
            ]
        return self.__redacted[index]

    def request(self, index: int) -> Request:
        if index not in self.__requests:
            recorded = self.__recorded[index].request
            self.__requests[index] = redact_foreign(recorded, self.redactor)
        return self.__requests[index]

    def head(self, index: int) -> Request:
        """Return a request without its body."""
        return self.__heads[index]

    def original(self, index: int) -> Interaction:
        """Return an interaction with its credentials."""
        return self.__recorded[index]

    def addresses(self) -> Iterator[Line]:
        """Yield method and address of each interaction, and which attempt it is."""
        for each, request in zip(self.__recorded, self.__heads, strict=True):
            yield line_of_interaction(replace(each, request=request))

    def for_reading(self, index: int) -> Interaction:
        """Return an interaction without a body or a reason, whose headers are not redacted."""
        recorded = self.__recorded[index]
        response = replace(recorded.response, reason="", body=b"")
        return replace(recorded, request=self.__heads[index], response=response)

    def fallbacks(self) -> frozenset[int]:
        return frozenset(at for at, each in enumerate(self.__recorded) if each.is_fallback)


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
        Says that the recording broke off, or was changed after it was closed, or which entries of a
        HAR file are left out.
    layout
        ``"lines"`` (ours), ``"vcrpy"`` (YAML of another writer), ``"json"``, ``"har"`` or
        ``"empty"``.
    clean_bytes
        The length of the file up to the end of its last whole interaction.
    is_compact
        Whether the file can be appended to. If not, a recording first writes it anew: it has
        interactions that were replaced, Windows line ends, or was edited.
    is_edited
        Whether a person changed a file of ours. vcrpy's loader reads it, without its comments.
    fallbacks
        The indexes of interactions that are played only if there is no other: see `Interaction`.
    redactor
        Knows the credentials in another program's file.
    originals
        Another program's interactions, which also have their responses with their credentials.
    version
        The file's version (`library.version_of`) before it was read; None if there is no file.
    """

    name: str
    interactions: Sequence[Interaction] = field(default=(), repr=False)
    base_url: str | None = None
    problem: str | None = None
    path: Path | None = None
    layout: _ForeignLayout | Literal["lines", "empty"] = "empty"
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    clean_bytes: int = field(default=0, repr=False)
    is_compact: bool = True
    is_edited: bool = False
    fallbacks: frozenset[int] = field(default=frozenset(), repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False)
    originals: Foreign | None = field(default=None, repr=False)
    version: Version | None = field(default=None, repr=False)

    @property
    def is_third_party(self) -> bool:
        """Whether another program wrote the file."""
        return self.layout in get_args(_ForeignLayout)

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The base address, then the other base addresses from which the file was recorded."""
        others = self.metadata.get("other_base_urls")
        named = (self.base_url, *(others if isinstance(others, list) else ()))
        return tuple(dict.fromkeys(each for each in named if each and isinstance(each, str)))

    @property
    def current_problem(self) -> str | None:
        """The problem, or that the file is being recorded, so that it has no end yet."""
        if self.problem and self.path is not None and is_locked(self.path):
            return f"it is being recorded: {plural(len(self), 'interaction')} until now"
        return self.problem

    def __len__(self) -> int:
        return len(self.interactions)

    def interaction(self, number: int) -> Interaction:
        self._check_number(number)
        return self.interactions[number - 1]

    def reading(self, number: int) -> Reading:
        recorded = self.interactions
        self._check_number(number)
        found = recorded.outline(number - 1) if isinstance(recorded, Lines) else None
        if found is None:
            return super().reading(number)
        return Reading(
            math.nan if found.recorded_at is None else found.recorded_at.timestamp(),
            found.method,
            path_below(found.uri, self._prefix),
            found.status,
            found.raw,
            found.elapsed_s,
            "recorded",
            self.name,
            attempt=found.attempt,
            elsewhere=self.elsewhere(found.uri),
        )

    @cached_property
    def _own(self) -> tuple[str, ...]:
        # Another program's cassette names no base address, and may be about many services.
        return () if self.is_third_party else super()._own

    def responses(self) -> Iterator[tuple[Reading, Interaction]]:
        for each in self:
            yield self._recorded_reading(each), each

    def decoded(self, number: int) -> Interaction:
        """Return an interaction with the response to play; raise the errors of `response`."""
        recorded = self.interactions[number - 1]
        response = _decoded(recorded.response, recorded.request.method)
        return replace(recorded, response=response)

    def response(self, number: int, method: str, *, like: Like | None = None) -> Response:
        """Return the response to play for a request of this method.

        With ``like``, another program's is as it was recorded: it contains its credentials, and is
        only for the caller of a replay.

        Raises
        ------
        CassetteError
            Its body cannot be decoded, or is too large when decoded.
        """
        recorded = self.interactions
        if isinstance(recorded, Lines):  # which parses the request only on demand
            response = recorded.response(number - 1)
        elif like is not None and self.originals is not None:
            response = self.originals.original(number - 1).response
        else:
            response = recorded[number - 1].response
        return _decoded(response, method)

    def parts(self, *, as_written: bool) -> Iterable[Interaction | bytes]:
        """Return the interactions, with ``as_written`` as texts of our layout where they can be."""
        recorded = self.interactions
        return recorded.texts() if as_written and isinstance(recorded, Lines) else recorded

    def bytes_before(self, index: int) -> int:
        """Return how many bytes of a compact file are before an interaction."""
        recorded = self.interactions
        offset = recorded.offset(index) if isinstance(recorded, Lines) else None
        return self.clean_bytes if offset is None else offset

    def original_request(self, index: int) -> Request | None:
        """Return the request as another program recorded it, to compare it; None for our own."""
        return None if self.originals is None else self.originals.original(index).request

    def for_reading(self, number: int) -> Interaction:
        """Return an interaction whose `Reading` is to be redacted; its body may be missing."""
        recorded = self.interactions
        if isinstance(recorded, Foreign):
            return recorded.for_reading(number - 1)
        return recorded[number - 1]

    def request(self, index: int) -> Request:
        """Return the request of an interaction by its index."""
        recorded = self.interactions
        if isinstance(recorded, Lines | Foreign):
            return recorded.request(index)
        return recorded[index].request

    def is_bare(self, index: int) -> bool:
        """Return whether a request certainly has neither a body nor a ``Range``."""
        recorded = self.interactions
        if isinstance(recorded, Lines):
            return recorded.is_bare(index)
        whole = recorded.original(index) if isinstance(recorded, Foreign) else recorded[index]
        return not whole.request.body and self.header_of(index, "range") is None

    def header_of(self, index: int, name: str) -> str | None:
        """Return a header of a request by the index of its interaction."""
        recorded = self.interactions
        if isinstance(recorded, Foreign):
            return header(recorded.head(index).headers, name)
        return header(self.request(index).headers, name)

    def accepts_of(self, indexes: Iterable[int]) -> set[object]:
        """Return what the requests with these indexes accept, each once, for comparing."""
        recorded = self.interactions
        if isinstance(recorded, Lines):
            return {recorded.accept(index) for index in indexes}
        return {self.header_of(index, "accept") for index in indexes}

    def addresses(self) -> Iterable[Line]:
        """Return the method, the address and the attempt of each interaction."""
        recorded = self.interactions
        if isinstance(recorded, Lines | Foreign):
            return recorded.addresses()
        return map(line_of_interaction, recorded)


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
    return _parse_whole(data, path, progress) if ours is None else ours


def read_if_ours(path: Path) -> FileRecording | None:
    """Return the recording in a file, or None if it is not exactly in our layout.

    This is quick. Reading another file takes up to a millisecond for each interaction.
    """
    return _parse_lines(_read_bytes(path)[0], path)


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


def _decoded(response: Response, method: str) -> Response:
    """Return a response with its body decoded: httpx would decode it without a bound."""
    coding = header(response.headers, "content-encoding")
    if not coding:
        return response
    try:
        response = replace(response, body=unpack(response.body, coding))
    except ValueError as error:
        raise CassetteError(f"The recorded body is {error}, so it is not replayed.") from None
    return normalize_headers(response, method=method)


def _with_line_feeds(data: bytes) -> bytes:
    """Return the bytes of a file with the ends of lines that git may have changed."""
    has_crlf = data[: data.find(b"\n") + 1].endswith(b"\r\n")
    return data.replace(b"\r\n", b"\n") if has_crlf else data


def _parse_lines(data: bytes, path: Path, *, as_written: bool = False) -> FileRecording | None:
    """Return the recording with an index of its lines; None if it is not exactly in our layout.

    With ``as_written``, interactions that were replaced are there too.
    """
    text = _with_line_feeds(data)
    header = layout.read_header(text)
    if header is None:
        return None
    about, position = header
    if not position:
        torn = plural(len(data), "byte")
        problem = (
            f"its recording was not closed: 0 interactions recovered, {torn} of a torn one left out"
        )
        return FileRecording(path.stem, problem=problem, path=path, layout="lines")
    reader = LineReader(text, position)
    if reader.others:
        return None
    if as_written:
        reader.replaced.clear()
    recording = _of_lines(reader, about, path)
    return replace(recording, is_compact=recording.is_compact and text is data)


def _of_lines(reader: LineReader, about: dict[str, Any], path: Path) -> FileRecording:
    count = len(reader.starts)
    lines = reader.lines(path.stem)
    metadata, base_url = _about(about, lines, path)
    return FileRecording(
        path.stem,
        lines,
        base_url,
        _problem(reader, count, len(lines)),
        path,
        "lines",
        metadata,
        clean_bytes=reader.clean_bytes,
        is_compact=len(lines) == count and not reader.lacks_newline,
        fallbacks=frozenset(reader.fallbacks),
    )


def _problem(reader: LineReader, count: int, left: int) -> str | None:
    """Return what is wrong with a file of ours, which has ``count`` interactions, or None."""
    data = reader.data
    end = layout.END.search(data, reader.clean_bytes)
    if end is not None:
        digest = hashlib.sha256(memoryview(data)[: end.start()]).hexdigest()
        is_same = end[0] == layout.end_line(count, digest).encode()
        return None if is_same else _CHANGED
    bytes_left = len(data) - reader.clean_bytes
    torn = f", {plural(bytes_left, 'byte')} of a torn one left out" if bytes_left else ""
    return _not_closed(left) + torn


def _not_closed(count: int) -> str:
    return f"its recording was not closed: {plural(count, 'interaction')} recovered"


def recover(path: Path) -> tuple[FileRecording, bytes]:
    """Return what a damaged file has in our layout, and all the other text in it."""
    data, version = _read_bytes(path)
    data = _with_line_feeds(data)
    about, position = layout.read_header(data) or (layout.metadata_in(data), 0)
    reader = LineReader(data, position)
    return replace(_of_lines(reader, about, path), version=version), b"".join(reader.others)


def read_as_written(data: bytes, path: Path) -> tuple[Sequence[Interaction], str | None]:
    """Return the interactions and the base address in the bytes of a file, unchanged.

    Another program's interactions still contain their credentials. Interactions that were replaced
    and are still in the file are there too. The errors are those of `read_cassette`.
    """
    _check_size(len(data), path)
    if not data or data.isspace():
        return (), None
    ours = _parse_lines(data, path, as_written=True)
    if ours is not None:
        return ours.interactions, ours.base_url
    _, metadata, interactions, _ = _load_whole(data, path)
    return interactions, _about(metadata, interactions, path)[1]


def _parse_whole(data: bytes, path: Path, progress: Progress) -> FileRecording:
    """Return a recording of another layout, or one that a person edited, without credentials."""
    kept = layout.without_replaced(_with_line_feeds(data)) if _MARK in data else data
    if kept is None:
        raise CassetteFormatError(
            f"{path} was edited before its recording was closed: which responses were replaced is "
            "not certain.",
            _REPAIR.format(path),
        )
    kind, metadata, interactions, problem = _load_whole(kept, path, progress)
    recording = foreign_recording(interactions, path, kind, metadata)
    recorded_with = str(recording.metadata.get("recorded_with"))
    if kind == "vcrpy" and recorded_with.startswith(layout.WRITER):
        problem = _CHANGED if b"\n# end: " in data else _not_closed(len(interactions))
        recording = replace(recording, layout="lines", is_edited=True, originals=None)
    return replace(recording, problem=problem, clean_bytes=len(data))


def foreign_recording(
    interactions: list[Interaction],
    path: Path,
    kind: _ForeignLayout = "vcrpy",
    metadata: object = None,
) -> FileRecording:
    """Return the recording of another program's interactions."""
    foreign = Foreign(interactions)
    about, base_url = _about(metadata, [foreign.for_reading(0)] if foreign else [], path)
    redact = foreign.redactor.text
    return FileRecording(
        path.stem,
        foreign,
        base_url,
        path=path,
        layout=kind,
        metadata={name: redact(v) if isinstance(v, str) else v for name, v in about.items()},
        is_compact=False,
        fallbacks=foreign.fallbacks(),
        redactor=foreign.redactor,
        originals=foreign,
    )


def _load_whole(
    data: bytes, path: Path, progress: Progress = lambda _: None
) -> tuple[_ForeignLayout, object, list[Interaction], str | None]:
    """Return the layout, the metadata, the interactions with their credentials, and a problem."""
    if path.suffix.lower() == ".har":
        from .har import read_har

        return "har", {}, *read_har(data, path)
    from .vcr_files import load_cassette_text

    try:
        text = data.decode("utf-8-sig")
        metadata, interactions = load_cassette_text(text, progress)
    except UnicodeDecodeError:
        raise _not_a_cassette(data, path, "It is not UTF-8 text.") from None
    except CassetteFormatError as error:
        raise _not_a_cassette(data, path, error.what) from None
    kind: _ForeignLayout = "json" if text.lstrip().startswith("{") else "vcrpy"
    return kind, metadata, interactions, None


def _not_a_cassette(data: bytes, path: Path, why: str) -> CassetteFormatError:
    conflict = _CONFLICT.search(data)
    if conflict is not None:
        line = data.count(b"\n", 0, conflict.start()) + 1
        return CassetteFormatError(
            f"{path} has a conflict of a merge in git, from line {line} on.",
            f"Keep one side: git checkout --ours {path.name} (or --theirs).",
        )
    if _OURS in data:
        # A repair would cut out the interaction that an edit broke.
        advice = f"If you edited it, correct that. If not: {_REPAIR.format(path)}"
        return CassetteFormatError(f"{path} is damaged. {why}", advice)
    return CassetteFormatError(f"{path} is not a cassette. {why}", is_cassette=False)


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
