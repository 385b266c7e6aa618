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
from .transports.writes import IF_SENT, sent_before, that_counts

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
    if isinstance(extensions[IF_SENT], httpx.Response) and len(bodies) != 1:
        raise argument_error("A response as if_sent counts as that of one row: give only that one.")
    if cassette is None:
        raise DirectMailLabError(
            "Nothing was sent: after a restart, only a recording knows which rows were sent.",
            'Call record("…") first.',
        )
    requests = [
        session.client.build_request("POST", path, json=body, extensions=extensions)
        for body in bodies
    ]
    form = cassette.matching.form
    known = {form(each.request): each.response.status for each in cassette.recording()}
    forms = [form(cassette.redactor.request(request_value(each))) for each in requests]
    statuses = [known.get(each) for each in forms]
    if dry_run:
        found = [
            {"outcome": "not sent", "body": each.content.decode()}
            | _so_far(session, each, cassette, status)
            for each, status in zip(requests, statuses, strict=True)
        ]
        stopped = " Nothing was sent. A row that was changed after it was sent counts as new."
    else:
        found = [{"outcome": "not sent"} for _ in requests]
        stopped = _send(session, requests, statuses, found)
    table = _table(found, index)
    counts = Counter(table["outcome"])
    text = f"{plural(len(found), 'row')}: "
    text += f"{', '.join(f'{count} {name}' for name, count in counts.items())}.{stopped}"
    if not say_in_notebook(text) and not dry_run and counts.keys() - set(_GOOD):
        warn_caller(text)
    return table


def _bodies(rows: pd.DataFrame | Iterable[Fields]) -> tuple[pd.Index, list[Fields]]:
    """Return the index of the rows and the body of each; raise an error that names a bad cell."""
    try:
        if isinstance(rows, pd.DataFrame):
            columns = [_cells(column) for _, column in rows.items()]
            given = [list(zip(rows, cells, strict=True)) for cells in zip(*columns, strict=True)]
            index = rows.index
        else:
            given = [list(row.items()) for row in rows]
            index = pd.RangeIndex(len(given))
    except AttributeError:
        raise argument_error("Give the rows as a DataFrame, or as a dict for each row.") from None
    return index, [_nested(cells, label) for cells, label in zip(given, index, strict=True)]


def _cells(column: pd.Series) -> list[Any]:
    """Return the cells of a column: integers, if empty cells made floats of them."""
    known = column.dropna()
    if column.dtype.kind == "f" and len(known) < len(column) and (known % 1 == 0).all():
        return [None if pd.isna(each) else int(each) for each in column]
    return column.tolist()


def _nested(cells: Iterable[tuple[Any, Any]], label: object) -> Fields:
    """Return the body of a row: ``address.city`` is in an object ``address``."""
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
            place[last] = value
        except (AttributeError, TypeError, ValueError) as error:
            raise argument_error(
                f"Nothing was sent: row {label!r} has no body, because of its column {name!r} "
                f"({error})."
            ) from None
    return body


def _so_far(
    session: Session, request: httpx.Request, cassette: Cassette, status: int | None
) -> Fields:
    """Return the outcome of a row before it is sent."""
    if session.mode == "replay":
        return {} if status is None else {"outcome": "replayed", "status": status}
    earlier = sent_before(request, cassette)
    if earlier:
        write = that_counts(earlier)
        return {"outcome": "unknown" if write.fails else "kept", "status": write.status or None}
    return {"outcome": "refused", "status": status} if _is_refusal(status) else {}


def _send(
    session: Session,
    requests: list[httpx.Request],
    statuses: list[int | None],
    found: list[Fields],
) -> str:
    """Send the requests and note the outcomes; return what to say if they were stopped.

    A row that was refused before with the same body, or whose outcome was unknown before, is no new
    failure.
    """
    failures = 0
    with Progress("POST", len(requests), "row") as bar:
        for request, status, row in zip(requests, statuses, found, strict=True):
            is_new = _sent(session, request, row)
            bar.update()
            was_refused = row["outcome"] == "refused" and _is_refusal(status)
            if row["outcome"] == "sent":
                failures = 0
            elif is_new and not was_refused and session.mode != "replay":
                failures += 1
            if failures == _MOST_FAILURES:
                return f" Stopped after {failures} failures in a row: {row['error']}"
    return ""


def _is_refusal(status: int | None) -> bool:
    return status is not None and 400 <= status < 500


def _sent(session: Session, request: httpx.Request, row: Fields) -> bool:
    """Send a row and note its outcome; return whether it was sent now, and not kept."""
    call_of(request).is_row = True
    try:
        response = session.client.send(request)
    except (AlreadySentError, NotRecordedError) as error:
        is_known = isinstance(error, AlreadySentError)
        row.update(outcome="unknown" if is_known else "not sent", error=error.what)
        return False
    except OutcomeUnknownError as error:
        row.update(outcome="unknown", error=error.what)
        return True
    except httpx.TransportError as error:  # no connection was made
        row.update(error=str(error))
        return True
    redacted = session.recording.redactor.text
    reading = received_of(response).reading
    source = "live" if reading is None else reading.source
    row["status"] = response.status_code
    body, problem = read_json(response.content, response.charset_encoding, redacted=redacted)
    row["response"] = redacted(response.text) or None if problem else body
    if response.is_success:
        row["outcome"] = source if source in _GOOD else "sent"
        return False
    said = service_error(response, base_url=session.base_url, redacted=redacted).said
    row["outcome"] = "refused" if response.is_client_error else "unknown"
    row["error"] = said or outcome(response, redacted)
    return source != "kept"


def _table(found: list[Fields], index: pd.Index) -> pd.DataFrame:
    names = [*_DTYPES, "body"] if found and "body" in found[0] else list(_DTYPES)
    table = pd.DataFrame({name: [each.get(name, pd.NA) for each in found] for name in names})
    table = table.astype(_DTYPES)
    bodies = table["response"].where(table["outcome"].isin(_GOOD))
    fields = frame([each if isinstance(each, dict) else {} for each in bodies], rows_at=None)
    return pd.concat([table, fields.add_prefix("response.")], axis=1).set_axis(index)
