"""What is sent of the paths, queries and values that a caller gives."""

import enum
import io
import json
import math
from datetime import UTC, date, datetime, time as clock
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import directmail_lab as dm
from directmail_lab.exchange.sent_values import json_text
from directmail_lab.sessions.session import Session


class Size(enum.Enum):
    LARGE = "large"


@pytest.fixture
def session(account) -> Session:
    return dm.connect(account.base_url, account.api_key, allow_writes=True)


def target(response: Any) -> str:
    """Return the path and the query that were sent."""
    return response.request.url.raw_path.decode()


def test_a_row_of_a_table_is_sent_as_json(account):
    """An empty cell is null, and numpy's numbers and times are those of JSON."""
    table = pd.read_csv(io.StringIO("to,copies,price,day\nAnn,2,,2026-11-28\nBo,,1.5,\n"))
    table["day"] = pd.to_datetime(table["day"])
    rows = [*table.to_dict("records"), table.convert_dtypes().iloc[1].to_dict()]
    rows.append({"n": [np.int64(1), np.float64("nan")], "a": np.array([1, 2]), "b": (np.True_,)})
    rows.append({"at": np.datetime64("2026-11-28T10:00", "ns"), "on": date(2026, 11, 28)})
    session = dm.connect(account.base_url, account.api_key, allow_writes=True)
    sent = [session.post("/v1/letters", json=row).request for row in rows]

    assert [json.loads(request.content) for request in sent] == [
        {"to": "Ann", "copies": 2.0, "price": None, "day": "2026-11-28T00:00:00"},
        {"to": "Bo", "copies": None, "price": 1.5, "day": None},
        {"to": "Bo", "copies": None, "price": 1.5, "day": None},
        {"n": [1, None], "a": [1, 2], "b": [True]},
        {"at": "2026-11-28T10:00:00", "on": "2026-11-28"},
    ]


# Each value, as it is in a query, and in JSON.
VALUES = [
    (True, "true", "true"),
    (np.True_, "true", "true"),
    (np.int64(2), "2", "2"),
    (np.str_("a"), "a", '"a"'),
    (pd.Series([3], dtype="Int64")[0], "3", "3"),
    (Decimal("12.50"), "12.50", "12.50"),
    (Decimal("1E+2"), "100", "100"),
    (Decimal("0.12345678901234567890"), "0.12345678901234567890", "0.12345678901234567890"),
    (date(2026, 11, 28), "2026-11-28", '"2026-11-28"'),
    (np.datetime64("2026-11-28"), "2026-11-28", '"2026-11-28"'),
    (pd.Timestamp("2026-11-28 10:00"), "2026-11-28T10:00:00", '"2026-11-28T10:00:00"'),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00", '"2026-01-02T00:00:00+00:00"'),
    (clock(10, 30), "10:30:00", '"10:30:00"'),
    (UUID(int=1), str(UUID(int=1)), f'"{UUID(int=1)}"'),
    (Size.LARGE, "large", '"large"'),
    (None, None, "null"),
    (pd.NA, None, "null"),
    (pd.NaT, None, "null"),
    (math.nan, None, "null"),
    (np.float64("nan"), None, "null"),
    (Decimal("nan"), None, "null"),
]


@pytest.mark.parametrize(("value", "text", "as_json"), VALUES, ids=[repr(v[0]) for v in VALUES])
def test_a_value_is_sent_alike_in_a_query_a_form_and_json(session, value, text, as_json):
    sent = session.post("/v1/letters", params={"a": value, "b": [value, 1]}, json={"a": [value]})
    form = session.post("/v1/letters", data={"a": value, "b": [value, 1]}, if_sent="send")
    texts = [] if text is None else [text]

    assert sent.request.url.params.get_list("a") == texts
    assert sent.request.url.params.get_list("b") == [*texts, "1"]
    assert sent.request.content.decode() == f'{{"a":[{as_json}]}}'
    assert sent.request.headers["content-type"] == "application/json"
    assert form.request.content.decode() == sent.request.url.query.decode()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_that_needs_no_conversion_is_that_of_pythons_encoder(value):
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("NaN", "null")

    assert json_text(value) == expected or "NaN" in str(value)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({"x": 1}, r"is a dict, .* Write json\.dumps\(value\)"),
        ({1}, r"is a set, .* Write sorted\(value\)"),
        (b"x", r"is a bytes, .* Write value\.decode\(\)"),
        (np.array([1]), r"is a ndarray, .* Write value\.tolist\(\)"),
        (pd.Series([1]), r"is a Series, .* Write value\.tolist\(\)"),
        ([[1]], "is a list, "),
        (math.inf, "is a float, "),
    ],
)
def test_what_is_no_parameter_is_refused_by_name(session, account, value, advice):
    for option in ("params", "data"):
        with pytest.raises(ValueError, match=rf"{option}=\{{'zip': …\}} {advice}"):
            session.post("/v1/lists", **{option: {"zip": value}})

    assert account.requests.total() == 0


@pytest.mark.parametrize("value", [{1}, math.inf, {(1, 2): 3}, pd.Series([1])])
def test_what_json_does_not_have_is_refused(session, account, value):
    with pytest.raises(ValueError, match=r"json\.to\.a has .*, which is no value of JSON"):
        session.post("/v1/lists", json={"to": {"a": [value]}})

    assert account.requests.total() == 0


@pytest.mark.parametrize(
    ("path", "params", "sent"),
    [
        ("/v1/lists?dry_run=true", {"v": 2}, "/v1/lists?dry_run=true&v=2"),
        ("/v1/lists?q=a,b%2Cc", [("v", 2), ("v", "é")], "/v1/lists?q=a,b%2Cc&v=2&v=%C3%A9"),
        ("/v1/lists?q=1", "v=2", "/v1/lists?q=1&v=2"),
        ("/v1/lists?q=1", {}, "/v1/lists?q=1"),
        ("/v1/lists?q=1", {"v": None}, "/v1/lists?q=1"),
        ("/v1/lists", {"v": 2}, "/v1/lists?v=2"),
        ("/v1/lists?q=C#", {"v": 2}, "/v1/lists?q=C%23&v=2"),
        ("v1/lists", {"v": 2}, "/v1/lists?v=2"),
        ("/v1/lists?", {"v": 2}, "/v1/lists?v=2"),
        ("/v1/lists?q=1&", {"v": 2}, "/v1/lists?q=1&v=2"),
    ],
)
def test_every_call_adds_parameters_to_the_query_of_its_path(session, path, params, sent):
    responses = [
        session.get(path, params=params),
        session.post(path, params=params, json={}, if_sent="send"),
        session.request("DELETE", path, params=params),
        session.get_many([sent])[0],
        next(session.pages(path, params=params)),
    ]

    assert [target(each) for each in responses] == [sent] * 5


def test_a_parameter_that_the_path_has_is_refused(session, account):
    for call in (session.get, session.delete, session.pages):
        with pytest.raises(ValueError, match=r"'limit' is in the path and in params=\."):
            call("/v1/lists?limit=1", params={"limit": 2})

    assert account.requests.total() == 0


def test_the_client_of_httpx_warns_where_it_drops_a_query(session):
    with pytest.warns(UserWarning, match="in place of the query in the address") as warned:
        response = session.client.get("/v1/lists?dry_run=true", params={"v": 2})

    assert target(response) == "/v1/lists?v=2"
    assert [each.filename for each in warned] == [__file__]


def test_a_path_is_sent_as_it_is_written(session):
    """No fragment is meant, and two slashes name no server."""
    paths = ["/v1/t/C#", "/v1/t/C", "//v1/t"]
    with pytest.warns(UserWarning, match="3 of 3 requests failed"):
        responses = session.get_many(paths)
    responses += map(session.get, paths)

    assert [target(each) for each in responses] == ["/v1/t/C%23", "/v1/t/C", "//v1/t"] * 2


@pytest.mark.parametrize(
    ("recorded", "path", "params", "differs"),
    [
        ("/v1/lists?v=True", "/v1/lists", {"v": True}, "v"),
        ("/v1/lists?v=2", "/v1/lists?dry_run=true", {"v": 2}, "dry_run"),
        ("/v1/lists?v=2&q=", "/v1/lists", {"v": 2, "q": None}, "q"),
    ],
)
def test_a_recording_with_an_old_spelling_names_what_differs(
    session, recorded, path, params, differs
):
    with session.record("old"):
        session.get(recorded)
    with session.replay("old"), pytest.raises(dm.errors.NotRecordedError) as caught:
        session.get(path, params=params)

    assert "Nearest: GET /v1/lists" in str(caught.value).replace("\n", " ")
    assert differs in str(caught.value)
