"""Reading the body of a response as JSON, strictly, and saying what is wrong where it is not.

A response is anything with ``status_code``, ``headers`` and ``content``: this module knows no HTTP
library.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .errors import NotJSONError

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["NOWHERE", "Origin", "origin_of", "parsed", "read_json"]

# Where the stack of a session leaves what it read from the headers (see `transports`).
_READING: Final = "directmail_lab.reading"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a response says of itself besides its body; None where it does not say."""

    status: int | None = None
    method: str = "GET"
    path: str | None = None
    source: str | None = None
    at: float | None = None
    content_type: str | None = None
    charset: str | None = None

    def attrs(self) -> dict[Hashable, Any]:
        """Return what `frame` leaves in ``attrs``: JSON values, so that Parquet keeps them."""
        return {
            "status": self.status,
            "path": self.path,
            "source": self.source,
            "time": _iso(self.at),
        }


NOWHERE = Origin()


def _iso(epoch_s: float | None) -> str | None:
    # Not a number where a recording by vcrpy is replayed: it keeps no times.
    if epoch_s is None or math.isnan(epoch_s):
        return None
    return datetime.fromtimestamp(epoch_s, UTC).isoformat()


def origin_of(response: Any) -> Origin | None:
    """Return what a response says of itself, or None for what is no response."""
    if not (hasattr(response, "status_code") and hasattr(response, "content")):
        return None
    declared = str(_attribute(response, "headers", {}).get("content-type") or "")
    media_type = re.match(r"\s*([\w.+-]{1,60}/[\w.+-]{1,60})", declared)
    charset = re.search(r"charset=\"?([\w.:-]{1,40})", declared, re.IGNORECASE)
    reading = _attribute(response, "extensions", {}).get(_READING)
    url = _attribute(response, "url", None)
    return Origin(
        status=int(response.status_code),
        method=str(_attribute(_attribute(response, "request", None), "method", "GET")),
        path=getattr(reading, "path", None) or (urlsplit(str(url)).path if url else None),
        source=getattr(reading, "source", None),
        at=getattr(reading, "at", None),
        content_type=media_type[1] if media_type else None,
        charset=charset[1] if charset else None,
    )


def _attribute(thing: Any, name: str, default: Any) -> Any:
    """Return an attribute; httpx raises RuntimeError for those of a response without a request."""
    try:
        return getattr(thing, name, default)
    except RuntimeError:
        return default


def parsed(content: bytes, origin: Origin | None) -> object:
    """Return the JSON of a body.

    Raises
    ------
    NotJSONError
        With what ``origin`` says of the response, and nothing of the body.
    """
    body, problem = read_json(content, origin.charset if origin else None)
    if problem is None:
        return body
    raise NotJSONError(
        _not_json(problem, origin or NOWHERE),
        status=origin.status if origin else None,
        content_type=origin.content_type if origin else None,
    )


def _not_json(problem: str, origin: Origin) -> str:
    if origin.status is None:
        return f"The body {problem}. Give frame() the bytes of a whole JSON body."
    kind = f"content type {origin.content_type}" if origin.content_type else "no content type"
    path = origin.path or "…"
    call = f'get("{path}")' if origin.method == "GET" else f'request("{origin.method}", "{path}")'
    return (
        f"{origin.method} {path} answered with status {origin.status} ({kind}), and the body "
        f"{problem}. To look at the raw response: response = {call}, then response.text."
    )


def read_json(content: bytes, charset: str | None = None) -> tuple[object, str | None]:
    """Return a body's JSON and None, or None and what is wrong with it.

    It raises nothing, so that no exception that holds the body hangs behind ours.
    """
    if not content.strip():
        return None, "is empty"
    text = _decoded(content, charset)
    if text is None:
        return None, "is in no character set that it declares, nor in UTF-8"
    try:
        return _loads(text), None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        where = f"line {error.lineno}, column {error.colno}"
        return None, "is JSON cut short" if cut else f"is not JSON (from {where} on)"
    except _ConstantError:
        return None, "is not JSON (it holds NaN or Infinity, which JSON does not have)"
    except RecursionError:
        return None, "is nested deeper than can be read"


def _decoded(content: bytes, charset: str | None) -> str | None:
    """Return a body as text: in UTF-8 (or UTF-16 or -32, which show), else as it declares."""
    for encoding in (json.detect_encoding(content), charset):
        try:
            return content.decode(encoding) if encoding else None
        except (UnicodeDecodeError, LookupError):
            continue
    return None


class _ConstantError(Exception):
    """The body holds NaN, Infinity or -Infinity."""


def _refuse_constant(_: str) -> object:
    raise _ConstantError


def _loads(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python reads no integer of more than some 4,300 digits from text; Decimal does.
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4000 else Decimal(digits)
