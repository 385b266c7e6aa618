"""`drift`: whether a service still answers as a cassette recorded it.

Values that differ from call to call although nothing changed, such as request ids, are not
reported: see `VOLATILE`, `PASSING_HEADERS` and `_is_time_of`.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from ..bodies import decode_text, read_json_body
from ..current import recording_of, session as current
from ..display import plural, readable
from ..errors import CassetteError, DirectMailLabError, check_choice
from ..http import recorded_response
from ..interaction import Interaction, RecordedRequest, operation_of
from ..redaction import PLACEHOLDER, Redactor
from .shapes import PASSING_HEADERS, grouped, names, type_of

if TYPE_CHECKING:
    import pandas as pd

    from ..cassettes.recording import Recording
    from ..sessions import Session

_Path = tuple[str, ...]

# The recorded request headers that are sent again: they only select a representation. Others are
# not sent, since a cassette may be somebody else's and the request carries this account's key.
_RESENT: Final = ("accept", "accept-language", "accept-charset", "prefer")
_MOST_CHARACTERS: Final = 8_000
# Query parameters by which some frameworks turn a GET into another method.
_OVERRIDE: Final = re.compile(r"[?&;]\s*(_method|x-(http-)?method(-override)?)\s*=", re.IGNORECASE)
# What redaction leaves: a placeholder, or a pseudonym (see `personal`).
_REPLACED: Final = re.compile(
    rf"{re.escape(PLACEHOLDER)}|<REDACTED>|person-[0-9a-f]{{8}}@example\.invalid"
    r"|<[^<>]+-[0-9a-f]{8}>"
)
_REFUSED: Final = (401, 403)
_AGE: Final = re.compile(r"(\d{1,5}) days?")

VOLATILE: Final = names(
    # Headers. X-RateLimit-Limit is not one of them: a changed allowance is worth reporting. A
    # content security policy may contain a nonce.
    "xratelimitremaining xratelimitreset date etag expires lastmodified contentsecuritypolicy",
    # Fields.
    "requestid traceid correlationid nonce csrftoken servertime currenttime timestamp now",
    "generatedat respondedat updatedat lastseen lastseenat lastlogin lastloginat lastactiveat",
    "lastusedat lastrequestat expiresat expiresin elapsed elapsedms durationms tookms remaining",
    "requestcount requestsremaining",
)
"""Headers and fields, at any depth, whose value differs from call to call.

Only their presence and type are compared. Only lower-case letters and digits of a name count:
``updatedat`` stands for ``updated_at`` and ``updatedAt``.
"""

# How far a time may be from when its response was recorded: clocks differ, responses take time.
_NEAR_S: Final = 300.0
# Two field names at least this similar (difflib's ratio, 0 to 1) may be one that was renamed:
# `postcode` and `postal_code` are (0.89), `name` and `email` are not (0.22).
_ALIKE: Final = 0.7
# With more pairs of removed and added fields than this (100 times 100), no renames are looked for.
_MOST_PAIRS: Final = 10_000

_DTYPES: Final[dict[str, Any]] = {
    "number": "Int64",
    **dict.fromkeys(("operation", "part", "path", "change"), "string"),
    **dict.fromkeys(("recorded", "now"), "object"),
    "new_path": "string",
}


class OldCassetteWarning(UserWarning):
    """A cassette was recorded longer ago than ``max_age``."""


def drift(
    cassette: str | Path,
    *,
    ignore: Iterable[str] = (),
    max_age: timedelta | str | None = None,
    on_old: Literal["warn", "raise"] = "warn",
) -> pd.DataFrame:
    """Send a cassette's reads again, live, and return what has changed in the responses.

    Only GET and HEAD requests are sent, each distinct one once, with the current session's key and
    paced. The response is compared with the last recorded one that was not an error (or the last
    one, if all were). Of the recorded request headers only those that select a representation, such
    as ``Accept``, are sent. The responses are neither recorded nor kept. The session is live
    meanwhile, and then returns to its mode.

    Parameters
    ----------
    cassette
        A name or a path, as for `replay`.
    ignore
        Paths to leave out, or one; ``*`` is any text: ``"company.*"``, ``"header.x-powered-by"``.
        Values that differ from call to call are left out already.
    max_age
        The greatest age that a recording may have: a `timedelta` or a text such as ``"30 days"``.
    on_old
        Whether an older recording causes a warning (`OldCassetteWarning`) or an error. It is never
        recorded again.

    Returns
    -------
    DataFrame
        A row for each difference: ``number`` (Int64, of the recorded interaction, from 1),
        ``operation`` (string, ``GET /v1/users/me``), ``part`` (``status``, ``header`` or ``body``),
        ``path`` (string, see `Difference`), ``change`` (``added``, ``removed``, ``retyped``,
        ``possibly renamed``, ``null-turned``, ``null-filled`` or ``changed``), ``recorded`` and
        ``now`` (object: the two values, None for null and for missing values), ``new_path``
        (string, if a field was possibly renamed). No rows if nothing is different. ``attrs``:
        ``"sent"``, the number of requests sent; ``"not_sent"``, the operations that were not,
        because they write or because redaction changed their address; ``"notes"``, the same in
        words, shown below the table.

    Raises
    ------
    NotConnectedError
        No session is open, or it has no key.
    UnauthorizedError
        The service refuses the key (401 or 403) where the recording has another status.
    CassetteError
        The cassette cannot be found or read, or is older than ``max_age`` and ``on_old="raise"``.
    """
    check_choice("on_old", on_old, ("warn", "raise"))
    recording = recording_of(cassette)
    problem = age_problem(recording, max_age, now=datetime.now(UTC)) if max_age else None
    if problem is not None:
        message = (
            f"Cassette {recording.name!r} {problem}. Look at drift({str(cassette)!r}), then record "
            f'it again with record({str(cassette)!r}, record_mode="all").'
        )
        if on_old == "raise":
            raise CassetteError(message)
        warnings.warn(message, OldCassetteWarning, stacklevel=2)
    return drift_of(current(), recording, ignore=ignore)


def age_problem(
    interactions: Iterable[Interaction], max_age: timedelta | str, *, now: datetime
) -> str | None:
    """Return ``"is 40 days old, and max_age is 30 days"`` for an old recording, else None.

    Its age is that of its first interaction.

    Raises
    ------
    DirectMailLabError
        The greatest age is a text other than ``"30 days"``.
    """
    allowed = max_age
    if not isinstance(allowed, timedelta):
        days = _AGE.fullmatch(str(allowed))
        if days is None:
            raise DirectMailLabError('max_age is a number of days, such as "90 days".')
        allowed = timedelta(days=int(days[1]))
    at = next((interaction.recorded_at for interaction in interactions), None)
    if at is not None and now - at <= allowed:
        return None
    age = "does not say when it was recorded" if at is None else f"is {(now - at).days} days old"
    return f"{age}, and max_age is {max_age}"


# -- requests that are sent again --------------------------------------------------------------


def drift_of(session: Session, recording: Recording, *, ignore: Iterable[str] = ()) -> pd.DataFrame:
    """Return the `drift` of a recording, with requests of this session."""
    import pandas as pd

    reads, not_sent = _reads(recording)
    redactor = Redactor(redact=recording.redact)
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    rows: list[tuple[object, ...]] = []
    with session.drift_mode():
        for number, recorded in reads.items():
            again = redactor.interaction(_send_again(session, recording, recorded))
            operation = _operation(recording, recorded.request)
            differences = compare(recorded, again, ignore=patterns)
            rows += [(number, operation, *difference) for difference in differences]
    table = readable(pd.DataFrame(rows, columns=list(_DTYPES), dtype=object).astype(_DTYPES))
    sent, unchanged = len(reads), "" if rows else ", all answered as recorded"
    notes = [f"{plural(sent, 'request')} sent{unchanged}."]
    notes += [f"Not sent: {', '.join(not_sent)}."] if not_sent else []
    table.attrs.update(sent=sent, not_sent=not_sent, notes=notes)
    return table


def _reads(recording: Recording) -> tuple[dict[int, Interaction], list[str]]:
    """Return the reads to send by their numbers, each once, and the operations not to send."""
    reads: dict[tuple[str, str], tuple[int, Interaction]] = {}
    not_sent: dict[str, None] = {}
    for number, recorded in enumerate(recording, 1):
        request = recorded.request
        is_read = request.method in ("GET", "HEAD") and not _OVERRIDE.search(unquote(request.uri))
        if not (is_read and _is_whole(request.uri)):
            not_sent[_operation(recording, request)] = None
            continue
        key = request.method, _target(recording, request)
        before = reads.get(key)
        if before is None or recorded.response.status < 400 or before[1].response.status >= 400:
            reads[key] = number, recorded
    return dict(reads.values()), list(not_sent)


def _operation(recording: Recording, request: RecordedRequest) -> str:
    return f"{request.method} {operation_of(recording.path_of(request))}"


def _target(recording: Recording, request: RecordedRequest) -> str:
    query = urlsplit(request.uri).query
    return recording.path_of(request) + (f"?{query}" if query else "")


def _is_whole(text: str) -> bool:
    """Return whether an address or a header can be sent, and redaction has left it as it was."""
    can_be_sent = text.isascii() and text.isprintable() and len(text) <= _MOST_CHARACTERS
    return can_be_sent and _REPLACED.search(unquote(text)) is None


def _send_again(session: Session, recording: Recording, recorded: Interaction) -> Interaction:
    """Send a request again; raise `UnauthorizedError` if now the key is refused."""
    request, status = recorded.request, recorded.response.status
    chosen = [pair for pair in request.headers if pair[0].lower() in _RESENT and _is_whole(pair[1])]
    address = session.base_url + "/" + _target(recording, request).lstrip("/")
    response = session.request(request.method, address, headers=chosen)
    if response.status_code in _REFUSED and status not in _REFUSED:
        session.check(response)
    return Interaction(request, recorded_response(response), datetime.now(UTC))


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
    """Return what is different in ``now``.

    Of `VOLATILE` values, and of times that are those of their own responses, only presence and type
    are compared. Elements of arrays are compared by ``id``, or by position. If the statuses differ
    and one of them is an error, nothing else is compared. For ``ignore`` see `drift`.
    """
    old, new = _parts(recorded), _parts(now)
    if old["status"] != new["status"] and max(old["status"], new["status"]) >= 400:
        old, new = {"status": old["status"]}, {"status": new["status"]}
    times = recorded.recorded_at, now.recorded_at
    found = list(_differences(_nodes(old), _nodes(new), times))
    return [each for each in found if not any(_matches(each, pattern) for pattern in ignore)]


def _matches(difference: Difference, pattern: str) -> bool:
    part = f"{difference.part}."
    name = part + difference.path if pattern.startswith(part) else difference.path
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _parts(interaction: Interaction) -> dict[str, Any]:
    """Return what is compared of a response, as one JSON value: integers in headers as numbers."""
    response = interaction.response
    headers: dict[str, Any] = {}
    for name, pairs in grouped(response.headers, lambda pair: pair[0].lower()).items():
        text = ", ".join(value for _, value in pairs)  # RFC 9110, section 5.2
        if name not in PASSING_HEADERS:
            headers[name] = int(text) if re.fullmatch(r"-?\d{1,30}", text, re.ASCII) else text
    parts: dict[str, Any] = {"status": response.status, "header": headers}
    if interaction.request.method != "HEAD" and response.body:
        value, problem = read_json_body(response.headers, response.body)
        parts["body"] = decode_text(response.body) if problem else value
    return parts


def _nodes(value: Any) -> dict[_Path, Any]:
    """Return a value and all in it, by path: ``("body", "lists", "[id=7]", "name")``."""
    nodes: dict[_Path, Any] = {}
    waiting: list[tuple[_Path, Any]] = [((), value)]  # a loop: a body may be nested very deep
    while waiting:
        path, value = waiting.pop()
        nodes[path] = value
        members = _labelled(value) if isinstance(value, list) else value
        if isinstance(members, dict):
            waiting += [((*path, name), member) for name, member in reversed(members.items())]
    return nodes


def _labelled(elements: list[Any]) -> dict[str, Any]:
    """Return elements by ``[id=7]``, or by position if they have no ``id`` of their own."""
    labelled: dict[str, Any] = {}
    for position, element in enumerate(elements):
        number = element.get("id") if isinstance(element, dict) else None
        label = f"[id={number}]" if type(number) in (int, str) else ""
        labelled[f"[{position}]" if not label or label in labelled else label] = element
    return labelled


def _differences(
    old: dict[_Path, Any], new: dict[_Path, Any], times: tuple[datetime | None, datetime | None]
) -> Iterator[Difference]:
    removed, added = _missing(old, new), _missing(new, old)
    for path, new_path in _renamed(removed, added).items():
        values = removed.pop(path), added.pop(new_path)
        yield _difference(path, "possibly renamed", *values, _text(new_path))
    for path, value in removed.items():
        yield _difference(path, "removed", value)
    for path, value in added.items():
        yield _difference(path, "added", None, value)
    for path in (path for path in old if path in new):
        before, after = old[path], new[path]
        kind, new_kind = _type(before), _type(after)
        if kind != new_kind:
            change = "null-filled" if kind == "null" else "retyped"
            change = "null-turned" if new_kind == "null" else change
            yield _difference(path, change, before, after)
        elif kind not in ("object", "array") and before != after:
            name = re.sub(r"[^a-z0-9]", "", "".join(path[-1:]).lower())
            are_times = _is_time_of(before, times[0]) and _is_time_of(after, times[1])
            if name not in VOLATILE and not are_times:
                yield _difference(path, "changed", before, after)


def _difference(path: _Path, change: str, *values: Any) -> Difference:
    return Difference(path[0], _text(path), change, *values)


def _text(path: _Path) -> str:
    """Return a path below its part as text: ``lists[id=7].name``."""
    text = "".join(name if name.startswith("[") else f".{name}" for name in path[1:])
    return text.removeprefix(".") or {"body": "$"}.get(path[0], path[0])


def _missing(nodes: dict[_Path, Any], others: dict[_Path, Any]) -> dict[_Path, Any]:
    """Return the nodes that others lack, but not what is inside one that differs as a whole."""
    return {
        path: value
        for path, value in nodes.items()
        if path not in others and path[:-1] in others
        if _type(nodes[path[:-1]]) == _type(others[path[:-1]])
    }


def _type(value: object) -> str:
    """Return a value's JSON type; 1 and 1.0 are both numbers."""
    return type_of(value).replace("integer", "number")


def _renamed(removed: dict[_Path, Any], added: dict[_Path, Any]) -> dict[_Path, _Path]:
    """Return the fields that were possibly renamed, old to new.

    A pair has one parent, values of one type, and either equal values or similar names. Equal
    values such as 0 or "" count only if a single field was removed and a single one added.
    """
    pairs: dict[_Path, _Path] = {}
    is_single = len(removed) == len(added) == 1
    fields = [path for path in removed if path[0] == "body" and not path[-1].startswith("[")]
    for old in fields if len(fields) * len(added) <= _MOST_PAIRS else ():
        value = removed[old]
        free = [path for path in added if path[:-1] == old[:-1] and path not in pairs.values()]
        free = [path for path in free if _type(added[path]) == _type(value)]
        is_telling = is_single or value not in ("", 0, 1, None, [], {})
        equal = [path for path in free if is_telling and added[path] == value]
        if found := equal or [path for path in free if _are_similar(old[-1], path[-1])]:
            pairs[old] = found[0]
    return pairs


def _are_similar(*names: str) -> bool:
    before, after = (re.sub(r"[\W_]", "", name).lower() for name in names)
    return difflib.SequenceMatcher(None, before, after).ratio() >= _ALIKE


def _is_time_of(value: Any, at: datetime | None) -> bool:
    """Return whether a value is the time of its own response, at most five minutes off.

    It may be an ISO 8601 text, or a number of seconds or milliseconds since 1970.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            value = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if at is None or type(value) not in (int, float):
            return False
        return any(abs(value / unit - at.timestamp()) <= _NEAR_S for unit in (1, 1000))
    except (OverflowError, ValueError):
        return False
