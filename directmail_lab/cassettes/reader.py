"""Reads any cassette: ours by line and lazily, every other through vcrpy's loader."""

from __future__ import annotations

import hashlib
import stat
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from directmail_lab.display import plural
from directmail_lab.errors import CassetteError, CassetteFormatError

from . import layout
from .lazy import LazyInteractions

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from pathlib import Path

    from directmail_lab.interaction import Interaction


__all__ = ["LARGEST_BYTES", "LoadedCassette", "parse_cassette", "read_cassette"]

LARGEST_BYTES: Final = 2 * 1024**3
"""A larger file is refused before it is read."""

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
    sound_bytes
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
    sound_bytes: int = 0
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
        Where it is not a cassette, is not safe to load, or is too large.
    """
    return parse_cassette(_bytes_of(path), path)


def parse_cassette(data: bytes, path: Path) -> LoadedCassette:
    """Return what the bytes of a cassette file hold; ``path`` is for messages alone."""
    if not data.strip():
        return LoadedCassette(path, "empty", {}, ())
    if b"\r\n" in data[:64]:  # a checkout on Windows: not to be appended to as it is
        plain = parse_cassette(data.replace(b"\r\n", b"\n"), path)
        return replace(plain, layout="vcrpy" if plain.layout == "lines" else plain.layout)
    header = layout.read_header(data)
    if header is not None:
        loaded = _by_line(data, path, *header)
        if loaded is not None:
            return loaded
    elif layout.may_be_torn_header(data):
        problem = f"0 interactions recovered, {plural(len(data), 'byte')} of a torn one set aside"
        return LoadedCassette(path, "lines", {}, (), problem, 0, len(data), closed=False)
    return _through_vcrpy(data, path)


def _bytes_of(path: Path) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        if about.st_size > LARGEST_BYTES:
            raise CassetteFormatError(
                f"{path} has {about.st_size:,} bytes; a cassette may have {LARGEST_BYTES:,}. "
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
    starts, position = _whole_interactions(data, position)
    name = path.stem
    interactions = LazyInteractions(data, starts, name)
    end = layout.is_end_line(data[position:])
    if end is not None:
        problem = _changed(data, position, end, len(starts))
        return LoadedCassette(path, "lines", metadata, interactions, problem, position)
    if layout.INTERACTION.search(data, position) or _is_yaml(data[position:]):
        return None
    torn = len(data) - position
    problem = (
        f"its recording was not closed: {plural(len(starts), 'interaction')} recovered, "
        f"{plural(torn, 'byte')} of a torn one set aside"
    )
    return LoadedCassette(
        path, "lines", metadata, interactions, problem, position, torn, closed=False
    )


def _whole_interactions(data: bytes, position: int) -> tuple[array[int], int]:
    starts = array("Q")
    add, match_at = starts.append, layout.INTERACTION.match
    while (match := match_at(data, position)) is not None:
        add(position)
        position = match.end()
    return starts, position


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


def _changed(data: bytes, end: int, line: re.Match[bytes], count: int) -> str | None:
    digest = hashlib.sha256(memoryview(data)[:end]).hexdigest()
    if int(line[1]) == count and line[2].decode() == digest:
        return None
    return "it was changed after its recording was closed"


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
    return LoadedCassette(path, kind, metadata, interactions, None, len(data))
