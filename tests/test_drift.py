"""Drift: comparing two responses, and a cassette with today's service."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from cassette_samples import answered, get, recorded, theirs
from client_service import KEY, ClientService
from faulty_service import FaultyService
from hypothesis import given, strategies as st
from test_findings import current_session as live_session

import directmail_lab as dm
from directmail_lab import Session
from directmail_lab.cassettes.recording import age_problem
from directmail_lab.display import plural
from directmail_lab.errors import NotConnectedError, UnauthorizedError
from directmail_lab.exchange.bodies import missing_body
from directmail_lab.exchange.changes import changes
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.questions.drift import drift
from directmail_lab.server.standin import STAND_IN_RECORD
from directmail_lab.sessions import current
from directmail_lab.sessions.transports.network import NetworkTransport

RECORD: dict[str, Any] = json.loads(json.dumps(STAND_IN_RECORD))


def response(
    body: object = RECORD, *, status: int = 200, method: str = "GET", **headers: str
) -> Interaction:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = answered(replace(get(), method=method), content, status=status)
    merged = dict(given.response.headers) | headers
    return replace(given, response=replace(given.response, headers=tuple(merged.items())))


def words(was: Interaction, now: Interaction) -> str:
    """Return path and change of each difference between two responses, such as ``a removed``."""
    found = changes({("/v1", ""): was}, {("/v1", ""): now})
    return ", ".join(f"{each.path} {each.change}" for each in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdé"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON, JSON)
def test_two_bodies_differ_exactly_where_they_are_not_equal(was, now):
    are_equal = json.dumps(was, sort_keys=True) == json.dumps(now, sort_keys=True)

    assert (words(response(was), response(now)) == "") == are_equal


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ({"a": None, "b": 1}, {"y": None, "z": 1}, "a removed, b removed, y added, z added"),
        ({"a": {"b": "c"}}, {"a": {"b": "d"}}, "a.b changed"),
        ({"a": {"b": {}}}, {"a": {"b": None}}, "a.b null-turned"),
        ({"a": None, "b": "1"}, {"a": 5, "b": 1}, "a null-filled, b retyped"),
        # Arrays are compared by id, or else by position.
        (["a", "b"], ["a", "c"], "[] changed"),
        ([{"id": 1, "n": 1}, {"id": 2}], [{"id": 2}, {"id": 1, "n": 2}], "[].n changed"),
        ([{"id": 1}, {"id": 1}], [{"id": 1}], "[] removed"),
        ({"items": [{"id": 1}]}, {"items": []}, "items[] removed"),
        ([[1, 2]], [[1]], "[][] removed"),
        # Whole bodies, if they are not of the same kind or not JSON.
        (1, 1.0, ""),
        ({}, None, "$ null-turned"),
        (b"<html>", b"<html> ", "$ changed"),
        # Volatile fields: a new value is no difference, but a new type or absence is.
        ({"updatedAt": "x", "last-login-at": 1}, {"updatedAt": "y", "last-login-at": 2}, ""),
        ({"serverTime": "x"}, {"serverTime": 1}, "serverTime retyped"),
    ],
)
def test_a_body_is_compared_by_path(was, now, expected):
    """Each difference has a path and a kind of change; ``$`` is the whole body."""
    assert words(response(was), response(now)) == expected


def test_only_the_status_of_an_error_response_is_compared():
    """An error has another body, so its fields would all be listed; a HEAD has no body."""
    created = response({**RECORD, "name": "x"}, status=201)

    assert words(response(), created) == "status code changed, name changed"
    assert words(response(), response({"error": "x"}, status=500)) == "status code changed"
    assert words(response(b"", method="HEAD"), response({}, method="HEAD")) == ""


def test_a_body_that_was_not_recorded_whole_is_not_compared():
    """It would differ from any other. Status and headers are still compared."""
    left = response({"name": "x"})
    left = replace(left, response=replace(left.response, cut="left"))

    for was in (response(missing_body(5000)), left):
        assert words(was, response({"name": "y"}, status=201)) == "status code changed"
        assert words(response(b""), was) == ""


def test_headers_are_compared_by_name():
    """Names and types always count, values only for some headers, and order never."""
    more = {"X-RateLimit-Reset": "soon", "X-RateLimit-Limit": "100", "Age": "5", "Set-Cookie": "x"}
    found = words(response(Age="4"), response(**more))

    assert found == "header.x-ratelimit-limit changed, header.x-ratelimit-reset retyped"


# -- two recordings ----------------------------------------------------------------------------


def letters(name: str, *prices: dict[str, Any], per_page: int = 2) -> Path:
    """Record a list of letters, page by page, with a count that differs; return its path."""
    rows = [{"id": 7 + number, **price} for number, price in enumerate(reversed(prices))][::-1]
    pages = [rows[at : at + per_page] for at in range(0, len(rows), per_page)]
    responses = []
    for number, page in enumerate(pages):
        body = {"items": page, "status": len(rows), "next": number + 1 < len(pages)}
        responses.append(answered(get(f"/v1/letters?page={number}"), json.dumps(body)))
    return recorded(name, *responses)


def rows_of(table: pd.DataFrame) -> list[tuple[object, ...]]:
    columns = table[["operation", "path", "change", "count", "of"]].astype(object)
    return list(columns.itertuples(index=False, name=None))


def test_a_field_of_a_list_is_one_row_whatever_its_pages():
    october = letters("october.yaml", *[{"price_cents": 5, "status": "sent"}] * 5)
    november = letters("november.yaml", *[{"price": 5, "status": "gone"}] * 5)
    table = dm.drift(october, against=november)
    ignored = ["body:items.price", "body:items.price_cents"]
    on_any_page = dm.drift(october, against=november, ignore=["query:page"])
    with_values = dm.drift(october, against=november, values=True, ignore=ignored)

    operation = "GET /v1/letters"
    assert rows_of(table) == [
        (operation, "items[].price_cents", "removed", 5, 5),
        (operation, "items[].price", "added", 5, 5),
    ]
    assert rows_of(with_values) == [(operation, "items[].status", "changed", 5, 5)]
    assert list(with_values[["was", "now"]].iloc[0]) == ["sent", "gone"]
    assert table.attrs["notes"] == ["3 requests compared."]
    assert on_any_page.attrs["notes"] == ["1 request compared."]


def test_an_error_to_another_request_is_no_change_of_the_operation():
    """The fields of a letter are not gone because another one was not found."""
    found = recorded("a.yaml", answered(get("/v1/letters/ltr_8f3kq2"), '{"id": 1, "price": 5}'))
    lost = recorded("b.yaml", answered(get("/v1/letters/ltr_9x4mp7"), '{"error": 1}', status=404))

    assert rows_of(dm.drift(found, against=lost)) == rows_of(dm.drift(lost, against=found)) == []


@pytest.mark.parametrize("before", [3, 4])
def test_a_new_letter_is_one_row_though_all_others_move(before):
    """The last page has one more, or there is one more page."""
    october = letters("october.yaml", *[{"price": 5}] * before)
    november = letters("november.yaml", *[{"price": 5}] * (before + 1))
    table = dm.drift(october, against=november)

    assert rows_of(table) == [("GET /v1/letters", "items[]", "added", 1, before + 1)]
    assert table["now"].tolist() == [{"id": 7 + before, "price": 5}]


def test_elements_that_are_all_new_still_show_a_changed_field():
    """Letters of another month have other ids, and perhaps ids of another type."""
    path = letters("october.yaml", *[{"price_cents": 5, "to": None}] * 2)
    text = path.read_text().replace("price_cents", "price").replace('id\\": ', 'id\\": 1000')
    november = Path("november.yaml")
    november.write_text(text)
    rows = rows_of(dm.drift(path, against=november))
    november.write_text(text.replace("1000", '\\"a').replace("7,", '7\\",').replace("8,", '8\\",'))
    retyped = rows_of(dm.drift(path, against=november))

    operation = "GET /v1/letters"
    assert rows == [
        (operation, "items[]", "removed", 2, 4),
        (operation, "items[]", "added", 2, 4),
        (operation, "items[].price_cents", "removed", 2, 2),
        (operation, "items[].price", "added", 2, 2),
    ]
    assert (operation, "items[].id", "retyped to string", 4, 4) in retyped


def test_any_two_sources_are_compared(service):
    """A folder, a file and two sessions, without a request; what only one has is named."""
    path = record_tour(service)
    Path("old").mkdir()
    path.rename("old/tour.yaml")
    with live_session(service) as one, FaultyService(limit=100) as later:
        one.get("/v1/users/me")
        one.client.get("/v1/lists/a")
        with live_session(later) as other:
            other.get("/v1/users/me")
            before = later.requests.total()
            tables = [
                dm.drift(each, against=other) for each in (one, "old", [Path("old/tour.yaml")])
            ]

    row = ("GET /v1/users/me", "header.x-ratelimit-limit", "changed", 1, 1)
    assert [rows_of(table) for table in tables] == [[row]] * 3
    assert later.requests.total() == before
    assert "GET /v1/lists/a (in one of them only)" in tables[0].attrs["notes"][-1]


# -- a cassette and today's service ------------------------------------------------------------


def record_tour(service: FaultyService, **options: Any) -> Path:
    """Record two reads, one of them three times, an error and a HEAD; return the path."""
    path = Path("tour.yaml").resolve()
    with live_session(service) as session, session.record(path, record_mode="all", **options):
        for name in ("users/me", "lists?page=1", "users/me", "users/me", "no"):
            session.request("GET", f"/v1/{name}")
        session.request("HEAD", "/v1/users/me")
    return path


def drift_later(path: Path, **behaviour: Any) -> pd.DataFrame:
    """Return the drift of a recording from another stand-in, which is the later service."""
    with FaultyService(**behaviour) as later, live_session(later):
        table = drift(path, values=True)
        count = later.requests.total()
    assert table.attrs["notes"][0] == f"{plural(count, 'request')} sent."
    return table


@pytest.mark.parametrize("redact", [[], ["personal", "name"]])
def test_an_unchanged_service_gives_an_empty_frame(service, redact):
    path = record_tour(service, redact=redact)
    table = drift_later(path, prefix="/eu", limit=300)

    assert ("Stand-in User" in path.read_text(encoding="utf-8")) != bool(redact)
    assert table.empty
    assert table.attrs["notes"] == ["4 requests sent.", "No difference."]
    assert "4 requests sent." in table._repr_html_()


def test_a_refused_key_is_an_error_and_no_drift(service):
    path = record_tour(service)
    with (
        live_session(service, "not-the-key"),
        pytest.raises(UnauthorizedError, match="GET /v1/users/me responded with 401"),
    ):
        drift(path)


def test_a_body_without_an_end_is_not_compared(monkeypatch):
    """For a client that waits without limit, no body is late."""
    path = recorded("whole.yaml", answered(get("/v1/endless")))
    with ClientService() as service, live_session(service, KEY, timeout_s=1) as session:
        with session.record(Path("left.yaml")), session.client.stream("GET", "/v1/endless") as left:
            next(left.iter_bytes())
        notes = [drift(each).attrs["notes"][-1] for each in ("left.yaml", path)]
        session.client.timeout = httpx.Timeout(None)
        assert drift(recorded("me.yaml", answered(get()))).attrs["notes"][0] == "1 request sent."
        monkeypatch.setattr("directmail_lab.questions.drift._MOST_BYTES", 1)
        notes.append(drift(path).attrs["notes"][-1])

    assert notes == [
        f"Not compared: GET /v1/endless ({why})."
        for why in ("its recorded body is not whole", *["its body has not ended"] * 2)
    ]


def test_parts_of_a_file_are_compared_by_their_range(service):
    parts = [replace(get(), headers=(("Range", f"bytes={at}"),)) for at in ("0-9", "10-19")]
    path = recorded("parts.yaml", *map(answered, parts))
    with live_session(service):
        assert drift(path).attrs["notes"][0] == "2 requests sent."


def test_a_refused_request_is_not_compared_and_the_others_are(service):
    paths = ("/v1/letters", "/v1/no", "/v1/users/me")
    path = recorded("several.yaml", *(answered(get(each)) for each in paths))
    service.fault(path="/v1/letters", status=401)
    service.fault(path="/v1/no", status=403)
    with live_session(service):
        table = drift(path)

    assert table.attrs["notes"] == [
        "1 request sent.",
        "Not compared: GET /v1/letters (401 for the key), GET /v1/no (403 for the key).",
    ]
    assert set(table["operation"]) == {"GET /v1/users/me"}


def test_a_field_is_ignored_as_in_a_replay():
    """With all in it, in each element of an array."""
    names = [
        recorded(name, answered(body=json.dumps([{"a": {"b": value}, "c": value}])))
        for name, value in (("was.yaml", 1), ("now.yaml", "1"))
    ]
    table = dm.drift(names[0], against=names[1], ignore=["body:a"])

    assert list(table["path"]) == ["[].c"]


def test_what_is_not_sent_counts_as_neither_gone_nor_changed(service):
    """Neither a redacted address, another server, an earlier response, nor an error after it."""
    lists = get("/v1/lists")
    path = recorded(
        "parts.yaml",
        answered(get("/v1/lists?api_key=<REDACTED>"), '[{"id": "gone"}]'),
        answered(get("/file", base="https://files.example.test")),
        answered(lists, '[{"id": "first"}]'),
        answered(lists, "[]"),
        answered(lists, '{"error": 1}', status=500),
    )
    with live_session(service):
        names = "Date Server content-type X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset"
        table = drift(path, ignore=[f"header:{name}" for name in names.split()])

    assert rows_of(table) == [("GET /v1/lists", "[]", "added", 3, 3)]
    assert "another server's" in table.attrs["notes"][-1]


def test_only_reads_that_redaction_did_not_change_are_sent(service):
    path = Path("writes.yaml").resolve()
    with live_session(service, allow_writes=True) as session:
        with session.record(path):
            session.request("POST", "/v1/letters", json={"to": "x"})
            session.request("GET", f"/v1/users/me?api_key={service.api_key}")
            session.request("GET", "/v1/users/me?to=ada@lovelace.org")
        before = service.requests.copy()
        table = drift(path)

    assert service.api_key not in path.read_text(encoding="utf-8")
    assert table.attrs["notes"][-1] == (
        "Not compared: POST /v1/letters (it may write), "
        "GET /v1/users/me (its address was redacted)."
    )
    assert (service.requests - before) == {"GET /v1/users/me": 1}


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"X-HTTP-Method-Override": "DELETE", "X-Forwarded-Host": "evil.test"}, "page=1"),
        ({"Accept": "text/csv", "Accept-Language": "de", "Cookie": "a=b"}, ""),
        ({"Prefer": "<REDACTED>", "Accept-Charset": "<name-0123abcd>"}, ""),
        ({}, "page=1&%5Fmethod=DELETE"),
        ({}, "page=1;X-HTTP-Method=PUT"),
    ],
)
def test_a_strangers_cassette_sends_nothing_but_reads(service, monkeypatch, headers, query):
    """Only headers that select a representation are sent, and no address may override GET."""
    request = replace(get(f"/v1/users/me?{query}"), headers=tuple(headers.items()))
    path = recorded("stranger.yaml", answered(request))
    sent: list[httpx.Request] = []
    send = NetworkTransport.handle_request
    monkeypatch.setattr(
        NetworkTransport,
        "handle_request",
        lambda own, each, before: [sent.append(each), send(own, each, before)][1],
    )
    with live_session(service, allow_writes=True):
        drift(path)

    names = {name for request in sent for name in request.headers}
    left_out = {"x-http-method-override", "x-forwarded-host"}
    assert len(sent) == (0 if "ethod=" in query.lower() else 1)
    assert names.isdisjoint({*left_out, "cookie", "prefer", "accept-charset"})
    assert ("accept-language" in names) == ("Accept-Language" in headers)


def test_drift_needs_a_key_and_leaves_no_trace(service):
    """Neither the cassette nor the session's readings change, and a replay continues."""
    path = record_tour(service)
    data = path.read_bytes()
    with Session(service.base_url) as without_key:
        current.make_current(without_key)
        with pytest.raises(NotConnectedError, match="no key"):
            drift(path)
    with live_session(service) as session:
        session.replay(path)
        before = service.requests.copy()
        drift(path)

        assert (session.mode, len(session.recording)) == ("replay", 0)
        assert (service.requests - before).total() == 4
    assert path.read_bytes() == data


def test_the_age_of_a_recording_is_that_of_its_first_interaction():
    def problem(days: int | None) -> str | None:
        at = None if days is None else datetime.now(UTC) - timedelta(days=days)
        return age_problem([replace(answered(), recorded_at=at), answered()], "30 days")

    assert problem(40) == "is 40 days old, and max_age is 30 days"
    assert problem(29) is None
    assert str(problem(-1)).startswith("is dated in the future, ")
    assert problem(None) == "does not say when it was recorded, and max_age is 30 days"


def test_a_key_that_another_program_recorded_is_neither_sent_nor_shown():
    """vcrpy does not redact, so the key may be in an address or in a response."""
    key, uri = "sk_live_9f8e7d6c5b4a", "https://api.test/v1/users/me"
    requests = [
        Request("GET", each, (("Authorization", f"Bearer {key}"),))
        for each in (uri, f"{uri}?key={key}")
    ]
    answer = Response(200, "OK", (), json.dumps({"id": key}).encode())
    path = theirs("foreign.yaml", *(Interaction(each, answer) for each in requests))
    table = drift_later(path, user={"id": "another"})

    assert table.set_index("path")["was"]["id"] == "<REDACTED>"
    assert "GET /v1/users/me (its address was redacted)" in table.attrs["notes"][-1]
