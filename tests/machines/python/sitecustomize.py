"""Let directmail_lab run as on Windows: without POSIX names, and with files in cp1252.

Python imports this module when its folder is in ``PYTHONPATH``. Only what the package itself asks
for changes; other packages and the tests still run as on Linux. It is no Windows: it shows where
the package relies on Linux, and nothing else.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
from types import ModuleType
from typing import Any

PACKAGE = "directmail_lab"
NO_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
NO_SIGNALS = ("SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "setitimer")
NO_NAMES = (
    *("chown", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getpgid", "getuid"),
    *("killpg", "lchown", "mkfifo", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK"),
    *("posix_fallocate", "pread", "pwrite", "sched_getaffinity", "setsid", "statvfs", "uname"),
)


def is_ours(module: object) -> bool:
    """Return whether a name is that of one of the package's modules."""
    return str(module).partition(".")[0] == PACKAGE


def opens(depth: int) -> object:
    """Return the name of the module that opens a file, maybe by pathlib."""
    frame = sys._getframe(depth + 1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("pathlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__")


def replace(module: ModuleType, **values: object) -> None:
    """Give a module's names other values for the package; with None, a name is not there."""

    def seen(name: str, value: object) -> property:
        usual = getattr(module, name)

        def get(_: ModuleType) -> object:
            if not is_ours(sys._getframe(1).f_globals.get("__name__")):
                return usual
            if value is None:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return value

        return property(get)

    properties = {name: seen(name, v) for name, v in values.items() if hasattr(module, name)}
    module.__class__ = type("Module", (ModuleType,), properties)


def import_(name: str, globals: Any = None, *rest: Any, **options: Any) -> ModuleType:  # noqa: A002
    """Import a module, unless the package asks for one that Windows lacks."""
    if name in NO_MODULES and is_ours((globals or {}).get("__name__")):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return usual_import(name, globals, *rest, **options)


def open_(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *rest: Any,
    **options: Any,
) -> Any:
    """Open a file; the package's text files are in cp1252 and get Windows line ends by default."""
    if "b" not in mode and is_ours(opens(1)):
        encoding = encoding if encoding not in (None, "locale") else "cp1252"
        newline = "\r\n" if newline is None and set(mode) & set("awx+") else newline
    return usual_open(file, mode, buffering, encoding, errors, newline, *rest, **options)


usual_import, usual_open = builtins.__import__, io.open
builtins.__import__ = import_
io.open = builtins.open = open_
replace(os, **dict.fromkeys(NO_NAMES), name="nt", linesep="\r\n")
replace(signal, **dict.fromkeys(NO_SIGNALS))
