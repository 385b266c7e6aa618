"""The layout of a cassette: plain YAML whose values are JSON, each on one line.

A cassette begins with a header (version, recording, ``interactions:``). Each interaction follows on
four lines. A second attempt has one more, and so has a request to which no response came. When the
recording is closed, a line ``# end: …`` is added. So a cassette can be appended to and read line by
line, and its last line shows whether it is whole.
These functions convert between texts and values, and open no file.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..exchange.bodies import MissingBody, is_like_missing
from ..exchange.values import (
    PLAIN_URL,
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    no_response,
)

NO_RESPONSE_STATUS: Final = 599
"""The status in a file if no response came, for vcrpy; ``no_response:`` says so to our readers."""

IS_RECORDED: Final = "is_recorded"
"""The key that marks a body as the service's own, although it looks like a `MissingBody`."""

Address = tuple[str, str]
"""The method and the whole address of a request."""

Head = tuple[datetime | None, float | None, int, Address, int, Headers]
"""What a reading needs: time, latency, attempt, address, and the response's status and headers."""

# A recording's metadata is under `recording`, not `metadata`: with the latter vcrpy's loader
# returns three values instead of two, and pytest-recording (0.14) fails on that.
_START: Final = b'version: 1\nrecording: {"recorded_with": "directmail-lab'
_HEADER: Final = re.compile(rb"version: 1\nrecording: ([^\n]*)\ninteractions:\n")
INTERACTION: Final = re.compile(
    rb"(?m)^- recorded_at: ([^\n]*)\n  elapsed_s: ([^\n]*)\n(?:  attempt: (\d{1,3})\n)?"
    rb"(?:  no_response: ([a-z_]{1,20})\n)?"
    rb"  request: ([^\n]*)\n  response: ([^\n]*)\n"
)
_ADDRESS_PATTERN: Final = (
    rb"- recorded_at: ([^\n]*)\n  elapsed_s: ([^\n]*)\n(?:  attempt: (\d{1,3})\n)?"
    rb'  request: \{"method": "([A-Z]{1,64})", "uri": "(' + PLAIN_URL.encode() + rb')", "body": '
)
_ADDRESS: Final = re.compile(_ADDRESS_PATTERN)
# Most interactions are like this: each header has one value, and only bodies contain escapes.
_PAIR: Final = re.compile(r'"([^"]*)": \["([^"]*)"\]')
_PAIR_BYTES: Final = rb'"[^"\\\x00-\x1f]*": \["[^"\\\x00-\x1f]*"\]'
_PAIRS: Final = rb"\{((?:" + _PAIR_BYTES + rb"(?:, " + _PAIR_BYTES + rb")*)?)\}"
_PLAIN: Final = re.compile(
    _ADDRESS_PATTERN
    + rb'(null|"[^\n]*"), "headers": '
    + _PAIRS
    + rb'\}\n  response: \{"status": \{"code": (\d{3}), "message": "([^"\\\x00-\x1f]*)"\}, '
    + rb'"headers": '
    + _PAIRS
    + rb', "body": \{"string": ("[^\n]*")\}\}\n'
)
END: Final = re.compile(rb"# end: (\d{1,18}) interactions?, sha256 ([0-9a-f]{64})\n?")
"""The line that closes a recording: group 1 is the count, group 2 the checksum."""

# JSON allows these characters unescaped. YAML forbids them, or reads them as line breaks or a byte
# order mark (YAML 1.1, section 5.1, `c-printable`, and 5.4, line breaks).
# libyaml reads no escape of a lone surrogate, so it becomes the replacement character.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

# libyaml accepts a key of more than 1,024 characters only in the form `? key : value`. An escaped
# character takes up to six.
_MAX_NAME_CHARACTERS: Final = 1000 // 6

# `default=str`: the metadata of another program's cassette may contain a time.
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
# This quotes a text as the JSON encoder does. Joining quoted texts takes a third of its time.
_quoted = json.encoder.encode_basestring


def header_text(metadata: Mapping[str, object]) -> str:
    """Return the lines that a cassette starts with."""
    return f"version: 1\nrecording: {_one_line(_encode(metadata))}\ninteractions:\n"


def end_line(count: int, sha256: str) -> str:
    """Return the comment that closes a recording, with the checksum of all lines before it."""
    return f"# end: {count} interaction{'' if count == 1 else 's'}, sha256 {sha256}\n"


def interaction_text(interaction: Interaction) -> str:
    """Return the lines of one interaction."""
    request, response = interaction.request, interaction.response
    marks = f"  attempt: {interaction.attempt}\n" if interaction.attempt > 1 else ""
    status = response.status
    if response.no_response:
        marks, status = f"{marks}  no_response: {response.no_response}\n", NO_RESPONSE_STATUS
    return _one_line(
        f"- recorded_at: {_time(interaction.recorded_at)}\n"
        f"  elapsed_s: {_seconds(interaction.elapsed_s)}\n{marks}"
        f'  request: {{"method": {_quoted(request.method)}, "uri": {_quoted(request.uri)}, '
        f'"body": {_body_text(request.body)}, "headers": {_headers_text(request.headers)}}}\n'
        f'  response: {{"status": {{"code": {status}, "message": '
        f'{_quoted(response.reason)}}}, "headers": {_headers_text(response.headers)}, '
        f'"body": {{"string": {_body_text(response.body)}{_mark(response.body)}}}}}\n'
    )


def read_header(data: bytes) -> tuple[dict[str, Any], int] | None:
    """Return the metadata and the length of the header, or None if the layout is another.

    For a file that broke off within its header, the metadata is empty and the length is 0.
    """
    if not data.startswith(_START[: len(data)]):
        return None
    match = _HEADER.match(data)
    if match is None:
        return ({}, 0) if data.count(b"\n") < 3 else None
    try:
        return json.loads(match[1]), match.end()
    except (ValueError, RecursionError):
        return None


def is_by_hand(tail: bytes) -> bool:
    """Return whether the text after our lines was written by a person, and is no torn interaction.

    A torn interaction ends before the end of its ``response:`` line. JSON has no such line.
    """
    return tail.endswith(b"\n") and b"\n  response:" in tail


def address_of(data: bytes, start: int) -> tuple[Address, int] | None:
    """Return the address and the attempt of the interaction at ``start``, and parse nothing else.

    None if the lines are not as we write them, for example if the address has an escape. An address
    that the pattern matches is a valid URL, so it needs no further check.
    """
    match = _ADDRESS.match(data, start)
    if match is None:
        return None
    _, _, attempt, method, uri = match.groups()
    return (method.decode(), uri.decode()), int(attempt or 1)


def plain_at(data: bytes, start: int) -> Interaction | None:
    """Return the interaction at ``start`` if it is of the usual form, in a third of the time.

    The pattern ensures that its parts are valid, except its times.

    Raises
    ------
    ValueError
        A part is not UTF-8, a body not JSON, or a header's name repeated.
    """
    match = _PLAIN.match(data, start)
    if match is None:
        return None
    at, elapsed_s, attempt, method, uri, sent, asked, code, reason, answered, body = match.groups()
    plain = _text_body(body) or b""
    return Interaction(
        RecordedRequest(method.decode(), uri.decode(), _pairs(asked), _text_body(sent)),
        RecordedResponse(
            int(code),
            reason.decode(),
            _pairs(answered),
            MissingBody(plain) if is_like_missing(plain) else plain,
        ),
        recorded_at_of(at.decode("ascii", "replace")),
        elapsed_s_of(elapsed_s),
        int(attempt or 1),
    )


def head_of(data: bytes, start: int) -> Head | None:
    """Return what a reading needs of the interaction at ``start``, if it is of the usual form."""
    match = _PLAIN.match(data, start)
    if match is None:
        return None
    at, elapsed_s, attempt, method, uri, _, _, status, _, headers, _ = match.groups()
    return (
        recorded_at_of(at.decode("ascii", "replace")),
        elapsed_s_of(elapsed_s),
        int(attempt or 1),
        (method.decode(), uri.decode()),
        int(status),
        _pairs(headers),
    )


def _pairs(text: bytes) -> Headers:
    pairs = tuple(_PAIR.findall(text.decode()))
    if len(dict(pairs)) < len(pairs):  # of equal names, JSON keeps the last
        raise ValueError("A header's name is repeated.")
    return pairs


def _text_body(literal: bytes) -> bytes | None:
    """Return the body that a JSON string, or null, encodes."""
    if literal == b'""':  # most requests have no body
        return b""
    text = json.loads(literal.decode())
    return None if text is None else text.encode()


def request_of(value: Mapping[str, Any]) -> RecordedRequest:
    """Return the request of a ``request:`` value."""
    body = value["body"]
    body = body.encode() if isinstance(body, str) else body
    return RecordedRequest(value["method"], value["uri"], headers_of(value["headers"]), body)


def response_of(value: Mapping[str, Any], kind: object = None) -> RecordedResponse:
    """Return the response of a ``response:`` value, in this layout or in vcrpy's.

    ``kind`` is the value of ``no_response:`` beside it.
    """
    status, stored = value["status"], value.get("body") or {}
    reason = text_of(status.get("message") or "")
    if (none := no_response(kind, reason)) is not None:
        return none
    body = stored.get("string") or b""
    # vcrpy leaves lone surrogates alone.
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    if is_like_missing(body) and IS_RECORDED not in stored:
        body = MissingBody(body)
    code = status["code"]
    return RecordedResponse(
        int(code) if isinstance(code, str) else code,
        reason,
        headers_of(value["headers"] or {}),
        body,
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
    pairs = [
        (text_of(name), text_of(item))
        for name, items in value.items()
        for item in (items if isinstance(items, (list, tuple)) else (items,))
    ]
    return tuple(pairs)


def _headers_text(headers: Headers) -> str:
    values: dict[str, str] = {}
    for name, value in headers:
        values[name] = f"{values[name]}, {_quoted(value)}" if name in values else _quoted(value)
    is_long = max(map(len, values), default=0) > _MAX_NAME_CHARACTERS
    start, colon = ("? ", " :") if is_long else ("", ":")
    return f"{{{', '.join([f'{start}{_quoted(n)}{colon} [{v}]' for n, v in values.items()])}}}"


def _mark(body: bytes) -> str:
    """Return the mark of a service's own text such as ``<not recorded: 5000 bytes>``."""
    is_own = is_like_missing(body) and not isinstance(body, MissingBody)
    return f', "{IS_RECORDED}": true' if is_own else ""


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


def _time(at: datetime | None) -> str:
    if at is None:
        return "null"
    return f'"{at.astimezone(UTC).isoformat(timespec="microseconds")[:-6]}Z"'


def _seconds(elapsed_s: float | None) -> str:
    # YAML 1.1 reads 5e-05 as text, so no exponent is written; a microsecond is precise enough.
    return "null" if elapsed_s is None else f"{elapsed_s:.6f}"
