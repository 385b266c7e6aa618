"""Block the network: a test that connects to another machine fails, even if it catches the error.

`network_block` says what is blocked.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from .. import network_block
from .use import USE

_OWN: Final = (__file__, network_block.__file__)
_LIBRARY: Final = Path(os.__file__).parent
_OWNER: Final = "_directmail_lab_owner"
"""The attribute of a thread with the test that it works for."""


class BlockingPlugin:
    """A plugin that fails a test if it connects to a host that is neither loopback nor allowed.

    It blocks the network from the beginning, since modules of tests import pycurl before the first
    test. It refuses connections from the first test to the last one: other plugins may connect.
    """

    def __init__(self, config: pytest.Config, allowed: Sequence[str]) -> None:
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        patch.setattr(threading.Thread, "start", _starting(threading.Thread.start))
        patch.setattr(ThreadPoolExecutor, "submit", self._submitting(ThreadPoolExecutor.submit))
        self._block = network_block.NetworkBlock(self._refuse, allowed, patch.setattr)
        self._root = config.rootpath
        self._tried: list[tuple[pytest.Item, BaseException]] = []
        self._item: pytest.Item | None = None

    @contextmanager
    def allowing(self, hosts: Iterable[str]) -> Iterator[None]:
        """Allow hosts, or patterns of hosts, during a ``with`` block."""
        before = self._block.allowed
        self._block.allowed = [*before, *map(str.lower, hosts)]
        try:
            yield
        finally:
            self._block.allowed = before

    def pytest_collection(self) -> None:
        """Forget pycurl, which vcrpy imports, and pytest-recording replaces by an object."""
        sys.modules.pop("pycurl", None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Report the errors of the last tests' threads."""
        try:
            return (yield)
        finally:
            self._take_errors(None)
            self._item = None

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
        thread = threading.current_thread()
        setattr(thread, _OWNER, item)
        try:
            return (yield from self.pytest_runtest_setup(item))
        finally:
            delattr(thread, _OWNER)

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

    def _submitting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
            if "getaddrinfo" in getattr(function, "__name__", ""):
                # asyncio calls it. The stack of the pool's thread lacks the project's line.
                self._block.check(None, *args[:2])
            owner = _owner()  # another test may have started the pool's thread

            def work(*args: Any, **options: Any) -> Any:
                setattr(threading.current_thread(), _OWNER, owner)
                return function(*args, **options)

            return original(pool, work, *args, **options)

        return submit

    def _refuse(self, _: object, host: str, port: object) -> None:
        """Fail the test that tried to connect."""
        if not (item := _owner() or self._item):
            return
        shown = f"{host}:{port}" if port else host
        line, library = self._caller(item)
        problem = f"No connection to {shown} from {line}: the network is blocked."
        advice = f"Replay it with a fixture, or allow the host: --directmail-allowed-hosts={host}"
        use = item.stash.get(USE, None)
        if library and use is not None and use.settings.is_patched:
            advice = (
                f"{library} does not go through the session: give it the address of the fixture "
                "directmail_server, or leave vcrpy for this test."
            )
        error = pytest.fail.Exception(f"{problem}\n{advice}", pytrace=False)
        self._tried.append((item, error))
        raise error

    def _caller(self, item: pytest.Item) -> tuple[str, str]:
        """Return the line of the project that this thread runs, and the package that it calls.

        If there is no such line, it is the test's. The package is empty if the line connects.
        """
        library = ""
        for frame, number in traceback.walk_stack(None):
            path = Path(frame.f_code.co_filename)
            is_library = "-packages" in str(path) or _LIBRARY in path.parents
            if self._root in path.parents and not is_library and str(path) not in _OWN:
                return f"{path.relative_to(self._root)}:{number}", library
            if "-packages" in str(path) and str(path) not in _OWN:
                library = str(frame.f_globals.get("__name__")).partition(".")[0]
        file, first, _ = item.location
        return file if first is None else f"{file}:{first + 1}", library


def _owner() -> pytest.Item | None:
    """Return the test that this thread works for, or None if a fixture started the thread.

    A fixture's thread may serve many tests, so it works for the test that is running.
    """
    return getattr(threading.current_thread(), _OWNER, None)


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(thread: threading.Thread) -> None:
        setattr(thread, _OWNER, _owner())
        original(thread)

    return start
