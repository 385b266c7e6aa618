"""Readings as users meet them: the log, its frame, and those that a cassette's responses hold."""

from .log import ReadingLog, frame_of, read_readings, readings_in

__all__ = ["ReadingLog", "frame_of", "read_readings", "readings_in"]
