"""Compressed bodies are opened within bounds, and never passed where they cannot be opened."""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib

import pytest
from hypothesis import given, strategies as st

from directmail_lab.exchange.bodies import MAX_UNPACKED_BYTES, TooLargeError, unpack

TEXT = b'{"name": "Ada", "id": 12}\n' * 40
DEFLATED = zlib.compress(TEXT)[2:-4]  # as some send it, without the header of zlib


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(TEXT), ""),
        (gzip.compress(TEXT), " GZIP , identity"),
        (zlib.compress(TEXT), "deflate"),
        (DEFLATED, "deflate"),
        (zlib.compress(gzip.compress(TEXT)), "deflate"),
        (gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]), ""),
        (gzip.compress(b"") * 5000 + gzip.compress(TEXT), ""),
        (gzip.compress(TEXT[:500]) + TEXT[500:], "gzip"),
        (TEXT, "gzip"),
        (TEXT, "something"),
    ],
)
def test_what_is_compressed_is_opened_and_text_is_taken_as_it_is(body: bytes, coding: str) -> None:
    """By the header, by the first bytes, or both: a file may be compressed and sent so."""
    assert unpack(body, coding) == TEXT


@pytest.mark.parametrize(("name", "library"), [("br", "brotli"), ("zstd", "zstandard")])
def test_a_coding_of_a_library_is_opened_where_that_is_installed(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded as all are: a bomb is refused before it fills the memory. It may hide anything."""
    module = pytest.importorskip(library)

    assert unpack(module.compress(TEXT), name) == TEXT
    with pytest.raises(TooLargeError):
        unpack(module.compress(bytes(MAX_UNPACKED_BYTES + 1)), name)
    with pytest.raises(ValueError, match="does not open it"):
        unpack(b"\x28\xb5\x2f\xfd" + b"\xff" * 20, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=f"{library} is not installed"):
        unpack(b"\x28\xb5\x2f\xfd\x02\x80\xff\xfe\x03", name)


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (gzip.compress(gzip.compress(gzip.compress(TEXT))), "gzip, gzip, gzip", "more than twice"),
        (b"\x1f\x8b\x08" + b"\xff" * 40, "", "damaged"),
        (b"\xff\xfe\xfd" * 9, "compress", "not known here"),
    ],
)
def test_what_cannot_be_opened_within_bounds_is_refused(body: bytes, coding: str, why: str) -> None:
    """Whoever asks is told why, with nothing of the body."""
    with pytest.raises(ValueError, match=why):
        unpack(body, coding)


def test_a_bomb_is_refused_however_often_it_is_packed() -> None:
    """Nothing is expanded to more than 64 MB, whatever its size."""
    packed = bytes(80_000_000)
    for coding in ("", "gzip", "gzip"):
        packed = gzip.compress(packed, 6)
        with pytest.raises(ValueError, match=r"larger than 64 MB|more than twice"):
            unpack(packed, coding)
    with pytest.raises(TooLargeError):
        unpack(bytes(MAX_UNPACKED_BYTES + 1))


@given(body=st.binary(max_size=300), coding=st.sampled_from(["", "gzip", "deflate", "br", "zstd"]))
def test_any_bytes_give_bytes_or_one_kind_of_error(body: bytes, coding: str) -> None:
    """Never more of them than the bounds allow."""
    with contextlib.suppress(ValueError):
        assert len(unpack(body, coding)) <= MAX_UNPACKED_BYTES
