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

from ..bodies import declared_charset, decode_text, read_json
from ..cassettes import read_cassette
from ..cassettes.convert import read_har
from ..cassettes.reader import MAX_FOREIGN_BYTES, read_bytes
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    Interaction,
    RecordedRequest,
    RecordedResponse,
    base_path,
    header,
    path_below,
)
from ..questions import drift
from ..readings.reading import Reading, is_exhausted, recorded_reading
from ..readings.reset_unit import infer_reset_unit, renewal_time
from ..redaction import Redactor, secrets_in
from ..redaction.unpack import unpack

MAX_ROWS: Final = 5_000
_MAX_COMPARED: Final = 10_000
_MAX_DIFFERENCES: Final = 1_000
_READINGS_FOR_UNIT: Final = 1_000
_MAX_PATH: Final = 300
_MAX_VALUE: Final = 500
_MAX_TEXT_BYTES: Final = 1024**2
_MAX_IMAGE_BYTES: Final = 8 * 1024**2
_MAX_HEX_BYTES: Final = 4 * 1024
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass
class Recording:
    """Interactions to browse.

    ``problem`` is what is wrong with the file, or None. ``redactor`` removes the credentials from
    each interaction of a recording that another program wrote.
    """

    title: str
    interactions: Sequence[Interaction] = field(repr=False)
    base_url: str | None = None
    problem: str | None = None
    redactor: Redactor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.interactions)

    def interaction(self, index: int) -> Interaction:
        """Return an interaction; raise `CassetteError` if it is missing or cannot be read."""
        if not 0 <= index < len(self):
            raise CassetteError(f"There is no interaction {index + 1}: {len(self)} are recorded.")
        interaction: Interaction = self.interactions[index]
        return self.redactor.interaction(interaction) if self.redactor else interaction

    def entry(self, index: int) -> tuple[Reading, Interaction]:
        """Return the reading of an interaction's rate-limit headers, and the interaction."""
        interaction = self.interaction(index)
        return recorded_reading(interaction, prefix=self.prefix), interaction

    def has_bodies(self, index: int) -> bool:  # noqa: ARG002
        """Return whether an interaction's bodies were kept."""
        return True

    @cached_property
    def prefix(self) -> str:
        """The base address's path prefix."""
        return base_path(self.base_url or "")

    @cached_property
    def reset_unit(self) -> Any:
        """The unit of ``X-RateLimit-Reset``, inferred from the first thousand readings."""
        indices = range(min(len(self), _READINGS_FOR_UNIT))
        try:
            return infer_reset_unit(self.entry(index)[0] for index in indices).unit
        except CassetteFormatError:
            return "undetermined"


def open_recording(path: Path) -> Recording:
    """Return the recording in a file: a cassette of any layout, or a ``.har`` file.

    Raises
    ------
    CassetteError
        The file cannot be read, or is neither of these.
    """
    if path.suffix.lower() == ".har":
        interactions = read_har(read_bytes(path, MAX_FOREIGN_BYTES), path.name)
        return Recording(path.name, interactions, redactor=Redactor(secrets_in(interactions)))
    loaded = read_cassette(path)
    recording = Recording(path.stem, loaded.interactions, problem=loaded.problem)
    if loaded.foreign:
        recording.redactor = Redactor(secrets_in(loaded.interactions))
    with suppress(CassetteFormatError):  # it may come from an interaction that is unreadable
        recording.base_url = loaded.base_url
    return recording


# -- rows --------------------------------------------------------------------------------------


def rows(recording: Recording, offset: int = 0, limit: int = MAX_ROWS) -> list[list[Any]]:
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
    stop = min(len(recording), offset + max(0, min(limit, MAX_ROWS)))
    return [_row(recording, index) for index in range(max(0, offset), stop)]


def _row(recording: Recording, index: int) -> list[Any]:
    try:
        reading, interaction = recording.entry(index)
    except CassetteFormatError as error:
        return [None, "", str(error), None, None, None, None, "unreadable"]
    query = urlsplit(interaction.request.uri).query
    return [
        None if math.isnan(reading.at) else round(reading.at * 1000, 3),
        reading.method,
        _shorten(f"{reading.path}?{query}" if query else reading.path, _MAX_PATH),
        reading.status,
        reading.remaining,
        None if reading.elapsed_s is None else round(reading.elapsed_s * 1000, 3),
        _body_size(recording, index, interaction.response),
        mark_of(reading),
    ]


def mark_of(reading: Reading) -> str:
    """Return ``"exhausted"``, ``"failed"`` (any other error status), or an empty text."""
    if is_exhausted(reading.status, reading.remaining):
        return "exhausted"
    return "failed" if reading.status >= 400 else ""


def _body_size(recording: Recording, index: int, response: RecordedResponse) -> int | None:
    if recording.has_bodies(index):
        return len(response.body)
    length = header(response.headers, "content-length") or ""
    return int(length) if re.fullmatch(r"\d{1,15}", length, re.ASCII) else None


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


# -- one interaction ---------------------------------------------------------------------------


def detail(recording: Recording, index: int) -> tuple[dict[str, object], list[bytes]]:
    """Return the details of an interaction, and the bytes of its two bodies that are shown.

    Each body is described by its ``kind`` (``"none"``, ``"json"``, ``"text"``, ``"image"``,
    ``"pdf"``, ``"binary"``, or ``"absent"`` if it was not kept), its ``media_type``, its ``size``
    in bytes, and ``truncated``: whether only its beginning is shown. Text is in UTF-8. HTML and SVG
    are text.
    """
    reading, interaction = recording.entry(index)
    interaction = Redactor().interaction(interaction)
    is_kept = recording.has_bodies(index)
    request, request_body = _describe_message(interaction.request, is_kept=is_kept)
    response, response_body = _describe_message(interaction.response, is_kept=is_kept)
    details = {
        "index": index,
        "row": _row(recording, index),
        "uri": interaction.request.uri,
        "reason": interaction.response.reason,
        "reading": _describe_reading(reading, recording.reset_unit),
        "request": request,
        "response": response,
    }
    return details, [request_body, response_body]


def _describe_reading(reading: Reading, unit: Any) -> list[tuple[str, str]]:
    """Return what the rate-limit headers say, as pairs of name and text."""
    values: dict[str, object] = {
        "Limit": reading.limit,
        "Remaining": reading.remaining,
        "Reset": reading.reset if reading.reset is not None else reading.reset_text,
        "Renews at": format_time(renewal_time(reading, unit)),
        "Retry after": reading.retry_after_s and f"{reading.retry_after_s:g} s",
        "Problem": reading.problem,
    }
    return [(name, str(value)) for name, value in values.items() if value is not None]


def format_time(seconds: float | None) -> str | None:
    """Return seconds since the Unix epoch as text; None if they are unknown or out of range."""
    try:
        return f"{datetime.fromtimestamp(seconds or math.nan, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return None


def _describe_message(
    message: RecordedRequest | RecordedResponse, *, is_kept: bool
) -> tuple[dict[str, object], bytes]:
    """Return a message's headers and the description of its body, and the bytes that are shown."""
    content_type = header(message.headers, "content-type") or ""
    media_type = content_type.partition(";")[0].strip().lower()[:100]
    body = message.body or b""
    try:
        body = unpack(body, header(message.headers, "content-encoding") or "")
    except ValueError:
        media_type = ""  # it could not be decompressed, so it is shown as bytes
    kind, shown, truncated = "absent", b"", False
    if is_kept:
        kind, shown, truncated = _classify_body(body, media_type, declared_charset(content_type))
    about = {"kind": kind, "media_type": media_type, "size": len(body), "truncated": truncated}
    return {"headers": message.headers, "body": about}, shown


def _classify_body(body: bytes, media_type: str, charset: str | None) -> tuple[str, bytes, bool]:
    """Return the kind of a body, the bytes of it that are shown, and whether that is a part."""
    if not body:
        return "none", b"", False
    is_pdf = media_type == "application/pdf" and body.startswith(b"%PDF-")
    if (is_pdf or media_type in _IMAGE_TYPES) and len(body) <= _MAX_IMAGE_BYTES:
        return ("pdf" if is_pdf else "image"), body, False
    is_long = len(body) > _MAX_TEXT_BYTES
    text = decode_text(body[:_MAX_TEXT_BYTES], charset)
    shown = text.encode("utf-8", "replace")
    if not is_long and read_json(body, charset)[1] is None:
        return "json", shown, False
    # A body with nulls and no declared character set may have been misread as UTF-16.
    if text.count("\ufffd") > 3 or "\0" in text or (b"\0" in body and charset is None):
        return "binary", body[:_MAX_HEX_BYTES], len(body) > _MAX_HEX_BYTES
    return "text", shown, is_long


# -- two interactions, two recordings ----------------------------------------------------------


def compare(recorded: Interaction, now: Interaction) -> list[list[object]]:
    """Return what is different in ``now``, by the rules of `drift`.

    Returns
    -------
    list of list
        ``part`` (``status``, ``header`` or ``body``), ``path``, ``change``, and the two values as
        text, None if missing. Values that differ from call to call are not compared.
    """
    return [
        [
            difference.part,
            f"{difference.path} → {difference.new_path}"
            if difference.new_path
            else difference.path,
            difference.change,
            _format_value(difference.recorded),
            _format_value(difference.now),
        ]
        for difference in drift.compare(recorded, now)[:_MAX_DIFFERENCES]
    ]


def _format_value(value: object) -> str | None:
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        text = "(nested too deeply to be shown)"
    return _shorten(text, _MAX_VALUE)


def compare_recordings(first: Recording, second: Recording) -> dict[str, object]:
    """Return what is different in another recording; the first 10,000 interactions are compared.

    Interactions with the same method, path below the base address and query form pairs: the first
    such one of each recording, then the second, and so on.

    Returns
    -------
    dict
        ``pairs``: how many there are. ``differences``, at most a thousand: the two indices, method
        and path, and a row of `compare`. ``only_first`` and ``only_second``: the indices of
        interactions without a counterpart, ``unreadable_first`` and ``unreadable_second`` those of
        interactions that cannot be read, at most a thousand of each.
    """
    (targets, unreadable), (others, others_unreadable) = map(_group_by_target, (first, second))
    differences: list[list[object]] = []
    pairs, only_first, only_second = 0, [], []
    for target in targets | others:
        indices, other_indices = targets.get(target, []), others.get(target, [])
        common = list(zip(indices, other_indices, strict=False))
        only_first += indices[len(common) :]
        only_second += other_indices[len(common) :]
        pairs += len(common)
        for one, other in common if len(differences) < _MAX_DIFFERENCES else ():
            changes = compare(first.interaction(one), second.interaction(other))
            differences += [[one, other, target, *change] for change in changes]
    lists: dict[str, list[Any]] = {
        "differences": differences,
        "only_first": sorted(only_first),
        "only_second": sorted(only_second),
        "unreadable_first": unreadable,
        "unreadable_second": others_unreadable,
    }
    return {"pairs": pairs} | {name: values[:_MAX_DIFFERENCES] for name, values in lists.items()}


def _group_by_target(recording: Recording) -> tuple[dict[str, list[int]], list[int]]:
    """Return the indices of interactions by method, path and query, and of unreadable ones."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    unreadable = []
    for index in range(min(len(recording), _MAX_COMPARED)):
        try:
            request = recording.interaction(index).request
        except CassetteFormatError:
            unreadable.append(index)
            continue
        path, query = path_below(request.uri, recording.prefix), urlsplit(request.uri).query
        groups[f"{request.method} {path}" + (f"?{query}" if query else "")].append(index)
    return groups, unreadable
