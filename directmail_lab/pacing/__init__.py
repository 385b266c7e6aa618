"""Pacing: requests go at will while the service says that some remain, and wait where none do."""

from .pacer import Pace as Pace, Pacer as Pacer
from .transport import PacingTransport as PacingTransport
