"""The pytest plugin, by running pytest in pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

# Imported here, since a pytest in pytest forgets what it was first to import, and these cannot be
# imported twice in one process; nor can vcrpy's YAML reader.
import httpcore  # noqa: F401
import pandas  # noqa: F401
import pytest
from key_search import traces
from typer.testing import CliRunner

import directmail_lab.cassettes.vcr_files  # noqa: F401
from directmail_lab import Session
from directmail_lab.cli import app
from directmail_lab.credentials import ApiKey

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

OWN, TOUR = Path("cassettes/test_account/test_me.yaml"), Path("cassettes/tour.yaml")
PACKAGED = Path(__file__).parent.parent / "cassettes" / "first-look.yaml"
RECORD = "--directmail-record-mode=once"
QUIET = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:asyncio")
ONE_CALL = "def test_me(directmail): directmail.me()"
TWO_CALLS = """
    def test_me(directmail):
        assert directmail.me()["name"].item() == "Stand-in User"
        assert directmail.me()["company.address.postcode"].item() == "01234"
"""
VCRPYS = """
interactions:
- request: {method: GET, uri: 'https://api.test/v1/users/me', body: null, headers: {}}
  response: {status: {code: 200, message: OK}, headers: {}, body: {string: '{"id": 7}'}}
version: 1
"""


def recorded(path: Path, service: StandIn, calls: int = 1, target: str = "/v1/users/me") -> None:
    """Record a cassette of some reads."""
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path, record_mode="all")
        for _ in range(calls):
            session.request("GET", target)


def written_by_vcrpy(*names: str) -> None:
    for name in names:
        path = Path(f"cassettes/{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(VCRPYS, encoding="utf-8")


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


class Run(Protocol):
    def __call__(
        self, source: str, *args: str, apart: bool = False, **outcomes: int
    ) -> pytest.RunResult: ...


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run the tests of a file, warnings as errors; compare their outcomes where some are named.

    ``apart`` is in a process of its own: a pytest in pytest imports vcrpy's reader twice.
    """

    def run(source: str, *args: str, apart: bool = False, **outcomes: int) -> pytest.RunResult:
        pytester.makepyfile(test_account=source)
        start = pytester.runpytest_subprocess if apart else pytester.runpytest
        result = start("-W", "error", *QUIET, *args)
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result

    return run


# -- record, then replay -----------------------------------------------------------------------


def test_a_recorded_test_replays_without_key_or_network(
    run: Run, account: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording makes the test's own cassette beside it; replaying, and ``once``, need no more."""
    run(TWO_CALLS, RECORD, passed=1)
    text = OWN.read_text(encoding="utf-8")
    account.close()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    monkeypatch.delenv("DIRECTMAIL_BASE_URL")

    run(TWO_CALLS, passed=1)
    run(TWO_CALLS, RECORD, passed=1)
    assert account.api_key not in text
    assert text.count("recorded_at") == 2


def test_a_missing_cassette_or_key_says_what_to_do(run: Run) -> None:
    """The very command that records, and the variables it needs; nothing is written."""
    missing, keyless = run(TWO_CALLS, errors=1), run(TWO_CALLS, RECORD, errors=1)

    command = f"pytest test_account.py::test_me {RECORD}"
    missing.stdout.fnmatch_lines([f"There is no cassette {OWN}.*{command}"])
    keyless.stdout.fnmatch_lines(["No base address*DIRECTMAIL_BASE_URL*"])
    assert "pytest_plugin.py" not in str(keyless.stdout)
    assert not Path("cassettes").exists()


# -- strictness --------------------------------------------------------------------------------


def test_a_failure_lists_what_was_unplayed_and_what_was_not_recorded(
    run: Run, service: StandIn
) -> None:
    """Both lists are in the report, with the command that records again, and no query."""
    recorded(OWN.with_stem("test_lists"), service, 3)
    source = """
        import pytest, directmail_lab as dm

        def test_lists(directmail):
            with pytest.raises(dm.errors.NotRecordedError):
                directmail.request("GET", "/v1/lists?page=hidden")
            assert directmail.mode == "live"

        """
    result = run(source, failed=1)

    result.stdout.fnmatch_lines(
        [
            "*- directmail cassette -*",
            "cassettes/test_account/test_lists.yaml, record mode none",
            "left unplayed:",
            "    GET /v1/users/me (3 times)",
            "not recorded:",
            "    GET /v1/lists",
            "to record it again: pytest test_account.py::test_lists --directmail-record-mode=all",
        ]
    )
    assert "hidden" not in str(result.stdout).partition("- directmail cassette -")[2]


@pytest.mark.parametrize(
    ("marker", "failed"),
    [
        ("", 1),
        ("unplayed='allow'", 0),
        ("cassette='tour'", 0),
    ],
)
def test_responses_left_unplayed_fail_a_test_that_has_its_own_cassette(
    run: Run, service: StandIn, marker: str, failed: int
) -> None:
    """A cassette of its own must fit the test; one that is shared need not."""
    recorded(OWN, service, 2)
    recorded(TOUR, service, 2)
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}"
    result = run(source, failed=failed, passed=1 - failed)

    if failed:
        result.stdout.fnmatch_lines(["*did not request every response*", "*GET /v1/users/me"])


def test_nothing_is_sent_in_a_replay(run: Run, account: StandIn) -> None:
    """With key and address in the environment, the session still has no transport that sends.

    A test that is skipped in its course is not held against its cassette.
    """
    recorded(OWN, account)
    before = account.requests.copy()
    source = """
        import pytest, directmail_lab as dm

        def test_me(directmail):
            for change in (directmail.live, lambda: directmail.record("more")):
                with pytest.raises(dm.errors.NotConnectedError):
                    change()
            pytest.skip("later")
        """

    run(source, skipped=1)
    assert account.requests == before


# -- what a mismatch says ----------------------------------------------------------------------

LIST_OF_PAGE = """
    def test_lists(directmail):
        try:
            directmail.get("/v1/lists", params={"page": 2, "token": "short"})
        except Exception as error:
            raise
    """
AGAIN = "pytest test_account.py::test_lists --directmail-record-mode=all"


@pytest.fixture
def lists(pytester: pytest.Pytester, service: StandIn) -> None:
    """The cassette of a test that asked for a page of lists, with a token."""
    token = "k" * 20
    recorded(OWN.with_stem("test_lists"), service, 1, f"/v1/lists?page=1&size=5&token={token}")


@pytest.mark.usefixtures("lists")
def test_a_mismatch_is_told_in_two_lines_and_below_in_full(run: Run) -> None:
    """No frame of ours; names and no values; two lines in the short summary."""
    result = run(LIST_OF_PAGE.replace("short", "long" * 4), failed=1)

    result.stdout.fnmatch_lines(
        [
            "E  *NotRecordedError: GET /v1/lists differs in query: page, query: size",
            f"E  *Record this test again: {AGAIN}",
            "test_account.py:*: NotRecordedError",
            "*- directmail cassette -*",
            "not recorded:",
            "    GET /v1/lists",
            "nearest to GET /v1/lists:",
            "    GET /v1/lists, which differs in query: page, query: size",
            f"to record it again: {AGAIN}",
            "*= short test summary info =*",
            "FAILED test_account.py::test_lists - GET /v1/lists differs in query: page,*",
            f"to record it again: {AGAIN}",
        ],
        consecutive=False,
    )
    assert "httpx" not in str(result.stdout)
    assert "query: page:" not in str(result.stdout)


@pytest.mark.usefixtures("lists")
def test_values_are_shown_when_they_are_asked_for_and_redacted(run: Run) -> None:
    """With -vv; and in colour where pytest's output is."""
    result = run(LIST_OF_PAGE, "-vv", "--color=yes", failed=1)
    lines = str(result.stdout).replace("\x1b[", "^").splitlines()

    assert "^36m        query: page: '2', recorded '1'^0m" in lines
    assert "^36m        query: token: 'short', recorded '<REDACTED>'^0m" in lines
    assert f"^32mto record it again: {AGAIN}^0m" in lines


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("args", ["", slow("-n2"), "--tb=native", "--tb=line"])
def test_a_client_that_raises_its_own_error_tells_it_too(run: Run, args: str) -> None:
    """The two lines are the cause's; the list is in the report of the test, of a worker too."""
    source = LIST_OF_PAGE.replace("raise\n", "raise OSError('no connection') from error\n")
    result = run(source, *args.split(), failed=1)

    result.stdout.fnmatch_lines(["*directmail cassette*", f"to record it again: {AGAIN}"])
    assert "--tb=line" in args or f"Record this test again: {AGAIN}" in str(result.stdout)


def test_what_was_played_before_and_another_operation_are_said(run: Run, service: StandIn) -> None:
    """A response that is used up has no nearest; of another operation its name is enough."""
    recorded(OWN, service)
    calls = ("directmail.me(), directmail.me()", "directmail.get('/v1/users/mi')")
    outputs = [run(f"def test_me(directmail): {call}", failed=1).outlines for call in calls]

    assert [lines[-3].partition(" - ")[2] for lines in outputs] == [
        "GET /v1/users/me is in cassette 'test_me', ...",
        "GET /v1/users/mi is not recorded, but GET /...",
    ]


# -- the marker and the names ------------------------------------------------------------------


def test_the_nearest_marker_wins(run: Run, service: StandIn) -> None:
    """A module's marker holds for its tests, and a test's own adds to it."""
    recorded(TOUR, service)
    source = """
        import directmail_lab as dm, pytest
        pytestmark = pytest.mark.directmail(cassette="tour")

        def test_once(directmail):
            directmail.me()
            with pytest.raises(dm.errors.NotRecordedError):
                directmail.me()

        @pytest.mark.directmail(repeat="last")
        def test_often(directmail):
            directmail.me(), directmail.me(), directmail.me()
        """

    run(source, passed=2)


@pytest.mark.parametrize(
    "arguments", ["'tour'", "casette='tour'", "unplayed='no'", "record_mode='sometimes'"]
)
def test_a_mistaken_marker_is_refused(run: Run, arguments: str) -> None:
    """A misspelt setting is an error, not left without effect."""
    result = run(f"import pytest\n@pytest.mark.directmail({arguments})\n{ONE_CALL}", errors=1)

    result.stdout.fnmatch_lines(["*test_account.py::test_me: *"])


def test_each_test_has_a_file_of_its_own(run: Run, account: StandIn) -> None:
    """Classes, parameters and names that no file can have each give another file."""
    source = """
        import pytest

        class TestIt:
            @pytest.mark.parametrize("x", ["a/b", "a:b", "O'Hara", "é" * 400],
                ids=["a/b", "a:b", "O'Hara", "é" * 400])
            def test_me(self, directmail, x):
                directmail.me()
        """
    run(source, RECORD, passed=4)
    names = sorted(path.name for path in OWN.parent.glob("*.yaml"))

    assert len(names) == 4
    assert all(len(name.encode()) < 150 for name in names)
    run(source, passed=4)


def test_the_folder_is_configurable(pytester: pytest.Pytester, run: Run, account: StandIn) -> None:
    """Beside each test file, under another name."""
    pytester.makeini("[pytest]\ndirectmail_cassettes = tapes")
    run(ONE_CALL, RECORD, passed=1)

    assert Path("tapes/test_account/test_me.yaml").is_file()
    run(ONE_CALL, passed=1)


def test_the_session_is_the_current_one_for_the_test_alone(run: Run, service: StandIn) -> None:
    """Code under test may use the module-level calls; the next test finds none open."""
    recorded(OWN, service)
    source = """
        import pytest, directmail_lab as dm

        def test_me(directmail):
            assert dm.session() is directmail
            assert dm.me()["id"].item() == "usr_stand_in_1"

        def test_none():
            with pytest.raises(dm.errors.NotConnectedError, match="No session is open"):
                dm.me()
        """

    run(source, passed=2)


# -- beside other plugins ----------------------------------------------------------------------


@pytest.mark.slow
def test_beside_pytest_recording(run: Run, account: StandIn) -> None:
    """A vcr test and ours share a module, a folder and a run; each records and replays its own."""
    pytest.importorskip("pytest_recording")
    recorded(TOUR, account)
    source = f"""
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
    run(source, RECORD, "--record-mode=once", apart=True, passed=3)
    account.close()

    run(source, apart=True, passed=3)
    assert len(list(OWN.parent.iterdir())) == 2


@pytest.mark.parametrize(
    ("args", "cassette", "failed"),
    [
        ((RECORD, "--record-mode=once"), "", 1),
        slow((RECORD, "--disable-recording"), "", 0),
        slow(("--record-mode=rewrite",), "", 1),
    ],
)
def test_a_test_that_vcrpy_records_too_is_refused(
    run: Run, account: StandIn, args: tuple[str, ...], cassette: str, failed: int
) -> None:
    """vcrpy would write the key, and one of the two would replace the other's file."""
    pytest.importorskip("pytest_recording")
    recorded(TOUR, account)
    source = f"import pytest\n@pytest.mark.vcr\n{cassette}\n{ONE_CALL}"
    result = run(source, *args, apart=True, passed=1 - failed, errors=failed)

    assert ("Take the mark off this test" in str(result.stdout)) == bool(failed)
    for path in Path("cassettes").rglob("*"):
        assert path.is_dir() or traces(path.read_bytes(), account.api_key) == []


@pytest.mark.slow
def test_a_suite_of_pytest_recording_moves_test_by_test(run: Run, account: StandIn) -> None:
    """Adopted, its tests pass with its marker and with our fixture, whatever their names are."""
    pytest.importorskip("pytest_recording")
    source = f"""
        import httpx, pytest

        @pytest.mark.vcr
        class TestIt:
            class TestMore:
                @pytest.mark.parametrize("name", ["a b", "x/y=z"])
                def test_letter(self, name):
                    body = {{"name": name, "client_secret": "Wy5Nf0PtA3oVi7KzQm2E"}}
                    auth = "{account.api_key}", ""
                    url = "{account.base_url}/v1/letters"
                    assert httpx.post(url, json=body, auth=auth).status_code == 201
        """
    run(source, "--record-mode=once", apart=True, passed=2)
    account.close()
    recorded_by_vcr = sorted(Path("cassettes").rglob("*.yaml"))
    assert "Wy5Nf0PtA3oVi7KzQm2E" in recorded_by_vcr[0].read_text(encoding="utf-8")
    adopted = CliRunner().invoke(app, ["cassette", "adopt", "cassettes", "--write"])
    ours = source.replace("@pytest.mark.vcr", "").replace("self, name", "self, directmail, name")

    assert (adopted.exit_code, "Rewrote 2 cassettes" in adopted.stdout) == (0, True)
    run(source, "--block-network", apart=True, passed=2)
    run(ours.replace("httpx.post", "directmail.client.post"), apart=True, passed=2)
    assert sorted(Path("cassettes").rglob("*.yaml")) == recorded_by_vcr
    for path in recorded_by_vcr:
        assert traces(path.read_bytes(), account.api_key) == []
        assert b"Wy5Nf0PtA3oVi7KzQm2E" not in path.read_bytes()


@pytest.mark.slow
def test_beside_xdist(run: Run, account: StandIn) -> None:
    """Workers record and replay side by side, and their reports keep the lists."""
    pytest.importorskip("xdist")
    source = """
        import pytest

        @pytest.mark.parametrize("n", range(5))
        def test_me(directmail, n):
            assert directmail.me()["id"].item() == "usr_stand_in_1"
        """
    run(source, RECORD, "-n2", passed=5)
    recorded(OWN.with_stem("test_me[0]"), account, 2)
    result = run(source, "-n2", passed=4, failed=1)

    result.stdout.fnmatch_lines(["*- directmail cassette -*", "    GET /v1/users/me"])


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
    pytester.makepyfile(
        test_account=f"""
        import pytest

        @pytest.mark.{plugin}
        @pytest.mark.parametrize("n", range(2))
        async def test_me(directmail, n):
            assert (await directmail.me_async())["id"].item() == "usr_stand_in_1"
        """
    )
    args = (*QUIET[:4], "-W", "error", "-p", f"no:{other}")
    pytester.runpytest(*args, RECORD).assert_outcomes(passed=2)
    (own,) = OWN.parent.glob("*[[]*0*")
    recorded(own, account, 2)

    pytester.runpytest(*args).assert_outcomes(passed=1, failed=1)


# -- what it costs -----------------------------------------------------------------------------


def test_a_test_that_makes_no_frame_imports_no_pandas(run: Run) -> None:
    """Half a second of each worker: the client answers without it."""
    written_by_vcrpy("test_account/test_me")
    source = """
        import sys

        def test_me(directmail):
            assert directmail.client.get("/v1/users/me").json() == {"id": 7}
            assert not {"pandas", "numpy", "matplotlib", "ipywidgets"} & set(sys.modules)
        """

    run(source, apart=True, passed=1)


# -- old recordings, and unused ones -----------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "marker", "outcomes", "line"),
    [
        ("directmail_max_age = 90 days", "", {"passed": 1, "warnings": 1}, "*is * days old*"),
        ("directmail_max_age = 90 days\ndirectmail_on_old = fail", "", {"errors": 1}, "*days old*"),
        ("directmail_max_age = 90 days", "max_age='99999 days'", {"passed": 1}, "*"),
        ("", "max_age='1 day', on_old='fail'", {"errors": 1}, "*record it again: pytest *=all"),
        ("", "max_age='long'", {"errors": 1}, "*max_age is a number of days*"),
    ],
)
def test_an_old_recording_warns_or_fails(
    pytester: pytest.Pytester, ini: str, marker: str, outcomes: dict[str, int], line: str
) -> None:
    """As the ini file says, or the marker, which wins."""
    pytester.makeini(f"[pytest]\n{ini}")
    OWN.parent.mkdir(parents=True)
    first = PACKAGED.read_text(encoding="utf-8").splitlines()[:7]  # of 2026-11-21, one interaction
    OWN.write_text("\n".join(first).replace("2026-11", "2020-11") + "\n# end: 1 interaction\n")
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}"
    pytester.makepyfile(test_account=source)
    result = pytester.runpytest(*QUIET, "-W", "default")

    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])


@pytest.mark.parametrize("workers", ["-n0", slow("-n2")])
def test_cassettes_that_no_test_uses_are_listed(
    pytester: pytest.Pytester, run: Run, workers: str
) -> None:
    """Those of tests that were deselected, and those that a test names itself, are used."""
    written_by_vcrpy(
        "test_account/test_me", "test_account/test_old", "test_vcr/test_vcr", "tour", "b"
    )
    pytester.makepyfile(test_vcr="import pytest\n@pytest.mark.vcr\ndef test_vcr(): pass")
    wrong = "import pytest\n@pytest.mark.directmail(tape=1)\ndef test_wrong(directmail): pass"
    source = f"{ONE_CALL}\ndef test_named(): assert 'tour'\n{wrong}"
    options = (workers, "--directmail-unused")
    whole, part = run(source, "-k", "named", *options), run(source, "test_vcr.py", *options)
    listed = [line for line in whole.outlines if line.startswith("cassettes/")]

    assert listed == ["cassettes/b.yaml", "cassettes/test_account/test_old.yaml"]
    part.stdout.fnmatch_lines(["*Run all tests to see them*"])
