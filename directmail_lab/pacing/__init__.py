"""Pacing: requests go at will while the service says that some remain, and wait where none do."""

from .pacer import Pace, Pacer
from .transport import PacingTransport

__all__ = ["Pace", "Pacer", "PacingTransport"]
