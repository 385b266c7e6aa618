"""Readings as users meet them: the log, its frame, and those that a cassette's responses hold."""

from .log import (
    ReadingLog as ReadingLog,
    frame_of as frame_of,
    read_readings as read_readings,
    readings_in as readings_in,
)
