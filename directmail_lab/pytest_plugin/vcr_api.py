"""pytest-recording's hook, and the fixtures of both plugins, for a suite that is not edited.

They are ours if neither pytest-recording nor pytest-vcr is active. A suite's own ``vcr`` overrides
this one. In pytest-recording it is the cassette of one test, and in pytest-vcr it belongs to a
module. So ours is of scope ``session``, which a fixture of any scope can use, and it has what the
test that runs has.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .settings import DEFAULT_MARK, OPTION, RUNNING, Node, cassette_folders, own_name
from .use import USE, Use, read_recording, show_warning

if TYPE_CHECKING:
    from ..cassettes import Cassette, FileRecording
    from ..cassettes.matching import Matching
    from ..cassettes.vcr_files import Block
    from ..sessions.session import Session

_IGNORED = (
    "vcr.register_matcher, vcr.register_serializer and other settings of vcr have no effect, since "
    "vcrpy does not run. Give matchers to the setting match_on, and the deserialize function of a "
    "serializer to the setting deserialize."
)


class Hooks:
    """The hook of pytest-recording, so that pytest knows it if pytest-recording is not there."""

    def pytest_recording_configure(self, config: pytest.Config, vcr: Any) -> None:
        """Configure ``vcr``, before a test that is marked ``vcr``."""


@dataclass(slots=True)
class _State:
    """What the fixture knows."""

    config: pytest.Config
    has_warned: bool = False


_STATE = pytest.StashKey[_State]()


def register(config: pytest.Config) -> None:
    """Make the fixtures below ours."""
    for mark in ("vcr", "block_network", "allowed_hosts"):
        config.addinivalue_line("markers", f"{mark}: of pytest-recording; ignored here")
    config.addinivalue_line("markers", f"{DEFAULT_MARK}(name): of pytest-recording; the cassette")
    config.stash[_STATE] = _State(config)
    config.pluginmanager.register(sys.modules[__name__], "directmail_vcr_api")


def call_hook(node: Node) -> None:
    """Call the hook for a marked test as pytest-recording does, if its fixture is ours."""
    state = node.config.stash.get(_STATE, None)
    if state is not None and node.get_closest_marker("vcr"):
        vcr = VcrCassette(state)
        node.ihook.pytest_recording_configure(config=node.config, vcr=vcr)


@pytest.fixture(scope="session")
def vcr(pytestconfig: pytest.Config) -> VcrCassette:
    """Return the cassette of the test that runs, as vcrpy's users know it."""
    return VcrCassette(pytestconfig.stash[_STATE])


@pytest.fixture
def vcr_cassette(directmail: Session, vcr: VcrCassette) -> VcrCassette:  # noqa: ARG001
    """Replay or record the cassette of a test that may have no mark, as pytest-vcr's does."""
    return vcr


@pytest.fixture
def directmail_for_vcr(
    directmail: Session,  # noqa: ARG001
    pytestconfig: pytest.Config,
) -> Iterator[None]:
    """Let each ``use_cassette`` of vcrpy, of any VCR object, replay its cassette in the session.

    The matchers, the serializer and the persister of the object stay.
    """
    from ..cassettes.vcr_files import blocks_replaced

    vcr = VcrCassette(pytestconfig.stash[_STATE])  # the suite's own fixture may have the name
    if vcr._use is None or not vcr._use.settings.is_patched:
        pytest.fail('directmail_for_vcr needs "patch": True in directmail_options.', pytrace=False)
    with blocks_replaced(vcr._open_block):
        yield


@pytest.fixture
def vcr_cassette_name(request: pytest.FixtureRequest) -> str:
    """Return pytest-vcr's name for the cassette of a test. Ours may have another one."""
    return own_name(request.node, "__name__")


@pytest.fixture(scope="module")
def vcr_cassette_dir(request: pytest.FixtureRequest) -> str:
    """Return the folder of the cassettes beside a test file, as pytest-vcr's does."""
    return str(cassette_folders(request.node)[1])


@pytest.fixture(scope="session")
def vcr_config() -> dict[str, Any]:
    """Return no configuration, which a suite's own fixture may extend. Nothing reads it."""
    return {}


class VcrCassette:
    """What vcrpy's ``Cassette`` tells, of the cassette of the test that runs.

    What configures vcrpy (``register_matcher`` and so on, and every attribute that is set) has no
    effect, and one warning says so.
    """

    _state: _State
    inject = False  # a decorator of vcrpy passes it to its function only if this is set

    def __init__(self, state: _State) -> None:
        object.__setattr__(self, "_state", state)

    @property
    def requests(self) -> list[Any]:
        """The recorded requests, as vcrpy's."""
        from ..cassettes.vcr_files import vcr_request

        return [vcr_request(each.request) for each in self._interactions()]

    @property
    def responses(self) -> list[dict[str, Any]]:
        """The recorded responses, as vcrpy's dictionaries."""
        from ..cassettes.vcr_files import vcr_response

        return [vcr_response(each.response) for each in self._interactions()]

    @property
    def play_counts(self) -> Counter[int]:
        """How often each response was played, by its index."""
        cassette = self._cassette
        return Counter(() if cassette is None or cassette.records else cassette.played())

    @property
    def play_count(self) -> int:
        """How many responses were played."""
        return self.play_counts.total()

    @property
    def write_protected(self) -> bool:
        """Whether nothing is recorded."""
        return self._cassette is None or not self._cassette.records

    @property
    def dirty(self) -> bool:
        """Whether something was recorded."""
        return not self.write_protected and len(self) > 0

    @property
    def all_played(self) -> bool:
        """Whether every response was played."""
        return self.play_count == len(self)

    @property
    def record_mode(self) -> str:
        """The record mode, which equals vcrpy's ``RecordMode``."""
        cassette = self._cassette
        if cassette is not None:
            return cassette.record_mode
        return str(self._state.config.getoption(OPTION) or "none")

    @contextmanager
    def use_cassette(self, path: str | Path, **_: object) -> Iterator[VcrCassette]:
        """Replay another cassette of the test, or record it in the test's record mode.

        The path is relative to the folder of the test file's cassettes. vcrpy's options have no
        effect.
        """
        place = Path(path) if Path(path).is_absolute() else re.sub("[.]ya?ml$", "", str(path))
        with self._open(place):
            yield self

    @contextmanager
    def _open_block(self, block: Block) -> Iterator[VcrCassette]:
        """Do the same for a ``use_cassette`` of vcrpy, with its matchers and its serializer."""
        from ..cassettes.library import file_of
        from ..cassettes.matching import Matching

        use = self._use
        place = file_of(block.path)
        matching = None
        cassette: Path | FileRecording = place
        if use is not None and use.settings.match_on is None:
            matching = Matching(block.match_on, like=use.settings.like)
        if block.deserialize is not None and place.is_file():
            cassette = read_recording(place, block.deserialize)
        with self._open(cassette, matching):
            yield self

    def _open(
        self, cassette: str | Path | FileRecording, matching: Matching | None = None
    ) -> AbstractContextManager[object]:
        """Return a block in which a test replays another cassette, or records it."""
        from ..errors import CassetteNotFoundError

        use = self._use
        if use is None:
            pytest.fail("vcr.use_cassette(…) needs the fixture directmail.")
        session = use.session
        mode = use.cassette.record_mode
        try:
            if mode == "none":
                change = session.replay(cassette, repeat=use.settings.repeat, matching=matching)
            else:
                options = use.settings.given("redact", "before_record")
                change = session.record(cassette, record_mode=mode, matching=matching, **options)
        except CassetteNotFoundError as error:
            error.advice = f"Record this test: {use.command}"
            raise
        assert session._open_cassette is not None, "the session has just opened it"
        use.follow(session._open_cassette)
        return change

    def rewind(self) -> None:
        """Play all responses again."""
        cassette = self._cassette
        if cassette is not None:
            cassette.rewind()

    def __len__(self) -> int:
        return len(self._interactions())

    def __setattr__(self, *_: object) -> None:
        """Warn once."""
        if self._state.has_warned:
            return
        self._state.has_warned = True
        show_warning(self._state.config, _IGNORED)

    register_matcher = __setattr__
    register_serializer = __setattr__
    register_persister = __setattr__

    @property
    def _use(self) -> Use | None:
        item = self._state.config.stash.get(RUNNING, None)
        return None if item is None else item.stash.get(USE, None)

    @property
    def _cassette(self) -> Cassette | None:
        """The cassette that plays or records; none without the fixture ``directmail``."""
        use = self._use
        return None if use is None else use.session._open_cassette or use.cassette

    def _interactions(self) -> FileRecording | tuple[()]:
        cassette = self._cassette
        return () if cassette is None else cassette.recording()
