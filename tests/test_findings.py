"""Findings: what was seen of each part that service.md leaves open, and asking for the rest."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from cassette_samples import NOON, get, recorded
from faulty_service import Fault, FaultyService

from directmail_lab import current
from directmail_lab.contract import ME_PATH
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import NotConnectedError
from directmail_lab.interaction import Interaction, RecordedResponse
from directmail_lab.questions.findings import explore, findings
from directmail_lab.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

ME = "the user's record"
UNIT = "unit of X-RateLimit-Reset"
EXHAUSTED = "answer when the allowance is used up"
OTHER_LIMITS = "operations with other allowances"
NO_KEY = "answer to a missing key"
WRONG_KEY = "answer to an invalid key"
ERRORS = "errors: statuses and body shapes"
VERSIONS = "versions: new ones, deprecation"


def sample(body: object, status: int = 200, path: str = ME_PATH, **headers: str) -> Interaction:
    """A response with this body, a text as it is and anything else as JSON."""
    content = body if isinstance(body, str) else json.dumps(body)
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Interaction(get(path), RecordedResponse(status, "", pairs, content.encode()), NOON)


def found(*interactions: Interaction) -> pd.DataFrame:
    """The findings of a recording of these alone, by part."""
    Path("tour.yaml").write_text("version: 1\ninteractions: []\n")
    return by_part(findings(recorded(Path("tour.yaml"), *interactions)))


def by_part(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_index("part")


@pytest.mark.parametrize("seen", [[], [sample({"id": "1"})]])
def test_every_open_part_has_its_row(seen: list[Interaction]) -> None:
    """In the document's order, also if nothing was seen, with the call that would show more."""
    rows = found(*seen)
    dtypes = rows.reset_index().dtypes.astype(str).to_dict()
    columns = ("part", "section", "seen", "how_sure", "interactions", "find_out")

    assert dtypes == {**dict.fromkeys(columns, "string"), "schema": "object"}
    assert "; ".join(rows["section"]) == "1, 4; 2; 3; 4; 4; 5; 5; 5; 6; 7; 8; 8; 8; 9"
    assert rows["find_out"].str.len().gt(0).all()
    assert seen or set(rows["how_sure"]) == {"not seen"}
    assert seen or set(rows["seen"]) == {""}


def test_the_records_schema_has_types_nulls_and_required_fields() -> None:
    """One schema of all records seen: a field that was null once may be null."""
    rows = found(
        sample({"id": "1", "phone": None, "company": {"postcode": "01234"}}),
        sample({"id": "2", "phone": "555", "company": {"postcode": "9"}, "age": 3}),
    )
    schema = rows.loc[ME, "schema"]

    assert rows.loc[ME, "seen"] == (
        "id string, phone string or null, company.postcode string, age? integer"
    )
    assert schema["required"] == ["id", "phone", "company"]
    assert set(schema["properties"]["phone"]["type"]) == {"null", "string"}
    assert list(rows.loc[ME, ["how_sure", "interactions"]]) == ["seen repeatedly", "tour: 1-2"]


UNKNOWN = "401: JSON object (the recording does not say with which key)"
HTML = "text/html; charset=utf-8"
HTML_OR_NONE = "502: text/html or no body"
LISTS = "/v1/lists"
USUAL = "none so far: 300 for GET /v1/lists"


@pytest.mark.parametrize(
    ("part", "samples", "seen"),
    [
        (ERRORS, [sample({"e": 1}, 404), sample({"e": 2}, 401)], "401, 404: JSON e integer"),
        (ERRORS, [sample("<p>", 502, Content_Type=HTML), sample("", 502)], HTML_OR_NONE),
        (ERRORS, [sample("", 500), sample("x", 404)], "404: no content type; 500: no body"),
        (NO_KEY, [sample({}, 401)], UNKNOWN),
        (WRONG_KEY, [sample({}, 401)], UNKNOWN),
        (VERSIONS, [sample({}, 404, "/v2/me"), sample({}, path="/v1x/y")], "GET /v2/me 404"),
        (VERSIONS, [sample({}, path=LISTS, sunset="x")], "GET /v1/lists has the header Sunset"),
        (EXHAUSTED, [sample({}, 429, Retry_After="9")], "429: JSON object, with Retry-After"),
        (EXHAUSTED, [sample("", 503, X_RateLimit_Remaining="0")], "503: no body, no Retry-After"),
        (EXHAUSTED, [sample("", 503, X_RateLimit_Remaining="1")], ""),
        (OTHER_LIMITS, [sample("", 200, LISTS, X_RateLimit_Limit="300")], USUAL),
    ],
)
def test_a_part_says_what_was_seen(part: str, samples: list[Interaction], seen: str) -> None:
    """Statuses with the same body stand together; the key is named only where it is known."""
    assert found(*samples).loc[part, "seen"] == seen


def test_no_value_of_the_account_is_shown() -> None:
    """Only shapes, and single words of fields named state or status, at any depth."""
    lists = [{"status": "to_do"}, {"status": "two words"}, {"status": 7}]
    record = {"email": "ada@example.com", "state": "active", "status": "ada@x.org", "lists": lists}
    rows = found(sample(record))
    text = rows.to_string() + json.dumps(rows.loc[ME, "schema"])

    assert "ada@" not in text
    assert rows.loc["states and transitions", "seen"].endswith(": active, to_do")


def test_a_cassettes_findings_need_no_session(connected: Session, tmp_path: Path) -> None:
    """The same rows from the file alone, counted as `interactions` does."""
    with connected.record(tmp_path / "tour.yaml"):
        for path in (ME_PATH, "/v1/lists", "/v1/lists", "/v1/nowhere"):
            connected.request("GET", path)
    current.make_current(None)
    rows = by_part(findings(tmp_path / "tour.yaml"))

    assert rows.loc["other operations", "seen"] == "GET /v1/lists 200"
    assert rows.loc["other operations", "interactions"] == "tour: 2-3"
    assert rows.loc[OTHER_LIMITS, "seen"] == "GET /v1/lists 60"
    assert rows.loc[ERRORS, "seen"].startswith("404: JSON error.status integer")
    assert rows.loc[UNIT, "how_sure"] == "undecided"


def test_several_recordings_make_one_table() -> None:
    """Each counts its own interactions; units that differ are both named, and none is certain."""
    names = [Path(f"{name}.yaml") for name in ("a", "b")]
    for name, reset in zip(names, ("1795262460", "1795262460000"), strict=True):
        recorded(name, sample({"id": 1}, X_RateLimit_Reset=reset), sample({}, path="/v1/a"))
    rows = by_part(findings(names))

    assert rows.loc[ME, ["seen", "interactions"]].tolist() == ["id integer", "a: 1; b: 1"]
    assert rows.loc[UNIT, "how_sure"] == "undecided"
    assert {"epoch_s.", "epoch_ms."} <= set(rows.loc[UNIT, "seen"].split())


@contextmanager
def current_session(server: FaultyService, key: str = "", **options: Any) -> Iterator[Session]:
    """A session with a stand-in, made the current one for a time."""
    with Session(server.base_url, ApiKey(key or server.api_key), **options) as opened:
        current.make_current(opened)
        yield opened
    current.make_current(None)


def test_a_live_sessions_findings_need_no_recording() -> None:
    """The record, a refusal and its shape; of a stream, whose body is not kept, the headers."""
    with (
        FaultyService(limit=60, exhausted_status=420) as server,
        current_session(server, pace="off") as opened,
    ):
        for _ in range(62):
            opened.client.get(ME_PATH)
        asyncio.run(opened.async_client.get(ME_PATH))  # type: ignore[arg-type]
        with opened.client.stream("GET", ME_PATH):
            pass
        frame = findings()
        rows = by_part(frame)

    assert rows.loc[ME, "seen"].startswith("id string, name string, email string")
    assert rows.loc[ME, "interactions"].endswith(": 1-60")
    assert rows.loc[EXHAUSTED, "seen"].startswith("420: JSON error.status integer")
    assert rows.loc[EXHAUSTED, "seen"].endswith("no Retry-After")
    assert rows.loc[EXHAUSTED, "interactions"].endswith(": 61-64")
    assert rows.loc[OTHER_LIMITS, "seen"] == "GET /v1/users/me 60"
    assert "Stand-in User" not in rows.to_string()
    assert frame.attrs["notes"][0].endswith("bodies of the last 63 of 64.")


def test_explore_sends_reads_and_shows_what_they_found(
    connected: Session,
    service: FaultyService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is printed, with a pause after it; the result stays with the session."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    frame = explore(pause_s=0.5)
    rows, sent = by_part(frame), service.requests.total()
    lines = capsys.readouterr().out.splitlines()

    assert {name.partition(" ")[0] for name in service.requests} == {"GET", "OPTIONS"}
    assert "GET /v1/users/me with a wrong key: 401" in lines
    assert (len(lines), pauses.count(0.5)) == (1 + sent, sent)
    assert sent <= 20
    assert "company.address.postcode string" in rows.loc[ME, "seen"]
    assert rows.loc[NO_KEY, "seen"].startswith("401: JSON error")
    assert list(rows.loc[[NO_KEY, WRONG_KEY], "interactions"]) == ["explore: 2", "explore: 1"]
    assert rows.loc[VERSIONS, "seen"] == "GET /v2/users/me 404"
    assert rows.loc[ERRORS, "seen"].startswith("401, 404, 405: JSON")
    pd.testing.assert_frame_equal(findings(), frame)
    assert service.requests.total() == sent


@pytest.mark.parametrize("key", ["", "not-the-key"])
def test_a_wrong_key_is_sent_once_by_all_sessions(
    service: FaultyService, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    """In the life of the process, for one address; nothing follows a session's own wrong key."""
    with current_session(service, key):
        explore(pause_s=0)
    if key:
        assert service.requests.total() == 1
    with current_session(service):
        explore(pause_s=0)
    lines = capsys.readouterr().out.splitlines()

    assert sum("with a wrong key: 401" in line for line in lines) == (0 if key else 1)
    assert sum("not sent again" in line for line in lines) == 1


def test_a_unit_that_shows_at_once_ends_the_reading() -> None:
    """A point in time is known by its size."""
    with FaultyService(reset_unit="epoch_ms") as server, current_session(server):
        rows = by_part(explore(pause_s=0))
        reads = server.requests[f"GET {ME_PATH}"]

    assert (rows.loc[UNIT, "how_sure"], reads) == ("certain", 3)
    assert rows.loc[UNIT, "seen"].startswith("epoch_ms")


def test_no_reads_are_sent_for_a_unit_where_there_is_no_reset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One read, and not twelve more, shows that no response will; lines are printed."""
    faults = [Fault(headers={"X-RateLimit-Reset": None})]
    with FaultyService(faults=faults) as server, current_session(server):
        explore(pause_s=0)
        reads = server.requests[f"GET {ME_PATH}"]

    assert reads == 3  # with the key, without one, with a wrong one
    assert "no X-RateLimit-Reset" in capsys.readouterr().out.splitlines()[-1]


def test_a_recording_has_no_response_to_another_key(connected: Session, tmp_path: Path) -> None:
    """Or a replay would give it to a request with the right one; a replay is not explored."""
    with connected.record(tmp_path / "tour.yaml"):
        explore(pause_s=0)
    connected.replay(tmp_path / "tour.yaml", repeat="strict")

    assert len(connected.me()) == 1
    assert '"code": 401' not in (tmp_path / "tour.yaml").read_text(encoding="utf-8")
    with pytest.raises(NotConnectedError, match="findings"):
        explore()


@pytest.mark.parametrize(
    ("faults", "line"),
    [
        ([], "GET /v1/users/me without a key: 401"),
        (
            [Fault(drop="close")],
            "GET /v1/users/me without a key: no response (RemoteProtocolError)",
        ),
    ],
)
def test_other_regions_get_requests_without_the_key(
    connected: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faults: list[Fault],
    line: str,
) -> None:
    """It may not be theirs. One that hangs up is named, and the rest goes on."""
    with FaultyService(api_key="another-region", faults=faults) as other:
        monkeypatch.setenv("DIRECTMAIL_REGIONS", f"other={other.base_url}")
        rows = by_part(explore(pause_s=0))
    lines = capsys.readouterr().out.splitlines()

    assert lines.index(line, 7) == 7  # after the six to the session's own address
    assert other.requests == {f"GET {ME_PATH}": 1}
    assert faults or f"{other.base_url}: 401" in rows.loc["regional base addresses", "seen"]
    assert rows.loc[UNIT, "how_sure"] == "undecided"
