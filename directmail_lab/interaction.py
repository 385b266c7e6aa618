"""One HTTP exchange as a value: what was sent, what came back, when, and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "READING",
    "Headers",
    "Interaction",
    "RecordedRequest",
    "RecordedResponse",
    "base_path",
    "header",
    "operation_of",
    "path_below",
]

READING: Final = "directmail_lab.reading"
"""Where a response of a session carries its `Reading`: ``response.extensions[READING]``."""

Headers = tuple[tuple[str, str], ...]
"""Header names and values, in the order they were sent, a repeated one more than once."""

# What stands for one record in a path: a number, a UUID, or a token that holds a digit
# (`lst_8f3kq2`), but not a version (`v1`).
_ID_LIKE = re.compile(
    r"\d+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?!v\d+$)(?=[^/]*\d)[A-Za-z0-9_\-~:.]{6,}"
)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as a cassette keeps it. ``body`` is None where none was sent."""

    method: str
    uri: str
    headers: Headers = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        # Before redaction an address, a header or a body may hold the key.
        return f"<RecordedRequest {self.method}>"


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """A response as a cassette keeps it: the body decoded, the headers true to it."""

    status: int
    reason: str = ""
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<RecordedResponse {self.status}, {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class Interaction:
    """A request and its response.

    ``recorded_at`` is when the response came (an aware datetime, UTC) and ``elapsed_s`` the seconds
    from sending the request until then; both are None in a cassette that other tools wrote.
    """

    request: RecordedRequest
    response: RecordedResponse
    recorded_at: datetime | None = None
    elapsed_s: float | None = None


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of a header by its name in any case, or None."""
    wanted = name.lower()
    return next((value for key, value in headers if key.lower() == wanted), None)


def base_path(base_url: str) -> str:
    """Return the path prefix of a base address, without its last slash: ``""`` or ``"/eu/api"``."""
    return urlsplit(base_url).path.rstrip("/")


def path_below(uri: str, prefix: str = "") -> str:
    """Return the path of ``uri`` below a base address's path prefix (see `base_path`).

    A path outside the prefix is returned whole.
    """
    path = urlsplit(uri).path or "/"
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return path[len(prefix) :] or "/"
    return path


def operation_of(path: str) -> str:
    """Return ``path`` with each id-like segment as ``{id}``: the unit that rate limits apply to.

    >>> operation_of("/v1/lists/8f14e45f/members/12")
    '/v1/lists/{id}/members/{id}'
    """
    return "/".join(
        "{id}" if _ID_LIKE.fullmatch(unquote(segment)) else segment for segment in path.split("/")
    )
