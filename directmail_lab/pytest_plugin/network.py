"""Block the network: a test that connects to another machine fails, even if it catches the error.

`network_block` says what is blocked.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..share import network_block
from . import threads
from .use import USE

_OWN = (__file__, network_block.__file__, threads.__file__)
_LIBRARY = Path(os.__file__).parent


class BlockingPlugin:
    """A plugin that fails a test if it connects to a host that is neither loopback nor allowed.

    It blocks the network from the beginning, since modules of tests import pycurl before the first
    test. It refuses connections while a test runs, since other plugins may connect, and those of
    threads that a test left.
    """

    def __init__(self, config: pytest.Config, allowed: Sequence[str]) -> None:
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        self._threads = threads.threads_of(config)
        patch.setattr(ThreadPoolExecutor, "submit", self._looking_up(ThreadPoolExecutor.submit))
        self._block = network_block.NetworkBlock(self._refuse, allowed, patch.setattr)
        self._root = config.rootpath
        self._tried: dict[pytest.Item, BaseException] = {}  # the first error of a phase

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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a phase of a test that tried to connect, even if it caught the error."""
        try:
            return (yield)
        finally:
            error = self._tried.pop(item, None)
            if error:
                raise error

    pytest_runtest_call = pytest_runtest_setup
    pytest_runtest_teardown = pytest_runtest_setup

    def _looking_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
            if "getaddrinfo" in getattr(function, "__name__", ""):
                # asyncio calls it. The stack of the pool's thread lacks the project's line.
                self._block.check(None, *args[:2])
            return original(pool, function, *args, **options)

        return submit

    def _refuse(self, _: object, host: str, port: object) -> None:
        """Fail the test that tried to connect; for a thread of an earlier one, nothing fails."""
        shown = f"{host}:{port}" if port else host
        problem = self._threads.refuse_earlier(f"A connection to {shown}")
        if problem:
            raise ConnectionRefusedError(problem)
        item = self._threads.item
        if item is None:
            return
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
        self._tried.setdefault(item, error)
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
