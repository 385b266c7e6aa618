"""The data behind the browser of interactions: rows, details, bodies, as JSON and bytes.

The notebook's widget and JupyterLab's viewer share one page, `static/page.js`. It sends requests,
and `handle_request` responds. Nothing here depends on the widget or the viewer.
"""

from __future__ import annotations

import math
import mimetypes
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..cassettes import Recording
from ..display import as_html, as_text, plural
from ..errors import CassetteError, CassetteFormatError, DirectMailLabError
from ..exchange.bodies import declared_charset, decode_text, read_json, shown_missing, unpack
from ..exchange.values import RecordedRequest, RecordedResponse, header, normalize_headers
from ..http import as_response, httpx
from ..questions.snippets import copy_as
from ..readings.reading import CUT_SHORT, Reading, is_exhausted
from ..readings.reset_unit import renewal_time
from ..transports.extensions import KEY, Received

Response = tuple[dict[str, Any], list[bytes]]
Message = RecordedRequest | RecordedResponse

MAX_ROWS: Final = 5_000
_MAX_PATH: Final = 300
_MAX_TEXT_BYTES: Final = 1024**2
_MAX_WHOLE_BYTES: Final = 16 * 1024**2
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_STATIC: Final = Path(__file__).with_name("static")
_TABLE_ROWS: Final = 10
_TABLE_CHARACTERS: Final = 100
_TABLE_COLUMNS: Final = 100
_COLUMNS: Final = ("time", "method", "path", "status", "remaining", "ms", "bytes", "mark")


def handle_request(recording: Recording, request: object) -> Response:
    """Return JSON and bodies. It raises nothing, whatever the request.

    Interactions are named by their numbers, from 1 on.

    Parameters
    ----------
    request
        ``{"action": "list", "first": 1, "limit": 1000}``; ``{"action": "detail", "number": 1}``;
        ``{"action": "copy", "number": 1, "format": "curl"}``; ``{"action": "body", "number": 1,
        "message": "response"}``; ``{"action": "table", "number": 1}``, see `table`; ``{"action":
        "search", "words": ["basel"], "first": 1, "limit": 1000}``, which looks through the bodies.

    Returns
    -------
    dict, list of bytes
        ``{"problem": …}`` if the request cannot be handled: a sentence that says why.
    """
    try:
        match request:
            case {"action": "list", "first": int(first), "limit": int(limit)}:
                part = {"total": len(recording), "rows": rows(recording, first, limit)}
                about = {"title": recording.title, "base_url": recording.base_url}
                return {**about, **part, "note": recording.problem}, []
            case {"action": "detail", "number": int(number)}:
                return detail(recording, number)
            case {"action": "copy", "number": int(number), "format": str(kind)}:
                base_url, is_kept = recording.base_url or "", recording.has_bodies(number)
                interaction = recording.interaction(number)
                code = copy_as(interaction, kind, base_url=base_url, has_bodies=is_kept)
                return {"text": code}, []
            case {"action": "body", "number": int(number), "message": "request" | "response" as of}:
                body, media_type, _ = _read_body(getattr(recording.interaction(number), of))
                suffix = mimetypes.guess_extension(media_type) or ".bin"
                return {"name": f"{recording.name}-{number}-{of}{suffix}"}, [body]
            case {"action": "table", "number": int(number)}:
                return table(recording, number), []
            case {"action": "search", "words": [*words], "first": int(first), "limit": int(limit)}:
                return {"found": _search(recording, words, _numbers(recording, first, limit))}, []
    except DirectMailLabError as error:
        return {"problem": str(error)}, []
    except (ValueError, RecursionError, httpx.InvalidURL):
        return {"problem": "This interaction cannot be shown."}, []
    return {"problem": "The page's request is not known. Reload the page."}, []


def read_page(*names: str) -> tuple[str, str]:
    """Return the scripts and the styles of these names in ``static``, each joined to one text.

    ``"common"`` and ``"page"`` are an ES module that exports ``createBrowser``, and its style.
    """
    files = [[_STATIC / f"{name}{suffix}" for name in names] for suffix in (".js", ".css")]
    script, style = [
        "\n".join(path.read_text("utf-8") for path in paths if path.exists()) for paths in files
    ]
    return script, style


def static_table(recording: Recording, selected: int | None = None) -> tuple[str, str]:
    """Return the first ten rows, and the selected interaction, for a notebook without a kernel.

    Both are HTML, with every value escaped, and text. A note below the table says how many rows
    there are.
    """
    import pandas as pd

    from ..questions.interactions import view_of

    first = rows(recording, 1, _TABLE_ROWS)
    frame = pd.DataFrame(first, pd.RangeIndex(1, len(first) + 1), _COLUMNS).convert_dtypes()
    frame["time"] = pd.to_datetime(frame["time"], unit="ms", utc=True)
    count = len(recording)
    more = f": the first {_TABLE_ROWS}" if count > _TABLE_ROWS else ""
    name = "".join(each if each.isprintable() else " " for each in recording.title)
    when = f", recorded {recording.recorded_when}" if recording.recorded_when else ""
    frame.attrs["notes"] = [f"{name}, {plural(count, 'interaction')}{when}{more}."]
    if (frame["mark"] == "").all():
        del frame["mark"]
    table, text = as_html(frame), as_text(frame, width=_TABLE_CHARACTERS)
    if selected is not None:
        with suppress(CassetteError):  # that it cannot be read, its row says
            view = view_of(recording, selected)
            table, text = f"{table}{view._repr_html_()}", f"{text}\n\n{view!r}"
    return table, text


# -- rows --------------------------------------------------------------------------------------


def rows(recording: Recording, first: int = 1, limit: int = MAX_ROWS) -> list[list[Any]]:
    """Return a row for each interaction from number ``first`` on, at most 5,000.

    Returns
    -------
    list of list
        ``time`` (when the response came, in milliseconds since the Unix epoch), ``method``,
        ``path`` (below the base address, with its query), ``status``, ``remaining``, ``ms`` (how
        long the response took), ``bytes`` (of the response's body), each None if unknown, and
        ``mark``: as `mark_of` says, or ``"unreadable"`` (then ``path`` says why).
    """
    return [_row(recording, number) for number in _numbers(recording, first, limit)]


def _numbers(recording: Recording, first: int, limit: int) -> range:
    return range(max(1, first), min(len(recording), first + min(limit, MAX_ROWS) - 1) + 1)


def _row(recording: Recording, number: int) -> list[Any]:
    try:
        reading, interaction = recording.reading(number), recording.interaction(number)
    except CassetteFormatError as error:
        return [None, "", str(error), None, None, None, None, "unreadable"]
    is_missing = not recording.has_bodies(number) or shown_missing(interaction.response.body)
    query = urlsplit(interaction.request.uri).query
    path = f"{reading.path}?{query}" if query else reading.path
    return [
        None if math.isnan(reading.at) else round(reading.at * 1000, 3),
        reading.method,
        path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}…",
        reading.status,
        reading.remaining,
        None if reading.elapsed_s is None else round(reading.elapsed_s * 1000, 3),
        None if is_missing else len(interaction.response.body),
        mark_of(reading),
    ]


def mark_of(reading: Reading) -> str:
    """Return ``"exhausted"``, ``"failed"`` (any other error, or cut short), or an empty text."""
    if is_exhausted(reading.status, reading.remaining):
        return "exhausted"
    return "failed" if reading.status >= 400 or reading.is_cut_short else ""


# -- one interaction ---------------------------------------------------------------------------


def detail(recording: Recording, number: int) -> Response:
    """Return the details of an interaction, and the bytes of its two bodies that are shown.

    Each body is described by its ``kind`` (``"none"``, ``"json"``, ``"text"``, ``"image"``,
    ``"binary"``, or ``"absent"`` if it was not recorded or kept), its ``media_type``, its ``size``
    in bytes, and ``truncated``: whether only its beginning is shown. Text is in UTF-8. HTML and SVG
    are text.
    """
    reading, interaction = recording.reading(number), recording.interaction(number)
    is_kept = recording.has_bodies(number)
    request, sent = _describe_message(interaction.request, is_kept=is_kept)
    response, received = _describe_message(interaction.response, is_kept=is_kept)
    renews_at = renewal_time(reading, recording.evidence.unit)
    values = {
        "Limit": reading.limit,
        "Remaining": reading.remaining,
        "Reset": reading.reset if reading.reset is not None else reading.reset_text,
        "Renews at": _format_time(renews_at),
        "Retry after": reading.retry_after_s and f"{reading.retry_after_s:g} s",
        "Problem": reading.problem,
    }
    details = {
        "number": number,
        "row": _row(recording, number),
        "uri": interaction.request.uri,
        "path": reading.path,
        "reason": CUT_SHORT if reading.is_cut_short else interaction.response.reason,
        "reading": [(name, str(value)) for name, value in values.items() if value is not None],
        "request": request,
        "response": response,
    }
    return details, [sent, received]


def _format_time(seconds: float | None) -> str | None:
    """Return seconds since the Unix epoch as text; None if they are unknown or out of range."""
    try:
        return f"{datetime.fromtimestamp(seconds or math.nan, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return None


def _describe_message(message: Message, *, is_kept: bool) -> tuple[dict[str, object], bytes]:
    """Return a message's headers and the description of its body, and the bytes that are shown."""
    body, media_type, charset = _read_body(message)
    is_kept = is_kept and shown_missing(message.body) is None
    kind, shown = _classify_body(body, media_type, charset) if is_kept else ("absent", b"")
    truncated = kind == "text" and len(body) > _MAX_TEXT_BYTES
    about = {"kind": kind, "media_type": media_type, "size": len(body), "truncated": truncated}
    return {"headers": message.headers, "body": about}, shown


def _read_body(message: Message) -> tuple[bytes, str, str | None]:
    """Return a message's body, its media type and character set; uncompressed where it can be."""
    content_type, body = header(message.headers, "content-type") or "", message.body or b""
    media_type, charset = content_type.partition(";")[0], declared_charset(content_type)
    with suppress(ValueError):
        body = unpack(body, header(message.headers, "content-encoding") or "")
    return body, media_type.strip().lower()[:100], charset


def _classify_body(body: bytes, media_type: str, charset: str | None) -> tuple[str, bytes]:
    """Return the kind of a body, and the bytes of it that are shown."""
    if not body:
        return "none", b""
    is_small = len(body) <= _MAX_WHOLE_BYTES
    if is_small and media_type in _IMAGE_TYPES:
        return "image", body
    if is_small and read_json(body, charset)[1] is None:
        return "json", decode_text(body, charset).encode("utf-8", "replace")
    text = decode_text(body[:_MAX_TEXT_BYTES], charset)
    # A body with nulls and no declared character set may have been misread as UTF-16.
    if text.count("\ufffd") > 3 or "\0" in text or (b"\0" in body and charset is None):
        return "binary", b""
    return "text", text.encode("utf-8", "replace")


def table(recording: Recording, number: int) -> dict[str, Any]:
    """Return the first rows that `frame` makes of a response's body, as texts.

    ``columns`` has their names, ``rows`` their values; ``shape`` is that of the whole frame.
    """
    from ..frames import frame  # here, as `view_of` above

    whole = frame(response_of(recording, number), on_error="keep")
    first = whole.iloc[:_TABLE_ROWS, :_TABLE_COLUMNS]
    values = first.astype(object).mask(first.isna(), "").to_numpy()
    rows = [[str(value)[:_TABLE_CHARACTERS] for value in row] for row in values]
    return {"columns": list(map(str, first.columns)), "rows": rows, "shape": whole.shape}


def response_of(recording: Recording, number: int) -> httpx.Response:
    """Return an interaction's response as httpx has it, with its request and its reading.

    Raises
    ------
    CassetteError
        There is no such interaction, it cannot be read, or its body was not kept.
    """
    interaction = recording.interaction(number)
    if not recording.has_bodies(number) or shown_missing(interaction.response.body):
        raise CassetteError(f"The body of interaction {number} is not kept.", "Send it again.")
    sent, received = interaction.request, interaction.response
    plain = replace(received, body=_read_body(received)[0])
    response = as_response(normalize_headers(plain, method=sent.method))
    headers = [(name.encode(), value.encode()) for name, value in sent.headers]
    response.request = httpx.Request(sent.method, sent.uri, headers=headers, content=sent.body)
    response.extensions[KEY] = Received(recording.reading(number))
    response.read()
    return response


# -- searching ---------------------------------------------------------------------------------

_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")


def _search(recording: Recording, words: list[Any], numbers: range) -> list[list[int]]:
    """Return, for each word, the numbers of the interactions with a body that has it."""
    found: list[list[int]] = [[] for _ in words]
    for number in numbers:
        with suppress(CassetteFormatError):
            interaction = recording.interaction(number)
            text = _text_of(interaction.request) + "\n" + _text_of(interaction.response)
            for hits, word in zip(found, words, strict=True):
                if str(word).lower() in text:
                    hits.append(number)
    return found


def _text_of(message: Message) -> str:
    """Return a body as lower-case text, the letters of JSON as they are read."""
    body, _, charset = _read_body(message)
    text = decode_text(body, charset)
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).lower()
