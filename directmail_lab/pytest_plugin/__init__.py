"""The pytest plugin: the fixture ``directmail``, a session that replays the test's own cassette.

Installing the package is all it takes::

    def test_the_account_has_a_name(directmail):
        assert directmail.get("/v1/users/me").json()["name"]

    def test_with_a_client_of_httpx(directmail):
        assert Account(directmail.base_url, http_client=directmail.client).name

    @pytest.mark.directmail(patch=True)
    def test_with_clients_that_the_code_makes_itself():  # the mark implies the fixture
        assert httpx.get("https://api.example.com/v1/users/me").json()["name"]

    def test_with_any_other_program(directmail_server):
        subprocess.run(["curl", f"{directmail_server}/v1/users/me"], check=True)

The cassette is ``cassettes/<module>/<test>.yaml`` beside the test file. Record it with
``pytest --directmail-record-mode=once`` and ``DIRECTMAIL_BASE_URL`` and ``DIRECTMAIL_API_KEY`` set.
If the test writes, also give ``--directmail-allow-writes``, or mark the test
``@pytest.mark.directmail(allow_writes=True)``. Without a record mode, nothing is ever sent: the
session has no transport that could.

For a path that nobody can record, a test gives the response itself::

    def test_a_busy_service_is_an_error(directmail):
        directmail.respond("/v1/users/me", status=503, json={"message": "busy"})
        with pytest.raises(dm.errors.ServiceError, match="busy"):
            directmail.me()

The arguments of the marker are the settings of a test (see `settings`). The fixture
``directmail_options`` and the ini file have the settings of all tests, and the fixture
``directmail_cassette`` returns the cassette of a test. For clients of other libraries, see
`directmail_lab.vcrpy`.

Until a test uses a fixture, this module imports only pytest and `arguments`. It never imports
pandas.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..arguments import VCR_MODES, RecordMode, check_names
from .mismatches import add_to_report, hide_our_frames
from .settings import (
    OPTION,
    RUNS,
    TABLE,
    WRITES_OPTION,
    Node,
    Settings,
    cassette_folders,
    cassette_path,
    settings_of,
)
from .use import USE, Use

if TYPE_CHECKING:
    from .responses import RespondingSession


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini settings."""
    group = parser.getgroup("directmail", "directmail_lab cassettes")
    group.addoption(
        OPTION, choices=VCR_MODES, help="vcrpy's record mode; by default, tests only replay"
    )
    group.addoption(WRITES_OPTION, action="store_true", help="send and record writes, too")
    parser.addini("directmail_cassettes", "folder beside each test file", default="cassettes")
    # No ini setting records or allows writes: both must be requested on each run.
    for name, each in TABLE.items():
        help_text = each.metadata.get("ini")
        if help_text:
            parser.addini(f"directmail_{name}", help_text, each.metadata["kind"])


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and the plugins that the options ask for."""
    arguments = ", ".join(f"{name}={each.default!r}" for name, each in TABLE.items())
    marker = f"directmail({arguments}): how the fixture directmail records and replays"
    config.addinivalue_line("markers", marker)
    RUNS.append(config)
    if WRITES_OPTION in config.getini("addopts"):
        what = f"{WRITES_OPTION} is not allowed in addopts, since writes cost money."
        raise pytest.UsageError(f"{what} Give it on the command line.")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the run."""
    if config in RUNS:
        RUNS.remove(config)


@pytest.fixture(scope="session")
def directmail_options() -> Mapping[str, Any]:
    """Return the settings of all tests. Override it to return a dict of the marker's arguments."""
    return {}


@pytest.fixture(scope="session")
def directmail_cassette() -> str | Path | None:
    """Return the cassette of a test. Override it to return a name or a path.

    A path is relative to the test's file. For the path of a folder, the cassette is in the folder
    and named after the test. By default (None), it is named after the module and the test. A
    cassette in the test's settings takes precedence. Several tests may share the cassette of an
    override, so a test may leave some of its responses unplayed.
    """
    return None


@pytest.fixture
def directmail(
    request: pytest.FixtureRequest,
    directmail_options: Mapping[str, Any],
    directmail_cassette: str | Path | None,
) -> Iterator[RespondingSession]:
    """Yield a `Session` on the test's cassette; it is the current session during the test."""
    yield from _session(request, directmail_options, directmail_cassette)


@pytest.fixture(scope="module")
def directmail_session(
    request: pytest.FixtureRequest, directmail_options: Mapping[str, Any]
) -> Iterator[RespondingSession]:
    """Yield a `Session` for what a module sets up once, on ``<module>/directmail_session.yaml``.

    The module's marker has its settings. Record it without xdist, or with ``--dist=loadfile``: two
    workers cannot write one cassette.
    """
    yield from _session(request, directmail_options, None)


@pytest.fixture
def directmail_server(
    request: pytest.FixtureRequest, directmail: RespondingSession
) -> Iterator[str]:
    """Yield the address of a local server that passes requests of any client to ``directmail``."""
    from ..server.loopback import ClientServer

    errors = request.node.stash[USE].client_errors
    with ClientServer(directmail, on_refusal=errors.append) as server:
        yield server.base_url


def _session(
    request: pytest.FixtureRequest, options: Mapping[str, Any], cassette: str | Path | None
) -> Iterator[RespondingSession]:
    """Yield a session on the cassette of a test or a module, and make it the current session."""
    from ..cassettes.cassette import records
    from ..errors import DirectMailLabError
    from ..sessions.current import current_session, make_current
    from .other_clients import guarded

    before = current_session()
    node = request.node
    try:
        settings = settings_of(node, options)
        mode: RecordMode = node.config.getoption(OPTION) or settings.record_mode or "none"
        named = cassette if settings.cassette is None else settings.cassette
        path = cassette_path(node, named)
        is_own = isinstance(node, pytest.Item) and named is None
        use = Use(node=node, settings=settings, path=path, record_mode=mode, is_own=is_own)
        start = _recording if records(mode, path) else _replaying
        with start(use) as session, ExitStack() as stack:
            if settings.patch:
                from ..sessions.session import transport_of
                from .patched import patched

                hosts = check_names("ignore_hosts", settings.ignore_hosts)
                transport = transport_of(session)
                stack.enter_context(patched(transport, use.failure_for_client, hosts))
            use.start(session)
            stack.enter_context(guarded(use.urls(), use.failure_for_client))
            node.stash[USE] = use
            make_current(session)
            yield session
            make_current(before)
            use.end()
    except (DirectMailLabError, ValueError) as error:  # the author need not see our frames
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a marked test that names no fixture of ours use ``directmail``."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("directmail") is None:
        return
    names = item.fixturenames
    if "directmail" not in names and "directmail_session" not in names:
        # An autouse fixture would take a tenth of the time of each test, also of those of others.
        known = item._fixtureinfo.name2fixturedefs
        wider = [name for name in names if name in known and known[name][-1].scope != "function"]
        item.fixturenames = [*wider, "directmail", *names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, Any]:
    """Pass a test's outcome to its `Use`, and add to a failure how its cassettes were used.

    pytest also calls this for each subtest, before the test has ended.
    """
    uses = _uses_of(item)
    if uses:
        hide_our_frames(call, item.config)
        _note_refused_write(call, uses)
    report = yield
    for use in uses:
        use.note_report(report)
        if report.failed:
            add_to_report(report, item.config, use)
        if use.has_ended:  # pytest keeps all tests until the run ends
            del use.node.stash[USE]
    return report


def _note_refused_write(call: pytest.CallInfo[Any], uses: list[Use]) -> None:
    from ..errors import WriteRefusedError

    for use in uses:
        use.was_refused_a_write |= bool(
            call.excinfo and call.excinfo.errisinstance(WriteRefusedError)
        )


def _uses_of(item: pytest.Item) -> list[Use]:
    """Return how a test uses its own cassette, and the one of its module's setup."""
    nodes: list[Node | None] = [item]
    if "directmail_session" in getattr(item, "fixturenames", ()):
        nodes.append(item.getparent(pytest.Module))
    return [node.stash[USE] for node in nodes if node is not None and USE in node.stash]


# -- the session -------------------------------------------------------------------------------


def _replaying(use: Use) -> RespondingSession:
    """Return a session that only replays: it has no key, and no transport that could send."""
    from ..cassettes import FileRecording, read_cassette
    from ..errors import AddressError
    from ..sessions.session import open_recording
    from ..settings import NO_ADDRESS
    from .responses import RespondingSession

    # A test that sends nothing needs no cassette.
    path = use.path
    recording = read_cassette(path) if path.exists() else FileRecording(path.stem, path=path)
    try:
        session = RespondingSession(recording.base_url or NO_ADDRESS)
    except AddressError:  # a stranger's cassette may have any address
        session = RespondingSession(NO_ADDRESS)
    _bind(session, use.settings, use.node)
    open_recording(
        session,
        recording,
        record_mode="none",
        repeat=use.settings.repeat,
        policy=use.policy(),
    )
    return session


def _recording(use: Use) -> RespondingSession:
    """Return a session that records, with the environment's key."""
    from ..credentials import ApiKey, find_api_key
    from ..errors import CredentialError, NotConnectedError
    from ..sessions.session import allow_recording_without_key, open_recording
    from ..settings import NO_ADDRESS, choose_address, keyring_entry
    from .responses import RespondingSession

    settings = use.settings
    node = use.node
    address = NO_ADDRESS
    key: ApiKey | None = None
    # The clients of the code under test have their own addresses and keys.
    with suppress(*((CredentialError, NotConnectedError) if settings.patch else ())):
        address = choose_address(settings.base_url)
        key = find_api_key(entry=keyring_entry(settings.base_url))
    session = RespondingSession(
        address,
        key,
        allow_writes=settings.allow_writes or node.config.getoption(WRITES_OPTION),
        retry=settings.retry,
    )
    # An async test's event loop is closed before the fixture ends, so no connection may stay open.
    session.async_client.headers["Connection"] = "close"
    if settings.patch:
        allow_recording_without_key(session)
    _bind(session, settings, node)
    open_recording(
        session,
        use.path,
        record_mode=use.record_mode,
        policy=use.policy(),
        redact=settings.redact,
        before_record=settings.before_record,
    )
    return session


def _bind(session: RespondingSession, settings: Settings, node: Node) -> None:
    from ..sessions.session import bind_to_test

    mark = "@pytest.mark.directmail(allow_writes=True)"
    bind_to_test(
        session,
        folders=cassette_folders(node),
        matching=settings.matching,
        advice=f"Run pytest {WRITES_OPTION}, or mark the test {mark}.",
    )
