"""`drift`: whether a service still responds as a cassette recorded it.

Some values differ from call to call although nothing changed, such as request ids. They are not
reported: see `VOLATILE` and `PASSING_HEADERS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..arguments import check_names
from ..cassettes import Recording
from ..display import plural, with_whole_cells
from ..exchange.bodies import decode_text, read_json_body, shown_missing, unpack
from ..exchange.httpx_values import httpx, response_value
from ..exchange.operations import operations_of, query_of
from ..exchange.values import LEFT, Interaction, Request, header, may_change
from ..redaction import Redactor, has_placeholder
from ..sessions.current import session as current
from ..sessions.session import Session
from .shapes import PASSING_HEADERS, grouped, type_of
from .sources import named_paths, recording_of

_Path = tuple[str, ...]

# The only recorded request headers that are sent again: they select a representation. A cassette
# may come from a stranger, and the request carries this account's key.
_RESENT = ("accept", "accept-language", "accept-charset", "prefer", "range")
_REFUSED = (401, 403)

_CHANGING = (
    # Headers. X-RateLimit-Limit is not one of them: a changed allowance is worth reporting. A
    # content security policy may contain a nonce.
    "xratelimitremaining xratelimitreset date etag expires lastmodified contentsecuritypolicy "
    # Fields.
    "requestid traceid correlationid nonce csrftoken servertime currenttime timestamp now asof "
    "generatedat updatedat lastseen lastseenat lastlogin lastloginat lastactiveat lastusedat "
    "expiresat expiresin elapsed elapsedms durationms remaining requestcount requestsremaining"
)
VOLATILE = frozenset(_CHANGING.split())
"""Headers and fields, at any depth, whose value differs from call to call.

Only their presence and type are compared. A name is compared by its letters and digits in lower
case: ``updatedat`` stands for ``updated_at`` and ``updatedAt``.
"""

# If two field names are at least this similar (difflib's ratio, 0 to 1), one may be the other's new
# name: `postcode` and `postal_code` (0.84), but not `name` and `email` (0.22).
_ALIKE = 0.7

_MOST_LONGER = 64 * 1024

_DTYPES: dict[str, Any] = {
    "number": "Int64",
    "operation": "string",
    "part": "string",
    "path": "string",
    "change": "string",
    "recorded": "object",
    "now": "object",
    "new_path": "string",
}


def drift(cassette: str | Path, *, ignore: Iterable[str] = ()) -> pd.DataFrame:
    """Send a cassette's reads again, and return what changed in the responses.

    The current session sends each different GET and HEAD request once, with its
    key and its pacing. Only request headers that select a representation, such
    as ``Accept`` and ``Range``, are sent again. Each response is compared with
    the last recorded one that was not an error, or with the last one if all
    were errors. If a recorded body was not read to its end, as many bytes are
    read and compared, for at most the session's ``timeout_s``. A body that is
    64 kB longer than the recorded one is left, and a row says so. The responses
    are neither recorded nor kept. The session is live meanwhile, and then
    returns to its mode.

    Parameters
    ----------
    cassette
        A name or a path, as for `replay`.
    ignore
        A path to leave out, or several. ``*`` stands for any text:
        ``"company.*"``, ``"header.x-powered-by"``. Values that differ from call
        to call are always left out.

    Returns
    -------
    DataFrame
        A row for each difference; no rows if there is none. Columns:

        ========= ====== =======================================================
        number    Int64  the number of the recorded interaction, from 1
        operation string ``GET /v1/users/me``
        part      string ``status``, ``header`` or ``body``
        path      string where the difference is: see `Difference`
        change    string ``added``, ``removed``, ``retyped``, ``null-turned``,
                         ``null-filled``, ``possibly renamed`` or ``changed``
        recorded  object the recorded value; None if it is null or missing
        now       object the value now, likewise
        new_path  string the new path of a field that was possibly renamed
        ========= ====== =======================================================

        In ``attrs``, ``"sent"`` is the number of requests sent. ``"not_sent"``
        lists the operations that were not sent: they write, redaction changed
        their address, or no response to them was recorded. ``"not_compared"``
        has the operations for which the service refuses the key, each with the
        reason. ``"notes"`` has the same in words, as shown below the table.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    UnauthorizedError
        The service refuses the key (401 or 403) for all requests, asks for no
        other scheme than HTTP Basic, and the recording has another status.
    CassetteError
        The cassette cannot be found or read.
    """
    patterns = check_names("ignore", ignore)
    session = current()
    recording = recording_of(cassette)
    paths = {recording.path_of(each.request) for each in recording}
    operations = operations_of(paths, named_paths())

    def operation_of(request: Request) -> str:
        return f"{request.method} {operations[recording.path_of(request)]}"

    reads, others = _reads(recording)
    not_sent = list(dict.fromkeys(map(operation_of, others)))
    redactor = Redactor(redact=recording.redact)
    rows: list[tuple[object, ...]] = []
    not_compared: dict[str, str] = {}
    refused: list[httpx.Response] = []
    with session.unobserved():
        for number, recorded in reads.items():
            operation = operation_of(recorded.request)
            response, is_left = _send_again(session, recording, recorded)
            if response.status_code in _REFUSED and recorded.response.status not in _REFUSED:
                refused.append(response)
                not_compared[operation] = _why_refused(response)
                continue
            value = replace(response_value(response), incomplete=LEFT if is_left else "")
            again = redactor.interaction(Interaction(recorded.request, value))
            differences = compare(recorded, again, ignore=patterns)
            rows += [(number, operation, *difference) for difference in differences]
    is_wrong_key = len(refused) == len(reads) and not any(map(_other_scheme, refused))
    if refused and is_wrong_key:
        session.check(refused[0])
    table = pd.DataFrame(rows, columns=list(_DTYPES), dtype=object).astype(_DTYPES)
    unchanged = "" if rows or refused else ", all responses as recorded"
    notes = [f"{plural(len(reads), 'request')} sent{unchanged}."]
    if not_sent:
        notes.append(f"Not sent: {', '.join(not_sent)}.")
    if not_compared:
        reasons = [f"{operation} ({why})" for operation, why in not_compared.items()]
        notes.append(f"Not compared: {', '.join(reasons)}.")
    table.attrs.update(sent=len(reads), not_sent=not_sent, not_compared=not_compared, notes=notes)
    return with_whole_cells(table)


# -- requests that are sent again --------------------------------------------------------------


def _reads(recording: Recording) -> tuple[dict[int, Interaction], list[Request]]:
    """Return the different reads to send by their numbers, and the requests not to send."""
    reads: dict[tuple[str | None, ...], tuple[int, Interaction]] = {}
    not_sent: list[Request] = []
    without_response: dict[tuple[str | None, ...], Request] = {}
    for number, recorded in enumerate(recording, 1):
        request = recorded.request
        query = query_of(request.uri)
        is_read = request.method in ("GET", "HEAD") and not may_change(request.method, query)
        if not (is_read and _is_whole(request.uri)):
            not_sent.append(request)
            continue
        key = request.method, request.uri, header(request.headers, "range")
        if recorded.response.no_response:  # there is nothing to compare with
            without_response[key] = request
            continue
        before = reads.get(key)
        if before is None or recorded.response.status < 400 or before[1].response.status >= 400:
            reads[key] = number, recorded
    not_sent += [request for key, request in without_response.items() if key not in reads]
    return dict(reads.values()), not_sent


def _is_whole(text: str) -> bool:
    """Return whether an address or a header can be sent, and redaction did not change it."""
    return text.isascii() and text.isprintable() and not has_placeholder(text)


def _why_refused(response: httpx.Response) -> str:
    """Return why a response is not compared: the key says nothing about the service."""
    other = _other_scheme(response)
    asks = f", and the service asks for {other}" if other else ""
    return f"{response.status_code} for the key, which is sent with HTTP Basic{asks}"


def _other_scheme(response: httpx.Response) -> str:
    """Return the scheme that a service asks for, unless it is HTTP Basic or not named."""
    asked = response.headers.get("www-authenticate", "")
    return "" if "basic" in asked.lower() else asked.partition(" ")[0]


def _send_again(
    session: Session, recording: Recording, recorded: Interaction
) -> tuple[httpx.Response, bool]:
    """Send a request again, and read its response as far as the recorded one was read.

    A body that was recorded whole may be up to 64 kB longer now. Return the response, and whether
    the rest of its body was left.
    """
    request = recorded.request
    address = f"{session.base_url}/{recording.path_of(request).lstrip('/')}"
    query = query_of(request.uri)
    if query:
        address += f"?{query}"
    headers = [
        (name, value)
        for name, value in request.headers
        if name.lower() in _RESENT and _is_whole(value)
    ]
    stored = recorded.response
    whole = stored.body
    with suppress(ValueError):  # it may not be compressed as its header says
        whole = unpack(whole, header(stored.headers, "content-encoding"))
    size = len(whole)
    least = 0 if stored.incomplete else size
    most = size if stored.incomplete else size + _MOST_LONGER
    breaks = [httpx.RequestError] if stored.incomplete else []
    end = time.monotonic() + session.timeout_s
    body = bytearray()
    is_left = False
    # The body may be endless, also if the recorded one was not.
    sending = session.client.stream(request.method, address, headers=headers)
    with sending as response, suppress(*breaks):
        for part in response.iter_bytes():
            body += part
            is_late = time.monotonic() >= end and len(body) > least
            is_left = is_late or len(body) >= most
            if is_left:
                break
    # What was read is decoded.
    plain = [pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"]
    content = bytes(body[:most])
    again = httpx.Response(
        response.status_code, headers=plain, content=content, request=response.request
    )
    return again, is_left


# -- two responses -----------------------------------------------------------------------------


class Difference(NamedTuple):
    """One difference between two responses.

    ``path`` is the header's name in lower case, the field's dotted path as in `frame`'s columns
    (``company.address.city``, ``tags[0]``, ``lists[id=7].name``), ``$`` for a body as a whole, or
    ``status``. ``recorded`` and ``now`` are the two values, None if missing. ``new_path`` is set if
    a field was possibly renamed.
    """

    part: str
    path: str
    change: str
    recorded: object = None
    now: object = None
    new_path: str | None = None


def compare(
    recorded: Interaction, now: Interaction, *, ignore: Sequence[str] = ()
) -> list[Difference]:
    """Return the differences between a recorded response and the one received ``now``.

    `VOLATILE` values are compared only by presence and type. Elements of arrays are matched by
    ``id``, or else by position. A body that was not recorded is not compared. If the statuses
    differ and one of them is an error, only the statuses are compared. A body that was left because
    it is longer than recorded is only said to be so. For ``ignore``, see `drift`.
    """
    old = _parts(recorded)
    new = _parts(now)
    is_missing = shown_missing(recorded.response.body)
    is_longer = now.response.incomplete and not recorded.response.incomplete
    if is_missing or is_longer:
        old.pop("body", None)
        new.pop("body", None)
    if old["status"] != new["status"] and max(old["status"], new["status"]) >= 400:
        old = {"status": old["status"]}
        new = {"status": new["status"]}
    elif is_longer and not is_missing:
        old["body"] = "the recorded body"
        new["body"] = "longer than recorded, and not read to its end"
    return [each for each in _differences(old, new) if not _is_ignored(each, ignore)]


def _is_ignored(difference: Difference, patterns: Sequence[str]) -> bool:
    part = f"{difference.part}."
    for pattern in patterns:
        name = part + difference.path if pattern.startswith(part) else difference.path
        # fnmatch also takes ? and [ for wildcards; here only * is one.
        if fnmatchcase(name, re.sub(r"[?[]", r"[\g<0>]", pattern)):
            return True
    return False


def _parts(interaction: Interaction) -> dict[str, Any]:
    """Return the parts of a response to compare as one JSON value, with integers as numbers."""
    response = interaction.response
    headers: dict[str, Any] = {}
    for name, pairs in grouped(response.headers, lambda pair: pair[0].lower()).items():
        if name in PASSING_HEADERS:
            continue
        text = ", ".join(value for _, value in pairs)  # RFC 9110, section 5.2
        is_integer = re.fullmatch(r"-?\d{1,30}", text, re.ASCII)
        headers[name] = int(text) if is_integer else text
    parts: dict[str, Any] = {"status": response.status, "header": headers}
    if interaction.request.method != "HEAD" and response.body:
        value, problem = read_json_body(response.headers, response.body)
        parts["body"] = decode_text(response.body) if problem else value
    return parts


def _differences(was: Any, now: Any) -> Iterator[Difference]:
    waiting: list[tuple[_Path, Any, Any]] = [((), was, now)]
    while waiting:  # a loop: a body may be nested deeply
        path, was, now = waiting.pop()
        if _type(was) != _type(now):
            change = "retyped"
            if now is None:
                change = "null-turned"
            elif was is None:
                change = "null-filled"
            yield _difference(path, change, was, now)
        elif isinstance(was, dict | list):
            old = _members(was)
            new = _members(now)
            yield from _removed_and_added(path, old, new)
            both = [name for name in old if name in new]
            waiting += [((*path, name), old[name], new[name]) for name in reversed(both)]
        elif was != now and not _is_volatile(path[-1]):
            yield _difference(path, "changed", was, now)


def _removed_and_added(
    path: _Path, old: dict[str, Any], new: dict[str, Any]
) -> Iterator[Difference]:
    removed = {name: value for name, value in old.items() if name not in new}
    added = {name: value for name, value in new.items() if name not in old}
    new_name = _new_name(removed, added) if path[:1] == ("body",) else None
    if new_name is not None:
        name, value = removed.popitem()
        now = added.pop(new_name)
        new_path = _text((*path, new_name))
        yield _difference((*path, name), "possibly renamed", value, now, new_path)
    for name, value in removed.items():
        yield _difference((*path, name), "removed", value)
    for name, value in added.items():
        yield _difference((*path, name), "added", None, value)


def _difference(path: _Path, change: str, *values: Any) -> Difference:
    return Difference(path[0], _text(path), change, *values)


def _text(path: _Path) -> str:
    """Return a path below its part as text: ``lists[id=7].name``."""
    text = "".join(name if name.startswith("[") else f".{name}" for name in path[1:])
    if not text:
        return "$" if path[0] == "body" else path[0]
    return text.removeprefix(".")


def _members(value: dict[str, Any] | list[Any]) -> dict[str, Any]:
    """Return the members of an object, or the elements of an array by ``[id=7]`` or position."""
    if isinstance(value, dict):
        return value
    members: dict[str, Any] = {}
    for position, element in enumerate(value):
        number = element.get("id") if isinstance(element, dict) else None
        label = f"[id={number}]"
        if type(number) not in (int, str) or label in members:
            label = f"[{position}]"
        members[label] = element
    return members


def _type(value: object) -> str:
    """Return a value's JSON type; 1 and 1.0 are both numbers."""
    return type_of(value).replace("integer", "number")


def _new_name(removed: dict[str, Any], added: dict[str, Any]) -> str | None:
    """Return the possible new name of an object's only removed field, or None.

    Just one field must be new. It must have a value of the same type, and also the same value or a
    similar name.
    """
    if not len(removed) == len(added) == 1:
        return None
    [(name, value)] = removed.items()
    [(new_name, now)] = added.items()
    if name.startswith("[") or _type(value) != _type(now):
        return None
    is_alike = value == now or SequenceMatcher(None, name, new_name).ratio() >= _ALIKE
    return new_name if is_alike else None


def _is_volatile(name: str) -> bool:
    return re.sub(r"[^a-z0-9]", "", name.lower()) in VOLATILE
