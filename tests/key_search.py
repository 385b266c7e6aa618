"""Search bytes for a key as a thief would: undo every encoding, and look at the results.

This module shares no code with the redactor. The redactor looks for the forms that a key can take.
This module decodes whatever the standard library can decode, and looks for the key itself.
"""

import base64
import gzip
import html
import json
import quopri
import re
import zlib
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

MAX_DEPTH = 4
MAX_TEXTS = 4000


def traces(data: bytes, key: str) -> list[str]:
    """Return each way to get the key from ``data``: the decodings applied, outermost first."""
    wanted = key.lower().encode()
    found: list[str] = []
    seen = {data}
    queue: list[tuple[bytes, tuple[str, ...]]] = [(data, ())]
    for text, path in queue:
        if wanted in text.lower():
            found.append(" > ".join(path) or "as it is")
        if len(path) == MAX_DEPTH:
            continue
        for name, inner in _decodings(text):
            if len(inner) >= len(key) and inner not in seen and len(seen) < MAX_TEXTS:
                seen.add(inner)
                queue.append((inner, (*path, name)))
    return found


def _decodings(data: bytes) -> Iterator[tuple[str, bytes]]:
    text = data.decode("latin-1")
    yield "percent", unquote_to_bytes(data)
    yield "html", html.unescape(text).encode("latin-1", "ignore")
    yield "json", re.sub(rb'\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|["\\/])', _unescape, data)
    yield "unwrapped", re.sub(rb"(?:\r|\\+r)?(?:\n|\\+n)[ \t]*", b"", data)
    yield "without nul", data.replace(b"\0", b"")
    if b"=" in data:
        yield "quoted-printable", quopri.decodestring(data)
    for run in re.findall(r"[0-9a-fA-F]{16,}", text):
        yield from (("hex", bytes.fromhex(part[: len(part) & ~1])) for part in (run, run[1:]))
    for alphabet in (r"[A-Za-z0-9+/]{11,}", r"[A-Za-z0-9_-]{11,}"):
        for run in re.findall(alphabet, text):
            yield from (("base64", _base64(run[start:])) for start in range(4))
    yield from _inflated(data)


def _unescape(match: re.Match[bytes]) -> bytes:
    token = match[1].decode()
    if token[0] == "x":
        return bytes([int(token[1:], 16)])
    return json.loads(f'"\\{token}"').encode("latin-1", "ignore") if token[0] == "u" else match[1]


def _base64(run: str) -> bytes:
    run = run[: len(run) - 1] if len(run) % 4 == 1 else run
    return base64.b64decode(
        run + "=" * (-len(run) % 4), altchars=b"-_" if re.search("[-_]", run) else None
    )


def _inflated(data: bytes) -> Iterator[tuple[str, bytes]]:
    for magic, name, wbits in (
        (b"\x1f\x8b", "gzip", 31),
        (b"\x78", "zlib", 15),
        (b"", "deflate", -15),
    ):
        places = [m.start() for m in re.finditer(re.escape(magic), data)] if magic else [0]
        for at in places[:100]:
            try:
                yield name, zlib.decompressobj(wbits).decompress(data[at:])
            except zlib.error:
                continue


def planted(key: str) -> dict[str, bytes]:
    """Return the key in each encoding that services and libraries use."""
    return {
        "raw": key.encode(),
        "json": "".join(f"\\u{ord(c):04X}" for c in key).encode(),
        "percent": "".join(f"%{ord(c):02x}" for c in key).encode(),
        "html": "".join(f"&#{ord(c)};" for c in key).encode(),
        "hex": key.encode().hex().upper().encode(),
        "base64": base64.b64encode(b"user=" + key.encode()),
        "MIME": base64.encodebytes(b"x" * 40 + key.encode()),
        "MIME in JSON": json.dumps(base64.encodebytes(b"x" * 40 + key.encode()).decode()).encode(),
        "packed": gzip.compress(b"the key is " + key.encode()),
    }
