"""The journal beside a cassette: what is being recorded, until it is part of the cassette's file.

``tour.yaml.part`` has a line about the recording, and then a record for each interaction: a line of
JSON, and the interaction's text of ``size`` bytes. ``request`` counts the requests of the recording
in the order in which they began. A later record of a request replaces an earlier one, and one of
no bytes removes it. ``replaces`` has the digests of the interactions, in the cassette or here, that
this one replaces: it takes the place of the first of them::

    {"base_url": "https://api.example.com"}
    {"request": 3, "size": 512, "replaces": ["5f3c…"]}
    - recorded_at: …

So a journal can be added to a cassette any number of times, with the same result: an interaction
that is in both is not added twice. After a kill at any moment, the cassette and its journal
together have every interaction.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..exchange.values import MALFORMED, Interaction
from . import layout
from .library import patiently
from .lines import read_interactions

_FSYNC_EVERY_S = 1.0
_Place = str | int
Parts = list[Interaction | bytes]
"""The interactions of a cassette, in their order, as values or texts."""
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)


def journal_of(path: Path) -> Path:
    """Return the journal of a cassette, which stands beside the file that a link leads to."""
    file = path.resolve()
    return file.with_name(f"{file.name}.part")


def remove_journal(path: Path) -> None:
    """Remove the journal of a cassette that has its interactions.

    On Windows, it stays if somebody reads it just then. It adds nothing to the cassette.
    """
    with suppress(PermissionError):
        patiently(lambda: journal_of(path).unlink(missing_ok=True))


def digest_of(text: bytes) -> str:
    """Return what identifies an interaction in a cassette by its text."""
    return sha256(text).hexdigest()


def digests_of(interactions: Iterable[Interaction]) -> list[str]:
    """Return what identifies interactions in a cassette."""
    return [digest_of(layout.interaction_text(each).encode()) for each in interactions]


def interactions_of(parts: Parts) -> list[Interaction]:
    """Return the interactions of the parts of a cassette."""
    return [each if isinstance(each, Interaction) else read_interactions(each)[0] for each in parts]


@dataclass(slots=True)
class Journal:
    """What a journal adds to its cassette.

    Attributes
    ----------
    base_url
        The address to which the requests were sent.
    is_aside
        Whether the cassette stays as it is until the recording has succeeded.
    by_request
        The digests and texts of the interactions by the numbers of their requests.
    damage
        The lines at which something begins that cannot be read.
    """

    base_url: str | None = None
    is_aside: bool = False
    by_request: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    damage: list[int] = field(default_factory=list)
    # A place is the digest of what stands there in the cassette, or the number of a request here.
    _standing: dict[int, _Place] = field(default_factory=dict)
    # By digests, of which two interactions may have the same.
    _requests: dict[str, int] = field(default_factory=dict)
    _places: dict[str, _Place] = field(default_factory=dict)

    def add(self, about: Mapping[str, Any], text: bytes) -> None:
        """Add a record."""
        if "request" not in about:
            base_url = about.get("base_url")
            self.base_url = base_url if isinstance(base_url, str) else None
            self.is_aside = about.get("is_aside") is True
            return
        request = int(about["request"])
        before, _ = self.by_request.get(request, ("", b""))
        removed = {request}
        place = self._standing.get(request, request)
        for each in reversed(list(map(str, about["replaces"]))):
            if each == before:  # it stays in its place, also beside another one with this digest
                continue
            place = self._places.setdefault(each, each)
            removed.add(self._requests.get(each, 0))
        if text:  # it is added before the others are removed: Ctrl-C may come in between
            removed.remove(request)
            digest = digest_of(text)
            self._standing[request] = place
            self._requests[digest] = request
            self._places.setdefault(digest, place)
            self.by_request[request] = digest, text
        for other in removed:
            self.by_request.pop(other, None)

    def added_to(self, recorded: Sequence[Interaction], digests: Sequence[str]) -> Parts:
        """Return a cassette's interactions with those of the journal.

        One that is in both stays where it is in the cassette. An interaction that was not replaced
        may have an empty digest.
        """
        added: dict[_Place, list[bytes]] = {}
        firsts: dict[_Place, int] = {}
        for request, (_, text) in sorted(self.by_request.items()):
            place = self._standing[request]
            added.setdefault(place, []).append(text)
            firsts.setdefault(place, place if isinstance(place, int) else request)
        parts: Parts = []
        for each, digest in zip(recorded, digests, strict=True):
            if digest in self._places:
                parts += added.pop(self._places[digest], ())
            else:
                parts.append(each)
        for place in sorted(added, key=firsts.__getitem__):
            parts += added[place]
        return parts

    def new_to(self, digests: Iterable[str]) -> int:
        """Return how many interactions are not in the cassette yet."""
        return len({digest for digest, _ in self.by_request.values()}.difference(digests))


def with_line_feeds(data: bytes) -> bytes:
    """Return the bytes of a file with the ends of lines that git may have changed."""
    has_crlf = data[: data.find(b"\n") + 1].endswith(b"\r\n")
    return data.replace(b"\r\n", b"\n") if has_crlf else data


def parse_journal(data: bytes) -> Journal:
    """Return what a journal says. A kill may have cut off the last record, which is left out."""
    journal = Journal()
    data = with_line_feeds(data)
    start = 0
    while start < len(data):
        try:
            about, text, end = _record(data, start)
            if end > len(data):
                break
            if text:
                (_,) = read_interactions(text)
            journal.add(about, text)
            start = end
        except MALFORMED:
            journal.damage.append(1 + data.count(b"\n", 0, start))
            start = data.find(b'\n{"request"', start) + 1 or len(data)
    return journal


def _record(data: bytes, start: int) -> tuple[dict[str, Any], bytes, int]:
    """Return a record and its end, which is beyond that of the data if it is cut off."""
    text_start = data.find(b"\n", start) + 1
    if not text_start and data.startswith(b"{", start):
        return {}, b"", len(data) + 1
    about = json.loads(data[start:text_start])
    end = text_start + max(0, int(about.get("size", 0)))
    text = data[text_start:end]
    # After a power cut, the size of a file may be right, and its end zeros.
    if end > len(data) and (b"\n{" in text or b"\0" in text):
        raise ValueError("this record is not the last one, or its text was not written")
    return about, text, end


class JournalWriter:
    """Writes the journal of a recording. After each record, a kill does not lose it.

    A recording that rests removes the file, and begins another one later.

    Attributes
    ----------
    added
        What all its files add to the cassette.
    is_open
        Whether there is a file.
    """

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self._path = journal_of(path)
        self._start = _line(about)
        self._file = 0
        self._size = 0
        self._synced_at = 0.0
        self.added = Journal()
        self.is_open = False

    def begin(self, mode: int) -> None:
        """Create the file; create it again with its records if somebody has removed its folder."""
        data = self._start
        if self.is_open:
            self.is_open = False
            with os.fdopen(self._file, "rb") as file:
                file.seek(0)
                data = file.read(self._size)
        patiently(lambda: self._path.unlink(missing_ok=True))
        # O_EXCL: never through a link that another process has made.
        self._file = os.open(self._path, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
        self._size = 0
        self._add(data)
        self.is_open = True

    def write(self, request: int, text: bytes, replaces: Iterable[str]) -> None:
        """Write the text of an interaction, or none to remove it. A full disk changes nothing."""
        about = {"request": request, "size": len(text), "replaces": list(replaces)}
        self._add(_line(about) + text)
        self.added.add(about, text)
        if time.monotonic() - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = time.monotonic()
            os.fsync(self._file)

    def is_in_place(self) -> bool:
        """Return whether the file is where it was created: its folder may have been removed."""
        try:
            return self.is_open and os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file, which stays."""
        if self.is_open:
            self.is_open = False
            os.close(self._file)

    def _add(self, data: bytes) -> None:
        if os.fstat(self._file).st_size != self._size:
            os.ftruncate(self._file, self._size)  # the last record: by Ctrl-C, or the disk was full
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self._size += len(data)


def _line(about: Mapping[str, object]) -> bytes:
    return json.dumps(about).encode() + b"\n"
