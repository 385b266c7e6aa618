"""`SessionRecording`: the recording of a session, in memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..display import utc_time
from ..exchange.values import (
    Headers,
    Interaction,
    Request,
    Response,
    normalize_headers,
    text_headers,
)
from ..readings.reading import Reading, reading_of
from ..readings.reset_unit import Evidence, ResetUnit, ResetUnitInference, UnitName
from ..redaction import Redactor
from .files import FileRecording
from .recording import Recording

if TYPE_CHECKING:
    from .cassette import Cassette, Played

_MAX_KEPT_BYTES = 64 * 1024**2
# The memory that the addresses and headers of a usual response take.
_HEADERS_BYTES = 4096

RawHeaders = Sequence[tuple[bytes, bytes]]


class RawInteraction(NamedTuple):
    """A request and its response in httpx's types; ``body`` is None until it is read."""

    url: object
    request_headers: RawHeaders
    request_body: bytes
    response_headers: RawHeaders
    reason: str
    body: bytes | None

    def __repr__(self) -> str:
        return "<RawInteraction>"  # its values are not redacted


class SessionRecording(Recording):
    """All readings of a session, and its last messages up to 64 MB. Any thread may add to it.

    Messages are redacted when somebody asks for them. Before the session forgets its key, they are
    redacted in memory too.

    A replay keeps what was played: the numbers of the interactions in the file, from which the rest
    is read on demand.

    Parameters
    ----------
    reset_unit
        The unit of ``X-RateLimit-Reset`` if the user stated it.
    key_hint
        What to call the key that signs its writes: see `ApiKey.hint`.
    file
        The recording that a replay plays.

    Attributes
    ----------
    redactor
        Removes the key. After `redact_for_good`, it knows no key.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        reset_unit: ResetUnit | None = None,
        key_hint: str = "",
        file: FileRecording | None = None,
    ) -> None:
        self.name = name
        self.key_hint = key_hint
        self.base_url = base_url
        self.is_replay = file is not None
        self._file = file
        # A replay keeps the cassette's name, the number there, the sent address and the attempt.
        self._played: list[tuple[str, int, tuple[str, str], int]] = []
        self.redactor = Redactor()
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
            number = len(self._readings) + 1
            if not self._is_redacted:
                self._exchanges[number] = exchange
                self._kept_bytes += _size(exchange)
            # Last, since the number of readings is the number of interactions for other threads.
            self._readings.append(reading)
        if exchange.body is not None:
            self._drop_oldest()
        return number

    def add_played(self, cassette: Cassette, played: Played, *, attempt: int) -> int:
        """Keep a response that a cassette played, and return its number here."""
        address = played.request.method, played.request.uri
        if self._file is not None:
            with self._lock:
                self._played.append((cassette.name, played.number, address, attempt))
                return len(self._played)
        interaction = _as_sent(cassette.interaction_of(played), address, attempt)
        reading = self._reading_of(interaction, cassette.name, played.number)
        return self.add(reading, _as_raw(interaction, has_body=True))

    def _reading_of(self, interaction: Interaction, cassette: str, number: int) -> Reading:
        reading = reading_of(interaction, self.path_of(interaction.request), cassette=cassette)
        place = self.elsewhere(interaction.request.uri)
        reading = reading._replace(source="replayed", cassette_number=number, elsewhere=place)
        return reading.redacted(self.redactor.texts)

    def extend(self, other: SessionRecording, **changes: Any) -> None:
        """Add the interactions of another recording, with fields of their readings changed."""
        for number, reading in enumerate(other.readings(), 1):
            self.add(reading._replace(**changes), other._exchanges[number])

    def add_body(self, number: int, body: bytes, **changes: Any) -> None:
        """Add the body of a response that was added before its body was read.

        ``changes`` are the fields of its reading that are known only now.
        """
        with self._lock:
            if changes:
                self._readings[number - 1] = self._readings[number - 1]._replace(**changes)
            exchange = self._exchanges.pop(number, None)
            if exchange is not None and not self._is_redacted:
                self._exchanges[number] = exchange._replace(body=body)
                self._kept_bytes += len(body)
        self._drop_oldest()

    def redact_for_good(self) -> None:
        """Redact the messages in memory, because the session forgets its key now.

        Later messages are not kept, since nothing could redact them.
        """
        with self._lock:
            self._is_redacted = True
            plain = {number: self._plain(number) for number in self._exchanges}
            for number, each in plain.items():
                redacted = self.redactor.interaction(each)
                has_body = self.has_bodies(number)
                self._exchanges[number] = _as_raw(redacted, has_body=has_body)
            self.redactor = Redactor()

    def _drop_oldest(self) -> None:
        """Drop the oldest messages until 64 MB are left."""
        with self._lock:
            while self._exchanges and self._kept_bytes > _MAX_KEPT_BYTES:
                oldest = next(iter(self._exchanges))
                self._kept_bytes -= _size(self._exchanges.pop(oldest))

    @property
    def evidence(self) -> Evidence:
        """The unit of ``X-RateLimit-Reset`` and the reason for it."""
        with self._lock:
            self._infer()
            return self._inference.evidence()

    @property
    def reset_unit(self) -> UnitName:
        """The unit of ``X-RateLimit-Reset``, as far as it is known."""
        with self._lock:
            self._infer()
            return self._inference.unit

    def _infer(self) -> None:
        for number in range(self._observed + 1, len(self) + 1):
            self._observed = number
            reading = self._reading(number)
            # A replayed response in a recording says nothing about the live service.
            if self.is_replay or not reading.is_earlier:
                self._inference.observe(reading)

    @property
    def recorded_when(self) -> str:
        """When the file of a replay was recorded."""
        return "" if self._file is None else self._file.recorded_when

    @property
    def title(self) -> str:
        host = (self.base_url or "").partition("://")[2]
        return super().title if self.is_replay else f"{self.name} at {host}"

    def __len__(self) -> int:
        return len(self._readings if self._file is None else self._played)

    def interaction(self, number: int) -> Interaction:
        self._check_number(number)
        redactor = self.redactor  # taken first: it knows the key if the message has it
        return redactor.interaction(self._plain(number))

    def _plain(self, number: int) -> Interaction:
        """Return an interaction before it is redacted."""
        if self._file is not None:
            _, in_file, address, attempt = self._played[number - 1]
            return _as_sent(self._file.decoded(in_file), address, attempt)
        reading = self._readings[number - 1]
        exchange = self._exchanges.get(number) or RawInteraction(
            (self.base_url or "") + reading.path, (), b"", (), "", None
        )
        headers = text_headers(exchange.request_headers)
        request = Request(reading.method, str(exchange.url), headers, exchange.request_body)
        headers = text_headers(exchange.response_headers)
        response = Response(
            reading.status, exchange.reason, headers, exchange.body or b"", reading.no_response
        )
        if exchange.body is not None and not reading.is_cut_short:
            response = normalize_headers(response, method=request.method)
        at = None if math.isnan(reading.at) else utc_time(reading.at)
        return Interaction(request, response, at, reading.elapsed_s, reading.attempt)

    def reading(self, number: int) -> Reading:
        self._check_number(number)
        return self._reading(number)

    def _reading(self, number: int) -> Reading:
        if self._file is None:
            return self._readings[number - 1]
        cassette, in_file, *_ = self._played[number - 1]
        return self._reading_of(self._plain(number), cassette, in_file)

    def readings(self) -> list[Reading]:
        return self._readings.copy() if self._file is None else super().readings()

    def has_bodies(self, number: int) -> bool:
        if self._file is not None:
            return True
        exchange = self._exchanges.get(number)
        return exchange is not None and exchange.body is not None


def _as_sent(played: Interaction, address: tuple[str, str], attempt: int) -> Interaction:
    """Return a played interaction with the method and address of the request that was sent."""
    request = replace(played.request, method=address[0], uri=address[1])
    return replace(played, request=request, attempt=attempt)


def _as_raw(interaction: Interaction, *, has_body: bool) -> RawInteraction:
    request = interaction.request
    response = interaction.response
    return RawInteraction(
        request.uri,
        _raw_headers(request.headers),
        request.body or b"",
        _raw_headers(response.headers),
        response.reason,
        response.body if has_body else None,
    )


def _raw_headers(headers: Headers) -> RawHeaders:
    return [(name.encode("latin-1", "replace"), value.encode()) for name, value in headers]


def _size(exchange: RawInteraction) -> int:
    return _HEADERS_BYTES + len(exchange.request_body) + len(exchange.body or b"")
