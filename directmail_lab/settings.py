"""The settings of a session: environment variables, service addresses, regions."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import AddressError, DirectMailLabError, NotConnectedError

_EXTENSION = Path(__file__).parent / "jupyter/labextension/package.json"

VERSION: str = json.loads(_EXTENSION.read_bytes())["version"]
"""The version of this package, from the one file that states it."""

API_KEY_VARIABLE = "DIRECTMAIL_API_KEY"
BASE_URL_VARIABLE = "DIRECTMAIL_BASE_URL"
REGIONS_VARIABLE = "DIRECTMAIL_REGIONS"
CASSETTES_VARIABLE = "DIRECTMAIL_CASSETTES"
LIVE_VARIABLE = "DIRECTMAIL_LIVE"

NO_ADDRESS = "https://recorded.invalid"
"""The service address of a session that has none. No server can have this address."""

# Addresses without a scheme: `api.example.com/eu`, `localhost:8080`, `[::1]`. A key typed in
# place of the address does not match, so no message repeats it.
_BARE_ADDRESS = re.compile(
    r"(?:localhost|[\d.]+|\[[\da-f:.]+\]|(?:[a-z\d-]+\.)+[a-z]{2,})(?::\d+)?(?:/.*)?", re.IGNORECASE
)
# service.md part 9: every path begins with the version, so a service address ends before it.
_WITH_PATH = re.compile(r"(.*?)/v1(?:/users/me)?/*", re.IGNORECASE)


def variable(name: str) -> str | None:
    """Return an environment variable without the space around it; None if it is unset or empty.

    IPython's ``%xmode Verbose`` prints the values of all names on a line that raises. For a line
    with ``os.environ`` on it, that would print the key. No line of this function raises.
    """
    value = os.environ.get(name)
    return value.strip() or None if value else None


def base_address(text: str, *, only_replays: bool = False) -> str:
    """Return a service address without a trailing slash and a query. A path prefix is kept.

    The default scheme is https. With ``only_replays``, any http address is accepted, since nothing
    is ever sent there.

    Raises
    ------
    AddressError
        ``text`` is not an address, has user info (httpx would print it), ends with the version
        or a path of the service, or is plain http to another machine. The message never repeats
        user info, which may be the key.
    """
    address = text.strip() if isinstance(text, str) else ""
    if lacks_scheme(address):
        address = f"https://{address}"
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise AddressError(
            "The service address contains a user name or password, which would be printed with it.",
            "Give the address alone, and the key separately.",
        )
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises ValueError if the port is not a number
    except ValueError:
        parts = urlsplit("")
    # Python drops a tab, but httpx refuses it.
    if not address.isprintable() or parts.scheme not in ("http", "https") or not parts.hostname:
        # Text without :// may be a key, so it is not repeated.
        shown = f"{address[:60]!r}" if "://" in address else "The value given"
        raise AddressError(
            f"{shown} is not a service address or the name of a configured region.",
            "Give an address such as https://api.example.com.",
        )
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    if not only_replays:
        _check_live_address(base, parts.hostname)
    return base


def lacks_scheme(address: str) -> bool:
    """Return whether a text is an address without its scheme, such as ``api.example.com/eu``."""
    return _BARE_ADDRESS.fullmatch(address) is not None


def _check_live_address(base: str, host: str) -> None:
    longer = _WITH_PATH.fullmatch(base)
    if longer:
        raise AddressError(
            f"{base} is more than the service address: paths such as /v1/users/me are added to it.",
            f"Give {longer[1]}.",
        )
    if base.startswith("http:") and not is_loopback(host):
        raise AddressError(
            f"http://{host} would send the key unencrypted.",
            "Use https:// (plain http is accepted for this machine alone).",
        )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


Origin = tuple[str, str | None, int | None]
"""Scheme, host and port of an address."""

_connected: set[Origin] = set()


def origin_of(url: Any) -> Origin:
    """Return the origin of an address, a text or an `httpx.URL`. A key belongs to one origin."""
    if isinstance(url, str):
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme)


_PORTS = {"http": 80, "https": 443}


def trust_origin(base_url: str) -> None:
    """Trust the origin of an address from now on, since this process connects to it with a key."""
    _connected.add(origin_of(base_url))


_stand_ins: set[Origin] = set()


def add_stand_in(base_url: str) -> None:
    """Note the address of a stand-in service that this process has started."""
    _stand_ins.add(origin_of(base_url))


def stand_ins() -> frozenset[Origin]:
    """Return the origins of the stand-in services of this process, where a write costs nothing."""
    return frozenset(_stand_ins)


def trusted_origins() -> frozenset[Origin]:
    """Return the origins that the user chose. A key may go there, and nowhere else.

    They are the origins that this process connected to, and those that ``DIRECTMAIL_BASE_URL``,
    ``DIRECTMAIL_REGIONS`` and the user's ``regions.toml`` name. A recording never adds one.
    """
    named: list[str] = []
    with suppress(DirectMailLabError):  # a setting that is not valid adds no origin
        named += configured_regions().values()
    with suppress(DirectMailLabError):
        named.append(base_address(variable(BASE_URL_VARIABLE) or ""))
    return frozenset(_connected | set(map(origin_of, named)))


def regions_file() -> Path | None:
    """Return the path of the user's file of regions, which may not exist; None without a home."""
    # Imported here, since it is needed only if no address is given.
    from platformdirs import user_config_path

    with suppress(RuntimeError):  # no HOME, and a user id without an entry
        return user_config_path("directmail-lab", appauthor=False) / "regions.toml"
    return None


def configured_regions() -> dict[str, str]:
    """Return the configured regions, name to service address; empty if there are none.

    The user's ``regions.toml`` has a line ``name = "https://…"`` for each, with or without the
    table ``[regions]``. ``DIRECTMAIL_REGIONS`` has ``name=https://…``, separated by commas; it
    overrides the file.

    Raises
    ------
    AddressError
        The file cannot be read or is not TOML, or an entry is not a safe service address.
    """
    import tomllib  # only here: few tests replay by a region's name

    path = regions_file()
    try:
        # Windows' editors put a byte order mark before UTF-8.
        table = tomllib.loads(path.read_text(encoding="utf-8-sig")) if path else {}
        regions = dict(table.get("regions", table))
    except FileNotFoundError:
        regions = {}
    except (OSError, TypeError, ValueError) as error:
        raise AddressError(f"{path} cannot be read ({error}).", "Fix or remove it.") from None
    for entry in (variable(REGIONS_VARIABLE) or "").split(","):
        name, _, address = entry.partition("=")
        if entry:
            regions[name.strip()] = address
    return {name: base_address(address) for name, address in regions.items()}


def choose_address(given: str | None = None) -> str:
    """Return the service address: the one given, else the environment's, the only region's, or
    the one that the sign-in form remembers.

    A region's name stands for its address.

    Raises
    ------
    NotConnectedError
        No service address was found.
    AddressError
        It is not a safe service address.
    """
    regions = configured_regions()
    address = _chosen(given)
    if address is not None:
        return regions.get(address) or base_address(address)
    raise NotConnectedError(
        "No service address was found.",
        f"Call dm.connect(base_url=…), or set {BASE_URL_VARIABLE}. "
        f"Configured regions: {', '.join(sorted(regions)) or 'none'}.",
    )


def _chosen(given: str | None) -> str | None:
    """Return the address, or the name of a region, that `choose_address` returns the address of."""
    if given is not None:
        return given
    regions = configured_regions()
    only = next(iter(regions)) if len(regions) == 1 else None
    return variable(BASE_URL_VARIABLE) or only or remembered_address()


# -- what belongs to an address ------------------------------------------------------------------


def keyring_entry(given: str | None = None) -> str:
    """Return the name of the keyring's entry for an address, or for the name of a region.

    It is the address. If several regions have that address, as for two accounts, it is the address
    and the name.
    """
    address = choose_address(given)
    name = _chosen(given)
    names = [each for each, own in configured_regions().items() if own == address]
    return f"{address} {name}" if len(names) > 1 and name in names else address


def keyring_entries(address: str | None = None) -> set[str]:
    """Return the names of all entries of the keyring for an address, or for all regions."""
    entries = set() if address is None else {address}
    for name, own in configured_regions().items():
        if address in (None, own):
            entries.update((own, keyring_entry(name)))
    return entries


def remembered_address() -> str | None:
    """Return the address, or the name of a region, that `remember_address` kept last, if any."""
    with suppress(OSError, ValueError, DirectMailLabError):
        text = _remembered_file().read_text(encoding="utf-8").strip()
        if "://" in text or text in configured_regions():
            return text
    return None


def remember_address(given: str) -> None:
    """Keep an address, or the name of a region, for later sessions; but no stand-in's.

    A stand-in has another port each time.
    """
    if origin_of(choose_address(given)) in stand_ins():
        return
    with suppress(OSError):
        file = _remembered_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(given, encoding="utf-8")


def forget_address(address: str) -> None:
    """Forget the address if `remember_address` kept it."""
    remembered = remembered_address()
    if remembered is not None and choose_address(remembered) == address:
        _remembered_file().unlink(missing_ok=True)


def _remembered_file() -> Path:
    regions = regions_file()
    if regions is None:
        raise FileNotFoundError("There is no folder for settings.")
    return regions.with_name("remembered.txt")
