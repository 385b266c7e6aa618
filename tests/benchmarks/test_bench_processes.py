"""What whole processes cost: each start, a suite of tests of one request, a browser.

CPU time of the child processes, with all that they import.
"""

import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from cassette_samples import BASE_URL, recorded, theirs
from polled import BODY, different

from directmail_lab.notebook import browser_data
from directmail_lab.notebook.browser import browse

TESTS = 400
ONE_REQUEST = f"""
import httpx
import pytest

@pytest.fixture
def mock():
    answer = lambda _: httpx.Response(200, content={BODY!r}, headers={{"X-RateLimit-Limit": "300"}})
    with httpx.Client(transport=httpx.MockTransport(answer), base_url="{BASE_URL}") as client:
        yield client

@pytest.fixture
def alone():
    with httpx.Client(base_url="{BASE_URL}") as client:
        yield client

@pytest.mark.parametrize("i", range({TESTS}))
def test(FIXTURE, i):
    assert FIXTURE.get(f"/v1/lists/{{i}}?page={{i}}").status_code == 200
"""


PLAIN = ("-p", "no:cassetter", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".")
EMPTY_SUITE = ("-m", "pytest", "-q", *PLAIN, "test_nothing.py")
# What is run, by what it is compared with, and the goal.
STARTS: dict[str, tuple[dict[str, tuple[str, ...]], dict[str, str]]] = {
    "import": (
        {
            "python": ("-c", "pass"),
            "import directmail_lab": ("-c", "import directmail_lab"),
            "--version": ("-m", "directmail_lab", "--version"),
            "--help": ("-m", "directmail_lab", "--help"),
        },
        {"import directmail_lab": "+50,000 us", "--version": "300,000 us"},
    ),
    "the first me()": (
        {
            "pandas and httpx": ("-c", "import pandas, httpx"),
            "replayed": ("-c", "import directmail_lab as dm; dm.replay('tour'); dm.me()"),
        },
        {"replayed": "+100,000 us"},
    ),
    "pytest": (
        {
            "without the plugin": (*EMPTY_SUITE, "-p", "no:directmail_lab"),
            "with it, unused": EMPTY_SUITE,
        },
        {"with it, unused": "+50,000 us"},
    ),
}


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let Python keep what it compiles in the first round, as it does for an installed package."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("name", STARTS)
def test_a_start(in_turns, tour, monkeypatch, name):
    """What a process takes before it does anything."""
    monkeypatch.chdir(tour.parents[1])
    Path("test_nothing.py").write_text("def test():\n    pass\n")
    commands, goals = STARTS[name]
    calls = {each: partial(run, *arguments) for each, arguments in commands.items()}
    in_turns(calls, goals, rounds=7, timer=children_s)


def test_a_suite(in_turns, tmp_path):
    """Each of 400 tests replays a cassette of its own."""
    for fixture in ("mock", "directmail", "alone"):
        (tmp_path / f"test_{fixture}.py").write_text(ONE_REQUEST.replace("FIXTURE", fixture))
    with (tmp_path / "test_alone.py").open("a") as module:
        module.write("pytestmark = pytest.mark.vcr\n")
    cassettes = tmp_path / "cassettes"
    (cassettes / "test_alone").mkdir(parents=True)
    for number, each in enumerate(different(TESTS)):
        recorded(cassettes / f"test_directmail/test[{number}].yaml", each)
        theirs(cassettes / f"test_alone/test[{number}].yaml", each)

    def suite(fixture: str) -> None:
        run("-m", "pytest", "-q", *PLAIN, str(tmp_path / f"test_{fixture}.py"))

    calls = {
        "MockTransport": lambda: suite("mock"),
        "ours": lambda: suite("directmail"),
        "pytest-recording": lambda: suite("alone"),
    }
    in_turns(calls, {"ours": "1.10"}, rounds=6, requests=TESTS, timer=children_s)


@pytest.mark.benchmark(group="browse", timer=time.process_time)
def test_the_first_rows_of_ten_thousand(benchmark, tmp_path):
    """From the file to what the page shows first: at most 0.5 s after the imports."""
    path = recorded(tmp_path / "tour.yaml", *different(10_000))

    def first_rows() -> int:
        widget = browse(path)
        request = {"action": "list", "first": 1, "limit": 1000}
        response, _ = browser_data.handle_request(widget._recording, request)
        return len(response["rows"])

    assert benchmark.pedantic(first_rows, rounds=5) == 1000
