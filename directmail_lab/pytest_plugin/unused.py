"""The list of the cassettes that no test uses, at the end of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest

from .settings import cassette_folders, cassette_path, relative, settings_of


class Unused:
    """Lists, at the end of a run, the cassettes in the tests' folders that no test uses.

    A test uses the cassettes of its fixtures (or of its ``vcr`` marker), and each cassette that its
    file names. There is no list if only some tests of a folder run, or in workers of xdist.
    """

    def __init__(self) -> None:
        self._lines = ["To see the list, give no file, only folders; and use -n0 with xdist."]

    @pytest.hookimpl(tryfirst=True)  # before tests are deselected
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not all((config.invocation_params.dir / each).is_dir() for each in config.args):
            return
        used = set(chain.from_iterable(map(_used_by, items)))
        sources = {item.path for item in items if item.path.suffix == ".py"}
        text = "\n".join(path.read_text("utf-8", "ignore") for path in sources)
        folders = {cassette_folders(item)[1] for item in items}
        found = set(chain.from_iterable(folder.rglob("*.y*ml") for folder in folders))
        self._lines = sorted(
            relative(path, config)
            for path in found - used
            if not re.search(rf"[\"']{re.escape(path.stem)}(\.ya?ml)?[\"']", text)
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("cassettes that no test uses")
        terminalreporter.write_line("\n".join(self._lines) or "none")


def _used_by(item: pytest.Item) -> Iterator[Path]:
    """Yield the cassettes of a test's fixtures, and of its ``vcr`` marker."""
    fixtures = getattr(item, "fixturenames", ())
    module = item.getparent(pytest.Module)
    if item.get_closest_marker("vcr"):
        yield cassette_path(item, None)
    with suppress(pytest.fail.Exception, ValueError):  # a wrong marker fails the test itself
        uses_session = "directmail_session" in fixtures
        is_marked = bool(item.get_closest_marker("directmail")) and not uses_session
        if "directmail" in fixtures or is_marked:
            yield cassette_path(item, settings_of(item, {}).cassette)
        if uses_session and module is not None:
            yield cassette_path(module, settings_of(module, {}).cassette)
