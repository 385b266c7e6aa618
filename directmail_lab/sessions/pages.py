"""What `Session.get_many` and `Session.pages` do: many requests in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..arguments import argument_error, check_number
from ..display import Progress, plural, say_in_notebook
from ..errors import AddressError, DirectMailLabError
from ..exchange.httpx_values import httpx, parse_url
from ..exchange.next_page import End, Next, Seen, Way, page_of, parameter_of, refusal, step
from ..exchange.operations import base_path, path_below, with_query
from ..exchange.sent_values import add_params
from ..redaction.key import has_placeholder
from ..settings import origin_of
from ..tracebacks import hide_frames, is_deliberate, warn_caller, without_traceback
from .clients.refusals import check, service_error
from .transports.extensions import EXTENSION, Batch, Call, received_of
from .transports.writes import IF_SENT

if TYPE_CHECKING:
    from .session import Session

Result = httpx.Response | Exception


_MOST_PAGES = 1_000
_MOST_EMPTY_PAGES = 2
_INTERRUPTED = "There is no response: dm.get_many() was interrupted. Request this path again."


def get_many(session: Session, paths: Iterable[str], *, concurrency: int) -> list[Result]:
    """Send a GET request to each path; see `Session.get_many`."""
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        raise argument_error("dm.get_many() takes a list of paths.")
    check_number("concurrency", concurrency, least=1)
    paths = list(paths)
    results: list[Result] = [DirectMailLabError(_INTERRUPTED) for _ in paths]
    groups = _groups(paths, are_apart=session.cassette is None)
    batch = Batch(concurrency)

    def send_each(positions: list[int]) -> int:
        for position in positions:
            if batch.is_over.is_set():
                break
            extensions = {EXTENSION: Call(batch=batch)}
            try:
                results[position] = session.client.get(paths[position], extensions=extensions)
            except Exception as error:
                results[position] = without_traceback(error) if is_deliberate(error) else error
        return len(positions)

    pool = ThreadPoolExecutor(concurrency)
    finished: SimpleQueue[Future[int]] = SimpleQueue()
    try:
        for group in groups:
            pool.submit(copy_context().run, send_each, group).add_done_callback(finished.put)
        with Progress("GET", len(paths)) as bar:
            for _ in groups:
                bar.update(_first(finished).result())
    except KeyboardInterrupt:
        batch.is_over.set()
    pool.shutdown(wait=False, cancel_futures=True)
    results = results.copy()  # a thread may still change the list after an interrupt
    _say_failures(session, results)
    if batch.most < concurrency:
        _say(
            f"The service refused some requests while {concurrency} were under way (429), and "
            f"answered {plural(batch.most, 'request')} at a time. "
            f"To send no more at once: dm.get_many(…, concurrency={batch.most})."
        )
    return Results(results)


def _groups(paths: list[str], *, are_apart: bool) -> list[list[int]]:
    """Return positions in the paths, in groups whose requests are sent one after the other."""
    groups: dict[str | int, list[int]] = {}
    for position, path in enumerate(paths):
        groups.setdefault(position if are_apart else path, []).append(position)
    return [*groups.values()]


def _first(finished: SimpleQueue[Future[int]]) -> Future[int]:
    """Wait for a future. Ctrl-C in `concurrent.futures.wait` leaves all of them locked."""
    while True:
        # On Windows before Python 3.14, Ctrl-C ends no wait without a timeout.
        with suppress(Empty):
            return finished.get(timeout=0.2)


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


Place = tuple[httpx.URL, Mapping[str, Any] | None]
"""What leads to a page: an address, and the JSON of a search by POST, or None."""


def _query(place: Place) -> dict[str, str]:
    """Return the parameters of a page: those of its address and of its JSON."""
    url, search = place
    found = {name: str(value) for name, value in (search or {}).items()}
    return dict(url.params) | found


class Known:
    """The records that came before, by each field that differs in all those of a first page."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] | None = None

    def add(self, records: list[Any]) -> list[int]:
        """Add the records of a page; return how many came before, by each of the fields."""
        rows = [each if isinstance(each, dict) else {"": each} for each in records]
        values = {name: {repr(row.get(name)) for row in rows} for name in (rows or [{}])[0]}
        if self._values is None and rows:
            self._values = {name: set() for name in values if len(values[name]) == len(rows)}
        counts = []
        for name, seen in (self._values or {}).items():
            counts.append(len(values.get(name, set()) & seen))
            seen |= values.get(name, set())
        return counts


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
        **ways: str | tuple[str, str] | None,
    ) -> None:
        check_number("max_pages", 1 if max_pages is None else max_pages, least=1)
        path, params = add_params(path, params)
        url = session.client.build_request("GET", path, params=params).url
        self._session = session
        self._method = method
        self._seen = Seen(_way_of(ways))
        self._end = End()
        # None after the last page.
        self._place: Place | None = (url, json)
        self._known = Known()
        self._title = f"{method} {session.recording.redactor.text(url.path)}"
        self._call = self._call_at(self._place)
        self._most = max_pages
        self._responses = self._each()

    def __next__(self) -> httpx.Response:
        try:
            return next(self._responses)
        except StopIteration:
            raise
        except BaseException:
            self._responses = self._each()  # whoever asks again gets the page that failed
            raise

    def __repr__(self) -> str:
        return (
            f"<Pages of {self._title}: each is requested when a loop asks for it. "
            "dm.frame(dm.pages(…)) makes one frame of them all.>"
        )

    @property
    def next_call(self) -> str:
        """The call that requests the next page, and those after it."""
        return "" if self._place is None else f"{self._call_at(self._place)})"

    def _call_at(self, place: Place) -> str:
        """Return the start of the call that requests the pages from one on, with its query."""
        url, search = place
        path = path_below(str(url), base_path(self._session.base_url))
        shown = self._session.recording.redactor.text(with_query(path, str(url)))
        how = "" if search is None else f', method="{self._method}", json=…'
        return f'dm.pages("{shown}"{how}'

    def _each(self) -> Iterator[httpx.Response]:
        with Progress(self._title, unit="page") as bar:
            while self._seen.pages < (self._most or _MOST_PAGES):
                with bar.running():
                    response = self._next_page()
                if response is None:
                    return
                if self._seen.received:
                    bar.unit = "record"
                    bar.total = self._seen.total
                    bar.done = self._seen.received - 1
                bar.update()
                yield response
        if self._most is None and self._place is not None:
            warn_caller(
                f"Stopped after {_MOST_PAGES} pages.", "For more: dm.pages(…, max_pages=…)."
            )

    @hide_frames  # the locals contain bodies
    def _next_page(self) -> httpx.Response | None:
        """Return the next page that has records, or a first one without; None after the last."""
        empty = 0
        while self._place is not None and empty < _MOST_EMPTY_PAGES:
            place = self._place
            response = self._sent(place)
            self._place = None
            before = self._seen.pages
            empty += 1
            if response.status_code >= 400:
                self._end = refusal(self._seen, response.status_code)
                continue
            page = page_of(response, _query(place))
            page.known = self._known.add(page.records or [])
            self._seen, answer = step(self._seen, page)
            if isinstance(answer, End):
                self._end = answer
            else:
                self._place = self._place_of(place, answer)
                if has_placeholder(f"{answer.address}{answer.value}"):  # it stands for any token
                    self._seen = replace(self._seen, nexts=self._seen.nexts - {answer})
            if self._seen.pages > before and (before == 0 or page.content):
                return response
        if self._place is not None:
            self._place = None
            self._end = End(f"{empty} pages without records came one after the other.")
        self._warn_if_incomplete()
        return None

    def _sent(self, place: Place) -> httpx.Response:
        """Return the response for a page, which may be a refusal of one after the first."""
        url, search = place
        options: dict[str, Any] = {} if search is None else {"json": search}
        # A page is read, also by POST: whoever runs a cell again searches again.
        response = self._session.client.request(
            self._method, url, extensions={IF_SENT: "send"}, **options
        )
        is_refusal = 400 <= response.status_code < 500 and response.status_code != 429
        if not (self._seen.pages and is_refusal):
            received_of(check(response, self._session.base_url)).is_page = True
        return response

    def _place_of(self, place: Place, answer: Next) -> Place:
        url, search = place
        if answer.address:
            return self._checked(url.join(parse_url(answer.address))), search
        if search is None:
            return url.copy_set_param(answer.parameter, answer.value), None
        return url, {**search, answer.parameter: answer.value}

    def _warn_if_incomplete(self) -> None:
        seen = self._seen
        problem = self._end.problem
        if seen.repeated and not problem:
            problem = f"{seen.repeated:,} of them came before."
        if not problem and not seen.is_short:
            return
        if seen.received is None:
            came = "no list of records"
        elif seen.is_short:
            came = f"{seen.received:,} of {plural(seen.total, 'record')}"
        else:
            came = plural(seen.received, "record")
        text = f"{self._title}: {came} came. {problem}"
        if self._end.advice:
            text += f" For all, name the parameter: {self._call}, {self._end.advice})."
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
            'Try dm.pages(…, page="page").',
        )


def _way_of(options: Mapping[str, Any]) -> Way:
    """Return the way to the next page that the caller of `pages` names."""
    given = {option: name for option, name in options.items() if name is not None}
    for option, name in given.items():
        is_pair = option in ("cursor", "after") and isinstance(name, tuple)
        if not isinstance(name, str) and not is_pair:
            raise argument_error(
                f'{option}= is the name of a parameter, such as {option}="{option}". To start '
                f'elsewhere: params={{"{option}": {name!r}}}.'
            )
    if len(given) > 1:
        raise argument_error("dm.pages() takes only one of page=, offset=, cursor= and after=.")
    for option, name in given.items():
        if isinstance(name, tuple):
            return Way(option, name[1], name[0])
        if option == "cursor":
            return Way(option, parameter_of(name.rpartition(".")[2]), name)
        return Way(option, name, "id")
    return Way()
