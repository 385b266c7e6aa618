"""Recording: each interaction is on disk before the caller gets its response."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    get,
    killed,
    loaded_by_vcrpy,
    opened,
    paths_in,
    post,
    recorded,
    theirs,
    typed,
)

from directmail_lab.cassettes import Cassette, Policy, read_cassette
from directmail_lab.cassettes.convert import repair
from directmail_lab.errors import CassetteError, CassetteInUseError
from directmail_lab.exchange.values import Interaction
from directmail_lab.redaction import Redactor

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORKS = pytest.mark.posix("forks")


def add(path: Path, interaction: Interaction, **options: Any) -> None:
    with opened(path, **options) as cassette:
        cassette.record(interaction)


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    bodies = ("0", "1", "2" * 600)
    return recorded(
        tmp_path / "tour.yaml", *(answered(get(f"/{n}"), body) for n, body in enumerate(bodies))
    )


@pytest.mark.slow
@FORKS
def test_a_kill_at_any_moment_loses_nothing_that_the_caller_saw(tmp_path):
    """After SIGKILL at 200 random moments, everything acknowledged is there.

    vcrpy loads the repaired files.
    """
    chance = random.Random(20261121)
    for number in range(200):
        path, body = tmp_path / f"{number}.yaml", "x" * chance.choice([10, 1000, 30_000])
        out, into = os.pipe()
        if (child := os.fork()) == 0:
            with suppress(BaseException), opened(path) as cassette:
                for index in count():
                    cassette.record(answered(get(f"/{index}"), body))
                    os.write(into, b".")
            os._exit(1)
        os.close(into)
        acknowledged = len(os.read(out, 1))
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(out, "rb") as rest:
            acknowledged += len(rest.read())
        problem, paths, notices = str(read_cassette(path).problem), paths_in(path), list[str]()
        add(path, answered(get("/after")), notice=notices.append)

        assert 1 <= acknowledged <= len(paths) <= acknowledged + 1
        assert paths == [f"/{index}" for index in range(len(paths))]
        assert f"{len(paths)} interaction" in problem
        assert problem in notices[0]
        assert paths_in(path) == [*paths, "/after"]
        assert read_cassette(path).problem is None
        if path.stat().st_size < 500_000:
            assert loaded_by_vcrpy(path) == len(paths) + 1


@FORKS
def test_a_forked_child_records_nothing(tour):
    """A fork may happen while a thread records, so the file and its lock stay with the parent."""
    cassette = opened(tour)
    cassette.record(answered(get("/parent")))
    recorded_before = len(cassette)
    begun = cassette.start("GET")
    with cassette._lock:
        child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            cassette.record(answered(get("/child")), begun)
            status = len(cassette) != recorded_before or cassette.play(get("/0")) is None
            cassette.close()
            del cassette
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert tour.with_name("tour.yaml.lock").exists()
    cassette.record(answered(get("/after")))
    cassette.close()

    assert paths_in(tour) == ["/0", "/1", "/2", "/parent", "/after"]
    assert read_cassette(tour).problem is None


@pytest.mark.parametrize("written", [0, 1, 40, 10**9])
def test_ctrl_c_while_an_interaction_is_written_leaves_the_others_whole(tour, monkeypatch, written):
    write = os.write

    def interrupted(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        write(file, data[:written])
        raise KeyboardInterrupt

    with opened(tour) as cassette:
        cassette.record(answered(get("/before")))
        monkeypatch.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cassette.record(answered(get("/lost")))
        cassette.record(answered(get("/after")))

    assert paths_in(tour) == ["/0", "/1", "/2", "/before", "/after"]
    assert read_cassette(tour).problem is None


# If Ctrl-C comes between opening a file and entering its block, Python closes the file later.
@pytest.mark.posix("the removal of a file that such an interrupt has left open")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_anywhere_in_recording_leaves_a_whole_cassette(tmp_path):
    """Ctrl-C comes at each line of the cassette and of the recorder in turn."""
    for stop in count(1):
        path, lines = tmp_path / f"{stop}.yaml", 0
        add(path, answered(get("/before")))

        def trace(frame: Any, event: str, arg: Any, stop: int = stop) -> Any:
            nonlocal lines
            if Path(frame.f_code.co_filename).stem not in ("cassette", "recorder", "journal"):
                return None
            lines += event == "line"
            if event == "line" and lines == stop:
                raise KeyboardInterrupt
            return trace

        tracer = sys.gettrace()
        with opened(path) as cassette:
            sys.settrace(trace)
            with suppress(KeyboardInterrupt):
                cassette.record(answered(get("/maybe")))
            sys.settrace(tracer)
            cassette.record(answered(get("/after")))
        assert read_cassette(path).problem is None
        assert paths_in(path) in (["/before", "/after"], ["/before", "/maybe", "/after"])
        if lines < stop:
            break
    assert lines > 30


@pytest.mark.posix("links")
def test_a_link_to_a_cassette_uses_the_same_lock(tour):
    link = tour.with_name("link.yaml")
    link.symlink_to(tour)
    with opened(tour, "all", policy=Policy(aside=True)), pytest.raises(CassetteInUseError):
        opened(link)
    add(link, answered(get("/linked")))

    assert paths_in(tour) == ["/0", "/1", "/2", "/linked"]
    assert link.is_symlink()
    assert not list(tour.parent.glob("*.lock"))


@pytest.mark.posix("links")
def test_no_lock_is_taken_through_a_link(tour):
    victim = tour.with_name("victim")
    victim.write_text("mine")
    tour.with_name("tour.yaml.lock").symlink_to(victim)
    with suppress(CassetteError):
        add(tour, answered(get("/new")))

    assert victim.read_text() == "mine"


@pytest.mark.posix("links")
def test_a_re_recording_does_not_write_through_a_link(tour):
    """Neither the new file nor the journal is a link that somebody left there."""
    victim = tour.with_name("victim")
    for name in (".tour.yaml.new", "tour.yaml.part"):
        tour.with_name(name).symlink_to(victim)
    add(tour, answered(get("/new")), record_mode="all")

    assert paths_in(tour)[-1] == "/new"
    assert not victim.exists()


@pytest.mark.parametrize(("every_s", "times"), [(0.0, 5), (60.0, 3)])
def test_a_recording_is_synced_to_disk_meanwhile_and_at_its_end(
    tmp_path, monkeypatch, every_s, times
):
    """A power cut loses about a second; a kill loses nothing, since each write is immediate."""
    synced = mock.Mock()
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr("directmail_lab.cassettes.journal._FSYNC_EVERY_S", every_s)
    recorded(tmp_path / "tour.yaml", *[answered()] * 3)

    assert synced.call_count == times


@pytest.mark.parametrize("mode", ["new_episodes", "all"])
def test_an_interaction_is_on_disk_before_record_returns(tmp_path, mode):
    """Other readers find it at once. If the cassette was empty, "all" also records in place."""
    path = tmp_path / "tour.yaml"
    path.touch()
    with opened(path, mode) as cassette:
        cassette.record(answered(get("/first")))

        assert paths_in(path) == ["/first"]
        assert [each.request.uri for each in cassette.recording()] == [f"{BASE_URL}/first"]
        names = ["tour.yaml", "tour.yaml.lock", "tour.yaml.part"]
        assert sorted(file.name for file in tmp_path.iterdir()) == names


@pytest.mark.parametrize("mode", ["new_episodes", "any", "all"])
def test_a_recording_without_an_interaction_changes_nothing(tour, mode):
    before = tour.read_bytes()
    for path in (tour, tour.with_name("new.yaml")):
        opened(path, mode).close()

    assert tour.read_bytes() == before
    assert list(tour.parent.iterdir()) == [tour]


def test_a_re_recording_aside_replaces_the_cassette_only_at_close(tour):
    """Until then, every other reader sees the complete old cassette."""
    before = tour.read_bytes()
    with opened(tour, "all", policy=Policy(aside=True)) as cassette:
        cassette.record(answered(get("/0"), body="new"))

        assert tour.read_bytes() == before
        assert paths_in(tour) == ["/0", "/1", "/2"]
        with pytest.raises(CassetteInUseError):
            repair(tour)
        cassette.close("merge")
    assert paths_in(tour) == ["/0", "/1", "/2"]
    assert read_cassette(tour).interaction(1).response.body == b"new"
    assert list(tour.parent.iterdir()) == [tour]


@FORKS
def test_an_unfinished_re_recording_aside_leaves_the_old_cassette(tour):
    """Nobody said that it succeeded, whether it was killed or not."""
    before = tour.read_bytes()
    aside = {"record_mode": "all", "policy": Policy(aside=True)}
    killed(tour, lambda cassette: cassette.record(answered(get("/1"), "[1]")), **aside)
    assert tour.read_bytes() == before
    assert read_cassette(tour).problem is None
    cassette = opened(tour, **aside)
    cassette.record(answered(get("/1"), "[1]"))
    del cassette

    assert read_cassette(tour).problem is None
    assert tour.read_bytes() == before
    assert list(tour.parent.iterdir()) == [tour]


def test_a_replay_records_nothing(tour):
    with pytest.raises(CassetteError, match="opened to replay"):
        Cassette(tour).record(answered())


@pytest.mark.parametrize("as_json", [False, True])
def test_another_programs_cassette_is_rewritten_whole_at_the_first_interaction(tmp_path, as_json):
    """The file becomes our line layout, redacted and complete; until then it is unchanged."""
    path = theirs(
        tmp_path / "tour.yaml",
        answered(get(f"/old/{KEY}")),
        answered(post(b'{"a": 1}'), body="two"),
        as_json=as_json,
        by="vcrpy",
        recorded_with="another",
    )
    before = path.read_bytes()
    with opened(path, redactor=Redactor([KEY])) as cassette:
        assert path.read_bytes() == before
        cassette.record(answered(get("/new")))

    loaded = read_cassette(path)
    assert loaded.layout == "lines"
    assert paths_in(path) == ["/old/<API_KEY>", "/v1/letters", "/new"]
    assert loaded.interaction(2).response.body == b"two"
    assert loaded.metadata["by"] == "vcrpy"
    assert loaded.metadata["recorded_with"].startswith("directmail-lab")
    assert loaded.base_url == BASE_URL
    assert loaded_by_vcrpy(path) == len(loaded)


def test_an_interaction_is_redacted_and_not_written_if_it_still_leaks(tmp_path, monkeypatch):
    path = tmp_path / "tour.yaml"
    with opened(path, redactor=Redactor([KEY])) as cassette:
        cassette.record(answered(get(f"/a/{KEY}")))
        monkeypatch.setattr(Redactor, "interaction", lambda _, interaction: interaction)
        for leak in (answered(get(f"/b/{KEY}")), answered(body="x" * 3_000_000 + KEY)):
            with pytest.raises(CassetteError, match="still contained the key after redaction"):
                cassette.record(leak)

    assert paths_in(path) == ["/a/<API_KEY>"]
    monkeypatch.setattr(Redactor, "text", lambda _, text: text)
    with pytest.raises(CassetteError, match="still contained the key after redaction"):
        add(tmp_path / "b.yaml", answered(), redactor=Redactor([KEY]), base_url=f"{BASE_URL}/{KEY}")


def test_the_metadata_says_who_recorded_where_and_when(tmp_path):
    """The service address is redacted."""
    path, before = tmp_path / "tour.yaml", datetime.now(UTC)
    add(path, answered(), redactor=Redactor([KEY]), base_url=f"{BASE_URL}/{KEY}")

    metadata = read_cassette(path).metadata
    assert metadata["recorded_with"].startswith("directmail-lab ")
    assert metadata["base_url"] == f"{BASE_URL}/<API_KEY>"
    assert before <= datetime.fromisoformat(metadata["started_at"]) <= datetime.now(UTC)


def test_headers_are_corrected_for_the_decoded_body(tmp_path):
    coded = ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"), ("Content-Length", "99")
    path = recorded(tmp_path / "tour.yaml", typed("text/plain", b"decoded", *coded))
    headers = read_cassette(path).interaction(1).response.headers

    assert headers == (("Content-Type", "text/plain"), ("Content-Length", "7"))


def test_a_closed_recording_has_what_its_file_has(tmp_path):
    with opened(tmp_path / "tour.yaml", "update") as cassette:
        cassette.record(answered())

    assert len(cassette) == 1
    assert repr(cassette) == "<Cassette 'tour', update>"
