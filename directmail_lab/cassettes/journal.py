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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """

    base_url: str | None = None
    is_aside: bool = False
    by_request: dict[int, Interaction] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)

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


def parse_journal(data: bytes) -> Journal:
    """Return what the whole records of a journal say; a kill may have cut off the last one."""
    journal = Journal()
    with suppress(*MALFORMED):  # a record that did not come to the disk, nor what follows it
        for about, text in _records(data):
            if "request" not in about:
                base_url = about.get("base_url")
                journal.base_url = base_url if isinstance(base_url, str) else None
                journal.is_aside = about.get("is_aside") is True
                continue
            request = int(about["request"])
            if text:
                (journal.by_request[request],) = read_interactions(text)
            else:
                journal.by_request.pop(request, None)
            journal.replaced.update(map(str, about["replaces"]))
    return journal


def _records(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    start = 0
    while True:
        end_of_line = data.find(b"\n", start) + 1
        if not end_of_line:
            return
        about = json.loads(data[start:end_of_line])
        start = end_of_line + max(0, int(about.get("size", 0)))
        if start > len(data):
            return
        yield about, data[end_of_line:start]


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
        texts = {about.get("request", 0): text for about, text in _records(self.data())}
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
        for number, text in self.texts().items():
            new.write(number, text)
        os.close(self._file)
        return new

    def close(self) -> None:
        """Close the file, which stays."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def _append(self, about: Mapping[str, object], text: bytes) -> None:
        record = json.dumps(about).encode() + b"\n" + text
        if os.fstat(self._file).st_size != self.size:
            os.ftruncate(self._file, self.size)  # the last record: by Ctrl-C, or the disk was full
        left = memoryview(record)
        while left:
            left = left[os.write(self._file, left) :]
        self.size += len(record)
