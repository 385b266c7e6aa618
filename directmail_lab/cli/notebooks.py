"""JupyterLab, on the tutorials or on a demonstration."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import typer

from ..settings import API_KEY_VARIABLE, BASE_URL_VARIABLE
from ..standin import stand_in
from ..tutorials import FIRST, notebook_of, workplace

# JupyterLab's news pop-up contacts an outside server; only this setting removes it altogether.
_PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}

_DEMO = "demo.ipynb"
_DEMO_CELLS = (
    "# A demonstration\n\nA service that keeps the documented contract runs on this machine. "
    "Run each cell with Shift+Enter. The form has the service's address, and the kernel has its "
    "key: choose **Sign in**.",
    "import directmail_lab as dm\n\ndm.login()",
    "Watch what is left of the allowance here, while the cells below use it up:",
    "dm.monitor()",
    "dm.me()",
    "dm.burst(40);",
    "dm.chart_rate_limits()",
    "Recorded answers need neither the service nor a key:",
    'with dm.record("my-demo"):\n    dm.me()\n\ndm.replay("my-demo")\ndm.me()',
)

PORT = typer.Option(None, min=0, max=65535, help="Port of JupyterLab; by default a free one.")
NO_BROWSER = typer.Option(False, "--no-browser", help="Do not open a browser.")


def lab(port: int | None = PORT, no_browser: bool = NO_BROWSER) -> None:
    """Open JupyterLab on the first tutorial notebook.

    Outside a checkout, the tutorials are first copied to a folder here; your files are kept.
    """
    typer.echo("Starting JupyterLab on the tutorials; its address follows. Ctrl-C ends it.")
    folder = workplace(Path.cwd())
    _run_jupyterlab(lab_arguments(folder, f"notebooks/{FIRST}", port=port, browser=not no_browser))


def demo(port: int | None = PORT, no_browser: bool = NO_BROWSER) -> None:
    """Try everything out: the stand-in service, and a notebook that is ready to sign in to it."""
    typer.echo("Starting the stand-in service and JupyterLab; its address follows. Ctrl-C ends it.")
    folder = Path("directmail-lab-demo").absolute()
    (folder / "cassettes").mkdir(parents=True, exist_ok=True)
    if not (folder / _DEMO).exists():
        text = json.dumps(notebook_of(_DEMO_CELLS), indent=1)
        (folder / _DEMO).write_text(f"{text}\n", encoding="utf-8")
    with stand_in() as service:
        # The kernels find the address and the key in their environment.
        os.environ |= {BASE_URL_VARIABLE: service.base_url, API_KEY_VARIABLE: service.api_key}
        _run_jupyterlab(lab_arguments(folder, _DEMO, port=port, browser=not no_browser))


def lab_arguments(folder: Path, notebook: str, *, port: int | None, browser: bool) -> list[str]:
    """Return the arguments that start JupyterLab on a notebook without asking the network."""
    return [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{notebook}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        "--LabApp.extension_manager=readonly",
        *([] if browser else ["--no-browser"]),
        *([] if port is None else [f"--port={port}"]),
        # JupyterLab refuses to run as root without this option; in containers that is common.
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]


def _run_jupyterlab(arguments: list[str]) -> None:
    # CPython 3.11 maps and unmaps memory at each call that crosses the end of a 16 kB chunk of its
    # frame stack. Imported from this depth, a hot loop of JupyterLab's imports crosses one: 380,000
    # calls of munmap and 9 s, instead of 2,800 and 3 s. A new thread starts with a new chunk.
    with ThreadPoolExecutor(1) as thread:
        lab_app = thread.submit(import_module, "jupyterlab.labapp").result().LabApp
    # Our page settings come before the user's, for this process and its children only.
    with tempfile.TemporaryDirectory(prefix="directmail-lab-") as folder:
        settings = Path(folder, "labconfig", "page_config.json")
        settings.parent.mkdir()
        settings.write_text(json.dumps(_PAGE_CONFIG))
        own_path = os.environ.get("JUPYTER_CONFIG_PATH")
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [folder, own_path]))
        lab_app.launch_instance(arguments)
