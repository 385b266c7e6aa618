"""Decompression within bounds. Only this module decompresses bodies for redaction and the audit.

893 bytes can expand to 8 GB. So nothing is expanded to more than 64 MB, nor to more than 100 times
its size (1 MB is always allowed), nor more than twice (a gzip file that was sent with gzip).
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Final

MAX_UNPACKED_BYTES: Final = 64 * 1024**2
_MAX_TIMES: Final = 100
_ALWAYS_BYTES: Final = 1024**2
_MAX_NESTING: Final = 2
_MAX_MEMBERS: Final = 100

MAGIC: Final = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}


def unpack(body: bytes, coding: str = "") -> bytes:
    """Return what a body holds, uncompressed; the body itself where it is not compressed.

    A body that is cut off is read as far as it goes.

    Parameters
    ----------
    coding
        Its ``Content-Encoding``; without one, gzip and zstd are known by their first bytes. httpx
        decodes a body but leaves the header, so a body that is text is returned as it is.

    Raises
    ------
    ValueError
        Where it cannot be opened, or not within the bounds. The message says why, in a few words
        that hold nothing of the body.
    """
    names = [name.strip().removeprefix("x-") for name in coding.lower().split(",")]
    names = [name for name in names if name not in ("", "identity")]
    room = min(MAX_UNPACKED_BYTES, max(_ALWAYS_BYTES, _MAX_TIMES * len(body)))
    for _ in range(_MAX_NESTING + 1):
        found = (name for name, magic in MAGIC.items() if body.startswith(magic))
        name = names.pop() if names else next(found, "")
        if not name or not body.startswith(MAGIC.get(name, b"")) or _is_text(body):
            return body
        body = _open(body, name, room)
        if len(body) > room:
            raise ValueError("compressed to less than a hundredth, or from more than 64 MB")
    raise ValueError("compressed more than twice")


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _open(body: bytes, name: str, room: int) -> bytes:
    if name == "gzip":
        return _inflate(body, 31, room)
    if name == "deflate":
        is_zlib = body[:1] == b"\x78" and int.from_bytes(body[:2], "big") % 31 == 0
        return _inflate(body, 15 if is_zlib else -15, room)
    if name not in _READERS:
        raise ValueError("compressed in a way that is not known here")
    library, reader = _READERS[name]
    try:
        return bytes(reader(importlib.import_module(library), body, room + 1))
    except ImportError:
        raise ValueError(f"compressed with {name}, and {library} is not installed") from None
    except Exception:
        # Each library has errors of its own, and a brotli before 1.2 no limit: a TypeError.
        raise ValueError(f"compressed with {name}, and {library} does not open it") from None


def _inflate(body: bytes, wbits: int, room: int) -> bytes:
    """Return what each member of a gzip file holds, and what stands behind the last."""
    parts: list[bytes] = []
    for _ in range(_MAX_MEMBERS):
        reader = zlib.decompressobj(wbits)
        try:
            parts.append(reader.decompress(body, room + 1))
        except zlib.error:
            raise ValueError("compressed, and damaged") from None
        room -= len(parts[-1])
        body = reader.unused_data
        if room < 0 or not body.startswith(MAGIC["gzip"]):
            return b"".join((*parts, body))
    raise ValueError("compressed in more than a hundred parts")


def _zstd(zstd: Any, body: bytes, limit: int) -> Any:
    return zstd.ZstdDecompressor().stream_reader(body, read_across_frames=True).read(limit)


def _brotli(brotli: Any, body: bytes, limit: int) -> Any:
    return brotli.Decompressor().process(body, output_buffer_limit=limit)


_READERS: Final = {"zstd": ("zstandard", _zstd), "br": ("brotli", _brotli)}
