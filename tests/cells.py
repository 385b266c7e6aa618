"""Notebooks whose cells have ids, in real kernels, at a service that counts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

KEY = "test_8d1f0a2b3c4d5e6f"
GET = "print(dm.get('/v1/n').json().get('n', 'failed'))"
"""The code of a cell that prints how many requests the service has answered, this one included."""

_numbers = count(1)


class CountingService:
    """Each success says how many there were: ``{"n": 3}``.

    ``fails`` returns the status of a failure, given the path and the headers; 0 for a success.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.fails: Callable[[str, Mapping[str, str]], int] = lambda _, __: 0
        self.release: Callable[[], object] = lambda: None
        service = self

        class _Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status = service.fails(self.path, self.headers)
                body: dict[str, Any] = {"error": status}
                if not status:
                    service.counts[self.command] += 1
                    body = {"n": service.counts["GET"], "id": "u1"}
                content = json.dumps(body).encode()
                self.send_response(status or 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                if status in (429, 503):
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def failing(self, status: int) -> Iterator[None]:
        """Fail each request meanwhile."""
        before = self.fails
        self.fails = lambda _, __: status
        yield
        self.fails = before

    def holds_after(self, number: int) -> threading.Event:
        """Answer no more after so many successes; return an event that is set at the next one."""
        reached = threading.Event()
        released = threading.Event()

        def hold(_: str, __: Mapping[str, str]) -> int:
            if self.counts["GET"] >= number and not released.is_set():
                reached.set()
                released.wait()
            return 0

        self.fails = hold
        self.release = released.set
        return reached

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()


class Kernel:
    """A real kernel, to which a front end says which cell it executes."""

    def __init__(self) -> None:
        self._manager, self._client = start_new_kernel(startup_timeout=300, kernel_name="python3")

    def run(self, code: str, cell: str | None = None) -> str:
        """Execute a cell, and return what it prints, or its error's name and text."""
        self._client.session.metadata = {} if cell is None else {"cellId": cell}
        said: list[str] = []

        def note(message: Any) -> None:
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                said.append(content["text"])
            elif message["msg_type"] == "error":
                said.append(f"{content['ename']}: {content['evalue']}")

        self._client.execute_interactive(code, output_hook=note, timeout=300)
        return "".join(said).strip()

    def start(self, code: str, cell: str) -> None:
        """Execute a cell, and do not wait for its end."""
        self._client.session.metadata = {"cellId": cell}
        self._client.execute(code)

    def press(self, comm_id: str) -> None:
        """Send a widget the message of its button, and wait until it was handled."""
        session = self._client.session
        session.metadata = {}
        message = session.msg("comm_msg", {"comm_id": comm_id, "data": {}})
        session.send(self._client.shell_channel.socket, message)
        self.run("pass")

    def restart(self) -> None:
        self._manager.restart_kernel(now=False)
        self._client.wait_for_ready(timeout=300)

    def kill(self) -> None:
        """Kill it, as a lack of memory does, and start another one."""
        process: Any = self._manager.provisioner
        os.kill(process.pid, signal.SIGKILL)
        self._manager.restart_kernel(now=True)
        self._client.wait_for_ready(timeout=300)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class Notebook:
    """Cells with ids, and what the author's execution of each printed last.

    Parameters
    ----------
    folder
        Where the notebook is.
    cells
        The code of each cell, by its id.
    has_ids
        Whether the notebook keeps the ids.
    """

    def __init__(self, folder: Path, cells: Mapping[str, str], *, has_ids: bool = True) -> None:
        self.folder = folder
        self.cells = dict(cells)
        self.has_ids = has_ids
        self.ids = f"n{next(_numbers)}"
        self.shown: dict[str, str] = {}
        (folder / "cassettes").mkdir(exist_ok=True)

    def open(self, kernel: Kernel, service: CountingService, **options: object) -> None:
        """Run the author's first cell."""
        options = {"pace": "off", "retry": False, "allow_writes": True, **options}
        self.execute(
            kernel,
            f"import directmail_lab as dm, os; os.chdir({str(self.folder)!r})\n"
            f"dm.connect({service.url!r}, {KEY!r}, **{options!r}); dm.record('tour')",
            "the-first-cell",
        )

    def run(self, kernel: Kernel, *names: str) -> list[str]:
        """Execute cells as their author, and return what they print."""
        said = [self.execute(kernel, self.cells[name], name) for name in names]
        self.shown |= dict(zip(names, said, strict=True))
        return said

    def read(self, kernel: Kernel, *names: str) -> dict[str, str]:
        """Execute cells as a reader, by default each once from top to bottom."""
        self.execute(
            kernel,
            f"import directmail_lab as dm, os; os.chdir({str(self.folder)!r})\n"
            "dm.logout(); _ = dm.replay('tour')",
            "the-first-cell",
        )
        return {name: self.execute(kernel, self.cells[name], name) for name in names or self.cells}

    def execute(self, kernel: Kernel, code: str, name: str) -> str:
        return kernel.run(code, f"{self.ids}-{name}" if self.has_ids else None)

    def forget_ids(self) -> None:
        """Give each cell another id, as JupyterLab does when it opens a file of nbformat 4.4."""
        self.ids = f"n{next(_numbers)}"

    @property
    def cassette(self) -> Path:
        return self.folder / "cassettes" / "tour.yaml"


def new_kernel() -> Iterator[Kernel]:
    """Yield a kernel, for a fixture."""
    with closing(Kernel()) as kernel:
        yield kernel


def new_service() -> Iterator[CountingService]:
    """Yield a service that has counted nothing yet, for a fixture."""
    with closing(CountingService()) as service:
        yield service
