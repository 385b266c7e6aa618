"""`Recording`: interactions in their order, numbered from 1; of a file, or of a session.

A file is read by `read_cassette`: ours by line, each interaction parsed when it is asked for; every
other through vcrpy's loader, and without its credentials. A session's recording grows.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from ..bodies import unpack
from ..display import Progress, ProgressBar, plural
from ..errors import CassetteError, CassetteFormatError
from ..interaction import (
    MALFORMED,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    base_path,
    check_request,
    check_response,
    check_times,
    header,
    normalize_headers,
    path_below,
    text_headers,
    unreadable,
)
from ..readings.reading import Reading, reading_of
from ..readings.reset_unit import Evidence, ResetUnit, ResetUnitInference, infer_reset_unit
from ..redaction import Redactor, redact_foreign
from . import layout
from .layout import Address

MAX_FILE_BYTES: Final = 256 * 1024**2
_MAX_KEPT_BYTES: Final = 64 * 1024**2
# What addresses and headers of a usual response take.
_HEADERS_BYTES: Final = 4096
_READINGS_FOR_UNIT: Final = 1_000
_PERCENT: Final = "{desc}: {percentage:.0f} % {bar}"

RawHeaders = Sequence[tuple[bytes, bytes]]
Credentials = Literal["key", "none", "wrong", "unknown"]


@dataclass(eq=False)
class Recording:
    """Interactions, numbered from 1, without credentials.

    Attributes
    ----------
    name
        What it is called: a cassette's name, or ``this session``.
    interactions
        In the order of their recording.
    base_url
        The base address: what the file says, else its first request's origin; None if unknown.
    problem
        What is wrong with the file, in a sentence, or None: it broke off, or was changed.
    path
        Its file, or None.
    layout
        ``"lines"`` (ours), ``"vcrpy"`` (YAML of another writer), ``"json"``, ``"har"`` or
        ``"empty"``.
    metadata
        What the file says of itself.
    clean_bytes
        The length of the file up to the end of its last whole interaction.
    redactor
        What knows the credentials that another program's file had.
    """

    name: str
    interactions: Sequence[Interaction] = field(default=(), repr=False)
    base_url: str | None = None
    problem: str | None = None
    path: Path | None = None
    layout: Literal["lines", "vcrpy", "json", "har", "empty"] = "empty"
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    clean_bytes: int = field(default=0, repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False)

    is_replay = False

    @property
    def title(self) -> str:
        """What is shown of where its interactions come from."""
        return f"{self.name} (replayed)" if self.is_replay else self.name

    @property
    def is_third_party(self) -> bool:
        """Whether another program wrote the file."""
        return self.layout in ("vcrpy", "json", "har")

    @property
    def redact(self) -> tuple[str, ...]:
        """What personal data it replaces, as `record` takes it: a replay needs the same."""
        rules = self.metadata.get("redact")
        return tuple(map(str, rules)) if isinstance(rules, list) else ()

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The base address, then those of sessions elsewhere that later recorded to the file."""
        others = self.metadata.get("other_base_urls")
        named = (self.base_url, *(others if isinstance(others, list) else ()))
        return tuple(dict.fromkeys(each for each in named if each and isinstance(each, str)))

    @property
    def evidence(self) -> Evidence:
        """The unit of ``X-RateLimit-Reset`` and why, by the first thousand readings."""
        readings: list[Reading] = []
        with suppress(CassetteFormatError):
            readings.extend(islice(map(self.reading, range(1, len(self) + 1)), _READINGS_FOR_UNIT))
        return infer_reset_unit(readings)

    @cached_property
    def recorded_when(self) -> str:
        """When the file was recorded, such as ``on 21 November 2026``; empty if it has no times."""
        with suppress(CassetteFormatError, IndexError):
            ends = self.interactions[0].recorded_at, self.interactions[-1].recorded_at
            days = list(dict.fromkeys(f"{at.day} {at:%B %Y}" for at in ends if at))
            return f"from {' to '.join(days)}" if len(days) > 1 else f"on {days[0]}"
        return ""

    def __len__(self) -> int:
        return len(self.interactions)

    def __iter__(self) -> Iterator[Interaction]:
        return map(self.interaction, range(1, len(self) + 1))

    def interaction(self, number: int) -> Interaction:
        """Return an interaction by its number.

        Raises
        ------
        CassetteError
            There is none of that number, or (`CassetteFormatError`) it cannot be read.
        """
        self._check_number(number)
        return self.interactions[number - 1]

    def answer(self, number: int, request: RecordedRequest) -> Interaction:
        """Return an interaction with a request in the place of its own, to replay its response.

        Raises
        ------
        CassetteError
            Its body cannot be decoded, or not within the bound.
        """
        if isinstance(self.interactions, Lines):
            return _decoded(self.interactions.answer(number - 1, request))
        return _decoded(replace(self.interactions[number - 1], request=request))

    def addresses(self) -> Iterable[tuple[Address, int]]:
        """Return of each interaction its method and address, and which attempt it is."""
        recorded = self.interactions
        return recorded.addresses() if isinstance(recorded, Lines) else map(_address_of, recorded)

    def reading(self, number: int) -> Reading:
        """Return the reading of an interaction's response; raises as `interaction` does."""
        interaction = self.interaction(number)
        return reading_of(interaction, self.path_of(interaction.request), cassette=self.name)

    def readings(self) -> list[Reading]:
        """Return the readings of all responses, in their order."""
        return [self.reading(number) for number in range(1, len(self) + 1)]

    def path_of(self, request: RecordedRequest) -> str:
        """Return a request's path below the base address; one outside of it is returned whole."""
        return path_below(request.uri, base_path(self.base_url or ""))

    def has_bodies(self, number: int) -> bool:  # noqa: ARG002
        """Return whether the bodies of an interaction are there: a session drops old ones."""
        return True

    def _check_number(self, number: int) -> None:
        if not (isinstance(number, Integral) and 1 <= number <= len(self)):
            count = plural(len(self), "interaction")
            raise CassetteError(
                f"{self.name} has no interaction {number}: it has {count}, numbered from 1."
            )


# -- of a session --------------------------------------------------------------------------------


class RawInteraction(NamedTuple):
    """A request and its response as httpx has them; ``body`` is None until it was read."""

    url: object
    request_headers: RawHeaders
    request_body: bytes
    response_headers: RawHeaders
    reason: str
    body: bytes | None

    def __repr__(self) -> str:
        return "<RawInteraction>"  # what it holds is not redacted


class SessionRecording(Recording):
    """What a session keeps: all its readings, and its last messages within 64 MB.

    They are kept as they came, and redacted when they are asked for; and for good before the
    session forgets its key. Any thread may add to it.

    Attributes
    ----------
    explored
        Responses to `explore`, with what stood in for the key: no question but `findings` asks
        for these.
    """

    def __init__(self, name: str, base_url: str, *, reset_unit: ResetUnit | None = None) -> None:
        super().__init__(name, base_url=base_url)
        self.explored: list[tuple[Interaction, Credentials]] = []
        self._readings: list[Reading] = []
        self._exchanges: dict[int, RawInteraction] = {}
        self._kept_bytes = 0
        self._inference = ResetUnitInference(stated=reset_unit)
        self._observed = 0
        self._is_redacted = False
        # The garbage collector may redact a recording in a thread that has the lock.
        self._lock = threading.RLock()

    def add(self, reading: Reading, exchange: RawInteraction) -> int:
        """Keep a response, and return its number."""
        with self._lock:
            self._readings.append(reading)
            number = len(self._readings)
            self._keep(number, exchange)
            return number

    def extend(self, other: SessionRecording, **changes: Any) -> None:
        """Keep what another session's recording has, with fields of its readings changed."""
        for number, reading in enumerate(other.readings(), 1):
            self.add(reading._replace(**changes), other._exchanges[number])

    def add_body(self, number: int, body: bytes) -> None:
        """Keep the body of a response that was read after it was added."""
        with self._lock:
            exchange = self._exchanges.pop(number, None)
            if exchange is not None:
                self._kept_bytes -= _size(exchange)
                self._keep(number, exchange._replace(body=body))

    def cut_short(self, number: int, body: bytes, *, is_aborted: bool = False) -> Reading:
        """Say of a response that its connection broke, or that the caller dropped it.

        What came of its body is kept. Returns its reading.
        """
        reading = self.reading(number)._replace(is_cut_short=True, is_aborted=is_aborted)
        self._readings[number - 1] = reading
        self.add_body(number, body)
        return reading

    def redact_for_good(self) -> None:
        """Redact the messages themselves, since the session forgets its key now.

        A message that comes later is not kept: nothing could redact it.
        """
        with self._lock:
            self._is_redacted = True
            plain = {number: self._plain(number, each) for number, each in self._exchanges.items()}
            for each in plain.values():
                self.redactor.learn_from(each.request)
            for number, each in plain.items():
                if (redacted := self.redactor.without_keys(each)) is not each:
                    has_body = self._exchanges[number].body is not None
                    self._exchanges[number] = _as_raw(redacted, has_body=has_body)
            self.redactor = Redactor()

    def _keep(self, number: int, exchange: RawInteraction) -> None:
        if self._is_redacted:
            return
        self._exchanges[number] = exchange
        self._kept_bytes += _size(exchange)
        while self._kept_bytes > _MAX_KEPT_BYTES:
            self._kept_bytes -= _size(self._exchanges.pop(next(iter(self._exchanges))))

    @property
    def evidence(self) -> Evidence:
        """The unit of ``X-RateLimit-Reset`` and why; the stated one where there is one."""
        with self._lock:
            for reading in islice(self._readings, self._observed, None):
                self._observed += 1
                # What a recording played besides says nothing of the live service.
                if self.is_replay or reading.source != "replayed":
                    self._inference.observe(reading)
            return self._inference.evidence()

    def __len__(self) -> int:
        return len(self._readings)

    def interaction(self, number: int) -> Interaction:
        self._check_number(number)
        redactor = self.redactor  # before the message: that of a raw one knows the key
        exchange = self._exchanges.get(number) or RawInteraction(
            (self.base_url or "") + self._readings[number - 1].path, (), b"", (), "", None
        )
        return redactor.interaction(self._plain(number, exchange))

    def _plain(self, number: int, exchange: RawInteraction) -> Interaction:
        """Return an interaction before it is redacted."""
        reading = self._readings[number - 1]
        sent, received = map(text_headers, (exchange.request_headers, exchange.response_headers))
        request = RecordedRequest(reading.method, str(exchange.url), sent, exchange.request_body)
        response = RecordedResponse(reading.status, exchange.reason, received, exchange.body or b"")
        if exchange.body is not None and not reading.is_cut_short:
            response = normalize_headers(response, method=request.method)
        at = None if math.isnan(reading.at) else datetime.fromtimestamp(reading.at, UTC)
        return Interaction(request, response, at, reading.elapsed_s, reading.attempt)

    def reading(self, number: int) -> Reading:
        self._check_number(number)
        return self._readings[number - 1]

    def readings(self) -> list[Reading]:
        return self._readings.copy()

    def has_bodies(self, number: int) -> bool:
        exchange = self._exchanges.get(number)
        return exchange is not None and exchange.body is not None


class ReplayRecording(SessionRecording):
    """What one replay of a ``file`` played: the readings, and the addresses that were asked for.

    The rest is the file's.
    """

    is_replay = True

    def __init__(self, file: Recording, base_url: str, *, reset_unit: ResetUnit | None) -> None:
        super().__init__(file.name, base_url, reset_unit=reset_unit)
        self._file = file
        self._addresses: list[str] = []

    @cached_property
    def recorded_when(self) -> str:
        """When the file was recorded."""
        return self._file.recorded_when

    def _keep(self, number: int, exchange: RawInteraction) -> None:  # noqa: ARG002
        # Redacted here: a session may forget its key while its replay is held.
        request = RecordedRequest("GET", str(exchange.url))
        self._addresses.append(self.redactor.request(request).uri)

    def has_bodies(self, number: int) -> bool:  # noqa: ARG002
        return True

    def interaction(self, number: int) -> Interaction:
        reading = self.reading(number)
        of_file = reading.cassette_number or 0
        request = self._file.interaction(of_file).request
        request = replace(request, uri=self._addresses[number - 1])
        played = replace(self._file.answer(of_file, request), attempt=reading.attempt)
        return self.redactor.interaction(played)


def _as_raw(interaction: Interaction, *, has_body: bool) -> RawInteraction:
    request, response = interaction.request, interaction.response
    sent, received = (
        [(name.encode("latin-1"), value.encode()) for name, value in message.headers]
        for message in (request, response)
    )
    body = response.body if has_body else None
    return RawInteraction(request.uri, sent, request.body or b"", received, response.reason, body)


def _size(exchange: RawInteraction) -> int:
    return _HEADERS_BYTES + len(exchange.request_body) + len(exchange.body or b"")


# -- of a file -----------------------------------------------------------------------------------


def read_cassette(path: Path, progress: Progress | None = None) -> Recording:
    """Return the recording in a file: a cassette of any layout that vcrpy reads, ours, or HAR.

    ``progress`` is called with each part of a large file that was read, of which all is 1; by
    default a bar shows them.

    Raises
    ------
    CassetteError
        There is no such file, or it may not be read.
    CassetteFormatError
        It is not a cassette, is not safe to load, or is too large. An interaction in our layout is
        read, and checked, when it is asked for.
    """
    with ProgressBar(1.0, desc=f"Reading {path.stem}", bar_format=_PERCENT) as bar:
        return parse_cassette(read_bytes(path), path, progress or bar.update)


def parse_cassette(data: bytes, path: Path, progress: Progress = lambda _: None) -> Recording:
    """Return the recording that the bytes of a file hold; ``path`` is for messages alone."""
    if not data.strip():
        return Recording(path.stem, path=path)
    ours = _parse_lines(data, path)
    return _parse_third_party(data, path, progress) if ours is None else ours


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of at most 256 MB; raises as `read_cassette` does."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CassetteFormatError(f"{path} is not a file, so it is not a cassette.")
        if status.st_size > MAX_FILE_BYTES:
            raise CassetteFormatError(
                f"{path} has {status.st_size:,} bytes; a cassette may have {MAX_FILE_BYTES:,}.",
                "Record in parts.",
            )
        with path.open("rb") as file:
            return file.read(status.st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise CassetteError(f"Cannot read cassette {path} ({reason}).") from None


class Lines(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        return self.answer(index)

    def answer(self, index: int, request: RecordedRequest | None = None) -> Interaction:
        """Return an interaction; with a request, that stands for its own, which is not parsed."""
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        try:
            at, elapsed_s, attempt, request_line, response_line = match.groups()
            interaction = Interaction(
                request or check_request(layout.request_of(_parse(request_line))),
                check_response(layout.response_of(_parse(response_line))),
                layout.recorded_at_of(at.decode("ascii", "replace")),
                layout.elapsed_s_of(elapsed_s),
                int(attempt or 1),
            )
            check_times(interaction.recorded_at, interaction.elapsed_s)
        except MALFORMED as error:
            number = index % len(self) + 1
            raise unreadable(f"Interaction {number} of cassette {self._name!r}", error) from None
        return interaction

    def addresses(self) -> Iterator[tuple[Address, int]]:
        """Yield method and address of each interaction, and which attempt it is."""
        for index, start in enumerate(self._starts):
            yield layout.address_of(self._data, start) or _address_of(self[index])


def _address_of(interaction: Interaction) -> tuple[Address, int]:
    return (interaction.request.method, interaction.request.uri), interaction.attempt


def _decoded(interaction: Interaction) -> Interaction:
    """Return an interaction with its response decoded: httpx would decode it without a bound."""
    response = interaction.response
    if not (coding := header(response.headers, "content-encoding")):
        return interaction
    try:
        response = replace(response, body=unpack(response.body, coding))
    except ValueError as error:
        raise CassetteError(f"The recorded body is {error}, so it is not replayed.") from None
    response = normalize_headers(response, method=interaction.request.method)
    return replace(interaction, response=response)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode())  # faster than from bytes
    except (ValueError, RecursionError):  # a binary body, or a line that a person wrote
        from .vcr_files import load_yaml

        return load_yaml(line.decode())


def _parse_lines(data: bytes, path: Path) -> Recording | None:
    """Return the recording with an index of its lines; None where it needs vcrpy's loader."""
    header = layout.read_header(data)
    if header is None:
        return None
    metadata, position = header
    starts = array("Q")
    while match := layout.INTERACTION.match(data, position):
        starts.append(position)
        position = match.end()
    problem, end = None, layout.END.fullmatch(data, position)
    if end is None:
        if layout.INTERACTION.search(data, position) or layout.is_by_hand(data[position:]):
            return None
        problem = (
            f"its recording was not closed: {plural(len(starts), 'interaction')} recovered, "
            f"{plural(len(data) - position, 'byte')} of a torn one set aside"
        )
    else:
        digest = hashlib.sha256(memoryview(data)[:position]).hexdigest()
        if end[0] != layout.end_line(len(starts), digest).encode():
            problem = "it was changed after its recording was closed"
    lines = Lines(data, starts, path.stem)
    metadata, base_url = _about(metadata, lines, path)
    return Recording(path.stem, lines, base_url, problem, path, "lines", metadata, position)


def _parse_third_party(data: bytes, path: Path, progress: Progress) -> Recording:
    """Return a recording of another layout, without its credentials."""
    kind: Literal["json", "vcrpy", "har"]
    metadata: object = {}
    if path.suffix.lower() == ".har":
        from .har import read_har

        kind, interactions = "har", read_har(data, str(path))
    else:
        from .vcr_files import load_cassette_text

        try:
            text = data.decode("utf-8-sig")
            metadata, interactions = load_cassette_text(text, progress)
        except UnicodeDecodeError:
            raise CassetteFormatError(
                f"{path} is not a cassette: it is not UTF-8 text.", is_cassette=False
            ) from None
        except CassetteFormatError as error:
            raise CassetteFormatError(
                f"{path} is not a cassette. {error}", is_cassette=False
            ) from None
        kind = "json" if text.lstrip().startswith("{") else "vcrpy"
    interactions, redactor = redact_foreign(interactions)
    about, base_url = _about(metadata, interactions, path)
    about = {name: redactor.text(v) if isinstance(v, str) else v for name, v in about.items()}
    return Recording(
        path.stem, interactions, base_url, None, path, kind, about, len(data), redactor
    )


def _about(
    metadata: object, interactions: Sequence[Interaction], path: Path
) -> tuple[dict[str, Any], str | None]:
    """Return a cassette's metadata in the types of JSON, and its base address."""
    try:
        text = json.dumps(metadata, ensure_ascii=False, default=str)
        value = json.loads(text.encode(errors="replace"))
        value = value if isinstance(value, dict) else {}
        base_url = value.get("base_url")
        urlsplit(str(base_url))
    except MALFORMED:
        raise CassetteFormatError(
            f"{path} is not a cassette: what it says of its recording cannot be read.",
            is_cassette=False,
        ) from None
    if not isinstance(base_url, str):
        base_url = None
        with suppress(CassetteFormatError, IndexError):
            parts = urlsplit(interactions[0].request.uri)
            # No user info: it may be a key, and is no part of where the service is.
            base_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return value, base_url
