"""Whole suites as users of the pytest plugin have them: recorded, replayed and changed."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import httpcore  # noqa: F401  (it cannot be imported twice)
import pytest
from key_search import traces
from suite.service import Service

import directmail_lab.cassettes.vcr_files  # noqa: F401  (it cannot be imported twice)

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = Path(__file__).parent / "suite"
KEY = "hk_live_Zx81kQ0pLm27Vt"
RECORD = ("--directmail-record-mode=once", "--directmail-allow-writes")
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error")
APART = (*OPTIONS, "-o", "asyncio_default_fixture_loop_scope=function")
if tuple(map(int, version("pytest-asyncio").split(".")[:2])) < (1, 4):  # it leaves a loop open
    APART += ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
IN_PROCESS = (*OPTIONS, "-p", "no:asyncio", "-p", "no:anyio", "-k", "not events and not at_once")
# For each change: the old text, the new text, and what the message says.
CHANGES = {
    "a wrong path": (
        "/v1/users/me",
        "/v1/user/me",
        "/v1/user/me is not recorded, but GET /v1*",
    ),
    "a parameter left out": (', "city": city}', "}", "GET /v1/search differs in query: city"),
    "a parameter renamed": ("?size=", "?limit=", "differs in query: limit, query: size"),
    "another method": (
        '"PATCH"',
        '"PUT"',
        "PUT /v1/lists/spring is not recorded, but PATCH *",
    ),
    "another host": (
        '"/v1/search"',
        '"https://b.test/v1/search"',
        "GET https://b.test/v1/s* but *",
    ),
    "another value": ('"static"', '"dynamic"', "POST /v1/lists differs in body: kind"),
    "a field renamed": ('"text": text', '"page": text', "differs in body: page, body: text"),
    "a form's field": ("client_credentials", "password", "differs in body: grant_type"),
    "a part renamed": ('"rows.csv"', '"data.csv"', "*/rows differs in body: file name of file"),
    "a header dropped": (', headers={"X-Currency": currency}', "", "differs in match_on: currency"),
    "a request less": ('self._send("DELETE", f"/v1/lists/{name}").status_code', "204", " DELETE *"),
    "a request more": ("letter = acc", "account.status('let1')\n        letter = acc", "* played."),
}


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """The suite of tests/suite, with its conftest and its settings."""
    names = {"client.py": "client.py", "suite.py": "test_account.py", "ours.py": "conftest.py"}
    for name, copy in names.items():
        shutil.copy(SUITE / name, pytester.path / copy)
    pytester.makeini("[pytest]\ndirectmail_block_network = true")
    return pytester


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that repeats the key. Its address and the key are in the environment."""
    with Service() as started:
        monkeypatch.setenv("DIRECTMAIL_BASE_URL", started.base_url)
        monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
        yield started


def leaks(folder: Path) -> list[str]:
    """Return the names of the files that contain the key in any form."""
    return [path.name for path in folder.rglob("*.yaml") if traces(path.read_bytes(), KEY)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_suite_is_recorded_and_replayed(
    suite: pytest.Pytester, careless: Service, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """The suite has async tests, writes, errors, pages and an upload; its replay needs no key."""
    recorded = suite.runpytest_subprocess(*APART, *RECORD, workers)
    sent = careless.requests.copy()
    careless.close()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    replayed = suite.runpytest_subprocess(*APART, workers)

    outcomes = recorded.parseoutcomes()
    assert replayed.parseoutcomes() == outcomes
    assert outcomes == {"passed": len(list(suite.path.rglob("*.yaml")))}
    assert leaks(suite.path) == []
    assert all(sent[f"GET checks/{name}"] == 1 for name in ("allowance", "broken", "outage"))


@pytest.mark.slow
def test_a_changed_client_fails(suite: pytest.Pytester, careless: Service) -> None:
    """Each change of a request fails exactly one test, and the message names the difference."""
    assert {*suite.runpytest(*IN_PROCESS, *RECORD).parseoutcomes()} == {"passed", "deselected"}
    sources = {path: path.read_text("utf-8") for path in suite.path.glob("[ct]*t*.py")}
    for change, (old, new, line) in CHANGES.items():
        (path,) = (path for path, source in sources.items() if old in source)
        path.write_text(sources[path].replace(old, new), encoding="utf-8")
        result = suite.runpytest(*IN_PROCESS)
        path.write_text(sources[path], encoding="utf-8")

        assert result.parseoutcomes()["failed"] == 1, change
        result.stdout.fnmatch_lines([f"*{line}"])


def test_the_clients_of_sdks_record_and_replay(
    suite: pytest.Pytester, careless: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDKs take an ``http_client``, sync or async. Their own retries are replayed too."""
    shutil.copy(SUITE / "sdk.py", suite.path)
    suite.makepyfile(
        test_account="""
        import asyncio, os, pytest
        from sdk import Completions, Messages

        @pytest.fixture
        def options(directmail):
            key = os.environ.get("DIRECTMAIL_API_KEY", "none")
            return {"api_key": key, "base_url": directmail.base_url}

        def test_sync(options, directmail):
            options["http_client"] = directmail.client
            assert Completions(**options).complete("Hello") == "Hello back"
            assert Messages(**options).stream() == ["one", "two"]

        def test_async(options, directmail):
            options["http_client"] = directmail.async_client

            async def both():
                text = await Completions(**options).complete_async("Hello")
                return text, await Messages(**options).stream_async()

            assert asyncio.run(both()) == ("Hello back", ["one", "two"])
        """
    )
    suite.runpytest(*IN_PROCESS, *RECORD).assert_outcomes(passed=2)
    sent = careless.requests.copy()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    suite.runpytest(*IN_PROCESS).assert_outcomes(passed=2)

    assert sent == careless.requests == {"POST chat/completions": 4, "POST messages": 2}
    assert leaks(suite.path) == []
