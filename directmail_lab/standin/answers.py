"""Responses as values: what every answer of the stand-in is built from."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from directmail_lab.interaction import RecordedResponse, header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from directmail_lab.interaction import RecordedRequest

__all__ = [
    "answer",
    "basic_credentials",
    "error_answer",
    "json_answer",
    "reason_of",
    "with_headers",
]


def answer(status: int, body: bytes, content_type: str) -> RecordedResponse:
    """Return a response with a body as it is."""
    return RecordedResponse(status, reason_of(status), (("Content-Type", content_type),), body)


def json_answer(status: int, value: object) -> RecordedResponse:
    """Return a response whose body is JSON."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return answer(status, body, "application/json; charset=utf-8")


def error_answer(status: int, message: str) -> RecordedResponse:
    """Return an error as the stand-in words it: its shape is an assumption, and says so."""
    error = {"status": status, "message": message, "service": "stand-in"}
    return json_answer(status, {"error": error})


def reason_of(status: int) -> str:
    """Return the reason phrase of a status."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"


def with_headers(
    response: RecordedResponse, changes: Mapping[str, str | Sequence[str] | None]
) -> RecordedResponse:
    """Return the response with headers replaced, added, left out (None) or repeated (a list)."""
    changed = {name.lower() for name in changes}
    kept = [pair for pair in response.headers if pair[0].lower() not in changed]
    for name, value in changes.items():
        values = [value] if isinstance(value, str) else value or ()
        kept.extend((name, each) for each in values)
    return replace(response, headers=tuple(kept))


def basic_credentials(request: RecordedRequest) -> str:
    """Return ``user:password`` of HTTP Basic, or ``""`` where there is none to read."""
    scheme, _, token = (header(request.headers, "Authorization") or "").partition(" ")
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if scheme.lower() == "basic" else ""
