"""The pages of a list, in the styles of many services, from a real server on loopback."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from hypothesis import given, strategies as st

import directmail_lab as dm
from directmail_lab.exchange.next_page import Next, Page, PageList, page_of

RECORDS = [{"id": number, "name": f"n{number}"} for number in range(1, 8)]
Query = dict[str, str]


@dataclass
class Reply:
    """What a service sends for a page."""

    body: object
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


Style = Callable[[Query, str], Any]
"""Returns the page for a query, as JSON or as a `Reply`. It also gets the address of the list."""


def slice_of(query: Query, start: int, limit: str = "limit") -> list[Any]:
    return RECORDS[start : start + int(query.get(limit, 3))]


def by_page(body: Callable[[list[Any], int, int], Any], first: int = 1) -> Style:
    """Return a style with numbers of pages: ``body(records, number, the next number or 0)``."""

    def style(query: Query, _: str) -> Any:
        number = int(query.get("page", first))
        start = (number - first) * 3
        following = number + 1 if start + 3 < len(RECORDS) else 0
        return body(RECORDS[start : start + 3], number, following)

    return style


def by_offset(body: Callable[[list[Any], int, int], Any], name: str = "offset") -> Style:
    """Return a style with an offset: ``body(records, offset, offset of the next or 0)``."""

    def style(query: Query, _: str) -> Any:
        offset = int(query.get(name, 0))
        records = slice_of(query, offset)
        following = offset + len(records)
        return body(records, offset, following if following < len(RECORDS) else 0)

    return style


def by_token(parameter: str, body: Callable[[list[Any], str | None], Any]) -> Style:
    """Return a style with opaque tokens: ``body(records, token of the next or None)``."""

    def style(query: Query, _: str) -> Any:
        start = int(query.get(parameter, "t0").removeprefix("t"))
        token = f"t{start + 3}" if start + 3 < len(RECORDS) else None
        return body(RECORDS[start : start + 3], token)

    return style


def linked(body: Callable[[list[Any], str | None], Any], *, absolute: bool = True) -> Style:
    """Return a style with addresses: ``body(records, address of the next or None)``."""

    def style(query: Query, address: str) -> Any:
        start = int(query.get("from_id", 0))
        place = address if absolute else urlsplit(address).path
        following = f"{place}?from_id={start + 3}" if start + 3 < len(RECORDS) else None
        return body(RECORDS[start : start + 3], following)

    return style


def with_link(relation: str) -> Style:
    return linked(
        lambda records, url: Reply(records, {"Link": f"<{url}>; {relation}"} if url else {})
    )


def scim(query: Query, _: str) -> Any:
    start = int(query.get("startIndex", 1))
    records = RECORDS[start - 1 : start + 2]
    return {"totalResults": 7, "startIndex": start, "itemsPerPage": 3, "Resources": records}


def short_in_the_middle(query: Query, _: str) -> Any:
    bounds = {1: (0, 3), 2: (3, 4), 3: (4, 7)}
    number = int(query.get("page", 1))
    return {"items": RECORDS[slice(*bounds[number])], "page": number, "total_pages": 3}


def empty_in_the_middle(query: Query, address: str) -> Any:
    bounds = [(0, 3), (3, 3), (3, 3), (3, 7)]
    number = int(query.get("n", 0))
    following = f"{address}?n={number + 1}" if number < 3 else None
    return {"items": RECORDS[slice(*bounds[number])], "next": following}


def two_arrays(query: Query, address: str) -> Any:
    page = linked(lambda records, url: {"items": records, "errors": [], "next": url})
    return page(query, address)


FOLLOWED: dict[str, tuple[Style, Query]] = {
    "next_url": (linked(lambda r, url: {"data": r, "next_url": url}), {}),
    "next_page": (linked(lambda r, url: {"data": r, "next_page": url}), {}),
    "next_page_url": (
        linked(lambda r, url: {"data": r, "next_page_url": url, "per_page": 3, "total": 7}),
        {},
    ),
    "next_page_uri": (linked(lambda r, url: {"r": r, "next_page_uri": url}, absolute=False), {}),
    "nextLink": (linked(lambda r, url: {"value": r, "nextLink": url}), {}),
    "odata": (linked(lambda r, url: {"value": r, "@odata.nextLink": url, "@odata.count": 7}), {}),
    "links.next": (linked(lambda r, url: {"data": r, "links": {"self": "x", "next": url}}), {}),
    "HAL": (
        linked(lambda r, url: {"list": r, "_links": {"next": {"href": url}} if url else {}}),
        {},
    ),
    "rel and href": (
        linked(lambda r, url: {"data": r, "links": [{"rel": "next", "href": url}] if url else []}),
        {},
    ),
    "rel=NEXT": (with_link("rel=NEXT"), {}),
    "two relations": (with_link('rel="next last"'), {}),
    "paging.next": (linked(lambda r, url: {"data": r, "paging": {"next": url}}), {}),
    "info.next": (
        linked(lambda r, url: {"results": r, "info": {"count": 7, "pages": 3, "next": url}}),
        {},
    ),
    "next_cursor": (by_token("cursor", lambda r, t: {"items": r, "next_cursor": t}), {}),
    "meta.next_cursor": (
        by_token("cursor", lambda r, t: {"items": r, "meta": {"next_cursor": t or ""}}),
        {},
    ),
    "nextPageToken": (by_token("pageToken", lambda r, t: {"items": r, "nextPageToken": t}), {}),
    "next_token": (by_token("next_token", lambda r, t: {"items": r, "next_token": t}), {}),
    "paging.next.after": (
        by_token("after", lambda r, t: {"items": r, "paging": {"next": {"after": t}} if t else {}}),
        {},
    ),
    "next_offset": (by_offset(lambda r, _, n: {"items": r, "next_offset": n or None}), {}),
    "next_page number": (by_page(lambda r, _, n: {"items": r, "next_page": n or None}), {}),
    "offset, limit and total": (
        by_offset(lambda r, o, _: {"items": r, "offset": o, "limit": 3, "total": 7}),
        {},
    ),
    "skip": (by_offset(lambda r, o, _: {"items": r, "skip": o, "total": 7}, "skip"), {}),
    "startAt": (
        by_offset(
            lambda r, o, _: {"values": r, "startAt": o, "maxResults": 3, "total": 7}, "startAt"
        ),
        {},
    ),
    "startIndex from 1": (scim, {}),
    "page and total": (
        by_page(lambda r, n, _: {"items": r, "page": n, "per_page": 3, "total": 7}),
        {},
    ),
    "current_page": (
        by_page(lambda r, n, _: {"data": r, "meta": {"current_page": n, "last_page": 3}}),
        {},
    ),
    "Spring": (
        by_page(
            lambda r, n, f: {
                "content": r,
                "number": n,
                "size": 3,
                "totalElements": 7,
                "totalPages": 3,
                "last": not f,
            },
            first=0,
        ),
        {},
    ),
    "page object": (
        by_page(
            lambda r, n, _: {"content": r, "page": {"number": n, "size": 3, "totalPages": 3}},
            first=0,
        ),
        {},
    ),
    "page and has_more": (
        by_page(lambda r, n, f: {"items": r, "page": n, "has_more": bool(f)}),
        {},
    ),
    "X-Next-Page": (by_page(lambda r, _, f: Reply(r, {"X-Next-Page": str(f or "")})), {}),
    "Next-Page": (by_page(lambda r, _, f: Reply(r, {"Next-Page": str(f or "")})), {}),
    "X-Pagination": (
        by_page(
            lambda r, n, _: Reply(r, {"X-Pagination": f'{{"CurrentPage": {n}, "TotalPages": 3}}'})
        ),
        {},
    ),
    "Total": (by_page(lambda r, *_: Reply(r, {"Total": "7"})), {"page": "1"}),
    "X-Total-Count": (
        by_page(lambda r, *_: Reply(r, {"X-Total-Count": "7"})),
        {"page": "1"},
    ),
    "X-WP-TotalPages": (
        by_page(lambda r, *_: Reply(r, {"X-WP-Total": "7", "X-WP-TotalPages": "3"})),
        {"page": "1"},
    ),
    "Content-Range": (
        by_offset(
            lambda r, o, _: Reply(r, {"Content-Range": f"items {o}-{o + len(r) - 1}/7"}),
        ),
        {"offset": "0", "limit": "3"},
    ),
    "count and limit": (by_offset(lambda r, *_: {"items": r, "count": 7}), {"limit": "3"}),
    "a page in the query": (by_page(lambda r, *_: r), {"page": "1"}),
    "short in the middle": (short_in_the_middle, {}),
    "empty in the middle": (empty_in_the_middle, {}),
    "two arrays": (two_arrays, {}),
    "records in an object": (
        by_page(lambda r, n, _: {"result": {"records": r, "total": 7}, "page": n}),
        {},
    ),
    "facets": (
        by_page(
            lambda r, n, _: {"facets": [{"sum": 7}], "results": r, "count": 7, "page": n},
        ),
        {},
    ),
    "a total in the list's object": (
        by_page(lambda r, n, _: {"letters": {"items": r, "page": n, "total": "7"}}),
        {},
    ),
    "the next offset": (
        by_offset(lambda r, _, n: {"items": r, "offset": n or 7, "total": 7}),
        {},
    ),
    "the next offset before a refusal": (
        by_offset(
            lambda r, _, n: Reply({"items": r, "offset": n or 7, "total": 7}, {}, 200 if r else 400)
        ),
        {},
    ),
    "the next offset without a total": (
        by_offset(lambda r, _, n: {"items": r, "offset": n or 7}),
        {},
    ),
    "the last id": (
        by_offset(lambda r, o, _: {"items": r, "offset": r[-1]["id"] if r else o}),
        {},
    ),
    "offset as a token": (
        by_token("offset", lambda r, t: {"records": r, **({"offset": t} if t else {})}),
        {},
    ),
    "next_page object": (
        linked(
            lambda r, url: {
                "data": r,
                "next_page": url and {"offset": "eyJ0", "path": "/list?x=1", "uri": url},
            }
        ),
        {},
    ),
    "a total and a link on the first page alone": (
        by_page(lambda r, n, f: {"data": r, "next_page": f, "total": 7} if n == 1 else {"data": r}),
        {},
    ),
    "a full last page without a token": (
        by_token("cursor", lambda r, t: {"items": r[:3], "next_cursor": t}),
        {"limit": "1"},
    ),
}


def sorted_by_name(query: Query, address: str) -> Any:
    """Return a page of a search, which has its filter in each request."""
    style = by_token("start_cursor", lambda r, t: {"results": r, "next_cursor": t})
    return style(query, address) if query.get("sort") == "name" else Reply({}, {}, 400)


# The caller names the way.
NAMED: dict[str, tuple[Style, dict[str, Any]]] = {
    "an object of objects": (
        by_page(lambda r, *_: {"result": {f"k{each['id']}": each for each in r}, "took": 5}),
        {"page": "page"},
    ),
    "records by their ids": (
        by_page(lambda r, *_: {f"k{each['id']}": each for each in r}),
        {"page": "page"},
    ),
    "an object of objects by offset": (
        by_offset(lambda r, *_: {"result": {f"k{each['id']}": each for each in r}}),
        {"offset": "offset", "params": {"limit": "3"}},
    ),
    "arrays of arrays": (
        by_page(
            lambda r, n, _: {"page": n, "list": [[each] for each in r], "more": [[1]] if r else []}
        ),
        {"page": "page"},
    ),
    "an end that repeats the last page": (
        lambda query, _: {"result": {"a": {"id": min(int(query["page"]), 3)}}},
        {"page": "page"},
    ),
    "an end with 404": (
        lambda query, _: Reply(
            {"result": {"a": {"id": int(query["page"])}}}, {}, 200 if query["page"] < "4" else 404
        ),
        {"page": "page"},
    ),
    "a cursor with another name": (
        by_token("start_cursor", lambda r, t: {"results": r, "next_cursor": t}),
        {"cursor": ("next_cursor", "start_cursor")},
    ),
    "a cursor in a search": (
        sorted_by_name,
        {"cursor": ("next_cursor", "start_cursor"), "method": "POST", "json": {"sort": "name"}},
    ),
    "a page in a search": (
        by_page(lambda r, *_: {"results": r}),
        {"page": "page", "method": "POST", "json": {}},
    ),
    "an offset in a search": (
        by_offset(lambda r, *_: {"results": r}),
        {"offset": "offset", "method": "POST", "json": {"limit": 3}},
    ),
    "a search that says its pages": (
        by_page(lambda r, n, _: {"results": r, "page": n, "total": 7}),
        {"method": "POST", "json": {"sort": "name"}},
    ),
}

WARNED: dict[str, tuple[Style, Query, str, int]] = {
    "total alone": (by_page(lambda r, *_: {"items": r, "total": 7}), {}, "3 of 7 records", 3),
    "X-Total-Count alone": (
        by_page(lambda r, *_: Reply(r, {"X-Total-Count": "7"})),
        {},
        "3 of 7 records",
        3,
    ),
    "Content-Range alone": (
        by_offset(lambda r, *_: Reply(r, {"Content-Range": "0-2/7"})),
        {},
        "3 of 7 records",
        3,
    ),
    "has_more alone": (
        by_page(lambda r, _, n: {"data": r, "has_more": bool(n)}),
        {},
        "says that there are more",
        3,
    ),
    "a full page": (by_page(lambda r, *_: r), {"limit": "3"}, "There may be more", 3),
    "a cursor of its own": (
        by_token("token", lambda r, t: {"items": r, "continuationToken": t}),
        {},
        'cursor="continuationToken"',
        3,
    ),
    "an ignored offset": (
        lambda *_: {"items": RECORDS[:3], "total": 7},
        {"offset": "0"},
        r"3 of 7 records came\. \?offset=3 leads to a page that came before",
        3,
    ),
    "an ignored page of one record": (
        lambda *_: [{"id": 1}],
        {"page": "1"},
        r"1 record came\. \?page=2 leads to a page that came before",
        1,
    ),
    "an ignored page of equal records": (
        lambda *_: [{"s": "queued"}] * 3,
        {"page": "1"},
        r"3 records came\. \?page=2 leads to a page that came before",
        3,
    ),
    "an ignored token": (
        lambda *_: {"items": RECORDS[:3], "next_cursor": "a8f"},
        {},
        r'cursor=a8f leads to a page that came before.* cursor=\("next_cursor", "…"\)',
        3,
    ),
    "a refused parameter": (
        lambda query, _: Reply(
            {"items": RECORDS[:3], "count": 7}, {}, 400 if len(query) > 1 else 200
        ),
        {"limit": "3"},
        r"3 of 7 records came\. \?offset=3 has status 400",
        3,
    ),
    "records that come twice": (
        lambda query, _: {
            "items": RECORDS[int(query.get("page", 1)) - 1 :][:2],
            "page": int(query.get("page", 1)),
            "total": 4,
        },
        {},
        r"4 records came\. 1 of them have the id of one before",
        4,
    ),
    "the next offset of a list that ends early": (
        by_offset(lambda r, _, n: {"items": r, "offset": n or None, "total": 9}),
        {},
        "7 of 9 records",
        7,
    ),
    "a search engine": (
        by_offset(lambda r, *_: {"hits": {"total": {"value": 7}, "hits": r}}),
        {},
        "3 of 7 records",
        3,
    ),
    "a total as text": (by_page(lambda r, *_: {"items": r, "total": "7"}), {}, "3 of 7 rec", 3),
    "a total in the list's object": (
        by_page(lambda r, *_: {"letters": {"items": r, "total": 7}}),
        {},
        "3 of 7 records",
        3,
    ),
    "a total that only the first page says": (
        by_page(lambda r, n, f: {"data": r, "next_page": f, "total": 9} if n == 1 else {"data": r}),
        {},
        "7 of 9 records came",
        7,
    ),
    "a total beside a list that is not recognised": (
        lambda *_: {"result": {"a": {"id": 1}, "b": {"id": 2}}, "total": 7},
        {},
        "no list of records came",
        1,
    ),
    "a list that ends early": (
        by_page(lambda r, n, _: {"items": r, "page": n, "total": 9}),
        {},
        "7 of 9 records",
        7,
    ),
    "a bare array of as many records as a page usually has": (
        lambda *_: [{"id": number} for number in range(10)],
        {},
        r'10 records came\. There may be more: .* pages\("/v1/list", page="page"\)',
        10,
    ),
    "empty pages without end": (
        lambda query, address: {
            "items": [],
            "next": f"{address}?n={int(query.get('n', 0)) + 1}",
        },
        {},
        "25 pages without records",
        0,
    ),
}


class Handler(BaseHTTPRequestHandler):
    """Serves each style below ``/v1/``."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.respond({name: str(value) for name, value in content.items()})

    def do_GET(self) -> None:
        self.respond({})

    def respond(self, content: Query) -> None:
        url = urlsplit(self.path)
        address = f"http://{self.headers['Host']}{url.path}"
        style = self.server.styles[url.path.removeprefix("/v1/")]  # type: ignore[attr-defined]
        reply = style({**dict(parse_qsl(url.query)), **content}, address)
        if not isinstance(reply, Reply):
            reply = Reply(reply)
        is_csv = "Content-Type" in reply.headers
        body = (reply.body if is_csv else json.dumps(reply.body)).encode()  # type: ignore[attr-defined]
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        for name in ("Limit", "Remaining", "Reset"):
            self.send_header(f"X-RateLimit-{name}", "300")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as opened:
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


@pytest.fixture
def serve(server: ThreadingHTTPServer) -> Iterator[Callable[[Style], str]]:
    """Serve a style in a new session; return the path of its list."""

    def start(style: Style) -> str:
        server.styles = {"list": style}  # type: ignore[attr-defined]
        return "/v1/list"

    address = f"http://127.0.0.1:{server.server_port}"
    with dm.connect(address, "k-0123456789", pace="off", allow_writes=True):
        yield start
    dm.logout()


@pytest.mark.parametrize(("style", "query"), FOLLOWED.values(), ids=FOLLOWED)
def test_one_frame_has_all_records_of_a_list(
    serve: Callable[[Style], str], style: Style, query: Query
) -> None:
    """No record is missing or twice, and there is no warning."""
    got = dm.frame(dm.pages(serve(style), params=query))

    assert got["id"].tolist() == [record["id"] for record in RECORDS]


@pytest.mark.parametrize(("style", "options"), NAMED.values(), ids=NAMED)
def test_the_way_that_the_caller_names_is_followed_to_the_end(
    serve: Callable[[Style], str], style: Style, options: dict[str, Any]
) -> None:
    """Whatever the pages look like, and as often as a cell runs."""
    path = serve(style)
    for _ in range(2):
        texts = [page.text for page in dm.pages(path, **options)]
        text = "".join(texts)

        assert "{}" not in texts
        numbers = [number for number in range(1, 9) if f'"id": {number}' in text]
        assert numbers == [1, 2, 3] or numbers == [record["id"] for record in RECORDS]


@pytest.mark.parametrize(
    "style",
    [
        by_token("after", lambda r, t: {"items": r, "next_after": t}),
        linked(lambda r, url: {"items": r, "next": url}),
        by_page(lambda r, _, n: {"items": r, "has_more": bool(n)}),
        by_token("resume", lambda r, t: {"items": r, "paging": {"resume_at": t}}),
    ],
    ids=["token", "address", "flag", "nothing known"],
)
def test_a_cursor_that_no_page_has_is_said(serve: Callable[[Style], str], style: Style) -> None:
    """Its name may be misspelled, or be that of the parameter."""
    path = serve(style)
    with pytest.warns(UserWarning, match=r"3 records came\. There may be more.*cursor="):
        list(dm.pages(path, cursor="next_cursr"))


def test_a_cursor_that_is_null_leads_to_no_page(serve: Callable[[Style], str]) -> None:
    """The only page is whole."""
    path = serve(by_page(lambda r, *_: {"items": r, "next_cursor": None}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(dm.pages(path, cursor="next_cursor"))) == 1


def test_csv_has_all_its_pages(serve: Callable[[Style], str]) -> None:
    """The header of a table is no record."""
    path = serve(
        by_page(
            lambda r, *_: Reply(
                "\n".join(["id,name", *(f"{each['id']},{each['name']}" for each in r)]),
                {"Content-Type": "text/csv", "X-Total-Count": "9"},
            )
        )
    )
    with pytest.warns(UserWarning, match="7 of 9 records"):
        got = dm.frame(dm.pages(path, page="page"))

    assert got["id"].tolist() == [*map(str, range(1, 8))]


@pytest.mark.parametrize("option", ["page", "offset"])
def test_a_number_in_place_of_a_name_is_an_error(
    serve: Callable[[Style], str], option: str
) -> None:
    """The error says what the option is for, and how to start at another page."""
    path = serve(FOLLOWED["next_url"][0])
    with pytest.raises(ValueError, match=rf'{option}= is the name .*params=\{{"{option}": 2\}}'):
        dm.pages(path, **{option: 2})  # type: ignore[arg-type]


@pytest.mark.parametrize(("style", "query", "message", "count"), WARNED.values(), ids=WARNED)
def test_a_list_that_may_not_be_whole_says_so(
    serve: Callable[[Style], str], style: Style, query: Query, message: str, count: int
) -> None:
    """The warning has the number of records and the call for all of them."""
    path = serve(style)
    with pytest.warns(UserWarning, match=message) as caught:
        got = dm.frame(dm.pages(path, params=query))

    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(got) == count


@pytest.mark.parametrize(
    "style",
    [
        linked(lambda r, url: {"data": [{"s": "queued"}] * len(r), "next_url": url}),
        by_token("cursor", lambda r, t: {"data": [{"s": "queued"}] * len(r), "next_cursor": t}),
        by_page(lambda r, n, _: {"data": [{"s": "queued"}] * len(r), "page": n, "total": 7}),
        by_offset(lambda r, o, _: {"data": [{"s": "queued"}] * len(r), "offset": o, "total": 7}),
    ],
    ids=["address", "token", "page", "offset"],
)
def test_equal_pages_at_different_addresses_are_all_kept(
    serve: Callable[[Style], str], style: Style
) -> None:
    """Records without an id may well be equal."""
    assert len(dm.frame(dm.pages(serve(style)))) == len(RECORDS)


NAMES = st.sampled_from(
    [
        "next",
        "next_page",
        "links",
        "meta",
        "data",
        "items",
        "total",
        "page",
        "offset",
        "limit",
        "rel",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "next", "/x?page=2", "9" * 5000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


def page_with(body: Any, query: Query, headers: dict[str, str]) -> Page:
    request = httpx.Request("GET", "https://api.example.test/v1/list")
    return page_of(httpx.Response(200, json=body, headers=headers, request=request), query)


@given(
    body=VALUES,
    query=st.dictionaries(NAMES, st.sampled_from(["1", "x", "9" * 5000]), max_size=2),
    total=st.sampled_from(["7", "", "9" * 5000, "-1"]),
)
def test_no_page_breaks_the_reading_of_it(body: Any, query: Query, total: str) -> None:
    """Whatever a service sends, a page is the last, or says how to request the next."""
    page = page_with(body, query, {"X-Total-Count": total, "Content-Range": f"0-2/{total}"})
    pages = PageList()
    answer = pages.next_of(page)

    assert answer is None or isinstance(answer, Next)
    assert pages.has_seen(page) is bool(page.content)


@pytest.mark.parametrize(
    "body",
    [
        [{"id": number} for number in range(11)],
        {"items": [{"id": number} for number in range(10)], "total": 10},
        {"items": [{"id": number} for number in range(10)], "next": None},
        {"items": [{"id": number} for number in range(10)], "limit": 50},
    ],
    ids=["an odd number", "a total", "no next page", "a larger limit"],
)
def test_a_list_that_seems_whole_gives_no_warning(body: Any) -> None:
    """Neither an odd number of records nor a round one with a statement looks like a first page."""
    page = page_with(body, {}, {})

    assert PageList().next_of(page) == Next()


def test_a_part_that_was_asked_for_is_whole(serve: Callable[[Style], str]) -> None:
    """Neither ``max_pages`` nor a later start is an accident."""
    path = serve(FOLLOWED["offset, limit and total"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = dm.frame(dm.pages(path, max_pages=2))
        rest = dm.frame(dm.pages(path, params={"offset": 4}))

    assert first["id"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rest["id"].tolist() == [5, 6, 7]
