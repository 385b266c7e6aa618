"""The addresses in what a local server answers: those of the service become the server's own.

Otherwise a client that follows a link goes past the server, to the live service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit

from .errors import CassetteError
from .exchange.bodies import unpack
from .exchange.values import RecordedRequest, RecordedResponse, header, normalize_headers

_HEADERS: Final = frozenset(("link", "location", "content-location"))
_SLASH: Final = r"\\?/"  # JSON may have \/
_DEFAULT_PORT: Final = r"(?::(?:80|443))?"


class Rewriting:
    """Turns a service's addresses into a server's own, and back.

    They are changed in the headers ``Link``, ``Location`` and ``Content-Location``, and in JSON.

    Parameters
    ----------
    own
        The server's base address.
    bases
        Those of the services that it answers for.
    recorded
        All addresses of the cassettes that are replayed: none of another host may reach a client.
    """

    def __init__(self, own: str, bases: Iterable[str], recorded: Iterable[str] = ()) -> None:
        self._own = own
        bases = [base for base in bases if base]
        self._theirs = _any_of(bases)
        self._prefixes = [path for base in bases if (path := urlsplit(base).path.rstrip("/"))]
        origins = {"/".join(address.split("/", 3)[:3]) for address in recorded}
        self._others = _any_of(origins - {base for base in bases if base in origins})

    def to_client(self, response: RecordedResponse) -> RecordedResponse:
        """Return a response whose addresses lead to the server.

        Raises
        ------
        CassetteError
            One leads to another host that is recorded, too.
        """
        headers = tuple(
            (name, self._own_header(value) if name.lower() in _HEADERS else value)
            for name, value in response.headers
        )
        response = replace(response, headers=headers)
        if "json" not in (header(headers, "content-type") or ""):
            return response
        try:
            text = unpack(response.body, header(headers, "content-encoding") or "")
        except ValueError:  # not compressed as it says
            return response
        own = self._own_text(text.decode("latin-1")).encode("latin-1")
        return response if own == text else normalize_headers(replace(response, body=own))

    def to_service(self, request: RecordedRequest, base_url: str) -> RecordedRequest:
        """Return a request without the server's own address in its query and its body."""
        pairs = [(self._own, base_url), (quote(self._own, safe=""), quote(base_url, safe=""))]
        uri, body = request.uri, request.body
        for own, theirs in pairs:
            pattern = rf"{re.escape(own)}(?!\d)"
            uri = theirs.join(re.split(pattern, uri))
            body = body and theirs.encode().join(re.split(pattern.encode(), body))
        return replace(request, uri=uri, body=body)

    def _own_header(self, value: str) -> str:
        for prefix in self._prefixes:  # the server's paths are below it
            value = re.sub(rf"(^|<){re.escape(prefix)}(?=/)", r"\1", value)
        return self._own_text(value)

    def _own_text(self, text: str) -> str:
        def own(address: re.Match[str]) -> str:
            return self._own.replace("/", "\\/") if "\\/" in address[0] else self._own

        if self._theirs is not None:
            text = self._theirs.sub(own, text)
        if self._others is not None and (other := self._others.search(text)):
            raise CassetteError(
                f"The response leads to {other['host']}, which is recorded, too, but another host "
                "than this server answers for. The client would go to the live one.",
                "In a test, mark it directmail(patch=True), and let the client use the "
                "service's own address.",
            )
        return text


def _any_of(bases: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for an address at or below one of ``bases``, up to the end of that base.

    Its scheme may be the other one, or none: ``//api.example.com/v1`` leads there, too.
    """
    places = []
    for base in bases:
        parts = urlsplit(base)
        netloc = parts.netloc.rpartition("@")[2]
        port = "" if parts.port else _DEFAULT_PORT
        path = re.escape(parts.path.rstrip("/")).replace("/", _SLASH)
        places.append(f"{re.escape(netloc)}{port}{path}")
    if not places:
        return None
    # The longest first: a base address may be below another.
    places.sort(key=len, reverse=True)
    start = rf"(?:https?:|(?<![\w:/\\])){_SLASH}{_SLASH}(?:[^/?#@\s\"\\]*@)?"
    return re.compile(rf"{start}(?P<host>{'|'.join(places)})(?![\w.:@%-])", re.IGNORECASE)
