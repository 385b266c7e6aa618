"""Recordings in files: `read_cassette` reads any layout, and `write_cassette` writes ours.

Another program's file goes through vcrpy's loader or `har`, and loses its credentials.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ..display import plural, shell_word
from ..errors import CassetteError, CassetteFormatError
from ..exchange.bodies import unpack
from ..exchange.values import (
    MALFORMED,
    Interaction,
    Response,
    header,
    normalize_headers,
)
from ..redaction import Redactor
from ..settings import VERSION
from . import layout
from .journal import (
    Journal,
    Parts,
    digests_of,
    interactions_of,
    journal_of,
    parse_journal,
    with_line_feeds,
)
from .library import Version, create, is_locked, typed_path, version_of
from .lines import OtherLayoutError, read_interactions
from .recording import Recording, service_of, uncollected

_ForeignLayout = Literal["vcrpy", "json", "har"]

MAX_FILE_BYTES = 256 * 1024**2
_OURS = b'"recorded_with": "directmail-lab'
_LFS = b"version https://git-lfs"
_REPAIR = "directmail-lab cassette repair"
# The two sides of a conflict; git may write what was before them in between.
_SIDES = re.compile(
    rb"(?ms)^<{7} [^\n]*\n(.*?)(?:^\|{7}[^\n]*\n.*?)?^={7}\r?\n(.*?)^>{7} [^\n]*(?:\n|\Z)"
)
_CONFLICT = re.compile(rb"(?m)^(?:<{7} |={7}\r?$|>{7} )")


@dataclass(eq=False)
class FileRecording(Recording):
    """The recording in a file.

    Attributes
    ----------
    interactions
        The interactions in the order of their recording.
    base_url
        The service address that the file names, or else the origin of its first request.
    problem
        Says that the recording goes on or was recovered, or which entries of a HAR file are left
        out.
    layout
        ``"lines"`` (ours), ``"vcrpy"`` (YAML of another writer), ``"json"``, ``"har"`` or
        ``"empty"``.
    size
        The number of bytes of the file.
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
    size: int = field(default=0, repr=False)
    version: Version | None = field(default=None, repr=False)

    @property
    def is_third_party(self) -> bool:
        """Whether another program wrote the file."""
        return self.layout not in ("lines", "empty")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The service address, then others, which an earlier version let a file have."""
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
        # Another program's cassette names no service address, and may be about many services.
        return () if self.is_third_party else super()._own

    def decoded(self, number: int) -> Interaction:
        """Return an interaction with the response to play; raise the errors of `response`."""
        recorded = self.interactions[number - 1]
        response = _decoded(recorded.response, recorded.request.method)
        return recorded if response is recorded.response else replace(recorded, response=response)


def read_file(path: Path) -> FileRecording:
    """Return the recording in a file: a cassette in our layout or any of vcrpy's, or HAR.

    Raises
    ------
    CassetteError
        There is no such file, or it cannot be read.
    CassetteFormatError
        It is not a cassette, is not safe to load, or is too large.
    """
    try:
        data, version = _read_bytes(path)
    except FileNotFoundError as error:
        raise _unreadable(path, error) from None
    return replace(parse_cassette(data, path), version=version)


def read_cassette(path: Path) -> FileRecording:
    """Return the recording in a file, with the interactions that are still in its journal."""
    while True:
        # In this order: what is folded meanwhile is in both.
        version = version_of(path)
        try:
            journal = None if version is None else read_journal(path)
        except CassetteFormatError as error:
            if os.access(path.parent, os.W_OK):
                raise
            return replace(read_file(path), problem=f"it is read without its journal: {error}")
        recording = read_file(path)
        if journal is None or journal.is_aside:
            return recording
        if recording.version == version:
            joined = join(recording, journal)
            if is_locked(path):
                count = plural(len(joined), "interaction")
                joined.problem = f"it is being recorded: {count} until now"
            return joined


def read_journal(path: Path, *, is_repair: bool = False) -> Journal | None:
    """Return what the journal of a cassette adds to it; None if there is no journal.

    Raises
    ------
    CassetteFormatError
        Something in it cannot be read, which only a repair leaves out.
    """
    file = journal_of(path)
    try:
        journal = parse_journal(_read_bytes(file)[0])
    except FileNotFoundError:  # its recording may end just now
        return None
    # A recording that stands aside is dropped in any case.
    if journal.damage and not (is_repair or journal.is_aside):
        raise CassetteFormatError(
            f"{file} is damaged in line {journal.damage[0]}. It has what a recording that did not "
            "end has sent. Nothing was sent or removed now.",
            f"directmail-lab cassette repair {shell_word(typed_path(path))} keeps what can be "
            "read of it.",
        )
    return journal


def join(recording: FileRecording, journal: Journal) -> FileRecording:
    """Return a recording with what its journal adds to it; its ``problem`` says how many."""
    known = recording.interactions
    digests = digests_of(known)
    joined = with_parts(recording, journal.added_to(known, digests), journal.base_url)
    new = journal.new_to(digests)
    if new:
        joined.problem = f"{plural(new, 'interaction')} recovered from a recording that did not end"
    return joined


def with_parts(recording: FileRecording, parts: Parts, base_url: str | None) -> FileRecording:
    """Return a recording with the parts of a cassette, which a session at an address recorded."""
    base_url = base_url or recording.base_url
    return replace(
        recording,
        interactions=interactions_of(parts),
        metadata={**recording.metadata, "base_url": base_url},
        base_url=base_url,
    )


def parse_cassette(data: bytes, path: Path) -> FileRecording:
    """Return the recording in the bytes of a file; ``path`` is only for messages."""
    if not data or data.isspace():
        return FileRecording(path.stem, path=path)
    damage: CassetteFormatError | None = None
    try:
        ours = _parse_ours(data, path)
        if ours is not None:
            return ours
    except CassetteFormatError as error:
        damage = error  # unless a person wrote what only the whole text explains, such as an alias
    if data.count(b"\nrecording: ") > 1 and not _CONFLICT.search(data):
        raise CassetteFormatError(
            f"{path} has two heads: it was joined from two cassettes, as by merge=union in git.",
            f"Take one side from git. Then {_REPAIR} keeps both sides of a conflict.",
        )
    try:
        return _parse_whole(data, path)
    except CassetteFormatError as error:
        raise damage or error from None


def sides_of(path: Path) -> list[FileRecording]:
    """Return the recordings of both sides of a conflict of a merge; none without a conflict."""
    data, _ = _read_bytes(path)
    sides = [_SIDES.sub(side, data) for side in (rb"\1", rb"\2")]
    return [] if sides[0] == data else [parse_cassette(each, path) for each in sides]


def _read_bytes(path: Path) -> tuple[bytes, Version | None]:
    """Return the bytes of a file of at most 256 MB, and its version before they were read.

    `FileNotFoundError` is the only error of the system that it raises.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of this file: a fold may have replaced the other
            _check_size(status.st_size, path)
            return file.read(status.st_size), version_of(status)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> CassetteError:
    reason = error.strerror if isinstance(error, OSError) else "not a path"
    return CassetteError(f"Cannot read cassette {path} ({reason}).")


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


def _parse_ours(data: bytes, path: Path) -> FileRecording | None:
    """Return the recording in a file; None if it is not exactly in our layout."""
    text = with_line_feeds(data)
    head = layout.read_header(text)
    if head is None:
        return None
    about, start = head
    try:
        with uncollected():
            found = read_interactions(text, start)
    except OtherLayoutError:
        return None
    except CassetteFormatError as error:
        raise CassetteFormatError(f"{path}: {error.what}", error.advice) from None
    metadata, base_url = _about(about, found, path)
    recording = FileRecording(
        path.stem,
        found,
        base_url,
        path=path,
        layout="lines",
        metadata=metadata,
        size=len(data),
    )
    if len(set(map(service_of, recording.base_urls))) > 1:
        recording.problem = f"it has responses of {' and '.join(recording.base_urls)}"
    return recording


def read_as_written(data: bytes, path: Path) -> tuple[Sequence[Interaction], str | None]:
    """Return the interactions and the service address in a file and its journal, unchanged.

    Another program's interactions still contain their credentials. The errors are those of
    `read_cassette`.
    """
    _check_size(len(data), path)
    if not data or data.isspace():
        return (), None
    ours = None
    with suppress(CassetteFormatError):
        ours = _parse_ours(data, path)
    if ours is not None:
        journal = read_journal(path)
        more = [] if journal is None else interactions_of(journal.added_to((), ()))
        # After a fold, an interaction may be in both.
        return list(dict.fromkeys([*ours.interactions, *more])), ours.base_url
    _, metadata, interactions, _ = _load_whole(data, path)
    return interactions, _about(metadata, interactions, path)[1]


def _parse_whole(data: bytes, path: Path) -> FileRecording:
    """Return a recording of another layout, or one that a person edited, without credentials."""
    kind, metadata, interactions, problem = _load_whole(data, path)
    recording = foreign_recording(interactions, path, kind, metadata)
    recorded_with = str(recording.metadata.get("recorded_with"))
    if kind == "vcrpy" and recorded_with.startswith(layout.WRITER):
        recording = replace(recording, layout="lines")
    return replace(recording, problem=problem, size=len(data))


def foreign_recording(
    interactions: list[Interaction],
    path: Path,
    kind: _ForeignLayout = "vcrpy",
    metadata: object = None,
) -> FileRecording:
    """Return the recording of another program's interactions."""
    redactor = Redactor()
    redacted = redactor.interactions(interactions)
    about, base_url = _about(metadata, redacted, path)
    return FileRecording(
        path.stem,
        redacted,
        base_url,
        path=path,
        layout=kind,
        metadata={name: redactor.text(v) if isinstance(v, str) else v for name, v in about.items()},
    )


def _load_whole(
    data: bytes, path: Path
) -> tuple[_ForeignLayout, object, list[Interaction], str | None]:
    """Return the layout, the metadata, the interactions with their credentials, and a problem."""
    if path.suffix.lower() == ".har":
        from .har import read_har

        return "har", {}, *read_har(data, path)
    from .vcr_files import load_cassette_text

    try:
        text = data.decode("utf-8-sig")
        metadata, interactions = load_cassette_text(text)
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
            f"To keep both sides: {_REPAIR} {shell_word(typed_path(path))}.",
        )
    if data.startswith(_LFS):
        return CassetteFormatError(
            f"{path} is a pointer of git-lfs, which stands for the cassette.",
            "Fetch the cassette: git lfs pull.",
        )
    if _OURS in data:
        advice = "If you edited it, correct that. If not, take it from your version control."
        return CassetteFormatError(f"{path} is damaged. {why}", advice)
    return CassetteFormatError(f"{path} is not a cassette. {why}", is_cassette=False)


def _about(
    metadata: object, interactions: Sequence[Interaction], path: Path
) -> tuple[dict[str, Any], str | None]:
    """Return a cassette's metadata in the types of JSON, and its service address."""
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


def write_cassette(
    path: Path,
    metadata: Mapping[str, object],
    parts: Sequence[Interaction | bytes],
    redactor: Redactor,
    *,
    version: Version | None = None,
) -> None:
    """Write a redacted cassette, and let it replace ``path`` when it is complete.

    A part is an interaction, or its redacted text. If the old file no longer has the ``version``,
    this raises the error of `create`.
    """
    # `recorded_with` comes first, since our reader knows our own layout by it.
    about: dict[str, object] = {"recorded_with": f"{layout.WRITER} {VERSION}"}
    for name, value in metadata.items():
        about.setdefault(name, redactor.text(value) if isinstance(value, str) else value)
    if redactor.redact:
        about["redact"] = list(redactor.redact)
    head = layout.header_text(about, is_empty=not parts)
    redactor.refuse_leak(head)
    with create(path, version) as new, new.open("wb") as file:
        file.write(head.encode())
        for part in parts:
            if isinstance(part, Interaction):
                part = redactor.redacted_text(part, layout.interaction_text)[0].encode()
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
