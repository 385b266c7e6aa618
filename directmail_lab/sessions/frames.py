"""Turn any body of JSON or CSV into a usable DataFrame, with its values unchanged."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import Any, Literal

import pandas as pd

from ..arguments import check_choice
from ..credentials import known_keys
from ..display import as_records, plural, utc_time
from ..errors import DirectMailLabError, NotJSONError
from ..exchange.bodies import (
    Path,
    decode_text,
    leaves,
    plain_text,
    read_json,
    read_table,
    separators_of,
    unpack,
    unwrap,
)
from ..exchange.httpx_values import httpx
from ..exchange.next_page import Next, Seen, page_of, path_of_rows, step
from ..exchange.operations import take_name, with_query
from ..exchange.values import media_type_of
from ..redaction import Redactor
from ..redaction.key import KeySearch
from ..tracebacks import hide_frames, warn_caller
from .clients.refusals import outcome, service_error
from .transports.extensions import received_of

MOST_COLUMNS = 10_000
"""The number of columns of the widest frame."""

MOST_CELLS = 50_000_000
"""The number of cells (rows times columns) of the largest frame."""

_DTYPES = {
    "int": "Int64",
    "float": "Float64",
    "float int": "Float64",
    "bool": "boolean",
    "str": "string",
}
_LARGEST = {"Int64": 2**63 - 1, "Float64": 2**53 - 1}
"""For each dtype, the largest integer up to which it represents every integer exactly."""


# Their numbers are names: "00123" and "123" are two.
_NAME_COLUMN = re.compile(r"(?:^|[^a-z])(?:id|zip|post(?:al_?)?code|phone)$|[a-z]I[dD]$", re.ASCII)
_NUMBER = r"(?=.{1,15}$)-?(?:0|[1-9]\d*)(?:\.\d+)?"


@hide_frames  # the locals contain the body, which may repeat the key
def frame(
    response_or_json: object,
    *,
    rows_at: Literal["auto"] | str | None = "auto",
    on_error: Literal["raise", "keep"] = "raise",
) -> pd.DataFrame:
    """Return any JSON body, or a response in CSV, as a DataFrame.

    An object gives one row. An array gives a row for each element; elements
    that are not objects are in the column ``value``. A scalar gives one row and
    one column, an empty object one row and no columns, an empty array no rows.
    Nested objects become dotted columns (``company.address.city``); arrays, and
    objects that are empty or more than 50 levels deep, stay whole in their
    cell.

    Values are not converted: ``"01234"`` stays text, ``1.0`` a float and ``1``
    an integer. The dtypes are those of ``convert_dtypes()`` (``Int64``,
    ``Float64``, ``boolean``, ``string``), but chosen by the JSON types, so that
    ``1.0`` does not become an integer; ``object`` is for mixed values, arrays,
    empty objects, nulls alone, and integers beyond 64 bits. ``null`` and a
    missing field are both ``<NA>``.
    If a response or the bytes of a body contain the key, ``<API_KEY>``
    replaces it.

    In a response in CSV, a column is numeric if all its cells are plain numbers
    without leading zeros, but not one of ids, postcodes or phone numbers. Any
    other cell is text, as it was sent.

    Parquet has one type per column, so ``to_parquet`` refuses some columns with
    the dtype ``object``: mixed values, empty objects, integers beyond 64 bits.
    Write them as JSON first::

        columns = df.select_dtypes("object").columns
        df[columns] = df[columns].map(json.dumps, na_action="ignore")

    Parameters
    ----------
    response_or_json
        An `httpx.Response`, the bytes of a JSON body, or parsed JSON. A ``str``
        is a JSON string, not a body. A list of responses (from `get_many`) or
        an iterator of them (from `pages`) gives one frame of all their records,
        and a warning names those that failed.
    rows_at
        ``"auto"`` unwraps an envelope: an object whose ``data`` is an array, or
        an object without an ``id`` whose ``data`` is an object; or one with a
        list, such as ``items``, and nothing but page data beside it. A warning
        says if a response is only one page of a list. None never unwraps. Any
        other text is the name of a member, or a dotted path to one.
    on_error
        What to do with a response that has an error status: ``"raise"`` an
        error, or ``"keep"`` it and return a frame of its body.

    Returns
    -------
    DataFrame
        With ``attrs``: ``status`` (int), ``path`` (of the URL), ``source``
        (``"live"``, ``"recorded"``, ``"replayed"`` or ``"kept"``) and ``time``
        (of the response: ISO 8601, UTC), each None if unknown. A replayed
        response has ``recorded`` (``on 21 November 2026``), too. If an envelope
        was unwrapped, ``envelope`` has its other members. For a list or an
        iterator of responses, ``pages`` is the number of those that did not
        fail.

    Raises
    ------
    ServiceError
        The response has an error status.
    NotJSONError
        The body is neither JSON nor CSV, or is empty. The message has the call
        that reads it.
    DirectMailLabError
        ``rows_at`` is not in the body, or the frame would have more than 10,000
        columns or 50 million cells.

    Examples
    --------
    >>> dm.replay("explore-an-unknown-api")
    Replaying cassette 'explore-an-unknown-api' (69 interactions, ...)
    >>> dm.frame(dm.get("/v1/lists"))[["id", "name", "addresses"]]
                   id         name  addresses
    0  lst_stand_in_1       Spring        120
    1  lst_stand_in_2  Café owners         48
    2  lst_stand_in_3        Empty          0
    """
    check_choice("on_error", on_error, ("raise", "keep"))
    given = response_or_json
    first = given[0] if isinstance(given, list | tuple) and given else None
    if isinstance(given, Iterator) or isinstance(first, httpx.Response | Exception):
        return _frame_of_many(given, rows_at, on_error)
    body = _read(given, on_error)
    if isinstance(body, pd.DataFrame) and isinstance(given, httpx.Response):
        body = _with_numbers(body)
        body.attrs.update(_describe(given))
        _warn_of_more([given])
        return as_records(body)
    records, envelope = unwrap(body, _path_of_rows(body, rows_at, given))
    table = _table(records if isinstance(records, list | tuple) else [records], given)
    if isinstance(records, list):
        _warn_of_more([given])
    if envelope is not None:
        table.attrs["envelope"] = envelope
    return table


def _frame_of_many(results: Any, rows_at: str | None, on_error: str) -> pd.DataFrame:
    """Return one frame of several responses: pages, or the results of `get_many` with errors."""
    records: list[object] = []
    good: list[object] = []
    failures: list[str] = []
    tables = 0
    for position, result in enumerate(_kept(results, good)):
        try:
            body = _read(result, on_error)
        except Exception as error:  # get_many() returns errors of any kind
            reason = getattr(error, "what", "") or str(error)
            failures.append(f"[{position}] {_without_key(reason).rstrip('.')}")
            continue
        if isinstance(body, pd.DataFrame):
            body = body.to_dict("records")
            tables += 1
        found, _ = unwrap(body, _path_of_rows(body, rows_at, result))
        records += found if isinstance(found, list) else [found]
        good.append(result)
    if failures:
        warn_caller(
            f"{len(failures)} of {plural(len(failures) + len(good), 'response')} failed, and are "
            f"left out: {shorten('; '.join(failures), 500, placeholder=' …')}."
        )
    if rows_at is not None:
        _warn_of_more(good)
    table = _table(records, good[0] if good else None)
    if tables and tables == len(good):
        table = _with_numbers(table)
    table.attrs["pages"] = len(good)
    return table


def _kept(results: Iterable[Any], good: list[object]) -> Iterator[Any]:
    """Yield each result. The error of a page has those that came, and the rest."""
    try:
        yield from results
    except Exception as error:
        if good:
            vars(error).update(came=good, rest=results)
            failed = getattr(results, "next_call", "") or f"Page {len(good) + 1}"
            error.add_note(
                f"{failed} failed. To keep the {plural(len(good), 'page')} before it, and to go on "
                "from there: import sys; error = sys.last_value; "
                "dm.frame([*error.came, *error.rest])."
            )
        raise


def _path_of_rows(body: object, rows_at: str | None, source: object) -> Path:
    """Return where the rows of a body are."""
    if rows_at == "auto":
        is_page = isinstance(source, httpx.Response) and received_of(source).is_page
        return path_of_rows(body, is_page=is_page)
    return () if rows_at is None else tuple(rows_at.split("."))


def _warn_of_more(results: list[Any]) -> None:
    """Warn of responses that `pages` did not request, and that say that they are only one page."""
    found = []
    for result in results:
        if not isinstance(result, httpx.Response) or received_of(result).is_page:
            continue
        page = page_of(result, dict(result.url.params))
        seen, answer = step(Seen(), page)
        is_led = isinstance(answer, Next) and not answer.counts
        if page.content and (seen.is_short or is_led or True in page.flags):
            of_all = f" of {seen.total:,}" if seen.total > page.count else ""
            path = str(_describe(result)["path"])
            shown = Redactor().text(with_query(path, str(result.url)))
            advice = f'For all: dm.frame(dm.pages("{shown}")).'
            found.append((f"{page.count:,}{of_all} records.", advice))
    if not found:
        return
    what, advice = found[0]
    if len(results) == 1:
        warn_caller(f"This is one page of a list: {what}", advice)
    else:
        of_all = plural(len(results), "response")
        warn_caller(f"{len(found)} of {of_all} are one page of a list. The first: {what}", advice)


# -- responses ---------------------------------------------------------------------------------


def _read(value: Any, on_error: str) -> Any:
    """Return the JSON of a response or of the bytes of a body, or the value if it is JSON.

    A response in CSV gives a frame.
    """
    if isinstance(value, Exception):
        raise value
    response = value if isinstance(value, httpx.Response) else None
    if response is not None:
        if response.status_code >= 400 and on_error == "raise":
            error = service_error(response, base_url="", redacted=_without_key)
            if read_json(response.content, response.charset_encoding)[1] is None:
                error.add_note('dm.frame(…, on_error="keep") makes a frame of its body.')
            raise error
        value = response.content
        separators = separators_of(tuple(response.headers.items()), response.url.path, value)
        if separators:
            return _table_of_csv(response, separators)
    if isinstance(value, bytes | bytearray):
        charset = response.charset_encoding if response else None
        value, problem = read_json(bytes(value), charset, redacted=_without_key)
        if problem is not None:
            raise _not_json(problem, response)
    if not isinstance(value, dict | list | tuple | str | bool | int | float | None):
        raise NotJSONError(
            f"dm.frame() was given a {type(value).__name__}, which is neither a response nor JSON.",
            "Give it a response, the bytes of a body, or what .json() returns.",
        )
    return value


def _describe(response: object) -> dict[str, Any]:
    """Return the ``attrs`` of a frame: JSON values, so that Parquet keeps them."""
    about: dict[str, Any] = dict.fromkeys(("status", "path", "source", "time"))
    if isinstance(response, httpx.Response):
        about["status"] = response.status_code
        about["path"] = response.url.path
        received = received_of(response)
        reading = received.reading
        if reading is not None and received.recording is not None:
            if reading.source == "replayed":
                about["recorded"] = received.recording.recorded_when
            about.update(path=reading.path, source=reading.source)
            if not math.isnan(reading.at):  # vcrpy does not record the time
                about["time"] = utc_time(reading.at).isoformat()
    return about


def _not_json(problem: str, response: httpx.Response | None) -> NotJSONError:
    """Return the error for a body that is not JSON. It quotes nothing of the body."""
    if response is None:
        return NotJSONError(
            f"The body {problem}.", "Give dm.frame() the bytes of a whole JSON body."
        )
    media_type = media_type_of(tuple(response.headers.items()))
    media_type = _without_key(media_type)[:100]
    kind = f"content type {media_type or 'missing'}"
    method = response.request.method
    path = _without_key(str(_describe(response)["path"]))
    call = f'dm.get("{path}")' if method == "GET" else f'dm.request("{method}", "{path}")'
    what = f"{method} {path} responded with {outcome(response, _without_key)}"
    if response.has_redirect_location:
        what += f", a redirect{_target(response)}."
        advice = "Request that address instead, or follow the redirect: follow_redirects=True."
    else:
        what += f" ({kind}), and the body {problem}."
        reads = "print(response.text)"
        if plain_text(response.content) is None:
            reads = 'pathlib.Path("body").write_bytes(response.content)'
        advice = f"Read it with: response = {call}; {reads}."
    return NotJSONError(what, advice, status=response.status_code, content_type=media_type or None)


def _table_of_csv(response: httpx.Response, separators: str) -> pd.DataFrame:
    """Return a table in CSV as a frame of text: ``"01234"`` and ``"NA"`` stay as they are."""
    try:
        content = unpack(response.content)
        text = decode_text(content, response.charset_encoding)
        if "\ufffd" in text and "\ufffd".encode() not in content:
            text = content.decode("cp1252", "replace")
            warn_caller(
                "This table is not in the character set that it says: it is read as cp1252."
            )
        table = read_table(_without_key(text), separators)
    except ValueError as error:
        raise _not_json(f"is {error}", response) from None
    columns = len(table.names)
    _refuse_wide(columns)
    inside = [line for row in table.rows for cell in row for line in (cell or "").split("\n")[1:]]
    if columns > 1 and any(line.count(table.separator) >= columns - 1 for line in inside):
        warn_caller(
            "A quoted cell contains lines like those of the table.",
            "If a quotation mark is missing, so are rows: see response.text.",
        )
    names = _unique_names([(name,) for name in table.names])
    return pd.DataFrame(table.rows, columns=names, dtype="string")


def _with_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts with numbers in the columns that have nothing else."""
    for name in table:
        filled = table[name].where(table[name] != "")
        known = filled.dropna()
        is_text = known.empty or _NAME_COLUMN.search(str(name))
        if not is_text and known.str.fullmatch(_NUMBER).all():
            table[name] = pd.to_numeric(filled)
    return table


def _target(response: httpx.Response) -> str:
    """Return where a redirect leads, without the query, which may contain credentials."""
    if response.next_request is None:  # not from a client
        return ""
    url = response.next_request.url
    return " to " + _without_key(f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}")


def _without_key(text: str) -> str:
    """Return a text without the keys of this process, since a notebook stores what is shown."""
    return KeySearch(known_keys()).removed_from(text)


# -- records to columns ------------------------------------------------------------------------


def _table(rows: Sequence[object], source: object) -> pd.DataFrame:
    """Return the frame of some records, with ``attrs`` that describe their response."""
    fields = _fields(rows)
    index = pd.RangeIndex(len(rows))
    columns = {number: _column(values, index) for number, values in enumerate(fields.values())}
    table = pd.DataFrame(columns, index=index, copy=False)
    table.columns = pd.Index(_unique_names(fields), dtype=None if fields else object)
    table.attrs.update(_describe(source))
    return as_records(table)


def _fields(rows: Sequence[object]) -> dict[Path, list[object]]:
    """Return the values of each field, one for each row; a missing value is None."""
    fields: dict[Path, list[object]] = {}
    for number, row in enumerate(rows):
        if row in (None, {}):
            continue
        for path, value in leaves(row):
            values = fields.setdefault(path, [])
            values.extend([None] * (number - len(values)))
            values[number:] = [value]
        _refuse_wide(len(fields))
        if len(fields) * len(rows) > MOST_CELLS:
            raise DirectMailLabError(
                f"A frame of these {plural(len(rows), 'record')} would have more than "
                f"{MOST_CELLS:,} cells.",
                "Give dm.frame() fewer records at a time.",
            )
    if not fields and None in rows:
        fields[()] = []
    for values in fields.values():
        values.extend([None] * (len(rows) - len(values)))
    return fields


def _refuse_wide(count: int) -> None:
    if count > MOST_COLUMNS:
        raise DirectMailLabError(
            f"A frame of this body would have more than {MOST_COLUMNS:,} columns.",
            "Name the part with the records: dm.frame(…, rows_at=…).",
        )


def _unique_names(paths: Iterable[Path]) -> list[str]:
    """Return a unique name for each path.

    ``{"a.b": 1, "a": {"b": 2}}`` has two paths with the same name, so they become ``a.b`` and
    ``a.b_2``. pandas' strings cannot contain a lone surrogate, so it is written as an escape.
    """
    names: dict[str, int] = {}
    for path in paths:
        text = ".".join(path) or "value"  # a scalar body, or an element of an array
        take_name(text.encode("utf-8", "backslashreplace").decode(), names)
    return list(names)


def _column(values: list[object], index: pd.RangeIndex) -> Any:
    """Return one column in the dtype that all its values share, with ``<NA>`` for missing ones."""
    types = {type(value).__name__ for value in values if value is not None}
    dtype = _DTYPES.get(" ".join(sorted(types)))
    most = _LARGEST.get(dtype or "", math.inf)
    integers = [value for value in values if type(value) is int]
    if dtype and all(-most - 1 <= each <= most for each in integers):
        with contextlib.suppress(UnicodeEncodeError):  # as in _unique_names
            return pd.array(values, dtype=dtype)  # type: ignore[call-overload]
    # A Series keeps its dtype. For an array, DataFrame() would look for a narrower one.
    return pd.Series([pd.NA if value is None else value for value in values], index, dtype=object)
