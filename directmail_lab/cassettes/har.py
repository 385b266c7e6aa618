"""HAR 1.2: the format that browsers, Playwright, mitmproxy and Insomnia save traffic in.

Writing follows the specification to the letter, with what it has no place for in fields that begin
with an underscore, as it allows. Reading takes what other programs leave out or do their own way.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.message import Message
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..errors import CassetteFormatError
from ..interaction import (
    ODD,
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    check_interaction,
    header,
    unreadable,
)
from ..redaction.unpack import unpack
from .layout import text_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def har_text(interactions: Iterable[Interaction]) -> str:
    """Return interactions, which are redacted already, as the text of a .har file."""
    from directmail_lab import __version__

    log = {
        "version": "1.2",
        "creator": {"name": "directmail-lab", "version": __version__},
        "entries": [_entry(each) for each in interactions],
    }
    return json.dumps({"log": log}, indent=2) + "\n"


def _entry(interaction: Interaction) -> dict[str, Any]:
    request, response = interaction.request, interaction.response
    elapsed_s = interaction.elapsed_s
    started = (interaction.recorded_at or _EPOCH) - timedelta(seconds=elapsed_s or 0.0)
    elapsed_ms = (elapsed_s or 0.0) * 1000
    entry: dict[str, Any] = {
        "startedDateTime": started.astimezone(UTC).isoformat(timespec="microseconds"),
        "time": elapsed_ms,
        "request": _request_entry(request),
        "response": _response_entry(response),
        "cache": {},
        "timings": {"send": 0, "wait": elapsed_ms, "receive": 0},
    }
    if elapsed_s is not None:
        entry["_elapsed_s"] = elapsed_s
    at = interaction.recorded_at
    entry["_recorded_at"] = at.astimezone(UTC).isoformat() if at is not None else None
    return entry


def _request_entry(request: RecordedRequest) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "method": request.method,
        "url": request.uri,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _named(request.headers),
        "queryString": _named(parse_qsl(request.uri.partition("?")[2], keep_blank_values=True)),
        "headersSize": -1,
        "bodySize": len(request.body or b""),
    }
    if request.body is not None:
        mime = header(request.headers, "content-type") or ""
        text, encoding = _as_text(request.body, mime)
        entry["postData"] = {"mimeType": mime, "text": text}
        if encoding:
            entry["postData"]["_encoding"] = encoding
    return entry


def _response_entry(response: RecordedResponse) -> dict[str, Any]:
    mime = header(response.headers, "content-type") or ""
    text, encoding = _as_text(response.body, mime)
    content = {"size": len(response.body), "mimeType": mime, "text": text}
    return {
        "status": response.status,
        "statusText": response.reason,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _named(response.headers),
        "content": content | ({"encoding": encoding} if encoding else {}),
        "redirectURL": header(response.headers, "location") or "",
        "headersSize": -1,
        "bodySize": len(response.body),
    }


def _named(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _as_text(body: bytes, mime: str) -> tuple[str, str]:
    """Return a body as text, and how it is encoded where no text gives the same bytes again."""
    try:
        text = body.decode(_charset(mime))
        if text.encode(_charset(mime)) == body:
            return text, ""
    except (LookupError, ValueError):
        pass
    return base64.b64encode(body).decode("ascii"), "base64"


def _charset(mime: str) -> str:
    message = Message()
    message["Content-Type"] = mime.replace("\r", " ").replace("\n", " ")
    return message.get_content_charset("utf-8")


def read_har(text: bytes) -> list[Interaction]:
    """Return the interactions of a .har file as they are: nothing is redacted.

    Requests that got no answer are left out.

    Raises
    ------
    CassetteFormatError
        Where it is not HAR. The message names the entry, and none of its values.
    """
    try:
        entries = json.loads(text.decode("utf-8-sig"))["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError
    except ODD:
        raise CassetteFormatError(
            "The file is not HAR: it is not JSON with a list log.entries, or it is incomplete. "
            "Export it again."
        ) from None
    found = [_interaction(entry, number) for number, entry in enumerate(entries, 1)]
    return [each for each in found if each is not None]


def _interaction(entry: object, number: int) -> Interaction | None:
    try:
        if not isinstance(entry, dict):
            raise TypeError
        answer = entry.get("response") or {}
        # Chromium gives a request that was blocked or aborted the status 0, Firefox none.
        if not answer.get("status") or int(answer["status"]) <= 0:
            return None
        elapsed_s = _elapsed_s(entry)
        recorded_at = _recorded_at(entry, elapsed_s)
        return check_interaction(
            Interaction(_request(entry["request"]), _response(answer), recorded_at, elapsed_s)
        )
    except ODD as error:
        raise unreadable(f"Entry {number} of the HAR file", error) from None


def _request(entry: Mapping[str, Any]) -> RecordedRequest:
    uri = text_of(entry["url"])
    urlsplit(uri)
    query = _pairs(entry.get("queryString"))
    if query and "?" not in uri:
        # Insomnia keeps the query apart from the address.
        uri = f"{uri}?{urlencode(query)}"
    headers = _headers(entry)
    return RecordedRequest(text_of(entry.get("method") or "GET"), uri, headers, _posted(entry))


def _posted(entry: Mapping[str, Any]) -> bytes | None:
    posted = entry.get("postData")
    if not posted:
        return None
    if posted.get("text") is None and posted.get("params"):
        return urlencode(_pairs(posted["params"])).encode()
    return _body(posted, posted.get("_encoding") or posted.get("encoding"))


def _response(entry: Mapping[str, Any]) -> RecordedResponse:
    content = entry.get("content") or {}
    body = _body(content, content.get("encoding"))
    headers = _headers(entry)
    coding = header(headers, "content-encoding")
    if coding and _is_plain(body, coding):
        # HAR keeps a body decoded and the headers as they were sent: make them true to it.
        headers = tuple(
            (name, str(len(body)) if name.lower() == "content-length" else value)
            for name, value in headers
            if name.lower() != "content-encoding"
        )
    reason = text_of(entry.get("statusText") or "")
    return RecordedResponse(int(entry["status"]), reason, headers, body)


def _is_plain(body: bytes, coding: str) -> bool:
    try:
        return unpack(body, coding) == body
    except ValueError:
        return False


def _body(content: Mapping[str, Any], encoding: object) -> bytes:
    text = text_of(content.get("text") or "")
    if encoding == "base64":
        try:
            return base64.b64decode(text)
        except binascii.Error:
            raise ValueError from None
    try:
        return text.encode(_charset(text_of(content.get("mimeType") or "")))
    except (LookupError, UnicodeEncodeError):
        return text.encode("utf-8", "surrogatepass")


def _headers(entry: Mapping[str, Any]) -> Headers:
    # HTTP/2's own, such as :authority, are the request line.
    return tuple((n, v) for n, v in _pairs(entry.get("headers")) if not n.startswith(":"))


def _pairs(named: Iterable[Mapping[str, Any]] | None) -> Headers:
    return tuple((text_of(each["name"]), text_of(each.get("value") or "")) for each in named or ())


def _elapsed_s(entry: Mapping[str, Any]) -> float | None:
    if "_elapsed_s" in entry:
        return float(entry["_elapsed_s"])
    elapsed_ms = entry.get("time")
    return elapsed_ms / 1000 if isinstance(elapsed_ms, int | float) and elapsed_ms > 0 else None


def _recorded_at(entry: Mapping[str, Any], elapsed_s: float | None) -> datetime | None:
    stated = entry.get("_recorded_at", entry.get("startedDateTime"))
    if not isinstance(stated, str):
        return None
    try:
        at = datetime.fromisoformat(stated)
    except ValueError:
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at if "_recorded_at" in entry else at + timedelta(seconds=elapsed_s or 0.0)
