"""An IPython extension that refuses connections to other machines, for the run of `share`.

It covers Python's sockets in the kernel, and so httpx, requests, urllib and asyncio. It does not
cover libraries with network code of their own, nor programs that a cell starts.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from ..settings import is_loopback

_CONNECTIONS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_LOOK_UPS = ("socket.getaddrinfo", "socket.gethostbyname")


class NoNetworkError(OSError):
    """A connection to another machine."""


def load_ipython_extension(_: object) -> None:
    """Refuse connections from now on. Python has no way to remove an audit hook."""
    sys.addaudithook(_refuse)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event in _LOOK_UPS:
        host = args[0]
    elif event in _CONNECTIONS and args[0].family in (socket.AF_INET, socket.AF_INET6) and args[1]:
        host = args[1][0]
    else:
        return
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if name not in ("", "None", "0.0.0.0", "::") and not is_loopback(name.lower()):
        raise NoNetworkError(f"No connection to {name}: a shared notebook runs without a network.")
