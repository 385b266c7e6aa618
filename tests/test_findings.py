"""Findings: what was seen of each part that service.md leaves open, and what tells more."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cassette_samples import NOON, answered, get, recorded
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.exchange.contract import ME_PATH
from directmail_lab.exchange.values import Interaction, Response
from directmail_lab.questions.findings import findings
from directmail_lab.sessions import current
from directmail_lab.sessions.session import Session

ME = "the user's record"
EXHAUSTED = "answer when the allowance is used up"
OTHER_LIMITS = "operations with other allowances"
NO_KEY = "answer to a missing or invalid key"
ERRORS = "errors: statuses and body shapes"
VERSIONS = "versions: new ones, deprecation"


def sample(body: object, status: int = 200, path: str = ME_PATH, **headers: str) -> Interaction:
    """Return an interaction with this body: a text as it is, anything else as JSON."""
    content = body if isinstance(body, str) else json.dumps(body)
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Interaction(get(path), Response(status, "", pairs, content.encode()), NOON)


def found(*interactions: Interaction) -> pd.DataFrame:
    Path("tour.yaml").write_text("version: 1\ninteractions: []\n")
    return findings(recorded("tour.yaml", *interactions)).set_index("part")


@pytest.mark.parametrize("seen", [[], [sample({"id": "1"})]])
def test_every_part_that_service_md_leaves_open_has_a_row(seen):
    rows = found(*seen)

    assert set(rows.dtypes.astype(str)) == {"string"}
    assert "; ".join(rows["section"]) == "1, 4; 2; 3; 4; 4; 5; 5; 6; 7; 8; 8; 8; 9"
    assert rows["find_out"].str.len().gt(0).all()
    assert seen or set(rows["how_sure"]) == {"not seen"}
    assert seen or set(rows["seen"]) == {""}


def test_the_records_fields_have_types_and_may_be_null_or_missing():
    rows = found(
        sample({"id": "1", "phone": None, "lists": [{"email": "ada@example.com"}]}),
        sample({"id": "2", "phone": "555", "lists": [], "age": 3}),
    )

    seen = "id string, phone string or null, lists[].email string, age? integer"
    assert rows.loc[ME, "seen"] == seen
    assert "ada@" not in rows.to_string()
    assert list(rows.loc[ME, ["how_sure", "interactions"]]) == ["seen repeatedly", "tour: 1-2"]


def test_names_from_a_body_are_safe_to_print():
    """A stranger's cassette may have fields that a terminal would obey."""
    rows = found(sample({"\u202eevil": "1"}))

    assert rows.loc[ME, "seen"] == r"\u202eevil string"


NONE = {"X_RateLimit_Remaining": "0"}
HTML = "text/html; charset=utf-8"
HTML_OR_NONE = "502: text/html or no body"
LISTS = "/v1/lists"
ELSEWHERE = answered(get("/file", base="https://files.example.test"), status=404)


@pytest.mark.parametrize(
    ("part", "samples", "seen"),
    [
        (ERRORS, [sample({"e": 1}, 404), sample("", 401)], "401: no body; 404: JSON e integer"),
        (ERRORS, [sample("<p>", 502, Content_Type=HTML), sample("", 502)], HTML_OR_NONE),
        (VERSIONS, [sample({}, 404, "/v2/me"), sample({}, path="/v1x/y")], "GET /v2/me: 404"),
        (
            EXHAUSTED,
            [sample({}, 429, Retry_After="9", **NONE)],
            "429: JSON object, with Retry-After",
        ),
        (EXHAUSTED, [sample({}, **NONE), sample({}, 429)], "429: JSON object, no Retry-After"),
        (EXHAUSTED, [sample("", 403, **NONE)] * 2, "403: no body, no Retry-After"),
        # A burst limit, a limit on simultaneous requests; maintenance; another meaning.
        (EXHAUSTED, [sample({}, 429, X_RateLimit_Remaining="6"), sample({}, 429)], ""),
        (EXHAUSTED, [sample("", 503, **NONE), sample("", 401)], ""),
        (
            EXHAUSTED,
            [*[sample("", 503, **NONE)] * 2, sample("", 503, X_RateLimit_Remaining="5")],
            "",
        ),
        (OTHER_LIMITS, [sample("", 200, LISTS, X_RateLimit_Limit="60")], "GET /v1/lists: 60"),
        (ERRORS, [ELSEWHERE, sample("", 401)], "401: no body"),
    ],
)
def test_each_part_lists_what_was_seen_by_status_or_operation(part, samples, seen):
    """What another server says is no finding."""
    assert found(*samples).loc[part, "seen"] == seen


@contextmanager
def current_session(server: FaultyService, key: str = "", **options: Any) -> Iterator[Session]:
    with Session(server.base_url, key or server.api_key, **options) as opened:
        current.make_current(opened)
        yield opened
    current.make_current(None)


def test_a_live_sessions_findings_need_no_recording():
    server = FaultyService(limit=2, exhausted_status=420)
    with server, current_session(server, pace="off") as opened:
        for _ in range(3):
            opened.client.get(ME_PATH)
        asyncio.run(opened.async_client.get(ME_PATH))
        with opened.client.stream("GET", ME_PATH):
            pass
        frame = findings()
    rows = frame.set_index("part")

    assert rows.loc[ME, "interactions"] == "this session: 1-2"
    exhausted = rows.loc[EXHAUSTED, "seen"]
    assert exhausted.startswith("420: JSON error.status integer")
    assert exhausted.endswith(" or a body that was not kept, no Retry-After")
    assert rows.loc[EXHAUSTED, "interactions"] == "this session: 3-5"
    assert "Stand-in User" not in rows.to_string()
    assert "this session: bodies of the last 4 of 5." in frame.attrs["notes"]


@pytest.mark.usefixtures("connected")
def test_the_requests_that_findings_names_tell_more():
    before = findings().set_index("part")
    for part in (NO_KEY, ERRORS, VERSIONS):
        eval(before.loc[part, "find_out"], {"dm": dm})
    rows = findings().set_index("part")

    assert set(before["seen"]) == {""}
    assert rows.loc[NO_KEY, "seen"].startswith("401: JSON error")
    assert list(rows.loc[[NO_KEY, VERSIONS], "interactions"]) == [
        "this session: 1",
        "this session: 3",
    ]
    assert rows.loc[ERRORS, "interactions"] == "this session: 1-3"
    assert rows.loc[VERSIONS, "seen"] == "GET /v2/users/me: 404"
