"""The data of the browser of interactions: rows, details and bodies, as JSON and bytes.

The notebook's widget and JupyterLab's viewer share one page, ``src/panel.ts``. The page sends
requests, and `handle_request` responds. This module depends on neither the widget nor the viewer.
"""

from __future__ import annotations

import hashlib
import math
import mimetypes
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cassettes import Recording
from ..display import cell_text, cell_texts, plural, printable_line, table_html, utc_time
from ..errors import CassetteError, DirectMailLabError
from ..exchange.bodies import (
    PICTURE_TYPES,
    declared_charset,
    decode_text,
    read_json,
    shown_missing,
    unpacked,
)
from ..exchange.httpx_values import httpx, httpx_response
from ..exchange.operations import with_query
from ..exchange.values import (
    Interaction,
    Request,
    Response,
    header,
    is_json_type,
    media_type_of,
    normalize_headers,
)
from ..questions.interaction_view import view_of
from ..questions.snippets import copy_as
from ..readings.reading import Reading, mark_of
from ..readings.reset_unit import renewal_time
from ..sessions.transports.extensions import EXTENSION, Received

Reply = tuple[dict[str, Any], list[bytes]]
Message = Request | Response

MAX_ROWS = 5_000
_MAX_PATH = 300
MAX_SHOWN_BYTES = 2 * 1024**2
_MAX_WHOLE_BYTES = 16 * 1024**2
_STATIC = Path(__file__).with_name("static")
_TABLE_ROWS = 100
_TABLE_CHARACTERS = 200
_TABLE_COLUMNS = 50
STATIC_ROWS = 10
"""How many rows a saved notebook shows without a kernel; the run of `share` sets more."""
UNKNOWN_REQUEST = {"problem": "The page sent an unknown request. Reload the page."}


class Row(NamedTuple):
    """What the list knows of an interaction; None is unknown. `Row` in src/protocol.ts is the same.

    Attributes
    ----------
    time
        When the response arrived, in milliseconds since the Unix epoch.
    path
        The path below the service address, with the query.
    ms
        How long the response took.
    bytes
        The size of its body.
    mark
        See `mark_of`.
    number
        The number of the interaction.
    replayed
        Whether a session that can send replayed it.
    """

    time: float | None
    method: str
    path: str
    status: int | None
    remaining: int | None
    ms: float | None
    bytes: int | None
    mark: str
    number: int
    replayed: bool


def handle_request(recording: Recording, request: Any) -> Reply:
    """Return the response to a request of the page. It never raises an exception.

    The page identifies an interaction by its number, from 1 on.

    Parameters
    ----------
    request
        ``{"action": "list", "first": 1, "limit": 1000}``; ``{"action": "detail", "number": 1,
        "whole": False}``; ``{"action": "copy", "number": 1, "format": "curl"}``;
        ``{"action": "body", "number": 1, "message": "response"}``; ``{"action": "table",
        "number": 1}``, see `table`; ``{"action": "editor"}``, which returns the script of the
        editor.

    Returns
    -------
    dict, list of bytes
        The response as JSON, and the bodies that go with it. If the request fails, the JSON is
        ``{"problem": …}``, with a sentence for the reader.
    """
    try:
        match request:
            case {"action": "list", "first": int(first), "limit": int(limit)}:
                problem = recording.problem
                return {
                    "title": recording.title,
                    "base_url": recording.base_url,
                    "total": len(recording),
                    "fields": Row._fields,
                    "rows": rows(recording, first, limit),
                    "note": problem and f"{problem[0].upper()}{problem[1:]}.",
                }, []
            case {"action": "editor"}:
                return {}, [read_static("codemirror.js").encode()]
            case {"action": "detail", "number": int(number)}:
                return detail(recording, number, whole=request.get("whole") is True)
            case {"action": "copy", "number": int(number), "format": str(kind)}:
                code = copy_as(
                    recording.interaction(number),
                    kind,
                    base_url=recording.base_url or "",
                    has_bodies=recording.has_bodies(number),
                )
                return {"text": code}, []
            case {"action": "body", "number": int(number), "message": "request" | "response" as of}:
                body, media_type, _ = _read_body(getattr(recording.interaction(number), of))
                suffix = mimetypes.guess_extension(media_type) or ".bin"
                return {"name": f"{recording.name}-{number}-{of}{suffix}"}, [body]
            case {"action": "table", "number": int(number)}:
                return table(recording, number), []
    except DirectMailLabError as error:
        return {"problem": str(error)}, []
    except (ValueError, RecursionError, httpx.InvalidURL):
        return {"problem": "This interaction cannot be shown."}, []
    return UNKNOWN_REQUEST, []


def read_page(name: str) -> tuple[str, str]:
    """Return the script and the style sheet of a page in ``static``.

    The script of ``"browser"`` also exports ``createBrowser``.
    """
    return read_static(f"{name}.js"), read_static(f"{name}.css")


def read_static(name: str) -> str:
    """Return a file of the front end, which is bundled from ``src``."""
    return (_STATIC / name).read_text("utf-8")


def static_table(
    recording: Recording, selected: tuple[Recording, int] | None = None
) -> tuple[str, str]:
    """Return the first rows and the selected interaction, for a notebook without a kernel.

    The selected interaction may be from another recording. A note below the table says how many
    rows there are.

    Returns
    -------
    str, str
        Both as HTML, with every value escaped, and both as text.
    """
    import pandas as pd

    first = rows(recording, 1, STATIC_ROWS)
    frame = pd.DataFrame(first, columns=Row._fields).drop(columns="replayed")
    frame = frame.set_index("number").replace("", None)
    frame["time"] = pd.to_datetime(frame["time"], unit="ms", utc=True)
    frame = frame.loc[:, frame.notna().any()].convert_dtypes()
    count = len(recording)
    more = f": the first {STATIC_ROWS}" if count > STATIC_ROWS else ""
    recorded = recording.recorded_note if recording.path or recording.is_replay else ""
    note = f"{printable_line(recording.title)}, {plural(count, 'interaction')}{recorded}{more}."
    frame.attrs["notes"] = [note]
    table = table_html(frame, most_rows=STATIC_ROWS)
    cells = pd.DataFrame({name: cell_texts(frame[name]) for name in frame}, list(frame.index))
    text = f"{cells.to_string()}\n{note}"
    if selected is not None:
        view = view_of(*selected)
        table += view._repr_html_()
        text += f"\n\n{view!r}"
    return table, text


# -- rows --------------------------------------------------------------------------------------


def rows(recording: Recording, first: int = 1, limit: int = MAX_ROWS) -> list[Row]:
    """Return a row for each interaction from number ``first`` on, at most 5,000."""
    last = min(len(recording), first + min(limit, MAX_ROWS) - 1)
    return [_row(recording, number) for number in range(max(1, first), last + 1)]


def _row(recording: Recording, number: int) -> Row:
    reading = recording.reading(number)
    interaction = recording.interaction(number)
    is_missing = not recording.has_bodies(number) or shown_missing(interaction.response.body)
    path = with_query(reading.path, interaction.request.uri)
    if len(path) > _MAX_PATH:
        path = f"{path[: _MAX_PATH - 20]}…{path[-20:]}"
    return Row(
        time=None if math.isnan(reading.at) else round(reading.at * 1000, 3),
        method=reading.method,
        path=path,
        status=reading.status or None,
        remaining=reading.remaining,
        ms=None if reading.elapsed_s is None else round(reading.elapsed_s * 1000, 3),
        bytes=None if is_missing else len(interaction.response.body),
        mark=mark_of(reading),
        number=number,
        replayed=_is_replayed(recording, reading),
    )


def _is_replayed(recording: Recording, reading: Reading) -> bool:
    """Return whether a session that can send returned an earlier response instead."""
    return reading.is_earlier and not recording.is_replay


# -- one interaction ---------------------------------------------------------------------------


def detail(recording: Recording, number: int, *, whole: bool = False) -> Reply:
    """Return the details of an interaction, and its two bodies as far as they are shown.

    Each body is described by its ``kind`` (``"none"``, ``"json"``, ``"text"``, ``"image"``,
    ``"binary"``, or ``"absent"`` if it was not recorded or kept), its ``media_type``, its ``size``
    in bytes, and ``truncated``: whether only its first 2 MB (16 MB with ``whole``) are shown. Text
    is in UTF-8. HTML and SVG are shown as text. A body is ``editable`` if the text that is shown
    gives exactly the same bytes when it is encoded again; ``digest`` identifies the body.
    """
    reading = recording.reading(number)
    interaction = recording.interaction(number)
    is_kept = recording.has_bodies(number)
    most = _MAX_WHOLE_BYTES if whole else MAX_SHOWN_BYTES
    request, sent = describe_message(interaction.request, most, is_kept=is_kept)
    response, received = describe_message(interaction.response, most, is_kept=is_kept)
    renews_at = renewal_time(reading, recording.evidence.unit)
    values = {
        "Limit": reading.limit,
        "Remaining": reading.remaining,
        "Reset": reading.raw.reset,
        "Renews at": _format_time(renews_at),
        "Retry after": reading.retry_after_s and f"{reading.retry_after_s:g} s",
        "Problem": reading.problem,
    }
    details = {
        "row": _row(recording, number)._asdict(),
        "uri": interaction.request.uri,
        "path": reading.path,
        "reason": reading.why_cut or interaction.response.reason,
        "note": _not_sent(reading, interaction) if _is_replayed(recording, reading) else "",
        "reading": [(name, str(value)) for name, value in values.items() if value is not None],
        "request": request,
        "response": response,
    }
    return details, [sent, received]


def _not_sent(reading: Reading, interaction: Interaction) -> str:
    at = interaction.recorded_at
    when = f", recorded on {at.day} {at:%B %Y}" if at else ""
    if reading.source == "kept":
        return f"Not sent again. This is the response to the first sending{when}."
    return f"Not sent: replayed from {reading.cassette!r}{when}."


def _format_time(seconds: float | None) -> str | None:
    """Return seconds since the Unix epoch as text; None if they are unknown or out of range."""
    try:
        return f"{utc_time(seconds or math.nan):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return None


def describe_message(
    message: Message, most: int, *, is_kept: bool
) -> tuple[dict[str, object], bytes]:
    """Return a message's headers, a description of its body (see `detail`), and the shown bytes."""
    body, media_type, charset = _read_body(message)
    kind = "absent"
    shown = b""
    if is_kept and not shown_missing(message.body):
        kind, shown = _classify_body(body, media_type, charset, most)
    about = {
        "kind": kind,
        "media_type": media_type,
        "size": len(body),
        "truncated": kind in ("json", "text") and len(body) > most,
        "editable": body == message.body and _is_written_as_shown(shown, body, charset),
        "digest": digest_of(message.body or b""),
    }
    return {"headers": message.headers, "body": about}, shown


def digest_of(body: bytes) -> str:
    """Return a short hash that identifies a body."""
    return hashlib.sha256(body).hexdigest()[:16]


def _is_written_as_shown(shown: bytes, body: bytes, charset: str | None) -> bool:
    """Return whether the shown text, encoded again, gives exactly the bytes of the body."""
    try:
        text = shown.decode()
        is_same = text.encode(charset or "utf-8") == body
    except (LookupError, UnicodeError):
        return False
    lines = text.replace("\r\n", "")  # an editor keeps only one kind of line end
    return is_same and "\r" not in lines and not ("\r\n" in text and "\n" in lines)


def _read_body(message: Message) -> tuple[bytes, str, str | None]:
    """Return a message's body, decompressed if possible, its media type and its character set."""
    body = message.body or b""
    with suppress(ValueError):
        body = unpacked(message)
    charset = declared_charset(header(message.headers, "content-type") or "")
    return body, media_type_of(message.headers)[:100], charset


def _classify_body(
    body: bytes, media_type: str, charset: str | None, most: int
) -> tuple[str, bytes]:
    """Return the kind of a body, and the bytes to show."""
    if not body:
        return "none", b""
    if len(body) <= _MAX_WHOLE_BYTES and media_type in PICTURE_TYPES:
        return "image", body
    if media_type == "application/pdf":
        return "binary", b""
    if len(body) <= most and read_json(body, charset)[1] is None:
        return "json", decode_text(body, charset).encode("utf-8", "replace")
    text = decode_text(body[:most], charset)
    # A body with nulls and no declared character set may have been misread as UTF-16.
    if len(body) > most and is_json_type(media_type) and text.lstrip()[:1] in ("{", "["):
        return "json", text.encode("utf-8", "replace")
    if text.count("\ufffd") > 3 or "\0" in text or (b"\0" in body and charset is None):
        return "binary", b""
    return "text", text.encode("utf-8", "replace")


def table(recording: Recording, number: int) -> dict[str, Any]:
    """Return the first 100 rows of the `frame` of a response, with every value as text.

    ``columns`` has the first 50 names, ``rows`` has their values, and ``shape`` is the shape of the
    whole frame.
    """
    from ..sessions.frames import frame  # imported here: it imports pandas

    response = response_of(recording, number)
    response.extensions[EXTENSION] = Received(is_page=True)  # without a warning of other pages
    whole = frame(response, on_error="keep")
    shown = whole.iloc[:_TABLE_ROWS, :_TABLE_COLUMNS]
    return {
        "columns": list(map(str, shown.columns)),
        "rows": shown.map(_cell).to_numpy().tolist(),
        "shape": whole.shape,
    }


def _cell(value: object) -> str:
    text = cell_text(value)
    return text if len(text) <= _TABLE_CHARACTERS else f"{text[:_TABLE_CHARACTERS]}…"


def response_of(recording: Recording, number: int) -> httpx.Response:
    """Return an interaction's response as an httpx response, with its request and its reading.

    Raises
    ------
    CassetteError
        The interaction does not exist or cannot be read, or its body was not kept.
    """
    interaction = recording.interaction(number)
    sent = interaction.request
    received = interaction.response
    if not received.status:
        why_cut = recording.reading(number).why_cut
        raise CassetteError(f"For interaction {number}, {why_cut}.")
    if not recording.has_bodies(number) or shown_missing(received.body):
        raise CassetteError(
            f"The body of interaction {number} was not kept.", "Send the request again."
        )
    plain = replace(received, body=_read_body(received)[0])
    response = httpx_response(normalize_headers(plain, method=sent.method))
    headers = [(name.encode(), value.encode()) for name, value in sent.headers]
    response.request = httpx.Request(sent.method, sent.uri, headers=headers, content=sent.body)
    response.extensions[EXTENSION] = Received(recording, number)
    response.read()
    return response
