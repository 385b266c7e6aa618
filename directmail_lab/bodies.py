"""Reading bodies of responses: as strict JSON, as records, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qsl

from .interaction import Headers, header
from .redaction.unpack import unpack

MAX_DEPTH: Final = 50
"""How many levels `leaves` descends; an object or array below them is a leaf."""

Path = tuple[str | int, ...]
"""Where a value is in a JSON value: names of members, and positions in arrays."""

Leaf = tuple[Path, object]

_FIELD_NAME: Final = re.compile(r';\s*name="([^"\r\n]*)"', re.IGNORECASE)


def read_json(
    content: bytes, charset: str | None = None, *, redacted: Callable[[str], str] = str
) -> tuple[object, str | None]:
    """Return a body's JSON and None, or None and what is wrong with it.

    ``redacted`` returns the text that is read in place of the body's. Nothing is raised: a
    JSONDecodeError holds the whole body, and would be our error's context.
    """
    if not content.strip():
        return None, "is empty"
    text = _decode(content, charset)
    if text is None:
        return None, "is neither UTF-8 nor in the character set that it declares"
    text = redacted(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer), None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        where = f"line {error.lineno}, column {error.colno}"
        return None, "is JSON cut short" if cut else f"is not JSON (from {where} on)"
    except ValueError:
        return None, "is not JSON (it has NaN or Infinity, which JSON does not allow)"
    except RecursionError:
        return None, "is nested deeper than can be read"


def leaves(value: object, path: Path = (), *, into_arrays: bool = False) -> Iterator[Leaf]:
    """Yield the path and value of each leaf of a JSON value: a scalar, an array, an empty object.

    With ``into_arrays``, arrays are descended into as objects are.
    """
    has_members = bool(value) and len(path) < MAX_DEPTH
    if has_members and isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, (*path, str(name)), into_arrays=into_arrays)
    elif has_members and isinstance(value, list) and into_arrays:
        for position, element in enumerate(value):
            yield from leaves(element, (*path, position), into_arrays=into_arrays)
    else:
        yield path, value


def find_records(page: object) -> object:
    """Return the records of a list's page: its ``data``, or its only array if that has objects.

    They may be in an object ``data``. If there are none, the page itself is returned.
    """
    if not isinstance(page, dict):
        return page
    data = page.get("data")
    if isinstance(data, list | dict):
        return find_records(data)
    arrays = [value for value in page.values() if isinstance(value, list)]
    if len(arrays) == 1 and all(isinstance(record, dict) for record in arrays[0]):
        return arrays[0]
    return page


def read_form(media_type: str, body: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form, URL-encoded or multipart; that of a file has an empty value."""
    text = body.decode("utf-8", "replace").lstrip()
    if not media_type.startswith("multipart/"):
        return parse_qsl(text, keep_blank_values=True)
    fields = []
    for part in text.split(text.partition("\r\n")[0] or "--")[1:]:  # the first line is the boundary
        head, _, value = part.partition("\r\n\r\n")
        if name := _FIELD_NAME.search(head):
            is_file = "filename" in head.lower()
            fields.append((name[1], "" if is_file else value.removesuffix("\r\n")))
    return fields


def read_json_body(headers: Headers, body: bytes) -> tuple[object, str | None]:
    """Return the same as `read_json`, for a body that its headers may say is compressed."""
    try:
        content = unpack(body, header(headers, "Content-Encoding") or "")
    except ValueError as error:
        return None, f"is {error}"
    return read_json(content, declared_charset(header(headers, "Content-Type") or ""))


def decoded_headers(headers: Any) -> Headers:
    """Return an httpx response's headers without Content-Encoding: httpx has decoded the body."""
    return tuple(item for item in headers.multi_items() if item[0] != "content-encoding")


def declared_charset(content_type: str) -> str | None:
    """Return the character set that a content type declares, or None."""
    match = re.search(r"charset=\"?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    return match[1] if match else None


def decode_text(content: bytes, charset: str | None = None) -> str:
    """Return a body as text, with U+FFFD for bytes that are no text; it raises nothing."""
    text = _decode(content, charset)
    return content.decode("utf-8", "replace") if text is None else text


def _decode(content: bytes, charset: str | None) -> str | None:
    """Return a body as text: decoded as UTF-8, -16 or -32 as detected, else as it declares."""
    for encoding in (json.detect_encoding(content), charset):
        try:
            return content.decode(encoding) if encoding else None
        # A service may declare any of Python's codecs: "undefined" and "idna" raise a UnicodeError
        # that is not a UnicodeDecodeError, "base64" a LookupError.
        except (UnicodeError, LookupError):
            continue
    return None


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _parse_integer(digits: str) -> int | Decimal:
    # int() refuses a text of more than 4,300 digits; Decimal() does not.
    return int(digits) if len(digits) < 4000 else Decimal(digits)
