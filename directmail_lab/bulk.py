"""Many requests in one call: any number of paths at once, and the pages of a list."""

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

    A progress bar shows while it takes longer than a second. Interrupting it keeps what came. It
    records and replays; the same path more than once is then asked one after the other, so that
    each place has the same answer in a replay.

    Parameters
    ----------
    paths
        Below the base address, each with its query if it has one: ``"/v1/lists?page=2"``.
    concurrency
        How many requests are out at once, at most.

    Returns
    -------
    list of httpx.Response or Exception
        One for each path, in their order: the response, whatever its status, or the error where
        none came. A failed path does not lose the others.

    Raises
    ------
    ValueError
        ``concurrency`` is less than 1, or ``paths`` is one text; nothing is sent.
    """
    work = _Many(session, paths, concurrency)
    with work.bar, ThreadPoolExecutor(1) as thread:
        # A loop of its own: a notebook's is running already.
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
        # Those who take from one iterator share its work out among them.
        lanes = iter(self._lanes())
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._concurrency, len(self._paths))):
                workers.create_task(self._ask(lanes))

    def _lanes(self) -> Iterable[list[int]]:
        """Return numbers of paths; those of one list are asked one after the other."""
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
        """Send no more, and wait for no answer; from any thread."""
        self._is_cancelled = True
        with suppress(RuntimeError):  # the loop is over
            self._cancel()

    def results(self) -> list[Result]:
        """Return what came, and in the place of what did not an error that says so."""
        missing = "There is no answer: get_many() was interrupted before. Ask for this path again."
        return [
            self._results.get(number) or DirectMailLabError(missing)
            for number in range(len(self._paths))
        ]


# -- pages ---------------------------------------------------------------------------------------

_PLACES: Final = (
    *("", "meta.", "pagination.", "paging.", "paging.cursors.", "page_info."),
    *("response_metadata.", "links.", "_links."),
)
"""Where in a body services say how it goes on."""

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

    They end with a page that is shorter than the first, empty or the same again (which is not
    given), or that names no next one. ``frame(pages(…))`` is one frame of all their records.

    Parameters
    ----------
    path
        Below the base address.
    params
        Its query: the size of a page, and where to begin (``{"limit": 100, "page": 0}``).
    by
        What leads to the next page: its number (``"page"``), the number of its first record
        (``"offset"``), a text in the body that is sent back (``"cursor"``), an address in the body
        (``"next"``) or in the header ``Link`` (``"link"``). ``"auto"`` looks at the first page for
        an address, then a cursor, and then for a page or offset in ``params`` or in the body; where
        there is none of these, that page is all.
    parameter
        The name of the query's parameter, for ``"page"``, ``"offset"`` and ``"cursor"``.
    next_at
        Where in the body the cursor or the address stands, such as ``"meta.next"``.
    record_path
        Where in the body the records stand: ``"auto"`` takes the body itself, its ``data``, or its
        only member that is an array.
    max_pages
        The most to ask for; by default 1,000, with a warning where there are more.

    Yields
    ------
    httpx.Response
        A page.

    Raises
    ------
    ServiceError
        The service answered with an error status (404 beyond the first page is the end).
    InsecureAddressError
        The next page is said to be at another address: nothing is sent there.
    ValueError
        An argument is none of those above; nothing is sent.
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
    """Yield the pages; an error comes without the frames whose locals hold a body."""
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
    """How one page leads to the next."""

    session: Session
    by: PagedBy
    parameter: str | None
    next_at: str | None
    record_path: str
    size: int = 0

    def records(self, body: object) -> object:
        """Return the records of a page, or all of it where it has no array of them."""
        return records_of(body) if self.record_path == "auto" else _at(body, self.record_path)

    def following(
        self, response: httpx.Response, body: object, records: object
    ) -> httpx.URL | None:
        """Return the address of the page after one; None where that was the last."""
        url = response.request.url
        if any(_at(body, place + name) is False for place in _PLACES for name in _GOES_ON):
            return None
        for by, told in self._told(url, response, body):
            self.by = by  # from now on by no other
            return told
        return self._counted(url, body, len(records) if isinstance(records, list) else 0)

    def _told(
        self, url: httpx.URL, response: httpx.Response, body: object
    ) -> Iterator[tuple[PagedBy, httpx.URL | None]]:
        """Yield what a page says comes next: its address, or None where it says that nothing is."""
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
        """Return the address of the next number, after a page of as many records as the first."""
        self.size = self.size or count
        if count < self.size or not count:
            return None
        for by, names, step in (("page", _PAGES, 1), ("offset", _OFFSETS, count)):
            if self.by in ("auto", by):
                for name, number in self._numbers(url, body, names):
                    return url.copy_set_param(name, number + step)
        return None

    def _found(self, body: object, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        """Yield what stands in a body by these names, or where the caller said."""
        paths = [self.next_at] if self.next_at else [p + name for p in _PLACES for name in names]
        for path in paths:
            value = _at(body, path, _MISSING)
            if value is not _MISSING:
                href = value.get("href") if isinstance(value, dict) else value
                yield path.rpartition(".")[2], href

    def _numbers(
        self, url: httpx.URL, body: object, names: Mapping[str, str]
    ) -> Iterator[tuple[str, int]]:
        """Yield the parameter and the number of a page or offset: as asked for, or as told."""
        for name in [self.parameter] if self.parameter else [*names]:
            if url.params.get(name, "").isdigit():
                yield name, int(url.params[name])
        for place, (name, sent_as) in itertools.product(_PLACES, names.items()):
            number = _at(body, place + name)
            if type(number) is int:
                yield self.parameter or sent_as, number

    def _own(self, link: httpx.URL) -> httpx.URL:
        """Return the address of a next page, if it is this session's own.

        A replay's is the address of the recording, and is asked for at the session's.
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
            f"The next page is said to be at {link.scheme}://{link.host}, which is not this "
            "session's address: nothing was sent there. Name another way to it: "
            'pages(…, by="page").'
        )


def _at(body: object, path: str, missing: object = None) -> object:
    """Return what stands at a dotted path, or ``missing``."""
    for name in path.split("."):
        body = body.get(name, missing) if isinstance(body, dict) else missing
    return body
