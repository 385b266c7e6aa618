"""Without pandas, JupyterLab and the rest, tests replay, and other calls say what to install.

`.ci/run` runs the same suite, `light/replaying.py`, where these packages are not installed.
"""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "notebooks" / "pytest-settings.md").read_text(encoding="utf-8")
(LINES,) = re.findall(r"^```text requirements\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def dependencies() -> list[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed: list[str] = project["project"]["dependencies"]
    return needed


def test_the_guides_requirements_are_those_of_the_package():
    assert set() < set(LINES.splitlines()) < set(dependencies())


@pytest.mark.slow
def test_a_suite_replays_without_the_other_packages(pytester):
    shutil.copytree(Path(__file__).parent / "light", pytester.path, dirs_exist_ok=True)
    names = [re.split("[<>=]", line)[0] for line in {*dependencies()} - {*LINES.splitlines()}]
    blocked = [name.replace("-", "_") for name in names if name != "certifi"]  # httpx needs it
    pytester.path.joinpath("sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n"
    )
    pytester.syspathinsert()

    ran = pytester.runpytest_subprocess("-p", "no:xdist", "replaying.py")

    assert set(ran.parseoutcomes()) == {"passed"}
