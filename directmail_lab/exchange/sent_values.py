"""What callers give for a query, a form or a JSON body, as it is sent.

pandas and numpy are not imported: a replaying test needs neither.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from ..arguments import argument_error
from .httpx_values import httpx

_quoted = json.JSONEncoder(ensure_ascii=False).encode

# What to write in place of a value that is no parameter, by its type.
_ADVICE = {
    "dict": "json.dumps(value), or a parameter for each member",
    "set": "sorted(value)",
    "bytes": "value.decode()",
}


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it: None for NaN and NA, text for dates and UUIDs.

    An Enum is its value, and a number or an array of numpy's is Python's. A Decimal stays, since it
    has more digits than a float. Others are unchanged.
    """
    if isinstance(value, Enum):
        return plain_value(value.value)
    if type(value).__module__ == "numpy":
        # In nanoseconds, tolist() would return integers.
        is_fine = value.dtype == "datetime64[ns]"
        return plain_value((value.astype("datetime64[us]") if is_fine else value).tolist())
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float | Decimal) and math.isnan(value):
        return None
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def json_text(value: Any, name: str = "json") -> str:
    """Return the JSON of a value that a caller gives: a Decimal is a number with its digits.

    Raises
    ------
    TypeError
        It is no value of JSON. The message has its ``name``: ``json.to.zip``.
    """
    plain = plain_value(value)
    if isinstance(plain, Mapping):
        members = []
        for key, each in plain.items():
            text = _text(key, name)
            members.append(f"{_quoted(text)}:{json_text(each, f'{name}.{text}')}")
        return f"{{{','.join(members)}}}"
    if isinstance(plain, list | tuple):
        return f"[{','.join(json_text(each, name) for each in plain)}]"
    return _quoted(plain) if isinstance(plain, str) else _text(plain, name)


def _text(value: Any, name: str) -> str:
    """Return a scalar as text; raise TypeError for what is none."""
    plain = plain_value(value)
    if plain is None:
        return "null"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, Decimal) and plain.is_finite():
        return f"{plain:f}"
    if isinstance(plain, str | int) or (isinstance(plain, float) and math.isfinite(plain)):
        return str(plain)
    raise TypeError(f"{name} has a {type(value).__name__}, which is no value of JSON")


def texts_of(option: str, values: Any) -> dict[str, list[str]]:
    """Return the texts of ``params`` or ``data`` by their names. What is missing is left out."""
    if isinstance(values, str | bytes | httpx.QueryParams):
        values = httpx.QueryParams(values).multi_items()
    texts: dict[str, list[str]] = {}
    for name, value in values.items() if isinstance(values, Mapping) else values:
        for each in value if isinstance(value, list | tuple) else [value]:
            if plain_value(each) is None:
                continue
            try:
                texts.setdefault(str(name), []).append(_text(each, option))
            except TypeError:
                kind = type(each).__name__
                other = "value.tolist()" if hasattr(each, "tolist") else "a text"
                raise argument_error(
                    f"{option}={{{str(name)!r}: …}} is a {kind}, which is no value of a parameter. "
                    f"Write {_ADVICE.get(kind, other)}."
                ) from None
    return texts


def add_params(path: Any, params: Any) -> tuple[Any, Any]:
    """Return a path with its query and the parameters, and what is left of these.

    httpx itself replaces the query by ``params``.
    """
    before, mark, query = str(path).partition("?")
    if not mark or params is None:
        return path, params
    texts = texts_of("params", params)
    twice = httpx.QueryParams(query).keys() & texts.keys()
    if twice:
        raise argument_error(f"{min(twice)!r} is in the path and in params=. Give it once.")
    whole = "&".join(filter(None, [query.strip("&"), str(httpx.QueryParams(texts))]))
    return f"{before}?{whole}" if texts else path, None
