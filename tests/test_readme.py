"""The README: its Python prints the output shown, and its commands and links are valid."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from directmail_lab.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\S+)([^\n]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readmes_python_runs_and_prints_the_output_shown(capsys, tmp_path):
    (tmp_path / "cassettes").mkdir()
    names: dict[str, object] = {}
    printed = []
    for language, tag, text in BLOCKS:
        if language == "python" and "notest" not in tag:
            exec(compile(text, "README.md", "exec"), names)
            printed.append(capsys.readouterr().out)

    assert printed == [text for language, _, text in BLOCKS if language == "text"]


def commands() -> list[str]:
    lines = [line for language, _, text in BLOCKS if language == "sh" for line in text.splitlines()]
    cut = [line.split("#")[0].split("&&")[-1].strip() for line in lines]
    return [line for line in cut if line.startswith("directmail-lab")]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_readme_is_there(line):
    """The command's help lists each option that the README uses."""
    words = shlex.split(line)[1:]
    names = words[: 2 if words[:1] == ["cassette"] else 1 if words and words[0][0] != "-" else 0]
    shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200"})

    assert shown.exit_code == 0
    for option in [word for word in words if word.startswith("--")]:
        assert option in shown.output


def test_the_readme_lists_every_command():
    root = get_command(app)
    assert hasattr(root, "commands")
    for name, command in root.commands.items():
        lines = [line for line in README.splitlines() if f"directmail-lab {name}" in line]
        assert lines, f'README.md, "The command line": add a line "directmail-lab {name}"'
        names = getattr(command, "commands", {}).keys()
        missing = names - set(re.findall(r"\w+", " ".join(lines)))
        assert not missing, f'README.md: add {missing} to the line "directmail-lab {name} list"'


def test_each_image_exists_and_is_small():
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert 0 < (ROOT / path).stat().st_size < 300_000


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(ROOT.glob("notebooks/*.md"))], ids=str
)
def test_the_links_lead_somewhere(page):
    for path in re.findall(r"\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / path).exists(), path
