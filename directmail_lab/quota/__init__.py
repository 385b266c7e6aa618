"""What the rate-limit headers say: readings, the unit of Reset, windows and allowances. Pure."""

from .reading import Reading, Source, date_of, is_exhausted, read_headers, reading_of

__all__ = ["Reading", "Source", "date_of", "is_exhausted", "read_headers", "reading_of"]
