"""Reads any cassette: ours by line and lazily, every other through vcrpy's loader."""

from __future__ import annotations

import hashlib
import json
import stat
import warnings
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
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

_MOST_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 4096
_LARGEST_BYTES: Final = 2 * 1024**3
LARGEST_FOREIGN_BYTES: Final = 128 * 1024**2


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
    layout: Literal["lines", "vcrpy", "json", "empty"]
    metadata: dict[str, Any] = field(repr=False)
    interactions: Sequence[Interaction] = field(repr=False)
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
    return parse_cassette(read_bytes(path), path)


def parse_cassette(data: bytes, path: Path) -> LoadedCassette:
    """Return what the bytes of a cassette file hold; ``path`` is for messages alone."""
    if not data.strip():
        return LoadedCassette(path, "empty", {}, ())
    if b"\r\n" in data[:64]:  # a checkout on Windows: not to be appended to as it is
        plain = parse_cassette(data.replace(b"\r\n", b"\n"), path)
        return replace(plain, layout="vcrpy" if plain.layout == "lines" else plain.layout)
    return _by_line(data, path) or _through_vcrpy(data, path)


def is_one_file(path: str | Path | Iterable[str | Path]) -> TypeGuard[str | Path]:
    """Return whether this is the path of one file, and neither a folder nor any number of paths."""
    return isinstance(path, str | Path) and not _is_folder(Path(path))


def _is_folder(path: Path) -> bool:
    with suppress(OSError):  # such as a name that is too long: reading it says what is wrong
        return path.is_dir()
    return False


def read_many(
    paths: str | Path | Iterable[str | Path], read: Callable[[LoadedCassette, str], T]
) -> tuple[list[T], dict[str, str]]:
    """Return what ``read`` gives of each cassette and its name, and what is wrong with any.

    A cassette of a folder is named as it is below that, another by its path as it was given. One
    that cannot be read is left out, and a warning names it.
    """
    from tqdm.auto import tqdm

    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(each) for each in paths]
    files: list[tuple[str, Path]] = []
    for each in given:
        above = "" if len(given) == 1 else f"{each.as_posix()}/"
        if _is_folder(each):
            files += [(above + name, path) for name, path in cassettes_in(each)]
        else:
            files.append((each.as_posix().removesuffix(".yaml"), each))
    found: list[T] = []
    problems: dict[str, str] = {}
    left_out: list[str] = []
    for name, path in tqdm(files, "Cassettes", unit="cassette", delay=1, leave=False):
        try:
            loaded = read_cassette(path)
            found.append(read(loaded, name))
        except CassetteError as error:
            problems[name] = str(error)
            left_out.append(name)
        else:
            if loaded.problem:
                problems[name] = loaded.problem
    if left_out:
        more = f" and {len(left_out) - 5:,} more" if len(left_out) > 5 else ""
        warnings.warn(
            f"{len(left_out):,} of {plural(len(files), 'cassette')} cannot be read, and are left "
            f"out: {', '.join(left_out[:5])}{more}. The frame's attrs['problems'] says why.",
            stacklevel=3,
        )
    return found, problems


class LoadedLines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name
        # A poll records the same lines over and over: they are parsed once.
        self._remembered = lru_cache(_MOST_REMEMBERED)(_message)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        at, elapsed, request, response = self._lines(index)
        try:
            interaction = Interaction(
                self._value("request", request),
                self._value("response", response),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed),
            )
            check_times(interaction.recorded_at, interaction.elapsed_s)
        except ODD as error:
            raise self._unreadable(index, error) from None
        return interaction

    def request(self, index: int, is_enough: Callable[[str], bool]) -> RecordedRequest:
        """Return one request, without headers and body if ``is_enough`` says so for its method."""
        plain = layout.address_of(self._data, self._starts[index])
        if plain is not None and is_enough(plain.method):
            return plain
        try:
            request: RecordedRequest = self._value("request", self._lines(index)[2])
        except ODD as error:
            raise self._unreadable(index, error) from None
        return request

    def _lines(self, index: int) -> tuple[bytes, ...]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        return match.groups()

    def _value(self, kind: Literal["request", "response"], line: bytes) -> Any:
        return (self._remembered if len(line) <= _LONGEST_REMEMBERED else _message)(kind, line)

    def _unreadable(self, index: int, error: Exception) -> CassetteFormatError:
        which = f"Interaction {index % len(self) + 1} of cassette {self._name!r}"
        return unreadable(which, error)


def _message(kind: Literal["request", "response"], line: bytes) -> Any:
    try:
        value = layout.read_json(line)
    except (ValueError, KeyError, TypeError, RecursionError):
        from .vcr_files import load_yaml

        value = load_yaml(line.decode())
    if kind == "request":
        return check_request(layout.request_of(value))
    return check_response(layout.response_of(value))


def read_bytes(path: Path, most: int = _LARGEST_BYTES) -> bytes:
    """Return the bytes of a file that has no more than ``most``; raises as `read_cassette` does."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        if about.st_size > most:
            raise _too_large(path, about.st_size, most)
        with path.open("rb") as file:
            return file.read(about.st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise CassetteError(f"Cannot read cassette {path} ({reason}).") from None


def _by_line(data: bytes, path: Path) -> LoadedCassette | None:
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
        if layout.INTERACTION.search(data, position) or _is_yaml(data[position:]):
            return None
        problem = (
            f"its recording was not closed: {plural(len(starts), 'interaction')} recovered, "
            f"{plural(len(data) - position, 'byte')} of a torn one set aside"
        )
    elif (int(end[1]), end[2].decode()) != (
        len(starts),
        hashlib.sha256(memoryview(data)[:position]).hexdigest(),
    ):
        problem = "it was changed after its recording was closed"
    interactions = LoadedLines(data, starts, path.stem)
    return LoadedCassette(path, "lines", _checked(metadata, path), interactions, problem, position)


def _is_yaml(tail: bytes) -> bool:
    """Return whether what follows our lines is whole: an interaction that a person wrote."""
    from .vcr_files import load_cassette_text

    with suppress(CassetteFormatError, UnicodeDecodeError):
        if tail.endswith(b"\n"):
            return bool(load_cassette_text("interactions:\n" + tail.decode())[1])
    return False


def _through_vcrpy(data: bytes, path: Path) -> LoadedCassette:
    from .vcr_files import load_cassette_text

    if len(data) > LARGEST_FOREIGN_BYTES:
        raise _too_large(path, len(data), LARGEST_FOREIGN_BYTES)
    try:
        text = data.decode("utf-8-sig")
        metadata, interactions = load_cassette_text(text)
    except UnicodeDecodeError:
        raise CassetteFormatError(f"{path} is not a cassette: it is not UTF-8 text.") from None
    except CassetteFormatError as error:
        raise CassetteFormatError(f"{path} is not a cassette. {error}") from None
    kind: Literal["json", "vcrpy"] = "json" if text.lstrip().startswith("{") else "vcrpy"
    return LoadedCassette(path, kind, _checked(metadata, path), interactions, None, len(data))


def _too_large(path: Path, size: int, most: int) -> CassetteFormatError:
    return CassetteFormatError(
        f"{path} has {size:,} bytes; a cassette of its layout may have {most:,}. Record in parts."
    )


def _checked(metadata: object, path: Path) -> dict[str, Any]:
    """Return a cassette's metadata, converted to the types of JSON."""
    try:
        text = json.dumps(metadata, ensure_ascii=False, default=str)
        checked = json.loads(text.encode(errors="replace"))
        about = checked if isinstance(checked, dict) else {}
        urlsplit(str(about.get("base_url") or ""))
        return about
    except ODD:
        raise CassetteFormatError(
            f"{path} is not a cassette: what it says of its recording cannot be read."
        ) from None
