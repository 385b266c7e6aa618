"""Drift: two responses compared by path, and a cassette against the service of now."""

from __future__ import annotations

import copy
import functools
import json
import operator
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import answered, get, recorded, theirs
from faulty_service import FaultyService
from hypothesis import given, strategies as st

from directmail_lab import Session, current
from directmail_lab.display import as_html
from directmail_lab.errors import DirectMailLabError, NotConnectedError, UnauthorizedError
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.network import NetworkTransport
from directmail_lab.questions.drift import Difference, age_problem, compare, drift
from directmail_lab.standin import STAND_IN_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx
    import pandas as pd

RECORD: dict[str, Any] = json.loads(json.dumps(STAND_IN_RECORD))
HEADERS = {
    "Content-Type": "application/json",
    "Date": "Sat, 21 Nov 2026 04:00:00 GMT",
    "X-RateLimit-Limit": "300",
    "X-RateLimit-Remaining": "299",
    "X-RateLimit-Reset": "37",
}
WEEK = timedelta(days=7)
RECORDED_AT = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)


def response(
    body: object = RECORD,
    *,
    status: int = 200,
    headers: Mapping[str, str] = HEADERS,
    method: str = "GET",
    at: datetime = RECORDED_AT,
) -> Interaction:
    """A response to GET /v1/users/me."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = RecordedRequest(method, "https://api.test/v1/users/me")
    recorded = RecordedResponse(status, "", tuple(headers.items()), content)
    return Interaction(request, recorded, at)


def changes(was: object, is_now: object, **options: Any) -> str:
    """Path and change of each difference between two bodies: ``a removed, b added``."""
    return words(compare(response(was), response(is_now), **options))


def words(found: list[Difference]) -> str:
    return ", ".join(f"{difference.path} {difference.change}" for difference in found)


def paths_of(record: dict[str, Any], prefix: str = "") -> list[str]:
    """The path of every field of a record, those that hold others included."""
    paths = []
    for name, value in record.items():
        paths.append(prefix + name)
        paths += paths_of(value, f"{prefix}{name}.") if isinstance(value, dict) else []
    return paths


# -- bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", paths_of(RECORD))
def test_each_change_of_each_field_is_named_by_its_path(path: str) -> None:
    """One field removed, added, renamed, turned null, filled, retyped or changed."""
    *parents, name = path.split(".")
    before = functools.reduce(operator.getitem, [*parents, name], RECORD)

    def record_with(**fields: object) -> dict[str, Any]:
        record = copy.deepcopy(RECORD)
        parent = functools.reduce(operator.getitem, parents, record)
        del parent[name]
        parent |= fields
        return record

    filled = "null-filled" if before is None else "retyped"
    changed = "changed" if isinstance(before, str) else filled
    assert changes(RECORD, record_with()) == f"{path} removed"
    assert changes(record_with(), RECORD) == f"{path} added"
    assert changes(RECORD, record_with(zzz=before)) == f"{path} possibly renamed"
    assert changes(RECORD, record_with(**{name: 5})) == f"{path} {filled}"
    assert changes(RECORD, record_with(**{name: "another"})) == f"{path} {changed}"
    turned = "" if before is None else f"{path} null-turned"
    assert changes(RECORD, record_with(**{name: None})) == turned


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdé"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON, JSON)
def test_two_bodies_differ_exactly_where_they_are_not_equal(was: Any, is_now: Any) -> None:
    """No difference is made up, and none is missed."""
    are_equal = json.dumps(was, sort_keys=True) == json.dumps(is_now, sort_keys=True)

    assert (changes(was, is_now) == "") == are_equal


@pytest.mark.parametrize(
    ("was", "is_now", "expected"),
    [
        # Renamed: one field of an object, to one of the same type, its value or a similar name.
        ({"postcode": "1"}, {"postal_code": "2"}, "postcode possibly renamed"),
        ({"a": None, "b": 1}, {"y": None, "z": 1}, "a removed, b removed, y added, z added"),
        ({"name": "x"}, {"email": "y"}, "name removed, email added"),
        ({"name": "5"}, {"names": 5}, "name removed, names added"),
        ({"a": {"n": "A"}, "b": {}}, {"a": {}, "b": {"m": "A"}}, "a.n removed, b.m added"),
        # Arrays, by id or by position.
        (["a", "b"], ["a", "c"], "[1] changed"),
        ({"tags": [{"n": 1}]}, {"tags": [{"n": None}]}, "tags[0].n null-turned"),
        ([{"id": 1, "n": 1}, {"id": 2}], [{"id": 2}, {"id": 1, "n": 2}], "[id=1].n changed"),
        ([{"id": 1}, {"id": 1}], [{"id": 1}], "[1] removed"),
        ([{"id": 1}], [{"id": 2}], "[id=1] removed, [id=2] added"),
        ([{"id": 1, "n": 1}, {}], [{"id": 1, "n": 2}], "[1] removed, [id=1].n changed"),
        # Whole bodies.
        (1, 1.0, ""),
        (1, True, "$ retyped"),
        ({}, None, "$ null-turned"),
        (b"<html>", b"<html> ", "$ changed"),
        ({}, b"", "$ removed"),
        (b"", {}, "$ added"),
        # First what was added and removed, then what is in the fields.
        ({"b": {"x": 1}, "a": 1}, {"a": 2, "b": {"y": 3}}, "b.x removed, b.y added, a changed"),
        # Volatile: another value is no difference; another type or its absence is.
        ({"a": {"request_id": "x"}}, {"a": {"request_id": "y"}}, ""),
        ({"updatedAt": "x", "last-login-at": 1}, {"updatedAt": "y", "last-login-at": 2}, ""),
        ({"serverTime": "x"}, {"serverTime": 1}, "serverTime retyped"),
    ],
)
def test_a_body_is_compared_by_path(was: object, is_now: object, expected: str) -> None:
    """Each difference has its path and what kind of change it is; ``$`` is the whole body."""
    assert changes(was, is_now) == expected


def test_a_renamed_field_has_both_values_and_both_paths() -> None:
    """So that a table shows what became of it."""
    renamed = compare(response({"a": {"zip": "01234"}}), response({"a": {"code": "01234"}}))

    assert renamed == [Difference("body", "a.zip", "possibly renamed", "01234", "01234", "a.code")]


def test_a_deep_body_is_compared_without_recursion() -> None:
    """As deep as JSON can be read at all."""
    depth = sys.getrecursionlimit() - 400
    was = b'{"a":' * depth + b"1" + b"}" * depth
    found = compare(response(was), response(was.replace(b"1", b"2")))

    assert [(each.path.count("a"), each.change) for each in found] == [(depth, "changed")]


# -- statuses and headers ----------------------------------------------------------------------


def test_statuses_are_compared_and_the_rest_unless_one_is_an_error() -> None:
    """Else every field of the record would be listed as removed; a HEAD has no body."""
    created = compare(response(), response({**RECORD, "name": "x"}, status=201))
    failed = compare(response(), response({"error": "x"}, status=500))

    assert words(created) == "status changed, name changed"
    assert failed == [Difference("status", "status", "changed", 200, 500)]
    assert compare(response(b"", method="HEAD"), response({}, method="HEAD")) == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-RateLimit-Reset": None}, "x-ratelimit-reset removed"),
        ({"X-New": "1"}, "x-new added"),
        ({"X-RateLimit-Reset": "soon"}, "x-ratelimit-reset retyped"),
        ({"X-RateLimit-Limit": "100"}, "x-ratelimit-limit changed"),
        ({"x-ratelimit-limit": "300"}, "x-ratelimit-limit retyped"),  # sent twice
        ({"Age": "5", "CF-Ray": "abc", "Set-Cookie": "x"}, ""),
        ({"X-RateLimit-Limit": None, "X-RATELIMIT-LIMIT": "300"}, ""),
        ({"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1", "Date": "Sun, 22 Nov"}, ""),
    ],
)
def test_headers_are_compared_by_name(headers: dict[str, str | None], expected: str) -> None:
    """Presence and type always, values where they mean something, neither case nor order."""
    sent = {name: value for name, value in {**HEADERS, **headers}.items() if value is not None}
    found = compare(response(), response(headers=dict(reversed(sent.items()))))

    assert words(found) == expected
    assert {each.part for each in found} <= {"header"}


# -- volatile values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "is_now", "silent"),
    [
        ("2026-11-21T04:00:01Z", "2026-11-28T04:00:02+00:00", True),
        ("2026-11-21T04:00:01", "2026-11-28T03:59:00", True),
        ("2026-11-21T04:00:01Z", "2026-11-21T05:00:01Z", False),
        ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", False),
        ("2026-99-99T04:00:01Z", "2026-11-28T04:00:02Z", False),
    ],
)
def test_a_time_that_moved_with_the_clock_is_silent(
    monkeypatch: pytest.MonkeyPatch, was: object, is_now: object, silent: bool
) -> None:
    """A field that always tells the time of its answer; one without a zone is UTC, anywhere."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        now = response({"as_of": is_now}, at=RECORDED_AT + WEEK)
        found = compare(response({"as_of": was}), now)
    time.tzset()

    assert (found == []) is silent


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ([], "x-new, name, company.name"),
        (["name"], "x-new, company.name"),
        (["header.x-new", "*.name"], "name"),
        (["nam", "company.*"], "x-new, name"),
    ],
)
def test_ignored_paths_are_left_out(ignore: list[str], left: str) -> None:
    """A path, with or without its part, and ``*`` for any text."""
    record = {**RECORD, "name": "x", "company": {**RECORD["company"], "name": "y"}}
    now = response(record, headers={**HEADERS, "X-New": "1"})

    assert ", ".join(each.path for each in compare(response(), now, ignore=ignore)) == left


# -- a cassette against the service of now -----------------------------------------------------


def record_tour(service: FaultyService, **options: Any) -> Path:
    """A cassette of two reads, one of them three times, an error and a HEAD."""
    path = Path("tour.yaml").resolve()
    with live_session(service) as session, session.record(path, record_mode="all", **options):
        for name in ("users/me", "lists?page=1", "users/me", "users/me", "no"):
            session.request("GET", f"/v1/{name}")
        session.request("HEAD", "/v1/users/me")
    return path


@contextmanager
def live_session(service: FaultyService, key: str = "", **options: Any) -> Iterator[Session]:
    """A session with a stand-in, made the current one for a time."""
    with Session(service.base_url, key or service.api_key, **options) as opened:
        current.make_current(opened)
        yield opened
    current.make_current(None)


def drift_later(path: Path, **behaviour: Any) -> pd.DataFrame:
    """What changed since a recording, with another stand-in as the service of a later day."""
    with FaultyService(**behaviour) as later, live_session(later):
        table = drift(path)
        assert later.requests.total() == table.attrs["sent"]
    return table


@pytest.mark.parametrize("redact", [[], ["personal", "name"]])
def test_an_unchanged_service_gives_an_empty_frame(
    service: FaultyService, redact: list[str]
) -> None:
    """Each distinct read is sent once, and compared in the form in which it was redacted."""
    path = record_tour(service, redact=redact)
    table = drift_later(path, prefix="/eu", limit=300)

    texts, objects = ("operation", "part", "path", "change", "new_path"), ("recorded", "now")
    dtypes = {**dict.fromkeys(texts, "string"), **dict.fromkeys(objects, "object")}
    assert ("Stand-in User" in path.read_text(encoding="utf-8")) != bool(redact)
    assert table.empty
    assert table.dtypes.astype(str).to_dict() == {"number": "Int64", **dtypes}
    notes = ["4 requests sent, all answered as recorded."]
    assert table.attrs == {"sent": 4, "not_sent": [], "notes": notes}
    assert notes[0] in as_html(table)


def test_what_has_changed_is_listed_with_its_number_and_both_values(service: FaultyService) -> None:
    """A field, an allowance, a status: compared with the last response that was no error."""
    path = record_tour(service)
    record = {**RECORD, "phone": 5}
    with FaultyService(limit=100, record=record) as later, live_session(later):
        later.fault(path="/v1/lists", status=404)
        table = drift(path, ignore="header.content-*")

    columns = table[["number", "operation", "path", "recorded", "now"]].astype(object)
    rows = set(columns.itertuples(index=False, name=None))
    me = "GET /v1/users/me"
    assert {(4, me, "phone", None, 5), (2, "GET /v1/lists", "status", 200, 404)} <= rows
    assert (4, me, "x-ratelimit-limit", 300, 100) in rows


def test_a_refused_key_is_an_error_and_no_drift(service: FaultyService) -> None:
    """It says nothing of the service; a refusal that was recorded as one is compared."""
    path = record_tour(service)
    with live_session(service, "not-the-key"):
        with pytest.raises(UnauthorizedError, match="GET /v1/users/me answered 401"):
            drift(path)
        with current.record(Path("refused.yaml").resolve()) as session:
            session.get("/v1/users/me")

        assert drift(Path("refused.yaml")).empty


def test_only_reads_that_are_whole_are_sent(service: FaultyService) -> None:
    """A write is never sent again, nor an address that lost a part to redaction."""
    path = Path("writes.yaml").resolve()
    with live_session(service, allow_writes=True) as session:
        with session.record(path):
            session.request("POST", "/v1/letters", json={"to": "x"})
            session.request("GET", f"/v1/users/me?api_key={service.api_key}")
            session.request("GET", "/v1/users/me?to=ada@lovelace.org")
        before = service.requests.copy()
        table = drift(path)

    assert service.api_key not in path.read_text(encoding="utf-8")
    assert table.attrs["not_sent"] == ["POST /v1/letters", "GET /v1/users/me"]
    assert (service.requests - before) == {"GET /v1/users/me": 1}


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"X-HTTP-Method-Override": "DELETE", "X-Forwarded-Host": "evil.test"}, "page=1"),
        ({"X-Original-URL": "/v1/letters/1", "Content-Type": "text/plain"}, ""),
        ({"Accept": "text/csv", "Accept-Language": "de", "Cookie": "a=b"}, ""),
        ({"Prefer": "<REDACTED>", "Accept-Charset": "<name-0123abcd>"}, ""),
        ({}, "_method=POST"),
        ({}, "page=1&%5Fmethod=DELETE"),
        ({}, "a=1;X-HTTP-Method-Override=PUT"),
    ],
)
def test_a_strangers_cassette_sends_nothing_but_reads(
    service: FaultyService,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    query: str,
) -> None:
    """Of its headers only what selects a representation is sent; no address overrides GET."""
    request = replace(get(f"/v1/users/me?{query}"), headers=tuple(headers.items()))
    path = recorded("stranger.yaml", answered(request))
    sent: list[httpx.Request] = []
    send = NetworkTransport.handle_request
    monkeypatch.setattr(
        NetworkTransport,
        "handle_request",
        lambda own, each: [sent.append(each), send(own, each)][1],
    )
    with live_session(service, allow_writes=True):
        drift(path)

    names = {name for request in sent for name in request.headers}
    left_out = {"x-http-method-override", "x-forwarded-host", "x-original-url", "content-type"}
    assert len(sent) == (0 if "ethod" in query else 1)
    assert names.isdisjoint({*left_out, "cookie", "prefer", "accept-charset"})
    assert ("accept-language" in names) == ("Accept-Language" in headers)


def test_drift_needs_a_key_and_leaves_no_trace(service: FaultyService) -> None:
    """Neither in the cassette, nor among the session's readings; a replay goes on."""
    path = record_tour(service)
    data = path.read_bytes()
    with Session(service.base_url) as keyless:
        current.make_current(keyless)
        with pytest.raises(NotConnectedError, match="no key"):
            drift(path)
    with live_session(service) as session:
        session.replay(path)
        before = service.requests.copy()
        drift(path)

        assert (session.mode, len(session.recording)) == ("replay", 0)
        assert (service.requests - before).total() == 4
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        (40, "is 40 days old, and max_age is 30 days"),
        (29, None),
        (None, "does not say when it was recorded, and max_age is 30 days"),
    ],
)
def test_the_age_of_a_recording_is_that_of_its_first_interaction(
    days: int | None, problem: str | None
) -> None:
    """In days; one that says no time is as good as old."""
    at = None if days is None else RECORDED_AT - timedelta(days=days)
    aged = [replace(answered(), recorded_at=at), answered()]

    assert age_problem(aged, "30 days", now=RECORDED_AT) == problem
    with pytest.raises(DirectMailLabError, match="a number of days"):
        age_problem(aged, "long", now=RECORDED_AT)


def test_a_key_that_another_program_recorded_is_neither_sent_nor_shown() -> None:
    """vcrpy redacts nothing: it may stand in an address, and wherever the service repeats it."""
    key, uri = "sk_live_9f8e7d6c5b4a", "https://api.test/v1/users/me"
    requests = [
        RecordedRequest("GET", each, (("Authorization", f"Bearer {key}"),))
        for each in (uri, f"{uri}?key={key}")
    ]
    answer = RecordedResponse(200, "OK", (), json.dumps({"id": key}).encode())
    path = theirs("foreign.yaml", *(Interaction(each, answer) for each in requests))
    table = drift_later(path, record={"id": "another"})

    assert table.set_index("part")["recorded"]["body"] == "<REDACTED>"
    assert table.attrs["not_sent"] == ["GET /v1/users/me"]
