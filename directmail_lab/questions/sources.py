"""Turn a source (a cassette's name, a path, a folder, a session) into recordings or readings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar

from ..arguments import argument_error
from ..cassettes import Recording, find_cassette, read_cassette, uncollected
from ..cassettes.library import cassettes_in, is_folder
from ..display import Progress, as_table, plural, printable_line
from ..errors import CassetteError, naming_what_is_missing
from ..sessions.current import current_session, session
from ..sessions.session import Session
from ..tracebacks import warn_caller

if TYPE_CHECKING:
    import pandas as pd


_Row = TypeVar("_Row")
_Place = tuple[str, int]
"""The name of a recording, and a number in it."""
Source = str | Path | Session | None
Sources = Source | Iterable[Source]
"""What a question is asked of: one source of recordings, or a list of several."""


@uncollected()
def rate_limits(source: Sources = None) -> pd.DataFrame:
    """Return the readings of the rate-limit headers, one row for each response.

    Parameters
    ----------
    source
        By default the current session's responses; in a replay, those played so
        far. Otherwise a cassette's name, a path, a folder, a list of these, or
        a `Session`. In a folder, a warning names each file that cannot be read.

    Returns
    -------
    DataFrame
        The index ``number`` is the number of the interaction in the recording,
        from 1. Columns:

        ======================= =================== ========================
        column                  dtype               meaning
        ======================= =================== ========================
        at                      datetime64[us, UTC] when the response came;
                                                    NaT if a cassette does
                                                    not say
        method, path, operation string              operation: the path with
                                                    ``{id}`` for ids; for
                                                    another server, after
                                                    its origin
        status                  int64               the HTTP status
        limit, remaining, reset Int64               the headers as sent, or
                                                    <NA> if not an integer
        reset_at                datetime64[us, UTC] when the allowance
                                                    renews, also if reset is
                                                    a decimal number; NaT
                                                    while its unit is
                                                    uncertain, and for
                                                    another server
        elapsed_s               float64             seconds from request to
                                                    headers, or NaN
        source                  string              ``live``, ``recorded``,
                                                    ``replayed`` or ``kept``
        cassette                string              the name of the cassette
                                                    that has it, or <NA>
        cassette_number         Int64               its number there, from
                                                    1, or <NA>
        problem                 string              what is wrong with the
                                                    headers, or that the
                                                    response was cut short;
                                                    else <NA>
        ======================= =================== ========================

        ``attrs["reset_unit"]`` is the unit of ``reset``, or ``"undetermined"``:
        it is inferred for each recording from its own readings. For a folder or
        a list, the first column, ``recording``, names the cassette, or the
        session by its order in the list: ``session 1``.

    Raises
    ------
    NotConnectedError
        No session is open, and no source is given.
    CassetteError
        There is no such cassette, or it cannot be read.

    Examples
    --------
    >>> limits = dm.rate_limits("first-look")
    >>> limits[["operation", "status", "limit", "remaining"]].head(2)
               operation  status  limit  remaining
    number
    1       /v1/users/me     200    300        299
    2       /v1/users/me     200    300        298
    """
    with naming_what_is_missing():
        from ..readings.frame import frame_of

    paths = named_paths(source)
    if is_many(source):
        places, rows = rows_of_many(
            source, lambda each: zip(each.readings(), repeat(each.evidence.unit), strict=False)
        )
        units = [unit for _, unit in rows]
        frame = frame_of([reading for reading, _ in rows], units=units, paths=paths)
        return as_table(with_places(frame, places), is_wide=True)
    recording = recording_of(source)
    evidence = recording.evidence
    if evidence.contradiction:
        warn_caller(
            f"The readings contradict reset_unit={evidence.unit!r}: {evidence.contradiction}.",
            "Leave reset_unit out to infer the unit.",
        )
    frame = frame_of(recording.readings(), unit=recording.evidence.unit, paths=paths)
    frame.attrs.update(describe(recording))
    return as_table(frame, is_wide=True)


def readings_of(source: Sources | pd.DataFrame = None) -> pd.DataFrame:
    """Return the readings that a chart or a check uses: those of a source, or a given frame.

    If there are readings of live requests, those of requests that were not sent are left out.
    """
    import pandas as pd

    frame = source if isinstance(source, pd.DataFrame) else rate_limits(source)
    is_own = frame["source"].isin(["live", "recorded"])
    return frame[is_own] if is_own.any() else frame


def recordings_of(source: Sources = None) -> Iterator[Recording]:
    """Yield the recordings of a source, one after the other.

    Parameters
    ----------
    source
        None for the current session, in its present mode; a `Session`; a cassette's name; the path
        of a cassette, a ``.har`` file or a folder; or a list of these. In a folder, a file that
        cannot be read is left out, and a warning names it.

    Raises
    ------
    NotConnectedError
        No source is given and no session is open.
    CassetteError
        A file that is named does not exist, or is not a cassette.
    ValueError
        The source is none of these.
    """
    if source is None:
        yield session().recording
    elif isinstance(source, Session):
        yield source.recording
    elif isinstance(source, str | Path):
        if is_folder(source):
            yield from _read_folder(Path(source))
        else:
            yield read_cassette(find_cassette(source))
    elif isinstance(source, Iterable):
        for each in source:
            yield from recordings_of(each)
    else:
        raise argument_error(
            f"{shorten(repr(source), 60)} is not a source of interactions. Give a cassette's name, "
            "a path, a folder, a list of these, or a Session."
        )


def rows_of_many(
    source: Sources, rows_of: Callable[[Recording], Iterable[_Row]]
) -> tuple[list[_Place], list[_Row]]:
    """Return the rows of several recordings, and the place of each for `with_places`.

    To make a frame of each file would take ten times as long as to read it.
    """
    places: list[_Place] = []
    rows: list[_Row] = []
    sessions = 0
    for each in recordings_of(source):
        name = each.name
        if each.path is None:
            sessions += 1
            name = f"session {sessions}"
        own = list(rows_of(each))
        rows += own
        places += [(name, number) for number in range(1, len(own) + 1)]
    return places, rows


def with_places(frame: pd.DataFrame, places: Sequence[_Place]) -> pd.DataFrame:
    """Return a frame with the name of each row's recording, and numbered as the recording is."""
    import pandas as pd

    numbers = pd.Index([number for _, number in places], dtype="int64", name="number")
    names = pd.Series([name for name, _ in places], numbers, dtype="string")
    frame = frame.set_axis(numbers)
    frame.insert(0, "recording", names)
    return frame


def recording_of(source: Sources = None) -> Recording:
    """Return the recording of a single source; raise the errors of `recordings_of`."""
    if is_many(source):
        raise argument_error("Give one cassette here: its name or its path.")
    return next(recordings_of(source))


def is_many(source: object) -> bool:
    """Return whether a source may have several recordings: a folder or a list."""
    if isinstance(source, str | Path):
        return is_folder(source)
    return isinstance(source, Iterable)


def named_paths(source: object = None) -> Collection[str]:
    """Return the path templates of a session: of the source if it is one, else the current one."""
    chosen = source if isinstance(source, Session) else current_session()
    return () if chosen is None else chosen.templates


def describe(recording: Recording) -> dict[str, Any]:
    """Return a frame's ``attrs`` that say where its rows come from, and notes to show.

    ``recorded`` says when, such as ``on 21 November 2026``.
    """
    count = plural(len(recording), "interaction")
    about: dict[str, Any] = {"source": f"{recording.title}, {count}", "notes": []}
    note = f"From {recording.title}: {count}{recording.recorded_note}"
    if recording.recorded_when:
        about["recorded"] = recording.recorded_when
    if recording.is_replay and not len(recording):
        name = recording.name
        note = f'Nothing of {name} was played yet. To see all of it: dm.interactions("{name}")'
    elif recording.path:
        return about
    about["notes"].append(f"{note}.")
    return about


def _read_folder(folder: Path) -> Iterator[Recording]:
    """Yield the recordings of a folder, with a progress bar; leave out what cannot be read."""
    files = list(cassettes_in(folder))
    reasons: dict[str, str] = {}
    with Progress("Reading", len(files), "cassette") as bar:
        for name, path in files:
            try:
                recording = read_cassette(path)
                # Parsed here, where an interaction that cannot be read is caught.
                yield replace(recording, name=name, interactions=list(recording))
            except CassetteError as error:
                reasons[name] = error.what
            bar.update()
    if reasons:
        names = shorten(printable_line(", ".join(reasons)), 200, placeholder=" …")
        first = printable_line(next(iter(reasons.values())))
        warn_caller(
            f"{len(reasons):,} of {plural(len(files), 'cassette')} could not be read: {names}. "
            f"{first}"
        )
