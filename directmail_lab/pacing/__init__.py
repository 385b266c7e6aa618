"""Pacing: requests go at will while the service says that some remain, and wait where none do."""

from .transport import Pace, PacingTransport

__all__ = ["Pace", "PacingTransport"]
