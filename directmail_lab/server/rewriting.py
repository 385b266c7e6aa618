"""Rewrite the service's addresses in the responses of a local server to the server's own.

Otherwise, a client that follows a link would bypass the server and reach the live service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from urllib.parse import quote, urlsplit

from ..exchange.values import Request, Response, header, normalize_headers

_HEADERS = frozenset(("link", "location", "content-location", "refresh"))


def origins_of(addresses: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the origins of service addresses, wherever a text has one."""
    hosts = {re.escape(urlsplit(address).netloc) for address in addresses}
    # The scheme may be missing: `//api.example.com/v1` leads there, too. JSON may have `\/`.
    start = r"(?:https?:|(?<![\w:/\\]))\\?/\\?/(?:[^/?#@\s\"\\]*@)?"
    end = r"(?::(?:80|443))?(?![\w.:@%-])"
    return re.compile(f"{start}(?:{'|'.join(hosts)}){end}", re.IGNORECASE)


def to_client(response: Response, theirs: re.Pattern[str], own: str) -> Response:
    """Return a response whose addresses lead to the server's own origin; paths stay as they are.

    It changes the headers ``Link``, ``Location``, ``Content-Location`` and ``Refresh``, and JSON
    bodies. ``theirs`` is the pattern of `origins_of`.
    """

    def spelled(address: re.Match[str]) -> str:
        return own.replace("/", "\\/") if "\\/" in address[0] else own

    headers = []
    for name, value in response.headers:
        is_address = name.lower() in _HEADERS
        headers.append((name, theirs.sub(spelled, value) if is_address else value))
    body = response.body
    if "json" in (header(response.headers, "content-type") or ""):
        body = theirs.sub(spelled, body.decode("latin-1")).encode("latin-1")
    rewritten = replace(response, headers=tuple(headers), body=body)
    return rewritten if body == response.body else normalize_headers(rewritten)


def to_service(request: Request, own: str, theirs: str) -> Request:
    """Return a request to the service's origin, also where it repeats the server's own."""
    uri = f"{theirs}{request.uri}"
    body = request.body or b""
    for spelled in (str, partial(quote, safe="")):
        uri = uri.replace(spelled(own), spelled(theirs))
        body = body.replace(spelled(own).encode(), spelled(theirs).encode())
    return replace(request, uri=uri, body=body)
