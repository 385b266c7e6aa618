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


class Rewriting:
    """Turns a service's origin into a server's own, and back; paths stay as they are.

    It changes the headers ``Link``, ``Location``, ``Content-Location`` and ``Refresh``, and JSON
    bodies.

    Parameters
    ----------
    own
        The server's origin.
    addresses
        The base addresses of the services that the server answers for.
    """

    def __init__(self, own: str, addresses: Iterable[str]) -> None:
        self._own = own
        hosts = {re.escape(urlsplit(address).netloc) for address in addresses}
        # The scheme may be missing: `//api.example.com/v1` leads there, too. JSON may have `\/`.
        start = r"(?:https?:|(?<![\w:/\\]))\\?/\\?/(?:[^/?#@\s\"\\]*@)?"
        end = r"(?::(?:80|443))?(?![\w.:@%-])"
        self._theirs = re.compile(f"{start}(?:{'|'.join(hosts)}){end}", re.IGNORECASE)

    def to_client(self, response: Response) -> Response:
        """Return a response whose addresses lead to the server."""
        headers = []
        for name, value in response.headers:
            is_address = name.lower() in _HEADERS
            headers.append((name, self._rewritten(value) if is_address else value))
        body = response.body
        if "json" in (header(response.headers, "content-type") or ""):
            body = self._rewritten(body.decode("latin-1")).encode("latin-1")
        if body == response.body:
            return replace(response, headers=tuple(headers))
        return normalize_headers(replace(response, headers=tuple(headers), body=body))

    def to_service(self, request: Request, origin: str) -> Request:
        """Return a request to the service's origin, also where it repeats the server's own."""
        uri = f"{origin}{request.uri}"
        body = request.body or b""
        for spelled in (str, partial(quote, safe="")):
            own = spelled(self._own)
            theirs = spelled(origin)
            uri = uri.replace(own, theirs)
            body = body.replace(own.encode(), theirs.encode())
        return replace(request, uri=uri, body=body)

    def _rewritten(self, text: str) -> str:
        def own(address: re.Match[str]) -> str:
            is_escaped = "\\/" in address[0]
            return self._own.replace("/", "\\/") if is_escaped else self._own

        return self._theirs.sub(own, text)
