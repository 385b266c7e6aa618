"""What the benchmarks share: where they write down their ratios, shown when all are done."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# The tests' own samples stand one folder up.
sys.path.insert(0, str(Path(__file__).parents[1]))

_FINDINGS: list[str] = []


@pytest.fixture
def report() -> Callable[[str], None]:
    """Write a line that stands below the benchmarks' table."""
    return _FINDINGS.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the ratios."""
    if _FINDINGS:
        terminalreporter.section("ratios")
        for line in _FINDINGS:
            terminalreporter.write_line(line)
