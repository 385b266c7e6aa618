"""The list of the cassettes that no test uses, at the end of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from . import USE
from .settings import cassette_path, relative, settings_of


class Unused:
    """Lists, at the end of a run, the cassettes in the tests' folders that no test uses.

    A test uses the cassettes of its fixtures (or of its ``vcr`` marker), and each that its file
    names. With xdist each worker sends its list to the main process.
    """

    def __init__(self, config: pytest.Config) -> None:
        # If only some tests are run, the cassettes of the others would seem to be unused.
        self._is_whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS
        self._items: list[pytest.Item] = []
        self._paths: set[str] = set()

    @pytest.hookimpl(tryfirst=True)  # before tests are deselected
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._items = items.copy()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config, items = session.config, self._items
        # The fixture directmail_options may name another folder, which is known of a test that ran.
        uses = [node.stash.get(USE, None) for item in items for node in item.listchain()]
        names = {use.settings.cassettes for use in uses if use is not None}
        names.add(config.getini("directmail_cassettes"))
        used = {path for item in items for name in names for path in _used_by(item, name)}
        sources = {item.path for item in items}
        texts = [path.read_text("utf-8", "ignore") for path in sources if path.suffix == ".py"]
        folders = {path.parent / name for path in sources for name in names}
        unused = {path for folder in folders for path in folder.rglob("*.yaml")} - used
        self._paths.update(
            relative(path, config)
            for path in unused
            if not any(re.search(rf"[\"']{re.escape(path.stem)}(\.yaml)?[\"']", t) for t in texts)
        )
        if hasattr(config, "workeroutput"):
            config.workeroutput["directmail_unused"] = list(self._paths)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that crashed has none
        self._paths.update(output.get("directmail_unused", ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("cassettes that no test uses")
        whole = "\n".join(sorted(self._paths)) or "none"
        some = "Run all tests to see them: name no file."
        terminalreporter.write_line(whole if self._is_whole_run else some)


def _used_by(item: pytest.Item, folder: str) -> Iterator[Path]:
    """Yield the cassettes of a test, if they are in the folder of this name."""
    fixtures, module = getattr(item, "fixturenames", ()), item.getparent(pytest.Module)
    with suppress(pytest.fail.Exception):  # of a wrong marker: the test fails by itself
        if item.get_closest_marker("vcr"):
            yield cassette_path(
                item, replace(settings_of(item, {}), cassettes=folder, cassette=None)
            )
        if "directmail" in fixtures:
            yield cassette_path(item, replace(settings_of(item, {}), cassettes=folder))
        if "directmail_session" in fixtures and module is not None:
            yield cassette_path(module, replace(settings_of(module, {}), cassettes=folder))
