"""The command, run as a user runs it: in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from jupyter_client import BlockingKernelClient
from typer.testing import CliRunner

from directmail_lab import __version__, tutorials
from directmail_lab.cli import app, lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from directmail_lab.standin import StandIn

COMMAND = [sys.executable, "-m", "directmail_lab"]


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, running in a folder, and ended in any case."""
    variables = {"PYTHONUNBUFFERED": "1", "JUPYTER_RUNTIME_DIR": str(folder / "run")}
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
            process.kill()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The stand-in, started by the command on a free port."""
    words = ("serve", "--port", "0", "--limit", "7", "--reset-unit", "epoch_s")
    with started(tmp_path, *words) as process:
        yield process


def said_until(process: subprocess.Popen[str], last: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if last in line:
            break
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_what_it_assumes_and_ends_on_a_signal(
    serving: subprocess.Popen[str], number: int
) -> None:
    """It prints each assumption, answers by the contract, and Ctrl-C ends it with exit code 0."""
    said = said_until(serving, "Ctrl-C ends it")
    address = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert address is not None
    key = re.search(r"key is (\S+):", said)
    assert key is not None
    answer = httpx.get(f"{address[0]}/v1/users/me", auth=(key[1], ""))
    serving.send_signal(number)
    rest, _ = serving.communicate(timeout=20)

    assert answer.headers["X-RateLimit-Limit"] == "7"
    assert int(answer.headers["X-RateLimit-Reset"]) > 1_700_000_000
    assert "seconds since 1970 (reset_unit)" in said
    assert (serving.returncode, rest.strip()) == (0, "Stopped.")


def test_help_is_a_table_of_contents() -> None:
    """`--help` lists the commands."""
    shown = CliRunner().invoke(app, ["--help"])

    assert shown.exit_code == 0
    for command in ("lab", "serve"):
        assert re.search(rf"\b{command}\b", shown.output)


def test_an_unknown_command_is_a_usage_error() -> None:
    """A mistyped command exits with 2."""
    assert CliRunner().invoke(app, ["lba"]).exit_code == 2


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a script does: not in a terminal."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env={**os.environ, **variables}
    )


NOWHERE = {"DIRECTMAIL_BASE_URL": "http://127.0.0.1:9", "DIRECTMAIL_API_KEY": "any-key-at-all"}


@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        ("me", NOWHERE, "Nothing answers at http://127.0.0.1:9"),
        ("findings", NOWHERE, "Nothing answers at"),
        ("me", {}, "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY, or name a recording"),
        ("check --cassette nowhere", {}, "no file nowhere, and no cassette of that name"),
        ("cassette show ../nowhere", {}, "directmail-lab cassette list"),
        ("cassette convert first-look file/x.har", {}, "file"),
        ("share --to file/a.zip tour.ipynb", {}, "file"),
        ("share nowhere.ipynb", {}, "nowhere.ipynb cannot be read"),
        ("serve --port 0 --api-key a:b", {}, "The API key holds a colon"),
        ("serve --port {taken}", {}, "Cannot listen on port"),
    ],
)
def test_what_could_not_be_done_is_one_line_and_exit_code_2(
    words: str, variables: dict[str, str], says: str, service: StandIn
) -> None:
    """What happened and what to do; no traceback, and no advice that only Python can follow."""
    Path("file").touch()
    Path("tour.ipynb").write_text('{"cells": [], "metadata": {}}')
    taken = service.base_url.rpartition(":")[2]
    done = run(*words.format(taken=taken).split(), **variables)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("directmail-lab: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not re.search(r"\w\((?!s\))|pathlib|Errno", done.stderr)


@pytest.mark.parametrize(
    "words", ["serve --window -1", "serve --port 99999999", "lab --port -1", "serve --limit -1"]
)
def test_a_number_that_cannot_be_is_a_usage_error(words: str) -> None:
    """It names the option, and nothing is started."""
    done = CliRunner().invoke(app, words.split())

    assert done.exit_code == 2
    assert words.split()[1] in done.output


def test_the_version_is_told() -> None:
    """That of the package."""
    assert run("--version").stdout == f"directmail-lab {__version__}\n"


def test_the_shell_completes_names_of_cassettes(tour: Path) -> None:
    """Those that a name finds and that begin as what is typed."""
    script = str(Path(sys.executable).with_name("directmail-lab"))
    typed = {"COMP_WORDS": "directmail-lab me --cassette to", "COMP_CWORD": "3"}
    done = subprocess.run(
        [script],
        capture_output=True,
        text=True,
        env={**os.environ, **typed, "_DIRECTMAIL_LAB_COMPLETE": "complete_bash"},
    )

    assert done.stdout.split() == ["tour"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("command", ["me", "rate-limits", "check", "findings", "cassette show"])
def test_tables_fit_a_terminal_of_80_columns(command: str) -> None:
    """In a real one: no line is longer, and nothing is written over several."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))  # type: ignore[attr-defined,unused-ignore]
    words = [*command.split(), *(["--cassette"] if "cassette" not in command else []), "first-look"]
    free = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    said = b""
    with subprocess.Popen([*COMMAND, *words], stdout=theirs, env=free) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the terminal's end, on Linux
            while read := os.read(ours, 65_536):
                said += read
    os.close(ours)

    assert process.returncode == 0
    assert max(map(len, said.decode().splitlines())) <= 80


@pytest.mark.slow
def test_the_demonstration_is_ready_to_sign_in(tmp_path: Path) -> None:
    """Its notebook needs nothing typed: the kernel's environment has the address and the key."""
    with started(tmp_path, "demo", "--no-browser", "--port", "0") as process:
        said = said_until(process, "/lab/tree/demo.ipynb?token=")
        address = re.search(r":(\d+)/lab/tree/demo\.ipynb\?token=(\w+)", said)
        assert address is not None
        token = {"Authorization": f"token {address[2]}"}
        kernel = httpx.post(
            f"http://127.0.0.1:{address[1]}/api/kernels", headers=token, timeout=60
        ).json()["id"]
        notebook = json.loads((tmp_path / "directmail-lab-demo" / "demo.ipynb").read_text())
        outputs = outputs_of(tmp_path / "run" / f"kernel-{kernel}.json", notebook)

    assert said.startswith("Starting the stand-in service")
    assert "error" not in outputs
    assert outputs.count("display_data") + outputs.count("execute_result") >= 5


def outputs_of(connection: Path, notebook: dict[str, Any]) -> list[str]:
    """Run a notebook's code in a kernel that is there; the kinds of messages that come of it."""
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    kinds: list[str] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            client.execute_interactive(
                cell["source"], timeout=60, output_hook=lambda told: kinds.append(told["msg_type"])
            )
    client.stop_channels()
    return kinds


def test_lab_asks_no_server_outside(tmp_path: Path) -> None:
    """The arguments switch off news, update checks and the extension manager's listing."""
    given = lab.lab_arguments(tmp_path, "a.ipynb", port=8890, browser=False)

    assert "--port=8890" in given
    assert "--no-browser" in given
    assert "--LabApp.news_url=None" in given
    assert "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate" in given
    assert "--LabApp.extension_manager=readonly" in given


@pytest.mark.slow
def test_the_lab_starts_on_the_first_tutorial(tmp_path: Path) -> None:
    """The command starts a real JupyterLab whose page opens the notebook, and Ctrl-C ends it."""
    with started(tmp_path, "lab", "--no-browser", "--port", "0") as process:
        said = said_until(process, "/lab/tree/notebooks/01-first-look.ipynb?token=")

    assert said.startswith("Starting JupyterLab")
    assert f"/lab/tree/notebooks/{tutorials.FIRST}?token=" in said
