"""HAR 1.2, the format in which browsers, Playwright, mitmproxy and Insomnia save traffic.

Values that its specification does not define are written in fields that begin with an underscore,
which it allows. The reader accepts files in which other programs leave out fields or deviate.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ..errors import CassetteFormatError
from ..exchange.bodies import MAX_UNPACKED_BYTES, declared_charset, missing_body, unpack
from ..exchange.values import (
    MALFORMED,
    Headers,
    Interaction,
    Request,
    Response,
    check_interaction,
    header,
    no_response,
    normalize_headers,
    unreadable,
)
from ..settings import VERSION
from .layout import elapsed_s_of, recorded_at_of, text_of
from .library import stays_in

_WEB = re.compile("(?i)https?://")
_ATTACHED = re.compile(r"[0-9a-f]{40}(?:\.\w{1,10})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def har_text(interactions: Iterable[Interaction]) -> str:
    """Return redacted interactions as the text of a .har file."""
    log = {
        "version": "1.2",
        "creator": {"name": "directmail-lab", "version": VERSION},
        "entries": list(map(_har_entry, interactions)),
    }
    return json.dumps({"log": log}, indent=2) + "\n"


def _har_entry(interaction: Interaction) -> dict[str, Any]:
    request = interaction.request
    response = interaction.response
    at = interaction.recorded_at
    elapsed_s = interaction.elapsed_s
    started = (at or _EPOCH) - timedelta(seconds=elapsed_s or 0.0)
    elapsed_ms = (elapsed_s or 0.0) * 1000
    query = parse_qsl(request.uri.partition("?")[2], keep_blank_values=True)
    post_data = {} if request.body is None else {"postData": _har_content(request, "_encoding")}
    return {
        "startedDateTime": started.astimezone(UTC).isoformat(timespec="microseconds"),
        "time": elapsed_ms,
        "request": {
            "method": request.method,
            "url": request.uri,
            "queryString": _har_pairs(query),
            **_har_message(request),
            **post_data,
        },
        "response": {
            "status": response.status,
            "statusText": response.reason,
            "content": {"size": len(response.body), **_har_content(response, "encoding")},
            "redirectURL": header(response.headers, "location") or "",
            **_har_message(response),
            **({"_no_response": response.no_response} if response.no_response else {}),
            **({"_incomplete": response.incomplete} if response.incomplete else {}),
        },
        "cache": {},
        "timings": {"send": 0, "wait": elapsed_ms, "receive": 0},
        "_elapsed_s": elapsed_s,
        "_recorded_at": None if at is None else at.astimezone(UTC).isoformat(),
        **({"_fallback": True} if interaction.is_fallback else {}),
    }


def _har_message(message: Request | Response) -> dict[str, Any]:
    return {
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _har_pairs(message.headers),
        "headersSize": -1,
        "bodySize": len(message.body or b""),
    }


def _har_pairs(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _har_content(message: Request | Response, encoding: str) -> dict[str, str]:
    """Return a body's type and text; ``encoding`` names the field that says it is base64."""
    body = message.body or b""
    mime_type = header(message.headers, "content-type") or ""
    charset = declared_charset(mime_type) or "utf-8"
    with suppress(LookupError, ValueError):
        text = body.decode(charset)
        if text.encode(charset) == body:
            return {"mimeType": mime_type, "text": text}
    text = base64.b64encode(body).decode("ascii")
    return {"mimeType": mime_type, "text": text, encoding: "base64"}


def read_har(text: bytes, path: Path) -> tuple[list[Interaction], str | None]:
    """Return the interactions of a .har file, not redacted, and what was left out, or None.

    Requests that got no response are left out, but for those that we wrote. So are addresses that
    lead to no server, and entries that cannot be read.

    Raises
    ------
    CassetteFormatError
        The text is not HAR, or no entry can be read. The message names the entry, and none of its
        values.
    """
    try:
        entries = json.loads(text.decode("utf-8-sig"))["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError
    except MALFORMED:
        raise CassetteFormatError(
            f"{path} is not HAR: it is not JSON with a list log.entries, or it is incomplete.",
            "Export it again.",
        ) from None
    interactions: list[Interaction] = []
    left_out: Counter[str] = Counter()
    errors: list[CassetteFormatError] = []
    for number, entry in enumerate(entries, 1):
        try:
            read = _from_har(entry, path.parent)
        except MALFORMED as error:
            errors.append(unreadable(f"Entry {number} of {path}", error))
            continue
        if isinstance(read, str):
            left_out[read] += 1
        else:
            interactions.append(read)
    if errors and not interactions:
        raise errors[0]
    if errors:
        left_out[f"that cannot be read (the first: {errors[0].what.rstrip('.')})"] = len(errors)
    parts = [f"{count} {why}" for why, count in left_out.items()]
    return interactions, f"left out of its entries: {', '.join(parts)}" if parts else None


def _from_har(entry: Any, folder: Path) -> Interaction | str:
    """Return the interaction of an entry, or why it is none."""
    request = entry["request"]
    response = entry.get("response") or {}
    if request.get("method") == "CONNECT" or not _WEB.match(text_of(request["url"])):
        return "that ask no server (data:, blob:, an extension's, CONNECT)"
    # Chromium gives a request that was blocked or aborted the status 0, Firefox none.
    none = no_response(response.get("_no_response"), text_of(response.get("statusText") or ""))
    if none is None and (not response.get("status") or int(response["status"]) <= 0):
        return "without a response"
    sent = _request(request, folder)
    received = none or _response(response, sent.method, folder)
    is_fallback = entry.get("_fallback") is True
    return check_interaction(Interaction(sent, received, *_times(entry), is_fallback=is_fallback))


def _request(entry: Mapping[str, Any], folder: Path) -> Request:
    uri = text_of(entry["url"])
    query = _pairs(entry.get("queryString"))
    if query and "?" not in uri:
        # Insomnia writes the query only here.
        uri = f"{uri}?{urlencode(query)}"
    headers = _headers(entry)
    return Request(text_of(entry.get("method") or "GET"), uri, headers, _posted(entry, folder))


def _posted(entry: Mapping[str, Any], folder: Path) -> bytes | None:
    posted = entry.get("postData") or {}
    has_parts = False
    if posted.get("text") is None and posted.get("params"):
        has_parts = "multipart" in text_of(posted.get("mimeType") or "")
        if not has_parts:
            return urlencode(_pairs(posted["params"])).encode()
    size = _declared_size(entry, at_least=1)
    body = _body(posted, posted.get("_encoding") or posted.get("encoding"), size, folder)
    if not body and (body is None or size or has_parts):
        return missing_body(size)  # Chromium leaves out the files of an upload
    return body if posted else None


def _response(entry: Mapping[str, Any], method: str, folder: Path) -> Response:
    content = entry.get("content") or {}
    headers = _headers(entry)
    size = _declared_size(entry, content.get("size"))
    body = _body(content, content.get("encoding"), size, folder)
    is_left_out = (
        body is None or size or (size is None and "size" in content and "text" not in content)
    )
    # Playwright leaves out the body of a redirect. A replay can follow the redirect without it.
    may_have_one = method != "HEAD" and int(entry["status"]) not in (204, *range(300, 400))
    if not body and is_left_out and may_have_one:
        body = missing_body(size)
    body = body or b""
    coding = header(headers, "content-encoding")
    with suppress(ValueError):  # most programs save the decoded body, but unchanged headers
        body = unpack(body, coding) if coding else body
    response = Response(
        int(entry["status"]),
        text_of(entry.get("statusText") or ""),
        headers,
        body,
        incomplete=text_of(entry.get("_incomplete") or ""),
    )
    return normalize_headers(response, method=method)


def _declared_size(entry: Mapping[str, Any], *sizes: Any, at_least: int = 0) -> int | None:
    """Return the size of a body from the first field that states it; HAR's -1 means unknown."""
    for size in (*sizes, entry.get("bodySize"), header(_headers(entry), "content-length")):
        with suppress(TypeError, ValueError):
            number = int(size)
            if number >= at_least:
                return number
    return None


def _body(
    content: Mapping[str, Any], encoding: object, size: int | None, folder: Path
) -> bytes | None:
    """Return a body; None if it is not there, or damaged."""
    file = content.get("_file")
    if "text" not in content and isinstance(file, str):
        return _attached(folder, file)
    text = text_of(content.get("text") or "")
    mime_type = text_of(content.get("mimeType") or "")
    if encoding == "base64":
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except ValueError:  # a program that removes private data has replaced it
            return None
    body = text.encode("utf-8", "surrogatepass")
    charset = declared_charset(mime_type)
    with suppress(LookupError, UnicodeEncodeError):
        if text.startswith("\x1f\x8b\x08"):  # gzip, each byte as a character
            return text.encode("latin-1")
        if charset:
            return text.encode(charset)
        # mitmproxy writes bytes that are not UTF-8, such as a PDF's, as Latin-1. JSON is UTF-8.
        if len(body) != size and "json" not in mime_type:
            as_latin_1 = text.encode("latin-1")
            return as_latin_1 if len(as_latin_1) == size else body
    # Bytes of gzip that were read as UTF-8 cannot be restored.
    return None if text.startswith("\x1f\ufffd\x08") else body


def _attached(folder: Path, name: str) -> bytes | None:
    """Return a body that Playwright wrote to a file beside the HAR file, named by its hash.

    A stranger's HAR file cannot name other files.
    """
    path = folder / name
    with suppress(OSError):
        is_there = _ATTACHED.fullmatch(name) and stays_in(folder, path)
        if is_there and path.stat().st_size <= MAX_UNPACKED_BYTES:
            return path.read_bytes()
    return None


def _headers(entry: Mapping[str, Any]) -> Headers:
    # The pseudo-headers of HTTP/2, such as :authority, repeat the request line.
    pairs = _pairs(entry.get("headers"))
    return tuple(pair for pair in pairs if not pair[0].startswith(":"))


def _pairs(named: Iterable[Mapping[str, Any]] | None) -> Headers:
    return tuple((text_of(pair["name"]), text_of(pair.get("value") or "")) for pair in named or ())


def _times(entry: Mapping[str, Any]) -> tuple[datetime | None, float | None]:
    """Return when the response arrived, and how many seconds it took."""
    if "_recorded_at" in entry:
        return recorded_at_of(entry["_recorded_at"]), elapsed_s_of(entry.get("_elapsed_s"))
    elapsed_ms = elapsed_s_of(entry.get("time")) or 0.0
    elapsed_s = elapsed_ms / 1000 if elapsed_ms > 0 else None
    started = recorded_at_of(entry.get("startedDateTime"))
    return started and started + timedelta(seconds=elapsed_s or 0.0), elapsed_s
