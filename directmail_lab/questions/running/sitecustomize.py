"""Refuse connections to other machines, and write down which files of the run are opened.

Python imports this module first in the kernel that runs a notebook, and in programs it starts.
"""

import os
import socket
import sys

from directmail_lab.settings import is_loopback

_FOLDER = os.environ["DIRECTMAIL_LAB_RUN"]
_OPENED = os.open(f"{_FOLDER}/opened", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_HERE = ("", "0.0.0.0", "::", "localhost", socket.gethostname())


class NetworkBlockedError(Exception):
    """A connection to another machine. Not an OSError, after which a client would try again."""


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str | os.PathLike):
        # Not pathlib: it opens files to follow links, which would come here again.
        path = os.path.abspath(os.fsdecode(args[0]))  # noqa: PTH100
        if path.startswith(_FOLDER):
            os.write(_OPENED, f"{path}\n".encode(errors="surrogateescape"))
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = args[:2]
        if isinstance(sock, socket.socket) and sock.family in _INTERNET:
            # Programs connect a datagram socket only to learn their own address.
            kind = OSError if sock.type == socket.SOCK_DGRAM else NetworkBlockedError
            _refuse(address[0] if isinstance(address, tuple) else "", kind)
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _refuse(args[0], NetworkBlockedError)


def _refuse(host: object, kind: type[Exception]) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if name not in _HERE and not is_loopback(name):
        raise kind(f"No connection to {name}: a shared notebook runs without a network.")


sys.addaudithook(_watch)
