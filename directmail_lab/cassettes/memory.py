"""`SessionRecording`: the recording of a session, in memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..display import utc_time
from ..exchange.values import (
    Interaction,
    Request,
    Response,
    normalize_headers,
)
from ..readings.reading import Reading, reading_of
from ..readings.reset_unit import Evidence, ResetUnit, ResetUnitInference, UnitName
from ..redaction import Redactor
from .files import FileRecording
from .recording import Recording

if TYPE_CHECKING:
    from .cassette import Played

_MAX_KEPT_BYTES = 64 * 1024**2
# The memory that the addresses and headers of a usual response take.
_HEADERS_BYTES = 4096


class SessionRecording(Recording):
    """All readings of a session, and its last messages up to 64 MB. Any thread may add to it.

    Readings and messages are redacted when somebody asks for them. Before the session forgets its
    key, they are redacted in memory too.

    What was played is read from its file on demand.

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
        self.recorded_when = "" if file is None else file.recorded_when
        self.redactor = Redactor()
        self._readings: list[Reading | None] = []  # None: of what was played, made on demand
        self._played: dict[int, Played] = {}
        self._sent: dict[int, Interaction] = {}  # not redacted
        self._unread: set[int] = set()
        self._kept_bytes = 0
        self._inference = ResetUnitInference(stated=reset_unit)
        self._observed = 0
        self._is_redacted = False
        # The garbage collector may redact a recording in a thread that has the lock.
        self._lock = threading.RLock()

    def add(
        self,
        reading: Reading,
        sent: Interaction,
        hide_keys: Callable[[list[str]], list[str]],
        *,
        is_read: bool = True,
    ) -> int:
        """Keep a response, and return its number.

        ``hide_keys`` redacts what comes after the session has forgotten its key.
        """
        with self._lock:
            number = len(self._readings) + 1
            if self._is_redacted:
                reading = reading.redacted(hide_keys)
            else:
                self._sent[number] = sent
                self._kept_bytes += _size(sent)
            if not is_read:
                self._unread.add(number)
            # Last, since the number of readings is the number of interactions for other threads.
            self._readings.append(reading)
        if is_read:
            self._drop_oldest()
        return number

    def add_played(self, played: Played) -> int:
        """Keep a response that a cassette played, and return its number here."""
        with self._lock:
            self._played[len(self._readings) + 1] = played
            self._readings.append(None)
            return len(self._readings)

    def extend(self, other: SessionRecording, **changes: Any) -> None:
        """Add the interactions of another recording, with fields of their readings changed."""
        for number, reading in enumerate(other.readings(), 1):
            sent = other._sent[number]
            self.add(reading._replace(**changes), sent, other.redactor.texts)

    def add_body(self, number: int, response: Response, **changes: Any) -> None:
        """Replace a response that was added before its body was read.

        ``changes`` are the fields of its reading that are known only now.
        """
        with self._lock:
            reading = self._readings[number - 1]
            assert reading is not None, "it was sent, not played"
            self._readings[number - 1] = reading._replace(cut=response.cut, **changes)
            sent = self._sent.pop(number, None)
            if sent is not None and not self._is_redacted:
                if response.cut is None:
                    response = normalize_headers(response, method=sent.request.method)
                self._sent[number] = replace(sent, response=response)
                self._kept_bytes += len(response.body)
                self._unread.discard(number)
        self._drop_oldest()

    def redact_for_good(self) -> None:
        """Redact the messages in memory, because the session forgets its key now.

        Later messages are not kept, since nothing could redact them.
        """
        with self._lock:
            self._is_redacted = True
            self._sent = {at: self.redactor.interaction(each) for at, each in self._sent.items()}
            hide_keys = self.redactor.texts
            self._readings = [each and each.redacted(hide_keys) for each in self._readings]
            self.redactor = Redactor()

    def _drop_oldest(self) -> None:
        """Drop the oldest messages until 64 MB are left."""
        with self._lock:
            while self._sent and self._kept_bytes > _MAX_KEPT_BYTES:
                self._kept_bytes -= _size(self._sent.pop(next(iter(self._sent))))

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
            reading = self.reading(number)
            # A replayed response in a recording says nothing about the live service.
            if self.is_replay or not reading.is_earlier:
                self._inference.observe(reading)

    @property
    def title(self) -> str:
        host = (self.base_url or "").partition("://")[2]
        return super().title if self.is_replay else f"{self.name} at {host}"

    def __len__(self) -> int:
        return len(self._readings)

    def interaction(self, number: int) -> Interaction:
        self._check_number(number)
        redactor = self.redactor  # taken first: it knows the key if the message has it
        return redactor.interaction(self._plain(number))

    def _plain(self, number: int) -> Interaction:
        """Return an interaction before it is redacted."""
        if number in self._played:
            return self._played[number].interaction()
        sent = self._sent.get(number)
        if sent is not None:
            return sent
        reading = self.reading(number)
        request = Request(reading.method, (self.base_url or "") + reading.path)
        response = Response(reading.status, cut=reading.cut)
        at = None if math.isnan(reading.at) else utc_time(reading.at)
        return Interaction(request, response, at, reading.elapsed_s, reading.attempt)

    def reading(self, number: int) -> Reading:
        self._check_number(number)
        redactor = self.redactor  # taken first: it knows the key if the reading has it
        reading = self._readings[number - 1]
        if reading is None:
            played = self._played[number]
            interaction = self._plain(number)
            reading = reading_of(
                interaction,
                self.path_of(interaction.request),
                cassette=played.cassette,
                elsewhere=self.elsewhere(interaction.request.uri),
            )
            reading = reading._replace(source="replayed", cassette_number=played.number)
        return reading.redacted(redactor.texts)

    def has_bodies(self, number: int) -> bool:
        return number in self._played or (number in self._sent and number not in self._unread)


def _size(sent: Interaction) -> int:
    return _HEADERS_BYTES + len(sent.request.body or b"") + len(sent.response.body)
