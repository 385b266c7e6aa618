"""The commands that run until Ctrl-C: ``directmail-lab lab``, ``demo`` and ``serve``."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..cassettes.library import find_cassette
from ..readings.reset_unit import ResetUnit
from ..settings import API_KEY_VARIABLE, BASE_URL_VARIABLE
from ..share.tutorials import explore_cells, first_tutorial, notebook_of, shared_notebook

if TYPE_CHECKING:
    from ..server.loopback import LoopbackServer

_NEWS = "@jupyterlab/apputils-extension:announcements"
_DEMO = "demo.ipynb"
_DEMO_CELLS = (
    "# A demonstration\n\nA service that keeps the documented contract runs on this machine. "
    "Run each cell with Shift+Enter. The form has the service's address, and the kernel has its "
    "key: choose **Sign in**.",
    *explore_cells("my-demo")[1:],
    "dm.monitor()",
    'dm.get_many(["/v1/users/me"] * 40);',
    "Recorded responses need neither the service nor a key:",
    'dm.replay("my-demo")\ndm.me()',
)

PORT = typer.Option(None, min=0, max=65535, help="JupyterLab's port. By default, a free one.")
NO_BROWSER = typer.Option(False, "--no-browser", help="Do not open a browser.")


# -- JupyterLab ----------------------------------------------------------------------------------


def open_tutorials(port: int | None, no_browser: bool) -> None:
    """Open JupyterLab with the first tutorial, or with the first notebook of an unpacked zip.

    Outside a checkout, the tutorials are first copied to a new folder; your files are kept.
    """
    first = shared_notebook(Path.cwd()) or first_tutorial(Path.cwd())
    _run_jupyterlab(first.parents[1], f"notebooks/{first.name}", port, no_browser)


def lab(
    folder: Path = typer.Argument(
        Path(), help="By default, the folder you are in. One that is not there is made."
    ),
    port: int | None = PORT,
    no_browser: bool = NO_BROWSER,
) -> None:
    """Open JupyterLab in your folder, or with an unpacked zip.

    Without `lab`, the command opens the tutorials.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    shared = shared_notebook(folder)
    notebook = f"notebooks/{shared.name}" if shared else ""
    _run_jupyterlab(folder, notebook, port, no_browser)


def demo(port: int | None = PORT, no_browser: bool = NO_BROWSER) -> None:
    """Start the stand-in service, and open a notebook for it."""
    from ..server.standin import stand_in

    folder = Path("directmail-lab-demo").absolute()
    (folder / "cassettes").mkdir(parents=True, exist_ok=True)
    if not (folder / _DEMO).exists():
        text = json.dumps(notebook_of(_DEMO_CELLS), indent=1)
        (folder / _DEMO).write_text(f"{text}\n", encoding="utf-8")
    with stand_in() as service:
        # The kernels find the address and the key in their environment.
        os.environ |= {BASE_URL_VARIABLE: service.base_url, API_KEY_VARIABLE: service.api_key}
        _run_jupyterlab(folder, _DEMO, port, no_browser)


def lab_arguments(folder: Path, notebook: str, port: int | None, no_browser: bool) -> list[str]:
    """Return the arguments that open a folder in JupyterLab, without contacting the network.

    ``notebook`` is the one to open, or empty.
    """
    start = f"/lab/tree/{notebook}" if notebook else "/lab"
    arguments = [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url={start}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        "--LabApp.extension_manager=readonly",
        "--ServerApp.answer_yes=True",  # one Ctrl-C ends it
        "--Application.log_level=ERROR",
    ]
    if no_browser:
        arguments.append("--no-browser")
    if port is not None:
        arguments += [f"--port={port}", "--ServerApp.port_retries=0"]
    # Without this option, JupyterLab refuses to run as root, which is common in containers.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")
    return arguments


def _run_jupyterlab(folder: Path, notebook: str, port: int | None, no_browser: bool) -> None:
    typer.echo(f"Starting JupyterLab in {folder}; its address follows. Ctrl-C ends it.")
    # Only in this process and its children, our page settings come before the user's.
    with tempfile.TemporaryDirectory(prefix="directmail-lab-") as settings:
        lab_app = import_module("jupyterlab.labapp").LabApp  # takes seconds: after the line above
        page_config = Path(settings, "labconfig", "page_config.json")
        page_config.parent.mkdir()
        # JupyterLab's pop-up for news contacts an outside server. Only this setting removes it.
        page_config.write_text(json.dumps({"disabledExtensions": {_NEWS: True}}))
        own_path = os.environ.get("JUPYTER_CONFIG_PATH")
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [settings, own_path]))
        server = lab_app.initialize_server(lab_arguments(folder, notebook, port, no_browser))
        # JupyterLab would print its addresses among other lines, before it listens. This prints one
        # address as the last line.
        server.log.addFilter(lambda record: "token=" not in record.getMessage())
        server.io_loop.add_callback(typer.echo, server.local_url)
        server.start()


# -- servers -------------------------------------------------------------------------------------


def serve(
    port: int = typer.Option(8400, min=0, max=65535, help="The port; 0 takes a free one."),
    cassette: list[str] = typer.Option([], help="Replay this cassette. Repeatable."),
    limit: int = typer.Option(300, min=0, help="How many requests a window allows."),
    window: float = typer.Option(60.0, min=0.001, help="The length of a window in seconds."),
    reset_unit: ResetUnit = typer.Option("seconds_left", help="The unit of X-RateLimit-Reset."),
) -> None:
    """Run a server here: the stand-in, or one that replays.

    With --cassette, any client gets the recorded responses, and nothing is
    forwarded. --limit, --window and --reset-unit are for the stand-in service.
    """
    # These import httpx, for which other commands need not wait.
    from ..server.loopback import cassette_server
    from ..server.standin import stand_in

    if cassette:
        files = [find_cassette(name) for name in cassette]
        replaying = cassette_server(files, port=port)
        played = [str(each.cassette) for each in replaying.sessions]
        address = f"Replaying at {replaying.base_url}; no key is needed, and nothing is forwarded."
        _run(replaying, address, f"Cassettes: {', '.join(played)}")
    else:
        service = stand_in(port=port, limit=limit, window_s=window, reset_unit=reset_unit)
        address = f"The stand-in service listens on {service.base_url}"
        key = f"Its key is {service.api_key}, which is public and opens nothing else."
        _run(service, address, key, f"It assumes {service.assumptions()}.")


def _run(server: LoopbackServer, *lines: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        typer.echo("\n".join([*lines, "Ctrl-C ends it."]))
        while not stopped.wait(0.2):  # Ctrl-C ends no wait without a timeout on older Windows
            pass
    typer.echo("Stopped.")
