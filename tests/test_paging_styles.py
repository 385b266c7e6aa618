"""The pages of a list, in the styles of many services, from a real server on loopback."""

import functools
import hashlib
import io
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from hypothesis import given, strategies as st

import directmail_lab as dm
from directmail_lab.display import Progress
from directmail_lab.exchange.next_page import End, Next, Page, Seen, page_of, step
from directmail_lab.exchange.values import Request, Response
from directmail_lab.server.loopback import LoopbackServer, json_response

RECORDS = [{"id": number, "name": f"n{number}"} for number in range(1, 8)]
IDS = [*range(1, 8)]
Query = dict[str, str]


@dataclass
class Reply:
    """What a service sends for a page: text is a table in CSV."""

    body: object
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


Style = Callable[[Query, str], Any]
"""Returns the page for a query, as JSON or as a `Reply`. It also gets the address of the list."""


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
        records = RECORDS[offset : offset + int(query.get("limit", 3))]
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


def linked(body: Callable[[list[Any], str | None], Any], *, to: str = "{}") -> Style:
    """Return a style with addresses: ``body(records, address of the next or None)``."""

    def style(query: Query, address: str) -> Any:
        start = int(query.get("from_id", 0))
        following = f"{to.format(address)}?from_id={start + 3}"
        return body(RECORDS[start : start + 3], following if start + 3 < len(RECORDS) else None)

    return style


def with_link(relation: str) -> Style:
    return linked(lambda r, url: Reply(r, {"Link": f"<{url}>; {relation}"} if url else {}))


def cut_at(bounds: list[tuple[int, int]], **says: object) -> Style:
    """Return a style whose pages have these records; each later page is empty."""
    return lambda query, _: {
        "items": RECORDS[slice(*dict(enumerate(bounds, 1)).get(int(query.get("page", 1)), (7, 7)))],
        "page": int(query.get("page", 1)),
        **says,
    }


def scim(query: Query, _: str) -> Any:
    start = int(query.get("startIndex", 1))
    records = RECORDS[start - 1 : start + 2]
    return {"totalResults": 7, "startIndex": start, "itemsPerPage": 3, "Resources": records}


def empty_in_the_middle(query: Query, address: str) -> Any:
    bounds = [(0, 3), (3, 3), (3, 7)]
    number = int(query.get("n", 0))
    following = f"{address}?n={number + 1}" if number < 2 else None
    return {"items": RECORDS[slice(*bounds[number])], "next": following}


SHORT_SECOND = [(0, 3), (3, 4), (4, 7)]

FOLLOWED: dict[str, Style] = {
    "next_url": linked(lambda r, url: {"data": r, "next_url": url}),
    "next_page": linked(lambda r, url: {"data": r, "next_page": url}),
    "next_page_url": linked(
        lambda r, url: {"data": r, "next_page_url": url, "per_page": 3, "total": 7}
    ),
    "next_page_uri": linked(lambda r, url: {"r": r, "next_page_uri": url}, to="/v1/list"),
    "a relative address": linked(lambda r, url: {"items": r, "next": url}, to="list"),
    "in an object data": linked(lambda r, url: {"data": {"items": r, "next": url}}),
    "nextLink": linked(lambda r, url: {"value": r, "nextLink": url}),
    "odata": linked(lambda r, url: {"value": r, "@odata.nextLink": url, "@odata.count": 7}),
    "links.next": linked(lambda r, url: {"data": r, "links": {"self": "x", "next": url}}),
    "HAL": linked(lambda r, url: {"list": r, "_links": {"next": {"href": url}} if url else {}}),
    "rel and href": linked(
        lambda r, url: {"data": r, "links": [{"rel": "next", "href": url}] if url else []}
    ),
    "rel=NEXT": with_link("rel=NEXT"),
    "two relations": with_link('rel="next last"'),
    "links to other pages beside it": linked(
        lambda r, url: Reply(
            r, {"Link": '<?from_id=0>; rel="first"' + (f', <{url}>; rel="next"' if url else "")}
        )
    ),
    "paging.next": linked(lambda r, url: {"data": r, "paging": {"next": url}}),
    "info.next": linked(
        lambda r, url: {"results": r, "info": {"count": 7, "pages": 3, "next": url}}
    ),
    "links in a circle": by_page(lambda r, _, f: {"data": r, "next": f"?page={f or 1}"}),
    "next_cursor": by_token("cursor", lambda r, t: {"items": r, "next_cursor": t}),
    "meta.next_cursor": by_token(
        "cursor", lambda r, t: {"items": r, "meta": {"next_cursor": t or ""}}
    ),
    "nextPageToken": by_token("pageToken", lambda r, t: {"items": r, "nextPageToken": t}),
    "next_token": by_token("next_token", lambda r, t: {"items": r, "next_token": t}),
    "paging.next.after": by_token(
        "after", lambda r, t: {"items": r, "paging": {"next": {"after": t}} if t else {}}
    ),
    "next_offset": by_offset(lambda r, _, n: {"items": r, "next_offset": n or None}),
    "next_page number": by_page(lambda r, _, n: {"items": r, "next_page": n or None}),
    "offset, limit and total": by_offset(
        lambda r, o, _: {"items": r, "offset": o, "limit": 3, "total": 7}
    ),
    "skip": by_offset(lambda r, o, _: {"items": r, "skip": o, "total": 7}, "skip"),
    "startAt": by_offset(
        lambda r, o, _: {"values": r, "startAt": o, "maxResults": 3, "total": 7}, "startAt"
    ),
    "startIndex from 1": scim,
    "page and total": by_page(lambda r, n, _: {"items": r, "page": n, "per_page": 3, "total": 7}),
    "numbers as text": by_page(
        lambda r, n, _: {"items": r, "page": str(n), "per_page": "3", "total": "7"}
    ),
    "the number of pages as text": by_page(
        lambda r, n, _: {"items": r, "page": str(n), "total_pages": "3"}
    ),
    "an offset as text": by_offset(lambda r, o, _: {"items": r, "offset": str(o), "total": "7"}),
    "current_page": by_page(
        lambda r, n, _: {"data": r, "meta": {"current_page": n, "last_page": 3}}
    ),
    "Spring": by_page(
        lambda r, n, f: {"content": r, "number": n, "size": 3, "totalPages": 3, "last": not f},
        first=0,
    ),
    "page object": by_page(
        lambda r, n, _: {"content": r, "page": {"number": n, "size": 3, "totalPages": 3}}, first=0
    ),
    "page and has_more": by_page(lambda r, n, f: {"items": r, "page": n, "has_more": bool(f)}),
    "X-Next-Page": by_page(lambda r, _, f: Reply(r, {"X-Next-Page": str(f or "")})),
    "Next-Page": by_page(lambda r, _, f: Reply(r, {"Next-Page": str(f or "")})),
    "X-Pagination": by_page(
        lambda r, n, _: Reply(r, {"X-Pagination": f'{{"CurrentPage": {n}, "TotalPages": 3}}'})
    ),
    "short in the middle": cut_at(SHORT_SECOND, total_pages=3),
    "empty in the middle": empty_in_the_middle,
    "two arrays": linked(lambda r, url: {"items": r, "errors": [], "next": url}),
    "records in an object": by_page(
        lambda r, n, _: {"result": {"records": r, "total": 7}, "page": n}
    ),
    "facets": by_page(
        lambda r, n, _: {"facets": [{"sum": 7}], "results": r, "count": 7, "page": n}
    ),
    "a total in the list's object": by_page(
        lambda r, n, _: {"letters": {"items": r, "page": n, "total": "7"}}
    ),
    "the next offset": by_offset(lambda r, _, n: {"items": r, "offset": n or 7, "total": 7}),
    "the next offset before a refusal": by_offset(
        lambda r, _, n: Reply({"items": r, "offset": n or 7, "total": 7}, {}, 200 if r else 400)
    ),
    "the next offset without a total": by_offset(lambda r, _, n: {"items": r, "offset": n or 7}),
    "the last id": by_offset(lambda r, o, _: {"items": r, "offset": r[-1]["id"] if r else o}),
    "offset as a token": by_token(
        "offset", lambda r, t: {"records": r, **({"offset": t} if t else {})}
    ),
    "next_page object": linked(
        lambda r, url: {"data": r, "next_page": url and {"offset": "e", "path": "/x", "uri": url}}
    ),
    "a total and a link on the first page alone": by_page(
        lambda r, n, f: {"data": r, "next_page": f, "total": 7} if n == 1 else {"data": r}
    ),
}
WITH_A_QUERY: dict[str, tuple[Style, Query]] = {
    "Total": (by_page(lambda r, *_: Reply(r, {"Total": "7"})), {"page": "1"}),
    "X-Total-Count": (by_page(lambda r, *_: Reply(r, {"X-Total-Count": "7"})), {"page": "1"}),
    "X-WP-TotalPages": (by_page(lambda r, *_: Reply(r, {"X-WP-TotalPages": "3"})), {"page": "1"}),
    "Content-Range": (
        by_offset(lambda r, o, _: Reply(r, {"Content-Range": f"items {o}-{o + len(r) - 1}/7"})),
        {"offset": "0", "limit": "3"},
    ),
    "count and limit": (by_offset(lambda r, *_: {"items": r, "count": 7}), {"limit": "3"}),
    "a page in the query": (by_page(lambda r, *_: r), {"page": "1"}),
    "a full last page without a token": (
        by_token("cursor", lambda r, t: {"items": r, "next_cursor": t}),
        {"limit": "1"},
    ),
}


def sorted_by_name(query: Query, address: str) -> Any:
    """Return a page of a search, which has its filter in each request."""
    style = by_token("start_cursor", lambda r, t: {"results": r, "next_cursor": t})
    return style(query, address) if query.get("sort") == "name" else Reply({}, {}, 400)


def by_id(records: list[Any]) -> dict[str, Any]:
    return {f"k{each['id']}": each for each in records}


# The caller names the way.
NAMED: dict[str, tuple[Style, dict[str, Any]]] = {
    "a page": (by_page(lambda r, *_: r), {"page": "page"}),
    "a page from 0": (by_page(lambda r, *_: r, first=0), {"page": "page", "params": {"page": 0}}),
    "a short page before more": (cut_at(SHORT_SECOND, has_more=True), {"page": "page"}),
    "an offset": (by_offset(lambda r, *_: r, "from"), {"offset": "from"}),
    "a dotted cursor": (
        by_token("cursor", lambda r, t: {"data": r, "meta": {"next_cursor": t}}),
        {"cursor": "meta.next_cursor"},
    ),
    "a cursor that is null": (
        lambda *_: {"items": RECORDS, "next_cursor": None},
        {"cursor": "next_cursor"},
    ),
    "a cursor beside a flag": (
        by_token("cursor", lambda r, t: {"data": r, "next_cursor": t or "x", "hasMore": bool(t)}),
        {"cursor": "next_cursor"},
    ),
    "an object of objects": (
        by_page(lambda r, *_: {"result": by_id(r), "took": 5}),
        {"page": "page"},
    ),
    "records by their ids": (by_page(lambda r, *_: by_id(r)), {"page": "page"}),
    "an object of objects by offset": (
        by_offset(lambda r, *_: {"result": by_id(r)}),
        {"offset": "offset", "params": {"limit": "3"}},
    ),
    "arrays of arrays": (
        by_page(
            lambda r, n, _: {"page": n, "list": [[each] for each in r], "more": [[1]][: len(r)]}
        ),
        {"page": "page"},
    ),
    "a list that is not recognised, and the number of its pages": (
        lambda query, _: {
            "list": {"in": {"rows": RECORDS[(int(query.get("page", 1)) - 1) * 3 :][:3]}},
            "paging": {"page": int(query.get("page", 1)), "total_pages": 3},
        },
        {"page": "page", "max_pages": 9},
    ),
    "an end that repeats the last page": (
        lambda query, _: {"result": {"a": {"id": min(int(query.get("page", 1)), 7)}}},
        {"page": "page"},
    ),
    "an end with 404": (
        lambda query, _: Reply(
            {"result": {"a": {"id": int(query.get("page", 1))}}},
            {},
            404 if query.get("page") == "8" else 200,
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


def warned(
    style: Style, message: str, count: int = 3, **query: str
) -> tuple[Style, str, int, Query]:
    return style, message, count, query


WARNED = {
    "a list with a filter": warned(
        by_page(lambda r, *_: {"items": r, "total": 7}),
        r'3 of 7 records.* dm\.pages\("/v1/list\?status=open\+now", page="page"\)',
        status="open now",
    ),
    "total alone": warned(by_page(lambda r, *_: {"items": r, "total": 7}), "3 of 7 records"),
    "X-Total-Count alone": warned(
        by_page(lambda r, *_: Reply(r, {"X-Total-Count": "7"})), "3 of 7 records"
    ),
    "Content-Range alone": warned(
        by_offset(lambda r, *_: Reply(r, {"Content-Range": "0-2/7"})), "3 of 7 records"
    ),
    "has_more alone": warned(
        by_page(lambda r, _, n: {"data": r, "has_more": bool(n)}), "says that there are more"
    ),
    "a token of no kind": warned(lambda *_: {"data": RECORDS, "next": "a8f"}, "are more", 7),
    "a link that is none": warned(lambda *_: {"data": RECORDS, "links": {"next": 2}}, "more", 7),
    "a full page": warned(by_page(lambda r, *_: r), "There may be more", limit="3"),
    "a cursor of its own": warned(
        by_token("token", lambda r, t: {"items": r, "continuationToken": t}),
        'cursor="continuationToken"',
    ),
    "an ignored offset": warned(
        lambda *_: {"items": RECORDS[:3], "total": 7},
        r"3 of 7 records came\. \?offset=3 leads to a page that came before",
        offset="0",
    ),
    "an ignored page of one record": warned(
        lambda *_: [{"id": 1}],
        r"1 record came\. \?page=2 leads to a page that came before",
        1,
        page="1",
    ),
    "an ignored page of equal records": warned(
        lambda *_: [{"s": "queued"}] * 3,
        r"3 records came\. \?page=2 leads to a page that came before",
        page="1",
    ),
    "an ignored token": warned(
        lambda *_: {"items": RECORDS[:3], "next_cursor": "a8f"},
        r'cursor=a8f leads to a page that came before.* cursor=\("next_cursor", "…"\)',
    ),
    "a refused parameter": warned(
        lambda query, _: Reply(
            {"items": RECORDS[:3], "count": 7}, {}, 400 if len(query) > 1 else 200
        ),
        r"3 of 7 records came\. \?offset=3 has status 400",
        limit="3",
    ),
    "records that come twice": warned(
        cut_at([(0, 2), (1, 3)], total=4),
        r"4 records came\. 1 of them came before",
        4,
    ),
    "the next offset of a list that ends early": warned(
        by_offset(lambda r, _, n: {"items": r, "offset": n or None, "total": 9}), "7 of 9 rec", 7
    ),
    "a search engine": warned(
        by_offset(lambda r, *_: {"hits": {"total": {"value": 7}, "hits": r}}), "3 of 7 records"
    ),
    "a total as text": warned(by_page(lambda r, *_: {"items": r, "total": "7"}), "3 of 7 rec"),
    "a total in the list's object": warned(
        by_page(lambda r, *_: {"letters": {"items": r, "total": 7}}), "3 of 7 records"
    ),
    "a total that only the first page says": warned(
        by_page(lambda r, n, f: {"data": r, "next_page": f, "total": 9} if n == 1 else {"data": r}),
        "7 of 9 records came",
        7,
    ),
    "a total beside a list that is not recognised": warned(
        lambda *_: {"result": {"a": {"id": 1}, "b": {"id": 2}}, "total": 7},
        "no list of records came",
        1,
    ),
    "a list that ends early": warned(
        by_page(lambda r, n, _: {"items": r, "page": n, "total": 9}), "7 of 9 records", 7
    ),
    "a bare array of as many records as a page usually has": warned(
        lambda *_: [{"id": number} for number in range(10)],
        r'10 records came\. There may be more: .* dm\.pages\("/v1/list", page="page"\)',
        10,
    ),
    "empty pages without end": warned(
        lambda query, address: {"items": [], "next": f"{address}?n={int(query.get('n', 0)) + 1}"},
        "2 pages without records",
        0,
    ),
}


def last_id(query: Query, _: str) -> Any:
    """Return a page of what comes after an id, as Stripe, EasyPost and Intercom send it."""
    start = int(query.get("starting_after", 0))
    records = RECORDS[start : start + 3]
    return {"object": "list", "data": records, "has_more": start + 3 < len(RECORDS)}


def by_key(query: Query, _: str) -> Any:
    """Return a page of what comes after a record, which has a key and no id."""
    start = int(query.get("after_key", "k0")[1:])
    records = [{"key": f"k{each['id']}", "n": each["id"]} for each in RECORDS[start : start + 3]]
    return {"data": records, "has_more": start + 3 < len(RECORDS)}


def reddit(query: Query, _: str) -> Any:
    page = by_token("after", lambda r, t: {"after": t, "dist": len(r), "children": r})(query, _)
    return {"kind": "Listing", "data": page}


def relay(query: Query, _: str) -> Any:
    return by_token(
        "after",
        lambda r, t: {"nodes": r, "pageInfo": {"endCursor": t or "t6", "hasNextPage": bool(t)}},
    )(query, _)


def mailgun(query: Query, address: str) -> Any:
    """Each page has a link to the next one, without end."""
    start = int(query.get("from_id", 0))
    following = f"{address}?from_id={start + 3}"
    return {"items": RECORDS[start : start + 3], "paging": {"next": following, "first": address}}


def own_count(query: Query, _: str) -> Any:
    """Return a page of Mailjet: its total is the page's own count."""
    start = int(query.get("Offset", 0))
    records = RECORDS[start : start + int(query.get("Limit", 7))]
    return {"Count": len(records), "Data": records, "Total": len(records)}


def campaign_monitor(query: Query, _: str) -> Any:
    page = by_page(lambda r, n, _: {"Results": r, "PageNumber": n, "PageSize": 3})(query, _)
    return {**page, "TotalNumberOfRecords": 7, "NumberOfPages": 3}


def drf(query: Query, address: str) -> Any:
    return linked(lambda r, u: {"count": 7, "next": u, "previous": None, "results": r})(
        query, address
    )


HTML = Reply("<html>", {"Content-Type": "text/html"})
LINKS = [{"rel": "self", "href": "https://api.example.test/lists"}]

# The style of each service, how it is asked, how many records come, what is said, and how many
# requests are sent for the three pages of seven records.
SERVICES: dict[str, tuple[Style, dict[str, Any], int, str, int]] = {
    "Stripe": (last_id, {}, 3, r'are more.* dm\.pages\("/v1/list", after="starting_after"\)', 1),
    "Stripe, by its last id": (last_id, {"after": "starting_after"}, 7, "", 3),
    "Stripe, by a field": (last_id, {"after": ("id", "starting_after")}, 7, "", 3),
    "by a last key": (by_key, {"after": ("key", "after_key")}, 7, "", 3),
    "by a last id of another name": (
        by_key,
        {"after": "after_key"},
        3,
        r"3 records came\. There may be more: the last record has no 'id'.*"
        r'dm\.pages\("/v1/list", after=\("key", "after_key"\)\)',
        1,
    ),
    "Reddit": (reddit, {}, 3, 'cursor="data.after"', 1),
    "Reddit, by its cursor": (reddit, {"cursor": "data.after"}, 7, "", 3),
    "Relay": (relay, {}, 3, 'cursor="pageInfo.endCursor"', 1),
    "Relay, by its cursor": (relay, {"cursor": ("pageInfo.endCursor", "after")}, 7, "", 3),
    "Mailgun": (mailgun, {}, 7, "2 pages without records", 5),
    "Mailjet": (own_count, {}, 7, "", 1),
    "Mailjet with a limit": (own_count, {"params": {"Limit": 3}}, 7, "", 3),
    "Mailchimp": (
        by_offset(lambda r, *_: {"lists": r, "total_items": 7, "_links": LINKS}),
        {},
        3,
        "3 of 7 records",
        1,
    ),
    "Mailchimp by offset": (
        by_offset(lambda r, *_: {"lists": r, "total_items": 7, "_links": LINKS}),
        {"offset": "offset"},
        7,
        "",
        3,
    ),
    "SendGrid": (
        linked(lambda r, url: {"result": r, "_metadata": {"self": "x", "next": url, "count": 7}}),
        {},
        7,
        "",
        3,
    ),
    "Brevo": (
        by_offset(lambda r, *_: {"count": 7, "contacts": r}),
        {"params": {"limit": 3, "offset": 0}},
        7,
        "",
        3,
    ),
    "Klaviyo": (
        linked(lambda r, u: {"data": r, "links": {"self": "x", "next": u, "prev": None}}),
        {},
        7,
        "",
        3,
    ),
    "HubSpot": (
        by_token(
            "after",
            lambda r, t: {"results": r, **({"paging": {"next": {"after": t}}} if t else {})},
        ),
        {},
        7,
        "",
        3,
    ),
    "Lob": (
        linked(
            lambda r, url: {
                "data": r,
                "object": "list",
                "next_url": url,
                "previous_url": None,
                "count": len(r),
            }
        ),
        {},
        7,
        "",
        3,
    ),
    "PostGrid": (
        by_offset(
            lambda r, o, _: {
                "object": "list",
                "limit": 3,
                "skip": o,
                "totalCount": 7,
                "data": r,
            },
            "skip",
        ),
        {},
        7,
        "",
        3,
    ),
    "Postmark": (
        by_offset(lambda r, *_: {"TotalCount": 7, "Messages": r}),
        {"params": {"count": 3, "offset": 0}},
        7,
        "",
        3,
    ),
    "Constant Contact": (
        linked(lambda r, u: {"contacts": r, "_links": {"next": {"href": u}} if u else {}}),
        {},
        7,
        "",
        3,
    ),
    "ActiveCampaign": (
        by_offset(lambda r, *_: {"contacts": r, "meta": {"total": "7"}}),
        {"params": {"limit": 3, "offset": 0}},
        7,
        "",
        3,
    ),
    "Campaign Monitor": (campaign_monitor, {}, 3, r'page="page"', 2),
    "Campaign Monitor by page": (campaign_monitor, {"page": "page"}, 7, "", 3),
    "GitHub": (with_link('rel="next"'), {}, 7, "", 3),
    "Notion": (
        by_token(
            "start_cursor",
            lambda r, t: {"results": r, "next_cursor": t, "has_more": bool(t)},
        ),
        {"cursor": ("next_cursor", "start_cursor")},
        7,
        "",
        3,
    ),
    "DRF": (drf, {}, 7, "", 3),
    "a page that counts from 0": (by_page(lambda r, *_: r, first=0), {"page": "page"}, 7, "", 3),
    "a page that counts from 1": (by_page(lambda r, *_: r), {"page": "page"}, 7, "", 4),
    "a page that says it counts from 0": (
        by_page(lambda r, n, _: {"items": r, "page": n}, first=0),
        {"page": "page"},
        7,
        "",
        3,
    ),
    "a last token that is none": (
        by_token("cursor", lambda r, t: {"items": r, "next_cursor": t or "-1"}),
        {},
        7,
        "",
        3,
    ),
    "a refusal after good pages": (
        by_page(lambda r, n, f: Reply({"items": r, "next_page": f}, {}, 400 if n == 3 else 200)),
        {},
        6,
        r"6 records came\. \?page=3 has status 400",
        3,
    ),
    "an error that has status 200": (
        by_page(lambda r, n, _: {"items": r, "page": n} if n < 3 else {"error": "too deep"}),
        {},
        6,
        r"6 records came\. \?page=3 has no list of records",
        3,
    ),
    "a page of HTML": (
        by_page(
            lambda r, n, _: (
                {"items": r, "page": n} if n < 3 else Reply("<html>", {"Content-Type": "text/html"})
            )
        ),
        {},
        6,
        "has no list of records",
        3,
    ),
    "a filter after the cut": (cut_at(SHORT_SECOND), {}, 4, "", 2),
}


class ListServer(LoopbackServer):
    style: Style

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        super().__init__()

    def response_to(self, request: Request) -> Response:
        self.requests[request.uri] += 1
        url = urlsplit(request.uri)
        content = json.loads(request.body or b"{}")
        query = dict(parse_qsl(url.query)) | {name: str(value) for name, value in content.items()}
        given = self.style(query, f"{self.base_url}{url.path}")
        reply = given if isinstance(given, Reply) else Reply(given)
        headers = tuple(reply.headers.items())
        if isinstance(reply.body, str):
            if "Content-Type" not in reply.headers:
                headers += (("Content-Type", "text/csv"),)
            return Response(200, "OK", headers, reply.body.encode())
        return json_response(reply.status, reply.body, headers)


@pytest.fixture(scope="module")
def server() -> Iterator[ListServer]:
    with ListServer() as opened:
        yield opened


@pytest.fixture
def serve(server: ListServer) -> Iterator[Callable[[Style], str]]:
    """Serve a style in a new session; return the path of its list."""

    def start(style: Style) -> str:
        server.style = style
        server.requests.clear()
        return "/v1/list"

    with dm.connect(server.base_url, "k-0123456789", pace="off", allow_writes=True):
        yield start
    dm.logout()


@pytest.mark.parametrize(
    ("style", "query"),
    [*((style, {}) for style in FOLLOWED.values()), *WITH_A_QUERY.values()],
    ids=[*FOLLOWED, *WITH_A_QUERY],
)
def test_one_frame_has_all_records_of_a_list(serve, server, style, query):
    got = dm.frame(dm.pages(serve(style), params=query))

    assert got["id"].tolist() == IDS
    assert server.requests.total() <= got.attrs["pages"] + 1


@pytest.mark.parametrize(
    ("style", "options", "count", "message", "requests"), SERVICES.values(), ids=SERVICES
)
def test_a_list_of_a_service_is_whole_or_says_what_is_missing(
    serve, server, style, options, count, message, requests
):
    path = serve(style)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = dm.frame(dm.pages(path, **options))

    assert got.get("id", got.get("n")).tolist() == IDS[:count]
    assert [re.search(message, str(each.message)) is not None for each in caught] == [True] * bool(
        message
    )
    assert server.requests.total() == requests


def capped(says: Callable[[int], dict[str, Any]] | None, *, by: str) -> Style:
    """Return a style that sends 50 of 120 records, whatever ``limit`` asks for."""

    def style(query: Query, _: str) -> Any:
        number = int(query.get(by, 1 if by == "page" else 0))
        start = (number - 1) * 50 if by == "page" else number
        records = [{"id": each} for each in range(start, min(start + 50, 120))]
        return {"items": records, **says(len(records))} if says else records

    return style


CAPPED: dict[str, tuple[Style, Query]] = {
    "an array by offset": (capped(None, by="offset"), {"offset": "0", "limit": "100"}),
    "an array by page": (capped(None, by="page"), {"page": "1", "per_page": "100"}),
    "a limit alone": (capped(None, by="offset"), {"limit": "100"}),
    "items": (capped(lambda _: {}, by="offset"), {"offset": "0", "limit": "100"}),
    "its own limit": (capped(lambda _: {"limit": 50}, by="offset"), {"limit": "100"}),
    "the limit asked for": (capped(lambda _: {"limit": 100}, by="offset"), {"offset": "0"}),
    "the count of the page": (
        capped(lambda count: {"count": count, "limit": 100}, by="offset"),
        {"offset": "0", "limit": "100"},
    ),
}


@pytest.mark.parametrize(("style", "query"), CAPPED.values(), ids=CAPPED)
def test_a_page_that_the_service_made_smaller_is_not_the_last(serve, server, style, query):
    """The size of a page is what the first page had, not what was asked for."""
    got = dm.frame(dm.pages(serve(style), params=query))

    assert got["id"].tolist() == [*range(120)]
    assert server.requests.total() == 3


def test_an_offset_that_counts_pages_is_said(serve):
    records = [{"id": each} for each in range(120)]
    path = serve(lambda q, _: records[int(q.get("offset", 0)) * 50 :][:50])
    with pytest.warns(UserWarning, match=r'offset counts pages here.* page="offset"\)'):
        part = dm.frame(dm.pages(path, offset="offset"))
    whole = dm.frame(dm.pages(path, page="offset"))

    assert len(part) == 50
    assert whole["id"].tolist() == [*range(120)]


def test_a_list_of_exactly_one_page_is_whole(serve, server):
    """The page after it is empty, and record 1 came before: the offset counts records."""
    records = [{"id": each} for each in range(50)]
    got = dm.frame(dm.pages(serve(lambda q, _: records[int(q["offset"]) :]), params={"offset": 0}))

    assert len(got) == 50
    assert server.requests.total() == 3


def test_records_that_come_twice_are_known_by_the_field_that_is_unique(serve):
    """Each record of the first page has its own number; ``id`` is that of the campaign."""
    records = [{"id": 1, "number": each} for each in (1, 2, 3, 3, 4, 5)]
    path = serve(lambda q, _: records[(int(q["page"]) - 1) * 3 :][:3])
    with pytest.warns(UserWarning, match=r"6 records came\. 1 of them came before"):
        dm.frame(dm.pages(path, params={"page": 1}))


@pytest.mark.parametrize("status", [500, 429])
def test_the_error_of_a_page_has_those_that_came_and_goes_on_from_there(serve, server, status):
    failing = [status]
    style = by_page(lambda r, n, _: Reply(r, {}, failing[0] if n == 2 else 200))
    path = serve(style)
    with pytest.raises(dm.errors.ServiceError) as caught:
        dm.frame(dm.pages(path, params={"page": 1}))
    error: Any = caught.value
    failing[0] = 200
    got = dm.frame([*error.came, *error.rest])

    assert 'dm.pages("/v1/list?page=2") failed.' in error.__notes__[-1]
    assert "dm.frame([*error.came, *error.rest])" in error.__notes__[-1]
    assert got["id"].tolist() == IDS
    assert server.requests[f"{path}?page=1"] == 1


@pytest.mark.parametrize(("style", "options"), NAMED.values(), ids=NAMED)
def test_the_way_that_the_caller_names_is_followed_to_the_end(serve, style, options):
    path = serve(style)
    for _ in range(2):
        texts = [page.text for page in dm.pages(path, **options)]

        assert "{}" not in texts
        assert len(texts) <= 7
        assert [int(each) for each in re.findall(r'"id": (\d+)', "".join(texts))] == IDS


def test_pages_are_requested_once_and_replayed_at_any_address(serve, server):
    """The recorded bodies contain links to the old address, but paging stays at this one."""
    path = serve(FOLLOWED["next_url"])
    with dm.record("pages"):
        recorded = dm.frame(dm.pages(path))
    with dm.Session("https://api.example.com/eu") as elsewhere:
        elsewhere.replay("pages", repeat="strict")
        played = dm.frame(list(elsewhere.pages(path)))

    assert recorded.attrs["pages"] == 3
    assert played.equals(recorded)
    assert [*server.requests.values()] == [1, 1, 1]


@pytest.mark.parametrize("name", ["next", "next_token", "next_session"])
def test_pages_whose_tokens_were_redacted_replay_to_the_end(serve, name):
    """The name of each is a credential's, so all are replaced, and each page is a new one."""
    tokens = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(3)]

    def style(query: Query, address: str) -> Any:
        number = tokens.index(query["token"]) if "token" in query else 0
        after = tokens[number + 1] if number < 2 else None
        following = f"{address}?token={after}" if name == "next" and after else after
        return {"items": RECORDS[3 * number : 3 * number + 3], name: following}

    path = serve(style)
    options = {} if name == "next" else {"cursor": (name, "token")}
    with dm.record("pages"):
        recorded = dm.frame(dm.pages(path, **options))
    with dm.replay("pages"):
        played = dm.frame(dm.pages(path, **options))

    assert "<REDACTED>" in Path("cassettes/pages.yaml").read_text()
    assert recorded["id"].tolist() == played["id"].tolist() == IDS


def next_until(last: int) -> Callable[[int], dict[str, object]]:
    return lambda n: {"links": {"next": f"/v1/list?page={n + 1}" if n < last else None}}


BY_ZERO: dict[str, Any] = {"page": "n", "params": {"n": 0}}
BY_OFFSET: dict[str, Any] = {"offset": "n", "params": {"n": 10}}
ENDS: list[tuple[object, dict[str, Any], int]] = [
    ({"total": 30}, {}, 3),
    ({"meta": {"total": 25}}, {}, 3),
    ({"meta": {"total_pages": 3}}, {}, 3),
    ({"pagination": {"totalPages": 3}}, {}, 3),
    ({"last_page": 3}, {}, 3),
    ({"meta": {"pagination": {"last_page": 5}}}, {"params": {"n": 3}}, 3),
    ({"total_pages": 1}, {}, 1),
    ({"total": 10, "next": None}, {}, 1),
    ({"total_pages": 3}, BY_ZERO, 3),
    ({"last_page": 2}, BY_ZERO, 3),
    ({"total": 40}, BY_OFFSET, 3),
    (next_until(3), {}, 3),
    (lambda n: {"next": "?n=2"} if n == 1 else {}, {}, 2),
    (lambda n: {"total": 20, **next_until(4)(n)}, {}, 4),
]


@pytest.mark.parametrize(("says", "options", "pages"), ENDS)
def test_a_list_without_an_empty_page_ends_at_its_total_or_last_link(
    serve, server, says, options, pages
):
    def style(query: Query, _: str) -> object:
        number = int(query.get("n", 1))
        said = says(number) if callable(says) else says
        return {"data": [{"id": f"{number}-{each}"} for each in range(10)], **said}

    options = options if "offset" in options else {"page": "n", **options}
    got = list(dm.pages(serve(style), max_pages=9, **options))

    # A first page without a number is page 0 or 1: that takes a request.
    assert len(got) == pages <= server.requests.total() <= pages + ("params" not in options)


WRONG: list[Any] = [
    *({"total": wrong} for wrong in (0, -1, 2.5, True, "3", None, [3], {})),
    *({"total_pages": wrong} for wrong in (0, "one", True, None)),
    {},
    {"links": {"next": None}},
    {"total_pages": 1, "total": 7},
    {"last_page": 1, "next": "?n=2"},
    {"stats": {"total": 3, "total_pages": 1}},
]


@pytest.mark.parametrize("says", WRONG)
def test_no_page_is_skipped_if_the_paging_data_is_wrong(serve, says):
    """A total is ignored if it is malformed, contradicts another number, or is that of the page."""
    path = serve(by_page(lambda r, *_: {"data": r, **(says or {"total": len(r)})}))

    assert dm.frame(dm.pages(path, page="page"))["id"].tolist() == IDS


@pytest.mark.parametrize("says", [{"total": 7}, {"total_pages": 3}, {"next": "?page=3"}])
def test_a_short_page_that_announces_more_is_not_the_last(serve, says):
    """A service may filter records after splitting them into pages."""
    path = serve(cut_at(SHORT_SECOND, **says))

    assert dm.frame(dm.pages(path, page="page"))["id"].tolist() == IDS


def shown_in_terminal(monkeypatch):
    """Return what a terminal shows of a progress: each of its steps."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr("directmail_lab.display._PROGRESS_S", 0.0)
    at_once = functools.partial(Progress, delay_s=0.0)
    monkeypatch.setattr("directmail_lab.sessions.pages.Progress", at_once)
    return shown


def test_the_progress_of_pages_says_how_many_came(serve, monkeypatch):
    """Records are counted, of the total that a page gives."""
    terminal = shown_in_terminal(monkeypatch)
    texts = [terminal.getvalue() for _ in dm.pages(serve(FOLLOWED["next_url"]))]

    assert [re.findall(r": (\d+) ", text)[-1] for text in texts] == ["3", "6", "7"]


def test_the_progress_of_many_counts_each_request(monkeypatch):
    """A replay plays those of one path in turn."""
    terminal = shown_in_terminal(monkeypatch)
    dm.replay("first-look")
    dm.get_many(["/v1/users/me"] * 4 + ["/v1/lists"])

    assert "GET: 5 of 5 requests" in terminal.getvalue()


@pytest.mark.parametrize(
    "style", [FOLLOWED["next_url"], with_link("rel=next")], ids=["body", "header"]
)
def test_a_link_to_another_origin_is_not_followed(serve, server, style):
    """A response must not decide where requests and the key go."""
    path = serve(lambda query, _: style(query, "https://x.test"))
    with pytest.raises(dm.errors.AddressError, match="nothing was sent there"):
        list(dm.pages(path))

    assert server.requests == {path: 1}


def test_a_failed_page_raises_an_error(serve):
    with pytest.raises(dm.errors.ServiceError, match="500"):
        list(dm.pages(serve(lambda *_: Reply({}, {}, 500))))


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
def test_a_cursor_that_no_page_has_is_said(serve, style):
    """Its name may be misspelled, or be that of the parameter."""
    path = serve(style)
    with pytest.warns(UserWarning, match=r"3 records came\. There may be more.*cursor="):
        list(dm.pages(path, cursor="next_cursr"))


def test_csv_has_all_its_pages(serve):
    """The header of a table is no record."""
    path = serve(
        by_page(
            lambda r, *_: Reply(
                "\n".join(["id,name", *(f"{each['id']},n" for each in r)]), {"X-Total-Count": "9"}
            )
        )
    )
    with pytest.warns(UserWarning, match="7 of 9 records"):
        got = dm.frame(dm.pages(path, page="page"))

    assert got["id"].tolist() == [*map(str, IDS)]


def table_of(records: list[Any]) -> str:
    """Return records as CSV in Excel's style: with an address of two lines, below a title."""
    rows = [f'{each["id"]};"{each["name"]}, Main Street 1\nSpringfield"' for each in records]
    return "\r\n".join(["sep=;", "id;address", *rows, ""])


@pytest.mark.parametrize(
    ("style", "options"),
    [
        (by_offset(lambda r, *_: table_of(r)), {"params": {"offset": 0}}),
        (by_page(lambda r, *_: table_of(r)), {"page": "page", "params": {"page": 1}}),
        (lambda q, _: table_of(last_id(q, _)["data"]), {"after": "starting_after"}),
        (by_page(lambda r, *_: Reply(table_of(r), {"X-Total-Count": "7"})), {"page": "page"}),
    ],
    ids=["offset", "page", "last id", "total"],
)
def test_a_row_of_csv_may_have_several_lines(serve, server, style, options):
    got = dm.frame(dm.pages(serve(style), **options))

    assert got["id"].tolist() == [*map(str, IDS)]
    assert "\n" in got["address"][0]
    assert server.requests.total() <= 4


@pytest.mark.parametrize("option", ["page", "offset"])
def test_a_number_in_place_of_a_name_is_an_error(serve, option):
    path = serve(FOLLOWED["next_url"])
    with pytest.raises(ValueError, match=rf'{option}= is the name .*params=\{{"{option}": 2\}}'):
        dm.pages(path, **{option: 2})


@pytest.mark.parametrize(("style", "message", "count", "query"), WARNED.values(), ids=WARNED)
def test_a_list_that_may_not_be_whole_says_so(serve, style, message, count, query):
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
def test_equal_pages_at_different_addresses_are_all_kept(serve, style):
    """Records without an id may well be equal."""
    assert len(dm.frame(dm.pages(serve(style)))) == len(RECORDS)


NAMES = st.sampled_from(
    ["next", "next_page", "links", "meta", "data", "total", "page", "offset", "limit", "rel"]
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
def test_no_page_breaks_the_reading_of_it(body, query, total):
    page = page_with(body, query, {"X-Total-Count": total, "Content-Range": f"0-2/{total}"})
    seen, answer = step(Seen(), page)

    assert isinstance(answer, End | Next)
    assert seen.pages == 1


@pytest.mark.parametrize(
    "body",
    [
        [{"id": number} for number in range(11)],
        {"items": [{"id": number} for number in range(11)], "total": 11},
        {"items": [{"id": number} for number in range(10)], "total": 10, "next": None},
        {"items": [{"id": number} for number in range(10)], "next": None},
        {"items": [{"id": number} for number in range(10)], "limit": 50},
    ],
    ids=["an odd number", "a total", "a total and no link", "no next page", "a larger limit"],
)
def test_a_list_that_seems_whole_gives_no_warning(body):
    """Neither an odd number of records nor a round one with a statement looks like a first page."""
    page = page_with(body, {}, {})

    assert step(Seen(), page)[1] == End()


def test_a_part_that_was_asked_for_is_whole(serve):
    """Neither ``max_pages`` nor a later start is an accident."""
    path = serve(FOLLOWED["offset, limit and total"])
    first = dm.frame(dm.pages(path, max_pages=2))
    rest = dm.frame(dm.pages(path, params={"offset": 4}))

    assert first["id"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rest["id"].tolist() == [5, 6, 7]
