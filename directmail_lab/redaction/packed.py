"""Looking into what is compressed, or written in base64 or hex digits."""

from __future__ import annotations

import binascii
import importlib
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MAX_UNPACKED", "cannot_unpack", "packed_texts", "unpack", "unpacked_parts"]

MAX_UNPACKED: Final = 64 * 1024 * 1024
"""So many bytes of a compressed body are looked into: a bomb must not fill the memory."""

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_MAGIC = (_GZIP, _ZSTD, *_ZLIB)
_MAX_PARTS = 64

# Printable ASCII, and the NULs of UTF-16, as "a": where no eight are in a row there is no key.
_READABLE: Final = bytes(97 if code == 0 or 32 <= code < 127 else 32 for code in range(256))
_HEX = re.compile("[0-9a-fA-F]{16,}")
_BASE64 = str.maketrans("-_", "+/")


def unpack(body: bytes, coding: str = "") -> bytes | None:
    """Return what a compressed body holds, as far as it can be read; None if it is not compressed.

    ``coding`` is the ``Content-Encoding``, whose codings are undone from the last; without one the
    first bytes decide. What is torn or too large is read as far as that goes.
    """
    names = [name.strip().lower() for name in coding.split(",") if name.strip()]
    plain: bytes | None = None
    for name in reversed(names) if names else [""]:
        inner = _unpack_once(plain if plain is not None else body, name)
        if inner is None:
            break
        plain = inner
    return plain


def _unpack_once(body: bytes, name: str) -> bytes | None:
    if body.startswith((_GZIP, *_ZLIB)):
        return _inflate(body, 47) or None
    if name == "deflate":
        return _inflate(body, -15) or None
    if body.startswith(_ZSTD):
        return _by_library(body, "zstandard", lambda zstd: zstd.ZstdDecompressor().decompressobj())
    if name == "br":
        return _by_library(body, "brotli", lambda brotli: brotli.Decompressor())
    return None


def _inflate(body: bytes, wbits: int) -> bytes:
    """Return as much as can be inflated, of every member of a gzip file."""
    parts: list[bytes] = []
    room = MAX_UNPACKED
    while body and room > 0:
        reader = zlib.decompressobj(wbits)
        try:
            parts.append(reader.decompress(body, room))
        except zlib.error:
            parts.append(_inflate_bytewise(body, wbits, room))
            break
        room -= len(parts[-1])
        body = reader.unused_data if reader.eof and reader.unused_data.startswith(_GZIP) else b""
    return b"".join(parts)


def _inflate_bytewise(body: bytes, wbits: int, room: int) -> bytes:
    """Return what comes out before the damage: zlib gives nothing of a call that fails."""
    reader = zlib.decompressobj(wbits)
    parts: list[bytes] = []
    try:
        for at in range(0, len(body), 64):
            parts.append(reader.decompress(body[at : at + 64], room))
            room -= len(parts[-1])
            if room <= 0:
                break
    except zlib.error:
        pass
    return b"".join(parts)


def _by_library(body: bytes, library: str, reader_of: Callable[[Any], Any]) -> bytes | None:
    try:
        module = importlib.import_module(library)
    except ImportError:
        return None
    reader = reader_of(module)
    feed = getattr(reader, "process", None) or reader.decompress
    parts: list[bytes] = []
    room = MAX_UNPACKED
    for at in range(0, len(body), 4096):
        try:
            parts.append(feed(body[at : at + 4096]))
        except Exception:
            # Each library has its own error, and old ones differ: what came before is what counts.
            break
        room -= len(parts[-1])
        if room <= 0:
            break
    return b"".join(parts) or None


def cannot_unpack(body: bytes, coding: str) -> str | None:
    """Return the coding of a body that may hide anything, since no library here can undo it."""
    name = coding.strip().lower()
    library = {"br": "brotli", "zstd": "zstandard"}.get(name)
    if library is None or not body or (name == "zstd" and not body.startswith(_ZSTD)):
        return None
    try:
        importlib.import_module(library)
    except ImportError:
        # httpx hands a body on decoded and leaves the header: text is no compressed body.
        return None if _is_text(body) else name
    return None


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False


def unpacked_parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each compressed part inside a body, such as a form's file: its place and its text."""
    found = 0
    for magic in _MAGIC:
        at = body.find(magic, 1)
        while at >= 0 and found < _MAX_PARTS:
            inner = _unpack_once(body[at:], "")
            if inner:
                found += 1
                yield at, inner
            at = body.find(magic, at + len(magic))


def packed_texts(run: str, *, deep: bool = True) -> Iterator[str]:
    """Yield what a run of base64 or hex digits may stand for, one character a byte.

    Where its base64 begins is not known (a path's ``/`` is a digit too), so all four are tried.
    ``deep`` also gives what a compressed one of them holds.
    """
    for raw in _decoded(run):
        if b"aaaaaaaa" in raw.translate(_READABLE):
            yield raw.decode("latin-1")
        if deep and raw.startswith(_MAGIC) and (inner := unpack(raw)):
            yield inner.decode("latin-1")


def _decoded(run: str) -> Iterator[bytes]:
    digits = run.rstrip("=").translate(_BASE64)
    for start in range(4):
        part = digits[start:]
        part = part[: len(part) - 1] if len(part) % 4 == 1 else part
        yield binascii.a2b_base64(part + "=" * (-len(part) % 4))
    for part in _HEX.findall(run):
        yield bytes.fromhex(part[: len(part) & ~1])
        yield bytes.fromhex(part[1 : len(part) - (len(part) & 1 ^ 1)])
