"""What a session is told from outside: addresses, regions, environment variables."""

from __future__ import annotations

import ipaddress
import tomllib
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from .errors import InsecureAddressError, NotConnectedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "API_KEY_VARIABLE",
    "BASE_URL_VARIABLE",
    "CASSETTES_VARIABLE",
    "REGIONS_VARIABLE",
    "base_address",
    "choose_address",
    "is_loopback",
    "origin",
    "parse_regions",
]

API_KEY_VARIABLE: Final = "DIRECTMAIL_API_KEY"
BASE_URL_VARIABLE: Final = "DIRECTMAIL_BASE_URL"
REGIONS_VARIABLE: Final = "DIRECTMAIL_REGIONS"
CASSETTES_VARIABLE: Final = "DIRECTMAIL_CASSETTES"

_DEFAULT_PORTS = {"http": 80, "https": 443}


def base_address(text: str) -> str:
    """Return a base address in its one form: no last slash, no query; a path prefix is kept.

    Raises
    ------
    InsecureAddressError
        Where ``text`` has no scheme or host, has user info (httpx would print it), or is plain http
        to anything but loopback. The message never repeats user info, which may be the key.
    """
    address = text.strip()
    parts = _split(address)
    if parts.username is not None or parts.password is not None:
        raise InsecureAddressError(
            "The base address holds a user name or password before its host, where it would be "
            "printed. Write the address alone and give the key as api_key."
        )
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InsecureAddressError(
            f"{_shown(address)} is not a base address. Write it whole, with https:// in front, "
            "such as https://api.example.com."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise InsecureAddressError(
            f"http://{parts.hostname} would send the key unencrypted. Use https:// "
            "(plain http is accepted for this machine alone)."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port  # a port that is no number shows only when it is asked for
    except ValueError:
        raise InsecureAddressError(
            "The base address cannot be read. Write it as https://api.example.com."
        ) from None
    return parts


def _shown(address: str) -> str:
    """Return a typed address for a message, short, and nothing of what might be a key in it."""
    if not address:
        return "An empty text"
    return "A text without a scheme" if "://" not in address else f"{address[:60]!r}"


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL: what must be equal for the key to be sent along."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def parse_regions(toml: str, variable: str = "") -> dict[str, str]:
    """Return the configured regions, name to base address.

    Parameters
    ----------
    toml
        The user's ``regions.toml``: lines of ``name = "https://…"``, below ``[regions]`` or bare.
    variable
        The value of ``DIRECTMAIL_REGIONS``: ``name=https://…`` separated by commas. It wins.

    Raises
    ------
    InsecureAddressError
        Where an entry is not a safe base address.
    """
    try:
        table = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise NotConnectedError(f"regions.toml is not TOML ({error}). Mend or remove it.") from None
    named = table.get("regions", table)
    pairs = [(name, address) for name, address in named.items() if isinstance(address, str)]
    for entry in filter(None, (part.strip() for part in variable.split(","))):
        name, _, address = entry.partition("=")
        pairs.append((name.strip(), address))
    return {name: base_address(address) for name, address in pairs}


def choose_address(given: str | None, regions: Mapping[str, str], variable: str | None) -> str:
    """Return the base address: the one given, then the environment's, then the only region's.

    A region's name stands for its address.

    Raises
    ------
    NotConnectedError
        Where none of the three says one.
    """
    if given is not None or variable:
        named = given if given is not None else variable or ""
        return regions.get(named) or base_address(named)
    if len(regions) == 1:
        return next(iter(regions.values()))
    known = f" or one of the regions {', '.join(sorted(regions))}" if regions else ""
    raise NotConnectedError(
        f"No base address. Give connect(base_url=…){known}, or set {BASE_URL_VARIABLE}."
    )
