"""Block the network: a test that connects to another machine fails, even if it catches the error.

The block covers connections through Python's ``socket``: httpx, requests, urllib, asyncio and so
on. It does not cover subprocesses, or libraries with their own network code, such as pycurl.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from ..settings import is_loopback
from .use import USE

_HERE: Final = ("", "0.0.0.0", "::")  # all addresses of this machine, where a server listens
_ADDRESS_AT: Final = {"connect": 0, "connect_ex": 0, "sendto": -1, "sendmsg": 3}
"""The methods of a socket that take an address, each with the position of that argument."""
_LIBRARY: Final = Path(os.__file__).parent
_OWNER: Final = "_directmail_lab_owner"
"""The attribute of a thread with the test that it works for; None if a fixture started it."""


class NetworkBlock:
    """A plugin that fails a test if it connects to a host that is neither loopback nor allowed.

    Parameters
    ----------
    root
        The folder of the project. A failure names the line in it that tried to connect.
    allowed
        Host names, addresses and patterns, such as ``*.example.com``.
    """

    def __init__(self, root: Path, allowed: Sequence[str]) -> None:
        self._root = root
        self._allowed = [host.lower() for host in allowed]
        self._resolved: set[str] = set()  # the addresses of allowed names
        self._tried: list[tuple[pytest.Item, BaseException]] = []
        self._item: pytest.Item | None = None
        self._is_called = False

    @contextmanager
    def allowing(self, base_url: str) -> Iterator[None]:
        """Allow the host of an address during a ``with`` block."""
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
            for name, at in _ADDRESS_AT.items():
                if original := getattr(socket.socket, name, None):  # Windows has no sendmsg
                    patch.setattr(socket.socket, name, self._connecting(original, at))
            for name in ("getaddrinfo", "gethostbyname"):
                patch.setattr(socket, name, self._resolving(getattr(socket, name)))
            # asyncio resolves names in a thread, whose stack does not have the project's line.
            look_up = asyncio.BaseEventLoop.getaddrinfo

            def resolve(loop: Any, host: Any, port: Any, **options: Any) -> Any:
                self._check(host, port)
                return look_up(loop, host, port, **options)

            patch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
            start, submit = threading.Thread.start, ThreadPoolExecutor.submit
            patch.setattr(threading.Thread, "start", self._starting(start))
            patch.setattr(ThreadPoolExecutor, "submit", self._submitting(submit))
            try:
                return (yield)
            finally:
                self._take_errors(None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a phase of a test that tried to connect, even if it caught the error."""
        self._item = item
        try:
            return (yield)
        finally:
            if error := self._take_errors(item):
                raise error

    pytest_runtest_teardown = pytest_runtest_setup

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Do the same. A thread that is started in this phase belongs to the test."""
        self._is_called = True
        try:
            return (yield from self.pytest_runtest_setup(item))
        finally:
            self._is_called = False

    def _take_errors(self, present: pytest.Item | None) -> BaseException | None:
        """Return the error of the present test, and report the errors of earlier tests.

        An earlier test has an error if its thread tried to connect after the test had ended.
        """
        tried, self._tried = self._tried, []
        errors = dict(reversed(tried))  # the first one of each test
        own = errors.pop(present, None) if present else None
        for item, error in errors.items():
            text = f"A thread that {item.nodeid} started was still running after it.\n{error}"
            # pytest-xdist accepts a report of a collection here, but not of a test that has ended.
            report = pytest.CollectReport(item.nodeid, "failed", text, None, when="teardown")
            item.ihook.pytest_collectreport(report=report)
        return own

    def _owner(self) -> pytest.Item | None:
        """Return the test that this thread works for, or None if a fixture started the thread.

        A fixture's thread may serve many tests, so it works for the test that is running.
        """
        current = threading.current_thread()
        if self._is_called and current is threading.main_thread():
            return self._item
        return getattr(current, _OWNER, None)

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(thread: threading.Thread) -> None:
            setattr(thread, _OWNER, self._owner())
            original(thread)

        return start

    def _submitting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
            owner = self._owner()  # another test may have started the pool's thread

            def work(*args: Any, **options: Any) -> Any:
                setattr(threading.current_thread(), _OWNER, owner)
                return function(*args, **options)

            return original(pool, work, *args, **options)

        return submit

    def _connecting(self, original: Callable[..., Any], at: int) -> Callable[..., Any]:
        def connect(sock: socket.socket, *args: Any) -> Any:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                try:
                    if len(args) > at and args[at]:  # sendmsg on a connection has no address
                        self._check(*args[at][:2])
                except BaseException:
                    sock.close()  # Python's own callers close it only after an OSError
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
        """Refuse a host (a name or an address) that is neither this machine nor allowed."""
        name = (host.decode("ascii", "replace") if isinstance(host, bytes) else host or "").lower()
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self._allowed)
        if is_allowed or name in _HERE or is_loopback(name) or name in self._resolved:
            return
        shown = f"{name}:{port}" if port else name
        line, library = self._caller()
        problem = f"No connection to {shown} from {line}: the network is blocked."
        advice = f"Replay it with a fixture, or allow the host: --directmail-allowed-hosts={name}"
        item = self._owner() or self._item
        use = item.stash.get(USE, None) if item else None
        if library and use is not None and use.settings.is_patched:
            advice = (
                f"{library} does not go through the session: give it the address of the fixture "
                "directmail_server, or leave vcrpy for this test."
            )
        error = pytest.fail.Exception(f"{problem}\n{advice}", pytrace=False)
        if item:
            self._tried.append((item, error))
        raise error

    def _caller(self) -> tuple[str, str]:
        """Return the line of the project that this thread runs, and the package that it calls.

        If there is no such line, it is the test's. The package is empty if the line connects.
        """
        library = ""
        for frame, number in traceback.walk_stack(None):
            path = Path(frame.f_code.co_filename)
            is_library = "-packages" in str(path) or _LIBRARY in path.parents
            if self._root in path.parents and not is_library and str(path) != __file__:
                return f"{path.relative_to(self._root)}:{number}", library
            if "-packages" in str(path) and str(path) != __file__:
                library = str(frame.f_globals.get("__name__")).partition(".")[0]
        item = self._owner() or self._item
        file, first, _ = item.location if item else ("a test", None, "")
        return file if first is None else f"{file}:{first + 1}", library
