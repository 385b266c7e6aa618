"""The block of the network: a test that connects to another machine fails, whatever it catches.

It sees what goes through Python's ``socket``: httpx, requests, urllib, asyncio and so on; neither
subprocesses nor libraries that connect by code of their own, such as pycurl.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from ..settings import is_loopback

_CONNECTING: Final = ("connect", "connect_ex", "sendto")
_RESOLVING: Final = ("getaddrinfo", "gethostbyname")
_LIBRARIES: Final = Path(os.__file__).parent
_Phase = Generator[None, Any, Any]


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
        self._allowed = [host.strip().lower() for host in allowed if host.strip()]
        self._resolved: set[str] = set()  # the addresses of allowed names
        self._tried: list[BaseException] = []
        self._item: pytest.Item | None = None

    @contextmanager
    def allowing(self, base_url: str) -> Iterator[None]:
        """Allow the host of an address for as long as it is recorded from."""
        host = (urlsplit(base_url).hostname or "").lower()
        self._allowed.append(host)
        yield
        self._allowed.remove(host)
        self._resolved.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> _Phase:
        with pytest.MonkeyPatch.context() as patch:
            for name in _CONNECTING:
                patch.setattr(socket.socket, name, self._connecting(getattr(socket.socket, name)))
            for name in _RESOLVING:
                patch.setattr(socket, name, self._resolving(getattr(socket, name)))
            # It resolves names in a thread, whose stack has no line of the test.
            loop = asyncio.BaseEventLoop
            patch.setattr(loop, "getaddrinfo", self._resolving_async(loop.getaddrinfo))
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> _Phase:
        self._item = item
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> _Phase:
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> _Phase:
        return (yield from self._phase())

    def _phase(self) -> _Phase:
        """Fail a phase of a test that tried to connect, also if it caught the error."""
        try:
            return (yield)
        finally:
            if self._tried:
                first, self._tried = self._tried[0], []
                raise first

    # -- what is patched -----------------------------------------------------------------------

    def _connecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def connect(sock: socket.socket, *args: Any) -> Any:
            address = args[-1] if args else None
            if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
                try:
                    self._check(*address[:2])
                except BaseException:
                    sock.close()  # as Python's own callers do only for an OSError
                    raise
            return original(sock, *args)

        return connect

    def _resolving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def resolve(host: Any, *args: Any, **options: Any) -> Any:
            is_name = self._check_name(host, *args[:1])
            found = original(host, *args, **options)
            if is_name:
                addresses = [found] if isinstance(found, str) else [each[4][0] for each in found]
                self._resolved.update(addresses)
            return found

        return resolve

    def _resolving_async(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def resolve(loop: Any, host: Any, port: Any, **options: Any) -> Any:
            self._check_name(host, port)
            return await original(loop, host, port, **options)

        return resolve

    # -- what is refused -----------------------------------------------------------------------

    def _check_name(self, host: str | bytes | None, port: object = None) -> bool:
        """Return whether a host is a name, which another machine is asked for; it is allowed."""
        is_name = bool(host) and not _is_address(_text(host or ""))
        if is_name:
            self._check(host or "", port)
        return is_name

    def _check(self, host: str | bytes, port: object = None) -> None:
        name = _text(host).lower()
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self._allowed)
        if is_allowed or is_loopback(name) or name in self._resolved:
            return
        shown = f"{name}:{port}" if port else name
        error = pytest.fail.Exception(
            f"No connection to {shown} from {self._place()}: the network is blocked.\n"
            f"Replay it with a fixture, or allow it: --directmail-allowed-hosts={name}",
            pytrace=False,
        )
        self._tried.append(error)
        raise error

    def _place(self) -> str:
        """Return the project's line that is running; if none is in this thread, the test's own."""
        for frame, line in traceback.walk_stack(None):
            path = Path(frame.f_code.co_filename)
            is_library = "-packages" in str(path) or path.is_relative_to(_LIBRARIES)
            if path.is_relative_to(self._root) and not is_library and str(path) != __file__:
                return f"{path.relative_to(self._root)}:{line}"
        file, first_line, _ = self._item.location if self._item else ("a test", None, "")
        return file if first_line is None else f"{file}:{first_line + 1}"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _text(host: str | bytes) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else host
