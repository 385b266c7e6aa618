"""While a session has a key, no log handler gets to see it."""

import base64
import logging

import pytest
from key_search import traces

from directmail_lab.redaction import PLACEHOLDER, Redactor
from directmail_lab.redaction.logs import GUARDED_LOGGERS, guard_logs

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
OTHER = "dm_test_Zq4Rw8sDk2Lm6Np0Vx3Bt7Gh5Jc1"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode())


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    """The logger that shows request headers at DEBUG."""
    caplog.set_level(logging.DEBUG, "httpcore.http11")
    return logging.getLogger("httpcore.http11")


@pytest.mark.parametrize("name", GUARDED_LOGGERS)
def test_each_logger_is_guarded(name, caplog):
    logging.getLogger(name)
    end = guard_logs(Redactor([KEY]).text)
    with caplog.at_level(logging.DEBUG, name):
        logging.getLogger(name).debug("with %s", KEY)
    end()

    assert caplog.messages == [f"with {PLACEHOLDER}"]


def failing(logger: logging.Logger) -> None:
    try:
        raise ValueError(f"{KEY} {OTHER}")
    except ValueError:
        logger.exception("It failed")


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (lambda log: log.debug("100%% of %(key)s", {"key": KEY}), f"100% of {PLACEHOLDER}"),
        (lambda log: log.debug("100% sure"), "100% sure"),
        # httpcore logs the request's headers as bytes in a list.
        (lambda log: log.debug("%r", [(b"A", b"Basic " + CREDENTIAL)]), f"Basic {PLACEHOLDER}"),
        # Redacted by the header's name, although the guard does not know these values.
        (lambda log: log.debug("%r", [(b"Set-Cookie", b"s=1; Path=/")]), "b'<REDACTED>')]"),
        (lambda log: log.debug("%r", [(b"Authorization", b"Bearer x")]), "b'<REDACTED>')]"),
        (lambda log: log.debug("%r", [(b"X-Api-Key", b"x")]), "b'<REDACTED>')]"),
        # logging would print arguments that do not fit the format to stderr.
        (lambda log: log.debug("%d", KEY), f"%d ('{PLACEHOLDER}',)"),
        # The first guard turns a traceback into text, from which the second removes its own key.
        (failing, f"ValueError: {PLACEHOLDER} {PLACEHOLDER}"),
    ],
)
def test_whatever_is_logged_is_redacted_by_every_session_that_is_open(log, shown, logger, caplog):
    ends = guard_logs(Redactor([OTHER]).text), guard_logs(Redactor([KEY]).text)
    log(logger)
    for end in ends:
        end()
    written = caplog.text + repr([vars(record) for record in caplog.records])

    assert shown in caplog.text
    assert [traces(written.encode(), key) for key in (KEY, OTHER)] == [[], []]


def test_a_session_that_ends_removes_only_its_own_log_guard(logger, caplog):
    before = list(logger.filters)
    end_first, end_second = guard_logs(Redactor([KEY]).text), guard_logs(Redactor([OTHER]).text)
    shown = repr([logger.filters, *map(vars, logging.getLogger("httpx").filters)])
    logger.debug("%s %s", KEY, OTHER)
    end_first()
    logger.debug("%s", OTHER)
    end_second()
    end_second()

    assert caplog.messages == [f"{PLACEHOLDER} {PLACEHOLDER}", PLACEHOLDER]
    assert logger.filters == before
    assert traces(shown.encode(), KEY) == []
