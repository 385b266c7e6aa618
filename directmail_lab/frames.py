"""JSON to a DataFrame: any JSON body gives a usable frame, with its values unchanged."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from .bodies import charset_in, read_json, records_of
from .display import readable
from .errors import DirectMailLabError, NotJSONError, without_traceback
from .interaction import READING

MAX_DEPTH: Final = 50
"""How many levels of nested objects become dotted columns; a deeper object stays in its cell."""

MOST_COLUMNS: Final = 10_000
MOST_CELLS: Final = 5_000_000
"""Records that would need more columns or cells than this stay whole, one in each row."""

VALUE_COLUMN: Final = "value"
"""The column of values that are not objects: a scalar body, or elements of an array."""

_LARGEST_EXACT = 2**53 - 1  # a float holds every integer up to here exactly
_LARGEST_INT64 = 2**63 - 1
_DTYPES: Final = {bool: "boolean", str: "string", float: "Float64"}
_MISSING: Final = object()
_NOTHING: Final = {type(None), type(_MISSING)}
_Path = tuple[str, ...]


def frame(
    response_or_json: object, *, record_path: Literal["auto"] | str | None = "auto"
) -> pd.DataFrame:
    """Return any JSON body as a DataFrame.

    An object gives one row. An array gives a row for each element; elements that are not objects
    are in the column ``value``. A scalar gives one row and one column, an empty object one row and
    no columns, an empty array no rows. Nested objects become dotted columns
    (``company.address.city``); arrays, and objects that are empty or more than `MAX_DEPTH` levels
    deep, stay whole in their cell. Records that together have more than `MOST_COLUMNS` fields, or
    would need more than `MOST_CELLS` cells, stay whole in the column ``value``.

    Values are not converted: ``"01234"`` stays text, ``1.0`` a float and ``1`` an integer. The
    dtypes are those of ``convert_dtypes()`` (``Int64``, ``Float64``, ``boolean``, ``string``), but
    chosen by the JSON types, so that ``1.0`` does not become an integer; ``object`` is for mixed
    values, arrays, and integers beyond 64 bits. ``null`` and a missing field are both ``<NA>``.

    Parquet has one type per column, so ``to_parquet`` refuses a column of mixed values. Convert it
    to text first: ``df["size"] = df["size"].astype("string")``.

    Parameters
    ----------
    response_or_json
        A response (of any HTTP library that has ``status_code``, ``headers`` and ``content``), the
        bytes of a body, or parsed JSON. A ``str`` is a JSON string, not a body. An iterator of
        these, such as `pages` returns, gives one frame of all their records.
    record_path
        ``"auto"`` unwraps an envelope: an object whose ``data`` is an object or an array. None
        never unwraps. Any other text is the name of a member, or a dotted path to one.

    Returns
    -------
    DataFrame
        With ``attrs``: ``status`` (int), ``path`` (of the URL), ``source`` (``"live"``,
        ``"recorded"`` or ``"replayed"``) and ``time`` (when the response came: ISO 8601, UTC), each
        None if unknown; ``envelope``, the body's other members, if one was unwrapped; and
        ``pages``, how many there were, for an iterator.

    Raises
    ------
    NotJSONError
        The body is not JSON, or is empty.
    DirectMailLabError
        ``record_path`` is not in the body.
    """
    try:
        return _framed(response_or_json, record_path)
    except DirectMailLabError as error:
        failure = without_traceback(error)
    # A traceback with local variables would show the body, which may contain the key if the service
    # echoed it. So the frames below are dropped from it, and this one deletes its own variable.
    del response_or_json
    raise failure


def _framed(given: Any, record_path: str | None) -> pd.DataFrame:
    if isinstance(given, Iterator):
        return _of_pages(given, record_path)
    body, response = _body_of(given)
    records, envelope = _unwrapped(body, record_path)
    table = _table(records)
    table.attrs.update(_attrs(response))
    if envelope is not None:
        table.attrs["envelope"] = envelope
    return readable(table)


def _of_pages(pages: Iterator[Any], record_path: str | None) -> pd.DataFrame:
    records: list[object] = []
    responses: list[Any] = []
    for page in pages:
        body, response = _body_of(page)
        found = records_of(body) if record_path == "auto" else _unwrapped(body, record_path)[0]
        records.extend(found if isinstance(found, list) else [found])
        responses.append(response)
    table = _table(records)
    table.attrs.update(_attrs(responses[0] if responses else None))
    table.attrs["pages"] = len(responses)
    return readable(table)


def _body_of(given: Any) -> tuple[Any, Any]:
    """Return the JSON of a response, of the bytes of a body, or as given; and the response."""
    response = given if hasattr(given, "status_code") and hasattr(given, "content") else None
    body = given if response is None else response.content
    if isinstance(body, bytes | bytearray):
        body, problem = read_json(bytes(body), charset_in(_content_type(response)))
        if problem is not None:
            raise _not_json(problem, response)
    if not isinstance(body, dict | list | tuple | str | bool | int | float | Decimal | None):
        raise NotJSONError(
            f"frame() was given a {type(body).__name__}, which is neither a response nor JSON. "
            "Give it a response, the bytes of a body, or what .json() returns."
        )
    return body, response


# -- what a response says of itself ------------------------------------------------------------


def _attrs(response: Any) -> dict[Hashable, Any]:
    """Return what `frame` leaves in ``attrs``: JSON values, so that Parquet keeps them."""
    reading = _attribute(response, "extensions", {}).get(READING)
    url = _attribute(response, "url", None)
    # vcrpy records no times, so the reading of its replay has NaN.
    at = getattr(reading, "at", math.nan)
    return {
        "status": None if response is None else int(response.status_code),
        "path": getattr(reading, "path", None) or (urlsplit(str(url)).path if url else None),
        "source": getattr(reading, "source", None),
        "time": None if math.isnan(at) else datetime.fromtimestamp(at, UTC).isoformat(),
    }


def _not_json(problem: str, response: Any) -> NotJSONError:
    """Return the error for a body that is not JSON; it contains nothing of the body."""
    if response is None:
        return NotJSONError(f"The body {problem}. Give frame() the bytes of a whole JSON body.")
    media_type = re.match(r"\s*([\w.+-]{1,60}/[\w.+-]{1,60})", _content_type(response))
    kind = f"content type {media_type[1]}" if media_type else "no content type"
    status, path = int(response.status_code), _attrs(response)["path"] or "…"
    method = _attribute(_attribute(response, "request", None), "method", "GET")
    call = f'get("{path}")' if method == "GET" else f'request("{method}", "{path}")'
    message = (
        f"{method} {path} answered with status {status} ({kind}), and the body "
        f"{problem}. To look at the raw response: response = {call}, then response.text."
    )
    return NotJSONError(message, status=status, content_type=media_type and media_type[1])


def _content_type(response: Any) -> str:
    return str(_attribute(response, "headers", {}).get("content-type") or "")


def _attribute(thing: Any, name: str, default: Any) -> Any:
    """Return an attribute; httpx raises RuntimeError for those of a response without a request."""
    try:
        return getattr(thing, name, default)
    except RuntimeError:
        return default


# -- finding the records -----------------------------------------------------------------------


def _unwrapped(body: object, record_path: str | None) -> tuple[object, dict[str, object] | None]:
    """Return a body's records, and the envelope's other members, or None if it had no envelope."""
    if record_path is None:
        return body, None
    if record_path == "auto":
        wrapped = isinstance(body, dict) and isinstance(body.get("data"), dict | list | tuple)
        keys: Sequence[str] | None = ["data"] if wrapped else []
    else:
        keys = _keys_to(body, record_path)
    if keys is None:
        raise DirectMailLabError(_leads_nowhere(body, record_path))
    records, envelope = body, _without(body, keys) if keys else None
    for key in keys:
        records = records[key]  # type: ignore[index]
    return records, envelope


def _keys_to(body: object, path: str) -> list[str] | None:
    """Return the keys that a dotted path stands for; a key may hold dots itself."""
    if not isinstance(body, dict):
        return None
    if path in body:
        return [path]
    for dot in (found.start() for found in re.finditer(r"\.", path)):
        below = _keys_to(body.get(path[:dot]), path[dot + 1 :])
        if below is not None:
            return [path[:dot], *below]
    return None


def _without(body: Any, keys: Sequence[str]) -> dict[str, object]:
    """Return a copy of ``body`` without the member that ``keys`` lead to."""
    rest = {key: _shallow(value) for key, value in body.items() if key != keys[0]}
    return {**rest, keys[0]: _without(body[keys[0]], keys[1:])} if keys[1:] else rest


def _shallow(value: object) -> object:
    """Return ``value``, or a note if it is too deep: pandas copies ``attrs`` by recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return value
    return f"(nested more than {MAX_DEPTH} levels deep: see the response itself)"


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _leads_nowhere(body: object, path: str) -> str:
    members = body if isinstance(body, dict) else ()
    names = [name for name in members if re.fullmatch(r"[A-Za-z_][\w-]{0,39}", str(name))][:8]
    has = f"its members are {', '.join(names)}" if names else "it is not an object"
    return (
        f"record_path {path!r} is not in this body: {has}. "
        "Name one of its members, or use record_path=None for the whole body."
    )


# -- records to columns ------------------------------------------------------------------------


def _table(records: object) -> pd.DataFrame:
    rows = records if isinstance(records, list | tuple) else [records]
    fields = _fields(rows)
    index = pd.RangeIndex(len(rows))
    columns = {number: _column(values, index) for number, values in enumerate(fields.values())}
    table = pd.DataFrame(columns, index=index, copy=False)
    table.columns = pd.Index(_names(list(fields)), dtype=None if fields else object)
    return table


def _fields(rows: Sequence[object]) -> dict[_Path, list[object]]:
    """Return the values of each field, by the path of its keys; the last rows may be missing."""
    fields: dict[_Path, list[object]] = {}
    most = min(MOST_COLUMNS, max(MOST_CELLS // max(len(rows), 1), 1))
    for number, row in enumerate(rows):
        for path, value in _leaves(row, ()) if isinstance(row, dict) else [((), row)]:
            values = fields.get(path)
            if values is None:
                values = fields[path] = []
            if missing := number - len(values):
                values.extend([_MISSING] * missing)
            values.append(value)
        if len(fields) > most:
            return {(): list(rows)}
    if len(fields) > 1 and {type(each) for each in fields.get((), [_MISSING])} <= _NOTHING:
        fields.pop((), None)  # a null between records is a row without values
    return fields


def _leaves(record: Mapping[str, object], path: _Path) -> Iterator[tuple[_Path, object]]:
    """Yield the path and value of each column of a record; nested objects are descended into."""
    for key, value in record.items():
        place = (*path, key)
        if value and isinstance(value, dict) and len(place) < MAX_DEPTH:
            yield from _leaves(value, place)
        else:
            yield place, value


def _names(paths: Sequence[_Path]) -> list[str]:
    """Return a name for each path, no two alike.

    ``{"a.b": 1, "a": {"b": 2}}`` has two paths for one name: the shorter one keeps it and the
    other one gets a number: ``a.b``, ``a.b_2``. A lone surrogate, which pandas' strings cannot
    contain, is written as an escape.
    """
    names: dict[_Path, str] = {}
    taken: set[str] = set()
    numbers: Counter[str] = Counter()
    for path in sorted(paths, key=lambda path: len(path) or len(paths) + MAX_DEPTH):
        plain = ".".join(map(str, path)) if path else VALUE_COLUMN
        plain = name = plain.encode("utf-8", "backslashreplace").decode()
        while name in taken:
            numbers[plain] += 1
            name = f"{plain}_{numbers[plain] + 1}"
        taken.add(name)
        names[path] = name
    return [names[path] for path in paths]


def _column(values: list[object], index: pd.RangeIndex) -> Any:
    """Return one column, its missing values as ``<NA>``, in the dtype that all values share."""
    values.extend([_MISSING] * (len(index) - len(values)))
    cells = [pd.NA if value is None or value is _MISSING else value for value in values]
    kinds = set(map(type, cells)) - {type(pd.NA)}
    if (dtype := _dtype(kinds, cells)) is not None:
        with contextlib.suppress(UnicodeEncodeError):  # as in _names
            return pd.array(cells, dtype=dtype)  # type: ignore[call-overload]
    # np.array() would make a two-dimensional array of lists of equal length. A Series keeps its
    # dtype, while DataFrame() would look for a narrower one in a bare array of objects.
    return pd.Series(np.fromiter(cells, dtype=object, count=len(index)), index, dtype=object)


def _dtype(kinds: set[type], cells: Iterable[object]) -> str | None:
    if kinds <= {int, float} and int in kinds:
        integers = [cell for cell in cells if isinstance(cell, int)]
        span = max(max(integers), -min(integers) - 1)
        if kinds == {int}:
            return "Int64" if span <= _LARGEST_INT64 else None
        return "Float64" if span <= _LARGEST_EXACT else None
    return _DTYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
