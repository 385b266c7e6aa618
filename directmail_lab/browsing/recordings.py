"""Recordings to browse: their rows, the details of an interaction, and comparisons.

An interaction's *index* counts from 0; numbers that a person reads count from 1.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from .. import comparison
from ..bodies import charset_in, read_json, text_in
from ..cassettes import read_cassette
from ..cassettes.convert import read_har
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    Headers,
    Interaction,
    base_path,
    header,
    path_below,
)
from ..quota import Reading, is_exhausted, reading_of
from ..redaction import Redactor, secrets_in
from ..redaction.unpack import unpack
from ..reset_unit import infer_reset_unit, renewal_time

MOST_ROWS: Final = 5_000
_MOST_COMPARED: Final = 10_000
_MOST_DIFFERENCES: Final = 1_000
_READINGS_FOR_UNIT: Final = 1_000
_LONGEST_PATH: Final = 300
_LONGEST_VALUE: Final = 500
_LARGEST_HAR_BYTES: Final = 128 * 1024**2
_LARGEST_TEXT_BYTES: Final = 1024**2
_LARGEST_PICTURE_BYTES: Final = 8 * 1024**2
_HEX_BYTES: Final = 4 * 1024
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Body = tuple[dict[str, object], bytes]
"""The description of a body, and the bytes of it that are shown."""


@dataclass
class Recording:
    """Interactions to browse; those recorded by another program have their credentials redacted.

    ``problem`` is what is wrong with the file, or None.
    """

    title: str
    interactions: Sequence[Interaction] = field(repr=False)
    base_url: str | None = None
    problem: str | None = None

    def __len__(self) -> int:
        return len(self.interactions)

    def interaction(self, index: int) -> Interaction:
        """Return an interaction; raise `CassetteError` if it is missing or cannot be read."""
        if not 0 <= index < len(self):
            raise CassetteError(f"There is no interaction {index + 1}: {len(self)} are recorded.")
        found: Interaction = self.interactions[index]
        return found

    def entry(self, index: int) -> tuple[Reading, Interaction]:
        """Return the reading of an interaction's rate-limit headers, and the interaction."""
        found = self.interaction(index)
        return reading_of(found, prefix=self.prefix), found

    def keeps_bodies(self, index: int) -> bool:  # noqa: ARG002
        """Return whether an interaction's bodies were kept."""
        return True

    @cached_property
    def prefix(self) -> str:
        """The base address's path prefix."""
        return base_path(self.base_url or "")

    @cached_property
    def reset_unit(self) -> Any:
        """The unit of ``X-RateLimit-Reset``, inferred from the first thousand readings."""
        some = range(min(len(self), _READINGS_FOR_UNIT))
        try:
            return infer_reset_unit(self.entry(index)[0] for index in some).unit
        except CassetteFormatError:
            return "undetermined"


class _Redacted(Sequence[Interaction]):
    """Another program's interactions; each is redacted when it is accessed."""

    def __init__(self, known: Sequence[Interaction]) -> None:
        self._known = known
        self._redactor = Redactor(secrets_in(known))

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, index: Any) -> Any:
        return self._redactor.interaction(self._known[index])


def open_recording(path: Path) -> Recording:
    """Return the recording in a file: a cassette of any layout, or a ``.har`` file.

    Raises
    ------
    CassetteError
        The file cannot be read, or is neither of these.
    """
    if path.suffix.lower() != ".har":
        loaded = read_cassette(path)
        known = loaded.interactions
        shown = _Redacted(known) if loaded.foreign else known
        base_url = None
        with suppress(CassetteFormatError):  # it may come from an interaction that is unreadable
            base_url = loaded.base_url
        return Recording(path.stem, shown, base_url, loaded.problem)
    try:
        if path.stat().st_size > _LARGEST_HAR_BYTES:
            raise CassetteFormatError(f"{path} is larger than {_LARGEST_HAR_BYTES:,} bytes.")
        return Recording(path.name, _Redacted(read_har(path.read_bytes())))
    except OSError as error:
        raise CassetteError(f"{path} cannot be read ({error.strerror}).") from None


# -- rows --------------------------------------------------------------------------------------


def rows(recording: Recording, offset: int = 0, limit: int = MOST_ROWS) -> list[list[object]]:
    """Return a row for each interaction from ``offset`` on, at most 5,000.

    Returns
    -------
    list of list
        ``time`` (when the response came, in milliseconds since the Unix epoch), ``method``,
        ``path`` (below the base address, with its query), ``status``, ``remaining``, ``ms`` (how
        long the response took), ``bytes`` (of the response's body), each None if unknown, and
        ``mark``: ``""``, ``"exhausted"``, ``"failed"`` (any other error status) or
        ``"unreadable"`` (then ``path`` says why).
    """
    last = min(len(recording), offset + max(0, min(limit, MOST_ROWS)))
    return [_row(recording, index) for index in range(max(0, offset), last)]


def _row(recording: Recording, index: int) -> list[object]:
    try:
        reading, interaction = recording.entry(index)
    except CassetteFormatError as error:
        return [None, "", str(error), None, None, None, None, "unreadable"]
    query = urlsplit(interaction.request.uri).query
    path = f"{reading.path}?{query}" if query else reading.path
    return [
        None if math.isnan(reading.at) else round(reading.at * 1000, 3),
        reading.method,
        path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…",
        reading.status,
        reading.remaining,
        None if reading.elapsed_s is None else round(reading.elapsed_s * 1000, 3),
        _size(recording, index, interaction),
        mark_of(reading),
    ]


def _size(recording: Recording, index: int, interaction: Interaction) -> int | None:
    if recording.keeps_bodies(index):
        return len(interaction.response.body)
    told = header(interaction.response.headers, "content-length") or ""
    return int(told) if re.fullmatch(r"\d{1,15}", told, re.ASCII) else None


def mark_of(reading: Reading) -> str:
    """Return ``"exhausted"``, ``"failed"`` (any other error status), or an empty text."""
    if is_exhausted(reading.status, reading.remaining):
        return "exhausted"
    return "failed" if reading.status >= 400 else ""


# -- one interaction ---------------------------------------------------------------------------


def detail(recording: Recording, index: int) -> tuple[dict[str, object], list[bytes]]:
    """Return the details of an interaction, and the bytes of its two bodies that are shown.

    Each body is described by its ``kind`` (``"none"``, ``"json"``, ``"text"``, ``"image"``,
    ``"pdf"``, ``"binary"``, or ``"absent"`` if it was not kept), its ``media`` type, its ``size``
    in bytes, and ``truncated``: whether only its beginning is shown. Text is in UTF-8. HTML and SVG
    are text.
    """
    reading, found = recording.entry(index)
    interaction = Redactor().interaction(found)
    request, response = interaction.request, interaction.response
    keeps = recording.keeps_bodies(index)
    asked, asked_bytes = _body(request.headers, request.body or b"", keeps=keeps)
    told, told_bytes = _body(response.headers, response.body, keeps=keeps)
    about = {
        "index": index,
        "row": _row(recording, index),
        "uri": request.uri,
        "reason": response.reason,
        "reading": _in_words(reading, recording.reset_unit),
        "request": {"headers": request.headers, "body": asked},
        "response": {"headers": response.headers, "body": told},
    }
    return about, [asked_bytes, told_bytes]


def _in_words(reading: Reading, unit: Any) -> list[tuple[str, str]]:
    """Return what the rate-limit headers say, as pairs of name and text."""
    at = renewal_time(reading, unit)
    said: dict[str, object] = {
        "Limit": reading.limit,
        "Remaining": reading.remaining,
        "Reset": reading.reset if reading.reset is not None else reading.reset_text,
        "Renews at": None if at is None or math.isnan(at) else _time(at),
        "Retry after": reading.retry_after_s and f"{reading.retry_after_s:g} s",
        "Problem": reading.problem,
    }
    return [(name, str(value)) for name, value in said.items() if value is not None]


def _time(seconds: float) -> str | None:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return None


def _body(headers: Headers, body: bytes, *, keeps: bool) -> Body:
    media, charset = _media(headers)
    try:
        body = unpack(body, header(headers, "content-encoding") or "")
    except ValueError:
        media = ""  # it could not be decompressed, so it is shown as bytes
    kind, shown = _shown(body, media, charset) if keeps else ("absent", b"")
    is_part = len(body) > {"text": _LARGEST_TEXT_BYTES, "binary": _HEX_BYTES}.get(kind, len(body))
    told = {"kind": kind, "media": media, "size": len(body), "truncated": is_part}
    return told, shown


def _media(headers: Headers) -> tuple[str, str | None]:
    declared = header(headers, "content-type") or ""
    return declared.partition(";")[0].strip().lower()[:100], charset_in(declared)


def _shown(body: bytes, media: str, charset: str | None) -> tuple[str, bytes]:
    """Return the kind of a body, and the bytes of it that are shown."""
    if not body:
        return "none", b""
    is_pdf = media == "application/pdf" and body.startswith(b"%PDF-")
    if (is_pdf or media in _PICTURES) and len(body) <= _LARGEST_PICTURE_BYTES:
        return ("pdf" if is_pdf else "image"), body
    if len(body) <= _LARGEST_TEXT_BYTES and read_json(body, charset)[1] is None:
        return "json", text_in(body, charset).encode("utf-8", "replace")
    text = text_in(body[:_LARGEST_TEXT_BYTES], charset)
    # A body with nulls and no declared character set may have been misread as UTF-16.
    if text.count("\ufffd") > 3 or "\0" in text or (b"\0" in body and charset is None):
        return "binary", body[:_HEX_BYTES]
    return "text", text.encode("utf-8", "replace")


# -- two interactions, two recordings ----------------------------------------------------------


def compare(recorded: Interaction, now: Interaction) -> list[list[object]]:
    """Return what is different in ``now``, by the rules of `drift`.

    Returns
    -------
    list of list
        ``part`` (``status``, ``header`` or ``body``), ``path``, ``change``, and the two values as
        text, None if missing. Values that differ from call to call are not compared.
    """
    return [_difference(each) for each in comparison.compare(recorded, now)[:_MOST_DIFFERENCES]]


def _difference(found: comparison.Difference) -> list[object]:
    path = f"{found.path} → {found.new_path}" if found.new_path else found.path
    return [found.part, path, found.change, _told(found.recorded), _told(found.now)]


def _told(value: object) -> str | None:
    if value is comparison.ABSENT:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        text = "(nested too deeply to be shown)"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def compare_recordings(first: Recording, second: Recording) -> dict[str, object]:
    """Return what is different in another recording; the first 10,000 interactions are compared.

    Interactions with the same method, path below the base address and query form pairs: the first
    such one of each recording, then the second, and so on.

    Returns
    -------
    dict
        ``pairs``: how many there are. ``differences``, at most a thousand: the two indices, method
        and path, and a row of `compare`. ``only_first`` and ``only_second``: the indices of
        interactions without a counterpart, at most a thousand of each.
    """
    ours, theirs = _by_target(first), _by_target(second)
    differences: list[list[object]] = []
    pairs, only_first, only_second = 0, [], []
    for target in ours | theirs:
        mine, others = ours.get(target, []), theirs.get(target, [])
        common = list(zip(mine, others, strict=False))
        only_first += mine[len(common) :]
        only_second += others[len(common) :]
        pairs += len(common)
        for one, other in common if len(differences) < _MOST_DIFFERENCES else ():
            found = compare(first.interaction(one), second.interaction(other))
            differences += [[one, other, target, *each] for each in found]
    return {
        "pairs": pairs,
        "differences": differences[:_MOST_DIFFERENCES],
        "only_first": sorted(only_first)[:_MOST_DIFFERENCES],
        "only_second": sorted(only_second)[:_MOST_DIFFERENCES],
    }


def _by_target(recording: Recording) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(min(len(recording), _MOST_COMPARED)):
        request = recording.interaction(index).request
        path, query = path_below(request.uri, recording.prefix), urlsplit(request.uri).query
        found[f"{request.method} {path}" + (f"?{query}" if query else "")].append(index)
    return found
