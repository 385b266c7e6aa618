"""Reading bodies of responses: as strict JSON, as records, as text."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .interaction import Headers, header
from .redaction.unpack import unpack

if TYPE_CHECKING:
    pass


def read_json(content: bytes, charset: str | None = None) -> tuple[object, str | None]:
    """Return a body's JSON and None, or None and what is wrong with it.

    It raises nothing: a JSONDecodeError holds the whole body, and would be our error's context.
    """
    if not content.strip():
        return None, "is empty"
    text = _decoded(content, charset)
    if text is None:
        return None, "is in no character set that it declares, nor in UTF-8"
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer), None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        where = f"line {error.lineno}, column {error.colno}"
        return None, "is JSON cut short" if cut else f"is not JSON (from {where} on)"
    except ValueError:
        return None, "is not JSON (it holds NaN or Infinity, which JSON does not have)"
    except RecursionError:
        return None, "is nested deeper than can be read"


def records_of(page: object) -> object:
    """Return the records of a list's page: its ``data``, or its only array if that has objects.

    If it has neither, the page itself is returned.
    """
    if not isinstance(page, dict):
        return page
    arrays = [value for value in page.values() if isinstance(value, list)]
    if isinstance(page.get("data"), list):
        return page["data"]
    is_plain = len(arrays) == 1 and all(isinstance(each, dict) for each in arrays[0])
    return arrays[0] if is_plain else page


def json_in(headers: Headers, body: bytes) -> tuple[object, str | None]:
    """Return the same as `read_json`, for a body that its headers may say is compressed."""
    try:
        content = unpack(body, header(headers, "Content-Encoding") or "")
    except ValueError as error:
        return None, f"is {error}"
    return read_json(content, charset_in(header(headers, "Content-Type") or ""))


def decoded_headers(headers: Any) -> Headers:
    """Return an httpx response's headers without Content-Encoding: httpx has decoded the body."""
    return tuple(each for each in headers.multi_items() if each[0] != "content-encoding")


def charset_in(content_type: str) -> str | None:
    """Return the character set that a content type declares, or None."""
    found = re.search(r"charset=\"?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    return found[1] if found else None


def text_in(content: bytes, charset: str | None = None) -> str:
    """Return a body as text, with U+FFFD for bytes that are no text; it raises nothing."""
    text = _decoded(content, charset)
    return content.decode("utf-8", "replace") if text is None else text


def _decoded(content: bytes, charset: str | None) -> str | None:
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


def _integer(digits: str) -> int | Decimal:
    # int() refuses a text of more than 4,300 digits; Decimal() does not.
    return int(digits) if len(digits) < 4000 else Decimal(digits)
