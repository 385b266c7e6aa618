"""Recordings of one cassette that take turns: it is locked only while something is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Timer

import httpx
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
from cells import GET, Notebook, new_kernel, new_service

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cassettes.library import is_locked
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, CassetteInUseError
from directmail_lab.exchange.values import Interaction
from directmail_lab.sessions.session import Session, open_cassette


def rest(cassette: Cassette) -> None:
    """Let others record, as a notebook does at the end of a cell."""
    cassette.fold(rests=True)


def wake(cassette: Cassette) -> None:
    """Begin a request."""
    assert list(cassette.hold()) == []
    cassette.release()


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
            assert not list(path.parent.glob("*.part"))
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
    (line,) = said
    assert ("is gone" if is_removed else "The recording is added to it.") in line


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
    assert list(cassette.hold()) == []
    rest(cassette)
    assert is_locked(cassette.path)
    begun = begin(cassette, letter("Ann"))
    cassette.release()
    rest(cassette)
    assert is_locked(cassette.path)
    cassette.record(letter("Ann"), begun)
    cassette.note_open(cassette.start("GET"), lambda _: None)
    rest(cassette)
    assert is_locked(cassette.path)
    cassette.close()

    assert not is_locked(cassette.path)


def test_no_rest_falls_between_the_end_of_a_body_and_its_record(tmp_path):
    """Another thread's cell may end while a response is written."""

    def rests(interaction: Interaction) -> Interaction:
        rest(cassette)
        locked_then.append(is_locked(cassette.path))
        return interaction

    locked_then: list[bool] = []
    cassette = opened(tmp_path / "tour.yaml", "update", before_record=rests)
    number = cassette.start("GET")
    cassette.note_open(number, lambda _: None)
    cassette.record(new("/0"), number)
    rest(cassette)

    assert locked_then == [True]
    assert not is_locked(cassette.path)


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    return recorded(tmp_path / "tour.yaml", new("/0"))


@pytest.fixture
def holder_of() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start other programs, which record a cassette until they get a line."""
    started = []

    def start(path: Path, base_url: str = BASE_URL) -> subprocess.Popen[str]:
        code = (
            "from cassette_samples import *; c = opened(Path(sys.argv[1]), base_url=sys.argv[2])\n"
            "print(flush=True); input()\n"
            "c.record(answered(get('/theirs', base=sys.argv[2]))); c.close(); input()"
        )
        command = [sys.executable, "-c", code, str(path), base_url]
        program = {**os.environ, "JPY_SESSION_NAME": "/a/b.ipynb"}
        place = {"cwd": Path(__file__).parent, "env": program}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, **place, **pipes))  # type: ignore[call-overload]
        started[-1].stdout.readline()
        return started[-1]

    yield start
    for each in started:
        with each:
            each.kill()


@pytest.fixture
def holder(tour: Path, holder_of: Callable[..., subprocess.Popen[str]]) -> subprocess.Popen[str]:
    return holder_of(tour)


def end_of(holder: subprocess.Popen[str]) -> None:
    """Let another program end its recording."""
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()


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
        end_of(holder)

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
                status = is_locked(tour)
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


def test_an_async_request_that_waits_does_not_block_its_event_loop(service, holder_of):
    session = Session(service.base_url, ApiKey(service.api_key))
    session.record("tour")
    cassette = open_cassette(session)
    assert cassette is not None
    rest(cassette)
    holder = holder_of(cassette.path, service.base_url)

    async def tick() -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        end_of(holder)

    async def both() -> httpx.Response:
        response, _ = await asyncio.gather(session.async_client.get("/v1/users/me"), tick())
        return response

    with session:
        assert asyncio.run(both()).status_code == 200
    theirs, _ = read_cassette(cassette.path)
    assert theirs.request.uri.endswith("/theirs")


# -- real kernels ----------------------------------------------------------------------------------

POST = (
    "try: print(dm.post('/v1/letters', json={{'to': {!r}}}, if_sent={!r}).status_code)\n"
    "except dm.errors.AlreadySentError as error: print('refused:', error)"
)


tab = pytest.fixture(scope="module")(new_kernel)
report = pytest.fixture(scope="module")(new_kernel)
counting = pytest.fixture(new_service)


@pytest.mark.slow
def test_two_kernels_record_one_notebook_in_turn(tab, report, counting, tmp_path):
    """Each knows what the other sent, and the newest response of each cell stays."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    for kernel in (tab, report):
        notebook.open(kernel, counting)
    assert notebook.run(tab, "A", "B") == ["1", "2"]
    assert notebook.run(report, "A") == ["3"]
    assert notebook.execute(tab, POST.format("Ann", "refuse"), "C") == "200"
    assert "refused: POST" in notebook.execute(report, POST.format("Ann", "refuse"), "C")
    assert "Nothing was sent" in notebook.execute(report, POST.format("Ann", "keep"), "D")
    assert notebook.execute(report, POST.format("Bob", "keep"), "D") == "200"
    assert "Nothing was sent" in notebook.execute(tab, POST.format("Bob", "keep"), "E")
    assert notebook.run(tab, "B") == ["4"]
    tab.kill()
    assert notebook.run(report, "B") == ["5"]

    assert counting.counts["POST"] == 2
    found = read_cassette(notebook.cassette).interactions
    assert [json.loads(each.response.body)["n"] for each in found] == [3, 5, 3, 3]
    assert list(notebook.cassette.parent.iterdir()) == [notebook.cassette]


@pytest.mark.slow
def test_a_tab_and_a_report_without_ids_replace_what_the_other_one_recorded(
    tab, report, counting, tmp_path
):
    """`jupyter execute` does not say which cell runs."""
    notebook = Notebook(tmp_path, {"A": GET})
    notebook.open(tab, counting)
    notebook.run(tab, "A")
    notebook.has_ids = False
    notebook.open(report, counting)
    notebook.run(report, "A")
    notebook.has_ids = True

    assert notebook.run(tab, "A") == ["3"]
    assert [each.response.body[:8] for each in read_cassette(notebook.cassette)] == [b'{"n": 3,']


@pytest.mark.slow
def test_a_kernel_waits_for_the_end_of_the_cell_that_records(tab, report, counting, tmp_path):
    notebook = Notebook(tmp_path, {"A": GET})
    for kernel in (tab, report):
        notebook.open(kernel, counting)
    reached = counting.holds_after(1)
    tab.start(f"{GET}\n{GET}", "A")
    assert reached.wait(60)
    Timer(1, counting.release).start()

    assert notebook.run(report, "A") == ["3"]


TASK = (
    "import asyncio\nasync def later():\n    await go.wait()\n"
    "    await dm.session().async_client.get('/v1/n')\n"
    "go = asyncio.Event(); task = asyncio.create_task(later())"
)
THREAD = (
    "import threading\ndef later():\n    go.wait(); dm.get('/v1/n')\n"
    "go = threading.Event(); threading.Thread(target=later).start()"
)
LARGE = (
    "from directmail_lab.cassettes import cassette, recorder\n"
    "recorder._MOST_BYTES_FOLDED_AT_ONCE = 0\n"
    f"cassette.BETWEEN_FOLDS_S = recorder.BETWEEN_FOLDS_S = 1\n{GET}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begins", "goes_on"), [(TASK, "go.set()"), (THREAD, "go.set()"), (LARGE, "0")]
)
def test_what_is_recorded_after_its_cell_is_folded_at_once_or_in_time(
    tab, counting, tmp_path, begins, goes_on
):
    """A task or a thread goes on after its cell, and the fold of a large cassette waits."""
    notebook = Notebook(tmp_path, {})
    tab.restart()
    notebook.open(tab, counting)
    notebook.execute(tab, begins, "A")
    notebook.execute(tab, goes_on, "B")
    until = time.monotonic() + 60
    while [*notebook.cassette.parent.iterdir()] != [notebook.cassette]:
        assert time.monotonic() < until
        time.sleep(0.05)

    assert len(read_cassette(notebook.cassette)) == 1
