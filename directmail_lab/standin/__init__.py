"""The stand-in service: a real HTTP server on loopback that keeps service.md to the letter.

What service.md leaves open is an option (`StandInOptions`), and its answers say that they are a
stand-in's.
"""

from __future__ import annotations

from .options import (
    STAND_IN_KEY as STAND_IN_KEY,
    STAND_IN_RECORD as STAND_IN_RECORD,
    Fault as Fault,
    StandInOptions as StandInOptions,
)
from .service import StandIn as StandIn, stand_in as stand_in
