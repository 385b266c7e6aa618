"""Many requests in one call: `get_many` for any number of paths, `pages` for a paginated list."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from json import dumps, loads
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..arguments import argument_error, check_number
from ..display import ProgressBar, plural
from ..errors import AddressError, DirectMailLabError
from ..exchange.bodies import plain_json
from ..exchange.httpx_values import httpx, parse_url
from ..exchange.next_page import Next, Page, PageList, page_of, uncertain_token
from ..settings import origin_of
from ..tracebacks import hide_frames, is_deliberate, warn_caller, without_traceback
from .current import session
from .transports.extensions import EXTENSION, Call, received_of
from .transports.writes import IF_SENT

if TYPE_CHECKING:
    from .session import Session

Result = httpx.Response | Exception

_MOST_PAGES = 1_000
_MOST_EMPTY_PAGES = 25
_CAME = "{desc}: {n_fmt} [{elapsed}]"
_NAME_THE_WAY = 'page="page") or pages(…, offset="offset"'
_INTERRUPTED = "There is no response: get_many() was interrupted. Request this path again."


def get_many(paths: Iterable[str], *, concurrency: int = 8) -> list[Result]:
    """Send a GET request to each path, several at a time.

    A progress bar appears after one second. If you interrupt the call, it sends
    nothing more and returns the responses so far. With a cassette, requests for
    the same path are sent one after the other, so that a replay gives each of
    them the response that was recorded for it.

    Parameters
    ----------
    paths
        Paths below the base address, with a query if you like:
        ``"/v1/lists?page=2"``.
    concurrency
        How many requests may wait for their responses at the same time.

    Returns
    -------
    list of httpx.Response or Exception
        One for each path, in the same order: the response, whatever its status,
        or the error if there was none. An error for one path does not stop the
        others.

    Raises
    ------
    ValueError
        ``concurrency`` is less than 1, or ``paths`` is a single string. Nothing
        is sent.

    Examples
    --------
    >>> dm.replay("explore-an-unknown-api")
    Replaying cassette 'explore-an-unknown-api' (69 interactions, ...)
    >>> dm.get_many(["/v1/lists", "/v1/nowhere"])
    [<Response [200 OK]>, <Response [404 Not Found]>]
    """
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        raise argument_error("get_many() takes a list of paths.")
    check_number("concurrency", concurrency, least=1)
    opened = session()
    paths = list(paths)
    results: list[Result] = [DirectMailLabError(_INTERRUPTED) for _ in paths]
    # Positions in the paths, in groups whose requests are sent one after the other.
    groups: dict[str | int, list[int]] = {}
    for position, path in enumerate(paths):
        group = position if opened._open_cassette is None else path
        groups.setdefault(group, []).append(position)
    # All threads take from one iterator, so each group goes to exactly one of them.
    work = iter(list(groups.values()))
    done = SimpleQueue[None]()
    over = threading.Event()

    def send_each() -> None:
        for position in chain.from_iterable(work):
            if over.is_set():
                return
            extensions = {EXTENSION: Call(cancelled=over)}
            try:
                results[position] = opened.client.get(paths[position], extensions=extensions)
            except Exception as error:
                results[position] = without_traceback(error) if is_deliberate(error) else error
            done.put(None)

    try:
        with ProgressBar(len(paths), desc="GET", unit="request") as bar:
            for _ in range(min(concurrency, len(groups))):
                threading.Thread(target=send_each, daemon=True).start()
            for _ in paths:
                _wait_for(done)
                bar.update()
    except KeyboardInterrupt:
        over.set()
    return results.copy()  # a thread may still change `results` after an interrupt


def _wait_for(done: SimpleQueue[None]) -> None:
    """Wait for an item. On Windows before Python 3.14, Ctrl-C ends no wait without a timeout."""
    while True:
        with suppress(Empty):
            return done.get(timeout=0.2)


def pages(
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    page: str | None = None,
    offset: str | None = None,
    cursor: str | tuple[str, str] | None = None,
    max_pages: int | None = None,
    method: str = "GET",
    json: Mapping[str, Any] | None = None,
) -> Iterator[httpx.Response]:
    """Request the pages of a list, one after the other, at the session's pace.

    By default, each page says how to request the next one: by an address (the
    header ``Link``, ``next_url``, ``links.next``), by a token (``next_cursor``
    is the value of the parameter ``cursor``), or by a number of records or
    pages (``total``, ``X-Total-Count``) beside the ``page``, ``offset`` or
    ``limit`` of the body or the query. If it says so in another way, give
    ``page``, ``offset`` or ``cursor``. A warning such as ``3 of 7 records``
    says that the list may not be whole. There is one, too, if a first page says
    nothing of others, and has 10, 15, 20, 25, 30, 50, 100, … records.
    ``frame(pages(…))`` is one frame of all records.

    Parameters
    ----------
    path
        The path below the base address.
    params
        The query of the first request: page size and start, such as
        ``{"limit": 100, "page": 0}``.
    page
        The name of the query parameter for the page number. It starts at its
        value in ``params``, or at 1. As long as a total, a flag or the link to
        the next page announces more, the list goes on. Without any, it ends
        after a page with fewer records than the first. It also ends before an
        empty page, an earlier page or a 404: only so, if the list in the pages
        is not recognised.
    offset
        The name of the query parameter for the number of the first record. It
        starts at its value in ``params``, or at 0. The list ends as with
        ``page``.
    cursor
        The name or dotted path of the next page's token in the body:
        ``"next_cursor"`` or ``"meta.next_cursor"``. The query parameter has the
        same name without ``next``: ``cursor``. If it has another one, give
        both: ``("next_cursor", "start_cursor")``.
    max_pages
        How many pages to request at most. By default 1,000, with a warning if
        there are more.
    method, json
        For a search by POST: ``method="POST", json={"filter": …}``. Then the
        place is a member of this object, instead of a parameter. Writes must be
        allowed. A search is sent again whenever you ask for it.

    Yields
    ------
    httpx.Response
        A page. An empty page is left out, unless it is the first.

    Raises
    ------
    ServiceError
        The service responded with an error status.
    AddressError
        The link to the next page leads to another server. Nothing is sent
        there.
    ValueError
        More than one of ``page``, ``offset`` and ``cursor`` is given, one of
        them is no name, or ``max_pages`` is less than 1. Nothing is sent.

    Examples
    --------
    >>> dm.replay("explore-an-unknown-api")
    Replaying cassette 'explore-an-unknown-api' (69 interactions, ...)
    >>> for page in dm.pages("/v1/lists"):
    ...     print(len(page.json()), "lists")
    3 lists
    >>> dm.frame(dm.pages("/v1/lists"))["addresses"].sum().item()
    168
    """
    if [page, offset, cursor].count(None) < 2:
        raise argument_error("pages() takes only one of page=, offset= and cursor=.")
    for name, value in (("page", page), ("offset", offset)):
        if value is not None and not isinstance(value, str):
            raise argument_error(
                f'{name}= is the name of a parameter, such as pages(…, {name}="{name}"). '
                f'To start elsewhere: params={{"{name}": {value!r}}}.'
            )
    check_number("max_pages", 1 if max_pages is None else max_pages, least=1)
    member, parameter = cursor if isinstance(cursor, tuple) else (cursor, None)
    pager = _Pager(session(), method, PageList(page, offset, member, parameter))
    url = pager.session.client.build_request("GET", path, params=params).url
    start = (url, "" if json is None else dumps(plain_json(json)))
    counter = page or offset
    if counter and counter not in _query(start):
        start = _moved(start, counter, 1 if page else 0)
    pager.place = start
    return Pages(pager, max_pages)


class Pages(Iterator[httpx.Response]):
    """The pages of a list. Each is requested when it is asked for, and is yielded once."""

    def __init__(self, pager: _Pager, max_pages: int | None) -> None:
        self._title = pager.title
        self._pages = _pages(pager, max_pages)

    def __next__(self) -> httpx.Response:
        return next(self._pages)

    def __repr__(self) -> str:
        return (
            f"<Pages of {self._title}: each is requested when a loop asks for it. "
            "frame(pages(…)) makes one frame of them all.>"
        )


def _pages(pager: _Pager, max_pages: int | None) -> Iterator[httpx.Response]:
    with ProgressBar(None, desc="Pages", bar_format=_CAME) as bar:
        for _ in range(max_pages or _MOST_PAGES):
            response = pager.next_page()
            if response is None:
                return
            bar.update()
            yield response
    if max_pages is None and pager.place is not None:
        warn_caller(f"Stopped after {_MOST_PAGES} pages. For more: pages(…, max_pages=…).")


Place = tuple[httpx.URL, str]
"""What leads to a page: an address, and the JSON of a search by POST, or an empty text."""


def _query(place: Place) -> dict[str, str]:
    """Return the parameters of a page: those of its address and of its JSON."""
    url, content = place
    found = {name: str(value) for name, value in loads(content or "{}").items()}
    return dict(url.params) | found


def _moved(place: Place, parameter: str, value: object) -> Place:
    """Return the place with another value of a parameter."""
    url, content = place
    if content:
        return url, dumps({**loads(content), parameter: value})
    return url.copy_set_param(parameter, value), ""


class _Pager:
    """Requests one page after the other. ``place`` is the next page's; None after the last."""

    def __init__(self, opened: Session, method: str, pages: PageList) -> None:
        self.session = opened
        self.method = method
        self.place: Place | None = None
        self._pages = pages
        self._requested: set[Place] = set()
        # Why records may be missing, and what to do.
        self._problem = ""
        self._advice = ""

    @hide_frames  # the locals contain bodies
    def next_page(self) -> httpx.Response | None:
        """Return the next page that has records, or a first one without; None after the last."""
        for _ in range(_MOST_EMPTY_PAGES):
            is_first = not self._requested
            place = self.place
            if place is None or place in self._requested:
                self._warn_if_incomplete()
                return None
            self._requested.add(place)
            response = self._sent(place)
            page = self._read(place, response)
            self.place = None if page is None else self._next_place(place, page)
            if page is not None and (is_first or page.content or page.records is None):
                return response
        self.place = None
        self._problem = f"{_MOST_EMPTY_PAGES} pages without records came one after the other."
        self._warn_if_incomplete()
        return None

    def _sent(self, place: Place) -> httpx.Response:
        url, content = place
        options: dict[str, Any] = {"json": loads(content)} if content else {}
        # A page is read, also by POST: whoever runs a cell again searches again.
        return self.session.client.request(
            self.method, url, extensions={IF_SENT: "send"}, **options
        )

    def _read(self, place: Place, response: httpx.Response) -> Page | None:
        """Return a page; None if a number that was counted led to no page, or to an earlier one."""
        pages = self._pages
        asked = pages.asked
        parameter = f"?{asked.parameter}={asked.value}" if asked and asked.parameter else ""
        after_the_last = [404]
        if not pages.page and not pages.offset:
            # A strict service responds with 400 to a parameter that nobody has named.
            after_the_last += [400, 416, 422]
        if asked is not None and asked.counts and response.status_code in after_the_last:
            if pages.says_more:
                self._problem = f"{parameter} has status {response.status_code}."
                self._advice = _NAME_THE_WAY
            return None
        received_of(self.session.check(response)).is_page = True
        page = page_of(response, _query(place))
        if not self._is_repeated(place, page):
            return page
        if len(self._requested) == 2 or pages.says_more:
            self._problem = f"{parameter or 'The next link'} leads to a page that came before."
            self._advice = _NAME_THE_WAY
            if asked is not None and asked.member:
                self._advice = f'cursor=("{asked.member}", "…")'
        return None

    def _is_repeated(self, place: Place, page: Page) -> bool:
        """Return whether a page came before, and leads to one that did."""
        pages = self._pages
        if pages.ignores_the_number(page):
            return True
        link = pages.link_of(page) if pages.has_seen(page) else None
        return link is not None and self._place_of(place, link) in self._requested

    def _next_place(self, place: Place, page: Page) -> Place | None:
        """Return the place of the page after this one; None if it is the last."""
        answer = self._pages.next_of(page)
        if answer is not None:
            return self._place_of(place, answer)
        if self._pages.says_more:
            self._problem = "The last page says that there are more, but not how to request them."
        else:
            self._problem = "There may be more: the last page does not say that it is the last."
        token = uncertain_token(page)
        self._advice = f'cursor="{token}"' if token else _NAME_THE_WAY
        return None

    def _place_of(self, place: Place, answer: Next) -> Place | None:
        url, content = place
        if answer.address:
            return self._checked(url.join(parse_url(answer.address))), content
        if answer.parameter:
            return _moved(place, answer.parameter, answer.value)
        return None

    @property
    def title(self) -> str:
        """The method and the path of the list, redacted."""
        place = self.place or next(iter(self._requested))
        return f"{self.method} {self.session.recording.redactor.text(place[0].path)}"

    def _warn_if_incomplete(self) -> None:
        pages = self._pages
        if pages.repeated and not self._problem:
            self._problem = f"{pages.repeated:,} of them have the id of one before."
            self._advice = _NAME_THE_WAY
        if not self._problem and not pages.is_short:
            return
        if pages.received is None:
            came = "no list of records"
        elif pages.is_short:
            came = f"{pages.received:,} of {plural(pages.total, 'record')}"
        else:
            came = plural(pages.received, "record")
        text = f"{self.title}: {came} came. {self._problem}"
        if self._advice:
            path = self.title.partition(" ")[2]
            text += f' For all, name the parameter: pages("{path}", {self._advice}).'
        warn_caller(text.rstrip())

    def _checked(self, url: httpx.URL) -> httpx.URL:
        """Return a URL from a page, if it is on the session's server or the session replays."""
        own = origin_of(parse_url(self.session.base_url))
        if self.session.mode == "replay" or origin_of(url) == own:
            return url
        place = f"{url.scheme}://{url.netloc.decode('ascii')}"
        raise AddressError(
            f"The link to the next page leads to {place}, which is not this session's address: "
            "nothing was sent there.",
            'Try pages(…, page="page").',
        )
