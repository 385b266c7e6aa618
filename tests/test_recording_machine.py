"""Random sequences of a recording's steps, kills, and changes by another program."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import pytest
from cassette_samples import BASE_URL, answered, begin, get, opened, theirs
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from directmail_lab.cassettes import Cassette, read_cassette


class RecordingMachine(RuleBasedStateMachine):
    """A cassette, the session that records it, and another program that changes its file."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "tour.yaml")
        self.cassette: Cassette | None = None
        self.numbers = count(1)
        self.acknowledged: set[str] = set()  # what a reader must find, by path
        self.of_run: set[str] = set()

    @precondition(lambda self: self.cassette is None)
    @rule(mode=st.sampled_from(["update", "new_episodes"]))
    def open(self, mode: str) -> None:
        self.cassette = opened(self.path, mode)
        self.of_run = set()

    @precondition(lambda self: self.cassette is not None)
    @rule(is_new=st.booleans(), is_write=st.booleans())
    def record(self, is_new: bool, is_write: bool) -> None:
        assert self.cassette is not None
        known = sorted(self.acknowledged)
        name = f"/{next(self.numbers)}" if is_new or not known else known[0]
        interaction = answered(get(name), f"{next(self.numbers)}")
        begun = begin(self.cassette, interaction) if is_write else None
        assert self.cassette.record(interaction, begun)
        self.acknowledged.add(name)
        self.of_run.add(name)

    @precondition(lambda self: self.cassette is not None)
    @rule()
    def fold(self) -> None:
        assert self.cassette is not None
        self.cassette.fold()

    @precondition(lambda self: self.cassette is not None)
    @rule(is_killed=st.booleans())
    def end(self, is_killed: bool) -> None:
        assert self.cassette is not None
        recorder = self.cassette._recorder
        assert recorder is not None
        assert recorder.lock is not None
        if is_killed and self.path.exists():
            recorder.closed = True  # so that nothing ends the recording
            recorder.lock.close()
            if recorder._journal is not None:
                recorder._journal.close()
        self.cassette.close()
        self.cassette = None

    @rule(how=st.sampled_from(["delete", "comment", "theirs"]))
    def change(self, how: str) -> None:
        """Another program changes the file; then the run alone must be there, and what it left."""
        if how == "comment" and self.path.exists() and self.path.stat().st_size:
            self.path.write_bytes(self.path.read_bytes() + b"# a line\n")
            return
        self.acknowledged = set(self.of_run) if self.cassette is not None else set()
        if how == "delete":
            self.path.unlink(missing_ok=True)
            self.path.with_name("tour.yaml.part").unlink() if self.is_left else None
        else:
            name = f"/{next(self.numbers)}"
            theirs(self.path, answered(get(name), "theirs"))
            self.acknowledged.add(name)

    @property
    def is_left(self) -> bool:
        return self.cassette is None and self.path.with_name("tour.yaml.part").exists()

    @invariant()
    def nothing_is_lost(self) -> None:
        if self.path.exists():
            paths = [each.request.uri.removeprefix(BASE_URL) for each in read_cassette(self.path)]
            assert self.acknowledged <= set(paths)

    def teardown(self) -> None:
        with self.folder:
            if self.cassette is not None:
                self.end(False)
                self.nothing_is_lost()


@pytest.mark.parametrize(
    "examples", [pytest.param(25, id="few"), pytest.param(150, id="many", marks=pytest.mark.slow)]
)
def test_acknowledged_interactions_and_other_programs_changes_are_not_lost(examples):
    """Random sequences interleave a session's steps with another program's."""
    options = settings(max_examples=examples, stateful_step_count=20)
    run_state_machine_as_test(RecordingMachine, settings=options)
