"""What was seen, and what it says of one open part: the values that the others pass around."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from directmail_lab.interaction import operation_of

from .shapes import NOT_JSON, json_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from directmail_lab.interaction import Interaction
    from directmail_lab.quota import Reading

__all__ = ["Answer", "Credentials", "Finding", "HowSure", "Seen", "Told", "how_sure", "places"]

Credentials = Literal["key", "none", "wrong", "unknown"]
HowSure = Literal["not seen", "undecided", "seen once", "seen repeatedly", "certain"]


@dataclass(frozen=True)
class Answer:
    """One answer that can be looked at whole.

    Attributes
    ----------
    interaction
        The request and the response.
    path
        The path below the base address.
    base_url
        The base address that it was sent to; None where a cassette does not say.
    source, number
        Where it is found: a cassette's name, or ``"explore"``, and its number there, from 0.
    credentials
        What it was sent with. A cassette never says.
    """

    interaction: Interaction
    path: str
    base_url: str | None
    source: str
    number: int
    credentials: Credentials = "unknown"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.interaction.response.status

    @property
    def operation(self) -> str:
        """Method and path, id-like segments as ``{id}``."""
        return f"{self.interaction.request.method} {operation_of(self.path)}"

    @cached_property
    def json(self) -> object:
        """The body as JSON holds it, or `NOT_JSON`."""
        return json_of(self.interaction.response.body)

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON."""
        return self.json is not NOT_JSON


@dataclass(frozen=True, slots=True)
class Told:
    """A reading, and where it is found: a cassette's name or ``"rate_limits()"``, and its row."""

    reading: Reading
    source: str
    number: int


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the findings are made from.

    ``reset_unit`` and ``reset_why`` are what the readings say of the unit of Reset.
    """

    answers: Sequence[Answer]
    readings: Sequence[Told]
    reset_unit: str
    reset_why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one open part; `frame_of_findings` says what the fields are."""

    part: str
    section: str
    seen: str
    how_sure: HowSure
    interactions: str
    find_out: str
    schema: dict[str, Any] | None = None


def how_sure(times: int) -> HowSure:
    """Return how sure so many like sightings make: what is open is never certain by being seen."""
    return "not seen" if not times else "seen once" if times == 1 else "seen repeatedly"


def places(found: Iterable[Answer | Told]) -> str:
    """Return where things are found: ``"first-look 0-3, 7; explore 2"``."""
    by_source: dict[str, list[int]] = {}
    for each in found:
        by_source.setdefault(each.source, []).append(each.number)
    return "; ".join(f"{source} {_ranges(numbers)}" for source, numbers in by_source.items())


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
