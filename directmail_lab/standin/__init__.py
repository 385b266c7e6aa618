"""The stand-in service: a real HTTP server on loopback that follows service.md exactly.

What service.md leaves open is an option (`StandInOptions`). The answers say that they come from a
stand-in.
"""

from __future__ import annotations

from .options import (
    STAND_IN_KEY as STAND_IN_KEY,
    STAND_IN_RECORD as STAND_IN_RECORD,
    Fault as Fault,
    StandInOptions as StandInOptions,
)
from .service import StandIn as StandIn, stand_in as stand_in
