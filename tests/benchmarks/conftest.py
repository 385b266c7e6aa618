"""Shared by the benchmarks: a narrow table, and comparisons below it."""

import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

# The tests' own samples are in the parent folder.
sys.path.insert(0, str(Path(__file__).parents[1]))

_ON_TOP: list[str] = []


class Turns:
    """Times several calls in turns, since a machine's speed drifts, and shows how they compare."""

    def __init__(self, title: str, benchmark: BenchmarkFixture) -> None:
        self.title = title
        self._benchmark = benchmark
        benchmark.group = "all the calls of a test in turns, by the clock"

    def __call__(
        self,
        calls: dict[str, Callable[[], object]],
        goals: dict[str, str],
        *,
        rounds: int,
        requests: int = 1,
        before: Callable[[], object] = lambda: None,
        timer: Callable[[], float] = time.process_time,
        memory: bool = False,
    ) -> None:
        """Compare each call's least time, for one of its requests, with the first one's.

        ``goals`` has the same names as ``calls``. ``before`` is called before each round, and not
        timed. ``memory`` calls each once more, for the most memory that Python's objects take.
        """

        def least() -> dict[str, float]:
            least_s = dict.fromkeys(calls, float("inf"))
            for _ in range(rounds):  # the first of which warms up
                before()
                for name, call in calls.items():
                    start_s = timer()
                    call()
                    least_s[name] = min(least_s[name], timer() - start_s)
            return least_s

        least_s = self._benchmark.pedantic(least, rounds=1)
        first, first_s = next(iter(least_s.items()))
        for name, each_s in least_s.items():
            each_us = each_s / requests * 1e6
            line = f"{self.title}: {name} takes {each_us:.1f} us"
            if name != first:
                extra_us = (each_s - first_s) / requests * 1e6
                line += f", {each_s / first_s:.3f} times {first}, {extra_us:+.1f} us"
            if memory:
                line += f", {peak_mb(calls[name]):.1f} MB at most"
            _ON_TOP.append(line + (f" (goal: {goals[name]})" if name in goals else ""))
            self._benchmark.extra_info[name] = {"us": each_us, "times": each_s / first_s}


def peak_mb(call: Callable[[], object]) -> float:
    """Return the most memory that Python's objects take during a call."""
    tracemalloc.start()
    call()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes / 1e6


@pytest.fixture
def in_turns(request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> Turns:
    """What times calls in turns, titled as the test is."""
    return Turns(request.node.name.removeprefix("test_").replace("_", " "), benchmark)


def pytest_configure(config: pytest.Config) -> None:
    """Show only the compared columns, and measure nothing if tests run in parallel."""
    config.option.benchmark_columns = config.option.benchmark_columns or [
        *("min", "median", "rounds", "iterations")
    ]
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        config.option.benchmark_disable = True


def pytest_benchmark_group_stats(benchmarks: list[dict[str, Any]]) -> None:
    """Note what a benchmark says of its growth."""
    _ON_TOP.extend(
        each["extra_info"]["growth"] for each in benchmarks if "growth" in each["extra_info"]
    )


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the comparisons below pytest-benchmark's table."""
    if _ON_TOP:
        terminalreporter.section("on top")
        for line in _ON_TOP:
            terminalreporter.write_line(line)
