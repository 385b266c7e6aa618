"""The error for a response with an error status: what the service said, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...display import plural, printable, utc_time
from ...errors import ServiceError, UnauthorizedError
from ...exchange.bodies import decode_text, read_json
from ...exchange.httpx_values import httpx
from ...exchange.operations import base_path, operation_of, path_below
from ...readings.reading import LAST_S, Reading
from ...readings.reset_unit import renewal_time
from ...redaction import Redactor
from ..transports.extensions import received_of

_CHECK_KEY = "Check the key and the service address: the key may be another region's."
_ADVICE = {
    400: "Correct the request.",
    401: _CHECK_KEY,
    403: _CHECK_KEY,
    404: "Check the path and the service address: {}.",
    500: "The service, or a gateway before it, failed: try again later.",
}

SEE_WHOLE = " To see the whole response: "
_EXCERPT = 200
_SEARCHED_BYTES = 4096

# The members of an error's body that are for people (RFC 9457, RFC 6749 and common use).
_SAID_IN = (
    "title",
    "error",
    "message",
    "error_description",
    "detail",
    "msg",
    "reason",
    "issue",
    "errors",
    "fields",
    "details",
    "violations",
    "invalid-params",
    "invalid_params",
)
_BY_FIELD = ("errors", "fields", "details")
# The members that name the field of an error.
_FIELD_IN = ("field", "param", "name", "pointer", "parameter", "loc", "path", "property")
_LONGEST_TEXT = 200
_LONGEST_SAID = 600
_MOST_ERRORS = 5
_DEEPEST = 4
_READ_BYTES = 65_536


def check(response: httpx.Response, base_url: str) -> httpx.Response:
    """Return the response, or raise `ServiceError` for its status."""
    if response.status_code >= 400:
        raise service_error(response, base_url=base_url, redacted=Redactor().text)
    return response


def service_error(
    response: httpx.Response, *, base_url: str, redacted: Callable[[str], str]
) -> ServiceError:
    """Return the error to raise for a response with an error status."""
    status = response.status_code
    url = response.request.url
    received = received_of(response)
    reading = received.reading
    if reading is None:
        path = operation_of(path_below(str(url), base_path(base_url)))
    else:
        path = reading.operation
    operation = redacted(f"{response.request.method} {path}")
    said = said_in(response, redacted)
    what = f"{operation} responded with {outcome(response, redacted)}"
    what += f': "{said}".' if said else "."
    advice = _ADVICE.get(status) or _ADVICE[500 if status >= 500 else 400]
    if reading is not None and reading.elsewhere:
        advice = "This is not the session's address, so the key was not sent there."
    if reading is not None and reading.source == "kept":
        advice = (
            "Nothing was sent: this is the response to an earlier write. To send it again: "
            'if_sent="send".'
        )
    advice = advice.format(redacted(f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}"))
    if status == 429:
        advice = _refusal(reading) + _renewal(response)
    if response.content and (not said or said.endswith("…")) and received.number:
        advice += f"{SEE_WHOLE}dm.interactions(number={received.number})."
    kind = UnauthorizedError if status in (401, 403) else ServiceError
    # The key is searched in more than is shown, so that one at the excerpt's end is found.
    searched = decode_text(response.content[:_SEARCHED_BYTES], response.charset_encoding)
    return kind(
        what,
        advice,
        status=status,
        operation=operation,
        said=said,
        excerpt=redacted(searched)[:_EXCERPT],
        reading=reading,
    )


def outcome(response: httpx.Response, redacted: Callable[[str], str]) -> str:
    """Return the status of a response in words: ``502 Bad Gateway after 4 attempts``."""
    status = f"{response.status_code} {redacted(response.reason_phrase).rstrip('. ')}".rstrip()
    reading = received_of(response).reading
    if reading is None or reading.attempt < 2:
        return status
    return f"{status} after {reading.attempt} attempts"


def said_in(response: httpx.Response, redacted: Callable[[str], str]) -> str:
    """Return what the body of an error says to people, on one short line, or an empty string.

    If no usual member of its JSON says anything, the line is the start of the JSON.

    An error is stored in notebooks and logs without being asked for. So besides the key, it has no
    credential, e-mail address or telephone number in the forms that a recording knows.
    """
    if len(response.content) > _READ_BYTES:
        return ""
    body, _ = read_json(response.content, response.charset_encoding)
    redactor = Redactor(redact=["personal"])
    lines: list[str] = []
    whole = [decode_text(response.content, response.charset_encoding)] if body else []
    for text in list(_texts_for_people(body)) or whole:
        words = redactor.text(redacted(text)).split()
        line = printable(" ".join(words)).replace('"', "'").rstrip(".")
        line = line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
        if line and line not in lines:
            lines.append(line)
    said = "; ".join(lines)
    return said if len(said) <= _LONGEST_SAID else f"{said[: _LONGEST_SAID - 1]}…"


def _texts_for_people(value: object, depth: int = 0, field: str | None = None) -> Iterator[str]:
    """Yield the texts of the usual members, also of objects and arrays in these.

    ``field`` is what a text is about, or empty; None for a value that no usual member has.
    """
    if isinstance(value, str) and field is not None and value.strip():
        yield f"{field}: {value}" if field else value
    elif isinstance(value, dict) and depth < _DEEPEST:
        about = _field_of(value) or field or ""
        texts: list[str] = []
        for name in _SAID_IN:
            inner = value.get(name)
            if name in _BY_FIELD and isinstance(inner, dict):  # {"errors": {"zip": ["is missing"]}}
                for key, each in list(inner.items())[:_MOST_ERRORS]:
                    texts += _texts_for_people(each, depth + 2, key)
            else:
                texts += _texts_for_people(inner, depth + 1, about)
        code = value.get("code")
        yield from texts or ([f"{about}: {code}"] if about and isinstance(code, str) else [])
    elif isinstance(value, list) and depth < _DEEPEST:
        for each in value[:_MOST_ERRORS]:
            yield from _texts_for_people(each, depth + 1, field)


def _field_of(error: dict[str, Any]) -> str:
    """Return the field that an error is about: ``zip`` of ``{"source": {"pointer": "/zip"}}``."""
    source = error.get("source")
    places = {**source, **error} if isinstance(source, dict) else error
    for name in _FIELD_IN:
        place = places.get(name)
        if isinstance(place, list):
            place = ".".join(map(str, place))
        if place and isinstance(place, str):
            return place
    return ""


def _refusal(reading: Reading | None) -> str:
    remaining = None if reading is None else reading.remaining
    if remaining:
        left = plural(remaining, "request")
        return f"The service refused it although {left} were left: send fewer at once."
    if remaining == 0:
        return "The allowance is used up."
    return "The service refused it, and does not say how many requests are left."


def _renewal(response: httpx.Response) -> str:
    """Return what a response says about the renewal; an empty string if nothing was read."""
    recording = received_of(response).recording
    reading = received_of(response).reading
    if recording is None or reading is None:
        return ""
    if reading.retry_after_s is not None:
        return f" The service asks to wait for {reading.retry_after_s:g} s (Retry-After)."
    renews_at = renewal_time(reading, recording.evidence.unit)
    if renews_at is not None:
        at = utc_time(min(renews_at, LAST_S))
        left_s = max(0.0, renews_at - reading.at)
        return f" It renews at {at:%Y-%m-%d %H:%M:%S} UTC, {left_s:.0f} s after this response."
    if reading.reset_number is None:
        return " The service does not say when it renews."
    return (
        f" X-RateLimit-Reset is {reading.reset_number}, in a unit that is not known yet: "
        "dm.findings() shows what is known, and what would tell more."
    )
