"""Many requests in one call: any number of paths, and the pages of a list."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

import directmail_lab as dm
from directmail_lab.credentials import ApiKey
from directmail_lab.sessions import Session
from directmail_lab.standin import Fault, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from directmail_lab.standin import StandIn

    Answer = Callable[[dict[str, str]], tuple[object, dict[str, str]]]

RECORDS = [{"id": number, "name": f"n{number}"} for number in range(25)]


# -- many paths ----------------------------------------------------------------------------------


@pytest.fixture
def items() -> Iterator[StandIn]:
    """A service that answers each of thirty paths differently, one of them by no answer."""
    faults = [Fault(path=f"/v1/items/{n:02}", body=f'{{"n": {n}}}') for n in range(30)]
    faults[7] = Fault(path="/v1/items/07", drop="reset")
    with stand_in(limit=1000, faults=faults) as service:
        yield service


def session_of(service: StandIn, **options: Any) -> Session:
    return Session(service.base_url, ApiKey(service.api_key), **options)


def numbers(results: list[Any]) -> list[Any]:
    return [r.json()["n"] if isinstance(r, httpx.Response) else type(r) for r in results]


PATHS = [f"/v1/items/{n:02}" for n in range(30)]
EXPECTED = [*range(7), httpx.ReadError, *range(8, 30)]


@pytest.mark.parametrize("concurrency", [1, 8, 100])
def test_results_come_in_the_order_of_the_paths_and_a_failure_is_a_value(
    items: StandIn, concurrency: int
) -> None:
    """One path that fails loses no other; the asynchronous call gives the same."""
    with session_of(items, pace="off") as session:
        got = session.get_many(PATHS, concurrency=concurrency)
        again = asyncio.run(session.get_many_async(iter(PATHS), concurrency=concurrency))

    assert numbers(got) == numbers(again) == EXPECTED
    assert session.get_many([]) == []


def test_what_was_asked_for_at_once_replays(items: StandIn) -> None:
    """Each place has the same answer in a replay, where a path stands more than once too."""
    paths = ["/v1/users/me", *PATHS[:7], "/v1/users/me", *PATHS[8:], "/v1/users/me"]
    with session_of(items) as session:
        with session.record("many"):
            recorded = session.get_many(paths)
        with session.replay("many", repeat="strict"):
            played = session.get_many(paths)

    def told(results: list[Any]) -> list[Any]:
        return [(r.text, r.headers["X-RateLimit-Remaining"]) for r in results]

    assert told(played) == told(recorded)
    assert session.rate_limits()["source"].value_counts().to_dict() == {
        "recorded": len(paths),
        "replayed": len(paths),
    }


def test_many_are_paced() -> None:
    """More than a window's allowance at once: none is refused, none fails."""
    with (
        stand_in(limit=10, window_s=0.5, reset_unit="milliseconds_left") as service,
        session_of(service, reset_unit="milliseconds_left") as session,
    ):
        got = session.get_many(["/v1/users/me"] * 25)

    assert [response.status_code for response in got if isinstance(response, httpx.Response)] == (
        [200] * 25
    )
    assert service.requests.total() == 25


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs a real Ctrl-C")
def test_an_interrupt_keeps_what_came(items: StandIn) -> None:
    """The others, one that is out included, have an error in their place; the session goes on."""
    with items.fault(path="/v1/items/13", latency_s=60.0), session_of(items) as session:

        def interrupt(_: object) -> None:
            if len(session.readings) == 5:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        stop = session.on_reading(interrupt)
        got = session.get_many(PATHS[8:], concurrency=1)
        stop()

        # Whether the fifth was read in time is chance.
        assert numbers(got)[:4] == [8, 9, 10, 11]
        assert numbers(got)[5:] == [dm.DirectMailLabError] * 17
        assert "interrupted" in str(got[-1])
        assert len(session.me()) == 1


def test_what_would_send_nothing_is_refused(live: Session) -> None:
    """One text is no list of paths."""
    with pytest.raises(ValueError, match=r"get\('/v1/lists'\)"):
        live.get_many("/v1/lists")
    with pytest.raises(ValueError, match="1 or more"):
        live.get_many(["/v1/lists"], concurrency=0)


# -- pages ---------------------------------------------------------------------------------------


class Lists:
    """A service on loopback whose list is paged as ``answer`` says, of a query."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[str] = []
        lists = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                lists.asked.append(self.path)
                body, headers = answer(dict(parse_qsl(urlsplit(self.path).query)))
                data = json.dumps(body).encode()
                self.send_response(int(headers.pop("status", 200)))
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                for name in ("Limit", "Remaining", "Reset"):
                    self.send_header(f"X-RateLimit-{name}", "300")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def __enter__(self) -> Lists:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def page(query: dict[str, str], name: str = "page", first: int = 1, size: int = 10) -> list[Any]:
    start = (int(query.get(name, first)) - first) * size
    return RECORDS[start : start + size]


def by_link(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("p", 1))
    link = {"Link": f'</v1/lists?p={number + 1}>; rel="next"'} if number < 3 else {}
    return page(query, "p"), link


def by_next(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("p", 1))
    told = f"?p={number + 1}" if number < 3 else None
    return {"items": page(query, "p"), "links": {"next": told}}, {}


def by_hal(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("p", 1))
    links = {"next": {"href": f"/v1/lists?p={number + 1}"}} if number < 3 else {}
    return {"items": page(query, "p"), "_links": links, "page": number}, {}


def by_cursor(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("cursor", "1"))
    told = str(number + 1) if number < 3 else ""
    return {"data": page({"p": str(number)}, "p"), "meta": {"next_cursor": told}}, {}


def by_echoed_page(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("page", 1))
    return {"data": page(query), "current_page": number, "last_page": 3}, {}


def by_page_from_0(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    return {"data": page(query, first=0), "page": int(query.get("page", 0))}, {}


def by_offset(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    start = int(query.get("offset", 0))
    return {"results": RECORDS[start : start + 10], "offset": start, "limit": 10}, {}


def by_flag(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    number = int(query.get("cursor", "1"))
    return {
        "data": page({"p": str(number)}, "p"),
        "next_cursor": str(number + 1),
        "has_more": number < 3,
    }, {}


def with_404_at_the_end(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    found = page(query) if query["page"] in "12" else []
    return (found, {}) if found else ({"detail": "Invalid page."}, {"status": "404"})


@pytest.mark.parametrize(
    "answer",
    [by_link, by_next, by_hal, by_cursor, by_echoed_page, by_page_from_0, by_offset, by_flag],
)
def test_what_is_plain_is_found(answer: Answer) -> None:
    """All pages in one frame, live and in a replay; none is asked for twice."""
    with Lists(answer) as lists, Session(lists.base_url, ApiKey("k-0123456789")) as session:
        with session.record("pages"):
            recorded = dm.frame(session.pages("/v1/lists"))
        asked = Counter(lists.asked)
        with session.replay("pages", repeat="strict"):
            played = dm.frame(session.pages("/v1/lists"))

    assert recorded["id"].tolist() == list(range(25))
    assert recorded.attrs["pages"] == 3
    assert played.equals(recorded)
    assert max(asked.values()) == 1
    assert Counter(lists.asked) == asked


def plain(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    return page(query), {}


def from_0(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    return page(query, "n", 0), {}


def by_sevens(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    return RECORDS[int(query["from"]) :][:7], {}


def always(body: object) -> Answer:
    return lambda _: (body, {})


def oddly(query: dict[str, str]) -> tuple[object, dict[str, str]]:
    following = int(query.get("t", 1)) + 1
    told = {"x": {"y": following}, "z": f"?t={following}"}
    return {"a": page(query, "t"), "b": [], **told}, {}


@pytest.mark.parametrize(
    ("answer", "options", "count"),
    [
        (plain, {}, 10),
        (plain, {"params": {"page": 1}}, 25),
        (plain, {"by": "page"}, 25),
        (plain, {"by": "page", "max_pages": 2}, 20),
        (from_0, {"by": "page", "params": {"n": 0}, "parameter": "n"}, 25),
        (by_sevens, {"by": "offset", "parameter": "from"}, 25),
        (with_404_at_the_end, {"by": "page"}, 20),
        (always(RECORDS[:10]), {"by": "page"}, 10),
        (always([]), {"by": "page"}, 0),
        (always({"results": RECORDS[:10], "next": None, "page": 1}), {}, 10),
        (oddly, {"by": "cursor", "next_at": "x.y", "parameter": "t", "record_path": "a"}, 25),
        (oddly, {"by": "next", "next_at": "z", "record_path": "a"}, 25),
    ],
)
def test_pages_are_as_the_caller_says_and_end(
    answer: Answer, options: dict[str, Any], count: int
) -> None:
    """By what is named; they stop at a short, an empty and a repeated page, and at max_pages."""
    with Lists(answer) as lists, Session(lists.base_url, ApiKey("k-0123456789")) as session:
        pages = session.pages("/v1/lists", **options)
        got = dm.frame(pages, record_path=options.get("record_path", "auto"))

    assert len(got) == count
    assert got.get("id", got.iloc[:, :0]).tolist() == list(range(count)) if count else got.empty
    assert len(lists.asked) <= 5


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_link_to_another_origin_is_not_followed(where: str, service: StandIn) -> None:
    """The key, or a request at all, never goes where a body says."""
    elsewhere = f"{service.base_url}/v1/lists?page=2"
    answers = {
        "header": (RECORDS, {"Link": f'<{elsewhere}>; rel="next"'}),
        "body": ({"data": RECORDS, "next": elsewhere}, {}),
    }
    with (
        Lists(lambda _: answers[where]) as lists,  # type: ignore[arg-type,return-value]
        Session(lists.base_url, ApiKey("k-0123456789")) as session,
        pytest.raises(dm.InsecureAddressError, match="nothing was sent there"),
    ):
        list(session.pages("/v1/lists"))

    assert service.requests.total() == 0


def test_a_recording_of_another_address_is_paged_at_this_one() -> None:
    """What its bodies call the next page is the recording's address, and is played at ours."""

    def answer(query: dict[str, str]) -> tuple[object, dict[str, str]]:
        number = int(query.get("p", 1))
        told = f"{lists.base_url}/v1/lists?p={number + 1}" if number < 3 else None
        return {"items": page(query, "p"), "next": told}, {}

    with (
        Lists(answer) as lists,
        Session(lists.base_url, ApiKey("k-0123456789")) as session,
        session.record("pages"),
    ):
        list(session.pages("/v1/lists"))
    with Session("https://api.example.com/eu") as elsewhere, elsewhere.replay("pages"):
        assert len(dm.frame(elsewhere.pages("/v1/lists"))) == 25


def test_what_is_no_list_is_one_page(live: Session) -> None:
    """A record that holds an array is not taken for a page of its elements."""
    assert dm.frame(live.pages("/v1/users/me")).loc[0, "name"] == "Stand-in User"


def test_an_error_is_no_page(service: StandIn, unpaced: Session) -> None:
    """Its status is raised, not taken for the end."""
    with service.fault(status=500), pytest.raises(dm.ServiceError, match="500"):
        list(unpaced.pages("/v1/lists"))


@pytest.mark.parametrize("options", [{"by": "number"}, {"max_pages": 0}])
def test_what_pages_do_not_take_is_refused_at_once(
    service: StandIn, live: Session, options: dict[str, Any]
) -> None:
    """Before the first page is asked for."""
    with pytest.raises(ValueError, match=next(iter(options))):
        live.pages("/v1/lists", **options)

    assert service.requests.total() == 0


def test_more_pages_than_are_asked_for_unasked_are_told(
    live: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that is cut short by itself says so."""
    monkeypatch.setattr("directmail_lab.bulk._MOST_PAGES", 2)
    with (
        Lists(lambda query: (page(query), {})) as lists,
        Session(lists.base_url, ApiKey("k-0123456789")) as session,
        pytest.warns(UserWarning, match="more than 2 pages"),
    ):
        assert len(dm.frame(session.pages("/v1/lists", by="page"))) == 20
