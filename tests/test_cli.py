"""The command, run as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.testing import CliRunner

from directmail_lab import tutorials
from directmail_lab.cli import lab
from directmail_lab.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "directmail_lab"]


@pytest.fixture
def serving() -> Iterator[subprocess.Popen[str]]:
    """The stand-in, started by the command on a free port."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--limit", "7", "--reset-unit", "epoch_s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        yield process
        process.kill()


def said_until(process: subprocess.Popen[str], last: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if last in line:
            break
    return said


def test_serve_says_what_it_assumes_and_ends_on_ctrl_c(serving: subprocess.Popen[str]) -> None:
    """It prints each assumption, answers by the contract, and Ctrl-C ends it with exit code 0."""
    said = said_until(serving, "Ctrl-C ends it")
    address = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert address is not None
    key = re.search(r"key is (\S+):", said)
    assert key is not None
    answer = httpx.get(f"{address[0]}/v1/users/me", auth=(key[1], ""))
    serving.send_signal(signal.SIGINT)
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


def test_a_deliberate_error_is_a_message_and_exit_code_2() -> None:
    """No traceback: what happened, and what to do."""
    done = subprocess.run(
        [*COMMAND, "serve", "--port", "0", "--api-key", "a:b"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("directmail-lab: The API key holds a colon")
    assert "Traceback" not in done.stderr


def test_lab_asks_no_server_outside(tmp_path: Path) -> None:
    """The arguments switch off news, update checks and the extension manager's listing."""
    given = lab.lab_arguments(tmp_path, port=8890, browser=False)

    assert "--port=8890" in given
    assert "--no-browser" in given
    assert "--LabApp.news_url=None" in given
    assert "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate" in given
    assert "--LabApp.extension_manager=readonly" in given


@pytest.mark.slow
def test_the_lab_starts_on_the_first_tutorial(tmp_path: Path) -> None:
    """The command starts a real JupyterLab whose page opens the notebook, and Ctrl-C ends it."""
    process = subprocess.Popen(
        [*COMMAND, "lab", "--no-browser", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "JUPYTER_RUNTIME_DIR": str(tmp_path / "run")},
    )
    with process:
        said = said_until(process, "/lab/tree/notebooks/01-first-look.ipynb?token=")
        process.terminate()
        process.communicate(timeout=30)

    assert f"/lab/tree/notebooks/{tutorials.FIRST}?token=" in said
