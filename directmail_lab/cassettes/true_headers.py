"""Makes a response's headers true to a body that is stored decoded. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from directmail_lab.interaction import RecordedResponse

__all__ = ["with_true_headers"]

# RFC 9110: these have no body, and their headers describe the one that GET would have.
_BODILESS = frozenset({204, 304})
_OF_THE_BODY = frozenset({"content-encoding", "transfer-encoding", "content-length"})


def with_true_headers(response: RecordedResponse, *, method: str = "GET") -> RecordedResponse:
    """Return a response, whose body httpx has decoded, with headers that say what it now is.

    ``Content-Encoding`` loses the codings that httpx undoes, ``Transfer-Encoding`` goes, and
    ``Content-Length`` is the length of the body. The answer to a HEAD request stays as it is.
    """
    if method == "HEAD" or response.status in _BODILESS:
        return response
    length = str(len(response.body))
    headers: list[tuple[str, str]] = []
    changed = False
    for pair in response.headers:
        name = pair[0].lower()
        truth = _true_value(name, pair[1], length) if name in _OF_THE_BODY else pair[1]
        changed = changed or truth != pair[1]
        if truth is not None:
            headers.append(pair if truth == pair[1] else (pair[0], truth))
    return replace(response, headers=tuple(headers)) if changed else response


def _true_value(name: str, value: str, length: str) -> str | None:
    if name == "transfer-encoding":
        return None
    if name == "content-length":
        return length
    undone = _undone_codings()
    return ", ".join(c for c in value.split(",") if c.strip().lower() not in undone).strip() or None


@cache
def _undone_codings() -> frozenset[str]:
    """Return the codings that httpx decodes here: two of them need a package beside it."""
    codings = {"gzip", "deflate", "identity"}
    if find_spec("brotli") or find_spec("brotlicffi"):
        codings.add("br")
    if find_spec("zstandard"):
        codings.add("zstd")
    return frozenset(codings)
