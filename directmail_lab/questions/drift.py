"""`drift`: whether a service still answers as a cassette recorded it."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from ..cassettes import find_cassette, read_cassette
from ..display import plural, readable
from ..errors import CassetteError, DirectMailLabError, check_choice
from ..http import recorded_response
from ..interaction import Interaction, RecordedRequest, base_path, operation_of, path_below
from ..redaction import PLACEHOLDER, Redactor, secrets_in
from .comparison import ABSENT, Difference, compare

if TYPE_CHECKING:
    import pandas as pd

    from ..sessions import Session

# The recorded request headers that are sent again: they only select a representation. Others are
# not sent, since a cassette may be somebody else's and the request carries this account's key.
_RESENT: Final = frozenset({"accept", "accept-language", "accept-charset", "prefer"})
_LONGEST_URI: Final = 8_000
# Query parameters by which some frameworks turn a GET into another method.
_OVERRIDE: Final = re.compile(r"_method|x-http-method(-override)?|x-method-override", re.IGNORECASE)
# What redaction leaves in an address: the placeholder, or a pseudonym (see `personal`).
_REPLACED: Final = re.compile(
    rf"{re.escape(PLACEHOLDER)}|person-[0-9a-f]{{8}}@example\.invalid|<[^<>]+-[0-9a-f]{{8}}>"
)

_DTYPES: Final[dict[str, Any]] = {
    "interaction": "Int64", "operation": "string", "part": "string", "path": "string",
    "change": "string", "recorded": "object", "now": "object", "new_path": "string",
}  # fmt: skip
_AGE: Final = re.compile(r"(\d{1,5}) days?")


class OldCassetteWarning(UserWarning):
    """A cassette was recorded longer ago than ``max_age``."""


def drift(
    session: Session,
    cassette: str | Path,
    *,
    ignore: Iterable[str] = (),
    max_age: timedelta | str | None = None,
    on_old: Literal["warn", "raise"] = "warn",
    clock: Callable[[], float] = time.time,
) -> pd.DataFrame:
    """Send a cassette's reads again, live, and return what has changed in the responses.

    Only GET and HEAD requests are sent, each distinct one once, and paced. The response is compared
    with the last recorded one that was not an error (or the last one, if all were). Of the recorded
    request headers only those that select a representation, such as ``Accept``, are sent. Nothing
    is recorded. The session is live meanwhile, and then returns to its mode.

    Parameters
    ----------
    session
        A session with a key. ``dm.drift`` has no such parameter and uses the current session.
    cassette
        A name or a path, as for `replay`.
    ignore
        Paths to leave out, or one; ``*`` is any text: ``"company.*"``, ``"header.x-powered-by"``.
        Values that differ from call to call are left out already: see `comparison` for the list.
    max_age
        The greatest age that a recording may have: a `timedelta` or a text such as ``"30 days"``.
    on_old
        Whether an older recording causes a warning (`OldCassetteWarning`) or an error. It is never
        recorded again.
    clock
        Returns the time, in seconds since the Unix epoch.

    Returns
    -------
    DataFrame
        A row for each difference: ``interaction`` (Int64, the recorded one's number in the
        cassette, from 0), ``operation`` (string, ``GET /v1/users/me``), ``part`` (``status``,
        ``header`` or ``body``), ``path`` (string, see `Difference`), ``change`` (``added``,
        ``removed``, ``retyped``, ``possibly renamed``, ``null-turned``, ``null-filled`` or
        ``changed``), ``recorded`` and ``now`` (object: the two values, ``<NA>`` for null and for
        missing values), ``new_path`` (string, if a field was possibly renamed). No rows if nothing
        is different. ``attrs``: ``"sent"``, the number of requests sent; ``"not_sent"``, the
        operations that were not, because they write or because redaction changed their address;
        ``"notes"``, the same in words, shown below the table.

    Raises
    ------
    NotConnectedError
        The session has no key.
    CassetteError
        The cassette cannot be found or read, or is older than ``max_age`` and ``on_old="raise"``.
    """
    check_choice("on_old", on_old, ("warn", "raise"))
    loaded = read_cassette(find_cassette(cassette))
    if max_age is not None:
        now = datetime.fromtimestamp(clock(), UTC)
        _report_age(cassette, age_problem(loaded.interactions, max_age, now=now), on_old)
    interactions, prefix = loaded.interactions, base_path(loaded.base_url or "")
    redactor = Redactor(redact=loaded.redact)
    if loaded.foreign:  # what another program wrote may hold its credentials
        redactor = Redactor(secrets_in(interactions))
        interactions = list(map(redactor.interaction, interactions))
    reads, not_sent = _reads(interactions, prefix)
    patterns = ignore if isinstance(ignore, str) else list(ignore)
    found = []
    with session.live():
        for number, recorded in reads:
            again = redactor.interaction(_send_again(session, recorded.request, prefix, clock))
            operation = _operation(recorded.request, prefix)
            differences = compare(recorded, again, ignore=patterns)
            found += [(number, operation, difference) for difference in differences]
    return _table(found, len(reads), not_sent)


def _report_age(
    cassette: str | Path, problem: str | None, on_old: Literal["warn", "raise"]
) -> None:
    """Warn of what `age_problem` returned for a cassette, or raise it."""
    if problem is None:
        return
    message = (
        f'Cassette {str(cassette)!r} {problem}. Look at drift("{cassette}"), then record it '
        f'again with record("{cassette}", record_mode="all").'
    )
    if on_old == "raise":
        raise CassetteError(message)
    warnings.warn(message, OldCassetteWarning, stacklevel=3)


def _table(
    found: Iterable[tuple[int, str, Difference]], sent: int, not_sent: list[str]
) -> pd.DataFrame:
    """Return the table of differences, each with its interaction's number and operation."""
    import pandas as pd

    rows = []
    for number, operation, difference in found:
        values = (getattr(difference, name) for name in [*_DTYPES][2:])
        cells = (pd.NA if value in (None, ABSENT) else value for value in values)
        rows.append((number, operation, *cells))
    table = readable(pd.DataFrame(rows, columns=list(_DTYPES), dtype=object).astype(_DTYPES))
    notes = [f"{plural(sent, 'request')} sent{'' if rows else ', all answered as recorded'}."]
    notes += [f"Not sent: {', '.join(not_sent)}."] if not_sent else []
    table.attrs.update(sent=sent, not_sent=not_sent, notes=notes)
    return table


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


def _reads(
    interactions: Iterable[Interaction], prefix: str
) -> tuple[list[tuple[int, Interaction]], list[str]]:
    """Return the reads to send with their numbers, each once, and the operations not to send."""
    reads: dict[tuple[str, str], tuple[int, Interaction]] = {}
    not_sent: dict[str, None] = {}
    for number, recorded in enumerate(interactions):
        request = recorded.request
        if request.method not in ("GET", "HEAD") or not _can_be_sent(request.uri):
            not_sent[_operation(request, prefix)] = None
            continue
        key = request.method, _target(request, prefix)
        before = reads.get(key)
        if before is None or recorded.response.status < 400 or before[1].response.status >= 400:
            reads[key] = number, recorded
    return list(reads.values()), list(not_sent)


def _can_be_sent(uri: str) -> bool:
    """Return whether an address was not redacted, and does not override its method."""
    if not uri.isprintable() or len(uri) > _LONGEST_URI:
        return False
    names = (name for name, _ in parse_qsl(urlsplit(uri).query, keep_blank_values=True))
    overrides = any(_OVERRIDE.fullmatch(name.strip()) for name in names)
    return not overrides and _REPLACED.search(unquote(uri)) is None


def _operation(request: RecordedRequest, prefix: str) -> str:
    return f"{request.method} {operation_of(path_below(request.uri, prefix))}"


def _target(request: RecordedRequest, prefix: str) -> str:
    query = urlsplit(request.uri).query
    return path_below(request.uri, prefix) + (f"?{query}" if query else "")


def _send_again(
    session: Session, request: RecordedRequest, prefix: str, clock: Callable[[], float]
) -> Interaction:
    headers = [
        (name, value)
        for name, value in request.headers
        if name.lower() in _RESENT and value.isascii() and value.isprintable()
        if PLACEHOLDER not in value
    ]
    address = session.base_url + "/" + _target(request, prefix).lstrip("/")
    response = session.request(request.method, address, headers=headers)
    at = datetime.fromtimestamp(clock(), UTC)
    return Interaction(request, recorded_response(response), at)
