"""While a test replays or records, no client but its session connects to its service.

Another client's requests would be neither recorded nor replayed, but sent. Nothing is patched:
Python tells an audit hook about each name that is looked up, and about each connection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from types import FrameType
from typing import Any

from ..errors import DirectMailLabError
from ..sessions.transports.connections import lookups, sends_here
from ..settings import is_loopback, origin_of

_Place = tuple[str, int]

_EVENTS = frozenset(("socket.getaddrinfo", "socket.connect"))
_NO_CLIENTS = (sys.stdlib_module_names - {"http", "urllib"}) | {"directmail_lab"}


@dataclass(eq=False)
class _Guard:
    """Refuses connections to some places, and to what these are found to be."""

    places: set[_Place]
    as_raised: Callable[[DirectMailLabError], BaseException]

    def see(self, event: str, host: object, port: object) -> None:
        place = _place(host, port)
        ours = sends_here.get()
        if ours and event == "socket.connect" and _place(ours, port) in self.places:
            self.places.add(place)  # the address of that host
        is_lookup_of_ours = lookups and event == "socket.getaddrinfo"
        if ours or is_lookup_of_ours or place not in self.places or _is_of_vcrpy():
            return
        raise self.as_raised(
            DirectMailLabError(
                f"Another client than the session of this test connects to {place[0]}:{place[1]} "
                f"({_client()}). What it sends would be neither recorded nor replayed. Nothing was "
                "sent.",
                "Give the code the session's client (directmail.client) or the address of the "
                "fixture directmail_server. patch=True leads the clients of httpx alone; for "
                "others, see directmail_lab.vcrpy.",
            )
        )


_guards: list[_Guard] = []


@cache
def _add_hook() -> None:
    """Add the hook when it is first needed: Python keeps it until the process ends."""
    sys.addaudithook(_audit)


@contextmanager
def guarded(
    urls: Iterable[str], as_raised: Callable[[DirectMailLabError], BaseException]
) -> Iterator[None]:
    """Refuse all connections to the servers of addresses that are not made by a session of ours.

    ``as_raised`` converts our error before a client raises it.
    """
    _add_hook()
    guard = _Guard({_place(host, port) for _, host, port in map(origin_of, urls)}, as_raised)
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _guards or event not in _EVENTS:
        return
    address = arguments[1] if event == "socket.connect" else arguments
    if isinstance(address, tuple):  # else the path of a socket of Unix
        for guard in _guards.copy():
            guard.see(event, *address[:2])


def _place(host: object, port: object) -> _Place:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    number = str(port)
    return (
        "127.0.0.1" if is_loopback(name) else name.lower(),
        int(number) if number.isdecimal() else 0,
    )


def _modules() -> Iterator[str]:
    """Yield the names of the modules that run, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield str(frame.f_globals.get("__name__"))
        frame = frame.f_back


def _is_of_vcrpy() -> bool:
    """Return whether vcrpy records the request: then its cassette has it.

    A client that looks names up in another thread is known by vcrpy's ``http.client`` alone.
    """
    connection = getattr(sys.modules.get("http.client"), "HTTPConnection", None)
    modules = (*_modules(), getattr(connection, "__module__", ""))
    return any(each.startswith("vcr.") for each in modules)


def _client() -> str:
    """Return the code that connects and the libraries that it does so through, in this order."""
    names = [each.partition(".")[0] for each in _modules()]
    in_test = takewhile(lambda name: name not in ("_pytest", "pluggy"), names)
    clients = dict.fromkeys(each for each in in_test if each not in _NO_CLIENTS)
    return ", ".join(reversed(clients)) or "in another thread, as async clients do"
