"""Read the bodies of requests and responses: decompress them, parse JSON and forms, decode text."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from textwrap import shorten
from typing import Any, Literal, NamedTuple

from ..display import printable
from ..errors import DirectMailLabError
from .values import Headers, Request, Response, header, media_type_of

MAX_DEPTH = 50
"""How many levels `leaves` descends. A deeper object or array is a leaf."""

Path = tuple[str, ...]
"""The path to a value in JSON: names of members."""

MAX_UNPACKED_BYTES = 64 * 1024**2
"""The largest size that a body is expanded to: 1,699 bytes of brotli can expand to 1 GB."""
_MAX_CODINGS = 2
MOST_SHOWN = 4000
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types of pictures that are shown: no SVG, which may have scripts."""
_LAYOUT = json.JSONEncoder(indent=2, ensure_ascii=False)
_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}

# The usual names of the member with the records of a page, beside facets, errors or links.
_LISTS = re.compile(
    "children|content|data|elements|entries|hits|items|nodes|records|resources|results|rows|value"
)

_FIELD_NAME = re.compile(rb';\s*name="([^"\r\n]*)"', re.IGNORECASE)
_FILE_NAME = re.compile(rb';\s*filename="([^"\r\n]*)"', re.IGNORECASE)
_DECLARED_CHARSET = re.compile(r"charset=\"?([\w.:-]{1,40})", re.IGNORECASE)


def _number(text: str) -> float:
    """Return a number with a fraction or an exponent. ``1e400`` is larger than any float."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("an endless number")
    return number


# int() refuses NaN and Infinity.
_JSON = json.JSONDecoder(parse_float=_number, parse_constant=int)


def read_json(
    content: bytes,
    charset: str | None = None,
    *,
    redacted: Callable[[str], str] = str,
) -> tuple[object, str | None]:
    """Return a body's JSON and None, or None and what is wrong with it.

    ``redacted`` gets the text of the body, and returns the text to parse. Nothing is raised: a
    JSONDecodeError contains the whole body, and would become the context of our error.
    """
    if not content.strip():
        return None, "is empty"
    text = _decode(content, charset)
    if text is None:
        return None, "is neither UTF-8 nor in the character set that it declares"
    try:
        body = _JSON.decode(redacted(text))
    except json.JSONDecodeError as error:
        return None, f"is not JSON (from line {error.lineno}, column {error.colno} on)"
    except (ValueError, RecursionError):
        return None, "has NaN, Infinity or an endless number, or is nested deeper than can be read"
    return body, None


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the path and value of each leaf of a JSON value: a scalar, an array, an empty object.

    Leaves come in the order of the value. ``path`` is the path to the value itself.
    """
    if not value or len(path) == MAX_DEPTH or not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from leaves(inner, (*path, str(name)))


def unwrap(body: Any, path: Path) -> tuple[Any, dict[str, Any] | None]:
    """Return a body's records, at the end of a path of members, and all other members.

    Without a path, the whole body is the records, and there is nothing else: None.

    Raises
    ------
    DirectMailLabError
        The path is not in the body.
    """
    if not path:
        return body, None
    found = body
    others: dict[str, Any] = {}
    beside = others
    for depth, name in enumerate(path):
        if isinstance(found, list):
            parents = [each for each in found if isinstance(each, dict) and name in each]
            if parents or not found:
                outer = path[depth - 1] if depth else "parent"
                return _rows_below(parents, outer, path[depth:]), others
        members = found if isinstance(found, dict) else {}
        if name not in members:
            shown = shorten(", ".join(map(str, members)), 200, placeholder=" …") or "none"
            raise DirectMailLabError(
                f"rows_at {'.'.join(path)!r} is not in this body. Where {name!r} should be, the "
                f"members are: {shown}.",
                "Name another path, or use rows_at=None for the whole body.",
            )
        if depth:
            beside[path[depth - 1]] = beside = {}
        beside.update(members)
        found = beside.pop(name)
    return found, others


def _rows_below(parents: list[dict[str, Any]], outer: str, path: Path) -> list[Any]:
    """Return the rows at a path in each element of a list, with the element's id beside them."""
    rows = []
    for parent in parents:
        beside = {f"{outer}.id": parent["id"]} if "id" in parent else {}
        found, _ = unwrap(parent, path)
        found = found if isinstance(found, list) else [found]
        rows += [beside | (each if isinstance(each, dict) else {"value": each}) for each in found]
    return rows


def path_of_records(body: object) -> Path:
    """Return the path to the records of a page, which is empty if they are all of it.

    They are in ``data`` if that is an array or an object, and else in the body or an only other
    object: as an array of objects with a usual name, or the only one, or the first array if all are
    empty. An array of links has no records.
    """
    if not isinstance(body, dict):
        return ()
    data = body.get("data")
    if isinstance(data, dict | list):
        return ("data", *path_of_records(data))
    name = _list_of(body)
    if name is not None:
        return (name,)
    if any(value and isinstance(value, list) for value in body.values()):
        return ()
    inside = {outer: _list_of(value) for outer, value in body.items() if isinstance(value, dict)}
    found = [(outer, inner) for outer, inner in inside.items() if inner is not None]
    return found[0] if len(found) == 1 else ()


def _list_of(body: dict[str, Any]) -> str | None:
    """Return the member with the records of a page: by its name, or since no other has objects."""
    lists = {name: each for name, each in body.items() if isinstance(each, list)}
    lists = {name: each for name, each in lists.items() if not _has_links(each)}
    arrays = [name for name in lists if all(isinstance(each, dict) for each in lists[name])]
    for name in arrays:
        if is_usual_list(name):
            return name
    filled = [name for name in arrays if lists[name]]
    if len(filled) == 1:
        return filled[0]
    return None if any(lists.values()) else next(iter(arrays), None)


def is_usual_list(name: str) -> bool:
    """Return whether a member of this name usually has the records of a page."""
    return _LISTS.fullmatch(plain_name(name)) is not None


def _has_links(array: list[Any]) -> bool:
    are_links = [isinstance(each, dict) and {"href", "rel"} <= each.keys() for each in array]
    return bool(array) and all(are_links)


def plain_name(name: str) -> str:
    """Return a name without its style: ``nextLink`` of ``@odata.nextLink``, ``next_link``."""
    return re.sub("[^a-z]", "", name.lower()).removeprefix("odata")


# What a table in text may be sent as, if the name of its file says so.
_ANY_FILE = ("", "application/octet-stream", "application/vnd.ms-excel", "text/plain")
_TABLE_FILE = re.compile(r"\.(?:csv|tsv)\b", re.IGNORECASE)


# JSON, or a page that says what is wrong, which some services send as text/csv.
_NO_TABLE = (b"<", b"[", b"{")
_SAMPLE = 65_536
# Follows the last row of a table, unless a quotation mark is missing.
_END = "\0"


def separators_of(headers: Headers, path: str, content: bytes) -> str:
    """Return the characters that may separate the columns of a table in text, or an empty text."""
    if not content.strip() or content.lstrip().startswith(_NO_TABLE):
        return ""
    media_type = media_type_of(headers)
    name = f"{header(headers, 'Content-Disposition')} {path}"
    if media_type == "text/tab-separated-values":
        return "\t"
    is_table = media_type in _ANY_FILE and _TABLE_FILE.search(name)
    return ",;\t|" if is_table or media_type in ("application/csv", "text/csv") else ""


class Table(NamedTuple):
    """A table in text: its columns and its rows."""

    names: list[str]
    rows: list[list[str | None]]
    separator: str

    @property
    def json(self) -> str:
        """Its cells as JSON, each with the name of its column, of which two may be equal."""
        cells = [
            [{name: cell} for name, cell in zip(self.names, row, strict=True)] for row in self.rows
        ]
        return json.dumps(cells, ensure_ascii=False)


def read_table(text: str, separators: str) -> Table:
    """Return a table in CSV with its cells as text; a cell that is not there is None.

    The separator is the one of these characters that is most frequent in the header; ``sep=;`` is a
    line above it, which Excel reads.

    Raises
    ------
    ValueError
        It is not a table. The message quotes nothing of it.
    """
    stated = re.match(r"sep=(.)\r?\n", text)
    if stated:
        separators = stated[1]
        text = text[stated.end() :]
    text = text.lstrip("\r\n")
    header = re.sub('"[^"]*"', "", text[:_SAMPLE]).partition("\n")[0]
    separator = max(separators, key=header.count)
    whole = io.StringIO(text.removesuffix("\n") + f"\n{_END}", newline="")
    reader = csv.reader(whole, delimiter=separator)
    try:
        numbered = [(reader.line_num, row) for row in reader]
    except csv.Error:  # a cell of more than 131,072 characters
        numbered = [(0, [])]
    if numbered.pop()[1] != [_END]:
        raise ValueError("not a table of CSV: a quotation mark is missing, or a cell is too long")
    (_, names), *others = numbered
    rows = []
    for line, row in others:
        if len(row) > len(names):
            raise ValueError(
                f"not a table of CSV: line {line} has {len(row)} fields, "
                f"where {len(names)} are expected"
            )
        if row or len(names) == 1:
            rows.append([*row, *[None] * (len(names) - len(row))])
    return Table(names, rows, separator)


def table_in(headers: Headers, path: str, body: bytes) -> Table | None:
    """Return the table in CSV that a body is, or None if it is another one, or damaged."""
    separators = separators_of(headers, path, body)
    with suppress(ValueError):
        if separators:
            content = unpack(body, header(headers, "Content-Encoding"))
            charset = declared_charset(header(headers, "Content-Type") or "")
            return read_table(decode_text(content, charset), separators)
    return None


class Part(NamedTuple):
    """A part of a multipart body: its headers, the field, its file (None if it is no file)."""

    head: bytes
    name: str
    file_name: str | None
    content: bytes


def read_multipart(body: bytes) -> list[Part]:
    """Return the parts of a multipart body; its first line is the boundary."""
    body = body.lstrip()
    boundary = b"\r\n" + (body.partition(b"\r\n")[0] or b"--")
    pieces = (b"\r\n" + body).split(boundary)[1:]
    if pieces:  # without the last boundary, if the body broke off
        pieces[-1] = pieces[-1].removesuffix(b"\r\n")
    parts = []
    for piece in pieces:
        head, blank_line, content = piece.partition(b"\r\n\r\n")  # there may be no headers
        head = head.removeprefix(b"\r\n")
        if blank_line:
            name = _parameter(_FIELD_NAME, head) or ""
            parts.append(Part(head, name, _parameter(_FILE_NAME, head), content))
    return parts


def _parameter(pattern: re.Pattern[bytes], head: bytes) -> str | None:
    match = pattern.search(head)
    return None if match is None else match[1].decode("utf-8", "replace")


def read_json_body(message: Request | Response) -> tuple[object, str | None]:
    """Return what `read_json` does, after decompressing the body if its headers say so."""
    try:
        content = unpacked(message)
    except ValueError as error:
        return None, f"is {error}"
    return read_json(content, declared_charset(header(message.headers, "Content-Type") or ""))


def declared_charset(content_type: str) -> str | None:
    """Return the character set that a content type declares, or None."""
    match = _DECLARED_CHARSET.search(content_type)
    return match[1] if match else None


def decode_text(content: bytes, charset: str | None = None) -> str:
    """Return a body as text, with U+FFFD for bytes that cannot be decoded. It never raises."""
    text = _decode(content, charset)
    return content.decode("utf-8", "replace") if text is None else text


def plain_text(body: bytes) -> str | None:
    """Return a UTF-8 body as text, or None if it is binary."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _decode(content: bytes, charset: str | None) -> str | None:
    """Return a body as text: in the UTF-8, -16 or -32 that is detected, else in its charset."""
    # What is called ISO-8859-1 is Windows' (WHATWG), where 0x80 is the euro sign.
    is_latin = (charset or "").lower() in ("iso-8859-1", "latin1", "us-ascii")
    for encoding in (json.detect_encoding(content), "cp1252" if is_latin else None, charset):
        # A service may declare any of Python's codecs. "undefined" and "idna" raise a UnicodeError
        # that is not a UnicodeDecodeError; "base64" raises a LookupError.
        with suppress(UnicodeError, LookupError):
            if encoding:
                return content.decode(encoding)
    return None


# -- missing bodies ------------------------------------------------------------------------------


class MissingBody(bytes):
    """A placeholder for a body that was not recorded: ``<not recorded: 5000 bytes>``."""


_MISSING = re.compile(rb"<not (?:recorded|searched): (\d{1,18}|\?) bytes>")


def body_text(body: bytes, most: int = MOST_SHOWN) -> str:
    """Return indented JSON, with letters instead of their escapes, or any other text unchanged.

    It has at most ``most`` characters.
    """
    missing = shown_missing(body)
    if missing:
        return missing
    text = plain_text(body)
    if text is None:
        return f"({len(body):,} bytes, not text)"
    with suppress(ValueError, RecursionError):
        start = ""
        for piece in _LAYOUT.iterencode(json.loads(text)):
            start += piece
            if len(start) > most:  # indenting megabytes takes seconds
                break
        return shown_text(start, len(text), most)
    return shown_text(text, most=most)


def shown_text(text: str, characters: int = 0, most: int = MOST_SHOWN) -> str:
    """Return a text to show: cut if it is long, with control characters escaped."""
    if len(text) > most:
        count = max(characters, len(text))
        text = f"{text[:most]}\n… ({count:,} characters in all)"
    text = text.replace("\r\n", "\n").expandtabs(4)
    return printable(text)


def missing_body(
    size: int | None, why: Literal["recorded", "searched"] = "recorded"
) -> MissingBody:
    """Return the placeholder for a body. ``size`` is in bytes, or None if it is not known."""
    shown = "?" if size is None else size
    return MissingBody(f"<not {why}: {shown} bytes>".encode())


def is_like_missing(body: bytes | None) -> bool:
    """Return whether a body reads like a placeholder. A service may send such a text itself."""
    return body is not None and _MISSING.fullmatch(body) is not None


def shown_missing(body: bytes | None) -> str | None:
    """Return ``(not recorded: 5000 bytes)`` to show for a missing body, or None for any other."""
    return f"({body[1:-1].decode()})" if isinstance(body, MissingBody) else None


# -- compression ---------------------------------------------------------------------------------


HARMLESS_CODINGS = frozenset({"identity", "none", "utf-8", "utf8", "binary", "aws-chunked"})
"""What services name as a ``Content-Encoding`` of a body that is not compressed."""


class TooLargeError(ValueError):
    """A body is larger than 64 MB, or would be once it is decompressed."""


def unpacked(message: Request | Response) -> bytes:
    """Return the body of a message decompressed as its headers say; see `unpack` for errors."""
    return unpack(message.body or b"", header(message.headers, "Content-Encoding"))


def unpack(body: bytes, coding: str | None = None) -> bytes:
    """Return a body decompressed, or unchanged if it is not compressed.

    If a body is cut short, the part that is there is returned.

    Parameters
    ----------
    coding
        Its ``Content-Encoding``. Without one, gzip and zstd are recognised by their first bytes.
        httpx decodes a body and keeps the header, so a body that is text is returned unchanged.

    Raises
    ------
    ValueError
        The body cannot be decompressed, or is too large (`TooLargeError`). The message says why in
        a few words, and quotes nothing of the body.
    """
    # x-gzip is gzip (RFC 9110, section 8.4.1.3).
    text = (coding or "").lower().replace("x-gzip", "gzip")
    listed = re.findall(r"[\w-]+", text) if text else []
    names = [name for name in listed if name not in HARMLESS_CODINGS]
    for _ in range(_MAX_CODINGS + 1):
        if len(body) > MAX_UNPACKED_BYTES:
            raise TooLargeError("larger than 64 MB")
        if names:
            name = names.pop()
        elif body.startswith(tuple(_MAGIC.values())):
            name = "gzip" if body.startswith(_MAGIC["gzip"]) else "zstd"
        else:
            return body
        if not body.startswith(_MAGIC.get(name, b"")) or plain_text(body) is not None:
            return body
        body = _open(body, name)
    raise ValueError("compressed more than twice")


def _open(body: bytes, name: str) -> bytes:
    """Return a body without one coding: at most one byte more than the limit."""
    limit = MAX_UNPACKED_BYTES + 1
    if name == "gzip":
        return _inflate(body, 31, limit)
    if name == "deflate":
        is_zlib = body[:1] == b"\x78" and int.from_bytes(body[:2], "big") % 31 == 0
        return _inflate(body, 15 if is_zlib else -15, limit)
    library = {"br": "brotli", "zstd": "zstandard"}.get(name)
    if library is None:
        raise ValueError("compressed in an unknown way")
    try:
        module = importlib.import_module(library)
        if name == "br":
            return bytes(module.Decompressor().process(body, output_buffer_limit=limit))
        reader = module.ZstdDecompressor().stream_reader(body, read_across_frames=True)
        return bytes(reader.read(limit))
    except ImportError:
        raise ValueError(f"compressed with {name}, and {library} is not installed") from None
    except Exception:
        # Each library has its own errors. brotli before 1.2 takes no limit: a TypeError.
        raise ValueError(f"compressed with {name}, and {library} cannot read it") from None


def _inflate(body: bytes, wbits: int, limit: int) -> bytes:
    reader = zlib.decompressobj(wbits)
    try:
        plain = reader.decompress(body, limit)
    except zlib.error:
        raise ValueError("compressed, and damaged") from None
    if reader.unused_data:  # which may be compressed, too
        raise ValueError("compressed, with other data after it")
    return plain
