"""Reads HAR 1.2, the format in which browsers, Playwright and Polly.JS save traffic."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..display import ranges
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
    normalize_headers,
    unreadable,
)
from .layout import elapsed_s_of, recorded_at_of
from .library import stays_in

_WEB = re.compile("(?i)https?://")
_ATTACHED = re.compile(r"[0-9a-f]{40}(?:\.\w{1,10})?", re.ASCII)


def read_har(text: bytes, path: Path) -> tuple[list[Interaction], str | None]:
    """Return the interactions of a .har file, not redacted, and what was left out, or None.

    Left out are requests without a response, addresses that lead to no server, and entries that
    cannot be read.

    Raises
    ------
    CassetteFormatError
        The text is not HAR, or none of its entries can be read. The message names the first one,
        and none of its values.
    """
    try:
        entries = list(json.loads(text.decode("utf-8-sig"))["log"]["entries"])
    except MALFORMED:
        raise CassetteFormatError(
            f"{path} is not HAR: it is not JSON with a list log.entries, or it is incomplete.",
            "Export it again.",
        ) from None
    interactions = []
    odd: dict[int, CassetteFormatError] = {}
    for number, entry in enumerate(entries, 1):
        try:
            if _has_response(entry):
                interactions.append(check_interaction(_interaction(entry, path.parent)))
        except MALFORMED as error:
            odd[number] = unreadable(f"Entry {number} of {path}", error)
    if odd and not interactions:
        raise next(iter(odd.values()))
    problems = []
    if odd:
        problems.append(f"left out what cannot be read, number {ranges(odd)} of its entries")
    others = len(entries) - len(interactions) - len(odd)
    if others:
        why = "no response, or an address that leads to no server"
        problems.append(f"left out {others} of its {len(entries)} entries, which have {why}")
    return interactions, "; ".join(problems) or None


def _has_response(entry: Mapping[str, Any]) -> bool:
    # Chromium gives a request that was blocked or aborted the status 0, Firefox none.
    has_one = entry.get("response", {}).get("status", 0) > 0
    return has_one and _WEB.match(entry["request"]["url"]) is not None


def _interaction(entry: Mapping[str, Any], folder: Path) -> Interaction:
    sent = entry["request"]
    received = entry["response"]
    response = Response(
        received["status"],
        received["statusText"],
        _headers(received),
        _received(entry, folder),
    )
    elapsed_s = max(elapsed_s_of(entry["time"]) or 0.0, 0.0) / 1000
    at = recorded_at_of(entry["startedDateTime"])
    return Interaction(
        Request(sent["method"], sent["url"], _headers(sent), _posted(sent, folder)),
        normalize_headers(response, method=sent["method"]),
        at and at + timedelta(seconds=elapsed_s),
        elapsed_s or None,
    )


def _received(entry: Mapping[str, Any], folder: Path) -> bytes:
    received = entry["response"]
    content = received["content"]
    body = _body(content, folder)
    if body is None:
        size = content.get("size", -1)
        # Playwright leaves out the body of a redirect. A replay can follow the redirect without it.
        bodiless = received["status"] in (204, *range(300, 400))
        is_empty = size == 0 or bodiless or entry["request"]["method"] == "HEAD"
        return b"" if is_empty else _missing(size)
    coding = header(_headers(received), "content-encoding")
    with suppress(ValueError):  # most programs save the decoded body, but unchanged headers
        return unpack(body, coding) if coding else body
    return body


def _posted(sent: Mapping[str, Any], folder: Path) -> bytes | None:
    posted = sent.get("postData")
    size = sent.get("bodySize", -1)
    if not posted:
        return _missing(size) if size > 0 else None
    body = _body(posted, folder)
    if not body and posted.get("params") and "multipart" not in posted["mimeType"]:
        return urlencode(_pairs(posted["params"])).encode()
    # Chromium leaves out the files of an upload.
    return _missing(size) if body is None or (not body and size > 0) else body


def _missing(size: int) -> bytes:
    return missing_body(size if size > 0 else None)  # -1 if it is not known


def _body(content: Mapping[str, Any], folder: Path) -> bytes | None:
    """Return a body; None if the file does not have it."""
    text = content.get("text")
    if text is None:
        return _attached(folder, content.get("_file", ""))
    if content.get("encoding") == "base64":
        # Polly.JS writes a list of chunks.
        chunks = json.loads(text) if text.startswith("[") else [text]
        decode = partial(base64.b64decode, validate=True)
        return b"".join(decode("".join(each.split())) for each in chunks)
    charset = declared_charset(content.get("mimeType", "")) or "utf-8"
    with suppress(LookupError, UnicodeEncodeError):
        return bytes(text.encode(charset))
    return bytes(text.encode("utf-8", "surrogatepass"))


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


def _headers(message: Mapping[str, Any]) -> Headers:
    # The pseudo-headers of HTTP/2, such as :authority, repeat the request line.
    return tuple(pair for pair in _pairs(message["headers"]) if not pair[0].startswith(":"))


def _pairs(named: Iterable[Mapping[str, str]]) -> Headers:
    return tuple((pair["name"], pair["value"]) for pair in named)
