"""Each question asked of each kind of source: what it covers, and what it says where it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.cassettes.convert import convert

PATHS = ("/v1/users/me", "/v1/lists", "/v1/lists", "/v1/nowhere")
ROWS = [(number, path, 404 if number == 4 else 200) for number, path in enumerate(PATHS, 1)]
COUNTS = {path: PATHS.count(path) for path in PATHS}
SESSION, FILE = "this session, 4 interactions", "tour, 4 interactions"
TITLES = {
    **dict.fromkeys(("live", "recording", "session"), SESSION),
    **dict.fromkeys(("name", "path", "text", "har", "frame"), FILE),
    **dict.fromkeys(("folder", "list"), "4 readings"),
    "replay": "tour (replayed), 4 interactions",
}
LEFT = "GET /v1/lists: 58 of 60 left; " + "; ".join(
    f"GET {path}: 299 of 300 left" for path in (PATHS[0], PATHS[3])
)
NOT_PLAYED = 'Nothing of tour was played yet. It holds more: interactions("tour").'


def send(session: dm.Session) -> None:
    for path in PATHS:
        session.get(path)


def source_of(kind: str, session: dm.Session) -> Any:
    """A source of this kind, with the same four interactions as each other one."""
    if kind != "live":
        session.record("tour")
    send(session)
    if kind in ("live", "recording"):
        return None
    session.live()
    if kind == "replay":
        session.replay("tour")
        send(session)
        return None
    path = Path("cassettes/tour.yaml")
    convert(path, Path("tour.har"), "har")
    by_kind = {"name": "tour", "path": path, "text": str(path), "har": "tour.har"}
    by_kind |= {"folder": path.parent, "list": ["tour"], "session": session}
    return dm.rate_limits("tour") if kind == "frame" else by_kind[kind]


def rows(frame: pd.DataFrame) -> list[tuple[int, str, int]]:
    return list(zip(frame.index, frame["path"], frame["status"], strict=True))


def checked(source: Any = None) -> dict[str, int]:
    """How many responses of each operation `check_contract` checked."""
    rule = dm.check_contract(source).query("rule == 1")
    return dict(zip(rule["operation"], rule["responses"], strict=True))


def found(part: str, source: Any = None) -> str:
    """In which interactions `findings` found something of a part."""
    return str(dm.findings(source).set_index("part").loc[part, "interactions"])


def browsed(source: Any) -> list[tuple[int, str, int]]:
    lines = re.findall(r"^(\d+) .* (/v1/\S+) +(\d+)", repr(dm.browse(source)), re.MULTILINE)
    return [(int(number), path, int(status)) for number, path, status in lines]


def described(source: Any) -> dict[str, int]:
    return {path: each["get"]["x-seen"] for path, each in dm.openapi(source)["paths"].items()}


QUESTIONS: dict[str, tuple[Callable[[Any], object], object]] = {
    "rate_limits": (lambda source: rows(dm.rate_limits(source)), ROWS),
    "interactions": (lambda source: rows(dm.interactions(source)), ROWS),
    "browse": (browsed, ROWS),
    "check_contract": (checked, COUNTS),
    "openapi": (described, COUNTS),
    "findings": (lambda source: found("other operations", source).partition(": ")[2], "2-3"),
    "chart_rate_limits": (lambda source: dm.chart_rate_limits(source).alt_text, LEFT),
}
WALK = [
    (question, kind)
    for question in QUESTIONS
    for kind in TITLES
    if kind != "frame" or question in ("check_contract", "chart_rate_limits")
    if kind not in ("folder", "list") or question != "browse"
]


@pytest.mark.parametrize(("question", "kind"), WALK)
def test_each_question_takes_each_source(connected: dm.Session, question: str, kind: str) -> None:
    """The same numbers of the same interactions; of several at once the frames name each."""
    source = source_of(kind, connected)
    ask, expected = QUESTIONS[question]
    if question == "chart_rate_limits":
        expected = f"Requests left in the window: {TITLES[kind]}. {expected}."

    assert ask(source) == expected
    if kind in ("folder", "list") and question in ("rate_limits", "interactions"):
        assert set(getattr(dm, question)(source)["cassette"]) == {"tour"}


@pytest.mark.parametrize("question", sorted(QUESTIONS.keys() - {"browse"}))
def test_what_is_no_source_is_said_in_two_lines(question: str) -> None:
    """And what to give."""
    with pytest.raises(ValueError, match=r"5 is no source of interactions\. Give a") as caught:
        getattr(dm, question)(5)

    assert hasattr(caught.value, "_render_traceback_")


def test_a_replay_of_which_nothing_was_played_says_so(connected: dm.Session) -> None:
    """And names the call that shows what it holds."""
    source_of("name", connected)
    connected.replay("tour")

    for question in (dm.rate_limits, dm.interactions, dm.check_contract, dm.findings):
        assert question().attrs["notes"] == [NOT_PLAYED]
    assert "No readings yet" in dm.chart_rate_limits().alt_text
    with pytest.raises(dm.errors.CassetteError, match=re.escape(NOT_PLAYED)):
        dm.openapi()


def test_the_questions_of_one_session_cover_the_same_responses(connected: dm.Session) -> None:
    """Those before a recording, in it, and after a replay; what a replay played is apart."""
    send(connected)
    source_of("replay", connected)
    connected.live()
    send(connected)

    assert sum(checked().values()) == len(dm.interactions()) == 12
    assert "this session, 12 interactions" in dm.chart_rate_limits().alt_text
    assert found("regional base addresses") == "this session: 1-12"
    assert dm.findings().attrs["notes"] == ["This session, 12 interactions."]


def test_what_new_episodes_plays_is_skipped_by_chart_check_and_unit(connected: dm.Session) -> None:
    """It is among the session's interactions, and says nothing of the allowance of now."""
    with FaultyService(reset_unit="epoch_s") as earlier:
        session = dm.Session(earlier.base_url, earlier.api_key)
        with session, session.record("tour"):
            session.me()
    connected.record("tour")
    connected.me()
    connected.get("/v1/nowhere")

    assert dm.rate_limits()["source"].tolist() == ["replayed", "recorded"]
    assert dm.interactions()["path"].tolist() == ["/v1/users/me", "/v1/nowhere"]
    assert checked() == {"/v1/nowhere": 1}
    assert "/v1/users/me" not in dm.chart_rate_limits().alt_text
    assert dm.rate_limits().attrs["reset_unit"] == "undetermined"


@pytest.mark.usefixtures("connected")
def test_requests_without_the_key_count_in_findings_alone(service: FaultyService) -> None:
    """Those that `explore` sends so; one without a key, and one with a wrong one."""
    dm.explore(pause_s=0)
    count = service.requests.total() - 2

    assert found("answer to a missing key") == "explore: 2"
    assert found("answer to an invalid key") == "explore: 1"
    assert len(dm.interactions()) == len(dm.rate_limits()) == sum(checked().values()) == count


def test_drift_counts_nowhere_and_numbers_as_the_others(
    connected: dm.Session, service: FaultyService
) -> None:
    """A read is compared with the last that was recorded, whose number is that of every table."""
    source_of("name", connected)
    before = len(dm.interactions())
    service.fault(path="/v1/lists", status=500)
    table = dm.drift("tour")

    assert set(table["number"]) == {3}
    assert dm.interactions("tour", number=3).interaction.request.uri.endswith("/v1/lists")
    assert len(dm.interactions()) == before
