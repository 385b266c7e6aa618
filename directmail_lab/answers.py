"""What an answer means: the user's record, or the error that says why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .bodies import text_in
from .errors import ServiceError, UnauthorizedError
from .frames import frame
from .interaction import base_path, operation_of, path_below
from .transports import READING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from .http import httpx
    from .redaction import Redactor

__all__ = ["record_in"]

_EXCERPT_CHARACTERS: Final = 200


def record_in(
    response: httpx.Response, *, base_url: str, redactor: Callable[[], Redactor]
) -> pd.DataFrame:
    """Return the record that a response holds, as `frame` makes it.

    ``redactor`` makes one, which only an error needs.

    Raises
    ------
    UnauthorizedError
        The service answered 401 or 403.
    ServiceError
        It answered with another error status.
    NotJSONError
        Its body is not JSON.
    """
    if response.status_code >= 400:
        raise _service_error(response, base_url, redactor())
    return frame(response)


def _service_error(response: httpx.Response, base_url: str, redactor: Redactor) -> ServiceError:
    status, request = response.status_code, response.request
    path = operation_of(path_below(str(request.url), base_path(base_url)))
    operation = redactor.text(f"{request.method} {path}")
    reason = redactor.text(response.reason_phrase)
    kind = UnauthorizedError if status in (401, 403) else ServiceError
    return kind(
        f"{operation} answered {status} {reason}. {_advice(status)}",
        status=status,
        operation=operation,
        excerpt=redactor.text(
            text_in(response.content, response.charset_encoding)[:_EXCERPT_CHARACTERS]
        ),
        reading=response.extensions.get(READING),
    )


def _advice(status: int) -> str:
    """Return what to do about an error status."""
    if status in (401, 403):
        return "Check the API key and the base address: a key belongs to one region."
    if status == 404:
        return "Check the path and the base address."
    if status == 429:
        return "The allowance is used up: rate_limits() shows when it renews."
    if status >= 500:
        return "The trouble is at the service or a gateway before it: try again later."
    return "The error's .excerpt shows what the service said of it."
