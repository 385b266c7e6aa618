"""Recordings in files: `read_cassette` reads a cassette of any layout.

Our own layout is read by line, and each interaction is parsed when somebody asks for it. Another
program's file goes through vcrpy's loader or `har`, and loses its credentials.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence
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
from ..exchange.operations import base_path, path_below
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
from ..readings.reading import Reading, raw_values
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
        The length of the file up to the end of its last whole interaction.
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

    def reading(self, number: int) -> Reading:
        self._check_number(number)
        recorded = self.interactions
        head = recorded.head(number - 1) if isinstance(recorded, Lines) else None
        if head is None:
            return super().reading(number)
        at, elapsed_s, attempt, (method, uri), status, headers = head
        path, raw = path_below(uri, base_path(self.base_url or "")), raw_values(headers)
        at_s = math.nan if at is None else at.timestamp()
        reading = Reading(
            at_s, method, path, status, raw, elapsed_s, "recorded", self.name, None, attempt
        )
        return reading._replace(elsewhere=where) if (where := self.elsewhere(uri)) else reading

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
    return _parse_third_party(data, path, progress) if ours is None else ours


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
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        with suppress(*MALFORMED):
            if plain := layout.plain_at(self._data, self._starts[index]):
                check_times(plain.recorded_at, plain.elapsed_s)
                return plain
        at, elapsed_s, attempt, kind, request, response = self._match(index).groups()
        try:
            interaction = Interaction(
                check_request(layout.request_of(_parse(request))),
                check_response(layout.response_of(_parse(response), _kind(kind))),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed_s),
                int(attempt or 1),
            )
            check_times(interaction.recorded_at, interaction.elapsed_s)
        except MALFORMED as error:
            raise self._unreadable(index, error) from None
        return interaction

    def response(self, index: int) -> RecordedResponse:
        """Return the response of an interaction."""
        try:
            kind, _, response = self._match(index).groups()[3:]
            return check_response(layout.response_of(_parse(response), _kind(kind)))
        except MALFORMED as error:
            raise self._unreadable(index, error) from None

    def head(self, index: int) -> layout.Head | None:
        """Return what a reading needs of an interaction, without parsing its bodies.

        None if the interaction is unusual or damaged.
        """
        try:
            if head := layout.head_of(self._data, self._starts[index]):
                check_times(*head[:2])
        except MALFORMED:
            return None
        return head

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


def _parse_lines(data: bytes, path: Path) -> FileRecording | None:
    """Return the recording with an index of its lines; None where it needs vcrpy's loader."""
    header = layout.read_header(data)
    if header is None:
        return None
    metadata, position = header
    starts = array("Q")
    for match in layout.INTERACTION.finditer(data, position):
        if match.start() != position:
            break
        starts.append(position)
        position = match.end()
    problem, end = None, layout.END.fullmatch(data, position)
    if end is None:
        if layout.INTERACTION.search(data, position) or layout.is_by_hand(data[position:]):
            return None
        problem = (
            f"its recording was not closed: {plural(len(starts), 'interaction')} recovered, "
            f"{plural(len(data) - position, 'byte')} of a torn one set aside"
        )
    else:
        digest = hashlib.sha256(memoryview(data)[:position]).hexdigest()
        if end[0] != layout.end_line(len(starts), digest).encode():
            problem = "it was changed after its recording was closed"
    lines = Lines(data, starts, path.stem)
    metadata, base_url = _about(metadata, lines, path)
    return FileRecording(path.stem, lines, base_url, problem, path, "lines", metadata, position)


def read_as_written(data: bytes, path: Path) -> tuple[Sequence[Interaction], str | None]:
    """Return the interactions and the base address in the bytes of a file, unchanged.

    Another program's interactions still contain their credentials. The errors are those of
    `read_cassette`.
    """
    _check_size(len(data), path)
    if not data or data.isspace():
        return (), None
    if ours := _parse_lines(data, path):
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
        path.stem, interactions, base_url, None, path, kind, about, len(data), redactor, originals
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
