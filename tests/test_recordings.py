"""`Recording`, of a file or of a session: how it numbers interactions, and what it keeps."""

import asyncio
import gzip
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from inspect import iscoroutinefunction
from pathlib import Path
from unittest import mock

import httpx
import pandas as pd
import pytest
from cassette_samples import BASE_URL, answered, get, opened, recorded, theirs, typed
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.cassettes import Cassette, Policy, memory, read_cassette
from directmail_lab.exchange.bodies import MAX_UNPACKED_BYTES
from directmail_lab.exchange.values import Request, Response
from directmail_lab.notebook.browser_data import detail, rows
from directmail_lab.sessions.session import Session, open_recording


def test_interactions_are_numbered_from_one(tour):
    recording = read_cassette(tour)

    assert [each.response.status for each in recording] == [200, 200, 404, 201]
    assert recording.interaction(3).response.status == 404
    assert recording.path_of(recording.interaction(3).request) == "/v1/lists/8f14e45f"
    for number in (0, 5, -1):
        with pytest.raises(dm.errors.CassetteError, match="4 interactions, numbered from 1"):
            recording.interaction(number)


def test_a_sessions_interactions_are_shown_without_the_key(service, live):
    """The session keeps all bodies unchanged, recorded or not, and redacts them when shown."""
    with service.fault(echo_key=True, encoding="gzip"):
        live.me()
    number = len(live.recording)
    shown = live.recording.interaction(number)

    assert live.recording.has_bodies(number)
    assert b"<API_KEY>" in shown.response.body
    assert "content-encoding" not in dict(shown.response.headers)
    assert service.api_key not in f"{shown.request}{shown.response.headers}{shown.response.body!r}"
    assert service.api_key not in f"{vars(live)}{live.recording!r}"


def test_what_comes_after_the_key_is_forgotten_is_not_kept(live):
    """Nothing could redact it any more: neither the rest of a response, nor a later request."""
    recording = live.recording
    with live.client.stream("GET", "/v1/users/me") as late:
        recording.redact_for_good()
        late.read()
    with live.client.stream("GET", "/v1/lists"):
        pass
    kept = [(each.request.headers, each.response.body) for each in recording]

    assert kept == [((), b"")] * 2


def test_old_bodies_are_dropped_but_their_readings_remain(live, monkeypatch):
    monkeypatch.setattr(memory, "_MAX_KEPT_BYTES", 15_000)
    for _ in range(10):
        live.me()
    kept = [live.recording.has_bodies(number) for number in range(1, 11)]
    first = live.recording.interaction(1)

    assert kept == sorted(kept)
    assert kept[0] is False
    assert kept[-1] is True
    assert (first.request.method, first.request.uri) == ("GET", f"{live.base_url}/v1/users/me")
    assert [each.remaining for each in live.recording.readings()] == list(range(299, 289, -1))


def test_a_replays_recording_has_the_files_bodies_and_the_requested_addresses(
    tmp_path, monkeypatch
):
    """A replay keeps no bodies in memory: it reads them from the file, and decodes them."""
    monkeypatch.setattr(memory, "_MAX_KEPT_BYTES", 0)
    packed = typed("text/plain", gzip.compress(b"plain"), ("Content-Encoding", "gzip"))
    path = theirs(tmp_path / "a.yaml", answered(get("/v1/x?b=2&a=1")), packed)
    with Session("https://eu.test") as session, session.replay(path):
        played = [session.get("/v1/x?a=1&b=2", headers={"X-Mine": "1"}), session.get("/v1/x")]
        kept, has_bodies = list(session.recording), session.recording.has_bodies(1)

    assert [each.content for each in played] == [b'{"id": 1}', b"plain"]
    assert [each.response.body for each in kept] == [b'{"id": 1}', b"plain"]
    assert has_bodies
    assert [each.request.uri for each in kept] == [str(each.url) for each in played]
    assert kept[0].request.headers == (("Accept", "*/*"),)
    assert "Content-Encoding" not in dict(kept[1].response.headers)


def test_another_programs_file_is_read_without_its_credentials(tmp_path):
    """Redaction covers every place that repeats the token."""
    token = "s3cr3t-t0ken-0123456789"
    request = replace(get("/v1/a"), headers=(("Authorization", f"Bearer {token}"),))
    echo = answered(request, body=f'{{"x": "{token}"}}')
    recording = read_cassette(theirs(tmp_path / "a.yaml", echo, about=f"of {token}"))
    (interaction,) = recording

    assert interaction.request.headers == ()
    assert b"s3cr3t" not in interaction.response.body
    assert "s3cr3t" not in str(recording.metadata)


# -- responses that are cut short --------------------------------------------------------------

CUT_SHORT = "the connection broke before the end of the body"


def read(session: Session) -> object:
    return session.get("/v1/lists")


def stream(session: Session) -> object:
    with session.client.stream("GET", "/v1/lists") as response:
        return response.read()


async def read_async(session: Session) -> object:
    return await session.async_client.get("/v1/lists")


async def stream_async(session: Session) -> object:
    async with session.async_client.stream("GET", "/v1/lists") as response:
        return [part async for part in response.aiter_bytes()]


@pytest.mark.parametrize("mode", ["live", "record"])
@pytest.mark.parametrize("receive", [read, stream, read_async, stream_async])
def test_a_response_that_is_cut_short_is_an_error_but_is_still_shown(
    service, unpaced, receive, mode
):
    if mode == "record":
        unpaced.record("tour")
    with service.fault(body="x" * 50, cut_after=20), pytest.raises(httpx.RemoteProtocolError):
        asyncio.run(receive(unpaced)) if iscoroutinefunction(receive) else receive(unpaced)
    unpaced.get("/v1/lists")
    table, view = dm.interactions(unpaced), dm.interactions(unpaced, number=1)
    readings = dm.rate_limits(unpaced)

    assert table["status"].tolist() == [200, 200]
    assert table["problem"].fillna("").tolist() == [CUT_SHORT, ""]
    assert table["excerpt"][1] == "x" * 20
    assert table["bytes"][1] == 20
    assert dict(view.interaction.response.headers)["Content-Length"] == "50"
    assert CUT_SHORT in repr(view)
    assert readings["problem"].fillna("").tolist() == [CUT_SHORT, ""]
    assert readings["source"].tolist() == ["recorded" if mode == "record" else "live"] * 2
    assert [row.mark for row in rows(unpaced.recording)] == ["failed", ""]
    assert detail(unpaced.recording, 1)[0]["reason"] == CUT_SHORT
    assert set(dm.check_contract(readings)["verdict"]) == {"holds"}
    unpaced.live()
    if mode == "record":
        assert read_cassette(Path("cassettes/tour.yaml")).reading(1).problem == CUT_SHORT
        with Session(service.base_url) as replaying, replaying.replay("tour"):
            with pytest.raises(httpx.RemoteProtocolError):  # a failure plays in its place
                replaying.get("/v1/lists")
            assert len(replaying.get("/v1/lists").json()) > 1


@pytest.mark.parametrize("mode", ["live", "record"])
def test_a_compressed_response_that_is_cut_short_is_shown_as_far_as_possible(
    service, unpaced, mode
):
    if mode == "record":
        unpaced.record("tour")
    body = service.api_key + "".join(f" {number}" for number in range(1000))
    fault = {"body": body, "encoding": "gzip", "cut_after": 1000}
    with service.fault(**fault), pytest.raises(httpx.RemoteProtocolError):
        unpaced.get("/v1/lists")
    kept = unpaced.recording.interaction(1).response.body

    assert kept.startswith(b"<API_KEY> 0 1 2 3")
    assert 500 < len(kept) < len(body)


def test_a_response_that_the_caller_stops_reading_is_not_cut_short(service, unpaced):
    with service.fault(body="x" * 500_000), unpaced.client.stream("GET", "/v1/lists") as response:
        next(response.iter_bytes())

    assert unpaced.recording.reading(1).problem is None


# -- attempts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["live", "record"])
@pytest.mark.parametrize("receive", [read, read_async])
def test_attempts_are_numbered_and_keep_their_bodies(service, receive, mode):
    with Session(service.base_url, service.api_key) as session:
        if mode == "record":
            session.record("tour")
        session.get("/v1/lists")
        service.fault(body="busy", times=1, status=503, headers={"Retry-After": "0"})
        service.fault(body="away", times=1, status=502, headers={"Retry-After": "0"})
        asyncio.run(receive(session)) if iscoroutinefunction(receive) else receive(session)
        session.get("/v1/lists")
        table = dm.interactions(session)

    assert table["attempt"].tolist() == [1, 1, 2, 3, 1]
    assert table["attempt"].dtype == "Int64"
    assert table.loc[table["status"] >= 500, "excerpt"].tolist() == ["away", "busy"]
    assert table["bytes"].notna().all()
    if mode == "record":
        assert dm.interactions("tour")["attempt"].tolist() == [1, 1, 2, 3, 1]
        with Session(service.base_url) as replaying, replaying.replay("tour"):
            for _ in range(4):
                replaying.get("/v1/lists")

            assert dm.interactions(replaying)["attempt"].tolist() == [1, 1, 2, 3, 1, 1]


def test_an_attempt_without_the_one_before_it_is_a_response_of_its_own(tmp_path):
    """Without attempts, each call plays one response, as in vcrpy."""
    alone = replace(answered(get("/b")), attempt=2)
    responses = (answered(status=503), answered(), alone)
    cassette = Cassette(recorded(tmp_path / "a.yaml", *responses))
    played = [cassette.play(request) for request in (get(), get(), get("/b"))]

    assert [[each.number for each in call] for call in played] == [[1], [2], [3]]


# -- changes to a file -------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["", "again"])
def test_a_response_that_comes_after_the_recording_has_ended_is_said(service, live, caplog, then):
    """The request was on its way when the recording ended, or when its statement ran again."""
    received: list[httpx.Response] = []
    answer, is_sent, may_come = service.response_to, threading.Event(), threading.Event()
    asking = threading.Thread(target=lambda: received.append(live.get("/v1/users/me")))

    def late(request: Request) -> Response:
        is_sent.set()
        may_come.wait(60)
        return answer(request)

    with mock.patch.object(service, "response_to", late):
        with live.record("tour"):
            asking.start()
            is_sent.wait(60)
            if then:
                live.record("tour")
        may_come.set()
        asking.join()

    assert [each.status_code for each in received] == [200]
    assert [each.source for each in live.recording.readings()] == ["live"]
    assert not Path("cassettes/tour.yaml").exists()
    assert "ended before the response to a GET did" in caplog.text


@pytest.mark.posix("the mode of files")
@pytest.mark.parametrize("mode", ["new_episodes", "all"])
def test_files_written_for_a_private_cassette_are_private(tmp_path, mode):
    """The file beside it and its replacement have the same permissions."""
    path = theirs(tmp_path / "tour.yaml", answered(get("/old")))
    path.chmod(0o600)
    with opened(path, mode) as cassette:
        cassette.record(answered(get("/new")))
        modes = {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.yaml")}

    assert modes == {path.stat().st_mode & 0o777} == {0o600}


@pytest.mark.posix("the mode of files")
@pytest.mark.parametrize("mode", ["new_episodes", "all"])
def test_a_read_only_cassette_is_refused_before_anything_is_sent(tmp_path, mode):
    """The error blames no other program, and nothing is written beside the file."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/old")))
    path.chmod(0o444)
    with (
        pytest.raises(dm.errors.CassetteError, match="is read-only, so it was not changed"),
        opened(path, mode),
    ):
        pass

    assert [file.name for file in tmp_path.iterdir()] == ["tour.yaml"]


@pytest.mark.parametrize("body", ["x" * 5_001, "語" * 1_667])
def test_a_full_cassette_refuses_before_anything_is_sent(service, live, monkeypatch, body):
    """A response whose bytes do not fit is recorded without its body; the caller gets all of it."""
    with live.record("tour"):
        live.me()
        size = sum(each.stat().st_size for each in Path("cassettes").glob("tour.yaml*"))
        monkeypatch.setattr("directmail_lab.cassettes.recorder.MAX_FILE_BYTES", size + 2_000)
        monkeypatch.setattr("directmail_lab.cassettes.recorder._SPARE_BYTES", 1_800)
        with service.fault(body=body):
            whole = live.get("/v1/lists").text
        with pytest.raises(dm.errors.CassetteError, match="Nothing was sent"):
            live.me()
    last = read_cassette(Path("cassettes/tour.yaml")).interaction(2)

    assert whole == body
    assert last.response.body == b"<not recorded: 5001 bytes>"
    assert service.requests.total() == 2


def too_large(service: FaultyService) -> AbstractContextManager[object]:
    return service.fault(body=bytes(MAX_UNPACKED_BYTES + 1), encoding="gzip")


def test_the_caller_gets_a_body_that_is_too_large_to_record(service, live, caplog):
    """The cassette has the body's size instead: recording warns, and a replay is an error.

    At once, it is an error: a compressed body may expand to more than the memory.
    """
    with live.record("tour"), too_large(service):
        with live.client.stream("GET", "/v1/lists") as response:
            size = sum(map(len, response.iter_bytes()))
        with pytest.raises(httpx.DecodingError, match="too large"):
            live.get("/v1/users/me")
    with (
        live.replay("tour"),
        pytest.raises(dm.errors.NotRecordedError, match=r"not recorded: \d+ bytes.*\n.*live") as no,
    ):
        live.get("/v1/lists")
    row, _ = dm.interactions("tour").itertuples()

    assert size == MAX_UNPACKED_BYTES + 1
    assert "has GET /v1/lists without the body of its response (not recorded: " in caplog.text
    assert no.value.reason == "no_body"
    assert pd.isna(row.bytes)
    assert row.excerpt.startswith("(not recorded: ")
    assert "(not recorded: " in repr(dm.interactions("tour", number=1))
    assert detail(read_cassette(Path("cassettes/tour.yaml")), 1)[0]["response"]["body"]["kind"] == (
        "absent"
    )


def test_a_body_that_cannot_be_stored_fails_a_test(service, live):
    """Its replay would fail, and advise to record it again."""
    policy = Policy(records_failures=True)  # as in a test
    open_recording(live, "tour", record_mode="update", policy=policy)
    with (
        too_large(service),
        pytest.raises(dm.errors.CassetteError, match="without the body"),
    ):
        live.get("/v1/lists")


NOT_RECORDED = pytest.raises(dm.errors.NotRecordedError, match=r"not (recorded|searched): \d+")


def test_a_replayed_body_is_decoded_within_a_bound(tmp_path):
    """A stranger's cassette may have a few bytes that decode to gigabytes."""
    brotli = pytest.importorskip("brotli")
    bomb = brotli.compress(b"\0" * (65 * 1024**2), quality=1)
    path = theirs(tmp_path / "a.yaml", typed("text/plain", bomb, ("Content-Encoding", "br")))
    with Session(BASE_URL) as session, session.replay(path), NOT_RECORDED:
        session.get("/v1/x")
