"""Readings as users meet them: the log, its frame, and the files that hold readings."""

from .files import load_readings, read_readings, readings_in, readings_of, save_readings
from .log import ReadingLog, frame_of

__all__ = [
    "ReadingLog",
    "frame_of",
    "load_readings",
    "read_readings",
    "readings_in",
    "readings_of",
    "save_readings",
]
