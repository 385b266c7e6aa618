"""Keeping the key out of what httpx, httpcore and this package log while a session has one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .key_search import PLACEHOLDER

if TYPE_CHECKING:
    from .redactor import Redactor

_CORES: Final = ("httpcore", "httpcore2")  # httpx's, and that of its fork httpx2
_PARTS: Final = ("connection", "http11", "http2", "proxy", "socks")

GUARDED_LOGGERS: Final = (
    *("directmail_lab", "httpx", "httpx2"),
    *(f"{core}.{part}" for core in _CORES for part in _PARTS),
)
"""The loggers that a request's address, headers or errors reach, beside their children."""

_PARENTS: Final = ("directmail_lab.", "httpx.", "httpx2.", *(f"{core}." for core in _CORES))

# httpcore logs headers as pairs of bytes: (b'Cookie', b'…').
_CREDENTIALS = re.compile(
    r"((['\"])(?:proxy-authorization|authorization|set-cookie|cookie)\2, b?)(['\"]).*?\3(?=[,)\]])",
    re.IGNORECASE,
)


class _RedactingFilter(logging.Filter):
    """Redacts each record before any handler gets it, and drops none."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        # httpcore logs bytes and tuples of them as arguments, so the whole message is redacted.
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        message = _CREDENTIALS.sub(rf"\1\3{PLACEHOLDER}\3", message)
        record.msg, record.args = self._redactor.text(message), ()
        if record.exc_info and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text, record.exc_info = text, None
        # Also a text that the filter of another session, with another key, has made already.
        record.exc_text = record.exc_text and self._redactor.text(record.exc_text)
        record.stack_info = record.stack_info and self._redactor.text(record.stack_info)
        return True


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Redact what the guarded loggers log from now on; return a function that ends this.

    Each call adds a filter of its own, so sessions may overlap and end in any order.
    """
    guard = _RedactingFilter(redactor)
    # A filter is not inherited by the loggers below.
    below = [name for name in list(logging.root.manager.loggerDict) if name.startswith(_PARENTS)]
    loggers = [logging.getLogger(name) for name in {*GUARDED_LOGGERS, *below}]
    for logger in loggers:
        logger.addFilter(guard)

    def end() -> None:
        for logger in loggers:
            logger.removeFilter(guard)

    return end
