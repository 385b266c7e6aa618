"""Which test a thread works for: an earlier test's thread must not fail or record a later one.

A thread works for the test that started it, or for the module or session whose fixture did. Work
that is passed on with its context, as asyncio does, or to a pool of `concurrent.futures`, is work
for the test that passed it on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from .settings import RUNNING
from .use import show_warning

if TYPE_CHECKING:
    from ..exchange.httpx_values import httpx

_NAME = "directmail_threads"  # a plugin's name
_OWNER = "_directmail_lab_owner"
"""The attribute of a thread with the test or the collector that it works for."""

_owner_of_context: ContextVar[pytest.Item | pytest.Collector | None] = ContextVar(
    "directmail_owner", default=None
)


def threads_of(config: pytest.Config) -> Threads:
    """Return the plugin below, which is registered when it is first needed, also in a test."""
    threads: Threads | None = config.pluginmanager.get_plugin(_NAME)
    if threads is None:
        threads = Threads(config)
        config.pluginmanager.register(threads, _NAME)
    return threads


class Senders:
    """Checks who sends the requests of a session that clients are led through.

    Parameters
    ----------
    test
        The name of the test that the session belongs to.
    records
        Whether the session records.

    Attributes
    ----------
    has_ended
        Whether the test has ended. A thread may keep a client of its session.
    """

    def __init__(self, threads: Threads, test: str, *, records: bool) -> None:
        self._threads = threads
        self._test = test
        self._records = records
        self.has_ended = False
        self._process = os.getpid()

    def check(self, request: httpx.Request) -> None:
        """Refuse a request of an earlier test's thread, as if its host could not be reached.

        A forked child may only replay: its responses would not be recorded.
        """
        what = f"{request.method} {request.url.host}"
        if self._records and os.getpid() != self._process:
            pytest.fail(
                f"{what} was refused: a child process cannot record. Give it the address of the "
                "fixture directmail_server."
            )
        ended = self._test if self.has_ended else ""
        problem = self._threads.refuse_earlier(what, ended)
        if problem:
            from ..exchange.httpx_values import httpx

            raise httpx.ConnectError(problem)


class Threads:
    """A plugin that knows which test the present thread works for.

    Attributes
    ----------
    item
        The test that runs.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.item = config.stash.get(RUNNING, None)
        self._config = config
        self._owner: pytest.Item | pytest.Collector | None = (
            self.item
        )  # of what the main thread does
        self._warnings: dict[tuple[str, str], str] = {}  # by the thread and the test
        self._shown = 0
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        patch.setattr(threading.Thread, "start", self._starting(threading.Thread.start))
        patch.setattr(ThreadPoolExecutor, "submit", self._submitting(ThreadPoolExecutor.submit))

    def refuse_earlier(self, what: str, ended: str = "") -> str:
        """Return why an earlier test's thread may not do this; empty for the test that runs.

        A thread that was started before all tests works for the test that runs, unless its client
        is one of a test that has ``ended``.
        """
        thread = threading.current_thread()
        if thread is threading.main_thread():
            return ""
        owners = [_owner_of_context.get(), getattr(thread, _OWNER, None)]
        known = [owner for owner in owners if owner is not None]
        running = self.item.listchain() if self.item else []
        if not ended and (not known or any(owner in running for owner in known)):
            return ""
        test = ended or known[0].nodeid
        problem = f"{what} was refused: thread {thread.name!r} of {test} outlived it."
        self._warnings.setdefault((thread.name, test), problem)
        return problem

    # -- what pytest calls -----------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note which test runs, and show the warnings of threads, where they can be no errors."""
        self.item = item
        self._work_for(item)
        try:
            return (yield)
        finally:
            self.item = None
            self._work_for(None)
            self._show_warnings()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
        """Note what a fixture is set up for, which is its class, module or session, or its test."""
        before = self._owner
        self._work_for(request.node)
        try:
            return (yield)
        finally:
            self._work_for(before)

    def pytest_sessionfinish(self) -> None:
        """Show the last warnings: also those of the test that registered this plugin."""
        self._show_warnings()

    def _show_warnings(self) -> None:
        new = list(self._warnings.items())[self._shown :]
        self._shown += len(new)
        for (_, test), problem in new:
            show_warning(self._config, problem, nodeid=test)

    # -- who works for whom ----------------------------------------------------------------------

    def _work_for(self, owner: pytest.Item | pytest.Collector | None) -> None:
        self._owner = owner
        _owner_of_context.set(owner)

    def _present_owner(self) -> object:
        """Return what the present thread works for."""
        thread = threading.current_thread()
        if thread is threading.main_thread():  # its context may be that of an old event loop
            return self._owner
        return _owner_of_context.get() or getattr(thread, _OWNER, None)

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(thread: threading.Thread) -> None:
            setattr(thread, _OWNER, self._present_owner())
            original(thread)

        return start

    def _submitting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
            owner = self._present_owner()  # another test may have started the pool's thread

            def work(*args: Any, **options: Any) -> Any:
                setattr(threading.current_thread(), _OWNER, owner)
                return function(*args, **options)

            return original(pool, work, *args, **options)

        return submit
