"""Recordings of one cassette that take turns: it is locked only while something is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    begin,
    get,
    killing_at,
    letter,
    opened,
    paths_in,
    recorded,
)

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.errors import CassetteError, CassetteInUseError
from directmail_lab.exchange.values import Interaction


def rest(cassette: Cassette) -> None:
    """Let others record, as a notebook does at the end of a cell."""
    cassette.fold(rests=True)


def wake(cassette: Cassette) -> None:
    """Begin a request."""
    with cassette.held() as pauses:
        assert list(pauses) == []


def bodies(path: Path) -> list[tuple[str, bytes]]:
    recording = read_cassette(path)
    return [(each.request.uri.removeprefix(BASE_URL), each.response.body) for each in recording]


def new(path: str, body: str = "new") -> Interaction:
    return answered(get(path), body)


def test_recordings_in_turn_know_what_the_others_sent_and_lose_nothing(tmp_path):
    path = tmp_path / "tour.yaml"
    first = opened(path, "update")
    rest(first)
    second = opened(path, "update")
    for turn in range(3):
        for cassette, other in ((first, second), (second, first)):
            name = f"{turn} {cassette is first}"
            cassette.record(letter(name), begin(cassette, letter(name)))
            rest(cassette)
            assert list(path.parent.iterdir()) == [path]
            wake(other)
            assert len(other.sent_before(letter(name).request)) == 1
            rest(other)
    first.close()
    second.close()

    assert len(read_cassette(path)) == 6


@pytest.mark.parametrize("mode", ["new_episodes", "any"])
def test_what_others_recorded_is_replayed_and_not_sent(tmp_path, mode):
    """What was played or recorded here before stays played, and is sent again."""
    path = recorded(tmp_path / "tour.yaml", new("/0"), new("/1"))
    first = opened(path, mode)
    assert first.play(get("/0"))
    first.record(new("/2"))
    rest(first)
    with opened(path, mode) as second:
        second.record(new("/3"))
    wake(first)
    found = [bool(first.play(get(f"/{number}"))) for number in range(4)]

    assert found == [False, True, False, True]


# -- others change the file ------------------------------------------------------------------------


def test_what_others_replaced_stays_replaced(tmp_path):
    """So it is if two kernels execute one notebook, as a report does while its tab is open."""
    path = recorded(tmp_path / "tour.yaml", new("/0", "old"))
    said: list[str] = []
    tab = opened(path, "update", notice=said.append)
    tab.record(new("/0", "tab"))
    tab.record(new("/1", "tab"))
    rest(tab)
    with opened(path, "update") as report:
        report.record(new("/0", "report"))
        report.record(new("/1", "report"))
    tab.record(new("/2", "tab"))
    tab.close()

    assert bodies(path) == [("/0", b"report"), ("/1", b"report"), ("/2", b"tab")]
    assert said == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_to_a_reverted_or_removed_file_the_whole_run_is_added_again(tmp_path, is_removed):
    """It replaces again what it had replaced, and a notice says so."""
    path = recorded(tmp_path / "tour.yaml", new("/0", "old"), new("/9", "old"))
    before = path.read_bytes()
    said: list[str] = []
    cassette = opened(path, "update", notice=said.append)
    cassette.record(new("/0"))
    cassette.record(letter("Ann"), begin(cassette, letter("Ann")))
    rest(cassette)
    path.unlink()
    if not is_removed:
        path.write_bytes(before)
    wake(cassette)
    cassette.record(new("/2"))
    cassette.close()

    others = [] if is_removed else [("/9", b"old")]
    assert bodies(path) == [("/0", b"new"), *others, ("/v1/letters", b"{}"), ("/2", b"new")]
    assert said == [f"Another program changed {path} meanwhile. The recording is added to it."]


def test_a_letter_is_added_again_beside_what_others_recorded_to_a_reverted_file(tmp_path):
    path = recorded(tmp_path / "tour.yaml", new("/0", "old"))
    before = path.read_bytes()
    cassette = opened(path, "update")
    cassette.record(new("/0"))
    cassette.record(letter("Ann"), begin(cassette, letter("Ann")))
    rest(cassette)
    path.write_bytes(before)
    with opened(path, "update") as other:
        other.record(new("/0", "other"))
    wake(cassette)
    cassette.close()

    assert bodies(path) == [("/0", b"other"), ("/v1/letters", b"{}")]


def test_a_damaged_file_is_an_error_before_anything_is_sent_until_it_is_whole_again(tmp_path):
    path = recorded(tmp_path / "tour.yaml", new("/0"))
    cassette = opened(path, "update")
    cassette.record(new("/1"))
    rest(cassette)
    whole = path.read_bytes()
    path.write_bytes(b"- {")
    for _ in range(2):
        with pytest.raises(CassetteError):
            wake(cassette)
    path.write_bytes(whole)
    cassette.record(new("/2"))
    cassette.close()

    assert paths_in(path) == ["/0", "/1", "/2"]


# -- who waits, and for what -----------------------------------------------------------------------


def test_no_rest_falls_between_the_start_of_a_request_and_its_response(tmp_path):
    cassette = opened(tmp_path / "tour.yaml", "update")
    with cassette.held():
        rest(cassette)
        assert cassette.is_recording
        begun = begin(cassette, letter("Ann"))
    rest(cassette)
    assert cassette.is_recording
    cassette.record(letter("Ann"), begun)
    cassette.note_open(cassette.start("GET"), lambda _: None)
    rest(cassette)
    assert cassette.is_recording
    cassette.close()

    assert not cassette.is_recording


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    return recorded(tmp_path / "tour.yaml", new("/0"))


@pytest.fixture
def holder(tour: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program, which records the cassette until it gets a line."""
    code = (
        "from cassette_samples import *; c = opened(Path(sys.argv[1])); print(flush=True)\n"
        "input(); c.record(answered(get('/theirs'))); c.close(); input()"
    )
    command = [sys.executable, "-c", code, str(tour)]
    place = {"cwd": Path(__file__).parent, "env": {**os.environ, "JPY_SESSION_NAME": "/a/b.ipynb"}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **place, **pipes) as other:  # type: ignore[call-overload]
        other.stdout.readline()
        yield other
        other.kill()


def test_a_second_program_is_refused_until_the_first_has_ended(tour, holder, monkeypatch):
    """No mode may write at the same time, but all may read. The error says who writes."""
    monkeypatch.setattr("directmail_lab.cassettes.cassette._MOST_PAUSES", 1)
    for mode in ("new_episodes", "any", "all"):
        with pytest.raises(CassetteInUseError, match=rf"{holder.pid} \(b\.ipynb, since .* UTC\)"):
            opened(tour, mode)
    Cassette(tour).close()
    holder.kill()
    holder.wait()

    opened(tour).close()


def test_a_program_waits_for_the_turn_of_another_one_and_says_so_once(tour, holder, monkeypatch):
    said: list[str] = []

    def end(notice: str) -> None:
        said.append(notice)
        holder.stdin.write("\n")
        holder.stdin.flush()

    with opened(tour, "new_episodes", notice=end) as cassette:
        assert cassette.play(get("/theirs"))
    (line,) = said

    assert line.startswith(f"Cassette 'tour' is being recorded by process {holder.pid} (b.ipynb, ")
    assert line.endswith(" UTC). Waiting up to 10 seconds for that.")


@pytest.mark.posix("fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_never_wakes(tour):
    cassette = opened(tour)
    cassette.record(new("/1"))
    rest(cassette)
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            wake(cassette)
            rest(cassette)
            try:
                cassette.start("POST")
            except CassetteError:
                status = cassette.is_recording
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    cassette.record(new("/2"))
    cassette.close()

    assert paths_in(tour) == ["/0", "/1", "/2"]


@pytest.mark.slow
@pytest.mark.posix("fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_kill_anywhere_in_a_hand_over_loses_nothing(tmp_path, is_changed):
    """It comes at each line of the fold, of the rest, of waking and of the next record in turn."""
    sent = {b'{"to": "Ann"}', b'{"to": "Bob"}'}
    for stop in count(1, 3):
        path = recorded(tmp_path / f"{stop}.yaml", new("/0", "old"))
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                cassette = opened(path, "update")
                cassette.record(new("/0"))
                cassette.record(letter("Ann"), begin(cassette, letter("Ann")))
                tracer = killing_at(stop)
                sys.settrace(tracer)
                rest(cassette)
                if is_changed:
                    sys.settrace(None)
                    with opened(path, "update") as other:
                        other.record(letter("Bob"))
                    sys.settrace(tracer)
                wake(cassette)
                cassette.record(letter("Cleo"), begin(cassette, letter("Cleo")))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        with opened(path, "update") as later:
            found = [each.request.body for each in later.recording()]
            assert later.sent_before(letter("Ann").request)
        assert sent.intersection(found) == (sent if is_changed else {b'{"to": "Ann"}'}) or status
        assert bodies(path)[0] == ("/0", b"new")
        assert len(found) == len({*found}) <= 4
        assert list(tmp_path.glob("*.part")) == []
        if not status:
            break
    assert stop > 60
