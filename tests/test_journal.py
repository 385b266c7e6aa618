"""The journal of a recording: what it has at each moment, and how it becomes a part of its file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    begin,
    get,
    killed,
    killing_at,
    letter,
    loaded_by_vcrpy,
    opened,
    paths_in,
    post,
    recorded,
)
from hypothesis import given, strategies as st
from jupyter_client.manager import start_new_kernel

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.cassettes.convert import repair
from directmail_lab.cassettes.journal import journal_of, parse_journal
from directmail_lab.errors import CassetteFormatError
from directmail_lab.sessions.session import open_cassette

TOUR = Path("cassettes/tour.yaml")


def known(path: Path) -> list[tuple[str, int]]:
    """Return what a reader gets: paths or bodies of requests, and statuses (0: no response)."""
    return [
        (
            (each.request.body or b"").decode() or each.request.uri[len(BASE_URL) :],
            each.response.status,
        )
        for each in read_cassette(path)
    ]


# -- cells -----------------------------------------------------------------------------------------


@pytest.fixture
def run() -> Iterator[Callable[[str], str]]:
    """A function that runs a cell in a kernel, and returns what it prints."""
    manager, client = start_new_kernel(startup_timeout=300, kernel_name="python3")

    def run_cell(code: str) -> str:
        said: list[str] = []
        client.execute_interactive(
            code, timeout=300, output_hook=lambda m: said.append(str(m["content"].get("text", "")))
        )
        return "".join(said)

    yield run_cell
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_vcrpy_loads_the_whole_recording_after_each_cell(run, tmp_path):
    """The journal has no more than the file then; a write on its way is folded once it is known."""
    path = tmp_path / "cassettes" / "tour.yaml"
    run(f"import os; os.makedirs({str(path.parent)!r}); os.chdir({str(tmp_path)!r})")
    run("import directmail_lab as dm; service = dm.stand_in().__enter__()")
    run("dm.connect(service.base_url, service.api_key, allow_writes=True); dm.record('tour')")
    for number, code in enumerate(
        ["dm.me()", "dm.get('/v1/lists')", "dm.post('/v1/x', json={})", "1/0"], 1
    ):
        run(code)
        assert loaded_by_vcrpy(path) == min(number, 3)
        assert read_cassette(path).interactions == read_cassette(path).interactions
    assert run("print(len(dm.interactions()))").strip() == "3"
    run("dm.record('tour', max_age='1 day')")
    line = "Cassette 'tour': 1 request replayed (younger than 1 day), 1 sent.\n"
    assert run("dm.me(); dm.get('/v1/letters');") == line


def test_a_fold_waits_for_a_write_on_its_way(tmp_path):
    """Its response replaces it in the journal."""
    path = tmp_path / "tour.yaml"
    with opened(path) as cassette:
        begun = begin(cassette, letter("Ann"))
        cassette.record(answered(get("/1")))
        cassette.fold()
        assert loaded_by_vcrpy(path) == 0
        cassette.record(letter("Ann"), begun)
        cassette.fold()

        assert loaded_by_vcrpy(path) == 2
        assert known(path) == [('{"to": "Ann"}', 201), ("/1", 200)]


def test_a_large_recording_is_folded_after_a_pause(tmp_path, monkeypatch):
    """Nobody waits for it at each cell. Its end folds it in any case."""
    monkeypatch.setattr("directmail_lab.cassettes.recorder._MOST_BYTES_FOLDED_AT_ONCE", 200)
    path = tmp_path / "tour.yaml"
    with opened(path) as cassette:
        for number in range(5):
            cassette.record(answered(get(f"/{number}")))
            cassette.fold()
        assert loaded_by_vcrpy(path) == 0
        assert len(read_cassette(path)) == 5
        now = time.monotonic()
        monkeypatch.setattr("time.monotonic", lambda: now + 61)
        cassette.fold()
        assert loaded_by_vcrpy(path) == 5
        cassette.record(answered(get("/5")))
        cassette.fold()
        assert loaded_by_vcrpy(path) == 5

    assert loaded_by_vcrpy(path) == 6


# -- kills -----------------------------------------------------------------------------------------


def test_a_journal_cut_at_any_byte_has_all_that_was_acknowledged(tmp_path):
    """What a reader gets is what the recording had when the last whole record was written."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/0"), "old"), answered(get("/1")))
    part = journal_of(path)
    states: list[tuple[int, list[tuple[str, int]]]] = [(0, known(path))]
    with opened(path, "update") as cassette:

        def note() -> None:
            states.append((part.stat().st_size, known(path)))

        cassette.record(answered(get("/0"), "new", status=201))
        note()
        begun = begin(cassette, letter("Ann"))
        note()
        dropped = begin(cassette, letter("Bob"))
        note()
        cassette.record(letter("Ann"), begun)
        note()
        cassette.drop(dropped)
        note()
        cassette.record(answered(get("/é")))
        note()
        whole = part.read_bytes()
        file = path.read_bytes()

    copy = tmp_path / "copy.yaml"
    copy.write_bytes(file)
    for length in range(len(whole)):
        journal_of(copy).write_bytes(whole[:length])
        assert known(copy) == [state for size, state in states if size <= length][-1]


@pytest.mark.parametrize("file", ["tour.yaml", "tour.yaml.part"])
def test_a_recording_may_end_while_a_reader_opens_its_files(tmp_path, monkeypatch, file):
    """The reader sees it whole, although the fold has replaced one file and removed the other."""
    path = tmp_path / "tour.yaml"
    cassette = opened(path)
    cassette.record(answered(get("/1")))
    really_open = Path.open

    def open_late(self: Path, *args: Any) -> Any:
        if self.name == file:
            cassette.close()
        return really_open(self, *args)

    monkeypatch.setattr(Path, "open", open_late)
    assert paths_in(path) == ["/1"]


@given(
    st.binary(max_size=80)
    | st.lists(
        st.sampled_from(
            [
                *(b'{"request": 1, "size": 5, "replaces": []}\n', b'{"size": -9}\n', b"{}\n"),
                *(b'{"request": [], "size": 0}\n', b'{"base_url": 7}\n', b"null\n", b"[]\n"),
                *(b"- rec", b"\0" * 9),
            ]
        )
    ).map(b"".join)
)
def test_any_bytes_are_a_journal_without_interactions(data):
    """A disk may have anything after a power cut, and a stranger's folder too."""
    assert parse_journal(data).by_request == {}


@pytest.mark.slow
@pytest.mark.posix("fork")
@pytest.mark.parametrize("end", [Cassette.fold, Cassette.close])
def test_a_kill_anywhere_in_a_fold_loses_nothing(tmp_path, end):
    """There is the old file or the new one at each line, and the journal beside it if needed.

    What it was before a change of shape is whole, or not there; its new file may stay.
    """
    new = [("/0", 201), ("/1", 200), ('{"to": "Ann"}', 201)]
    for stop in count(1, 3):
        path = recorded(tmp_path / f"{stop}.yaml", answered(get("/0")), answered(get("/1")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fork of several threads
            child = os.fork()
        if child == 0:
            with suppress(BaseException):
                cassette = opened(path, "update")
                cassette.record(answered(get("/0"), "new", status=201))
                cassette.record(letter("Ann"), begin(cassette, letter("Ann")))
                sys.settrace(killing_at(stop))
                end(cassette)
                sys.settrace(None)
            os._exit(0)
        is_killed = os.waitpid(child, 0)[1] == signal.SIGKILL

        assert known(path) == new
        assert loaded_by_vcrpy(path) in (2, 3)
        with opened(path) as cassette:
            cassette.record(answered(get("/after")))
        assert known(path) == [*new, ("/after", 200)]
        before = tmp_path / f"{stop}.before.yaml"
        if before.exists():
            assert known(before) == [("/0", 200), ("/1", 200)]
        before.unlink(missing_ok=True)
        (tmp_path / f".{before.name}.new").unlink(missing_ok=True)
        assert list(tmp_path.iterdir()) == [path]
        path.unlink()
        if not is_killed:
            break
    assert stop > 30


@pytest.mark.posix("fork")
def test_what_a_kill_left_is_said_and_folded_by_a_repair(tmp_path):
    """So is it by the next recording."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/0")))
    killed(path, lambda cassette: [cassette.record(answered(get(f"/{n}"))) for n in (1, 2)])
    problem = "2 interactions recovered from a recording that did not end"

    assert read_cassette(path).problem == problem
    assert repair(path) == [f"Cassette 'tour': {problem}."]
    assert repair(path) == []
    assert paths_in(path) == ["/0", "/1", "/2"]
    assert loaded_by_vcrpy(path) == 3
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ends_by", ["", "sys.exit()", "del session; import gc; gc.collect()"])
def test_a_recording_that_its_process_leaves_open_is_in_its_file(service, tmp_path, ends_by):
    """Also the start of an open response. Else a second day would send the letter again."""
    script = f"""
import sys
from directmail_lab.sessions.session import Session
session = Session({service.base_url!r}, {service.api_key!r}, allow_writes=True)
session.record("tour")
response = session.client.send(session.client.build_request("GET", "/v1/lists"), stream=True)
parts = response.iter_raw(10)
next(parts)
session.post("/v1/letters", json={{"to": "Ann"}})
{ends_by}
"""
    for day in (1, 2):
        with service.fault(path="/v1/lists", body="x" * 200_000):
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=False
            )
        assert "AlreadySentError" in done.stderr if day == 2 else not done.stderr
        assert loaded_by_vcrpy(TOUR) == 2
        got, _ = sorted(read_cassette(TOUR), key=lambda each: each.request.method)
        assert got.response.cut == "left"
        assert got.response.body
        assert [each.name for each in TOUR.parent.iterdir()] == ["tour.yaml"]
    assert service.requests["POST /v1/letters"] == 1


# -- other programs --------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Path, bytes], object]] = {
    "folder removed": lambda path, _: shutil.rmtree(path.parent),
    "removed": lambda path, _: path.unlink(),
    "replaced": lambda path, old: (path.unlink(), path.write_bytes(old)),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"# an editor's line\n"),
    "same size": lambda path, _: path.write_bytes(path.read_bytes().replace(b"/day1", b"/dayX")),
    "as on the first day": lambda path, old: path.write_bytes(old),
    "empty": lambda path, _: path.write_bytes(b""),
}


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_whole_in_its_file_whatever_another_program_does(tmp_path, change, folds):
    """A notice says so; what the other program left stays, but for what the run replaces."""
    path = tmp_path / "own" / "tour.yaml"
    notices: list[str] = []
    recorded(path, answered(get("/day1")), answered(get("/again"), "old"))
    old = path.read_bytes()
    with opened(path, "update", notice=notices.append) as cassette:
        cassette.record(answered(get("/again"), "new"))
        cassette.record(letter("Ann"), begin(cassette, letter("Ann")))
        if folds:
            cassette.fold()
        CHANGES[change](path, old)
        cassette.record(answered(get("/after")))
        if folds:
            cassette.fold()
            assert known(path)[-1] == ("/after", 200)

    run = [("/again", 200), ('{"to": "Ann"}', 201), ("/after", 200)]
    gone = change in ("folder removed", "removed", "empty")
    others = [] if gone else [("/dayX" if change == "same size" else "/day1", 200)]
    assert known(path) == [*others, *run]
    assert read_cassette(path).interactions[len(others)].response.body == b"new"
    (notice,) = notices
    if change in ("folder removed", "removed"):
        assert notice.startswith(f"{path} is gone: it or its folder was renamed or removed")
    else:
        assert notice == f"Another program changed {path} meanwhile. The recording is added to it."
    assert [each.name for each in path.parent.iterdir()] == ["tour.yaml"]


def test_a_file_that_is_no_cassette_any_more_stays_as_it_is(tmp_path):
    """The recording stays in the journal until the file can be read."""
    path = tmp_path / "tour.yaml"
    notices: list[str] = []
    with opened(path, notice=notices.append) as cassette:
        cassette.record(answered(get("/1")))
        path.write_text("<<<<<<< mine\n")

    assert path.read_text() == "<<<<<<< mine\n"
    assert "conflict of a merge in git, from line 1 on" in notices[0]
    assert "safe beside it, in tour.yaml.part" in notices[0]
    path.unlink()
    path.touch()
    assert paths_in(path) == ["/1"]


# -- the order, and what is still open -------------------------------------------------------------


def test_responses_are_in_the_order_in_which_their_requests_began(live, service):
    """Not in that of the ends of their bodies, even if the recording was folded between."""
    with live.record("tour"):
        with live.client.stream("GET", "/v1/users/me") as first:
            second = live.get("/v1/users/me")
            cassette = open_cassette(live)
            assert cassette is not None
            cassette.fold()
            first.read()
        remaining = [r.headers["X-RateLimit-Remaining"] for r in (first, second)]
    with live.replay("tour"):
        played = [live.get("/v1/users/me").headers["X-RateLimit-Remaining"] for _ in "12"]

    assert played == remaining


def test_what_is_open_when_a_recording_ends_is_in_it_as_far_as_it_was_read(live, service, caplog):
    """Its caller has its status. If the caller reads on, a notice says that this is not in it."""
    live._network.allow_writes = True  # type: ignore[union-attr]
    body = "x" * 200_000
    live.record("tour")
    with service.fault(body=body):
        read = live.client.send(live.client.build_request("GET", "/v1/lists"), stream=True)
        unread = live.client.send(live.client.build_request("POST", "/v1/letters"), stream=True)
        start = next(read.iter_raw(1000))
        live.live()
    got, posted = read_cassette(TOUR)

    assert (got.response.status, got.response.cut) == (200, "left")
    assert got.response.body.startswith(start)
    assert len(got.response.body) < len(body)
    assert dict(got.response.headers)["Content-Length"] == "200000"
    assert (posted.response.status, posted.response.cut) == (unread.status_code, "left")
    assert posted.response.body == b""
    assert len(unread.read()) == len(body)
    read.close()
    assert list(read_cassette(TOUR)) == [got, posted]
    assert "ended before the response to a POST did" in caplog.text


# -- headers ---------------------------------------------------------------------------------------


def test_headers_are_recorded_as_they_came(live, service):
    """With the case of their names, and the length of a body that was not sent or read."""
    with live.record("tour"):
        with service.fault(headers={"X-Odd-CASE": "é"}):
            sent = live.get("/v1/lists")
        head = live.client.head("/v1/users/me")
    with live.replay("tour"):
        played = live.get("/v1/lists")
        played_head = live.client.head("/v1/users/me")

    passing = {"Connection", "Transfer-Encoding"}
    for live_response, again in ((sent, played), (head, played_head)):
        names = [name for name, _ in live_response.headers.raw]
        assert [name for name, _ in again.headers.raw] == [
            n for n in names if n.decode() not in passing
        ]
    assert played.headers["x-odd-case"] == sent.headers["x-odd-case"] == "é"
    assert played_head.headers["Content-Length"] == head.headers["Content-Length"] != "0"


@pytest.mark.parametrize("coding", ["identity", "none", "utf-8", "aws-chunked", "something"])
def test_a_harmless_content_encoding_is_recorded_as_it_came(live, service, coding):
    """httpx leaves such a body alone, and so does the recording."""
    with live.record("tour"), service.fault(headers={"Content-Encoding": coding}, body="x"):
        live.get("/v1/lists")
    with live.replay("tour"):
        played = live.get("/v1/lists")

    assert (played.text, played.headers["Content-Encoding"]) == ("x", coding)


# -- damage ----------------------------------------------------------------------------------------


def record_six(cassette: Cassette) -> None:
    for number in range(6):
        cassette.record(letter(str(number)), begin(cassette, letter(str(number))))


def damaged(data: bytes, damage: str) -> bytes:
    at = [found.start() for found in re.finditer(rb'(?m)^{"request"', data)]
    match damage:
        case "CRLF":
            return data.replace(b"\n", b"\r\n")
        case "zeros at its end":
            return data + bytes(300)
        case "zeros in its last record":
            return data[:-90] + bytes(60)
        case "another form":
            return data[: at[4]] + b'{"request": "x", "replaces": []}\n' + data[at[4] :]
        case "a wrong size":
            return data[: at[4]] + data[at[4] :].replace(b'"size": ', b'"size": 9', 1)
    place = data.index(b'"method"', at[4])
    return data[:place] + b"\xff" + data[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ("CRLF", 6),
        ("zeros at its end", 6),
        ("zeros in its last record", 6),  # the letter before it was sent
        ("another form", 6),
        ("a wrong size", 6),
        ("another byte", 6),
    ],
)
def test_a_damaged_journal_is_an_error_that_forgets_nothing(tmp_path, damage, left, monkeypatch):
    """All letters are in it: none would be sent again. A repair keeps what can be read."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/0")))
    killed(path, record_six)
    part = journal_of(path)
    part.write_bytes(damaged(part.read_bytes(), damage))
    before = part.read_bytes()
    if damage != "CRLF":
        for use in (read_cassette, lambda path: opened(path, "update")):
            with pytest.raises(CassetteFormatError, match=r"(?s)tour.yaml.part\s+is\s+damaged"):
                use(path)
        assert part.read_bytes() == before
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert len(read_cassette(path)) == 1
        assert "without its journal" in (read_cassette(path).problem or "")
        monkeypatch.undo()
    said = repair(path)

    assert len(read_cassette(path)) == 1 + left
    assert not part.exists()
    kept = [each.read_bytes() for each in tmp_path.glob("*.damaged-*")]
    assert kept == ([] if damage == "CRLF" else [before])
    assert ("is left out" in said[0]) == (damage != "CRLF")


def test_a_journal_that_was_removed_is_written_again_before_the_next_letter(tmp_path):
    """By ``git stash -u``, for example. A kill then forgets none of the letters before it."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/0")))

    def record(cassette: Cassette) -> None:
        record_six(cassette)
        journal_of(path).unlink()
        begin(cassette, letter("seven"))

    killed(path, record)

    assert len(read_cassette(path)) == 8


def test_a_kill_leaves_no_token_that_a_later_message_named(tmp_path):
    """The first response has it under another name, in the journal and in a folded cassette."""
    token = "hY5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"
    first = answered(get("/0"), f'{{"id": "{token}"}}')
    for folds in (False, True):
        path = tmp_path / f"{folds}.yaml"

        def record(cassette: Cassette, folds: bool = folds) -> None:
            cassette.record(first)
            cassette.record(answered(get("/1")))
            if folds:
                cassette.fold()
            bearer = (("Authorization", f"Bearer {token}"),)
            begin(cassette, answered(replace(post(b""), headers=bearer)))

        killed(path, record)
        repair(path)

        assert len(read_cassette(path)) == 3
        assert token not in path.read_text()
