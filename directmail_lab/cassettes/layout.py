"""The layout of a cassette: plain YAML whose values are JSON, each on one line.

A cassette begins with a header (version, recording, ``interactions:``). Each interaction follows on
four lines. A second attempt has one more, and so has a request to which no response came. These
functions convert between texts and values, and open no file.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from ..errors import CassetteFormatError
from ..exchange.bodies import MissingBody, is_like_missing
from ..exchange.values import CUTS, Cut, Headers, Interaction, Request, Response

NO_RESPONSE_STATUS = 599
"""The status in a file if no response came, for vcrpy; ``no_response:`` says so to our readers."""


# A recording's metadata is under `recording`, not `metadata`: with the latter vcrpy's loader
# returns three values instead of two, and pytest-recording (0.14) fails on that.
WRITER = "directmail-lab"
_START = f'version: 1\nrecording: {{"recorded_with": "{WRITER}'.encode()
_HEADER = re.compile(rb"version: 1\nrecording: ([^\n]*)\ninteractions:(?: \[\])?\n")

# JSON allows these characters unescaped. YAML forbids them, or reads them as line breaks or a byte
# order mark (YAML 1.1, section 5.1, `c-printable`, and 5.4, line breaks).
# libyaml reads no escape of a lone surrogate, so it becomes the replacement character.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

# `default=str`: the metadata of another program's cassette may contain a time.
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
# This quotes a text as the JSON encoder does. Joining quoted texts takes a third of its time.
_quoted = json.encoder.encode_basestring


def header_text(metadata: Mapping[str, object], *, is_empty: bool = False) -> str:
    """Return the lines that a cassette starts with."""
    interactions = " []" if is_empty else ""  # vcrpy does not load an empty value
    return f"version: 1\nrecording: {_one_line(_encode(metadata))}\ninteractions:{interactions}\n"


def interaction_text(interaction: Interaction) -> str:
    """Return the lines of one interaction."""
    request = interaction.request
    response = interaction.response
    status = response.status
    at = "null"
    if interaction.recorded_at is not None:
        utc = interaction.recorded_at.astimezone(UTC)
        at = f'"{utc.isoformat(timespec="microseconds")[:-6]}Z"'
    seconds = "null"
    if interaction.elapsed_s is not None:
        # YAML 1.1 reads 5e-05 as text, so no exponent is written; a microsecond is precise enough.
        seconds = f"{interaction.elapsed_s:.6f}"
    marks = ""
    if interaction.attempt != 1:
        marks += f"  attempt: {interaction.attempt}\n"
    reason = response.reason
    if not status:
        marks += f"  no_response: {response.cut}\n"
        status = NO_RESPONSE_STATUS
        reason = response.error
    if interaction.cell:
        marks += f"  cell: {_quoted(interaction.cell)}\n"
    incomplete = incomplete_of(response)
    if incomplete:
        incomplete = f', "incomplete": {_quoted(incomplete)}'
    return _one_line(
        f"- recorded_at: {at}\n"
        f"  elapsed_s: {seconds}\n{marks}"
        f'  request: {{"method": {_quoted(request.method)}, "uri": {_quoted(request.uri)}, '
        f'"body": {_body_text(request.body)}, "headers": {_headers_text(request.headers)}}}\n'
        f'  response: {{"status": {{"code": {status}, "message": '
        f'{_quoted(reason)}}}, "headers": {_headers_text(response.headers)}, '
        f'"body": {{"string": {_body_text(response.body)}}}{incomplete}}}\n'
    )


def incomplete_of(response: Response) -> str:
    """Return what a file says of a body that is not whole: ``left``, ``read_error: its text``."""
    if not response.status or response.cut is None:
        return ""
    return f"{response.cut}: {response.error}" if response.error else response.cut


def read_header(data: bytes) -> tuple[dict[str, Any], int] | None:
    """Return the metadata and the length of a header as we write it; None for any other."""
    match = _HEADER.match(data)
    if match is not None and data.startswith(_START):
        with suppress(ValueError, RecursionError):
            return json.loads(match[1]), match.end()
    return None


def request_of(value: Mapping[str, Any]) -> Request:
    """Return the request of a ``request:`` value."""
    body = value["body"]
    body = body.encode() if isinstance(body, str) else body
    if is_like_missing(body):
        body = MissingBody(body)
    return Request(value["method"], value["uri"], headers_of(value["headers"]), body)


def response_of(value: Mapping[str, Any], kind: object = None) -> Response:
    """Return the response of a ``response:`` value, in this layout or in vcrpy's.

    ``kind`` is the value of ``no_response:`` beside it.
    """
    status = value["status"]
    reason = text_of(status.get("message") or "")
    if kind in CUTS:
        return Response(0, cut=kind, error=reason)
    stored = value.get("body") or {}
    body = stored.get("string") or b""
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")  # vcrpy leaves lone surrogates alone
    elif stored and "string" not in stored:
        # vcrpy raises a KeyError when it plays such a response.
        raise CassetteFormatError(f"its body is under {min(stored)!r}, not under 'string'")
    if is_like_missing(body):
        body = MissingBody(body)
    code = status["code"]
    cut, _, error = text_of(value.get("incomplete", "")).partition(": ")
    return Response(
        int(code) if isinstance(code, str) else code,
        reason,
        headers_of(value["headers"] or {}),
        body,
        cut=cast("Cut | None", cut or None),  # `check_interaction` checks it
        error=error,
    )


def recorded_at_of(text: object) -> datetime | None:
    """Return a time from its text; None if it is null, or not a time with a zone."""
    try:
        at = datetime.fromisoformat(str(text).strip('" '))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None


def elapsed_s_of(value: Any) -> float | None:
    """Return a number of seconds; None if the value is null or not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def text_of(value: object) -> str:
    """Return a value as text: YAML reads some texts as numbers or bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(type(value).__name__)


def headers_of(value: Mapping[str, Any]) -> Headers:
    """Return headers from a mapping of each name to its values, or to the only one."""
    # Most messages of a file have equal headers, whose texts they share.
    return tuple(
        [
            (sys.intern(text_of(name)), sys.intern(text_of(item)))
            for name, items in value.items()
            for item in (items if isinstance(items, (list, tuple)) else (items,))
        ]
    )


def _headers_text(headers: Headers) -> str:
    values: dict[str, str] = {}
    for name, value in headers:
        values[name] = f"{values[name]}, {_quoted(value)}" if name in values else _quoted(value)
    return f"{{{', '.join([f'{_quoted(name)}: [{texts}]' for name, texts in values.items()])}}}"


def _body_text(body: bytes | None) -> str:
    if body is None:
        return "null"
    try:
        return _quoted(body.decode())
    except UnicodeDecodeError:
        return f'!!binary "{base64.b64encode(body).decode()}"'


def _one_line(text: str) -> str:
    """Return JSON with the characters escaped that YAML forbids; they occur only in its texts."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _ESCAPED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
