"""Many requests in one call: `get_many` for any number of paths, `pages` for a paginated list."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from .arguments import argument_error, check_number
from .current import session
from .display import ProgressBar
from .errors import AddressError, DirectMailLabError
from .exchange.bodies import Path, leaves, read_json, unwrap
from .http import httpx, parse_url
from .settings import origin_of
from .tracebacks import hide_frames, is_deliberate, warn_caller, without_traceback
from .transports.extensions import EXTENSION, Call, of

if TYPE_CHECKING:
    from .sessions import Session

Result = httpx.Response | Exception

_MOST_PAGES: Final = 1_000
_HAS_MORE: Final = ("has_more", "hasMore", "has_next", "hasNextPage")
# A page states these numbers at its top level, or in one of these objects.
_AROUND: Final = frozenset({"data", "meta", "pagination"})
_TOTAL: Final = ("total",)
_TOTAL_PAGES: Final = ("total_pages", "totalPages")
_LAST_PAGE: Final = ("last_page", "lastPage")
_CAME: Final = "{desc}: {n_fmt} [{elapsed}]"
_NO_WAY: Final = (
    "The last page says that there are more pages, but not where. Say how to find the next page: "
    'pages(…, page="page"), offset="offset" or cursor="next_cursor".'
)
_INTERRUPTED: Final = "There is no response: get_many() was interrupted. Request this path again."


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
    opened, paths = session(), list(paths)
    results: list[Result] = [DirectMailLabError(_INTERRUPTED) for _ in paths]
    # Positions in the paths, in groups whose requests are sent one after the other.
    groups: dict[str | int, list[int]] = {}
    for position, path in enumerate(paths):
        groups.setdefault(position if opened.open_cassette is None else path, []).append(position)
    # All threads take from one iterator, so each group goes to exactly one of them.
    work, done, over = iter(list(groups.values())), SimpleQueue[None](), threading.Event()

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
    cursor: str | None = None,
    max_pages: int | None = None,
) -> Iterator[httpx.Response]:
    """Request the pages of a list, one after the other, at the session's pace.

    By default, the header ``Link`` or a URL named ``next`` in the body leads to
    the next page. If the service counts or marks its pages instead, give
    ``page``, ``offset`` or ``cursor``. A warning says if a page announces more
    pages but not where. A page that is empty or repeats an earlier one ends the
    list, and is not yielded. ``frame(pages(…))`` is one frame of all records.

    Parameters
    ----------
    path
        The path below the base address.
    params
        The query of the first request: page size and start, such as
        ``{"limit": 100, "page": 0}``.
    page
        The name of the query parameter for the page number. It starts at its
        value in ``params``, or at 1. The list ends when ``total`` (the number
        of all records), ``total_pages``, ``last_page`` or the link to the next
        page says so; these may also be in ``meta`` or ``pagination``. As long
        as one of them announces more, the list goes on. Without any, it ends
        after a page with fewer records than the first, or before a 404.
    offset
        The name of the query parameter for the number of the first record. It
        starts at its value in ``params``, or at 0. The list ends as with
        ``page``.
    cursor
        The name or dotted path of the next page's token in the body:
        ``"next_cursor"`` or ``"meta.next_cursor"``. The query parameter has the
        same name without ``next``: ``cursor``.
    max_pages
        How many pages to request at most. By default 1,000, with a warning if
        there are more.

    Yields
    ------
    httpx.Response
        A page.

    Raises
    ------
    ServiceError
        The service responded with an error status.
    AddressError
        The link to the next page leads to another server. Nothing is sent
        there.
    ValueError
        More than one of ``page``, ``offset`` and ``cursor`` is given, or
        ``max_pages`` is less than 1. Nothing is sent.

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
    if sum(map(bool, (page, offset, cursor))) > 1:
        raise argument_error("pages() takes only one of page=, offset= and cursor=.")
    check_number("max_pages", 1 if max_pages is None else max_pages, least=1)
    opened = session()
    url = opened.client.build_request("GET", path, params=params).url
    if (counter := page or offset) and counter not in url.params:
        url = url.copy_set_param(counter, 1 if page else 0)
    return Pages(_Pager(opened, url, page, offset, cursor), max_pages)


class Pages(Iterator[httpx.Response]):
    """The pages of a list. Each is requested when it is asked for, and is yielded once."""

    def __init__(self, pager: _Pager, max_pages: int | None) -> None:
        self._title = pager.session.recording.redactor.text(f"GET {pager.url and pager.url.path}")
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
            if (response := pager.next_page()) is None:
                return
            bar.update()
            yield response
    if max_pages is None and pager.url is not None:
        warn_caller(f"Stopped after {_MOST_PAGES} pages. For more: pages(…, max_pages=…).")


@dataclass(repr=False)
class _Pager:
    """Requests one page after the other. ``url`` leads to the next page; None after the last."""

    session: Session
    url: httpx.URL | None
    page: str | None
    offset: str | None
    cursor: str | None
    _seen: set[object] = field(default_factory=set)
    _first_count: int = 0
    _count: int = 0
    _trusted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._is_from_zero = self.page is not None and self._number(self.url) == 0

    @hide_frames  # the locals contain bodies
    def next_page(self) -> httpx.Response | None:
        """Return the next page; None if there is none with new records."""
        url, is_first = self.url, not self._seen
        if url is None or url in self._seen:
            return None
        response = self.session.client.get(url)
        if response.status_code == 404 and not is_first:
            return None
        of(self.session.check(response)).is_page = True
        body, _ = read_json(response.content, response.charset_encoding)
        records, _ = unwrap(body, is_page=True)
        content = hash(repr(records))
        if not is_first and (not records or content in self._seen):
            return None
        self._seen |= {url, content}
        count = len(records) if isinstance(records, list) else 0
        self._first_count = self._first_count or count
        self._count += count
        link = response.links.get("next", {}).get("url")
        self.url = self._next_url(url, link, dict(leaves(body)), count)
        return response

    def _next_url(
        self, url: httpx.URL, link: str | None, fields: Mapping[Path, Any], count: int
    ) -> httpx.URL | None:
        """Return the URL of the page after the one that has these fields and this many records."""
        flags = [value for path, value in fields.items() if path and path[-1] in _HAS_MORE]
        if False in flags:
            return None
        links = [link, *(value for path, value in fields.items() if "next" in path[-2:])]
        if counter := self.page or self.offset:
            has_more = self._has_more(url, links, fields, count)
            if has_more is None:
                has_more = count >= max(self._first_count, 1)
            if True in flags or has_more:
                step = 1 if self.page else count
                return url.copy_set_param(counter, self._number(url) + step)
        elif self.cursor:
            if token := fields.get(tuple(self.cursor.split("."))):
                name = self.cursor.rpartition(".")[2].removeprefix("next").lstrip("_")
                return url.copy_set_param(name[:1].lower() + name[1:], token)
        else:
            for each in links:
                if isinstance(each, str) and (each.startswith(("http", "/")) or "?" in each):
                    return self._checked(url.join(parse_url(each)))
            flags.append(any(links))
        if True in flags:
            warn_caller(_NO_WAY)
        return None

    def _has_more(
        self, url: httpx.URL, links: list[Any], fields: Mapping[Path, Any], count: int
    ) -> bool | None:
        """Return whether a page says that there are more pages; None if that is not certain.

        Some services always send a null link, or a total of the page's own records. So a link or a
        total counts only after it has once announced more pages, or if another statement agrees.
        """
        number, said = self._number(url), dict[str, bool]()
        if len(links) > 1 or links[0] or "link" in self._trusted:
            said["link"] = any(links)
        if count and (total := _stated(fields, _TOTAL)):
            said["total"] = (number + count if self.offset else self._count) < total
        if self.page and (total_pages := _stated(fields, _TOTAL_PAGES)):
            said["total_pages"] = number + self._is_from_zero < total_pages
        if self.page and (last_page := _stated(fields, _LAST_PAGE)):
            said["last_page"] = number < last_page
        more = {name for name, has_more in said.items() if has_more}
        self._trusted |= more
        is_certain = len(said) > 1 or said.keys() & {*self._trusted, "total_pages", "last_page"}
        return bool(more) if is_certain else None

    def _number(self, url: httpx.URL | None) -> int:
        """Return the number of the page, or of its first record, from a URL's query."""
        return int(url.params[self.page or self.offset or ""]) if url is not None else 0

    def _checked(self, url: httpx.URL) -> httpx.URL:
        """Return a URL from a page, if it is on the session's server or the session replays."""
        if self.session.mode == "replay" or origin_of(str(url)) == origin_of(self.session.base_url):
            return url
        place = f"{url.scheme}://{url.netloc.decode('ascii')}"
        raise AddressError(
            f"The link to the next page leads to {place}, which is not this session's address: "
            "nothing was sent there.",
            'Try pages(…, page="page").',
        )


def _stated(fields: Mapping[Path, Any], names: tuple[str, ...]) -> int | None:
    """Return the positive number that a page states under one of these names, or None."""
    found = (
        value
        for path, value in fields.items()
        if path and path[-1] in names and _AROUND.issuperset(path[:-1])
    )
    return next((value for value in found if type(value) is int and value > 0), None)
