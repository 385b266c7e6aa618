"""`Recording`, of which questions are asked: `files` reads one, and a session keeps one."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ..arguments import parse_age
from ..display import plural
from ..errors import CassetteError, CassetteFormatError
from ..exchange.operations import base_path, path_below
from ..exchange.values import Interaction, Request
from ..readings.reading import Reading, reading_of
from ..readings.reset_unit import Evidence, infer_reset_unit
from ..settings import NO_ADDRESS, is_loopback, origin_of

_READINGS_FOR_UNIT = 1_000


THIS_MACHINE = "this machine"


def service_of(url: str | None, path: str | None = None) -> object:
    """Return what two service addresses must have in common. All of this machine are one place."""
    origin: object = url
    with suppress(ValueError):  # a port that is not a number
        origin = origin_of(url or "")
        if is_loopback(str(origin[1])):
            return THIS_MACHINE
    return origin, urlsplit(url or "").path.rstrip("/") if path is None else path


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's garbage collector for cycles while many values without cycles are made.

    It would visit all of them again and again: for two thirds of the time of reading 10,000
    interactions in vcrpy's layout, and for a third of the time of `openapi` of 100,000.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Recording(ABC):
    """Interactions in order, numbered from 1, without credentials.

    A subclass defines how many there are and what each one is. The other methods follow from that.
    A session overrides those that it can compute without reading an interaction.

    Attributes
    ----------
    name
        The cassette's name, or ``this session``.
    base_url
        The service address, or None if it is not known.
    path
        Its file, or None.
    problem
        A sentence about what is wrong with the file, or None.
    metadata
        The file's metadata, in the types of JSON.
    is_replay
        Whether a session played it from a file.
    """

    name: str
    base_url: str | None
    path: Path | None = None
    problem: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    is_replay: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        count = plural(len(self), "interaction")
        return f"Recording · {self.title!r}{self.recorded_note} · {self.base_url} · {count}"

    @abstractmethod
    def interaction(self, number: int) -> Interaction:
        """Return an interaction by its number.

        Raises
        ------
        CassetteError
            No interaction has that number, or (`CassetteFormatError`) it cannot be read.
        """

    def reading(self, number: int) -> Reading:
        """Return the reading of an interaction's response; raises as `interaction` does."""
        interaction = self.interaction(number)
        request = interaction.request
        elsewhere = self.elsewhere(request.uri)
        return reading_of(
            interaction, self.path_of(request), cassette=self.name, elsewhere=elsewhere
        )

    def elsewhere(self, uri: str) -> str:
        """Return the origin of an address if it is another server's, or an empty string."""
        if not self._own or uri.startswith(self._own):
            return ""
        with suppress(ValueError):  # a port that is not a number
            if origin_of(uri) in map(origin_of, self._own):
                return ""
        address = urlsplit(uri)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"

    @cached_property
    def _own(self) -> tuple[str, ...]:
        """The origins of the service, each with a slash; none if they are not known."""
        own = [base for base in self.base_urls if base != NO_ADDRESS]
        return tuple("/".join(base.split("/", 3)[:3]) + "/" for base in own)

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The service address, if it is known; a file may have more of them."""
        return (self.base_url,) if self.base_url else ()

    @cached_property
    def evidence(self) -> Evidence:
        """The unit of ``X-RateLimit-Reset``, inferred from the first thousand readings."""
        readings: list[Reading] = []
        with suppress(CassetteFormatError):
            numbers = range(1, min(len(self), _READINGS_FOR_UNIT) + 1)
            readings.extend(map(self.reading, numbers))
        return infer_reset_unit(readings)

    @cached_property
    def recorded_when(self) -> str:
        """When the file was recorded, such as ``on 21 November 2026``; empty if it has no times."""
        with suppress(CassetteError, IndexError):
            ends = self.interaction(1).recorded_at, self.interaction(len(self)).recorded_at
            days = list(dict.fromkeys(f"{at.day} {at:%B %Y}" for at in ends if at))
            return f"from {' to '.join(days)}" if len(days) > 1 else f"on {days[0]}"
        return ""

    @property
    def recorded_note(self) -> str:
        """The same to put after a name: ``, recorded on 21 November 2026``."""
        return f", recorded {self.recorded_when}" if self.recorded_when else ""

    @property
    def redact(self) -> tuple[str, ...]:
        """The argument ``redact`` that the file was recorded with; a replay needs the same."""
        rules = self.metadata.get("redact")
        return tuple(map(str, rules)) if isinstance(rules, list) else ()

    @property
    def title(self) -> str:
        """The name to show, which says if the recording was replayed."""
        return f"{self.name} (replayed)" if self.is_replay else self.name

    def __iter__(self) -> Iterator[Interaction]:
        return map(self.interaction, range(1, len(self) + 1))

    def readings(self) -> list[Reading]:
        """Return the readings of all responses, in their order."""
        return list(map(self.reading, range(1, len(self) + 1)))

    def responses(self) -> Iterable[tuple[Reading, Interaction]]:
        """Return the reading and the interaction of each response, in their order."""
        return zip(self.readings(), self, strict=False)  # a session may get one more meanwhile

    def has_bodies(self, number: int) -> bool:  # noqa: ARG002
        """Return whether an interaction still has its bodies: a session drops old ones."""
        return True

    def path_of(self, request: Request) -> str:
        """Return a request's path below the service address, or its whole path outside of it."""
        return path_below(request.uri, self._prefix)

    @cached_property
    def _prefix(self) -> str:
        return base_path(self.base_url or "")

    def _check_number(self, number: int) -> None:
        is_whole = type(number) is int or isinstance(number, Integral)  # the latter takes long
        if not (is_whole and 1 <= number <= len(self)):
            count = plural(len(self), "interaction")
            raise CassetteError(
                f"There is no interaction {number} in {self.name}: it has {count}, numbered from 1."
            )


def age_problem(interactions: Iterable[Interaction], max_age: str) -> str | None:
    """Return ``"is 40 days old, and max_age is 30 days"`` for an old recording, else None.

    Its age is that of its first interaction.

    Raises
    ------
    ValueError
        ``max_age`` does not have the form ``"30 days"``.
    """
    most = parse_age(max_age)
    at = next((interaction.recorded_at for interaction in interactions), None)
    if at is None:
        return f"does not say when it was recorded, and max_age is {max_age}"
    age = datetime.now(UTC) - at
    if age < timedelta(0):
        return f"is dated in the future, {at:%Y-%m-%d %H:%M} UTC, and max_age is {max_age}"
    shown = plural(age.days, "day") if age.days else plural(age.seconds // 3600, "hour")
    return f"is {shown} old, and max_age is {max_age}" if age >= most else None
