"""Rewrite the service's addresses in the responses of a local server to the server's own.

Otherwise, a client that follows a link would bypass the server and reach the live service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote, urlsplit

from ..errors import CassetteError
from ..exchange.bodies import unpack
from ..exchange.values import Request, Response, header, normalize_headers

_HEADERS = frozenset(("link", "location", "content-location", "refresh"))
_SLASH = r"\\?/"  # JSON may have \/
_DEFAULT_PORT = r"(?::(?:80|443))?"


class Rewriting:
    """Turns a service's addresses into a server's own, and back.

    It changes the headers ``Link``, ``Location``, ``Content-Location`` and ``Refresh``, and JSON
    bodies.

    Parameters
    ----------
    own
        The server's base address.
    bases
        The base addresses of the services that the server answers for.
    recorded
        All addresses in the replayed cassettes. A response that leads to another of their hosts is
        refused.
    """

    def __init__(self, own: str, bases: Iterable[str], recorded: Iterable[str] = ()) -> None:
        self._own = own
        bases = [base for base in bases if base]
        self._theirs = _any_of(bases)
        self._prefixes = []
        for base in bases:
            path = urlsplit(base).path.rstrip("/")
            if path:
                self._prefixes.append(path)
        origins = {"/".join(address.split("/", 3)[:3]) for address in recorded}
        self._others = _any_of(origins.difference(bases))

    def to_client(self, response: Response) -> Response:
        """Return a response whose addresses lead to the server.

        Raises
        ------
        CassetteError
            An address leads to a recorded host that this server does not answer for.
        """
        headers = []
        for name, value in response.headers:
            is_address = name.lower() in _HEADERS
            headers.append((name, self._own_header(value) if is_address else value))
        response = replace(response, headers=tuple(headers))
        if "json" not in (header(response.headers, "content-type") or ""):
            return response
        try:
            text = unpack(response.body, header(response.headers, "content-encoding"))
        except ValueError:  # the body is not compressed as its header says
            return response
        own = self._own_text(text.decode("latin-1")).encode("latin-1")
        if own == text:
            return response
        return normalize_headers(replace(response, body=own))

    def to_service(self, request: Request, base_url: str) -> Request:
        """Return a request with the service's address in place of the server's own."""
        pairs = {self._own: base_url, quote(self._own, safe=""): quote(base_url, safe="")}
        uri = request.uri
        body = request.body
        for own, theirs in pairs.items():
            pattern = rf"{re.escape(own)}(?!\d)"
            uri = theirs.join(re.split(pattern, uri))
            body = body and theirs.encode().join(re.split(pattern.encode(), body))
        return replace(request, uri=uri, body=body)

    def _own_header(self, value: str) -> str:
        for prefix in self._prefixes:  # the server's paths do not have this prefix
            # `</eu/v1>; rel="next"` of Link, and `5; url=/eu/v1` of Refresh.
            start = r"(^|<|\b(?i:url)\s*=\s*[\"']?)"
            value = re.sub(rf"{start}{re.escape(prefix)}(?=/)", r"\1", value)
        return self._own_text(value)

    def _own_text(self, text: str) -> str:
        def own(address: re.Match[str]) -> str:
            is_escaped = "\\/" in address[0]
            return self._own.replace("/", "\\/") if is_escaped else self._own

        text = self._theirs.sub(own, text)
        other = self._others.search(text)
        if other:
            raise CassetteError(
                f"The response leads to {other['host']}, a recorded host that this server does not "
                "answer for. The client would reach the live host.",
                "In a test, use the mark directmail(patch=True), and let the client use the "
                "service's own address.",
            )
        return text


def _any_of(bases: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for an address at or below one of ``bases``, up to the end of that base.

    The scheme may be http, https or missing: ``//api.example.com/v1`` leads there, too.
    """
    places = []
    for base in bases:
        parts = urlsplit(base)
        netloc = parts.netloc.rpartition("@")[2]
        port = "" if parts.port else _DEFAULT_PORT
        path = re.escape(parts.path.rstrip("/")).replace("/", _SLASH)
        places.append(f"{re.escape(netloc)}{port}{path}")
    if not places:
        return re.compile("(?!)")  # it matches nothing
    # The longest come first, since one base address may be below another.
    places.sort(key=len, reverse=True)
    start = rf"(?:https?:|(?<![\w:/\\])){_SLASH}{_SLASH}(?:[^/?#@\s\"\\]*@)?"
    return re.compile(rf"{start}(?P<host>{'|'.join(places)})(?![\w.:@%-])", re.IGNORECASE)
