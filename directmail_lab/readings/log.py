"""What a session remembers: its readings, and its last requests and responses.

Any thread may add to either, or read it, at any time.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ..display import readable
from ..http import httpx
from ..interaction import Headers, Interaction, RecordedRequest, RecordedResponse, base_path
from ..redaction import redact_foreign
from .reading import Reading, recorded_reading
from .reset_unit import Evidence, ResetUnit, ResetUnitInference, UnitName

if TYPE_CHECKING:
    import pandas as pd

    from ..cassettes import LoadedCassette
    from .frame import ReadingTable


# Without the path, which the operation nearly repeats, the counts fit a terminal of 80 characters.
_HIDDEN = ("path",)

_MOST_EXCHANGES: Final = 1_000
_LARGEST_BODY_BYTES: Final = 1024**2
_MOST_BODY_BYTES: Final = 32 * 1024**2


class ReadingLog:
    """Readings in the order they were appended. Any number of threads may use one log.

    Parameters
    ----------
    reset_unit
        The unit of ``X-RateLimit-Reset``, if the user states it; else the log infers it.

    Attributes
    ----------
    inference
        What the readings so far show about that unit; pacing uses it too.
    """

    def __init__(
        self, readings: Iterable[Reading] = (), *, reset_unit: ResetUnit | None = None
    ) -> None:
        self.reset_unit = reset_unit
        self.inference = ResetUnitInference(stated=reset_unit)
        self._lock = threading.Lock()
        self._readings: list[Reading] = []
        self._table: ReadingTable | None = None
        self._table_unit: UnitName = "undetermined"
        for reading in readings:
            self.append(reading)

    def append(self, reading: Reading) -> None:
        """Add a reading, in constant time."""
        with self._lock:
            self._readings.append(reading)
            self.inference.observe(reading)

    def __len__(self) -> int:
        return len(self._readings)

    def since(self, n: int) -> list[Reading]:
        """Return all readings but the first ``n``."""
        return self._readings[n:]

    def evidence(self) -> Evidence:
        """Return what the readings show about the unit of ``X-RateLimit-Reset``, and why."""
        with self._lock:
            return self.inference.evidence()

    def frame(self) -> pd.DataFrame:
        """Return all readings so far, a row each, in the order they were appended.

        The frame belongs to the caller: later readings do not change it, and changing it changes no
        other frame. The time of a call depends only on the readings that are new since the last.

        Returns
        -------
        DataFrame
            With a `RangeIndex` and these columns:

            ======================= ==================== =======================================
            column                  dtype                holds
            ======================= ==================== =======================================
            at                      datetime64[us, UTC]  when the response came; NaT if a cassette
                                                         does not say
            method, path, operation string               operation: the path, ids as ``{id}``
            status                  int64                the HTTP status
            limit, remaining, reset Int64                the headers as sent, <NA> if malformed
            reset_at                datetime64[us, UTC]  when the allowance renews; NaT while the
                                                         unit of reset is uncertain
            elapsed_s               float64              seconds from request to response, or NaN
            source                  string               live, recorded or replayed
            cassette                string               its name, or <NA>
            problem                 string               what is wrong with the headers, or <NA>
            ======================= ==================== =======================================

            ``attrs["reset_unit"]`` is the unit of ``reset``, or ``"undetermined"``.
        """
        with self._lock:
            frame = self._update_table().frame()
            frame.attrs["reset_unit"] = self._table_unit
        return readable(frame, hidden=_HIDDEN)

    def _update_table(self) -> ReadingTable:
        """Return the table with all readings; all rows are made anew if the unit has changed."""
        from .frame import ReadingTable  # it imports pandas, which not every session needs

        if self._table is None or self._table_unit != self.inference.unit:
            self._table, self._table_unit = ReadingTable(), self.inference.unit
        self._table.extend(self._readings[len(self._table) :], self._table_unit)
        return self._table


def frame_readings(
    readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None
) -> pd.DataFrame:
    """Return readings as a DataFrame, one row each, with the columns of `ReadingLog.frame`."""
    return ReadingLog(readings, reset_unit=reset_unit).frame()


def read_readings(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return the readings of recorded responses, one row each, without replaying them.

    The columns are those of `ReadingLog.frame`; ``at`` is NaT if the cassette has no time. To keep
    a frame of readings, use `DataFrame.to_parquet`.

    Parameters
    ----------
    path
        A cassette's file, several of them, or a folder; a progress bar is shown for more than one
        file. The unit of ``reset`` is inferred for each cassette from its own readings. Of several
        files or a folder, ``cassette`` is the path as given or below the folder, without ``.yaml``,
        and ``attrs["problems"]`` says, by that name, what is wrong with a file.

    Raises
    ------
    CassetteError
        A single file is missing or is not a cassette. Of several, such a file is left out, and a
        warning names it.
    """
    from ..cassettes.reader import is_one_file, read_many
    from .frame import ReadingTable

    if is_one_file(path):
        return frame_readings(cassette_readings(path))
    logs, problems = read_many(path, lambda loaded, name: ReadingLog(_readings(loaded, name)))
    table = ReadingTable()
    for log in logs:
        table.extend(log.since(0), log.inference.unit)
    frame, units = table.frame(), {log.inference.unit for log in logs}
    unit = units.pop() if len(units) == 1 else "undetermined"
    frame.attrs.update(reset_unit=unit, problems=problems)
    return readable(frame, hidden=_HIDDEN)


def cassette_readings(path: str | Path) -> list[Reading]:
    """Return the readings of the responses in a cassette file, in order."""
    from ..cassettes import read_cassette

    return _readings(read_cassette(Path(path)), Path(path).stem)


def _readings(loaded: LoadedCassette, name: str) -> list[Reading]:
    prefix = base_path(loaded.base_url or "")
    shown = redact_foreign(loaded.interactions, foreign=loaded.foreign)
    return [recorded_reading(interaction, prefix=prefix, cassette=name) for interaction in shown]


_RawHeaders = tuple[tuple[bytes, bytes], ...]


class _Exchange(NamedTuple):
    """A request and its response as httpx has them, which become text when they are shown."""

    reading: Reading
    url: httpx.URL
    request_headers: _RawHeaders
    response_headers: _RawHeaders
    reason: str
    bodies: tuple[bytes, bytes] | None

    @property
    def body_bytes(self) -> int:
        return sum(map(len, self.bodies or ()))


class Exchanges:
    """The last thousand requests and responses of a session, for `browse` to show.

    Headers are always kept, bodies only if they are recorded in a cassette too: none over 1 MiB,
    and at most 32 MiB in all.
    """

    def __init__(self) -> None:
        self._by_reading: OrderedDict[int, _Exchange] = OrderedDict()
        self._body_bytes = 0
        self._lock = threading.Lock()

    def add(
        self, reading: Reading, request: httpx.Request, response: httpx.Response, body: bytes | None
    ) -> None:
        """Keep an exchange; ``body`` is the response's if it is in a cassette, else None."""
        bodies = None
        if body is not None:
            sent = request.content if hasattr(request, "_content") else b""
            bodies = (sent, body) if len(sent) + len(body) <= _LARGEST_BODY_BYTES else None
        # Python's garbage collector soon leaves tuples of bytes out; httpx's headers it would look
        # through again and again, for as long as they are kept.
        sent_headers, headers = tuple(request.headers.raw), tuple(response.headers.raw)
        exchange = _Exchange(
            reading, request.url, sent_headers, headers, response.reason_phrase, bodies
        )
        with self._lock:
            # By identity: the exchange refers to the reading, so its id is not reused.
            self._by_reading[id(reading)] = exchange
            self._body_bytes += exchange.body_bytes
            while len(self._by_reading) > _MOST_EXCHANGES or self._body_bytes > _MOST_BODY_BYTES:
                self._body_bytes -= self._by_reading.popitem(last=False)[1].body_bytes

    def has_bodies(self, reading: Reading) -> bool:
        """Return whether both bodies of an exchange are kept."""
        exchange = self._by_reading.get(id(reading))
        return exchange is not None and exchange.bodies is not None

    def interaction(self, reading: Reading) -> Interaction | None:
        """Return an exchange without redaction, or None if it is no longer kept."""
        exchange = self._by_reading.get(id(reading))
        if exchange is None:
            return None
        _, url, request_headers, response_headers, reason, bodies = exchange
        sent, received = bodies or (None, b"")
        return Interaction(
            RecordedRequest(reading.method, str(url), _as_text(request_headers), sent),
            RecordedResponse(reading.status, reason, _as_text(response_headers), received),
            None if math.isnan(reading.at) else datetime.fromtimestamp(reading.at, UTC),
            reading.elapsed_s,
        )


def _as_text(headers: _RawHeaders) -> Headers:
    return tuple(httpx.Headers(list(headers)).multi_items())
