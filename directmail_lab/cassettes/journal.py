"""The journal beside a cassette: what is being recorded, until it is part of the cassette's file.

``tour.yaml.part`` has a line about the recording, and then a record for each interaction: a line of
JSON, and the interaction's text of ``size`` bytes. ``request`` counts the requests of the recording
in the order in which they began. A later record of a request replaces an earlier one, and one of
no bytes removes it. ``replaces`` has the digests of the interactions in the cassette that this one
replaces::

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
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)


def journal_of(path: Path) -> Path:
    """Return the journal of a cassette, which stands beside the file that a link leads to."""
    file = path.resolve()
    return file.with_name(f"{file.name}.part")


def remove_journal(file: Path) -> None:
    """Remove a journal whose interactions are in its cassette.

    On Windows, it stays if somebody reads it just then. It adds nothing to the cassette.
    """
    with suppress(PermissionError):
        patiently(lambda: file.unlink(missing_ok=True))


def digest_of(text: bytes) -> str:
    """Return what identifies an interaction in a cassette by its text."""
    return sha256(text).hexdigest()


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
        The interactions by the numbers of their requests.
    replaced
        The digests of the interactions in the cassette that they replace.
    damage
        The lines at which something begins that cannot be read.
    """

    base_url: str | None = None
    is_aside: bool = False
    by_request: dict[int, Interaction] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    damage: list[int] = field(default_factory=list)

    def add(self, about: dict[str, Any], text: bytes) -> None:
        """Add a record; raise one of `MALFORMED` if it cannot be read."""
        if "request" not in about:
            base_url = about.get("base_url")
            self.base_url = base_url if isinstance(base_url, str) else None
            self.is_aside = about.get("is_aside") is True
            return
        request = int(about["request"])
        replaced = set(map(str, about["replaces"]))
        if text:
            (self.by_request[request],) = read_interactions(text)
        else:
            self.by_request.pop(request, None)
        self.replaced |= replaced

    @property
    def interactions(self) -> list[Interaction]:
        """The interactions, in the order in which their requests began."""
        return [self.by_request[number] for number in sorted(self.by_request)]

    def added_to(
        self, recorded: Sequence[Interaction]
    ) -> tuple[list[Interaction], list[Interaction]]:
        """Return what stays of a cassette's interactions, and those that come after them."""
        own = self.interactions
        known = set(own)
        kept = [each for each in recorded if each not in known]
        if self.replaced:
            kept = [each for each in kept if not self._replaces(each)]
        return kept, own

    def _replaces(self, recorded: Interaction) -> bool:
        return digest_of(layout.interaction_text(recorded).encode()) in self.replaced

    def new_to(self, recorded: Sequence[Interaction]) -> int:
        """Return how many interactions are not in the cassette yet."""
        return len(set(self.by_request.values()).difference(recorded))


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
    """Writes a new journal. After each record, a kill does not lose it."""

    def __init__(self, path: Path, about: Mapping[str, object], mode: int) -> None:
        self._path = path
        self._about = about
        self._mode = mode
        self._synced_at = 0.0
        self.size = 0
        patiently(lambda: path.unlink(missing_ok=True))
        # O_EXCL: never through a link that another process has made.
        self._file = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
        self._append(about, b"")

    def write(self, request: int, text: bytes, replaces: Iterable[str] = ()) -> None:
        """Write the text of an interaction, or none to remove it. A full disk changes nothing."""
        about = {"request": request, "size": len(text), "replaces": list(replaces)}
        self._append(about, text)
        if time.monotonic() - self._synced_at >= _FSYNC_EVERY_S:
            self._synced_at = time.monotonic()
            os.fsync(self._file)

    def texts(self) -> dict[int, bytes]:
        """Return the texts of the interactions, in the order in which their requests began."""
        texts: dict[int, bytes] = {}
        data = self.data()
        start = 0
        while start < len(data):
            about, text, start = _record(data, start)
            texts[about.get("request", 0)] = text
        return {number: texts[number] for number in sorted(texts) if texts[number]}

    def data(self) -> bytes:
        """Return the whole journal."""
        os.lseek(self._file, 0, os.SEEK_SET)
        left = self.size
        parts = []
        while left:
            part = os.read(self._file, left)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def is_in_place(self) -> bool:
        """Return whether the file is still where it was created: its folder may be removed."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def created_again(self) -> JournalWriter:
        """Return a new journal of the same interactions: somebody has removed this one's folder."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = JournalWriter(self._path, self._about, self._mode)
        new._add(self.data()[new.size :])
        os.close(self._file)
        return new

    def close(self) -> None:
        """Close the file, which stays."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def _append(self, about: Mapping[str, object], text: bytes) -> None:
        self._add(json.dumps(about).encode() + b"\n" + text)

    def _add(self, data: bytes) -> None:
        if os.fstat(self._file).st_size != self.size:
            os.ftruncate(self._file, self.size)  # the last record: by Ctrl-C, or the disk was full
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self.size += len(data)
