"""Recording again: every request is sent, and new responses replace those of earlier runs."""

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
from typing import Any

import httpx
import pytest
from cassette_samples import (
    BASE_URL,
    NOON,
    answered,
    begin,
    count_calls,
    get,
    killed,
    letter,
    loaded_by_vcrpy,
    opened,
    paths_in,
    recorded,
    theirs,
)
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.cassettes import Cassette, Matching, read_cassette, recorder
from directmail_lab.cassettes.convert import repair
from directmail_lab.cassettes.library import before_of, cassettes_by_name
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import (
    AlreadySentError,
    CassetteError,
    OutcomeUnknownError,
    WriteRefusedError,
)
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.questions.interactions import interactions
from directmail_lab.redaction import Redactor
from directmail_lab.sessions.session import Session

TOUR = Path("cassettes/tour.yaml")


def bodies(path: Path) -> list[tuple[str, bytes]]:
    recording = read_cassette(path)
    return [(each.request.uri.removeprefix(BASE_URL), each.response.body) for each in recording]


def played(path: Path, times: int = 1, **options: Any) -> list[bytes]:
    """Return what a replay plays for a GET of /0."""
    cassette = Cassette(path, base_url=BASE_URL, **options)
    return [cassette.play(get("/0"))[-1].response.body for _ in range(times)]


def update(path: Path, *interactions: Interaction, mode: str = "update", **options: Any) -> Path:
    with opened(path, mode, **options) as cassette:
        for each in interactions:
            cassette.record(each)
    return path


def old(body: str = "old", *, status: int = 200, path: str = "/0") -> Interaction:
    return answered(get(path), body, status=status)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A cassette of an earlier day: /0 twice, /1 and /2."""
    interactions = [old("a"), old("b"), old("one", path="/1"), old("two", path="/2")]
    return recorded(tmp_path / "tour.yaml", *interactions)


# -- what is replaced ------------------------------------------------------------------------------


def test_a_new_response_replaces_all_old_ones_at_once(days):
    """The new ones stand in the place of the first."""
    with opened(days, "update") as cassette:
        assert not cassette.play(get("/0"))
        cassette.record(old("new"))
        cassette.record(old("newer"))

        assert bodies(days) == [("/0", b"new"), ("/0", b"newer"), ("/1", b"one"), ("/2", b"two")]
        assert len(interactions(days)) == 4
        assert loaded_by_vcrpy(days) == 4
    assert bodies(days) == [("/0", b"new"), ("/0", b"newer"), ("/1", b"one"), ("/2", b"two")]
    assert loaded_by_vcrpy(days) == 4
    assert read_cassette(days).problem is None
    assert list(days.parent.glob("*")) == [days]


def test_matching_is_that_of_the_recording(days):
    """A reader needs neither its `ignore` nor its functions to read what was replaced."""
    update(days, old(path="/9?ts=1"), old(path="/9?ts=2"), mode="any")
    with opened(days, "update", matching=Matching(ignore=["query:ts"])) as cassette:
        cassette.record(old("new", path="/9?ts=3"))
        assert paths_in(days) == ["/0", "/0", "/1", "/2", "/9?ts=3"]
    same_method = Matching([lambda a, b: a.method == b.method])
    with opened(days, "update", matching=same_method) as cassette:
        cassette.record(old("only"))
        assert bodies(days) == [("/0", b"only")]


def test_a_redaction_that_was_added_on_the_second_day_applies_to_all(tmp_path):
    """The old interactions are redacted too, so equal requests stay equal."""
    path = recorded(tmp_path / "tour.yaml", old(path="/0?name=Ann"), old(path="/1?name=Ann"))
    update(path, old("new", path="/0?name=Ann"), redactor=Redactor(redact=["name"]))

    assert "Ann" not in path.read_text()
    assert [body for _, body in bodies(path)] == [b"new", b"old"]


def test_a_credential_that_is_learned_later_is_removed_from_what_was_written_before(tmp_path):
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
def test_a_failure_that_would_replace_a_success_is_not_recorded(days, status):
    update(days, old("failed", status=status))
    assert played(days, 3) == [b"a", b"b", b"b"]
    assert list(interactions(days)["status"]) == [200] * 4
    update(days, old("new"), old("failed", status=status), old("newer"))

    assert played(days, 3) == [b"new", b"failed", b"newer"]
    assert len(read_cassette(days)) == 5


def test_on_each_day_a_refusal_and_a_success_play_in_their_order(tmp_path):
    """The refusal replaces that of the day before, and so does the success."""
    path = tmp_path / "tour.yaml"
    for day in "12":
        update(path, old(f"refused {day}", status=401), old(f"good {day}"))

        assert played(path, 2) == [f"refused {day}".encode(), f"good {day}".encode()]
        assert len(read_cassette(path)) == 2


@pytest.mark.posix("fork")
def test_a_run_killed_between_a_429_and_its_200_plays_the_old_success(days):
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


def test_a_block_continues_a_run_and_a_statement_begins_one(live):
    """A mode that comes back after another one continues it, too."""
    with live.record("tour"):
        live.me()
        with live.live():
            live.me()
        live.me()
    with live.record("tour"):
        live.me()
    assert len(read_cassette(TOUR)) == 3
    live.record("tour")
    live.me()
    live.live()
    live.record("tour")
    live.close()

    assert len(read_cassette(TOUR)) == 1


def test_a_cassette_of_over_half_the_limit_is_recorded_again(tmp_path, monkeypatch):
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


def statuses(path: Path) -> list[tuple[bytes | None, int]]:
    return [(each.request.body, each.response.status) for each in read_cassette(path)]


@pytest.mark.parametrize("mode", ["update", "new_episodes", "once"])
def test_a_write_is_in_the_file_before_it_is_sent_until_its_response_replaces_it(tmp_path, mode):
    path = tmp_path / "tour.yaml"
    with opened(path, mode) as cassette:
        begun = begin(cassette, letter("Ann"))
        (waiting,) = read_cassette(path)
        assert waiting.request.body == b'{"to": "Ann"}'
        assert waiting.response.cut == "interrupted"
        assert loaded_by_vcrpy(path) == 0
        cassette.record(old("between"))
        cassette.record(letter("Ann"), begun)
        assert statuses(path) == [(b'{"to": "Ann"}', 201), (b"", 200)]

    assert statuses(path) == [(b'{"to": "Ann"}', 201), (b"", 200)]
    assert loaded_by_vcrpy(path) == 2


@pytest.mark.posix("fork")
def test_a_write_that_was_killed_before_its_response_is_known_to_the_next_run(tmp_path):
    """It may have been carried out."""

    def two_letters(cassette: Cassette) -> None:
        cassette.record(letter("Bob"), begin(cassette, letter("Bob")))
        begin(cassette, letter("Ann"))

    killed(tmp_path / "tour.yaml", two_letters)
    with opened(tmp_path / "tour.yaml", "update") as cassette:
        sent = [cassette.sent_before(letter(to).request) for to in ("Ann", "Bob", "Cleo")]

    assert [[write.number for write in each] for each in sent] == [[2], [1], []]


def test_a_write_stays_known_if_its_response_comes_after_the_recording_ended(tmp_path):
    """A notice says so, and a later run refuses to send it again."""
    path = tmp_path / "tour.yaml"
    said: list[str] = []
    with opened(path, "update", notice=said.append) as cassette:
        begun = begin(cassette, letter("Ann"))
    recorded = cassette.record(letter("Ann"), begun)
    with opened(path, "update") as later:
        known = later.sent_before(letter("Ann").request)

    assert recorded is None
    assert statuses(path) == [(b'{"to": "Ann"}', 0)]
    assert said == [
        "The recording of cassette 'tour' ended before the response to a POST did. The cassette "
        "has only what came before."
    ]
    assert len(known) == 1


def test_a_write_is_not_sent_if_the_recording_has_ended_meanwhile(tmp_path):
    """Its request had begun before, and waited: no later run would know of it."""
    with opened(tmp_path / "tour.yaml", "update") as cassette:
        begun = cassette.start("POST")

    with pytest.raises(CassetteError, match="It was not sent"):
        cassette.begin_write(letter("Ann").request, NOON, begun)
    assert len(cassette) == 0


def a_letter(cassette: Cassette, number: int) -> None:
    write = letter(f"new {number}")
    assert not cassette.sent_before(write.request)
    cassette.record(write, begin(cassette, write))


def a_failure_and_a_success(cassette: Cassette, number: int) -> None:
    """Record them for the same request, with headers of their own."""
    request = replace(get("/0"), headers=(("x-request-id", f"{number}"),))
    cassette.record(answered(request, status=503))
    cassette.record(answered(request))


@pytest.mark.parametrize("record", [a_letter, a_failure_and_a_success])
def test_a_request_takes_as_long_on_the_second_day_as_on_the_first(tmp_path, record):
    """However much was recorded, it is read once, and none of it is compared with the new one."""
    steps = []
    for size in (20, 1000):
        path = tmp_path / f"{size}.yaml"
        is_letter = record is a_letter
        update(path, *(letter(f"{n}") if is_letter else old(f"{n}") for n in range(size)))
        with opened(path, "update") as cassette:
            record(cassette, 1)  # which reads the old ones once
            steps.append(count_calls(partial(record, cassette, 2)))

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


def test_a_write_of_an_earlier_run_is_refused_before_it_is_sent(writing, service):
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


def test_a_refused_letter_has_the_number_of_its_row_after_reads_were_recorded_again(writing):
    """One read replaces two, and stands in the place of the first."""
    writing.record("tour")
    for path in ("/v1/users/me", "/v1/lists", "/v1/users/me"):
        writing.get(path)
    send(writing)
    writing.record("tour")
    for path, number in (("/v1/users/me", 3), ("/v1/lists", 3)):
        writing.get(path)
        with pytest.raises(AlreadySentError, match=f"interaction {number} of") as refused:
            send(writing)
        assert interactions("tour")["method"][refused.value.number] == "POST"


@pytest.mark.parametrize("fault", [{}, {"status": 500}, {"drop": "reset"}])
@pytest.mark.parametrize("status", [401, 422])
def test_a_refused_write_does_not_replace_one_that_may_have_been_carried_out(
    writing, service, fault, status
):
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
def test_a_mode_that_replays_sends_no_write_again_whose_response_was_lost(writing, service, mode):
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
def test_a_letter_whose_process_was_killed_is_sent_once_and_known(writing, service, monkeypatch):
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
def test_a_forked_child_sends_nothing_that_it_cannot_record(writing, service, ask):
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


def test_a_write_without_a_connection_leaves_nothing_in_the_cassette(writing):
    with Session("http://127.0.0.1:9", ApiKey("k" * 20), allow_writes=True) as session:
        session.record("elsewhere")
        with pytest.raises(httpx.ConnectError, match="No server responds"):
            send(session)
    path = Path("cassettes/elsewhere.yaml")

    assert not path.exists() or len(read_cassette(path)) == 0


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_write_that_any_error_interrupts_is_recorded(writing, monkeypatch, error):
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


def test_a_write_is_recorded_although_its_recording_is_interrupted(writing, monkeypatch):
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


def test_around_one_call_a_write_is_sent_again_and_the_run_goes_on(writing, service):
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
    assert [each.request.method for each in read_cassette(TOUR)] == ["POST", "GET", "GET", "POST"]


def test_a_stand_in_of_this_process_takes_a_write_again():
    """It charges nothing."""
    with dm.stand_in() as service:
        dm.connect(service.base_url, service.api_key, allow_writes=True)
        for _ in range(2):
            dm.record("tour")
            assert dm.post("/v1/letters", json={}).status_code == 201


# -- shapes ----------------------------------------------------------------------------------------


def test_a_response_of_another_shape_is_named_once_for_an_operation(tmp_path):
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


def shaped(path: Path, price: str) -> list[str]:
    """Record a run with this name of a field, and return what it said."""
    notices: list[str] = []
    letters = old(json.dumps({price: 85}), path="/v1/letters/1")
    update(path, letters, old('{"id": 1}', path="/v1/lists"), notice=notices.append)
    return notices


def test_a_change_of_shape_keeps_the_cassette_as_it_was_before_the_run():
    """The line of the notice compares the two; no list has the old one; the next replaces it."""
    path = Path("cassettes/weekly.yaml")
    shaped(path, "price")
    line = 'dm.drift("weekly.before", against="weekly")'
    for price, before in (("cents", "price"), ("cents", "price"), ("euros", "cents")):
        notices = shaped(path, price)
        found = eval(line, {"dm": dm})

        assert [line in each for each in notices] == [True] * len(notices)
        assert list(found["change"]) == ["removed", "added"]
        assert next(json.loads(body) for _, body in bodies(before_of(path))) == {before: 85}
    assert "weekly" in cassettes_by_name()
    assert "weekly.before" not in cassettes_by_name()
    assert len(dm.interactions(Path("cassettes"))) == 2


def test_a_run_keeps_what_was_before_its_first_change_of_shape(tmp_path):
    """Its next block changes another shape: both old ones are in the one file that it keeps."""
    path = tmp_path / "weekly.yaml"
    shaped(path, "price")
    notices: list[str] = []
    for place, body in (("/v1/letters/1", '{"cents": 85}'), ("/v1/lists", '{"key": 1}')):
        with opened(path, "update", notice=notices.append) as cassette:
            if notices:
                cassette.continue_run()
            cassette.record(old(body, path=place))

    assert ["weekly.before.yaml" in each for each in notices] == [True, False]
    assert [body for _, body in bodies(before_of(path))] == [b'{"price": 85}', b'{"id": 1}']


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [recorded, theirs])
def test_a_cassette_of_another_address_is_refused(tmp_path, make):
    """Nothing is sent, and the file stays."""
    path = make(tmp_path / "tour.yaml", old())
    before = path.read_bytes()
    for mode in ("update", "all", "new_episodes"):
        with pytest.raises(CassetteError, match=r"api\.example\.test.*other\.test") as refused:
            Cassette(path, record_mode=mode, base_url="https://other.test")
        assert "another name" in str(refused.value)
        assert "replace=True" in str(refused.value)
    opened(path, "update").close()

    assert path.read_bytes() == before


@pytest.mark.posix("modes of files, and fork")
def test_a_cassette_of_another_address_begins_anew_if_that_is_asked_for(tmp_path):
    """The old file is kept once, and is replaced with the first response, also before a kill."""
    path = recorded(tmp_path / "tour.yaml", old("staging"))
    path.chmod(0o600)
    before = path.read_bytes()
    there = {"base_url": "https://other.test", "begins_anew": True}
    with opened(path, "update", **there):
        assert path.read_bytes() == before
    killed(
        path, lambda cassette: cassette.record(answered(get(base="https://other.test"))), **there
    )
    opened(path, "update", **there).close()
    new = read_cassette(path)

    assert [each.request.uri for each in new] == ["https://other.test/v1/users/me"]
    assert new.base_urls == ("https://other.test",)
    assert bodies(before_of(path)) == [("/0", b"staging")]
    assert before_of(path).stat().st_mode & 0o777 == 0o600


def test_an_old_file_of_two_addresses_is_read_and_begins_anew_with_its_letters(tmp_path):
    """What was sent to this address counts as sent."""
    path = recorded(
        tmp_path / "tour.yaml",
        answered(get("/0", base="https://other.test"), "other"),
        letter("Ann"),
    )
    said: list[str] = []
    address = f'"base_url": "{BASE_URL}"'
    more = f'{address}, "other_base_urls": ["https://other.test"]'
    path.write_text(path.read_text().replace(address, more))
    with Cassette(path, base_url=BASE_URL, notice=said.append) as cassette:
        played = cassette.play(get("/0"))
    with pytest.raises(CassetteError, match="begin it anew"):
        opened(path, "update")
    with opened(path, "update", begins_anew=True) as cassette:
        known = cassette.sent_before(letter("Ann").request)

    assert said == [f"Cassette 'tour': it has responses of {BASE_URL} and https://other.test."]
    assert played[0].response.body == b"other"
    assert len(known) == 1


def test_a_change_of_shape_does_not_replace_what_the_same_run_kept_when_it_began_anew(tmp_path):
    path = recorded(
        tmp_path / "tour.yaml",
        answered(get("/0", base="https://other.test"), "other"),
        old('{"price": 85}', path="/1"),
    )
    address = f'"base_url": "{BASE_URL}"'
    more = f'{address}, "other_base_urls": ["https://other.test"]'
    path.write_text(path.read_text().replace(address, more))
    said: list[str] = []
    with opened(path, "update", begins_anew=True, notice=said.append) as cassette:
        cassette.record(old('{"cents": 85}', path="/1"))

    assert [body for _, body in bodies(path)] == [b'{"cents": 85}']
    assert [body for _, body in bodies(before_of(path))] == [b"other", b'{"price": 85}']
    assert ["tour.before.yaml" in each for each in said] == [True, False]


def test_all_addresses_of_this_machine_are_one(tmp_path):
    """The stand-in has another port each time."""
    urls = ["http://127.0.0.1:5001", "http://127.0.0.1:5002", "http://localhost:5003"]
    for day, url in enumerate(urls):
        recorder._runs.clear()
        with opened(tmp_path / "tour.yaml", "update", base_url=url) as cassette:
            cassette.record(answered(get("/0", base=url), f"{day}"))

    assert [each.response.body for each in read_cassette(tmp_path / "tour.yaml")] == [b"2"]
    assert read_cassette(tmp_path / "tour.yaml").base_urls == ("http://localhost:5003",)


def test_what_was_recorded_at_another_port_of_this_machine_is_played(tmp_path):
    """A later recording at a new port has sent only some of the requests."""
    for port in (5001, 5002):
        base = f"http://127.0.0.1:{port}"
        with opened(tmp_path / "tour.yaml", "update", base_url=base) as cassette:
            cassette.record(answered(get(f"/{port}", base=base), f"{port}"))
    with Cassette(tmp_path / "tour.yaml", base_url="http://localhost:7") as cassette:
        played = [
            cassette.play(get(f"/{port}", base="http://localhost:7")) for port in (5001, 5002)
        ]

    assert [each[0].response.body for each in played] == [b"5001", b"5002"]


def test_of_another_programs_file_only_origins_are_compared(tmp_path):
    """It names no service address, which may have a path."""
    path = theirs(tmp_path / "tour.yaml", answered(get("/api/0")))
    with opened(path, "update", base_url=f"{BASE_URL}/api") as cassette:
        cassette.record(answered(get("/api/0"), "new"))

    assert [body for _, body in bodies(path)] == [b"new"]


# -- what reads the file meanwhile -----------------------------------------------------------------


def test_a_notebook_that_connects_again_records_again(service):
    """IPython keeps the first session in ``Out``, so that nobody has closed it."""
    address = service.base_url, service.api_key
    kept = []
    for _ in range(2):
        kept.append(dm.connect(*address))
        dm.record("tour")
        dm.me()
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
    tmp_path, tmp_path_factory, seed
):
    """For each request the file has the response that was acknowledged last, or a newer one."""
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
        assert loaded_by_vcrpy(copy) >= len(names)
        acknowledged = {name: int(body) for name, body in have}
        for left in tmp_path.glob("*"):
            assert left.name in ("tour.yaml", "tour.yaml.lock", "tour.yaml.part", ".tour.yaml.new")
