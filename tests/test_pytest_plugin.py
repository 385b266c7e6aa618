"""The pytest plugin, tested by running pytest inside pytest."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

# pytester restores `sys.modules` after each inner run, so a module first imported there would be
# imported a second time. These modules, and vcrpy's YAML reader, fail when that happens, so they
# are imported here first.
import aiohttp  # noqa: F401
import cassette_samples as samples
import httpcore  # noqa: F401
import httpcore2  # noqa: F401
import httpx2  # noqa: F401
import pandas  # noqa: F401
import pytest
import pytest_recording.plugin  # noqa: F401
import requests  # noqa: F401
import vcr  # noqa: F401
from cassette_samples import answered, get, theirs
from client_service import ClientService
from key_search import traces
from marks import slow
from typer.testing import CliRunner

import directmail_lab.cassettes.vcr_files  # noqa: F401
from directmail_lab import Session
from directmail_lab.cassettes import read_cassette
from directmail_lab.cli import app
from directmail_lab.credentials import ApiKey
from directmail_lab.exchange.values import LEFT, Request
from directmail_lab.pytest_plugin.settings import TABLE
from directmail_lab.share import network_block

if TYPE_CHECKING:
    from faulty_service import FaultyService

    from directmail_lab.server.standin import StandIn

OWN, TOUR = Path("cassettes/test_account/test_me.yaml"), Path("cassettes/tour.yaml")
PACKAGED = Path(__file__).parent.parent / "cassettes" / "first-look.yaml"
GUIDE = Path(__file__).parent.parent / "notebooks" / "moving-from-vcrpy.md"
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


def recorded(path: Path, service: StandIn, calls: int = 1, target: str = "/v1/users/me") -> None:
    """Record a cassette with this many reads."""
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path, record_mode="all")
        for _ in range(calls):
            session.request("GET", target)


def written_by_vcrpy(*names: str) -> None:
    for name in names:
        path = Path(f"cassettes/{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        theirs(path, answered(body='{"id": 7}'))


def guide_block(name: str) -> str:
    """Return a block of the guide for suites of vcrpy, by the word in its first line."""
    text = GUIDE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"(?s)```python [^\n]*{re.escape(name)}[^\n]*\n(.*?)```", text)
    return str(block)


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on a file with warnings as errors; if ``outcomes`` are given, check them.

    ``apart`` runs it in its own process with all installed plugins, which takes longer.
    """

    def run(source: str, *args: str, apart: bool = False, **outcomes: int) -> pytest.RunResult:
        pytester.makepyfile(test_account=source)
        if apart:
            result = pytester.runpytest_subprocess("-W", "error", *QUIET, *args)
        else:
            with monkeypatch.context() as environment:
                environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
                loaded = ("-pdirectmail_lab", "-pxdist", "-W", "ignore:Module already imported")
                result = pytester.runpytest("-W", "error", *loaded, *QUIET, *args)
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result

    return run


# -- record, then replay -----------------------------------------------------------------------


def test_a_recorded_test_replays_without_key_or_network(
    run: Run, account: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording writes the test's own cassette beside it; afterwards even ``once`` needs no key."""
    run(TWO_CALLS, RECORD, passed=1)
    text = OWN.read_text(encoding="utf-8")
    account.close()
    monkeypatch.delenv("DIRECTMAIL_API_KEY")
    monkeypatch.delenv("DIRECTMAIL_BASE_URL")

    run(TWO_CALLS, passed=1)
    run(TWO_CALLS, RECORD, passed=1)
    assert account.api_key not in text
    assert text.count("recorded_at") == 2


@pytest.mark.parametrize("option", ["", RECORD])
def test_a_test_that_sends_nothing_needs_no_cassette(
    run: Run, account: StandIn, option: str
) -> None:
    """The fixture alone neither fails a test nor writes a file; a first request is recorded."""
    source = "def test_me(directmail): assert directmail.base_url"
    run(source, *option.split(), "-o", "directmail_max_age=1 day", passed=1)
    assert not OWN.exists()

    run(ONE_CALL, RECORD, passed=1)
    run(ONE_CALL, passed=1)


def test_a_missing_cassette_or_key_says_what_to_do(run: Run) -> None:
    """The error names the exact command and variables that help, and nothing is written."""
    missing, without_key = run(TWO_CALLS, failed=1), run(TWO_CALLS, RECORD, errors=1)

    command = f"pytest test_account.py::test_me {RECORD}"
    missing.stdout.fnmatch_lines(
        [f"E *GET /v1/users/me has no response: there is no cassette {OWN}", f"E *{command}"]
    )
    without_key.stdout.fnmatch_lines(["No base address*DIRECTMAIL_BASE_URL*"])
    assert "pytest_plugin.py" not in str(without_key.stdout)
    assert not Path("cassettes").exists()


def test_a_missing_cassette_of_patched_clients_asks_for_no_key(run: Run) -> None:
    """They have their own addresses and keys; the session's own client needs what it needs."""
    source = """
        import httpx, pytest
        pytestmark = pytest.mark.directmail(patch=True)

        def test_theirs():
            httpx.get("https://doi.example.test/10")

        def test_ours(directmail):
            directmail.get("/v1/users/me")
        """
    result = run(source, failed=2)

    result.stdout.fnmatch_lines(["E *Record this test: pytest test_account.py::test_theirs *"])
    result.stdout.fnmatch_lines(["E *Set DIRECTMAIL_BASE_URL and *::test_ours *"])


def test_the_error_for_a_missing_cassette_names_one_in_another_folder(run: Run) -> None:
    """Suites that use vcrpy often keep all cassettes in one folder. The error names that file."""
    written_by_vcrpy("test_me", "test_more")

    run(ONE_CALL, failed=1).stdout.fnmatch_lines(
        [f"E *{OWN}, but cassettes/test_me.yaml exists", "E *fixture directmail_cassette *"]
    )


@pytest.mark.parametrize(
    ("returned", "made"),
    [
        ("f'flat-{request.node.name}'", "cassettes/flat-test_me.yaml"),
        ("Path('tapes', request.node.name)", "tapes/test_me.yaml"),
        ("Path('flat')", "flat/test_me.yaml"),
        ("directmail_cassette", str(OWN)),
    ],
)
def test_a_fixture_says_where_the_cassette_is(
    pytester: pytest.Pytester, run: Run, account: StandIn, returned: str, made: str
) -> None:
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
    marked = f"import pytest\n@pytest.mark.directmail(cassette='tour')\n{ONE_CALL}"
    for source in (ONE_CALL, marked):
        run(source, RECORD, passed=1)
        run(source, passed=1)

    assert {str(path) for path in Path().rglob("*.yaml")} == {made, str(TOUR)}


# -- strictness --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "failed"), [("", 1), ("unplayed='allow'", 0), ("cassette='tour'", 0)]
)
def test_responses_left_unplayed_fail_a_test_that_has_its_own_cassette(
    run: Run, service: StandIn, marker: str, failed: int
) -> None:
    """A test's own cassette must match the test exactly, but a shared cassette need not."""
    recorded(OWN, service, 2)
    recorded(TOUR, service, 2)
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}"
    result = run(source, failed=failed, passed=1 - failed)

    if failed:
        result.stdout.fnmatch_lines(["*did not request every response*", "*GET /v1/users/me"])


@pytest.mark.parametrize(("end", "errors"), [("directmail.get('/v1/lists')", 0), ("None", 1)])
def test_a_fixture_may_request_the_remaining_responses_in_its_teardown(
    run: Run, account: StandIn, end: str, errors: int
) -> None:
    """A fixture may send requests in its teardown. Unplayed responses are counted after it."""
    source = """
        import pytest

        @pytest.fixture
        def prepared(directmail):
            yield directmail.get('/v1/lists')
            END

        def test_me(prepared, directmail):
            directmail.me()
        """
    run(source.replace("END", "directmail.get('/v1/lists')"), RECORD, passed=1)
    result = run(source.replace("END", end), passed=1, errors=errors)

    assert ("did not request every response" in str(result.stdout)) == bool(errors)


def test_nothing_is_sent_in_a_replay(run: Run, account: StandIn) -> None:
    """A replay cannot send even if the environment has a key and an address.

    A test that skips midway does not fail for its unplayed responses.
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


@pytest.mark.parametrize("then", ["", "; directmail.replay('first-look')", "; directmail.close()"])
def test_a_re_recorded_cassette_contains_only_what_the_test_requests(
    run: Run, account: StandIn, then: str
) -> None:
    """The command in the failure message must help, whatever mode the session is in at the end."""
    recorded(OWN, account, 2, "/v1/lists?page=1")
    run(ONE_CALL + then, failed=1)
    run(ONE_CALL + then, AGAIN_ALL, passed=1)

    run(ONE_CALL + then, passed=1)
    assert len(read_cassette(OWN)) == 1


@pytest.mark.parametrize(
    ("source", "outcomes"),
    [
        (f"{ONE_CALL}; assert 0", {"failed": 1}),
        (f"{ONE_CALL}; directmail.replay('first-look').__exit__(); assert 0", {"failed": 1}),
        (f"{ONE_CALL}; import pytest; pytest.skip('later')", {"skipped": 1}),
        (
            "import pytest\n@pytest.fixture\ndef broken(directmail): directmail.me(); assert 0\n"
            "def test_me(broken, directmail): pass",
            {"errors": 1},
        ),
        (
            f"import pytest\n@pytest.mark.directmail(cassette='test_account/test_me')\n{ONE_CALL}"
            "; assert 0",
            {"failed": 1},
        ),
        (
            "import pytest\n@pytest.fixture(scope='module')\ndef me(directmail_session):\n"
            "    return directmail_session.me()\ndef test_me(me): assert 0",
            {"failed": 1},
        ),
    ],
)
def test_a_failed_re_recording_keeps_the_old_cassette(
    run: Run, account: StandIn, source: str, outcomes: dict[str, int]
) -> None:
    """The report names the file with the new recording. If the test passes, it replaces the old."""
    own = OWN.with_stem("directmail_session") if "directmail_session" in source else OWN
    recorded(own, account, 2)
    before = own.read_bytes()
    result = run(source, AGAIN_ALL, **outcomes)
    aside = own.with_stem(f"{own.stem}.unfinished")

    assert own.read_bytes() == before
    assert len(read_cassette(aside)) == 1
    if "skipped" not in outcomes:
        result.stdout.fnmatch_lines([f"new recording: {aside}; the old one stays"])
    run(source.replace("assert 0", "pass").replace("pytest.skip", "str"), AGAIN_ALL, passed=1)
    assert own.read_bytes() != before


@pytest.mark.slow
def test_a_killed_re_recording_keeps_the_old_cassette(run: Run, account: StandIn) -> None:
    """The old file is as it was, and the responses that the test received are beside it."""
    recorded(OWN, account, 2)
    before = OWN.read_bytes()
    kill = "__import__('os').kill(__import__('os').getpid(), 9)"
    run(f"{ONE_CALL}; {kill}", AGAIN_ALL, apart=True)

    assert OWN.read_bytes() == before
    assert len(read_cassette(OWN.with_stem(f"{OWN.stem}.unfinished"))) == 1
    run(ONE_CALL, AGAIN_ALL, passed=1)
    assert len(read_cassette(OWN)) == 1


@pytest.mark.parametrize("then", ["", "; assert 0"])
def test_new_episodes_are_added_to_a_tests_own_cassette(
    run: Run, account: StandIn, then: str
) -> None:
    """The test replays what its cassette contains, so that stays, even if the test fails."""
    recorded(OWN, account)
    both = f"{ONE_CALL}; directmail.get('/v1/lists')"
    outcome = {"failed": 1} if then else {"passed": 1}
    run(both + then, "--directmail-record-mode=new_episodes", **outcome)

    run(both, passed=1)
    assert account.requests == {"GET /v1/users/me": 1, "GET /v1/lists": 1}


@pytest.mark.parametrize("before", ["directmail.me()", ""])
def test_replaying_another_cassette_does_not_end_a_re_recording(
    run: Run, account: StandIn, before: str
) -> None:
    """Replaying another cassette closes the recording. What follows must not go to the old file."""
    source = f"""
        def test_me(directmail):
            {before}
            with directmail.replay("first-look"):
                directmail.me()
            directmail.get("/v1/lists")
        """
    run(source, RECORD, passed=1)
    run(source, AGAIN_ALL, passed=1)

    run(source, passed=1)


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
    """The cassette of a test that requested one page of lists three times, with a token."""
    token = "k" * 20
    recorded(OWN.with_stem("test_lists"), service, 3, f"/v1/lists?page=1&size=5&token={token}")


@pytest.mark.usefixtures("lists")
def test_a_mismatch_is_reported_in_two_lines_and_then_in_full(run: Run) -> None:
    """The report has the names of parameters, not their values, and no frames of ours."""
    result = run(LIST_OF_PAGE.replace("short", "long" * 4), failed=1)

    result.stdout.fnmatch_lines(
        [
            "E  *NotRecordedError: GET /v1/lists differs in query: page, query: size",
            f"E  *Record this test again: {AGAIN}",
            "test_account.py:*: NotRecordedError",
            "*- directmail cassette -*",
            "cassettes/test_account/test_lists.yaml, record mode none",
            "left unplayed:",
            "    GET /v1/lists (3 times)",
            "not recorded:",
            "    GET /v1/lists",
            "nearest to GET /v1/lists:",
            "    GET /v1/lists, which differs in query: page, query: size",
            "to see the values that differ: -vv",
            f"to record it again: {AGAIN}",
            "*= short test summary info =*",
            "FAILED test_account.py::test_lists - GET /v1/lists differs in query: page,*",
            f"to record it again: {AGAIN}",
        ],
        consecutive=False,
    )
    assert "httpx" not in str(result.stdout)
    assert "query: page:" not in str(result.stdout)


def test_a_failure_names_responses_to_another_range_and_those_that_end_early(run: Run) -> None:
    """A test that wants five events learns that the recording has the first one."""
    asked = replace(get("/file"), headers=(("Range", "bytes=0-9"),))
    left = answered(get("/events"), "data: 0\n\n")
    left = replace(left, response=replace(left.response, incomplete=LEFT))
    own = OWN.with_stem("test_events")
    own.parent.mkdir(parents=True)
    samples.recorded(own, answered(asked), left)
    source = """
        import httpx, pytest

        @pytest.mark.directmail(patch=True, like="vcrpy")
        def test_events():
            httpx.get("https://api.example.test/file", headers={"Range": "bytes=10-19"})
            assert httpx.get("https://api.example.test/events").text.count("data") == 5
        """
    result = run(source, failed=1)

    result.stdout.fnmatch_lines(
        [
            "not recorded: nothing",
            "recorded only as far as it was read then:",
            "    GET /events",
            "played although its Range differs:",
            "    GET /file: Range bytes=10-19, recorded bytes=0-9",
        ],
        consecutive=True,
    )


@pytest.mark.usefixtures("lists")
def test_values_are_shown_when_they_are_asked_for_and_redacted(run: Run) -> None:
    """``-vv`` shows the values with secrets redacted, in colour if pytest's output is in colour."""
    result = run(LIST_OF_PAGE, "-vv", "--color=yes", RECORD, failed=1)
    lines = str(result.stdout).replace("\x1b[", "^").splitlines()

    assert "^1mcassettes/test_account/test_lists.yaml, record mode once^0m" in lines
    assert "^36m        query: page: '2', recorded '1'^0m" in lines
    assert "^36m        query: token: 'short', recorded '<REDACTED>'^0m" in lines
    assert f"^32mto record it again: {AGAIN}^0m" in lines


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("args", ["", slow("-n2"), "--tb=native"])
def test_a_clients_own_error_also_reports_the_mismatch(run: Run, args: str) -> None:
    """The two lines are in the client's error too, and the details in an xdist worker's report."""
    source = LIST_OF_PAGE.replace("raise\n", "raise OSError('no connection') from error\n")
    result = run(source, *args.split(), failed=1)

    result.stdout.fnmatch_lines(["*directmail cassette*", f"to record it again: {AGAIN}"])
    assert f"Record this test again: {AGAIN}" in str(result.stdout)


def test_the_error_reports_a_used_up_response_or_another_operation(
    run: Run, service: StandIn
) -> None:
    """If all responses are used up there is no nearest one; another operation is only named."""
    recorded(OWN, service)
    calls = ("directmail.me(), directmail.me()", "directmail.get('/v1/users/mi')")
    outputs = [run(f"def test_me(directmail): {call}", failed=1).outlines for call in calls]

    assert [lines[-3].partition(" - ")[2] for lines in outputs] == [
        "GET /v1/users/me is in cassette 'test_me', ...",
        "GET /v1/users/mi is not recorded, but GET /...",
    ]


def test_a_part_of_a_file_is_named_and_no_other_method_of_another_path(run: Run) -> None:
    """A path with six parts would be listed as the same request six times."""
    parts = [replace(get("/file"), headers=(("Range", f"bytes={at}"),)) for at in ("0-9", "10-19")]
    own = OWN.with_stem("test_file")
    own.parent.mkdir(parents=True)
    samples.recorded(own, *map(answered, parts))
    result = run("def test_file(directmail): directmail.client.post('/login')", failed=1)

    expected = ["left unplayed:", "    GET /file, bytes=0-9", "    GET /file, bytes=10-19"]
    result.stdout.fnmatch_lines(expected, consecutive=True)
    assert "nearest to" not in str(result.stdout)


def test_a_mismatch_does_not_ask_the_disk(run: Run) -> None:
    """Some suites let each blocking call in an event loop fail, which would hide the mismatch."""
    written_by_vcrpy("test_account/test_me")
    source = """
        import os

        def blocked(*_, **__):
            raise RuntimeError("a blocking call")

        def test_me(directmail, monkeypatch):
            with monkeypatch.context() as patch:
                patch.setattr(os, "stat", blocked)
                directmail.client.get("/v1/lists")
        """

    run(source, failed=1).stdout.fnmatch_lines(["E *GET /v1/lists is not recorded, but *"])


# -- the marker and the names ------------------------------------------------------------------


def test_the_nearest_marker_wins(run: Run, service: StandIn) -> None:
    """A module's marker applies to all its tests, and a test's own marker overrides it."""
    recorded(TOUR, service)
    source = """
        import pytest
        pytestmark = pytest.mark.directmail(cassette="tour", repeat="strict")

        def test_once(directmail):
            directmail.me(), directmail.me()

        @pytest.mark.directmail(repeat="last")
        def test_often(directmail):
            directmail.me(), directmail.me()
        """

    run(source, passed=1, failed=1)


@pytest.mark.parametrize(("there", "made"), [(False, ["tape.yaml"]), (True, ["tape"])])
def test_a_cassette_path_may_have_no_suffix(
    run: Run, account: StandIn, there: bool, made: list[str]
) -> None:
    """vcrpy's file without a suffix is replayed, and a new cassette is found by the given path."""
    if there:
        Path("tapes").mkdir()
        theirs(Path("tapes/tape"), answered(body='{"id": 7}'))
    mark = "@pytest.mark.directmail(cassette=Path('tapes/tape'))"
    source = f"import pytest\nfrom pathlib import Path\n{mark}\n{ONE_CALL}"
    run(source, RECORD, passed=1)

    run(source, passed=1)
    assert sorted(path.name for path in Path("tapes").iterdir()) == made


def test_each_test_has_a_file_of_its_own(run: Run, account: StandIn) -> None:
    """Classes, parameters and names that are invalid as file names each get their own file."""
    source = """
        import pytest

        class TestIt:
            @pytest.mark.parametrize("x", ["a/b", "a:b", "O'Hara", "é" * 400], ids=str)
            def test_me(self, directmail, x):
                directmail.me()
        """
    run(source, RECORD, passed=4)
    names = sorted(path.name for path in OWN.parent.glob("*.yaml"))

    assert len(names) == 4
    assert all(len(name.encode()) < 150 for name in names)
    run(source, passed=4)


@pytest.mark.parametrize("chosen", ["", "test_account.py::test_me[a:b]"])
def test_tests_that_pytest_recording_would_name_alike_keep_their_own_files(
    run: Run, account: StandIn, chosen: str
) -> None:
    """pytest-recording would give these tests one file. A test that runs alone gets its own too."""
    source = """
        import pytest

        @pytest.mark.parametrize("x", ["a-b", "a:b"])
        def test_me(directmail, x):
            directmail.get("/v1/users/me", params={"x": x})

        class TestIt:
            class TestMore:
                def test_me(self, directmail):
                    directmail.get("/v1/lists")

        class TestMore:
            def test_me(self, directmail):
                directmail.me()
        """
    run(source, RECORD, "-k", "a-b or not TestIt and TestMore", passed=2, deselected=2)
    run(source, RECORD, *chosen.split(), passed=1 if chosen else 4)

    assert len(list(OWN.parent.glob("*.yaml"))) == (3 if chosen else 4)


def test_the_session_is_the_current_one_for_the_test_alone(run: Run, service: StandIn) -> None:
    """Code under test can use the module-level calls, and the next test finds no open session."""
    recorded(OWN, service)
    source = """
        import directmail_lab as dm

        def test_me(directmail):
            assert dm.session() is directmail
            dm.me()

        def test_none():
            dm.me()
        """
    result = run(source, passed=1, failed=1)

    result.stdout.fnmatch_lines(["*NotConnectedError: No session is open*"])


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "fixture", "marker", "kept"),
    [
        ("", "{}", "", {"name", "email", "phone"}),
        ("directmail_redact = name, email", "{}", "", {"phone"}),
        ("directmail_redact = name email", "{'redact': ['phone']}", "", set()),
        ("directmail_redact = name", "{'redact': 'phone'}", "redact='email'", set()),
        ("", "{'redact': ['phone']}", "redact=['email']", {"name"}),
    ],
)
def test_redactions_of_the_ini_file_the_fixture_and_the_markers_add_up(
    pytester: pytest.Pytester,
    run: Run,
    account: FaultyService,
    ini: str,
    fixture: str,
    marker: str,
    kept: set[str],
) -> None:
    """A test that redacts more must not write what its project redacts."""
    account.fault(body=json.dumps({"name": "N1", "email": "E1", "phone": "P1"}))
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(OPTIONS.replace("{}", fixture))
    source = f"import pytest\npytestmark = pytest.mark.directmail(redact=())\n{ONE_CALL}"
    marked = source.replace("def", f"@pytest.mark.directmail({marker})\ndef")
    run(marked, RECORD, passed=1)
    text = OWN.read_text(encoding="utf-8")

    assert {n for n, v in (("name", "N1"), ("email", "E1"), ("phone", "P1")) if v in text} == kept


@pytest.mark.parametrize(
    ("fixture", "marker", "failed"),
    [("{}", "", 1), ("{'repeat': 'last'}", "", 0), ("{'repeat': 'last'}", "repeat='strict'", 1)],
)
def test_the_marker_overrides_the_fixture(
    pytester: pytest.Pytester, run: Run, service: StandIn, fixture: str, marker: str, failed: int
) -> None:
    """A project has its settings in one place, and a single test can override them."""
    recorded(OWN, service)
    pytester.makeconftest(OPTIONS.replace("{}", fixture))
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}, directmail.me()"

    run(source, passed=1 - failed, failed=failed)


def test_the_guide_has_a_table_of_all_ini_settings(pytester: pytest.Pytester) -> None:
    """Whoever adds a setting also documents it."""
    listed = re.findall(r"(?m)^\| `(directmail_\w+)` \|", GUIDE.read_text(encoding="utf-8"))
    shown = "\n".join(pytester.runpytest(*QUIET, "--help").outlines)

    assert sorted(listed) == sorted(re.findall(r"(?m)^  (directmail_\w+)", shown))


def test_the_guide_names_all_settings_of_the_marker() -> None:
    """Those that the ini file cannot have are in a sentence below the table."""
    (below,) = re.findall(
        r"(?ms)^The marker and `directmail_options` also have .*?\n\n",
        GUIDE.read_text(encoding="utf-8"),
    )
    only = {name for name, each in TABLE.items() if not each.metadata.get("ini")}

    assert {*re.findall(r"`(\w+)`", below)} - {"directmail_options"} == only


def test_settings_are_read_from_pyproject(
    pytester: pytest.Pytester, run: Run, account: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    source = "def test_me(directmail): directmail.get('/v1/users/me', params={'n': N})"
    run(source.replace("N", "1"), RECORD, passed=1)
    run(source.replace("N", "2"), passed=1)
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", "https://b.test/v1")
    mark = "import pytest\n@pytest.mark.directmail(base_url='https://c.test/v1')\n"
    again = [run(each, AGAIN_ALL, errors=1) for each in (source, mark + source)]

    assert Path("tapes/test_account/test_me.yaml").is_file()
    for result, address in zip(again, ("https://b.test", "https://c.test"), strict=True):
        result.stdout.fnmatch_lines([f"{address}/v1 is more than the base address*"])


@pytest.mark.parametrize(
    ("ini", "fixture", "marker", "line"),
    [
        ("", "{'redacted': []}", "", "*_options has no setting redacted. Did you mean redact[?]"),
        ("", "{'tape': 1}", "", "*_options has no setting tape. The settings are cassette, *"),
        ("", "{'repeat': 'often'}", "", "*_options: repeat must be one of last, strict."),
        ("", "{'allow_writes': True}", "", "*_options cannot allow writes, *Use the marker or *"),
        ("directmail_on_old = never", "{}", "", "The ini file: on_old must be one of warn, fail."),
        ("", "{}", "patch='127.*'", "test_account.py::test_me: *patch must be True, False, or *"),
        ("", "{'like': 'respx'}", "", "*_options: like must be one of vcrpy."),
        ("directmail_ignore = key", "{}", "", "'key' names nothing to ignore. Give query:NAME*"),
        ("", "{}", "'tour'", "test_account.py::test_me: *no setting 'tour'*"),
        ("", "{}", "casette='tour'", "test_account.py::test_me: *Did you mean cassette[?]"),
        ("", "{}", "cassette='../tape'", "'../tape' is not a cassette's name. Give a bare name *"),
        ("", "{}", "record_mode='update'", "test_account.py::test_me: *mode must be one of none*"),
    ],
)
def test_a_mistaken_setting_is_an_error(
    pytester: pytest.Pytester, run: Run, ini: str, fixture: str, marker: str, line: str
) -> None:
    """A typo in a setting must not go unnoticed, in the ini file, the fixture or the marker."""
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(OPTIONS.replace("{}", fixture))
    result = run(f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}", errors=1)

    result.stdout.fnmatch_lines([line])


# -- writes and errors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "options"), [("allow_writes=True", ()), ("", ("--directmail-allow-writes",))]
)
def test_a_write_is_recorded_if_it_is_allowed(
    run: Run, account: StandIn, marker: str, options: tuple[str, ...]
) -> None:
    """The marker or the command line allows writes, and the refusal names both.

    Replays need neither.
    """
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_WRITE}"
    refused = run(f"import pytest\n{ONE_WRITE}", RECORD, failed=1)
    sent = account.requests.copy()
    run(source, RECORD, *options, passed=1)

    run(source, passed=1)
    changed = run(source.replace("Hello", "Bye"), failed=1)
    OWN.unlink()
    recorded(OWN, account)
    new = run(source, failed=1)
    needed = "" if marker else " --directmail-allow-writes"
    for result in (changed, new):
        result.stdout.fnmatch_lines([f"*Record this test again: *-mode=all{needed}"])
    refused.stdout.fnmatch_lines(["*--directmail-allow-writes, or *directmail(allow_writes=True)*"])
    assert not sent
    assert account.requests == {"POST /v1/letters": 1, "GET /v1/users/me": 1}


def test_a_write_of_a_patched_client_is_refused_with_the_option_that_allows_it(run: Run) -> None:
    """The code under test has its own address, so no address or key is set."""
    result = run(
        """
        import httpx, pytest
        @pytest.mark.directmail(patch=True)
        def test_it():
            httpx.post("http://127.0.0.1:9/v1/letters")
        """,
        RECORD,
        failed=1,
    )

    result.stdout.fnmatch_lines(
        [
            "*Run pytest --directmail-allow-writes, or *",
            "to record it again: *=once --directmail-allow-writes",
        ]
    )


def test_a_marker_lets_a_write_follow_its_redirect(run: Run) -> None:
    """Without it, the refusal names it. The replay needs neither."""
    test = "def test_it(): assert httpx.post({!r}, follow_redirects=True).status_code == 201"
    marker = "import httpx, pytest\n@pytest.mark.directmail(patch=True, allow_writes={!r})\n"
    with ClientService() as service:
        source = test.format(f"{service.base_url}/v1/elsewhere")
        refused = run(marker.format(True) + source, RECORD, failed=1)
        run(marker.format("redirected") + source, AGAIN_ALL, passed=1)
        sent = service.counts
    run(marker.format("redirected") + source, passed=1)

    refused.stdout.fnmatch_lines(['*mark it @pytest.mark.directmail(allow_writes="redirected").*'])
    assert sent == {"POST /v1/elsewhere": 2, "POST /v1/rows": 1}


def test_an_ini_file_allows_no_writes(pytester: pytest.Pytester, run: Run) -> None:
    """Writes can cost money, so each run must allow them on its own command line."""
    pytester.makeini("[pytest]\naddopts = --directmail-allow-writes")

    run(ONE_CALL).stderr.fnmatch_lines(["*--directmail-allow-writes is not allowed in addopts*"])


@pytest.mark.parametrize(
    ("marker", "status", "seen"),
    [("", 429, 429), ("", 503, 503), ("retry=True", 429, 200), ("retry=True", 500, 500)],
)
def test_an_error_is_recorded_as_the_test_saw_it(
    run: Run, account: FaultyService, marker: str, status: int, seen: int
) -> None:
    """Requests are not repeated behind a test's back, unless its marker asks for it."""
    account.fault(status=status, times=1, headers={"Retry-After": "0"})
    source = f"""
        import pytest

        @pytest.mark.directmail({marker})
        def test_me(directmail):
            assert directmail.get("/v1/users/me").status_code == {seen}
        """
    run(source, RECORD, passed=1)

    run(source, passed=1)
    assert sum(account.requests.values()) == 1 + (seen == 200)


@pytest.mark.parametrize("workers", ["-n0", slow("-n2")])
def test_a_test_may_allow_requests_that_are_not_recorded(run: Run, workers: str) -> None:
    """Each client gets its own library's error. The summary names the requests, not the others."""
    written_by_vcrpy("test_account/test_me")
    source = """
        import httpx, httpx2, pytest, requests, urllib.error, urllib.request

        URL = "https://api.example.test/v1/users/me"
        CLIENTS = [
            (httpx.get, httpx.ConnectError),
            (httpx2.get, httpx2.ConnectError),
            (requests.get, requests.ConnectionError),
            (urllib.request.urlopen, urllib.error.URLError),
        ]

        @pytest.mark.directmail(unrecorded="allow", patch=True)
        def test_me(directmail):
            assert requests.get(URL).json() == {"id": 7}
            for get, error in CLIENTS:
                with pytest.raises(error):
                    get(URL)
            with pytest.raises(httpx.ConnectError):
                directmail.client.get(f"{URL}?page=2")

        @pytest.mark.directmail(unrecorded="allow")
        def test_allows_none(directmail): pass
        """
    result = run(source, "--directmail-block-network", workers, passed=2)

    line = "test_account.py::test_me: not recorded, and not sent: GET /v1/users/me (5 times)"
    assert [each for each in result.outlines if "not sent" in each] == [line]


FAILURES = """
    import httpx, httpx2, os, pytest, requests, urllib.request

    SILENT, CLOSED = "ADDRESS/v1/silent", "http://127.0.0.1:9/v1/closed"
    CLIENTS = {
        "httpx": (httpx.get, httpx.ReadTimeout, httpx.ConnectError),
        "httpx2": (httpx2.get, httpx2.ReadTimeout, httpx2.ConnectError),
        "requests": (requests.get, requests.ReadTimeout, requests.ConnectionError),
        "urllib": (urllib.request.urlopen, TimeoutError, urllib.error.URLError),
    }

    @pytest.mark.directmail(patch=True)
    @pytest.mark.parametrize("client", CLIENTS)
    def test_patched(directmail, client):
        get, timed_out, refused = CLIENTS[client]
        for url, kind, timeout in ((SILENT, timed_out, TIMEOUT), (CLOSED, refused, 60)):
            with pytest.raises(kind) as caught:
                get(url, timeout=timeout)
            assert type(caught.value) is kind

    def test_own(directmail):
        with pytest.raises(httpx.ReadTimeout):
            directmail.client.get("/v1/silent", timeout=TIMEOUT)
        assert directmail.get("/v1/lists").json()
"""


def test_a_failure_is_recorded_and_replayed_as_the_clients_own_exception(
    run: Run, account: FaultyService
) -> None:
    """The replay needs no server, and does not wait for a timeout."""
    source = FAILURES.replace("ADDRESS", account.base_url)
    with account.fault(path="/v1/silent", drop="close", stall=True):
        run(source.replace("TIMEOUT", "0.1"), RECORD, passed=5)
    account.close()
    result = run(source.replace("TIMEOUT", "60"), passed=5)

    assert result.duration < 30
    kinds = [each.response.no_response for each in read_cassette(OWN.with_stem("test_own"))]
    assert kinds == ["read_timeout", None]


@pytest.mark.parametrize(
    ("end", "outcomes", "statuses"),
    [("pass", {"passed": 1}, [200, 0]), ("assert 0", {"failed": 1}, [200])],
)
def test_a_failure_is_kept_only_if_the_test_passed(
    run: Run, account: FaultyService, end: str, outcomes: dict[str, int], statuses: list[int]
) -> None:
    """Otherwise a network that was down would fail the test in each replay."""
    source = f"""
        import httpx, pytest

        def test_me(directmail):
            FIRST
            with pytest.raises(httpx.RemoteProtocolError):
                directmail.get("/v1/lists")
            {end}
        """
    with account.fault(path="/v1/lists", drop="close"):
        run(source.replace("FIRST", "directmail.me()"), RECORD, **outcomes)
        recorded_statuses = [each.response.status for each in read_cassette(OWN)]
        OWN.unlink()
        run(source.replace("FIRST", ""), RECORD, **outcomes)

    assert recorded_statuses == statuses
    assert OWN.exists() == (end == "pass")


# -- more than one cassette, client or test ----------------------------------------------------


def test_another_cassette_is_looked_for_in_the_tests_own_folder_first(
    run: Run, account: StandIn
) -> None:
    """The folder of the test file comes next. New cassettes go to the test's own folder."""
    for folder, calls in (("cassettes/test_account", 1), ("cassettes", 2)):
        recorded(Path(folder, "other.yaml"), account, calls)
    recorded(Path("cassettes/shared.yaml"), account, 3)
    source = f"""
        def test_me(directmail):
            directmail.me()
            counts = {{"other": 1, "shared": 3, "first-look": {len(read_cassette(PACKAGED))}}}
            for name, count in counts.items():
                with directmail.replay(name):
                    assert len(directmail.open_cassette) == count
            if directmail.mode == "record":
                with directmail.record("third"):
                    directmail.me()
        """
    run(source, RECORD, passed=1)

    run(source, passed=1)
    assert Path("cassettes/test_account/third.yaml").is_file()


def test_a_module_scoped_fixture_sends_its_requests_only_once(run: Run, account: StandIn) -> None:
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
    unused = run(source, "--directmail-unused", passed=2)

    run(source, "-k", "two", passed=1)
    assert names == ["directmail_session", "test_one"]
    assert sent == account.requests == {"GET /v1/users/me": 2, "GET /v1/lists": 1}
    unused.stdout.fnmatch_lines(["*cassettes that no test uses*", "none"])


@pytest.mark.slow
def test_workers_wait_for_a_cassette_that_another_one_records(run: Run, account: StandIn) -> None:
    """Tests that share a cassette can run in parallel, also in record modes that add to it."""
    source = """
        import pytest

        @pytest.fixture(scope="module")
        def lists(directmail_session):
            return directmail_session.get("/v1/lists").json()

        @pytest.mark.directmail(cassette="tour")
        @pytest.mark.parametrize("number", range(12))
        def test_me(lists, directmail, number):
            assert directmail.me()["id"].item()
        """
    run(source, "--directmail-record-mode=new_episodes", "-n2", passed=12)

    run(source, "-n2", passed=12)
    assert account.requests == {"GET /v1/users/me": 1, "GET /v1/lists": 1}


def test_clients_of_other_libraries_record_and_replay(run: Run, account: StandIn) -> None:
    """A local server has the key and sends their requests. An unrecorded request fails the test."""
    source = """
        import json, requests, urllib.request

        def test_me(directmail_server):
            assert requests.get(f"{directmail_server}/v1/users/me").json()["phone"] is None
            body = urllib.request.urlopen(f"{directmail_server}/v1/lists?limit=1").read()
            assert json.loads(body)
        """
    run(source, RECORD, passed=1)
    sent = account.requests.copy()
    changed = run(source.replace("limit=1", "limit=2"), failed=1)
    caught = source.replace("urllib.request.urlopen", "requests.get").replace(".read()", ".text")
    unseen = run(caught.replace("limit=1", "limit=2"), failed=1)

    run(source, passed=1)
    assert sent == account.requests
    assert dict(next(iter(read_cassette(OWN))).request.headers)["host"] in account.base_url
    changed.stdout.fnmatch_lines(["*HTTP Error 502*", "not recorded:", "    GET /v1/lists"])
    unseen.stdout.fnmatch_lines(["GET /v1/lists differs in query: limit"])
    assert traces(OWN.read_bytes(), account.api_key) == []


def test_links_lead_other_clients_to_the_server(run: Run, account: FaultyService) -> None:
    """Links in headers and JSON are rewritten for the client but not in the cassette.

    So a replay never reaches the live service.
    """
    source = """
        import requests

        def test_me(directmail_server):
            first = requests.get(f"{directmail_server}/v1/users/me")
            second = requests.get(first.links["next"]["url"])
            third = requests.get(second.json()["next"], params={"from": second.url})
            assert third.status_code == 200
            assert first.links["next"]["url"].startswith(directmail_server)
            assert int(second.headers["Content-Length"]) == len(second.content)
        """
    link = {"Link": f'<{account.base_url}/v1/lists?page=2>; rel="next"'}
    body = json.dumps({"next": f"{account.base_url}/v1/lists?page=3"})
    with account.fault(path="/v1/users/me", headers=link), account.fault(path="/v1/l", body=body):
        run(source, RECORD, passed=1)
    sent = account.requests.copy()
    run(source, passed=1)

    assert sent == account.requests == {"GET /v1/users/me": 1, "GET /v1/lists": 2}
    assert json.loads(read_cassette(OWN).interaction(2).response.body) == json.loads(body)
    addresses = "".join(each.request.uri for each in read_cassette(OWN))
    assert re.findall(r"127.0.0.1(?::|%3A)(\d+)", addresses) == [account.base_url[-5:]] * 4


# -- clients that the code under test makes itself ---------------------------------------------

OWN_CLIENTS = """
    import asyncio, httpx, httpx2, os, pytest, requests

    pytestmark = pytest.mark.directmail(patch=True)
    BASE, KEY = os.environ.get("ITS_ADDRESS", "ADDRESS"), os.environ.get("ITS_KEY", "none")

    async def awaited():
        headers = {"Connection": "close"}
        async with httpx2.AsyncClient(auth=(KEY, ""), headers=headers) as http:
            return (await http.get(f"{BASE}/v1/users/me")).json()

    def test_all(directmail):
        sent = [library.get(f"{BASE}/v1/users/me", auth=(KEY, "")).json()
                for library in (httpx, httpx2, requests)]
        assert [each["name"] for each in [*sent, asyncio.run(awaited())]] == ["Stand-in User"] * 4
"""


def test_a_mark_without_a_fixture_records_and_replays_too(run: Run, service: StandIn) -> None:
    """Such a test would otherwise send its requests each time, and record nothing."""
    source = f"""
        import pytest, requests

        @pytest.mark.directmail(patch=True)
        def test_me():
            url, auth = "{service.base_url}/v1/users/me", ("{service.api_key}", "")
            assert requests.get(url, auth=auth).json()["name"] == "Stand-in User"
        """
    run(source, RECORD, passed=1)
    service.close()
    result = run(source, "--directmail-unused", passed=1)

    assert len(read_cassette(OWN)) == service.requests["GET /v1/users/me"] == 1
    result.stdout.fnmatch_lines(["*cassettes that no test uses*", "none"])


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_address_that_contains_a_clients_user_name_replays(
    run: Run, service: StandIn, method: str
) -> None:
    """The recording leaves the name out of the address, so the replay must do the same."""
    source = f"""
        import pytest, requests

        @pytest.mark.directmail(patch=True, allow_writes=True)
        def test_me():
            name = "AC0123456789abcdef"
            url = f"{service.base_url}/v1/accounts/{{name}}"
            assert requests.{method}(url, auth=(name, 'x')).status_code == 401
        """
    run(source, RECORD, passed=1)
    service.close()
    run(source, passed=1)

    assert "AC0123456789abcdef" not in OWN.read_text("utf-8")


def test_patched_clients_record_with_a_key_of_their_own(
    run: Run, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording needs no address or key from the session, and replaying needs no server."""
    monkeypatch.setenv("ITS_ADDRESS", service.base_url)
    monkeypatch.setenv("ITS_KEY", service.api_key)
    source, path = OWN_CLIENTS.replace("ADDRESS", service.base_url), OWN.with_name("test_all.yaml")
    run(source, RECORD, "--directmail-block-network", passed=1)
    service.close()
    monkeypatch.delenv("ITS_KEY")
    run(source, "--directmail-block-network", passed=1)
    missing = run(source.replace("users/me", "lists"), failed=1)

    assert len(read_cassette(path)) == service.requests["GET /v1/users/me"] == 4
    assert traces(path.read_bytes(), service.api_key) == []
    missing.stdout.fnmatch_lines(["E * GET /v1/lists is not recorded, but GET /v1/users/me is"])


SDK = """
    import httpx2, pytest

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

    def test_me(directmail):
        sdk = Sdk(directmail.httpx2_client, "/v1/users/me?page=1")
        try:
            sdk.me()
        finally:
            assert sdk.tries == 1
"""


def test_an_sdk_does_not_repeat_what_is_not_recorded(run: Run, account: StandIn) -> None:
    """The failure names the request, even if the SDK catches every exception."""
    run(SDK, RECORD, passed=1)
    changed = SDK.replace("page=1", "page=2")
    raised = run(changed, failed=1)
    swallowed = run(changed.replace("finally:", "except BaseException:"), failed=1)

    line = "*GET /v1/users/me differs in query: page*"
    raised.stdout.fnmatch_lines([line, "to record it again: pytest *::test_me *"])
    swallowed.stdout.fnmatch_lines([line])
    raised.stdout.no_fnmatch_line("*Connection error*")


@pytest.mark.parametrize(
    ("patch", "ini", "answers"),
    [
        ("", "true", "NotRecorded"),
        ("patch=['127.*']", "true", "200"),
        ("", "127.* localhost", "200"),
        ("patch=True", "127.*", "NotRecorded"),
        ("patch=False", "true", "200"),
        ("", "false", "200"),
        ("", "", "200"),
    ],
)
def test_the_marker_and_the_ini_file_say_what_is_patched(
    pytester: pytest.Pytester, run: Run, service: StandIn, patch: str, ini: str, answers: str
) -> None:
    """True patches all clients, a list all but those for its hosts, false (the default) none."""
    recorded(OWN, service)
    pytester.makeini(f"[pytest]\ndirectmail_patch = {ini}")
    source = f"""
        import httpx, pytest

        @pytest.mark.directmail(unplayed="allow", {patch})
        def test_me(directmail):
            url, key = "{service.base_url}/v1/lists", "{service.api_key}"
            assert httpx.get(url, auth=(key, "")).is_success
        """
    run(source, **{"passed" if answers == "200" else "failed": 1})


# -- the network -------------------------------------------------------------------------------


def test_a_host_that_clients_reach_directly_is_not_blocked(
    run: Run, account: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts in ``patch`` are enough: what vcrpy's ``ignore_hosts`` names takes one setting."""
    look_up = socket.getaddrinfo
    here = lambda _, *rest, **options: look_up("127.0.0.1", *rest, **options)  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", here)
    source = f"""
        import httpx, pytest

        @pytest.mark.directmail(patch=["*.internal.test"])
        def test_it():
            url = "http://api.internal.test:{account.base_url.rpartition(":")[2]}/v1/users/me"
            assert httpx.get(url).status_code == 401
        """

    run(source, "--directmail-block-network", passed=1)
    run(source.replace("*.internal", "*.other"), "--directmail-block-network", failed=1)


APP = """
import asyncio, httpx, requests, socket, threading, urllib.request
FAST = getattr(socket, "MSG_FASTOPEN", 0)
connections = [
    lambda: httpx.get("https://api.test/x"),
    lambda: asyncio.run(httpx.AsyncClient().get("https://api.test/x")),
    lambda: requests.get("http://api.test/x"),
    lambda: urllib.request.urlopen("http://api.test/x"),
    lambda: asyncio.run(asyncio.open_connection("api.test", 80)),
    lambda: asyncio.run(asyncio.open_connection("api.test", 80), debug=True),
    lambda: socket.create_connection(("api.test", 80)),
    lambda: socket.gethostbyname("api.test"),
    lambda: socket.gethostbyname_ex("api.test"),
    lambda: opened(socket.SOCK_STREAM, lambda it: it.connect_ex(("api.test", 80))),
    lambda: opened(socket.SOCK_DGRAM, lambda it: it.sendto(b"x", ("api.test", 53))),
    lambda: opened(socket.SOCK_DGRAM, lambda it: it.sendmsg([b"x"], [], 0, ("api.test", 53))),
    lambda: opened(socket.SOCK_STREAM, lambda it: it.sendmsg([b"x"], [], FAST, ("api.test", 80))),
    lambda: in_thread(lambda: httpx.get("https://api.test/x")),
]
def opened(kind, use):
    with socket.socket(type=kind) as it:
        use(it)
def quietly(function):
    try:
        function()
    except BaseException:
        pass
def in_thread(function):
    thread = threading.Thread(target=quietly, args=[function])
    thread.start(), thread.join()
"""


def test_a_connection_to_another_machine_fails_the_test(
    pytester: pytest.Pytester, run: Run
) -> None:
    """The failure names the host and the line, also if the code under test catches every error."""
    pytester.makeini("[pytest]\ndirectmail_block_network = true")
    pytester.makepyfile(app=APP.strip())
    source = """
        import pytest
        from app import *

        @pytest.fixture
        def before():
            quietly(connections[0])

        @pytest.fixture
        def after():
            yield
            quietly(connections[0])

        @pytest.mark.parametrize("connect", connections)
        def test_it(connect):
            quietly(connect)

        def test_set_up(before): pass
        def test_tear_down(after): pass
        def test_another(): pass
        """
    result = run(source, failed=14, errors=2, passed=2)
    tried = re.findall(
        r"(?m)^No connection to api\.test\S* from app\.py:(\d+): ", str(result.stdout)
    )

    assert sorted(map(int, tried)) == sorted([4, 4, *range(4, 18)])
    result.stdout.fnmatch_lines(
        ["Replay it with a fixture, or allow the host: --directmail-allowed-hosts=api.test"]
    )


def test_a_client_that_does_not_go_through_the_session_is_named(
    pytester: pytest.Pytester, run: Run
) -> None:
    """Only if all clients are meant to, and for a library: the code's own sockets have no name."""
    pytester.makeini("[pytest]\ndirectmail_block_network = true")
    source = """
        import httpcore, pytest, socket

        @pytest.mark.directmail(patch=True)
        def test_patched(directmail):
            httpcore.request("GET", "http://api.test/x")

        def test_other(directmail):
            httpcore.request("GET", "http://api.test/x")

        @pytest.mark.directmail(patch=True)
        def test_socket(directmail):
            socket.create_connection(("api.test", 80))
        """
    result = run(source, failed=3)

    named = re.findall(r"(?m)^(\w+) does not go through the session: ", str(result.stdout))
    assert set(named) == {"httpcore"}
    assert len(re.findall("(?m)^Replay it with a fixture", str(result.stdout))) == 2


def test_a_server_of_the_test_itself_can_be_let_through(run: Run, service: StandIn) -> None:
    """``patch=True`` also meets the requests of a test's own helpers, and the error says so."""
    source = """
        import pytest, urllib.request

        @pytest.mark.directmail(patch=PATCH)
        def test_it(directmail):
            with pytest.raises(urllib.error.HTTPError):  # 401, from the server
                urllib.request.urlopen("ADDRESS/v1/users/me")
        """.replace("ADDRESS", service.base_url)
    result = run(source.replace("PATCH", "True"), failed=1)
    of_a_cloud = source.replace(service.base_url, "http://169.254.169.254")
    credentials = run(of_a_cloud.replace("PATCH", "True"), failed=1)
    run(source.replace("PATCH", '["127.0.0.1"]'), passed=1)

    result.stdout.fnmatch_lines(['*If it is no service to record *: patch=?"127.0.0.1"?'])
    credentials.stdout.fnmatch_lines(['*If it is no service *: patch=?"169.254.169.254"?'])


def test_local_connections_are_not_blocked(run: Run, account: StandIn) -> None:
    """Loopback addresses and Unix sockets are allowed, and sockets are restored after the run."""
    connect = socket.socket.connect
    source = f"""
        import pytest, socket, urllib.request

        ADDRESS = object()

        @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
        def test_loopback(host):
            address = "{account.base_url}".replace("127.0.0.1", host)
            with pytest.raises(urllib.request.HTTPError, match="401"):
                urllib.request.urlopen(f"{{address}}/v1/users/me")

        def test_unix(tmp_path):
            path, family = str(tmp_path / "s"), socket.AF_UNIX
            with socket.socket(family) as server, socket.socket(family) as client:
                server.bind(path), server.listen(), client.connect(path)

        @pytest.mark.parametrize("address", [(), ((), 0), ((), 0, None), ((), 0, ADDRESS)])
        def test_datagram(address):
            with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=one.type) as two:
                two.bind(("127.0.0.1", 0)), one.connect(two.getsockname())
                where = [two.getsockname() if part is ADDRESS else part for part in address]
                one.sendmsg((b"a", b"b"), *where)
                assert two.recv(9) == b"ab"
        """

    run(source, "--directmail-block-network", passed=7)
    assert socket.socket.connect is connect


LATE = """
import pytest, socket, threading
from concurrent.futures import ThreadPoolExecutor

SIGNALS = {name: (threading.Event(), threading.Event()) for name in ("thread", "pool", "served")}
POOL = ThreadPoolExecutor(1)

def later(name):
    go, done = SIGNALS[name]
    go.wait(60)
    try:
        socket.create_connection((f"{name}.test", 80))
    except BaseException:
        pass
    done.set()

def let(name):
    go, done = SIGNALS[name]
    go.set()
    assert done.wait(60)

@pytest.fixture(scope="module")
def server():
    thread = threading.Thread(target=later, args=["served"])
    thread.start()
    yield
    thread.join()

def test_starts_one(server):
    start = threading.Thread(target=later, args=["thread"], name="late").start
    threading.Thread(target=start).start()

def test_is_innocent():
    let("thread")

def test_starts_a_pool():
    POOL.submit(len, "x").result()

def test_uses_the_pool(server):
    POOL.submit(later, "pool")
    let("pool")

def test_asks_the_server(server):
    let("served")
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_thread_that_connects_late_fails_no_test(run: Run, workers: str) -> None:
    """A warning names the thread and the test that started it.

    Work in a pool belongs to the test that submitted it, and work in a fixture's thread to the test
    that is running.
    """
    result = run(LATE, "--directmail-block-network", "-n", workers)

    result.assert_outcomes(passed=3, failed=2, warnings=1)
    told = re.findall(r"(?m)^(FAILED|ERROR) \S+::(\w+)", str(result.stdout))
    assert sorted(told) == [("FAILED", "test_asks_the_server"), ("FAILED", "test_uses_the_pool")]
    result.stdout.fnmatch_lines(
        [
            "*A connection to thread.test:80 was refused: thread 'late' of "
            "test_account.py::test_starts_one outlived it.",
        ]
    )


EXPORTER = """
import httpx, pytest, threading

STOP, POSTED = threading.Event(), threading.Condition()
RESULTS = []

def export():
    while not STOP.wait(0.1):
        try:
            result = httpx.post("ADDRESS/traces", json={"spans": len(RESULTS)}).status_code
        except Exception as error:
            result = type(error)
        with POSTED:
            RESULTS.append(result)
            POSTED.notify_all()

def wait_for_two_more():
    with POSTED:
        before = len(RESULTS)
        assert POSTED.wait_for(lambda: len(RESULTS) >= before + 2, timeout=300)

@pytest.fixture(scope="module", autouse=True)
def stopped():
    yield
    STOP.set()
    for thread in THREADS:
        thread.join()

THREADS = []

@pytest.mark.directmail(patch=True, allow_writes=True, unplayed="allow", unrecorded="allow")
def test_starts_it():
    THREADS.append(threading.Thread(target=export, name="exporter", daemon=True))
    THREADS[0].start()
    wait_for_two_more()
    assert RESULTS[0] == 201

@pytest.mark.directmail(patch=True, allow_writes=True)
def test_next(directmail):
    wait_for_two_more()
    assert RESULTS[-1] is httpx.ConnectError
    assert directmail.me().shape[0] == 1
"""


def test_a_daemon_of_an_earlier_test_neither_fails_nor_records_a_later_one(
    run: Run, account: StandIn
) -> None:
    """Its requests fail in its own thread, when the later test records and when it replays."""
    source = EXPORTER.replace("ADDRESS/traces", f"{account.base_url}/v1/letters")
    for args in ([RECORD], [], ["--directmail-block-network"]):
        result = run(source, *args)
        result.assert_outcomes(passed=2, warnings=1)
        result.stdout.fnmatch_lines(
            ["*POST 127.0.0.1 was refused: thread 'exporter' of *::test_starts_it outlived it."]
        )

    methods = [each.request.method for each in read_cassette(OWN.with_stem("test_next"))]
    assert methods == ["GET"]


def test_a_thread_that_keeps_a_client_of_the_only_test_is_refused_with_a_warning(run: Run) -> None:
    """The warning names the test's file, and no line, since no line of it is the cause."""
    written_by_vcrpy("test_account/test_starts_it")
    source = """
        import httpx, pytest, threading

        GO, DONE = threading.Event(), threading.Event()
        ERRORS = []

        def late(client):
            GO.wait(60)
            try:
                client.get("https://api.example.test/v1/users/me")
            except BaseException as error:
                ERRORS.append(type(error).__name__)
            DONE.set()

        @pytest.fixture(scope="module", autouse=True)
        def waits():
            yield
            GO.set()
            assert DONE.wait(60)
            assert ERRORS == ["ConnectError"]

        @pytest.mark.directmail(patch=True, unplayed="allow")
        def test_starts_it(directmail):
            client = directmail.httpx2_client
            threading.Thread(target=late, args=[client], name="late").start()
        """
    result = run(source)

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "  test_account.py:1: *GET api.example.test was refused: thread 'late' of "
            "test_account.py::test_starts_it outlived it.",
            "",
        ],
        consecutive=True,
    )


def test_a_loop_in_an_earlier_tests_thread_works_for_the_test_that_runs(run: Run) -> None:
    """Some libraries keep one event loop in a thread, and pass each request to it."""
    written_by_vcrpy("test_account/test_one", "test_account/test_two")
    source = """
        import asyncio, httpx, pytest, threading

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        pytestmark = pytest.mark.directmail(patch=True)

        async def get():
            async with httpx.AsyncClient() as client:
                return (await client.get("https://api.example.test/v1/users/me")).status_code

        def result():
            return asyncio.run_coroutine_threadsafe(get(), loop).result(60)

        def test_one():
            thread.start()
            assert result() == 200

        def test_two():
            assert result() == 200
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        """

    run(source, passed=2)


def test_a_refused_socket_is_closed(run: Run) -> None:
    """The standard library closes a socket only after an OSError, and would warn otherwise."""
    source = """
        import contextlib, socket

        def test_it():
            refused = socket.socket()
            with contextlib.suppress(BaseException):
                refused.connect(("192.0.2.1", 80))
            print("descriptor", refused.fileno())
        """
    result = run(source, "--directmail-block-network", failed=1)

    result.stdout.fnmatch_lines(["descriptor -1"])


@pytest.mark.parametrize(
    ("recorded", "other", "hosts", "failed"),
    [
        ("127.0.0.1", "127.0.0.1", "", 1),
        ("localhost", "127.0.0.1", "", 1),
        ("127.0.0.1", "127.0.0.1", "b.test,127.0.*", 0),
        ("127.0.0.1", "localhost", "b.test,LOCAL*", 0),
    ],
)
def test_a_recording_reaches_its_own_host_and_a_list_of_others(
    run: Run,
    account: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    recorded: str,
    other: str,
    hosts: str,
    failed: int,
) -> None:
    """The host of the base address, and its address, are allowed only while a test records."""
    monkeypatch.setattr(network_block, "is_loopback", lambda _: False)
    recorded, other = (account.base_url.replace("127.0.0.1", each) for each in (recorded, other))
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", recorded)
    source = f"""
        import socket, urllib.request

        socket.gethostbyname("localhost")  # before the first test

        def test_me(directmail):
            directmail.me()

        def test_other():
            try:
                urllib.request.urlopen("{other}/v1/users/me")
            except urllib.request.HTTPError as error:
                assert error.code == 401
        """

    options = ["--directmail-block-network", f"--directmail-allowed-hosts={hosts}"]
    run(source, RECORD, *options, passed=2 - failed, failed=failed)


def test_pycurl_cannot_be_imported(pytester: pytest.Pytester, run: Run) -> None:
    """Python does not see its connections. What imports it may go on without it, as vcrpy does."""
    pytester.makepyfile(pycurl="")
    pytester.makeconftest("""
        import pycurl, sys  # before the network is blocked

        def pytest_configure():
            sys.modules["pycurl"] = object()  # so does pytest-recording, after the plugin
        """)
    source = """
        try:
            import pycurl
        except ImportError:
            pycurl = None

        def test_without(): assert not pycurl
        def test_import(): import pycurl
        """
    result = run(source, "--directmail-block-network", passed=1, failed=1)
    failed = run("import pycurl", "--directmail-block-network", errors=1)
    run("import pycurl\ndef test_it(): pass", passed=1)

    for each in (result, failed):
        each.stdout.fnmatch_lines(["E *BlockedImportError: pycurl cannot be imported while the *"])


# -- beside other plugins ----------------------------------------------------------------------


def test_a_suite_that_moved_is_warned_once_of_the_plugin_that_it_left_installed(run: Run) -> None:
    """Both plugins handle the same marks, so vcrpy may answer in our place."""
    written_by_vcrpy("test_account/test_one", "test_account/test_two")
    source = """
        import httpx, pytest

        @pytest.fixture(scope="session")
        def directmail_options():
            return {"patch": True, "like": "vcrpy"}

        @pytest.mark.vcr
        def test_one(directmail): pass

        @pytest.mark.vcr
        def test_two(directmail): pass
        """
    result = run(source, "-precording", passed=2)

    assert str(result.stdout).count("The plugin recording of vcrpy also handles the tests") == 1


@pytest.mark.parametrize(
    ("args", "config", "errors"),
    [
        ((RECORD, "--record-mode=once"), "{}", 1),
        ((RECORD,), "{'record_mode': 'once'}", 1),
        (("--record-mode=new_episodes",), "{}", 0),
        slow((RECORD,), "{}", 0),
        slow((RECORD, "--disable-recording"), "{}", 0),
    ],
)
def test_a_test_that_vcrpy_records_too_is_refused(
    pytester: pytest.Pytester,
    run: Run,
    account: StandIn,
    args: tuple[str, ...],
    config: str,
    errors: int,
) -> None:
    """vcrpy would write the key, and one of the plugins would overwrite the other's file.

    If only one of them records, the test runs: vcrpy refuses a request that it does not replay.
    """
    pytest.importorskip("pytest_recording")
    pytester.makeconftest(f"import pytest\n@pytest.fixture\ndef vcr_config(): return {config}")
    result = run(f"import pytest\n@pytest.mark.vcr\n{ONE_CALL}", "-precording", *args)

    assert ("or run it with --disable-recording." in str(result.stdout)) == bool(errors)
    assert result.parseoutcomes().get("errors", 0) == errors
    for path in Path("cassettes").rglob("*"):
        assert path.is_dir() or traces(path.read_bytes(), account.api_key) == []


MIXED = """
    import http.client, httpx, pytest

    @pytest.mark.vcr
    def test_theirs():
        connection = http.client.HTTPSConnection("api.example.test")
        connection.request("GET", "/v1/users/me")
        assert connection.getresponse().read() == b'{"id": 7}'

    @pytest.mark.parametrize("number", [1, 2])
    def test_ours(number):
        assert httpx.get("https://api.example.test/v1/users/me").json() == {"id": 7}
"""


@pytest.mark.parametrize("workers", ["-n0", slow("-n2")])
def test_vcrpy_replays_the_marked_tests_and_we_the_others(
    pytester: pytest.Pytester, run: Run, workers: str
) -> None:
    """The guide's recipe for a client that we do not serve: both plugins replay in one run."""
    pytest.importorskip("pytest_recording")
    names = ("test_theirs", "test_ours[1]", "test_ours[2]")
    written_by_vcrpy(*(f"test_account/{name}" for name in names))
    pytester.makeconftest(guide_block("mixed"))
    blocked = ("-precording", "--block-network", "--directmail-block-network")

    run(MIXED, *blocked, workers, passed=3)


@pytest.mark.slow
def test_a_test_that_both_plugins_replay_passes(pytester: pytest.Pytester, run: Run) -> None:
    """vcrpy has replaced Python's classes when this plugin does, and plays first."""
    pytest.importorskip("pytest_recording")
    written_by_vcrpy("test_account/test_theirs")
    pytester.makeconftest(guide_block("conftest.py"))

    run(MIXED, "-k", "theirs", apart=True, passed=1)


VCR_API = """
    import httpx, pytest

    URL = "https://api.example.test/v1/users/me"

    @pytest.fixture(scope="module", autouse=True)
    def configured(vcr):
        assert vcr.record_mode == "none"
        vcr.serializer = "yaml"
        vcr.register_serializer("yaml", object())

    @pytest.mark.vcr
    def test_me(vcr):
        assert (len(vcr), vcr.play_count, vcr.all_played) == (1, 0, False)
        assert [(each.method, each.path) for each in vcr.requests] == [("GET", "/v1/users/me")]
        assert vcr.responses[0]["status"]["code"] == 200
        for _ in range(2):
            assert httpx.get(URL).json() == {"id": 7}
            assert (vcr.play_count, vcr.play_counts, vcr.all_played) == (1, {0: 1}, True)
            vcr.rewind()
        assert httpx.get(URL).json() == {"id": 7}

    def test_names_a_cassette(vcr, directmail):
        with vcr.use_cassette("test_me.yaml") as cassette:
            assert httpx.get(URL).json() == {"id": 7}
            assert cassette.play_count == 1
        assert len(vcr) == 0

    def test_unmarked(vcr):
        assert not vcr and vcr.requests == []
"""
VCR_HOOK = """
CONFIGURED = []

def pytest_recording_configure(config, vcr):
    CONFIGURED.append(vcr)
    vcr.register_matcher("mine", lambda one, two: True)
    vcr.match_on = ["mine"]

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"configured {len(CONFIGURED)} times")
"""


@pytest.mark.parametrize("options", [(), ("-precording", "--disable-recording")])
def test_a_suite_with_the_api_of_pytest_recording_replays_as_it_is(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...]
) -> None:
    """Its hook and its fixture ``vcr`` work, in any scope. One warning says what has no effect."""
    pytest.importorskip("pytest_recording")
    written_by_vcrpy("test_account/test_me")
    pytester.makeconftest(guide_block("conftest.py") + VCR_HOOK)
    result = run(VCR_API, *options, "--strict-markers", passed=3, warnings=1)

    result.stdout.fnmatch_lines(["*vcr.register_matcher, *match_on*", "configured 1 times"])


def test_a_test_replays_the_cassette_that_a_mark_of_pytest_recording_names(run: Run) -> None:
    """Several tests may share it. A suite may also keep its cassettes as JSON."""
    OWN.parent.mkdir(parents=True)
    answers = answered(body='{"id": 7}'), answered(body='{"id": 8}')
    theirs(OWN.with_name("shared.yaml"), *answers)
    theirs(OWN.with_name("test_json.json"), *answers, as_json=True)
    source = """
        import pytest

        @pytest.mark.default_cassette("shared.yaml")
        @pytest.mark.parametrize("number", [1, 2])
        def test_named(directmail, number):
            assert directmail.get("/v1/users/me").json() == {"id": 7}

        def test_json(directmail):
            assert [directmail.get("/v1/users/me").json()["id"] for _ in range(2)] == [7, 8]
        """

    run(source, "-p", "no:recording", "--strict-markers", passed=3)


def test_a_suite_with_the_fixtures_of_pytest_vcr_replays_as_it_is(run: Run) -> None:
    """They have its defaults, and a suite may override them by what they return."""
    source = """
        import os
        import pytest

        @pytest.fixture(scope="module")
        def vcr_config(vcr_config):
            return {**vcr_config, "record_mode": "none"}

        def test_me(vcr_cassette, directmail):
            assert directmail.get("/v1/users/me").json() == {"id": 7}
            assert vcr_cassette.play_count == len(vcr_cassette) == 1

        class TestAccount:
            @pytest.mark.parametrize("number", [1])
            def test_names(self, vcr_cassette_name, vcr_cassette_dir, vcr_config, number):
                assert vcr_cassette_name == "TestAccount.test_names[1]"
                assert vcr_cassette_dir == os.path.join(os.path.dirname(__file__), "cassettes")
                assert vcr_config == {"record_mode": "none"}
        """
    written_by_vcrpy("test_account/test_me")

    run(source, "-p", "no:recording", passed=2)


def test_a_suites_own_fixture_vcr_overrides_ours(run: Run) -> None:
    """Some suites make the object themselves."""
    source = """
        import pytest

        @pytest.fixture
        def vcr():
            return "own"

        def test_it(vcr):
            assert vcr == "own"
        """

    run(source, "-p", "no:recording", passed=1)


def test_the_nearest_old_cassette_of_a_renamed_test_is_named(
    pytester: pytest.Pytester, run: Run
) -> None:
    """The cassette of another test is not."""
    written_by_vcrpy("test_account/test_get_user[ann]", "test_account/test_get_users")
    source = """
        import pytest

        @pytest.mark.parametrize("name", ["ann-1"])
        def test_get_user(directmail, name): directmail.me()

        def test_get_users(directmail): directmail.get("/v1/users/me")
        """
    result = run(source, passed=1, failed=1)

    result.stdout.fnmatch_lines(["*, but cassettes/test_account/test_get_user?ann?.yaml exists"])


def test_a_subtest_may_send_a_part_of_a_tests_requests(run: Run) -> None:
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


def test_a_session_goes_when_its_test_has_ended(run: Run) -> None:
    """pytest keeps all tests until the run ends."""
    written_by_vcrpy("test_account/test_me")
    source = """
        import gc, weakref

        ENDED = []

        def test_me(directmail):
            assert directmail.get("/v1/users/me").is_success
            ENDED.append(weakref.ref(directmail))

        def test_next():
            gc.collect()
            assert ENDED[0]() is None
        """

    run(source, passed=2)


def test_a_failure_tells_of_the_cassette_only_if_the_test_used_one(
    pytester: pytest.Pytester, run: Run
) -> None:
    """A fixture of all tests is no reason to add a section to each failure."""
    written_by_vcrpy("test_account/test_has")
    source = """
        def test_sends_nothing(directmail): assert 0
        def test_has(directmail): assert 0
        def test_sends(directmail): directmail.me()
        """
    shown = str(run(source, failed=3).stdout)

    assert re.findall("test_account/(.*).yaml, record mode none", shown) == [
        "test_has",
        "test_sends",
    ]


def test_the_refusal_names_the_option_that_disables_pytest_vcr(
    pytester: pytest.Pytester, run: Run, account: StandIn
) -> None:
    """pytest-vcr is here by its name alone, so that it need not be installed."""
    pytester.makeconftest(
        """
        def pytest_configure(config):
            config.pluginmanager.register(object(), "vcr")
        """
    )
    source = f"import pytest\n@pytest.mark.vcr\n{ONE_CALL}"
    refused = run(source, RECORD, "-p", "no:recording", "-W", "default", errors=1)

    refused.stdout.fnmatch_lines(["*marked vcr, so vcrpy would*, or run it with --disable-vcr."])


def test_the_vcr_mark_is_allowed_if_no_vcrpy_plugin_is_active(run: Run, account: StandIn) -> None:
    """A suite that moves may keep its marks, if pytest-recording and pytest-vcr are uninstalled."""
    source = f"import pytest\n@pytest.mark.vcr\n{ONE_CALL}"
    alone = ("-p", "no:recording", "--strict-markers")
    run(source, RECORD, *alone, passed=1)

    run(source, *alone, passed=1)


@pytest.mark.slow
def test_a_pytest_recording_suite_migrates_test_by_test(run: Run, account: StandIn) -> None:
    """After ``cassette redact``, its tests pass with their old marker and with our fixture."""
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

        def test_me(directmail):
            directmail.me()
        """
    run(source, "-precording", RECORD, "--record-mode=once", passed=3)
    account.close()
    files = sorted(Path("cassettes").rglob("*.yaml"))
    assert "Wy5Nf0PtA3oVi7KzQm2E" in files[0].read_text(encoding="utf-8")
    redacted = CliRunner().invoke(app, ["cassette", "redact", "cassettes"])
    ours = source.replace("@pytest.mark.vcr", "").replace("self, name", "self, directmail, name")

    assert redacted.exit_code == 0
    run(source, "-precording", "--block-network", passed=3)
    run(ours.replace("httpx.post", "directmail.client.post"), passed=3)
    assert sorted(Path("cassettes").rglob("*.yaml")) == files
    for path in files:
        assert traces(path.read_bytes(), account.api_key) == []
        assert b"Wy5Nf0PtA3oVi7KzQm2E" not in path.read_bytes()


# -- what it costs -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_test_that_makes_no_frame_imports_no_pandas(run: Run) -> None:
    """Importing pandas takes each worker half a second, and the client does not need it."""
    written_by_vcrpy("test_account/test_me")
    source = """
        import sys

        def test_me(directmail):
            assert directmail.client.get("/v1/users/me").json() == {"id": 7}
            assert not {"pandas", "numpy", "matplotlib", "ipywidgets"} & set(sys.modules)
        """

    run(source, apart=True, passed=1)


@pytest.mark.slow
def test_freezegun_imports_nothing_of_ours_and_freezes_the_tests_alone(run: Run) -> None:
    """It reads all names of all modules; below one that it is to ignore, it freezes no clock."""
    written_by_vcrpy("test_account/test_me", "test_account/test_decorated")
    source = """
        import sys, time
        import pytest
        from freezegun import freeze_time
        import directmail_lab as dm

        def year():
            return time.gmtime(time.time()).tm_year

        @pytest.fixture(scope="session", autouse=True)
        def frozen():
            with freeze_time("2024-01-01"):
                yield

        @freeze_time("2023-01-01")
        def test_me(directmail):
            assert directmail.client.get("/v1/users/me").json() == {"id": 7}
            assert year() == 2023
            assert "pandas" not in sys.modules

        @dm.replay("test_account/test_decorated")
        def test_decorated():
            assert dm.get("/v1/users/me").json() == {"id": 7}
            assert year() == 2024

        @dm.replay("test_account/test_decorated")
        async def replayed():
            return year()

        def test_async():
            with pytest.raises(StopIteration, match="2024"):
                replayed().send(None)
        """

    run(source, apart=True, passed=3)


# -- old recordings, and unused ones -----------------------------------------------------------


@pytest.mark.parametrize(
    ("ini", "marker", "outcomes", "line"),
    [
        ("directmail_max_age = 90 days", "", {"passed": 1, "warnings": 1}, "*is * days old*"),
        ("directmail_max_age = 90 days\ndirectmail_on_old = fail", "", {"errors": 1}, "*days old*"),
        ("directmail_max_age = 90 days", "max_age='99999 days'", {"passed": 1}, "*"),
        ("", "max_age='1 day', on_old='fail'", {"errors": 1}, "*record it again: pytest *=all"),
        ("", "max_age=90", {"errors": 1}, "max_age is a number of days, such as *"),
        ("", "max_age='long'", {"errors": 1}, "*max_age is a number of days*"),
    ],
)
def test_an_old_recording_warns_or_fails(
    pytester: pytest.Pytester, ini: str, marker: str, outcomes: dict[str, int], line: str
) -> None:
    """The ini file sets the limit and the consequence, and the marker overrides both."""
    pytester.makeini(f"[pytest]\n{ini}")
    OWN.parent.mkdir(parents=True)
    # One interaction, recorded on 2026-11-21.
    first = PACKAGED.read_text(encoding="utf-8").splitlines()[:7]
    OWN.write_text("\n".join(first).replace("2026-11", "2020-11") + "\n# end: 1 interaction\n")
    source = f"import pytest\n@pytest.mark.directmail({marker})\n{ONE_CALL}"
    pytester.makepyfile(test_account=source)
    result = pytester.runpytest(*QUIET, "-W", "default")

    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])


LOGS_IN = """
    import httpx, pytest

    SETTINGS
    def test_me(directmail):
        with httpx.Client(base_url="https://api.example.test") as http:
            token = http.post("/login?key=mine", json={"password": "other"}).json()["access_token"]
            assert (token, http.cookies["session"]) == ("t-1234567890", "s-1234567890")
            me = http.get(f"/of/{token}", headers={"Authorization": f"Bearer {token}"})
            assert me.json()["id"] == 7
            with directmail.replay("other"):
                assert http.post("/login?key=again", json={}).json()["access_token"] == token
"""


@pytest.mark.parametrize("place", ["marker", "fixture", "ini"])
def test_a_suite_of_vcrpy_replays_as_it_is(pytester: pytest.Pytester, run: Run, place: str) -> None:
    """The suite logs in, sends other bodies and leaves a response unplayed.

    The settings may be in any place, and also apply to another cassette that the test opens.
    """
    settings = {"patch": True, "like": "vcrpy", "ignore": ["query:key"]}
    base, token = "https://api.example.test", "t-1234567890"
    login = answered(Request("POST", f"{base}/login", (), b""))
    response = replace(
        login.response,
        headers=(("Set-Cookie", "session=s-1234567890"),),
        body=json.dumps({"access_token": token}).encode(),
    )
    sent = Request("GET", f"{base}/of/{token}", (("Authorization", f"Bearer {token}"),))
    OWN.parent.mkdir(parents=True)
    theirs(OWN, replace(login, response=response), answered(sent, '{"id": 7}'), answered())
    theirs(OWN.with_stem("other"), replace(login, response=response))
    text = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    mark = f"@pytest.mark.directmail({text})"
    pytester.makeconftest(OPTIONS.replace("{}", repr(settings) if place == "fixture" else "{}"))
    ini = "directmail_patch = true\ndirectmail_like = vcrpy\ndirectmail_ignore = query:key"
    pytester.makeini(f"[pytest]\n{ini if place == 'ini' else ''}")

    run(LOGS_IN.replace("SETTINGS", mark if place == "marker" else ""), passed=1)


LONG = """
    import asyncio, aiohttp, pytest, requests

    URL = "https://api.example.test/v1/users/me?file=" + "a%20b" * 20_000

    async def aio():
        async with aiohttp.ClientSession() as client, client.get(URL) as response:
            return response.status

    @pytest.mark.directmail(patch=True, like="vcrpy", repeat="last")
    def test_me(directmail):
        assert requests.get(URL).status_code == 200
        assert asyncio.run(aio()) == 200
        assert requests.get(URL + "c").status_code == 200
"""


def test_an_address_with_a_file_in_it_plays(run: Run) -> None:
    """httpx refuses addresses of more than 64 kB; other clients do not, nor does vcrpy."""
    OWN.parent.mkdir(parents=True)
    theirs(OWN, answered(get(f"/v1/users/me?file={'a%20b' * 20_000}")))
    result = run(LONG, failed=1)

    result.stdout.fnmatch_lines(["*GET * differs in query: file"])


def test_what_does_not_go_with_patched_clients_fails_at_once(run: Run) -> None:
    """respx would get no request, and urllib3.future would send past the session."""
    source = """
        import pytest, types, urllib3.connection

        pytestmark = pytest.mark.directmail(patch=True)

        @pytest.fixture
        def respx_mock(): pass

        @pytest.fixture
        def future(monkeypatch):
            monkeypatch.setattr(urllib3.connection, "HTTPConnection", object)

        def test_respx(respx_mock): pass
        def test_future(future, directmail): pass
        """
    result = run(source, errors=2)

    result.stdout.fnmatch_lines(["*test_respx uses respx and *", "*taken the place of urllib3*"])


@pytest.mark.posix("fork")
def test_a_forked_child_cannot_record(run: Run, account: StandIn) -> None:
    """Its responses would not be in the cassette, so it sends nothing."""
    source = f"""
        import multiprocessing, pytest, requests

        def ask():
            requests.get("{account.base_url}/v1/users/me")

        @pytest.mark.directmail(patch=True)
        def test_me(directmail):
            child = multiprocessing.get_context("fork").Process(target=ask)
            child.start()
            child.join(60)
            assert child.exitcode == 1
        """

    run(source, RECORD, passed=1)
    assert not account.requests


BLOCKS = """
    import asyncio, httpx, pytest, vcr
    from pathlib import Path

    own = vcr.VCR(cassette_library_dir="tapes", path_transformer=vcr.VCR.ensure_suffix(".yaml"))
    URL = "https://api.example.test/v1/users/me"

    @pytest.fixture(autouse=True)
    def recorded(directmail_for_vcr): pass

    @pytest.fixture(scope="session")
    def directmail_options(): return {"patch": True, "like": "vcrpy"}

    def test_block():
        with own.use_cassette("one"):
            assert httpx.get(URL).json() == {"id": 7}
        with vcr.use_cassette("tapes/two.yaml", record_mode="none") as cassette:
            assert httpx.get(URL).json() == {"id": 8}
            assert cassette.play_count == 1

    @own.use_cassette
    def one():
        return httpx.get(URL).json()

    @own.use_cassette("two")
    async def two():
        async with httpx.AsyncClient() as client:
            return (await client.get(URL)).json()

    def test_decorators():
        assert (one(), asyncio.run(two())) == ({"id": 7}, {"id": 8})

    class Persister:
        @staticmethod
        def load_cassette(path, serializer):
            text = Path(path).read_text().replace("{{user}}", "ann")
            return vcr.serialize.deserialize(text, serializer)

    def test_its_persister_and_matchers():
        other = vcr.VCR(match_on=["method", "path", "body"])
        other.register_persister(Persister)
        with other.use_cassette("tapes/ann.yaml") as cassette:
            assert httpx.get("https://other.test/v1/users/ann").json() == {"id": 9}
            assert cassette.write_protected and not cassette.dirty

    @own.use_cassette("one")
    def test_decorated():
        one()
        httpx.get(URL)
        httpx.get(URL + "/other")

    @pytest.mark.directmail(unrecorded="allow")
    @own.use_cassette("one")
    def test_request_too_many():
        with pytest.raises(httpx.ConnectError):
            httpx.get(URL + "/other")
"""


def test_use_cassette_of_vcrpy_replays_in_the_session(pytester: pytest.Pytester, run: Run) -> None:
    """Blocks and decorators of any VCR object, at its paths, with its persister and matchers."""
    Path("tapes").mkdir()
    for name, number in (("one", 7), ("two", 8)):
        theirs(f"tapes/{name}.yaml", answered(body=json.dumps({"id": number})))
    bare = replace(get("/v1/users/{{user}}"), body=None)
    theirs("tapes/ann.yaml", answered(bare, '{"id": 9}'))
    result = run(BLOCKS, passed=4, failed=1)
    unpatched = run(BLOCKS.replace('"patch": True, ', ""), errors=5)

    unpatched.stdout.fnmatch_lines(["directmail_for_vcr needs *"])

    result.stdout.fnmatch_lines(
        [
            "*GET https://api.example.test/v1/users/me/other is not*",
            "*Record this test again: pytest test_account.py::test_decorated --*=all",
            "not recorded:",
            "    GET https://api.example.test/v1/users/me/other",
        ]
    )


SERIALIZED = """
    import gzip, json, httpx, pytest, yaml

    def unpacked(data):
        (one,) = yaml.safe_load(gzip.decompress(data))
        body = {"string": json.dumps(one.pop("parsed_body"))}
        status = {"code": 200, "message": "OK"}
        request = {"method": "GET", "uri": one["uri"], "body": None, "headers": {}}
        response = {"status": status, "headers": {}, "body": body}
        return {"version": 1, "interactions": [{"request": request, "response": response}]}

    def filled_in(text):
        return text.replace("{{user}}", "ann")

    def get(user):
        assert httpx.get(f"https://api.example.test/{user}").json() == {"id": 7}

    @pytest.mark.directmail(patch=True, deserialize=unpacked, cassette="packed")
    def test_serializer():
        get("bob")

    @pytest.mark.directmail(patch=True, deserialize=filled_in, cassette="placeholders")
    def test_persister():
        get("ann")

    @pytest.mark.directmail(patch=True, deserialize=unpacked, cassette="ours")
    def test_ours():
        get("bob")

    @pytest.mark.directmail(patch=True, deserialize=filled_in, cassette="packed")
    def test_wrong():
        pass
"""


def test_a_suites_own_function_reads_its_cassettes(pytester: pytest.Pytester, run: Run) -> None:
    """It is a serializer's ``deserialize``, or it fills in what a persister took out.

    What we recorded is not passed to it.
    """
    Path("cassettes").mkdir()
    packed = gzip.compress(b"[{uri: 'https://api.example.test/bob', parsed_body: {id: 7}}]")
    Path("cassettes/packed.yaml").write_bytes(packed)
    theirs("cassettes/placeholders.yaml", answered(get("/{{user}}"), '{"id": 7}'))
    samples.recorded("cassettes/ours.yaml", answered(get("/bob"), '{"id": 7}'))
    result = run(SERIALIZED, passed=3, errors=1)

    result.stdout.fnmatch_lines(["*packed.yaml: deserialize raised TypeError*"])


def test_cassettes_that_no_test_uses_are_listed(pytester: pytest.Pytester, run: Run) -> None:
    """Cassettes of deselected tests, and cassettes that a test's code names, count as used."""
    written_by_vcrpy(
        "test_account/test_me", "test_account/test_old", "test_vcr/test_vcr", "tour", "b"
    )
    for name in ("b", "tour", "test_account/test_me"):
        Path(f"cassettes/{name}.yaml").rename(f"cassettes/{name}.yml")
    pytester.makepyfile(test_vcr="import pytest\n@pytest.mark.vcr\ndef test_vcr(): pass")
    wrong = "import pytest\n@pytest.mark.directmail(tape=1)\ndef test_wrong(directmail): pass"
    source = f"{ONE_CALL}\ndef test_named(): assert 'tour'\n{wrong}"
    unused = "--directmail-unused"
    whole, part = run(source, "-k", "named", unused), run(source, "test_vcr.py", unused)
    folder = run(source, unused, ".")

    for result in (whole, folder):
        listed = [line for line in result.outlines if line.startswith("cassettes/")]
        assert listed == ["cassettes/b.yml", "cassettes/test_account/test_old.yaml"]
    part.stdout.fnmatch_lines(["To see the list, give no file*"])
