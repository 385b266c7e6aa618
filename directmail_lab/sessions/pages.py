"""What `Session.get_many` and `Session.pages` do: many requests in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from decimal import Decimal
from json import loads
from typing import TYPE_CHECKING, Any

from ..arguments import argument_error, check_number
from ..display import Progress, plural, say_in_notebook
from ..errors import AddressError, DirectMailLabError
from ..exchange.httpx_values import httpx, parse_url
from ..exchange.next_page import Next, Page, PageList, page_of, uncertain_token
from ..exchange.sent_values import add_params, json_text
from ..settings import origin_of
from ..tracebacks import hide_frames, is_deliberate, warn_caller, without_traceback
from .clients.refusals import check, service_error
from .transports.extensions import EXTENSION, Batch, Call, received_of
from .transports.writes import IF_SENT

if TYPE_CHECKING:
    from .session import Session

Result = httpx.Response | Exception


_MOST_PAGES = 1_000
_MOST_EMPTY_PAGES = 25
_NAME_THE_WAY = 'page="page") or pages(…, offset="offset"'
_INTERRUPTED = "There is no response: get_many() was interrupted. Request this path again."


def get_many(session: Session, paths: Iterable[str], *, concurrency: int) -> list[Result]:
    """Send a GET request to each path; see `Session.get_many`."""
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        raise argument_error("get_many() takes a list of paths.")
    check_number("concurrency", concurrency, least=1)
    paths = list(paths)
    results: list[Result] = [DirectMailLabError(_INTERRUPTED) for _ in paths]
    # Positions in the paths, in groups whose requests are sent one after the other.
    groups: dict[str | int, list[int]] = {}
    for position, path in enumerate(paths):
        group = position if session.cassette is None else path
        groups.setdefault(group, []).append(position)
    batch = Batch(concurrency)

    def send_each(positions: Iterable[int]) -> None:
        for position in positions:
            if batch.is_over.is_set():
                return
            extensions = {EXTENSION: Call(batch=batch)}
            try:
                results[position] = session.client.get(paths[position], extensions=extensions)
            except Exception as error:
                results[position] = without_traceback(error) if is_deliberate(error) else error

    pool = ThreadPoolExecutor(concurrency)
    try:
        waiting = {pool.submit(send_each, group) for group in groups.values()}
        with Progress("GET", len(waiting)) as bar:
            while waiting:
                # On Windows before Python 3.14, Ctrl-C ends no wait without a timeout.
                done, waiting = wait(waiting, 0.2, FIRST_COMPLETED)
                bar.update(len(done))
    except KeyboardInterrupt:
        batch.is_over.set()
    pool.shutdown(wait=False, cancel_futures=True)
    results = results.copy()  # a thread may still change the list after an interrupt
    _say_failures(session, results)
    if batch.most < concurrency:
        _say(
            f"The service refused some requests while {concurrency} were under way (429), and "
            f"answered {plural(batch.most, 'request')} at a time. "
            f"To send no more at once: get_many(…, concurrency={batch.most})."
        )
    return Results(results)


class Results(list[Result]):
    """The results of `get_many`; a cell shows how many there are of each kind."""

    def __repr__(self) -> str:
        kinds = Counter[str]()
        for each in self:
            if isinstance(each, Exception):
                kinds[type(each).__name__] += 1
            else:
                kinds[f"{each.status_code} {each.reason_phrase}".rstrip()] += 1
        counts = [f"{name}: {count:,}" for name, count in kinds.items()]
        return " · ".join([plural(len(self), "result"), *counts])


def _say_failures(session: Session, results: list[Result]) -> None:
    """Say how many of the results are errors or have an error status, and what the first one is."""
    failed = [
        position
        for position, each in enumerate(results)
        if isinstance(each, Exception) or each.status_code >= 400
    ]
    if not failed:
        return
    first = results[failed[0]]
    redacted = session.recording.redactor.text
    if not isinstance(first, Exception):
        first = service_error(first, base_url=session.base_url, redacted=redacted)
    reason = getattr(first, "what", "") or redacted(str(first))
    text = f"{len(failed):,} of {plural(len(results), 'request')} failed"
    text += f"; the first, [{failed[0]}]: {reason}"
    _say(text)


def _say(text: str) -> None:
    if not say_in_notebook(text):
        warn_caller(text)


Place = tuple[httpx.URL, str]
"""What leads to a page: an address, and the JSON of a search by POST, or an empty text."""


def _members(content: str) -> dict[str, Any]:
    members: dict[str, Any] = loads(content or "{}", parse_float=Decimal)
    return members


def _query(place: Place) -> dict[str, str]:
    """Return the parameters of a page: those of its address and of its JSON."""
    url, content = place
    found = {name: str(value) for name, value in _members(content).items()}
    return dict(url.params) | found


def _moved(place: Place, parameter: str, value: object) -> Place:
    """Return the place with another value of a parameter."""
    url, content = place
    if content:
        return url, json_text({**_members(content), parameter: value})
    return url.copy_set_param(parameter, value), ""


class Pages(Iterator[httpx.Response]):
    """The pages of a list. Each is requested when it is asked for, and is yielded once.

    `Session.pages` has these parameters.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        params: Mapping[str, Any] | None,
        max_pages: int | None,
        method: str,
        json: Mapping[str, Any] | None,
        cursor: str | tuple[str, str] | None,
        **names: str | None,
    ) -> None:
        given = {option: name for option, name in names.items() if name is not None}
        for option, name in given.items():
            if not isinstance(name, str):
                raise argument_error(
                    f'{option}= is the name of a parameter, such as {option}="{option}". To start '
                    f'elsewhere: params={{"{option}": {name!r}}}.'
                )
        if len(given) > 1 or (given and cursor is not None):
            raise argument_error("pages() takes only one of page=, offset= and cursor=.")
        check_number("max_pages", 1 if max_pages is None else max_pages, least=1)
        member, parameter = cursor if isinstance(cursor, tuple) else (cursor, None)
        pages = PageList(given.get("page"), given.get("offset"), member, parameter)
        path, params = add_params(path, params)
        url = session.client.build_request("GET", path, params=params).url
        start = (url, "" if json is None else json_text(json))
        counter = pages.page or pages.offset
        if counter and counter not in _query(start):
            start = _moved(start, counter, 1 if pages.page else 0)
        self._session = session
        self._method = method
        self._pages = pages
        self._place: Place | None = start  # None after the last page
        shown = session.recording.redactor.text(url.path)
        self._title = f"{method} {shown}"
        self._call = f'pages("{shown}"'
        self._requested: set[Place] = set()
        # Why records may be missing, and what to do.
        self._problem = ""
        self._advice = ""
        self._responses = self._each(max_pages)

    def __next__(self) -> httpx.Response:
        return next(self._responses)

    def __repr__(self) -> str:
        return (
            f"<Pages of {self._title}: each is requested when a loop asks for it. "
            "frame(pages(…)) makes one frame of them all.>"
        )

    def _each(self, max_pages: int | None) -> Iterator[httpx.Response]:
        with Progress(self._title, unit="page") as bar:
            for _ in range(max_pages or _MOST_PAGES):
                response = self._next_page()
                if response is None:
                    return
                if self._pages.received:
                    bar.unit = "record"
                    bar.total = self._pages.total
                    bar.done = self._pages.received - 1
                bar.update()
                yield response
        if max_pages is None and self._place is not None:
            warn_caller(f"Stopped after {_MOST_PAGES} pages.", "For more: pages(…, max_pages=…).")

    @hide_frames  # the locals contain bodies
    def _next_page(self) -> httpx.Response | None:
        """Return the next page that has records, or a first one without; None after the last."""
        for _ in range(_MOST_EMPTY_PAGES):
            is_first = not self._requested
            place = self._place
            if place is None or place in self._requested:
                self._warn_if_incomplete()
                return None
            self._requested.add(place)
            response = self._sent(place)
            page = self._read(place, response)
            self._place = None if page is None else self._next_place(place, page)
            if page is not None:
                is_list = page.records is not None or page.body == {}
                if is_first or page.content or not is_list:
                    return response
        self._place = None
        self._problem = f"{_MOST_EMPTY_PAGES} pages without records came one after the other."
        self._warn_if_incomplete()
        return None

    def _sent(self, place: Place) -> httpx.Response:
        url, content = place
        options: dict[str, Any] = {"json": _members(content)} if content else {}
        # A page is read, also by POST: whoever runs a cell again searches again.
        return self._session.client.request(
            self._method, url, extensions={IF_SENT: "send"}, **options
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
        received_of(check(response, self._session.base_url)).is_page = True
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
        elif self._pages.cursor:
            self._problem = f"There may be more: the page has no field {self._pages.cursor!r}."
        else:
            self._problem = "There may be more: the last page does not say that it is the last."
        token = uncertain_token(page)
        way = 'cursor=("FIELD", "PARAMETER")' if self._pages.cursor else _NAME_THE_WAY
        self._advice = f'cursor="{token}"' if token else way
        return None

    def _place_of(self, place: Place, answer: Next) -> Place | None:
        url, content = place
        if answer.address:
            return self._checked(url.join(parse_url(answer.address))), content
        if answer.parameter:
            return _moved(place, answer.parameter, answer.value)
        return None

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
        text = f"{self._title}: {came} came. {self._problem}"
        if self._advice:
            text += f" For all, name the parameter: {self._call}, {self._advice})."
        warn_caller(text.rstrip())

    def _checked(self, url: httpx.URL) -> httpx.URL:
        """Return a URL from a page, if it is on the session's server or the session replays."""
        own = origin_of(parse_url(self._session.base_url))
        if self._session.mode == "replay" or origin_of(url) == own:
            return url
        place = f"{url.scheme}://{url.netloc.decode('ascii')}"
        raise AddressError(
            f"The link to the next page leads to {place}, which is not this session's address: "
            "nothing was sent there.",
            'Try pages(…, page="page").',
        )
