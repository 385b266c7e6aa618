"""The stand-in as it is started: in a thread (`stand_in`) or alone (`serve_forever`)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Self

from .faults import Fault
from .options import StandInOptions
from .service import StandInService
from .wire import serve

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

__all__ = ["StandIn", "serve_forever", "stand_in"]

_HOST: Final = "127.0.0.1"


def stand_in(**behaviour: Any) -> StandIn:
    """Start a stand-in service on 127.0.0.1, in a thread of its own.

    Parameters
    ----------
    **behaviour
        The fields of `StandInOptions`, each with its default.

    Returns
    -------
    StandIn
        Started; a context manager that closes it.
    """
    return StandIn(StandInOptions(**behaviour))


# So that Jupyter's completion and `stand_in?` show the options by name.
stand_in.__signature__ = signature(StandInOptions)  # type: ignore[attr-defined]


class StandIn:
    """A stand-in service that is running."""

    def __init__(self, options: StandInOptions) -> None:
        self._service = StandInService(options)
        self._socket = _listening(options.port)
        self._address = f"http://{_HOST}:{self._socket.getsockname()[1]}{options.prefix}"
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"stand-in {self._address}", daemon=True
        )
        self._thread.start()

    @property
    def base_url(self) -> str:
        """The address to connect to."""
        return self._address

    @property
    def api_key(self) -> str:
        """The one key that it accepts."""
        return self.options.api_key

    @property
    def options(self) -> StandInOptions:
        """The options it was started with."""
        return self._service.options

    @property
    def requests(self) -> Counter[str]:
        """How often each ``"METHOD /path"`` was received, whatever came of it."""
        return self._service.requests

    def assumptions(self) -> list[str]:
        """Return one line for each part that service.md leaves open, and what is assumed of it."""
        return self.options.assumptions()

    @contextlib.contextmanager
    def _until_exit(self, fault: Fault) -> Iterator[Fault]:
        try:
            yield fault
        finally:
            self._service.remove_fault(fault)

    def fault(self, **what: Any) -> contextlib.AbstractContextManager[Fault]:
        """Misbehave from now on, as the fields of `Fault` say; in a ``with``, until it ends.

        The fault added last goes first. `heal` ends all.
        """
        fault = Fault(**what)
        self._service.add_fault(fault)
        return self._until_exit(fault)

    def heal(self) -> None:
        """End every fault."""
        self._service.clear_faults()

    def close(self) -> None:
        """Stop: end the connections, close the sockets and join the thread. Twice is once."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StandIn {self._address}>"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve(self._service, self._socket, self._stopping))


def _listening(port: int) -> socket.socket:
    try:
        listening = socket.create_server((_HOST, port))
    except OSError as error:
        raise OSError(
            error.errno,
            f"The stand-in cannot listen on port {port} of {_HOST} ({error.strerror}). "
            "Choose another port, or 0 for a free one.",
        ) from None
    listening.setblocking(False)
    return listening


def serve_forever(options: StandInOptions, *, on_start: Callable[[StandIn], object]) -> None:
    """Run a stand-in until Ctrl-C or SIGTERM; call it in the main thread.

    Parameters
    ----------
    options
        How it behaves.
    on_start
        Called once it listens.
    """
    ended = threading.Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with StandIn(options) as server:
        try:
            for each in before:
                signal.signal(each, lambda *_: ended.set())
            on_start(server)
            ended.wait()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
