"""`interactions`: a recording's interactions as a DataFrame, or one of them in full."""

from __future__ import annotations

from typing import overload

import pandas as pd

from ..cassettes import Recording, uncollected
from ..display import as_table, printable, printable_line
from ..exchange.bodies import plain_text, shown_missing
from ..exchange.operations import operations_of, query_of
from ..exchange.values import Interaction, header
from .interaction_view import InteractionView, view_of
from .sources import (
    Source,
    Sources,
    describe,
    is_many,
    named_paths,
    recording_of,
    rows_of_many,
    with_places,
)

_DTYPES = {
    "at": "datetime64[us, UTC]",
    "method": "string",
    "path": "string",
    "query": "string",
    "operation": "string",
    "status": "Int64",
    "attempt": "Int64",
    "content_type": "string",
    "bytes": "Int64",
    "elapsed_s": "Float64",
    "excerpt": "string",
    "source": "string",
    "problem": "string",
}
_EXCERPT_CHARACTERS = 80


@overload
def interactions(source: Sources = None, *, number: None = None) -> pd.DataFrame: ...


@overload
def interactions(source: Source = None, *, number: int) -> InteractionView: ...


def interactions(
    source: Sources = None, *, number: int | None = None
) -> pd.DataFrame | InteractionView:
    """Return the interactions of a recording, one row for each.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`. By
        default the current session: what it sent and received, or in a replay
        what it played.
    number
        Return this interaction in full instead, counted from 1. Its
        ``.as_curl()`` returns a command that sends the request again.

    Returns
    -------
    DataFrame
        One row for each interaction. The index, ``number``, counts from 1.
        Columns:

        ============ ============= =============================================
        at           datetime, UTC when the response came; NaT if not known
        method       string        ``GET``, for example
        path         string        the path below the service address
        query        string        the query without its question mark
        operation    string        the path; segments that look like ids are
                                   ``{id}``
        status       Int64         the status code; 0 if no response came
        attempt      Int64         1, or more if the request was sent again; 0
                                   if another's response counts as its
        content_type string        the response's ``Content-Type``
        bytes        Int64         the size of the response's body
        elapsed_s    Float64       seconds from the request to the headers
        excerpt      string        the start of the body on one line
        source       string        ``live``, ``recorded``, ``replayed`` or
                                   ``kept`` (a write was not sent: see
                                   ``if_sent`` in `request`)
        problem      string        why the response is not whole; else <NA>
        ============ ============= =============================================

        If a session did not keep a body, ``bytes`` and ``excerpt`` are <NA>. If
        a body was not recorded, ``bytes`` is <NA> and ``excerpt`` says so. For
        a folder or a list, the first column, ``recording``, names the cassette,
        or the session by its order in the list: ``session 1``. For one file,
        ``attrs["problem"]`` says what is wrong with it, or is None.

    Raises
    ------
    NotConnectedError
        No session is open, and no source is given.
    CassetteError
        There is no such cassette or interaction, or it cannot be read.
    """
    if number is not None:
        return view_of(recording_of(source), number)
    if is_many(source):
        places, rows = rows_of_many(source, _rows)
        frame = with_places(_frame(rows), places)
    else:
        recording = recording_of(source)
        frame = _frame(_rows(recording))
        frame.attrs.update(describe(recording), problem=recording.problem)
    operations = operations_of(frame["path"].unique(), named_paths(source))
    frame["operation"] = frame["path"].map(operations).astype("string")
    return as_table(frame, is_wide=True)


def _frame(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    index = pd.RangeIndex(1, len(rows) + 1, name="number")
    return pd.DataFrame(rows, index, list(_DTYPES)).astype(_DTYPES)


@uncollected()
def _rows(recording: Recording) -> list[tuple[object, ...]]:
    return [_row(recording, number, each) for number, each in enumerate(recording, 1)]


def _row(recording: Recording, number: int, interaction: Interaction) -> tuple[object, ...]:
    request = interaction.request
    response = interaction.response
    path = recording.path_of(request)
    is_kept = recording.has_bodies(number)
    reading = recording.reading(number)
    return (
        interaction.recorded_at,
        request.method,
        path,
        query_of(request.uri),
        path,
        response.status,
        interaction.attempt,
        printable_line(header(response.headers, "content-type") or "") or None,
        len(response.body) if is_kept and not shown_missing(response.body) else None,
        interaction.elapsed_s,
        _excerpt(response.body) if is_kept else None,
        reading.source,
        reading.why_cut,
    )


def _excerpt(body: bytes) -> str:
    missing = shown_missing(body)
    if missing:
        return missing
    text = plain_text(body)
    if text is None:
        return "(binary)"
    line = printable(" ".join(text[: 4 * _EXCERPT_CHARACTERS].split()))
    if len(line) > _EXCERPT_CHARACTERS:
        return line[: _EXCERPT_CHARACTERS - 1] + "…"
    return line
