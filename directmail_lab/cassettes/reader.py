"""Reads any cassette: ours by line and lazily, every other through vcrpy's loader."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from ..display import plural
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    ODD,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    check_request,
    check_response,
    check_times,
    unreadable,
)
from . import layout

T = TypeVar("T")

_MOST_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 4096
_LARGEST_BYTES: Final = 2 * 1024**3
_LARGEST_FOREIGN_BYTES: Final = 128 * 1024**2


@dataclass(frozen=True, slots=True)
class LoadedCassette:
    """What a cassette file holds.

    Attributes
    ----------
    layout
        ``"lines"`` (ours), ``"vcrpy"`` (YAML of another writer), ``"json"``, or ``"empty"``.
    problem
        What is wrong with the file, in a sentence, or None: it broke off, or was changed.
    clean_bytes
        The length of the file up to the end of its last whole interaction.
    torn_bytes
        How many bytes of an interaction that broke off come after them.
    closed
        Whether the recording was closed, so that nothing can be missing from its end.
    """

    path: Path
    layout: Literal["lines", "vcrpy", "json", "empty"]
    metadata: dict[str, Any] = field(repr=False)
    interactions: Sequence[Interaction] = field(repr=False)
    problem: str | None = None
    clean_bytes: int = 0
    torn_bytes: int = 0
    closed: bool = True

    @property
    def foreign(self) -> bool:
        """Whether another program wrote it: what we write is redacted, what it wrote may not be."""
        return self.layout in ("vcrpy", "json")

    @property
    def redact(self) -> tuple[str, ...]:
        """What personal data it redacts, as `record` takes it: a replay needs the same."""
        rules = self.metadata.get("redact")
        return tuple(map(str, rules)) if isinstance(rules, list) else ()

    @property
    def base_url(self) -> str | None:
        """The base address of the recording: what it states, else its first request's origin."""
        stated = self.metadata.get("base_url")
        if isinstance(stated, str):
            return stated
        if not self.interactions:
            return None
        parts = urlsplit(self.interactions[0].request.uri)
        # No user info: it may be a key, and is no part of where the service is.
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def read_cassette(path: Path) -> LoadedCassette:
    """Read a cassette file of any layout that vcrpy reads, and ours.

    Raises
    ------
    CassetteError
        Where there is no file, or it may not be read.
    CassetteFormatError
        Where it is not a cassette, is not safe to load, or is too large. An interaction in our
        layout is read, and checked, when it is asked for.
    """
    return parse_cassette(_read(path), path)


def parse_cassette(data: bytes, path: Path) -> LoadedCassette:
    """Return what the bytes of a cassette file hold; ``path`` is for messages alone."""
    if not data.strip():
        return LoadedCassette(path, "empty", {}, ())
    if b"\r\n" in data[:64]:  # a checkout on Windows: not to be appended to as it is
        plain = parse_cassette(data.replace(b"\r\n", b"\n"), path)
        return replace(plain, layout="vcrpy" if plain.layout == "lines" else plain.layout)
    header = layout.read_header(data)
    if header is not None:
        metadata, position = header
        loaded = _by_line(data, path, _checked(metadata, path), position)
        if loaded is not None:
            return loaded
    elif layout.may_be_torn_header(data):
        return _torn(data, path, {}, (), position=0)
    return _through_vcrpy(data, path)


class LoadedLines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name
        # A poll has the same lines over and over: what they hold is made once.
        self._remembered = lru_cache(_MOST_REMEMBERED)(_parsed)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        at, elapsed, request, response = self._lines(index).groups()
        try:
            recorded_at = layout.recorded_at_of(at.decode("ascii", "replace"))
            elapsed_s = _seconds(elapsed)
            check_times(recorded_at, elapsed_s)
            return Interaction(
                self._value(_request, request),
                self._value(_response, response),
                recorded_at,
                elapsed_s,
            )
        except ODD as error:
            raise self._unreadable(index, error) from None

    def request(self, index: int, is_enough: Callable[[str], bool]) -> RecordedRequest:
        """Return one request; of a plain one its address alone, if that is enough by its method."""
        plain = layout.address_of(self._data, self._starts[index])
        if plain is not None and is_enough(plain.method):
            return plain
        try:
            return self._value(_request, self._lines(index)[3])
        except ODD as error:
            raise self._unreadable(index, error) from None

    def _value(self, build: Callable[[Any], T], line: bytes) -> T:
        return (self._remembered if len(line) <= _LONGEST_REMEMBERED else _parsed)(build, line)

    def _lines(self, index: int) -> re.Match[bytes]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        return match

    def _unreadable(self, index: int, error: Exception) -> CassetteFormatError:
        number = index % len(self) + 1
        return unreadable(f"Interaction {number} of cassette {self._name!r}", error)


def _request(value: Any) -> RecordedRequest:
    return check_request(layout.request_of(value))


def _response(value: Any) -> RecordedResponse:
    return check_response(layout.response_of(value))


def _parsed(build: Callable[[Any], T], line: bytes) -> T:
    try:
        value = layout.read_json(line)
    except (ValueError, KeyError, TypeError, RecursionError):
        from .vcr_files import load_yaml

        value = load_yaml(line.decode())
    return build(value)


def _seconds(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read(path: Path) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        if about.st_size > _LARGEST_BYTES:
            raise CassetteFormatError(
                f"{path} has {about.st_size:,} bytes; a cassette may have {_LARGEST_BYTES:,}. "
                "Record in parts."
            )
        with path.open("rb") as file:
            return file.read(about.st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise CassetteError(f"Cannot read cassette {path} ({reason}).") from None


def _by_line(
    data: bytes, path: Path, metadata: dict[str, Any], position: int
) -> LoadedCassette | None:
    """Return the cassette with an index of its lines; None where it needs vcrpy's loader."""
    starts = array("Q")
    while (match := layout.INTERACTION.match(data, position)) is not None:
        starts.append(position)
        position = match.end()
    interactions = LoadedLines(data, starts, path.stem)
    end = layout.is_end_line(data[position:])
    if end is None:
        if layout.INTERACTION.search(data, position) or _is_yaml(data[position:]):
            return None
        return _torn(data, path, metadata, interactions, position=position)
    digest = hashlib.sha256(memoryview(data)[:position]).hexdigest()
    is_as_closed = int(end[1]) == len(starts) and end[2].decode() == digest
    problem = None if is_as_closed else "it was changed after its recording was closed"
    return LoadedCassette(path, "lines", metadata, interactions, problem, position)


def _torn(
    data: bytes,
    path: Path,
    metadata: dict[str, Any],
    interactions: Sequence[Interaction],
    *,
    position: int,
) -> LoadedCassette:
    """Return the cassette of a recording that was not closed."""
    torn = len(data) - position
    problem = (
        f"its recording was not closed: {plural(len(interactions), 'interaction')} recovered, "
        f"{plural(torn, 'byte')} of a torn one set aside"
    )
    return LoadedCassette(
        path, "lines", metadata, interactions, problem, position, torn, closed=False
    )


def _is_yaml(tail: bytes) -> bool:
    """Return whether what follows our lines is whole: an interaction that a person wrote."""
    if not tail.startswith(b"- ") or not tail.endswith(b"\n"):
        return False
    from .vcr_files import load_cassette_text

    try:
        _, interactions = load_cassette_text("interactions:\n" + tail.decode())
    except (CassetteFormatError, UnicodeDecodeError):
        return False
    return bool(interactions)


def _through_vcrpy(data: bytes, path: Path) -> LoadedCassette:
    if len(data) > _LARGEST_FOREIGN_BYTES:
        raise CassetteFormatError(
            f"{path} is not in the line layout and has {len(data):,} bytes; "
            f"{_LARGEST_FOREIGN_BYTES:,} can be read of another. Record in parts."
        )
    from .vcr_files import load_cassette_text

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CassetteFormatError(f"{path} is not a cassette: it is not UTF-8 text.") from None
    try:
        metadata, interactions = load_cassette_text(text)
    except CassetteFormatError as error:
        raise CassetteFormatError(f"{path} is not a cassette. {error}") from None
    kind: Literal["json", "vcrpy"] = "json" if text.lstrip().startswith("{") else "vcrpy"
    checked = _checked(metadata, path)
    return LoadedCassette(path, kind, checked, interactions, None, len(data))


def _checked(metadata: object, path: Path) -> dict[str, Any]:
    """Return what a cassette says of itself, of JSON's types alone."""
    try:
        text = json.dumps(metadata, ensure_ascii=False, default=str)
        checked = json.loads(text.encode(errors="replace"))
        if not isinstance(checked, dict):
            return {}
        urlsplit(str(checked.get("base_url") or ""))
    except ODD:
        raise CassetteFormatError(
            f"{path} is not a cassette: what it says of its recording cannot be read."
        ) from None
    return checked
