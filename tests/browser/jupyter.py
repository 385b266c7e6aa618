"""A real JupyterLab or Notebook server, and a real Chromium to drive it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

import nbformat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import (
        Browser,
        BrowserContext,
        BrowserType,
        Page,
        Request,
        ViewportSize,
        WebSocket,
    )

App = Literal["lab", "notebook"]
Theme = Literal["Light", "Dark", "Dark High Contrast"]

# These flags let Debian's Chromium run as root in a container, and keep it off the network: no
# proxy listens at this port, and Chromium asks none for this machine.
_CHROMIUM_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --proxy-server=http://127.0.0.1:9"
)
_START_S = 300.0
WAIT_MS = 300_000
"""How long to wait for what a page shows or does: tests also run on busy machines."""


def find_chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def launch(kind: BrowserType) -> Browser:
    """Start Chromium."""
    flags = _CHROMIUM_FLAGS.split()
    return kind.launch(executable_path=find_chromium(), args=flags, timeout=WAIT_MS)


@dataclass(frozen=True, slots=True)
class Server:
    """A running Jupyter server, and every folder that it and its kernels write to."""

    url: str
    home: Path
    process: subprocess.Popen[bytes]
    address: str
    """The address that it prints for the user to open."""

    @property
    def notebooks(self) -> Path:
        """The folder that it serves."""
        return self.home / "work"

    @property
    def log(self) -> Path:
        """The log of the server and its kernels, at level DEBUG."""
        return self.home / "server.log"

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook with these cells, and return its name."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        path = self.notebooks / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return name

    def set_theme(self, theme: Theme) -> None:
        """Set the theme of pages that are opened from now on."""
        self._set("@jupyterlab/apputils-extension/themes", theme=f"JupyterLab {theme}")

    def save_widget_state(self, *, automatically: bool) -> None:
        """Turn "Save Widget State Automatically" on or off for pages opened from now on."""
        self._set("@jupyter-widgets/jupyterlab-manager/plugin", saveState=automatically)

    def restore_settings(self) -> None:
        """Give pages that are opened from now on the settings of a new user."""
        shutil.rmtree(self.home / "settings", ignore_errors=True)
        self.disable_extensions()

    def disable_extensions(self, *names: str) -> None:
        """Leave extensions out of pages that are opened from now on. The news are always out."""
        names = ("@jupyterlab/apputils-extension:announcements", *names)
        config = self.home / "config" / "labconfig" / "page_config.json"
        _write_json(config, {"disabledExtensions": dict.fromkeys(names, True)})

    def _set(self, name: str, **settings: object) -> None:
        _write_json(self.home / "settings" / f"{name}.jupyterlab-settings", settings)


def free_port() -> int:
    """Return a port that nobody listens on. With port 0, jupyter-server 2.14 prints 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def running_server(home: Path) -> Iterator[Server]:
    """Start a server with its own folders in ``home``; it serves ``home / "work"``."""
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    profile = home / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(
        "c.IPKernelApp.log_level = 10\nc.InteractiveShell.xmode = 'Verbose'\n"
    )
    arguments = [
        *("--debug", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        f"--port={free_port()}",
        "--IdentityProvider.token=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        "--MappingKernelManager.kernel_info_timeout=600",  # on a busy machine, 60 s are too few
        "--JupyterNotebookApp.expose_app_in_browser=True",
    ]
    with started(home, "jupyterlab", *arguments, at=work) as server:
        server.restore_settings()
        yield server


@contextlib.contextmanager
def started(home: Path, module: str, *arguments: str, at: Path) -> Iterator[Server]:
    """Run a module that starts JupyterLab or marimo in a folder, with a new user's settings."""
    _write_json(
        home / "config" / "jupyter_lab_config.json", {"LabApp": {"expose_app_in_browser": True}}
    )
    log = home / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=_environment(home),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=at,
        )
    try:
        address = _address(process, log)
        yield Server(f"http://{urlsplit(address).netloc}", home, process, address)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()
        process.wait()


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "DIRECTMAIL" not in name}
    folders = {
        **{f"JUPYTER_{name.upper()}_DIR": name for name in ("config", "data", "runtime")},
        **{f"JUPYTERLAB_{name.upper()}_DIR": name for name in ("settings", "workspaces")},
        "IPYTHONDIR": "ipython",
        "XDG_CONFIG_HOME": "xdg",
        "MPLCONFIGDIR": "matplotlib",
    }
    paths = {name: str(home / folder) for name, folder in folders.items()}
    return inherited | paths | {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def _write_json(path: Path, settings: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that a server prints, once it accepts connections."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"(?m)(?:ServerApp\] |URL: |^)(http://\S+)", log.read_text()):
            port = urlsplit(found[1]).port
            # The server prints its address before it listens.
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"The Jupyter server did not start:\n{log.read_text()[-2000:]}")


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """Open a window with nothing in its memory or storage, whose pages wait as long as others."""
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    return context


@dataclass(slots=True)
class Tab:
    """A browser page, and every address outside the Jupyter server that it requested."""

    page: Page
    foreign: list[str] = field(default_factory=list)


def new_tab(
    browser: Browser, server: Server, *, width: int = 1280, height: int = 900, scale: float = 1.0
) -> Tab:
    """Open an empty page that can reach only this machine.

    Every request to anything but the Jupyter server is noted. None is intercepted: that would turn
    off Chromium's cache, and loading JupyterLab would take a second longer.
    """
    size: ViewportSize = {"width": width, "height": height}
    context = new_context(browser, viewport=size, device_scale_factor=scale)
    tab = Tab(context.new_page())
    home = urlsplit(server.url).netloc

    def note(sent: Request | WebSocket) -> None:
        scheme, netloc = urlsplit(sent.url)[:2]
        if scheme not in ("data", "blob") and netloc != home:
            tab.foreign.append(sent.url)

    context.on("request", note)
    tab.page.on("websocket", note)
    return tab


_READY = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  if (!panel?.context) return '';
  await panel.context.ready; await panel.revealed; await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) return '';
  await kernel.info;
  return kernel.status;
}"""

_BOUNDED = """async ([script, argument, limit]) => {
  const late = new Promise((_, reject) => setTimeout(() => {
    const dialog = document.querySelector('.jp-Dialog')?.innerText;
    reject(new Error(`Not done in ${limit} ms: ${script}` + (dialog ? `; dialog: ${dialog}` : '')));
  }, limit));
  return await Promise.race([eval(script)(argument), late]);
}"""


def evaluate(page: Page, script: str, argument: object = None) -> Any:
    """Evaluate a script that waits. Playwright's own `evaluate` would wait without a limit."""
    return page.evaluate(_BOUNDED, [script, argument, WAIT_MS])


def open_app(page: Page, server: Server, at: str = "/lab?reset") -> None:
    """Open a page of JupyterLab or Notebook, and wait until it is ready."""
    page.goto(server.url + at)
    page.wait_for_function("() => window.jupyterapp")
    evaluate(page, "async () => { await jupyterapp.restored; return true }")


def open_lab(page: Page, server: Server) -> None:
    """Open JupyterLab, if the page does not show it already."""
    if not shows_lab(page, server):
        open_app(page, server)


def shows_lab(page: Page, server: Server) -> bool:
    """Return whether a page shows JupyterLab."""
    return page.url.startswith(f"{server.url}/lab")


def open_notebook(page: Page, server: Server, path: str, *, app: App = "lab") -> None:
    """Open a notebook, and wait until its kernel is idle."""
    if app == "lab":
        open_lab(page, server)
        command(page, "docmanager:open", path=path)
    else:
        open_app(page, server, f"/notebooks/{quote(path)}")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
    wait_for_kernel(page)


def reopen_notebook(page: Page, server: Server, path: str) -> None:
    """Close a notebook, shut down its kernel, and open it with a new one."""
    close_documents(page)
    open_notebook(page, server, path)


def shown_documents(page: Page) -> list[list[str]]:
    """Return the name and the widget factory of each open document."""
    shown: list[list[str]] = page.evaluate(
        "() => [...jupyterapp.shell.widgets('main')].filter((each) => each.context)"
        ".map((each) => [each.title.label, each.context.factoryName])"
    )
    return shown


def run_notebook(page: Page, server: Server, name: str, *cells: str, app: App = "lab") -> None:
    """Write a notebook with these cells, open it, and run all cells."""
    open_notebook(page, server, server.write(f"{name}.ipynb", *cells), app=app)
    run_all(page)


def wait_for_kernel(page: Page) -> None:
    """Wait until there is an idle kernel."""
    wait_for(page, lambda: evaluate(page, _READY) == "idle")


def wait_for(page: Page, condition: Callable[[], bool], *, limit_s: float = WAIT_MS / 1000) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            dialogs = page.locator(".jp-Dialog").all_inner_texts()
            raise TimeoutError(f"It did not come to be so. Dialogs: {dialogs}")
        page.wait_for_timeout(100)


def command(page: Page, name: str, **arguments: Any) -> None:
    """Execute one of JupyterLab's commands, and wait until it is done."""
    evaluate(
        page,
        "([name, args]) => jupyterapp.commands.execute(name, args).then(() => true)",
        [name, arguments],
    )


def run_all(page: Page) -> None:
    """Run all cells, and wait for the last."""
    command(page, "notebook:run-all-cells")


def run_cells(page: Page, *numbers: int) -> None:
    """Run some cells one after the other, and wait for each; a cell may fail."""
    for number in numbers:
        page.evaluate("n => { jupyterapp.shell.currentWidget.content.activeCellIndex = n }", number)
        command(page, "notebook:run-cell")


def save(page: Page) -> None:
    """Save the notebook and its checkpoint."""
    command(page, "docmanager:save")


def restart_kernel(page: Page) -> None:
    """Restart the kernel without the confirmation dialog."""
    evaluate(
        page,
        "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        ".then(() => true)",
    )
    wait_for_kernel(page)


def shut_down_kernels(page: Page) -> None:
    """Shut down all kernels of the server, because each takes a hundred megabytes."""
    evaluate(page, "async () => { await window.jupyterapp?.serviceManager.sessions.shutdownAll() }")


_EMPTIED = """async () => {
  const { serviceManager, shell } = jupyterapp;
  for (const each of [...shell.widgets('main')]) {
    if (each.context) each.context.model.dirty = false;  // so that it closes without a question
    each.close();
  }
  await serviceManager.sessions.shutdownAll();
  shell.expandLeft();
  return !document.querySelector('.jp-Dialog') &&
    ![...shell.widgets('main')].some((each) => each.context);
}"""


def close_documents(page: Page) -> None:
    """Close all documents of JupyterLab, and shut down all kernels."""
    wait_for(page, lambda: empty(page))


def empty(page: Page) -> bool:
    """Close all documents of JupyterLab, and shut down all kernels; return whether it is as new."""
    return bool(evaluate(page, _EMPTIED))
