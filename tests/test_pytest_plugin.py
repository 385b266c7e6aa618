"""The pytest plugin, tested by running pytest inside pytest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

# pytester restores `sys.modules` after each inner run, so a module first imported there would be
# imported a second time. These modules, and vcrpy's YAML reader, fail when that happens, so they
# are imported here first.
import aiohttp  # noqa: F401
import cassette_samples as samples
import httpcore  # noqa: F401
import httpx
import pandas  # noqa: F401
import pytest
import pytest_recording.plugin  # noqa: F401
import requests  # noqa: F401
import vcr  # noqa: F401
from cassette_samples import answered, get, theirs
from key_search import traces
from marks import slow

import directmail_lab.cassettes.vcr_files
import directmail_lab.pytest_plugin
from directmail_lab import Session
from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.exchange.values import header
from directmail_lab.pytest_plugin.responses import RespondingSession
from directmail_lab.pytest_plugin.settings import TABLE

if TYPE_CHECKING:
    from directmail_lab.server.standin import StandIn

OWN, TOUR = Path("cassettes/test_account/test_me.yaml"), Path("cassettes/tour.yaml")
GUIDE = Path(__file__).parent.parent / "notebooks" / "pytest-settings.md"
RECORD = "--directmail-record-mode=once"
AGAIN_ALL = "--directmail-record-mode=all"
QUIET = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:asyncio")
ONE_CALL = "def test_me(directmail): directmail.me()"
ONE_WRITE = "def test_me(directmail): directmail.post('/v1/letters', json={'text': 'Hello'})"
OPTIONS = """
import pytest
@pytest.fixture(scope="session")
def directmail_options():
    return {}
"""
TWO_CALLS = """
    def test_me(directmail):
        assert directmail.me()["name"].item() == "Stand-in User"
        assert directmail.me()["company.address.postcode"].item() == "01234"
"""


def marked(marker: str, source: str = ONE_CALL) -> str:
    """Return a test with this marker."""
    return f"import pytest\n@pytest.mark.directmail({marker})\n{source}"


def recorded(path: Path, service: StandIn, calls: int = 1, target: str = "/v1/users/me") -> None:
    """Record a cassette with this many reads."""
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path, record_mode="all")
        for _ in range(calls):
            session.request("GET", target)


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on a file with warnings as errors; if ``outcomes`` are given, check them."""

    def run(source: str, *args: str, **outcomes: int) -> pytest.RunResult:
        pytester.makepyfile(test_account=source)
        with monkeypatch.context() as environment:
            environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            loaded = ("-pdirectmail_lab", "-pxdist", "-W", "ignore:Module already imported")
            result = pytester.runpytest("-W", "error", *QUIET, *args, *loaded)
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result

    return run


# -- record, then replay -----------------------------------------------------------------------


def test_a_recorded_test_replays_without_key_or_network(run, account, monkeypatch):
    """Recording writes the test's own cassette beside it; afterwards even ``once`` needs no key."""
    run(TWO_CALLS, RECORD, passed=1)
    account.close()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    monkeypatch.delenv("DIRECTMAIL_BASE_URL")

    run(TWO_CALLS, passed=1)
    run(TWO_CALLS, RECORD, passed=1)
    assert traces(OWN.read_bytes(), account.api_key) == []
    assert len(read_cassette(OWN)) == 2


def test_a_test_that_sends_nothing_needs_no_cassette(run, account):
    """The fixture alone neither fails a test nor writes a file."""
    source = "def test_me(directmail): assert directmail.base_url"
    for option in ([], [RECORD]):
        run(source, *option, "-o", "directmail_max_age=1 day", passed=1)

    assert not OWN.exists()


def test_a_missing_cassette_or_key_says_what_to_do(run):
    """The error names the exact command and variables that help, and nothing is written."""
    missing, without_key = run(TWO_CALLS, failed=1), run(TWO_CALLS, RECORD, errors=1)

    command = f"pytest test_account.py::test_me {RECORD}"
    missing.stdout.fnmatch_lines(
        [f"E *GET /v1/users/me has no response: there is no cassette {OWN}", f"E *{command}"]
    )
    without_key.stdout.fnmatch_lines(["No service address*", "*DIRECTMAIL_BASE_URL*"])
    assert "pytest_plugin.py" not in str(without_key.stdout)
    assert not Path("cassettes").exists()


@pytest.mark.parametrize(
    ("returned", "made"),
    [
        ("f'flat-{request.node.name}'", "cassettes/flat-test_me.yaml"),
        ("Path('tapes', request.node.name)", "tapes/test_me.yaml"),
        ("Path('flat')", "flat/test_me.yaml"),
        ("directmail_cassette", str(OWN)),
    ],
)
@pytest.mark.usefixtures("account")
def test_a_fixture_says_where_the_cassette_is(pytester, run, returned, made):
    """The fixture returns a name, a path or a folder; a marker's cassette wins over it."""
    Path("flat").mkdir()
    pytester.makeconftest(
        f"""
        import pytest
        from pathlib import Path

        @pytest.fixture
        def directmail_cassette(request, directmail_cassette):
            return {returned}
        """
    )
    run(ONE_CALL, RECORD, passed=1)
    run(ONE_CALL, passed=1)
    run(marked("cassette='tour'"), RECORD, passed=1)

    assert {str(path) for path in Path().rglob("*.yaml")} == {made, str(TOUR)}


# -- strictness --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "failed"), [("", 1), ("unplayed='allow'", 0), ("cassette='tour'", 0)]
)
def test_responses_left_unplayed_fail_a_test_that_has_its_own_cassette(
    run, service, marker, failed
):
    """A test's own cassette must match the test exactly, but a shared cassette need not."""
    recorded(OWN, service, 2)
    recorded(TOUR, service, 2)
    result = run(marked(marker), passed=1, errors=failed)

    if failed:
        result.stdout.fnmatch_lines(["*did not request every response*", "    2: GET /v1/users/me"])


@pytest.mark.parametrize(("end", "errors"), [("directmail.get('/v1/lists')", 0), ("None", 1)])
def test_a_fixture_may_request_the_remaining_responses_in_its_teardown(run, account, end, errors):
    """Unplayed responses are counted after it."""
    source = f"""
        import pytest

        @pytest.fixture
        def prepared(directmail):
            yield
            {end}

        def test_me(prepared, directmail):
            directmail.me()
        """
    run(source.replace(end, "directmail.get('/v1/lists')"), RECORD, passed=1)
    result = run(source, passed=1, errors=errors)

    assert ("did not request every response" in str(result.stdout)) == bool(errors)


def test_nothing_is_sent_in_a_replay(run, account):
    """Not even with a key. A test that skips midway does not fail for unplayed responses."""
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


@pytest.mark.parametrize(
    ("then", "count"),
    [
        ("; directmail.replay('first-look')", 1),
        ("; directmail.replay('first-look').__exit__(); directmail.get('/v1/lists')", 2),
        slow("", 1),
        slow("; directmail.close()", 1),
    ],
)
def test_a_re_recorded_cassette_contains_only_what_the_test_requests(run, account, then, count):
    """The command in the failure message must help, whatever mode the session is in at the end."""
    recorded(OWN, account, 2, "/v1/lists?page=1")
    run(ONE_CALL + then, failed=1)
    run(ONE_CALL + then, AGAIN_ALL, passed=1)

    run(ONE_CALL + then, passed=1)
    assert len(read_cassette(OWN)) == count


MODULE = """
    import pytest

    @pytest.fixture(scope='module')
    def me(directmail_session): return directmail_session.me()

    def test_me(me): assert 0
    """


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (f"{ONE_CALL}; assert 0", "failed"),
        (f"{ONE_CALL}; import pytest; pytest.skip('later')", "skipped"),
        (MODULE, "failed"),
        slow(f"{ONE_CALL}; directmail.replay('first-look').__exit__(); assert 0", "failed"),
        slow(MODULE.replace("_session", "").replace("'module'", "'function'"), "failed"),
        slow(marked("cassette='test_account/test_me'", f"{ONE_CALL}; assert 0"), "failed"),
    ],
)
def test_a_failed_re_recording_keeps_the_old_cassette(run, account, source, outcome):
    """The report says so. If the test passes, the new recording replaces the old one."""
    own = OWN.with_stem("directmail_session") if "directmail_session" in source else OWN
    recorded(own, account, 2)
    before = own.read_bytes()
    result = run(source, AGAIN_ALL, **{outcome: 1})

    assert own.read_bytes() == before
    assert [path.name for path in own.parent.iterdir()] == [own.name]
    if outcome == "failed":
        result.stdout.fnmatch_lines(["the old recording stays, since the test failed"])
    run(source.replace("assert 0", "pass").replace("pytest.skip", "str"), AGAIN_ALL, passed=1)
    assert own.read_bytes() != before


@pytest.mark.parametrize(("then", "failed"), [("", 0), slow("; assert 0", 1)])
def test_new_episodes_are_added_to_a_tests_own_cassette(run, account, then, failed):
    """The test replays what its cassette contains, so that stays, even if the test fails."""
    recorded(OWN, account)
    both = f"{ONE_CALL}; directmail.get('/v1/lists')"
    run(both + then, "--directmail-record-mode=new_episodes", passed=1 - failed, failed=failed)

    run(both, passed=1)
    assert account.requests == {"GET /v1/users/me": 1, "GET /v1/lists": 1}


def test_new_episodes_names_what_a_test_no_longer_requests(run, account):
    """The recording run is green, and would be followed by a replay that is not."""
    recorded(OWN, account, target="/v1/lists?page=1")
    source = ONE_CALL.replace("me()", "get('/v1/lists?page=2')")
    once = "-Wignore::pytest.PytestAssertRewriteWarning"  # of the oldest pytest
    mode = "--directmail-record-mode=new_episodes"
    result = run(source, "-Wdefault", once, mode, passed=1, warnings=1)

    replayed = run(source, passed=1, errors=1)
    replayed.stdout.fnmatch_lines(["    1: GET /v1/lists?page=1"])
    result.stdout.fnmatch_lines(
        [f"*{OWN} has what the test no longer requests: 1: GET /v1/lists?page=1. Its replay *"]
    )


# -- what a mismatch says ----------------------------------------------------------------------

TOKEN = "7Hs2Kd9QwLx4Tb6Z"
LIST_OF_PAGE = """
    def test_lists(directmail):
        try:
            directmail.get("/v1/lists", params={"page": 2, "token": "4fQ9mZ7xK2pL8vR3"})
        except Exception as error:
            raise
    """
AGAIN = "pytest test_account.py::test_lists --directmail-record-mode=all"


@pytest.fixture
def lists(pytester: pytest.Pytester, service: StandIn) -> None:
    """The cassette of a test that requested one page of lists three times, with a token."""
    recorded(OWN.with_stem("test_lists"), service, 3, f"/v1/lists?page=1&size=5&token={TOKEN}")


@pytest.mark.usefixtures("lists")
def test_a_mismatch_is_reported_in_two_lines_and_then_in_full(run):
    """It has the recorded requests with queries, and no frames of ours; ``-vv`` adds values."""
    result = run(LIST_OF_PAGE, failed=1)
    values = run(LIST_OF_PAGE, "-vv", failed=1)

    result.stdout.fnmatch_lines(
        [
            "E  *NotRecordedError: GET /v1/lists differs in query: page, query: size",
            f"E  *Record this test again: {AGAIN}",
            "test_account.py:*: NotRecordedError",
            "*- directmail cassette -*",
            "cassettes/test_account/test_lists.yaml, record mode none",
            "left unplayed:",
            "    1: GET /v1/lists?page=1&size=5&token=<REDACTED>",
            "    2: GET /v1/lists?page=1&size=5&token=<REDACTED>",
            "    3: GET /v1/lists?page=1&size=5&token=<REDACTED>",
            "not recorded:",
            "    GET /v1/lists",
            "to see the values that differ: -vv",
            f"to record it again: {AGAIN}",
            "*= short test summary info =*",
            "FAILED test_account.py::test_lists - GET /v1/lists differs in query: page,*",
        ],
        consecutive=False,
    )
    assert "httpx" not in str(result.stdout)
    assert "query: page:" not in str(result.stdout)
    values.stdout.fnmatch_lines(["        query: page: '2', recorded '1'"])
    assert TOKEN not in str(values.stdout)


def test_a_failure_names_responses_that_end_early(run):
    """A test that wants five events learns that the recording has the first one."""
    left = answered(get("/events"), "data: 0\n\n")
    OWN.parent.mkdir(parents=True)
    samples.recorded(OWN, replace(left, response=replace(left.response, cut="left")))
    source = """
        import httpx, pytest

        @pytest.mark.directmail(patch=True)
        def test_me():
            assert httpx.get("https://api.example.test/events").text.count("data") == 5
        """

    run(source, failed=1).stdout.fnmatch_lines(
        ["recorded only as far as it was read then:", "    GET /events"], consecutive=True
    )


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("args", ["", slow("-n2"), "--tb=native"])
def test_a_clients_own_error_also_reports_the_mismatch(run, args):
    """The two lines are in the client's error too, and the details in an xdist worker's report."""
    source = LIST_OF_PAGE.replace("raise\n", "raise OSError('no connection') from error\n")
    result = run(source, *args.split(), failed=1)

    result.stdout.fnmatch_lines(["*directmail cassette*", f"to record it again: {AGAIN}"])
    assert f"Record this test again: {AGAIN}" in str(result.stdout)


# -- the marker and the names ------------------------------------------------------------------


@pytest.mark.parametrize(("there", "made"), [(False, ["tape.yaml"]), (True, ["tape"])])
def test_a_cassette_path_may_have_no_suffix(run, account, there, made):
    """vcrpy's file without a suffix is replayed, and a new cassette is found by the given path."""
    if there:
        Path("tapes").mkdir()
        theirs(Path("tapes/tape"), answered(body='{"id": 7}'))
    source = "from pathlib import Path\n" + marked("cassette=Path('tapes/tape')")
    run(source, RECORD, passed=1)

    run(source, passed=1)
    assert sorted(path.name for path in Path("tapes").iterdir()) == made


def test_each_test_has_a_file_of_its_own(run, account):
    """Classes, parameters and names that are invalid as file names each get their own file."""
    source = """
        import pytest

        class TestIt:
            @pytest.mark.parametrize("x", ["a/b", "a:b", "a-b", "O'Hara", "é" * 400], ids=str)
            def test_me(self, directmail, x): directmail.me()

            class TestMore:
                def test_me(self, directmail): directmail.me()

        class TestMore:
            def test_me(self, directmail): directmail.me()
        """
    run(source, RECORD, passed=7)
    sizes = [len(path.name.encode()) for path in OWN.parent.glob("*.yaml")]

    run(source, passed=7)
    assert len(sizes) == 7
    assert max(sizes) < 150


def test_the_session_is_the_current_one_for_the_test_alone(run, service):
    """Code under test can use the module-level calls, and the next test finds no open session."""
    recorded(OWN, service)
    source = """
        import directmail_lab as dm

        def test_me(directmail): dm.me()
        def test_none(): dm.me()
        """

    run(source, passed=1, failed=1).stdout.fnmatch_lines(["*NotConnectedError: No session is*"])


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "fixture", "marker", "kept"),
    [
        ("", "{}", "", ["name", "email", "phone"]),
        ("directmail_redact = name, email", "{}", "", ["phone"]),
        ("directmail_redact = name email", "{'redact': ['phone']}", "", []),
        ("directmail_redact = name", "{'redact': 'phone'}", "redact='email'", []),
        ("", "{'redact': ['phone']}", "redact=['email']", ["name"]),
    ],
)
def test_redactions_of_the_ini_file_the_fixture_and_the_markers_add_up(
    pytester,
    run,
    account,
    ini,
    fixture,
    marker,
    kept,
):
    """A test that redacts more must not write what its project redacts."""
    account.fault(body=json.dumps({"name": "my-name", "email": "my-email", "phone": "my-phone"}))
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(OPTIONS.replace("{}", fixture))
    own = marked(marker).replace("\n", "\npytestmark = pytest.mark.directmail(redact=())\n", 1)
    run(own, RECORD, passed=1)

    assert re.findall("my-(name|email|phone)", OWN.read_text(encoding="utf-8")) == kept


@pytest.mark.parametrize(
    ("fixture", "marker", "failed"),
    [("{}", "", 1), ("{'repeat': 'last'}", "", 0), ("{}", "repeat='last'", 0)],
)
def test_the_marker_overrides_the_fixture(pytester, run, service, fixture, marker, failed):
    """The nearest one wins: a test's over its module's, and that over the project's."""
    recorded(OWN, service)
    pytester.makeconftest(OPTIONS.replace("{}", fixture))
    module = "import pytest\npytestmark = pytest.mark.directmail(repeat='strict')\n"
    source = f"{module if marker else 'import pytest'}\n@pytest.mark.directmail({marker})\n"

    run(f"{source}{ONE_CALL}, directmail.me()", passed=1 - failed, failed=failed)


def test_the_guide_names_all_settings():
    """Those of the ini file are in a table, and the others of the marker in a sentence below it."""
    guide = GUIDE.read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^\| `directmail_(\w+)` \|", guide)
    (below,) = re.findall(r"(?ms)^The marker and `directmail_options` also have .*?\n\n", guide)
    in_file = {name for name, each in TABLE.items() if each.metadata.get("ini")}

    assert sorted(listed) == sorted({*in_file, "cassettes"})
    assert {*re.findall(r"`(\w+)`", below)} - {"directmail_options"} == TABLE.keys() - in_file


def test_settings_are_read_from_pyproject(pytester, run, account, monkeypatch):
    """The environment's address overrides the ini file's, and the marker's overrides both."""
    pytester.path.joinpath("tox.ini").unlink()
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        directmail_cassettes = "tapes"
        directmail_base_url = "{account.base_url}"
        directmail_match_on = ["method", "path"]
        """
    )
    monkeypatch.delenv("DIRECTMAIL_BASE_URL")
    run("def test_me(directmail): directmail.get('/v1/lists?n=1')", RECORD, passed=1)
    run("def test_me(directmail): directmail.get('/v1/lists?n=2')", passed=1)
    assert Path("tapes/test_account/test_me.yaml").is_file()

    monkeypatch.setenv("DIRECTMAIL_BASE_URL", "https://b.test/v1")
    for marker, host in (("", "b"), ("base_url='https://c.test/v1'", "c")):
        result = run(marked(marker), AGAIN_ALL, errors=1)
        result.stdout.fnmatch_lines([f"https://{host}.test/v1 is more than the service address*"])


@pytest.mark.parametrize(
    ("ini", "fixture", "marker", "line"),
    [
        ("", "{'redacted': []}", "", "*_options has no setting redacted. Did you mean redact[?]"),
        ("", "{'tape': 1}", "", "*_options has no setting tape. The settings are cassette, *"),
        ("", "{'repeat': 'often'}", "", "*_options: repeat must be one of last, strict."),
        ("", "{'allow_writes': True}", "", "*_options cannot allow writes, *Use the marker or *"),
        ("directmail_on_old = never", "{}", "", "The ini file: on_old must be one of warn, fail."),
        ("", "{}", "patch=['127.*']", "test_account.py::test_me: *patch must be one of True, *"),
        ("directmail_ignore = key", "{}", "", "'key' names nothing to ignore. Give query:NAME*"),
        ("", "{}", "'tour'", "test_account.py::test_me: *no setting 'tour'*"),
        ("", "{}", "casette='tour'", "test_account.py::test_me: *Did you mean cassette[?]"),
        ("", "{}", "cassette='../tape'", "'../tape' is not a cassette's name."),
        ("", "{}", "record_mode='update'", "test_account.py::test_me: *mode must be one of none*"),
    ],
)
def test_a_mistaken_setting_is_an_error(pytester, run, ini, fixture, marker, line):
    """A typo in a setting must not go unnoticed, in the ini file, the fixture or the marker."""
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(OPTIONS.replace("{}", fixture))

    run(marked(marker), errors=1).stdout.fnmatch_lines([line])


# -- writes and errors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "options"), [("allow_writes=True", ()), ("", ("--directmail-allow-writes",))]
)
def test_a_write_is_recorded_if_it_is_allowed(run, account, marker, options):
    """The marker or the command line allows it, which messages name. Replays need neither."""
    missing = run(ONE_WRITE, failed=1)
    refused = run(ONE_WRITE, RECORD, failed=1)
    sent = account.requests.copy()
    run(marked(marker, ONE_WRITE), RECORD, *options, passed=1)

    run(marked(marker, ONE_WRITE), passed=1)
    missing.stdout.fnmatch_lines(["E *Record this test: pytest *=once --directmail-allow-writes"])
    refused.stdout.fnmatch_lines(
        [
            "*--directmail-allow-writes, or *directmail(allow_writes=True)*",
            "the recording was not kept, since the test failed",
            "to record it again: pytest *=once --directmail-allow-writes",
        ]
    )
    assert not sent
    assert account.requests == {"POST /v1/letters": 1}


def test_an_ini_file_allows_no_writes(pytester, run):
    """Writes can cost money, so each run must allow them on its own command line."""
    pytester.makeini("[pytest]\naddopts = --directmail-allow-writes")

    run(ONE_CALL).stderr.fnmatch_lines(["*--directmail-allow-writes is not allowed in addopts*"])


@pytest.mark.parametrize(
    ("marker", "status", "seen"),
    [("", 503, 503), slow("retry=True", 429, 200), ("retry=True", 500, 500)],
)
def test_an_error_is_recorded_as_the_test_saw_it(run, account, marker, status, seen):
    """Requests are not repeated behind a test's back, unless its marker asks for it."""
    account.fault(status=status, times=1, headers={"Retry-After": "0"})
    call = f"def test_me(directmail): assert directmail.get('/v1/lists').status_code == {seen}"
    run(marked(marker, call), RECORD, passed=1)

    run(marked(marker, call), passed=1)
    assert sum(account.requests.values()) == 1 + (seen == 200)


FAILURES = """
    import asyncio, httpx, pytest

    SILENT, CLOSED = "ADDRESS/v1/silent", "http://127.0.0.1:9/v1/closed"

    async def get_async(url, timeout):
        async with httpx.AsyncClient(timeout=timeout) as client:
            await client.get(url)

    @pytest.mark.directmail(patch=True)
    @pytest.mark.parametrize("is_async", [False, True])
    def test_patched(directmail, is_async):
        for url, kind in ((SILENT, httpx.ReadTimeout), (CLOSED, httpx.ConnectError)):
            timeout = TIMEOUT if url == SILENT else 60
            with pytest.raises(kind) as caught:
                if is_async:
                    asyncio.run(get_async(url, timeout))
                else:
                    httpx.get(url, timeout=timeout)
            assert type(caught.value) is kind

    def test_own(directmail):
        with pytest.raises(httpx.ReadTimeout):
            directmail.client.get("/v1/silent", timeout=TIMEOUT)
        assert directmail.get("/v1/lists").json()
"""


def test_a_failure_is_recorded_and_replayed_as_the_clients_own_exception(run, account):
    """The replay needs no server, and does not wait for a timeout."""
    source = FAILURES.replace("ADDRESS", account.base_url)
    with account.fault(path="/v1/silent", drop="close", stall=True):
        run(source.replace("TIMEOUT", "0.1"), RECORD, passed=3)
    account.close()
    result = run(source.replace("TIMEOUT", "60"), passed=3)

    assert result.duration < 30
    kinds = [each.response.cut for each in read_cassette(OWN.with_stem("test_own"))]
    assert kinds == ["read_timeout", None]


@pytest.mark.parametrize(("end", "outcome"), [("pass", "passed"), ("assert 0", "failed")])
def test_a_first_recording_is_kept_only_if_the_test_passed(run, account, end, outcome):
    """Otherwise a bug, or a network that was down, would fail the test in each replay."""
    source = f"""
        import httpx, pytest

        def test_me(directmail):
            directmail.me()
            with pytest.raises(httpx.RemoteProtocolError):
                directmail.get("/v1/lists")
            {end}
        """
    with account.fault(path="/v1/lists", drop="close"):
        run(source, RECORD, **{outcome: 1})

    assert OWN.exists() == (outcome == "passed")
    if OWN.exists():
        assert [each.response.status for each in read_cassette(OWN)] == [200, 0]


# -- more than one cassette, client or test ----------------------------------------------------


def test_another_cassette_is_looked_for_in_the_tests_own_folder_first(run, account):
    """The folder of the test file comes next. New cassettes go to the test's own folder."""
    recorded(OWN.with_name("other.yaml"), account, 1)
    recorded(Path("cassettes/other.yaml"), account, 2)
    recorded(Path("cassettes/shared.yaml"), account, 3)
    source = """
        from directmail_lab.sessions.session import open_cassette

        def test_me(directmail):
            directmail.me()
            for name, count in {"other": 1, "shared": 3}.items():
                with directmail.replay(name):
                    assert len(open_cassette(directmail)) == count
            with directmail.replay("first-look"):
                directmail.me()
            if directmail.mode == "record":
                with directmail.record("third"):
                    directmail.me()
        """
    run(source, RECORD, passed=1)

    run(source, passed=1)
    assert OWN.with_name("third.yaml").is_file()


def test_a_module_scoped_fixture_sends_its_requests_only_once(run, account):
    """The module's session has its own cassette, and its unplayed responses fail no test."""
    source = """
        import pytest

        @pytest.fixture(scope="module")
        def lists(directmail_session):
            directmail_session.me()
            return directmail_session.get("/v1/lists").json()

        def test_one(lists, directmail):
            assert directmail.me()["id"].item() == "usr_stand_in_1"

        def test_two(lists):
            assert lists
        """
    run(source, RECORD, passed=2)
    sent = account.requests.copy()
    names = sorted(path.stem for path in OWN.parent.iterdir())
    run(source, passed=2)

    run(source, "-k", "two", passed=1)
    assert names == ["directmail_session", "test_one"]
    assert sent == account.requests == {"GET /v1/users/me": 2, "GET /v1/lists": 1}


def test_clients_of_other_libraries_record_and_replay(run, account):
    """A local server has the key and sends their requests. An unrecorded request fails the test."""
    source = """
        import requests, urllib.request

        def test_me(directmail_server):
            assert requests.get(f"{directmail_server}/v1/users/me").json()["phone"] is None
            assert urllib.request.urlopen(f"{directmail_server}/v1/lists?limit=1").read()
        """
    run(source, RECORD, passed=1)
    sent = account.requests.copy()
    other = source.replace("limit=1", "limit=2")
    changed = run(other, failed=1)
    caught = other.replace("urllib.request.urlopen", "requests.get").replace("read()", "text")
    unseen = run(caught, passed=1, errors=1)

    run(source, passed=1)
    assert sent == account.requests
    assert header(read_cassette(OWN).interaction(1).request.headers, "host") in account.base_url
    changed.stdout.fnmatch_lines(["*HTTP Error 502*", "not recorded:", "    GET /v1/lists"])
    unseen.stdout.fnmatch_lines(["GET /v1/lists differs in query: limit"])
    assert traces(OWN.read_bytes(), account.api_key) == []


# -- clients that the code under test makes itself ---------------------------------------------

OWN_CLIENTS = """
    import asyncio, httpx, os, pytest

    pytestmark = pytest.mark.directmail(patch=True)
    BASE, KEY = os.environ.get("ITS_ADDRESS", "ADDRESS"), os.environ.get("ITS_KEY", "none")

    async def awaited():
        headers = {"Connection": "close"}
        async with httpx.AsyncClient(auth=(KEY, ""), headers=headers) as http:
            return (await http.get(f"{BASE}/v1/users/me")).json()

    def test_all():
        sent = httpx.get(f"{BASE}/v1/users/me", auth=(KEY, "")).json()
        assert sent["name"] == asyncio.run(awaited())["name"] == "Stand-in User"
"""


def test_patched_clients_record_with_a_key_of_their_own(run, service, monkeypatch):
    """Recording needs no address or key from the session, and replaying needs no server."""
    monkeypatch.setenv("ITS_ADDRESS", service.base_url)
    monkeypatch.setenv("ITS_KEY", service.api_key)
    source, path = OWN_CLIENTS.replace("ADDRESS", service.base_url), OWN.with_name("test_all.yaml")
    run(source, RECORD, passed=1)
    service.close()
    monkeypatch.delenv("ITS_KEY")
    run(source, passed=1)
    missing = run(source.replace("users/me", "lists"), failed=1)

    assert len(read_cassette(path)) == service.requests["GET /v1/users/me"] == 2
    assert traces(path.read_bytes(), service.api_key) == []
    missing.stdout.fnmatch_lines(["E * GET /v1/lists is not recorded, but GET /v1/users/me is"])
    path.unlink()
    none = run(source, failed=1)
    none.stdout.fnmatch_lines(["E *Record this test: pytest test_account.py::test_all *"])


SIGN_IN = """
    import httpx, pytest

    @pytest.mark.directmail(patch=True)
    def test_sign_in(directmail):
        with httpx.Client(base_url=directmail.base_url) as http:
            http.get("/v1/users/me/in")
            assert "sid=" in http.get("/v1/users/me").request.headers["Cookie"]
            http.get("/v1/users/me/out")
            assert not http.cookies
"""


def test_a_patched_client_signs_in_and_out_in_a_replay_too(run, account):
    """The cookie keeps its attributes: it is sent to other paths, and a logout ends it."""
    cookie = "sid=8fK2xQ9zLr7TtVb3; Path=/; HttpOnly; SameSite=Lax"
    gone = "sid=; Path=/; Max-Age=0"
    account.fault(path="/v1/users/me/in", headers={"Set-Cookie": cookie})
    account.fault(path="/v1/users/me/out", headers={"Set-Cookie": gone})
    run(SIGN_IN, RECORD, passed=1)
    run(SIGN_IN, passed=1)
    text = OWN.with_name("test_sign_in.yaml").read_text()

    assert "sid=<REDACTED>; Path=/; HttpOnly; SameSite=Lax" in text
    assert "8fK2xQ9zLr7TtVb3" not in text


SDK = """
    import httpx, pytest

    class Sdk:
        def __init__(self, http, url):
            self.http, self.url, self.tries = http, url, 0

        def me(self):
            while self.tries < 3:
                self.tries += 1
                try:
                    return self.http.get(self.url).json()
                except Exception as error:
                    failure = error
            raise ConnectionError("Connection error.") from failure

    @pytest.mark.directmail(patch=True)
    def test_me(directmail):
        with httpx.Client() as http:
            sdk = Sdk(http, f"{directmail.base_url}/v1/users/me?page=1")
            try:
                sdk.me()
            finally:
                assert sdk.tries == 1
"""


def test_an_sdk_does_not_repeat_what_is_not_recorded(run, account):
    """The failure names the request, even if the SDK catches every exception."""
    run(SDK, RECORD, passed=1)
    changed = SDK.replace("page=1", "page=2")
    raised = run(changed, failed=1)
    swallowed = run(changed.replace("finally:", "except BaseException:"), passed=1, errors=1)

    line = "*GET /v1/users/me differs in query: page*"
    raised.stdout.fnmatch_lines([line, "to record it again: pytest *::test_me *"])
    swallowed.stdout.fnmatch_lines([line])
    raised.stdout.no_fnmatch_line("*Connection error*")


@pytest.mark.parametrize(
    ("patch", "ini", "said"),
    [
        ("", "true", "is not recorded"),
        ("patch=True", "false", "is not recorded"),
        ("patch=False", "true", "Another client"),
        ("", "false", "Another client"),
    ],
)
def test_the_marker_and_the_ini_file_say_what_is_patched(pytester, run, service, patch, ini, said):
    """True patches all clients of httpx, false (the default) none: these send nothing."""
    recorded(OWN, service)
    pytester.makeini(f"[pytest]\ndirectmail_patch = {ini}")
    call = f"httpx.get('{service.base_url}/v1/lists', auth=('{service.api_key}', '')).is_success"
    source = f"def test_me(directmail):\n    import httpx\n    assert {call}"

    result = run(marked(f"unplayed='allow', {patch}", source), failed=1)
    result.stdout.fnmatch_lines([f"*{said}*"])


def test_patched_clients_reach_hosts_that_are_ignored(run, service):
    """What the code under test sends to its own local server is neither recorded nor played."""
    call = f"httpx.get('{service.base_url}/v1/lists', auth=('{service.api_key}', '')).is_success"
    source = f"def test_me():\n    import httpx\n    assert {call}"

    run(
        marked(f"patch=True, ignore_hosts=['{httpx.URL(service.base_url).host}']", source), passed=1
    )
    assert not OWN.exists()


def test_a_test_that_asks_another_region_is_told_how_to_leave_the_host_out(run, account):
    """To record it again would only help until it asks the first region again."""
    recorded(OWN, account)
    there = "http://127.0.0.1:9/v1/users/me"
    source = f"def test_me():\n    import httpx\n    assert httpx.get('{there}').is_success"
    failed = run(marked("patch=True", source), failed=1)
    matched = 'match_on=["method", "path", "query", "body"]'

    failed.stdout.fnmatch_lines(
        [
            f"*GET {there} is not recorded, but GET /v1/users/me is",
            f"*To compare no host*directmail({matched.replace('[', '[[]')})",
        ]
    )
    run(marked(f"patch=True, {matched}", source), passed=1)


# -- responses of the test's own -----------------------------------------------------------------


RESPONSES = """
    import asyncio, httpx, pytest, urllib.error, urllib.request

    def test_own(directmail):
        directmail.respond("/v1/lists", method="POST", status=202)
        directmail.respond("/v1/lists", status=503, json={"error": "later"}, times=2)
        first = directmail.get("/v1/lists", params={"page": 1})
        assert first.status_code == 503
        assert first.json() == {"error": "later"}
        assert asyncio.run(directmail.async_client.get("/v1/lists")).status_code == 503
        assert directmail.get("/v1/lists").status_code == 200
        assert directmail.post("/v1/lists").status_code == 202

    def test_failures(directmail):
        directmail.respond("/v1/users/me", error=httpx.ReadTimeout)
        with pytest.raises(httpx.ReadTimeout):
            directmail.me()
        directmail.respond("/v1/letters", method="POST", error=httpx.ReadTimeout)
        with pytest.raises(directmail_lab.errors.OutcomeUnknownError):
            directmail.post("/v1/letters", json={})

    def test_function(directmail):
        directmail.respond("/v1/letters", lambda sent: httpx.Response(422, content=sent.content),
                           method="POST")
        response = directmail.client.post("/v1/letters", content=iter([b"too ", b"long"]))
        assert (response.status_code, response.text) == (422, "too long")

    def test_async_function(directmail):
        async def parts():
            yield b"too long"

        directmail.respond("/v1/lists", lambda sent: httpx.Response(422, content=sent.content))
        sending = directmail.async_client.request("GET", "/v1/lists", content=parts())
        assert asyncio.run(sending).text == "too long"

    @pytest.mark.directmail(patch=True)
    def test_patched(directmail):
        directmail.respond("/eu/v1/lists", status=429, headers={"Retry-After": "1"})
        assert httpx.get("https://api.example.test/eu/v1/lists").headers["Retry-After"] == "1"

    def test_server(directmail, directmail_server):
        directmail.respond("/v1/lists", status=503)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{directmail_server}/v1/lists")
        directmail.respond("/v1/lists", error=httpx.ReadTimeout)
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{directmail_server}/v1/lists")
"""


def test_the_example_of_a_response_runs(run):
    """It needs no cassette, key or network."""
    assert directmail_lab.pytest_plugin.__doc__
    _, _, after = directmail_lab.pytest_plugin.__doc__.partition("gives the response itself::\n\n")
    example = after.partition("\n\n")[0].replace("\n    ", "\n").strip()

    run(f"import pytest\nimport directmail_lab as dm\n\n{example}", passed=1)


def test_a_test_gives_a_response_itself(run, account):
    """Nothing is sent for it, whatever the client, in a recording and in its replay."""
    source = f"import directmail_lab{RESPONSES}".replace("\n    ", "\n")
    run(source, RECORD, "--directmail-allow-writes", passed=6)

    assert account.requests == {"GET /v1/lists": 1}
    run(source, passed=6)


def test_a_response_of_the_tests_own_is_named_by_the_path_that_get_takes():
    """The service address may have a path, too."""
    with RespondingSession("https://api.example.test/eu") as session:
        session.respond("/v1/lists", status=418)

        assert session.get("/v1/lists").status_code == 418


@pytest.mark.parametrize(
    ("target", "count", "errors"),
    [("/v1/lists", 1, 0), ("/v1/lists", 2, 1), ("/v1/users/me", 1, 1)],
)
def test_a_response_of_the_tests_own_stands_for_a_recorded_one(run, service, target, count, errors):
    """The recorded response is not left unplayed; of other requests, and a second one, it is."""
    recorded(OWN, service, count, target)
    source = "def test_me(directmail): directmail.respond('/v1/lists'); directmail.get('/v1/lists')"

    run(source, passed=1, errors=errors)


def test_a_response_of_the_tests_own_is_like_one_from_the_network(run):
    """It has a latency; None is JSON's null; an error is raised as it was given."""
    source = """
    import httpx, pytest

    def test_own(directmail):
        directmail.respond("/v1/lists", method="get", json=None)
        response = directmail.get("/v1/lists")
        assert response.elapsed.total_seconds() >= 0
        assert response.json() is None
        assert response.headers["content-type"] == "application/json"
        directmail.respond("/v1/lists", error=httpx.ReadTimeout("slow"), times=2)
        for _ in range(2):
            with pytest.raises(httpx.ReadTimeout, match="slow"):
                directmail.client.get("/v1/lists")
    """
    run(source, passed=1)


@pytest.mark.parametrize(
    "path", ["/v1/lists?page=1", "https://api.example.test/v1/lists", "v1/lists", "/v1/lists#a"]
)
def test_a_path_that_no_request_can_have_is_refused(path):
    """Without that, the test would fail at its end, and say that no request had the response."""
    with (
        RespondingSession("https://api.example.test") as session,
        pytest.raises(ValueError, match="a path such as /v1/lists"),
    ):
        session.respond(path)


def test_a_response_that_no_request_had_fails_the_test(run):
    """The path may be wrong, or the code under test may send no request."""
    source = "def test_me(directmail): directmail.respond('/v1/list', status=503)"
    line = "No request had the response that the test gave for GET /v1/list."

    run(source, passed=1, errors=1).stdout.fnmatch_lines([line])


# -- beside other plugins ----------------------------------------------------------------------


def test_a_subtest_may_send_a_part_of_a_tests_requests(run):
    """pytest 9 reports each subtest while others are still to come."""
    OWN.parent.mkdir(parents=True)
    theirs(OWN.with_stem("TestIt.test_me"), answered(), answered(), answered())
    source = """
        import unittest, pytest

        @pytest.mark.usefixtures("own")
        class TestIt(unittest.TestCase):
            @pytest.fixture
            def own(self, directmail): self.directmail = directmail

            def test_me(self):
                for number in range(3):
                    with self.subTest(number=number):
                        assert self.directmail.get("/v1/users/me").is_success
        """
    assert run(source).ret == 0
    unplayed = run(source.replace("range(3)", "range(2)"))

    assert unplayed.ret == 1
    unplayed.stdout.fnmatch_lines(["*did not request every response*"])


def test_a_session_goes_when_its_test_has_ended(run):
    """pytest keeps all tests until the run ends."""
    source = """
        import gc, weakref

        ENDED = []

        def test_me(directmail):
            ENDED.append(weakref.ref(directmail))

        def test_next():
            gc.collect()
            assert ENDED[0]() is None
        """

    run(source, passed=2)


# -- old recordings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "marker", "outcomes", "line"),
    [
        ("directmail_max_age = 90 days", "", {"passed": 1, "warnings": 1}, "*is * days old*"),
        ("directmail_max_age = 90 days\ndirectmail_on_old = fail", "", {"errors": 1}, "*days old*"),
        ("directmail_max_age = 90 days", "max_age='99999 days'", {"passed": 1}, "*"),
        ("", "max_age='1 day', on_old='fail'", {"errors": 1}, "*record it again: pytest *=all"),
        ("", "max_age=90", {"errors": 1}, "max_age is a number and a unit, such as *"),
    ],
)
def test_an_old_recording_warns_or_fails(pytester, run, ini, marker, outcomes, line):
    """The ini file sets the limit and the consequence, and the marker overrides both."""
    pytester.makeini(f"[pytest]\n{ini}")
    OWN.parent.mkdir(parents=True)
    samples.recorded(OWN, replace(answered(), recorded_at=datetime(2020, 11, 21, tzinfo=UTC)))
    result = run(marked(marker), "-W", "default", **outcomes)

    result.stdout.fnmatch_lines([line])


# -- other clients ---------------------------------------------------------------------------------

CLIENTS = {
    "requests": "requests.get(url)",
    "httpx": "httpx.get(url)",
    "httpx async": "asyncio.run(by(httpx.AsyncClient))",
    "aiohttp": "asyncio.run(by(aiohttp.ClientSession))",
}
BY = """
import aiohttp, asyncio, httpx, requests, urllib.request
async def by(kind):
    async with kind() as client:
        await client.get(url)
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("client", CLIENTS)
def test_no_other_client_sends_to_the_service_of_a_test(run, pytester, account, client, host):
    """Neither in a replay nor in a recording, even if the code catches the error."""
    url = account.base_url.replace("127.0.0.1", host)
    source = f"""{BY}
url = "{url}/v1/users/me"
def test_me(directmail):
    directmail.me()
    try:
        {CLIENTS[client]}
    except Exception:
        pass
def test_ours(directmail, directmail_server):
    async def get():
        await directmail.async_client.get("/v1/users/me")
    asyncio.run(get())
    urllib.request.urlopen(directmail_server + "/v1/users/me")
def test_free():
    {CLIENTS[client]}
"""
    recorded(OWN, account)
    before = account.requests.total()
    refused = run(source, "-k", "test_me", failed=1, deselected=2)
    sent = account.requests.total() - before
    named = client if client in ("requests", "httpx") else ""  # the others may use a thread
    recorded_again = run(source, AGAIN_ALL, "-k", "test_me", failed=1, deselected=2)
    run(source, RECORD, "-k", "not test_me", passed=2, deselected=1)
    run(source, "-k", "test_ours", passed=1, deselected=2)

    assert sent == 0
    for result in (refused, recorded_again):
        result.stdout.fnmatch_lines([f"*session of this test connects to 127.0.0.1:* (*{named}*"])


def test_no_other_client_sends_before_a_test_has_a_cassette(run, pytester, account):
    """The address of the settings says which service it is."""
    pytester.makeini(f"[pytest]\ndirectmail_base_url = {account.base_url}")
    source = f"""
        import requests

        def test_new(directmail):
            requests.post("{account.base_url}/v1/letters", json={{}})
        """
    run(source, failed=1).stdout.fnmatch_lines(["*session of this test connects to 127.0.0.1:*"])

    assert account.requests.total() == 0
