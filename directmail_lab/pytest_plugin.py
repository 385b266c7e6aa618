"""The pytest plugin: the fixture ``directmail``, a session that replays the test's own cassette.

Installing the package is all it takes::

    def test_the_account_has_a_name(directmail):
        assert directmail.me()["name"].item()

The cassette is ``cassettes/<module>/<test>.yaml`` beside the test file. Record it with
``pytest --directmail-record-mode=once`` and ``DIRECTMAIL_BASE_URL`` and ``DIRECTMAIL_API_KEY`` set.
Without that option nothing is ever sent: the session has no transport that could.

Nothing but pytest is imported here before a test asks for the fixture.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from .cassettes import Cassette, Matcher
    from .interaction import RecordedRequest
    from .sessions import Session


_MODES: Final = ("none", "once", "new_episodes", "any", "all")
_OPTION: Final = "--directmail-record-mode"
_FOLDER_INI: Final = "directmail_cassettes"
_LONGEST_NAME: Final = 120  # of a test, in its cassette's file name
_MARKER: Final = (
    "directmail(cassette=None, record_mode=None, repeat='strict', redact=(), match_on=None, "
    "unplayed=None): the cassette of the directmail fixture, by its name or a Path, and how it is "
    "recorded and replayed"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini setting."""
    group = parser.getgroup("directmail", "directmail_lab cassettes")
    group.addoption(
        _OPTION,
        choices=_MODES,
        default=None,
        help="vcrpy's record modes for the directmail fixture; by default none: replay alone",
    )
    parser.addini(
        _FOLDER_INI,
        "the folder of the directmail fixture's cassettes: beside each test file, or below "
        "{rootdir} where it starts with that",
        default="cassettes",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def directmail(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Give a `Session` on the test's cassette, which is also the current one for the test."""
    settings = _settings(request.node)
    path = _cassette_path(request.node, settings.cassette)
    mode = request.config.getoption(_OPTION) or settings.record_mode or "none"
    records = mode != "none" and not (mode == "once" and path.exists() and path.stat().st_size > 0)
    _refuse_beside_vcr(request.node, may_collide=records or settings.cassette is None)
    session = (
        _recording(path, mode, settings) if records else _replaying(path, settings, request.node)
    )
    cassette = session.open_cassette
    assert cassette is not None, "the session was put on one just now"
    request.node.stash[_USE] = use = _Use(cassette, settings, _shown(path, request.config))
    cassette.on_unmatched = use.unmatched.append
    with session, _as_current(session):
        yield session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed, but left answers of its own cassette unplayed."""
    result = yield
    use = item.stash.get(_USE, None)
    if use is not None and use.strict and use.cassette.unplayed():
        pytest.fail(
            "The test passed, but did not ask for every answer in its cassette. Record it again, "
            'or allow it: @pytest.mark.directmail(unplayed="allow").',
            pytrace=False,
        )
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in a failure what was left unplayed, and what was asked for and not recorded."""
    report = yield
    use = item.stash.get(_USE, None)
    if use is not None and report.failed:
        report.sections.append(("directmail cassette", use.told(item.nodeid)))
    return report


# -- which cassette ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What the marker may say."""

    cassette: str | Path | None = None
    record_mode: str | None = None
    repeat: Literal["strict", "last"] = "strict"
    redact: Iterable[str] = ()
    match_on: Sequence[str | Matcher] | None = None
    unplayed: Literal["fail", "allow"] | None = None

    @property
    def matching(self) -> dict[str, Any]:
        """The option of `Session.record` and `Session.replay`, where the marker gives it."""
        return {} if self.match_on is None else {"match_on": self.match_on}


def _settings(node: Any) -> _Settings:
    """Return the marker's settings, those nearest to the test winning."""
    known = {each.name for each in fields(_Settings)}
    merged: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("directmail"))):
        if marker.args or not known.issuperset(marker.kwargs):
            raise pytest.UsageError(
                f"{node.nodeid}: the directmail marker takes {', '.join(sorted(known))}, "
                'each by its name: @pytest.mark.directmail(cassette="tour").'
            )
        merged.update(marker.kwargs)
    for name, allowed in (("record_mode", _MODES), ("unplayed", ("fail", "allow"))):
        if merged.get(name) not in (None, *allowed):
            raise pytest.UsageError(f"{node.nodeid}: {name} is one of {', '.join(allowed)}.")
    return _Settings(**merged)


def _cassette_path(node: Any, cassette: str | Path | None) -> Path:
    """Return the file of a test's cassette."""
    beside: Path = node.path.parent
    root: Path = node.config.rootpath
    if isinstance(cassette, Path):
        return beside / cassette
    setting = str(node.config.getini(_FOLDER_INI))
    folder = beside / setting.replace("{rootdir}", str(root))
    if cassette is not None:
        from .cassettes import find_cassette
        from .errors import NotRecordedError

        own = folder / f"{cassette.removesuffix('.yaml')}.yaml"
        if not own.exists():
            with suppress(NotRecordedError):  # what `replay(name)` would find
                return find_cassette(cassette)
        return own
    # One folder for all test files needs their own folders too, to tell equal names apart.
    module: Path = node.path.relative_to(root if "{rootdir}" in setting else beside).with_suffix("")
    return folder / module / f"{_test_name(node)}.yaml"


def _test_name(node: Any) -> str:
    """Return a test's name as a file's: ``Class.test[parameters]``, without what paths forbid."""
    name = ".".join(filter(None, [node.cls.__qualname__ if node.cls else None, node.name]))
    safe = re.sub(r"[^\w.\-\[\]]", "-", name)
    if safe == name and len(name.encode()) <= _LONGEST_NAME:
        return name
    from hashlib import sha256

    # Two names may become one in this, so what they were is kept in short.
    kept = safe.encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    return f"{kept}-{sha256(name.encode()).hexdigest()[:8]}"


def _shown(path: Path, config: pytest.Config) -> str:
    return str(path.relative_to(config.rootpath) if path.is_relative_to(config.rootpath) else path)


# -- the session -------------------------------------------------------------------------------


def _refuse_beside_vcr(node: Any, *, may_collide: bool) -> None:
    """Refuse a test that vcrpy's plugins record too: with the key, and into the same file."""
    disabled = node.config.getoption("disable_recording", default=False)
    if may_collide and not disabled and node.get_closest_marker("vcr"):
        pytest.fail(
            f"{node.nodeid} is marked vcr, so vcrpy would record what directmail sends as well: "
            "with the key in it, and into the same file. Take the mark off this test, "
            "or run it with --disable-recording.",
            pytrace=False,
        )


def _replaying(path: Path, settings: _Settings, node: Any) -> Session:
    """Return a session that only replays: it has no key, and no way to the network."""
    from .sessions import replaying_session

    if not path.exists():
        pytest.fail(
            f"There is no cassette {_shown(path, node.config)}. Set DIRECTMAIL_BASE_URL and "
            f"DIRECTMAIL_API_KEY, and record it: pytest '{node.nodeid}' {_OPTION}=once",
            pytrace=False,
        )
    session = replaying_session(path)
    session.replay(path, repeat=settings.repeat, **settings.matching)
    return session


def _recording(path: Path, mode: str, settings: _Settings) -> Session:
    """Return a session with the environment's key, that records."""
    from .credentials import find_api_key
    from .sessions import Session
    from .settings import choose_address

    address = choose_address()
    session = Session(address, find_api_key(base_url=address))
    # The event loop of an async test is gone when the fixture ends: no connection may outlive it.
    session.async_client.headers["Connection"] = "close"
    session.record(path, record_mode=mode, redact=settings.redact, **settings.matching)
    return session


@contextmanager
def _as_current(session: Session) -> Iterator[None]:
    """Make a session the current one, so that code under test may call ``directmail_lab.me()``."""
    from .current import current_session, make_current

    before = current_session()
    make_current(session)
    try:
        yield
    finally:
        make_current(before)


# -- what became of the cassette ---------------------------------------------------------------


@dataclass(slots=True)
class _Use:
    """How a test used its cassette."""

    cassette: Cassette
    settings: _Settings
    shown_path: str
    unmatched: list[RecordedRequest] = field(default_factory=list)

    @property
    def strict(self) -> bool:
        """Whether all must be played: by default where the cassette is this test's alone."""
        if self.cassette.records:
            return False
        default = "fail" if self.settings.cassette is None else "allow"
        return (self.settings.unplayed or default) == "fail"

    def told(self, nodeid: str) -> str:
        """Return what was left unplayed and what was not recorded, by methods and paths."""
        lines = [f"{self.shown_path}, record mode {self.cassette.record_mode}"]
        left = [] if self.cassette.records else self.cassette.unplayed()
        for title, requests in (("left unplayed", left), ("not recorded", self.unmatched)):
            lines.append(f"{title}: {'nothing' if not requests else ''}".rstrip())
            lines.extend(f"    {line}" for line in _counted(requests, self.cassette.base_url))
        lines.append(f"to record it again: pytest '{nodeid}' {_OPTION}=all")
        return "\n".join(lines)


def _counted(requests: Iterable[RecordedRequest], base_url: str | None) -> list[str]:
    from .interaction import base_path, path_below

    prefix = base_path(base_url or "")
    counts = Counter(f"{each.method} {path_below(each.uri, prefix)}" for each in requests)
    return [f"{what} ({count} times)" if count > 1 else what for what, count in counts.items()]


_USE: Final = pytest.StashKey[_Use]()
