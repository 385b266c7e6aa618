"""`frame` of any body and of many: rows, columns, dtypes, and refusals."""

import contextlib
import gzip
import json
import math
import warnings
from traceback import walk_tb
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from directmail_lab.cassettes import SessionRecording
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import DirectMailLabError, NotJSONError, UnauthorizedError
from directmail_lab.exchange.bodies import MAX_DEPTH
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.readings.reading import Reading
from directmail_lab.redaction import Redactor
from directmail_lab.sessions.frames import frame
from directmail_lab.sessions.transports.extensions import EXTENSION, Received

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=()))
NAMES = st.sampled_from(["a", "b", "a.b", "value", "data", "a.b_2", ""])
KEYS = st.text(st.characters(exclude_categories=()), max_size=5) | NAMES
PLAIN_KEYS = st.text("xyz0", min_size=1, max_size=2)


def json_values(keys: st.SearchStrategy[str] = KEYS) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def response(
    content: bytes, status: int = 200, content_type: str | None = "application/json"
) -> httpx.Response:
    headers = {"content-type": content_type} if content_type else {}
    request = httpx.Request("GET", "https://api.test/v1/users/me?token=hidden")
    return httpx.Response(status, headers=headers, content=content, request=request)


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict) or (path and not value):
        return {path: value}
    return {k: v for key, inner in value.items() for k, v in leaves(inner, (*path, key)).items()}


def same(cell: Any, value: Any) -> bool:
    if value is None:
        return cell is pd.NA
    if isinstance(value, float):
        return cell == value and math.copysign(1, cell) == math.copysign(1, value)
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return type(plain) is type(value) and plain == value


# -- rows and columns --------------------------------------------------------------------------


def test_the_shape_follows_the_json():
    bodies: list[object] = [{"id": 1, "name": "Ada"}, {}, [], [{}, {}], [[1, 2], [3]], None, [None]]

    assert [frame(body).shape for body in bodies] == [
        *((1, 2), (1, 0), (0, 0), (2, 0), (2, 1), (1, 1), (1, 1))
    ]


@pytest.mark.filterwarnings("ignore:This body is one row")
@given(json_values())
def test_any_json_gives_a_frame_with_the_expected_number_of_rows(body):
    table = frame(body, rows_at=None)

    assert len(table) == (len(body) if isinstance(body, list) else 1)
    assert len(pd.concat([table, frame(body)], ignore_index=True)) >= len(table)


@given(st.lists(st.dictionaries(PLAIN_KEYS, json_values(PLAIN_KEYS), max_size=4), max_size=4))
def test_values_keep_their_json_types(body):
    table = frame(json.dumps(body).encode())

    for row, record in enumerate(body):
        for path, leaf in leaves(record).items():
            if path:
                column = table[".".join(path)]
                exact = column.dtype != "Float64" or leaf is None
                assert same(column.iloc[row], leaf if exact else float(leaf)), path


def test_paths_with_the_same_dotted_name_are_numbered():
    table = frame([{"a": {"b": 2}, "a.b": 1}, 5])

    assert list(table.columns) == ["a.b", "a.b_2", "value"]
    assert table.to_numpy(na_value=0).tolist() == [[2, 1, 0], [0, 0, 5]]


def test_deep_nesting_stops_at_the_deepest_column():
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"a": body}

    assert list(frame(body).columns) == [".".join("a" * MAX_DEPTH)]


def test_records_of_too_many_cells_are_refused(monkeypatch):
    """A small body with other keys in each record could otherwise use all memory."""
    monkeypatch.setattr("directmail_lab.sessions.frames.MOST_CELLS", 100)

    assert frame([{f"k{n}": n} for n in range(10)]).shape == (10, 10)
    with pytest.raises(DirectMailLabError, match="more than 100 cells"):
        frame([{f"k{n}": n} for n in range(11)])


# -- dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["01234", "2026-11-21"], "string"),
        ([1.0, 2.0], "Float64"),
        ([1, 2.5], "Float64"),
        ([2**60, 2.5], "object"),
        ([10**400, 2.5], "object"),
        ([-(2**63), 2**63 - 1, None], "Int64"),
        ([True, None], "boolean"),
        ([True, 1], "object"),
        (["1", 1], "object"),
    ],
)
def test_the_dtype_is_what_the_json_says(values, dtype):
    column = frame([{"v": value} for value in values])["v"]

    assert column.dtype == dtype
    assert [None if cell is pd.NA else cell for cell in column] == values


# pandas 2 takes a text with a lone surrogate into a column of strings, which has no conversion.
OF_PANDAS_3 = pytest.mark.skipif(pd.__version__ < "3", reason="pandas 2 cannot write it")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "L"),
        ({}, {}),
        (2**64, 2**80),
        pytest.param("\ud800", "a", marks=OF_PANDAS_3),
        ([1, "a"], [{}]),
    ],
    ids=["mixed", "empty objects", "beyond 64 bits", "lone surrogate", "mixed arrays"],
)
def test_a_frame_goes_to_parquet_and_back(first, second):
    """Nulls and attrs survive. Some columns need the conversion that ``help(frame)`` shows."""
    table = frame([{"id": 1, "v": first}, {"id": 2, "v": second}, {"id": 3}])
    with pytest.raises((TypeError, ValueError, NotImplementedError, OverflowError)):
        table.to_parquet("frame.parquet")
    columns = table.select_dtypes("object").columns
    table[columns] = table[columns].map(json.dumps, na_action="ignore")
    table.to_parquet("frame.parquet")
    back = pd.read_parquet("frame.parquet")

    assert back["id"].tolist() == [1, 2, 3]
    assert [json.loads(each) for each in back["v"].dropna()] == [first, second]
    assert back.attrs == table.attrs


# -- rows_at -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[{"id": 1}, {"id": 2}], {"id": 1}, None, "text"])
def test_data_is_unwrapped_if_it_is_an_object_or_an_array(data):
    """The other members go to attrs. A plain field that is named data stays a field."""
    body = {"data": data, "total": 2}
    table, whole = frame(body), frame(body, rows_at=None)

    is_envelope = isinstance(data, list | dict)
    assert list(table.columns) == (["id"] if is_envelope else ["data", "total"])
    assert table.attrs.get("envelope") == ({"total": 2} if is_envelope else None)
    assert "envelope" not in whole.attrs


@pytest.mark.parametrize(
    ("name", "says", "warning"),
    [
        ("items", {"page": 1, "total": 50}, r"10 of 50 records\.\nFor all: dm\.frame\(dm\.pages"),
        ("items", {"next": "/v1/letters?after=9"}, "10 records"),
        ("items", {"has_more": True}, "10 records"),
        ("data", {"total": 50}, "10 of 50 records"),
    ],
)
def test_a_page_of_a_list_has_a_row_for_each_record_and_a_warning(name, says, warning):
    """Whoever asked for another page, or for one row, gets no warning."""
    got = response(json.dumps({name: [{"id": n} for n in range(10)], **says}).encode())
    with pytest.warns(UserWarning, match=warning) as warned:
        table = frame(got)

    assert table["id"].tolist() == [*range(10)]
    assert table.attrs["envelope"] == says
    assert [each.filename for each in warned] == [__file__]
    assert len(frame(got, rows_at=None)) == 1
    with pytest.warns(UserWarning, match=warning):
        assert len(frame([got])) == 10


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({"currency": "EUR", "lines": [{"id": 1}, {"id": 2}]}, 1),  # no usual name of a list
        ({"currency": "", "lines": [{"id": 1}, {"id": 2}]}, 2),
        ({"order_id": 2, "total": 2, "items": [{"id": 1}, {"id": 2}]}, 1),
        ({"items": [{"id": 1}, {"id": 2}], "page": 1, "total": 2, "next": None}, 2),
        ({"items": [{"id": 1}], "page": 2, "total": 3}, 1),
        ([{"id": number} for number in range(10)], 10),
        ({"id": 1, "next": "/v1/letters/2"}, 1),
        ({"result": {"records": [{"id": 1}, {"id": 2}], "total": 2}, "count": 2}, 2),
    ],
    ids=[
        *("a list of an unusual name", "beside an empty text"),
        *("a record with a list", "a whole list", "the last page", "an array", "a record", "deep"),
    ],
)
def test_what_is_no_page_or_whole_gives_no_warning(body, rows):
    """A list is unwrapped if nothing but page data is beside it."""
    assert len(frame(response(json.dumps(body).encode()))) == rows


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({"success": True, "message": "OK", "letters": [{"id": n} for n in range(4)]}, 4),
        ({"success": True, "message": "OK", "letters": [{"n": 1}, {"n": 2}], "total": 2}, 2),
        ({"currency": "EUR", "items": [{"id": 1}, {"id": 2}]}, 2),
        ({"exact": False, "letters": [{"id": 1}, {"id": 2}]}, 2),
        ({"letters": []}, 0),
        ({"lists": [{"id": 1}, {"id": 2}], "_links": [{"rel": "self", "href": "/x"}]}, 2),
        ({"id": 1, "items": [{"id": 2}, {"id": 3}]}, 1),
        ({"name": "Ann", "teams": [{"id": 2}, {"id": 3}]}, 1),
        ([{"id": 1, "_links": [{"rel": "self", "href": "/x"}]}], 1),
    ],
)
def test_each_way_to_a_frame_chooses_the_same_rows(body, rows):
    """A record with an id, or with other fields of its own, stays one row."""
    one = response(json.dumps(body).encode())
    page = response(json.dumps(body).encode())
    page.extensions[EXTENSION] = Received(is_page="id" not in body and "name" not in body)
    tables = [frame(body), frame(one), frame([one]), frame(iter([page]))]

    assert [len(table) for table in tables] == [rows] * 4
    assert len({tuple(table.columns) for table in tables}) == 1


def test_each_way_to_a_frame_warns_of_other_pages():
    """The list that a response has only one page of is named once."""
    body = json.dumps({"items": [{"id": n} for n in range(50)], "total": 120}).encode()
    with pytest.warns(UserWarning, match=r"one page of a list: 50 of 120 records\."):
        frame([response(body)])
    with pytest.warns(UserWarning, match="3 of 4 responses are one page of a list") as caught:
        frame([response(body), response(b"[]"), response(body), response(body)])

    assert "50 of 120 records.\nFor all: dm.frame(dm.pages(" in str(caught[0].message)
    assert [each.filename for each in caught] == [__file__]


def test_the_call_for_all_pages_has_the_query_without_its_credentials():
    """Without the filter, it would return other records."""
    got = response(json.dumps({"items": [{"id": 1}], "total": 2}).encode())
    got.request.url = got.request.url.copy_with(query=b"status=open%20now&api_key=k1")
    call = r'dm\.pages\("/v1/users/me\?status=open%20now&api_key=<REDACTED>"\)'
    with pytest.warns(UserWarning, match=call):
        frame(got)


def test_a_list_beside_the_number_of_its_page_has_its_rows():
    """What else is said there, such as a filter, is said of the page."""
    says = {"page": 1, "limit": 2, "slug": "4px", "since": "2026-02-26"}
    body = {"meta": {"code": 200}, "data": {**says, "parcels": [{"id": 1}, {"id": 2}]}}
    one = frame({"name": "Ann", "page": 1, "limit": 9, "parcels": [{"id": 1}, {"id": 2}]})

    assert frame(body)["id"].tolist() == [1, 2]
    assert len(one) == 1


def test_rows_at_goes_through_lists():
    """The id of the element that they were in stands beside the rows."""
    items = [{"id": 1, "to": [{"id": 5}, {"id": 6}]}, {"id": 2, "to": []}, {"id": 3}]
    nested = {"page": 1, "items": items}
    table = frame(nested, rows_at="items.to")
    texts = frame([{"id": 1, "to": ["a", "b"]}], rows_at="to")

    assert table.to_dict("list") == {"items.id": [1, 1], "id": [5, 6]}
    assert table.attrs["envelope"] == {"page": 1}
    assert texts.to_dict("list") == {"parent.id": [1, 1], "value": ["a", "b"]}
    assert len(frame({"items": []}, rows_at="items.to")) == 0


def test_a_dotted_rows_at_selects_nested_records():
    body = {"n": 1, "page": {"items": [{"id": 2}], "next": None}}
    table = frame(body, rows_at="page.items")

    assert table["id"].tolist() == [2]
    assert table.attrs["envelope"] == {"n": 1, "page": {"next": None}}


def test_a_record_with_a_member_data_is_no_envelope():
    """What has an id of its own is a record, so its other members are columns too."""
    events = [{"id": f"evt_{n}", "type": "sent", "data": {"to": n}} for n in range(2)]
    one = frame(events[0])
    many = frame([response(json.dumps(event).encode()) for event in events])

    assert list(one.columns) == list(many.columns) == ["id", "type", "data.to"]
    assert many["data.to"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"page": {"items": [], "next": None}}, "'x' should be, the members are: items, next."),
        ({"n": 1, "page": [1]}, "'x' should be, the members are: none."),
        ({"n": 1, "pages": {}}, "'page' should be, the members are: n, pages."),
        ([1, 2], "'page' should be, the members are: none."),
    ],
)
def test_the_error_for_a_wrong_rows_at_says_how_far_it_matched(body, says):
    with pytest.raises(DirectMailLabError) as caught:
        frame(body, rows_at="page.x.y")

    assert str(caught.value) == (
        f"rows_at 'page.x.y' is not in this body. Where {says}\n"
        "Name another path, or use rows_at=None for the whole body."
    )


def test_an_api_key_used_as_a_field_name_is_in_no_message():
    """A service may repeat the key as a field's name, so the list of members is redacted."""
    key = ApiKey("k-7Qf2-not-to-be-seen")
    body = json.dumps({key.reveal(): 1}).encode()
    with pytest.raises(DirectMailLabError, match="the members are: <API_KEY>") as caught:
        frame(body, rows_at="data")

    assert key.reveal() not in str(caught.value)


# -- responses ---------------------------------------------------------------------------------


def test_attrs_say_where_the_frame_came_from():
    live, replayed = response(b"{}"), response(b"{}")
    for one, at in ((live, 1_700_000_000.25), (replayed, math.nan)):  # vcrpy recorded no times
        reading = Reading(at, "GET", "/users/me", 200, source="replayed")
        recording = SessionRecording("tour", "https://api.example.test")
        number = recording.add(
            reading, Interaction(Request("GET", ""), Response(200)), Redactor().texts
        )
        one.extensions[EXTENSION] = Received(recording, number)
    given = [{}, response(b"{}"), replayed, live]

    names = ("status", "path", "source", "time")
    assert [[frame(one).attrs[name] for name in names] for one in given] == [
        [None] * 4,
        [200, "/v1/users/me", None, None],
        [200, "/users/me", "replayed", None],
        [200, "/users/me", "replayed", "2023-11-14T22:13:20.250000+00:00"],
    ]


def test_an_error_status_raises_unless_its_body_is_asked_for():
    refused = response(b'{"error": "no"}', 401)
    with pytest.raises(UnauthorizedError, match="responded with 401") as caught:
        frame(refused)

    assert caught.value.operation == "GET /v1/users/me"
    assert 'on_error="keep"' in caught.value.__notes__[0]
    assert frame(refused, on_error="keep")["error"].item() == "no"
    with pytest.raises(ValueError, match="on_error must be one of"):
        frame(refused, on_error="ignore")


def test_many_responses_make_one_frame_and_failures_one_warning():
    """In the result of `get_many`, no failure costs the other rows; a single failure raises."""
    late = httpx.ReadTimeout("https://api.test did not respond in time. Check it.")
    one, two = response(b'{"id": 1}'), response(b'{"data": [{"id": 2}, {"id": 3}]}')
    with pytest.warns(UserWarning, match="3 of 5 responses failed") as caught:
        table = frame([one, response(b"{}", 404), late, response(b"<p>"), two])
    with pytest.raises(httpx.ReadTimeout):
        frame(late)

    assert table["id"].tolist() == [1, 2, 3]
    assert (table.attrs["pages"], table.attrs["status"]) == (2, 200)
    assert [warning.filename for warning in caught] == [__file__]
    for part in ("[1] GET /v1/users/me responded with 404", "[2] https://api.test did", "[3] GET"):
        assert part in str(caught[0].message)


# -- bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        ('{"v": "é"}'.encode(), None),
        ('\ufeff{"v": "é"}'.encode(), "application/json"),
        ('{"v": "é"}'.encode("utf-16"), "application/json"),
        ('{"v": "é"}'.encode("latin-1"), "application/json; charset=ISO-8859-1"),
        ('{"v": "é"}'.encode(), "application/json; charset=latin-1"),
    ],
)
def test_a_body_is_read_in_its_own_character_set(content, content_type):
    """Valid UTF-8 is read as UTF-8, with or without a BOM; other bodies as declared."""
    assert frame(response(content, content_type=content_type))["v"].item() == "é"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b'{"n": 1e400}', "endless number"),
        (b"<html>secret-body</html>", "is not JSON"),
        (b'{"a": "secret-body', "is not JSON"),
        (b'{"secret-body": NaN}', "NaN"),
        (b'"secret-body\xff"', "character set"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper"),
    ],
)
def test_a_body_that_is_not_json_is_refused(content, says):
    with pytest.raises(NotJSONError) as caught:
        frame(response(content, 502, "text/html; charset=utf-8"), on_error="keep")

    message = str(caught.value)
    assert (caught.value.status, caught.value.content_type) == (502, "text/html")
    assert all(part in message for part in (says, "502", "text/html", 'get("/v1/users/me")'))
    assert "secret-body" not in message
    assert "hidden" not in message  # in the query
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("text/csv; charset=utf-8", '\ufeffzip,"na,me",n\r\n01234,NA,\r\n56789,"Café, x",2'),
        ("text/csv", '\n\nzip;"na,me";n\n\n01234;NA;\n56789;Café, x;2\n'),
        ("text/csv", 'sep=;\r\nzip;"na,me";n\r\n01234;NA;\r\n56789;Café, x;2\r\n'),
        ("text/tab-separated-values", "zip\tna,me\tn\n01234\tNA\t\n56789\tCafé, x\t2\n"),
    ],
)
def test_csv_is_read_as_text(content_type, content):
    table = frame(response(content.encode(), content_type=content_type))
    both = frame([response(content.encode(), content_type=content_type)] * 2)

    assert table.dtypes.tolist() == both.dtypes.tolist() == ["string", "string", "Int64"]
    rows = table.astype(object).where(table.notna(), None).to_dict("split")["data"]
    assert rows == [["01234", "NA", None], ["56789", "Café, x", 2]]
    assert list(table.columns) == ["zip", "na,me", "n"]
    assert table.attrs["status"] == 200
    assert both["zip"].tolist() == ["01234", "56789"] * 2


@pytest.mark.parametrize(
    ("name", "cells", "dtype"),
    [
        ("n", ["0", "-1", "419"], "Int64"),
        ("n", ["1.50", "", "2"], "Float64"),
        ("n", ["1", "", "2"], "Int64"),
        ("n", ["1", "007"], "string"),
        ("n", ["1", "n/a"], "string"),
        ("n", ["", ""], "string"),
        ("n", ["+491711234567", "1"], "string"),
        ("n", ["1", "9400111899223817573231"], "string"),  # a tracking number
        *((name, ["1", "2"], "string") for name in ("id", "user_id", "listId", "zip", "phone")),
        ("paid", ["1", "2"], "Int64"),
    ],
)
def test_a_column_of_plain_numbers_is_numeric_but_ids_are_text(name, cells, dtype):
    """A number that another column's text would lose, such as a leading zero, stays text."""
    content = "\n".join([f"a,{name}", *(f"x,{cell}" for cell in cells)])
    column = frame(response(content.encode(), content_type="text/csv"))[name]

    assert column.dtype == dtype
    if dtype == "string":
        assert column.tolist() == cells
    else:
        assert column.dropna().tolist() == [float(cell) for cell in cells if cell]


def test_a_table_in_a_windows_character_set_keeps_its_letters():
    content = "name,n\nZoë,“1”\n".encode("cp1252")
    with pytest.warns(UserWarning, match="it is read as cp1252") as warned:
        table = frame(response(content, content_type="text/csv"))
    other = frame(response("name,n\nZo\ufffd,é\n".encode(), content_type="text/csv"))

    assert table.to_dict("list") == {"name": ["Zoë"], "n": ["“1”"]}
    assert other["name"].item() == "Zo\ufffd"
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("content_type", "headers", "path"),
    [
        ("application/octet-stream", {"Content-Disposition": 'attachment; filename="a.CSV"'}, ""),
        ("text/plain", {"Content-Disposition": "attachment; filename*=UTF-8''a.csv"}, ""),
        ("application/vnd.ms-excel", {}, "/v1/letters.csv"),
        (None, {}, "/v1/letters.csv"),
    ],
)
def test_a_file_is_a_table_if_its_name_says_so(content_type, headers, path):
    """Without such a name, the type decides."""
    got = response(b"a,b\nx,1\n", content_type=content_type)
    with pytest.raises(NotJSONError):
        frame(got)
    got.headers.update(headers)
    if path:
        got.request.url = got.request.url.copy_with(path=path)

    assert frame(got).to_dict("list") == {"a": ["x"], "b": [1]}


def csv(body: bytes, content_type: str = "text/csv") -> httpx.Response:
    got = response(body)
    got.headers["Content-Type"] = content_type
    return got


@pytest.mark.parametrize(
    ("cell", "warns"),
    [
        ('"Ann\n2,Bo,y\n3,Cy,z"', True),
        ('"Main Street 1\n12345 Springfield\nUSA"', False),
        ('"Main Street 1\nSpringfield, IL\nUSA"', False),
    ],
)
def test_a_cell_with_lines_of_the_table_warns(cell, warns):
    """A quotation mark that is missing takes rows away; an address has several lines."""
    got = csv(f"id,name,x\n1,{cell},v\n4,Di,w\n".encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = frame(got)

    assert len(table) == 2
    assert ["quotation mark" in str(each.message) for each in caught] == [True] * warns


def test_an_empty_cell_of_a_single_column_keeps_its_row():
    assert frame(csv(b"code\nA\n\nB\n"))["code"].fillna("").tolist() == ["A", "", "B"]


@pytest.mark.parametrize("charset", ["ISO-8859-1", "latin1"])
def test_the_euro_sign_of_windows_is_read(charset):
    """What is called ISO-8859-1 is windows-1252, as in a browser."""
    table = frame(csv(b"price\n5 \x80\n", f"text/csv; charset={charset}"))
    as_json = frame(csv(b'{"price": "5 \x80"}', f"application/json; charset={charset}"))

    assert table["price"].item() == as_json["price"].item() == "5 €"


def test_json_that_is_sent_as_csv_is_read_and_a_web_page_is_refused():
    assert frame(csv(b'[{"id": 1}, {"id": 2}]'))["id"].tolist() == [1, 2]
    with pytest.raises(NotJSONError, match="is not JSON"):
        frame(csv(b"<html><body>Sign in</body></html>"))


def test_a_compressed_table_is_read():
    got = csv(gzip.compress(b"id,n\nA,1\n"), "application/octet-stream")
    got.headers["Content-Disposition"] = 'attachment; filename="letters.csv.gz"'
    cut = csv(b"\x1f\x8b\x08" + b"x" * 9)

    assert frame(got).to_dict("list") == {"id": ["A"], "n": [1]}
    with pytest.raises(NotJSONError, match="the body is compressed, and damaged"):
        frame(cut)


def test_csv_that_is_broken_or_empty_is_refused():
    with pytest.raises(NotJSONError, match="line 3 has 3 fields, where 2 are expected"):
        frame(response(b"a,b\n1,2\nsecret,2,3\n", content_type="text/csv"))
    with pytest.raises(NotJSONError, match="a quotation mark is missing"):
        frame(csv(b'id,n\n1,"a\n2,b\n'))
    with pytest.raises(NotJSONError, match="line 2 has 3 fields, where 2 are expected"):
        frame(response(b"a,b\nsecret,2,3\n1,2,3\n", content_type="text/csv"))
    with pytest.raises(NotJSONError, match="is empty"):
        frame(response(b"", content_type="text/csv"))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_body_of_200_000_columns_is_refused(kind):
    """Its 800 kB would take minutes. The error comes before any column is made."""
    names = [f"c{number}" for number in range(200_000)]
    content = json.dumps(dict.fromkeys(names, 1)) if kind == "json" else ",".join(names) + "\n"
    type_ = {"json": "application/json", "csv": "text/csv"}[kind]
    with pytest.raises(DirectMailLabError, match="more than 10,000 columns"):
        frame(response(content.encode(), content_type=type_))


def test_the_error_for_another_type_has_the_call_that_reads_it():
    advised = []
    redirect = response(b"", 302)
    redirect.headers["Location"] = "/v2/users"
    for got in (
        response(b"%PDF-1.7\xff", content_type="application/pdf"),
        response(b"<p>x</p>", content_type="text/html"),
        redirect,
    ):
        with pytest.raises(NotJSONError) as caught:
            frame(got)
        advised.append(caught.value.advice.rpartition(" ")[2])

    assert advised == [
        'pathlib.Path("body").write_bytes(response.content).',
        "print(response.text).",
        "follow_redirects=True.",
    ]


@pytest.mark.parametrize("charset", ["base64", "idna", "nonsense"])
def test_any_declared_charset_raises_only_our_own_error(charset):
    """A service may declare any of Python's codecs, or an unknown one."""
    with pytest.raises(NotJSONError):
        frame(response(b"{'\xe9'}", content_type=f"application/json; charset={charset}"))


@pytest.mark.parametrize(
    ("given", "rows_at"),
    [
        (b"<p>secret-body", "auto"),
        (response(b'{"a": "secret-body"}'), "nowhere.else"),
        (response(b"secret-body", 500), "auto"),
        ({"secret-body"}, "auto"),
    ],
)
def test_no_local_in_an_errors_traceback_contains_the_body(given, rows_at):
    """A notebook that prints locals would otherwise save a key that the service echoed."""
    with pytest.raises(DirectMailLabError) as caught:
        frame(given, rows_at=rows_at)

    ours = [f for f, _ in walk_tb(caught.value.__traceback__) if f.f_code.co_filename != __file__]
    assert len(ours) == 1
    assert "secret-body" not in repr([f.f_locals for f in ours])


@given(st.binary())
def test_any_bytes_give_a_frame_or_a_typed_error(content):
    with contextlib.suppress(NotJSONError):
        assert isinstance(frame(response(content)), pd.DataFrame)
