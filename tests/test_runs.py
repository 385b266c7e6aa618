"""Recording again: every request is sent, and new responses replace those of earlier runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    count_calls,
    get,
    opened,
    paths_in,
    post,
    recorded,
    theirs,
)
from faulty_service import FaultyService
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import yamlserializer

import directmail_lab as dm
from directmail_lab.cassettes import Cassette, Matching, read_cassette, recorder
from directmail_lab.cassettes.convert import repair
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import (
    AlreadySentError,
    CassetteError,
    CassetteInUseError,
    OutcomeUnknownError,
    WriteRefusedError,
)
from directmail_lab.exchange.values import Interaction, Request, Response, no_response
from directmail_lab.questions.interactions import interactions
from directmail_lab.sessions.session import Session, open_cassette

if TYPE_CHECKING:
    from collections.abc import Callable

TOUR = Path("cassettes/tour.yaml")


def bodies(path: Path) -> list[tuple[str, bytes]]:
    """Return the path and the body of each interaction that readers get."""
    recording = read_cassette(path)
    return [(each.request.uri.removeprefix(BASE_URL), each.response.body) for each in recording]


def played(path: Path, times: int = 1, **options: Any) -> list[bytes]:
    """Return what a replay plays for a GET of /0."""
    cassette = Cassette(path, base_url=BASE_URL, **options)
    return [cassette.play(get("/0"))[-1].response.body for _ in range(times)]


def update(path: Path, *interactions: Interaction, mode: str = "update", **options: Any) -> Path:
    """Record these interactions in a new run."""
    with opened(path, mode, **options) as cassette:
        for each in interactions:
            cassette.record(each)
    return path


def killed(path: Path, record: Callable[[Cassette], object]) -> None:
    """Record in another process, which is killed before the recording ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of several threads
        child = os.fork()
    if child == 0:
        try:
            cassette = opened(path, "update")
            record(cassette)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def old(body: str = "old", *, status: int = 200, path: str = "/0") -> Interaction:
    return answered(get(path), body, status=status)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A cassette of an earlier day: /0 twice, /1 and /2."""
    interactions = [old("a"), old("b"), old("one", path="/1"), old("two", path="/2")]
    return recorded(tmp_path / "tour.yaml", *interactions)


# -- what is replaced ------------------------------------------------------------------------------


def test_a_new_response_replaces_all_old_ones_at_once(days: Path) -> None:
    """Other readers get it in their place before the recording ends, and so does vcrpy after it."""
    with opened(days, "update") as cassette:
        assert not cassette.play(get("/0"))
        cassette.record(old("new"))
        cassette.record(old("newer"))

        assert bodies(days) == [("/1", b"one"), ("/2", b"two"), ("/0", b"new"), ("/0", b"newer")]
        assert len(interactions(days)) == 4
        assert FilesystemPersister.load_cassette(days, yamlserializer)
    assert bodies(days) == [("/1", b"one"), ("/2", b"two"), ("/0", b"new"), ("/0", b"newer")]
    assert len(FilesystemPersister.load_cassette(days, yamlserializer)[0]) == 4
    assert read_cassette(days).problem is None
    assert list(days.parent.glob("*")) == [days]


@pytest.mark.posix("fork")
def test_a_killed_run_leaves_its_responses_and_one_file(days: Path) -> None:
    """Readers, a repair and the next recording have the new responses, without any action."""
    killed(days, lambda cassette: cassette.record(old("new")))
    expected = [("/1", b"one"), ("/2", b"two"), ("/0", b"new")]

    assert bodies(days) == expected
    assert played(days) == [b"new"]
    update(days, old("third", path="/1"))
    assert bodies(days) == [("/2", b"two"), ("/0", b"new"), ("/1", b"third")]
    assert list(days.parent.glob("*")) == [days]


def test_matching_is_that_of_the_recording(days: Path) -> None:
    """A reader needs neither its `ignore` nor its functions to read what was replaced."""
    update(days, old(path="/9?ts=1"), old(path="/9?ts=2"), mode="any")
    with opened(days, "update", matching=Matching(ignore=["query:ts"])) as cassette:
        cassette.record(old("new", path="/9?ts=3"))
        assert paths_in(days) == ["/0", "/0", "/1", "/2", "/9?ts=3"]
    same_method = Matching([lambda a, b: a.method == b.method])
    with opened(days, "update", matching=same_method) as cassette:
        cassette.record(old("only"))
        assert bodies(days) == [("/0", b"only")]


def test_another_programs_file_becomes_ours_and_is_replaced(tmp_path: Path) -> None:
    """It is rewritten before the first response is recorded."""
    path = theirs(tmp_path / "tour.yaml", old("a"), old("one", path="/1"))
    update(path, old("new"))

    assert bodies(path) == [("/1", b"one"), ("/0", b"new")]
    assert read_cassette(path).layout == "lines"


def test_a_redaction_that_was_added_on_the_second_day_applies_to_all(tmp_path: Path) -> None:
    """The old interactions are redacted too, so equal requests stay equal."""
    path = recorded(tmp_path / "tour.yaml", old(path="/0?name=Ann"), old(path="/1?name=Ann"))
    update(path, old("new", path="/0?name=Ann"), redactor=dm_redactor("name"))

    assert "Ann" not in path.read_text()
    assert [body for _, body in bodies(path)] == [b"old", b"new"]


def dm_redactor(*rules: str) -> Any:
    from directmail_lab.redaction import Redactor

    return Redactor(redact=rules)


def test_a_credential_that_is_learned_later_is_removed_from_what_was_written_before(
    tmp_path: Path,
) -> None:
    """When the recording ends, it is nowhere in the file."""
    token = "s3ss1on-0f-Ann-1"
    path = tmp_path / "tour.yaml"
    with opened(path, "update", base_url=BASE_URL) as cassette:
        cassette.record(old(f'{{"session": "{token}"}}'))
        cassette.record(old("between", path="/1"))
        headers = (("Authorization", f"Bearer {token}"),)
        cassette.record(answered(replace(get(f"/2?session={token}"), headers=headers)))

    assert token not in path.read_text()
    assert bodies(path)[0] == ("/0", b'{"session": "<REDACTED>"}')
    assert bodies(path)[2][0] == "/2?session=<REDACTED>"
    assert read_cassette(path).problem is None
    assert "other_base_urls" not in read_cassette(path).metadata


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_failure_replaces_no_success_and_is_not_played(days: Path, status: int) -> None:
    """It is shown, until a success replaces it."""
    update(days, old("failed", status=status))
    assert [body for _, body in bodies(days)] == [b"a", b"b", b"one", b"two", b"failed"]
    assert list(interactions(days)["status"]) == [200] * 4 + [status]
    assert played(days, 3) == [b"a", b"b", b"b"]
    recorder._runs.clear()
    update(days, old("again", status=status))
    assert [body for _, body in bodies(days)] == [b"a", b"b", b"one", b"two", b"again"]
    recorder._runs.clear()
    update(days, old("new"))

    assert [body for _, body in bodies(days)] == [b"one", b"two", b"new"]


def test_a_failure_is_played_until_there_is_a_success(tmp_path: Path) -> None:
    """A 401 replaces a 401, and a 200 of the same run is played in its place."""
    path = update(tmp_path / "tour.yaml", old("first", status=401))
    recorder._runs.clear()
    update(path, old("second", status=401))
    assert bodies(path) == [("/0", b"second")]
    assert played(path) == [b"second"]
    update(path, old("good"))

    assert played(path, 2) == [b"good", b"good"]


@pytest.mark.posix("fork")
def test_a_run_killed_between_a_429_and_its_200_plays_the_old_success(days: Path) -> None:
    """The attempts of one call are played together, once its success is recorded."""

    def attempts(cassette: Cassette) -> None:
        cassette.record(old("wait", status=429))
        assert played(days) == [b"a"]
        cassette.record(replace(old("new"), attempt=2))

    killed(days, attempts)

    assert played(days) == [b"new"]
    replay = Cassette(days, base_url=BASE_URL).play(get("/0"))
    assert [each.response.status for each in replay] == [429, 200]
    assert len(read_cassette(days)) == 4


# -- runs ------------------------------------------------------------------------------------------


def test_a_block_continues_a_run_and_a_statement_begins_one(live: Session) -> None:
    """A decorated call continues it too, and so does a mode that comes back after another one."""
    with live.record("tour"):
        live.me()
        with live.live():
            live.me()
        live.me()
    with live.record("tour"):
        live.me()
    live.record("tour")(live.me)()
    assert len(read_cassette(TOUR)) == 4
    live.record("tour")
    live.me()
    live.live()
    live.record("tour")
    live.close()

    assert len(read_cassette(TOUR)) == 1


def test_a_run_goes_on_after_a_close_that_failed(
    live: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without room for the new file, the journal is read, and folded by the next recording."""
    live.record("tour")
    live.me()
    live.record("tour")
    live.me()
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "write_cassette", full_disk)
        live.live()
        assert "is read from there" in caplog.text
        assert len(read_cassette(TOUR)) == 1
    live.record("tour")
    live.me()
    live.close()

    assert len(read_cassette(TOUR)) == 1
    assert read_cassette(TOUR).problem is None


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_cassette_of_over_half_the_limit_is_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is replaced makes room."""
    path = recorded(tmp_path / "tour.yaml", *(old("x" * 900, path=f"/{n}") for n in range(10)))
    monkeypatch.setattr(recorder, "MAX_FILE_BYTES", path.stat().st_size + 3000)
    monkeypatch.setattr(recorder, "_SPARE_BYTES", 100)
    with opened(path, "update") as cassette:
        for number in range(10):
            assert not cassette.play(get(f"/{number}"))
            cassette.record(old("y" * 900, path=f"/{number}"))

    assert bodies(path) == [(f"/{number}", b"y" * 900) for number in range(10)]


# -- writes ----------------------------------------------------------------------------------------


def letter(to: str, status: int = 201, **options: Any) -> Interaction:
    """Return a letter and its response."""
    request = post(b'{"to": "%s"}' % to.encode())
    return replace(answered(request, to, status=status), **options)


def statuses(path: Path) -> list[tuple[bytes | None, int]]:
    """Return the body and the status of each interaction that readers get."""
    return [(each.request.body, each.response.status) for each in read_cassette(path)]


def begin(cassette: Cassette, write: Interaction) -> Any:
    assert write.recorded_at is not None
    return cassette.begin(write.request, write.recorded_at)


@pytest.mark.parametrize("mode", ["update", "new_episodes", "once"])
def test_a_write_is_in_the_file_before_it_is_sent_until_its_response_replaces_it(
    tmp_path: Path, mode: str
) -> None:
    """vcrpy loads the file at each moment, and in the end it has the response alone."""
    path = tmp_path / "tour.yaml"
    with opened(path, mode) as cassette:
        begun = begin(cassette, letter("Ann"))
        (waiting,) = read_cassette(path)
        assert (waiting.request.body, waiting.response.no_response) == (
            b'{"to": "Ann"}',
            "interrupted",
        )
        assert FilesystemPersister.load_cassette(path, yamlserializer)
        cassette.record(old("between"))
        cassette.record(letter("Ann"), begun)
        assert FilesystemPersister.load_cassette(path, yamlserializer)
        assert statuses(path) == [(b'{"to": "Ann"}', 201), (b"", 200)]

    assert statuses(path) == [(b'{"to": "Ann"}', 201), (b"", 200)]
    assert "interrupted" not in path.read_text()


@pytest.mark.posix("fork")
def test_a_write_that_was_killed_before_its_response_is_known_to_the_next_run(
    tmp_path: Path,
) -> None:
    """It may have been carried out."""

    def two_letters(cassette: Cassette) -> None:
        cassette.record(letter("Bob"), begin(cassette, letter("Bob")))
        begin(cassette, letter("Ann"))

    killed(tmp_path / "tour.yaml", two_letters)
    with opened(tmp_path / "tour.yaml", "update") as cassette:
        sent = [cassette.sent_before(letter(to).request) for to in ("Ann", "Bob", "Cleo")]

    assert [[number for _, number, _ in each] for each in sent] == [[2], [1], []]


@pytest.mark.parametrize("between", [[], [old("between")]], ids=["the last one", "not the last"])
def test_a_write_that_was_not_sent_after_all_leaves_nothing(
    tmp_path: Path, between: list[Interaction]
) -> None:
    """No connection was made, or `before_record` left its response out."""
    path = tmp_path / "tour.yaml"
    with opened(path, "update") as cassette:
        cassette.record(old("first"))
        begun = begin(cassette, letter("Ann"))
        for each in between:
            cassette.record(each)
        cassette.drop(begun)
        cassette.record(letter("Bob"))

    assert b'{"to": "Ann"}' not in [body for body, _ in statuses(path)]
    assert len(read_cassette(path)) == 2 + len(between)
    assert read_cassette(path).problem is None


def test_a_response_that_comes_after_the_recording_ended_replaces_its_write(
    tmp_path: Path,
) -> None:
    """The file was written anew meanwhile, so the write has another number."""
    path = tmp_path / "tour.yaml"
    with opened(path, "update") as cassette:
        cassette.record(letter("Bob"), begin(cassette, letter("Bob")))
        begun = begin(cassette, letter("Ann"))
    assert statuses(path)[-1] == (b'{"to": "Ann"}', 0)
    cassette.record(letter("Ann"), begun)

    assert statuses(path) == [(b'{"to": "Bob"}', 201), (b'{"to": "Ann"}', 201)]


def test_nothing_is_replaced_by_a_response_that_could_not_be_written(days: Path) -> None:
    """After the disk is full, the old response stays; the next one replaces it."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(days, "update") as cassette:
        cassette.record(old("new", path="/1"))
        journal = days.with_name("tour.yaml.part")
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 10, limits[1]))
        try:
            with pytest.raises(CassetteError, match="could not be written"):
                cassette.record(old("lost"))
            with pytest.raises(CassetteError, match="The POST was not sent"):
                begin(cassette, letter("Ann"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        cassette.record(old("new"))

    assert bodies(days) == [("/2", b"two"), ("/1", b"new"), ("/0", b"new")]


def test_a_write_differs_from_an_earlier_one_by_any_value_and_its_type(tmp_path: Path) -> None:
    """An empty field is a field; the order of an object and its spaces do not count."""
    form = "application/x-www-form-urlencoded"
    sent = [post(b'{"x": true, "y": 2}'), post(b"to=ann", content_type=form)]
    same = [post(b'{"y":2,"x":true}'), post(b"to=ann", content_type=form)]
    others = [post(b'{"x": 1, "y": 2}'), post(b"to=ann&note=", content_type=form)]
    path = update(tmp_path / "tour.yaml", *(answered(each, status=201) for each in sent))
    with opened(path, "update") as cassette:
        assert all(map(cassette.sent_before, same))
        assert not any(map(cassette.sent_before, others))


def send_letter(cassette: Cassette, write: Interaction) -> None:
    """Record a write before it is sent, and its response."""
    assert not cassette.sent_before(write.request)
    cassette.record(write, begin(cassette, write))


def test_a_new_letter_takes_as_long_on_the_second_day_as_on_the_first(tmp_path: Path) -> None:
    """However many letters there are, none is compared with the new one."""
    steps = []
    for size in (20, 2000):
        path = tmp_path / f"{size}.yaml"
        update(path, *(letter(f"{number}") for number in range(size)))
        with opened(path, "update") as cassette:
            send_letter(cassette, letter("first"))  # which reads the old ones once
            steps.append(count_calls(partial(send_letter, cassette, letter("second"))))

    assert steps[0] == steps[1]


def fail_and_succeed(cassette: Cassette, request_id: str) -> None:
    """Record a failure and then a success of the same request, with headers of their own."""
    request = replace(get("/0"), headers=(("x-request-id", request_id),))
    cassette.record(answered(request, status=503))
    cassette.record(answered(request))


def test_failures_and_changing_headers_take_as_long_as_on_the_first_day(tmp_path: Path) -> None:
    """The old responses to an address are read once, not for each of the new ones."""
    steps = []
    for size in (20, 1000):
        path = tmp_path / f"{size}.yaml"
        update(path, *(old(f"{number}") for number in range(size)))
        with opened(path, "update") as cassette:
            fail_and_succeed(cassette, "1")
            steps.append(count_calls(partial(fail_and_succeed, cassette, "2")))

    assert steps[0] == steps[1]


@pytest.fixture
def writing(service: FaultyService) -> Any:
    """A live session that may write, at a service that is no stand-in of this process."""
    from directmail_lab import settings

    settings._stand_ins.clear()
    with Session(service.base_url, ApiKey(service.api_key), allow_writes=True) as opened_session:
        yield opened_session


def send(session: Session, query: str = "") -> int:
    return session.post(f"/v1/letters{query}", json={"to": "Ann"}).status_code


def test_a_write_of_an_earlier_run_is_refused_before_it_is_sent(
    writing: Session, service: FaultyService
) -> None:
    """Twice in one run is twice. The error has what a program needs."""
    writing.record("tour")
    assert [send(writing), send(writing)] == [201, 201]
    writing.record("tour")
    with pytest.raises(AlreadySentError, match="was sent before") as refused:
        send(writing)
    writing.close()

    assert service.requests["POST /v1/letters"] == 2
    assert (refused.value.cassette, refused.value.number, refused.value.status) == ("tour", 2, 201)
    assert refused.value.sent_at == read_cassette(TOUR).interaction(2).recorded_at
    assert isinstance(refused.value, WriteRefusedError)
    choices = ('if_sent="keep"', 'if_sent="send"')
    for word in ("201", "interaction 2 of cassette 'tour'", "ignore", *choices):
        assert word in str(refused.value)


def test_a_refused_letter_has_the_number_of_its_row_after_reads_were_recorded_again(
    writing: Session,
) -> None:
    """The reads that are recorded again move behind the letter."""
    writing.record("tour")
    for path in ("/v1/users/me", "/v1/lists"):
        writing.get(path)
    send(writing)
    writing.record("tour")
    for path, number in (("/v1/users/me", 2), ("/v1/lists", 1)):
        writing.get(path)
        with pytest.raises(AlreadySentError, match=f"interaction {number} of") as refused:
            send(writing)
        assert interactions("tour")["method"][refused.value.number] == "POST"


@pytest.mark.parametrize(("status", "is_refused"), [(303, 1), (500, 1), (503, 1), (422, 0)])
def test_only_a_write_that_was_refused_may_be_sent_again(
    writing: Session, service: FaultyService, status: int, is_refused: int
) -> None:
    """After a redirect or a fault of the service, it may have been carried out."""
    writing.record("tour")
    with service.fault(status=status):
        send(writing)
    writing.record("tour")
    if is_refused:
        with pytest.raises(AlreadySentError):
            send(writing)
    else:
        assert send(writing) == 201


@pytest.mark.parametrize("fault", [{}, {"status": 500}, {"drop": "reset"}])
@pytest.mark.parametrize("status", [401, 422])
def test_a_refused_write_does_not_replace_one_that_may_have_been_carried_out(
    writing: Session, service: FaultyService, fault: dict[str, Any], status: int
) -> None:
    """It was sent again on purpose. A later run still knows of the first one, until a success."""
    writing.record("tour")
    with service.fault(**fault), suppress(OutcomeUnknownError):
        send(writing)
    for _ in range(2):
        writing.record("tour", record_mode="all")
        with service.fault(status=status):
            send(writing)
    writing.record("tour")
    with pytest.raises(AlreadySentError):
        send(writing)
    statuses = [each.response.status for each in read_cassette(TOUR)]
    with writing.record("tour", record_mode="all"):
        assert send(writing) == 201

    assert statuses == [0 if "drop" in fault else fault.get("status", 201), status]
    assert [each.response.status for each in read_cassette(TOUR)] == [201]


@pytest.mark.parametrize("mode", ["new_episodes", "any"])
def test_a_mode_that_replays_sends_no_write_again_whose_response_was_lost(
    writing: Session, service: FaultyService, mode: Any
) -> None:
    """There is nothing to play, and the write may have been carried out."""
    writing.record("tour")
    with service.fault(drop="reset"), suppress(OutcomeUnknownError):
        send(writing)
    writing.record("tour", record_mode=mode)
    with pytest.raises(AlreadySentError, match="no response came") as refused:
        send(writing)

    assert service.requests["POST /v1/letters"] == 1
    assert 'if_sent="keep"' not in str(refused.value)


LETTERS_OF_CHILDREN = """
import os, signal, sys
from directmail_lab.sessions.session import Session

base_url, key, rounds = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def dying_at(moment):
    write = os.write
    written = []
    def dying_write(file, data):
        data = bytes(data)
        if b'letters?n=%d"' % number in data:
            written.append(data)
            name = "request" if len(written) == 1 else "response"
            if moment == f"before the {name} is written":
                die()
            if moment == f"while the {name} is written":
                write(file, data[: len(data) // 2])
                die()
        return write(file, data)
    os.write = dying_write
    return lambda name, _: name == f"http11.{moment}" and die()

MOMENTS = [
    "before the request is written",
    "while the request is written",
    "send_request_headers.started",
    "send_request_body.complete",
    "receive_response_headers.complete",
    "receive_response_body.complete",
    "before the response is written",
    "while the response is written",
    "after all",
]
number = 0
for _ in range(int(rounds)):
    for moment in MOMENTS:
        child = os.fork()
        if not child:
            with Session(base_url, key, allow_writes=True) as session:
                session.record("tour")
                options = {"json": {"to": "Ann"}, "extensions": {"trace": dying_at(moment)}}
                session.client.post(f"/v1/letters?n={number}", **options)
                die()
        os.waitpid(child, 0)
        number += 1
print(number)
"""


@pytest.mark.slow
@pytest.mark.posix("fork")
def test_a_letter_whose_process_was_killed_is_sent_once_and_known(
    writing: Session, service: FaultyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each moment, from before it is in the cassette until its response is: 207 kills."""
    rounds = 23
    received = Counter[str]()
    response_to = service.response_to

    def counted(request: Request) -> Response:
        received[request.uri.partition("?")[2]] += 1
        return response_to(request)

    monkeypatch.setattr(service, "response_to", counted)
    command = [sys.executable, "-c", LETTERS_OF_CHILDREN, service.base_url, service.api_key]
    output = subprocess.check_output([*command, str(rounds)], timeout=600, text=True)
    queries = [f"n={number}" for number in range(int(output))]
    of_children = set(received)
    writing.record("tour")
    refused = set()
    for query in queries:
        try:
            send(writing, f"?{query}")
        except AlreadySentError:
            refused.add(query)

    assert len(of_children) == 6 * rounds
    assert of_children <= refused
    assert received == Counter(of_children) + Counter(set(queries) - refused)


@pytest.mark.posix("fork")
@pytest.mark.parametrize("ask", [lambda session: session.me(), lambda session: send(session)])
def test_a_forked_child_sends_nothing_that_it_cannot_record(
    writing: Session, service: FaultyService, ask: Callable[[Session], object]
) -> None:
    """It cannot add to the file, so a later run would not know of its letters."""
    writing.record("tour")
    writing.me()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of several threads
        pid = os.fork()
    if not pid:
        code = 1
        try:
            ask(writing)
        except CassetteError as error:
            code = 0 if "was not sent" in str(error) else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert service.requests.total() == 1
    writing.close()
    assert len(read_cassette(TOUR)) == 1


def test_a_write_that_cannot_be_recorded_is_not_sent(
    writing: Session, service: FaultyService
) -> None:
    """The disk is full. Once there is room, it is sent."""
    resource = pytest.importorskip("resource")
    writing.record("tour")
    writing.me()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (TOUR.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(CassetteError, match="The POST was not sent"):
            send(writing)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert service.requests["POST /v1/letters"] == 0

    assert send(writing) == 201
    assert service.requests["POST /v1/letters"] == 1


def test_a_write_without_a_connection_leaves_nothing_in_the_cassette(writing: Session) -> None:
    """Nothing was sent, so it is not known as sent."""
    with Session("http://127.0.0.1:9", ApiKey("k" * 20), allow_writes=True) as session:
        session.record("elsewhere")
        with pytest.raises(httpx.ConnectError, match="No server responds"):
            send(session)
    path = Path("cassettes/elsewhere.yaml")

    assert not path.exists() or len(read_cassette(path)) == 0


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_write_that_any_error_interrupts_is_recorded(
    writing: Session, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A handler of a signal may raise it while the response is awaited."""
    handle = httpx.HTTPTransport.handle_request

    def interrupted(transport: Any, request: Any) -> Any:
        handle(transport, request).close()
        raise error

    writing.record("tour")
    with monkeypatch.context() as patch:
        patch.setattr(httpx.HTTPTransport, "handle_request", interrupted)
        with pytest.raises(error):
            send(writing)
    writing.record("tour")

    with pytest.raises(AlreadySentError, match="no response came"):
        send(writing)


def test_a_write_is_recorded_although_its_recording_is_interrupted(
    writing: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come while a long response is redacted. What came is recorded without its body."""
    writing.record("tour")
    record, interrupts = Cassette.record, [KeyboardInterrupt]

    def interrupted(*args: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return record(*args)

    monkeypatch.setattr(Cassette, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        send(writing)
    writing.record("tour")

    with pytest.raises(AlreadySentError, match="201"):
        send(writing)


def test_a_write_whose_response_comes_after_the_recording_ended_is_recorded(
    writing: Session, service: FaultyService
) -> None:
    """The recording is opened for it, and closed again. Somebody else's lock is a notice."""
    answer = service.response_to
    writing.record("tour")

    def late(request: Request) -> Response:
        writing.live()
        return answer(request)

    with mock.patch.object(service, "response_to", late):
        assert send(writing) == 201
    assert read_cassette(TOUR).problem is None
    writing.record("tour")

    with pytest.raises(AlreadySentError):
        send(writing)


@pytest.mark.parametrize(
    "fault", [{"drop": "reset"}, {"cut_after": 3}, {"headers": {"Content-Encoding": "gzip, gzip"}}]
)
def test_a_write_whose_response_was_lost_is_recorded_and_refused(
    writing: Session, service: FaultyService, fault: dict[str, Any]
) -> None:
    """What arrived is recorded; a replay raises the error again."""
    writing.record("tour")
    with service.fault(**fault), pytest.raises(OutcomeUnknownError):
        send(writing)
    rows = interactions(writing)
    writing.record("tour")
    with pytest.raises(AlreadySentError):
        send(writing)
    writing.replay("tour")
    with pytest.raises(OutcomeUnknownError):
        send(writing)

    assert service.requests["POST /v1/letters"] == 1
    assert len(rows) == 1
    assert read_cassette(TOUR).interaction(1).response.failure is not None


def test_a_read_whose_response_is_lost_leaves_nothing(
    unpaced: Session, service: FaultyService
) -> None:
    """A dropped network must not become part of a tour."""
    unpaced.record("tour")
    with service.fault(drop="reset"), suppress(Exception):
        unpaced.me()
    unpaced.me()
    unpaced.close()

    assert [each.response.status for each in read_cassette(TOUR)] == [200]


def test_a_write_that_never_left_may_be_sent(writing: Session) -> None:
    """If no connection was made, nothing was carried out."""
    response = no_response("connect_error")
    assert response is not None
    writing.record("tour")
    cassette = open_cassette(writing)
    assert cassette is not None
    request = post(b'{"to": "Ann"}')
    uri = f"{writing.base_url}/v1/letters"
    cassette.record(Interaction(replace(request, uri=uri), response))
    writing.record("tour")

    assert send(writing) == 201


def test_around_one_call_a_write_is_sent_again_and_the_run_goes_on(
    writing: Session, service: FaultyService
) -> None:
    """In mode "all" the write replaces the old one, which then belongs to this run."""
    writing.record("tour")
    send(writing)
    writing.me()
    writing.record("tour")
    writing.me()
    with writing.record("tour", record_mode="all"):
        assert send(writing) == 201
    writing.me()
    send(writing)
    writing.close()

    assert service.requests["POST /v1/letters"] == 3
    assert [each.request.method for each in read_cassette(TOUR)] == ["GET", "POST", "GET", "POST"]


def test_around_one_call_a_write_is_replayed_with_a_warning(
    writing: Session, service: FaultyService
) -> None:
    """What was replayed is marked so, and the run goes on."""
    writing.record("tour")
    send(writing)
    writing.record("tour")
    with (
        writing.record("tour", record_mode="new_episodes"),
        pytest.warns(UserWarning, match="Nothing was sent: this POST is replayed from 'tour'"),
    ):
        assert send(writing) == 201
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writing.me()

    assert service.requests["POST /v1/letters"] == 1
    assert list(interactions(writing)["source"]) == ["recorded", "replayed", "recorded"]
    assert list(dm.rate_limits(writing)["source"]) == ["recorded", "replayed", "recorded"]


def test_writes_that_differ_only_in_a_redacted_field_count_as_one(writing: Session) -> None:
    """The error says so."""
    writing.record("tour")
    send(writing, "?client_secret=first-secret")
    writing.record("tour")
    with pytest.raises(AlreadySentError, match="redaction, ignore or match_on"):
        send(writing, "?client_secret=other-secret")


def test_a_stand_in_of_this_process_takes_a_write_again() -> None:
    """It charges nothing."""
    with dm.stand_in() as service:
        dm.connect(service.base_url, service.api_key, allow_writes=True)
        for _ in range(2):
            dm.record("tour")
            assert dm.post("/v1/letters", json={}).status_code == 201


# -- shapes ----------------------------------------------------------------------------------------


def test_a_response_of_another_shape_is_named_once_for_an_operation(tmp_path: Path) -> None:
    """So old numbers never pass for new ones: the next cell's KeyError has a reason."""

    def day(price: str) -> list[Interaction]:
        items = [{"id": number, price: 85, "state": "sent"} for number in (1, 2)]
        listed = old(json.dumps({"items": items}), path="/v1/letters?page=1")
        each = [old(json.dumps(item), path=f"/v1/letters/{item['id']}") for item in items]
        failed = old('{"error": "down"}', path="/v1/lists", status=503 if price == "price" else 200)
        refused = old("{}", path="/v1/letters?page=1", status=503)
        return [refused, replace(listed, attempt=2), *each, failed]

    notices: list[str] = []
    path = update(tmp_path / "tour.yaml", *day("price_cents"))
    for price in ("price_cents", "price"):
        update(path, *day(price), notice=notices.append)

    change = "price_cents is gone, {}price is new. Until now, cassette 'tour' had"
    listed, each = notices
    assert listed.startswith("GET /v1/letters: items[]." + change.format("items[]."))
    assert each.startswith("GET /v1/letters/{id}: " + change.format(""))


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [recorded, theirs])
def test_a_cassette_of_another_address_is_refused(tmp_path: Path, make: Any) -> None:
    """Nothing is sent, and the file stays. A named mode adds to it."""
    path = make(tmp_path / "tour.yaml", old())
    before = path.read_bytes()
    for mode in ("update", "all"):
        with pytest.raises(CassetteError, match=r"api\.example\.test.*other\.test") as refused:
            Cassette(path, record_mode=mode, base_url="https://other.test")
        assert "another name" in str(refused.value)
        assert "new_episodes" in str(refused.value)
    Cassette(path, record_mode="new_episodes", base_url="https://other.test").close()
    opened(path, "update").close()

    assert path.read_bytes() == before


def test_all_addresses_of_this_machine_are_one(tmp_path: Path) -> None:
    """The stand-in has another port each time."""
    urls = ["http://127.0.0.1:5001", "http://127.0.0.1:5002", "http://localhost:5003"]
    for day, url in enumerate(urls):
        recorder._runs.clear()
        with opened(tmp_path / "tour.yaml", "update", base_url=url) as cassette:
            cassette.record(answered(get("/0", base=url), f"{day}"))

    assert [each.response.body for each in read_cassette(tmp_path / "tour.yaml")] == [b"2"]
    assert read_cassette(tmp_path / "tour.yaml").base_urls == ("http://localhost:5003",)


def test_of_another_programs_file_only_origins_are_compared(tmp_path: Path) -> None:
    """It names no base address, which may have a path."""
    path = theirs(tmp_path / "tour.yaml", answered(get("/api/0")))
    with opened(path, "update", base_url=f"{BASE_URL}/api") as cassette:
        cassette.record(answered(get("/api/0"), "new"))

    assert [body for _, body in bodies(path)] == [b"new"]


# -- what reads the file meanwhile -----------------------------------------------------------------


def test_an_unknown_mode_and_an_unreadable_file_change_nothing(tmp_path: Path) -> None:
    """The error says what is valid, and a run never destroys a file."""
    path = tmp_path / "tour.yaml"
    path.write_text("mine")
    with pytest.raises(ValueError, match='"update", "none"'):
        Cassette(path, record_mode="updates")  # type: ignore[arg-type]
    with pytest.raises(CassetteError, match="not a cassette"):
        Cassette(path, record_mode="update")

    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_notebook_that_connects_again_records_again(service: FaultyService) -> None:
    """IPython keeps the first session in ``Out``, so that nobody has closed it."""
    address = service.base_url, service.api_key
    kept = []
    for _ in range(2):
        kept.append(dm.connect(*address))
        dm.record("tour")
        dm.me()
    mine = Session(service.base_url, ApiKey(service.api_key))
    dm.live()
    with mine, mine.record("tour"), pytest.raises(CassetteInUseError):
        dm.record("tour")
    dm.logout()
    first, second = kept
    first.close()

    assert len(read_cassette(TOUR)) == 1
    assert service.requests.total() == 2
    assert interactions("tour")["at"].tolist() == interactions(second)["at"].tolist()


@pytest.mark.posix("forks")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("seed", range(5))
def test_a_kill_at_any_moment_of_a_run_leaves_old_or_new_responses(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """A process records run after run, and SIGKILL comes while it writes, closes or compacts.

    For each request the file has one run's response: the last that was acknowledged, or the one
    that was being written.
    """
    chance, path, names = random.Random(seed), tmp_path / "tour.yaml", [f"/{n}" for n in range(8)]
    recorded(path, *(old("0", path=name) for name in names))
    acknowledged, copy = dict.fromkeys(names, 0), tmp_path_factory.mktemp("copy") / "tour.yaml"
    for round_ in range(1, 53):
        out, into = os.pipe()
        if (child := os.fork()) == 0:
            with suppress(BaseException):
                for run in range(round_ * 1000, round_ * 1000 + 999):
                    with opened(path, "update") as cassette:
                        for name in chance.sample(names, 5):
                            cassette.record(old(str(run) + " " * 3000, path=name))
                            os.write(into, f"{name} {run}\n".encode())
            os._exit(1)
        os.close(into)
        os.read(out, 1)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(out) as rest:
            told = f"/{rest.read()}".splitlines()
        acknowledged |= {name: int(run) for name, run in map(str.split, told)}
        have = bodies(path)

        assert sorted(name for name, _ in have) == names
        last = max(acknowledged.values())
        for name, body in have:
            assert int(body) == acknowledged[name] or int(body) in (last, last + 1)
        shutil.copy(path, copy)
        if not copy.read_bytes().endswith(b"\n"):  # the kill came within a write
            repair(copy)
        assert len(FilesystemPersister.load_cassette(copy, yamlserializer)[0]) >= len(names)
        acknowledged = {name: int(body) for name, body in have}
        for left in tmp_path.glob("*"):
            assert left.name in ("tour.yaml", "tour.yaml.lock", "tour.yaml.part", ".tour.yaml.new")
