"""Block the network: no connection through Python's ``socket`` to another machine.

This covers httpx, requests, urllib, asyncio and so on, but not subprocesses, nor libraries with
their own network code. One of these, pycurl, cannot be imported while the network is blocked.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import wraps
from importlib.machinery import PathFinder
from typing import Any

from ..settings import is_loopback

Replace = Callable[[Any, str, Any], None]
Refuse = Callable[[socket.socket | None, str, object], None]
"""Gets the socket that is to connect (None before a look-up), a host and a port."""

_HERE = ("", "0.0.0.0", "::", socket.gethostname().lower())
# An audit hook would not do: `connect` looks a name up before it raises "socket.connect".
_ADDRESS_AT = {"connect": 0, "connect_ex": 0, "sendto": -1, "sendmsg": 3}
"""The methods of a socket that take an address, each with the position of that argument."""
_NO_PYCURL = (
    "pycurl cannot be imported while the network is blocked: Python does not see its connections, "
    "so it cannot refuse them. Use another client, such as httpx, or do not block the network."
)


class BlockedImportError(ImportError):
    """A library is imported whose connections cannot be refused."""


class NetworkBlock:
    """Refuses connections to other machines, and look-ups of their names.

    Parameters
    ----------
    refuse
        Called before each of them. It raises an error, or returns to let it happen.
    allowed
        Host names, addresses and patterns, such as ``*.example.com``.
    replace
        Sets an attribute, as `setattr` does. With pytest's, the block ends when it is undone.
    """

    def __init__(
        self, refuse: Refuse, allowed: Iterable[str] = (), replace: Replace = setattr
    ) -> None:
        self.allowed = [*_HERE, *map(str.lower, allowed)]
        self._refuse = refuse
        self._names: dict[str, str] = {}  # of hosts, by the addresses that were found
        for name, at in _ADDRESS_AT.items():
            original = getattr(socket.socket, name, None)
            if original:  # Windows has no sendmsg
                replace(socket.socket, name, self._connecting(original, at))
        for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
            replace(socket, name, self._looking_up(getattr(socket, name)))
        replace(sys, "meta_path", [self, *sys.meta_path])

    def check(self, sock: Any, host: str | bytes | None, port: object = None) -> str:
        """Let another machine be refused; return its name if its address was looked up before."""
        text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        given = (text or "").lower()
        name = self._names.get(given, given)
        for each in (given, name):
            if is_loopback(each) or any(fnmatchcase(each, pattern) for pattern in self.allowed):
                return name
        self._refuse(sock, given, port)
        return name

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse to import pycurl: ``import`` asks each item of `sys.meta_path` for a module."""
        if name == "pycurl" and PathFinder.find_spec(name):
            raise BlockedImportError(_NO_PYCURL, name=name)

    def _connecting(self, original: Callable[..., Any], at: int) -> Callable[..., Any]:
        def connect(sock: socket.socket, *args: Any) -> Any:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                try:
                    if len(args) > at and args[at]:  # sendmsg on a connection has no address
                        self.check(sock, *args[at][:2])
                except BaseException:
                    sock.close()  # Python's own callers close it only after an OSError
                    raise
            return original(sock, *args)

        return connect

    def _looking_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def look_up(host: Any, *args: Any, **options: Any) -> Any:
            name = self.check(None, host, *args[:1])
            found = original(host, *args, **options)
            if isinstance(found, list):  # of getaddrinfo
                addresses = [each[4][0] for each in found]
            else:
                addresses = [found] if isinstance(found, str) else found[2]
            self._names.update(dict.fromkeys(addresses, name))
            return found

        return look_up
