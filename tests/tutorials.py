"""Re-record the tutorials' cassettes and run the notebooks: ``python tests/tutorials.py``.

The cassettes are recorded over real HTTP from the stand-in service, on a fake clock. So a second
run changes nothing.
"""

import os
import random
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from unittest import mock

import nbformat
from faulty_service import FaultyService
from filelock import FileLock
from nbclient import NotebookClient
from nbformat.v4 import new_output

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.files import write_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.redaction import Redactor
from directmail_lab.sessions import session as sessions
from directmail_lab.sessions.session import Session
from directmail_lab.sessions.transports.recording import RecordingTransport
from directmail_lab.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE
from directmail_lab.share.tutorials import copy_tutorials

ROOT = Path(__file__).resolve().parent.parent

# -- the cassettes -----------------------------------------------------------------------------

# A cassette contains the address it was recorded at, so the port is always the same. A lock allows
# one recording at a time, because the tests that record run in parallel processes.
_PORT = 8431
_PORT_LOCK = FileLock(Path(gettempdir()) / f"directmail-lab-port-{_PORT}.lock")
_START = 1_795_233_600.0
_AT = "2026-11-21T04:00:00.000000Z"  # the same time as _START
_PassTime = Callable[[float], None]
_SAID = "the stand-in service of directmail_lab: no real account, no real service"


class _Clock:
    """A clock that moves only when told to, or when it measures a latency."""

    def __init__(self) -> None:
        self._now = _START
        self._latencies = random.Random(8)

    def now(self) -> float:
        return self._now

    def timer(self) -> float:
        self.pass_s(self._latencies.uniform(0.012, 0.048))
        return self._now

    def pass_s(self, seconds: float) -> None:
        self._now = round(self._now + seconds, 6)


def record(name: str, path: Path) -> None:
    """Record one cassette from scratch, to ``path``."""
    clock = _Clock()
    path.unlink(missing_ok=True)
    options: dict[str, Any] = {"limit": 5, "window_s": 10.0} if name == "waiting" else {}
    with (
        _PORT_LOCK,
        FaultyService(port=_PORT, clock=clock.now, **options) as service,
        mock.patch.object(Session, "_clock", staticmethod(clock.now)),
        mock.patch.object(
            sessions, "RecordingTransport", partial(RecordingTransport, timer=clock.timer)
        ),
        Session(service.base_url, ApiKey(service.api_key), pace="off") as session,
        session.record(path, record_mode="once"),
    ):
        RECORDINGS[name](session, service, clock.pass_s)
    recorded = read_cassette(path)
    about = {"started_at": _AT, "service": _SAID, "base_url": recorded.base_url}
    write_cassette(path, about, recorded.interactions, Redactor())


def _first_look(session: Session, _: FaultyService, pass_s: _PassTime) -> None:
    session.me()
    _burst(session, 40, pass_s)
    pass_s(20.0)
    _exhaust(session, pass_s)


def _rate_limits(session: Session, _: FaultyService, pass_s: _PassTime) -> None:
    session.me()
    _burst(session, 40, pass_s)
    _exhaust(session, pass_s)
    pass_s(50.0)
    for _again in range(5):
        session.client.get("/v1/lists")
        pass_s(2.0)
    _burst(session, 5, pass_s)


def _waiting(session: Session, _: FaultyService, pass_s: _PassTime) -> None:
    """Wait as a live session does: if nothing remains, until the window renews."""
    for _again in range(12):
        headers = session.client.get("/v1/users/me").headers
        left = int(headers["X-RateLimit-Remaining"])
        pass_s(0.4 if left else int(headers["X-RateLimit-Reset"]))


def _two_calls(session: Session, _: FaultyService, pass_s: _PassTime, *, pause_s: float) -> None:
    session.me()
    pass_s(pause_s)
    session.client.get("/v1/lists")


def _explore(session: Session, service: FaultyService, pass_s: _PassTime) -> None:
    for _ in range(3):
        session.me()
        pass_s(4.0)
    for path in ("/v1/lists", "/v1/lists/lst_stand_in_1", "/v1/lists/lst_404", "/v1/nowhere"):
        session.client.get(path)
        pass_s(2.5)
    with service.fault(path="/v1/campaigns", html=True):
        session.client.get("/v1/campaigns")
    pass_s(3.0)
    session.client.get("/v2/users/me")
    _exhaust(session, pass_s)


def _mailing(session: Session, service: FaultyService, pass_s: _PassTime) -> None:
    session.allow_writes = True
    refused = {"status": 422, "body": '{"errors": {"template.language": ["is missing"]}}'}
    for n in range(1, 21):
        language = None if n == 13 else "fr" if n % 2 == 0 else "de"
        row = {"contact": f"cnt_{n}", "template": {"id": "spring", "language": language}}
        with service.fault(**refused) if n == 13 else nullcontext():
            session.client.post("/v1/letters", json=row)
        pass_s(0.3)


def _burst(session: Session, n: int, pass_s: _PassTime) -> None:
    for _ in range(n):
        session.client.get("/v1/users/me")
        pass_s(0.7)


def _exhaust(session: Session, pass_s: _PassTime) -> None:
    while session.client.get("/v1/lists").status_code == 200:
        pass_s(0.2)


RECORDINGS: dict[str, Callable[[Session, FaultyService, _PassTime], None]] = {
    "first-look": _first_look,
    "rate-limits": _rate_limits,
    "waiting": _waiting,
    "record-and-replay": partial(_two_calls, pause_s=1.3),
    "explore-an-unknown-api": _explore,
    "test-with-recordings": partial(_two_calls, pause_s=0.0),
    "a-notebook-to-share": partial(_two_calls, pause_s=2.4),
    "a-mailing": _mailing,
}
# Only these: the folder may also contain a reader's recordings, such as my-tour.yaml.
CASSETTES = [ROOT / "cassettes" / f"{name}.yaml" for name in sorted(RECORDINGS)]


# -- the notebooks -----------------------------------------------------------------------------

_WIDGET = "application/vnd.jupyter.widget-view+json"
_TIMEOUT_S = 600

# The picture to show for a cell with a widget, and its width in pixels.
_BROWSER = "view = dm.browse()\nview"
_PICTURED = {
    "dm.login()": ("images/sign-in-picture.png", 472),
    _BROWSER: ("images/composer-picture.png", 1000),
}


def execute(path: Path) -> None:
    """Run the notebook at ``path`` in a fresh kernel without a key, and save its outputs in it.

    It runs in a copy of the tutorials, so that nothing it records or writes is left behind.
    """
    notebook = read(path)
    with TemporaryDirectory() as folder:
        copy_tutorials(Path(folder))
        run(notebook, Path(folder) / "notebooks")
    keep_what_lasts(notebook, path.parent)
    nbformat.write(notebook, path)


def read(path: Path) -> Any:
    """Return a notebook in nbformat's current version."""
    return nbformat.read(path, as_version=4)


def run(notebook: Any, folder: Path, *, environ: Mapping[str, str] | None = None) -> None:
    """Run a notebook in a fresh kernel without key and network, in ``folder``; set its outputs.

    ``environ`` is added to the kernel's environment.
    """
    without_key = {
        name: value
        for name, value in os.environ.items()
        # The outputs must not depend on the width of this terminal.
        if name not in (API_KEY_VARIABLE, BASE_URL_VARIABLE, "COLUMNS", "LINES")
    }

    def start(cell: Any, **_: object) -> None:
        """Say which cell runs, as JupyterLab does."""
        assert client.kc is not None
        client.kc.session.metadata = {"cellId": cell.get("id")}

    client = NotebookClient(
        notebook,
        on_cell_start=start,
        timeout=_TIMEOUT_S,
        startup_timeout=_TIMEOUT_S,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.extra_extensions=directmail_lab.share.offline"],
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    # cassetter and pytest-recording define the same option, and pytest-asyncio warns of a default.
    plugins = {"PYTEST_ADDOPTS": "-p no:cassetter -p no:asyncio"}
    client.execute(env={**without_key, **plugins, **(environ or {})})


def keep_what_lasts(notebook: Any, folder: Path) -> None:
    """Remove the outputs that need this kernel and the metadata that differs from run to run."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _lasting_outputs(cell)
            if cell.source in _PICTURED:
                name, width = _PICTURED[cell.source]
                cell.outputs.append(_picture(folder / name, width))


def _lasting_outputs(cell: Any) -> list[Any]:
    """Return a cell's outputs without widgets, whose ids differ on each run.

    The browser's cell keeps no output: what it shows depends on how fast the later cells run. No
    cell keeps the progress of `get_many`, which a fast machine does not show.
    """
    if cell.source == _BROWSER:
        return []
    return [
        output
        for output in cell.get("outputs", ())
        if output.get("data") != {}
        and _WIDGET not in output.get("data", {})
        and not output.get("data", {}).get("text/plain", "").startswith("GET: ")
    ]


def _picture(path: Path, width: int) -> Any:
    """Return a picture as a cell's output, for viewers that cannot show the widget."""
    data = {"image/png": b64encode(path.read_bytes()).decode("ascii")}
    # The picture has more pixels than it is shown with.
    size = {"image/png": {"width": width}}
    return new_output("display_data", data, metadata=size)


def main() -> None:
    for name in RECORDINGS:
        record(name, ROOT / "cassettes" / f"{name}.yaml")
        sys.stdout.write(f"recorded {name}\n")
    for notebook in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        execute(notebook)
        sys.stdout.write(f"ran {notebook.name}\n")


if __name__ == "__main__":
    main()
