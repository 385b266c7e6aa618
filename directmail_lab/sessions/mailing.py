"""What `Session.post_many` does: a write for each row of a table, and what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..arguments import argument_error
from ..display import Progress, plural, say_in_notebook
from ..errors import AlreadySentError, DirectMailLabError, NotRecordedError, OutcomeUnknownError
from ..exchange.bodies import read_json
from ..exchange.httpx_values import httpx, request_value
from ..exchange.sent_values import json_text
from ..tracebacks import warn_caller
from .clients.refusals import outcome, service_error
from .frames import frame
from .transports.extensions import call_of, received_of
from .transports.writes import IF_SENT

if TYPE_CHECKING:
    from ..cassettes import Cassette
    from .session import Session

Fields = dict[str, Any]

_MOST_FAILURES = 3
_DTYPES: dict[str, Any] = {
    "outcome": "string",
    "status": "Int64",
    "error": "string",
    "response": object,
}
_GOOD = ("sent", "kept", "replayed")


def post_many(
    session: Session,
    cassette: Cassette | None,
    path: str,
    rows: pd.DataFrame | Iterable[Fields],
    *,
    extensions: Fields,
    dry_run: bool,
) -> pd.DataFrame:
    """Send each row in a POST request; see `Session.post_many`."""
    index, bodies = _bodies(rows)
    is_settled = isinstance(extensions[IF_SENT], httpx.Response)
    if is_settled and len(bodies) != 1:
        raise argument_error("A response as if_sent counts as that of one row: give only that one.")
    if cassette is None:
        raise DirectMailLabError(
            "Nothing was sent: after a restart, only a recording knows which rows were sent.",
            'Call dm.record("…") first.',
        )
    requests = [
        session.client.build_request("POST", path, json=body, extensions=extensions)
        for body in bodies
    ]
    form = cassette.matching.form
    known = {form(each.request): each.response.status for each in cassette.recording()}
    source = "replayed" if session.mode == "replay" else "kept"
    found = []
    for request in requests:
        status = known.get(form(cassette.redactor.request(request_value(request))))
        found.append({"outcome": _outcome(status, source), "status": status or None})
    if is_settled and found[0]["outcome"] != "unknown":
        raise argument_error(
            f"A response as if_sent counts for a row whose outcome is unknown. This row is "
            f"{found[0]['outcome']}."
        )
    stopped = " Nothing was sent. A row that was changed after it was sent counts as new."
    if not dry_run:
        stopped = _send(session, requests, found)
    table = _table(found, index)
    if dry_run:
        table["body"] = [each.content.decode() for each in requests]
    counts = Counter(table["outcome"])
    text = f"{plural(len(found), 'row')}: "
    text += f"{', '.join(f'{count} {name}' for name, count in counts.items())}.{stopped}"
    if "unknown" in counts:
        text += " What to do with unknown ones: help(dm.post_many)."
    if not say_in_notebook(text) and not dry_run and counts.keys() - set(_GOOD):
        warn_caller(text)
    return table


def _bodies(rows: pd.DataFrame | Iterable[Fields]) -> tuple[pd.Index, list[Fields]]:
    """Return the index of the rows and the body of each; raise an error that names a bad cell."""
    try:
        if isinstance(rows, pd.DataFrame):
            cells = rows.itertuples(index=False, name=None)
            given = [list(zip(rows, each, strict=True)) for each in cells]
            index = rows.index
        else:
            given = [list(row.items()) for row in rows]
            index = pd.RangeIndex(len(given))
    except AttributeError:
        raise argument_error("Give the rows as a DataFrame, or as a dict for each row.") from None
    return index, [_nested(cells, label) for cells, label in zip(given, index, strict=True)]


def _nested(cells: Iterable[tuple[Any, Any]], label: object) -> Fields:
    """Return the body of a row: ``address.city`` is in an object ``address``.

    A whole number is an integer: beside an empty cell, pandas makes a float of it.
    """
    body: Fields = {}
    for name, value in cells:
        place = body
        try:
            json_text(value)
            *parents, last = name.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            if not isinstance(place, dict) or last in place:
                raise ValueError("another column has the same field")
            is_whole = isinstance(value, float) and value.is_integer()
            place[last] = int(value) if is_whole else value
        except (AttributeError, TypeError, ValueError) as error:
            raise argument_error(
                f"Nothing was sent: row {label!r} has no body, because of its column {name!r} "
                f"({error})."
            ) from None
    return body


def _outcome(status: int | None, of_success: str) -> str:
    """Return the outcome of a row by the status of its response; 0 if none came."""
    if status is None:
        return "not sent"
    if 200 <= status < 300:
        return of_success
    return "refused" if 400 <= status < 500 else "unknown"


def _send(session: Session, requests: list[httpx.Request], found: list[Fields]) -> str:
    """Send the requests and note the outcomes; return what to say if they were stopped.

    A row that was refused before with the same body, or whose outcome was unknown before, is no new
    failure.
    """
    failures = 0
    with Progress("POST", len(requests), "row") as bar:
        for request, row in zip(requests, found, strict=True):
            before = row["outcome"]
            row.update(_sent(session, request))
            bar.update()
            is_new = row["outcome"] != before or before == "not sent"
            if row["outcome"] == "sent":
                failures = 0
            elif is_new and row["outcome"] not in _GOOD and session.mode != "replay":
                failures += 1
            if failures == _MOST_FAILURES:
                return f" Stopped after {failures} failures in a row: {row['error']}"
    return ""


def _sent(session: Session, request: httpx.Request) -> Fields:
    """Send a row, and return what became of it."""
    call_of(request).is_row = True
    try:
        response = session.client.send(request)
    except (AlreadySentError, OutcomeUnknownError) as error:
        return {"outcome": "unknown", "status": None, "error": error.what}
    except (NotRecordedError, httpx.TransportError) as error:  # no connection was made
        return {"outcome": "not sent", "status": None, "error": str(error).partition("\n")[0]}
    redacted = session.recording.redactor.text
    reading = received_of(response).reading
    source = "sent" if reading is None or reading.source not in _GOOD else reading.source
    body, problem = read_json(response.content, response.charset_encoding, redacted=redacted)
    said = None
    if not response.is_success:
        failure = service_error(response, base_url=session.base_url, redacted=redacted)
        said = failure.said or outcome(response, redacted)
    return {
        "outcome": _outcome(response.status_code, source),
        "status": response.status_code,
        "error": said,
        "response": redacted(response.text) or None if problem else body,
    }


def _table(found: list[Fields], index: pd.Index) -> pd.DataFrame:
    table = pd.DataFrame(found, columns=[*_DTYPES]).astype(_DTYPES)
    bodies = table["response"].where(table["outcome"].isin(_GOOD))
    fields = frame([each if isinstance(each, dict) else {} for each in bodies], rows_at=None)
    return pd.concat([table, fields.add_prefix("response.")], axis=1).set_axis(index)
