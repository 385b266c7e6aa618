"""Redact what is logged while a session has a key."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from .key import REDACTED
from .places import written_header

GUARDED_LOGGERS = (
    "directmail_lab",
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
)
"""The loggers that get addresses, headers or errors of requests: ours, and those of httpx."""

# httpcore logs headers as pairs of bytes: (b'Cookie', b'…').
_LOGGED_HEADER = re.compile(r"(b?(['\"])([\w-]{1,99})\2, b?)(['\"])(.*?)(?:\4(?=[,)\]])|$)", re.M)


def _logged_header(match: re.Match[str]) -> str:
    is_kept = written_header(match[3], match[5]) == match[5]
    return match[0] if is_kept else f"{match[1]}{match[4]}{REDACTED}{match[4]}"


def guard_logs(redacted: Callable[[str], str]) -> Callable[[], None]:
    """Redact what the guarded loggers log from now on; return a function that ends this.

    ``redacted`` is `Redactor.text`. Each call adds its own filter, so sessions may overlap and end
    in any order.
    """

    def redact(record: logging.LogRecord) -> bool:
        # httpcore logs bytes and tuples of them as arguments, so the whole message is redacted.
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        record.msg = redacted(_LOGGED_HEADER.sub(_logged_header, message))
        record.args = ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        # Not only if it was formatted here: the filter of another session may have done so.
        record.exc_text = record.exc_text and redacted(record.exc_text)
        return True

    loggers = list(map(logging.getLogger, GUARDED_LOGGERS))  # a child inherits no filter
    for logger in loggers:
        logger.addFilter(redact)

    def end() -> None:
        for logger in loggers:
            logger.removeFilter(redact)

    return end
