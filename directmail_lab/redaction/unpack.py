"""Decompression within bounds, of bodies and of what is in their archives.

1,699 bytes of brotli can expand to 1 GB. So nothing is expanded to more than 64 MB, nor more than
twice (a gzip file that was sent with gzip).
"""

from __future__ import annotations

import importlib
import re
import zlib
from typing import Final

MAX_UNPACKED_BYTES: Final = 64 * 1024**2
_MAX_CODINGS: Final = 2
_MAX_MEMBERS: Final = 100

MAGIC: Final = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}


class TooLargeError(ValueError):
    """A body is larger than 64 MB, or would be once it is decompressed."""


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
        Where it cannot be opened, or not within the bounds (`TooLargeError`). The message says
        why, in a few words that hold nothing of the body.
    """
    names = [name for name in re.findall(r"[\w-]+", coding.lower()) if name != "identity"]
    for _ in range(_MAX_CODINGS + 1):
        if len(body) > MAX_UNPACKED_BYTES:
            raise TooLargeError("larger than 64 MB")
        found = (name for name, magic in MAGIC.items() if body.startswith(magic))
        name = names.pop() if names else next(found, "")
        if not name or not body.startswith(MAGIC.get(name, b"")) or _is_text(body):
            return body
        body = _open(body, name)
    raise ValueError("compressed more than twice")


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _open(body: bytes, name: str) -> bytes:
    """Return a body without one coding, or one byte more than is allowed of it."""
    limit = MAX_UNPACKED_BYTES + 1
    if name == "gzip":
        return _inflate(body, 31, limit)
    if name == "deflate":
        is_zlib = body[:1] == b"\x78" and int.from_bytes(body[:2], "big") % 31 == 0
        return _inflate(body, 15 if is_zlib else -15, limit)
    library = {"br": "brotli", "zstd": "zstandard"}.get(name)
    if library is None:
        raise ValueError("compressed in a way that is not known here")
    try:
        module = importlib.import_module(library)
        if name == "br":
            return bytes(module.Decompressor().process(body, output_buffer_limit=limit))
        reader = module.ZstdDecompressor().stream_reader(body, read_across_frames=True)
        return bytes(reader.read(limit))
    except ImportError:
        raise ValueError(f"compressed with {name}, and {library} is not installed") from None
    except Exception:
        # Each library has errors of its own, and a brotli before 1.2 no limit: a TypeError.
        raise ValueError(f"compressed with {name}, and {library} does not open it") from None


def _inflate(body: bytes, wbits: int, limit: int) -> bytes:
    """Return what each member of a gzip file holds, and what stands behind the last."""
    parts: list[bytes] = []
    for _ in range(_MAX_MEMBERS):
        reader = zlib.decompressobj(wbits)
        try:
            parts.append(reader.decompress(body, limit))
        except zlib.error:
            raise ValueError("compressed, and damaged") from None
        limit -= len(parts[-1])
        body = reader.unused_data
        if limit <= 0 or not body.startswith(MAGIC["gzip"]):
            return b"".join((*parts, body))
    raise ValueError("compressed in more than a hundred parts")
