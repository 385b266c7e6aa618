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

from ..http import httpx
from ..interaction import (
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    base_path,
    path_below,
)
from ..redaction import redact_foreign
from .reading import Reading, reading_of
from .reset_unit import Evidence, ResetUnit, ResetUnitInference

if TYPE_CHECKING:
    import pandas as pd

    from ..cassettes import LoadedCassette


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
        self._is_live = False
        for reading in readings:
            self.append(reading)

    def append(self, reading: Reading) -> None:
        """Add a reading."""
        with self._lock:
            self._readings.append(reading)
            if reading.source != "replayed" and not self._is_live:
                # What the service says now overrules what a replay showed.
                self._is_live = True
                stated = self.reset_unit
                self.inference.__init__(stated=stated)  # type: ignore[misc]
            if self._is_live and reading.source == "replayed":
                return
            self.inference.observe(reading, len(self._readings))

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
        """Return all readings so far, a row each (see `frame_of`)."""
        from .frame import frame_of  # it imports pandas, which not every session needs

        return frame_of(self.since(0), unit=self.inference.unit)


def frame_readings(
    readings: Iterable[Reading], *, reset_unit: ResetUnit | None = None
) -> pd.DataFrame:
    """Return readings as a DataFrame, one row each, with the columns of `frame_of`."""
    return ReadingLog(readings, reset_unit=reset_unit).frame()


def read_readings(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return the readings of recorded responses, one row each, without replaying them.

    The columns are those of `frame_of`; ``at`` is NaT if the cassette has no time. To keep
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
    from .frame import frame_of_many

    if is_one_file(path):
        return frame_readings(cassette_readings(path))
    logs, problems = read_many(path, lambda loaded, name: ReadingLog(_readings(loaded, name)))
    frame = frame_of_many((log.since(0), log.inference.unit) for log in logs)
    frame.attrs["problems"] = problems
    return frame


def cassette_readings(path: str | Path) -> list[Reading]:
    """Return the readings of the responses in a cassette file, in order."""
    from ..cassettes import read_cassette

    return _readings(read_cassette(Path(path)), Path(path).stem)


def _readings(loaded: LoadedCassette, name: str) -> list[Reading]:
    prefix = base_path(loaded.base_url or "")
    shown = redact_foreign(loaded.interactions, foreign=loaded.foreign)
    return [
        reading_of(
            interaction,
            path_below(interaction.request.uri, prefix),
            cassette=name,
            cassette_number=number,
        )
        for number, interaction in enumerate(shown, 1)
    ]


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
