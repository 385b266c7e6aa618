"""The block of the network: a test that connects to another machine fails, whatever it catches.

It sees what goes through Python's ``socket``: httpx, requests, urllib, asyncio and so on; neither
subprocesses nor libraries that connect by code of their own, such as pycurl.
"""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from ..settings import is_loopback

_HERE: Final = ("", "0.0.0.0", "::")  # all addresses of this machine, where a server listens
_LIBRARY: Final = Path(os.__file__).parent


class NetworkBlock:
    """A plugin that fails each test that reaches for a host that is neither loopback nor allowed.

    Parameters
    ----------
    root
        The folder of the project, whose line that tried is named.
    allowed
        Host names and addresses, also patterns: ``*.example.com``.
    """

    def __init__(self, root: Path, allowed: Sequence[str]) -> None:
        self._root = root
        self._allowed = [host.lower() for host in allowed]
        self._resolved: set[str] = set()  # the addresses of allowed names
        self._tried: list[BaseException] = []
        self._item: pytest.Item | None = None

    @contextmanager
    def allowing(self, base_url: str) -> Iterator[None]:
        """Allow the host of an address for as long as it is recorded from."""
        host = (urlsplit(base_url).hostname or "").lower()
        self._allowed.append(host)
        try:
            yield
        finally:
            self._allowed.remove(host)
            self._resolved.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("connect", "connect_ex", "sendto"):
                patch.setattr(socket.socket, name, self._connecting(getattr(socket.socket, name)))
            for name in ("getaddrinfo", "gethostbyname"):
                patch.setattr(socket, name, self._resolving(getattr(socket, name)))
            # It resolves names in a thread, on whose stack the project's line is not.
            original = asyncio.BaseEventLoop.getaddrinfo

            def resolve(loop: Any, host: Any, port: Any, **options: Any) -> Any:
                self._check(host, port)
                return original(loop, host, port, **options)

            patch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a phase of a test that tried to connect, also if it caught the error."""
        self._item = item
        try:
            return (yield)
        finally:
            if self._tried:
                first, self._tried = self._tried[0], []
                raise first

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    def _connecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(sock: socket.socket, *args: Any) -> Any:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                try:
                    self._check(*args[-1][:2])
                except BaseException:
                    sock.close()  # as Python's own callers do only for an OSError
                    raise
            return original(sock, *args)

        return connect

    def _resolving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def resolve(host: Any, *args: Any, **options: Any) -> Any:
            self._check(host, *args[:1])
            found = original(host, *args, **options)
            self._resolved.update([found] if isinstance(found, str) else (e[4][0] for e in found))
            return found

        return resolve

    def _check(self, host: str | bytes | None, port: object = None) -> None:
        """Refuse a host, which may be a name, that is neither this machine nor allowed."""
        name = (host.decode("ascii", "replace") if isinstance(host, bytes) else host or "").lower()
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self._allowed)
        if is_allowed or name in _HERE or is_loopback(name) or name in self._resolved:
            return
        shown = f"{name}:{port}" if port else name
        problem = f"No connection to {shown} from {self._line()}: the network is blocked."
        advice = f"Replay it with a fixture, or allow it: --directmail-allowed-hosts={name}"
        self._tried.append(pytest.fail.Exception(f"{problem}\n{advice}", pytrace=False))
        raise self._tried[-1]

    def _line(self) -> str:
        """Return the project's line that is running; if none is in this thread, the test's own."""
        for frame, number in traceback.walk_stack(None):
            path = Path(frame.f_code.co_filename)
            is_library = "-packages" in str(path) or _LIBRARY in path.parents
            if self._root in path.parents and not is_library and str(path) != __file__:
                return f"{path.relative_to(self._root)}:{number}"
        file, first, _ = self._item.location if self._item else ("a test", None, "")
        return file if first is None else f"{file}:{first + 1}"
