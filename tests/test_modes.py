"""The modes of a session, as statements and blocks, and their options."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import cassette_samples as samples
import httpx
import pytest
from cassette_samples import answered, opened, post
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.arguments import RECORD_MODES, ModeRules
from directmail_lab.cassettes import Matching, Policy, read_cassette
from directmail_lab.cassettes.convert import convert
from directmail_lab.cassettes.files import write_cassette
from directmail_lab.errors import AlreadySentError, CassetteInUseError, WriteRefusedError
from directmail_lab.exchange.values import Interaction
from directmail_lab.redaction import Redactor
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.session import Session, bind_to_test, key_of

TOUR = Path("cassettes/tour.yaml")


def test_a_replayed_response_is_read_as_a_sent_one_is(live):
    with live.record("tour"):
        sent = live.client.get("/v1/users/me")
    live.replay("tour")
    played = live.client.get("/v1/users/me")
    played_async = asyncio.run(live.async_client.get("/v1/users/me"))

    for response in (sent, played, played_async):
        assert response.content == sent.content
        assert response.num_bytes_downloaded == len(sent.content)
        assert response.is_closed
        assert response.elapsed.total_seconds() >= 0
        with pytest.raises(httpx.StreamConsumed):
            next(response.iter_raw())


def test_the_body_of_a_replayed_stream_is_not_there_before_it_is_read(live):
    """Else a test would pass in a replay alone."""
    with live.record("tour"):
        live.client.get("/v1/users/me")
    live.replay("tour")
    with live.client.stream("GET", "/v1/users/me") as response:
        with pytest.raises(httpx.ResponseNotRead):
            _ = response.content
        parts = list(response.iter_raw())

    assert b"".join(parts).startswith(b"{")


def test_after_a_recording_that_could_not_go_on_nothing_is_written(live, service):
    """Somebody else recorded the outer cassette meanwhile: a letter would be unrecorded."""
    live._network.allow_writes = True
    live.record("outer")
    live.me()
    inner = live.record("inner")
    aside = Policy(aside=True)
    other = opened(Path("cassettes/outer.yaml"), "all", base_url=service.base_url, policy=aside)
    with pytest.raises(CassetteInUseError), inner:
        pass
    other.close("drop")
    with pytest.raises(WriteRefusedError, match=r"was not sent, because the last dm\.record"):
        live.post("/v1/letters", json={})
    assert service.requests["POST /v1/letters"] == 0
    live.record("outer")
    live.post("/v1/letters", json={})

    assert service.requests["POST /v1/letters"] == 1


def test_the_repr_of_a_mode_shows_its_file(live):
    """A name may be found in several folders, so the path is shown; packaged files have none."""
    (Path("cassettes")).mkdir()
    recording = repr(live.record("tour"))
    live.me()

    what = "requests are sent, and new responses replace the old ones to the same requests."
    where = "in cassettes/tour.yaml"
    assert recording == f"Recording to cassette 'tour' (0 interactions) {where}: {what}"
    about = f"cassette 'tour' (1 interaction, recorded on {day_of(TOUR)}) {where}"
    assert repr(live.record("tour")) == f"Recording to {about}: {what}"
    assert repr(live.replay("tour")) == f"Replaying {about}"
    assert repr(live.replay("first-look")).endswith("interactions, recorded on 21 November 2026)")
    assert repr(live.live()) == f"Live at {live.base_url}"


def test_match_on_takes_names_or_functions_as_in_vcrpy(connected):
    with dm.record("tour"):
        dm.get("/v1/lists", params={"page": 1})
    with dm.record("tour", record_mode="any", match_on=["method", "path"]):
        dm.get("/v1/lists", params={"page": 2})
    with dm.replay("tour", match_on=["method", lambda a, b: a.host == b.host], repeat="strict"):
        dm.me()

    assert len(read_cassette(TOUR)) == 1
    with dm.replay("tour", repeat="strict"), pytest.raises(dm.errors.NotRecordedError):
        dm.me()


def test_record_mode_none_redacts_a_request_before_comparing_it(live):
    params = {"email": "reader@example.org"}
    with live.record("tour", redact=["personal"]):
        live.get("/v1/lists", params=params)
    lines = TOUR.read_text().splitlines(keepends=True)
    TOUR.write_text("".join(line for line in lines if not line.startswith("recording: ")))
    with live.replay("tour"), pytest.raises(dm.errors.NotRecordedError):
        live.get("/v1/lists", params=params)
    with live.record("tour", record_mode="none", redact=["personal"]):
        assert live.get("/v1/lists", params=params).is_success
        assert live.mode == "replay"


# -- before_record -----------------------------------------------------------------------------


def test_redaction_follows_the_changes_and_omissions_of_before_record(connected):
    key = key_of(connected)

    def hook(interaction: Interaction) -> Interaction | None:
        if interaction.request.uri.endswith("/v1/lists"):
            return None
        body = interaction.response.body.replace(b"Stand-in User", key.reveal().encode())
        return replace(interaction, response=replace(interaction.response, body=body))

    with dm.record("tour", before_record=hook):
        name = dm.me()["name"].item()
        lists = dm.get("/v1/lists")
    (written,) = read_cassette(TOUR)

    assert (name, lists.status_code) == ("Stand-in User", 200)
    sources = [each.source for each in connected.recording.readings()]
    assert sources == ["recorded", "live"]
    assert b'"name": "<API_KEY>"' in written.response.body
    assert ("Content-Length", str(len(written.response.body))) in written.response.headers


def test_an_attempt_that_is_left_out_leaves_the_next_one_as_a_response_of_its_own(live, service):
    with live.record("tour", before_record=lambda it: it if it.response.status < 500 else None):
        live.get("/v1/lists")
        with service.fault(status=503, times=1):
            live.get("/v1/lists")
    with live.replay("tour"):
        played = [live.get("/v1/lists").status_code for _ in "12"]
        numbers = [each.cassette_number for each in live.recording.readings()]

    assert [each.attempt for each in read_cassette(TOUR)] == [1, 2]
    assert (played, numbers) == ([200, 200], [1, 2])


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (lambda it: it.request.nothing, r"raised AttributeError \(.*test_modes.py, line \d+\)"),
        (int, r"raised TypeError \(.*cassette.py, line \d+\)"),
        (lambda _: {}, "returned neither an Interaction nor None"),
        (lambda it: replace(it, response=replace(it.response, body="é")), ".*is not bytes"),
        (lambda it: replace(it, request=replace(it.request, headers={})), ".*in a tuple"),
    ],
)
def test_before_record_that_fails_says_so_and_loses_no_response(live, hook, problem):
    with (
        live.record("tour", before_record=hook),
        pytest.raises(dm.errors.CassetteError, match=f"^before_record {problem}") as caught,
    ):
        live.get("/v1/lists")

    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "the request was carried out" in caught.value.__notes__[0]
    assert b"Spring" in live.recording.interaction(1).response.body
    assert not TOUR.exists()


# -- recording without a key -------------------------------------------------------------------


@pytest.fixture
def recorded(service: FaultyService) -> Path:
    """A cassette named tour with a read and a write, recorded by someone else."""
    with Session(service.base_url, service.api_key, allow_writes=True) as author:
        author.record(TOUR)
        author.me()
        author.post("/v1/letters", json={"to": "Ada"})
    return TOUR


def day_of(path: Path) -> str:
    (at, *_) = [each.recorded_at for each in read_cassette(path)]
    return f"{at.day} {at:%B %Y}"


@pytest.mark.filterwarnings("ignore:Nothing was sent")
@pytest.mark.parametrize(("extends", "replays"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_new_record_mode_does_what_its_row_of_the_table_says(
    service, monkeypatch, extends, replays, replaces, refuses
):
    """Each place that depends on the mode asks the table, also for a letter."""
    rules = ModeRules(True, extends, replays, replaces, refuses)
    monkeypatch.setitem(RECORD_MODES, "new", rules)
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    letter = replace(post(b'{"to":"Ada"}'), uri=f"{service.base_url}/v1/letters")
    me = replace(letter, method="GET", uri=f"{service.base_url}/v1/users/me", body=b"")
    samples.recorded(TOUR, answered(me), answered(letter), base_url=service.base_url)
    with Session(service.base_url, service.api_key, allow_writes=True) as session:
        session.record("tour", record_mode="new")
        for each in (me, letter, replace(letter, body=b'{"to":"Bob"}')):
            with suppress(AlreadySentError, dm.errors.NotRecordedError):
                content = None if each is me else each.body
                kind = {"Content-Type": "application/json"}
                session.client.request(each.method, each.uri, content=content, headers=kind)
    kept = [each.request.method for each in read_cassette(TOUR)]
    is_sent = extends and not replays
    is_repeated = is_sent and not refuses

    assert service.requests["GET /v1/users/me"] == is_sent
    assert service.requests["POST /v1/letters"] == extends + is_repeated
    assert kept.count("GET") == 1 + (is_sent and not replaces)
    assert kept.count("POST") == 1 + extends + (is_repeated and not replaces)


@pytest.mark.parametrize("mode", ["update", "all", "new_episodes", "any", "once"])
def test_without_a_key_the_recording_is_replayed_and_a_line_says_so(
    recorded, service, mode, capsys
):
    before, sent = recorded.read_bytes(), service.requests.total()

    dm.record("tour", record_mode=mode)
    names = [dm.me()["name"].item()]
    with dm.record("tour", record_mode=mode):
        names.append(dm.me()["name"].item())
    line = (
        f"Warning: no key, so this is a replay of 'tour', recorded on {day_of(recorded)} "
        "(2 interactions). Sign in to record again."
    )
    printed = capsys.readouterr().err

    assert " ".join(printed.split()) == f"{line} {line}"
    assert max(map(len, printed.splitlines())) <= 80
    assert set(names) == {"Stand-in User"}
    assert (recorded.read_bytes(), service.requests.total()) == (before, sent)


def test_record_without_a_key_raises_if_no_cassette_may_be_replayed_instead(recorded, service):
    for name in ("tours", "first-look", "no/such"):
        problem = f"^There is no key, and no cassette '{name}'"
        with pytest.raises(dm.errors.NotConnectedError, match=problem):
            dm.record(name)
    dm.replay("tour")
    replaying = dm.session()
    for change in (lambda: replaying.record("tour"), replaying.live):
        with pytest.raises(dm.errors.NotConnectedError, match="no key"):
            change()
    bind_to_test(replaying, folders=[recorded.parent], matching=Matching(), advice="")
    with pytest.raises(dm.errors.NotConnectedError, match="no key"):
        dm.record("tour")


def test_a_recording_continues_once_a_key_is_found(recorded, service, monkeypatch):
    dm.record("tour")
    assert (dm.session().mode, key_of(dm.session())) == ("replay", None)
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    dm.record("tour")
    dm.get("/v1/lists")
    sources = list(dm.rate_limits()["source"])
    dm.session().close()

    assert sources == ["recorded"]
    assert len(read_cassette(recorded)) == 3


def test_a_second_author_in_another_region_continues_the_recording(recorded, capsys):
    """In a mode that adds, the first author's recording is replayed below the other address."""
    with stand_in() as region:
        dm.connect(region.base_url, region.api_key)
        with dm.record("tour", record_mode="new_episodes"):
            dm.me()
            dm.get("/v1/lists")
        *earlier, last = [each.request.uri for each in read_cassette(recorded)]
        dm.logout()

    assert last == f"{region.base_url}/v1/lists"
    assert not any(each.startswith(region.base_url) for each in earlier)
    convert(recorded, recorded)  # as `share` does
    dm.record("tour")
    assert [len(dm.me()), dm.get("/v1/lists").status_code] == [1, 200]
    assert "(3 interactions)" in " ".join(capsys.readouterr().err.split())


def test_a_write_that_is_replayed_for_want_of_a_key_warns(recorded):
    """The warning points to the caller's line. A deliberate replay does not warn."""
    dm.record("tour")
    with pytest.warns(UserWarning, match="^Nothing was sent: this POST is replayed") as caught:
        dm.request("POST", "/v1/letters", json={"to": "Ada"})
    dm.replay("tour")
    dm.request("POST", "/v1/letters", json={"to": "Ada"})

    assert [each.filename for each in caught] == [__file__]


def test_the_error_for_an_unrecorded_request_mentions_before_record(recorded):
    dm.record("tour", before_record=lambda interaction: interaction)
    with pytest.raises(dm.errors.NotRecordedError, match="is not in cassette 'tour'") as caught:
        dm.get("/v1/lists")

    assert "no key" in caught.value.advice
    assert "before_record leaves it out" in caught.value.advice


def test_replayed_data_is_shown_with_the_date_of_its_recording(recorded):
    date = f"recorded on {day_of(recorded)}"
    dm.replay("tour")
    record, limits = dm.me(), dm.rate_limits()

    assert date in repr(dm.session())
    for frame in (dm.interactions(), limits):
        assert date == f"recorded {frame.attrs['recorded']}"
        assert date in frame.attrs["notes"][0]
    assert date in dm.chart_rate_limits().alt_text
    assert record.attrs["time"].startswith(f"{limits['at'].item():%Y-%m-%d}")


@pytest.mark.parametrize(
    "fails",
    [
        lambda: dm.record("locked"),
        lambda: dm.record("tour", ignore="nothing"),
        lambda: dm.record("tour", live=True, record_mode="once"),
        lambda: dm.record("tour", such="option"),
        lambda: dm.replay("no-such"),
        lambda: dm.connect("ftp://api.example.com"),
        lambda: dm.session().record("locked"),
    ],
)
def test_no_write_is_sent_after_a_change_of_mode_that_failed(service, fails):
    """A mailing must not go out unrecorded. Reads are sent, and a change that succeeds ends it."""
    dm.connect(service.base_url, service.api_key, allow_writes=True)
    with opened(Path("cassettes/locked.yaml"), "all", policy=Policy(aside=True)):
        with pytest.raises((dm.DirectMailLabError, ValueError, TypeError)):
            fails()
        with pytest.raises(dm.errors.WriteRefusedError, match=r"failed\.\nRun dm\.record"):
            dm.post("/v1/letters")
    with dm.replay("first-look"):  # where nothing is sent
        pass
    with pytest.raises(dm.errors.WriteRefusedError, match="failed"):
        dm.post("/v1/letters")
    dm.get("/v1/users/me")
    before = service.requests["POST /v1/letters"]
    dm.record("tour")

    assert (before, dm.post("/v1/letters").status_code) == (0, 201)


def test_a_run_that_must_be_live_needs_a_key(recorded, monkeypatch, service):
    """The environment asks for it in a notebook that stays unchanged, or lets a reader replay."""
    said = r"(?s)no key.*must be live.*DIRECTMAIL_LIVE=0"
    with pytest.raises(dm.errors.NotConnectedError, match=said):
        dm.record("tour", live=True)
    monkeypatch.setenv("DIRECTMAIL_LIVE", "1")
    with pytest.raises(dm.errors.NotConnectedError, match=said):
        dm.record(recorded)
    monkeypatch.setenv("DIRECTMAIL_LIVE", "0")
    dm.record("tour", live=True)
    assert dm.session().mode == "replay"
    dm.connect(service.base_url, service.api_key)
    with dm.record("tour", live=True) as session:
        assert session.mode == "record"
    monkeypatch.setenv("DIRECTMAIL_LIVE", "1")
    for options in ({"record_mode": "once"}, {"max_age": "1 day"}):  # old numbers, with a key
        with pytest.raises(ValueError, match="DIRECTMAIL_LIVE=1"):
            dm.record("tour", **options)


def a_damaged_cassette() -> None:
    TOUR.parent.mkdir(exist_ok=True)
    TOUR.write_text("interactions:\n- damaged\n")
    dm.record("tour")


@pytest.mark.parametrize(
    "fails",
    [
        lambda: dm.record("mailing"),
        a_damaged_cassette,
        lambda: dm.record("../elsewhere"),
        lambda: (dm.replay("first-look"), a_damaged_cassette()),
    ],
    ids=["without a key", "damaged", "no such name", "in a replay"],
)
def test_no_write_is_sent_after_a_sign_in_until_the_failed_recording_is_run_again(service, fails):
    """Run All stops there. After the sign-in, the cells below would send a mailing unrecorded."""
    with pytest.raises(dm.DirectMailLabError):
        fails()
    for _ in range(2):  # the first key was a wrong one, for example
        with (
            dm.connect(service.base_url, service.api_key, allow_writes=True),
            pytest.raises(dm.errors.WriteRefusedError, match=r"Run dm\.record"),
        ):
            dm.post("/v1/letters", if_sent="keep")
    dm.connect(service.base_url, service.api_key, allow_writes=True)
    before = service.requests["POST /v1/letters"]
    dm.record("mailing")

    assert (before, dm.post("/v1/letters", if_sent="keep").status_code) == (0, 201)
    dm.session().close()
    dm.connect(service.base_url, service.api_key, allow_writes=True)
    assert dm.post("/v1/letters").status_code == 201


def aged(path: Path, hours: float | None, *titles: str) -> None:
    """Date responses back, or without ``hours`` remove their times."""
    recording = read_cassette(path)
    parts = [
        replace(
            each,
            recorded_at=hours and each.recorded_at and each.recorded_at - timedelta(hours=hours),
        )
        if f"{each.request.method} {each.request.uri.rpartition('/')[2]}" in titles
        else each
        for each in recording
    ]
    write_cassette(path, recording.metadata, parts, Redactor(), version=None)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_younger_than_max_age_is_replayed_and_the_rest_is_sent(
    recorded, service, is_async, caplog
):
    def ask(session: Session, path: str) -> int:
        got = asyncio.run(session.async_client.get(path)) if is_async else session.get(path)
        return got.status_code

    with Session(service.base_url, service.api_key, retry=False) as author:
        with author.record("tour"), service.fault(status=503, path="/v1/letters"):
            assert [ask(author, "/v1/lists"), ask(author, "/v1/letters")] == [200, 503]
        before = service.requests.copy()
        for hours in (25, 1, -2, None):  # one of the future or without a time may be of any age
            aged(TOUR, hours, "GET lists")
            with author.record("tour", max_age="1 day"):
                assert [ask(author, "/v1/users/me") for _ in range(2)] == [200, 200]
                assert ask(author, "/v1/lists") == 200
        with author.record("tour", max_age="1 day"):
            ask(author, "/v1/letters")
    sent = service.requests - before

    assert sent == {"GET /v1/lists": 3, "GET /v1/letters": 1}
    assert [text.partition(": ")[2] for text in caplog.messages if "younger" in text] == [
        "2 requests replayed (younger than 1 day), 1 sent.",
        "3 requests replayed (younger than 1 day), 0 sent.",
        "2 requests replayed (younger than 1 day), 1 sent.",
        "2 requests replayed (younger than 1 day), 1 sent.",
        "0 requests replayed (younger than 1 day), 1 sent.",
    ]
    assert [each.request.uri[-5:] for each in read_cassette(TOUR)].count("lists") == 1


def test_max_age_changes_nothing_for_a_write(recorded, service):
    other = Session(service.base_url, service.api_key, allow_writes=True)
    before = service.requests["POST /v1/letters"]
    with other, other.record("tour", max_age="1 week") as session:
        with pytest.warns(UserWarning, match="Nothing was sent: this POST was sent before"):
            session.post("/v1/letters", json={"to": "Ada"}, if_sent="keep")
        assert service.requests["POST /v1/letters"] == before
        for count in (1, 2):
            session.post("/v1/letters", json={"to": "Ada"}, if_sent="send")
            assert service.requests["POST /v1/letters"] == before + count


def test_max_age_without_a_key_replays_all(recorded):
    aged(TOUR, 99, "GET me")
    dm.record("tour", max_age="1 hour")

    assert (dm.session().mode, len(dm.me())) == ("replay", 1)


AGE = 'such as "90 days" or "12 hours"'
ALONE = "neither live=True, nor"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"max_age": age}, AGE) for age in ("long", "1 year", "-1 days", 90, "1day", "")),
        ({"max_age": "1 day", "live": True}, ALONE),
        ({"max_age": "1 day", "record_mode": "all"}, ALONE),
    ],
)
def test_an_age_that_is_none_or_not_alone_changes_nothing(live, options, said):
    for record in (live.record, dm.record)[: 2 if said == AGE else 1]:
        with pytest.raises(ValueError, match=said):
            record("tour", **options)

    assert live.mode == "live"
    assert not TOUR.exists()


def test_a_replay_in_a_session_of_another_service_says_whose_responses_it_has(recorded):
    """Another address of this machine is the same place, and so is a session without a key."""
    dm.connect("https://api.example.com", "a1b2c3d4e5f6g7h8")
    with pytest.warns(
        UserWarning, match=r"responses of http://127\.0\.0\.1.* connected to https"
    ) as said:
        dm.replay("tour")
    dm.connect("http://localhost:5001", "a1b2c3d4e5f6g7h8")
    dm.replay("tour")
    dm.logout()
    dm.replay("tour")

    assert len(said) == 1
