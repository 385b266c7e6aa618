"""Makes a response's headers true to a body that is stored decoded. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from directmail_lab.interaction import Headers, RecordedResponse

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
    # Of most responses all headers are true already, and nothing is made anew.
    for name, value in response.headers:
        if name.lower() in _OF_THE_BODY and _true_value(name.lower(), value, length) != value:
            return replace(response, headers=_true(response.headers, length))
    return response


def _true(headers: Headers, length: str) -> Headers:
    told = [(name, _true_value(name.lower(), value, length)) for name, value in headers]
    return tuple((name, value) for name, value in told if value is not None)


def _true_value(name: str, value: str, length: str) -> str | None:
    if name not in _OF_THE_BODY:
        return value
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
