"""Many requests in one call: a list of paths, and the pages of a list."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import re
import signal
import sys
import threading
import time
from collections import Counter
from datetime import date
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pandas as pd
import pytest
from faulty_service import Fault, FaultyService

import directmail_lab as dm
from directmail_lab.display import ProgressBar
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from directmail_lab.server.standin import StandIn

    # The JSON body of the response to a query, or the whole response.
    Answer = Callable[[dict[str, str]], object]
    Lists = Callable[[Answer], Counter[str]]

RECORDS = [{"id": number, "name": f"n{number}"} for number in range(25)]


# -- many paths --------------------------------------------------------------------------------


@pytest.fixture
def items() -> Iterator[StandIn]:
    """A service with a different response for each of thirty paths; one drops the connection."""
    faults = [Fault(path=f"/v1/items/{n:02}", status=200, body=f'{{"n": {n}}}') for n in range(30)]
    faults[7] = Fault(path="/v1/items/07", drop="reset")
    with FaultyService(limit=1000, faults=faults) as service:
        yield service


def session_of(service: StandIn, **options: Any) -> Session:
    return dm.connect(service.base_url, service.api_key, **options)


def numbers(results: list[Any]) -> list[Any]:
    return [r.json()["n"] if isinstance(r, httpx.Response) else type(r) for r in results]


PATHS = [f"/v1/items/{n:02}" for n in range(30)]
EXPECTED = [*range(7), httpx.ReadError, *range(8, 30)]


@pytest.mark.parametrize("concurrency", [1, 8, 100])
def test_results_have_the_order_of_the_paths_and_include_failures(
    items: StandIn, concurrency: int
) -> None:
    """One failed path must not lose the responses of the others. A warning says that it failed."""
    with session_of(items, pace="off"):
        with pytest.warns(
            UserWarning, match=r"^1 of 30 requests failed; the first, \[7\]: .*broke"
        ):
            got = dm.get_many(iter(PATHS), concurrency=concurrency)

        assert dm.get_many([]) == []
    assert numbers(got) == EXPECTED


def test_the_first_of_several_failures_is_named_in_full(items: StandIn) -> None:
    """An error status counts as one, with what the service said, and an error of ours, too."""
    said = r'^2 of 3 requests failed; the first, \[1\]: GET /v1/nowhere responded with 404 .*: "'
    with session_of(items), pytest.warns(UserWarning, match=said) as caught:
        got = dm.get_many(["/v1/users/me", "/v1/nowhere", "https://me:you@x.test/"])

    assert [getattr(each, "status_code", 0) for each in got] == [200, 404, 0]
    assert [each.filename for each in caught] == [__file__]


def test_concurrent_requests_replay_their_own_responses(items: StandIn) -> None:
    """Each place in the list replays its own response, also for a path that occurs twice."""
    paths = ["/v1/users/me", *PATHS[:7], "/v1/users/me", *PATHS[8:], "/v1/users/me"]
    session_of(items)
    with dm.record("many"):
        recorded = dm.get_many(paths)
    with dm.replay("many", repeat="strict"):
        played = dm.get_many(paths)

    def contents(results: list[Any]) -> list[Any]:
        return [(r.text, r.headers["X-RateLimit-Remaining"]) for r in results]

    assert contents(played) == contents(recorded)


@contextlib.contextmanager
def interrupted_after(count: int, session: Session) -> Iterator[None]:
    """Press Ctrl-C once a session has this many responses."""

    pressed = threading.Event()

    def interrupt(_: object) -> None:
        # Compare with >=, because another thread may have added a response meanwhile.
        if len(session.recording) >= count and not pressed.is_set():
            pressed.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # Background jobs of a shell ignore SIGINT, and so would a test that runs in one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    stop = session.on_reading(interrupt)
    yield
    stop()
    signal.signal(signal.SIGINT, before)


needs_ctrl_c = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="a real Ctrl-C")


@needs_ctrl_c
def test_an_interrupt_keeps_the_responses_received_so_far(items: StandIn) -> None:
    """The other results are errors, also for the request in flight, and the session still works."""
    session = session_of(items)
    with (
        items.fault(path="/v1/items/13", latency_s=60.0),
        interrupted_after(5, session),
        pytest.warns(UserWarning, match="of 22 requests failed; .*interrupted"),
    ):
        got = dm.get_many(PATHS[8:], concurrency=1)

    # Whether the fifth was received in time is chance.
    assert numbers(got)[:4] == [8, 9, 10, 11]
    assert numbers(got)[5:] == [dm.DirectMailLabError] * len(PATHS[8 + 5 :])
    assert "interrupted" in str(got[-1])
    assert len(dm.me()) == 1


@needs_ctrl_c
@pytest.mark.parametrize(("pace", "most"), [("burst", 2), ("off", 450)])
def test_after_an_interrupt_nothing_more_is_sent(pace: str, most: int) -> None:
    """Requests that wait for the allowance stop waiting, and no new one starts."""
    with stand_in(limit=2, window_s=1.0, limits={}) as service:
        with (
            interrupted_after(2, session_of(service, pace=pace, retry=False)),
            pytest.warns(UserWarning, match="of 500 requests failed"),
        ):
            got = dm.get_many(["/v1/users/me"] * 500, concurrency=3)
        while any(thread.name.startswith("ThreadPool") for thread in threading.enumerate()):
            time.sleep(0.01)  # a thread that was interrupted while starting cannot be joined

        assert service.requests.total() <= most
        assert [type(each) for each in got].count(dm.DirectMailLabError) >= 50


# -- pages -------------------------------------------------------------------------------------


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lists]:
    """Open a session with a service whose list has the pages that a function returns."""

    def serve(answer: Answer) -> Counter[str]:
        requests: Counter[str] = Counter()

        def respond(request: httpx.Request) -> httpx.Response:
            requests[str(request.url)] += 1
            body = answer(dict(request.url.params))
            response = body if isinstance(body, httpx.Response) else httpx.Response(200, json=body)
            for name in ("Limit", "Remaining", "Reset"):
                response.headers[f"X-RateLimit-{name}"] = "300"
            # As from the network: a session records a response when its body has been read.
            return httpx.Response(
                response.status_code,
                headers=response.headers,
                stream=httpx.ByteStream(response.content),
            )

        network = httpx.MockTransport(respond)
        monkeypatch.setattr(httpx, "HTTPTransport", lambda **_: network)
        dm.connect(ADDRESS, "k-0123456789")
        return requests

    yield serve
    dm.logout()


ADDRESS = "https://lists.example.com"


def page(number: int) -> list[Any]:
    return RECORDS[(number - 1) * 10 : number * 10]


def numbered(parameter: str, body: Callable[[list[Any], int, int | None], object]) -> Answer:
    """Return a function that serves three pages: ``body(records, number, next number or None)``."""

    def answer(query: dict[str, str]) -> object:
        number = int(query.get(parameter, 1))
        return body(page(number), number, number + 1 if number < 3 else None)

    return answer


def linked(records: list[Any], _: int, following: int | None) -> httpx.Response:
    link = {"Link": f'</v1/lists?p={following}>; rel="next"'} if following else {}
    return httpx.Response(200, json=records, headers=link)


def with_next(link: Callable[[int | None], object]) -> Answer:
    """Return a function that serves three pages, with ``link`` of the next number in each."""
    return numbered("p", lambda records, _, following: {"items": records, "next": link(following)})


PLAIN: dict[str, Answer] = {
    "Link header": numbered("p", linked),
    "relative": with_next(lambda n: n and f"lists?p={n}"),
    "absolute": with_next(lambda n: n and f"{ADDRESS}/v1/lists?p={n}"),
    "HAL": with_next(lambda n: {"href": f"/v1/lists?p={n}"} if n else {}),
    "in an object data": numbered(
        "p", lambda r, _, n: {"data": {"items": r, "next": n and f"?p={n}"}}
    ),
}


@pytest.mark.parametrize("answer", PLAIN.values(), ids=PLAIN)
def test_paging_follows_the_next_page_that_the_service_names(lists: Lists, answer: Answer) -> None:
    """One frame has all pages, live and replayed, and each page was requested once."""
    requests = lists(answer)
    with dm.record("pages"):
        recorded = dm.frame(dm.pages("/v1/lists"))
    with dm.replay("pages", repeat="strict"):
        played = dm.frame(list(dm.pages("/v1/lists")))

    assert recorded["id"].tolist() == [each["id"] for each in RECORDS]
    assert recorded.attrs["pages"] == 3
    assert played.equals(recorded)
    assert set(requests.values()) == {1}


def ends_with_404(query: dict[str, str]) -> object:
    number = int(query["page"])
    return page(number) if number < 3 else httpx.Response(404, json={"detail": "Invalid page."})


def short_in_the_middle(query: dict[str, str]) -> object:
    start, end = ((0, 10), (10, 13), (13, 19))[int(query["page"]) - 1]
    return {"data": RECORDS[start:end], "has_more": end < 19}


BY_PAGE: Answer = lambda query: page(int(query.get("page", 1)))  # noqa: E731
CURSOR = numbered(
    "cursor", lambda r, _, n: {"data": r, "meta": {"next_cursor": str(n) if n else ""}}
)
TOKEN = numbered("pageToken", lambda r, _, n: {"items": r, "nextPageToken": n})
FLAG = numbered("cursor", lambda r, n, _: {"data": r, "next_cursor": str(n + 1), "hasMore": n < 2})


@pytest.mark.parametrize(
    ("answer", "options", "count"),
    [
        (BY_PAGE, {"page": "page"}, 25),
        (BY_PAGE, {"page": "page", "max_pages": 2}, 20),
        (lambda query: page(int(query["n"]) + 1), {"page": "n", "params": {"n": 0}}, 25),
        (lambda query: RECORDS[int(query["from"]) :][:7], {"offset": "from"}, 25),
        (lambda query: RECORDS[int(query["o"]) :][:7], {"offset": "o", "params": {"o": 20}}, 5),
        (ends_with_404, {"page": "page"}, 20),
        (short_in_the_middle, {"page": "page"}, 19),
        (CURSOR, {"cursor": "meta.next_cursor"}, 25),
        (TOKEN, {"cursor": "nextPageToken"}, 25),
        (FLAG, {"cursor": "next_cursor"}, 20),
        (numbered("p", lambda r, number, _: {"data": r, "next": f"?p={number % 3 + 1}"}), {}, 25),
    ],
)
def test_paging_follows_the_callers_options_and_ends(
    lists: Lists, answer: Answer, options: dict[str, Any], count: int
) -> None:
    """Paging stops at a short, an empty or a repeated page, at the last link, or at a limit."""
    requests = lists(answer)
    frame = dm.frame(dm.pages("/v1/lists", **options))

    assert len(frame) == count
    assert len(set(frame["id"])) == count
    assert requests.total() <= 5


def next_until(last: int) -> Callable[[int], dict[str, object]]:
    return lambda n: {"links": {"next": f"/v1/lists?page={n + 1}" if n < last else None}}


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
    lists: Lists, says: object, options: dict[str, Any], pages: int
) -> None:
    """A total of records or pages shows the end, or a page without a link to the next one."""

    def answer(query: dict[str, str]) -> object:
        number = int(query["n"])
        said = says(number) if callable(says) else says
        return {"data": [{"id": f"{number}-{each}"} for each in range(10)], **said}

    requests = lists(answer)
    options = options if "offset" in options else {"page": "n", **options}
    got = list(dm.pages("/v1/lists", max_pages=9, **options))

    assert len(got) == requests.total() == pages


WRONG: list[object] = [
    *({"total": wrong} for wrong in (0, -1, 2.5, True, "10", None, [10], {})),
    *({"total_pages": wrong} for wrong in (0, "1", True, None)),
    lambda records: {"total": len(records)},  # the number of records on this page
    {"links": {"next": None}},
    {"total_pages": 1, "total": 25},
    {"last_page": 1, "next": "?n=2"},
    {"stats": {"total": 10, "total_pages": 1}},
]


@pytest.mark.parametrize("says", WRONG)
def test_no_page_is_skipped_if_the_paging_data_is_wrong(lists: Lists, says: object) -> None:
    """A total is ignored if it is malformed or contradicts another number."""

    def answer(query: dict[str, str]) -> object:
        records = page(int(query["page"]))
        return {"data": records, **(says(records) if callable(says) else says)}

    lists(answer)

    assert len(dm.frame(dm.pages("/v1/lists", page="page"))) == len(RECORDS)


@pytest.mark.parametrize("says", [{"total": 25}, {"total_pages": 3}, {"next": "?page=3"}])
def test_a_short_page_that_announces_more_is_not_the_last(
    lists: Lists, says: dict[str, object]
) -> None:
    """A service may filter records after splitting them into pages."""
    cuts = {1: (0, 10), 2: (10, 17), 3: (17, 25)}
    lists(lambda query: {"data": RECORDS[slice(*cuts.get(int(query["page"]), (25, 25)))], **says})

    assert len(dm.frame(dm.pages("/v1/lists", page="page"))) == len(RECORDS)


def test_the_progress_bar_of_pages_says_how_many_came(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total is unknown, so the bar counts each page as it arrives."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    at_once = functools.partial(ProgressBar, delay_s=0.0, mininterval=0, miniters=1)
    monkeypatch.setattr("directmail_lab.sessions.pages.ProgressBar", at_once)
    lists(BY_PAGE)
    texts = [terminal.getvalue() for _ in dm.pages("/v1/lists", page="page")]

    assert [re.findall(r"Pages: (\d+)", text)[-1] for text in texts] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, json=RECORDS, headers={"Link": '<https://x.test/?p=2>; rel="next"'}),
        httpx.Response(200, json={"data": RECORDS, "next": "https://x.test/?p=2"}),
    ],
    ids=["header", "body"],
)
def test_a_link_to_another_origin_is_not_followed(lists: Lists, response: httpx.Response) -> None:
    """A response must not decide where requests and the key go."""
    requests = lists(lambda _: response)
    with pytest.raises(dm.errors.AddressError, match="nothing was sent there"):
        list(dm.pages("/v1/lists"))

    assert set(requests) == {f"{ADDRESS}/v1/lists"}


def test_paging_a_replay_stays_at_the_address_of_the_session(lists: Lists) -> None:
    """The recorded bodies contain links to the old address, but paging stays at this one."""
    lists(PLAIN["absolute"])
    with dm.record("pages"):
        list(dm.pages("/v1/lists"))
    with Session("https://api.example.com/eu") as elsewhere, elsewhere.replay("pages"):
        assert len(dm.frame(elsewhere.pages("/v1/lists"))) == len(RECORDS)


def test_a_failed_page_raises_an_error(service: FaultyService) -> None:
    """A failed page must not look like the end of the list."""
    session_of(service, pace="off", retry=False)
    with service.fault(status=500), pytest.raises(dm.errors.ServiceError, match="500"):
        list(dm.pages("/v1/lists"))


@pytest.mark.parametrize("says", [{"has_more": True}, {"next": "a8f"}, {"links": {"next": 2}}])
def test_a_list_whose_next_page_is_not_found_warns(lists: Lists, says: dict[str, object]) -> None:
    """The service says that there is more, but not in a form that is understood."""
    lists(lambda _: {"data": RECORDS[:10], **says})
    with pytest.warns(UserWarning, match="there are more") as caught:
        assert len(list(dm.pages("/v1/lists"))) == 1

    assert caught[0].filename == __file__


# -- rows of a frame as requests ---------------------------------------------------------------


def test_a_row_of_a_table_is_sent_as_json(account: FaultyService) -> None:
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


@pytest.mark.parametrize("value", [math.nan, pd.NA, pd.NaT, [1, math.nan], np.float64("nan")])
def test_a_missing_value_in_a_query_is_refused_by_name(account: FaultyService, value: Any) -> None:
    """``zip=nan`` would find nothing, and without it, everything."""
    dm.connect(account.base_url, account.api_key)
    with pytest.raises(ValueError, match=r"the parameter 'zip' is .*leave it out"):
        dm.get("/v1/lists", params={"zip": value, "page": np.int64(2)})

    assert account.requests.total() == 0


def test_numbers_of_numpy_in_a_query_are_plain(account: FaultyService) -> None:
    """Nothing else of a query changes."""
    dm.connect(account.base_url, account.api_key)
    params = {"page": np.int64(2), "sort": ["a", "b"], "q": None, "is": True}
    sent = dm.get("/v1/lists", params=params).request

    assert sent.url.query == b"page=2&sort=a&sort=b&q=&is=true"
