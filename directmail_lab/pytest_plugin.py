"""The pytest plugin: the fixture ``directmail``, a session that replays the test's own cassette.

Installing the package is all it takes::

    def test_the_account_has_a_name(directmail):
        assert directmail.me()["name"].item()

The cassette is ``cassettes/<module>/<test>.yaml`` beside the test file. Record it with
``pytest --directmail-record-mode=once`` and ``DIRECTMAIL_BASE_URL`` and ``DIRECTMAIL_API_KEY`` set.
Without that option nothing is ever sent: the session has no transport that could.

``directmail_max_age = 90 days`` in the ini file warns of an older recording, or fails the test with
``directmail_on_old = fail``; the marker takes both too. ``--directmail-unused`` lists the cassettes
that no test uses.

Until a test uses the fixture this module imports only pytest, and it never imports pandas.
"""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from .pytest_mismatches import add_to_report, hide_our_frames, print_commands, say_briefly

if TYPE_CHECKING:
    from .cassettes import Cassette, Matcher
    from .errors import NotRecordedError
    from .sessions import Session


_MODES: Final = ("none", "once", "new_episodes", "any", "all")
_CHOICES: Final = {
    "record_mode": _MODES,
    "repeat": ("strict", "last"),
    "unplayed": ("fail", "allow"),
    "on_old": ("warn", "fail"),
}
_OPTION: Final = "--directmail-record-mode"
_UNUSED_OPTION: Final = "--directmail-unused"
_LONGEST_NAME: Final = 120  # of a test, in its cassette's file name
_MARKER: Final = (
    "directmail(cassette=None, record_mode=None, repeat='strict', redact=(), match_on=None, "
    "unplayed=None, max_age=None, on_old=None): how the fixture directmail records and replays"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini settings."""
    group = parser.getgroup("directmail", "directmail_lab cassettes")
    group.addoption(_OPTION, choices=_MODES, help="record, as vcrpy does; by default: replay alone")
    group.addoption(_UNUSED_OPTION, action="store_true", help="list cassettes that no test uses")
    parser.addini("directmail_max_age", 'how old a recording may be, such as "90 days"')
    parser.addini("directmail_on_old", "what an older one does: warn or fail", default="warn")
    parser.addini("directmail_cassettes", "the folder beside each test file", default="cassettes")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with the option for it, the list of unused cassettes."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption(_UNUSED_OPTION):
        config.pluginmanager.register(_Unused(config))


@pytest.fixture
def directmail(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Give a `Session` on the test's cassette, which is also the current one for the test."""
    from .cassettes.cassette import records
    from .current import current_session, make_current
    from .errors import DirectMailLabError

    node, settings = request.node, _settings(request.node)
    path = _cassette_path(node, settings.cassette)
    mode = node.config.getoption(_OPTION) or settings.record_mode or "none"
    is_recorded = records(mode, path)
    _refuse_beside_vcr(node, may_collide=is_recorded or settings.cassette is None)
    before = current_session()
    try:
        start = _recording if is_recorded else _replaying
        with start(path, mode, settings, node) as session:
            assert session.open_cassette is not None, "the session was put on one just now"
            use = _Use(session.open_cassette, settings, node)
            node.stash[_USE] = use
            use.cassette.on_unmatched = use.refuse
            use.check_age()
            make_current(session)
            yield session
            make_current(before)
    except (DirectMailLabError, ValueError) as error:  # our frames are not the author's
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed, but left responses of its own cassette unplayed."""
    result = yield
    use = item.stash.get(_USE, None)
    if use is not None and use.is_strict and use.cassette.unplayed():
        advice = 'Record it again, or allow it: @pytest.mark.directmail(unplayed="allow").'
        pytest.fail(f"It did not request every response of its cassette. {advice}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, Any]:
    """Add the requests that were left unplayed or not recorded to the report of a failure."""
    use = item.stash.get(_USE, None)
    if use is not None:
        hide_our_frames(call, item.config)
    report = yield
    if use is not None and report.failed:
        add_to_report(report, item.config, *use.summary())
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own, which ends in its summary
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, Any, Any]:
    """Add the commands that record again to the short summary."""
    result = yield
    print_commands(terminalreporter)
    return result


# -- which cassette ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The arguments of the marker."""

    cassette: str | Path | None = None
    record_mode: str | None = None
    repeat: Literal["strict", "last"] = "strict"
    redact: Iterable[str] = ()
    match_on: Sequence[str | Matcher] | None = None
    unplayed: Literal["fail", "allow"] | None = None
    max_age: str = ""
    on_old: str = "warn"

    def matching(self) -> dict[str, Any]:
        """Return the argument ``match_on`` if the marker has one."""
        return {} if self.match_on is None else {"match_on": self.match_on}


def _settings(node: pytest.Item) -> _Settings:
    """Return the marker's settings, those nearest to the test winning, and the ini file's."""
    names = {field.name for field in fields(_Settings)}
    merged = {name: node.config.getini(f"directmail_{name}") for name in ("max_age", "on_old")}
    problem = ""
    for marker in reversed(list(node.iter_markers("directmail"))):
        if marker.args or not names.issuperset(marker.kwargs):
            problem = f"the directmail marker takes {', '.join(sorted(names))}, each by its name"
        merged.update(marker.kwargs)
    for name, allowed in _CHOICES.items():
        if merged.get(name) not in (None, *allowed):
            problem = f"{name} is one of {', '.join(allowed)}"
    if problem:
        pytest.fail(f"{node.nodeid}: {problem}.", pytrace=False)
    return _Settings(**merged)


def _cassette_path(node: pytest.Item, cassette: str | Path | None) -> Path:
    """Return the file of a test's cassette."""
    if isinstance(cassette, Path):
        return node.path.parent / cassette
    folder = _folder(node)
    if cassette is not None:
        from .cassettes import find_cassette
        from .errors import NotRecordedError

        own = folder / f"{cassette.removesuffix('.yaml')}.yaml"
        if not own.exists():
            with suppress(NotRecordedError):  # what `replay(name)` would find
                return find_cassette(cassette)
        return own
    path = folder / node.path.stem / f"{_test_name(node)}.yaml"
    return path if path.exists() else _path_by_vcr(node, path)


def _path_by_vcr(node: pytest.Item, path: Path) -> Path:
    """Return the file that pytest-recording gave a test, if there is one, else ``path``."""
    test_class = getattr(node, "cls", None)
    name = f"{test_class.__name__}.{node.name}" if test_class else node.name
    theirs = path.with_name(re.sub(r"[<>?%*:|\"'/\\]", "-", name) + ".yaml")
    return theirs if os.path.exists(theirs) else path  # noqa: PTH110 - the name may be too long


def _folder(node: pytest.Item) -> Path:
    """Return the folder of the cassettes of a test's file."""
    return node.path.parent / str(node.config.getini("directmail_cassettes"))


def _test_name(node: pytest.Item) -> str:
    """Return a test's name for a file: ``Class.test[parameters]``, without characters of paths."""
    test_class = getattr(node, "cls", None)
    name = f"{test_class.__qualname__}.{node.name}" if test_class else node.name
    safe = re.sub(r"[^\w.\-\[\]]", "-", name).encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe == name:
        return name
    from hashlib import sha256

    # Two names may become the same one here, so a hash of the original is added.
    return f"{safe}-{sha256(name.encode()).hexdigest()[:8]}"


def _command(node: pytest.Item, mode: str) -> str:
    """Return the command that records a test's cassette."""
    test = f"{_relative(node.path, node.config)}::{node.nodeid.partition('::')[2]}"
    return f"pytest {shlex.quote(test)} {_OPTION}={mode}"


def _relative(path: Path, config: pytest.Config) -> str:
    """Return a path as from the folder that pytest was started in."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


# -- the session -------------------------------------------------------------------------------


def _refuse_beside_vcr(node: pytest.Item, *, may_collide: bool) -> None:
    """Fail a test that vcrpy's plugins would record too, with the key and into the same file."""
    disabled = node.config.getoption("disable_recording", default=False)
    if may_collide and not disabled and node.get_closest_marker("vcr"):
        why = "so vcrpy would record it too: with the key, and into the same file"
        advice = "Take the mark off this test, or run it with --disable-recording."
        pytest.fail(f"{node.nodeid} is marked vcr, {why}. {advice}", pytrace=False)


def _replaying(path: Path, _: str, settings: _Settings, node: pytest.Item) -> Session:
    """Return a session that only replays: it has no key, and no transport that could send."""
    from .sessions import replaying_session

    if not path.exists():
        advice = "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY, and record it:"
        missing = f"There is no cassette {_relative(path, node.config)}."
        pytest.fail(f"{missing} {advice} {_command(node, 'once')}", pytrace=False)
    session = replaying_session(path)
    session.replay(path, repeat=settings.repeat, **settings.matching())
    return session


def _recording(path: Path, mode: str, settings: _Settings, _: pytest.Item) -> Session:
    """Return a session that records, with the environment's key."""
    from .credentials import find_api_key
    from .sessions import Session
    from .settings import choose_address

    address = choose_address()
    session = Session(address, find_api_key(base_url=address))
    # The event loop of an async test is gone when the fixture ends: no connection may outlive it.
    session.async_client.headers["Connection"] = "close"
    session.record(path, record_mode=mode, redact=settings.redact, **settings.matching())
    return session


# -- how the cassette was used -----------------------------------------------------------------


@dataclass(slots=True)
class _Use:
    """How a test used its cassette."""

    cassette: Cassette
    settings: _Settings
    node: pytest.Item
    refused: list[NotRecordedError] = field(default_factory=list)

    @property
    def is_strict(self) -> bool:
        """Whether all responses must be played: by default if only this test has the cassette."""
        default = "fail" if self.settings.cassette is None else "allow"
        return not self.cassette.records and (self.settings.unplayed or default) == "fail"

    @property
    def shown_path(self) -> str:
        return _relative(self.cassette.path, self.node.config)

    @property
    def advice(self) -> str:
        return f"to record it again: {_command(self.node, 'all')}"

    def refuse(self, error: NotRecordedError) -> None:
        """Note a request that the cassette has no response to."""
        say_briefly(error, _command(self.node, "all"))
        self.refused.append(error)

    def check_age(self) -> None:
        """Warn of a recording that is older than ``max_age``, or fail the test."""
        if self.cassette.records or not self.settings.max_age:
            return
        from .questions.drift import age_problem

        problem = age_problem(self.cassette.recording(), self.settings.max_age)
        message = f"{self.shown_path} {problem}; {self.advice}"
        if problem and self.settings.on_old == "fail":
            pytest.fail(message, pytrace=False)
        elif problem:
            warnings.warn(pytest.PytestWarning(message), stacklevel=2)

    def summary(self) -> tuple[str, list[str], list[NotRecordedError], str]:
        """Return what is used, what was left unplayed, what was not recorded, and the command."""
        heading = f"{self.shown_path}, record mode {self.cassette.record_mode}"
        unplayed = [] if self.cassette.records else self.cassette.unplayed()
        path_of = self.cassette.recording().path_of
        titles = [f"{each.method} {path_of(each)}" for each in unplayed]
        return heading, titles, self.refused, _command(self.node, "all")


_USE: Final = pytest.StashKey[_Use]()


# -- cassettes that no test uses ---------------------------------------------------------------


class _Unused:
    """Lists, at the end of a run, the cassettes in the tests' folders that no test uses.

    A test uses the cassette of its fixture (or of its ``vcr`` marker), and each that its file
    names. With xdist the workers collect the tests, and send their lists to the main process.
    """

    def __init__(self, config: pytest.Config) -> None:
        # If only some tests are run, the cassettes of the others would seem to be unused.
        self._is_whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS
        self._paths: list[str] = []

    @pytest.hookimpl(tryfirst=True)  # before tests are deselected
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        used, folders, sources = set[Path](), set[Path](), set[Path]()
        for item in items:
            sources.add(item.path)
            folders.add(_folder(item))
            if "directmail" in getattr(item, "fixturenames", ()):
                with suppress(pytest.fail.Exception):  # of a wrong marker: the test fails by itself
                    used.add(_cassette_path(item, _settings(item).cassette))
            if item.get_closest_marker("vcr"):
                used.add(_cassette_path(item, None))
        texts = [path.read_text("utf-8", "ignore") for path in sources if path.suffix == ".py"]
        unused = {path for folder in folders for path in folder.rglob("*.yaml")} - used
        self._paths = sorted(
            _relative(path, config)
            for path in unused
            if not any(re.search(rf"[\"']{re.escape(path.stem)}(\.yaml)?[\"']", t) for t in texts)
        )
        if hasattr(config, "workeroutput"):
            config.workeroutput["directmail_unused"] = self._paths

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that crashed has none
        self._paths = output.get("directmail_unused", self._paths)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("cassettes that no test uses")
        lines = self._paths if self._is_whole_run else ["Run all tests to see them: name no file."]
        terminalreporter.write_line("\n".join(lines) or "none")
