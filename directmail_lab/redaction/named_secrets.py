"""Credentials known by name alone: headers, ``api_key`` parameters, user info in addresses."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..interaction import Headers, Interaction

__all__ = [
    "PLACEHOLDER",
    "may_name_a_key",
    "secrets_in",
    "without_key_fields",
    "without_key_parameters",
    "without_user_info",
    "writable_headers",
]

PLACEHOLDER: Final = "<API_KEY>"
"""What stands where the key stood, as the service's document writes it."""

# Never written: each is a credential, or is as good as one.
_DROPPED: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "cookie2", "set-cookie", "set-cookie2")
)
_MASKED: Final = frozenset(("api-key", "api_key", "apikey", "x-api-key", "x-api_key", "x-apikey"))
_SPECIAL: Final = _DROPPED | _MASKED

_PARAMETER = re.compile(
    r"((?:^|[?&;])api[-_]?key=)(?!<API_KEY>)[^&;#\s\"'<>\\]+", re.IGNORECASE | re.MULTILINE
)
_FIELD = re.compile(
    r"(\\*\"api[-_]?key\\*\"\s*:\s*\\*\")(?!<API_KEY>)(?:[^\"\\]|\\[^\"])+", re.IGNORECASE
)
_ANY_PARAMETER = re.compile(r"(^|[&;])([^=&;#]*)=([^&;#]*)")
_USER_INFO = re.compile(r"(://)[^/?#@\s\"'<>\\]+@")


def writable_headers(headers: Headers) -> Headers:
    """Return the headers that may be written at all, those named for a key without their value."""
    for name, _ in headers:
        if name.lower() in _SPECIAL:
            break
    else:
        return headers
    return tuple(
        (name, PLACEHOLDER if name.lower() in _MASKED else value)
        for name, value in headers
        if name.lower() not in _DROPPED
    )


def may_name_a_key(text: str) -> bool:
    """Return whether a text is worth a closer look by the functions below."""
    if "@" in text and _USER_INFO.search(text):
        return True
    low = text.lower()
    return "api_key" in low or "apikey" in low or "api-key" in low


def without_key_fields(text: str) -> str:
    """Return a text without the values of ``api_key`` parameters and JSON fields in it."""
    return _FIELD.sub(rf"\1{PLACEHOLDER}", _PARAMETER.sub(rf"\1{PLACEHOLDER}", text))


def without_user_info(text: str) -> str:
    """Return a text whose addresses have no user name or password before the host."""
    return _USER_INFO.sub(rf"\1{PLACEHOLDER}@", text)


def without_key_parameters(uri: str) -> str:
    """Return an address without the value of its ``api_key``, however that name is escaped."""
    head, mark, query = uri.partition("?")
    return head + mark + _ANY_PARAMETER.sub(_without_value, query) if mark else uri


def _without_value(match: re.Match[str]) -> str:
    name = unquote(match[2]).lower().replace("-", "").replace("_", "")
    return f"{match[1]}{match[2]}={PLACEHOLDER}" if name == "apikey" else match[0]


def secrets_in(interactions: Iterable[Interaction]) -> frozenset[str]:
    """Return the credentials that recordings of another program carry, so they can be removed.

    They are known by where they stand: an ``Authorization``, an ``api_key``, an ``X-Api-Key``. A
    service may have echoed them anywhere else.
    """
    return frozenset(
        secret
        for interaction in interactions
        for secret in _secrets_of(interaction)
        if secret.isascii() and secret.isprintable() and PLACEHOLDER not in secret
    )


def _secrets_of(interaction: Interaction) -> Iterator[str]:
    uri, headers = interaction.request.uri, interaction.request.headers
    for name, value in headers:
        if name.lower() in ("authorization", "proxy-authorization"):
            yield from _credentials(value)
        elif name.lower() in _MASKED:
            yield value
    try:
        parts = urlsplit(uri)
    except ValueError:
        return
    yield from filter(None, (parts.username, parts.password))
    for name, value in parse_qsl(parts.query):
        if name.lower().replace("-", "").replace("_", "") == "apikey":
            yield value


def _credentials(authorization: str) -> Iterator[str]:
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        yield from filter(None, (token.strip(),))
        return
    try:
        pair = b64decode(token.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        yield token.strip()
        return
    yield from filter(None, pair.partition(":")[::2])
