"""The pytest plugin, by running pytest in pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from key_search import traces

# Imported here, since a pytest in pytest forgets what it was first to import, and vcrpy's YAML
# reader does not bear being imported twice in one process.
import directmail_lab.cassettes.vcr_files  # noqa: F401
from directmail_lab import Session
from directmail_lab.credentials import ApiKey

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

TWO_CALLS = """
    def test_me(directmail):
        assert directmail.me()["name"].item() == "Stand-in User"
        assert directmail.me()["company.address.postcode"].item() == "01234"
"""
OWN, TOUR = Path("cassettes/test_account/test_me.yaml"), Path("cassettes/tour.yaml")
RECORD = "--directmail-record-mode=once"
PACKAGED = Path(__file__).parent.parent / "cassettes" / "first-look.yaml"
PLAIN = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


VCRPYS = """
interactions:
- request: {method: GET, uri: 'https://api.test/v1/users/me', body: null, headers: {}}
  response: {status: {code: 200, message: OK}, headers: {}, body: {string: '{"id": 7}'}}
version: 1
"""


def recorded(
    path: Path, service: StandIn, calls: int = 1, path_asked: str = "/v1/users/me"
) -> None:
    """Record a cassette of some reads."""
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path, record_mode="all")
        for _ in range(calls):
            session.request("GET", path_asked)


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest here, warnings as errors, without what other plugins would add."""
    return pytester.runpytest(*PLAIN, "-p", "no:asyncio", *args)


# -- record, then replay -----------------------------------------------------------------------


def test_a_recorded_test_replays_without_key_or_network(
    pytester: pytest.Pytester, account: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording makes the test's own cassette beside it; replaying, and ``once``, need no more."""
    pytester.makepyfile(test_account=TWO_CALLS)
    run(pytester, RECORD).assert_outcomes(passed=1)
    text = OWN.read_text(encoding="utf-8")
    account.close()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    monkeypatch.delenv("DIRECTMAIL_BASE_URL")

    run(pytester).assert_outcomes(passed=1)
    run(pytester, RECORD).assert_outcomes(passed=1)
    assert account.api_key not in text
    assert text.count("recorded_at") == 2


def test_all_records_anew(pytester: pytest.Pytester, account: StandIn) -> None:
    """A cassette that no longer fits is replaced on purpose, and then fits."""
    recorded(OWN, account, 7, "/v1/lists")
    pytester.makepyfile(test_account=TWO_CALLS)
    run(pytester).assert_outcomes(failed=1)
    run(pytester, "--directmail-record-mode=all").assert_outcomes(passed=1)

    run(pytester).stdout.fnmatch_lines(["*left unplayed*", "*GET /v1/lists (7 times)*"])


def test_a_missing_cassette_says_how_to_record_it(pytester: pytest.Pytester) -> None:
    """The error is one line with the very command, and nothing is written."""
    pytester.makepyfile(test_account=TWO_CALLS)
    result = run(pytester)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["There is no cassette cassettes/test_account/test_me.yaml.*"
         "pytest 'test_account.py::test_me' --directmail-record-mode=once"]
    )  # fmt: skip
    assert not (pytester.path / "cassettes").exists()


def test_recording_without_a_key_says_so(pytester: pytest.Pytester) -> None:
    """The session's own error tells what to set."""
    pytester.makepyfile(test_account=TWO_CALLS)
    result = run(pytester, RECORD)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*NotConnectedError: No base address*DIRECTMAIL_BASE_URL*"])


def test_a_cassette_that_vcrpy_wrote_replays(pytester: pytest.Pytester) -> None:
    """Tests that come from another plugin keep their recordings."""
    OWN.parent.mkdir(parents=True)
    OWN.write_text(VCRPYS, encoding="utf-8")
    pytester.makepyfile(
        test_account="""
        def test_me(directmail):
            assert directmail.base_url == "https://api.test"
            assert directmail.me()["id"].item() == 7
        """
    )

    run(pytester).assert_outcomes(passed=1)


# -- strictness --------------------------------------------------------------------------------


def test_a_failure_tells_what_was_left_and_what_was_not_recorded(
    pytester: pytest.Pytester, service: StandIn
) -> None:
    """Both lists are in the report, with the command that records again, and no query."""
    recorded(OWN.with_stem("test_lists"), service, 3)
    pytester.makepyfile(
        test_account="""
        import pytest, directmail_lab as dm

        def test_lists(directmail):
            with pytest.raises(dm.NotRecordedError):
                directmail.request("GET", "/v1/lists?page=hidden")
            assert directmail.mode == "live"

        def test_me(directmail):  # an answer is played once
            directmail.me(), directmail.me()
        """
    )
    recorded(OWN, service)
    result = run(pytester)

    result.stdout.fnmatch_lines(
        [
            "*- directmail cassette -*",
            "cassettes/test_account/test_lists.yaml, record mode none",
            "left unplayed:",
            "    GET /v1/users/me (3 times)",
            "not recorded:",
            "    GET /v1/lists",
            "to record it again: pytest 'test_account.py::test_lists' --directmail-record-mode=all",
            "cassettes/test_account/test_me.yaml, record mode none",
            "left unplayed: nothing",
            "not recorded:",
            "    GET /v1/users/me",
        ]
    )
    result.assert_outcomes(failed=2)
    assert "hidden" not in str(result.stdout).partition("- directmail cassette -")[2]


@pytest.mark.parametrize(
    ("marker", "failed"),
    [
        ("", 1),
        ("@pytest.mark.directmail(unplayed='allow')", 0),
        ("@pytest.mark.directmail(cassette='tour')", 0),
        ("@pytest.mark.directmail(cassette='tour', unplayed='fail')", 1),
    ],
)
def test_answers_left_unplayed_fail_a_test_whose_own_they_are(
    pytester: pytest.Pytester, service: StandIn, marker: str, failed: int
) -> None:
    """A cassette of its own must fit the test; one that is shared need not."""
    recorded(OWN, service, 2)
    recorded(TOUR, service, 2)
    pytester.makepyfile(
        test_account=f"import pytest\n{marker}\ndef test_me(directmail): directmail.me()"
    )
    result = run(pytester)

    result.assert_outcomes(failed=failed, passed=1 - failed)
    if failed:
        result.stdout.fnmatch_lines(
            ["*did not ask for every answer in its cassette*", "*GET /v1/users/me"]
        )


def test_a_test_that_is_skipped_on_its_way_is_not_failed(
    pytester: pytest.Pytester, service: StandIn
) -> None:
    """Only a test that passed is held against its cassette."""
    recorded(OWN, service)
    pytester.makepyfile(test_account="import pytest\ndef test_me(directmail): pytest.skip('later')")

    run(pytester).assert_outcomes(skipped=1)


def test_nothing_leaves_in_replay(pytester: pytest.Pytester, account: StandIn) -> None:
    """With key and address in the environment, the session still has no way to the network."""
    recorded(OWN, account)
    pytester.makepyfile(
        test_account="""
        import pytest, directmail_lab as dm

        def test_me(directmail):
            directmail.me()
            with pytest.raises(dm.NotConnectedError):
                directmail.live()
            with pytest.raises(dm.NotConnectedError):
                directmail.record("more")
        """
    )
    before = account.requests.copy()

    run(pytester).assert_outcomes(passed=1)
    assert account.requests == before


# -- the marker and the names ------------------------------------------------------------------


def test_the_nearest_marker_wins(pytester: pytest.Pytester, service: StandIn) -> None:
    """A module's marker holds for its tests, and a test's own adds to it."""
    recorded(TOUR, service)
    recorded(TOUR.with_stem("other"), service)
    pytester.makepyfile(
        test_account="""
        import pytest
        pytestmark = pytest.mark.directmail(cassette="tour")

        @pytest.mark.directmail(repeat="last")
        def test_often(directmail):
            directmail.me(), directmail.me(), directmail.me()

        @pytest.mark.directmail(cassette="other")
        def test_other(directmail):
            assert directmail.cassette == "other"

        def test_once(directmail):
            directmail.me()
            assert directmail.cassette == "tour"
        """
    )

    run(pytester).assert_outcomes(passed=3)


def test_the_marker_may_say_what_is_compared(pytester: pytest.Pytester, service: StandIn) -> None:
    """As with vcrpy: without the query, another page gets the recorded one's answer."""
    recorded(TOUR, service, 2, "/v1/lists?page=1")
    pytester.makepyfile(
        test_account="""
        import directmail_lab as dm, pytest

        @pytest.mark.directmail(cassette="tour", match_on=["method", "path"])
        def test_loose(directmail):
            assert directmail.request("GET", "/v1/lists?page=2").status_code == 200

        @pytest.mark.directmail(cassette="tour")
        def test_strict(directmail):
            with pytest.raises(dm.NotRecordedError):
                directmail.request("GET", "/v1/lists?page=2")
        """
    )

    run(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "marker", ["directmail('tour')", "directmail(casette='tour')", "directmail(unplayed='no')",
               "directmail(record_mode='sometimes')"],
)  # fmt: skip
def test_a_mistaken_marker_is_refused(pytester: pytest.Pytester, marker: str) -> None:
    """A misspelt setting is told, not left without effect."""
    pytester.makepyfile(
        test_account=f"import pytest\n@pytest.mark.{marker}\ndef test_me(directmail): pass"
    )
    result = run(pytester)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_account.py::test_me: *"])


def test_a_packaged_cassette_is_found_by_name(pytester: pytest.Pytester, service: StandIn) -> None:
    """A name that is not beside the test means what it means to ``replay``."""
    recorded(TOUR, service)
    pytester.mkdir("tests")
    (pytester.path / "tests" / "test_account.py").write_text(
        "import pytest\n@pytest.mark.directmail(cassette='tour')\n"
        "def test_me(directmail): directmail.me()",
        encoding="utf-8",
    )

    run(pytester, "tests").assert_outcomes(passed=1)


def test_each_test_has_a_file_of_its_own(pytester: pytest.Pytester, account: StandIn) -> None:
    """Classes, parameters and names that no file can have each give another file."""
    pytester.makepyfile(
        test_account="""
        import pytest

        class TestIt:
            @pytest.mark.parametrize("x", ["a/b", "a:b", "plain", "é" * 400])
            def test_me(self, directmail, x):
                directmail.me()
        """
    )
    run(pytester, RECORD).assert_outcomes(passed=4)
    names = sorted(path.name for path in (pytester.path / "cassettes/test_account").glob("*.yaml"))

    assert len(names) == 4
    assert "TestIt.test_me[plain].yaml" in names
    assert all(len(name.encode()) < 150 for name in names)
    run(pytester).assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("setting", "cassette"),
    [
        ("recordings", "sub/recordings/test_account/test_me.yaml"),
        ("{rootdir}/recordings", "recordings/sub/test_account/test_me.yaml"),
    ],
)
def test_the_folder_is_configurable(
    pytester: pytest.Pytester, account: StandIn, setting: str, cassette: str
) -> None:
    """Beside each test file under another name, or all below the root."""
    pytester.makeini(f"[pytest]\ndirectmail_cassettes = {setting}")
    pytester.mkdir("sub")
    (pytester.path / "sub/test_account.py").write_text(
        "def test_me(directmail): directmail.me()", encoding="utf-8"
    )
    run(pytester, RECORD).assert_outcomes(passed=1)

    assert (pytester.path / cassette).is_file()
    run(pytester).assert_outcomes(passed=1)


def test_the_session_is_the_current_one_for_the_test_alone(
    pytester: pytest.Pytester, service: StandIn
) -> None:
    """Code under test may use the module-level calls; the next test finds none open."""
    recorded(OWN, service)
    pytester.makepyfile(
        test_account="""
        import pytest, directmail_lab as dm

        def test_me(directmail):
            assert dm.session() is directmail
            assert dm.me()["id"].item() == "usr_stand_in_1"

        def test_none():
            with pytest.raises(dm.NotConnectedError, match="No session is open"):
                dm.me()
        """
    )

    run(pytester).assert_outcomes(passed=2)


# -- beside other plugins ----------------------------------------------------------------------


@pytest.mark.slow
def test_beside_pytest_recording(pytester: pytest.Pytester, account: StandIn) -> None:
    """A vcr test and ours share a module, a folder and a run; each records and replays its own."""
    pytest.importorskip("pytest_recording")
    pytester.makepyfile(
        test_account=f"""
        import httpx, pytest

        def test_me(directmail):
            assert directmail.me()["id"].item() == "usr_stand_in_1"

        @pytest.mark.vcr
        def test_vcr():
            assert httpx.get("{account.base_url}/v1/users/me").status_code == 401

        @pytest.mark.block_network
        @pytest.mark.directmail(cassette="tour")
        def test_blocked(directmail):
            assert directmail.me()["id"].item() == "usr_stand_in_1"
        """
    )
    recorded(TOUR, account)
    # Of their own process, since a pytest in pytest imports vcrpy's YAML reader twice.
    plain = (*PLAIN, "-p", "no:asyncio")
    first = pytester.runpytest_subprocess(*plain, RECORD, "--record-mode=once")
    first.assert_outcomes(passed=3)
    account.close()

    pytester.runpytest_subprocess(*plain).assert_outcomes(passed=3)
    assert len(list((pytester.path / "cassettes/test_account").iterdir())) == 2


@pytest.mark.parametrize(
    ("args", "cassette", "failed"),
    [
        ((RECORD, "--record-mode=once"), "", 1),
        ((RECORD, "--record-mode=once"), "@pytest.mark.directmail(cassette='new')", 1),
        ((RECORD, "--disable-recording"), "", 0),
        (("--record-mode=rewrite",), "", 1),
        ((), "@pytest.mark.directmail(cassette='tour')", 0),
    ],
)
def test_a_test_that_vcrpy_records_too_is_refused(
    pytester: pytest.Pytester,
    account: StandIn,
    args: tuple[str, ...],
    cassette: str,
    failed: int,
) -> None:
    """vcrpy would write the key, and one of the two would replace the other's file."""
    pytest.importorskip("pytest_recording")
    recorded(TOUR, account)
    pytester.makepyfile(
        test_account=f"""
        import pytest

        @pytest.mark.vcr
        {cassette}
        def test_both(directmail):
            directmail.me()
        """
    )
    result = pytester.runpytest_subprocess(*PLAIN, "-p", "no:asyncio", *args)

    result.assert_outcomes(passed=1 - failed, errors=failed)
    assert ("Take the mark off this test" in str(result.stdout)) == bool(failed)
    for path in (pytester.path / "cassettes").rglob("*"):
        assert path.is_dir() or traces(path.read_bytes(), account.api_key) == []


@pytest.mark.slow
def test_beside_xdist(pytester: pytest.Pytester, account: StandIn) -> None:
    """Workers record and replay side by side, and their reports keep the lists."""
    pytest.importorskip("xdist")
    pytester.makepyfile(
        test_account="""
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_me(directmail, n):
            assert directmail.me()["id"].item() == "usr_stand_in_1"

        def test_left(directmail):
            directmail.me()
        """
    )
    run(pytester, RECORD, "-n2").assert_outcomes(passed=5)
    recorded(OWN.with_stem("test_left"), account, 2)
    result = run(pytester, "-n2")

    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*- directmail cassette -*", "    GET /v1/users/me"])


ASYNC_TEST = """
    import pytest

    @pytest.mark.{plugin}
    async def test_me(directmail):
        assert (await directmail.me_async())["id"].item() == "usr_stand_in_1"

    @pytest.mark.{plugin}
    async def test_left(directmail):
        await directmail.me_async()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("plugin", "other"), [("asyncio", "anyio"), ("anyio", "asyncio")])
def test_beside_a_plugin_for_async_tests(
    pytester: pytest.Pytester, account: StandIn, plugin: str, other: str
) -> None:
    """An async test records and replays; what it leaves unplayed fails it."""
    if plugin == "asyncio":
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(
        "import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    )
    pytester.makepyfile(test_account=ASYNC_TEST.format(plugin=plugin))
    args = (*PLAIN, "-p", f"no:{other}")
    pytester.runpytest(*args, RECORD).assert_outcomes(passed=2)
    recorded(OWN.with_stem("test_left"), account, 2)

    pytester.runpytest(*args).assert_outcomes(passed=1, failed=1)


# -- what it costs -----------------------------------------------------------------------------


def test_pytest_shows_the_option_the_marker_and_the_fixture(pytester: pytest.Pytester) -> None:
    """Installing is all it takes: nothing is named in a conftest."""
    run(pytester, "--help").stdout.fnmatch_lines(["*--directmail-record-mode*"])
    run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.directmail(cassette=None*"])

    run(pytester, "--fixtures").stdout.fnmatch_lines(["directmail*"])


def test_the_plugin_itself_imports_nothing_heavy() -> None:
    """Beyond pytest and the package's own `__init__`, loading it loads no module of weight."""
    code = (
        "import sys, pytest, directmail_lab; before = set(sys.modules);"
        "import directmail_lab.pytest_plugin;"
        "new = set(sys.modules) - before;"
        "assert len(new) < 4, new"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_test_that_asks_for_no_frame_imports_no_pandas(pytester: pytest.Pytester) -> None:
    """Half a second of each worker: the client answers without it."""
    OWN.parent.mkdir(parents=True)
    OWN.write_text(VCRPYS, encoding="utf-8")
    pytester.makepyfile(
        test_account="""
        import sys

        def test_me(directmail):
            assert directmail.client.get("/v1/users/me").json() == {"id": 7}
            assert not {"pandas", "numpy", "matplotlib", "ipywidgets"} & set(sys.modules)
        """
    )

    pytester.runpytest_subprocess(*PLAIN, "-p", "no:asyncio").assert_outcomes(passed=1)


# -- old recordings, and unused ones -----------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "marker", "outcomes", "said"),
    [
        ("directmail_max_age = 90 days", "", {"passed": 1, "warnings": 1}, "*is * days old*"),
        ("directmail_max_age = 90 days\ndirectmail_on_old = fail", "", {"errors": 1}, "*days old*"),
        ("directmail_max_age = 90 days", "max_age='99999 days'", {"passed": 1}, "*"),
        ("", "max_age='1 day', on_old='fail'", {"errors": 1}, "*record it again: pytest '*=all"),
        ("", "max_age='long'", {"errors": 1}, "*max_age is a number of days*"),
        ("directmail_on_old = no", "", {"errors": 1}, "*on_old is one of warn, fail*"),
    ],
)
def test_an_old_recording_is_told_or_fails(
    pytester: pytest.Pytester, ini: str, marker: str, outcomes: dict[str, int], said: str
) -> None:
    """As the ini file says, or the marker, which wins."""
    pytester.makeini(f"[pytest]\n{ini}")
    OWN.parent.mkdir(parents=True)
    first = PACKAGED.read_text(encoding="utf-8").splitlines()[:7]  # of 2026-11-21, its first answer
    OWN.write_text("\n".join(first).replace("2026-11", "2020-11") + "\n# end: 1 interaction\n")
    pytester.makepyfile(
        test_account=f"import pytest\n@pytest.mark.directmail({marker})\n"
        "def test_me(directmail): directmail.me()"
    )
    result = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "default")

    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([said])


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def test_cassettes_that_no_test_uses_are_listed(pytester: pytest.Pytester, workers: str) -> None:
    """Those of tests that were deselected, and those that a test names itself, are used."""
    for name in ("test_account/test_me", "test_account/test_old", "test_vcr/test_vcr", "tour", "b"):
        path = Path(f"cassettes/{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(VCRPYS, encoding="utf-8")
    pytester.makepyfile(
        test_account="""
        def test_me(directmail):
            assert directmail.me()["id"].item() == 7

        def test_named():
            assert "tour"
        """,
        test_vcr="import pytest\n@pytest.mark.vcr\ndef test_vcr(): pass",
    )
    options = (workers, "--directmail-unused")
    whole, part = run(pytester, "-k", "named", *options), run(pytester, "test_vcr.py", *options)
    listed = [line for line in whole.outlines if line.startswith("cassettes/")]

    assert listed == ["cassettes/b.yaml", "cassettes/test_account/test_old.yaml"]
    part.stdout.fnmatch_lines(["*Run all tests to see them*"])
