"""Each question, asked of each kind of source: what it covers, and its errors."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from cassette_samples import answered, har, recorded
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.notebook.completion import complete

PATHS = ("/v1/users/me", "/v1/lists", "/v1/lists", "/v1/nowhere")
ROWS = list(zip("1234", PATHS, ("200", "200", "200", "404"), strict=True))
COUNTS = {path: PATHS.count(path) for path in PATHS}
TITLES = {
    **dict.fromkeys(("live", "recording", "session"), "this session at 127.0.0.1, 4 interactions"),
    **dict.fromkeys(("name", "path", "text", "har", "frame"), "tour, 4 interactions"),
    **dict.fromkeys(("folder", "list"), "4 readings"),
    "replay": "tour (replayed), 4 interactions",
}
LEFT = "GET /v1/lists: 58 of 60 left; GET /v1/users/me: 299 of 300 left; GET /v1/nowhere: 299 of"
NOT_PLAYED = 'Nothing of tour was played yet. To see all of it: dm.interactions("tour").'


def send(session: dm.Session) -> None:
    for path in PATHS:
        session.get(path)


def _without_date(text: str) -> str:
    return re.sub(r", recorded on \d+ \w+ \d+", "", text)


def source_of(kind: str, session: dm.Session) -> Any:
    """Return a source of this kind; all kinds have the same four interactions."""
    if kind != "live":
        session.record("tour")
    send(session)
    if kind in ("live", "recording"):
        return None
    session.live()
    path = Path("cassettes/tour.yaml")
    har("tour.har", *read_cassette(path))
    sources = {"name": "tour", "path": path, "text": str(path), "har": "tour.har"}
    sources |= {"folder": path.parent, "list": ["tour"], "frame": dm.rate_limits("tour")}
    if kind == "replay":
        session.replay("tour")
        send(session)
    return {**sources, "session": session}.get(kind)


def rows(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    texts = frame.reset_index()[["number", "path", "status"]].astype(str)
    return list(texts.itertuples(index=False, name=None))


def checked(source: Any = None) -> int:
    return int(dm.check_contract(source)["responses"].max())


def found(part: str, source: Any = None) -> str:
    return str(dm.findings(source).set_index("part").loc[part, "interactions"])


def browsed(source: Any) -> list[tuple[str, str, str]]:
    return re.findall(r"^(\d+) .* (/v1/\S+) +(\d+)", repr(dm.browse(source)), re.MULTILINE)


def described(source: Any) -> dict[str, int]:
    document = dm.openapi(source)
    counts = {path: each["get"]["x-seen"] for path, each in document["paths"].items()}
    return counts | dict.fromkeys(document["x-only-404"], 1)


QUESTIONS: dict[str, tuple[Any, object]] = {
    "rate_limits": (lambda source: rows(dm.rate_limits(source)), ROWS),
    "interactions": (lambda source: rows(dm.interactions(source)), ROWS),
    "browse": (browsed, ROWS),
    "check_contract": (checked, len(PATHS)),
    "openapi": (described, COUNTS),
    "findings": (lambda source: found("other operations", source).partition(": ")[2], "2-3"),
    "chart_rate_limits": (
        lambda source: re.sub(r":\d+,", ",", _without_date(dm.chart_rate_limits(source).alt_text)),
        LEFT,
    ),
}
WALK = [
    (question, kind)
    for question in QUESTIONS
    for kind in TITLES
    if kind != "frame" or question in ("check_contract", "chart_rate_limits")
    if kind not in ("folder", "list") or question != "browse"
]


@pytest.mark.parametrize(("question", "kind"), WALK)
def test_every_question_accepts_every_source(connected, question, kind):
    source = source_of(kind, connected)
    ask, expected = QUESTIONS[question]
    if question == "chart_rate_limits":
        expected = f"Requests left, {TITLES[kind]}, nothing refused. {expected} 300 left."

    assert ask(source) == expected
    if kind in ("folder", "list") and question in ("rate_limits", "interactions"):
        assert set(getattr(dm, question)(source)["recording"]) == {"tour"}


@pytest.mark.parametrize("question", [dm.rate_limits, dm.interactions])
def test_rows_of_several_sources_say_whose_they_are(question, service):
    """Two accounts have the names of their order, and a cassette its own."""
    with (
        dm.Session(service.base_url, service.api_key) as one,
        dm.Session(service.base_url, service.api_key) as other,
    ):
        send(other)
        one.me()
        frame = question([one, other, "first-look"])

    counts = dict(frame["recording"].value_counts())
    recorded = len(question("first-look"))
    assert frame.columns[0] == "recording"
    assert counts == {"session 1": 1, "session 2": 4, "first-look": recorded}
    assert question([]).dtypes.equals(frame.dtypes)


def test_every_question_is_asked_here_and_tab_completes_its_cassette():
    """A question that is added belongs to these lists, too."""
    modules = vars(dm)["_MODULES"].items()
    added = {name for name, module in modules if module.startswith(".questions.")}
    missing = added - {"drift"} - QUESTIONS.keys()  # drift compares two sources
    assert not missing, f"Add to QUESTIONS in tests/test_sources.py: {missing}"

    for name in added | QUESTIONS.keys() | {"record", "replay"}:
        typed = SimpleNamespace(text_until_cursor=f"dm.{name}('first-l")
        assert [each.text for each in complete(typed)["completions"]] == ["first-look"], name


@pytest.mark.parametrize("question", sorted(QUESTIONS.keys() - {"browse"}))
def test_the_error_for_an_invalid_source_has_two_lines(question):
    with pytest.raises(ValueError, match=r"5 is not a source of interactions\. Give a") as caught:
        getattr(dm, question)(5)

    assert hasattr(caught.value, "_render_traceback_")


def test_a_note_says_that_a_replay_has_played_nothing_yet(connected):
    source_of("name", connected)
    connected.replay("tour")

    for question in (dm.rate_limits, dm.interactions, dm.check_contract, dm.findings):
        assert question().attrs["notes"] == [NOT_PLAYED]
    assert "No readings yet" in dm.chart_rate_limits().alt_text
    with pytest.raises(dm.errors.CassetteError, match=re.escape(NOT_PLAYED)):
        dm.openapi()


def test_all_questions_cover_the_same_responses_of_a_session(connected):
    """Responses before, during and after a recording count, but not those of a replay."""
    send(connected)
    source_of("replay", connected)
    connected.live()
    send(connected)

    assert checked() == len(dm.interactions()) == (count := 3 * len(PATHS))
    title = f"this session at {connected.base_url.removeprefix('http://')}"
    assert f"{title}, {count} interactions" in dm.chart_rate_limits().alt_text
    assert found("regional service addresses") == f"this session: 1-{count}"


def test_a_response_replayed_by_new_episodes_is_in_neither_chart_nor_check(connected):
    """A replayed response is among the interactions, but says nothing about today's allowance."""
    with FaultyService(reset_unit="epoch_s") as earlier:
        recording = dm.Session(earlier.base_url, earlier.api_key)
        with recording, recording.record("tour"):
            recording.me()
    connected.record("tour", record_mode="new_episodes")
    connected.me()
    connected.get("/v1/nowhere")

    assert dm.rate_limits()["source"].tolist() == ["replayed", "recorded"]
    assert dm.interactions()["path"].tolist() == ["/v1/users/me", "/v1/nowhere"]
    assert checked() == 1
    assert "/v1/users/me" not in dm.chart_rate_limits().alt_text
    assert "No unit fits" not in connected.recording.evidence.why


def test_drift_adds_no_interactions(connected, service):
    source_of("name", connected)
    before = len(dm.interactions())
    service.fault(path="/v1/lists", status=500)
    table = dm.drift("tour")

    assert set(table["operation"]) == {"GET /v1/lists"}
    assert len(dm.interactions()) == before


@pytest.mark.posix("such names")
def test_a_warning_shows_the_name_of_a_file_without_its_escapes(tmp_path):
    """A stranger's folder may have any name in it."""
    (tmp_path / "we\x1b[31mird.yaml").write_text("interactions: [")
    with pytest.warns(UserWarning, match="^1 of 1 cassette could not be read") as warned:
        dm.interactions(tmp_path)

    assert str(warned[0].message).isprintable()


def test_a_warning_says_why_a_file_of_a_folder_could_not_be_read(tmp_path):
    """In a team's folder, it is often a pointer of git-lfs that nobody has fetched."""
    recorded(tmp_path / "tour.yaml", answered())
    (tmp_path / "large.yaml").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.warns(UserWarning, match="^1 of 2 .*: large. .*large.yaml is a pointer of git-lfs"):
        rows = dm.interactions(tmp_path)

    assert len(rows) == 1
    with pytest.raises(dm.errors.CassetteError, match="git lfs pull"):
        dm.interactions(tmp_path / "large.yaml")
