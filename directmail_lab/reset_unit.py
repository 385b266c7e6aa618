"""What ``X-RateLimit-Reset`` counts: inferred from the readings, never assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .quota import Reading

__all__ = ["SCALES", "Evidence", "ResetUnit", "ResetUnitInference", "Scale", "UnitName"]

ResetUnit = Literal["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
UnitName = Literal[
    "seconds_left",
    "milliseconds_left",
    "epoch_s",
    "epoch_ms",
    "http_date",
    "iso_text",
    "undetermined",
]


@dataclass(frozen=True, slots=True)
class Scale:
    """How a unit's count becomes a time: ``seconds`` a count, from the reading or the epoch on."""

    seconds: float
    counts_down: bool


SCALES: Final[dict[UnitName, Scale]] = {
    "seconds_left": Scale(1.0, counts_down=True),
    "milliseconds_left": Scale(0.001, counts_down=True),
    "epoch_s": Scale(1.0, counts_down=False),
    "epoch_ms": Scale(0.001, counts_down=False),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the readings say of the unit of ``X-RateLimit-Reset``, and why."""

    unit: UnitName
    why: str


class ResetUnitInference:
    """Infers the unit from readings as they come."""

    def __init__(self, *, stated: ResetUnit | None = None) -> None:
        self._stated = stated

    @property
    def unit(self) -> UnitName:
        return self._stated or "undetermined"

    def extend(self, readings: Iterable[Reading]) -> None: ...

    def evidence(self) -> Evidence:
        return Evidence(self.unit, "")
