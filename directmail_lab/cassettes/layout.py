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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..errors import CassetteFormatError
from ..exchange.bodies import MissingBody, is_like_missing
from ..exchange.values import (
    MALFORMED,
    PLAIN_URL,
    Headers,
    Interaction,
    Request,
    Response,
    check_times,
    no_response,
)
from ..readings.reading import RawValues, raw_values_of

NO_RESPONSE_STATUS = 599
"""The status in a file if no response came, for vcrpy; ``no_response:`` says so to our readers."""

IS_RECORDED = "is_recorded"
"""The key that marks a body as the service's own, although it looks like a `MissingBody`."""

Address = tuple[str, str]
"""The method and the whole address of a request."""


Line = tuple[Address, int]
"""A request's address and its attempt."""


# A recording's metadata is under `recording`, not `metadata`: with the latter vcrpy's loader
# returns three values instead of two, and pytest-recording (0.14) fails on that.
WRITER = "directmail-lab"
_START = f'version: 1\nrecording: {{"recorded_with": "{WRITER}'.encode()
_HEADER = re.compile(rb"version: 1\nrecording: ([^\n]*)\ninteractions:\n")
_METADATA = re.compile(rb"(?m)^recording: (\{[^\n]*)$")
_ITEM = re.compile(rb"(?m)^(?=- )")

_HEAD = (
    rb"- recorded_at: ([^\n]*)\n  elapsed_s: ([^\n]*)\n(?:  attempt: (\d{1,3})\n)?"
    rb"(?:  no_response: ([a-z_]{1,20})\n)?(?:  fallback: (true)\n)?  request: "
)
INTERACTION = re.compile(rb"(?m)^" + _HEAD + rb"([^\n]*)\n  response: ([^\n]*)\n")
"""An interaction: time, latency, attempt, no_response, fallback, request and response."""

_PLAIN_ADDRESS = (
    _HEAD + rb'\{"method": "([A-Z]{1,64})", "uri": "(' + PLAIN_URL.encode() + rb')", "body": '
)
_ADDRESS = re.compile(_PLAIN_ADDRESS)
_BARE = re.compile(_PLAIN_ADDRESS + rb'(?:null|""),(?![^\n]*"(?i:range)": \[)')
ACCEPT = re.compile(rb'"[Aa]ccept": \[([^\]\n]*)\]')
"""The header ``Accept`` in the line of a request."""

_RESPONSE = b"\n  response: "
END = re.compile(rb"(?m)^# end: \d{1,18} interactions?, sha256 [0-9a-f]{64}\n?\Z")
"""The line that closes a recording, with the count and the checksum."""

MARK = re.compile(
    rb"(?m)^# replaces (\d{1,9}(?:-\d{1,9})?(?:, \d{1,9}(?:-\d{1,9})?)*) of (\d{1,9})\n\Z"
)
"""The line before an interaction that replaces others: group 1 their numbers, 2 how many are above.

A mark holds until the recording is closed.
"""

# What a kill in the middle of a write leaves: whole lines of an interaction, then a part of a line.
_WHOLE_LINES = re.compile(
    rb"(?:# replaces [\d, -]+ of \d+\n)?(?:- recorded_at: [^\n]*\n(?:  elapsed_s: [^\n]*\n"
    rb"(?:  attempt: \d{1,3}\n)?(?:  no_response: [a-z_]{1,20}\n)?(?:  fallback: true\n)?"
    rb"(?:  request: \{[^\n]*\}\n)?)?)?"
)
_KEYS = (
    *(b"- recorded_at: ", b"  elapsed_s: ", b"  attempt: ", b"  no_response: "),
    *(b"  fallback: ", b"  request: ", b"  response: "),
)
_COMMENT = re.compile(rb"# replaces [\d, -]+(?:o(?:f(?: \d*)?)?)?|# end: [^\n]*")

# JSON allows these characters unescaped. YAML forbids them, or reads them as line breaks or a byte
# order mark (YAML 1.1, section 5.1, `c-printable`, and 5.4, line breaks).
# libyaml reads no escape of a lone surrogate, so it becomes the replacement character.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

# libyaml accepts a key of more than 1,024 characters only in the form `? key : value`. An escaped
# character takes up to six.
_MAX_NAME_CHARACTERS = 1000 // 6

# `default=str`: the metadata of another program's cassette may contain a time.
_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
# This quotes a text as the JSON encoder does. Joining quoted texts takes a third of its time.
_quoted = json.encoder.encode_basestring


def header_text(metadata: Mapping[str, object]) -> str:
    """Return the lines that a cassette starts with."""
    return f"version: 1\nrecording: {_one_line(_encode(metadata))}\ninteractions:\n"


def end_line(count: int, sha256: str) -> str:
    """Return the comment that closes a recording, with the checksum of all lines before it."""
    return f"# end: {count} interaction{'' if count == 1 else 's'}, sha256 {sha256}\n"


def mark_line(numbers: Sequence[int], count: int) -> str:
    """Return the comment before an interaction that replaces those with these numbers of ``count``.

    Numbers that follow each other become a range: ``# replaces 1-3, 7 of 57``.
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return f"# replaces {', '.join('-'.join(map(str, part)) for part in parts)} of {count}\n"


def replaced_in(mark: re.Match[bytes], above: int, most: int) -> list[int] | None:
    """Return the numbers of the interactions that a mark names.

    None if a mark with this number of interactions above it, of which at most so many are left,
    cannot be a recorder's: a person has removed or added one.
    """
    if int(mark[2]) != above:
        return None
    ranges = []
    for part in mark[1].split(b", "):
        first, _, last = part.partition(b"-")
        ranges.append(range(int(first), int(last or first) + 1))
    is_possible = all(1 <= each.start < each.stop <= above + 1 for each in ranges)
    if not is_possible or sum(map(len, ranges)) > most:
        return None
    return [number for each in ranges for number in each]


def without_replaced(data: bytes) -> bytes | None:
    """Return an edited file of ours without the interactions that its marks name.

    None if a mark does not fit the interactions above it.
    """
    items = _ITEM.split(data)
    left = len(items) - 1
    for above, item in enumerate(items):
        mark = MARK.search(item)
        if mark is None:
            continue
        numbers = replaced_in(mark, above, left)
        if numbers is None:
            return None
        left -= len(numbers)
        for number in numbers:
            items[number] = b""
    return b"".join(items)


def interaction_text(interaction: Interaction) -> str:
    """Return the lines of one interaction."""
    request = interaction.request
    response = interaction.response
    status = response.status
    marks = ""
    if interaction.attempt > 1:
        marks += f"  attempt: {interaction.attempt}\n"
    if response.no_response:
        marks += f"  no_response: {response.no_response}\n"
        status = NO_RESPONSE_STATUS
    if interaction.is_fallback:
        marks += "  fallback: true\n"
    incomplete = ""
    if response.incomplete:
        incomplete = f', "incomplete": {_quoted(response.incomplete)}'
    return _one_line(
        f"- recorded_at: {_time(interaction.recorded_at)}\n"
        f"  elapsed_s: {_seconds(interaction.elapsed_s)}\n{marks}"
        f'  request: {{"method": {_quoted(request.method)}, "uri": {_quoted(request.uri)}, '
        f'"body": {_body_text(request.body)}, "headers": {_headers_text(request.headers)}}}\n'
        f'  response: {{"status": {{"code": {status}, "message": '
        f'{_quoted(response.reason)}}}, "headers": {_headers_text(response.headers)}, '
        f'"body": {{"string": {_body_text(response.body)}{_mark(response.body)}}}{incomplete}}}\n'
    )


def read_header(data: bytes) -> tuple[dict[str, Any], int] | None:
    """Return the metadata and the length of a header as we write it; None for any other.

    For a file that broke off within its header, the metadata is empty and the length is 0.
    """
    match = _HEADER.match(data)
    if match is not None and data.startswith(_START):
        with suppress(ValueError, RecursionError):
            return json.loads(match[1]), match.end()
    is_start = data.startswith(_START[: len(data)]) and data.count(b"\n") < 3
    return ({}, 0) if is_start else None


def metadata_in(data: bytes) -> dict[str, Any]:
    """Return the metadata in a damaged file; empty if they are damaged too."""
    match = _METADATA.search(data)
    if match is not None:
        with suppress(ValueError, RecursionError):
            return dict(json.loads(match[1]))
    return {}


def is_torn(tail: bytes) -> bool:
    """Return whether a text is what a kill in the middle of a write leaves.

    It is a proper prefix of an interaction, with its mark, or of the end line.
    """
    whole = _WHOLE_LINES.match(tail)
    assert whole is not None, "each part of the pattern is optional"
    last = tail[whole.end() :]
    if b"\n" in last:
        return False
    if not last:
        return bool(whole[0])
    if last.startswith(b"#"):
        is_start = any(each.startswith(last) for each in (b"# replaces ", b"# end: "))
        return is_start or _COMMENT.fullmatch(last) is not None
    return any(key.startswith(last) or last.startswith(key) for key in _KEYS)


def line_of(data: bytes, start: int) -> Line | None:
    """Return the address and the attempt of the interaction at ``start``, and parse nothing else.

    None if the lines are not as we write them, for example if the address has an escape. An address
    that the pattern matches is a valid URL, so it needs no further check.
    """
    match = _ADDRESS.match(data, start)
    if match is None:
        return None
    _, _, attempt, _, _, method, uri = match.groups()
    return (method.decode(), uri.decode()), int(attempt or 1)


def is_bare(data: bytes, start: int) -> bool:
    """Return whether the request at ``start`` certainly has neither a body nor a ``Range``."""
    return _BARE.match(data, start) is not None


class Outline(NamedTuple):
    """What a reading needs of an interaction."""

    method: str
    uri: str
    status: int
    raw: RawValues
    recorded_at: datetime | None
    elapsed_s: float | None
    attempt: int


def outline_of(data: bytes, start: int) -> Outline | None:
    """Return the outline of the interaction at ``start``, which takes a third of reading all of it.

    None if no whole response came, or if the lines are not as we write them.
    """
    match = _ADDRESS.match(data, start)
    if match is None or match[4] is not None:
        return None
    at, elapsed_s, attempt, _, _, method, uri = match.groups()
    begin = data.index(_RESPONSE, match.end()) + len(_RESPONSE)
    try:
        response = _decode(data[begin : data.index(b"\n", begin)].decode())
        status = response["status"]["code"]
        raw = raw_values_of(response["headers"])
        recorded_at = recorded_at_of(at.decode())
        latency_s = elapsed_s_of(elapsed_s)
        check_times(recorded_at, latency_s)
    except MALFORMED:
        return None
    if type(status) is not int or "incomplete" in response:
        return None
    attempts = int(attempt or 1)
    return Outline(method.decode(), uri.decode(), status, raw, recorded_at, latency_s, attempts)


def request_of(value: Mapping[str, Any]) -> Request:
    """Return the request of a ``request:`` value."""
    body = value["body"]
    body = body.encode() if isinstance(body, str) else body
    return Request(value["method"], value["uri"], headers_of(value["headers"]), body)


def response_of(value: Mapping[str, Any], kind: object = None) -> Response:
    """Return the response of a ``response:`` value, in this layout or in vcrpy's.

    ``kind`` is the value of ``no_response:`` beside it.
    """
    status = value["status"]
    reason = text_of(status.get("message") or "")
    if kind is not None:
        none = no_response(kind, reason)
        if none is not None:
            return none
    stored = value.get("body") or {}
    body = stored.get("string") or b""
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")  # vcrpy leaves lone surrogates alone
    elif stored and "string" not in stored:
        # vcrpy raises a KeyError when it plays such a response.
        raise CassetteFormatError(f"its body is under {min(stored)!r}, not under 'string'")
    if is_like_missing(body) and IS_RECORDED not in stored:
        body = MissingBody(body)
    code = status["code"]
    return Response(
        int(code) if isinstance(code, str) else code,
        reason,
        headers_of(value["headers"] or {}),
        body,
        incomplete=text_of(value.get("incomplete", "")),
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
    pairs = []
    for name, items in value.items():
        for item in items if isinstance(items, (list, tuple)) else (items,):
            if isinstance(name, str) and isinstance(item, str):  # as in almost each file
                pairs.append((name, item))
            else:
                pairs.append((text_of(name), text_of(item)))
    return tuple(pairs)


def _headers_text(headers: Headers) -> str:
    values: dict[str, str] = {}
    for name, value in headers:
        values[name] = f"{values[name]}, {_quoted(value)}" if name in values else _quoted(value)
    is_long = max(map(len, values), default=0) > _MAX_NAME_CHARACTERS
    start = "? " if is_long else ""
    colon = " :" if is_long else ":"
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
