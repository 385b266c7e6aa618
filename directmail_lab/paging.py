"""Many requests in one call: `get_many` for any number of paths, `pages` for a paginated list."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from anyio.from_thread import start_blocking_portal

from .bodies import read_json, unwrap
from .display import ProgressBar
from .errors import (
    DirectMailLabError,
    InsecureAddressError,
    argument_error,
    check_choice,
    without_traceback,
)
from .http import httpx, origin
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
    each of them the response that was recorded for it.

    Parameters
    ----------
    paths
        Below the base address, each with its query if it has one: ``"/v1/lists?page=2"``.
    concurrency
        The most requests that wait for their responses at the same time.

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
    requests = _Requests(session, paths, concurrency)
    # In a thread with its own event loop, since a notebook's loop is running already.
    with requests.bar, start_blocking_portal() as portal:
        running = portal.start_task_soon(requests.send)
        try:
            running.result()
        except KeyboardInterrupt:
            running.cancel()
    return requests.results()


async def get_many_async(
    session: Session, /, paths: Iterable[str], *, concurrency: int = 8
) -> list[Result]:
    """Return the same as `get_many`, without blocking the event loop."""
    requests = _Requests(session, paths, concurrency)
    with requests.bar:
        await requests.send()
    return requests.results()


class _Requests:
    """The requests of one `get_many`."""

    def __init__(self, session: Session, paths: Iterable[str], concurrency: int) -> None:
        if isinstance(paths, str):
            raise argument_error(f"get_many() takes a list of paths. For one, get({paths!r}).")
        if concurrency < 1:
            raise argument_error(f"concurrency={concurrency} would send nothing. Give 1 or more.")
        self._session = session
        self._paths = list(paths)
        self._concurrency = concurrency
        self._results: dict[int, Result] = {}
        self.bar = ProgressBar(len(self._paths), desc="GET", unit="request")

    async def send(self) -> None:
        has_cassette = self._session.open_cassette is not None
        # Positions in the paths, in groups that are sent one by one.
        groups: dict[str | int, list[int]] = {}
        for number, path in enumerate(self._paths):
            groups.setdefault(path if has_cassette else number, []).append(number)
        # All workers take from one iterator, so each group goes to exactly one of them.
        queue = iter(groups.values())
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._concurrency, len(groups))):
                workers.create_task(self._work(queue))

    async def _work(self, queue: Iterator[list[int]]) -> None:
        for number in itertools.chain.from_iterable(queue):
            try:
                self._results[number] = await self._session.async_client.get(self._paths[number])
            except Exception as error:
                self._results[number] = without_traceback(error)
            self.bar.update()

    def results(self) -> list[Result]:
        """Return the results; a path that has none yet gets an error that says so."""
        missing = "There is no response: get_many() was interrupted. Request this path again."
        return [
            self._results.get(number) or DirectMailLabError(missing)
            for number in range(len(self._paths))
        ]


# -- pages ---------------------------------------------------------------------------------------

_PREFIXES: Final = (
    *("", "data.", "meta.", "pagination.", "paging.", "paging.cursors.", "page_info."),
    *("response_metadata.", "links.", "_links."),
)
"""Where in a body services put these names."""

_URLS: Final = (
    *("next", "next_url", "next_page_url", "nextLink", "next_link", "@odata.nextLink"),
    *("next_page", "nextPage"),
)
_CURSORS: Final = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next_token": "next_token",
    "after": "after",
    "next_page": "page",
    "nextPage": "page",
}
_PAGES: Final = {"page": "page", "page_number": "page_number", "current_page": "page"}
_OFFSETS: Final = {"offset": "offset", "skip": "skip", "start": "start"}
"""Names in a body, and the query parameter that each is sent as."""

_HAS_MORE: Final = ("has_more", "hasMore", "has_next", "hasNextPage")
_TOTALS: Final = ("total_pages", "totalPages", "last_page", "page_count")
_NO_WAY: Final = (
    "The last page says that there are more, but not in a way that is known here. Say how to find "
    'the next page: pages(…, by=…, parameter="…", next_at="…").'
)


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
    """Request the pages of a list, one after the other, paced as the session is.

    The last page is one that is shorter than the first, or that names no next page. A page that is
    empty or repeats an earlier one also ends the list, and is not yielded. If the last page says
    that there are more, a warning says so. ``frame(pages(…))`` is one frame of all their records.

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
        only member that is an array of objects, also within an object ``data``.
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
    DirectMailLabError
        ``record_path`` is not in the first page.
    InsecureAddressError
        The next page's URL is on another server than the session's: nothing is sent there.
    ValueError
        ``by`` or ``max_pages`` is not valid; nothing is sent.
    """
    check_choice("by", by, get_args(PagedBy))
    if max_pages is not None and max_pages < 1:
        raise argument_error(f"max_pages={max_pages} would send nothing. Give 1 or more.")
    url = session.client.build_request("GET", path, params=params).url
    if by in ("page", "offset"):
        parameter = parameter or by
        if parameter not in url.params:
            url = url.copy_set_param(parameter, 1 if by == "page" else 0)
    return _pages(session, url, Pager(session, by, parameter, next_at, record_path), max_pages)


def _pages(
    session: Session, url: httpx.URL | None, pager: Pager, max_pages: int | None
) -> Iterator[httpx.Response]:
    """Yield the pages. No local variable has a body, which a traceback would print."""
    urls: set[httpx.URL] = set()
    try:
        with ProgressBar(None, desc="GET", unit="page") as bar:
            while url is not None and url not in urls:
                if len(urls) >= (max_pages or _MOST_PAGES):
                    if max_pages is None:
                        warnings.warn(
                            f"There are more than {_MOST_PAGES} pages. For more of them: "
                            "pages(…, max_pages=…).",
                            stacklevel=2,
                        )
                    return
                urls.add(url)
                response = session.client.get(url)
                if response.status_code == 404 and len(urls) > 1:
                    return
                if not pager.read(session.check(response)):
                    return
                yield response
                bar.update()
                url = pager.next_url(response)
    except DirectMailLabError as error:
        failure = without_traceback(error)
    else:
        return
    raise failure


@dataclass(repr=False)
class Pager:
    """Finds the URL of the next page, as the options of `pages` say or as the first page shows."""

    session: Session
    by: PagedBy
    parameter: str | None
    next_at: str | None
    record_path: str
    _page_size: int | None = None
    _body: object = None
    _records: object = None
    _seen: set[int] = field(default_factory=set)

    def read(self, response: httpx.Response) -> bool:
        """Read a page; return whether it is the first, or has records that no other page has."""
        is_first = self._page_size is None
        self._body, _ = read_json(response.content, response.charset_encoding)
        is_auto = self.record_path == "auto"
        self._records = (
            unwrap(self._body, is_page=True)[0] if is_auto else _at(self._body, self.record_path)
        )
        if is_first:
            if not is_auto and _at(self._body, self.record_path, ...) is ...:
                raise DirectMailLabError(
                    f"record_path {self.record_path!r} is not in the first page's body. "
                    "Give the dotted path to its array of records."
                )
            self._page_size = self._count()
        key = hash(repr(self._records))
        is_new = key not in self._seen
        self._seen.add(key)
        return is_first or (bool(self._records) and is_new)

    def _count(self) -> int:
        return len(self._records) if isinstance(self._records, list) else 0

    def next_url(self, response: httpx.Response) -> httpx.URL | None:
        """Return the URL of the page after the one that was read; None if it was the last."""
        url, link = response.request.url, response.links.get("next", {}).get("url")
        has_more = self._has_more(url)
        if has_more is False:
            return None
        # What worked once is used for all further pages.
        if link and self.by in ("auto", "link"):
            self.by = "link"
            return self._own(url.join(link))
        pointers = self._values([*_URLS, *_CURSORS], self.next_at)
        given = [(name, value) for name, value in pointers if value]
        if self.by == "auto" and pointers and not given:
            return None
        following = self._pointed_at(url, given)
        if following is None and (has_more or self._count() >= max(self._page_size or 0, 1)):
            following = self._counted(url)
        if following is None and (has_more or (given and self.by == "auto")):
            warnings.warn(_NO_WAY, stacklevel=3)
        return following

    def _pointed_at(
        self, url: httpx.URL, pointers: Iterable[tuple[str, object]]
    ) -> httpx.URL | None:
        """Return the next page's URL, as the body has it or with the cursor in the body."""
        is_named = self.next_at is not None
        for name, value in pointers:
            text = str(value)
            is_url = self.by == "next" or text.startswith(("http", "/")) or "?" in text
            if self.by in ("auto", "next") and is_url and (is_named or name in _URLS):
                self.by = "next"
                return self._own(url.join(text))
            if self.by == "cursor" or (self.by == "auto" and (is_named or name in _CURSORS)):
                self.by = "cursor"
                return url.copy_set_param(self.parameter or _CURSORS.get(name, "cursor"), value)
        return None

    def _has_more(self, url: httpx.URL) -> bool | None:
        """Return whether the body says that there are more pages; None if it does not say."""
        for _, flag in self._values(_HAS_MORE):
            if isinstance(flag, bool):
                return flag
        if self.by in ("auto", "page"):
            totals = [total for _, total in self._values(_TOTALS) if type(total) is int]
            for (_, number), total in zip(self._numbers(url, _PAGES), totals, strict=False):
                return False if number >= total else None
        return None

    def _counted(self, url: httpx.URL) -> httpx.URL | None:
        """Return the URL with the next page number or offset, if the page has either."""
        for by, names, step in (("page", _PAGES, 1), ("offset", _OFFSETS, self._count())):
            if self.by in ("auto", by):
                for name, number in self._numbers(url, names):
                    return url.copy_set_param(name, number + step)
        return None

    def _numbers(self, url: httpx.URL, names: Mapping[str, str]) -> list[tuple[str, int]]:
        """Return the numbers that the URL or the body has under these names, by parameter."""
        sent = [(name, url.params.get(name)) for name in (self.parameter, *names) if name]
        named = [(self.parameter or names[name], value) for name, value in self._values(names)]
        return [(name, int(str(value))) for name, value in sent + named if str(value).isdecimal()]

    def _values(self, names: Iterable[str], path: str | None = None) -> list[tuple[str, object]]:
        """Return the values in the body under these names, or the one at a path, with the names."""
        paths = [path] if path else [prefix + name for prefix in _PREFIXES for name in names]
        found = [(each.rpartition(".")[2], _at(self._body, each, ...)) for each in paths]
        return [
            (name, value.get("href") if isinstance(value, dict) else value)
            for name, value in found
            if value is not ...
        ]

    def _own(self, link: httpx.URL) -> httpx.URL:
        """Return a next page's URL, which must be on this session's server.

        In a replay it may name the recording's base address, which the session's then replaces.
        """
        base_url, cassette = self.session.base_url, self.session.open_cassette
        if origin(link) == origin(httpx.URL(base_url)):
            return link
        recorded = httpx.URL((cassette and cassette.base_url) or "")
        if origin(link) == origin(recorded):
            path = path_below(str(link), recorded.path.rstrip("/"))
            return httpx.URL(base_url + path).copy_with(query=link.query)
        raise InsecureAddressError(
            f"The link to the next page leads to {link.scheme}://{link.host}, which is not this "
            "session's address, so nothing was sent there. Get the pages in another way, such as "
            'pages(…, by="page").'
        )


def _at(body: object, path: str, missing: object = None) -> object:
    """Return the value at a dotted path, or ``missing``."""
    if isinstance(body, dict) and path in body:
        return body[path]
    for name in path.split("."):
        body = body.get(name, missing) if isinstance(body, dict) else missing
    return body
