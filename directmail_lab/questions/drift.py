"""`drift`: what changed between two recordings, or between a recording and the service now."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from ..cassettes import Recording
from ..cassettes.matching import Matching, Name
from ..display import as_table, plural
from ..exchange.changes import Target, changes, type_of
from ..exchange.httpx_values import httpx, response_value
from ..exchange.operations import operations_of, query_of, with_query
from ..exchange.values import Interaction, may_change
from ..redaction import Redactor, has_placeholder
from ..sessions.clients.refusals import check
from ..sessions.current import session as current
from ..sessions.session import Session, unobserved
from .shapes import grouped, notes_on
from .sources import Sources, named_paths, recordings_of

# The only recorded request headers that are sent again: they select a representation. A cassette
# may come from a stranger, and the request carries this account's key.
_RESENT = ("accept", "accept-language", "accept-charset", "prefer", "range")
_REFUSED = (401, 403)
_HEAD = re.compile(r"status code$|header\.")
_MOST_BYTES = 64 * 1024**2

_DTYPES: dict[str, Any] = {
    "operation": "string",
    "path": "string",
    "change": "string",
    "was": "object",
    "now": "object",
    "count": "int64",
    "of": "int64",
}


def drift(
    source: Sources,
    against: Sources = None,
    *,
    ignore: Iterable[str] = (),
    values: bool = False,
) -> pd.DataFrame:
    """Return what changed in responses since a recording, or between two.

    Without ``against``, the current session sends each different GET and HEAD
    request once, with its key and its pacing. Only request headers that select
    a representation, such as ``Accept`` and ``Range``, are sent again. A body
    may be endless: one that has not ended after the session's ``timeout_s`` or
    64 MB is left, and its response is not compared. The responses are neither
    recorded nor kept. The session is live meanwhile, and then returns to its
    mode.

    The last response to a request that is not an error is compared, or else its
    last one. The elements of an array are matched by their ``id``, on whatever
    page of a list they are, or else by position.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`.
    against
        Another source, to compare with it: nothing is sent.
    ignore
        What to leave out, as in `record`: ``"header:x-powered-by"``,
        ``"body:company"`` for a field and all in it, and ``"query:NAME"`` for
        what does not make two requests different. Values that differ from call
        to call, such as a request's id, are always left out.
    values
        Whether to list fields of bodies whose value changed, too.

    Returns
    -------
    DataFrame
        A row for each difference; no rows if there is none. Columns:

        ========= ====== =======================================================
        operation string ``GET /v1/letters``
        path      string ``items[].price_cents``, ``header.etag``,
                         ``status code``, or ``$`` for a body as a whole
        change    string ``added``, ``removed``, ``retyped to string``,
                         ``null-turned``, ``null-filled`` or ``changed``
        was       object the first one's old value; None if null or missing
        now       object its new value, likewise
        count     int64  how many values there changed so
        of        int64  how many were compared
        ========= ====== =======================================================

        ``attrs["notes"]`` says, as below the table, how many requests were sent
        or compared, and which were not, and why.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    UnauthorizedError
        The service refuses the key (401 or 403) for all requests, and the
        recording has another status.
    CassetteError
        A cassette cannot be found or read.

    Examples
    --------
    >>> changed = dm.drift("first-look", against="first-look")
    >>> len(changed)
    0
    """
    matching = Matching(["path", "query"], ignore)
    recordings = list(recordings_of(source))
    notes = notes_on(recordings)
    was = _calls(recordings, matching)
    if against is None:
        now, not_compared = _sent_again(current(), was)
        was = {call: was[call] for call in now}
        notes.append(f"{plural(len(now), 'request')} sent.")
    else:
        others = list(recordings_of(against))
        notes += notes_on(others)
        now = _calls(others, matching)
        both = was.keys() & now.keys()
        notes.append(f"{plural(len(both), 'request')} compared.")
        paths = {call[:2] for call in both}
        alone = [call for call in {**was, **now} if call[:2] not in paths]
        not_compared = dict.fromkeys(alone, "in one of them only")
    every = {call.path for call in [*was, *now, *not_compared]}
    operations = operations_of(every, named_paths())
    both_sides = grouped({**was, **now}, lambda call: f"{call.method} {operations[call.path]}")
    rows = []
    for operation, calls in both_sides.items():
        for each in changes(_compared(calls, was, now), _compared(calls, now, was)):
            is_value = each.change == "changed" and not _HEAD.match(each.path)
            if not matching.leaves_out(_name_of(each.path)) and (values or not is_value):
                if each.change == "retyped":  # 10 and "10" look alike in a table
                    each.change += f" to {type_of(each.now)}"
                rows.append({"operation": operation, **vars(each)})
    if not rows:
        notes.append("No difference.")
    reasons = [
        f"{call.method} {operations[call.path]} ({why})" for call, why in not_compared.items()
    ]
    if reasons:
        notes.append(f"Not compared: {', '.join(dict.fromkeys(reasons))}.")
    table = pd.DataFrame(rows, columns=list(_DTYPES), dtype=object).astype(_DTYPES)
    table.attrs["notes"] = notes
    return as_table(table)


class _Call(NamedTuple):
    """What makes two requests the same: ``rest`` is the query and the range."""

    method: str
    path: str
    rest: str


_Recorded = tuple[Recording, Interaction]


def _name_of(path: str) -> Name:
    """Return the name that ``ignore`` gives a path: ``items[].id`` is ``body:items.id``."""
    if path.startswith("header."):
        return "header", path.removeprefix("header.")
    return "JSON", *path.replace("[]", "").strip(".").split(".")


def _calls(recordings: Iterable[Recording], matching: Matching) -> dict[_Call, _Recorded]:
    """Return each different request's last response that is no error, or else its last one."""
    calls: dict[_Call, _Recorded] = {}
    for recording in recordings:
        for number, each in enumerate(recording, 1):
            if not recording.has_bodies(number):
                continue
            request = each.request
            path = recording.elsewhere(request.uri) + recording.path_of(request)
            call = _Call(request.method, path, str(matching.parts(request)))
            before = calls.get(call)
            if before is None or _is_good(each) or not _is_good(before[1]):
                calls[call] = recording, each
    return calls


def _compared(
    calls: Iterable[_Call], side: Mapping[_Call, _Recorded], other: Mapping[_Call, _Recorded]
) -> dict[Target, Interaction]:
    """Return the responses of one side to compare with those of the other.

    An error has another shape than a success, and says nothing about other requests.
    """
    own = {call: side[call][1] for call in calls if call in side}
    return {call[1:]: each for call, each in own.items() if call in other or _is_good(each)}


def _is_good(interaction: Interaction) -> bool:
    return 0 < interaction.response.status < 400


# -- requests that are sent again --------------------------------------------------------------


def _sent_again(
    session: Session, recorded: Mapping[_Call, _Recorded]
) -> tuple[dict[_Call, _Recorded], dict[_Call, str]]:
    """Return the responses that reads get now, and why each other request is not compared."""
    now: dict[_Call, _Recorded] = {}
    not_compared: dict[_Call, str] = {}
    refused: list[httpx.Response] = []
    with unobserved(session):
        for call, (recording, interaction) in recorded.items():
            reason = _why_not_sent(recording, interaction)
            if reason:
                not_compared[call] = reason
                continue
            response = _send_again(session, recording, interaction)
            if response is None:
                not_compared[call] = "its body has not ended"
                continue
            status = response.status_code
            if status in _REFUSED and interaction.response.status not in _REFUSED:
                refused.append(response)
                not_compared[call] = f"{status} for the key"
                continue
            redactor = Redactor(redact=recording.redact)
            again = Interaction(interaction.request, response_value(response))
            now[call] = recording, redactor.interaction(again)
    if refused and not now:
        check(refused[0], session.base_url)
    return now, not_compared


def _why_not_sent(recording: Recording, interaction: Interaction) -> str:
    """Return why a request is not sent again, or nothing."""
    request = interaction.request
    is_read = request.method in ("GET", "HEAD")
    if not is_read or may_change(request.method, query_of(request.uri)):
        return "it may write"
    if recording.elsewhere(request.uri):
        return "another server's"
    if not _is_whole(request.uri):
        return "its address was redacted"
    if not interaction.response.status:
        return "no response was recorded"
    return "its recorded body is not whole" if interaction.response.cut else ""


def _is_whole(text: str) -> bool:
    """Return whether an address or a header can be sent, and redaction did not change it."""
    return text.isascii() and text.isprintable() and not has_placeholder(text)


def _send_again(
    session: Session, recording: Recording, recorded: Interaction
) -> httpx.Response | None:
    """Send a request again, and return its response, or None if its body does not end."""
    request = recorded.request
    path = with_query(recording.path_of(request), request.uri)
    address = f"{session.base_url}/{path.lstrip('/')}"
    headers = [
        (name, value)
        for name, value in request.headers
        if name.lower() in _RESENT and _is_whole(value)
    ]
    timeout_s = session.client.timeout.read
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    body = bytearray()
    with session.client.stream(request.method, address, headers=headers) as response:
        for part in response.iter_bytes():
            body += part
            if time.monotonic() >= end or len(body) > _MOST_BYTES:
                return None
    # What was read is decoded.
    plain = [pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"]
    return httpx.Response(
        response.status_code, headers=plain, content=bytes(body), request=response.request
    )
