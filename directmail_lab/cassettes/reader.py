"""Reads any cassette: ours by line and lazily, every other through vcrpy's loader."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from textwrap import shorten
from typing import Any, Final, Literal, TypeGuard, TypeVar
from urllib.parse import urlsplit

from ..display import plural
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    ODD,
    Interaction,
    RecordedRequest,
    check_request,
    check_response,
    check_times,
    unreadable,
)
from . import layout
from .library import cassettes_in

T = TypeVar("T")

_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 4096
_MAX_BYTES: Final = 2 * 1024**3
MAX_FOREIGN_BYTES: Final = 128 * 1024**2


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
    """

    path: Path
    layout: Literal["lines", "vcrpy", "json", "empty"] = "empty"
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    interactions: Sequence[Interaction] = field(default=(), repr=False)
    problem: str | None = None
    clean_bytes: int = 0

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
        """The base address of the recording: its metadata's, else its first request's origin."""
        base_url = self.metadata.get("base_url")
        if isinstance(base_url, str) or not self.interactions:
            return base_url if isinstance(base_url, str) else None
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
    return parse_cassette(read_bytes(path), path)


def parse_cassette(data: bytes, path: Path) -> LoadedCassette:
    """Return what the bytes of a cassette file hold; ``path`` is for messages alone."""
    if not data.strip():
        return LoadedCassette(path)
    return _parse_lines(data, path) or _parse_foreign(data, path)


def is_one_file(path: str | Path | Iterable[str | Path]) -> TypeGuard[str | Path]:
    """Return whether this is the path of one file, and neither a folder nor any number of paths."""
    # Unlike Path.is_dir, it raises nothing for a name that is too long.
    return isinstance(path, str | Path) and not os.path.isdir(path)  # noqa: PTH112


def read_many(
    paths: str | Path | Iterable[str | Path], read: Callable[[LoadedCassette, str], T]
) -> tuple[list[T], dict[str, str]]:
    """Return what ``read`` gives of each cassette and its name, and what is wrong with any.

    A cassette of a folder is named as it is below that, another by its path as it was given. One
    that cannot be read is left out, and a warning names it.
    """
    from tqdm.auto import tqdm

    results: list[T] = []
    problems: dict[str, str] = {}
    left_out: list[str] = []
    files = list(_named_files([paths] if isinstance(paths, str | Path) else list(paths)))
    for name, path in tqdm(files, "Cassettes", unit="cassette", delay=1, leave=False):
        try:
            loaded = read_cassette(path)
            results.append(read(loaded, name))
            problem = loaded.problem
        except CassetteError as error:
            problem = str(error)
            left_out.append(name)
        if problem:
            problems[name] = problem
    if left_out:
        warnings.warn(
            f"{len(left_out):,} of {plural(len(files), 'cassette')} cannot be read, and are left "
            f"out: {shorten(', '.join(left_out), 200, placeholder=' …')}. "
            "The frame's attrs['problems'] says why.",
            stacklevel=3,
        )
    return results, problems


def _named_files(paths: Sequence[str | Path]) -> Iterator[tuple[str, Path]]:
    for path in map(Path, paths):
        if is_one_file(path):
            yield path.as_posix().removesuffix(".yaml"), path
        else:
            prefix = "" if len(paths) == 1 else f"{path.as_posix()}/"
            yield from ((prefix + name, file) for name, file in cassettes_in(path))


class LoadedLines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name
        # A poll records the same lines over and over: they are parsed once.
        self._cached_message = lru_cache(_MAX_CACHED)(_parse_message)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        with self._format_errors(index) as (at, elapsed, request, response):
            interaction = Interaction(
                self._message("request", request),
                self._message("response", response),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed),
            )
            check_times(interaction.recorded_at, interaction.elapsed_s)
        return interaction

    def request(self, index: int, is_enough: Callable[[str], bool]) -> RecordedRequest:
        """Return one request, without headers and body if ``is_enough`` says so for its method."""
        request = layout.address_of(self._data, self._starts[index])
        if request is None or not is_enough(request.method):
            with self._format_errors(index) as lines:
                request = self._message("request", lines[2])
        return request

    @contextmanager
    def _format_errors(self, index: int) -> Iterator[tuple[bytes, ...]]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        try:
            yield match.groups()
        except ODD as error:
            number = index % len(self) + 1
            raise unreadable(f"Interaction {number} of cassette {self._name!r}", error) from None

    def _message(self, kind: Literal["request", "response"], line: bytes) -> Any:
        is_short = len(line) <= _MAX_CACHED_BYTES
        return (self._cached_message if is_short else _parse_message)(kind, line)


def _parse_message(kind: Literal["request", "response"], line: bytes) -> Any:
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):  # a binary body, or a line that a person wrote
        from .vcr_files import load_yaml

        value = load_yaml(line.decode())
    if kind == "request":
        return check_request(layout.request_of(value))
    return check_response(layout.response_of(value))


def read_bytes(path: Path, max_bytes: int = _MAX_BYTES) -> bytes:
    """Return the bytes of a file of at most that size; raises as `read_cassette` does."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        _check_size(path, status.st_size, max_bytes)
        with path.open("rb") as file:
            return file.read(status.st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise CassetteError(f"Cannot read cassette {path} ({reason}).") from None


def _parse_lines(data: bytes, path: Path) -> LoadedCassette | None:
    """Return the cassette with an index of its lines; None where it needs vcrpy's loader."""
    header = layout.read_header(data)
    if header is None:
        return None
    metadata, position = header
    starts = array("Q")
    while match := layout.INTERACTION.match(data, position):
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
    interactions = LoadedLines(data, starts, path.stem)
    metadata = _checked_metadata(metadata, path)
    return LoadedCassette(path, "lines", metadata, interactions, problem, position)


def _parse_foreign(data: bytes, path: Path) -> LoadedCassette:
    """Return a cassette of another layout, read by vcrpy's loader."""
    from .vcr_files import load_cassette_text

    _check_size(path, len(data), MAX_FOREIGN_BYTES)
    try:
        text = data.decode("utf-8-sig")
        metadata, interactions = load_cassette_text(text)
    except UnicodeDecodeError:
        raise CassetteFormatError(f"{path} is not a cassette: it is not UTF-8 text.") from None
    except CassetteFormatError as error:
        raise CassetteFormatError(f"{path} is not a cassette. {error}") from None
    kind: Literal["json", "vcrpy"] = "json" if text.lstrip().startswith("{") else "vcrpy"
    metadata = _checked_metadata(metadata, path)
    return LoadedCassette(path, kind, metadata, interactions, clean_bytes=len(data))


def _check_size(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise CassetteFormatError(
            f"{path} has {size:,} bytes; a cassette of its layout may have {max_bytes:,}. "
            "Record in parts."
        )


def _checked_metadata(metadata: object, path: Path) -> dict[str, Any]:
    """Return a cassette's metadata, converted to the types of JSON."""
    try:
        text = json.dumps(metadata, ensure_ascii=False, default=str)
        value = json.loads(text.encode(errors="replace"))
        value = value if isinstance(value, dict) else {}
        urlsplit(str(value.get("base_url")))
    except ODD:
        raise CassetteFormatError(
            f"{path} is not a cassette: what it says of its recording cannot be read."
        ) from None
    return value
