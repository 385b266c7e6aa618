"""The modes of a session as statements, blocks and decorators, and what they are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.sessions import Session

if TYPE_CHECKING:
    from faulty_service import FaultyService

    from directmail_lab.interaction import Interaction

TOUR = Path("cassettes/tour.yaml")


def test_a_mode_decorates_a_function(live: Session) -> None:
    """As `vcr.use_cassette` does: each call runs in it; an async one until its coroutine ends."""

    @live.record("tour")
    def ask(path: str) -> str:
        """Ask."""
        live.get(path)
        return live.mode

    @live.record("tour")
    async def ask_async() -> str:
        await live.async_client.get("/v1/letters")
        return live.mode

    modes = [live.mode, ask("/v1/users/me"), live.mode, ask("/v1/lists"), asyncio.run(ask_async())]

    assert [*modes, live.mode] == ["live", "record", "live", "record", "record", "live"]
    assert ask.__doc__ == "Ask."
    assert len(read_cassette(TOUR)) == 3


def test_a_decorator_acts_on_the_session_that_is_current_at_the_call(
    service: FaultyService,
) -> None:
    """It may stand above a function before any session is open."""

    @dm.replay("first-look")
    def ask() -> tuple[str, int]:
        return dm.session().mode, len(dm.me())

    live = dm.connect(service.base_url, service.api_key)

    assert ask() == ("replay", 1)
    assert dm.session() is live
    assert live.mode == "live"


def test_calls_of_a_decorated_function_at_the_same_time_share_the_mode(
    live: Session, service: FaultyService
) -> None:
    """The first that ended took the mode from the others: a replay sent their requests."""

    async def ask(turn: int) -> None:
        await asyncio.sleep(turn / 100)
        await live.me_async()

    async def ask_three_times(decorated: Any) -> None:
        await asyncio.gather(*map(decorated, range(3)))

    asyncio.run(ask_three_times(live.record("tour")(ask)))
    asyncio.run(ask_three_times(live.replay("tour")(ask)))

    assert live.mode == "live"
    assert service.requests.total() == len(read_cassette(TOUR)) == 3


def test_decorating_with_a_recording_anew_keeps_what_was_there(live: Session) -> None:
    """Before the first call nothing is recorded, and the old cassette stands."""
    with live.record("tour"):
        live.me()
    live.record("tour", record_mode="all")(live.me)

    assert len(read_cassette(TOUR)) == 1


def test_a_mode_tells_its_file(live: Session, tmp_path: Path) -> None:
    """A bare name is looked up, so what it found is shown; packaged ones have no path to show."""
    (tmp_path / "cassettes").mkdir()
    recording = repr(live.record("tour"))
    live.me()

    assert recording == "Recording to cassette 'tour' (0 interactions) in cassettes/tour.yaml"
    shown = "Replaying cassette 'tour' (1 interaction) in cassettes/tour.yaml"
    assert repr(live.replay("tour")) == shown
    assert repr(live.replay("first-look")).endswith("interactions)")
    assert repr(live.live()) == f"Live at {live.base_url}"


def test_what_must_match_is_told_as_to_vcrpy(connected: Session) -> None:
    """Matchers by name, or a function of two requests, for a replay as for a recording."""
    with dm.record("tour"):
        dm.get("/v1/lists", params={"page": 1})
    with dm.record("tour", match_on=["method", "path"]):
        dm.get("/v1/lists", params={"page": 2})
    with dm.replay("tour", match_on=["method", lambda a, b: a.host == b.host], repeat="strict"):
        dm.me()

    assert len(read_cassette(TOUR)) == 1
    with dm.replay("tour", repeat="strict"), pytest.raises(dm.errors.NotRecordedError):
        dm.me()


def test_record_mode_none_redacts_what_is_asked(live: Session) -> None:
    """It replays, and takes the same personal data out of a request before it is compared."""
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


def test_connect_closes_what_it_opened_where_recording_fails(
    service: FaultyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session before it stays the current one, and nothing of the failed one is left open."""
    before = dm.connect(service.base_url, service.api_key)
    closed = []
    monkeypatch.setattr(Session, "close", lambda self: closed.append(self))
    with pytest.raises(dm.errors.CassetteError):
        dm.connect(service.base_url, service.api_key, cassette="../up", record_mode="once")

    assert dm.session() is before
    assert len(closed) == 1
    monkeypatch.undo()
    closed[0].close()


def test_a_burst_over_too_few_responses_says_that_the_last_is_repeated(connected: Session) -> None:
    """Of 5 reads over 3 recorded responses, 2 are the last one again."""
    with dm.record("tour"):
        dm.burst(3)
    with (
        dm.replay("tour"),
        pytest.warns(UserWarning, match=r"had 3 responses left .* repeated 2 times"),
    ):
        made = dm.burst(5)

    assert made["remaining"].tolist() == [299, 298, 297, 297, 297]


# -- before_record -----------------------------------------------------------------------------


def test_before_record_changes_and_leaves_out_and_redaction_follows(connected: Session) -> None:
    """The caller and the session have every response as it came; the file what is returned."""
    key = connected.api_key
    assert key is not None

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
    assert ("content-length", str(len(written.response.body))) in written.response.headers


def test_an_attempt_that_is_left_out_is_none_of_the_recording(
    live: Session, service: FaultyService
) -> None:
    """The second attempt is replayed as a call of its own, not as an attempt of the one before."""
    with live.record("tour", before_record=lambda it: it if it.response.status < 500 else None):
        live.get("/v1/lists")
        with service.fault(status=503, times=1):
            live.get("/v1/lists")

    assert [each.attempt for each in read_cassette(TOUR)] == [1, 1]


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (lambda it: it.request.nothing, r"raised AttributeError \(.*test_modes.py, line \d+\)"),
        (int, r"raised TypeError \(.*cassette.py, line \d+\)"),
        (lambda _: {}, "returned neither an Interaction nor None"),
        (
            lambda it: replace(it, response=replace(it.response, body="é")),
            ".*response is not bytes",
        ),
        (lambda it: replace(it, request=replace(it.request, headers={})), ".*in a tuple"),
    ],
)
def test_before_record_that_fails_says_so_and_loses_no_response(
    live: Session, hook: Any, problem: str
) -> None:
    """Nothing is recorded, the request was carried out, and the session has the response."""
    with (
        live.record("tour", before_record=hook),
        pytest.raises(dm.errors.CassetteError, match=f"^before_record {problem}") as caught,
    ):
        live.get("/v1/lists")

    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "the request was carried out" in caught.value.__notes__[0]
    assert b"Spring" in live.recording.interaction(1).response.body
    assert not TOUR.exists()
