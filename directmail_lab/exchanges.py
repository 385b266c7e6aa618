"""The last requests and responses of a session, kept in memory for `browse` to show.

Headers are always kept; bodies only if they are recorded in a cassette too.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from .interaction import Interaction, RecordedRequest, RecordedResponse

if TYPE_CHECKING:
    from .http import httpx
    from .quota import Reading

_MOST_KEPT: Final = 1_000
_LARGEST_BODY_BYTES: Final = 1024**2
_MOST_BYTES: Final = 32 * 1024**2


class _Exchange(NamedTuple):
    """One exchange, in httpx's own types; they become text only when it is looked at."""

    reading: Reading
    url: httpx.URL
    asked: httpx.Headers
    told: httpx.Headers
    reason: str
    bodies: tuple[bytes, bytes] | None
    size: int


class Exchanges:
    """The last thousand exchanges, found by their readings; their bodies take at most 32 MiB."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Exchange] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def add(
        self, reading: Reading, request: httpx.Request, response: httpx.Response, body: bytes | None
    ) -> None:
        """Keep an exchange; ``body`` is the response's if it is in a cassette, else None."""
        bodies, size = None, 0
        if body is not None:
            sent = request.content if hasattr(request, "_content") else b""
            if len(sent) + len(body) <= _LARGEST_BODY_BYTES:
                bodies, size = (sent, body), len(sent) + len(body)
        asked, told, reason = request.headers, response.headers, response.reason_phrase
        one = _Exchange(reading, request.url, asked, told, reason, bodies, size)
        with self._lock:
            self._kept[id(reading)] = one  # it refers to the reading, so its id is not reused
            self._bytes += size
            while len(self._kept) > _MOST_KEPT or self._bytes > _MOST_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1].size

    def has_bodies(self, reading: Reading) -> bool:
        """Return whether both bodies of an exchange are kept."""
        kept = self._kept.get(id(reading))
        return kept is not None and kept.bodies is not None

    def interaction(self, reading: Reading) -> Interaction | None:
        """Return an exchange without redaction, or None if it is no longer kept."""
        kept = self._kept.get(id(reading))
        if kept is None:
            return None
        sent, got = kept.bodies or (None, b"")
        at = None if math.isnan(reading.at) else datetime.fromtimestamp(reading.at, UTC)
        asked, told = tuple(kept.asked.multi_items()), tuple(kept.told.multi_items())
        return Interaction(
            RecordedRequest(reading.method, str(kept.url), asked, sent),
            RecordedResponse(reading.status, kept.reason, told, got),
            at,
            reading.elapsed_s,
        )
