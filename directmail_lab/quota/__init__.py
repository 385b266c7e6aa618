"""What the rate-limit headers say: readings, the unit of Reset, windows and allowances. Pure."""

from .reading import (
    Reading as Reading,
    Source as Source,
    date_of as date_of,
    is_exhausted as is_exhausted,
    read_headers as read_headers,
    reading_of as reading_of,
)
