"""HAR 1.2: the format that browsers, Playwright, mitmproxy and Insomnia save traffic in.

Writing follows the specification exactly; what it does not define is in fields that begin with an
underscore, as it allows. Reading accepts what other programs leave out or do differently.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from ..bodies import charset_in
from ..errors import CassetteFormatError
from ..interaction import (
    ODD,
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    check_interaction,
    header,
    normalize_headers,
    unreadable,
)
from ..redaction.unpack import unpack
from .layout import elapsed_s_of, recorded_at_of, text_of

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
    at = interaction.recorded_at
    return {
        "startedDateTime": started.astimezone(UTC).isoformat(timespec="microseconds"),
        "time": elapsed_ms,
        "request": _request_entry(request),
        "response": _response_entry(response),
        "cache": {},
        "timings": {"send": 0, "wait": elapsed_ms, "receive": 0},
        "_elapsed_s": elapsed_s,
        "_recorded_at": at.astimezone(UTC).isoformat() if at is not None else None,
    }


def _request_entry(request: RecordedRequest) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "method": request.method,
        "url": request.uri,
        "queryString": _named(parse_qsl(request.uri.partition("?")[2], keep_blank_values=True)),
        **_common(request.headers, request.body or b""),
    }
    if request.body is not None:
        mime, text, encoding = _as_text(request.body, request.headers)
        encoded = {"_encoding": encoding} if encoding else {}
        entry["postData"] = {"mimeType": mime, "text": text, **encoded}
    return entry


def _response_entry(response: RecordedResponse) -> dict[str, Any]:
    mime, text, encoding = _as_text(response.body, response.headers)
    content = {"size": len(response.body), "mimeType": mime, "text": text}
    return {
        "status": response.status,
        "statusText": response.reason,
        "content": content | ({"encoding": encoding} if encoding else {}),
        "redirectURL": header(response.headers, "location") or "",
        **_common(response.headers, response.body),
    }


def _common(headers: Headers, body: bytes) -> dict[str, Any]:
    return {
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _named(headers),
        "headersSize": -1,
        "bodySize": len(body),
    }


def _named(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _as_text(body: bytes, headers: Headers) -> tuple[str, str, str]:
    """Return a body's type, its text, and ``"base64"`` if the bytes are not plain text."""
    mime = header(headers, "content-type") or ""
    charset = charset_in(mime) or "utf-8"
    with suppress(LookupError, ValueError):
        text = body.decode(charset)
        if text.encode(charset) == body:
            return mime, text, ""
    return mime, base64.b64encode(body).decode("ascii"), "base64"


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
    found = (_interaction(entry, number) for number, entry in enumerate(entries, 1))
    return [each for each in found if each is not None]


def _interaction(entry: Any, number: int) -> Interaction | None:
    try:
        response = entry.get("response") or {}
        # Chromium gives a request that was blocked or aborted the status 0, Firefox none.
        if not response.get("status") or int(response["status"]) <= 0:
            return None
        request = _request(entry["request"])
        response = _response(response, request.method)
        return check_interaction(Interaction(request, response, *_times(entry)))
    except ODD as error:
        raise unreadable(f"Entry {number} of the HAR file", error) from None


def _request(entry: Mapping[str, Any]) -> RecordedRequest:
    uri = text_of(entry["url"])
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


def _response(entry: Mapping[str, Any], method: str) -> RecordedResponse:
    content, headers = entry.get("content") or {}, _headers(entry)
    body = _body(content, content.get("encoding"))
    with suppress(ValueError):  # most programs save the decoded body with the headers as sent
        body = unpack(body, header(headers, "content-encoding") or "")
    response = RecordedResponse(
        int(entry["status"]), text_of(entry.get("statusText") or ""), headers, body
    )
    return normalize_headers(response, method=method)


def _body(content: Mapping[str, Any], encoding: object) -> bytes:
    text = text_of(content.get("text") or "")
    if encoding == "base64":
        return base64.b64decode(text)
    with suppress(LookupError, UnicodeEncodeError):
        return text.encode(charset_in(text_of(content.get("mimeType") or "")) or "utf-8")
    return text.encode("utf-8", "surrogatepass")


def _headers(entry: Mapping[str, Any]) -> Headers:
    # The pseudo-headers of HTTP/2, such as :authority, repeat the request line.
    return tuple((n, v) for n, v in _pairs(entry.get("headers")) if not n.startswith(":"))


def _pairs(named: Iterable[Mapping[str, Any]] | None) -> Headers:
    return tuple((text_of(each["name"]), text_of(each.get("value") or "")) for each in named or ())


def _times(entry: Mapping[str, Any]) -> tuple[datetime | None, float | None]:
    """Return when the answer came, and the seconds until then."""
    if "_recorded_at" in entry:
        return recorded_at_of(entry["_recorded_at"]), elapsed_s_of(entry.get("_elapsed_s"))
    elapsed_ms = elapsed_s_of(entry.get("time")) or 0.0
    elapsed_s = elapsed_ms / 1000 if elapsed_ms > 0 else None
    started = recorded_at_of(entry.get("startedDateTime"))
    return started and started + timedelta(seconds=elapsed_s or 0.0), elapsed_s
