"""The list of the cassettes that no test uses, at the end of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from .settings import Settings, cassette_folder, cassette_path, relative, settings_of


class Unused:
    """Lists, at the end of a run, the cassettes in the tests' folders that no test uses.

    A test uses the cassettes of its fixtures (or of its ``vcr`` marker), and each that its file
    names. With xdist the workers collect the tests, and send their lists to the main process.
    """

    def __init__(self, config: pytest.Config) -> None:
        # If only some tests are run, the cassettes of the others would seem to be unused.
        self._is_whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS
        self._paths: list[str] = []

    @pytest.hookimpl(tryfirst=True)  # before tests are deselected
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        used = {path for item in items for path in _used_by(item)}
        sources = {item.path for item in items if item.path.suffix == ".py"}
        texts = [path.read_text("utf-8", "ignore") for path in sources]
        folders = {cassette_folder(item) for item in items}
        unused = {path for folder in folders for path in folder.rglob("*.yaml")} - used
        self._paths = sorted(
            relative(path, config)
            for path in unused
            if not any(re.search(rf"[\"']{re.escape(path.stem)}(\.yaml)?[\"']", t) for t in texts)
        )
        if hasattr(config, "workeroutput"):
            config.workeroutput["directmail_unused"] = self._paths

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that crashed has none
        self._paths = output.get("directmail_unused", self._paths)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("cassettes that no test uses")
        lines = self._paths if self._is_whole_run else ["Run all tests to see them: name no file."]
        terminalreporter.write_line("\n".join(lines) or "none")


def _used_by(item: pytest.Item) -> Iterator[Path]:
    """Yield the cassettes of a test's fixtures, and of its ``vcr`` marker."""
    fixtures, module = getattr(item, "fixturenames", ()), item.getparent(pytest.Module)
    if item.get_closest_marker("vcr"):
        yield cassette_path(item, Settings())
    with suppress(pytest.fail.Exception):  # of a wrong marker: the test fails by itself
        if "directmail" in fixtures:
            yield cassette_path(item, settings_of(item, {}))
        if "directmail_session" in fixtures and module is not None:
            yield cassette_path(module, settings_of(module, {}))
