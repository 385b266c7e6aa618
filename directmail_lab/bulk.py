"""Many requests in one call: `get_many` for any number of paths, `pages` for a paginated list."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from .bodies import read_json, records_of
from .display import ProgressBar
from .errors import DirectMailLabError, InsecureAddressError, without_traceback
from .http import httpx
from .interaction import path_below

if TYPE_CHECKING:
    from .sessions import Session

Result = httpx.Response | Exception
PagedBy = Literal["auto", "offset", "page", "cursor", "next", "link"]

_MOST_PAGES: Final = 1_000


# -- many paths ----------------------------------------------------------------------------------


def get_many(session: Session, /, paths: Iterable[str], *, concurrency: int = 8) -> list[Result]:
    """Send a GET to each of any number of paths, several at once, paced as the session is.

    A progress bar appears after one second. After an interrupt, the responses so far are returned.
    With a cassette, requests for the same path are sent one after the other, so that a replay gives
    each of them the answer that was recorded for it.

    Parameters
    ----------
    paths
        Below the base address, each with its query if it has one: ``"/v1/lists?page=2"``.
    concurrency
        The most requests that wait for their answers at the same time.

    Returns
    -------
    list of httpx.Response or Exception
        One for each path, in the same order: the response, whatever its status, or the error if
        there was none. An error for one path does not stop the others.

    Raises
    ------
    ValueError
        ``concurrency`` is less than 1, or ``paths`` is a single string; nothing is sent.
    """
    work = _Many(session, paths, concurrency)
    with work.bar, ThreadPoolExecutor(1) as thread:
        # In a thread with its own event loop, since a notebook's loop is running already.
        running = thread.submit(asyncio.run, work.run())
        try:
            running.result()
        except KeyboardInterrupt:
            work.cancel()
    return work.results()


async def get_many_async(
    session: Session, /, paths: Iterable[str], *, concurrency: int = 8
) -> list[Result]:
    """Return the same as `get_many`, without blocking the event loop."""
    work = _Many(session, paths, concurrency)
    with work.bar:
        await work.run()
    return work.results()


class _Many:
    """The work of one `get_many`."""

    def __init__(self, session: Session, paths: Iterable[str], concurrency: int) -> None:
        if isinstance(paths, str):
            raise ValueError(f"get_many() takes a list of paths. For one, get({paths!r}).")
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency} would send nothing. Give 1 or more.")
        self._session = session
        self._paths = list(paths)
        self._concurrency = concurrency
        self._results: dict[int, Result] = {}
        self._cancel: Callable[[], object] = lambda: None
        self._is_cancelled = False
        self.bar = ProgressBar(len(self._paths), desc="GET", unit="request")

    async def run(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        # All workers take from one iterator, so each lane goes to exactly one of them.
        lanes = iter(self._lanes())
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._concurrency, len(self._paths))):
                workers.create_task(self._ask(lanes))

    def _lanes(self) -> Iterable[list[int]]:
        """Return lists of positions in the paths; those of one list are sent one by one."""
        numbers = range(len(self._paths))
        if self._session.open_cassette is None:
            return ([number] for number in numbers)
        lanes: dict[str, list[int]] = {}
        for number in numbers:
            lanes.setdefault(self._paths[number], []).append(number)
        return lanes.values()

    async def _ask(self, lanes: Iterator[list[int]]) -> None:
        for number in itertools.chain.from_iterable(lanes):
            if self._is_cancelled:
                return
            try:
                self._results[number] = await self._session.async_client.get(self._paths[number])
            except Exception as error:
                self._results[number] = without_traceback(error)
            self.bar.update()

    def cancel(self) -> None:
        """Send no more requests and abandon those on their way. Any thread may call it."""
        self._is_cancelled = True
        with suppress(RuntimeError):  # the loop is over
            self._cancel()

    def results(self) -> list[Result]:
        """Return the results; a path that has none yet gets an error that says so."""
        missing = "There is no answer: get_many() was interrupted. Request this path again."
        return [
            self._results.get(number) or DirectMailLabError(missing)
            for number in range(len(self._paths))
        ]


# -- pages ---------------------------------------------------------------------------------------

_PLACES: Final = (
    *("", "meta.", "pagination.", "paging.", "paging.cursors.", "page_info."),
    *("response_metadata.", "links.", "_links."),
)
"""Where in a body services put what leads to the next page: prefixes of the names below."""

_ADDRESSES: Final = ("next", "next_url", "next_page_url", "nextLink", "next_link")
_CURSORS: Final = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next_token": "next_token",
    "after": "after",
}
_PAGES: Final = {"page": "page", "page_number": "page_number", "current_page": "page"}
_OFFSETS: Final = {"offset": "offset", "skip": "skip", "start": "start"}
"""Names in a body, and the parameter that each is sent as."""

_MISSING: Final = object()
_GOES_ON: Final = ("has_more", "hasMore", "has_next", "hasNextPage")


def pages(
    session: Session,
    /,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    by: PagedBy = "auto",
    parameter: str | None = None,
    next_at: str | None = None,
    record_path: str = "auto",
    max_pages: int | None = None,
) -> Iterator[httpx.Response]:
    """Ask for the pages of a list, one after the other, paced as the session is.

    The last page is one that is shorter than the first, or that names no next page. A page that is
    empty or repeats the one before also ends the list, and is not yielded. ``frame(pages(…))`` is
    one frame of all their records.

    Parameters
    ----------
    path
        Below the base address.
    params
        The query of the first request: page size and start, as in ``{"limit": 100, "page": 0}``.
    by
        How to find the next page: by its number (``"page"``), the number of its first record
        (``"offset"``), a token in the body that is sent back (``"cursor"``), a URL in the body
        (``"next"``) or in the header ``Link`` (``"link"``). ``"auto"`` looks at the first page for
        a URL or a cursor, and then for a page or offset in ``params`` or in the body; if it finds
        none of these, it yields that page alone.
    parameter
        The name of the query's parameter, for ``"page"``, ``"offset"`` and ``"cursor"``.
    next_at
        Where in the body the cursor or the URL is: a dotted path such as ``"meta.next"``.
    record_path
        Where in the body the records are: ``"auto"`` takes the body itself, its ``data``, or its
        only member that is an array of objects.
    max_pages
        The most pages to request; by default 1,000, with a warning if there are more.

    Yields
    ------
    httpx.Response
        A page.

    Raises
    ------
    ServiceError
        The service answered with an error status (404 beyond the first page is the end).
    InsecureAddressError
        The next page's URL is on another server than the session's: nothing is sent there.
    ValueError
        ``by`` or ``max_pages`` is not valid; nothing is sent.
    """
    if by not in get_args(PagedBy):
        raise ValueError(f"by={by!r} is none of {', '.join(get_args(PagedBy))}.")
    if max_pages is not None and max_pages < 1:
        raise ValueError(f"max_pages={max_pages} would send nothing. Give 1 or more.")
    url = session.client.build_request("GET", path, params=params).url
    if by in ("page", "offset"):
        parameter = parameter or by
        if parameter not in url.params:
            url = url.copy_set_param(parameter, 1 if by == "page" else 0)
    way = _Way(session, by, parameter, next_at, record_path)
    return _pages(session, url, way, max_pages)


def _pages(
    session: Session, url: httpx.URL, way: _Way, max_pages: int | None
) -> Iterator[httpx.Response]:
    """Yield the pages; an error's traceback has no frames whose local variables hold a body."""
    try:
        yield from _asked_for(session, url, way, max_pages)
    except DirectMailLabError as error:
        failure = without_traceback(error)
    else:
        return
    raise failure


def _asked_for(
    session: Session, url: httpx.URL | None, way: _Way, max_pages: int | None
) -> Iterator[httpx.Response]:
    asked: set[httpx.URL] = set()
    before: object = None
    with ProgressBar(None, desc="GET", unit="page") as bar:
        while url is not None and url not in asked:
            if len(asked) >= (max_pages or _MOST_PAGES):
                if max_pages is None:
                    warnings.warn(
                        f"There are more than {_MOST_PAGES} pages. For more of them: "
                        "pages(…, max_pages=…).",
                        stacklevel=3,
                    )
                return
            is_first = not asked
            asked.add(url)
            response = session.client.get(url)
            if response.status_code == 404 and not is_first:
                return
            body, _ = read_json(session.check(response).content, response.charset_encoding)
            records = way.records(body)
            if not is_first and (not records or records == before):
                return
            yield response
            bar.update()
            before, url = records, way.following(response, body, records)


@dataclass
class _Way:
    """How to get from one page to the next: what `pages` was told, or what it has found out."""

    session: Session
    by: PagedBy
    parameter: str | None
    next_at: str | None
    record_path: str
    size: int = 0

    def records(self, body: object) -> object:
        """Return the records of a page, or the whole page if it has no array of them."""
        return records_of(body) if self.record_path == "auto" else _at(body, self.record_path)

    def following(
        self, response: httpx.Response, body: object, records: object
    ) -> httpx.URL | None:
        """Return the URL of the page after this response; None if it was the last."""
        url = response.request.url
        if any(_at(body, place + name) is False for place in _PLACES for name in _GOES_ON):
            return None
        for by, told in self._told(url, response, body):
            self.by = by  # what worked once is used for all further pages
            return told
        return self._counted(url, body, len(records) if isinstance(records, list) else 0)

    def _told(
        self, url: httpx.URL, response: httpx.Response, body: object
    ) -> Iterator[tuple[PagedBy, httpx.URL | None]]:
        """Yield the URL of the next page as this page names it; None if it says there is none."""
        if self.by in ("auto", "link") and (link := response.links.get("next", {}).get("url")):
            yield "link", self._own(url.join(link))
        found = list(self._found(body, [*_ADDRESSES, *_CURSORS]))
        for name, told in found:
            is_cursor = name in _CURSORS if self.by == "auto" else self.by == "cursor"
            if told and is_cursor:
                sent_as = self.parameter or _CURSORS.get(name, "cursor")
                yield "cursor", url.copy_set_param(sent_as, told)
            elif self.by in ("auto", "next") and str(told).startswith(("http", "/", "?")):
                yield "next", self._own(url.join(str(told)))
        if self.by == "auto" and found:
            yield "next", None

    def _counted(self, url: httpx.URL, body: object, count: int) -> httpx.URL | None:
        """Return the URL with the next page number or offset; None after a page that is short."""
        self.size = self.size or count
        if count < self.size or not count:
            return None
        for by, names, step in (("page", _PAGES, 1), ("offset", _OFFSETS, count)):
            if self.by in ("auto", by):
                for name, number in self._numbers(url, body, names):
                    return url.copy_set_param(name, number + step)
        return None

    def _found(self, body: object, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        """Yield the values in a body under these names, or at the caller's ``next_at``."""
        paths = [self.next_at] if self.next_at else [p + name for p in _PLACES for name in names]
        for path in paths:
            value = _at(body, path, _MISSING)
            if value is not _MISSING:
                href = value.get("href") if isinstance(value, dict) else value
                yield path.rpartition(".")[2], href

    def _numbers(
        self, url: httpx.URL, body: object, names: Mapping[str, str]
    ) -> Iterator[tuple[str, int]]:
        """Yield the parameter and the number of this page or offset: from the URL or the body."""
        for name in [self.parameter] if self.parameter else [*names]:
            if url.params.get(name, "").isdigit():
                yield name, int(url.params[name])
        for place, (name, sent_as) in itertools.product(_PLACES, names.items()):
            number = _at(body, place + name)
            if type(number) is int:
                yield self.parameter or sent_as, number

    def _own(self, link: httpx.URL) -> httpx.URL:
        """Return a next page's URL, which must be on this session's server.

        In a replay it may name the recording's base address, which the session's then replaces.
        """
        cassette = self.session.open_cassette
        for base in (self.session.base_url, cassette and cassette.base_url):
            own = httpx.URL(base or "")
            if (link.scheme, link.host, link.port) == (own.scheme, own.host, own.port):
                if base == self.session.base_url:
                    return link
                path = path_below(str(link), own.path.rstrip("/"))
                return httpx.URL(self.session.base_url + path).copy_with(query=link.query)
        raise InsecureAddressError(
            f"The link to the next page leads to {link.scheme}://{link.host}, which is not this "
            "session's address, so nothing was sent there. Get the pages in another way, such as "
            'pages(…, by="page").'
        )


def _at(body: object, path: str, missing: object = None) -> object:
    """Return the value at a dotted path, or ``missing``."""
    for name in path.split("."):
        body = body.get(name, missing) if isinstance(body, dict) else missing
    return body
