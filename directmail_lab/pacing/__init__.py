"""Pacing: requests are sent at once while some remain, and else wait for the renewal."""

from .pacer import Pace as Pace, Pacer as Pacer
from .transport import PacingTransport as PacingTransport
