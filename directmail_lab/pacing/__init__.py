"""Pacing: requests are sent at once while some remain, and else wait for the renewal."""

from .allowance import Pace as Pace
from .transport import (
    CANCELLED as CANCELLED,
    Allowances as Allowances,
    PacingTransport as PacingTransport,
)
