"""Whatever happens to a file during a recording, no data of anyone is lost.

Hypothesis tries random sequences of opening, recording, closing and killing in each record mode,
and of changes by another program.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

import pytest
from cassette_samples import BASE_URL, answered, get, opened, recorded, theirs
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from directmail_lab.cassettes import Cassette
from directmail_lab.cassettes.files import parse_cassette, read_cassette
from directmail_lab.errors import CassetteError, CassetteFormatError
from directmail_lab.exchange.values import Interaction
from directmail_lab.redaction import Redactor

TORN = b'- recorded_at: "2026-11-21T12:00:00.123456Z"\n  elapsed_s: 0.0'
MODES = st.sampled_from(["update", "update", "all", "new_episodes", "any", "once"])
CHANGES = st.sampled_from(["delete", "append", "cut", "lines", "redacted", "torn", "vcrpy", "json"])


@lru_cache
def content_of(layout: str) -> bytes:
    """Return a cassette of one interaction in a layout, with ``BODY`` as its body."""
    interaction = answered(get("/theirs"), "BODY")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "new.yaml")
        if layout in ("vcrpy", "json"):
            theirs(path, interaction, as_json=layout == "json")
        else:
            redactor = Redactor().extended(["personal"] if layout == "redacted" else [])
            recorded(path, interaction, redactor=redactor)
        whole = path.read_bytes()
    return whole.partition(b"# end")[0] + TORN if layout == "torn" else whole


@lru_cache(1000)
def readable(data: bytes) -> tuple[Interaction, ...]:
    """Return the interactions that can be read from the bytes of a cassette."""
    found: list[Interaction] = []
    with suppress(CassetteError):
        recording = parse_cassette(data, Path("tour.yaml"))
        for number in range(1, len(recording) + 1):
            with suppress(CassetteError):  # another program may have damaged only this one
                found.append(recording.interaction(number))
    return tuple(found)


def paths_held(data: bytes) -> frozenset[str]:
    """Return the request paths that can be read from the bytes of a cassette."""
    return frozenset(each.request.uri.removeprefix(BASE_URL) for each in readable(data))


def bodies_held(data: bytes, name: str) -> list[int]:
    """Return the sizes of the bodies that readers get for a request path."""
    uri = f"{BASE_URL}{name}"
    return [len(each.response.body) for each in readable(data) if each.request.uri == uri]


class RecordingMachine(RuleBasedStateMachine):
    """A cassette, the session that records it, and another program that changes its files."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "tour.yaml")
        self.cassette: Cassette | None = None
        # No file existed when it was opened, and nothing was recorded to it since.
        self.is_new = True
        self.numbers = count(1)
        # The sizes of the bodies that the run has recorded, by request path. None: another program
        # has changed a file during the run.
        self.run: dict[str, list[int]] | None = {}
        self.notices: list[str] = []
        # Request paths that some file must have, because they were acknowledged or read on opening.
        self.must_hold: set[str] = set()
        # What another program left at a path (None: no file) and no session has loaded since.
        self.left: dict[Path, bytes | None] = {}

    @property
    def records(self) -> bool:
        return self.cassette is not None and self.cassette.records

    def files(self) -> list[Path]:
        return sorted(Path(self.folder.name).glob("*.yaml"))

    def held(self, path: Path) -> frozenset[str]:
        return paths_held(path.read_bytes())

    @initialize(layout=st.sampled_from(["none", "lines", "lines", "torn", "vcrpy"]))
    def start(self, layout: str) -> None:
        if layout != "none":
            self.changes(self.path, self.theirs(layout, 300), in_place=True)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Do one random step.

        It is one rule, because Hypothesis omits whole rules from a sequence.
        """
        steps = [self.open, self.open, self.change]
        if self.records:
            steps = [self.record, self.record, self.record, self.change, self.close, self.kill]
        data.draw(st.sampled_from(steps))(data)

    # -- the session ---------------------------------------------------------------------------

    def open(self, data: st.DataObject) -> None:
        mode = data.draw(MODES)
        self.notices.clear()
        self.run = {}
        # Another program may have left a file that is not a cassette.
        with suppress(CassetteFormatError):
            self.cassette = opened(self.path, mode, notice=self.notices.append)
        if not self.records:
            self.cassette = None
            return
        self.left.pop(self.path, None)
        self.is_new = not self.path.exists()

    def record(self, data: st.DataObject) -> None:
        assert self.cassette is not None
        for _ in range(data.draw(st.integers(1, 2))):
            old_names = sorted(self.must_hold) if self.cassette.updates else []
            name = data.draw(st.sampled_from([f"/{next(self.numbers)}", *old_names]))
            size = 5_000 + next(self.numbers)  # larger than any body of another program
            written = self.cassette.record(answered(get(name), "x" * size))
            assert written is not None
            self.must_hold.add(name)
            (file,) = (
                each for each in self.files() if size in bodies_held(each.read_bytes(), name)
            )
            self.is_new &= file != self.path
            if self.run is not None and self.cassette.updates:
                self.run.setdefault(name, []).append(size)

                assert bodies_held(file.read_bytes(), name) == self.run[name]
            if written.number is not None:
                assert file == self.path
                # Another program may have damaged the others.
                kept = read_cassette(file).interaction(written.number)
                assert kept.request.uri == f"{BASE_URL}{name}"
            elif file != self.path:
                assert str(file) in "".join(self.notices)

    def close(self, _: st.DataObject | None = None) -> None:
        assert self.cassette is not None
        self.cassette.close()
        self.cassette = None
        self.run_is_read()

    def run_is_read(self) -> None:
        for name, sizes in (self.run or {}).items():
            assert bodies_held(self.path.read_bytes(), name) == sizes

    def kill(self, data: st.DataObject) -> None:
        """Drop the recording as if the process was killed, perhaps in the middle of a write.

        What the run has recorded is read in place of what earlier runs had.
        """
        assert self.cassette is not None
        recorder = self.cassette._recorder
        assert recorder is not None
        recorder.closed = True  # so that deleting the object does not finish the recording
        recorder._locks.close()
        self.cassette = None
        if (writer := recorder._writer) is not None:
            is_in_place = writer.is_in_place()
            writer.release()
            if data.draw(st.booleans()) and is_in_place:
                with writer._path.open("ab") as file:
                    file.write(TORN)
        self.run_is_read()

    # -- another program -----------------------------------------------------------------------

    def change(self, data: st.DataObject) -> None:
        """Create, replace, truncate or remove a file, in place or not."""
        path, how = data.draw(st.sampled_from([self.path, *self.files()])), data.draw(CHANGES)
        content = path.read_bytes() if path.exists() else b""
        if how == "append":
            content += b"# a line\n"
        elif how == "cut":
            # At least one byte, because writing the same content again is not a change.
            content = content[: data.draw(st.integers(0, max(0, len(content) - 1)))]
        elif how != "delete":
            content = self.theirs(how, data.draw(st.integers(0, 2000)))
        in_place = how in ("append", "cut") or data.draw(st.booleans())
        self.changes(path, None if how == "delete" else content, in_place=in_place)

    def theirs(self, layout: str, size: int) -> bytes:
        """Return a cassette of one interaction, of a size that no other has.

        So two changes within one tick of the file system's clock differ in size.
        """
        content = content_of(layout).replace(b"/theirs", b"/theirs-%d" % next(self.numbers))
        return content.replace(b"BODY", b"x" * (size + next(self.numbers)))

    def changes(self, path: Path, content: bytes | None, *, in_place: bool) -> None:
        """Write or remove a file. The old content may be lost; the new content must stay."""
        self.run = None
        if path.exists():
            self.must_hold -= self.held(path)
        if content is None or not in_place:
            path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
            self.must_hold |= self.held(path)
        self.left[path] = content
        if content is None and (self.is_new or path != self.path):
            del self.left[path]  # a recording may create the file again

    # -- invariants ----------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        held = frozenset().union(*map(self.held, self.files()))

        assert not self.must_hold - held

    @invariant()
    def what_others_left_stays(self) -> None:
        for path, content in self.left.items():
            assert (path.read_bytes() if path.exists() else None) == content

    def teardown(self) -> None:
        with self.folder:
            if self.cassette is not None:
                self.close()
                self.nothing_is_lost()
                self.what_others_left_stays()


@pytest.mark.parametrize(
    "examples", [pytest.param(25, id="few"), pytest.param(150, id="many", marks=pytest.mark.slow)]
)
def test_acknowledged_interactions_and_other_programs_changes_are_not_lost(examples: int) -> None:
    """Random sequences interleave a session's steps with another program's."""
    # Shrinking a failure takes minutes, so only the slow run does it.
    phases = set(Phase) if examples > 100 else {Phase.explicit, Phase.reuse, Phase.generate}
    options = settings(max_examples=examples, stateful_step_count=20, phases=phases)
    run_state_machine_as_test(RecordingMachine, settings=options)
