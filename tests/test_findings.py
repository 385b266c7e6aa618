"""Findings: what was seen of each part that service.md leaves open, and asking for the rest."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from directmail_lab import current
from directmail_lab.contract import ME_PATH
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import NotConnectedError
from directmail_lab.exploring import explore, findings
from directmail_lab.open_parts import findings_of
from directmail_lab.quota import read_headers
from directmail_lab.reset_unit import infer_reset_unit
from directmail_lab.sessions import Session
from directmail_lab.shapes import ResponseSample, ResponseShape
from directmail_lab.standin import Fault, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from directmail_lab.shapes import Credentials
    from directmail_lab.standin import StandIn

ME = "the user's record"
UNIT = "unit of X-RateLimit-Reset"
EXHAUSTED = "answer when the allowance is used up"
OTHER_LIMITS = "operations with other allowances"
NO_KEY = "answer to a missing key"
WRONG_KEY = "answer to an invalid key"
ERRORS = "errors: statuses and body shapes"
VERSIONS = "versions: new ones, deprecation"
NOON = 1_795_262_400.0


def sample(
    body: object,
    *,
    path: str = ME_PATH,
    status: int = 200,
    number: int = 0,
    credentials: Credentials = "unknown",
    headers: tuple[tuple[str, str], ...] = (),
) -> ResponseSample:
    """A response with this body, a text as it is and anything else as JSON."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    at = NOON + number
    reading = read_headers(headers, at=at, method="GET", path=path, status=status)
    shape = ResponseShape()
    shape.add(headers, content)
    return ResponseSample(reading, shape, "tour", number, "https://api.example.com", credentials)


def found(*samples: ResponseSample) -> pd.DataFrame:
    """The findings of these responses alone, by part."""
    return by_part(findings_of(samples, infer_reset_unit(())))


def by_part(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_index("part")


def test_every_open_part_has_its_row_even_where_nothing_was_seen() -> None:
    """In the document's order, each with the call that would find out more."""
    rows = found()

    assert list(rows["section"]) == [
        "1, 4", "2", "3", "4", "4", "5", "5", "5", "6", "7", "8", "8", "8", "9",
    ]  # fmt: skip
    assert set(rows["how_sure"]) == {"not seen"}
    assert set(rows["seen"]) == {""}
    assert rows["find_out"].str.len().gt(0).all()


def test_the_columns_and_their_types_are_fixed() -> None:
    """Text in all columns but the schema's, also where nothing was seen."""
    expected = ["part", "section", "seen", "how_sure", "interactions", "find_out", "schema"]
    for frame in (found().reset_index(), found(sample({"id": "1"})).reset_index()):
        assert list(frame) == expected
        assert [str(dtype) for dtype in frame.dtypes] == ["string"] * 6 + ["object"]


def test_the_records_schema_tells_types_nulls_and_what_is_always_there() -> None:
    """One schema of all records seen: a field that was null once may be null."""
    rows = found(
        sample({"id": "1", "phone": None, "company": {"postcode": "01234"}}),
        sample({"id": "2", "phone": "555", "company": {"postcode": "9"}, "age": 3}, number=1),
    )
    schema = rows.loc[ME, "schema"]

    assert rows.loc[ME, "seen"] == (
        "id string, phone string or null, company.postcode string, age? integer"
    )
    assert schema["required"] == ["company", "id", "phone"]
    assert set(schema["properties"]["phone"]["type"]) == {"null", "string"}
    assert (rows.loc[ME, "how_sure"], rows.loc[ME, "interactions"]) == (
        "seen repeatedly",
        "tour 0-1",
    )


def test_errors_are_told_by_status_with_their_shape() -> None:
    """Alike ones together; JSON, HTML and nothing are told apart."""
    page = (("Content-Type", "text/html; charset=utf-8"),)
    rows = found(
        sample({"error": "x"}, status=404),
        sample({"error": "y"}, status=401),
        sample("<h1>", status=502, headers=page),
        sample("", status=500),
    )

    assert rows.loc[ERRORS, "seen"] == ("401, 404: JSON error string; 500: no body; 502: text/html")


def test_what_key_a_refusal_answers_is_said_only_where_it_is_known() -> None:
    """A cassette keeps no credentials, so its 401 may be either."""
    recorded = found(sample({}, status=401))
    asked = found(sample({}, status=401), sample({"a": 1}, status=403, credentials="none"))

    assert "does not say" in recorded.loc[NO_KEY, "seen"]
    assert "does not say" in recorded.loc[WRONG_KEY, "seen"]
    assert asked.loc[NO_KEY, "seen"] == "403: JSON a integer"


def test_versions_and_deprecation_headers_are_noted() -> None:
    """Another version's path, or a header that announces an end."""
    rows = found(
        sample({}, path="/v2/users/me", status=404),
        sample({}, path="/v1/lists", headers=(("sunset", "x"),)),
        sample({}, path="/v1x/y"),
    )

    assert rows.loc[VERSIONS, "seen"] == "GET /v2/users/me 404, GET /v1/lists has the header Sunset"


def test_a_schema_and_words_hold_no_value_of_the_account() -> None:
    """Shapes are shown, not the data; a state is a word and shown."""
    rows = found(sample({"email": "ada@example.com", "state": "active", "status": "ada@x.org"}))
    text = rows.to_string() + json.dumps(rows.loc[ME, "schema"])

    assert "ada@" not in text
    assert "active" in rows.loc["states and transitions", "seen"]


def test_a_cassettes_findings_need_no_session(connected: Session, tmp_path: Path) -> None:
    """The same rows from the file alone, numbered as it is."""
    with connected.record(tmp_path / "tour.yaml"):
        for path in (ME_PATH, "/v1/lists", "/v1/lists", "/v1/nowhere"):
            connected.request("GET", path)
    current.make_current(None)
    rows = by_part(findings(tmp_path / "tour.yaml"))

    assert rows.loc["other operations", "seen"] == "GET /v1/lists 200"
    assert rows.loc["other operations", "interactions"] == "tour 1-2"
    assert rows.loc[OTHER_LIMITS, "seen"] == "GET /v1/lists 60"
    assert rows.loc[ERRORS, "seen"].startswith("404: JSON error.status integer")
    assert rows.loc[UNIT, "how_sure"] == "undecided"


def test_a_replays_findings_are_those_of_its_whole_cassette(connected: Session) -> None:
    """Played or not; what was read before the replay is told apart."""
    Path("cassettes").mkdir()
    connected.me()
    with connected.record("tour"):
        for path in (ME_PATH, "/v1/lists"):
            connected.request("GET", path)
    connected.replay("tour")
    connected.me()
    rows = by_part(findings())

    assert rows.loc[OTHER_LIMITS, "interactions"] == "tour 1"
    assert rows.loc[UNIT, "interactions"] == "tour 0-1; rate_limits() 0"


@contextmanager
def current_session(server: StandIn, key: str = "", **options: Any) -> Iterator[Session]:
    """A session with a stand-in, made the current one for a time."""
    with Session(server.base_url, ApiKey(key or server.api_key), **options) as opened:
        current.make_current(opened)
        yield opened
    current.make_current(None)


def test_a_live_session_tells_what_it_saw() -> None:
    """Not recorded, and all the same the record, a refusal and its shape; no value is kept."""
    with (
        stand_in(limit=60, exhausted_status=420) as server,
        current_session(server, pace="off") as opened,
    ):
        for _ in range(62):
            opened.client.get(ME_PATH)
        asyncio.run(opened.async_client.get(ME_PATH))  # type: ignore[arg-type]
        with opened.client.stream("GET", ME_PATH):
            pass  # a reading, and no shape
        rows = by_part(findings())

    assert rows.loc[ME, "seen"].startswith("id string, name string, email string")
    assert (rows.loc[ME, "how_sure"], rows.loc[ME, "interactions"]) == (
        "seen repeatedly", "rate_limits() 0-59",
    )  # fmt: skip
    assert rows.loc[EXHAUSTED, "seen"].startswith("420: JSON error.status integer")
    assert rows.loc[EXHAUSTED, "seen"].endswith("no Retry-After")
    assert rows.loc[EXHAUSTED, "interactions"] == "rate_limits() 60-63"
    assert rows.loc[OTHER_LIMITS, "seen"] == "GET /v1/users/me 60"
    assert "Stand-in User" not in repr(vars(opened.response_shapes)) + rows.to_string()


def test_exhaustion_is_told_with_its_body_where_that_was_kept() -> None:
    """And whether it says when to come back."""
    spent = (("X-RateLimit-Remaining", "0"), ("Retry-After", "9"))
    rows = found(sample({"error": "x"}, status=503, headers=spent), sample({}, status=404))

    assert rows.loc[EXHAUSTED, "seen"] == "503: JSON error string, with Retry-After"


def test_explore_sends_reads_only_and_says_so(connected: Session, service: StandIn) -> None:
    """Each request is announced, and those before it were not writes."""
    lines: list[str] = []
    explore(pause_s=0, announce=lines.append)
    methods = {name.partition(" ")[0] for name in service.requests}

    assert methods <= {"GET", "OPTIONS"}
    assert len(lines) == 1 + service.requests.total()
    assert "GET /v1/users/me with a wrong key: 401" in lines


def test_explore_finds_what_it_asked_for(connected: Session) -> None:
    """The record, both refusals, an error, the next version."""
    rows = by_part(explore(pause_s=0, announce=list))

    assert "company.address.postcode string" in rows.loc[ME, "seen"]
    assert rows.loc[NO_KEY, "seen"].startswith("401: JSON error")
    assert rows.loc[WRONG_KEY, "seen"].startswith("401: JSON error")
    assert rows.loc[VERSIONS, "seen"] == "GET /v2/users/me 404"
    assert rows.loc[ERRORS, "seen"].startswith("401, 404, 405: JSON")


def test_what_it_found_stays_with_the_session(connected: Session) -> None:
    """Later findings have it, and send nothing."""
    first = explore(pause_s=0, announce=list)
    sent = len(connected.readings)

    pd.testing.assert_frame_equal(findings(), first)
    assert len(connected.readings) == sent


def test_explore_pauses_between_requests_until_the_unit_is_known(
    connected: Session, service: StandIn
) -> None:
    """A pause less than there were requests, and an end where nothing tells the unit."""
    pauses: list[float] = []
    explore(pause_s=0.5, announce=list, sleep=pauses.append)

    assert pauses == [0.5] * (service.requests.total() - 1)
    assert len(pauses) < 20


def test_a_wrong_key_is_sent_once_whatever_the_session(service: StandIn) -> None:
    """In the life of the process: another session with that address sends it no more."""
    lines: list[str] = []
    for _ in range(2):
        with current_session(service):
            explore(pause_s=0, announce=lines.append)

    assert sum("with a wrong key: 401" in line for line in lines) == 1
    assert any("not sent again" in line for line in lines)


def test_a_refused_key_is_sent_once(service: StandIn) -> None:
    """The session's own key is the wrong one: nothing more goes out, and no other wrong one."""
    lines: list[str] = []
    sent = []
    for key in ("not-the-key", service.api_key):
        with current_session(service, key):
            explore(pause_s=0, announce=lines.append)
        sent.append(service.requests.total())

    assert sent[0] == 1
    assert any("not sent again" in line for line in lines)


def test_a_unit_that_shows_at_once_ends_the_reading() -> None:
    """A point in time is told by its size."""
    with stand_in(reset_unit="epoch_ms") as server, current_session(server):
        rows = by_part(explore(pause_s=0, announce=list))
        reads = server.requests[f"GET {ME_PATH}"]

    assert (rows.loc[UNIT, "how_sure"], reads) == ("certain", 3)
    assert rows.loc[UNIT, "seen"].startswith("epoch_ms")


def test_no_reads_are_sent_for_a_unit_where_there_is_no_reset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One read, and not twelve more, tells that no answer will ever show it; lines are printed."""
    faults = [Fault(headers={"X-RateLimit-Reset": None})]
    with stand_in(faults=faults) as server, current_session(server):
        explore(pause_s=0)
        reads = server.requests[f"GET {ME_PATH}"]

    assert reads == 3  # with the key, without one, with a wrong one
    assert "no X-RateLimit-Reset" in capsys.readouterr().out.splitlines()[-1]


def test_a_recording_holds_no_answer_to_another_key(connected: Session, tmp_path: Path) -> None:
    """Or a replay would give it to who asks with the right one."""
    with connected.record(tmp_path / "tour.yaml"):
        explore(pause_s=0, announce=list)
    with connected.replay(tmp_path / "tour.yaml", repeat="strict"):
        record = connected.me()

    assert len(record) == 1
    assert '"code": 401' not in (tmp_path / "tour.yaml").read_text(encoding="utf-8")


def test_other_regions_are_asked_without_the_key(
    connected: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known to be theirs."""
    with stand_in(api_key="another-region") as other:
        monkeypatch.setenv("DIRECTMAIL_REGIONS", f"other={other.base_url}")
        rows = by_part(explore(pause_s=0, announce=list))

    assert f"{other.base_url}: 401" in rows.loc["regional base addresses", "seen"]
    assert other.requests == {f"GET {ME_PATH}": 1}


def test_no_answer_is_announced_and_the_rest_goes_on(
    connected: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that hangs up on everybody."""
    lines: list[str] = []
    with stand_in(faults=[Fault(drop="close")]) as other:
        monkeypatch.setenv("DIRECTMAIL_REGIONS", f"other={other.base_url}")
        rows = by_part(explore(pause_s=0, announce=lines.append))

    assert f"GET {ME_PATH} without a key: no response (RemoteProtocolError)" in lines
    assert rows.loc[UNIT, "how_sure"] == "undecided"


def test_a_replay_cannot_be_asked(connected: Session, tmp_path: Path) -> None:
    """It says what can be done instead."""
    with connected.record(tmp_path / "tour.yaml"):
        connected.me()
    connected.replay(tmp_path / "tour.yaml")

    with pytest.raises(NotConnectedError, match="findings"):
        explore()
