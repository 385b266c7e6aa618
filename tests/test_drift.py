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
from hypothesis import given, strategies as st

from directmail_lab import Session, current
from directmail_lab.credentials import ApiKey
from directmail_lab.display import as_html
from directmail_lab.errors import (
    CassetteError,
    DirectMailLabError,
    NotConnectedError,
    UnauthorizedError,
)
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.network import NetworkTransport
from directmail_lab.questions.drift import Difference, OldCassetteWarning, compare, drift
from directmail_lab.standin import STAND_IN_RECORD, StandIn, stand_in

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
DAY, WEEK = timedelta(days=1), timedelta(days=7)
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


def mutated(path: str, change: str) -> tuple[dict[str, Any], str]:
    """The stand-in's record with one field mutated, and the difference."""
    record = copy.deepcopy(RECORD)
    *parents, name = path.split(".")
    parent = functools.reduce(operator.getitem, parents, record)
    before = parent.pop(name)
    match change:
        case "added":
            parent |= {name: before, f"{name}_2": "new"}
            path += "_2"
        case "possibly renamed":
            parent["zzz"] = before
        case "null-turned":
            parent[name] = None
        case "retyped":
            parent[name] = "text" if before is None else 5
        case "changed":
            parent[name] = "another"
    if change in ("retyped", "changed"):
        change = "null-filled" if before is None else change
        change = "retyped" if isinstance(before, dict | list) else change
    return record, f"{path} {change}" if record != RECORD else ""


CHANGES = ["removed", "added", "possibly renamed", "null-turned", "retyped", "changed"]
FIELDS = paths_of(RECORD)


# -- bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", FIELDS)
def test_each_mutation_of_each_field_is_named_by_its_path(path: str, change: str) -> None:
    """One field removed, added, renamed, turned null, retyped or changed is one difference."""
    record, difference = mutated(path, change)

    assert changes(RECORD, record) == difference


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
        # Renamed: the same telling value, or a similar name of the same type.
        ({"postcode": "1"}, {"postal_code": "2"}, "postcode possibly renamed"),
        ({"a": None}, {"zzz": None}, "a possibly renamed"),
        ({"a": None, "b": 1}, {"y": None, "z": 1}, "a removed, b removed, y added, z added"),
        ({"a": "A", "b": "B"}, {"y": "B", "z": "A"}, "a possibly renamed, b possibly renamed"),
        ({"a": "A", "b": "A"}, {"z": "A"}, "a possibly renamed, b removed"),
        ({"name": "x"}, {"email": "y"}, "name removed, email added"),
        ({"name": "5"}, {"names": 5}, "name removed, names added"),
        ({"a": {"n": "A"}, "b": {}}, {"a": {}, "b": {"m": "A"}}, "a.n removed, b.m added"),
        # Arrays, by id or by position.
        (["a", "b"], ["a", "c"], "[1] changed"),
        (["a", "b"], ["a"], "[1] removed"),
        ({"tags": [{"n": 1}]}, {"tags": [{"n": None}]}, "tags[0].n null-turned"),
        ([{"id": 1, "n": 1}, {"id": 2}], [{"id": 2}, {"id": 1, "n": 2}], "[id=1].n changed"),
        ([{"id": 1}, {"id": 1}], [{"id": 1}], "[1] removed"),
        ([{"id": 1, "n": 1}, {}], [{"id": 1, "n": 2}], "[1] removed, [id=1].n changed"),
        # Whole bodies.
        (1, 1.0, ""),
        (1, True, "$ retyped"),
        ({}, [], "$ retyped"),
        ({}, None, "$ null-turned"),
        (b"<html>", {}, "$ retyped"),
        (b"<html>", b"<html> ", "$ changed"),
        ({}, b"", "$ removed"),
        (b"", {}, "$ added"),
        # First what was added and removed, then what is in the fields.
        ({"b": {"x": 1}, "a": 1}, {"a": 2, "b": {"y": 3}}, "b.x removed, b.y added, a changed"),
        # Volatile: another value is no difference; another type or its absence is.
        ({"a": {"request_id": "x"}}, {"a": {"request_id": "y"}}, ""),
        ({"updatedAt": "x", "last-login-at": 1}, {"updatedAt": "y", "last-login-at": 2}, ""),
        ({"serverTime": "x"}, {"serverTime": 1}, "serverTime retyped"),
        ({"serverTime": "x"}, {}, "serverTime removed"),
    ],
)
def test_a_body_is_compared_by_path(was: object, is_now: object, expected: str) -> None:
    """Each difference has its path and what kind of change it is; ``$`` is the whole body."""
    assert changes(was, is_now) == expected


def test_a_difference_has_both_values() -> None:
    """A renamed field its new path too."""
    renamed = compare(response({"a": {"zip": "01234"}}), response({"a": {"code": "01234"}}))

    assert renamed == [Difference("body", "a.zip", "possibly renamed", "01234", "01234", "a.code")]


def test_renames_are_not_looked_for_among_very_many_fields() -> None:
    """Each name is compared with each: a body of 200 kB would take minutes."""
    was, is_now = ({f"{letter}{n}": "x" for n in range(5_000)} for letter in "ab")

    assert "renamed" not in changes(was, is_now)


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
        ({"Content-Type": None}, "content-type removed"),
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
        (RECORDED_AT.timestamp(), (RECORDED_AT + WEEK).timestamp(), True),
        (int(RECORDED_AT.timestamp()) * 1000, int((RECORDED_AT + WEEK).timestamp()) * 1000, True),
        ("2026-11-21T04:00:01", "2026-11-28T03:59:00", True),
        ("2026-11-21T04:00:01Z", "2026-11-21T05:00:01Z", False),
        ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", False),
        ("2026-99-99T04:00:01Z", "2026-11-28T04:00:02Z", False),
        (10**400, 10**400 + 1, False),
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
        (["company.*"], "x-new, name"),
        (["header.x-new", "*.name"], "name"),
        (["nam"], "x-new, name, company.name"),
    ],
)
def test_ignored_paths_are_left_out(ignore: list[str], left: str) -> None:
    """A path, with or without its part, and ``*`` for any text."""
    record = {**RECORD, "name": "x", "company": {**RECORD["company"], "name": "y"}}
    now = response(record, headers={**HEADERS, "X-New": "1"})

    assert ", ".join(each.path for each in compare(response(), now, ignore=ignore)) == left


# -- a cassette against the service of now -----------------------------------------------------


def record_tour(service: StandIn, **options: Any) -> Path:
    """A cassette of two reads, one of them three times, an error and a HEAD."""
    path = Path("tour.yaml").resolve()
    with live_session(service) as session, session.record(path, record_mode="all", **options):
        for name in ("users/me", "lists?page=1", "users/me", "users/me", "no"):
            session.request("GET", f"/v1/{name}")
        session.request("HEAD", "/v1/users/me")
    return path


@contextmanager
def live_session(service: StandIn, key: str = "", **options: Any) -> Iterator[Session]:
    """A session with a stand-in, made the current one for a time."""
    with Session(service.base_url, ApiKey(key or service.api_key), **options) as opened:
        current.make_current(opened)
        yield opened
    current.make_current(None)


def drift_later(path: Path, ignore: Any = (), **behaviour: Any) -> pd.DataFrame:
    """What changed since a recording, with another stand-in as the service of a later day."""
    with stand_in(**behaviour) as later, live_session(later):
        table = drift(path, ignore=ignore)
        assert later.requests.total() == table.attrs["sent"]
    return table


def test_an_unchanged_service_gives_an_empty_frame(service: StandIn) -> None:
    """No rows, all columns with their dtypes, and each distinct read sent once."""
    table = drift_later(record_tour(service), prefix="/eu", limit=300)

    assert table.empty
    assert table.dtypes.astype(str).to_dict() == {
        "number": "Int64",
        **dict.fromkeys(["operation", "part", "path", "change"], "string"),
        **dict.fromkeys(["recorded", "now"], "object"),
        "new_path": "string",
    }
    notes = ["4 requests sent, all answered as recorded."]
    assert table.attrs == {"sent": 4, "not_sent": [], "notes": notes}
    assert notes[0] in as_html(table)


def test_each_missing_field_is_found_over_http(service: StandIn) -> None:
    """Every field of the stand-in's record, one at a time, by its path and nothing else."""
    path = record_tour(service)
    for field in FIELDS:
        table = drift_later(path, record=mutated(field, "removed")[0])

        columns = ["number", "operation", "path", "change"]
        expected = (4, "GET /v1/users/me", field, "removed")
        assert table[columns].to_records(index=False).tolist() == [expected]


def test_an_allowance_and_a_status_that_changed_are_rows(service: StandIn) -> None:
    """What the service's document leaves open may change too, and is shown with both values."""
    path = record_tour(service)
    with stand_in(limit=100) as later, live_session(later):
        later.fault(path="/v1/lists", status=404)
        table = drift(path, ignore="header.content-*")

    changes = set(zip(table["path"], table["recorded"], table["now"], strict=True))
    assert changes == {("status", 200, 404), ("x-ratelimit-limit", 300, 100)}


def test_a_refused_key_is_an_error_and_no_drift(service: StandIn) -> None:
    """It says nothing of the service; a refusal that was recorded as one is compared."""
    path = record_tour(service)
    with live_session(service, "not-the-key"):
        with pytest.raises(UnauthorizedError, match="GET /v1/users/me answered 401"):
            drift(path)
        with current.record(Path("refused.yaml").resolve()) as session:
            session.get("/v1/users/me")

        assert drift(Path("refused.yaml")).empty


def test_a_redacted_recording_is_compared_in_its_redacted_form(service: StandIn) -> None:
    """Pseudonyms are equal for equal values, so hiding a name is no drift."""
    path = record_tour(service, redact=["personal", "name"])

    assert "Stand-in User" not in path.read_text(encoding="utf-8")
    assert drift_later(path).empty


def test_only_reads_that_are_whole_are_sent(service: StandIn) -> None:
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
        ({}, "X-HTTP-Method-Override=PUT"),
        ({}, "a=1;X-Method=PUT"),
    ],
)
def test_a_strangers_cassette_sends_nothing_but_reads(
    service: StandIn,
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
    assert len(sent) == (0 if "ethod" in query else 1)
    assert not [name for name in names if "method" in name]
    assert names.isdisjoint({"x-forwarded-host", "x-original-url", "content-type", "cookie"})
    assert names.isdisjoint({"prefer", "accept-charset"})
    assert ("accept-language" in names) == ("Accept-Language" in headers)


def test_drift_needs_a_key_and_leaves_no_trace(service: StandIn) -> None:
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

        assert (session.mode, len(session.rate_limits())) == ("replay", 0)
        assert (service.requests - before).total() == 4
    assert path.read_bytes() == data


def test_an_old_cassette_warns_or_fails(service: StandIn) -> None:
    """Its age in days, and what to do; never a recording of its own accord."""
    forty_days_ago = datetime.now(UTC) - 40 * DAY
    path = recorded("old.yaml", replace(answered(), recorded_at=forty_days_ago))
    with live_session(service):
        drift(path, max_age="41 days")
        with pytest.warns(OldCassetteWarning, match="is 40 days old, and max_age is 30 days"):
            drift(path, max_age=timedelta(days=30))
        with pytest.raises(CassetteError, match="40 days old"):
            drift(path, max_age="30 days", on_old="raise")


def write_foreign(*uris: str, body: str, **headers: str) -> Path:
    """A cassette of reads as vcrpy writes it: without times, and with credentials."""
    response = RecordedResponse(200, "OK", (), body.encode())
    requests = [RecordedRequest("GET", uri, tuple(headers.items())) for uri in uris]
    return theirs(Path("foreign.yaml").resolve(), *(Interaction(r, response) for r in requests))


def test_a_cassette_without_times_has_no_age(service: StandIn) -> None:
    """So a limit on its age cannot be held against it, and a warning says that."""
    uris = ("https://api.test/v1/users/me", "https://api.test/v1/users/me?a=1")
    path = write_foreign(*uris, body='{"id": 1}')
    with live_session(service):
        with pytest.warns(OldCassetteWarning, match="does not say"):
            table = drift(path, max_age="30 days", ignore=iter(["header.*"]))
        for max_age in ("long", 30):
            with pytest.raises(DirectMailLabError, match="a number of days"):
                drift(path, max_age=max_age)  # type: ignore[arg-type]

    assert set(table["part"]) == {"body"}
    changes = table[table["number"] == 1].set_index("path")["change"]
    assert changes[["id", "company"]].tolist() == ["retyped", "added"]


def test_a_key_that_another_program_recorded_is_neither_sent_nor_shown() -> None:
    """vcrpy redacts nothing: it may stand in an address, and wherever the service repeats it."""
    key, uri = "sk_live_9f8e7d6c5b4a", "https://api.test/v1/users/me"
    body = json.dumps({"id": key})
    path = write_foreign(uri, f"{uri}?key={key}", body=body, Authorization=f"Bearer {key}")
    table = drift_later(path, record={"id": "another"})

    assert table.set_index("part")["recorded"]["body"] == "<API_KEY>"
    assert table.attrs["not_sent"] == ["GET /v1/users/me"]
