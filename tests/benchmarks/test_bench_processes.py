"""What whole processes cost: a process that replays, a suite of tests of one request, a browser.

CPU time of the child processes, with all that they import.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest
from cassette_samples import BASE_URL, recorded, theirs
from polled import BODY, different

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.questions.audit import audit
from directmail_lab.widgets import page
from directmail_lab.widgets.browser import browse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

TESTS: Final = 400
ONE_REQUEST: Final = f"""
import httpx
import pytest

@pytest.fixture
def mock():
    answer = lambda _: httpx.Response(200, content={BODY!r}, headers={{"X-RateLimit-Limit": "300"}})
    with httpx.Client(transport=httpx.MockTransport(answer), base_url="{BASE_URL}") as client:
        yield client

@pytest.mark.parametrize("i", range({TESTS}))
def test(FIXTURE, i):
    assert FIXTURE.get(f"/v1/lists/{{i}}?page={{i}}").status_code == 200
"""


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.benchmark(group="a process", timer=children_s)
@pytest.mark.parametrize("name", ["pandas and httpx", "ours"])
def test_a_process(benchmark: BenchmarkFixture, tour: Path, name: str) -> None:
    """One that imports, replays and calls `me`: at most 0.15 s more than pandas and httpx."""
    ours = "import directmail_lab as dm; dm.replay('tour'); dm.me()"
    benchmark.pedantic(run, ["-c", ours if name == "ours" else "import pandas, httpx"], rounds=7)


@pytest.mark.benchmark(group=f"{TESTS} tests", timer=children_s)
@pytest.mark.parametrize("fixture", ["mock", "directmail"])
def test_a_suite(benchmark: BenchmarkFixture, tmp_path: Path, fixture: str) -> None:
    """Each test replays a cassette of its own: at most 1.5 times a mock."""
    (tmp_path / "test_it.py").write_text(ONE_REQUEST.replace("FIXTURE", fixture))
    for number, each in enumerate(different(TESTS)):
        recorded(tmp_path / f"cassettes/test_it/test[{number}].yaml", each)
    plain = ("-p", "no:cassetter", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".")
    benchmark.pedantic(run, ["-m", "pytest", "-q", *plain, "test_it.py"], rounds=5)


@pytest.mark.benchmark(group="browse", timer=time.process_time)
def test_the_first_rows_of_ten_thousand(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """From the file to what the page shows first: at most 0.5 s after the imports."""
    path = recorded(tmp_path / "tour.yaml", *different(10_000))

    def first_rows() -> int:
        widget = browse(path)
        request = {"action": "list", "first": 1, "limit": 1000}
        return len(page.handle_request(widget._opening.result(), request)[0]["rows"])

    assert benchmark.pedantic(first_rows, rounds=5) == 1000


@pytest.mark.benchmark(group="questions", timer=time.process_time)
@pytest.mark.parametrize("question", ["read", "rate_limits", "interactions", "findings", "openapi"])
def test_questions_of_a_hundred_thousand(
    benchmark: BenchmarkFixture, tmp_path: Path, question: str
) -> None:
    """What each takes in times of opening the file, which all of them do first."""
    path = recorded(tmp_path / "tour.yaml", *different(100_000))
    ask = read_cassette if question == "read" else getattr(dm, question)
    benchmark.pedantic(ask, [path], rounds=2)


@pytest.mark.benchmark(group="audit", timer=time.process_time)
@pytest.mark.parametrize("ask", [read_cassette, audit])
def test_an_audit_of_a_suite(benchmark: BenchmarkFixture, tmp_path: Path, ask: Callable) -> None:
    """Files of vcrpy's layout; the command audits several at once, on each core."""
    paths = [theirs(tmp_path / f"{number}.yaml", *different(20)) for number in range(60)]
    benchmark.pedantic(lambda: list(map(ask, paths)), rounds=3)
