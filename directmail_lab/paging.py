"""Many requests in one call: `get_many` for any number of paths, `pages` for a paginated list."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from .bodies import read_json, unwrap
from .display import ProgressBar
from .errors import (
    DirectMailLabError,
    InsecureAddressError,
    argument_error,
    without_traceback,
)
from .http import httpx, origin
from .interaction import path_below
from .pacing import CANCELLED

if TYPE_CHECKING:
    from .sessions import Session

Result = httpx.Response | Exception

_MOST_PAGES: Final = 1_000
_HAS_MORE: Final = ("has_more", "hasMore", "has_next", "hasNextPage")
_NO_WAY: Final = (
    "The last page says that there are more, but not where. Say how to find the next page: "
    'pages(…, page="page"), offset="offset" or cursor="next_cursor".'
)
_INTERRUPTED: Final = "There is no response: get_many() was interrupted. Request this path again."


def get_many(session: Session, /, paths: Iterable[str], *, concurrency: int = 8) -> list[Result]:
    """Send a GET to each of any number of paths, several at once, paced as the session is.

    A progress bar appears after one second. After an interrupt nothing more is sent, and the
    responses so far are returned. With a cassette, requests for the same path are sent one after
    the other, so that a replay gives each of them the response that was recorded for it.

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
    if isinstance(paths, str):
        raise argument_error(f"get_many() takes a list of paths. For one, get({paths!r}).")
    if concurrency < 1:
        raise argument_error(f"concurrency={concurrency} would send nothing. Give 1 or more.")
    paths = list(paths)
    results: list[Result] = [DirectMailLabError(_INTERRUPTED) for _ in paths]
    bar = ProgressBar(len(paths), desc="GET", unit="request")
    with suppress(KeyboardInterrupt), bar, closing(_send(session, paths, concurrency)) as answers:
        for number, result in answers:
            results[number] = result
            bar.update()
    return results


def _send(session: Session, paths: list[str], threads: int) -> Generator[tuple[int, Result]]:
    """Send requests from several threads; yield positions and results as they come.

    Once this generator is closed, nothing more is sent.
    """
    one_by_one = session.open_cassette is not None
    groups: dict[str | int, list[int]] = {}
    for number, path in enumerate(paths):
        groups.setdefault(path if one_by_one else number, []).append(number)
    # All threads take from one iterator, so each group goes to exactly one of them.
    work, answers = iter(list(groups.values())), SimpleQueue[tuple[int, Result]]()
    over = threading.Event()

    def send() -> None:
        for number in chain.from_iterable(work):
            if over.is_set():
                return
            try:
                result: Result = session.client.get(paths[number], extensions={CANCELLED: over})
            except Exception as error:
                result = without_traceback(error)
            answers.put((number, result))

    for _ in range(min(threads, len(groups))):
        threading.Thread(target=send, daemon=True).start()
    try:
        for _ in paths:
            yield answers.get()
    finally:
        over.set()


def pages(
    session: Session,
    /,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    page: str | None = None,
    offset: str | None = None,
    cursor: str | None = None,
    max_pages: int | None = None,
) -> Iterator[httpx.Response]:
    """Request the pages of a list, one after the other, paced as the session is.

    The next page is where the header ``Link`` or a URL named ``next`` in the body says, unless you
    name another way: ``page``, ``offset`` or ``cursor``. If a page says that there are more and not
    where, a warning says so. A page that is empty or repeats an earlier one ends the list, and is
    not yielded. ``frame(pages(…))`` is one frame of all their records.

    Parameters
    ----------
    path
        Below the base address.
    params
        The query of the first request: page size and start, as in ``{"limit": 100, "page": 0}``.
    page
        The query's parameter for the number of the page, which begins at its value in ``params``,
        else at 1. A page that is shorter than the first is the last, and so is one before a 404.
    offset
        The query's parameter for the number of the first record, which begins at its value in
        ``params``, else at 0. It ends as with ``page``.
    cursor
        Where in the body the token for the next page is: ``"next_cursor"``, or a dotted path such
        as ``"meta.next_cursor"``. It is sent back under its name without ``next``: as ``cursor``.
    max_pages
        The most pages to request; by default 1,000, with a warning if there are more.

    Yields
    ------
    httpx.Response
        A page.

    Raises
    ------
    ServiceError
        The service answered with an error status.
    InsecureAddressError
        The next page's URL is on another server than the session's: nothing is sent there.
    ValueError
        More than one of ``page``, ``offset`` and ``cursor`` is given, or ``max_pages`` is less than
        1; nothing is sent.
    """
    if sum(map(bool, (page, offset, cursor))) > 1:
        raise argument_error("pages() takes only one of page=, offset= and cursor=.")
    if max_pages is not None and max_pages < 1:
        raise argument_error(f"max_pages={max_pages} would send nothing. Give 1 or more.")
    url = session.client.build_request("GET", path, params=params).url
    if (counter := page or offset) and counter not in url.params:
        url = url.copy_set_param(counter, 1 if page else 0)
    return _pages(session, url, _Pager(session, page, offset, cursor), max_pages)


def _pages(
    session: Session, url: httpx.URL | None, pager: _Pager, max_pages: int | None
) -> Iterator[httpx.Response]:
    """Yield the pages. No local variable has a body, which a traceback would print."""
    urls: set[httpx.URL] = set()
    try:
        with ProgressBar(None, desc="GET", unit="page") as bar:
            while url is not None and url not in urls and len(urls) < (max_pages or _MOST_PAGES):
                urls.add(url)
                response = session.client.get(url)
                is_past_end = response.status_code == 404 and len(urls) > 1
                if is_past_end or not pager.read(session.check(response)):
                    return
                yield response
                bar.update()
                url = pager.next_url(response)
            if url is not None and url not in urls and max_pages is None:
                about = f"There are more than {_MOST_PAGES} pages. For more: pages(…, max_pages=…)."
                warnings.warn(about, stacklevel=2)
    except DirectMailLabError as error:
        failure = without_traceback(error)
    else:
        return
    raise failure


@dataclass(repr=False)
class _Pager:
    """Finds the URL of the next page; it holds the body of the last one that was read."""

    session: Session
    page: str | None
    offset: str | None
    cursor: str | None
    _first_count: int | None = None
    _body: object = None
    _count: int = 0
    _seen: set[int] = field(default_factory=set)

    def read(self, response: httpx.Response) -> bool:
        """Read a page; return whether it is the first, or has records that no other page has."""
        self._body, _ = read_json(response.content, response.charset_encoding)
        records, _ = unwrap(self._body, is_page=True)
        self._count = len(records) if isinstance(records, list) else 0
        key, is_first = hash(repr(records)), self._first_count is None
        is_new = key not in self._seen
        self._seen.add(key)
        if is_first:
            self._first_count = self._count
        return is_first or (bool(records) and is_new)

    def next_url(self, response: httpx.Response) -> httpx.URL | None:
        """Return the URL of the page after the one that was read; None if it was the last."""
        url = response.request.url
        has_more = next((flag for flag in self._named(*_HAS_MORE) if isinstance(flag, bool)), None)
        if has_more is False:
            return None
        if counter := self.page or self.offset:
            if has_more or self._count >= max(self._first_count or 0, 1):
                step = 1 if self.page else self._count
                return url.copy_set_param(counter, int(url.params[counter]) + step)
        elif self.cursor:
            if token := _at(self._body, self.cursor):
                name = self.cursor.rpartition(".")[2].removeprefix("next").lstrip("_")
                return url.copy_set_param(name[:1].lower() + name[1:], token)
        else:
            named = self._named("next")
            links = [each.get("href") if isinstance(each, dict) else each for each in named]
            header = response.links.get("next", {}).get("url")
            for link in (header, *links):
                if isinstance(link, str) and (link.startswith(("http", "/")) or "?" in link):
                    return self._own(url, link)
            has_more = has_more or any(links)
        if has_more:
            warnings.warn(_NO_WAY, stacklevel=3)
        return None

    def _named(self, *names: str) -> list[Any]:
        """Return the values under these names in the body, or in an object in it: `meta.next`."""
        body = self._body if isinstance(self._body, dict) else {}
        places = [body, *(value for value in body.values() if isinstance(value, dict))]
        return [place[name] for place in places for name in names if name in place]

    def _own(self, url: httpx.URL, link: str) -> httpx.URL:
        """Return a next page's URL, which must be on this session's server.

        In a replay it may name the recording's base address, which the session's then replaces.
        """
        base_url, cassette = self.session.base_url, self.session.open_cassette
        recorded = httpx.URL((cassette and cassette.base_url) or "")
        try:
            following = url.join(link)
        except httpx.InvalidURL:
            following = httpx.URL()
        if origin(following) == origin(httpx.URL(base_url)):
            return following
        if following.host and origin(following) == origin(recorded):
            path = path_below(str(following), recorded.path.rstrip("/"))
            return httpx.URL(base_url + path).copy_with(query=following.query)
        raise InsecureAddressError(
            f"The link to the next page leads to {following.scheme}://{following.host}, which is "
            "not this session's address, so nothing was sent there. Get the pages in another way, "
            'such as pages(…, page="page").'
        )


def _at(body: object, path: str) -> object:
    """Return the value at a dotted path, or None."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body
