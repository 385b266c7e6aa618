"""Block the network, and write down which files of the run are opened.

Python imports this module first in the kernel that runs a notebook, and in programs it starts.
"""

import os
import socket
import sys

from directmail_lab.share.network_block import NetworkBlock

_FOLDER = os.environ["DIRECTMAIL_LAB_RUN"]
_OPENED = os.open(f"{_FOLDER}/opened", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class NetworkBlockedError(Exception):
    """A connection to another machine. Not an OSError, after which a client would try again."""


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str | os.PathLike):
        # Not pathlib: it opens files to follow links, which would come here again.
        path = os.path.abspath(os.fsdecode(args[0]))  # noqa: PTH100
        if path.startswith(_FOLDER):
            os.write(_OPENED, f"{path}\n".encode(errors="surrogateescape"))


def _refuse(sock: socket.socket | None, host: str, _: object) -> None:
    # Programs connect a datagram socket only to learn their own address.
    is_datagram = sock is not None and sock.type == socket.SOCK_DGRAM
    kind = OSError if is_datagram else NetworkBlockedError
    raise kind(f"No connection to {host}: a shared notebook runs without a network.")


sys.addaudithook(_watch)
NetworkBlock(_refuse)
