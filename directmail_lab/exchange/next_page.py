"""What a page of a list says about the next page.

`PageList.next_of` looks for statements in each page, and the first that is certain decides. Without
options they are:

1. a flag that this page is the last: ``has_more: false``
2. the address of the next page: ``Link``, ``next_url``, ``links.next``
3. a token for it: ``next_cursor`` is the value of the parameter ``cursor``
4. a number of records or of pages that has not been reached: ``total``, ``X-Total-Count``
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .bodies import Path, leaves, path_of_records, read_json, separators_of, unwrap
from .httpx_values import httpx


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A page says these things at its top level, in its headers, or in objects with one of these names.
_AROUND = _names(
    "cursors data info links meta metadata page pageinfo pagination paging responsemetadata result"
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
_UNCERTAIN_TOKENS = _names("continuation continuationtoken cursor pagetoken scrollid")
_MORE = _names("hasmore hasnext hasnextpage more moreavailable")
_IS_LAST = _names("islast islastpage last lastpage")
_TOTALS = _names("count total totalcount totalelements totalitems totalrecords totalresults")
_PAGE_COUNTS = _names("numpages pagecount pages totalpages")
_PAGE_NUMBERS = _names("currentpage number page pageno pagenumber")
_OFFSETS = _names("offset pageoffset skip start startat startindex")
_PAGE_SIZES = _names("pagesize perpage size")
_LIMITS = _names("itemsperpage limit maxresults pagelimit top")
_USUAL_SIZES = (10, 15, 20, 25, 30)
# All that a body says of its page, and not of its records.
_OF_A_PAGE = _names("first hasprevious prev previous self").union(
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


@dataclass(frozen=True, slots=True)
class Next:
    """How to request the next page: at an address, or with this value of one parameter.

    ``counts`` says whether the value is a number that was counted, and not one from the page.
    ``member`` is the path in the body of a value from there.
    """

    address: str = ""
    parameter: str = ""
    value: object = None
    counts: bool = False
    member: str = ""


LAST = Next()
"""The answer of a statement that there is no next page."""


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
    """

    query: Mapping[str, str]
    body: object
    records: list[Any] | None = None
    links: list[object] = field(default_factory=list)
    fields: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def content(self) -> object:
        """Its records, or else all values below its members, which may be records by their ids."""
        if self.records is not None:
            return self.records
        content = []
        for path, value in leaves(self.body):
            is_around = bool(path) and _plain(path[0]) in _AROUND
            if value and (isinstance(value, list) or len(path) > 1 + is_around):
                content.append((path, value))
        return content

    def number(self, names: Iterable[str]) -> int:
        """Return the largest number that the page states under one of these names, or 0."""
        values = [self.fields[name][1] for name in names if name in self.fields]
        return max([0, *[value for value in values if type(value) is int]])

    def flags(self) -> list[bool]:
        """Return each flag of the page: True if it says that there are more pages."""
        flags = []
        for name, (_, value) in self.fields.items():
            if not isinstance(value, bool):
                continue
            if name in _MORE:
                flags.append(value)
            elif name in _IS_LAST:
                flags.append(not value)
        return flags

    @property
    def size(self) -> int:
        """How many records were asked for, or how many a page has at most; 0 if not known."""
        for name, value in self.query.items():
            size = _integer(value)
            if size is not None and _plain(name) in _PAGE_SIZES | _LIMITS:
                return size
        return self.number(_PAGE_SIZES | _LIMITS)


def page_of(response: httpx.Response, query: Mapping[str, str]) -> Page:
    """Return the page of a list that is the response to this query."""
    headers = tuple(response.headers.items())
    body, _ = read_json(response.content, response.charset_encoding)
    if separators_of(headers, response.url.path):
        body = response.text.splitlines()[1:]
    place = path_of_records(body, is_page=True)
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
    return page


def only_list(body: object) -> Path:
    """Return the path to the records of a body, if all else in it is about the page, or nothing.

    It is ``items`` in ``{"items": [{"id": 1}], "next": null}``, which is no record itself.
    """
    path = path_of_records(body, is_page=True)
    records, others = unwrap(body, path)
    if others is None:
        return ()
    names = {*others, *others.get(path[0], ())} - {path[0]}
    unknown = {_plain(str(name)) for name in names} - _OF_A_PAGE
    is_list = all(name.startswith("next") for name in unknown)
    # `{"tags": []}` says nothing of pages.
    return path if is_list and (records or others) else ()


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
    elif name.startswith(("x-", "next-")) or _plain(name) in _TOTALS:
        written = re.sub("^x-(wp-|pagination-)?", "", name).replace("-", "_")
        number = _integer(text)
        value = text if number is None else number
        page.fields[_plain(written)] = (written, value)


def _add_field(page: Page, path: Path, value: object) -> None:
    """Add what a member of the body says, if it is about the page and not about a record."""
    *around, name = map(_plain, path)
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
    if name in _TOTALS and isinstance(value, str):
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


def _plain(name: str) -> str:
    """Return a name without its style: ``nextLink`` of ``@odata.nextLink``, ``next_link``."""
    return re.sub("[^a-z]", "", name.lower()).removeprefix("odata")


@dataclass(slots=True)
class PageList:
    """The pages of one list so far. ``page`` and ``offset`` are as in `pages`.

    ``cursor`` is there, too; ``cursor_parameter`` is the parameter for it, if that was named.

    Attributes
    ----------
    asked
        How the last page was requested; None for the first.
    received
        How many records came; None if a page has no list of them.
    total
        How many records the list has, as the last page that says it; 0 if none does.
    says_more
        Whether the last page says that there are more.
    """

    page: str | None = None
    offset: str | None = None
    cursor: str | None = None
    cursor_parameter: str | None = None
    asked: Next | None = None
    received: int | None = 0
    total: int = 0
    says_more: bool = False
    _next_starts: set[str] = field(default_factory=set)
    _ids: list[str] = field(default_factory=list)
    _is_led: bool = False
    _first_number: int | None = None
    _first_count: int = 0
    _trusted: set[str] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def next_of(self, page: Page) -> Next | None:
        """Return how to request the page after this one, `LAST`, or None if nothing says how."""
        is_first = self.asked is None
        count = len(page.records or ())
        self._first_count = self._first_count or count
        self._seen.add(_content(page))
        if page.records is None or self.received is None:
            self.received = None
        else:
            self.received += count
            records = [each for each in page.records if isinstance(each, dict)]
            self._ids += [repr(each["id"]) for each in records if "id" in each]
        self.total = page.number(_TOTALS) or self.total
        if is_first:
            self._next_starts = {name for name in page.fields if _says_the_next_start(page, name)}
        is_whole = 0 < self.total <= (self.received or 0)
        for plain in self._next_starts & page.fields.keys():
            name, value = page.fields.pop(plain)
            if not is_whole and str(value) != page.query.get(name):
                page.fields[f"next{plain}"] = (name, value)
        if is_first:
            counter = self.counter(page)
            self._first_number = counter.number if counter else None
        self.says_more = False
        self._is_led = not is_first and not (self.asked or LAST).counts
        self.asked = LAST if False in page.flags() else self.link_of(page)
        if self.asked is None and self.cursor is None:
            self.asked = self._counted(page)
        return self.asked

    def has_seen(self, page: Page) -> bool:
        """Return whether an earlier page had the same records."""
        return bool(page.content) and _content(page) in self._seen

    def ignores_the_number(self, page: Page) -> bool:
        """Return whether the service ignored a number, and sent records that came before.

        Pages may be equal if they state different numbers.
        """
        if self.asked is None or not self.asked.counts or not self.has_seen(page):
            return False
        _, stated = page.fields.get(_plain(self.asked.parameter), ("", None))
        return bool(stated != self.asked.value)

    def link_of(self, page: Page) -> Next | None:
        """Return the address or the token by which a page leads to another one, or None."""
        if self.cursor:
            return self._named_token(page, self.cursor)
        if self.page or self.offset:
            return None
        return _address(page) or _token(page)

    @property
    def repeated(self) -> int:
        """How many records came with the id of one before."""
        return len(self._ids) - len(set(self._ids))

    @property
    def is_short(self) -> bool:
        """Whether fewer records came than the list has, from its start on.

        What the caller's parameter led to may have no list of records that is recognised.
        """
        if self.received is None:
            return self.total > 0 and not (self.page or self.offset)
        start = self._first_number or 0
        return start <= 1 and self.received < self.total

    def _named_token(self, page: Page, cursor: str) -> Next | None:
        """Return the token that the caller named."""
        path = tuple(cursor.split("."))
        values = dict(leaves(page.body))
        token = values.get(path)
        if not token:
            # Under another name, there is another page.
            has_more = True in page.flags() or _address(page) or _token(page)
            is_unknown = self.asked is None and page.content and path not in values
            return None if has_more or is_unknown else LAST
        parameter = self.cursor_parameter or _parameter_of(path[-1])
        return Next(parameter=parameter, value=token, member=cursor)

    def _counted(self, page: Page) -> Next | None:
        """Return the next number of a page or a record, if there are more."""
        count = len(page.records or ())
        counter = self.counter(page)
        more = self._has_more(page, counter)
        self.says_more = bool(more)
        if not page.content and (page.records is not None or counter):
            return LAST
        if page.records is None and (self.page or self.offset):
            count = page.size
            more = True
        if more is None and self._is_led:  # the last page has no address, or no token
            more = False
        if more is None and (counter is None or counter.is_guess):
            is_full = 0 < page.size <= count or self._may_be_full(page)
            return None if is_full or uncertain_token(page) else LAST
        if more is None:
            more = 0 < (page.size or self._first_count) <= count
        if not more:
            return LAST
        if counter is None or not (counter.counts_pages or count):
            return None
        step = 1 if counter.counts_pages else count
        return Next(parameter=counter.parameter, value=counter.number + step, counts=True)

    def _may_be_full(self, page: Page) -> bool:
        """Return whether a page says nothing of others, and has as many records as pages often do.

        ``GET /reviews`` may respond with a bare array of the first 10 of 30 reviews.
        """
        count = len(page.records or ())
        is_usual = count in _USUAL_SIZES or (count > 0 and count % 50 == 0)
        says_nothing = not (page.size or page.links or self.total)
        return is_usual and says_nothing

    def _has_more(self, page: Page, counter: Counter | None) -> bool | None:
        """Return whether a page says that there are more; None if that is not certain.

        Some services always send a null link, or a total of the page's own records. So a link or a
        total that announces no more is believed if it once announced more, or if another agrees.
        """
        said: dict[str, bool] = {}
        if page.flags():
            said["flag"] = True  # a flag that this is the last page has already decided
        if page.links or "link" in self._trusted:
            said["link"] = any(page.links)
        if page.records and self.total:
            said["total"] = self._is_below_total(page, counter)
        if counter is not None and counter.counts_pages:
            page_count = page.number(_PAGE_COUNTS)
            last_page = page.number(["lastpage"])
            if page_count:
                # Three pages are 0, 1 and 2, or 1, 2 and 3.
                last_of_count = page_count - 1 if self._first_number == 0 else page_count
                said["pages"] = counter.number < last_of_count
            if last_page:
                said["last page"] = counter.number < last_page
        announced = {name for name, has_more in said.items() if has_more}
        self._trusted |= announced
        if announced:
            return True
        certain = {*self._trusted, "pages", "last page"}
        if len(said) > 1 or not certain.isdisjoint(said):
            return False
        return None

    def _is_below_total(self, page: Page, counter: Counter | None) -> bool:
        """Return whether the records up to this page are fewer than the total."""
        if counter is None or counter.counts_pages:
            return (self.received or 0) < self.total
        end = counter.number + len(page.records or ())
        # A list may count from 1. Then record 7 of 7 is still to come when the next number is 7.
        if self._first_number == 1:
            end -= 1
        return end < self.total

    def counter(self, page: Page) -> Counter | None:
        """Return the parameter that counts pages or records, as the caller or the page names it."""
        named = self.page or self.offset
        if named:
            return Counter(named, int(page.query[named]), self.page is not None)
        for name, value in page.query.items():
            number = _integer(value)
            plain = _plain(name)
            if number is not None and plain in _PAGE_NUMBERS | _OFFSETS:
                return Counter(name, number, plain in _PAGE_NUMBERS)
        for plain, (name, value) in page.fields.items():
            is_other = plain == "number" and not page.number(_PAGE_COUNTS)
            if type(value) is int and plain in _PAGE_NUMBERS | _OFFSETS and not is_other:
                parameter = "page" if plain in _PAGE_ALIASES else name
                return Counter(parameter, value, plain in _PAGE_NUMBERS)
        sizes = {*map(_plain, page.query), *page.fields}
        if not sizes.isdisjoint(_PAGE_SIZES):
            return Counter("page", 1, counts_pages=True, is_guess=True)
        if not sizes.isdisjoint(_LIMITS):
            return Counter("offset", 0, counts_pages=False, is_guess=True)
        return None


def _content(page: Page) -> int:
    return hash(repr(page.content))


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


def _address(page: Page) -> Next | None:
    return next((link for link in page.links if isinstance(link, Next)), None)


def _token(page: Page) -> Next | None:
    for plain, (name, value) in page.fields.items():
        is_token = bool(value) and type(value) in (str, int)
        if not is_token or not plain.startswith("next"):
            continue
        parameter = _parameter_of(name)
        if plain.removeprefix("next") in _TOKENS or parameter in page.query:
            return Next(parameter=parameter, value=value, member=name)
    return None


def _parameter_of(name: str) -> str:
    """Return the parameter for a token: ``pageToken`` for ``nextPageToken``.

    ``next_token`` is the value of a parameter with the same name.
    """
    rest = re.sub("^next[_-]?", "", name, flags=re.IGNORECASE)
    if _plain(rest) == "token":
        return name
    return rest[:1].lower() + rest[1:]


def uncertain_token(page: Page) -> str | None:
    """Return the dotted path of what looks like a token of the next page, or None."""
    for path, value in leaves(page.body):
        if not path or not value or not isinstance(value, str):
            continue
        *around, name = map(_plain, path)
        if name in _UNCERTAIN_TOKENS and _AROUND.issuperset(around):
            return ".".join(path)
    return None
