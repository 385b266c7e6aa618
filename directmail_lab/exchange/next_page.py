"""What the pages of a list say about the next one.

`step` folds the pages: it returns what is known of the list after one more page, and how to request
the `Next`, or the `End`. The first of the `_RULES` that knows which gives it.

An end is believed on evidence: on one strong sign, or on two weak ones that agree. Strong: a flag;
an empty page; a link, a token or a total that announced more before, and does not any more; the
last number; fewer records than on the first page. Weak, since services say it of each page or
without need: a total or a null link that never announced more, fewer records than were asked for, a
refusal, a token such as -1. Else one more page is asked for, or the end says why records may be
missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .bodies import (
    Path,
    is_usual_list,
    leaves,
    path_of_records,
    plain_name,
    read_json,
    table_in,
    unwrap,
)
from .httpx_values import httpx


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A page says these things at its top level, in its headers, or in objects with one of these names.
_AROUND = _names(
    "cursors data info links meta metadata page pageinfo pagination paging responsemetadata result "
    "resultinfo"
)
_ADDRESSES = _names(
    "next nexthref nextlink nextpage nextpagelink nextpageuri nextpageurl nexturi nexturl"
)
_ADDRESS_MEMBERS = _names("href link uri url")
# Each is the rest of a name that begins with "next".
_TOKENS = _names(
    "after cursor marker offset page pagecursor pageid pagenumber pagetoken skip start startindex "
    "token"
)
_UNCERTAIN_TOKENS = _names(
    "after continuation continuationtoken cursor endcursor pagetoken scrollid"
)
_MORE = _names("hasmore hasnext hasnextpage more moreavailable")
_IS_LAST = _names("islast islastpage last lastpage")
_TOTALS = _names(
    "count total totalcount totalelements totalitems totalnumberofrecords totalrecords totalresults"
)
_PAGE_COUNTS = _names("numberofpages numpages pagecount pages totalpages")
_PAGE_NUMBERS = _names("currentpage number page pageno pagenumber")
_OFFSETS = _names("offset pageoffset skip start startat startindex")
_PAGE_SIZES = _names("pagesize perpage size")
_LIMITS = _names("itemsperpage limit maxresults pagelimit top")
_SIZES = _PAGE_SIZES | _LIMITS
_COUNTERS = _PAGE_NUMBERS | _OFFSETS
_ERRORS = _names("error errors message")
# Their values are numbers, also those that are written as text.
_NUMBERS = _TOTALS | _PAGE_COUNTS | _COUNTERS | _SIZES | {"lastpage"}
_USUAL_SIZES = (10, 15, 20, 25, 30)
# All that a body says of its page, and not of its records.
_OF_A_PAGE = _names(
    "aggregations code constraints error errors facets filter first help included jsonapi kind "
    "message messages object ok query requestid responseid search self sort startcursor status "
    "statuscode subtotal success timestamp took type version warnings"
).union(
    _AROUND,
    _ADDRESSES,
    _TOKENS,
    _UNCERTAIN_TOKENS,
    _MORE,
    _IS_LAST,
    _TOTALS,
    _PAGE_COUNTS,
    _PAGE_NUMBERS,
    _OFFSETS,
    _PAGE_SIZES,
    _LIMITS,
)
# The names under which a body repeats the parameter "page".
_PAGE_ALIASES = _names("currentpage number")

_MOST_DIGITS = 18
# What a service may send as the token after the last page.
_NO_TOKENS = _names("-1 0 false nil none null undefined")
_NAME_THE_WAY = 'page="page") or dm.pages(…, offset="offset"'
_NAME_THE_ID = 'after="starting_after") or dm.pages(…, page="page"'
# Beside a list, these are said of one record.
_OF_A_RECORD = re.compile(r"(?:^|_)(?:description|email|g?u?id|name|title)$|[a-z]I[dD]$")


@dataclass(frozen=True, slots=True)
class Next:
    """How to request the next page: at an address, or with this value of one parameter.

    ``counts`` says whether the value is a number that was counted, and not one from the page.
    ``member`` is the path in the body of a value from there. ``tried`` says what the page is
    requested for: "start" or "unit", to learn from which number the service counts, or what;
    "guess", since the parameter is not named.
    """

    address: str = ""
    parameter: str = ""
    value: object = None
    counts: bool = False
    member: str = ""
    tried: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the list: why records may be missing, and the option that may get them."""

    problem: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """The way to the next page that the caller names: an option of `pages`, such as ``page``.

    ``parameter`` is the one of the query, if that was named, and ``member`` the path of the token
    in the body, or the field of the last record.
    """

    option: str = ""
    parameter: str = ""
    member: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a list after some of its pages.

    Attributes
    ----------
    way
        The way that the caller names.
    asked
        How the last page was requested.
    pages
        How many pages came, without those that came before.
    received
        How many records came; None if a page has no list of them.
    repeated
        How many of them came before.
    total
        How many records the list has, as the last page that says it; 0 if none does.
    size
        How many records the first page has.
    first
        The number of the first page or record, if one is known or assumed.
    starts
        The names under which a page says the start of the next one.
    said
        The kinds of statements of the last page, and whether each says that there are more.
    announced
        The kinds of statements that have announced more.
    contents, nexts
        What the pages had, and how the next ones were requested.
    """

    way: Way = Way()
    asked: Next = Next()
    pages: int = 0
    received: int | None = 0
    repeated: int = 0
    total: int = 0
    size: int = 0
    first: int | None = None
    starts: frozenset[str] = frozenset()
    said: Mapping[str, bool] = field(default_factory=dict)
    announced: frozenset[str] = frozenset()
    contents: tuple[int, ...] = ()
    nexts: frozenset[Next] = frozenset()

    @property
    def says_more(self) -> bool:
        """Whether the last page says that there are more."""
        return any(self.said.values())

    @property
    def looks_last(self) -> bool:
        """Whether the last page has a weak sign that it is the last, and none that it is not."""
        return bool(self.said) and not self.says_more

    @property
    def counter(self) -> str:
        """The parameter that the caller names for the number of a page or a record, or nothing."""
        return self.way.parameter if self.way.option in ("page", "offset") else ""

    @property
    def is_short(self) -> bool:
        """Whether fewer records came than the list has, from its start on."""
        return (self.first or 0) <= 1 and (self.received or 0) < self.total

    @property
    def place(self) -> str:
        """Where the last page was requested."""
        if self.asked.parameter:
            return f"?{self.asked.parameter}={self.asked.value}"
        return f"The link to page {self.pages + 1}"

    def doubt(self, problem: str) -> End:
        """Return an end for which there is too little evidence."""
        if self.asked.tried == "guess" and not self.says_more:
            problem = f"There may be more: {problem}"
        if self.asked.member:
            return End(problem, f'cursor=("{self.asked.member}", "…")')
        if self.way.option:  # what the caller names leads no further
            return End(problem)
        return End(problem, _NAME_THE_ID if "flag" in self.announced else _NAME_THE_WAY)


@dataclass(frozen=True, slots=True)
class Counter:
    """A parameter of the query that counts pages or records, and its value for one page.

    It is a guess if only the size of a page is known: ``offset`` goes with ``limit``.
    """

    parameter: str
    number: int
    counts_pages: bool
    is_guess: bool = False


@dataclass(slots=True)
class Page:
    """One page of a list, and what it says about itself.

    Attributes
    ----------
    query
        The query of its request.
    body
        Its JSON.
    records
        Its records; None if the body has no list of them.
    links
        What it says about the next page's address: a `Next`, or a value that is none, such as None.
    fields
        Its other statements by their plain names, each with its name as written and its value.
    flags
        Its flags: True if it says that there are more pages.
    known
        How many of its records came before, by each field that tells records apart.
    """

    query: Mapping[str, str]
    body: object
    records: list[Any] | None = None
    links: list[object] = field(default_factory=list)
    fields: dict[str, tuple[str, Any]] = field(default_factory=dict)
    flags: list[bool] = field(default_factory=list)
    known: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records it has; 0 if the body has no list of them."""
        return len(self.records or ())

    @property
    def last(self) -> dict[str, Any]:
        """Its last record; an empty one if there is none, or it is no object."""
        last = self.records[-1] if self.records else {}
        return last if isinstance(last, dict) else {}

    @property
    def content(self) -> object:
        """Its records, or else all values below its members, which may be records by their ids."""
        if self.records is not None:
            return self.records
        content = []
        for path, value in leaves(self.body):
            is_around = bool(path) and plain_name(path[0]) in _AROUND
            if value and (isinstance(value, list) or len(path) > 1 + is_around):
                content.append((path, value))
        return content

    def number(self, names: Iterable[str]) -> int:
        """Return the largest number that the page states under one of these names, or 0."""
        values = [self.fields[name][1] for name in names if name in self.fields]
        return max([0, *[value for value in values if type(value) is int]])

    @property
    def stated_size(self) -> int:
        """How many records the service says that a page has at most; 0 if it does not."""
        return self.number(_SIZES)

    @property
    def asked_size(self) -> int:
        """How many records were asked for; 0 if no number was."""
        sizes = [_integer(self.query[name]) for name in self.query if plain_name(name) in _SIZES]
        return next(filter(None, sizes), 0)


def page_of(response: httpx.Response, query: Mapping[str, str]) -> Page:
    """Return the page of a list that is the response to this query."""
    headers = tuple(response.headers.items())
    body, _ = read_json(response.content, response.charset_encoding)
    table = table_in(headers, response.url.path, response.content)
    if table:
        body = [dict(zip(table.names, row, strict=True)) for row in table.rows]
    place = path_of_records(body)
    records, _ = unwrap(body, place)
    page = Page(query, body, records if isinstance(records, list) else None)
    for rel, link in response.links.items():
        if "next" in str(rel).lower().split():
            page.links.append(Next(address=link["url"]))
    for name, text in headers:
        _add_header(page, name.lower(), text)
    inside = place[:-1]  # what is said beside the records is said of the page
    for path, value in leaves(body):
        if path[: len(inside)] == inside:
            path = path[len(inside) :]
        if path:
            _add_field(page, path, value)
    is_json = not response.content.strip() or isinstance(body, dict)
    if is_json and not page.content and _ERRORS.isdisjoint(page.fields):
        page.records = []  # {}, or null in place of records
    return page


def path_of_rows(body: object, *, is_page: bool = False) -> Path:
    """Return the path to the rows of a body: its only list, if all else in it is about the page.

    It is ``items`` in ``{"items": [{"id": 1}], "next": null}``, which is no record itself. In what
    the caller says is a page, anything may be beside it.
    """
    path = path_of_records(body) if is_page else only_list(body)
    members = body if isinstance(body, dict) else {}
    data = members.get("data")
    # A record may have a member "data" itself: {"id": "evt_1", "type": "sent", "data": {…}}.
    is_data = isinstance(data, list) or (isinstance(data, dict) and "id" not in members)
    return ("data",) if is_data and not path else path


def only_list(body: object) -> Path:
    """Return the path to the records of a body, or nothing if what is beside them is of a record.

    That is an id or a name. Unless the list has a usual name, or stands beside the number and the
    size of its page, it is any text, object or array that says nothing of a page.
    """
    path = path_of_records(body)
    beside: Any = body
    for inner in path:
        names = set(map(plain_name, beside))
        is_counted = not (names.isdisjoint(_COUNTERS) or names.isdisjoint(_SIZES))
        for name, value in beside.items():
            plain = plain_name(name)
            if name == inner or plain in _OF_A_PAGE or plain.startswith(("next", "prev")):
                continue
            says_more = value and isinstance(value, str | dict | list) and not is_counted
            if _OF_A_RECORD.search(name) or (says_more and not is_usual_list(path[-1])):
                return ()
        beside = beside[inner]
    return path


def _add_header(page: Page, name: str, text: str) -> None:
    """Add what a header says: ``X-Total-Count``, ``Next-Page``, ``Content-Range``."""
    if name == "content-range":
        unit, _, total = text.partition("/")
        if not unit.startswith("bytes"):
            page.fields["total"] = ("total", _integer(total))
    elif name.endswith("pagination"):  # ASP.NET: X-Pagination: {"HasNext": true}
        body, _ = read_json(text.encode())
        for path, value in leaves(body):
            _add_field(page, path, value)
    elif name.startswith(("x-", "next-")) or plain_name(name) in _TOTALS:
        written = re.sub("^x-(wp-|pagination-)?", "", name).replace("-", "_")
        number = _integer(text)
        value = text if number is None else number
        page.fields[plain_name(written)] = (written, value)


def _add_field(page: Page, path: Path, value: object) -> None:
    """Add what a member of the body says, if it is about the page and not about a record."""
    *around, name = map(plain_name, path)
    if around[-1:] in (["next"], ["nextpage"]):  # {"next": {"href": …}}, {"next": {"after": …}}
        around.pop()
        name = "next" if name in _ADDRESS_MEMBERS else f"next{name}"
    if around[-1:] == ["total"]:  # {"total": {"value": 25}}
        name = around.pop()
    if not _AROUND.issuperset(around):
        return
    if name in ("link", "links") and isinstance(value, list):
        for each in value:
            if isinstance(each, dict) and str(each.get("rel")).lower() == "next":
                page.links.append(_link(each.get("href")))
    elif name in _ADDRESSES:
        page.links.append(_link(value))
    if isinstance(value, bool) and name in _MORE | _IS_LAST:
        page.flags.append(value is (name in _MORE))
    if name in _NUMBERS and isinstance(value, str) and value.isdecimal():
        value = _integer(value)
    page.fields.setdefault(name, (path[-1], value))


def _link(value: object) -> object:
    """Return how to request the next page if a value is its address; it may also be a token."""
    if isinstance(value, str) and (value.startswith(("http", "/")) or "?" in value):
        return Next(address=value)
    return value


def _integer(text: str) -> int | None:
    # Python refuses to parse thousands of digits.
    return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else None


def step(seen: Seen, page: Page) -> tuple[Seen, Next | End]:
    """Return what is known of a list after one more page, and how to request the next one."""
    tried = seen.asked.tried
    if not _is_repeat(seen, page):
        if tried == "unit":
            parameter = seen.asked.parameter
            problem = f"{parameter} counts pages here, and not records."
            return seen, End(problem, f'page="{parameter}"')
        if page.records is None and seen.size:
            return seen, End(f"{seen.place} has no list of records.")
        seen = _with(seen, page)
    elif tried == "start":  # the page without a number has number 1
        seen = replace(seen, first=1)
    else:
        return seen, _end_of_repeat(seen, page)
    answers = (rule(seen, page) for rule in _RULES)
    answer = next(each for each in answers if each is not None)
    if answer in seen.nexts:
        return seen, _end_of_repeat(seen, page)
    if isinstance(answer, Next):
        seen = replace(seen, asked=answer, nexts=seen.nexts | {answer})
    return seen, answer


def refusal(seen: Seen, status: int) -> End:
    """Return the end of a list whose next page was refused."""
    agrees = seen.looks_last or status == 404 or seen.asked.tried == "unit"
    if seen.asked.counts and not seen.says_more and agrees:
        return End()
    return seen.doubt(f"{seen.place} has status {status}.")


def _with(seen: Seen, page: Page) -> Seen:
    """Return what is known of a list with a page that did not come before."""
    has_list = seen.received is not None and page.records is not None
    starts = seen.starts
    if not seen.pages:
        starts = frozenset(name for name in page.fields if _says_the_next_start(page, name))
    seen = replace(
        seen,
        pages=seen.pages + 1,
        received=(seen.received or 0) + page.count if has_list else None,
        repeated=seen.repeated + min(page.known[:2], default=0),  # one may be a mere name
        total=page.number(_TOTALS) or seen.total,
        size=seen.size or page.count,
        starts=starts,
        contents=(*seen.contents, _content(page)),
    )
    counter = _counter(seen, page)
    if seen.pages == 1 and counter is not None:
        seen = replace(seen, first=counter.number)
    said = _statements(seen, page, counter)
    announced = seen.announced.union(kind for kind, has_more in said.items() if has_more)
    return replace(seen, said=said, announced=announced)


def _is_repeat(seen: Seen, page: Page) -> bool:
    """Return whether a page came before. Equal pages with other numbers or links are several."""
    asked = seen.asked
    if asked.tried in ("start", "unit") and page.count in page.known:
        return True
    if not page.content or _content(page) not in seen.contents:
        return False
    _, stated = page.fields.get(plain_name(asked.parameter), ("", None))
    return stated != asked.value if asked.counts else _by_token(seen, page) in seen.nexts


def _end_of_repeat(seen: Seen, page: Page) -> End:
    """Return the end at a page that came before: the last one again, or links in a circle."""
    counts = seen.asked.counts
    is_known = not seen.says_more if counts else _content(page) == seen.contents[0]
    if seen.asked.tried == "unit" or "size" in seen.said or (seen.pages > 1 and is_known):
        return End()
    return seen.doubt(f"{seen.place} leads to a page that came before.")


def _statements(seen: Seen, page: Page, counter: Counter | None) -> dict[str, bool]:
    """Return the kinds of statements of a page, and whether each says that there are more."""
    said = {}
    count = page.count
    if page.flags:
        said["flag"] = all(page.flags)
    if page.links or "link" in seen.announced:
        said["link"] = any(page.links)
    if count and seen.total:
        end = seen.received or 0
        if counter is not None and not counter.counts_pages:
            # A list may count from 1. Then record 7 of 7 is still to come when the next is 7.
            end = counter.number + count - (seen.first == 1)
        said["total"] = end < seen.total
    last = page.number([*_PAGE_COUNTS, "lastpage"])
    if last and counter is not None and counter.counts_pages:
        # Three pages are 0, 1 and 2, or 1, 2 and 3.
        is_count = seen.first == 0 and not page.number(["lastpage"])
        said["pages"] = counter.number < last - is_count
    # A service's own limit for a page is a round number, and may be less than was asked for.
    size = 0 if _is_round(count) else page.stated_size or page.asked_size
    if count < seen.size or 0 < count < size:
        said["size"] = False
    return said


# -- the rules: each returns what is next, or None if it does not know -----------------------------


def _by_flag(_seen: Seen, page: Page) -> End | None:
    return End() if False in page.flags else None


def _by_named_cursor(seen: Seen, page: Page) -> Next | End | None:
    if seen.way.option != "cursor":
        return None
    cursor = seen.way.member
    path = tuple(cursor.split("."))
    values = dict(leaves(page.body))
    if values.get(path):
        return _token_or_end(seen, seen.way.parameter, values[path], cursor)
    # Under another name, there is another page.
    has_more = True in page.flags or _by_token(replace(seen, way=Way()), page)
    if has_more or (seen.pages == 1 and page.content and path not in values):
        problem = f"There may be more: the page has no field {cursor!r}."
        return _with_token(page, End(problem, 'cursor=("FIELD", "PARAMETER")'))
    return End()


def _by_missing_id(seen: Seen, page: Page) -> End | None:
    """Return the end of a list whose last record has no id of the name that is to be sent."""
    way = seen.way
    if way.option != "after" or seen.looks_last or not page.records:
        return None
    if page.last.get(way.member) is not None:
        return None
    name = next(iter(page.last), "FIELD")
    problem = f"There may be more: the last record has no {way.member!r}."
    return End(problem, f'after=("{name}", "{way.parameter}")')


def _by_token(seen: Seen, page: Page) -> Next | End | None:
    """Return the address or the token by which a page leads to another one."""
    if seen.way.option:
        return None
    for link in page.links:
        if isinstance(link, Next):
            return link
    is_whole = 0 < seen.total <= (seen.received or 0)
    for plain, (name, value) in page.fields.items():
        if not value or type(value) not in (str, int):
            continue
        if plain in seen.starts and not is_whole and str(value) != page.query.get(name):
            return Next(parameter=name, value=value, member=name)
        parameter = parameter_of(name)
        is_token = plain.removeprefix("next") in _TOKENS or parameter in page.query
        if plain.startswith("next") and is_token:
            return _token_or_end(seen, parameter, value, name)
    return None


def _by_end_of_content(seen: Seen, page: Page) -> Next | End | None:
    """Return the end before an empty page, unless an offset may be the number of a page."""
    counter = _counter(seen, page)
    if page.content or (page.records is None and counter is None):
        return None
    asked = seen.asked
    is_offset = counter is not None and not counter.counts_pages
    if is_offset and asked.counts and not asked.tried and seen.pages == 2 and _is_round(seen.size):
        return replace(asked, value=(seen.first or 0) + 1, tried="unit")
    return End()


def _by_statements(seen: Seen, page: Page) -> Next | End | None:
    """Return what one statement that has announced more says, or two that agree."""
    is_unread = page.records is None and seen.counter and "pages" not in seen.said
    if seen.says_more or is_unread:
        problem = "The last page says that there are more, but not how to request them."
        return _following(seen, page) or _with_token(page, seen.doubt(problem))
    is_certain = not seen.said.keys().isdisjoint({*seen.announced, "pages"})
    is_led = seen.pages > 1 and not seen.asked.counts
    is_shorter = page.count < seen.size
    return End() if is_certain or is_led or is_shorter or len(seen.said) > 1 else None


def _by_number(seen: Seen, page: Page) -> Next | None:
    """Return the next number, unless it is a guess and the page is said to be not full."""
    following = _following(seen, page)
    is_guess = following is not None and following.tried == "guess"
    return None if is_guess and page.stated_size > seen.size else following


def _by_doubt(seen: Seen, page: Page) -> End:
    """Return the end of a page that says nothing of others, with a doubt if it may be full.

    ``GET /reviews`` may respond with a bare array of the first 10 of 30 reviews.
    """
    says_nothing = not (page.stated_size or page.links or seen.total)
    if uncertain_token(page) or (_is_round(seen.size) and says_nothing):
        problem = "There may be more: the last page does not say that it is the last."
        return _with_token(page, seen.doubt(problem))
    return End()


_RULES: tuple[Callable[[Seen, Page], Next | End | None], ...] = (
    _by_flag,
    _by_named_cursor,
    _by_missing_id,
    _by_token,
    _by_end_of_content,
    _by_statements,
    _by_number,
    _by_doubt,
)


# -- what they need --------------------------------------------------------------------------------


def _following(seen: Seen, page: Page) -> Next | None:
    """Return the next number of a page or of a record, or the place after the last record."""
    way = seen.way
    if way.option == "after":
        value = page.last.get(way.member)
        return None if value is None else Next(parameter=way.parameter, value=value, counts=True)
    counter = _counter(seen, page)
    step = page.count or page.asked_size or page.stated_size
    if counter is None or not (step or counter.counts_pages):
        return None
    value = counter.number + (1 if counter.counts_pages else step)
    tried = ""
    if seen.pages == 1 and counter.is_guess:
        tried = "start" if way.option == "page" else "guess"
    return Next(parameter=counter.parameter, value=value, counts=True, tried=tried)


def _counter(seen: Seen, page: Page) -> Counter | None:
    """Return the parameter that counts pages or records, as the caller or the page names it."""
    named = seen.counter
    is_page = seen.way.option == "page"
    found = None
    for plain, (name, value) in page.fields.items():
        is_other = plain in seen.starts or (plain == "number" and not page.number(_PAGE_COUNTS))
        if type(value) is int and plain in _COUNTERS and not is_other:
            parameter = "page" if plain in _PAGE_ALIASES else name
            found = found or Counter(parameter, value, plain in _PAGE_NUMBERS)
    if named and (found is None or found.counts_pages != is_page):
        # A first page without a number is page 0, or page 1.
        found = Counter(named, 0, is_page, is_guess=is_page)
    for name, value in page.query.items():
        number = _integer(value)
        plain = plain_name(name)
        if number is not None and (name == named if named else plain in _COUNTERS):
            return Counter(name, number, is_page or (not named and plain in _PAGE_NUMBERS))
    if found is not None:
        return replace(found, parameter=named or found.parameter)
    for name in [*page.query, *(name for name, _ in page.fields.values())]:
        plain = plain_name(name)
        if plain in _SIZES:
            guess = Counter("offset", 0, counts_pages=False, is_guess=True)
            if plain in _PAGE_SIZES:
                guess = Counter("page", 1, counts_pages=True, is_guess=True)
            return replace(guess, parameter=guess.parameter.title()) if name[0].isupper() else guess
    return None


def _content(page: Page) -> int:
    return hash(repr(page.content))


def _is_round(count: int) -> bool:
    return count in _USUAL_SIZES or (count > 0 and count % 50 == 0)


def _says_the_next_start(page: Page, plain: str) -> bool:
    """Return whether a first page's ``"offset": 10`` is the next page's, after ten records.

    Its request had no such parameter, so a start that is neither 0 nor 1, or no number, is one:
    ``"offset": "itr8f/rec2"``.
    """
    name, value = page.fields[plain]
    if plain not in _OFFSETS or name in page.query:
        return False
    is_token = plain == "offset" and isinstance(value, str) and not value.isdecimal()
    return is_token or (type(value) is int and value > 1)


def _token_or_end(seen: Seen, parameter: str, value: object, member: str) -> Next | End:
    if str(value).lower() not in _NO_TOKENS:
        return Next(parameter=parameter, value=value, member=member)
    return End() if seen.looks_last else seen.doubt(f"{member} is {value}.")


def _with_token(page: Page, end: End) -> End:
    token = uncertain_token(page)
    return replace(end, advice=f'cursor="{token}"') if token else end


def parameter_of(name: str) -> str:
    """Return the parameter for a token: ``pageToken`` for ``nextPageToken``.

    ``next_token`` is the value of a parameter with the same name.
    """
    rest = re.sub("^next[_-]?", "", name, flags=re.IGNORECASE)
    if plain_name(rest) == "token":
        return name
    return rest[:1].lower() + rest[1:]


def uncertain_token(page: Page) -> str | None:
    """Return the dotted path of what looks like a token of the next page, or None."""
    for path, value in leaves(page.body):
        if not path or not value or not isinstance(value, str):
            continue
        *around, name = map(plain_name, path)
        if name in _UNCERTAIN_TOKENS and _AROUND.issuperset(around):
            return ".".join(path)
    return None
