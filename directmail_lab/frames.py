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

from .bodies import declared_charset, find_records, read_json
from .credentials import known_keys
from .display import readable
from .errors import DirectMailLabError, NotJSONError, without_traceback
from .interaction import READING
from .redaction.key import KeySearch

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
    Where a response or the bytes of a body repeat the API key, ``<API_KEY>`` replaces it.

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
        if isinstance(response_or_json, Iterator):
            return _frame_of_pages(response_or_json, record_path)
        body, response = _body_and_response(response_or_json)
        records, envelope = _unwrap(body, record_path)
        table = _table(records, response)
        if envelope is not None:
            table.attrs["envelope"] = envelope
        return readable(table)
    except DirectMailLabError as error:
        failure = without_traceback(error)
    # A traceback with local variables would show the body, which may contain the key if the service
    # echoed it. So the frames below are dropped from it, and this one deletes its own variables.
    response_or_json = body = response = None
    raise failure


def _frame_of_pages(pages: Iterator[Any], record_path: str | None) -> pd.DataFrame:
    records: list[object] = []
    responses: list[Any] = []
    for page in pages:
        body, response = _body_and_response(page)
        value = find_records(body) if record_path == "auto" else _unwrap(body, record_path)[0]
        records.extend(value if isinstance(value, list) else [value])
        responses.append(response)
    table = _table(records, responses[0] if responses else None)
    table.attrs["pages"] = len(responses)
    return readable(table)


def _body_and_response(value: Any) -> tuple[Any, Any]:
    """Return the JSON of a response or of the bytes of a body, or the value; and the response."""
    response = value if hasattr(value, "status_code") and hasattr(value, "content") else None
    body = value if response is None else response.content
    if isinstance(body, bytes | bytearray):
        charset = declared_charset(_content_type(response))
        body, problem = read_json(bytes(body), charset, redacted=_without_key)
        if problem is not None:
            raise _not_json(problem, response)
    if not isinstance(body, dict | list | tuple | str | bool | int | float | Decimal | None):
        raise NotJSONError(
            f"frame() was given a {type(body).__name__}, which is neither a response nor JSON. "
            "Give it a response, the bytes of a body, or what .json() returns."
        )
    if isinstance(body, list | tuple) and body and hasattr(body[0], "status_code"):
        raise NotJSONError(
            "frame() was given a list of responses. Give it what pages(…) returns, or each "
            "response on its own: pandas.concat(map(frame, responses))."
        )
    return body, response


# -- responses ---------------------------------------------------------------------------------


def _describe(response: Any) -> dict[Hashable, Any]:
    """Return what `frame` leaves in ``attrs``: JSON values, so that Parquet keeps them."""
    reading = getattr(response, "extensions", {}).get(READING)
    url = _of_request(response, "url")
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
    content_type = _without_key(_content_type(response))
    media_type = re.match(r"\s*([\w.+-]{1,60}/[\w.+-]{1,60})", content_type)
    kind = f"content type {media_type[1]}" if media_type else "no content type"
    status, path = int(response.status_code), _describe(response)["path"] or "…"
    method = getattr(_of_request(response, "request"), "method", "GET")
    call = f'get("{path}")' if method == "GET" else f'request("{method}", "{path}")'
    message = (
        f"{method} {path} answered with status {status} ({kind}), and the body "
        f"{problem}. To look at the raw response: response = {call}, then response.text."
    )
    return NotJSONError(message, status=status, content_type=media_type and media_type[1])


def _without_key(text: str) -> str:
    """Return a text without any key of this process: a notebook keeps what its cells show."""
    return KeySearch(known_keys()).removed_from(text)


def _content_type(response: Any) -> str:
    return str(getattr(response, "headers", {}).get("content-type") or "")


def _of_request(response: Any, name: str) -> Any:
    """Return an attribute; httpx raises RuntimeError for a response without a request."""
    with contextlib.suppress(RuntimeError):
        return getattr(response, name, None)
    return None


# -- finding the records -----------------------------------------------------------------------


def _unwrap(body: Any, record_path: str | None) -> tuple[object, dict[str, object] | None]:
    """Return a body's records, and the envelope's other members, or None if it had no envelope."""
    if record_path == "auto":
        is_wrapped = isinstance(body, dict) and isinstance(body.get("data"), dict | list | tuple)
        record_path = "data" if is_wrapped else None
    if record_path is None:
        return body, None
    is_member = isinstance(body, dict) and record_path in body
    *parents, last = [record_path] if is_member else record_path.split(".")
    try:
        envelope = inner = dict(body)
        for key in parents:
            inner[key] = dict(inner[key])
            inner = inner[key]
        records = inner.pop(last)
    except (KeyError, TypeError, ValueError):
        members = body if isinstance(body, dict) else ()
        names = [name for name in members if re.fullmatch(r"[A-Za-z_][\w-]{0,39}", str(name))][:8]
        has = f"its members are {', '.join(names)}" if names else "it is not an object"
        raise DirectMailLabError(
            f"record_path {record_path!r} is not in this body: {has}. "
            "Name one of its members, or use record_path=None for the whole body."
        ) from None
    note = f"(nested more than {MAX_DEPTH} levels deep: see the response itself)"
    return records, {key: note if _is_deep(value) else value for key, value in envelope.items()}


def _is_deep(value: object) -> bool:
    """Return whether a value is too deep for ``attrs``, which pandas copies by recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        objects = [each.values() for each in level if isinstance(each, dict)]
        arrays = [each for each in level if isinstance(each, list | tuple)]
        level = [inner for members in (*objects, *arrays) for inner in members]
    return bool(level)


# -- records to columns ------------------------------------------------------------------------


def _table(records: object, response: Any) -> pd.DataFrame:
    rows = records if isinstance(records, list | tuple) else [records]
    fields = _fields(rows)
    index = pd.RangeIndex(len(rows))
    columns = {number: _column(values, index) for number, values in enumerate(fields.values())}
    table = pd.DataFrame(columns, index=index, copy=False)
    table.columns = pd.Index(_unique_names(fields), dtype=None if fields else object)
    table.attrs.update(_describe(response))
    return table


def _fields(rows: Sequence[object]) -> dict[_Path, list[object]]:
    """Return the values of each field, by the path of its keys, missing ones as None."""
    fields: dict[_Path, list[object]] = {}
    most = min(MOST_COLUMNS, max(MOST_CELLS // max(len(rows), 1), 1))
    for number, row in enumerate(rows):
        for path, value in _leaves(row, ()) if isinstance(row, dict) else [((), row)]:
            values = fields.setdefault(path, [])
            values.extend([None] * (number - len(values)))
            values.append(value)
        if len(fields) > most:
            return {(): list(rows)}
    if len(fields) > 1 and not any(value is not None for value in fields.get((), [])):
        fields.pop((), None)  # a null between records is a row without values
    for values in fields.values():
        values.extend([None] * (len(rows) - len(values)))
    return fields


def _leaves(record: Mapping[str, object], path: _Path) -> Iterator[tuple[_Path, object]]:
    """Yield the path and value of each column of a record; nested objects are descended into."""
    for key, value in record.items():
        inner = (*path, key)
        if value and isinstance(value, dict) and len(inner) < MAX_DEPTH:
            yield from _leaves(value, inner)
        else:
            yield inner, value


def _unique_names(paths: Iterable[_Path]) -> list[str]:
    """Return a name for each path, no two alike.

    ``{"a.b": 1, "a": {"b": 2}}`` has two paths for one name: ``a.b`` and ``a.b_2``. A lone
    surrogate, which pandas' strings cannot contain, is written as an escape.
    """
    names: dict[str, None] = {}
    numbers: Counter[str] = Counter()
    for path in paths:
        name = plain = (
            (".".join(map(str, path)) if path else VALUE_COLUMN)
            .encode("utf-8", "backslashreplace")
            .decode()
        )
        while name in names:
            numbers[plain] += 1
            name = f"{plain}_{numbers[plain] + 1}"
        names[name] = None
    return list(names)


def _column(values: list[object], index: pd.RangeIndex) -> Any:
    """Return one column, its missing values as ``<NA>``, in the dtype that all values share."""
    if (dtype := _dtype(values)) is not None:
        with contextlib.suppress(UnicodeEncodeError):  # as in _unique_names
            return pd.array(values, dtype=dtype)  # type: ignore[call-overload]
    # np.array() would make a two-dimensional array of lists of equal length. A Series keeps its
    # dtype, while DataFrame() would look for a narrower one in a bare array of objects.
    cells = (pd.NA if value is None else value for value in values)
    return pd.Series(np.fromiter(cells, dtype=object, count=len(index)), index, dtype=object)


def _dtype(values: Iterable[object]) -> str | None:
    """Return the dtype that holds all values exactly, or None."""
    kinds = set(map(type, values)) - {type(None)}
    if int in kinds and kinds <= {int, float}:
        most = _LARGEST_INT64 if kinds == {int} else _LARGEST_EXACT
        is_exact = all(-most - 1 <= value <= most for value in values if isinstance(value, int))
        return ("Int64" if kinds == {int} else "Float64") if is_exact else None
    return _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
